"""Tables that are too large for the driver are summed up by Spark, and the figures of the report stay the same."""

from __future__ import annotations

from typing import Any

from logwright.pipeline.report import figures
from logwright.pipeline.report.reducing import activity_rows
from logwright.pipeline.tables import DAMAGE
from tests.pipeline.test_figures import (
    ACTIVITY,
    JOURNALS,
    START,
    a_day_of_activity,
    gathered,
    minute,
    some_pages,
    some_segments,
    table,
)


def test_large_tables_are_aggregated_before_they_are_fetched(spark: Any) -> None:
    rows = [(f, name, minute(at), r, b) for f, name, at, r, b in a_day_of_activity()]
    rows.append(("sej", JOURNALS[2], minute(4 * START), 6, 60))
    rows += [("sej", f"tiny {number}", minute(START), 1, 1) for number in range(20)]
    wrong: list[tuple[Any, ...]] = [
        ("sej", JOURNALS[0], "f", 10 * n, 5, "malformed", f"no {n}", None) for n in range(2000)
    ]
    wrong += [("sej", JOURNALS[1], f"g{number}", 100, 50, "gap", "gone", None) for number in range(500)]
    tables = {"activity": table(ACTIVITY, rows), "damage": table(DAMAGE, wrong)}
    frames = {name: spark.createDataFrame(one) for name, one in tables.items()}
    whole, summed = gathered(tables), gathered(frames, most_rows=900)
    assert len(activity_rows(frames["activity"])) == len(rows), "what is small enough is fetched as it is"
    assert summed.total == whole.total
    assert summed.journals == whole.journals
    assert summed.journal_count == len(JOURNALS) + 20 == whole.journal_count
    assert summed.activity is not None
    assert whole.activity is not None
    assert (summed.activity.width, summed.activity.buckets) == (whole.activity.width, whole.activity.buckets)
    assert summed.activity.before == whole.activity.before == 7
    assert summed.activity.after == whole.activity.after == 6
    assert summed.activity.untimed == whole.activity.untimed == sum(range(len(JOURNALS)))
    for one, other in zip(summed.activity.series, whole.activity.series, strict=True):
        assert (one.name, sum(one.records), sum(one.bytes)) == (other.name, sum(other.records), sum(other.bytes))
    assert summed.damage is not None
    assert whole.damage is not None
    assert summed.damage.kinds == whole.damage.kinds
    assert (summed.damage.file_count, summed.damage.count) == (501, 2500)
    assert [(file.file, file.count, file.bytes) for file in summed.damage.files] == [
        (file.file, file.count, file.bytes) for file in whole.damage.files
    ]
    assert len(summed.damage.files[0].ranges) <= figures.MOST_RANGES_OF_A_FILE


def test_segments_and_pages_are_counted_equally_by_spark_and_arrow(spark: Any) -> None:
    tables = {"segments": some_segments(), **some_pages()}
    found = gathered({name: spark.createDataFrame(one) for name, one in tables.items()})
    wanted = gathered(tables)
    assert (found.segmented, found.paged) == (wanted.segmented, wanted.paged)
    assert found.paged_count == 2
