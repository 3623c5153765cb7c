"""Engine: a queue, whose memory and journal it keeps consistent.

A method that changes the queue holds the mutex while it checks, writes its operation, and changes the memory, so the
journal has the same operations in the same order. It neither waits for items nor syncs: the caller makes the operations
durable after the mutex is released, so that many callers share one sync.

An engine is a `Memory`, the items and the journal, and owns four parts: `compaction` keeps the journal small, `moving`
moves items to other queues, `delays` has the items that are not due yet, and `waiters` are the callers that wait for an
item.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from .delays import QUEUE, DelayingQueue, Delays
from .items import Item, as_item
from .limits import Expires, Limits, check_count, check_targets, deadline_ms, park_of
from .memory import Fate, Memory
from .moving import MOST_MOVES, Move, Moving
from .shelf import NO_LIMIT, Entry
from .waiting import Waiters

logger = logging.getLogger("logwright.kestrel")

_REMOVE: Final = bytes([REMOVE])
_RESERVE: Final = bytes([REMOVE_TENTATIVE])
_SWEPT_AT_ONCE: Final = 10_000
"""The most items that a sweep examines before it releases the mutex."""


_SIDE_LIMITS: Final = Limits(max_memory_bytes=2**61)
"""The limits of holding queues and ledgers: all their items are in memory."""


class Side(NamedTuple):
    """What the engine of a holding queue or a ledger asks the queue that it belongs to: see `OpenSide`."""

    fate_of: Callable[[int, Entry], Fate]
    replacing: Callable[[], None]


class RemovedItems(list[Entry]):
    """Items that were removed for a caller. `serial` is that of the last removal if no other operation intervened."""

    serial = -1


class Engine(Memory):
    """One queue of a directory. `borrow` opens another queue of that directory, for items that move there."""

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
        side: Side | None = None,
        disk: Disk,
    ) -> None:
        self.holders: set[object] = set()
        self.handle: object | None = None
        self.limits = limits
        self.compaction = Compaction(self, path.name, limits, background=background)
        self.delays = Delays(self, self._open_side)
        self.due_ms = NO_LIMIT
        """When the next delayed item is due."""
        self._side = side
        self.moving = Moving(self, borrow, self.delays.move)
        self.moves = self.moving.moves  # read by every call
        self.waiters = Waiters()
        self.expired = self.discarded = self.moved = 0
        self._clock_seconds = clock
        self._is_closing = False
        self._is_over = Flag()
        """Set after closing, which includes the last sync."""
        self._interval = None
        try:
            self._open_journal(path, sync, dialect, buffer_bytes, disk, self)
            is_open(self)  # the last step: from now on the caller can close the engine
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Release everything after opening has failed."""
        self.compaction.stop()
        self._end_sync()
        with contextlib.suppress(LogwrightError):
            self.delays.close()
        if hasattr(self, "_lock"):
            self._release()

    def _start(self) -> None:
        super()._start()
        self.compaction.set_thresholds()
        self.delays.start()

    def _open_side(
        self, path: Path, fate_of: Callable[[int, Entry], Fate], replacing: Callable[[], None]
    ) -> DelayingQueue:
        """Open the holding queue or the ledger; `sync` of this engine syncs them."""
        side = Side(fate_of, replacing)
        return Engine(path, _SIDE_LIMITS, background=False, clock=self._clock_seconds, side=side, disk=self.disk)

    def _prepare_to_load(self) -> None:
        if self._side is None:
            self.delays.open()

    def _fate_of(self, xid: int, entry: Entry) -> Fate:
        return (self.delays if self._side is None else self._side).fate_of(xid, entry)

    def before_replacing(self) -> None:
        if self._side is None:
            self.delays.settle(QUEUE)
        else:
            self._side.replacing()

    def _configure(self) -> None:
        self.configure(self.limits)

    def configure(self, limits: Limits) -> None:
        """Apply these limits from now on."""
        check_targets(self.path, limits)
        with self.mutex:  # `put_moved` may have lifted the limits
            self.limits = self.compaction.limits = limits
            self._apply_limits()
        self.shelf.max_memory_bytes, self.shelf.max_memory_items = limits.max_memory_bytes, limits.max_memory_items
        self.watch_due(self.due_ms)
        self.shelf.max_attempts = 2**31 - 1 if limits.max_attempts is None else limits.max_attempts
        clock = self._clock_seconds
        self.shelf.clock = None if clock is None else lambda: int(clock() * 1000)
        self.compaction.set_thresholds()
        if limits.sweep_seconds is not None and self.compaction.thread is not None:
            self.compaction.thread.repeat(limits.sweep_seconds, self.sweep)

    def _apply_limits(self) -> None:
        """Set the limits of the shelf for new items."""
        limits = self.limits
        self.shelf.max_items = NO_LIMIT if limits.max_items is None else limits.max_items
        self.shelf.max_bytes = NO_LIMIT if limits.max_bytes is None else limits.max_bytes
        self.shelf.max_item_bytes = MAX_DATA_BYTES if limits.max_item_bytes is None else limits.max_item_bytes

    def ensure_durability(self, policy: Sync, buffer_bytes: int) -> None:
        """Make the engine at least as durable as this policy: it may have been opened with a weaker one."""
        self._always = self._always or policy == ALWAYS
        if policy.name == "interval" and self._interval is None:
            self._interval = IntervalSync(policy.interval_ms, self._sync_in_background)
        if not buffer_bytes and policy != ALWAYS and not self._writes_through:
            with self.mutex:
                self.check()
                self.atomically(self._start_writing_through, together=False)

    def _start_writing_through(self) -> None:
        self._write_buffered()
        self._writes_through = True
        self._choose_write()

    @property
    def can_move(self) -> bool:
        """Whether items may move to other queues."""
        return self.limits.expire_to is not None or self.limits.max_attempts is not None or self.delays.is_used

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
        """The queue that items move to after `max_attempts`."""
        return park_of(self.queue, self.limits)

    def deadline(self, expires: Any, now: int) -> int:
        return deadline_ms(expires, now)

    # --- putting ----------------------------------------------------------------------------------------------------

    def prepare_to_put(self) -> None:
        """Compact the journal if that is due, and store where the next operations begin. The mutex is held."""
        if self.shelf.position > self.shelf.compact_bytes:
            self.compact()
        self.shelf.began = self.shelf.position

    def put_many_locked(self, contents: Sequence[bytes], added: int, expires: int) -> None:
        """Add items at the tail. `check_room` has been called, and the mutex is held."""

        def put() -> None:
            for data in contents:
                self.shelf.put_locked(data, added, expires)

        self.atomically(put)

    def put_once_locked(self, data: bytes, added: int, expires: int, id: str) -> None:
        """Add an item at the tail under an id. `check_room` has been called, and the mutex is held."""

        def put() -> None:
            if self._is_too_much(1, len(data)):
                self.make_room(len(data))
            self.delays.note_id(id, self, QUEUE, data, added, expires)
            self.shelf.put_locked(data, added, expires)

        self.atomically(put)

    def check_room(self, contents: Sequence[bytes], items: int = 0, size: int = 0) -> None:
        """Raise the error that adding these items after `items` others would raise. The mutex is held."""
        self.check()
        for data in contents:
            if len(data) > self.shelf.max_item_bytes:
                raise TooLarge(
                    f"an item of {len(data)} bytes is more than the {self.shelf.max_item_bytes} that this queue takes"
                )
        if self.limits.discard_old_when_full:
            return
        items, size = items + len(contents), size + sum(map(len, contents))
        if self._is_too_much(items, size):
            self.ready()  # removes expired items
            if self._is_too_much(items, size):
                self._refuse_full()

    def _is_too_much(self, items: int, size: int) -> bool:
        return self.shelf.items + items > self.shelf.max_items or self.shelf.data_bytes + size > self.shelf.max_bytes

    def make_room(self, size: int) -> None:
        self.ready()
        if self.limits.discard_old_when_full and size <= self.shelf.max_bytes:
            if not self.shelf.unsettled:  # until `put_locked` has added the new one
                self.shelf.unsettled = True
                self.shelf.began = self.shelf.position
            while self.shelf.items and self._is_too_much(1, size):
                if not self.shelf.memory_items:
                    self._refill()
                self.shelf.emit(_REMOVE)
                self.shelf.pop()
                self.discarded += 1
        if self._is_too_much(1, size):
            self._refuse_full()

    def _refuse_full(self) -> None:
        raise Full(f"{self.path} is full: {self.shelf.items} items of {self.shelf.data_bytes} bytes wait")

    def put_moved(self, items: Sequence[Item], arrived: list[Item], *, within_limits: bool) -> None:
        """Add items of another queue, all of them or none, and make them durable. They are then in `arrived`.

        They keep the time when they were added, and do not expire. The limits are for new items. An expired or failed
        item has been accepted before, and would block its own queue if it had to wait for room here. So it is always
        accepted; with `discard_old_when_full` the oldest items are discarded for it.
        """

        def put() -> None:
            for item in items:
                most = min(self.shelf.max_bytes, self.shelf.max_item_bytes)
                discards = self.limits.discard_old_when_full and len(item.data) <= most
                with contextlib.nullcontext() if within_limits or discards else self.unlimited():
                    self.shelf.put_locked(item.data, item.added or self.shelf.now(), 0)

        with self.mutex:
            self.check()
            if within_limits:
                self.check_room([item.data for item in items])
            self.atomically(put)
            arrived += items
        self.sync()

    @contextlib.contextmanager
    def unlimited(self) -> Iterator[None]:
        """Lift the limits in the block. The mutex is held."""
        self.shelf.max_items = self.shelf.max_bytes = NO_LIMIT
        self.shelf.max_item_bytes = MAX_DATA_BYTES
        try:
            yield
        finally:
            self._apply_limits()

    # --- the head ---------------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        if self.is_due:
            self.delays.release()
        return self._is_deliverable() or self._drop_undeliverable(NO_LIMIT)

    def _drop_undeliverable(self, most: int) -> bool:
        """Drop up to `most` items at the head that may not be delivered; returns whether the next one may be."""

        def drop(most: int) -> bool:
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

        is_ready = self.atomically(lambda: drop(most))
        self.compaction.run_if_refilled()
        return is_ready

    def _is_deliverable(self) -> bool:
        """Whether the shelf has a head that may be delivered."""
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
        """Remove the head, or reserve it to be moved to its target queue."""
        has_expired = self._is_expired(self.shelf.head())
        target = self.limits.expire_to if has_expired else self.park
        if target is None:
            self.shelf.emit(_REMOVE)
            self.shelf.pop()
            self.expired += 1
        else:
            xid = self.reserve_head()
            self.moving.add([Move(target, xid, self.open_items[xid], has_expired)])

    def peek(self) -> Item | None:
        """The head; it is not removed."""
        with self.mutex:
            self.check()
            return as_item(self.shelf.head()) if self.ready() else None

    def take_many(self, most: int, removed: RemovedItems) -> RemovedItems:
        """Remove up to `most` items from the head on, and add them to `removed`, which is returned."""

        def take() -> None:
            while len(found) < most and self._has_next(found):
                serials.append(self.shelf.serial)
                self.shelf.emit(_REMOVE)
                found.append(self.shelf.pop())
            if found and self.shelf.serial - serials[0] == len(found):
                removed.serial = self.shelf.serial

        found: list[Entry] = []
        serials: list[int] = []
        with self.mutex:
            self.check()
            self.atomically(take)
            removed += found  # not a call: an interrupt comes before the end of `atomically`, or after this line
            self.shelf.taken += len(found)
            self.compact_if_due()
        return removed

    def take_held(self) -> RemovedItems:
        """The item that this thread holds after `get_and_hold`; the shelf holds it no longer."""
        removed, held = RemovedItems(), self.shelf.held()
        if held is not None:
            entry, removed.serial = held
            removed.append(entry)
            self.shelf.holds = False
        return removed

    def _has_next(self, found: Sequence[object]) -> bool:
        """Whether there is another item. If it cannot be read and others were found, the next call raises the error."""
        try:
            return self.ready()
        except LogwrightError:
            if self.refusing or not found:
                raise
            return False  # those found have been removed or reserved: the caller must get them

    def give_back(self, removed: RemovedItems) -> None:
        """Return removed items to the head, because their caller did not get them. The limits do not apply.

        No operation does this, so the removals are cut off the end of the journal. If other operations follow them, or
        they are in another file, the journal is rewritten. If that fails or would take too long, the items are added at
        the tail. If the interrupt has poisoned the queue, it is closed, and its journal is reopened for this.
        """
        with self.mutex:
            if self.is_usable:
                self._put_back_removed(removed)
                self.shelf.taken -= len(removed)
                return
        if self._failure is not None and not isinstance(self._failure, LogwrightError):
            self._give_back_reopened(removed)
        else:
            lost = "items were removed for tasks that were cancelled when the queue was closed, and are lost"
            logger.warning("%s: %d %s", self.path, len(removed), lost)

    def _put_back_removed(self, removed: RemovedItems) -> None:
        def take_back() -> None:
            self._take_back(len(removed))
            for entry in reversed(removed):
                self.shelf.put_back(entry)

        def put() -> None:
            with self.unlimited():
                for data, added, expires, _, _ in removed:
                    self.shelf.put_locked(data, added or self.shelf.now(), expires)

        if removed.serial == self.shelf.serial:
            self.atomically(take_back, together=False)
        elif not self.compaction.restate_with(removed):
            logger.warning("%s: a call was interrupted; its %d items are put at the tail", self.path, len(removed))
            self.atomically(put)
            self.added_before += len(removed)
        for _ in removed:
            if self.shelf.waiting:
                self.wake()

    def _give_back_reopened(self, removed: RemovedItems) -> None:
        self.close()
        again = Engine(self.path, Limits(), sync=self.policy, background=False, disk=self.disk)
        try:
            removed.serial = -1
            again.give_back(removed)
        finally:
            again.close()

    def clear(self) -> int:
        """Remove all waiting and delayed items; returns their number."""

        def remove() -> None:
            for start in range(0, count, 1 << 16):
                self.shelf.emit(_REMOVE * min(1 << 16, count - start))
            self.shelf.clear()
            self.end_behind()

        with self.mutex:
            self.check()
            count = self.shelf.items
            self.atomically(remove)
            count += self.delays.clear()
            self.compact_if_due()
        return count

    # --- reserving --------------------------------------------------------------------------------------------------

    def reserve(self) -> Item | None:
        """Reserve the head; returns the item with its transaction id, None if there is none."""
        found = self.reserve_many(1)
        return found[0] if found else None

    def reserve_many(self, most: int, reserved: list[int] | None = None, *, for_other: bool = False) -> list[Item]:
        """Reserve up to `most` items from the head on, and add their ids to `reserved`.

        Items that are reserved `for_other` queues cannot be confirmed or aborted by callers.
        """

        def reserve() -> None:
            while len(found) < most and self._has_next(found):
                xid = self.reserve_head()
                found.append(as_item(self.open_items[xid], xid))
                xids.append(xid)
                if for_other:
                    self.moving.xids.add(xid)

        found: list[Item] = []
        xids: list[int] = []
        with self.mutex:
            self.check()
            self.atomically(reserve, together=most > 1)
            if reserved is not None:
                reserved += xids
            self.compact_if_due()
        return found

    def reserve_head(self) -> int:
        """Reserve the head as a replay of the journal will: under the id of its ADD_XID, else under the next one."""
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

    def reserve_all(self) -> None:
        """Reserve all items, whether or not they have expired. The mutex is held."""

        def reserve() -> None:
            while self.shelf.items:
                if not self.shelf.memory_items:
                    self._refill()
                self.reserve_head()

        self.atomically(reserve)

    def confirm(self, xids: Sequence[int]) -> None:
        """Finish reserved items."""
        with self.mutex:
            self._check_open(xids)
            self.confirm_locked(xids)
            self.compact_if_due()

    def confirm_locked(self, xids: Sequence[int]) -> None:
        """Finish reserved items. The mutex is held."""
        operations = b"".join(XID_HEAD.pack(CONFIRM_REMOVE, xid) for xid in xids)
        before = self.shelf.began = self.shelf.position
        self.shelf.unsettled = True
        try:
            self.shelf.emit(operations)
            self._close_items(xids)
        except BaseException:
            if not self.refusing:
                if self.shelf.position > before:  # the journal has the operations, so the items are finished
                    self._close_items(xids)
                self.shelf.unsettled = False
            raise
        self.shelf.unsettled = False
        self.shelf.taken += len(xids)

    def _close_items(self, xids: Sequence[int]) -> None:
        for xid in xids:
            if xid in self.open_items:
                self._close_item(xid)

    def abort(self, xids: Sequence[int], delay: Expires | None = None) -> None:
        """Put reserved items back at the head, lowest id first; move those that have reached `max_attempts`.

        With a delay, by default that of the limits, they stay reserved until they are due.
        """

        def put_back() -> None:
            failed = [xid for xid in xids if self.open_items[xid][3] + 1 >= self.shelf.max_attempts]
            self.moving.add([Move(self.park, xid, self.open_items[xid], False) for xid in failed])
            left = [xid for xid in xids if xid not in self.moving.xids]
            self.put_back_locked(self.delays.retry(left, delay))

        with self.mutex:
            self._check_open(xids)
            self.atomically(put_back)
            self.compact_if_due()

    def put_back_undelivered(self, xids: Sequence[int]) -> None:
        """Return items to the head, in the order in which they were reserved: their caller did not get them."""
        with self.mutex:
            if self.is_usable:
                self._put_back_as_listed([xid for xid in xids if self.is_open(xid)])

    def is_open(self, xid: int) -> bool:
        """Whether an item is reserved under this id by a caller that may confirm or abort it."""
        return xid in self.open_items and xid not in self.moving.xids and xid not in self.delays.retries

    def put_back_locked(self, xids: Iterable[int]) -> None:
        """Put reserved items back at the head, lowest id first. The mutex is held."""
        self._put_back_as_listed(sorted(xids))

    def _put_back_as_listed(self, xids: Sequence[int]) -> None:
        def put_back() -> None:
            for xid in reversed(xids):
                self.shelf.emit(XID_HEAD.pack(UNREMOVE, xid))
                data, added, expires, attempts, _ = self._close_item(xid)
                self.shelf.put_back((data, added, expires, attempts + 1, 0))
                if self.shelf.waiting:
                    self.wake()

        self.atomically(put_back)

    def _check_open(self, xids: Sequence[int]) -> None:
        self.check()
        for xid in xids:
            if not self.is_open(xid):
                raise WrongUse(
                    f"{self.path}: transaction {xid} is not open: it was confirmed or aborted, or never existed"
                )
        if len(set(xids)) < len(xids):
            raise WrongUse(f"{self.path}: a transaction is given twice: {', '.join(map(str, xids))}")

    def _close_item(self, xid: int) -> Entry:
        entry = self.open_items.pop(xid)
        self.open_bytes -= len(entry[0])
        return entry

    # --- moving to other queues, waiting, compaction ----------------------------------------------------------------

    def unpark(self, most: int | None) -> int:
        """Put parked items back, at the tail; returns their number."""
        self._check_process()
        if most is not None:
            check_count(most)
        return self.moving.unpark(self.park, most)

    def watch_due(self, due: int) -> None:
        """The next delayed item is due at this time, `NO_LIMIT` for none. The mutex is held.

        Callers that wait until a later time are woken: they wait again until this one.
        """
        is_earlier, self.due_ms = due < self.due_ms, due
        # With a `max_age`, the shelf calls `ready` for every item.
        self.shelf.max_age = self.limits.max_age_ms or (0 if due == NO_LIMIT else NO_LIMIT)
        while is_earlier and self.shelf.waiting:
            self.wake()

    @property
    def is_due(self) -> bool:
        """Whether a delayed item is due."""
        return self.due_ms != NO_LIMIT and self.due_ms <= self.shelf.now()

    def release_due(self) -> bool:
        """Put back items that are due, or have `moving` do it; returns whether there were any. The mutex is free."""
        if not self.is_due:
            return False
        with self.mutex:
            self.check()
            self.delays.release()
        return True

    def seconds_until_due(self) -> float | None:
        """How long it is until the next delayed item is due; None if there is none."""
        return None if self.due_ms == NO_LIMIT else max(0, self.due_ms - self.shelf.now()) / 1000

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

    def wake_next(self) -> None:
        """Wake another caller, because one that was woken takes nothing."""
        with self.mutex:
            if self.shelf.waiting and self.shelf.items:
                self.wake()

    def wake(self) -> None:
        self.waiters.wake_first()
        self.shelf.waiting = len(self.waiters)

    def _wake_all(self) -> None:
        """Wake all waiting callers: they find that the queue is closed."""
        self.shelf.refusing = True
        while self.shelf.waiting:
            self.wake()

    def _poison(self, error: BaseException, *, loses: bool = False) -> None:
        super()._poison(error, loses=loses)
        self.waiters.alarm()

    def compact(self) -> None:
        self.compaction.run()

    def compact_if_due(self) -> None:
        """Compact the journal if that is due, at the end of a call that has taken items. The mutex is held."""
        self.compaction.run_if_due()

    def _refill(self) -> None:
        super()._refill()
        self.compaction.note_refill()

    def sweep(self) -> int:
        """Remove or move expired items at the head; returns their number."""
        before = self.expired
        while self.sweep_some(_SWEPT_AT_ONCE) or self.moves:
            self.moving.finish()
        return self.expired - before

    def sweep_some(self, most: int) -> bool:
        """The same for up to `most` items, but without `moving.finish`; returns whether there is more to do."""
        with self.mutex:
            self.check()
            if self.is_due:
                self.delays.release()
            is_ready = self._is_deliverable() or self._drop_undeliverable(most)
            self.compact_if_due()
            return not is_ready and self.shelf.items > 0

    def sync(self) -> None:
        """Make everything so far durable, also in the holding queue and the ledger."""
        super().sync()
        self.delays.sync()

    def commit(self) -> None:
        """Make the operations of this thread durable; threads that call at the same time share one sync.

        If the queue is closed meanwhile, closing syncs them.
        """
        try:
            self._group.wait()
        except Closed:
            self._is_over.wait()
            if self._failure is not None:
                self._refuse()

    def iterate(self) -> Iterator[Entry]:
        """The waiting items, from head to tail, as they are now, without expired ones."""
        return (entry for entry in self.waiting_entries() if not self._is_expired(entry))

    # --- the end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """The handle was closed, but the engine is still used: put open items back, and wake all waiting callers."""
        with self.mutex:
            if self.is_usable:
                self.put_back_locked([xid for xid in self.open_items if self.is_open(xid)])
            while self.shelf.waiting:
                self.wake()

    def close(self) -> None:
        """Close the queue, after items that are being moved to other queues have arrived or are put back.

        In a fork this only closes the files: the queue belongs to the parent, which continues to use it.
        """
        if os.getpid() == self._process:
            self._end(self._close)
        elif not self._closed:
            self._closed = True
            self._release()
            self.delays.close()

    def _close(self) -> None:
        try:
            with self.mutex:
                if not self._closed and self._failure is None and not self.shelf.items:
                    self.compaction.shorten()
                self._wake_all()
        finally:
            with contextlib.ExitStack() as stack:
                stack.callback(self.delays.close)
                stack.callback(super().close)

    def delete(self) -> None:
        """Remove all items and all files, and close. A crash leaves the queue, an empty queue, or none."""
        self._check_process()
        self._end(self._delete)

    def _delete(self) -> None:
        with self.mutex:
            self.check()
            self._or_poison(self._remove_all)
        super().close()
        self.delays.close()

    def _remove_all(self) -> None:
        self.delays.delete()
        # The queue is emptied first: a crash between the removals of two files would leave another state.
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
