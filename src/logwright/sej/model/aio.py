"""The journal in asyncio: AsyncWriter, AsyncScanner and AsyncConsumer. Nothing here blocks the event loop on a disk.

    async with AsyncWriter("orders", sync="always") as writer:
        offset = await writer.append(b"value", key=b"key")

    async with AsyncScanner("orders", offset=42, timeout=None) as scanner:
        async for message in scanner:
            ...

    async with AsyncConsumer("orders", "billing", handle) as consumer:
        await consumer.run()

With `sync="always"` all tasks that wait for an append share one sync, which runs in a thread. Messages appended during
a sync belong to the next one. A task that is cancelled while it waits has still appended its message.

A scanner reads batches in a thread, so that a large journal does not block other tasks. A task that is cancelled while
it waits loses no message: the next call returns it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast, overload

from ...core.bytes.buffers import Buffer
from ...core.bytes.outcome import Damage, Mode
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import ALWAYS, NONE, SyncLike, parse_sync
from ...core.io.watch import POLL_SECONDS, Watch
from ...core.read.files_scanner import DEFAULT_TIMEOUT_SECONDS, FollowingAll, FollowingRecords, Waiting
from ...core.write.aio import AsyncOpening, AsyncWrapper, in_thread, opened, to_the_end
from ...errors import Closed, LogwrightError, WrongUse
from ..bytes import kernel
from ..bytes.layout import DEFAULT_SEGMENT_BYTES
from ..bytes.records import NOW, Message, Now
from ..files.reader import Reader
from ..files.scanner import Scanner, T
from ..files.writer import BUFFER_BYTES, Writer
from .consumer import Delivery, DeliveryOptions, count_done, not_done

_MOST_BUFFERED_BYTES: Final = 64 << 20
"""More than this is written at once, even in the loop, so that tasks that do not wait cannot fill the memory."""
_UNWATCHED_SECONDS: Final = 0.01
"""The interval of polling if the system sends no notification."""


Result = TypeVar("Result")


# --- writing --------------------------------------------------------------------------------------------------------


class AsyncWriter(AsyncWrapper[Writer]):
    """A `Writer` for the tasks of one event loop; see there for the options and for what a sync policy guarantees.

    It is opened by `async with`, or by `await AsyncWriter.open(...)` and closed by `await writer.close()`.
    """

    what = "writer"

    def __init__(
        self,
        directory: Path | str,
        *,
        sync: SyncLike = "none",
        segment_size: int = DEFAULT_SEGMENT_BYTES,
        checksums: bool = False,
        disk: Disk = REAL_DISK,
    ) -> None:
        self.directory = Path(directory)
        policy = parse_sync(sync)
        inner = NONE if policy == ALWAYS else policy
        options: dict[str, Any] = {"segment_size": segment_size, "checksums": checksums, "disk": disk}
        open_writer = partial(Writer, directory, sync=inner, buffer_bytes=_MOST_BUFFERED_BYTES, **options)
        super().__init__(self.directory, policy, open_writer)
        self._making_room = asyncio.Lock()

    @property
    def writer(self) -> Writer:
        """The writer beneath: `next_offset`, `recovered`, `kept`. `Closed` unless this one is open."""
        return self.inner

    async def append(self, value: Buffer, key: Buffer = b"", type: int = 0, timestamp: int | Now | None = NOW) -> int:
        """Add one message at the end; its offset. With `sync="always"` it is on the disk when this returns."""
        writer = self.inner
        offset = writer.append(value, key, type, timestamp)
        if self._group is not None:
            await self._group.wait()
        elif writer.buffered_bytes >= BUFFER_BYTES:
            await self._make_room(writer)
        return offset

    async def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch or table; see `Writer.append_batch`."""
        first = await asyncio.to_thread(self.inner.append_batch, batch)
        await self._commit()
        return first

    async def _make_room(self, writer: Writer) -> None:
        async with self._making_room:
            if writer.buffered_bytes >= BUFFER_BYTES:
                await asyncio.to_thread(writer.flush)

    flush = in_thread(Writer.flush)

    async def sync(self) -> None:
        """Make everything appended so far durable."""
        if self._group is not None:
            await self._group.wait()
        else:
            await asyncio.to_thread(self.inner.sync)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def changed(watch: Watch, most_seconds: float) -> None:
    """Wait for a watch to wake up, at most this long."""
    descriptor = watch.descriptor()
    if descriptor is None:
        await asyncio.sleep(min(most_seconds, _UNWATCHED_SECONDS))
        return
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _wake, woken)
    try:
        await asyncio.wait([woken], timeout=most_seconds)
    finally:
        loop.remove_reader(descriptor)


# --- following ------------------------------------------------------------------------------------------------------


class AsyncScanner(AsyncOpening, Generic[T]):
    """A `Scanner` for `async for`; see there for offset, timeout and mode. `read_batch` gives many messages at once."""

    @overload
    def __init__(
        self: AsyncScanner[Message],
        directory: Path | str,
        offset: int | None = ...,
        **options: Unpack[FollowingRecords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncScanner[Message | Damage],
        directory: Path | str,
        offset: int | None = ...,
        **options: Unpack[FollowingAll],
    ) -> None: ...

    def __init__(
        self,
        directory: Path | str,
        offset: int | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> None:
        self.directory = Path(directory)
        self.timeout = timeout
        self._scanner = Scanner(directory, offset, timeout=timeout, mode=mode, disk=disk)
        # One thread: what a cancelled task has begun to read is finished before anything else is read.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logwright-scan")
        self._pending: deque[T] = deque()
        self._waiting = asyncio.Lock()
        self._closed = False

    @overload
    @classmethod
    async def from_time(
        cls, directory: Path | str, timestamp: int, **options: Unpack[FollowingRecords]
    ) -> AsyncScanner[Message]: ...

    @overload
    @classmethod
    async def from_time(
        cls, directory: Path | str, timestamp: int, **options: Unpack[FollowingAll]
    ) -> AsyncScanner[Message | Damage]: ...

    @classmethod
    async def from_time(
        cls, directory: Path | str, timestamp: int, *, mode: Mode = "failfast", **options: Unpack[Waiting]
    ) -> AsyncScanner[Message] | AsyncScanner[Message | Damage]:
        """A scanner from the first message on that is not earlier than `timestamp` (nanoseconds since the epoch)."""
        disk = options.get("disk", REAL_DISK)
        offset = await asyncio.to_thread(lambda: Reader(directory, disk=disk).find_time(timestamp))
        return cls(directory, offset, mode=mode, **options)

    @property
    def offset(self) -> int:
        """The offset of the next message that the iteration returns."""
        for item in self._pending:
            if isinstance(item, Message):
                return item.offset
        return self._scanner.offset

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if not self._pending and not await self._wait():
            raise StopAsyncIteration
        return self._pending.popleft()

    async def read_batch(self) -> list[T]:
        """The next messages in one list, waiting for them as the iteration does; empty after the timeout."""
        if not self._pending:
            await self._wait()
        batch = list(self._pending)
        self._pending.clear()
        return batch

    async def _wait(self) -> bool:
        """Wait for messages; False after the timeout."""
        async with self._waiting:
            loop = asyncio.get_running_loop()
            deadline = None if self.timeout is None else time.monotonic() + self.timeout
            while not self._closed:
                remaining = POLL_SECONDS if deadline is None else deadline - time.monotonic()
                self._scanner.watch.drain()  # before looking: what changes from now on wakes us up again
                await loop.run_in_executor(self._thread, self._fetch, remaining <= 0 and bool(self.timeout))
                if self._pending:
                    return True
                if remaining <= 0:
                    return False
                await changed(self._scanner.watch, min(remaining, POLL_SECONDS))
        raise Closed(f"{self.directory}: this scanner is closed")

    def _fetch(self, stalled: bool) -> None:
        item = self._scanner.poll(stalled=stalled)
        if isinstance(item, Damage):
            self._pending.append(cast("T", item))
        elif item is not None:
            self._pending.extend(cast("list[T]", kernel.messages(item.data, item.start, item.stop, item.count)))

    async def close(self) -> None:
        """Close the files after a waiting task has ended. A second call does nothing."""
        self._closed = True
        async with self._waiting:
            await to_the_end(asyncio.to_thread(self._close))

    def _close(self) -> None:
        self._thread.shutdown()
        self._scanner.close()


# --- consuming ------------------------------------------------------------------------------------------------------


class AsyncConsumer(AsyncOpening):
    """A `Consumer` whose handler, and `on_failure`, are coroutine functions. Everything else is as in `Consumer`.

    It is opened by `async with`. When `run` is cancelled, what is done is committed, and the message whose handler was
    interrupted is not done.
    """

    def __init__(
        self,
        directory: Path | str,
        name: str,
        handler: Callable[[Any], Awaitable[Any]],
        *,
        on_failure: Callable[[Message, Exception], Awaitable[object]] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._handler = handler
        self._on_failure = on_failure
        self._stopped = False
        self._running = asyncio.Lock()
        self._runner: asyncio.Task[Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logwright-consume")
        self._delivery: Delivery | None = None
        self._open_delivery = partial(Delivery, directory, name, sets_aside=on_failure is not None, **options)

    @property
    def delivery(self) -> Delivery:
        """The state of delivery: `next`, `missed`, `offset.value`. `Closed` unless the consumer is open."""
        if self._delivery is None:
            raise Closed(f"the consumer {self.name} is not open")
        return self._delivery

    async def run(self) -> int:
        """Handle messages until there are none for `timeout` seconds, or `stop` is called; how many were done."""
        if self._running.locked():
            raise WrongUse(f"the consumer {self.name} is running already")
        async with self._running:
            self._runner = asyncio.current_task()
            delivery = self.delivery
            before = delivery.handled
            try:
                while not self._stopped and await self._wait(delivery):
                    await self._advance(delivery, delivery.waiting())
            except BaseException as error:
                await self._commit_after(delivery, error)
                raise
            finally:
                self._runner = None
            await to_the_end(self._in_thread(delivery.commit))
            return delivery.handled - before

    def stop(self) -> None:
        """Let `run` return after the current call of the handler; final."""
        self._stopped = True

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _commit_after(self, delivery: Delivery, error: BaseException) -> None:
        try:
            await to_the_end(self._in_thread(delivery.commit))
        except LogwrightError as other:
            error.add_note(f"and what was done before it could not be committed: {other}")

    async def _commit_if_due(self, delivery: Delivery) -> None:
        if delivery.must_commit():
            await self._in_thread(delivery.commit)

    async def _wait(self, delivery: Delivery) -> bool:
        """Wait for messages; False after the timeout, or when it is time to stop."""
        if delivery.is_full:
            return True
        watch = delivery.scanner.watch
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        while not self._stopped:
            remaining = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            watch.drain()
            if await self._in_thread(partial(delivery.fetch, stalled=remaining <= 0 and bool(self.timeout))):
                return True
            if remaining <= 0:
                return False
            await self._commit_if_due(delivery)
            await changed(watch, min(remaining, POLL_SECONDS))
        return False

    async def _advance(self, delivery: Delivery, messages: list[Message]) -> None:
        """Call the handler once, and do what follows from it. Messages that are not done will come again."""
        outcome = await self._attempt(messages, delivery.batch_messages is not None)
        if isinstance(outcome, int):
            delivery.done(outcome)
        else:
            pause_seconds = delivery.failed(messages, outcome)
            if pause_seconds is None:
                assert self._on_failure is not None
                await self._on_failure(messages[0], outcome)
                delivery.done(1)
            else:
                await asyncio.sleep(pause_seconds)
        await self._commit_if_due(delivery)

    async def _attempt(self, messages: list[Message], in_batches: bool) -> int | Exception:
        try:
            answer = await self._handler(messages if in_batches else messages[0])
        except Exception as error:
            return error
        return count_done(answer, messages, in_batches) or not_done(messages[0])

    async def close(self) -> None:
        """Stop, wait for `run` to return, and let another consumer of this name begin. A second call does nothing."""
        if self._runner is not None and self._runner is asyncio.current_task():
            raise WrongUse("a handler cannot close its consumer; call stop() instead")
        self.stop()
        async with self._running:
            delivery, self._delivery = self._delivery, None
            if delivery is not None:
                await to_the_end(self._in_thread(delivery.close))
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        if self._delivery is None:
            self._delivery = await opened(self._open_delivery)
        return self
