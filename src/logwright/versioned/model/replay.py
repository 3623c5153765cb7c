"""Entries -> the state at a time, and what changed between two.

A state is a dictionary: the value of each key and the time since when it has it. A journal alone is enough for any time
from its `initialized` on: it begins with the state of that time, each entry with its original time, and of equal times
the entry that comes later counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ..bytes.records import Entry, Value

State: TypeAlias = dict[str, tuple[Value, int]]
"""The keys that are there: value, and the time of the entry that gave it."""


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
    """Whether two values are the same JSON: 1, 1.0 and true are three."""
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

    A copy has the time, key and value of the last entry of its key in the journal before, and no key has two. `changes`
    goes from journal to journal; where one between them is missing, what was copied counts as a change.
    """

    def __init__(self) -> None:
        self._last: dict[str, Entry] = {}
        self._seen: set[str] = set()
        self._initialized = 0

    def begin(self, initialized: int) -> None:
        """The next journal begins."""
        self._initialized = initialized
        self._seen = set()

    def is_change(self, entry: Entry) -> bool:
        """Whether an entry of the journal is a change, and no copy. Each must be asked about, in order."""
        last = self._last.get(entry.k)
        is_first = entry.k not in self._seen
        self._seen.add(entry.k)
        self._last[entry.k] = entry
        if not is_first or last is None or entry.t > self._initialized or entry.deleted:
            return True
        return entry.t != last.t or not same_value(entry.o, last.o)
