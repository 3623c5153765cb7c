"""The tables of the pipeline: each is a function from DataFrame to DataFrame, usable without the rest.

    records = spark.read.format("logwright").option("mode", "permissive").load("journals")
    tables.activity(tables.events(records)).show()

All tables are made from records in the columns that all formats share, `EVENTS` and `damage`; fields of one format only
are in `op`, `key`, `value` and `detail`. So a table of one format is a filter on `format` and a few expressions, or a
module of this package (`queue_items.py`, `kv.py`, `segments.py`, `pages.py`), and a row in `TABLES`. Files and
consumers are not in records: the driver lists them in the columns `FILES` and `OFFSETS` (see `pipeline/listing.py`).

No function here starts a job, and none depends on the session's time zone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from ...spark.schemas import UNIFIED
from ..settings import JournalRule
from .decoding import decode_column
from .kv import kv_history, kv_state
from .pages import page_versions, transactions
from .queue_items import queue_items
from .segments import segments

__all__ = [
    "DAMAGE",
    "EVENTS",
    "FILES",
    "OFFSETS",
    "TABLES",
    "Table",
    "activity",
    "consumers",
    "damage",
    "events",
    "files",
    "kv_history",
    "kv_state",
    "merge_activity",
    "messages",
    "page_versions",
    "queue_items",
    "segments",
    "split_damage",
    "transactions",
]

Kind: TypeAlias = Literal["append", "merge", "whole"]
Source: TypeAlias = Literal["records", "events", "files", "offsets"]

EVENTS: Final = pa.schema([field for field in UNIFIED if field.name != "damage"])
DAMAGE: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
"""Damaged ranges of bytes, with the reason. The file is null for a journal that could not be opened.

The kinds `lost` and `restored` are from the account of losses that repairs write: see `core/repair/losses.py`. Their
`detail` is the loss as JSON; for other kinds it is null.
"""
FILES: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("part", pa.string()),
        ("file", pa.string()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
    ]
)
"""The files of journals: `file` as in the other tables, and the range of its record numbers, `first` <= n < `next`."""
OFFSETS: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("part", pa.string()),
        ("consumer", pa.string()),
        ("offset", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("problem", pa.string()),
    ]
)
"""Consumers, and the record numbers in their part of a journal. An offset is null before the first commit, and if there
is a `problem`."""

_MINUTE_US: Final = 60_000_000
_SEGMENTS: Final = "/jnl/"
"""The separator between a shard and the name of its segment in the path of a file."""


# --- of every format ------------------------------------------------------------------------------------------------


def events(records: DataFrame) -> DataFrame:
    """Every complete record, in the columns of `EVENTS`."""
    return records.where("damage is null").select(*EVENTS.names)


def damage(records: DataFrame) -> DataFrame:
    """Every damaged range of bytes, in the columns of `DAMAGE`."""
    place = ("format", "journal", "file", "position")
    kind = F.substring_index("damage", ": ", 1)
    reason = F.expr("substring(damage, length(substring_index(damage, ': ', 1)) + 3)")
    found = records.where("damage is not null")
    detail = F.lit(None).cast("string").alias("detail")
    return found.select(*place, F.col("size").cast("bigint"), kind.alias("kind"), reason.alias("reason"), detail)


def split_damage(text: str) -> tuple[str, str]:
    """Split the source's column `damage` into kind and reason, for one row, in Python."""
    kind, _, reason = text.partition(": ")
    return kind, reason


def activity(events: DataFrame) -> DataFrame:
    """Records and bytes of each journal per minute; the minute is null for records without a time."""
    micros = F.unix_micros("timestamp")
    minute = F.timestamp_micros(micros - F.pmod(micros, F.lit(_MINUTE_US)))
    counted = events.select("format", "journal", minute.alias("minute"), "size")
    totals = (F.count("*").alias("records"), F.sum(F.col("size").cast("bigint")).alias("bytes"))
    return counted.groupBy("format", "journal", "minute").agg(*totals)


def merge_activity(old: DataFrame, new: DataFrame) -> DataFrame:
    """Merge two tables of activity."""
    totals = (F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
    return old.unionByName(new).groupBy("format", "journal", "minute").agg(*totals)


def files(listing: DataFrame) -> DataFrame:
    """The list of files, in the columns of `FILES`."""
    return listing.select(*FILES.names)


def consumers(offsets: DataFrame) -> DataFrame:
    """The offset, lag and status of each consumer.

    `lag` is the number of records that it has not read, `missed` the number of records that were removed before it read
    them; both are null without an offset. `status` is `current`, `behind`, `overtaken` (some records were missed),
    `ahead` (of the end of the journal, which was cut or replaced), `new` (nothing committed yet) or `unreadable`.
    """
    lag = F.greatest(F.col("next") - F.col("offset"), F.lit(0))
    missed = F.greatest(F.col("first") - F.col("offset"), F.lit(0))
    status = (
        F.when(F.col("problem").isNotNull(), "unreadable")
        .when(F.col("offset").isNull(), "new")
        .when(F.col("offset") > F.col("next"), "ahead")
        .when(F.col("offset") < F.col("first"), "overtaken")
        .when(F.col("offset") < F.col("next"), "behind")
        .otherwise("current")
    )
    return offsets.select(
        "format",
        "journal",
        _shard(F.col("part")),
        "consumer",
        "offset",
        "first",
        "next",
        F.when(F.col("offset").isNotNull(), lag).alias("lag"),
        F.when(F.col("offset").isNotNull(), missed).alias("missed"),
        status.alias("status"),
        "problem",
    )


def _shard(part: Column) -> Column:
    """The name of a part; null if a journal has only one."""
    return F.when(part != "", part).alias("shard")


# --- of one format --------------------------------------------------------------------------------------------------


def messages(events: DataFrame, rules: Sequence[JournalRule] = ()) -> DataFrame:
    """The messages of sej journals, in the columns of the source `sej` and the name of the journal.

    If any rule decodes, there are two more columns: `decoded`, the value as JSON, and `decode_error`, why it could not
    be decoded. Both are null for journals without such a rule.
    """
    file = F.col("file")
    found = events.where("format = 'sej'").select(
        "journal",
        F.when(file.contains(_SEGMENTS), F.substring_index(file, _SEGMENTS, 1)).alias("shard"),
        F.col("sequence").alias("offset"),
        "timestamp",
        "timestamp_ns",
        F.get_json_object("detail", "$.type").cast("smallint").alias("type"),
        "key",
        "value",
    )
    if not any(rule.decode for rule in rules):
        return found
    decoded = found.withColumn("_decoding", decode_column(rules))
    return decoded.select(*found.columns, "_decoding.decoded", "_decoding.decode_error")


# --- all of them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its source, how to make it, and how a batch changes it.

    `append`: the rows of a batch are added. `merge`: `merged(old, new)` replaces both. `whole`: it is rebuilt from all
    rows of `source`; from events only if there are new ones of its `format`. `build` takes a DataFrame of its source;
    if the table `decodes` also the rules for journals, and if it is `dated` also the time.
    """

    name: str
    build: Callable[..., DataFrame]
    kind: Kind
    source: Source = "events"
    merged: Callable[[DataFrame, DataFrame], DataFrame] | None = None
    decodes: bool = False
    dated: bool = False
    format: str | None = None

    def make(
        self, source: DataFrame, rules: Sequence[JournalRule] = (), at: datetime.datetime | None = None
    ) -> DataFrame:
        """Make the table, or the rows that a batch adds, from a DataFrame of its source."""
        if self.decodes:
            return self.build(source, rules)
        return self.build(source, at) if self.dated else self.build(source)

    @property
    def needs_all_events(self) -> bool:
        """Whether it is made from all events, not only from those of a batch."""
        return self.kind == "whole" and self.source == "events"


TABLES: Final = {
    table.name: table
    for table in (
        Table("events", events, "append", source="records"),
        Table("damage", damage, "append", source="records"),
        Table("messages", messages, "append", decodes=True),
        Table("activity", activity, "merge", merged=merge_activity),
        Table("queue_items", queue_items, "whole", dated=True, format="kestrel"),
        Table("kv_history", kv_history, "whole", format="versioned"),
        Table("kv_state", kv_state, "whole", dated=True, format="versioned"),
        Table("segments", segments, "whole", format="appendfile"),
        Table("transactions", transactions, "whole", format="yeltsin"),
        Table("page_versions", page_versions, "whole", format="yeltsin"),
        Table("consumers", consumers, "whole", source="offsets"),
        Table("files", files, "whole", source="files"),
    )
}
"""All tables, in the order in which they are made."""
