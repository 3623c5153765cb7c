"""Engine: a queue, its memory and its journal kept in step. Nothing here waits, and nothing here syncs.

Every method that changes the queue holds the mutex while it checks, writes its operation, and changes what is in
memory, so the journal has the same operations in the same order. The caller makes them durable when the mutex is free
again, so that many callers share one sync.

An engine is a `Memory`, the items and the journal, and owns three parts: `compaction` keeps the journal small, `moving`
takes items to other queues, and `waiters` are the callers that wait for an item.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import Disk
from ...core.io.durability import ALWAYS, IntervalSync, Sync, SyncLike
from ...core.io.threads import Flag
from ...errors import Closed, Full, LogwrightError, TooLarge, WrongUse
from ..bytes.ids import following
from ..bytes.layout import (
    CONFIRM_REMOVE,
    KESTREL2,
    MAX_DATA_BYTES,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    UNREMOVE,
    XID_HEAD,
)
from ..bytes.records import Dialect
from .compaction import Compaction
from .items import Item, as_item
from .limits import Limits, check_count, check_targets, deadline_ms, park_of
from .memory import Memory
from .moving import MOST_MOVES, Move, Moving
from .shelf import NO_LIMIT, Entry
from .waiting import Waiters

logger = logging.getLogger("logwright.kestrel")

_REMOVE: Final = bytes([REMOVE])
_RESERVE: Final = bytes([REMOVE_TENTATIVE])
_SWEPT_AT_ONCE: Final = 10_000
"""How many items are looked at by a sweep before others have their turn."""


class Hand(list[Entry]):
    """Items that were removed for a caller. `serial` is that of the last removal if nothing came between them."""

    serial = -1


class Engine(Memory):
    """One queue of a directory. `borrow` opens another one of the same directory, for items that move there."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        *,
        sync: SyncLike = "none",
        dialect: Dialect = "auto",
        buffer_bytes: int = 0,
        background: bool = True,
        clock: Callable[[], float] | None = None,
        borrow: Callable[[str], Engine] | None = None,
        is_open: Callable[[Engine], None] = lambda engine: None,
        disk: Disk,
    ) -> None:
        self.holders: set[object] = set()
        self.handle: object | None = None
        self.limits = limits
        self.compaction = Compaction(self, path.name, limits, background=background)
        self.moving = Moving(self, borrow)
        self.moves = self.moving.moves  # looked at by every call
        self.waiters = Waiters()
        self.expired = self.discarded = self.moved = 0
        self._clock_seconds = clock
        self._is_closing = False
        self._is_over = Flag()
        """Set when closing is done, and with it the last sync."""
        self._interval = None
        try:
            self._open_journal(path, sync, dialect, buffer_bytes, disk, self)
            is_open(self)  # the last step: an engine that no caller knows could not be closed
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Give everything back when opening fails."""
        self.compaction.stop()
        self._end_sync()
        if hasattr(self, "_lock"):
            self._release()

    def _start(self) -> None:
        super()._start()
        self.compaction.set_thresholds()

    def _configure(self) -> None:
        self.configure(self.limits)

    def configure(self, limits: Limits) -> None:
        """Take these limits from now on."""
        check_targets(self.path, limits)
        with self.mutex:  # items that move here may be let in at this moment
            self.limits = self.compaction.limits = limits
            self._limit()
        self.shelf.max_memory_bytes, self.shelf.max_memory_items = limits.max_memory_bytes, limits.max_memory_items
        self.shelf.max_age = limits.max_age_ms
        self.shelf.max_attempts = 2**31 - 1 if limits.max_attempts is None else limits.max_attempts
        clock = self._clock_seconds
        self.shelf.clock = None if clock is None else lambda: int(clock() * 1000)
        self.compaction.set_thresholds()
        if limits.sweep_seconds is not None and self.compaction.thread is not None:
            self.compaction.thread.repeat(limits.sweep_seconds, self.sweep)

    def _limit(self) -> None:
        """Let no more in than the limits say."""
        limits = self.limits
        self.shelf.max_items = NO_LIMIT if limits.max_items is None else limits.max_items
        self.shelf.max_bytes = NO_LIMIT if limits.max_bytes is None else limits.max_bytes
        self.shelf.max_item_bytes = MAX_DATA_BYTES if limits.max_item_bytes is None else limits.max_item_bytes

    def keep_promises(self, policy: Sync, buffer_bytes: int) -> None:
        """Be as durable as this policy asks for: the engine may have been opened with a weaker one."""
        self._always = self._always or policy == ALWAYS
        if policy.name == "interval" and self._interval is None:
            self._interval = IntervalSync(policy.interval_ms, self._sync_in_background)
        if not buffer_bytes and policy != ALWAYS and not self._writes_through:
            with self.mutex:
                self.check()
                self.settled(self._write_at_once, together=False)

    def _write_at_once(self) -> None:
        self._write_buffered()
        self._writes_through = True
        self._rewire()

    @property
    def can_move(self) -> bool:
        """Whether there are items at all that move to other queues."""
        return self.limits.expire_to is not None or self.limits.max_attempts is not None

    @property
    def is_closing(self) -> bool:
        return self._is_closing or self._closed

    def check_process(self) -> None:
        """Raise `WrongUse` in a fork: the queue belongs to the parent, which continues to use it."""
        self._check_process()

    def _refuse(self) -> None:
        self._check_process()
        super()._refuse()

    @property
    def park(self) -> str:
        """The queue that items move to which have failed too often."""
        return park_of(self.queue, self.limits)

    def deadline(self, expires: Any, now: int) -> int:
        return deadline_ms(expires, now)

    # --- putting ----------------------------------------------------------------------------------------------------

    def prepare_to_put(self) -> None:
        """Care for the journal if that is due, and note where what is put from now on begins. The mutex is held."""
        if self.shelf.position > self.shelf.care_bytes:
            self.care()
        self.shelf.began = self.shelf.position

    def put_many_held(self, contents: Sequence[bytes], added: int, expires: int) -> None:
        """Add items at the tail that there is room for; the mutex is held."""

        def put() -> None:
            for data in contents:
                self.shelf.put_held(data, added, expires)

        self.settled(put)

    def check_room(self, contents: Sequence[bytes]) -> None:
        """Raise what adding these would raise. The mutex is held."""
        self.check()
        for data in contents:
            if len(data) > self.shelf.max_item_bytes:
                raise TooLarge(
                    f"an item of {len(data)} bytes is more than the {self.shelf.max_item_bytes} that this queue takes"
                )
        if self.limits.discard_old_when_full:
            return
        size = sum(map(len, contents))
        if self._is_too_much(len(contents), size):
            self.ready()  # what has expired makes room
            if self._is_too_much(len(contents), size):
                self._refuse_more()

    def _is_too_much(self, items: int, size: int) -> bool:
        return self.shelf.items + items > self.shelf.max_items or self.shelf.data_bytes + size > self.shelf.max_bytes

    def make_room(self, size: int) -> None:
        self.ready()
        if self.limits.discard_old_when_full and size <= self.shelf.max_bytes:
            if not self.shelf.unsettled:  # until the new one is in: `put_held` sees to that
                self.shelf.unsettled = True
                self.shelf.began = self.shelf.position
            while self.shelf.items and self._is_too_much(1, size):
                if not self.shelf.memory_items:
                    self._refill()
                self.shelf.emit(_REMOVE)
                self.shelf.pop()
                self.discarded += 1
        if self._is_too_much(1, size):
            self._refuse_more()

    def _refuse_more(self) -> None:
        waiting = f"{self.shelf.items} items of {self.shelf.data_bytes} bytes wait"
        raise Full(f"{self.path}: {waiting}, and more are not taken")

    def put_moved(self, items: Sequence[Item], arrived: list[Item], *, within_limits: bool) -> None:
        """Add items that come from another queue, all of them or none, and make that durable. Then they have `arrived`.

        They keep the time when they were added, and do not expire. The limits are for what is new. An item that moves
        by itself has been accepted before: if it had to wait here for room it would be in the way where it is. So it
        is taken in any case; the oldest make room for it if that is how this queue does it.
        """

        def put() -> None:
            for item in items:
                most = min(self.shelf.max_bytes, self.shelf.max_item_bytes)
                discards = self.limits.discard_old_when_full and len(item.data) <= most
                with contextlib.nullcontext() if within_limits or discards else self._unlimited():
                    self.shelf.put_held(item.data, item.added or self.shelf.now(), 0)

        with self.mutex:
            self.check()
            if within_limits:
                self.check_room([item.data for item in items])
            self.settled(put)
            arrived += items
        self.sync()

    @contextlib.contextmanager
    def _unlimited(self) -> Iterator[None]:
        """Let items in, whatever the limits are. The mutex is held."""
        self.shelf.max_items = self.shelf.max_bytes = NO_LIMIT
        self.shelf.max_item_bytes = MAX_DATA_BYTES
        try:
            yield
        finally:
            self._limit()

    # --- what is at the head ----------------------------------------------------------------------------------------

    def ready(self) -> bool:
        return self._is_deliverable() or self._reach(NO_LIMIT)

    def _reach(self, most: int) -> bool:
        """Take away up to `most` items that may not be delivered; whether the head may be delivered then."""

        def reach(most: int) -> bool:
            while self.shelf.items and len(self.moves) < MOST_MOVES:
                if not self.shelf.memory_items:
                    self._refill()
                if self._is_deliverable():
                    return True
                if most <= 0:
                    return False
                self._drop_head()
                most -= 1
            return False

        has_reached = self.settled(lambda: reach(most))
        self.compaction.run_if_refilled()
        return has_reached

    def _is_deliverable(self) -> bool:
        """Whether there is something at the head that may be handed out."""
        if not self.shelf.memory_items:
            return False
        head = self.shelf.head()
        return head[3] < self.shelf.max_attempts and not self._is_expired(head)

    def _is_expired(self, entry: Entry) -> bool:
        _, added, expires, _, _ = entry
        if not expires and not self.shelf.max_age:
            return False
        now, max_age = self.shelf.now(), self.shelf.max_age
        return bool(expires and expires <= now) or bool(max_age and (added or self.opened) + max_age <= now)

    def _drop_head(self) -> None:
        """Take away what has expired, or let it move where it belongs."""
        has_expired = self._is_expired(self.shelf.head())
        target = self.limits.expire_to if has_expired else self.park
        if target is None:
            self.shelf.emit(_REMOVE)
            self.shelf.pop()
            self.expired += 1
        else:
            xid = self._reserve_head()
            self.moving.add([Move(target, xid, self.open_items[xid], has_expired)])

    def peek(self) -> Item | None:
        """The head, which stays."""
        with self.mutex:
            self.check()
            return as_item(self.shelf.head()) if self.ready() else None

    def take_many(self, most: int, hand: Hand) -> Hand:
        """Remove up to `most` items from the head on; all that is known of them. Then they are in the `hand`."""

        def take() -> None:
            while len(found) < most and self._another(found):
                serials.append(self.shelf.serial)
                self.shelf.emit(_REMOVE)
                found.append(self.shelf.pop())
            if found and self.shelf.serial - serials[0] == len(found):
                hand.serial = self.shelf.serial

        found: list[Entry] = []
        serials: list[int] = []
        with self.mutex:
            self.check()
            self.settled(take)
            hand += found  # no call: an interrupt comes before the end of `settled` or after this
            self.shelf.taken += len(found)
            self.compact_if_due()
        return hand

    def hand(self) -> Hand:
        """The item that this thread holds by `hand_out`; it is in the hand then."""
        hand, held = Hand(), self.shelf.held()
        if held is not None:
            entry, hand.serial = held
            hand.append(entry)
            self.shelf.holds = False
        return hand

    def _another(self, found: Sequence[object]) -> bool:
        """Whether there is one more after those that were found. An error of reading it is raised by the next call."""
        try:
            return self.ready()
        except LogwrightError:
            if self.refusing or not found:
                raise
            return False  # these have been removed or reserved: the caller must get them

    def give_back(self, hand: Hand) -> None:
        """Put items back to the head that were removed for a caller that did not get them.

        There is always room for them. A journal cannot say that, so the removals are cut off its end. If others have
        used the queue since then, or the journal has another file, it is rewritten. Where that fails or takes too long
        the items go to the tail. If the queue was interrupted so badly that it is poisoned, it is closed, and its
        journal opened once more for this.
        """
        with self.mutex:
            if self.is_usable:
                self._return(hand)
                self.shelf.taken -= len(hand)
                return
        if self._failure is not None and not isinstance(self._failure, LogwrightError):
            self._give_to_another(hand)
        else:
            lost = "items were removed for tasks that were cancelled as the queue was closed, and are lost"
            logger.warning("%s: %d %s", self.path, len(hand), lost)

    def _return(self, hand: Hand) -> None:
        def take_back() -> None:
            self._take_back(len(hand))
            for entry in reversed(hand):
                self.shelf.put_back(entry)

        def put() -> None:
            with self._unlimited():
                for data, added, expires, _, _ in hand:
                    self.shelf.put_held(data, added or self.shelf.now(), expires)

        if hand.serial == self.shelf.serial:
            self.settled(take_back, together=False)
        elif not self.compaction.restate_with(hand):
            logger.warning("%s: a call was interrupted, and its %d items go to the tail", self.path, len(hand))
            self.settled(put)
            self.added_before += len(hand)
        for _ in hand:
            if self.shelf.waiting:
                self.wake()

    def _give_to_another(self, hand: Hand) -> None:
        self.close()
        again = Engine(self.path, Limits(), sync=self.policy, background=False, disk=self.disk)
        try:
            hand.serial = -1
            again.give_back(hand)
        finally:
            again.close()

    def flush_all(self) -> int:
        """Remove all items that wait; how many those were."""

        def remove() -> None:
            for start in range(0, count, 1 << 16):
                self.shelf.emit(_REMOVE * min(1 << 16, count - start))
            self.shelf.clear()
            self.end_behind()

        with self.mutex:
            self.check()
            count = self.shelf.items
            self.settled(remove)
            self.compact_if_due()
        return count

    # --- reserving --------------------------------------------------------------------------------------------------

    def reserve(self) -> Item | None:
        """Reserve the head; the item with its transaction id, None when there is nothing."""
        found = self.reserve_many(1)
        return found[0] if found else None

    def reserve_many(self, most: int, hand: list[int] | None = None, *, for_other: bool = False) -> list[Item]:
        """Reserve up to `most` items from the head on; `for_other` queues, which alone can finish them.

        Then their ids are in the `hand`.
        """

        def reserve() -> None:
            while len(found) < most and self._another(found):
                xid = self._reserve_head()
                found.append(as_item(self.open_items[xid], xid))
                xids.append(xid)
                if for_other:
                    self.moving.xids.add(xid)

        found: list[Item] = []
        xids: list[int] = []
        with self.mutex:
            self.check()
            self.settled(reserve, together=most > 1)
            if hand is not None:
                hand += xids
            self.compact_if_due()
        return found

    def _reserve_head(self) -> int:
        """Reserve the head as a replay of the journal will: under the id that it is named by, else the next one."""
        name = self.shelf.head()[4]
        if self.shelf.dialect != KESTREL2 and name and name not in self.open_items:
            xid = name
        else:
            xid = following(self.xid)
            while xid in self.open_items:
                xid = following(xid)
            self.xid = xid
        self.shelf.emit(XID_HEAD.pack(REMOVE_TENTATIVE_XID, xid) if self.shelf.dialect == KESTREL2 else _RESERVE)
        entry = self.open_items[xid] = self.shelf.pop()
        self.open_bytes += len(entry[0])
        return xid

    def confirm(self, xids: Sequence[int]) -> None:
        """Finish reserved items."""
        with self.mutex:
            self._check_open(xids)
            self.confirm_held(xids)
            self.compact_if_due()

    def confirm_held(self, xids: Sequence[int]) -> None:
        """Finish reserved items. The mutex is held."""
        operations = b"".join(XID_HEAD.pack(CONFIRM_REMOVE, xid) for xid in xids)
        before = self.shelf.began = self.shelf.position
        self.shelf.unsettled = True
        try:
            self.shelf.emit(operations)
            self._close_items(xids)
        except BaseException:
            if not self.refusing:
                if self.shelf.position > before:  # the journal says it, so it is done
                    self._close_items(xids)
                self.shelf.unsettled = False
            raise
        self.shelf.unsettled = False
        self.shelf.taken += len(xids)

    def _close_items(self, xids: Sequence[int]) -> None:
        for xid in xids:
            if xid in self.open_items:
                self._close_item(xid)

    def abort(self, xids: Sequence[int]) -> None:
        """Put reserved items back to the head, the one with the lowest id first. Those that failed too often move."""

        def put_back() -> None:
            failed = [xid for xid in xids if self.open_items[xid][3] + 1 >= self.shelf.max_attempts]
            self.moving.add([Move(self.park, xid, self.open_items[xid], False) for xid in failed])
            self.put_back_held(xid for xid in xids if xid not in self.moving.xids)

        with self.mutex:
            self._check_open(xids)
            self.settled(put_back)
            self.compact_if_due()

    def put_back_unseen(self, xids: Sequence[int]) -> None:
        """Put items back to the head that were reserved in this order for a caller that did not get them."""
        with self.mutex:
            if self.is_usable:
                self._put_back_as_listed([xid for xid in xids if self.is_open(xid)])

    def is_open(self, xid: int) -> bool:
        """Whether an item is reserved under this id by a caller that may confirm or abort it."""
        return xid in self.open_items and xid not in self.moving.xids

    def put_back_held(self, xids: Iterable[int]) -> None:
        """Put reserved items back to the head, the one with the lowest id first. The mutex is held."""
        self._put_back_as_listed(sorted(xids))

    def _put_back_as_listed(self, xids: Sequence[int]) -> None:
        def put_back() -> None:
            for xid in reversed(xids):
                self.shelf.emit(XID_HEAD.pack(UNREMOVE, xid))
                data, added, expires, attempts, _ = self._close_item(xid)
                self.shelf.put_back((data, added, expires, attempts + 1, 0))
                if self.shelf.waiting:
                    self.wake()

        self.settled(put_back)

    def _check_open(self, xids: Sequence[int]) -> None:
        self.check()
        for xid in xids:
            if not self.is_open(xid):
                raise WrongUse(
                    f"{self.path}: no transaction {xid} is open: it was confirmed or aborted before, or there was none"
                )
        if len(set(xids)) < len(xids):
            raise WrongUse(f"{self.path}: a transaction is named twice among {', '.join(map(str, xids))}")

    def _close_item(self, xid: int) -> Entry:
        entry = self.open_items.pop(xid)
        self.open_bytes -= len(entry[0])
        return entry

    # --- moving to other queues, waiting, compaction ----------------------------------------------------------------

    def unpark(self, most: int | None) -> int:
        """Put parked items back, at the tail; how many those were."""
        self._check_process()
        if most is not None:
            check_count(most)
        return self.moving.unpark(self.park, most)

    def wait_for(self, wake: Callable[[], None]) -> None:
        """Call a function when an item arrives: once, with the mutex held."""
        with self.mutex:
            self.check()
            self.waiters.add(wake)
            self.shelf.waiting = len(self.waiters)

    def stop_waiting(self, wake: Callable[[], None]) -> bool:
        """Forget a function; False if it has been called."""
        with self.mutex:
            try:
                return self.waiters.remove(wake)
            finally:
                self.shelf.waiting = len(self.waiters)

    def pass_on(self) -> None:
        """A caller was woken and takes nothing: wake another one."""
        with self.mutex:
            if self.shelf.waiting and self.shelf.items:
                self.wake()

    def wake(self) -> None:
        self.waiters.wake_first()
        self.shelf.waiting = len(self.waiters)

    def _wake_all(self) -> None:
        """Let all callers that wait find out that the queue is closed."""
        self.shelf.refusing = True
        while self.shelf.waiting:
            self.wake()

    def _poison(self, error: BaseException, *, loses: bool = False) -> None:
        super()._poison(error, loses=loses)
        self.waiters.alarm()

    def care(self) -> None:
        self.compaction.run()

    def compact_if_due(self) -> None:
        """Called at the end of a call that has taken items. The mutex is held."""
        self.compaction.run_if_due()

    def _refill(self) -> None:
        super()._refill()
        self.compaction.note_refill()

    def sweep(self) -> int:
        """Drop what has expired at the head, or let it move; how many items that were."""
        before = self.expired
        while self.sweep_some(_SWEPT_AT_ONCE) or self.moves:
            self.moving.finish()
        return self.expired - before

    def sweep_some(self, most: int) -> bool:
        """The same for up to `most` items, but without `moving.finish`; whether there is more to be done."""
        with self.mutex:
            self.check()
            has_reached = self._is_deliverable() or self._reach(most)
            self.compact_if_due()
            return not has_reached and self.shelf.items > 0

    def commit(self) -> None:
        """Make durable what this thread has done; threads that call at the same time share one sync.

        If the queue is closed meanwhile, the sync of that will do.
        """
        try:
            self._group.wait()
        except Closed:
            self._is_over.wait()
            if self._failure is not None:
                self._refuse()

    def iterate(self) -> Iterator[Entry]:
        """The items that wait, from head to tail, as they are now. What has expired is left out."""
        return (entry for entry in self.waiting_entries() if not self._is_expired(entry))

    # --- the end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """The queue was closed, and others still need the engine: put back what is open, and wake all that wait."""
        with self.mutex:
            if self.is_usable:
                self.put_back_held([xid for xid in self.open_items if self.is_open(xid)])
            while self.shelf.waiting:
                self.wake()

    def close(self) -> None:
        """Let items that are on their way to other queues get there, or come back; then close.

        In a fork this only closes the files: the queue belongs to the parent, which continues to use it.
        """
        if os.getpid() == self._process:
            self._end(self._close)
        elif not self._closed:
            self._closed = True
            self._release()

    def _close(self) -> None:
        try:
            with self.mutex:
                if not self._closed and self._failure is None and not self.shelf.items:
                    self.compaction.shorten()
                self._wake_all()
        finally:
            super().close()

    def delete(self) -> None:
        """Remove all items and all files, and close. A crash leaves the queue, an empty one, or none."""
        self._check_process()
        self._end(self._delete)

    def _delete(self) -> None:
        with self.mutex:
            self.check()
            self._or_poison(self._remove_all)
        super().close()

    def _remove_all(self) -> None:
        # Files of an empty queue can be removed one by one; others would represent another queue meanwhile.
        self.compaction.erase()
        self._wake_all()
        self.remove_files()

    def _end(self, end: Callable[[], None]) -> None:
        self._is_closing = True
        self.compaction.stop()
        with self.moving.lock:
            try:
                end()
            finally:
                if self._is_released or self._failure is not None:
                    self._is_over.set()
