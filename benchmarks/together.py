"""Repeating a durable operation for a while: in alternation with the bare limit S, by threads, and by asyncio tasks.

S is a loop of one write and one fdatasync, to a file that grows.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measure import Clock


def beside_bare(place: Path, data: bytes, act: Callable[[], object], seconds: float) -> tuple[float, float]:
    """The rates per second of S and of our operation, which alternate.

    The pace of a shared disk changes all the time.
    """
    path = place / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    bare, ours, count = Clock(), Clock(), 0
    while bare.seconds + ours.seconds < 2 * seconds:
        with bare.running():
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        with ours.running():
            act()
        count += 1
    os.close(descriptor)
    path.unlink()
    return count / bare.seconds, count / ours.seconds


def by_threads(act: Callable[[], object], seconds: float, number: int) -> float:
    """The rate per second of this many threads together."""
    counts = [0] * number
    begin = threading.Barrier(number + 1)

    def work(which: int) -> None:
        begin.wait()
        while time.perf_counter() < stop_at:
            act()
            counts[which] += 1

    stop_at = float("inf")
    workers = [threading.Thread(target=work, args=(which,)) for which in range(number)]
    for worker in workers:
        worker.start()
    started = time.perf_counter()
    stop_at = started + seconds
    begin.wait()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - started)


async def by_tasks(act: Callable[[], Awaitable[object]], seconds: float, number: int) -> float:
    """The rate per second of this many tasks together."""
    counts = [0] * number

    async def work(which: int) -> None:
        while time.perf_counter() < stop_at:
            await act()
            counts[which] += 1

    started = time.perf_counter()
    stop_at = started + seconds
    await asyncio.gather(*(work(which) for which in range(number)))
    return sum(counts) / (time.perf_counter() - started)
