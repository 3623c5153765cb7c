"""Stores restored from rows of tables have their original journals, active and archived, byte for byte."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logwright.core.format import find_format
from logwright.core.publish.restore import Missing, Written
from logwright.errors import DamagedJournal, HistoryUnavailable, WrongUse
from logwright.versioned import Entry, Reader, VersionedKVStore, VersionedRecovery
from logwright.versioned.tables.restore import RESTORE, FileWriter
from tests.support.damage import damage_file, overwrite
from tests.support.materializing import record_rows
from tests.support.simulated_disk import SimulatedDisk
from tests.versioned import rotated_elsewhere
from tests.versioned.histories import KEYS, VALUES, random_history
from tests.versioned.samples import START, journal
from tests.versioned.stores import HOME, Clock


def records_of(path: Path) -> pa.Table:
    """What the table `kv_changes` has of a store, in the order in which a writer gets it."""
    rows = record_rows(find_format("versioned"), path)
    return rows.sort_by([("sequence", "ascending"), ("position", "ascending")])


def restore(rows: pa.Table, target: Path, listed: Sequence[str] = (), *, batch_rows: int = 1000) -> list[Written]:
    """Write the store `cars`."""
    writer = FileWriter(target, "cars.jrn", listed=listed)
    try:
        for batch in rows.to_batches(max_chunksize=batch_rows):
            writer.append_batch(batch)
        return writer.finish()
    finally:
        writer.discard()


def test_restored_store_is_durable_when_finished(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path, "cars", background=False, clock=Clock(START)) as store:
        store.insert("a", 1)
        store.rotate()
        store.insert("b", 2)
    disk = SimulatedDisk()
    writer = FileWriter(HOME, "cars.jrn", listed=listed_in(tmp_path), disk=disk)
    for batch in records_of(tmp_path / "cars.jrn").to_batches():
        writer.append_batch(batch)
    writer.finish()
    assert disk.list_directory(HOME) == listed_in(tmp_path)
    assert disk.unsynced() == []


def listed_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_file())


def journals_of(directory: Path) -> dict[str, bytes]:
    """Every journal, decompressed, up to its position."""
    found = {}
    for path in directory.iterdir():
        if path.is_file():
            data = zlib.decompress(path.read_bytes()) if path.suffix == ".zz" else path.read_bytes()
            found[path.name] = data[: int.from_bytes(data[8:16], "little")]
    return found


def random_store(directory: Path, dice: random.Random) -> None:
    """A store of ours after use: its clock sometimes stands still, and it is rotated at any moment."""
    clock = Clock(START)
    with VersionedKVStore(directory, "cars", 1 << 12, background=False, clock=clock) as store:
        clock.now += 10
        for _ in range(dice.randrange(200)):
            clock.now += dice.choice((-1, 0, 5, 10**9))
            key, value = dice.choice(KEYS), dice.choice(VALUES)
            if value is None:
                store.remove(key)
            else:
                store.insert(key, value)
            if dice.random() < 0.05:
                store.rotate()
    (directory / ".logwright" / "cars.lck").unlink()
    (directory / ".logwright").rmdir()


@pytest.mark.parametrize("seed", range(30))
def test_store_is_restored_byte_for_byte(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    random_store(tmp_path / "source", dice)
    if dice.random() < 0.3:  # left by retention
        for name in listed_in(tmp_path / "source")[1:3]:
            (tmp_path / "source" / name).unlink()
    source = tmp_path / "source" / "cars.jrn"
    rows = records_of(source)
    written = restore(rows, tmp_path / "target", listed_in(tmp_path / "source"), batch_rows=dice.choice((1, 7, 1000)))
    before, after = journals_of(tmp_path / "source"), journals_of(tmp_path / "target")
    if rows.num_rows:
        leading = [name for name in before if name not in after]
        assert all(not any(rows["file"].to_pylist().count(name) for name in leading) for name in leading)
        assert after == {name: data for name, data in before.items() if name in after}
        assert "cars.jrn" in after
        assert records_of(tmp_path / "target" / "cars.jrn").drop_columns("file") == rows.drop_columns("file")
    assert RESTORE.missing(written, {}) == []
    assert sum(one.records for one in written) == rows.num_rows
    assert {one.file: one.bytes for one in written} == {
        path.name: path.stat().st_size for path in (tmp_path / "target").iterdir()
    }
    assert [one.problems for one in written] == [()] * len(written)
    report = Reader(tmp_path / "target" / "cars.jrn").verify()
    assert report.sound


@pytest.mark.parametrize("seed", range(20))
def test_foreign_stores_are_restored_with_the_same_states_and_history(seed: int, tmp_path: Path) -> None:
    """Their copies may be in another order than ours."""
    dice = random.Random(seed)
    model = random_history(dice, dice.randrange(1, 80))
    path = model.write(tmp_path / "source")
    restore(records_of(path), tmp_path / "target", listed_in(tmp_path / "source"))
    assert listed_in(tmp_path / "target") == listed_in(tmp_path / "source")
    before, after = VersionedRecovery.load(tmp_path / "source"), VersionedRecovery.load(tmp_path / "target")
    assert after.earliest() - before.earliest() in (0, 1), "a first journal of one nanosecond may become shorter"
    times = {START, *(entry.t + step for entry in model.changes for step in (0, 1))}
    for at in sorted(time for time in times if time >= after.earliest()):
        assert dict(after.recover_at(at)) == dict(before.recover_at(at)), at
    for key in KEYS:
        assert list(after.history(key)) == list(before.history(key)), key
    with VersionedKVStore(tmp_path / "target", "cars") as store:
        assert {key: store.get_with_timestamp(key) for key, _ in store.items()} == model.state()


def test_journals_without_changes_are_restored_from_the_table_of_files(tmp_path: Path) -> None:
    clock = Clock(START)
    with VersionedKVStore(tmp_path / "source", "cars", 4096, background=False, clock=clock) as store:
        clock.now += 10
        store.insert("wheels", 4)
        for _ in range(3):
            store.rotate()
        store.insert("wheels", 5)
        for _ in range(2):
            store.rotate()
    rows = records_of(tmp_path / "source" / "cars.jrn")
    assert rows.num_rows == 2
    restore(rows, tmp_path / "target", listed_in(tmp_path / "source"))
    assert journals_of(tmp_path / "target") == journals_of(tmp_path / "source")
    assert len(journals_of(tmp_path / "target")) == 6
    restore(rows, tmp_path / "unlisted")
    assert len(journals_of(tmp_path / "unlisted")) == 2
    for at in (START + 12, clock.now):
        found = [dict(VersionedRecovery.load(tmp_path / name).recover_at(at)) for name in ("source", "unlisted")]
        assert found[0] == found[1]


def test_store_without_any_change_is_an_empty_store(tmp_path: Path) -> None:
    VersionedKVStore(tmp_path / "source", "cars").close()
    (written,) = restore(records_of(tmp_path / "source" / "cars.jrn"), tmp_path / "target", ["cars.jrn"])
    assert (written.file, written.records) == ("cars.jrn", 0)
    with VersionedKVStore(tmp_path / "target", "cars") as store:
        assert len(store) == 0


def test_archives_are_restored_as_archives(tmp_path: Path) -> None:
    model = random_history(random.Random(3), 40, rotations=0)
    model.rotate()
    model.write(tmp_path / "source").unlink()
    restore(records_of(tmp_path / "source"), tmp_path / "target", listed_in(tmp_path / "source"))
    assert journals_of(tmp_path / "target") == journals_of(tmp_path / "source")
    assert listed_in(tmp_path / "target") == [f"cars.jrn.t{model.archives[0][0]}.zz"]
    written = restore(pa.table({}), tmp_path / "empty", ["cars.jrn.t7.zz"])
    assert [one.file for one in written] == ["cars.jrn.t7.zz"]


# --- what is not known ------------------------------------------------------------------------------------------------


def test_missing_archive_leaves_an_unknown_time_range(tmp_path: Path) -> None:
    model = random_history(random.Random(5), 90, rotations=0.1)
    assert len(model.archives) >= 4
    path = model.write(tmp_path / "source")
    (tmp_path / "source" / f"cars.jrn.t{model.archives[2][0]}.zz").unlink()
    restore(records_of(path), tmp_path / "target", listed_in(tmp_path / "source"))
    before, after = VersionedRecovery.load(tmp_path / "source"), VersionedRecovery.load(tmp_path / "target")
    refused = 0
    for at in sorted({START, *(entry.t for entry in model.changes)}):
        try:
            expected = dict(before.recover_at(at))
        except HistoryUnavailable:
            with pytest.raises(HistoryUnavailable):
                after.recover_at(at)
            refused += 1
            continue
        try:
            assert dict(after.recover_at(at)) == expected
        except HistoryUnavailable:
            assert model.archives[1][0] < at <= model.archives[3][0]
    assert refused
    assert dict(after.recover_current()) == dict(before.recover_current())


@pytest.mark.parametrize("seed", range(20))
def test_missing_or_unreadable_archives_never_give_wrong_states(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    model = random_history(dice, 120)
    path = model.write(tmp_path / "source")
    for archive in dice.sample(sorted((tmp_path / "source").glob("*.zz")), min(2, len(model.archives))):
        if dice.random() < 0.5:
            archive.unlink()
        else:
            archive.write_bytes(dice.randbytes(500))
    restore(records_of(path), tmp_path / "target", listed_in(tmp_path / "source"))
    assert Reader(tmp_path / "target" / "cars.jrn").verify().sound or any(
        problem.kind == "gap" for problem in Reader(tmp_path / "target" / "cars.jrn").verify().problems
    )
    recovery = VersionedRecovery.load(tmp_path / "target")
    answered = 0
    times = {START, *(entry.t + step for entry in model.changes for step in (0, 1))}
    ends = {timestamp for timestamp, _ in model.archives}  # changes of the same time may be in the next journal
    for at in sorted(times - ends):
        with contextlib.suppress(HistoryUnavailable):
            assert dict(recovery.recover_at(at)) == {key: value for key, (value, _) in model.state(at).items()}, at
            answered += 1
    assert answered
    assert dict(recovery.recover_current()) == {key: value for key, (value, _) in model.state().items()}


@pytest.mark.parametrize("seed", range(40))
def test_store_rotated_by_another_program_is_restored_with_the_same_answers(seed: int, tmp_path: Path) -> None:
    store = rotated_elsewhere.random_store(random.Random(seed))
    path = store.write(tmp_path / "source")
    restore(records_of(path), tmp_path / "target", listed_in(tmp_path / "source"))
    assert Reader(tmp_path / "target" / "cars.jrn").verify().problems == []
    assert list(Reader(tmp_path / "target" / "cars.jrn")) == store.changes
    recovery = VersionedRecovery.load(tmp_path / "target")
    for at in range(START, store.now + 1000, 500):
        assert recovery.recover_at(at).with_timestamps() == store.state(at), at


def test_damage_within_a_journal_is_reported_and_the_rest_restored(tmp_path: Path) -> None:
    entries = [Entry(START + number, f"key {number % 7}", number) for number in range(50)]
    source = tmp_path / "source" / "cars.jrn"
    source.parent.mkdir()
    source.write_bytes(journal(START, entries))
    rows = records_of(source)
    start, size = rows["position"][20].as_py(), rows["size"][20].as_py()
    damage_file(source, overwrite, start + 2, b"\xff" * 4)
    written = restore(records_of(source), tmp_path / "target", ["cars.jrn"])
    first = START << 64
    assert RESTORE.missing(written, {}) == [Missing("cars", first + start, first + start + size)]
    assert [entry.t for entry in Reader(tmp_path / "target" / "cars.jrn")] == [
        entry.t for number, entry in enumerate(entries) if number != 20
    ]


def test_single_file_knows_nothing_before_its_first_change(tmp_path: Path) -> None:
    model = random_history(random.Random(8), 60, rotations=0)
    model.rotate()
    for number in range(5):
        model.change(Entry(model.now + 10, "b", number))
    model.rotate()
    model.write(tmp_path / "source")
    archive = sorted(tmp_path.glob("source/*.zz"))[1]
    alone = tmp_path / "alone.bin"
    archive.rename(alone)
    writer = FileWriter(tmp_path / "target", RESTORE.unit_of("alone.bin"), listed=["alone.bin"])
    for batch in records_of(alone).to_batches():
        writer.append_batch(batch)
    (written,) = writer.finish()
    assert written.file == "alone.bin.jrn"
    recovery = VersionedRecovery.load(tmp_path / "target")
    expected = {key: value for key, (value, _) in model.state().items()}
    assert dict(recovery.recover_current()) == expected
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(model.archives[0][0] - 1)


def test_values_changed_by_tables_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "cars.jrn"
    source.write_bytes(journal(START, [Entry(START, "a", 1), Entry(START + 1, "b", 2, {"extra": "field"})]))
    (written,) = restore(records_of(source), tmp_path / "target", ["cars.jrn"])
    position = records_of(source)["position"][1].as_py()
    assert written.problems == (f"cars.jrn: 1 entry has another form than before, the first one was @ {position}",)
    assert [(entry.k, entry.o) for entry in Reader(tmp_path / "target" / "cars.jrn")] == [("a", 1), ("b", 2)]


# --- names and wrong rows ---------------------------------------------------------------------------------------------


def test_all_files_of_a_store_are_written_by_one_writer() -> None:
    names: list[tuple[str, int | None]] = [
        ("cars.jrn", 5),
        ("cars.jrn.t9.zz", 5),
        ("cars.jrn.old", 9),
        ("bikes.jrn", None),
    ]
    assert RESTORE.settled(names) == {name: f"{name[0].partition('.')[0]}.jrn" for name in names}
    assert [RESTORE.part_of(name) for name in ("cars.jrn", "cars.jrn.t9.zz", "other.bin")] == [
        "cars",
        "cars",
        "other.bin",
    ]
    for name in ("", "..", "../cars.jrn", "a/b.jrn", ".hidden", "a\0b"):
        with pytest.raises(WrongUse, match="cannot be the name of a file of a store"):
            RESTORE.is_single_file(name)


def changed(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place, field = rows.schema.get_field_index(name), rows.schema.field(name)
    return rows.set_column(place, field, pa.array(values, field.type))


def test_invalid_store_rows_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "cars.jrn"
    source.write_bytes(journal(START, [Entry(START + number, "a", number) for number in range(3)]))
    rows = records_of(source)
    wrong: list[tuple[pa.Table, type[Exception], str]] = [
        (pa.concat_tables([rows, rows.slice(1)]), DamagedJournal, r"cars @ \d+: the tables have two entries here"),
        (changed(rows, "o", ["1", "{", "3"]), WrongUse, r"the entry @ \d+ is none of a store"),
        (changed(rows, "o", ["1", None, "3"]), WrongUse, r"the entry @ \d+ is none of a store"),
        (changed(rows, "k", ["a", None, "a"]), WrongUse, "column k is null in a row"),
        (changed(rows, "t", [None] * 3), WrongUse, r"the entry @ \d+ is none of a store: it has no time"),
        (changed(rows, "deleted", [None, False, False]), WrongUse, "column deleted is null"),
    ]
    for number, (table, kind, message) in enumerate(wrong):
        with pytest.raises(kind, match=message):
            restore(table, tmp_path / f"target {number}")
    RESTORE.write_consumers(tmp_path, "cars", {})
    with pytest.raises(WrongUse, match="its format knows none"):
        RESTORE.write_consumers(tmp_path, "cars", {"billing": 5})


def test_times_of_64_bits_are_restored(tmp_path: Path) -> None:
    source = tmp_path / "cars.jrn"
    source.write_bytes(journal(START, [Entry(2**63 + 5, "a", 1), Entry(2**64 - 1, "b", None)]))
    rows = records_of(source)
    assert pc.all(pc.is_null(rows["t"])).as_py()
    restore(rows, tmp_path / "target", ["cars.jrn"])
    assert (tmp_path / "target" / "cars.jrn").read_bytes() == source.read_bytes()
