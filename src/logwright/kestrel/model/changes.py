"""Changes: what each operation of a queue does to which of its items, in the order of the journal.

This is the replay, told as it goes: items have numbers, in the order in which they were added, from 1 on, and each
operation that changes something says which item it adds, reserves, puts back, removes or finishes. It needs memory for
the items that are reserved or were put back, and none for those that only wait, however many they are: these have
numbers one behind the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from .replay import ADDED, Item, Replay


class OnPosition(NamedTuple):
    """Changes, one behind the other: which row of the operations it is, the number of the item, what happened to it.

    The latter is a number that `replay` has a name for; `xids` are the ids that it happened under, 0 for none.
    """

    rows: list[int]
    items: list[int]
    whats: list[int]
    xids: list[int]


class Changes(Replay):
    """A queue whose operations are told as changes of items."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: _Line = _Line()  # type: ignore[assignment]  # as far as a replay uses it, it is a deque
        self._added = 0
        self._told = OnPosition([], [], [], [])

    def tell(self, kinds: Sequence[int], numbers: Sequence[int]) -> OnPosition:
        """Apply operations of one file: their kinds, and their ids, or the count of a state dump."""
        self._told = told = OnPosition([], [], [], [])
        self.add(kinds, numbers, range(len(kinds)))
        return told

    def _append(self, position: int, xid: int) -> None:
        self._added += 1
        item = Item(0, self._added, xid)
        self._queue.append(item)
        self._tell(item, position, ADDED, 0)

    def _tell(self, item: Item, position: int, what: int, xid: int) -> None:
        told = self._told
        told.rows.append(position)
        told.items.append(item.position)
        told.whats.append(what)
        told.xids.append(xid)


class _Line:
    """The items that wait: those that were put back, and behind them numbers one behind the other."""

    def __init__(self) -> None:
        self._front: deque[Item] = deque()
        self._first = 1
        self._next = 1
        self._names: dict[int, int] = {}
        """The ids that items are to be reserved under."""

    def append(self, item: Item) -> None:
        self._next = item.position + 1
        if item.xid:
            self._names[item.position] = item.xid

    def appendleft(self, item: Item) -> None:
        self._front.appendleft(item)

    def popleft(self) -> Item:
        if self._front:
            return self._front.popleft()
        number = self._first
        self._first += 1
        return Item(0, number, self._names.pop(number, 0))

    def __len__(self) -> int:
        return len(self._front) + self._next - self._first
