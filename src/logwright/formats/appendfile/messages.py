"""What messages of other formats have that records of appendfile have no place for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..columns import bytes_of, plain


def left_out(batch: pa.RecordBatch) -> dict[str, int]:
    """What has no place in a record: what it is, and how many of these messages have it."""
    found: dict[str, int] = {}
    if "key" in batch.schema.names:
        found["key"] = _count(pc.greater(pc.binary_length(bytes_of("key", batch.column("key"))), 0))
    if "type" in batch.schema.names:
        found["type"] = _count(pc.not_equal(plain(batch.column("type")), 0))
    for name, what in (("timestamp", "time"), ("expires", "expiry")):
        if name in batch.schema.names:
            found[what] = batch.num_rows - batch.column(name).null_count
    return found


def _count(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)
