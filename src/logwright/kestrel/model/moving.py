"""Moving: items that move to another queue because they have expired, have failed too often, or are unparked.

An item is reserved in its queue, put into the other queue and synced there, and then confirmed in its queue. A crash in
between leaves it in both queues. It is still reserved in its own, so the next opening puts it back at the head, and it
moves again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ...errors import LogwrightError, WrongUse
from .items import Item, as_item
from .shelf import Entry, Shelf

logger = logging.getLogger("logwright.kestrel")

MOST_MOVES: Final = 1000
"""The most items that are reserved for other queues before they are put there."""


class Move(NamedTuple):
    """An item that is reserved until it is in another queue."""

    target: str
    xid: int
    entry: Entry
    has_expired: bool


class MovableQueue(Protocol):
    """The methods that moving needs of both queues."""

    path: Path
    mutex: Any
    moving: Moving
    open_items: dict[int, Entry]
    expired: int
    moved: int
    shelf: Shelf

    @property
    def queue(self) -> str: ...
    @property
    def is_usable(self) -> bool: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def syncs_always(self) -> bool: ...
    def check(self) -> None: ...
    def reserve_many(self, most: int, reserved: list[int] | None = None, *, for_other: bool = False) -> list[Item]: ...
    def put_moved(self, items: Sequence[Item], arrived: list[Item], *, within_limits: bool) -> None: ...
    def confirm_locked(self, xids: Sequence[int]) -> None: ...
    def put_back_locked(self, xids: Iterable[int]) -> None: ...
    def compact_if_due(self) -> None: ...
    def commit(self) -> None: ...
    def sync(self) -> None: ...


class Moving:
    """The items of a queue that are moving to others. `borrow` opens a queue of the same directory.

    `move_own` moves delayed items that are due to this queue. It is called for a move whose target is this queue.
    """

    def __init__(
        self, queue: MovableQueue, borrow: Callable[[str], MovableQueue] | None, move_own: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._borrow = borrow
        self._move_own = move_own
        self.moves: list[Move] = []
        """Items that are reserved to be put into other queues."""
        self.xids: set[int] = set()
        """The ids of items that are reserved for other queues: only moving confirms them or puts them back."""
        self.lock = threading.Lock()
        """Held while items are moved. Closing the queue waits for it."""

    def add(self, moves: Sequence[Move]) -> None:
        """Add reserved items that are to be moved. The mutex is held."""
        self.xids.update(move.xid for move in moves)
        self.moves += moves

    def add_own(self) -> None:
        """Delayed items of this queue are due. The mutex is held."""
        if not any(move.target == self._queue.queue for move in self.moves):
            self.moves.append(Move(self._queue.queue, 0, (b"", 0, 0, 0, 0), False))

    def finish(self) -> None:
        """Put the items that were reserved for other queues there, and confirm them here. The mutex is free."""
        while self.moves:
            with self.lock:
                moves = list(self.moves)
                with contextlib.ExitStack() as stack:  # a failure of one target does not stop the others
                    for target in dict.fromkeys(move.target for move in moves):
                        stack.callback(self._move_to, target, [move for move in moves if move.target == target])
                if self._queue.syncs_always and moves:
                    self._queue.commit()

    def finish_or_log(self) -> None:
        """The same, but a failure is only logged. A call that finds no item calls `finish` instead, which raises it."""
        try:
            self.finish()
        except LogwrightError as error:
            if self._queue.has_failed:
                raise
            logger.warning(
                "%s: items that expired, failed too often or are due could not be moved: %s", self._queue.path, error
            )

    def _open(self, name: str) -> MovableQueue:
        if self._borrow is None:
            raise WrongUse(f"{self._queue.path}: the queue {name} cannot be opened from here")
        return self._borrow(name)

    def _move_to(self, target: str, moves: list[Move]) -> None:
        queue = self._queue
        if target == queue.queue:
            with queue.mutex:
                self.moves[:] = [move for move in self.moves if move.target != target]
            self._move_own()
            return
        arrived: list[Item] = []
        try:
            other = self._open(target)
            other.put_moved([as_item(move.entry) for move in moves], arrived, within_limits=False)
            self._finish_moves(moves)
        except BaseException as error:
            if arrived and not isinstance(error, LogwrightError):
                other.sync()
                self._finish_moves(moves)
                raise
            with queue.mutex:
                self._forget([move.xid for move in moves])
                self.put_back([move.xid for move in moves])
            raise

    def _forget(self, xids: Sequence[int]) -> None:
        """These items are no longer being moved."""
        ended = set(xids)
        self.moves[:] = [move for move in self.moves if move.xid not in ended]
        self.xids -= ended

    def put_back(self, xids: Sequence[int]) -> None:
        """Put items that could not be moved back at the head, unless the queue has failed. The mutex is held."""
        if self._queue.is_usable:
            self._queue.put_back_locked(xid for xid in xids if xid in self._queue.open_items)

    def _finish_moves(self, moves: Sequence[Move]) -> None:
        """Confirm items that are in the other queue. May be called again after an interrupt."""
        queue = self._queue
        with queue.mutex:
            left = [move for move in moves if move.xid in queue.open_items]
            self._forget([move.xid for move in moves])
            queue.check()
            queue.confirm_locked([move.xid for move in left])
            queue.shelf.taken -= len(left)
            queue.moved += len(left)
            queue.expired += sum(move.has_expired for move in left)  # not earlier: an item may be put back and retried
            queue.compact_if_due()

    # --- unparking --------------------------------------------------------------------------------------------------

    def unpark(self, park: str, most: int | None) -> int:
        """Put parked items back, at the tail; returns their number."""
        return self.take_from(self._open(park), most)

    def take_from(self, parked: MovableQueue, most: int | None) -> int:
        """Move items from the head of another queue to the tail of this one; returns their number.

        A crash in between may leave items in both queues: they are still reserved in the other one, and its next
        opening puts them back at the head with one more attempt, which distinguishes them. Closing this queue waits for
        the batch that is being moved; closing the other one does not affect it.
        """
        count = 0
        while most is None or count < most:
            with self.lock:  # closing this queue waits for it, and closes the other queue too
                moved = self._take_some(parked, MOST_MOVES if most is None else min(MOST_MOVES, most - count))
            if not moved:
                break
            count += moved
        return count

    def _take_some(self, parked: MovableQueue, most: int) -> int:
        xids: list[int] = []
        arrived: list[Item] = []
        try:
            items = parked.reserve_many(most, xids, for_other=True)
            if not items:
                return 0
            parked.sync()
            self._queue.put_moved(items, arrived, within_limits=True)
            parked.moving.finish_unparked(xids)
            return len(items)
        except BaseException as error:
            if arrived and not isinstance(error, LogwrightError):
                self._queue.sync()
                parked.moving.finish_unparked(xids)
                raise
            with parked.mutex:
                parked.moving.xids.difference_update(xids)
                parked.moving.put_back(xids)
            raise

    def finish_unparked(self, xids: Sequence[int]) -> None:
        """Confirm items that another queue has taken. May be called again after an interrupt."""
        queue = self._queue
        with queue.mutex:
            left = [xid for xid in xids if xid in queue.open_items]
            self.xids.difference_update(xids)
            queue.check()
            queue.confirm_locked(left)
            queue.compact_if_due()
        queue.sync()
