"""A durable queue: putting and getting items of 100 bytes, durably and not, and a backlog larger than memory.

The peers are the queues for Python that need no server: litequeue, persist-queue (on SQLite and on files) and
diskcache's Deque, if they are installed. Like ours, each has passed an item to the system when a call returns, and
finds it again after the process has ended. Putting and getting is measured in CPU time, which excludes the time that
persist-queue waits for its disk. `replay` measures replaying a journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import VALUE, Clock, Figure, Plan, Turns
from benchmarks.together import beside_bare, by_tasks, by_threads
from logwright.kestrel import AsyncQueue, Queue

ITEM = VALUE
ITEM_BYTES = 21 + len(ITEM)
"""The size of an item in the journal."""
PAIR_NS = 2000.0
"""The longest time for a put and a get."""
MEMORY_MIB = 300.0
HELD_BYTES = 64 << 20
"""The most data of the backlog that the queue may keep in memory."""

# --- put and get ------------------------------------------------------------------------------------------------------

Pair = tuple[Callable[[], object], Callable[[], object]]
"""A function that puts an item, and one that gets an item."""


@contextlib.contextmanager
def litequeue(place: Path) -> Iterator[Pair]:
    from litequeue import LiteQueue  # type: ignore[import-not-found]  # a peer where it is installed, as all here

    queue = LiteQueue(str(place / "litequeue.sqlite"))
    text = ITEM.decode()
    yield lambda: queue.put(text), queue.pop
    queue.conn.close()


@contextlib.contextmanager
def persist_queue_sqlite(place: Path) -> Iterator[Pair]:
    from persistqueue import SQLiteQueue  # type: ignore[import-not-found]

    queue = SQLiteQueue(str(place / "persist-sqlite"), auto_commit=True)
    yield lambda: queue.put(ITEM), lambda: queue.get(block=False)
    queue.close()


@contextlib.contextmanager
def persist_queue_file(place: Path) -> Iterator[Pair]:
    from persistqueue import Queue as FileQueue

    queue = FileQueue(str(place / "persist-file"), tempdir=str(place))

    def get() -> object:
        item = queue.get(block=False)
        queue.task_done()
        return item

    yield lambda: queue.put(ITEM), get


@contextlib.contextmanager
def diskcache_deque(place: Path) -> Iterator[Pair]:
    from diskcache import Deque  # type: ignore[import-not-found]

    deque = Deque(directory=str(place / "diskcache"))
    yield lambda: deque.append(ITEM), deque.popleft
    deque.cache.close()


PEERS: dict[str, tuple[str, Callable[[Path], contextlib.AbstractContextManager[Pair]]]] = {
    "litequeue": ("litequeue", litequeue),
    "persist-queue, SQLite": ("persistqueue", persist_queue_sqlite),
    "persist-queue, files": ("persistqueue", persist_queue_file),
    "diskcache.Deque": ("diskcache", diskcache_deque),
}
"""The peers by name: the module that must be installed, and a function that opens a queue."""


def pairs(place: Path, opened: Callable[[Path], contextlib.AbstractContextManager[Pair]], count: int) -> float:
    """Nanoseconds of a put and a get. The queue is almost empty, as it is when a consumer waits for items."""
    own = place / "pairs"
    own.mkdir()
    clock = Clock(processor=True)
    with opened(own) as (put, get):
        put()  # keeps the queue from becoming empty
        with clock.running():
            for _ in range(count):
                put()
                get()
    shutil.rmtree(own)
    return clock.per_item_ns(count)


def our_pairs(place: Path, count: int, **options: Any) -> float:
    """The same in a plain loop, without a function around each call."""
    own = place / "pairs"
    clock = Clock(processor=True)
    with Queue(own, "jobs", **options) as queue:
        put, get = queue.put, queue.get
        put(ITEM)
        with clock.running():
            for _ in range(count):
                put(ITEM)
                get()
            queue.flush()
    shutil.rmtree(own)
    return clock.per_item_ns(count)


def bare_writes(place: Path, count: int) -> float:
    """Nanoseconds of two writes to a file: the least that a put and a get must pass to the system."""
    path = place / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    item, removal, clock = bytes(ITEM_BYTES), b"\1", Clock(processor=True)
    with clock.running():
        for _ in range(count):
            os.write(descriptor, item)
            os.write(descriptor, removal)
    os.close(descriptor)
    path.unlink()
    return clock.per_item_ns(count)


def put_and_get(plan: Plan) -> list[Figure]:
    """Compare with each available peer, and with the limit."""
    count, few = plan.amount(500_000, 50_000), plan.amount(5_000, 500)
    there = {name: opened for name, (module, opened) in PEERS.items() if find_spec(module)}
    for name in PEERS.keys() - there.keys():
        plan.log(f"{name} is not installed")
    things: dict[str, Callable[[], float]] = {
        "ours": lambda: our_pairs(plan.place, count),
        "bare": lambda: bare_writes(plan.place, count),
        "buffered": lambda: our_pairs(plan.place, count, buffer_bytes=1 << 16),
        **{name: (lambda opened=opened: pairs(plan.place, opened, few)) for name, opened in there.items()},  # type: ignore[misc]
    }
    turns = Turns(plan.rounds).run(things)
    mine, spread = turns.median("ours"), turns.results["ours"]
    limit = f"limit of {PAIR_NS / 1000:g} µs"
    buffered = Figure("kestrel", "put and get, buffer_bytes=64 KiB", turns.median("buffered"), PAIR_NS, "ns", limit,
                      spread=turns.results["buffered"])  # fmt: skip
    return [
        Figure("kestrel", "put and get", mine, PAIR_NS, "ns", limit, 1.0, spread=spread),
        Figure("kestrel", "put and get", mine, turns.median("bare"), "ns", "two bare writes", spread=spread),
        buffered,
        *(
            Figure("kestrel", "put and get", mine, turns.median(name), "ns", name, 20.0, spread=spread)
            for name in there
        ),
    ]


# --- durably ----------------------------------------------------------------------------------------------------------


def one_writer(place: Path, seconds: float) -> dict[str, float]:
    with Queue(place / "one", "jobs", sync="always") as queue:
        bare, ours = beside_bare(place, bytes(ITEM_BYTES), lambda: queue.put(ITEM), seconds)
    shutil.rmtree(place / "one")
    return {"S": bare, "one writer": ours}


def threads(place: Path, seconds: float, number: int) -> float:
    with Queue(place / "threads", "jobs", sync="always") as queue:
        rate = by_threads(lambda: queue.put(ITEM), seconds, number)
    shutil.rmtree(place / "threads")
    return rate


def tasks(place: Path, seconds: float, number: int) -> float:
    async def measure() -> float:
        async with AsyncQueue(place / "tasks", "jobs", sync="always") as queue:
            return await by_tasks(lambda: queue.put(ITEM), seconds, number)

    rate = asyncio.run(measure())
    shutil.rmtree(place / "tasks")
    return rate


def durably(plan: Plan) -> list[Figure]:
    """Compare many writers with one, and each with S."""
    seconds = 0.15 if plan.quick else 0.3
    goals = {"32 threads": 3.0, "128 asyncio tasks": 15.0}
    turns = Turns(plan.rounds if plan.quick else 3 * plan.rounds).run(
        {
            "32 threads": lambda: threads(plan.place, seconds, 32),
            "128 asyncio tasks": lambda: tasks(plan.place, seconds, 128),
        },
        lambda: one_writer(plan.place, seconds),
    )

    def figure(name: str, peer: str, peer_name: str, goal: float | None) -> Figure:
        return Figure("kestrel", f'put, sync="always", {name}', turns.median(name), turns.median(peer), "/s", peer_name,
                      goal, smaller_is_better=False, spread=turns.results[name])  # fmt: skip

    bare = "S: write + fdatasync"
    return [
        figure("one writer", "S", bare, None),
        *(figure(name, "one writer", "ours, one writer", goal) for name, goal in goals.items()),
        *(figure(name, "S", bare, None) for name in goals),
    ]


# --- a backlog --------------------------------------------------------------------------------------------------------

_PRELUDE = """
import json, sys, time
from benchmarks.measure import peak_bytes
from logwright.kestrel import Queue
directory, count, held = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
started = time.perf_counter()
queue = Queue(directory, "backlog", max_memory_bytes=held)
opening_seconds = time.perf_counter() - started
"""
_FILL = """
for number in range(count):
    queue.put(b"%0100d" % number)
assert len(queue) == count
"""
_DRAIN = """
assert len(queue) == count
for number in range(count):
    assert queue.get() == b"%0100d" % number
assert queue.get() is None
"""
_END = """
queue.close()
print(json.dumps({"seconds": time.perf_counter() - started, "opening": opening_seconds, "peak": peak_bytes() / 2**20}))
"""


def child(code: str, directory: Path, count: int, held_bytes: int) -> dict[str, float]:
    """Run this in a separate process: the total time, the time to open the queue, and the peak memory in MiB."""
    command = [sys.executable, "-c", _PRELUDE + code + _END, str(directory), str(count), str(held_bytes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def reading_seconds(directory: Path) -> float:
    """The time to read all files of a queue once and discard them."""
    clock, buffer = Clock(), bytearray(1 << 20)
    with clock.running():
        for path in directory.iterdir():
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.readinto(buffer):
                        pass
    return clock.seconds


def backlog(plan: Plan) -> list[Figure]:
    """Fill it, open it again, and drain it, each in a separate process."""
    count, held_bytes = plan.amount(10_000_000, 500_000), plan.amount(HELD_BYTES, 4 << 20)
    directory = plan.place / "backlog"
    size = f"{count:,} items, {held_bytes >> 20} MiB of them held"
    plan.log(f"kestrel: a backlog of {size}")
    filled = child(_FILL, directory, count, held_bytes)
    reading = reading_seconds(directory)
    opened = child("", directory, count, held_bytes)
    drained = child(_DRAIN, directory, count, held_bytes)
    shutil.rmtree(directory)
    limit = f"limit of {MEMORY_MIB:g} MiB"
    figures = [
        Figure("kestrel", f"{what} {size}", found["peak"], MEMORY_MIB, "MiB", limit, 1.0, spread=[found["peak"]])
        for what, found in (("filling:", filled), ("opening again:", opened), ("draining:", drained))
    ]
    seconds = opened["opening"]
    figures.append(Figure("kestrel", f"opening {size}", seconds, reading, "s", "reading its files", spread=[seconds]))
    return figures


def run(plan: Plan) -> list[Figure]:
    """Everything about the queue."""
    return [*put_and_get(plan), *durably(plan), *backlog(plan)]
