"""Files appear together or not at all: the manifest, the steps after the commit, and the removal of leftovers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.io.lock import Lock
from logwright.core.publish import protocol
from logwright.core.publish.protocol import Commit, clear, lock_alone, move_into_place, read_json
from logwright.errors import DamagedJournal, Locked, NotFound, StorageFailed
from tests.support.faulty_disk import RENAMES, FaultyDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file, write_tree

HOME = Path("/home")
MANIFEST = HOME / "manifest.json"


@pytest.fixture
def disk() -> SimulatedDisk:
    found = SimulatedDisk()
    write_tree(found, HOME, {"lock": b"", "run/a": b"first", "run/b": b"second"})
    return found


def commit_on(disk: Disk) -> Commit:
    return Commit(disk, MANIFEST, lambda name: name == "run", "the next run completes it")


def moving(disk: Disk) -> Callable[[], None]:
    def put() -> None:
        assert json.loads(read_file(disk, MANIFEST)) == {"version": 1, "files": ["a", "b"]}
        for name in ("a", "b"):
            move_into_place(disk, HOME / "run" / name, Path("/") / name)

    return put


def test_files_are_put_in_place_after_the_manifest_which_is_removed_before_the_leftovers(
    disk: SimulatedDisk,
) -> None:
    done = len(disk.operations)
    commit_on(disk).publish({"files": ["a", "b"]}, moving(disk))
    assert read_tree(disk, Path("/")) == {"a": b"first", "b": b"second", "home": None, "home/lock": b""}
    names = ("rename", "remove", "sync directory")
    steps = [text for text in map(str, disk.operations[done:]) if text.startswith(names)]
    assert steps == [
        "rename /home/manifest.json.tmp to /home/manifest.json",
        "sync directory /home",
        "rename /home/run/a to /a",
        "rename /home/run/b to /b",
        "remove /home/manifest.json",
        "sync directory /home",
        "remove /home/run",
    ]


def test_failure_after_the_commit_says_who_completes_it_and_committed_files_are_not_discarded(
    disk: SimulatedDisk,
) -> None:
    commit, faulty = commit_on(disk), FaultyDisk(disk, 3, only=RENAMES)
    with pytest.raises(StorageFailed) as failed:
        commit_on(faulty).publish({"files": ["a", "b"]}, moving(faulty))
    assert failed.value.__notes__ == ["the next run completes it"]
    commit.discard()
    assert disk.exists(HOME / "run" / "b")
    commit.resume(moving(disk))
    assert read_tree(disk, Path("/")) == {"a": b"first", "b": b"second", "home": None, "home/lock": b""}


def test_failed_commit_leaves_no_manifest_and_staged_files_can_be_discarded(disk: SimulatedDisk) -> None:
    commit = commit_on(FaultyDisk(disk, 1, only=["sync directory"]))
    with pytest.raises(StorageFailed) as failed:
        commit.publish({}, lambda: pytest.fail("nothing is committed"))
    assert not hasattr(failed.value, "__notes__")
    assert not disk.exists(MANIFEST)
    commit.discard()
    assert disk.list_directory(HOME) == ["lock"]


def test_only_leftovers_are_removed(disk: SimulatedDisk) -> None:
    assert clear(disk, HOME, lambda name: name == "other") == 0
    assert clear(disk, HOME, lambda name: name == "run") == 1
    assert disk.list_directory(HOME) == ["lock"]


def test_file_is_moved_once_and_replaces_another(disk: SimulatedDisk) -> None:
    source, target = HOME / "run" / "a", Path("/a")
    write_file(disk, target, b"old")
    for _ in range(2):
        move_into_place(disk, source, target)
        assert read_file(disk, target) == b"first"
    disk.remove(target)
    with pytest.raises(NotFound, match="/a: the staged copy is gone from /home/run/a"):
        move_into_place(disk, source, target)


def test_old_name_is_removed_if_a_power_cut_left_a_file_with_both_names(tmp_path: Path) -> None:
    (tmp_path / "staged").write_bytes(b"data")
    (tmp_path / "target").hardlink_to(tmp_path / "staged")
    move_into_place(REAL_DISK, tmp_path / "staged", tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_second_publisher_is_refused_after_its_time_limit(disk: SimulatedDisk) -> None:
    with Lock.acquire(disk, HOME / "lock"), pytest.raises(Locked, match=r"^/home: another run is at work"):
        lock_alone(disk, HOME / "lock", "/home: another run is at work", 0.01)
    lock_alone(disk, HOME / "lock", "busy").release()


@pytest.mark.parametrize(("patience_seconds", "sleeps"), [(0, 0), (0.05, 1), (0.07, 2), (0.1, 2)])
def test_publisher_checks_the_lock_repeatedly_until_its_time_limit(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, patience_seconds: float, sleeps: int
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(protocol, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    acquire, looks = Lock.acquire, []

    def noted(disk: Disk, path: Path) -> Lock:
        looks.append(sum(slept))
        assert len(looks) <= 3
        return acquire(disk, path)

    monkeypatch.setattr(Lock, "acquire", noted)
    with acquire(disk, HOME / "lock"), pytest.raises(Locked, match="busy"):
        lock_alone(disk, HOME / "lock", "busy", patience_seconds)
    assert slept == [0.05] * sleeps
    assert len(looks) == sleeps + 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b'{"version": 2, "n": 1}', b'{"n": 1}', b"{}", b"[" * 100_000, b"\xff"]
)
def test_damaged_file_is_an_error_that_names_it_and_says_what_to_do(disk: SimulatedDisk, data: bytes) -> None:
    def read() -> int | None:
        return read_json(disk, MANIFEST, lambda found: int(found["n"]), "manifest", "restore it")

    assert read() is None
    write_file(disk, MANIFEST, b'{"version": 1, "n": 5}')
    assert read() == 5
    write_file(disk, MANIFEST, data)
    with pytest.raises(DamagedJournal, match=r"^/home/manifest\.json @ 0: this manifest is damaged: .*; restore it$"):
        read()
