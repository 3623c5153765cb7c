"""What a Kestrel journal stands for: the items of the queue, those that are reserved, and the last used id.

The queue is empty at first, and each operation changes it:

- An item comes to the tail; REMOVE takes the head away; a reservation moves the head to the open transactions.
- REMOVE_TENTATIVE reserves under the next id: the last used one plus one, wrapping as an i32, without 0 and those that
  are open. That one is then the last used. An item that came by ADD_XID is reserved under the id that it came with,
  once, and the last used id stays as it is. An ADD_XID of 0 names none.
- REMOVE_TENTATIVE_XID reserves under its own id, which is then the last used.
- UNREMOVE puts an open item back to the head, where it has no id of its own any more; CONFIRM_REMOVE finishes it;
  CONTINUE finishes it and adds another one.
- A STATE_DUMP ends its file: whatever follows in there is for who reads behind.

What does not fit changes nothing and is an anomaly: removing or reserving when there is nothing, naming an id that is
not open, or one that is open already. (A named id that is taken makes an item get the next one.) Nothing expires here.

This is the reference. It sees kinds, ids and places of operations, never bytes; the kernel has a twin of `Replay`.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..bytes.ids import MOST_STEPS, OpenIds, following
from ..bytes.records import OPS

_ADD, _ADDX, _ADD_XID, _CONTINUE = OPS["add"], OPS["addx"], OPS["add_xid"], OPS["continue"]
_REMOVE, _REMOVE_TENTATIVE = OPS["remove"], OPS["remove_tentative"]
_REMOVE_TENTATIVE_XID, _STATE_DUMP = OPS["remove_tentative_xid"], OPS["state_dump"]
_SAVE_XID, _UNREMOVE, _CONFIRM_REMOVE = OPS["save_xid"], OPS["unremove"], OPS["confirm_remove"]

NOTHING_TO_REMOVE, NOTHING_TO_RESERVE, NOT_OPEN, OPEN_ALREADY, NAME_TAKEN, BEHIND_DUMP = range(6)
"""Anomalies by number."""
ANOMALIES: Final = (
    ("empty_queue", "nothing is there to be removed"),
    ("empty_queue", "nothing is there to be reserved"),
    ("not_open", "no transaction {0} is open"),
    ("open_already", "transaction {0} is open already; the reservation changes nothing"),
    ("open_already", "transaction {0}, which the item is to be reserved under, is open already; it gets the next id"),
    ("behind_state_dump", "a state dump ends the file, so this and what follows is not replayed"),
)
"""Kind and message of each; {0} is the id."""
MOST_ANOMALIES: Final = 10_000
"""How many are remembered; the others are only counted, so that a journal of nothing else costs no memory."""

ADDED, RESERVED, PUT_BACK, REMOVED, FINISHED = range(5)
"""What can happen to an item, by number."""
EVENTS: Final = ("added", "reserved", "put_back", "removed", "finished")


class Item(NamedTuple):
    """An item by the place of the operation that added it: the number of its file, and the position there.

    `xid` is the id that it is reserved under, or is to be reserved under; 0 for none.
    """

    file: int
    position: int
    xid: int


class Anomaly(NamedTuple):
    """An operation that does not fit: its place, which anomaly it is, and the id that it speaks of."""

    file: int
    position: int
    which: int
    xid: int


class Event(NamedTuple):
    """Something that happened to the item that is watched: the place of the operation, what, and under which id."""

    file: int
    position: int
    what: int
    xid: int


class Replay:
    """A queue that operations are applied to. `watch` is the place of an item whose `events` are wanted."""

    def __init__(self, watch: tuple[int, int] | None = None) -> None:
        self.xid = 0
        self.anomaly_count = 0
        self.anomalies: list[Anomaly] = []
        self.events: list[Event] = []
        self._watch = watch
        self._queue: deque[Item] = deque()
        self._open: dict[int, Item] = {}
        self._ids: OpenIds | None = None
        self._file = 0
        self._dumped: int | None = None
        """How many ADD_XID of a state dump are still to come in this file."""

    def begin_file(self, file: int) -> None:
        """What comes now is in the file of this number."""
        self._file = file
        self._dumped = None

    def add(self, kinds: Sequence[int], numbers: Sequence[int], positions: Sequence[int]) -> None:
        """Apply operations: their kinds, their ids (of a state dump its count), and where they are in the file."""
        for kind, number, position in zip(kinds, numbers, positions, strict=True):
            if self._dumped is not None:
                self._pass(kind, number, position)
            else:
                self._apply(kind, number, position)

    def _apply(self, kind: int, number: int, position: int) -> None:
        if kind in (_ADD, _ADDX, _ADD_XID):
            self._append(position, number if kind == _ADD_XID else 0)
        elif kind == _REMOVE:
            if self._queue:
                self._tell(self._queue.popleft(), position, REMOVED, 0)
            else:
                self._odd(position, NOTHING_TO_REMOVE, 0)
        elif kind == _REMOVE_TENTATIVE:
            self._reserve(position)
        elif kind == _REMOVE_TENTATIVE_XID:
            self._reserve_as(position, number)
        elif kind == _SAVE_XID:
            self.xid = number
        elif kind == _UNREMOVE:
            item = self._close(position, number)
            if item is not None:
                self._queue.appendleft(item._replace(xid=0))
                self._tell(item, position, PUT_BACK, number)
        elif kind in (_CONFIRM_REMOVE, _CONTINUE):
            item = self._close(position, number)
            if item is not None:
                self._tell(item, position, FINISHED, number)
            if kind == _CONTINUE:
                self._append(position, 0)
        elif kind == _STATE_DUMP:
            self._dumped = number
        else:
            raise ValueError(f"there is no operation {kind}")

    def _append(self, position: int, xid: int) -> None:
        item = Item(self._file, position, xid)
        self._queue.append(item)
        self._tell(item, position, ADDED, 0)

    def _reserve(self, position: int) -> None:
        if not self._queue:
            self._odd(position, NOTHING_TO_RESERVE, 0)
            return
        item = self._queue.popleft()
        xid = item.xid
        if xid != 0 and xid in self._open:
            self._odd(position, NAME_TAKEN, xid)
            xid = 0
        if xid == 0:
            xid = self.xid = self._next_xid()
        self._reserve_item(position, item, xid)

    def _reserve_as(self, position: int, xid: int) -> None:
        if not self._queue:
            self._odd(position, NOTHING_TO_RESERVE, xid)
        elif xid in self._open:
            self._odd(position, OPEN_ALREADY, xid)
        else:
            item = self._queue.popleft()
            self.xid = xid
            self._reserve_item(position, item, xid)

    def _reserve_item(self, position: int, item: Item, xid: int) -> None:
        self._open[xid] = item._replace(xid=xid)
        if self._ids is not None:
            self._ids.add(xid)
        self._tell(item, position, RESERVED, xid)

    def _next_xid(self) -> int:
        if self._ids is None:
            xid = self.xid
            for _ in range(MOST_STEPS):
                xid = following(xid)
                if xid not in self._open:
                    return xid
            self._ids = OpenIds(self._open)
        return self._ids.following(self.xid)

    def _close(self, position: int, xid: int) -> Item | None:
        item = self._open.pop(xid, None)
        if item is None:
            self._odd(position, NOT_OPEN, xid)
        elif self._ids is not None:
            self._ids.remove(xid)
        return item

    def _pass(self, kind: int, number: int, position: int) -> None:
        """An operation behind a state dump. The first one that does not belong to it is odd."""
        assert self._dumped is not None
        if kind == _ADD_XID and self._dumped > 0:
            self._dumped -= 1
        elif self._dumped >= 0:
            self._odd(position, BEHIND_DUMP, number)
            self._dumped = -1

    def _odd(self, position: int, which: int, xid: int) -> None:
        self.anomaly_count += 1
        if len(self.anomalies) < MOST_ANOMALIES:
            self.anomalies.append(Anomaly(self._file, position, which, xid))

    def _tell(self, item: Item, position: int, what: int, xid: int) -> None:
        if self._watch is not None and self._watch == (item.file, item.position):
            self.events.append(Event(self._file, position, what, xid))

    def items(self) -> list[Item]:
        """The items of the queue from head to tail."""
        return list(self._queue)

    def open(self) -> list[Item]:
        """The reserved items, in the order in which they were reserved."""
        return list(self._open.values())

    def __len__(self) -> int:
        return len(self._queue)


# --- for people and programs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueItem:
    """An item with its contents. `added` is None where nobody knows, `expires` for never; `xid` is 0 for none."""

    data: bytes
    added: int | None
    expires: int | None
    xid: int
    place: str = ""

    def as_json(self) -> dict[str, Any]:
        data = base64.b64encode(self.data).decode()
        return {"data": data, "added": self.added, "expires": self.expires, "xid": self.xid}


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue at a point: its items from head to tail, the reserved ones, and the last used id."""

    items: list[QueueItem] = field(default_factory=list)
    open: list[QueueItem] = field(default_factory=list)
    xid: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "items": [item.as_json() for item in self.items],
            "open": [item.as_json() for item in self.open],
            "xid": self.xid,
        }


def difference(before: QueueState, after: QueueState) -> dict[str, Any]:
    """What changed between two states, by the places of the items: those that came, that went, and that moved.

    An item has moved when it is reserved in one state and not in the other, or under another id.
    """
    old, new = dict(_standings(before)), dict(_standings(after))
    return {
        "added": {place: item for place, item in new.items() if place not in old},
        "changed": {
            place: {"before": item, "after": new[place]}
            for place, item in old.items()
            if place in new and new[place] != item
        },
        "removed": {place: item for place, item in old.items() if place not in new},
    }


def _standings(state: QueueState) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, items in (("queued", state.items), ("open", state.open)):
        for item in items:
            yield item.place, {**item.as_json(), "state": name}
