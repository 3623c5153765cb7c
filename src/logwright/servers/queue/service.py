"""Service: what the clients of a server share. The queues, commits, counters, the status, and what is refused.

The status is UP (everything), READONLY (only reads) or QUIESCENT (nothing new). It is UP at the start, unless a status
file keeps it over restarts. It is DOWN when the server stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Protocol

from ...core.io import quarantine
from ...core.io.disk import REAL_DISK, Disk, replace_file
from ...core.io.durability import ALWAYS, NONE, Sync
from ...core.io.lock import Lock
from ...core.options import NamedOptions
from ...errors import NotFound, Poisoned, StorageFailed, WrongUse
from ...kestrel.bytes.records import Dialect
from ...kestrel.model.engine import Engine
from ...kestrel.model.limits import Limits
from ...kestrel.model.open_queues import Settings
from ..security import Address, Protection
from . import answers
from .commits import Commits
from .limits import Named, QueueLimits, ServerLimits
from .parser import Arriving
from .queues import Queues, Served
from .upkeep import Space, Sweeper

DEFAULT_ADDRESS: Final = Address("127.0.0.1", 22133)
"""Kestrel's default port."""
_RELATIVE_SECONDS: Final = 60 * 60 * 24 * 30
"""A larger expiry is a time, a smaller one is relative to now."""
UP: Final = "UP"
READONLY: Final = "READONLY"
QUIESCENT: Final = "QUIESCENT"
DOWN: Final = "DOWN"
STATUSES: Final = (UP, READONLY, QUIESCENT)
_MOST_STATUS_BYTES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(NamedOptions):
    """The settings of a server. `queues` are the limits of all queues."""

    directory: Path
    address: Address = DEFAULT_ADDRESS
    metrics: Address | None = None
    sync: Sync = NONE
    dialect: Dialect = "auto"
    """The dialect of journals; `auto` keeps that of a journal, and is kestrel2 for a new queue."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    queues: Limits = field(default_factory=Limits)
    named: Named = field(default_factory=dict)
    """Limits of single queues."""
    protection: Protection = field(default_factory=Protection)
    kestrel_names: bool = False
    """Answer in Kestrel's words where they differ from memcached's: `get NAME/option` with `VALUE NAME` instead of
    the key of the request, `flush_all` with `Flushed all queues.`, and every `delete` with `END`."""
    status_file: Path | None = None
    """Keeps the status over restarts."""
    clock: Callable[[], float] | None = None
    disk: Disk = REAL_DISK


@dataclass(slots=True)
class Counters:
    """Counters since the start, or since `stats reset`."""

    bytes_read: Annotated[int, "Bytes received from clients."] = 0
    bytes_written: Annotated[int, "Bytes sent to clients."] = 0
    cmd_get: Annotated[int, "Gets, one for each key."] = 0
    cmd_monitor: Annotated[int, "Monitors."] = 0
    cmd_peek: Annotated[int, "Gets with /peek."] = 0
    cmd_set: Annotated[int, "Sets."] = 0
    dropped_connections: Annotated[int, "Clients dropped because they were slow or dead."] = 0
    get_hits: Annotated[int, "Gets answered with an item."] = 0
    get_misses: Annotated[int, "Gets answered without an item."] = 0
    refused: Annotated[int, "Requests refused."] = 0
    refused_connections: Annotated[int, "Connections refused because of the limit."] = 0
    refused_tokens: Annotated[int, "Clients with a wrong token."] = 0
    total_connections: Annotated[int, "Connections accepted."] = 0
    total_items: Annotated[int, "Items added."] = 0

    def reset(self) -> None:
        """Set all counters to zero."""
        for counter in fields(self):
            setattr(self, counter.name, 0)


class Client(Protocol):
    """A connected client."""

    def why_overdue(self, now: float) -> str | None:
        """Why this client must be dropped; None if it need not be."""

    def finish(self) -> None:
        """The server stops: answer pending requests, end waits, and close."""

    def drop(self) -> None:
        """Close at once."""


class Service:
    """The queues of a directory, and the rules by which clients use them."""

    version = "2.4.1"
    """That of Kestrel. Clients parse it, so it has only digits and dots; libmemcached rejects 0."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.limits, self.protection = settings.limits, settings.protection
        self.clock = settings.clock or time.time
        self.counters = Counters()
        self.arriving = Arriving(settings.limits.max_arriving_bytes)
        self.connections: set[Client] = set()
        self.all_gone = asyncio.Event()
        """Set when the last client disconnects."""
        self.status = UP
        self.no_puts: bytes | None = None
        """The answer to a `set` while none is accepted."""
        self.no_gets: bytes | None = None
        self.no_changes: bytes | None = None
        self.suspended: dict[bytes, bytes] = {}
        """Queues that accept nothing for a while, and their answers."""
        self.started = time.monotonic()
        self.queues = Queues(
            settings.directory.absolute(),
            QueueLimits(settings.directory, settings.queues, settings.named),
            Settings(
                sync=ALWAYS if settings.sync == ALWAYS else NONE,  # the server itself does later syncs
                dialect=settings.dialect,
                clock=settings.clock,
                disk=settings.disk,
            ),
            settings.limits.max_queues,
            settings.limits.retry_seconds,
        )
        self.space = Space(
            settings.disk, self.queues.directory, settings.limits.keep_free_bytes, self._decide, self.queues.in_thread
        )
        self.commits = Commits(self.queues.by_key, settings.sync, settings.limits, self._failed, self.check_disk)
        self.lane = self.commits.lane
        self.lane.now = self.started
        self.sweeper = Sweeper(self.queues, self.lane, settings.limits.sweep_seconds, self.notice)
        self._numbers = 0
        self._lock: Lock | None = None

    def open(self) -> None:
        """Open the queues. Waits for the disk."""
        disk, directory = self.settings.disk, self.queues.directory
        if self.settings.status_file is not None:
            self.status = _load_status(disk, self.settings.status_file)
        self.queues.prepare()
        self._lock = Lock.acquire(disk, directory / quarantine.DIRECTORY / ".server.lck")
        self.queues.open_all()

    def start(self) -> None:
        """The queues are open: begin what is done periodically."""
        self.queues.watch_refused()
        self._decide()
        self.sweeper.start()

    def close(self) -> None:
        """Sync and close the queues. Waits for the disk."""
        self.commits.close()
        self.queues.end()
        if self._lock is not None:
            self.space.release_reserve()
        try:
            self.queues.close_all()
        finally:
            if self._lock is not None:
                self._lock.release()

    # --- requests ---------------------------------------------------------------------------------------------------

    def put(self, queue: Served, data: bytes, expiry: int) -> tuple[Served, ...]:
        """Add an item, and serve waiting clients; returns the changed queues. `expiry` is as in memcached."""
        expires = None if expiry == 0 else _expires(expiry)
        if queue.handle.has_children:
            _, family = queue.handle.put_to_all([data], expires)
        else:
            queue.engine.shelf.put(data, expires)
            family = []
        return self._changed(queue, family)

    def put_with_options(
        self,
        queue: Served,
        data: bytes,
        expiry: int,
        delay: float | None,
        id: bytes | None,
        done: Callable[[tuple[Served, ...], BaseException | None], None],
    ) -> None:
        """The same with a delay or an id, in a thread: it may wait for the disk."""
        expires = None if expiry == 0 else _expires(expiry)

        def ended(is_new: bool, family: list[Engine], error: BaseException | None) -> None:
            if is_new:
                changed = self._changed(queue, family)
            else:  # if the id is known, its items may not be durable yet
                changed = tuple(filter(None, map(self.queues.of_engine, family)))
                for found in changed:
                    self.lane.change(found)
            for found in changed:
                self.sweeper.watch(found)
            done(changed, error)

        self.queues.put(queue, data, expires, delay, id, ended)

    def _changed(self, queue: Served, family: list[Engine]) -> tuple[Served, ...]:
        """Items were added to a queue, and to its fan-out queues: serve waiting clients; returns the changed queues."""
        self.counters.total_items += 1
        changed = queue.alone if not family else tuple(filter(None, map(self.queues.of_engine, family)))
        for found in changed:
            self.lane.change(found)
            if found.can_move:
                self.sweeper.move_from(found)
            if found.waiters:
                found.serve_waiters()
        if len(changed) < len(family):
            self._write_unserved(family)
        return changed

    def _write_unserved(self, family: list[Engine]) -> None:
        """Write the items of fan-out queues that are not yet reopened after a failure: no commit includes them."""
        for engine in family:
            if self.queues.of_engine(engine) is None:
                if self.settings.sync == ALWAYS:
                    engine.sync()
                else:
                    engine.flush()

    def counted(self) -> Counters:
        """The counters, including those of the lane."""
        counters, lane = self.counters, self.lane
        counters.cmd_set += lane.sets
        counters.total_items += lane.sets
        counters.cmd_get += lane.hits + lane.misses
        counters.get_hits += lane.hits
        counters.get_misses += lane.misses
        counters.bytes_read += lane.bytes_read
        counters.bytes_written += lane.bytes_written
        lane.sets = lane.hits = lane.misses = lane.bytes_read = lane.bytes_written = 0
        return counters

    def next_number(self) -> int:
        """A new number for each item of a `gets`."""
        self._numbers += 1
        return self._numbers

    def change_status(self, name: str) -> bool:
        """Set the status; False if it is unknown. If it cannot be saved, it is not changed."""
        if name.upper() not in STATUSES:
            return False
        if self.settings.status_file is not None:
            _save_status(self.settings.disk, self.settings.status_file, name.upper())  # rare, so it may block the loop
        self.status = name.upper()
        self._decide()
        return True

    def _decide(self) -> None:
        """Decide what is refused, by the status and because the disk is full."""
        self.no_gets = answers.QUIESCENT if self.status == QUIESCENT else None
        self.no_changes = answers.READ_ONLY if self.status == READONLY else self.no_gets
        self.no_puts = self.no_changes or (answers.NO_SPACE if self.space.is_low else None)
        self.lane.is_open = self.no_puts is None and not self.suspended

    # --- failures ---------------------------------------------------------------------------------------------------

    def notice(self, error: BaseException) -> None:
        """An error was raised: find and reopen the queues that failed."""
        if isinstance(error, Poisoned | StorageFailed):
            for queue in list(self.queues.by_key.values()):
                if queue.engine.refusing:
                    self._failed(queue, error)

    def _failed(self, queue: Served, error: BaseException) -> None:
        if answers.is_full_disk(error):
            self.space.release_reserve()
            self.check_disk()  # now: the freed reserve is for removals, not for other queues
            self.suspended[queue.key] = answers.NO_SPACE
            self._decide()
            asyncio.get_running_loop().call_later(self.limits.retry_seconds, self._resume, queue.key)
        self.queues.fail(queue, error)

    def _resume(self, key: bytes) -> None:
        """Let a queue accept items again after a full disk, and free the space of empty queues."""
        if self.queues.is_changing(key):
            self.queues.when_settled(key, lambda: self._resume(key))
            return
        self.suspended.pop(key, None)
        self._decide()
        self.free_space()

    def free_space(self) -> None:
        """Erase the journals of empty queues, as the disk is almost full."""

        def shrunk(error: BaseException | None) -> None:
            if error is not None:
                self.notice(error)
            self.check_disk()

        if self.status != DOWN:
            self.queues.shrink_idle(shrunk)

    def check_disk(self) -> None:
        """Check the free space now."""
        self.space.check()
        self.lane.check_bytes = self.space.kept_bytes // 4

    # --- clients ----------------------------------------------------------------------------------------------------

    def admit(self, client: Client) -> bool:
        """Add a client; False if there are too many."""
        if len(self.connections) >= self.limits.max_connections or self.status == DOWN:
            self.counters.refused_connections += 1
            return False
        self.connections.add(client)
        self.counters.total_connections += 1
        return True

    def dismiss(self, client: Client) -> None:
        """A client has disconnected."""
        self.connections.discard(client)
        if not self.connections:
            self.all_gone.set()


def _expires(expiry: int) -> float | datetime:
    """The expiry of an item from memcached's number: seconds from now, a time, or in the past."""
    if expiry < 0:
        return -1.0
    return float(expiry) if expiry <= _RELATIVE_SECONDS else datetime.fromtimestamp(expiry, UTC)


def _load_status(disk: Disk, path: Path) -> str:
    """The status in a file; UP if there is no file."""
    try:
        file = disk.open(path, "read")
    except NotFound:
        if not disk.is_directory(path.absolute().parent):
            raise WrongUse(f"{path}: its directory does not exist, so the status cannot be saved") from None
        return UP
    try:
        found = file.read_at(0, _MOST_STATUS_BYTES).decode("ascii", "replace").strip()
    finally:
        file.close()
    if found.upper() not in STATUSES:
        raise WrongUse(f"{path}: {found!r} is not a status; choose one of {', '.join(STATUSES)}")
    return found.upper()


def _save_status(disk: Disk, path: Path, status: str) -> None:
    """Save the status durably."""
    replace_file(disk, path, f"{status}\n".encode(), path.with_name(f"{path.name}~~"))
