"""Send one journal to a hub: the messages that it has, or also those that are appended later.

The hub says where its copy continues, and the sender starts there, so lost or repeated requests do no harm. The last
message before that is sent again and compared: another journal of the same name is noticed. Several requests are sent
ahead of their answers; an answer means that everything up to it is on the hub's disk.

Messages in the account of losses of the source are skipped. A hub of Logwright stores the loss with the copy; another
program's hub accepts no gap, and the sender stops with an error.

Passing failures (a hub that restarts, a full disk) are retried with growing pauses until there is no progress for
`patience_seconds`; a follower retries for ever. Other errors are raised. If the hub accepts only smaller requests,
smaller ones are sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK
from ...core.io.watch import Watch
from ...errors import LogwrightError
from ...sej.files.segment import list_segments
from ...sej.model.copying import BATCH_BYTES, Feed
from . import requests
from .client import MOST_FRAMES_BYTES, HubClient, PutStream
from .errors import Broken, Conflict, OutOfStep, TooLargeForHub, Unexplained, Unreachable
from .retry import PATIENCE_SECONDS, Retry
from .scheduler import Scheduler

_LEAST_REQUEST_BYTES: Final = 16
"""Less than the size of any message, so that a request has a single one."""
Progress = Callable[[int, int], None]
"""Called with the bytes acknowledged since the last call, and the approximate total."""


@dataclass(slots=True)
class Sent:
    """What was sent and acknowledged. `next_offset` is the offset that the copy continues with."""

    journal: str
    messages: int = 0
    bytes: int = 0
    next_offset: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    """A PutRequest. `bytes` is the size of its messages that the copy does not have yet."""

    data: bytes
    next_offset: int
    bytes: int
    lost_from: int | None = None
    lost: int = 0
    """The number of messages before it that the source has lost."""

    def until(self, stop: int, start: int) -> _Request:
        """The part of the request from offset `start` to `stop`."""
        batch = requests.read_put(self.data, MOST_FRAMES_BYTES).batch
        start = max(start, batch.first_offset)
        return _Request(b"", stop, len(batch.from_offset(start).frames) - len(batch.from_offset(stop).frames))


class Packer:
    """Packs the messages of a feed into requests, each with messages of one segment.

    Messages before the offset that the copy continues with are sent only to be compared. If the journal cannot be read
    any further, `failure` has the reason, and the messages before it are sent.
    """

    def __init__(
        self, feed: Feed, client: str, journal: str, expected: int, *, begins: bool, request_bytes: int
    ) -> None:
        self.feed = feed
        self._head = partial(requests.put_head, client, journal)
        self._expected = expected
        self._begins = begins
        self._request_bytes = request_bytes
        self._held: tuple[int, _Request] | None = None
        self.failure: LogwrightError | None = None

    def read(self) -> _Request | None:
        """The next request; None if there is nothing to send now. Runs in a thread."""
        found, self._held = self._held or self._next(), None
        if found is None:
            return None
        segment, request = found
        first = request
        parts, size = [request.data], request.bytes
        while request.data and size < self._request_bytes and (more := self._next()) is not None:
            if more[0] != segment or size + more[1].bytes > self._request_bytes:
                self._held = more
                break
            request = more[1]
            parts.append(request.data)
            size += request.bytes
        head = self._head(segment, self._begins, first.lost_from)
        self._begins = False
        return _Request(b"".join([head, *parts]), request.next_offset, size, first.lost_from, first.lost)

    def _next(self) -> tuple[int, _Request] | None:
        try:
            batch = self.feed.read() if self.failure is None else None
        except LogwrightError as error:
            self.failure = error
            return None
        if batch is None:
            return None
        assert batch.segment is not None
        new = batch
        if batch.first_offset < self._expected:
            new = batch.from_offset(min(self._expected, batch.next_offset))
        lost = 0 if batch.lost_from is None else batch.first_offset - max(batch.lost_from, self._expected)
        data = requests.put_messages(batch)
        return batch.segment, _Request(data, batch.next_offset, len(new.frames), batch.lost_from, max(0, lost))


class Sender:
    """Sends one journal in its turns. `sent` is the progress so far.

    Setting `wake` makes a follower look for new messages.
    """

    def __init__(
        self,
        hub: HubClient,
        directory: Path | str,
        journal: str,
        scheduler: Scheduler,
        *,
        request_bytes: int = BATCH_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.sent = Sent(journal)
        self.reached = False
        """Whether a hub has answered."""
        self.wake = asyncio.Event()
        self._hub = hub
        self._directory = Path(directory)
        self._journal = journal
        self._scheduler = scheduler
        self._request_bytes = request_bytes
        self._patience_seconds = patience_seconds
        self._progress = progress
        self._watch = watch
        self._packer: Packer | None = None
        self._in_flight = scheduler.in_flight
        self._acknowledged: int | None = None
        self._counted = 0
        self._unanswered: list[_Request] = []
        self._total_bytes = 0
        self._first = 0
        self._retry: Retry | None = None
        self._ending: tuple[str, int] | None = None

    async def run(self, *, follow: bool = False) -> Sent:
        """Send all messages; with `follow` also those appended later, until cancelled."""
        self._retry = Retry(self._hub, self._scheduler.limited_log, None if follow else self._patience_seconds)
        try:
            while True:
                self.wake.clear()  # before reading, so that no later change is missed
                try:
                    async with self._scheduler.turn():
                        has_more = await self._take_turn(follow)
                except TooLargeForHub:
                    if self._request_bytes <= _LEAST_REQUEST_BYTES:  # it had a single message
                        raise
                    self._request_bytes = max(_LEAST_REQUEST_BYTES, self._request_bytes // 4)
                    continue
                except Unreachable as error:
                    self.sent.failures += 1
                    await self._retry.pause(error, self.sent.next_offset)
                    continue
                if has_more:
                    continue
                if not follow:
                    return self.sent
                await self.wake.wait()
        finally:
            await self._close()

    async def _take_turn(self, follow: bool) -> bool:
        """Send messages until there are no more or the turn is over; returns whether there are more."""
        packer, ending = self._packer, None
        try:
            if packer is None:
                ending = await self._scheduler.in_thread(self._find_ending)
                if ending is not None and ending == self._ending:
                    return False
                packer = await self._begin(follow)
            has_more = await self._send_all(packer, follow)
            if packer.failure is not None:
                raise packer.failure
        except BaseException:
            await self._close()
            raise
        if ending is not None and self._scheduler.has_too_many_feeds:
            await self._close()
            self._ending = None if has_more else ending
        return has_more

    def _find_ending(self) -> tuple[str, int] | None:
        """Name and size of the last segment: if they are unchanged, there are no new messages."""
        segments = list_segments(REAL_DISK, self._directory)
        return (segments[-1].name, REAL_DISK.file_size(segments[-1].path)) if segments else None

    async def _begin(self, follow: bool) -> Packer:
        """Ask where the copy continues, and open the journal there."""
        expected = await self._hub.next_offset(self._journal)
        self._in_flight = self._scheduler.in_flight
        if expected is None:  # another program's hub: it accepts repeats, but one request at a time
            expected, self._in_flight = self._acknowledged or 0, 1
        start = max(0, expected - 1)
        options: dict[str, Any] = {"batch_bytes": self._request_bytes, "follow": follow, "watch": self._watch}
        feed = await self._scheduler.opened(partial(Feed, self._directory, start, **options))
        try:
            first = await self._scheduler.in_thread(partial(self._check_place, feed, expected))
            self._total_bytes = await self._scheduler.in_thread(partial(feed.size_from, expected))
        except BaseException:
            await self._scheduler.closed(feed)
            raise
        for request in self._unanswered:  # only the answers may have been lost
            if self.sent.next_offset < request.next_offset <= expected:
                self._count(request)
            elif self.sent.next_offset < expected < request.next_offset:  # the hub has a part of it
                self._count(request.until(expected, self.sent.next_offset))
        self._unanswered = []
        self.sent.next_offset, self.reached = expected, True
        self._counted = max(expected, first)
        self._first = first
        client, request_bytes = self._hub.client, self._request_bytes
        self._packer = Packer(feed, client, self._journal, expected, begins=first > 0, request_bytes=request_bytes)
        return self._packer

    async def _close(self) -> None:
        """Close the journal; the next turn asks the hub again where the copy continues."""
        packer, self._packer, self._ending = self._packer, None, None
        if packer is not None:
            await self._scheduler.closed(packer.feed)

    def _check_place(self, feed: Feed, expected: int) -> int:
        """The offset that the copy begins with, if not 0; raises if the source does not have the next message."""
        first, following = feed.first, feed.next
        if expected > following:
            words = f"the copy continues with offset {expected}, but {self._directory} ends before {following}"
            raise Conflict(f"{words}: it has lost messages that the hub has, or is another journal", expected)
        if 0 < expected < first:
            words = f"the copy continues with offset {expected}, but {self._directory} begins with {first}"
            raise OutOfStep(f"{words}: the messages between them are missing", expected)
        return first if expected == 0 else 0

    async def _send_all(self, packer: Packer, follow: bool) -> bool:
        """Send the current messages and wait for all answers; returns whether the turn ended early."""
        request = await self._scheduler.in_thread(packer.read)
        if request is None:
            return False
        if self._in_flight > 1:
            async with self._hub.putting() as stream:
                return await self._send_stream(stream, packer, request, follow)
        sent_bytes = 0
        while request is not None:
            await self._put_alone(request)
            self._note(request)
            sent_bytes += len(request.data)
            if follow and self._scheduler.is_over(sent_bytes):
                return True
            request = await self._scheduler.in_thread(packer.read)
        return False

    async def _put_alone(self, request: _Request) -> None:
        """Send a request to another program's hub, which accepts no gap and does not say what it expects."""
        if request.lost:
            words = f"{self._directory} has lost {request.lost} messages before offset {request.next_offset}"
            raise OutOfStep(f"{words}, and this hub accepts no gap: copy it to a hub of Logwright", None)
        try:
            await self._hub.put(request.data)
        except Unexplained as error:
            if self._acknowledged is not None or not self._first:
                raise
            words = f"{error}: {self._directory} begins with offset {self._first}, and this hub accepts no gap"
            raise OutOfStep(f"{words}: copy it to a hub of Logwright, or restore the older segments", None) from None

    async def _send_stream(self, stream: PutStream, packer: Packer, first: _Request, follow: bool) -> bool:
        in_flight: deque[_Request | None] = deque()
        sent = asyncio.Event()
        unanswered = first
        slots, held = self._scheduler.slots, 0
        is_over = False

        async def send() -> None:
            nonlocal held, is_over
            request: _Request | None = first
            sent_bytes = 0
            while request is not None:
                await slots.acquire()
                held += 1
                sent_bytes += len(request.data)
                is_over = follow and self._scheduler.is_over(sent_bytes)
                reading = None if is_over else asyncio.ensure_future(self._scheduler.in_thread(packer.read))
                try:
                    in_flight.append(request)
                    sent.set()
                    await stream.send(request.data)
                finally:
                    request = None if reading is None else await reading
            in_flight.append(None)
            sent.set()
            await stream.done()

        async def receive() -> None:
            nonlocal held, unanswered
            while True:
                while not in_flight:
                    sent.clear()
                    await sent.wait()
                request = in_flight.popleft()
                if request is None:
                    return
                unanswered = request
                await stream.answer()
                slots.release()
                held -= 1
                self._note(request)

        try:
            await _both(receive(), send())
        except Broken:
            await self._hub.put(unanswered.data)  # alone, to get the reason if it is at fault
            self._note(unanswered)
            raise
        finally:
            self._unanswered = [request for request in (unanswered, *in_flight) if request is not None]
            for _ in range(held):
                slots.release()
        return is_over

    def _note(self, request: _Request) -> None:
        """A request was answered, so it is on the hub's disk."""
        self._count(request)
        if self._retry is not None:
            self._retry.progressed()

    def _count(self, request: _Request) -> None:
        """Count the messages of a request, but not those sent again."""
        self.sent.messages += max(0, request.next_offset - request.lost - self._counted)
        self.sent.bytes += request.bytes
        self.sent.next_offset = self._acknowledged = self._counted = request.next_offset
        if self._progress is not None:
            self._progress(request.bytes, self._total_bytes)


async def _both(receiving: Coroutine[Any, Any, None], sending: Coroutine[Any, Any, None]) -> None:
    """Run both to their end. If one fails, the other is cancelled; an error of `receiving` has priority."""
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
