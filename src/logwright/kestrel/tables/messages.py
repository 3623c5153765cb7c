"""Queues and messages: what a queue becomes where another format takes it, and what messages become in a queue.

    data       the value               expires    has no place in a message
    added      the time                queue      the key
    op, xid, count    are no message's: only operations that add an item go along

The other way a value is an item, and its time, cut to milliseconds, is when it was added; without one that is now. Keys
and types have no place in an item, but a key can name the queue. `columns.as_messages` and `columns.from_arrow` do it;
here are its fields, and the items that wait as rows of their own.
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
"""A row for each item: `state` is `open`, then it has an `xid`, or `waiting`."""
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 4 << 20


def named_by_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Messages whose keys name the queues that they go to; one with an empty key names none."""
    keys = bytes_of("key", batch.column("key")).cast(pa.binary())
    named = pc.greater(pc.binary_length(keys), 0)
    try:
        names = pc.if_else(named, keys, pa.scalar(None, pa.binary())).cast(pa.string())
    except pa.ArrowInvalid:
        raise WrongUse("a key is no text, so it cannot name a queue") from None
    return batch.drop_columns(["key"]).append_column("queue", names)


# --- the items that wait ----------------------------------------------------------------------------------------------


def item_batches(reader: Any, mode: Mode, on_damage: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
    """The items of one queue as opening it finds them: those that are reserved first, then those that wait."""
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
