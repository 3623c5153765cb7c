"""Databases of pages: a commit that changes 4 KiB of one page, durable and not, and opening a long journal.

The peer is SQLite in WAL mode. Each update of a blob of 4 KiB is a commit: with synchronous=FULL, which syncs its log
for each commit, and with synchronous=OFF, which never syncs. Durable commits alternate: one of SQLite, one of ours, and
one of ours that also syncs its table. Both change a table of 100 blobs, or the beginnings of 100 pages. Both use the
same places, so both write the same amount when a log or journal of 4 MiB is written to the table. SQLite then reuses
its log, as it does in practice.

The limit is to store the same bytes and nothing else: 8 KiB, the bytes before and after, after those of the last
commit, and 4 KiB in the table. For durable commits, the limit is to write and sync the former. SQLite's log does not
grow; a journal grows, and needs new memory and new space on the disk.
"""

from __future__ import annotations

import itertools
import mmap
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.core.io.disk import REAL_DISK
from logwright.yeltsin.bytes.layout import MODIFICATION, MODIFICATION_HEAD, OPERATION_HEAD, OPERATION_HEAD_BYTES
from logwright.yeltsin.bytes.table_layout import FIRST_PAGE, PAGE_BYTES
from logwright.yeltsin.files.opening import open_journal
from logwright.yeltsin.model.database import AHEAD_BYTES, NOTHING_BYTES, Database
from logwright.yeltsin.model.transaction_log import TransactionLog

CHANGE_BYTES = 4096
RECORD_BYTES = NOTHING_BYTES + OPERATION_HEAD_BYTES + MODIFICATION_HEAD.size + 2 * CHANGE_BYTES
"""The size of a commit in the journal."""
PAGES = 100
CHECKPOINT_BYTES = 4 << 20
"""The size that SQLite's log also reaches before it is written to the database: 1,000 pages."""
OPEN_NS = 1000.0
"""The longest time to open a journal, for each of its transactions."""
LIMIT, DURABLE_LIMIT = "the same bytes stored", "the same bytes, one sync"
CHANGES = [os.urandom(CHANGE_BYTES) for _ in range(61)]

Act = Callable[[], object]


@contextmanager
def ours(place: Path, sync: str, checkpoint_bytes: int) -> Iterator[Act]:
    """A database, and a commit of one change."""
    home = place / f"database-{sync}-{checkpoint_bytes}"
    home.mkdir()
    with Database(home / "t.ydb", home / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes) as db:
        with db.transaction() as tx:
            pages = [tx.allocate() for _ in range(PAGES)]
        numbers = itertools.count()

        def commit() -> None:
            number = next(numbers)
            db.modify(pages[number % PAGES], 0, CHANGES[number % len(CHANGES)])

        yield commit
    shutil.rmtree(home)


@contextmanager
def bare(place: Path, *, syncs: bool) -> Iterator[Act]:
    """Two files, and the bytes that a commit stores in them."""
    names = [place / f"bare-{syncs}.{ending}" for ending in ("jrnl", "ydb")]
    journal, table = (os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in names)
    os.truncate(table, PAGES * PAGE_BYTES)
    pages = mmap.mmap(table, PAGES * PAGE_BYTES)
    pages[:] = bytes(len(pages))
    zeros, data = bytes(2 * AHEAD_BYTES), os.urandom(RECORD_BYTES)
    os.pwrite(journal, zeros, 0)
    log, end, numbers = mmap.mmap(journal, len(zeros)), 0, itertools.count()

    def commit() -> None:
        nonlocal log, end
        number = next(numbers)
        if end + RECORD_BYTES > len(log):
            os.pwrite(journal, zeros, len(log))
            log.resize(len(log) + len(zeros))
        if syncs:
            os.pwrite(journal, data, end)
            os.fdatasync(journal)
        else:
            log[end : end + RECORD_BYTES] = data
            place = number % PAGES * PAGE_BYTES
            pages[place : place + CHANGE_BYTES] = CHANGES[number % len(CHANGES)]
        end += RECORD_BYTES

    yield commit
    for file in (journal, table):
        os.close(file)
    for name in names:
        name.unlink()


@contextmanager
def sqlite(place: Path, synchronous: str) -> Iterator[Act]:
    """A table of blobs in SQLite, and an update of one."""
    path = place / f"{synchronous}.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table pages (number integer primary key, data blob)")
    connection.executemany("insert into pages values (?, zeroblob(4096))", [(number,) for number in range(PAGES)])
    connection.execute(f"pragma synchronous = {synchronous}")
    numbers = itertools.count()

    def commit() -> None:
        number = next(numbers)
        change = CHANGES[number % len(CHANGES)]
        connection.execute("update pages set data = ? where number = ?", (change, number % PAGES))

    yield commit
    connection.close()
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def durable(place: Path, seconds: float) -> dict[str, float]:
    """Commits per second, in turns."""
    with (
        sqlite(place, "full") as peer,
        ours(place, "always", CHECKPOINT_BYTES) as lazy,
        ours(place, "always", 0) as strict,
        bare(place, syncs=True) as limit,
    ):
        things = {"SQLite, WAL, FULL": peer, "always, checkpoints": lazy, "always": strict, DURABLE_LIMIT: limit}
        for _ in range(2 * CHECKPOINT_BYTES // (2 * CHANGE_BYTES) if seconds > 1 else 1):
            peer()  # until its log has reached its full length
        clocks = {name: Clock() for name in things}
        count = 0
        while sum(clock.seconds for clock in clocks.values()) < seconds * len(things):
            for name, act in things.items():
                with clocks[name].running():
                    act()
            count += 1
        return {name: count / clock.seconds for name, clock in clocks.items()}


def not_durable(opened: AbstractContextManager[Act], count: int) -> float:
    """CPU time of one commit, in nanoseconds."""
    clock = Clock(processor=True)
    with opened as act, clock.running():
        for _ in range(count):
            act()
    return clock.per_item_ns(count)


def long_journal(place: Path, count: int) -> Path:
    """A journal of this many transactions that change eight bytes each, and its table."""
    home = place / "long"
    home.mkdir()
    with Database(home / "t.ydb", home / "t.jrnl", sync="none"):
        pass
    log = TransactionLog(open_journal(REAL_DISK, home / "t.jrnl"), ahead_bytes=1 << 20, syncs=False)
    head = OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 16) + MODIFICATION_HEAD.pack(FIRST_PAGE, 0, 8)
    for number in range(count):
        log.append(number, head + number.to_bytes(8, "little") + (number + 1).to_bytes(8, "little"))
    log.complete(log.last)
    log.trim()
    log.close()
    return home


def opening(home: Path, count: int) -> float:
    clock = Clock(processor=True)
    with clock.running():
        db = Database(home / "t.ydb", home / "t.jrnl", sync="none")
    assert db.redone == ()
    db.close()
    return clock.per_item_ns(count)


def run(plan: Plan) -> list[Figure]:
    """Compare with SQLite, and compare opening with its limit."""
    place, count = plan.place, plan.amount(30_000, 3_000)
    transactions = plan.amount(1_000_000, 50_000)
    home = long_journal(place, transactions)
    things = {
        "SQLite, WAL, OFF": lambda: not_durable(sqlite(place, "off"), count),
        "none": lambda: not_durable(ours(place, "none", 0), count),
        LIMIT: lambda: not_durable(bare(place, syncs=False), count),
        "open": lambda: opening(home, transactions),
    }
    turns = Turns(plan.rounds).run(things, lambda: durable(place, 0.2 if plan.quick else 2.0))
    shutil.rmtree(home)
    figures = [
        Figure("yeltsin", f'commit of 4 KiB, sync="{what}"', turns.median(what), turns.median(peer), "/s", peer, goal,
               smaller_is_better=False, spread=turns.results[what])
        for what, peer, goal in (
            ("always, checkpoints", "SQLite, WAL, FULL", 1.0),
            ("always, checkpoints", DURABLE_LIMIT, None),
            ("always", "SQLite, WAL, FULL", None),  # also syncs the table, which SQLite does only now and then
        )
    ]  # fmt: skip
    figures += [
        Figure("yeltsin", what, turns.median(name), peer, "ns", peer_name, goal, spread=turns.results[name])
        for what, name, peer, peer_name, goal in (
            ('commit of 4 KiB, sync="none"', "none", turns.median("SQLite, WAL, OFF"), "SQLite, WAL, OFF", 5.0),
            ('commit of 4 KiB, sync="none"', "none", turns.median(LIMIT), LIMIT, None),
            ("open, per transaction", "open", OPEN_NS, "the limit", 1.0),
        )
    ]
    return figures
