"""Interrupted calls of a store, and the invariants after them: `tests/contract/test_interrupts.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logwright.errors import LogwrightError, Poisoned
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore
from tests.support.interrupts import Case, Interrupt

STATE = {f"key {number}": number for number in range(6)}
ZEROS = "\0" * 2000


class Try(NamedTuple):
    """A call of a store that has `STATE`, and the possible states after it."""

    call: Callable[[VersionedKVStore], object]
    outcomes: list[dict[str, Any]]
    capacity: int = 4096
    before: int = 0
    """The number of bytes of earlier changes."""
    ends: bool = False


def without(key: str) -> dict[str, Any]:
    return {other: value for other, value in STATE.items() if other != key}


TRIES = {
    "insert": Try(lambda store: store.insert("new", 1), [STATE, {**STATE, "new": 1}]),
    "insert over": Try(lambda store: store.insert("key 1", "x"), [STATE, {**STATE, "key 1": "x"}]),
    "insert zeros": Try(lambda store: store.insert("new", ZEROS), [STATE, {**STATE, "new": ZEROS}]),
    "insert and rotate": Try(
        lambda store: store.insert("new", "x" * 400), [STATE, {**STATE, "new": "x" * 400}], capacity=1024, before=500
    ),
    "insert and grow": Try(
        lambda store: store.insert("new", "x" * 4000), [STATE, {**STATE, "new": "x" * 4000}], capacity=1024
    ),
    "remove": Try(lambda store: store.remove("key 1"), [STATE, without("key 1")]),
    "rotate": Try(lambda store: store.rotate(), [STATE], before=300),
    "sync": Try(lambda store: store.sync(), [STATE]),
    "close": Try(lambda store: store.close(), [STATE], ends=True),
}
SETTINGS: dict[str, dict[str, Any]] = {"": {}, ", synced": {"sync": "always"}}


def trial(found: Try, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    store = VersionedKVStore(directory, "s", found.capacity, background=False, **settings)
    for key, value in STATE.items():
        store.insert(key, value)
    while store.position < found.before:
        store.insert("key 5", 5)
    history = store.last_timestamp
    if not interrupt(lambda: found.call(store)):
        store.close()
        return
    outcomes = found.outcomes
    if found.ends:
        with suppress(Poisoned):
            store.close()
    elif store.refusing:
        calls: list[Callable[[], object]] = [
            lambda: store.insert("no", 1),
            lambda: store.remove("key 0"),
            store.rotate,
            store.sync,
        ]
        for call in calls:
            with pytest.raises(Poisoned, match="open"):
                call()
        store.close()
    else:
        now = dict(store.items())
        assert now in outcomes
        store.insert("later", 1)
        assert dict(store.items()) == {**now, "later": 1}
        outcomes = [{**now, "later": 1}]
        store.close()
    with VersionedKVStore(directory, "s", background=False) as store:
        assert dict(store.items()) in outcomes
        store.insert("more", 2)
        with suppress(LogwrightError):
            store.rotate()
    with VersionedKVStore(directory, "s", background=False) as store:
        assert dict(store.items()) in [{**outcome, "more": 2} for outcome in outcomes]
    assert VersionedRecovery.load(directory).recover_at(history) == STATE


def opening(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    with VersionedKVStore(directory, "s", background=False, **settings) as store:
        for key, value in STATE.items():
            store.insert(key, value)
    if not interrupt(lambda: VersionedKVStore(directory, "s", background=False, **settings)):
        interrupt.result.close()
        return
    if interrupt.result is not None:
        interrupt.result.close()
    with VersionedKVStore(directory, "s", background=False) as store:
        assert dict(store.items()) == STATE


CASES: dict[str, Case] = {}
for _suffix, _settings in SETTINGS.items():
    CASES[f"opening{_suffix}"] = partial(opening, _settings)
    for _name, _found in TRIES.items():
        CASES[f"{_name}{_suffix}"] = partial(trial, _found, _settings)
