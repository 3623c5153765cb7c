"""The contents of a pack: its operations, replayed, result in the packed state and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logwright.errors import Closed
from logwright.kestrel.bytes import codec
from logwright.kestrel.bytes.layout import DOCUMENTED, KESTREL2
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files import files
from logwright.kestrel.files.files import Listing, Lost, list_files, lost_files
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.survey import Survey
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model import packing
from logwright.kestrel.model.packing import Packed, plain, state_operations, write_pack, write_temporary
from tests.kestrel.samples import addx
from tests.support.simulated_disk import SimulatedDisk, Write
from tests.support.trees import read_file, write_file

PATH = Path("/journal/cars")
DIALECTS = pytest.mark.parametrize(("dialect", "name"), [(DOCUMENTED, "documented"), (KESTREL2, "kestrel2")])
Reserved = list[tuple[int, bytes, int]]
Front = list[tuple[bytes, int]]


def written(xid: int, reserved: Reserved, front: Front, dialect: int) -> bytes:
    return b"".join(
        state_operations(
            xid,
            [(name, addx(data, expires=9), attempts) for name, data, attempts in reserved],
            [(addx(data, expires=9), attempts) for data, attempts in front],
            dialect,
        )
    )


def replayed(disk: SimulatedDisk, data: bytes, dialect: Any) -> tuple[int, Reserved, Front]:
    write_file(disk, PATH, data)
    reader = Reader(PATH, dialect=dialect, disk=disk)
    with reader.snapshot() as files:
        survey = Survey(reader, files)
        tally = survey.replay
        items = survey.load(range(tally.added))
        assert {item.expires for item in items.values()} <= {9}
        assert tally.first == tally.added, "nothing else waits"
        reserved = [(xid, items[item].data or b"", attempts) for xid, item, attempts in sorted(tally.open())]
        return tally.xid, reserved, [(items[item].data or b"", attempts) for item, attempts in tally.front()]


@DIALECTS
@pytest.mark.parametrize("xid", [0, 1, 7, 2**31 - 1])
@pytest.mark.parametrize(
    ("reserved", "front"),
    [
        ([], []),
        ([(3, b"a", 0)], []),
        ([(3, b"a", 1), (5, b"b", 0), (6, b"c", 4)], []),
        ([], [(b"a", 1)]),
        ([], [(b"a", 2), (b"b", 1), (b"c", 5)]),
        ([(1, b"a", 0), (2, b"b", 2), (4, b"c", 1)], [(b"d", 1), (b"e", 3), (b"f", 1)]),
    ],
)
def test_packed_state_keeps_ids_and_attempts(
    simulated_disk: SimulatedDisk, dialect: int, name: str, xid: int, reserved: Reserved, front: Front
) -> None:
    data = written(xid, reserved, front, dialect)
    assert bool(data) == bool(xid or reserved or front)
    if data:
        assert replayed(simulated_disk, data, name) == (xid, reserved, front)


@pytest.mark.parametrize(
    ("dialect", "reserved", "front", "operations"),
    [
        (DOCUMENTED, [(3, b"a", 0)], [], "save_xid add_xid remove_tentative"),
        (DOCUMENTED, [], [(b"a", 1)], "save_xid add_xid remove_tentative unremove"),
        (DOCUMENTED, [], [], "save_xid"),
        (KESTREL2, [(3, b"a", 0)], [], "addx remove_tentative_xid save_xid"),
        (KESTREL2, [], [], "save_xid"),
    ],
)
def test_last_id_is_written_once_if_no_later_operation_changes_it(
    dialect: int, reserved: Reserved, front: Front, operations: str
) -> None:
    data, position, found = written(7, reserved, front, dialect), 0, []
    while position < len(data):
        decoded = codec.decode(data, position, dialect=dialect)
        assert isinstance(decoded, tuple)
        found.append(decoded[0].op)
        position = decoded[1].end
    assert found == operations.split()


@DIALECTS
def test_remembered_attempts_are_limited(
    simulated_disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, dialect: int, name: str
) -> None:
    monkeypatch.setattr(packing, "MOST_ATTEMPTS", 3)
    reserved, front = [(7, b"a", 2), (8, b"b", 3), (9, b"c", 4)], [(b"d", 4), (b"e", 5)]
    found = replayed(simulated_disk, written(9, reserved, front, dialect), name)
    assert found == (9, [(7, b"a", 2), (8, b"b", 3), (9, b"c", 3)], [(b"d", 4), (b"e", 4)])


def test_items_without_a_time_keep_none_and_others_lose_their_id() -> None:
    old = Operation("add", expires=5, data=b"a")
    assert plain(old) is old
    named = Operation("add_xid", 4, added=3, expires=5, data=b"a")
    assert plain(named) == Operation("addx", added=3, expires=5, data=b"a")


def test_near_returns_the_last_piece_that_begins_before_an_item() -> None:
    packed = Packed(1)
    for size, items in ((100, 10), (50, 5), (70, 7)):
        packed.begin_piece()
        packed.size_bytes += size
        packed.run_items += items
    assert [packed.near(item) for item in (0, 9, 10, 14, 15, 99)] == [
        (0, 0),
        (0, 0),
        (10, 100),
        (10, 100),
        *[(15, 150)] * 2,
    ]


# --- writing it -------------------------------------------------------------------------------------------------------


def test_small_pieces_are_written_together(simulated_disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PIECE_BYTES", 4)
    write_temporary(simulated_disk, PATH, [b"ab", b"c", b"d", b"efg", b"hijk", b"l"])
    writes = [operation.data for operation in simulated_disk.operations if isinstance(operation, Write)]
    assert writes == [b"abcd", b"efghijk", b"l"]
    assert read_file(simulated_disk, PATH) == b"abcdefghijkl"


def test_leftover_temporary_file_is_replaced(simulated_disk: SimulatedDisk) -> None:
    write_file(simulated_disk, PATH, b"a longer one")
    write_temporary(simulated_disk, PATH, [b"new"])
    assert read_file(simulated_disk, PATH) == b"new"


def test_stopped_pack_changes_nothing(simulated_disk: SimulatedDisk) -> None:
    def stop_once_begun() -> None:
        if len(simulated_disk.list_directory(PATH.parent)) > 1:  # it is being written
            raise Closed("enough")

    write_file(simulated_disk, PATH.with_name("cars.50"), codec.encode(addx(b"a")))
    with pytest.raises(Closed):
        write_pack(simulated_disk, Reader(PATH, disk=simulated_disk), 50, go_on=stop_once_begun)
    assert simulated_disk.list_directory(PATH.parent) == ["cars.50"]


def packed_again(disk: SimulatedDisk, *items: bytes) -> None:
    """Add items, rotate and pack."""
    with Writer(PATH, dialect="kestrel2", disk=disk) as writer:
        for data in items:
            writer.append(addx(data))
        upto = writer.rotate()
    assert packing.pack(disk, Reader(PATH, dialect="kestrel2", disk=disk), upto)


def missing(disk: SimulatedDisk) -> list[Lost]:
    return lost_files(disk, PATH.parent, PATH.name)


def test_two_crashes_of_two_packs_leave_no_file_missing(simulated_disk: SimulatedDisk) -> None:
    with Writer(PATH, dialect="kestrel2", disk=simulated_disk) as writer:
        writer.append(addx(b"a"))
        writer.remove()
        writer.rotate()
    start = len(simulated_disk.operations)
    packed_again(
        simulated_disk, b"b"
    )  # as large as the file that it replaces: the size does not show that it is a pack
    for once in simulated_disk.crash_states(first=start, fills=(), format="kestrel"):
        assert not missing(once)
        packed_again(once, b"c")
        for twice in once.crash_states(fills=(), format="kestrel"):
            assert not missing(twice)


@pytest.mark.parametrize("change", ["rotate", "rewrite"])
def test_file_that_changes_while_the_files_are_listed_is_not_lost(
    simulated_disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with Writer(PATH, dialect="kestrel2", disk=simulated_disk) as writer:
        for _ in range(2):
            writer.append(addx(b"a"))
            writer.rotate()
        writer.append(addx(b"b"))
        changes = iter([getattr(writer, change), writer.pack])

        def list_and_change(*arguments: Any) -> Listing:
            listing = list_files(*arguments)
            next(changes, lambda: None)()
            return listing

        monkeypatch.setattr(files, "list_files", list_and_change)
        assert not missing(simulated_disk)
        assert list(changes) == []
