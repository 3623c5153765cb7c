"""Journals for tests of the pipeline: sound ones, damaged ones, and some that cannot be opened."""

from __future__ import annotations

import random
from pathlib import Path

from logwright.core.bytes.outcome import Damage
from logwright.sej import Reader, Writer


def fill(directory: Path, count: int, *, segment_size: int = 20_000, seed: int = 1) -> Path:
    dice = random.Random(seed)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            timestamp = dice.choice([None, -1, number * 1_000_000_007])
            writer.append(dice.randbytes(dice.randrange(300)), b"%d" % (number % 7), number % 3, timestamp)
    return directory


def damage(directory: Path, number: int) -> Damage:
    """Spoil one message; what a reader says about it."""
    place = list(Reader(directory).scan())[number]
    assert not isinstance(place, Damage)
    path = directory / place.file
    data = bytearray(path.read_bytes())
    data[place.span.start : place.span.start + 20] = b"\xff" * 20
    path.write_bytes(data)
    (found,) = [item for item in Reader(directory).messages(mode="permissive") if isinstance(item, Damage)]
    return found


def tear(directory: Path) -> None:
    """Leave the last message incomplete, as a crash does."""
    last = Reader(directory).segments()[-1].path
    last.write_bytes(last.read_bytes()[:-5])


def unreadable(directory: Path) -> Path:
    """A root of shards that cannot be opened: two numbers of shards for one prefix."""
    for name in ("web.1.000", "web.1.001", "web.2.000"):
        fill(directory / name, 3)
    return directory
