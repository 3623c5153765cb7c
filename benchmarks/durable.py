"""Appending durably, `sync="always"`: by one thread, by many, and by the tasks of an event loop.

The peer is S: one write of 139 bytes and one fdatasync after the other, to a file that grows. SQLite in its mode FULL
is there for comparison.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

from benchmarks.measure import KEY, MESSAGE_BYTES, VALUE, Clock, Figure, Plan, Turns
from logwright.formats.sej.aio import AsyncWriter
from logwright.formats.sej.writer import Writer


def one_thread(place: Path, seconds: float) -> dict[str, float]:
    """One append of S, one of ours, and so on: a disk that others use as well changes its pace all the time."""
    data = bytes(MESSAGE_BYTES)
    path = place / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    bare, ours, count = Clock(), Clock(), 0
    with Writer(place / "one", sync="always") as writer:
        while bare.seconds + ours.seconds < 2 * seconds:
            with bare.running():
                os.write(descriptor, data)
                os.fdatasync(descriptor)
            with ours.running():
                writer.append(VALUE, KEY)
            count += 1
    os.close(descriptor)
    path.unlink()
    shutil.rmtree(place / "one")
    return {"S": count / bare.seconds, "one thread": count / ours.seconds}


def threads(place: Path, seconds: float, number: int) -> float:
    counts = [0] * number
    begin = threading.Barrier(number + 1)

    def work(which: int) -> None:
        begin.wait()
        while time.perf_counter() < stop_at:
            writer.append(VALUE, KEY)
            counts[which] += 1

    with Writer(place / "threads", sync="always") as writer:
        stop_at = float("inf")
        workers = [threading.Thread(target=work, args=(which,)) for which in range(number)]
        for worker in workers:
            worker.start()
        started = time.perf_counter()
        stop_at = started + seconds
        begin.wait()
        for worker in workers:
            worker.join()
        elapsed = time.perf_counter() - started
    shutil.rmtree(place / "threads")
    return sum(counts) / elapsed


def tasks(place: Path, seconds: float, number: int) -> float:
    async def measure() -> float:
        counts = [0] * number

        async def work(which: int) -> None:
            while time.perf_counter() < stop_at:
                await writer.append(VALUE, KEY)
                counts[which] += 1

        async with AsyncWriter(place / "tasks", sync="always") as writer:
            started = time.perf_counter()
            stop_at = started + seconds
            await asyncio.gather(*(work(which) for which in range(number)))
            return sum(counts) / (time.perf_counter() - started)

    rate = asyncio.run(measure())
    shutil.rmtree(place / "tasks")
    return rate


def sqlite(place: Path, seconds: float) -> float:
    path = place / "durable.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table m (offset integer primary key, key blob, value blob)")
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        connection.execute("insert into m (key, value) values (?, ?)", (KEY, VALUE))
        count += 1
    connection.close()
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    return count / elapsed


def run(plan: Plan) -> list[Figure]:
    """Every way of appending against S."""
    seconds = 0.15 if plan.quick else 0.3  # many short turns, for the same reason
    goals = {"one thread": 0.85, "32 threads": 3.0, "32 asyncio tasks": 6.0, "128 asyncio tasks": 15.0}
    turns = Turns(plan.rounds if plan.quick else 3 * plan.rounds).run(
        {
            "32 threads": lambda: threads(plan.place, seconds, 32),
            "32 asyncio tasks": lambda: tasks(plan.place, seconds, 32),
            "128 asyncio tasks": lambda: tasks(plan.place, seconds, 128),
            "sqlite": lambda: sqlite(plan.place, seconds),
        },
        lambda: one_thread(plan.place, seconds),
    )
    figures = [
        Figure("durable", f'sync="always", {name}', turns.median(name), turns.median("S"), "/s", "S: write + fdatasync",
               goal, smaller_is_better=False, spread=turns.results[name])
        for name, goal in goals.items()
    ]  # fmt: skip
    one = turns.median("one thread")
    figures.append(
        Figure("durable", 'sync="always", one thread', one, turns.median("sqlite"), "/s", "SQLite FULL",
               smaller_is_better=False, spread=turns.results["one thread"])
    )  # fmt: skip
    return figures
