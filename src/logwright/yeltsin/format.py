"""YeltsinFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.bytes.outcome import Mode
from ..core.format import BatchWriter, Evidence, Follower, Format, Reader
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.durability import SyncLike
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from .bytes.layout import JOURNAL_SUFFIX
from .model import journal
from .tables.journal_target import JournalTarget

if TYPE_CHECKING:
    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class YeltsinFormat(Format):
    """Journals of page transactions, as YeltsinDB writes them."""

    name: ClassVar[str] = "yeltsin"
    title: ClassVar[str] = "page-transaction journal of YeltsinDB"
    flat: ClassVar[bool] = True
    mapped_bytes: ClassVar[int | None] = None  # flags and links are changed in place

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return journal.looks_like(disk, path)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        return file == journal

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        return journal.open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return journal.follow(path, ends, timeout=timeout, mode=mode)

    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        return self.open_target(path, path.name, disk=disk, **options)

    def open_target(self, directory: Path, name: str, *, disk: Disk = REAL_DISK) -> BatchWriter:
        return JournalTarget(directory, name, disk=disk)

    def open_appender(self, path: Path, part: str, *, sync: SyncLike) -> BatchWriter:
        """Open a journal by its path, or the journal of a directory that has its name."""
        directory = path if path.suffix != JOURNAL_SUFFIX else path.parent
        return JournalTarget(directory, path.name, sync=sync, whole=True)

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
