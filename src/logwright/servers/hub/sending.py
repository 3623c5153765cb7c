"""Sending a journal to a hub: at once as far as it goes, or for as long as it is written.

The hub says how far its copy is, and we go on from there: so it does not matter what was lost on the way, or how often
it is sent. The last message before that is sent again, to be compared: another journal of the same name is noticed.
Requests follow each other without waiting for the answers, up to a number of them; an answer means that everything up
to it is on the hub's disk.

What passes (a hub that restarts, a disk that is full) is tried again, with longer and longer pauses, until nothing has
moved for `patience_seconds`; following goes on for ever. What does not pass is raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ...core.errors import LogwrightError
from ...formats.sej.aio import changed
from ...formats.sej.copying import BATCH_BYTES, Feed
from . import requests
from .client import HubClient, PutStream
from .errors import Broken, Conflict, OutOfStep, Unreachable

logger = logging.getLogger("logwright.hub")

IN_FLIGHT: Final = 32
"""How many requests are on their way at most."""
PATIENCE_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
"""How often a journal is looked at, at least, where the system does not tell of changes."""
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Told how many bytes were acknowledged since the last time, and how many there are to be sent, about."""


@dataclass(slots=True)
class Sent:
    """What was sent and acknowledged. `next_offset` is where the copy goes on."""

    journal: str
    messages: int = 0
    bytes: int = 0
    next_offset: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    """A PutRequest on its way, and what it holds."""

    data: bytes
    next_offset: int
    messages: int
    bytes: int


class Packer:
    """Makes requests of a feed: as many messages of one segment as a request should have.

    Where the journal cannot be read any further, `failure` says why, and what is before it is sent.
    """

    def __init__(self, feed: Feed, client: str, journal: str, *, begins: bool, request_bytes: int) -> None:
        self._feed = feed
        self._head = partial(requests.put_head, client, journal)
        self._begins = begins
        self._request_bytes = request_bytes
        self._held: tuple[int, _Request] | None = None
        self.failure: LogwrightError | None = None

    def read(self) -> _Request | None:
        """The next request; None when there is nothing to be sent at the moment. In a thread."""
        found, self._held = self._held or self._next(), None
        if found is None:
            return None
        segment, request = found
        parts, messages, size = [request.data], request.messages, request.bytes
        while messages and size < self._request_bytes and (more := self._next()) is not None:
            if more[0] != segment or size + more[1].bytes > self._request_bytes:
                self._held = more
                break
            request = more[1]
            parts.append(request.data)
            messages, size = messages + request.messages, size + request.bytes
        head = self._head(segment, self._begins)
        self._begins = False
        return _Request(b"".join([head, *parts]), request.next_offset, messages, size)

    def _next(self) -> tuple[int, _Request] | None:
        try:
            batch = self._feed.read() if self.failure is None else None
        except LogwrightError as error:
            self.failure = error
            return None
        if batch is None:
            return None
        assert batch.segment is not None
        data = requests.put_messages(batch)
        return batch.segment, _Request(data, batch.next_offset, batch.count, len(batch.frames))


class Sender:
    """Sends one journal. `sent` says how far it has come, at any time."""

    def __init__(
        self,
        hub: HubClient,
        directory: Path | str,
        journal: str,
        *,
        in_flight: int = IN_FLIGHT,
        request_bytes: int = BATCH_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
        progress: Progress | None = None,
    ) -> None:
        self.sent = Sent(journal)
        self.reached = False
        """Whether a hub has said how far the copy is."""
        self._hub = hub
        self._directory = Path(directory)
        self._journal = journal
        self._in_flight = in_flight
        self._request_bytes = request_bytes
        self._patience_seconds = patience_seconds
        self._progress = progress
        self._acknowledged: int | None = None
        self._total_bytes = 0
        # One thread: a feed is read by one at a time, also when a task was cancelled while it read.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logwright-copy")

    async def run(self, *, follow: bool = False) -> Sent:
        """Send all there is; with `follow` go on with what is appended, until cancelled."""
        moved_at, pause_seconds = time.monotonic(), _FIRST_PAUSE_SECONDS
        before = self.sent.next_offset
        try:
            while True:
                try:
                    await self._send_from_there(follow)
                    return self.sent
                except Unreachable as error:
                    if self.sent.next_offset != before:
                        before, moved_at, pause_seconds = self.sent.next_offset, time.monotonic(), _FIRST_PAUSE_SECONDS
                    elif not follow and time.monotonic() - moved_at > self._patience_seconds:
                        raise
                    self.sent.failures += 1
                    logger.warning("%s; trying again in %g seconds", error, pause_seconds)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        finally:
            self._thread.shutdown(wait=False)

    async def _send_from_there(self, follow: bool) -> None:
        """Ask how far the copy is, and send from there on."""
        expected = await self._hub.next_offset(self._journal)
        in_flight = self._in_flight
        if expected is None:  # another program's hub: it takes repeats, but one request at a time
            expected, in_flight = self._acknowledged or 0, 1
        opened = partial(Feed, self._directory, max(0, expected - 1), batch_bytes=self._request_bytes, follow=follow)
        feed = await self._in_thread(opened)
        try:
            begins = await self._in_thread(partial(self._check_place, feed, expected))
            self.sent.next_offset, self.reached = expected, True
            self._total_bytes = feed.size_from(expected)
            packer = Packer(feed, self._hub.client, self._journal, begins=begins, request_bytes=self._request_bytes)
            while True:
                feed.watch.drain()  # before looking: what changes from now on wakes us up again
                await self._send_all(packer, in_flight)
                if packer.failure is not None:
                    raise packer.failure
                if not follow:
                    return
                await changed(feed.watch, _LOOK_SECONDS)
        finally:
            await self._in_thread(feed.close)

    def _check_place(self, feed: Feed, expected: int) -> bool:
        """Whether the copy is to begin where the journal does, past 0; raise if what it needs next is not there."""
        first, following = feed.first, feed.next
        if expected > following:
            words = f"the hub goes on with offset {expected}, and {self._directory} ends before {following}"
            raise Conflict(f"{words}: it has lost messages that the hub has, or is another one", expected)
        if 0 < expected < first:
            words = f"the hub goes on with offset {expected}, and {self._directory} begins with {first}"
            raise OutOfStep(f"{words}: what is between is gone", expected)
        return expected == 0 and first > 0

    async def _send_all(self, packer: Packer, in_flight: int) -> None:
        """Send what there is at the moment, and wait for all answers."""
        request = await self._in_thread(packer.read)
        if request is None:
            return
        if in_flight == 1:
            while request is not None:
                await self._hub.put(request.data)
                self._note(request)
                request = await self._in_thread(packer.read)
            return
        async with self._hub.putting() as stream:
            await self._send_stream(stream, packer, request, in_flight)

    async def _send_stream(self, stream: PutStream, packer: Packer, first: _Request, in_flight: int) -> None:
        room = asyncio.Semaphore(in_flight)
        on_the_way: deque[_Request | None] = deque()
        sent = asyncio.Event()
        unanswered = first

        async def send() -> None:
            request: _Request | None = first
            while request is not None:
                await room.acquire()
                reading = asyncio.ensure_future(self._in_thread(packer.read))
                try:
                    on_the_way.append(request)
                    sent.set()
                    await stream.send(request.data)
                finally:
                    request = await reading
            on_the_way.append(None)
            sent.set()
            await stream.done()

        async def receive() -> None:
            while True:
                while not on_the_way:
                    sent.clear()
                    await sent.wait()
                request = on_the_way.popleft()
                if request is None:
                    return
                nonlocal unanswered
                unanswered = request
                await stream.answer()
                room.release()
                self._note(request)

        try:
            await _both(receive(), send())
        except Broken:
            await self._hub.put(unanswered.data)  # by itself, so that we are told what is wrong with it, if anything is
            self._note(unanswered)
            raise

    def _note(self, request: _Request) -> None:
        """A request was answered: all of it is on the hub's disk. What was sent once more is not counted again."""
        self.sent.messages += max(0, request.next_offset - self.sent.next_offset)
        self.sent.bytes += request.bytes if request.next_offset > self.sent.next_offset else 0
        self.sent.next_offset = self._acknowledged = request.next_offset
        if self._progress is not None:
            self._progress(request.bytes, self._total_bytes)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _both(receiving: Coroutine[Any, Any, None], sending: Coroutine[Any, Any, None]) -> None:
    """Do both to the end. When one fails the other is cancelled, and what the receiving one says of it is raised."""
    tasks = [asyncio.ensure_future(receiving), asyncio.ensure_future(sending)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
