"""Any calls in any order: a store behaves like a dict in memory, and its files keep its past.

The model keeps every state with its time. Between changes the store is rotated, closed and opened again, or left as a
killed process would leave it. The clock stands still, jumps, and goes backwards. At the end the state at every time is
recovered from the files alone.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.errors import CapacityExceeded, HistoryUnavailable
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore
from tests.versioned.stores import content_of

State = dict[str, tuple[Any, int]]


class Story:
    """A store, its model, and random calls on both."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.number = 0
        self.time = 1_000_000
        self.state: State = {}
        self.states: dict[int, State] = {}
        self.options: dict[str, Any] = {
            "capacity": self.chance.choice((256, 1024, 5000)),
            "high_water_mark": self.chance.choice((0.3, 0.8, 1.0)),
            "max_capacity": self.chance.choice((None, None, 8192)),
            "sync": self.chance.choice(("none", "none", "always")),
            "background": self.chance.random() < 0.5,
            "clock": self.clock if self.chance.random() < 0.7 else None,  # its own clock takes a faster path
        }
        self.store = self.opened()
        self.beginning = self.store.initialized

    def clock(self) -> int:
        self.time += self.chance.choice((0, 0, 1, 5, 1000, -3, -2000))
        return self.time

    def opened(self) -> VersionedKVStore:
        return VersionedKVStore(self.directory / str(self.number), "cars", **self.options)

    def value(self) -> Any:
        size = self.chance.choice((1, 3, 10, 40, 300, 700))
        letters = "".join(self.chance.choices(string.ascii_letters + "ü\0", k=size))
        return self.chance.choice(
            (letters, [0] * size, {"n": size, "nested": [letters, None, -1.5]}, "\0" * size, size)
        )

    def step(self) -> None:
        key = self.chance.choice("abcdefg")
        match self.chance.choices(("insert", "remove", "rotate", "reopen", "kill"), (60, 15, 3, 3, 3))[0]:
            case "insert":
                value = self.value()
                try:
                    t = self.store.insert(key, value)
                except CapacityExceeded:
                    pass
                else:
                    self.state = {**self.state, key: (value, t)}
                    self.states[t] = self.state
            case "remove":
                removed = self.store.remove(key)
                assert (removed is None) == (key not in self.state)
                if removed is not None:
                    self.state = {name: pair for name, pair in self.state.items() if name != key}
                    self.states[removed] = self.state
            case "rotate":
                self.store.rotate()
            case "reopen":
                self.store.close()
                self.store = self.opened()
            case "kill":  # another process finds the files of this one
                before = self.store
                source = self.directory / str(self.number)
                self.number += 1
                shutil.copytree(source, self.directory / str(self.number), ignore=_gone)
                self.store = self.opened()
                assert self.store.recovered is None
                before.close()

    def check(self) -> None:
        assert content_of(self.store) == self.state
        assert list(self.states) == sorted(self.states)


def _gone(directory: str, names: list[str]) -> list[str]:
    """An archive that is being made may be gone before it is copied."""
    return [name for name in names if name.endswith(".zz.tmp")]


@pytest.mark.parametrize("seed", range(25))
def test_store_behaves_like_a_dict_and_keeps_every_state(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    for _ in range(120):
        if story.options["background"]:
            story.store._archiver.wait()  # copying the files takes time: nothing is renamed meanwhile
        story.step()
        story.check()
    story.store.close()
    recovery = VersionedRecovery.load(tmp_path / str(story.number))
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(story.beginning - 1)
    times = list(story.states)
    for t, following in itertools.zip_longest(times, times[1:]):
        assert recovery.recover_at(t).with_timestamps() == story.states[t]
        if following is not None:
            assert recovery.recover_at(following - 1).with_timestamps() == story.states[t]
    assert recovery.recover_current().with_timestamps() == story.state


@pytest.mark.skipif(not COMPILED, reason="this run is without the kernel already")
def test_store_behaves_like_a_dict_without_the_kernel() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, __file__], env={**os.environ, "LOGWRIGHT_PURE": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
