"""AppendfileFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.bytes.outcome import Mode
from ..core.format import BatchWriter, Evidence, Follower, Format, Reader
from ..core.io.disk import REAL_DISK, Disk
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from .files.writer import Writer
from .model import journal

if TYPE_CHECKING:
    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class AppendfileFormat(Format):
    """Rotating journals with checkpoints, as AppendFile writes them."""

    name: ClassVar[str] = "appendfile"
    title: ClassVar[str] = "rotating journal with checkpoints"

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return journal.looks_like(disk, path)

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        return journal.open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return journal.follow(path, ends, timeout=timeout, mode=mode)

    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        return Writer(path, disk=disk, **options)

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
        from .tables.staging import JournalTarget

        return JournalTarget
