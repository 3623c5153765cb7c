"""The state of a sej journal: its offsets by file, and the offsets of its consumers.

`replay` works on extents and offsets alone and never sees bytes. `files/reader.py` finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import HistoryUnavailable, WrongUse


@dataclass(frozen=True, slots=True)
class Extent:
    """The messages of one file: `first` <= offset < `next`, and the number of bytes from its beginning to their end."""

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

    Past offsets of consumers are not stored: the current ones are used, but none ahead of `at`.
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
