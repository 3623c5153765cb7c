"""Offset: the committed offset of a consumer, stored in the journal's directory.

    ofs/NAME.ofs        8 bytes, big-endian: the offset of the next message of the consumer
    ofs/NAME.lck        its lock: one holder at a time, the original's programs included

A commit writes `NAME.ofs.tmp`, syncs it, renames it and syncs the directory, so that a crash leaves the old offset or
the new one. An empty file is a consumer that has not committed yet, and begins at its default. Any other length
than 8 is damage.

Reading an offset needs no lock and changes nothing.

A consumer may be ahead of its journal: the end of the journal was lost after the consumer had read it. The messages
that are appended now get the lost offsets again, and the consumer would skip them. So opening is refused (`Truncated`),
unless `ahead="end"` says to continue with the first message that the journal has got since, or gets next. A writer
that opens the journal notes the consumers that are ahead of it, so this holds after new messages have passed the
consumer too (see `files/offset_file.py`). If only writers of the original have opened it meanwhile, nothing shows it.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, Unpack

from ...core.format import ResetOptions, ResetTarget
from ...core.io.disk import REAL_DISK, Disk, make_directories, replace_file
from ...core.io.lock import Lock
from ...core.write.closing import Closing
from ...errors import Closed, Locked, NotFound, Poisoned, Truncated, WrongUse
from ..bytes.layout import (
    OFFSET,
    OFFSET_DIRECTORY,
    OFFSET_LOCK_SUFFIX,
    OFFSET_TEMPORARY_SUFFIX,
    SEGMENT_DIRECTORY,
    check_offset,
)
from ..files.offset_file import forget_ahead, list_consumers, offset_path, passed_from, stored_offset
from ..files.reader import Reader

logger = logging.getLogger("logwright.sej")

Default: TypeAlias = Literal["first", "last"]
Ahead: TypeAlias = Literal["refuse", "end"]
_NAME: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9_.-]{0,199}")


def check_name(name: str) -> None:
    """Raise `WrongUse` for a name that is not letters, digits, `_`, `-` and `.`, or that begins with a dot."""
    if not _NAME.fullmatch(name):
        raise WrongUse(
            f"consumer name {name!r} must be 1 to 200 letters, digits, '_', '-' and '.', and not begin with a dot"
        )


def check_default(default: str) -> None:
    """Raise `WrongUse` for a default that is neither `"first"` nor `"last"`."""
    if default not in ("first", "last"):
        raise WrongUse(f"default {default!r} is neither 'first' nor 'last'")


# --- reading --------------------------------------------------------------------------------------------------------


def list_offsets(disk: Disk, directory: Path) -> dict[str, int | None]:
    """The committed offset of every consumer of a journal; None for one that has not committed yet."""
    return {name: stored_offset(disk, directory, name) for name in list_consumers(disk, directory)}


def read_offset(directory: Path | str, name: str, default: Default = "first", *, disk: Disk = REAL_DISK) -> int:
    """The offset of a consumer, read without its lock; its default if it has not committed yet."""
    check_name(name)
    stored = stored_offset(disk, Path(directory), name)
    return default_offset(Path(directory), default, disk=disk) if stored is None else stored


def default_offset(directory: Path, default: Default, *, disk: Disk = REAL_DISK) -> int:
    """The offset of the first message, or the one that the next message will get."""
    check_default(default)
    reader = Reader(directory, disk=disk)
    return reader.first if default == "first" else reader.next


# --- committing -----------------------------------------------------------------------------------------------------


def hold(disk: Disk, directory: Path, name: str) -> Lock:
    """Take a consumer's lock, or raise `Locked`."""
    try:
        return Lock.acquire(disk, directory / OFFSET_DIRECTORY / (name + OFFSET_LOCK_SUFFIX))
    except Locked as error:
        raise Locked(f"{directory}: the consumer {name!r} is running elsewhere", error.holder) from None


def store(disk: Disk, directory: Path, name: str, value: int) -> None:
    """Replace the stored offset of a consumer whose lock is held."""
    temporary = directory / OFFSET_DIRECTORY / (name + OFFSET_TEMPORARY_SUFFIX)
    replace_file(disk, offset_path(directory, name), OFFSET.pack(value), temporary)
    forget_ahead(disk, directory, name)


def _whole(value: int) -> int:
    """An offset as a plain integer, or `WrongUse`."""
    try:
        value = operator.index(value)
    except TypeError:
        raise WrongUse(f"an offset is a whole number, not {value!r}") from None
    check_offset(value)
    return value


class Offset(Closing):
    """A consumer's committed position, held by this object alone until it is closed (`Locked` for a second one).

    Opening registers the consumer, so that retention knows of it. `value` is the offset of the next message to
    consume. After a commit has failed nothing more can be committed (`Poisoned`): what the disk holds is the old value
    or the new one, and opening again shows which. `ahead` says what to do if the journal has lost messages that were
    consumed: see above.
    """

    def __init__(
        self,
        directory: Path | str,
        name: str,
        default: Default = "first",
        *,
        ahead: Ahead = "refuse",
        disk: Disk = REAL_DISK,
    ) -> None:
        check_name(name)
        check_default(default)
        if ahead not in ("refuse", "end"):
            raise WrongUse(f"ahead {ahead!r} is neither 'refuse' nor 'end'")
        self.directory = Path(directory).absolute()
        self.name = name
        self._disk = disk
        self._path = offset_path(self.directory, name)
        self._failure: BaseException | None = None
        self._is_durable = False
        self._lock: Lock | None = None
        if not disk.is_directory(self.directory / SEGMENT_DIRECTORY):
            raise NotFound(f"{directory}: no sej journal is here")
        make_directories(disk, self._path.parent)
        self._lock = hold(disk, self.directory, name)
        try:
            self._stored = self._register()
            if self._stored is None:
                self._value = default_offset(self.directory, default, disk=disk)
            else:
                self._value = self._within_journal(self._stored, ahead)
                if self._value != self._stored:
                    self._stored = None  # the stored offset is ignored
        except BaseException:
            self._lock.release()
            raise

    def _register(self) -> int | None:
        try:
            return stored_offset(self._disk, self.directory, self.name)
        except NotFound:
            self._disk.open(self._path, "create").close()
            self._disk.sync_directory(self._path.parent)
            return None

    def _within_journal(self, offset: int, ahead: Ahead) -> int:
        """The offset, unless messages below it are new, or are missing at the end of the journal."""
        reader = Reader(self.directory, disk=self._disk)
        passed = passed_from(self._disk, self.directory, self.name, offset)
        if passed is None and offset <= reader.next:
            return offset
        end = reader.next if passed is None else passed
        reason = (
            f"{self.directory}: the consumer {self.name} had come to offset {offset}, but the journal "
            f"{'ends' if passed is None else 'ended'} with {end}: its last messages were lost"
        )
        if ahead == "refuse":
            to, next_one = ("last", "the next message") if passed is None else (end, f"message {end}")
            hint = f"`logwright reset {self.directory} {self.name} --to {to}`, or open it with ahead='end'"
            raise Truncated(f"{reason}, and new ones would be skipped. To continue with {next_one}: {hint}")
        logger.warning("%s; it continues with the next message", reason)
        return end

    @property
    def value(self) -> int:
        """The offset of the next message to consume."""
        return self._value

    @property
    def committed(self) -> bool:
        """Whether the value is on the disk: False before the first commit, while the value is the default."""
        return self._stored is not None

    def commit(self, value: int) -> None:
        """Keep `value` as the offset of the next message to consume; it is on the disk when this returns."""
        value = _whole(value)
        if self._failure is not None:
            raise Poisoned(f"{self._path}: an earlier commit failed ({self._failure})") from self._failure
        if self._lock is None:
            raise Closed(f"{self._path}: this offset is closed")
        if value == self._stored and self._is_durable:
            return
        try:
            self._lock.check()
            if value == self._stored:
                self._disk.sync_directory(self._path.parent)  # it may have been stored without a sync
            else:
                store(self._disk, self.directory, self.name, value)
        except BaseException as error:
            self._failure = error
            raise
        self._stored = self._value = value
        self._is_durable = True

    def close(self) -> None:
        """Release the lock. Commits nothing; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def reset(
    directory: Path | str,
    name: str,
    to: ResetTarget = None,
    *,
    disk: Disk = REAL_DISK,
    **options: Unpack[ResetOptions],
) -> int:
    """Move a consumer that is not running: to an offset, to `"first"` or `"last"`, or to a time; where it is now.

    `time` is nanoseconds since the epoch: the consumer continues with the first message that is not earlier. An
    offset beyond the end is refused, because the consumer would skip future messages. With `create` the consumer need
    not exist.
    """
    (value,) = reset_all([directory], name, to, disk=disk, **options)
    return value


def reset_all(
    directories: Sequence[Path | str],
    name: str,
    to: ResetTarget = None,
    *,
    disk: Disk = REAL_DISK,
    **options: Unpack[ResetOptions],
) -> list[int]:
    """Move a consumer of several journals, such as the shards of a root; where it is now in each.

    Everything is checked and every lock is taken before any offset is changed: an error in one journal leaves all
    offsets unchanged.
    """
    homes = [Path(directory) for directory in directories]
    values = [plan_reset(home, name, to, disk=disk, **options) for home in homes]
    with contextlib.ExitStack() as locks:
        for home in homes:
            make_directories(disk, home / OFFSET_DIRECTORY)
            locks.enter_context(hold(disk, home, name))
        for home, value in zip(homes, values, strict=True):
            # Not by an Offset: the stored offset may be damaged, and a reset repairs it.
            store(disk, home, name, value)
    return values


def plan_reset(
    directory: Path | str,
    name: str,
    to: int | Default | None = None,
    *,
    time: int | None = None,
    create: bool = False,
    disk: Disk = REAL_DISK,
) -> int:
    """Where `reset` would move a consumer, without moving it."""
    check_name(name)
    if (to is None) == (time is None):
        raise WrongUse("say either where to reset to, or the time")
    home = Path(directory)
    if not create:
        _require(disk, home, name)
    reader = Reader(home, disk=disk)
    if time is not None:
        return reader.find_time(time)
    if isinstance(to, int):
        check_offset(to)
        if to > reader.next:
            raise WrongUse(f"offset {to} is beyond the end of {home}: the next message gets {reader.next}")
        return to
    if to == "first" or to == "last":
        return default_offset(home, to, disk=disk)
    raise WrongUse(f"cannot reset to {to!r}: neither an offset nor 'first' nor 'last'")


def _require(disk: Disk, directory: Path, name: str) -> None:
    if not disk.exists(offset_path(directory, name)):
        known = ", ".join(list_consumers(disk, directory)) or "none"
        raise NotFound(f"{directory}: there is no consumer {name!r}; there are: {known}")
