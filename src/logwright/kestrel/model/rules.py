# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The rules of a queue: what each operation of a journal does to its items. Import `Replay` from `replay.py`.

The queue is empty at first, and each operation changes it:

- Operations that add an item add it at the tail. REMOVE removes the head. A reservation moves the head to the open
  transactions.
- REMOVE_TENTATIVE reserves under the next id: the last used one plus one, wrapping as an i32, except 0 and ids that are
  open. This id becomes the last used one. An item that was added by ADD_XID is reserved under the id of the ADD_XID,
  once, and the last used id does not change; if that id is 0, the item has none.
- REMOVE_TENTATIVE_XID reserves under its own id, which becomes the last used one.
- UNREMOVE puts an open item back at the head, removes its id, and counts an attempt. CONFIRM_REMOVE finishes it.
  CONTINUE finishes it and adds another one.
- A STATE_DUMP ends its file: the operations after it are for a process that reads behind.

An operation that does not fit changes nothing and is an anomaly: it removes or reserves from an empty queue, names an
id that is not open, or reserves under an id that is open. (An ADD_XID item whose id is open gets the next id.) Nothing
expires here.

Items are numbered in the order in which they were added, from 0. They leave at the head and arrive at the tail, so most
of a queue is a run of consecutive numbers, of which only the ends are stored. Only reserved items need memory. The
positions of items in the files are not stored: `files/survey.py` finds an item by its number.

An UNREMOVE records that a reader failed, so the attempts of an item survive restarts. Packing writes them the same way
(see `packing.py`).

This source runs interpreted, and compiled as `_rules` with the C types of `_rules.pxd`. Rare cases have methods of
their own, so that the C compiler inlines the others into the loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from ...core.bytes.buffers import Buffer
from ..bytes.ids import MOST_STEPS, OpenIds, following

try:
    import cython
except ModuleNotFoundError:
    from ...core.bytes import cython_shim as cython

if not cython.compiled:
    from ..bytes.records import OPS, head_bytes

    ADD, ADDX, ADD_XID, CONTINUE = (OPS[op] for op in ("add", "addx", "add_xid", "continue"))
    REMOVE, SAVE_XID, STATE_DUMP = (OPS[op] for op in ("remove", "save_xid", "state_dump"))
    REMOVE_TENTATIVE, REMOVE_TENTATIVE_XID = (OPS[op] for op in ("remove_tentative", "remove_tentative_xid"))
    UNREMOVE, CONFIRM_REMOVE = (OPS[op] for op in ("unremove", "confirm_remove"))
    NOTHING_TO_REMOVE, NOTHING_TO_RESERVE, NOT_OPEN, OPEN_ALREADY, NAME_TAKEN, AFTER_DUMP = range(6)
    ADDED, RESERVED, PUT_BACK, REMOVED, FINISHED = range(5)

MOST_ANOMALIES: Final = 10_000
"""The most that are stored; further ones are only counted, so that they use no memory."""

Changes: TypeAlias = tuple[memoryview, memoryview, memoryview, memoryview]
"""Changes of items in columns of i64: the row of the operation, the number of the item, what happens to it, the id."""
_NOTHING: Final = memoryview(array("q"))


def numbered(count: int) -> memoryview:
    """The numbers of `count` rows."""
    rows = memoryview(array("q", bytes(8 * count)))
    for row in range(count):
        rows[row] = row
    return rows


class Replay:
    """A queue that operations are applied to. `watch` is the file and position of an item, to record its `events`.

    `first` is the number of the first item of the run, `added` that of the next item to be added; `added_bytes` is the
    size of the data of all items ever added; `xid` is the last used id. `anomalies` and `events` are tuples: the number
    of the file, the position of the operation in it, the number of the anomaly or the event (see `replay.py`), and the
    id that it names.
    """

    def __init__(self, watch: tuple[int, int] | None = None) -> None:
        self.xid = 0
        self.first = 0
        self.added = 0
        self.added_bytes = 0
        self.anomaly_count = 0
        self.anomalies: list[tuple[int, int, int, int]] = []
        self.events: list[tuple[int, int, int, int]] = []
        self._watch = watch
        self._watched = -1
        self._is_watching = watch is not None
        # The result of `changes`: four columns, each with space for `_most_recorded` changes.
        self._is_recording = False
        self._recorded = _NOTHING
        self._recorded_count = 0
        self._most_recorded = 0
        self._file = 0
        self._is_dumped = False
        self._dumped = 0
        """The number of ADD_XID of a state dump that are still expected in this file; -1 after another operation."""
        self._front: list[int] = []
        """The items that were put back; the last one is the head of the queue."""
        self._attempts: dict[int, int] = {}
        self._names: dict[int, int] = {}
        """The ids of items of the run that were added by ADD_XID."""
        # Open transactions are in slots by their ids, or in the overflow if the slot is in use.
        self._slot_xids = memoryview(array("q", bytes(8 * 1024)))
        self._slot_items = memoryview(array("q", bytes(8 * 1024)))
        self._slot_orders = memoryview(array("q", bytes(8 * 1024)))
        self._overflow: dict[int, tuple[int, int]] = {}
        self._order = 0
        self._ids: OpenIds | None = None

    def begin_file(self, file: int = 0) -> None:
        """The next operations are in the file of this number."""
        self._file = file
        self._is_dumped = False

    def add(self, kinds: Buffer, numbers: Sequence[int], positions: Sequence[int], end: int) -> None:
        """Apply operations: their kinds, their ids (the count of a state dump), and where they begin in the file.

        Numbers and positions are buffers of i32 and i64. The last operation ends at `end`.
        """
        codes = memoryview(kinds)
        ids = memoryview(numbers)  # type: ignore[arg-type]
        starts = memoryview(positions)  # type: ignore[arg-type]
        count = len(codes)
        if len(ids) != count or len(starts) != count:
            raise ValueError("there must be as many kinds as numbers and positions")
        for row in range(count):
            kind = codes[row]
            if self._is_dumped:
                self._skip(kind, ids[row], starts[row])
            elif kind in (ADDX, ADD, ADD_XID, CONTINUE):
                stop = starts[row + 1] if row + 1 < count else end
                self.added_bytes += stop - starts[row] - head_bytes(kind)
                if kind != ADDX or self._is_watching:
                    self._before_adding(kind, ids[row], starts[row])
                self.added += 1
            elif kind == REMOVE:
                self._remove(starts[row])
            elif kind == REMOVE_TENTATIVE:
                self._reserve(starts[row])
            elif kind == CONFIRM_REMOVE:
                self._finish(ids[row], starts[row])
            else:
                self._apply(kind, ids[row], starts[row])

    def changes(self, kinds: Buffer, numbers: Sequence[int], begins: Iterable[int] = ()) -> Changes:
        """Apply operations, and return the changes of items, in order. At each row of `begins` a file begins."""
        codes, ids = memoryview(kinds), memoryview(numbers)  # type: ignore[arg-type]
        count = len(codes)
        most = count + bytes(codes).count(CONTINUE)  # a CONTINUE changes two items
        rows = numbered(count)
        noted = memoryview(array("q", bytes(8 * 4 * most)))
        self._recorded, self._recorded_count, self._most_recorded = noted, 0, most
        self._is_recording = self._is_watching = True
        try:
            start = 0
            for stop in (*begins, count):
                self.add(codes[start:stop], ids[start:stop], rows[start:stop], stop)
                if stop < count:
                    self.begin_file()
                start = stop
        finally:
            self._is_recording, self._is_watching = False, self._watch is not None
            self._recorded = _NOTHING
        found = self._recorded_count
        return noted[:found], noted[most : most + found], noted[2 * most :][:found], noted[3 * most :][:found]

    # --- saving the state -------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that later operations depend on, as values that JSON can represent."""
        return {
            "xid": self.xid,
            "first": self.first,
            "added": self.added,
            "dumped": self._dumped if self._is_dumped else None,
            "front": list(self._front),
            "names": list(self._names.items()),
            "open": self.open(),
            "attempts": [(item, self._attempts[item]) for item in self._front if item in self._attempts],
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state, in a replay that has not begun."""
        self.xid, self.first, self.added = state["xid"], state["first"], state["added"]
        self._is_dumped, self._dumped = state["dumped"] is not None, state["dumped"] or 0
        self._front = list(state["front"])
        self._names = dict(state["names"])
        self._attempts = dict(state["attempts"])
        for xid, item, attempts in state["open"]:
            self._open(xid, item, 0)
            if attempts:
                self._attempts[item] = attempts

    # --- the rules --------------------------------------------------------------------------------------------------

    def _before_adding(self, kind: int, number: int, position: int) -> None:
        if kind == CONTINUE:
            self._finish(number, position)
        elif kind == ADD_XID and number != 0:
            self._names[self.added] = number
        if self._is_watching:
            if self._watch == (self._file, position):
                self._watched = self.added
            self._record(self.added, position, ADDED, 0)

    def _remove(self, position: int) -> None:
        item = self._take()
        if item < 0:
            self._add_anomaly(position, NOTHING_TO_REMOVE, 0)
        else:
            if self._names:
                self._names.pop(item, None)
            self._end(item, position, REMOVED, 0)

    def _reserve(self, position: int) -> None:
        item = self._take()
        if item < 0:
            self._add_anomaly(position, NOTHING_TO_RESERVE, 0)
        else:
            xid = self._name_of(item, position) if self._names else 0
            if xid == 0:
                xid = self.xid + 1
                if not 0 < xid <= 0x7FFFFFFF or self._is_open(xid):
                    xid = self._next_xid()
                self.xid = xid
            self._open(xid, item, position)

    def _name_of(self, item: int, position: int) -> int:
        """The id of the ADD_XID of an item; 0 if there is none, or if it is open."""
        xid = self._names.pop(item, 0)
        if xid != 0 and self._is_open(xid):
            self._add_anomaly(position, NAME_TAKEN, xid)
            xid = 0
        return xid

    def _finish(self, xid: int, position: int) -> None:
        item = self._close(xid, position)
        if item >= 0:
            self._end(item, position, FINISHED, xid)

    def _apply(self, kind: int, number: int, position: int) -> None:
        if kind == REMOVE_TENTATIVE_XID:
            if not len(self):
                self._add_anomaly(position, NOTHING_TO_RESERVE, number)
            elif self._is_open(number):
                self._add_anomaly(position, OPEN_ALREADY, number)
            else:
                item = self._take()
                self._names.pop(item, None)
                self.xid = number
                self._open(number, item, position)
        elif kind == UNREMOVE:
            item = self._close(number, position)
            if item >= 0:
                self._attempts[item] = self._attempts.get(item, 0) + 1
                self._front.append(item)
                self._record(item, position, PUT_BACK, number)
        elif kind == SAVE_XID:
            self.xid = number
        elif kind == STATE_DUMP:
            self._is_dumped = True
            self._dumped = number
        else:
            raise ValueError(f"there is no operation {kind}")

    def _skip(self, kind: int, number: int, position: int) -> None:
        """Skip an operation after a state dump. The first one that does not belong to it is an anomaly."""
        if kind == ADD_XID and self._dumped > 0:
            self._dumped -= 1
        elif self._dumped >= 0:
            self._add_anomaly(position, AFTER_DUMP, number)
            self._dumped = -1

    def _take(self) -> int:
        """Remove the head; returns its number, -1 if the queue is empty."""
        if self._front:
            return self._pop_front()
        if self.first == self.added:
            return -1
        self.first += 1
        return self.first - 1

    def _pop_front(self) -> int:
        return self._front.pop()

    def _end(self, item: int, position: int, what: int, xid: int) -> None:
        """An item is removed or finished."""
        if self._attempts:
            self._forget_attempts(item)
        if self._is_watching:
            self._record(item, position, what, xid)

    def _forget_attempts(self, item: int) -> None:
        self._attempts.pop(item, None)

    def _add_anomaly(self, position: int, which: int, xid: int) -> None:
        self.anomaly_count += 1
        if len(self.anomalies) < MOST_ANOMALIES:
            self.anomalies.append((self._file, position, which, xid))

    def _record(self, item: int, position: int, what: int, xid: int) -> None:
        if self._is_recording:
            self._recorded[self._recorded_count] = position
            self._recorded[self._recorded_count + self._most_recorded] = item
            self._recorded[self._recorded_count + 2 * self._most_recorded] = what
            self._recorded[self._recorded_count + 3 * self._most_recorded] = xid
            self._recorded_count += 1
        if item == self._watched:
            self.events.append((self._file, position, what, xid))

    # --- open transactions ------------------------------------------------------------------------------------------

    def _open(self, xid: int, item: int, position: int) -> None:
        slot = xid & 1023
        if xid != 0 and self._slot_xids[slot] == 0:
            self._slot_xids[slot] = xid
            self._slot_items[slot] = item
            self._slot_orders[slot] = self._order
        else:
            self._open_in_overflow(xid, item)
        self._order += 1
        if self._ids is not None:
            self._add_id(xid)
        if self._is_watching:
            self._record(item, position, RESERVED, xid)

    def _open_in_overflow(self, xid: int, item: int) -> None:
        self._overflow[xid] = item, self._order

    def _add_id(self, xid: int) -> None:
        assert self._ids is not None
        self._ids.add(xid)

    def _is_open(self, xid: int) -> bool:
        if xid != 0 and self._slot_xids[xid & 1023] == xid:
            return True
        return len(self._overflow) > 0 and self._is_in_overflow(xid)

    def _is_in_overflow(self, xid: int) -> bool:
        return xid in self._overflow

    def _close(self, xid: int, position: int) -> int:
        """End an open transaction; returns its item, -1 if the transaction is not open."""
        slot = xid & 1023
        if xid == 0 or self._slot_xids[slot] != xid:
            item = self._close_in_overflow(xid, position)
        else:
            self._slot_xids[slot] = 0
            item = self._slot_items[slot]
        if self._ids is not None and item >= 0:
            self._remove_id(xid)
        return item

    def _remove_id(self, xid: int) -> None:
        assert self._ids is not None
        self._ids.remove(xid)

    def _close_in_overflow(self, xid: int, position: int) -> int:
        if xid not in self._overflow:
            self._add_anomaly(position, NOT_OPEN, xid)
            return -1
        return self._overflow.pop(xid)[0]

    def _next_xid(self) -> int:
        """The first free id after the last used one."""
        if self._ids is None:
            xid = self.xid
            for _ in range(MOST_STEPS):
                xid = following(xid)
                if not self._is_open(xid):
                    return xid
            self._ids = OpenIds(xid for xid, _, _ in self.open())
        return self._ids.following(self.xid)

    # --- the state of the queue -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._front) + self.added - self.first

    def items(self) -> list[int]:
        """The numbers of the waiting items, from head to tail."""
        front = self._front[::-1]
        first, added = self.first, self.added  # building a list may run the garbage collector, which may call `add`
        return [*front, *range(first, added)]

    def front(self) -> list[tuple[int, int]]:
        """The items that were put back, from the head on: number, attempts. The run comes after them."""
        return [(item, self._attempts.get(item, 0)) for item in self._front[::-1]]

    def open(self) -> list[tuple[int, int, int]]:
        """The reserved items in the order in which they were reserved: id, number, attempts."""
        found = [(order, xid, item) for xid, (item, order) in list(self._overflow.items())]
        for slot in range(1024):
            if self._slot_xids[slot] != 0:
                found.append((self._slot_orders[slot], self._slot_xids[slot], self._slot_items[slot]))
        return [(xid, item, self._attempts.get(item, 0)) for _, xid, item in sorted(found)]
