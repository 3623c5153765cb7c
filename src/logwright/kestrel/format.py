"""KestrelFormat: the implementation of `Format` for kestrel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.bytes.outcome import Damage, Mode
from ..core.format import BatchWriter, ChangeFeed, Evidence, Follower, Format, Items, Reader, Unparked
from ..core.io.disk import REAL_DISK, Disk
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from .files.queues import QueuesWriter
from .files.writer import Writer
from .model import journal

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
        return journal.looks_like(disk, path)

    def names_journal(self, disk: Disk, path: Path) -> bool:
        return disk.exists(path) or journal.names_journal(disk, path)

    def journal_of(self, name: str) -> str:
        return journal.journal_of(name)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        return Format.owns(journal, file) or file.startswith(f"{journal}~~")

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        return journal.open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return journal.follow(path, ends, timeout=timeout, mode=mode)

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
