"""yeltsin on Spark: its typed columns, and the same operations in the columns that all formats share.

    transaction BIGINT, offset BIGINT, timestamp TIMESTAMP, flags SMALLINT, complete BOOLEAN, outcome STRING,
    operation INT, op STRING, page BIGINT, page_offset INT, before BINARY, after BINARY, free_before BIGINT,
    free_after BIGINT

A row is an operation; what it does not have is null, and so is a number or a time that 63 bits cannot hold. Of the
shared columns `sequence` is the transaction, `key` the page in decimal digits, `value` the image after a modification,
and `detail` the rest of it in JSON, with the image before in base64, and so what the end of its transaction carries, if
the operation is its last one. `gaps` in there is how often transactions before this one are lost. Operations are in
order by `position`. A transaction without any has a row `end`.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from ...core.arrow.columns import signed
from ...core.arrow.spark_columns import OwnColumns, microseconds, scaled, sizes, texts
from ...errors import WrongUse
from ..bytes.records import END
from . import columns
from .journal_target import check_names, check_rows

TYPED: Final = pa.schema(
    [
        ("transaction", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("flags", pa.int16()),
        ("complete", pa.bool_()),
        ("outcome", pa.string()),
        ("operation", pa.int32()),
        ("op", pa.string()),
        ("page", pa.int64()),
        ("page_offset", pa.int32()),
        ("before", pa.binary()),
        ("after", pa.binary()),
        ("free_before", pa.int64()),
        ("free_after", pa.int64()),
    ]
)

DETAILS: Final = (
    "offset", "flags", "outcome", "operation", "page", "page_offset", "free_before", "free_after", "gaps"
)  # fmt: skip
"""What the column `detail` has of an operation, as far as it has it; and"""
_ENCODED: Final = ("before", "end_data")
"""these, in base64."""
_SOURCES: Final = {
    "value": ("after",),
    "timestamp_ns": ("timestamp",),
    "key": ("page",),
    "sequence": ("transaction",),
    "detail": (*DETAILS, *_ENCODED),
}
"""The own columns that a column is made from, if their names differ."""
_OWN: Final = (*TYPED.names, "end_data", "gaps", "file", "position", "size")


class OperationColumns(OwnColumns):
    """The columns of the operations on pages."""

    make_schema = columns.schema
    make_collector = columns.Collector
    typed = TYPED
    key = "page"
    contents = ("before", "after")
    json_fields: ClassVar = {
        "transaction": pa.int64(),
        "timestamp": pa.timestamp("s", tz="UTC"),
        "flags": pa.uint8(),
        "outcome": pa.string(),
        "op": pa.string(),
        "page": pa.uint64(),
        "page_offset": pa.int32(),
        "before": pa.binary(),
        "after": pa.binary(),
        "free_before": pa.uint64(),
        "free_after": pa.uint64(),
        "end_data": pa.binary(),
    }
    json_ignored = ("previous", "next", "complete", "offset", "operation", "gaps", "journal")
    own = _OWN
    made_from = _SOURCES
    conversions: ClassVar = {
        **dict.fromkeys(("outcome", "op", "file"), texts),
        **dict.fromkeys(("offset", "page", "free_before", "free_after", "position"), signed),
        "timestamp": lambda data: microseconds(data, 1_000_000),
        "timestamp_ns": lambda data: scaled(data, 1_000_000_000),
        "flags": lambda data: data.cast(pa.int16()),
        "key": lambda data: data.cast(pa.string()).cast(pa.binary()),
        "size": sizes("an operation"),
    }

    def detail(self, batch: pa.RecordBatch) -> pa.Array:
        columns = {name: batch.column(name).to_pylist() for name in (*DETAILS, *_ENCODED)}
        found = []
        for row in range(batch.num_rows):
            fields = {name: values[row] for name, values in columns.items() if values[row] is not None}
            for name in _ENCODED:
                if name in fields:
                    fields[name] = base64.b64encode(fields[name]).decode()
            found.append(json.dumps(fields, separators=(",", ":")))
        return pa.array(found, pa.string())

    def check(self, batch: pa.RecordBatch) -> None:
        check_names(batch.schema.names)
        check_rows(batch)

    def json_rows(self) -> Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """A row for each operation of a transaction, or one row for a transaction without any."""
        numbers = itertools.count()

        def rows(fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
            operations = fields.get("operations")
            if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
                raise WrongUse("operations is not a list of objects")
            whole = {name: value for name, value in fields.items() if name != "operations"}
            number = next(numbers)
            return [{**whole, **each, "transaction": number} for each in operations or [{"op": END, "page": 0}]]

        return rows

    as_messages = staticmethod(columns.as_messages)


COLUMNS: Final = OperationColumns()
