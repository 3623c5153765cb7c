"""When appended records become durable, and how writers share syncs.

Three policies, the same for every format:

    none            records are written when the buffer is full or `flush` is called, and the system decides when
                    they reach the disk; flushed records survive a crash of the process
    interval(ms)    a background thread flushes and syncs at this interval: a power cut loses at most that much
    always          an append returns once its record is on the disk

With `always`, writers on many threads (`GroupCommit`) or tasks (`AsyncGroupCommit`) share syncs. The first one leads:
it syncs everything appended until then, and the others wait. Records that arrive during a sync belong to the next one.

A failed sync is final. The kernel may drop the pages that it could not write and report success the next time, so a
sync is never retried: the writer is poisoned, and every waiting thread gets the error.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import LogwrightError, WrongUse
from .threads import Background, Flag


@dataclass(frozen=True, slots=True)
class Sync:
    """A policy: `NONE`, `ALWAYS`, or `interval(ms)`."""

    name: str
    interval_ms: float = 0.0

    def __str__(self) -> str:
        return f"interval({self.interval_ms:g})" if self.name == "interval" else self.name


NONE: Final = Sync("none")
"""Nothing is synced until the caller asks for it."""
ALWAYS: Final = Sync("always")
"""A call returns when its data is on the disk."""
SyncLike: TypeAlias = Sync | str


def interval(milliseconds: float) -> Sync:
    """Sync in the background at this interval."""
    if not isinstance(milliseconds, int | float) or not 0 < milliseconds < float("inf"):
        raise WrongUse(f"a sync interval of {milliseconds!r} ms makes no sense")
    return Sync("interval", float(milliseconds))


def parse_sync(policy: SyncLike) -> Sync:
    """The policy of this name: `none`, `always`, `interval(100)`; a `Sync` is returned as it is."""
    if isinstance(policy, Sync):
        return policy
    if policy == "none":
        return NONE
    if policy == "always":
        return ALWAYS
    match = re.fullmatch(r"interval\((\d+(?:\.\d+)?)\)", policy) if isinstance(policy, str) else None
    if match:
        return interval(float(match[1]))
    raise WrongUse(f"sync policy {policy!r} is none of: none, always, interval(MILLISECONDS)")


class _Batch:
    """The threads that wait for one sync. Each thread that acquires `turnstile` releases it for the next."""

    __slots__ = ("failure", "is_over", "members", "turnstile")

    def __init__(self) -> None:
        self.turnstile = threading.Lock()
        self.turnstile.acquire()
        self.members = 0
        self.is_over = False
        self.failure: BaseException | None = None


class GroupCommit:
    """Threads that share syncs. `commit()` must make durable everything appended before it was called."""

    _MOST_WAIT_SECONDS = 0.001

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self._leading = threading.Lock()
        self._batch = _Batch()
        self._last_members = 0
        self._sync_seconds = 0.0

    def wait(self) -> None:
        """Return once everything that this thread has appended is durable; raise what the sync raised."""
        if self._last_members <= 1 and not self._leading.locked():
            with self._leading:  # alone: a thread that arrives now leads the next batch, and waits
                self._commit()
            return
        while not self._share():
            pass

    def _share(self) -> bool:
        """Lead a batch or wait for its leader; False if the leader was interrupted before all was durable."""
        batch, leads = self._batch, False
        try:
            with self._mutex:
                batch = self._batch
                batch.members += 1
                leads = batch.members == 1
            if leads:
                self._lead(batch)
            else:
                with batch.turnstile:
                    pass
        except BaseException as error:
            if leads:
                self._end(batch, error)  # the other threads must not wait forever
            raise
        if isinstance(batch.failure, LogwrightError | OSError):
            raise batch.failure
        return batch.failure is None

    def _lead(self, batch: _Batch) -> None:
        with self._leading:  # the previous sync may still run; meanwhile this batch grows
            self._gather(batch)
            self._close(batch)
            started = time.perf_counter()
            self._commit()
            self._sync_seconds = time.perf_counter() - started
        self._end(batch, None)

    def _end(self, batch: _Batch, failure: BaseException | None) -> None:
        """Release the threads that wait for a batch."""
        if not batch.is_over:
            batch.failure = failure
            self._close(batch)
            batch.is_over = True
            batch.turnstile.release()

    def _close(self, batch: _Batch) -> None:
        """Let no more threads join this batch."""
        with self._mutex:
            if self._batch is batch:
                self._batch = _Batch()
                self._last_members = batch.members

    def _gather(self, batch: _Batch) -> None:
        """Wait for the threads that shared the last sync, but not longer than a sync takes."""
        expected = self._last_members
        if batch.members >= expected or expected <= 1:
            return
        deadline = time.perf_counter() + min(self._sync_seconds, self._MOST_WAIT_SECONDS)
        while batch.members < expected and time.perf_counter() < deadline:
            time.sleep(0)


class AsyncGroupCommit:
    """Tasks of one event loop that share syncs. The syncs run in a thread, so that they do not block the loop."""

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="logwright-sync")
        self._waiting: list[asyncio.Future[None]] = []
        self._busy = False

    async def wait(self) -> None:
        """Return once everything that this task has appended is durable; raise what the sync raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start, loop)  # so that other ready tasks join the batch
        await future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting, []
        running = loop.run_in_executor(self._executor, self._commit)
        running.add_done_callback(lambda done: self._finish(loop, batch, done))

    def _finish(
        self, loop: asyncio.AbstractEventLoop, batch: list[asyncio.Future[None]], done: asyncio.Future[None]
    ) -> None:
        error = done.exception()
        for future in batch:
            if future.done():  # its task was cancelled
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        if self._waiting:
            loop.call_soon(self._start, loop)
        else:
            self._busy = False

    async def close(self) -> None:
        """Wait for the running sync, then end the thread."""
        try:
            while self._busy:
                await self.wait()
        finally:
            self._executor.shutdown(wait=True)


class IntervalSync:
    """The background thread of `interval(ms)`. After a failure it stops: the writer is poisoned by then."""

    def __init__(self, milliseconds: float, commit: Callable[[], None]) -> None:
        self._stop = Flag()
        self._seconds = milliseconds / 1000
        self._commit = commit
        self._thread = Background(self._run)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._commit()
            except Exception:
                return  # the writer keeps the failure and raises it at its next call

    def close(self) -> None:
        """Stop the thread; does not sync."""
        self._stop.set()
        self._thread.join()
