"""The table of sej: `messages`, a row for every message.

    shard                           the shard; null in a journal without shards
    offset, timestamp, timestamp_ns, type, key, value       as in the source `sej` on Spark
    file, position, size            where the message is; a segment keeps its name

A message never changes, and no table needs more than one: every row is closed, and there is no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from ...core.arrow.columns import constant
from ...core.read.materializer import Continued, Materializer, Materials, Rows
from .columns import COLUMN_NAMES
from .spark_columns import COLUMNS, TYPED

MESSAGES: Final = "messages"
_SCHEMA: Final = pa.schema(
    [
        TYPED.field("shard"),
        *(field for field in TYPED if field.name != "shard"),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
    ]
)


class MessageMaterials(Materials):
    """The table of messages."""

    record_table = MESSAGES
    is_ordered = False

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {MESSAGES: _SCHEMA}

    @property
    def sources(self) -> Sequence[str]:
        return [name for name in COLUMN_NAMES if name != "shard"]

    def materializer(self, continued: Continued) -> MessageMaterializer:
        return MessageMaterializer(continued.part)


class MessageMaterializer(Materializer):
    """Makes the rows of one shard, or of a journal without shards."""

    def __init__(self, shard: str) -> None:
        self._shard = shard or None

    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        arrays = [self._column(batch, name) for name in _SCHEMA.names]
        yield Rows(MESSAGES, pa.RecordBatch.from_arrays(arrays, names=_SCHEMA.names))

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name == "shard":
            return constant(self._shard, batch.num_rows)
        return batch.column(name) if name == "file" else COLUMNS.column(batch, name)

    def live(self, now_ns: int) -> Iterator[Rows]:
        return iter(())

    def save(self, sink: pa.NativeFile) -> None:
        with pa.ipc.new_stream(sink, pa.schema([])):
            return


MATERIALS: Final = MessageMaterials()
