"""Messages <-> Arrow: the schema of sej, the kernel's columns as record batches, and record batches as columns.

    offset     uint64                 timestamp  timestamp[ns, UTC], null for a message that has none
    type       uint8                  key        binary, never null
    value      binary, never null

and where they are asked for

    file       dictionary of string, the segment's name from the journal      position   uint64, in that file
    size       int32, of the whole message                                    shard      dictionary of string

Nothing is copied between the kernel's buffers and Arrow's, in either direction, where the types fit. A batch holds less
than 2 GiB of keys and of values, because their ends are i32; what is larger comes in several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import TooLarge, WrongUse
from . import codec, kernel
from .codec import Columns
from .layout import MAX_KEY_BYTES, NO_TIMESTAMP, OVERHEAD

BATCH_BYTES: Final = 4 << 20
"""How much one batch holds unless told: enough for whoever gets it, and still in a processor's cache."""
MAX_BATCH_BYTES: Final = 1 << 30

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_FIELDS: Final = {
    "offset": pa.field("offset", pa.uint64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("ns", tz="UTC")),
    "type": pa.field("type", pa.uint8(), nullable=False),
    "key": pa.field("key", pa.binary(), nullable=False),
    "value": pa.field("value", pa.binary(), nullable=False),
    "file": pa.field("file", _NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int32(), nullable=False),
    "shard": pa.field("shard", _NAMES, nullable=False),
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
    if isinstance(names, str):
        raise WrongUse(f"columns are a list of names, not the string {names!r}")
    if not names:
        raise WrongUse("no columns are asked for")
    for name in names:
        if name not in _FIELDS:
            raise WrongUse(f"sej has no column {name!r}; it has {', '.join(COLUMN_NAMES)}")
    if len(set(names)) < len(names):
        raise WrongUse(f"a column is asked for twice in {', '.join(names)}")
    return pa.schema([_FIELDS[name] for name in names])


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
        return _binary(columns.key_ends, columns.keys, count)
    if name == "value":
        return _binary(columns.value_ends, columns.values, count)
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
        stamps = pa.Array.from_buffers(pa.int64(), count, [None, _buffer(data, count * 8)])
        validity = pc.not_equal(stamps, NO_TIMESTAMP).buffers()[1]  # an array of booleans is a bitmap
    return pa.Array.from_buffers(kind, count, [validity, _buffer(data, count * _ROW_BYTES[name])])


def _binary(ends: Any, data: Any, count: int) -> pa.Array:
    if ends is None or data is None:
        raise WrongUse("a column of bytes was not decoded")
    used = _buffer(ends, (count + 1) * 4)
    with memoryview(used).cast("i") as rows:
        last = rows[count]
    return pa.Array.from_buffers(pa.binary(), count, [None, used, _buffer(data, last)])


def _buffer(data: Any, used: int) -> pa.Buffer:
    """The first `used` bytes as an Arrow buffer, giving memory back when most of it was not needed."""
    if not isinstance(data, pa.Buffer):
        return pa.py_buffer(memoryview(data)[:used])
    if 2 * used < data.size and isinstance(data, pa.ResizableBuffer):
        data.resize(used, shrink_to_fit=True)
    return data.slice(0, used)


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
        if not 0 < batch_bytes <= MAX_BATCH_BYTES:
            raise WrongUse(f"a batch of {batch_bytes} bytes is not within 1 byte and 1 GiB")
        self.schema = schema(names, sharded=sharded)
        self._want = want_bits(self.schema.names)
        self._row_bytes = sum(_ROW_BYTES[name] for name in self.schema.names)
        self._batch_bytes = batch_bytes
        self._gatherer: kernel.Gatherer | None = None
        self._runs: dict[str, list[tuple[str, int]]] = {
            name: [] for name in self.schema.names if _FIELDS[name].type == _NAMES
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
        names = {name: _repeated(runs) for name, runs in self._runs.items()}
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
        return kernel.Gatherer(self._want, rows, most_keys, most_values if self._want & codec.VALUES else 0, _allocate)


def _allocate(size: int) -> pa.Buffer:
    return pa.allocate_buffer(size, resizable=True)


def _key_bytes(chunk: Chunk, position: int, rows: int) -> int:
    sample = kernel.columns(chunk.data, position, chunk.stop, rows, codec.KEYS)
    return len(sample.keys) if sample.keys is not None else 0


def _repeated(runs: list[tuple[str, int]]) -> pa.DictionaryArray:
    """A column of names, each so many rows long."""
    names = list(dict.fromkeys(name for name, _ in runs))
    indices = [pa.repeat(pa.scalar(names.index(name), pa.int32()), rows) for name, rows in runs]
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(indices), pa.array(names, pa.string()))


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
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        _check_columns(data.schema)
        yield from data
    elif isinstance(data, pa.Table):
        _check_columns(data.schema)
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from record_batches(pa.RecordBatchReader.from_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    else:
        raise WrongUse(f"{type(data).__name__} is not Arrow data: give a record batch, a table or a reader of them")


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
    value = _bytes_of("value", arrays["value"])
    if value.null_count:
        raise WrongUse(f"column value is null in row {pc.index(value.is_null(), True).as_py()}")
    key = _bytes_of("key", arrays["key"]) if "key" in arrays else None
    type = _types_of(arrays["type"]) if "type" in arrays else None
    timestamp = _timestamps_of(arrays["timestamp"]) if "timestamp" in arrays else None
    row = 0
    while row < batch.num_rows:
        count = min(_fitting(value, row), batch.num_rows - row if key is None else _fitting(key, row))
        yield _window(value, key, type, timestamp, row, count)
        row += count


def _window(
    value: pa.Array, key: pa.Array | None, type: pa.Array | None, timestamp: pa.Array | None, row: int, count: int
) -> Columns:
    columns = Columns(count)
    columns.value_ends, columns.values = _ends_and_bytes(value.slice(row, count))
    if key is not None:
        columns.key_ends, columns.keys = _ends_and_bytes(key.slice(row, count))
    if type is not None:
        columns.types = _fixed(type.slice(row, count), 1)
    if timestamp is not None:
        columns.timestamps = _fixed(timestamp.slice(row, count), 8)
    return columns


def _fixed(array: pa.Array, width: int) -> memoryview:
    """The memory of an array of numbers without nulls."""
    return memoryview(array.buffers()[1].slice(array.offset * width, len(array) * width)).cast("B")


def _ends(array: pa.Array) -> pa.Array:
    """Where the items of a binary array begin and end, one more than there are items."""
    kind, width = (pa.int64(), 8) if pa.types.is_large_binary(array.type) else (pa.int32(), 4)
    ends = array.buffers()[1]
    if ends is None or ends.size == 0:  # an array without items need not have any
        return pa.array([0], kind)
    return pa.Array.from_buffers(kind, len(array) + 1, [None, ends.slice(array.offset * width)])


def _ends_and_bytes(array: pa.Array) -> tuple[memoryview, memoryview]:
    """A binary array in the kernel's terms: i32 ends, and the bytes that they speak of."""
    data = array.buffers()[2]
    ends = _ends(array)
    if ends.type == pa.int64():
        first, last = ends[0].as_py(), ends[-1].as_py()
        ends = pc.subtract(ends, first).cast(pa.int32())
        data = data.slice(first, last - first) if data is not None else None
    view = memoryview(b"") if data is None else memoryview(data).cast("B")
    return _fixed(ends, 4), view


def _fitting(array: pa.Array, row: int) -> int:
    """How many items from `row` on can be in one window: their bytes must be less than 2 GiB."""
    rows = len(array) - row
    if not pa.types.is_large_binary(array.type):
        return rows
    ends = _ends(array)
    first = ends[row].as_py()
    if ends[-1].as_py() - first <= codec.MAX_BATCH_BYTES:
        return rows
    low, high = 0, rows  # so many items fit, so many do not
    while high - low > 1:
        middle = (low + high) // 2
        if ends[row + middle].as_py() - first <= codec.MAX_BATCH_BYTES:
            low = middle
        else:
            high = middle
    if low == 0:
        raise TooLarge(f"row {row} has {ends[row + 1].as_py() - first} bytes, more than a message can hold")
    return low


def _plain(array: pa.Array) -> pa.Array:
    """An array without the wrappings that say nothing about its items: extension types and dictionaries."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        items = array.dictionary
        if pa.types.is_binary(items.type) or pa.types.is_string(items.type):
            items = items.cast(pa.large_binary())  # decoded it may well be larger than 2 GiB
        return _plain(items.take(array.indices))
    return array


def _bytes_of(name: str, array: pa.Array) -> pa.Array:
    """A column of bytes as `binary` or `large_binary`. Null keys are empty."""
    array = _plain(array)
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    elif pa.types.is_large_string(kind) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise WrongUse(f"column {name} is {kind}, and must be binary or string")
    return array.fill_null(b"") if name == "key" and array.null_count else array


def _types_of(array: pa.Array) -> pa.Array:
    array = _plain(array)
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise WrongUse(f"column type is {array.type}, and must be a whole number within 0 and 255")
    try:
        array = array.cast(pa.uint8())
    except pa.ArrowInvalid as error:
        raise WrongUse(f"column type must be within 0 and 255: {error}") from None
    return array.fill_null(0) if array.null_count else array


def _timestamps_of(array: pa.Array) -> pa.Array:
    array = _plain(array)
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
