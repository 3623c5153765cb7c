"""AppendfileFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...core.disk import REAL_DISK, Disk
from ...core.format import BatchWriter, Evidence, Follower, Format, Reader
from ...core.manifest import Target
from ...core.outcome import Mode
from ...core.repair import Repairs
from ...core.restore import Restore
from ...core.split import Splits
from . import journal
from .writer import Writer

if TYPE_CHECKING:
    from ...core.columns import Columns


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
        from .repair import REPAIRS

        return REPAIRS

    @property
    def splits(self) -> Splits[Any]:
        from .splits import SPLITS

        return SPLITS

    @property
    def columns(self) -> Columns:
        from .tables import COLUMNS

        return COLUMNS

    @property
    def restore(self) -> Restore:
        from .restore import RESTORE

        return RESTORE

    @property
    def target(self) -> type[Target]:
        from .staging import JournalTarget

        return JournalTarget
