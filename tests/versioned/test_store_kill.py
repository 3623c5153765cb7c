"""kill -9 of a process that writes to a store, repeatedly: the changes that it has acknowledged are there.

The number of a change determines it, so the state after n changes is known; the process prints the number of each
acknowledged one. The journal is a mapping of the file here, and is rotated often, so the process is also killed while
it rotates, makes an archive, or removes one.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logwright.torture.store import change_of, state_after
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore
from tests.support.children import Child
from tests.support.counts import COUNTS

KILLS = 4
KINDS = [
    pytest.param("none", {"capacity": 8192}, id="none"),
    pytest.param("always", {"capacity": 8192}, id="always"),
    pytest.param("none", {"capacity": 1024, "retention": "Retention(max_archives=2)"}, id="none, with retention"),
    pytest.param("always", {"capacity": 1024, "background": False}, id="always, archives at once"),
]
WRITER = """
import sys
from logwright.versioned.model.store import VersionedKVStore
from tests.versioned.test_store_kill import change
from logwright.versioned.model.retention import Retention
directory, number, sync = sys.argv[1], int(sys.argv[2]), sys.argv[3]
options = {name: eval(str(value)) for name, value in eval(sys.argv[4]).items()}
store = VersionedKVStore(directory, "cars", sync=sync, **options)
while True:
    change(store, number)
    number += 1
    print(number, flush=True)
"""


def change(store: VersionedKVStore, number: int) -> None:
    """The change of this number."""
    key, value = change_of(number)
    store.remove(key) if value is None else store.insert(key, value)


def expected(count: int) -> dict[str, int]:
    """The number in the value of each key after `count` changes."""
    return {key: value["number"] for key, value in state_after(count).items()}


def kill_again_and_again(path: Path, sync: str, options: dict[str, Any], kills: int) -> int:
    """Kill several writers in turn; the total number of changes."""
    chance = random.Random(f"{sync} {options}")
    count = 0
    for _ in range(kills):
        with Child(WRITER, path, count, sync, options) as child:
            for _ in range(chance.choice((1, 5, 40, 150))):
                acknowledged = int(child.line())
            child.kill()
            while True:
                try:
                    acknowledged = int(child.line())
                except EOFError:
                    break
        states = {done: expected(done) for done in (acknowledged, acknowledged + 1)}
        recovered = {key: value["number"] for key, value in VersionedRecovery.load(path).recover_current().items()}
        assert Reader(path / "cars.jrn").verify().problems == []
        with VersionedKVStore(path, "cars") as store:
            assert store.recovered is None
            found = {key: value["number"] for key, value in store.items()}
            earliest = store.earliest()
        assert found in states.values()
        assert recovered == found
        check_past(path, earliest)
        count = acknowledged if found == states[acknowledged] else acknowledged + 1
        COUNTS.add("kill -9", 1, "versioned")
    return count


def check_past(path: Path, earliest: int) -> None:
    """The files have every time since the earliest one, and each state is that after some number of changes."""
    recovery = VersionedRecovery.load(path)
    assert recovery.earliest() == earliest
    assert Reader(path / "cars.jrn").verify().problems == []
    assert not list(path.glob("*.tmp")) + list(path.glob("*.old"))
    changes = list(recovery.changes(earliest, 2**64 - 1))
    for entry in changes[:: max(1, len(changes) // 10)]:
        if entry.o is not None:
            state = {key: value["number"] for key, value in recovery.recover_at(entry.t).items()}
            last = max(state.values()) + 1  # and the following removal may have the same time
            assert state in (expected(last), expected(last + 1)), "a state that never was"


@pytest.mark.parametrize(("sync", "options"), KINDS)
def test_killed_process_leaves_every_acknowledged_change(tmp_path: Path, sync: str, options: dict[str, Any]) -> None:
    assert kill_again_and_again(tmp_path, sync, options, KILLS) > 20


@pytest.mark.torture
@pytest.mark.parametrize(("sync", "options"), KINDS)
def test_many_killed_processes_lose_nothing_acknowledged(tmp_path: Path, sync: str, options: dict[str, Any]) -> None:
    assert kill_again_and_again(tmp_path, sync, options, 30 * KILLS) > 1000
