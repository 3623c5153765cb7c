"""The journal as a whole: recognising one, opening it for reading and for writing, recovering it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Evidence
from ...core.io.disk import REAL_DISK, Disk
from ...errors import LogwrightError, NotFound, WrongUse
from ..bytes.layout import HEAD, SEGMENT_DIRECTORY, parse_segment_name
from ..bytes.records import Message
from ..files.reader import Reader
from ..files.scanner import Scanner
from ..files.segment import Segment, list_segments
from ..files.shard import ShardedReader, find_shards, parse_shard_name
from ..files.writer import Writer
from .shard_scanner import ShardedScanner

__all__ = ["Reader", "Recovery", "Scanner", "Writer", "looks_like", "open_reader", "recover"]


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
        # So other directories are not looked into: they may be none of ours to see.
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
    """A scanner of a journal from an offset on, or of all shards below a root, from an offset of each."""
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
    """Bring a journal into the state that a writer leaves: lock it, cut a torn tail off, keep that, and say so."""
    if not disk.is_directory(Path(directory) / SEGMENT_DIRECTORY):
        raise NotFound(f"{directory}: no sej journal is here")
    with Writer(directory, disk=disk) as writer:
        return Recovery(writer.next_offset, writer.recovered, writer.kept)
