"""A last write that was torn at any byte: cut there, or followed by zeros or noise.

Recovery keeps exactly the whole records, cuts off the rest, keeps a copy of it, and reports it. Reading changes
nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import pytest

from logwright.core.bytes.outcome import Damage
from tests.contract.scenarios import assert_nothing_lost
from tests.contract.subject import HOME, Record, Recovered, Subject
from tests.support.counts import COUNTS
from tests.support.damage import Damaged, garbage_after, torn_tails
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

SEEDS = range(11)
"""One journal each; a test for each, so that workers share them."""


class Journal(NamedTuple):
    """Some records and their bytes, the position where each begins and the end of all; and a record to follow."""

    records: list[Record]
    data: bytes
    ends: list[int]
    following: Record

    @classmethod
    def of(cls, subject: Subject, seed: int, count: int) -> Self:
        *records, following = subject.records(seed, count + 1)
        return cls(records, subject.encode(records), subject.ends(records), following)


def check(subject: Subject, damaged: Damaged, journal: Journal) -> None:
    """Read, recover, read, and continue writing."""
    expected, end = what_is_left(subject, damaged, journal)
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    path = subject.lay_out(disk, HOME, subject.torn_file(damaged.data))
    disk.settle()
    before = read_tree(disk, HOME)
    torn = Damage(str(path.relative_to(HOME)), end, len(damaged.data), "", "torn_tail")

    assert list(subject.read(disk, HOME)) == expected
    found = list(subject.read(disk, HOME, "permissive"))
    assert found[: len(expected)] == expected
    assert [place(damage) for damage in found[len(expected) :]] == ([place(torn)] if torn.size else [])
    assert not disk.operations, "reading changed something"

    recovered = subject.recover(disk, HOME)
    assert (recovered.cut and place(recovered.cut)) == (place(torn) if torn.size else None)
    assert_nothing_lost(subject, disk, before, read_tree(disk, HOME), recovered)
    assert list(subject.read(disk, HOME, "permissive")) == expected
    assert subject.recover(disk, HOME) == Recovered()

    following = [*journal.records, journal.following][min(len(expected), len(journal.records))]
    session = subject.open_session(disk, HOME)
    session.append(following)
    session.close()
    assert list(subject.read(disk, HOME)) == [*expected, following]


def what_is_left(subject: Subject, damaged: Damaged, journal: Journal) -> tuple[list[Record], int]:
    """The records that are still whole, and the position of their end. Zeros in place of zeros tear nothing."""
    whole = sum(journal.data[:end] == damaged.data[:end] for end in journal.ends[1:])
    if subject.notices_torn_values:
        return journal.records[:whole], journal.ends[whole]
    scanned = subject.whole(damaged.data)
    assert scanned.records[:whole] == journal.records[:whole]
    return scanned.records, scanned.end


def place(damage: Damage) -> tuple[str, int, int, str]:
    return damage.file, damage.start, damage.end, damage.kind


def tear_everywhere(subject: Subject, seed: int, count: int) -> None:
    journal = Journal.of(subject, seed, count)
    number = 0
    start = max(journal.ends[subject.whole_before_torn], subject.head_bytes)
    for damaged in torn_tails(journal.data, start=start, seed=seed):
        check(subject, damaged, journal)
        number += 1
    COUNTS.add("torn tails", number, subject.name)


@pytest.mark.parametrize("seed", SEEDS)
def test_tail_torn_at_any_byte_is_cut_kept_and_reported(subject: Subject, seed: int) -> None:
    tear_everywhere(subject, seed, 6)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
def test_tail_torn_at_any_byte_with_many_seeds(subject: Subject, seed: int) -> None:
    tear_everywhere(subject, seed, 12)


def test_bytes_after_the_last_record_are_a_torn_tail(subject: Subject) -> None:
    number = 0
    least = max(bool(subject.head_bytes), subject.whole_before_torn)
    for seed in range(6):
        journal = Journal.of(subject, seed, seed + least)
        for damaged in garbage_after(journal.data, [*range(1, 60), 511, 512, 513, 4096], seed=seed):
            check(subject, damaged, journal)
            number += 1
    COUNTS.add("torn tails", number, subject.name)
