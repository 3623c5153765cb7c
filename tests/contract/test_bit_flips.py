"""One flipped bit: never a wrong exception, never an unreported loss; and how often it stays undetected.

None of the formats has a checksum, so most flips in a value cannot be detected. The share of undetected flips is
published, and this test measures it.
"""

from __future__ import annotations

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.errors import DamagedJournal, LogwrightError
from tests.contract.subject import HOME, FlipSample, Record, Subject, journal_files, read_prefix
from tests.contract.subjects import SUBJECTS
from tests.support.counts import COUNTS
from tests.support.damage import bit_flips
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

PARTS = 4
SAMPLES = [
    pytest.param(subject, sample, id=f"{subject.name}, {sample.label}")
    for subject in SUBJECTS.values()
    for sample in subject.flip_samples()
]


def disk_with(subject: Subject, data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    subject.lay_out(disk, HOME, data)
    disk.settle()
    return disk


def check(subject: Subject, data: bytes, records: list[Record]) -> bool:
    """Read and recover a journal with a flipped bit; whether the flip was detected."""
    disk = disk_with(subject, data)
    found = list(subject.read(disk, HOME, "permissive"))
    damages = [item for item in found if isinstance(item, Damage)]
    kept = [item for item in found if not isinstance(item, Damage)]
    for damage in damages:
        assert 0 <= damage.start <= damage.end <= len(data)
        assert damage.reason
    if not damages:
        assert subject.encode(kept) == data, "some bytes went without a word"
    assert list(subject.read(disk, HOME, "dropmalformed")) == kept

    prefix, error = read_prefix(subject, disk, HOME)
    assert prefix == kept[: len(prefix)]
    assert error is None or isinstance(error, DamagedJournal)
    if error is None:
        assert [damage.kind for damage in damages] in ([], ["torn_tail"])
        assert prefix == kept
    assert not disk.operations, "reading changed something"
    check_recovery(subject, disk, kept)
    return bool(damages) or kept != records


def check_recovery(subject: Subject, disk: SimulatedDisk, kept: list[Record]) -> None:
    """A recovery cuts at most a torn tail, and loses no readable record."""
    before = journal_files(subject, read_tree(disk, HOME))
    try:
        recovered = subject.recover(disk, HOME)
    except LogwrightError:
        assert journal_files(subject, read_tree(disk, HOME)) == before, "damage was cut"
        return
    if recovered.cut is None:
        assert journal_files(subject, read_tree(disk, HOME)) == before
    after = [item for item in subject.read(disk, HOME, "permissive") if not isinstance(item, Damage)]
    assert after == kept


@pytest.mark.parametrize("part", range(PARTS))
def test_flipped_bit_is_reported_or_every_byte_stays_in_a_record(subject: Subject, part: int) -> None:
    records = subject.records(11, 12)
    data = subject.encode(records)
    first, last = len(data) * part // PARTS, len(data) * (part + 1) // PARTS
    for damaged in bit_flips(data, first, last):
        check(subject, damaged.data, records)
        COUNTS.add("bit flips", 1, subject.name)


@pytest.mark.parametrize(("subject", "sample"), SAMPLES)
def test_share_of_undetected_flips_is_as_published(subject: Subject, sample: FlipSample) -> None:
    data, records = subject.encode(sample.records), sample.records
    ends = subject.ends(records)
    noticed = total = 0
    # The middle record represents all of them: it has records before and after it.
    middle = len(records) // 2
    for damaged in bit_flips(data, ends[middle], ends[middle + 1]):
        disk = disk_with(subject, damaged.data)
        found = list(subject.read(disk, HOME, "permissive"))
        noticed += any(isinstance(item, Damage) for item in found)
        total += 1
    COUNTS.add("bit flips", total, subject.name)
    assert 100 * (total - noticed) / total == pytest.approx(sample.missed_percent, abs=0.5)
