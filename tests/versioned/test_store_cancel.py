"""A task that uses a store is cancelled at each await: acknowledged changes are done, and the store stays usable.

`stepping` runs a task and cancels it while it waits for the n-th time, for every n until it ends by itself.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from logwright.versioned.model.aio import AsyncVersionedKVStore
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore
from tests.versioned.stores import journals_of


class Stepping:
    """Awaits a coroutine, and has the task cancelled when it waits for the n-th time."""

    def __init__(self, work: Awaitable[None], number: int) -> None:
        self._work = work
        self._number = number
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        advance: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                waited_for = advance()
            except StopIteration:
                return
            if self.waits == self._number:
                asyncio.get_running_loop().call_soon(task.cancel)
            self.waits += 1
            try:
                yield waited_for
                advance = lambda: next(steps)  # noqa: E731
            except BaseException as error:
                failure = error
                advance = lambda failure=failure: steps.throw(failure)  # type: ignore[misc]  # noqa: E731


async def cancelled_at(work: Awaitable[None], number: int) -> bool:
    """Whether the task was cancelled when it waited for the n-th time; False if it waited fewer times."""
    stepping = Stepping(work, number)

    async def run() -> None:
        await stepping

    task = asyncio.create_task(run())
    await asyncio.wait([task], timeout=60)
    assert task.done(), "a cancelled task runs forever"
    if not task.cancelled():
        task.result()
    return stepping.waits > number


async def changing(store: AsyncVersionedKVStore, done: list[tuple[str, int | None]]) -> None:
    """Changes of every kind: quick ones, those that rotate, a rotation by hand."""
    for number in range(8):
        await store.insert(f"key {number % 3}", number)
        done.append((f"key {number % 3}", number))
        if number == 3:
            await store.rotate()
        if number == 5:
            await store.remove("key 1")
            done.append(("key 1", None))
            await store.sync()
            await store.earliest()


def state_of(done: list[tuple[str, int | None]]) -> dict[str, int]:
    state: dict[str, int] = {}
    for key, value in done:
        state.pop(key, None)
        if value is not None:
            state[key] = value
    return state


EVERYTHING: list[tuple[str, int | None]] = [
    *((f"key {number % 3}", number) for number in range(6)),
    ("key 1", None),
    ("key 0", 6),
    ("key 1", 7),
]


@pytest.mark.parametrize("sync", ["none", "always"])
def test_task_cancelled_at_any_await_leaves_acknowledged_changes_and_at_most_one_more(
    tmp_path: Path, sync: str
) -> None:
    async def attempt(directory: Path, number: int) -> bool:
        done: list[tuple[str, int | None]] = []
        store = await AsyncVersionedKVStore.open(directory, "cars", capacity=256, sync=sync)
        was_cancelled = await cancelled_at(changing(store, done), number)
        assert done == EVERYTHING[: len(done)]
        assert dict(store.items()) in (state_of(done), state_of(EVERYTHING[: len(done) + 1]))
        await store.insert("after", number)
        state = dict(store.items())
        await store.close()
        with VersionedKVStore(directory, "cars") as reopened:
            assert dict(reopened.items()) == state
        entries = [entry for _, found in journals_of(directory, "cars") for entry in found]
        assert {(entry.k, entry.o) for entry in entries} >= set(done)
        assert not (directory / "cars.jrn.old").exists()
        return was_cancelled

    async def every() -> int:
        for number in itertools.count():
            if not await attempt(tmp_path / str(number), number):
                return number
        return 0

    assert asyncio.run(every()) >= (10 if sync == "always" else 3)


def test_opening_and_closing_cancelled_at_any_await_leave_no_lock(tmp_path: Path) -> None:
    async def whole() -> None:
        async with AsyncVersionedKVStore.open(tmp_path, "cars", sync="always") as store:
            await store.insert("a", 1)
            recovery = await VersionedRecovery.load(tmp_path)
            assert await recovery.recover_current_async() == {"a": 1}

    async def every() -> int:
        for number in itertools.count():
            was_cancelled = await cancelled_at(whole(), number)
            with VersionedKVStore(tmp_path, "cars") as store:
                assert store.recovered is None
                store.remove("a")
            if not was_cancelled:
                return number
        return 0

    assert asyncio.run(every()) >= 4
