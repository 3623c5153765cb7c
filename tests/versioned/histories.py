"""Random histories of stores: clocks that stand still, deletions, keys that return, and rotations at any moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from logwright.versioned.bytes.records import Entry
from tests.versioned.samples import START, Model

KEYS = ("a", "b", "ä key", "", "key of more than fifteen bytes")
VALUES: tuple[Any, ...] = (0, 1, 1.0, True, "x", "", "ö" * 20, [1, {"n": None}], {"deep": [[]]}, None, None)


def random_history(
    dice: random.Random, changes: int, initialized: int = START, rotations: float = 0.1, tick_ns: int = 1
) -> Model:
    """A store of `changes` changes; the clock stands still, or advances a few ticks."""
    model = Model(initialized)
    for _ in range(changes):
        model.change(Entry(model.now + tick_ns * dice.choice((0, 0, 1, 7)), dice.choice(KEYS), dice.choice(VALUES)))
        if dice.random() < rotations:
            model.rotate()
    return model


def random_stores(root: Path, count: int, dice: random.Random) -> dict[Path, Model]:
    """Stores side by side in a few directories below a root, some a directory deeper, by the paths of their journals.

    Each begins a little later than the others, so there are times at which some of them do not exist yet.
    """
    found = {}
    for number in range(count):
        directory = root / ("", "east", "east/berlin")[number % 3]
        model = random_history(dice, dice.randrange(40), START + dice.randrange(30))
        found[model.write(directory, f"store {number}")] = model
    return found
