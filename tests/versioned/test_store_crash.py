"""Power cuts, killed processes and failing disks at every step of every change, growth and rotation of a store.

A scenario is a list of actions: `set a 10` inserts a string of 10 letters, `zeros a 600` one of NUL characters, `list a
700` a list of zeros, `drop a` removes; `rotate` and `sync` do what they say. After a crash the store is in the state
after one of its changes, no earlier than the last acknowledged one. Its files have every acknowledged change and none
that was never made, and it stays usable.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import Disk
from logwright.errors import LogwrightError
from logwright.versioned.model import ending
from logwright.versioned.model.store import VersionedKVStore
from tests.contract.scenarios import ForgetfulDisk
from tests.support.faulty_disk import every_fault
from tests.support.simulated_disk import SimulatedDisk
from tests.versioned.stores import HOME, Change, Clock, changes_of, content_of, journals_of, state_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
State = dict[str, tuple[Any, int]]

PLAIN = ["set a 5", "set b 30", "set a 9", "drop b", "set c 20", "set d 3", "drop a"]
LARGE = ["set a 700", "set b 1500", "list c 400", "set d 10", "drop b", "set e 2100", "list f 1200", "set g 5"]
ZEROS = ["set a 10", "zeros b 1300", "set c 40", "list d 1600", "drop b", "zeros e 3000", "set f 1100", "zeros e 600"]
ROTATING = ["set a 40", "set b 40", "rotate", "set a 41", "drop b", "rotate", "rotate", "set c 5", "set c 6"]
FILLING = [f"set {LETTERS[number % 4]} {60 + number}" for number in range(16)]
GROWING = [f"set {letter} 90" for letter in LETTERS[:14]] + ["drop a", "drop b", "set c 20"]


@dataclass
class Scenario:
    """Actions, and the options of their store."""

    name: str
    actions: list[str]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        self.states: list[State] = [{}]
        self.changes: list[Change | None] = []
        store = self.opened(disk, sync="none", capacity=1 << 16, max_capacity=1 << 20)
        for action in self.actions:
            self.changes.append(self.act(store, action))
            self.states.append(content_of(store))
        store.close()

    def opened(self, disk: Disk, sync: str = "always", **options: Any) -> VersionedKVStore:
        settings = {"capacity": 8192, "background": False, "clock": Clock(), **self.options, **options}
        return VersionedKVStore(HOME, "cars", sync=sync, disk=disk, **settings)

    def act(self, store: VersionedKVStore, action: str) -> Change | None:
        """Run an action; its change, if it is one."""
        verb, *words = action.split()
        if verb in ("rotate", "sync"):
            getattr(store, verb)()
            return None
        if verb == "drop":
            t = store.remove(words[0])
            assert t is not None
            return t, words[0], "null"
        size = int(words[1])
        value: Any = {"set": LETTERS * (size // 26 + 1), "zeros": "\0" * size, "list": [0] * size}[verb]
        value = value[:size]
        return store.insert(words[0], value), words[0], json.dumps(value)

    def run(self, disk: Disk, done: Callable[[int], None], *, sync: str = "always", **options: Any) -> None:
        """Run the actions, and report how many are done."""
        store = self.opened(disk, sync, **options)
        try:
            for count, action in enumerate(self.actions):
                self.act(store, action)
                done(count + 1)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                store.close()
            raise
        store.close()

    def check(self, disk: SimulatedDisk, least: int | None = None, *, is_synced: bool = True) -> None:
        """Open the store after a crash: everything acknowledged is there, nothing else, and the store is usable."""
        done = max(disk.marks, default=0) if least is None else least
        last = min(done + 1, len(self.actions))
        store = self.opened(disk, clock=Clock(2_000_000_000_000_000_000))
        found = shape(content_of(store))
        first = done if is_synced else 0
        allowed = [shape(state) for state in self.states[first : last + 1]]
        assert found in allowed, f"{found} is left, after {done} actions: {self.actions[:done]}"
        store.insert("more", 1)
        store.close()
        self.check_history(disk, done if is_synced else 0, last)
        store = self.opened(disk, clock=Clock(3_000_000_000_000_000_000))
        assert shape(content_of(store)) == {**found, "more": "1"}
        assert store.recovered is None
        store.rotate()
        store.close()
        assert {
            kind for name in disk.list_directory(HOME) if (kind := name.rpartition(".")[2]) not in ("jrn", "zz")
        } == {"logwright"}
        assert disk.open_files == 0

    def check_history(self, disk: SimulatedDisk, first: int, last: int) -> None:
        """Every journal begins with the final state of the preceding one; no change is missing or invented."""
        found = [(key, value) for _, key, value in changes_of(HOME, "cars", disk) if key != "more"]
        made = [change for change in self.changes if change is not None]
        acknowledged = sum(change is not None for change in self.changes[:first])
        possible = sum(change is not None for change in self.changes[:last])
        wanted = [(key, value) for _, key, value in made]
        assert found in [wanted[:count] for count in range(acknowledged, possible + 1)]
        journals = journals_of(HOME, "cars", disk)
        for (_, before), (initialized, after) in itertools.pairwise(journals):
            state = state_of(before)
            assert state_of(after[: len(state)]) == state
            assert all(entry.t <= initialized for entry in before)
        for _, entries in journals:
            times = [entry.t for entry in entries]
            assert times == sorted(times)


def shape(state: State) -> dict[str, str]:
    """A state without its times, which differ between runs."""
    return {key: json.dumps(value) for key, (value, _) in sorted(state.items())}


SCENARIOS = [
    Scenario("small values", PLAIN),
    Scenario("values over several sectors", LARGE, {"capacity": 1 << 14}),
    Scenario("values with sectors of zeros", ZEROS, {"capacity": 1 << 14}),
    Scenario("rotated by hand", ROTATING, {"capacity": 512}),
    Scenario("rotated when full", FILLING, {"capacity": 700}),
    Scenario("growing", GROWING, {"capacity": 256}),
    Scenario("at the limit", [*GROWING[:6], "drop a", "set b 90", "set b 91"], {"capacity": 256, "max_capacity": 1200}),
]
IDS = [scenario.name for scenario in SCENARIOS]
ROTATED = [scenario for scenario in SCENARIOS if scenario.options.get("capacity", 8192) < 1024]


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def fresh() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    return disk


def crashed(scenario: Scenario, sync: str = "always") -> SimulatedDisk:
    disk = fresh()
    scenario.run(disk, disk.mark, sync=sync)
    return disk


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_actions_lead_to_the_same_store_whatever_happens_to_its_files(scenario: Scenario) -> None:
    scenario.check(crashed(scenario).copy(), len(scenario.actions))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_at_any_point_loses_nothing_and_invents_nothing(scenario: Scenario) -> None:
    for state in crashed(scenario).crash_states(most=16, format="versioned"):
        scenario.check(state)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_without_syncs_leaves_an_earlier_state_of_the_store(scenario: Scenario) -> None:
    for state in crashed(scenario, "none").crash_states(most=16, format="versioned"):
        scenario.check(state, is_synced=False)


@pytest.mark.parametrize("scenario", ROTATED, ids=[scenario.name for scenario in ROTATED])
def test_reordered_name_changes_lose_nothing(scenario: Scenario) -> None:
    for state in crashed(scenario).crash_states(most=12, reorder_names=True, seed=1, format="versioned"):
        scenario.check(state)


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_process_killed_at_any_point_loses_nothing(scenario: Scenario, sync: str) -> None:
    for state in crashed(scenario, sync).process_kills(format="versioned"):
        scenario.check(state)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_while_the_store_is_opened_again_loses_nothing(scenario: Scenario) -> None:
    for before in itertools.islice(crashed(scenario).crash_states(most=8, format=""), 0, None, 7):
        done = max(before.marks, default=0)
        scenario.opened(before, clock=Clock(2_000_000_000_000_000_000)).close()
        for state in before.crash_states(most=4, format="versioned"):
            scenario.check(state, done)


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize(("scenario", "step"), [(SCENARIOS[0], 1), (SCENARIOS[1], 3), (SCENARIOS[3], 11)])
def test_power_cut_after_a_kill_breaks_no_promise_of_the_next_process(scenario: Scenario, step: int, sync: str) -> None:
    """The next process finds files whose names and bytes exist, but are not durable."""
    for killed in itertools.islice(crashed(scenario, sync).process_kills(format=""), 0, None, step):
        done = max(killed.marks, default=0)
        states = [shape(state) for state in scenario.states[done if sync == "always" else 0 : done + 2]]
        store = scenario.opened(killed, clock=Clock(2_000_000_000_000_000_000))
        found = shape(content_of(store))
        value = LETTERS * 90
        store.insert("next", value)
        killed.mark("inserted")
        changed = {"next": json.dumps(value), **found}
        for state in killed.crash_states(most=12, format="versioned"):
            with scenario.opened(state, clock=Clock(3_000_000_000_000_000_000)) as after:
                content = shape(content_of(after))
            assert content == changed or ("inserted" not in state.marks and content in states)
        store.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_failed_disk_call_loses_nothing(scenario: Scenario) -> None:
    for disk in every_fault(fresh, format="versioned"):
        done = [0]
        with contextlib.suppress(LogwrightError):
            scenario.run(disk, done.append)
        assert disk.inner.open_files == 0
        scenario.check(disk.inner.copy(), max(done))


@pytest.mark.parametrize(
    ("name", "forgets"),
    [
        ("small values", lambda kind, path: kind == "sync" and path.name == "cars.jrn"),
        ("values with sectors of zeros", lambda kind, path: kind == "sync" and path.name == "cars.jrn"),
        ("rotated by hand", lambda kind, path: kind == "sync" and path.name == "cars.jrn.tmp"),
        ("rotated by hand", lambda kind, path: kind == "sync directory" and path == HOME),
        ("rotated by hand", lambda kind, path: kind == "sync" and path.name.endswith(".zz.tmp")),
    ],
)
def test_every_omitted_sync_is_detected(name: str, forgets: Callable[[str, Path], bool]) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    disk = fresh()
    scenario.opened(disk).close()
    disk.settle()
    forgetful: Any = ForgetfulDisk(disk, forgets)
    scenario.run(forgetful, disk.mark)
    assert forgetful.forgotten
    assert any_fails(scenario, disk)


def any_fails(scenario: Scenario, disk: SimulatedDisk, seed: int = 0) -> bool:
    """Whether a crash state shows that something is wrong."""
    for state in disk.crash_states(most=24, seed=seed, format=""):
        try:
            scenario.check(state)
        except (AssertionError, LogwrightError, zlib.error):
            return True
    return False


def test_store_without_the_sector_check_would_invent_values(monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "values over several sectors")
    disk = crashed(scenario)
    monkeypatch.setattr(ending, "read_mark", lambda *arguments: None)
    assert any(any_fails(scenario, disk, seed) for seed in range(6))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_many_power_cuts_lose_no_acknowledged_change(scenario: Scenario, seed: int) -> None:
    for sync in ("always", "none"):
        for state in crashed(scenario, sync).crash_states(most=200, seed=seed, format="versioned"):
            scenario.check(state, is_synced=sync == "always")
