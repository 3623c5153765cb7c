"""A task that is cancelled at any step: its call takes effect or does not, and nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile.files.reader import Reader as SegmentReader
from logwright.appendfile.model.aio import AppendJournal
from logwright.kestrel.model.aio import AsyncQueue
from logwright.kestrel.model.queue import Queue
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
from logwright.sej.model.aio import AsyncConsumer, AsyncWriter
from logwright.versioned.model.aio import AsyncVersionedKVStore
from logwright.versioned.model.store import VersionedKVStore
from tests.support.counts import COUNTS

MOST_STEPS = 40
ITEMS = [b"%d" % number for number in range(6)]
POLICIES = pytest.mark.parametrize("sync", ["none", "always"])


async def cancelled(work: Awaitable[object], steps: int) -> bool:
    """Cancel a task after n turns of the loop; whether it was still running."""
    task = asyncio.ensure_future(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    is_under_way = task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return is_under_way


CALLS: dict[str, tuple[Callable[[AsyncQueue], Awaitable[Any]], list[list[bytes]]]] = {
    "put": (lambda queue: queue.put(b"x"), [ITEMS, [*ITEMS, b"x"]]),
    "put many": (lambda queue: queue.put_many([b"x", b"y"]), [ITEMS, [*ITEMS, b"x", b"y"]]),
    "get": (lambda queue: queue.get(), [ITEMS, ITEMS[1:]]),
    "get many": (lambda queue: queue.get_many(3), [ITEMS, ITEMS[3:]]),
    "reserve many": (lambda queue: queue.reserve_many(3), [ITEMS]),
    "clear": (lambda queue: queue.clear(), [ITEMS, []]),
}


@POLICIES
@pytest.mark.parametrize("name", CALLS)
def test_cancelled_call_of_a_queue_takes_effect_or_does_not(name: str, sync: str, tmp_path: Path) -> None:
    call, outcomes = CALLS[name]

    async def trial(directory: Path, steps: int) -> None:
        async with AsyncQueue(directory, "q", sync=sync, background=False) as queue:
            await queue.put_many(ITEMS)
            result: list[Any] = []

            async def work() -> None:
                result.append(await call(queue))

            await cancelled(work(), steps)
            await queue.put(b"later")
        with Queue(directory, "q", background=False) as again:
            found = list(again)
        is_taking = name.startswith("get")
        allowed = outcomes[-1:] if result else outcomes[:-1] if is_taking else outcomes
        assert found in [[*outcome, b"later"] for outcome in allowed], steps

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "kestrel")


@POLICIES
def test_cancelled_append_of_a_message_takes_effect_or_does_not(sync: str, tmp_path: Path) -> None:
    async def trial(directory: Path, steps: int) -> None:
        async with await AsyncWriter.open(directory, sync=sync) as writer:
            await writer.append(b"first")
            await cancelled(writer.append(b"second"), steps)
            await writer.append(b"later")
        found = [message.value for message in Reader(directory)]
        assert found in ([b"first", b"later"], [b"first", b"second", b"later"]), steps

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "sej")


def test_cancelled_consumer_has_committed_handled_messages(tmp_path: Path) -> None:
    async def consume(directory: Path, steps: int | None) -> list[bytes]:
        done: list[bytes] = []

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            done.append(message.value)

        async with AsyncConsumer(directory, "me", handle, timeout=0) as consumer:
            if steps is None:
                await consumer.run()
            else:
                await cancelled(consumer.run(), steps)
        return done

    for steps in range(MOST_STEPS):
        directory = tmp_path / str(steps)
        with Writer(directory) as writer:
            for item in ITEMS:
                writer.append(item)
        first = asyncio.run(consume(directory, steps))
        assert first + asyncio.run(consume(directory, None)) == ITEMS, steps
    COUNTS.add("interrupts", MOST_STEPS, "sej")


@POLICIES
def test_cancelled_change_of_a_store_takes_effect_or_does_not(sync: str, tmp_path: Path) -> None:
    async def trial(directory: Path, steps: int) -> None:
        async with await AsyncVersionedKVStore.open(directory, "s", sync=sync, background=False) as store:
            await store.insert("first", 1)
            await cancelled(store.insert("second", 2), steps)
            await cancelled(store.rotate(), steps)
            await store.insert("later", 3)
        with VersionedKVStore(directory, "s", background=False) as again:
            assert dict(again.items()) in ({"first": 1, "later": 3}, {"first": 1, "second": 2, "later": 3}), steps

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "versioned")


@POLICIES
@pytest.mark.parametrize("max_pending_bytes", [30, 1 << 20], ids=["waiting for space", "with space"])
def test_cancelled_call_of_a_journal_takes_effect_or_does_not(
    sync: str, max_pending_bytes: int, tmp_path: Path
) -> None:
    async def trial(directory: Path, steps: int) -> None:
        journal, _ = await AppendJournal.open(directory, sync=sync, max_pending_bytes=max_pending_bytes)
        async with journal:
            await journal.append(b"first")
            await cancelled(journal.append_many([b"second", b"third" * 9]), steps)
            await cancelled(journal.register_checkpoint(), steps)
            await cancelled(journal.check_checkpoint(), steps)
            await journal.append(b"later")
            await journal.register_checkpoint()
        found = [record for segment in SegmentReader(directory).segments() for record in segment.records]
        assert found == [b"first", b"second", b"third" * 9, b"later"], steps
        assert all(segment.complete for segment in SegmentReader(directory).segments())

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "appendfile")


def test_cancelled_iteration_over_a_recovery_loses_no_segment(tmp_path: Path) -> None:
    written = [[b"%d" % number] for number in range(4)]

    async def trial(directory: Path, steps: int) -> None:
        journal, _ = await AppendJournal.open(directory)
        async with journal:
            for segment in written:
                await journal.append_many(segment)
                await journal.register_checkpoint()
        given: list[list[bytes]] = []

        async def walk(recovery: Any) -> None:
            async for segment in recovery:
                given.append(list(segment.records))

        journal, recovery = await AppendJournal.open(directory)
        async with journal:
            await cancelled(walk(recovery), steps)
            await walk(recovery)
        assert given == written, steps
        journal, recovery = await AppendJournal.open(directory)
        async with journal:
            assert [segment async for segment in recovery] == [], steps

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "appendfile")


def test_cancelled_opening_leaves_a_journal_unchanged(tmp_path: Path) -> None:
    async def trial(directory: Path, steps: int) -> None:
        journal, _ = await AppendJournal.open(directory)
        async with journal:
            await journal.append(b"first")
        opening = asyncio.ensure_future(AppendJournal.open(directory))
        await cancelled(opening, steps)
        if not opening.cancelled():  # it ended first
            await opening.result()[0].close()
        journal, recovery = await AppendJournal.open(directory)
        async with journal:
            assert [list(segment.records) async for segment in recovery] == [[b"first"]], steps

    for steps in range(MOST_STEPS):
        asyncio.run(trial(tmp_path / str(steps), steps))
    COUNTS.add("interrupts", MOST_STEPS, "appendfile")
