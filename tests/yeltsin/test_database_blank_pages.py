"""Crashes around pages that are in use and all zeros: they must not be mistaken for unused pages.

A page in use names the preceding one, so only the first page can be all zeros, if it is the only one and empty. Until
the header of the table names it as the first, it looks like a page that was made for a transaction that never happened.
The stories here lead to such pages, and away from them, in all ways.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.yeltsin.bytes.layout import FLAGS_AT, LAST_AT, LINK
from logwright.yeltsin.bytes.table_layout import (
    LINKS_AT,
    PAGE_BYTES,
    PAGE_HEAD_BYTES,
    SIGNATURE_BYTES,
    TABLE_HEAD_BYTES,
    UNFINISHED,
    WHOLE,
)
from logwright.yeltsin.model import database
from logwright.yeltsin.model.database import Database
from tests.yeltsin.crashed import check, contents, crashed
from tests.yeltsin.databases import JOURNAL, TABLE, Story
from tests.yeltsin.tables import page_at

ONLY = {
    "the first goes": [["allocate"], ["remove 0"]],
    "the first goes, the other is written": [["allocate"], ["remove 0", "modify 1 0 5"], ["modify 1 9 5"]],
    "the last goes": [["allocate"], ["remove 1"], ["allocate"]],
    "all but the last go": [["allocate", "allocate"], ["remove 0", "remove 1"], ["allocate", "modify 1 0 9"]],
    "all but one go, one by one": [["allocate", "allocate"], ["remove 1"], ["remove 0"], ["remove 2"]],
    "one comes as the others go": [["allocate"], ["allocate", "remove 0", "remove 1"], ["allocate", "remove 2"]],
    "free ones are reused": [["allocate", "remove 0"], ["allocate", "remove 1"], ["allocate", "remove 0"]],
    "away and back": [["allocate"], ["remove 0"], ["allocate"], ["remove 1", "fail"], ["remove 1"], ["allocate"]],
}
"""Transactions after which a page is the only one."""
CHECKPOINTS = [0, 250, 1 << 30]
STORIES = [
    Story(f"{name}, {checkpoint_bytes}", transactions, checkpoint_bytes)
    for name, transactions in ONLY.items()
    for checkpoint_bytes in CHECKPOINTS
]
MAPPED = [("always", 1 << 20), ("none", 0)]
"""A table in memory, which the simulated disk does not have: shared with its file, and not."""


@pytest.fixture(autouse=True)
def _small_and_silent(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")
    monkeypatch.setattr(database, "AHEAD_BYTES", 3000)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_kill_before_or_during_any_write_loses_nothing(story: Story) -> None:
    for state in crashed(story).process_kills(format="yeltsin"):
        check(story, state)


@pytest.mark.parametrize("story", STORIES[:: len(CHECKPOINTS)], ids=str)
def test_killed_process_that_never_syncs_loses_nothing(story: Story) -> None:
    for state in crashed(story, "none").process_kills(format="yeltsin"):
        check(story, state)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_power_cut_at_any_point_leaves_all_of_a_transaction_or_none(story: Story) -> None:
    for state in crashed(story).crash_states(most=6, format="yeltsin"):
        check(story, state, continues=False)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_recovery_that_is_killed_or_loses_power_loses_nothing(story: Story) -> None:
    for before in itertools.islice(crashed(story).crash_states(most=6, format=""), 0, None, 41):
        done = max(before.marks, default=0)
        story.opened(before).close()
        for state in itertools.chain(
            before.process_kills(format="yeltsin"), before.crash_states(most=3, format="yeltsin")
        ):
            check(story, state, done, continues=False)


def unflagged(journal: bytes, count: int) -> bytes:
    """A journal whose last `count` transactions were appended since the table was synced."""
    found = bytearray(journal)
    (at,) = LINK.unpack_from(journal, LAST_AT)
    for _ in range(count):
        found[at + FLAGS_AT] = 0
        (at,) = LINK.unpack_from(journal, at)
    return bytes(found)


def mixtures(old: bytes, new: bytes) -> Iterator[bytes]:
    """Tables whose signature, links and page heads are old or new."""
    pages = map(page_at, range(len(new) // PAGE_BYTES))
    heads = (slice(page, page + PAGE_HEAD_BYTES) for page in pages)
    places = [slice(0, SIGNATURE_BYTES), slice(LINKS_AT, TABLE_HEAD_BYTES), *heads]
    for chosen in itertools.product((False, True), repeat=len(places)):
        mixture = bytearray(old.ljust(len(new), b"\0"))
        for place in itertools.compress(places, chosen):
            mixture[place] = new[place]
        yield bytes(mixture)


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), MAPPED)
@pytest.mark.parametrize("name", ONLY)
def test_transactions_are_redone_from_any_mixture_of_old_and_new_heads(
    name: str, sync: str, checkpoint_bytes: int, tmp_path: Path
) -> None:
    story = Story(name, ONLY[name])
    after, log = contents(crashed(story))
    table, journal = tmp_path / TABLE.name, tmp_path / JOURNAL.name
    for done in range(len(story.transactions)):
        old, _ = contents(crashed(Story(name, story.transactions[:done])))
        due = story.transactions[done:]
        for mixture in mixtures(old, UNFINISHED + after[SIGNATURE_BYTES:]):
            table.write_bytes(mixture)
            journal.write_bytes(unflagged(log, len(due)))
            with Database(table, journal, sync=sync, checkpoint_bytes=checkpoint_bytes) as db:
                assert len(db.redone) == sum("fail" not in actions for actions in due)
                assert story.states[-1].is_in(db)
                assert (db.verify().problems, db.verify().anomalies) == ([], [])
            assert (table.read_bytes()[:SIGNATURE_BYTES], table.stat().st_size) == (WHOLE, len(after))


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), MAPPED)
def test_unused_pages_are_removed_but_not_the_only_page(sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    table, journal = tmp_path / TABLE.name, tmp_path / JOURNAL.name
    data, log = contents(crashed(Story("only", ONLY["the first goes"])))
    table.write_bytes(data + bytes(3 * PAGE_BYTES))
    journal.write_bytes(log)
    with Database(table, journal, sync=sync, checkpoint_bytes=checkpoint_bytes) as db:
        assert (db.pages(), db.free_pages(), db.redone) == ([page_at(1)], [page_at(0)], ())
        assert table.stat().st_size == len(data) == page_at(2)
        with db.transaction() as transaction:
            assert [transaction.allocate(), transaction.allocate()] == [page_at(0), page_at(2)]
