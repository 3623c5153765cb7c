"""The queues of the server's directory, by the keys of clients.

All existing queues are opened at the start; clients create more by naming them. Opening, deleting and flushing wait for
the disk, so a thread does them; requests for that queue wait meanwhile, those for other queues do not.

A queue whose journal failed, as on a full disk, is closed and reopened with all acknowledged items. Reserved items are
put back at its head, and their reads are over.

A queue that cannot be opened, for example because its journal is damaged, is refused with the reason. It is retried
with growing pauses, because it may have been repaired. The other queues are served, but the parent of a refused fan-out
queue accepts no items, because they would not reach that queue.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

from ...core.io import quarantine
from ...core.io.disk import make_directories
from ...errors import Closed, Locked, LogwrightError, StorageFailed
from ...kestrel.files.files import list_queues
from ...kestrel.model.engine import Engine
from ...kestrel.model.limits import Expires
from ...kestrel.model.open_queues import Handle, Settings, can_open
from .limits import QueueLimits

logger = logging.getLogger("logwright.servers.queue")
_FILE_THREADS = 4
_MOST_RETRY_SECONDS = 60.0


class Phase(Enum):
    """Whether a queue can be used."""

    OPEN = auto()
    CHANGING = auto()
    """Its files are being changed: it must not be used."""
    CLOSED = auto()
    """It was deleted, or the server stops."""
    FAILED = auto()
    """It was closed because its journal failed; its reserved items were put back."""


OPEN: Final = Phase.OPEN
"""Compared for every request."""


class Waiter(Protocol):
    """A client that waits for items of a queue."""

    queue: Served

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its answers."""

    def serve(self) -> bool:
        """Give the client an item; returns whether there was one."""

    def give_up(self) -> None:
        """End the wait."""


class Served:
    """An open queue of the server. Another object replaces it after a failure."""

    __slots__ = (
        "alone",
        "can_move",
        "canceled",
        "created_ms",
        "engine",
        "flushes",
        "handle",
        "hold_writes",
        "is_dirty",
        "is_moving",
        "key",
        "phase",
        "put",
        "take",
        "transactions",
        "waiters",
    )

    def __init__(self, key: bytes, handle: Handle, before: Served | None = None) -> None:
        self.key = key
        self.alone = (self,)
        self.handle = handle
        self.engine: Engine = handle.engine
        self.put: Callable[..., None] = self.engine.shelf.put  # looked up once: they are called for every request
        self.take: Callable[[], bytes | None] = self.engine.shelf.get
        self.hold_writes: Callable[[], None] = self.engine.hold_writes
        self.waiters: deque[Waiter] = deque() if before is None else before.waiters
        self.phase = Phase.OPEN
        self.is_dirty = False
        """Whether it has changes that wait for a commit."""
        self.can_move = self.engine.can_move
        """Whether items may have to move to another queue."""
        self.is_moving = False
        """Whether a thread is moving them."""
        self.transactions = self.canceled = self.flushes = 0
        self.created_ms = self.engine.opened

    @property
    def is_gone(self) -> bool:
        """Whether this object is no longer used."""
        return self.phase in (Phase.CLOSED, Phase.FAILED)

    def serve_waiters(self) -> None:
        """Give its items to waiting clients, except those that do not read their answers."""
        skipped = 0
        while skipped < len(self.waiters):
            waiter = self.waiters[0]
            if waiter.is_stuck:
                self.waiters.rotate(-1)
                skipped += 1
            elif waiter.serve():
                skipped = 0
            else:
                return


def name_of(key: bytes) -> str | None:
    """The name of the queue of a key; None if it is not valid."""
    if any(byte <= 32 or byte == 127 for byte in key):
        return None
    name = key.decode("utf-8", "surrogateescape")
    return name if can_open(name) else None


class Queues:
    """The queues by key, and the threads that change their files."""

    def __init__(
        self, directory: Path, limits: QueueLimits, settings: Settings, max_queues: int, retry_seconds: float
    ) -> None:
        self.directory = directory
        self.by_key: dict[bytes, Served] = {}
        self.refused: dict[bytes, LogwrightError] = {}
        """The queues that could not be opened or reopened, and why."""
        self._delays: dict[bytes, float] = {}
        """The seconds until each of them is retried."""
        self._limits, self._settings = limits, settings
        self._max_queues, self._retry_seconds = max_queues, retry_seconds
        self._by_engine: dict[Engine, Served] = {}
        self._changing: dict[bytes, list[Callable[[], None]]] = {}
        self._threads = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="logwright-files")
        self._is_closed = False
        self.created = self.deleted = 0

    def prepare(self) -> None:
        """Create the directory if it does not exist. Waits for the disk."""
        make_directories(self._settings.disk, self.directory / quarantine.DIRECTORY)

    def open_all(self) -> None:
        """Open the queues of the directory. Waits for the disk."""
        disk = self._settings.disk
        try:
            for name in list_queues(disk, self.directory):
                key = name.encode("utf-8", "surrogateescape")
                if name_of(key) is None:  # no client can name it
                    continue
                try:
                    self._add(key, self._open(name))
                except Locked:
                    raise  # another process uses it: do not start
                except LogwrightError as error:
                    logger.error("%s: this queue is not served: %s", name, error)
                    self.refused[key] = error
        except BaseException:
            self.close_all()
            raise

    def watch_refused(self) -> None:
        """Retry the queues that could not be opened."""
        for key, error in self.refused.items():
            self._refuse(key, error, None)

    def _open(self, name: str) -> Handle:
        path = self.directory / name
        if self._settings.disk.is_directory(path):
            raise StorageFailed("open", path, OSError(errno.EISDIR, "is a directory, not a queue"))
        return Handle(self.directory, name, self._limits.of(name), self._settings, is_tolerant=True).open()

    def _add(self, key: bytes, handle: Handle, before: Served | None = None) -> Served:
        served = self.by_key[key] = Served(key, handle, before)
        self._by_engine[served.engine] = served
        return served

    def _drop(self, served: Served) -> None:
        served.phase = Phase.CLOSED
        self._by_engine.pop(served.engine, None)
        if self.by_key.get(served.key) is served:
            del self.by_key[served.key]

    def of_engine(self, engine: Engine) -> Served | None:
        """The queue of an engine."""
        return self._by_engine.get(engine)

    # --- changes of files -------------------------------------------------------------------------------------------

    def is_changing(self, key: bytes) -> bool:
        """Whether the files of a queue are being changed: then it must not be used."""
        return key in self._changing

    def any_changing(self) -> bytes | None:
        """A queue whose files are being changed, and that will be usable; None if there is none."""
        return next((name for name in self._changing if name not in self.refused), None)

    def changing_child(self, key: bytes) -> bytes | None:
        """A fan-out queue of this one whose files are being changed; None if there is none."""
        return next((name for name in self._changing if name.startswith(key + b"+")), None)

    def when_settled(self, key: bytes, do: Callable[[], None]) -> None:
        """Call a function once the files of a queue are no longer being changed."""
        self._changing[key].append(do)

    def is_there(self, key: bytes) -> bool:
        """Whether a file, directory or link has the name of a queue that is not open."""
        path = self.directory / key.decode("utf-8", "surrogateescape")
        disk = self._settings.disk
        return key in self.refused or disk.exists(path) or disk.is_link(path)

    @property
    def can_create(self) -> bool:
        """Whether one more queue is allowed."""
        return len(self.by_key) + len(self._changing) < self._max_queues

    def create(self, key: bytes, name: str, done: Callable[[BaseException | None], None]) -> None:
        """Create a queue."""

        def opened(handle: Handle) -> None:
            self._add(key, handle)
            self.created += 1

        self._change(key, lambda: self._open(name), opened, done)

    def delete(self, served: Served, done: Callable[[BaseException | None], None]) -> None:
        """Delete a queue with its files."""

        def deleted(_: object) -> None:
            self._drop(served)
            self.deleted += 1

        self._change(served.key, served.handle.delete, deleted, done)

    def flush(self, served: Served, done: Callable[[BaseException | None], None]) -> None:
        """Remove all waiting items of a queue."""

        def flushed(_: object) -> None:
            served.flushes += 1

        self._change(served.key, lambda: _flush(served.engine), flushed, done)

    def in_thread(self, work: Callable[[], None]) -> None:
        """Run work in a thread; it must not raise."""
        if not self._is_closed:
            asyncio.get_running_loop().run_in_executor(self._threads, work)

    def move(self, served: Served, done: Callable[[BaseException | None], None]) -> bool:
        """Move items to their target queues, which are created if needed; False if the server is stopping.

        The queue can be used meanwhile.
        """
        if self._is_closed:
            return False
        for name in {move.target for move in served.engine.moves}:
            key = name.encode("utf-8", "surrogateescape")
            if key not in self.by_key and key not in self.refused and not self.is_changing(key):
                self.create(key, name, lambda error: None)
        running = asyncio.get_running_loop().run_in_executor(self._threads, served.engine.moving.finish)
        running.add_done_callback(lambda future: done(future.exception()))
        return True

    def put(
        self,
        served: Served,
        data: bytes,
        expires: Expires | None,
        delay: float | None,
        id: bytes | None,
        done: Callable[[bool, list[Engine], BaseException | None], None],
    ) -> None:
        """Put an item with options in a thread; `done` gets whether it is new, the engines, and the error."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            loop.call_soon(done, False, [], Closed(f"{self.directory}: the server is stopping"))
            return

        def ended(future: asyncio.Future[tuple[bool, list[Engine]]]) -> None:
            error = future.exception()
            done(*((False, []) if error else future.result()), error)

        running = loop.run_in_executor(self._threads, served.handle.put_to_all, [data], expires, delay, id)
        running.add_done_callback(ended)

    def shrink_idle(self, done: Callable[[BaseException | None], None]) -> None:
        """Erase the journals of empty queues to free disk space; `done` is called for each of them."""
        for served in list(self.by_key.values()):
            if not self.is_changing(served.key) and served.engine.compaction.can_shrink:
                self._change(served.key, served.engine.compaction.shrink, lambda _: None, done)

    def _change(
        self,
        key: bytes,
        work: Callable[[], object],
        succeeded: Callable[..., None],
        done: Callable[[BaseException | None], None],
    ) -> None:
        if self._is_closed:
            stopping = Closed(f"{self.directory}: the server is stopping")
            asyncio.get_running_loop().call_soon(done, stopping)  # not at once: many requests may follow
            return
        self._changing[key] = []
        served = self.by_key.get(key)
        if served is not None:
            served.phase = Phase.CHANGING
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)

        def finish(future: asyncio.Future[object]) -> None:
            error = future.exception()
            waiting = self._changing.pop(key)
            if served is not None and served.phase is Phase.CHANGING:
                served.phase = Phase.OPEN
            if error is None:
                succeeded(future.result())
            else:
                logger.error("%s: %s", key.decode("utf-8", "replace"), error)
            done(error)
            for do in waiting:
                do()

        running.add_done_callback(finish)

    # --- after a failure --------------------------------------------------------------------------------------------

    def fail(self, served: Served, error: BaseException) -> None:
        """The journal of a queue has failed: reopen it."""
        if served.is_gone or self._is_closed or self.is_changing(served.key):
            return
        logger.error("%s: %s", served.engine.path, error)
        self._drop(served)
        served.phase = Phase.FAILED
        self._reopen(served.key, served)

    def _reopen(self, key: bytes, served: Served | None) -> None:
        """Reopen a failed queue, or retry one that could not be opened (`served` is None)."""

        def work() -> Handle:
            if served is not None:
                try:
                    served.handle.close()
                except LogwrightError as error:
                    logger.error("%s: %s", served.engine.path, error)
            return self._open(key.decode("utf-8", "surrogateescape"))

        def reopened(handle: Handle) -> None:
            self.refused.pop(key, None)
            self._delays.pop(key, None)
            fresh = self._add(key, handle, served)
            for waiter in fresh.waiters:
                waiter.queue = fresh
            fresh.serve_waiters()
            logger.warning("%s: reopened with %d items", handle.engine.path, handle.engine.shelf.items)

        def done(error: BaseException | None) -> None:
            if isinstance(error, LogwrightError) and not self._is_closed:
                self._refuse(key, error, served)

        self._change(key, work, reopened, done)

    def _refuse(self, key: bytes, error: LogwrightError, served: Served | None) -> None:
        self.refused[key] = error
        delay = self._delays.get(key, self._retry_seconds)
        self._delays[key] = min(2 * delay, max(delay, _MOST_RETRY_SECONDS))
        asyncio.get_running_loop().call_later(delay, self._retry, key, served)

    def _retry(self, key: bytes, served: Served | None) -> None:
        if not self._is_closed and key in self.refused and not self.is_changing(key):
            self._reopen(key, served)

    # --- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Open nothing more, and wait for running changes of files."""
        self._is_closed = True
        self._threads.shutdown(wait=True)

    def close_all(self) -> None:
        """Sync and close all queues. Waits for the disk."""
        failure: LogwrightError | None = None
        for served in list(self.by_key.values()):
            self._drop(served)
            try:
                served.handle.close()
            except LogwrightError as error:
                logger.error("%s: %s", served.engine.path, error)
                failure = failure or error
        if failure is not None:
            raise failure


def _flush(engine: Engine) -> None:
    engine.clear()
    engine.flush()
