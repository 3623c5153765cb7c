"""The state of a queue, replayed from its journal: its items, those that are reserved, and the last used id.

`Replay` applies operations by the rules of `rules.py`. It sees kinds, ids and places of operations, never bytes. Here
are also the words for what it finds, and states for people and programs.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.bytes.compiled import COMPILED
from .rules import Changes as Changes

if TYPE_CHECKING or not COMPILED:
    from .rules import Replay as Replay
else:
    from ._rules import Replay as Replay

ANOMALIES: Final = (
    ("empty_queue", "nothing is there to be removed"),
    ("empty_queue", "nothing is there to be reserved"),
    ("not_open", "no transaction {0} is open"),
    ("open_already", "transaction {0} is open already; the reservation changes nothing"),
    ("open_already", "transaction {0}, which the item is to be reserved under, is open already; it gets the next id"),
    ("behind_state_dump", "a state dump ends the file, so this and what follows is not replayed"),
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
