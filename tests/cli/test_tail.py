"""`logwright tail`: the last records, and new ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from logwright import appendfile, sej
from logwright.errors import Gap
from logwright.sej.model.shard_writer import ShardedWriter
from tests.cli.support import assert_one_error_line, run, start


def tailed(*arguments: object) -> list[int]:
    return [record["offset"] for record in run("tail", *arguments, "--json").objects]


def test_last_ten_records_are_shown_by_default(samples: Path) -> None:
    assert tailed(samples / "orders") == list(range(2990, 3000))
    assert tailed(samples / "orders", "-n", 2) == [2998, 2999]
    assert tailed(samples / "orders", "-n", 0) == []
    assert tailed(samples / "orders", "-n", 5000) == list(range(3000))


def test_tail_is_the_end_of_a_dump(samples: Path) -> None:
    assert (
        run("tail", samples / "orders", "-n", 3).lines[-3:]
        == run("dump", samples / "orders", "--from", 2997).lines[-3:]
    )


def test_since_shows_everything_from_a_time_on(samples: Path) -> None:
    since = ("--since", "2026-01-15T11:55:00Z")
    offsets = [record["offset"] for record in run("dump", samples / "orders", *since, "--json").objects]
    assert len(offsets) > 10
    assert tailed(samples / "orders", *since) == offsets
    assert tailed(samples / "orders", *since, "-n", 3) == offsets[-3:]


def test_torn_tail_is_a_warning(samples: Path) -> None:
    outcome = run("tail", samples / "torn", "-n", 1, "--json")
    assert (outcome.code, outcome.object["offset"]) == (0, 2998)
    assert outcome.err.startswith("logwright: warning: ")


def test_tail_across_damage_is_an_error_or_reads_forward(samples: Path) -> None:
    path = samples / "damaged"
    assert tailed(path, "-n", 1000) == list(range(2000, 3000))
    assert_one_error_line(run("tail", path, "-n", 1500), 1, f"{path}/jnl/0000000000000442.jnl @ ")
    dropped = run("tail", path, "-n", 1500, "--mode", "dropmalformed", "--json")
    assert dropped.code == 1
    assert [record["offset"] for record in dropped.objects] == [*range(1501, 3000)]
    shown = run("tail", path, "-n", 1500, "--mode", "permissive", "--json")
    assert shown.code == 1
    assert shown.objects[0]["kind"] == "malformed"
    assert [record["offset"] for record in shown.objects[1:]] == [*range(1501, 3000)]


def test_missing_segment_before_the_last_records_is_reported_as_by_dump(tmp_path: Path) -> None:
    with sej.Writer(tmp_path, segment_size=1000) as writer:
        for number in range(45):
            writer.append(b"%032d" % number)
    segments = sorted((tmp_path / "jnl").glob("*.jnl"))
    segments[-2].unlink()
    whole = "jnl/0000000000000024.jnl @ 0: the segment begins with offset 36 where 18 was expected"
    assert whole in run("dump", tmp_path).err
    for count, shown in ((100, list(range(36, 45))), (9, list(range(36, 45))), (3, [42, 43, 44])):
        outcome = run("tail", tmp_path, "-n", count, "--json")
        assert [record["offset"] for record in outcome.objects] == shown
        assert outcome.code == 1
        assert whole in outcome.err
    dropped = run("tail", tmp_path, "-n", 11, "--mode", "dropmalformed", "--json")
    assert (dropped.code, [record["offset"] for record in dropped.objects]) == (1, [17, *range(36, 45)])
    assert run("repair", tmp_path, "--yes").code == 1
    assert run("tail", tmp_path, "-n", 3).code == 0


def test_missing_segment_of_a_shard_is_reported_if_its_messages_are_shown(tmp_path: Path) -> None:
    for shard, moment in (("1.000", 1), ("1.001", 100)):
        with sej.Writer(tmp_path / shard, segment_size=1000) as writer:
            for number in range(45):
                writer.append(b"%032d" % number, timestamp=moment + number)
        sorted((tmp_path / shard / "jnl").glob("*.jnl"))[-2].unlink()
    gaps = [f"1.00{shard}/jnl/0000000000000024.jnl @ 0: the segment begins with offset 36" for shard in (0, 1)]
    cases = [(3, 3, [False, True]), (9, 9, [False, True]), (10, 10, [True, True]), (99, 18, [True, True])]
    for count, shown, reported in cases:
        outcome = run("tail", tmp_path, "-n", count, "--json")
        assert (outcome.code, len(outcome.objects)) == (1, shown)
        assert [gap in outcome.err for gap in gaps] == reported


def test_gap_after_which_nothing_was_read_is_an_error(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: appendfile.Reader, count: int, choice: object = None) -> None:
        raise Gap("4.journal", 25, "records are missing")

    monkeypatch.setattr(appendfile.Reader, "last", fail)
    assert_one_error_line(run("tail", samples / "readings"), 1, "4.journal @ 25: records are missing")


def test_lost_end_is_reported(tmp_path: Path) -> None:
    with sej.Writer(tmp_path, checksums=True) as writer:
        for number in range(9):
            writer.append(b"%032d" % number)
    segment = tmp_path / "jnl" / "0000000000000000.jnl"
    os.truncate(segment, 4 * 58)
    outcome = run("tail", tmp_path, "-n", 2, "--json")
    assert (outcome.code, [record["offset"] for record in outcome.objects]) == (1, [2, 3])
    assert "jnl/0000000000000000.jnl @ 232: the file ends here; it was synced up to" in outcome.err

    warned = run("tail", tmp_path, "-n", 2, "--json", "--mode", "dropmalformed", "-f", "--timeout", 0)
    assert (warned.code, [record["offset"] for record in warned.objects]) == (1, [2, 3])
    assert warned.err.count("the file ends here") == 1
    shown = run("tail", tmp_path, "-n", 2, "--json", "--mode", "permissive", "-f", "--timeout", 0)
    assert (shown.code, [record.get("offset", record.get("kind")) for record in shown.objects]) == (
        1,
        [2, 3, "truncated"],
    )


def test_gap_in_a_shard_is_reported_if_enough_messages_are_found(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path, "web", 1, segment_size=200, hash=lambda message: message.value[0]) as writer:
        for number in range(60):
            writer.append(b"%d" % (number % 2), timestamp=number)
    (tmp_path / "web.1.000/jnl/0000000000000010.jnl").unlink()
    reason = "web.1.000/jnl/0000000000000018.jnl @ 0: the segment begins with offset 24 where 16 was expected"
    for mode in ("failfast", "dropmalformed"):
        outcome = run("tail", tmp_path, "-n", 20, "--json", "--mode", mode)
        assert (outcome.code, len(outcome.objects)) == (1, 20)
        assert outcome.err.count(reason) == 1
    shown = run("tail", tmp_path, "-n", 20, "--json", "--mode", "permissive")
    assert (shown.code, len(shown.objects), shown.objects[-1]["kind"]) == (1, 21, "gap")
    assert run("inspect", tmp_path, "--json").code == 1


def test_last_records_of_all_shards_are_sorted_by_time(samples: Path) -> None:
    everything = run("dump", samples / "events", "--json").objects
    everything.sort(key=lambda record: record["timestamp"])
    assert run("tail", samples / "events", "-n", 20, "--json").objects == everything[-20:]


def test_timeout_without_following_is_refused(samples: Path) -> None:
    assert_one_error_line(run("tail", samples / "orders", "--timeout", 1), 2, "--timeout needs -f")


# --- following --------------------------------------------------------------------------------------------------------


def test_following_continues_across_segments_and_writers(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"old 0")
        writer.append(b"old 1")
    with start("tail", tmp_path, "-n", 1, "-f", "--json", "--decode", "text") as child:
        first = json.loads(child.line())
        assert (first["offset"], first["decoded"]) == (1, "old 1")
        for session in range(2):
            with sej.Writer(tmp_path, segment_size=100) as writer:
                for number in range(20):
                    writer.append(f"new {session} {number}".encode())
                    writer.flush()
            seen = [json.loads(child.line()) for _ in range(20)]
            assert [record["decoded"] for record in seen] == [f"new {session} {number}" for number in range(20)]
            assert [record["offset"] for record in seen] == list(range(2 + 20 * session, 22 + 20 * session))
        assert len(list((tmp_path / "jnl").iterdir())) > 5
        os.kill(child.pid, signal.SIGINT)
        assert child.join() == 130


def test_following_shows_rows_as_they_arrive(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer, start("tail", tmp_path, "-f") as child:
        writer.append(b"one", timestamp=None)
        writer.flush()
        assert child.line().split() == ["offset", "position", "size", "time", "type", "key", "value"]
        assert child.line() == "-- jnl/0000000000000000.jnl"
        assert child.line().split() == ["0", "0", "29", "-", "0", "one"]
        writer.append(b"two", timestamp=None)
        writer.flush()
        assert child.line().split() == ["1", "29", "29", "-", "0", "two"]


def test_following_ends_after_the_given_timeout(samples: Path) -> None:
    outcome = run("tail", samples / "orders", "-n", 1, "-f", "--timeout", 0.01, "--json")
    assert outcome.code == 0
    assert outcome.object["offset"] == 2999


def test_following_a_root_finds_messages_of_every_shard_and_new_shards(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path, "web", 2) as writer:
        writer.append(b"first", key=b"a")
        writer.flush()
        with start("tail", tmp_path, "-f", "--json") as child:
            assert json.loads(child.line())["offset"] == 0
            for number in range(30):
                writer.append(b"more", key=f"key {number}".encode())
            writer.flush()
            seen = [json.loads(child.line()) for _ in range(30)]
        by_shard: dict[str, list[int]] = {}
        for record in seen:
            by_shard.setdefault(record["shard"], []).append(record["offset"])
        assert len(by_shard) == 4
        for offsets in by_shard.values():
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_following_a_torn_tail_waits_for_the_next_writer(demo: Path) -> None:
    path = demo / "torn"
    with start("tail", path, "-n", 1, "-f", "--json") as child:
        assert json.loads(child.line())["offset"] == 2998
        assert child.line().startswith("logwright: warning: ")
        with sej.Writer(path) as writer:
            assert writer.append(b"again") == 2999
        assert json.loads(child.line())["offset"] == 2999


def test_truncation_while_following_is_reported(demo: Path) -> None:
    path = demo / "orders"
    with start("tail", path, "-n", 1, "-f", "--json") as child:
        assert json.loads(child.line())["offset"] == 2999
        with sej.Writer(path) as writer:
            writer.append(b"seen by the follower")
        assert json.loads(child.line())["offset"] == 3000
        os.truncate(path / "jnl" / "0000000000000aa5.jnl", 100)
        assert "was cut to 100 bytes" in child.line()
        assert child.join() == 2


def test_damage_that_appears_while_following_is_reported(tmp_path: Path, samples: Path) -> None:
    path = tmp_path / "orders"
    shutil.copytree(samples / "orders", path)
    with start("tail", path, "-n", 1, "-f", "--mode", "permissive", "--json") as child:
        assert json.loads(child.line())["offset"] == 2999
        with sej.Writer(path) as writer:
            writer.append(b"whole")
        assert json.loads(child.line())["offset"] == 3000
        last = max((path / "jnl").iterdir())
        whole = last.read_bytes()
        message = whole[-31:]
        assert message[-5:-4] == b"e"
        behind = (3002).to_bytes(8, "big") + message[8:]
        with last.open("ab") as file:
            file.write(b"\xff" * 40 + behind)
        damage, record = json.loads(child.line()), json.loads(child.line())
        assert (damage["kind"], damage["size"]) == ("malformed", 40)
        assert record["offset"] == 3002
        os.kill(child.pid, signal.SIGINT)
        assert child.join() == 130


@pytest.mark.parametrize("count", [0, 3])
def test_record_appended_between_tail_and_follow_is_shown_once(count: int, tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        for _ in range(5):
            writer.append(b"x")
    outcome = run("tail", tmp_path, "-n", count, "-f", "--timeout", 0.01, "--json")
    assert [record["offset"] for record in outcome.objects] == list(range(5 - count, 5))
