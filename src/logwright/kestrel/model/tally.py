"""Tally: what a journal stands for, kept in little memory however long the queue is.

Items are numbered in the order in which they were added, from 0. Items leave at the head and come at the tail, so most
of a queue is a run of numbers, of which only both ends are remembered. What was reserved is remembered by itself:
`open` what is reserved now, `front` what was put back to the head. Where an item lies in the files is not remembered
at all; whoever wants it goes there again (see `survey.py`).

The rules are those of `replay.py`. One thing more is counted: how often an item was put back, its `attempts`. An
UNREMOVE is the journal's own record of a reader that failed, so the count survives restarts, and packing writes it down
the same way (see `packing.py`).

This is the reference; `_tally.pyx` has twins of everything here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..bytes.ids import MOST_STEPS, OpenIds, following
from ..bytes.layout import ADDX, DATA_HEAD_BYTES
from ..bytes.records import OPS

_ADD_XID, _CONTINUE = OPS["add_xid"], OPS["continue"]
_REMOVE, _REMOVE_TENTATIVE = OPS["remove"], OPS["remove_tentative"]
_REMOVE_TENTATIVE_XID, _STATE_DUMP = OPS["remove_tentative_xid"], OPS["state_dump"]
_SAVE_XID, _UNREMOVE, _CONFIRM_REMOVE = OPS["save_xid"], OPS["unremove"], OPS["confirm_remove"]


class Tally:
    """Operations counted up. `first` is the number of the first item of the run, `added` that of the next to come.

    `added_bytes` is how much data all items together have that were ever added; `xid` the last used id.
    """

    def __init__(self) -> None:
        self.xid = 0
        self.first = 0
        self.added = 0
        self.added_bytes = 0
        self._front: deque[tuple[int, int]] = deque()
        self._open: dict[int, tuple[int, int]] = {}
        self._ids: OpenIds | None = None
        self._named: dict[int, int] = {}
        self._is_dumped = False

    def begin_file(self) -> None:
        """What comes now is in another file."""
        self._is_dumped = False

    def add(self, kinds: Sequence[int], numbers: Sequence[int], positions: Sequence[int], end: int) -> None:
        """Apply operations: kinds, ids, and where they begin in the file; the last one ends at `end`."""
        if not len(kinds) == len(numbers) == len(positions):
            raise ValueError("there must be as many kinds as numbers and positions")
        if self._is_dumped:
            return
        for row, kind in enumerate(kinds):
            if kind in DATA_HEAD_BYTES:
                size = (positions[row + 1] if row + 1 < len(positions) else end) - positions[row]
                if kind == _CONTINUE:
                    self._close(numbers[row])
                elif kind == _ADD_XID and numbers[row]:
                    self._named[self.added] = numbers[row]
                self.added += 1
                self.added_bytes += size - DATA_HEAD_BYTES[kind]
            elif kind == _STATE_DUMP:
                self._is_dumped = True
                return
            else:
                self._apply(kind, numbers[row])

    def _apply(self, kind: int, number: int) -> None:
        if kind == _REMOVE:
            self._take()
        elif kind == _REMOVE_TENTATIVE:
            head = self._take()
            if head is not None:
                item, attempts, xid = head
                if xid == 0 or xid in self._open:
                    xid = self.xid = self._next_xid()
                self._reserve(xid, item, attempts)
        elif kind == _REMOVE_TENTATIVE_XID:
            if len(self) and number not in self._open:
                item, attempts, _ = self._take() or (0, 0, 0)
                self.xid = number
                self._reserve(number, item, attempts)
        elif kind == _UNREMOVE:
            closed = self._close(number)
            if closed is not None:
                item, attempts = closed
                self._front.appendleft((item, attempts + 1))
        elif kind == _CONFIRM_REMOVE:
            self._close(number)
        elif kind == _SAVE_XID:
            self.xid = number
        else:
            raise ValueError(f"there is no operation {kind}")

    def _take(self) -> tuple[int, int, int] | None:
        """The head: its number, its attempts, and the id that it is to be reserved under."""
        if self._front:
            return (*self._front.popleft(), 0)
        if self.first == self.added:
            return None
        item = self.first
        self.first += 1
        return item, 0, self._named.pop(item, 0)

    def _next_xid(self) -> int:
        if self._ids is None:
            xid = self.xid
            for _ in range(MOST_STEPS):
                xid = following(xid)
                if xid not in self._open:
                    return xid
            self._ids = OpenIds(self._open)
        return self._ids.following(self.xid)

    def _reserve(self, xid: int, item: int, attempts: int) -> None:
        self._open[xid] = item, attempts
        if self._ids is not None:
            self._ids.add(xid)

    def _close(self, xid: int) -> tuple[int, int] | None:
        closed = self._open.pop(xid, None)
        if closed is not None and self._ids is not None:
            self._ids.remove(xid)
        return closed

    def __len__(self) -> int:
        return len(self._front) + self.added - self.first

    def front(self) -> list[tuple[int, int]]:
        """The items that were put back, from the head on: number, attempts. The run follows them."""
        return list(self._front)

    def open(self) -> list[tuple[int, int, int]]:
        """The reserved items in the order in which they were reserved: id, number, attempts."""
        return [(xid, item, attempts) for xid, (item, attempts) in self._open.items()]


def copy_adds(
    buffer: bytes | bytearray | memoryview,
    base: int,
    kinds: Sequence[int],
    positions: Sequence[int],
    end: int,
    row: int,
) -> tuple[bytes, int]:
    """The operations from a row on that add items, one behind the other, and how many those are.

    `base` is where the buffer begins in its file. A CONTINUE becomes the ADDX that its second half is.
    """
    found = bytearray()
    count = 0
    for at in range(row, len(kinds)):
        kind = kinds[at]
        if kind in DATA_HEAD_BYTES:
            start = positions[at] - base
            stop = (positions[at + 1] if at + 1 < len(positions) else end) - base
            if not 0 <= start <= stop <= len(buffer) or stop - start < DATA_HEAD_BYTES[kind]:
                raise ValueError("these operations are not within the buffer")
            if kind == _CONTINUE:
                found.append(ADDX)
                start += 5
            found += buffer[start:stop]
            count += 1
    return bytes(found), count
