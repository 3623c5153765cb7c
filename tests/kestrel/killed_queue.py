"""Processes that use a queue forever and report each call, until a test kills them or they kill themselves.

Before each call a process sends the call, and after it the result, each as a line of JSON:

    ["do", worker, "put", [7]]          ["done", worker, null]
    ["do", worker, "open", [2]]         ["done", worker, [[item, xid], ...]]

Items are numbers. A call that was not reported as done may have happened completely, partly or not at all; every other
call has. With a `Moment` a process kills itself at the n-th call of a kind to its disk: right before, or right after.
This hits the steps of rotating, rewriting and packing, which take almost no time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from logwright.core.io.disk import REAL_DISK
from logwright.kestrel.model import compaction
from logwright.kestrel.model.aio import AsyncQueue
from logwright.kestrel.model.queue import Queue

QUEUE = "cars"
STEP_BYTES = 200
"""How soon a journal that could not be made smaller is considered again."""
SMALL_BYTES = 300
"""The size of a journal from which callers maintain it while it is packed: next to nothing."""


class Moment(NamedTuple):
    """When to die: at the `call`-th call of a kind, before it is done or after it."""

    kind: str
    call: int
    is_after: bool


class MortalDisk:
    """The real disk, until a moment comes."""

    def __init__(self, moment: Moment | None) -> None:
        self._moment = moment
        self._calls = 0

    def at(self, kind: str, action: Callable[[], Any]) -> Any:
        """Make a call, and die before or after it at the chosen moment."""
        moment = self._moment
        if moment is None or moment.kind != kind:
            return action()
        self._calls += 1
        if self._calls == moment.call and not moment.is_after:
            die()
        result = action()
        if self._calls == moment.call:
            die()
        return result

    def open(self, path: Path, mode: Any) -> Any:
        file = self.at("create" if mode == "create" else "open", lambda: REAL_DISK.open(path, mode))
        return _MortalFile(self, file, "~~" in path.name)

    def rename(self, source: Path, target: Path) -> None:
        self.at("rename", lambda: REAL_DISK.rename(source, target))

    def remove(self, path: Path) -> None:
        self.at("remove", lambda: REAL_DISK.remove(path))

    def sync_directory(self, path: Path) -> None:
        self.at("sync directory", lambda: REAL_DISK.sync_directory(path))

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class _MortalFile:
    def __init__(self, disk: MortalDisk, inner: Any, is_temporary: bool) -> None:
        self._disk = disk
        self._inner = inner
        self._write = "write temporary" if is_temporary else "write"

    def write_at(self, position: int, data: Any) -> int:
        return int(self._disk.at(self._write, lambda: self._inner.write_at(position, data)))

    def sync(self) -> None:
        self._disk.at("sync", self._inner.sync)

    def truncate(self, size: int) -> None:
        self._disk.at("truncate", lambda: self._inner.truncate(size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def data_of(number: int) -> bytes:
    """The item of a number."""
    return b"%d %b" % (number, b"x" * (number * 37 % 90))


def number_of(data: bytes) -> int:
    """The number of an item, which must be complete."""
    number = int(data.split(b" ")[0])
    assert data == data_of(number)
    return number


# --- what is done -----------------------------------------------------------------------------------------------------


class Worker:
    """Decides what to do next. `waiting` is the approximate number of waiting items."""

    def __init__(self, name: int, seed: str, first: int, waiting: int) -> None:
        self._name = name
        self._chance = random.Random(seed)
        self._next = first
        self._open: list[int] = []
        self._waiting = waiting

    def choose(self) -> tuple[str, list[int]]:
        """The next call."""
        chance, luck = self._chance, self._chance.random()
        if self._open and luck < 0.45:
            chance.shuffle(self._open)
            count = chance.randrange(1, len(self._open) + 1)
            xids, self._open = self._open[:count], self._open[count:]
            return chance.choice(("confirm", "abort")), xids
        if luck < 0.5 or (self._waiting < 10 and luck < 0.8):
            numbers = list(range(self._next, self._next + (1 if luck < 0.3 else chance.randrange(2, 8))))
            self._next = numbers[-1] + 1
            self._waiting += len(numbers)
            return "put", numbers
        many = chance.choice((1, 1, 1, 3))
        if self._waiting > 60:
            many = 10
        self._waiting = max(0, self._waiting - many)
        return chance.choice(("get", "open")), [many]

    def learn(self, verb: str, result: Any) -> None:
        """Remember the result."""
        if verb == "open":
            self._open += [xid for _, xid in result]


def act(queue: Queue, verb: str, numbers: list[int]) -> Any:
    """Make a call on a queue; its result."""
    if verb == "put":
        items = [data_of(number) for number in numbers]
        return queue.put(items[0]) if len(items) == 1 else queue.put_many(items) and None
    if verb == "get":
        (most,) = numbers
        found = [queue.get()] if most == 1 else queue.get_many(most)
        return [number_of(data) for data in found if data is not None]
    if verb == "open":
        return [[number_of(item.data), item.xid] for item in queue.reserve_many(numbers[0])]
    getattr(queue, verb)(*numbers)
    return None


async def act_async(queue: AsyncQueue, verb: str, numbers: list[int]) -> Any:
    """The same in asyncio."""
    if verb == "put":
        items = [data_of(number) for number in numbers]
        await (queue.put(items[0]) if len(items) == 1 else queue.put_many(items))
        return None
    if verb == "get":
        (most,) = numbers
        found = [await queue.get()] if most == 1 else await queue.get_many(most)
        return [number_of(data) for data in found if data is not None]
    if verb == "open":
        return [[number_of(item.data), item.xid] for item in await queue.reserve_many(numbers[0])]
    call: Callable[..., Awaitable[None]] = getattr(queue, verb)
    await call(*numbers)
    return None


# --- processes --------------------------------------------------------------------------------------------------------


class Reports:
    """The pipe to the test. Lines are far shorter than the size that a pipe writes atomically."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._mutex = threading.Lock()

    def send(self, *report: Any) -> None:
        with self._mutex:
            self._pipe.send_bytes(json.dumps(report).encode())


def use_for_ever(
    directory: str,
    seed: str,
    first: int,
    workers: int,
    how: str,
    moment: Any,
    options: dict[str, Any],
    pipe: Connection,
) -> None:
    """Open the queue and use it: one worker in this thread, or several in threads or tasks (`how`)."""
    logging.disable(logging.CRITICAL)
    compaction._STEP_BYTES = STEP_BYTES  # type: ignore[misc]
    if "max_memory_bytes" in options:
        compaction.SMALL_BYTES = SMALL_BYTES  # type: ignore[misc]
    disk: Any = MortalDisk(None if moment is None else Moment(*moment))
    reports = Reports(pipe)
    if how == "tasks":
        asyncio.run(_use_in_tasks(directory, seed, first, workers, {**options, "disk": disk}, reports))
        return
    queue = Queue(directory, QUEUE, disk=disk, **options)
    reports.send("open")
    crew = [Worker(name, f"{seed} {name}", first + name * 10**6, len(queue)) for name in range(workers)]
    for name, worker in enumerate(crew[1:], 1):
        threading.Thread(target=_work, args=(queue, name, worker, reports), daemon=True).start()
    _work(queue, 0, crew[0], reports)


def _work(queue: Queue, name: int, worker: Worker, reports: Reports) -> None:
    while True:
        verb, numbers = worker.choose()
        reports.send("do", name, verb, numbers)
        result = act(queue, verb, numbers)
        worker.learn(verb, result)
        reports.send("done", name, result)


async def _use_in_tasks(
    directory: str, seed: str, first: int, workers: int, options: dict[str, Any], reports: Reports
) -> None:
    async def work(queue: AsyncQueue, name: int) -> None:
        worker = Worker(name, f"{seed} {name}", first + name * 10**6, len(queue))
        while True:
            verb, numbers = worker.choose()
            reports.send("do", name, verb, numbers)
            result = await act_async(queue, verb, numbers)
            worker.learn(verb, result)
            reports.send("done", name, result)
            await asyncio.sleep(0)

    async with AsyncQueue(directory, QUEUE, **options) as queue:
        reports.send("open")
        await asyncio.gather(*(work(queue, name) for name in range(workers)))
