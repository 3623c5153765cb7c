"""Reading a journal as Python objects, from the page cache.

The peers are `struct` in a loop, and SQLite. The goal is half the time of the Go implementation. That is 0.22 of the
time of the struct loop on the machine where all three were measured (177 of 815 ns), or 150 ns in absolute terms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from benchmarks.journals import large_journal, segment_of, sqlite_of
from benchmarks.measure import MESSAGE_BYTES, Clock, Figure, Plan, Turns
from logwright.sej.files.reader import Reader


def ours(directory: Path, count: int) -> float:
    clock = Clock(processor=True)
    seen = 0
    with clock.running():
        for _ in Reader(directory).messages(stop=count):
            seen += 1
    assert seen == count
    return clock.per_item_ns(count)


def struct_messages(data: bytes) -> Iterator[tuple[int, int, int, bytes, bytes]]:
    """A simple loop without a library: the same checks and the same fields."""
    head, size_of = struct.Struct(">QqBb").unpack_from, struct.Struct(">i").unpack_from
    position, expected = 0, 0
    while position < len(data):
        offset, timestamp, type, key_size = head(data, position)
        value_at = position + 22 + key_size
        (value_size,) = size_of(data, value_at - 4)
        (size,) = size_of(data, value_at + value_size)
        if offset != expected or size != 26 + key_size + value_size:
            raise ValueError(f"no message at {position}")
        yield offset, timestamp, type, data[position + 18 : value_at - 4], data[value_at : value_at + value_size]
        position += size
        expected += 1


def struct_loop(path: Path, count: int) -> float:
    clock = Clock(processor=True)
    with path.open("rb") as file, clock.running():
        seen = sum(1 for _ in struct_messages(file.read(count * MESSAGE_BYTES)))
    assert seen == count
    return clock.per_item_ns(count)


def run(plan: Plan) -> list[Figure]:
    """Compare with both peers and the limit."""
    directory, rows = large_journal(plan)
    few = min(rows, plan.amount(300_000, 50_000))
    clock = Clock(processor=True)
    with sqlite_of(plan.place, few) as connection:

        def sqlite() -> float:
            clock.seconds = 0
            with clock.running():
                for _ in connection.execute("select offset, timestamp, type, key, value from m order by offset"):
                    pass
            return clock.per_item_ns(few)

        turns = Turns(plan.rounds).run(
            {
                "ours": lambda: ours(directory, min(rows, 3_000_000)),
                "struct": lambda: struct_loop(segment_of(directory), few),
                "sqlite": sqlite,
            }
        )
    what, mine, spread = "for message in Reader", turns.median("ours"), turns.results["ours"]
    return [
        Figure("scan_objects", what, mine, 150.0, "ns", "limit of 150 ns", 1.0, spread=spread),
        Figure("scan_objects", what, mine, turns.median("struct"), "ns", "struct in a loop", 4.6, spread=spread),
        Figure("scan_objects", what, mine, turns.median("sqlite"), "ns", "SQLite select", spread=spread),
    ]
