"""Commit many requests with one write or one sync; their answers wait for it.

All changes of one turn of the event loop are written at its end, with one write for each changed queue; then the
answers are sent. A single client does not wait for the end of the turn.

With `sync=always`, if one queue has changed and the last sync was fast, it is synced in the event loop: a thread would
cost as much again. Several queues, and queues on a slow disk, are synced by threads, while the next turns collect the
changes for the next sync.

If a queue fails, an error replaces the answers to the requests for that queue; but a `get` of several keys is answered
with the items of the other queues, which have been removed there.
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
from .limits import ServerLimits
from .queues import Served

Failed: TypeAlias = dict[Served, BaseException]
Waiting: TypeAlias = tuple[Line, list[bytes], list[tuple[Served, ...]]]
"""A client, its answers, and the queues that each answer depends on."""
_SYNC_THREADS = 4
QUICK_SECONDS = 0.002
"""A sync up to this long may block the event loop."""


class Commits:
    """Writes the changes collected in a lane, and sends the answers.

    `fail` is called for a queue that failed, and `check_disk` after the lane's `check_bytes` from clients, which may
    have filled the disk.
    """

    def __init__(
        self,
        queues: dict[bytes, Served],
        policy: Sync,
        limits: ServerLimits,
        fail: Callable[[Served, BaseException], None],
        check_disk: Callable[[], None],
    ) -> None:
        max_line, max_item = limits.max_line_bytes, limits.max_item_bytes
        self.lane = Lane(queues, policy.name, self._commit_later, self._commit, max_line, max_item)
        self._policy = policy
        self._fail, self._check_disk = fail, check_disk
        self._unsynced: dict[Served, None] = {}
        """With `interval`: queues that were written and wait for a sync."""
        self._timer: asyncio.TimerHandle | None = None
        self._under_way = 0
        """The number of running syncs of a batch."""
        self._batch: list[Waiting] = []
        """The clients whose answers wait for them."""
        self._sync_seconds = math.inf
        """The duration of the last sync; at first the disk is assumed to be slow."""
        self._threads = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="logwright-sync")
        self._idle: asyncio.Future[None] | None = None

    def _commit_later(self) -> None:
        """Commit at the end of this turn of the loop."""
        asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Commit the collected changes."""
        if self._under_way:
            return  # the next sync begins when that one ends
        lane = self.lane
        changed, pending = lane.take()
        if lane.fresh_bytes > lane.check_bytes:
            lane.fresh_bytes = 0
            self._check_disk()
        is_always = self._policy == ALWAYS
        if changed and is_always and (len(changed) > 1 or self._sync_seconds > QUICK_SECONDS):
            self._sync(changed, [(line, *line.take_answers()) for line in pending])
            return
        failed: Failed = {}
        for queue in changed:
            try:
                if is_always:
                    self._sync_timed(queue)
                else:
                    queue.engine.release_writes()
            except Exception as error:
                _note(failed, queue, error)
        if failed:
            self._release([(line, *line.take_answers()) for line in pending], failed)
        else:
            send_all(pending)
        if changed and self._policy.name == "interval":
            self._unsynced.update(dict.fromkeys(changed))
            if self._timer is None:
                seconds = self._policy.interval_ms / 1000
                self._timer = asyncio.get_running_loop().call_later(seconds, self._sync_later)

    def _sync_later(self) -> None:
        """Sync the queues written since the last time."""
        self._timer = None
        queues, self._unsynced = list(self._unsynced), {}

        def synced(queue: Served, done: asyncio.Future[None]) -> None:
            failed: Failed = {}
            if (error := done.exception()) is not None:
                _note(failed, queue, error)
            self._release([], failed)

        for queue in queues:
            running = asyncio.get_running_loop().run_in_executor(self._threads, queue.engine.sync)
            running.add_done_callback(partial(synced, queue))

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
                self._batch = []  # before sending, which closes clients that have ended
                self._release(batch, failed)
                self._continue()

        for queue in changed:
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._sync_timed, queue)
            running.add_done_callback(partial(synced, queue))

    def _continue(self) -> None:
        """A sync has ended: begin the next one if clients wait for it."""
        lane = self.lane
        if lane.changed or lane.pending:
            self._commit_later()  # so that requests that follow these answers join
        elif self._idle is not None and not self._idle.done():
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
        """Return once all changes are written, or synced, and answered."""
        if self._timer is not None:
            self._timer.cancel()
        while self.lane.changed or self.lane.pending or self._under_way:
            if self._under_way:
                self._idle = asyncio.get_running_loop().create_future()
                await asyncio.wait([self._idle], timeout=0.05)
            else:
                await asyncio.sleep(0)

    def close(self) -> None:
        """End the threads. Closing the queues syncs the rest."""
        self._threads.shutdown(wait=True)


def _note(failed: Failed, queue: Served, error: BaseException) -> None:
    """Note a failed queue. One that was closed meanwhile has been deleted or synced, and has not failed."""
    if not isinstance(error, Closed):
        failed[queue] = error


def _corrected(lines: list[bytes], owners: list[tuple[Served, ...]], failed: Failed) -> list[bytes]:
    """The answers, with errors in place of those that depend on a failed queue."""
    found = []
    for line, queues in zip(lines, owners, strict=True):
        errors = {queue.key: failed[queue] for queue in queues if queue in failed}
        found.append((without(line, errors) or failure(next(iter(errors.values())))) if errors else line)
    return found
