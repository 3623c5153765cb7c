"""What operations do to items, told as they go, ends where the replay ends."""

from __future__ import annotations

import random
from array import array

import pytest

from logwright.kestrel.bytes import kernel
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.model.changes import Changes
from logwright.kestrel.model.replay import EVENTS
from tests.kestrel.journals import lively_operations, random_operation
from tests.kestrel.samples import RESERVE, add_xid, addx, confirm, continue_, state_dump, unremove

Change = tuple[int, str, int]


def told(changes: Changes, operations: list[Operation]) -> list[Change]:
    """Row, what happened, and to which item."""
    found = changes.tell([one.number for one in operations], [_number(one) for one in operations])
    return [(row, EVENTS[what], item) for row, what, item in zip(found.rows, found.whats, found.items, strict=True)]


def _number(operation: Operation) -> int:
    return (operation.count if operation.op == "state_dump" else operation.xid) or 0


def test_each_operation_says_what_it_does_to_which_item() -> None:
    changes = Changes()
    operations = [addx(b"A"), addx(b"B"), RESERVE, RESERVE, unremove(1), confirm(7), continue_(2, b"C"), RESERVE]
    assert told(changes, operations) == [
        (0, "added", 1),
        (1, "added", 2),
        (2, "reserved", 1),
        (3, "reserved", 2),
        (4, "put_back", 1),
        (6, "finished", 2),
        (6, "added", 3),
        (7, "reserved", 1),
    ]
    assert told(changes, [RESERVE, RESERVE]) == [(0, "reserved", 3)]
    assert told(changes, [state_dump(1, 1), add_xid(5, b"")]) == []
    changes.begin_file(0)
    assert told(changes, [add_xid(5, b"")]) == [(0, "added", 4)]


@pytest.mark.parametrize("seed", range(60))
def test_what_it_ends_with_is_the_state_that_a_replay_ends_with(seed: int) -> None:
    dice = random.Random(seed)
    dialect = dice.choice(("documented", "kestrel2"))
    changes, replay = Changes(), kernel.Replay()
    place_of: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []
    opened: dict[int, int] = {}
    for file in range(4):
        operations = lively_operations(dice, dialect, 80)
        if file == 1:
            operations += [random_operation(dice, dialect) for _ in range(40)]
        kinds, numbers = bytes(one.number for one in operations), array("i", map(_number, operations))
        replay.begin_file(file)
        replay.add(kinds, numbers, array("q", range(len(operations))))
        changes.begin_file(0)
        found = changes.tell(kinds, numbers)
        for row, item, what, xid in zip(*found, strict=True):
            match EVENTS[what]:
                case "added":
                    place_of[item] = (file, row)
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
    assert [place_of[item] for item in waiting] == [(item.file, item.position) for item in replay.items()]
    assert [(xid, place_of[item]) for xid, item in opened.items()] == [
        (item.xid, (item.file, item.position)) for item in replay.open()
    ]
    assert len(changes) == len(replay)
