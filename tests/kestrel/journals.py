"""Random queues: operations of every kind in files of every kind, and their rows in tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.core.format import find_format
from logwright.kestrel.bytes.records import DIALECT_OF, FIELDS, OPS, Operation
from logwright.kestrel.files.writer import Writer
from tests.kestrel.samples import encoded
from tests.support.materializing import record_rows

TIMES = (0, 1, -1, 1_300_000_000_123, 10**13, 2**62, -(2**63), 2**63 - 1)


def random_operation(dice: random.Random, dialect: str, ops: list[str] | None = None) -> Operation:
    """Any operation of a dialect, with the ids of a small queue, and with every time that a field can hold."""
    op = dice.choice(ops or [op for op in OPS if DIALECT_OF.get(op, dialect) == dialect])
    given: dict[str, Any] = {
        "xid": dice.choice((1, 2, 3, 4, 5, 6, dice.randrange(-9, 9), 2**31 - 1, -(2**31))),
        "count": dice.choice((0, 1, 2)),
        "added": dice.choice(TIMES),
        "expires": dice.choice((None, 5000)) if op == "add" else dice.choice((None, *TIMES[1:])),
        "data": dice.randbytes(dice.choice((0, 1, 10, 100))),
    }
    return Operation(op, **{name: given[name] for name in FIELDS[op]})


def lively_operations(dice: random.Random, dialect: str, count: int) -> list[Operation]:
    """Operations of a queue in use, with some that do not fit: a state dump ends a file too soon."""
    known = [op for op in OPS if DIALECT_OF.get(op, dialect) == dialect and op != "state_dump"]
    return [random_operation(dice, dialect, [*known, "addx", "addx", "addx", "remove_tentative"]) for _ in range(count)]


def random_queue(directory: Path, name: str, dice: random.Random, dialect: str, *, lively: bool = False) -> Path:
    """The files of a queue: rotated ones, perhaps a pack that still has its suffix, perhaps no newest file."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = sorted(dice.sample(range(1, 10**6), dice.randrange(3)))
    files = [*(f"{name}.{number}" for number in numbers), name]
    for file in files[: None if dice.random() < 0.9 or len(files) == 1 else -1]:
        many = lively_operations(dice, dialect, dice.randrange(1, 80))
        if not lively:
            many = [random_operation(dice, dialect) for _ in range(dice.randrange(1, 80))]
        (directory / file).write_bytes(encoded(many))
    return directory / name


def lived_queue(directory: Path, name: str, dice: random.Random, dialect: Any) -> Path:
    """A queue that was written to, rotated, packed and written to again."""
    path = directory / name
    with Writer(path, dialect=dialect) as writer:
        for _ in range(dice.randrange(2, 6)):
            for operation in lively_operations(dice, dialect, dice.randrange(40)):
                writer.append(operation)
            if dice.random() < 0.5:
                writer.rotate()
            if dice.random() < 0.3:
                writer.pack()
    return path


def records_of(path: Path) -> pa.Table:
    """What the table `queue_operations` has of a queue or of a directory of queues."""
    return record_rows(find_format("kestrel"), path)
