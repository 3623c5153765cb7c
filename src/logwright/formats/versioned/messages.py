"""Stores and messages: what a change becomes where another format takes it, and what messages become in a store.

    o    the value, as JSON            t    the time
    k    the key                       deletions are no message's: only changes that set a key go along

The other way the value of a message must be JSON, its key is the key that is set, and its time that of the change; a
message without a value deletes its key. `columns.as_messages` and `columns.from_arrow` do it; here is what is told.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..columns import plain


def left_out(batch: pa.RecordBatch) -> dict[str, int]:
    """What messages have that changes have no place for: what it is, and how many of them have it."""
    found: dict[str, int] = {}
    if "type" in batch.schema.names:
        found["type"] = int(pc.sum(pc.not_equal(plain(batch.column("type")), 0)).as_py() or 0)
    if "expires" in batch.schema.names:
        expires = batch.column("expires")
        found["expiry"] = len(expires) - expires.null_count
    return found
