"""Queue: a durable queue in a directory, for the threads of one process.

    with Queue("spool", "orders") as queue:
        queue.put(b"an order", expires=3600)
        data = queue.get(timeout=5)                     gone once it is returned

        with queue.reserve(timeout=5) as item:          confirmed at the end of the block; an exception puts it back
            handle(item.data)                           to the head, and `item.attempts` counts that

        item = queue.reserve(timeout=5)                 the same by hand: reserved until `confirm` or `abort`
        queue.confirm(item)

        for item in queue.consume():                    reserves one item after the other, and confirms each
            handle(item.data)                           when the loop asks for the next one

What a call guarantees when it returns, by the sync policy:

    none            the operation is with the operating system: it survives the end of this process, however that comes
                    about, but not a power cut
    interval(ms)    the same, and a background thread makes it durable that often
    always          the operation is on the disk; threads that call at the same time share one sync

With `buffer_bytes` up to this many bytes of operations are buffered before they are written, which is a few times
faster. Then `none` and `interval` promise the survival of the process only for what `flush` or `sync` has passed on.

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
from .engine import Engine, Hand
from .items import Item, as_item, own, xids_of
from .limits import Expires, Limits, Options, check_count, check_timeout
from .open_queues import Handle, Settings
from .stats import Stats, stats_of

Result = TypeVar("Result")
Held = TypeVar("Held", bound=Sized)


class Queue(Closing):
    """The queue `name` in a directory, created when there is none. `Limits` says what the other options are.

    `timeout` is how many seconds a call waits for an item: 0, the default, not at all; None for ever. A caller that
    waits is woken as soon as there is one. `clock` gives the time, in seconds since the epoch; `background` lets a
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
        self._is_always = self.policy == ALWAYS
        self._is_closed = False
        self._handle = Handle(Path(directory), name, Limits(**options), settings)
        with self._handle.opening():
            self._engine: Engine = self._handle.engine
            shelf = self._engine.shelf  # its methods are looked up once, as they are called all the time
            self._put: Callable[[Buffer, Expires | None], None] = shelf.put
            self._get: Callable[[], bytes | None] = shelf.hand_out

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
        """The torn tail that was cut off the journal on opening; None when it was whole."""
        return self._engine.recovered

    @property
    def kept(self) -> Path | None:
        """Where the torn tail is kept."""
        return self._engine.kept

    # --- putting ----------------------------------------------------------------------------------------------------

    def put(self, data: Buffer, expires: Expires | None = None) -> None:
        """Add an item at the tail. It expires after a number of seconds, after a timedelta, or at a datetime; or never.

        `Full` when there is no room for it, `TooLarge` when it is larger than an item may be.
        """
        if self._handle.has_children:
            self._put_to_all([as_bytes(data)], expires)
            return
        engine = self._engine
        try:
            self._put(data, expires)
            if self._is_always:
                engine.commit()
            if engine.moves:
                engine.moving.attempt()
        except BaseException as error:
            self._woken(error)
            raise

    def put_many(self, items: Iterable[Buffer], expires: Expires | None = None) -> int:
        """Add items at the tail, all of them or none, with one write and one sync; how many those were."""
        contents = [as_bytes(data) for data in items]
        self._put_to_all(contents, expires)
        return len(contents)

    def _put_to_all(self, contents: list[bytes], expires: Expires | None) -> None:
        try:
            family = self._handle.put_to_all(contents, expires)
            for engine in family:
                if self._is_always:
                    engine.commit()
                engine.moving.attempt()
        except BaseException as error:
            self._woken(error)
            raise

    def _woken(self, error: BaseException) -> None:
        """After an interrupt: an item may be there, and the caller that waits for it may not have been woken."""
        if not isinstance(error, LogwrightError):
            self._engine.pass_on()

    # --- taking -----------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = 0) -> bytes | None:
        """Remove the head and return its data; None when there is nothing: b"" is an item."""
        if timeout != 0:
            check_timeout(timeout)
        engine = self._engine
        try:
            data = self._get()
            if data is None or engine.moves:
                data = self._settled(engine, data, self._get, timeout)
            if self._is_always and data is not None:
                engine.commit()
            engine.shelf.holds = False  # no call: an interrupt can come before this or after the return
            return data
        except Closed:
            raise
        except BaseException as error:
            self._give_back(error, engine.hand(), engine.give_back)
            raise

    def get_many(self, most: int, timeout: float | None = 0) -> list[bytes]:
        """Remove up to `most` items from the head; waits for the first one only.

        Returns fewer if the next one cannot be read; the next call then raises the error.
        """
        check_count(most)
        check_timeout(timeout)
        engine = self._engine

        def take(most: int, hand: Hand) -> list[bytes]:
            return [entry[0] for entry in engine.take_many(most, hand)]

        return self._taken(engine, take, most, Hand(), engine.give_back, timeout)

    def peek(self) -> bytes | None:
        """The data of the head, which stays; None when there is nothing."""
        engine = self._engine
        item = self._settled(engine, engine.peek(), engine.peek, 0)
        return None if item is None else item.data

    def reserve(self, timeout: float | None = 0) -> Item:
        """Reserve the head: no other caller gets it. `Empty` when there is no item within the timeout.

        Use the item in a `with` block, or call `confirm` or `abort` with it.
        """
        found = self.reserve_many(1, timeout)
        if not found:
            raise Empty(f"{self.path}: there is no item to reserve")
        return found[0]

    def reserve_many(self, most: int, timeout: float | None = 0) -> list[Item]:
        """Reserve up to `most` items from the head; waits for the first one only. An empty list when there is none."""
        check_count(most)
        check_timeout(timeout)
        engine = self._engine
        hand: list[int] = []

        def take(most: int, hand: list[int]) -> list[Item]:
            return own(engine.reserve_many(most, hand), self)

        return self._taken(engine, take, most, hand, engine.put_back_unseen, timeout)

    def consume(self, timeout: float | None = None) -> Generator[Item, None, None]:
        """Reserve one item after the other, for a `for` loop. Each is confirmed when the loop asks for the next one.

        A loop that is left, by an exception, `break` or `return`, aborts the item that it has: it goes back to the
        head. Confirm it first if its work is done. The loop ends when no item arrives within the timeout (None waits
        without end), and when another thread closes the queue.
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
        """Finish items that were reserved, given by themselves or by their ids: they are gone.

        `WrongUse` for one that is not open; then nothing is changed.
        """
        engine = self._engine
        engine.confirm(xids_of(items))
        self._committed(engine, True)

    def abort(self, *items: Item | int) -> None:
        """Put items that were reserved back to the head, the one with the lowest id first.

        One that came back `max_attempts` times by then is parked instead.
        """
        engine = self._engine
        engine.abort(xids_of(items))
        self._committed(engine, True)
        engine.moving.finish()

    def settle(self, item: Item, error: BaseException | None) -> None:
        """What the end of a `with` block of an item does."""
        if self._is_closed:  # the item went back to the head
            if error is None:
                _refuse_closed(self.path)
        elif self._engine.is_open(item.xid):
            self.abort(item) if error is not None else self.confirm(item)

    def _taken(
        self,
        engine: Engine,
        take: Callable[[int, Held], list[Result]],
        most: int,
        hand: Held,
        give_back: Callable[[Held], None],
        timeout: float | None,
    ) -> list[Result]:
        """What was taken, durably. What is in the hand when that is interrupted goes back."""

        def attempt() -> list[Result] | None:
            return take(most, hand) or None

        try:
            found = attempt()
            if found is None or engine.moves:
                found = self._settled(engine, found, attempt, timeout)
            return self._committed(engine, found or [])
        except BaseException as error:
            self._give_back(error, hand, give_back)
            raise

    def _give_back(self, error: BaseException, hand: Held, give_back: Callable[[Held], None]) -> None:
        if hand and not isinstance(error, LogwrightError):
            give_back(hand)
            if self._is_always and not self._is_closed:
                with suppress(LogwrightError):
                    self._engine.commit()

    def _settled(
        self, engine: Engine, found: Result | None, attempt: Callable[[], Result | None], timeout: float | None
    ) -> Result | None:
        """Move what has expired or failed too often, and wait for an item if there is none."""
        while found is None and engine.moves:
            engine.moving.finish()
            found = attempt()
        if engine.moves:
            engine.moving.attempt()  # what we have found must not be lost if that fails
        return self._wait(engine, attempt, timeout) if found is None and timeout != 0 else found

    def _wait(self, engine: Engine, attempt: Callable[[], Result | None], timeout: float | None) -> Result | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            turnstile = _Turnstile()
            try:
                engine.wait_for(turnstile.wake)
                if self._is_closed:  # the engine may not be: see `close`
                    _refuse_closed(self.path)
                found = self._settled(engine, attempt(), attempt, 0)  # one may have arrived before we were registered
                is_over = found is None and not turnstile.wait(deadline)
                if self._is_closed and found is None:
                    _refuse_closed(self.path)
                was_woken = not engine.stop_waiting(turnstile.wake)
                if found is None:
                    found = self._settled(engine, attempt(), attempt, 0)
                elif was_woken:
                    engine.pass_on()  # that was for another item, or for another caller
                if found is not None or is_over:
                    return found
            except BaseException:
                engine.stop_waiting(turnstile.wake)
                engine.pass_on()  # it may have been woken for an item that it will not take
                raise

    # --- all of them ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many items wait. Those that are open do not."""
        self._engine.check_process()
        return self._engine.shelf.items

    def __bool__(self) -> bool:
        """A queue is a queue, even when it is empty."""
        return True

    def __iter__(self) -> Iterator[bytes]:
        """The data of all items that wait, from head to tail, as they are now. Nothing is removed."""
        return (entry[0] for entry in self._engine.iterate())

    def items(self) -> Iterator[Item]:
        """All items that wait, from head to tail, as they are now. Nothing is removed."""
        return map(as_item, self._engine.iterate())

    def clear(self) -> int:
        """Remove all items that wait, and return their number. Reserved items stay."""
        engine = self._engine
        return self._committed(engine, engine.flush_all())

    def sweep(self) -> int:
        """Remove items that have expired at the head, or let them move; how many those were."""
        engine = self._engine
        return self._committed(engine, engine.sweep())

    def unpark(self, most: int | None = None) -> int:
        """Put items that were parked back, at the tail and with no attempts counted; how many those were."""
        return self._engine.unpark(most)

    def stats(self) -> Stats:
        """What there is to know about the queue at this moment."""
        return stats_of(self._engine)

    # --- durability, and the end --------------------------------------------------------------------------------------

    def _committed(self, engine: Engine, result: Result) -> Result:
        if self._is_always and result:
            engine.commit()
        return result

    def flush(self) -> None:
        """Pass all operations so far to the operating system. Without `buffer_bytes` each call has done that."""
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
        """Sync, and let others open the queue. Items that are open come back then. A second call does nothing.

        A caller that waits for an item gets `Closed`, and so does every later call.
        """
        self._forget_engine()
        self._handle.close()

    def _forget_engine(self) -> None:
        # The engine may outlive this: a parent puts to its children, others move items there.
        if not self._is_closed:
            closed = _ClosedEngine(self._engine)
            self._put = self._get = closed.refuse
            self._engine = cast(Engine, closed)
            self._is_closed = True


class _ClosedEngine:
    """What a closed queue has in the place of its engine: what it was like, and nothing to call."""

    def __init__(self, engine: Engine) -> None:
        self.queue, self.path = engine.queue, engine.path
        self.recovered, self.kept = engine.recovered, engine.kept

    def refuse(self, *arguments: object) -> NoReturn:
        _refuse_closed(self.path)

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse()


class _Turnstile:
    """Where a thread waits. It may be woken more than once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake already
            self._lock.release()

    def wait(self, deadline: float | None) -> bool:
        """Whether it was woken before a time of the monotonic clock, None for none."""
        left = -1 if deadline is None else min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        return self._lock.acquire(timeout=left)


def describe(kind: type, path: Path, engine: Engine | None) -> str:
    """A queue in a line, for people."""
    state = "closed" if engine is None else f"{engine.shelf.items} items, {len(engine.open_items)} open"
    return f"<{kind.__name__} {path}: {state}>"


def _refuse_closed(path: Path) -> NoReturn:
    raise Closed(f"{path}: this queue is closed")
