"""Interrupted calls of a database, and the invariants after them: `tests/contract/test_interrupts.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logwright.errors import Poisoned
from logwright.yeltsin.bytes.layout import COMPLETE
from logwright.yeltsin.bytes.records import Modify
from logwright.yeltsin.bytes.table_layout import FIRST_PAGE, PAGE_BYTES
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from tests.support.interrupts import Case, Interrupt

State = dict[int, bytes]
BEFORE: State = {FIRST_PAGE: b"one"}


class Try(NamedTuple):
    """A call of a database with one page, and the possible beginnings of its pages after it."""

    call: Callable[[Database], object]
    after: Callable[[Database], State] = lambda database: BEFORE
    ends: bool = False


def transact(database: Database, *, ends: Exception | None = None) -> None:
    with database.transaction() as transaction:
        page = transaction.allocate()
        transaction.modify(page, 0, b"two")
        transaction.modify(FIRST_PAGE, 0, b"1")
        if ends is not None:
            raise ends


def roll_back(database: Database) -> None:
    with suppress(ZeroDivisionError):
        transact(database, ends=ZeroDivisionError())


def remove(database: Database) -> None:
    with database.transaction() as transaction:
        page = transaction.allocate()
        transaction.modify(page, 0, b"two")
        transaction.remove(FIRST_PAGE)


def modify(database: Database) -> None:
    with database.transaction() as transaction:
        transaction.modify(FIRST_PAGE, 0, b"1")
        transaction.modify(FIRST_PAGE, 1, b"2")


def state_of(database: Database) -> State:
    return {page: database.read(page, 0, 3) for page in database.pages()}


TRIES = {
    "transaction": Try(transact, lambda database: {FIRST_PAGE: b"1ne", FIRST_PAGE + PAGE_BYTES: b"two"}),
    "transaction of modifications": Try(modify, lambda database: {FIRST_PAGE: b"12e"}),
    "modify": Try(lambda database: database.modify(FIRST_PAGE, 0, b"1"), lambda database: {FIRST_PAGE: b"1ne"}),
    "remove": Try(remove, lambda database: {FIRST_PAGE + PAGE_BYTES: b"two"}),
    "roll back": Try(roll_back),
    "checkpoint": Try(lambda database: database.checkpoint()),
    "sync": Try(lambda database: database.sync()),
    "close": Try(lambda database: database.close(), ends=True),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {"sync": "none"},
    ", synced": {"sync": "always"},
    ", with checkpoints": {"sync": "always", "checkpoint_bytes": 1000},
}


def opened(directory: Path, settings: dict[str, Any]) -> Database:
    return Database(directory / "table", directory / "journal", **settings)


def trial(found: Try, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    database = opened(directory, settings)
    database.modify(FIRST_PAGE, 0, b"one")
    if not interrupt(lambda: found.call(database)):
        if not found.ends:
            assert state_of(database) == found.after(database)
        database.close()
        return
    outcomes = [BEFORE, found.after(database)]
    if found.ends:
        with suppress(Poisoned):
            database.close()
    elif database.refusing:
        calls: list[Callable[[], object]] = [
            lambda: database.modify(FIRST_PAGE, 0, b"no"),
            lambda: transact(database),
            database.checkpoint,
        ]
        for call in calls:
            with pytest.raises(Poisoned, match="open"):
                call()
        database.close()
    else:
        now = state_of(database)
        assert now in outcomes
        page = min(now)
        database.modify(page, 2, b"!")
        outcomes = [{**now, page: now[page][:2] + b"!"}]
        database.close()
    with opened(directory, settings) as database:
        after = state_of(database)
        assert after in outcomes
        database.modify(min(after), 0, b"x")
    with opened(directory, settings) as database:
        assert state_of(database) == {**after, min(after): b"x" + after[min(after)][1:]}


def opening(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    with opened(directory, settings) as database:
        database.modify(FIRST_PAGE, 0, b"one")
    if not interrupt(lambda: opened(directory, settings)) or interrupt.result is not None:
        interrupt.result.close()
    with opened(directory, settings) as database:
        assert state_of(database) == BEFORE


JOURNAL_SETTINGS: dict[str, dict[str, Any]] = {
    "": {"buffer_bytes": 1 << 16},
    ", written at once": {"buffer_bytes": 1},
    ", synced": {"sync": "always"},
}
JOURNAL_CALLS: dict[str, tuple[Callable[[TransactionJournal], object], int]] = {
    "append": (lambda journal: journal.append([Modify(0, 0, b"a", b"b")]), 1),
    "append what is complete": (lambda journal: journal.append([], flags=COMPLETE), 1),
    "flush": (lambda journal: journal.flush(), 0),
    "sync": (lambda journal: journal.sync(), 0),
    "close": (lambda journal: journal.close(), 0),
}


def journalling(name: str, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """A journal of three transactions; two wait to be written."""
    call, appends = JOURNAL_CALLS[name]
    journal = TransactionJournal(directory / "journal", **settings)
    journal.append([])
    journal.sync()
    journal.append([])
    journal.append([])
    was_interrupted = interrupt(lambda: call(journal))
    is_poisoned = journal.refusing
    with suppress(Poisoned):
        journal.close()
    with TransactionJournal(directory / "journal") as journal:
        found = journal.count
        journal.append([])
    with TransactionJournal(directory / "journal") as journal:
        assert journal.count == found + 1
    if not was_interrupted:
        assert found == 3 + appends
    elif is_poisoned:
        assert 1 <= found <= 3 + appends
    else:
        assert found in (3, 3 + appends)


CASES: dict[str, Case] = {}
for _suffix, _settings in JOURNAL_SETTINGS.items():
    for _name in JOURNAL_CALLS:
        CASES[f"journal: {_name}{_suffix}"] = partial(journalling, _name, _settings)
for _suffix, _settings in SETTINGS.items():
    CASES[f"opening{_suffix}"] = partial(opening, _settings)
    for _name, _found in TRIES.items():
        CASES[f"{_name}{_suffix}"] = partial(trial, _found, _settings)
