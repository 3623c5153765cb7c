"""The splits of a sej journal: planned by the sparse index, or by reading the heads of messages.

A split is within one segment. Damage belongs to the split that it begins in; if a segment cannot be planned without
reading past damage, the rest of the segment is one split.

Streams use `extent`, the range of whole messages, and `reach`, how far a number of bytes goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.io.disk import File
from ...core.read.chunk import Bound
from ...core.read.splits import (
    TARGET_BYTES,
    ConsumerEntry,
    FileEntry,
    Inventory,
    Split,
    Splits,
    Times,
    report_first,
)
from ...errors import DamagedJournal, NotFound, StorageFailed
from ..bytes import codec, kernel
from ..bytes.layout import HEAD, MAX_KEY_BYTES, VALUE_SIZE
from ..files import offset_file
from ..files.checksums import CheckedFile
from ..files.ending import End, cursor_before_end, find_end
from ..files.index import Index
from ..files.reader import Reader
from ..files.segment import (
    BAD_CHECKSUM,
    Chunk,
    Cursor,
    Segment,
    is_in_value,
    judge,
    message_span,
    open_segment,
    step_back,
)
from ..files.shard import ShardedReader
from .stretches import Place, is_outside, wanted_ranges

AnyReader = Reader | ShardedReader

_WALK_BYTES: Final = 64 << 20
"""How far back the end of the last segment is walked to, where no index is nearer: no value can deceive a walk."""


class MessageSplits(Splits[AnyReader]):
    """The splits of a journal, or of all shards below a root."""

    prunes_numbers = True
    prunes_times = True

    def extent(self, reader: AnyReader, named: Collection[str] | None = None) -> dict[str, tuple[int, int]]:
        """The first offset and the next one of every part. A message that is not there as a whole is not counted."""
        found = {}
        for part, journal in parts(reader, named):
            with suppress(NotFound):  # the shard was removed while we looked
                segments = journal.segments()
                first = segments[0].first_offset if segments else 0
                found[part] = (first, _next_of(journal, segments[-1]) if segments else first)
        return found

    def planned_extent(self, splits: Sequence[Split]) -> tuple[int, int] | None:
        """Where nothing is damaged, splits begin with the first segment, and end with the last message."""
        if not splits or any(split.before is not None or split.after is not None for split in splits):
            return None
        return splits[0].start, splits[-1].stop

    def reach(self, reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
        journal = _part(reader, part)
        segments = journal.segments()
        number, used = start, 0
        for at in range(_segment_of(segments, start), len(segments)):
            segment = segments[at]
            following = segments[at + 1] if at + 1 < len(segments) else None
            if segment.first_offset >= stop or (used and used >= max_bytes):
                break
            file = open_segment(journal.disk, segment)
            try:
                index = Index.load(journal.disk, segment, file.size())
                place = _place(segment, file, index, start, following)[0]
                rest = file.size() - place[0]
                if following is not None and following.first_offset <= stop and used + rest <= max_bytes:
                    number, used = following.first_offset, used + rest
                    continue
                number, taken = _reach_in(segment, following, file, index, place, stop, max_bytes - used, used == 0)
                used += taken
                if following is None or number < following.first_offset:
                    break
            finally:
                file.close()
        return min(number, stop), used

    def plan(
        self,
        reader: AnyReader,
        target_bytes: int = TARGET_BYTES,
        start: Bound = None,
        stop: Bound = None,
        *,
        resumed: bool = False,
        times: Times | None = None,
    ) -> list[Split]:
        """See `Splits.plan`.

        With `times`, stretches without a message of these times, by the index or by what was walked anyway, are in no
        split. A segment without an index is in splits as a whole: looking for times there would mean reading it here.
        """
        found: list[Split] = []
        if times is not None and times.is_empty:
            return found
        for part, journal in parts(reader):
            if any(isinstance(bound, Mapping) and part not in bound for bound in (start, stop)):
                continue
            low = start[part] if isinstance(start, Mapping) else start
            high = stop[part] if isinstance(stop, Mapping) else stop
            planned = _plan(journal, target_bytes, low, high, resumed, times)
            damages = journal.whole_damage(resumed=resumed)
            planned = report_first(planned, damages, is_all=start is None and stop is None and times is None)
            found.extend(replace(split, part=part) if part else split for split in planned)
        return found

    def chunks(self, reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
        """The messages of a split. A chunk's buffer is valid until the next chunk is requested."""
        check_mode(mode)
        reader = _part(reader, split.part)
        segments = reader.segments()
        number = next((number for number, segment in enumerate(segments) if segment.name == split.file), None)
        if number is None:
            lost = f"messages {split.start} to {split.stop - 1} were in it"
            raise NotFound(f"{reader.path}: the segment {split.file} is gone; {lost}")
        segment = segments[number]
        if split.before is not None:
            yield from reader.report(split.before, mode)
        following = segments[number + 1] if number + 1 < len(segments) else None
        place, near = split.position, split.position + split.bytes
        found = reader.segment_chunks(segment, following, split.start, split.stop, "permissive", at=place, near=near)
        damaged_to = -1
        for item in found:
            if not isinstance(item, Damage):
                yield item
                continue
            damaged_to = item.end
            if _begins_in(reader, segment, following, split, item):
                yield from reader.report(item, mode)
        if split.after is not None and split.after.end > damaged_to:
            yield from reader.report(split.after, mode)

    def inventory(
        self,
        reader: AnyReader,
        named: Collection[str] | None = None,
        extents: Mapping[str, tuple[int, int]] | None = None,
    ) -> Inventory:
        """Files and consumers of a journal, or of all shards below a root.

        A segment holds the messages up to the first one of the segment after it, so only the end of the last one is
        looked up.
        """
        found = Inventory()
        for part, journal in parts(reader, named):
            with suppress(NotFound):  # the shard was removed meanwhile
                known = {part: extents[part]} if extents and part in extents else self.extent(journal)
                for first, following in known.values():  # one, or none for the same reason
                    found.files += list_files(part, journal, following)
                    found.consumers += list_consumers(part, journal, first, following)
        return found


def parts(reader: AnyReader, named: Collection[str] | None = None) -> Iterator[tuple[str, Reader]]:
    """Each shard below a root by its name, or those named; the journal itself, without a name, if there are none."""
    if isinstance(reader, ShardedReader):
        for shard in reader.shards():
            with suppress(NotFound):
                if named is None or shard.name in named:
                    yield shard.name, reader.open(shard)
    elif named is None or "" in named:
        yield "", reader


def _part(reader: AnyReader, name: str) -> Reader:
    if not isinstance(reader, ShardedReader):
        return reader
    shard = next((shard for shard in reader.shards() if shard.name == name), None)
    if shard is None:
        raise NotFound(f"{reader.path}: the shard {name} is gone")
    return reader.open(shard)


def _next_of(reader: Reader, segment: Segment) -> int:
    """The offset after the last whole message of the last segment.

    Messages after bad bytes count, as they do for readers and writers. Only if they are known to be in the value of a
    message that is still being written, they do not.
    """
    file = open_segment(reader.disk, segment)
    try:
        end = find_end(reader.disk, segment, file, walk_bytes=_WALK_BYTES)
        if end.damage is None or end.was_synced:
            return end.next_offset
        size = file.size()
        cursor = cursor_before_end(reader.disk, segment, file, size)
        while True:
            while cursor.read() is not None:
                pass
            position, number = cursor.position, cursor.expected
            if cursor.ending == codec.CLEAN or judge(cursor, None)[1] is None:
                return number
            if _is_unfinished(file, (position, number), (cursor.position, cursor.expected), size):
                return number
    finally:
        file.close()


def _is_unfinished(file: File, place: Place, found: Place, size: int) -> bool:
    """Whether the messages found after a place are in the value of the message there, whose end is not written yet.

    A damaged size looks the same, but then messages of the journal follow. The messages are in a value if the value
    begins with them, or if they follow messages that cannot be the journal's: with lower offsets, or with more offsets
    than the bytes can hold.
    """
    position, expected = place
    head = file.read_at(position, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    claimed = codec.claimed_size(head, 0, len(head))
    if claimed is None or position + claimed <= size or not is_in_value(file, position, expected, found[0]):
        return False
    value_at = position + HEAD.size + HEAD.unpack_from(head)[3] + VALUE_SIZE.size
    start, number = found
    for _ in range(2):
        if start == value_at:
            return True
        before = step_back(file, start)
        if before is None or before[0] != number - 1 or before[1].start < value_at:
            return False
        number, start = before[0], before[1].start
        if number != expected:
            return True
    return False


def _reach_in(
    segment: Segment,
    following: Segment | None,
    file: File,
    index: Index | None,
    place: Place,
    stop: int,
    max_bytes: int,
    at_least_one: bool,
) -> tuple[int, int]:
    """`reach` within one segment, from a position and its offset on."""
    origin, first = place
    limit = origin + max_bytes
    entry = index.before_position(file, limit) if index is not None else None
    if index is not None and entry is not None and entry.offset > stop:
        entry = index.before_offset(file, stop)
    position, number = (entry.position, entry.offset) if entry is not None and entry.offset > first else place
    cursor = Cursor(file, segment, position, number)
    while cursor.expected < stop:
        number, position = cursor.expected, cursor.position
        chunk = cursor.read(stop - number)
        if chunk is None:
            continues_at = None if cursor.ending == codec.CLEAN else judge(cursor, following)[1]
            if cursor.position > limit and not (at_least_one and number == first):
                return number, position - origin
            if continues_at is None:
                number = following.first_offset if following is not None else stop
                return number, cursor.position - origin
        elif cursor.position > limit:
            starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
            rows = bisect_right(starts, limit - chunk.base) - 1
            rows = max(rows, 1 if at_least_one and number == first else 0)
            return number + rows, chunk.base + starts[rows] - origin
    return cursor.expected, cursor.position - origin


def _plan(
    reader: Reader, target_bytes: int, start: int | None, stop: int | None, resumed: bool, times: Times | None
) -> list[Split]:
    segments = reader.segments()
    found: list[Split] = []
    begin = _segment_of(segments, start)
    wrong = _wrong_before(reader, segments, begin, start)
    for number in range(begin, len(segments)):
        segment = segments[number]
        following = segments[number + 1] if number + 1 < len(segments) else None
        if stop is not None and segment.first_offset >= stop and number > begin:
            break
        file = open_segment(reader.disk, segment)
        try:
            is_whole = start is None or start <= segment.first_offset
            needs_index = times is not None or not is_whole or file.size() > target_bytes
            index = Index.load(reader.disk, segment, file.size()) if needs_index else None
            if following is not None and index is not None and times is not None and is_outside(index, file, times):
                wrong = _wrong_between(reader, segment, End(file.size(), index.entries[-1].offset), following)
                continue
            end = find_end(reader.disk, segment, file, walk_bytes=0 if following is not None else _WALK_BYTES)
            until = following.first_offset if following is not None else end.next_offset
            place, straddling = _place(segment, file, index, start, following)
            last = file.size(), max(until, place[1])
            splits: list[Split] = []
            for run in [(place, last)] if times is None else wanted_ranges(index, file, place, last, times, end.walked):
                first, *others = _split_run(segment, file, index, run, stop, target_bytes)
                if run[0] == (0, segment.first_offset):
                    before = wrong
                elif run[0] == place and (resumed or straddling is not None):
                    before = None if resumed else straddling
                else:
                    before = _hiding(reader, segment, following, run[0])
                splits += [replace(first, before=before), *others]
                if run[1] == last and following is None:
                    splits[-1] = replace(splits[-1], after=_after(reader, segment, end))
            found += [split for split in splits if split.bytes or split.before or split.after]
            wrong = None if following is None else _wrong_between(reader, segment, end, following)
        finally:
            file.close()
    return _up_to(found, stop)


def _segment_of(segments: list[Segment], offset: int | None) -> int:
    """The number of the segment that an offset is in, or would be in."""
    if offset is None:
        return 0
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1)


def _wrong_before(reader: Reader, segments: list[Segment], number: int, start: int | None) -> Damage | None:
    """The damage between a segment whose first message is `start` and the preceding segment."""
    if number == 0 or segments[number].first_offset != start:
        return None
    file = open_segment(reader.disk, segments[number - 1])
    try:
        end = find_end(reader.disk, segments[number - 1], file)
    finally:
        file.close()
    return _wrong_between(reader, segments[number - 1], end, segments[number])


def _wrong_between(reader: Reader, segment: Segment, end: End, following: Segment) -> Damage | None:
    """Messages that are missing before a segment, or bytes after the last message that there was to be before it."""
    if end.torn is not None:
        return replace(end.torn, kind="malformed") if end.next_offset == following.first_offset else None
    if end.damage is not None or end.next_offset == following.first_offset:
        return None
    return reader.gap_before(following, end.next_offset)


def _place(
    segment: Segment, file: File, index: Index | None, start: int | None, following: Segment | None
) -> tuple[Place, Damage | None]:
    """Position and offset of the first message of a segment from `start` on; and the damage that hides `start`."""
    if start is None or start <= segment.first_offset:
        return (0, segment.first_offset), None
    entry = index.before_offset(file, start) if index is not None else None
    position, number = (entry.position, entry.offset) if entry is not None else (0, segment.first_offset)
    cursor = Cursor(file, segment, position, number)
    damage: Damage | None = None
    while not cursor.skip_to(start):
        if cursor.ending == codec.CLEAN:
            return (cursor.position, start), None
        damage, continues_at = judge(cursor, following)
        if continues_at is None:
            return (cursor.position, start), None if damage.kind == "torn_tail" else damage
    return (cursor.position, cursor.expected), damage if cursor.expected > start else None


def _split_run(
    segment: Segment, file: File, index: Index | None, run: tuple[Place, Place], stop: int | None, target_bytes: int
) -> list[Split]:
    """One split of a segment between two places, even if it is empty."""
    place, last = run
    places = [place, *_boundaries(segment, file, index, place, last[0], stop, target_bytes)]
    return [
        Split(segment.name, position, first, behind, end - position)
        for (position, first), (end, behind) in zip(places, [*places[1:], last], strict=True)
    ]


def _boundaries(
    segment: Segment, file: File, index: Index | None, place: Place, end: int, stop: int | None, target_bytes: int
) -> list[Place]:
    """Positions and offsets of messages after a place and before an end and `stop`, about `target_bytes` apart."""
    if end - place[0] <= target_bytes:
        return []
    if index is None:
        return _hop(segment, file, place, end, stop, target_bytes)
    places: list[Place] = []
    wanted = place[0] + target_bytes
    for entry in index.entries:
        if entry.position >= end or (stop is not None and entry.offset >= stop):
            break
        if entry.position < wanted or end - entry.position < target_bytes // 2:
            continue
        message = message_span(file, entry.position, end)
        if message is None or message[0] != entry.offset:  # the file has become another one: ask it instead
            return _hop(segment, file, place, end, stop, target_bytes)
        places.append((entry.position, entry.offset))
        wanted = entry.position + target_bytes
    return places


def _hop(segment: Segment, file: File, place: Place, end: int, stop: int | None, target_bytes: int) -> list[Place]:
    places: list[Place] = []
    cursor = Cursor(file, segment, *place, end=end)
    wanted = place[0] + target_bytes
    while (chunk := cursor.read()) is not None and (stop is None or chunk.first_offset < stop):
        if chunk.position >= wanted and end - chunk.position >= target_bytes // 2:
            places.append((chunk.position, chunk.first_offset))
            wanted = chunk.position + target_bytes
    return places


def _up_to(splits: list[Split], stop: int | None) -> list[Split]:
    """The parts of splits that are before an offset."""
    found = []
    for split in splits:
        if stop is None or split.stop <= stop:
            found.append(split)
        elif split.start < stop:
            share = split.bytes * (stop - split.start) // (split.stop - split.start)
            found.append(replace(split, stop=stop, bytes=share, after=None))
    return found


def _after(reader: Reader, segment: Segment, end: End) -> Damage | None:
    """What follows the last message of the last segment: a torn tail, or damage, as readers see it."""
    if end.damage is None:
        return end.torn
    with closing(reader.segment_chunks(segment, None, end.next_offset, None, "permissive", at=end.position)) as found:
        return next((item for item in found if isinstance(item, Damage) and item.start >= end.position), None)


def _begins_in(reader: Reader, segment: Segment, following: Segment | None, split: Split, damage: Damage) -> bool:
    """Whether damage belongs to a split, and not to one before it."""
    if damage.kind == "checksum" and damage.start == split.position:
        return not _is_within_bad(reader, segment, following, (split.position, split.start))
    return damage.start >= split.position or damage.end > split.position


def _is_within_bad(reader: Reader, segment: Segment, following: Segment | None, place: Place) -> bool:
    """Whether a block with a wrong checksum at a place also damages the preceding message.

    It does if the block reaches from the preceding message across the place. If the end of that message does not show
    this, the message is read.
    """
    position, number = place
    file = reader.open_file(segment)
    try:
        if position == 0 or not isinstance(file, CheckedFile):
            return False
        before = step_back(file.file, position)
        if before is not None and before[0] == number - 1:
            bad = file.bad_blocks(before[1].start, position)
            return bool(bad) and bad[0].end > position
        index = Index.load(reader.disk, segment, file.size())
        entry = index.before_offset(file.file, number - 1) if index is not None else None
    finally:
        file.close()
    start, at = (entry.offset, entry.position) if entry is not None else (None, None)
    items = reader.segment_chunks(segment, following, start, number, "permissive", at=at)
    return any(isinstance(item, Damage) and item.start < position < item.end for item in items)


def _hiding(reader: Reader, segment: Segment, following: Segment | None, place: Place) -> Damage | None:
    """The damage by a checksum that hides what begins at a place, and begins before it; from that place on."""
    if not _is_within_bad(reader, segment, following, place):
        return None
    file = reader.open_file(segment)
    try:
        cursor = Cursor(file, segment, *place)
        return judge(cursor, following)[0] if cursor.read() is None and cursor.ending == BAD_CHECKSUM else None
    finally:
        file.close()


SPLITS: Final = MessageSplits()


def list_files(part: str, reader: Reader, following: int) -> Iterator[FileEntry]:
    """The segments of one journal, whose next offset is `following`."""
    segments = reader.segments()
    for number, segment in enumerate(segments):
        stop = max(segment.first_offset, following)  # the last one may have come after the end was looked for
        if number + 1 < len(segments):
            stop = segments[number + 1].first_offset
        with suppress(NotFound):
            size = reader.disk.file_size(segment.path)
            file = f"{part}/{segment.name}" if part else segment.name
            yield FileEntry(part, file, size, segment.first_offset, stop)


def list_consumers(part: str, reader: Reader, first: int, following: int) -> Iterator[ConsumerEntry]:
    """The consumers of one journal, which has the messages `first` <= offset < `following`."""
    if reader.is_single_file:
        return
    for name in offset_file.list_consumers(reader.disk, reader.directory):
        try:
            offset = offset_file.stored_offset(reader.disk, reader.directory, name)
        except NotFound:
            continue
        except (DamagedJournal, StorageFailed) as error:
            yield ConsumerEntry(part, name, None, first, following, str(error))
        else:
            yield ConsumerEntry(part, name, offset, first, following)
