"""The state of a journal, found from its files: the extents of its segments, and the offsets of its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytes.outcome import Damage
from ..model.replay import Extent, SejState, replay, rewind
from .ending import find_end
from .offset_file import read_consumers
from .segment import open_segment

if TYPE_CHECKING:
    from .reader import Reader


def read_state(reader: Reader, at: int | None = None) -> SejState:
    """The state of the journal behind a reader: now, or when `at` was the offset of the next message."""
    state = replay(measure(reader), read_consumers(reader))
    return state if at is None else rewind(state, at, _bytes_before(reader, state, at))


def measure(reader: Reader) -> list[Extent]:
    """Which messages each segment holds, found from its end. `DamagedJournal` never: damage is `verify`'s to tell."""
    segments = reader.segments()
    extents = []
    for segment in segments:
        file = open_segment(reader.disk, segment)
        try:
            end = find_end(reader.disk, segment, file)
        finally:
            file.close()
        if segment is segments[-1]:
            reader.torn_tail = end.torn
        extents.append(Extent(segment.name, segment.first_offset, end.next_offset, end.position))
    return extents


def _bytes_before(reader: Reader, state: SejState, at: int) -> int:
    """Where the message with an offset begins in its file, or would begin if it came next."""
    if not state.first <= at < state.next:
        return state.segments[-1].bytes if state.segments and state.segments[-1].first < at else 0
    for item in reader.chunks(at, at + 1, mode="dropmalformed"):
        if not isinstance(item, Damage):
            return item.position
    return _bytes_before_missing(reader, state, at)


def _bytes_before_missing(reader: Reader, state: SejState, at: int) -> int:
    """The same for a message that is not there any more: what the whole ones before it in its file take."""
    segment = max((segment for segment in state.segments if segment.first <= at), key=lambda segment: segment.first)
    end = 0
    for item in reader.chunks(segment.first, at, mode="dropmalformed"):
        if not isinstance(item, Damage) and item.file == segment.file:
            end = item.position + item.stop - item.start
    return end
