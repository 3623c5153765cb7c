"""Reading beside a store that rotates: the answer is that of some moment, whatever is renamed meanwhile.

Races happen at the worst moment here: right before a file is opened the store rotates, once or several times. In the
last tests another process does this for real.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import DamagedJournal, HistoryUnavailable, WrongUse
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.reader import Reader
from logwright.versioned.files.scanner import Scanner
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.retention import Retention
from logwright.versioned.model.store import VersionedKVStore
from tests.support.children import Child
from tests.versioned.stores import Clock, HookedDisk, Renamed, content_of


class Rotating:
    """A store, all its states by time, and readers before whose opens it changes and rotates."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.store = VersionedKVStore(directory, "cars", clock=Clock(1000), background=False, **options)
        self.disk = HookedDisk()
        self.states: dict[int, dict[str, Any]] = {}
        self.changes: list[tuple[int, str, Any]] = []
        self.recovery: VersionedRecovery | None = None

    def insert(self, key: str, value: Any) -> int:
        t = self.store.insert(key, value)
        self.changes.append((t, key, value))
        self.states[t] = content_of(self.store)
        return t

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            self.insert("abc"[number % 3], f"{len(self.changes)}")
            self.insert("d", len(self.changes))
            self.store.rotate()

    def before_opens(self, numbers: set[int], rounds: int = 1) -> Callable[[], None]:
        """Rotate before the opens of these numbers, counted from now on."""
        count = itertools.count()

        def before(path: Path) -> None:
            if next(count) in numbers:
                self.disk.before_open = None
                self.run(rounds)
                self.disk.before_open = before

        self.disk.before_open = before
        return lambda: setattr(self.disk, "before_open", None)


WHEN = [{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {0, 2, 4}, {1, 3, 5, 7}]


@pytest.mark.parametrize(("before", "rounds"), [(0, 1), (2, 2)])
@pytest.mark.parametrize("when", WHEN, ids=str)
def test_state_at_every_time_is_right_while_the_store_rotates(
    tmp_path: Path, when: set[int], rounds: int, before: int
) -> None:
    rotating = Rotating(tmp_path)
    rotating.run(before)
    for number in range(4):
        rotating.insert("abcd"[number], f"last {number}")
    for t, state in list(rotating.states.items()):
        stop = rotating.before_opens(when, rounds)
        found = VersionedRecovery.load(tmp_path, disk=rotating.disk).recover_at(t)
        stop()
        assert found.with_timestamps() == state
    rotating.store.close()


@pytest.mark.parametrize("when", WHEN, ids=str)
@pytest.mark.parametrize("before", [0, 2])
def test_no_change_is_missing_when_the_store_rotates_between_two_journals(
    tmp_path: Path, when: set[int], before: int
) -> None:
    rotating = Rotating(tmp_path)
    rotating.run(before)
    for number in range(3):
        rotating.insert("a", f"last {number}")
    made = list(rotating.changes)
    recovery = VersionedRecovery.load(tmp_path, disk=rotating.disk)
    stop = rotating.before_opens(when)
    found = [(entry.t, entry.k, entry.o) for entry in recovery.changes(rotating.store.earliest(), made[-1][0])]
    stop()
    assert found == made
    made = list(rotating.changes)
    stop = rotating.before_opens(when)
    history = [(entry.t, entry.k, entry.o) for entry in recovery.history("a")]
    stop()
    assert history[: len([change for change in made if change[1] == "a"])] == [c for c in made if c[1] == "a"]
    assert history == [change for change in rotating.changes if change[1] == "a"][: len(history)]
    stop = rotating.before_opens(when)
    made = list(rotating.changes)
    read = [(entry.t, entry.k, entry.o) for entry in Reader(tmp_path / "cars.jrn", disk=rotating.disk)]
    stop()
    assert read[: len(made)] == made
    assert read == rotating.changes[: len(read)]
    rotating.store.close()


@pytest.mark.parametrize("when", WHEN, ids=str)
def test_archives_removed_during_a_query_are_reported_and_never_guessed(tmp_path: Path, when: set[int]) -> None:
    rotating = Rotating(tmp_path, retention=Retention(max_archives=1))
    rotating.run(2)
    for t, state in list(rotating.states.items()):
        stop = rotating.before_opens(when, 2)
        try:
            found = VersionedRecovery.load(tmp_path, disk=rotating.disk).recover_at(t)
        except HistoryUnavailable:
            assert t < rotating.store.earliest()
        else:
            assert found.with_timestamps() == state
        stop()
    stop = rotating.before_opens(when, 2)
    recovery = VersionedRecovery.load(tmp_path, disk=rotating.disk)
    earliest = recovery.earliest()
    history = [(entry.t, entry.o) for entry in recovery.history("d")]
    stop()
    assert earliest in {1001, *rotating.states}
    made = [(t, value) for t, key, value in rotating.changes if key == "d"]
    assert history == [change for change in made if history[0] <= change <= history[-1]]
    rotating.store.close()


WRITER = """
import sys
from logwright.versioned.model.store import VersionedKVStore
store = VersionedKVStore(sys.argv[1], "cars", capacity=2048, background=False)
number = 0
while True:
    store.insert(f"key {number % 5}", number)
    number += 1
    if number == 500:
        print("many", flush=True)
"""


def test_readers_of_another_process_see_a_monotonic_complete_store(tmp_path: Path) -> None:
    with Child(WRITER, tmp_path) as child:
        assert child.line() == "many"
        recovery = VersionedRecovery.load(tmp_path)
        last = 0
        for _ in range(40):
            state = recovery.recover_current()
            newest = max(state.values())
            assert newest >= last
            assert sorted(state.values()) == list(range(newest - 4, newest + 1))
            last = newest
            at = state.timestamps[f"key {newest % 5}"]
            assert newest in recovery.recover_at(at).values()
        numbers = [entry.o for entry in recovery.history("key 3")]
        assert numbers == list(range(3, numbers[-1] + 1, 5))
        numbers = [entry.o for entry in Reader(tmp_path / "cars.jrn")]
        assert numbers == list(range(len(numbers)))
        child.kill()
    assert len(list(tmp_path.glob("*.zz"))) > 3


# --- names that were taken --------------------------------------------------------------------------------------------


def test_time_in_two_journals_is_answered_by_the_later_one(tmp_path: Path) -> None:
    clock = Clock(times=[1000, 1001, 1001, 1001, 1005])
    disk = HookedDisk()
    with VersionedKVStore(tmp_path, "cars", clock=clock, background=False, disk=disk) as store:
        store.insert("a", "before")

        def take_the_name(path: Path) -> None:
            if path.name == "cars.jrn.old":
                (tmp_path / "cars.jrn.t1001.zz").write_bytes(b"somebody's")

        disk.before_open = take_the_name
        assert store.rotate() == 1001
        disk.before_open = None
        store.last_timestamp = 1001  # as if the next change had been made before the archive was
        assert store.insert("a", "after") == 1001
    names = sorted(path.name for path in tmp_path.glob("*.zz"))
    assert names == ["cars.jrn.t1001.zz", "cars.jrn.t1002.zz"]
    assert VersionedRecovery.load(tmp_path).recover_at(1001) == {"a": "after"}
    (tmp_path / "cars.jrn.t1001.zz").unlink()
    recovery = VersionedRecovery.load(tmp_path)
    assert [recovery.recover_at(at) for at in (1000, 1001, 1002)] == [{}, {"a": "after"}, {"a": "after"}]


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda recovery: recovery.recover_at(-1),
        lambda recovery: recovery.recover_at("now"),
        lambda recovery: recovery.recover_at(None),
        lambda recovery: recovery.recover_at(1.5),
        lambda recovery: recovery.recover_at(True),
        lambda recovery: recovery.changes("now", 5),
        lambda recovery: recovery.changes(5, 4),
        lambda recovery: recovery.changes(5, None),
        lambda recovery: recovery.diff(5, None),
        lambda recovery: recovery.diff(None, 5),
        lambda recovery: recovery.history(5),
        lambda recovery: recovery.history(b"key"),
        lambda recovery: recovery.history("\ud800"),
        lambda recovery: recovery.to_arrow("now"),
    ],
)
def test_invalid_queries_are_refused_at_once(tmp_path: Path, ask: Callable[[Any], object]) -> None:
    with VersionedKVStore(tmp_path, "cars") as store:
        store.insert("key", 1)
        with pytest.raises(WrongUse):
            ask(VersionedRecovery.load(tmp_path))


@pytest.mark.parametrize(
    "paths",
    [5, None, [5], b"stores", [b"stores"], object()],
    ids=["number", "nothing", "numbers", "bytes", "many bytes", "object"],
)
def test_invalid_path_is_refused_with_the_reason(paths: Any) -> None:
    with pytest.raises(WrongUse, match="is neither a path nor a list of paths"):
        VersionedRecovery.load(paths)


def test_invalid_store_name_is_refused(tmp_path: Path) -> None:
    for name in (5, "../up", ""):
        with pytest.raises(WrongUse, match="a store cannot be called"):
            VersionedRecovery.load(tmp_path, store=name)  # type: ignore[arg-type]


def test_scanner_returns_each_change_once_when_an_archive_is_renamed_and_removed(tmp_path: Path) -> None:
    renamed = Renamed(tmp_path / "stores")
    scanner = Scanner(tmp_path / "stores" / "cars.jrn", timeout=0, mode="dropmalformed")
    assert [entry.k for entry in scanner] == ["a", "b", "c"]
    renamed.insert("d", 4)
    assert (tmp_path / "stores" / "cars.jrn.t2001.zz").exists()
    assert [entry.k for entry in scanner] == ["d"]
    whole = Reader(tmp_path / "stores" / "cars.jrn").entries(mode="dropmalformed")
    assert [entry.k for entry in whole if isinstance(entry, Entry)] == ["a", "b", "c", "d"], "copies are none of them"
    renamed.remove_archives()
    renamed.insert("e", 5)
    renamed.insert("f", 6)
    assert next(iter(scanner)).k == "e"
    assert [entry.k for entry in scanner] == ["f"], "also after a loop that was left"
    scanner.close()


class Hole:
    """A store of four journals; some are removed before one of them is opened, as by a fast retention."""

    def __init__(self, directory: Path) -> None:
        self.disk = HookedDisk()
        self.directory = directory
        times = range(10**6, 10**9, 1000)
        self.ends: list[int] = []
        with VersionedKVStore(directory, "cars", clock=Clock(times=times), background=False) as store:
            self.begun = store.initialized
            for number in range(4):
                store.insert("a", number)
                self.ends.append(store.rotate())

    def remove(self, count: int, before_open: str, times: int = 1) -> None:
        """Remove the first archives when a file is about to be opened for this time."""
        opened = itertools.count(1)

        def before(path: Path) -> None:
            if path.name == before_open and next(opened) == times:
                for end in self.ends[:count]:
                    self.name(end).unlink()

        self.disk.before_open = before

    def name(self, end: int) -> Path:
        return self.directory / f"cars.jrn.t{end}.zz"


@pytest.mark.parametrize("mode", ["failfast", "permissive"])
def test_history_is_read_again_after_retention_makes_a_hole(tmp_path: Path, mode: Any) -> None:
    hole = Hole(tmp_path)
    recovery = VersionedRecovery.load(tmp_path, mode=mode, disk=hole.disk)
    hole.remove(3, hole.name(hole.ends[1]).name)
    assert [entry.o for entry in recovery.history("a")] == [2, 3], "the last archive begins with a copy"
    assert recovery.damages == []


@pytest.mark.parametrize(
    ("count", "opened", "times", "left"), [(3, 1, 2, [0, 2, 3]), (1, 0, 3, [0, 1, 2, 3])], ids=["three", "the first"]
)
def test_hole_made_by_retention_while_reading_changes_is_reported(
    tmp_path: Path, count: int, opened: int, times: int, left: list[int]
) -> None:
    def ask(mode: Any) -> tuple[VersionedRecovery, list[Any]]:
        hole = Hole(tmp_path / mode)
        recovery = VersionedRecovery.load(hole.directory, mode=mode, disk=hole.disk)
        hole.remove(count, hole.name(hole.ends[opened]).name, times)
        return recovery, [entry.o for entry in recovery.changes(hole.begun, hole.ends[3])]

    with pytest.raises(DamagedJournal, match="one is missing"):
        ask("failfast")
    recovery, found = ask("permissive")
    assert found == left, "a journal begins with copies of what was before it"
    assert [damage.kind for damage in recovery.damages] == ["gap"]
