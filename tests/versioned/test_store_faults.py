"""Failures within a rotation, an archive or a retention: the store continues or is poisoned, as `rotation.py` says.

Every call of the disk fails once, from the beginning of a rotation to the end of its archive. A failure before anything
was written changes nothing. A later one is final. A failure after the new journal is in its place only delays the
archive.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import CapacityExceeded, Closed, LogwrightError, Poisoned, StorageFailed
from logwright.versioned.files import archiving
from logwright.versioned.files.archiving import Archiver
from logwright.versioned.files.buffer import MARK_MAGIC
from logwright.versioned.files.reader import Reader
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.retention import Retention
from logwright.versioned.model.store import VersionedKVStore
from tests.support.counts import COUNTS
from tests.support.faulty_disk import FaultyDisk
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile
from tests.support.threads import DEADLINE_SECONDS
from tests.versioned.stores import HOME, Clock, HookedDisk, content_of, journals_of

UNCHANGED = ("list /stores", "remove /stores/cars.jrn.tmp", "create /stores/cars.jrn.tmp")
FINAL = ("read", "write", "sync", "sync directory", "rename", "close")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def opened(path: Path, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(path, "cars", **options)


def on_a_disk(disk: Any, **options: Any) -> VersionedKVStore:
    options = {"capacity": 1024, "sync": "always", "background": False, "clock": Clock(), **options}
    return VersionedKVStore(HOME, "cars", disk=disk, **options)


def fill(store: VersionedKVStore, size: int) -> None:
    """Insert 200 values, or until an error; the value counts the inserts."""
    for number in range(200):
        store.insert("key", str(number).zfill(size))


def filled(fail_at: int, error: int = errno.EIO) -> tuple[FaultyDisk[SimulatedDisk], VersionedKVStore]:
    """A store with two archives, on a disk whose next calls are counted."""
    inner = SimulatedDisk()
    inner.make_directory(HOME)
    disk = FaultyDisk(inner, error=error)
    store = on_a_disk(disk, retention=Retention(max_archives=2))
    for number in range(2):
        store.insert("a", number)
        store.insert("b", "x" * 50)
        store.rotate()
    store.insert("a", "last")
    disk.calls = 0
    disk._fail_at = fail_at
    return disk, store


def test_failed_rotation_changes_nothing_or_is_final_or_is_complete() -> None:
    fail_at = 1
    while rotated(fail_at):
        COUNTS.add("k-th call fails", 1, "versioned")
        fail_at += 1
    assert fail_at > 40


def rotated(fail_at: int) -> bool:
    """Check a rotation with one failing call; whether there is such a call."""
    disk, store = filled(fail_at)
    before, began = content_of(store), store.initialized
    try:
        store.rotate()
    except StorageFailed:
        assert disk.failed
        if disk.failed in UNCHANGED:
            store.insert("b", "goes on")
            before["b"] = ("goes on", store.last_timestamp)
            store.rotate()
        else:
            assert disk.failed.split(" /")[0] in FINAL
            for use in (lambda: store.insert("a", 1), store.rotate, store.sync):
                with pytest.raises(Poisoned):
                    use()
    else:
        if not disk.failures:
            disk._fail_at = 0
            store.close()
            return False
        assert store.initialized > began, "what failed came after the new journal was in its place"
        store.insert("b", "goes on")
        before["b"] = ("goes on", store.last_timestamp)
        store.rotate()  # and makes the missing archive
        assert not disk.inner.exists(HOME / "cars.jrn.old")
    assert content_of(store) == before
    if store.refusing:
        store.close()
        with on_a_disk(disk.inner) as store:
            assert content_of(store) == before
    store.close()
    assert disk.inner.open_files == 0
    left = {name.rpartition(".")[2] for name in disk.inner.list_directory(HOME)}
    assert left <= {"jrn", "zz", "logwright", "tmp"}, "an old journal was left"
    state = VersionedRecovery.load(HOME, disk=disk.inner).recover_current()
    assert state.with_timestamps() == before
    return True


@pytest.mark.parametrize("failing", ["list", "create"])
def test_store_that_cannot_rotate_grows_its_buffer_and_rotates_later(failing: str) -> None:
    """As when a process has no more descriptors, which does not concern the disk."""
    inner = SimulatedDisk()
    inner.make_directory(HOME)
    disk = FaultyDisk(inner, error=errno.EMFILE, forever=True, only=[failing])
    store = on_a_disk(disk, capacity=512, max_capacity=4096)
    disk._fail_at = disk.calls + 1
    with pytest.raises(StorageFailed, match="Too many open files"):
        fill(store, 50)
    number = int(store.get("key")) + 1
    assert (store.capacity, store.initialized) == (4096, journals_of(HOME, "cars", inner)[0][0])
    assert number > 30
    disk._fail_at = 0
    store.insert("key", "rotated")
    assert store.capacity == 512
    store.close()
    changes = [entry.o for _, entries in journals_of(HOME, "cars", inner) for entry in entries]
    assert list(dict.fromkeys(changes)) == [f"{past:050}" for past in range(number)] + ["rotated"]


def test_obstacle_to_rotation_is_logged_once_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="logwright")
    inner = SimulatedDisk()
    inner.make_directory(HOME)
    disk = FaultyDisk(inner, error=errno.ENOSPC, forever=True, only=["create"])
    store = on_a_disk(disk, capacity=512, max_capacity=1024)
    for _ in range(2):
        disk._fail_at = disk.calls + 1
        with pytest.raises(StorageFailed, match="No space left"):
            fill(store, 50)
        for _ in range(20):
            with pytest.raises(StorageFailed, match="No space left"):
                store.insert("key", "x" * 50)
        disk._fail_at = 0
        store.insert("key", "rotated")
    store.close()
    reported = [record.getMessage() for record in caplog.records]
    assert [text.partition(": No space")[0] for text in reported] == [reported[0].partition(": No space")[0]] * 2
    assert "cars.jrn: is not rotated yet: " in reported[0]


def test_failed_archive_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="logwright")
    inner = SimulatedDisk()
    inner.make_directory(HOME)
    disk = FaultyDisk(inner, error=errno.ENOSPC, forever=True)
    archiver = Archiver(disk, HOME, "cars", background=False, done=lambda timestamp: None)
    with on_a_disk(inner) as store:
        store.insert("key", 1)
    inner.rename(HOME / "cars.jrn", HOME / "cars.jrn.old")
    disk._only, disk._fail_at = frozenset({"create"}), 1
    archiver.begin(7)
    for _ in range(20):
        archiver.resume()
    assert len(caplog.records) == 1
    assert "cars: the last journal is not archived yet: " in caplog.records[0].getMessage()
    disk._fail_at = 0
    archiver.resume()
    assert not archiver.pending
    assert len(caplog.records) == 1


def test_full_disk_that_refuses_a_name_changes_nothing() -> None:
    disk, store = filled(0, errno.ENOSPC)
    before = content_of(store)
    disk._only = frozenset({"rename"})
    disk.calls, disk._fail_at = 0, 1
    with pytest.raises(StorageFailed, match="No space left"):
        store.rotate()
    assert disk.failed == "rename /stores/cars.jrn"
    assert not disk.inner.exists(HOME / "cars.jrn.tmp")
    assert content_of(store) == before
    store.rotate()
    store.close()
    assert len(journals_of(HOME, "cars", disk.inner)) == 3


# --- archives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_unexpected_archive_failure_never_overwrites_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    def fails(*arguments: Any) -> None:
        raise MemoryError("no memory for an archive")

    monkeypatch.setattr(archiving, "write_archive", fails)
    with opened(tmp_path, capacity=1024, max_capacity=4096, background=background) as store:
        store.insert("a", "in the first journal")
        store.rotate()
        with pytest.raises((MemoryError, CapacityExceeded)):
            fill(store, 100)
        number = int(store.get("key")) + 1
        assert number > 10
        with pytest.raises(MemoryError):
            store.rotate()
        assert journals_of(tmp_path, "cars")[0][1][0].o == "in the first journal"
        monkeypatch.undo()
        store.rotate()
        store.insert("key", "at last")
    changes = [entry.o for _, entries in journals_of(tmp_path, "cars") for entry in entries]
    made = ["in the first journal", *(f"{past:0100}" for past in range(number)), "at last"]
    assert list(dict.fromkeys(changes)) == made


def test_archives_are_made_by_the_writer_without_a_background_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with opened(tmp_path, capacity=1024) as store:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        for number in range(30):
            store.insert("a", f"{number:0100}")
        store.rotate()
        monkeypatch.undo()
    changes = [entry.o for _, entries in journals_of(tmp_path, "cars") for entry in entries]
    assert list(dict.fromkeys(changes)) == [f"{number:0100}" for number in range(30)]
    assert not (tmp_path / "cars.jrn.old").exists()


def test_closed_store_makes_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise StorageFailed("write", "archive", OSError(28, "No space left on device"))

    with monkeypatch.context() as context:
        context.setattr(archiving, "write_archive", fails)
        store = opened(tmp_path)
        store.insert("a", 1)
        store.rotate()
        store.close()
    with pytest.raises(Closed):
        store.rotate()
    assert (tmp_path / "cars.jrn.old").exists()
    assert not list(tmp_path.glob("*.zz*"))


def test_waiting_for_an_archive_includes_its_cleanup_and_the_next_archive(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        store.insert("a", 1)
    data = (tmp_path / "cars.jrn").read_bytes()
    reported: list[int] = []
    reached, may_continue = threading.Event(), threading.Event()

    def done(timestamp: int) -> None:
        reported.append(timestamp)
        reached.set()
        assert may_continue.wait(DEADLINE_SECONDS)

    archiver = Archiver(REAL_DISK, tmp_path, "cars", background=True, done=done)
    (tmp_path / "cars.jrn.old").write_bytes(data)
    archiver.begin(5)
    assert reached.wait(DEADLINE_SECONDS)
    assert not archiver.pending
    (tmp_path / "cars.jrn.old").write_bytes(data)
    archiver.begin(6)
    waiting = threading.Thread(target=archiver.wait)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    may_continue.set()
    waiting.join(DEADLINE_SECONDS)
    assert not waiting.is_alive()
    assert (reported, archiver.pending) == ([5, 6], False)
    assert sorted(path.name for path in tmp_path.glob("*.zz")) == ["cars.jrn.t5.zz", "cars.jrn.t6.zz"]


# --- retention --------------------------------------------------------------------------------------------------------


def test_earliest_is_right_while_the_first_archive_is_made(tmp_path: Path) -> None:
    disk = HookedDisk()
    with opened(tmp_path, disk=disk, clock=Clock(start=1000)) as store:
        began = store.initialized
        store.insert("a", 1)
        hold, held = threading.Event(), threading.Event()

        def before_archive(path: Path) -> None:
            if path.name.endswith(".zz.tmp"):
                held.set()
                assert hold.wait(DEADLINE_SECONDS)

        disk.before_open = before_archive
        rotating = threading.Thread(target=store.rotate)
        rotating.start()
        assert held.wait(DEADLINE_SECONDS)

        def before_old(path: Path) -> None:
            if path.name.endswith(".old") and threading.current_thread() is threading.main_thread():
                disk.before_open = None
                hold.set()
                rotating.join(DEADLINE_SECONDS)

        disk.before_open = before_old
        assert store.earliest() == began
        assert not (tmp_path / "cars.jrn.old").exists()


def test_failed_retention_leaves_no_hole_and_is_repeated() -> None:
    def attempt(fail_at: int) -> bool:
        inner = SimulatedDisk()
        inner.make_directory(HOME)
        with on_a_disk(inner) as store:
            for number in range(5):
                store.insert("a", number)
                store.rotate()
        disk = FaultyDisk(inner, only=["remove", "sync directory", "list", "stat"])
        with on_a_disk(disk, clock=Clock(2 * 10**18), retention=Retention(max_archives=2)) as store:
            disk.calls, disk._fail_at = 0, fail_at
            try:
                store.rotate()
            except LogwrightError:
                return bool(disk.failures)
            if not disk.failures:
                return False
            first = journals_of(HOME, "cars", inner)[0][0]
            assert store.earliest() == first
            initialized = [began for began, _ in journals_of(HOME, "cars", inner)]
            assert initialized == sorted(initialized)
            assert VersionedRecovery.load(HOME, disk=inner).earliest() == first
            store.insert("a", "more")
            store.rotate()
            assert len([name for name in inner.list_directory(HOME) if name.endswith(".zz")]) == 2
        return True

    calls = 0
    while attempt(calls + 1):
        calls += 1
    assert calls > 10


def test_power_cut_during_retention_leaves_no_hole_and_loses_nothing_acknowledged() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    with on_a_disk(disk, retention=Retention(max_archives=1)) as store:
        for number in range(4):
            store.insert("a", number)
            disk.mark(number)
            store.rotate()
    for reorder_names in (False, True):
        for state in disk.crash_states(most=8, reorder_names=reorder_names, format="versioned"):
            promised = max(state.marks, default=-1)
            with on_a_disk(state, clock=Clock(2 * 10**18)) as store:
                found = store.get("a", -1)
                assert found in (promised, promised + 1)
                earliest = store.earliest()
            assert Reader(HOME / "cars.jrn", disk=state).verify().problems == []
            recovery = VersionedRecovery.load(HOME, disk=state)
            assert recovery.earliest() == earliest == journals_of(HOME, "cars", state)[0][0]
            assert recovery.recover_at(3 * 10**18).get("a", -1) == found


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_that_write_rotate_query_and_close_concurrently_lose_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path, capacity=2048)
    counts = [0] * 4
    unexpected: list[BaseException] = []

    def work(number: int) -> None:
        try:
            while True:
                store.insert(f"key {number}", counts[number] + 1)
                counts[number] += 1
                if counts[number] % 20 == number:
                    store.rotate()
                    store.earliest()
                if counts[number] == 100:
                    closing.set()
        except Closed:
            pass
        except BaseException as error:
            unexpected.append(error)
            closing.set()

    closing = threading.Event()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert closing.wait(DEADLINE_SECONDS)
    store.close()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
    assert unexpected == []
    recovery = VersionedRecovery.load(tmp_path)
    for number, count in enumerate(counts):
        made = [entry.o for entry in recovery.history(f"key {number}")]
        assert made == list(range(1, len(made) + 1))
        assert len(made) in (count, count + 1), "what was stored while the store was closed may not have been reported"
    with opened(tmp_path) as store:
        assert dict(store.items()) == recovery.recover_current()


def test_threads_write_while_a_rotation_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with on_a_disk(disk, sync="none") as store:
        store.insert("a", 1)
        sync = SimulatedFile.sync
        found: list[Any] = []

        def synced(file: SimulatedFile) -> None:
            if not found:
                writing = threading.Thread(target=store.insert, args=("b", 2))
                writing.start()
                writing.join(DEADLINE_SECONDS / 3)
                found.append(store.get("b"))
            sync(file)

        monkeypatch.setattr(SimulatedFile, "sync", synced)
        store.rotate()
        assert found == [2]
        assert [entry.k for _, entries in journals_of(HOME, "cars", disk) for entry in entries] == ["a", "b"] * 2


# --- a child process --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_that_closes_its_parents_store_leaves_the_mark_in_its_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.insert("k", 1)
        child = os.fork()
        if child == 0:
            answer = 1
            try:
                store.close()
            except LogwrightError:
                answer = 0
            finally:
                os._exit(answer)
        assert os.waitpid(child, 0)[1] == 0
        assert MARK_MAGIC in (tmp_path / "cars.jrn").read_bytes()
        store.insert("k", 2)
    with opened(tmp_path) as store:
        assert store.get("k") == 2


# --- imports ----------------------------------------------------------------------------------------------------------


def test_archive_is_made_without_importing_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt within an import can leave the lock of all imports locked, for every other thread."""
    with opened(tmp_path, background=False) as store:
        store.insert("k", 1)
        imported: list[str] = []
        monkeypatch.setattr("importlib.import_module", lambda name, package=None: imported.append(name))
        timestamp = store.rotate()
        assert imported == []
    assert (tmp_path / f"cars.jrn.t{timestamp}.zz").exists()
