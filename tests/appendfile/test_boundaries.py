"""Ids that contradict each other in a segment that spans several files: only the file that is wrong is changed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logwright.appendfile import Checkpoint, Data, Reader, Record, Writer
from logwright.appendfile.files import repair as repairs
from logwright.appendfile.files.boundaries import Boundaries
from logwright.core.io.disk import REAL_DISK, OpenMode, RealDisk, RealFile
from logwright.errors import StorageFailed
from tests.appendfile.samples import HINT, data, write
from tests.support.damage import damage_file, drop, flip_bit, overwrite

IDS = (32, 33, 39, 40, 44, 68, 95, 96, 97, 98, 100, 103, 108, 112, 127, 140, 159)
"""Bits of the ids of a first record; with 68 and 108 the ids have the header of a checkpoint record in them."""


def spanning(directory: Path) -> list[bytes]:
    """A segment of one file, and one of eight; all records of data."""
    orders = [b"x" * 60, *(b"y%d" % number * 35 for number in range(8))]
    with Writer(directory, file_bytes=100) as writer:
        writer.append(orders[0])
        writer.register_checkpoint()
        for order in orders[1:]:
            writer.append(order)
    return orders


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.path.read_bytes() for file in Reader(directory).files()}


def repaired(directory: Path) -> set[str]:
    """Repair a journal; the files that this has changed. It is sound then, and a second repair has nothing to do."""
    before = contents(directory)
    plan = repairs.plan(directory)
    assert plan.left == ()
    repairs.apply(directory, plan)
    assert Reader(directory).verify().problems == []
    assert repairs.plan(directory).empty
    after = contents(directory)
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def orders_in(directory: Path) -> list[bytes]:
    return [record.data for record in Reader(directory) if isinstance(record, Data)]


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize("number", [1, 2, 5, 8, 9])
def test_flipped_bit_in_first_ids_changes_only_this_file(tmp_path: Path, number: int, is_waiting: bool) -> None:
    for bit in IDS:
        home = tmp_path / str(bit)
        orders = spanning(home)
        if is_waiting:
            Writer(home, recovering=True).close()
        (source,) = [file for file in Reader(home).files() if file.file_id == number]
        whole = contents(home)
        damage_file(source.path, flip_bit, bit)
        is_detected = not Reader(home).verify().sound
        changed = repaired(home)
        assert changed <= {source.name}
        assert orders_in(home) == orders
        assert is_detected == bool(Reader(home).losses())
        if is_detected and 1 < number < 9:
            assert changed == {source.name}
            assert contents(home) == whole


@pytest.mark.parametrize("bit", IDS)
def test_wrong_ids_of_the_first_file_are_restored_from_the_next_ones(tmp_path: Path, bit: int) -> None:
    """The files before it were removed, so that only the next ones contradict it."""
    orders = spanning(tmp_path)[2:]
    for number in range(3):
        (tmp_path / f"{number}.journal").unlink()
    whole = contents(tmp_path)
    damage_file(tmp_path / "3.journal", flip_bit, bit)
    is_detected = not Reader(tmp_path).verify().sound
    changed = repaired(tmp_path)
    assert changed <= {"3.journal"}
    assert orders_in(tmp_path) == orders
    if changed:
        assert contents(tmp_path) == whole
    assert is_detected == bool(Reader(tmp_path).losses())


def test_which_of_two_files_is_wrong_is_not_guessed(tmp_path: Path) -> None:
    write(tmp_path, {4: [Checkpoint(0, 5), *data("a")], 5: [Checkpoint(0, 1), *data("b")]})
    assert repaired(tmp_path) == set()
    assert [loss.fields["segments"] for loss in Reader(tmp_path).losses()] == [[1, 5]]


@pytest.mark.parametrize("wrong", [Checkpoint(5, 5), Checkpoint(2**50, 2**50)])
def test_segments_are_recovered_if_ids_that_check_them_are_not_certain(tmp_path: Path, wrong: Checkpoint) -> None:
    write(tmp_path, {4: [Checkpoint(0, 1), *data("a")], 5: [wrong, *data("b")]})
    assert repaired(tmp_path) == set()
    with Writer(tmp_path, recovering=True) as writer:
        found = [order for segment in writer.recovery() for order in segment.records]
    assert found == [b"a", b"b"]


CHAINS: dict[str, tuple[list[list[Record]], dict[int, Checkpoint], list[int]]] = {
    "a file that the next one contradicts": (
        [[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 2), *data("b")], [Checkpoint(0, 1), *data("c")]],
        {1: Checkpoint(0, 1)}, [],
    ),
    "a file that its own ids contradict": (
        [[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 7), *data("b"), Checkpoint(0, 2)]],
        {1: Checkpoint(0, 1)}, [],
    ),
    "ids of a checkpoint that did not fit": (
        [[HINT, *data("a")], [Checkpoint(0, 9), Checkpoint(0, 1), *data("b")], [Checkpoint(0, 1), *data("c")]],
        {1: HINT}, [],
    ),
    "missing records": (
        [[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 3), *data("b")], [Checkpoint(0, 3), *data("c")]],
        {}, [1],
    ),
    "missing records after which ids grow": (
        [[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 3), *data("b"), Checkpoint(1, 3)]],
        {}, [1],
    ),
    "two files whose ids are wrong": (
        [
            [HINT, *data("a"), Checkpoint(0, 1)],
            *([Checkpoint(0, number), *data("b")] for number in (5, 1, 9, 1)),
        ],
        {1: Checkpoint(0, 1), 3: Checkpoint(0, 1)}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "restored", "gaps"), CHAINS.values(), ids=list(CHAINS))
def test_each_contradiction_has_one_explanation(
    tmp_path: Path, files: list[list[Record]], restored: dict[int, Checkpoint], gaps: list[int]
) -> None:
    write(tmp_path, dict(enumerate(files)))
    found = Boundaries(REAL_DISK, Reader(tmp_path).files()).files
    assert {file.source.file_id: Checkpoint(*file.restored) for file in found if file.restored} == restored
    assert [file.source.file_id for file in found if file.gap] == gaps
    assert repaired(tmp_path) == {f"{number}.journal" for number in restored}


def test_ids_after_a_missing_file_are_not_changed(tmp_path: Path) -> None:
    first = [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2)]
    write(tmp_path, {0: first, 2: [Checkpoint(2, 3), *data("c")]})
    assert repaired(tmp_path) == {"1.journal"}
    assert orders_in(tmp_path) == [b"a", b"b", b"c"]


def test_exchanged_files_with_other_damage_need_one_repair(tmp_path: Path) -> None:
    files: dict[int, list[Record]] = {0: [HINT, *data("a" * 30), Checkpoint(0, 1)]}
    for number in range(1, 8):
        pair = Checkpoint(number - 1, number)
        files[number] = [pair, *data(f"{number} " * 20), Checkpoint(number - 1, number + 1)]
        files[number].append(Checkpoint(number, number + 1))
    write(tmp_path, files)
    one, other = tmp_path / "3.journal", tmp_path / "6.journal"
    swapped = other.read_bytes(), one.read_bytes()
    one.write_bytes(drop(swapped[0], 22, 42))
    other.write_bytes(swapped[1])
    assert repaired(tmp_path) == {"3.journal"}
    assert len(Reader(tmp_path).losses()) > 0


# --- files that cannot be read ----------------------------------------------------------------------------------------


class Guarded(RealDisk):
    """A disk on which one file must not be opened."""

    def __init__(self, refused: Path) -> None:
        self.refused = refused

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        if path == self.refused:
            raise StorageFailed("open", path, OSError(errno.EACCES, "Permission denied"))
        return super().open(path, mode)


def numbered(directory: Path) -> Path:
    """Files in which ids grow, so that a file without its neighbours shows a gap."""
    files: dict[int, list[Record]] = {}
    for number in range(5):
        pairs = [Checkpoint(0, segment) for segment in range(2 * number, 2 * number + 3)]
        files[number] = [pairs[0], *data("a"), pairs[1], *data("b"), pairs[2]]
    return write(directory, files)


def stand_in(home: Path, number: int, is_directory: bool) -> RealDisk:
    """Make a file of a journal unreadable; the disk to read it with."""
    path = home / f"{number}.journal"
    if not is_directory:
        return Guarded(path)
    path.unlink()
    path.mkdir()
    return REAL_DISK


REASONS = {True: "is not a regular file", False: "Permission denied"}


@pytest.mark.parametrize("is_directory", [True, False], ids=["a directory", "no access"])
@pytest.mark.parametrize("number", range(5))
def test_file_that_cannot_be_read_is_one_problem_and_is_left(tmp_path: Path, number: int, is_directory: bool) -> None:
    numbered(tmp_path)
    disk = stand_in(tmp_path, number, is_directory)
    (problem,) = Reader(tmp_path, disk=disk).verify().problems
    assert (problem.kind, problem.file) == ("unreadable", f"{number}.journal")
    assert REASONS[is_directory] in problem.message
    plan = repairs.plan(tmp_path, disk=disk)
    assert (plan.steps, plan.losses) == ((), ())
    (left,) = plan.left
    assert left.startswith(f"{number}.journal @ 0: open ")
    assert REASONS[is_directory] in left
    assert repairs.apply(tmp_path, plan, disk=disk) is None
    for recovering in (False, True):
        with pytest.raises(StorageFailed, match=rf"{number}\.journal: "):
            Writer(tmp_path, disk=disk, recovering=recovering)
    assert len(list(tmp_path.glob("*.journal"))) == 5


@pytest.mark.parametrize("is_directory", [True, False], ids=["a directory", "no access"])
def test_damage_that_depends_on_an_unreadable_file_is_left_and_other_damage_is_repaired(
    tmp_path: Path, is_directory: bool
) -> None:
    numbered(tmp_path)
    damage_file(tmp_path / "0.journal", overwrite, 20, b"\x80")
    damage_file(tmp_path / "3.journal", overwrite, 0, b"\x80")
    disk = stand_in(tmp_path, 2, is_directory)
    before = (tmp_path / "3.journal").read_bytes()
    plan = repairs.plan(tmp_path, disk=disk)
    assert [left.partition(":")[0] for left in plan.left] == ["2.journal @ 0", "3.journal @ 0"]
    assert plan.left[1].endswith("the file before it cannot be read")
    assert {step.file for step in plan.steps} == {"0.journal.repair", "0.journal"}
    repairs.apply(tmp_path, plan, disk=disk)
    assert (tmp_path / "3.journal").read_bytes() == before
    assert repairs.plan(tmp_path, disk=disk).steps == ()


def test_unreadable_last_file_of_a_generation_is_one_problem(tmp_path: Path) -> None:
    Writer(numbered(tmp_path), recovering=True).close()
    with Writer(tmp_path) as writer:
        writer.append(b"c")
    path = tmp_path / ".logwright/recovery/5/4.journal"
    path.unlink()
    path.mkdir()
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["unreadable"]
    plan = repairs.plan(tmp_path)
    assert (plan.steps, len(plan.left)) == ((), 1)


def test_missing_file_after_an_unreadable_one_is_left(tmp_path: Path) -> None:
    numbered(tmp_path)
    (tmp_path / "3.journal").unlink()
    plan = repairs.plan(tmp_path, disk=Guarded(tmp_path / "2.journal"))
    assert plan.steps == ()
    assert plan.left[1] == "4.journal @ 0: file 3 is missing before this one"
