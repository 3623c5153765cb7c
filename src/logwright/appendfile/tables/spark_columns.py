"""appendfile on Spark: its typed columns, and the same records in the columns that all formats share.

    kind STRING, segment BIGINT, data BINARY, checked BIGINT, current BIGINT

Fields that a record does not have are null, and so is an id of more than 63 bits. Of the shared columns `op` is the
kind, `value` the data, and `detail` the rest as JSON: the segment, both ids of a checkpoint, and `"lost":true` if a
repair removed records of the segment. Records have no time and no key.

The number of a record is `sequence` times 2^64 plus `position`, because a BIGINT cannot hold it. `sequence` is the id
of its file. So records are in order by (`sequence`, `position`), also those that were read before their file was put
aside by a recovery. It is null beyond 63 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import bytes_of, left_out, signed
from ...core.arrow.spark_columns import OwnColumns, details, number_detail, sizes, texts
from ...errors import WrongUse
from ..bytes.codec import Columns
from ..bytes.layout import RECOVERY_DIRECTORY, parse_boundary
from . import columns
from .columns import from_arrow

TYPED: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("segment", pa.int64()),
        ("data", pa.binary()),
        ("checked", pa.int64()),
        ("current", pa.int64()),
    ]
)

_SOURCES: Final = {
    "op": ("kind",),
    "value": ("data",),
    "detail": ("segment", "checked", "current", "lost"),
    "sequence": ("file_id",),
}
"""The own columns that a column is made from, if their names differ."""
_OWN: Final = ("kind", "segment", "data", "checked", "current", "lost", "file", "position", "size", "file_id")
_IDS: Final = ("segment", "checked", "current", "sequence", "file_id")
_WRITTEN: Final = ("data",)
"""The columns that a sink writes. It adds checkpoints itself: each batch is a segment."""


class RecordColumns(OwnColumns):
    """The columns of data and checkpoints."""

    make_schema = columns.schema
    make_collector = columns.Collector
    typed = TYPED
    key = "segment"
    contents = ("data",)
    payload = "data"
    json_fields: ClassVar = {
        "kind": pa.string(),
        "data": pa.binary(),
        "checked": pa.uint64(),
        "current": pa.uint64(),
        "generation": pa.uint64(),
    }
    json_ignored = ("segment",)
    own = _OWN
    made_from = _SOURCES
    conversions: ClassVar = {
        **dict.fromkeys(("kind", "op", "file"), texts),
        **dict.fromkeys(_IDS, signed),
        "position": lambda data: data.view(pa.int64()),
        "size": sizes("a record"),
    }

    def detail(self, batch: pa.RecordBatch) -> pa.Array:
        lost = pc.if_else(batch.column("lost"), '"lost":true', pa.scalar(None, pa.string()))
        return details([*(number_detail(name, batch.column(name)) for name in ("segment", "checked", "current")), lost])

    def check(self, batch: pa.RecordBatch) -> None:
        columns.from_arrow(batch)

    def json_rows(self) -> Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """With the generation, by the file: records that wait for a recovery are of another one than the current."""
        return lambda fields: [{**fields, "generation": _generation(fields["file"])} if "file" in fields else fields]

    as_messages = staticmethod(columns.as_messages)

    def left_out(self, messages: pa.RecordBatch) -> dict[str, int]:
        return left_out(messages, "key", "type", "time", "expiry")


COLUMNS: Final = RecordColumns()


def _generation(file: Any) -> int | None:
    """The generation of the records of a file; None for the current one."""
    directory, _, boundary = PurePosixPath(str(file)).parent.as_posix().rpartition("/")
    return parse_boundary(boundary) if directory == RECOVERY_DIRECTORY else None


# --- restoring --------------------------------------------------------------------------------------------------------


def records(batch: pa.RecordBatch) -> list[Columns]:
    """The rows of a batch of the table `segment_records`, as records again."""
    for name in ("kind", "segment", "position", "size"):
        if batch.column(name).null_count:
            raise WrongUse(f"column {name} is null in a row that is to become a record")
    ids = [batch.column(name).view(pa.uint64()) for name in ("checked", "current")]
    arrays = [batch.column("kind"), batch.column("data"), *ids]
    return from_arrow(pa.RecordBatch.from_arrays(arrays, names=["kind", "data", "checked", "current"]))


def lost_segments(batch: pa.RecordBatch) -> set[int]:
    """The segments that have lost records, by what the rows say of them."""
    return set(batch.column("segment").view(pa.uint64()).filter(batch.column("lost")).to_pylist())


# --- writing ------------------------------------------------------------------------------------------------------


def check_writable(schema: pa.Schema) -> None:
    """Raise `WrongUse` for columns that cannot be written, before there are any rows."""
    unknown = [name for name in schema.names if name not in _WRITTEN]
    if unknown:
        raise WrongUse(f"{', '.join(unknown)} cannot be written to a record: select data, which is all that it holds")
    if "data" not in schema.names:
        raise WrongUse("there is no column data, which is what is written")
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    bytes_of("data", empty.column("data"))
