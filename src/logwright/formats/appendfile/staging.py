"""Batches of records that many tasks write and one place publishes: `core.staging` for a journal.

A task encodes its records one behind the other into a file of its own. The manifest says at which number the journal
goes on, and the records are appended through `Writer`, so that files and hints are what a writer makes of them. A batch
is a segment: when all of it is there, a checkpoint closes it.

How much of a batch is in place after a crash is found by comparing the data in the journal, from the number on that the
manifest names, with what was staged; the rest is appended. A batch needs its space twice for a while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from ...core import staging as core
from ...core.disk import REAL_DISK, Disk, File, make_directories, write_all
from ...core.errors import DamagedJournal, NotFound, WrongUse
from ...core.format import find_format
from ...core.keep import cut_tail
from ...core.lock import Lock
from ...core.manifest import Batch, FilesOf, OpenedParts, Part, StagedFile, staging_directory
from ...core.outcome import Damage
from ...core.staging import (
    Published,
    Recovered,
    Staged,
    complete,
    discard,
    is_published,
    lock_to_publish,
    publish,
    recover_staging,
)
from . import codec, kernel
from .codec import Columns
from .files import POSITION_BITS
from .layout import HOME_DIRECTORY, LOCK_NAME
from .reader import Reader
from .writer import BUFFER_BYTES, Writer

__all__ = [
    "OPTIONS",
    "Batch",
    "Published",
    "Recovered",
    "Stage",
    "Staged",
    "StagedFile",
    "Target",
    "complete",
    "discard",
    "is_published",
    "publish",
    "recover_staging",
    "refuse_live_writers",
]

OPTIONS: Final[dict[str, tuple[str, str]]] = {}
"""A sink has no options of its own."""
_PART: Final = ""
"""The journal is the root itself."""


# --- where they go ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The journal of a root."""

    format: ClassVar[str] = "appendfile"

    def check_name(self, part: str) -> None:
        """Raise `WrongUse` for what is not the journal itself."""
        if part != _PART:
            raise WrongUse(f"{part!r} is no part of a journal: it has none")

    def check_root(self, disk: Disk, root: Path) -> None:
        """Nothing forbids to write there."""

    def needed_bytes(self, files_of: FilesOf) -> int:
        """Everything is copied."""
        return sum(file.bytes for files in files_of.values() for file in files)

    @contextlib.contextmanager
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> Iterator[OpenedParts]:
        """The journal, locked and opened. A segment that somebody has left open must be recovered by him."""
        with _PartWriter(disk, root, _lock(disk, root)) as writer:
            if writer.has_data:
                reason = f"no checkpoint closes its last segment {writer.current}, so nothing can follow that"
                raise WrongUse(f"{root}: {reason}: open it as a journal first, and recover what is in it")
            start = (writer.file_id << POSITION_BITS) + writer.position
            yield (Part(_PART, start, tuple(files_of[_PART])),), lambda part: _append(disk, root, writer, part, 0)

    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Append what is not there yet, and close the segment."""
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_lock(disk, root))
            there = _settle(disk, root, part)
            with _PartWriter(disk, root, lock) as writer:  # also syncs what is there: the killed one may not have
                _append(disk, root, writer, part, there)


def refuse_live_writers(root: Path | str, target: Target, *, disk: Disk = REAL_DISK) -> None:
    """Raise what publishing would raise for the journal as it is: better before the work than behind it."""
    root = Path(root)
    if disk.is_directory(root / HOME_DIRECTORY):
        lock_to_publish(disk, root / LOCK_NAME, root).release()


# --- staging, in a task -----------------------------------------------------------------------------------------------


class _StageFile:
    """The records of a task, one behind the other."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = 0
        self._records = 0

    def append(self, columns: Columns) -> None:
        kernel.check_columns(columns)
        row = 0
        while row < columns.count:
            data, count, row = kernel.pack(columns, row, BUFFER_BYTES)
            write_all(self._file, self._size, data)
            self._size += len(data)
            self._records += count

    def finish(self) -> tuple[int, int]:
        """How many records and bytes there are, now that they are on the disk."""
        self._file.sync()
        self._file.close()
        return self._records, self._size

    def close(self) -> None:
        self._file.close()


class Stage(core.StageFiles[_StageFile]):
    """What one task writes: see `core.staging`."""

    def __init__(self, root: Path | str, run: str, order: int, target: Target, *, disk: Disk = REAL_DISK) -> None:
        super().__init__(root, run, order, _StageFile, disk)

    def append_batch(self, batch: Any) -> None:
        """Take the rows of an Arrow record batch, each a record of data: in the column `data`, or `value`."""
        for columns in find_format("appendfile").room("columns").from_arrow(batch):
            if any(bytes(columns.kinds or b"")[: columns.count]):
                raise WrongUse("checkpoints cannot be staged: each batch is closed by its own")
            self._file_of(_PART).append(columns)


# --- what goes into the journal ---------------------------------------------------------------------------------------


class _PartWriter(Writer):
    """A writer of whoever publishes, who has the lock already, and knows of all manifests that there are."""

    def __init__(self, disk: Disk, home: Path, lock: Lock) -> None:
        self._held = lock
        super().__init__(home, disk=disk)

    def _take_lock(self) -> Lock:
        return self._held


def _lock(disk: Disk, root: Path) -> Lock:
    """The lock of a journal, which need not be there yet."""
    make_directories(disk, root / HOME_DIRECTORY)
    return lock_to_publish(disk, root / LOCK_NAME, root)


def _append(disk: Disk, root: Path, writer: Writer, part: Part, skip: int) -> None:
    """Append what was staged, without the first `skip` records, and close the segment."""
    with contextlib.closing(_staged(disk, root, part, skip)) as staged:
        for record in staged:
            writer.append(record)
    writer.register_checkpoint()
    writer.sync()


def _staged(disk: Disk, root: Path, part: Part, skip: int = 0) -> Generator[bytes, None, None]:
    """The records that were staged, without the first `skip`."""
    for staged in part.files:
        path = staging_directory(root) / staged.name
        file = disk.open(path, "read")
        try:
            count = 0
            for record in _records(file, path):
                count += 1
                if skip:
                    skip -= 1
                else:
                    yield record
            if count != staged.records:
                raise DamagedJournal(path, 0, f"{count} records are here, {staged.records} were staged")
        finally:
            file.close()


def _records(file: File, path: Path) -> Iterator[bytes]:
    """The records of a staged file."""
    position, size = 0, file.size()
    while position < size:
        room = max(BUFFER_BYTES, 2 << 20)
        data = file.read_at(position, room)
        stop, count, ending, _ = kernel.walk(data, 0, len(data))
        if ending == codec.MALFORMED or not count:
            raise DamagedJournal(path, position + stop, codec.explain(data, stop, len(data)))
        yield from kernel.payloads(data, 0, stop, count)
        position += stop


# --- after a crash ----------------------------------------------------------------------------------------------------


def _settle(disk: Disk, root: Path, part: Part) -> int:
    """How many records of a part are in the journal, whose lock is ours.

    Where a power cut has left a hole among them, it and what is behind are cut off and kept: the whole of it was
    staged, and nobody else can have written behind a hole.
    """
    try:
        reader = Reader(root, disk=disk)
    except NotFound:
        return 0
    there, damage = _compare(disk, root, reader, part)
    if damage is None:
        return there
    last = reader.files()[-1]
    if damage.file != last.name:
        raise DamagedJournal(root / damage.file, damage.start, damage.reason)
    file = disk.open(last.path, "update")
    try:
        cut_tail(disk, root, file, damage.start)
    finally:
        file.close()
    return there


def _compare(disk: Disk, root: Path, reader: Reader, part: Part) -> tuple[int, Damage | None]:
    """How many records of the journal are those of the part, and the damage right behind them, if that ends them."""
    there = 0
    reading = reader.chunks(part.start, mode="permissive")
    staged = _staged(disk, root, part)
    with contextlib.closing(reading), contextlib.closing(staged):  # type: ignore[type-var]
        found = _one_by_one(reading)
        for ours in staged:
            item = next(found, None)
            if isinstance(item, Damage):
                return there, item
            if item != ours:
                return there, None
            there += 1
    return there, None


def _one_by_one(chunks: Iterable[Any]) -> Iterator[bytes | Damage]:
    for item in chunks:
        if isinstance(item, Damage):
            yield item
        else:
            yield from kernel.payloads(item.data, item.start, item.stop, item.count)
