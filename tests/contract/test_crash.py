"""Power cuts and killed processes at every point of every scenario, on a simulated disk; then the same without a sync.

After each crash the scenario's own check recovers the journal and asserts the invariants (see `scenarios.py`). Crashes
are combined: during a recovery, and after a process was killed and another one continued. The mutants omit one kind of
sync, and the same checks must detect each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import LogwrightError, NotFound
from tests.contract.scenarios import (
    AppendScenario,
    Checked,
    Durable,
    ForgetfulDisk,
    check_after_crash,
    check_promised,
    promised,
)
from tests.contract.subject import HOME, Mutant, Scenario, Subject
from tests.contract.subjects import SUBJECTS
from tests.support.crashes import FILLS
from tests.support.simulated_disk import SimulatedDisk

ALL = [
    pytest.param(subject, scenario, id=f"{subject.name}, {scenario.name}")
    for subject in SUBJECTS.values()
    for scenario in subject.scenarios()
]
APPENDS = [parameters for parameters in ALL if isinstance(parameters.values[1], AppendScenario)]
MUTANTS = [
    pytest.param(subject, mutant, id=f"{subject.name}, {mutant.name}")
    for subject in SUBJECTS.values()
    for mutant in subject.mutants()
]
MOST = 120
"""The number of combinations that are tried at each point of a scenario."""
MOST_WITHIN = 5
"""The same at each point of a recovery; there are many."""


def crashed(scenario: Scenario, forgets: Callable[[str, Path], bool] | None = None) -> SimulatedDisk:
    """A disk on which the scenario has run to its end, with all its operations."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    scenario.prepare(disk)
    disk.settle()
    if forgets is None:
        scenario.run(disk, disk.mark)
    else:
        forgetful = ForgetfulDisk(disk, forgets)
        scenario.run(forgetful, disk.mark)
        assert forgetful.forgotten, "this mutant forgets nothing in this scenario"
    return disk


def judged_by_promises(subject: Subject, scenario: Scenario) -> bool:
    """Whether torn sectors may leave anything in place of unsynced bytes: no record of this format would show it."""
    return not subject.notices_torn_values and isinstance(scenario, AppendScenario) and scenario.sync != "always"


def crash_choices(subject: Subject, scenario: Scenario) -> dict[str, Any]:
    """The power cuts whose traces a format can detect."""
    choices: dict[str, Any] = {"format": subject.name}
    if judged_by_promises(subject, scenario):
        choices["kinds"] = ("order", "subset")
    elif not subject.notices_torn_values:
        choices["fills"] = ()
    return choices


@pytest.mark.parametrize(("subject", "scenario"), ALL)
def test_power_cut_at_any_point_breaks_no_promise(subject: Subject, scenario: Scenario) -> None:
    for state in crashed(scenario).crash_states(most=MOST, **crash_choices(subject, scenario)):
        scenario.check(state)


@pytest.mark.parametrize(
    ("subject", "scenario"),
    [parameters for parameters in APPENDS if not parameters.values[0].notices_torn_values],  # type: ignore[union-attr]
)
def test_arbitrary_sectors_break_no_promise(subject: Subject, scenario: AppendScenario) -> None:
    for state in crashed(scenario).crash_states(most=MOST, kinds=("torn",), seed=2, format=subject.name):
        check_promised(subject, state, scenario.issued, promised(state.marks))


@pytest.mark.parametrize(("subject", "scenario"), ALL)
def test_reordered_name_changes_break_no_promise(subject: Subject, scenario: Scenario) -> None:
    choices = crash_choices(subject, scenario)
    for state in crashed(scenario).crash_states(most=MOST // 4, reorder_names=True, seed=1, **choices):
        scenario.check(state)


@pytest.mark.parametrize(("subject", "scenario"), ALL)
def test_moved_file_has_its_new_name_before_the_old_one_is_removed(subject: Subject, scenario: Scenario) -> None:
    assert crashed(scenario).moved_unnamed() == []


@pytest.mark.parametrize(("subject", "scenario"), ALL)
def test_kill_at_any_point_loses_no_flushed_record(subject: Subject, scenario: Scenario) -> None:
    for state in crashed(scenario).process_kills(format=subject.name):
        scenario.check(state, killed=True)


@pytest.mark.parametrize(("subject", "scenario"), APPENDS)
def test_power_cut_during_recovery_breaks_no_promise(subject: Subject, scenario: AppendScenario) -> None:
    choices = crash_choices(subject, scenario)
    checked = Checked()
    for before in itertools.islice(crashed(scenario).crash_states(most=MOST, **choices), 0, None, 4):
        least = promised(before.marks)
        try:
            subject.recover(before, HOME)
        except LogwrightError:
            continue  # no journal yet, or damage: `check` covers that, in the test above
        before.mark("recovered")
        for state in before.crash_states(most=MOST_WITHIN, **choices):
            if checked.is_new(state, least):
                check_after_crash(subject, state, scenario.issued, least, may_be_damaged=scenario.sync != "always")


@pytest.mark.parametrize(("subject", "scenario"), APPENDS)
def test_power_cut_after_a_kill_breaks_no_promise_of_the_next_process(
    subject: Subject, scenario: AppendScenario
) -> None:
    """The next process finds files whose names and bytes exist, but are not durable."""
    checked = Checked()
    for killed in crashed(scenario).process_kills(format=subject.name):
        try:
            count = len(list(subject.read(killed, HOME)))
        except NotFound:
            count = 0
        session = subject.open_session(killed, HOME, **scenario.options)
        for record in scenario.issued[count : count + 2]:
            session.append(record)
            count += 1
            killed.mark(Durable(count))
        session.close()
        for state in killed.crash_states(most=MOST_WITHIN, kinds=("order", "subset"), format=subject.name):
            least = promised(state.marks)
            if checked.is_new(state, least):
                check_after_crash(subject, state, scenario.issued, least, may_be_damaged=scenario.sync != "always")


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize(("subject", "scenario"), ALL)
def test_many_power_cuts_lose_no_acknowledged_record(subject: Subject, scenario: Scenario, seed: int) -> None:
    unsynced = isinstance(scenario, AppendScenario) and scenario.sync != "always"
    kinds = ("order", "subset") if unsynced else ("order", "subset", "torn")
    for reorder_names in (False, True):
        disk = crashed(scenario)
        options: dict[str, Any] = {"most": 600, "seed": seed, "reorder_names": reorder_names, "format": subject.name}
        fills = FILLS if subject.notices_torn_values else ()
        for state in disk.crash_states(kinds=kinds, fills=fills, **options):
            scenario.check(state)
        if isinstance(scenario, AppendScenario) and unsynced:
            # A sector within an unsynced value may be read as anything: a format without checksums cannot detect it.
            for state in disk.crash_states(kinds=("torn",), **options):
                check_promised(subject, state, scenario.issued, promised(state.marks))


# --- the tests themselves are tested: without a sync they must fail ---------------------------------------------------


@pytest.mark.parametrize(("subject", "mutant"), MUTANTS)
def test_every_omitted_sync_is_detected(subject: Subject, mutant: Mutant) -> None:
    (scenario,) = (scenario for scenario in subject.scenarios() if scenario.name == mutant.scenario)
    disk = crashed(scenario, mutant.forgets)
    for state in disk.crash_states(most=MOST, **crash_choices(subject, scenario) | {"format": ""}):
        try:
            scenario.check(state)
        except (AssertionError, LogwrightError):
            return
    pytest.fail(f"no crash state shows that there is {mutant.name}")
