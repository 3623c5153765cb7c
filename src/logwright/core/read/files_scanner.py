"""FilesScanner: the base of the scanners of formats whose journals are side by side in a directory.

A scanner returns the existing records and then waits for more, until its timeout. It follows one journal, or all
journals of a directory including those that appear later. A format implements `follow`, which returns a `Followed`.

The type of what a scanner returns depends on its mode. Its constructor says so with two overloads: one with the options
`FollowingRecords` for a scanner of records, the other with `FollowingAll` for one of records and damage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, Required, TypedDict, TypeVar

from ...errors import Closed, DamagedJournal, NotFound
from ..bytes.outcome import Damage, Mode, RecordsOnly, check_mode
from ..format import Located, half_done_damage
from ..io.disk import REAL_DISK, Disk
from ..io.watch import POLL_SECONDS
from ..write.closing import Closing
from .chunk import Bound, Choice

DEFAULT_TIMEOUT_SECONDS: Final = 1.0
Item = TypeVar("Item")


class Followed(Protocol):
    """A journal that is followed. `read` returns the records that were appended since the last call."""

    def read(self, mode: Mode, choice: Choice | None = None) -> Iterator[Located | Damage]: ...


class Waiting(TypedDict, total=False):
    """The options of a scanner apart from its mode."""

    timeout: float | None
    disk: Disk


class Following(Waiting, total=False):
    """The options of a scanner."""

    mode: Mode


class FollowingRecords(Waiting, total=False):
    """The options of a scanner that returns only records."""

    mode: RecordsOnly


class FollowingAll(Waiting, total=False):
    """The options of a scanner that may return damage as well."""

    mode: Required[Mode]


class FilesScanner(Closing, Generic[Item]):
    """An iterator over the records from a number on, waiting for more; in the mode `permissive` also over damage.

    `path` is one journal, or a directory of them. `start` is a number, for a directory one for each part by its name;
    None, and a part that is not named, begins with the first record. `timeout` is how long to wait for the next record:
    None forever, 0 not at all.
    """

    format: ClassVar[str]
    nothing_here: ClassVar[str]
    """The message if there is no journal."""

    def __init__(
        self,
        path: Path | str,
        start: Bound = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> None:
        self.path = Path(path).absolute()
        self.timeout = timeout
        self.mode = check_mode(mode)
        self.disk = disk
        self._is_directory = disk.is_directory(self.path)
        self._starts: Mapping[str, int] = start if isinstance(start, Mapping) else {}
        self._followed: dict[str, Followed] = {}
        if self._is_directory:
            names = self.names()
            if not names:
                raise NotFound(f"{path}: {self.nothing_here}")
            if isinstance(start, int) and len(names) == 1:
                self._starts = {names[0]: start}
        else:
            self._followed[""] = self.follow(self.path, start if isinstance(start, int) else None)
        self._watch = disk.watch(self.path if self._is_directory else self.path.parent)
        self._closed = False

    # --- what a format has ------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The parts that the directory has now."""
        raise NotImplementedError

    def path_of(self, part: str) -> Path:
        """The path of one part."""
        raise NotImplementedError

    def follow(self, path: Path, start: int | None) -> Followed:
        """Follow one journal from a number on, or from its first record."""
        raise NotImplementedError

    # --- what is the same -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Item]:
        for item in self.located():
            found: Any = item if isinstance(item, Damage) else item.record
            yield found

    def located(self, choice: Choice | None = None) -> Iterator[Located | Damage]:
        """The records with their places, and in the mode `permissive` what is damaged."""
        if self._closed:
            raise Closed(f"{self.path}: this scanner is closed")
        yield from self._half_repaired()
        since = time.monotonic()
        while True:
            for item in self._poll(choice):
                yield item
                since = time.monotonic()
            left = POLL_SECONDS if self.timeout is None else since + self.timeout - time.monotonic()
            if left <= 0:
                return
            self._watch.wait(min(left, POLL_SECONDS))

    def _half_repaired(self) -> Iterator[Damage]:
        """Raise, return or skip an interrupted repair of what is followed."""
        damage = half_done_damage(self.path, disk=self.disk, format=self.format)
        if damage is not None and self.mode == "failfast":
            raise DamagedJournal(damage.file, 0, damage.reason)
        if damage is not None and self.mode == "permissive":
            yield damage

    def _poll(self, choice: Choice | None) -> Iterator[Located | Damage]:
        """The records that were appended since the last call."""
        if self._is_directory:
            for name in self.names():
                if name not in self._followed:
                    self._followed[name] = self.follow(self.path_of(name), self._starts.get(name))
        for name, followed in list(self._followed.items()):
            yield from followed.read(self.mode, None if choice is None else choice.within(name))

    def close(self) -> None:
        """Stop watching. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._watch.close()
