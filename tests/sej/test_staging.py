"""The parts of staging that only sej has; `tests/contract` covers the common parts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.io.lock import Lock
from logwright.core.publish.staging import Published, publish, recover_staging
from logwright.errors import DamagedJournal, WrongUse
from logwright.sej import Reader, ShardedWriter, Writer
from logwright.sej.tables.staging import ShardsTarget, Stage
from tests.contract.staging import QUERY, ROOT, STAGING
from tests.sej.staging_subject import SejStaging, row_of
from tests.support.trees import Tree, read_tree, write_file

SEJ = SejStaging()
TARGET, FIRST, NONE, ALL = SEJ.target, SEJ.first, SEJ.none, SEJ.everything
rows_of, stage, journals, publish_two = SEJ.rows, SEJ.stage, SEJ.contents, SEJ.publish_two


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize(("prefix", "bit"), [("", 0), ("web", 0), ("", 2), ("web", 3)])
def test_files_equal_those_of_a_writer(tmp_path: Path, prefix: str, bit: int, checksums: bool) -> None:
    target = ShardsTarget(prefix, bit, segment_size=3000, checksums=checksums)
    for number in range(3):
        with ShardedWriter(tmp_path / "written", prefix, bit, segment_size=3000, checksums=checksums) as writer:
            for row in (*rows_of(2 * number, 30), *rows_of(2 * number + 1, 20)):
                writer.append(*row)
        run = f"run-{number}"
        late = stage(REAL_DISK, run, 11, rows_of(2 * number + 1, 20), root=tmp_path / "published", target=target)
        early = stage(REAL_DISK, run, 2, rows_of(2 * number, 30), root=tmp_path / "published", target=target)
        done = publish(tmp_path / "published", run, [late, early], target)
        assert (done.records, done.already) == (50, False)
    assert segments(tmp_path / "published") == segments(tmp_path / "written")
    assert read_tree(REAL_DISK, tmp_path / "published" / ".logwright") == {"staging": None, "staging/sink.lck": b""}


def segments(root: Path) -> Tree:
    return {name: data for name, data in read_tree(REAL_DISK, root).items() if "jnl/" in name}


def test_first_offset_in_each_shard_is_returned() -> None:
    disk = SEJ.with_journals()
    assert publish_two(disk) == Published(14, {name: len(rows) for name, rows in NONE.items()})
    assert journals(disk) == ALL


def test_message_without_a_timestamp_keeps_none_and_one_without_the_column_gets_the_time() -> None:
    disk = SEJ.empty()
    task = Stage(ROOT, "run", 0, ShardsTarget(), disk=disk)
    task.append_batch(pa.record_batch({"value": [b"a"], "timestamp": pa.array([None], pa.int64())}))
    task.append_batch(pa.record_batch({"value": ["b"]}))
    publish(ROOT, "run", [task.finish()], ShardsTarget(), disk=disk)
    first, second = Reader(ROOT, disk=disk)
    assert (first.value, first.timestamp, second.value) == (b"a", None, b"b")
    assert second.timestamp is not None


def test_another_number_of_shards_is_refused() -> None:
    disk = SEJ.with_journals()
    target = ShardsTarget("web", 2)
    staged = stage(disk, "run", 0, FIRST, target=target)
    with pytest.raises(WrongUse, match="has shards of bit 1"):
        publish(ROOT, "run", [staged], target, disk=disk)
    assert journals(disk) == NONE


class ForeignWriter(Writer):
    """A file as written by a program that knows segments and locks, but nothing else."""

    def __init__(self, home: Path, *, disk: Disk, segment_size: int) -> None:
        self._held_lock = Lock.acquire(disk, home / "jnl.lck")
        super().__init__(home, disk=disk, segment_size=segment_size)


def test_messages_added_by_a_foreign_writer_before_recovery_do_no_harm() -> None:
    disk = SEJ.with_journals()
    publish_two(disk)
    row = (b"of another", b"key", 0, 5)
    for state in disk.process_kills(format="sej"):
        for shard in NONE:
            with ForeignWriter(ROOT / shard, disk=state, segment_size=2000) as writer:
                writer.append(*row)
        recover_staging(ROOT, disk=state)
        publish_two(state, run="again")
        found = journals(state)
        assert {name: rows.count(row) for name, rows in found.items()} == dict.fromkeys(NONE, 1), state.story
        assert {name: [one for one in rows if one != row] for name, rows in found.items()} == ALL, state.story


def test_journal_that_was_cleaned_before_the_recovery_is_not_guessed_at() -> None:
    disk = SEJ.committed()
    folder = ROOT / sorted(NONE)[0] / "jnl"
    for name in disk.list_directory(folder):
        disk.remove(folder / name)
    write_file(disk, folder / f"{1000:016x}.jnl", b"")
    with pytest.raises(DamagedJournal, match="it is unknown how much of it was in place"):
        recover_staging(ROOT, disk=disk)


def test_root_itself_may_be_the_pending_journal() -> None:
    for prefix, home in (("", ROOT), ("web", ROOT / "web")):
        target = ShardsTarget(prefix, 0)
        disk = SEJ.empty()
        publish(ROOT, "run", [stage(disk, "run", 0, FIRST, target=target)], target, QUERY, disk=disk)
        killed = next(state for state in disk.process_kills(format="") if state.exists(STAGING / "run.manifest"))
        with Writer(home, disk=killed) as writer:
            assert writer.next_offset == len(FIRST)
        assert [row_of(message) for message in Reader(home, disk=killed)] == FIRST


def test_hole_left_by_a_power_cut_is_filled_from_staged_files() -> None:
    """Any sector of unsynced bytes may be missing, even one that precedes complete messages."""
    rows = rows_of(5, 4000)
    disk = SEJ.empty()
    with Writer(ROOT, disk=disk) as writer:
        writer.append(b"before")
    staged = [stage(disk, "run", 0, rows, target=ShardsTarget())]
    publish(ROOT, "run", staged, ShardsTarget(), QUERY, disk=disk)
    whole = read_tree(disk, ROOT)
    killed = next(
        state
        for state in disk.process_kills(format="")
        if state.exists(STAGING / "run.manifest") and state.file_size(ROOT / "jnl" / f"{0:016x}.jnl") > 1_000_000
    )
    after = killed.copy()
    file = after.open(ROOT / "jnl" / f"{0:016x}.jnl", "update")
    file.write_at(512 * 100, bytes(512))
    file.close()
    recover_staging(ROOT, disk=after)
    assert read_tree(after, ROOT / "jnl") == {
        name.removeprefix("jnl/"): data for name, data in whole.items() if name.startswith("jnl/")
    }
    assert after.list_directory(ROOT / ".logwright" / "cut"), "what was cut is kept"
