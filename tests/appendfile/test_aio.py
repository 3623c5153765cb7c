"""The journal in asyncio: batches, waiting and not waiting, recovery, failures and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile import AppendJournal, Reader, Segment, Writer
from logwright.appendfile.bytes.layout import MAX_DATA_BYTES
from logwright.core.io.disk import REAL_DISK
from logwright.errors import Closed, DamagedJournal, Locked, Poisoned, StorageFailed, TooLarge, WrongUse
from tests.appendfile.model import Model, View, read_view, view_of
from tests.appendfile.samples import HINT, data, write
from tests.support.faulty_disk import FAULTS, FaultyDisk, every_fault
from tests.support.simulated_disk import SimulatedDisk, Sync
from tests.support.threads import DEADLINE_SECONDS

HOME = Path("/journal")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a test's coroutine to its end, or fail at the deadline."""

    async def within_deadline() -> Any:
        return await asyncio.wait_for(work, DEADLINE_SECONDS)

    return asyncio.run(within_deadline())


class Gate:
    """A disk whose writes to the journal wait at a gate; `arrived` is set when one does."""

    def __init__(self, inner: Any = REAL_DISK) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self.writes = 0
        self._inner = inner

    def open(self, path: Path, mode: Any) -> Any:
        file = self._inner.open(path, mode)
        return GatedFile(self, file) if path.suffix == ".journal" and mode != "read" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.arrived.wait, DEADLINE_SECONDS)


class GatedFile:
    def __init__(self, gate: Gate, inner: Any) -> None:
        self._gate = gate
        self._inner = inner

    def write_at(self, position: int, data: Any) -> int:
        self._gate.writes += 1
        self._gate.arrived.set()
        assert self._gate.opened.wait(DEADLINE_SECONDS)
        written: int = self._inner.write_at(position, data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def opened(directory: Path, **options: Any) -> tuple[AppendJournal, list[Segment]]:
    """A journal, and all records that it recovers."""
    journal, recovery = await AppendJournal.open(directory, **options)
    return journal, [segment async for segment in recovery]


# --- appending --------------------------------------------------------------------------------------------------------


def test_appended_records_are_recovered_until_they_are_checked(tmp_path: Path) -> None:
    async def work() -> None:
        journal, found = await opened(tmp_path)
        assert found == []
        await journal.append(b"a")
        assert await journal.register_checkpoint() == 1
        assert await journal.register_checkpoint() == 1
        await journal.append(memoryview(b"b"))
        await journal.append(bytearray(b"c"))
        assert await journal.register_checkpoint() == 2
        await journal.append(b"d")
        await journal.check_checkpoint()
        assert (journal.checked, journal.current) == (1, 2)
        await journal.close()
        journal, found = await opened(tmp_path)
        assert found == [Segment(1, [b"b", b"c"], True), Segment(2, [b"d"], False)]
        await journal.close()

    run(work())


def test_ids_continue_after_reopening(tmp_path: Path) -> None:
    async def work() -> None:
        for opening in range(3):
            journal, _ = await opened(tmp_path)
            assert await journal.register_checkpoint() == opening
            await journal.append(b"a")
            assert await journal.register_checkpoint() == opening + 1
            await journal.check_checkpoint()
            await journal.close()
            assert sorted(path.name for path in tmp_path.glob("*.journal")) == [f"{opening}.journal"]

    run(work())


def test_append_is_written_when_it_resolves(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await opened(tmp_path)
        for number in range(3):
            await journal.append(b"%d" % number)
            assert Reader(tmp_path).count() == 2 + number
        await journal.close()

    run(work())


def test_appends_may_be_awaited_late_repeatedly_and_in_any_way(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await opened(tmp_path)
        waiting = [journal.append(b"%d" % number) for number in range(10)]
        await asyncio.gather(*waiting)
        for one in waiting:
            await one
            await one
            assert one.done()
        tasks = [asyncio.create_task(journal.append(b"task %d" % number)) for number in range(5)]
        await asyncio.wait(tasks)
        assert [task.result() for task in tasks] == [None] * 5
        await asyncio.wait_for(journal.append(b"in time"), DEADLINE_SECONDS)
        await journal.append_many([b"x", b"y"])
        await journal.append_many([])
        await journal.close()
        assert Reader(tmp_path).count() == 1 + 10 + 5 + 1 + 2

    run(work())


def test_appends_during_a_write_become_one_batch(tmp_path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        journal, _ = await AppendJournal.open(tmp_path, disk=gate)
        first = journal.append(b"first")
        await gate.wait()
        later = [journal.append(b"later") for _ in range(50)]
        await asyncio.sleep(0)
        assert gate.writes == 1
        assert not first.done()
        assert len({id(one) for one in later}) == 1
        gate.opened.set()
        await asyncio.gather(*later)
        assert gate.writes == 3, "the first checkpoint of the file, the first record, and all later ones"
        await journal.close()

    run(work())


def test_one_sync_serves_all_waiting_tasks() -> None:
    async def work() -> None:
        disk = SimulatedDisk()
        journal, _ = await AppendJournal.open(HOME, sync="always", disk=disk)
        await journal.append(b"first")  # a new file is synced once more, after its first checkpoint
        before = len(disk.operations)
        await asyncio.gather(*(journal.append(b"x") for _ in range(100)))
        assert [str(each) for each in disk.operations[before:] if isinstance(each, Sync)] == ["sync /journal/0.journal"]
        await journal.close()

    run(work())


def test_appended_records_are_durable_after_a_sync() -> None:
    async def work() -> None:
        disk = SimulatedDisk()
        journal, _ = await AppendJournal.open(HOME, sync="none", disk=disk)
        await journal.append(b"x")
        assert "contents of /journal/0.journal" in disk.unsynced()
        await journal.sync()
        assert "contents of /journal/0.journal" not in disk.unsynced()
        await journal.close()

    run(work())


def test_file_has_at_most_4_mebibytes(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await opened(tmp_path)
        for _ in range(4):
            await journal.append(bytes(MAX_DATA_BYTES - 1) + b"x")
        assert {path.name: path.stat().st_size for path in tmp_path.glob("*.journal")} == {
            "0.journal": 3_145_748,
            "1.journal": 1_048_596,
        }
        await journal.close()

    run(work())


def test_invalid_append_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await opened(tmp_path)
        with pytest.raises(WrongUse, match="zeros"):
            await journal.append(b"")
        with pytest.raises(TooLarge):
            await journal.append(bytes(MAX_DATA_BYTES + 1))
        with pytest.raises(WrongUse, match="no checkpoint"):
            await journal.check_checkpoint()
        await journal.append(b"fine")
        await journal.close()
        assert list(Reader(tmp_path)) == [HINT, *data("fine")]

    run(work())


# --- waiting for space ------------------------------------------------------------------------------------------------


def test_appends_beyond_the_backlog_wait_and_keep_their_order(tmp_path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        journal, _ = await AppendJournal.open(tmp_path, max_pending_bytes=1000, disk=gate)
        waiting = [journal.append(b"%03d" % number + bytes(97)) for number in range(100)]
        await gate.wait()
        assert 1000 <= journal.pending_bytes < 1000 + 104
        closing = asyncio.create_task(journal.register_checkpoint())
        await asyncio.sleep(0)
        assert 1000 <= journal.pending_bytes < 1000 + 104
        gate.opened.set()
        await asyncio.gather(*waiting)
        assert await closing == 1
        await journal.close()
        (segment,) = Reader(tmp_path).segments()
        assert segment.records == [b"%03d" % number + bytes(97) for number in range(100)]
        assert segment.complete

    run(work())


def test_record_larger_than_the_backlog_is_appended(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await AppendJournal.open(tmp_path, max_pending_bytes=10)
        await asyncio.gather(*(journal.append(b"x" * 5000) for _ in range(5)))
        await journal.close()
        assert Reader(tmp_path).count() == 6

    run(work())


def test_data_is_copied_when_it_is_appended(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await AppendJournal.open(tmp_path, max_pending_bytes=10)
        reused = bytearray(4)
        waiting = []
        for number in range(20):
            reused[:] = b"%04d" % number
            waiting.append(journal.append(reused))
        await asyncio.gather(*waiting)
        await journal.close()
        assert Reader(tmp_path).segments()[0].records == [b"%04d" % number for number in range(20)]

    run(work())


# --- failing ----------------------------------------------------------------------------------------------------------


def test_failed_batch_fails_for_every_waiting_task_and_is_final() -> None:
    async def work() -> None:
        disk = FaultyDisk(SimulatedDisk(), 1, only=["write"])
        journal, _ = await AppendJournal.open(HOME, disk=disk)
        waiting = [journal.append(b"x") for _ in range(5)]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in found] == [StorageFailed] * 5
        with pytest.raises(Poisoned):
            await journal.append(b"y")
        with pytest.raises(Poisoned):
            await journal.register_checkpoint()
        await journal.close()

    run(work())


@pytest.mark.parametrize("max_pending_bytes", [10, 1 << 20])
def test_unawaited_failure_is_raised_once_by_the_next_call(max_pending_bytes: int) -> None:
    reported: list[Any] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        disk = FaultyDisk(SimulatedDisk(), 1, only=["write"])
        journal, _ = await AppendJournal.open(HOME, max_pending_bytes=max_pending_bytes, disk=disk)
        for _ in range(5):
            journal.append(b"forgotten")
        with pytest.raises((StorageFailed, Poisoned)):
            await journal.append(b"x")
        await journal.close()

    run(work())
    gc.collect()
    assert reported == []


def test_error_does_not_grow_with_the_number_of_waiting_tasks() -> None:
    async def work() -> None:
        disk = FaultyDisk(SimulatedDisk(), 1, only=["write"])
        journal, _ = await AppendJournal.open(HOME, disk=disk)
        batch = journal.append(b"x")
        depths = set()
        for _ in range(5):
            with pytest.raises(StorageFailed) as caught:
                await batch
            depths.add(len(caught.traceback))
        assert len(depths) == 1
        await journal.close()

    run(work())


def test_failure_of_any_call_keeps_acknowledged_records() -> None:
    acknowledged: list[Model] = []

    async def work(disk: Any) -> None:
        model = Model()
        acknowledged.append(model)
        journal, recovery = await AppendJournal.open(HOME, sync="always", file_bytes=100, disk=disk)
        try:
            for number in range(4):
                await journal.append(b"record %d" % number)
                model.append(b"record %d" % number)
                if number % 2:
                    await journal.register_checkpoint()
                    model.register()
            async for _ in recovery:
                pass
        finally:
            await journal.close()

    for disk in every_fault(SimulatedDisk, FAULTS, format="appendfile"):
        with contextlib.suppress(StorageFailed, Poisoned):
            run(work(disk))
        assert disk.inner.open_files == 0, "files were left open"
        promised = [record for _, records, _ in acknowledged[-1].view() for record in records]
        found = [record for _, records, _ in read_view(disk.inner, HOME) for record in records]
        assert found[: len(promised)] == promised
        assert len(found) <= len(promised) + 1


def test_closed_journal_accepts_nothing_and_releases_its_lock(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await AppendJournal.open(tmp_path)
        with pytest.raises(Locked):
            await AppendJournal.open(tmp_path)
        unawaited = [journal.append(b"x") for _ in range(100)]
        await journal.close()
        await journal.close()
        await unawaited[-1]
        with pytest.raises(Closed):
            await journal.append(b"y")
        with pytest.raises(Closed):
            await journal.register_checkpoint()
        again, found = await opened(tmp_path)
        assert [len(segment.records) for segment in found] == [100]
        await again.close()

    run(work())


# --- being cancelled --------------------------------------------------------------------------------------------------


def test_cancelled_task_has_appended_and_does_not_affect_others(tmp_path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        journal, _ = await AppendJournal.open(tmp_path, disk=gate)
        batch = [asyncio.create_task(journal.append(b"%d" % number)) for number in range(3)]
        await gate.wait()
        batch[1].cancel()
        await asyncio.wait([batch[1]])
        assert batch[1].cancelled()
        gate.opened.set()
        await asyncio.gather(batch[0], batch[2])
        await journal.close()
        assert Reader(tmp_path).segments()[0].records == [b"0", b"1", b"2"]

    run(work())


def test_cancellation_at_any_await_leaves_a_usable_journal(tmp_path: Path) -> None:
    """The same calls are cancelled after one more turn of the loop each time, until they finish."""

    async def calls(directory: Path) -> None:
        journal, recovery = await AppendJournal.open(directory, sync="always", max_pending_bytes=40)
        try:
            async for _ in recovery:
                pass
            for number in range(3):
                await journal.append(b"record %d" % number)
                await journal.register_checkpoint()
            await journal.check_checkpoint()
            await journal.sync()
        finally:
            await journal.close()

    async def cancelled_after(turns: int, directory: Path) -> bool:
        task = asyncio.create_task(calls(directory))
        for _ in range(turns):
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            task.cancel()
        await asyncio.wait([task])
        return not task.cancelled()

    def possible() -> list[View]:
        model = Model()
        model.append(b"old")
        found = [model.view()]
        model.reopen()
        model.consume()
        for number in range(3):
            model.append(b"record %d" % number)
            found.append(model.view())
            model.register()
            found.append(model.view())
        model.check()
        return [*found, [], model.view()]

    async def work() -> None:
        for turns in [*range(12), 20, 50, 100, 200, 400, 800, 10_000_000]:
            directory = write(tmp_path / str(turns), {0: [HINT, *data("old")]})
            ended = await cancelled_after(turns, directory)
            journal, found = await opened(directory)
            assert view_of(found) in possible()
            await journal.append(b"goes on")
            await journal.close()
            assert Reader(directory).segments()[-1].records == [b"goes on"]
        assert ended

    run(work())


# --- the walk ---------------------------------------------------------------------------------------------------------


def test_abandoned_walk_is_repeated_before_later_records(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a")], 1: [HINT, *data("b")]})

    async def work() -> None:
        model = Model()
        for record in (b"a", b"b"):
            model.append(record)
        for opening in range(3):
            journal, recovery = await AppendJournal.open(tmp_path)
            model.reopen()
            assert view_of([await anext(recovery)]) == model.old[:1]
            await recovery.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(recovery)
            await journal.append(b"since %d" % opening)
            model.append(b"since %d" % opening)
            assert await journal.register_checkpoint() == model.register()
            assert read_view(REAL_DISK, tmp_path) == model.view()
            await journal.close()
        journal, found = await opened(tmp_path)
        model.reopen()
        assert view_of(found) == model.old
        await journal.close()
        assert read_view(REAL_DISK, tmp_path) == []

    run(work())


def test_old_records_can_be_replayed_onto_the_new_journal(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a", "b")], 1: [HINT, *data("c")]})

    async def work() -> None:
        journal, recovery = await AppendJournal.open(tmp_path, max_pending_bytes=10)
        async for segment in recovery:
            for record in segment.records:
                journal.append(record)  # no task waits, but the old ones are not removed before these are written
        assert read_view(REAL_DISK, tmp_path) == [(0, (b"a", b"b", b"c"), False)]
        assert [path.name for path in tmp_path.glob("**/*.journal")] == ["2.journal"]
        await journal.close()

    run(work())


def test_damage_ends_a_walk_and_leaves_the_old_files(tmp_path: Path) -> None:
    damaged = [HINT, *data("a")]
    write(tmp_path, {0: damaged, 1: [HINT, *data("b")]})
    path = tmp_path / "0.journal"
    path.write_bytes(path.read_bytes() + b"\xff\xff\xff\xff")

    async def work() -> None:
        for _ in range(2):
            journal, recovery = await AppendJournal.open(tmp_path)
            for _ in range(2):
                with pytest.raises(DamagedJournal, match=r"0\.journal @ 25: there are no records of type 255"):
                    await anext(recovery)
            await journal.close()
        journal, recovery = await AppendJournal.open(tmp_path, mode="dropmalformed")
        assert [segment async for segment in recovery] == [Segment(0, [b"a", b"b"], False)]
        assert [damage.start for damage in recovery.damages] == [25]
        await journal.close()

    run(work())


def test_programs_with_and_without_asyncio_take_turns(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = await opened(tmp_path)
        await journal.append(b"asyncio")
        await journal.close()

    run(work())
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == [Segment(0, [b"asyncio"], False)]
        writer.append(b"threads")
    run(work())
    assert [segment.records for segment in Reader(tmp_path).segments()] == [[b"asyncio"]]


def test_task_waiting_while_the_walk_ends_gets_an_error(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a")]})

    async def work() -> None:
        journal, recovery = await AppendJournal.open(tmp_path)
        in_turn, has_ended = journal._in_turn, asyncio.Event()

        async def at_the_end(action: Any) -> Any:
            await has_ended.wait()
            return await in_turn(action)

        journal._in_turn = at_the_end  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(anext(recovery))
        await asyncio.sleep(0)
        journal._in_turn = in_turn  # type: ignore[method-assign]
        assert [segment.records async for segment in recovery] == [[b"a"]]
        has_ended.set()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await journal.close()

    run(work())
