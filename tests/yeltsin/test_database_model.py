"""Any calls in any order: a database behaves like a dictionary of pages.

Transactions allocate, modify and remove at random. Some are rolled back, some by an error. Between them the database is
closed, or left as a killed process leaves it, and opened again with other settings. The tests use a simulated disk,
where everything is written, and a real one, where files are mapped.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logwright.errors import WrongUse
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.transaction import Transaction
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.databases import HOME, JOURNAL, TABLE, Model, Undone, pattern
from tests.yeltsin.tables import page_at

SETTINGS = [("always", 0), ("none", 0), ("interval(3600000)", 0), ("always", 2000), ("none", 5000), ("always", 1 << 30)]

pages = st.integers(0, 5)
offsets = st.sampled_from((0, 1, 300, 5000, PAGE_DATA_BYTES - 50))
action = st.one_of(
    st.just(("allocate",)),
    st.tuples(st.just("modify"), pages, offsets, st.integers(0, 700), st.integers(0, 250)),
    st.tuples(st.just("remove"), pages),
)
transaction = st.tuples(
    st.just("transaction"),
    st.lists(action, max_size=8),
    st.sampled_from(("commit", "commit", "commit", "fail", "undo")),
)
step = st.one_of(
    transaction, transaction, transaction, st.tuples(st.sampled_from(("reopen", "kill")), st.sampled_from(SETTINGS))
)


def act(tx: Transaction, model: Model, what: tuple) -> None:  # type: ignore[type-arg]
    """Make the same calls on a transaction and on a model; impossible calls are wrong use."""
    verb, *words = what
    if verb == "allocate":
        assert tx.allocate() == model.allocate()
        return
    page = page_at(words[0])
    if page not in model.pages:
        with pytest.raises(WrongUse):
            tx.remove(page)
    elif verb == "remove":
        tx.remove(page)
        model.remove(page)
    else:
        data = pattern(words[3], min(words[2], PAGE_DATA_BYTES - words[1]))
        tx.modify(page, words[1], data)
        model.modify(page, words[1], data)
        assert tx.read(page, words[1], len(data)) == data
    assert list(tx.pages()) == model.pages


def transact(db: Database, model: Model, actions: list[tuple], ending: str) -> Model:  # type: ignore[type-arg]
    """Make a transaction; the contents of the database afterwards."""
    after = model.copy()
    with contextlib.suppress(Undone), db.transaction() as tx:
        for what in actions:
            act(tx, after, what)
        if ending == "fail":
            raise Undone
        if ending == "undo":
            tx.rollback()
    return after if ending == "commit" else model


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=25), st.sampled_from(SETTINGS))
def test_database_behaves_like_a_dictionary_of_pages(steps: list[tuple], first: tuple[str, int]) -> None:  # type: ignore[type-arg]
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    model = Model()
    db = Database(TABLE, JOURNAL, sync=first[0], checkpoint_bytes=first[1], disk=disk)
    for verb, *words in steps:
        if verb == "transaction":
            model = transact(db, model, *words)
        else:
            if verb == "reopen":
                db.close()
            killed = disk.copy()
            db.close()
            disk, (sync, checkpoint_bytes) = killed, words[0]
            db = Database(TABLE, JOURNAL, sync=sync, checkpoint_bytes=checkpoint_bytes, disk=disk)
            assert db.recovered is None
            assert db.redone == () or verb == "kill"
        assert model.is_in(db)
    assert (db.verify().problems, db.verify().anomalies) == ([], [])
    db.close()


@pytest.mark.parametrize("seed", range(6))
def test_database_on_a_real_disk_behaves_like_a_dictionary_of_pages(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    model = Model()
    home = tmp_path / "0"
    home.mkdir()
    db = Database(home / "t.ydb", home / "t.jrnl")
    for number in range(60):
        if chance.random() < 0.2:
            copy = tmp_path / str(number + 1)
            if chance.random() < 0.5:
                db.close()
            shutil.copytree(home, copy)  # as a killed process leaves it: the system has everything
            db.close()
            shutil.rmtree(home)
            home = copy
            sync, checkpoint_bytes = chance.choice(SETTINGS)
            db = Database(home / "t.ydb", home / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes)
            assert db.recovered is None
        actions = [some_action(chance) for _ in range(chance.randrange(6))]
        model = transact(db, model, actions, chance.choice(("commit", "commit", "fail", "undo")))
        assert model.is_in(db)
    assert (db.verify().problems, db.verify().anomalies) == ([], [])
    db.close()


def some_action(chance: random.Random) -> tuple:  # type: ignore[type-arg]
    number = chance.randrange(6)
    return chance.choice(
        (
            ("allocate",),
            ("modify", number, chance.choice((0, 7, 60000)), chance.randrange(6000), chance.randrange(250)),
            ("modify", number, chance.choice((0, 7, 60000)), chance.randrange(60), chance.randrange(250)),
            ("remove", number),
        )
    )
