"""A batch of items that many tasks staged is published whole or not at all, and once, whatever crashes or fails."""

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

from logwright.core.disk import REAL_DISK, Disk, OpenMode, RealDisk, RealFile
from logwright.core.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from logwright.core.lock import Lock
from logwright.formats.kestrel import Operation, Queue, QueuesReader, Reader, Scanner, Writer, kernel, splits
from logwright.formats.kestrel.codec import encode
from logwright.formats.kestrel.cursor import Chunk
from logwright.formats.kestrel.files import list_files, list_queues
from logwright.formats.kestrel.staging import (
    MAX_NAME_BYTES,
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
from logwright.formats.sej import staging as sej
from tests.support.children import Child
from tests.support.counts import COUNTS
from tests.support.faulty_disk import every_fault, failing_calls, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file

ROOT = Path("/queues")
STAGING = ROOT / ".logwright" / "staging"
QUERY = Batch("query", 0)
FAR = 9_000_000_000_000_000
"""The number of a rotated file from a time when the clock was far ahead."""

Item = tuple[bytes, int | None, int | None]
"""data, added and expires in milliseconds"""
Row = tuple[str, bytes, int, int | None]
"""The same with its queue in front."""
Queues = dict[str, list[Item]]


def rows_of(seed: int, count: int) -> list[Row]:
    dice = random.Random(seed)
    return [
        (
            dice.choice(("cars", "cats+tom")),
            b"%d/%d " % (seed, number) + dice.randbytes(dice.randrange(400)),
            1_700_000_000_000 + 1000 * seed + number,
            dice.choice((None, 1_900_000_000_000 + number)),
        )
        for number in range(count)
    ]


def as_batch(rows: list[Row]) -> pa.RecordBatch:
    queues, data, added, expires = zip(*rows, strict=True)
    moment = pa.timestamp("ms", tz="UTC")
    arrays = [pa.array(queues), pa.array(data, pa.binary()), pa.array(added, moment), pa.array(expires, moment)]
    return pa.RecordBatch.from_arrays(arrays, ["queue", "data", "added", "expires"])


def stage(disk: Disk, run: str, order: int, rows: list[Row], *, root: Path = ROOT) -> Staged:
    task = Stage(root, run, order, Target(), disk=disk)
    for start in range(0, len(rows), 7):
        task.append_batch(as_batch(rows[start : start + 7]))
    return task.finish()


def queues(disk: Disk, root: Path = ROOT) -> Queues:
    """What every queue holds, reserved items first; their journals must be sound."""
    found: Queues = {}
    for name in list_queues(disk, root):
        reader = Reader(root / name, disk=disk)
        report = reader.verify()
        assert report.sound, report.problems
        assert [problem.kind for problem in report.anomalies if problem.kind != "temporary_file"] == []
        state = reader.queue_state()
        if state.open or state.items:
            found[name] = [(item.data, item.added, item.expires) for item in (*state.open, *state.items)]
    return found


def behind(before: Queues, *batches: list[Row]) -> Queues:
    """What queues hold once the rows of batches are at their tails."""
    found = {name: list(items) for name, items in before.items()}
    for rows in batches:
        for queue, *item in rows:
            found.setdefault(queue, []).append((item[0], item[1], item[2]))
    return dict(sorted(found.items()))


FIRST, SECOND = rows_of(2, 8), rows_of(3, 6)
NONE: Queues = {"cars": [(b"reserved", 2, None), (b"waits", 3, None), (b"newest", 5, 7)], "dogs": [(b"rex", 4, None)]}
ALL = behind(NONE, FIRST, SECOND)


def with_queues() -> SimulatedDisk:
    """A disk with two queues. The first has a rotated file and a newest one, and of its items one is reserved."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    with Writer(ROOT / "cars", disk=disk) as writer:
        for added, data in enumerate((b"done", b"reserved", b"waits"), 1):
            writer.addx(data, added=added)
        writer.remove()
        writer.rotate()
        writer.remove_tentative()
        writer.addx(b"newest", added=5, expires=7)
    with Writer(ROOT / "dogs", disk=disk) as writer:
        writer.addx(b"rex", added=4)
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
    return publish(ROOT, run, stage_two(disk, run), Target(), batch, disk=disk)


def files(disk: Disk, queue: str, root: Path = ROOT) -> list[str]:
    return [file.name for file in list_files(disk, root, queue).files]


# --- what is published ----------------------------------------------------------------------------------------------


def test_a_batch_is_one_rotated_file_for_each_queue_behind_what_was_there() -> None:
    disk = with_queues()
    (before, _) = files(disk, "cars")
    done = publish_two(disk)
    assert (done.records, done.already) == (14, False)
    assert queues(disk) == ALL
    numbers = [int(name.rpartition(".")[2]) for name in files(disk, "cars")[:-1]]
    assert numbers == sorted(numbers)
    assert files(disk, "cars") == [before, f"cars.{numbers[1]}", f"cars.{done.starts['cars']}", "cars"]
    assert files(disk, "cats+tom") == [f"cats+tom.{done.starts['cats+tom']}"]
    assert files(disk, "dogs") == ["dogs"]
    for queue, number in done.starts.items():
        operations = (Operation("addx", added=added, expires=expires, data=data)
                      for name, data, added, expires in FIRST + SECOND if name == queue)  # fmt: skip
        assert read_file(disk, ROOT / f"{queue}.{number}") == b"".join(map(encode, operations))
    assert disk.list_directory(STAGING) == ["sink.lck"]


def test_the_queue_hands_out_what_it_had_and_then_the_batch(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", sync="always") as queue:
        queue.put_many([b"one", b"two", b"three"])
        assert queue.get() == b"one"
        queue.open()
    rows: list[Row] = [("cars", b"four", 4, None), ("cars", b"five", 5, None)]
    publish(tmp_path, "run", [stage(REAL_DISK, "run", 0, rows, root=tmp_path)], Target())
    with Queue(tmp_path, "cars") as queue:
        queue.put(b"six")
        assert queue.get_many(9) == [b"two", b"three", b"four", b"five", b"six"]


def test_the_number_is_greater_than_every_one_before_also_when_the_clock_has_gone_back() -> None:
    disk = with_queues()
    write_file(disk, ROOT / f"cars.{FAR}", encode(Operation("addx", added=1, data=b"of the future")))
    for number in range(1, 4):
        rows: list[Row] = [("cars", b"batch %d" % number, number, None)]
        done = publish(ROOT, "run", [stage(disk, "run", 0, rows)], Target(), disk=disk)
        assert done.starts == {"cars": FAR + 1 + number}, "the newest file came before the first of them"
    assert [item[0] for item in queues(disk)["cars"][-3:]] == [b"batch 1", b"batch 2", b"batch 3"]


def test_where_no_greater_number_is_left_nothing_is_published() -> None:
    disk = with_queues()
    write_file(disk, ROOT / f"cars.{10**20 - 2}", b"")
    with pytest.raises(WrongUse, match=rf"cars\.{10**20 - 1}: there is no greater number"):
        publish_two(disk)
    assert queues(disk) == NONE
    recover_staging(ROOT, disk=disk)
    assert queues(disk) == NONE


def test_items_without_a_time_get_one_and_without_an_expiry_never_expire() -> None:
    disk = empty()
    task = Stage(ROOT, "run", 0, Target("cars"), disk=disk)
    before = time.time_ns() // 1_000_000
    moment = pa.timestamp("us", tz="UTC")
    task.append_batch(pa.record_batch({"data": ["text"]}))
    task.append_batch(pa.record_batch({"data": [b"a"], "added": pa.array([None], moment)}))
    task.append_batch(pa.record_batch({"data": [b"b"], "added": pa.array([1999], moment)}))
    publish(ROOT, "run", [task.finish()], Target("cars"), disk=disk)
    first, second, third = queues(disk)["cars"]
    assert (first[0], second[0], third) == (b"text", b"a", (b"b", 1, None))
    assert before <= (first[1] or 0) <= (second[1] or 0) <= time.time_ns() // 1_000_000


def test_rows_go_to_the_queue_that_they_name_and_others_to_the_default() -> None:
    disk = empty()
    task = Stage(ROOT, "run", 0, Target("rest"), disk=disk)
    task.append_batch(pa.record_batch({"queue": ["cars", None, "cars"], "data": [b"a", b"b", b"c"]}))
    publish(ROOT, "run", [task.finish()], Target("rest"), disk=disk)
    assert {name: [item[0] for item in items] for name, items in queues(disk).items()} == {
        "cars": [b"a", b"c"],
        "rest": [b"b"],
    }


def test_an_empty_batch_publishes_nothing_and_creates_nothing() -> None:
    disk = empty()
    task = Stage(ROOT, "run", 0, Target("cars"), disk=disk)
    task.append_batch(pa.record_batch({"data": pa.array([], pa.binary())}))
    assert publish(ROOT, "run", [task.finish()], Target("cars"), QUERY, disk=disk) == Published(0, {})
    assert read_tree(disk, ROOT) == {}


def test_only_what_is_handed_over_counts() -> None:
    disk = with_queues()
    handed_over = stage_two(disk)
    stage(disk, "run", 0, rows_of(9, 5))  # another attempt of the same task
    stage(disk, "other", 0, rows_of(9, 5))
    publish(ROOT, "run", handed_over, Target(), disk=disk)
    assert queues(disk) == ALL
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}


def test_the_same_batch_of_the_same_query_is_published_once() -> None:
    disk = with_queues()
    publish_two(disk, Batch("query", 7))
    for number in (7, 6, 0):
        assert publish_two(disk, Batch("query", number), "again") == Published(0, {}, already=True)
    assert queues(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]
    publish_two(disk, Batch("query", 8))
    publish_two(disk, Batch("another/../query", 0))
    assert queues(disk) == behind(NONE, *[FIRST, SECOND] * 3)


def test_who_follows_a_queue_sees_each_item_of_a_batch_once() -> None:
    disk = with_queues()
    with Scanner(ROOT, timeout=0, disk=disk) as scanner:
        assert len(list(scanner)) == 7
        for number in range(2):
            publish_two(disk, Batch("query", number))
            seen = [operation.data for operation in scanner]
            assert sorted(data for data in seen if data is not None) == sorted(row[1] for row in FIRST + SECOND)


def test_a_stream_over_queues_gets_each_item_of_a_batch_once() -> None:
    disk = with_queues()
    reader = QueuesReader(ROOT, disk=disk)
    ends = {queue: end for queue, (_, end) in splits.extent(reader).items()}
    for number in range(3):
        publish_two(disk, Batch("query", number))
        reached = {queue: end for queue, (_, end) in splits.extent(reader).items()}
        starts = {queue: ends.get(queue, 0) for queue in reached}
        found = [
            operation.data
            for split in splits.plan(reader, 600, starts, reached, resumed=True)
            for chunk in splits.chunks(reader, split)
            if isinstance(chunk, Chunk)
            for operation in kernel.operations(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.dialect)
        ]
        assert sorted(found) == sorted(row[1] for row in FIRST + SECOND)
        ends = reached


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "/etc/passwd", "..", ".", "cars.1", "cars~~1", "a+b+c", "+a", "a+", "a\0b"])
def test_names_that_the_original_forbids_are_refused(name: str) -> None:
    disk = empty()
    task = Stage(ROOT, "run", 0, Target(), disk=disk)
    with pytest.raises(WrongUse, match=r"is no name of a queue: none of / ~ \+ \. may be in it"):
        task.append_batch(pa.record_batch({"queue": [name], "data": [b"x"]}))
    with pytest.raises(WrongUse, match="is no name of a queue"):
        Target(name)
    assert read_tree(disk, ROOT) == {}


def test_a_name_that_would_be_too_long_once_rotated_and_packed_is_refused(tmp_path: Path) -> None:
    longest = "ö" * (MAX_NAME_BYTES // 2)
    with pytest.raises(WrongUse, match=f"is too long for the name of a queue: {MAX_NAME_BYTES} bytes at most"):
        Target(longest + "oo")
    task = Stage(tmp_path, "run", 0, Target(longest))
    task.append_batch(pa.record_batch({"data": [b"x"]}))
    publish(tmp_path, "run", [task.finish()], Target(longest))
    longest_of_its_files = tmp_path / f"{longest}.{10**20 - 1}.pack"
    longest_of_its_files.write_bytes(encode(Operation("save_xid", 0)))
    with Queue(tmp_path, longest) as queue:
        assert len(queue) == 0, "the pack stands for all of it"


@pytest.mark.parametrize("queue", [None, ""])
def test_a_row_without_a_queue_is_refused_where_there_is_no_default(queue: str | None) -> None:
    task = Stage(ROOT, "run", 0, Target(), disk=empty())
    with pytest.raises(WrongUse, match="a row names no queue"):
        task.append_batch(pa.record_batch({"queue": pa.array([queue], pa.string()), "data": [b"x"]}))
    with pytest.raises(WrongUse, match="a row names no queue"):
        task.append_batch(pa.record_batch({"data": [b"x"]}))


def test_a_queue_that_a_live_writer_holds_is_refused_and_nothing_is_published() -> None:
    disk = with_queues()
    staged = stage_two(disk)
    holders: list[Callable[[], Queue | Writer]] = [
        lambda: Queue(ROOT, "cats+tom", disk=disk),
        lambda: Writer(ROOT / "cars", disk=disk),
    ]
    for hold in holders:
        with hold() as holder:
            with pytest.raises(Locked, match=rf"{re.escape(str(holder.path))} is held by a live writer: close it"):
                publish(ROOT, "run", staged, Target(), QUERY, disk=disk)
            with pytest.raises(Locked, match="is held by a live writer"):
                refuse_live_writers(ROOT, Target(holder.path.name), disk=disk)
            refuse_live_writers(ROOT, Target("dogs"), disk=disk)
            assert queues(disk) == NONE
    with Queue(ROOT, "dogs", disk=disk):  # it is no part of the batch
        publish(ROOT, "run", staged, Target(), QUERY, disk=disk)
    assert queues(disk) == ALL


def test_without_enough_space_nothing_is_committed_and_one_file_alone_needs_none() -> None:
    disk = with_queues()
    staged = stage_two(disk)
    disk.capacity_bytes = 53_000
    with pytest.raises(StorageFailed, match=r"the batch needs \d+ bytes and \d+ are free; nothing was published"):
        publish(ROOT, "run", staged, Target(), disk=disk)
    assert queues(disk) == NONE
    publish(ROOT, "run", staged[1:], Target(), disk=disk)
    assert queues(disk) == behind(NONE, FIRST)


def test_staged_files_that_are_gone_or_shorter_are_refused() -> None:
    disk = with_queues()
    staged = stage_two(disk)
    path = STAGING / staged[0].files[0].name
    write_file(disk, path, b"short")
    with pytest.raises(DamagedJournal, match="5 bytes are here"):
        publish(ROOT, "run", staged, Target(), disk=disk)
    disk.remove(path)
    with pytest.raises(NotFound, match="what a task staged is gone; nothing was published"):
        publish(ROOT, "run", staged, Target(), disk=disk)
    assert queues(disk) == NONE


OF_ANOTHER = {"name": "other.000000-00.000.staged", "part": "cars", "records": 1, "bytes": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"format": "nothing"},
        lambda found: found | {"target": {"queue": "../x"}},
        lambda found: found | {"parts": [found["parts"][0] | {"name": "../x"}]},
        lambda found: found | {"parts": [found["parts"][0] | {"name": "x\ud800"}]},
        lambda found: found | {"parts": [found["parts"][0] | {"files": [{"name": "run.manifest"}]}]},
        lambda found: found | {"parts": [found["parts"][0] | {"files": [OF_ANOTHER]}]},
    ],
)
def test_a_manifest_that_is_none_is_told_and_nothing_is_done(change: Callable[[dict[str, object]], object]) -> None:
    disk = committed()
    path = STAGING / "run.manifest"
    write_file(disk, path, json.dumps(change(json.loads(read_file(disk, path)))).encode())
    before = read_tree(disk, ROOT)
    with pytest.raises(DamagedJournal, match="this is no manifest"):
        recover_staging(ROOT, disk=disk)
    with pytest.raises(DamagedJournal, match="this is no manifest"):
        Queue(ROOT, "dogs", disk=disk)
    assert read_tree(disk, ROOT) == before
    assert disk.open_files == 0


# --- the newest file ------------------------------------------------------------------------------------------------


def test_a_torn_tail_of_the_newest_file_is_cut_off_and_kept_before_the_batch_comes_behind_it() -> None:
    disk = with_queues()
    whole = read_file(disk, ROOT / "cars")
    write_file(disk, ROOT / "cars", whole + encode(Operation("addx", added=9, data=b"torn"))[:-1])
    publish_two(disk)
    assert queues(disk) == ALL
    (kept,) = disk.list_directory(ROOT / ".logwright" / "cut")
    assert kept.startswith(f"cars.@{len(whole)}.")


def test_a_newest_file_that_is_damaged_is_left_alone_and_nothing_is_published() -> None:
    disk = with_queues()
    item = encode(Operation("addx", added=1_700_000_000_000, data=b"item"))
    write_file(disk, ROOT / "cars", item + b"\xff" + item + item)
    before = {name: data for name, data in read_tree(disk, ROOT).items() if not name.startswith(".logwright")}
    with pytest.raises(DamagedJournal, match="cars @ 25"):
        publish_two(disk)
    recover_staging(ROOT, disk=disk)
    assert {name: data for name, data in read_tree(disk, ROOT).items() if not name.startswith(".logwright")} == before


def test_a_pack_that_a_crash_has_interrupted_is_finished_first() -> None:
    disk = with_queues()
    with Writer(ROOT / "cars", disk=disk) as writer:
        last = writer.rotate()
    state = b"".join(
        encode(Operation("addx", added=added, data=data)) for added, data in ((3, b"waits"), (5, b"newest"))
    )
    write_file(disk, ROOT / f"cars.{last}.pack", state)
    publish_two(disk)
    expected = behind({"cars": [(b"waits", 3, None), (b"newest", 5, None)], "dogs": NONE["dogs"]}, FIRST, SECOND)
    assert queues(disk) == expected
    assert files(disk, "cars")[0] == f"cars.{last}"


def test_the_items_of_a_batch_are_packed_like_others() -> None:
    disk = with_queues()
    publish_two(disk)
    with Writer(ROOT / "cars", disk=disk) as writer:
        writer.rewrite()
    assert queues(disk) == ALL
    assert len(files(disk, "cars")) == 2


# --- what is left behind --------------------------------------------------------------------------------------------


def committed(make: Callable[[], SimulatedDisk] = with_queues) -> SimulatedDisk:
    """A disk whose publisher was killed right after the commit."""
    disk = make()
    publish_two(disk)
    for state in disk.process_kills(format=""):
        if state.exists(STAGING / "run.manifest"):
            return state.copy()
    raise AssertionError("no manifest was ever there")


def test_dead_runs_leave_nothing_and_those_at_work_keep_their_files() -> None:
    disk = with_queues()
    stage(disk, "dead", 0, FIRST)
    staged = stage(disk, "at-work", 0, FIRST + SECOND)
    assert recover_staging(ROOT, disk=disk, is_dead=lambda run: run == "dead").removed_files == 2
    assert queues(disk) == NONE
    publish(ROOT, "at-work", [staged], Target(), disk=disk)
    assert queues(disk) == ALL


def test_a_run_that_gives_up_leaves_nothing() -> None:
    disk = with_queues()
    stage_two(disk, "run")
    stage(disk, "other", 0, FIRST)
    discard(ROOT, ["run"], disk=disk)
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    task = Stage(ROOT, "third", 0, Target(), disk=disk)
    task.append_batch(as_batch(FIRST))
    task.discard()
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    assert queues(disk) == NONE


def test_what_is_committed_is_not_discarded_but_put_in_place() -> None:
    disk = committed()
    assert queues(disk) == NONE
    discard(ROOT, ["run"], disk=disk)
    assert recover_staging(ROOT, disk=disk).rolled_forward == ["run"]
    assert queues(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]
    assert recover_staging(ROOT, disk=disk).rolled_forward == []


class ForeignWriter(Writer):
    """What a program writes that knows of files and locks, and of no manifests."""

    def _take_lock(self) -> Lock:
        return Lock.acquire(self._disk, self.directory / ".logwright" / f"{self.queue}.lck")


def test_a_batch_that_cannot_be_completed_says_that_it_is_committed() -> None:
    disk = committed()
    with ForeignWriter(ROOT / "cars", disk=disk):
        with pytest.raises(Locked, match="cars is held by a live writer") as told:
            recover_staging(ROOT, disk=disk)
        assert "The batch is committed" in told.value.__notes__[0]
        assert "To go on without it move /queues/.logwright/staging/run.manifest away" in told.value.__notes__[0]
        with pytest.raises(Locked, match="cars is held by a live writer"):
            Queue(ROOT, "cats+tom", disk=disk)
    assert recover_staging(ROOT, disk=disk).rolled_forward == ["run"]
    assert queues(disk) == ALL


def test_what_a_foreign_writer_does_before_the_recovery_happens_to_the_items_that_it_saw() -> None:
    disk = with_queues()
    publish_two(disk)
    for state in disk.process_kills(format="kestrel"):
        before = queues(state).get("cars", [])
        with ForeignWriter(ROOT / "cars", disk=state) as writer:
            writer.addx(b"of another", added=6)
            for _ in range(len(before)):  # all but the reserved one and the new one
                writer.remove()
            writer.addx(b"its last", added=6)
        recover_staging(ROOT, disk=state)
        publish_two(state, run="again")
        batch = [(data, added, expires) for queue, data, added, expires in FIRST + SECOND if queue == "cars"]
        was_in_place = [item for item in before if item in batch]
        assert was_in_place in ([], batch), state.story
        expected = [before[0], (b"its last", 6, None)] + ([] if was_in_place else batch)
        assert queues(state)["cars"] == expected, state.story


# --- writers that come after a crash --------------------------------------------------------------------------------


def open_queue(queue: str, disk: Disk) -> None:
    with Queue(ROOT, queue, background=False, disk=disk) as opened:
        opened.put(b"mine")


def open_writer(queue: str, disk: Disk) -> None:
    with Writer(ROOT / queue, disk=disk) as writer:
        writer.addx(b"mine")


@pytest.mark.parametrize("write", [open_queue, open_writer])
def test_the_next_writer_of_any_queue_has_the_batch_completed_first(write: Callable[[str, Disk], None]) -> None:
    for queue in ("cars", "cats+tom"):
        disk = with_queues()
        publish_two(disk)
        for state in disk.process_kills(format="kestrel"):
            was_committed = state.exists(STAGING / "run.manifest")
            before = queues(state)
            write(queue, state)
            assert not state.exists(STAGING / "run.manifest"), state.story
            expected = {name: [item[0] for item in items] for name, items in (ALL if was_committed else before).items()}
            expected.setdefault(queue, []).append(b"mine")
            assert {name: [item[0] for item in items] for name, items in queues(state).items()} == expected, state.story
            assert recover_staging(ROOT, disk=state).rolled_forward == []
            assert state.open_files == 0


def test_a_power_cut_while_the_next_queue_opens_leaves_all_or_none() -> None:
    disk = committed()
    Queue(ROOT, "cats+tom", background=False, disk=disk).close()
    for state in disk.crash_states(most=8, format="kestrel"):
        check(state, NONE, ALL)


def test_whichever_call_of_the_next_queue_fails_it_leaves_all_or_none() -> None:
    for disk in failing_calls(committed, error=errno.EIO, format="kestrel"):
        with contextlib.suppress(LogwrightError):
            Queue(ROOT, "cats+tom", background=False, disk=disk).close()
        check(disk.inner.copy(), NONE, ALL)


def test_no_writer_comes_in_between_while_a_batch_is_put_in_place() -> None:
    disk = committed()
    publisher = disk.open(STAGING / "sink.lck", "update")
    publisher.lock()
    for queue in ("cars", "cats+tom"):
        with pytest.raises(Locked, match="another job is publishing here"):
            Queue(ROOT, queue, disk=disk)
    for other in ("dogs", "new"):
        Queue(ROOT, other, disk=disk).close()
    publisher.close()
    Queue(ROOT, "cars", background=False, disk=disk).close()
    assert {name: items for name, items in queues(disk).items() if name != "cars"} == {
        name: items for name, items in ALL.items() if name != "cars"
    }


def test_a_directory_that_is_also_a_root_of_messages_has_both_kinds_of_batches_completed() -> None:
    disk = committed()
    target = sej.Target()
    task = sej.Stage(ROOT, "messages", 0, target, disk=disk)
    task.append_batch(pa.record_batch({"value": [b"a message"]}))
    sej.publish(ROOT, "messages", [task.finish()], target, disk=disk)
    assert queues(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]


# --- crashes --------------------------------------------------------------------------------------------------------


def check(state: SimulatedDisk, none: Queues, everything: Queues) -> None:
    """All or none after the recovery, and all once after the batch was tried again."""
    recover_staging(ROOT, disk=state)
    found = queues(state)
    assert found in (none, everything), state.story
    if "published" in state.marks:
        assert found == everything, state.story
    left = state.list_directory(STAGING) if state.is_directory(STAGING) else []
    assert [name for name in left if name != "sink.lck"] == [], state.story
    publish_two(state, run="again")
    assert queues(state) == everything, state.story
    assert state.open_files == 0


STARTS = [
    pytest.param(with_queues, NONE, ALL, id="there"),
    pytest.param(empty, {}, behind({}, FIRST, SECOND), id="new"),
]


def published(disk: SimulatedDisk) -> SimulatedDisk:
    publish_two(disk)
    disk.mark("published")
    return disk


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_power_cut_at_any_point_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Queues, everything: Queues
) -> None:
    outcomes = set()
    for state in published(make()).crash_states(most=16, format="kestrel"):
        check(state, none, everything)
        outcomes.add(len(state.marks))
    assert outcomes == {0, 1}


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_kill_at_any_point_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Queues, everything: Queues
) -> None:
    for state in published(make()).process_kills(format="kestrel"):
        check(state, none, everything)


@pytest.mark.parametrize(("make", "none", "everything"), STARTS)
def test_a_power_cut_within_the_recovery_leaves_all_or_none(
    make: Callable[[], SimulatedDisk], none: Queues, everything: Queues
) -> None:
    for number, killed in enumerate(published(make()).process_kills(format="")):
        if number % 3:
            continue
        recover_staging(ROOT, disk=killed)
        for state in killed.crash_states(most=4, format="kestrel"):
            check(state, none, everything)


def test_a_batch_that_no_query_stands_for_is_all_or_none_as_well() -> None:
    disk = with_queues()
    publish_two(disk, batch=None)
    disk.mark("published")
    for state in disk.crash_states(most=8, format="kestrel"):
        recover_staging(ROOT, disk=state)
        assert queues(state) in (NONE, ALL), state.story
        assert queues(state) == ALL or "published" not in state.marks, state.story
        again = queues(state)
        recover_staging(ROOT, disk=state)
        assert queues(state) == again


def test_each_sync_that_matters_is_missed() -> None:
    """Negative control: without any one of these syncs a power cut does harm, and the check above notices."""
    noticed = set()
    for disk in forgotten_syncs(with_queues):
        publish_two(disk)
        disk.inner.mark("published")
        if ".logwright/" in disk.failed and _harms(disk.inner):
            noticed.add(re.sub("-[0-9a-f]{16}", "", disk.failed.replace("/queues/.logwright/", "")))
    files = {f"sync staging/run.000000.00{number}.staged" for number in (0, 1)}
    manifest = {"sync staging/run.manifest.tmp", "sync directory staging"}
    assert noticed == {*files, *manifest, "sync published/query.tmp", "sync directory published"}


def _harms(disk: SimulatedDisk) -> bool:
    for state in disk.crash_states(most=4, format=""):
        try:
            check(state, NONE, ALL)
        except (AssertionError, LogwrightError):
            return True
    return False


# --- failures -------------------------------------------------------------------------------------------------------


def test_whichever_call_fails_it_is_all_or_none() -> None:
    for disk in every_fault(with_queues, format="kestrel"):
        told = False
        try:
            publish_two(disk)
        except StorageFailed:
            told = True
        assert told or queues(disk.inner) == ALL, disk.story
        check(disk.inner.copy(), NONE, ALL)


def test_whichever_call_of_the_recovery_fails_the_next_one_completes_it() -> None:
    for disk in failing_calls(committed, error=errno.EIO, format="kestrel"):
        try:
            recover_staging(ROOT, disk=disk)
        except StorageFailed:
            assert disk.failures
        check(disk.inner.copy(), NONE, ALL)


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
    publish(root, run, staged, Target(), Batch("query", number), disk=disk)


def publish_for_ever(root: str, number: int) -> None:
    """What the killed process does: it goes on with the batch that it is told, and says which one is done."""
    for following in itertools.count(number):
        publish_number(TellingDisk(), Path(root), following)
        print(f"done {following}", flush=True)


def test_however_often_its_process_is_killed_a_query_publishes_each_batch_once(tmp_path: Path) -> None:
    dice, done = random.Random(7), -1
    code = f"import sys; from {__name__} import publish_for_ever as run; run(sys.argv[1], int(sys.argv[2]))"
    for _ in range(8):
        with Child(code, tmp_path, done + 1) as child:
            for _ in range(dice.randrange(1, 200)):
                line = child.line()
                done = int(line.split()[1]) if line.startswith("done") else done
            child.kill()
        COUNTS.add("kill -9", 1, "kestrel")
    publish_number(REAL_DISK, tmp_path, done + 1)
    assert recover_staging(tmp_path).rolled_forward == []
    last = json.loads((tmp_path / ".logwright" / "published" / "query.json").read_text())["batch"]
    assert queues(REAL_DISK, tmp_path) == behind({}, *(batch_of(number) for number in range(last + 1)))
    assert last > 4
