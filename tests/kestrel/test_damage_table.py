"""Damages as an operator makes them, each with the account that is due, and what verify, readers and writers say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files import repair
from logwright.kestrel.files.queues import QueuesReader
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model import packing
from logwright.kestrel.model.queue import Queue
from tests.kestrel.samples import ADDED, REMOVE, RESERVE, addx, confirm, continue_, encoded, reserve_as, unremove, write
from tests.support.damage import cut, damage_file, drop, flip_bit, insert, noise, overwrite

WHEN = "added 2011-03-13T07:06:40"


def item(number: int, size: int = 20) -> Operation:
    return addx(b"item %d " % number + b"." * (size - 6 - len(str(number))), added=ADDED + number)


def live(path: Path) -> tuple[list[bytes], list[bytes]]:
    """The beginnings of the items that wait, and of those that are reserved."""
    state = Reader(path).queue_state()
    return [one.data.rstrip(b". ") for one in state.items], [one.data.rstrip(b". ") for one in state.open]


# --- the table ------------------------------------------------------------------------------------------------------

ITEMS = [item(number) for number in range(10)]
HISTORY = [*ITEMS, REMOVE, REMOVE, reserve_as(1), confirm(1), reserve_as(2)]
"""Ten items of 41 bytes: 0 to 2 are finished, 3 is reserved, 4 to 9 wait. Then 13 bytes of other operations."""
WHOLE = encoded(HISTORY)
WAITING, RESERVED = [b"item %d" % number for number in range(4, 10)], [b"item 3"]

Table = dict[str, tuple[Callable[[bytes], bytes], str, list[tuple[str, int, int, int, int | None]]]]
DAMAGES: Table = {
    # name: damage, kind of the problem, losses (kind, position, bytes, at least, at most)
    "cut within an operation": (lambda data: cut(data, len(data) - 2), "torn_tail", []),
    "garbage at the end": (lambda data: data + noise(40, seed=1), "torn_tail", []),
    "zeros at the end": (lambda data: data + bytes(4096), "torn_tail", []),
    "opcode of a finished item": (lambda data: flip_bit(data, 8 * 41 + 7), "malformed", [("restored", 41, 1, 0, 0)]),
    "opcode and times of one": (
        lambda data: overwrite(overwrite(data, 41, b"\xff"), 46, b"\xff" * 16),
        "malformed",
        [("lost", 41, 41, 1, 1)],
    ),
    "size of a waiting item": (lambda data: flip_bit(data, 8 * 206 + 31), "malformed", [("restored", 206, 4, 0, 0)]),
    "a sector of zeros": (lambda data: overwrite(data, 82, bytes(100)), "malformed", [("lost", 82, 123, 0, None)]),
    "noise within": (lambda data: overwrite(data, 82, noise(100)), "malformed", [("lost", 82, 123, 0, None)]),
    "bytes pushed in": (lambda data: insert(data, 82, b"\xff" * 7), "malformed", [("lost", 82, 7, 0, None)]),
    "bytes taken out": (lambda data: drop(data, 85, 88), "malformed", [("lost", 82, 38, 0, None)]),
    "a removal": (lambda data: flip_bit(data, 8 * 410 + 7), "malformed", [("lost", 410, 7, 0, None)]),
    "all zeros": (lambda data: bytes(len(data)), "malformed", [("lost", 0, len(WHOLE), 0, None)]),
    "text": (lambda data: b"to do: nothing\n" * 20, "malformed", [("lost", 0, 300, 0, None)]),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_has_its_account(name: str, tmp_path: Path) -> None:
    damage, kind, losses = DAMAGES[name]
    path = tmp_path / "cars"
    path.write_bytes(damage(WHOLE))
    before = path.read_bytes()
    assert [problem.kind for problem in Reader(path).verify().problems] == [kind]
    if kind == "torn_tail":
        list(Reader(path))
    else:
        with pytest.raises(DamagedJournal):
            list(Reader(path))
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            Queue(tmp_path, "cars")
        assert path.read_bytes() == before
    plan = repair.plan(path)
    found = [(loss.kind, loss.position, loss.bytes, loss.at_least, loss.at_most) for loss in plan.losses]
    assert found == losses
    assert plan.left == ()
    repair.apply(path, plan)
    report = Reader(path).verify()
    assert (report.sound, len(report.losses)) == (True, len(losses))
    repair.undo(path)
    assert path.read_bytes() == before
    assert Reader(path).verify().losses == []


# --- queues are replayed by position ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [RESERVE, reserve_as(1)], ids=["documented", "kestrel2"])
def test_lost_finished_item_removes_no_live_one(reserve: Operation, tmp_path: Path) -> None:
    items = [item(number) for number in range(4)]
    bad = overwrite(overwrite(encoded(items), 41, b"\xff"), 46, b"\xff" * 16)
    path = tmp_path / "cars"
    path.write_bytes(bad + encoded([REMOVE, REMOVE, reserve]))
    (loss,) = repair.plan(path).losses
    assert loss.what.split("; ") == [
        "the item 'item 1 .............', which was finished",
        f"the item before it, 'item 0 .............' {WHEN}.000Z, may have damaged data",
    ]
    assert loss.fields["item"] == {"place": "cars@41", "added": None, "xid": None, "state": "finished"}
    repair.apply(path, repair.plan(path))
    assert live(path) == ([b"item 3"], [b"item 2"])


def test_lost_live_item_is_named_and_needs_no_placeholder(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(overwrite(overwrite(encoded([*ITEMS, REMOVE]), 82, b"\xff"), 95, b"\x01" * 8))
    (loss,) = repair.plan(path).losses
    assert loss.what.startswith("the item 'item 2 .............', which was waiting")
    assert (loss.fields["placeholders"], loss.at_least, loss.at_most) == (0, 1, 1)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"item 1", *(b"item %d" % number for number in range(3, 10))]


def test_512_zeros_are_no_item_and_their_possible_content_is_in_the_account(tmp_path: Path) -> None:
    items = [item(number, 30) for number in range(30)]
    path = tmp_path / "cars"
    path.write_bytes(overwrite(encoded([*items, *[REMOVE] * 20]), 200, bytes(512)))
    (loss,) = repair.plan(path).losses
    assert (loss.kind, loss.at_least, loss.at_most) == ("lost", 0, None)
    assert "up to 24 items, or the removal of up to 510 items" in loss.what
    assert loss.fields["suspect"] == "cars@153"
    repair.apply(path, repair.plan(path))
    waiting = live(path)[0]
    assert waiting[-10:] == [b"item %d" % number for number in range(20, 30)], "no live item is gone"
    assert len(waiting) == len(loss.fields["again"]), "and those that reappear are named"
    assert all(one.startswith(b"item ") for one in waiting)


@pytest.mark.parametrize("data", [b"item", bytes(100)], ids=["text", "binary"])
def test_an_account_names_at_most_twenty_items_and_how_many_more(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cars"
    items = [addx(b"%d %b" % (number, data) if number < 20 else data) for number in range(200)]
    path.write_bytes(overwrite(encoded([*items, *[REMOVE] * 60, item(200)]), 200, bytes(512)))
    (loss,) = repair.plan(path).losses
    assert len(loss.what) < 1200
    first = (
        "'item', 'item'" if data == b"item" else f"100 bytes at cars@{loss.fields['again'][0].split('@')[1]}, 100 bytes"
    )
    assert f"these may be finished already: {first}" in loss.what
    assert f" and {len(loss.fields['again']) - 10} more; " in loss.what
    assert loss.what.endswith(f" and {loss.fields['finished'] - 10} more")


def test_removals_after_a_bad_one_stay_and_reappearing_items_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    whole = encoded([*(item(number) for number in range(200)), *[REMOVE] * 200])
    path.write_bytes(flip_bit(whole, 8 * (len(whole) - 101) + 6))
    (loss,) = repair.plan(path).losses
    assert (loss.position, loss.bytes) == (len(whole) - 103, 5)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"item %d" % number for number in range(195, 200)]
    assert "of 5 live items these may be finished already: 'item 195 .......'…, 'item 196 .......'…" in loss.what
    assert loss.fields["again"] == [f"cars@{41 * number}" for number in range(195, 200)]


LAST_REMOVALS = {
    "one removal after one bad byte": (b"\xff\x01", "malformed"),
    "one reservation after one bad byte": (b"\xff\x03", "malformed"),
    "two removals after two bad bytes": (b"\xff\xfe\x01\x01", "malformed"),
    "one removal after two bad bytes": (b"\xff\xfe\x01", "torn_tail"),
    "a bad byte": (b"\xff", "torn_tail"),
    "a confirmation that is cut short": (b"\x06\x01", "torn_tail"),
}


@pytest.mark.parametrize("name", LAST_REMOVALS)
def test_bytes_after_damage_decide_whether_a_tail_is_torn(name: str, tmp_path: Path) -> None:
    end, kind = LAST_REMOVALS[name]
    path = tmp_path / "cars"
    path.write_bytes(encoded(ITEMS) + end)
    (problem,) = Reader(path).verify().problems
    assert (problem.kind, problem.position) == (kind, 410)
    assert [loss.bytes for loss in repair.plan(path).losses] == ([len(end)] if kind == "malformed" else [])
    repair.apply(path, repair.plan(path))
    assert path.read_bytes() == encoded(ITEMS), "an item is rather delivered twice than lost to a made-up removal"


def test_item_whose_first_byte_was_swallowed_is_not_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    whole = encoded([item(0), item(1), reserve_as(1), confirm(1), item(2), REMOVE])
    path.write_bytes(drop(whole, 89, 90))
    assert [problem.kind for problem in Reader(path).verify().problems] == ["malformed"]
    (loss,) = repair.plan(path).losses
    assert (loss.position, loss.bytes, loss.at_most) == (82, 9, None)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"item 1", b"item 2"]


SWALLOWED = {
    "by an id": (drop(encoded([item(0), reserve_as(8), reserve_as(9), continue_(9, b"last")]), 46, 47), [b"last"]),
    "by an item": (drop(encoded([item(0), addx(bytes(7)), REMOVE, reserve_as(5), item(1)]), 45, 61), [b"item 1"]),
}


@pytest.mark.parametrize("name", SWALLOWED)
def test_item_that_begins_before_made_up_operations_is_not_a_torn_tail(tmp_path: Path, name: str) -> None:
    content, last = SWALLOWED[name]
    path = tmp_path / "cars"
    path.write_bytes(content)
    assert [problem.kind for problem in Reader(path).verify().problems] == ["malformed"]
    repair.apply(path, repair.plan(path))
    assert Reader(path).verify().sound
    assert live(path)[0][-1:] == last


@pytest.mark.parametrize("missing", [1, 4, 5, 9, 20, 40])
def test_item_swallowed_by_a_shortened_one_is_not_a_torn_tail(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "cars"
    whole = encoded([item(0), item(1), item(2)])
    size = len(encoded([item(0)]))
    content = drop(whole, 2 * size - missing, 2 * size)
    path.write_bytes(content)
    assert [problem.kind for problem in Reader(path).verify().problems] == ["malformed"]
    with pytest.raises(DamagedJournal):
        Queue(tmp_path, "cars")
    assert path.read_bytes() == content
    repair.apply(path, repair.plan(path))
    with Queue(tmp_path, "cars") as queue:
        assert [found.data for found in (item(0), item(2))] == [queue.get(), queue.get()]


def test_file_of_zeros_is_refused_and_its_account_names_a_possible_crash(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(bytes(4096))
    with pytest.raises(DamagedJournal, match="it begins with zeros, so it was overwritten, or a crash came before it"):
        Queue(tmp_path, "cars")
    (loss,) = repair.plan(path).losses
    assert loss.what.split("; ") == [
        "operations in 4096 bytes that cannot be read: up to 195 items, or the removal of up to 4096 items",
        "all of it is zeros: if the file was never synced, as before a crash, nothing durable is lost",
    ]
    path.write_bytes(bytes(4095) + b"\xff")
    (loss,) = repair.plan(path).losses
    assert "zeros" not in loss.what


def test_a_placeholder_is_never_delivered(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    bad = overwrite(overwrite(encoded([item(0), item(1)]), 0, b"\xff"), 5, b"\xff" * 16)
    path.write_bytes(bad + encoded([reserve_as(1)]))
    (loss,) = repair.plan(path).losses
    assert (loss.fields["item"]["state"], loss.fields["placeholders"]) == ("reserved", 1)
    repair.apply(path, repair.plan(path))
    with Queue(tmp_path, "cars") as queue:
        assert [queue.get(), queue.get()] == [item(1).data, None]


def test_placeholder_that_was_put_back_is_needed_too(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    with Writer(path) as writer:
        for number in range(2):
            writer.append(item(number))
        writer.rotate()
        for operation in (item(2), REMOVE, reserve_as(1), item(3), unremove(1)):
            writer.append(operation)
    (rotated,) = tmp_path.glob("cars.*")
    damage_file(rotated, cut, 41)
    (loss,) = repair.plan(path).losses
    assert (loss.fields["placeholders"], loss.fields["live"]) == (1, 2)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"", b"item 2", b"item 3"]
    with Queue(tmp_path, "cars") as queue:
        assert queue.get_many(9) == [item(2).data, item(3).data]


def test_dialect_of_what_is_left_is_that_of_the_repair(tmp_path: Path) -> None:
    items = [addx(b"." * 60), addx(b"b"), addx(b"." * 10), addx(bytes(7))]
    rest = [reserve_as(1), REMOVE, reserve_as(2), reserve_as(3), continue_(3, b""), REMOVE]
    path = tmp_path / "cars"
    path.write_bytes(drop(encoded([*items, *rest]), 29, 129))
    repair.apply(path, repair.plan(path))
    assert Reader(path).verify().sound
    assert repair.plan(path).empty


def test_items_after_deleted_bytes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    path.write_bytes(drop(WHOLE, 150, 153))
    repair.apply(path, repair.plan(path))
    kept = [one.data for one in Reader(path).operations() if isinstance(one, Operation) and one.data]
    assert kept[-5:] == [one.data for one in ITEMS[-5:]]


def test_a_damaged_rotated_file_keeps_the_newest_aligned(tmp_path: Path) -> None:
    bad = overwrite(overwrite(encoded([item(0), item(1)]), 0, b"\xff"), 5, b"\xff" * 16)
    (tmp_path / "cars.900").write_bytes(bad)
    path = write(tmp_path / "cars", item(2), REMOVE, REMOVE)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"item 2"]


# --- files that are missing, or have another size ---------------------------------------------------------------------


def three_files(directory: Path) -> Path:
    path = directory / "cars"
    with Writer(path) as writer:
        for number in range(3):
            writer.append(item(number))
            writer.rotate()
        writer.append(item(3))
        writer.remove()
    return path


def test_a_missing_rotated_file_is_a_problem_until_its_loss_is_accepted(tmp_path: Path) -> None:
    path = three_files(tmp_path)
    assert Reader(path).verify().sound
    gone = sorted(tmp_path.glob("cars.*"))[1]
    gone.unlink()
    report = Reader(path).verify()
    assert [(problem.file, problem.kind) for problem in report.problems] == [(gone.name, "missing_file")]
    for opener in (Writer, lambda path: Queue(path.parent, path.name)):
        with pytest.raises(DamagedJournal, match=r"this file is missing, which had 41 bytes; nothing was changed"):
            opener(path)
    plan = repair.plan(path)
    assert [(loss.file, loss.bytes, loss.at_least, loss.at_most) for loss in plan.losses] == [(gone.name, 41, 1, 41)]
    repair.apply(path, plan)
    report = Reader(path).verify()
    assert (report.sound, len(report.losses)) == (True, 1)
    Queue(tmp_path, "cars").close()
    assert Reader(path).verify().sound


def test_damaged_file_does_not_hide_that_those_before_it_are_missing(tmp_path: Path) -> None:
    path = three_files(tmp_path)
    first, second, _ = sorted(tmp_path.glob("cars.*"))
    first.unlink()
    damage_file(second, cut, 30)
    problems = [(problem.file, problem.kind) for problem in Reader(path).verify().problems]
    assert sorted(problems) == [
        (first.name, "missing_file"), (second.name, "malformed"), (second.name, "truncated")
    ]  # fmt: skip
    plan = repair.plan(path)
    assert {(loss.file, loss.bytes) for loss in plan.losses} == {(first.name, 41), (second.name, 30)}
    repair.apply(path, plan)
    assert Reader(path).verify().sound
    assert repair.plan(path).empty
    Queue(tmp_path, "cars").close()


def test_files_that_were_packed_are_not_missing(tmp_path: Path) -> None:
    path = three_files(tmp_path)
    with Writer(path) as writer:
        writer.pack()
    assert Reader(path).verify().sound
    with Queue(tmp_path, "cars") as queue:
        queue.delete()
    write(path, item(1))
    assert Reader(path).verify().sound


def test_files_that_another_program_has_packed_are_not_missing(tmp_path: Path) -> None:
    path = three_files(tmp_path)
    first, second, third = sorted(tmp_path.glob("cars.*"))
    third.write_bytes(encoded([item(number) for number in range(3)]))
    first.unlink()
    second.unlink()
    assert Reader(path).verify().sound


def accept_loss(path: Path) -> list[tuple[str, int, int, int, int | None]]:
    """Repair a queue that `verify` and writers object to, and check what is left; the account."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    for opener in (Writer, lambda path: Queue(path.parent, path.name)):
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            opener(path)
    plan = repair.plan(path)
    repair.apply(path, plan)
    report = Reader(path).verify()
    assert (report.problems, len(report.losses)) == ([], len(plan.losses))
    assert repair.plan(path).empty
    assert repair.plan(path).losses == ()
    repair.undo(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before
    assert repair.plan(path) == plan
    repair.apply(path, plan)
    Queue(path.parent, path.name).close()
    assert Reader(path).verify().sound
    return [(loss.file, loss.position, loss.bytes, loss.at_least, loss.at_most) for loss in plan.losses]


def two_in_a_file(directory: Path) -> tuple[Path, list[Path]]:
    """Three rotated files of two items each, 82 bytes; the newest file removes the first two items and one more."""
    path = directory / "cars"
    with Writer(path) as writer:
        for number in range(6):
            writer.append(item(number))
            if number % 2:
                writer.rotate()
        for _ in range(3):
            writer.remove()
    return path, sorted(directory.glob("cars.*"))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_rotated_file_cut_between_two_operations_is_damage(tmp_path: Path, number: int) -> None:
    path, rotated = two_in_a_file(tmp_path)
    damage_file(rotated[number], cut, 41)
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.position, problem.kind) == (rotated[number].name, 41, "truncated")
    assert problem.message == (
        "41 bytes of it are missing: when it was rotated it had 82; at least 1 and at most 41 operations are lost: "
        "put it back as it was, or accept the loss by a repair"
    )
    assert accept_loss(path) == [(rotated[number].name, 41, 0, 1, 41)]


def test_items_after_a_cut_file_are_not_removed_in_the_place_of_lost_ones(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    damage_file(rotated[0], cut, 41)
    repair.apply(path, repair.plan(path))
    assert live(path)[0] == [b"item %d" % number for number in range(3, 6)]
    (loss,) = Reader(path).losses()
    assert loss.fields["placeholders"] == 1
    assert loss.fields["live"] == 3
    assert loss.fields["gone"] == [f"{rotated[1].name}@0", f"{rotated[0].name}@0"]


def test_rotated_file_cut_within_an_operation_lost_the_bytes_after_it_too(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    damage_file(rotated[1], cut, 60)
    report = Reader(path).verify()
    assert [(problem.position, problem.kind) for problem in report.problems] == [(41, "malformed"), (60, "truncated")]
    assert accept_loss(path) == [(rotated[1].name, 41, 19, 1, 41)]


def test_note_is_trusted_for_other_files_when_one_is_cut(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    damage_file(rotated[2], cut, 0)
    rotated[0].unlink()
    report = Reader(path).verify()
    kinds = {problem.file: problem.kind for problem in report.problems}
    assert kinds == {rotated[0].name: "missing_file", rotated[2].name: "truncated"}
    assert accept_loss(path) == [(rotated[2].name, 0, 0, 1, 82), (rotated[0].name, 0, 82, 1, 82)]


def several_sizes(directory: Path) -> tuple[Path, list[Path]]:
    """Four rotated files of one to four items, of 41 to 164 bytes; the newest file removes the first three items."""
    path = directory / "cars"
    with Writer(path) as writer:
        for number in range(10):
            writer.append(item(number))
            if number in (0, 2, 5, 9):
                writer.rotate()
        for _ in range(3):
            writer.remove()
    return path, sorted(directory.glob("cars.*"))


def give_contents(files: list[Path], order: list[int]) -> None:
    """Each file gets the contents of another one, by its number."""
    contents = [file.read_bytes() for file in files]
    for file, number in zip(files, order, strict=True):
        file.write_bytes(contents[number])


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 3, 2, 1], [3, 2, 1, 0], [1, 2, 0, 3]])
def test_exchanged_rotated_files_get_their_names_again(tmp_path: Path, order: list[int]) -> None:
    path, rotated = several_sizes(tmp_path)
    whole = {file.name: file.read_bytes() for file in rotated}
    give_contents(rotated, order)
    moved = [number for number, other in enumerate(order) if number != other]
    assert [(one.file, one.position, one.kind, one.message) for one in Reader(path).verify().problems] == [
        (
            rotated[number].name,
            41 * (order[number] + 1),
            "changed_file",
            f"it has the {41 * (order[number] + 1)} bytes of {rotated[order[number]].name}, where it had "
            f"{41 * (number + 1)}: the names were exchanged; no operation is lost: a repair gives each its own name",
        )
        for number in moved
    ]
    names = [rotated[number].name for number in moved]
    (loss,) = repair.plan(path).losses
    assert (loss.kind, loss.part) == ("restored", "cars")
    assert loss.what == f"the names of {', '.join(names[:-1])} and {names[-1]}, which were exchanged"
    size = sum(41 * (number + 1) for number in moved)
    assert accept_loss(path) == [(names[0], 0, size, 0, 0)]
    assert {file.name: file.read_bytes() for file in rotated} == whole
    assert live(path)[0] == [b"item %d" % number for number in range(3, 10)]


def test_exchanged_file_is_repaired_with_its_own_name(tmp_path: Path) -> None:
    path, rotated = several_sizes(tmp_path)
    damage_file(rotated[2], lambda data: overwrite(overwrite(data, 0, b"\xff"), 5, b"\xff" * 16))
    give_contents(rotated, [2, 1, 0, 3])
    assert sorted(accept_loss(path)) == [(rotated[0].name, 0, 164, 0, 0), (rotated[2].name, 0, 41, 1, 1)]
    assert live(path)[0] == [b"item %d" % number for number in range(4, 10)]
    assert [file.stat().st_size for file in rotated] == [41, 82, 82, 164]


def test_sizes_that_no_exchange_explains_are_losses(tmp_path: Path) -> None:
    path, rotated = several_sizes(tmp_path)
    damage_file(rotated[1], cut, 41)
    damage_file(rotated[2], cut, 82)
    kinds = {problem.file: problem.kind for problem in Reader(path).verify().problems}
    assert kinds == {rotated[1].name: "truncated", rotated[2].name: "truncated"}
    assert accept_loss(path) == [(rotated[1].name, 41, 0, 1, 41), (rotated[2].name, 82, 0, 1, 41)]


def test_newest_file_that_may_have_changed_places_is_left(tmp_path: Path) -> None:
    path, rotated = several_sizes(tmp_path)
    give_contents([rotated[1], path], [1, 0])
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.position, problem.kind) == (rotated[1].name, 3, "truncated")
    assert problem.message == (
        "79 bytes of it are missing: when it was rotated it had 82, which cars has now: their names may have been "
        "exchanged; put each in its place, or remove .logwright/cars.rotated to take them as they are"
    )
    with pytest.raises(DamagedJournal, match="their names may have been exchanged; nothing was changed"):
        Queue(tmp_path, "cars")
    plan = repair.plan(path)
    assert (plan.left, plan.empty) == ((f"{rotated[1].name} @ 0: {problem.message}",), True)
    give_contents([rotated[1], path], [1, 0])
    assert Reader(path).verify().sound
    give_contents([rotated[1], path], [1, 0])
    (tmp_path / ".logwright" / "cars.rotated").unlink()
    assert Reader(path).verify().sound
    Queue(tmp_path, "cars").close()


def test_equal_sizes_do_not_show_which_files_were_exchanged(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    with Writer(path) as writer:
        writer.rotate()
        writer.append(item(6))
        writer.remove()
        writer.rotate()
        writer.append(item(7))
    rotated = sorted(tmp_path.glob("cars.*"))
    assert [file.stat().st_size for file in rotated] == [82, 82, 82, 3, 42]
    give_contents(rotated, [3, 4, 2, 0, 1])
    kinds = [problem.kind for problem in Reader(path).verify().problems]
    assert kinds == ["truncated", "truncated", "changed_file", "changed_file"]
    assert {loss.kind for loss in repair.plan(path).losses} == {"lost"}


def test_missing_newest_file_is_damage_if_the_last_rotated_one_is_noted(tmp_path: Path) -> None:
    path, _ = two_in_a_file(tmp_path)
    path.unlink()
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == ("cars", "missing_file")
    assert accept_loss(path) == [("cars", 0, 0, 0, None)]
    assert path.read_bytes() == b""


def test_file_that_a_crash_left_without_a_note_is_noted_by_the_next_writer(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    path.rename(tmp_path / "cars.9999999999999")
    assert Reader(path).verify().sound
    Writer(path).close()
    damage_file(tmp_path / "cars.9999999999999", cut, 1)
    damage_file(rotated[0], cut, 41)
    assert {problem.kind for problem in Reader(path).verify().problems} == {"truncated"}
    assert len(accept_loss(path)) == 2


@pytest.mark.parametrize("size", [0, 41])
def test_pack_of_ours_that_is_cut_does_not_replace_the_files_that_are_there(tmp_path: Path, size: int) -> None:
    path, rotated = two_in_a_file(tmp_path)
    assert packing.write_pack(REAL_DISK, Reader(path), 2**60) is not None
    pack = rotated[2].with_name(rotated[2].name + ".pack")
    damage_file(pack, cut, 5 + size)
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == (pack.name, "changed_pack")
    assert accept_loss(path) == []
    assert live(path)[0] == [b"item %d" % number for number in range(3, 6)]
    assert not pack.exists()


@pytest.mark.parametrize("dead", [0, 2])
def test_damaged_pack_of_ours_is_removed_and_the_files_that_count_again_are_repaired(tmp_path: Path, dead: int) -> None:
    path, rotated = two_in_a_file(tmp_path)
    assert packing.write_pack(REAL_DISK, Reader(path), 2**60) is not None
    pack = rotated[2].with_name(rotated[2].name + ".pack")
    damage_file(pack, overwrite, 30, b"\xff" * 30)
    if dead:
        damage_file(rotated[2], cut, 60)
    assert accept_loss(path) == ([(rotated[2].name, 41, 19, 1, 41)] if dead else [])
    assert live(path)[0] == [b"item %d" % number for number in range(3, 5 if dead else 6)]
    assert not pack.exists()


@pytest.mark.parametrize("is_ours", [True, False])
def test_size_of_a_file_that_a_whole_pack_replaces_does_not_matter(tmp_path: Path, is_ours: bool) -> None:
    path, rotated = two_in_a_file(tmp_path)
    assert packing.write_pack(REAL_DISK, Reader(path), 2**60) is not None
    if not is_ours:
        (tmp_path / ".logwright" / "cars.packed").unlink()
    damage_file(rotated[1], cut, 41)
    assert Reader(path).verify().sound
    Queue(tmp_path, "cars").close()
    assert live(path)[0] == [b"item %d" % number for number in range(3, 6)]
    assert Reader(path).verify().sound


def test_readers_report_files_that_the_note_contradicts(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    damage_file(rotated[1], cut, 41)
    with pytest.raises(DamagedJournal, match=rf"{rotated[1].name} @ 41: 41 bytes of it are missing"):
        list(Reader(path))
    items = list(Reader(path).operations(mode="permissive"))
    assert isinstance(items[0], Damage)
    assert (items[0].file, items[0].kind) == (rotated[1].name, "truncated")
    assert len(items) == 1 + 5 + 3
    assert [one.op for one in Reader(rotated[1])] == ["addx"]


def test_queue_whose_files_are_all_missing_is_not_forgotten(tmp_path: Path) -> None:
    path, rotated = two_in_a_file(tmp_path)
    for file in (path, *rotated):
        file.unlink()
    report = QueuesReader(tmp_path).verify()
    assert [problem.file for problem in report.problems] == [*(file.name for file in rotated), "cars"]
    assert accept_loss(path) == [*((file.name, 0, 82, 1, 82) for file in rotated), ("cars", 0, 0, 0, None)]
