"""Where the entries of a journal end, why, and the entries after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.versioned.bytes import codec
from logwright.versioned.bytes.layout import ENTRY_START
from logwright.versioned.files.buffer import LEAST_BYTES, MARK, MARK_MAGIC, SECTOR_BYTES, Buffer, Mark, mark_at
from logwright.versioned.model import ending
from logwright.versioned.model.ending import Ending, is_blank, later_entries, read_ending
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file
from tests.versioned.stores import journal

PATH = Path("/cars.jrn")
ENTRIES = [(1001, "a", 1), (1002, "b", "two")]
END = len(journal(ENTRIES))


def on_a_disk(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    write_file(disk, PATH, data)
    return disk


def ending_of(data: bytes) -> Ending:
    disk = on_a_disk(data)
    found = read_ending(disk, PATH)
    assert found is not None
    assert disk.open_files == 0
    return found


@pytest.mark.parametrize(
    ("mark", "reason", "is_doubtful"),
    [
        (None, "", False),
        (Mark(END, False), "", False),
        (Mark(END + 1, False), "", True),
        (Mark(END - 1, False), "", False),
        (None, "something", True),
    ],
)
def test_ending_is_doubtful_for_a_reason_or_if_the_mark_is_after_it(
    mark: Mark | None, reason: str, is_doubtful: bool
) -> None:
    assert Ending(1000, END, mark, END, 2, reason).is_doubtful == is_doubtful


def test_whole_journal_ends_at_its_position() -> None:
    assert ending_of(journal(ENTRIES)) == Ending(1000, END, None, END, 2)
    data = bytearray(journal(ENTRIES, size=LEAST_BYTES))
    MARK.pack_into(data, mark_at(LEAST_BYTES), MARK_MAGIC, END)
    assert ending_of(bytes(data)) == Ending(1000, END, Mark(END, False), END, 2)


def test_ending_before_the_position_has_a_reason() -> None:
    start = len(journal(ENTRIES[:1]))
    data = bytearray(journal(ENTRIES))
    data[start] = 0
    found = ending_of(bytes(data))
    explained = codec.explain(bytes(data), start, END)
    assert (found.end, found.count) == (start, 1)
    assert found.reason == f"entries end before the position, {END}: {explained}"
    assert "sector" not in explained
    found = ending_of(journal(ENTRIES, position=END + 9))
    assert (found.end, found.reason) == (END, f"the position is {END + 9}, and the file has {END} bytes")


def test_entry_that_lacks_a_sector_is_not_taken() -> None:
    data = bytearray(journal([*ENTRIES, (1003, "c", "x" * 2000)], size=LEAST_BYTES + 4 * SECTOR_BYTES))
    end = len(journal([*ENTRIES, (1003, "c", "x" * 2000)]))
    at = END + 50 + -(END + 50) % SECTOR_BYTES
    data[at : at + SECTOR_BYTES] = bytes(SECTOR_BYTES)
    MARK.pack_into(data, mark_at(len(data)), MARK_MAGIC, END)
    found = ending_of(bytes(data))
    assert (found.end, found.count) == (END, 2)
    assert found.reason == f"entries end before the position, {end}: a sector of it is missing"


def test_file_that_does_not_begin_as_a_journal_has_no_ending() -> None:
    for data in (b"", b"text", journal(ENTRIES)[:10], bytes(100)):
        assert read_ending(on_a_disk(data), PATH) is None


@pytest.mark.parametrize(
    ("data", "blank"), [(b"", True), (bytes(4096), True), (bytes(4095) + b"x", False), (journal([]), False)]
)
def test_blank_journal_has_nothing_but_zeros(data: bytes, blank: bool) -> None:
    assert is_blank(on_a_disk(data), PATH) == blank


def test_journal_with_a_header_is_not_searched_for_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "last_byte", lambda *_: pytest.fail("it may be large"))
    assert not is_blank(on_a_disk(journal([])), PATH)


def test_entries_after_a_place_are_found_wherever_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (codec.pack_entry(*entry) for entry in [*ENTRIES, (1003, "c", None)])
    buffer = Buffer.open(on_a_disk(first + b"?" + second + third + b"!" + ENTRY_START * 3), PATH)
    try:
        end = buffer.size

        def keys(start: int, end: int) -> list[str | None]:
            return [None if entry is None else entry.k for entry in later_entries(buffer, start, end)]

        begins = len(first) + 1
        assert keys(0, end) == ["b", "c"]
        assert keys(begins - 1, end) == ["b", "c"]
        assert keys(begins, end) == ["c"]
        assert keys(begins, begins + len(second) + len(third) - 1) == []
        monkeypatch.setattr(ending, "_MOST_ATTEMPTS", 3)
        assert keys(0, end) == ["b", "c", None]
        monkeypatch.setattr(ending, "_MOST_ATTEMPTS", 4)
        assert keys(0, end) == ["b", "c"]
    finally:
        buffer.close()
