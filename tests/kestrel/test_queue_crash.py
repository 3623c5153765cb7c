"""Power cuts, killed processes and failing disks at every step of every operation on a queue.

Acknowledged operations are there afterwards, nothing is there twice, and the queue stays usable. A scenario is a list
of actions. The queue after each operation is determined first, with a journal that is never compacted. Then the actions
run again with limits that make the queue rotate, restate, rewrite and pack, and are crashed at every point. `put a`
adds an item, `open` reserves one, `confirm 1` and `abort 1` end the transaction 1, and so on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from logwright.core.io.disk import Disk
from logwright.errors import LogwrightError
from logwright.kestrel.files.files import list_files
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.survey import Survey
from logwright.kestrel.model import compaction, open_queues
from logwright.kestrel.model.queue import Queue
from tests.contract.scenarios import ForgetfulDisk
from tests.kestrel.queues import Clock
from tests.kestrel.samples import encoded
from tests.support.faulty_disk import every_fault
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

HOME = Path("/queues")
State = list[tuple[bytes, int]]
"""A queue after a restart: the data of its items from head to tail, and the attempts of each."""

MIXED = [
    *("put a", "put b", "reserve", "put c", "abort 1", "reserve", "reserve", "confirm 2", "get", "put d", "put e"),
    *("abort 3", "many f 3", "get", "reserve", "take 2", "confirm 4", "put i"),
]
EMPTYING = [
    "put a",
    "get",
    "put b",
    "reserve",
    "put c",
    "get",
    "confirm 1",
    "put d",
    "reserve",
    "abort 2",
    "get",
    "put e",
]
FILLING = [
    *(f"put {letter * 30}" for letter in "abcdefgh"),
    *(
        "get",
        "get",
        "reserve",
        "get",
        "get",
        "abort 1",
        "get",
        "get",
        "get",
        "put i",
        "get",
        "put j",
        "reserve",
        "put k",
    ),
]
RESTARTING = [
    "put a",
    "put b",
    "put c",
    "reserve",
    "reserve",
    "reopen",
    "reserve",
    "confirm 3",
    "reopen",
    "put d",
    "get",
]
SHRINKING = [
    *(f"put {'a' * 40}", "put b", "get", "reserve", "shrink", "put c", "shrink", "get", "confirm 1", "shrink"),
    *(f"put {'d' * 40}", "get", "shrink", "put e", "shrink", "reserve", "abort 2"),
]


@dataclass
class Scenario:
    """Actions, and the limits of their queue. `dialect` is the journal's."""

    name: str
    actions: list[str]
    limits: dict[str, Any] = field(default_factory=dict)
    dialect: Any = "documented"

    def __post_init__(self) -> None:
        self.states, self.ends = self._history()

    def _history(self) -> tuple[list[State], list[int]]:
        """The queue after each operation, and the number of operations after each action."""
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        ends = [0]

        def done(_: int) -> None:
            ends.append(len(list(Reader(HOME / "cars", dialect=self.dialect, disk=disk))))

        plain = Scenario.__new__(Scenario)
        plain.actions, plain.limits, plain.dialect = self.actions, {}, self.dialect
        plain.run(disk, done, closes=False)
        operations = list(Reader(HOME / "cars", dialect=self.dialect, disk=disk))
        forget(disk)
        states = []
        for count in range(len(operations) + 1):
            write_file(disk, HOME / "cars", encoded(operations[:count]))
            states.append(state_after_restart(disk, self.dialect))
        return states, ends

    def opened(self, disk: Disk, sync: str = "always") -> Queue:
        options: Any = {"dialect": self.dialect, "background": False, "clock": Clock(), **self.limits}
        return Queue(HOME, "cars", sync=sync, disk=disk, **options)

    def run(self, disk: Disk, done: Callable[[int], None], *, sync: str = "always", closes: bool = True) -> None:
        """Run the actions, and report how many are done."""
        queue = self.opened(disk, sync)
        try:
            for count, action in enumerate(self.actions):
                queue = self.act(queue, action, disk, sync)
                done(count + 1)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                queue.close()
            raise
        if closes:
            queue.close()

    def act(self, queue: Queue, action: str, disk: Disk, sync: str) -> Queue:
        verb, *words = action.split()
        if verb == "put":
            queue.put(words[0].encode())
        elif verb == "many":
            queue.put_many([b"%b%d" % (words[0].encode(), number) for number in range(int(words[1]))])
        elif verb == "take":
            wanted = int(words[0])
            while wanted and (found := queue.get_many(wanted)):  # if reading behind fails, first the items before that
                wanted -= len(found)
        elif verb == "reopen":
            if self.limits:
                queue.close()
            else:  # like a crash: a close would shorten the journal
                forget(disk)
                disk._locks.clear()  # type: ignore[attr-defined]
            return self.opened(disk, sync)
        elif verb == "shrink":
            if self.limits:
                with mock.patch.object(compaction, "_PAGE_BYTES", 20):  # in larger items a power cut leaves holes
                    queue._engine.compaction.shrink()
        else:
            getattr(queue, verb)(*map(int, words))
        return queue

    def check(self, disk: SimulatedDisk, least: int | None = None, *, is_synced: bool = True) -> None:
        """Open the queue after a crash, and check that every acknowledged item is there once, and that it is usable."""
        done = max(disk.marks, default=0) if least is None else least
        first = self.ends[done] if is_synced else 0
        allowed = self.states[first : self.ends[min(done + 1, len(self.actions))] + 1]
        queue = self.opened(disk)
        found = [(item.data, item.attempts) for item in queue.items()]
        assert found in allowed, f"{found} is left, after {done} actions: {self.actions[:done]}"
        assert len(queue) == len(found)
        queue.put(b"more")
        queue.close()
        queue = self.opened(disk)
        assert [(item.data, item.attempts) for item in queue.items()] == [*found, (b"more", 0)]
        assert queue.get_many(100) == [data for data, _ in found] + [b"more"]
        queue.close()
        names = disk.list_directory(HOME)
        assert not [name for name in names if "~~" in name or name.endswith(".pack")], names
        forget(disk)


def state_after_restart(disk: Disk, dialect: Any) -> State:
    reader = Reader(HOME / "cars", dialect=dialect, disk=disk)
    with reader.snapshot() as files:
        survey = Survey(reader, files)
        tally = survey.replay
        data = {number: operation.data or b"" for number, operation in survey.load(range(tally.added)).items()}
        back = [(data[item], attempts + 1) for _, item, attempts in sorted(tally.open())]
        front = [(data[item], attempts) for item, attempts in tally.front()]
        return back + front + [(data[item], 0) for item in range(tally.first, tally.added)]


def forget(disk: Any) -> None:
    """Stop as if the process had died."""
    for key, engine in list(open_queues._engines.items()):
        if key[0] == id(disk):
            del open_queues._engines[key]
            engine.shelf.refusing = True


SMALL = {"max_journal_bytes": 120, "default_journal_bytes": 60}
SCENARIOS = [
    Scenario("everything", MIXED),
    Scenario("everything in kestrel2", MIXED, dialect="kestrel2"),
    Scenario("restated", MIXED, SMALL),
    Scenario("restated in kestrel2", MIXED, SMALL, "kestrel2"),
    Scenario("erased", EMPTYING, {"default_journal_bytes": 30}),
    Scenario("erased for want of space", SHRINKING, {"max_attempts": 9}),
    Scenario("rotated and erased for want of space", SHRINKING, {"max_memory_bytes": 30}),
    Scenario("rotated", FILLING, {"max_memory_bytes": 70}),
    Scenario("packed", FILLING, {"max_memory_bytes": 70, "max_journal_bytes": 200}),
    Scenario("packed in kestrel2", MIXED, {"max_memory_bytes": 3, "max_journal_bytes": 60}, "kestrel2"),
    Scenario("packed all the time", MIXED, {"max_memory_bytes": 3, "max_journal_bytes": 30}),
    Scenario("restarted", RESTARTING, {"max_memory_bytes": 1 << 20}),
    Scenario("restarted and packed", RESTARTING, {"max_memory_bytes": 2, "max_journal_bytes": 30}),
]
CARED = [scenario for scenario in SCENARIOS if scenario.limits]
IDS = [scenario.name for scenario in SCENARIOS]


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def crashed(scenario: Scenario, sync: str = "always", disk: SimulatedDisk | None = None) -> SimulatedDisk:
    disk = SimulatedDisk() if disk is None else disk
    disk.make_directory(HOME)
    disk.settle()
    scenario.run(disk, disk.mark, sync=sync)
    return disk


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_actions_lead_to_the_same_queue_whatever_happens_to_the_journal(scenario: Scenario) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    scenario.run(disk, disk.mark, closes=False)
    assert state_after_restart(disk, scenario.dialect) == scenario.states[-1]
    forget(disk)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 3000], ids=["one file", "rotated files"])
def test_shrinking_erases_only_the_journal_of_an_empty_queue(memory_bytes: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Queue(HOME, "cars", max_memory_bytes=memory_bytes, background=False, disk=disk) as queue:
        queue.put_many([b"a" * 5000, b"b"])
        for least, most in ((5000, 6000), (5000, 6000), (0, 100), (0, 100)):
            queue._engine.compaction.shrink()
            assert least <= queue._engine.journal_bytes <= most
            queue.get()
            disk.settle()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_at_any_point_loses_and_duplicates_nothing(scenario: Scenario) -> None:
    for state in crashed(scenario).crash_states(most=24, fills=(), format="kestrel"):
        scenario.check(state)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_power_cut_without_syncs_leaves_an_earlier_state_of_the_queue(scenario: Scenario) -> None:
    for state in crashed(scenario, "none").crash_states(kinds=("order",), format="kestrel"):
        scenario.check(state, is_synced=False)


@pytest.mark.parametrize("scenario", CARED, ids=[scenario.name for scenario in CARED])
def test_reordered_name_changes_lose_nothing(scenario: Scenario) -> None:
    for state in crashed(scenario).crash_states(most=12, fills=(), reorder_names=True, seed=1, format="kestrel"):
        scenario.check(state)


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_process_killed_at_any_point_loses_nothing(scenario: Scenario, sync: str) -> None:
    for state in crashed(scenario, sync).process_kills(format="kestrel"):
        scenario.check(state)


@pytest.mark.parametrize("scenario", CARED, ids=[scenario.name for scenario in CARED])
def test_power_cut_while_the_queue_is_opened_again_loses_nothing(scenario: Scenario) -> None:
    for before in itertools.islice(crashed(scenario).crash_states(most=8, fills=(), format=""), 0, None, 5):
        done = max(before.marks, default=0)
        scenario.opened(before).close()
        forget(before)
        for state in before.crash_states(most=4, fills=(), format="kestrel"):
            scenario.check(state, done)


@pytest.mark.parametrize("scenario", CARED, ids=[scenario.name for scenario in CARED])
def test_failed_disk_call_loses_nothing(scenario: Scenario) -> None:
    def fresh() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        disk.settle()
        return disk

    for disk in every_fault(fresh, format="kestrel"):
        done = [0]
        with contextlib.suppress(LogwrightError):
            scenario.run(disk, done.append)
        forget(disk)
        scenario.check(disk.inner.copy(), max(done))


@pytest.mark.parametrize(
    ("name", "forgets"),
    [
        ("restated", lambda kind, path: "~~" in path.name),
        ("restated", lambda kind, path: kind == "sync directory" and path == HOME),
        ("packed", lambda kind, path: "~~" in path.name),
        ("packed", lambda kind, path: kind == "sync directory" and path == HOME),
        ("rotated", lambda kind, path: kind == "sync" and path.name == "cars"),
        ("everything", lambda kind, path: kind == "sync" and path.name == "cars"),
    ],
)
def test_every_omitted_sync_is_detected(name: str, forgets: Callable[[str, Path], bool]) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    forgetful: Any = ForgetfulDisk(disk, forgets)
    scenario.run(forgetful, disk.mark)
    assert forgetful.forgotten
    for state in disk.crash_states(most=24, fills=(), format=""):
        try:
            scenario.check(state)
        except (AssertionError, LogwrightError):
            forget(state)
            return
    pytest.fail("no crash state shows it")


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_many_power_cuts_lose_nothing_acknowledged(scenario: Scenario, seed: int) -> None:
    for reorder in (False, True):
        choices: dict[str, Any] = {"most": 200, "seed": seed, "reorder_names": reorder, "format": "kestrel"}
        for state in crashed(scenario).crash_states(fills=(), **choices):
            scenario.check(state)


# --- deleting, and moving to other queues -----------------------------------------------------------------------------


@pytest.mark.parametrize("reorder_names", [False, True])
@pytest.mark.parametrize("limits", [{}, {"max_memory_bytes": 70}])
def test_power_cut_while_a_queue_is_deleted_leaves_it_or_an_empty_one(
    limits: dict[str, Any], reorder_names: bool
) -> None:
    scenario = Scenario("deleted", FILLING, limits)
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    scenario.run(disk, lambda _: None, closes=False)
    forget(disk)
    disk = disk.copy()
    queue = scenario.opened(disk)
    queue.delete()
    disk.mark("deleted")
    for state in disk.crash_states(most=24, fills=(), reorder_names=reorder_names, format="kestrel"):
        assert "deleted" not in state.marks or list_files(state, HOME, "cars").files == []
        with scenario.opened(state) as queue:
            found = [(item.data, item.attempts) for item in queue.items()]
        assert found == [] or ("deleted" not in state.marks and found == scenario.states[-1])
        forget(state)


@pytest.mark.parametrize("kind", ["park", "expire"])
def test_power_cut_while_items_move_keeps_each_of_them(kind: str) -> None:
    def opened(disk: SimulatedDisk, clock: Clock) -> Queue:
        limits: Any = {"expire_to": "other"} if kind == "expire" else {"max_attempts": 1, "park": "other"}
        return Queue(HOME, "cars", sync="always", background=False, clock=clock, disk=disk, **limits)

    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    clock = Clock()
    queue = opened(disk, clock)
    queue.put_many([b"a", b"b"], expires=5 if kind == "expire" else None)
    queue.put(b"c")
    disk.mark("put")
    if kind == "expire":
        clock.now += 10
        assert queue.get() == b"c"
    else:
        queue.abort(*(item.xid for item in queue.reserve_many(2)))
    disk.mark("moved")
    queue.close()
    disk.mark("closed")
    for state in disk.crash_states(most=24, fills=(), format="kestrel"):
        with Queue(HOME, "cars", disk=state, clock=clock) as here, Queue(HOME, "other", disk=state) as there:
            waiting = [entry[0] for entry in here._engine.waiting_entries()]  # expired ones as well
            if "put" in state.marks:
                assert {b"a", b"b"} <= {*waiting, *there}
            if "moved" in state.marks:
                assert list(there) == [b"a", b"b"]
                assert not {b"a", b"b"} & {*waiting}
        forget(state)
