"""KestrelFormat: the implementation of `Format` for kestrel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..core.bytes.outcome import Damage, Mode
from ..core.format import BatchWriter, ChangeFeed, Evidence, Follower, Format, Items, Unparked
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.quarantine import Recovery
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import LogwrightError, NotFound
from .bytes import codec, kernel
from .bytes.layout import DOCUMENTED, KESTREL2, TEMPORARY, lock_name, parse_name
from .bytes.records import Dialect
from .files.files import list_files, list_queues
from .files.note import rotated_files
from .files.queues import QueuesReader, QueuesWriter
from .files.reader import Reader
from .files.scanner import Scanner
from .files.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa

    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class KestrelFormat(Format):
    """The journals of Kestrel's queues."""

    name: ClassVar[str] = "kestrel"
    title: ClassVar[str] = "queue journal of Kestrel"
    flat: ClassVar[bool] = True

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return looks_like(disk, path)

    def names_journal(self, disk: Disk, path: Path) -> bool:
        return disk.exists(path) or names_journal(disk, path)

    def journal_of(self, name: str) -> str:
        return journal_of(name)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        return Format.owns(journal, file) or file.startswith(f"{journal}~~")

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader | QueuesReader:
        return open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return Scanner(path, ends, timeout=timeout, mode=mode)

    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        return Writer(path, disk=disk, **options)

    def open_target(self, directory: Path, name: str, *, disk: Disk = REAL_DISK) -> BatchWriter:
        return QueuesWriter(directory, name, disk=disk)

    def change_feed(self) -> ChangeFeed:
        from .model.changes import QueueChanges

        return QueueChanges()

    @property
    def repairs(self) -> Repairs:
        from .files.repair import REPAIRS

        return REPAIRS

    @property
    def splits(self) -> Splits[Any]:
        from .tables.splits import SPLITS

        return SPLITS

    @property
    def columns(self) -> Columns:
        from .tables.spark_columns import COLUMNS

        return COLUMNS

    @property
    def restore(self) -> Restore:
        from .tables.restore import RESTORE

        return RESTORE

    @property
    def materials(self) -> Materials:
        from .tables.materializer import MATERIALS

        return MATERIALS

    @property
    def target(self) -> type[Target]:
        from .tables.staging import QueuesTarget

        return QueuesTarget

    @property
    def items(self) -> Items:
        return _QueueItems()


class _QueueItems(Items):
    """The reserved and waiting items of queues."""

    @property
    def schema(self) -> pa.Schema:
        from .tables.messages import ITEM_SCHEMA

        return ITEM_SCHEMA

    def batches(self, reader: Any, mode: Mode, on_damage: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
        from .tables.messages import item_batches

        return item_batches(reader, mode, on_damage)

    def named_by_key(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        from .tables.messages import named_by_key

        return named_by_key(messages)

    def unpark(self, path: Path, to: str | None, *, most: int | None, only_plan: bool) -> Unparked:
        from .model.parking import plan_unpark, unpark

        return (plan_unpark if only_plan else unpark)(path, to, most=most)


_EXAMINED_BYTES: Final = 64 << 10
_ENOUGH_OPERATIONS: Final = 8
"""This many consecutive valid operations cannot be a coincidence, whatever follows them."""
_ENOUGH_NEIGHBOURS: Final = 16


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is a queue's journal, a file of one, or a directory of queues.

    The format has no magic number, and a queue may have nearly any name. So the file must begin with operations, or
    files beside it must. Errors of the system are raised.
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        if TEMPORARY in path.name:
            return None
        return _file_looks_like(disk, path)
    except NotFound:  # removed in the meantime
        return None


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    """At least half of the files with a possible name that are not empty must begin with operations."""
    good: list[str] = []
    empty: list[str] = []
    bad: list[str] = []
    for queue in list_queues(disk, path):
        for file in list_files(disk, path, queue).files:
            if disk.is_directory(file.path):
                continue
            count = _operations_in(disk, file.path)
            (bad if count is None else good if count else empty).append(file.name)
    if len(good) < len(bad):
        return None
    if not good:
        named = [name for name in empty if "." in name or disk.exists(path / lock_name(name))]
        return Evidence(1, f"{named[0]} is named like a queue's file") if named else None
    if len(good) == 1:
        return Evidence(2, f"{good[0]} begins with operations of a queue")
    return Evidence(3, f"{len(good)} files begin with operations of a queue")


def _file_looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Judge a file by its bytes, or by the files beside it: it may be empty, damaged at its beginning, or missing.

    A crash can leave a queue without its newest file. That name still refers to the rotated ones.
    """
    count = _operations_in(disk, path)
    if count:
        return Evidence(2, "it begins with operations of a queue")
    parsed = parse_name(path.name)
    if parsed is None:
        return None
    queue = parsed[0]
    others = [file for file in list_files(disk, path.parent, queue).files if file.name != path.name]
    if names_journal(disk, path) and not disk.exists(path):
        return Evidence(1, "its newest file is missing, but rotated files exist")
    is_locked = disk.exists(path.parent / lock_name(queue))
    if count == 0:
        return Evidence(1, "it is empty, and other files of the queue are beside it") if is_locked or others else None
    if is_locked or any(_operations_in(disk, file.path) for file in others):
        return Evidence(1, "it is damaged, and other files of the queue are beside it")
    return Evidence(1, "it is damaged, and queues are beside it") if _has_neighbours(disk, path, queue) else None


def names_journal(disk: Disk, path: Path) -> bool:
    """Whether a path is the name of a queue that has or had rotated files, even if its newest file is missing."""
    parsed = parse_name(path.name)
    if parsed is None or parsed[1] is not None:
        return False
    try:
        listed = list_files(disk, path.parent, parsed[0]).files
    except NotFound:
        return False
    is_rotated = any(_operations_in(disk, file.path) is not None for file in listed if not file.is_newest)
    return is_rotated or bool(rotated_files(disk, path.parent, parsed[0]))


def _has_neighbours(disk: Disk, path: Path, queue: str) -> bool:
    """Whether most of the other files with a possible name are files of queues: then this one probably is, too."""
    good = bad = 0
    for other in list_queues(disk, path.parent):
        if other != queue:
            for file in list_files(disk, path.parent, other).files:
                count = None if disk.is_directory(file.path) else _operations_in(disk, file.path)
                good, bad = good + bool(count), bad + (count is None)
        if good + bad >= _ENOUGH_NEIGHBOURS:
            break
    return good > bad


def _operations_in(disk: Disk, path: Path) -> int | None:
    """The number of operations at the beginning of a file; 0 if it is empty, None if it begins with other bytes."""
    try:
        file = disk.open(path, "read")
        try:
            data = file.read_at(0, _EXAMINED_BYTES)
            size = file.size()
        finally:
            file.close()
    except LogwrightError:
        return None
    if not data:
        return 0
    found = 0
    for dialect in (DOCUMENTED, KESTREL2):
        _, count, ending, _ = kernel.walk(data, 0, len(data), dialect)
        if ending == codec.INCOMPLETE and count == 0:
            claimed = codec.claimed_size(data, 0, len(data), dialect)
            count = 1 if claimed is not None and len(data) < claimed <= size else 0
        if ending == codec.MALFORMED and count < _ENOUGH_OPERATIONS:
            count = 0
        found = max(found, count)
    return found or None


def journal_of(name: str) -> str:
    """The name of the queue that a file belongs to; opening it opens all files of the queue."""
    parsed = parse_name(name)
    return name if parsed is None else parsed[0]


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader | QueuesReader:
    """A reader of a queue, of one file, or of all queues of a directory."""
    return QueuesReader(path, disk=disk).one_or_all() if disk.is_directory(path) else Reader(path, disk=disk)


def recover(path: Path | str, *, dialect: Dialect = "auto", disk: Disk = REAL_DISK) -> Recovery:
    """Open a journal as a writer does: lock it, cut off a torn tail, and keep a copy of that; then close it."""
    Reader(path, dialect=dialect, disk=disk)
    with Writer(path, dialect=dialect, disk=disk) as writer:
        return Recovery(writer.recovered, writer.kept)
