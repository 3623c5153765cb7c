"""VersionedRecovery: the state at every time, history, and changes, compared with a model that keeps every change."""

from __future__ import annotations

import asyncio
import random
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.io.disk import REAL_DISK
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.archive_stream import ArchiveLimits
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.replay import difference, replay
from tests.support.counting_disk import CountingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file
from tests.versioned.samples import START, Model, journal

KEYS = ("a", "b", "key of more than fifteen bytes", "")
VALUES: tuple[Any, ...] = (0, 1, 1.0, True, "x", "y" * 20, [1, {"n": None}], {"deep": [[]]})

STEPS = strategies.lists(
    strategies.one_of(
        strategies.just("rotate"),
        strategies.tuples(strategies.integers(0, 2), strategies.sampled_from(KEYS), strategies.sampled_from(VALUES)),
        strategies.tuples(strategies.integers(0, 2), strategies.sampled_from(KEYS), strategies.none()),
    ),
    max_size=40,
)


def model_of(steps: list[Any]) -> Model:
    """The clock stands still, or advances by one or two."""
    model = Model()
    for step in steps:
        if step == "rotate":
            model.rotate()
        else:
            model.change(Entry(model.now + step[0], step[1], step[2]))
    return model


def laid_out(model: Model) -> tuple[SimulatedDisk, Path]:
    disk, home = SimulatedDisk(), Path("/stores")
    disk.make_directory(home)
    for timestamp, data in model.archives:
        write_file(disk, home / archive_name("cars", timestamp), zlib.compress(data, 5))
    write_file(disk, home / "cars.jrn", journal(model._begun, model._entries, spare=100))
    return disk, home


def random_model(seed: int, changes: int = 200) -> Model:
    chance = random.Random(seed)
    model = Model()
    for _ in range(changes):
        value = chance.choice((*VALUES, None))
        model.change(Entry(model.now + chance.choice((0, 0, 1, 7)), chance.choice(KEYS), value))
        if chance.random() < 0.08:
            model.rotate()
    return model


@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(steps=STEPS)
def test_state_at_every_time_is_that_of_the_model(steps: list[Any]) -> None:
    model = model_of(steps)
    disk, home = laid_out(model)
    recovery = VersionedRecovery.load(home, disk=disk)
    for at in range(START, model.now + 2):
        found = recovery.recover_at(at)
        assert found.with_timestamps() == model.state(at)
    assert recovery.recover_current().with_timestamps() == model.state()


@settings(derandomize=True, deadline=None, database=None, max_examples=100)
@given(steps=STEPS)
def test_history_has_each_change_once_and_deletions_from_the_archives(steps: list[Any]) -> None:
    model = model_of(steps)
    disk, home = laid_out(model)
    recovery = VersionedRecovery.load(home, disk=disk)
    for key in KEYS:
        assert recovery.history(key) == [change for change in model.changes if change.k == key]


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(steps=STEPS, data=strategies.data())
def test_changes_transform_one_state_into_the_other(steps: list[Any], data: Any) -> None:
    model = model_of(steps)
    disk, home = laid_out(model)
    recovery = VersionedRecovery.load(home, disk=disk)
    start = data.draw(strategies.integers(START, model.now + 1))
    stop = data.draw(strategies.integers(start, model.now + 1))
    changes = list(recovery.changes(start, stop))
    assert changes == [change for change in model.changes if start < change.t <= stop]
    before = model.state(start)
    copies = [Entry(t, key, value) for key, (value, t) in before.items()]
    assert replay([*copies, *changes]) == model.state(stop)
    assert recovery.diff(start, stop) == difference(before, model.state(stop))


def test_states_before_the_first_journal_are_refused(tmp_path: Path) -> None:
    model = random_model(1)
    model.write(tmp_path)
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.earliest() == START
    assert recovery.recover_at(START) == {key: value for key, (value, _) in model.state(START).items()}
    with pytest.raises(HistoryUnavailable, match=f"known from {START} on"):
        recovery.recover_at(START - 1)


def test_error_after_removed_archives_names_the_earliest_time(tmp_path: Path) -> None:
    model = random_model(2)
    model.write(tmp_path)
    first, second = model.archives[:2]
    (tmp_path / archive_name("cars", first[0])).unlink()
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.earliest() == first[0]
    assert recovery.recover_at(first[0]).with_timestamps() == model.state(first[0])
    with pytest.raises(HistoryUnavailable, match=f"known from {first[0]} on"):
        recovery.recover_at(first[0] - 1)
    assert second[0] > first[0]


def test_missing_archive_between_others_is_a_gap_and_not_a_guess(tmp_path: Path) -> None:
    model = Model()
    for number in range(9):
        model.change(Entry(START + 10 * number + 5, "a", number))
        if number % 3 == 2:
            model.rotate()
    model.write(tmp_path)
    (first, _), (second, _) = model.archives[:2]
    (tmp_path / archive_name("cars", second)).unlink()
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.recover_at(first).with_timestamps() == model.state(first)
    with pytest.raises(HistoryUnavailable, match=f"between {shown_time(first)} and {shown_time(second)}"):
        recovery.recover_at(first + 1)
    assert recovery.recover_at(second).with_timestamps() == model.state(second)


def test_changes_over_a_missing_archive_are_damage_and_those_on_one_side_are_not(tmp_path: Path) -> None:
    model = Model()
    for number, (key, value) in enumerate([("a", 1), ("gone", 2), ("gone", None), ("a", 3), ("a", 4)]):
        model.change(Entry(START + 10 * number + 5, key, value))
        model.rotate()
    model.write(tmp_path)
    (tmp_path / archive_name("cars", START + 25)).unlink()  # where the key was removed
    recovery = VersionedRecovery.load(tmp_path)
    assert [entry.o for entry in recovery.changes(START, START + 15)] == [1, 2]
    assert [entry.o for entry in recovery.changes(START + 25, START + 99)] == [3, 4]
    with pytest.raises(
        DamagedJournal,
        match=f"begins at {shown_time(START + 25)}, and not .* ended at {shown_time(START + 15)}: one is missing",
    ):
        list(recovery.changes(START + 15, START + 35))
    with pytest.raises(DamagedJournal, match="one is missing"):
        recovery.history("gone")
    lenient = VersionedRecovery.load(tmp_path, mode="permissive")
    assert [entry.o for entry in lenient.history("gone")] == [2, None]  # the next journal begins without it
    assert [(damage.file, damage.kind) for damage in lenient.damages] == [(archive_name("cars", START + 35), "gap")]


def test_query_reads_only_one_of_thousands_of_archives() -> None:
    disk, home = SimulatedDisk(), Path("/stores")
    disk.make_directory(home)
    times = [START + 1000 * number for number in range(3000)]
    for begun, ended in pairwise(times):
        data = journal(begun, [Entry(begun + 1, "a", begun), Entry(ended, "b", ended)])
        write_file(disk, home / archive_name("cars", ended), zlib.compress(data, 1))
    write_file(disk, home / "cars.jrn", journal(times[-1], [Entry(times[-1], "a", 1)]))
    counting = CountingDisk(inner=disk)
    recovery = VersionedRecovery.load(home, disk=counting)
    assert recovery.recover_at(times[1500] + 7) == {"a": times[1500]}
    assert counting.bytes_read < 1000, "more than two archives were read"


def test_files_of_any_name_can_be_given(tmp_path: Path) -> None:
    model = random_model(3)
    active = model.write(tmp_path / "store")
    state = {key: value for key, (value, _) in model.state().items()}
    assert VersionedRecovery.load(active).recover_current() == state
    assert VersionedRecovery.load(str(tmp_path / "store")).recover_current() == state
    files = list((tmp_path / "store").iterdir())
    random.Random(1).shuffle(files)
    by_name = VersionedRecovery.load(files)
    renamed = [path.rename(tmp_path / f"copy {number}") for number, path in enumerate(files)]
    by_metadata = VersionedRecovery.load(renamed)
    for at in range(START, model.now + 1, 13):
        assert by_metadata.recover_at(at).with_timestamps() == model.state(at)
    assert by_name.files() == [path.with_name(path.name) for path in by_name.files()]
    assert len(by_name.files()) == len(files)


def test_single_archive_has_its_own_time(tmp_path: Path) -> None:
    model = random_model(4)
    model.write(tmp_path)
    timestamp, _ = model.archives[0]
    recovery = VersionedRecovery.load(tmp_path / archive_name("cars", timestamp))
    assert recovery.recover_at(timestamp - 1).with_timestamps() == model.state(timestamp - 1)


def test_directory_of_several_stores_needs_a_store_name(tmp_path: Path) -> None:
    random_model(5).write(tmp_path, "cars")
    ships = random_model(6)
    ships.write(tmp_path, "ships")
    with pytest.raises(WrongUse, match="cars, ships"):
        VersionedRecovery.load(tmp_path)
    assert VersionedRecovery.load(tmp_path, store="ships").recover_current().with_timestamps() == ships.state()


def test_missing_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        VersionedRecovery.load(tmp_path)
    with pytest.raises(NotFound):
        VersionedRecovery.load(tmp_path / "cars.jrn")
    with pytest.raises(NotFound):
        VersionedRecovery.load([tmp_path / "x"])


def test_asyncio_gives_the_same_results(tmp_path: Path) -> None:
    model = random_model(7)
    model.write(tmp_path)
    middle = (START + model.now) // 2

    async def ask() -> None:
        recovery = await VersionedRecovery.load(tmp_path)
        assert (await recovery.recover_at_async(middle)).with_timestamps() == model.state(middle)
        assert (await recovery.recover_current_async()).with_timestamps() == model.state()
        assert await recovery.history_async("a") == [change for change in model.changes if change.k == "a"]
        assert await recovery.diff_async(START, middle) == difference(model.state(START), model.state(middle))
        assert await recovery.changes_async(START, middle) == [
            change for change in model.changes if START < change.t <= middle
        ]

    asyncio.run(ask())


def test_decompression_bomb_is_refused_early(tmp_path: Path) -> None:
    huge = journal(START, [Entry(START + 1, "a", "x" * (40 << 20))])
    archive = tmp_path / archive_name("cars", START + 1)
    archive.write_bytes(zlib.compress(huge, 9))
    recovery = VersionedRecovery.load(archive)
    with pytest.raises(DamagedJournal, match="250-fold"):
        recovery.recover_current()
    trusted = VersionedRecovery.load(archive, limits=ArchiveLimits(ratio=2000))
    assert len(trusted.recover_current()["a"]) == 40 << 20


def test_damage_is_an_error_unless_asked_otherwise(tmp_path: Path) -> None:
    model = Model()
    for number in range(20):
        model.change(Entry(START + number, f"key {number}", number))
    path = model.write(tmp_path)
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DamagedJournal, match=r"cars\.jrn"):
        VersionedRecovery.load(tmp_path).recover_current()
    recovery = VersionedRecovery.load(tmp_path, mode="dropmalformed")
    assert len(recovery.recover_current()) == 19
    assert [damage.kind for damage in recovery.damages] == ["malformed"]


def test_reader_gives_the_same_results(tmp_path: Path) -> None:
    model = random_model(8)
    path = model.write(tmp_path)
    with Reader(path, disk=REAL_DISK) as reader:
        assert reader.state() == {
            key: {"value": value, "timestamp": timestamp} for key, (value, timestamp) in model.state().items()
        }
        assert list(reader) == model.changes
