"""Operations <-> Arrow: the schema of yeltsin, and the kernel's columns as record batches. A row is an operation.

    transaction  int64, counted from 0             offset       uint64, of the transaction in the file
    timestamp    timestamp[s, UTC], see below      flags        uint8
    complete     bool, it is in the storage        outcome      dictionary of string
    operation    int32, within its transaction     op           dictionary of string
    page         uint64                            page_offset  int32
    before       binary                            after        binary
    free_before  uint64                            free_after   uint64
    end_data     binary, what the end of the transaction carries, if anything: in its last row
    gaps         int32, how often others are lost before the transaction, by the account of losses; null for never

and on request

    file         dictionary of string              position     uint64, of the operation in that file
    size         int64, of the operation           journal      dictionary of string, the name of the file

What an operation does not have is null. A transaction that has no operations has one row, whose `op` is `end`.

Parquet has no seconds, but milliseconds: a time that these cannot hold is the largest or smallest one that they can.
Messages have nanoseconds, and a time that these cannot hold is null there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    MOST_SIGNED,
    NAMES,
    JoiningCollector,
    binary_array,
    bitmap,
    chosen_schema,
    fixed_array,
    repeated,
)
from ...core.arrow.spark_columns import scaled
from ...core.read.columns import BATCH_BYTES
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.layout import ALLOCATION, COMPLETE, COMPLETION, MODIFICATION, REMOVAL, ROLLBACK
from ..bytes.records import END, OPS, OUTCOMES
from ..files.cursor import Chunk
from ..files.files import JournalFile

_TIME: Final = pa.timestamp("s", tz="UTC")
_MOST_SECONDS: Final = MOST_SIGNED // 1000
_FIELDS: Final = {
    "transaction": pa.field("transaction", pa.int64(), nullable=False),
    "offset": pa.field("offset", pa.uint64(), nullable=False),
    "timestamp": pa.field("timestamp", _TIME, nullable=False),
    "flags": pa.field("flags", pa.uint8(), nullable=False),
    "complete": pa.field("complete", pa.bool_(), nullable=False),
    "outcome": pa.field("outcome", NAMES, nullable=False),
    "operation": pa.field("operation", pa.int32(), nullable=False),
    "op": pa.field("op", NAMES, nullable=False),
    "page": pa.field("page", pa.uint64()),
    "page_offset": pa.field("page_offset", pa.int32()),
    "before": pa.field("before", pa.binary()),
    "after": pa.field("after", pa.binary()),
    "free_before": pa.field("free_before", pa.uint64()),
    "free_after": pa.field("free_after", pa.uint64()),
    "end_data": pa.field("end_data", pa.binary()),
    "gaps": pa.field("gaps", pa.int32()),
    "file": pa.field("file", NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int64(), nullable=False),
    "journal": pa.field("journal", NAMES, nullable=False),
}
COLUMN_NAMES: Final = tuple(_FIELDS)
DEFAULT_NAMES: Final = COLUMN_NAMES[:16]
_WANT: Final = {
    "transaction": codec.TRANSACTIONS,
    "offset": codec.OFFSETS,
    "timestamp": codec.TIMESTAMPS,
    "flags": codec.FLAGS,
    "complete": codec.FLAGS,
    "outcome": codec.ENDINGS,
    "operation": codec.OPERATIONS,
    "op": codec.KINDS,
    "page": codec.PAGES | codec.KINDS,
    "page_offset": codec.PAGE_OFFSETS | codec.KINDS,
    "before": codec.BEFORE | codec.KINDS,
    "after": codec.AFTER | codec.KINDS,
    "free_before": codec.FREE_BEFORE | codec.KINDS,
    "free_after": codec.FREE_AFTER | codec.KINDS,
    "end_data": codec.END_DATA,
    "gaps": codec.OFFSETS,
    "position": codec.POSITIONS,
    "size": codec.SIZES,
}
"""What to decode for a column: which operation has it, the kind of the operation says."""
_HAS: Final = {
    "page": (ALLOCATION, MODIFICATION, REMOVAL),
    "page_offset": (MODIFICATION,),
    "before": (MODIFICATION,),
    "after": (MODIFICATION,),
    "free_before": (ALLOCATION, REMOVAL),
    "free_after": (ALLOCATION,),
}
_KINDS: Final = pa.array(list(OPS.values()), pa.uint8())
_OP_NAMES: Final = pa.array([*OPS, END], pa.string())
"""The names of these, and of the row of a transaction without any."""
_ENDINGS: Final = pa.array([0, ROLLBACK, COMPLETION], pa.uint8())
_OUTCOMES: Final = pa.array([OUTCOMES[None], OUTCOMES[ROLLBACK], OUTCOMES[COMPLETION]], pa.string())


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; of the default columns without names."""
    return chosen_schema("yeltsin", _FIELDS, DEFAULT_NAMES if names is None else names)


def to_batch(columns: Columns, wanted: pa.Schema, source: JournalFile) -> pa.RecordBatch:
    """The kernel's columns as a record batch, without copying; `source` is where they come from."""
    kinds = None if columns.kinds is None else fixed_array(pa.uint8(), columns.kinds, columns.count)
    arrays = [_array(columns, kinds, name, source) for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _array(columns: Columns, kinds: pa.Array | None, name: str, source: JournalFile) -> pa.Array:
    count, kind = columns.count, _FIELDS[name].type
    if name in ("file", "journal"):
        return repeated([(source.name, count)])
    if name == "gaps":
        return _gaps(columns, source.gaps)
    if name == "op":
        assert kinds is not None
        indices = pc.fill_null(pc.index_in(kinds, _KINDS), len(_KINDS))
        return pa.DictionaryArray.from_arrays(indices, _OP_NAMES)
    if name == "outcome":
        endings = fixed_array(pa.uint8(), columns.endings, count)
        return pa.DictionaryArray.from_arrays(pc.index_in(endings, _ENDINGS), _OUTCOMES)
    if name == "complete":
        flags = fixed_array(pa.uint8(), columns.flags, count)
        return pc.not_equal(pc.bit_wise_and(flags, pa.scalar(COMPLETE, pa.uint8())), 0)
    if name == "end_data":
        carried = binary_array(columns.end_data_ends, columns.end_data, count, None)
        return pc.if_else(pc.greater(pc.binary_length(carried), 0), carried, pa.scalar(None, kind))
    if name == "timestamp":
        return _times(fixed_array(pa.int64(), columns.timestamps, count))
    validity = None
    if name in _HAS:
        assert kinds is not None
        validity = bitmap(pc.is_in(kinds, pa.array(_HAS[name], pa.uint8())))
    if name in ("before", "after"):
        ends, data = getattr(columns, f"{name}_ends"), getattr(columns, name)
        return binary_array(ends, data, count, validity)
    return fixed_array(kind, getattr(columns, _ATTRIBUTES[name]), count, validity)


def _times(seconds: pa.Array) -> pa.Array:
    """Times that fit milliseconds as well."""
    extremes = pc.min_max(seconds).as_py()
    if len(seconds) and max(-extremes["min"], extremes["max"]) > _MOST_SECONDS:
        seconds = pc.max_element_wise(pc.min_element_wise(seconds, _MOST_SECONDS), -_MOST_SECONDS)
    return seconds.view(_TIME)


def _gaps(columns: Columns, gaps: Sequence[int]) -> pa.Array:
    """How many of the offsets at which transactions are lost are not after the transaction of each row."""
    if not gaps or columns.offsets is None:
        return pa.nulls(columns.count, pa.int32())
    offsets = memoryview(columns.offsets).cast("Q")
    return pa.array([bisect_right(gaps, offset) or None for offset in offsets], pa.int32())


_ATTRIBUTES: Final = {
    "transaction": "transactions",
    "offset": "offsets",
    "flags": "flags",
    "operation": "operations",
    "page": "pages",
    "page_offset": "page_offsets",
    "free_before": "free_before",
    "free_after": "free_after",
    "position": "positions",
    "size": "sizes",
}
"""The columns that are taken from the kernel unchanged, with its name for each."""


class Collector(JoiningCollector[Chunk]):
    """Makes record batches of about `batch_bytes` from chunks."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        super().__init__(schema(names, sharded=sharded), _WANT, batch_bytes)

    def _batch_of(self, chunk: Chunk) -> pa.RecordBatch:
        columns = kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.base, chunk.index, self._want)
        return to_batch(columns, self.schema, chunk.source)


def as_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The modifications of a batch as what every format of messages takes: `value`, `timestamp` and `key`.

    The value is the image after a modification, and the key names the page; other operations have no value
    there, and are left out.
    """
    there = batch.filter(pc.is_valid(batch.column("after")))
    found: dict[str, Any] = {"value": there.column("after")}
    if "timestamp" in there.schema.names:
        found["timestamp"] = scaled(there.column("timestamp"), 1_000_000_000).view(pa.timestamp("ns", tz="UTC"))
    if "page" in there.schema.names:
        found["key"] = there.column("page").cast(pa.string()).cast(pa.binary())
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))
