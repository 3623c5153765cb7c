"""Entries that are there twice, or not where they were written: what shows it, what a repair keeps, and the account."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import DamagedJournal, HistoryUnavailable
from logwright.versioned import Entry, Reader, VersionedKVStore, VersionedRecovery
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.files.archiving import initialized_of
from logwright.versioned.files.disorder import find_disproved, find_repeated
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.repair import apply, plan, undo
from tests.support.damage import cut, drop, insert, overwrite, swap
from tests.versioned.samples import START, Model, journal
from tests.versioned.stores import Clock

SECOND = 1_000_000_000


def written(directory: Path, count: int = 8, *, marked: bool = True) -> tuple[Path, list[Entry], list[int]]:
    """A closed store, its changes, and where each entry begins; all have the same size."""
    clock = Clock(START)
    with VersionedKVStore(directory, "cars", 4096, clock=clock, background=False) as store:
        for number in range(count):
            clock.now += SECOND
            store.insert("abc"[number % 3], f"v{number}")
    path = directory / "cars.jrn"
    if not marked:
        path.write_bytes(path.read_bytes()[:-16] + bytes(16))
    found = [item for item in Reader(path).scan() if isinstance(item.record, Entry)]
    return path, [item.record for item in found], [*(item.span.start for item in found), found[-1].span.end]


def read(path: Path) -> list[Entry]:
    return [entry for entry in Reader(path) if isinstance(entry, Entry)]


def bytes_of(rows: str) -> Callable[[int], bytes]:
    return lambda row: rows[row].encode()


# --- the decision -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "copies", "unproven"),
    [
        ("12345", set(), set()),
        ("1122", set(), set()),
        ("1234534567", {5, 6, 7}, set()),
        ("123426", {4}, set()),
        ("153456", {1}, set()),
        ("9129", {0}, set()),
        ("132", set(), {1, 2}),
        ("12745638", set(), {2, 6}),
        ("1293456", set(), {2}),
    ],
)
def test_times_show_which_entries_are_copies_and_which_are_not_proven(
    rows: str, copies: set[int], unproven: set[int]
) -> None:
    found, others = find_disproved([int(row) for row in rows], 0, bytes_of(rows))
    kept = [row for number, row in enumerate(rows) if number not in found.keys() | others]
    assert (len(found), others) == (len(copies), unproven)
    assert kept == [row for number, row in enumerate(rows) if number not in copies | unproven]


def test_the_state_that_a_journal_begins_with_may_be_in_any_order() -> None:
    assert find_disproved([3, 1, 2, 5, 4], 3, bytes_of("abcde")) == ({}, {3, 4})
    assert find_disproved([3, 1, 2, 4, 1, 5], 3, bytes_of("abcdbe")) == ({4: 1}, set())


class CountedTimes(list[int]):
    """Times that count how often one of them is asked for."""

    asked = 0

    def __getitem__(self, index: Any) -> Any:
        self.asked += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("alike", [True, False])
def test_entries_of_the_same_time_are_not_compared_with_each_other(alike: bool) -> None:
    count = 2000
    times = CountedTimes([5] * count + [9] + [5] * count)
    asked: list[int] = []

    def counted_bytes_of(row: int) -> bytes:
        asked.append(row)
        return b"alike" if alike else b"%d" % row

    copies, unproven = find_disproved(times, 0, counted_bytes_of)
    assert copies == (dict.fromkeys(range(count + 1, 2 * count + 1), 0) if alike else {})
    assert unproven == (set() if alike else {count})
    assert len(asked) <= len(times)
    assert times.asked <= 5 * len(times)


def test_entries_that_are_there_twice_are_found_by_their_size() -> None:
    entries = [(1, b"one"), (2, b"two"), (2, b"two"), (3, b"three")]
    assert find_repeated(entries, 0, 3) == {2}
    assert find_repeated(entries, 0, 5) == set()
    assert find_repeated([*entries, (3, b"six"), (3, b"six")], 0, 3) == set(), "either of two"
    assert find_repeated([(1, b"one"), (2, b"two"), (1, b"one"), (2, b"two"), (9, b"x")], 5, 6) == {2, 3}


# --- entries that are there twice -------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 4), (3, 5), (2, 8), (7, 8)])
def test_entries_that_are_there_twice_are_damage_and_nothing_is_lost(
    marked: bool, first: int, last: int, tmp_path: Path
) -> None:
    path, changes, starts = written(tmp_path, marked=marked)
    whole = path.read_bytes()
    path.write_bytes(insert(whole, starts[last], whole[starts[first] : starts[last]]))
    damaged = path.read_bytes()
    if (first, last) == (2, 8) or (first, last, marked) == (7, 8, False):  # all copies follow the position
        assert Reader(path).verify().sound
        assert read(path) == changes
        return
    assert not Reader(path).verify().sound
    with pytest.raises(DamagedJournal):
        VersionedKVStore(tmp_path, "cars")
    assert path.read_bytes() == damaged
    found = plan(path)
    assert [(loss.kind, loss.at_most) for loss in found.losses] == [("restored", 0)]
    apply(path, found)
    assert Reader(path).verify().sound
    assert plan(path).empty
    assert read(path) == changes
    for number, change in enumerate(changes):
        assert VersionedRecovery.load(path).recover_at(change.t)[change.k] == f"v{number}"
    undo(path)
    assert path.read_bytes() == damaged


def test_entries_that_were_moved_past_the_position_of_a_closed_store_are_kept(tmp_path: Path) -> None:
    path, changes, starts = written(tmp_path)
    whole = path.read_bytes()
    size = starts[4] - starts[3]
    path.write_bytes(drop(insert(whole, starts[4], whole[starts[3] : starts[4]]), 1000, 1000 + size))
    (problem,) = Reader(path).verify().problems
    assert "at which the store was closed" in problem.message
    apply(path, plan(path))
    assert read(path) == changes


def test_entry_after_the_position_of_a_store_that_was_not_closed_is_what_a_crash_leaves(tmp_path: Path) -> None:
    store = VersionedKVStore(tmp_path, "cars", 4096)
    store.insert("a", 1)
    data = (tmp_path / "cars.jrn").read_bytes()
    store.insert("b", 2)
    later = (tmp_path / "cars.jrn").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    (other / "cars.jrn").write_bytes(data[:17] + later[17:])
    store.close()
    assert Reader(other / "cars.jrn").verify().sound
    with VersionedKVStore(other, "cars") as found:
        assert dict(found.items()) == {"a": 1}
        assert Reader(other / "cars.jrn").losses() == []


# --- entries that are not where they were written ---------------------------------------------------------------------


def test_entry_in_the_place_of_another_is_taken_out_and_what_was_there_is_lost(tmp_path: Path) -> None:
    path, changes, starts = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(overwrite(whole, starts[5], whole[starts[2] : starts[3]]))
    assert [problem.kind for problem in Reader(path).verify().problems] == ["time_goes_back"]
    with pytest.raises(DamagedJournal, match="earlier than"):
        VersionedKVStore(tmp_path, "cars")
    apply(path, plan(path))
    (loss,) = Reader(path).losses()
    assert (loss.kind, loss.at_least) == ("lost", 1)
    assert loss.fields["from"] <= changes[5].t < loss.fields["to"]
    assert read(path) == changes[:5] + changes[6:]
    with pytest.raises(HistoryUnavailable):
        VersionedRecovery.load(path).recover_at(changes[5].t)
    assert VersionedRecovery.load(path).recover_at(changes[4].t - 1)["a"] == "v3"
    with VersionedKVStore(tmp_path, "cars") as store:
        assert dict(store.items()) == {"a": "v6", "b": "v7", "c": "v2"}


def test_of_two_neighbours_that_were_swapped_neither_is_kept(tmp_path: Path) -> None:
    path, changes, starts = written(tmp_path)
    path.write_bytes(swap(path.read_bytes(), starts[3], starts[4], starts[5]))
    apply(path, plan(path))
    assert read(path) == changes[:3] + changes[5:]
    (loss,) = Reader(path).losses()
    assert loss.fields["from"] <= changes[3].t
    assert changes[4].t < loss.fields["to"]
    assert plan(path).empty


def test_entry_with_a_time_that_is_too_late_does_not_cost_those_after_it(tmp_path: Path) -> None:
    path, changes, starts = written(tmp_path)
    late = codec.encode(Entry(START + 10**15, changes[4].k, changes[4].o))
    path.write_bytes(overwrite(path.read_bytes(), starts[4], late))
    apply(path, plan(path))
    assert read(path) == changes[:4] + changes[5:]
    assert Reader(path).verify().sound


def test_archive_with_times_that_decrease_is_made_again(tmp_path: Path) -> None:
    entries = [Entry(START + number, "abc"[number % 3], number) for number in range(1, 8)]
    entries[2], entries[5] = entries[5], entries[2]
    name = archive_name("cars", START + 7)
    (tmp_path / name).write_bytes(zlib.compress(journal(START, entries)))
    (tmp_path / "cars.jrn").write_bytes(
        journal(START + 7, [Entry(START + t, "abc"[t % 3], t) for t in (5, 6, 7)], spare=64)
    )
    path = tmp_path / "cars.jrn"
    assert {problem.kind for problem in Reader(path).verify().problems} == {"time_goes_back"}
    apply(path, plan(path))
    assert Reader(path).verify().sound
    assert plan(path).empty
    kept = [entry.o for entry in Reader(tmp_path / name) if isinstance(entry, Entry)]
    assert kept == [1, 2, 4, 5, 7]


def test_walk_ends_at_an_entry_that_is_too_early() -> None:
    data = b"".join(codec.encode(Entry(t, "a", 1)) for t in (5, 3, 7, 6))
    size = len(data) // 4
    for twin in (kernel, codec):
        assert twin.walk(data, 0, len(data)) == (4 * size, 4, codec.CLEAN, 3, 7)
        assert twin.walk(data, 0, len(data), -1, 0, 5) == (3 * size, 3, codec.EARLY, 3, 7)
        assert twin.walk(data, 0, len(data), -1, 0, 4) == (size, 1, codec.EARLY, 5, 5)
        assert twin.walk(data, 0, len(data), -1, 6, 5) == (0, 0, codec.EARLY, 0, 0)
        latest = twin.Latest()
        assert latest.walk(data, 0, len(data), 0, 5) == (3 * size, 3, codec.EARLY, 3, 7)
        assert latest.state() == {"a": (1, 7)}


# --- entries that were removed ----------------------------------------------------------------------------------------


def without_entry(data: bytes, start: int, end: int, position: int) -> bytes:
    """A journal without an entry, whose size stays the same: zeros precede its position."""
    return insert(drop(data, start, end), position - (end - start), bytes(end - start))


@pytest.mark.parametrize("row", [0, 3, 7])
def test_entry_removed_from_a_closed_store_may_be_of_any_time(row: int, tmp_path: Path) -> None:
    path, changes, starts = written(tmp_path)
    path.write_bytes(without_entry(path.read_bytes(), starts[row], starts[row + 1], starts[-1]))
    assert [problem.kind for problem in Reader(path).verify().problems] == ["malformed"]
    apply(path, plan(path))
    (loss,) = Reader(path).losses()
    assert loss.fields["from"] == initialized_of(Reader(path).disk, path, compressed=False)
    assert loss.fields["from"] < changes[row].t
    assert read(path) == changes[:row] + changes[row + 1 :]
    for change in changes:
        with pytest.raises(HistoryUnavailable):
            VersionedRecovery.load(path).recover_at(change.t)


@pytest.mark.parametrize(("value", "is_shown"), [("longer than v0", True), ("v8", False)])
def test_mark_within_an_entry_shows_that_entries_before_it_were_removed(
    value: str, is_shown: bool, tmp_path: Path
) -> None:
    path, changes, starts = written(tmp_path)
    store = VersionedKVStore(tmp_path, "cars", 4096, clock=Clock(changes[-1].t), background=False)
    store.insert("a", value)
    data, position = path.read_bytes(), store.position
    store.close()
    path.write_bytes(without_entry(data, starts[3], starts[4], position))
    reader = Reader(path)
    (problem,) = reader.verify().problems
    assert problem.kind == ("malformed" if is_shown else "torn_tail"), "a power cut leaves the second one"
    if is_shown:
        assert problem.message.endswith("bytes of the file are missing, or were inserted (22 bytes)")
        with pytest.raises(DamagedJournal):
            VersionedKVStore(tmp_path, "cars", 4096)
    found = plan(path)
    assert len(found.losses) == is_shown
    apply(path, found)
    assert reader.verify().sound
    assert len(read(path)) == len(changes)


# --- a copy in the place of another journal ---------------------------------------------------------------------------


@pytest.mark.parametrize("has_more", ["cars.jrn", "cars.jrn.old", "neither"])
def test_copy_of_the_active_journal_named_old_is_damage_that_nothing_decides(has_more: str, tmp_path: Path) -> None:
    path, changes, _ = written(tmp_path)
    before = path.read_bytes()
    with VersionedKVStore(tmp_path, "cars", 4096, clock=Clock(changes[-1].t), background=False) as store:
        store.insert("a", "more")
    files = dict.fromkeys(("cars.jrn", "cars.jrn.old"), before) | {has_more: path.read_bytes()}
    files.pop("neither", None)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (problem,) = Reader(path).verify().problems
    assert (problem.kind, problem.file) == ("gap", "cars.jrn")
    found = plan(path)
    assert found.empty
    assert "move one of them away" in found.left[0]
    with pytest.raises(DamagedJournal, match="a copy of the other"):
        VersionedKVStore(tmp_path, "cars", 4096)
    with pytest.raises(DamagedJournal, match="a copy of the other"):
        list(Reader(path))
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    (tmp_path / "cars.jrn.old").unlink()
    assert Reader(path).verify().sound


def test_archive_that_is_there_twice_is_damage_though_all_of_it_is_a_state(tmp_path: Path) -> None:
    model = Model(START)
    for number, key in enumerate("abcab"):
        model.change(Entry(START + (number + 1) * SECOND, key, number))
        if number in (1, 3):
            model.rotate()
    path = model.write(tmp_path)
    archive = tmp_path / archive_name("cars", model.archives[0][0])
    copy = tmp_path / archive_name("cars", model.archives[0][0] + 1000)
    copy.write_bytes(archive.read_bytes())
    assert {problem.kind for problem in Reader(path).verify().problems} == {"gap"}
    with pytest.raises(DamagedJournal):
        VersionedRecovery.load(path).history("a")
    found = plan(path)
    assert found.empty
    assert "move one of them away" in found.left[0]
    copy.unlink()
    assert Reader(path).verify().sound


def test_archive_that_is_there_twice_is_damage_though_nothing_was_left_at_its_end(tmp_path: Path) -> None:
    model = Model(START)
    for number, value in enumerate((1, None, 2)):
        model.change(Entry(START + (number + 1) * SECOND, "a", value))
        if value is None:
            model.rotate()
    path = model.write(tmp_path)
    ended = model.archives[0][0]
    copy = tmp_path / archive_name("cars", ended + 1000)
    copy.write_bytes((tmp_path / archive_name("cars", ended)).read_bytes())
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == (copy.name, "gap")
    assert "one of the two is a copy of the other" in problem.message
    with pytest.raises(DamagedJournal):
        VersionedRecovery.load(path).history("a")
    assert "move one of them away" in plan(path).left[0]
    copy.unlink()
    assert [entry.o for entry in VersionedRecovery.load(path).history("a")] == [1, None, 2]


# --- archives that have each other's names ----------------------------------------------------------------------------


def rotated(directory: Path) -> tuple[Model, Path, list[Path]]:
    """A store with five archives, of ten changes each."""
    model = Model(START)
    for number in range(60):
        model.change(Entry(START + (number + 1) * SECOND, f"key {number % 5}", number))
        if number % 10 == 9 and number < 50:
            model.rotate()
    return model, model.write(directory), [directory / archive_name("cars", ended) for ended, _ in model.archives]


def exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@pytest.mark.parametrize("damage", ["half", "empty", "gone"])
@pytest.mark.parametrize("third", range(5))
@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 3), (0, 4), (3, 4)])
def test_one_repair_is_enough_if_archives_were_swapped_and_one_is_damaged(
    one: int, other: int, third: int, damage: str, tmp_path: Path
) -> None:
    model, path, archives = rotated(tmp_path)
    exchange(archives[one], archives[other])
    content = {one: other, other: one}.get(third, third)
    if damage == "gone":
        archives[third].unlink()
    else:
        data = archives[third].read_bytes()
        archives[third].write_bytes(cut(data, len(data) // 2 if damage == "half" else 0))
    if damage == "gone" and content == 0:  # as retention leaves it
        assert Reader(path).verify().sound
        return
    assert not Reader(path).verify().sound
    ended = [START, *(ended for ended, _ in model.archives)]
    with pytest.raises((HistoryUnavailable, DamagedJournal)):
        VersionedRecovery.load(path).recover_at(ended[content] + 5 * SECOND)
    found = plan(path)
    assert found.left == ()
    apply(path, found)
    losses = [(loss.fields["from"], loss.fields["to"]) for loss in Reader(path).losses()]
    assert (0 if content == 0 else ended[content], ended[content + 1]) in losses
    assert Reader(path).verify().sound
    assert plan(path).empty
    recovery = VersionedRecovery.load(path)
    for change in model.changes:
        try:
            assert recovery.recover_at(change.t).with_timestamps() == model.state(change.t)
        except HistoryUnavailable:
            assert any(start <= change.t < stop for start, stop in losses) or change.t < recovery.earliest()
    with VersionedKVStore(tmp_path, "cars") as store:
        assert dict(store.items()) == {key: value for key, (value, _) in model.state().items()}


def test_active_journal_is_made_from_the_last_archive_whatever_its_name_is(tmp_path: Path) -> None:
    model, path, archives = rotated(tmp_path)
    exchange(archives[1], archives[4])
    path.unlink()
    apply(path, plan(path))
    (loss,) = Reader(path).losses()
    assert loss.fields["from"] == model.archives[-1][0]
    assert initialized_of(Reader(path).disk, path, compressed=False) == model.archives[-1][0]
    assert VersionedRecovery.load(path).recover_current().with_timestamps() == model.state(model.archives[-1][0])


def test_archive_that_is_there_twice_is_damage_if_it_lasted_a_few_nanoseconds(tmp_path: Path) -> None:
    clock = Clock(START)
    with VersionedKVStore(tmp_path, "cars", 4096, clock=clock, background=False) as store:
        store.insert("a", 1)
        store.remove("a")
        ended = store.insert("b", 2)
        store.rotate()
        store.insert("c", 3)
    archive, path = tmp_path / archive_name("cars", ended), tmp_path / "cars.jrn"
    copy = tmp_path / archive_name("cars", ended + 1)
    copy.write_bytes(archive.read_bytes())
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == (copy.name, "gap")
    assert "one of the two is a copy" in problem.message
    with pytest.raises(DamagedJournal, match="one of the two is a copy"):
        VersionedRecovery.load(path).history("b")
    assert len(plan(path).left) == 1
    copy.unlink()
    assert [entry.o for entry in VersionedRecovery.load(path).history("a")] == [1, None]
