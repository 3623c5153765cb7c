"""Conversion between items of queues and messages, and the items of a queue as rows.

    data       the value               added      the timestamp
    queue      the key                 expires    not part of a message
    op, xid, count    not part of a message: only operations that add an item are converted

In the other direction, a value becomes an item that was added at its timestamp, truncated to milliseconds, or now if it
has none. Items have no keys and types, but a key can name the queue. `columns.as_messages` and `columns.from_arrow` do
the conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import NAMES, bytes_of
from ...core.bytes.outcome import Damage, Mode
from ...errors import WrongUse
from ..files.survey import Survey
from ..model.replay import QueueItem

_TIME: Final = pa.timestamp("ms", tz="UTC")
ITEM_SCHEMA: Final = pa.schema(
    [
        pa.field("queue", NAMES, nullable=False),
        pa.field("state", NAMES, nullable=False),
        pa.field("xid", pa.int32()),
        pa.field("added", _TIME),
        pa.field("expires", _TIME),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""A row for each item. `state` is `open`, with an `xid`, or `waiting`."""
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 4 << 20


def named_by_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Messages with their keys as the names of their queues; null for an empty key."""
    keys = bytes_of("key", batch.column("key")).cast(pa.binary())
    named = pc.greater(pc.binary_length(keys), 0)
    try:
        names = pc.if_else(named, keys, pa.scalar(None, pa.binary())).cast(pa.string())
    except pa.ArrowInvalid:
        raise WrongUse("a key is not UTF-8, so it cannot name a queue") from None
    return batch.drop_columns(["key"]).append_column("queue", names)


# --- items as rows ----------------------------------------------------------------------------------------------------


def item_batches(reader: Any, mode: Mode, on_damage: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
    """The items of one queue as opening it would find them: first the reserved ones, then the waiting ones."""
    with reader.snapshot() as files:
        survey = Survey(reader, files, mode="permissive" if mode != "failfast" else mode, on_damage=on_damage)
        reserved = [("open", item) for item in sorted(survey.reserved(), key=lambda item: item.xid)]
        rows: list[tuple[str, QueueItem]] = []
        size = 0
        for state, item in chain(reserved, (("waiting", item) for item in survey.waiting())):
            rows.append((state, item))
            size += len(item.data)
            if len(rows) == _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _item_batch(reader.queue, rows)
                rows, size = [], 0
        if rows:
            yield _item_batch(reader.queue, rows)


def _item_batch(queue: str, rows: list[tuple[str, QueueItem]]) -> pa.RecordBatch:
    states = [state for state, _ in rows]
    items = [item for _, item in rows]
    arrays = [
        pa.array([queue] * len(rows)).dictionary_encode(),
        pa.array(states).dictionary_encode(),
        pa.array([item.xid if state == "open" else None for state, item in rows], pa.int32()),
        pa.array([item.added for item in items], pa.int64()).cast(_TIME),
        pa.array([item.expires for item in items], pa.int64()).cast(_TIME),
        pa.array([item.data for item in items], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ITEM_SCHEMA)
