"""A store as a mapping, and its past, as a Python programmer expects."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logwright.errors import Closed, WrongUse
from logwright.versioned import AsyncVersionedKVStore, VersionedKVStore

SECOND = 1_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> VersionedKVStore:
    """A store with one change per second, from the epoch on; left open."""
    times = iter(range(SECOND, 100 * SECOND, SECOND))
    return VersionedKVStore(tmp_path, "s", clock=lambda: next(times), background=False)


def test_keys_are_set_read_and_deleted_by_brackets(store: VersionedKVStore) -> None:
    store["a"] = [1]
    store["b"] = {"x": 2}
    assert (store["a"], store["b"]) == ([1], {"x": 2})
    del store["a"]
    assert "a" not in store
    with pytest.raises(KeyError, match=r"^'a'$"):
        store["a"]
    with pytest.raises(KeyError, match=r"^'a'$"):
        del store["a"]


def test_store_is_a_collection_of_its_keys(store: VersionedKVStore) -> None:
    for number, key in enumerate("abc"):
        store[key] = number
    assert list(store) == store.keys() == ["a", "b", "c"]
    assert store.values() == [0, 1, 2]
    assert store.items() == [("a", 0), ("b", 1), ("c", 2)]
    assert dict(store) == {"a": 0, "b": 1, "c": 2}


def test_store_may_change_during_iteration(store: VersionedKVStore) -> None:
    for key in "abc":
        store[key] = 1
    for key in store:
        del store[key]
    assert len(store) == 0


def test_none_is_not_a_value(store: VersionedKVStore) -> None:
    with pytest.raises(WrongUse, match="None cannot be a value"):
        store["a"] = None


def test_past_states_are_available_while_the_store_is_open(store: VersionedKVStore) -> None:
    store["a"] = 1
    store.rotate()
    store["a"] = 2
    del store["a"]
    entries = store.history("a")
    assert [entry.o for entry in entries] == [1, 2, None]
    assert store.at(entries[0].t) == {"a": 1}
    assert store.at(entries[1].t) == {"a": 2}
    assert store.at(entries[2].t) == {}
    assert store.history("b") == []


def test_time_is_a_datetime_or_nanoseconds(store: VersionedKVStore) -> None:
    written = store.insert("a", 1)
    moment = datetime.fromtimestamp(written // SECOND, UTC)
    assert store.at(moment) == store.at(written) == {"a": 1}
    for wrong in (moment.replace(tzinfo=None), True, 1.5, "now", -1):
        with pytest.raises(WrongUse, match="is no time"):
            store.at(wrong)  # type: ignore[arg-type]


def test_closed_store_raises_closed(store: VersionedKVStore) -> None:
    store.close()
    for call in (store.keys, store.values, store.items, lambda: store["a"], lambda: store.at(0), lambda: iter(store)):
        with pytest.raises(Closed):
            call()
    with pytest.raises(Closed):
        store.history("a")


def test_async_store_has_the_same_mapping_methods(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncVersionedKVStore(tmp_path, "s") as store:
            written = await store.insert("a", 1)
            await store.insert("a", 2)
            assert store["a"] == 2
            assert list(store) == store.keys() == ["a"]
            assert store.values() == [2]
            assert store.items() == [("a", 2)]
            assert await store.at(written) == {"a": 1}
            assert [entry.o for entry in await store.history("a")] == [1, 2]

    asyncio.run(use())
