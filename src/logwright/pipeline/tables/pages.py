"""The tables transactions and page_versions: the page transactions, and the pages after each of them.

    events = tables.events(spark.read.format("logwright").load("journals"))
    page_versions(events).where("page = 65566").orderBy("transaction").show()

`transactions` has a row for every transaction:

    journal, file, transaction      the number of the transaction in its file, from 0
    offset, timestamp               where it begins in the file, and when it was created
    flags, complete, outcome        whether it is in the storage, and its outcome
    operations, pages, bytes        the numbers of its operations, of pages, and of bytes that they changed

`page_versions` has a row for every page and every completed transaction that changed it:

    journal, file, page             which page
    version                         the number of the change of the page, from 1
    transaction, timestamp          the transaction that made it
    op, deleted                     its last operation on the page, and whether that removed it
    ranges                          the known bytes of the page after it, as JSON: [{"offset", "data"}],
                                    the data in base64, as `logwright state` prints it; null if it was removed
    gaps                            how many losses of transactions precede this one, by the account of losses: bytes
                                    known before the last loss are unknown after it; 0 for none

Transactions that were rolled back or are incomplete make no versions of pages. Pages with offsets of more than 63 bits
are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from ...yeltsin.model.replay import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VERSION: Final = (
    "journal STRING, file STRING, page BIGINT, version BIGINT, transaction BIGINT, timestamp TIMESTAMP, op STRING, "
    "deleted BOOLEAN, ranges STRING, gaps INT"
)
_COMMON: Final = ("journal", "file", "page")


def _operations(events: DataFrame) -> DataFrame:
    """Every operation of all journals of page transactions, and a row `end` for a transaction without any."""
    details = {
        "offset": "bigint", "flags": "smallint", "outcome": "string", "page": "bigint", "page_offset": "int",
        "gaps": "int",
    }  # fmt: skip
    found = (F.get_json_object("detail", f"$.{name}").try_cast(kind).alias(name) for name, kind in details.items())
    place = ("journal", "file", F.col("sequence").alias("transaction"), "position", "timestamp", "op", "value")
    return events.where("format = 'yeltsin'").select(*place, *found)


def transactions(events: DataFrame) -> DataFrame:
    """Every transaction."""
    return (
        _operations(events)
        .groupBy("journal", "file", "transaction", "offset", "timestamp", "flags", "outcome")
        .agg(
            F.count_if(F.col("op") != "end").alias("operations"),
            F.count_distinct("page").alias("pages"),
            F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).cast("bigint").alias("bytes"),
        )
        .select(
            *("journal", "file", "transaction", "offset", "timestamp", "flags"),
            (F.col("flags").bitwiseAND(F.lit(1)) != 0).alias("complete"),
            *("outcome", "operations", "pages", "bytes"),
        )
    )


def page_versions(events: DataFrame) -> DataFrame:
    """Every page after every transaction that changed it."""
    versions_of: Any = F.arrow_udtf(Versions, returnType=_VERSION)
    changes = _operations(events).where("outcome = 'completed' and page is not null")
    chosen = changes.select(*_COMMON, "transaction", "position", "timestamp", "op", "page_offset", "value", "gaps")
    found: DataFrame = versions_of(chosen.asTable().partitionBy(*_COMMON).orderBy("position"))
    return found


class Versions:
    """Turns the operations on one page, which arrive in order, one batch at a time, into versions."""

    def __init__(self) -> None:
        self._known: Any = Ranges()
        self._version = 0
        self._gaps = 0
        self._last: dict[str, Any] | None = None

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The versions that are complete because an operation of another transaction follows."""
        done = []
        for row in batch.to_pylist():
            if self._last is not None and self._last["transaction"] != row["transaction"]:
                done.append(self._version_row(self._last))
            self._last = row
            if (row["gaps"] or 0) > self._gaps:
                self._gaps = row["gaps"]
                self._known = Ranges()
            if row["op"] == "modify":
                self._known.put(row["page_offset"] or 0, row["value"] or b"")
            else:
                self._known = Ranges()
        if done:
            yield _batch(done)

    def terminate(self) -> Iterator[pa.RecordBatch]:
        """The last version."""
        if self._last is not None:
            yield _batch([self._version_row(self._last)])

    def _version_row(self, row: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        is_removed = row["op"] == "remove"
        ranges = None if is_removed else json.dumps(self._known.as_json(), separators=(",", ":"))
        kept = {name: row[name] for name in (*_COMMON, "transaction", "timestamp", "op")}
        return {**kept, "version": self._version, "deleted": is_removed, "ranges": ranges, "gaps": self._gaps}


_SCHEMA: Final = pa.schema(
    [
        ("journal", pa.string()),
        ("file", pa.string()),
        ("page", pa.int64()),
        ("version", pa.int64()),
        ("transaction", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("op", pa.string()),
        ("deleted", pa.bool_()),
        ("ranges", pa.string()),
        ("gaps", pa.int32()),
    ]
)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
