"""Messages <-> Arrow: the schema of sej, the kernel's columns as record batches, and record batches as columns.

    offset     uint64                 timestamp  timestamp[ns, UTC], null for a message that has none
    type       uint8                  key        binary, never null
    value      binary, never null

and on request

    file       dictionary of string, the segment's name from the journal      position   uint64, in that file
    size       int32, of the whole message                                    shard      dictionary of string

How buffers become arrays and arrays buffers is the same for all formats: see `core/arrow/columns.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    NAMES,
    SAMPLE_ROWS,
    Chunk,
    GatheringCollector,
    allocate,
    batch_of,
    binary_array,
    bytes_of,
    chosen_schema,
    ends_and_bytes,
    filled,
    fitting,
    fixed_memory,
    numbers_of,
    times_of,
    used_buffer,
)
from ...core.arrow.columns import record_batches as plain_batches
from ...core.read.columns import BATCH_BYTES
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.layout import MAX_KEY_BYTES, NO_TIMESTAMP, OVERHEAD

_FIELDS: Final = {
    "offset": pa.field("offset", pa.uint64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("ns", tz="UTC")),
    "type": pa.field("type", pa.uint8(), nullable=False),
    "key": pa.field("key", pa.binary(), nullable=False),
    "value": pa.field("value", pa.binary(), nullable=False),
    "file": pa.field("file", NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int32(), nullable=False),
    "shard": pa.field("shard", NAMES, nullable=False),
}
COLUMN_NAMES: Final = tuple(_FIELDS)
DEFAULT_NAMES: Final = ("offset", "timestamp", "type", "key", "value")

_WANT: Final = {
    "offset": codec.OFFSETS,
    "timestamp": codec.TIMESTAMPS,
    "type": codec.TYPES,
    "key": codec.KEYS,
    "value": codec.VALUES,
    "position": codec.POSITIONS,
    "size": codec.SIZES,
}
_ROW_BYTES: Final = {
    "offset": 8, "timestamp": 8, "type": 1, "key": 4, "value": 4, "file": 4, "position": 8, "size": 4, "shard": 4
}  # fmt: skip

# --- the schema -------------------------------------------------------------------------------------------------------


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; of the default columns without names."""
    if names is None:
        names = (*DEFAULT_NAMES, "shard") if sharded else DEFAULT_NAMES
    return chosen_schema("sej", _FIELDS, names)


# --- columns to batches -----------------------------------------------------------------------------------------------


def to_batch(columns: Columns, wanted: pa.Schema, names: dict[str, pa.Array] | None = None) -> pa.RecordBatch:
    """The kernel's columns as a record batch, without copying; `names` has the columns that are not from messages."""
    return batch_of(wanted, names or {}, lambda name: _array(columns, name))


def _array(columns: Columns, name: str) -> pa.Array:
    count = columns.count
    kind = _FIELDS[name].type
    if name == "key":
        return binary_array(columns.key_ends, columns.keys, count)
    if name == "value":
        return binary_array(columns.value_ends, columns.values, count)
    data = {
        "offset": columns.offsets,
        "timestamp": columns.timestamps,
        "type": columns.types,
        "position": columns.positions,
        "size": columns.sizes,
    }.get(name)
    if data is None:
        raise WrongUse(f"column {name} was not decoded")
    validity = None
    if name == "timestamp" and columns.untimed:
        stamps = pa.Array.from_buffers(pa.int64(), count, [None, used_buffer(data, count * 8)])
        validity = pc.not_equal(stamps, NO_TIMESTAMP).buffers()[1]  # an array of booleans is a bitmap
    return pa.Array.from_buffers(kind, count, [validity, used_buffer(data, count * _ROW_BYTES[name])])


_COMMON: Final[dict[str, Callable[[Chunk, str], str]]] = {
    "file": lambda chunk, part: f"{part}/{chunk.file}" if part else chunk.file,
    "shard": lambda _, part: part,
}
"""Columns with the same value for all messages of a chunk."""


class Collector(GatheringCollector[Chunk, kernel.BatchBuilder]):
    """Makes record batches of about `batch_bytes` from chunks."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        super().__init__(schema(names, sharded=sharded), _WANT, _ROW_BYTES, _COMMON, batch_bytes)

    def _gather(self, builder: kernel.BatchBuilder, chunk: Chunk, position: int, left: int) -> tuple[int, int]:
        return builder.add(chunk.data, position, chunk.stop, left, chunk.base)

    def _to_batch(self, columns: Columns, given: dict[str, pa.Array]) -> pa.RecordBatch:
        return to_batch(columns, self.schema, given)

    def _begin(self, chunk: Chunk, position: int, left: int) -> kernel.BatchBuilder:
        sampled = min(left, SAMPLE_ROWS)
        sampled_keys = _key_bytes(chunk, position, sampled)
        rest = chunk.stop - position
        key_bytes = sampled_keys / sampled if self._want & codec.KEYS else 0
        value_bytes = max(0, rest / left - OVERHEAD - sampled_keys / sampled) if self._want & codec.VALUES else 0
        rows = self._rows_of(key_bytes + value_bytes)
        most_keys = self._most_bytes(rows, key_bytes, 0) + SAMPLE_ROWS * MAX_KEY_BYTES
        most_values = self._most_bytes(rows, value_bytes, rest) if self._want & codec.VALUES else 0
        return kernel.BatchBuilder(self._want, rows, most_keys, most_values, allocate)


def _key_bytes(chunk: Chunk, position: int, rows: int) -> int:
    sample = kernel.columns(chunk.data, position, chunk.stop, rows, codec.KEYS)
    return len(sample.keys) if sample.keys is not None else 0


# --- batches to columns -----------------------------------------------------------------------------------------------


def from_arrow(data: Any) -> list[Columns]:
    """Arrow data as columns for `Writer.append_columns`, without copying where the types fit.

    Takes a record batch, a table, a reader of batches, and any object with the Arrow PyCapsule interface (a Polars or
    pandas frame, a DuckDB result). `value` must exist and have no nulls. `key`, `type` and `timestamp` may be missing;
    a null key is empty, a null type 0, a null timestamp none. Other columns are ignored.
    """
    return [part for batch in record_batches(data) for part in _from_batch(batch)]


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of anything that is Arrow, one by one."""
    if not isinstance(data, pa.RecordBatch | pa.RecordBatchReader | pa.Table) and hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    if isinstance(data, pa.RecordBatchReader | pa.Table):
        _check_columns(data.schema)
    yield from plain_batches(data)


def _check_columns(schema: pa.Schema) -> None:
    """Raise `WrongUse` for wrong column names, even without rows."""
    if not schema.get_all_field_indices("value"):
        raise WrongUse(f"there is no column value among {', '.join(schema.names) or 'no columns'}")
    for name in ("value", "key", "type", "timestamp"):
        if len(schema.get_all_field_indices(name)) > 1:
            raise WrongUse(f"column {name} is there more than once")


def _from_batch(batch: pa.RecordBatch) -> Iterator[Columns]:
    _check_columns(batch.schema)
    arrays = {name: batch.column(name) for name in ("value", "key", "type", "timestamp") if name in batch.schema.names}
    value = bytes_of("value", arrays["value"])
    if value.null_count:
        raise WrongUse(f"column value is null in row {pc.index(value.is_null(), True).as_py()}")
    key = bytes_of("key", arrays["key"]) if "key" in arrays else None
    if key is not None and key.null_count:
        key = key.fill_null(b"")
    type = _types_of(arrays["type"]) if "type" in arrays else None
    timestamp = _timestamps_of(arrays["timestamp"]) if "timestamp" in arrays else None
    row = 0
    while row < batch.num_rows:
        count = min(fitting(value, row), batch.num_rows - row if key is None else fitting(key, row))
        yield _window(value, key, type, timestamp, row, count)
        row += count


def _window(
    value: pa.Array, key: pa.Array | None, type: pa.Array | None, timestamp: pa.Array | None, row: int, count: int
) -> Columns:
    columns = Columns(count)
    columns.value_ends, columns.values = ends_and_bytes(value.slice(row, count))
    if key is not None:
        columns.key_ends, columns.keys = ends_and_bytes(key.slice(row, count))
    if type is not None:
        columns.types = fixed_memory(type.slice(row, count), 1)
    if timestamp is not None:
        columns.timestamps = fixed_memory(timestamp.slice(row, count), 8)
    return columns


def _types_of(array: pa.Array) -> pa.Array:
    return filled(numbers_of("type", array, pa.uint8(), "be within 0 and 255"), 0)


def _timestamps_of(array: pa.Array) -> pa.Array:
    return filled(times_of("timestamp", array, "ns"), NO_TIMESTAMP)
