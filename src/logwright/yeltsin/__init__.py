"""yeltsin: journals of transactions on the pages of a table, as YeltsinDB writes them, and the table itself.

    from logwright import yeltsin

    with yeltsin.Database("t.ydb", "t.jrnl") as db:                 # a table and its journal, in one process at a time
        with db.transaction() as tx:                                # happens as a whole, or not at all
            page = tx.allocate()
            tx.modify(page, 0, b"hello")

    with yeltsin.Reader("t.jrnl") as reader:                        # reads what is there, needs no lock
        for transaction in reader:
            print(transaction.outcome, transaction.operations)
        print(reader.pages().pages)                                 # the known bytes of each page

    with yeltsin.TransactionJournal("u.jrnl", sync="always") as journal:   # for a storage of your own
        offset = journal.append([yeltsin.Modify(30, 0, b"old", b"new")])   # on the disk when it returns
        journal.complete(offset)                                           # once your storage has it

`JournalsReader` reads all journals of a directory. Loading this package loads neither pyarrow nor pyspark.
"""

from ..core.io.durability import ALWAYS, NONE, Sync, interval
from .bytes.records import Allocate, Modify, Operation, Remove, Transaction
from .files.reader import JournalsReader, Reader
from .files.scanner import Scanner
from .files.writer import TransactionJournal, Writer
from .format import Recovery, looks_like, open_reader, recover
from .model.database import Database
from .model.replay import PagesState, Ranges
from .model.table import Table

__all__ = [
    "ALWAYS",
    "NONE",
    "Allocate",
    "Database",
    "JournalsReader",
    "Modify",
    "Operation",
    "PagesState",
    "Ranges",
    "Reader",
    "Recovery",
    "Remove",
    "Scanner",
    "Sync",
    "Table",
    "Transaction",
    "TransactionJournal",
    "Writer",
    "interval",
    "looks_like",
    "open_reader",
    "recover",
]
