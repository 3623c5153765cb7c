"""A process that makes transactions for ever and tells how many it has made, to be killed by a test.

The transaction of a number writes that number into all pages but the oldest, one of them new, and removes the oldest
when there are four: so the numbers in the pages tell how many transactions have happened, and whether one did in part.
"""

from __future__ import annotations

import itertools
import struct
from multiprocessing.connection import Connection
from pathlib import Path

from logwright.formats.yeltsin.database import Database
from logwright.formats.yeltsin.table_layout import PAGE_DATA_BYTES

COUNT = struct.Struct("<Q")


def change(db: Database, number: int) -> None:
    """The transaction of this number."""
    with db.transaction() as tx:
        oldest, *others = tx.pages()
        data = COUNT.pack(number + 1)
        for page in (*others, tx.allocate()):
            tx.modify(page, 0, data * (1 + number % 50))
            tx.modify(page, PAGE_DATA_BYTES - COUNT.size, data)
        if len(others) > 2:
            tx.remove(oldest)


def numbers_in(db: Database) -> set[int]:
    """The numbers that all pages hold, but for the oldest one, in which there may be an earlier one."""
    _, *pages = db.pages()
    places = [(page, offset) for page in pages for offset in (0, PAGE_DATA_BYTES - COUNT.size)]
    return {COUNT.unpack(db.read(page, offset, COUNT.size))[0] for page, offset in places}


def change_for_ever(
    directory: str, number: int, sync: str, checkpoint_bytes: int, acknowledgements: Connection
) -> None:
    """Make transaction after transaction, and send how many are acknowledged."""
    home = Path(directory)
    db = Database.open(home / "t.ydb", home / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes)
    for count in itertools.count(number):
        change(db, count)
        acknowledgements.send_bytes(COUNT.pack(count + 1))
