"""What a sej journal stands for: which offsets it holds, in which files, and how far its consumers have come.

`replay` works on extents and offsets alone and never sees bytes. `read_state` asks a reader for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.bytes.outcome import Damage
from ...errors import DamagedJournal, HistoryUnavailable, StorageFailed, WrongUse

if TYPE_CHECKING:
    from ..files.reader import Reader


@dataclass(frozen=True, slots=True)
class Extent:
    """The messages of one file: `first` <= offset < `next`, and the bytes that they take from its beginning on."""

    file: str
    first: int
    next: int
    bytes: int

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "first": self.first, "next": self.next, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class SejState:
    """A journal at a point. `consumers` has None for one that has not committed anything yet."""

    first: int
    next: int
    segments: tuple[Extent, ...]
    consumers: dict[str, int | None]

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "next": self.next,
            "segments": [segment.as_json() for segment in self.segments],
            "consumers": self.consumers,
        }


def replay(extents: Iterable[Extent], consumers: Mapping[str, int | None]) -> SejState:
    """The state of a journal that has these extents, in order, and consumers at these offsets."""
    segments = tuple(extents)
    first = segments[0].first if segments else 0
    following = segments[-1].next if segments else 0
    return SejState(first, following, segments, dict(consumers))


def rewind(state: SejState, at: int, bytes_before: int) -> SejState:
    """The state when `at` was the next offset; `bytes_before` is where that message begins in its file.

    Where the consumers were then is written nowhere: they are shown where they are now, but not ahead of `at`.
    """
    if at < state.first:
        raise HistoryUnavailable(f"the journal begins with offset {state.first}: what was at {at} is not kept")
    if at > state.next:
        raise WrongUse(f"offset {at} is yet to come: the next message gets {state.next}")
    segments = []
    for segment in state.segments:
        if segment.next <= at and segment.first < at:
            segments.append(segment)
        elif segment.first <= at:
            segments.append(replace(segment, next=at, bytes=bytes_before))
    consumers = {name: offset if offset is None else min(offset, at) for name, offset in state.consumers.items()}
    return SejState(state.first, at, tuple(segments), consumers)


# --- asking a reader ------------------------------------------------------------------------------------------------


def read_state(reader: Reader, at: int | None = None) -> SejState:
    """The state of the journal behind a reader: now, or when `at` was the offset of the next message."""
    from ..files.check import measure

    state = replay(measure(reader), read_consumers(reader))
    return state if at is None else rewind(state, at, _bytes_before(reader, state, at))


def read_consumers(reader: Reader) -> dict[str, int | None]:
    """Where each consumer is; None for one that has not committed, and for one whose offset cannot be read."""
    from .offset import list_consumers, stored_offset

    if reader.is_single_file:
        return {}
    found: dict[str, int | None] = {}
    for name in list_consumers(reader.disk, reader.directory):
        try:
            found[name] = stored_offset(reader.disk, reader.directory, name)
        except (DamagedJournal, StorageFailed):
            found[name] = None
    return found


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
