"""versioned on Spark: its typed columns, and the same changes in the columns that all formats share.

    store STRING, t BIGINT, timestamp TIMESTAMP, k STRING, o STRING (JSON), deleted BOOLEAN

Each change is one row, however often compaction has copied it. A time of more than 63 bits is null. Of the shared
columns `op` is `set` or `delete`, `key` the key, `value` the JSON of the value, null for a deletion, and `detail` has
the store, and `t` where `timestamp_ns` cannot hold it.

The number of an entry is `sequence` times 2^64 plus `position`: `sequence` is when its journal became the active one.
So changes of a store are in order by (`sequence`, `position`), whatever their files are called meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import TooLarge
from .columns import nanoseconds

TYPED: Final = pa.schema(
    [
        ("store", pa.string()),
        ("t", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("o", pa.string()),
        ("deleted", pa.bool_()),
    ]
)

_SOURCES: Final = {
    "timestamp": ("t",),
    "timestamp_ns": ("t",),
    "op": ("deleted",),
    "key": ("k",),
    "value": ("o", "deleted"),
    "detail": ("store", "t"),
    "sequence": ("before",),
}
"""From which of the format's own columns a column is made, where those have other names."""
_OWN: Final = ("store", "t", "k", "o", "deleted", "file", "position", "size", "before")


def sources(names: Sequence[str], *, sharded: bool) -> list[str]:
    """The columns of `columns.py` that must be decoded for these."""
    wanted = {source for name in names for source in _SOURCES.get(name, (name,))}
    return [name for name in _OWN if name in wanted] or ["size"]


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """One column for Spark out of a batch of `columns.py`; None for what a store's journal does not have."""
    if name == "detail":
        return _detail(batch)
    if name not in (*_SOURCES, *_OWN):
        return None
    data = batch.column(_SOURCES.get(name, (name,))[0])
    if name in ("store", "file"):
        return data.cast(pa.string())
    if name in ("t", "timestamp_ns"):
        return nanoseconds(data)
    if name == "timestamp":
        return pc.divide(nanoseconds(data), 1000).view(pa.timestamp("us", tz="UTC"))
    if name == "op":
        return pc.if_else(data, "delete", "set")
    if name == "key":
        return data.cast(pa.binary())
    if name == "value":
        return pc.if_else(batch.column("deleted"), pa.scalar(None, pa.string()), data).cast(pa.binary())
    if name == "position":
        return data.view(pa.int64())
    if name == "size":
        try:
            return data.cast(pa.int32())
        except pa.ArrowInvalid:
            raise TooLarge("an entry of more than 2^31 - 1 bytes does not fit an INT") from None
    return data


def _detail(batch: pa.RecordBatch) -> pa.Array:
    stores = batch.column("store")
    escaped = pa.array([f'"store":{json.dumps(name)}' for name in stores.dictionary.to_pylist()], pa.string())
    parts = [escaped.take(stores.indices)]
    times = batch.column("t")
    lost = pc.is_null(nanoseconds(times))
    if pc.any(lost).as_py():
        kept = pc.if_else(lost, times, pa.scalar(None, pa.uint64()))
        parts.append(pc.binary_join_element_wise('"t":', kept.cast(pa.string()), ""))
    joined = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", joined, "}", "")
