"""Any history of a store compared with a list of its changes: the state at every time, and how far back it is known.

The clock stands still, advances a little, and goes backwards. The store is rotated several times within one moment and
opened again, and another program takes names of archives. Times are so close together that every one is checked.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from logwright.errors import HistoryUnavailable
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.files import archive_name, list_files
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.replay import replay
from logwright.versioned.model.retention import Retention
from logwright.versioned.model.store import VersionedKVStore
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file
from tests.versioned.stores import HOME, content_of, journals_of

SECOND = 1_000_000_000
STEPS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("set"), strategies.sampled_from("abc"), strategies.integers(0, 3)),
        strategies.tuples(strategies.just("set"), strategies.sampled_from("abc"), strategies.just("x" * 60)),
        strategies.tuples(strategies.just("drop"), strategies.sampled_from("abc")),
        strategies.tuples(strategies.just("tick"), strategies.sampled_from((-5, -1, 1, 1, 2, 4))),
        strategies.just(("rotate",)),
        strategies.just(("reopen",)),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


class History:
    """A store on a simulated disk, and every change that was made to it."""

    def __init__(self, time: int = 1000, **options: Any) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory(HOME)
        self.time = time
        self.options = {"capacity": 300, "background": False, "clock": lambda: self.time, **options}
        self.changes: list[Entry] = []
        self.store = self.opened()

    def opened(self) -> VersionedKVStore:
        return VersionedKVStore(HOME, "cars", disk=self.disk, **self.options)

    def step(self, verb: str, *words: Any) -> None:
        if verb == "set":
            t = self.store.insert(words[0], words[1])
            self.changes.append(Entry(t, words[0], words[1]))
        elif verb == "drop":
            removed = self.store.remove(words[0])
            if removed is not None:
                self.changes.append(Entry(removed, words[0], None))
        elif verb == "tick":
            self.time += words[0]
        elif verb == "rotate":
            self.store.rotate()
        elif verb == "reopen":
            self.store.close()
            self.store = self.opened()

    def state(self, at: int | None = None) -> dict[str, tuple[Any, int]]:
        return replay(self.changes, at)

    def check(self, first: int) -> None:
        """The state is right at every time from the first on, and now."""
        assert content_of(self.store) == self.state()
        recovery = VersionedRecovery.load(HOME, disk=self.disk)
        last = max([self.time, self.store.last_timestamp])
        for at in range(first, last + 3):
            assert recovery.recover_at(at).with_timestamps() == self.state(at), f"at {at}"
        assert recovery.recover_current().with_timestamps() == self.state()


@settings(derandomize=True, deadline=None, database=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_state_at_every_time_is_that_of_the_changes_made_by_then(steps: list[tuple[Any, ...]]) -> None:
    history = History()
    for step in steps:
        history.step(*step)
    history.check(1000)
    recovery = VersionedRecovery.load(HOME, disk=history.disk)
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(999)
    for key in "abc":
        assert recovery.history(key) == [change for change in history.changes if change.k == key]
    times = [change.t for change in history.changes]
    assert times == sorted(times)
    last = max(times, default=1000)
    assert list(recovery.changes(1000, last)) == [change for change in history.changes if change.t > 1000]
    history.store.close()


@settings(derandomize=True, deadline=None, database=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, taken=strategies.sets(strategies.integers(1000, 1020), max_size=4))
def test_taken_names_are_not_changed_and_nothing_is_overwritten(steps: list[tuple[Any, ...]], taken: set[int]) -> None:
    history = History()
    foreign = {archive_name("cars", timestamp): b"of somebody else" for timestamp in taken}
    for name, data in foreign.items():
        write_file(history.disk, HOME / name, data)
    for step in steps:
        history.step(*step)
    history.store.close()
    for name, data in foreign.items():
        file = history.disk.open(HOME / name, "read")
        assert file.read_at(0, 100) == data
        file.close()
        history.disk.remove(HOME / name)
    entries = [entry for _, found in journals_of(HOME, "cars", history.disk) for entry in found]
    assert all(change in entries for change in history.changes)
    began = [initialized for initialized, _ in journals_of(HOME, "cars", history.disk)]
    assert began == sorted(began)
    history.store = history.opened()
    history.check(1000)
    history.store.close()


LIMITS = strategies.builds(
    Retention,
    max_age_seconds=strategies.none() | strategies.integers(0, 12),
    max_archives=strategies.none() | strategies.integers(0, 4),
    max_bytes=strategies.none() | strategies.integers(0, 600),
    window_seconds=strategies.integers(0, 12),
)


@settings(derandomize=True, deadline=None, database=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(retention=LIMITS, ticks=strategies.lists(strategies.integers(-2, 5), min_size=1, max_size=12))
def test_retention_keeps_the_window_and_earliest_is_its_start(retention: Retention, ticks: list[int]) -> None:
    history = History(1000 * SECOND, retention=retention, capacity=2048)
    for number, tick in enumerate(ticks):
        history.time += tick * SECOND
        history.step("set", "abc"[number % 3], number)
        history.step("rotate")
        store, recovery = history.store, VersionedRecovery.load(HOME, disk=history.disk)
        now = max(history.time, store.last_timestamp)
        archives = list_files(history.disk, HOME, "cars").archives
        earliest = store.earliest()
        assert earliest == recovery.earliest() == journals_of(HOME, "cars", history.disk)[0][0]
        assert earliest <= max(1000 * SECOND, now - retention.window_seconds * SECOND), (
            "a promised time is not known any more"
        )
        for at in {earliest, now, *(change.t for change in history.changes if change.t >= earliest)}:
            assert recovery.recover_at(at).with_timestamps() == history.state(at)
        with pytest.raises(HistoryUnavailable, match=f"known from {earliest} on"):
            recovery.recover_at(earliest - 1)
        if archives and archives[0] <= now - retention.window_seconds * SECOND:  # the oldest could have been removed
            sizes = sum(history.disk.file_size(HOME / archive_name("cars", stamp)) for stamp in archives)
            assert retention.max_archives is None or len(archives) <= retention.max_archives
            assert retention.max_bytes is None or sizes <= retention.max_bytes
            assert retention.max_age_seconds is None or archives[0] > now - retention.max_age_seconds * SECOND
    history.store.close()
