"""Journals that are known to have lost transactions: the questions that they answer, and those that they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.errors import HistoryUnavailable
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.repair import apply, plan
from logwright.yeltsin.model.database import Database
from tests.support.damage import drop, overwrite
from tests.yeltsin.samples import CREATED, journal, linked, modify, transaction

ITEMS = [transaction(modify(bytes([number]), bytes([number + 1])), timestamp=CREATED + number) for number in range(5)]
ITEMS[1:1] = [transaction(modify(b"old", b"new", 50), timestamp=CREATED)]
STARTS = linked(ITEMS)[1]
DATA = journal(ITEMS)
LOST = 3
SECOND = 1_000_000_000


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A journal whose fourth transaction was lost."""
    path = tmp_path / "t.jrnl"
    path.write_bytes(drop(DATA, STARTS[LOST] + 30, STARTS[LOST] + 33))
    apply(path, plan(path))
    return Reader(path)


def known(reader: Reader, at: int | None = None) -> list[tuple[int, bytes]]:
    found = reader.pages(at).pages
    return found[30].items() if found else []


def test_bytes_not_written_since_a_loss_are_unknown(reader: Reader) -> None:
    assert known(reader) == [(0, b"\x05")]
    assert known(reader, STARTS[4]) == [(0, b"\x03")]
    assert known(reader, STARTS[LOST]) == [(0, b"\x02"), (50, b"new")]
    assert known(reader, STARTS[1]) == [(0, b"\x01"), (50, b"old")]


def test_state_contains_the_losses(reader: Reader) -> None:
    (line,) = reader.state()["losses"]
    assert (line["position"], line["lost"]) == (STARTS[LOST], "1 record")
    assert "losses" not in reader.state(STARTS[LOST])


def test_state_at_a_time_of_lost_transactions_is_refused(reader: Reader) -> None:
    assert reader.find_moment((CREATED + 0) * SECOND) == STARTS[2]
    assert reader.find_moment((CREATED + 3) * SECOND) == STARTS[5]
    for seconds in (1, 2):
        with pytest.raises(HistoryUnavailable, match="transactions of that time are lost"):
            reader.find_moment((CREATED + seconds) * SECOND)
    assert reader.find_time((CREATED + 2) * SECOND) == STARTS[4]


def test_difference_across_lost_transactions_is_refused(reader: Reader) -> None:
    for start, stop in ((STARTS[0], STARTS[5]), (STARTS[4], STARTS[LOST])):
        with pytest.raises(HistoryUnavailable, match="lost 1 record"):
            reader.diff(start, stop)
    assert list(reader.diff(STARTS[0], STARTS[LOST])["changed"]) == ["30"]
    assert list(reader.diff(STARTS[4], STARTS[5])["changed"]) == ["30"]


def test_history_shows_where_transactions_are_lost(reader: Reader) -> None:
    events = [(item["event"], item["t"] - CREATED, len(item["value"])) for item in reader.history("30")]
    assert events == [
        ("modify", 0, 1),
        ("modify", 0, 2),
        ("modify", 1, 2),
        ("lost", 1, 0),
        ("modify", 3, 1),
        ("modify", 4, 1),
    ]


def test_unrepaired_damage_is_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(overwrite(DATA, STARTS[LOST] + 25, b"\x77"))
    assert known(Reader(path)) == [(0, b"\x05")]
    assert known(Reader(path), STARTS[1]) == [(0, b"\x01"), (50, b"old")]


def test_loss_at_the_end_leaves_the_preceding_state(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(DATA[: STARTS[4] + 40])
    apply(path, plan(path))
    reader = Reader(path)
    assert known(reader) == [(0, b"\x03"), (50, b"new")]
    (line,) = reader.state()["losses"]
    assert line["lost"] == "at least 1 and at most 2 records"
    with pytest.raises(HistoryUnavailable):
        reader.find_moment((CREATED + 9) * SECOND)


def test_account_is_listed_by_verify_and_the_journal_is_sound(reader: Reader) -> None:
    report = reader.verify()
    assert (report.sound, report.problems) == (True, [])
    assert [loss.kind for loss in report.losses] == ["lost", "restored", "restored"]


def test_database_opens_with_a_journal_that_has_lost_transactions(tmp_path: Path) -> None:
    path, table = tmp_path / "t.jrnl", tmp_path / "t.ydb"
    starts = []
    with Database(table, path) as db:
        for number in range(4):
            starts.append(Reader(path).next)
            with db.transaction() as tx:
                tx.modify(30, number, b"x")
    path.write_bytes(drop(path.read_bytes(), starts[1] + 30, starts[1] + 33))
    apply(path, plan(path))
    with Database(table, path) as db:
        assert (db.redone, db.read(30, 0, 4)) == ((), b"xxxx")
        with db.transaction() as tx:
            tx.modify(30, 4, b"y")
    reader = Reader(path)
    assert reader.verify().sound
    assert reader.count() == 4
    assert [loss.at_least for loss in reader.losses() if loss.kind == "lost"] == [1]
