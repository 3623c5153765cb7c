"""kestrel on Spark: its typed columns, and the same operations in the columns that all formats share.

    queue STRING, op STRING, xid INT, count INT, added TIMESTAMP, expires TIMESTAMP, data BINARY

What an operation does not have is null, and so is a time that 64 bits of microseconds cannot hold. Of the shared ones
`op` is the name of the operation, `value` its item, `timestamp` when that was added, `detail` the rest of it in JSON:
queue, xid, count, and expires in milliseconds. `sequence` is null: operations have numbers that no BIGINT holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import TooLarge

TYPED: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("op", pa.string()),
        ("xid", pa.int32()),
        ("count", pa.int32()),
        ("added", pa.timestamp("us", tz="UTC")),
        ("expires", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
    ]
)

_SOURCES: Final = {
    "value": ("data",),
    "timestamp": ("added",),
    "timestamp_ns": ("added",),
    "detail": ("queue", "xid", "count", "expires"),
}
"""From which of the format's own columns a column is made, where those have other names."""
_OWN: Final = ("queue", "op", "xid", "count", "added", "expires", "data", "file", "position", "size")


def sources(names: Sequence[str], *, sharded: bool) -> list[str]:
    """The columns of `columns.py` that must be decoded for these."""
    wanted = {source for name in names for source in _SOURCES.get(name, (name,))}
    return [name for name in _OWN if name in wanted] or ["size"]


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """One column for Spark out of a batch of `columns.py`; None for what a queue's journal does not have."""
    if name == "detail":
        return _detail(batch)
    if name not in (*_SOURCES, *_OWN):
        return None
    data = batch.column(_SOURCES.get(name, (name,))[0])
    if name in ("queue", "op", "file"):
        return data.cast(pa.string())
    if name in ("added", "expires", "timestamp"):
        return _scaled(data, 1000).view(pa.timestamp("us", tz="UTC"))
    if name == "timestamp_ns":
        return _scaled(data, 1_000_000)
    if name == "position":
        return data.view(pa.int64())
    if name == "size":
        try:
            return data.cast(pa.int32())
        except pa.ArrowInvalid:
            raise TooLarge("an operation of more than 2^31 - 1 bytes does not fit an INT") from None
    return data


def _scaled(data: pa.Array, factor: int) -> pa.Array:
    """Milliseconds in a smaller unit; null where that does not fit."""
    times = data.view(pa.int64())
    most = (2**63 - 1) // factor
    fits = pc.and_(pc.less_equal(times, most), pc.greater_equal(times, -most))
    if times.null_count < len(times) and not pc.all(fits).as_py():
        times = pc.if_else(fits, times, pa.scalar(None, pa.int64()))
    return pc.multiply(times, factor)


def _detail(batch: pa.RecordBatch) -> pa.Array:
    queues = batch.column("queue")
    escaped = pa.array([f'"queue":{json.dumps(name)}' for name in queues.dictionary.to_pylist()], pa.string())
    parts = [escaped.take(queues.indices)]
    for name in ("xid", "count", "expires"):
        numbers = batch.column(name)
        text = (numbers.view(pa.int64()) if name == "expires" else numbers).cast(pa.string())
        parts.append(pc.binary_join_element_wise(f'"{name}":', text, ""))
    joined = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", joined, "}", "")
