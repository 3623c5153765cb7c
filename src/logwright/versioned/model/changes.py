"""The changes of one store: keys that are created, updated and deleted, with their values before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class StoreChanges:
    """Replays the changes of a store. It keeps the last value of each key.

    A journal begins with the state. If a known key is not in it, the key was deleted and the entry that deleted it is
    missing: it counts as deleted at the time at which the journal begins. The first change after the state shows this.
    """

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, Any]] = {}
        self._since = -1
        self._copied: set[str] | None = None
        """The keys that the journal begins with, while these are being read."""
        self._position = 0

    def add(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The changes that an entry shows, which is given as `dump --json` prints it; none for a copy."""
        is_next = fields["position"] == self._position
        self._position = fields["position"] + fields["size"]
        if "initialized" in fields:
            self._since, self._copied = fields["initialized"], set()
            return []
        time, key, value = fields["t"], fields["k"], fields["o"]
        found = []
        if self._copied is not None and (not is_next or time > self._since or key in self._copied or value is None):
            if is_next:
                gone = [key for key, (_, last) in self._latest.items() if last is not None and key not in self._copied]
                found = [change for key in gone for change in self._change(self._since, key, None)]
            self._copied = None
        if self._copied is not None:
            self._copied.add(key)
        return found + self._change(time, key, value)

    def _change(self, time: int, key: str, value: Any) -> list[dict[str, Any]]:
        known = self._latest.get(key)
        if known == (time, value):
            return []  # a copy, made when the journal was rotated
        self._latest[key] = (time, value)
        before = None if known is None or known[1] is None else {"key": key, "value": known[1]}
        after = None if value is None else {"key": key, "value": value}
        if before is None and after is None:
            return []  # a deletion of a key that did not exist
        op = "d" if after is None else "c" if before is None else "u"
        if known is None and time < self._since:
            op = "r"  # its history is no longer kept
        return [{"op": op, "before": before, "after": after, "ts_ns": time}]
