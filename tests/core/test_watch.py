"""Waiting for files to change: a change wakes the waiting thread, and without a change nothing wakes it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.watch import (
    POLL_SECONDS,
    InotifyWatch,
    PollingWatch,
    Watch,
    watch_directories,
    watch_directory,
)
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify; elsewhere files are polled")


@pytest.fixture
def directory(journal_directory: Path) -> Path:
    return journal_directory


@pytest.fixture
def watch(directory: Path) -> Iterator[Watch]:
    (directory / "file").write_bytes(b"before")
    watch = REAL_DISK.watch(directory)
    yield watch
    watch.close()


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@needs_inotify
@pytest.mark.parametrize(
    "change",
    [
        lambda directory: append(directory / "file"),
        lambda directory: (directory / "new").touch(),
        lambda directory: (directory / "file").unlink(),
        lambda directory: (directory / "file").rename(directory / "other"),
        lambda directory: (directory / "file").rename(directory.parent / "outside"),
        lambda directory: directory.parent.joinpath("outside").replace(directory / "file"),
        lambda directory: os.truncate(directory / "file", 1),
        lambda directory: (directory / "sub").mkdir(),
    ],
    ids=["write", "create", "remove", "rename", "move out", "move in", "truncate", "mkdir"],
)
def test_each_change_of_a_directory_is_reported_once(
    watch: Watch, directory: Path, change: Callable[[Path], object]
) -> None:
    assert isinstance(watch, InotifyWatch)
    (directory.parent / "outside").write_bytes(b"elsewhere")
    assert watch.wait(0) is False
    change(directory)
    assert watch.wait(DEADLINE_SECONDS) is True
    assert watch.wait(0) is False


@needs_inotify
def test_reading_is_not_a_change(watch: Watch, directory: Path) -> None:
    assert (directory / "file").read_bytes() == b"before"
    assert os.listdir(directory) == ["file"]
    assert watch.wait(0) is False


@needs_inotify
def test_write_wakes_a_waiting_thread(watch: Watch, directory: Path) -> None:
    asked = threading.Event()

    def wait_until_something_happens() -> bool:
        deadline = time.monotonic() + DEADLINE_SECONDS
        asked.set()
        while time.monotonic() < deadline:
            if watch.wait(DEADLINE_SECONDS):
                return True
        return False

    waiting = in_a_thread(wait_until_something_happens)
    assert asked.wait(DEADLINE_SECONDS)
    append(directory / "file")
    assert waiting.result(2 * DEADLINE_SECONDS) is True


@needs_inotify
def test_write_wakes_an_event_loop(watch: Watch, directory: Path) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        descriptor = watch.descriptor()
        assert descriptor is not None
        loop.add_reader(descriptor, woken.set)
        append(directory / "file")
        await asyncio.wait_for(woken.wait(), DEADLINE_SECONDS)
        loop.remove_reader(descriptor)

    asyncio.run(scenario())
    watch.drain()
    assert watch.wait(0) is False


@needs_inotify
def test_drained_changes_are_not_reported_again(watch: Watch, directory: Path) -> None:
    for number in range(500):
        (directory / f"new{number}").touch()
    watch.drain()
    assert watch.wait(0) is False
    watch.drain()


@needs_inotify
def test_one_watch_covers_several_directories(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("a", "b", "c")]
    for directory in directories:
        directory.mkdir()
    watch = watch_directories(directories[:2])
    append(directories[2] / "file")
    assert watch.wait(0) is False, "this one is not watched yet"
    watch.add(directories[2])
    for directory in directories:
        append(directory / "file")
        assert watch.wait(DEADLINE_SECONDS) is True
    watch.close()


@needs_inotify
def test_watch_of_several_directories_reports_which_changed(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("a", "b", "c")]
    for directory in directories:
        directory.mkdir()
    watch = watch_directories(directories)
    assert watch.drain() == set()
    for directory in (directories[0], directories[2], directories[0]):
        append(directory / "file")
        append(directory / "a longer name than the other one")
    assert watch.drain() == {directories[0], directories[2]}
    assert watch.drain() == set()
    watch.close()


@needs_inotify
def test_overflow_of_system_events_is_reported_as_unknown(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    watch = watch_directory(tmp_path)
    for _ in range(most // 2 + 1):  # two events each; that of a file between two others is not merged with them
        (tmp_path / "file").touch()
        (tmp_path / "file").unlink()
    assert watch.drain() is None
    assert watch.drain() == set()
    watch.close()


@needs_inotify
def test_closed_watch_holds_no_descriptor(tmp_path: Path) -> None:
    watch = watch_directory(tmp_path)
    descriptor = watch.descriptor()
    assert descriptor is not None
    watch.close()
    watch.close()
    assert watch.descriptor() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@needs_inotify
def test_unwatchable_path_is_polled_and_no_descriptor_leaks(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    watch = watch_directory(tmp_path / "none")
    assert isinstance(watch, PollingWatch)
    assert set(os.listdir("/proc/self/fd")) == before


def test_files_are_polled_without_notification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "another system")
    assert isinstance(watch_directory(tmp_path), PollingWatch)


def test_polling_backs_off_up_to_its_limit_and_the_callers_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    watch = PollingWatch()
    for _ in range(12):
        assert watch.wait(DEADLINE_SECONDS) is False
    assert pauses[:4] == [0.001, 0.002, 0.004, 0.008]
    assert pauses == sorted(pauses)
    assert pauses[-1] == POLL_SECONDS
    watch.wait(0.005)
    watch.wait(-1)
    assert pauses[-2:] == [0.005, 0.0]
    watch.drain()
    watch.wait(DEADLINE_SECONDS)
    assert pauses[-1] == 0.001, "after a change the next one is looked for soon"
    watch.add(tmp_path)
    watch.close()
    assert watch.descriptor() is None
