"""A sej journal in splits: from the sparse index where there is one, by hopping from head to head elsewhere.

A split lies within one segment. Damage belongs to the split that it begins in; when the way through a segment cannot be
found without reading past damage, the rest of the segment is one split.

For streams, which go on where they stopped: `extent` says what there is, up to the last message that is there as a
whole, and `reach` how far a number of bytes goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from ...core.checksum import CheckedFile
from ...core.disk import File
from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.split import TARGET_BYTES, Bound, Split, Times
from . import codec, kernel
from .ending import End, find_end
from .index import Entry, Index, confirms
from .layout import HEAD, MAX_KEY_BYTES, NO_TIMESTAMP, VALUE_SIZE
from .reader import Reader, gap_before
from .segment import BAD_CHECKSUM, Chunk, Cursor, Segment, judge, message_span, open_segment, step_back
from .shard import ShardedReader

AnyReader = Reader | ShardedReader

_WALK_BYTES: Final = 64 << 20
"""How far back the end of the last segment is walked to, where no index is nearer: no value can deceive a walk."""


# --- what there is ----------------------------------------------------------------------------------------------------


def extent(reader: AnyReader) -> dict[str, tuple[int, int]]:
    """The first offset and the next one of every part. A message that is not there as a whole is not counted."""
    found = {}
    for part, journal in parts(reader):
        with suppress(NotFound):  # the shard was removed while we looked
            segments = journal.segments()
            first = segments[0].first_offset if segments else 0
            found[part] = (first, _next_of(journal, segments[-1]) if segments else first)
    return found


def parts(reader: AnyReader) -> Iterator[tuple[str, Reader]]:
    """Each shard below a root by its name; the journal itself, without a name, where there are none."""
    if isinstance(reader, ShardedReader):
        for shard in reader.shards():
            with suppress(NotFound):
                yield shard.name, reader.open(shard)
    else:
        yield "", reader


def _part(reader: AnyReader, name: str) -> Reader:
    if not isinstance(reader, ShardedReader):
        return reader
    shard = next((shard for shard in reader.shards() if shard.name == name), None)
    if shard is None:
        raise NotFound(f"{reader.path}: the shard {name} is gone")
    return reader.open(shard)


def _next_of(reader: Reader, segment: Segment) -> int:
    """The offset behind the last whole message of the last segment.

    Where messages are found behind bad bytes, these may be the value of a message that is still being written: then
    nothing behind its beginning counts.
    """
    file = open_segment(reader.disk, segment)
    try:
        end = find_end(reader.disk, segment, file, walk_bytes=_WALK_BYTES)
        if end.damage is None:
            return end.next_offset
        size = file.size()
        cursor = Cursor(file, segment, 0, segment.first_offset, end=size)
        while True:
            while cursor.read() is not None:
                pass
            number = cursor.expected
            if cursor.ending == codec.CLEAN or _is_unfinished(file, cursor.position, number, size):
                return number
            if judge(cursor, None)[1] is None:
                return number
    finally:
        file.close()


def _is_unfinished(file: File, position: int, expected: int, size: int) -> bool:
    """Whether the head at a position is intact and announces a message that goes beyond the end of the file."""
    head = file.read_at(position, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    claimed = codec.claimed_size(head, 0, len(head))
    return claimed is not None and HEAD.unpack_from(head)[0] == expected and position + claimed > size


def reach(reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
    """How far `max_bytes` go from the message `start` on, but not beyond `stop`: where to stop, and the bytes up to it.

    At least one message is within reach, however large it is.
    """
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
            place = _place(journal, segment, file, start, following)[0]
            rest = file.size() - place[0]
            if following is not None and following.first_offset <= stop and used + rest <= max_bytes:
                number, used = following.first_offset, used + rest
                continue
            number, taken = _reach_in(journal, segment, following, file, place, stop, max_bytes - used, used == 0)
            used += taken
            if following is None or number < following.first_offset:
                break
        finally:
            file.close()
    return min(number, stop), used


def _reach_in(
    reader: Reader,
    segment: Segment,
    following: Segment | None,
    file: File,
    place: tuple[int, int],
    stop: int,
    max_bytes: int,
    at_least_one: bool,
) -> tuple[int, int]:
    """`reach` within one segment, from a position and its offset on."""
    origin, first = place
    limit = origin + max_bytes
    index = Index.load(reader.disk, segment, file.size())
    entry = index.before_position(file, limit) if index is not None else None
    if index is not None and entry is not None and entry.offset > stop:
        entry = index.before_offset(file, stop)
    position, number = (entry.position, entry.offset) if entry is not None and entry.offset > first else place
    cursor = Cursor(file, segment, position, number)
    while cursor.expected < stop:
        number, position = cursor.expected, cursor.position
        chunk = cursor.read(stop - number)
        if chunk is None:
            goes_on_at = None if cursor.ending == codec.CLEAN else judge(cursor, following)[1]
            if cursor.position > limit and not (at_least_one and number == first):
                return number, position - origin
            if goes_on_at is None:
                number = following.first_offset if following is not None else stop
                return number, cursor.position - origin
        elif cursor.position > limit:
            starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
            rows = bisect_right(starts, limit - chunk.base) - 1
            rows = max(rows, 1 if at_least_one and number == first else 0)
            return number + rows, chunk.base + starts[rows] - origin
    return cursor.expected, cursor.position - origin


# --- planning ---------------------------------------------------------------------------------------------------------


def plan(
    reader: AnyReader,
    target_bytes: int = TARGET_BYTES,
    start: Bound = None,
    stop: Bound = None,
    *,
    resumed: bool = False,
    times: Times | None = None,
) -> list[Split]:
    """The messages with `start` <= offset < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Bounds are for every shard, or for each by its name; then those that are
    not named are left out. `resumed` says that what lies before `start` has been read before: damage that began there
    was told then. With `times`, what the index knows to hold no message of that time is in no split, and so nobody is
    told of damage in there.
    """
    found: list[Split] = []
    for part, journal in parts(reader):
        if any(isinstance(bound, Mapping) and part not in bound for bound in (start, stop)):
            continue
        low = start[part] if isinstance(start, Mapping) else start
        high = stop[part] if isinstance(stop, Mapping) else stop
        planned = _plan(journal, target_bytes, low, high, resumed, times)
        found.extend(replace(split, part=part) if part else split for split in planned)
    return found


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
            end = find_end(reader.disk, segment, file, walk_bytes=0 if following is not None else _WALK_BYTES)
            until = following.first_offset if following is not None else end.next_offset
            place, straddling = _place(reader, segment, file, start, following)
            whole = (place, (file.size(), max(until, place[1])))
            stretches = [whole] if times is None else _stretches(reader, segment, file, whole, times)
            splits = [
                split
                for stretch in stretches
                for split in _split_stretch(reader, segment, file, stretch, stop, target_bytes)
            ]
            if splits and stretches[0][0] == place:
                if place == (0, segment.first_offset):
                    splits[0] = replace(splits[0], before=wrong)
                elif not resumed:
                    splits[0] = replace(splits[0], before=straddling or _hiding(reader, segment, following, place))
            if following is not None:
                wrong = _wrong_between(segment, end, following)
            elif splits and stretches[-1][1] == whole[1]:
                splits[-1] = replace(splits[-1], behind=end.torn)
            found.extend(split for split in splits if split.bytes or split.before)
        finally:
            file.close()
    return _up_to(found, stop)


def _segment_of(segments: list[Segment], offset: int | None) -> int:
    """The number of the segment that an offset is in, or would be in."""
    if offset is None:
        return 0
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1)


def _wrong_before(reader: Reader, segments: list[Segment], number: int, start: int | None) -> Damage | None:
    """What is wrong between a segment that `start` is the first message of and the segment before it."""
    if number == 0 or segments[number].first_offset != start:
        return None
    file = open_segment(reader.disk, segments[number - 1])
    try:
        end = find_end(reader.disk, segments[number - 1], file)
    finally:
        file.close()
    return _wrong_between(segments[number - 1], end, segments[number])


def _wrong_between(segment: Segment, end: End, following: Segment) -> Damage | None:
    """Messages that are missing before a segment, or bytes behind the last message that there was to be before it."""
    if end.torn is not None:
        return replace(end.torn, kind="malformed") if end.next_offset == following.first_offset else None
    if end.damage is not None or end.next_offset == following.first_offset:
        return None
    return gap_before(following, end.next_offset)


def _place(
    reader: Reader, segment: Segment, file: File, start: int | None, following: Segment | None
) -> tuple[tuple[int, int], Damage | None]:
    """Position and offset of the first message of a segment from `start` on; and the damage that hides `start`."""
    if start is None or start <= segment.first_offset:
        return (0, segment.first_offset), None
    index = Index.load(reader.disk, segment, file.size())
    entry = index.before_offset(file, start) if index is not None else None
    position, number = (entry.position, entry.offset) if entry is not None else (0, segment.first_offset)
    cursor = Cursor(file, segment, position, number)
    damage: Damage | None = None
    while not cursor.skip_to(start):
        if cursor.ending == codec.CLEAN:
            return (cursor.position, start), None
        damage, goes_on_at = judge(cursor, following)
        if goes_on_at is None:
            return (cursor.position, start), None if damage.kind == "torn_tail" else damage
    return (cursor.position, cursor.expected), damage if cursor.expected > start else None


Place: TypeAlias = tuple[int, int]
"""A position in a segment, and the offset of the message that begins there."""
Stretch: TypeAlias = tuple[Place, Place]
"""Where something begins and ends."""


def _stretches(reader: Reader, segment: Segment, file: File, whole: Stretch, times: Times) -> list[Stretch]:
    """What there is to be read for messages of some time: all that the index does not know to have none of them.

    An index that the file does not confirm where it counts says nothing: then all of it is to be read.
    """
    index = Index.load(reader.disk, segment, whole[1][0])
    if index is None or index.last(file) != index.entries[-1]:
        return [whole]
    found: list[Stretch] = []
    edges: list[Entry] = []
    before: Entry | None = None
    for entry in (*index.entries, None):
        if entry is None:
            wanted = before is not None and not before.is_end
        else:
            wanted = entry.smallest_between != NO_TIMESTAMP
            wanted = wanted and times.reach(entry.smallest_between, entry.largest_before)
        begin = (0, segment.first_offset) if before is None else (before.position, before.offset)
        end = whole[1] if entry is None else (entry.position, entry.offset)
        begin = max(begin, whole[0])
        if wanted and begin < end:
            edges.extend(edge for edge in (before, entry) if edge is not None)
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
        before = entry
    return found if all(confirms(file, edge) for edge in _outer(edges, found)) else [whole]


def _outer(edges: list[Entry], stretches: list[Stretch]) -> list[Entry]:
    """The entries at which stretches begin and end; not those in their midst."""
    wanted = {place for stretch in stretches for place in stretch}
    return [edge for edge in edges if (edge.position, edge.offset) in wanted]


def _split_stretch(
    reader: Reader, segment: Segment, file: File, stretch: Stretch, stop: int | None, target_bytes: int
) -> list[Split]:
    """A stretch of one segment, also when nothing is there."""
    place, end = stretch
    places = [place, *_boundaries(reader, segment, file, end[0], place, stop, target_bytes), end]
    return [
        Split(segment.name, position, first, following, until - position)
        for (position, first), (until, following) in pairwise(places)
    ]


def _boundaries(
    reader: Reader,
    segment: Segment,
    file: File,
    end: int,
    place: Place,
    stop: int | None,
    target_bytes: int,
) -> list[Place]:
    """Positions and offsets of messages behind a place and before `stop` and `end`, about `target_bytes` apart."""
    if end - place[0] <= target_bytes:
        return []
    index = Index.load(reader.disk, segment, file.size())
    if index is None:
        return _hop(file, segment, end, place, stop, target_bytes)
    places: list[Place] = []
    wanted = place[0] + target_bytes
    for entry in index.entries:
        if stop is not None and entry.offset >= stop:
            break
        if entry.position < wanted or entry.is_end or end - entry.position < target_bytes // 2:
            continue
        message = message_span(file, entry.position, end)
        if message is None or message[0] != entry.offset:  # the file has become another one: ask it instead
            return _hop(file, segment, end, place, stop, target_bytes)
        places.append((entry.position, entry.offset))
        wanted = entry.position + target_bytes
    return places


def _hop(file: File, segment: Segment, size: int, place: Place, stop: int | None, target_bytes: int) -> list[Place]:
    places: list[Place] = []
    cursor = Cursor(file, segment, *place, end=size)
    wanted = place[0] + target_bytes
    while (chunk := cursor.read()) is not None and (stop is None or chunk.first_offset < stop):
        if chunk.position >= wanted and size - chunk.position >= target_bytes // 2:
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
            found.append(replace(split, stop=stop, bytes=share, behind=None))
    return found


# --- reading ----------------------------------------------------------------------------------------------------------


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The messages of a split. A chunk's buffer is valid until the next one is asked for."""
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
    found = reader.segment_chunks(segment, following, split.start, split.stop, "permissive", at=split.position)
    for item in found:
        if not isinstance(item, Damage):
            yield item
        elif _begins_in(reader, segment, following, split, item):
            yield from reader.report(item, mode)
    if split.behind is not None:
        yield from reader.report(split.behind, mode)


def _begins_in(reader: Reader, segment: Segment, following: Segment | None, split: Split, damage: Damage) -> bool:
    """Whether damage belongs to a split, and not to one before it."""
    if damage.kind == "checksum" and damage.start == split.position:
        return not _is_within_bad(reader, segment, following, (split.position, split.start))
    return damage.start >= split.position or damage.end > split.position


def _is_within_bad(reader: Reader, segment: Segment, following: Segment | None, place: Place) -> bool:
    """Whether damage by a checksum that hides what begins at a place begins before it.

    It does when the message before it is hidden by a block that reaches over the place. Where that cannot be told from
    the end of that message, it is read.
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
