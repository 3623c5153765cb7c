"""Reduce tables to rows for the report, small enough for the driver however large the tables are.

A table of up to `MOST_ROWS` rows is fetched as it is, in one quick job. Spark aggregates a larger one first: records of
a period become one row, and so does damage of a range of a file; journals other than the largest are unnamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Rows: TypeAlias = "DataFrame | pa.Table"

MOST_ROWS: Final = 100_000
_NAMED_JOURNALS: Final = 50
_PIECES_OF_TIME: Final = 1_900
"""For each journal; named journals and the rest together make no more than `MOST_ROWS`."""
_PIECES_OF_A_FILE: Final = 300
_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """Records of a journal at about a time, in seconds since 1970; without a name, of all unnamed journals.

    `journals` is the number of journals; `first` and `last` are the exact times of the records.
    """

    format: str
    journal: str | None
    at: int | None
    records: int
    bytes: int
    first: int | None
    last: int | None
    journals: int = 1


@dataclass(frozen=True, slots=True)
class DamageRow:
    """`count` damaged ranges of a file between two positions, `bytes` in total; the reason is that of the first.

    Without a file it is a journal that could not be opened, or the rest: damage of a journal that is in no other row.
    """

    format: str
    journal: str
    file: str | None
    start: int
    end: int
    bytes: int
    kind: str
    reason: str
    count: int = 1
    is_rest: bool = False
    files: int = 1
    """The number of files that the rest is in; the first of several rests has it for all of them."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The number of items of a queue in a state."""

    journal: str
    queue: str
    state: str
    items: int


@dataclass(frozen=True, slots=True)
class StoreRow:
    """The numbers of changes, deletions and keys of a store; None if no table has them."""

    journal: str
    store: str
    changes: int | None = None
    deletions: int | None = None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """The numbers of segments of a journal with checkpoints: all, complete and checked; and of their records and
    bytes.
    """

    journal: str
    segments: int
    complete: int
    checked: int
    records: int
    bytes: int


@dataclass(slots=True)
class PageRow:
    """Outcomes of the transactions of a file of pages, and counts of its pages; None if no table has them."""

    journal: str
    file: str
    outcomes: dict[str, int] = field(default_factory=dict)
    bytes: int | None = None
    pages: int | None = None
    versions: int | None = None
    removals: int | None = None


def small(table: Rows) -> pa.Table:
    """A table that is known to be small."""
    return table if isinstance(table, pa.Table) else table.toArrow()


def _if_small(table: Rows, most: int) -> pa.Table | None:
    if isinstance(table, pa.Table):
        return table
    fetched = table.limit(most + 1).toArrow()
    return fetched if fetched.num_rows <= most else None


def _dictionaries(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()


# --- activity -------------------------------------------------------------------------------------------------------


def activity_rows(activity: Rows, *, most: int = MOST_ROWS) -> list[ActivityRow]:
    """The rows of the table `activity`, aggregated if they are too many."""
    fetched = _if_small(activity, most)
    if fetched is None:
        assert not isinstance(activity, pa.Table)
        return _summed_activity(activity)
    minutes = _seconds(fetched.column("minute"))
    rest = fetched.select(["format", "journal", "records", "bytes"])
    return [
        ActivityRow(row["format"], row["journal"], at, row["records"], row["bytes"], at, at)
        for row, at in zip(_dictionaries(rest), minutes, strict=True)
    ]


def _seconds(times: pa.ChunkedArray) -> list[int | None]:
    """Times as numbers: Spark's may be outside the range of Python's."""
    numbers = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if number is None else number // 1_000_000 for number in numbers]


def _summed_activity(activity: DataFrame) -> list[ActivityRow]:
    at = F.unix_seconds("minute")
    by_size = activity.groupBy("journal").agg(F.sum("bytes").alias("bytes")).orderBy(F.desc("bytes"), "journal")
    names = [row["journal"] for row in by_size.limit(_NAMED_JOURNALS).collect()]
    low, length = _pieces_of_time(activity)
    piece = F.floor((at - F.lit(low)) / F.lit(length))
    piece = F.when(at.isNotNull(), F.greatest(F.lit(-1), F.least(F.lit(_PIECES_OF_TIME), piece)))
    name = F.when(F.col("journal").isin(names), F.col("journal"))
    grouped = activity.groupBy(_format_of(name), name.alias("journal"), piece.alias("piece")).agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
    )
    others = activity.where(name.isNull()).select("format", "journal").distinct().count()
    found = []
    for row in grouped.collect():
        journals = others if row["journal"] is None else 1
        numbers = (row["first"], row["records"], row["bytes"], row["first"], row["last"])
        found.append(ActivityRow(row["format"] or "", row["journal"], *numbers, journals))
    return found


def _pieces_of_time(activity: DataFrame) -> tuple[int, int]:
    """The start of the first period, and the length of all periods, in seconds.

    A few outliers must not make the periods long: on either side they are one period.
    """
    at = F.unix_seconds("minute")
    bounds = activity.agg(F.min(at), F.max(at), F.percentile_approx(at, [0.01, 0.99], 10_000)).collect()[0]
    first, last, most = bounds
    if first is None:
        return 0, _MINUTE
    around = max(_MINUTE, most[1] - most[0])
    low, high = max(first, most[0] - around), min(last, most[1] + around)
    return low, max(_MINUTE, -(-(high - low + _MINUTE) // _PIECES_OF_TIME))


def _format_of(name: Column) -> Column:
    """The format of a named journal; unnamed ones may have any."""
    return F.when(name.isNotNull(), F.col("format")).alias("format")


# --- damage ---------------------------------------------------------------------------------------------------------


def damage_rows(damage: Rows, *, most: int = MOST_ROWS) -> list[DamageRow]:
    """The rows of the table `damage`, aggregated if they are too many."""
    fetched = _if_small(damage, most)
    if fetched is None:
        assert not isinstance(damage, pa.Table)
        return _summed_damage(damage, most)
    found = []
    for row in _dictionaries(fetched):
        start, size = row["position"] or 0, row["size"] or 0
        place = (row["format"], row["journal"], row["file"], start, start + size, size)
        found.append(DamageRow(*place, row["kind"], row["reason"]))
    return found


def _summed_damage(damage: DataFrame, most: int) -> list[DamageRow]:
    placed = damage.fillna(0, ["position", "size"]).withColumn("end", F.col("position") + F.col("size"))
    reach = placed.agg(F.max("end")).collect()[0][0] or 0
    piece = F.floor(F.col("position") / F.lit(max(1, -(-reach // _PIECES_OF_A_FILE))))
    pieces = placed.groupBy("format", "journal", "file", "kind", piece.alias("piece")).agg(
        F.min("position").alias("start"),
        F.max("end").alias("end"),
        F.sum("size").alias("bytes"),
        F.min_by("reason", "position").alias("reason"),
        F.count("*").alias("count"),
    )
    order = (F.col("file").isNotNull(), F.desc("count"), "journal", "file", "start")
    worst = pieces.orderBy(*order).limit(most // 2).collect()
    found = []
    for row in worst:
        place = (row["format"], row["journal"], row["file"], row["start"], row["end"], row["bytes"])
        found.append(DamageRow(*place, row["kind"], row["reason"], row["count"]))
    return found + _rest_of_damage(placed, found)


def _rest_of_damage(placed: DataFrame, found: list[DamageRow]) -> list[DamageRow]:
    """The damage of each journal and kind that is in none of the rows found."""
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for row in found:
        counts[row.format, row.journal, row.kind] += row.count
        sizes[row.format, row.journal, row.kind] += row.bytes
    known = {(row.journal, row.file) for row in found}
    files = placed.select("journal", "file").distinct().count() - len(known)
    rest: list[DamageRow] = []
    for *key, count, size in placed.groupBy("format", "journal", "kind").agg(F.count("*"), F.sum("size")).collect():
        format, journal, kind = key
        count -= counts[format, journal, kind]
        size -= sizes[format, journal, kind]
        if count:
            file_count = 0 if rest else files
            rest.append(DamageRow(format, journal, None, 0, 0, size, kind, "", count, is_rest=True, files=file_count))
    return rest


# --- what formats stand for -----------------------------------------------------------------------------------------


def _summed(table: Rows, place: Sequence[str], *columns: str) -> Iterator[tuple[tuple[Any, ...], tuple[int, ...]]]:
    """Group rows by `place`: for each, the number of rows and the sums of some columns; booleans count as 0 and 1."""
    if isinstance(table, pa.Table):
        sums: list[Any] = [(column, "sum") for column in columns]
        grouped = table.select([*place, *columns]).group_by(list(place)).aggregate([([], "count_all"), *sums])
        chosen = grouped.select([*place, "count_all", *(f"{column}_sum" for column in columns)])
        rows: Iterable[tuple[Any, ...]] = (tuple(row.values()) for row in chosen.to_pylist())
    else:
        numbers = (F.sum(F.col(column).cast("bigint")) for column in columns)
        rows = table.groupBy(*place).agg(F.count("*"), *numbers).collect()
    for row in rows:
        yield tuple(row[: len(place)]), tuple(number or 0 for number in row[len(place) :])


def queue_rows(items: Rows) -> list[QueueRow]:
    """The number of items in `queue_items` of each queue and state."""
    counted = _summed(items, ("journal", "queue", "state"))
    return [QueueRow(journal, queue, state, count) for (journal, queue, state), (count,) in counted]


def store_rows(history: Rows | None, state: Rows | None) -> list[StoreRow]:
    """The counts of each store in `kv_history` and `kv_state`, either of which may be missing."""
    place = ("journal", "store")
    changes = {} if history is None else dict(_summed(history, place, "deleted"))
    keys = {} if state is None else dict(_summed(state, place))
    found = []
    for journal, store in sorted({*changes, *keys}):
        count, deletions = changes.get((journal, store), (None, None) if history is None else (0, 0))
        (there,) = keys.get((journal, store), (None,) if state is None else (0,))
        found.append(StoreRow(journal, store, count, deletions, there))
    return found


def segment_rows(segments: Rows) -> list[SegmentRow]:
    """The counts of each journal in `segments`."""
    columns = ("complete", "checked", "records", "bytes")
    return [SegmentRow(*place, *sums) for place, sums in _summed(segments, ("journal",), *columns)]


def page_rows(transactions: Rows | None, versions: Rows | None) -> list[PageRow]:
    """The counts of each file in `transactions` and `page_versions`, either of which may be missing."""
    place = ("journal", "file")
    found: dict[tuple[Any, ...], PageRow] = {}
    for (*file, outcome), sums in () if transactions is None else _summed(transactions, (*place, "outcome"), "bytes"):
        row = found.setdefault(tuple(file), PageRow(*file))
        row.outcomes[outcome] = sums[0]
        row.bytes = (row.bytes or 0) + sums[1]
    for key, (count, removed) in () if versions is None else _summed(versions, place, "deleted"):
        row = found.setdefault(key, PageRow(*key))
        row.versions, row.removals = count, removed
    if versions is not None:
        is_first: Any = pc.field("version") == 1 if isinstance(versions, pa.Table) else F.col("version") == 1
        for key, (count,) in _summed(versions.filter(is_first), place):
            found[key].pages = count
    return list(found.values())
