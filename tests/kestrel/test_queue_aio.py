"""The queue in asyncio: waiting, shared syncs, closing, failures, and cancellation at any moment without a loss."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import partial
from itertools import chain
from pathlib import Path
from types import coroutine
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import Closed, Empty, Full, Locked, Poisoned, StorageFailed, TooLarge, WrongUse
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model import open_queues
from logwright.kestrel.model.aio import AsyncQueue
from logwright.kestrel.model.items import Item
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock, Gate
from tests.support.faulty_disk import SYNCS, FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

HOME = Path("/journal")
SYNC = pytest.mark.parametrize("sync", ["none", "always", "interval(1)"])
Work = Callable[[AsyncQueue], Awaitable[Any]]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a test's coroutine to its end, or fail at the deadline."""

    async def within_deadline() -> Any:
        return await asyncio.wait_for(work, DEADLINE_SECONDS)

    return asyncio.run(within_deadline())


def with_queue(directory: Path, work: Work, **options: Any) -> Any:
    """Call a function with the queue `cars`."""

    async def opened() -> Any:
        async with AsyncQueue(directory, "cars", **options) as queue:
            return await work(queue)

    return run(opened())


async def wait_until_tasks_wait(queue: AsyncQueue, tasks: int = 1) -> None:
    """Wait until this number of tasks waits for an item."""
    while queue.stats().waiting < tasks:
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


# --- putting and taking -----------------------------------------------------------------------------------------------


@SYNC
def test_items_are_read_in_the_order_of_their_puts(tmp_path: Path, sync: str) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"one")
        assert await queue.put_many([b"two", b"three", b"four"]) == 3
        assert len(queue) == 4
        assert [data async for data in queue] == [b"one", b"two", b"three", b"four"]
        assert await queue.peek() == b"one"
        assert await queue.get() == b"one"
        assert await queue.get_many(2) == [b"two", b"three"]
        assert await queue.get() == b"four"
        assert (await queue.get(), await queue.peek(), await queue.get_many(3)) == (None, None, [])

    with_queue(tmp_path, work, sync=sync)


@SYNC
def test_items_are_reserved_confirmed_and_aborted(tmp_path: Path, sync: str) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put_many([b"one", b"two", b"three"])
        first = await queue.reserve()
        assert (first.data, first.xid) == (b"one", 1)
        second, third = await queue.reserve_many(5)
        with pytest.raises(Empty):
            await queue.reserve()
        await queue.confirm(second)
        await queue.abort(first, third.xid)
        assert [(item.data, item.attempts) async for item in queue.items()] == [(b"one", 1), (b"three", 1)]
        with pytest.raises(WrongUse, match="transaction 2 is not open: it was confirmed or aborted"):
            await queue.confirm(second)
        assert queue.stats().open == 0

    with_queue(tmp_path, work, sync=sync)
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"one", b"three"]


def test_consume_loop_confirms_finished_items_and_aborts_the_rest(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put_many([b"one", b"two", b"three"])
        async with aclosing(queue.consume()) as items:
            async for item in items:
                if item.data == b"two":
                    break
        assert [(item.data, item.attempts) async for item in queue.items()] == [(b"two", 1), (b"three", 0)]
        assert [item.data async for item in queue.consume(timeout=0)] == [b"two", b"three"]
        assert (len(queue), queue.stats().open) == (0, 0)
        waiting = asyncio.create_task(_all_of(queue.consume()))
        await queue.put(b"four")
        await asyncio.sleep(0)
        await queue.close()
        assert await waiting in ([], [b"four"])
        with pytest.raises(Closed):
            await anext(queue.consume())

    with_queue(tmp_path, work)


async def _all_of(items: AsyncIterator[Item]) -> list[bytes]:
    return [item.data async for item in items]


def test_queue_can_be_opened_by_await(tmp_path: Path) -> None:
    async def work() -> None:
        queue = await AsyncQueue.open(tmp_path, "cars", max_items=1)
        await queue.put(b"one")
        with pytest.raises(Full):
            await queue.put(b"two")
        await queue.close()
        async with AsyncQueue.open(tmp_path, "cars") as queue:
            task = asyncio.create_task(queue.reserve())
            assert (await task).data == b"one"

    asyncio.run(work())


def test_block_confirms_or_aborts(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        with pytest.raises(Empty):
            async with queue.reserve():
                raise AssertionError("the block must not run")
        await queue.put_many([b"one", b"two"])
        with pytest.raises(ZeroDivisionError):
            async with queue.reserve():
                raise ZeroDivisionError
        async with queue.reserve() as item:
            assert item == Item(b"one", 2, item.added, None, 1)
        async with queue.reserve() as item:
            await queue.abort(item)  # that is accepted
        async with queue.reserve() as item:
            await queue.confirm(item)
        assert (len(queue), queue.stats().open) == (0, 0)

    with_queue(tmp_path, work)


def test_async_queue_clears_sweeps_and_moves(tmp_path: Path) -> None:
    clock = Clock()

    async def work(queue: AsyncQueue) -> None:
        await queue.put_many([b"one", b"two"], expires=5)
        await queue.put(b"three")
        clock.now += 6
        assert await queue.sweep() == 2
        item = await queue.reserve()
        await queue.abort(item)
        assert (len(queue), queue.stats().moved) == (0, 3)
        assert await queue.unpark() == 1
        assert await queue.get() == b"three"
        await queue.put_many([b"four", b"five"])
        assert await queue.clear() == 2
        await queue.flush()
        await queue.sync()

    with_queue(tmp_path, work, clock=clock, expire_to="old", max_attempts=1)
    with Queue(tmp_path, "old") as old:
        assert list(old) == [b"one", b"two"]


def test_async_queue_applies_the_limits_of_the_queue(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"one")
        with pytest.raises(Full):
            await queue.put_many([b"two", b"three"])
        await queue.put(b"two")
        with pytest.raises(Full):
            await queue.put(b"three")
        with pytest.raises(TooLarge):
            await queue.put(b"more than ten")
        with pytest.raises(TypeError):
            await queue.put("text")  # type: ignore[arg-type]
        with pytest.raises(WrongUse, match="-1 items"):
            await queue.get_many(-1)
        assert [data async for data in queue] == [b"one", b"two"]

    with_queue(tmp_path, work, max_items=2, max_item_bytes=10)


def test_async_queue_reads_behind(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        wanted = [b"%05d" % number for number in range(3000)]
        await queue.put_many(wanted)
        assert queue.stats().reads_behind
        assert [data async for data in queue] == wanted
        assert [await queue.get() for _ in wanted] == wanted

    with_queue(tmp_path, work, max_memory_bytes=2000)


def test_items_put_to_a_parent_are_put_to_its_children(tmp_path: Path) -> None:
    async def work(parent: AsyncQueue) -> None:
        async with AsyncQueue(tmp_path, "cars+audit", sync="always") as audit:
            waiting = asyncio.create_task(audit.get(None))
            await wait_until_tasks_wait(audit)
            await parent.put(b"one")
            await parent.put_many([b"two", b"three"])
            assert await waiting == b"one"
            assert await audit.get_many(5) == [b"two", b"three"]
        assert len(parent) == 3

    with_queue(tmp_path, work, sync="always")


def test_queue_is_usable_in_one_expression(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> AsyncQueue:
        await queue.put_many([b"one", b"two", b"three"])
        await queue.reserve()
        assert repr(queue) == f"<AsyncQueue {tmp_path / 'cars'}: 2 items, 1 open>"
        assert queue
        return queue

    queue = with_queue(tmp_path, work)
    assert repr(queue) == f"<AsyncQueue {tmp_path / 'cars'}: closed>"


# --- waiting ----------------------------------------------------------------------------------------------------------


@SYNC
def test_waiting_tasks_are_woken_in_order(tmp_path: Path, sync: str) -> None:
    async def work(queue: AsyncQueue) -> None:
        waiting = []
        for number in range(3):
            waiting.append(asyncio.create_task(queue.get(timeout=None)))
            await wait_until_tasks_wait(queue, number + 1)
        await queue.put(b"one")
        assert await waiting[0] == b"one"
        assert queue.stats().waiting == 2
        await queue.put_many([b"two", b"three"])
        assert await asyncio.gather(*waiting[1:]) == [b"two", b"three"]

    with_queue(tmp_path, work, sync=sync)


def test_every_read_method_can_wait(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        for take in (
            lambda: queue.get(None),
            lambda: queue.get_many(3, None),
            lambda: queue.reserve(60),
            lambda: queue.reserve_many(3, 60),
            lambda: queue.reserve(None).__aenter__(),
        ):
            waiting = asyncio.create_task(take())
            await wait_until_tasks_wait(queue)
            await queue.put(b"one")
            found = await waiting
            if isinstance(found, list):
                (found,) = found
            assert (found.data if isinstance(found, Item) else found) == b"one"

    with_queue(tmp_path, work)


def test_aborted_item_wakes_a_waiting_reader(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"one")
        item = await queue.reserve()
        waiting = asyncio.create_task(queue.reserve(None))
        await wait_until_tasks_wait(queue)
        await queue.abort(item)
        again = await waiting
        assert (again.data, again.attempts) == (b"one", 1)

    with_queue(tmp_path, work)


@pytest.mark.parametrize("timeout", [0, 0.001, -1])
def test_wait_ends_at_the_timeout_without_an_item(tmp_path: Path, timeout: float) -> None:
    async def work(queue: AsyncQueue) -> None:
        assert await queue.get(timeout) is None
        assert await queue.get_many(2, timeout) == []
        with pytest.raises(Empty, match="there is no item to reserve"):
            await queue.reserve(timeout)
        assert queue.stats().waiting == 0
        await queue.put(b"one")
        assert await queue.get(timeout) == b"one"

    with_queue(tmp_path, work)


def test_many_producers_and_consumers_lose_nothing(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        async def produce(name: int) -> None:
            for number in range(100):
                await queue.put(b"%d %d" % (name, number))

        async def consume() -> list[bytes]:
            found: list[bytes] = []
            while (data := await queue.get(None)) != b"end":
                assert data is not None
                found.append(data)
            return found

        consumers = [asyncio.create_task(consume()) for _ in range(10)]
        await asyncio.gather(*map(produce, range(10)))
        await queue.put_many([b"end"] * 10)
        found = await asyncio.gather(*consumers)
        wanted = [b"%d %d" % (name, number) for name in range(10) for number in range(100)]
        assert sorted(chain(*found)) == sorted(wanted)
        for one in found:
            for name in range(10):
                numbers = [int(data.split()[1]) for data in one if data.startswith(b"%d " % name)]
                assert numbers == sorted(numbers)

    with_queue(tmp_path, work, sync="always")


# --- durability -------------------------------------------------------------------------------------------------------


def test_128_tasks_share_their_syncs(tmp_path: Path) -> None:
    disk = Gate()
    disk.opened.set()

    async def work(queue: AsyncQueue) -> None:
        async def task(number: int) -> None:
            for turn in range(5):
                await queue.put(b"%d %d" % (number, turn))

        before = disk.syncs
        await asyncio.gather(*map(task, range(128)))
        assert disk.syncs - before <= 128
        before = disk.syncs
        found = await asyncio.gather(*(queue.get() for _ in range(640)))
        assert disk.syncs - before <= 64
        assert sorted(data for data in found if data is not None) == sorted(
            b"%d %d" % (number, turn) for number in range(128) for turn in range(5)
        )

    with_queue(tmp_path, work, sync="always", disk=disk)


def test_acknowledged_calls_are_durable(simulated_disk: SimulatedDisk) -> None:
    async def work(queue: AsyncQueue) -> None:
        async def task(number: int) -> None:
            await queue.put(b"%d" % number)
            simulated_disk.mark(("put", b"%d" % number))
            item = await queue.reserve()
            if number % 2:
                await queue.confirm(item)
                simulated_disk.mark(("gone", item.data))
            else:
                await queue.abort(item)
            data = await queue.get()
            if data is not None:
                simulated_disk.mark(("gone", data))

        await asyncio.gather(*map(task, range(6)))

    with_queue(HOME, work, sync="always", disk=simulated_disk, background=False)
    for state in simulated_disk.crash_states(most=8, fills=(), format="kestrel"):
        with Queue(HOME, "cars", disk=state) as queue:
            found = list(queue)
        put = {data for what, data in state.marks if what == "put"}
        gone = {data for what, data in state.marks if what == "gone"}
        assert len(found) == len(set(found))
        assert not gone & set(found)
        assert len(put - gone - set(found)) <= 6, "each task may be about to take one"
        open_queues._engines.clear()


def test_put_returns_after_its_sync_and_does_not_block_the_loop(tmp_path: Path) -> None:
    disk = Gate()

    async def work() -> None:
        disk.opened.set()
        async with AsyncQueue(tmp_path, "cars", sync="always", disk=disk) as queue:
            disk.opened.clear()
            disk.arrived.clear()
            putting = asyncio.create_task(queue.put(b"one"))
            await asyncio.to_thread(disk.arrived.wait, DEADLINE_SECONDS)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not putting.done()
            disk.opened.set()
            await putting

    run(work())


# --- the end ----------------------------------------------------------------------------------------------------------


def calls_of(queue: AsyncQueue) -> list[Callable[[], Awaitable[Any]]]:
    return [
        lambda: queue.put(b"x"),
        lambda: queue.put_many([b"x"]),
        queue.get,
        lambda: queue.get_many(1),
        queue.peek,
        queue.reserve,
        lambda: queue.reserve_many(2),
        lambda: queue.confirm(1),
        lambda: queue.abort(1),
        queue.clear,
        queue.sweep,
        queue.unpark,
        queue.flush,
        queue.sync,
        queue.delete,
        lambda: anext(aiter(queue)),
    ]


def test_unopened_queue_raises_closed(tmp_path: Path) -> None:
    async def work() -> None:
        queue = AsyncQueue(tmp_path, "cars")
        for _ in range(2):
            for call in calls_of(queue):
                with pytest.raises(Closed, match=r"cars: this queue is not open"):
                    await call()
            with pytest.raises(Closed):
                len(queue)
            await queue.close()
            async with queue:
                await queue.put(b"one")
        async with queue:
            assert await queue.get_many(9) == [b"one", b"one"]

    run(work())


@SYNC
def test_closing_wakes_all_waiting_readers(tmp_path: Path, sync: str) -> None:
    async def work() -> None:
        async with AsyncQueue(tmp_path, "cars", sync=sync) as queue:
            waiting: list[asyncio.Task[Any]] = [asyncio.create_task(queue.get(None)) for _ in range(5)]
            waiting += [asyncio.create_task(queue.reserve(100)) for _ in range(5)]
            await wait_until_tasks_wait(queue, 10)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, Closed)
        Queue(tmp_path, "cars").close()

    run(work())


def test_closing_a_child_of_an_open_parent_wakes_readers_and_aborts_open_items(tmp_path: Path) -> None:
    async def work(parent: AsyncQueue) -> None:
        audit = AsyncQueue(tmp_path, "cars+audit")
        async with audit:
            await parent.put_many([b"one", b"two"])
            await audit.reserve_many(2)
            waiting = asyncio.create_task(audit.get(None))
            await wait_until_tasks_wait(audit)
        with pytest.raises(Closed):
            await waiting
        await parent.put(b"three")
        with pytest.raises(Closed):
            await audit.get()
        async with audit:
            found = [(item.data, item.attempts) async for item in audit.items()]
            assert found == [(b"one", 1), (b"two", 1), (b"three", 0)]

    with_queue(tmp_path, work)


def test_calls_being_synced_at_close_are_completed(tmp_path: Path) -> None:
    disk = Gate()

    async def work() -> None:
        disk.opened.set()
        queue = AsyncQueue(tmp_path, "cars", sync="always", disk=disk)
        async with queue:
            await queue.put(b"zero")
            disk.opened.clear()
            disk.arrived.clear()
            puts = [asyncio.create_task(queue.put(b"one"))]
            await asyncio.to_thread(disk.arrived.wait, DEADLINE_SECONDS)
            puts += [asyncio.create_task(queue.put(b"two")), asyncio.create_task(queue.put(b"three"))]
            getting = asyncio.create_task(queue.get())
            await asyncio.sleep(0)
            closing = asyncio.create_task(queue.close())
            await asyncio.sleep(0)
            disk.opened.set()
            await asyncio.gather(closing, *puts)
            assert await getting == b"zero"
        async with queue:
            assert [data async for data in queue] == [b"one", b"two", b"three"]

    run(work())


def test_deleted_queue_leaves_no_file(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"one")
        waiting = asyncio.create_task(queue.get_many(1, None))
        assert await waiting == [b"one"]
        waiting = asyncio.create_task(queue.get_many(1, None))
        await wait_until_tasks_wait(queue)
        await queue.delete()
        with pytest.raises(Closed):
            await waiting

    with_queue(tmp_path, work, sync="always")
    assert [path.name for path in tmp_path.iterdir()] == [".logwright"]


def test_open_queue_cannot_be_opened_again(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        with pytest.raises(Locked):
            async with AsyncQueue(tmp_path, "cars"):
                pass
        with pytest.raises(Locked):
            await asyncio.to_thread(Queue, tmp_path, "cars")
        await queue.put(b"still works")

    with_queue(tmp_path, work)


def test_another_event_loop_is_refused(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"one")

        def elsewhere() -> None:
            async def use() -> None:
                for call in [*calls_of(queue), queue.close]:
                    with pytest.raises(WrongUse, match="another event loop"):
                        await call()
                assert len(queue) == 1

            asyncio.run(use())

        await asyncio.to_thread(elsewhere)
        assert await queue.get() == b"one"

    with_queue(tmp_path, work)


def test_queue_of_an_ended_loop_can_be_closed_and_opened_in_another(tmp_path: Path) -> None:
    queue = AsyncQueue(tmp_path, "cars", sync="always")

    async def leave() -> None:
        await queue.__aenter__()
        await queue.put(b"one")

    async def keep_running() -> None:
        with pytest.raises(WrongUse, match="another event loop"):
            await queue.get()
        await queue.close()
        async with queue:
            assert await queue.get() == b"one"

    run(leave())
    run(keep_running())


# --- failing ----------------------------------------------------------------------------------------------------------


def test_failed_sync_is_raised_in_all_tasks_and_ends_the_queue(tmp_path: Path) -> None:
    disk: Any = FaultyDisk(REAL_DISK, 0, errno.EIO, forever=True, only=SYNCS)

    async def work() -> None:
        queue = AsyncQueue(tmp_path, "cars", sync="always", disk=disk)
        await queue.__aenter__()
        await queue.put(b"acknowledged")
        assert await queue.get() == b"acknowledged"
        waiting = asyncio.create_task(queue.get(None))
        await wait_until_tasks_wait(queue)
        await queue.put(b"for a waiter")
        assert await waiting == b"for a waiter"
        waiting = asyncio.create_task(queue.get(None))
        await wait_until_tasks_wait(queue)
        disk._fail_at = disk.calls + 1
        outcomes = await asyncio.gather(*(queue.put(b"lost") for _ in range(5)), return_exceptions=True)
        assert all(isinstance(outcome, StorageFailed | Poisoned) for outcome in outcomes)
        with pytest.raises((Poisoned, StorageFailed)):
            await waiting
        calls: list[Callable[[], Awaitable[object]]] = [lambda: queue.put(b"x"), queue.get, lambda: queue.get(None)]
        for call in calls:
            with pytest.raises(Poisoned):
                await call()
        await queue.close()

    run(work())
    with Queue(tmp_path, "cars") as queue:
        assert set(queue) <= {b"lost"}


def test_failed_write_wakes_a_waiting_task(tmp_path: Path) -> None:
    disk: Any = FaultyDisk(REAL_DISK, 0, errno.ENOSPC, forever=True, only={"write"})

    async def work() -> None:
        queue = AsyncQueue(tmp_path, "cars", disk=disk)
        await queue.__aenter__()
        waiting = [asyncio.create_task(queue.get(None)) for _ in range(3)]
        await wait_until_tasks_wait(queue, 3)
        disk._fail_at = disk.calls + 1
        with pytest.raises(StorageFailed):
            await queue.put(b"no room")
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, Poisoned)
        await queue.close()

    run(work())


def test_found_item_is_not_lost_when_others_cannot_be_moved(tmp_path: Path) -> None:
    clock = Clock()

    async def work(queue: AsyncQueue) -> None:
        await queue.put(b"old", expires=5)
        await queue.put_many([b"one", b"two"])
        clock.now += 6
        writer = Writer(tmp_path / "other")
        assert await queue.get() == b"one"
        item = await queue.reserve()
        assert (item.data, queue.stats().moved) == (b"two", 0)
        with pytest.raises(Locked):
            await queue.get()
        await queue.confirm(item)
        writer.close()
        assert await queue.get() is None
        assert queue.stats().moved == 1

    with_queue(tmp_path, work, clock=clock, expire_to="other")


# --- being cancelled --------------------------------------------------------------------------------------------------


@coroutine
def cancelled_at(work: Coroutine[Any, Any, Any], step: int, is_late: bool) -> Generator[Any, Any, Any]:
    """Run a coroutine, and cancel the task when it waits for the `step`-th time, or as soon as it has ended."""
    resume: Callable[[], Any] = partial(work.send, None)
    count = 0
    while True:
        try:
            waited_for = resume()
        except StopIteration as stop:
            return stop.value
        count += 1
        if count == step and not is_late:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
        try:
            yield waited_for
            resume = partial(work.send, None)
            if count == step and is_late:
                resume = partial(work.throw, asyncio.CancelledError())
        except BaseException as error:
            resume = partial(work.throw, error)


Seen = list[bytes]
"""The items that a task has received for good."""


async def takes_by_get(queue: AsyncQueue, seen: Seen) -> None:
    data = await queue.get(None)
    assert data is not None
    seen.append(data)


async def takes_by_get_many(queue: AsyncQueue, seen: Seen) -> None:
    seen += await queue.get_many(2, None)


async def takes_by_open(queue: AsyncQueue, seen: Seen) -> None:
    item = await queue.reserve(None)
    seen.append(item.data)
    await queue.confirm(item)


async def takes_in_a_block(queue: AsyncQueue, seen: Seen) -> None:
    async with queue.reserve(None) as item:
        await asyncio.sleep(0)
        seen.append(item.data)


async def aborts(queue: AsyncQueue, seen: Seen) -> None:
    await queue.abort(*await queue.reserve_many(2, None))


async def puts(queue: AsyncQueue, seen: Seen) -> None:
    await queue.put(b"new")
    await queue.put_many([b"newer", b"newest"])


SITUATIONS: dict[str, dict[str, Any]] = {
    "there are items": {},
    "one comes late": {},
    "others expire": {"expire_to": "old"},
    "others failed": {"max_attempts": 2, "park": "old"},
}


async def prepared(queue: AsyncQueue, situation: str, clock: Clock) -> set[bytes]:
    """Put the items of a situation."""
    if situation == "one comes late":
        return {b"late"}
    await queue.put_many([b"a", b"b"], expires=5 if situation == "others expire" else None)
    if situation == "others failed":
        await queue.abort(*await queue.reserve_many(2))
    await queue.put_many([b"c", b"d"])
    clock.now += 6
    return {b"a", b"b", b"c", b"d"}


async def cancelled_once(disk: SimulatedDisk, taker: Any, situation: str, sync: str, step: int, is_late: bool) -> bool:
    """Cancel a task, and check that every item is somewhere, once; whether it was cancelled."""
    clock, seen = Clock(), Seen()
    async with AsyncQueue(HOME, "cars", sync=sync, clock=clock, disk=disk, **SITUATIONS[situation]) as queue:
        items = await prepared(queue, situation, clock)

        async def work() -> None:
            await cancelled_at(taker(queue, seen), step, is_late)

        task = asyncio.create_task(work())
        if situation == "one comes late":
            while queue.stats().waiting == 0 and not task.done():
                await asyncio.sleep(0)
            await queue.put(b"late")
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        while queue.stats().open:  # moved items may still be in progress
            await queue.peek()
        assert queue.stats().waiting == 0
    found: list[bytes] = []
    for name in ("cars", "old"):
        async with AsyncQueue(HOME, name, clock=Clock(), disk=disk) as queue:  # at a time when nothing has expired
            found += [data async for data in queue]
    assert len(found) == len(set(found)), "nothing is there twice"
    if taker is puts:
        assert items <= set(found) <= items | {b"new", b"newer", b"newest"}
        assert task.cancelled() or len(found) == len(items) + 3
    else:
        assert set(found) | set(seen) == items, "nothing is lost"
        assert not set(found) & set(seen) or (task.cancelled() and taker is takes_in_a_block)
    return task.cancelled()


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("taker", [takes_by_get, takes_by_get_many, takes_by_open, takes_in_a_block, aborts, puts])
def test_task_cancelled_at_any_moment_loses_and_duplicates_nothing(taker: Any, situation: str, sync: str) -> None:
    for is_late in (False, True):
        step = 1
        while True:
            disk = SimulatedDisk()
            disk.make_directory(HOME)
            if not run(cancelled_once(disk, taker, situation, sync, step, is_late)):
                break
            step += 1
        if sync == "always" and taker is not puts:
            assert step > 1, "there was a moment to cancel it"


def test_cancelled_get_or_open_leaves_the_item_at_the_head(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        await queue.put_many([b"a", b"b"], expires=60)
        before = [item async for item in queue.items()]
        for taking in (queue.reserve(), queue.get()):
            task = asyncio.create_task(taking)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        after = [item async for item in queue.items()]
        assert [(item.data, item.attempts) for item in after] == [(b"a", 1), (b"b", 0)]
        assert {(item.added, item.expires) for item in after} == {(before[0].added, before[0].expires)}
        assert (queue.stats().put, queue.stats().taken) == (2, 0)

    with_queue(tmp_path, work, sync="always", clock=Clock(), max_items=2)


def test_cancelled_task_passes_its_turn_to_the_next(tmp_path: Path) -> None:
    async def work(queue: AsyncQueue) -> None:
        first = asyncio.create_task(queue.get(None))
        await wait_until_tasks_wait(queue)
        second = asyncio.create_task(queue.get(None))
        await wait_until_tasks_wait(queue, 2)
        await queue.put(b"one")  # this wakes the first one
        first.cancel()
        assert await second == b"one"
        assert first.cancelled()

    with_queue(tmp_path, work)


def test_cancelled_opening_leaves_no_lock(tmp_path: Path) -> None:
    async def work() -> None:
        for yields in range(6):
            task = asyncio.create_task(AsyncQueue(tmp_path, "cars").__aenter__())
            for _ in range(yields):
                await asyncio.sleep(0)
            if task.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await task.result().close()
            async with AsyncQueue(tmp_path, "cars") as queue:
                await queue.put(b"one")

    run(work())
