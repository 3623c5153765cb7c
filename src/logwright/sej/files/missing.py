"""Missing segments: an index or checksums whose segment is not there, and what the last segment has lost.

A writer syncs the name of a new segment before it creates the files beside it. So a file beside a segment proves that
the segment was there. Retention and programs that do not know these files leave some of segments that were removed, but
only before the first segment of the journal. After that, a missing segment is a loss. Between two segments it is also a
gap of offsets; at the end of the journal only these files show it.

A segment is synced before the next one is created. So if the last segment that is there does not lead to the first
missing one, or ends before the end that its index has, messages of it are lost as well: it is no torn tail. A copy of a
journal that was not finished looks like that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import Disk
from ...core.repair.losses import Loss
from ...errors import LogwrightError
from ..bytes.layout import (
    CHECKSUM_SUFFIX,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    SEGMENT_DIRECTORY,
    SEGMENT_SUFFIX,
    parse_segment_name,
    segment_name,
)
from .checksums import HEADER, MAGIC, checksum_path, parse_header
from .ending import find_end
from .index import header_of, index_path, read_end, read_entries
from .lost import messages_between
from .segment import Segment, open_segment

_MOST_INDEX_BYTES: Final = 64 << 20
_LOOKED_AT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class MissingSegment:
    """A segment that was there. It had `at_least` this number of messages; `next_offset` is None if unknown."""

    name: str
    first_offset: int
    at_least: int
    next_offset: int | None

    @property
    def what(self) -> str:
        """Its messages, in words."""
        if self.next_offset is not None:
            return messages_between(self.first_offset, self.next_offset)
        return f"whatever there was from message {self.first_offset} on"

    @property
    def reason(self) -> str:
        return "the segment is missing, and files beside it show that it was there"

    @property
    def damage(self) -> Damage:
        return Damage(self.name, 0, 0, self.reason, "missing_segment")

    def as_loss(self) -> Loss:
        """The loss. Its offsets are used again, so it explains no gap: `next` is None."""
        at_most = None if self.next_offset is None else self.at_least
        fields = {"first": self.first_offset, "next": None}
        return Loss(self.name, 0, 0, self.at_least, at_most, self.what, self.reason, fields=fields)


def find_missing(disk: Disk, directory: Path, segments: list[Segment]) -> list[MissingSegment]:
    """The segments after the first one of a journal that are missing, and of which other files are there.

    A writer may have created some after the segments were listed: those are there by now.
    """
    present = {segment.first_offset for segment in segments}
    least = min(present, default=0)
    offsets: set[int] = set()
    for folder, suffix in ((INDEX_DIRECTORY, INDEX_SUFFIX), (SEGMENT_DIRECTORY, SEGMENT_SUFFIX + CHECKSUM_SUFFIX)):
        for name in disk.list_directory(directory / folder) if disk.is_directory(directory / folder) else ():
            offset = parse_segment_name(name.removesuffix(suffix) + SEGMENT_SUFFIX) if name.endswith(suffix) else None
            if offset is not None and offset >= least:
                offsets.add(offset)
    found = (_examine(disk, directory, offset) for offset in sorted(offsets - present))
    return [missing for missing in found if missing is not None and not disk.exists(directory / missing.name)]


def missing_after(disk: Disk, directory: Path, segments: list[Segment]) -> list[MissingSegment]:
    """Those after the last segment."""
    last = segments[-1].first_offset if segments else -1
    return [missing for missing in find_missing(disk, directory, segments) if missing.first_offset > last]


def find_following(disk: Disk, directory: Path, segments: list[Segment]) -> Segment | None:
    """The segment that followed the last one, if other files show that the last one led up to it and now does not."""
    if not segments:
        return None
    last = segments[-1]
    later = (missing.first_offset for missing in missing_after(disk, directory, segments))
    try:
        file = open_segment(disk, last)
        try:
            entry = read_end(disk, last, file)
            known = next(later, 0 if entry is None else entry.offset)
            is_short = known and find_end(disk, last, file).next_offset < known
        finally:
            file.close()
    except LogwrightError:  # reading the segment reports that
        return None
    return _named(directory, known) if is_short else None


def _named(directory: Path, first_offset: int) -> Segment:
    name = segment_name(first_offset)
    return Segment(first_offset, f"{SEGMENT_DIRECTORY}/{name}", directory / SEGMENT_DIRECTORY / name)


def _examine(disk: Disk, directory: Path, first_offset: int) -> MissingSegment | None:
    """What the files beside a missing segment say about it; None if they are not what their names say."""
    segment = _named(directory, first_offset)
    entries = read_entries(disk, segment, _MOST_INDEX_BYTES)
    if entries is None and _is_begun(disk, index_path(segment), header_of(segment)):
        entries = []
    at_least = _examine_checksums(disk, checksum_path(segment.path))
    if entries is None and at_least is None:
        return None
    if not entries:
        return MissingSegment(segment.name, first_offset, at_least or 0, None)
    last = entries[-1]
    if last.is_end:
        return MissingSegment(segment.name, first_offset, last.offset - first_offset, last.offset)
    return MissingSegment(segment.name, first_offset, last.offset + 1 - first_offset, None)


def _is_begun(disk: Disk, path: Path, header: bytes) -> bool:
    """Whether a file is the beginning of a header, as a crash or a copy that was not finished leaves it."""
    try:
        file = disk.open(path, "read")
        try:
            begun = file.read_at(0, len(header) + 1)
            return bool(begun) and header.startswith(begun)
        finally:
            file.close()
    except LogwrightError:
        return False


def _examine_checksums(disk: Disk, path: Path) -> int | None:
    """The smallest number of messages that checksums cover: 0 or 1; None if there are no checksums at a path."""
    if _is_begun(disk, path, MAGIC):
        return 0
    try:
        file = disk.open(path, "read")
        try:
            parse_header(file.read_at(0, HEADER.size))
            return int(any(file.read_at(HEADER.size, _LOOKED_AT_BYTES)))
        finally:
            file.close()
    except (LogwrightError, Malformed):
        return None
