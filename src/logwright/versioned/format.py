"""VersionedFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..core.bytes.outcome import Damage, Malformed, Mode
from ..core.format import BatchWriter, ChangeFeed, Evidence, Follower, Format, States
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.durability import SyncLike
from ..core.io.quarantine import Recovery
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import LogwrightError, NotFound
from .bytes.codec import decode_header
from .bytes.layout import HEADER_BYTES
from .files.archive_stream import is_compressed, open_stream
from .files.files import Kind, active_name, list_files, parse_name
from .files.reader import Reader
from .files.scanner import Scanner
from .files.stores import StoresReader
from .model.store import VersionedKVStore
from .tables.writer import StoresWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class VersionedFormat(Format):
    """Key-value stores with their whole history."""

    name: ClassVar[str] = "versioned"
    title: ClassVar[str] = "key-value journal with its whole history"
    flat: ClassVar[bool] = True
    mapped_bytes: ClassVar[int | None] = HEADER_BYTES

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return looks_like(disk, path)

    def names_journal(self, disk: Disk, path: Path) -> bool:
        return disk.exists(path) or names_journal(disk, path)

    def journal_of(self, name: str) -> str:
        return journal_of(name)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        parsed = parse_name(file)
        return parsed is not None and journal in (parsed[0], active_name(parsed[0]))

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader | StoresReader:
        return open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return Scanner(path, ends, timeout=timeout, mode=mode)

    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        return self.open_target(path, path.name, disk=disk, **options)

    def open_target(self, directory: Path, name: str, *, disk: Disk = REAL_DISK) -> BatchWriter:
        return StoresWriter(directory, name, disk=disk)

    def open_appender(self, path: Path, part: str, *, sync: SyncLike) -> BatchWriter:
        """Open a store by the path of its journal, or the stores of a directory."""
        parsed = parse_name(path.name)
        if parsed is not None:
            return StoresWriter(path.parent, part or parsed[0], sync=sync)
        return StoresWriter(path, part or path.name, sync=sync)

    def change_feed(self) -> ChangeFeed:
        from .model.changes import StoreChanges

        return StoreChanges()

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
        from .tables.staging import StoresTarget

        return StoresTarget

    @property
    def states(self) -> States:
        return _StoreStates()


class _StoreStates(States):
    """The state of stores at a time."""

    def plan(self, disk: Disk, path: Path, at: int) -> Iterator[Any]:
        from .model import states

        return states.plan(disk, path, at)

    def read(
        self, disk: Disk, part: Any, at: int, mode: Mode, names: Sequence[str]
    ) -> tuple[Sequence[Damage], pa.RecordBatch | None]:
        from .model import states
        from .tables import columns

        state = states.read(disk, part, at, mode)
        if state.latest is None:
            return state.damages, None
        return state.damages, columns.state_batch(state.latest, names, state.source)


_READ: Final = (Kind.ACTIVE, Kind.ARCHIVE, Kind.OLD)


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is the journal of a store, a file of one, or a directory of stores.

    The first 17 bytes show it: the version, and the beginning of an array. A path that cannot be read raises an error.
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        parsed = parse_name(path.name)
        if names_journal(disk, path) and not disk.exists(path):
            return Evidence(2, "other journals of a store of this name are there")
        if _begins_like_one(disk, path):
            return Evidence(2, "it begins like the journal of a store")
        if parsed is not None and parsed[1] in _READ:
            return Evidence(1, "it is named like the journal of a store")
    except NotFound:  # removed while we looked
        pass
    return None


def names_journal(disk: Disk, path: Path) -> bool:
    """Whether a path is that of the active journal of a store that has any files, even if the active one is missing.

    It is missing for a moment during each rotation, and a crash may leave it missing.
    """
    parsed = parse_name(path.name)
    if parsed is None or parsed[1] is not Kind.ACTIVE:
        return False
    try:
        return not list_files(disk, path.parent, parsed[0]).is_empty
    except NotFound:
        return False


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    named: list[str] = []
    good: list[str] = []
    for name in disk.list_directory(path):
        parsed = parse_name(name)
        if parsed is None or parsed[1] not in _READ or disk.is_directory(path / name):
            continue
        named.append(name)
        if len(good) < 2 and _begins_like_one(disk, path / name):
            good.append(name)
    if len(good) > 1:
        return Evidence(3, f"{good[0]} and others begin like journals of stores")
    if good:
        return Evidence(2, f"{good[0]} begins like the journal of a store")
    return Evidence(1, f"{named[0]} is named like the journal of a store") if named else None


def _begins_like_one(disk: Disk, path: Path) -> bool:
    try:
        compressed = is_compressed(disk, path)
        file = disk.open(path, "read")
        try:
            head = bytearray(HEADER_BYTES)
            have = open_stream(file, compressed=compressed).read_into(memoryview(head))
        finally:
            file.close()
        return isinstance(decode_header(head[:have]), tuple)
    except (LogwrightError, Malformed):
        return False


def journal_of(name: str) -> str:
    """The name of the active journal that a file belongs to; opening it opens all files of the store."""
    parsed = parse_name(name)
    return name if parsed is None else active_name(parsed[0])


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader | StoresReader:
    """A reader of a store, of one file, or of all stores of a directory."""
    return StoresReader(path, disk=disk).one_or_all() if disk.is_directory(path) else Reader(path, disk=disk)


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a store: lock it, finish a rotation, cut off a torn tail, and keep a copy of that."""
    reader = Reader(path, disk=disk)
    newest = reader.files()[-1]
    capacity = max(1 << 12, 0 if newest.compressed else disk.file_size(newest.path))
    with VersionedKVStore(reader.directory, reader.store, capacity, background=False, disk=disk) as store:
        return Recovery(store.recovered, store.kept if store.recovered is not None else None)
