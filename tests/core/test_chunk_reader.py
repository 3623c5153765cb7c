"""Code that readers share: chunks cut at positions, numbers of files, progress over several files, modes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage, Span
from logwright.core.format import Located
from logwright.core.io.disk import REAL_DISK
from logwright.core.io.disk import File as DiskFile
from logwright.core.read.chunk import POSITION_BITS, FileChunk, NumberedFile
from logwright.core.read.chunk_reader import FilesReader, Shares
from logwright.core.read.report import Progress, Report, Summary
from logwright.errors import DamagedJournal, Gap, NotFound, WrongUse


@dataclass(frozen=True, slots=True)
class File(NumberedFile):
    name: str
    path: Path
    timestamp: int | None = None
    before: int = 0


@dataclass(slots=True)
class Chunk(FileChunk):
    """Records of four bytes each."""

    source: File
    data: bytes
    start: int
    stop: int
    position: int
    count: int

    def starts(self) -> list[int]:
        return [self.base + at for at in range(self.start, self.stop + 1, 4)]


class Cursor:
    """Returns two records at a time. `XX` in place of a record can be skipped; other bytes than four cannot."""

    def __init__(self, source: File, file: DiskFile) -> None:
        self.source = source
        self.data = file.read_at(0, 1000)
        self.position = 0

    def read(self) -> Chunk | None:
        start = self.position
        bad = self.data.find(b"XX", start)
        end = min(start + 8, bad if bad >= 0 else len(self.data))
        count = (end - start) // 4
        self.position += 4 * count
        return Chunk(self.source, self.data, start, self.position, start, count) if count else None


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    start, size = cursor.position, len(cursor.data)
    if start == size:
        return None, False
    cursor.position = start + 2 if cursor.data.startswith(b"XX", start) else size
    kind = "torn_tail" if cursor.position == size and cursor.source.is_newest else "malformed"
    return Damage(cursor.source.name, start, cursor.position, "it is cut short", kind), cursor.position < size


class Reader(FilesReader[Chunk, File, bytes]):
    """A journal of records of four bytes; a file that ends with another number of bytes is damaged there."""

    part_name = "list"

    def summarize(self) -> Summary:
        raise NotImplementedError

    def verify(self, *, progress: Progress | None = None) -> Report:
        raise NotImplementedError

    def state(self, at: int | None = None) -> object:
        raise NotImplementedError

    def as_json(self, located: Located) -> dict[str, object]:
        raise NotImplementedError

    def __init__(self, path: Path, files: list[File]) -> None:
        self.path = path
        self.disk = REAL_DISK
        self._files = files
        self._single = False

    @property
    def part(self) -> str:
        return self.path.name

    def files(self) -> list[File]:
        return self._files

    def file_chunks(self, source: File, file: DiskFile, start: int | None, stop: int | None, *rest: Any) -> Any:
        return self.cursor_chunks(Cursor(source, file), judge, *source.positions(start, stop), *rest)

    def decoded(self, chunk: Chunk) -> list[Any]:
        return [chunk.data[at : at + 4] for at in range(chunk.start, chunk.stop, 4)]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """`list.7` with two records, and `list` with three records and a torn tail."""
    (tmp_path / "list.7").write_bytes(b"oneatwoa")
    (tmp_path / "list").write_bytes(b"oneb" + b"twob" + b"thrb" + b"fo")
    older, newest = File("list.7", tmp_path / "list.7", 7), File("list", tmp_path / "list", None, 7)
    return Reader(tmp_path / "list", [older, newest])


FIRST_OF_NEWEST = 7 << POSITION_BITS


def test_record_keeps_its_number_when_its_file_is_renamed() -> None:
    newest, rotated = File("list", Path("list"), None, 7), File("list.9", Path("list.9"), 9, 7)
    assert newest.first_number == rotated.first_number == FIRST_OF_NEWEST
    assert (newest.is_newest, rotated.is_newest) == (True, False)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, None, (100, 4)),
        (100, 116, (100, 4)),
        (101, None, (104, 3)),
        (104, 112, (104, 2)),
        (0, 105, (100, 2)),
        (0, 100, None),
        (116, None, None),
        (105, 108, None),
    ],
)
def test_chunk_is_cut_where_records_begin(low: int, high: int | None, wanted: tuple[int, int] | None) -> None:
    chunk = Chunk(File("list", Path("list")), bytes(30), 5, 21, 100, 4)
    part = chunk.within(low, high)
    assert (None if part is None else (part.position, part.count)) == wanted
    if part is not None:
        assert (part.base, part.end - part.position) == (95, 4 * part.count)


def test_records_are_read_in_order_with_their_positions(reader: Reader) -> None:
    assert list(reader) == [b"onea", b"twoa", b"oneb", b"twob", b"thrb"]
    assert list(reader.scan())[2] == Located(b"oneb", "list", Span(0, 4))
    assert reader.torn_tail == Damage("list", 12, 14, "it is cut short", "torn_tail")


def test_range_of_numbers_may_begin_and_end_within_files(reader: Reader) -> None:
    assert list(reader.records(4, FIRST_OF_NEWEST + 5)) == [b"twoa", b"oneb", b"twob"]
    assert list(reader.records(FIRST_OF_NEWEST + 1)) == [b"twob", b"thrb"]
    assert reader.count(4) == 4


def test_numbers_and_positions_convert_to_each_other(reader: Reader) -> None:
    assert reader.first == 0
    assert [reader.number_of(item) for item in reader.scan(FIRST_OF_NEWEST) if isinstance(item, Located)] == [
        ("list", FIRST_OF_NEWEST + at) for at in (0, 4, 8)
    ]
    assert reader.find_place("list @ 4") == FIRST_OF_NEWEST + 4
    assert reader.find_place("list.7@4") == 4
    with pytest.raises(NotFound, match=r"list\.8: no such file of the list list"):
        reader.find_place("list.8@4")
    with pytest.raises(WrongUse, match="such as list@0"):
        reader.find_place("somewhere")


def test_damage_is_reported_according_to_the_mode(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "list.7").write_bytes(b"oneatw")
    damage = Damage("list.7", 4, 6, "it is cut short")
    with pytest.raises(DamagedJournal, match=r"list\.7 @ 4: it is cut short"):
        list(reader)
    torn = Damage("list", 12, 14, "it is cut short", "torn_tail")
    assert list(reader.records(mode="permissive")) == [b"onea", damage, b"oneb", b"twob", b"thrb", torn]
    assert list(reader.records(mode="dropmalformed")) == [b"onea", b"oneb", b"twob", b"thrb"]
    reported: list[Damage] = []
    assert reader.count(on_damage=reported.append) == 4
    assert reported == [damage, torn]


def test_gap_raises_its_own_error(reader: Reader) -> None:
    with pytest.raises(Gap):
        list(reader.report(Damage("list", 0, 0, "something is missing", "gap"), "failfast"))


def test_damage_belongs_to_the_range_that_contains_it(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"onebXXtwobXXthrb")
    first, second = (Damage("list", at, at + 2, "it is cut short") for at in (4, 10))

    def between(start: int, stop: int | None = None) -> list[Any]:
        last = None if stop is None else FIRST_OF_NEWEST + stop
        return list(reader.records(FIRST_OF_NEWEST + start, last, mode="permissive"))

    assert between(0) == [b"oneb", first, b"twob", second, b"thrb"]
    assert (between(0, 6), between(6, 12), between(12)) == ([b"oneb", first], [b"twob", second], [b"thrb"])
    assert (between(0, 4), between(5, 10)) == ([b"oneb"], [first, b"twob"])


def test_next_number_follows_the_last_record(reader: Reader) -> None:
    assert reader.next == FIRST_OF_NEWEST + 12
    reader.files().pop()
    assert reader.next == FIRST_OF_NEWEST  # anything that is appended goes to a new file
    reader.files().pop()
    assert reader.next == 0


def test_last_records_are_read_from_as_many_files_as_needed(reader: Reader) -> None:
    assert [item.record for item in reader.last(2)] == [b"twob", b"thrb"]
    assert reader.last(4) == [item for item in reader.scan() if isinstance(item, Located)][1:]
    assert (len(reader.last(0)), len(reader.last(100))) == (0, 5)
    with pytest.raises(WrongUse, match="cannot give the last -1 records"):
        reader.last(-1)


def test_progress_runs_once_from_zero_to_all_bytes(reader: Reader) -> None:
    seen: list[tuple[int, int]] = []
    list(reader.scan(progress=lambda done, total: seen.append((done, total))))
    assert seen == [(8, 22), (16, 22), (20, 22)]
    assert reader.total_bytes() == 22


def test_growing_file_is_not_counted_twice() -> None:
    seen: list[tuple[int, int]] = []
    share = Shares(lambda done, total: seen.append((done, total)), [10, 20]).of(0)
    assert share is not None
    share(4)
    share(400)
    assert seen == [(4, 30), (10, 30)]
    assert Shares(None, []).of(3) is None
