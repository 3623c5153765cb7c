"""The sparse index: it speeds up reading, and the file overrides it."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Disk, File
from logwright.sej.bytes.layout import MAX_TIMESTAMP, NO_TIMESTAMP, segment_name
from logwright.sej.files.index import (
    ENTRY_BYTES,
    HEADER_BYTES,
    STRIDE_BYTES,
    Entry,
    Index,
    IndexWriter,
    build_entries,
    confirms,
    index_path,
    remove_index,
    write_index,
)
from logwright.sej.files.reader import Reader
from logwright.sej.files.segment import Segment, list_segments, open_segment
from logwright.sej.files.writer import Writer
from tests.support.damage import bit_flips, cut, overwrite, torn_tails

COUNT = 4000
VALUE_BYTES = 500
MESSAGE_BYTES = 26 + VALUE_BYTES
PER_ENTRY = -(-STRIDE_BYTES // MESSAGE_BYTES)


def stamp(number: int) -> int:
    """They increase by 10, except for one that is ahead of its time."""
    return 15_500 if number == 1500 else 10 * number


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments of about a megabyte."""
    directory = tmp_path_factory.mktemp("indexed")
    with Writer(directory, segment_size=3000 * MESSAGE_BYTES) as writer:
        for number in range(COUNT):
            writer.append(bytes(VALUE_BYTES), timestamp=stamp(number))
    return directory


@pytest.fixture
def journal(written: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    for path in written.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(written)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return tmp_path


def first_segment(directory: Path) -> Segment:
    return list_segments(REAL_DISK, directory)[0]


def load(directory: Path) -> Index | None:
    segment = first_segment(directory)
    return Index.load(REAL_DISK, segment, segment.path.stat().st_size)


def with_file(directory: Path, use: Callable[[File], object]) -> object:
    file = open_segment(REAL_DISK, first_segment(directory))
    try:
        return use(file)
    finally:
        file.close()


def test_entry_is_made_about_every_quarter_of_a_mebibyte(written: Path) -> None:
    index = load(written)
    assert index is not None
    *entries, end = index.entries
    assert all(entry.position == entry.offset * MESSAGE_BYTES for entry in index.entries)
    gaps = [after.position - before.position for before, after in pairwise(entries)]
    assert min(gaps) >= STRIDE_BYTES
    assert max(gaps) < 3 * STRIDE_BYTES
    assert (end.is_end, end.offset, end.position) == (True, 3000, 3000 * MESSAGE_BYTES)
    assert end.timestamp == 29_990
    assert with_file(written, index.times) == (0, 29_990)


def test_entry_has_the_times_of_the_preceding_range(written: Path) -> None:
    index = load(written)
    assert index is not None
    begin = 0
    for entry in index.entries:
        stamps = [stamp(number) for number in range(begin, entry.offset)]
        assert (entry.smallest, entry.largest) == (min(stamps), max(stamps))
        begin = entry.offset


def test_messages_without_a_time_do_not_count(tmp_path: Path) -> None:
    timed = (PER_ENTRY + 10, PER_ENTRY + 20)
    with Writer(tmp_path, segment_size=3 * PER_ENTRY * MESSAGE_BYTES) as writer:
        for number in range(3 * PER_ENTRY):
            writer.append(bytes(VALUE_BYTES), timestamp=number - 1000 if number in timed else None)
    index = load(tmp_path)
    assert index is not None
    times = [(entry.smallest, entry.largest) for entry in index.entries]
    assert times == [(MAX_TIMESTAMP, NO_TIMESTAMP), (timed[0] - 1000, timed[1] - 1000), (MAX_TIMESTAMP, NO_TIMESTAMP)]


def test_reopened_writer_knows_the_times_of_existing_messages(tmp_path: Path) -> None:
    """Opened repeatedly, also with a finished index, with and without times, and with clocks that go backwards."""
    random_numbers = random.Random(7)
    times: list[int | None] = []
    for _ in range(12):
        with Writer(tmp_path, segment_size=1 << 40) as writer:
            for _ in range(random_numbers.randrange(1, 400)):
                times.append(random_numbers.choice([None, random_numbers.randrange(10**6), -len(times), len(times)]))
                writer.append(bytes(3000), timestamp=times[-1])
    index = load(tmp_path)
    assert index is not None
    assert len(index.entries) > 12
    begin = 0
    for entry in index.entries:
        between = [time for time in times[begin : entry.offset] if time is not None]
        assert (entry.smallest, entry.largest) == (min(between), max(between))
        begin = entry.offset


def test_entries_are_confirmed_by_the_file(written: Path) -> None:
    index = load(written)
    assert index is not None
    for entry in index.entries:
        assert with_file(written, partial(confirms, entry=entry)) is True
        for field in ("offset", "position", "timestamp"):
            other = entry._replace(**{field: getattr(entry, field) + 1})
            assert with_file(written, partial(confirms, entry=other)) is False


def test_entry_is_packed_and_unpacked() -> None:
    for entry in (
        Entry(7, 4096, -5, MAX_TIMESTAMP, NO_TIMESTAMP),
        Entry(2**64 - 1, 2**63, 2**63 - 1, -9, 9, is_end=True),
    ):
        data = entry.pack(3, 1000)
        assert len(data) == ENTRY_BYTES
        assert Entry.unpack(data, 3, 1000) == entry
        assert Entry.unpack(data, 4, 1000) is None, "an entry of another segment"
        assert Entry.unpack(data, 3, 2000) is None, "an entry that followed another one"


def test_every_flipped_bit_of_an_entry_is_detected() -> None:
    entry = Entry(7, 4096, 1_700_000_000, 1_500_000_000, 1_600_000_000)
    for damaged in bit_flips(entry.pack(0, 0)):
        assert Entry.unpack(damaged.data, 0, 0) is None


def test_entries_found_by_a_walk_have_the_same_positions(written: Path) -> None:
    segment = first_segment(written)
    size = segment.path.stat().st_size
    entries = with_file(written, lambda file: build_entries(file, segment, size, finished=True))
    assert isinstance(entries, list)
    assert all(entry.position == entry.offset * MESSAGE_BYTES for entry in entries)
    assert entries[-1].is_end
    assert with_file(written, lambda file: all(confirms(file, entry) for entry in entries)) is True


def test_index_is_created_and_removed(journal: Path) -> None:
    segment = first_segment(journal)
    index = load(journal)
    assert index is not None
    remove_index(REAL_DISK, segment)
    assert load(journal) is None
    remove_index(REAL_DISK, segment)
    write_index(REAL_DISK, segment, index.entries)
    again = load(journal)
    assert again is not None
    assert again.entries == index.entries
    assert [path.name for path in index_path(segment).parent.iterdir() if path.suffix == ".tmp"] == []


# --- the file overrides the index -----------------------------------------------------------------------------------


def answers(directory: Path) -> list[object]:
    """The results of a reader that uses an index."""
    reader = Reader(directory)
    found: list[object] = [
        next(iter(reader.messages(start, start + 1))).offset
        for start in (0, 1, 499, 500, 1499, 1500, 2998, 2999, 3000, 3999)
    ]
    found += [reader.find_time(timestamp) for timestamp in (0, 14_995, 15_000, 15_500, 15_501, 29_999, 100_000)]
    return [*found, reader.next, reader.first]


EXPECTED = [0, 1, 499, 500, 1499, 1500, 2998, 2999, 3000, 3999, 0, 1500, 1500, 1500, 1551, 3000, 4000, 4000, 0]


def test_reader_with_an_index_is_correct(written: Path) -> None:
    assert answers(written) == EXPECTED


BAD_INDEXES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in its header": lambda data: cut(data, 10),
    "a header only": lambda data: cut(data, HEADER_BYTES),
    "cut in an entry": lambda data: cut(data, HEADER_BYTES + 3 * ENTRY_BYTES + 5),
    "half of its entries": lambda data: cut(data, HEADER_BYTES + 2 * ENTRY_BYTES),
    "another magic": lambda data: overwrite(data, 0, b"LWSEJIX9"),
    "of the layout before this one": lambda data: _in_layout_1(data),
    "of another segment": lambda data: overwrite(data, 8, b"\x01"),
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: random.Random(1).randbytes(len(data)),
    "noise after its header": lambda data: data[:HEADER_BYTES] + random.Random(2).randbytes(len(data)),
    "entries in another order": lambda data: _reordered(data),
    "entries twice": lambda data: data + data[HEADER_BYTES:],
    "an entry left out": lambda data: data[: HEADER_BYTES + ENTRY_BYTES] + data[HEADER_BYTES + 2 * ENTRY_BYTES :],
    "a valid entry for a place where no message is": lambda data: _forged(Entry(100, 12_345, 1000, 0, 900)),
    "a valid entry for another message": lambda data: _forged(Entry(100, 200 * MESSAGE_BYTES, 2000, 0, 1990)),
    "a valid entry after the end": lambda data: _forged(Entry(9000, 2**50, 1, 1, 1)),
    "a valid end before the end": lambda data: _forged(Entry(100, 100 * MESSAGE_BYTES, 0, 0, 5, is_end=True)),
    "a valid end with another last message": lambda data: _forged(Entry(3000, 3000 * MESSAGE_BYTES, 7, 7, 7, True)),
    "huge": lambda data: data + bytes(5_000_000),
}


def _reordered(data: bytes) -> bytes:
    entries = [data[at : at + ENTRY_BYTES] for at in range(HEADER_BYTES, len(data), ENTRY_BYTES)]
    return data[:HEADER_BYTES] + b"".join(reversed(entries))


def _forged(entry: Entry) -> bytes:
    return b"LWSEJIX2" + bytes(8) + entry.pack(0, 0)


def _in_layout_1(data: bytes) -> bytes:
    """40 bytes per entry, with the largest timestamp of all preceding messages."""
    found = b"LWSEJIX1" + bytes(8)
    for number in (PER_ENTRY, 2 * PER_ENTRY):
        fields = struct.pack("<QQqq", number, number * MESSAGE_BYTES, stamp(number), stamp(number - 1))
        found += fields + struct.pack("<II", zlib.crc32(fields, zlib.crc32(bytes(8))), 0)
    return found


@pytest.mark.parametrize("damage", BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_bad_index_only_slows_reading(journal: Path, damage: Callable[[bytes], bytes]) -> None:
    path = index_path(first_segment(journal))
    path.write_bytes(damage(path.read_bytes()))
    assert answers(journal) == EXPECTED
    with Writer(journal) as writer:
        assert writer.append(b"next") == COUNT


def test_index_is_loaded_once_for_many_times(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Segment] = []
    load = Index.load

    def counted(disk: Disk, segment: Segment, size: int) -> Index | None:
        loaded.append(segment)
        return load(disk, segment, size)

    monkeypatch.setattr(Index, "load", counted)
    reader = Reader(written)
    assert [reader.find_time(10 * number) for number in range(0, 1000, 100)] == list(range(0, 1000, 100))
    assert len(loaded) == len(set(loaded))


def test_index_torn_at_any_byte_only_slows_reading(journal: Path) -> None:
    path = index_path(first_segment(journal))
    whole = path.read_bytes()
    reader = Reader(journal)
    for damaged in torn_tails(whole, start=len(whole) - 2 * ENTRY_BYTES):
        path.write_bytes(damaged.data)
        assert reader.find_time(15_001) == 1500
        assert next(iter(reader.messages(2998, 2999))).offset == 2998


def test_index_older_than_its_segment_is_ignored(journal: Path) -> None:
    """Another program has cut the segment and has written other messages since."""
    segment = first_segment(journal)
    data = segment.path.read_bytes()
    with Writer(journal / "other") as writer:
        for number in range(3000):
            writer.append(bytes(VALUE_BYTES + 7), timestamp=7 * number)
    others = (journal / "other" / "jnl" / segment_name(0)).read_bytes()
    segment.path.write_bytes(others[: len(data)])
    reader = Reader(segment.path)
    assert [next(iter(reader.messages(start))).offset for start in (0, 900, 2500)] == [0, 900, 2500]
    assert reader.find_time(7 * 1234) == 1234


def test_reading_works_without_an_index(journal: Path) -> None:
    for path in (journal / "idx").iterdir():
        path.unlink()
    (journal / "idx").rmdir()
    assert answers(journal) == EXPECTED


# --- while it grows -------------------------------------------------------------------------------------------------


def test_writer_continues_the_index_of_an_earlier_one(tmp_path: Path) -> None:
    for session in range(6):
        with Writer(tmp_path) as writer:
            for number in range(1500):
                writer.append(bytes(VALUE_BYTES), timestamp=1500 * session + number)
    index = load(tmp_path)
    assert index is not None
    offsets = [entry.offset for entry in index.entries]
    gaps = [after - before for before, after in pairwise(offsets)]
    assert offsets[0] <= 2 * PER_ENTRY
    assert max(gaps) <= 3 * PER_ENTRY
    assert [entry.smallest for entry in index.entries] == [0, *offsets[:-1]]
    assert [entry.largest for entry in index.entries] == [offset - 1 for offset in offsets]


def test_writer_that_continues_at_an_entry_removes_later_ones(journal: Path) -> None:
    segment, index = first_segment(journal), load(journal)
    assert index is not None
    writer = IndexWriter.resume(REAL_DISK, segment, index, index.entries[1])
    assert writer is not None
    writer.close()
    assert index_path(segment).stat().st_size == HEADER_BYTES + 2 * ENTRY_BYTES
    again = load(journal)
    assert again is not None
    assert again.entries == index.entries[:2]


def test_checksum_of_an_entry_matches_the_layout() -> None:
    entry = Entry(7, 4096, -5, -6, 3)
    stored = struct.unpack_from("<I", entry.pack(9, 1000), 40)[0]
    assert stored == zlib.crc32(struct.pack("<QQQQqqq", 9, 1000, 7, 4096, -5, -6, 3))
