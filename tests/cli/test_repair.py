"""`logwright repair`: planned, executed, undone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logwright import kestrel, sej, versioned
from logwright.core.io.disk import REAL_DISK
from tests.cli.support import GOLDEN, Terminal, assert_one_error_line, run
from tests.support.damage import damage_file, increment_byte
from tests.support.trees import Tree, differences, read_tree


def tree(path: Path) -> Tree:
    """The files of the journal, without the copies and notes of a repair."""
    return {name: data for name, data in read_tree(REAL_DISK, path).items() if not name.startswith(".logwright")}


def segments(path: Path) -> Tree:
    return {name: data for name, data in tree(path).items() if name.startswith("jnl/")}


def test_plan_prints_the_steps_and_changes_nothing(demo: Path) -> None:
    before = read_tree(REAL_DISK, demo)
    outcome = run("repair", demo / "torn", "--plan")
    assert outcome.code == 0
    assert outcome.lines[0].startswith("jnl/0000000000000aa5.jnl @ 33009: cut off 102 bytes: ")
    assert "nothing was changed" in outcome.err
    plan = run("repair", demo / "torn", "--plan", "--json").object
    assert (plan["done"], plan["log"], plan["kept"], plan["left"]) == (False, None, [], [])
    assert plan["steps"][0]["do"] == "cut"
    assert differences(before, read_tree(REAL_DISK, demo)) == []


def test_torn_tail_is_cut_kept_and_restored_by_undo(demo: Path) -> None:
    path = demo / "torn"
    before = segments(path)
    last = (path / "jnl" / "0000000000000aa5.jnl").read_bytes()
    outcome = run("repair", path, "--yes", "--json")
    assert outcome.code == 0
    assert outcome.object["done"] is True
    kept = [Path(copy).read_bytes() for copy in outcome.object["kept"]]
    assert last[33009:] in kept
    assert run("verify", path).code == 0
    undone = run("repair", path, "--undo", "--yes", "--json")
    assert undone.code == 0
    assert undone.object["undone"] is True
    assert segments(path) == before
    assert run("verify", path).code == 1


def test_damage_is_removed_and_accounted_for_and_the_journal_is_writable(demo: Path) -> None:
    path = demo / "damaged"
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert outcome.lines[0].startswith("lost 1 record: message 1500, ")
    found = run("verify", path, "--json").object
    assert (found["sound"], found["records"]) == (True, 2999)
    assert [(loss["records"], loss["fields"]["first"], loss["fields"]["next"]) for loss in found["losses"]] == [
        (1, 1500, 1501)
    ]
    with sej.Writer(path) as writer:
        assert writer.append(b"continued") == 3000
    assert run("count", path, "--json").object["records"] == 3000


def test_one_wrong_byte_of_a_size_is_restored_and_named(demo: Path) -> None:
    path = demo / "orders"
    segment = path / "jnl" / "0000000000000000.jnl"
    whole = segment.read_bytes()
    with sej.Reader(path) as reader:
        span = next(iter(reader.scan(7, 8))).span
    damage_file(segment, increment_byte, span.end - 1)
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert outcome.lines[0].startswith("restored by inference: ")
    assert segment.read_bytes() == whole


def test_repair_is_not_undone_after_later_appends(demo: Path) -> None:
    path = demo / "torn"
    assert run("repair", path, "--yes").code == 0
    with sej.Writer(path) as writer:
        writer.append(b"written since")
    assert_one_error_line(run("repair", path, "--undo", "--yes"), 2, "was changed since")
    assert run("count", path, "--json").object == {"records": 3000}


def test_sound_journal_needs_no_repair(demo: Path) -> None:
    before = read_tree(REAL_DISK, demo)
    outcome = run("repair", demo / "orders")
    assert (outcome.code, outcome.out) == (0, f"{demo / 'orders'}: nothing to repair\n")
    assert run("repair", demo / "orders", "--json").object["done"] is False
    assert differences(before, read_tree(REAL_DISK, demo)) == []


def test_irreparable_damage_is_reported_with_exit_code_1(demo: Path) -> None:
    path = demo / "pages" / "accounts.jrnl"
    path.write_bytes(b"notes about accounts\n" * 100)
    before = path.read_bytes()
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert any(line.startswith("cannot be repaired: ") for line in outcome.lines)
    assert outcome.lines[-1] == f"{path}: nothing that can be repaired"
    assert path.read_bytes() == before


def test_messages_of_a_missing_segment_are_accounted_for(tmp_path: Path) -> None:
    path = tmp_path / "gap"
    shutil.copytree(GOLDEN / "gap" / "sej", path)
    before = segments(path)
    assert run("verify", path).code == 1
    outcome = run("repair", path, "--yes", "--json")
    assert outcome.code == 1
    assert [(loss["records"], loss["fields"]["first"]) for loss in outcome.object["losses"]] == [(4, 12)]
    assert segments(path) == before
    assert (run("verify", path).code, run("dump", path).code) == (0, 0)


def test_undo_without_a_repair_is_wrong_use(demo: Path) -> None:
    assert_one_error_line(run("repair", demo / "torn", "--undo", "--yes"), 2, "no repair of this journal")
    assert_one_error_line(run("repair", demo / "torn", "--undo", "--plan"), 2, "exclude each other")


def test_journal_that_is_being_written_is_not_repaired(demo: Path) -> None:
    path = demo / "damaged"
    with sej.Writer(path):
        outcome = run("repair", path, "--yes")
    assert_one_error_line(outcome, 2, "is locked by another")


def test_sound_journal_that_is_being_written_is_reported_as_locked(demo: Path) -> None:
    with sej.Writer(demo / "orders"):
        assert_one_error_line(run("repair", demo / "orders", "--yes"), 2, "is locked by another")
        assert run("repair", demo / "orders", "--plan").lines[-1].endswith("nothing to repair")
    with kestrel.Queue(demo / "queues", "mail"):
        assert_one_error_line(run("repair", demo / "queues" / "mail", "--yes"), 2, "is locked by another")
        assert run("repair", demo / "queues" / "jobs", "--yes").code == 0
    with versioned.VersionedKVStore(demo / "stores", "fleet"):
        assert_one_error_line(run("repair", demo / "stores", "--yes"), 2, "is locked by another")


def test_queue_is_repaired_while_another_queue_of_the_directory_is_open(demo: Path) -> None:
    with (demo / "queues" / "jobs").open("ab") as file:
        file.write(b"\x00\x01")
    with kestrel.Queue(demo / "queues", "mail"):
        outcome = run("repair", demo / "queues", "--yes")
    assert (outcome.code, outcome.lines[-1].split(": ")[1][:9]) == (1, "repaired;")


def test_option_of_another_format_is_refused(demo: Path) -> None:
    outcome = run("repair", demo / "queues" / "mail", "--accept-checksums", "--plan")
    assert_one_error_line(outcome, 2, "mail: a repair of kestrel has no --accept-checksums")


def test_blocks_that_do_not_match_their_checksum_can_be_accepted(tmp_path: Path) -> None:
    with sej.Writer(tmp_path, checksums=True) as writer:
        for number in range(100):
            writer.append(b"value %d" % number)
    segment = tmp_path / "jnl" / "0000000000000000.jnl"
    data = bytearray(segment.read_bytes())
    data[24:28] = b"VALU"  # more than one bit: the original cannot be derived
    segment.write_bytes(data)
    assert run("repair", tmp_path, "--yes").code == 1
    assert run("verify", tmp_path).code == 1
    accepted = run("repair", tmp_path, "--accept-checksums", "--yes")
    assert accepted.code == 1
    assert accepted.lines[0].startswith("kept without proof: messages 0 to 99, taken as they are")
    assert run("verify", tmp_path).code == 0
    assert segment.read_bytes() == bytes(data)


@pytest.mark.parametrize(("answer", "code", "records"), [("n\n", 1, 1), ("y\n", 0, 0)])
def test_repair_asks_first_on_a_terminal(
    answer: str, code: int, records: int, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = Terminal(answer)
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = run("repair", demo / "torn", terminal=True)
    assert outcome.code == code
    assert f"Repair {demo / 'torn'}?" in outcome.err
    assert "cut off 102 bytes" in outcome.out
    assert len(run("verify", demo / "torn", "--json").object["problems"]) == records


def test_repair_and_undo_need_yes_without_a_terminal(demo: Path) -> None:
    path = demo / "torn"
    before = read_tree(REAL_DISK, path)
    for options in ((), ("--json",)):
        outcome = run("repair", path, *options)
        assert_one_error_line(outcome, 2, f"repairing {path} needs confirmation", "--plan shows it, --yes does it")
        assert outcome.out == ""
    assert differences(before, read_tree(REAL_DISK, path)) == []
    assert run("repair", path, "--yes").code == 0
    repaired = read_tree(REAL_DISK, path)
    outcome = run("repair", path, "--undo")
    assert_one_error_line(outcome, 2, f"undoing a repair of {path} needs confirmation", "--yes does it")
    assert "--plan" not in outcome.err
    assert differences(repaired, read_tree(REAL_DISK, path)) == []


def test_end_of_input_means_no(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(""))
    before = read_tree(REAL_DISK, demo)
    assert run("repair", demo / "torn", terminal=True).code == 130
    assert run("clean", demo / "orders", terminal=True).code == 130
    assert differences(before, read_tree(REAL_DISK, demo)) == []


def test_all_shards_below_a_root_are_repaired(demo: Path) -> None:
    root = demo / "events"
    for shard in ("web.2.001", "web.2.003"):
        segment = root / shard / "jnl" / "0000000000000000.jnl"
        segment.write_bytes(segment.read_bytes()[:-5])
    assert run("verify", root).code == 1
    assert run("repair", root, "--yes").code == 0
    assert run("verify", root).code == 0
    assert run("count", root, "--json").object == {"records": 598}
    assert run("repair", root, "--undo", "--yes").code == 0
    assert run("verify", root).code == 1
