"""The changes of one queue: items that are put into it, and items that are removed or finished."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final

from ..bytes.records import OPS
from .replay import EVENTS, Replay

_ADDED: Final = EVENTS.index("added")
_GONE: Final = (EVENTS.index("removed"), EVENTS.index("finished"))


class QueueChanges:
    """Replays the operations of a queue. It keeps the items that are in the queue or reserved."""

    def __init__(self) -> None:
        self._replay = Replay()
        self._items: dict[int, dict[str, Any]] = {}
        self._position = -1

    def add(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The changes that an operation makes, which is given as `dump --json` prints it."""
        number = fields.get("count")
        number = fields.get("xid") if number is None else number
        begins = [0] if fields["position"] == 0 or fields["position"] <= self._position else []
        self._position = fields["position"]
        kinds, numbers = memoryview(array("B", [OPS[fields["op"]]])), memoryview(array("i", [number or 0]))
        _, items, whats, _ = self._replay.changes(kinds, numbers, begins)
        found = []
        for item, what in zip(items, whats, strict=True):
            if what == _ADDED:
                self._items[item] = {name: fields.get(name) for name in ("data", "added", "expires")}
                added = fields.get("added")
                time = None if added is None else added * 1_000_000
                found.append({"op": "c", "before": None, "after": self._items[item], "ts_ns": time})
            elif what in _GONE:
                found.append({"op": "d", "before": self._items.pop(item, None), "after": None, "ts_ns": None})
        return found
