"""Real power cuts: ext4 on a loop device is shut down without flushing its log, while a thread writes.

After each cut the file system is mounted again, the journal is recovered, and writing continues. This needs root, a
loop device and mkfs.ext4. Elsewhere, the simulated disk of `test_crash.py` replaces it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import LogwrightError, NotFound
from tests.contract.subject import Recovered, Subject
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS

SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
DEVICE_BYTES = 24 << 20
DEADLINE_SECONDS = 60.0
CUTS = 8
KINDS = [
    pytest.param(subject, kind, sync, id=f"{subject.name}, {kind}, {sync}")
    for subject in SUBJECTS.values()
    for kind in subject.options
    for sync in ("always", "none")
]


class Device:
    """A file system that can lose power."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "image"
        self.root = directory / "mounted"
        self.root.mkdir()
        with self.image.open("wb") as file:
            file.truncate(DEVICE_BYTES)
        self._run("mkfs.ext4", "-q", "-F", str(self.image))

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.root))

    def unmount(self) -> None:
        try:
            self._run("umount", str(self.root))
        except OSError as error:
            error.add_note(f"open in this process: {self._open_here() or 'nothing'}")
            raise

    def give_up(self) -> None:
        """Unmount it as soon as none of its files is open: a failed test may hold files."""
        self._run("umount", "--lazy", str(self.root))

    def _open_here(self) -> list[str]:
        """The files of this file system that this process has open or mapped."""
        maps = Path("/proc/self/maps").read_text().splitlines()
        links = (os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
        return [found for found in [*links, *maps] if str(self.root) in found]

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, not even writes in progress."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("power cuts need root, a loop device and mkfs.ext4")
    try:
        found = Device(tmp_path)
        found.mount()
    except OSError as error:
        pytest.skip(f"power cuts need a loop device that can be mounted: {error}")
    yield found
    if os.path.ismount(found.root):
        found.give_up()


class Writing(threading.Thread):
    """Appends until the disk fails; `acknowledged` grows, and `enough` is set at some number."""

    def __init__(self, subject: Subject, home: Path, seed: int, start: int, sync: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.acknowledged = start
        self.enough = threading.Event()
        self.unexpected: BaseException | None = None
        self._subject, self._seed, self._sync = subject, seed, sync
        self._session = subject.open_session(REAL_DISK, home, sync=sync, **options)
        self._until = start + random.Random(f"{seed}/{start}").choice((1, 2, 5, 20, 60))

    def run(self) -> None:
        try:
            with contextlib.suppress(LogwrightError):
                self._append_for_ever()
            with contextlib.suppress(LogwrightError):
                self._session.close()
        except BaseException as error:
            self.unexpected = error
        finally:
            self.enough.set()

    def _append_for_ever(self) -> None:
        index = self.acknowledged
        while True:
            self._session.append(self._subject.record(self._seed, index))
            index += 1
            if self._sync == "none" and index % 4 == 0:
                self._session.sync()
            if self._sync == "always" or index % 4 == 0:
                self.acknowledged = index
            if index >= self._until:
                self.enough.set()


def cut_again_and_again(subject: Subject, device: Device, kind: str, sync: str, cuts: int) -> None:
    home, seed, count = device.root / "journal", sum(map(ord, kind + sync)), 0
    for _ in range(cuts):
        writing = Writing(subject, home, seed, count, sync, subject.options[kind])
        writing.start()
        assert writing.enough.wait(DEADLINE_SECONDS)
        acknowledged = writing.acknowledged  # before the cut: the results of a disk without power mean nothing
        device.cut_power()
        writing.join(DEADLINE_SECONDS)
        assert not writing.is_alive()
        assert writing.unexpected is None
        device.unmount()
        device.mount()
        count = check(subject, home, seed, acknowledged)
        COUNTS.add("power cuts", 1, subject.name)


def check(subject: Subject, home: Path, seed: int, acknowledged: int) -> int:
    """Recover, and assert that every acknowledged record is there; the number of records."""
    try:
        before = list(subject.read(REAL_DISK, home))
    except NotFound:
        assert acknowledged == 0
        return 0
    assert len(before) >= acknowledged
    subject.recover(REAL_DISK, home)
    found = list(subject.read(REAL_DISK, home))
    assert found == before
    assert found == subject.records(seed, len(found))
    assert subject.recover(REAL_DISK, home) == Recovered()
    return len(found)


@pytest.mark.parametrize(("subject", "kind", "sync"), KINDS)
def test_power_cut_loses_no_acknowledged_record(subject: Subject, device: Device, kind: str, sync: str) -> None:
    cut_again_and_again(subject, device, kind, sync, CUTS)


@pytest.mark.torture
@pytest.mark.parametrize(("subject", "kind", "sync"), KINDS)
def test_many_power_cuts_lose_no_acknowledged_record(subject: Subject, device: Device, kind: str, sync: str) -> None:
    cut_again_and_again(subject, device, kind, sync, 20 * CUTS)
