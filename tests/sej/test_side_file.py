"""The side file of block checksums, and reading through it."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.crc32c import crc32c
from logwright.core.bytes.outcome import Span
from logwright.core.io.disk import REAL_DISK, Buffer, Disk, File, OpenMode, RealDisk, RealFile, write_all
from logwright.errors import Closed, DamagedJournal, Poisoned, StorageFailed, WrongUse
from logwright.sej.files.checksums import (
    BLOCK_BYTES,
    ENTRY,
    HEADER,
    MAGIC,
    CheckedFile,
    Checksums,
    ChecksumWriter,
    Note,
    checksum_path,
)
from tests.sej.samples import covered_bytes
from tests.support.counts import COUNTS
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_file

BLOCK = 512
"""Small blocks make small tests; the size of a block is in the header of a side file."""


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def side_file_of(data: bytes, block_bytes: int = BLOCK) -> bytes:
    """The expected side file of a file with these bytes, made in the simplest way."""
    blocks = [data[start : start + block_bytes] for start in range(0, len(data), block_bytes)]
    entries = b"".join(struct.pack("<II", crc32c(block), len(block)) for block in blocks)
    return b"LWCRC32C" + struct.pack("<II", block_bytes, 1) + entries


class Journal:
    """A data file with its side file on the real disk, written as a journal's writer does."""

    def __init__(self, path: Path, disk: RealDisk = REAL_DISK) -> None:
        self.path = path
        self.side_path = checksum_path(path)
        self.disk = disk

    def put(self, data: bytes, side: bytes | None = None) -> Journal:
        self.path.write_bytes(data)
        if side is not None:
            self.side_path.write_bytes(side)
        return self

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[File, ChecksumWriter]]:
        file = self.disk.open(self.path, "update")
        try:
            writer = ChecksumWriter.open_at(self.disk, file, file.size(), BLOCK)
            try:
                yield file, writer
            finally:
                writer.close()
        finally:
            file.close()

    def append(self, *parts: bytes) -> Journal:
        with self.writing() as (file, writer):
            for part in parts:
                position = file.size()
                write_all(file, position, part)
                writer.update(position, part)
        return self

    @contextlib.contextmanager
    def reading(self) -> Iterator[CheckedFile]:
        checksums = Checksums.load(self.disk, self.side_path)
        assert checksums is not None
        file = self.disk.open(self.path, "read")
        try:
            yield CheckedFile(file, checksums)
        finally:
            file.close()

    def flip_bit(self, bit: int) -> None:
        data = bytearray(self.path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        self.path.write_bytes(data)

    def bad(self) -> list[Span]:
        with self.reading() as file:
            return file.bad_blocks(0, file.size())

    @property
    def side(self) -> bytes:
        return self.side_path.read_bytes()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "0.jnl")


# --- writing the side file ----------------------------------------------------------------------------------------


def test_side_file_has_the_documented_bytes(tmp_path: Path) -> None:
    file = REAL_DISK.open(tmp_path / "0.jnl", "create")
    with contextlib.closing(file), contextlib.closing(ChecksumWriter.create(REAL_DISK, file)) as writer:
        write_all(file, 0, b"123456789")
        writer.update(0, b"123456789")
    assert (tmp_path / "0.jnl.crc").read_bytes().hex(" ", 4) == "4c574352 43333243 00000100 01000000 839206e3 09000000"


def test_usual_block_has_64_kib(tmp_path: Path) -> None:
    data = noise(BLOCK_BYTES + 10)
    (tmp_path / "0.jnl").write_bytes(b"")
    file = REAL_DISK.open(tmp_path / "0.jnl", "update")
    with contextlib.closing(file), contextlib.closing(ChecksumWriter.create(REAL_DISK, file)) as writer:
        writer.update(0, data)
    assert BLOCK_BYTES == 65536
    assert (tmp_path / "0.jnl.crc").read_bytes() == side_file_of(data, 65536)


@pytest.mark.parametrize("seed", range(8))
def test_side_file_does_not_depend_on_how_bytes_arrive(journal: Journal, seed: int) -> None:
    chance = random.Random(seed)
    data = noise(chance.randrange(5 * BLOCK), seed)
    done = 0
    while done < len(data):
        parts = []
        for _ in range(chance.randrange(4)):
            size = chance.choice((0, 1, 26, BLOCK - 1, BLOCK, 2 * BLOCK + 3))
            parts.append(data[done : done + size])
            done += len(parts[-1])
        journal.append(*parts)
        assert journal.side == side_file_of(journal.path.read_bytes())
    assert journal.path.read_bytes() == data


def test_update_is_one_write_whatever_it_finishes(tmp_path: Path) -> None:
    disk = WatchedDisk()
    journal = Journal(tmp_path / "0.jnl", disk).append(noise(100))
    with journal.writing() as (_, writer):
        disk.calls.clear()
        writer.update(100, memoryview(noise(3 * BLOCK)))
    assert disk.calls == [("write", "0.jnl.crc", 16, 4 * 8)]


def test_integer_buffers_are_taken_as_bytes(journal: Journal) -> None:
    numbers = array.array("I", range(1000))
    with journal.writing() as (_, writer):
        writer.update(0, memoryview(numbers))
    assert journal.side == side_file_of(numbers.tobytes())


def test_bytes_that_do_not_follow_are_refused_and_nothing_is_written(journal: Journal) -> None:
    journal.append(noise(100))
    with journal.writing() as (_, writer):
        with pytest.raises(WrongUse, match="bytes at 99 do not follow the 100 that are accounted for"):
            writer.update(99, b"x")
        assert writer.size == 100
    assert journal.side == side_file_of(noise(100))


def test_new_file_discards_the_side_file_of_an_older_one(journal: Journal) -> None:
    journal.put(b"", side_file_of(noise(2000)))
    file = REAL_DISK.open(journal.path, "update")
    with contextlib.closing(file), contextlib.closing(ChecksumWriter.create(REAL_DISK, file)):
        assert journal.side == side_file_of(b"")


@pytest.mark.parametrize("block_bytes", [0, -512, 256, 511, 1000, 2**25])
def test_block_size_is_a_power_of_two_within_limits(journal: Journal, block_bytes: int) -> None:
    file = REAL_DISK.open(journal.path, "update")
    with contextlib.closing(file), pytest.raises(WrongUse, match=f"{block_bytes} bytes is not a power of two"):
        ChecksumWriter.create(REAL_DISK, file, block_bytes)
    assert not journal.side_path.exists()


def test_existing_side_file_keeps_its_block_size(journal: Journal) -> None:
    data = noise(3000)
    journal.put(data[:2500], side_file_of(data[:2500], 1024)).append(data[2500:])
    assert journal.side == side_file_of(data, 1024)


# --- opening the side file of an existing journal -----------------------------------------------------------------


def test_without_a_side_file_only_the_last_block_is_read_and_covered(tmp_path: Path) -> None:
    disk = WatchedDisk()
    data = noise(3 * BLOCK + 100)
    journal = Journal(tmp_path / "0.jnl", disk).put(data)
    journal.append()
    reads = [call for call in disk.calls if call[:2] == ("read", "0.jnl")]
    assert reads == [("read", "0.jnl", 3 * BLOCK, 100)]
    whole = side_file_of(data)
    assert journal.side == whole[:16] + bytes(3 * 8) + whole[-8:]
    with journal.reading() as file:
        assert covered_bytes(file.checksums, len(data)) == 100


@pytest.mark.parametrize("size", [0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 30])
@pytest.mark.parametrize("claimed", [0, 50, BLOCK, BLOCK + 5, 2 * BLOCK, 4 * BLOCK + 7])
def test_side_file_ahead_or_behind_is_adjusted_to_the_file(journal: Journal, size: int, claimed: int) -> None:
    data = noise(5 * BLOCK)
    journal.put(data[:size], side_file_of(data[:claimed])).append()
    checksums = Checksums(journal.side)
    last = size // BLOCK
    assert len(journal.side) <= 16 + 8 * (last + 1)
    for index in range(last):
        before = Checksums(side_file_of(data[:claimed])).entry(index)
        assert checksums.entry(index) == before
    have = size % BLOCK
    assert checksums.entry(last) == ((crc32c(data[size - have : size]), have) if have else (0, 0))
    assert journal.bad() == []


def test_truncated_last_entry_is_rebuilt(journal: Journal) -> None:
    data = noise(BLOCK + 100)
    journal.put(data, side_file_of(data)[:-3]).append()
    assert journal.side == side_file_of(data)


@pytest.mark.parametrize("size", [BLOCK, BLOCK + 100])
def test_checksum_of_no_bytes_is_not_continued(journal: Journal, size: int) -> None:
    data = noise(BLOCK + 200)
    journal.put(data[:size], side_file_of(data[:BLOCK]) + ENTRY.pack(12345, 0)).append(data[size:])
    assert journal.side == side_file_of(data)


def test_last_block_entry_is_kept_so_that_damage_is_detected(journal: Journal) -> None:
    data = noise(BLOCK + 200)
    journal.append(data[: BLOCK + 100])
    journal.flip_bit(8 * (BLOCK + 50))
    journal.append(data[BLOCK + 100 :])
    assert journal.bad() == [Span(BLOCK, BLOCK + 200)]


@pytest.mark.parametrize("left", [b"", bytes(10), bytes(400), HEADER.pack(MAGIC, BLOCK, 1)[:9]])
def test_unfinished_header_is_rewritten(journal: Journal, left: bytes) -> None:
    data = noise(100)
    journal.put(data, left).append()
    assert journal.side == side_file_of(data)
    assert sorted(os.listdir(journal.path.parent)) == ["0.jnl", "0.jnl.crc"]


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (b"the notes of somebody else", "this is not a file of checksums"),
        (b"notes", "the side file ends within its header, after 5 bytes"),
        (HEADER.pack(MAGIC, BLOCK, 2) + b"more", "version 2 of the side file is not known here"),
        (HEADER.pack(MAGIC, 3, 1), "a block of 3 bytes is not a power of two between 512 and 16777216"),
    ],
)
def test_foreign_file_is_kept_under_another_name(journal: Journal, foreign: bytes, reason: str) -> None:
    data = noise(100)
    journal.put(data, foreign)
    with journal.writing() as (_, writer):
        (note,) = writer.notes
    (other,) = [path for path in journal.path.parent.iterdir() if path not in (journal.path, journal.side_path)]
    assert other.name.startswith("0.jnl.crc.unreadable.")
    assert other.read_bytes() == foreign
    assert note == Note(0, f"{reason}; it was kept as {other.name}, and a new side file was created")
    assert journal.side == side_file_of(data)


def test_foreign_file_is_never_lost_with_reordered_name_changes(
    simulated_disk: SimulatedDisk,
) -> None:
    home, foreign = Path("/journal"), b"the notes of somebody else"
    write_file(simulated_disk, home / "0.jnl", noise(100))
    write_file(simulated_disk, home / "0.jnl.crc", foreign)
    simulated_disk.settle()
    file = simulated_disk.open(home / "0.jnl", "update")
    ChecksumWriter.open_at(simulated_disk, file, 100).close()
    file.close()
    for state in simulated_disk.crash_states(reorder_names=True):
        assert foreign in read_tree(state, home).values()


def test_link_in_place_of_the_side_file_is_not_followed(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    journal.side_path.symlink_to(tmp_path / "precious")
    with pytest.raises(StorageFailed, match="links in a journal are not followed"):
        journal.append(b"x")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_data_file_shorter_than_claimed_is_refused(journal: Journal) -> None:
    journal.put(noise(10))
    file = REAL_DISK.open(journal.path, "update")
    with contextlib.closing(file), pytest.raises(WrongUse, match="the data file ends before the 20 bytes"):
        ChecksumWriter.open_at(REAL_DISK, file, 20, BLOCK)


# --- cutting, syncing, failing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 99, 2 * BLOCK + 100])
@pytest.mark.parametrize("cut_first", [False, True])
def test_cutting_lowers_the_entries_and_writing_continues(journal: Journal, size: int, cut_first: bool) -> None:
    data = noise(2 * BLOCK + 100)
    with journal.append(data).writing() as (file, writer):
        if cut_first:
            file.truncate(size)
        writer.truncate(size, file)
        assert journal.side == side_file_of(data[:size])
        file.truncate(size)
        write_all(file, size, b"other bytes")
        writer.update(size, b"other bytes")
    assert journal.side == side_file_of(data[:size] + b"other bytes")


@pytest.mark.parametrize("size", [-1, 101])
def test_cutting_beyond_the_end_is_refused(journal: Journal, size: int) -> None:
    with journal.append(noise(100)).writing() as (file, writer):
        with pytest.raises(WrongUse, match=f"100 bytes cannot be cut to {size}"):
            writer.truncate(size, file)
        writer.update(100, b"x")
    assert writer.size == 101


def test_entries_are_lowered_durably_before_anything_else_can_be_written(tmp_path: Path) -> None:
    disk = WatchedDisk()
    data = noise(1000)
    journal = Journal(tmp_path / "0.jnl", disk).append(data)
    with journal.writing() as (file, writer):
        disk.calls.clear()
        writer.truncate(600, file)
        assert disk.calls[-1] == ("sync", "0.jnl.crc", 0, 0)
    journal.put(data[:550])
    disk.calls.clear()
    with journal.writing():
        assert disk.calls[-1] == ("sync", "0.jnl.crc", 0, 0)
    journal.put(data[:100], side_file_of(data[:50]) + ENTRY.pack(1, BLOCK))
    disk.calls.clear()
    with journal.writing():
        assert disk.calls[-1] == ("sync", "0.jnl.crc", 0, 0)
    disk.calls.clear()
    with journal.writing():
        assert "sync" not in {call[0] for call in disk.calls}


def test_sync_reaches_the_side_file_and_once_its_name(tmp_path: Path) -> None:
    disk = WatchedDisk()
    with Journal(tmp_path / "0.jnl", disk).writing() as (_, writer):
        disk.calls.clear()
        writer.sync()
        writer.sync()
    assert disk.calls == [
        ("sync", "0.jnl.crc", 0, 0),
        ("sync_directory", tmp_path.name, 0, 0),
        ("sync", "0.jnl.crc", 0, 0),
    ]


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_failed_write_or_sync_is_final_and_the_side_file_stays_valid(tmp_path: Path, failing: str) -> None:
    disk = WatchedDisk()
    journal = Journal(tmp_path / "0.jnl", disk)
    data = noise(BLOCK + 10)
    with journal.append(data).writing() as (file, writer):
        write_all(file, len(data), data)
        disk.failing = (failing, "0.jnl.crc")
        with pytest.raises(StorageFailed, match=f"{failing} .*0.jnl.crc: No space left on device"):
            writer.update(len(data), data) if failing == "write" else writer.sync()
        disk.failing = None
        with pytest.raises(Poisoned, match="an earlier write or sync of the checksums failed"):
            writer.update(len(data), data)
        with pytest.raises(Poisoned):
            writer.sync()
        with pytest.raises(Poisoned):
            writer.truncate(0, file)
    assert journal.side == side_file_of(data)
    assert journal.bad() == []


def test_short_write_of_a_side_file_is_continued(tmp_path: Path) -> None:
    disk = WatchedDisk()
    disk.most_bytes = 5
    assert Journal(tmp_path / "0.jnl", disk).append(noise(2000)).side == side_file_of(noise(2000))


def test_closed_side_file_refuses_calls(journal: Journal) -> None:
    with journal.writing() as (file, writer):
        writer.close()
        writer.close()
        uses: list[Callable[[], object]] = [
            lambda: writer.update(0, b"x"),
            writer.sync,
            lambda: writer.truncate(0, file),
        ]
        for use in uses:
            with pytest.raises(Closed, match="the checksums have been closed"):
                use()


# --- loading ------------------------------------------------------------------------------------------------------


def test_missing_side_file_means_no_checksums(journal: Journal) -> None:
    journal.put(noise(100))
    assert Checksums.load(REAL_DISK, journal.side_path) is None


@pytest.mark.parametrize(
    ("side", "position", "message"),
    [
        (b"", 0, "the side file ends within its header, after 0 bytes"),
        (side_file_of(b"")[:15], 0, "the side file ends within its header, after 15 bytes"),
        (bytes(100), 0, "this is not a file of checksums"),
        (HEADER.pack(b"LWCRC32D", BLOCK, 1), 0, "this is not a file of checksums"),
        (HEADER.pack(MAGIC, BLOCK, 0), 12, "version 0 of the side file is not known here"),
        (HEADER.pack(MAGIC, BLOCK, 2**32 - 1), 12, "version 4294967295 of the side file is not known here"),
        (HEADER.pack(MAGIC, 0, 1), 8, "a block of 0 bytes is not a power of two between 512 and 16777216"),
        (HEADER.pack(MAGIC, 1536, 1), 8, "a block of 1536 bytes is not a power of two between 512 and 16777216"),
        (HEADER.pack(MAGIC, 2**31, 1), 8, "a block of 2147483648 bytes is not a power of two between 512 and 16777216"),
    ],
)
def test_invalid_side_file_covers_nothing_and_is_reported(
    journal: Journal, side: bytes, position: int, message: str
) -> None:
    journal.put(noise(2000), side)
    with journal.reading() as file:
        assert file.notes() == [Note(position, message)]
        assert covered_bytes(file.checksums, 2000) == 0
        assert file.read_at(0, 2000) == noise(2000)


def test_side_file_that_cannot_be_opened_is_reported(journal: Journal) -> None:
    journal.put(noise(10))
    journal.side_path.mkdir()
    checksums = Checksums.load(REAL_DISK, journal.side_path)
    assert checksums is not None
    assert checksums.notes == [
        Note(0, f"the side file cannot be read: open {journal.side_path}: is not a regular file")
    ]
    journal.side_path.rmdir()
    journal.side_path.symlink_to(journal.path)
    checksums = Checksums.load(REAL_DISK, journal.side_path)
    assert checksums is not None
    assert "links in a journal are not followed" in checksums.notes[0].message


def test_side_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    disk = WatchedDisk()
    journal = Journal(tmp_path / "0.jnl", disk).put(noise(10), side_file_of(noise(10)))
    disk.failing = ("read", "0.jnl.crc")
    checksums = Checksums.load(disk, journal.side_path)
    assert checksums is not None
    assert [note.position for note in checksums.notes] == [0]
    assert checksums.notes[0].message.startswith("the side file cannot be read: read ")
    assert checksums.check(0, noise(10)) is None


def test_partial_entry_is_skipped_and_reported(journal: Journal) -> None:
    data = noise(3 * BLOCK)
    journal.put(data, side_file_of(data)[:-1])
    with journal.reading() as file:
        assert file.notes() == [Note(32, "the last entry has 7 bytes instead of 8")]
        assert covered_bytes(file.checksums, len(data)) == 2 * BLOCK


def test_entries_that_cover_more_than_a_block_are_skipped_and_reported(journal: Journal) -> None:
    data = noise(4 * BLOCK)
    side = bytearray(side_file_of(data))
    ENTRY.pack_into(side, 16 + 8, 1, BLOCK + 1)
    ENTRY.pack_into(side, 16 + 24, 1, 2**32 - 1)
    journal.put(data, bytes(side))
    with journal.reading() as file:
        message = "2 entries claim to cover more bytes than a block has, the first of them here"
        assert file.notes() == [Note(24, message)]
        assert file.bad_blocks(0, len(data)) == []
        assert covered_bytes(file.checksums, len(data)) == 2 * BLOCK


def test_entries_after_the_end_of_the_file_are_reported(journal: Journal) -> None:
    data = noise(5 * BLOCK)
    journal.put(data[: 2 * BLOCK], side_file_of(data))
    with journal.reading() as file:
        message = f"3 entries from here on are for blocks after the end of the file at {2 * BLOCK}"
        assert file.notes() == [Note(32, message)]
        assert len(file.checksums) == 2
    journal.put(data[: 4 * BLOCK], side_file_of(data))
    with journal.reading() as file:
        message = f"the entry here is for a block after the end of the file at {4 * BLOCK}"
        assert file.notes() == [Note(48, message)]


def test_huge_side_file_is_read_only_up_to_the_blocks_of_the_file(tmp_path: Path) -> None:
    disk = WatchedDisk()
    journal = Journal(tmp_path / "0.jnl", disk).put(noise(2 * BLOCK), side_file_of(noise(2 * BLOCK)))
    os.truncate(journal.side_path, 1 << 40)
    disk.calls.clear()
    checksums = Checksums.load(disk, journal.side_path)
    assert checksums is not None
    assert len(checksums) == 2
    entries = 2 + 2  # and the first and the last one after these
    assert sum(call[3] for call in disk.calls if call[0] == "read") == 16 + entries * 8


def test_side_file_without_its_data_file_is_no_error(journal: Journal) -> None:
    journal.side_path.write_bytes(side_file_of(noise(1000)))
    checksums = Checksums.load(REAL_DISK, journal.side_path)
    assert checksums is not None
    assert len(checksums) == 0
    assert checksums.notes == [Note(16, "2 entries from here on are for blocks after the end of the file at 0")]


def test_any_bytes_of_a_side_file_raise_only_our_errors(journal: Journal) -> None:
    chance = random.Random(5)
    data = noise(3 * BLOCK + 17)
    good = side_file_of(data)
    journal.put(data)
    outcomes = set()
    for _ in range(2000):
        side = bytearray(good[: chance.choice((len(good), len(good), chance.randrange(len(good) + 1)))])
        for _ in range(chance.randrange(4)):
            if side:
                side[chance.randrange(len(side))] = chance.randrange(256)
        journal.side_path.write_bytes(side)
        with journal.reading() as file:
            spans = file.bad_blocks(0, len(data))
            assert all(0 <= span.start < span.end <= len(data) for span in spans)
            outcomes.add(bool(spans))
            if spans:
                with pytest.raises(DamagedJournal, match=f"@ {spans[0].start}: the checksum of the block"):
                    file.read_at(0, len(data))
            else:
                assert file.read_at(0, len(data)) == data
    COUNTS.add("fuzzed inputs", 2000)
    assert outcomes == {True, False}


def test_check_reports_valid_invalid_and_unknown_blocks() -> None:
    data = noise(BLOCK + 100)
    checksums = Checksums(side_file_of(data))
    assert checksums.check(0, data[:BLOCK]) is True
    assert checksums.check(0, memoryview(data)[:BLOCK]) is True
    assert checksums.check(0, data[1 : BLOCK + 1]) is False
    assert checksums.check(1, data[BLOCK:]) is True
    assert checksums.check(1, data[BLOCK:] + b"more that came later") is True
    assert checksums.check(1, data[BLOCK:-1]) is None
    assert checksums.check(1, b"") is None
    assert checksums.check(2, b"x") is None
    assert checksums.check(-1, data[BLOCK:]) is None


# --- reading through it -------------------------------------------------------------------------------------------


def test_sound_file_reads_the_same_with_checksums(journal: Journal) -> None:
    chance = random.Random(1)
    data = noise(6 * BLOCK + 77)
    with journal.append(data).reading() as file:
        for _ in range(1500):
            position = chance.randrange(len(data) + 20)
            size = chance.choice((0, 1, 4, 26, chance.randrange(BLOCK), chance.randrange(4 * BLOCK)))
            expected = data[position : position + size]
            assert file.read_at(position, size) == expected
            buffer = bytearray(size)
            assert file.read_into(position, memoryview(buffer)) == len(expected)
            assert buffer[: len(expected)] == expected
        assert file.bad_blocks(0, len(data)) == []
        assert file.notes() == []
        assert covered_bytes(file.checksums, len(data)) == len(data)


def test_every_flipped_bit_is_found_and_its_block_named(journal: Journal) -> None:
    data = noise(2 * BLOCK + 100)
    journal.append(data)
    checksums = Checksums.load(REAL_DISK, journal.side_path)
    assert checksums is not None
    file = REAL_DISK.open(journal.path, "update")
    with contextlib.closing(file):
        checked = CheckedFile(file, checksums)
        for position, byte in enumerate(data):
            start = position // BLOCK * BLOCK
            for bit in range(8):
                file.write_at(position, bytes([byte ^ 1 << bit]))
                assert checked.bad_blocks(0, len(data)) == [Span(start, min(start + BLOCK, len(data)))]
            file.write_at(position, bytes([byte]))
        assert checked.bad_blocks(0, len(data)) == []
    COUNTS.add("bit flips", 8 * len(data))


@pytest.mark.parametrize(
    ("position", "size"),
    [(BLOCK, 1), (2 * BLOCK - 1, 1), (BLOCK - 1, 2), (0, 4 * BLOCK), (2 * BLOCK - 1, 2), (BLOCK + 9, BLOCK)],
)
def test_read_that_touches_a_damaged_block_names_it(journal: Journal, position: int, size: int) -> None:
    journal.append(noise(4 * BLOCK)).flip_bit(8 * (BLOCK + 300))
    with journal.reading() as file:
        message = f"{journal.path} @ 512: the checksum of the block of 512 bytes does not match"
        with pytest.raises(DamagedJournal) as caught:
            file.read_at(position, size)
        assert str(caught.value) == message
        with pytest.raises(DamagedJournal) as caught:
            file.read_into(position, memoryview(bytearray(size)))
        assert str(caught.value) == message
        assert (caught.value.file, caught.value.position) == (journal.path, 512)


@pytest.mark.parametrize(("position", "size"), [(0, BLOCK), (2 * BLOCK, 2 * BLOCK), (BLOCK - 1, 1), (2 * BLOCK, 1)])
def test_read_beside_a_damaged_block_succeeds(journal: Journal, position: int, size: int) -> None:
    data = noise(4 * BLOCK)
    journal.append(data).flip_bit(8 * (BLOCK + 300))
    with journal.reading() as file:
        assert file.read_at(position, size) == data[position : position + size]
        assert file.read_into(position, memoryview(bytearray(size))) == size


def test_bad_blocks_of_a_range_are_those_that_it_touches(journal: Journal) -> None:
    journal.append(noise(3 * BLOCK + 100))
    for position in (5, 2 * BLOCK + 5, 3 * BLOCK + 5):
        journal.flip_bit(8 * position)
    first, third, last = Span(0, BLOCK), Span(2 * BLOCK, 3 * BLOCK), Span(3 * BLOCK, 3 * BLOCK + 100)
    with journal.reading() as file:
        assert file.bad_blocks(0, 3 * BLOCK + 100) == [first, third, last]
        assert file.bad_blocks(-5, 1 << 40) == [first, third, last]
        assert file.bad_blocks(BLOCK, 2 * BLOCK) == []
        assert file.bad_blocks(BLOCK - 1, 2 * BLOCK + 1) == [first, third]
        assert file.bad_blocks(3 * BLOCK, 3 * BLOCK) == []
        assert file.bad_blocks(3 * BLOCK + 99, 3 * BLOCK + 100) == [last]


def test_bytes_after_a_damaged_block_can_be_read(journal: Journal) -> None:
    journal.append(noise(1000)).flip_bit(0)
    with journal.reading() as file:
        assert file.file.read_at(0, 2000) == journal.path.read_bytes()


def test_bytes_after_the_covered_range_are_not_checked(journal: Journal) -> None:
    data = noise(BLOCK)
    journal.append(data[:100])
    journal.path.write_bytes(data)
    journal.flip_bit(8 * 100)
    with journal.reading() as file:
        assert file.read_at(50, 400) == journal.path.read_bytes()[50:450]
        assert file.read_at(100, 10) == journal.path.read_bytes()[100:110]
        assert file.notes() == []
    journal.flip_bit(8 * 99)
    with journal.reading() as file:
        with pytest.raises(DamagedJournal, match="the checksum of the block of 100 bytes does not match"):
            file.read_at(0, 10)
        assert file.read_into(100, memoryview(bytearray(50))) == 50
        assert file.bad_blocks(100, BLOCK) == []
        assert file.bad_blocks(99, BLOCK) == [Span(0, 100)]


def test_entry_beyond_the_file_cannot_be_checked_and_is_reported(journal: Journal) -> None:
    data = noise(BLOCK + 300)
    journal.append(data).path.write_bytes(data[: BLOCK + 200])
    with journal.reading() as file:
        assert file.read_at(BLOCK, 300) == data[BLOCK : BLOCK + 200]
        assert file.read_at(0, 2 * BLOCK) == data[: BLOCK + 200]
        assert file.bad_blocks(0, 2 * BLOCK) == []
        message = f"the entry covers the bytes up to {BLOCK + 300}, but the file ends at {BLOCK + 200}"
        assert file.notes() == [Note(24, f"{message}: its block cannot be judged")]
        assert covered_bytes(file.checksums, file.size()) == BLOCK


@pytest.mark.parametrize(("position", "size"), [(0, 100), (300, 100), (300, 3 * BLOCK), (0, 4 * BLOCK), (BLOCK, BLOCK)])
def test_returned_bytes_are_the_checked_bytes(journal: Journal, position: int, size: int) -> None:
    data = noise(5 * BLOCK)
    journal.append(data)
    checksums = Checksums(journal.side)
    caught = 0
    for damaged_read in range(4):
        for use in ("read_at", "read_into"):
            real = REAL_DISK.open(journal.path, "read")
            with contextlib.closing(UnsteadyFile(real, damaged_read)) as unsteady:
                file = CheckedFile(unsteady, checksums)
                buffer = bytearray(size)
                try:
                    if use == "read_at":
                        buffer[:] = file.read_at(position, size)
                    else:
                        file.read_into(position, memoryview(buffer))
                    assert buffer == data[position : position + size]
                except DamagedJournal:
                    caught += 1
                    assert unsteady.reads > damaged_read
    assert caught >= 2


def test_small_reads_share_a_block(tmp_path: Path) -> None:
    disk = WatchedDisk()
    data = noise(3 * BLOCK)
    with Journal(tmp_path / "0.jnl", disk).append(data).reading() as file:
        disk.calls.clear()
        assert b"".join(file.read_at(position, 64) for position in range(0, len(data), 64)) == data
    assert disk.calls == [("read", "0.jnl", start, BLOCK) for start in (0, BLOCK, 2 * BLOCK)]


def test_reader_continues_while_the_writer_writes(journal: Journal) -> None:
    data = noise(3 * BLOCK)
    journal.append(data[:100])
    with journal.reading() as file, journal.writing() as (writable, writer):
        for start in range(100, len(data), 90):
            part = data[start : start + 90]
            write_all(writable, start, part)
            assert file.read_at(0, len(data)) == data[: start + len(part)]
            writer.update(start, part)
            assert file.read_at(start, 100) == part
            assert file.read_at(start - 5, 200) == data[start - 5 : start + len(part)]


@pytest.mark.parametrize("use", ["read_at", "read_at more than a block", "read_into", "bad_blocks"])
def test_reader_rereads_a_replaced_entry_before_reporting_damage(journal: Journal, use: str) -> None:
    data = noise(300)
    journal.append(data)
    with journal.reading() as file, journal.writing() as (writable, writer):
        writer.truncate(100, writable)
        writable.truncate(100)
        write_all(writable, 100, b"x" * 300)
        writer.update(100, b"x" * 300)
        now = data[:100] + b"x" * 300
        buffer = bytearray(400)
        match use:
            case "read_at":
                assert file.read_at(90, 200) == now[90:290]
            case "read_at more than a block":
                assert file.read_at(0, 1000) == now
            case "read_into":
                assert file.read_into(0, memoryview(buffer)) == 400
                assert buffer == now
            case "bad_blocks":
                assert file.bad_blocks(0, 400) == []
        assert file.checksums.entry(0) == (crc32c(now), 400)


def test_reader_without_its_side_file_uses_the_known_entries(journal: Journal) -> None:
    journal.append(noise(300)).flip_bit(0)
    with journal.reading() as file:
        journal.side_path.unlink()
        assert file.bad_blocks(0, 300) == [Span(0, 300)]


def test_checked_file_behaves_like_the_file_and_is_read_only(journal: Journal) -> None:
    with journal.append(noise(300)).reading() as file:
        assert file.path == journal.path
        assert file.size() == 300
        assert file.identity() == REAL_DISK.identity(journal.path)
        file.sync()
        for change in (lambda: file.write_at(0, b"x"), lambda: file.truncate(0), file.lock):
            with pytest.raises(WrongUse, match="is for reading only"):
                change()
        file.close()
        with pytest.raises(StorageFailed):
            file.read_at(0, 1)


# --- power cuts ---------------------------------------------------------------------------------------------------

HOME = Path("/journal")
DATA_PATH = HOME / "0.jnl"


def write_and_close(disk: Disk, start: int, data: bytes, sizes: list[int]) -> None:
    """Append `data` in parts of these sizes as a journal does, the data synced after each part but the last."""
    file = disk.open(DATA_PATH, "update")
    with contextlib.closing(file), contextlib.closing(ChecksumWriter.open_at(disk, file, start, BLOCK)) as writer:
        for number, size in enumerate(sizes):
            position = writer.size
            part = data[position - start : position - start + size]
            write_all(file, position, part)
            writer.update(position, part)
            if number + 1 < len(sizes):
                file.sync()


def cut_to_what_was_written(disk: Disk, written: bytes) -> int:
    """Recover the data file like a journal that knows its records: cut it where it becomes wrong."""
    file = disk.open(DATA_PATH, "update")
    with contextlib.closing(file):
        present = file.read_at(0, len(written))
        good = next((i for i, (a, b) in enumerate(zip(present, written, strict=False)) if a != b), len(present))
        file.truncate(good)
        file.sync()
    return good


def false_alarms(disk: Disk, written: bytes) -> list[Span]:
    """The blocks that are unchanged, but that the checksums call damaged."""
    checksums = Checksums.load(disk, checksum_path(DATA_PATH))
    if checksums is None:
        return []
    file = disk.open(DATA_PATH, "read")
    with contextlib.closing(file):
        bad = CheckedFile(file, checksums).bad_blocks(0, file.size())
        return [span for span in bad if file.read_at(span.start, span.size) == written[span.start : span.end]]


def false_alarms_after_two_power_cuts(dress: Callable[[SimulatedDisk], Disk]) -> Iterator[str]:
    """Write, lose power, recover, write something else, lose power again: the history of each false alarm."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.open(DATA_PATH, "create").close()
    disk.settle()
    first, second = noise(3 * BLOCK, 1), noise(3 * BLOCK, 2)
    write_and_close(dress(disk), 0, first, [300, 500, 700])
    for after in disk.crash_states(fills=("zeros",)):
        if false_alarms(after, first):
            yield after.story
        good = cut_to_what_was_written(after, first)
        write_and_close(dress(after), good, second, [200, 400])
        written = first[:good] + second[:600]
        checksums = Checksums.load(after, checksum_path(DATA_PATH))
        assert checksums is not None
        assert covered_bytes(checksums, len(written)) >= len(written) - good // BLOCK * BLOCK
        if false_alarms(after, written):
            yield after.story
        for again in after.crash_states(fills=("zeros",), most=12):
            if false_alarms(again, written):
                yield again.story


def test_entries_after_an_unfinished_header_are_removed_before_the_header_is_written() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    data = noise(2 * BLOCK + 100, 1)
    write_file(disk, DATA_PATH, data)
    write_file(disk, checksum_path(DATA_PATH), bytes(HEADER.size) + side_file_of(noise(len(data), 2))[HEADER.size :])
    disk.settle()
    write_and_close(disk, len(data), b"", [0])
    assert false_alarms(disk, data) == []
    for state in disk.crash_states(fills=()):
        assert false_alarms(state, data) == [], state.story


def test_no_power_cut_makes_sound_bytes_look_damaged() -> None:
    before = COUNTS.total("crash states")
    assert list(false_alarms_after_two_power_cuts(lambda disk: disk)) == []
    assert COUNTS.total("crash states") - before > 1000


def test_power_cuts_detect_a_writer_that_does_not_sync_lowered_entries() -> None:
    assert any(false_alarms_after_two_power_cuts(DiskWithoutSideSync))


# --- disks that look on or fail -----------------------------------------------------------------------------------


class WatchedDisk(RealDisk):
    """The real disk, which records every call; it can refuse one kind of call on one file."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int, int]] = []
        self.failing: tuple[str, str] | None = None
        self.most_bytes = 1 << 30

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        plain = super().open(path, mode)
        file = WatchedFile(path, plain.descriptor)
        plain.descriptor = -1  # it belongs to the watched file now
        file.disk = self
        return file

    def sync_directory(self, path: Path) -> None:
        self.report("sync_directory", path)
        super().sync_directory(path)

    def report(self, action: str, path: Path, position: int = 0, size: int = 0) -> None:
        self.calls.append((action, path.name, position, size))
        if self.failing == (action, path.name):
            raise StorageFailed(action, path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


class WatchedFile(RealFile):
    disk: WatchedDisk

    def read_at(self, position: int, size: int) -> bytes:
        self.disk.report("read", self.path, position, size)
        return super().read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> int:
        self.disk.report("write", self.path, position, len(data))
        return super().write_at(position, memoryview(data)[: self.disk.most_bytes])

    def sync(self) -> None:
        self.disk.report("sync", self.path)
        super().sync()


class DiskWithoutSideSync:
    """A simulated disk on which syncs of side files are left out."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def open(self, path: Path, mode: OpenMode) -> File:
        file = self._disk.open(path, mode)
        return FileWithoutSync(file) if path.suffix == ".crc" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


class FileWithoutSync:
    def __init__(self, file: File) -> None:
        self._file = file

    def sync(self) -> None:
        """Skip the sync."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class UnsteadyFile:
    """A file that returns a flipped bit in the first byte of one read, counted from 0."""

    def __init__(self, file: RealFile, damaged_read: int) -> None:
        self.path = file.path
        self.reads = 0
        self._file = file
        self._damaged_read = damaged_read

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.read_into(position, memoryview(buffer))])

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._file.read_into(position, buffer)
        if self.reads == self._damaged_read:
            buffer[0] ^= 1
        self.reads += 1
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
