"""A store whose changes are numbered. Its journal is so small that it is rotated and archived often."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .. import versioned
from ..core.io.disk import Disk
from ..core.read.report import Report
from .exercises import Numbered, Task, Wrong

STORE: Final = "cars"
CAPACITY_BYTES: Final = 8192
_KEYS: Final = 11


def change_of(number: int) -> tuple[str, dict[str, Any] | None]:
    """The change of a number: a key and its new value, None for a removal."""
    key = f"key {number % _KEYS}"
    if number % 5 == 4 and number >= _KEYS:  # the key is there: its last change, 11 numbers earlier, was no removal
        return key, None
    return key, {"number": number, "text": "x" * (number * 37 % 700)}


def state_after(count: int) -> dict[str, Any]:
    """The state after the first `count` changes: the last one of each key decides."""
    last = [change_of(number) for number in range(max(0, count - _KEYS), count)]
    return {key: value for key, value in last if value is not None}


class StoreExercise(Numbered):
    """A versioned store."""

    format = "versioned"

    def open(self, task: Task, disk: Disk) -> versioned.VersionedKVStore:
        return versioned.VersionedKVStore(
            task.home, STORE, CAPACITY_BYTES, sync=task.policy, background=task.seed % 2 == 0, disk=disk
        )

    def write(self, journal: Any, task: Task, number: int) -> None:
        key, value = change_of(number)
        journal.remove(key) if value is None else journal.insert(key, value)

    def verify(self, home: Path) -> Report:
        with versioned.Reader(home / f"{STORE}.jrn") as reader:
            return reader.verify()

    def count(self, home: Path, task: Task) -> int:
        number = -1
        with versioned.Reader(home / f"{STORE}.jrn") as reader:
            for number, entry in enumerate(reader):
                if (entry.k, entry.o) != change_of(number):
                    raise Wrong(f"change {number} is not the one that was made: {entry}")
        state = versioned.VersionedRecovery.load(home).recover_current()
        if state != state_after(number + 1):
            raise Wrong(f"the state is not the one after {number + 1} changes: {dict(state)}")
        return number + 1

    def recount(self, home: Path, task: Task, count: int) -> None:
        with versioned.VersionedKVStore(home, STORE, CAPACITY_BYTES) as store:
            state = dict(store.items())
        if state != state_after(count) or self.count(home, task) != count:
            raise Wrong(f"{count} changes were there before it was opened for writing, and then the state {state}")
