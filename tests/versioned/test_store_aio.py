"""The store for asyncio: the same results, one sync for many tasks, and nothing half done if a task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import Closed, Locked, Poisoned, StorageFailed, WrongUse
from logwright.versioned.model.aio import AsyncVersionedKVStore
from logwright.versioned.model.store import VersionedKVStore
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk, Sync
from tests.versioned.stores import HOME, journals_of


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize("sync", ["none", "always", "interval(1)"])
def test_async_store_returns_the_same_results(tmp_path: Path, sync: str) -> None:
    async def work() -> None:
        async with AsyncVersionedKVStore.open(tmp_path, "cars", capacity=4096, sync=sync) as store:
            t = await store.insert("a", {"v": [1]})
            assert await store.get("a") == {"v": [1]}
            assert await store.get("b", 5) == 5
            assert await store.get_with_timestamp("a") == ({"v": [1]}, t)
            assert "a" in store
            assert len(store) == 1
            assert list(store.items()) == [("a", {"v": [1]})]
            assert await store.rotate() == t
            await store.sync()
            assert await store.remove("b") is None
            assert await store.remove("a") is not None
            assert await store.earliest() < t
            assert bool(store)
            with pytest.raises(WrongUse, match="use remove"):
                await store.insert("a", None)
        with pytest.raises(Closed):
            await store.get("a")

    run(work)
    with VersionedKVStore(tmp_path, "cars") as store:
        assert len(store) == 0


def test_async_store_can_be_opened_by_await(tmp_path: Path) -> None:
    async def work() -> None:
        store = await AsyncVersionedKVStore.open(tmp_path, "cars")
        await store.insert("a", 1)
        with pytest.raises(Locked):
            await AsyncVersionedKVStore.open(tmp_path, "cars")
        await store.close()
        await store.close()

    run(work)
    with VersionedKVStore(tmp_path, "cars") as store:
        assert store.get("a") == 1


@pytest.mark.parametrize("sync", ["none", "always"])
def test_concurrent_tasks_lose_nothing_through_rotations(tmp_path: Path, sync: str) -> None:
    async def one(store: AsyncVersionedKVStore, number: int) -> None:
        for count in range(40):
            await store.insert(f"key {number}", {"number": number, "count": count})
        await store.remove(f"key {number}")
        await store.insert(f"last {number}", number)

    async def work() -> None:
        async with AsyncVersionedKVStore.open(tmp_path, "cars", capacity=4096, sync=sync) as store:
            await asyncio.gather(*(one(store, number) for number in range(30)))
            assert dict(store.items()) == {f"last {number}": number for number in range(30)}

    run(work)
    entries = [entry for _, entries in journals_of(tmp_path, "cars") for entry in entries]
    made = {(entry.o["number"], entry.o["count"]) for entry in entries if isinstance(entry.o, dict)}
    assert made == {(number, count) for number in range(30) for count in range(40)}


def on_a_disk(**options: Any) -> tuple[SimulatedDisk, AsyncVersionedKVStore]:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    return disk, AsyncVersionedKVStore.open(HOME, "cars", disk=disk, **options)


def test_tasks_share_syncs() -> None:
    disk, closed = on_a_disk(sync="always", capacity=1 << 16)

    async def work() -> None:
        async with closed as store:
            before = sum(isinstance(operation, Sync) for operation in disk.operations)
            await asyncio.gather(*(store.insert(str(number), number) for number in range(200)))
            syncs = sum(isinstance(operation, Sync) for operation in disk.operations) - before
            assert 1 <= syncs <= 60
            assert len(store) == 200

    run(work)


def test_cancelled_task_completes_its_change(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncVersionedKVStore.open(tmp_path, "cars", sync="always") as store:
            task = asyncio.create_task(store.insert("a", 1))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.get("a") == 1
            await store.insert("b", 2)

    run(work)
    with VersionedKVStore(tmp_path, "cars") as store:
        assert dict(store.items()) == {"a": 1, "b": 2}


def test_failed_sync_is_raised_in_every_task_and_is_final() -> None:
    inner = SimulatedDisk()
    inner.make_directory(HOME)
    disk = FaultyDisk(inner, only=["sync"])

    async def work() -> None:
        store = await AsyncVersionedKVStore.open(HOME, "cars", disk=disk, sync="always")
        await store.insert("a", 1)
        disk._fail_at = disk.calls + 1
        results = await asyncio.gather(*(store.insert(str(number), 1) for number in range(5)), return_exceptions=True)
        assert {type(result) for result in results} <= {StorageFailed, Poisoned}
        with pytest.raises(Poisoned):
            await store.insert("b", 2)
        assert await store.get("a") == 1
        await store.close()

    run(work)
    with VersionedKVStore(HOME, "cars", disk=inner) as store:
        assert store.get("a") == 1
        assert "b" not in store
