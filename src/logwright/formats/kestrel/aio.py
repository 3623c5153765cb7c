"""AsyncQueue: a queue for the tasks of an event loop. What its calls mean and promise is said in `queue.py`.

    async with AsyncQueue("spool", "orders", sync="always") as queue:
        await queue.put(b"an order")
        item = await queue.open(timeout=5)
        await queue.confirm(item.xid)

With `sync="always"` all tasks that call at the same time share one sync, which is done in a thread while the loop goes
on. The memory is changed at once, and in the order of the calls.

A task that is cancelled while it waits for an item takes none. One that is cancelled while the sync of its `open` runs
has the item put back; that of a `get` or a `put` is done all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

from ...core.disk import REAL_DISK, Disk
from ...core.durability import ALWAYS, NONE, AsyncGroupCommit, SyncLike, parse_sync
from ...core.errors import Closed
from ...core.outcome import Damage
from ...core.tasks import opened, to_the_end
from .codec import Buffer, _as_bytes
from .engine import Engine
from .hub import Handle, Settings
from .items import Item, as_item
from .limits import Expires, Limits, Options
from .queue import _check_count
from .records import Dialect
from .shelf import Entry
from .stats import Stats, stats_of

Result = TypeVar("Result")


class AsyncQueue:
    """The queue `name` in a directory, opened by `async with`. The options are those of `Queue`."""

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
        self.name = name
        self.path = Path(directory).absolute() / name
        settings = Settings(
            sync=self.policy, buffer_bytes=buffer_bytes, dialect=dialect, background=background, clock=clock, disk=disk
        )
        self._open_handle = partial(Handle, Path(directory), name, Limits(**options), settings)
        self._handle: Handle | None = None
        self._groups: dict[Engine, AsyncGroupCommit] = {}

    @property
    def handle(self) -> Handle:
        """The queue beneath. `Closed` unless this one is open."""
        if self._handle is None:
            raise Closed(f"{self.path}: this queue is not open")
        return self._handle

    @property
    def recovered(self) -> Damage | None:
        """The torn tail that was cut off the journal on opening; None when it was whole."""
        return self.handle.engine.recovered

    async def _commit(self, engine: Engine) -> None:
        if self.policy != ALWAYS:
            return
        group = self._groups.get(engine)
        if group is None:
            group = self._groups[engine] = AsyncGroupCommit(engine.sync)
        await group.wait()

    # --- putting ----------------------------------------------------------------------------------------------------

    async def put(self, data: Buffer, expires: Expires | None = None) -> None:
        """Add an item at the tail; see `Queue.put`."""
        handle = self.handle
        if handle.has_children:
            await self._put_to_all(handle, [_as_bytes(data)], expires)
            return
        handle.engine.put(data, expires)
        if self.policy is not NONE:
            await self._commit(handle.engine)
        if handle.engine.moves:
            await asyncio.to_thread(handle.engine.finish_moves)

    async def put_many(self, items: Iterable[Buffer], expires: Expires | None = None) -> int:
        """Add items at the tail, all of them or none; how many those were."""
        contents = [_as_bytes(data) for data in items]
        await self._put_to_all(self.handle, contents, expires)
        return len(contents)

    async def _put_to_all(self, handle: Handle, contents: Sequence[bytes], expires: Expires | None) -> None:
        family = await asyncio.to_thread(handle.put_to_all, contents, expires)
        await asyncio.gather(*(self._commit(engine) for engine in family))
        for engine in family:
            if engine.moves:
                await asyncio.to_thread(engine.finish_moves)

    # --- taking -----------------------------------------------------------------------------------------------------

    async def get(self, timeout: float | None = 0) -> bytes | None:
        """Remove the head and return its data; None when there is nothing."""
        engine = self.handle.engine
        data = engine.get()
        if data is None or engine.moves:
            data = await self._settled(engine, data, engine.get, timeout)
        if data is not None:
            await self._commit(engine)
        return data

    async def get_many(self, most: int, timeout: float | None = 0) -> list[bytes]:
        """Remove up to so many items from the head on; waits for the first one only."""
        _check_count(most)
        engine = self.handle.engine
        found = await self._taken(engine, lambda: engine.get_many(most) or None, timeout) or []
        if found:
            await self._commit(engine)
        return found

    async def peek(self) -> bytes | None:
        """The data of the head, which stays; None when there is nothing."""
        engine = self.handle.engine
        item = await self._taken(engine, engine.peek, 0)
        return None if item is None else item.data

    async def open(self, timeout: float | None = 0) -> Item | None:
        """Reserve the head; see `Queue.open`."""
        found = await self.open_many(1, timeout)
        return found[0] if found else None

    async def open_many(self, most: int, timeout: float | None = 0) -> list[Item]:
        """Reserve up to so many items from the head on; waits for the first one only."""
        _check_count(most)
        engine = self.handle.engine
        found = await self._taken(engine, lambda: engine.reserve_many(most) or None, timeout) or []
        if found:
            try:
                await self._commit(engine)
            except asyncio.CancelledError:
                await to_the_end(self.abort(*(item.xid for item in found)))
                raise
        return found

    async def confirm(self, *xids: int) -> None:
        """Finish items that were reserved; see `Queue.confirm`."""
        engine = self.handle.engine
        engine.confirm(xids)
        await self._commit(engine)

    async def abort(self, *xids: int) -> None:
        """Put items that were reserved back to the head; see `Queue.abort`."""
        engine = self.handle.engine
        engine.abort(xids)
        await self._commit(engine)
        if engine.moves:
            await asyncio.to_thread(engine.finish_moves)

    @asynccontextmanager
    async def reserved(self, timeout: float | None = 0) -> AsyncIterator[Item | None]:
        """The head for the length of a block: confirmed at its end, aborted if that is an exception."""
        item = await self.open(timeout)
        try:
            yield item
        except BaseException:
            if item is not None:
                await to_the_end(self.abort(item.xid))
            raise
        if item is not None:
            await self.confirm(item.xid)

    async def _taken(
        self, engine: Engine, attempt: Callable[[], Result | None], timeout: float | None
    ) -> Result | None:
        found = attempt()
        if found is not None and not engine.moves:
            return found
        return await self._settled(engine, found, attempt, timeout)

    async def _settled(
        self, engine: Engine, found: Result | None, attempt: Callable[[], Result | None], timeout: float | None
    ) -> Result | None:
        """Move what has expired or failed too often, and wait for an item if there is none."""
        while engine.moves:
            await asyncio.to_thread(engine.finish_moves)
            found = attempt() if found is None else found
        return await self._wait(engine, attempt, timeout) if found is None and timeout != 0 else found

    async def _wait(self, engine: Engine, attempt: Callable[[], Result | None], timeout: float | None) -> Result | None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            wake = partial(_wake, loop, woken)
            engine.wait_for(wake)
            try:
                found = await self._settled(engine, attempt(), attempt, 0)
                left = None if deadline is None else max(0.0, deadline - loop.time())
                is_over = found is None and not (await asyncio.wait([woken], timeout=left))[0]
            except BaseException:
                if not engine.stop_waiting(wake):
                    engine.pass_on()
                raise
            was_woken = not engine.stop_waiting(wake)
            if found is None:
                found = await self._settled(engine, attempt(), attempt, 0)
            elif was_woken:
                engine.pass_on()
            if found is not None or is_over:
                return found

    # --- all of them ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many items wait. Those that are open do not."""
        return self.handle.engine.items

    def __bool__(self) -> bool:
        """A queue is a queue, even when it is empty."""
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The data of all items that wait, from head to tail, as they are when this begins."""
        async for entry in self._entries():
            yield entry[0]

    async def items(self) -> AsyncIterator[Item]:
        """All items that wait, from head to tail, as they are when this begins. Nothing is removed."""
        async for entry in self._entries():
            yield as_item(entry)

    async def _entries(self) -> AsyncIterator[Entry]:
        entries = await asyncio.to_thread(self.handle.engine.iterate)
        while batch := await asyncio.to_thread(_next_of, entries):
            for entry in batch:
                yield entry

    async def flush(self) -> int:
        """Remove all items that wait; how many those were. Those that are open stay."""
        engine = self.handle.engine
        count = await asyncio.to_thread(engine.flush_all)
        await self._commit(engine)
        return count

    async def sweep(self) -> int:
        """Remove items that have expired at the head, or let them move; how many those were."""
        engine = self.handle.engine
        count = await asyncio.to_thread(engine.sweep)
        await self._commit(engine)
        return count

    async def unpark(self, most: int | None = None) -> int:
        """Put items that were parked back, at the tail and with no attempts counted; how many those were."""
        return await asyncio.to_thread(self.handle.engine.unpark, most)

    def stats(self) -> Stats:
        """What there is to know about the queue at this moment."""
        return stats_of(self.handle.engine)

    # --- durability, and the end --------------------------------------------------------------------------------------

    async def flush_buffer(self) -> None:
        """Give all operations so far to the operating system."""
        await asyncio.to_thread(self.handle.engine.flush)

    async def sync(self) -> None:
        """Make all operations so far durable."""
        await asyncio.to_thread(self.handle.engine.sync)

    async def delete(self) -> None:
        """Remove the queue with all its items and files, and close it."""
        await self._end(self.handle.delete)

    async def close(self) -> None:
        """Sync, and let others open the queue. A second call does nothing."""
        if self._handle is not None:
            await self._end(self._handle.close)

    async def _end(self, end: Callable[[], None]) -> None:
        self._handle = None
        await to_the_end(self._ended(end))

    async def _ended(self, end: Callable[[], None]) -> None:
        groups, self._groups = self._groups, {}
        try:
            for group in groups.values():
                await group.close()
        finally:
            await asyncio.to_thread(end)

    async def __aenter__(self) -> Self:
        if self._handle is None:
            self._handle = await opened(self._open_handle)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    """Called by whoever puts an item, from any thread."""
    try:
        loop.call_soon_threadsafe(_set, woken)
    except RuntimeError:  # the loop has ended, and whoever waited in it
        return


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _next_of(entries: Iterable[Entry], most: int = 1000) -> list[Entry]:
    return list(islice(entries, most))
