"""The Parquet publisher: all tables of a batch appear together or not at all, whatever fails and whenever."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pytest

from logwright.core.io.disk import Disk, make_directories, write_all
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, Poisoned, StorageFailed, WrongUse
from logwright.pipeline.publish.control import HOME
from logwright.pipeline.publish.parquet import ParquetPublisher, is_being_changed, read_checkpoint, table_files
from logwright.pipeline.publish.publisher import Batch, TableFile, part_name
from tests.support.faulty_disk import FAULTS, RENAMES, FaultyDisk, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk

OUT = Path("/out/tables")
SCHEMAS = {"events": pa.schema([("a", pa.int64())]), "items": pa.schema([("b", pa.int64()), ("date", pa.string())])}
BY_DATE = {"items": ("date",)}
View = dict[str, bytes]

EVENTS_1 = TableFile("events", part_name(1, "aaaaa"), 3, 10)
ITEMS_1 = TableFile("items", f"date=2026-01-01/{part_name(1, 'bbbbb')}", 2, 9, {"date": "2026-01-01"})
EVENTS_2 = TableFile("events", part_name(2, "ccccc"), 4, 10)
ITEMS_2 = TableFile("items", f"date=2026-01-02/{part_name(2, 'ddddd')}", 5, 9, {"date": "2026-01-02"})


def write(disk: Disk, path: Path, data: bytes) -> None:
    """A file as a worker leaves it: neither its contents nor its name are synced."""
    make_directories(disk, path.parent)
    file = disk.open(path, "create")
    try:
        write_all(file, 0, data)
    finally:
        file.close()


def stage(disk: Disk, publisher: ParquetPublisher, *files: TableFile) -> None:
    for file in files:
        data = f"{file.table} {file.rows}".encode().ljust(file.bytes, b".")
        write(disk, Path(publisher.where(file.table)) / file.name, data)


def first_batch(disk: Disk) -> None:
    with ParquetPublisher(OUT, disk=disk) as publisher:
        stage(disk, publisher, EVENTS_1, ITEMS_1)
        publisher.publish(Batch(1, [EVENTS_1, ITEMS_1], [], SCHEMAS, BY_DATE, {"read": 10}))


def second_batch(disk: Disk) -> None:
    """Adds to one table, and replaces the other, which leaves a folder empty."""
    with ParquetPublisher(OUT, disk=disk) as publisher:
        stage(disk, publisher, EVENTS_2, ITEMS_2)
        publisher.publish(Batch(2, [EVENTS_2, ITEMS_2], publisher.files("items"), SCHEMAS, BY_DATE, {"read": 20}))


def contents(disk: Disk, path: Path) -> bytes:
    file = disk.open(path, "read")
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def view(disk: Disk) -> View:
    """What a reader finds: the files of all tables, and the checkpoint."""
    names = [name for table in ("events", "items") for name in table_files(OUT, table, disk=disk)]
    checkpoint = read_checkpoint(OUT, disk=disk)
    state = json.dumps(None if checkpoint is None else [checkpoint.batch, checkpoint.state]).encode()
    return {**{name: contents(disk, OUT / name) for name in names}, "checkpoint": state}


OLD = {
    "events/part-00000001-aaaaa.parquet": b"events 3..",
    "items/date=2026-01-01/part-00000001-bbbbb.parquet": b"items 2..",
    "checkpoint": b'[1, {"read": 10}]',
}
NEW = {
    "events/part-00000001-aaaaa.parquet": b"events 3..",
    "events/part-00000002-ccccc.parquet": b"events 4..",
    "items/date=2026-01-02/part-00000002-ddddd.parquet": b"items 5..",
    "checkpoint": b'[2, {"read": 20}]',
}


def started() -> SimulatedDisk:
    """A disk on which one batch was published and is durable."""
    disk = SimulatedDisk()
    disk.make_directory(OUT.parent)
    first_batch(disk)
    disk.settle()
    return disk


def recover(disk: Disk) -> View:
    """What is there once the directory was opened again, which must leave nothing half done."""
    with ParquetPublisher(OUT, disk=disk) as publisher:
        files = [f"{file.table}/{file.name}" for table in ("events", "items") for file in publisher.files(table)]
    assert not is_being_changed(OUT, disk=disk)
    assert not disk.exists(OUT / HOME / "staging")
    found = view(disk)
    assert sorted(files) == sorted(found.keys() - {"checkpoint"})
    return found


# --- without faults -------------------------------------------------------------------------------------------------


def test_a_batch_is_published_with_its_checkpoint_and_files() -> None:
    disk = started()
    assert view(disk) == OLD
    second_batch(disk)
    assert view(disk) == NEW
    assert disk.list_directory(OUT / "items") == ["date=2026-01-02"]
    assert disk.list_directory(OUT / HOME) == ["lock", "pipeline.json"]
    with ParquetPublisher(OUT, disk=disk) as publisher:
        assert (publisher.batch, publisher.completed) == (3, False)
        assert publisher.files("events") == [EVENTS_1, EVENTS_2]
        assert publisher.files("items") == [ITEMS_2]
        assert publisher.files("nothing") == []
        assert publisher.vacuum() == 0


def test_the_report_is_published_with_the_batch(tmp_path: Path) -> None:
    disk = started()
    report = tmp_path / "report.html"
    report.write_bytes(b"report two")
    with ParquetPublisher(OUT, disk=disk) as publisher:
        publisher.publish(Batch(2, report=report))
        assert contents(disk, OUT / "report.html") == b"report two"
        report.write_bytes(b"report three")
        publisher.publish(Batch(3, report=report))
    assert contents(disk, OUT / "report.html") == b"report three"
    assert report.exists()


def test_discarded_batch_leaves_no_files() -> None:
    disk = started()
    with ParquetPublisher(OUT, disk=disk) as publisher:
        stage(disk, publisher, EVENTS_2)
        publisher.discard()
        assert not disk.exists(OUT / HOME / "staging")
        stage(disk, publisher, EVENTS_2)
        publisher.publish(Batch(2, [EVENTS_2], [], SCHEMAS))
        assert publisher.files("events") == [EVENTS_1, EVENTS_2]


def test_only_one_run_works_at_a_time() -> None:
    disk = started()
    with ParquetPublisher(OUT, disk=disk), pytest.raises(Locked, match="another run of the pipeline"):
        ParquetPublisher(OUT, disk=disk)
    ParquetPublisher(OUT, disk=disk).close()


def test_directory_with_foreign_files_is_refused() -> None:
    disk = SimulatedDisk()
    write(disk, OUT / "thesis.txt", b"precious")
    with pytest.raises(WrongUse, match=r"contains other files \(thesis.txt"):
        ParquetPublisher(OUT, disk=disk)
    assert disk.list_directory(OUT) == ["thesis.txt"]


def test_directory_of_another_format_is_refused() -> None:
    disk = SimulatedDisk()
    write(disk, OUT / HOME / "format.json", b'{"version": 1, "format": "delta"}')
    with pytest.raises(WrongUse, match="has tables in the format delta, not parquet"):
        ParquetPublisher(OUT, disk=disk)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (TableFile("events", "../part-00000002-aaaaa.parquet", 1, 1), "not where its partition is: no folder"),
        (TableFile("events", "below/part-00000002-aaaaa.parquet", 1, 1), "not where its partition is: no folder"),
        (TableFile("events", "part-00000001-eeeee.parquet", 1, 1), "not a data file of batch 2"),
        (TableFile("events", "other.parquet", 1, 1), "not a data file of batch 2"),
        (TableFile("items", "part-00000002-eeeee.parquet", 1, 1), "not where its partition is: date=…"),
        (TableFile("items", "date=1/part-00000002-eeeee.parquet", 1, 1), "not where its partition is: date=…"),
        (TableFile("unknown", "part-00000002-eeeee.parquet", 1, 1), "but not its schema"),
    ],
)
def test_file_with_a_wrong_name_is_refused(file: TableFile, reason: str) -> None:
    disk = started()
    with ParquetPublisher(OUT, disk=disk) as publisher, pytest.raises(WrongUse, match=reason):
        publisher.publish(Batch(2, [file], [], SCHEMAS, BY_DATE))
    assert view(disk) == OLD


def test_batch_that_does_not_follow_is_refused() -> None:
    disk = started()
    with ParquetPublisher(OUT, disk=disk) as publisher:
        with pytest.raises(WrongUse, match="batch 3 cannot be published: the next one is 2"):
            publisher.publish(Batch(3))
        with pytest.raises(WrongUse, match="the table does not have this file"):
            publisher.publish(Batch(2, [], [EVENTS_2], SCHEMAS))
        with pytest.raises(WrongUse, match=r"'\.\./x' cannot be the name of a table"):
            publisher.publish(Batch(2, schemas={"../x": SCHEMAS["events"]}))
        with pytest.raises(WrongUse, match="cannot be the name of a table"):
            publisher.where("_logwright")
    assert view(disk) == OLD


def test_file_that_differs_from_its_report_is_not_published() -> None:
    disk = started()
    with ParquetPublisher(OUT, disk=disk) as publisher:
        write(disk, Path(publisher.where("events")) / EVENTS_2.name, b"short")
        with pytest.raises(DamagedJournal, match="the file has 5 bytes, but 10 were staged"):
            publisher.publish(Batch(2, [EVENTS_2], [], SCHEMAS))
        missing = TableFile("events", part_name(2, "eeeee"), 1, 1)
        with pytest.raises(NotFound):
            publisher.publish(Batch(2, [missing], [], SCHEMAS))
        publisher.discard()
    assert view(disk) == OLD


def test_tables_of_an_earlier_release_are_continued(tmp_path: Path) -> None:
    """Its checkpoint does not list the files: their names and footers say what they are."""
    import pyarrow.parquet as pq

    out = tmp_path / "tables"
    with ParquetPublisher(out) as publisher:
        publisher.publish(Batch(1, state={"read": 1}))
    names = ("events/part-00000001-00000.parquet", "items/date=a%20b/part-00000001-00001.parquet")
    for name, rows in zip(names, (pa.table({"a": [1, 2, 3]}), pa.table({"b": [1, 2]})), strict=True):
        (out / name).parent.mkdir(parents=True)
        pq.write_table(rows, out / name)
    sizes = [(out / name).stat().st_size for name in names]
    path = out / "_logwright" / "pipeline.json"
    known = json.loads(path.read_bytes())
    del known["files"]
    path.write_text(json.dumps(known))
    events = TableFile("events", "part-00000001-00000.parquet", 3, sizes[0])
    items = TableFile("items", "date=a%20b/part-00000001-00001.parquet", 2, sizes[1], {"date": "a b"})
    with ParquetPublisher(out) as publisher:
        assert publisher.checkpoint is not None
        assert publisher.checkpoint.state == {"read": 1}
        assert (publisher.files("events"), publisher.files("items")) == ([events], [items])
        publisher.publish(Batch(2, [], [items], SCHEMAS, BY_DATE))
    assert table_files(out, "items") == []
    with ParquetPublisher(out) as publisher:
        assert (publisher.files("events"), publisher.files("items")) == ([events], [])


# --- power cuts, kills, and calls that fail ---------------------------------------------------------------------------


def published() -> SimulatedDisk:
    disk = started()
    second_batch(disk)
    disk.mark("published")
    return disk


def check(disk: SimulatedDisk) -> None:
    found = recover(disk)
    expected = (NEW,) if "published" in disk.marks else (OLD, NEW)
    assert found in expected, disk.story


def test_power_cut_at_any_moment_leaves_the_old_or_the_new_state() -> None:
    for after in published().crash_states(most=6, format="pipeline"):
        check(after)


def test_kill_at_any_moment_leaves_the_old_or_the_new_state() -> None:
    for after in published().process_kills(format="pipeline"):
        check(after)


def test_first_batch_is_complete_or_absent() -> None:
    disk = SimulatedDisk()
    disk.make_directory(OUT.parent)
    disk.settle()
    first_batch(disk)
    disk.mark("published")
    for after in disk.crash_states(most=4, format="pipeline"):
        found = recover(after)
        assert found == OLD or (found == {"checkpoint": b"null"} and "published" not in after.marks), after.story


def test_every_missing_sync_is_detected() -> None:
    """The negative control: every sync of a staged file or of a table's folder is there for a crash that needs it."""
    tried = []
    for disk in forgotten_syncs(started):
        second_batch(disk)
        disk.inner.mark("published")
        if disk.failed.startswith("sync /") or any(table in disk.failed for table in ("tables/events", "date=")):
            tried.append(disk.failed)
            assert _is_noticed(disk.inner), disk.failed
    assert len(tried) >= 8


def _is_noticed(disk: SimulatedDisk) -> bool:
    for after in disk.crash_states(most=24, format=""):
        try:
            check(after)
        except (AssertionError, LogwrightError):
            return True
    return False


def test_whichever_call_fails_the_old_or_the_new_state_remains() -> None:
    for disk in every_fault(started, FAULTS, format="pipeline"):
        done = False
        with contextlib.suppress(LogwrightError):
            second_batch(disk)
            done = True
        assert recover(disk.inner) in ((NEW,) if done else (OLD, NEW)), disk.story
        assert disk.inner.open_files == 0, disk.story


def test_after_a_failure_nothing_more_is_published_until_it_is_opened_again() -> None:
    disk = FaultyDisk(started(), 2, only=RENAMES)  # the first one is that of the manifest
    with ParquetPublisher(OUT, disk=disk) as publisher:
        stage(disk, publisher, EVENTS_2, ITEMS_2)
        batch = Batch(2, [EVENTS_2, ITEMS_2], publisher.files("items"), SCHEMAS, BY_DATE, {"read": 20})
        with pytest.raises(StorageFailed) as raised:
            publisher.publish(batch)
        assert "the next run completes it" in raised.value.__notes__[0]
        with pytest.raises(Poisoned, match="publishing batch 2 failed; open the directory again"):
            publisher.publish(batch)
        publisher.discard()
    with ParquetPublisher(OUT, disk=disk.inner) as publisher:
        assert publisher.completed
    assert view(disk.inner) == NEW
