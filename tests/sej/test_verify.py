"""Verify and inspect: every problem is found, with its file, position and kind; anomalies leave a journal sound."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK, File, OpenMode, RealDisk, RealFile
from logwright.core.read.report import Report
from logwright.core.repair.plan import Patch, Plan
from logwright.core.repair.plan import apply as apply_plan
from logwright.errors import DamagedJournal, StorageFailed
from logwright.sej.bytes.codec import encode
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files.index import ENTRY_BYTES, HEADER_BYTES, Index, index_path, write_index
from logwright.sej.files.reader import Reader
from logwright.sej.files.segment import list_segments
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset
from tests.sej.samples import GOLDEN, MESSAGE_BYTES, golden_case, make_journal
from tests.support.access import guarded
from tests.support.damage import cut, damage_file, drop, fuzzed, insert, noise, overwrite, zeros_after
from tests.support.faulty_disk import every_fault
from tests.support.trees import read_tree

FIRST = "jnl/0000000000000000.jnl"


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10."""
    return make_journal(journal_directory, 25)


def verify(path: Path) -> Report:
    """The report on a journal, which must not change the journal."""
    before = read_tree(REAL_DISK, path)
    report = Reader(path).verify()
    assert read_tree(REAL_DISK, path) == before
    return report


def found(report: Report) -> list[tuple[str, int, str]]:
    return [(problem.file, problem.position, problem.kind) for problem in report.problems]


def odd(report: Report) -> list[tuple[str, int, str]]:
    assert report.sound, report.problems
    return [(anomaly.file, anomaly.position, anomaly.kind) for anomaly in report.anomalies]


# --- what the original has written, and what happened to it ---------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["empty", "one", "types256", "zero_timestamp", "multi", "multi_exact", "reopened", "first_deleted", "cut_to_zero"],
)
def test_journal_of_the_original_is_sound(name: str) -> None:
    case = golden_case(name)
    report = verify(GOLDEN / name / "sej")
    assert (report.sound, report.anomalies, report.records) == (True, [], case["messages"])
    assert report.bytes == sum(segment["size"] for segment in case["segments"])


TORN = [
    "torn_1", "torn_3", "torn_4", "torn_10", "torn_25", "torn_150", "torn_700", "garbage_10", "garbage_40",
    "garbage_zeros", "cut_in_first", "multi_torn_last", "multi_torn_first_of_last",
]  # fmt: skip


@pytest.mark.parametrize("name", TORN)
def test_torn_tail_begins_where_the_original_cuts(name: str) -> None:
    case = golden_case(name)
    last = case["go_writer_open"]["segments_after"][-1]
    report = verify(GOLDEN / name / "sej")
    assert found(report) == [(f"jnl/{last['name']}", last["size"], "torn_tail")]
    assert report.records == case["surviving"]
    torn_bytes = case["segments"][-1]["size"] - last["size"]
    assert report.problems[0].message.endswith(f"; the last {torn_bytes} bytes are a torn tail")


@pytest.mark.parametrize(
    ("name", "records", "problems"),
    [
        ("midflip_size", 255, [(FIRST, 568, "malformed")]),
        ("midflip_key_negative", 255, [(FIRST, 598, "malformed")]),
        ("midflip_offset", 255, [(FIRST, 598, "unexpected_offset")]),
        ("midflip_value", 256, []),
        ("midflip_size_torn", 254, [(FIRST, 568, "malformed"), (FIRST, 7617, "torn_tail")]),
        ("gap", 36, [("jnl/0000000000000010.jnl", 0, "gap")]),
        ("multi_torn_middle", 39, [("jnl/0000000000000006.jnl", 243, "malformed")]),
    ],
)
def test_damage_is_found_and_reading_continues_after_it(
    name: str, records: int, problems: list[tuple[str, int, str]]
) -> None:
    report = verify(GOLDEN / name / "sej")
    assert (found(report), report.records, report.sound) == (problems, records, not problems)


def test_problems_state_the_loss_and_where_reading_continues() -> None:
    messages = [
        Reader(GOLDEN / name / "sej").verify().problems[0].message
        for name in ("midflip_size", "midflip_offset", "gap", "multi_torn_middle", "torn_1")
    ]
    assert messages == [
        "size 94 does not match the 30 bytes read; message 19 is missing; the next whole message is at 598",
        "the offset is 1044 where 20 was expected; message 20 is missing; the next whole message is at 624",
        "the segment begins with offset 16 where 12 was expected: messages 12 to 15 are missing",
        "only 80 of the message's 85 bytes are there; nothing whole follows in this file: message 11 is missing",
        "only 182 of the message's 183 bytes are there; the last 182 bytes are a torn tail",
    ]


def test_report_is_json_of_the_documented_shape() -> None:
    report = Reader(GOLDEN / "midflip_offset" / "sej").verify().as_json()
    message = "the offset is 1044 where 20 was expected; message 20 is missing; the next whole message is at 624"
    assert report == {
        "format": "sej",
        "sound": False,
        "records": 255,
        "bytes": 7648,
        "problems": [{"file": FIRST, "position": 598, "kind": "unexpected_offset", "message": message}],
        "anomalies": [],
        "losses": [],
    }


# --- damage of our own ----------------------------------------------------------------------------------------------


def test_no_problem_hides_the_next(journal: Path) -> None:
    first, second, last = (journal / "jnl" / segment_name(offset) for offset in (0, 10, 20))
    damage_file(first, overwrite, 2 * MESSAGE_BYTES, noise(MESSAGE_BYTES, 1))
    damage_file(first, overwrite, 6 * MESSAGE_BYTES, noise(30, 2))
    damage_file(second, cut, 9 * MESSAGE_BYTES + 5)
    damage_file(last, overwrite, 0, noise(MESSAGE_BYTES, 3))
    damage_file(last, cut, 4 * MESSAGE_BYTES + 25)
    (journal / "ofs").mkdir()
    (journal / "ofs" / "reader.ofs").write_bytes(b"123")
    report = verify(journal)
    assert found(report) == [
        (FIRST, 80, "malformed"),
        (FIRST, 240, "malformed"),
        ("jnl/000000000000000a.jnl", 360, "malformed"),
        ("jnl/0000000000000014.jnl", 0, "malformed"),
        ("jnl/0000000000000014.jnl", 160, "torn_tail"),
        ("ofs/reader.ofs", 0, "offset_file"),
    ]
    assert report.records == 25 - 2 - 1 - 2


def test_foreign_bytes_lose_no_message(journal: Path) -> None:
    damage_file(journal / FIRST, insert, 3 * MESSAGE_BYTES, noise(50, 4))
    report = verify(journal)
    assert found(report) == [(FIRST, 120, "malformed")]
    assert report.records == 25
    assert "no message is missing; the next whole message is at 170" in report.problems[0].message


def test_messages_that_are_missing_within_a_file_are_a_gap(journal: Path) -> None:
    damage_file(journal / FIRST, drop, 3 * MESSAGE_BYTES, 5 * MESSAGE_BYTES)
    report = verify(journal)
    assert found(report) == [(FIRST, 120, "gap")]
    assert report.problems[0].message == "the offset is 5 where 3 was expected; messages 3 to 4 are missing"
    assert report.records == 23


def test_segment_that_is_missing_is_a_gap(journal: Path) -> None:
    (journal / "jnl" / segment_name(10)).unlink()
    report = verify(journal)
    assert found(report) == [("jnl/0000000000000014.jnl", 0, "gap")]
    assert report.records == 15


def test_segment_that_begins_too_early_is_an_overlap(journal: Path) -> None:
    messages = [Message(offset, 100 + offset, 0, b"", b"other") for offset in range(7, 10)]
    (journal / "jnl" / segment_name(7)).write_bytes(b"".join(map(encode, messages)))
    report = verify(journal)
    assert found(report) == [("jnl/0000000000000007.jnl", 0, "overlap")]
    assert "begins with offset 7, but the one before it goes up to 9" in report.problems[0].message


def test_two_names_for_one_offset_are_reported_and_only_an_overlap_is_a_problem(journal: Path) -> None:
    (journal / "jnl" / "0.jnl").touch()
    assert odd(verify(journal)) == [("jnl/0.jnl", 0, "empty_segment"), (FIRST, 0, "doubled_name")]
    shutil.copy(journal / FIRST, journal / "jnl" / "0.jnl")
    assert found(verify(journal)) == [(FIRST, 0, "overlap")]


def test_empty_segment_in_the_middle_is_an_anomaly_and_a_gap(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(10), cut, 0)
    (journal / "idx" / "000000000000000a.idx").unlink()
    report = verify(journal)
    assert found(report) == [("jnl/0000000000000014.jnl", 0, "gap")]
    assert [(anomaly.file, anomaly.kind) for anomaly in report.anomalies] == [
        ("jnl/000000000000000a.jnl", "empty_segment")
    ]


def test_zeros_in_the_middle_are_damage_and_at_the_end_a_torn_tail(journal: Path) -> None:
    damage_file(journal / "jnl" / segment_name(20), zeros_after, 3 * MESSAGE_BYTES)
    damage_file(journal / FIRST, zeros_after, 8 * MESSAGE_BYTES)
    assert found(verify(journal)) == [(FIRST, 320, "malformed"), ("jnl/0000000000000014.jnl", 120, "torn_tail")]


def test_segments_that_cannot_be_read_are_problems_and_the_others_are_checked(journal: Path) -> None:
    (journal / FIRST).unlink()
    (journal / FIRST).mkdir()
    linked = journal / "jnl" / segment_name(10)
    linked.rename(journal / "elsewhere")
    linked.symlink_to(journal / "elsewhere")
    damage_file(journal / "jnl" / segment_name(20), cut, 5 * MESSAGE_BYTES - 1)
    report = Reader(journal).verify()
    assert found(report) == [
        (FIRST, 0, "unreadable"),
        ("jnl/000000000000000a.jnl", 0, "unreadable"),
        ("jnl/0000000000000014.jnl", 160, "torn_tail"),
    ]
    assert report.problems[0].message == f"open {journal / FIRST}: is not a regular file"
    assert report.records == 4


def test_disk_failure_of_one_segment_is_reported_and_not_raised(journal: Path) -> None:
    reader = Reader(journal)
    kinds: set[str] = set()
    for faulty in every_fault(lambda: REAL_DISK, format="sej"):
        reader.disk = faulty
        try:
            report = reader.verify()
        except OSError:
            assert faulty.failures
        else:
            kinds.update(problem.kind for problem in report.problems)
            assert report.sound or faulty.failures
    assert kinds == {"unreadable"}


@pytest.mark.parametrize("size", [1, 7, 9, 100])
def test_offset_file_of_another_length_is_a_problem(journal: Path, size: int) -> None:
    (journal / "ofs").mkdir()
    (journal / "ofs" / "reader.ofs").write_bytes(bytes(size))
    report = verify(journal)
    assert found(report) == [("ofs/reader.ofs", 0, "offset_file")]
    assert f"this one has {size}" in report.problems[0].message


def test_single_segment_file_is_checked_alone(journal: Path) -> None:
    path = journal / "jnl" / segment_name(10)
    assert (Reader(path).verify().sound, Reader(path).verify().records) == (True, 10)
    damage_file(path, overwrite, 2 * MESSAGE_BYTES, noise(MESSAGE_BYTES, 5))
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.position, problem.kind) == ("000000000000000a.jnl", 80, "malformed")


def test_reading_and_verifying_agree_whatever_the_bytes_are(journal: Path) -> None:
    path = journal / "jnl" / segment_name(10)
    data = path.read_bytes()
    for case in fuzzed(data, 300, seed=11):
        path.write_bytes(case.data)
        items = list(Reader(journal).messages(mode="permissive"))
        damages = [item for item in items if isinstance(item, Damage)]
        report = Reader(journal).verify()
        assert report.records == len(items) - len(damages)
        assert [(damage.file, damage.start, damage.kind) for damage in damages] == found(report)


# --- what is odd ----------------------------------------------------------------------------------------------------


def test_decreasing_timestamps_are_counted_once_per_segment(journal_directory: Path) -> None:
    stamps = [0, 1, 5, 4, 3, 9, None, 8, 10, 11, 7, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    make_journal(journal_directory, 25, timestamps=stamps)
    report = verify(journal_directory)
    assert odd(report) == [
        (FIRST, 3 * MESSAGE_BYTES, "timestamp"),
        ("jnl/000000000000000a.jnl", 0, "timestamp"),
    ]
    assert [anomaly.message for anomaly in report.anomalies] == [
        "3 messages are earlier than the one before them, the first of them here",
        "the message is earlier than the one before it",
    ]


def test_timestamps_are_compared_across_read_buffers(journal_directory: Path) -> None:
    with Writer(journal_directory) as writer:
        for offset in range(40):
            writer.append(noise(30_000, offset), timestamp=1000 - offset)
    (anomaly,) = verify(journal_directory).anomalies
    assert (anomaly.position, anomaly.message[:11]) == (30_026, "39 messages")


def test_messages_without_a_timestamp_are_not_compared(journal_directory: Path) -> None:
    make_journal(journal_directory, 6, timestamps=[5, None, 6, None, None, 7])
    assert odd(verify(journal_directory)) == []


def test_consumers_beyond_either_end_are_anomalies(journal: Path) -> None:
    (journal / "jnl" / segment_name(0)).unlink()
    (journal / "idx" / "0000000000000000.idx").unlink()
    for name, offset in (("behind", 9), ("first", 10), ("last", 25), ("ahead", 26)):
        with Offset(journal, name) as consumer:
            consumer.commit(offset)
    Offset(journal, "new").close()
    report = verify(journal)
    assert odd(report) == [("ofs/ahead.ofs", 0, "consumer_ahead"), ("ofs/behind.ofs", 0, "consumer_behind")]
    assert [anomaly.message for anomaly in report.anomalies] == [
        "the consumer is at 26, but the next message gets 25",
        "the consumer is at 9, but the journal begins with 10",
    ]


def test_leftover_and_foreign_files_are_reported(journal: Path) -> None:
    with Offset(journal, "reader"):
        pass
    for name in (
        "jnl/0000000000000032.jnl.crc", "jnl/0000000000000000.jnl.repairing", "jnl/notes.txt",
        "idx/0000000000000032.idx", "idx/0000000000000000.tmp", "idx/notes.txt",
        "ofs/reader.ofs.tmp", "ofs/notes.txt",
    ):  # fmt: skip
        (journal / name).touch()
    assert odd(verify(journal)) == [
        ("jnl/0000000000000000.jnl.repairing", 0, "leftover"),
        ("jnl/0000000000000032.jnl.crc", 0, "side_file"),
        ("jnl/notes.txt", 0, "foreign_file"),
        ("idx/0000000000000000.tmp", 0, "leftover"),
        ("idx/0000000000000032.idx", 0, "side_file"),
        ("idx/notes.txt", 0, "foreign_file"),
        ("ofs/notes.txt", 0, "foreign_file"),
        ("ofs/reader.ofs.tmp", 0, "leftover"),
    ]


def test_lock_files_are_empty_regular_files(journal: Path) -> None:
    assert (journal / "jnl.lck").read_bytes() == b""
    (journal / "jnl.lck").write_bytes(b"1234")
    (journal / "ofs").mkdir()
    (journal / "ofs" / "one.lck").mkdir()
    (journal / "ofs" / "two.lck").symlink_to("nowhere")
    report = Reader(journal).verify()
    assert odd(report) == [
        ("ofs/one.lck", 0, "lock_file"),
        ("ofs/two.lck", 0, "lock_file"),
        ("jnl.lck", 0, "lock_file"),
    ]
    assert "4 bytes" in report.anomalies[2].message


def test_interrupted_repair_is_reported(journal: Path) -> None:
    old = (journal / FIRST).read_bytes()[8:10]
    repair = apply_plan(REAL_DISK, journal, Plan("sej", (Patch(FIRST, 8, old, old, "nothing"),)))
    assert odd(verify(journal)) == []
    repair.state, repair.done = "applying", 0
    repair.save(REAL_DISK)
    report = Reader(journal).verify()
    assert found(report) == [(f".logwright/cut/{repair.log.name}", 0, "repair")]
    assert report.problems[0].message == "a repair was interrupted after 0 of 1 steps"
    repair.log.write_text("?")
    assert [kind for _, _, kind in odd(verify(journal))] == ["repair"]


# --- indexes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(journal_directory: Path) -> Path:
    """A journal with two segments of a megabyte, each with an index of several entries."""
    with Writer(journal_directory, segment_size=1_000_000) as writer:
        for offset in range(150):
            writer.append(noise(10_000, offset), timestamp=1_000_000 - offset % 7)
    return journal_directory


def anomalies_of_index(directory: Path) -> list[tuple[str, int]]:
    report = verify(directory)
    assert report.sound
    return [(anomaly.file, anomaly.position) for anomaly in report.anomalies if anomaly.kind == "index"]


def test_indexes_that_a_writer_makes_agree_with_the_segments(indexed: Path) -> None:
    for _ in range(3):
        with Writer(indexed, segment_size=1_000_000) as writer:
            for offset in range(60):
                writer.append(noise(9_000, offset), timestamp=offset)
        assert anomalies_of_index(indexed) == []


SECOND = HEADER_BYTES + ENTRY_BYTES
THIRD = SECOND + ENTRY_BYTES


def test_truncated_index_is_only_short(indexed: Path) -> None:
    path = indexed / "idx" / "0000000000000000.idx"
    size = path.stat().st_size
    for left in (HEADER_BYTES, HEADER_BYTES + ENTRY_BYTES, size - ENTRY_BYTES, size - 1):
        path.write_bytes(path.read_bytes()[:left])
        assert anomalies_of_index(indexed) == []
    path.unlink()
    assert anomalies_of_index(indexed) == []


@pytest.mark.parametrize(
    ("damage", "position"),
    [
        (lambda data: b"", 0),
        (lambda data: bytes(len(data)), 0),
        (lambda data: data[:15], 0),
        (lambda data: data[: SECOND + 4] + b"!" + data[SECOND + 5 :], SECOND),
        (
            lambda data: data[:HEADER_BYTES] + data[SECOND:THIRD] + data[HEADER_BYTES:SECOND] + data[THIRD:],
            HEADER_BYTES,
        ),
        (lambda data: data + data[-ENTRY_BYTES:], None),
    ],
)
def test_damaged_index_is_reported(indexed: Path, damage: Callable[[bytes], bytes], position: int | None) -> None:
    path = indexed / "idx" / "0000000000000000.idx"
    size = path.stat().st_size
    path.write_bytes(damage(path.read_bytes()))
    assert anomalies_of_index(indexed) == [("idx/0000000000000000.idx", size if position is None else position)]


@pytest.mark.parametrize("field", ["offset", "position", "timestamp", "smallest", "largest"])
def test_entry_that_contradicts_the_segment_is_reported(indexed: Path, field: str) -> None:
    segment = list_segments(REAL_DISK, indexed)[0]
    index = Index.load(REAL_DISK, segment, segment.path.stat().st_size)
    assert index is not None
    first, second, *others = index.entries
    write_index(REAL_DISK, segment, [first, second._replace(**{field: getattr(second, field) + 1}), *others])
    assert anomalies_of_index(indexed) == [("idx/0000000000000000.idx", SECOND)]


@pytest.mark.parametrize("field", ["offset", "timestamp", "smallest", "largest"])
def test_end_that_contradicts_the_segment_is_reported(indexed: Path, field: str) -> None:
    segment = list_segments(REAL_DISK, indexed)[0]
    index = Index.load(REAL_DISK, segment, segment.path.stat().st_size)
    assert index is not None
    *others, end = index.entries
    assert end.is_end
    write_index(REAL_DISK, segment, [*others, end._replace(**{field: getattr(end, field) + 1})])
    position = HEADER_BYTES + ENTRY_BYTES * len(others)
    assert anomalies_of_index(indexed) == [("idx/0000000000000000.idx", position)]


def test_index_of_more_than_the_segment_holds_is_stale(indexed: Path) -> None:
    last = list_segments(REAL_DISK, indexed)[-1]
    entries = index_path(last).stat().st_size // ENTRY_BYTES
    assert entries >= 1
    damage_file(last.path, cut, 10_026)
    assert anomalies_of_index(indexed) == [("idx/0000000000000064.idx", 16)]


def test_index_after_damage_is_not_checked_for_unknown_times(indexed: Path) -> None:
    damage_file(indexed / FIRST, overwrite, 5 * 10_026 + 17, b"\xff")
    report = verify(indexed)
    assert found(report) == [(FIRST, 50_130, "malformed")]
    assert report.anomalies[0].kind == "timestamp"
    assert [anomaly.kind for anomaly in report.anomalies if anomaly.kind == "index"] == []


# --- while a writer is at work --------------------------------------------------------------------------------------


class SlowFile(RealFile):
    """A file whose last bytes are missing at the first read of each range."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self.reads = 0

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.reads += 1
        return super().read_into(position, buffer) - (7 if self.reads == 1 else 0)


class SlowDisk(RealDisk):
    """A disk on which the bytes of a journal arrive while it is read."""

    def open(self, path: Path, mode: OpenMode) -> File:  # type: ignore[override]
        file = super().open(path, mode)
        slow = SlowFile(path, file.descriptor)
        file.descriptor = -1
        return slow


def test_message_being_written_is_not_a_torn_tail(journal_directory: Path) -> None:
    make_journal(journal_directory, 8)
    report = Reader(journal_directory, disk=SlowDisk()).verify()
    assert (report.sound, report.records) == (True, 8)


def test_progress_runs_from_zero_to_everything(journal: Path) -> None:
    calls: list[tuple[int, int]] = []
    report = Reader(journal).verify(progress=lambda done, total: calls.append((done, total)))
    assert calls == [(400, 1000), (800, 1000), (1000, 1000)]
    assert report.bytes == 1000


# --- inspect --------------------------------------------------------------------------------------------------------


def test_summary_is_derived_from_names_sizes_and_ends(journal: Path) -> None:
    with Offset(journal, "reader") as consumer:
        consumer.commit(7)
    summary = Reader(journal).summary().as_json()
    assert summary.pop("first") == {
        "file": FIRST, "position": 0, "size": 40, "offset": 0, "timestamp": 0, "type": 0, "key": "",
        "value": "dmFsdWUgMDAwMDAwMDA=",
    }  # fmt: skip
    assert summary.pop("last")["offset"] == 24
    assert summary == {
        "format": "sej",
        "path": str(journal),
        "files": 3,
        "bytes": 1000,
        "records": 25,
        "health": "sound so far",
        "losses": [],
        "segments": 3,
        "first_offset": 0,
        "next_offset": 25,
        "consumers": {"reader": 7},
        "indexes": 3,
        "checksums": 0,
        "kept_bytes": 0,
    }


@pytest.mark.parametrize(
    ("name", "records", "health"),
    [
        ("empty", 0, "sound so far"),
        ("multi_exact", 9, "sound so far"),
        ("first_deleted", 28, "sound so far"),
        ("torn_10", 49, f"torn tail at {FIRST} @ 116874 (173 bytes)"),
        ("cut_in_first", 0, f"torn tail at {FIRST} @ 0 (13 bytes)"),
        ("midflip_size", 256, "sound so far"),
        ("midflip_size_torn", None, f"damaged at {FIRST} @ 568: size 94 does not match the 30 bytes read"),
        (
            "gap",
            None,
            "damaged at jnl/0000000000000006.jnl @ 328: "
            "its messages do not lead to offset 16, where the next one begins",
        ),
    ],
)
def test_health_is_found_by_a_quick_check(name: str, records: int | None, health: str) -> None:
    summary = Reader(GOLDEN / name / "sej").summary()
    assert (summary.records, summary.health) == (records, health)


def test_summary_survives_a_journal_without_a_readable_end(journal: Path) -> None:
    damage_file(journal / FIRST, overwrite, 0, noise(20, 6))
    summary = Reader(journal).summary()
    assert summary.health.startswith(f"damaged at {FIRST} @ 0: the offset is ")
    assert (summary.first, summary.records) == (None, None)
    (journal / "jnl" / segment_name(20)).unlink()
    (journal / "jnl" / segment_name(20)).mkdir()
    assert Reader(journal).summary().last is None


def test_summary_does_not_read_or_show_the_value_of_a_large_message(journal_directory: Path) -> None:
    with Writer(journal_directory) as writer:
        for number in range(2):
            writer.append(bytes(3 << 20), key=b"large", type=7, timestamp=number)
    reader = Reader(journal_directory)
    tracemalloc.start()
    summary = reader.summary()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = 26 + 5 + (3 << 20)
    large = {"file": FIRST, "size": size, "type": 7, "key": "bGFyZ2U=", "value": None}
    assert summary.first == {**large, "position": 0, "offset": 0, "timestamp": 0}
    assert summary.last == {**large, "position": size, "offset": 1, "timestamp": 1}
    assert (summary.records, summary.health) == (2, "sound so far")
    assert peak_bytes < 1 << 20


def test_damaged_large_message_is_not_shown(journal_directory: Path) -> None:
    with Writer(journal_directory) as writer:
        writer.append(bytes(1 << 20))
        writer.append(b"small")
    damage_file(journal_directory / FIRST, overwrite, 26 + (1 << 20) - 4, b"size")
    summary = Reader(journal_directory).summary()
    assert (summary.first, summary.last and summary.last["value"]) == (None, "c21hbGw=")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_unreadable_segment_is_a_problem_and_the_others_are_checked(journal: Path, number: int) -> None:
    reader = Reader(journal)
    refused = reader.segments()[number - 1]
    for segment in reader.segments():
        if segment != refused:
            damage_file(segment.path, overwrite, MESSAGE_BYTES, noise(30, 1))
    reader.disk = guarded(refused.path)
    report = reader.verify()
    kinds = {problem.file: problem.kind for problem in report.problems}
    assert kinds == {segment.name: "unreadable" if segment == refused else "malformed" for segment in reader.segments()}
    (problem,) = [problem for problem in report.problems if problem.kind == "unreadable"]
    assert problem.message.startswith(f"open {refused.path}: Permission denied; ")
    assert reader.summary().damaged


def test_consumer_within_an_unreadable_last_segment_is_not_ahead(journal: Path) -> None:
    with Offset(journal, "reader") as offset:
        offset.commit(25)
    last = Reader(journal).segments()[-1]
    report = Reader(journal, disk=guarded(last.path)).verify()
    assert (found(report), report.anomalies) == ([(last.name, 0, "unreadable")], [])


@pytest.mark.parametrize("answer", ["summary", "verify"])
def test_too_many_open_files_are_an_error_and_not_damage(journal: Path, answer: str) -> None:
    reader = Reader(journal)
    refused = reader.segments()[0].path
    reader.disk = guarded(refused, errno.EMFILE)
    with pytest.raises(StorageFailed, match=f"open {refused}: Too many open files"):
        getattr(reader, answer)()


def test_segment_of_text_is_damage_and_not_a_torn_tail(journal_directory: Path) -> None:
    make_journal(journal_directory, 5)
    (journal_directory / FIRST).write_text("# what an editor has saved under the wrong name\n" * 20)
    report = Reader(journal_directory).verify()
    assert found(report) == [(FIRST, 0, "malformed")]
    assert "this is text, and no segment" in report.problems[0].message
    with pytest.raises(DamagedJournal, match="this is text, and no segment; nothing is cut off"):
        Writer(journal_directory)
    with pytest.raises(DamagedJournal, match="this is text"):
        list(Reader(journal_directory))


def test_cut_copies_are_counted(journal_directory: Path) -> None:
    shutil.copytree(GOLDEN / "torn_10" / "sej", journal_directory, dirs_exist_ok=True)
    Writer(journal_directory).close()
    assert Reader(journal_directory).summary().details["kept_bytes"] == 173
