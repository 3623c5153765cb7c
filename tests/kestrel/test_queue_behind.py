"""Queues that do not fit into memory: reading behind, and the compaction of the journal meanwhile."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, RealDisk, RealFile
from logwright.errors import DamagedJournal, Poisoned, StorageFailed
from logwright.kestrel.bytes.layout import DOCUMENTED
from logwright.kestrel.files import cursor
from logwright.kestrel.model import compaction, memory
from logwright.kestrel.model.queue import Queue
from logwright.kestrel.model.shelf import Shelf
from tests.kestrel.queues import Clock, drained, files_of, journal_of
from tests.kestrel.samples import addx, state_dump, write
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

MakeQueue = Callable[..., Queue]


@pytest.fixture
def make(tmp_path: Path) -> MakeQueue:
    """Opens the queue `cars` of this test, by default with little memory and without a thread."""
    return lambda **options: Queue(tmp_path, "cars", **{"max_memory_bytes": 300, "background": False, **options})


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "READ_BYTES", 1000)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%030d" % number for number in range(first, last)]


# --- reading behind ---------------------------------------------------------------------------------------------------


def test_memory_use_is_limited(make: MakeQueue) -> None:
    with make() as queue:
        for data in numbers(0, 500):
            queue.put(data)
            assert queue.stats().memory_bytes <= 300
        assert queue.stats().reads_behind
        for data in numbers(0, 500):
            assert queue.get() == data
            assert queue.stats().memory_bytes <= 300
        assert not queue.stats().reads_behind


def test_overhead_of_small_items_counts_as_memory(make: MakeQueue) -> None:
    with make(max_memory_bytes=1 << 20) as queue:
        queue.put_many([b""] * 20_000)
        stats = queue.stats()
        assert (stats.items, stats.memory_items, stats.reads_behind) == (20_000, (1 << 20) // 128, True)
        assert queue.get_many(30_000) == [b""] * 20_000


def test_item_larger_than_the_memory_is_read_alone(make: MakeQueue) -> None:
    large = random.Random(2).randbytes(5000)
    with make() as queue:
        for data in (b"small", large, b"another", large, b"last"):
            queue.put(data)
        assert list(drained(queue)) == [b"small", large, b"another", large, b"last"]


def test_age_of_a_head_that_is_not_in_memory_is_known(make: MakeQueue) -> None:
    clock = Clock()
    with make(max_memory_bytes=1, clock=clock) as queue:
        for _ in range(2):
            queue.put(bytes(100))
            clock.now += 2
        assert [(queue.stats().age_ms, queue.get() is not None) for _ in range(2)] == [(4000, True), (2000, True)]
        assert queue.stats().age_ms is None


def test_put_and_get_alternate_while_reading_behind(make: MakeQueue) -> None:
    chance = random.Random(9)
    with make(max_journal_bytes=5000) as queue:
        put = got = 0
        for _ in range(3000):
            if chance.random() < 0.5 + 0.3 * (got < 600):
                queue.put(b"%030d" % put)
                put += 1
            elif queue.get() is not None:
                got += 1
        assert [int(data) for data in queue] == list(range(got, put))
        assert [int(data) for data in drained(queue)] == list(range(got, put))


def test_buffered_operations_are_written_before_they_are_read(make: MakeQueue) -> None:
    with make(buffer_bytes=100_000) as queue:
        queue.put_many(numbers(0, 100))
        assert queue.path.stat().st_size == 0
        assert list(queue) == numbers(0, 100)
        assert list(drained(queue)) == numbers(0, 100)


def test_aborted_items_precede_items_read_behind(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many(numbers(0, 60))
        items = queue.reserve_many(20)
        queue.confirm(*(item.xid for item in items[1::2]))
        queue.abort(*(item.xid for item in items[::2]))
        wanted = numbers(0, 20)[::2] + numbers(20, 60)
        assert list(queue) == wanted
    with make() as queue:
        assert list(drained(queue)) == wanted


def test_reading_behind_continues_after_a_state_dump(make: MakeQueue, tmp_path: Path) -> None:
    write(tmp_path / "cars.5", *(addx(data) for data in numbers(0, 30)), state_dump(0, 1), addx(b"not this"))
    write(tmp_path / "cars", *(addx(data) for data in numbers(30, 60)))
    with make(dialect="documented") as queue:
        assert queue.stats().reads_behind
        assert list(queue) == numbers(0, 60)
        assert list(drained(queue)) == numbers(0, 60)


def test_queue_that_fits_again_is_all_in_memory(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many(numbers(0, 100))
        assert queue.get_many(95) == numbers(0, 95)
    with make() as queue:
        assert not queue.stats().reads_behind
        assert queue.stats().memory_items == 5


def test_damage_that_appears_while_the_queue_is_open_is_raised(make: MakeQueue, tmp_path: Path) -> None:
    with make() as queue:
        for data in numbers(0, 100):
            queue.put(data)
        rotated = tmp_path / files_of(queue.path)[6]
        content = bytearray(rotated.read_bytes())
        content[3 * 51] = 0x7F
        rotated.write_bytes(content)
        with pytest.raises(DamagedJournal, match=r"there is no operation 127.*logwright repair"):
            list(drained(queue))
        queue.put(b"it goes on taking items")


@pytest.mark.parametrize("take", [Queue.get_many, Queue.reserve_many])
def test_items_before_damage_are_returned_and_the_next_call_raises(
    make: MakeQueue, tmp_path: Path, take: Callable[[Queue, int], list[Any]]
) -> None:
    with make() as queue:
        queue.put_many(numbers(0, 10))
        for data in numbers(10, 60):
            queue.put(data)
        damaged = sorted(tmp_path.glob("cars.*"))[2]
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[: len(whole) // 2 + 7])
        taken = [getattr(item, "data", item) for item in take(queue, 100)]
        assert 0 < len(taken) < 60
        assert taken == numbers(0, len(taken))
        with pytest.raises(DamagedJournal):
            take(queue, 100)
        damaged.write_bytes(whole)
    with make() as queue:
        rest = numbers(len(taken), 60)
        assert list(drained(queue)) == (rest if take is Queue.get_many else taken + rest)


def test_file_changed_by_others_is_detected(make: MakeQueue) -> None:
    with make(max_memory_bytes=3000) as queue:
        for data in numbers(0, 101):
            queue.put(data)
        with queue.path.open("r+b") as file:
            file.truncate(20 * 51)
        with pytest.raises(DamagedJournal, match="more items should be here"):
            list(drained(queue))


def test_iteration_continues_while_files_are_packed(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many(numbers(0, 200))
        shown = iter(queue)
        assert [next(shown) for _ in range(20)] == numbers(0, 20)
        assert queue.get_many(150) == numbers(0, 150)
        queue._engine.compaction.rewrite()
        queue.clear()
        assert list(shown) == numbers(20, 200)
        assert list(queue) == []


# --- the care for the journal -----------------------------------------------------------------------------------------


def test_files_are_rotated_when_they_are_large(make: MakeQueue) -> None:
    with make() as queue:
        for data in numbers(0, 50):
            queue.put(data)
        sizes = [(queue.path.parent / name).stat().st_size for name in files_of(queue.path)]
        assert all(size <= 300 + 51 for size in sizes)
        assert sum(sizes) == queue.stats().journal_bytes == 50 * 51
        assert len(sizes) == queue.stats().journal_files


def test_disk_space_is_freed_as_a_backlog_is_consumed(make: MakeQueue) -> None:
    with make(max_journal_bytes=1000) as queue:
        queue.put_many(numbers(0, 400))
        sizes = []
        for _ in range(400):
            queue.get()
            sizes.append(queue.stats().journal_bytes)
        live = [51 * (399 - taken) for taken in range(400)]
        assert all(size <= max(1000, 2 * left + 2000) for size, left in zip(sizes, live, strict=True))
        assert queue.stats().journal_files <= 3


def test_journal_is_not_rewritten_if_that_frees_nothing(make: MakeQueue) -> None:
    with make(max_journal_bytes=100, max_memory_bytes=1 << 20) as queue:
        for number, data in enumerate(numbers(0, 100)):
            queue.put(data)
            assert queue.stats().journal_bytes == 51 * (number + 1)
        assert files_of(queue.path) == ["cars"]


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
def test_rewritten_journal_has_the_same_items(make: MakeQueue, dialect: Any) -> None:
    clock = Clock()
    with make(dialect=dialect, clock=clock, max_memory_bytes=1 << 20) as queue:
        queue.put_many(numbers(0, 10), expires=100)
        queue.reserve_many(4)
        queue.abort(2, 3)
        queue.abort(queue.reserve().xid)
        before = list(queue.items())
        reserved = dict(queue._engine.open_items)
        for rewrite in (queue._engine.compaction.restate, queue._engine.compaction.rewrite):
            rewrite()
            assert list(queue.items()) == before
        queue.confirm(1)
        queue.put(b"new")
    with make(dialect=dialect, clock=clock) as queue:
        back = [(data, attempts + 1) for xid, (data, _, _, attempts, _) in sorted(reserved.items()) if xid != 1]
        wanted = back + [(item.data, item.attempts) for item in before] + [(b"new", 0)]
        assert [(item.data, item.attempts) for item in queue.items()] == wanted


def test_background_thread_packs_while_items_are_put_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)
    packs = threading.Semaphore(0)
    finish = memory.Memory._finish_pack

    def finished(self: Any) -> None:
        finish(self)
        packs.release()

    monkeypatch.setattr(memory.Memory, "_finish_pack", finished)
    chance = random.Random(7)
    with Queue(tmp_path, "cars", max_memory_bytes=2000, max_journal_bytes=8000) as queue:
        put = got = 0
        while put < 20_000:
            for _ in range(chance.randrange(300)):
                queue.put(b"%030d" % put)
                put += 1
            for data in queue.get_many(chance.randrange(310)):
                assert int(data) == got
                got += 1
        assert packs.acquire(timeout=DEADLINE_SECONDS)
        assert [int(data) for data in drained(queue)] == list(range(got, put))
    assert journal_of(tmp_path / "cars") == []


def test_background_thread_rotates_and_erases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 100)
    with Queue(tmp_path, "cars", max_memory_bytes=2000, max_journal_bytes=1 << 30, default_journal_bytes=500) as queue:
        queue.put_many(numbers(0, 1000))
        queue.get_many(1000)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while queue.stats().journal_bytes >= 500:  # the thread may be waiting for each of these
            assert time.monotonic() < deadline, "the journal of an empty queue is never erased"
            queue.put(b"x")
            queue.get()


def test_background_thread_syncs_before_callers_wait_for_its_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 300)
    disk, contents = SimulatedDisk(), "contents of /queues/cars"
    unsynced: list[bool] = []
    rotate = compaction.Compaction._rotate

    def noted(part: compaction.Compaction) -> None:
        unsynced.append(contents in disk.unsynced())
        rotate(part)

    monkeypatch.setattr(compaction.Compaction, "_rotate", noted)
    with Queue(Path("/queues"), "cars", background=False, sync="none", disk=disk) as queue:
        queue.put_many(numbers(0, 50))
        queue.flush()
        assert contents in disk.unsynced()
        part = queue._engine.compaction
        part.limits = replace(part.limits, max_memory_bytes=300)
        assert part._run_once()
        assert (unsynced, queue._engine.shelf.position) == ([False], 0)


def test_closing_does_not_wait_for_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)
    begun, may_continue = threading.Event(), threading.Event()
    original = compaction.Compaction._check_stopped

    def slow(self: Any) -> None:
        begun.set()
        assert may_continue.wait(DEADLINE_SECONDS)
        original(self)

    monkeypatch.setattr(compaction.Compaction, "_check_stopped", slow)
    queue = Queue(tmp_path, "cars", max_memory_bytes=500, max_journal_bytes=1000)
    queue.put_many(numbers(0, 100))
    queue.get_many(90)
    assert begun.wait(DEADLINE_SECONDS)
    queue.put(b"others need not wait for the pack")
    closing = in_a_thread(queue.close)
    may_continue.set()
    closing.result(DEADLINE_SECONDS)
    assert not [name for name in files_of(tmp_path / "cars") if "~~" in name or "pack" in name]
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [*numbers(90, 100), b"others need not wait for the pack"]


class FullDisk(RealDisk):
    """Has no space for new files while `is_full`."""

    is_full = False

    def open(self, path: Path, mode: Any) -> Any:
        if mode == "create" and "~~" in path.name and self.is_full:
            raise StorageFailed("open", path, OSError(28, "No space left on device"))
        return super().open(path, mode)


def test_failed_compaction_is_postponed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FullDisk()
    disk.is_full = True
    options: Any = {"default_journal_bytes": 200, "background": False, "disk": disk}
    with Queue(tmp_path, "cars", **options) as queue:
        for data in numbers(0, 20):
            queue.put(data)
            assert queue.get() == data
        assert queue.stats().journal_bytes == 20 * 52
        assert [record.levelname for record in caplog.records] == ["WARNING"], "and it is not tried all the time"
        assert "No space left" in caplog.text
        disk.is_full = False
        for _ in range(2000):
            queue.put(b"x" * 20)
            queue.get()
        assert queue.stats().journal_bytes < 200 + 42


def test_journal_is_not_rotated_without_a_greater_number(
    make: MakeQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"cars.{10**20 - 1}").touch()
    with make() as queue:
        for data in numbers(0, 60):
            queue.put(data)
        assert files_of(queue.path) == ["cars", f"cars.{10**20 - 1}"]
    assert "there is no greater number for a file after this one" in caplog.text
    with make() as queue:
        assert list(drained(queue)) == numbers(0, 60)


def test_write_that_fails_ends_the_queue_and_loses_nothing(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars") as queue:
        queue.put(b"one")
        file = queue._engine._file

        def broken(position: int, data: bytes) -> int:
            raise StorageFailed("write", tmp_path, OSError(5, "Input/output error"))

        queue._engine.shelf.write = broken
        with pytest.raises(StorageFailed):
            queue.put(b"two")
        queue._engine.shelf.write = file.write_at
        for call in (lambda: queue.put(b"three"), queue.get, queue.reserve, queue.sync):
            with pytest.raises(Poisoned, match="Input/output error"):
                call()
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"one"]


@pytest.mark.parametrize("kind", [Shelf, memory.Shelf])
def test_failed_write_is_reported_with_the_path(kind: Any, tmp_path: Path) -> None:
    """The file's descriptor is read at every write: after the file is closed, that number may be another file's."""
    failures: list[BaseException] = []
    shelf = kind(0, 1, DOCUMENTED, SimpleNamespace(write_failed=failures.append))
    file = REAL_DISK.open(tmp_path / "cars", "create")
    shelf.write = file.write_at
    shelf.emit(b"\x01\x01")
    file.close()
    other = REAL_DISK.open(tmp_path / "other", "create")
    with pytest.raises(StorageFailed, match=r"cars.*Bad file descriptor") as raised:
        shelf.emit(b"\x01")
    other.close()
    assert failures == [raised.value]
    assert ((tmp_path / "cars").read_bytes(), (tmp_path / "other").read_bytes()) == (b"\x01\x01", b"")


def test_write_of_a_file_is_not_bypassed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write_at = RealFile.write_at

    def noted(self: RealFile, position: int, data: bytes) -> int:
        written.append(data)
        return write_at(self, position, data)

    monkeypatch.setattr(RealFile, "write_at", noted)
    with Queue(tmp_path, "cars") as queue:
        queue.put(b"one")
        queue.get()
        assert [data[-3:] for data in written] == [b"one", b"\x01"]


def test_short_write_is_finished(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars") as queue:
        file = queue._engine._file
        queue._engine.shelf.write = lambda position, data: file.write_at(position, data[:7])
        queue.put(b"one")
        queue.put(b"two")
        queue.get()
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"two"]


# --- memory -----------------------------------------------------------------------------------------------------------

LONG = """
import sys
from logwright.kestrel.model.queue import Queue

def peak_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

options = {"max_memory_bytes": 4 << 20, "max_journal_bytes": 16 << 20}
before = peak_bytes()
if sys.argv[2] == "put":
    with Queue(sys.argv[1], "cars", **options) as queue:
        for number in range(400_000):
            queue.put(b"%0100d" % number)
else:
    with Queue(sys.argv[1], "cars", **options) as queue:
        assert len(queue) == 400_000
        assert sum(1 for _ in queue) == 400_000
        for number in range(400_000):
            assert queue.get() == b"%0100d" % number
print(peak_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
def test_backlog_of_50_megabytes_takes_little_memory(tmp_path: Path) -> None:
    for step in ("put", "get"):
        done = subprocess.run(
            [sys.executable, "-c", LONG, str(tmp_path), step], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 24 << 20, step


def test_caretaker_runs_its_tasks_and_ends() -> None:
    done = threading.Semaphore(0)
    caretaker = compaction.MaintenanceThread("cars", done.release)
    for _ in range(3):
        caretaker.request()
        assert done.acquire(timeout=DEADLINE_SECONDS)
    chore = threading.Semaphore(0)
    caretaker.repeat(0.001, chore.release)
    for _ in range(3):
        assert chore.acquire(timeout=DEADLINE_SECONDS)
    thread = caretaker._thread
    caretaker.stop()
    caretaker.stop()
    caretaker.request()
    assert thread is caretaker._thread
    assert thread is not None
    assert not thread.is_alive()


def test_caretaker_continues_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    tried = threading.Semaphore(0)

    def fail() -> None:
        tried.release()
        raise StorageFailed("sync", "cars", OSError(5, "Input/output error"))

    caretaker = compaction.MaintenanceThread("cars", fail)
    with caplog.at_level(logging.WARNING, logger="logwright"):
        for _ in range(2):
            caretaker.request()
            assert tried.acquire(timeout=DEADLINE_SECONDS)
        caretaker.stop()
    assert "cars: compaction or a sweep failed" in caplog.text
