"""Bounds of records, and the bounds that an Arrow filter implies.

Arrow can say whether a filter may be true for any record of which something is known, such as `offset < 100`. So a
bound is found by bisection: it is the largest number for which the filter cannot be true below it. This holds for
every expression that Arrow can simplify, and where it cannot, there is no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from ..core.read.splits import Split, Times

NUMBERS: Final = ("offset", "sequence")
POSITIONS: Final = ("position", "_position")
NANOSECONDS: Final = {"timestamp": 1000, "timestamp_ns": 1, "t": 1}
"""How many nanoseconds share one value of a time column: `timestamp` is truncated to microseconds."""
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """`start` <= record number < `stop`; times and positions with both ends inclusive. None is no bound."""

    start: int | None = None
    stop: int | None = None
    earliest_ns: int | None = None
    latest_ns: int | None = None
    first_position: int | None = None
    last_position: int | None = None

    @property
    def times(self) -> Times | None:
        """The range of times; None for all."""
        if self.earliest_ns is None and self.latest_ns is None:
            return None
        return Times(self.earliest_ns, self.latest_ns)

    def leave(self, split: Split) -> bool:
        """Whether records of a split may be at positions within the bounds.

        The end of a split that was cut at a number is unknown, and damage before a split is elsewhere.
        """
        if self.stop is not None or split.before is not None:
            return True
        begins_in_time = self.last_position is None or split.position <= self.last_position
        # Where numbers are positions they bound a split: a compressed archive has fewer bytes than its contents.
        reach = split.position + max(split.bytes, split.stop - split.start)
        return begins_in_time and (self.first_position is None or reach > self.first_position)


def intersection(one: tuple[int | None, int | None], other: tuple[int | None, int | None]) -> Any:
    """The intersection of two ranges, each with its smallest and its largest number; None is no bound."""
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


class Filter:
    """A filter of records in the columns of a schema; without an expression every record matches."""

    def __init__(self, expression: ds.Expression | None, schema: pa.Schema) -> None:
        self._expression = expression
        self._schema = schema
        self._text = str(expression)

    def mentions(self, column: str) -> bool:
        """Whether the filter may depend on a column: its name is in the text of the expression."""
        return self._expression is not None and column in self._text

    def can_match(self, known: ds.Expression) -> bool:
        """Whether a record of which this is known may match."""
        if self._expression is None:
            return True
        dataset = ds.FileSystemDataset.from_paths(  # of a file that is never opened
            ["-"], self._schema, ds.IpcFileFormat(), fs.LocalFileSystem(), partitions=[known]
        )
        return any(True for _ in dataset.get_fragments(filter=self._expression))

    def can_have(self, column: str, value: str | None) -> bool:
        """Whether a record with this value in a column may match."""
        if column not in self._schema.names or not self.mentions(column):
            return True
        field = ds.field(column)
        return self.can_match(field.is_null() if value is None else field == value)

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of records that match."""
        numbers = positions = times = (None, None)
        for name in self._schema.names:
            if name in NUMBERS:
                numbers = intersection(numbers, self._range(name))
            elif name in POSITIONS:
                positions = intersection(positions, self._range(name))
            elif name in NANOSECONDS:
                low, high = self._range(name)
                width = NANOSECONDS[name]
                low = None if low is None else low * width
                times = intersection(times, (low, None if high is None else high * width + width - 1))
        start, last = numbers
        return Bounds(start, None if last is None else last + 1, *times, *positions)

    def _range(self, name: str) -> tuple[int | None, int | None]:
        """The smallest and the largest value of a column in records that match."""
        field, type = ds.field(name), self._schema.field(name).type
        if not self.mentions(name) or self.can_match(field.is_null()):
            return None, None
        low = _bisect(lambda value: self.can_match(field < pa.scalar(value, type)))
        high = _bisect(lambda value: self.can_match(field > pa.scalar(-value, type)))
        return low, None if high is None else -high


def _bisect(can_match_below: Callable[[int], bool]) -> int | None:
    """The largest number that is known to have no match below it; None if there is none."""
    low, high = -_LARGEST, _LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        if can_match_below(middle):
            high = middle
        else:
            low = middle
    return None if low == -_LARGEST else low
