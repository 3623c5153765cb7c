"""What the server does from time to time: items that leave a queue by themselves, and free space on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from ...core.io import quarantine
from ...core.io.disk import Disk, write_zeros
from ...errors import Closed, LogwrightError
from .kernel import Lane
from .queues import OPEN, Queues, Served

logger = logging.getLogger("logwright.servers.queue")
MOST_SWEPT: Final = 1000
"""The most items that are removed, and the most queues that are visited, in one turn of the loop."""
_SHARE: Final = 16
"""At most this fraction of the free space is kept for removals: one sixteenth."""
_MOST_RESERVE_BYTES: Final = 1 << 20
"""Enough to remove a million items."""


class Sweeper:
    """Removes or moves items that have expired, and moves items that failed too often.

    Expired items are found when a client asks for an item, and by a periodic sweep of all queues. A sweep does a little
    in each turn of the loop, so that clients do not wait for it. A thread puts items into other queues, because that
    waits for the disk; clients that wait there get them afterwards. `notice` is called with errors.
    """

    def __init__(
        self, queues: Queues, lane: Lane, sweep_seconds: float, notice: Callable[[BaseException], None]
    ) -> None:
        self._queues, self._lane, self._notice = queues, lane, notice
        self._sweep_seconds = sweep_seconds
        self._unswept: deque[Served] = deque()
        self._logged: dict[bytes, str] = {}
        """The logged reasons why items of queues could not be moved."""
        self._handle: asyncio.Handle | None = None
        self._timers: dict[Served, asyncio.TimerHandle] = {}
        """When delayed items are due."""

    def start(self) -> None:
        """Sweep after `sweep_seconds`, and again and again."""
        for queue in self._queues.by_key.values():
            self.watch(queue)
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

    def watch(self, queue: Served) -> None:
        """Sweep a queue when its next delayed item is due."""
        queue.can_move = queue.engine.can_move
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        seconds = queue.engine.seconds_until_due()
        if seconds is not None and not queue.is_gone:
            self._timers[queue] = asyncio.get_running_loop().call_later(seconds, self._due, queue)

    def _due(self, queue: Served) -> None:
        del self._timers[queue]
        if queue.phase is OPEN:  # otherwise the next sweep of all queues does it
            self.sweep(queue)
            if not queue.is_moving:
                self.watch(queue)

    def sweep(self, queue: Served) -> bool:
        """Remove some expired items at the head of a queue, and add those that are due; whether there were any."""
        engine = queue.engine
        if queue.phase is not OPEN or queue.is_moving or not (engine.shelf.items or engine.is_due):
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
        queue.serve_waiters()
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
                if not queue.is_moving:
                    self.watch(queue)

        queue.is_moving = self._queues.move(queue, moved)

    def _log(self, queue: Served, error: str) -> None:
        """Log why items were not moved, once: every sweep tries again."""
        if self._logged.get(queue.key) != error:
            self._logged[queue.key] = error
            reason = "items that expired, failed too often or are due could not be moved"
            logger.warning("%s: %s: %s", queue.engine.path, reason, error)

    def stop(self) -> None:
        """Stop sweeping."""
        for timer in self._timers.values():
            timer.cancel()
        if self._handle is not None:
            self._handle.cancel()


class Space:
    """The free space of the disk, and a reserve for removals; `changed` is called when `is_low` changes.

    When little space is left, no items are added: removing items, and deleting a queue, write to the disk before they
    free any space. But other programs may fill the disk completely. So a file reserves some space; it is removed when a
    write finds no space, and created again when there is plenty. Nothing here raises.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        most_kept_bytes: int,
        changed: Callable[[], None],
        in_thread: Callable[[Callable[[], None]], None],
    ) -> None:
        self.is_low = False
        """Whether no items may be added."""
        self.kept_bytes = 0
        self._disk, self._directory = disk, directory
        self._most_kept_bytes = most_kept_bytes
        self._changed, self._in_thread = changed, in_thread
        self._reserve = directory / quarantine.DIRECTORY / ".server.reserve"
        self._has_reserve = False

    def check(self) -> None:
        """Check the free space."""
        try:
            free = self._disk.free_bytes(self._directory)
        except LogwrightError:
            return  # the next write will fail if the disk does
        self.kept_bytes = max(self.kept_bytes, min(self._most_kept_bytes, free // _SHARE))
        is_low = free < self.kept_bytes
        if is_low != self.is_low:
            what = "no items are accepted" if is_low else "items are accepted again"
            logger.warning("%s: %d bytes are free: %s", self._directory, free, what)
            self.is_low = is_low
            self._changed()
        if not self._has_reserve and free > 2 * self.kept_bytes:
            self._has_reserve = True
            self._in_thread(self._create_reserve)

    def _create_reserve(self) -> None:
        size = min(self.kept_bytes // 2, _MOST_RESERVE_BYTES)
        try:
            self._disk.remove(self._reserve)  # left by a killed server
            with closing(self._disk.open(self._reserve, "create")) as file:
                write_zeros(file, 0, size)
                file.sync()  # otherwise the space may not be allocated
        except LogwrightError:
            self.release_reserve()

    def release_reserve(self) -> None:
        """Remove the reserve: there is no space, or the server stops."""
        self._has_reserve = False
        with contextlib.suppress(LogwrightError):
            self._disk.remove(self._reserve)
