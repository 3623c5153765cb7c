"""What the columns of all formats share: plain buffers as Arrow arrays, and Arrow data as plain buffers.

Nothing is copied between the kernels' buffers and Arrow's, in either direction, where the types fit. A batch holds less
than 2 GiB of bytes in a column, because their ends are i32; what is larger comes in several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TooLarge, WrongUse

BATCH_BYTES: Final = 4 << 20
"""How much one batch holds unless told: enough for whoever gets it, and still in a processor's cache."""
MAX_BATCH_BYTES: Final = 1 << 30
MAX_COLUMN_BYTES: Final = 2**31 - 1
NAMES: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of columns that repeat a few names."""


# --- the schema -------------------------------------------------------------------------------------------------------


def chosen_schema(format: str, fields: Mapping[str, pa.Field], names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, in this order; `WrongUse` for what the format does not have."""
    if isinstance(names, str):
        raise WrongUse(f"columns are a list of names, not the string {names!r}")
    if not names:
        raise WrongUse("no columns are asked for")
    for name in names:
        if name not in fields:
            raise WrongUse(f"{format} has no column {name!r}; it has {', '.join(fields)}")
    if len(set(names)) < len(names):
        raise WrongUse(f"a column is asked for twice in {', '.join(names)}")
    return pa.schema([fields[name] for name in names])


def check_batch_bytes(batch_bytes: int) -> None:
    """Raise `WrongUse` for a size that no batch can have."""
    if not 0 < batch_bytes <= MAX_BATCH_BYTES:
        raise WrongUse(f"a batch of {batch_bytes} bytes is not within 1 byte and 1 GiB")


# --- buffers to arrays ------------------------------------------------------------------------------------------------


def allocate(size: int) -> pa.Buffer:
    """A buffer of Arrow's for a kernel to fill."""
    return pa.allocate_buffer(size, resizable=True)


def fixed_array(kind: pa.DataType, data: Any, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    """`count` items of a fixed width that lie in a buffer."""
    if data is None:
        raise WrongUse("a column was not decoded")
    return pa.Array.from_buffers(kind, count, [validity, used_buffer(data, count * kind.bit_width // 8)])


def binary_array(ends: Any, data: Any, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    """`count` items of bytes: the n-th is between `ends[n]` and `ends[n + 1]`."""
    if ends is None or data is None:
        raise WrongUse("a column of bytes was not decoded")
    used = used_buffer(ends, (count + 1) * 4)
    with memoryview(used).cast("i") as rows:
        last = rows[count]
    return pa.Array.from_buffers(pa.binary(), count, [validity, used, used_buffer(data, last)])


def used_buffer(data: Any, used: int) -> pa.Buffer:
    """The first `used` bytes as an Arrow buffer, giving memory back when most of it was not needed."""
    if not isinstance(data, pa.Buffer):
        return pa.py_buffer(memoryview(data)[:used])
    if 2 * used < data.size and isinstance(data, pa.ResizableBuffer):
        data.resize(used, shrink_to_fit=True)
    return data.slice(0, used)


def repeated(runs: list[tuple[str, int]]) -> pa.DictionaryArray:
    """A column of names, each so many rows long."""
    names = list(dict.fromkeys(name for name, _ in runs))
    indices = [pa.repeat(pa.scalar(names.index(name), pa.int32()), rows) for name, rows in runs]
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(indices), pa.array(names, pa.string()))


# --- arrays to buffers ------------------------------------------------------------------------------------------------


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of anything that is Arrow, one by one."""
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


def fixed_memory(array: pa.Array, width: int) -> memoryview:
    """The memory of an array of numbers without nulls."""
    return memoryview(array.buffers()[1].slice(array.offset * width, len(array) * width)).cast("B")


def ends_and_bytes(array: pa.Array) -> tuple[memoryview, memoryview]:
    """A binary array in the kernels' terms: i32 ends, and the bytes that they speak of."""
    data = array.buffers()[2]
    ends = _ends(array)
    if ends.type == pa.int64():
        first, last = ends[0].as_py(), ends[-1].as_py()
        ends = pc.subtract(ends, first).cast(pa.int32())
        data = data.slice(first, last - first) if data is not None else None
    view = memoryview(b"") if data is None else memoryview(data).cast("B")
    return fixed_memory(ends, 4), view


def _ends(array: pa.Array) -> pa.Array:
    """Where the items of a binary array begin and end, one more than there are items."""
    kind, width = (pa.int64(), 8) if pa.types.is_large_binary(array.type) else (pa.int32(), 4)
    ends = array.buffers()[1]
    if ends is None or ends.size == 0:  # an array without items need not have any
        return pa.array([0], kind)
    return pa.Array.from_buffers(kind, len(array) + 1, [None, ends.slice(array.offset * width)])


def fitting(array: pa.Array, row: int) -> int:
    """How many items from `row` on can be in one window: their bytes must be less than 2 GiB."""
    rows = len(array) - row
    if not pa.types.is_large_binary(array.type):
        return rows
    ends = _ends(array)
    first = ends[row].as_py()
    if ends[-1].as_py() - first <= MAX_COLUMN_BYTES:
        return rows
    low, high = 0, rows  # so many items fit, so many do not
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
    """An array without the wrappings that say nothing about its items: extension types and dictionaries."""
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(array.type):
        items = array.dictionary
        if pa.types.is_binary(items.type) or pa.types.is_string(items.type):
            items = items.cast(pa.large_binary())  # decoded it may well be larger than 2 GiB
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
