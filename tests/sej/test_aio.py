"""The journal in asyncio: writing, following, consuming, cancellation, and never blocking the loop."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Coroutine
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.core.io.watch import PollingWatch
from logwright.errors import (
    Closed,
    DamagedJournal,
    HandlerFailed,
    Locked,
    NotFound,
    Poisoned,
    StorageFailed,
    TooLarge,
    WrongUse,
)
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import BUFFER_BYTES, Writer
from logwright.sej.model.aio import AsyncConsumer, AsyncScanner, AsyncWriter
from logwright.sej.model.offset import read_offset
from tests.sej.samples import MESSAGE_BYTES, make_journal, offsets_of, value_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

JOURNAL = Path("/journal")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a test's coroutine to its end, or fail at the deadline."""

    async def within_deadline() -> Any:
        return await asyncio.wait_for(work, DEADLINE_SECONDS)

    return asyncio.run(within_deadline())


class Gate:
    """A disk whose syncs of segments wait at a gate; `arrived` is set when one does."""

    def __init__(self, inner: Any) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self.syncs = 0
        self._inner = inner

    def open(self, path: Path, mode: Any) -> Any:
        file = self._inner.open(path, mode)
        return GatedFile(self, file) if path.suffix == ".jnl" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class GatedFile:
    def __init__(self, gate: Gate, inner: Any) -> None:
        self._gate = gate
        self._inner = inner

    def sync(self) -> None:
        self._gate.syncs += 1
        self._gate.arrived.set()
        assert self._gate.opened.wait(DEADLINE_SECONDS)
        self._inner.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def happens(event: threading.Event) -> None:
    """Wait for another thread without blocking the loop."""
    assert await asyncio.to_thread(event.wait, DEADLINE_SECONDS)


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["none", "always", "interval(1)"])
def test_tasks_append_and_each_message_gets_its_own_offset(tmp_path: Path, sync: str) -> None:
    async def work() -> None:
        async with AsyncWriter(tmp_path / "journal", sync=sync, segment_size=2000) as writer:

            async def append(task: int) -> list[tuple[int, bytes]]:
                values = [f"{task} {number}".encode() for number in range(20)]
                return [(await writer.append(value, b"key", task, 5), value) for value in values]

            acknowledged = await asyncio.gather(*map(append, range(10)))
        written = {message.offset: message for message in Reader(tmp_path / "journal")}
        assert sorted(written) == list(range(200))
        for task, pairs in enumerate(acknowledged):
            for offset, value in pairs:
                assert written[offset] == Message(offset, 5, task, b"key", value)

    run(work())


def test_acknowledged_message_is_durable(simulated_disk: SimulatedDisk) -> None:
    async def work() -> None:
        async with AsyncWriter(JOURNAL, sync="always", segment_size=300, disk=simulated_disk) as writer:

            async def append(task: int) -> None:
                for number in range(4):
                    offset = await writer.append(f"{task} {number}".encode())
                    simulated_disk.mark(offset)

            await asyncio.gather(*map(append, range(5)))

    run(work())
    for state in simulated_disk.crash_states(most=6, format="sej"):
        segments = state.is_directory(JOURNAL / "jnl") and Reader(JOURNAL, disk=state).segments()
        found = offsets_of(Reader(JOURNAL, disk=state)) if segments else []
        assert found == list(range(len(found)))
        assert set(state.marks) <= set(found)


def test_waiting_tasks_share_one_sync_without_blocking_the_loop(tmp_path: Path) -> None:
    gate = Gate(REAL_DISK)

    async def work() -> None:
        async with AsyncWriter(tmp_path / "journal", sync="always", disk=gate) as writer:
            first = asyncio.create_task(writer.append(b"first"))
            await happens(gate.arrived)
            others = [asyncio.create_task(writer.append(b"other")) for _ in range(50)]
            await asyncio.sleep(0)  # the loop is not blocked: the others append, and wait
            assert writer.writer.next_offset == 51
            assert not any(task.done() for task in (first, *others))
            assert gate.syncs == 1
            gate.opened.set()
            assert await first == 0
            assert await asyncio.gather(*others) == list(range(1, 51))
            assert gate.syncs == 2

    run(work())


def test_without_a_policy_the_caller_flushes_and_syncs(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    async def work() -> None:
        writer = await AsyncWriter.open(journal)
        await writer.append(b"one")
        assert Reader(journal).count() == 0
        await writer.flush()
        assert Reader(journal).count() == 1
        await writer.append(b"two")
        await writer.sync()
        assert Reader(journal).count() == 2
        await writer.append(b"three")
        await writer.close()
        await writer.close()
        assert Reader(journal).count() == 3
        for action in (writer.append(b"four"), writer.flush(), writer.sync(), writer.append_batch(None)):
            with pytest.raises(Closed):
                await action

    run(work())


def test_gathered_messages_are_written_before_they_grow_large(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncWriter(tmp_path / "journal") as writer:

            async def append() -> None:
                for _ in range(200):
                    await writer.append(bytes(1000))
                    assert writer.writer.buffered_bytes < BUFFER_BYTES + 50_000

            await asyncio.gather(*[append() for _ in range(20)])
            assert Reader(tmp_path / "journal").count() > 3000

    run(work())


def test_batch_is_appended_and_durable(simulated_disk: SimulatedDisk) -> None:
    batch = pyarrow.record_batch({"value": [b"a", b"b", b"c"]})

    async def work() -> None:
        async with AsyncWriter(JOURNAL, sync="always", disk=simulated_disk) as writer:
            await writer.append(b"first")
            assert await writer.append_batch(batch) == 1
            state = next(iter(simulated_disk.crash_states(first=len(simulated_disk.operations), most=1, format="sej")))
            assert [message.value for message in Reader(JOURNAL, disk=state)] == [b"first", b"a", b"b", b"c"]

    run(work())


def test_second_writer_is_locked_out_and_wrong_messages_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncWriter(tmp_path / "journal", sync="always") as writer:
            with pytest.raises(Locked):
                await AsyncWriter.open(tmp_path / "journal")
            with pytest.raises(TooLarge):
                await writer.append(b"", key=bytes(128))
            assert await writer.append(b"good") == 0
        async with AsyncWriter(tmp_path / "journal") as writer:
            assert await writer.append(b"better") == 1

    run(work())


def test_failed_sync_fails_every_waiting_and_later_task(simulated_disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(simulated_disk, fail_at=3, error=errno.EIO, only={"sync"})

    async def work() -> None:
        writer = await AsyncWriter.open(JOURNAL, sync="always", disk=faulty)
        for offset in range(2):
            assert await writer.append(b"good") == offset
        outcomes = await asyncio.gather(*[writer.append(b"lost") for _ in range(5)], return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 5
        with pytest.raises(Poisoned):
            await writer.append(b"more")
        await writer.close()

    run(work())
    assert simulated_disk.open_files == 0
    assert offsets_of(Reader(JOURNAL, disk=simulated_disk))[:2] == [0, 1]


def test_cancelled_append_is_still_appended_and_does_not_affect_others(tmp_path: Path) -> None:
    gate = Gate(REAL_DISK)

    async def work() -> None:
        async with AsyncWriter(tmp_path / "journal", sync="always", disk=gate) as writer:
            tasks = [asyncio.create_task(writer.append(str(number).encode())) for number in range(3)]
            await happens(gate.arrived)
            tasks[1].cancel()
            gate.opened.set()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [outcomes[0], type(outcomes[1]), outcomes[2]] == [0, asyncio.CancelledError, 2]
        assert [message.value for message in Reader(tmp_path / "journal")] == [b"0", b"1", b"2"]

    run(work())


def test_cancelled_close_still_closes(tmp_path: Path) -> None:
    gate = Gate(REAL_DISK)

    async def work() -> None:
        writer = await AsyncWriter.open(tmp_path / "journal", disk=gate)
        await writer.append(b"last")
        closing = asyncio.create_task(writer.close())
        await happens(gate.arrived)
        closing.cancel()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        async with AsyncWriter(tmp_path / "journal") as other:
            assert other.writer.next_offset == 1

    run(work())


def test_cancelled_open_holds_no_lock(tmp_path: Path) -> None:
    arrived, opened = threading.Event(), threading.Event()

    class SlowDisk:
        def sync_directory(self, path: Path) -> None:
            arrived.set()
            assert opened.wait(DEADLINE_SECONDS)
            REAL_DISK.sync_directory(path)

        def __getattr__(self, name: str) -> Any:
            return getattr(REAL_DISK, name)

    async def work() -> None:
        opening = asyncio.ensure_future(AsyncWriter.open(tmp_path / "journal", disk=SlowDisk()))
        await happens(arrived)
        opening.cancel()
        opened.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        Writer(tmp_path / "journal").close()

    run(work())


def test_torn_tail_is_reported_as_by_the_plain_writer(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 3)
    with (journal / "jnl" / "0000000000000000.jnl").open("ab") as file:
        file.write(b"torn")

    async def work() -> None:
        async with AsyncWriter(journal) as writer:
            assert writer.writer.recovered is not None
            assert writer.writer.recovered.size == 4
            assert await writer.append(b"next") == 3

    run(work())


# --- following ------------------------------------------------------------------------------------------------------


def test_scanner_returns_every_message_once_in_order(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 45)

    async def work() -> None:
        async with AsyncScanner(journal, timeout=0) as scanner:
            assert scanner.offset == 0
            assert offsets_of([message async for message in scanner]) == list(range(45))
            make_journal(journal, 5)
            assert offsets_of([message async for message in scanner]) == list(range(45, 50))
            assert scanner.offset == 50
        async with AsyncScanner(journal, 42, timeout=0) as scanner:
            assert offsets_of([message async for message in scanner]) == list(range(42, 50))
        async with await AsyncScanner.from_time(journal, 44, timeout=0) as scanner:
            assert offsets_of([message async for message in scanner])[0] == 44

    run(work())


@pytest.mark.parametrize("watched", [True, False])
def test_scanner_waits_for_messages_without_blocking_the_loop(tmp_path: Path, watched: bool) -> None:
    journal = make_journal(tmp_path / "journal", 0)

    class Unwatched:
        """A disk without notifications of changes."""

        def watch(self, path: Path) -> PollingWatch:
            return PollingWatch()

        def __getattr__(self, name: str) -> Any:
            return getattr(REAL_DISK, name)

    async def work() -> None:
        found: list[int] = []

        async def follow(scanner: AsyncScanner[Message]) -> None:
            async for message in scanner:
                found.extend(offsets_of([message]))
                if len(found) == 300:
                    return

        disk = REAL_DISK if watched else Unwatched()
        async with AsyncScanner(journal, timeout=None, disk=disk) as scanner:
            following = asyncio.create_task(follow(scanner))
            async with AsyncWriter(journal, sync="always", segment_size=700) as writer:
                await asyncio.gather(*[writer.append(value_of(number)) for number in range(300)])
                await following
        assert found == list(range(300))

    run(work())


def test_batches_are_returned_as_lists(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)

    async def work() -> None:
        async with AsyncScanner(journal, timeout=0) as scanner:
            first = await anext(scanner)
            assert offsets_of([first]) == [0]
            assert offsets_of(await scanner.read_batch()) == list(range(1, 10)), "the rest of what had been read"
            assert offsets_of(await scanner.read_batch()) == list(range(10, 20))
            assert offsets_of(await scanner.read_batch()) == list(range(20, 25))
            assert await scanner.read_batch() == []

    run(work())


def test_timeout_ends_the_iteration_and_another_continues(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 3)

    async def work() -> None:
        async with AsyncScanner(journal, timeout=0.001) as scanner:
            assert len([message async for message in scanner]) == 3
            with pytest.raises(StopAsyncIteration):
                await anext(scanner)
            make_journal(journal, 1)
            assert offsets_of([await anext(scanner)]) == [3]

    run(work())


def test_repeatedly_cancelled_scanner_loses_nothing(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 400, per_segment=3)

    async def work() -> None:
        found = []
        async with AsyncScanner(journal, timeout=0) as scanner:
            cancelled = 0
            while True:
                task = asyncio.ensure_future(anext(scanner, None))
                for _ in range(cancelled % 4):  # let it get a little further each time
                    await asyncio.sleep(0)
                if cancelled < 500:
                    task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    cancelled += 1
                    continue
                if message is None:
                    break
                found.append(message)
        assert cancelled > 50
        assert offsets_of(found) == list(range(400))

    run(work())


def test_modes_and_errors_equal_those_of_the_plain_scanner(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    segment = journal / "jnl" / "000000000000000a.jnl"
    data = bytearray(segment.read_bytes())
    data[MESSAGE_BYTES - 1] ^= 1
    segment.write_bytes(data)

    async def work() -> None:
        async with AsyncScanner(journal, timeout=0) as scanner:
            assert offsets_of([await anext(scanner) for _ in range(10)]) == list(range(10))
            with pytest.raises(DamagedJournal):
                await anext(scanner)
        async with AsyncScanner(journal, timeout=0, mode="permissive") as scanner:
            items = [item async for item in scanner]
            assert [item.start for item in items if isinstance(item, Damage)] == [0]
            assert len(items) == 25
        with pytest.raises(NotFound):
            AsyncScanner(tmp_path / "nowhere")

    run(work())


def test_scanner_can_be_closed_while_a_task_waits(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 1)

    async def work() -> None:
        scanner = AsyncScanner(journal, timeout=None)
        await anext(scanner)
        waiting = asyncio.ensure_future(anext(scanner))
        await asyncio.sleep(0)
        await scanner.close()
        await scanner.close()
        for waiter in (waiting, anext(scanner)):
            with pytest.raises(Closed):
                await waiter

    run(work())


def test_tasks_share_a_scanner(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 200)

    async def work() -> None:
        async with AsyncScanner(journal, timeout=0) as scanner:

            async def take() -> list[int]:
                found = []
                async for message in scanner:
                    found.extend(offsets_of([message]))
                    await asyncio.sleep(0)
                return found

            parts = await asyncio.gather(*[take() for _ in range(5)])
        assert all(part == sorted(part) for part in parts)
        assert sorted(chain(*parts)) == list(range(200))

    run(work())


# --- consuming ------------------------------------------------------------------------------------------------------


def consumer(journal: Path, handler: Any, **options: Any) -> AsyncConsumer:
    """A consumer named `reader` that never waits."""
    return AsyncConsumer(journal, "reader", handler, **{"timeout": 0, "backoff_ms": 0, **options})


def test_consumer_handles_every_message_and_commits(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    handled: list[Message] = []
    committed: list[int] = []

    async def handle(message: Message) -> None:
        committed.append(read_offset(journal, "reader"))
        await asyncio.sleep(0)
        handled.append(message)

    async def work() -> None:
        async with consumer(journal, handle, commit_messages=10, commit_ms=1e9) as reader:
            assert await reader.run() == 25
            make_journal(journal, 2)
            assert await reader.run() == 2
        assert offsets_of(handled) == list(range(27))
        assert committed[:25] == [0] * 10 + [10] * 10 + [20] * 5
        assert read_offset(journal, "reader") == 27
        async with consumer(journal, handle) as reader:
            assert await reader.run() == 0

    run(work())


def test_handler_that_fails_is_called_again_and_then_its_message_is_set_aside(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    calls: list[int] = []
    aside: list[int] = []

    async def handle(message: Message) -> bool:
        calls.append(message.offset)
        if message.offset == 3:
            raise RuntimeError("bad")
        return message.offset != 5 or calls.count(5) > 1

    async def keep(message: Message, error: Exception) -> None:
        aside.append(message.offset)

    async def work() -> None:
        async with consumer(journal, handle, attempts=2) as reader:
            with pytest.raises(HandlerFailed, match="message 3 failed after 2 attempts: bad"):
                await reader.run()
            assert read_offset(journal, "reader") == 3
        async with consumer(journal, handle, attempts=2, on_failure=keep) as reader:
            assert await reader.run() == 22
        assert calls == [0, 1, 2, 3, 3, 3, 3, 4, 5, 5, *range(6, 25)]
        assert aside == [3]

    run(work())


def test_batches_are_handled(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    batches: list[list[int]] = []

    async def handle(messages: list[Message]) -> int:
        batches.append(offsets_of(messages))
        return 7

    async def work() -> None:
        async with consumer(journal, handle, batch_messages=10) as reader:
            reader._handler = handle
            with pytest.raises(WrongUse, match="not 7"):
                await reader.run()
        assert batches == [list(range(10)), list(range(7, 17)), list(range(14, 24)), list(range(21, 25))]
        assert read_offset(journal, "reader") == 21

    run(work())


def test_cancelled_consumer_has_committed_its_work(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)

    async def work() -> None:
        reached = asyncio.Event()

        async def handle(message: Message) -> None:
            if message.offset == 7:
                reached.set()
                await asyncio.Event().wait()

        async with consumer(journal, handle) as reader:
            running = asyncio.create_task(reader.run())
            await reached.wait()
            with pytest.raises(WrongUse, match="running already"):
                await reader.run()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert read_offset(journal, "reader") == 7
            with pytest.raises(Locked):
                async with consumer(journal, handle):
                    pass

    run(work())


def test_consumer_is_stopped_by_a_handler_or_by_close(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)

    async def work() -> None:
        handled: list[int] = []
        last = asyncio.Event()

        async def handle(message: Message) -> None:
            handled.append(message.offset)
            if message.offset == 4:
                reader.stop()
                with pytest.raises(WrongUse, match="call stop"):
                    await reader.close()
            if message.offset == 24:
                last.set()

        async with consumer(journal, handle, timeout=None) as reader:
            assert await reader.run() == 5
        reader = consumer(journal, handle, timeout=None)
        async with reader:
            running: Awaitable[int] = asyncio.create_task(reader.run())
            await last.wait()
        assert await running == 20
        assert handled == list(range(25))
        with pytest.raises(Closed):
            await reader.run()

    run(work())
