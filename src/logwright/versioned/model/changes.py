"""The changes of one store: keys that are created, updated and deleted, with their values before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class StoreChanges:
    """Replays the changes of a store. It keeps the last value of each key."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, Any]] = {}
        self._since = -1

    def add(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The change that an entry makes, which is given as `dump --json` prints it; none for a copy."""
        if "initialized" in fields:
            self._since = fields["initialized"]
            return []
        time, key, value = fields["t"], fields["k"], fields["o"]
        known = self._latest.get(key)
        if known == (time, value):
            return []  # a copy, made when the journal was rotated
        self._latest[key] = (time, value)
        before = None if known is None or known[1] is None else {"key": key, "value": known[1]}
        after = None if value is None else {"key": key, "value": value}
        if before is None and after is None:
            return []  # deleted, without having been there
        op = "d" if after is None else "c" if before is None else "u"
        if known is None and time < self._since:
            op = "r"  # how it became so is no longer kept
        return [{"op": op, "before": before, "after": after, "ts_ns": time}]
