"""The state of a queue, replayed from its journal: its items, those that are reserved, and the last used id.

`Replay` applies operations by the rules of `rules.py`. It uses the kinds, ids and places of operations, never bytes.
This module also has the messages of its anomalies, and the state of a queue as objects.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.bytes.compiled import COMPILED

if TYPE_CHECKING or not COMPILED:
    from .rules import Replay as Replay
else:
    from ._rules import Replay as Replay

ANOMALIES: Final = (
    ("empty_queue", "there is no item to remove"),
    ("empty_queue", "there is no item to reserve"),
    ("not_open", "transaction {0} is not open"),
    ("open_already", "transaction {0} is already open; the reservation is ignored"),
    ("open_already", "transaction {0}, the id of the item, is already open; the item is reserved under the next id"),
    ("after_state_dump", "the file ends with its state dump: this operation and the following ones are ignored"),
)
"""Kind and message of each anomaly, by its number; {0} is the id."""
EVENTS: Final = ("added", "reserved", "put_back", "removed", "finished")
"""What can happen to an item, by its number."""


@dataclass(frozen=True, slots=True)
class QueueItem:
    """An item with its contents. `added` is None if unknown, `expires` is None for never; `xid` is 0 for none."""

    data: bytes
    added: int | None
    expires: int | None
    xid: int
    place: str = ""

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them; data is base64."""
        data = base64.b64encode(self.data).decode()
        return {"data": data, "added": self.added, "expires": self.expires, "xid": self.xid}


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue at a point: its items from head to tail, the reserved ones, and the last used id."""

    items: list[QueueItem] = field(default_factory=list)
    open: list[QueueItem] = field(default_factory=list)
    xid: int = 0

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them; data is base64."""
        return {
            "items": [item.as_json() for item in self.items],
            "open": [item.as_json() for item in self.open],
            "xid": self.xid,
        }


def difference(before: QueueState, after: QueueState) -> dict[str, Any]:
    """What changed between two states, by the places of the items: added, removed and changed items.

    An item has changed if it is reserved in one state and not in the other, or under another id.
    """
    old, new = dict(_items_by_place(before)), dict(_items_by_place(after))
    return {
        "added": {place: item for place, item in new.items() if place not in old},
        "changed": {
            place: {"before": item, "after": new[place]}
            for place, item in old.items()
            if place in new and new[place] != item
        },
        "removed": {place: item for place, item in old.items() if place not in new},
    }


def _items_by_place(state: QueueState) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, items in (("queued", state.items), ("open", state.open)):
        for item in items:
            yield item.place, {**item.as_json(), "state": name}
