"""Scheduler: the senders of any number of journals share a bounded number of calls, requests, threads and open files.

A journal with new messages waits for its turn, first come, first served. While others wait, a turn ends after some
bytes, and a journal that has more waits again. So a journal that is written all the time does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ...core.write.aio import opened, to_the_end
from ...sej.model.copying import Feed
from .retry import RateLimitedLog

logger = logging.getLogger("logwright.hub")

IN_FLIGHT: Final = 32
"""The most unanswered requests, of all journals together."""
CALLS: Final = 8
"""The number of turns at the same time: a fraction of the calls that a hub accepts from one connection."""
TURN_BYTES: Final = 4 << 20
_MOST_FEEDS: Final = 128
"""The number of journals that stay open between turns. Others are reopened for each turn."""
_THREADS: Final = 4
Result = TypeVar("Result")


class Scheduler:
    """The turns of all journals of one client. `slots` bounds the unanswered requests."""

    def __init__(self, in_flight: int = IN_FLIGHT) -> None:
        self.in_flight = in_flight
        self.slots = asyncio.Semaphore(in_flight)
        self.limited_log = RateLimitedLog(logger)
        self.open_feeds = 0
        self._calls = asyncio.Semaphore(CALLS)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="logwright-copy")

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it until the end of the block."""
        self._waiting += 1
        try:
            await self._calls.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._calls.release()

    def is_over(self, sent_bytes: int) -> bool:
        """Whether a turn ends after this many bytes."""
        return self._waiting > 0 and sent_bytes >= TURN_BYTES

    @property
    def has_too_many_feeds(self) -> bool:
        """Whether a journal must be closed at the end of its turn."""
        return self.open_feeds > _MOST_FEEDS

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread. A cancelled task ends after it, because a feed has one user at a time."""
        return await to_the_end(asyncio.get_running_loop().run_in_executor(self._threads, work))

    async def opened(self, open_it: Callable[[], Feed]) -> Feed:
        """Open a feed in a thread; it is closed if the task is cancelled meanwhile."""
        feed = await opened(open_it)
        self.open_feeds += 1
        return feed

    async def closed(self, feed: Feed) -> None:
        """Close a feed in a thread."""
        self.open_feeds -= 1
        await self.in_thread(feed.close)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)
