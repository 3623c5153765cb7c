"""Files of queues written from rows of tables have the original bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logwright.core.publish.restore import Missing, Written
from logwright.errors import DamagedJournal, WrongUse
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.tables.restore import RESTORE, FileWriter
from tests.kestrel.journals import random_queue, records_of
from tests.kestrel.samples import FACTS, addx, encoded, scenario_operations, write
from tests.support.simulated_disk import SimulatedDisk


def restore(rows: pa.Table, target: Path, *, batch_rows: int = 1000) -> list[Written]:
    """Write every file that rows mention."""
    written = []
    for file in rows["file"].unique().to_pylist():
        writer = FileWriter(target, file)
        try:
            for batch in rows.filter(pc.equal(rows["file"], file)).to_batches(max_chunksize=batch_rows):
                writer.append_batch(batch)
            written += writer.finish()
        finally:
            writer.discard()
    return written


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
@pytest.mark.parametrize("seed", range(20))
def test_random_queue_is_restored_byte_for_byte(seed: int, dialect: str, tmp_path: Path) -> None:
    dice = random.Random(f"{dialect} {seed}")
    path = random_queue(tmp_path / "source", "cars", dice, dialect)
    assert Reader(path).count() == Reader(path, dialect=dialect).count(), "or the test says nothing"  # type: ignore[arg-type]
    written = restore(records_of(path.parent), tmp_path / "target", batch_rows=dice.choice((1, 7, 1000)))
    assert files_of(tmp_path / "target") == files_of(tmp_path / "source")
    assert RESTORE.missing(written, {}) == []
    assert sum(one.records for one in written) == Reader(path).count()


@pytest.mark.parametrize("scenario", FACTS["scenarios"], ids=lambda scenario: scenario["name"])
def test_journals_of_the_original_are_restored_byte_for_byte(scenario: dict[str, Any], tmp_path: Path) -> None:
    source = write(tmp_path / "source" / "cars", *scenario_operations(scenario))
    if not restore(records_of(source), tmp_path / "target"):
        FileWriter(tmp_path / "target", "cars").finish()  # as is done for every file that the table `files` has
    assert files_of(tmp_path / "target") == files_of(tmp_path / "source")


@pytest.mark.parametrize("seed", range(10))
def test_restore_after_damage_keeps_the_state_and_reports_missing_bytes(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    path = random_queue(tmp_path / "source", "cars", dice, "documented", lively=True)
    following = encoded([addx(b"behind") for _ in range(5)])
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\xee" * 9 + following)
    before = Reader(path, dialect="documented")
    written = restore(records_of(path), tmp_path / "target")
    after = Reader(tmp_path / "target" / "cars", dialect="documented")
    assert after.state() == before.state()
    assert after.verify().problems == []
    (gap,) = RESTORE.missing(written, {})
    assert (gap.part, gap.next - gap.first) == ("cars", 9)
    assert before.total_bytes() - after.total_bytes() == 9


def test_files_read_as_the_newest_get_their_current_name() -> None:
    names = [("cars", 0), ("cars.904", 0), ("cars", 904), ("cars", 950), ("bikes", 0), ("vans.7", 0), ("old", None)]
    assert RESTORE.settled(names) == {
        ("cars", 0): "cars.904",
        ("cars.904", 0): "cars.904",
        ("cars", 904): "cars.950",
        ("cars", 950): "cars",
        ("bikes", 0): "bikes",
        ("vans.7", 0): "vans.7",
        ("old", None): "old",
    }


def test_file_name_contains_its_queue_and_no_other_path() -> None:
    assert [RESTORE.part_of(name) for name in ("cars", "cars.904", "cars.950.pack", "my.queue.bak")] == [
        "cars",
        "cars",
        "cars",
        "my.queue.bak",
    ]
    for name in ("", "..", "../cars", "a/b", ".hidden", "cars~~5", "a\0b"):
        with pytest.raises(WrongUse, match="cannot be the name of a file of a queue"):
            RESTORE.is_single_file(name)


def changed(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place, field = rows.schema.get_field_index(name), rows.schema.field(name)
    return rows.set_column(place, field, pa.array(values, field.type))


def test_invalid_file_rows_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", addx(b"A"), addx(b"B"))
    rows = records_of(write(tmp_path / "cars", addx(b"C"), addx(b"D")))
    one, two = rows.slice(0, 2), rows.slice(2, 2)
    named = changed(two, "file", ["cars.50"] * 2)
    wrong: list[tuple[pa.Table, type[Exception], str]] = [
        (pa.concat_tables([one, one]), DamagedJournal, r"cars\.50 @ 0: the tables have two operations here"),
        (pa.concat_tables([one, named]), DamagedJournal, "operations of several files under this name"),
        (changed(one, "position", [0, 10]), DamagedJournal, r"cars\.50 @ 10: the tables have two operations"),
        (changed(one, "size", [22, 30]), DamagedJournal, "have 52 bytes, and they have 44"),
        (changed(one, "op", ["addx", None]), WrongUse, "null in the column op"),
        (changed(one, "added", [None, 5]), WrongUse, "has neither added nor added_ms"),
        (changed(one, "op", ["add", "nothing"]), WrongUse, "'nothing' is not an operation"),
    ]
    for number, (table, kind, message) in enumerate(wrong):
        with pytest.raises(kind, match=message):
            restore(table, tmp_path / f"target {number}")
    RESTORE.write_consumers(tmp_path, "cars", {})
    with pytest.raises(WrongUse, match="its format knows none"):
        RESTORE.write_consumers(tmp_path, "cars", {"billing": 5})


def test_end_absent_from_the_tables_is_missing(tmp_path: Path) -> None:
    written = restore(records_of(write(tmp_path / "cars", addx(b"A"))), tmp_path / "target")
    assert RESTORE.missing(written, {"cars": 22}) == []
    assert RESTORE.missing(written, {"cars": 60, "bikes": 5}) == [Missing("cars", 22, 60)]


def test_files_written_by_a_task_are_durable_with_their_names(tmp_path: Path, simulated_disk: SimulatedDisk) -> None:
    rows = records_of(write(tmp_path / "cars", addx(b"A"), addx(b"B")))
    writer = FileWriter(Path("/journal"), "cars", disk=simulated_disk)
    for batch in rows.to_batches():
        writer.append_batch(batch)
    writer.finish()
    assert simulated_disk.file_size(Path("/journal/cars")) == (tmp_path / "cars").stat().st_size
    assert simulated_disk.unsynced() == []
