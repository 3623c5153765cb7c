"""A batch that many tasks staged is published whole or not at all, and once, whatever crashes or fails."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from logwright.core.disk import REAL_DISK, Disk, OpenMode, RealDisk, RealFile, make_directories
from logwright.core.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from logwright.core.lock import Lock
from logwright.formats.sej import Message, Reader, ShardedWriter, Writer, find_shards
from logwright.formats.sej.staging import (
    Batch,
    Published,
    Stage,
    Staged,
    Target,
    discard,
    publish,
    recover_staging,
    refuse_live_writers,
)
from tests.support.children import Child
from tests.support.counts import COUNTS
from tests.support.faulty_disk import every_fault, failing_calls, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, read_tree, write_file

ROOT = Path("/target")
STAGING = ROOT / ".logwright" / "staging"
TARGET = Target("web", 1, segment_size=2000)
QUERY = Batch("query", 0)

Row = tuple[bytes, bytes, int, int | None]
"""value, key, type, timestamp"""
Journals = dict[str, list[Row]]


def rows_of(seed: int, count: int) -> list[Row]:
    dice = random.Random(seed)
    return [
        (dice.randbytes(dice.randrange(600)), b"key %d" % dice.randrange(9), dice.randrange(256), 1000 * seed + number)
        for number in range(count)
    ]


def as_batch(rows: list[Row]) -> pa.RecordBatch:
    values, keys, types, timestamps = zip(*rows, strict=True)
    arrays = [pa.array(values, pa.binary()), pa.array(keys, pa.binary()), pa.array(types), pa.array(timestamps)]
    return pa.RecordBatch.from_arrays(arrays, ["value", "key", "type", "timestamp"])


def stage(disk: Disk, run: str, order: int, rows: list[Row], *, root: Path = ROOT, target: Target = TARGET) -> Staged:
    task = Stage(root, run, order, target, disk=disk)
    for start in range(0, len(rows), 7):
        task.append_batch(as_batch(rows[start : start + 7]))
    return task.finish()


def journals(disk: Disk, root: Path = ROOT) -> Journals:
    """What every shard holds; its offsets must count up from 0."""
    found: Journals = {}
    for shard in find_shards(disk, root):
        messages = list(Reader(shard.path, disk=disk)) if disk.list_directory(shard.path / "jnl") else []
        assert [message.offset for message in messages] == list(range(len(messages)))
        if messages:
            found[shard.name] = [row_of(message) for message in messages]
    return found


def row_of(message: Message) -> Row:
    return message.value, message.key, message.type, message.timestamp


def placed(*runs: list[Row], target: Target = TARGET) -> Journals:
    """Where a sharded writer puts messages."""
    found: Journals = {}
    writer = ShardedWriter("nowhere", target.prefix, target.bit)
    for rows in runs:
        for row in rows:
            found.setdefault(writer.shard_of(*row), []).append(row)
    writer.close()
    return dict(sorted(found.items()))


BEFORE, FIRST, SECOND = rows_of(1, 12), rows_of(2, 8), rows_of(3, 6)
NONE, ALL = placed(BEFORE), placed(BEFORE, FIRST, SECOND)


def with_journal() -> SimulatedDisk:
    """A disk with a root of two shards that have some messages."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    with ShardedWriter(ROOT, "web", 1, segment_size=2000, disk=disk) as writer:
        for row in BEFORE:
            writer.append(*row)
    disk.settle()
    return disk


def empty() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.settle()
    return disk


def stage_two(disk: Disk, run: str = "run") -> list[Staged]:
    return [stage(disk, run, 1, SECOND), stage(disk, run, 0, FIRST)]


def publish_two(disk: Disk, batch: Batch | None = QUERY, run: str = "run") -> Published:
    return publish(ROOT, run, stage_two(disk, run), TARGET, batch, disk=disk)


# --- what is published ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize(("prefix", "bit"), [("", 0), ("web", 0), ("", 2), ("web", 3)])
def test_the_files_are_what_a_writer_would_have_written(tmp_path: Path, prefix: str, bit: int, checksums: bool) -> None:
    target = Target(prefix, bit, segment_size=3000, checksums=checksums)
    for number in range(3):
        with ShardedWriter(tmp_path / "written", prefix, bit, segment_size=3000, checksums=checksums) as writer:
            for row in (*rows_of(2 * number, 30), *rows_of(2 * number + 1, 20)):
                writer.append(*row)
        run = f"run-{number}"
        late = stage(REAL_DISK, run, 11, rows_of(2 * number + 1, 20), root=tmp_path / "published", target=target)
        early = stage(REAL_DISK, run, 2, rows_of(2 * number, 30), root=tmp_path / "published", target=target)
        done = publish(tmp_path / "published", run, [late, early], target)
        assert (done.messages, done.already) == (50, False)
    assert segments(tmp_path / "published") == segments(tmp_path / "written")
    assert read_tree(REAL_DISK, tmp_path / "published" / ".logwright") == {"staging": None, "staging/sink.lck": b""}


def segments(root: Path) -> Tree:
    return {name: data for name, data in read_tree(REAL_DISK, root).items() if "jnl/" in name}


def test_the_first_offset_in_each_shard_is_told() -> None:
    disk = with_journal()
    assert publish_two(disk) == Published(14, {name: len(rows) for name, rows in NONE.items()})
    assert journals(disk) == ALL


def test_a_message_without_a_timestamp_keeps_none_and_one_without_the_column_gets_the_time() -> None:
    disk = empty()
    task = Stage(ROOT, "run", 0, Target(), disk=disk)
    task.append_batch(pa.record_batch({"value": [b"a"], "timestamp": pa.array([None], pa.int64())}))
    task.append_batch(pa.record_batch({"value": ["b"]}))
    publish(ROOT, "run", [task.finish()], Target(), disk=disk)
    first, second = Reader(ROOT, disk=disk)
    assert (first.value, first.timestamp, second.value) == (b"a", None, b"b")
    assert second.timestamp is not None


def test_slices_of_a_large_batch_are_what_they_show() -> None:
    disk = empty()
    whole = as_batch(FIRST + SECOND)
    task = Stage(ROOT, "run", 0, TARGET, disk=disk)
    for start in (0, 3, 6, 9, 12):
        task.append_batch(whole.slice(start, 3))
    publish(ROOT, "run", [task.finish()], TARGET, disk=disk)
    assert journals(disk) == placed(FIRST, SECOND)


def test_an_empty_batch_publishes_nothing_and_creates_nothing() -> None:
    disk = empty()
    nothing = Stage(ROOT, "run", 0, TARGET, disk=disk).finish()
    assert publish(ROOT, "run", [nothing], TARGET, QUERY, disk=disk) == Published(0, {})
    assert read_tree(disk, ROOT) == {}


def test_only_what_is_handed_over_counts() -> None:
    disk = with_journal()
    handed_over = stage_two(disk)
    stage(disk, "run", 0, rows_of(9, 5))  # another attempt of the same task
    stage(disk, "other", 0, rows_of(9, 5))
    publish(ROOT, "run", handed_over, TARGET, disk=disk)
    assert journals(disk) == ALL
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}


def test_the_same_batch_of_the_same_query_is_published_once() -> None:
    disk = with_journal()
    publish_two(disk, Batch("query", 7))
    for number in (7, 6, 0):
        assert publish_two(disk, Batch("query", number), "again") == Published(0, {}, already=True)
    assert journals(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]
    publish_two(disk, Batch("query", 8))
    publish_two(disk, Batch("another/../query", 0))
    assert journals(disk) == placed(BEFORE, *[FIRST, SECOND] * 3)
    assert len(disk.list_directory(ROOT / ".logwright" / "published")) == 2


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_journal_that_a_live_writer_holds_is_refused_and_nothing_is_published() -> None:
    disk = with_journal()
    staged = stage_two(disk)
    shard = sorted(NONE)[1]
    with Writer(ROOT / shard, disk=disk):
        with pytest.raises(Locked, match=rf"{shard} is held by a live writer"):
            publish(ROOT, "run", staged, TARGET, QUERY, disk=disk)
        with pytest.raises(Locked, match=rf"{shard} is held by a live writer"):
            refuse_live_writers(ROOT, TARGET, disk=disk)
        assert journals(disk) == NONE
    refuse_live_writers(ROOT, TARGET, disk=disk)
    publish(ROOT, "run", staged, TARGET, QUERY, disk=disk)
    assert journals(disk) == ALL


def test_two_do_not_publish_at_the_same_time() -> None:
    disk = with_journal()
    staged = stage_two(disk)
    other = disk.open(STAGING / "sink.lck", "update")
    other.lock()
    with pytest.raises(Locked, match="another job is publishing here"):
        publish(ROOT, "run", staged, TARGET, disk=disk)
    other.close()
    publish(ROOT, "run", staged, TARGET, disk=disk)
    assert journals(disk) == ALL


def test_another_number_of_shards_is_refused() -> None:
    disk = with_journal()
    target = Target("web", 2)
    staged = stage(disk, "run", 0, FIRST, target=target)
    with pytest.raises(WrongUse, match="has shards of bit 1"):
        publish(ROOT, "run", [staged], target, disk=disk)
    assert journals(disk) == NONE


def test_without_enough_space_nothing_is_committed() -> None:
    disk = with_journal()
    staged = stage_two(disk)
    disk.capacity_bytes = 40_000
    with pytest.raises(
        StorageFailed, match=r"the batch needs \d+ bytes and \d+ are free; nothing was published"
    ) as told:
        publish(ROOT, "run", staged, TARGET, disk=disk)
    assert told.value.errno == errno.ENOSPC
    assert journals(disk) == NONE
    disk.capacity_bytes = None
    recover_staging(ROOT, disk=disk)
    assert journals(disk) == NONE


def test_staged_files_that_are_gone_or_shorter_are_refused() -> None:
    disk = with_journal()
    staged = stage_two(disk)
    path = STAGING / staged[0].files[0].name
    write_file(disk, path, b"short")
    with pytest.raises(DamagedJournal, match="5 bytes are here"):
        publish(ROOT, "run", staged, TARGET, disk=disk)
    disk.remove(path)
    with pytest.raises(NotFound, match="what a task staged is gone; nothing was published"):
        publish(ROOT, "run", staged, TARGET, disk=disk)
    assert journals(disk) == NONE


@pytest.mark.parametrize("run", ["", "a.b", "a/b", "..", "a b"])
def test_the_name_of_a_run_cannot_lead_out_of_its_directory(run: str) -> None:
    with pytest.raises(WrongUse, match="cannot be the name of a run"):
        Stage(ROOT, run, 0, TARGET, disk=empty())


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"version": 2},
        lambda found: found | {"run": "other"},
        lambda found: {name: value for name, value in found.items() if name != "parts"},
        lambda found: (
            found | {"parts": [found["parts"][0] | {"files": [found["parts"][0]["files"][0] | {"name": "../x"}]}]}
        ),
        lambda found: [],
    ],
)
def test_a_manifest_that_is_none_is_told_and_nothing_is_done(change: Callable[[dict[str, object]], object]) -> None:
    disk = committed()
    path = STAGING / "run.manifest"
    file = disk.open(path, "read")
    found = json.loads(file.read_at(0, file.size()))
    file.close()
    write_file(disk, path, json.dumps(change(found)).encode())
    before = read_tree(disk, ROOT)
    with pytest.raises(DamagedJournal, match="this is no manifest"):
        recover_staging(ROOT, disk=disk)
    assert read_tree(disk, ROOT) == before


# --- what is left behind --------------------------------------------------------------------------------------------


def committed(make: Callable[[], SimulatedDisk] = with_journal) -> SimulatedDisk:
    """A disk whose publisher was killed right after the commit."""
    disk = make()
    publish_two(disk)
    for state in disk.process_kills(format=""):
        if "run.manifest" in (state.list_directory(STAGING) if state.is_directory(STAGING) else []):
            return state.copy()
    raise AssertionError("no manifest was ever there")


def test_dead_runs_leave_nothing_and_those_at_work_keep_their_files() -> None:
    disk = with_journal()
    stage(disk, "dead", 0, FIRST)
    staged = stage(disk, "at-work", 0, FIRST + SECOND)
    assert recover_staging(ROOT, disk=disk, is_dead=lambda run: run == "dead").removed_files == 2
    assert journals(disk) == NONE
    publish(ROOT, "at-work", [staged], TARGET, disk=disk)
    assert journals(disk) == ALL


def test_a_run_that_gives_up_leaves_nothing() -> None:
    disk = with_journal()
    before = disk.list_directory(ROOT)
    stage_two(disk, "run")
    stage(disk, "other", 0, FIRST)
    discard(ROOT, ["run"], disk=disk)
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    task = Stage(ROOT, "third", 0, TARGET, disk=disk)
    task.append_batch(as_batch(FIRST))
    task.discard()
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    assert disk.list_directory(ROOT) == sorted([*before, ".logwright"])


def test_what_is_committed_is_not_discarded_but_put_in_place() -> None:
    disk = committed()
    assert journals(disk) == NONE
    discard(ROOT, ["run"], disk=disk)
    assert recover_staging(ROOT, disk=disk).rolled_forward == ["run"]
    assert journals(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]
    assert recover_staging(ROOT, disk=disk).rolled_forward == []


def test_where_nothing_was_ever_staged_nothing_is_created() -> None:
    disk = empty()
    assert recover_staging(ROOT, disk=disk).removed_files == 0
    discard(ROOT, ["run"], disk=disk)
    refuse_live_writers(ROOT, TARGET, disk=disk)
    assert read_tree(disk, ROOT) == {}


class ForeignWriter(Writer):
    """What a program writes that knows of segments and locks, and of nothing else."""

    def _take_lock(self) -> Lock:
        return Lock.acquire(self._disk, self.directory / "jnl.lck")


def test_a_batch_that_cannot_be_completed_says_that_it_is_committed() -> None:
    disk = committed()
    first, second = sorted(NONE)
    with ForeignWriter(ROOT / first, disk=disk):
        with pytest.raises(Locked, match="is held by a live writer") as told:
            recover_staging(ROOT, disk=disk)
        assert "The batch is committed" in told.value.__notes__[0]
        assert "To go on without it move /target/.logwright/staging/run.manifest away" in told.value.__notes__[0]
        with pytest.raises(Locked, match=rf"{first} is held by a live writer"):
            Writer(ROOT / second, disk=disk)
    assert recover_staging(ROOT, disk=disk).rolled_forward == ["run"]
    assert journals(disk) == ALL


def test_messages_that_a_foreign_writer_adds_before_the_recovery_do_no_harm() -> None:
    disk = with_journal()
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


def test_a_journal_that_was_cleaned_before_the_recovery_is_not_guessed_at() -> None:
    disk = committed()
    folder = ROOT / sorted(NONE)[0] / "jnl"
    for name in disk.list_directory(folder):
        disk.remove(folder / name)
    write_file(disk, folder / f"{1000:016x}.jnl", b"")
    with pytest.raises(DamagedJournal, match="nobody can tell how much of it was in place"):
        recover_staging(ROOT, disk=disk)


# --- writers that come after a crash --------------------------------------------------------------------------------


def test_the_next_writer_of_any_shard_has_the_batch_completed_first() -> None:
    """Also when what it writes is what was missing: comparing could not tell the two from each other."""
    for shard in ALL:
        disk = with_journal()
        publish_two(disk)
        for state in disk.process_kills(format="sej"):
            was_committed = state.exists(STAGING / "run.manifest")
            before = journals(state)
            missing = ALL[shard][len(before[shard])] if len(before[shard]) < len(ALL[shard]) else ALL[shard][-1]
            with Writer(ROOT / shard, disk=state, segment_size=2000) as writer:
                assert not state.exists(STAGING / "run.manifest"), state.story
                writer.append(*missing)
            expected = dict(ALL) if was_committed else before
            expected[shard] = [*expected[shard], missing]
            assert journals(state) == expected, state.story
            assert recover_staging(ROOT, disk=state).rolled_forward == []
            assert journals(state) == expected, state.story
            assert state.open_files == 0


def test_a_power_cut_while_the_next_writer_opens_leaves_all_or_none() -> None:
    disk = committed()
    Writer(ROOT / sorted(NONE)[1], disk=disk).close()
    for state in disk.crash_states(most=8, format="sej"):
        check(state, NONE, ALL)


def test_whichever_call_of_the_next_writer_fails_it_leaves_all_or_none() -> None:
    for disk in failing_calls(committed, error=errno.EIO, format="sej"):
        with contextlib.suppress(StorageFailed):
            Writer(ROOT / sorted(NONE)[0], disk=disk).close()
        check(disk.inner.copy(), NONE, ALL)


def test_no_writer_comes_in_between_while_a_batch_is_put_in_place() -> None:
    disk = committed()
    publisher = disk.open(STAGING / "sink.lck", "update")
    publisher.lock()
    for shard in NONE:
        with pytest.raises(Locked, match="another job is publishing here"):
            Writer(ROOT / shard, disk=disk)
    for other in ("elsewhere", "web.2.000", "not a shard"):
        Writer(ROOT / other, disk=disk).close()
    publisher.close()
    Writer(ROOT / sorted(NONE)[0], disk=disk).close()
    assert {name: rows for name, rows in journals(disk).items() if name in ALL} == ALL


def test_the_root_itself_may_be_the_journal_that_waits() -> None:
    for prefix, home in (("", ROOT), ("web", ROOT / "web")):
        target = Target(prefix, 0)
        disk = empty()
        publish(ROOT, "run", [stage(disk, "run", 0, FIRST, target=target)], target, QUERY, disk=disk)
        killed = next(state for state in disk.process_kills(format="") if state.exists(STAGING / "run.manifest"))
        with Writer(home, disk=killed) as writer:
            assert writer.next_offset == len(FIRST)
        assert [row_of(message) for message in Reader(home, disk=killed)] == FIRST


def test_a_writer_tells_of_a_manifest_that_is_none() -> None:
    disk = with_journal()
    make_directories(disk, STAGING)
    write_file(disk, STAGING / "run.manifest", b"{}")
    with pytest.raises(DamagedJournal, match=r"staging/run\.manifest @ 0: this is no manifest"):
        Writer(ROOT / sorted(NONE)[0], disk=disk)
    assert disk.open_files == 0


# --- crashes --------------------------------------------------------------------------------------------------------


def check(state: SimulatedDisk, none: Journals, everything: Journals) -> None:
    """All or none after the recovery, and all once after the batch was tried again."""
    recover_staging(ROOT, disk=state)
    found = journals(state)
    assert found in (none, everything), state.story
    if "published" in state.marks:
        assert found == everything, state.story
    assert not [name for name in _left(state) if name != "sink.lck"], state.story
    publish_two(state, run="again")
    assert journals(state) == everything, state.story
    assert state.open_files == 0


def _left(disk: SimulatedDisk) -> list[str]:
    return disk.list_directory(STAGING) if disk.is_directory(STAGING) else []


STARTS = [pytest.param(with_journal, NONE, ALL, id="there"), pytest.param(empty, {}, placed(FIRST, SECOND), id="new")]


def published(disk: SimulatedDisk) -> SimulatedDisk:
    publish_two(disk)
    disk.mark("published")
    return disk


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_power_cut_at_any_point_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Journals, everything: Journals
) -> None:
    outcomes = set()
    for state in published(make()).crash_states(most=24, format="sej"):
        check(state, none, everything)
        outcomes.add(len(state.marks))
    assert outcomes == {0, 1}


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_kill_at_any_point_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Journals, everything: Journals
) -> None:
    for state in published(make()).process_kills(format="sej"):
        check(state, none, everything)


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_power_cut_within_the_recovery_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Journals, everything: Journals
) -> None:
    for number, killed in enumerate(published(make()).process_kills(format="")):
        if number % 9:
            continue
        recover_staging(ROOT, disk=killed)
        for state in killed.crash_states(most=2, format="sej"):
            check(state, none, everything)


def test_a_batch_that_no_query_stands_for_is_all_or_none_as_well() -> None:
    disk = with_journal()
    publish_two(disk, batch=None)
    disk.mark("published")
    for state in disk.crash_states(most=8, format="sej"):
        recover_staging(ROOT, disk=state)
        assert journals(state) in (NONE, ALL), state.story
        assert journals(state) == ALL or "published" not in state.marks, state.story
        again = journals(state)
        recover_staging(ROOT, disk=state)
        assert journals(state) == again


def test_a_hole_that_a_power_cut_leaves_is_filled_from_what_was_staged() -> None:
    """Of what was not synced any sector may be missing, also one before messages that are whole."""
    rows = rows_of(5, 4000)
    disk = empty()
    with Writer(ROOT, disk=disk) as writer:
        writer.append(b"before")
    staged = [stage(disk, "run", 0, rows, target=Target())]
    publish(ROOT, "run", staged, Target(), QUERY, disk=disk)
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


def test_each_sync_that_matters_is_missed() -> None:
    """Negative control: without any one of these syncs a power cut does harm, and the check above notices."""
    noticed = set()
    for disk in forgotten_syncs(with_journal):
        publish_two(disk)
        disk.inner.mark("published")
        if ".logwright/" in disk.failed and _harms(disk.inner):
            noticed.add(re.sub("-[0-9a-f]{16}", "", disk.failed.replace("/target/.logwright/", "")))
    files = {f"sync staging/run.00000{order}.00{index}.staged" for order in (0, 1) for index in (0, 1)}
    manifest = {"sync staging/run.manifest.tmp", "sync directory staging"}
    assert noticed == {*files, *manifest, "sync published/query.tmp", "sync directory published"}


def _harms(disk: SimulatedDisk) -> bool:
    for state in disk.crash_states(most=8, format=""):
        try:
            check(state, NONE, ALL)
        except (AssertionError, LogwrightError):
            return True
    return False


# --- failures -------------------------------------------------------------------------------------------------------


def test_whichever_call_fails_it_is_all_or_none() -> None:
    for disk in every_fault(with_journal, format="sej"):
        told = False
        try:
            publish_two(disk)
        except StorageFailed:
            told = True
        assert told or journals(disk.inner) == ALL, disk.story
        check(disk.inner.copy(), NONE, ALL)


def test_whichever_call_of_the_recovery_fails_the_next_one_completes_it() -> None:
    for disk in failing_calls(committed, error=errno.EIO, format="sej"):
        try:
            recover_staging(ROOT, disk=disk)
        except StorageFailed:
            assert disk.failures
        check(disk.inner.copy(), NONE, ALL)
        assert journals(disk.inner) in (NONE, ALL) or disk.failures


def test_a_full_disk_before_the_commit_leaves_nothing_even_without_a_recovery() -> None:
    for disk in failing_calls(with_journal, error=errno.ENOSPC, partial=True, only=["write"], format="sej"):
        try:
            publish_two(disk)
        except StorageFailed as error:
            if getattr(error, "__notes__", []):
                continue  # committed
            assert journals(disk.inner) == NONE, disk.story
            discard(ROOT, ["run"], disk=disk.inner)
            assert recover_staging(ROOT, disk=disk.inner).rolled_forward == [], disk.story
            assert journals(disk.inner) == NONE, disk.story


# --- the death of real processes --------------------------------------------------------------------------------------


class TellingDisk(RealDisk):
    """The real disk, saying each step before it is taken."""

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        print("open", flush=True)
        return super().open(path, mode)

    def rename(self, source: Path, target: Path) -> None:
        print("rename", flush=True)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        print("remove", flush=True)
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        print("sync", flush=True)
        super().sync_directory(path)


def batch_of(number: int) -> list[Row]:
    return rows_of(100 + number, 10)


def publish_number(disk: Disk, root: Path, number: int) -> None:
    """Batch after batch of one query, each of two tasks."""
    rows, run = batch_of(number), f"run-{time.time_ns()}"
    staged = [stage(disk, run, order, rows[5 * order : 5 * order + 5], root=root) for order in (0, 1)]
    publish(root, run, staged, TARGET, Batch("query", number), disk=disk)


def publish_for_ever(root: str, number: int) -> None:
    """What the killed process does: it goes on with the batch that it is told, and says which one is done."""
    for following in itertools.count(number):
        publish_number(TellingDisk(), Path(root), following)
        print(f"done {following}", flush=True)


def test_however_often_its_process_is_killed_a_query_publishes_each_batch_once(tmp_path: Path) -> None:
    dice, done = random.Random(7), -1
    code = f"import sys; from {__name__} import publish_for_ever as run; run(sys.argv[1], int(sys.argv[2]))"
    for _ in range(12):
        with Child(code, tmp_path, done + 1) as child:
            for _ in range(dice.randrange(1, 300)):
                line = child.line()
                done = int(line.split()[1]) if line.startswith("done") else done
            child.kill()
        COUNTS.add("kill -9", 1, "sej")
    publish_number(REAL_DISK, tmp_path, done + 1)
    assert recover_staging(tmp_path).rolled_forward == []
    numbers = range(max(done + 1, _last_published(tmp_path)) + 1)
    assert journals(REAL_DISK, tmp_path) == placed(*(batch_of(number) for number in numbers))
    assert len(numbers) > 10


def _last_published(root: Path) -> int:
    """The last batch that is there: a process may have been killed before we have read that it was done."""
    number: int = json.loads((root / ".logwright" / "published" / "query.json").read_text())["batch"]
    return number
