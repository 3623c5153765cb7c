"""Real power cuts: ext4 on a loop device is shut down without flushing its log, while a thread writes.

After each cut the file system is mounted again, the journal is recovered, and writing continues. This needs root, a
loop device and mkfs.ext4. Elsewhere, the simulated disk of `test_crash.py` replaces it.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import LogwrightError, NotFound
from logwright.torture.power import Device, missing_for_power_cuts
from tests.contract.subject import Recovered, Subject
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS
from tests.support.threads import DEADLINE_SECONDS

CUTS = 8
KINDS = [
    pytest.param(subject, kind, sync, id=f"{subject.name}, {kind}, {sync}")
    for subject in SUBJECTS.values()
    for kind in subject.options
    for sync in ("always", "none")
]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if (missing := missing_for_power_cuts()) is not None:
        pytest.skip(missing)
    try:
        found = Device(tmp_path)
        found.mount()
    except OSError as error:
        pytest.skip(f"power cuts need a loop device that can be mounted: {error}")
    yield found
    found.give_up()  # a failed test may hold files


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
