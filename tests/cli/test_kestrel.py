"""Every verb on journals of queues."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from logwright.kestrel import Writer
from tests.cli.support import assert_one_error_line, run, start
from tests.kestrel.samples import (
    ADDED,
    REMOVE,
    RESERVE,
    addx,
    confirm,
    encoded,
    reserve_as,
    state_dump,
    write,
)

A, B, C = addx(b'{"n": 1}'), addx(b"B", expires=ADDED + 60_000), addx(b"\xff")


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    """The queue cars in two files (A B remove; C reserve), and the queue bikes."""
    write(tmp_path / "queues" / "cars.50", A, B, REMOVE)
    write(tmp_path / "queues" / "cars", C, RESERVE)
    write(tmp_path / "queues" / "bikes", A)
    return tmp_path / "queues"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_dump_prints_the_fields_that_an_operation_has(queues: Path) -> None:
    assert run("dump", queues / "cars", "--json").objects == [
        {
            "file": "cars.50",
            "position": 0,
            "size": 29,
            "op": "addx",
            "added": ADDED,
            "expires": None,
            "data": text(b'{"n": 1}'),
        },
        {
            "file": "cars.50",
            "position": 29,
            "size": 22,
            "op": "addx",
            "added": ADDED,
            "expires": ADDED + 60_000,
            "data": text(b"B"),
        },
        {"file": "cars.50", "position": 51, "size": 1, "op": "remove"},
        {
            "file": "cars",
            "position": 0,
            "size": 22,
            "op": "addx",
            "added": ADDED,
            "expires": None,
            "data": text(b"\xff"),
        },
        {"file": "cars", "position": 22, "size": 1, "op": "remove_tentative"},
    ]


def test_dump_of_a_directory_names_the_queue(queues: Path) -> None:
    found = run("dump", queues, "--json").objects
    assert [record["queue"] for record in found] == ["bikes", *["cars"] * 5]


def test_dump_prints_a_table(queues: Path) -> None:
    lines = run("dump", queues / "cars", "--decode", "text").lines
    assert lines[0].split() == ["op", "position", "size", "xid", "count", "added", "expires", "data"]
    assert lines[1:4] == [
        "-- cars.50",
        'addx                     0    29    -      -  2011-03-13T07:06:40Z  -                     {"n": 1}',
        "addx                    29    22    -      -  2011-03-13T07:06:40Z  2011-03-13T07:07:40Z  B",
    ]


def test_range_is_given_by_positions_or_times(queues: Path) -> None:
    cars = queues / "cars"
    assert [
        record["op"] for record in run("dump", cars, "--from", "cars.50@29", "--to", "cars@1", "--json").objects
    ] == [
        "addx",
        "remove",
        "addx",
    ]
    assert run("count", cars, "--from", "cars@0").out == "2\n"
    assert run("count", queues, "--since", "2011-03-13T07:06:40Z").out == "6\n"
    assert run("count", queues, "--since", "2012-01-01").out == "0\n"
    assert run("count", queues, "--from", "cars@0").out == "3\n", "the other queue is not bounded by it"
    assert_one_error_line(run("count", cars, "--from", "cars.7@0"), 2, "cars.7: no such file")
    assert_one_error_line(run("count", cars, "--from", "soon"), 2, "FILE@POSITION")


def test_tail_of_a_queue_and_unsupported_verbs(queues: Path) -> None:
    assert [record["op"] for record in run("tail", queues / "cars", "-n", "2", "--json").objects] == [
        "addx",
        "remove_tentative",
    ]
    assert_one_error_line(run("offsets", queues), 2, "have no consumers")
    assert_one_error_line(run("dump", queues, "--type", "2"), 2, "have no type")


def test_tail_follows_across_files_and_queues(queues: Path) -> None:
    with start("tail", queues, "-n", 1, "-f", "--timeout", 60, "--json") as child:
        assert json.loads(child.line())["op"] == "remove_tentative"
        with Writer(queues / "cars") as writer:
            writer.addx(b"one")
            writer.rotate()
            writer.addx(b"two")
        with Writer(queues / "boats") as writer:
            writer.addx(b"three")
        found = [json.loads(child.line()) for _ in range(3)]
    assert [record["data"] for record in found] == [text(b"one"), text(b"two"), text(b"three")]
    assert [record["queue"] for record in found] == ["cars", "cars", "boats"]


def test_inspect_shows_the_dialect(queues: Path) -> None:
    found = run("inspect", queues / "cars", "--json").object
    assert (found["format"], found["records"], found["dialect"], found["both_dialects_fit"]) == (
        "kestrel",
        5,
        "documented",
        True,
    )
    write(queues / "bikes", A, reserve_as(1))
    found = run("inspect", queues / "bikes", "--json").object
    assert (found["dialect"], found["both_dialects_fit"]) == ("kestrel2", False)
    write(queues / "bikes", A, state_dump(1, 0))
    assert run("inspect", queues / "bikes", "--json").object["both_dialects_fit"] is False
    assert "health        sound so far" in run("inspect", queues).lines


def test_state_is_the_queue_now_and_at_a_position(queues: Path) -> None:
    items = [{"data": text(b"\xff"), "added": ADDED, "expires": None, "xid": 0}]
    reserved = [{"data": text(b"B"), "added": ADDED, "expires": ADDED + 60_000, "xid": 1}]
    assert run("state", queues / "cars", "--json").object == {"items": items, "open": reserved, "xid": 1}
    assert run("state", queues, "--json").object["queues"]["cars"]["open"] == reserved

    def size(at: Any) -> int:
        return len(run("state", queues / "cars", "--at", at, "--json").object["items"])

    assert [size(at) for at in (0, 29, 51, "cars.50@52", "cars@22", "now", "2001-01-01")] == [0, 1, 2, 1, 2, 1, 0]
    assert_one_error_line(run("state", queues / "cars", "--at", 7 << 64), 2, "was packed")
    assert_one_error_line(run("state", queues / "cars", "--at", "cars@99"), 2, "there is no operation")
    assert "B     2011-03-13T07:06:40Z  2011-03-13T07:07:40Z    1" in run("state", queues / "cars").lines


def test_diff_shows_items_added_removed_and_reserved(queues: Path) -> None:
    changes = run("diff", queues / "cars", "51", "now", "--json").object
    assert list(changes["added"]) == ["cars@0"]
    assert list(changes["removed"]) == ["cars.50@0"]
    assert list(changes["changed"]) == ["cars.50@29"]
    assert changes["changed"]["cars.50@29"]["after"]["xid"] == 1
    words = [line.split()[:2] for line in run("diff", queues / "cars", "51", "now").lines[1:]]
    assert words == [["added", "cars@0"], ["changed", "cars.50@29"], ["removed", "cars.50@0"]]


def test_history_shows_the_events_of_an_item(queues: Path) -> None:
    changes = run("history", queues / "cars", "cars.50@29", "--json").objects
    assert [change["event"] for change in changes] == ["added", "reserved"]
    assert [change["t"] for change in changes] == [29, (50 << 64) + 22]
    assert run("history", queues, "cars.50@0", "--json").objects[-1]["deleted"] is True
    assert run("history", queues / "cars", "cars.50@0").lines[-1].split() == ["cars.50", "@", "51", "removed", "-"]
    assert_one_error_line(run("history", queues / "cars", "cars@22"), 2, "no item was added here")


def test_journals_without_a_state_have_no_diff_and_no_history(samples: Path) -> None:
    assert_one_error_line(run("diff", samples / "orders", "1", "2"), 2, "no state that could differ")
    assert_one_error_line(run("history", samples / "orders", "1"), 2, "have no history")


def test_verify_reports_problems_and_anomalies(queues: Path) -> None:
    write(queues / "cars", confirm(9), tail=b"\x7f\x7f\x7f" + encoded([A]) + b"\x02")
    outcome = run("verify", queues, "--json")
    assert outcome.code == 1
    found = outcome.object
    assert (found["sound"], found["records"]) == (False, 6)
    assert [(problem["file"], problem["position"], problem["kind"]) for problem in found["problems"]] == [
        ("cars", 5, "malformed"),
        ("cars", 37, "torn_tail"),
    ]
    assert [(anomaly["position"], anomaly["kind"]) for anomaly in found["anomalies"]] == [(0, "not_open")]
    write(queues / "cars", confirm(9))
    assert run("verify", queues).code == 0


def test_torn_tail_is_a_warning_and_other_damage_sets_the_exit_code(queues: Path) -> None:
    write(queues / "cars", C, tail=b"\x02")
    outcome = run("dump", queues / "cars")
    assert (outcome.code, outcome.err.count("logwright: warning: ")) == (0, 1)
    assert str(queues / "cars") + " @ 22" in outcome.err
    assert run("state", queues / "cars").code == 0
    (queues / "cars.50").write_bytes(b"\x7f" + encoded([A]))
    outcome = run("dump", queues / "cars")
    assert_one_error_line(outcome, 1, f"{queues / 'cars.50'} @ 0: there is no operation 127")
    assert run("state", queues / "cars", "--json").code == 1
    assert run("count", queues / "cars").code == 1
    lines = run("dump", queues / "cars", "--mode", "permissive").lines
    assert "!! malformed @ 0: there is no operation 127 (1 bytes)" in lines


def test_repair_and_undo(queues: Path) -> None:
    write(queues / "cars", C, tail=b"\x02")
    before = (queues / "cars").read_bytes()
    assert run("repair", queues / "cars", "--yes").code == 0
    assert run("verify", queues).code == 0
    assert run("repair", queues / "cars", "--undo", "--yes").code == 0
    assert (queues / "cars").read_bytes() == before


def test_convert_to_parquet_to_messages_and_back(queues: Path, tmp_path: Path) -> None:
    assert run("convert", queues, tmp_path / "out.parquet").code == 0
    assert run("convert", tmp_path / "out.parquet", tmp_path / "again", "--to", "kestrel").code == 0
    assert run("dump", tmp_path / "again", "--json", "--format", "kestrel").objects[0]["queue"] == "bikes"
    assert (tmp_path / "again" / "bikes").read_bytes() == (queues / "bikes").read_bytes()
    outcome = run("convert", queues / "cars", tmp_path / "messages", "--to", "sej")
    assert outcome.code == 0
    assert "2 records without a value" in outcome.err
    values = [record["value"] for record in run("dump", tmp_path / "messages", "--json").objects]
    assert values == [text(b'{"n": 1}'), text(b"B"), text(b"\xff")]
    assert run("convert", tmp_path / "messages", tmp_path / "jobs", "--to", "kestrel").code == 0
    state = run("state", tmp_path / "jobs", "--json").object
    assert [item["data"] for item in state["items"]] == values
    assert [item["added"] for item in state["items"]] == [ADDED] * 3


def test_values_are_decoded(queues: Path) -> None:
    records = run("dump", queues / "cars", "--json", "--decode", "json").objects
    assert records[0]["decoded"] == {"n": 1}
    assert "decoded" not in records[2], "a removal has no value"
    assert json.loads(run("dump", queues / "cars", "--decode", "json").lines[2].split(maxsplit=7)[7]) == {"n": 1}


# --- to and from messages ---------------------------------------------------------------------------------------------


def test_queue_converted_to_messages_and_back_is_the_same(tmp_path: Path) -> None:
    write(tmp_path / "queues" / "cars", A, C, addx(b"", added=ADDED + 1))
    assert run("convert", tmp_path / "queues" / "cars", tmp_path / "messages", "--to", "sej", "--strict").code == 0
    records = run("dump", tmp_path / "messages", "--json").objects
    assert [(record["value"], record["key"], record["timestamp"], record["type"]) for record in records] == [
        (text(b'{"n": 1}'), text(b"cars"), ADDED * 1_000_000, 0),
        (text(b"\xff"), text(b"cars"), ADDED * 1_000_000, 0),
        ("", text(b"cars"), (ADDED + 1) * 1_000_000, 0),
    ]
    outcome = run("convert", tmp_path / "messages", tmp_path / "again", "--to", "kestrel", "--by-key", "--strict")
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "again" / "cars").read_bytes() == (tmp_path / "queues" / "cars").read_bytes()


def test_all_queues_of_a_directory_become_one_journal_and_queues_again(queues: Path, tmp_path: Path) -> None:
    assert run("convert", queues, tmp_path / "messages", "--to", "sej").code == 0
    assert run("convert", tmp_path / "messages", tmp_path / "again", "--to", "kestrel", "--by-key").code == 0
    items = run("state", tmp_path / "again", "--json").object["queues"]
    assert {queue: [item["data"] for item in state["items"]] for queue, state in items.items()} == {
        "bikes": [text(b'{"n": 1}')],
        "cars": [text(b'{"n": 1}'), text(b"B"), text(b"\xff")],
    }


def test_waiting_items_are_converted_without_removed_ones(queues: Path, tmp_path: Path) -> None:
    outcome = run("convert", queues, tmp_path / "messages", "--to", "sej", "--waiting", "--json")
    assert outcome.object["records"] == 3
    assert outcome.err == "logwright: warning: left out: the expiry of 1 records, which sej cannot store\n"
    records = run("dump", tmp_path / "messages", "--json").objects
    assert [(record["key"], record["value"]) for record in records] == [
        (text(b"bikes"), text(b'{"n": 1}')),
        (text(b"cars"), text(b"B")),
        (text(b"cars"), text(b"\xff")),
    ]
    assert run("convert", queues, tmp_path / "copy", "--to", "kestrel", "--waiting").code == 0
    state = run("state", tmp_path / "copy", "--json").object["queues"]["cars"]
    assert [(item["data"], item["expires"]) for item in state["items"]] == [
        (text(b"B"), ADDED + 60_000),
        (text(b"\xff"), None),
    ]


def test_waiting_items_are_converted_to_parquet(queues: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert run("convert", queues, tmp_path / "items.parquet", "--waiting").code == 0
    rows = pq.read_table(tmp_path / "items.parquet").to_pylist()
    assert [(row["queue"], row["state"], row["xid"], row["data"]) for row in rows] == [
        ("bikes", "waiting", None, b'{"n": 1}'),
        ("cars", "open", 1, b"B"),
        ("cars", "waiting", None, b"\xff"),
    ]
    assert [row["expires"] is None for row in rows] == [True, False, True]


def test_fields_without_a_place_are_reported_and_refused_with_strict(
    queues: Path, samples: Path, tmp_path: Path
) -> None:
    outcome = run("convert", queues / "cars", tmp_path / "messages", "--to", "sej")
    assert outcome.err.splitlines() == [
        "logwright: warning: left out: 2 records without a value, which sej cannot store",
        "logwright: warning: left out: the expiry of 1 records, which sej cannot store",
    ]
    typed = sum(record["type"] != 0 for record in run("dump", samples / "orders", "--json").objects)
    outcome = run("convert", samples / "orders", tmp_path / "items", "--to", "kestrel")
    assert [line.partition("left out: ")[2] for line in outcome.err.splitlines()] == [
        "the key of 3000 records, which kestrel cannot store",
        f"the type of {typed} records, which kestrel cannot store",
        "the fraction of a millisecond of 3000 records, which kestrel cannot store",
    ]
    for source, target in ((queues / "cars", "sej"), (samples / "orders", "kestrel")):
        outcome = run("convert", source, tmp_path / "strict", "--to", target, "--strict")
        assert_one_error_line(outcome, 2, f"{source}: {target} cannot store the ")
        assert not (tmp_path / "strict").exists()


def test_invalid_key_or_queue_name_is_refused(queues: Path, samples: Path, tmp_path: Path) -> None:
    write(queues / ("x" * 128), A)
    assert_one_error_line(run("convert", queues, tmp_path / "out", "--to", "sej"), 2, "key", "128")
    by_key = ("--to", "kestrel", "--by-key")
    assert_one_error_line(
        run("convert", samples / "orders", tmp_path / "out", *by_key), 2, "'customer/", "is not a valid queue name"
    )
    assert_one_error_line(run("convert", queues, tmp_path / "out", *by_key), 2, "--by-key makes queues of messages")
    chosen = ("--to", "sej", "--waiting", "--since", "2011-01-01")
    assert_one_error_line(run("convert", queues, tmp_path / "out", *chosen), 2, "the items that wait now")
    waiting = run("convert", samples / "orders", tmp_path / "out", "--to", "kestrel", "--waiting")
    assert_one_error_line(waiting, 2, "hold no items that wait")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["queues"]


def test_messages_without_a_key_go_to_the_destination_queue(tmp_path: Path) -> None:
    from logwright.sej import Writer as MessageWriter

    with MessageWriter(tmp_path / "messages") as writer:
        writer.append(b"one", timestamp=ADDED * 1_000_000)
        writer.append(b"two", key=b"cars", timestamp=ADDED * 1_000_000)
        writer.append(b"no text", key=b"\xff", timestamp=ADDED * 1_000_000)
    by_key = ("--to", "kestrel", "--by-key")
    outcome = run("convert", tmp_path / "messages", tmp_path / "jobs", *by_key)
    assert_one_error_line(outcome, 2, "a key is not UTF-8")
    assert run("convert", tmp_path / "messages", tmp_path / "jobs", "--to", "kestrel").code == 0
    assert len(run("state", tmp_path / "jobs" / "jobs", "--json").object["items"]) == 3


def test_damage_ends_the_conversion_or_only_intact_items_are_converted(queues: Path, tmp_path: Path) -> None:
    write(queues / "cars", RESERVE, tail=b"\x7f\x7f" + encoded([C]) + b"\x02")
    chosen = ("--to", "sej", "--waiting", "--format", "kestrel")
    outcome = run("convert", queues / "cars", tmp_path / "out", *chosen)
    assert_one_error_line(outcome, 1, f"{queues / 'cars'} @ 1: ")
    outcome = run("convert", queues / "cars", tmp_path / "out", *chosen, "--mode", "permissive")
    kinds = [line.rpartition(", ")[2] for line in outcome.err.splitlines()]
    assert (outcome.code, kinds) == (1, ["which sej cannot store", "malformed)", "torn_tail)"])
    values = [record["value"] for record in run("dump", tmp_path / "out", "--json").objects]
    assert values == [text(b"B"), text(b"\xff")]
