"""What an operator finds at night: one damage after the other, and the account that is due for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile import Checkpoint, Data, Reader, Record, Segment, Writer, recover
from logwright.appendfile.bytes.layout import NOTE_NAME
from logwright.appendfile.files import repair as repairs
from logwright.core.repair.losses import Loss
from logwright.errors import DamagedJournal, Gap, LogwrightError
from tests.appendfile.samples import HINT, data, encoded, write
from tests.support.damage import cut, damage_file, drop, flip_bit, insert, noise, overwrite

MANY = [Data(b"order %d" % number) for number in range(50)]
HEAD = encoded(HINT, *data("before"))


def damaged_file(directory: Path, header: bytes, body: bytes = b"bytes of it") -> Path:
    """A file whose third record has a wrong header, followed by 50 whole records."""
    (directory / "0.journal").write_bytes(HEAD + header + body + encoded(*MANY))
    return directory


BODY = b"bytes of it"
WRONG: dict[str, tuple[bytes, bytes, int, int | None]] = {
    "a wrong type": (b"\x07\x0b\x00\x00", BODY, 1, 1),
    "more than 1 MiB": (b"\x00\x0b\x00\x10", BODY, 0, None),
    "a checkpoint of size 3": (b"\x01\x03\x00\x00", bytes(16), 0, None),
    "checked > current": (b"\x01\x10\x00\x00", (5).to_bytes(8, "little") + bytes(8), 1, 1),
}


@pytest.mark.parametrize(("header", "body", "least", "most"), WRONG.values(), ids=list(WRONG))
def test_bad_record_before_intact_ones_is_not_a_torn_tail(
    tmp_path: Path, header: bytes, body: bytes, least: int, most: int | None
) -> None:
    reader = Reader(damaged_file(tmp_path, header, body))
    content = (tmp_path / "0.journal").read_bytes()
    with pytest.raises(DamagedJournal):
        list(reader)
    assert [problem.kind for problem in reader.verify().problems] == ["malformed"]
    for recovering in (False, True):
        with pytest.raises(DamagedJournal, match="nothing is cut off"):
            Writer(tmp_path, recovering=recovering)
    assert (tmp_path / "0.journal").read_bytes() == content
    plan = repairs.plan(tmp_path)
    repairs.apply(tmp_path, plan)
    (loss,) = plan.losses
    assert (loss.position, loss.bytes, loss.at_least, loss.at_most) == (len(HEAD), 4 + len(body), least, most)
    assert list(Reader(tmp_path)) == [HINT, Data(b"before"), *MANY]
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == [Segment(0, [b"before", *(record.data for record in MANY)], False)]


def three_files(directory: Path) -> Path:
    return write(
        directory,
        {
            0: [HINT, *data("a", "b"), Checkpoint(0, 1), *data("c")],
            1: [Checkpoint(0, 1), *data("d"), Checkpoint(0, 2), Checkpoint(1, 2), *data("e")],
            2: [Checkpoint(1, 2), *data("f"), Checkpoint(1, 3), *data("g")],
        },
    )


def flip(data: bytes) -> bytes:
    return overwrite(data, 20, b"\x80")


TABLE: dict[str, tuple[str, Callable[[bytes], bytes], list[Any], list[tuple[Any, ...]]]] = {
    "a flipped type": (
        "0.journal", flip, ["b", "c", "d", "e", "f", "g"],
        [(20, 5, 1, 1, [0, 0], 0)],
    ),
    "three bytes inserted": (
        "1.journal", lambda data: insert(data, 25, b"abc"), ["a", "b", "c", "d", "e", "f", "g"],
        [(25, 3, 0, None, [1, 1], 20)],
    ),
    "three bytes deleted": (
        "1.journal", lambda data: drop(data, 20, 23), ["a", "b", "c", "e", "f", "g"],
        [(20, 2, 0, None, [1, 1], 0)],
    ),
    "overwritten by text": (
        "1.journal", lambda data: b"text, " * (len(data) // 6), ["a", "b", "c", "f", "g"],
        [(0, 20, 0, 0, None, None), (0, 66, 1, None, [1, 2], None)],
    ),
    "overwritten by zeros": (
        "2.journal", lambda data: bytes(len(data)), ["a", "b", "c", "d", "e"],
        [(0, 50, 0, None, [2, 2], None)],
    ),
    "a zeroed beginning": (
        "2.journal", lambda data: bytes(24) + data[24:], ["a", "b", "c", "d", "e", "g"],
        [(0, 25, 0, None, [2, 2], None)],
    ),
    "truncated": (
        "1.journal", lambda data: data[:32], ["a", "b", "c", "d", "f", "g"],
        [(25, 7, 1, None, [1, 2], 20)],
    ),
    "truncated to nothing": (
        "1.journal", lambda data: b"", ["a", "b", "c", "f", "g"],
        [(0, 20, 0, 0, None, None), (0, 0, 1, None, [1, 2], None)],
    ),
    "garbage appended": (
        "1.journal", lambda data: data + b"\xff" * 9, ["a", "b", "c", "d", "e", "f", "g"],
        [(70, 9, 0, None, [2, 2], 65)],
    ),
    "a torn tail": ("2.journal", lambda data: data[:-1], ["a", "b", "c", "d", "e", "f"], []),
    "zeros appended": ("2.journal", lambda data: data + bytes(4096), ["a", "b", "c", "d", "e", "f", "g"], []),
}  # fmt: skip


def described(loss: Loss) -> tuple[Any, ...]:
    fields = loss.fields
    return loss.position, loss.bytes, loss.at_least, loss.at_most, fields.get("segments"), fields.get("suspect")


@pytest.mark.parametrize(("file", "damage", "left", "account"), TABLE.values(), ids=list(TABLE))
def test_each_damage_has_its_account(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes], left: list[str], account: list[tuple[Any, ...]]
) -> None:
    home = three_files(tmp_path / "journal")
    damage_file(home / file, damage)
    before = (home / file).read_bytes()
    plan = repairs.plan(home)
    assert [described(loss) for loss in plan.losses] == account
    repairs.apply(home, plan)
    reader = Reader(home)
    assert [record.data.decode() for record in reader if isinstance(record, Data)] == left
    assert reader.verify().sound
    whole = {segment.id: segment for segment in Reader(three_files(tmp_path / "whole")).segments()}
    for segment in reader.segments():
        assert not segment.complete or segment == whole[segment.id]
    shutil.copytree(home, tmp_path / "copy")
    assert Reader(tmp_path / "copy").segments() == reader.segments()
    repairs.undo(home)
    assert (home / file).read_bytes() == before


DELETED = [
    HINT,
    *data("order 1", "order 2"),
    Checkpoint(0, 1),
    *data("order 3", "order 4"),
    Checkpoint(0, 2),
    *data("5"),
]


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize(("row", "segment"), [(2, 0), (5, 1)])
def test_bytes_deleted_before_a_checkpoint_lose_one_record_and_add_none(
    tmp_path: Path, row: int, segment: int, size: int
) -> None:
    start = len(encoded(*DELETED[:row]))
    (tmp_path / "0.journal").write_bytes(drop(encoded(*DELETED), start + 6, start + 6 + size))
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(start, 11 - size, 1, None, [segment, segment], None)]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(*DELETED[:row], *DELETED[row + 1 :])


@pytest.mark.parametrize("size", [31, 42, 62, 73, 104, 109])
def test_duplicated_beginning_of_a_file_is_removed(tmp_path: Path, size: int) -> None:
    whole = encoded(*DELETED)
    (tmp_path / "0.journal").write_bytes(whole[:size] + whole)
    problems = [(problem.kind, problem.position) for problem in Reader(tmp_path).verify().problems]
    assert problems == [("repeated", size)]
    plan = repairs.plan(tmp_path)
    assert [described(loss)[:4] for loss in plan.losses] == [(size, size, 0, None)]
    repairs.apply(tmp_path, plan)
    assert (tmp_path / "0.journal").read_bytes() == whole
    assert Reader(tmp_path).verify().sound


def test_zeros_of_a_damaged_checkpoint_are_not_empty_records(tmp_path: Path) -> None:
    start = len(encoded(*DELETED[:2]))
    (tmp_path / "0.journal").write_bytes(drop(encoded(*DELETED), start + 6, start + 12))
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(start + 11, 14, 1, None, [0, 2], start)]
    repairs.apply(tmp_path, plan)
    changed = Data(b"or\x10\0\0\0\0")
    assert encoded(*Reader(tmp_path)) == encoded(*DELETED[:2], changed, *DELETED[4:])


@pytest.mark.parametrize(
    ("after", "is_read"),
    [
        (encoded(*data("b"), Checkpoint(0, 1)), True),
        (encoded(*data("b"), Checkpoint(0, 2)), False),
        (encoded(*data("b")), True),
        (encoded(*data("b")) + b"\x07", False),
        (encoded(*data("b", "c")) + b"\x07", True),
        (encoded(*data("b", "c")) + b"\x07\x07\x07\x07" + encoded(Checkpoint(0, 1)), False),
        (b"\x07\x07\x07\x07" + encoded(*data("b"), Checkpoint(0, 1)), False),
    ],
    ids=["a checkpoint", "wrong ids", "the end", "one and a torn tail", "two and a torn tail", "bad bytes", "at once"],
)
def test_an_empty_record_is_read_only_where_what_follows_proves_it(tmp_path: Path, after: bytes, is_read: bool) -> None:
    (tmp_path / "0.journal").write_bytes(encoded(HINT, *data("a", "")) + after)
    found = [record for record in Reader(tmp_path).records(mode="dropmalformed") if isinstance(record, Data)]
    assert (Data(b"") in found) == is_read


@pytest.mark.parametrize(("end", "left"), [(25, "cdfg"), (20, "cfg")])
def test_file_truncated_between_records_is_detected_by_the_ids_of_the_next(tmp_path: Path, end: int, left: str) -> None:
    home = three_files(tmp_path)
    damage_file(home / "1.journal", cut, end)
    assert [(problem.file, problem.kind) for problem in Reader(home).verify().problems] == [("2.journal", "gap")]
    assert [segment.complete for segment in Reader(home).segments()][1] is False
    with pytest.raises(Gap):
        Reader(home).segments(mode="failfast")
    writer = Writer(home, recovering=True)
    recovery = writer.recovery()
    with writer, pytest.raises(Gap):
        list(recovery)
    plan = repairs.plan(home)
    assert [described(loss)[:4] for loss in plan.losses] == [(end, 0, 0, None)]
    repairs.apply(home, plan)
    assert Reader(home).verify().sound
    assert repairs.plan(home).empty
    with Writer(home, recovering=True) as writer:
        recovery = writer.recovery()
        found = list(recovery)
    assert b"".join(b"".join(segment.records) for segment in found) == left.encode()
    assert [segment.complete for segment in found] == [False, False, False]


@pytest.mark.parametrize(("place", "is_proven"), [(5, True), (13, False)], ids=["checked", "current"])
def test_wrong_first_checkpoint_is_restored_if_its_neighbours_agree(
    tmp_path: Path, place: int, is_proven: bool
) -> None:
    home = write(
        tmp_path,
        {
            0: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2), *data("c")],
            1: [Checkpoint(0, 2), *data("d"), Checkpoint(0, 3)],
        },
    )
    damage_file(home / "1.journal", overwrite, place, b"\x01")
    plan = repairs.plan(home)
    restored = ("restored", 0, 20, 0, 0, None)
    lost = ("lost", 0, 20, 0, None, [2, 2])
    assert [(loss.kind, *described(loss)[:5]) for loss in plan.losses] == (
        [restored] if is_proven else [restored, lost]
    )
    repairs.apply(home, plan)
    assert Reader(home).verify().sound
    assert [(segment.records, segment.complete) for segment in Reader(home).segments()] == [
        ([b"a"], True),
        ([b"b"], True),
        ([b"c", b"d"], is_proven),
    ]


def test_part_of_a_checkpoint_at_the_end_of_a_file_is_not_a_record(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a", "b"), Checkpoint(0, 1)], 1: [Checkpoint(0, 1), *data("c")]})
    damage_file(tmp_path / "0.journal", drop, 30, 33)
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(30, 17, 0, None, [0, 1], 25)]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(HINT, *data("a", "b"), Checkpoint(0, 1), *data("c"))


def test_part_of_a_checkpoint_before_bad_bytes_is_not_a_record(tmp_path: Path) -> None:
    records = [Checkpoint(1, 1), *data("a"), Checkpoint(1, 2), *data("b"), Checkpoint(1, 3), *data("c")]
    (tmp_path / "4.journal").write_bytes(drop(encoded(*records), 25, 28))
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(25, 17, 1, None, [1, 3], 20)]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(*records[:2], *records[3:])


def test_record_after_a_checkpoint_that_lost_a_byte_is_not_read_from_within_its_data(tmp_path: Path) -> None:
    numbers = [3995, 4513, 4096, 771, 4116, 1604, 237]  # 4096 reads like the header of a record of 16 bytes
    whole = Data(b"".join(number.to_bytes(4, "little") for number in numbers))
    records = [HINT, whole, *data("b"), Checkpoint(0, 1), *data("c")]
    write(tmp_path, {0: [HINT, *data("a")], 1: records})
    damage_file(tmp_path / "1.journal", drop, 6, 7)
    plan = repairs.plan(tmp_path)
    assert [(loss.kind, loss.fields["segments"]) for loss in plan.losses] == [("lost", [0, 0])]
    repairs.apply(tmp_path, plan)
    found = [record for record in Reader(tmp_path) if isinstance(record, Data)]
    assert [record.data for record in found] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_that_waits_for_recovery_is_a_problem(tmp_path: Path, missing: int) -> None:
    Writer(three_files(tmp_path), recovering=True).close()
    (tmp_path / f".logwright/recovery/3/{missing}.journal").unlink()
    report = Reader(tmp_path).verify()
    if missing == 0:
        assert report.sound, "it may have been checked: nothing says that it was not"
        return
    assert [problem.kind for problem in report.problems] == ["gap"]
    with pytest.raises(Gap):
        Writer(tmp_path)
    plan = repairs.plan(tmp_path)
    assert plan.left == ()
    (loss,) = plan.losses
    assert (loss.file, loss.at_least, loss.at_most) == (f".logwright/recovery/3/{missing}.journal", 1, None)
    repairs.apply(tmp_path, plan)
    assert Reader(tmp_path).verify().sound
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        found = {segment.id: segment.complete for segment in recovery}
    assert found == ({1: False, 2: False, 3: False} if missing == 1 else {1: True, 2: False})


@pytest.mark.parametrize("is_used", [False, True], ids=["nothing written since", "written since"])
def test_only_file_of_a_waiting_generation_that_is_missing_is_a_problem(tmp_path: Path, is_used: bool) -> None:
    with Writer(tmp_path) as writer:
        writer.append(b"a")
        writer.register_checkpoint()
    with Writer(tmp_path, recovering=True) as writer:
        writer.append_many([b"b"] if is_used else [])
    (tmp_path / ".logwright/recovery/1/0.journal").unlink()
    place = "1.journal" if is_used else ".logwright/recovery/1"
    assert [(problem.kind, problem.file) for problem in Reader(tmp_path).verify().problems] == [("gap", place)]
    with pytest.raises(Gap, match="at least file 0 was: it is missing"):
        list(Reader(tmp_path))
    with pytest.raises(Gap):
        Reader(tmp_path).segments(mode="failfast")
    for recovering in (False, True):
        with pytest.raises(Gap, match=r"at least file 0 was: it is missing \(see logwright repair\)"):
            Writer(tmp_path, recovering=recovering)
    plan = repairs.plan(tmp_path)
    (loss,) = plan.losses
    assert (loss.file, loss.at_least, loss.at_most) == (".logwright/recovery/1/0.journal", 1, None)
    assert loss.fields["segments"] == ([0, 1] if is_used else [0, 0])
    repairs.apply(tmp_path, plan)
    assert Reader(tmp_path).verify().sound
    assert repairs.plan(tmp_path).empty
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [list(segment.records) for segment in recovery] == ([[b"b"]] if is_used else [])
    if not is_used:
        with pytest.raises(LogwrightError):
            repairs.undo(tmp_path)  # the file that it has made was recovered


def test_checkpoint_that_the_next_file_confirms_is_kept(tmp_path: Path) -> None:
    """Records before it are deleted, so that its ids do not follow: three checkpoints at least are missing."""
    first = [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2), Checkpoint(1, 2), *data("c")]
    write(tmp_path, {0: [*first, Checkpoint(1, 3)], 1: [Checkpoint(1, 3), *data("d")]})
    damage_file(tmp_path / "0.journal", drop, 25, len(encoded(*first)))
    assert [(problem.kind, problem.position) for problem in Reader(tmp_path).verify().problems] == [("gap", 25)]
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(25, 0, 3, None, [0, 3], None)]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(HINT, *data("a"), Checkpoint(1, 3), Checkpoint(1, 3), *data("d"))
    assert Reader(tmp_path).verify().sound
    assert repairs.plan(tmp_path).empty


def test_number_of_lost_records_is_not_exact_if_ids_may_be_right(tmp_path: Path) -> None:
    first = [HINT, *data("a"), Checkpoint(0, 1), *data("b")]
    write(tmp_path, {0: [*first, Checkpoint(0, 2), *data("c")]})
    damage_file(tmp_path / "0.journal", drop, 25, len(encoded(*first)))
    assert list(map(described, repairs.plan(tmp_path).losses)) == [(25, 20, 1, None, [0, 0], None)]


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize("swapped", [(0, 1), (1, 2), (0, 2)])
def test_two_files_with_each_others_names_get_their_own_again(
    tmp_path: Path, swapped: tuple[int, int], is_waiting: bool
) -> None:
    three_files(tmp_path)
    if is_waiting:
        Writer(tmp_path, recovering=True).close()
    before = Reader(tmp_path).segments()
    one, other = (tmp_path / Reader(tmp_path).files()[row].name for row in swapped)
    contents = one.read_bytes(), other.read_bytes()
    other.write_bytes(contents[0])
    one.write_bytes(contents[1])
    assert not Reader(tmp_path).verify().sound
    plan = repairs.plan(tmp_path)
    assert [(loss.kind, loss.at_most) for loss in plan.losses] == [("restored", 0)]
    assert plan.losses[0].what.endswith("which were exchanged")
    repairs.apply(tmp_path, plan)
    assert (one.read_bytes(), other.read_bytes()) == contents
    assert Reader(tmp_path).segments() == before
    assert repairs.plan(tmp_path).empty
    repairs.undo(tmp_path)
    assert (one.read_bytes(), other.read_bytes()) == contents[::-1]


def test_files_in_another_order_add_to_the_account_only_once(tmp_path: Path) -> None:
    """Three files have changed places: no exchange of two explains that."""
    three_files(tmp_path)
    contents = [(tmp_path / f"{number}.journal").read_bytes() for number in range(3)]
    for number in range(3):
        (tmp_path / f"{number}.journal").write_bytes(contents[(number + 1) % 3])
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    losses = Reader(tmp_path).losses()
    assert Reader(tmp_path).verify().sound
    assert repairs.plan(tmp_path).empty
    assert len(losses) == len(Reader(tmp_path).losses()) > 0
    assert not any(segment.complete and segment.id > 0 for segment in Reader(tmp_path).segments())


def test_writer_removes_no_file_whose_ids_go_back(tmp_path: Path) -> None:
    three_files(tmp_path)
    one, other = tmp_path / "1.journal", tmp_path / "2.journal"
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    with Writer(tmp_path) as writer:
        while writer.checked < writer.current:
            writer.check_checkpoint()
    assert sorted(path.name for path in tmp_path.glob("*.journal")) == ["0.journal", "1.journal", "2.journal"]


@pytest.mark.parametrize(("end", "kinds"), [(45, ["gap"]), (50, [])])
def test_generation_begins_with_the_segment_that_the_one_before_ends_in(
    tmp_path: Path, end: int, kinds: list[str]
) -> None:
    with Writer(tmp_path) as writer:
        writer.append(b"abcde")
        writer.register_checkpoint()
        writer.append(b"1")
    with Writer(tmp_path, recovering=True) as writer:
        writer.append(b"2")
    (tmp_path / NOTE_NAME).unlink()  # as for a file of another program
    damage_file(tmp_path / ".logwright/recovery/1/0.journal", cut, {45: 29, 50: 49}[end])
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == kinds
    writer = Writer(tmp_path, recovering=True)
    recovery = writer.recovery()
    with writer:
        if kinds:
            with pytest.raises(Gap, match="the generation before ends in segment 0"):
                list(recovery)
        else:
            assert [list(segment.records) for segment in recovery] == [[b"abcde"], [b"2"]]
    if kinds:
        repairs.apply(tmp_path, repairs.plan(tmp_path))
        assert Reader(tmp_path).verify().sound
        assert repairs.plan(tmp_path).empty


def test_missing_file_is_replaced_and_the_repair_can_be_undone(tmp_path: Path) -> None:
    three_files(tmp_path)
    (tmp_path / "1.journal").unlink()
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    with Writer(tmp_path) as writer:
        assert (writer.checked, writer.current) == (1, 3)
    assert list(Reader(tmp_path / "1.journal")) == [Checkpoint(0, 1)]
    repairs.undo(tmp_path)
    assert not (tmp_path / "1.journal").exists()


@pytest.mark.parametrize("size", [1, 4, 28, 4096])
def test_zeros_at_the_end_of_a_file_waiting_for_recovery_are_damage(tmp_path: Path, size: int) -> None:
    Writer(three_files(tmp_path), recovering=True).close()
    (tmp_path / NOTE_NAME).unlink()  # as for a file of another program
    waiting = ".logwright/recovery/3/2.journal"
    damage_file(tmp_path / waiting, lambda data: data[:-5] + bytes(size))
    problems = [(problem.kind, problem.file, problem.position) for problem in Reader(tmp_path).verify().problems]
    assert problems == [("malformed", waiting, 45)]
    writer = Writer(tmp_path, recovering=True)
    recovery = writer.recovery()
    with writer, pytest.raises(DamagedJournal):
        list(recovery)
    assert (tmp_path / waiting).stat().st_size == 45 + size
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(45, size, 0, None, [3, 3], 25)]
    repairs.apply(tmp_path, plan)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [list(segment.records) for segment in recovery] == [[b"c", b"d"], [b"e", b"f"]]


@pytest.mark.parametrize("place", [1, 2, 3, 4, 11])
def test_damaged_field_of_the_first_checkpoint_is_restored_without_loss(tmp_path: Path, place: int) -> None:
    home = three_files(tmp_path)
    before = Reader(home).segments()
    damage_file(home / "0.journal", overwrite, place, b"\xff")
    plan = repairs.plan(home)
    assert [(loss.kind, loss.what) for loss in plan.losses] == [("restored", "the first checkpoint of the file, 0, 0")]
    repairs.apply(home, plan)
    assert Reader(home).segments() == before
    assert Reader(home).verify().sound


def test_zeros_after_a_file_that_is_not_the_last_are_damage(tmp_path: Path) -> None:
    Writer(three_files(tmp_path), recovering=True).close()
    with (tmp_path / ".logwright/recovery/3/1.journal").open("ab") as file:
        file.write(bytes(4096))
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["malformed"]
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery(mode="dropmalformed")
        assert [segment.records for segment in recovery] == [[b"c", b"d"], [b"e", b"f"], [b"g"]]


def test_journal_without_any_ids_is_repaired_at_once(tmp_path: Path) -> None:
    write(tmp_path, {6: [], 7: []})
    (tmp_path / "7.journal").write_bytes(bytes(64))
    plan = repairs.plan(tmp_path)
    assert [loss.kind for loss in plan.losses].count("lost") == 2
    repairs.apply(tmp_path, plan)
    assert Reader(tmp_path).verify().sound
    assert repairs.plan(tmp_path).empty
    with Writer(tmp_path) as writer:
        assert (writer.file_id, writer.current) == (7, 0)


@pytest.mark.parametrize("content", [b"a letter to somebody\n" * 9, bytes(500)], ids=["text", "zeros"])
def test_file_overwritten_from_its_beginning_is_not_a_torn_tail(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0.journal").write_bytes(content)
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["malformed"]
    with pytest.raises(DamagedJournal):
        recover(tmp_path)
    assert (tmp_path / "0.journal").read_bytes() == content


@pytest.mark.parametrize("size", [1, 19, 20, 40])
def test_a_new_file_whose_first_write_was_torn_is_a_torn_tail(tmp_path: Path, size: int) -> None:
    write(tmp_path, {0: [HINT, *data("a")]})
    (tmp_path / "1.journal").write_bytes(bytes(size))
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["torn_tail"]
    with Writer(tmp_path) as writer:
        writer.append(b"b")
    assert list(Reader(tmp_path)) == [HINT, Data(b"a"), HINT, Data(b"b")]


def test_sixteen_bad_bytes_change_no_other_record(tmp_path: Path) -> None:
    records = [HINT, *data(*map(str, range(1000, 1020))), Checkpoint(0, 1), *data(*map(str, range(2000, 2007)))]
    whole = encoded(*records)
    for at in range(20, len(whole) - 16):
        (tmp_path / "0.journal").write_bytes(overwrite(whole, at, b"\x5a" * 16))
        plan = repairs.plan(tmp_path)
        assert not any(loss.kind == "restored" for loss in plan.losses)
        kept = list(Reader(tmp_path).records(mode="dropmalformed"))
        assert all(b"Z" in encoded(record) for record in kept if record not in records)


# --- checkpoints with wrong ids ---------------------------------------------------------------------------------------

ORDERS = [b"record %02d" % number for number in range(20)]
"""Five of these are a segment."""


def four_segments(directory: Path) -> bytes:
    with Writer(directory, sync="always") as writer:
        for number, order in enumerate(ORDERS):
            writer.append(order)
            if number % 5 == 4:
                writer.register_checkpoint()
    return (directory / "0.journal").read_bytes()


def orders_in(reader: Reader) -> list[bytes]:
    return [record.data for record in reader.records(mode="dropmalformed") if isinstance(record, Data)]


@pytest.mark.parametrize("at", [85, 170, 255])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("bad", [b"\xa5", b"\xff", b"\x03"])
def test_bad_bytes_at_a_checkpoint_lose_no_record_after_it(tmp_path: Path, at: int, size: int, bad: bytes) -> None:
    whole = four_segments(tmp_path)
    for place in range(at, at + 20):
        content = overwrite(whole, place, bad * size)
        (tmp_path / "0.journal").write_bytes(content)
        reader = Reader(tmp_path)
        after = [order for order in ORDERS if whole.index(order) - 4 >= place + size + 13]
        assert [order for order in orders_in(reader) if order in after] == after
        assert "torn_tail" not in {problem.kind for problem in reader.verify().problems}
        if reader.verify().sound:
            assert sum(map(len, orders_in(reader))) == sum(map(len, ORDERS)), "other bytes of data"
            continue
        for recovering in (False, True):
            with pytest.raises(DamagedJournal, match="see logwright repair"):
                Writer(tmp_path, recovering=recovering)
        assert (tmp_path / "0.journal").read_bytes() == content


def test_every_flipped_bit_of_a_checkpoint_is_detected_and_nothing_is_lost(tmp_path: Path) -> None:
    whole = four_segments(tmp_path)
    for start in (85, 170, 255, 340):
        for bit in range(8 * (start + 4), 8 * (start + 20)):
            (tmp_path / "0.journal").write_bytes(flip_bit(whole, bit))
            reader = Reader(tmp_path)
            assert not reader.verify().sound
            assert orders_in(reader) == ORDERS
            assert not any(segment.checked for segment in reader.segments())


def test_flipped_bit_of_the_last_checkpoint_marks_no_segment_as_checked(tmp_path: Path) -> None:
    content = flip_bit(four_segments(tmp_path), 8 * 344 + 2)
    (tmp_path / "0.journal").write_bytes(content)
    assert [(problem.kind, problem.position) for problem in Reader(tmp_path).verify().problems] == [("malformed", 340)]
    with pytest.raises(DamagedJournal, match=r"the ids 4, 4 cannot follow 0, 3; .*\(see logwright repair\)"):
        Writer(tmp_path, recovering=True)
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(340, 20, 1, None, [3, 3], None)]
    repairs.apply(tmp_path, plan)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [order for segment in recovery for order in segment.records] == ORDERS


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        (Checkpoint(0, 0), "torn_tail"),
        (Checkpoint(0, 2**60), "torn_tail"),
        (Checkpoint(0, 1), "malformed"),
        (Checkpoint(1, 3), "malformed"),
        (Checkpoint(0, 4), "malformed"),
        (Checkpoint(0, 2**40), "malformed"),
    ],
)
def test_wrong_ids_at_the_end_are_a_torn_tail_only_if_they_are_bad_up_to_their_end(
    tmp_path: Path, pair: Checkpoint, kind: str
) -> None:
    write(tmp_path, {0: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), pair]})
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == [kind]


@pytest.mark.parametrize("ids", [bytes(16), bytes(8) + b"\xff" * 8, noise(16)], ids=["zeros", "half zeros", "noise"])
@pytest.mark.parametrize("torn", [b"", b"\0\x09", b"\xff" * 600, encoded(*data("cut short"))[:-3]])
def test_whole_records_between_wrong_ids_and_a_torn_tail_are_kept(tmp_path: Path, ids: bytes, torn: bytes) -> None:
    before = encoded(HINT, *data("a"), Checkpoint(0, 1), *data("b"))
    after = encoded(*data("order 18", "order 19"))
    wrong = encoded(Checkpoint(0, 2))[:4] + ids
    (tmp_path / "0.journal").write_bytes(before + wrong + after + torn)
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["malformed", "torn_tail"][
        : 1 + any(torn)
    ]
    with pytest.raises(DamagedJournal, match="nothing is cut off"):
        Writer(tmp_path)
    plan = repairs.plan(tmp_path)
    assert [described(loss)[:3] for loss in plan.losses] == [(len(before), len(wrong), 1)]
    repairs.apply(tmp_path, plan)
    assert (tmp_path / "0.journal").read_bytes() == before + after


def test_whole_records_between_a_wrong_type_and_a_torn_tail_are_kept(tmp_path: Path) -> None:
    wrong, after = b"\x07" + encoded(*data("order 17"))[1:], encoded(*data("order 18", "order 19"))
    (tmp_path / "0.journal").write_bytes(HEAD + wrong + after + encoded(*data("cut short"))[:-3])
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(len(HEAD), len(wrong), 1, 1, [0, 0], 20)]
    repairs.apply(tmp_path, plan)
    assert (tmp_path / "0.journal").read_bytes() == HEAD + after


@pytest.mark.parametrize("after", [encoded(*data("order 18")), encoded(*data("\0\0\0", "order 18"))])
def test_one_record_between_wrong_ids_and_a_torn_tail_may_be_a_coincidence(tmp_path: Path, after: bytes) -> None:
    wrong = encoded(Checkpoint(0, 2))[:4] + bytes(16)
    (tmp_path / "0.journal").write_bytes(HEAD + wrong + after + b"\0\x09")
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["torn_tail"]


def damages_of(content: bytes, start: int, end: int) -> Iterator[bytes]:
    """The content with all small damages of one record."""
    for place in range(start, end):
        for bit in range(8):
            yield flip_bit(content, 8 * place + bit)
        yield overwrite(content, place, noise(min(4, end - place), seed=place))
        for size in (1, 2, 5):
            yield insert(content, place, noise(size, seed=place))
            yield drop(content, place, min(end, place + size))


LAST_BUT_ONE: dict[str, list[Record]] = {
    "data": [HINT, *data("a", "b"), Checkpoint(0, 1), *data("order 18")],
    "data before small data": [HINT, *data("a", "b"), Checkpoint(0, 1), *data("x")],
    "a checkpoint": [HINT, *data("a", "b"), Checkpoint(0, 1), *data("order 18"), Checkpoint(0, 2)],
    "a checkpoint that checks": [HINT, *data("a", "b"), Checkpoint(0, 1), *data("order 18"), Checkpoint(1, 1)],
}


@pytest.mark.parametrize("last", ["1", "order", "order 19" * 9])
@pytest.mark.parametrize("records", LAST_BUT_ONE.values(), ids=list(LAST_BUT_ONE))
def test_one_whole_record_at_the_end_is_never_cut_whatever_happened_to_the_one_before(
    tmp_path: Path, records: list[Record], last: str
) -> None:
    content = encoded(*records, Data(last.encode()))
    start, end = len(encoded(*records[:-1])), len(encoded(*records))
    for damaged in damages_of(content, start, end):
        (tmp_path / "0.journal").write_bytes(damaged)
        assert "torn_tail" not in [problem.kind for problem in Reader(tmp_path).verify().problems], damaged


def test_one_whole_record_after_a_checkpoint_that_lost_a_byte_is_kept_by_a_repair(tmp_path: Path) -> None:
    (tmp_path / "0.journal").write_bytes(drop(encoded(HINT, *data("a"), Checkpoint(0, 1), *data("b")), 44, 45))
    with pytest.raises(DamagedJournal, match="nothing is cut off"):
        Writer(tmp_path)
    plan = repairs.plan(tmp_path)
    assert list(map(described, plan.losses)) == [(25, 19, 1, None, [0, 0], None)]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(HINT, *data("a", "b"))


def test_one_whole_record_after_a_first_checkpoint_that_lost_a_byte_is_kept_by_a_repair(tmp_path: Path) -> None:
    (tmp_path / "0.journal").write_bytes(drop(encoded(HINT, *data("order")), 19, 20))
    with pytest.raises(DamagedJournal, match="nothing is cut off"):
        Writer(tmp_path)
    plan = repairs.plan(tmp_path)
    assert [loss.kind for loss in plan.losses] == ["restored", "lost"]
    repairs.apply(tmp_path, plan)
    assert encoded(*Reader(tmp_path)) == encoded(HINT, *data("order"))


@pytest.mark.parametrize(
    ("torn", "mistaken"),
    [
        (b"text without zeros " * 17, 0),
        (noise(320), 0),
        (b"".join(number.to_bytes(8, "little") for number in range(40)), 4),
        (b"".join(number.to_bytes(4, "little") for number in range(80)), 3),
    ],
    ids=["text", "noise", "numbers of 8 bytes", "numbers of 4 bytes"],
)
def test_a_record_cut_short_is_a_torn_tail_even_if_its_data_often_looks_like_a_record(
    tmp_path: Path, torn: bytes, mistaken: int
) -> None:
    before = encoded(HINT, *data("a"))
    whole = before + encoded(Data(torn))
    found = []
    for size in range(len(before) + 1, len(whole)):
        (tmp_path / "0.journal").write_bytes(cut(whole, size))
        found += [problem.kind for problem in Reader(tmp_path).verify().problems]
    assert len(found) == len(torn) + 3
    assert found.count("torn_tail") == len(found) - mistaken


@pytest.mark.parametrize("wrong", [Checkpoint(1, 1), Checkpoint(0, 0), Checkpoint(2**50, 2**50), Checkpoint(0, 2**50)])
def test_wrong_first_ids_of_the_last_file_remove_no_file(tmp_path: Path, wrong: Checkpoint) -> None:
    files = {
        0: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2)],
        1: [wrong, *data("c of many bytes")],
    }
    write(tmp_path, files)
    assert [(problem.kind, problem.file) for problem in Reader(tmp_path).verify().problems] == [("gap", "1.journal")]
    for recovering in (False, True):
        with pytest.raises(Gap, match=r"and the file before ends with 0, 2.*\(see logwright repair\)"):
            Writer(tmp_path, recovering=recovering)
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    assert Reader(tmp_path).verify().sound
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [list(segment.records) for segment in recovery] == [[b"a"], [b"b"], [b"c of many bytes"]]


@pytest.mark.parametrize("wrong", [Checkpoint(2, 2), Checkpoint(2**50, 2**50)])
def test_recovery_in_dropmalformed_returns_segments_that_only_wrong_ids_mark_as_checked(
    tmp_path: Path, wrong: Checkpoint
) -> None:
    files = {
        0: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2)],
        1: [wrong, *data("c of many bytes")],
    }
    write(tmp_path / ".logwright/recovery/2", files)
    writer = Writer(tmp_path, recovering=True)
    recovery = writer.recovery()
    with writer, pytest.raises(Gap):
        list(recovery)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery(mode="dropmalformed")
        assert [list(segment.records) for segment in recovery] == [[b"a"], [b"b"], [b"c of many bytes"]]
