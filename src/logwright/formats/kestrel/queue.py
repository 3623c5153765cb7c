"""Queue: a durable queue in a directory, for the threads of one process.

    with Queue("spool", "orders") as queue:
        queue.put(b"an order", expires=3600)
        data = queue.get(timeout=5)                     gone once it is returned

        item = queue.open(timeout=5)                    reserved, until one says what became of it
        try:
            handle(item.data)
        except Exception:
            queue.abort(item.xid)                       back to the head; `item.attempts` counts this
        else:
            queue.confirm(item.xid)

What a call guarantees when it returns, by the sync policy:

    none            the operation is with the operating system: it survives the end of this process, however that comes
                    about, but not a power cut
    interval(ms)    the same, and a background thread makes it durable that often
    always          the operation is on the disk; threads that call at the same time share one sync

With `buffer_bytes` operations gather up to so many bytes before the system gets them, which is a few times faster. Then
`none` and `interval` promise the survival of the process only for what `flush_buffer` or `sync` has sent on.

What a crash leaves: every operation up to some point, none doubled, none left out. Items that were open go back to the
head when the queue is opened again, the one with the lowest id first, and the journal says so.

`attempts` is how often an item came back from being open. It is counted in the journal itself, by the UNREMOVE that
puts an item back, so it survives restarts; when the journal is rewritten, the new one says it the same way.

One process has the queue at a time; another one gets `Locked`. After a failed write or sync every call raises
`Poisoned`: open the queue again, and what was acknowledged is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, Unpack

from ...core.closing import Closing
from ...core.disk import REAL_DISK, Disk
from ...core.durability import ALWAYS, SyncLike, parse_sync
from ...core.errors import Closed, WrongUse
from ...core.outcome import Damage
from .codec import Buffer, _as_bytes
from .engine import Engine
from .hub import Handle, Settings
from .items import Item, as_item
from .limits import Expires, Limits, Options
from .records import Dialect
from .stats import Stats, stats_of

Result = TypeVar("Result")


class Queue(Closing):
    """The queue `name` in a directory, created when there is none. `Limits` says what the other options are.

    `timeout` is how many seconds a call waits for an item: 0, the default, not at all; None for ever. Who waits is
    woken as soon as there is one. `clock` is what tells the time, in seconds since the epoch; `background` lets a
    thread of its own pack large journals.
    """

    def __init__(
        self,
        directory: Path | str,
        name: str,
        *,
        sync: SyncLike = "none",
        buffer_bytes: int = 0,
        dialect: Dialect = "auto",
        background: bool = True,
        clock: Callable[[], float] | None = None,
        disk: Disk = REAL_DISK,
        **options: Unpack[Options],
    ) -> None:
        self.policy = parse_sync(sync)
        settings = Settings(
            sync=self.policy, buffer_bytes=buffer_bytes, dialect=dialect, background=background, clock=clock, disk=disk
        )
        self._handle = Handle(Path(directory), name, Limits(**options), settings)
        self._engine: Engine = self._handle.engine
        self._is_always = self.policy == ALWAYS
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._engine.queue

    @property
    def path(self) -> Path:
        """The path of the newest file of the journal."""
        return self._engine.path

    @property
    def recovered(self) -> Damage | None:
        """The torn tail that was cut off the journal on opening; None when it was whole."""
        return self._engine.recovered

    @property
    def kept(self) -> Path | None:
        """Where the torn tail is kept."""
        return self._engine.kept

    # --- putting ----------------------------------------------------------------------------------------------------

    def put(self, data: Buffer, expires: Expires | None = None) -> None:
        """Add an item at the tail. It expires in so many seconds, after a timedelta, or at a datetime; or never.

        `Full` when there is no room for it, `TooLarge` when it is larger than an item may be.
        """
        if self._handle.has_children:
            self._put_to_all([_as_bytes(data)], expires)
            return
        engine = self._engine
        engine.put(data, expires)
        if self._is_always:
            engine.commit()
        if engine.moves:
            engine.finish_moves()

    def put_many(self, items: Iterable[Buffer], expires: Expires | None = None) -> int:
        """Add items at the tail, all of them or none, with one write and one sync; how many those were."""
        contents = [_as_bytes(data) for data in items]
        self._put_to_all(contents, expires)
        return len(contents)

    def _put_to_all(self, contents: list[bytes], expires: Expires | None) -> None:
        family = self._handle.put_to_all(contents, expires)
        for engine in family:
            if self._is_always:
                engine.commit()
            engine.finish_moves()

    # --- taking -----------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = 0) -> bytes | None:
        """Remove the head and return its data; None when there is nothing."""
        engine = self._engine
        data = engine.get()
        if data is None or engine.moves:
            data = self._settled(data, engine.get, timeout)
        if self._is_always and data is not None:
            engine.commit()
        return data

    def get_many(self, most: int, timeout: float | None = 0) -> list[bytes]:
        """Remove up to so many items from the head on; waits for the first one only."""
        _check_count(most)
        return self._committed(self._taken(lambda: self._engine.get_many(most) or None, timeout) or [])

    def peek(self) -> bytes | None:
        """The data of the head, which stays; None when there is nothing."""
        item = self._taken(self._engine.peek, 0)
        return None if item is None else item.data

    def open(self, timeout: float | None = 0) -> Item | None:
        """Reserve the head: nobody else gets it. Then `confirm` or `abort` it by its `xid`; None for nothing."""
        return self._committed(self._taken(self._engine.reserve, timeout))

    def open_many(self, most: int, timeout: float | None = 0) -> list[Item]:
        """Reserve up to so many items from the head on; waits for the first one only."""
        _check_count(most)
        return self._committed(self._taken(lambda: self._engine.reserve_many(most) or None, timeout) or [])

    def confirm(self, *xids: int) -> None:
        """Finish items that were reserved: they are gone. `WrongUse` for an id that is not open; then none is."""
        self._engine.confirm(xids)
        self._committed(True)

    def abort(self, *xids: int) -> None:
        """Put items that were reserved back to the head, the one with the lowest id first.

        One that came back `max_attempts` times by then is parked instead.
        """
        self._engine.abort(xids)
        self._committed(True)
        self._engine.finish_moves()

    @contextmanager
    def reserved(self, timeout: float | None = 0) -> Iterator[Item | None]:
        """The head for the length of a `with` block: confirmed at its end, aborted if that is an exception."""
        item = self.open(timeout)
        try:
            yield item
        except BaseException:
            if item is not None:
                self.abort(item.xid)
            raise
        if item is not None:
            self.confirm(item.xid)

    def _taken(self, attempt: Callable[[], Result | None], timeout: float | None) -> Result | None:
        found = attempt()
        return self._settled(found, attempt, timeout) if found is None or self._engine.moves else found

    def _settled(
        self, found: Result | None, attempt: Callable[[], Result | None], timeout: float | None
    ) -> Result | None:
        """Move what has expired or failed too often, and wait for an item if there is none."""
        while self._engine.moves:
            self._engine.finish_moves()
            found = attempt() if found is None else found
        return self._wait(attempt, timeout) if found is None and timeout != 0 else found

    def _wait(self, attempt: Callable[[], Result | None], timeout: float | None) -> Result | None:
        engine = self._engine
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            turnstile = threading.Lock()
            turnstile.acquire()
            engine.wait_for(turnstile.release)
            try:
                found = self._settled(attempt(), attempt, 0)  # one may have come before anybody knew of us
                left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
                is_over = found is None and not turnstile.acquire(timeout=left)
            except BaseException:
                if not engine.stop_waiting(turnstile.release):
                    engine.pass_on()
                raise
            was_woken = not engine.stop_waiting(turnstile.release)
            if found is None:
                found = self._settled(attempt(), attempt, 0)
            elif was_woken:
                engine.pass_on()  # that was for another item, or for somebody else
            if found is not None or is_over:
                return found

    # --- all of them ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many items wait. Those that are open do not."""
        return self._engine.items

    def __bool__(self) -> bool:
        """A queue is a queue, even when it is empty."""
        return True

    def __iter__(self) -> Iterator[bytes]:
        """The data of all items that wait, from head to tail, as they are now. Nothing is removed."""
        return (entry[0] for entry in self._engine.iterate())

    def items(self) -> Iterator[Item]:
        """All items that wait, from head to tail, as they are now. Nothing is removed."""
        return map(as_item, self._engine.iterate())

    def flush(self) -> int:
        """Remove all items that wait; how many those were. Those that are open stay."""
        return self._committed(self._engine.flush_all())

    def sweep(self) -> int:
        """Remove items that have expired at the head, or let them move; how many those were."""
        return self._committed(self._engine.sweep())

    def unpark(self, most: int | None = None) -> int:
        """Put items that were parked back, at the tail and with no attempts counted; how many those were."""
        return self._engine.unpark(most)

    def stats(self) -> Stats:
        """What there is to know about the queue at this moment."""
        return stats_of(self._engine)

    # --- durability, and the end --------------------------------------------------------------------------------------

    def _committed(self, result: Result) -> Result:
        if self._is_always and result:
            self._engine.commit()
        return result

    def flush_buffer(self) -> None:
        """Give all operations so far to the operating system. Without `buffer_bytes` they are there already."""
        self._engine.flush()

    def sync(self) -> None:
        """Make all operations so far durable."""
        self._engine.sync()

    def delete(self) -> None:
        """Remove the queue with all its items and files, and close it."""
        if self._is_closed:
            raise Closed(f"{self.path}: this queue is closed")
        self._is_closed = True
        self._handle.delete()

    def close(self) -> None:
        """Sync, and let others open the queue. Items that are open come back then. A second call does nothing."""
        self._is_closed = True
        self._handle.close()


def _check_count(most: int) -> None:
    if most < 0:
        raise WrongUse(f"cannot take {most} items")
