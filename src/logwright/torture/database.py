"""A database whose transactions are numbered.

The n-th transaction writes n into all pages except the oldest, one of them new, and removes the oldest if there are
four. So the numbers in the pages show how many transactions have happened, and whether one happened in part.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

from .. import yeltsin
from ..core.io.disk import Disk
from ..core.read.report import Report
from .exercises import Numbered, Task, Wrong, check_sound

COUNT: Final = struct.Struct("<Q")
TABLE: Final = "t.ydb"
JOURNAL: Final = "t.jrnl"
_END: Final = 65_517 - COUNT.size
"""Where the last bytes of a page are, which have the number as well."""
_CHECKPOINT_BYTES: Final = (0, 20_000)


def change(db: yeltsin.Database, number: int) -> None:
    """Make the transaction of this number, from 0 on."""
    with db.transaction() as tx:
        oldest, *others = tx.pages()
        data = COUNT.pack(number + 1)
        for page in (*others, tx.allocate()):
            tx.modify(page, 0, data * (1 + number % 50))
            tx.modify(page, _END, data)
        if len(others) > 2:
            tx.remove(oldest)


def numbers_in(db: yeltsin.Database) -> set[int]:
    """The numbers in all pages, except for the oldest page, which may have an earlier one."""
    _, *pages = db.pages()
    found: set[int] = set()
    for page in pages:
        (number,) = COUNT.unpack(db.read(page, 0, COUNT.size))
        found.update(COUNT.unpack(db.read(page, _END, COUNT.size)))
        copies = db.read(page, 0, COUNT.size * (1 + (number - 1) % 50))
        found.update(value for (value,) in COUNT.iter_unpack(copies))
    return found


class DatabaseExercise(Numbered):
    """A yeltsin database; every other one has checkpoints."""

    format = "yeltsin"

    def open(self, task: Task, disk: Disk) -> yeltsin.Database:
        checkpoint_bytes = _CHECKPOINT_BYTES[task.seed % 2]
        task.home.mkdir(exist_ok=True)
        return yeltsin.Database(
            task.home / TABLE, task.home / JOURNAL, sync=task.policy, checkpoint_bytes=checkpoint_bytes, disk=disk
        )

    def write(self, journal: Any, task: Task, number: int) -> None:
        change(journal, number)

    def verify(self, home: Path) -> Report:
        with yeltsin.Reader(home / JOURNAL) as reader:
            return reader.verify()

    def count(self, home: Path, task: Task) -> int:
        with yeltsin.Database(home / TABLE, home / JOURNAL) as db:
            check_sound(db.verify())
            numbers = numbers_in(db)
        if len(numbers) > 1:
            raise Wrong(f"a transaction happened in part: its pages are of the transactions {sorted(numbers)}")
        return max(numbers, default=0)

    def recount(self, home: Path, task: Task, count: int) -> None:
        with yeltsin.Database(home / TABLE, home / JOURNAL) as db:
            if db.recovered is not None or db.redone:
                raise Wrong("the database was recovered twice")
            found = numbers_in(db)
        if found != {count}:
            raise Wrong(f"{count} transactions were there before it was opened again, and then {sorted(found)}")
