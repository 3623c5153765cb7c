"""The inventory of a journal: its files and its consumers, whatever their state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, RealDisk
from logwright.core.read.splits import ConsumerEntry, FileEntry, Inventory
from logwright.sej import Offset, ShardedWriter, Writer, clean, open_reader, reset
from logwright.sej.tables.splits import SPLITS
from tests.sej.samples import GOLDEN, MESSAGE_BYTES, make_journal


def taken(path: Path, **options: Any) -> Inventory:
    with open_reader(path, **options) as reader:
        return SPLITS.inventory(reader)


def name_of(first: int) -> str:
    return f"jnl/{first:016x}.jnl"


def test_files_have_their_size_and_their_messages_the_last_may_be_empty(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    found = taken(journal)
    assert found.consumers == []
    assert found.files == [
        FileEntry("", name_of(0), 10 * MESSAGE_BYTES, 0, 10),
        FileEntry("", name_of(10), 10 * MESSAGE_BYTES, 10, 20),
        FileEntry("", name_of(20), 5 * MESSAGE_BYTES, 20, 25),
    ]
    make_journal(journal, 5)
    assert taken(journal).files[-1] == FileEntry("", name_of(30), 0, 30, 30)
    with Writer(tmp_path / "new"):
        pass
    assert taken(tmp_path / "new").files == [FileEntry("", name_of(0), 0, 0, 0)]


def test_single_file_is_a_journal_of_one_file_without_consumers(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 15)
    Offset(journal, "billing").close()
    found = taken(journal / name_of(10))
    assert found == Inventory([FileEntry("", f"{10:016x}.jnl", 5 * MESSAGE_BYTES, 10, 15)], [])


def test_consumers_have_their_committed_offset(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    Offset(journal, "new").close()
    reset(journal, "early", 3, create=True)
    reset(journal, "done", "last", create=True)
    (journal / "ofs" / "broken.ofs").write_bytes(b"\x00\x01\x02")
    (journal / "ofs" / "huge.ofs").write_bytes(b"\xff" * 8)
    (journal / "ofs" / "no offset").write_bytes(b"")
    broken, done, early, huge, new = taken(journal).consumers
    assert done == ConsumerEntry("", "done", 25, 0, 25)
    assert early == ConsumerEntry("", "early", 3, 0, 25)
    assert huge == ConsumerEntry("", "huge", (1 << 64) - 1, 0, 25)
    assert new == ConsumerEntry("", "new", None, 0, 25)
    assert (broken.consumer, broken.offset) == ("broken", None)
    assert broken.problem == "ofs/broken.ofs @ 0: an offset file has 0 or 8 bytes, this one has 3"


def test_removed_segments_are_absent_and_consumers_may_precede_the_first(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    reset(journal, "late", 22, create=True)
    clean(journal, max_bytes=1)
    reset(journal, "slow", 4, create=True)
    found = taken(journal)
    assert [file.first for file in found.files] == [20]
    assert found.consumers == [ConsumerEntry("", "late", 22, 20, 25), ConsumerEntry("", "slow", 4, 20, 25)]


def test_shards_are_parts_and_their_files_have_the_shard_in_their_name(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", "web", 1) as writer:
        for number in range(20):
            writer.append(b"v", b"%d" % number)
    shards = {f"web.1.00{index}": tmp_path / "root" / f"web.1.00{index}" for index in (0, 1)}
    reset(shards["web.1.001"], "billing", "last", create=True)
    found = taken(tmp_path / "root")
    assert [(file.part, file.file) for file in found.files] == [(part, f"{part}/{name_of(0)}") for part in shards]
    assert sum(file.next or 0 for file in found.files) == 20
    (consumer,) = found.consumers
    assert (consumer.part, consumer.offset) == ("web.1.001", found.files[1].next)


def test_damage_does_not_stop_the_inventory(tmp_path: Path) -> None:
    torn = make_journal(tmp_path / "torn", 15)
    path = torn / name_of(10)
    path.write_bytes(path.read_bytes()[:-7])
    assert taken(torn).files[-1] == FileEntry("", name_of(10), 5 * MESSAGE_BYTES - 7, 10, 14)
    gap = make_journal(tmp_path / "gap", 35)
    (gap / name_of(10)).unlink()
    assert [(file.first, file.next) for file in taken(gap).files] == [(0, 20), (20, 30), (30, 35)]
    for case in sorted(path.parent for path in GOLDEN.glob("*/sej")):
        assert all((file.next or 0) >= (file.first or 0) for file in taken(case / "sej").files), case


class ShrinkingDisk(RealDisk):
    """A disk on which another process removes a shard right before its segments are listed."""

    def list_directory(self, path: Path) -> list[str]:
        if path.parent.name == "1.001":
            shutil.rmtree(path.parent, ignore_errors=True)
        return super().list_directory(path)


def test_shard_removed_during_listing_is_skipped(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=1) as writer:
        for number in range(20):
            writer.append(b"v", b"%d" % number)
    assert [file.part for file in taken(tmp_path / "root", disk=ShrinkingDisk()).files] == ["1.000"]


class VanishingDisk(RealDisk):
    """A disk on which another process removes a file right before its size is read."""

    def file_size(self, path: Path) -> int:
        if path.name == f"{10:016x}.jnl":
            path.unlink(missing_ok=True)
        return super().file_size(path)


def test_segment_removed_during_listing_is_skipped(tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "journal", 25)
    assert [file.first for file in taken(journal, disk=VanishingDisk()).files] == [0, 20]
    with pytest.raises(FileNotFoundError):
        REAL_DISK.file_size(journal / name_of(10))
