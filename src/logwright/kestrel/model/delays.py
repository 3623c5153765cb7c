"""Delays: items of a queue that are not due yet, and the ids of items that were put.

An item that is put with a delay is in the holding queue `NAME~delayed` of the same directory, an ordinary queue of the
format. It expires there when it is due, so Kestrel with `expireToQueue` moves it too. All items are reserved there,
because only reserved items can leave a queue in any order.

An item that was put back with a delay stays reserved in its own queue until it is due. Then it is put back at the head.

The ledger, a queue below `.logwright/` that other programs do not see, holds what the format cannot express. Each of
its items is a note in JSON:

    ["id", journal, end, size, crc, id]   an item with this id was put; the note expires at the end of the window
    ["retry", xid, added]                 the item reserved under this id stays reserved until the note expires
    ["move", [[xid, end], ...]]           these items of the holding queue are put into the queue

A note of an id or a move is written before its operation, and synced unless the policy allows losing both. `end` is
the number at which that operation ends in its `journal`: in the queue, "q", or in the holding queue, "h". So after a
crash the note is true if and only if the journal has this operation there: an item is put once, and moves once. The
length of the journal would not show it, because another program may have appended to the journal since. Before
operations get other places, because a journal is replaced or packed, they are synced, true notes of ids get the journal
"", and the ends in notes of moves become 0. A false note is removed on opening, before anything else is written.

The mutexes are acquired in the order: the queue, the holding queue, the ledger. The mutex of the ledger also guards
the notes in memory.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ...core.io.disk import Disk
from ...errors import LogwrightError
from ..bytes import codec
from ..bytes.layout import delayed_name, ledger_name
from ..bytes.records import Operation
from ..files.files import list_files
from .limits import Expires, Limits, due_ms
from .memory import Fate
from .moving import MOST_MOVES, Moving
from .shelf import NO_LIMIT, Entry, Shelf

Result = TypeVar("Result")
QUEUE: Final = "q"
HOLDING: Final = "h"
_SETTLED: Final = ""
_SPARE_NOTES: Final = 1000
"""The ledger is rewritten when it has this many notes more than twice those in use."""


class DelayingQueue(Protocol):
    """The methods of a queue that delays need: of the queue itself, of the holding queue, and of the ledger."""

    path: Path
    disk: Disk
    mutex: Any
    shelf: Shelf
    limits: Limits
    moving: Moving
    open_items: dict[int, Entry]
    open_bytes: int
    due_ms: int

    @property
    def queue(self) -> str: ...
    @property
    def next_number(self) -> int: ...
    def bytes_before(self, number: int, size: int) -> bytes: ...
    @property
    def syncs_always(self) -> bool: ...
    @property
    def has_failed(self) -> bool: ...
    def check(self) -> None: ...
    def poison(self, error: BaseException) -> None: ...
    def atomically(self, work: Callable[[], Result], *, together: bool = True) -> Result: ...
    def unlimited(self) -> contextlib.AbstractContextManager[None]: ...
    def check_room(self, contents: Sequence[bytes], items: int = 0, size: int = 0) -> None: ...
    def prepare_to_put(self) -> None: ...
    def put_many_locked(self, contents: Sequence[bytes], added: int, expires: int) -> None: ...
    def reserve_head(self) -> int: ...
    def reserve_all(self) -> None: ...
    def confirm_locked(self, xids: Sequence[int]) -> None: ...
    def put_back_locked(self, xids: Sequence[int]) -> None: ...
    def watch_due(self, due: int) -> None: ...
    def waiting_entries(self) -> Iterator[Entry]: ...
    def compact_if_due(self) -> None: ...
    def replace(self) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def delete(self) -> None: ...


class OpenSide(Protocol):
    """Opens the holding queue or the ledger.

    `fate_of` says what happens to items that are reserved there, and `replacing` is called before its journal is
    replaced.
    """

    def __call__(
        self, path: Path, fate_of: Callable[[int, Entry], Fate], replacing: Callable[[], None]
    ) -> DelayingQueue: ...


class Id(NamedTuple):
    """The note of an id: when it expires, and the operation that it is about."""

    expires: int
    journal: str
    end: int
    size: int
    crc: int


class Delays:
    """The delayed items of a queue, and its ids. The mutex of the queue is held, unless a method says otherwise."""

    def __init__(self, queue: DelayingQueue, open_side: OpenSide) -> None:
        self._queue, self._open_side = queue, open_side
        self._holding: DelayingQueue | None = None
        self._ledger: DelayingQueue | None = None
        self.retries: dict[int, int] = {}
        """When the items that stay reserved in the queue are due, by their ids."""
        self._retry_times: list[tuple[int, int]] = []
        self._held_times: list[tuple[int, int]] = []
        """Heaps of due times and ids; `_retry_times` may have outdated entries."""
        self._moved: dict[int, int] = {}
        """The last items of the holding queue that were put into the queue, not yet confirmed, and their ends."""
        self._synced: dict[DelayingQueue, int] = {}
        """The serial up to which the holding queue, and the ledger, is durable."""
        # Guarded by the mutex of the ledger:
        self._ids: dict[str, Id] = {}
        """The oldest note first."""
        self._notes: dict[int, tuple[int, int]] = {}
        """By xid: when a retried item was added, and when it is due."""

    def __len__(self) -> int:
        return len(self.retries) + len(self._held_times)

    @property
    def is_used(self) -> bool:
        """Whether there are, or were, delayed items or ids."""
        return self._holding is not None or self._ledger is not None

    # --- opening and closing ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the holding queue and the ledger, if they exist. Nothing was written to the queue yet."""
        path, disk = self._queue.path, self._queue.disk
        ends: dict[int, int] = {}
        if disk.exists(path.parent / ledger_name(path.name)):
            ends = self._load_ledger()
        if list_files(disk, path.parent, delayed_name(path.name)).files:
            self._open_holding(ends)
        if self._ledger is not None:
            false = [*self._false_ids(QUEUE, self._queue), *self._false_ids(HOLDING, self._holding)]
            for id in false:
                del self._ids[id]
            if false or ends:
                with self._ledger.mutex:
                    self._rewrite(self._ledger)

    def _load_ledger(self) -> dict[int, int]:
        """Load the notes; returns the ends of items that moved."""
        now = self._queue.shelf.now()
        ends: dict[int, int] = {}
        for data, _, expires, _, _ in self._opened_ledger().waiting_entries():
            kind, *fields = json.loads(data)
            if kind == "id":
                *place, id = fields
                self._ids.pop(id, None)
                if expires > now:
                    self._ids[id] = Id(expires, *place)
            elif kind == "retry":
                xid, added = fields
                self._notes[xid] = added, expires
            else:
                ends.update(dict(fields[0]))
        return ends

    def _false_ids(self, journal: str, queue: DelayingQueue | None) -> Iterator[str]:
        """The ids whose operations a journal does not have: the last ones, because it has those before each of it."""
        for id, note in reversed(self._ids.items()):
            if note.journal == journal:
                if queue is not None and zlib.crc32(queue.bytes_before(note.end, note.size)) == note.crc:
                    return
                yield id

    def fate_of(self, xid: int, entry: Entry) -> Fate:
        """What happens on opening to an item of the queue that was reserved."""
        now, attempts = self._queue.shelf.now(), entry[3] + 1
        added, due = self._notes.get(xid, (entry[1], 0))
        delay = self._queue.limits.retry_delay_ms(attempts)
        if added == entry[1] and due:
            if due > now:
                self._retry_at(xid, due)
        elif delay and attempts < self._queue.shelf.max_attempts:
            self._hold([(xid, entry, now + delay)])
        return Fate.STAYS if xid in self.retries else Fate.IS_PUT_BACK

    def start(self) -> None:
        """The items of the queue are loaded: forget the notes of other items."""
        notes, now = self._notes, self._queue.shelf.now()
        self._notes = {xid: note for xid, note in notes.items() if xid in self.retries}
        if self._ledger is not None and any(due > now for xid, (_, due) in notes.items() if xid not in self._notes):
            with self._ledger.mutex:  # an item that is reserved later may get one of their ids
                self._rewrite(self._ledger)
        if self._ledger is not None and self._queue.syncs_always:
            self._ledger.sync()
        self._update()

    def close(self) -> None:
        """Close the holding queue and the ledger. The mutex is free."""
        with contextlib.ExitStack() as stack:
            for side in (self._ledger, self._holding):  # the holding queue is closed first, and uses the ledger
                if side is not None:
                    stack.callback(side.close)

    def delete(self) -> None:
        """Delete the holding queue and the ledger, before the queue: ids must not outlive its items."""
        for side in (self._holding, self._ledger):
            if side is not None:
                side.delete()
        self._holding = self._ledger = None

    # --- putting ----------------------------------------------------------------------------------------------------

    def knows(self, id: str, now: int) -> bool:
        """Whether an item with this id was put within the window."""
        note = self._ids.get(id)
        return note is not None and note.expires > now

    def put(self, contents: Sequence[bytes], added: int, due: int, id: str | None = None) -> None:
        """Add items to the holding queue; with an id there is only one."""
        holding = self._open_holding() if self._holding is None else self._holding
        self._queue.check_room(contents, len(self), holding.open_bytes)

        def put() -> None:
            if id is not None:
                self.note_id(id, holding, HOLDING, contents[0], added, due)
            for data in contents:
                holding.shelf.put_locked(data, added, due)
            for _ in contents:
                heapq.heappush(self._held_times, (due, holding.reserve_head()))

        with self._failing_together(), holding.mutex:
            holding.check()
            holding.prepare_to_put()
            holding.atomically(put)
        self._update()

    def note_id(self, id: str, into: DelayingQueue, journal: str, data: bytes, added: int, expires: int) -> None:
        """Note an item that is about to be put into a journal under an id."""
        limits = self._queue.limits
        operation = _adding(data, added, expires)
        end = into.next_number + len(operation)
        note = Id(added + limits.id_window_ms, journal, end, len(operation), zlib.crc32(operation))
        with self._poisoning(into) as ledger, ledger.mutex:
            self._add(ledger, ["id", *note[1:], id], note.expires)
            self._ids.pop(id, None)
            self._ids[id] = note
            while len(self._ids) > limits.max_ids or next(iter(self._ids.values())).expires <= added:
                del self._ids[next(iter(self._ids))]
        if self._queue.syncs_always:
            with self._poisoning(into) as ledger:
                ledger.sync()

    @contextlib.contextmanager
    def _failing_together(self) -> Iterator[None]:
        """If the holding queue or the ledger fails, the queue is poisoned: reopening it reopens all of them."""
        try:
            yield
        except LogwrightError as error:
            if any(side is not None and side.has_failed for side in (self._holding, self._ledger)):
                self._queue.poison(error)
            raise

    @contextlib.contextmanager
    def _poisoning(self, queue: DelayingQueue) -> Iterator[DelayingQueue]:
        """The ledger. If a note fails, the queue is poisoned.

        The note may be on the disk, and later operations of the queue would make it true.
        """
        try:
            yield self._opened_ledger()
        except LogwrightError as error:
            queue.poison(error)
            raise

    # --- retries ----------------------------------------------------------------------------------------------------

    def retry(self, xids: Sequence[int], delay: Expires | None) -> list[int]:
        """Keep items reserved until they are retried; returns those to be put back at once."""
        queue = self._queue
        now = queue.shelf.now()
        if delay is None:
            times = {xid: now + queue.limits.retry_delay_ms(queue.open_items[xid][3] + 1) for xid in xids}
        else:
            times = dict.fromkeys(xids, due_ms(delay, now))
        self._hold([(xid, queue.open_items[xid], due) for xid, due in times.items() if due > now])
        self._update()
        return [xid for xid, due in times.items() if due <= now]

    def _hold(self, items: Sequence[tuple[int, Entry, int]]) -> None:
        if not items:
            return
        ledger = self._opened_ledger()
        with self._failing_together(), ledger.mutex:
            for xid, entry, due in items:
                self._add(ledger, ["retry", xid, entry[1]], due)
                self._notes[xid] = entry[1], due
        for xid, _, due in items:
            self._retry_at(xid, due)

    def _retry_at(self, xid: int, due: int) -> None:
        self.retries[xid] = due
        heapq.heappush(self._retry_times, (due, xid))

    def sync(self) -> None:
        """Make notes and delayed items durable. The mutex of the queue may be free."""
        for side in (self._ledger, self._holding):
            if side is not None:
                serial = side.shelf.serial
                if self._synced.get(side) != serial:
                    with self._failing_together():
                        side.sync()
                    self._synced[side] = serial

    # --- when items are due -----------------------------------------------------------------------------------------

    def release(self) -> None:
        """Put back the retried items that are due, and have `Moving` call `move` for others."""
        now = self._queue.shelf.now()
        if self._retry_times and self._retry_times[0][0] <= now:
            due = [xid for xid, time in self.retries.items() if time <= now]
            # After an interrupt some may have been put back already.
            self._queue.put_back_locked([xid for xid in due if xid in self._queue.open_items])
            self._forget(due)
        if self._moved or (self._held_times and self._held_times[0][0] <= now):
            self._queue.moving.add_own()
        self._update()

    def _forget(self, xids: Sequence[int]) -> None:
        for xid in xids:
            del self.retries[xid]
        if self._ledger is not None:
            with self._ledger.mutex:
                for xid in xids:
                    self._notes.pop(xid, None)

    def _update(self) -> None:
        """Set when the next item is due."""
        while self._retry_times and self.retries.get(self._retry_times[0][1]) != self._retry_times[0][0]:
            heapq.heappop(self._retry_times)
        self._queue.watch_due(
            min(times[0][0] if times else NO_LIMIT for times in (self._retry_times, self._held_times))
        )

    def move(self) -> None:
        """Move items of the holding queue that are due to the tail of the queue. The mutex is free.

        Only one thread does this at a time: see `Moving.lock`.
        """
        self._finish_move()
        while self._move_some():
            self._finish_move()

    def _move_some(self) -> bool:
        queue = self._queue
        with queue.mutex:
            queue.check()
            now = queue.shelf.now()
            is_due = bool(self._held_times) and self._held_times[0][0] <= now
            if is_due:
                queue.prepare_to_put()
                queue.atomically(lambda: self._put_due(now))
            self._update()
        return is_due

    def _put_due(self, now: int) -> None:
        queue, holding = self._queue, self._holding
        assert holding is not None
        chosen: list[tuple[int, int]] = []
        while self._held_times and self._held_times[0][0] <= now and len(chosen) < MOST_MOVES:
            chosen.append(heapq.heappop(self._held_times))
        items = [(due, xid, holding.open_items[xid][0]) for due, xid in chosen if xid in holding.open_items]
        end = queue.next_number
        ends: list[tuple[int, int]] = []
        for due, xid, data in items:
            end += len(_adding(data, due, 0))
            ends.append((xid, end))
        with self._poisoning(queue) as ledger:
            with ledger.mutex:
                self._add(ledger, ["move", ends], 0)
            ledger.sync()
        with queue.unlimited():  # they were accepted when they were put
            for due, _, data in items:
                queue.shelf.put_locked(data, due, 0)
        self._moved = dict(ends)

    def _finish_move(self) -> None:
        """Confirm items that the queue has. May be called again after an interrupt or a failure. The mutex is free."""
        holding = self._holding
        if holding is None or not self._moved:
            return
        self._queue.sync()
        with self._failing_together():
            with holding.mutex:
                holding.check()
                holding.confirm_locked([xid for xid in self._moved if xid in holding.open_items])
            holding.sync()
            with self._opened_ledger().mutex:
                self._moved = {}
            with holding.mutex:
                holding.compact_if_due()

    def clear(self) -> int:
        """Remove all delayed items; returns their number."""
        count = len(self)
        retried = list(self.retries)
        if retried:
            self._queue.confirm_locked(retried)
            self._forget(retried)
        if self._holding is not None:
            with self._failing_together(), self._holding.mutex:
                self._holding.check()
                self._holding.confirm_locked([xid for xid in self._holding.open_items if xid not in self._moved])
                self._held_times.clear()
        self._update()
        return count

    # --- the holding queue and the ledger ---------------------------------------------------------------------------

    def _open_holding(self, ends: dict[int, int] | None = None) -> DelayingQueue:
        """Open the holding queue. Items that the queue has at their `ends` are finished there."""
        ends = ends or {}

        def fate_of(xid: int, entry: Entry) -> Fate:
            if xid not in ends:
                return Fate.STAYS
            moved = _adding(entry[0], entry[2], 0)
            has_moved = not ends[xid] or self._queue.bytes_before(ends[xid], len(moved)) == moved
            return Fate.IS_FINISHED if has_moved else Fate.STAYS

        path = self._queue.path.with_name(delayed_name(self._queue.path.name))
        holding = self._open_side(path, fate_of, lambda: self.settle(HOLDING))
        self._holding = holding
        with holding.mutex:
            holding.reserve_all()
        if ends:
            holding.sync()  # before the notes of their move are removed
        self._held_times = [(entry[2], xid) for xid, entry in holding.open_items.items()]
        heapq.heapify(self._held_times)
        return holding

    def _opened_ledger(self) -> DelayingQueue:
        if self._ledger is None:
            path = self._queue.path.parent / ledger_name(self._queue.path.name)
            self._ledger = self._open_side(path, lambda xid, entry: Fate.IS_PUT_BACK, lambda: None)
        return self._ledger

    def _add(self, ledger: DelayingQueue, note: list[Any], expires: int) -> None:
        """Add a note. The mutex of the ledger is held."""
        ledger.check()
        if ledger.shelf.items > 2 * (len(self._ids) + len(self._notes)) + _SPARE_NOTES:
            self._rewrite(ledger)
        ledger.put_many_locked([_encoded(note)], self._queue.shelf.now(), expires)

    def settle(self, journal: str) -> None:
        """The operations of a journal are about to get other places: its notes become true for ever.

        Its mutex is held.
        """
        ledger, queue = self._ledger, self._queue if journal == QUEUE else self._holding
        if ledger is not None and ledger.shelf.items and queue is not None:
            queue.sync()
            with ledger.mutex:
                ledger.check()
                for id, note in self._ids.items():
                    if note.journal == journal:
                        self._ids[id] = note._replace(journal=_SETTLED)
                if journal == QUEUE:
                    self._moved = dict.fromkeys(self._moved, 0)
                self._rewrite(ledger)

    def _rewrite(self, ledger: DelayingQueue) -> None:
        """Replace the ledger by one with the notes in use. The mutex of the ledger is held."""
        notes: list[tuple[list[Any], int]] = [(["move", list(self._moved.items())], 0)] if self._moved else []
        notes += [(["id", *note[1:], id], note.expires) for id, note in self._ids.items()]
        notes += [(["retry", xid, added], due) for xid, (added, due) in self._notes.items()]
        now = self._queue.shelf.now()
        ledger.shelf.clear()
        for note, expires in reversed(notes):
            ledger.shelf.put_back((_encoded(note), now, expires, 0, 0))
        ledger.replace()


def _adding(data: bytes, added: int, expires: int) -> bytes:
    """The operation with which a queue adds an item."""
    return codec.encode(Operation("addx", added=added, expires=expires or None, data=data))


def _encoded(note: list[Any]) -> bytes:
    return json.dumps(note, separators=(",", ":")).encode()
