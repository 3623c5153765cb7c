"""Where a stream of a queue resumes: after the operations that it has read, or after removed ones, which it reports."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import NotFound
from logwright.kestrel import Queue
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.tables.splits import SPLITS
from tests.kestrel.journals import lively_operations
from tests.kestrel.samples import addx, confirm, encoded, write


def resume(path: Path, number: int, mark: str) -> tuple[int, str]:
    return SPLITS.resume(Reader(path), "cars", number, mark)


def mark(path: Path, number: int) -> str:
    return SPLITS.mark(Reader(path), "cars", number)


def test_stream_resumes_after_its_file_was_rotated(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), addx(b"B"))
    known = mark(path, 22)
    assert len(known) == 24
    assert mark(path, 0) == ""
    with Writer(path) as writer:
        rotated = writer.rotate()
        assert resume(path, 44, mark(path, 44)) == (44, "")
        writer.addx(b"C")
    assert resume(path, 22, known) == (22, "")
    assert resume(path, rotated << 64, "") == (rotated << 64, "")


def test_stream_resumes_after_a_pack_of_unread_operations(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), addx(b"B"))
    numbers = [0, 22, 44]
    marks = [mark(path, number) for number in numbers]
    with Writer(path) as writer:
        writer.remove()
        first = writer.rotate()
        writer.addx(b"C")
        second = writer.rotate()
        writer.addx(b"D")
        writer.pack()
    assert resume(path, 0, marks[0]) == (0, ""), "nothing was read, so the pack is what there is to be read"
    for number, known in zip(numbers[1:], marks[1:], strict=True):
        following, reason = resume(path, number, known)
        assert following == second << 64
        assert reason.startswith(f"records from {number} on (position {number} of the file that was the first) were")
        assert "was packed" in reason
    following, reason = resume(path, (first << 64) + 5, "")
    assert following == second << 64
    assert f"position 5 of the file after number {first}" in reason
    assert resume(path, second << 64, "") == (second << 64, "")


def test_stream_resumes_at_a_pack_without_a_following_file(tmp_path: Path) -> None:
    path = tmp_path / "cars"
    write(tmp_path / "cars.50", addx(b"A"))
    assert resume(path, 50 << 64, "") == (50 << 64, "")
    following, reason = resume(path, 7 << 64, "")
    assert (following, bool(reason)) == (50 << 64, True)


def test_rewritten_newest_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", default_journal_bytes=100) as queue:
        queue.put_many([b"%d" % number for number in range(20)])
        queue.sync()
        at = Reader(tmp_path / "cars").next
        known = mark(tmp_path / "cars", at)
        while queue.get(timeout=0) is not None:
            pass
        queue.sync()
    following, reason = resume(tmp_path / "cars", at, known)
    assert (following, "was rewritten" in reason) == (0, True)
    write(tmp_path / "cars", *[addx(b"%d" % number) for number in range(100)])
    assert resume(tmp_path / "cars", at, known)[0] == 0, "also when the new file is longer than that"


@pytest.mark.parametrize("rotated", [False, True])
def test_stream_reports_operations_rewritten_before_they_were_read(tmp_path: Path, rotated: bool) -> None:
    path = tmp_path / "cars"
    with Writer(path) as writer:
        for number in range(10):
            writer.addx(b"%d" % number)
        if rotated:
            writer.rotate()
        writer.flush()
        at = Reader(path).next
        known = mark(path, at)
        if not rotated:
            for _ in range(3):
                writer.remove()
            writer.addx(b"A" * 100)
        writer.addx(b"z")
        writer.rewrite()
        expected = writer.last_timestamp << 64
        writer.addx(b"after")
    following, reason = resume(path, at, known)
    assert (following, "were removed before they were read" in reason) == (expected, True)
    assert [item.data for item in Reader(path).records(following)] == [b"after"]


def test_split_of_changed_bytes_raises_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), addx(b"B"))
    (split,) = SPLITS.plan(Reader(path))
    with Writer(path) as writer:
        writer.remove()
        writer.rewrite()
    with pytest.raises(NotFound, match="was packed or rewritten"):
        list(SPLITS.chunks(Reader(path), split))


@pytest.mark.parametrize("seed", range(5))
def test_advance_counts_operations(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    operations = lively_operations(dice, "documented", 60)
    write(tmp_path / "cars.50", *operations[:25])
    path = write(tmp_path / "cars", *operations[25:], tail=encoded([confirm(1)])[:-1])
    reader: Any = Reader(path)
    number, last = SPLITS.extent(reader)["cars"]
    found = []
    while number < last:
        most = dice.randrange(1, 9)
        following, count = SPLITS.advance(reader, "cars", number, last, most)
        assert count == most or following == last
        found += list(reader.operations(number, following))
        number = following
    assert found == operations
