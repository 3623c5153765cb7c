"""VersionedFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.bytes.outcome import Damage, Mode
from ..core.format import BatchWriter, ChangeFeed, Evidence, Follower, Format, Reader, States
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.durability import SyncLike
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from .bytes.layout import HEADER_BYTES
from .files.files import active_name, parse_name
from .model import journal
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
        return journal.looks_like(disk, path)

    def names_journal(self, disk: Disk, path: Path) -> bool:
        return disk.exists(path) or journal.names_journal(disk, path)

    def journal_of(self, name: str) -> str:
        return journal.journal_of(name)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        parsed = parse_name(file)
        return parsed is not None and journal in (parsed[0], active_name(parsed[0]))

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        return journal.open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return journal.follow(path, ends, timeout=timeout, mode=mode)

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
