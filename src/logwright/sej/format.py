"""SejFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from ..core.bytes.outcome import Damage, Mode
from ..core.format import (
    BatchWriter,
    Cleaning,
    CleaningRules,
    ConsumedJournal,
    Consumers,
    Evidence,
    Follower,
    Format,
    ResetOptions,
    ResetTarget,
)
from ..core.io.disk import REAL_DISK, Disk
from ..core.publish.manifest import Target
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import LogwrightError, NotFound, WrongUse
from .bytes.layout import HEAD, SEGMENT_DIRECTORY, parse_segment_name
from .bytes.records import Message
from .files import offset_file
from .files.reader import Reader
from .files.scanner import Scanner
from .files.segment import Segment, list_segments
from .files.shard import ShardedReader, find_shards, parse_shard_name
from .files.writer import Writer
from .model import offset, retention
from .model.shard_scanner import ShardedScanner

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
        return looks_like(disk, path)

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader | ShardedReader:
        return open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return follow(path, ends, timeout=timeout, mode=mode)

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

    def plan_reset(self, directory: Path, name: str, to: ResetTarget = None, **options: Unpack[ResetOptions]) -> int:
        return offset.plan_reset(directory, name, to, **options)

    def reset(
        self, directories: Sequence[Path], name: str, to: ResetTarget = None, **options: Unpack[ResetOptions]
    ) -> list[int]:
        return offset.reset_all(directories, name, to, **options)

    def clean(self, directory: Path, *, only_plan: bool, **rules: Unpack[CleaningRules]) -> Cleaning:
        return (retention.plan if only_plan else retention.clean)(directory, **rules)


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is a sej journal, a segment of one, or a root of shards.

    A path that cannot be read raises an error. A single segment that cannot be read is recognized by its name.
    """
    try:
        if not disk.is_directory(path):
            return _file_looks_like(disk, path)
        if disk.is_directory(path / SEGMENT_DIRECTORY):
            segments = list_segments(disk, path)
            if not segments:
                return Evidence(1, "it has a directory jnl without segments")
            evidence = _segment_looks_like(disk, segments[-1]) or _segment_looks_like(disk, segments[0])
            return evidence or Evidence(2, "jnl holds segment files by name")
        # A plain journal in a directory is not that directory's shard, though a root of shards may hold one (bit 0).
        # So other directories are not searched: we may have no access to them.
        shards = [name for name in disk.list_directory(path) if _is_shard(disk, path, name)]
        return Evidence(3, f"it holds {len(shards)} shards of a sej journal") if shards else None
    except NotFound:  # removed while we looked
        return None


def _is_shard(disk: Disk, root: Path, name: str) -> bool:
    parsed = parse_shard_name(name)
    return parsed is not None and parsed[1] > 0 and disk.is_directory(root / name / SEGMENT_DIRECTORY)


def _file_looks_like(disk: Disk, path: Path) -> Evidence | None:
    first_offset = parse_segment_name(path.name)
    if first_offset is None:
        return None
    return _segment_looks_like(disk, Segment(first_offset, path.name, path)) or Evidence(1, "named like a segment")


def _segment_looks_like(disk: Disk, segment: Segment) -> Evidence | None:
    try:
        file = disk.open(segment.path, "read")
        try:
            head = file.read_at(0, HEAD.size)
        finally:
            file.close()
    except LogwrightError:
        return None
    if len(head) == HEAD.size and HEAD.unpack(head)[0] == segment.first_offset:
        return Evidence(3, f"{segment.name} begins with the offset that its name says")
    return None


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader | ShardedReader:
    """A reader of a journal, of one segment file, or of all shards below a root."""
    if not disk.is_directory(path):
        return Reader(path, disk=disk)
    shards = find_shards(disk, path)
    if not disk.is_directory(path / SEGMENT_DIRECTORY):
        if not shards:
            raise NotFound(f"{path}: no sej journal is here")
        return ShardedReader(path, disk=disk)
    if any(shard.bit > 0 for shard in shards):
        raise WrongUse(f"{path} is a journal and a root of shards at once: say which shard, or use sej.Reader")
    return Reader(path, disk=disk)


def follow(path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Scanner[Message | Damage] | ShardedScanner:
    """A scanner of a journal from an offset on, or of all shards below a root, each from its offset on."""
    if isinstance(ends, dict):
        return ShardedScanner(path, ends, timeout=timeout, mode=mode)
    return Scanner(path, ends, timeout=timeout, mode=mode)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing did to a journal: the torn tail that it cut off, and the path of the copy."""

    next_offset: int
    cut: Damage | None
    kept: Path | None


def recover(directory: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a journal: lock it, cut off a torn tail, and keep a copy of that."""
    if not disk.is_directory(Path(directory) / SEGMENT_DIRECTORY):
        raise NotFound(f"{directory}: no sej journal is here")
    with Writer(directory, disk=disk) as writer:
        return Recovery(writer.next_offset, writer.recovered, writer.kept)
