"""AppendJournal: a journal for the tasks of an event loop.

    journal, recovery = await AppendJournal.open("orders")
    async for segment in recovery:                      # what was not checked when the journal was last used
        ...
    await journal.append(b"an order")                   # once it is written, and synced if the policy says so
    checkpoint = await journal.register_checkpoint()
    await journal.check_checkpoint()
    await journal.close()

`append` copies the data at once and returns an awaitable. At most one write runs at a time, in a thread; records that
are appended meanwhile form the next batch, and all of them wait for the same write. Waiting is optional: a task that is
cancelled while it waits has still appended its record. A failed write fails for all records of its batch, and the
journal accepts nothing more (`Poisoned`).

At most `max_pending_bytes` may wait to be written. Beyond that, appends wait until enough was written, in the order of
the calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ...core.bytes.buffers import Buffer, as_bytes
from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import ALWAYS, NONE, Sync, SyncLike, parse_sync
from ...core.options import with_named_options
from ...core.write.aio import opened, to_the_end
from ...errors import Closed, WrongUse
from ..bytes.layout import MAX_FILE_BYTES
from ..bytes.records import check_appendable
from ..files.writer import Writer
from .recovery import Recovery
from .replay import Segment

MAX_PENDING_BYTES: Final = 64 << 20


class Appended:
    """The awaitable of all appends of one batch. It can be awaited any number of times, or be made a task."""

    __slots__ = ("_done", "_error", "_loop", "_steps", "_trace", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done = False
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._steps: dict[Any, Generator[Any, Any, None]] = {}

    def done(self) -> bool:
        """Whether the batch is written, or has failed."""
        return self._done

    def __await__(self) -> Generator[Any, Any, None]:
        if not self._done:
            waiter = self._loop.create_future()  # of our own: a task that is cancelled cancels what it waits for
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error.with_traceback(self._trace)  # it would grow with every task that waits

    def finish(self, error: BaseException | None) -> None:
        """Wake up all waiting tasks."""
        self._done, self._error = True, error
        self._trace = None if error is None else error.__traceback__
        for waiter in self._waiters:
            if not waiter.done():  # else its task was cancelled
                waiter.set_result(None)
        self._waiters.clear()

    # The methods that a task needs of its coroutine. Several tasks may be made of the same batch.

    def send(self, value: Any) -> Any:
        """Go on for the task that asks."""
        return self._step(lambda steps: steps.send(value))

    def throw(self, *error: Any) -> Any:
        """Go on with an error for the task that asks."""
        return self._step(lambda steps: steps.throw(*error))

    def close(self) -> None:
        """Nothing is held."""

    def _step(self, resume: Callable[[Generator[Any, Any, None]], Any]) -> Any:
        task = asyncio.current_task()
        steps = self._steps.pop(task, None) or self.__await__()
        found = resume(steps)
        self._steps[task] = steps  # unless it has ended, which raises
        return found


class _LoopWriter(Writer):
    """A writer that never writes in the loop: it only reports that it is full."""

    is_full = False
    in_flight_bytes = 0

    def __init__(self, directory: Path | str, most_bytes: int, sync: Sync, file_bytes: int, disk: Disk) -> None:
        self.most_bytes = most_bytes
        super().__init__(
            directory, sync=sync, file_bytes=file_bytes, buffer_bytes=most_bytes, recovering=True, disk=disk
        )

    @property
    def added(self) -> int:
        """How many records were added since it was opened, checkpoints and hints among them."""
        return self._buffer.added

    def check(self) -> None:
        """Retire the oldest closed segment."""
        self._buffer.check()

    def _attend(self) -> None:
        self.is_full = True

    def _take(self) -> tuple[bytearray, int, list[tuple[int, int, bool]], int]:
        """The same; bytes that are being written still count as pending."""
        found = super()._take()
        self.in_flight_bytes = found[1]
        self._buffer.attention_bytes = max(1, self.most_bytes - found[1])
        return found

    def make_room(self) -> None:
        """What was taken last was written."""
        self.in_flight_bytes = 0
        self._buffer.attention_bytes = self.most_bytes
        self.is_full = self.buffered_bytes >= self.most_bytes


class AppendJournal:
    """The journal in a directory, opened by `await AppendJournal.open(...)`. Use it from one event loop.

    `sync` is the policy (see `core.io.durability`): with `none` an append resolves once the system has the record, with
    `always` once the disk has it.
    """

    def __init__(self, writer: _LoopWriter) -> None:
        """Use `open`."""
        self.directory = writer.directory
        self._writer = writer
        self._commit: Callable[[], None] = writer.flush
        self._put = writer.append
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logwright-append")
        self._batch = Appended(self._loop)
        self._busy = False
        self._added = 0
        self._later: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._settling: list[asyncio.Future[None]] = []
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._walk: AsyncRecovery | None = None

    @classmethod
    @with_named_options
    async def open(
        cls,
        directory: Path | str,
        *,
        sync: SyncLike = "none",
        max_pending_bytes: int = MAX_PENDING_BYTES,
        file_bytes: int = MAX_FILE_BYTES,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> tuple[Self, AsyncRecovery]:
        """Begin a new journal, and the walk over what was not checked of the old one: see `AsyncRecovery`.

        `Locked` when another program has it. `mode` is what the walk does about damage.
        """
        if not isinstance(max_pending_bytes, int) or not 0 < max_pending_bytes < 2**40:
            raise WrongUse(f"a backlog of {max_pending_bytes} bytes makes no sense")
        policy = parse_sync(sync)
        inner = NONE if policy == ALWAYS else policy
        check_mode(mode)
        writer = await opened(lambda: _LoopWriter(directory, max_pending_bytes, inner, file_bytes, disk))
        journal = cls(writer)
        if policy == ALWAYS:
            journal._commit = writer.sync
        journal._walk = AsyncRecovery(journal, writer.recovery(mode=mode))
        return journal, journal._walk

    # --- what one does with it --------------------------------------------------------------------------------------

    def append(self, data: Buffer) -> Any:
        """Append one record, and return what to await until it is written; not empty, less than 1 MiB."""
        if self._closed or self._later or self._writer.is_full:
            return self._append_later(data)
        self._put(data)
        if not self._busy:
            self._begin()
        return self._batch

    def append_many(self, records: Iterable[Buffer]) -> Any:
        """Append data, one record each, and return what to await until all of them are written."""
        last: Any = None
        for record in records:
            last = self.append(record)
        return self._nothing() if last is None else last

    async def register_checkpoint(self) -> int:
        """Close the current segment, once that is written; the id of the one that is being written from now on.

        Where nothing was appended since the last one, nothing is written, and the id is the same as before.
        """
        current, batch = await self._in_turn(self._register)
        await batch
        return int(current)

    async def check_checkpoint(self) -> None:
        """Retire the oldest closed segment, and write that; `WrongUse` if there is none.

        Files without data of an unchecked segment are removed when this returns.
        """
        _, batch = await self._in_turn(self._check)
        await batch

    async def sync(self) -> None:
        """Make everything appended so far durable."""
        await self._in_turn(lambda: None)
        await to_the_end(asyncio.to_thread(self._writer.sync))

    async def close(self) -> None:
        """Write and sync everything, and release the lock. A second call does nothing."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await to_the_end(self._closing)

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait to be written, or are being written."""
        return self._writer.buffered_bytes + self._writer.in_flight_bytes

    @property
    def checked(self) -> int:
        """The oldest segment that is not checked; `current` when none waits to be."""
        return self._writer.checked

    @property
    def current(self) -> int:
        """The segment that is being written."""
        return self._writer.current

    @property
    def recovered(self) -> Damage | None:
        """The torn tail that opening has cut off; None when there was none. `kept` is where it is now."""
        return self._writer.recovered

    @property
    def kept(self) -> Path | None:
        """Where the torn tail is kept."""
        return self._writer.kept

    # --- taking turns -----------------------------------------------------------------------------------------------

    def _register(self) -> tuple[int, Appended]:
        added = self._writer.added
        current = self._writer.register_checkpoint()
        if self._writer.added == added:  # nothing to wait for
            return current, self._finished()
        return current, self._joined()

    def _check(self) -> tuple[None, Appended]:
        self._writer.check()
        return None, self._joined()

    def _joined(self) -> Appended:
        """The batch that what was added just now belongs to."""
        if not self._busy:
            self._begin()
        return self._batch

    def _finished(self) -> Appended:
        batch = Appended(self._loop)
        batch.finish(None)
        return batch

    async def _nothing(self) -> None:
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.directory}: this journal is closed")

    def _append_later(self, data: Buffer) -> asyncio.Future[None]:
        """Append when enough was written; the data is copied before."""
        self._check_open()
        copied = as_bytes(data)
        check_appendable(len(copied))
        placed = asyncio.ensure_future(self._placed(self._queue(partial(self._put_later, copied))))
        placed.add_done_callback(_seen)
        return placed

    def _put_later(self, data: bytes) -> tuple[None, Appended]:
        self._put(data)
        return None, self._joined()

    async def _placed(self, turn: asyncio.Future[Any]) -> None:
        _, batch = await asyncio.shield(turn)
        await batch

    async def _in_turn(self, action: Callable[[], Any]) -> Any:
        """Do something after all earlier calls."""
        self._check_open()
        if self._later or self._writer.is_full:
            return await asyncio.shield(self._queue(action))
        return action()

    def _queue(self, action: Callable[[], Any]) -> asyncio.Future[Any]:
        turn: asyncio.Future[Any] = self._loop.create_future()
        turn.add_done_callback(_seen)
        self._later.append((action, turn))
        if not self._busy:
            self._begin()
        return turn

    # --- one write at a time ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._busy = True
        self._loop.call_soon(self._start)  # so that the other tasks of this turn join the batch

    def _start(self) -> None:
        batch, self._batch = self._batch, Appended(self._loop)
        self._added = self._writer.added
        running = self._loop.run_in_executor(self._thread, self._commit)
        running.add_done_callback(partial(self._finish, batch))

    def _finish(self, batch: Appended, done: asyncio.Future[None]) -> None:
        self._writer.make_room()
        batch.finish(done.exception())
        while self._later and not self._writer.is_full:
            action, turn = self._later.popleft()
            try:
                found = action()
            except Exception as error:
                if not turn.done():
                    turn.set_exception(error)
            else:
                if not turn.done():
                    turn.set_result(found)
        if self._later or self._writer.added != self._added:
            self._loop.call_soon(self._start)
        else:
            self._busy = False
            for waiter in self._settling:
                waiter.set_result(None)
            self._settling.clear()

    async def _close(self) -> None:
        self._closed = True
        if self._walk is not None:
            await self._walk.aclose()
        if self._busy:
            settled = self._loop.create_future()
            self._settling.append(settled)
            await settled  # whatever comes of it: the writer knows if something has failed
        try:
            await asyncio.to_thread(self._writer.close)
        finally:
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _seen(turn: asyncio.Future[Any]) -> None:
    """The caller may have stopped waiting: an error needs no warning then."""
    if not turn.cancelled():
        turn.exception()


class AsyncRecovery(AsyncIterator[Segment]):
    """The segments that were not checked, once, read in a thread: see `Recovery`.

    A task that is cancelled while it waits loses no segment: the next call returns it. The old files are removed at
    the end of the walk, after everything that was appended is durable.
    """

    def __init__(self, journal: AppendJournal, recovery: Recovery) -> None:
        self._journal = journal
        self._recovery = recovery
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logwright-recover")
        self._ready: deque[Segment] = deque()
        self._ended = False
        self._shut = False
        """Whether the thread accepts no more work. Only the loop changes this."""
        self._error: BaseException | None = None

    @property
    def damages(self) -> list[Damage]:
        """The damage that was skipped, in the modes other than `failfast`."""
        return self._recovery.damages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Segment:
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._ended or self._shut:
                raise StopAsyncIteration
            await self._journal._in_turn(lambda: None)  # what was asked for before this belongs to what must be durable
            if not self._shut:  # otherwise the walk has ended meanwhile
                step = self._journal._loop.run_in_executor(self._thread, self._step)
                step.add_done_callback(self._after_step)
                await asyncio.shield(step)
        return self._ready.popleft()

    def _step(self) -> None:
        if self._ended or self._error is not None:
            return
        try:
            found = self._recovery.step()
        except BaseException as error:
            self._error = error  # the caller may have been cancelled: the next call must not take it for the end
            return
        if found is None:
            self._ended = True
        else:
            self._ready.extend(found)

    def _after_step(self, _: asyncio.Future[None]) -> None:
        if self._ended and not self._shut:
            self._shut = True
            self._thread.submit(self._recovery.free_old_files)  # no one waits for that
            self._thread.shutdown(wait=False)

    async def aclose(self) -> None:
        """Stop the walk. Unless it was at its end, the next opening returns the same segments again."""
        self._ready.clear()
        self._shut = True
        await to_the_end(asyncio.to_thread(self._leave))
        self._ended = True

    def _leave(self) -> None:
        self._thread.shutdown()
        self._recovery.free_old_files()
