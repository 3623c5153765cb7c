"""Queue: a durable queue in a directory, for the threads of one process.

    with Queue("spool", "orders") as queue:
        queue.put(b"an order", expires=3600)
        data = queue.get(timeout=5)                     removed when it is returned

        with queue.reserve(timeout=5) as item:          the end of the block confirms it; an exception puts it back at
            handle(item.data)                           the head, and increments `item.attempts`

        item = queue.reserve(timeout=5)                 the same without a block: reserved until `confirm` or `abort`
        queue.confirm(item)

        for item in queue.consume():                    reserves one item at a time, and confirms it when the loop
            handle(item.data)                           asks for the next one

What a call guarantees when it returns, by the sync policy:

    none            the operating system has the operation: it survives any end of this process, but not a power cut
    interval(ms)    the same, and a background thread syncs at this interval
    always          the operation is on the disk; threads that call at the same time share one sync

With `buffer_bytes` up to this many bytes of operations are buffered before they are written, which is a few times
faster. With `none` and `interval`, operations then survive the end of the process only after `flush` or `sync`.

A crash leaves all operations up to some point, each once. When the queue is opened again, open items are put back at
the head, lowest id first, and the journal records that.

`attempts` is how many times an item was put back. The journal records it, as UNREMOVE operations, so it survives
restarts and compaction.

One process has the queue open at a time; another one gets `Locked`. After a failed write or sync every call raises
`Poisoned`: open the queue again, with everything that was acknowledged.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar, Unpack, cast

from ...core.bytes.buffers import Buffer, as_bytes
from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import ALWAYS, SyncLike, parse_sync
from ...core.write.closing import Closing
from ...errors import Closed, Empty, LogwrightError
from ..bytes.records import Dialect
from .engine import Engine, RemovedItems
from .items import Item, as_item, set_owner, xids_of
from .limits import Expires, Limits, Options, check_count, check_timeout
from .open_queues import Handle, Settings
from .stats import Stats, stats_of

Result = TypeVar("Result")
Held = TypeVar("Held", bound=Sized)


class Queue(Closing):
    """The queue `name` in a directory, which is created if it does not exist. `Limits` documents the other options.

    `timeout` is how many seconds a call waits for an item: 0, the default, not at all; None for ever. It returns as
    soon as there is one. `clock` returns the time, in seconds since the epoch. With `background`, a thread packs large
    journals.
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
        self._is_always = self.policy == ALWAYS
        self._is_closed = False
        self._handle = Handle(Path(directory), name, Limits(**options), settings)
        with self._handle.opening():
            self._engine: Engine = self._handle.engine
            shelf = self._engine.shelf  # its methods are looked up once, because they are called very often
            self._put: Callable[[Buffer, Expires | None], None] = shelf.put
            self._get: Callable[[], bytes | None] = shelf.get_and_hold

    @property
    def name(self) -> str:
        return self._engine.queue

    def __repr__(self) -> str:
        return describe(type(self), self.path, None if self._is_closed else self._engine)

    @property
    def path(self) -> Path:
        """The path of the newest file of the journal."""
        return self._engine.path

    @property
    def recovered(self) -> Damage | None:
        """The torn tail that opening has cut off the journal; None if there was none."""
        return self._engine.recovered

    @property
    def kept(self) -> Path | None:
        """Where the torn tail is kept."""
        return self._engine.kept

    # --- putting ----------------------------------------------------------------------------------------------------

    def put(
        self,
        data: Buffer,
        expires: Expires | None = None,
        *,
        delay: Expires | None = None,
        id: str | bytes | None = None,
    ) -> bool:
        """Add an item at the tail. It expires after a number of seconds, after a timedelta, or at a datetime; or never.

        With a delay, given in the same ways, it is added when that is over; such an item cannot expire. With an id, it
        is added only if none was put with this id within `id_window`; returns whether it was.

        Raises `Full` if there is no room for it, and `TooLarge` if it exceeds the limit of an item.
        """
        if self._handle.has_children or delay is not None or id is not None:
            return self._put_to_all([as_bytes(data)], expires, delay, id)
        engine = self._engine
        try:
            self._put(data, expires)
            if self._is_always:
                engine.commit()
            if engine.moves:
                engine.moving.finish_or_log()
            return True
        except BaseException as error:
            self._wake_after_interrupt(error)
            raise

    def put_many(self, items: Iterable[Buffer], expires: Expires | None = None, *, delay: Expires | None = None) -> int:
        """Add items at the tail, all of them or none, with one write and one sync; returns their number."""
        contents = [as_bytes(data) for data in items]
        self._put_to_all(contents, expires, delay)
        return len(contents)

    def _put_to_all(
        self,
        contents: list[bytes],
        expires: Expires | None,
        delay: Expires | None = None,
        id: str | bytes | None = None,
    ) -> bool:
        try:
            is_new, family = self._handle.put_to_all(contents, expires, delay, id)
            for engine in family:
                if self._is_always:
                    engine.commit()
                engine.moving.finish_or_log()
            return is_new
        except BaseException as error:
            self._wake_after_interrupt(error)
            raise

    def _wake_after_interrupt(self, error: BaseException) -> None:
        """After an interrupt, the item may have been added without waking the caller that waits for it."""
        if not isinstance(error, LogwrightError):
            self._engine.wake_next()

    # --- taking -----------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = 0) -> bytes | None:
        """Remove the head and return its data; None if there is no item (b"" is an item)."""
        if timeout != 0:
            check_timeout(timeout)
        engine = self._engine
        try:
            data = self._get()
            if data is None or engine.moves:
                data = self._move_and_wait(engine, data, self._get, timeout)
            if self._is_always and data is not None:
                engine.commit()
            engine.shelf.holds = False  # not a call: an interrupt comes before this line, or after the return
            return data
        except Closed:
            raise
        except BaseException as error:
            self._give_back(error, engine.take_held(), engine.give_back)
            raise

    def get_many(self, most: int, timeout: float | None = 0) -> list[bytes]:
        """Remove up to `most` items from the head; waits for the first one only.

        Returns fewer if one cannot be read; the next call then raises the error.
        """
        check_count(most)
        check_timeout(timeout)
        engine = self._engine

        def take(most: int, taken: RemovedItems) -> list[bytes]:
            return [entry[0] for entry in engine.take_many(most, taken)]

        return self._taken(engine, take, most, RemovedItems(), engine.give_back, timeout)

    def peek(self) -> bytes | None:
        """The data of the head, which is not removed; None if there is no item."""
        engine = self._engine
        item = self._move_and_wait(engine, engine.peek(), engine.peek, 0)
        return None if item is None else item.data

    def reserve(self, timeout: float | None = 0) -> Item:
        """Reserve the head: no other caller gets it. Raises `Empty` if there is no item within the timeout.

        Use the item in a `with` block, or call `confirm` or `abort` with it.
        """
        found = self.reserve_many(1, timeout)
        if not found:
            raise Empty(f"{self.path}: there is no item to reserve")
        return found[0]

    def reserve_many(self, most: int, timeout: float | None = 0) -> list[Item]:
        """Reserve up to `most` items from the head; waits for the first one only. The list may be empty."""
        check_count(most)
        check_timeout(timeout)
        engine = self._engine
        taken: list[int] = []

        def take(most: int, taken: list[int]) -> list[Item]:
            return set_owner(engine.reserve_many(most, taken), self)

        return self._taken(engine, take, most, taken, engine.put_back_undelivered, timeout)

    def consume(self, timeout: float | None = None) -> Generator[Item, None, None]:
        """Reserve items one at a time, for a `for` loop. Each is confirmed when the loop asks for the next one.

        An exception, `break` or `return` in the loop aborts the current item: it is put back at the head. Confirm it
        first if its work is done. The loop ends when no item arrives within the timeout (None waits for ever), and
        when another thread closes the queue.
        """
        if self._is_closed:
            _refuse_closed(self.path)
        return self._consumed(timeout)

    def _consumed(self, timeout: float | None) -> Generator[Item, None, None]:
        while True:
            try:
                item = self.reserve(timeout)
            except (Empty, Closed):
                return
            with item:
                yield item

    def confirm(self, *items: Item | int) -> None:
        """Finish items that were reserved, given as items or as ids: they are removed.

        Raises `WrongUse` if one of them is not open, and changes nothing.
        """
        engine = self._engine
        engine.confirm(xids_of(items))
        self._committed(engine, True)

    def abort(self, *items: Item | int, delay: Expires | None = None) -> None:
        """Put items that were reserved back at the head, lowest id first.

        With a delay they are at the head again when it is over; by default that is `retry_delay`. An item that has now
        failed `max_attempts` times is parked instead.
        """
        engine = self._engine
        engine.abort(xids_of(items), delay)
        self._committed(engine, True)
        engine.moving.finish()

    def settle(self, item: Item, error: BaseException | None) -> None:
        """Confirm or abort an item at the end of its `with` block."""
        if self._is_closed:  # closing has put the item back at the head
            if error is None:
                _refuse_closed(self.path)
        elif self._engine.is_open(item.xid):
            self.abort(item) if error is not None else self.confirm(item)

    def _taken(
        self,
        engine: Engine,
        take: Callable[[int, Held], list[Result]],
        most: int,
        taken: Held,
        give_back: Callable[[Held], None],
        timeout: float | None,
    ) -> list[Result]:
        """Take items durably. If this is interrupted, the items in `taken` are put back."""

        def attempt() -> list[Result] | None:
            return take(most, taken) or None

        try:
            found = attempt()
            if found is None or engine.moves:
                found = self._move_and_wait(engine, found, attempt, timeout)
            return self._committed(engine, found or [])
        except BaseException as error:
            self._give_back(error, taken, give_back)
            raise

    def _give_back(self, error: BaseException, taken: Held, give_back: Callable[[Held], None]) -> None:
        if taken and not isinstance(error, LogwrightError):
            give_back(taken)
            if self._is_always and not self._is_closed:
                with suppress(LogwrightError):
                    self._engine.commit()

    def _move_and_wait(
        self, engine: Engine, found: Result | None, attempt: Callable[[], Result | None], timeout: float | None
    ) -> Result | None:
        """Move items that have expired or failed too often, and wait for an item if none was found."""
        while found is None and (engine.release_due() or engine.moves):
            engine.moving.finish()
            found = attempt()
        if engine.moves:
            engine.moving.finish_or_log()  # a failure must not lose the items that were found
        return self._wait(engine, attempt, timeout) if found is None and timeout != 0 else found

    def _wait(self, engine: Engine, attempt: Callable[[], Result | None], timeout: float | None) -> Result | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            wake_up = _WakeUp()
            try:
                engine.wait_for(wake_up.wake)
                if self._is_closed:  # the engine may still be open: see `_forget_engine`
                    _refuse_closed(self.path)
                found = self._move_and_wait(engine, attempt(), attempt, 0)  # one may have arrived before `wait_for`
                is_over = found is None and not wake_up.wait(deadline, engine.seconds_until_due())
                if self._is_closed and found is None:
                    _refuse_closed(self.path)
                was_woken = not engine.stop_waiting(wake_up.wake)
                if found is None:
                    found = self._move_and_wait(engine, attempt(), attempt, 0)
                elif was_woken:
                    engine.wake_next()  # the wake-up was for another item
                if found is not None or is_over:
                    return found
            except BaseException:
                engine.stop_waiting(wake_up.wake)
                engine.wake_next()  # this caller may have been woken for an item that it will not take
                raise

    # --- all of them ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of waiting items, without reserved ones."""
        self._engine.check_process()
        return self._engine.shelf.items

    def __bool__(self) -> bool:
        """Always True, also for an empty queue."""
        return True

    def __iter__(self) -> Iterator[bytes]:
        """The data of all waiting items, from head to tail, as they are now. Nothing is removed."""
        return (entry[0] for entry in self._engine.iterate())

    def items(self) -> Iterator[Item]:
        """All waiting items, from head to tail, as they are now. Nothing is removed."""
        return map(as_item, self._engine.iterate())

    def clear(self) -> int:
        """Remove all waiting and delayed items, and return their number. Reserved items stay."""
        engine = self._engine
        return self._committed(engine, engine.clear())

    def sweep(self) -> int:
        """Remove or move expired items at the head, and return their number. Delayed items that are due are added."""
        engine = self._engine
        return self._committed(engine, engine.sweep())

    def unpark(self, most: int | None = None) -> int:
        """Put parked items back, at the tail and with attempts reset; returns their number."""
        return self._engine.unpark(most)

    def stats(self) -> Stats:
        """The figures of the queue now."""
        return stats_of(self._engine)

    # --- durability, and the end --------------------------------------------------------------------------------------

    def _committed(self, engine: Engine, result: Result) -> Result:
        if self._is_always and result:
            engine.commit()
        return result

    def flush(self) -> None:
        """Pass all operations so far to the operating system. Without `buffer_bytes`, every call does that."""
        self._engine.flush()

    def sync(self) -> None:
        """Make all operations so far durable."""
        self._engine.sync()

    def delete(self) -> None:
        """Remove the queue with all its items and files, and close it."""
        if self._is_closed:
            _refuse_closed(self.path)
        self._forget_engine()
        self._handle.delete()

    def close(self) -> None:
        """Sync, and release the lock. The next opening puts open items back. A second call does nothing.

        A caller that waits for an item gets `Closed`, and so does every later call.
        """
        self._forget_engine()
        self._handle.close()

    def _forget_engine(self) -> None:
        # The engine may outlive this object: parents put items there, and other queues move items there.
        if not self._is_closed:
            closed = _ClosedEngine(self._engine)
            self._put = self._get = closed.refuse
            self._engine = cast(Engine, closed)
            self._is_closed = True


class _ClosedEngine:
    """Replaces the engine of a closed queue: has its names, and refuses every call."""

    def __init__(self, engine: Engine) -> None:
        self.queue, self.path = engine.queue, engine.path
        self.recovered, self.kept = engine.recovered, engine.kept

    def refuse(self, *arguments: object) -> NoReturn:
        _refuse_closed(self.path)

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse()


class _WakeUp:
    """An event that one thread waits for. It may be woken more than once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it has been woken already
            self._lock.release()

    def wait(self, deadline: float | None, most: float | None) -> bool:
        """Wait until a time of the monotonic clock (None: for ever), or for `most` seconds (None: for longer).

        Returns False after the deadline, otherwise True.
        """
        left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
        most = math.inf if most is None else most
        if deadline is None and most == math.inf:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(left, most, threading.TIMEOUT_MAX)) or most < left


def describe(kind: type, path: Path, engine: Engine | None) -> str:
    """The `repr` of a queue."""
    state = "closed" if engine is None else f"{engine.shelf.items} items, {len(engine.open_items)} open"
    return f"<{kind.__name__} {path}: {state}>"


def _refuse_closed(path: Path) -> NoReturn:
    raise Closed(f"{path}: this queue is closed")
