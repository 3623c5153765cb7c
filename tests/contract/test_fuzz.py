"""Fifty thousand bad inputs and more for every decoder: each returns a result or raises one of our errors."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError
from tests.contract.subject import Subject
from tests.support.counts import COUNTS
from tests.support.damage import Damaged, fuzzed
from tests.support.replay import each

INPUTS = 50_000
PARTS = 4


def inputs(subject: Subject, number: int, seed: int) -> Iterator[Damaged]:
    """Nine mutations of valid bytes for each input of pure noise."""
    seeds = subject.fuzz_seeds()
    share = number * 9 // 10 // len(seeds)
    for which, valid in enumerate(seeds):
        yield from fuzzed(valid, share, seed=1000 * seed + which)
    yield from each(noises(number - share * len(seeds), seed))


def noises(number: int, seed: int) -> Iterator[tuple[str, Damaged]]:
    chance = random.Random(seed)
    for case in range(number):
        label = f"noise {seed}/{case}"
        yield label, Damaged(label, 0, chance.randbytes(chance.choice((0, 3, 18, 22, 26, 40, 90, 300))))


def fuzz(subject: Subject, number: int, seed: int) -> None:
    decoders = subject.decoders()
    count = 0
    for damaged in inputs(subject, number, seed):
        for name, decoder in decoders.items():
            try:
                decoder(damaged.data)
            except (Malformed, LogwrightError):
                continue
            except Exception as error:
                raise AssertionError(f"{name} raised {error!r}") from error
        count += 1
    COUNTS.add("fuzzed inputs", count, subject.name)


@pytest.mark.parametrize("part", range(PARTS))
def test_fuzzed_bytes_return_a_result_or_raise_our_error(subject: Subject, part: int) -> None:
    fuzz(subject, INPUTS // PARTS, part)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(100, 120))
def test_many_fuzzed_bytes_return_a_result_or_raise_our_error(subject: Subject, part: int) -> None:
    fuzz(subject, INPUTS, part)
