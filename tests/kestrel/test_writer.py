"""Writing the journal of a queue: operations, files, dialects. The contract tests cover crashes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.errors import Closed, DamagedJournal, Locked, WrongUse
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.files import list_files
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.format import recover
from logwright.kestrel.model.packing import next_timestamp
from tests.kestrel.samples import (
    ADDED,
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    reserve_as,
    save_xid,
    state_dump,
    unremove,
    write,
)


def rotated(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if file.name.startswith(f"{path.name}."))


def test_each_call_appends_one_operation_and_returns_its_position(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cars"
    with Writer(path, dialect="kestrel2") as writer:
        assert writer.addx(b"A", added=ADDED) == 0
        assert writer.addx(bytearray(b"B"), ADDED + 5, ADDED) == 22
        assert writer.remove() == 44
        assert writer.remove_tentative() == 45
        assert writer.confirm_remove(1) == 46
        assert writer.unremove(2) == 51
        assert writer.save_xid(-3) == 56
        assert writer.add_xid(4, memoryview(b"C"), added=ADDED) == 61
        assert writer.remove_tentative_xid(5) == 87
        assert writer.continue_(5, b"D", added=ADDED) == 92
        assert writer.append(Operation("add", data=b"E")) == 118
    assert list(Reader(path)) == [
        addx(b"A"),
        addx(b"B", expires=ADDED + 5),
        REMOVE,
        RESERVE,
        confirm(1),
        unremove(2),
        save_xid(-3),
        add_xid(4, b"C"),
        reserve_as(5),
        continue_(5, b"D"),
        Operation("add", data=b"E"),
    ]


def test_item_is_added_now_by_default(tmp_path: Path) -> None:
    before = next_timestamp(0)
    with Writer(tmp_path / "cars") as writer:
        writer.addx(b"A")
    (operation,) = Reader(tmp_path / "cars")
    assert before <= (operation.added or 0) <= next_timestamp(0)


def test_values_that_the_format_cannot_hold_are_refused_unwritten(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer:
        calls: list[Callable[[], object]] = [
            lambda: writer.addx(b"", 0),
            lambda: writer.addx(b"", added=2**63),
            lambda: writer.confirm_remove(2**31),
            lambda: writer.append(Operation("remove", 5)),
            lambda: writer.append_encoded(b"\x02", 1),
            lambda: writer.append_encoded(b"\x01\x01", 1),
        ]
        for call in calls:
            with pytest.raises(WrongUse):
                call()
        with pytest.raises(TypeError):
            writer.addx(5)  # type: ignore[arg-type]
        assert writer.buffered_bytes == 0
    assert (tmp_path / "cars").read_bytes() == b""


@pytest.mark.parametrize("name", ["a.b", "a~b", "a+b+c", "+", "cars.904"])
def test_invalid_queue_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is not a valid queue name"):
        Writer(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_one_writer_per_queue(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer, Writer(tmp_path / "bikes"):
        with pytest.raises(Locked):
            Writer(tmp_path / "cars")
        writer.remove()
    with pytest.raises(Closed):
        writer.remove()
    Writer(tmp_path / "cars").close()


def test_forked_child_cannot_write(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer:
        writer._process = os.getpid() + 1  # as seen by a child
        with pytest.raises(WrongUse, match="belongs to another process"):
            writer.flush()
        writer._process = os.getpid()


def test_threads_append_to_one_journal(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars", sync="always") as writer:

        def add(name: int) -> None:
            for number in range(50):
                writer.addx(b"%d/%d" % (name, number))

        threads = [threading.Thread(target=add, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [operation.data for operation in Reader(tmp_path / "cars")]
    assert len(found) == 200
    for name in range(4):
        mine = [data for data in found if data is not None and data.startswith(b"%d/" % name)]
        assert mine == [b"%d/%d" % (name, number) for number in range(50)]


# --- opening --------------------------------------------------------------------------------------------------------


def test_opening_cuts_a_torn_tail_and_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), tail=b"\x02\x10\x00")
    recovery = recover(path)
    assert recovery.cut is not None
    assert (recovery.cut.start, recovery.cut.end, recovery.cut.kind) == (22, 25, "torn_tail")
    assert recovery.kept is not None
    assert recovery.kept.read_bytes() == b"\x02\x10\x00"
    assert recover(path).cut is None


def test_opening_removes_temporary_files_and_finishes_a_pack(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", addx(b"dead"))
    write(tmp_path / "cars.100", addx(b"dead as well"))
    write(tmp_path / "cars.100.pack", addx(b"A"))
    write(tmp_path / "cars.3000", addx(b"B"))
    write(tmp_path / "cars~~3001", addx(b"never"))
    write(tmp_path / "carsharing~~1", addx(b"of another queue"))
    path = write(tmp_path / "cars", addx(b"C"))
    before = Reader(path).state()
    Writer(path).close()
    assert Reader(path).state() == before
    assert [item.data for item in Reader(path).queue_state().items] == [b"A", b"B", b"C"]
    assert rotated(path) == ["cars.100", "cars.3000"]
    assert (tmp_path / "carsharing~~1").exists()
    assert not (tmp_path / "cars~~3001").exists()


def test_new_file_starts_after_a_state_dump(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), state_dump(1, 0))
    with Writer(path) as writer:
        writer.addx(b"B", added=ADDED)
    assert [item.data for item in Reader(path).queue_state().items] == [b"A", b"B"]
    assert len(rotated(path)) == 1


# --- dialects -------------------------------------------------------------------------------------------------------


def test_journal_continues_in_its_dialect(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), reserve_as(1))
    with Writer(path) as writer:
        writer.continue_(1, b"B", added=ADDED)
        with pytest.raises(WrongUse, match="state_dump is of the dialect documented"):
            writer.append(state_dump(1, 0))
    assert list(Reader(path)) == [addx(b"A"), reserve_as(1), continue_(1, b"B")]


def test_dialect_of_a_rotated_file_applies(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", addx(b"A"), state_dump(1, 0))
    with Writer(tmp_path / "cars") as writer, pytest.raises(WrongUse, match="is of the dialect kestrel2"):
        writer.remove_tentative_xid(1)


def test_journal_without_a_dialect_gets_that_of_the_first_write(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"))
    with Writer(path) as writer:
        writer.remove_tentative_xid(7)
        with pytest.raises(WrongUse):
            writer.append(state_dump(1, 0))
    assert Reader(path).queue_state().open[0].xid == 7
    with Writer(tmp_path / "bikes", dialect="documented") as writer, pytest.raises(WrongUse):
        writer.remove_tentative_xid(7)


def test_wrong_dialect_cuts_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), reserve_as(1), confirm(1))
    before = path.read_bytes()
    with pytest.raises(WrongUse, match="is in the dialect kestrel2, and not in documented"):
        Writer(path, dialect="documented")
    assert path.read_bytes() == before


# --- rotating and packing -------------------------------------------------------------------------------------------


def test_rotating_begins_another_file(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    with Writer(path) as writer:
        assert writer.rotate() == 0, "an empty file is not rotated"
        writer.addx(b"A", added=ADDED)
        first = writer.rotate()
        assert writer.addx(b"B", added=ADDED) == 0
        assert writer.file_bytes == 22
        assert writer.rotate() > first
    assert rotated(path) == [f"cars.{first}", f"cars.{writer.last_timestamp}"]
    assert list(Reader(path)) == [addx(b"A"), addx(b"B")]


def test_clock_moved_back_makes_no_smaller_name(tmp_path: Path) -> None:
    future = next_timestamp(0) + 10**9
    write(tmp_path / f"cars.{future}", addx(b"A"))
    with Writer(tmp_path / "cars") as writer:
        writer.addx(b"B", added=ADDED)
        assert writer.rotate() == future + 1
    assert list(Reader(tmp_path / "cars")) == [addx(b"A"), addx(b"B")]


def test_files_are_rotated_when_they_are_large(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars", max_file_bytes=60, sync="always") as writer:
        for _ in range(9):
            writer.addx(b"A", added=ADDED)
    assert len(rotated(tmp_path / "cars")) == 3
    assert (tmp_path / "cars").stat().st_size == 0


STATES = {
    "items": [addx(b"A"), addx(b"B", expires=ADDED + 9), REMOVE],
    "reserved items": [addx(b"A"), addx(b"B"), addx(b"C"), RESERVE, RESERVE],
    "ids that were used": [save_xid(41), addx(b"A"), RESERVE, confirm(42)],
    "ids that are named and not used yet": [save_xid(3), add_xid(9, b"A"), add_xid(8, b"B"), RESERVE],
    "an item that was put back": [add_xid(9, b"A"), RESERVE, unremove(9), addx(b"B")],
    "items of starling": [Operation("add", expires=5000, data=b"A"), Operation("add", data=b"B"), RESERVE],
    "nothing": [addx(b"A"), REMOVE],
    "ids of kestrel2": [addx(b"A"), addx(b"B"), addx(b"C"), reserve_as(9), reserve_as(4)],
    "the id 0": [addx(b"A"), addx(b"B"), reserve_as(0), continue_(7, b"C")],
}


@pytest.mark.parametrize("operations", STATES.values(), ids=STATES)
def test_rewritten_journal_replays_to_the_same_queue(operations: list[Operation], tmp_path: Path) -> None:
    path = write(tmp_path / "cars", *operations)
    before = Reader(path).state()
    dialect = Reader(path).verdict.settle()
    with Writer(path) as writer:
        writer.rewrite()
        assert Reader(path).state() == before
        writer.rewrite()
        writer.remove_tentative() if dialect == 0 else writer.remove()
    assert Reader(path).state(Reader(path).files()[-1].first_number) == before
    assert len(rotated(path)) == 1
    assert (tmp_path / "cars").stat().st_size == 1


def test_pack_begins_with_operations_that_rebuild_the_state(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), addx(b"B"), addx(b"C"), save_xid(5), RESERVE)
    with Writer(path) as writer:
        writer.rewrite()
    assert list(Reader(path)) == [save_xid(6), add_xid(6, b"A"), RESERVE, addx(b"B"), addx(b"C")]


def test_golden_packs_of_kestrel2_have_the_operations_of_the_original(tmp_path: Path) -> None:
    """Except for one more: the last used id, which the original forgets."""
    path = write(tmp_path / "cars", *(addx(name) for name in (b"A", b"B", b"D")), reserve_as(6), reserve_as(7))
    with Writer(path) as writer:
        writer.rewrite()
    expected = [addx(b"A"), reserve_as(6), addx(b"B"), reserve_as(7), save_xid(7), addx(b"D")]
    assert list(Reader(path)) == expected


def test_only_files_up_to_a_number_are_packed(tmp_path: Path) -> None:
    for number in (50, 100, 150):
        write(tmp_path / f"cars.{number}", addx(b"%d" % number), addx(b"x"), REMOVE)
    path = write(tmp_path / "cars", REMOVE)
    before = Reader(path).state()
    with Writer(path) as writer:
        assert not writer.pack(7)
        assert writer.pack(100)
    assert rotated(path) == ["cars.100", "cars.150"]
    assert Reader(path).state() == before


def test_damage_prevents_packing(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", addx(b"A"), tail=b"\x7f")
    path = write(tmp_path / "cars", addx(b"B"))
    with Writer(path) as writer, pytest.raises(DamagedJournal, match="there is no operation 127"):
        writer.pack()
    assert rotated(path) == ["cars.50"]
    assert list_files(writer._disk, tmp_path, "cars").temporary == []
