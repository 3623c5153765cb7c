"""Remove or move items that have expired, and move items that failed too often.

Expired items are found when a client asks for an item, and by a periodic sweep of all queues. A sweep does a little in
each turn of the loop, so that clients do not wait for it. A thread puts items into other queues, because that waits for
the disk; clients that wait there get them afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from ...errors import Closed, LogwrightError
from .kernel import Lane
from .queues import OPEN, Queues, Served

logger = logging.getLogger("logwright.servers.queue")
MOST_SWEPT: Final = 1000
"""The most items that are removed, and the most queues that are visited, in one turn of the loop."""


class Sweeper:
    """Sweeps the queues of a server, and moves their items. `notice` is called with errors."""

    def __init__(
        self, queues: Queues, lane: Lane, sweep_seconds: float, notice: Callable[[BaseException], None]
    ) -> None:
        self._queues, self._lane, self._notice = queues, lane, notice
        self._sweep_seconds = sweep_seconds
        self._unswept: deque[Served] = deque()
        self._logged: dict[bytes, str] = {}
        """The logged reasons why items of queues could not be moved."""
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Sweep after `sweep_seconds`, and again and again."""
        self._handle = asyncio.get_running_loop().call_later(self._sweep_seconds, self._begin)

    def _begin(self) -> None:
        self._unswept.extend(self._queues.by_key.values())
        self._sweep()

    def _sweep(self) -> None:
        """Visit queues until one had expired items; the next turn continues with the others."""
        for _ in range(min(MOST_SWEPT, len(self._unswept))):
            queue = self._unswept.popleft()
            if self.sweep(queue):
                break
        if self._unswept:
            self._handle = asyncio.get_running_loop().call_soon(self._sweep)
        else:
            self.start()

    def sweep(self, queue: Served) -> bool:
        """Remove some expired items at the head of a queue; whether there were any."""
        engine = queue.engine
        if queue.phase is not OPEN or queue.is_moving or not engine.shelf.items:
            return False
        before = engine.shelf.items
        try:
            has_more = engine.sweep_some(MOST_SWEPT)
        except LogwrightError as error:
            self._notice(error)
            return True
        self.move_from(queue)
        if engine.shelf.items == before:
            return False
        self._lane.change(queue)
        if has_more and not queue.is_moving:
            self._unswept.append(queue)
        return True

    def move_from(self, queue: Served) -> None:
        """Move items that were reserved for other queues, if there are any."""
        if queue.is_moving or not queue.engine.moves:
            return
        targets = {move.target for move in queue.engine.moves}

        def moved(error: BaseException | None) -> None:
            queue.is_moving = False
            if error is not None and not isinstance(error, Closed):
                self._log(queue, str(error))
                self._notice(error)
            for name in targets:
                target = self._queues.by_key.get(name.encode("utf-8", "surrogateescape"))
                if target is not None:
                    target.serve_waiters()
            if error is None:
                self._logged.pop(queue.key, None)
            if error is None and not queue.is_gone:
                queue.serve_waiters()
                self.sweep(queue)

        queue.is_moving = self._queues.move(queue, moved)

    def _log(self, queue: Served, error: str) -> None:
        """Log why items were not moved, once: every sweep tries again."""
        if self._logged.get(queue.key) != error:
            self._logged[queue.key] = error
            reason = "items that expired or failed too often could not be moved"
            logger.warning("%s: %s: %s", queue.engine.path, reason, error)

    def stop(self) -> None:
        """Stop sweeping."""
        if self._handle is not None:
            self._handle.cancel()
