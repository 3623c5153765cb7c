"""Bytes that go to many places of a file: all are there, nothing else changes, and near ones are written together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Buffer, RealFile
from logwright.errors import StorageFailed
from logwright.yeltsin.files import area
from logwright.yeltsin.files.area import Area, write_places
from tests.support.faulty_disk import WRITES, FaultyDisk


class CountedFile(RealFile):
    """A file that records its writes: position and number of bytes."""

    __slots__ = ("written",)
    written: list[tuple[int, int]]

    def write_at(self, position: int, data: Buffer) -> int:
        self.written.append((position, len(data)))
        return super().write_at(position, data)


def opened(path: Path, data: Buffer) -> CountedFile:
    path.write_bytes(data)
    real = REAL_DISK.open(path, "update")
    file = CountedFile(path, real.descriptor)
    real.descriptor = -1
    file.written = []
    return file


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_scattered_writes_change_only_their_bytes(
    seed: int, mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(area, "_NEAR_BYTES", chance.choice((0, 30, 100, 5000)))
    monkeypatch.setattr(area, "_MOST_BYTES", chance.choice((50, 400, 5000)))
    model = bytearray(chance.randbytes(5000))
    file = opened(tmp_path / "file", model)
    places, at = [], chance.randrange(100)
    while at < 4900:
        data = chance.randbytes(chance.choice((1, 8)))
        places.append((at, data))
        model[at : at + len(data)] = data
        at += len(data) + chance.choice((0, 8, 50, 400))
    found = Area(file, mapped=mapped)
    found.store_places(places)
    found.close()
    assert (tmp_path / "file").read_bytes() == model


def test_nearby_ranges_are_written_together_and_others_are_not(tmp_path: Path) -> None:
    file = opened(tmp_path / "file", bytes(3 << 20))
    write_places(file, [])
    assert file.written == []
    write_places(file, [(8, b"link"), (24, b"f"), (8008, b"link"), (8024, b"f"), (28024, b"link"), (2 << 20, b"f")])
    assert file.written == [(8, 8017), (28024, 4), (2 << 20, 1)]
    file.written.clear()
    write_places(file, [(at, b"x") for at in range(0, 768 << 10, 4096)])
    assert [(at, at + size) for at, size in file.written] == [
        (0, (256 << 10) + 1),
        ((256 << 10) + 4096, (512 << 10) + 4096 + 1),
        ((512 << 10) + 8192, (768 << 10) - 4096 + 1),
    ]
    file.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_file_grows_by_writes_and_zeros_and_can_be_truncated(tmp_path: Path, mapped: bool) -> None:
    path = tmp_path / "file"
    found = Area(opened(path, b"abc"), mapped=mapped)
    found.store(5, b"def")
    assert (path.read_bytes(), found.size) == (b"abc\0\0def", 8)
    found.add_zeros(10)
    assert (path.read_bytes(), found.size) == (b"abc\0\0def\0\0", 10)
    found.cut(6)
    assert (path.read_bytes(), found.size, found.load(4, 9)) == (b"abc\0\0d", 6, b"\0d")
    found.close()


def test_zeros_without_space_are_removed_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    disk = FaultyDisk(REAL_DISK, 1, partial=True, only=WRITES)
    found = Area(disk.open(path, "update"), mapped=False)
    with pytest.raises(StorageFailed):
        found.add_zeros(1000)
    assert (path.read_bytes(), found.size) == (b"abc", 3)
    found.close()
