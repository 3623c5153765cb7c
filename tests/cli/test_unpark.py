"""`logwright unpark`: parked items are put back, and nothing else happens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from logwright.kestrel import Queue
from tests.cli.support import assert_one_error_line, run, start
from tests.kestrel.samples import RESERVE, addx, write
from tests.support.children import Child
from tests.support.threads import DEADLINE_SECONDS


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    """The queue mail, and two of its items that were parked."""
    with Queue(tmp_path / "queues", "mail", max_attempts=1) as queue:
        queue.put_many([b"to nobody", b"to no one", b"to ada"])
        queue.abort(*(item.xid for item in queue.reserve_many(2)))
    return tmp_path / "queues"


def contents(path: Path) -> list[bytes]:
    with Queue(path.parent, path.name) as queue:
        return list(queue)


def test_parked_items_return_to_their_queue(queues: Path) -> None:
    outcome = run("unpark", queues / "mail_parked", "--json")
    assert outcome.code == 0
    assert outcome.object == {
        "done": True,
        "from": str(queues / "mail_parked"),
        "to": str(queues / "mail"),
        "items": 2,
        "left": 0,
        "doubled": 0,
    }
    assert contents(queues / "mail") == [b"to ada", b"to nobody", b"to no one"]
    assert contents(queues / "mail_parked") == []


def test_text_output_is_one_line_and_a_limit_leaves_the_rest(queues: Path) -> None:
    outcome = run("unpark", queues / "mail_parked", "--limit", 1)
    assert (outcome.out, outcome.err) == (f"{queues}/mail_parked -> {queues}/mail: 1 item, 1 left\n", "")
    assert contents(queues / "mail_parked") == [b"to no one"]


def test_plan_changes_nothing(queues: Path) -> None:
    before = {path.name: path.read_bytes() for path in queues.glob("mail*")}
    outcome = run("unpark", queues / "mail_parked", "--plan")
    assert outcome.out == f"{queues}/mail_parked -> {queues}/mail: 2 items, 0 left\n"
    assert "nothing was changed" in outcome.err
    assert run("unpark", queues / "mail_parked", "--plan", "--json").object["done"] is False
    assert {path.name: path.read_bytes() for path in queues.glob("mail*")} == before


def test_empty_parked_queue_has_no_items_to_return(queues: Path) -> None:
    assert run("unpark", queues / "mail_parked").code == 0
    outcome = run("unpark", queues / "mail_parked", "--json")
    assert (outcome.code, outcome.object["items"]) == (0, 0)


def test_existing_items_of_the_destination_are_reported(queues: Path) -> None:
    write(queues / "mail_parked", addx(b"a"), addx(b"b"), RESERVE)
    write(queues / "mail", addx(b"a"))
    outcome = run("unpark", queues / "mail_parked")
    assert outcome.code == 0
    assert f"warning: 1 item was already in {queues}/mail: an earlier unpark was interrupted" in outcome.err
    assert contents(queues / "mail") == [b"a", b"a", b"b"]


def test_queue_that_another_program_has_open_is_not_changed(queues: Path) -> None:
    code = "import sys; from logwright.kestrel import Queue\n"
    code += "queue = Queue(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"
    for name in ("mail", "mail_parked"):
        with Child(code, queues, name) as child:
            assert child.line() == "open"
            assert_one_error_line(run("unpark", queues / "mail_parked"), 2, "mail")
    assert contents(queues / "mail_parked") == [b"to nobody", b"to no one"]


def test_refusal_is_one_line(queues: Path, samples: Path) -> None:
    write(queues / "other", addx(b"x"))
    assert_one_error_line(run("unpark", queues / "other"), 2, "name it with --to")
    assert_one_error_line(run("unpark", queues / "other", "--to", "nowhere"), 2, "no such queue")
    assert_one_error_line(run("unpark", queues / "nowhere"), 2, "no such file")
    assert_one_error_line(run("unpark", queues), 2, "newest file")
    assert_one_error_line(run("unpark", samples / "orders"), 2, "have no parked items")
    assert_one_error_line(run("unpark", queues / "other", "--limit", -1), 2, "--limit")
    (queues / "other").write_bytes(b"\x02\x11\x00\x00\x00" + b"\x7f" * 30 + (queues / "mail").read_bytes() * 2)
    damaged = run("unpark", queues / "other", "--to", "mail", "--format", "kestrel")
    assert_one_error_line(damaged, 1, f"{queues}/other @ ")


def test_kill_during_a_move_loses_no_items(tmp_path: Path) -> None:
    numbers = [b"%d" % number for number in range(30_000)]
    with Queue(tmp_path, "jobs_parked") as parked, Queue(tmp_path, "jobs"):
        parked.put_many(numbers)
    with start("unpark", tmp_path / "jobs_parked") as child:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (tmp_path / "jobs").stat().st_size:
            assert time.monotonic() < deadline
        child.kill()
    moved, left = contents(tmp_path / "jobs"), contents(tmp_path / "jobs_parked")
    assert moved == numbers[: len(moved)]
    assert left == numbers[-len(left) :] if left else True
    assert 0 <= len(moved) + len(left) - len(numbers) <= 1000
    again = run("unpark", tmp_path / "jobs_parked", "--json").object
    assert again["doubled"] == len(moved) + len(left) - len(numbers)
    assert set(contents(tmp_path / "jobs")) == set(numbers)
