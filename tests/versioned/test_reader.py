"""The reader: changes once, records as stored, places and times, files of every step of a rotation, and live ones."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.format import Located, detect, open_journal
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, NotFound, WrongUse
from logwright.versioned import (
    Entry,
    Metadata,
    Reader,
    Scanner,
    StoresReader,
    VersionedKVStore,
    VersionedRecovery,
    open_reader,
)
from logwright.versioned.files.cursor import Chunk
from logwright.versioned.files.files import archive_name, parse_name
from logwright.versioned.format import journal_of, looks_like
from logwright.versioned.tables.splits import SPLITS
from tests.versioned.samples import START, Model, journal, with_position


def rotated(changes: int = 30, every: int = 10) -> Model:
    model = Model()
    for number in range(changes):
        model.change(Entry(START + number // 2, f"key {number % 4}", number if number % 7 else None))
        if number % every == every - 1:
            model.rotate()
    return model


def records(reader: Any, **options: Any) -> list[Any]:
    return [item.record if isinstance(item, Located) else item for item in reader.scan(**options)]


def test_each_change_is_read_once_and_a_scan_shows_the_raw_files(tmp_path: Path) -> None:
    model = rotated()
    with Reader(model.write(tmp_path)) as reader:
        assert list(reader) == model.changes
        found = records(reader)
        assert [record for record in found if isinstance(record, Metadata)] == [
            Metadata(START),
            *(Metadata(timestamp) for timestamp, _ in model.archives),
        ]
        assert reader.count() == sum(isinstance(record, Entry) for record in found) > len(model.changes)


def test_copies_count_as_changes_if_the_preceding_archive_is_missing(tmp_path: Path) -> None:
    model = rotated()
    path = model.write(tmp_path)
    (tmp_path / archive_name("cars", model.archives[0][0])).unlink()
    found = list(Reader(path))
    assert found[-20:] == model.changes[-20:]
    assert {entry.k for entry in found[:-20]} == set(model.state(model.archives[0][0]))


def test_copies_are_changes_if_the_preceding_journal_has_lost_what_was_copied(tmp_path: Path) -> None:
    changes = [Entry(START + t, key, value) for t, key, value in [(1, "a", 1), (2, "b", 2), (3, "c", 3), (3, "d", 4)]]
    more = [Entry(START + 3, "d", 4), Entry(START + 3, "e", 5), Entry(START + 4, "a", 6)]
    for lost in range(4):
        home = tmp_path / str(lost)
        home.mkdir()
        left = changes[:lost] + changes[lost + 1 :]
        (home / "cars.jrn.old").write_bytes(journal(START, left))
        (home / "cars.jrn").write_bytes(journal(START + 3, changes + more))
        wanted = left + changes + more
        if lost == 3:  # it has the time at which the journal began, and may be a change after the copies
            wanted = changes + more
        assert list(Reader(home / "cars.jrn")) == wanted


def test_number_of_an_entry_stays_when_its_file_becomes_an_archive(tmp_path: Path) -> None:
    model = rotated(9, every=100)
    path = model.write(tmp_path)
    first = Reader(path)
    before = [first.number_of(item) for item in first.scan() if isinstance(item, Located)]
    model.rotate()
    model.write(tmp_path)
    reader = Reader(path)
    stop = reader.files()[1].first_number
    after = [reader.number_of(item) for item in reader.scan(stop=stop) if isinstance(item, Located)]
    assert after == before


def test_ranges_of_numbers_positions_and_times_select_the_same_entries(tmp_path: Path) -> None:
    model = rotated()
    reader = Reader(model.write(tmp_path))
    whole = [item for item in reader.scan() if isinstance(item, Located)]
    middle = whole[len(whole) // 2]
    number = reader.number_of(middle)[1]
    assert reader.find_place(f"{middle.file}@{middle.span.start}") == number
    assert records(reader, start=number) == [item.record for item in whole[len(whole) // 2 :]]
    assert records(reader, stop=number) == [item.record for item in whole[: len(whole) // 2]]
    for at in (START, START + 3, START + 9, START + 10**9):
        wanted = [change for change in model.changes if change.t >= at]
        assert list(reader.entries(reader.find_time(at))) == wanted
    assert [item.record for item in reader.last(5)] == model.changes[-5:]
    with pytest.raises(WrongUse):
        reader.find_place("nowhere")
    with pytest.raises(NotFound):
        reader.find_place("other.jrn@17")


@pytest.mark.parametrize(
    "leftover", ["old only", "old beside a broken one", "old and its archive", "tmp", "new and old"]
)
def test_every_step_of_a_rotation_reads_as_the_same_changes(leftover: str, tmp_path: Path) -> None:
    model = rotated(20, every=10)
    path = model.write(tmp_path)
    last = archive_name("cars", model.archives[-1][0])
    old = zlib.decompress((tmp_path / last).read_bytes())
    if leftover != "old and its archive":
        (tmp_path / last).unlink()
    (tmp_path / "cars.jrn.old").write_bytes(old + bytes(100))
    if leftover == "old only":
        path.unlink()
    elif leftover == "old beside a broken one":
        path.write_bytes(b"")
    elif leftover == "tmp":
        path.rename(tmp_path / "cars.jrn.tmp")
    reader = Reader(path)
    assert list(reader) == model.changes
    assert reader.state() == {key: {"value": value, "timestamp": t} for key, (value, t) in model.state().items()}


def test_several_stores_of_a_directory_are_read_as_one(tmp_path: Path) -> None:
    cars, ships = rotated(12), rotated(17)
    cars.write(tmp_path, "cars")
    ships.write(tmp_path, "ships")
    reader = open_reader(tmp_path)
    assert isinstance(reader, StoresReader)
    assert list(reader.entries()) == [*cars.changes, *ships.changes]
    assert set(reader.state()["stores"]) == {"cars", "ships"}
    assert reader.history("ships/key 1")[-1]["t"] == [entry for entry in ships.changes if entry.k == "key 1"][-1].t
    assert reader.verify().sound
    assert set(reader.summary().details["stores"]) == {"cars", "ships"}
    difference = reader.diff(START, START + 100)
    assert all(key.partition("/")[0] in ("cars", "ships") for key in difference["added"])
    with pytest.raises(WrongUse, match="STORE/KEY"):
        reader.history("nothing")


def test_one_file_alone_is_read_whatever_its_name(tmp_path: Path) -> None:
    model = rotated()
    model.write(tmp_path)
    timestamp, _ = model.archives[0]
    alone = (tmp_path / archive_name("cars", timestamp)).rename(tmp_path / "found somewhere")
    reader = Reader(alone)
    assert reader.is_single_file
    assert list(reader) == model.changes[:10]
    assert reader.first == 0


def test_stores_and_their_files_are_recognised(tmp_path: Path) -> None:
    model = rotated()
    path = model.write(tmp_path / "stores")
    (tmp_path / "text").write_text("no journal")
    (tmp_path / "empty.jrn").write_bytes(b"")
    for given, score in (
        (path, 2),
        (tmp_path / "stores", 3),
        (path.with_name(archive_name("cars", model.archives[0][0])), 2),
        (tmp_path / "empty.jrn", 1),
    ):
        evidence = looks_like(REAL_DISK, given)
        assert evidence is not None
        assert evidence.score == score
    assert looks_like(REAL_DISK, tmp_path / "text") is None
    assert looks_like(REAL_DISK, tmp_path / "nothing") is None
    assert journal_of(archive_name("cars", 5)) == "cars.jrn"
    assert (parse_name("cars.jrn.t07.zz"), parse_name(".jrn"), parse_name("a/b.jrn")) == (None, None, None)


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged_at(path: Path, position: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[position : position + len(data)] = data
    path.write_bytes(whole)


def test_reading_continues_at_the_next_whole_entry_after_bad_bytes(tmp_path: Path) -> None:
    model = rotated(20, every=100)
    path = model.write(tmp_path)
    third = [item for item in Reader(path).scan() if isinstance(item, Located)][3]
    damaged_at(path, third.span.start + 2, b"\xff\xff")
    reader = Reader(path)
    with pytest.raises(DamagedJournal, match=f"cars.jrn @ {third.span.start}: "):
        list(reader)
    found = list(reader.entries(mode="permissive"))
    damages = [item for item in found if isinstance(item, Damage)]
    assert [(damage.start, damage.end, damage.kind) for damage in damages] == [
        (third.span.start, third.span.end, "malformed")
    ]
    assert [item for item in found if not isinstance(item, Damage)] == [
        change for change in model.changes if change != third.record
    ]
    assert reader.torn_tail is None


@pytest.mark.parametrize(
    ("position", "kind", "reason"),
    [
        (-3, "malformed", "is within this entry"),
        (50, "malformed", "the position is"),
        (2**50, "malformed", "the position is"),
        (None, "malformed", "the position is 3, and 17 is the least"),
    ],
)
def test_impossible_position_is_damage_and_the_entries_count(
    position: int | None, kind: str, reason: str, tmp_path: Path
) -> None:
    entries = [Entry(START + number, "a", number) for number in range(5)]
    data = journal(START, entries)
    path = tmp_path / "cars.jrn"
    wrong = 3 if position is None else len(data) + position
    path.write_bytes(with_position(data, wrong))
    reader = Reader(path)
    found = list(reader.entries(mode="permissive"))
    (damage,) = [item for item in found if isinstance(item, Damage)]
    assert damage.kind == kind
    assert reason in damage.reason
    count = {-3: 4, None: 0}.get(position, 5)
    assert [item for item in found if not isinstance(item, Damage)] == entries[:count]


def test_bytes_after_the_position_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    data = journal(START, [Entry(START, "a", 1)])
    path.write_bytes(data + b"\x9a\x81t\x05 noise")
    assert list(Reader(path)) == [Entry(START, "a", 1)]
    assert Reader(path).verify().as_json()["anomalies"] == []
    stale = journal(START, [Entry(START + 1, "b", 2)])[56:]
    path.write_bytes(data + stale)
    assert list(Reader(path)) == [Entry(START, "a", 1)]
    assert [anomaly.kind for anomaly in Reader(path).verify().anomalies] == ["behind_position"]


def test_wrong_first_byte_does_not_hide_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(b"\x03" + journal(START, [Entry(START, "a", 1)])[1:])
    found = list(Reader(path).entries(mode="permissive"))
    assert [(item.start, item.end) for item in found if isinstance(item, Damage)] == [(0, 8)]
    assert found[-1] == Entry(START, "a", 1)


def test_file_that_is_not_a_journal_is_reported_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(b"something else entirely, and more of it")
    (damage,) = Reader(path).entries(mode="permissive")
    assert isinstance(damage, Damage)
    assert (damage.start, damage.end) == (0, 39)
    with pytest.raises(DamagedJournal, match="only 2 is known"):
        VersionedRecovery.load([path.rename(tmp_path / "text")])


# --- beside a writer --------------------------------------------------------------------------------------------------


def test_follower_reads_each_change_once_across_rotations(tmp_path: Path) -> None:
    expected = []
    with VersionedKVStore(tmp_path, "cars", 2048, background=False) as store:
        expected.append(("first", store.insert("first", 0)))
        with Scanner(tmp_path / "cars.jrn", timeout=0) as scanner:
            seen = [(entry.k, entry.t) for entry in scanner]
            for number in range(300):
                key = f"key {number % 5}"
                expected.append((key, store.insert(key, {"number": number})))
                if number % 20 == 0:
                    seen += [(entry.k, entry.t) for entry in scanner]
            seen += [(entry.k, entry.t) for entry in scanner]
    assert seen == expected
    assert len(list(tmp_path.glob("*.zz"))) > 3


def test_concurrent_reader_sees_a_prefix_of_the_writes(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path, "cars", 2048, background=False) as store:
        for number in range(200):
            store.insert("a", number)
            if number % 10 == 0:
                assert [entry.o for entry in Reader(tmp_path / "cars.jrn")] == list(range(number + 1))


def test_store_that_was_rotated_at_once_has_a_number_for_each_file(tmp_path: Path) -> None:
    """Its first journal ended when it began: nothing had changed, or no time had passed."""
    model = Model()
    model.rotate()
    model.change(Entry(START, "a", 1))
    model.rotate()
    model.change(Entry(START + 5, "b", 2))
    reader = Reader(model.write(tmp_path))
    numbers = [file.first_number for file in reader.files()]
    assert numbers == sorted(set(numbers))
    found = [item for split in SPLITS.plan(reader) for item in SPLITS.chunks(reader, split)]
    assert sum(chunk.count for chunk in found if isinstance(chunk, Chunk)) == 2
    assert list(reader.entries(reader.first)) == model.changes


@pytest.mark.parametrize("left", ["cars.jrn.old", f"cars.jrn.t{START + 9}.zz"])
def test_store_is_opened_by_name_without_its_active_journal(tmp_path: Path, left: str) -> None:
    model = Model()
    model.change(Entry(START + 9, "k", 1))
    path = model.write(tmp_path)
    data = path.read_bytes()
    path.unlink()
    (tmp_path / left).write_bytes(data if left.endswith(".old") else zlib.compress(data))
    assert detect(path).name == "versioned"
    with open_journal(path) as reader:
        found = list(reader.scan(mode="permissive"))
        records = [item.record for item in found if isinstance(item, Located)]
        assert records[1:] == model.changes
        kinds = [item.kind for item in found if isinstance(item, Damage)]
        assert kinds == ([] if left.endswith(".old") else ["gap"])
    with pytest.raises(NotFound, match=r"bikes\.jrn: no such file"):
        open_journal(tmp_path / "bikes.jrn")
    with pytest.raises(NotFound, match="no such file"):
        open_journal(tmp_path / "cars.jrn.t5.zz")
