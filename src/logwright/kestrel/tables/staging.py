"""Batches of items that many tasks stage and one publisher publishes: `core.publish.staging` for queues.

A task encodes its items into its own files, one for each queue. Each item is an ADDX, which is the same in both
dialects. Before the commit, the publisher joins several files for one queue into one. After the commit, a batch is put
in place by renaming, which needs no more space: one rotated file for each batch and queue.

Rotated files are replayed before the newest one. The items of a batch must come after the existing ones, so the newest
file, unless it is empty, is rotated first, under the queue's lock:

    cars.904    cars                        ->      cars.904    cars.950            cars.951        cars
                (items, removals)                               (what was cars)     (the batch)     (empty, or missing)

951 is greater than all previous numbers, even if the clock was set back. A rotation does not change the state of a
queue, so it may be done before the commit, and for a batch that is never committed.

After a crash: a staged file that was renamed no longer exists under its old name; if a power cut has left both names,
they are the same file. A file that is not yet in place gets a new number, greater than those of files written since.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core.io.disk import REAL_DISK, Disk, File, make_directories, write_all
from ...core.io.lock import Lock
from ...core.publish.manifest import FilesOf, OpenedParts, Part, StagedFile, Target
from ...core.publish.staging import (
    PackedFile,
    StageFiles,
    bytes_to_put_together,
    give_name,
    has_name,
    put_together,
)
from ...errors import WrongUse
from ..bytes import kernel
from ..bytes.codec import Columns
from ..bytes.layout import DOCUMENTED, HOME_DIRECTORY, check_queue_name, lock_name, parse_name, rotated_name
from ..files.files import list_files
from ..files.queue_files import journal_to_write
from ..files.writer import BUFFER_BYTES, Writer
from ..model.packing import next_timestamp

if TYPE_CHECKING:
    import pyarrow as pa

_COPY_BYTES: Final = 1 << 20


# --- the target -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueuesTarget(Target):
    """The queues of a directory as the target of a sink. Items without a queue are put into `queue`."""

    format: ClassVar[str] = "kestrel"
    options: ClassVar = {"queue": ("queue", "text")}

    queue: str | None = None

    def __post_init__(self) -> None:
        if self.queue is not None:
            check_queue_name(self.queue)

    def check_name(self, part: str) -> None:
        """Raise `WrongUse` if this is not a valid queue name."""
        check_queue_name(part)

    def needed_bytes(self, files_of: FilesOf) -> int:
        """The bytes that are copied: those of files that are joined."""
        return bytes_to_put_together(files_of)

    @contextlib.contextmanager
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> Iterator[OpenedParts]:
        """Lock the queues, rotate their newest files, and make one file for each of them, to be renamed.

        A new queue is created after the commit.
        """
        make_directories(disk, root / HOME_DIRECTORY)
        with contextlib.ExitStack() as stack:
            locks = {queue: stack.enter_context(_lock(disk, root, queue)) for queue in files_of}
            starts = {queue: _rotate_newest(disk, root, queue, lock) for queue, lock in locks.items()}
            parts = put_together(disk, root, run, files_of, starts, lambda files, path: _as_one(disk, files, path))

            def put(part: Part) -> None:
                for staged in part.files:
                    give_name(disk, root, staged, root / rotated_name(part.name, part.start))

            yield parts, put

    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Rename the file, unless that was done."""
        with _lock(disk, root, part.name) as lock:
            for staged in part.files:
                if not has_name(disk, root, staged, _paths(disk, root, part.name)):
                    number = _rotate_newest(disk, root, part.name, lock)
                    give_name(disk, root, staged, root / rotated_name(part.name, number))

    def refuse_live_writers(self, root: Path, *, disk: Disk) -> None:
        """Raise the error that publishing into the queue of the target would raise now, before any work is done.

        Other queues of a batch are known only from its rows.
        """
        queue = self.queue
        if queue is not None and disk.exists(root / lock_name(queue)):
            _lock(disk, root, queue).release()

    def check_writable(self, schema: pa.Schema) -> None:
        from .spark_columns import check_writable

        check_writable(schema, self.queue)

    def writable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from .spark_columns import writable

        return writable(batch)

    def stage(self, root: Path, run: str, order: int, *, disk: Disk = REAL_DISK) -> Stage:
        return Stage(root, run, order, self, disk=disk)


def _lock(disk: Disk, root: Path, queue: str) -> Lock:
    return journal_to_write(disk, root / queue).lock_to_publish()


# --- staging, in a task ---------------------------------------------------------------------------------------------


class _StageFile(PackedFile):
    """The items for one queue, as a file of its journal."""

    def append(self, parts: list[Columns]) -> None:
        now = time.time_ns() // 1_000_000
        for part in parts:
            row = 0
            while row < part.count:
                data, count, row = kernel.pack(part, row, BUFFER_BYTES, DOCUMENTED, now)
                self.write(data, count)


class Stage(StageFiles[_StageFile]):
    """The files of one task: see `core.publish.staging`."""

    def __init__(self, root: Path | str, run: str, order: int, target: QueuesTarget, *, disk: Disk = REAL_DISK) -> None:
        super().__init__(root, run, order, _StageFile, disk)
        self._target = target

    def append_batch(self, batch: Any) -> None:
        """Append the rows of an Arrow record batch, each an item for its queue.

        Columns: `data`, and if present `queue`, `added` and `expires`, as `Writer.append_batch` takes them.
        """
        from . import columns

        for queue, rows in columns.by_queue(batch, self._target.queue or ""):
            if not queue and self._target.queue is None:
                raise WrongUse("a row names no queue: fill the column queue, or give option('queue', NAME)")
            check_queue_name(queue)
            if rows.num_rows:
                self._file_of(queue).append(columns.from_arrow(rows))


# --- publishing -------------------------------------------------------------------------------------------------------


class _RotatingWriter(Writer):
    """A writer for a publisher, which holds the lock, keeps it, and has dealt with all earlier batches."""

    def __init__(self, disk: Disk, path: Path, lock: Lock) -> None:
        self._held_lock = lock
        super().__init__(path, disk=disk)

    def _release(self) -> None:
        if hasattr(self, "_file"):  # unless opening failed before there was one
            self._file.close()


def _rotate_newest(disk: Disk, root: Path, queue: str, lock: Lock) -> int:
    """The number for a file that is replayed after all existing ones. The newest file is then empty or missing."""
    listing = list_files(disk, root, queue)
    last, newest = listing.last_timestamp, listing.newest
    if listing.pack is not None or (newest is not None and disk.file_size(newest.path)):
        with _RotatingWriter(disk, root / queue, lock) as writer:  # also cuts off a torn tail
            last = writer.rotate()
    timestamp = next_timestamp(last)
    if parse_name(rotated_name(queue, timestamp)) is None:
        raise WrongUse(f"{root / rotated_name(queue, last)}: there is no greater number for a file after this one")
    return timestamp


def _as_one(disk: Disk, files: Sequence[StagedFile], path: Path) -> int:
    """Join files into one, and sync it, but not its name; returns its size."""
    file = disk.open(path, "create")
    try:
        size = 0
        for staged in files:
            size += _copy(disk, path.with_name(staged.name), file, size)
        file.sync()
    finally:
        file.close()
    return size


def _copy(disk: Disk, path: Path, target: File, start: int) -> int:
    """Write the bytes of a file to another one; returns their number."""
    file = disk.open(path, "read")
    try:
        position = 0
        while data := file.read_at(position, _COPY_BYTES):
            write_all(target, start + position, data)
            position += len(data)
        return position
    finally:
        file.close()


def _paths(disk: Disk, root: Path, queue: str) -> list[Path]:
    """All files of a queue, including those that a pack has replaced."""
    listing = list_files(disk, root, queue)
    return [*(file.path for file in listing.files), *(root / name for name in listing.dead)]
