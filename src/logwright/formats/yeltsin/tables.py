"""yeltsin on Spark: its typed columns, and the same operations in the columns that all formats share.

    transaction BIGINT, offset BIGINT, timestamp TIMESTAMP, flags SMALLINT, complete BOOLEAN, outcome STRING,
    operation INT, op STRING, page BIGINT, page_offset INT, before BINARY, after BINARY, free_before BIGINT,
    free_after BIGINT

A row is an operation; what it does not have is null, and so is a number or a time that 63 bits cannot hold. Of the
shared columns `sequence` is the transaction, `key` the page in decimal digits, `value` the image after a modification,
and `detail` the rest of it in JSON, with the image before in base64. Operations are in order by `position`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import TooLarge

TYPED: Final = pa.schema(
    [
        ("transaction", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("flags", pa.int16()),
        ("complete", pa.bool_()),
        ("outcome", pa.string()),
        ("operation", pa.int32()),
        ("op", pa.string()),
        ("page", pa.int64()),
        ("page_offset", pa.int32()),
        ("before", pa.binary()),
        ("after", pa.binary()),
        ("free_before", pa.int64()),
        ("free_after", pa.int64()),
    ]
)

DETAILS: Final = ("offset", "flags", "outcome", "operation", "page", "page_offset", "free_before", "free_after")
"""What the column `detail` has of an operation, as far as it has it; and `before`."""
_SOURCES: Final = {
    "value": ("after",),
    "timestamp_ns": ("timestamp",),
    "key": ("page",),
    "sequence": ("transaction",),
    "detail": (*DETAILS, "before"),
}
"""From which of the format's own columns a column is made, where those have other names."""
_OWN: Final = (*TYPED.names, "file", "position", "size")
_MOST: Final = 2**63 - 1


def sources(names: Sequence[str], *, sharded: bool) -> list[str]:
    """The columns of `columns.py` that must be decoded for these."""
    wanted = {source for name in names for source in _SOURCES.get(name, (name,))}
    return [name for name in _OWN if name in wanted] or ["size"]


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """One column for Spark out of a batch of `columns.py`; None for what such a journal does not have."""
    if name == "detail":
        return _detail(batch)
    if name not in (*_SOURCES, *_OWN):
        return None
    data = batch.column(_SOURCES.get(name, (name,))[0])
    if name in ("outcome", "op", "file"):
        return data.cast(pa.string())
    if name == "timestamp":
        return _scaled(data, 1_000_000).view(pa.timestamp("us", tz="UTC"))
    if name == "timestamp_ns":
        return _scaled(data, 1_000_000_000)
    if name == "flags":
        return data.cast(pa.int16())
    if name == "key":
        return data.cast(pa.string()).cast(pa.binary())
    if name in ("offset", "page", "free_before", "free_after", "position"):
        return _signed(data)
    if name == "size":
        try:
            return data.cast(pa.int32())
        except pa.ArrowInvalid:
            raise TooLarge("an operation of more than 2^31 - 1 bytes does not fit an INT") from None
    return data


def _signed(data: pa.Array) -> pa.Array:
    """Numbers of 64 bits as BIGINT; null where they do not fit."""
    fits = pc.less_equal(data, pa.scalar(_MOST, pa.uint64()))
    if not pc.all(fits).as_py() and len(data) > data.null_count:
        data = pc.if_else(fits, data, pa.scalar(None, pa.uint64()))
    return data.cast(pa.int64())


def _scaled(data: pa.Array, factor: int) -> pa.Array:
    """Seconds in a smaller unit; null where that does not fit."""
    times = data.view(pa.int64())
    most = _MOST // factor
    fits = pc.and_(pc.less_equal(times, most), pc.greater_equal(times, -most))
    if len(times) and not pc.all(fits).as_py():
        times = pc.if_else(fits, times, pa.scalar(None, pa.int64()))
    return pc.multiply(times, factor)


def _detail(batch: pa.RecordBatch) -> pa.Array:
    columns = {name: batch.column(name).to_pylist() for name in (*DETAILS, "before")}
    found = []
    for row in range(batch.num_rows):
        fields = {name: values[row] for name, values in columns.items() if values[row] is not None}
        if "before" in fields:
            fields["before"] = base64.b64encode(fields["before"]).decode()
        found.append(json.dumps(fields, separators=(",", ":")))
    return pa.array(found, pa.string())
