"""One transaction, operation by operation: the same in pieces of any size, and only the needed bytes are read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.files import files, operations
from logwright.yeltsin.files.operations import find_end, read_operations
from tests.support.counting_disk import CountingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.databases import HOME, Story
from tests.yeltsin.samples import transaction, write
from tests.yeltsin.tables import page_at

IMAGE = bytes(range(251)) * 262
OPERATIONS: list[Operation] = [
    Modify(30, 0, b"", b""),
    Modify(30, 5, b"old", b"new"),
    Allocate(65566, 0, 0),
    Modify(65566, 1, bytes(PAGE_DATA_BYTES - 1), IMAGE[1:PAGE_DATA_BYTES]),
    *(Modify(30, at, b"c", b"d") for at in range(400)),
    Remove(65566, 0),
]


@pytest.mark.parametrize("piece_bytes", [17, 100, 4096, 1 << 20])
def test_operations_are_the_same_in_pieces_of_any_size(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(operations, "_LEAST_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(operations, "_PIECE_BYTES", max(piece_bytes, 300))
    path = write(tmp_path / "t.jrnl", transaction(), transaction(*OPERATIONS, data=b"carried"))
    data = path.read_bytes()
    at = int.from_bytes(data[12:20], "little")
    file = REAL_DISK.open(path, "read")
    try:
        parts = list(read_operations(file, at, len(data)))
        end = find_end(file, at, len(data))
        cut = [len(list(read_operations(file, at, size))) for size in (at + 26, at + 60, len(data) - 1)]
    finally:
        file.close()
    assert [part.kind for part in parts] == [operation.number for operation in OPERATIONS] + [0xFF]
    assert all(part.data == data[part.position + 5 : part.position + part.size] for part in parts[:-1])
    assert end is not None
    assert (end.position, end.end) == (len(data) - 12, len(data))
    assert cut == [0, 1, len(OPERATIONS)]


def test_pending_small_transactions_take_a_few_kilobytes_each() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    count = 100
    story = Story("many", [[f"modify 0 {at} 8"] for at in range(count)], 1 << 30)
    database = story.opened(disk, "interval(3600000)")
    for at in range(count):
        with database.transaction() as changes:
            changes.modify(page_at(0), at, b"12345678")
    killed = CountingDisk(".jrnl", inner=disk.copy())
    database.close()
    with story.opened(killed) as recovered:
        assert len(recovered.redone) == count
        assert recovered.read(page_at(0), 0, count) == b"1" * count
    assert killed.bytes_read < 1 << 20


@pytest.mark.parametrize("few_reads", [0, 20])
def test_nearby_bytes_equal_the_file(few_reads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "_PIECE_BYTES", 64)
    monkeypatch.setattr(files, "_FEW_READS", few_reads)
    chance = random.Random(5)
    data = chance.randbytes(1000)
    (tmp_path / "file").write_bytes(data)
    file = REAL_DISK.open(tmp_path / "file", "read")
    try:
        found = files.Nearby(file)
        for _ in range(500):
            at, size = chance.randrange(1100), chance.choice((0, 1, 8, 63, 64, 65, 129))
            assert found.read_at(at, size) == data[at : at + size]
    finally:
        file.close()


def test_nearby_ranges_are_read_by_few_calls(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    disk = CountingDisk()
    file = disk.open(tmp_path / "file", "read")
    try:
        found = files.Nearby(file)
        for at in (*range(0, 1 << 20, 100), *range((1 << 20) - 100, 0, -100)):
            found.read_at(at, 25)
        assert 2 << 20 <= disk.bytes_read < 5 << 20  # each piece once or twice in either direction
    finally:
        file.close()
