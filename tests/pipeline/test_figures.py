"""The figures of the report are those of the tables, and of bounded size."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logwright.pipeline.report import figures
from logwright.pipeline.report.figures import Figures, gather
from logwright.pipeline.report.reducing import PageRow, SegmentRow, StoreRow
from logwright.pipeline.report.summary import (
    MOST_FILES,
    MOST_PERIODS,
    MOST_RANGES,
    MOST_SERIES,
    MOST_UNREADABLE,
    ActivitySummary,
    DamageSummary,
)
from logwright.pipeline.tables import ACTIVITY, COUNTED, DAMAGE, FILES, count

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
START = 1_790_000_040  # a whole minute
JOURNALS = [f"journal {number:02}" for number in range(figures.MOST_JOURNALS + 5)]


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def minute(seconds: int | None) -> datetime.datetime | None:
    return None if seconds is None else EPOCH + datetime.timedelta(seconds=seconds)


def gathered(frames: dict[str, pa.Table], **more: Any) -> Figures:
    """The figures of tables, some of which are counted first."""
    lists = {name: rows.to_pylist() for name, rows in frames.items() if name in ("files", "consumers")}
    counts = {name: counted(name, rows) for name, rows in frames.items() if name in COUNTED}
    activity = summed_activity(frames["activity"]) if "activity" in frames else None
    damage = summed_damage(frames["damage"]) if "damage" in frames else None
    return gather(activity, damage, lists, counts, source="from", out="to", made_at=1.5, **more)


def summed_activity(rows: pa.Table) -> ActivitySummary:
    found = ActivitySummary()
    found.add(rows.to_batches())
    return found


def summed_damage(rows: pa.Table) -> DamageSummary:
    found = DamageSummary()
    for row in rows.to_pylist():
        found.add(*(value for name, value in row.items() if name != "detail"))
    return found


def counted(name: str, rows: pa.Table) -> dict[tuple[str, ...], list[int]]:
    journals = pc.unique(rows["journal"]).to_pylist()
    return {
        (journal, *place): numbers
        for journal in journals
        for place, numbers in count(name, rows.filter(pc.equal(rows["journal"], journal))).items()
    }


def a_day_of_activity() -> list[tuple[str, str, int | None, int, int]]:
    """A day of many journals, the higher the number the smaller; a few records at the time 0, and some without one."""
    dice = random.Random("figures")
    rows: list[tuple[str, str, int | None, int, int]] = []
    for number, name in enumerate(JOURNALS):
        for at in sorted(dice.sample(range(24 * 60), 40)):
            records = dice.randrange(1, 100)
            rows.append(("sej", name, START + 60 * at, records, records * (1000 - number)))
        rows.append(("sej", name, None, number, 0))
    rows.append(("sej", JOURNALS[0], 0, 3, 30))
    rows.append(("sej", JOURNALS[1], 120, 4, 40))
    return rows


def test_journals_and_activity_are_summed_and_the_rest_is_counted() -> None:
    rows = a_day_of_activity()
    activity = table(ACTIVITY, [(f, name, minute(at), r, b) for f, name, at, r, b in rows])
    files = table(FILES, [("sej", name, "", "a", 7, 0, 1) for name in [*JOURNALS, "empty"]])
    found = gathered({"activity": activity, "files": files}, seconds=2.0, notes=["so"])
    assert (found.source, found.out, found.made_at, found.seconds, found.notes) == ("from", "to", 1.5, 2.0, ["so"])
    assert found.damage is None
    assert found.consumers is None
    assert found.journal_count == len(JOURNALS) + 1
    assert (found.total.records, found.total.bytes) == (sum(row[3] for row in rows), sum(row[4] for row in rows))
    assert (found.total.files, found.total.file_bytes) == (len(JOURNALS) + 1, 7 * (len(JOURNALS) + 1))
    sizes: Counter[str] = Counter()
    for _, name, _, _, size in rows:
        sizes[name] += size
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[: figures.MOST_JOURNALS]
    assert [journal.name for journal in found.journals] == largest
    second = next(journal for journal in found.journals if journal.name == JOURNALS[1])
    mine = [row for row in rows if row[1] == JOURNALS[1]]
    times = [row[2] for row in mine if row[2] is not None]
    assert (second.records, second.bytes, second.untimed) == (sum(r[3] for r in mine), sum(r[4] for r in mine), 1)
    assert (second.first, second.last, second.files) == (120, max(times), 1)

    over_time = found.activity
    assert over_time is not None
    assert (over_time.before, over_time.after) == (7, 0), "records decades before the rest are not drawn, but counted"
    assert over_time.untimed == sum(range(len(JOURNALS)))
    assert over_time.width == 600
    assert over_time.buckets <= figures.MOST_BUCKETS
    assert [series.name for series in over_time.series] == [*largest, None]
    wanted: Counter[tuple[str | None, int]] = Counter()
    for _, name, at, records, _ in rows:
        if at is not None and at > 120:
            wanted[name if name in largest else None, (at - over_time.start) // over_time.width] += records
    drawn = {
        (series.name, bucket): count
        for series in over_time.series
        for bucket, count in enumerate(series.records)
        if count
    }
    assert drawn == dict(wanted)
    assert sum(sum(series.bytes) for series in over_time.series) == found.total.bytes - 70


def test_damage_is_counted_located_and_merged_where_it_is_dense() -> None:
    rows: list[tuple[Any, ...]] = [
        ("sej", "a", "f", 10 * number, 5, "malformed", f"no {number}", None) for number in range(2000)
    ]
    rows += [("sej", "b", f"g{number}", 100, 50, "gap", "gone", None) for number in range(30)]
    rows += [("sej", "c", None, None, None, "unreadable", "permission denied", None)]
    files = table(FILES, [("sej", "a", "", "f", 40_000, 0, 1), ("sej", "b", "", "g0", 60, 0, 1)])
    found = gathered({"damage": table(DAMAGE, rows), "files": files})
    damage = found.damage
    assert damage is not None
    assert damage.kinds == {"gap": (30, 1500), "malformed": (2000, 10_000), "unreadable": (1, 0)}
    assert (damage.count, damage.bytes, damage.file_count) == (2031, 11_500, 31)
    assert (damage.unreadable, damage.unreadable_count) == ([("c", "permission denied")], 1)
    assert len(damage.files) == figures.MOST_DAMAGED_FILES
    worst = damage.files[0]
    assert (worst.journal, worst.file, worst.size, worst.count, worst.bytes) == ("a", "f", 40_000, 2000, 10_000)
    assert len(worst.ranges) == figures.MOST_RANGES_OF_A_FILE // 2, "the damage is in the first half of the file"
    assert sum(one.count for one in worst.ranges) == 2000
    assert sum(one.bytes for one in worst.ranges) == 10_000
    assert (worst.ranges[0].start, worst.ranges[0].reason, worst.ranges[-1].end) == (0, "no 0", 19_995)
    assert damage.files[1].size == 150, "damage that goes beyond what the inventory says was there when it was found"
    assert {journal.name: journal.damaged for journal in found.journals} == {"a": 2000, "b": 30, "c": 1}


def test_summaries_in_batches_and_from_json_are_those_of_all_rows() -> None:
    rows = [(f, name, minute(at), r, b) for f, name, at, r, b in a_day_of_activity()]
    wrong: list[tuple[Any, ...]] = [("sej", "a", "f", 10 * n, 5, "malformed", f"no {n}", None) for n in range(200)]
    wrong += [("sej", "b", None, None, None, "unreadable", "permission denied", None)]
    activity, damage = ActivitySummary(), DamageSummary()
    for first in range(0, len(rows), 100):
        activity.add(table(ACTIVITY, rows[first : first + 100]).to_batches())
        activity = ActivitySummary.of(json.loads(json.dumps(activity.as_json())))
        damage.merge(summed_damage(table(DAMAGE, wrong[first : first + 100])))
        damage = DamageSummary.of(json.loads(json.dumps(damage.as_json())))
    assert activity == summed_activity(table(ACTIVITY, rows))
    assert damage == summed_damage(table(DAMAGE, wrong))
    for summary in (activity, damage):
        before = json.dumps(summary.as_json())
        copied: Any = summary.copy()
        copied.add(table(ACTIVITY, rows).to_batches()) if summary is activity else copied.merge(damage)
        assert (json.dumps(summary.as_json()) == before, copied == summary) == (True, False)


def test_summaries_are_bounded_and_their_sums_exact() -> None:
    journals = MOST_SERIES + 20
    rows: list[tuple[Any, ...]] = [
        ("sej", f"journal {number:03}", minute(START + 60 * at), 1, 10 * (journals - number))
        for at in range(0, 3000, 2)
        for number in range(journals if at == 0 else 3)
    ]
    rows.append(("sej", "journal 000", minute(0), 6, 60))
    wrong: list[tuple[Any, ...]] = [("sej", "a", "f", 10 * n, 5, "malformed", f"no {n}", None) for n in range(2000)]
    wrong += [("sej", "a", f"g{number}", 100, 50, "gap", "gone", None) for number in range(500)]
    wrong += [("sej", f"j{n}", None, None, None, "unreadable", "no", None) for n in range(2 * MOST_UNREADABLE)]
    tables = {"activity": table(ACTIVITY, rows), "damage": table(DAMAGE, wrong)}
    activity, damage = summed_activity(tables["activity"]), summed_damage(tables["damage"])
    assert (len(activity.journals), len(activity.series)) == (journals, MOST_SERIES)
    assert max(len(one.periods) for one in (*activity.series.values(), activity.others)) <= MOST_PERIODS
    assert len(damage.files) <= MOST_FILES
    assert max(map(len, damage.files.values())) <= MOST_RANGES
    assert len(damage.unreadable) == MOST_UNREADABLE
    found = gathered(tables)
    assert (found.total.records, found.total.bytes) == (sum(row[3] for row in rows), sum(row[4] for row in rows))
    assert found.journal_count == journals + 1 + 2 * MOST_UNREADABLE
    over_time = found.activity
    assert over_time is not None
    assert (over_time.before, over_time.width) == (6, 7200)
    largest = over_time.series[0]
    counts = [count for count in largest.records if count]
    assert (largest.name, set(counts[1:-1]), sum(counts)) == ("journal 000", {60}, 1500), "bars have whole periods"
    assert sum(sum(series.records) for series in over_time.series) == found.total.records - 6
    assert found.damage is not None
    assert found.damage.kinds == {"gap": (500, 25_000), "malformed": (2000, 10_000), "unreadable": (200, 0)}
    assert (found.damage.file_count, found.damage.unreadable_count) == (501, 200)
    worst = found.damage.files[0]
    assert (worst.file, worst.count, worst.bytes) == ("f", 2000, 10_000)
    assert (worst.ranges[0].start, worst.ranges[0].reason, worst.ranges[-1].end) == (0, "no 0", 19_995)
    assert len(worst.ranges) <= figures.MOST_RANGES_OF_A_FILE


def test_journal_that_becomes_one_of_the_largest_has_a_series_from_then_on() -> None:
    activity = ActivitySummary()
    names = [f"journal {number:03}" for number in range(MOST_SERIES + 1)]
    activity.add(table(ACTIVITY, [("sej", name, minute(START), 1, 10) for name in names]).to_batches())
    assert (names[-1] in activity.series, sum(r for _, r, _ in activity.others.rows())) == (False, 1)
    activity.add(table(ACTIVITY, [("sej", names[-1], minute(START + 60), 7, 70)]).to_batches())
    assert [row[1] for row in activity.series[names[-1]].rows()] == [7]
    assert names[-2] not in activity.series
    assert [row[1] for row in activity.others.rows()] == [2], "its own first record, and that of the one it replaced"
    assert activity.journals[names[-1]].records == 8


CONSUMERS = pa.schema(
    [
        *((name, pa.string()) for name in ("journal", "shard", "consumer", "status", "problem")),
        *((name, pa.int64()) for name in ("offset", "next", "lag", "missed")),
    ]
)


def test_consumers_with_the_largest_lag_come_first() -> None:
    rows: list[tuple[Any, ...]] = [
        ("j", None, f"c{number:02}", "behind", None, number, 35, 35 - number, 0) for number in range(36)
    ]
    rows.insert(0, ("j", "s", "new", "new", None, None, 35, None, None))
    found = gathered({"consumers": table(CONSUMERS, rows)})
    assert found.statuses == {"behind": 36, "new": 1}
    assert found.consumers is not None
    assert [one.lag for one in found.consumers] == [35 - number for number in range(figures.MOST_CONSUMERS)]
    assert found.consumers[0] == figures.ConsumerFigures("j", None, "c00", 0, 35, 35, 0, "behind", None)
    consumers = gathered({"consumers": table(CONSUMERS, rows[:1])}).consumers
    assert consumers is not None
    (new,) = consumers
    assert (new.consumer, new.shard, new.lag) == ("new", "s", None)


def test_empty_tables_and_no_tables_have_figures() -> None:
    nothing = gathered({})
    assert (nothing.journal_count, nothing.journals, nothing.activity) == (0, [], None)
    empty = {
        "activity": table(ACTIVITY, []),
        "damage": table(DAMAGE, []),
        "files": table(FILES, []),
    }
    found = gathered({**empty, "consumers": table(CONSUMERS, [])})
    assert (found.journal_count, found.total.records, found.consumers, found.statuses) == (0, 0, [], {})
    assert found.damage is not None
    assert found.damage.count == 0
    assert found.activity is not None
    assert found.activity.buckets == 0
    untimed = gathered({"activity": table(ACTIVITY, [("sej", "a", None, 5, 50)])})
    assert untimed.activity is not None
    assert (untimed.activity.buckets, untimed.activity.untimed, untimed.total.first) == (0, 5, None)


def test_items_are_counted_by_queue_and_state() -> None:
    states = ["waiting"] * 3 + ["open"] + ["done"] * 9 + ["expired"] * 2
    rows = [("shop", "mail", state) for state in states] + [("shop", "jobs", "done")] * 50 + [("bar", "jobs", "open")]
    schema = pa.schema([("journal", pa.string()), ("queue", pa.string()), ("state", pa.string())])
    found = gathered({"queue_items": table(schema, rows)})
    assert found.queues == [
        figures.QueueFigures("shop", "mail", waiting=3, open=1, expired=2, done=9),
        figures.QueueFigures("bar", "jobs", open=1),
        figures.QueueFigures("shop", "jobs", done=50),
    ]
    assert found.queue_count == 3
    many = gathered({"queue_items": table(schema, [("a", str(number), "open") for number in range(99)])})
    assert many.queues is not None
    assert (len(many.queues), many.queue_count) == (figures.MOST_QUEUES, 99)


def test_changes_and_keys_are_counted_by_store() -> None:
    place = [("journal", pa.string()), ("store", pa.string())]
    history = [("shop", "cars", number % 4 == 3) for number in range(10)] + [("bar", "bikes", True)]
    state = [("shop", "cars")] * 3 + [("shop", "trucks")]
    frames = {
        "kv_history": table(pa.schema([*place, ("deleted", pa.bool_())]), history),
        "kv_state": table(pa.schema(place), state),
    }
    found = gathered(frames)
    assert found.stores == [
        StoreRow("shop", "cars", changes=10, deletions=2, keys=3),
        StoreRow("shop", "trucks", changes=0, deletions=0, keys=1),
        StoreRow("bar", "bikes", changes=1, deletions=1, keys=0),
    ]
    alone = gathered({"kv_state": frames["kv_state"]}).stores
    assert alone == [StoreRow("shop", "cars", keys=3), StoreRow("shop", "trucks", keys=1)]
    many = gathered({"kv_state": table(pa.schema(place), [("a", str(number)) for number in range(99)])})
    assert many.stores is not None
    assert (len(many.stores), many.store_count) == (figures.MOST_STORES, 99)


SEGMENTS = pa.schema(
    [
        ("journal", pa.string()),
        *(("complete", pa.bool_()), ("checked", pa.bool_()), ("records", pa.int64()), ("bytes", pa.int64())),
    ]
)
CHECKED, OPEN = (True, True, 5, 50), (False, False, 1, 10)


def some_segments() -> pa.Table:
    rows = [("a", *CHECKED)] * 9 + [("a", *OPEN)] + [("b", True, False, 7, 70)] * 2 + [("b", *OPEN)]
    return table(SEGMENTS, rows)


def some_pages() -> dict[str, pa.Table]:
    place = [("journal", pa.string()), ("file", pa.string())]
    transactions = pa.schema([*place, ("outcome", pa.string()), ("bytes", pa.int64())])
    versions = pa.schema([*place, ("version", pa.int64()), ("deleted", pa.bool_())])
    outcomes = ["completed", "rolled_back", "completed", "incomplete", "completed"]
    changes = [("a", "one", number, number == 3) for number in (1, 1, 2, 3)] + [("b", "two", 1, False)] * 6
    return {
        "transactions": table(transactions, [("a", "one", outcome, 10) for outcome in outcomes]),
        "page_versions": table(versions, changes),
    }


def test_segments_are_counted_by_journal_sorted_by_reclaimable_bytes() -> None:
    found = gathered({"segments": some_segments()})
    assert found.segmented == [SegmentRow("b", 3, 2, 0, 15, 150), SegmentRow("a", 10, 9, 9, 46, 460)]
    many = gathered({"segments": table(SEGMENTS, [(str(number), *CHECKED) for number in range(99)])})
    assert many.segmented is not None
    assert (len(many.segmented), many.segmented_count) == (figures.MOST_SEGMENTED, 99)


def test_transactions_and_versions_are_counted_by_file() -> None:
    frames = some_pages()
    reported = {"completed": 3, "rolled_back": 1, "incomplete": 1}
    assert gathered(frames).paged == [
        PageRow("a", "one", reported, 50, pages=2, versions=4, removals=1),
        PageRow("b", "two", pages=6, versions=6, removals=0),
    ]
    assert gathered({"transactions": frames["transactions"]}).paged == [PageRow("a", "one", reported, 50)]
    assert gathered({"page_versions": frames["page_versions"]}).paged_count == 2


@pytest.mark.parametrize("seconds", [0, 60, 199 * 60, 200 * 60, 86400, 10**7, 10**9, 10**11, 10**13])
def test_number_of_buckets_is_limited(seconds: int) -> None:
    width = figures.bucket_width(seconds)
    assert width % 60 == 0
    for start in (0, 59 * 60, -(10**6)):
        first = start // width * width
        assert (start + seconds - first) // width + 1 <= figures.MOST_BUCKETS


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([5], (0, 0)),
        ([0, 100, 0], (1, 1)),
        ([1, 0, 0, 100, 100, 0], (3, 4)),
        ([1, 1, 1], (0, 2)),
        ([0, 0], (0, 0)),
        ([50, 0, 0, 50], (0, 3)),
    ],
)
def test_densest_time_range_contains_nearly_all_records(counts: list[int], wanted: tuple[int, int]) -> None:
    assert figures.densest(counts) == wanted
