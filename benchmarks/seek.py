"""Finding a place in a segment of a gibibyte, which must not depend on the size of the segment.

The peer is a scan of the whole segment, which is necessary without an index or trailing sizes. The limit is 25 ms.
Opening a writer may sync; on a torn tail it syncs several times and loads the index twice. It is measured in wall time,
and its limit is twice as long plus the time of ten bare syncs. The rest is CPU time.
"""

from __future__ import annotations

import logging
import os
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.journals import large_journal, segment_of, time_of
from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.writer import Writer

LIMIT_MS = 25.0
MOST_SYNCS = 10
REPEATS = 5


def milliseconds(
    action: Callable[[], object], prepare: Callable[[], object] = lambda: None, *, processor: bool = False
) -> float:
    """The median of a few repeats, which are too short to be measured once. Closing is not measured."""
    found = []
    for _ in range(REPEATS):
        prepare()
        clock = Clock(processor=processor)
        with clock.running():
            opened = action()
        if isinstance(opened, Writer | Scanner):
            opened.close()
        found.append(clock.seconds * 1000)
    return statistics.median(found)


def from_time(directory: Path, offset: int) -> Scanner[Message]:
    scanner = Scanner.from_time(directory, time_of(offset), timeout=0)
    message = next(scanner)
    assert isinstance(message, Message)
    assert message.offset == offset
    return scanner


def open_writer(directory: Path, rows: int) -> Writer:
    writer = Writer(directory, segment_size=1 << 40)
    assert writer.next_offset == rows
    return writer


def bare_sync(directory: Path) -> float:
    path = directory / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)

    def write_and_sync() -> None:
        os.write(descriptor, b"x")
        os.fdatasync(descriptor)

    found = milliseconds(write_and_sync)
    os.close(descriptor)
    path.unlink()
    return found


def tear(directory: Path) -> None:
    with segment_of(directory).open("ab") as file:
        file.write(bytes(100))


def run(plan: Plan) -> list[Figure]:
    """Every way to find a place."""
    directory, rows = large_journal(plan)
    clock = Clock(processor=True)

    def walk() -> float:
        clock.seconds = 0
        with clock.running():
            assert Reader(directory).count() == rows
        return clock.seconds * 1000

    def first_from(offset: int) -> None:
        message = next(iter(Reader(directory).messages(start=offset)))
        assert isinstance(message, Message)
        assert message.offset == offset

    def tail() -> None:
        assert Reader(directory).last(10)[-1].record.offset == rows - 1

    ways: dict[str, Callable[[], float]] = {
        "Scanner.from_time, in the middle": lambda: milliseconds(
            lambda: from_time(directory, rows // 2), processor=True
        ),
        "Reader.messages from an offset": lambda: milliseconds(lambda: first_from(rows * 2 // 3), processor=True),
        "Reader.last(10)": lambda: milliseconds(tail, processor=True),
        "opening a Writer": lambda: milliseconds(lambda: open_writer(directory, rows)),
        "opening a Writer on a torn tail": lambda: milliseconds(
            lambda: open_writer(directory, rows), lambda: tear(directory)
        ),
    }
    logging.getLogger("logwright").setLevel(logging.ERROR)  # the torn tails are ours
    turns = Turns(plan.rounds).run({**ways, "walk": walk, "sync": lambda: bare_sync(directory)})
    shutil.rmtree(directory / ".logwright", ignore_errors=True)
    figures = []
    for name in ways:
        mine, spread = turns.median(name), turns.results[name]
        limit = 2 * LIMIT_MS + MOST_SYNCS * turns.median("sync") if "Writer" in name else LIMIT_MS
        figures.append(Figure("seek", name, mine, limit, "ms", f"limit of {limit:.0f} ms", 1.0, spread=spread))
        figures.append(Figure("seek", name, mine, turns.median("walk"), "ms", "walking the segment", spread=spread))
    return figures
