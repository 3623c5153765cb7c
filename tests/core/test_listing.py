"""The names in a directory that begin with a prefix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logwright.core.io import file_names as listing
from logwright.core.io.disk import REAL_DISK, RealDisk
from logwright.core.io.file_names import list_beginning
from logwright.errors import NotFound

MANY = 100


class OtherDisk(RealDisk):
    """A disk that is not the real one, but behaves like it."""


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    original = RealDisk.list_directory

    def list_directory(disk: RealDisk, path: Path) -> list[str]:
        found.append(path)
        return original(disk, path)

    monkeypatch.setattr(RealDisk, "list_directory", list_directory)
    return found


def settle(directory: Path, seconds_ago: int = 60) -> None:
    """Make a directory look as if it was last changed a while ago."""
    now = int(os.stat(directory).st_mtime)
    os.utime(directory, (now - seconds_ago, now - seconds_ago))


def fill(directory: Path, count: int = MANY) -> None:
    for number in range(count):
        (directory / f"q{number:03d}").touch()


def test_names_with_the_prefix_are_returned_in_order(tmp_path: Path) -> None:
    for name in ("b", "ab", "a.2", "a", "a.10", "ba"):
        (tmp_path / name).touch()
    assert list_beginning(REAL_DISK, tmp_path, "a") == ["a", "a.10", "a.2", "ab"]
    assert list_beginning(REAL_DISK, tmp_path, "a.") == ["a.10", "a.2"]
    assert list_beginning(REAL_DISK, tmp_path, "c") == []
    assert list_beginning(REAL_DISK, tmp_path, "") == sorted(os.listdir(tmp_path))


def test_large_directory_that_does_not_change_is_listed_once(tmp_path: Path, listed: list[Path]) -> None:
    fill(tmp_path)
    settle(tmp_path)
    for number in range(MANY):
        assert list_beginning(REAL_DISK, tmp_path, f"q{number:03d}") == [f"q{number:03d}"]
    assert listed == [tmp_path]


def test_change_is_seen_at_once(tmp_path: Path, listed: list[Path]) -> None:
    fill(tmp_path)
    settle(tmp_path)
    assert list_beginning(REAL_DISK, tmp_path, "new") == []
    (tmp_path / "new").touch()
    assert list_beginning(REAL_DISK, tmp_path, "new") == ["new"]
    (tmp_path / "new").rename(tmp_path / "newer")
    assert list_beginning(REAL_DISK, tmp_path, "new") == ["newer"]
    (tmp_path / "newer").unlink()
    assert list_beginning(REAL_DISK, tmp_path, "new") == []
    assert len(listed) == 4


def test_directory_that_changed_just_now_is_listed_each_time(tmp_path: Path, listed: list[Path]) -> None:
    fill(tmp_path)
    for _ in range(3):
        list_beginning(REAL_DISK, tmp_path, "q")
    assert len(listed) == 3


def test_change_with_the_same_modification_time_is_seen(tmp_path: Path) -> None:
    fill(tmp_path)
    settle(tmp_path)
    before = os.stat(tmp_path)
    assert list_beginning(REAL_DISK, tmp_path, "new") == []
    (tmp_path / "new").touch()
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list_beginning(REAL_DISK, tmp_path, "new") == ["new"]


def test_small_directories_are_not_kept(tmp_path: Path, listed: list[Path]) -> None:
    fill(tmp_path, 10)
    settle(tmp_path)
    for _ in range(3):
        list_beginning(REAL_DISK, tmp_path, "q")
    assert len(listed) == 3


def test_number_of_kept_lists_is_bounded(tmp_path: Path) -> None:
    for number in range(40):
        directory = tmp_path / str(number)
        directory.mkdir()
        fill(directory)
        settle(directory)
        list_beginning(REAL_DISK, directory, "q")
    assert len(listing._kept) <= listing._MOST_DIRECTORIES


def test_other_disks_are_listed_each_time(tmp_path: Path, listed: list[Path]) -> None:
    fill(tmp_path)
    settle(tmp_path)
    for _ in range(3):
        assert list_beginning(OtherDisk(), tmp_path, "q00") == [f"q{number:03d}" for number in range(10)]
    assert len(listed) == 3


def test_missing_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list_beginning(REAL_DISK, tmp_path / "none", "q")
