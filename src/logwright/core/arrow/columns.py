"""Conversion between the buffers of kernels and Arrow, for the columns of all formats.

To read, a format declares its columns (`chosen_schema`), makes arrays of decoded buffers (`fixed_array`,
`binary_array`), and batches of chunks of any size (`GatheringCollector`, or `JoiningCollector` if its kernel has no
builder). To write, it takes columns from Arrow data (`column_of`, `bytes_of`, `numbers_of`, `times_of`, `kinds_of`),
in windows (`fitting`).

Buffers are shared with Arrow without copying if the types fit. A batch holds less than 2 GiB of bytes in a column,
because ends are i32; larger data comes in several batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import TooLarge, WrongUse
from ..bytes.compiled import COMPILED
from ..io.file_names import printed

if TYPE_CHECKING or not COMPILED:
    from ..bytes import division as _division
else:
    from ..bytes import _division

MAX_BATCH_BYTES: Final = 1 << 30
MAX_COLUMN_BYTES: Final = 2**31 - 1
MOST_SIGNED: Final = 2**63 - 1
NAMES: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of columns that repeat a few names."""
SAMPLE_ROWS: Final = 64
LEAST_ROWS: Final = 1024
_SLACK: Final = 17 / 16
"""The reserve for bytes, relative to the size that the first records of a batch suggest."""
_LEAST_INT64: Final = -(1 << 63)
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


# --- the schema -------------------------------------------------------------------------------------------------------


def chosen_schema(format: str, fields: Mapping[str, pa.Field], names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, in this order; `WrongUse` for a column that the format does not have."""
    if isinstance(names, str):
        raise WrongUse(f"columns are a list of names, not the string {names!r}")
    if not names:
        raise WrongUse("no columns were selected")
    for name in names:
        if name not in fields:
            raise WrongUse(f"{format} has no column {name!r}; it has {', '.join(fields)}")
    if len(set(names)) < len(names):
        raise WrongUse(f"a column is selected twice in {', '.join(names)}")
    return pa.schema([fields[name] for name in names])


def check_batch_bytes(batch_bytes: int) -> None:
    """Raise `WrongUse` for a size that no batch can have."""
    if not 0 < batch_bytes <= MAX_BATCH_BYTES:
        raise WrongUse(f"a batch of {batch_bytes} bytes is not within 1 byte and 1 GiB")


# --- buffers to arrays ------------------------------------------------------------------------------------------------


def allocate(size: int) -> pa.Buffer:
    """An Arrow buffer for a kernel to fill."""
    return pa.allocate_buffer(size, resizable=True)


def fixed_array(kind: pa.DataType, data: Any, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    """An array of `count` items of a fixed width in a buffer."""
    if data is None:
        raise WrongUse("a column was not decoded")
    return pa.Array.from_buffers(kind, count, [validity, used_buffer(data, count * kind.bit_width // 8)])


def binary_array(ends: Any, data: Any, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    """An array of `count` items of bytes: item n is between `ends[n]` and `ends[n + 1]`."""
    if ends is None or data is None:
        raise WrongUse("a column of bytes was not decoded")
    used = used_buffer(ends, (count + 1) * 4)
    with memoryview(used).cast("i") as rows:
        last = rows[count]
    return pa.Array.from_buffers(pa.binary(), count, [validity, used, used_buffer(data, last)])


def used_buffer(data: Any, used: int) -> pa.Buffer:
    """The first `used` bytes as an Arrow buffer. Memory is released if most of it was not needed."""
    if not isinstance(data, pa.Buffer):
        return pa.py_buffer(memoryview(data)[:used])
    if 2 * used < data.size and isinstance(data, pa.ResizableBuffer):
        data.resize(used, shrink_to_fit=True)
    return data.slice(0, used)


def signed(numbers: pa.Array) -> pa.Array:
    """Unsigned 64-bit numbers as int64; null where they do not fit."""
    fits = pc.less_equal(numbers, pa.scalar(MOST_SIGNED, pa.uint64()))
    if len(numbers) > numbers.null_count and not pc.all(fits).as_py():
        numbers = pc.if_else(fits, numbers, pa.scalar(None, pa.uint64()))
    return numbers.cast(pa.int64())


def batch_of(wanted: pa.Schema, given: Mapping[str, pa.Array], array: Callable[[str], pa.Array]) -> pa.RecordBatch:
    """A record batch of the columns of a schema: the given ones, and others made by `array`."""
    arrays = [given[name] if name in given else array(name) for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def batch_of_rows(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A record batch of rows, each with its items in the order of the schema."""
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def bitmap(mask: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of a mask; None if all items are valid."""
    return None if pc.all(mask).as_py() else mask.buffers()[1]  # an array of booleans is a bitmap


def repeated(runs: list[tuple[Any, int]], kind: pa.DataType = NAMES) -> pa.Array:
    """A column of names, or of items of another type, from pairs of (item, number of rows)."""
    if kind != NAMES:
        return pa.concat_arrays([pa.repeat(pa.scalar(item, kind), rows) for item, rows in runs])
    places: dict[str, int] = {}
    numbers = pa.array([places.setdefault(name, len(places)) for name, _ in runs], pa.int32())
    if len(runs) == 1:
        indices = pa.repeat(numbers[0], runs[0][1])
    else:
        ends = pa.array(accumulate(rows for _, rows in runs), pa.int32())
        indices = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))
    return pa.DictionaryArray.from_arrays(indices, pa.array(map(printed, places), pa.string()))


def without_dictionaries(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types of a schema that differs from theirs at most in dictionaries of texts."""
    columns = [each.cast(pa.string()) if pa.types.is_dictionary(each.type) else each for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def constant(value: str | None, rows: int) -> pa.DictionaryArray:
    """The same text, or null, in all rows."""
    if value is None:
        return pa.nulls(rows, NAMES)  # dictionaries that contain null cannot be unified
    return pa.DictionaryArray.from_arrays(zeros(rows), pa.array([value], pa.string()))


_zeros = pa.array([], pa.int32())


def zeros(count: int) -> pa.Array:
    """`count` zeros; batches share the memory."""
    global _zeros
    if len(_zeros) < count:
        _zeros = pa.repeat(pa.scalar(0, pa.int32()), count)
    return _zeros.slice(0, count)


def numbered(counts: Sequence[int]) -> pa.Array:
    """The numbers 0, 1, …: each n in the next `counts[n]` rows."""
    filled = [number for number, count in enumerate(counts) if count]  # a run of no rows is no run to Arrow
    if not filled:
        return pa.array([], pa.int32())
    ends = pa.array(accumulate(counts[number] for number in filled), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(filled, pa.int32())))


# --- chunks to batches ------------------------------------------------------------------------------------------------


class Chunk(Protocol):
    """Whole records in a buffer, as a reader's `chunks` gives them."""

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


class BatchBuilder(Protocol):
    """The object of a kernel that collects the records of one batch."""

    count: int

    def take(self) -> Any: ...


A = TypeVar("A")
C = TypeVar("C", bound=Chunk)
G = TypeVar("G", bound=BatchBuilder)


class GatheringCollector(Generic[C, G]):
    """Makes record batches of about `batch_bytes` from chunks of any size, copying bytes once.

    `want` says what the kernel decodes for a column, `row_bytes` the least number of bytes of a row in it. The columns
    in `common` have one item for all records of a chunk, which depends on the chunk and on the name of its part. A
    subclass has `_begin`, which makes a builder, `_gather`, which adds to it, and `_to_batch`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        want: Mapping[str, int],
        row_bytes: Mapping[str, int],
        common: Mapping[str, Callable[[C, str], Any]],
        batch_bytes: int,
    ) -> None:
        check_batch_bytes(batch_bytes)
        self.schema = schema
        self._want = 0
        for name in schema.names:
            self._want |= want.get(name, 0)
        self._row_bytes = sum(row_bytes[name] for name in schema.names)
        self._batch_bytes = batch_bytes
        self._builder: G | None = None
        self._common = common
        self._runs: dict[str, list[tuple[Any, int]]] = {name: [] for name in schema.names if name in common}

    # --- implemented by a format ------------------------------------------------------------------------------------

    def _begin(self, chunk: C, position: int, left: int) -> G:
        """A builder whose size is estimated from the next records. A wrong estimate only makes a smaller batch."""
        raise NotImplementedError

    def _gather(self, builder: G, chunk: C, position: int, left: int) -> tuple[int, int]:
        """Add the records from a position on, as many as fit. Returns the position of the rest and the number added."""
        raise NotImplementedError

    def _to_batch(self, columns: Any, given: dict[str, pa.Array]) -> pa.RecordBatch:
        """The gathered columns as a batch; `given` are the common columns."""
        raise NotImplementedError

    # --- shared -----------------------------------------------------------------------------------------------------

    def add(self, chunk: C, part: str = "") -> Iterator[pa.RecordBatch]:
        """Take the records of a chunk; the batches that became full."""
        position, left = chunk.start, chunk.count
        while left:
            if self._builder is None:
                self._builder = self._begin(chunk, position, left)
            position, added = self._gather(self._builder, chunk, position, left)
            left -= added
            for name, runs in self._runs.items():
                if added:
                    runs.append((self._common[name](chunk, part), added))
            if left:
                yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any rows are left."""
        builder, self._builder = self._builder, None
        if builder is None or not builder.count:
            return
        given = {name: repeated(runs, self.schema.field(name).type) for name, runs in self._runs.items()}
        for runs in self._runs.values():
            runs.clear()
        yield self._to_batch(builder.take(), given)

    def _sized(self, sample: Any, rows: int, rest: int) -> tuple[int, int]:
        """The number of rows in a batch, and the capacity of its column of bytes, by a sample of that column.

        `sample` is the bytes of `rows` records; None if there is no such column.
        """
        if sample is None:
            return self._rows_of(0), 0
        item_bytes = len(sample) / rows
        most_rows = self._rows_of(item_bytes)
        return most_rows, self._most_bytes(most_rows, item_bytes, rest)

    def _rows_of(self, item_bytes: float) -> int:
        """The number of rows in a batch if each has `item_bytes` besides its fixed columns."""
        return max(LEAST_ROWS, int(self._batch_bytes / (self._row_bytes + item_bytes)))

    def _most_bytes(self, rows: int, item_bytes: float, rest: int) -> int:
        """The capacity of a column of bytes, at least `rest`: the rest of the chunk always fits."""
        return max(rest, min(self._batch_bytes, int(rows * item_bytes * _SLACK)))


class JoiningCollector(Generic[A]):
    """Makes record batches of about `batch_bytes` from chunks of any size, by joining and slicing.

    `want` says what the kernel decodes for a column. A subclass has `_batch_of`.
    """

    def __init__(self, schema: pa.Schema, want: Mapping[str, int], batch_bytes: int) -> None:
        check_batch_bytes(batch_bytes)
        self.schema = schema
        self._want = 0
        for name in schema.names:
            self._want |= want.get(name, 0)
        self._batch_bytes = batch_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def _batch_of(self, chunk: A) -> pa.RecordBatch:
        """The records of a chunk."""
        raise NotImplementedError

    def add(self, chunk: A, part: str = "") -> Iterator[pa.RecordBatch]:
        """Take the records of a chunk; the batches that became full."""
        batch = self._batch_of(chunk)
        if not batch.num_rows:
            return
        if self._bytes and self._bytes + batch.nbytes > self._batch_bytes:
            yield from self.finish()
        rows = max(1, batch.num_rows * self._batch_bytes // max(1, batch.nbytes))
        while batch.num_rows > rows:  # a chunk may well be larger than a batch
            yield batch.slice(0, rows)
            batch = batch.slice(rows)
        self._batches.append(batch)
        self._bytes += batch.nbytes

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any rows are left."""
        batches, self._batches, self._bytes = self._batches, [], 0
        if len(batches) < 2:
            yield from batches
            return
        table = pa.Table.from_batches(batches, self.schema).unify_dictionaries().combine_chunks()
        yield from table.to_batches()


# --- arrays to buffers ------------------------------------------------------------------------------------------------


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of Arrow data of any kind."""
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from record_batches(pa.RecordBatchReader.from_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    else:
        raise WrongUse(f"{type(data).__name__} is not Arrow data: give a record batch, a table or a reader of them")


def column_of(batch: pa.RecordBatch, *names: str) -> pa.Array | None:
    """The first of these columns that exists, or None."""
    for name in names:
        there = batch.schema.get_all_field_indices(name)
        if len(there) > 1:
            raise WrongUse(f"column {name} is there more than once")
        if there:
            return batch.column(name)
    return None


def by_part(batch: pa.RecordBatch, name: str, default: str) -> list[tuple[str, pa.RecordBatch]]:
    """The rows of a batch grouped by a column of names, in the order of their first rows; null is `default`."""
    found = column_of(batch, name)
    if found is None:
        return [(default, batch)]
    names = bytes_of(name, found).cast(pa.binary()).cast(pa.string()).fill_null(default).dictionary_encode()
    parts: list[str] = names.dictionary.to_pylist()
    if len(parts) == 1:
        return [(parts[0], batch)]
    sorted_rows = batch.take(pc.array_sort_indices(names.indices))  # the sort is stable
    found_parts, first = [], 0
    for part, rows in zip(parts, _rows_of_each(names.indices, len(parts)), strict=True):
        found_parts.append((part, sorted_rows.slice(first, rows)))
        first += rows
    return found_parts


def _rows_of_each(indices: pa.Array, count: int) -> list[int]:
    """How often each number below `count` occurs."""
    rows = [0] * count
    for found in pc.value_counts(indices).to_pylist():
        rows[found["values"]] = found["counts"]
    return rows


def fixed_memory(array: pa.Array, width: int) -> memoryview:
    """The memory of an array of numbers without nulls."""
    return memoryview(array.buffers()[1].slice(array.offset * width, len(array) * width)).cast("B")


def ends_and_bytes(array: pa.Array) -> tuple[memoryview, memoryview]:
    """A binary array as the kernels take it: i32 ends, and bytes."""
    data = array.buffers()[2]
    ends = _ends(array)
    if ends.type == pa.int64():
        first, last = ends[0].as_py(), ends[-1].as_py()
        ends = pc.subtract(ends, first).cast(pa.int32())
        data = data.slice(first, last - first) if data is not None else None
    view = memoryview(b"") if data is None else memoryview(data).cast("B")
    return fixed_memory(ends, 4), view


def _ends(array: pa.Array) -> pa.Array:
    """The ends of the items of a binary array, with the start of the first one."""
    kind, width = (pa.int64(), 8) if pa.types.is_large_binary(array.type) else (pa.int32(), 4)
    ends = array.buffers()[1]
    if ends is None or ends.size == 0:  # an empty array may have no ends
        return pa.array([0], kind)
    return pa.Array.from_buffers(kind, len(array) + 1, [None, ends.slice(array.offset * width)])


def fitting(array: pa.Array, row: int) -> int:
    """The number of items from `row` on that fit one window of less than 2 GiB."""
    rows = len(array) - row
    if not pa.types.is_large_binary(array.type):
        return rows
    ends = _ends(array)
    first = ends[row].as_py()
    if ends[-1].as_py() - first <= MAX_COLUMN_BYTES:
        return rows
    low, high = 0, rows  # `low` items fit, `high` items do not
    while high - low > 1:
        middle = (low + high) // 2
        if ends[row + middle].as_py() - first <= MAX_COLUMN_BYTES:
            low = middle
        else:
            high = middle
    if low == 0:
        raise TooLarge(f"row {row} has {ends[row + 1].as_py() - first} bytes, more than a record can hold")
    return low


def plain(array: pa.Array) -> pa.Array:
    """An array without extension types and dictionaries."""
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(array.type):
        items = array.dictionary
        if pa.types.is_binary(items.type) or pa.types.is_string(items.type):
            items = items.cast(pa.large_binary())  # decoded it may be larger than 2 GiB
        return plain(items.take(array.indices))
    return array


def bytes_of(name: str, array: pa.Array) -> pa.Array:
    """A column of bytes as `binary` or `large_binary`; nulls stay."""
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.large_binary())
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise WrongUse(f"column {name} is {kind}, and must be binary or string")
    return array


def numbers_of(name: str, array: pa.Array, kind: pa.DataType, limits: str) -> pa.Array:
    """A column of integers in another type; `limits` describes what fits it. Nulls stay."""
    array = plain(array)
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise WrongUse(f"column {name} is {array.type}, and must be a whole number: it must {limits}")
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise WrongUse(f"column {name} must {limits}: {error}") from None


def times_of(name: str, array: pa.Array, unit: str) -> pa.Array:
    """A column of times as int64 of a unit, rounded down. Nulls stay.

    The lowest time of a coarser unit may be just below the range of this unit, because sources round down: it becomes
    the lowest time of this unit.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return array.cast(pa.int64())
    if kind == pa.int64():
        return array
    if not pa.types.is_timestamp(kind):
        raise WrongUse(f"column {name} is {kind}, and must be timestamps, or {_UNITS[unit]} as int64")
    steps = list(_UNITS).index(unit) - list(_UNITS).index(kind.unit)
    exact, factor = array.view(pa.int64()), 1000 ** abs(steps)
    if steps <= 0:
        return floored(exact, factor) if steps else exact
    lowest = _LEAST_INT64 // factor
    is_lowest = pc.equal(exact, lowest) if lowest * factor < _LEAST_INT64 else pa.scalar(False)
    try:
        scaled = pc.multiply_checked(pc.if_else(is_lowest, lowest + 1, exact), factor)
    except pa.ArrowInvalid as error:
        raise WrongUse(f"column {name} does not fit 64 bits of {_UNITS[unit]}: {error}") from None
    return pc.if_else(is_lowest, _LEAST_INT64 + 1, scaled)


def floored(exact: pa.Array, factor: int) -> pa.Array:
    """Integers divided by a factor and rounded down, also negative ones."""
    if COMPILED and factor == 1000 and exact.offset == 0:
        validity, numbers = exact.buffers()
        result = pa.allocate_buffer(len(exact) * 8)
        _division.floor_thousandths(b"" if numbers is None else numbers, result, len(exact))
        return pa.Array.from_buffers(pa.int64(), len(exact), [validity, result])
    rounded = pc.divide(exact, factor)
    if not len(exact) or (pc.min(exact).as_py() or 0) >= 0:
        return rounded
    return pc.subtract(rounded, pc.less(exact, pc.multiply(rounded, factor)).cast(pa.int64()))


# --- records of several kinds -----------------------------------------------------------------------------------------


def kinds_of(batch: pa.RecordBatch, name: str, kinds: Sequence[str], default: int, wrong: str) -> pa.Array:
    """The kind of each row, as an index into `kinds`; `default` for all if there is a column of data but none of kinds.

    `wrong` is the message for any other name.
    """
    found = column_of(batch, name)
    if found is None:
        if column_of(batch, "data", "value") is None:
            raise WrongUse(f"there is neither {name} nor data among {', '.join(batch.schema.names) or 'no columns'}")
        return pa.repeat(pa.scalar(default, pa.int8()), batch.num_rows)
    texts = bytes_of(name, found).cast(pa.binary()).cast(pa.string())
    numbers = pc.index_in(texts, pa.array(kinds, pa.string()))
    if numbers.null_count:
        row = pc.index(numbers.is_null(), True).as_py()
        raise WrongUse(f"row {row}: {texts[row].as_py()!r} {wrong}")
    return numbers.cast(pa.int8())


def row_without(array: pa.Array, kinds: pa.Array, needing: pa.Array) -> int | None:
    """The first null row of a kind that needs this column."""
    if not array.null_count:
        return None
    row: int = pc.index(pc.and_(pc.is_in(kinds, needing), array.is_null()), True).as_py()
    return None if row < 0 else row


def kind_numbers_of(
    batch: pa.RecordBatch, name: str, kind: pa.DataType, limits: str, check: Callable[[str, pa.Array], None]
) -> pa.Array | None:
    """A column of integers, 0 for null; `check` raises where a null is wrong. None without the column."""
    found = column_of(batch, name)
    array = pa.nulls(batch.num_rows, kind) if found is None else numbers_of(name, found, kind, limits)
    check(name, array)
    return None if found is None else filled(array, 0)


def filled(array: pa.Array, item: Any) -> pa.Array:
    """An array with nulls replaced by an item; not copied if there are none."""
    return array.fill_null(item) if array.null_count else array


# --- messages of other formats ----------------------------------------------------------------------------------------


def left_out(messages: pa.RecordBatch, *what: str) -> dict[str, int]:
    """How many messages have each of these: key, type, time, expiry, fraction of a millisecond."""
    found: dict[str, int] = {}
    columns = {name: plain(messages.column(name)) for name in messages.schema.names}
    for each in what:
        if each == "key" and "key" in columns:
            found[each] = _count(pc.greater(pc.binary_length(bytes_of("key", columns["key"])), 0))
        elif each == "type" and "type" in columns:
            found[each] = _count(pc.not_equal(columns["type"], 0))
        elif each == "time" and "timestamp" in columns:
            found[each] = messages.num_rows - columns["timestamp"].null_count
        elif each == "expiry" and "expires" in columns:
            found[each] = messages.num_rows - columns["expires"].null_count
        elif each == "fraction of a millisecond":
            found[each] = _finer_than_milliseconds(columns.get("timestamp", pa.nulls(messages.num_rows)))
    return found


def _finer_than_milliseconds(times: pa.Array) -> int:
    if not pa.types.is_timestamp(times.type) or times.type.unit in ("s", "ms"):
        return 0
    whole = pc.floor_temporal(times, unit="millisecond")
    return _count(pc.not_equal(whole.view(pa.int64()), times.view(pa.int64())))


def _count(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)
