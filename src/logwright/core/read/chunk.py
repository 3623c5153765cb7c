"""Chunks: whole records as they are stored in a file, and files whose records are numbered by file and position.

Where a format has no record numbers of its own, the number of a record is that of its file times 2^64, plus its
position in the file. The number of a file is the one in the name of the preceding file, 0 for the first: so a record
keeps its number when the newest file is renamed, and when older files are removed.

The dataclasses of a format derive from both classes: its files have the fields of `NumberedFile`, and its chunks add
fields to those of `FileChunk`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeAlias

from ..bytes.outcome import Damage

POSITION_BITS: Final = 64
Bound: TypeAlias = int | Mapping[str, int] | None
"""A bound of record numbers: one for all parts of a journal, or one for each by its name."""


class Choice(Protocol):
    """Chooses records by their columns."""

    def within(self, part: str) -> Choice:
        """The same for one part of a journal."""

    def ranges(self, reader: Any, start: int | None, stop: int | None) -> Sequence[tuple[int | None, int | None]]:
        """The parts of a range of record numbers that may have chosen records, in order."""

    def rows(self, chunk: Any) -> Sequence[int]:
        """The rows of a chunk that are chosen, in order."""

    def through(self, items: Iterable[Any]) -> Iterator[tuple[Any, Sequence[int]] | Damage]:
        """The chunks of a reader, each with its chosen rows, and the damage between them."""


class NumberedFile:
    """A file of a journal. `timestamp` is the number in its name, None for the newest; `before` that of the preceding
    file.

    `name` is relative to the journal's directory.
    """

    __slots__ = ()

    name: str
    path: Path
    timestamp: int | None
    before: int

    @property
    def first_number(self) -> int:
        """The number of its first record."""
        return self.before << POSITION_BITS

    def positions(self, start: int | None, stop: int | None) -> tuple[int, int | None]:
        """The positions in this file for a range of record numbers, which may begin or end in other files."""
        first = self.first_number
        return 0 if start is None else max(0, start - first), None if stop is None else stop - first

    @property
    def is_newest(self) -> bool:
        """Whether this is the file that is being written."""
        return self.timestamp is None


@dataclass(slots=True)
class FileChunk:
    """Whole records: `data[start:stop]` holds `count` of them, from `position` in the file on.

    A format adds fields, and `starts`. The buffer is valid until the reader is asked for the next chunk.
    """

    source: Any
    data: Any
    start: int
    stop: int
    position: int
    count: int

    def starts(self) -> Sequence[int]:
        """Where the records begin in the file, and where the last one ends."""
        raise NotImplementedError

    @property
    def file(self) -> str:
        """The name of its file, relative to the directory."""
        name: str = self.source.name
        return name

    @property
    def base(self) -> int:
        """Where the buffer's first byte is in the file."""
        return self.position - self.start

    @property
    def end(self) -> int:
        """Where the last record ends in the file."""
        return self.base + self.stop

    @property
    def first_number(self) -> int:
        """The number of the first record."""
        number: int = self.source.first_number
        return number + self.position

    def within(self, low: int, high: int | None) -> Self | None:
        """The records that begin at `low` or later, and before `high`; None when there are none."""
        part = self.without_before(low)
        return part if part is None or high is None else part.without_from(high)

    def without_before(self, position: int) -> Self | None:
        """The records that begin at a position or later; None when there are none."""
        if position <= self.position:
            return self
        starts = self.starts()
        return self._part(starts, bisect_left(starts, position, 0, self.count), self.count)

    def without_from(self, position: int) -> Self | None:
        """The records that begin before a position; None when there are none."""
        if self.end <= position:
            return self
        starts = self.starts()
        return self._part(starts, 0, bisect_left(starts, position, 0, self.count))

    def _part(self, starts: Sequence[int], first: int, last: int) -> Self | None:
        if first >= last:
            return None
        begin, end = starts[first] - self.base, starts[last] - self.base
        return replace(self, start=begin, stop=end, position=starts[first], count=last - first)
