"""A last write that got as far as any byte: cut there, or zeros or noise behind it.

Recovery keeps exactly the whole records, cuts the rest, keeps what it cut, and says so; reading alone changes nothing.
"""

from __future__ import annotations

import pytest

from logwright.core.outcome import Damage
from tests.contract.scenarios import assert_nothing_lost
from tests.contract.subject import HOME, Record, Recovered, Subject
from tests.support.counts import COUNTS
from tests.support.damage import Damaged, garbage_behind, torn_tails
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

SEEDS = range(11)
"""One journal each; a test for each, so that workers share them."""


def check(subject: Subject, damaged: Damaged, seed: int, count: int) -> None:
    """Read, recover, read, and go on writing."""
    records = subject.records(seed, count + 1)
    data, ends = subject.encode(records[:count]), subject.ends(records[:count])
    expected, end = what_is_left(subject, damaged, data, records[:count], ends)
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

    following = records[min(len(expected), count)]
    session = subject.open_session(disk, HOME)
    session.append(following)
    session.close()
    assert list(subject.read(disk, HOME)) == [*expected, following]


def what_is_left(
    subject: Subject, damaged: Damaged, data: bytes, records: list[Record], ends: list[int]
) -> tuple[list[Record], int]:
    """The records that are still whole, and where they end. Zeros in place of zeros tear nothing."""
    whole = sum(data[:end] == damaged.data[:end] for end in ends[1:])
    if subject.notices_torn_values:
        return records[:whole], ends[whole]
    scanned = subject.scan("codec", damaged.data)
    assert scanned.records[:whole] == records[:whole]
    return scanned.records, scanned.end


def place(damage: Damage) -> tuple[str, int, int, str]:
    return damage.file, damage.start, damage.end, damage.kind


def tear_everywhere(subject: Subject, seed: int, count: int) -> None:
    records = subject.records(seed, count)
    number = 0
    for damaged in torn_tails(subject.encode(records), start=subject.ends(records)[0], seed=seed):
        check(subject, damaged, seed, count)
        number += 1
    COUNTS.add("torn tails", number, subject.name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tail_torn_at_any_byte_is_cut_kept_and_reported(subject: Subject, seed: int) -> None:
    tear_everywhere(subject, seed, 6)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_more_tails_torn_at_any_byte(subject: Subject, seed: int) -> None:
    tear_everywhere(subject, seed, 12)


def test_what_lies_behind_the_last_record_is_a_torn_tail(subject: Subject) -> None:
    number = 0
    for seed in range(6):
        data = subject.encode(subject.records(seed, seed))
        for damaged in garbage_behind(data, [*range(1, 60), 511, 512, 513, 4096], seed=seed):
            check(subject, damaged, seed, seed)
            number += 1
    COUNTS.add("torn tails", number, subject.name)
