"""AppendfileFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..core.bytes.outcome import Mode
from ..core.format import BatchWriter, Evidence, Follower, Format
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.quarantine import Recovery
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import LogwrightError, NotFound
from .bytes import codec
from .bytes.layout import CHECKPOINT, CHECKPOINT_BYTES, parse_name
from .files.files import list_files
from .files.reader import Reader, is_opened
from .files.scanner import Scanner
from .files.writer import Writer

if TYPE_CHECKING:
    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class AppendfileFormat(Format):
    """Rotating journals with checkpoints, as AppendFile writes them."""

    name: ClassVar[str] = "appendfile"
    title: ClassVar[str] = "rotating journal with checkpoints"

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return looks_like(disk, path)

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        return open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return Scanner(path, ends, timeout=timeout, mode=mode)

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


_ENOUGH: Final = 2
"""This many files that begin with a checkpoint are enough evidence."""


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is the directory of a journal, or a file of one.

    It is recognized by its name and by the checkpoint record at the beginning. A path that cannot be read raises an
    error.
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        if _begins_with_checkpoint(disk, path):
            return Evidence(2, "it begins with a checkpoint record")
        if parse_name(path.name) is not None:
            return Evidence(1, "it is named like the file of a journal")
    except NotFound:  # removed while we looked
        pass
    return None


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    files = list_files(disk, path).files
    good = 0
    for file in files:
        good += _begins_with_checkpoint(disk, file.path)
        if good == _ENOUGH:
            return Evidence(3, f"{file.name} and others begin with a checkpoint record")
    if good:
        return Evidence(2, f"{files[0].name} begins with a checkpoint record")
    if files:
        return Evidence(1, f"{files[0].name} is named like the file of a journal")
    return Evidence(1, "a writer has opened it, and written nothing yet") if is_opened(disk, path) else None


def _begins_with_checkpoint(disk: Disk, path: Path) -> bool:
    try:
        file = disk.open(path, "read")
        try:
            head = file.read_at(0, CHECKPOINT_BYTES)
        finally:
            file.close()
    except LogwrightError:
        return False
    return codec.walk(head, 0, len(head), most=1)[1] == 1 and head[0] == CHECKPOINT


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader:
    """A reader of a journal, or of one file."""
    return Reader(path, disk=disk)


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a journal: lock it, cut off a torn tail, and keep that in quarantine.

    Its segments stay where they are: see `Writer.recovery`, which returns them.
    """
    Reader(path, disk=disk)
    with Writer(path, disk=disk) as writer:
        return Recovery(writer.recovered, writer.kept)
