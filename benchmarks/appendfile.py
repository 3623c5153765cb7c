"""The journal with checkpoints: appending in asyncio, durable or not, recovery, and the cost of growth.

A record has 100 bytes. Appends are issued a thousand at a time and then awaited. The goals are a million records per
second, and a gigabyte per second of recovery. Both are measured in the CPU time of all threads of the process, and in
wall time. The wall time is compared with plain files that are written and synced, or read and removed, in the same way:
the most that the disk allows at that moment. Durable appends of 128 tasks are compared with the same journal with one
append at a time, and with S, a loop of write and fdatasync.

The costs of an append, a checkpoint and a check are measured as the numbers of files and open checkpoints grow, up to
100,000 of each. Each file has one segment. The disk does not sync, because only the work of the journal itself is of
interest. `appendfile-growth.png` shows all sizes; the figures compare the largest with the smallest.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import VALUE, Clock, Figure, Plan, Turns
from benchmarks.together import beside_bare, by_tasks
from logwright.appendfile import AppendJournal, Writer
from logwright.appendfile.bytes.layout import MAX_FILE_BYTES
from logwright.core.io.disk import OpenMode, RealDisk, RealFile

LIMIT_NS = 1000.0
"""The longest time for a record: a million per second."""
LIMIT_GB = 1.0
BATCH = 1000
RECORD_BYTES = 4 + len(VALUE)
SEGMENT_RECORDS = 10_000
GROWTH_STEP = 200
"""The number of calls that are measured together at each size."""
VERBS = ("append", "register", "check")


# --- appending --------------------------------------------------------------------------------------------------------


def appended(place: Path, count: int) -> dict[str, float]:
    """Nanoseconds for each record that is appended, in batches that are awaited: CPU time, and wall time."""

    async def measure() -> dict[str, float]:
        clock = Clock()
        journal, _ = await AppendJournal.open(place / "append")
        append = journal.append
        started = time.process_time()
        with clock.running():
            for _ in range(count // BATCH):
                waiting = [append(VALUE) for _ in range(BATCH)]
                await waiting[-1]
        await journal.close()
        spent = time.process_time() - started
        return {"append, processors": spent / count * 1e9, "append": clock.per_item_ns(count)}

    found = asyncio.run(measure())
    shutil.rmtree(place / "append")
    return found


def plain(place: Path, count: int) -> float:
    """The same bytes written to plain files of 4 MiB, one batch at a time, each file synced before the next."""
    clock = Clock()
    data = bytes(BATCH * RECORD_BYTES)
    path = place / "plain"
    batches = MAX_FILE_BYTES // len(data)
    with clock.running():
        for start in range(0, count // BATCH, batches):
            with path.open("wb", buffering=0) as file:
                for _ in range(min(batches, count // BATCH - start)):
                    file.write(data)
                os.fdatasync(file.fileno())
    path.unlink()
    return clock.per_item_ns(count)


def tasks(place: Path, seconds: float, number: int) -> float:
    """The number of durable appends per second of this many tasks."""

    async def measure() -> float:
        journal, _ = await AppendJournal.open(place / "tasks", sync="always")
        rate = await by_tasks(lambda: journal.append(VALUE), seconds, number)
        await journal.close()
        return rate

    rate = asyncio.run(measure())
    shutil.rmtree(place / "tasks")
    return rate


def one_writer(place: Path, seconds: float) -> dict[str, float]:
    with Writer(place / "one", sync="always") as writer:
        bare, ours = beside_bare(place, bytes(RECORD_BYTES), lambda: writer.append(VALUE), seconds)
    shutil.rmtree(place / "one")
    return {"S": bare, "one writer": ours}


# --- recovery ---------------------------------------------------------------------------------------------------------


def recovered(place: Path, count: int) -> dict[str, float]:
    """Gigabytes per second of a recovery that makes an object of each record: by CPU time, and by wall time.

    The time includes opening the journal, reading, and removing the old files at the end. The CPU time also includes
    closing the journal, when the space of those files is free; releasing it may take a disk as long as reading them.
    The peer only reads and removes copies of the files.
    """
    home = place / "recover"
    with Writer(home) as writer:
        for number in range(count):
            writer.append(VALUE)
            if number % SEGMENT_RECORDS == SEGMENT_RECORDS - 1:
                writer.register_checkpoint()
    size = sum(path.stat().st_size for path in home.glob("*.journal"))
    copies = [_copied(path) for path in home.glob("*.journal")]
    bare = Clock()
    with bare.running():
        for path in copies:
            path.read_bytes()
        for path in copies:
            path.unlink()

    async def measure() -> dict[str, float]:
        clock = Clock()
        records = 0
        started = time.process_time()
        with clock.running():
            journal, recovery = await AppendJournal.open(home)
            async for segment in recovery:
                deque(segment.records, maxlen=0)
                records += len(segment.records)
        await journal.close()
        spent = time.process_time() - started
        assert records == count
        return {"recover, processors": size / spent / 1e9, "recover": size / clock.seconds / 1e9}

    found = asyncio.run(measure())
    shutil.rmtree(home)
    return {**found, "read and remove": size / bare.seconds / 1e9}


def _copied(path: Path) -> Path:
    """A copy of a file that is on the disk in the same way as the file."""
    copy = path.with_suffix(".copy")
    with copy.open("wb", buffering=0) as file:
        file.write(path.read_bytes())
        os.fdatasync(file.fileno())
    return copy


# --- growing ----------------------------------------------------------------------------------------------------------


class _HastyFile:
    """A file that is never synced."""

    def __init__(self, file: RealFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        pass


class HastyDisk(RealDisk):
    """A disk that syncs nothing."""

    def open(self, path: Path, mode: OpenMode) -> Any:
        return _HastyFile(super().open(path, mode))

    def sync_directory(self, path: Path) -> None:
        pass


def growth(place: Path, most: int) -> dict[int, dict[str, float]]:
    """Microseconds for each call, by the number of files and open checkpoints."""
    found: dict[int, dict[str, float]] = {}
    home = place / "growth"
    with Writer(home, file_bytes=RECORD_BYTES + 60, disk=HastyDisk()) as writer:
        size = 1000
        while size <= most:
            while writer.current - writer.checked < size:
                writer.append(VALUE)
                writer.register_checkpoint()
            writer.flush()
            found[size] = _costs(writer)
            size *= 10
    shutil.rmtree(home)
    return found


def _costs(writer: Writer) -> dict[str, float]:
    spent = dict.fromkeys(VERBS, 0.0)

    def timed(verb: str, act: Callable[[], object]) -> None:
        started = time.thread_time()
        act()
        writer.flush()
        spent[verb] += time.thread_time() - started

    for _ in range(GROWTH_STEP):
        timed("append", lambda: writer.append(VALUE))
        timed("register", writer.register_checkpoint)
    for _ in range(GROWTH_STEP):
        timed("check", writer.check_checkpoint)
    return {verb: seconds / GROWTH_STEP * 1e6 for verb, seconds in spent.items()}


def draw(found: dict[int, dict[str, float]], path: Path) -> bool:
    """Plot the cost of each call over the size of the journal. False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for verb in VERBS:
        axes.plot(list(found), [costs[verb] for costs in found.values()], marker="o", label=verb)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("files, and open checkpoints")
    axes.set_ylabel("µs for each call")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    drawing.savefig(path, dpi=150)
    pyplot.close(drawing)
    return True


# --- all of it --------------------------------------------------------------------------------------------------------


def growing(plan: Plan) -> list[Figure]:
    most = plan.amount(100_000, 10_000)
    rounds = [growth(plan.place, most) for _ in range(3)]
    medians = {size: {verb: sorted(found[size][verb] for found in rounds)[1] for verb in VERBS} for size in rounds[0]}
    for size, costs in medians.items():
        plan.log(f"{size} files: " + ", ".join(f"{verb} {cost:.1f} µs" for verb, cost in costs.items()))
    if plan.results is not None:
        plan.results.mkdir(parents=True, exist_ok=True)
        draw(medians, plan.results / "appendfile-growth.png")
    first, last = min(medians), max(medians)
    return [
        Figure("appendfile", f"{verb} among {last:,} files", medians[last][verb], medians[first][verb], "µs",
               f"among {first:,}", 0.5, spread=[found[last][verb] for found in rounds])
        for verb in VERBS
    ]  # fmt: skip


def run(plan: Plan) -> list[Figure]:
    """Compare everything with its limit or peer."""
    count = plan.amount(2_000_000, 100_000)
    seconds = 0.15 if plan.quick else 0.5
    turns = Turns(plan.rounds).run(
        {
            "plain": lambda: plain(plan.place, count),
            "1": lambda: tasks(plan.place, seconds, 1),
            "128": lambda: tasks(plan.place, seconds, 128),
        },
        lambda: {
            **appended(plan.place, count),
            **recovered(plan.place, plan.amount(2_000_000, 500_000)),
            **one_writer(plan.place, seconds),
        },
    )

    def figure(what: str, ours: str, peer: float, unit: str, name: str, goal: float | None, smaller: bool) -> Figure:
        return Figure("appendfile", what, turns.median(ours), peer, unit, name, goal, smaller, turns.results[ours])

    always = 'sync="always"'
    return [
        figure(
            "append in asyncio, on processors", "append, processors", LIMIT_NS, "ns", "a million a second", 1.0, True
        ),
        figure(
            "append in asyncio, on the wall", "append", turns.median("plain"), "ns", "plain write + sync", None, True
        ),
        figure(f"{always}, 128 in flight", "128", turns.median("1"), "/s", "one at a time", 15.0, False),
        figure(f"{always}, 128 in flight", "128", turns.median("S"), "/s", "S: write + fdatasync", 15.0, False),
        figure(
            f"{always}, without asyncio", "one writer", turns.median("S"), "/s", "S: write + fdatasync", 0.85, False
        ),
        figure("recovery, on processors", "recover, processors", LIMIT_GB, "GB/s", "a gigabyte a second", 1.0, False),
        figure("recovery, on the wall", "recover", LIMIT_GB, "GB/s", "a gigabyte a second", 1.0, False),
        figure(
            "recovery, on the wall", "recover", turns.median("read and remove"), "GB/s", "read + remove", None, False
        ),
        *growing(plan),
    ]
