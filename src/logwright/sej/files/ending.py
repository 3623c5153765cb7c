"""The end of the messages of a segment: found backwards in constant time, or by walking.

The end of the last segment of a journal is one of these:
- the last message is whole: writing can continue after it, even if there is damage before it, unless that is in a block
  with a checksum that would cover new messages as well;
- nothing valid follows the last whole message: a torn tail, which a writer cuts off and keeps;
- valid messages or a copy of earlier ones follow bad bytes, the file is text, or the end is before the end of what
  checksums cover, or of what the index says of a finished segment, which was synced: damage, which is never cut.

The last message is found by its trailing size. A value may contain the bytes of a message, and the tail may be torn
right after these; so the preceding messages must also be consistent when stepping back. If they are not, the segment is
walked from its last index entry, or from its beginning. A writer always walks a short distance, because a value may
contain many consistent messages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...core.bytes.outcome import Damage, Span
from ...core.io.disk import Disk, File
from ..bytes.codec import CLEAN
from ..bytes.layout import MAX_TIMESTAMP, NO_TIMESTAMP, OVERHEAD
from .checksums import Checksums, checksum_path
from .index import Index, indexed_end
from .segment import Cursor, Segment, damage_of_synced, is_in_value, judge, mismatch, step_back

STEPS_BACK: Final = 16
"""How many messages must go back in step before the last one is believed."""


@dataclass(frozen=True, slots=True)
class Walked:
    """From where on messages were walked over, up to the end, and the smallest and largest timestamp of these."""

    position: int
    smallest: int
    largest: int


@dataclass(frozen=True, slots=True)
class End:
    """Where to continue writing. `torn` is the tail to cut first; with `damage` the segment must not be written.

    `was_synced` says that the damage is at this end, where side files show that more was synced. `walked` is set if the
    segment was walked and no damage was found, `passed` if it was walked over damage.
    """

    position: int
    next_offset: int
    torn: Damage | None = None
    damage: Damage | None = None
    walked: Walked | None = None
    passed: Damage | None = None
    was_synced: bool = False


def find_end(disk: Disk, segment: Segment, file: File, *, walk_bytes: int = 0) -> End:
    """Where the messages of the last segment end.

    `walk_bytes` is the size up to which a segment is walked instead: no value can deceive a walk.
    """
    covered_end = synced_end(disk, segment, file)  # first: a writer may append and sync meanwhile
    end = _find_end(disk, segment, file, walk_bytes)
    least = 1 if end.torn is not None else OVERHEAD  # if less is missing, bytes were deleted elsewhere
    if end.damage is not None or covered_end - end.position < least:
        return end
    damage = damage_of_synced(segment.name, end.position, end.torn, covered_end)
    return replace(end, torn=None, damage=damage, was_synced=True)


def damage_of_last_block(disk: Disk, segment: Segment, file: File, end: End) -> Damage | None:
    """The damage of the block in which the messages of the last segment end, None if its checksum matches.

    A writer would extend this checksum over its new messages, and readers would then not return them. If the file is
    shorter than what the checksum covers, nothing can be compared, and damage that was passed shows why.
    """
    sums = Checksums.load(disk, checksum_path(segment.path))
    if sums is None:
        return None
    index, have = divmod(end.position, sums.block_bytes)
    start, covered = index * sums.block_bytes, sums.entry(index)[1]
    if covered > have:
        return end.passed
    if sums.check(index, file.read_at(start, covered)) is not False:
        return None
    return Damage(segment.name, start, start + covered, mismatch(Span(start, start + covered)), "checksum")


def synced_end(disk: Disk, segment: Segment, file: File) -> int:
    """Up to where a segment was synced, as far as its checksums and its index show. Ask before its end is read."""
    sums = Checksums.load(disk, checksum_path(segment.path))
    return max(0 if sums is None else sums.covered_end, indexed_end(disk, segment, file))


def _find_end(disk: Disk, segment: Segment, file: File, walk_bytes: int) -> End:
    size = file.size()
    if size == 0:
        return End(0, segment.first_offset)
    cursor = cursor_before_end(disk, segment, file, size) if walk_bytes else None
    if cursor is None or size - cursor.position > walk_bytes:
        last_offset = plausible_last(file, size, segment)
        if last_offset is not None and _in_step(file, size, segment):
            return End(size, last_offset + 1)
    return _walk_to_end(cursor or cursor_before_end(disk, segment, file, size), size)


def plausible_last(file: File, size: int, segment: Segment) -> int | None:
    """The offset of a whole message that ends where the file ends, if it can be one of this segment's."""
    found = step_back(file, size)
    if found is None:
        return None
    offset, span = found
    ahead = offset - segment.first_offset
    return offset if 0 <= ahead * OVERHEAD <= span.start else None


def _in_step(file: File, end: int, segment: Segment) -> bool:
    """Whether the last messages count down one by one, up to the beginning of the file if it is near."""
    expected: int | None = None
    for _ in range(STEPS_BACK):
        found = step_back(file, end)
        if found is None or (expected is not None and found[0] != expected):
            return False
        offset, span = found
        if span.start == 0:
            return offset == segment.first_offset
        expected, end = offset - 1, span.start
    return True


def cursor_before_end(disk: Disk, segment: Segment, file: File, size: int) -> Cursor:
    """A cursor at the last message that the index knows, or at the beginning."""
    index = Index.load(disk, segment, size)
    entry = index.last(file) if index is not None else None
    if entry is None:
        return Cursor(file, segment, 0, segment.first_offset, end=size)
    return Cursor(file, segment, entry.position, entry.offset, end=size)


def _walk_to_end(cursor: Cursor, size: int) -> End:
    damage: Damage | None = None
    doubt: Damage | None = None  # where what follows may be the value of a message that was cut short
    start, smallest, largest = cursor.position, MAX_TIMESTAMP, NO_TIMESTAMP
    while True:
        while (chunk := cursor.read()) is not None:
            smallest, largest = min(smallest, chunk.smallest_timestamp), max(largest, chunk.largest_timestamp)
        if cursor.ending == CLEAN:
            walked = Walked(start, smallest, largest) if damage is None else None
            return End(size, cursor.expected, damage=doubt, walked=walked, passed=damage)
        position, next_offset = cursor.position, cursor.expected
        found, continues_at = judge(cursor, None)
        if found.kind == "torn_tail":
            return End(position, next_offset, torn=found, damage=damage)
        if continues_at is None:
            return End(position, next_offset, damage=damage or found)
        if is_in_value(cursor.file, position, next_offset, cursor.position):
            doubt = doubt or found
        damage = damage or found
