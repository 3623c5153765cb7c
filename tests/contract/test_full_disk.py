"""A disk that is really full: a file system of 64 KiB, or a limit on the size of files if none can be mounted.

Acknowledged records are intact, the partial append is rolled back, reading still works, and once there is space a new
writer continues.
"""

from __future__ import annotations

import errno
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import Poisoned, StorageFailed
from tests.contract.subject import Session, Subject
from tests.support.counts import COUNTS
from tests.support.small_disk import small_disk as small

TMPFS_BYTES = 64 * 1024
FILE_LIMIT_BYTES = 20_000
MOST_RECORDS = 2000
SEED = 31
Make = Callable[[int, int], Any]
"""A function that makes the record for a seed and an index."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of 64 KiB."""
    with small(tmp_path / "small", TMPFS_BYTES) as mounted:
        yield mounted


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def append_until_it_fails(
    subject: Subject, record: Make, session: Session, sync: str, start: int = 0
) -> tuple[int, int]:
    """Append until the system refuses; the number of acknowledged records, and the error at the end."""
    acknowledged, failure = start, None
    for index in range(start, MOST_RECORDS):
        try:
            session.append(record(SEED, index))
            if sync == "none" and index % 5 == 0:
                session.sync()
        except StorageFailed as error:
            failure = error
            break
        if sync == "always" or index % 5 == 0 or not subject.full_is_final:
            acknowledged = index + 1
    with pytest.raises(Poisoned if subject.full_is_final else StorageFailed):
        session.append(record(SEED, acknowledged))
    assert failure is not None
    return acknowledged, failure.errno or 0


def assert_all_there(subject: Subject, record: Make, home: Path, acknowledged: int) -> int:
    """The file has only whole records, at least the acknowledged ones; their number."""
    found = list(subject.read(REAL_DISK, home, "permissive"))
    assert len(found) >= acknowledged
    issued = [record(SEED, index) for index in range(len(found))]
    assert found == issued, "the partial append was not rolled back"
    return len(found)


def append_one(
    subject: Subject, record: Make, home: Path, sync: str, count: int, session: Session | None = None
) -> int:
    """Append the next record, with the session that met the full disk if it is still usable."""
    session = session or subject.open_session(REAL_DISK, home, sync=sync)
    session.append(record(SEED, count))
    session.close()
    return assert_all_there(subject, record, home, count + 1)


@pytest.mark.parametrize("sync", ["always", "none"])
def test_full_file_system_loses_no_acknowledged_record(subject: Subject, small_disk: Path, sync: str) -> None:
    home = small_disk / "journal"
    fillers = [small_disk / f"filler {number}" for number in range(3)]
    for filler in fillers:
        filler.write_bytes(bytes(12 * 1024))
    count = 0
    for number, filler in enumerate(fillers):
        session = subject.open_session(REAL_DISK, home, sync=sync)
        acknowledged, error = append_until_it_fails(subject, subject.record, session, sync, count)
        assert error == errno.ENOSPC
        continues = not subject.full_is_final and number % 2 == 0
        if not continues:
            session.close()
        count = assert_all_there(subject, subject.record, home, acknowledged)
        filler.unlink()
        count = append_one(subject, subject.record, home, sync, count, session if continues else None)
        COUNTS.add("k-th call fails", 1, subject.name)
    assert count > 20


@pytest.mark.parametrize("sync", ["always", "none"])
def test_file_size_limit_loses_no_acknowledged_record(subject: Subject, tmp_path: Path, sync: str) -> None:
    home = tmp_path / "journal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, hard))
    try:
        session = subject.open_session(REAL_DISK, home, sync=sync)
        acknowledged, error = append_until_it_fails(subject, subject.filling_record, session, sync)
        session.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error == errno.EFBIG
    count = assert_all_there(subject, subject.filling_record, home, acknowledged)
    assert count > 10
    assert append_one(subject, subject.filling_record, home, sync, count) == count + 1
    COUNTS.add("k-th call fails", 1, subject.name)
