"""The crashes of `test_store_crash.py` for a store whose journal is mapped: its stores are not visible as writes.

Sectors of the mapping reach the disk in any order, each or none of them, until they are synced. Without a clock of the
test, changes take the fast path, which stores entry and position without any call.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.versioned.model import ending
from logwright.versioned.model.store import VersionedKVStore
from tests.support.mapping_disk import MappingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.versioned.stores import HOME, Clock, content_of
from tests.versioned.test_store_crash import SCENARIOS, Scenario, any_fails, fresh

IDS = [scenario.name for scenario in SCENARIOS]


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def crashed(scenario: Scenario, *, is_synced: bool) -> SimulatedDisk:
    """A disk on which a mapped store has done all actions, each followed by a sync, or none."""
    disk: Any = MappingDisk(fresh())
    store = scenario.opened(disk, "none", clock=None)
    for count, action in enumerate(scenario.actions, 1):
        scenario.act(store, action)
        if is_synced:
            store.sync()
        disk.mark(count)
    store.close()
    assert disk.stored_sectors > 3 or not COMPILED
    inner: SimulatedDisk = disk.inner
    return inner


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_leaves_a_mapped_store_in_one_of_its_states(scenario: Scenario, is_synced: bool) -> None:
    disk = crashed(scenario, is_synced=is_synced)
    for state in disk.crash_states(most=4, kinds=("order", "subset"), format="versioned"):
        scenario.check(state, is_synced=is_synced)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_many_power_cuts_leave_mapped_stores_in_one_of_their_states(scenario: Scenario, seed: int) -> None:
    for is_synced in (True, False):
        disk = crashed(scenario, is_synced=is_synced)
        for state in disk.crash_states(most=60, seed=seed, kinds=("order", "subset"), format="versioned"):
            scenario.check(state, is_synced=is_synced)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_killed_process_leaves_its_stored_changes(scenario: Scenario) -> None:
    for state in itertools.islice(crashed(scenario, is_synced=False).process_kills(format="versioned"), 0, None, 5):
        scenario.check(state)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_mapped_store_that_is_opened_after_a_power_cut_survives_the_next_one(scenario: Scenario) -> None:
    states = crashed(scenario, is_synced=False).crash_states(most=8, kinds=("subset",), format="")
    for before in itertools.islice(states, 0, None, 29):
        disk: Any = MappingDisk(before)
        store = VersionedKVStore(
            HOME, "cars", scenario.options.get("capacity", 8192), disk=disk, background=False, clock=Clock(2 * 10**18)
        )
        found = content_of(store)
        store.insert("more", "x" * 300)
        store.sync()
        disk.mark("synced")
        store.insert("more", "y" * 300)
        store.close()
        for state in before.crash_states(
            first=len(before.operations) - 8, most=4, kinds=("subset",), format="versioned"
        ):
            if "synced" not in state.marks:
                continue
            with VersionedKVStore(HOME, "cars", disk=state, background=False, clock=Clock(3 * 10**18)) as again:
                kept = content_of(again)
                assert kept.pop("more")[0] in ("x" * 300, "y" * 300)
                assert kept == {key: pair for key, pair in found.items() if key != "more"}


def test_mapped_store_without_the_sector_check_would_invent_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "values over several sectors")
    disk = crashed(scenario, is_synced=False)
    monkeypatch.setattr(ending, "read_mark", lambda *arguments: None)
    check = scenario.check
    monkeypatch.setattr(scenario, "check", lambda state: check(state, is_synced=False))
    assert any_fails(scenario, disk)
