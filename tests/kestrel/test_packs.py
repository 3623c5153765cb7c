"""Packs that exist beside the files they replace: ours after a crash, and foreign ones.

Our own pack is complete, and the files that it replaces can be removed. A foreign pack may be incomplete, so these
files are kept beside the queue, or the queue does not open. Files with the same number are never guessed at.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.format import Located
from logwright.core.io.disk import Disk
from logwright.errors import DamagedJournal, LogwrightError
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files import repair
from logwright.kestrel.files.files import list_files
from logwright.kestrel.files.note import rotated_files
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.scanner import Scanner
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.packing import write_pack
from logwright.kestrel.model.queue import Queue
from logwright.kestrel.tables.splits import SPLITS
from tests.kestrel.samples import REMOVE, addx, encoded, save_xid
from tests.support.faulty_disk import failing_calls
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_tree

HOME = Path("/queues")
OLD = {"cars.904": encoded([addx(b"A")]), "cars.950": encoded([addx(b"B"), REMOVE, addx(b"C")])}
NEWEST = {"cars": encoded([addx(b"D")])}
WHOLE = encoded([save_xid(0), addx(b"B"), addx(b"C")])
Opener = Callable[[Disk], Any]
OPENERS = pytest.mark.parametrize(
    "opener", [lambda disk: Queue(HOME, "cars", disk=disk), lambda disk: Writer(HOME / "cars", disk=disk)]
)


def with_files(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    write_tree(disk, HOME, files)
    return disk


def visible(disk: Disk) -> dict[str, bytes]:
    tree = read_tree(disk, HOME)
    return {name: data for name, data in tree.items() if data is not None and not name.startswith(".logwright")}


def kept(disk: Disk) -> dict[str, bytes]:
    """The kept copies, by the original names of the files."""
    tree = read_tree(disk, HOME)
    cut = {name: data for name, data in tree.items() if data is not None and name.startswith(".logwright/cut/")}
    return {name.split("/")[-1].partition(".@")[0]: data for name, data in cut.items()}


def items(disk: Disk) -> list[bytes]:
    return [item.data for item in Reader(HOME / "cars", disk=disk).queue_state().items]


# --- a pack from elsewhere --------------------------------------------------------------------------------------------


@OPENERS
def test_incomplete_foreign_pack_loses_no_byte(opener: Opener) -> None:
    """Cut at every byte: also where an operation ends, which cannot be distinguished from a complete pack."""
    ends = [len(encoded([save_xid(0), addx(b"B"), addx(b"C")][:count])) for count in (1, 2, 3)]
    for end in range(len(WHOLE) + 1):
        disk = with_files({**OLD, "cars.950.pack": WHOLE[:end], **NEWEST})
        before, counted = visible(disk), items(disk)
        if end in ends:
            opener(disk).close()
            assert kept(disk) == OLD
            assert items(disk) == counted, "readers count what the queue counts"
            assert visible(disk)["cars.950"] == WHOLE[:end]
        else:
            with pytest.raises(DamagedJournal, match=r"^/queues/cars.950.pack @ .* still there: cars.904, cars.950$"):
                opener(disk)
            assert visible(disk) == before


def test_files_replaced_by_a_foreign_pack_are_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, data in {**OLD, "cars.950.pack": WHOLE}.items():
        (tmp_path / name).write_bytes(data)
    messages = {problem.file: problem.message for problem in Reader(tmp_path / "cars").verify().anomalies}
    assert messages["cars.904"].endswith("the next writer keeps it in .logwright/cut, as the pack is from elsewhere")
    with caplog.at_level(logging.WARNING), Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"B", b"C"]
    assert [record.getMessage().split(", which")[0] for record in caplog.records] == [
        f"{tmp_path / 'cars.950.pack'}: a pack of another program replaces {name}" for name in ("cars.904", "cars.950")
    ]
    summary = Reader(tmp_path / "cars").summary()
    assert summary.details["kept_bytes"] == sum(map(len, OLD.values()))


@OPENERS
def test_empty_pack_that_replaces_nothing_but_empty_files_is_finished(opener: Opener) -> None:
    disk = with_files({"cars.904": b"", "cars.950": b"", "cars.950.pack": b"", "cars.951": b"", **NEWEST})
    opener(disk).close()
    assert sorted(visible(disk)) == ["cars", "cars.950", "cars.951"]
    assert kept(disk) == {}


@OPENERS
@pytest.mark.parametrize("dead", [{}, OLD], ids=["alone", "beside what it replaces"])
@pytest.mark.parametrize("damaged", ["cars.950.pack", "cars.960", "cars"])
def test_pack_is_not_finished_while_a_file_that_counts_is_damaged(
    opener: Opener, dead: dict[str, bytes], damaged: str
) -> None:
    """Opening says that it has changed nothing: the pack keeps its suffix, and the files that it replaces stay."""
    files = {**dead, "cars.950.pack": WHOLE, "cars.960": encoded([addx(b"E")]), **NEWEST}
    disk = with_files({**files, damaged: b"\xff" + files[damaged]})
    before = read_tree(disk, HOME)
    with pytest.raises(DamagedJournal, match=r"there is no operation 255; .*nothing was changed"):
        opener(disk)
    assert visible(disk) == before
    assert kept(disk) == {}


@OPENERS
def test_pack_is_finished_before_a_torn_tail_is_cut(opener: Opener) -> None:
    disk = with_files({"cars.950.pack": WHOLE, "cars": NEWEST["cars"] + encoded([addx(b"E")])[:-1]})
    opener(disk).close()
    assert visible(disk) == {"cars.950": WHOLE, **NEWEST}
    assert kept(disk) == {"cars": encoded([addx(b"E")])[:-1]}


def test_empty_pack_is_a_problem_and_damage_for_every_reader() -> None:
    disk = with_files({**OLD, "cars.950.pack": b"", **NEWEST})
    reader = Reader(HOME / "cars", disk=disk)
    assert [(found.file, found.position, found.kind) for found in reader.verify().problems] == [
        ("cars.950.pack", 0, "empty_pack")
    ]
    assert [(found.file, found.message) for found in reader.verify().anomalies] == [
        (name, "it does not count as long as cars.950.pack is there") for name in OLD
    ]
    assert reader.summary().damaged
    with pytest.raises(DamagedJournal, match=r"cars.950.pack @ 0: the pack is empty"):
        list(reader)
    first, second = reader.operations(mode="permissive")
    assert isinstance(first, Damage)
    assert isinstance(second, Operation)
    assert (first.file, first.kind) == ("cars.950.pack", "empty_pack")
    assert [operation.data for operation in reader.operations(mode="dropmalformed")] == [second.data] == [b"D"]
    with Scanner(HOME / "cars", timeout=0, mode="permissive", disk=disk) as scanner:
        assert [isinstance(item, Damage) for item in scanner.located()] == [True, False]
        assert list(scanner.located()) == [], "it is reported once"
    with pytest.raises(DamagedJournal, match="the pack is empty"):
        [list(SPLITS.chunks(reader, split)) for split in SPLITS.plan(reader)]


def test_repair_removes_an_empty_pack_so_that_the_files_are_used_again() -> None:
    disk = with_files({**OLD, "cars.950.pack": b"", **NEWEST})
    before = visible(disk)
    repair.apply(HOME / "cars", repair.plan(HOME / "cars", disk=disk), disk=disk)
    with Queue(HOME, "cars", disk=disk) as queue:
        assert list(queue) == [b"B", b"C", b"D"]
    repair.undo(HOME / "cars", disk=disk)
    assert visible(disk) == before


@pytest.mark.parametrize("way", ["crash_states", "process_kills"])
def test_crash_while_adopting_a_foreign_pack_loses_no_byte(way: str) -> None:
    disk = with_files({**OLD, "cars.950.pack": WHOLE, **NEWEST})
    disk.settle()
    Writer(HOME / "cars", disk=disk).close()
    states = 0
    for state in getattr(disk, way)(format="kestrel", **({"most": 24} if way == "crash_states" else {})):
        assert items(state) == [b"B", b"C", b"D"]
        for _ in range(2):
            there = [data for name, data in read_tree(state, HOME).items() if "cars." in name]
            assert all(data in there for data in [*OLD.values(), WHOLE])
            Writer(HOME / "cars", disk=state).close()
        assert kept(state) == OLD
        states += 1
    assert states > len(OLD), "a crash at each step, at least"


def test_failed_call_while_adopting_a_foreign_pack_loses_no_byte() -> None:
    for faulty in failing_calls(lambda: with_files({**OLD, "cars.950.pack": WHOLE, **NEWEST}), format="kestrel"):
        with contextlib.suppress(LogwrightError):
            Writer(HOME / "cars", disk=faulty).close()
        there = [data for name, data in read_tree(faulty.inner, HOME).items() if "cars." in name]
        assert all(data in there for data in [*OLD.values(), WHOLE])
        Writer(HOME / "cars", disk=faulty.inner).close()
        assert kept(faulty.inner) == OLD


# --- a pack of ours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
@pytest.mark.parametrize("left", [b"", b"left"])
def test_own_pack_left_by_a_crash_keeps_no_copies(dialect: Any, left: bytes) -> None:
    disk = with_files(
        {"cars.904": encoded([addx(b"A")]), "cars.950": encoded([REMOVE, *([addx(left)] if left else [])])}
    )
    with Writer(HOME / "cars", dialect=dialect, disk=disk):
        write_pack(disk, Reader(HOME / "cars", dialect=dialect, disk=disk), 950)
    assert list_files(disk, HOME, "cars").dead == ["cars.904", "cars.950"]
    assert Reader(HOME / "cars", disk=disk).verify().problems == []
    with Queue(HOME, "cars", disk=disk, dialect=dialect) as queue:
        assert list(queue) == ([left] if left else [])
        assert sorted(visible(disk)) == ["cars", "cars.950"]
    assert kept(disk) == {}


def test_unfinished_pack_is_finished_before_the_next_one() -> None:
    disk = with_files({**OLD, **NEWEST})
    with Writer(HOME / "cars", disk=disk) as writer:
        write_pack(disk, Reader(HOME / "cars", disk=disk), 950)
        assert sorted(visible(disk)) == ["cars", "cars.904", "cars.950", "cars.950.pack"]
        assert writer.pack()
    assert visible(disk) == {"cars.950": WHOLE, **NEWEST}
    assert kept(disk) == {}


def test_finished_pack_is_recorded_in_place_of_the_removed_files() -> None:
    disk = with_files({**OLD, **NEWEST})
    with Writer(HOME / "cars", disk=disk) as writer:
        writer.pack()
    assert rotated_files(disk, HOME, "cars") == {"cars.950": len(WHOLE)}


def test_files_added_between_a_crash_and_the_next_opening_are_kept() -> None:
    """The pack is ours and complete, but it was written before this file existed."""
    disk = with_files(OLD)
    write_pack(disk, Reader(HOME / "cars", disk=disk), 950)
    write_tree(disk, HOME, {"cars.920": encoded([addx(b"late")])})
    with Queue(HOME, "cars", disk=disk) as queue:
        assert list(queue) == [b"B", b"C"]
    assert kept(disk) == {"cars.920": encoded([addx(b"late")])}


@pytest.mark.parametrize(
    "note", [b"", b"[]", b"{", b'{"pack": 950}', b'{"pack": 950, "bytes": 57, "replaces": 3}', b"[" * 99999]
)
def test_invalid_note_names_nothing(note: bytes) -> None:
    disk = with_files({**OLD, "cars.950.pack": WHOLE, **NEWEST, ".logwright/cars.packed": note})
    Queue(HOME, "cars", disk=disk).close()
    assert kept(disk) == OLD


@pytest.mark.parametrize(("dialect", "packed"), [("documented", encoded([save_xid(0)])), ("kestrel2", b"")])
def test_pack_of_an_empty_queue_is_empty_only_in_kestrel2_and_deleted_with_the_queue(
    dialect: Any, packed: bytes
) -> None:
    disk = with_files({"cars.904": encoded([addx(b"A"), REMOVE]), **NEWEST})
    with Writer(HOME / "cars", dialect=dialect, disk=disk) as writer:
        writer.pack()
    assert visible(disk) == {"cars.904": packed, **NEWEST}
    queue = Queue(HOME, "cars", disk=disk)
    queue.delete()
    assert sorted(read_tree(disk, HOME)) == [".logwright", ".logwright/cars.lck"]


# --- names ------------------------------------------------------------------------------------------------------------


@OPENERS
@pytest.mark.parametrize("suffix", ["", ".pack"])
def test_two_files_with_one_number_are_refused_and_named(suffix: str, opener: Opener) -> None:
    disk = with_files(
        {f"cars.904{suffix}": encoded([addx(b"A")]), f"cars.0904{suffix}": encoded([addx(b"B")]), **NEWEST}
    )
    before = visible(disk)
    with pytest.raises(DamagedJournal, match=rf"cars.0904{suffix} @ 0: its number is that of cars.904{suffix}, "):
        opener(disk)
    assert visible(disk) == before
    reader = Reader(HOME / "cars", disk=disk)
    assert [(found.file, found.kind) for found in reader.verify().problems] == [(f"cars.0904{suffix}", "doubled_name")]
    with pytest.raises(DamagedJournal, match=f"cars.0904{suffix} @ 0"):
        list(reader)
    read = [item.record.data if isinstance(item, Located) else item.file for item in reader.scan(mode="permissive")]
    assert read == [f"cars.0904{suffix}", b"A", b"D"]
    plan = repair.plan(HOME / "cars", disk=disk)
    assert (plan.steps, len(plan.left)) == ((), 1)
    with pytest.raises(DamagedJournal, match=f"cars.0904{suffix} @ 0"):
        [list(SPLITS.chunks(reader, split)) for split in SPLITS.plan(reader)]


def test_number_with_leading_zeros_is_read_behind_and_packed(tmp_path: Path) -> None:
    wanted = [b"%04d" % number for number in range(3000)]
    (tmp_path / "cars.0904").write_bytes(encoded([addx(data) for data in wanted[:2000]]))
    (tmp_path / "cars.00950").write_bytes(encoded([addx(data) for data in wanted[2000:]]))
    with Queue(tmp_path, "cars", max_memory_bytes=2000, background=False) as queue:
        assert queue.stats().reads_behind
        assert list(queue) == wanted
        assert queue.get_many(1500) == wanted[:1500]
        queue._engine.compaction.rewrite()
        assert list(queue) == wanted[1500:]
        assert [queue.get() for _ in range(1500)] == wanted[1500:]
    assert Reader(tmp_path / "cars").verify().sound
