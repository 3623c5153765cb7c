"""The tables of the pipeline: each a function of records, DataFrame to DataFrame, usable without the rest.

    records = spark.read.format("logwright").option("mode", "permissive").load("journals")
    tables.activity(tables.events(records)).show()

Everything comes from records in the columns that all formats share, `EVENTS` and `damage`; what only one format has is
in `op`, `key`, `value` and `detail`. So a table that only one format can fill is a filter on `format` and a few
expressions, or a module beside this one (`queue_items.py`, `kv.py`, `segments.py`), and one more row in `TABLES`. What
records cannot tell, which files there are and how far consumers have come, is listed on the driver in the columns
`FILES` and `OFFSETS` (see `listing.py`).

No function here runs anything, and none depends on the session's time zone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from ..spark.schemas import UNIFIED
from .decoding import decode_column
from .kv import kv_history, kv_state
from .pages import page_versions, transactions
from .queue_items import queue_items
from .segments import segments
from .settings import JournalRule

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
"""Where bytes are no record, and why. The file is null for a journal that could not be opened at all.

The kinds `lost` and `restored` are what repairs have done, from the account of losses of the journal: see
`core/repair/losses.py`. Their `detail` is the loss as JSON; for other kinds it is null.
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
"""The files of journals: `file` as in the other tables, and the record numbers `first` <= n < `next` that it is for."""
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
"""Consumers, and what their part of a journal holds. An offset is null before the first commit, and for a `problem`."""

_MINUTE_US: Final = 60_000_000
_SEGMENTS: Final = "/jnl/"
"""What stands between a shard and the name of its segment in the path of a file; without a shard nothing is before."""


# --- of every format ------------------------------------------------------------------------------------------------


def events(records: DataFrame) -> DataFrame:
    """Every record that is whole, in the columns of `EVENTS`."""
    return records.where("damage is null").select(*EVENTS.names)


def damage(records: DataFrame) -> DataFrame:
    """Every range of bytes that is no record, in the columns of `DAMAGE`."""
    place = ("format", "journal", "file", "position")
    kind = F.substring_index("damage", ": ", 1)
    reason = F.expr("substring(damage, length(substring_index(damage, ': ', 1)) + 3)")
    found = records.where("damage is not null")
    detail = F.lit(None).cast("string").alias("detail")
    return found.select(*place, F.col("size").cast("bigint"), kind.alias("kind"), reason.alias("reason"), detail)


def split_damage(text: str) -> tuple[str, str]:
    """Kind and reason of what the source says about a damaged range: `damage` for one row, in Python."""
    kind, _, reason = text.partition(": ")
    return kind, reason


def activity(events: DataFrame) -> DataFrame:
    """Records and bytes of each journal in each minute; the minute is null for records without a time."""
    micros = F.unix_micros("timestamp")
    minute = F.timestamp_micros(micros - F.pmod(micros, F.lit(_MINUTE_US)))
    counted = events.select("format", "journal", minute.alias("minute"), "size")
    totals = (F.count("*").alias("records"), F.sum(F.col("size").cast("bigint")).alias("bytes"))
    return counted.groupBy("format", "journal", "minute").agg(*totals)


def merge_activity(old: DataFrame, new: DataFrame) -> DataFrame:
    """The activity of the events of two tables together."""
    totals = (F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
    return old.unionByName(new).groupBy("format", "journal", "minute").agg(*totals)


def files(listing: DataFrame) -> DataFrame:
    """The inventory, in the columns of `FILES`."""
    return listing.select(*FILES.names)


def consumers(offsets: DataFrame) -> DataFrame:
    """How far each consumer has come, and how far it is behind.

    `lag` is how many records are before it, `missed` how many were removed before it came to them; both null without
    an offset. `status` is `current`, `behind`, `overtaken` (something was missed), `ahead` (of everything that there
    is: the journal lost its end, or became another one), `new` (nothing committed yet) or `unreadable`.
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
    """The name of a part, null where a journal has only one."""
    return F.when(part != "", part).alias("shard")


# --- of one format --------------------------------------------------------------------------------------------------


def messages(events: DataFrame, rules: Sequence[JournalRule] = ()) -> DataFrame:
    """The messages of sej journals, in the columns of the source `sej` and the name of the journal.

    With rules of which one decodes there are two columns more: `decoded`, the value as JSON, and `decode_error`, why
    it could not be decoded. Both are null where no rule asks for it.
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
    """A table: what it is made of, how, and what becomes of the table that was there before.

    `append`: the rows of a new batch join the old ones. `merge`: `merged(old, new)` replaces both. `whole`: it is made
    anew, from everything that `source` has now; of events, when there are new ones of its `format`. `build` takes a
    DataFrame of its source; one that `decodes` takes the rules for journals as well, one that is `dated` the moment as
    of which it is made.
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
        """The table, or what a batch adds to it, out of a DataFrame of its source."""
        if self.decodes:
            return self.build(source, rules)
        return self.build(source, at) if self.dated else self.build(source)

    @property
    def needs_all_events(self) -> bool:
        """Whether the events of a batch are not enough to make it."""
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
"""Every table that there is, in the order in which they are made."""
