"""Journals restored from rows of tables have the same transactions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logwright.core.format import find_format
from logwright.core.publish.restore import Written
from logwright.errors import DamagedJournal, WrongUse
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.tables.restore import RESTORE, FileWriter
from tests.support.materializing import record_rows
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file
from tests.yeltsin.samples import GOLDEN, modify, numbered, transaction, write


def records_of(path: Path) -> pa.Table:
    """What the table `page_operations` has of a journal."""
    return record_rows(find_format("yeltsin"), path)


def restore(rows: pa.Table, target: Path, *, batch_rows: int = 1000) -> Written:
    writer = FileWriter(target, "t.jrnl")
    try:
        for batch in rows.to_batches(max_chunksize=batch_rows):
            writer.append_batch(batch)
        (written,) = writer.finish()
    finally:
        writer.discard()
    return written


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_journal_is_restored_byte_for_byte(tmp_path: Path, batch_rows: int) -> None:
    items = [
        transaction(),
        *numbered(50),
        transaction(modify(b"a", b"b"), end=0xFE, flags=0x82),
        transaction(end=0xFE, data=b"why"),
        transaction(modify(b"a", b"b"), modify(b"b", b"c"), data=b"carried\0\xff"),
        transaction(flags=0),
    ]
    path = write(tmp_path / "source" / "t.jrnl", *items)
    written = restore(records_of(path), tmp_path / "target", batch_rows=batch_rows)
    data = (tmp_path / "target" / "t.jrnl").read_bytes()
    assert data == path.read_bytes()
    assert (written.records, written.bytes, written.problems) == (records_of(path).num_rows, len(data), ())
    assert RESTORE.missing([written], {"t.jrnl": 10**6}) == []


def test_restored_journal_is_durable(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    writer = FileWriter(Path("/target"), "t.jrnl", disk=disk)
    for batch in records_of(write(tmp_path / "t.jrnl", *numbered(3))).to_batches():
        writer.append_batch(batch)
    writer.finish()
    assert read_file(disk, Path("/target/t.jrnl")) == (tmp_path / "t.jrnl").read_bytes()
    assert disk.unsynced() == []


def test_transactions_absent_from_tables_are_counted_and_pages_are_equal(tmp_path: Path) -> None:
    items = [*numbered(3), transaction(), transaction(), transaction(modify(b"a", b"b"), data=b"carried")]
    path = write(tmp_path / "source" / "t.jrnl", *items)
    rows = records_of(path)
    written = restore(rows.filter(pc.not_equal(rows["op"], "end")), tmp_path / "target")
    assert written.problems == ("2 transactions between these are not in the tables",)
    after = Reader(tmp_path / "target" / "t.jrnl")
    assert after.verify().problems == []
    assert after.state()["pages"] == Reader(path).state()["pages"]
    assert after.count() == 4


@pytest.mark.parametrize("checkpoint_bytes", [0, 1 << 20])
def test_journal_of_a_database_is_restored_with_its_seals(tmp_path: Path, checkpoint_bytes: int) -> None:
    source, table = tmp_path / "source" / "t.jrnl", tmp_path / "t.ydb"
    with Database(table, source, checkpoint_bytes=checkpoint_bytes) as db:
        for number in range(5):
            with db.transaction() as tx:
                tx.modify(tx.allocate(), 0, bytes([number]) * number)
                if number == 3:
                    tx.rollback()
    restore(records_of(source), tmp_path / "target")
    assert (tmp_path / "target" / "t.jrnl").read_bytes() == source.read_bytes()


def test_no_rows_restore_an_empty_journal(tmp_path: Path) -> None:
    FileWriter(tmp_path, "t.jrnl").finish()
    assert (tmp_path / "t.jrnl").read_bytes() == (GOLDEN / "journal_empty.jrnl").read_bytes()


def test_unordered_and_foreign_rows_are_refused(tmp_path: Path) -> None:
    rows = records_of(write(tmp_path / "source" / "t.jrnl", *numbered(5)))
    with pytest.raises(DamagedJournal, match="comes after"):
        restore(rows.take(list(range(rows.num_rows))[::-1]), tmp_path / "a")
    for name, value in (("flags", None), ("outcome", "lost"), ("op", "shuffle"), ("timestamp", None)):
        place = rows.schema.get_field_index(name)
        wrong = rows.set_column(place, name, pa.array([value] * rows.num_rows, rows.schema.field(name).type))
        with pytest.raises(WrongUse):
            restore(wrong, tmp_path / f"{name} {value}")


@pytest.mark.parametrize("name", ["", ".t.jrnl", "../t.jrnl", "a/b", "a\0b", "x" * 300])
def test_names_of_other_paths_are_refused(name: str) -> None:
    with pytest.raises(WrongUse):
        RESTORE.part_of(name)


def test_journal_is_a_file_in_a_directory_and_has_no_consumers(tmp_path: Path) -> None:
    assert not RESTORE.is_single_file("t.jrnl")
    RESTORE.write_consumers(tmp_path, "t.jrnl", {})
    with pytest.raises(WrongUse, match="its format knows none"):
        RESTORE.write_consumers(tmp_path, "t.jrnl", {"reader": 1})
