"""What an operator meets: damages of a journal, the exit code of each verb, and the account that is due."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.support import run
from tests.support.damage import cut, drop, flip_bit, insert, overwrite
from tests.yeltsin.samples import journal, linked, numbered

STARTS = linked(numbered(8))[1]
DATA = journal(numbered(8))
BETWEEN = "transactions between number {} and number {} of those that are left"
TIMES = ", created after 2023-11-14T22:13:{}Z and before 2023-11-14T22:13:{}Z"
AROUND_3 = (1, BETWEEN.format(2, 3) + TIMES.format(22, 24))
LINKS_OVER_3 = f"`next` of the transaction at {STARTS[2]}, `previous` of the transaction at {STARTS[4]}"


class Case(NamedTuple):
    """A damaged file; what `verify` says of it, how many transactions are left by a repair, and the account."""

    data: bytes
    problem: str
    left: int
    lost: tuple[Any, str] | None = None
    restored: tuple[str, ...] = ()


CASES = {
    "cut within a transaction": Case(
        cut(DATA, STARTS[5] + 40),
        "malformed",
        5,
        ((1, 4), "transactions after number 4, the last one that is left, created after 2023-11-14T22:13:24Z"),
        (f"`next` of the transaction at {STARTS[4]}, `last` in the header",),
    ),
    "cut within the header": Case(cut(DATA, 11), "torn_tail", 0, ((0, None), "all that the journal held, if anything")),
    "cut to nothing": Case(b"", "torn_tail", 0, ((0, None), "all that the journal held, if anything")),
    "a bit of the signature": Case(flip_bit(DATA, 3), "malformed", 8, None, ("the signature in the header",)),
    "a bit of an operation": Case(flip_bit(DATA, 8 * (STARTS[3] + 25) + 4), "malformed", 7, AROUND_3, (LINKS_OVER_3,)),
    "a bit of a link": Case(
        flip_bit(DATA, 8 * (STARTS[3] + 8)), "malformed", 8, None, (f"`next` of the transaction at {STARTS[3]}",)
    ),
    "a bit of the last offset": Case(flip_bit(DATA, 8 * 12 + 1), "link", 8, None, ("`last` in the header",)),
    "zeros over two transactions": Case(
        overwrite(DATA, STARTS[2] + 10, bytes(90)),
        "malformed",
        6,
        (2, BETWEEN.format(1, 2) + TIMES.format(21, 24)),
        (f"`next` of the transaction at {STARTS[1]}, `previous` of the transaction at {STARTS[4]}",),
    ),
    "zeros over the header": Case(
        overwrite(DATA, 0, bytes(20)),
        "malformed",
        8,
        None,
        ("the signature in the header, `first` in the header, `last` in the header",),
    ),
    "bytes inserted into a transaction": Case(
        insert(DATA, STARTS[3] + 30, b"abc"),
        "malformed",
        7,
        AROUND_3,
        (LINKS_OVER_3, "the places of 4 transactions: 3 bytes were inserted before them"),
    ),
    "bytes inserted between transactions": Case(
        insert(DATA, STARTS[3], b"abc"),
        "malformed",
        8,
        None,
        ("the places of 5 transactions: 3 bytes were inserted before them",),
    ),
    "bytes removed from a transaction": Case(
        drop(DATA, STARTS[3] + 30, STARTS[3] + 33),
        "malformed",
        7,
        AROUND_3,
        (LINKS_OVER_3, "the places of 4 transactions: 3 bytes were removed before them"),
    ),
    "garbage appended": Case(DATA + b"garbage", "torn_tail", 8),
    "a page of zeros appended": Case(DATA + bytes(4096), "torn_tail", 8),
    "a journal appended": Case(
        DATA + DATA,
        "malformed",
        8,
        (
            0,
            "transactions after number 7, the last one that is left, created after 2023-11-14T22:13:27Z; "
            "8 whole transactions in there are not linked to this journal",
        ),
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jrnl"


def bounds(loss: dict[str, Any]) -> Any:
    return loss["records"] if "records" in loss else (loss["at_least"], loss["at_most"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_verb_reports_a_damaged_journal(path: Path, case: Case) -> None:
    path.write_bytes(case.data)
    code = 0 if case.problem == "torn_tail" else 1
    assert [run(verb, path, "--json").code for verb in ("inspect", "dump", "state")] == [code, code, code]
    found = run("verify", path, "--json")
    assert (found.code, found.object["problems"][0]["kind"]) == (1, case.problem)
    assert path.read_bytes() == case.data


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_repair_writes_the_expected_account(path: Path, case: Case) -> None:
    path.write_bytes(case.data)
    planned = run("repair", path, "--plan", "--json")
    done = run("repair", path, "--yes", "--json")
    assert planned.code == done.code == (1 if case.lost or case.restored else 0)
    verified = run("verify", path, "--json")
    assert (verified.code, verified.object["problems"], verified.object["records"]) == (0, [], case.left)
    losses = verified.object["losses"]
    assert losses == planned.object["losses"]
    assert [(bounds(loss), loss["what"]) for loss in losses if loss["kind"] == "lost"] == (
        [case.lost] if case.lost else []
    )
    assert tuple(loss["what"] for loss in losses if loss["kind"] == "restored") == case.restored
    assert run("verify", path, "--strict").code == (1 if losses else 0)
    assert (run("dump", path).code, run("state", path).code) == (0, 0)
    assert run("repair", path, "--undo", "--yes").code == 0
    assert path.read_bytes() == case.data
    assert run("verify", path, "--json").object["losses"] == []


@pytest.mark.parametrize("data", [b"a line of text\n" * 30, bytes(500), b"text"])
def test_overwritten_file_is_left_unchanged(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert [run(verb, path).code for verb in ("inspect", "dump", "verify", "state", "repair")] == [1, 1, 1, 1, 1]
    assert run("verify", path, "--json").object["problems"][0]["kind"] == "malformed"
    assert path.read_bytes() == data


def test_a_damaged_journal_of_another_name_is_found_by_its_first_transaction(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(flip_bit(DATA, 3))
    assert run("repair", path, "--yes").code == 1
    assert path.read_bytes() == DATA


def test_file_of_an_unknown_format_is_reported_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(overwrite(DATA, 0, bytes(60)))
    found = run("verify", path)
    assert found.code == 2
    assert "name its format with --format" in found.err
    assert run("repair", path, "--format", "yeltsin", "--yes").code == 1
    assert run("count", path).out.strip() == "7"


def test_queries_about_lost_transactions_are_refused(path: Path) -> None:
    path.write_bytes(CASES["bytes removed from a transaction"].data)
    run("repair", path, "--yes")
    assert run("diff", path, "0", "5").code == 2
    assert run("diff", path, "0", "2").code == 0
    assert run("state", path, "--at", "2023-11-14T22:13:22Z").code == 2
    assert run("state", path, "--at", "2023-11-14T22:13:21Z").code == 0
    assert "losses" in run("state", path, "--json").object
    assert "lost" in run("history", path, "30").out
