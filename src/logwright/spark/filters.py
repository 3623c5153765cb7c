"""Filters that Spark pushes down: what they let us leave out, of files and of records.

Each is used twice and given back to Spark all the same, which applies it again: a filter here may only ever leave out
what Spark would leave out. From the bounds of a number or a time whole parts of a journal are never read; what is read
is filtered as a batch before it crosses over to the JVM, which is the dear part of the way.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from ..core.split import Split, Times

_COMPARE: Final = {
    spark.EqualTo: pc.equal,
    spark.GreaterThan: pc.greater,
    spark.GreaterThanOrEqual: pc.greater_equal,
    spark.LessThan: pc.less,
    spark.LessThanOrEqual: pc.less_equal,
}
_NUMBERS: Final = ("offset", "sequence")
_TIMES: Final = ("timestamp", "timestamp_ns")
_POSITIONS: Final = ("position", "_position")
_MICROSECOND_NS: Final = 1000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


Range: TypeAlias = tuple[int | None, int | None]
"""The smallest and the largest; None is no bound."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value; `In` has several values."""

    column: str
    kind: type[spark.Filter]
    value: Any

    def mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows may stay; None when the batch does not have the column."""
        if self.column not in batch.schema.names:
            return None
        data = batch.column(self.column)
        if self.kind is spark.In:
            return pc.is_in(data, pa.array(self.value, data.type))
        return _COMPARE[self.kind](data, pa.scalar(self.value, data.type))


@dataclass(frozen=True, slots=True)
class Bounds:
    """`start` <= record number < `stop`; times and positions, both ends of them included. None is no bound."""

    start: int | None = None
    stop: int | None = None
    earliest_ns: int | None = None
    latest_ns: int | None = None
    first_position: int | None = None
    last_position: int | None = None

    @property
    def times(self) -> Times | None:
        """The times that are left, None for all."""
        if self.earliest_ns is None and self.latest_ns is None:
            return None
        return Times(self.earliest_ns, self.latest_ns)

    def leave(self, split: Split) -> bool:
        """Whether records of a split may be at the positions that are left. Of a part of a split nobody knows."""
        if self.start is not None or self.stop is not None:
            return True
        begins_in_time = self.last_position is None or split.position <= self.last_position
        return begins_in_time and (self.first_position is None or split.position + split.bytes > self.first_position)


def understood(filters: Iterable[spark.Filter]) -> list[Condition]:
    """The filters that we can use; the others are Spark's alone."""
    found = []
    for filter in filters:
        kind = type(filter)
        if (kind in _COMPARE or kind is spark.In) and len(filter.attribute) == 1:  # type: ignore[attr-defined]
            value = filter.value  # type: ignore[attr-defined]
            if value is not None and not (kind is spark.In and None in value):
                found.append(Condition(filter.attribute[0], kind, value))  # type: ignore[attr-defined]
    return found


def bounds_of(conditions: Iterable[Condition]) -> Bounds:
    """The range of records that conditions leave."""
    numbers: Range = (None, None)
    times: Range = (None, None)
    positions: Range = (None, None)
    for condition in conditions:
        found = _range(condition)
        if condition.column in _NUMBERS:
            numbers = _both(numbers, found)
        elif condition.column in _TIMES:
            times = _both(times, found)
        elif condition.column in _POSITIONS:
            positions = _both(positions, found)
    start, last = numbers
    return Bounds(start, None if last is None else last + 1, *times, *positions)


def _both(one: Range, other: Range) -> Range:
    return _largest(one[0], other[0]), _smallest(one[1], other[1])


def _range(condition: Condition) -> Range:
    """The smallest and the largest value that a condition lets through; times in nanoseconds."""
    if condition.column not in (*_NUMBERS, *_TIMES, *_POSITIONS):
        return None, None
    values = condition.value if condition.kind is spark.In else (condition.value,)
    numbers = [_number(value) for value in values]
    if not numbers or None in numbers:
        return None, None
    low, high = min(numbers), max(numbers)  # type: ignore[type-var]
    if condition.column == "timestamp":  # which is cut to microseconds: so many later ones look the same
        assert high is not None
        high += _MICROSECOND_NS - 1
    if condition.kind is spark.GreaterThan or condition.kind is spark.GreaterThanOrEqual:
        return low, None
    if condition.kind is spark.LessThan or condition.kind is spark.LessThanOrEqual:
        return None, high
    return low, high


def _number(value: Any) -> int | None:
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _largest(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _smallest(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def keep(batch: pa.RecordBatch, conditions: Iterable[Condition]) -> pa.RecordBatch:
    """The rows of a batch that all conditions let through."""
    for condition in conditions:
        if batch.num_rows == 0:
            break
        mask = condition.mask(batch)
        if mask is not None:
            batch = batch.filter(mask)
    return batch
