"""Commits: many requests share one write, or one sync, and their answers wait for it.

All that is done in one turn of the event loop is written together at its end, a write for each queue that has changed,
and the answers leave. A client that is alone does not wait for the end of the turn.

With `sync=always` the one queue that has changed is synced in the same place if the last sync was quick: handing it to
a thread and being woken by it costs as much again. Several queues, and those on a disk that is slow, are synced by
threads, while the next turns gather what goes with the next sync.

What fails is told to those whose requests were for that queue, in the place of their answers; but a `get` of several
keys is answered with what it took from the others, which is gone from there.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from ...core.io.durability import ALWAYS, Sync
from ...errors import Closed
from .answers import failure, without
from .kernel import Lane, Line, send_all
from .queues import Served

Failed: TypeAlias = dict[Served, BaseException]
Waiting: TypeAlias = tuple[Line, list[bytes], list[tuple[Served, ...]]]
"""A client, its answers, and the queues that each of these depends on."""
_SYNC_THREADS = 4
QUICK_SECONDS = 0.002
"""A sync that takes no longer than this may hold up everybody else."""


class Commits:
    """Takes what has gathered in a lane, has it written, and sends the answers."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, policy: Sync, fail: Callable[[Served, BaseException], None]
    ) -> None:
        self.lane: Lane
        self._loop = loop
        self._policy = policy
        self._fail = fail
        self._unsynced: dict[Served, None] = {}
        """With `interval`: what was written and waits for its sync."""
        self._timer: asyncio.TimerHandle | None = None
        self._under_way = 0
        """How many syncs of a batch have not ended."""
        self._batch: list[Waiting] = []
        """Whose answers wait for them."""
        self._sync_seconds = math.inf
        """How long the last sync took; a disk that nobody knows yet is a slow one."""
        self._threads = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="logwright-sync")
        self._idle: asyncio.Future[None] | None = None
        self.look: Callable[[], None] = lambda: None
        """Called after the lane's `look_bytes` from clients: they may have filled the disk."""

    def ask(self) -> None:
        """Commit at the end of this turn of the loop."""
        self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """Commit what has gathered."""
        if self._under_way:
            return  # the end of that sync is the beginning of the next
        lane = self.lane
        changed, talking = lane.taken()
        if lane.fresh_bytes > lane.look_bytes:
            lane.fresh_bytes = 0
            self.look()
        is_always = self._policy == ALWAYS
        if changed and is_always and (len(changed) > 1 or self._sync_seconds > QUICK_SECONDS):
            self._sync(changed, [(line, *line.taken_answers()) for line in talking])
            return
        failed: Failed = {}
        for queue in changed:
            try:
                if is_always:
                    self._sync_timed(queue)
                else:
                    queue.engine.pour()
            except Exception as error:
                _note(failed, queue, error)
        if failed:
            self._release([(line, *line.taken_answers()) for line in talking], failed)
        else:
            send_all(talking)
        if changed and self._policy.name == "interval":
            self._unsynced.update(dict.fromkeys(changed))
            if self._timer is None:
                self._timer = self._loop.call_later(self._policy.interval_ms / 1000, self._sync_later)

    def _sync_later(self) -> None:
        """Sync what was written since the last time."""
        self._timer = None
        queues, self._unsynced = list(self._unsynced), {}

        def synced(queue: Served, done: asyncio.Future[None]) -> None:
            failed: Failed = {}
            if (error := done.exception()) is not None:
                _note(failed, queue, error)
            self._release([], failed)

        for queue in queues:
            self._loop.run_in_executor(self._threads, queue.engine.sync).add_done_callback(partial(synced, queue))

    def _sync_timed(self, queue: Served) -> None:
        """Sync a queue, in this thread."""
        started = time.perf_counter()
        queue.engine.sync()
        self._sync_seconds = time.perf_counter() - started

    def _sync(self, changed: list[Served], batch: list[Waiting]) -> None:
        failed: Failed = {}
        self._under_way, self._batch = len(changed), batch

        def synced(queue: Served, done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is not None:
                _note(failed, queue, error)
            self._under_way -= 1
            if not self._under_way:
                self._batch = []  # before they are sent: whoever has ended is closed then
                self._release(batch, failed)
                self._go_on()

        for queue in changed:
            running = self._loop.run_in_executor(self._threads, self._sync_timed, queue)
            running.add_done_callback(partial(synced, queue))

    def _go_on(self) -> None:
        """A sync has ended: begin the next one if somebody waits for it."""
        lane = self.lane
        if lane.changed or lane.talking:
            lane.is_due = True
            self._loop.call_soon(self.turn)  # so that those who were just answered join
        else:
            lane.is_due = False
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def is_answering(self, line: Line) -> bool:
        """Whether answers of a client wait for a sync."""
        return any(other is line for other, _, _ in self._batch)

    def _release(self, batch: list[Waiting], failed: Failed) -> None:
        for queue, error in failed.items():
            self._fail(queue, error)
        for line, answers, owners in batch:
            line.send(_corrected(answers, owners, failed) if failed else answers)

    async def drain(self) -> None:
        """Return once everything that has been done is written, or synced, and answered."""
        if self._timer is not None:
            self._timer.cancel()
        while self.lane.is_due or self._under_way:
            if self._under_way:
                self._idle = self._loop.create_future()
                await asyncio.wait([self._idle], timeout=0.05)
            else:
                await asyncio.sleep(0)

    def close(self) -> None:
        """End the threads. What was not synced is by whoever closes the queues."""
        self._threads.shutdown(wait=True)


def _note(failed: Failed, queue: Served, error: BaseException) -> None:
    """A queue that was closed meanwhile has been deleted, or synced for that: nothing is wrong."""
    if not isinstance(error, Closed):
        failed[queue] = error


def _corrected(lines: list[bytes], owners: list[tuple[Served, ...]], failed: Failed) -> list[bytes]:
    """The answers, but for those that depend on a queue that has failed."""
    found = []
    for line, queues in zip(lines, owners, strict=True):
        errors = {queue.key: failed[queue] for queue in queues if queue in failed}
        found.append((without(line, errors) or failure(next(iter(errors.values())))) if errors else line)
    return found
