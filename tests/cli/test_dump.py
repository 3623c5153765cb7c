"""`logwright dump`: which records, in which form, with which exit code."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from logwright import sej
from tests.cli.support import GOLDEN, assert_one_error_line, run


def golden_records(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / case / "expected.jsonl").read_text().splitlines()]


def dumped(*arguments: object) -> list[int]:
    """The offsets that a dump prints."""
    return [record["offset"] for record in run("dump", *arguments, "--json").objects]


# --- what is printed --------------------------------------------------------------------------------------------------


def test_object_has_the_position_and_the_fields_of_a_message() -> None:
    outcome = run("dump", GOLDEN / "fifty" / "sej", "--json", "--limit", 2)
    assert outcome.code == 0
    assert outcome.err == ""
    first, second = outcome.objects
    expected = golden_records("fifty")
    assert first == {
        "file": "jnl/0000000000000000.jnl",
        "position": 0,
        "size": 199,
        "offset": 0,
        "timestamp": expected[0]["timestamp_ns"],
        "type": expected[0]["type"],
        "key": expected[0]["key"],
        "value": expected[0]["value"],
    }
    assert list(first) == ["file", "position", "size", "offset", "timestamp", "type", "key", "value"]
    assert (second["position"], second["offset"]) == (199, 1)


def test_message_without_a_time_has_null() -> None:
    times = [record["timestamp"] for record in run("dump", GOLDEN / "zero_timestamp" / "sej", "--json").objects]
    assert times == [record["timestamp_ns"] for record in golden_records("zero_timestamp")]
    assert None in times


def test_sharded_root_shows_the_shard_of_each_message() -> None:
    records = run("dump", GOLDEN / "shard_prefix" / "root", "--json").objects
    assert [(record["shard"], record["offset"], record["value"]) for record in records] == sorted(
        (record["dir"], record["offset"], record["value"]) for record in golden_records("shard_prefix")
    )
    assert all(record["file"].startswith(f"{record['shard']}/jnl/") for record in records)


def test_single_segment_can_be_read() -> None:
    path = GOLDEN / "multi" / "sej" / "jnl" / "0000000000000006.jnl"
    records = run("dump", path, "--json").objects
    assert [record["offset"] for record in records] == [6, 7, 8, 9, 10, 11]
    assert {record["file"] for record in records} == {"0000000000000006.jnl"}


def test_table_shows_offset_position_time_key_and_value(samples: Path) -> None:
    lines = run("dump", samples / "orders", "--from", 544, "--limit", 2).lines
    assert lines[0].split() == ["offset", "position", "size", "time", "type", "key", "value"]
    assert lines[1] == "-- jnl/0000000000000000.jnl"
    assert lines[2].split()[0] == "544"
    assert lines[3] == "-- jnl/0000000000000221.jnl"
    assert lines[4].split()[:2] == ["545", "0"]
    assert '{"order": 10136, ' in lines[4]
    assert "customer/" in lines[4]


def test_value_is_escaped_for_the_terminal(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"\x1b[2J\nnext", key=b"\x07", timestamp=None)
    assert run("dump", tmp_path).lines[-1].split() == ["0", "0", "36", "-", "0", r"\x07", r"\x1b[2J\nnext"]


def test_table_is_cropped_to_a_terminal(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = run("dump", samples / "orders", "--limit", 3, terminal=True).lines
    assert max(map(len, lines)) == 100
    assert lines[2].endswith("…")


# --- which records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--from", 2997), [2997, 2998, 2999]),
        (("--to", 3), [0, 1, 2]),
        (("--from", 544, "--to", 547), [544, 545, 546]),
        (("--from", 10, "--limit", 2), [10, 11]),
        (("--limit", 0), []),
        (("--from", 5, "--to", 5), []),
        (("--from", 9, "--to", 3), []),
        (("--from", 3000), []),
        (("--from", 2**64), []),
        (("--from", 2999, "--to", 2**64), [2999]),
    ],
)
def test_offsets_select_a_range(options: tuple[object, ...], offsets: list[int], samples: Path) -> None:
    assert dumped(samples / "orders", *options) == offsets


def test_removed_offset_means_the_first_existing_one() -> None:
    first = golden_records("first_deleted")[0]["offset"]
    assert first > 0
    assert dumped(GOLDEN / "first_deleted" / "sej", "--from", 0, "--limit", 1) == [first]


def test_times_select_a_range(samples: Path) -> None:
    everything = run("dump", samples / "orders", "--json").objects
    ten, eleven = 1768471200000000000, 1768474800000000000
    expected = [record["offset"] for record in everything if ten <= record["timestamp"] < eleven]
    assert len(expected) > 500
    path = samples / "orders"
    assert dumped(path, "--since", "2026-01-15T10:00:00Z", "--until", "2026-01-15T11:00:00Z") == expected
    assert dumped(path, "--since", ten, "--until", eleven) == expected
    assert dumped(path, "--since", ten, "--until", eleven, "--from", expected[3], "--to", expected[5]) == expected[3:5]
    assert dumped(path, "--since", "2030-01-01") == []
    assert dumped(path, "--until", "2000-01-01") == []
    assert dumped(path, "--since", everything[-1]["timestamp"]) == [2999]


def test_times_select_a_range_in_each_shard(samples: Path) -> None:
    ten = 1768471200000000000
    everything = run("dump", samples / "events", "--json").objects
    late = [record for record in everything if record["timestamp"] >= ten]
    assert {record["shard"] for record in late} == {"web.2.000", "web.2.001", "web.2.002", "web.2.003"}
    assert run("dump", samples / "events", "--since", ten, "--json").objects == late
    assert run("dump", samples / "events", "--since", ten, "--from", 2**63, "--json").objects == []


def test_type_selects_records(samples: Path) -> None:
    everything = run("dump", samples / "orders", "--json").objects
    packed = [record for record in everything if record["type"] == 2]
    assert run("dump", samples / "orders", "--type", 2, "--json").objects == packed
    assert run("dump", samples / "orders", "--type", 2, "--limit", 3, "--json").objects == packed[:3]
    assert dumped(samples / "orders", "--type", 200) == []


def test_invalid_time_is_refused(samples: Path) -> None:
    assert_one_error_line(run("dump", samples / "orders", "--since", "noon"), 2, "'noon' is not a time")


# --- decoded ----------------------------------------------------------------------------------------------------------


def test_decoded_value_is_added_and_the_bytes_stay(samples: Path) -> None:
    record = run("dump", samples / "orders", "--limit", 1, "--json", "--decode", "json").object
    assert record["decoded"]["order"] == 10000
    assert json.loads(base64.b64decode(record["value"])) == record["decoded"]


def test_undecodable_value_is_null_and_reported(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        for value in (b"[1]", b"\xff", b"{"):
            writer.append(value)
    outcome = run("dump", tmp_path, "--json", "--decode", "json")
    assert outcome.code == 0
    assert [record["decoded"] for record in outcome.objects] == [[1], None, None]
    assert [("undecodable" in record) for record in outcome.objects] == [False, True, True]
    assert outcome.err == "logwright: warning: 2 values are no valid json\n"
    assert run("dump", tmp_path, "--decode", "json").lines[-2].split()[-1] == r"\xff"


def test_msgpack_is_decoded(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(msgpack.packb({"größe": [1, b"\x00"]}))
    assert run("dump", tmp_path, "--json", "--decode", "msgpack").object["decoded"] == {"größe": [1, "AA=="]}
    assert run("dump", tmp_path, "--decode", "msgpack").lines[-1].endswith('{"größe": [1, "AA=="]}')


def test_avro_is_decoded_by_the_schema_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "value.avsc").write_text('{"type": "array", "items": "int"}')
    journal = tmp_path / "journal"
    with sej.Writer(journal) as writer:
        writer.append(bytes.fromhex("04 02 03 00"))
    avro = ("--decode", "avro", "--schema", tmp_path / "value.avsc")
    assert run("dump", journal, "--json", *avro).object["decoded"] == [1, -2]
    assert run("tail", journal, "--json", *avro).object["decoded"] == [1, -2]
    assert_one_error_line(run("dump", journal, *avro[:2]), 2, "--decode avro needs the schema of the values")
    assert_one_error_line(run("dump", journal, *avro[2:]), 2, "--schema is for --decode avro")
    assert_one_error_line(run("dump", journal, "--decode", "json", *avro[2:]), 2, "a schema is for avro")
    assert_one_error_line(run("dump", journal, *avro[:3], tmp_path / "none.avsc"), 2, "none.avsc")


# --- damage -----------------------------------------------------------------------------------------------------------


def test_torn_tail_is_a_warning(samples: Path) -> None:
    outcome = run("dump", samples / "torn", "--json")
    assert outcome.code == 0
    assert [record["offset"] for record in outcome.objects] == list(range(2999))
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith(f"logwright: warning: {samples / 'torn'}/jnl/0000000000000aa5.jnl @ ")


def test_torn_tail_beyond_the_range_is_not_reported(samples: Path) -> None:
    assert run("dump", samples / "torn", "--limit", 3).err == ""


def test_failfast_stops_at_damage(samples: Path) -> None:
    outcome = run("dump", samples / "damaged", "--json")
    assert [record["offset"] for record in outcome.objects] == list(range(1500))
    assert_one_error_line(outcome, 1, f"{samples / 'damaged'}/jnl/0000000000000442.jnl @ 49388: size 65535 does not")


def test_permissive_shows_the_damage_among_the_records(samples: Path) -> None:
    outcome = run("dump", samples / "damaged", "--mode", "permissive", "--json", "--from", 1499, "--to", 1502)
    assert outcome.code == 1
    assert outcome.err == ""
    before, damage, behind = outcome.objects
    assert (before["offset"], behind["offset"]) == (1499, 1501)
    assert damage == {
        "file": "jnl/0000000000000442.jnl",
        "position": 49388,
        "size": 121,
        "damage": "size 65535 does not match the 121 bytes read",
        "kind": "malformed",
    }
    table = run("dump", samples / "damaged", "--mode", "permissive", "--from", 1499, "--to", 1502)
    assert table.code == 1
    assert table.lines[3] == "!! malformed @ 49388: size 65535 does not match the 121 bytes read (121 bytes)"


def test_permissive_shows_a_torn_tail_but_does_not_count_it_as_damage(samples: Path) -> None:
    outcome = run("dump", samples / "torn", "--mode", "permissive", "--json", "--from", 2998)
    assert outcome.code == 0
    assert [record.get("kind") for record in outcome.objects] == [None, "torn_tail"]
    assert outcome.err.count("warning") == 1


def test_dropmalformed_skips_damage_and_reports_it(samples: Path) -> None:
    outcome = run("dump", samples / "damaged", "--mode", "dropmalformed", "--json")
    assert outcome.code == 1
    assert [record["offset"] for record in outcome.objects] == [*range(1500), *range(1501, 3000)]
    assert outcome.err.count("\n") == 1
    assert "0000000000000442.jnl @ 49388: " in outcome.err


def test_damage_after_the_last_requested_record_is_ignored(samples: Path) -> None:
    outcome = run("dump", samples / "damaged", "--limit", 1500, "--json")
    assert (outcome.code, len(outcome.objects), outcome.err) == (0, 1500, "")


def test_damage_beyond_the_range_is_ignored(samples: Path) -> None:
    outcome = run("dump", samples / "damaged", "--to", 1400, "--json")
    assert outcome.code == 0
    assert len(outcome.objects) == 1400
