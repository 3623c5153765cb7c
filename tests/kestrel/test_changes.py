"""The changes that operations report end in the state of the replay."""

from __future__ import annotations

import random
from array import array

import pytest

from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.model.replay import EVENTS, Replay
from tests.kestrel.journals import lively_operations, random_operation
from tests.kestrel.samples import RESERVE, add_xid, addx, confirm, continue_, state_dump, unremove

Change = tuple[int, str, int]


def changes_of(replay: Replay, operations: list[Operation]) -> list[Change]:
    """The row, the event, and the item."""
    changes = zip(*replay.changes(*as_columns(operations)), strict=True)
    return [(row, EVENTS[what], item) for row, item, what, _ in changes]


def as_columns(operations: list[Operation]) -> tuple[bytes, array[int]]:
    return bytes(one.number for one in operations), array("i", map(_number, operations))


def _number(operation: Operation) -> int:
    return (operation.count if operation.op == "state_dump" else operation.xid) or 0


def test_each_operation_reports_its_effect_on_which_item() -> None:
    replay = Replay()
    operations = [addx(b"A"), addx(b"B"), RESERVE, RESERVE, unremove(1), confirm(7), continue_(2, b"C"), RESERVE]
    assert changes_of(replay, operations) == [
        (0, "added", 0),
        (1, "added", 1),
        (2, "reserved", 0),
        (3, "reserved", 1),
        (4, "put_back", 0),
        (6, "finished", 1),
        (6, "added", 2),
        (7, "reserved", 0),
    ]
    assert changes_of(replay, [RESERVE, RESERVE]) == [(0, "reserved", 2)]
    assert changes_of(replay, [state_dump(1, 1), add_xid(5, b"")]) == []
    replay.begin_file()
    assert changes_of(replay, [add_xid(5, b"")]) == [(0, "added", 3)]


@pytest.mark.parametrize("seed", range(60))
def test_changes_end_in_the_state_of_a_replay(seed: int) -> None:
    dice = random.Random(seed)
    dialect = dice.choice(("documented", "kestrel2"))
    replay = Replay()
    waiting: list[int] = []
    opened: dict[int, int] = {}
    for file in range(4):
        operations = lively_operations(dice, dialect, 80)
        if file == 1:
            operations += [random_operation(dice, dialect) for _ in range(40)]
        replay.begin_file(file)
        for _, item, what, xid in zip(*replay.changes(*as_columns(operations)), strict=True):
            match EVENTS[what]:
                case "added":
                    waiting.append(item)
                case "reserved":
                    assert waiting.pop(0) == item
                    opened[xid] = item
                case "put_back":
                    assert opened.pop(xid) == item
                    waiting.insert(0, item)
                case "removed":
                    assert waiting.pop(0) == item
                case "finished":
                    assert opened.pop(xid) == item
    assert waiting == replay.items()
    assert list(opened.items()) == [(xid, item) for xid, item, _ in replay.open()]
