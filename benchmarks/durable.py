"""Appending durably, `sync="always"`: by one thread, by many threads, and by the tasks of an event loop.

The peer is S: a loop of one write of 139 bytes and one fdatasync, to a file that grows. SQLite in its mode FULL is
included for comparison.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import KEY, MESSAGE_BYTES, VALUE, Figure, Plan, Turns
from benchmarks.together import beside_bare, by_tasks, by_threads
from logwright.sej.files.writer import Writer
from logwright.sej.model.aio import AsyncWriter


def append(writer: Writer) -> Callable[[], int]:
    return lambda: writer.append(VALUE, KEY)


def one_thread(place: Path, seconds: float) -> dict[str, float]:
    with Writer(place / "one", sync="always") as writer:
        bare, ours = beside_bare(place, bytes(MESSAGE_BYTES), append(writer), seconds)
    shutil.rmtree(place / "one")
    return {"S": bare, "one thread": ours}


def threads(place: Path, seconds: float, number: int) -> float:
    with Writer(place / "threads", sync="always") as writer:
        rate = by_threads(append(writer), seconds, number)
    shutil.rmtree(place / "threads")
    return rate


def tasks(place: Path, seconds: float, number: int) -> float:
    async def measure() -> float:
        async with AsyncWriter(place / "tasks", sync="always") as writer:
            return await by_tasks(lambda: writer.append(VALUE, KEY), seconds, number)

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
    """Compare every way of appending with S."""
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
