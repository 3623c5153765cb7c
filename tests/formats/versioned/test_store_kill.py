"""kill -9 of a process that writes to a store, again and again: what it had acknowledged is there.

The process inserts and removes by a rule that follows from the number of the change, so the state after so many changes
is known; it prints the number of each acknowledged one. The journal is a mapping of the file here, and rotated often.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.formats.versioned.recovery import VersionedRecovery
from logwright.formats.versioned.store import VersionedKVStore
from tests.support.children import Child
from tests.support.counts import COUNTS

KILLS = 8
WRITER = """
import sys
from logwright.formats.versioned.store import VersionedKVStore
from tests.formats.versioned.test_store_kill import change
directory, number, sync = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = VersionedKVStore.open(directory, "cars", capacity=8192, sync=sync)
while True:
    change(store, number)
    number += 1
    print(number, flush=True)
"""


def change(store: VersionedKVStore, number: int) -> None:
    """The change of this number."""
    key = f"key {number % 11}"
    if number % 5 == 4 and key in store:
        store.remove(key)
    else:
        store.insert(key, {"number": number, "text": "x" * (number * 37 % 700)})


def expected(count: int) -> dict[str, int]:
    """The number in the value of each key after so many changes."""
    state: dict[str, int] = {}
    for number in range(count):
        key = f"key {number % 11}"
        if number % 5 == 4 and key in state:
            del state[key]
        else:
            state[key] = number
    return state


@pytest.mark.parametrize("sync", ["none", "always"])
def test_a_killed_process_leaves_every_change_that_it_acknowledged(tmp_path: Path, sync: str) -> None:
    chance = random.Random(sync)
    count = 0
    for _ in range(KILLS):
        with Child(WRITER, tmp_path, count, sync) as child:
            for _ in range(chance.choice((1, 5, 40, 150))):
                acknowledged = int(child.line())
            child.kill()
            while True:
                try:
                    acknowledged = int(child.line())
                except EOFError:
                    break
        states = {done: expected(done) for done in (acknowledged, acknowledged + 1)}
        recovered = {key: value["number"] for key, value in VersionedRecovery.load(tmp_path).recover_current().items()}
        with VersionedKVStore.open(tmp_path, "cars") as store:
            assert store.recovered is None
            found = {key: value["number"] for key, value in store.items()}
        assert found in states.values()
        assert recovered == found
        count = acknowledged if found == states[acknowledged] else acknowledged + 1
        COUNTS.add("kill -9", 1, "versioned")
    assert count > 100
