"""kill -9 of processes that use a queue, hundreds of times: nothing acknowledged is lost, and nothing is delivered
twice.

A process reports each call before it and its result after it. So the test knows the expected queue, except for the
calls in progress: each of those may have happened completely, partly or not at all. The limits are so small that the
journal is rotated, rewritten and packed all the time, and some processes kill themselves at exactly one of those steps.
Then the next process continues with the same queue.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from itertools import count
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.kestrel.files.files import list_queues
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.survey import Survey
from logwright.kestrel.model.queue import Queue
from logwright.torture.moments import Moment
from logwright.torture.queue import QUEUE, Model, State, number_of
from tests.kestrel import killed_queue
from tests.support.counts import COUNTS
from tests.support.forks import fork_server
from tests.support.threads import DEADLINE_SECONDS

KILLS = 12
"""The number of processes of each kind."""
MOST_REPORTS = 500
"""A process that has not killed itself by then is killed."""

RESTATED = {"max_journal_bytes": 1500, "default_journal_bytes": 400}
PACKED = {"max_memory_bytes": 400, "max_journal_bytes": 1500, "default_journal_bytes": 400}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain, always": {"sync": "always"},
    "restated": {**RESTATED, "background": False},
    "restated in kestrel2, always": {**RESTATED, "sync": "always", "dialect": "kestrel2"},
    "packed": {**PACKED, "background": False},
    "packed by a thread": PACKED,
    "packed in kestrel2": {**PACKED, "dialect": "kestrel2"},
    "packed by a thread, always": {**PACKED, "sync": "always"},
}
STEPS = {"rename": 6, "remove": 6, "sync directory": 10, "create": 6, "write temporary": 6, "sync": 14, "write": 40}
"""What a process can die of, and how long it lives at most."""


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """The source of the processes."""
    return fork_server()


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


class Plan(NamedTuple):
    """How a process ends: after a number of reports, or at its own moment."""

    reports: int
    moment: Moment | None = None


def until_killed(context: ForkServerContext, plan: Plan, *arguments: Any) -> list[Any]:
    """Start a process, and let it be killed; everything that it has reported."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=killed_queue.use_for_ever, args=(*arguments, sender))
    process.start()
    sender.close()
    reports: list[Any] = []
    try:
        while len(reports) < plan.reports:
            assert receiver.poll(DEADLINE_SECONDS), "the process reports nothing"
            reports.append(json.loads(receiver.recv_bytes()))
    except EOFError:
        pass
    process.kill()
    process.join(DEADLINE_SECONDS)
    assert process.exitcode == -9, "it ended by itself"
    try:
        while receiver.poll():  # what it had sent before it died is true as well
            reports.append(json.loads(receiver.recv_bytes()))
    except EOFError:
        pass
    receiver.close()
    process.close()
    return reports


def state_of(path: Path, dialect: Any) -> State:
    """The queue as the next opening will find it. Changes nothing."""
    reader = Reader(path, dialect=dialect)
    with reader.snapshot() as files:
        survey = Survey(reader, files)
        tally = survey.replay
        numbers = {item: number_of(found.data or b"") for item, found in survey.load(range(tally.added)).items()}
        back = [(numbers[item], attempts + 1) for _, item, attempts in sorted(tally.open())]
        front = [(numbers[item], attempts) for item, attempts in tally.front()]
        return back + front + [(numbers[item], 0) for item in range(tally.first, tally.added)]


def found_after_kill(directory: Path, dialect: Any) -> State:
    """The queue; its files are sound, except for a tail that a killed write may have left."""
    if not directory.exists() or QUEUE not in list_queues(REAL_DISK, directory):
        return []
    for problem in Reader(directory / QUEUE, dialect=dialect).verify().problems:
        assert (problem.file, problem.kind) == (QUEUE, "torn_tail"), problem
    return state_of(directory / QUEUE, dialect)


def check_opened(directory: Path, wanted: State, options: dict[str, Any]) -> None:
    """Open the queue here: it equals the state of its journal, and its files are in order."""
    with Queue(directory, QUEUE, **options) as queue:
        assert [(number_of(item.data), item.attempts) for item in queue.items()] == wanted
        assert len(queue) == len(wanted)
    report = Reader(directory / QUEUE, dialect=options.get("dialect", "auto")).verify()
    assert (report.problems, report.anomalies) == ([], [])
    assert not [path.name for path in directory.iterdir() if "~~" in path.name or path.name.endswith(".pack")]


# --- one worker at a time ---------------------------------------------------------------------------------------------


def allowed_states(state: State, reports: list[Any]) -> list[State]:
    """The possible queues after a process that began with this queue has reported all that."""
    model = Model(state)
    under_way: tuple[str, list[int]] | None = None
    for report in reports:
        if report[0] == "do":
            under_way = report[2], report[3]
        elif report[0] == "done":
            assert under_way is not None
            model.done(*under_way, report[2])
            under_way = None
    models = [model] if under_way is None else [model, *model.steps(*under_way)]
    return [each.after_restart() for each in models]


def kill_again_and_again(
    context: ForkServerContext, directory: Path, kind: str, plans: Iterator[Plan], kills: int
) -> None:
    chance = random.Random(kind)
    options = KINDS[kind]
    dialect = options.get("dialect", "auto")
    state: State = []
    for number, plan in zip(range(kills), plans, strict=False):
        arguments = (str(directory), f"{kind} {number}", number * 10**5, 1, "alone", plan.moment, options)
        reports = until_killed(context, plan, *arguments)
        found = found_after_kill(directory, dialect)
        assert found in allowed_states(state, reports), (reports[-1], plan)
        state = found
        if chance.random() < 0.7:  # otherwise the next process finds the state that this one has left
            check_opened(directory, state, options)
        COUNTS.add("kill -9", 1, "kestrel")


def by_reports(seed: str) -> Iterator[Plan]:
    """Killed from outside, after some time."""
    chance = random.Random(seed)
    while True:
        yield Plan(chance.choice((1, 2, 5, 20, 60, 150, 300)))


def by_steps(seed: str) -> Iterator[Plan]:
    """Killed at one of its own steps."""
    chance = random.Random(seed)
    for number in count():
        step = list(STEPS)[number % len(STEPS)]
        yield Plan(MOST_REPORTS, Moment(step, chance.randrange(1, STEPS[step] + 1), chance.random() < 0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_process_leaves_the_acknowledged_queue(context: ForkServerContext, kind: str, tmp_path: Path) -> None:
    kill_again_and_again(context, tmp_path / "queues", kind, by_reports(kind), KILLS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "ed" in kind])
def test_process_killed_during_compaction_leaves_the_acknowledged_queue(
    context: ForkServerContext, kind: str, tmp_path: Path
) -> None:
    kill_again_and_again(context, tmp_path / "queues", kind, by_steps(kind), 2 * len(STEPS))


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_many_killed_processes_lose_nothing_acknowledged(context: ForkServerContext, kind: str, tmp_path: Path) -> None:
    kill_again_and_again(context, tmp_path / "reports", kind, by_reports(f"{kind} more"), 20 * KILLS)
    kill_again_and_again(context, tmp_path / "steps", kind, by_steps(f"{kind} more"), 20 * KILLS)


# --- many at the same time --------------------------------------------------------------------------------------------


class Crew:
    """The state of the items by the reports of many workers of one process, in some order."""

    def __init__(self, state: State) -> None:
        self.there = {number for number, _ in state}
        self.gone: set[int] = set()
        self.open: dict[int, int] = {}
        self.under_way: dict[int, tuple[str, list[int]]] = {}

    def hear(self, reports: list[Any]) -> None:
        for report in reports:
            if report[0] == "do":
                self.under_way[report[1]] = report[2], report[3]
            elif report[0] == "done":
                self._done(*self.under_way.pop(report[1]), report[2])

    def _done(self, verb: str, numbers: list[int], result: Any) -> None:
        if verb == "put":
            self.there.update(numbers)
        elif verb == "get":
            assert not self.gone & {*result}, "something was handed out twice"
            self.gone.update(result)
        elif verb == "open":
            assert not self.gone & {number for number, _ in result}
            self.open.update({xid: number for number, xid in result})
        else:
            items = [self.open.pop(xid) for xid in numbers]
            self.gone.update(items if verb == "confirm" else ())

    def check(self, found: State) -> None:
        numbers = [number for number, _ in found]
        assert len(numbers) == len(set(numbers)), "something is there twice"
        assert not self.gone & set(numbers), "something comes again"
        put = {number for verb, items in self.under_way.values() if verb == "put" for number in items}
        assert set(numbers) <= self.there | put
        confirmed = {self.open[xid] for verb, xids in self.under_way.values() if verb == "confirm" for xid in xids}
        got = sum(items[0] for verb, items in self.under_way.values() if verb == "get")
        lost = self.there - self.gone - set(numbers) - confirmed
        assert len(lost) <= got, f"{sorted(lost)} were acknowledged, and are not there"
        for worker in range(100):
            untried = [number for number, attempts in found if not attempts and number // 10**6 % 100 == worker]
            assert untried == sorted(untried), "what one worker has put is not in its order"


CREWS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "threads": ("threads", 4, PACKED),
    "threads, always": ("threads", 6, {**PACKED, "sync": "always"}),
    "tasks, always": ("tasks", 16, {**PACKED, "sync": "always"}),
}


def kill_crews(context: ForkServerContext, directory: Path, kind: str, kills: int) -> None:
    how, workers, options = CREWS[kind]
    state: State = []
    plans = by_reports(kind), by_steps(kind)
    for number in range(kills):
        plan = next(plans[number % 2])
        # The numbers of a worker rise from process to process, and identify it.
        arguments = (str(directory), f"{kind} {number}", number * 10**8, workers, how, plan.moment, options)
        crew = Crew(state)
        crew.hear(until_killed(context, plan, *arguments))
        state = found_after_kill(directory, "auto")
        crew.check(state)
        check_opened(directory, state, options)
        COUNTS.add("kill -9", 1, "kestrel")


@pytest.mark.parametrize("kind", CREWS)
def test_killed_process_with_many_workers_loses_nothing(context: ForkServerContext, kind: str, tmp_path: Path) -> None:
    kill_crews(context, tmp_path / "queues", kind, KILLS)


@pytest.mark.torture
@pytest.mark.parametrize("kind", CREWS)
def test_many_killed_processes_with_many_workers_lose_nothing(
    context: ForkServerContext, kind: str, tmp_path: Path
) -> None:
    kill_crews(context, tmp_path / "queues", kind, 20 * KILLS)
