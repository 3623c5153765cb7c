"""Messages <-> Arrow: the schema of sej, the kernel's columns as record batches, and record batches as columns.

    offset     uint64                 timestamp  timestamp[ns, UTC], null for a message that has none
    type       uint8                  key        binary, never null
    value      binary, never null

and where they are asked for

    file       dictionary of string, the segment's name from the journal      position   uint64, in that file
    size       int32, of the whole message                                    shard      dictionary of string

How buffers become arrays and arrays buffers is the same for all formats: see `formats/columns.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import WrongUse
from ..columns import (
    BATCH_BYTES,
    NAMES,
    allocate,
    binary_array,
    bytes_of,
    check_batch_bytes,
    chosen_schema,
    ends_and_bytes,
    fitting,
    fixed_memory,
    plain,
    repeated,
    used_buffer,
)
from ..columns import record_batches as plain_batches
from . import codec, kernel
from .codec import Columns
from .layout import MAX_KEY_BYTES, NO_TIMESTAMP, OVERHEAD

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
_SAMPLE_ROWS: Final = 64
_LEAST_ROWS: Final = 1024
_SLACK: Final = 17 / 16
"""How much more room there is for keys and values than the first messages of a batch let expect."""


# --- the schema -------------------------------------------------------------------------------------------------------


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; without names of the usual ones."""
    if names is None:
        names = (*DEFAULT_NAMES, "shard") if sharded else DEFAULT_NAMES
    return chosen_schema("sej", _FIELDS, names)


def want_bits(names: Iterable[str]) -> int:
    """What the kernel has to decode for these columns."""
    return sum(_WANT.get(name, 0) for name in names)


# --- columns to batches -----------------------------------------------------------------------------------------------


def to_batch(columns: Columns, wanted: pa.Schema, names: dict[str, pa.Array] | None = None) -> pa.RecordBatch:
    """The kernel's columns as a record batch, without copying; `names` holds the columns that are no message's."""
    given = names or {}
    arrays = [given[name] if name in given else _array(columns, name) for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


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


class Chunk(Protocol):
    """Whole messages in a buffer, as `Reader.chunks` gives them."""

    @property
    def data(self) -> memoryview: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def file(self) -> str: ...


class Collector:
    """Makes record batches of about `batch_bytes` out of chunks, whatever the size of those, copying bytes once."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        check_batch_bytes(batch_bytes)
        self.schema = schema(names, sharded=sharded)
        self._want = want_bits(self.schema.names)
        self._row_bytes = sum(_ROW_BYTES[name] for name in self.schema.names)
        self._batch_bytes = batch_bytes
        self._gatherer: kernel.Gatherer | None = None
        self._runs: dict[str, list[tuple[str, int]]] = {
            name: [] for name in self.schema.names if _FIELDS[name].type == NAMES
        }

    def add(self, chunk: Chunk, shard: str = "") -> Iterator[pa.RecordBatch]:
        """Take the messages of a chunk; the batches that became full."""
        position, left = chunk.start, chunk.count
        while left:
            if self._gatherer is None:
                self._gatherer = self._begin(chunk, position, left)
            position, added = self._gatherer.add(chunk.data, position, chunk.stop, left, chunk.base)
            left -= added
            if self._runs and added:
                self._note("file", f"{shard}/{chunk.file}" if shard else chunk.file, added)
                self._note("shard", shard, added)
            if left:
                yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What has gathered, as a last batch; none when there is nothing."""
        gatherer, self._gatherer = self._gatherer, None
        if gatherer is None or not gatherer.count:
            return
        names = {name: repeated(runs) for name, runs in self._runs.items()}
        for runs in self._runs.values():
            runs.clear()
        yield to_batch(gatherer.take(), self.schema, names)

    def _note(self, column: str, name: str, added: int) -> None:
        runs = self._runs.get(column)
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + added)
        elif runs is not None:
            runs.append((name, added))

    def _begin(self, chunk: Chunk, position: int, left: int) -> kernel.Gatherer:
        """Room for a batch, by what the next messages look like. A wrong guess only makes a smaller batch."""
        sampled = min(left, _SAMPLE_ROWS)
        sampled_keys = _key_bytes(chunk, position, sampled)
        rest = chunk.stop - position
        key_bytes = sampled_keys / sampled if self._want & codec.KEYS else 0
        value_bytes = max(0, rest / left - OVERHEAD - sampled_keys / sampled) if self._want & codec.VALUES else 0
        rows = max(_LEAST_ROWS, int(self._batch_bytes / (self._row_bytes + key_bytes + value_bytes)))
        most_keys = int(rows * key_bytes * _SLACK) + _SAMPLE_ROWS * MAX_KEY_BYTES
        most_values = max(rest, min(self._batch_bytes, int(rows * value_bytes * _SLACK)))
        return kernel.Gatherer(self._want, rows, most_keys, most_values if self._want & codec.VALUES else 0, allocate)


def _key_bytes(chunk: Chunk, position: int, rows: int) -> int:
    sample = kernel.columns(chunk.data, position, chunk.stop, rows, codec.KEYS)
    return len(sample.keys) if sample.keys is not None else 0


# --- batches to columns -----------------------------------------------------------------------------------------------


def from_arrow(data: Any) -> list[Columns]:
    """Arrow data as columns for `Writer.append_columns`, without copying where the types fit.

    Takes a record batch, a table, a reader of batches, and whatever speaks the Arrow PyCapsule interface (a Polars or
    pandas frame, a DuckDB result). `value` must be there and not null. `key`, `type` and `timestamp` may be missing;
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
    """Find what is wrong with the names, also where there are no rows."""
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
    array = plain(array)
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise WrongUse(f"column type is {array.type}, and must be a whole number within 0 and 255")
    try:
        array = array.cast(pa.uint8())
    except pa.ArrowInvalid as error:
        raise WrongUse(f"column type must be within 0 and 255: {error}") from None
    return array.fill_null(0) if array.null_count else array


def _timestamps_of(array: pa.Array) -> pa.Array:
    array = plain(array)
    kind = array.type
    if pa.types.is_timestamp(kind):
        try:
            array = array.cast(pa.timestamp("ns", tz=kind.tz)).view(pa.int64())
        except pa.ArrowInvalid as error:
            raise WrongUse(f"column timestamp does not fit 64 bits of nanoseconds: {error}") from None
    elif pa.types.is_null(kind):
        array = array.cast(pa.int64())
    elif kind != pa.int64():
        raise WrongUse(f"column timestamp is {kind}, and must be a timestamp, or nanoseconds as int64")
    return array.fill_null(NO_TIMESTAMP) if array.null_count else array
