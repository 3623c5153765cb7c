"""Stores as another program rotates them, by its description, in the simplest implementation.

The archive is named by the latest time among the remaining keys, or 0 if there are none. The new journal is initialized
at the time of the rotation. The state is written in any order. An archive of the same name is overwritten.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logwright.versioned.bytes.layout import ARCHIVE_LEVEL
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.files import active_name, archive_name
from logwright.versioned.model.replay import State, replay
from tests.versioned.samples import START, journal


@dataclass
class Elsewhere:
    """A store, and a clock that advances by `tick_ns` at each change and rotation."""

    dice: random.Random
    tick_ns: int = 1000
    now: int = START
    changes: list[Entry] = field(default_factory=list)
    archives: dict[int, bytes] = field(default_factory=dict)
    overwritten: bool = False
    _initialized: int = START
    _entries: list[Entry] = field(default_factory=list)

    def change(self, key: str, value: Any) -> int:
        self.now += self.tick_ns
        entry = Entry(self.now, key, value)
        self.changes.append(entry)
        self._entries.append(entry)
        return self.now

    def rotate(self) -> int:
        state = list(replay(self._entries).items())
        name = max((t for _, (_, t) in state), default=0)
        self.overwritten |= name in self.archives
        self.archives[name] = journal(self._initialized, self._entries)
        self.dice.shuffle(state)
        self._entries = [Entry(t, key, value) for key, (value, t) in state]
        self.now += self.tick_ns
        self._initialized = self.now
        return name

    def state(self, at: int | None = None) -> State:
        return replay(self.changes, at)

    def write(self, directory: Path, store: str = "cars") -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        for timestamp, data in self.archives.items():
            (directory / archive_name(store, timestamp)).write_bytes(zlib.compress(data, ARCHIVE_LEVEL))
        path = directory / active_name(store)
        path.write_bytes(journal(self._initialized, self._entries, spare=4096))
        return path


def random_store(dice: random.Random, changes: int = 30, *, overwrites: bool = False) -> Elsewhere:
    """A store of some changes and rotations. Without `overwrites` no archive replaces another one."""
    while True:
        found = Elsewhere(dice)
        for number in range(changes):
            found.change(dice.choice("abcde"), dice.choice([number, number, None, f"value {number}"]))
            if dice.random() < 0.2:
                found.rotate()
        if overwrites or not found.overwritten:
            return found
