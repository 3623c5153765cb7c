"""Turns: what the senders of several journals share, so that any number of them takes no more than this of anything.

A journal that has something to send waits for its turn, and whoever has waited longest is the next. While others wait,
a turn ends after some bytes, also where the journal has more: it waits again then, behind the others. So each of them
gets on, and a slow hub or a journal that is always written to holds up nobody for long.
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
from .retry import Reminders

logger = logging.getLogger("logwright.hub")

IN_FLIGHT: Final = 32
"""How many requests are on their way at most, of all journals together."""
CALLS: Final = 8
"""How many journals have their turn at the same time: a fraction of the calls that a hub takes of one connection."""
TURN_BYTES: Final = 4 << 20
_MOST_FEEDS: Final = 128
"""How many journals stay open between their turns. The others are opened anew for each."""
_THREADS: Final = 4
Result = TypeVar("Result")


class Turns:
    """The turns of all journals that one client sends. `room` is for the requests on their way."""

    def __init__(self, in_flight: int = IN_FLIGHT) -> None:
        self.in_flight = in_flight
        self.room = asyncio.Semaphore(in_flight)
        self.reminders = Reminders(logger)
        self.open_feeds = 0
        self._calls = asyncio.Semaphore(CALLS)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="logwright-copy")

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for as long as the block lasts."""
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
        """Whether one that has sent so much has to let others come next."""
        return self._waiting > 0 and sent_bytes >= TURN_BYTES

    @property
    def has_too_many_feeds(self) -> bool:
        """Whether a journal is to be closed at the end of its turn."""
        return self.open_feeds > _MOST_FEEDS

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do something in a thread. A task that is cancelled ends after it: a feed has one user at a time."""
        return await to_the_end(asyncio.get_running_loop().run_in_executor(self._threads, work))

    async def opened(self, open_it: Callable[[], Feed]) -> Feed:
        """Open a feed in a thread; it is closed again if we are cancelled meanwhile."""
        feed = await opened(open_it)
        self.open_feeds += 1
        return feed

    async def closed(self, feed: Feed) -> None:
        """Close a feed in a thread."""
        self.open_feeds -= 1
        await self.in_thread(feed.close)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False)
