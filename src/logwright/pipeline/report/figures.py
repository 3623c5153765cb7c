"""The figures of the report, gathered from the tables: a few thousand numbers, however large the tables are.

Only the largest journals, consumers, damaged files and damaged ranges are named; the others are counted. Time is
divided into at most `MOST_BUCKETS` buckets. If nearly all records are within a small part of the time between the first
and the last, for example because a few have the time 0, only that part is shown and the others are counted.

All times are seconds since 1970, UTC, as plain numbers: a journal may have times outside the range of `datetime`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, TypeAlias

from .reducing import (
    Counts,
    PageRow,
    QueueRow,
    SegmentRow,
    StoreRow,
    page_rows,
    queue_rows,
    segment_rows,
    store_rows,
)
from .summary import ActivitySummary, DamageSummary, merged

MOST_JOURNALS: Final = 40
MOST_CONSUMERS: Final = 30
MOST_QUEUES: Final = 30
MOST_STORES: Final = 30
MOST_SEGMENTED: Final = 30
MOST_PAGED: Final = 30
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


Row: TypeAlias = Mapping[str, Any]


# --- what is shown --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JournalFigures:
    """One journal, or all that are not named. `bytes` is the size of its records, `file_bytes` that of its files."""

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
    """The records and bytes of a journal in each bucket; `name` is None for all unnamed journals together."""

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
    after: int = 0
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
class QueueFigures:
    """How many items of a queue are in each state."""

    journal: str
    queue: str
    waiting: int = 0
    open: int = 0
    expired: int = 0
    done: int = 0


@dataclass(slots=True)
class Range:
    """Damaged bytes of a file: `count` adjacent ranges, with the kind and reason of the first."""

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
    """All damage: count and bytes of each kind, and the files with the most damage."""

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


@dataclass(frozen=True, slots=True)
class ExpectationFigures:
    """An expectation: how many rows do not meet it of all that were checked, and of those that this run has written.

    Live rows are checked again whenever they are written.
    """

    name: str
    table: str
    condition: str
    action: str
    failed: int
    new: int


@dataclass(slots=True)
class Figures:
    """Everything that the report shows. Parts that are None are omitted."""

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
    """Other messages, one sentence each."""
    queues: list[QueueFigures] | None = None
    """Those with the most unfinished items first."""
    queue_count: int = 0
    stores: list[StoreRow] | None = None
    """Those with the most keys, then changes, first."""
    store_count: int = 0
    segmented: list[SegmentRow] | None = None
    """Journals with checkpoints; those with the most unchecked segments first."""
    segmented_count: int = 0
    paged: list[PageRow] | None = None
    """Files of pages; those with the most transactions, then versions, first."""
    paged_count: int = 0
    expectations: list[ExpectationFigures] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    """Journals that end with bytes that are not a complete record yet and were not read, one sentence each."""


# --- gathering ------------------------------------------------------------------------------------------------------


def gather(
    activity: ActivitySummary | None,
    damage: DamageSummary | None,
    lists: Mapping[str, Sequence[Row]],
    counts: Mapping[str, Counts],
    *,
    source: str,
    out: str,
    made_at: float,
    seconds: float | None = None,
    tables: Sequence[TableFigures] = (),
    expectations: Sequence[ExpectationFigures] = (),
    notes: Sequence[str] = (),
    tails: Sequence[str] = (),
) -> Figures:
    """The figures of the tables: summaries of `activity` and `damage`, the rows of `files` and `consumers`, and the
    numbers of rows of others. What is None or missing is not shown.
    """
    found = Figures(source, out, made_at, seconds, tables=list(tables), notes=list(notes), tails=list(tails))
    found.expectations = list(expectations)
    files = lists.get("files", ())
    _gather_journals(found, activity, files, damage)
    if activity is not None:
        found.activity = _activity(_moments(activity, found), found)
    if damage is not None:
        found.damage = _damage(damage, {(row["journal"], row["file"]): row["bytes"] for row in files})
    if "consumers" in lists:
        rows = lists["consumers"]
        found.statuses = dict(sorted(Counter(row["status"] for row in rows).items()))
        found.consumers = _consumers(rows)
    if "queue_items" in counts:
        queues = _queues(queue_rows(counts["queue_items"]))
        found.queues, found.queue_count = queues[:MOST_QUEUES], len(queues)
    if "kv_history" in counts or "kv_state" in counts:
        stores = store_rows(counts.get("kv_history"), counts.get("kv_state"))
        stores.sort(key=lambda one: (-(one.keys or 0), -(one.changes or 0), one.journal, one.store))
        found.stores, found.store_count = stores[:MOST_STORES], len(stores)
    if "segments" in counts:
        segmented = segment_rows(counts["segments"])
        segmented.sort(key=lambda one: (one.checked - one.segments, -one.segments, one.journal))
        found.segmented, found.segmented_count = segmented[:MOST_SEGMENTED], len(segmented)
    if "transactions" in counts or "page_versions" in counts:
        paged = page_rows(counts.get("transactions"), counts.get("page_versions"))
        paged.sort(key=lambda one: (-sum(one.outcomes.values()), -(one.versions or 0), one.journal, one.file))
        found.paged, found.paged_count = paged[:MOST_PAGED], len(paged)
    return found


# --- journals -------------------------------------------------------------------------------------------------------


def _gather_journals(
    found: Figures, activity: ActivitySummary | None, files: Iterable[Row], damage: DamageSummary | None
) -> None:
    """Fill in the largest journals, the number of all journals, and their total."""
    journals: dict[tuple[str, str], JournalFigures] = {}

    def journal_of(format: str, name: str) -> JournalFigures:
        return journals.setdefault((format, name), JournalFigures(format, name))

    for name, one in {} if activity is None else activity.journals.items():
        journal = journal_of(one.format, name)
        journal.records, journal.bytes, journal.untimed = one.records, one.bytes, one.untimed
        journal.first, journal.last = one.first, one.last
    for file in files:
        journal = journal_of(file["format"], file["journal"])
        journal.files += 1
        journal.file_bytes += file["bytes"]
    for (format, name, _), (count, size) in {} if damage is None else damage.kinds.items():
        journal = journal_of(format, name)
        journal.damaged += count
        journal.damaged_bytes += size
    _add_up(found.total, journals.values())
    found.journal_count = len(journals)
    found.journals = sorted(journals.values(), key=lambda one: (-one.size, one.name))[:MOST_JOURNALS]


def _add_up(total: JournalFigures, journals: Iterable[JournalFigures]) -> None:
    for journal in journals:
        for name in ("records", "bytes", "files", "file_bytes", "untimed", "damaged", "damaged_bytes"):
            setattr(total, name, getattr(total, name) + getattr(journal, name))
        total.first = _earlier(total.first, journal.first)
        total.last = _later(total.last, journal.last)


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


# --- activity -------------------------------------------------------------------------------------------------------


def bucket_width(seconds: int) -> int:
    """The length of a bucket in seconds, so that a time span needs at most `MOST_BUCKETS`."""
    for width in _WIDTHS:
        if seconds // width + 2 <= MOST_BUCKETS:
            return width
    width = _WIDTHS[-1]
    while seconds // width + 2 > MOST_BUCKETS:
        width *= 2
    return width


def densest(counts: Sequence[int]) -> tuple[int, int]:
    """The first and last bucket of the shortest run of buckets that contains nearly all of the counts."""
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


class Moment(NamedTuple):
    """Records of a journal at about a time, in seconds since 1970; without a name, of several journals."""

    journal: str | None
    at: int
    records: int
    bytes: int


def _moments(activity: ActivitySummary, figures: Figures) -> list[Moment]:
    first = figures.total.first or 0  # a period may begin before its first record
    found = [Moment(name, *row) for name, series in activity.series.items() for row in series.rows()]
    found += [Moment(None, *row) for row in activity.others.rows()]
    return [each._replace(at=max(each.at, first)) for each in found]


def _activity(rows: Sequence[Moment], figures: Figures) -> Activity:
    found = Activity(untimed=figures.total.untimed)
    first, last = figures.total.first, figures.total.last
    if first is None or last is None:
        return found
    for _ in range(_MOST_ZOOMS):
        found.width = bucket_width(last - first)
        found.start = first // found.width * found.width
        found.buckets = (last - found.start) // found.width + 1
        rows = [row for row in rows if first <= row.at <= last]
        counts = [0] * found.buckets
        for row in rows:
            counts[(row.at - found.start) // found.width] += row.records
        low, high = densest(counts)
        if found.width == _MINUTE or high - low + 1 > _SMALL_PART_OF_TIME * found.buckets:
            break
        # Keep one more bucket on either side, to show that it is nearly empty.
        low, high = max(0, low - 1), min(found.buckets - 1, high + 1)
        found.before += sum(counts[:low])
        found.after += sum(counts[high + 1 :])
        first = max(first, found.start + low * found.width)
        last = min(last, found.start + (high + 1) * found.width - 1)
    _fill(found, rows, [journal.name for journal in figures.journals])
    return found


def _fill(found: Activity, rows: Iterable[Moment], names: Sequence[str]) -> None:
    """Put rows into their buckets."""
    by_name: dict[str | None, Series] = {}
    for row in rows:
        bucket = (row.at - found.start) // found.width
        if not 0 <= bucket < found.buckets:
            continue
        name = row.journal if row.journal in names else None
        if name not in by_name:
            by_name[name] = Series(name, [0] * found.buckets, [0] * found.buckets)
        by_name[name].records[bucket] += row.records
        by_name[name].bytes[bucket] += row.bytes
    found.series = [by_name[name] for name in (*names, None) if name in by_name]


# --- damage and consumers -------------------------------------------------------------------------------------------


def _damage(damage: DamageSummary, sizes: Mapping[tuple[str, str], int]) -> DamageFigures:
    found = DamageFigures(unreadable_count=damage.unreadable_count, file_count=len(damage.files) + damage.uncounted)
    kinds: dict[str, tuple[int, int]] = {}
    for (_, _, kind), (count, size) in damage.kinds.items():
        before = kinds.get(kind, (0, 0))
        kinds[kind] = (before[0] + count, before[1] + size)
    found.kinds = dict(sorted(kinds.items()))
    found.unreadable = sorted(damage.unreadable)[:MOST_UNREADABLE]
    files = []
    for place, ranges in damage.files.items():
        size = max(sizes.get(place, 0), *(end for _, end, *_ in ranges))
        count, total = sum(each[5] for each in ranges), sum(each[2] for each in ranges)
        drawn = [
            Range(start, end, kind, reason, number, inside)
            for start, end, inside, kind, reason, number in merged(ranges, size, MOST_RANGES_OF_A_FILE)
        ]
        files.append(DamagedFile(*place, size, count, total, drawn))
    worst = sorted(files, key=lambda one: (-one.count, -one.bytes, one.journal, one.file))
    found.files = worst[:MOST_DAMAGED_FILES]
    return found


def _consumers(rows: Iterable[Row]) -> list[ConsumerFigures]:
    names = [column.name for column in fields(ConsumerFigures)]
    found = [ConsumerFigures(*(row[name] for name in names)) for row in rows]
    found.sort(
        key=lambda one: (one.lag is None, -(one.lag or 0), one.journal, one.shard or "", one.consumer),
    )
    return found[:MOST_CONSUMERS]


def _queues(rows: Iterable[QueueRow]) -> list[QueueFigures]:
    found: dict[tuple[str, str], QueueFigures] = {}
    for row in rows:
        queue = found.setdefault((row.journal, row.queue), QueueFigures(row.journal, row.queue))
        setattr(queue, row.state, row.items)
    return sorted(found.values(), key=lambda one: (-(one.waiting + one.open + one.expired), one.journal, one.queue))
