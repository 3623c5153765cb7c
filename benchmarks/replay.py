"""Replaying the journal of a queue to its state, from the page cache.

Each item has 8 bytes of data and is added, reserved and confirmed: three operations, as a reliable reader of a queue
writes them. The goal is 20 million operations per second, from bytes to state. The peer is the same rules in Python.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.survey import Survey
from logwright.kestrel.files.writer import Writer

GOAL_NS = 50.0
BACKLOG = 1000


def journal(plan: Plan, items: int) -> Path:
    """A journal with this many processed items, and a backlog that stays."""
    path = plan.place / "queues" / f"jobs{items}"
    with Writer(path) as writer:
        for number in range(BACKLOG):
            writer.addx(b"%08d" % number)
        for number in range(items):
            writer.addx(b"%08d" % number)
            writer.remove_tentative()
            writer.confirm_remove(number + 1)
    return path


def ours(path: Path, operations: int) -> float:
    clock = Clock(processor=True)
    reader = Reader(path)
    with clock.running(), reader.snapshot() as files:
        replay = Survey(reader, files).replay
    assert len(replay) == BACKLOG
    return clock.per_item_ns(operations)


def plain_python(path: Path, operations: int) -> float:
    """A deque and a dictionary, filled by a loop over decoded operations."""
    clock = Clock(processor=True)
    queue: deque[bytes | None] = deque()
    reserved: dict[int, bytes | None] = {}
    xid = 0
    with clock.running():
        for operation in Reader(path):
            if operation.op == "addx":
                queue.append(operation.data)
            elif operation.op == "remove_tentative":
                xid += 1
                reserved[xid] = queue.popleft()
            else:
                reserved.pop(operation.xid or 0)
    assert len(queue) == BACKLOG
    return clock.per_item_ns(operations)


def run(plan: Plan) -> list[Figure]:
    """Compare with the limit, and with plain Python."""
    items, few = plan.amount(2_000_000, 100_000), plan.amount(100_000, 20_000)
    large, small = journal(plan, items), journal(plan, few)
    turns = Turns(plan.rounds).run(
        {
            "ours": lambda: ours(large, 3 * items + BACKLOG),
            "python": lambda: plain_python(small, 3 * few + BACKLOG),
        }
    )
    mine, spread = turns.median("ours"), turns.results["ours"]
    what = "kestrel journal to state"
    return [
        Figure("replay", what, mine, GOAL_NS, "ns", "20 M operations a second", 1.0, spread=spread),
        Figure("replay", what, mine, turns.median("python"), "ns", "objects and a deque", spread=spread),
    ]
