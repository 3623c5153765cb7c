"""Checking journals of queues: every problem with its file and position, and harmless anomalies."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.read.report import Problem
from logwright.core.read.survey import MOST_SHOWN_BYTES
from logwright.errors import DamagedJournal, StorageFailed
from logwright.kestrel import Queue
from logwright.kestrel.files import repair
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.model.rules import MOST_ANOMALIES
from tests.kestrel.samples import REMOVE, RESERVE, addx, confirm, encoded, state_dump, unremove, write

A, B = addx(b"A"), addx(b"B")


def kinds(problems: list[Problem]) -> list[tuple[str, int, str]]:
    return [(problem.file, problem.position, problem.kind) for problem in problems]


def test_sound_queue_has_neither_problems_nor_anomalies(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A, B, REMOVE)
    report = Reader(write(tmp_path / "cars", RESERVE, confirm(1))).verify()
    assert (report.sound, report.records, report.bytes, report.anomalies) == (True, 5, 51, [])


def test_operation_that_does_not_fit_the_queue_is_an_anomaly(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", REMOVE, A, REMOVE)
    report = Reader(write(tmp_path / "cars", RESERVE, confirm(7), unremove(8))).verify()
    assert report.sound
    assert [(anomaly.file, anomaly.position, anomaly.message) for anomaly in report.anomalies] == [
        ("cars.50", 0, "there is no item to remove"),
        ("cars", 0, "there is no item to reserve"),
        ("cars", 1, "transaction 7 is not open"),
        ("cars", 6, "transaction 8 is not open"),
    ]


def test_every_damage_is_a_problem_with_the_position_where_reading_continues(tmp_path: Path) -> None:
    (tmp_path / "cars.50").write_bytes(b"\x7f" + encoded([A]) + b"\x7f\x7f" + encoded([B]) + b"\x0a")
    report = Reader(write(tmp_path / "cars", A, tail=b"\x02\x10")).verify()
    assert not report.sound
    assert kinds(report.problems) == [
        ("cars.50", 0, "malformed"),
        ("cars.50", 23, "malformed"),
        ("cars.50", 47, "malformed"),
        ("cars", 22, "torn_tail"),
    ]
    assert [problem.message for problem in report.problems] == [
        "there is no operation 127; operations continue at 1",
        "there is no operation 127; operations continue at 25",
        "there is no operation 10; reading cannot continue in this file, and operations may be in the rest of it",
        "only 2 bytes of addx are there; the last 2 bytes are a torn tail",
    ]
    assert report.records == 3


def test_leftover_files_are_reported(tmp_path: Path) -> None:
    for name in ("cars.50", "cars.50.pack", "cars.60", "cars.060", "cars~~70", "cars.crc", "cars", "bikes.x"):
        write(tmp_path / name, A)
    report = Reader(tmp_path / "cars").verify()
    assert kinds(report.problems) == [("cars.060", 0, "doubled_name")]
    assert sorted(kinds(report.anomalies)) == [
        ("cars.50", 0, "dead_file"),
        ("cars.50.pack", 0, "pack"),
        ("cars.crc", 0, "foreign_file"),
        ("cars~~70", 0, "temporary_file"),
    ]


def test_unfinished_pack_stays_while_a_file_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A)
    pack = write(tmp_path / "cars.50.pack", A, B, tail=b"\x7f")
    write(tmp_path / "cars", A)
    report = Reader(tmp_path / "cars").verify()
    assert kinds(report.problems) == [("cars.50.pack", 44, "malformed")]
    assert sorted(anomaly.message for anomaly in report.anomalies) == [
        "a pack that was not finished: no writer does that while there are problems",
        "cars.50.pack replaces it; it stays while there are problems",
    ]
    with pytest.raises(DamagedJournal), Queue(tmp_path, "cars"):
        pass
    assert sorted(one.name for one in tmp_path.glob("cars*")) == ["cars", "cars.50", "cars.50.pack"]
    pack.write_bytes(encoded([A, B]))
    assert "the next writer takes it over" in Reader(tmp_path / "cars").verify().anomalies[0].message
    with Queue(tmp_path, "cars") as queue:
        assert len(queue) == 3


@pytest.mark.parametrize("look", ["verify", "summarize"])
def test_check_that_passes_an_unreadable_file_changes_nothing_for_later_reads(tmp_path: Path, look: str) -> None:
    (tmp_path / "cars.50").mkdir()
    reader = Reader(write(tmp_path / "cars", A, state_dump(1, 7), B))
    getattr(reader, look)()
    assert reader.dialect == "auto", "it was decided without a file that a later read needs"
    with pytest.raises(StorageFailed, match=r"cars\.50"):
        reader.verdict.settle()


def test_directory_in_the_place_of_the_newest_file_is_a_problem_even_without_a_note(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A)
    (tmp_path / "cars").mkdir()
    assert kinds(Reader(tmp_path / "cars").verify().problems) == [("cars", 0, "unreadable")]
    assert repair.plan(tmp_path).left
    with pytest.raises(StorageFailed):
        Queue(tmp_path, "cars")


@pytest.mark.parametrize("note", [".logwright/cars.rotated", ".logwright/cars.packed"])
def test_directory_in_the_place_of_a_note_is_a_problem_that_no_repair_removes(tmp_path: Path, note: str) -> None:
    write(tmp_path / "cars.50", A, tail=b"\x7f")
    path = write(tmp_path / "cars", A)
    (tmp_path / note).mkdir(parents=True)
    assert kinds(Reader(path).verify().problems) == [("cars.50", 22, "malformed"), (note, 0, "unreadable")]
    plan = repair.plan(tmp_path)
    assert plan.empty
    assert [line.partition(" @ ")[0] for line in plan.left] == [note]
    (tmp_path / note).rmdir()
    repair.apply(tmp_path, repair.plan(tmp_path))
    with Queue(tmp_path, "cars") as queue:
        assert len(queue) == 2


def test_unreadable_file_is_a_problem_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "cars.50").mkdir()
    (tmp_path / "cars.60").symlink_to("nowhere")
    report = Reader(write(tmp_path / "cars", A)).verify()
    assert kinds(report.problems) == [("cars.50", 0, "unreadable"), ("cars.60", 0, "unreadable")]
    assert report.records == 1


def test_operations_after_a_state_dump_are_reported_once(tmp_path: Path) -> None:
    report = Reader(write(tmp_path / "cars", A, state_dump(1, 0), B, REMOVE, REMOVE)).verify()
    assert kinds(report.anomalies) == [("cars", 31, "after_state_dump")]


def test_very_many_anomalies_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    report = Reader(write(tmp_path / "cars", *[REMOVE] * (MOST_ANOMALIES + 7))).verify()
    assert len(report.anomalies) == MOST_ANOMALIES + 1
    assert report.anomalies[-1].message == "7 more of these follow"


# --- inspect --------------------------------------------------------------------------------------------------------


def test_summary_describes_the_queue(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A)
    write(tmp_path / "cars.7", B)
    write(tmp_path / "cars.50.pack", B)
    write(tmp_path / "cars~~1", B)
    summary = Reader(write(tmp_path / "cars", REMOVE)).summary()
    assert (summary.format, summary.files, summary.bytes, summary.records) == ("kestrel", 2, 23, 2)
    assert summary.health == "sound so far"
    assert summary.first is not None
    assert (summary.first["file"], summary.first["op"], summary.first["data"]) == ("cars.50.pack", "addx", "Qg==")
    assert summary.last == {"file": "cars", "position": 0, "size": 1, "op": "remove"}
    assert {name: summary.details[name] for name in ("queue", "dialect", "both_dialects_fit", "rotated")} == {
        "queue": "cars",
        "dialect": "documented",
        "both_dialects_fit": True,
        "rotated": 1,
    }
    assert (summary.details["dead"], summary.details["temporary"]) == (["cars.7", "cars.50"], ["cars~~1"])


def test_summary_of_a_damaged_queue_reports_the_damage(tmp_path: Path) -> None:
    summary = Reader(write(tmp_path / "cars", A, tail=b"\x7f" + encoded([B]))).summary()
    assert summary.damaged
    assert summary.health == "damaged at cars @ 22: there is no operation 127"
    assert summary.records is None
    torn = Reader(write(tmp_path / "bikes", A, tail=b"\x7f")).summary()
    assert (torn.damaged, torn.health) == (False, "torn tail at bikes @ 22 (1 bytes)")


def test_large_item_is_shown_without_its_data(tmp_path: Path) -> None:
    summary = Reader(write(tmp_path / "cars", addx(bytes(MOST_SHOWN_BYTES)))).summary()
    assert summary.first is not None
    assert (summary.first["size"], summary.first["data"]) == (MOST_SHOWN_BYTES + 21, None)
    assert summary.last == summary.first
