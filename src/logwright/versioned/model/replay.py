"""Entries -> the state at a time, and what changed between two.

A state is a dictionary: the value of each key and the time of that value. One journal is enough for any time from its
`initialized` on: it begins with the state at that time, each entry with its original time. On equal times the later
entry wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ..bytes.records import Entry, Value

State: TypeAlias = dict[str, tuple[Value, int]]
"""The existing keys: value, and the time of the entry that set it."""


def replay(entries: Iterable[Entry], at: int | None = None) -> State:
    """The state after those entries of a journal that are not later than `at`."""
    state: State = {}
    for entry in entries:
        if at is not None and entry.t > at:
            continue
        if entry.deleted:
            state.pop(entry.k, None)
        else:
            state[entry.k] = (entry.o, entry.t)
    return state


def difference(before: State, after: State) -> dict[str, dict[str, Any]]:
    """What changed between two states: `added`, `changed` (with `before` and `after`), `removed`, by key.

    A key that was written again with the same value has not changed.
    """
    added = {key: value for key, (value, _) in after.items() if key not in before}
    removed = {key: value for key, (value, _) in before.items() if key not in after}
    changed = {
        key: {"before": before[key][0], "after": value}
        for key, (value, _) in after.items()
        if key in before and not same_value(before[key][0], value)
    }
    return {"added": added, "changed": changed, "removed": removed}


def same_value(one: Value, other: Value) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true are three different values."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(left[key], right[key]) for key in left]
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif left != right and not (left != left and right != right):  # NaN is NaN
            return False
    return True


class Copies:
    """Distinguishes the copies that compaction made at the beginning of a journal from the changes after them.

    A copy has the time, key and value of the last entry of its key in the journal before, and no key has two. Journals
    are read in order. If one between them is missing or has lost entries, a copy counts as a change. A key without its
    copy was deleted at an unknown time: it counts as deleted when the journal begins.
    """

    def __init__(self) -> None:
        self._last: dict[str, Entry] = {}
        self._seen: set[str] = set()
        self._initialized = 0
        self._is_head = False

    def begin(self, initialized: int | None) -> None:
        """Begin the next journal; the time is None if unknown."""
        self._initialized = initialized or 0
        self._is_head = initialized is not None
        self._seen = set()

    def damaged(self) -> None:
        """Copies may be missing: then missing copies prove nothing."""
        self._is_head = False

    def is_head_over(self, time: int) -> bool:
        """Whether an entry of this time is after the copies. Call `deleted` at the first such entry."""
        return self._is_head and time > self._initialized

    def deleted(self) -> list[Entry]:
        """The keys that should have had a copy, after all copies: they were deleted."""
        if not self._is_head:
            return []
        self._is_head = False
        gone = [key for key, last in self._last.items() if not last.deleted and key not in self._seen]
        found = [Entry(self._initialized, key, None) for key in gone]
        self._last.update((entry.k, entry) for entry in found)
        return found

    def is_change(self, entry: Entry) -> bool:
        """Whether an entry of the journal is a change, not a copy. Must be called for each entry, in order."""
        last = self._last.get(entry.k)
        is_first = entry.k not in self._seen
        self._seen.add(entry.k)
        self._last[entry.k] = entry
        if not is_first or last is None or entry.t > self._initialized or entry.deleted:
            return True
        return entry.t != last.t or not same_value(entry.o, last.o)
