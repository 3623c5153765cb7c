"""A sej journal and programs that remove its lock files: a closing Go writer first unlocks, then removes the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.lock import Lock
from logwright.errors import Locked, Poisoned, WrongUse
from logwright.sej.bytes.layout import LOCK_NAME, segment_name
from logwright.sej.files.offset_file import stored_offset
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from logwright.sej.files.writer import Writer
from logwright.sej.model.copying import CopyWriter, Feed
from logwright.sej.model.offset import Offset
from logwright.sej.model.shard_writer import ShardedWriter
from tests.sej.samples import make_journal, offsets_of
from tests.support.damage import cut, damage_file

VANISHED = "jnl.lck was removed or replaced by another program"


def replace_lock(directory: Path) -> None:
    """The calls of a Go writer that closes while ours opens, and of the next one that opens."""
    (directory / LOCK_NAME).unlink()
    (directory / LOCK_NAME).touch()


@pytest.mark.parametrize("lose", [replace_lock, lambda directory: (directory / LOCK_NAME).unlink()])
def test_nothing_is_written_after_the_lock_file_is_removed(journal_directory: Path, lose: object) -> None:
    make_journal(journal_directory, 3)
    writer = Writer(journal_directory)
    writer.append(b"in the buffer")
    assert callable(lose)
    lose(journal_directory)
    with pytest.raises(Locked, match=VANISHED):
        writer.flush()
    with pytest.raises(Poisoned):
        writer.append(b"more")
    writer.close()
    assert offsets_of(Reader(journal_directory)) == [0, 1, 2]


def test_append_is_not_acknowledged_if_the_lock_file_is_removed_during_its_sync(journal_directory: Path) -> None:
    make_journal(journal_directory, 3)
    writer = Writer(journal_directory)
    writer.append(b"written")
    writer.flush()
    replace_lock(journal_directory)
    with pytest.raises(Locked, match=VANISHED):
        writer.sync()
    writer.close()


def test_writer_with_sync_always_detects_it_at_once(journal_directory: Path) -> None:
    writer = Writer(journal_directory, sync="always")
    writer.append(b"first")
    replace_lock(journal_directory)
    with pytest.raises(Locked, match=VANISHED):
        writer.append(b"second")
    writer.close()
    assert offsets_of(Reader(journal_directory)) == [0]


def test_shards_and_copies_detect_a_removed_lock_file(tmp_path: Path) -> None:
    sharded = ShardedWriter(tmp_path / "root", "", 1)
    sharded.append(b"value", key=b"key")
    (name,) = [path.name for path in (tmp_path / "root").iterdir()]
    replace_lock(tmp_path / "root" / name)
    with pytest.raises(Locked, match=VANISHED):
        sharded.flush()
    source = make_journal(tmp_path / "source", 5)
    copy = CopyWriter(tmp_path / "copy")
    replace_lock(tmp_path / "copy")
    with Feed(source) as feed:
        batch = feed.read()
        assert batch is not None
        with pytest.raises(Locked, match=VANISHED):
            copy.write(batch)
    copy.close()


def test_buffered_appends_do_not_check_the_lock_file(journal_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Lock] = []
    monkeypatch.setattr(Lock, "check", lambda lock: looks.append(lock))
    with Writer(journal_directory) as writer:
        for _ in range(100):
            writer.append(b"value")
        assert looks == []
        writer.flush()
        assert len(looks) == 1, "before the write; a sync looks again after it"


def test_writer_continues_after_its_directory_was_renamed(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"first")
        (tmp_path / "journal").rename(tmp_path / "other")
        writer.append(b"second")
        writer.sync()
    assert [message.value for message in Reader(tmp_path / "other")] == [b"first", b"second"]


def test_offset_is_not_committed_after_its_lock_file_is_removed(journal_directory: Path) -> None:
    make_journal(journal_directory, 3)
    with Offset(journal_directory, "reader") as offset:
        offset.commit(1)
        (journal_directory / "ofs" / "reader.lck").unlink()
        with pytest.raises(Locked, match=r"reader\.lck was removed or replaced"):
            offset.commit(2)
        with pytest.raises(Poisoned):
            offset.commit(2)
    assert stored_offset(REAL_DISK, journal_directory, "reader") == 1


# --- a repair that was interrupted ----------------------------------------------------------------------------------


def interrupt(home: Path) -> None:
    """Leave a repair as if it had been killed before its last step was counted."""
    repair = apply(home, plan(home))
    assert repair is not None
    repair.state, repair.done = "applying", 0
    repair.save(REAL_DISK)


def test_writer_does_not_open_a_half_repaired_journal(journal_directory: Path) -> None:
    make_journal(journal_directory, 25)
    damage_file(journal_directory / "jnl" / segment_name(20), cut, 150)
    interrupt(journal_directory)
    with pytest.raises(WrongUse, match="a repair of this journal was interrupted; `logwright repair` finishes it"):
        Writer(journal_directory)
    undo(journal_directory)
    Writer(journal_directory).close()


def test_writer_does_not_open_a_shard_of_a_half_repaired_root(tmp_path: Path) -> None:
    for index in range(2):
        make_journal(tmp_path / f"blue.1.00{index}", 25)
    damage_file(tmp_path / "blue.1.001" / "jnl" / segment_name(20), cut, 150)
    interrupt(tmp_path)
    with pytest.raises(WrongUse, match="was interrupted"):
        Writer(tmp_path / "blue.1.001")
    Writer(tmp_path / "blue.1.000").close()
    undo(tmp_path)
    Writer(tmp_path / "blue.1.001").close()
