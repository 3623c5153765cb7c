"""`logwright inspect`, `verify` and `state`: the description of a journal, its health, and its state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logwright import sej
from tests.cli.support import GOLDEN, Outcome, assert_one_error_line, run

# --- inspect ----------------------------------------------------------------------------------------------------------


def test_inspect_shows_format_files_records_bytes_both_ends_and_health(samples: Path) -> None:
    outcome = run("inspect", samples / "orders", "--json")
    assert outcome.code == 0
    summary = outcome.object
    assert summary["format"] == "sej"
    assert summary["path"] == str(samples / "orders")
    assert (summary["files"], summary["records"]) == (6, 3000)
    assert summary["bytes"] == sum(path.stat().st_size for path in (samples / "orders" / "jnl").iterdir())
    assert summary["first"] == run("dump", samples / "orders", "--limit", 1, "--json").object
    assert summary["last"] == run("tail", samples / "orders", "-n", 1, "--json").object
    assert summary["health"].startswith("sound")
    assert summary["consumers"] == {"billing": 2900, "report": 1200}


def facts(outcome: Outcome) -> dict[str, str]:
    """The names and values of the text output."""
    return {name.strip(): fact.strip() for name, _, fact in (line.partition("  ") for line in outcome.lines)}


def test_inspect_shows_the_same_as_text(samples: Path) -> None:
    shown = facts(run("inspect", samples / "orders"))
    assert shown["format"] == "sej"
    assert shown["records"] == "3000"
    assert shown["bytes"] == "361292 (353 KiB)"
    assert shown["first"].startswith(
        "offset 0, 2026-01-15T08:00:12.354539149Z, 120 bytes at jnl/0000000000000000.jnl @ 0"
    )
    assert shown["span"] == "3h 59m"
    assert shown["consumers report"] == "1200"


def test_inspect_of_an_empty_journal_has_no_ends() -> None:
    shown = facts(run("inspect", GOLDEN / "empty" / "sej"))
    assert (shown["records"], shown["first"], shown["last"]) == ("0", "-", "-")
    assert "span" not in shown


def test_inspect_does_not_count_a_torn_tail_as_damage(samples: Path) -> None:
    outcome = run("inspect", samples / "torn", "--json")
    assert (outcome.code, outcome.object["records"]) == (0, 2999)
    assert outcome.object["health"].startswith("torn tail at jnl/0000000000000aa5.jnl @ 33009")


@pytest.mark.parametrize("case", ["gap", "multi_torn_middle", "midflip_size_torn"])
def test_inspect_reports_damage_visible_without_reading_records(case: str) -> None:
    outcome = run("inspect", GOLDEN / case / "sej", "--json")
    assert outcome.code == 1
    assert "damaged at jnl/" in outcome.object["health"]


def test_inspect_of_a_root_shows_each_shard(demo: Path) -> None:
    summary = run("inspect", demo / "events", "--json").object
    assert (summary["files"], summary["records"]) == (4, 600)
    assert sum(shard["records"] for shard in summary["shards"].values()) == 600
    shutil.copytree(GOLDEN / "gap" / "sej" / "jnl", demo / "events" / "web.2.003" / "jnl", dirs_exist_ok=True)
    assert run("inspect", demo / "events").code == 1


# --- verify -----------------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_journal(samples: Path) -> None:
    outcome = run("verify", samples / "orders", "--json")
    assert outcome.code == 0
    assert outcome.object == {
        "format": "sej",
        "sound": True,
        "records": 3000,
        "bytes": 361292,
        "problems": [],
        "anomalies": [],
        "losses": [],
    }
    assert run("verify", samples / "orders").out == f"{samples / 'orders'}: sound (sej, 3000 records, 353 KiB)\n"


def test_verify_reports_each_problem_with_its_file_and_position(samples: Path) -> None:
    outcome = run("verify", samples / "damaged", "--json")
    assert outcome.code == 1
    report = outcome.object
    assert (report["sound"], report["records"]) == (False, 2999)
    (problem,) = report["problems"]
    assert (problem["file"], problem["position"], problem["kind"]) == ("jnl/0000000000000442.jnl", 49388, "malformed")
    table = run("verify", samples / "damaged")
    assert table.code == 1
    assert table.lines[0] == f"{samples / 'damaged'}: 1 problem (sej, 2999 records, 353 KiB)"
    assert table.lines[2].split(maxsplit=5)[:5] == ["problem", "malformed", "jnl/0000000000000442.jnl", "@", "49388"]


def test_verify_reports_a_torn_tail(samples: Path) -> None:
    outcome = run("verify", samples / "torn", "--json")
    assert outcome.code == 1
    assert [problem["kind"] for problem in outcome.object["problems"]] == ["torn_tail"]


def test_journal_with_only_anomalies_is_sound() -> None:
    outcome = run("verify", GOLDEN / "offsets" / "sej", "--json")
    assert outcome.code == 0
    assert outcome.object["sound"] is True
    assert [anomaly["kind"] for anomaly in outcome.object["anomalies"]] == ["consumer_ahead"]
    assert (
        run("verify", GOLDEN / "offsets" / "sej").lines[2].startswith("anomaly   consumer_ahead  ofs/reader2.ofs @ 0")
    )


def test_verify_finds_a_flipped_bit_by_its_checksum(tmp_path: Path) -> None:
    with sej.Writer(tmp_path, checksums=True) as writer:
        for number in range(100):
            writer.append(b"value %d" % number)
    segment = tmp_path / "jnl" / "0000000000000000.jnl"
    data = bytearray(segment.read_bytes())
    data[24] ^= 0x20  # within a value: only a checksum detects it
    segment.write_bytes(data)
    outcome = run("verify", tmp_path, "--json")
    assert outcome.code == 1
    assert [problem["kind"] for problem in outcome.object["problems"]] == ["checksum"]
    assert_one_error_line(run("dump", tmp_path), 1, "0000000000000000.jnl @ 0: ")


# --- state ------------------------------------------------------------------------------------------------------------


def test_state_of_a_journal_is_first_next_segments_and_consumers(samples: Path) -> None:
    outcome = run("state", samples / "orders", "--json")
    assert outcome.code == 0
    state = outcome.object
    assert list(state) == ["first", "next", "segments", "consumers"]
    assert (state["first"], state["next"]) == (0, 3000)
    assert [segment["first"] for segment in state["segments"]] == [0, 545, 1090, 1635, 2180, 2725]
    assert state["consumers"] == {"billing": 2900, "report": 1200}


def test_state_shows_the_same_as_text(samples: Path) -> None:
    lines = run("state", samples / "orders").lines
    assert lines[:2] == ["first  0", "next   3000"]
    assert lines[3:5] == ["segments:", "file                      first  next  bytes"]
    assert lines[-3:] == ["consumers:", "billing  2900", "report   1200"]
    shards = run("state", samples / "events").lines
    assert [line for line in shards if line.startswith("-- ")] == [f"-- web.2.00{index}" for index in range(4)]


@pytest.mark.parametrize(
    ("at", "next_offset", "segments"), [("1000", 1000, 2), ("2026-01-15T10:00:00Z", 1502, 3), ("0", 0, 1)]
)
def test_state_at_an_offset_or_a_time(at: str, next_offset: int, segments: int, samples: Path) -> None:
    state = run("state", samples / "orders", "--at", at, "--json").object
    assert (state["next"], len(state["segments"])) == (next_offset, segments)
    assert state["consumers"] == {"billing": min(2900, next_offset), "report": min(1200, next_offset)}


def test_state_at_a_removed_offset_is_refused() -> None:
    outcome = run("state", GOLDEN / "first_deleted" / "sej", "--at", 1)
    assert_one_error_line(outcome, 2, "is not kept")


def test_future_state_is_wrong_use(samples: Path) -> None:
    assert_one_error_line(run("state", samples / "orders", "--at", 5000), 2, "yet to come")


def test_state_of_a_root_at_a_time_is_refused(samples: Path) -> None:
    assert_one_error_line(run("state", samples / "events", "--at", "2026-01-15T10:00Z"), 2, "give the path of one part")


def test_state_warns_of_a_torn_tail_and_fails_on_other_damage(samples: Path) -> None:
    torn = run("state", samples / "torn", "--json")
    assert (torn.code, torn.object["next"]) == (0, 2999)
    assert torn.err.count("warning") == 1
    damaged = run("state", samples / "damaged", "--json")
    assert (damaged.code, damaged.object["next"]) == (1, 3000)
    assert "0000000000000442.jnl @ 49388: " in damaged.err
    assert run("state", samples / "damaged", "--at", 1400).code == 0
