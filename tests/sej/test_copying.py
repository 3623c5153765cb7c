"""Copying a journal in batches: the same files, whatever the sizes; and the files of a writer that was not closed."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import TooLarge, WrongUse
from logwright.sej import Reader, Writer
from logwright.sej.bytes.layout import MAX_OFFSET
from logwright.sej.model.copying import Batch, CopyWriter, Feed, find_difference
from tests.support.trees import differences, read_tree


def write(directory: Path, count: int, segment_size: int) -> None:
    chance = random.Random(count)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            writer.append(chance.randbytes(chance.randrange(80)), b"key", number % 256, number or None)


def batches(directory: Path, batch_bytes: int) -> list[Batch]:
    found = []
    with Feed(directory, batch_bytes=batch_bytes) as feed:
        while (batch := feed.read()) is not None:
            found.append(replace(batch, frames=bytes(batch.frames)))
    return found


def unlike(source: Path, copy: Path) -> list[str]:
    return differences(read_tree(REAL_DISK, source / "jnl"), read_tree(REAL_DISK, copy / "jnl"))


@pytest.mark.parametrize(("segment_size", "batch_bytes"), [(300, 1), (300, 250), (1500, 700), (1 << 30, 1 << 20)])
def test_batches_make_the_same_files_and_those_without_segments_roll_by_size(
    segment_size: int, batch_bytes: int, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    write(source, 60, segment_size)
    found = batches(source, batch_bytes)
    assert sum(batch.count for batch in found) == 60
    with (
        CopyWriter(tmp_path / "named") as named,
        CopyWriter(tmp_path / "by-size", segment_size=segment_size) as by_size,
    ):
        for batch in found:
            named.write(batch)
            by_size.write(replace(batch, segment=None))
    assert unlike(source, tmp_path / "named") == []
    assert unlike(source, tmp_path / "by-size") == []
    assert not (tmp_path / "named" / ".logwright" / "copying").exists()


def test_difference_is_found_at_its_offset_and_existing_messages_are_skipped(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, 20, 1 << 30)
    (batch,) = batches(source, 1 << 20)
    reader = Reader(source)
    assert find_difference(reader, batch, 20) is None
    assert batch.from_offset(20).frames == b""
    assert (batch.from_offset(7).first_offset, batch.from_offset(7).count) == (7, 13)
    spans = [item.span for item in reader.scan()]
    for offset in (0, 9, 19):
        changed = bytearray(batch.frames)
        changed[spans[offset].end - 5] ^= 1
        assert find_difference(reader, replace(batch, frames=changed), 20) == offset
        assert find_difference(reader, replace(batch, frames=changed), offset) is None


def test_batch_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    empty = Batch(b"", 5, 0, 0, 0, None)
    with CopyWriter(tmp_path / "copy") as writer, pytest.raises(WrongUse, match="offset 5 does not follow 0"):
        writer.write(empty)
    with CopyWriter(tmp_path / "end", first_offset=MAX_OFFSET) as writer, pytest.raises(TooLarge):
        writer.write(Batch(b"", MAX_OFFSET, 1, 0, 0, None))


@pytest.mark.parametrize("hole", ["first", "later"])
def test_hole_in_unsynced_bytes_is_cut_with_everything_after_it(
    hole: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")
    source, copy = tmp_path / "source", tmp_path / "copy"
    write(source, 200, 1 << 30)
    found = batches(source, 1000)
    with CopyWriter(copy) as writer:
        writer.write(found[0])
    killed = CopyWriter(copy)
    for batch in found[1:]:
        killed.write(batch)
    killed._lock.release()  # as a crash would
    path = copy / "jnl" / f"{0:016x}.jnl"
    data = bytearray(path.read_bytes())
    start = len(found[0].frames) if hole == "first" else len(found[0].frames) + len(found[1].frames)
    data[start : start + 60] = bytes(60)
    path.write_bytes(data)
    with CopyWriter(copy) as writer:
        assert writer.next_offset == found[1 if hole == "first" else 2].first_offset
        assert writer.kept is not None
        assert writer.kept.read_bytes() == bytes(data[start:])
        for batch in found:
            if batch.first_offset >= writer.next_offset:
                writer.write(batch)
    assert unlike(source, copy) == []
    killed._poison(OSError("it is gone"))
    killed.close()
