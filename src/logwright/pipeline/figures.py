"""What the report shows, gathered by Spark out of the tables: a few thousand numbers, however large the tables are.

Of journals, consumers, damaged files and damaged ranges only the foremost are named; the rest is counted. Time is cut
into at most `MOST_BUCKETS` pieces. Where nearly all records lie within a small part of the time between the first and
the last, as they do when a few have the time 0, that part is shown and the others are counted as lying outside.

All times are seconds since 1970, UTC, as plain numbers: a journal may have times that no calendar has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_JOURNALS: Final = 40
MOST_CONSUMERS: Final = 30
MOST_DAMAGED_FILES: Final = 24
MOST_RANGES_OF_A_FILE: Final = 300
MOST_UNREADABLE: Final = 50
MOST_BUCKETS: Final = 200

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WIDTHS: Final = (
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14, 30, 91, 365)),
)
_ENOUGH_OF_RECORDS: Final = 0.99
_SMALL_PART_OF_TIME: Final = 0.1
_MOST_ZOOMS: Final = 8


# --- what is shown --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JournalFigures:
    """One journal, or all that are not named. `bytes` is what its records take, `file_bytes` what its files do."""

    format: str
    name: str
    records: int = 0
    bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    first: int | None = None
    last: int | None = None
    untimed: int = 0
    damaged: int = 0
    damaged_bytes: int = 0

    @property
    def size(self) -> int:
        return max(self.bytes, self.file_bytes)


@dataclass(slots=True)
class Series:
    """The records and bytes of a journal in each bucket; `name` is None for all journals that are not named."""

    name: str | None
    records: list[int]
    bytes: list[int]


@dataclass(slots=True)
class Activity:
    """Records over time: bucket number n begins at `start` + n * `width`, in seconds."""

    start: int = 0
    width: int = _MINUTE
    buckets: int = 0
    series: list[Series] = field(default_factory=list)
    before: int = 0
    behind: int = 0
    untimed: int = 0


@dataclass(slots=True)
class TableFigures:
    """How large a table is; None where that is not known."""

    name: str
    rows: int | None
    files: int | None
    bytes: int | None


@dataclass(slots=True)
class ConsumerFigures:
    """A row of the table `consumers`."""

    journal: str
    shard: str | None
    consumer: str
    offset: int | None
    next: int | None
    lag: int | None
    missed: int | None
    status: str
    problem: str | None = None


@dataclass(slots=True)
class Range:
    """Damaged bytes of a file; `count` ranges near each other, of which the first is told."""

    start: int
    end: int
    kind: str
    reason: str
    count: int = 1
    bytes: int = 0


@dataclass(slots=True)
class DamagedFile:
    """A file with its damaged ranges, in order."""

    journal: str
    file: str
    size: int
    count: int
    bytes: int
    ranges: list[Range] = field(default_factory=list)


@dataclass(slots=True)
class DamageFigures:
    """All damage, by kind as count and bytes, and the files that have most of it."""

    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)
    files: list[DamagedFile] = field(default_factory=list)
    file_count: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Journals, and why they could not be opened."""
    unreadable_count: int = 0

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.kinds.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.kinds.values())


@dataclass(slots=True)
class Figures:
    """Everything that the report shows. What was not made, None, is not shown either."""

    source: str
    out: str
    made_at: float
    """Seconds since 1970."""
    seconds: float | None = None
    """How long it took."""
    journals: list[JournalFigures] = field(default_factory=list)
    journal_count: int = 0
    total: JournalFigures = field(default_factory=lambda: JournalFigures("", ""))
    activity: Activity | None = None
    tables: list[TableFigures] = field(default_factory=list)
    consumers: list[ConsumerFigures] | None = None
    """Those with the largest lag first."""
    statuses: dict[str, int] = field(default_factory=dict)
    """How many consumers there are of each status."""
    damage: DamageFigures | None = None
    notes: list[str] = field(default_factory=list)
    """What else is to be told, a sentence each."""


# --- gathering ------------------------------------------------------------------------------------------------------


def gather(
    frames: Mapping[str, DataFrame],
    *,
    source: str,
    out: str,
    made_at: float,
    seconds: float | None = None,
    tables: Sequence[TableFigures] = (),
    notes: Sequence[str] = (),
) -> Figures:
    """The figures of tables by their names; `activity`, `files`, `damage` and `consumers` count, if they are there."""
    found = Figures(source, out, made_at, seconds, tables=list(tables), notes=list(notes))
    activity, files, damage, consumers = (frames.get(name) for name in ("activity", "files", "damage", "consumers"))
    _gather_journals(found, activity, files, damage)
    if activity is not None:
        found.activity = _activity(activity, found)
    if damage is not None:
        found.damage = _damage(damage, files)
    if consumers is not None:
        found.statuses = dict(sorted(_pairs(consumers.groupBy("status").count())))
        found.consumers = _consumers(consumers)
    return found


def _pairs(frame: DataFrame) -> list[tuple[Any, Any]]:
    return [(row[0], row[1]) for row in frame.collect()]


# --- journals -------------------------------------------------------------------------------------------------------

_SUMS: Final = ("records", "bytes", "files", "file_bytes", "untimed", "damaged", "damaged_bytes")
_KEY: Final = ["format", "journal"]


def _gather_journals(
    found: Figures, activity: DataFrame | None, files: DataFrame | None, damage: DataFrame | None
) -> None:
    """The largest journals, how many there are, and all of them together."""
    parts: list[DataFrame] = []
    if activity is not None:
        seconds = F.unix_seconds("minute")
        parts.append(
            activity.groupBy(*_KEY).agg(
                F.sum("records").alias("records"),
                F.sum("bytes").alias("bytes"),
                F.min(seconds).alias("first"),
                F.max(seconds).alias("last"),
                F.sum(F.when(F.col("minute").isNull(), F.col("records"))).alias("untimed"),
            )
        )
    if files is not None:
        parts.append(files.groupBy(*_KEY).agg(F.count("*").alias("files"), F.sum("bytes").alias("file_bytes")))
    if damage is not None:
        sums = (F.count("*").alias("damaged"), F.sum("size").alias("damaged_bytes"))
        parts.append(damage.groupBy(*_KEY).agg(*sums))
    if not parts:
        return
    joined = reduce(lambda one, other: one.join(other, _KEY, "full"), parts)
    for name in (*_SUMS, "first", "last"):
        if name not in joined.columns:
            joined = joined.withColumn(name, F.lit(None).cast("bigint"))
    sums_of_all = [F.sum(name).alias(name) for name in _SUMS]
    times = (F.min("first").alias("first"), F.max("last").alias("last"))
    counted = joined.agg(F.count("*").alias("count"), *sums_of_all, *times).collect()[0].asDict()
    found.journal_count = counted.pop("count")
    found.total = _journal({"format": "", "journal": "", **counted})
    size = F.greatest(F.coalesce("bytes", F.lit(0)), F.coalesce("file_bytes", F.lit(0)))
    largest = joined.orderBy(size.desc(), "journal").limit(MOST_JOURNALS)
    found.journals = [_journal(row.asDict()) for row in largest.collect()]


def _journal(row: dict[str, Any]) -> JournalFigures:
    sums = {name: row[name] or 0 for name in _SUMS}
    return JournalFigures(row["format"] or "", row["journal"] or "", first=row["first"], last=row["last"], **sums)


# --- activity -------------------------------------------------------------------------------------------------------


def bucket_width(seconds: int) -> int:
    """The length of a bucket, in seconds, so that a span of time takes no more than `MOST_BUCKETS`."""
    for width in _WIDTHS:
        if seconds // width + 2 <= MOST_BUCKETS:
            return width
    width = _WIDTHS[-1]
    while seconds // width + 2 > MOST_BUCKETS:
        width *= 2
    return width


def densest(counts: Sequence[int]) -> tuple[int, int]:
    """The first and the last of the fewest buckets in a row that have nearly all of what is counted."""
    enough = _ENOUGH_OF_RECORDS * sum(counts)
    best = (0, len(counts) - 1)
    first, inside = 0, 0
    for last, count in enumerate(counts):
        inside += count
        while inside - counts[first] >= enough and first < last:
            inside -= counts[first]
            first += 1
        if inside >= enough and last - first < best[1] - best[0]:
            best = (first, last)
    return best


def _activity(activity: DataFrame, figures: Figures) -> Activity:
    found = Activity(untimed=figures.total.untimed)
    first, last = figures.total.first, figures.total.last
    if first is None or last is None:
        return found
    names = [journal.name for journal in figures.journals]
    timed = activity.where("minute is not null").select(
        F.unix_seconds("minute").alias("at"),
        F.when(F.col("journal").isin(names), F.col("journal")).alias("name"),
        "records",
        "bytes",
    )
    for _ in range(_MOST_ZOOMS):
        found.width = bucket_width(last - first)
        found.start = first // found.width * found.width
        found.buckets = (last - found.start) // found.width + 1
        counts = _fill(found, timed.where(F.col("at").between(first, last)), names)
        low, high = densest(counts)
        if found.width == _MINUTE or high - low + 1 > _SMALL_PART_OF_TIME * found.buckets:
            break
        # A bucket beyond on either side, so that it can be seen that little lies there.
        low, high = max(0, low - 1), min(found.buckets - 1, high + 1)
        found.before += sum(counts[:low])
        found.behind += sum(counts[high + 1 :])
        first = max(first, found.start + low * found.width)
        last = min(last, found.start + (high + 1) * found.width - 1)
    return found


def _fill(found: Activity, timed: DataFrame, names: Sequence[str]) -> list[int]:
    """Put the rows of a span of time into its buckets; how many records each of them has."""
    bucket = F.floor((F.col("at") - F.lit(found.start)) / F.lit(found.width)).alias("bucket")
    sums = (F.sum("records"), F.sum("bytes"))
    by_name: dict[str | None, Series] = {}
    counts = [0] * found.buckets
    for name, number, records, size in timed.groupBy("name", bucket).agg(*sums).collect():
        series = by_name.setdefault(name, Series(name, [0] * found.buckets, [0] * found.buckets))
        series.records[number] = records
        series.bytes[number] = size
        counts[number] += records
    found.series = [by_name[name] for name in (*names, None) if name in by_name]
    return counts


# --- damage and consumers -------------------------------------------------------------------------------------------


def _damage(damage: DataFrame, files: DataFrame | None) -> DamageFigures:
    found = DamageFigures()
    for kind, count, size in damage.groupBy("kind").agg(F.count("*"), F.sum("size")).orderBy("kind").collect():
        found.kinds[kind] = (count, size or 0)
    if not found.kinds:
        return found
    unreadable = damage.where("file is null")
    found.unreadable = _pairs(unreadable.select("journal", "reason").orderBy("journal").limit(MOST_UNREADABLE))
    if found.unreadable:
        found.unreadable_count = unreadable.count()
    placed = damage.where("file is not null").fillna(0, ["position", "size"])
    placed = placed.withColumn("end", F.col("position") + F.col("size"))
    by_file = placed.groupBy("journal", "file").agg(
        F.count("*").alias("count"), F.sum("size").alias("bytes"), F.max("end").alias("reach")
    )
    if files is not None:
        sizes = files.select("journal", "file", F.col("bytes").alias("file_bytes"))
        by_file = by_file.join(sizes, ["journal", "file"], "left")
        by_file = by_file.withColumn("reach", F.greatest("reach", F.coalesce("file_bytes", F.lit(0))))
    found.file_count = by_file.count()
    worst = by_file.orderBy(F.col("count").desc(), F.col("bytes").desc(), "journal", "file").limit(MOST_DAMAGED_FILES)
    for row in worst.collect():
        damaged = DamagedFile(row["journal"], row["file"], row["reach"], row["count"], row["bytes"] or 0)
        found.files.append(damaged)
    _gather_ranges(found.files, placed)
    return found


def _gather_ranges(files: Sequence[DamagedFile], placed: DataFrame) -> None:
    """The ranges of some files; those that would lie on one another when drawn become one."""
    known = {(file.journal, file.file): file for file in files}
    if not known:
        return
    rows = [(file.journal, file.file, max(1, file.size)) for file in files]
    chosen = placed.sparkSession.createDataFrame(rows, "journal STRING, file STRING, whole BIGINT")
    cell = F.floor(F.col("position") / F.col("whole") * MOST_RANGES_OF_A_FILE)
    cells = placed.join(F.broadcast(chosen), ["journal", "file"]).groupBy("journal", "file", "kind", cell.alias("cell"))
    ranges = cells.agg(
        F.min("position").alias("start"),
        F.max("end").alias("end"),
        F.min_by("reason", "position").alias("reason"),
        F.count("*").alias("count"),
        F.sum("size").alias("bytes"),
    )
    for row in ranges.orderBy("start").collect():
        found = Range(row["start"], row["end"], row["kind"], row["reason"], row["count"], row["bytes"] or 0)
        known[row["journal"], row["file"]].ranges.append(found)


def _consumers(consumers: DataFrame) -> list[ConsumerFigures]:
    names = [column.name for column in fields(ConsumerFigures)]
    order = (F.col("lag").desc_nulls_last(), "journal", F.coalesce("shard", F.lit("")), "consumer")
    rows = consumers.select(*names).orderBy(*order).limit(MOST_CONSUMERS).collect()
    return [ConsumerFigures(*row) for row in rows]
