"""The parts of staging that only queues have; `tests/contract` covers the common parts."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.io.lock import Lock
from logwright.core.publish.manifest import Batch
from logwright.core.publish.staging import publish, recover_staging
from logwright.errors import DamagedJournal, WrongUse
from logwright.kestrel import Operation, Queue, QueuesReader, Scanner, Writer
from logwright.kestrel.bytes import kernel
from logwright.kestrel.bytes.codec import encode
from logwright.kestrel.bytes.layout import MAX_NAME_BYTES
from logwright.kestrel.files.cursor import Chunk
from logwright.kestrel.files.files import list_files
from logwright.kestrel.tables.splits import SPLITS
from logwright.kestrel.tables.staging import QueuesTarget, Stage
from logwright.sej.tables.staging import ShardsTarget
from tests.contract.staging import ROOT, STAGING, Row
from tests.kestrel.staging_subject import KestrelStaging
from tests.support.trees import read_file, read_tree, write_file

KESTREL = KestrelStaging()
FIRST, SECOND, NONE, ALL = KESTREL.first, KESTREL.second, KESTREL.none, KESTREL.everything
stage, queues, placed, publish_two = KESTREL.stage, KESTREL.contents, KESTREL.placed, KESTREL.publish_two
FAR = 9_000_000_000_000_000
"""The number of a rotated file from a time when the clock was far ahead."""


def files(disk: Disk, queue: str, root: Path = ROOT) -> list[str]:
    return [file.name for file in list_files(disk, root, queue).files]


def test_batch_is_one_rotated_file_per_queue_after_existing_files() -> None:
    disk = KESTREL.with_journals()
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


def test_queue_delivers_existing_items_and_then_the_batch(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", sync="always") as queue:
        queue.put_many([b"one", b"two", b"three"])
        assert queue.get() == b"one"
        queue.reserve()
    rows: list[Row] = [("cars", b"four", 4, None), ("cars", b"five", 5, None)]
    publish(tmp_path, "run", [stage(REAL_DISK, "run", 0, rows, root=tmp_path)], QueuesTarget())
    with Queue(tmp_path, "cars") as queue:
        queue.put(b"six")
        assert queue.get_many(9) == [b"two", b"three", b"four", b"five", b"six"]


def test_number_exceeds_all_earlier_ones_even_if_the_clock_moves_back() -> None:
    disk = KESTREL.with_journals()
    write_file(disk, ROOT / f"cars.{FAR}", encode(Operation("addx", added=1, data=b"of the future")))
    for number in range(1, 4):
        rows: list[Row] = [("cars", b"batch %d" % number, number, None)]
        done = publish(ROOT, "run", [stage(disk, "run", 0, rows)], QueuesTarget(), disk=disk)
        assert done.starts == {"cars": FAR + 1 + number}, "the newest file came before the first of them"
    assert [item[0] for item in queues(disk)["cars"][-3:]] == [b"batch 1", b"batch 2", b"batch 3"]


def test_nothing_is_published_without_a_greater_number() -> None:
    disk = KESTREL.with_journals()
    write_file(disk, ROOT / f"cars.{10**20 - 2}", b"")
    with pytest.raises(WrongUse, match=rf"cars\.{10**20 - 1}: there is no greater number"):
        publish_two(disk)
    assert queues(disk) == NONE
    recover_staging(ROOT, disk=disk)
    assert queues(disk) == NONE


def test_items_without_a_time_get_one_and_without_an_expiry_never_expire() -> None:
    disk = KESTREL.empty()
    task = Stage(ROOT, "run", 0, QueuesTarget("cars"), disk=disk)
    before = time.time_ns() // 1_000_000
    moment = pa.timestamp("us", tz="UTC")
    task.append_batch(pa.record_batch({"data": ["text"]}))
    task.append_batch(pa.record_batch({"data": [b"a"], "added": pa.array([None], moment)}))
    task.append_batch(pa.record_batch({"data": [b"b"], "added": pa.array([1999], moment)}))
    publish(ROOT, "run", [task.finish()], QueuesTarget("cars"), disk=disk)
    first, second, third = queues(disk)["cars"]
    assert (first[0], second[0], third) == (b"text", b"a", (b"b", 1, None))
    assert before <= (first[1] or 0) <= (second[1] or 0) <= time.time_ns() // 1_000_000


def test_rows_go_to_their_queue_or_the_default() -> None:
    disk = KESTREL.empty()
    task = Stage(ROOT, "run", 0, QueuesTarget("rest"), disk=disk)
    task.append_batch(pa.record_batch({"queue": ["cars", None, "cars"], "data": [b"a", b"b", b"c"]}))
    publish(ROOT, "run", [task.finish()], QueuesTarget("rest"), disk=disk)
    assert {name: [item[0] for item in items] for name, items in queues(disk).items()} == {
        "cars": [b"a", b"c"],
        "rest": [b"b"],
    }


def test_follower_reads_each_item_of_a_batch_once() -> None:
    disk = KESTREL.with_journals()
    with Scanner(ROOT, timeout=0, disk=disk) as scanner:
        assert len(list(scanner)) == 7
        for number in range(2):
            publish_two(disk, Batch("query", number))
            seen = [operation.data for operation in scanner]
            assert sorted(data for data in seen if data is not None) == sorted(row[1] for row in FIRST + SECOND)


def test_stream_over_queues_gets_each_item_of_a_batch_once() -> None:
    disk = KESTREL.with_journals()
    reader = QueuesReader(ROOT, disk=disk)
    ends = {queue: end for queue, (_, end) in SPLITS.extent(reader).items()}
    for number in range(3):
        publish_two(disk, Batch("query", number))
        reached = {queue: end for queue, (_, end) in SPLITS.extent(reader).items()}
        starts = {queue: ends.get(queue, 0) for queue in reached}
        found = [
            operation.data
            for split in SPLITS.plan(reader, 600, starts, reached, resumed=True)
            for chunk in SPLITS.chunks(reader, split)
            if isinstance(chunk, Chunk)
            for operation in kernel.operations(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.dialect)
        ]
        assert sorted(data for data in found if data is not None) == sorted(row[1] for row in FIRST + SECOND)
        ends = reached


@pytest.mark.parametrize("name", ["a/b", "/etc/passwd", "..", ".", "cars.1", "cars~~1", "a+b+c", "+a", "a+", "a\0b"])
def test_names_that_the_original_forbids_are_refused(name: str) -> None:
    disk = KESTREL.empty()
    task = Stage(ROOT, "run", 0, QueuesTarget(), disk=disk)
    with pytest.raises(WrongUse, match=r"is not a valid queue name: it must not contain / ~ \+ \."):
        task.append_batch(pa.record_batch({"queue": [name], "data": [b"x"]}))
    with pytest.raises(WrongUse, match="is not a valid queue name"):
        QueuesTarget(name)
    assert read_tree(disk, ROOT) == {}


def test_name_too_long_for_rotation_and_packing_is_refused(tmp_path: Path) -> None:
    longest = "ö" * (MAX_NAME_BYTES // 2)
    with pytest.raises(WrongUse, match=f"is too long for a queue name: the limit is {MAX_NAME_BYTES} bytes"):
        QueuesTarget(longest + "oo")
    task = Stage(tmp_path, "run", 0, QueuesTarget(longest))
    task.append_batch(pa.record_batch({"data": [b"x"]}))
    publish(tmp_path, "run", [task.finish()], QueuesTarget(longest))
    longest_of_its_files = tmp_path / f"{longest}.{10**20 - 1}.pack"
    longest_of_its_files.write_bytes(encode(Operation("save_xid", 0)))
    with Queue(tmp_path, longest) as queue:
        assert len(queue) == 0, "the pack contains all of it"


@pytest.mark.parametrize("queue", [None, ""])
def test_row_without_a_queue_is_refused_without_a_default(queue: str | None) -> None:
    task = Stage(ROOT, "run", 0, QueuesTarget(), disk=KESTREL.empty())
    with pytest.raises(WrongUse, match="a row names no queue"):
        task.append_batch(pa.record_batch({"queue": pa.array([queue], pa.string()), "data": [b"x"]}))
    with pytest.raises(WrongUse, match="a row names no queue"):
        task.append_batch(pa.record_batch({"data": [b"x"]}))


def test_torn_tail_of_the_newest_file_is_cut_and_kept_before_the_batch() -> None:
    disk = KESTREL.with_journals()
    whole = read_file(disk, ROOT / "cars")
    write_file(disk, ROOT / "cars", whole + encode(Operation("addx", added=9, data=b"torn"))[:-1])
    publish_two(disk)
    assert queues(disk) == ALL
    (kept,) = disk.list_directory(ROOT / ".logwright" / "cut")
    assert kept.startswith(f"cars.@{len(whole)}.")


def test_damaged_newest_file_is_not_changed_and_nothing_is_published() -> None:
    disk = KESTREL.with_journals()
    item = encode(Operation("addx", added=1_700_000_000_000, data=b"item"))
    write_file(disk, ROOT / "cars", item + b"\xff" + item + item)
    before = {name: data for name, data in read_tree(disk, ROOT).items() if not name.startswith(".logwright")}
    with pytest.raises(DamagedJournal, match="cars @ 25"):
        publish_two(disk)
    recover_staging(ROOT, disk=disk)
    assert {name: data for name, data in read_tree(disk, ROOT).items() if not name.startswith(".logwright")} == before


def test_interrupted_pack_is_finished_first() -> None:
    disk = KESTREL.with_journals()
    with Writer(ROOT / "cars", disk=disk) as writer:
        last = writer.rotate()
    state = b"".join(
        encode(Operation("addx", added=added, data=data)) for added, data in ((3, b"waits"), (5, b"newest"))
    )
    write_file(disk, ROOT / f"cars.{last}.pack", state)
    publish_two(disk)
    expected = placed({"cars": [(b"waits", 3, None), (b"newest", 5, None)], "dogs": NONE["dogs"]}, FIRST, SECOND)
    assert queues(disk) == expected
    assert files(disk, "cars")[0] == f"cars.{last}"


def test_items_of_a_batch_are_packed_like_others() -> None:
    disk = KESTREL.with_journals()
    publish_two(disk)
    with Writer(ROOT / "cars", disk=disk) as writer:
        writer.rewrite()
    assert queues(disk) == ALL
    assert len(files(disk, "cars")) == 2


class ForeignWriter(Writer):
    """Operations as written by a program that knows files and locks, but no manifests."""

    def __init__(self, path: Path, *, disk: Disk) -> None:
        self._held_lock = Lock.acquire(disk, path.parent / ".logwright" / f"{path.name}.lck")
        super().__init__(path, disk=disk)


def test_foreign_writes_before_recovery_apply_to_the_items_visible_then() -> None:
    disk = KESTREL.with_journals()
    publish_two(disk)
    for state in disk.process_kills(format="kestrel"):
        before = queues(state).get("cars", [])
        with ForeignWriter(ROOT / "cars", disk=state) as writer:
            writer.addx(b"of another", added=6)
            for _ in range(len(before)):  # all except the reserved one and the new one
                writer.remove()
            writer.addx(b"its last", added=6)
        recover_staging(ROOT, disk=state)
        publish_two(state, run="again")
        batch = [(data, added, expires) for queue, data, added, expires in FIRST + SECOND if queue == "cars"]
        was_in_place = [item for item in before if item in batch]
        assert was_in_place in ([], batch), state.story
        expected = [before[0], (b"its last", 6, None)] + ([] if was_in_place else batch)
        assert queues(state)["cars"] == expected, state.story


def test_directory_that_is_also_a_sej_root_completes_both_kinds_of_batches() -> None:
    disk = KESTREL.committed()
    target = ShardsTarget()
    task = target.stage(ROOT, "messages", 0, disk=disk)
    task.append_batch(pa.record_batch({"value": [b"a message"]}))
    publish(ROOT, "messages", [task.finish()], target, disk=disk)
    assert queues(disk) == ALL
    assert disk.list_directory(STAGING) == ["sink.lck"]
