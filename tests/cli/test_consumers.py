"""`logwright offsets`, `reset` and `clean`: consumers, and retention that respects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.sej.model.offset import Offset, read_offset
from tests.cli.support import GOLDEN, Outcome, assert_one_error_line, run, shell


def time_of(journal: Path, offset: int) -> str:
    """The time that a dump shows for a message."""
    return run("dump", journal, "--from", offset, "--limit", 1).lines[-1].split()[3]


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_show_first_next_and_each_consumer(samples: Path) -> None:
    outcome = run("offsets", samples / "orders", "--json")
    assert outcome.code == 0
    assert outcome.object == {"first": 0, "next": 3000, "consumers": {"billing": 2900, "report": 1200}}


def test_consumer_that_has_not_committed_has_null() -> None:
    assert run("offsets", GOLDEN / "offsets" / "sej", "--json").object == {
        "first": 0,
        "next": 40,
        "consumers": {
            "committed_same_value": None,
            "never_committed_first": None,
            "never_committed_last": None,
            "reader1": 17,
            "reader2": 1311112627150439643,
        },
    }


def test_table_shows_the_lag_of_each_consumer(demo: Path) -> None:
    with Offset(demo / "orders", "fast") as offset:
        offset.commit(5000)
    with Offset(demo / "orders", "idle"):
        pass
    lines = run("offsets", demo / "orders").lines
    assert lines[0] == f"{demo / 'orders'}: first 0, next 3000"
    assert [line.split(maxsplit=2) for line in lines[2:]] == [
        ["billing", "2900", f"{'100':>19}  {time_of(demo / 'orders', 2900)}".strip()],
        ["fast", "5000", "2000 beyond the end  -"],
        ["idle", "-", f"{'not committed':>19}  -".strip()],
        ["report", "1200", f"{'1800':>19}  {time_of(demo / 'orders', 1200)}".strip()],
    ]


def test_messages_removed_before_consumption_are_reported(demo: Path) -> None:
    assert run("clean", demo / "orders", "--ignore-consumer", "report", "--yes").code == 0
    assert run("offsets", demo / "orders").lines[-1].split(maxsplit=2) == ["report", "1200", "275, 1525 lost  -"]


def test_unreadable_offset_file_is_damage_and_hides_no_other(demo: Path) -> None:
    (demo / "orders" / "ofs" / "report.ofs").write_bytes(b"\x00\x01")
    outcome = run("offsets", demo / "orders", "--json")
    assert (outcome.code, outcome.object["consumers"]) == (1, {"billing": 2900})
    assert f"{demo / 'orders'}/ofs/report.ofs @ 0: " in outcome.err


@pytest.mark.parametrize("verb", ["offsets", "state"])
def test_offset_that_is_not_a_file_is_reported_and_hides_no_other(verb: str, demo: Path) -> None:
    stored = demo / "orders" / "ofs" / "billing.ofs"
    stored.unlink()
    stored.symlink_to(demo / "elsewhere")
    outcome = run(verb, demo / "orders", "--json")
    expected = {"report": 1200} if verb == "offsets" else {"billing": None, "report": 1200}
    assert (outcome.code, outcome.object["consumers"]) == (1, expected)
    assert f"the offset of the consumer 'billing' cannot be read: open {stored}" in outcome.err


def test_state_reports_a_damaged_offset_file(demo: Path) -> None:
    for journal in (demo / "orders", demo / "events" / "web.2.001"):
        (journal / "ofs").mkdir(exist_ok=True)
        (journal / "ofs" / "report.ofs").write_bytes(b"\x00\x01")
    for path, damaged in ((demo / "orders", demo / "orders"), (demo / "events", demo / "events" / "web.2.001")):
        outcome = run("state", path, "--json")
        assert outcome.code == 1
        assert f"{damaged}/ofs/report.ofs @ 0: " in outcome.err


def test_offsets_are_shown_for_each_shard(samples: Path) -> None:
    answers = run("offsets", samples / "events", "--json").objects
    assert [answer["shard"] for answer in answers] == ["web.2.000", "web.2.001", "web.2.002", "web.2.003"]
    assert sum(answer["next"] for answer in answers) == 600


def test_single_file_has_no_consumers(samples: Path) -> None:
    path = samples / "orders" / "jnl" / "0000000000000000.jnl"
    assert_one_error_line(run("offsets", path), 2, "give the journal's directory")


# --- reset ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "offset"),
    [("first", 0), ("last", 3000), ("1000", 1000), ("2026-01-15T10:00:00Z", 1502), ("2030-01-01", 3000)],
)
def test_reset_moves_a_consumer_to_the_target(target: str, offset: int, demo: Path) -> None:
    outcome = run("reset", demo / "orders", "billing", "--to", target, "--json")
    done = {"consumer": "billing", "before": 2900, "after": offset, "done": True}
    assert (outcome.code, outcome.object) == (0, done)
    assert read_offset(demo / "orders", "billing") == offset


def test_plan_shows_the_target_and_changes_nothing(demo: Path) -> None:
    outcome = run("reset", demo / "orders", "billing", "--to", "first", "--plan", "--json")
    assert outcome.object == {"consumer": "billing", "before": 2900, "after": 0, "done": False}
    assert "nothing was changed" in outcome.err
    assert run("reset", demo / "orders", "new", "--to", "first", "--plan", "--create").code == 0
    assert run("offsets", demo / "orders", "--json").object["consumers"] == {"billing": 2900, "report": 1200}


def test_reset_to_a_time_matches_the_first_message_of_a_dump(samples: Path) -> None:
    chosen = (samples / "orders", "--since", "2026-01-15T10:00:00Z", "--limit", 1, "--json")
    assert run("dump", *chosen).object["offset"] == 1502


def test_reset_reports_its_change(demo: Path) -> None:
    outcome = run("reset", demo / "orders", "report", "--to", "7")
    assert outcome == Outcome(0, f"{demo / 'orders'}: report 1200 -> 7\n", "")


def test_missing_consumer_is_not_created_by_mistake(demo: Path) -> None:
    orders = demo / "orders"
    assert_one_error_line(run("reset", orders, "biling", "--to", "first"), 2, "billing, report")
    created = run("reset", orders, "audit", "--to", "last", "--create", "--json")
    assert created.object == {"consumer": "audit", "before": None, "after": 3000, "done": True}
    assert read_offset(orders, "audit") == 3000


def test_running_consumer_is_not_moved(demo: Path) -> None:
    with Offset(demo / "orders", "billing"):
        assert_one_error_line(run("reset", demo / "orders", "billing", "--to", "first"), 2, "is running elsewhere")
    assert read_offset(demo / "orders", "billing") == 2900


def test_reset_repairs_a_damaged_offset(demo: Path) -> None:
    (demo / "orders" / "ofs" / "report.ofs").write_bytes(b"\x00\x01")
    assert run("reset", demo / "orders", "report", "--to", "5", "--json").object["before"] is None
    assert read_offset(demo / "orders", "report") == 5


@pytest.mark.parametrize(
    ("target", "words"), [("9999", "beyond the end"), ("soon", "is not a time"), ("-5 days", "is not a time")]
)
def test_invalid_target_is_refused(target: str, words: str, demo: Path) -> None:
    assert_one_error_line(run("reset", demo / "orders", "billing", "--to", target), 2, words)
    assert read_offset(demo / "orders", "billing") == 2900


def test_name_outside_the_directory_is_refused(demo: Path) -> None:
    outcome = run("reset", demo / "orders", "../../evil", "--to", "first", "--create")
    assert_one_error_line(outcome, 2, "consumer name '../../evil'")


def test_consumer_of_a_root_is_moved_in_each_shard(demo: Path) -> None:
    root = demo / "events"
    assert run("reset", root, "page-counter", "--to", "2026-01-15T09:00Z", "--create").code == 0
    moved = [answer["consumers"]["page-counter"] for answer in run("offsets", root, "--json").objects]
    assert all(0 < offset < 160 for offset in moved)
    assert_one_error_line(run("reset", root, "page-counter", "--to", "3"), 2, "reset one shard at a time")


def test_consumer_running_in_one_shard_is_moved_in_none(demo: Path) -> None:
    root = demo / "events"
    assert run("reset", root, "counter", "--to", "last", "--create").code == 0
    before = run("offsets", root, "--json").objects
    with Offset(root / "web.2.002", "counter"):
        outcome = run("reset", root, "counter", "--to", "first")
    assert_one_error_line(outcome, 2, "web.2.002: the consumer 'counter' is running elsewhere")
    assert outcome.out == ""
    assert run("offsets", root, "--json").objects == before
    assert run("reset", root, "counter", "--to", "first").code == 0
    assert [answer["consumers"] for answer in run("offsets", root, "--json").objects] == [{"counter": 0}] * 4


# --- clean ------------------------------------------------------------------------------------------------------------


def segments(journal: Path) -> list[str]:
    return sorted(path.name for path in (journal / "jnl").iterdir())


def test_plan_changes_nothing(demo: Path) -> None:
    before = segments(demo / "orders")
    outcome = run("clean", demo / "orders", "--plan", "--json")
    assert outcome.code == 0
    plan = outcome.object
    assert (plan["done"], plan["removed"], plan["removed_bytes"]) == (False, 2, 131298)
    assert [segment["remove"] for segment in plan["segments"]] == [True, True, False, False, False, False]
    assert segments(demo / "orders") == before


def test_messages_passed_by_every_consumer_are_removed(demo: Path) -> None:
    outcome = run("clean", demo / "orders", "--yes")
    assert outcome.code == 0
    assert outcome.lines[0] == f"{demo / 'orders'}: 2 of 6 segments removed (128 KiB)"
    assert outcome.lines[4].split(maxsplit=4)[3:] == ["stays", "needed by report"]
    assert segments(demo / "orders")[0] == "0000000000000442.jnl"
    assert run("verify", demo / "orders").code == 0
    assert run("count", demo / "orders", "--json").object == {"records": 3000 - 0x442}


def test_limits_keep_recent_or_small_segments(demo: Path) -> None:
    orders = demo / "orders"
    assert run("clean", orders, "--max-age", "36500d", "--plan", "--json").object["removed"] == 0
    assert run("clean", orders, "--max-age", "1s", "--plan", "--json").object["removed"] == 2
    assert run("clean", orders, "--max-bytes", "300k", "--plan", "--json").object["removed"] == 1
    assert run("clean", orders, "--keep", 5, "--plan", "--json").object["removed"] == 1
    ignoring = run("clean", orders, "--ignore-consumer", "report", "--plan", "--json").object
    assert (ignoring["removed"], ignoring["consumers"]) == (5, {"billing": 2900})


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_clean_needs_yes_without_a_terminal(options: tuple[str, ...], demo: Path) -> None:
    orders = demo / "orders"
    outcome = run("clean", orders, *options)
    assert_one_error_line(outcome, 2, f"removing segments of {orders} for good", "--plan shows it, --yes does it")
    assert (outcome.out, len(segments(orders))) == ("", 6)
    assert run("clean", orders, "--yes", *options).code == 0
    assert len(segments(orders)) == 4


def test_piped_stderr_does_not_count_as_consent(demo: Path) -> None:
    outcome = shell("logwright clean orders 2>&1 | cat", demo)
    assert (outcome.code, len(segments(demo / "orders"))) == (2, 6)
    assert outcome.out.startswith("logwright: error: removing segments of orders for good needs confirmation")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-age", "old"), "is not a duration"),
        (("--max-bytes", "much"), "is not a size"),
        (("--ignore-consumer", "nobody"), "no consumer 'nobody'"),
        (("--keep", "0"), "--keep"),
    ],
)
def test_invalid_rules_are_refused(options: tuple[str, ...], words: str, demo: Path) -> None:
    before = segments(demo / "orders")
    assert_one_error_line(run("clean", demo / "orders", *options), 2, words)
    assert segments(demo / "orders") == before


def test_journal_without_consumers_needs_a_limit(demo: Path) -> None:
    assert_one_error_line(run("clean", demo / "events"), 2, "no consumer to go by")
    outcome = run("clean", demo / "events", "--max-bytes", 0, "--json")
    assert [answer["removed"] for answer in outcome.objects] == [0, 0, 0, 0]  # each has one segment, which stays


def test_ignored_consumer_may_be_missing_in_some_shards(demo: Path) -> None:
    root = demo / "events"
    with Offset(root / "web.2.001", "gone"):
        pass
    outcome = run("clean", root, "--ignore-consumer", "gone", "--max-bytes", 0, "--plan", "--json")
    assert (outcome.code, [answer["consumers"] for answer in outcome.objects]) == (0, [{}] * 4)
    outcome = run("clean", root, "--ignore-consumer", "nobody", "--max-bytes", 0, "--plan")
    assert_one_error_line(outcome, 2, f"{root}: there is no consumer 'nobody' to ignore")


def test_unreadable_offset_prevents_any_removal(demo: Path) -> None:
    (demo / "orders" / "ofs" / "report.ofs").write_bytes(b"\x00\x01")
    outcome = run("clean", demo / "orders", "--yes")
    assert_one_error_line(outcome, 1, f"{demo / 'orders'}/ofs/report.ofs @ 0: ", "reset it or ignore it")
    assert len(segments(demo / "orders")) == 6
    shard = demo / "events" / "web.2.002"
    (shard / "ofs").mkdir()
    (shard / "ofs" / "report.ofs").write_bytes(b"\x00\x01")
    assert_one_error_line(run("clean", demo / "events", "--max-bytes", 0), 1, f"{shard}/ofs/report.ofs @ 0: ")
