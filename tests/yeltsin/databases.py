"""Stories of databases for tests: transactions as lists of words, and their effects on a dictionary of pages.

    "modify 0 10 400"   write 400 bytes of a pattern at 10 into the page that was made first
    "allocate"          a page; pages are numbered in the order in which the table's file has them
    "remove 1"          the page with this number
    "fail"              raise, so that the transaction is rolled back

A `Model` is a naive database: the pages in the order of their list, the free pages, and the data of each.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logwright.core.io.disk import Disk
from logwright.errors import LogwrightError
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.transaction import Transaction
from tests.yeltsin.tables import page_at

HOME = Path("/database")
TABLE, JOURNAL = HOME / "t.ydb", HOME / "t.jrnl"
EMPTY = bytes(PAGE_DATA_BYTES)


class Undone(Exception):
    """The exception of a transaction that is to be rolled back."""


@functools.cache
def pattern(number: int, size: int) -> bytes:
    """Bytes that identify their writer, without zeros."""
    return bytes((number * 29 + at // 64 * 7 + 1) % 251 + 1 for at in range(size))


@dataclass
class Model:
    """The contents of a database: a list of pages, a list of free ones, and the data of each page that ever existed."""

    pages: list[int] = field(default_factory=lambda: [page_at(0)])
    free: list[int] = field(default_factory=list)
    data: dict[int, bytes] = field(default_factory=lambda: {page_at(0): EMPTY})

    def copy(self) -> Model:
        return Model(list(self.pages), list(self.free), dict(self.data))

    def allocate(self) -> int:
        page = self.free.pop() if self.free else page_at(len(self.data))
        self.pages.append(page)
        self.data[page] = EMPTY
        return page

    def modify(self, page: int, offset: int, data: bytes) -> None:
        old = self.data[page]
        self.data[page] = old[:offset] + data + old[offset + len(data) :]

    def remove(self, page: int) -> None:
        if len(self.pages) > 1:
            self.pages.remove(page)
            self.free.append(page)

    def is_in(self, database: Database) -> bool:
        """Whether a database has exactly these contents; the data of free pages does not matter."""
        return (
            database.pages() == self.pages
            and database.free_pages() == self.free[::-1]
            and all(database.read(page) == self.data[page] for page in self.pages)
        )


Step = Transaction | Model


def act(step: Step, action: str, number: int) -> None:
    """Apply an action to a transaction or to a model."""
    verb, *words = action.split()
    if verb == "allocate":
        step.allocate()
    elif verb == "modify":
        step.modify(page_at(int(words[0])), int(words[1]), pattern(number, int(words[2])))
    elif verb == "remove":
        step.remove(page_at(int(words[0])))
    else:
        raise Undone


@dataclass
class Story:
    """Consecutive transactions, and the state after each."""

    name: str
    transactions: list[list[str]]
    checkpoint_bytes: int = 0
    creates: bool = False
    """Whether the database does not exist before it."""

    def __post_init__(self) -> None:
        self.states = [Model()]
        for number, actions in enumerate(self.transactions):
            model = self.states[-1].copy()
            try:
                for action in actions:
                    act(model, action, number)
            except Undone:
                model = self.states[-1]
            self.states.append(model)

    def __str__(self) -> str:
        return self.name

    def opened(self, disk: Disk, sync: str = "always") -> Database:
        return Database(TABLE, JOURNAL, sync=sync, checkpoint_bytes=self.checkpoint_bytes, disk=disk)

    def run(self, disk: Disk, done: Callable[[int], None], sync: str = "always") -> None:
        """Make the transactions, and report how many are done."""
        database = self.opened(disk, sync)
        try:
            for number, actions in enumerate(self.transactions):
                with contextlib.suppress(Undone), database.transaction() as transaction:
                    for action in actions:
                        act(transaction, action, number)
                done(number + 1)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                database.close()
            raise
        database.close()
