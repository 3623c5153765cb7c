"""Filters that Spark pushes down: they skip journals, files and records.

Spark applies every filter again, so a filter here may skip only rows that Spark would remove. Bounds on numbers, times
and positions exclude whole parts of a journal from reading. Batches are filtered before they are sent to the JVM, which
is the expensive step.

Comparisons with a value, `in`, `is null` and `is not null` are used, on columns of any type: Arrow compares bytes as
Spark does. Negations, substrings, and values outside the column's type are left to Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from ..arrow.bounds import NANOSECONDS, NUMBERS, POSITIONS, Bounds, intersection
from ..errors import WrongUse
from .options import any_number, time_ns

_COMPARE: Final = {
    spark.EqualTo: pc.equal,
    spark.EqualNullSafe: pc.equal,  # the value is never null here
    spark.GreaterThan: pc.greater,
    spark.GreaterThanOrEqual: pc.greater_equal,
    spark.LessThan: pc.less,
    spark.LessThanOrEqual: pc.less_equal,
}
CHOICES: Final = ("from", "to", "since", "until")
"""The options that select records of a table."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_Range: TypeAlias = tuple[int | None, int | None]
"""The smallest and the largest number, both inclusive; None is no bound."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column; `value` is the operand, a list for `In`, None for `IsNull`."""

    column: str
    kind: type[spark.Filter]
    value: Any = None

    def mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The rows that match (null is no); None if the batch does not have the column, or cannot be compared."""
        if self.column not in batch.schema.names:
            return None
        data = batch.column(self.column)
        if self.kind is spark.IsNull:
            return pc.is_null(data)
        if self.kind is spark.IsNotNull:
            return pc.is_valid(data)
        values = _as_arrow(self.value if self.kind is spark.In else [self.value], data.type)
        if values is None:
            return None
        return pc.is_in(data, values) if self.kind is spark.In else _COMPARE[self.kind](data, values[0])


def _as_arrow(values: Sequence[Any], type: pa.DataType) -> pa.Array | None:
    """Values in a column's type; None if that is impossible: Arrow would truncate 2.5 to 2."""
    if pa.types.is_timestamp(type):
        values = [_aware(value) if isinstance(value, datetime.datetime) else value for value in values]
    try:
        array = pa.array(values, type)
    except (pa.ArrowException, OverflowError, TypeError):
        return None
    return array if array.to_pylist() == list(values) else None


def _aware(moment: datetime.datetime) -> datetime.datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def understood(filters: Iterable[spark.Filter]) -> list[Condition]:
    """The filters that can be used here; the others are left to Spark."""
    found = []
    for filter in filters:
        kind = type(filter)
        path: tuple[str, ...] = getattr(filter, "attribute", ())
        value: Any = getattr(filter, "value", None)
        if len(path) != 1:
            continue
        if kind is spark.IsNull or kind is spark.IsNotNull:
            found.append(Condition(path[0], kind))
        elif (kind in _COMPARE and value is not None) or (kind is spark.In and None not in value):
            found.append(Condition(path[0], kind, value))
    return found


def chosen_by(options: Mapping[str, str], columns: Sequence[str]) -> list[Condition]:
    """The conditions of the options `from`, `to`, `since` and `until` on these columns; options are folded.

    Spark does not know these conditions: batches must have their columns, so that they can be applied here.
    """
    number = "sequence" if "sequence" in columns else "offset"
    time = "t" if "t" in columns else "timestamp_ns"
    found = []
    for name, column, kind, parse in (
        ("from", number, spark.GreaterThanOrEqual, any_number),
        ("to", number, spark.LessThan, any_number),
        ("since", time, spark.GreaterThanOrEqual, time_ns),
        ("until", time, spark.LessThan, time_ns),
    ):
        value = parse(options, name)
        if value is not None and column not in columns:
            raise WrongUse(
                f"option {name}: these records have no column {column}; the columns are {', '.join(columns)}"
            )
        if value is not None:
            found.append(Condition(column, kind, value))
    return found


# --- of journals and files ------------------------------------------------------------------------------------------


def bounds_of(conditions: Iterable[Condition]) -> Bounds:
    """The bounds of records that match all conditions."""
    numbers: _Range = (None, None)
    times: _Range = (None, None)
    positions: _Range = (None, None)
    for condition in conditions:
        if condition.column in NUMBERS:
            numbers = intersection(numbers, _range(condition))
        elif condition.column in NANOSECONDS:
            times = intersection(times, _range(condition, NANOSECONDS[condition.column]))
        elif condition.column in POSITIONS:
            positions = intersection(positions, _range(condition))
    start, last = numbers
    return Bounds(start, None if last is None else last + 1, *times, *positions)


def _range(condition: Condition, width: int = 1) -> _Range:
    """The range of numbers that match a condition; each value of the column covers `width` numbers."""
    if condition.value is None:
        return None, None
    values = condition.value if condition.kind is spark.In else (condition.value,)
    numbers = [number for value in values if (number := _number(value)) is not None]
    if not numbers or len(numbers) < len(values):
        return None, None
    first, last = min(numbers) * width, max(numbers) * width + width - 1
    if condition.kind is spark.GreaterThan:
        return last + 1, None
    if condition.kind is spark.GreaterThanOrEqual:
        return first, None
    if condition.kind is spark.LessThan:
        return None, first - 1
    if condition.kind is spark.LessThanOrEqual:
        return None, last
    return first, last


def _number(value: Any) -> int | None:
    """A number, or a time in microseconds."""
    if isinstance(value, datetime.datetime):
        return (_aware(value) - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def can_match(conditions: Iterable[Condition], known: Mapping[str, str | None]) -> bool:
    """Whether a record with these known column values, strings or null, can match the conditions."""
    arrays = [pa.array([value], pa.string()) for value in known.values()]
    return bool(keep(pa.RecordBatch.from_arrays(arrays, list(known)), conditions).num_rows)


# --- of records -----------------------------------------------------------------------------------------------------


def keep(batch: pa.RecordBatch, conditions: Iterable[Condition]) -> pa.RecordBatch:
    """The rows of a batch that match all conditions."""
    masks = [mask for condition in conditions if (mask := condition.mask(batch)) is not None]
    if not masks or not batch.num_rows:
        return batch
    mask = reduce(pc.and_, masks)
    return batch if pc.all(mask, skip_nulls=False).as_py() else batch.filter(mask)
