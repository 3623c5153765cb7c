"""The queue that operations result in, by the rules interpreted and compiled."""

from __future__ import annotations

import importlib
import json
import random
from array import array
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.model import rules
from logwright.kestrel.model.replay import ANOMALIES, EVENTS
from logwright.kestrel.model.rules import MOST_ANOMALIES
from tests.kestrel.journals import lively_operations, random_operation
from tests.kestrel.samples import (
    FACTS,
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    reserve_as,
    save_xid,
    scenario_operations,
    state_dump,
    unremove,
)

TWINS = {"rules": rules.Replay}
if COMPILED:
    TWINS["_rules"] = importlib.import_module("logwright.kestrel.model._rules").Replay
ADD = addx(b"")


class Queue:
    """A replay whose items are the indexes of the operations that added them."""

    def __init__(self, twin: Any, *operations: Operation, watch: int | None = None) -> None:
        self.replay = twin(None if watch is None else (0, watch))
        self.count = 0
        self.added: list[int] = []
        self.add(*operations)

    def add(self, *operations: Operation) -> Queue:
        kinds = bytes(operation.number for operation in operations)
        numbers = array("i", [_number(operation) for operation in operations])
        stop = self.count + len(operations)
        self.replay.add(kinds, numbers, array("q", range(self.count, stop)), stop)
        self.added += [self.count + row for row, operation in enumerate(operations) if operation.data is not None]
        self.count = stop
        return self

    @property
    def items(self) -> list[int]:
        return [self.added[item] for item in self.replay.items()]

    @property
    def open(self) -> dict[int, int]:
        return {xid: self.added[item] for xid, item, _ in self.replay.open()}

    @property
    def anomalies(self) -> list[tuple[int, str]]:
        return [(position, ANOMALIES[which][0]) for _, position, which, _ in self.replay.anomalies]


def _number(operation: Operation) -> int:
    return (operation.count if operation.op == "state_dump" else operation.xid) or 0


@pytest.fixture(params=TWINS.values(), ids=list(TWINS))
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_items_are_replayed_in_order(twin: Any) -> None:
    queue = Queue(twin, ADD, ADD, ADD, REMOVE)
    assert (queue.items, queue.open, queue.replay.xid, len(queue.replay)) == ([1, 2], {}, 0, 2)


def test_reservation_gets_the_next_id(twin: Any) -> None:
    queue = Queue(twin, ADD, ADD, ADD, RESERVE, RESERVE)
    assert (queue.items, queue.open, queue.replay.xid) == ([2], {1: 0, 2: 1}, 2)


def test_next_id_skips_0_and_open_ids_and_wraps(twin: Any) -> None:
    queue = Queue(twin, *[ADD] * 6, RESERVE, save_xid(2**31 - 1), RESERVE, save_xid(-1), RESERVE, save_xid(0), RESERVE)
    assert queue.open == {1: 0, -(2**31): 1, 2: 2, 3: 3}
    assert queue.replay.xid == 3


def test_item_added_with_an_id_is_reserved_under_it_once(twin: Any) -> None:
    queue = Queue(twin, save_xid(9), add_xid(5, b""), RESERVE)
    assert (queue.open, queue.replay.xid) == ({5: 1}, 9)
    queue.add(unremove(5))
    assert queue.items == [1]
    queue.add(RESERVE)
    assert (queue.open, queue.replay.xid) == ({10: 1}, 10)


def test_item_with_an_id_that_is_not_reserved_yet_keeps_it(twin: Any) -> None:
    queue = Queue(twin, add_xid(5, b""), add_xid(0, b""))
    assert queue.items == [0, 1]
    assert queue.add(RESERVE, RESERVE).open == {5: 0, 1: 1}


def test_item_with_a_taken_id_gets_the_next_one(twin: Any) -> None:
    queue = Queue(twin, add_xid(1, b""), add_xid(1, b""), RESERVE, RESERVE)
    assert (queue.open, queue.anomalies) == ({1: 0, 2: 1}, [(3, "open_already")])


def test_reservation_with_an_explicit_id_sets_the_last_id(twin: Any) -> None:
    queue = Queue(twin, ADD, ADD, reserve_as(6), RESERVE)
    assert (queue.open, queue.replay.xid) == ({6: 0, 7: 1}, 7)
    assert Queue(twin, add_xid(3, b""), reserve_as(8)).open == {8: 0}


def test_aborted_items_are_at_the_head(twin: Any) -> None:
    queue = Queue(twin, ADD, ADD, ADD, RESERVE, RESERVE, unremove(1))
    assert queue.items == [0, 2]
    assert queue.add(unremove(2)).items == [1, 0, 2]


def test_continue_finishes_one_item_and_adds_another(twin: Any) -> None:
    queue = Queue(twin, ADD, reserve_as(1), continue_(1, b""))
    assert (queue.items, queue.open, queue.anomalies) == ([2], {}, [])
    assert Queue(twin, continue_(7, b"")).anomalies == [(0, "not_open")]
    assert Queue(twin, continue_(7, b"")).items == [0]


def test_invalid_operation_changes_nothing_and_is_reported(twin: Any) -> None:
    queue = Queue(twin, REMOVE, RESERVE, reserve_as(4), unremove(1), confirm(2), ADD, reserve_as(3), ADD, reserve_as(3))
    assert (queue.items, queue.open, queue.replay.xid) == ([7], {3: 5}, 3)
    assert queue.anomalies == [
        (0, "empty_queue"),
        (1, "empty_queue"),
        (2, "empty_queue"),
        (3, "not_open"),
        (4, "not_open"),
        (8, "open_already"),
    ]


def test_state_dump_ends_its_file(twin: Any) -> None:
    queue = Queue(twin, ADD, state_dump(9, 2), add_xid(5, b""), add_xid(6, b""))
    assert (queue.items, queue.replay.xid, queue.anomalies) == ([0], 0, [])
    queue.add(ADD, REMOVE, add_xid(7, b""))
    assert (queue.items, queue.anomalies) == ([0], [(4, "after_state_dump")])
    queue.replay.begin_file(1)
    queue.add(ADD, REMOVE, REMOVE, REMOVE)
    assert (queue.items, queue.replay.added) == ([], 2)
    assert queue.replay.anomalies[1:] == [(1, 10, 0, 0)]


def test_journal_of_anomalies_takes_no_memory(twin: Any) -> None:
    queue = Queue(twin, *[REMOVE] * (MOST_ANOMALIES + 5))
    assert queue.replay.anomaly_count == MOST_ANOMALIES + 5
    assert len(queue.replay.anomalies) == MOST_ANOMALIES


def test_item_is_traced_from_add_to_removal(twin: Any) -> None:
    queue = Queue(twin, ADD, ADD, RESERVE, RESERVE, unremove(2), RESERVE, confirm(3), REMOVE, watch=1)
    assert [(position, EVENTS[what], xid) for _, position, what, xid in queue.replay.events] == [
        (1, "added", 0),
        (3, "reserved", 2),
        (4, "put_back", 2),
        (5, "reserved", 3),
        (6, "finished", 3),
    ]
    assert [EVENTS[what] for _, _, what, _ in Queue(twin, ADD, REMOVE, watch=0).replay.events] == ["added", "removed"]


def test_many_reservations_are_found(twin: Any) -> None:
    queue = Queue(twin, *[ADD] * 3000, *[RESERVE] * 3000)
    queue.add(*[confirm(xid) for xid in range(1, 3001) if xid % 7])
    assert sorted(queue.open) == list(range(7, 3001, 7))
    queue.add(*[unremove(xid) for xid in sorted(queue.open, reverse=True)])
    assert queue.items == [xid - 1 for xid in range(7, 3001, 7)]
    assert queue.replay.anomaly_count == 0


@pytest.mark.parametrize("seed", range(20))
def test_saved_replay_continues_as_if_it_had_never_stopped(twin: Any, seed: int) -> None:
    dice = random.Random(seed)
    dialect = dice.choice(("documented", "kestrel2"))
    operations = lively_operations(dice, dialect, 150) + [random_operation(dice, dialect) for _ in range(50)]
    kinds = bytes(operation.number for operation in operations)
    numbers = array("i", map(_number, operations))
    begins = sorted(dice.sample(range(1, 200), 5))
    whole = twin()
    expected = list(zip(*map(list, whole.changes(kinds, numbers, begins)), strict=True))
    found: list[tuple[int, ...]] = []
    pieces = twin()
    for start in range(0, 200, 10):
        rest, pieces = json.loads(json.dumps(pieces.state())), twin()
        pieces.resume(rest)
        rows = [row - start for row in begins if start <= row < start + 10]
        changes = pieces.changes(kinds[start : start + 10], numbers[start : start + 10], rows)
        found += [(start + row, *others) for row, *others in zip(*changes, strict=True)]
    assert found == expected
    assert (pieces.items(), pieces.open(), pieces.xid) == (whole.items(), whole.open(), whole.xid)
    assert pieces.front() == whole.front()


@pytest.mark.parametrize("scenario", FACTS["scenarios"], ids=lambda scenario: scenario["name"])
def test_golden_scenarios_fit_a_queue(twin: Any, scenario: dict[str, Any]) -> None:
    assert Queue(twin, *scenario_operations(scenario)).anomalies == []


def golden(name: str) -> list[Operation]:
    (scenario,) = (scenario for scenario in FACTS["scenarios"] if scenario["name"] == name)
    return scenario_operations(scenario)


def test_golden_rewritten_file_contains_its_open_items_and_its_queue(twin: Any) -> None:
    queue = Queue(twin, *golden("rewrite with open items and queue"))
    assert (queue.open, queue.items) == ({6: 0, 7: 2, 8: 4}, [6, 7, 8])


def test_golden_recovery_returns_open_items_in_order(twin: Any) -> None:
    operations = golden("recover with open transactions")
    queue = Queue(twin, *operations, unremove(3), unremove(1))
    assert [operations[index].data for index in queue.items] == [b"one", b"three", b"five"]
    assert queue.open == {}


@pytest.mark.parametrize(
    ("name", "items"),
    [("interleaved transactions", []), ("continue", [b"two"]), ("restart", [b"second"]), ("flush", [])],
)
def test_golden_queues_match_the_original(twin: Any, name: str, items: list[bytes]) -> None:
    operations = golden(name)
    queue = Queue(twin, *operations)
    assert ([operations[index].data for index in queue.items], queue.open) == (items, {})
