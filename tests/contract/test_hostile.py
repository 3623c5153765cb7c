"""Hostile journals: extreme lengths, files that claim to be huge, links, fifos and misleading names.

Every verb returns or raises an error of ours, in bounded time, with no more memory than the size of the input
justifies, and without changing anything outside of the journal.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from tests.contract.subject import HOME, Subject, error_of
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS
from tests.support.damage import hostile_fields
from tests.support.replay import each
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

MOST_SECONDS = 60
"""The processor time of a test, which a busy machine does not prolong."""
MOST_BYTES = 4 << 20
"""The memory that a verb may use for a journal of a few kilobytes: its buffers, whatever lengths it claims."""
ROOT = Path(__file__).resolve().parents[2]

HOSTILE_NAMES = [
    pytest.param(subject, label, id=f"{subject.name}, {label}")
    for subject in SUBJECTS.values()
    for label in subject.hostile_journals()
]


@pytest.fixture(autouse=True)
def _deadline() -> Iterator[None]:
    """End a test that hangs, as opening a fifo would, or that computes for too long."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still not done after {DEADLINE_SECONDS} seconds, or {MOST_SECONDS} seconds of computing")

    before = {kind: signal.signal(kind, give_up) for kind in (signal.SIGALRM, signal.SIGPROF)}
    signal.alarm(int(DEADLINE_SECONDS))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    for kind, handler in before.items():
        signal.signal(kind, handler)


def try_verbs(subject: Subject, disk: Disk, home: Path) -> int:
    """Run every verb; their number. Any error that is not ours is raised.

    If memory is traced, the memory of each verb is checked. Garbage of an earlier one, which is not collected yet, does
    not count.
    """
    verbs = subject.verbs(disk, home)
    for verb in each(verbs.items()):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert error_of(verb) != "", "an error that says nothing"
        assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES
    return len(verbs)


def test_hostile_length_takes_no_memory_and_raises_only_our_errors(subject: Subject) -> None:
    records = subject.records(3, 5)
    data = subject.encode(records)
    tracemalloc.start()
    try:
        for damaged in hostile_fields(data, subject.length_fields(records)):
            disk = SimulatedDisk()
            disk.make_directory(HOME)
            subject.lay_out(disk, HOME, damaged.data)
            COUNTS.add("hostile inputs", try_verbs(subject, disk, HOME), subject.name)
    finally:
        tracemalloc.stop()


def test_decoders_raise_only_our_errors_on_hostile_lengths(subject: Subject) -> None:
    records = subject.records(3, 5)
    for damaged in hostile_fields(subject.encode(records), subject.length_fields(records)):
        for decoder in subject.decoders().values():
            assert error_of(partial(decoder, damaged.data)) != "", "an error that says nothing"


def what_is_beside(home: Path) -> dict[str, bytes | None]:
    """Everything outside of the journal."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in home.parent.rglob("*")
        if path != home and home not in path.parents
    }


@pytest.mark.parametrize(("subject", "label"), HOSTILE_NAMES)
def test_hostile_files_raise_only_our_errors_and_change_nothing_outside(
    subject: Subject, label: str, tmp_path: Path
) -> None:
    make = subject.hostile_journals()[label]
    home = tmp_path / "journal"
    make(home)
    before = what_is_beside(home)
    tried = try_verbs(subject, REAL_DISK, home)
    assert what_is_beside(home) == before
    COUNTS.add("hostile inputs", tried, subject.name)


_WITH_LITTLE_MEMORY = """
import logging, resource, sys
from pathlib import Path
from logwright.core.io.disk import REAL_DISK
from logwright.errors import LogwrightError
from tests.contract.subjects import SUBJECTS

logging.disable(logging.CRITICAL)
verbs = SUBJECTS[sys.argv[1]].verbs(REAL_DISK, Path(sys.argv[2]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[4]), int(sys.argv[4])))
for verb in verbs.values():
    try:
        verb()
    except LogwrightError as error:
        assert str(error)
print(len(verbs))
"""
MEBIBYTE = 1 << 20


def try_with_little_memory(subject: Subject, home: Path, limit_bytes: int, most_seconds: int) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("only Linux reports how much memory a process has")
    limits = str(limit_bytes), str(most_seconds)
    command = [sys.executable, "-c", _WITH_LITTLE_MEMORY, subject.name, str(home), *limits]
    timeout = DEADLINE_SECONDS + most_seconds
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    COUNTS.add("hostile inputs", int(done.stdout), subject.name)


@pytest.mark.parametrize(
    ("claim", "size"),
    [(2**31 - 1, 1), (2**31 - 1, MEBIBYTE), (64 * MEBIBYTE, 65 * MEBIBYTE)],
    ids=["beyond a small file", "beyond a hole", "within a hole"],
)
def test_record_with_a_huge_claimed_size_is_checked_with_little_memory(
    subject: Subject, tmp_path: Path, claim: int, size: int
) -> None:
    """Even if the claimed size fits the file: its author can make a hole of any size for free."""
    if size > MEBIBYTE and len(subject.twins()) < 2:
        pytest.skip(f"the kernel of {subject.name} is not built: the codec would search such a hole for minutes")
    home = tmp_path / "journal"
    data = subject.claiming(claim)
    path = subject.lay_out(REAL_DISK, home, data)
    with path.open("r+b") as file:
        file.truncate(len(data) + size)
    try_with_little_memory(subject, home, 40 * MEBIBYTE, MOST_SECONDS)


@pytest.mark.torture
def test_hole_of_two_gibibytes_is_checked_with_little_memory(subject: Subject, tmp_path: Path) -> None:
    signal.alarm(0)  # two gibibytes are read several times
    data = subject.claiming(2**31 - 1)
    path = subject.lay_out(REAL_DISK, tmp_path / "journal", data)
    with path.open("r+b") as file:
        file.truncate(2**31 + len(data))
    try_with_little_memory(subject, tmp_path / "journal", 40 * MEBIBYTE, 600)
