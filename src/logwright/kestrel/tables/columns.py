"""Operations <-> Arrow: the schema of kestrel, the kernel's columns as record batches, and record batches as columns.

    queue      dictionary of string        op         dictionary of string
    xid        int32                       count      int32
    added      timestamp[ms, UTC]          expires    timestamp[ms, UTC], null for never
    data       binary

and on request

    file       dictionary of string        position   uint64, in that file        size       int64, of the operation
    before     int64, the number in the name of the preceding file, 0 for none; null beyond 64 bits

Fields that an operation does not have are null. When record batches are converted to operations, every row adds an item
unless there is a column `op`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    NAMES,
    SAMPLE_ROWS,
    GatheringCollector,
    allocate,
    batch_of,
    binary_array,
    bitmap,
    by_part,
    bytes_of,
    chosen_schema,
    column_of,
    ends_and_bytes,
    filled,
    fitting,
    fixed_array,
    fixed_memory,
    kind_numbers_of,
    kinds_of,
    plain,
    record_batches,
    row_without,
    times_of,
)
from ...core.read.columns import BATCH_BYTES
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.layout import PLACEHOLDER_ADDED, PLACEHOLDER_EXPIRES
from ..bytes.records import FIELDS, OP_NAMES, OPS
from ..files.cursor import Chunk

_TIME: Final = pa.timestamp("ms", tz="UTC")
_FIELDS: Final = {
    "queue": pa.field("queue", NAMES, nullable=False),
    "op": pa.field("op", NAMES, nullable=False),
    "xid": pa.field("xid", pa.int32()),
    "count": pa.field("count", pa.int32()),
    "added": pa.field("added", _TIME),
    "expires": pa.field("expires", _TIME),
    "data": pa.field("data", pa.binary()),
    "file": pa.field("file", NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int64(), nullable=False),
    "before": pa.field("before", pa.int64()),
}
COLUMN_NAMES: Final = tuple(_FIELDS)
DEFAULT_NAMES: Final = ("queue", "op", "xid", "count", "added", "expires", "data")

_WANT: Final = {
    "op": codec.KINDS,
    "xid": codec.KINDS | codec.XIDS,
    "count": codec.KINDS | codec.COUNTS,
    "added": codec.KINDS | codec.ADDED,
    "expires": codec.EXPIRES,
    "data": codec.KINDS | codec.DATA,
    "position": codec.POSITIONS,
    "size": codec.SIZES,
    "file": codec.SIZES,
    "queue": codec.SIZES,
    "before": codec.SIZES,
}
"""What to decode for a column. The kind of an operation shows whether it has the field."""
_ROW_BYTES: Final = {
    "queue": 4, "op": 1, "xid": 5, "count": 5, "added": 9, "expires": 8, "data": 5, "file": 4, "position": 8, "size": 8,
    "before": 8,
}  # fmt: skip


def _kinds_with(field: str) -> pa.Array:
    return pa.array([OPS[op] for op, fields in FIELDS.items() if field in fields], pa.int8())


_KINDS_WITH: Final = {field: _kinds_with(field) for field in ("xid", "count", "added", "data")}


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; by default of the usual ones."""
    return chosen_schema("kestrel", _FIELDS, DEFAULT_NAMES if names is None else names)


# --- columns to batches -----------------------------------------------------------------------------------------------


def to_batch(columns: Columns, wanted: pa.Schema, names: dict[str, pa.Array] | None = None) -> pa.RecordBatch:
    """The kernel's columns as a record batch, without copying; `names` has the columns that come from files."""
    kinds = None if columns.kinds is None else fixed_array(pa.int8(), columns.kinds, columns.count)
    return batch_of(wanted, names or {}, lambda name: _array(columns, kinds, name))


def _array(columns: Columns, kinds: pa.Array | None, name: str) -> pa.Array:
    count, kind = columns.count, _FIELDS[name].type
    if name == "position":
        return fixed_array(kind, columns.positions, count)
    if name == "size":
        return fixed_array(kind, columns.sizes, count)
    if name == "expires":
        times = fixed_array(pa.int64(), columns.expires, count)
        return fixed_array(kind, columns.expires, count, bitmap(pc.not_equal(times, 0)))
    if kinds is None:
        raise WrongUse(f"column {name} was not decoded")
    if name == "op":
        return pa.DictionaryArray.from_arrays(kinds.cast(pa.int32()), pa.array(OP_NAMES, pa.string()))
    validity = bitmap(pc.is_in(kinds, _KINDS_WITH[name]))
    if name == "data":
        return binary_array(columns.data_ends, columns.data, count, validity)
    data = {"xid": columns.xids, "count": columns.counts, "added": columns.added}[name]
    return fixed_array(kind, data, count, validity)


_OF_FILES: Final[dict[str, Callable[[Chunk, str], Any]]] = {
    "queue": lambda chunk, _: chunk.source.queue,
    "file": lambda chunk, _: chunk.file,
    "before": lambda chunk, _: chunk.source.before if chunk.source.before < 2**63 else None,
}
"""Columns with the same value for all operations of a file."""


class Collector(GatheringCollector[Chunk, kernel.BatchBuilder]):
    """Makes record batches of about `batch_bytes` from chunks."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        super().__init__(schema(names, sharded=sharded), _WANT, _ROW_BYTES, _OF_FILES, batch_bytes)

    def _gather(self, builder: kernel.BatchBuilder, chunk: Chunk, position: int, left: int) -> tuple[int, int]:
        return builder.add(chunk.data, position, chunk.stop, left, chunk.dialect, chunk.base)

    def _to_batch(self, columns: Columns, given: dict[str, pa.Array]) -> pa.RecordBatch:
        return to_batch(columns, self.schema, given)

    def _begin(self, chunk: Chunk, position: int, left: int) -> kernel.BatchBuilder:
        sampled = min(left, SAMPLE_ROWS)
        sample = kernel.columns(chunk.data, position, chunk.stop, sampled, chunk.dialect, self._want & codec.DATA)
        return kernel.BatchBuilder(self._want, *self._sized(sample.data, sampled, chunk.stop - position), allocate)


# --- batches to columns -----------------------------------------------------------------------------------------------


def as_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The items of a batch as messages: columns `value`, `timestamp` and `key`, which is the queue.

    Operations without an item are omitted, and so are the placeholders of repairs. `expires` is kept for formats that
    can store it.
    """
    items = batch.filter(pc.is_valid(batch.column("data")))
    if {"added", "expires"} <= set(items.schema.names):
        items = items.filter(pc.invert(_are_placeholders(items)))
    found = {"value": items.column("data"), "timestamp": pa.nulls(items.num_rows, _TIME)}
    for name, column in (("timestamp", "added"), ("key", "queue"), ("expires", "expires")):
        if column in items.schema.names:
            found[name] = items.column(column)
    if "key" in found:
        found["key"] = plain(found["key"]).cast(pa.binary())
    return pa.RecordBatch.from_pydict(found)


def _are_placeholders(items: pa.RecordBatch) -> pa.Array:
    """Which items are placeholders of lost ones, written by a repair: empty items of 1970 that expired at once."""
    added, expires = (plain(items.column(name)).cast(pa.int64()) for name in ("added", "expires"))
    is_empty = pc.equal(pc.binary_length(items.column("data")), 0)
    of_1970 = pc.and_(pc.equal(added, PLACEHOLDER_ADDED), pc.equal(expires, PLACEHOLDER_EXPIRES))
    return pc.fill_null(pc.and_(is_empty, of_1970), False)


def by_queue(batch: pa.RecordBatch, default: str) -> list[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by the queue that they name, in the order of first appearance."""
    return by_part(batch, "queue", default)


def from_arrow(data: Any) -> list[Columns]:
    """Arrow data as columns for `Writer.append_columns`, without copying where the types fit.

    `op` names the operations; without it every row is an `addx`. The data of items is in `data` or `value`, and the
    time when they were added in `added` or `timestamp`. Times are Arrow timestamps, or milliseconds as int64. Fields
    that an operation needs must not be null, except `added` (null is now) and `expires` (null is never).
    """
    return [part for batch in record_batches(data) for part in _from_batch(batch)]


def _from_batch(batch: pa.RecordBatch) -> Iterator[Columns]:
    kinds = kinds_of(batch, "op", OP_NAMES, OPS["addx"], f"is not an operation; the operations are {', '.join(OPS)}")

    def check(name: str, array: pa.Array) -> None:
        row = row_without(array, kinds, _KINDS_WITH[name])
        if row is not None:
            raise WrongUse(f"row {row}: the operation {OP_NAMES[kinds[row].as_py()]} needs {name}")

    items = column_of(batch, "data", "value")
    item_data = bytes_of("data", pa.nulls(batch.num_rows, pa.binary()) if items is None else items)
    check("data", item_data)
    numbers = {
        "xid": kind_numbers_of(batch, "xid", pa.int32(), "fit 32 bits", check),
        "count": kind_numbers_of(batch, "count", pa.int32(), "fit 32 bits", check),
        "added": _times_of("added", column_of(batch, "added", "timestamp"), time.time_ns() // 1_000_000),
        "expires": _times_of("expires", column_of(batch, "expires"), 0),
    }
    item_data = filled(item_data, b"")
    row = 0
    while row < batch.num_rows:
        count = fitting(item_data, row)
        yield _window(kinds, item_data, numbers, row, count)
        row += count


def _window(kinds: pa.Array, item_data: pa.Array, numbers: dict[str, pa.Array | None], row: int, count: int) -> Columns:
    columns = Columns(count)
    columns.kinds = fixed_memory(kinds.slice(row, count), 1)
    columns.data_ends, columns.data = ends_and_bytes(item_data.slice(row, count))
    for name, attribute, width in (("xid", "xids", 4), ("count", "counts", 4), ("added", "added", 8)):
        found = numbers[name]
        if found is not None:
            setattr(columns, attribute, fixed_memory(found.slice(row, count), width))
    if numbers["expires"] is not None:
        columns.expires = fixed_memory(numbers["expires"].slice(row, count), 8)
    return columns


def _times_of(name: str, found: pa.Array | None, missing: int) -> pa.Array | None:
    """A column of times in milliseconds, with `missing` in place of null."""
    if found is None:
        return None
    return filled(times_of(name, found, "ms"), missing)
