"""The compiled kernel returns the same results as the codec for the same calls on the same bytes, even if damaged."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tests.contract.subject import Subject
from tests.contract.subjects import SUBJECTS
from tests.support.damage import bit_flips, fuzzed, hostile_fields, noise, torn_tails

EACH_SUBJECT = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


@pytest.fixture(autouse=True)
def _needs_two(request: pytest.FixtureRequest) -> None:
    subject: Subject = request.getfixturevalue("subject")
    if len(subject.twins()) < 2:
        pytest.skip(f"the kernel of {subject.name} is not built: there is nothing to compare")


@pytest.fixture
def whole(subject: Subject) -> bytes:
    return subject.encode(subject.records(7, 4))


def test_twins_agree_on_whole_records(subject: Subject) -> None:
    chance = random.Random(1)
    for seed in range(300):
        subject.assert_twins_agree(subject.encode(subject.records(seed, seed % 9)), chance)


def test_twins_agree_on_torn_tails(subject: Subject, whole: bytes) -> None:
    chance = random.Random(2)
    for damaged in torn_tails(whole):
        subject.assert_twins_agree(damaged.data, chance)


def test_twins_agree_on_flipped_bits(subject: Subject, whole: bytes) -> None:
    chance = random.Random(3)
    for damaged in bit_flips(whole, 0, min(400, len(whole))):
        subject.assert_twins_agree(damaged.data, chance)


def test_twins_agree_on_hostile_lengths(subject: Subject, whole: bytes) -> None:
    chance = random.Random(4)
    for damaged in hostile_fields(whole, subject.length_fields(subject.records(7, 4))):
        for _ in range(4):
            subject.assert_twins_agree(damaged.data, chance)


def test_twins_agree_on_mixed_damage(subject: Subject, whole: bytes) -> None:
    chance = random.Random(5)
    for damaged in fuzzed(whole, 6000, seed=5):
        subject.assert_twins_agree(damaged.data, chance)


def test_twins_agree_on_noise(subject: Subject) -> None:
    chance = random.Random(6)
    for seed in range(2000):
        subject.assert_twins_agree(noise(seed % 97, seed), chance)


@EACH_SUBJECT
@settings(derandomize=True, deadline=None, database=None, max_examples=200)
@given(data=strategies.data(), seed=strategies.integers(0, 2**32))
def test_twins_agree_on_any_records_followed_by_any_bytes(subject: Subject, data: Any, seed: int) -> None:
    encoded = subject.encode(data.draw(subject.strategy())) + data.draw(strategies.binary(max_size=60))
    subject.assert_twins_agree(encoded, random.Random(seed))
