"""sej on Spark: its typed columns, and the same messages in the columns that all formats share.

    offset BIGINT, timestamp TIMESTAMP, timestamp_ns BIGINT, type SMALLINT, key BINARY, value BINARY, shard STRING

`timestamp` is truncated to microseconds, as Spark has them; `timestamp_ns` is exact. Both are null for a message
without one. An offset beyond 2^63 - 1, which a BIGINT cannot hold, is an error.

Written are `value`, and if present `key`, `type` and `timestamp_ns` or `timestamp`; `timestamp_ns` overrides
`timestamp`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import floored, left_out
from ...core.read.columns import Columns
from ...errors import TooLarge, WrongUse
from ..bytes.codec import Columns as Decoded
from . import columns
from .columns import from_arrow

TYPED: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ns", pa.int64()),
        ("type", pa.int16()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("shard", pa.string()),
    ]
)

_SOURCE: Final = {"timestamp_ns": "timestamp", "sequence": "offset", "op": "type", "detail": "type"}
"""The own column that a column is made from, if its name differs."""

_DETAILS: Final = pa.array([f'{{"type":{number}}}' for number in range(256)], pa.string())
_MAX_BIGINT: Final = (1 << 63) - 1

_WRITTEN: Final = ("value", "key", "type", "timestamp", "timestamp_ns")
_REASSIGNED: Final = ("offset", "shard")
"""Columns that may be in the data to write and are ignored, because the journal determines them."""


class MessageColumns(Columns):
    """The columns of messages."""

    make_schema = columns.schema
    make_collector = columns.Collector
    typed = TYPED
    key = "key"
    contents = ("key", "value")
    payload = "value"
    json_fields: ClassVar = {
        "value": pa.binary(),
        "key": pa.binary(),
        "type": pa.uint8(),
        "timestamp": pa.timestamp("ns", tz="UTC"),
    }
    json_ignored = ("offset", "shard")
    part_field = "shard"

    def sources(self, names: Sequence[str], *, sharded: bool) -> list[str]:
        """The columns of `columns.py` that must be decoded for these."""
        known = (
            "offset",
            "timestamp",
            "type",
            "key",
            "value",
            "file",
            "position",
            "size",
            *(("shard",) if sharded else ()),
        )
        wanted = {_SOURCE.get(name, name) for name in names}
        return [name for name in known if name in wanted] or ["offset"]

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """One column for Spark out of a batch of `columns.py`; None for what a sej journal does not have."""
        source = _SOURCE.get(name, name)
        if source not in batch.schema.names:
            return None
        data = batch.column(source)
        if name in ("offset", "sequence", "position"):
            return _signed(data)
        if name == "timestamp":
            return floored(data.view(pa.int64()), 1000).view(pa.timestamp("us", tz="UTC"))
        if name == "timestamp_ns":
            return data.view(pa.int64())
        if name == "type":
            return data.cast(pa.int16())
        if name == "detail":
            return _details(data)
        if name == "op":
            return _repeated("message", len(data))
        if name in ("shard", "file"):
            return _repeated(data.dictionary[0], len(data)) if len(data.dictionary) == 1 else data.cast(pa.string())
        return data

    def check(self, batch: pa.RecordBatch) -> None:
        columns.from_arrow(batch)

    def record_batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        return columns.record_batches(data)

    def left_out(self, messages: pa.RecordBatch) -> dict[str, int]:
        return left_out(messages, "expiry")


COLUMNS: Final = MessageColumns()


def _repeated(text: Any, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


def _details(types: pa.Array) -> pa.Array:
    """The details of messages as JSON; most batches have only one type."""
    only = pc.min_max(types).as_py()
    if len(types) and only["min"] == only["max"]:
        return _repeated(_DETAILS[only["min"]], len(types))
    return _DETAILS.take(types)


def _signed(data: pa.Array) -> pa.Array:
    """Offsets or positions as BIGINT."""
    if len(data) and pc.max(data).as_py() > _MAX_BIGINT:
        raise TooLarge("an offset beyond 2^63 - 1 does not fit a BIGINT")
    return data.view(pa.int64())


# --- restoring ------------------------------------------------------------------------------------------------------


class ConsecutiveMessages(NamedTuple):
    """Messages with consecutive offsets: where the first one was, and how many bytes all of them had."""

    first_offset: int
    position: int
    bytes: int
    columns: list[Decoded]


def consecutive_messages(batch: pa.RecordBatch) -> Iterator[ConsecutiveMessages]:
    """The rows of a batch of the table `messages`, as messages again."""
    for name in ("offset", "type", "position", "size"):
        if batch.column(name).null_count:
            raise WrongUse(f"column {name} is null in a row that is to become a message")
    columns = {
        "value": batch.column("value"),
        "key": batch.column("key"),
        "type": _types(batch.column("type")),
        "timestamp": batch.column("timestamp_ns"),
    }
    messages = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    offsets, sizes = batch.column("offset"), batch.column("size")
    jumps = pc.not_equal(pc.subtract(offsets.slice(1), offsets.slice(0, max(0, len(offsets) - 1))), 1)
    starts = [0, *(row + 1 for row in pc.indices_nonzero(jumps).to_pylist()), len(offsets)]
    for start, stop in itertools.pairwise(starts):
        if start == stop:
            continue
        count = stop - start
        place = (offsets[start].as_py(), batch.column("position")[start].as_py())
        size = pc.sum(sizes.slice(start, count).cast(pa.int64())).as_py()
        yield ConsecutiveMessages(*place, size, from_arrow(messages.slice(start, count)))


def _types(types: pa.Array) -> pa.Array:
    try:
        return types.cast(pa.uint8())
    except pa.ArrowInvalid as error:
        raise WrongUse(f"column type has what is no type of a message: {error}") from None


# --- writing ------------------------------------------------------------------------------------------------------


def check_writable(schema: pa.Schema) -> None:
    """Raise `WrongUse` for columns that cannot be written, before there are any rows."""
    unknown = [name for name in schema.names if name not in (*_WRITTEN, *_REASSIGNED)]
    if unknown:
        known = "value, key, type, timestamp and timestamp_ns"
        raise WrongUse(f"a sej message has no {', '.join(unknown)}: select {known}, as far as you have them")
    from_arrow(writable(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)))


def writable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of Spark's as `Writer.append_batch` takes it."""
    exact = "timestamp_ns" in batch.schema.names
    names = [name for name in _WRITTEN if name in batch.schema.names and not (exact and name == "timestamp")]
    chosen = batch.select(names)
    return chosen.rename_columns(["timestamp" if name == "timestamp_ns" else name for name in names])
