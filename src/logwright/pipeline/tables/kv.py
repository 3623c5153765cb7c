"""The tables kv_history and kv_state: all values of the keys of stores with their times, and the values at one time.

    events = tables.events(spark.read.format("logwright").load("journals"))
    kv_history(events).where("k = 'limits'").orderBy("version").show()
    kv_state(events, at).show()

`kv_history` has a row for every change of a key:

    journal, store, k       which key
    version                 the number of the change of the key, from 1
    o, deleted              its new value as JSON; null if it was deleted
    valid_from, valid_to    from when until when; valid_to is null for the last change
    valid_from_ns, valid_to_ns      the same to the nanosecond
    sequence, position      where the change is in the store; the order of changes

`kv_state` has a row for every key that exists: journal, store, k, o, timestamp, timestamp_ns (of its last change),
sequence, position.

Changes are ordered by (`sequence`, `position`), the order of the journal; on equal times the later record wins. A value
that was replaced within the same nanosecond has equal `valid_from_ns` and `valid_to_ns`. So the state at a time is
every row of the history that is not deleted, with `valid_from_ns` <= time, and `valid_to_ns` null or > time.

`sequence` is the time when the journal became the active one. Compaction copies the current values to the beginning of
a journal. Sources do not return these copies unless the preceding journal is missing or damaged. Then each copy counts
once: it has the time and the value of the last change of its key in an earlier journal, and changes of its own journal
are not earlier than `sequence`. The state before the first journal that was read is unknown: at such a time a store has
no rows. Times of more than 63 bits are null, and later than all others.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, WindowSpec

_KEY: Final = ("journal", "store", "k")
_MOST: Final = 2**63 - 1


def kv_history(events: DataFrame) -> DataFrame:
    """Every change of every key of all stores, with the time of the next change."""
    place = (F.col("sequence").asc_nulls_last(), F.col("position").asc())
    by_key = Window.partitionBy(*_KEY).orderBy(*place)
    changes = _without_copies(_changes(events), by_key)
    return changes.select(
        *_KEY,
        F.row_number().over(by_key).alias("version"),
        "o",
        F.col("o").isNull().alias("deleted"),
        F.col("timestamp").alias("valid_from"),
        F.lead("timestamp").over(by_key).alias("valid_to"),
        F.col("timestamp_ns").alias("valid_from_ns"),
        F.lead("timestamp_ns").over(by_key).alias("valid_to_ns"),
        "sequence",
        "position",
    )


def kv_state(events: DataFrame, at: datetime.datetime | int | None = None) -> DataFrame:
    """The keys that exist at a time, given in nanoseconds or as a datetime; after all changes if no time is given.

    Only the last change of each key that a task has seen is shuffled.
    """
    changes = _changes(events)
    if at is not None:
        moment = at if isinstance(at, int) else _nanoseconds(at)
        known = changes.groupBy("journal", "store").agg(F.min("sequence").alias("begins")).where(f"begins <= {moment}")
        counting = changes.where(f"timestamp_ns <= {moment}")
        changes = counting.join(F.broadcast(known), ["journal", "store"], "left_semi")
    place = F.struct(F.coalesce("sequence", F.lit(_MOST)), "position")
    last = F.max_by(F.struct("o", "timestamp", "timestamp_ns", "sequence", "position"), place)
    there = changes.groupBy(*_KEY).agg(last.alias("last")).where("last.o is not null")
    return there.select(*_KEY, "last.o", "last.timestamp", "last.timestamp_ns", "last.sequence", "last.position")


def _changes(events: DataFrame) -> DataFrame:
    """The records of stores, with their fields as columns."""
    return events.where("format = 'versioned'").select(
        "journal",
        F.get_json_object("detail", "$.store").alias("store"),
        F.col("key").cast("string").alias("k"),
        F.when(F.col("op") == "set", F.col("value").cast("string")).alias("o"),
        "timestamp",
        "timestamp_ns",
        "sequence",
        "position",
    )


def _without_copies(changes: DataFrame, by_key: WindowSpec) -> DataFrame:
    """Each change once, even if copies of it are among the records.

    A copy with the time of its journal looks like a change to the same value at the same time. The journal's other
    records decide: if any record is earlier than the journal itself, its copies are among the records.
    """
    journal = ("journal", "store", "sequence")
    earliest = F.min("timestamp_ns")
    copied = changes.groupBy(*journal).agg(earliest.alias("earliest")).where("earliest < sequence").select(*journal)
    marked = changes.join(F.broadcast(copied.withColumn("_copied", F.lit(True))), list(journal), "left")
    before = {name: F.lag(name).over(by_key) for name in ("sequence", "timestamp_ns", "o")}
    is_copy = (
        F.col("_copied")
        & (before["sequence"] < F.col("sequence"))
        & (F.col("timestamp_ns") <= F.col("sequence"))
        & (before["timestamp_ns"] == F.col("timestamp_ns"))
        & (before["o"] == F.col("o"))
    )
    return marked.withColumn("_is_copy", F.coalesce(is_copy, F.lit(False))).where("not _is_copy")


def _nanoseconds(at: datetime.datetime) -> int:
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1) * 1000
