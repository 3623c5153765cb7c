"""What a journal consists of: records and bytes by key, type, operation and minute, and sizes by quantile.

Everything is counted by columns, batch by batch. Memory is bounded: of keys, only the most frequent ones are kept
exactly when there are very many, and sizes are counted in classes of at most 1 % width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..core.format import Format

MOST_GROUPS: Final = 100_000
"""How many groups are counted; when there are more, the smallest half is added to the rest."""
QUANTILES: Final = (0.5, 0.9, 0.99)
_WIDTH: Final = 1.01
_MINUTE_NS: Final = 60_000_000_000
_OF_FORMAT: Final = ("type", "op", "kind", "deleted")
"""Typed columns that say what a record is."""
_TIMES: Final = ("timestamp", "added")


@dataclass(slots=True)
class Groups:
    """Records and bytes of each value of a column. `rest` is what was not kept by value."""

    found: dict[Any, list[int]] = field(default_factory=dict)
    rest: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, column: pa.Array, sizes: pa.Array) -> None:
        """Count the rows of a batch; null is not counted."""
        table = pa.table({"value": column, "size": sizes}).filter(pc.is_valid(column))
        grouped = table.group_by("value").aggregate([("size", "count"), ("size", "sum")])
        for value, records, size in zip(*(grouped.column(number).to_pylist() for number in range(3)), strict=True):
            both = self.found.setdefault(value, [0, 0])
            both[0] += records
            both[1] += size
        if len(self.found) > MOST_GROUPS:
            ordered = sorted(self.found.items(), key=lambda item: -item[1][0])
            for _, (records, size) in ordered[MOST_GROUPS // 2 :]:
                self.rest[0] += records
                self.rest[1] += size
            self.found = dict(ordered[: MOST_GROUPS // 2])

    def largest(self, most: int) -> list[tuple[Any, int, int]]:
        """The values with the most records, and how many records and bytes."""
        ordered = sorted(self.found.items(), key=lambda item: (-item[1][0], str(item[0])))
        return [(value, records, size) for value, (records, size) in ordered[:most]]


@dataclass(slots=True)
class Sizes:
    """The sizes of records, in classes."""

    classes: dict[int, int] = field(default_factory=dict)
    records: int = 0
    total: int = 0
    smallest: int | None = None
    largest: int | None = None

    def add(self, sizes: pa.Array) -> None:
        """Count the sizes of a batch."""
        if not len(sizes):
            return
        extremes = pc.min_max(sizes).as_py()
        self.smallest = extremes["min"] if self.smallest is None else min(self.smallest, extremes["min"])
        self.largest = extremes["max"] if self.largest is None else max(self.largest, extremes["max"])
        self.records += len(sizes)
        self.total += pc.sum(sizes).as_py()
        number = pc.floor(pc.logb(pc.cast(pc.max_element_wise(sizes, 1), pa.float64()), _WIDTH))
        for counted in pc.value_counts(number).to_pylist():
            at = int(counted["values"])
            self.classes[at] = self.classes.get(at, 0) + counted["counts"]

    def quantile(self, share: float) -> int | None:
        """A size that this share of records does not exceed, to within 1 %."""
        left = share * self.records
        for number in sorted(self.classes):
            left -= self.classes[number]
            if left <= 0:
                return min(int(_WIDTH ** (number + 1)), self.largest or 0)
        return self.largest


@dataclass(slots=True)
class Statistics:
    """The statistics of a journal, by the names of columns."""

    groups: dict[str, Groups] = field(default_factory=dict)
    minutes: Groups = field(default_factory=Groups)
    """By the beginning of the minute, in nanoseconds since the epoch."""
    sizes: Sizes = field(default_factory=Sizes)


def columns_of(format: Format) -> list[str]:
    """The columns that the statistics of a format need."""
    typed = format.columns.typed.names
    names = [format.columns.key, *_OF_FORMAT, *_TIMES, "size"]
    return list(dict.fromkeys(name for name in names if name in typed or name == "size"))


def count(format: Format, batches: Iterable[pa.RecordBatch]) -> Statistics:
    """The statistics of batches with the columns of `columns_of`."""
    found = Statistics()
    names = [name for name in columns_of(format) if name not in ("size", *_TIMES)]
    found.groups = {name: Groups() for name in names}
    for batch in batches:
        sizes = batch.column("size").cast(pa.int64())
        found.sizes.add(sizes)
        for name, groups in found.groups.items():
            groups.add(batch.column(name), sizes)
        for name in _TIMES:
            if name in batch.schema.names:
                found.minutes.add(_minutes(batch.column(name)), sizes)
    return found


def _minutes(times: pa.Array) -> pa.Array:
    """The beginning of each time's minute, in nanoseconds."""
    microseconds = times.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    minutes = pc.floor(pc.divide(microseconds.cast(pa.float64()), 60e6))
    return pc.multiply(minutes.cast(pa.int64()), _MINUTE_NS)


def as_json(value: Any) -> Mapping[str, Any] | Any:
    """A value of a group as JSON: bytes are text, or base64 under their name if they are not UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(value).decode()}
