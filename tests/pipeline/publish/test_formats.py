"""What all publishers do: batches are added and removed, read by other readers, and refused if they are wrong."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from logwright.errors import DamagedJournal, Locked, NotFound, WrongUse
from logwright.pipeline.publish import FORMATS, Batch, TableFile, open_publisher, part_name
from tests.pipeline.publish.worlds import (
    BY_QUEUE,
    EVENTS,
    ITEMS,
    NEW,
    OLD,
    SCHEMAS,
    checkpoint,
    event,
    first_batch,
    items,
    rows_of,
    second_batch,
    view,
    write,
)

each_format = pytest.mark.parametrize("format", FORMATS)
with_transactions = pytest.mark.parametrize("format", ["delta", "iceberg"])


def parts(out: Path, table: str) -> list[Path]:
    return sorted((out / table).rglob("part-*.parquet"))


@each_format
def test_batches_are_published_and_continued_after_opening_again(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        assert (publisher.checkpoint, publisher.batch, publisher.files("events")) == (None, 1, [])
        first_batch(publisher)
        assert view(format, str(out)) == OLD
    with open_publisher(out, format) as publisher:
        assert publisher.checkpoint is not None
        assert (publisher.checkpoint.batch, publisher.checkpoint.state) == (1, {"read": 1})
        assert sorted(file.rows for file in publisher.files("items")) == [2, 2]
        second_batch(publisher)
        assert view(format, str(out)) == NEW
        assert publisher.checkpoint.state == {"read": 2}
        assert {(file.name, file.partition.get("queue"), file.rows) for file in publisher.files("items")} == {
            (str(path.relative_to(out / "items")), queue, rows)
            for path in parts(out, "items")
            for queue, rows in [("a b", 2) if "a%20b" in str(path) else ("c", 5)]
            if queue == "a b" or "-00000002-" in path.name
        }
    assert not (out / "_logwright" / "manifest.json").exists()


@each_format
def test_the_sizes_of_files_are_those_on_the_disk(tmp_path: Path, format: str) -> None:
    with open_publisher(tmp_path / "tables", format) as publisher:
        first_batch(publisher)
        for file in publisher.files("items"):
            assert (tmp_path / "tables" / "items" / file.name).stat().st_size == file.bytes


@each_format
def test_a_table_may_be_empty_and_get_its_rows_later(tmp_path: Path, format: str) -> None:
    with open_publisher(tmp_path / "tables", format) as publisher:
        publisher.publish(Batch(1, schemas={"events": EVENTS}))
        assert publisher.files("events") == []
        added = write(publisher, "events", [event(1)], EVENTS)
        publisher.publish(Batch(2, [added], [], {"events": EVENTS}))
        publisher.publish(Batch(3, [], publisher.files("events"), {"events": EVENTS}))
        assert publisher.files("events") == []
        assert view(format, str(tmp_path / "tables"))["events"] == []
        publisher.publish(Batch(4))
        assert publisher.batch == 5


@each_format
def test_the_report_is_published_with_the_batch(tmp_path: Path, format: str) -> None:
    report = tmp_path / "made.html"
    report.write_text("report one")
    with open_publisher(tmp_path / "tables", format) as publisher:
        publisher.publish(Batch(1, report=report))
        assert (tmp_path / "tables" / "report.html").read_text() == "report one"
        publisher.publish(Batch(2))
        assert (tmp_path / "tables" / "report.html").read_text() == "report one"


@with_transactions
def test_columns_are_added_and_other_types_refused(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    more = EVENTS.append(pa.field("size", pa.int64()))
    with open_publisher(out, format) as publisher:
        first_batch(publisher)
        added = write(publisher, "events", [event(3) | {"size": 5}], more)
        publisher.publish(Batch(2, [added], [], {"events": more}))
        rows = [event(0) | {"size": None}, event(1) | {"size": None}, event(2) | {"size": None}, event(3) | {"size": 5}]
        assert view(format, str(out))["events"] == rows
        other = EVENTS.set(0, pa.field("a", pa.string()))
        with pytest.raises(WrongUse, match="tables/events: "):
            publisher.publish(Batch(3, [], [], {"events": other}))
        with pytest.raises(WrongUse, match=r"is partitioned by \('queue',\), not \(\)"):
            publisher.publish(Batch(3, [], [], {"items": ITEMS}))
        added = write(publisher, "events", [event(4)], EVENTS)
        publisher.publish(Batch(3, [added], [], {"events": EVENTS}))
        assert view(format, str(out))["events"] == [*rows, event(4) | {"size": None}]


@each_format
def test_a_null_partition_is_kept(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        file = write(
            publisher, "items", items(range(2), "__HIVE_DEFAULT_PARTITION__"), ITEMS, "__HIVE_DEFAULT_PARTITION__"
        )
        null = TableFile("items", file.name, 2, file.bytes, {"queue": None})
        publisher.publish(Batch(1, [null], [], {"items": ITEMS}, BY_QUEUE))
        assert publisher.files("items") == [null]
    assert view(format, str(out))["items"] == [{"b": 0, "queue": None}, {"b": 1, "queue": None}]


@with_transactions
def test_a_table_that_is_ahead_of_the_checkpoint_is_an_error(tmp_path: Path, format: str) -> None:
    """As after restoring an old copy of `_logwright/`: its batch must not be taken for one that was published."""
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        first_batch(publisher)
        kept = (out / "_logwright" / "pipeline.json").read_bytes()
        second_batch(publisher)
    (out / "_logwright" / "pipeline.json").write_bytes(kept)
    ahead = pytest.raises(DamagedJournal, match="the table has batch 2, but the checkpoint says 1")
    with open_publisher(out, format) as publisher, ahead:
        publisher.publish(Batch(2, schemas=SCHEMAS, partition_by=BY_QUEUE))


@with_transactions
def test_removed_files_stay_for_earlier_versions_until_they_are_vacuumed(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    options = {"kept_snapshots": "1"} if format == "iceberg" else {}
    with open_publisher(out, format, options) as publisher:
        first_batch(publisher)
        second_batch(publisher)
        assert len(parts(out, "items")) == 3
        assert len(parts(out, "events")) == 3, "one of a failed attempt"
        assert publisher.vacuum() == 0
        for number in range(3, 6):  # forgets the snapshots of Iceberg
            publisher.publish(Batch(number, [write(publisher, "items", [], ITEMS, "c")], [], SCHEMAS, BY_QUEUE))
        assert publisher.vacuum(datetime.timedelta(0)) == 2
        assert len(parts(out, "events")) == 2
    assert view(format, str(out)) == NEW


@with_transactions
def test_what_a_failed_batch_has_written_is_discarded(tmp_path: Path, format: str) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        first_batch(publisher)
        write(publisher, "events", [event(9)], EVENTS)
        write(publisher, "items", items(range(1), "z"), ITEMS, "z")
        publisher.discard()
        assert (len(parts(out, "events")), len(parts(out, "items"))) == (1, 2)
        write(publisher, "items", items(range(1), "z"), ITEMS, "z")
    with open_publisher(out, format) as publisher:
        assert (len(parts(out, "events")), len(parts(out, "items"))) == (1, 2)
        second_batch(publisher)
    assert view(format, str(out)) == NEW


@with_transactions
def test_first_batch_that_failed_leaves_a_directory_that_is_ours(tmp_path: Path, format: str) -> None:
    with open_publisher(tmp_path / "tables", format) as publisher:
        write(publisher, "events", [event(9)], EVENTS)
    with open_publisher(tmp_path / "tables", format) as publisher:
        assert parts(tmp_path / "tables", "events") == []
        first_batch(publisher)
    assert view(format, str(tmp_path / "tables")) == OLD


@with_transactions
def test_directories_that_are_not_ours_are_refused(tmp_path: Path, format: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(WrongUse, match=r"contains other files \(thesis.txt"):
        open_publisher(tmp_path / "other", format)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]
    with open_publisher(tmp_path / "parquet", "parquet") as publisher:
        first_batch(publisher)
    with pytest.raises(WrongUse, match=f"has tables in the format parquet, not {format}"):
        open_publisher(tmp_path / "parquet", format)
    with open_publisher(tmp_path / "tables", format), pytest.raises(Locked, match="another run of the pipeline"):
        open_publisher(tmp_path / "tables", format)
    with pytest.raises(WrongUse, match=f"has tables in the format {format}, not parquet"):
        open_publisher(tmp_path / "tables", "parquet")


@with_transactions
def test_files_that_differ_from_their_report_are_not_published(tmp_path: Path, format: str) -> None:
    with open_publisher(tmp_path / "tables", format) as publisher:
        file = write(publisher, "events", [event(1)], EVENTS)
        longer = TableFile("events", file.name, 1, file.bytes + 1)
        with pytest.raises(
            DamagedJournal, match=f"the file has {file.bytes} bytes, but {file.bytes + 1} were reported"
        ):
            publisher.publish(Batch(1, [longer], [], SCHEMAS, BY_QUEUE))
        with pytest.raises(NotFound, match="no such file; nothing was published"):
            publisher.publish(Batch(1, [TableFile("events", part_name(1), 1, 1)], [], SCHEMAS, BY_QUEUE))
        with pytest.raises(WrongUse, match="the table does not have this file"):
            publisher.publish(Batch(1, [], [file], SCHEMAS, BY_QUEUE))
        publisher.publish(Batch(1, [file], [], SCHEMAS, BY_QUEUE))
    assert view(format, str(tmp_path / "tables"))["events"] == [event(1)]


@with_transactions
@pytest.mark.parametrize("name", ["manifest.json", "pipeline.json", "format.json"])
@pytest.mark.parametrize("data", [b"", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_invalid_control_file_is_an_error_that_names_it(tmp_path: Path, format: str, name: str, data: bytes) -> None:
    with open_publisher(tmp_path, format):
        (tmp_path / "_logwright" / name).write_bytes(data)
    with pytest.raises(DamagedJournal, match=name):
        open_publisher(tmp_path, format)


@pytest.mark.parametrize(
    ("out", "format", "options", "reason"),
    [
        ("tables", "orc", {}, "there is no table format orc"),
        ("tables", "parquet", {"region": "x"}, "parquet tables have no option region"),
        ("tables", "delta", {"regoin": "x"}, "did you mean region"),
        ("s3://bucket/tables", "parquet", {}, "written to a local directory"),
        ("gs://bucket/tables", "delta", {}, "gs:// cannot be written to"),
        ("s3://bucket", "delta", {}, "s3://bucket/prefix"),
        ("s3://key:secret@bucket/tables?color=red", "delta", {}, "s3://bucket: there is no parameter color"),
    ],
)
def test_wrong_place_or_option_is_refused(out: str, format: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(WrongUse, match=reason) as raised:
        open_publisher(out, format, options)
    assert "secret" not in str(raised.value)


# --- readers that are not ours --------------------------------------------------------------------------------------


def test_duckdb_and_polars_read_parquet(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, "parquet") as publisher:
        first_batch(publisher)
        second_batch(publisher)
    found = duckdb.sql(f"select * from read_parquet('{out}/items/**/*.parquet', hive_partitioning = true)")
    assert found is not None
    assert rows_of(found.to_arrow_table()) == NEW["items"]
    assert rows_of(polars.read_parquet(f"{out}/items/**/*.parquet", hive_partitioning=True).to_arrow()) == NEW["items"]
    assert rows_of(polars.read_parquet(f"{out}/events/*.parquet").to_arrow()) == NEW["events"]


def test_polars_reads_delta_and_versions_of_the_checkpoint_agree(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    with open_publisher(out, "delta") as publisher:
        first_batch(publisher)
        first = checkpoint(out)
        second_batch(publisher)
    for table in SCHEMAS:
        assert rows_of(polars.read_delta(f"{out}/{table}").to_arrow()) == NEW[table]
        assert first is not None
        assert rows_of(DeltaTable(out / table, version=first["tables"][table]).to_pyarrow_table()) == OLD[table]


def test_delta_files_have_statistics(tmp_path: Path) -> None:
    with open_publisher(tmp_path / "tables", "delta") as publisher:
        first_batch(publisher)
    found = pa.table(DeltaTable(tmp_path / "tables" / "events").get_add_actions(flatten=True)).to_pylist()[0]
    assert {
        name: found[name] for name in ("num_records", "min.a", "max.a", "min.text", "max.text", "null_count.a")
    } == {
        "num_records": 3,
        "min.a": 0,
        "max.a": 2,
        "min.text": "event 0",
        "max.text": "event 2",
        "null_count.a": 0,
    }
    assert (found["min.time"], found["max.time"]) == (event(0)["time"], event(2)["time"])
    where = polars.scan_delta(str(tmp_path / "tables" / "events")).filter(polars.col("time") > event(1)["time"])
    assert where.collect().to_dicts() == [event(2)]


def test_polars_reads_iceberg_and_snapshots_of_the_checkpoint_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    out = tmp_path / "tables"
    with open_publisher(out, "iceberg") as publisher:
        first_batch(publisher)
        second_batch(publisher)
    found = checkpoint(out)
    assert found is not None
    for table in SCHEMAS:
        reached = StaticTable.from_metadata(found["tables"][table]["metadata"])
        assert rows_of(reached.scan().to_arrow()) == NEW[table]
        assert rows_of(polars.scan_iceberg(reached).collect().to_arrow()) == NEW[table]
        snapshots: list[Any] = [snapshot.summary for snapshot in reached.snapshots()]
        assert [summary["logwright.batch"] for summary in snapshots] == ["1", "2"]


@with_transactions
def test_many_batches_leave_few_files(tmp_path: Path, format: str) -> None:
    """Every batch adds a file to one table, and replaces the only file of the other."""
    out = tmp_path / "tables"
    with open_publisher(out, format) as publisher:
        for number in range(1, 31):
            added = [
                write(publisher, "events", [event(number)], EVENTS),
                write(publisher, "items", items(range(number), "c"), ITEMS, "c"),
            ]
            publisher.publish(Batch(number, added, publisher.files("items"), SCHEMAS, BY_QUEUE))
        assert len(publisher.files("events")) == 30
        assert len(publisher.files("items")) == 1
    assert view(format, str(out)) == {
        "events": [event(number) for number in range(1, 31)],
        "items": items(range(30), "c"),
    }
    if format == "iceberg":
        found = checkpoint(out)
        assert found is not None
        table = StaticTable.from_metadata(found["tables"]["items"]["metadata"])
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(table.io)) <= 13
        assert len(table.snapshots()) <= 21
