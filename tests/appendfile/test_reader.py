"""Reading a journal: the content of its files, its damage, and where reading continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile import Checkpoint, Data, Reader, Scanner, Segment, Writer, recover
from logwright.appendfile.bytes.records import Record
from logwright.appendfile.files import repair as repairs
from logwright.appendfile.files.files import list_files
from logwright.appendfile.tables.splits import SPLITS
from logwright.core.bytes.outcome import Damage
from logwright.core.format import detect
from logwright.core.io.disk import OpenMode, RealDisk, RealFile
from logwright.core.read.chunk import POSITION_BITS
from logwright.errors import DamagedJournal, Gap, HistoryUnavailable, NotFound, WrongUse
from tests.appendfile.samples import HINT, data, encoded, write
from tests.support.counting_disk import CountingDisk
from tests.support.damage import flip_bit
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_file

BAD = b"\xff\xff\xff\xff"


def with_bad_bytes(directory: Path) -> Path:
    """Segment 0 has lost records, segment 1 is complete; another file follows."""
    write(directory, {1: [Checkpoint(0, 1), *data("c"), Checkpoint(0, 2), *data("d")]})
    before, after = encoded(HINT, *data("a")), encoded(*data("later"), Checkpoint(0, 1), *data("b"))
    (directory / "0.journal").write_bytes(before + BAD + after)
    return directory


def test_records_have_their_position_and_segment(tmp_path: Path) -> None:
    write(tmp_path, {3: [Checkpoint(1, 4), *data("a")], 4: [Checkpoint(1, 4), Checkpoint(1, 5), *data("bc")]})
    reader = Reader(tmp_path)
    assert [reader.as_json(item) for item in reader.scan() if not isinstance(item, Damage)] == [
        {
            "file": "3.journal",
            "position": 0,
            "size": 20,
            "kind": "checkpoint",
            "segment": 4,
            "checked": 1,
            "current": 4,
        },
        {"file": "3.journal", "position": 20, "size": 5, "kind": "data", "segment": 4, "data": "YQ=="},
        {
            "file": "4.journal",
            "position": 0,
            "size": 20,
            "kind": "checkpoint",
            "segment": 4,
            "checked": 1,
            "current": 4,
        },
        {
            "file": "4.journal",
            "position": 20,
            "size": 20,
            "kind": "checkpoint",
            "segment": 5,
            "checked": 1,
            "current": 5,
        },
        {"file": "4.journal", "position": 40, "size": 6, "kind": "data", "segment": 5, "data": "YmM="},
    ]
    number = (4 << POSITION_BITS) + 40
    assert (reader.first, reader.next) == (3 << POSITION_BITS, number + 6)
    assert reader.find_place("4.journal@40") == number
    assert [record.segment for record in reader.records(number)] == [5]
    assert [record.segment for record in reader.records(None, number)] == [4, 4, 4, 5]
    assert [item.record for item in reader.last(2)] == [Checkpoint(1, 5), Data(b"bc")]
    assert reader.count(number) == 1
    assert detect(tmp_path).name == "appendfile"
    assert detect(tmp_path / "4.journal").name == "appendfile"
    assert Reader(tmp_path / "3.journal").count() == 2


def test_past_state_is_the_state_before_a_record(tmp_path: Path) -> None:
    write(tmp_path, {1: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(1, 1)]})
    reader = Reader(tmp_path)
    whole = [{"id": 0, "complete": True, "checked": True, "records": ["YQ=="]}]
    assert reader.state()["segments"] == [*whole, {"id": 1, "complete": False, "checked": False, "records": ["Yg=="]}]
    at = reader.find_place("1.journal@25")
    assert reader.state(at)["segments"] == [{"id": 0, "complete": False, "checked": False, "records": ["YQ=="]}]
    with pytest.raises(WrongUse, match=r"there is no record 1\.journal@71; the next one gets 1\.journal@70"):
        reader.state(reader.next + 1)
    with pytest.raises(HistoryUnavailable, match=r"what was at 0\.journal@5 was checked, and its file removed"):
        reader.state(5)


def test_reading_continues_with_the_whole_records_after_damage(tmp_path: Path) -> None:
    reader = Reader(with_bad_bytes(tmp_path))
    with pytest.raises(DamagedJournal, match=r"0\.journal @ 25: there are no records of type 255"):
        list(reader)
    damage = Damage("0.journal", 25, 29, "there are no records of type 255")
    found = list(reader.records(mode="permissive"))
    assert found[:4] == [HINT, Data(b"a"), damage, Data(b"later")]
    assert found[4:] == [Checkpoint(0, 1), Data(b"b"), Checkpoint(0, 1), Data(b"c"), Checkpoint(0, 2), Data(b"d")]
    assert reader.segments() == [Segment(0, [b"a", b"later"]), Segment(1, [b"b", b"c"], True), Segment(2, [b"d"])]
    with pytest.raises(DamagedJournal, match=r"0\.journal @ 25"):
        reader.segments(mode="failfast")
    report = reader.verify()
    assert [(problem.file, problem.position, problem.kind) for problem in report.problems] == [
        ("0.journal", 25, "malformed")
    ]
    assert "whole records follow at 29" in report.problems[0].message
    assert "damaged at 0.journal @ 25" in reader.summary().health


def test_ambiguous_bytes_are_skipped_up_to_the_next_certain_record(tmp_path: Path) -> None:
    nested = encoded(Data(b"one")) + b"x"
    content = encoded(HINT, *data("a")) + BAD + encoded(Data(nested)) + encoded(Data(b"12345678"), Data(b"next"))
    inner = len(content) - len(encoded(Data(b"12345678"), Data(b"next"))) - 1
    two_ways = content[:inner] + b"\x00\x0c\x00\x00" + content[inner + 4 :]
    (tmp_path / "0.journal").write_bytes(two_ways)
    found = list(Reader(tmp_path).records(mode="dropmalformed"))
    assert found == [HINT, Data(b"a"), Data(b"next")]


def test_repair_leaves_intact_records_and_can_be_undone(tmp_path: Path) -> None:
    with_bad_bytes(tmp_path)
    (tmp_path / "1.journal").write_bytes((tmp_path / "1.journal").read_bytes() + b"\x00\x05\x00\x00to")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.journal")}
    plan = repairs.plan(tmp_path)
    assert plan.left == ()
    (loss,) = plan.losses
    assert (loss.file, loss.position, loss.bytes, loss.at_least, loss.at_most) == ("0.journal", 25, 4, 0, None)
    assert loss.what == (
        "data or checkpoints of segment 0 (not checked), not complete any more; "
        "the record before them, at 20, may be damaged"
    )
    assert loss.fields == {"file_id": 0, "segments": [0, 0], "checked": 0, "suspect": 20}
    assert repairs.apply(tmp_path, plan) is not None
    assert Reader(tmp_path).verify().sound
    assert [record for record in Reader(tmp_path) if isinstance(record, Data)] == data("a", "later", "b", "c", "d")
    with Writer(tmp_path) as writer:
        assert writer.current == 2
    repairs.undo(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.journal")} == before
    with pytest.raises(WrongUse, match="repair that"):
        repairs.plan(tmp_path / "0.journal")


def test_writer_does_not_cut_damage_before_the_end(tmp_path: Path) -> None:
    content = encoded(HINT, *data("a")) + BAD + encoded(Checkpoint(0, 1), *data("b"))
    (tmp_path / "0.journal").write_bytes(content)
    for recovering in (False, True):
        with pytest.raises(DamagedJournal, match="this is not what a crash leaves, so nothing is cut off"):
            Writer(tmp_path, recovering=recovering)
    assert (tmp_path / "0.journal").read_bytes() == content


def test_flipped_bit_of_a_header_is_not_a_torn_tail_and_loses_one_record() -> None:
    """No checkpoint follows, but the records after it are not cut off. No size is guessed."""
    home = Path("/journal")
    records = [HINT, *data("first", "second record", "third", "the fourth one", "fifth")]
    at = len(encoded(*records[:2]))
    shorter = 0
    for bit in range(32):
        content = flip_bit(encoded(*records), 8 * at + bit)
        disk = SimulatedDisk()
        disk.make_directory(home)
        write_file(disk, home / "0.journal", content)
        for recovering in (False, True):
            with pytest.raises(DamagedJournal):
                Writer(home, recovering=recovering, disk=disk)
        assert read_tree(disk, home)["0.journal"] == content
        plan = repairs.plan(home, disk=disk)
        (loss,) = plan.losses
        repairs.apply(home, plan, disk=disk)
        found = list(Reader(home, disk=disk))
        if loss.fields["suspect"] == at:
            shorter += 1
            assert [*found[:2], *found[3:]] == [*records[:2], *records[3:]]
        else:
            assert found == [*records[:2], *records[3:]]
        repairs.undo(home, disk=disk)
        assert read_tree(disk, home)["0.journal"] == content
    assert shorter == 3, "sizes with a bit less, which leave a whole record"


@pytest.mark.parametrize("zeros", [1, 3, 4, 8, 600, 5000])
def test_zeros_at_the_end_of_the_last_file_are_a_torn_tail(tmp_path: Path, zeros: int) -> None:
    write(tmp_path, {0: [HINT, *data("a")]}, tail=bytes(zeros))
    reader = Reader(tmp_path)
    assert list(reader) == [HINT, Data(b"a")]
    assert reader.torn_tail is not None
    assert (reader.torn_tail.start, reader.torn_tail.end, reader.torn_tail.kind) == (25, 25 + zeros, "torn_tail")
    assert [problem.kind for problem in reader.verify().problems] == ["torn_tail"]
    assert recover(tmp_path).cut == reader.torn_tail
    assert Reader(tmp_path).verify().sound


def test_empty_records_elsewhere_are_read_as_written(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("", "a", "", "")], 1: [HINT, *data("b", "", "c")]})
    reader = Reader(tmp_path)
    assert [record.data for record in reader if isinstance(record, Data)] == [b"", b"a", b"", b"", b"b", b"", b"c"]
    report = reader.verify()
    assert report.sound
    assert [(anomaly.file, anomaly.kind) for anomaly in report.anomalies] == [
        ("0.journal", "empty_record"),
        ("1.journal", "empty_record"),
    ]


def test_hole_in_the_last_file_is_not_a_record(tmp_path: Path) -> None:
    content = encoded(HINT, *data("a")) + bytes(600) + encoded(*data("b"))
    (tmp_path / "0.journal").write_bytes(content)
    found = list(Reader(tmp_path).records(mode="permissive"))
    assert found == [
        HINT,
        Data(b"a"),
        Damage("0.journal", 25, 625, "there are zeros where a record should be"),
        *data("b"),
    ]


def test_file_that_begins_with_data_is_damaged_up_to_its_first_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, {0: [*data("a"), Checkpoint(0, 1), *data("b")]})
    with pytest.raises(DamagedJournal, match="a file begins with a checkpoint record, and this is none"):
        list(Reader(tmp_path))
    assert list(Reader(tmp_path).records(mode="dropmalformed")) == [Checkpoint(0, 1), Data(b"b")]


BEYOND = [Checkpoint(0, 3), *data("b"), Checkpoint(0, 4)]


@pytest.mark.parametrize(
    ("records", "problems", "left"),
    [
        ([Checkpoint(0, 3), *data("b"), Checkpoint(0, 1)], [(25, "malformed")], [*data("b"), Checkpoint(0, 1)]),
        ([Checkpoint(0, 3), *data("b")], [(25, "malformed")], data("b")),
        ([HINT, *data("b"), Checkpoint(0, 1)], [(25, "malformed")], [*data("b"), Checkpoint(0, 1)]),
        (BEYOND, [(25, "gap")], BEYOND),
        ([Checkpoint(1, 1), Checkpoint(0, 9), *data("b")], [(25, "malformed"), (45, "malformed")], data("b")),
    ],
    ids=["wrong", "the last one", "the same again", "others are missing", "two"],
)
def test_checkpoint_that_cannot_follow_the_previous_one_is_damage(
    tmp_path: Path, records: list[Record], problems: list[tuple[int, str]], left: list[Record]
) -> None:
    write(tmp_path, {0: [HINT, *data("a"), *records]})
    left = [HINT, *data("a"), *left]
    reader = Reader(tmp_path)
    assert [(problem.position, problem.kind) for problem in reader.verify().problems] == problems
    assert list(reader.records(mode="dropmalformed")) == left
    with pytest.raises(DamagedJournal, match="cannot follow 0, 0"):
        list(reader)
    with pytest.raises(DamagedJournal, match="see logwright repair"):
        Writer(tmp_path)
    plan = repairs.plan(tmp_path)
    repairs.apply(tmp_path, plan)
    assert reader.verify().sound
    assert list(Reader(tmp_path)) == left
    assert plan.losses
    last = [record for record in left if isinstance(record, Checkpoint)][-1]
    with Writer(tmp_path) as writer:
        assert (writer.checked, writer.current) == (last.checked, last.current)


def test_journal_that_was_opened_and_not_written_to_is_empty(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Reader(tmp_path)
    Writer(tmp_path).close()
    reader = Reader(tmp_path)
    assert list(reader) == []
    assert (reader.first, reader.next, reader.count(), reader.state()) == (0, 0, 0, {"segments": []})
    assert reader.summary().files == 0
    assert reader.verify().sound
    assert detect(tmp_path).name == "appendfile"
    with pytest.raises(WrongUse, match="is not a place"):
        reader.find_place("somewhere")


def test_repaired_segment_with_lost_records_is_not_complete(tmp_path: Path) -> None:
    with_bad_bytes(tmp_path)
    before = Reader(tmp_path).segments()
    assert [segment.complete for segment in before] == [False, True, False]
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    repaired = Reader(tmp_path)
    assert repaired.segments(mode="failfast") == before
    report = repaired.verify()
    assert (report.sound, report.anomalies) == (True, [])
    assert [(each.file, each.position) for each in report.losses] == [("0.journal", 25)]
    assert Reader(tmp_path / "0.journal").segments()[0].complete is False
    assert repairs.plan(tmp_path).empty
    with Writer(tmp_path, recovering=True):
        pass
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == before
        writer.append(b"e")
        writer.register_checkpoint()
        writer.flush()
        assert [segment.complete for segment in Reader(tmp_path).segments()] == [True], "another one of this id"


def test_undo_reverts_the_account_of_segments(tmp_path: Path) -> None:
    with_bad_bytes(tmp_path)
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    assert len(Reader(tmp_path).losses()) == 1
    repairs.undo(tmp_path)
    assert Reader(tmp_path).losses() == []


def test_damaged_account_of_losses_makes_every_segment_incomplete(tmp_path: Path) -> None:
    with_bad_bytes(tmp_path)
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    (tmp_path / ".logwright" / "losses").write_bytes(b"not an account\n")
    assert [segment.complete for segment in Reader(tmp_path).segments()] == [False, False, False]
    assert [problem.file for problem in Reader(tmp_path).verify().problems] == [".logwright/losses"]


def test_segment_whose_next_file_has_lost_its_beginning_is_not_complete(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a")], 1: [Checkpoint(0, 0), *data("b"), Checkpoint(0, 1), *data("c")]})
    file = tmp_path / "1.journal"
    file.write_bytes(2 * BAD + file.read_bytes()[2 * len(BAD) :])
    expected = [Segment(0, [b"a"], False), Segment(1, [b"c"], False)]
    assert Reader(tmp_path).segments() == expected
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    restored, lost = Reader(tmp_path).losses()
    assert (restored.kind, restored.what) == ("restored", "the first checkpoint of the file, 0, 0")
    assert (lost.at_least, lost.at_most, lost.fields["segments"]) == (0, None, [0, 0])
    assert Reader(tmp_path).segments(mode="failfast") == [Segment(0, [b"a", b"b"]), Segment(1, [b"c"])]


def test_many_damaged_places_are_skipped_in_small_steps(tmp_path: Path) -> None:
    pieces = [encoded(Checkpoint(0, number), *data("x" * 2000 if number % 500 == 0 else "y")) for number in range(3000)]
    (tmp_path / "0.journal").write_bytes(BAD.join(pieces))
    disk = CountingDisk()
    found = list(Reader(tmp_path, disk=disk).scan(mode="permissive"))
    assert sum(isinstance(item, Damage) for item in found) == 2999
    assert len(found) == 2999 + 2 * 3000
    assert disk.bytes_read < 2 * 3000 * 2000


HOLE_BYTES = 256 << 20


def add_hole(file: Path, following: bytes) -> None:
    """Append a hole to a file, and then some bytes."""
    with file.open("r+b") as output:
        output.truncate(HOLE_BYTES)
        output.seek(HOLE_BYTES)
        output.write(following)


@pytest.mark.parametrize(
    ("following", "problem"),
    [(b"", "torn_tail"), (b"\x07", "torn_tail"), (encoded(Checkpoint(0, 1), *data("b")), "malformed")],
    ids=["nothing after it", "a byte after it", "records after it"],
)
def test_hole_of_any_size_is_skipped_without_reading_it(tmp_path: Path, following: bytes, problem: str) -> None:
    file = write(tmp_path, {0: [HINT, *data("a")]}) / "0.journal"
    size = file.stat().st_size
    add_hole(file, following)
    disk = CountingDisk()
    report = Reader(tmp_path, disk=disk).verify()
    assert [(each.position, each.kind) for each in report.problems] == [(size, problem)]
    assert disk.bytes_read < HOLE_BYTES // 16
    if problem == "torn_tail":
        with Writer(tmp_path, disk=disk) as writer:
            kept = writer.kept
        assert kept is not None
        with kept.open("rb") as copy:
            copy.seek(HOLE_BYTES - size)
            assert copy.read() == following
        assert kept.stat().st_blocks * 512 < HOLE_BYTES // 16
        assert disk.bytes_read < HOLE_BYTES // 16
        assert file.stat().st_size == size


@pytest.mark.parametrize("following", [b"", encoded(Checkpoint(0, 1), *data("b"))], ids=["nothing", "records"])
def test_hole_in_another_file_than_the_last_is_damage(tmp_path: Path, following: bytes) -> None:
    file = write(tmp_path, {0: [HINT, *data("a")], 1: [Checkpoint(0, 1), *data("c")]}) / "0.journal"
    add_hole(file, following)
    disk = CountingDisk()
    report = Reader(tmp_path, disk=disk).verify()
    (problem,) = report.problems
    assert (problem.file, problem.position, problem.kind) == ("0.journal", 25, "malformed")
    assert disk.bytes_read < HOLE_BYTES // 16
    (segment, *others) = Reader(tmp_path, disk=disk).segments()
    assert (segment.complete, segment.records) == (False, [b"a"])
    assert [found.records for found in others] == [[b"b", b"c"] if following else [b"c"]]
    assert disk.bytes_read < HOLE_BYTES // 8


class Hooked(RealDisk):
    """The real disk; a function is called right after the first test for a directory, or the first opening."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.hook(name, then)

    def hook(self, name: str, then: Callable[[], object]) -> None:
        self._name, self._then = name, then

    def is_directory(self, path: Path) -> bool:
        found = super().is_directory(path)
        if found:
            self._reach(path)
        return found

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        found = super().open(path, mode)
        self._reach(path)
        return found

    def _reach(self, path: Path) -> None:
        if path.name == self._name:
            self._name = ""
            self._then()


@pytest.mark.parametrize("name", [".logwright", "recovery", "1"])
def test_listing_is_consistent_while_a_recovery_ends(tmp_path: Path, name: str) -> None:
    write(tmp_path, {0: [HINT, *data("old")]})
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        writer.append(b"new")
        writer.sync()
        disk = Hooked(name, lambda: list(recovery))
        listing = list_files(disk, tmp_path)
    assert [file.name for file in listing.files] == ["1.journal"]
    assert [done[:2] for done in listing.done] == [(1, 0)]


def test_listing_is_consistent_while_files_are_moved(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("old")], 1: [HINT, *data("old")]})
    (tmp_path / ".logwright").mkdir()
    disk = Hooked(".logwright", lambda: Writer(tmp_path, recovering=True).close())
    listing = list_files(disk, tmp_path)
    assert [file.name for file in listing.files] == [f".logwright/recovery/2/{number}.journal" for number in (0, 1)]


def payloads(records: Iterable[Any]) -> list[bytes]:
    return [record.data for record in records if isinstance(record, Data)]


def test_follower_reads_each_record_once_across_files_and_recoveries(tmp_path: Path) -> None:
    with Writer(tmp_path, file_bytes=60) as writer:
        writer.append(b"0")
    with Scanner(tmp_path, timeout=0) as scanner:
        seen = payloads(scanner)
        for number in range(1, 6):
            with Writer(tmp_path, file_bytes=60, recovering=True) as writer:
                for _ in range(5):
                    writer.append(b"%d" % number)
                writer.flush()
                seen += payloads(scanner)
        assert seen == [b"0", *(b"%d" % number for number in range(1, 6) for _ in range(5))]
        assert list(scanner) == []


def test_follower_reports_files_removed_before_they_were_read(tmp_path: Path) -> None:
    with Writer(tmp_path, file_bytes=60) as writer:
        writer.append(b"a")
        writer.flush()
        with Scanner(tmp_path, timeout=0, mode="permissive") as scanner:
            assert len(list(scanner.located())) == 2
            for _ in range(20):
                writer.append(b"b")
            writer.register_checkpoint()
            writer.check_checkpoint()
            found = list(scanner.located())
            (gap,) = (item for item in found if isinstance(item, Damage))
            assert gap.kind == "gap"
            before, following = found[: found.index(gap)], found[found.index(gap) + 1 :]
            assert {item.file for item in before} == {"0.journal"}, "what was being read is read to its end"
            assert following
            assert {item.file for item in following} == {gap.file}


def test_follower_of_a_restarting_program_misses_nothing(tmp_path: Path) -> None:
    """Each start recovers all segments and removes them, perhaps before they were read again."""
    write(tmp_path, {0: [HINT, *data("0")]})
    with Scanner(tmp_path, timeout=0) as scanner:
        seen = payloads(scanner)
        for number in range(1, 6):
            with Writer(tmp_path, file_bytes=100) as writer:
                writer.append(b"unseen %d" % number)
            with Writer(tmp_path, file_bytes=100, recovering=True) as writer:
                recovery = writer.recovery()
                for _ in recovery:
                    pass
                writer.append(b"%d" % number)
            seen += payloads(scanner)
    assert seen == [b"0", *(text % number for number in range(1, 6) for text in (b"unseen %d", b"%d"))]


def test_follower_reports_files_removed_after_older_waiting_files(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("old")]})
    number = Reader(tmp_path).next
    with Scanner(tmp_path, timeout=0) as scanner, Scanner(tmp_path, timeout=0, mode="permissive") as other:
        assert payloads(scanner) == payloads(other) == [b"old"]
        with Writer(tmp_path, file_bytes=60, buffer_bytes=1, recovering=True) as writer:
            recovery = writer.recovery()
            writer.append(b"A" * 30)
            writer.register_checkpoint()
            writer.append(b"B" * 30)
            assert SPLITS.resume(Reader(tmp_path), "", number, "") == (number, "")
            writer.check_checkpoint()
            assert [file.file_id for file in Reader(tmp_path).files()] == [0, 3, 4]
            with pytest.raises(Gap, match="before they were read"):
                list(scanner)
            found = [(item.file, getattr(item, "kind", "")) for item in other.located()]
            assert found[:2] == [("3.journal", "gap"), ("3.journal", "")]
            assert payloads(scanner) == [b"B" * 30]
            following, reason = SPLITS.resume(Reader(tmp_path), "", number, "")
            assert (following, "removed after a check" in reason) == (3 << POSITION_BITS, True)
            with Scanner(tmp_path, timeout=0) as fresh:
                assert payloads(fresh) == [b"old", b"B" * 30], "what was gone before it began is nothing that it missed"
            list(recovery)
        assert payloads(scanner) == []


def test_follower_reads_a_removed_file_to_its_end_after_older_waiting_files(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("old")]})
    with Writer(tmp_path, file_bytes=100, buffer_bytes=1, recovering=True) as writer:
        writer.append(b"a")
        with Scanner(tmp_path, timeout=0) as scanner:
            assert payloads(scanner) == [b"old", b"a"]
            writer.append(b"b")
            writer.register_checkpoint()
            writer.append(b"c" * 60)
            writer.check_checkpoint()
            assert [file.file_id for file in Reader(tmp_path).files()] == [0, 2, 3]
            assert payloads(scanner) == [b"b", b"c" * 60]


@pytest.mark.parametrize("name", [".logwright", "recovery", "4", "0.journal"])
def test_follower_reports_a_recovery_that_ends_while_it_reads(tmp_path: Path, name: str) -> None:
    Writer(tmp_path).close()
    disk = Hooked("", int)
    with Scanner(tmp_path, timeout=0, disk=disk) as scanner:
        assert list(scanner) == []
        with Writer(tmp_path, file_bytes=60) as writer:
            writer.append_many([b"%020d" % number for number in range(4)])
        with Writer(tmp_path, recovering=True) as writer:
            recovery = writer.recovery()
            writer.append(b"new")
            writer.flush()
            disk.hook(name, lambda: list(recovery))
            with pytest.raises(Gap, match="before they were read"):
                list(scanner)
            assert payloads(scanner) == [b"new"]
