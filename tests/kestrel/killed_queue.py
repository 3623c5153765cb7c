"""Processes that use a queue forever and report each call, until a test kills them or they kill themselves.

Before each call a process sends the call, and after it the result, each as a line of JSON:

    ["do", worker, "put", [7]]          ["done", worker, null]
    ["do", worker, "open", [2]]         ["done", worker, [[item, xid], ...]]

Items are numbers. A call that was not reported as done may have happened completely, partly or not at all; every other
call has. With a `Moment` a process kills itself at the n-th call of a kind to its disk. This hits the steps of
rotating, rewriting and packing, which take almost no time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

from logwright.kestrel.model import compaction
from logwright.kestrel.model.aio import AsyncQueue
from logwright.kestrel.model.queue import Queue
from logwright.torture.moments import Moment, MortalDisk
from logwright.torture.queue import QUEUE, Worker, act, item_of, number_of

STEP_BYTES = 200
"""How soon a journal that could not be made smaller is considered again."""
SMALL_BYTES = 300
"""The size of a journal from which callers maintain it while it is packed: next to nothing."""


async def act_async(queue: AsyncQueue, verb: str, numbers: list[int]) -> Any:
    """The same in asyncio."""
    if verb == "put":
        items = [item_of(number) for number in numbers]
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
    crew = [Worker(f"{seed} {name}", first + name * 10**6, len(queue)) for name in range(workers)]
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
        worker = Worker(f"{seed} {name}", first + name * 10**6, len(queue))
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
