"""Entries <-> Arrow: the schema of versioned, the kernel's columns as record batches, and record batches as entries.

    store      dictionary of string        t          uint64, nanoseconds
    k          string                      timestamp  timestamp[ns, UTC], null beyond 63 bits
    o          string, JSON                deleted    bool

and on request

    file       dictionary of string        position   uint64, in that file        size       int64, of the entry
    raw        binary, `o` as BONJSON      before     int64, when its journal became active, null beyond 63 bits

A deletion has the JSON `null` in `o`. What JSON has no number for is a string there: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    MOST_SIGNED,
    NAMES,
    JoiningCollector,
    binary_array,
    by_part,
    bytes_of,
    chosen_schema,
    column_of,
    constant,
    ends_and_bytes,
    fitting,
    fixed_array,
    fixed_memory,
    plain,
    record_batches,
    signed,
    times_of,
)
from ...core.io.file_names import printed
from ...core.read.columns import BATCH_BYTES
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.records import Entry, check_timestamp
from ..files.cursor import Chunk
from ..files.files import JournalFile

_TIME: Final = pa.timestamp("ns", tz="UTC")
_FIELDS: Final = {
    "store": pa.field("store", NAMES, nullable=False),
    "t": pa.field("t", pa.uint64(), nullable=False),
    "timestamp": pa.field("timestamp", _TIME),
    "k": pa.field("k", pa.string(), nullable=False),
    "o": pa.field("o", pa.string(), nullable=False),
    "deleted": pa.field("deleted", pa.bool_(), nullable=False),
    "file": pa.field("file", NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int64(), nullable=False),
    "raw": pa.field("raw", pa.binary(), nullable=False),
    "before": pa.field("before", pa.int64()),
}
COLUMN_NAMES: Final = tuple(_FIELDS)
DEFAULT_NAMES: Final = ("store", "t", "timestamp", "k", "o", "deleted")
_WANT: Final = {
    "t": codec.TIMESTAMPS,
    "timestamp": codec.TIMESTAMPS,
    "k": codec.KEYS,
    "o": codec.VALUES,
    "deleted": codec.DELETED,
    "position": codec.POSITIONS,
    "size": codec.SIZES,
    "raw": codec.RAW_VALUES,
}


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; of the default columns without names."""
    return chosen_schema("versioned", _FIELDS, DEFAULT_NAMES if names is None else names)


# --- columns to batches -----------------------------------------------------------------------------------------------


def to_batch(columns: Columns, wanted: pa.Schema, source: Any = None) -> pa.RecordBatch:
    """The kernel's columns as a record batch; `source` is the file that they come from."""
    return pa.RecordBatch.from_arrays([_array(columns, name, source) for name in wanted.names], schema=wanted)


def _array(columns: Columns, name: str, source: Any) -> pa.Array:
    count = columns.count
    if name in ("store", "file"):
        return constant(printed(source.store if name == "store" else source.name), count)
    if name == "before":
        before = source.before if source.before <= MOST_SIGNED else None
        return pa.repeat(pa.scalar(before, pa.int64()), count)
    if name == "t":
        return fixed_array(pa.uint64(), columns.timestamps, count)
    if name == "timestamp":
        return signed(fixed_array(pa.uint64(), columns.timestamps, count)).view(_TIME)
    if name == "k":
        return binary_array(columns.key_ends, columns.keys, count).view(pa.string())
    if name == "o":
        return binary_array(columns.value_ends, columns.values, count).view(pa.string())
    if name == "raw":
        return binary_array(columns.raw_value_ends, columns.raw_values, count)
    if name == "deleted":
        return pc.not_equal(fixed_array(pa.uint8(), columns.deleted, count), 0)
    if name == "position":
        return fixed_array(pa.uint64(), columns.positions, count)
    return fixed_array(pa.int64(), columns.sizes, count)


def state_table(latest: Any) -> pa.Table:
    """The state after some entries as a table: `k`, `t`, `o`."""
    columns = latest.columns(codec.TIMESTAMPS | codec.KEYS | codec.VALUES)
    wanted = schema(["k", "t", "o"])
    return pa.Table.from_batches([to_batch(columns, wanted)], wanted)


def state_batch(latest: Any, names: Sequence[str], source: Any) -> pa.RecordBatch:
    """These columns of a state; `position` and `size` are null, for a state is no range of bytes."""
    want = 0
    for name in names:
        want |= _WANT.get(name, 0) & (codec.TIMESTAMPS | codec.KEYS | codec.VALUES | codec.DELETED | codec.RAW_VALUES)
    columns = latest.columns(want)
    arrays = [
        pa.nulls(columns.count, _FIELDS[name].type) if name in ("position", "size") else _array(columns, name, source)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, list(names))


class Collector(JoiningCollector[Chunk]):
    """Makes record batches of about `batch_bytes` from chunks."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        super().__init__(schema(names, sharded=sharded), _WANT, batch_bytes)

    def _batch_of(self, chunk: Chunk) -> pa.RecordBatch:
        columns = kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count, self._want, chunk.base)
        return to_batch(columns, self.schema, _journal_of(chunk))


def _journal_of(chunk: Chunk) -> JournalFile:
    """The file of a chunk, its `before` as the journal itself says it: the archive before may have got a later name.

    A file that is read alone has none, and one that ended when it began is distinguished from the next one by that of
    its name.
    """
    source, since = chunk.source, chunk.since
    if since in (None, source.before) or not source.before or (source.timestamp or 2**64) <= (since or 0):
        return source
    return replace(source, before=since)


# --- batches to entries -----------------------------------------------------------------------------------------------


def as_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The changes of a batch as what every format of messages takes: `value` (JSON), `timestamp` and `key`.

    Deletions have no value, and are left out.
    """
    there = batch.filter(pc.invert(batch.column("deleted"))) if "deleted" in batch.schema.names else batch
    found = {"value": there.column("o").cast(pa.binary())}
    if "timestamp" in there.schema.names:
        found["timestamp"] = there.column("timestamp")
    if "k" in there.schema.names:
        found["key"] = there.column("k").cast(pa.binary())
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def by_store(batch: pa.RecordBatch, default: str) -> list[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by the store that they name, in the order of first appearance."""
    return by_part(batch, "store", default)


def from_arrow(data: Any) -> Iterator[Entry]:
    """Arrow data as entries.

    Keys are in `k` or `key`, values, which are JSON, in `o` or `value`; a row is a deletion where `deleted` says so, or
    its value is null. Times are in `t`, or in `timestamp`; a row without one gets the time 0, which means any.
    """
    for batch in record_batches(data):
        yield from _from_batch(batch)


def _from_batch(batch: pa.RecordBatch) -> Iterator[Entry]:
    keys, values = _keys_and_values(batch)
    deleted = column_of(batch, "deleted")
    texts = _texts("k", keys)
    removed = [False] * batch.num_rows if deleted is None else plain(deleted).cast(pa.bool_()).to_pylist()
    times = _times_of(batch)
    for row, (key, value) in enumerate(zip(texts, _texts("o", values), strict=True)):
        if key is None:
            raise WrongUse(f"row {row} has no key")
        yield Entry(times[row], key, None if removed[row] or value is None else codec.parsed(key, value))


def _keys_and_values(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    keys, values = column_of(batch, "k", "key"), column_of(batch, "o", "value")
    if keys is None or values is None:
        raise WrongUse(f"there is no k or no o among {', '.join(batch.schema.names) or 'no columns'}")
    return keys, values


def packed_entries(batch: pa.RecordBatch, times: array[int]) -> list[bytes]:
    """The rows of a batch as the bytes of entries that have these times; else as `from_arrow` takes them."""
    return [data[start:stop] for data, starts in packed(batch, times) for start, stop in pairwise(starts)]


def packed(batch: pa.RecordBatch, times: Any) -> Iterator[tuple[bytes, Sequence[int]]]:
    """The same, concatenated in as few pieces as possible: where each begins in its piece, and where the last one ends.

    `times` is memory of 64-bit numbers.
    """
    keys, values = (bytes_of(name, column) for name, column in zip(("k", "o"), _keys_and_values(batch), strict=True))
    if keys.null_count:
        raise WrongUse(f"row {pc.index(keys.is_null(), True).as_py()} has no key")
    deleted = column_of(batch, "deleted")
    removed = values.is_null()
    if deleted is not None:
        removed = pc.or_(removed, pc.fill_null(plain(deleted).cast(pa.bool_()), False))
    row = 0
    while row < batch.num_rows:
        count = min(fitting(keys, row), fitting(values, row))
        columns = Columns(count, memoryview(times)[row : row + count])
        columns.key_ends, columns.keys = ends_and_bytes(keys.slice(row, count))
        columns.value_ends, columns.values = ends_and_bytes(values.slice(row, count))
        columns.deleted = fixed_memory(removed.slice(row, count).cast(pa.uint8()), 1)
        yield kernel.pack(columns)
        row += count


def check_texts(batch: pa.RecordBatch) -> None:
    """Raise `WrongUse` where keys or values are no text."""
    for name, column in zip(("k", "o"), _keys_and_values(batch), strict=True):
        _as_text(name, column)


def _texts(name: str, array: pa.Array) -> list[Any]:
    found: list[Any] = _as_text(name, array).to_pylist()
    return found


def _as_text(name: str, array: pa.Array) -> pa.Array:
    try:
        return bytes_of(name, array).cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        raise WrongUse(f"column {name} is no text") from None


def _times_of(batch: pa.RecordBatch) -> list[int]:
    return [value or 0 for value in _given_times(batch).to_pylist()]


def _given_times(batch: pa.RecordBatch) -> pa.Array:
    """The times of rows in nanoseconds, null for those without one."""
    found = column_of(batch, "t", "timestamp_ns", "timestamp")
    if found is None:
        return pa.nulls(batch.num_rows, pa.uint64())
    times = plain(found)
    if pa.types.is_timestamp(times.type):
        return times_of("timestamp", times, "ns")
    if not (pa.types.is_integer(times.type) or pa.types.is_null(times.type)):
        raise WrongUse(f"the time is {times.type}, and must be a timestamp or nanoseconds")
    return times


def change_times(batch: pa.RecordBatch, now: int) -> pa.Array:
    """The times of rows as `from_arrow` takes them, but `now` for those without one."""
    times = _given_times(batch)
    if pa.types.is_signed_integer(times.type) and len(times) and (least := pc.min(times).as_py() or 0) < 0:
        check_timestamp(least)
    times = pc.fill_null(times.cast(pa.uint64()), 0)
    return pc.if_else(pc.equal(times, pa.scalar(0, pa.uint64())), pa.scalar(now, pa.uint64()), times)


def rising(times: pa.Array, least: int) -> memoryview:
    """Times that never decrease and are at least `least`: a smaller one is replaced by the preceding one."""
    found = pc.cumulative_max(times, start=pa.scalar(least, pa.uint64()))
    return memoryview(fixed_memory(found, 8)).cast("B").cast("Q")
