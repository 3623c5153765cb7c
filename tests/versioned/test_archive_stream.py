"""Archives as streams: their contents, the errors, and bounded memory."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, WrongUse
from logwright.versioned import ArchiveLimits, Entry, Reader, VersionedRecovery
from logwright.versioned.files.archive_stream import DEFAULT_LIMITS, InflatedStream
from logwright.versioned.files.files import archive_name
from tests.versioned.samples import START, journal, with_position

NAME = archive_name("cars", START + 9)


def stream_of(path: Path, data: bytes, limits: ArchiveLimits = DEFAULT_LIMITS) -> InflatedStream:
    path.write_bytes(data)
    return InflatedStream(REAL_DISK.open(path, "read"), limits)


def drained(stream: InflatedStream, size: int) -> bytes:
    found = bytearray()
    buffer = bytearray(size)
    while count := stream.read_into(memoryview(buffer)):
        found += buffer[:count]
    return bytes(found)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_compressed_data_is_read_back_in_pieces_of_any_size(size: int, tmp_path: Path) -> None:
    data = bytes(range(256)) * (8 if size == 1 else 3000)
    stream = stream_of(tmp_path / "x", zlib.compress(data, 5))
    assert drained(stream, size) == data
    assert stream.problem == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-5], "ends too early"),
        (lambda data: data[: len(data) // 2], "ends too early"),
        (lambda data: data + b"more", "bytes follow the end"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "this is no zlib data"),
        (lambda data: b"\xff" + data[1:], "this is no zlib data"),
        (lambda data: b"", "ends too early"),
    ],
)
def test_damage_of_an_archive_is_reported_at_its_end(change: object, problem: str, tmp_path: Path) -> None:
    data = zlib.compress(bytes(range(256)) * 100, 5)
    stream = stream_of(tmp_path / "x", change(data))  # type: ignore[operator]
    drained(stream, 1000)
    assert problem in stream.problem


def test_output_limits_by_size_and_by_ratio_are_enforced(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(3 << 20), 9)
    stream = stream_of(tmp_path / "x", bomb, ArchiveLimits(total_bytes=1 << 20))
    assert len(drained(stream, 1 << 16)) <= 1 << 20
    assert "more than the 1048576 bytes" in stream.problem
    stream = stream_of(tmp_path / "x", bomb, ArchiveLimits(ratio=100, free_bytes=1 << 20))
    assert len(drained(stream, 1 << 16)) <= 1 << 21
    assert "100-fold" in stream.problem
    stream = stream_of(tmp_path / "x", bomb, ArchiveLimits(ratio=2000, free_bytes=0))
    assert len(drained(stream, 1 << 16)) == 3 << 20
    with pytest.raises(WrongUse):
        ArchiveLimits(ratio=0)


@pytest.mark.parametrize("kind", ["a value", "entries", "zeros after the position"])
def test_bomb_of_any_kind_is_refused_in_bounded_memory(kind: str, tmp_path: Path) -> None:
    head = journal(START, [Entry(START + 1, "a", 1)])
    if kind == "a value":
        data = journal(START, [Entry(START + 1, "a", "x" * (64 << 20))])
    elif kind == "entries":
        entry = journal(START, [Entry(START + 1, "a", 1)])[56:]
        data = with_position(head + entry * ((64 << 20) // len(entry)), 2**40)
    else:
        data = head + bytes(64 << 20)
    packed = zlib.compress(data, 9)
    del data
    (tmp_path / NAME).write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedJournal, match="250-fold"):
            VersionedRecovery.load(tmp_path / NAME).recover_current()
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_data_before_the_damage_is_returned(tmp_path: Path) -> None:
    entries = [Entry(START + number, f"key {number}", str(number) * 50) for number in range(2000)]
    packed = zlib.compress(journal(START, entries), 5)
    (tmp_path / NAME).write_bytes(packed[: len(packed) // 2])
    found = list(Reader(tmp_path / NAME).entries(mode="permissive"))
    assert isinstance(found[-1], Damage)
    assert "ends too early" in found[-1].reason
    assert 500 < len(found) < 1900
    assert found[:-1] == entries[: len(found) - 1]


def test_wrong_checksum_is_damage(tmp_path: Path) -> None:
    packed = bytearray(zlib.compress(journal(START, [Entry(START, "a", 1)]), 5))
    packed[-1] ^= 1
    (tmp_path / NAME).write_bytes(packed)
    with pytest.raises(DamagedJournal, match="no zlib data"):
        list(Reader(tmp_path / NAME))
    assert not Reader(tmp_path / NAME).verify().sound
