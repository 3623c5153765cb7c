"""SejFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..core.bytes.outcome import Mode
from ..core.format import BatchWriter, Cleaning, ConsumedJournal, Consumers, Evidence, Follower, Format, Reader
from ..core.io.disk import REAL_DISK, Disk
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import WrongUse
from .files import offset_file
from .files.shard import ShardedReader
from .files.writer import Writer
from .model import journal, offset, retention

if TYPE_CHECKING:
    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class SejFormat(Format):
    """Segmented message journals, as sej writes them."""

    name: ClassVar[str] = "sej"
    title: ClassVar[str] = "segmented message journal"
    repair_flags: ClassVar[Mapping[str, str]] = {
        "accept_checksums": "Accept the records of blocks that do not match their checksum, and rewrite the checksums."
    }

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
        from .tables.staging import ShardsTarget

        return ShardsTarget

    @property
    def consumers(self) -> Consumers:
        return _SejConsumers()


class _SejConsumers(Consumers):
    """The offsets that consumers keep beside the segments, and the segments that all of them have passed."""

    def journals(self, reader: Any) -> list[ConsumedJournal]:
        if isinstance(reader, ShardedReader):
            return [ConsumedJournal(shard.name, shard.path, reader.open(shard)) for shard in reader.shards()]
        if reader.directory != reader.path:
            raise WrongUse(f"{reader.path} is a single file: give the journal's directory")
        return [ConsumedJournal(None, reader.directory, reader)]

    def names(self, directory: Path) -> list[str]:
        return offset_file.list_consumers(REAL_DISK, directory)

    def offset(self, directory: Path, name: str) -> int | None:
        return offset_file.stored_offset(REAL_DISK, directory, name)

    def plan_reset(
        self,
        directory: Path,
        name: str,
        to: int | Literal["first", "last"] | None = None,
        *,
        time: int | None = None,
        create: bool = False,
    ) -> int:
        return offset.plan_reset(directory, name, to, time=time, create=create)

    def reset(
        self,
        directories: Sequence[Path],
        name: str,
        to: int | Literal["first", "last"] | None = None,
        *,
        time: int | None = None,
        create: bool = False,
    ) -> list[int]:
        return offset.reset_all(directories, name, to, time=time, create=create)

    def clean(self, directory: Path, *, only_plan: bool, **rules: Any) -> Cleaning:
        return (retention.plan if only_plan else retention.clean)(directory, **rules)
