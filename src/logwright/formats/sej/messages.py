"""What messages of other formats have that those of sej have no place for."""

from __future__ import annotations

import pyarrow as pa


def left_out(batch: pa.RecordBatch) -> dict[str, int]:
    """What has no place in a message: what it is, and how many of these messages have it."""
    if "expires" not in batch.schema.names:
        return {}
    expires = batch.column("expires")
    return {"expiry": len(expires) - expires.null_count}
