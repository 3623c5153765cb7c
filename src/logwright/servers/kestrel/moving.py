"""Items that nobody gets: what has expired is removed, or goes to another queue, and so does what failed too often.

What has expired is found when somebody asks for an item, and by a sweep of all queues every now and then. A sweep does
a little in each turn of the loop, so that clients do not wait for it. Items are put into other queues by a thread, as
that waits for the disk; whoever waits for items there gets them when it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ...errors import Closed, LogwrightError
from .queues import Served
from .waiting import serve_waiters

if TYPE_CHECKING:
    from .server import QueueServer

logger = logging.getLogger("logwright.servers.kestrel")
MOST_SWEPT: Final = 1000
"""How many items are removed in one turn of the loop, and how many queues are looked at."""


class Moving:
    """Sweeps the queues of a server, and lets their items move."""

    def __init__(self, server: QueueServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._unswept: deque[Served] = deque()
        self._told: dict[bytes, str] = {}
        """Why the items of queues could not move, as the log has it."""
        self._handle: asyncio.Handle | None = None
        self._wait()

    def _wait(self) -> None:
        self._handle = self._loop.call_later(self._server.limits.sweep_seconds, self._begin)

    def _begin(self) -> None:
        self._unswept.extend(self._server.queues.by_key.values())
        self._sweep()

    def _sweep(self) -> None:
        """Go through queues until one of them had something to be removed; the others have the next turns."""
        for _ in range(min(MOST_SWEPT, len(self._unswept))):
            queue = self._unswept.popleft()
            if self.sweep(queue):
                break
        if self._unswept:
            self._handle = self._loop.call_soon(self._sweep)
        else:
            self._wait()

    def sweep(self, queue: Served) -> bool:
        """Remove some of what has expired at the head of a queue; whether there was anything."""
        engine = queue.engine
        if queue.is_gone or queue.is_changing or queue.is_moving or not engine.items:
            return False
        before = engine.items
        try:
            has_more = engine.sweep_some(MOST_SWEPT)
        except LogwrightError as error:
            self._server.notice(error)
            return True
        self.look(queue)
        if engine.items == before:
            return False
        self._server.lane.change(queue)
        if has_more and not queue.is_moving:
            self._unswept.append(queue)
        return True

    def look(self, queue: Served) -> None:
        """Let what was reserved for other queues go there, if there is anything."""
        if queue.is_moving or not queue.engine.moves:
            return
        targets = {move.target for move in queue.engine.moves}

        def moved(error: BaseException | None) -> None:
            queue.is_moving = False
            if error is not None and not isinstance(error, Closed):
                self._tell(queue, str(error))
                self._server.notice(error)
            for name in targets:
                target = self._server.queues.by_key.get(name.encode("utf-8", "surrogateescape"))
                if target is not None:
                    serve_waiters(target)
            if error is None:
                self._told.pop(queue.key, None)
            if error is None and not queue.is_gone:
                serve_waiters(queue)
                self.sweep(queue)

        queue.is_moving = self._server.queues.move(queue, moved)

    def _tell(self, queue: Served, error: str) -> None:
        """Have the log say why items did not move. They are tried again with every sweep, so it does once."""
        if self._told.get(queue.key) != error:
            self._told[queue.key] = error
            reason = "items that expired or failed too often could not be moved"
            logger.warning("%s: %s: %s", queue.engine.path, reason, error)

    def stop(self) -> None:
        """Sweep no more."""
        if self._handle is not None:
            self._handle.cancel()
