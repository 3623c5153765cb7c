"""Reading a journal as Arrow record batches, from the page cache.

The limits are reading the file into a buffer without further work; and for a table of the whole journal, reading the
whole file into memory, because on some machines the first use of memory costs as much as everything else. The goal is
0.2 of the time of the Go implementation. That is 0.087 of the time of the struct loop (71 of 815 ns), or 50 ns in
absolute terms.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.journals import large_journal, segment_of
from benchmarks.measure import Clock, Figure, Plan, Turns
from benchmarks.scan_objects import struct_loop
from logwright import arrow


def batches(directory: Path, rows: int, columns: list[str] | None = None) -> float:
    clock = Clock(processor=True)
    with clock.running():
        assert sum(batch.num_rows for batch in arrow.batches(directory, columns)) == rows
    return clock.per_item_ns(rows)


def table(directory: Path, rows: int) -> float:
    clock = Clock(processor=True)
    with clock.running():
        found = arrow.to_arrow(directory)
    assert found.num_rows == rows
    return clock.per_item_ns(rows)


def read_into_a_buffer(path: Path, rows: int) -> float:
    clock = Clock(processor=True)
    buffer = bytearray(256 * 1024)
    with path.open("rb", buffering=0) as file, clock.running():
        while file.readinto(buffer):
            pass
    return clock.per_item_ns(rows)


def read_into_memory(path: Path, rows: int) -> float:
    clock = Clock(processor=True)
    with clock.running():
        data = path.read_bytes()
    assert len(data) > rows
    return clock.per_item_ns(rows)


def run(plan: Plan) -> list[Figure]:
    """Compare streams and tables with their limits."""
    directory, rows = large_journal(plan)
    path = segment_of(directory)
    few = min(rows, plan.amount(300_000, 50_000))
    turns = Turns(plan.rounds).run(
        {
            "batches": lambda: batches(directory, rows),
            "buffer": lambda: read_into_a_buffer(path, rows),
            "offsets": lambda: batches(directory, rows, ["offset", "timestamp"]),
            "table": lambda: table(directory, rows),
            "memory": lambda: read_into_memory(path, rows),
            "struct": lambda: struct_loop(path, few),
        }
    )
    what, mine, spread = "arrow.batches, all columns", turns.median("batches"), turns.results["batches"]
    some, whole, two = turns.median("offsets"), turns.median("table"), "arrow.batches, two columns"
    return [
        Figure("to_arrow", what, mine, 50.0, "ns", "limit of 50 ns", 1.0, spread=spread),
        Figure("to_arrow", what, mine, turns.median("struct"), "ns", "struct in a loop", 11.5, spread=spread),
        Figure("to_arrow", what, mine, turns.median("buffer"), "ns", "reading the file only", spread=spread),
        Figure("to_arrow", two, some, mine, "ns", "all columns", spread=turns.results["offsets"]),
        Figure("to_arrow", "arrow.to_arrow, one table", whole, turns.median("memory"), "ns", "read_bytes of the file",
               spread=turns.results["table"]),
    ]  # fmt: skip
