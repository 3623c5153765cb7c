"""Repairing journals of queues: planned, executed, undone; nothing is lost, and nothing is invented."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.repair.plan import Create, Cut, Patch, Remove, Rename
from logwright.errors import DamagedJournal, Locked, NotFound, WrongUse
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.repair import apply, plan, undo
from logwright.kestrel.files.writer import Writer
from tests.kestrel.samples import ADDED, REMOVE, addx, confirm, continue_, encoded, reserve_as, write
from tests.support.damage import drop, flip_bit, insert, overwrite
from tests.support.trees import read_tree

A, B, C = addx(b"first item"), addx(b"second item"), addx(b"third item")


def repaired(path: Path) -> list[Operation]:
    """The operations after a repair, once the journal is known to be sound."""
    before = read_tree(REAL_DISK, path.parent)
    found = plan(path)
    assert read_tree(REAL_DISK, path.parent) == before, "planning changed something"
    assert apply(path, found) is not None
    report = Reader(path).verify()
    assert report.sound, report.problems
    operations = list(Reader(path))
    undo(path)
    files = {
        name: data for name, data in read_tree(REAL_DISK, path.parent).items() if not name.startswith(".logwright")
    }
    assert files == before, "taking it back leaves what was there"
    assert plan(path).steps == found.steps
    assert apply(path, plan(path)) is not None
    assert list(Reader(path)) == operations
    return operations


def test_sound_queue_needs_no_repair(tmp_path: Path) -> None:
    found = plan(write(tmp_path / "cars", A, REMOVE))
    assert (found.empty, found.left) == (True, ())
    assert apply(tmp_path / "cars", found) is None


def test_torn_tail_is_cut_and_kept_by_repair(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=encoded([B])[:-4])
    assert plan(path).steps == (Cut("cars", 31, 59, "only 28 of the operation's 32 bytes are there"),)
    assert plan(path).left == ()
    assert repaired(path) == [A]
    kept = [copy.read_bytes() for copy in (tmp_path / ".logwright" / "cut").iterdir() if "@31" in copy.name]
    assert encoded([B])[:-4] in kept


def test_bad_bytes_in_the_middle_are_removed_and_the_rest_kept(tmp_path: Path) -> None:
    bad = b"\x7f some noise \xff"
    path = write(tmp_path / "cars", A, tail=bad + encoded([B, REMOVE]))
    found = plan(path)
    assert [type(step) for step in found.steps] == [Create, Remove, Rename]
    assert found.left == ()
    (loss,) = found.losses
    assert (loss.file, loss.position, loss.bytes, loss.at_least, loss.at_most) == ("cars", 31, 14, 0, None)
    when = "added 2011-03-13T07:06:40.000Z"
    assert loss.what.split("; ") == [
        "operations in 14 bytes that cannot be read: the removal of up to 14 items",
        f"the item before it, 'first item' {when}, may have damaged data",
        "of 1 live items these may be finished already: 'second item'",
        "if bytes are missing, items that were finished after it may be live: 'first item'",
    ]
    assert repaired(path) == [A, B, REMOVE]


def test_damaged_end_of_a_rotated_file_is_cut_and_reported(tmp_path: Path) -> None:
    (tmp_path / "cars.50").write_bytes(encoded([A, B])[:-1])
    path = write(tmp_path / "cars", C)
    assert [(loss.file, loss.position, loss.bytes) for loss in plan(path).losses] == [("cars.50", 31, 31)]
    assert repaired(path) == [A, C]


@pytest.mark.parametrize("bit", range(3, 8))
def test_opcode_is_restored_if_the_rest_of_the_item_is_intact(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, B, REMOVE, C]), 8 * 31 + bit))
    (step,) = plan(path).steps
    assert isinstance(step, Patch)
    assert (step.position, step.new) == (31, b"\x02")
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.fields["old"], loss.fields["new"]) == ("restored", 31, step.old.hex(), "02")
    assert repaired(path) == [A, B, REMOVE, C]


@pytest.mark.parametrize("bit", [0, 2])  # a 3 and a 6: they are readable, and the size of the item follows
def test_changed_opcode_is_removed_with_its_item(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, B, REMOVE, C]), 8 * 31 + bit))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes, loss.at_most) == ("lost", 31, 32, None)
    assert repaired(path) == [A, REMOVE, C]


def test_item_whose_changed_opcode_makes_up_several_operations_is_removed_with_all_of_them(tmp_path: Path) -> None:
    timed = addx(b"time reads like operations", added=ADDED // 2**16 * 2**16 + 0x0106)
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, timed, C]), 8 * 31 + 2))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes) == ("lost", 31, 47)
    assert repaired(path) == [A, C]


def test_last_item_with_a_changed_opcode_is_not_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, B]), 8 * 31 + 2))
    assert [problem.kind for problem in Reader(path).verify().problems] == ["malformed"]
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes) == ("lost", 31, 32)
    assert repaired(path) == [A]


def test_item_without_its_opcode_is_removed_with_the_operation_before_it(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(drop(encoded([A, REMOVE, B, C]), 32, 33))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes, loss.at_most) == ("lost", 31, 32, None)
    assert repaired(path) == [A, C]


def test_opcode_is_not_restored_if_the_size_leads_over_whole_items(tmp_path: Path) -> None:
    items = [addx(b"item number %d" % number) for number in range(3)]
    size = len(encoded(items[:1]))
    path = tmp_path / "cars"
    path.write_bytes(overwrite(encoded([A, *items, C]), 31, b"\xff" + (2 * size - 5).to_bytes(4, "little")))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes, loss.at_most) == ("lost", 31, 2 * size, None)
    assert repaired(path) == [A, items[2], C]


def test_one_item_is_not_assumed_if_whole_items_are_within_its_size(tmp_path: Path) -> None:
    items = [addx(b"item number %d" % number) for number in range(3)]
    size = len(encoded(items[:1]))
    path = tmp_path / "cars"
    bad = b"\xff" + (5 + 2 * size).to_bytes(4, "little") + bytes(5)
    path.write_bytes(encoded([A]) + bad + encoded([*items, C]))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes, loss.at_most) == ("lost", 31, len(bad), None)
    assert repaired(path) == [A, *items, C]


def test_zeroed_operations_before_an_item_are_not_taken_for_its_id(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(overwrite(encoded([A, A, A, REMOVE, REMOVE, REMOVE, REMOVE, B, C]), 93, bytes(5)))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.at_most) == ("lost", 93, None)


@pytest.mark.parametrize("added", [ADDED - 1000, ADDED + 1000])
def test_size_is_not_restored_if_the_time_is_out_of_order(tmp_path: Path, added: int) -> None:
    items = [addx(b"first"), addx(b"second", added=added), addx(b"third")]
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded(items), 8 * 27 + 31))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position) == ("lost", 26)
    assert repaired(path) == [items[0], items[2]]


def test_operation_with_an_impossible_id_before_bad_bytes_goes_too(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(overwrite(encoded([A, reserve_as(1), B, C]), 34, b"\x01\xcb\xff"))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes) == ("lost", 31, 37)
    assert repaired(path) == [A, C]


@pytest.mark.parametrize("xid", [7, 8])
def test_id_that_reads_like_an_opcode_makes_no_item_of_the_rest(tmp_path: Path, xid: int) -> None:
    path = tmp_path / "cars"
    start = len(encoded([A, reserve_as(xid)]))
    path.write_bytes(insert(encoded([A, reserve_as(xid), continue_(xid, b"more"), C]), start + 3, b"\xba"))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position + loss.bytes) == ("lost", path.stat().st_size - len(encoded([C])))
    assert [operation for operation in repaired(path) if operation.data] == [A, C]


TOO_SMALL = (0, 1, 3)
"""The bits of a size of 27 without which it is another valid size of an item."""


@pytest.mark.parametrize("bit", [4, *range(21, 32)])
def test_impossible_size_is_restored_if_only_one_value_explains_all_bytes(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    operations = [A, B, addx(b"a longer item"), REMOVE, C, addx(b"last")]
    path.write_bytes(flip_bit(encoded(operations), 8 * 32 + bit))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.at_least, loss.at_most) == ("restored", 32, 0, 0)
    assert loss.what.startswith("the size of the item at 31")
    assert repaired(path) == operations


@pytest.mark.parametrize("bit", TOO_SMALL)
def test_valid_item_is_never_extended(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    data = encoded([A, B, C, C])
    path.write_bytes(flip_bit(data, 8 * 32 + bit))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.fields["suspect"]) == ("lost", "cars@31")
    cut_short = addx(b"second item"[: 11 - (1 << bit)])
    assert repaired(path) == [A, cut_short, C, C]


@pytest.mark.parametrize("bit", [2, 5, 6])
def test_item_that_swallowed_others_is_removed_and_they_are_kept(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    items = [addx(b"item number %d" % number) for number in range(6)]
    path.write_bytes(flip_bit(encoded([A, B, *items]), 8 * 32 + bit))
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes, loss.fields["suspect"]) == ("lost", 31, 32, "cars@0")
    assert repaired(path) == [A, *items]


def test_removal_is_never_restored(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    for operation in (REMOVE, confirm(5)):
        path.write_bytes(flip_bit(encoded([B, operation, C]), 8 * 32 + 6))
        assert [type(step) for step in plan(path).steps] == [Create, Remove, Rename]


def test_ambiguous_size_is_not_restored(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, REMOVE, C]), 8 * 4 + 7))  # it may end before the removal or after it
    (loss,) = plan(path).losses
    assert (loss.kind, loss.position, loss.bytes) == ("lost", 0, 32)
    assert repaired(path) == [C]


def test_ambiguous_opcode_is_not_restored(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(encoded([A, REMOVE, C]), 8 * 31 + 6))  # or the preceding size should be one more
    assert [type(step) for step in plan(path).steps] == [Create, Remove, Rename]


def test_item_is_not_extended_over_a_sector_of_zeros(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=bytes(64) + encoded([B]))
    assert [type(step) for step in plan(path).steps] == [Create, Remove, Rename]
    assert repaired(path) == [A, B]


def test_field_is_restored_only_if_it_explains_the_rest_of_the_file(tmp_path: Path) -> None:
    operations = [A, B, C, addx(b"fourth"), addx(b"fifth"), addx(b"sixth")]
    path = tmp_path / "cars"
    path.write_bytes(flip_bit(flip_bit(encoded(operations), 8 * 31 + 7), 8 * 94 + 7))
    assert [(loss.kind, loss.position, loss.bytes, loss.at_least, loss.at_most) for loss in plan(path).losses] == [
        ("lost", 31, 32, 1, 1),
        ("restored", 94, 1, 0, 0),
    ]
    assert repaired(path) == [A, C, *operations[3:]]


def test_tail_is_never_repaired_into_a_shorter_item(tmp_path: Path) -> None:
    whole = encoded([A, addx(bytes(range(64)))])
    path = tmp_path / "cars"
    path.write_bytes(whole[:-32])  # with one bit less its size would fit
    assert [type(step) for step in plan(path).steps] == [Cut]
    assert repaired(path) == [A]


def test_repair_holds_the_lock_of_the_writer(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=b"\x7f" + encoded([B]))
    found = plan(path)
    with pytest.raises(DamagedJournal, match="this is no torn tail; nothing was changed: run `logwright verify"):
        Writer(path)
    apply(path, found)
    with Writer(path), pytest.raises(Locked):
        undo(path)
    with Writer(path) as writer:
        writer.remove()
    with pytest.raises(WrongUse, match="was changed since"):
        undo(path)


def test_all_queues_of_a_directory_are_repaired_together(tmp_path: Path) -> None:
    write(tmp_path / "cars", A, tail=b"\x7f")
    write(tmp_path / "bikes", B, tail=b"\x7f" + encoded([C]))
    found = plan(tmp_path)
    assert {step.file for step in found.steps} == {"cars", "bikes", "bikes~~repair-bikes"}
    assert sorted(found.locks) == [".logwright/bikes.lck", ".logwright/cars.lck"]
    apply(tmp_path, found)
    assert list(Reader(tmp_path / "bikes")) == [B, C]
    assert list(Reader(tmp_path / "cars")) == [A]


def test_writer_waits_until_a_repair_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "cars", A, tail=b"\x7f\x7f\x7f" + encoded([B]))
    found = plan(path)
    monkeypatch.setattr("logwright.core.repair.plan._rename", _fail)
    with pytest.raises(OSError, match="the power is gone"):
        apply(path, found)
    monkeypatch.undo()
    with pytest.raises(WrongUse, match="a repair of this queue was interrupted"):
        Writer(path)
    assert plan(path).interrupted
    apply(path, plan(path))
    with Writer(path):
        assert list(Reader(path)) == [A, B]


def _fail(*arguments: object) -> None:
    raise OSError("the power is gone")


def test_file_of_a_queue_is_repaired_with_its_queue(tmp_path: Path) -> None:
    write(tmp_path / "cars", A)
    rotated = write(tmp_path / "cars.50", A, tail=b"\x7f")
    with pytest.raises(WrongUse, match="is a part of the queue"):
        plan(rotated)
    lone = write(tmp_path / "elsewhere" / "cars.50", A, tail=b"\x7f")
    assert [step.file for step in plan(lone).steps] == ["cars.50"]
    with pytest.raises(NotFound):
        plan(tmp_path / "bikes")
