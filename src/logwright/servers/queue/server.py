"""QueueServer: listening, what is refused and why, slow clients, and an end that loses nothing.

    async with QueueServer(ServerSettings(directory=Path("spool"), sync=ALWAYS)) as server:
        print(server.address)
        ...

`run` runs that on uvloop, where it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ...core.io import quarantine as keep
from ...core.io.disk import REAL_DISK, Disk, replace_file
from ...core.io.durability import ALWAYS, NONE, Sync
from ...core.io.lock import Lock
from ...errors import NotFound, Poisoned, StorageFailed, WrongUse
from ...kestrel.bytes.records import Dialect
from ...kestrel.model.engine import Engine
from ...kestrel.model.handles import Settings
from ...kestrel.model.limits import Limits
from ..metrics import serve_metrics
from ..safety import Address, Protection, listening
from . import answers
from .commits import Commits
from .connection import Connection
from .kernel import Lane
from .limits import Named, QueueLimits, ServerLimits
from .parser import Arriving
from .queues import Queues, Served
from .reads import serve_waiters
from .space import Space
from .stats import Figures, QueueMetrics
from .sweeper import Moving
from .tls import BACKLOG, Door

logger = logging.getLogger("logwright.servers.queue")

DEFAULT_ADDRESS: Final = Address("127.0.0.1", 22133)
"""Where Kestrel listens."""
_RELATIVE_SECONDS: Final = 60 * 60 * 24 * 30
"""An expiry of more seconds than this is a time, one of fewer is from now on."""
_LONGEST_SWEEP_SECONDS: Final = 1.0
UP: Final = "UP"
READONLY: Final = "READONLY"
QUIESCENT: Final = "QUIESCENT"
STATUSES: Final = (UP, READONLY, QUIESCENT)
_MOST_STATUS_BYTES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server is started. `queues` are the limits of all queues; `clock` is what tells the time."""

    directory: Path
    address: Address = DEFAULT_ADDRESS
    metrics: Address | None = None
    sync: Sync = NONE
    dialect: Dialect = "auto"
    """What queues are written in; `auto` keeps the dialect of a journal, and is kestrel2 for a new queue."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    queues: Limits = field(default_factory=Limits)
    named: Named = field(default_factory=dict)
    """What is different for some queues."""
    protection: Protection = field(default_factory=Protection)
    kestrel_names: bool = False
    """Answer in Kestrel's words where they differ from memcached's: `get NAME/option` with `VALUE NAME` and not with
    the key as it was asked for, `flush_all` with `Flushed all queues.`, and every `delete` with `END`."""
    status_file: Path | None = None
    """What keeps the status from one start to the next."""
    clock: Callable[[], float] | None = None
    disk: Disk = REAL_DISK


class QueueServer:
    """A server of one directory. Leaving its block, or `stop`, ends it."""

    version = "2.4.1"
    """Kestrel's, whose commands these are. Digits and dots only, for clients parse it; libmemcached's refuse 0."""

    def __init__(self, settings: ServerSettings) -> None:
        settings.protection.check(settings.address)
        if settings.metrics is not None and not settings.protection.insecure:
            Protection().check(settings.metrics)
        if settings.status_file is not None and settings.status_file.absolute().parent == settings.directory.absolute():
            raise WrongUse(f"{settings.status_file} would be one of the queues: keep the status somewhere else")
        self.settings = settings
        self.limits, self.protection = settings.limits, settings.protection
        self.clock = settings.clock or time.time
        self.answers_with_names = settings.kestrel_names
        self.address = settings.address
        self.metrics_address: Address | None = None
        self.figures = Figures()
        self.arriving = Arriving(settings.limits.max_arriving_bytes)
        self.connections: set[Connection] = set()
        self.status = UP
        self.no_puts: bytes | None = None
        """What a `set` is answered while none is taken."""
        self.no_gets: bytes | None = None
        self.no_changes: bytes | None = None
        self.suspended: dict[bytes, bytes] = {}
        """Queues that take nothing for a while, and what they answer."""
        self.now = self.started = time.monotonic()
        """About now: good enough for clients that are slow."""
        self.queues = Queues(
            settings.directory.absolute(),
            QueueLimits(settings.directory, settings.queues, settings.named),
            Settings(
                sync=ALWAYS
                if settings.sync == ALWAYS
                else NONE,  # the server syncs by itself what is to be synced later
                dialect=settings.dialect,
                clock=settings.clock,
                disk=settings.disk,
            ),
            settings.limits.max_queues,
            settings.limits.retry_seconds,
        )
        self.queues.on_items = serve_waiters
        self.space = Space(
            settings.disk,
            self.queues.directory,
            settings.limits.keep_free_bytes,
            self._decide,
            self.queues.in_thread,
        )
        self.commits: Commits
        self.lane: Lane
        self.moving: Moving
        self._numbers = 0
        self._lock: Lock | None = None
        self._stack = contextlib.AsyncExitStack()
        self._sweeper: asyncio.TimerHandle | None = None
        self._gone: asyncio.Event = asyncio.Event()

    # --- the beginning ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the queues and listen."""
        loop = asyncio.get_running_loop()
        self.commits = Commits(loop, self.settings.sync, self._failed)
        limits = self.limits
        self.lane = Lane(
            self.queues.by_key, self.commits.ask, self.commits.turn, limits.max_line_bytes, limits.max_item_bytes
        )
        self.lane.now = self.now
        self.lane.is_direct = self.settings.sync == NONE
        self.lane.is_written_at_once = self.settings.sync != ALWAYS
        self.commits.lane, self.commits.look = self.lane, self._look_at_disk
        try:
            await asyncio.to_thread(self._open)
            self.queues.watch_refused()
            self._decide()
            self.moving = Moving(self)
            self._stack.callback(self.moving.stop)
            with listening(self.settings.address):
                port = await self._listen()
            self.address = Address(self.settings.address.host, port)
            if self.settings.metrics is not None:
                serving = serve_metrics(QueueMetrics(self), self.settings.metrics)
                self.metrics_address = await self._stack.enter_async_context(serving)
        except BaseException:
            await self._stack.aclose()
            await asyncio.to_thread(self._close)
            raise
        self._sweep()

    async def _listen(self) -> int:
        """Let clients in, those with TLS once they have set that up; at which port."""
        address, context = self.settings.address, self.protection.context
        if context is not None:
            door = Door(context, self.limits.handshake_seconds, lambda: Connection(self))
            port = await door.open(address)
            self._stack.push_async_callback(door.close)
            return port
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), address.host, address.port, backlog=BACKLOG)
        self._stack.callback(server.close)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def _open(self) -> None:
        disk, directory = self.settings.disk, self.queues.directory
        if self.settings.status_file is not None:
            self.status = _load_status(disk, self.settings.status_file)
        self.queues.prepare()
        self._lock = Lock.acquire(disk, directory / keep.DIRECTORY / ".server.lck")
        self.queues.open_all()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- what clients ask for ---------------------------------------------------------------------------------------

    def put(self, queue: Served, data: bytes, expiry: int) -> tuple[Served, ...]:
        """Add an item, and hand it to whoever waits; the queues that have it. `expiry` is as memcached has it."""
        expires = None if expiry == 0 else _expires(expiry)
        if queue.handle.has_children:
            family = queue.handle.put_to_all([data], expires)
        else:
            queue.engine.put(data, expires)
            family = []
        self.figures.total_items += 1
        changed = queue.alone if not family else tuple(filter(None, map(self.queues.of_engine, family)))
        for found in changed:
            self.lane.change(found)
            if found.can_move:
                self.moving.look(found)
            if found.waiters:
                serve_waiters(found)
        if len(changed) < len(family):
            self._write_strays(family)
        return changed

    def _write_strays(self, family: list[Engine]) -> None:
        """Write what was put to children that are not served again yet after a failure: no commit comes by there."""
        for engine in family:
            if self.queues.of_engine(engine) is None:
                if self.settings.sync == ALWAYS:
                    engine.sync()
                else:
                    engine.flush()

    def tally(self) -> Figures:
        """The figures, with what has taken the lane."""
        figures, lane = self.figures, self.lane
        figures.cmd_set += lane.sets
        figures.total_items += lane.sets
        figures.cmd_get += lane.hits + lane.misses
        figures.get_hits += lane.hits
        figures.get_misses += lane.misses
        figures.bytes_read += lane.bytes_read
        figures.bytes_written += lane.bytes_written
        lane.sets = lane.hits = lane.misses = lane.bytes_read = lane.bytes_written = 0
        return figures

    def next_number(self) -> int:
        """What `gets` gives with an item: another number each time."""
        self._numbers += 1
        return self._numbers

    def change_status(self, name: str) -> bool:
        """Take this status from now on; False when there is none of this name. What cannot be kept is not taken."""
        if name.upper() not in STATUSES:
            return False
        if self.settings.status_file is not None:
            _save_status(self.settings.disk, self.settings.status_file, name.upper())  # rare, so everybody waits for it
        self.status = name.upper()
        self._decide()
        return True

    def _decide(self) -> None:
        """Settle what is refused: by the status, and because the disk is full."""
        self.no_gets = answers.QUIESCENT if self.status == QUIESCENT else None
        self.no_changes = answers.READ_ONLY if self.status == READONLY else self.no_gets
        self.no_puts = self.no_changes or (answers.NO_SPACE if self.space.is_low else None)
        self.lane.is_open = self.no_puts is None and not self.suspended

    # --- failures ---------------------------------------------------------------------------------------------------

    def notice(self, error: BaseException) -> None:
        """Something has failed: find the queues that have failed with it."""
        if isinstance(error, Poisoned | StorageFailed):
            for queue in list(self.queues.by_key.values()):
                if queue.engine.refusing:
                    self._failed(queue, error)

    def _failed(self, queue: Served, error: BaseException) -> None:
        if answers.is_of_full_disk(error):
            self.space.give_up_reserve()
            self._look_at_disk()  # now: what was kept is for taking items out, and not for other queues
            self.suspended[queue.key] = answers.NO_SPACE
            self._decide()
            asyncio.get_running_loop().call_later(self.limits.retry_seconds, self._resume, queue.key)
        self.queues.fail(queue, error)

    def _resume(self, key: bytes) -> None:
        """Let a queue whose disk was full take items again. What is empty by now makes room for them first."""
        if self.queues.is_changing(key):
            self.queues.when_settled(key, lambda: self._resume(key))
            return
        self.suspended.pop(key, None)
        self._decide()
        self._make_room()

    def _make_room(self) -> None:
        """The disk is full, or nearly: erase the journals of queues that are empty."""

        def shrunk(error: BaseException | None) -> None:
            if error is not None:
                self.notice(error)
            self._look_at_disk()

        if self.status != "DOWN":
            self.queues.shrink_idle(shrunk)

    def _look_at_disk(self) -> None:
        self.space.look()
        self.lane.look_bytes = self.space.kept_bytes // 4

    # --- clients ----------------------------------------------------------------------------------------------------

    def admit(self, client: Connection) -> bool:
        """Whether one more client can be served."""
        if len(self.connections) >= self.limits.max_connections or self.status == "DOWN":
            self.figures.refused_connections += 1
            return False
        self.connections.add(client)
        self.figures.total_connections += 1
        return True

    def dismiss(self, client: Connection) -> None:
        """A client is gone."""
        self.connections.discard(client)
        if not self.connections:
            self._gone.set()

    def _sweep(self) -> None:
        """Drop clients that are slow or not there, and look at the disk."""
        self.now = self.lane.now = time.monotonic()
        for client in list(self.connections):
            reason = client.is_overdue(self.now)
            if reason is not None:
                logger.info("a client is dropped: it %s", reason)
                self.figures.dropped_connections += 1
                client.drop()
        self._look_at_disk()
        if self.space.is_low:
            self._make_room()
        limits = self.limits
        shortest = min(limits.handshake_seconds, limits.command_seconds, limits.answer_seconds, limits.idle_seconds)
        seconds = min(shortest / 4, _LONGEST_SWEEP_SECONDS)
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take nothing more, answer what was asked, put back what is open, and sync and close the queues."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.status = "DOWN"
        await self._stack.aclose()
        for client in list(self.connections):
            client.finish()
        await asyncio.to_thread(self.queues.end)
        await self._until_gone()
        await self.commits.drain()
        await asyncio.to_thread(self._close)

    async def _until_gone(self) -> None:
        """Wait for clients to take their last answers; those that do not in time are dropped."""
        deadline = time.monotonic() + self.limits.stop_seconds
        while self.connections and time.monotonic() < deadline:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), max(0.0, deadline - time.monotonic()))
        while self.connections:
            for client in list(self.connections):
                client.drop()
            await asyncio.sleep(0)

    def _close(self) -> None:
        if hasattr(self, "commits"):
            self.commits.close()
        self.queues.end()
        if self._lock is not None:
            self.space.give_up_reserve()
        try:
            self.queues.close_all()
        finally:
            if self._lock is not None:
                self._lock.release()


def _expires(expiry: int) -> float | datetime:
    """When an item expires that a client gave this number: seconds from now, a time, or in the past."""
    if expiry < 0:
        return -1.0
    return float(expiry) if expiry <= _RELATIVE_SECONDS else datetime.fromtimestamp(expiry, UTC)


def _load_status(disk: Disk, path: Path) -> str:
    """What a file says; UP when there is none."""
    try:
        file = disk.open(path, "read")
    except NotFound:
        if not disk.is_directory(path.absolute().parent):
            raise WrongUse(f"{path}: there is no directory for this file, so the status could not be kept") from None
        return UP
    try:
        found = file.read_at(0, _MOST_STATUS_BYTES).decode("ascii", "replace").strip()
    finally:
        file.close()
    if found.upper() not in STATUSES:
        raise WrongUse(f"{path}: {found!r} is no status: it is one of {', '.join(STATUSES)}")
    return found.upper()


def _save_status(disk: Disk, path: Path, status: str) -> None:
    """Have a file say this from now on, also after a power cut."""
    replace_file(disk, path, f"{status}\n".encode(), path.with_name(f"{path.name}~~"))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a server's event loop, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed, so this is slower than it could be: pip install 'logwright[server]'")
        asyncio.run(work)
    else:
        uvloop.run(work)
