"""A sej journal in splits: from the sparse index where there is one, by hopping from head to head elsewhere.

A split lies within one segment. Damage belongs to the split that it begins in; when the way through a segment cannot be
found without reading past damage, the rest of the segment is one split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.disk import File
from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.split import TARGET_BYTES, Split
from .ending import find_end
from .index import Index
from .reader import Reader, gap_before
from .segment import Chunk, Cursor, Segment, message_span, open_segment
from .shard import ShardedReader

AnyReader = Reader | ShardedReader


def plan(
    reader: AnyReader, target_bytes: int = TARGET_BYTES, start: int | None = None, stop: int | None = None
) -> list[Split]:
    """The messages with `start` <= offset < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Below a root of shards `start` and `stop` hold in each.
    """
    if isinstance(reader, ShardedReader):
        return [
            replace(split, part=shard.name)
            for shard in reader.shards()
            for split in plan(reader.open(shard), target_bytes, start, stop)
        ]
    segments = reader.segments()
    found: list[Split] = []
    expected: int | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        file = open_segment(reader.disk, segment)
        try:
            end = find_end(reader.disk, segment, file)
            until = following.first_offset if following is not None else end.next_offset
            splits = _split_segment(reader, segment, file, until, target_bytes)
            if expected is not None and expected != segment.first_offset:
                splits[0] = replace(splits[0], before=gap_before(segment, expected))
            if following is None:
                splits[-1] = replace(splits[-1], behind=end.torn)
            expected = end.next_offset if end.torn is None and end.damage is None else until
            found.extend(split for split in splits if split.bytes or split.before)
        finally:
            file.close()
    return _between(found, start, stop)


def _split_segment(reader: Reader, segment: Segment, file: File, until: int, target_bytes: int) -> list[Split]:
    """All of one segment, also of an empty one."""
    size = file.size()
    places = [(0, segment.first_offset), *_boundaries(reader, segment, file, size, target_bytes)]
    ends = [*places[1:], (size, until)]
    return [
        Split(segment.name, position, first, stop, end - position)
        for (position, first), (end, stop) in zip(places, ends, strict=True)
    ]


def _boundaries(reader: Reader, segment: Segment, file: File, size: int, target_bytes: int) -> list[tuple[int, int]]:
    """Positions and offsets of messages, about `target_bytes` apart."""
    if size <= target_bytes:
        return []
    index = Index.load(reader.disk, segment, size)
    if index is None:
        return _hop(file, segment, size, target_bytes)
    places: list[tuple[int, int]] = []
    wanted = target_bytes
    for entry in index.entries:
        if entry.position < wanted or entry.is_end or size - entry.position < target_bytes // 2:
            continue
        message = message_span(file, entry.position, size)
        if message is None or message[0] != entry.offset:  # the file has become another one: ask it instead
            return _hop(file, segment, size, target_bytes)
        places.append((entry.position, entry.offset))
        wanted = entry.position + target_bytes
    return places


def _hop(file: File, segment: Segment, size: int, target_bytes: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    cursor = Cursor(file, segment, 0, segment.first_offset, end=size)
    wanted = target_bytes
    while (chunk := cursor.read()) is not None:
        if chunk.position >= wanted and size - chunk.position >= target_bytes // 2:
            places.append((chunk.position, chunk.first_offset))
            wanted = chunk.position + target_bytes
    return places


def _between(splits: list[Split], start: int | None, stop: int | None) -> list[Split]:
    """The parts of splits that are within a range of offsets."""
    found = []
    for split in splits:
        first = split.start if start is None else max(split.start, start)
        last = split.stop if stop is None else min(split.stop, stop)
        if first == split.start and last == split.stop:
            found.append(split)
        elif first < last:
            share = split.bytes * (last - first) // (split.stop - split.start)
            before = split.before if first == split.start else None
            behind = split.behind if last == split.stop else None
            found.append(replace(split, start=first, stop=last, bytes=share, before=before, behind=behind))
    return found


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The messages of a split. A chunk's buffer is valid until the next one is asked for."""
    check_mode(mode)
    if isinstance(reader, ShardedReader):
        shard = next((shard for shard in reader.shards() if shard.name == split.part), None)
        if shard is None:
            raise NotFound(f"{reader.path}: the shard {split.part} is gone")
        reader = reader.open(shard)
    segments = reader.segments()
    number = next((number for number, segment in enumerate(segments) if segment.name == split.file), None)
    if number is None:
        lost = f"messages {split.start} to {split.stop - 1} were in it"
        raise NotFound(f"{reader.path}: the segment {split.file} is gone; {lost}")
    segment = segments[number]
    if split.before is not None:
        yield from reader.report(split.before, mode)
    following = segments[number + 1] if number + 1 < len(segments) else None
    yield from reader.segment_chunks(segment, following, split.start, split.stop, mode, at=split.position)
    if split.behind is not None:
        yield from reader.report(split.behind, mode)
