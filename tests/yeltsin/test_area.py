"""Bytes that go to many places of a file: all are there, nothing else has changed, and near ones go together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Buffer, RealFile
from logwright.yeltsin.files import area
from logwright.yeltsin.files.area import Area, write_places


class CountedFile(RealFile):
    """A file that knows what was written to it: where, and how many bytes."""

    __slots__ = ("written",)

    def write_at(self, position: int, data: Buffer) -> int:
        self.written.append((position, len(data)))
        return super().write_at(position, data)


def opened(path: Path, data: bytes) -> CountedFile:
    path.write_bytes(data)
    real = REAL_DISK.open(path, "update")
    file = CountedFile(path, real.descriptor)
    real.descriptor = -1
    file.written = []
    return file


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_bytes_in_many_places_are_there_and_nothing_else_has_changed(
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


def test_places_that_are_near_are_written_together_and_others_are_not(tmp_path: Path) -> None:
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
