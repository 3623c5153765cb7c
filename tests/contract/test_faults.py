"""The k-th call to the disk fails, for every k: while writing, recovering and reading.

A failed write or sync is final for its writer. Acknowledged records stay, a partial append is rolled back, the lock is
released, every file is closed, and the next writer continues.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.errors import Closed, LogwrightError, NotFound, Poisoned, StorageFailed
from tests.contract.scenarios import Checked, check_after_crash
from tests.contract.subject import HOME, Record, Session, Subject, read_prefix
from tests.contract.subjects import SUBJECTS
from tests.support.damage import cut
from tests.support.faulty_disk import FAULTS, Fault, FaultyDisk, every_fault
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file

KINDS = [
    pytest.param(subject, kind, sync, id=f"{subject.name}, {kind}, {sync}")
    for subject in SUBJECTS.values()
    for kind in subject.options
    for sync in ("always", "none")
]


class TrackingDisk:
    """Passes every call to another disk, and knows which files are open."""

    def __init__(self, inner: SimulatedDisk) -> None:
        self.inner = inner
        self.open_files: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, path: Path, mode: Any) -> TrackedFile:
        file = TrackedFile(self, self.inner.open(path, mode))
        self.open_files.append(file)
        return file


class TrackedFile:
    """A file of a `TrackingDisk`."""

    def __init__(self, disk: TrackingDisk, inner: Any) -> None:
        self._disk = disk
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        if self in self._disk.open_files:
            self._disk.open_files.remove(self)
        self._inner.close()


def empty_disk() -> TrackingDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    return TrackingDisk(disk)


@dataclass
class Attempt:
    """A session on a disk that fails at some point, and the acknowledged records."""

    subject: Subject
    records: list[Record]
    sync: str
    options: dict[str, Any]
    acknowledged: int = 0
    failed: bool = False
    final: bool = False

    def run(self, disk: FaultyDisk[Any]) -> None:
        try:
            session = self.subject.open_session(disk, HOME, sync=self.sync, **self.options)
        except LogwrightError:
            self.failed = True
            return
        try:
            self._append(session)
        except StorageFailed as error:
            self.failed = True
            if self.final or not self._may_continue(error):
                self._assert_final(session)
        try:
            session.close()
            self.acknowledged = self.acknowledged if self.failed else len(self.records)
        except StorageFailed:
            self.failed = True
        with pytest.raises((Poisoned, Closed) if self.failed else Closed):
            session.append(self.records[0])

    def _append(self, session: Session) -> None:
        for count, record in enumerate(self.records, 1):
            self._append_one(session, record)
            if self.sync == "always":
                self.acknowledged = count
            elif count % 3 == 0:
                session.sync()
                self.acknowledged = count

    def _append_one(self, session: Session, record: Record) -> None:
        try:
            session.append(record)
        except StorageFailed as error:
            if not self._may_continue(error):
                raise
            try:
                session.append(record)  # if nothing has changed it can be tried again
            except Poisoned:  # but a write to reserved space has failed
                self.final = True
                raise error from None

    def _may_continue(self, error: StorageFailed) -> bool:
        return error.errno == errno.ENOSPC and not self.subject.full_is_final

    def _assert_final(self, session: Session) -> None:
        """Assert that this writer accepts nothing more, whatever the disk does now."""
        uses: tuple[Callable[[], object], ...] = (lambda: session.append(self.records[-1]), session.flush, session.sync)
        for use in uses:
            with pytest.raises(Poisoned):
                use()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize(("subject", "kind", "sync"), KINDS)
def test_failure_of_any_call_is_final_and_loses_no_acknowledged_record(
    subject: Subject, kind: str, sync: str, fault: Fault
) -> None:
    records = subject.records(21, 13)
    checked = Checked()
    for disk in every_fault(empty_disk, [fault], format=subject.name):
        attempt = Attempt(subject, records[:12], sync, subject.options[kind])
        attempt.run(disk)
        assert attempt.failed or attempt.acknowledged == 12
        assert not disk.inner.open_files, "files were left open"

        healthy = disk.inner.inner
        acknowledged = attempt.acknowledged
        if not fault.partial:  # a half write that also becomes durable by halves is more than a disk can do
            for state in healthy.crash_states(first=len(healthy.operations), kinds=["order"], format=""):
                if checked.is_new(state, "crash", acknowledged):
                    check_after_crash(subject, state, records, acknowledged, may_be_damaged=sync != "always")
        if not checked.is_new(healthy, "failure", acknowledged):
            continue
        found, error = read_prefix(subject, healthy, HOME)
        assert error is None or (isinstance(error, NotFound) and not acknowledged), error
        assert len(found) >= acknowledged
        assert found == records[: len(found)]
        if error is None and not fault.forever:
            damages = list(subject.read(healthy, HOME, "permissive"))[len(found) :]
            assert damages == [], "the partial append was not rolled back"
        check_after_crash(subject, healthy, records, acknowledged)


@pytest.mark.parametrize("how_much_is_missing", [3, 17, 60])
def test_recovery_that_fails_at_any_call_can_be_repeated(subject: Subject, how_much_is_missing: int) -> None:
    records = subject.records(22, 6)
    data = subject.encode(records[:5])
    torn = subject.torn_file(cut(data, len(data) - how_much_is_missing))
    whole = subject.whole(torn)
    paths: list[Path] = []

    def torn_disk() -> TrackingDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        paths.append(subject.lay_out(disk, HOME, torn))
        disk.settle()
        return TrackingDisk(disk)

    checked = Checked()
    for disk in every_fault(torn_disk, format=subject.name):
        with contextlib.suppress(LogwrightError):
            subject.recover(disk, HOME)
        assert not disk.inner.open_files, "files were left open"
        healthy = disk.inner.inner
        if not checked.is_new(healthy):
            continue
        left, before = subject.content(read_file(healthy, paths[0])), subject.content(torn)
        assert left in (before, before[: whole.end])
        if left != before:
            folder = HOME / ".logwright" / "cut"
            kept = [read_file(healthy, folder / name) for name in healthy.list_directory(folder)]
            assert torn[whole.end :] in kept
        check_after_crash(subject, healthy, records, len(whole.records))


@pytest.mark.parametrize("kind", ["plain", "small segments", "checksums"])
def test_reading_with_a_failing_call_raises_an_error_or_returns_everything(subject: Subject, kind: str) -> None:
    if kind not in subject.options:
        pytest.skip(f"{subject.name} has no journals with {kind}")
    records = subject.records(23, 12)
    written = empty_disk().inner
    session = subject.open_session(written, HOME, **subject.options[kind])
    for record in records:
        session.append(record)
    session.close()

    faults = [fault for fault in FAULTS if fault.only == Fault().only]
    for disk in every_fault(lambda: TrackingDisk(written.copy()), faults, format=subject.name):
        found, error = read_prefix(subject, disk, HOME)
        assert found == records[: len(found)]
        assert error is None or isinstance(error, StorageFailed)
        assert error is not None or len(found) == len(records), "records are missing without an error"
        damages = []
        with contextlib.suppress(StorageFailed):
            damages = [item for item in subject.read(disk, HOME, "permissive") if isinstance(item, Damage)]
        assert not damages, "a disk that fails is no damage of the journal"
        assert not disk.inner.open_files, "files were left open"
