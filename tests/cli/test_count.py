"""`logwright count`: the number of complete records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logwright.sej import ShardedWriter
from tests.cli.support import GOLDEN, Outcome, assert_one_error_line, run


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ((), 3000),
        (("--from", 2990), 10),
        (("--to", 600), 600),
        (("--from", 500, "--to", 600), 100),
        (("--since", "2030-01-01"), 0),
    ],
)
def test_records_are_counted_in_a_range(options: tuple[object, ...], records: int, samples: Path) -> None:
    assert run("count", samples / "orders", *options, "--json") == Outcome(0, f'{{"records": {records}}}\n', "")
    assert run("count", samples / "orders", *options) == Outcome(0, f"{records}\n", "")


def test_count_of_a_time_range_matches_its_dump(samples: Path) -> None:
    for journal in ("orders", "events"):
        chosen = (samples / journal, "--since", "2026-01-15T10:00Z", "--until", "2026-01-15T10:30Z", "--json")
        assert run("count", *chosen).object == {"records": len(run("dump", *chosen).objects)}


def test_records_of_a_type_are_counted(samples: Path) -> None:
    for journal in ("orders", "damaged", "torn"):
        counts = [run("count", samples / journal, "--type", kind, "--json").object["records"] for kind in range(5)]
        assert sum(counts) == run("count", samples / journal, "--json").object["records"]
        assert all(count > 500 for count in counts[:4])
    assert run("count", samples / "damaged", "--type", 1).code == 1
    assert_one_error_line(run("count", samples / "damaged", "--type", 1, "--mode", "failfast"), 1, "@ 49388: ")
    assert_one_error_line(run("count", samples / "orders", "--type", 256), 2, "--type")


def test_all_shards_are_counted(samples: Path) -> None:
    assert run("count", samples / "events", "--json").object == {"records": 600}
    assert run("count", samples / "events", "--json", "--to", 1).object == {"records": 4}


def test_torn_tail_is_a_warning(samples: Path) -> None:
    outcome = run("count", samples / "torn")
    assert (outcome.code, outcome.out) == (0, "2999\n")
    assert "torn" in outcome.err


def test_damage_is_reported_and_intact_records_are_counted(samples: Path) -> None:
    for mode in ("permissive", "dropmalformed"):
        outcome = run("count", samples / "damaged", "--json", "--mode", mode)
        assert (outcome.code, outcome.object) == (1, {"records": 2999})
        assert "not counted: " in outcome.err
        assert "0000000000000442.jnl @ 49388: " in outcome.err


def test_failfast_stops_at_damage(samples: Path) -> None:
    outcome = run("count", samples / "damaged", "--mode", "failfast")
    assert_one_error_line(outcome, 1, f"{samples / 'damaged'}/jnl/0000000000000442.jnl @ 49388: ")
    assert outcome.out == ""


def test_gap_is_damage() -> None:
    outcome = run("count", GOLDEN / "gap" / "sej", "--json")
    assert (outcome.code, outcome.object) == (1, {"records": 36})


def test_root_with_one_journal_below_a_prefix_is_counted(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", "blue", 0) as writer:
        for number in range(7):
            writer.append(b"value %d" % number)
    assert run("count", tmp_path / "root") == Outcome(0, "7\n", "")
    (tmp_path / "root" / "other").mkdir()
    assert run("count", tmp_path / "root").code == 2, "which of them is meant is not for us to say"


def test_known_losses_are_reported_and_are_not_damage(samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "damaged", tmp_path / "journal")
    whole = run("count", tmp_path / "journal")
    assert run("repair", tmp_path / "journal", "--yes").code == 1
    counted = run("count", tmp_path / "journal")
    assert (whole.code, counted.code, counted.out) == (1, 0, whole.out)
    assert "lost, as the account of losses says" in counted.err
