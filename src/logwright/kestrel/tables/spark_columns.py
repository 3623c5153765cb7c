"""kestrel on Spark: its typed columns, and the same operations in the columns that all formats share.

    queue STRING, op STRING, xid INT, count INT, added TIMESTAMP, expires TIMESTAMP, data BINARY

Fields that an operation does not have are null, and so are times that do not fit in 64 bits of microseconds. Of the
shared columns, `op` is the name of the operation, `value` the data of its item, `timestamp` when that was added, and
`detail` the rest in JSON: queue, xid, count, expires in milliseconds, and `added` in milliseconds if it does not fit in
`timestamp_ns`.

The number of an operation is too large for a BIGINT: it is `sequence` times 2^64 plus `position`. `sequence` is the
number in the name of the preceding file. So (`sequence`, `position`) orders the operations of a queue, even if some
were read before their file was rotated and renamed. It is null beyond 63 bits.
"""

from __future__ import annotations

from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import left_out
from ...core.arrow.spark_columns import (
    OwnColumns,
    details,
    microseconds,
    named_detail,
    number_detail,
    scaled,
    sizes,
    texts,
)
from ...errors import WrongUse
from ..bytes.codec import Columns
from ..bytes.records import FIELDS
from . import columns
from .columns import by_queue, from_arrow

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
RECORDED: Final = pa.schema(
    [
        *TYPED,
        ("added_ms", pa.int64()),
        ("expires_ms", pa.int64()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("sequence", pa.int64()),
    ]
)
"""The columns of the table `queue_operations`: those of Spark, the times that do not fit in them, and the place."""

_SOURCES: Final = {
    "value": ("data",),
    "timestamp": ("added",),
    "timestamp_ns": ("added",),
    "detail": ("queue", "xid", "count", "added", "expires"),
    "sequence": ("before",),
}
"""The own columns that a column is made from, if their names differ."""
_OWN: Final = ("queue", "op", "xid", "count", "added", "expires", "data", "file", "position", "size", "before")
_WRITTEN: Final = ("queue", "data", "added", "expires")
"""The columns that a sink accepts."""
_NAMES: Final = ("queue", "op", "file")
_TIMED: Final = pa.array([op for op, fields in FIELDS.items() if "added" in fields], pa.string())


class QueueColumns(OwnColumns):
    """The columns of the operations of queues."""

    make_schema = columns.schema
    make_collector = columns.Collector
    typed = TYPED
    key = "queue"
    contents = ("data",)
    payload = "data"
    json_fields: ClassVar = {
        "op": pa.string(),
        "xid": pa.int32(),
        "count": pa.int32(),
        "added": pa.timestamp("ms", tz="UTC"),
        "expires": pa.timestamp("ms", tz="UTC"),
        "data": pa.binary(),
    }
    json_ignored = ("queue",)
    part_field = "queue"
    own = _OWN
    made_from = _SOURCES
    conversions: ClassVar = {
        **dict.fromkeys(_NAMES, texts),
        **dict.fromkeys(("added", "expires", "timestamp"), lambda data: microseconds(data, 1000)),
        "timestamp_ns": lambda data: scaled(data, 1_000_000),
        "position": lambda data: data.view(pa.int64()),
        "size": sizes("an operation"),
    }

    def detail(self, batch: pa.RecordBatch) -> pa.Array:
        numbers = {"xid": batch.column("xid"), "count": batch.column("count")}
        numbers["expires"] = batch.column("expires").view(pa.int64())
        added = batch.column("added").view(pa.int64())
        lost = pc.and_(pc.is_valid(added), pc.is_null(scaled(batch.column("added"), 1_000_000)))
        if pc.any(lost).as_py():
            numbers["added"] = pc.if_else(lost, added, pa.scalar(None, pa.int64()))
        fields = [number_detail(name, found) for name, found in numbers.items()]
        return details([named_detail("queue", batch.column("queue")), *fields])

    def check(self, batch: pa.RecordBatch) -> None:
        columns.from_arrow(batch)

    as_messages = staticmethod(columns.as_messages)

    def left_out(self, messages: pa.RecordBatch) -> dict[str, int]:
        return left_out(messages, "key", "type", "fraction of a millisecond")


COLUMNS: Final = QueueColumns()


# --- the table queue_operations -------------------------------------------------------------------------------------


def recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `columns.py` as rows of the table `queue_operations`. Names are dictionaries."""
    names = [name for name in RECORDED.names if not name.endswith("_ms")]
    found = {name: batch.column(name) if name in _NAMES else COLUMNS.column(batch, name) for name in names}
    for name in ("added", "expires"):
        found[f"{name}_ms"] = _lost(batch.column(name), found[name])
    return pa.RecordBatch.from_arrays([found[name] for name in RECORDED.names], names=RECORDED.names)


def _lost(exact: pa.Array, kept: pa.Array) -> pa.Array:
    """The times that Spark's column cannot hold, in milliseconds."""
    if exact.null_count == kept.null_count:
        return pa.nulls(len(exact), pa.int64())
    return pc.if_else(pc.is_null(kept), exact.view(pa.int64()), pa.scalar(None, pa.int64()))


def operations(rows: pa.RecordBatch) -> list[Columns]:
    """Rows of the table `queue_operations` as operations again."""
    for name in ("op", "position", "size"):
        if rows.column(name).null_count:
            raise WrongUse(f"a row has null in the column {name}, which every operation needs")
    times = {}
    for name in ("added", "expires"):
        exact = pc.divide(rows.column(name).view(pa.int64()), 1000)
        times[name] = pc.coalesce(rows.column(f"{name}_ms"), exact)
    missing = pc.and_(pc.is_null(times["added"]), pc.is_in(rows.column("op"), _TIMED))
    if pc.any(missing).as_py():
        raise WrongUse(f"row {pc.index(missing, True).as_py()} has neither added nor added_ms, and its item needs one")
    names = ("op", "xid", "count", "added", "expires", "data")
    arrays = [times.get(name, rows.column(name)) for name in names]
    return from_arrow(pa.RecordBatch.from_arrays(arrays, names=names))


# --- writing ------------------------------------------------------------------------------------------------------


def check_writable(schema: pa.Schema, queue: str | None) -> None:
    """Raise `WrongUse` if columns cannot be written, before there are rows. `queue` is the option of that name."""
    unknown = [name for name in schema.names if name not in _WRITTEN]
    if unknown:
        known = "queue, data, added and expires"
        raise WrongUse(f"an item of a queue has no {', '.join(unknown)}: select only {known}")
    if "data" not in schema.names:
        raise WrongUse("there is no column data, with the data of the items")
    if "queue" not in schema.names and queue is None:
        raise WrongUse("name the queue of the items in a column queue, or by option('queue', NAME)")
    empty = writable(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))
    for _, rows in [("", empty), *by_queue(empty, "")]:
        from_arrow(rows)


def writable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of Spark for `Stage.append_batch`. An expiry at the epoch is refused: in a journal it means never."""
    if "expires" in batch.schema.names and pa.types.is_timestamp(batch.schema.field("expires").type):
        at_epoch = pc.equal(pc.floor_temporal(batch.column("expires"), unit="millisecond").cast(pa.int64()), 0)
        if pc.any(at_epoch).as_py():
            row = pc.index(at_epoch, True).as_py()
            raise WrongUse(f"row {row}: an item cannot expire at 1970-01-01 00:00:00, which in a journal means never")
    return batch
