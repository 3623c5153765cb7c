"""One writer at a time: without waiting, between processes, with removed lock files, and released by death."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Disk, File, OpenMode, RealDisk
from logwright.core.io.lock import Lock
from logwright.errors import Locked, NotFound, StorageFailed
from tests.support.children import SAYS_WHO, Child, forked, held_by
from tests.support.counts import COUNTS
from tests.support.faulty_disk import failing_calls
from tests.support.simulated_disk import SimulatedDisk

HOLDER = """
import sys
from pathlib import Path
from logwright.core.io.disk import REAL_DISK
from logwright.errors import Locked
from logwright.core.io.lock import Lock
try:
    lock = Lock.acquire(REAL_DISK, Path(sys.argv[1]))
except Locked as error:
    print("locked:", error, flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jnl.lck"


def is_free(path: Path, disk: Disk = REAL_DISK) -> bool:
    try:
        Lock.acquire(disk, path).release()
    except Locked:
        return False
    return True


def forget(lock: Lock) -> None:
    lock._file = None


def test_second_lock_in_one_process_is_refused_at_once(path: Path) -> None:
    with Lock.acquire(REAL_DISK, path), pytest.raises(Locked, match=rf"{path} is locked by another") as caught:
        Lock.acquire(REAL_DISK, path)
    if SAYS_WHO:
        assert str(caught.value) == f"{path} is locked by another open journal (this process)"
    assert is_free(path)


def test_releasing_twice_does_not_release_the_next_holder(path: Path) -> None:
    first = Lock.acquire(REAL_DISK, path)
    first.release()
    with Lock.acquire(REAL_DISK, path):
        first.release()
        assert not is_free(path)


def test_lock_of_another_process_is_held_until_it_is_released(path: Path) -> None:
    with Child(HOLDER, path) as other:
        assert other.line() == "held"
        assert not is_free(path)
        other.say("let go")
        assert other.line() == "released"
        assert is_free(path), "though the other one still lives"


def test_another_process_is_refused_at_once(path: Path) -> None:
    with Lock.acquire(REAL_DISK, path), Child(HOLDER, path) as other:
        who = "another program" if SAYS_WHO else "another process or another open journal"
        assert other.line() == f"locked: {path} is locked by {who}{held_by(os.getpid())}"


@pytest.mark.skipif(not SAYS_WHO, reason="this system does not say who holds a lock")
def test_process_that_holds_a_lock_is_named(path: Path) -> None:
    with Child(HOLDER, path) as other:
        assert other.line() == "held"
        with pytest.raises(Locked) as caught:
            Lock.acquire(REAL_DISK, path)
        command = Path(f"/proc/{other.pid}/comm").read_text().strip()
        assert command.startswith("python")
        assert str(caught.value) == f"{path} is locked by another program (process {other.pid}, {command})"
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.holder) == (str(caught.value), f"process {other.pid}, {command}")


@pytest.mark.skipif(not SAYS_WHO, reason="this system does not say who holds a lock")
def test_lock_holder_is_found_by_its_open_file_if_device_numbers_differ(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "makedev", lambda major, minor: -1)
    with Child(HOLDER, path) as other:
        assert other.line() == "held"
        with pytest.raises(Locked, match=rf"\(process {other.pid}, python"):
            Lock.acquire(REAL_DISK, path)


@pytest.mark.skipif(not SAYS_WHO, reason="this system does not say who holds a lock")
def test_process_with_an_odd_name_is_printed_safely(path: Path) -> None:
    with Child("open('/proc/self/comm', 'w').write('a\\033[31m\\nb')\n" + HOLDER, path) as other:
        assert other.line() == "held"
        with pytest.raises(Locked, match=rf" \(process {other.pid}, a\?\[31m\?b\)$"):
            Lock.acquire(REAL_DISK, path)


@pytest.mark.parametrize("missing", ["/proc/locks", "/proc/{pid}/comm"])
def test_lock_with_an_unknown_holder_is_refused(missing: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_text = Path.read_text
    with Child(HOLDER, path) as other:
        assert other.line() == "held"
        refused = missing.format(pid=other.pid)

        def read(self: Path, errors: str) -> str:
            if str(self) == refused:
                raise PermissionError
            return read_text(self, errors=errors)

        monkeypatch.setattr(Path, "read_text", read)
        with pytest.raises(Locked) as caught:
            Lock.acquire(REAL_DISK, path)
    assert str(caught.value) == f"{path} is locked by another process or another open journal"
    assert caught.value.holder is None


def test_lock_of_a_killed_process_is_free(path: Path) -> None:
    for _ in range(3):
        with Child(HOLDER, path) as other:
            assert other.line() == "held"
            assert not is_free(path)
            other.kill()
            assert is_free(path)
            COUNTS.add("kill -9")
    assert path.exists(), "and the file was not removed"


def test_child_program_does_not_inherit_the_lock(path: Path) -> None:
    lock = Lock.acquire(REAL_DISK, path)
    command = [sys.executable, "-c", "import sys; print('running', flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"running\n"
        lock.release()
        assert is_free(path)
        assert program.poll() is None, "it was running all the while"
        program.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("gives_back", [Lock.release, forget], ids=["release", "forget"])
def test_forked_child_does_not_keep_the_lock(gives_back: Callable[[Lock], None], path: Path) -> None:
    lock = Lock.acquire(REAL_DISK, path)
    with forked():
        assert not is_free(path)
        gives_back(lock)
        assert is_free(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_does_not_release_the_lock(path: Path) -> None:
    with Lock.acquire(REAL_DISK, path) as lock:
        with forked(lock.release):
            assert not is_free(path)
        assert not is_free(path), "nor when it has ended"
    assert is_free(path)


def test_lock_file_stays_when_the_lock_is_released(path: Path) -> None:
    with Lock.acquire(REAL_DISK, path):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    assert path.read_bytes() == b""


def test_link_is_not_accepted_as_a_lock_file(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(StorageFailed, match="symbolic link"):
        Lock.acquire(REAL_DISK, path)
    assert os.listdir(path.parent) == ["jnl.lck"]


def test_lock_in_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Lock.acquire(REAL_DISK, tmp_path / "none" / "jnl.lck")


# --- other programs remove the file at the end ------ --------------------------------------------------------------


class FileWithSurprise:
    """A real file on which a function is called between opening and locking it."""

    def __init__(self, inner: File, surprise: Callable[[], None]) -> None:
        self._inner = inner
        self._surprise = surprise

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def lock(self) -> None:
        self._surprise()
        self._inner.lock()


class DiskWithSurprise(RealDisk):
    """The real disk, on which another program acts just before each of our locks."""

    def __init__(self, *surprises: Callable[[], None]) -> None:
        self._surprises = list(surprises)
        self.opened = 0

    def open(self, path: Path, mode: OpenMode) -> File:  # type: ignore[override]
        self.opened += 1
        surprise = self._surprises.pop(0) if self._surprises else lambda: None
        return FileWithSurprise(super().open(path, mode), surprise)  # type: ignore[return-value]


def test_removed_lock_file_is_locked_again_under_its_name(path: Path) -> None:
    disk = DiskWithSurprise(path.unlink)
    with Lock.acquire(disk, path):
        assert disk.opened == 2
        assert not is_free(path), "the lock is on the file that has the name now"
    assert is_free(path)


def test_lock_on_an_unlinked_file_is_not_valid(path: Path) -> None:
    held: list[Lock] = []

    def another_program_closes_and_a_third_one_opens() -> None:
        path.unlink()
        held.append(Lock.acquire(REAL_DISK, path))

    disk = DiskWithSurprise(another_program_closes_and_a_third_one_opens)
    with pytest.raises(Locked):
        Lock.acquire(disk, path)
    assert disk.opened == 2
    held[0].release()
    assert is_free(path)


def test_process_that_removes_its_lock_file_on_close_is_excluded_and_excludes(path: Path) -> None:
    """Like the original: flock, work, remove the file, close."""
    code = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.readline()
os.unlink(sys.argv[1])
os.close(descriptor)
print("removed", flush=True)
"""
    with Child(code, path) as other:
        assert other.line() == "held"
        assert not is_free(path)

        def it_closes() -> None:
            other.say("close")
            assert other.line() == "removed"

        disk = DiskWithSurprise(it_closes)
        with Lock.acquire(disk, path):
            assert disk.opened == 2
            with Child(code, path) as third:
                with pytest.raises(EOFError):
                    third.line()
                assert third.join() == 1, "BlockingIOError"
            assert path.exists()


def test_lock_file_that_keeps_changing_is_reported_as_locked(path: Path) -> None:
    disk = DiskWithSurprise(*[path.unlink] * 1000)
    with pytest.raises(Locked, match="is being created and removed by other programs all the time"):
        Lock.acquire(disk, path)
    assert disk.opened == 100


# --- faults ---------------------------------------------------------------------------------------------------------


def test_failure_of_any_call_leaves_nothing_open_or_locked(simulated_disk: SimulatedDisk) -> None:
    name = Path("/journal/jnl.lck")
    outcomes = []
    for disk in failing_calls(simulated_disk.copy):
        try:
            Lock.acquire(disk, name).release()
        except StorageFailed:
            outcomes.append(disk.failed)
        assert disk.inner.open_files == 0
        assert is_free(name, disk.inner)
    steps = ("create", "lock", "stat", "stat", "close")
    assert outcomes == [f"{step} {name}" for step in steps]
