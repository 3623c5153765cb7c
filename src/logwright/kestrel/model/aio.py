"""AsyncQueue: a queue for the tasks of an event loop. `queue.py` documents its calls and what they guarantee.

    async with AsyncQueue("spool", "orders", sync="always") as queue:       # or: queue = await AsyncQueue.open(…)
        await queue.put(b"an order")
        async with queue.reserve(timeout=5) as item:                        # or: item = await queue.reserve(…)
            await handle(item.data)

With `sync="always"` all tasks that call at the same time share one sync. A thread does it while the loop continues. The
memory is changed at once, in the order of the calls.

A cancelled task loses no item. While it waits for an item it has none. If it is cancelled during the sync of its call,
a `put`, `confirm` or `abort` takes effect. An item that it was reserving is put back at the head, which counts as an
attempt; an item that its `get` has removed is put back too (see `Engine.give_back`).

A queue belongs to the event loop in which it was opened. In other loops its calls raise `WrongUse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, Self, TypeVar, Unpack

from ...core.bytes.buffers import Buffer, as_bytes
from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import ALWAYS, AsyncGroupCommit, SyncLike, parse_sync
from ...core.write.aio import AsyncOpening, opened, to_the_end
from ...errors import Closed, Empty, LogwrightError, WrongUse
from ..bytes.layout import check_queue_name
from ..bytes.records import Dialect
from .engine import Engine, RemovedItems
from .items import Item, as_item, xids_of
from .limits import Expires, Limits, Options, check_count, check_timeout
from .open_queues import Handle, Settings
from .queue import describe
from .shelf import Entry
from .stats import Stats, stats_of

Found = TypeVar("Found")


class Request(NamedTuple, Generic[Found]):
    """A request of a task: how to get items, and how to put them back if the task is cancelled."""

    attempt: Callable[[], Found | None]
    give_back: Callable[[Found], None]


class AsyncQueue(AsyncOpening):
    """The queue `name` in a directory, opened by `async with` or `await`. The options are those of `Queue`."""

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
        check_queue_name(name)
        self.name = name
        self.path = Path(directory).absolute() / name
        settings = Settings(
            sync=self.policy, buffer_bytes=buffer_bytes, dialect=dialect, background=background, clock=clock, disk=disk
        )
        limits = Limits(**options)
        self._open_handle = lambda: Handle(Path(directory), name, limits, settings).open()
        self._handle: Handle | None = None
        self._groups: dict[Engine, AsyncGroupCommit] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_always = self.policy == ALWAYS

    def __repr__(self) -> str:
        return describe(type(self), self.path, None if self._handle is None else self._handle.engine)

    @property
    def handle(self) -> Handle:
        """The underlying handle. Raises `Closed` unless the queue is open."""
        if self._handle is None:
            self._refuse_closed()
        return self._handle

    def _refuse_closed(self) -> NoReturn:
        raise Closed(f"{self.path}: this queue is not open")

    def _handle_here(self) -> Handle:
        """The underlying handle. Raises `WrongUse` in another event loop."""
        handle = self.handle
        if asyncio.get_running_loop() is not self._loop:
            raise WrongUse(f"{self.path}: this queue belongs to another event loop: open it in the one that uses it")
        return handle

    def _engine_here(self) -> Engine:
        return self._handle_here().engine

    @property
    def recovered(self) -> Damage | None:
        """The torn tail that opening has cut off the journal; None if there was none."""
        return self.handle.engine.recovered

    @property
    def kept(self) -> Path | None:
        """Where the torn tail is kept."""
        return self.handle.engine.kept

    async def _commit(self, engine: Engine) -> None:
        if not self._is_always:
            return
        if self._handle is None:  # the queue is being closed, and its groups too
            await asyncio.to_thread(engine.commit)
            return
        group = self._groups.get(engine)
        if group is None:
            group = self._groups[engine] = AsyncGroupCommit(engine.commit)
        await group.wait()

    # --- putting ----------------------------------------------------------------------------------------------------

    async def put(
        self,
        data: Buffer,
        expires: Expires | None = None,
        *,
        delay: Expires | None = None,
        id: str | bytes | None = None,
    ) -> bool:
        """Add an item at the tail, or with a delay later, or under an id; see `Queue.put`."""
        handle = self._handle_here()
        if handle.has_children or delay is not None or id is not None:
            return await self._put_to_all(handle, [as_bytes(data)], expires, delay, id)
        engine = handle.engine
        engine.shelf.put(data, expires)
        if self._is_always:
            await self._commit(engine)
        if engine.moves:
            await asyncio.to_thread(engine.moving.finish_or_log)
        return True

    async def put_many(
        self, items: Iterable[Buffer], expires: Expires | None = None, *, delay: Expires | None = None
    ) -> int:
        """Add items at the tail, all of them or none; returns their number."""
        contents = [as_bytes(data) for data in items]
        await self._put_to_all(self._handle_here(), contents, expires, delay, None)
        return len(contents)

    async def _put_to_all(
        self,
        handle: Handle,
        contents: Sequence[bytes],
        expires: Expires | None,
        delay: Expires | None,
        id: str | bytes | None,
    ) -> bool:
        is_new, family = await asyncio.to_thread(handle.put_to_all, contents, expires, delay, id)
        await asyncio.gather(*(self._commit(engine) for engine in family))
        for engine in family:
            if engine.moves:
                await asyncio.to_thread(engine.moving.finish_or_log)
        return is_new

    # --- taking -----------------------------------------------------------------------------------------------------

    async def get(self, timeout: float | None = 0) -> bytes | None:
        """Remove the head and return its data; None if there is no item."""
        if timeout != 0:
            check_timeout(timeout)
        engine = self._engine_here()
        if not self._is_always and not engine.can_move:  # a shortcut: there is nothing to wait for
            data = engine.shelf.get()
            if data is not None:
                return data
        found = await self._taken(engine, _removing(engine, 1), timeout)
        return found[0][0] if found else None

    async def get_many(self, most: int, timeout: float | None = 0) -> list[bytes]:
        """Remove up to `most` items from the head; waits for the first one only."""
        check_count(most)
        check_timeout(timeout)
        engine = self._engine_here()
        found = await self._taken(engine, _removing(engine, most), timeout)
        return [entry[0] for entry in found or ()]

    async def peek(self) -> bytes | None:
        """The data of the head, which is not removed; None if there is no item."""
        engine = self._engine_here()
        item = await self._move_and_wait(engine, Request(engine.peek, lambda item: None), 0)
        return None if item is None else item.data

    def reserve(self, timeout: float | None = 0) -> Reserving:
        """Reserve the head, to be awaited or used with `async with`; see `Queue.reserve`."""
        return Reserving(self, timeout)

    async def reserve_one(self, timeout: float | None) -> Item:
        """The coroutine of `reserve`."""
        found = await self.reserve_many(1, timeout)
        if not found:
            raise Empty(f"{self.path}: there is no item to reserve")
        return found[0]

    async def reserve_many(self, most: int, timeout: float | None = 0) -> list[Item]:
        """Reserve up to `most` items from the head; waits for the first one only. The list may be empty."""
        check_count(most)
        check_timeout(timeout)
        engine = self._engine_here()
        return await self._taken(engine, _reserving(engine, most), timeout) or []

    async def confirm(self, *items: Item | int) -> None:
        """Finish items that were reserved; see `Queue.confirm`."""
        engine = self._engine_here()
        engine.confirm(xids_of(items))
        await self._commit(engine)

    async def abort(self, *items: Item | int, delay: Expires | None = None) -> None:
        """Put items that were reserved back at the head, at once or after a delay; see `Queue.abort`."""
        engine = self._engine_here()
        engine.abort(xids_of(items), delay)
        await self._commit(engine)
        if engine.moves:
            await asyncio.to_thread(engine.moving.finish)

    async def consume(self, timeout: float | None = None) -> AsyncGenerator[Item, None]:
        """Reserve one item after the other, for an `async for` loop; see `Queue.consume`."""
        self._handle_here()
        while True:
            try:
                item = await self.reserve(timeout)
            except (Empty, Closed):
                return
            try:
                yield item
            except BaseException:
                await self.settle(item, is_done=False)
                raise
            await self.settle(item, is_done=True)

    async def settle(self, item: Item, *, is_done: bool) -> None:
        """Confirm an item that is still reserved, or abort it."""
        if not is_done:
            if self._handle is not None and self._engine_here().is_open(item.xid):
                await to_the_end(self.abort(item))
        elif self._engine_here().is_open(item.xid):
            await self.confirm(item)

    async def _taken(self, engine: Engine, request: Request[Found], timeout: float | None) -> Found | None:
        """The items of a request, taken durably; None if there are none."""
        found = await self._move_and_wait(engine, request, timeout)
        if found is not None and self._is_always:
            await self._wait_holding(engine, found, request, self._commit(engine))
        return found

    async def _move_and_wait(self, engine: Engine, request: Request[Found], timeout: float | None) -> Found | None:
        """Fulfil a request: move items that have expired or failed too often, and wait if there is no item."""
        found = request.attempt()
        while found is None and engine.moves:
            await asyncio.to_thread(engine.moving.finish)
            found = request.attempt()
        if engine.moves and found is not None:
            await self._wait_holding(engine, found, request, asyncio.to_thread(engine.moving.finish_or_log))
        if found is None and timeout != 0:
            return await self._wait(engine, request, timeout)
        return found

    async def _wait_holding(
        self, engine: Engine, found: Found, request: Request[Found], work: Awaitable[object]
    ) -> None:
        """Wait for `work` while the task has items. If the task is cancelled, they are put back durably."""
        try:
            await work
        except asyncio.CancelledError:
            with suppress(LogwrightError):
                request.give_back(found)
                await to_the_end(self._commit(engine))
            raise

    async def _wait(self, engine: Engine, request: Request[Found], timeout: float | None) -> Found | None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            wake = partial(_wake, loop, woken)
            engine.wait_for(wake)
            is_over = False
            try:
                found = await self._move_and_wait(engine, request, 0)
                left = None if deadline is None else max(0.0, deadline - loop.time())
                due = engine.seconds_until_due()
                is_cut = due is not None and (left is None or due < left)  # wait only until the next item is due
                if found is None and not (await asyncio.wait([woken], timeout=due if is_cut else left))[0]:
                    is_over = not is_cut
                if self._handle is None and found is None:  # the engine may stay open: see `Queue.close`
                    self._refuse_closed()
            except BaseException:
                if not engine.stop_waiting(wake):
                    engine.wake_next()
                raise
            was_woken = not engine.stop_waiting(wake)
            if found is None:
                found = await self._move_and_wait(engine, request, 0)
            elif was_woken:
                engine.wake_next()
            if found is not None or is_over:
                return found

    # --- all of them ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of waiting items, without reserved ones."""
        self.handle.engine.check_process()
        return self.handle.engine.shelf.items

    def __bool__(self) -> bool:
        """Always True, also for an empty queue."""
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The data of all waiting items, from head to tail, as they are when the iteration begins."""
        async for entry in self._entries():
            yield entry[0]

    async def items(self) -> AsyncIterator[Item]:
        """All waiting items, from head to tail, as they are when the iteration begins. Nothing is removed."""
        async for entry in self._entries():
            yield as_item(entry)

    async def _entries(self) -> AsyncIterator[Entry]:
        entries = await asyncio.to_thread(self._engine_here().iterate)
        while batch := await asyncio.to_thread(_next_of, entries):
            for entry in batch:
                yield entry

    async def clear(self) -> int:
        """Remove all waiting and delayed items, and return their number. Reserved items stay."""
        engine = self._engine_here()
        count = await asyncio.to_thread(engine.clear)
        await self._commit(engine)
        return count

    async def sweep(self) -> int:
        """Remove or move expired items at the head; returns their number."""
        engine = self._engine_here()
        count = await asyncio.to_thread(engine.sweep)
        await self._commit(engine)
        return count

    async def unpark(self, most: int | None = None) -> int:
        """Put parked items back, at the tail and with attempts reset; returns their number."""
        return await asyncio.to_thread(self._engine_here().unpark, most)

    def stats(self) -> Stats:
        """The figures of the queue now."""
        return stats_of(self.handle.engine)

    # --- durability, and the end --------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Pass all operations so far to the operating system."""
        await asyncio.to_thread(self._engine_here().flush)

    async def sync(self) -> None:
        """Make all operations so far durable."""
        await asyncio.to_thread(self._engine_here().sync)

    async def delete(self) -> None:
        """Remove the queue with all its items and files, and close it."""
        await self._end(self._handle_here().delete)

    async def close(self) -> None:
        """Sync, and let others open the queue. A second call does nothing.

        A caller that waits for an item gets `Closed`, and so does every later call.
        """
        if self._handle is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._handle_here()
            await self._end(self._handle.close)

    async def _end(self, end: Callable[[], None]) -> None:
        self._handle = None
        await to_the_end(self._ended(end))

    async def _ended(self, end: Callable[[], None]) -> None:
        groups, self._groups = self._groups, {}
        try:
            if self._loop is asyncio.get_running_loop():  # else that loop has ended, and its tasks too
                for group in groups.values():
                    await group.close()
        finally:
            await asyncio.to_thread(end)

    async def __aenter__(self) -> Self:
        if self._handle is None:
            self._handle = await opened(self._open_handle)
            self._loop = asyncio.get_running_loop()
        return self


class Reserving(Coroutine[Any, Any, Item]):
    """A call of `AsyncQueue.reserve`: `await` returns the item; `async with` also confirms or aborts it."""

    def __init__(self, queue: AsyncQueue, timeout: float | None) -> None:
        self._queue = queue
        self._call = queue.reserve_one(timeout)
        self._item: Item | None = None

    def __await__(self) -> Generator[Any, Any, Item]:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        return self._call.throw(*error)

    def close(self) -> None:
        self._call.close()

    async def __aenter__(self) -> Item:
        self._item = await self._call
        return self._item

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._item is not None:
            await self._queue.settle(self._item, is_done=error is None)


def _removing(engine: Engine, most: int) -> Request[RemovedItems]:
    """Up to `most` items, removed."""
    return Request(lambda: engine.take_many(most, RemovedItems()) or None, engine.give_back)


def _reserving(engine: Engine, most: int) -> Request[list[Item]]:
    """Up to `most` items, reserved."""
    return Request(
        lambda: engine.reserve_many(most) or None,
        lambda items: engine.put_back_undelivered(xids_of(items)),
    )


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    """Called from the thread that puts an item."""
    try:
        loop.call_soon_threadsafe(_set, woken)
    except RuntimeError:  # the loop has ended, and the waiting task too
        return


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _next_of(entries: Iterable[Entry], most: int = 1000) -> list[Entry]:
    return list(islice(entries, most))
