"""Access to the file system: no link is followed, short writes are completed, files are replaced completely or not."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from logwright.core.io.disk import (
    REAL_DISK,
    Disk,
    OpenMode,
    make_directories,
    remove_tree,
    replace_file,
    skip_hole,
    write_all,
)
from logwright.core.repair.patched import PatchedFile
from logwright.errors import Locked, NotFound, StorageFailed
from tests.support.children import Child
from tests.support.damage import noise
from tests.support.faulty_disk import FORGOTTEN, SHORT_WRITE, SYNCS, WRITES, FaultyDisk, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS, in_a_thread
from tests.support.trees import read_file, read_tree, write_file

JOURNAL = Path("/journal")
PATH = JOURNAL / "value"
TEMPORARY = JOURNAL / "value.tmp"
OLD = noise(700, seed=1)
NEW = noise(1900, seed=2)


# --- the real disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("supported", [True, False])
def test_file_with_reserved_space_is_written_through_its_mapping(
    tmp_path: Path, supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not supported:
        monkeypatch.delattr(os, "posix_fallocate")
    (tmp_path / "file").write_bytes(b"begin")
    file = REAL_DISK.open(tmp_path / "file", "update")
    file.allocate(3 << 20)
    assert file.size() == 3 << 20
    assert os.stat(tmp_path / "file").st_blocks * 512 >= 3 << 20
    memory = file.map(file.size())
    assert memory[:8] == b"begin\0\0\0"
    memory[1 << 20 : (1 << 20) + 5] = b"there"
    file.close()
    assert (tmp_path / "file").read_bytes()[1 << 20 :].startswith(b"there")


def test_holes_in_a_file_need_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = REAL_DISK.open(tmp_path / "file", "create")
    file.write_at(1 << 20, b"x")
    file.truncate(2 << 20)
    found = [skip_hole(file, position, 2 << 20) for position in (0, 1 << 20, (2 << 20) - 1)]
    assert 0 < found[0] <= 1 << 20
    assert found[1:] == [1 << 20, 2 << 20]
    assert skip_hole(file, 0, 100) == 100
    patched = PatchedFile(file)
    patched.add(5000, b"y")
    assert (skip_hole(patched, 0, 2 << 20), skip_hole(patched, 5000, 2 << 20)) == (5000, 5000)
    assert skip_hole(patched, 6000, 2 << 20) == found[0]
    monkeypatch.delattr(os, "SEEK_DATA")
    assert skip_hole(file, 7, 2 << 20) == 7, "without the system's answer it must be read"
    file.close()


def test_missing_space_is_not_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    file = REAL_DISK.open(tmp_path / "file", "create")
    with pytest.raises(StorageFailed, match=r"allocate .*file: No space left"):
        file.allocate(1000)
    file.close()


def test_removing_a_tree_keeps_the_targets_of_its_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_bytes(b"x")
    (tree / "a" / "link").symlink_to(outside)
    (tree / "lost").symlink_to(tmp_path / "nowhere")
    remove_tree(REAL_DISK, tree)
    remove_tree(REAL_DISK, tree)
    assert read_tree(REAL_DISK, tmp_path) == {"outside": None, "outside/deep": None, "outside/secret": b"secret"}


@pytest.mark.parametrize("mode", ["read", "update"])
def test_link_in_place_of_a_file_is_refused(mode: str, tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "link"
    outside.write_bytes(b"secret")
    link.symlink_to(outside)
    with pytest.raises(StorageFailed, match=r"open .*/link: is a symbolic link") as caught:
        REAL_DISK.open(link, mode)  # type: ignore[arg-type]
    assert caught.value.errno == errno.ELOOP
    assert outside.read_bytes() == b"secret"


def test_nothing_is_created_through_a_dangling_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "outside")
    for mode, number in (("update", errno.ELOOP), ("create", errno.EEXIST)):
        with pytest.raises(StorageFailed) as caught:
            REAL_DISK.open(link, mode)  # type: ignore[arg-type]
        assert caught.value.errno == number
    assert REAL_DISK.exists(link), "the name is taken"
    assert os.listdir(tmp_path) == ["link"]


def test_names_are_those_of_links_and_not_of_their_targets(tmp_path: Path) -> None:
    outside, link, other = tmp_path / "outside", tmp_path / "link", tmp_path / "other"
    outside.write_bytes(b"x" * 1000)
    link.symlink_to("outside")
    assert REAL_DISK.file_size(link) == len("outside")
    assert REAL_DISK.identity(link) != REAL_DISK.identity(outside)
    REAL_DISK.rename(link, other)
    assert os.readlink(other) == "outside"
    REAL_DISK.remove(other)
    assert outside.read_bytes() == b"x" * 1000


def test_file_that_is_not_regular_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def refusal(name: str, mode: OpenMode) -> str:
        with pytest.raises(StorageFailed) as caught:
            in_a_thread(lambda: REAL_DISK.open(tmp_path / name, mode)).result(DEADLINE_SECONDS)
        return str(caught.value)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert refusal("socket", "read") == f"open {tmp_path}/socket: No such device or address"
    assert refusal("pipe", "read") == f"open {tmp_path}/pipe: is not a regular file"
    assert refusal("pipe", "update") == f"open {tmp_path}/pipe: is not a regular file"
    assert refusal(".", "read") == f"open {tmp_path}: is not a regular file"
    assert not open_descriptors(tmp_path)


def open_descriptors(directory: Path) -> list[str]:
    """The files that this process has open below a directory."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the descriptor of this listing
    return [target for target in targets if target.startswith(str(directory))]


def test_exists_raises_on_an_error(tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)
    for question in (
        REAL_DISK.exists,
        REAL_DISK.is_directory,
        REAL_DISK.is_link,
        REAL_DISK.identity,
        REAL_DISK.file_size,
    ):
        with pytest.raises(StorageFailed, match=r"stat .*xxx: File name too long") as caught:
            question(too_long)
        assert caught.value.errno == errno.ENAMETOOLONG


def test_name_below_a_file_or_a_link_loop_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "circle").symlink_to("circle")
    for path in (tmp_path / "file" / "x", tmp_path / "circle" / "x", tmp_path / "none" / "x"):
        assert not REAL_DISK.exists(path)
        assert not REAL_DISK.is_directory(path)
        assert not REAL_DISK.is_link(path)
    assert not REAL_DISK.is_directory(tmp_path / "circle")
    assert REAL_DISK.exists(tmp_path / "circle")


def test_link_is_distinguished_from_its_target(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    (tmp_path / "circle").symlink_to("circle")
    names = ("directory", "link", "circle", "none")
    assert [REAL_DISK.is_link(tmp_path / name) for name in names] == [False, True, True, False]


def test_errors_name_the_operation_and_the_path(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=rf"^{tmp_path}/none: no such file or directory$"):
        REAL_DISK.open(tmp_path / "none", "read")
    file = REAL_DISK.open(tmp_path / "a", "create")
    file.close()
    for action, attempt in (
        ("read", lambda: file.read_at(0, 1)),
        ("write", lambda: file.write_at(0, b"x")),
        ("truncate", lambda: file.truncate(0)),
        ("stat", file.size),
    ):
        with pytest.raises(StorageFailed, match=rf"^{action} {tmp_path}/a: Bad file descriptor$") as caught:
            attempt()
        assert (caught.value.action, caught.value.errno) == (action, errno.EBADF)


def test_file_size_limit_shortens_a_write_and_then_refuses_it(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from logwright.core.io.disk import REAL_DISK, write_all
from logwright.errors import StorageFailed
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = REAL_DISK.open(Path(sys.argv[1]), "create")
print(file.write_at(0, b"a" * 600), file.write_at(600, b"b" * 600))
try:
    write_all(file, 500, b"c" * 600)
except StorageFailed as error:
    print(error.errno, error)
file.close()
"""
    path = tmp_path / "file"
    with Child(code, path) as child:
        assert child.line() == "600 400"
        assert child.line() == f"{errno.EFBIG} write {path}: File too large"
        assert child.join() == 0
    assert path.read_bytes() == b"a" * 500 + b"c" * 500


# --- writing all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_write_all_continues_after_short_writes(simulated_disk: SimulatedDisk, size: int) -> None:
    disk = FaultyDisk(simulated_disk, 1, SHORT_WRITE, forever=True, only=WRITES)
    file = disk.open(PATH, "create")
    write_all(file, 5, noise(size))
    assert file.read_at(0, 2000) == (bytes(5) + noise(size) if size else b"")
    assert disk.calls == {0: 0, 1: 1, 2: 2, 3: 3}.get(size, disk.calls)
    assert disk.failures == max(0, disk.calls - 1), "each write but the last byte's was short"


# --- replacing a file -----------------------------------------------------------------------------------------------


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    """A disk on which the old value is durable."""
    write_file(simulated_disk, PATH, OLD)
    simulated_disk.settle()
    return simulated_disk


def replace(disk: Disk) -> None:
    replace_file(disk, PATH, NEW, TEMPORARY)


def value_is_whole(state: SimulatedDisk) -> bool:
    """The old value or the new one; only the new one once it is acknowledged."""
    return read_file(state, PATH) in ([NEW] if "replaced" in state.marks else [OLD, NEW])


def test_crash_leaves_the_old_value_or_the_new_one(disk: SimulatedDisk) -> None:
    replace(disk)
    disk.mark("replaced")
    seen = set()
    for state in disk.crash_states(seed=1):
        assert value_is_whole(state)
        seen.add((read_file(state, PATH) == NEW, state.exists(TEMPORARY)))
    assert seen == {(False, False), (False, True), (True, False)}


def test_first_value_is_complete_or_absent(simulated_disk: SimulatedDisk) -> None:
    replace(simulated_disk)
    simulated_disk.mark("replaced")
    for state in simulated_disk.crash_states():
        found = read_file(state, PATH) if state.exists(PATH) else None
        assert found in ([NEW] if state.marks else [None, NEW])


def test_leftovers_of_a_crash_or_kill_do_not_hinder_the_next_replacement(disk: SimulatedDisk) -> None:
    replace(disk)
    left = [*disk.crash_states(most=8), *disk.process_kills()]
    assert any(state.exists(TEMPORARY) for state in left)
    for state in left:
        replace(state)
        state.mark("replaced")
        assert read_tree(state, JOURNAL) == {"value": NEW}
        assert all(map(value_is_whole, state.crash_states(most=4)))


def test_each_failing_call_leaves_the_old_value_or_the_new_one(disk: SimulatedDisk) -> None:
    for faulty in every_fault(disk.copy):
        try:
            replace(faulty)
        except StorageFailed:
            assert faulty.failures
        else:
            faulty.inner.mark("replaced")
        assert faulty.inner.open_files == 0
        assert value_is_whole(faulty.inner)
        assert all(map(value_is_whole, faulty.inner.crash_states(most=4)))


def test_real_disk_replaces_a_file(tmp_path: Path) -> None:
    path, temporary = tmp_path / "value", tmp_path / "value.tmp"
    temporary.write_bytes(b"left by a crash")
    for value in (OLD, NEW, b""):
        replace_file(REAL_DISK, path, value, temporary)
        assert read_tree(REAL_DISK, tmp_path) == {"value": value}
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    temporary.symlink_to(outside)
    replace_file(REAL_DISK, path, OLD, temporary)
    assert read_tree(REAL_DISK, tmp_path) == {"outside": b"secret", "value": OLD}, "a link is removed, not followed"


def test_every_missing_sync_of_a_replacement_is_detected(disk: SimulatedDisk) -> None:
    found_out = {}
    for faulty in forgotten_syncs(disk.copy):
        replace(faulty)
        faulty.inner.mark("replaced")
        found_out[faulty.failed] = not all(map(value_is_whole, faulty.inner.crash_states(format="")))
    assert found_out == {f"sync {TEMPORARY}": True, f"sync directory {JOURNAL}": True, "": False}


# --- making directories ---------------------------------------------------------------------------------------------

DEEP = JOURNAL / "a" / "b" / "c"


def make_deep(disk: Disk) -> None:
    make_directories(disk, DEEP)


def deep_is_there(state: SimulatedDisk) -> bool:
    return state.is_directory(DEEP) or "made" not in state.marks


def test_directories_are_durable_once_they_are_made(simulated_disk: SimulatedDisk) -> None:
    make_deep(simulated_disk)
    simulated_disk.mark("made")
    depths = set()
    for state in simulated_disk.crash_states(reorder_names=True):
        assert deep_is_there(state)
        depths.add(len(read_tree(state, JOURNAL)))
    assert depths == {0, 1, 2, 3}


def test_directories_left_by_a_killed_process_become_durable(simulated_disk: SimulatedDisk) -> None:
    make_deep(simulated_disk)
    for killed in simulated_disk.process_kills():
        make_deep(killed)
        killed.mark("made")
        assert all(map(deep_is_there, killed.crash_states()))


def test_every_failing_call_is_reported_and_can_be_retried(simulated_disk: SimulatedDisk) -> None:
    for faulty in every_fault(simulated_disk.copy):
        try:
            make_deep(faulty)
        except StorageFailed:
            assert faulty.failures
            make_deep(faulty.inner)
        faulty.inner.mark("made")
        assert all(map(deep_is_there, faulty.inner.crash_states()))


def test_every_missing_sync_of_making_directories_is_detected(simulated_disk: SimulatedDisk) -> None:
    """The first sync serves a process that was killed before its own sync, as happened here."""
    simulated_disk.make_directory(JOURNAL / "a")
    found_out = []
    for number in range(4):
        *_, killed = simulated_disk.process_kills(format="")
        faulty = FaultyDisk(killed, number + 1, FORGOTTEN, only=SYNCS)
        make_deep(faulty)
        killed.mark("made")
        found_out.append((faulty.failed, not all(map(deep_is_there, killed.crash_states(format="")))))
    assert found_out == [
        (f"sync directory {JOURNAL}", True),
        (f"sync directory {JOURNAL / 'a'}", True),
        (f"sync directory {JOURNAL / 'a' / 'b'}", True),
        ("", False),
    ]


def test_unreadable_parent_does_not_prevent_making_directories(simulated_disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(simulated_disk, 1, errno.EACCES, only=["sync directory"])
    make_deep(faulty)
    assert (faulty.failures, simulated_disk.is_directory(DEEP)) == (1, True)
    later = FaultyDisk(SimulatedDisk(), 2, errno.EACCES, only=["sync directory"])
    with pytest.raises(StorageFailed, match="sync directory /: Permission denied"):
        make_deep(later)


def test_real_disk_makes_directories(tmp_path: Path) -> None:
    make_directories(REAL_DISK, tmp_path / "a" / "b")
    make_directories(REAL_DISK, tmp_path / "a" / "b")
    assert read_tree(REAL_DISK, tmp_path) == {"a": None, "a/b": None}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed, match=rf"create directory {tmp_path}/file: File exists"):
        make_directories(REAL_DISK, tmp_path / "file" / "sub")


@pytest.mark.parametrize("has_fdatasync", [True, False])
def test_sync_calls_the_system(has_fdatasync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    if not has_fdatasync:
        monkeypatch.delattr(os, "fdatasync")
        monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)  # like a system that has neither
    file = REAL_DISK.open(tmp_path / "file", "create")
    file.sync()
    file.close()
    REAL_DISK.sync_directory(tmp_path)
    assert synced == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]


def test_unreferenced_file_releases_its_lock(tmp_path: Path) -> None:
    forgotten = REAL_DISK.open(tmp_path / "file", "update")
    forgotten.lock()
    other = REAL_DISK.open(tmp_path / "file", "update")
    with pytest.raises(Locked):
        other.lock()
    del forgotten
    other.lock()
    other.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_permission_error_includes_advice(number: int) -> None:
    error = StorageFailed("open", Path("jnl/a"), OSError(number, "Permission denied"))
    assert str(error) == "open jnl/a: Permission denied; give this user access to it, then run this again"
    assert str(StorageFailed("open", Path("a"), OSError(errno.EIO, "bad"))) == "open a: bad"
