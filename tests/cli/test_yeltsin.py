"""The verbs on journals of page transactions."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.cli.support import assert_one_error_line, run
from tests.yeltsin.samples import CREATED, journal, linked, modify, transaction

ITEMS = [
    transaction(modify(b"old", b"new"), timestamp=CREATED),
    transaction(modify(b"new", b"bad"), timestamp=CREATED + 10, end=0xFE),
    transaction(modify(b"ew", b"ot", 1), timestamp=CREATED + 20, flags=0),
]
STARTS = linked(ITEMS)[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "t.jrnl"
    found.write_bytes(journal(ITEMS))
    return found


def pages_at(path: Path, *point: str) -> list[tuple[int, bytes]]:
    ranges = run("state", path, *point, "--json").object["pages"]["30"]
    return [(item["offset"], base64.b64decode(item["data"])) for item in ranges]


def test_dump_prints_an_object_for_each_transaction(path: Path) -> None:
    first, second, third = run("dump", path, "--json").objects
    assert first == {
        "file": "t.jrnl",
        "position": 20,
        "size": STARTS[1] - 20,
        "previous": 0,
        "next": STARTS[1],
        "timestamp": CREATED,
        "flags": 1,
        "complete": True,
        "outcome": "completed",
        "operations": [{"op": "modify", "page": 30, "page_offset": 0, "before": "b2xk", "after": "bmV3"}],
    }
    assert (second["outcome"], third["outcome"], third["complete"]) == ("rolled_back", "completed", False)
    outcome = run("dump", path, "--from", "1", "--to", "2")
    assert "2023-11-14T22:13:30Z" in outcome.out
    assert "modify 30 @ 0: 6e6577 -> 626164" in outcome.out
    assert "22:13:20" not in outcome.out


def test_state_is_shown_now_and_before_any_transaction(path: Path) -> None:
    found = run("state", path, "--json").object
    assert (found["transactions"], found["last"], found["redo"]) == (3, STARTS[2], True)
    assert pages_at(path) == [(0, b"not")]
    assert pages_at(path, "--at", "0") == [(0, b"old")]
    assert pages_at(path, "--at", "1") == pages_at(path, "--at", "2") == [(0, b"new")]
    assert pages_at(path, "--at", "3") == [(0, b"not")]
    assert pages_at(path, "--at", "2023-11-14T22:13:19Z") == [(0, b"old")]
    assert pages_at(path, "--at", "2023-11-14T22:13:20Z") == [(0, b"new")]
    assert pages_at(path, "--at", f"t.jrnl@{STARTS[2]}") == [(0, b"new")]
    assert "6e 6f 74  not" in run("state", path).out
    assert_one_error_line(run("state", path, "--at", "9"), 2, "there is no transaction 9")


def test_diff_and_history_show_bytes_in_hex(path: Path) -> None:
    assert run("diff", path, "0", "3", "--json").object == {
        "added": {},
        "changed": {"30": {"before": [{"offset": 0, "data": "b2xk"}], "after": [{"offset": 0, "data": "bm90"}]}},
        "removed": {},
    }
    assert "@0: 6f 6c 64" in run("diff", path, "0", "3").out
    changes = run("history", path, "30", "--json").objects
    assert [(change["t"], change["transaction"]) for change in changes] == [(CREATED, 0), (CREATED + 20, 2)]
    assert "@0: 6e 6f 74" in run("history", path, "30").out
    assert_one_error_line(run("history", path, "31"), 2, "no transaction has changed the page 31")


def test_pending_redo_is_not_a_problem_but_a_torn_tail_is(path: Path) -> None:
    assert run("verify", path).code == 0
    found = run("inspect", path, "--json").object
    assert (found["format"], found["records"], found["redo"]) == ("yeltsin", 3, True)
    path.write_bytes(path.read_bytes()[:-2])
    outcome = run("verify", path, "--json")
    assert outcome.code == 1
    assert [(problem["kind"], problem["position"]) for problem in outcome.object["problems"]] == [
        ("torn_tail", STARTS[2])
    ]
    outcome = run("dump", path, "--json")
    assert (outcome.code, len(outcome.objects)) == (0, 2)
    assert run("count", path, "--json").object == {"records": 2}
    assert run("repair", path, "--yes").code == 0
    assert run("verify", path).code == 0


def test_hostile_link_is_damage_with_its_position(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[STARTS[0] + 8 : STARTS[0] + 16] = (5).to_bytes(8, "little")
    path.write_bytes(data)
    outcome = run("dump", path)
    assert outcome.code == 1
    assert f"t.jrnl @ {STARTS[0] + 8}" in outcome.err
    assert run("verify", path, "--json").object["problems"][0]["position"] == STARTS[0] + 8
    assert len(run("dump", path, "--json", "--mode", "dropmalformed").objects) == 3
