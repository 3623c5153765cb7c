"""Putting parked items back with unpark, and the effects of a crash."""

from __future__ import annotations

import contextlib
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import Closed, DamagedJournal, Locked, LogwrightError, NotFound, WrongUse
from logwright.kestrel import Queue, unpark
from logwright.kestrel.model import open_queues
from logwright.kestrel.model.engine import Engine
from logwright.kestrel.model.parking import plan_unpark
from tests.kestrel.queues import until
from tests.kestrel.samples import ADDED, RESERVE, addx, write
from tests.support.faulty_disk import failing_calls
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile
from tests.support.threads import DEADLINE_SECONDS

HOME = Path("/spool")


def items_of(path: Path, disk: Disk = REAL_DISK) -> list[tuple[bytes, int | None, int]]:
    with Queue(path.parent, path.name, disk=disk) as queue:
        return [(item.data, item.added, item.attempts) for item in queue.items()]


@pytest.fixture
def parked(tmp_path: Path) -> Path:
    """Three parked items, and one that waits in their original queue."""
    write(tmp_path / "cars", addx(b"good"))
    return write(tmp_path / "cars_parked", *(addx(data, added=ADDED + 1) for data in (b"a", b"b", b"c")))


def test_unparked_items_keep_their_time_and_have_no_attempts(parked: Path) -> None:
    done = unpark(parked)
    assert (done.target.name, done.items, done.left, done.doubled) == ("cars", 3, 0, 0)
    back = [(data, ADDED + 1, 0) for data in (b"a", b"b", b"c")]
    assert items_of(parked.with_name("cars")) == [(b"good", ADDED, 0), *back]
    assert items_of(parked) == []
    assert unpark(parked).items == 0


def test_items_parked_by_the_queue_are_unparked(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars+red", max_attempts=1) as queue:
        queue.put_many([b"bad", b"good"])
        queue.abort(queue.reserve().xid)
    assert items_of(tmp_path / "cars-red_parked")[0][0] == b"bad"
    assert unpark(tmp_path / "cars-red_parked").items == 1
    assert [data for data, _, _ in items_of(tmp_path / "cars+red")] == [b"good", b"bad"]


def test_more_items_than_one_move_keep_their_order(tmp_path: Path) -> None:
    numbers = [b"%d" % number for number in range(2500)]
    write(tmp_path / "cars_parked", *map(addx, numbers))
    write(tmp_path / "cars")
    assert unpark(tmp_path / "cars_parked", most=2400).items == 2400
    assert [data for data, _, _ in items_of(tmp_path / "cars")] == numbers[:2400]
    assert [data for data, _, _ in items_of(tmp_path / "cars_parked")] == numbers[2400:]


def test_plan_counts_and_changes_nothing(parked: Path) -> None:
    write(parked, addx(b"a"), addx(b"b"), addx(b"c"), RESERVE)
    before = {path.name: path.read_bytes() for path in parked.parent.iterdir()}
    plan = plan_unpark(parked, most=2)
    assert (plan.target.name, plan.items, plan.left) == ("cars", 2, 1), "reserved items would return"
    assert {path.name: path.read_bytes() for path in parked.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("path", "to", "error", "words"),
    [
        ("cars_parked", "cars_parked", WrongUse, "parked in"),
        ("cars_parked", "boats", NotFound, "there is no such queue"),
        ("cars_parked", "../cars", NotFound, "there is no such queue"),
        ("cars_parked.5", None, WrongUse, "newest file"),
        ("nowhere_parked", None, NotFound, "there is no such queue"),
        ("cars", None, WrongUse, "name it with --to"),
        ("a-b_parked", None, WrongUse, "a[+]b or a-b"),
        (".", None, WrongUse, "newest file"),
    ],
)
def test_ambiguous_target_is_refused(path: str, to: str | None, error: type, words: str, parked: Path) -> None:
    for name in ("a+b", "a-b", "a-b_parked", "cars_parked.5"):
        write(parked.with_name(name), addx(b"x"))
    with pytest.raises(error, match=words):
        unpark(parked.parent / path, to)
    with pytest.raises(error, match=words):
        plan_unpark(parked.parent / path, to)


def test_target_can_be_given_explicitly(parked: Path) -> None:
    write(parked.with_name("boats"), addx(b"boat"))
    assert unpark(parked, "boats", most=1).items == 1
    assert [data for data, _, _ in items_of(parked.with_name("boats"))] == [b"boat", b"a"]


@pytest.mark.parametrize("name", ["cars", "cars_parked"])
def test_open_queue_is_not_changed(name: str, parked: Path) -> None:
    with Queue(parked.parent, name) as queue:
        before = {path.name: path.read_bytes() for path in parked.parent.glob("cars*")}
        with pytest.raises(Locked):
            unpark(parked)
        assert {path.name: path.read_bytes() for path in parked.parent.glob("cars*")} == before
        queue.put(b"goes on")
    assert unpark(parked).items in (3, 4)


def test_damage_in_either_queue_moves_nothing(parked: Path) -> None:
    for name in ("cars", "cars_parked"):
        path = parked.with_name(name)
        whole = path.read_bytes()
        path.write_bytes(b"\x7f" + whole)
        with pytest.raises(DamagedJournal):
            unpark(parked)
        path.write_bytes(whole)
    assert (len(items_of(parked)), len(items_of(parked.with_name("cars")))) == (3, 1)


def test_items_moved_by_an_interrupted_unpark_are_reported(parked: Path) -> None:
    moved = [addx(data, added=ADDED + 1) for data in (b"a", b"b")]
    write(parked, *moved, addx(b"c", added=ADDED + 1), RESERVE, RESERVE)
    write(parked.with_name("cars"), addx(b"good"), *moved)
    done = unpark(parked)
    assert (done.items, done.left, done.doubled) == (3, 0, 2)
    assert [data for data, _, _ in items_of(parked.with_name("cars"))] == [b"good", b"a", b"b", b"a", b"b", b"c"]


def test_dead_reader_is_not_an_interrupted_unpark(parked: Path) -> None:
    write(parked, addx(b"good", added=ADDED + 5), addx(b"b"), RESERVE)
    assert unpark(parked).doubled == 0, "an item of the same data, but of another time, is another one"


@pytest.mark.parametrize("way", ["crash_states", "process_kills"])
def test_crash_loses_no_item_and_duplicates_are_reported(way: str) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Queue(HOME, "cars", sync="always", max_attempts=1, disk=disk, background=False) as queue:
        queue.put_many([b"a", b"b", b"c"])
        queue.abort(*(item.xid for item in queue.reserve_many(3)))
    disk.settle()
    disk.mark("parked")
    unpark(HOME / "cars_parked", disk=disk)
    disk.mark("done")
    doubled = 0
    choices = {"most": 24, "fills": ()} if way == "crash_states" else {}
    for state in getattr(disk, way)(format="kestrel", **choices):
        if "parked" not in state.marks:
            continue
        found = [data for name in ("cars", "cars_parked") for data, _, _ in items_of(HOME / name, state)]
        assert {*found} == {b"a", b"b", b"c"}
        if "done" in state.marks:
            assert found == [b"a", b"b", b"c"]
        done = unpark(HOME / "cars_parked", disk=state)
        assert done.doubled == len(found) - 3
        doubled = max(doubled, done.doubled)
        assert items_of(HOME / "cars_parked", state) == []
        back = [data for data, _, _ in items_of(HOME / "cars", state)]
        assert sorted(back) == sorted(found)
        forget(state)
    assert doubled == 3, "there is a moment at which all of them are in both queues"


def test_unparked_items_are_durable_in_the_target_and_removed_from_the_source() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Queue(HOME, "cars", max_attempts=1, disk=disk, background=False) as queue:
        queue.put_many([b"a", b"b"])
        queue.abort(*(item.xid for item in queue.reserve_many(2)))
        assert queue.unpark() == 2
        assert "contents of /spool/cars_parked" not in disk.unsynced()
        assert "contents of /spool/cars" not in disk.unsynced()


@pytest.mark.parametrize("target", ["cars", "cars_parked"])
def test_interrupted_move_makes_items_durable_in_the_target_before_removal(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    sync = SimulatedFile.sync

    def interrupted(file: SimulatedFile) -> None:
        if file.path.name == target and file.size():
            monkeypatch.undo()
            raise KeyboardInterrupt
        sync(file)

    with Queue(HOME, "cars", max_attempts=1, disk=disk, background=False) as queue:
        queue.put_many([b"a", b"b"])
        xids = [item.xid for item in queue.reserve_many(2)]
        if target == "cars":
            queue.abort(*xids)
        queue.sync()
        disk.settle()
        monkeypatch.setattr(SimulatedFile, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.unpark() if target == "cars" else queue.abort(*xids)
        for state in disk.crash_states(most=24, fills=(), format="kestrel"):
            found = [data for name in ("cars", "cars_parked") for data, _, _ in items_of(HOME / name, state)]
            assert {*found} == {b"a", b"b"}
            forget(state)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failed_call_loses_no_item(error: int) -> None:
    def parked_items() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        for name, items in (("cars", [b"good"]), ("cars_parked", [b"a", b"b"])):
            with Queue(HOME, name, sync="always", disk=disk, background=False) as queue:
                queue.put_many(items)
        return disk

    for disk in failing_calls(parked_items, error=error, format="kestrel"):
        with contextlib.suppress(LogwrightError):
            unpark(HOME / "cars_parked", disk=disk)
        forget(disk)
        found = [data for name in ("cars", "cars_parked") for data, _, _ in items_of(HOME / name, disk.inner)]
        assert {*found} == {b"good", b"a", b"b"}
        assert len(found) in (3, 5)
        forget(disk.inner)


def forget(disk: Disk) -> None:
    """Disks are created and discarded here, and the next one may have the same identity."""
    for key in [key for key in open_queues._engines if key[0] == id(disk)]:
        del open_queues._engines[key]


@pytest.mark.parametrize("closed", ["cars_parked", "cars"])
def test_closing_a_queue_during_unpark_leaves_each_item_in_one_queue(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = {name: Queue(tmp_path, name) for name in ("cars", "cars_parked")}
    queues["cars_parked"].put_many([b"a", b"b"])
    if closed == "cars":
        queues["cars_parked"].close()  # so that no other queue needs it
    put = Engine.put_moved
    closers: list[threading.Thread] = []

    def put_while_another_closes(self: Engine, items: Any, arrived: Any, *, within_limits: bool) -> None:
        engine = queues[closed]._engine
        closers.append(threading.Thread(target=queues[closed].close))
        put(self, items, arrived, within_limits=within_limits)
        closers[-1].start()
        until(lambda: closed == "cars_parked" or engine.is_closing)
        if closed == "cars_parked":  # others need it, so closing it does not wait
            closers[-1].join(DEADLINE_SECONDS)

    monkeypatch.setattr(Engine, "put_moved", put_while_another_closes)
    with contextlib.suppress(Closed):
        queues["cars"].unpark()
    for thread in closers:
        thread.join(DEADLINE_SECONDS)
    monkeypatch.undo()
    for queue in queues.values():
        queue.close()
    assert [data for data, _, _ in items_of(tmp_path / "cars")] == [b"a", b"b"]
    assert items_of(tmp_path / "cars_parked") == []
