"""Items that are not due yet, retries with back-off, and idempotent puts; and what a crash leaves of them."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import Full, Locked, LogwrightError, TooLarge, WrongUse
from logwright.kestrel import AsyncQueue, Queue, Writer
from logwright.kestrel.files.files import list_queues
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.model import delays, open_queues
from logwright.torture.moments import Moment, MortalDisk
from tests.kestrel.queues import Clock, drained, journal_of, until
from tests.support.counts import COUNTS
from tests.support.faulty_disk import failing_calls
from tests.support.forks import fork_server
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

HOME = Path("/spool")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Iterator[Queue]:
    with Queue(tmp_path, "cars", clock=clock) as queue:
        yield queue


def notes_of(path: Path, disk: Disk = REAL_DISK) -> list[Any]:
    ledger = path.parent / ".logwright" / "ledger" / path.name
    return [json.loads(item.data) for item in Reader(ledger, disk=disk).queue_state().items]


# --- delays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [30, 30.0, timedelta(seconds=30), datetime.fromtimestamp(1_700_000_030, UTC)])
def test_delayed_item_is_delivered_when_it_is_due(delay: Any, queue: Queue, clock: Clock) -> None:
    queue.put(b"late", delay=delay)
    assert (queue.get(), len(queue), list(queue), queue.peek()) == (None, 0, [], None)
    clock.now += 29.999
    assert (queue.get(), queue.stats().delayed) == (None, 1)
    clock.now += 0.001
    assert (queue.peek(), queue.get(), queue.get(), queue.stats().delayed) == (b"late", b"late", None, 0)


def test_items_are_delivered_in_the_order_in_which_they_are_due(queue: Queue, clock: Clock) -> None:
    queue.put(b"30", delay=30)
    queue.put_many([b"10a", b"10b"], delay=10)
    queue.put(b"20", delay=20)
    queue.put(b"0", delay=0)
    queue.put(b"-1", delay=-1)
    clock.now += 10
    assert list(drained(queue)) == [b"0", b"-1", b"10a", b"10b"]
    clock.now += 20
    assert list(drained(queue)) == [b"20", b"30"]


def test_due_items_are_added_at_the_tail_of_a_queue_that_is_never_empty(queue: Queue, clock: Clock) -> None:
    queue.put(b"late", delay=10)
    queue.put_many([b"1", b"2", b"3"])
    clock.now += 10
    assert queue.get() == b"1", "this call moves the item"
    assert list(queue) == [b"2", b"3", b"late"]


def test_age_of_a_delayed_item_begins_when_it_is_due(tmp_path: Path, clock: Clock) -> None:
    with Queue(tmp_path, "cars", clock=clock, max_age=60) as queue:
        queue.put(b"late", delay=100)
        clock.now += 159
        assert next(queue.items()).added == (1_700_000_000 + 100) * 1000 if queue.sweep() == 0 else False
        clock.now += 1
        assert queue.get() is None


def test_delayed_items_survive_a_restart(tmp_path: Path, clock: Clock) -> None:
    for _ in range(3):
        with Queue(tmp_path, "cars", clock=clock) as queue:
            queue.put(b"late", delay=30)
            assert queue.get() is None
    clock.now += 30
    with Queue(tmp_path, "cars", clock=clock) as queue:
        assert list(drained(queue)) == [b"late"] * 3


def test_holding_queue_is_a_queue_that_no_user_can_have(queue: Queue, tmp_path: Path, clock: Clock) -> None:
    queue.put(b"late", delay=30)
    assert list_queues(REAL_DISK, tmp_path) == ["cars", "cars~delayed"]
    (item,) = Reader(tmp_path / "cars~delayed").queue_state().open
    assert (item.data, item.expires) == (b"late", 1_700_000_030_000), "Kestrel moves it when it expires"
    with pytest.raises(WrongUse, match="not a valid queue name"):
        Queue(tmp_path, "cars~delayed")
    with pytest.raises(WrongUse, match="too long"), Queue(tmp_path, "c" * 225) as long:
        long.put(b"late", delay=1)


def test_clear_and_delete_include_delayed_items(tmp_path: Path, clock: Clock) -> None:
    queue = Queue(tmp_path, "cars", clock=clock)
    queue.put(b"now")
    queue.abort(queue.reserve(), delay=5)
    queue.put(b"late", delay=30)
    queue.put(b"now", id="1")
    assert (queue.clear(), queue.stats().delayed) == (3, 0)
    queue.put(b"late", delay=30)
    queue.delete()
    assert list_queues(REAL_DISK, tmp_path) == []
    clock.now += 30
    with Queue(tmp_path, "cars", clock=clock) as queue:
        assert queue.get() is None
        assert queue.put(b"now", id="1"), "the ids are deleted with the queue"


def test_limits_include_delayed_items(tmp_path: Path, clock: Clock) -> None:
    with Queue(tmp_path, "cars", clock=clock, max_items=2, max_item_bytes=4) as queue:
        queue.put(b"late", delay=30)
        queue.put(b"now")
        with pytest.raises(Full):
            queue.put(b"late", delay=30)
        with pytest.raises(TooLarge):
            queue.put(b"large", delay=30)
        queue.put(b"now")
        clock.now += 30
        assert list(drained(queue)) == [b"now", b"now", b"late"], "an accepted item is not refused when it is due"


@pytest.mark.parametrize(
    "arguments",
    [{"delay": "soon"}, {"delay": float("nan")}, {"delay": 1, "expires": 2}, {"id": ""}, {"id": 5}, {"id": "x" * 1025}],
)
def test_invalid_arguments_change_nothing(arguments: dict[str, Any], queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(WrongUse):
        queue.put(b"x", **arguments)
    assert (len(queue), queue.stats().delayed, list_queues(REAL_DISK, tmp_path)) == (0, 0, ["cars"])


@pytest.mark.parametrize("name", ["retry_delay", "max_retry_delay", "id_window", "max_ids"])
def test_invalid_options_are_refused(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {name: -1}
    with pytest.raises(WrongUse, match=name):
        Queue(tmp_path, "cars", **options)


def test_children_get_delayed_items_of_their_parent(tmp_path: Path, clock: Clock) -> None:
    with Queue(tmp_path, "news", clock=clock) as news, Queue(tmp_path, "news+archive", clock=clock) as archive:
        news.put(b"late", delay=30)
        assert news.put(b"once", id="1")
        assert not news.put(b"once", id="1")
        assert (news.get(), archive.get(), news.get()) == (b"once", b"once", None)
        clock.now += 30
        assert (list(drained(news)), list(drained(archive))) == ([b"late"], [b"late"])


def test_more_items_than_one_move_are_moved(queue: Queue, clock: Clock) -> None:
    numbers = [b"%d" % number for number in range(2500)]
    queue.put_many(numbers, delay=5)
    clock.now += 5
    assert list(drained(queue)) == numbers


def test_moved_items_are_durable_before_they_leave_the_holding_queue(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Queue(HOME, "cars", clock=clock, disk=disk, background=False) as queue:
        queue.put(b"late", delay=5)
        clock.now += 5
        queue.sweep()
        assert not {"contents of /spool/cars", "contents of /spool/cars~delayed"} & {*disk.unsynced()}
        assert list(queue) == [b"late"]


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_put_first", [True, False])
@pytest.mark.parametrize("how", ["put", "abort"])
def test_waiting_caller_gets_an_item_when_it_is_due(how: str, is_put_first: bool, tmp_path: Path) -> None:
    with Queue(tmp_path, "cars") as queue:
        found: list[bytes | None] = []
        if how == "abort":
            queue.put(b"late")
            item = queue.reserve()

        def delay() -> None:
            queue.put(b"late", delay=0.02) if how == "put" else queue.abort(item, delay=0.02)

        if is_put_first:
            delay()
        waiting = [
            threading.Thread(target=lambda timeout=timeout: found.append(queue.get(timeout=timeout)))
            for timeout in (None, DEADLINE_SECONDS)
        ]
        for thread in waiting:
            thread.start()
        if not is_put_first:
            until(lambda: queue.stats().waiting == 2)
            delay()
        until(lambda: found == [b"late"])
        queue.put(b"last")
        for thread in waiting:
            thread.join(DEADLINE_SECONDS)
        assert found == [b"late", b"last"]


@pytest.mark.parametrize("is_put_first", [True, False])
def test_waiting_task_gets_an_item_when_it_is_due(is_put_first: bool, tmp_path: Path) -> None:
    async def wait() -> list[bytes | None]:
        async with AsyncQueue(tmp_path, "cars", sync="always") as queue:
            if is_put_first:
                await queue.put(b"late", delay=0.02)
            waiting = asyncio.create_task(queue.get(timeout=DEADLINE_SECONDS))
            while not queue.stats().waiting and not waiting.done():
                await asyncio.sleep(0)
            if not is_put_first:
                await queue.put(b"late", delay=0.02)
            return [await waiting, await queue.get(timeout=0.01)]

    assert asyncio.run(wait()) == [b"late", None]


def test_tasks_delay_retry_and_put_once(tmp_path: Path, clock: Clock) -> None:
    async def work() -> None:
        async with AsyncQueue(tmp_path, "cars", clock=clock, retry_delay=10) as queue:
            assert await queue.put(b"once", id="1")
            assert not await queue.put(b"once", id="1")
            await queue.put_many([b"late"], delay=30)
            with suppress(ValueError):
                async with queue.reserve() as item:
                    raise ValueError
            assert (await queue.get(), queue.stats().delayed) == (None, 2)
            clock.now += 10
            item = await queue.reserve()
            assert (item.data, item.attempts) == (b"once", 1)
            await queue.abort(item, delay=0)
            assert await queue.get() == b"once"
            clock.now += 20
            assert await queue.get() == b"late"

    asyncio.run(work())


# --- retries ----------------------------------------------------------------------------------------------------------


def test_failed_item_does_not_block_the_others(queue: Queue, clock: Clock) -> None:
    queue.put_many([b"poison", b"good"])
    item = queue.reserve()
    queue.abort(item, delay=10)
    with pytest.raises(WrongUse, match="not open"):
        queue.confirm(item)
    assert (queue.get(), queue.get(), queue.stats().open, queue.stats().delayed) == (b"good", None, 0, 1)
    queue.put(b"new")
    clock.now += 10
    item = queue.reserve()
    assert (item.data, item.attempts) == (b"poison", 1), "it returns to the head"


def test_back_off_doubles_up_to_its_maximum_and_then_parks(tmp_path: Path, clock: Clock) -> None:
    options: Any = {"retry_delay": 10, "max_retry_delay": timedelta(seconds=35), "max_attempts": 5, "clock": clock}
    with Queue(tmp_path, "cars", **options) as queue:
        queue.put(b"poison")
        waits = []
        for attempt in range(4):
            item = queue.reserve()
            assert item.attempts == attempt
            queue.abort(item)
            began = clock.now
            while queue.peek() is None:
                clock.now += 1
            waits.append(clock.now - began)
        assert waits == [10, 20, 35, 35]
        queue.abort(queue.reserve())
        assert (queue.stats().delayed, queue.stats().moved) == (0, 1)
    with Queue(tmp_path, "cars_parked") as parked:
        assert list(parked) == [b"poison"]


def test_item_of_a_dead_reader_waits_as_well(tmp_path: Path, clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    queue = Queue(HOME, "cars", clock=clock, retry_delay=10, disk=disk, background=False)
    queue.put_many([b"poison", b"good"])
    queue.reserve()
    (state,) = [*disk.process_kills(format="kestrel")][-1:]
    clock.now += 100
    for _ in range(2):  # a second crash does not begin the wait again
        forget(disk)
        queue = Queue(HOME, "cars", clock=clock, retry_delay=10, disk=state, background=False)
        assert (list(queue), queue.stats().delayed, queue.stats().open) == ([b"good"], 1, 0)
        disk, state = state, [*state.process_kills(format="kestrel")][-1]
        clock.now += 5
    forget(disk)
    with Queue(HOME, "cars", clock=clock, retry_delay=10, disk=state, background=False) as queue:
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"poison", 1), (b"good", 0)]
    forget(state)


def test_retries_survive_compaction_and_restarts(tmp_path: Path, clock: Clock) -> None:
    options: Any = {"clock": clock, "default_journal_bytes": 1, "background": False}
    for _ in range(3):
        with Queue(tmp_path, "cars", **options) as queue:
            queue.put_many([b"poison", b"good"])
            queue.abort(queue.reserve(), delay=10)
            assert list(drained(queue)) == [b"good"]
    clock.now += 10
    with Queue(tmp_path, "cars", **options) as queue:
        assert list(drained(queue)) == [b"poison"] * 3


# --- ids --------------------------------------------------------------------------------------------------------------


def test_repeated_put_with_an_id_adds_nothing_within_the_window(tmp_path: Path, clock: Clock) -> None:
    for is_new in (True, False):
        with Queue(tmp_path, "cars", clock=clock, id_window=60) as queue:
            assert queue.put(b"once", id="a") == is_new
            assert queue.put(b"once", id=b"\xff") == is_new
            assert queue.put(b"late", id="b", delay=5) == is_new
            clock.now += 5
    with Queue(tmp_path, "cars", clock=clock, id_window=60) as queue:
        assert [queue.get(), queue.get(), queue.get(), queue.get()] == [b"once", b"once", b"late", None]
        clock.now += 49
        assert not queue.put(b"once", id="a"), "an item that was taken is not added again"
        clock.now += 1
        assert queue.put(b"again", id="a")


def test_repeated_put_returns_when_the_first_one_is_durable(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)

    def durable() -> list[bytes]:
        assert not any(name.startswith("contents of") for name in disk.unsynced())
        return [item.data for item in Reader(HOME / "cars", disk=disk).queue_state().items]

    async def put() -> bool:
        async with AsyncQueue(HOME, "cars", sync="always", clock=clock, disk=disk, background=False) as queue:
            queue.handle.put_to_all([b"twice"], None, None, "2")
            is_new = await queue.put(b"twice", id="2")
            assert durable() == [b"once", b"twice"]
            return is_new

    with opened(disk, clock, "always", {}) as queue:
        queue._handle.put_to_all([b"once"], None, None, "1")  # as in a thread that has yet to sync
        assert durable() == []
        assert not queue.put(b"once", id="1")
        assert durable() == [b"once"]
    assert not asyncio.run(put())


def test_repeated_put_returns_when_the_items_of_children_are_durable(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    options: Any = {"clock": clock, "disk": disk, "background": False}
    with Queue(HOME, "cars", sync="always", **options) as queue, Queue(HOME, "cars+red", sync="always", **options):
        queue._handle.put_to_all([b"once"], None, None, "1")  # as in a thread that has yet to sync
        assert not queue.put(b"once", id="1")
        for name in ("cars", "cars+red"):
            assert [item.data for item in Reader(HOME / name, disk=disk).queue_state().items] == [b"once"]
        assert not any(name.startswith("contents of") for name in disk.unsynced())


def test_only_the_last_ids_are_known(tmp_path: Path, clock: Clock) -> None:
    for _ in range(2):
        with Queue(tmp_path, "cars", clock=clock, max_ids=3) as queue:
            added = [queue.put(b"x", id=str(number)) for number in (*range(5), 4, 3, 2)]
            assert added[5:] == [False, False, False]
    assert len(notes_of(tmp_path / "cars")) < 20


def test_ids_are_known_after_the_journal_was_replaced(tmp_path: Path, clock: Clock) -> None:
    options: Any = {"clock": clock, "default_journal_bytes": 1, "background": False}
    with Queue(tmp_path, "cars", **options) as queue:
        queue.put(b"x" * 1000, id="a")
        queue.get()
        assert journal_of(tmp_path / "cars") in ([], ["save_xid 0"]), "the journal was erased"
        assert not queue.put(b"x", id="a")
    with Queue(tmp_path, "cars", **options) as queue:
        assert not queue.put(b"x", id="a")
        assert queue.get() is None


def test_ledger_is_rewritten_when_most_notes_are_outdated(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "_SPARE_NOTES", 20)
    with Queue(tmp_path, "cars", clock=clock, id_window=10) as queue:
        for number in range(100):
            assert queue.put(b"x", id=str(number))
            queue.put(b"y", delay=1)
            clock.now += 1
            queue.abort(queue.reserve(), delay=1)
        assert len(notes_of(tmp_path / "cars")) < 60
        assert not queue.put(b"x", id="99")


def test_full_queue_does_not_remember_the_id(tmp_path: Path, clock: Clock) -> None:
    with Queue(tmp_path, "cars", clock=clock, max_items=1) as queue:
        queue.put(b"first")
        with pytest.raises(Full):
            queue.put(b"second", id="2")
        queue.get()
        assert queue.put(b"second", id="2")
    with Queue(tmp_path, "cars", clock=clock, max_items=1, discard_old_when_full=True) as queue:
        assert queue.put(b"third", id="3")
        assert list(queue) == [b"third"]


def test_second_process_gets_the_lock_of_the_queue(queue: Queue, tmp_path: Path) -> None:
    queue.put(b"late", delay=30)
    with pytest.raises(Locked, match="cars is already open"):
        Queue(tmp_path, "cars")


# --- crashes ----------------------------------------------------------------------------------------------------------


def forget(disk: Any) -> None:
    """Disks are created and discarded here, and the next one may have the same identity."""
    for key in [key for key in open_queues._engines if key[0] == id(disk)]:
        del open_queues._engines[key]


OPTIONS: list[dict[str, Any]] = [{}, {"default_journal_bytes": 1}, {"max_memory_bytes": 60, "max_journal_bytes": 200}]
"""As it is; with journals that are replaced whenever the queue is empty; with rotated and packed ones."""


def opened(disk: Any, clock: Clock, sync: str, options: dict[str, Any]) -> Queue:
    return Queue(HOME, "cars", sync=sync, clock=clock, disk=disk, background=False, **options)


def work(disk: Any, clock: Clock, sync: str, options: dict[str, Any], done: Callable[[str], None]) -> None:
    """Delay items in all ways, and take some; each step is reported when it is done."""
    start = clock.now
    with opened(disk, clock, sync, options) as queue:
        for step, act in {
            "late": lambda: queue.put(b"late", delay=10),
            "later": lambda: queue.put_many([b"later 1", b"later 2"], delay=20),
            "sooner": lambda: queue.put(b"sooner", delay=5),
            "once": lambda: queue.put(b"once", id="1"),
            "late once": lambda: queue.put(b"late once", id="2", delay=15),
            "retried": lambda: queue.abort(queue.reserve(), delay=12),  # it is `once`
        }.items():
            act()  # type: ignore[no-untyped-call]
            done(step)
        for time, item in ((5, b"sooner"), (10, b"late"), (12, b"once")):
            clock.now = start + time
            done(f"at {time}")
            assert queue.get() == item
            done(f"got {item.decode()}")
            assert queue.get() is None
    done("closed")
    clock.now = start + 15
    done("at 15")
    with opened(disk, clock, sync, options) as queue:
        assert queue.get() == b"late once"
        done("got late once")
    clock.now = start


DUE = {b"sooner": 5, b"late": 10, b"once": 12, b"late once": 15, b"later 1": 20, b"later 2": 20}
STEP_OF = {b"later 1": "later", b"later 2": "later"}
GETS = ("sooner", "late", "once", "late once")


def check(disk: Any, marks: Sequence[str], options: dict[str, Any]) -> None:
    """Each item that was put is there once unless it was taken, is not delivered early, and is not put again."""
    clock = Clock()
    start = int(clock.now)
    now = max([0, *(int(mark.removeprefix("at ")) for mark in marks if mark.startswith("at "))])
    being_taken = next((name for name in GETS if f"got {name}" not in marks), "") if now else ""
    found: dict[bytes, int] = {}
    clock.now = start + now
    with opened(disk, clock, "none", options) as queue:
        for id, data in (("1", b"once"), ("2", b"late once")):
            is_new = queue.put(data, id=id, delay=max(0, DUE[data] - now))
            assert not (is_new and data.decode() in marks)
        for time in range(now, 25):
            clock.now = start + time
            while (item := queue.get()) is not None:
                assert item not in found, f"{item!r} is there twice"
                found[item] = time
    for data, due in DUE.items():
        name = data.decode()
        if f"got {name}" in marks:
            assert data not in found
        elif data in found:
            assert found[data] >= due or (name == "once" and "retried" not in marks), "it is early"
        else:
            assert STEP_OF.get(data, name) not in marks or name == being_taken, "it is lost"
    forget(disk)


def worked(sync: str, options: dict[str, Any]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    work(disk, Clock(), sync, options, disk.mark)
    return disk


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "replaced", "packed"])
def test_power_cut_at_any_step_leaves_each_item_once(options: dict[str, Any]) -> None:
    for state in worked("always", options).crash_states(most=24, fills=(), format="kestrel"):
        check(state, state.marks, options)


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "replaced", "packed"])
def test_process_killed_at_any_step_leaves_each_item_once(sync: str, options: dict[str, Any]) -> None:
    for state in worked(sync, options).process_kills(format="kestrel"):
        check(state, state.marks, options)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failed_disk_call_loses_and_doubles_nothing(error: int) -> None:
    def empty() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        return disk

    for disk in failing_calls(empty, error=error, format="kestrel"):
        marks: list[str] = []
        with suppress(LogwrightError):
            work(disk, Clock(), "none", {}, marks.append)
        forget(disk)
        check(disk.inner, marks, {})


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_item_is_not_lost_if_its_move_fails_before_the_queue_is_closed(error: int) -> None:
    def empty() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        return disk

    for disk in failing_calls(empty, error=error, format="kestrel"):
        clock, was_put = Clock(), False
        with suppress(LogwrightError), opened(disk, clock, "none", {}) as queue:
            queue.put(bytes(100), delay=1)
            clock.now += 1
            queue.get()  # closing makes the journal of the holding queue shorter
            queue.put_many([b"late 1", b"late 2"], delay=9)
            was_put = True
            clock.now += 9
            queue.sweep()
        forget(disk)
        clock.now = Clock().now + 10
        with opened(disk.inner, clock, "none", {}) as queue:
            queue.sweep()
            assert not was_put or list(queue) == [b"late 1", b"late 2"]
        forget(disk.inner)


def moved_and_noted(disk: Any, clock: Clock) -> None:
    """Move two items that are due, and put one under an id."""
    with opened(disk, clock, "none", {}) as queue:
        queue.put_many([b"late 1", b"late 2"], delay=10)
        disk.mark("put")
        clock.now += 10
        queue.sweep()
        queue.put(b"once", id="1")


def test_note_of_a_killed_process_does_not_become_true_when_another_program_appends() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    moved_and_noted(disk, Clock())
    for state in disk.process_kills(format="kestrel"):
        if "put" in state.marks:
            with Writer(HOME / "cars", disk=state) as writer:
                for _ in range(20):
                    writer.addx(b"of another program", added=1)
            clock = Clock()
            clock.now += 10
            with opened(state, clock, "none", {}) as queue:
                queue.sweep()
                queue.put(b"once", id="1")
                items = [data for data in queue if data != b"of another program"]
            assert sorted(items) == [b"late 1", b"late 2", b"once"]
        forget(state)


def test_ids_are_known_after_the_journal_was_packed(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    options = {"max_memory_bytes": 60, "max_journal_bytes": 200}
    with opened(disk, clock, "none", options) as queue:
        for number in range(20):
            queue.put(b"%050d" % number, id=str(number))
            queue.get()
    forget(disk)
    with Writer(HOME / "cars", disk=disk.copy()) as writer:
        for refused in (writer.pack, writer.rewrite):
            with pytest.raises(WrongUse, match="open it as a Queue"):
                refused()
    with opened(disk.copy(), clock, "none", options) as queue:
        assert [number for number in range(20) if queue.put(b"again", id=str(number))] == []


def test_note_of_a_lost_retry_does_not_delay_a_later_reader_of_the_item(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with opened(disk, clock, "none", {"buffer_bytes": 1 << 16}) as queue:
        queue.put(b"late")
        queue.flush()
        queue.abort(queue.reserve(), delay=3600)  # the ledger has it, and the buffer the reservation
        forget(disk)
        killed = disk.copy()
    with opened(killed, clock, "none", {}) as queue:
        assert queue.reserve().xid == 1, "the lost one had the same id"
        forget(killed)
        killed = killed.copy()
    with opened(killed, clock, "none", {}) as queue:
        assert list(queue) == [b"late"]


def test_operations_are_durable_before_their_notes_become_true_for_ever(clock: Clock) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    with opened(disk, clock, "none", {}) as queue:
        queue.put(b"once", id="1")
        queue._engine.compaction.restate()
    for state in disk.crash_states(most=24, fills=(), format="kestrel"):
        with opened(state, clock, "none", {}) as queue:
            queue.put(b"once", id="1")  # without a sync, the note may be lost and the item not, but never the reverse
            assert set(queue) == {b"once"}
        forget(state)


# --- any calls in any order -------------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    data: bytes
    attempts: int = 0


class DelayMachine(RuleBasedStateMachine):
    """A queue with delays behaves like lists in memory, whatever happens to its process and its clock."""

    @initialize(retry_delay=st.sampled_from((None, 3)), options=st.sampled_from(OPTIONS))
    def begin(self, retry_delay: int | None, options: dict[str, Any]) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory(HOME)
        self.clock = Clock()
        self.limits = {**options, "retry_delay": retry_delay, "max_retry_delay": 10, "id_window": 20}
        self.waiting: list[Waiting] = []
        self.held: list[tuple[int, int, bytes]] = []
        self.open: dict[int, Waiting] = {}
        self.retries: dict[int, tuple[int, Waiting]] = {}
        self.ids: dict[str, float] = {}
        self.count = 0
        self.queue = opened(self.disk, self.clock, "none", self.limits)

    def take(self, most: int) -> list[Waiting]:
        """Take items, as the queue does: delayed ones that are due are added after it, or if there is none."""
        self.put_back({xid: item for xid, (due, item) in self.retries.items() if due <= self.clock.now})
        self.retries = {xid: (due, item) for xid, (due, item) in self.retries.items() if due > self.clock.now}
        if not self.waiting:
            self.add_due()
        found, self.waiting = self.waiting[:most], self.waiting[most:]
        self.add_due()
        return found

    def add_due(self) -> None:
        self.waiting += [Waiting(data) for due, _, data in sorted(self.held) if due <= self.clock.now]
        self.held = [item for item in self.held if item[0] > self.clock.now]

    def put_back(self, items: dict[int, Waiting]) -> None:
        self.waiting[:0] = [Waiting(item.data, item.attempts + 1) for _, item in sorted(items.items())]

    def delay_of(self, item: Waiting) -> int:
        retry_delay = self.limits["retry_delay"]
        return min(10, retry_delay * 2**item.attempts) if retry_delay else 0

    @rule(delay=st.sampled_from((None, -1, 0, 1, 5, 12)), id=st.sampled_from((None, None, "a", "b", "c")))
    def put(self, delay: int | None, id: str | None) -> None:
        self.count += 1
        data = b"%d" % self.count
        is_new = id is None or self.ids.get(id, 0) <= self.clock.now
        assert self.queue.put(data, delay=delay, id=id) == is_new
        if is_new and id is not None:
            self.ids[id] = self.clock.now + 20
        if is_new and delay is not None and delay > 0:
            self.held.append((int(self.clock.now) + delay, self.count, data))
        elif is_new:
            self.waiting.append(Waiting(data))

    @rule()
    def get(self) -> None:
        found = self.queue.get()
        assert ([] if found is None else [found]) == [item.data for item in self.take(1)]

    @rule(most=st.integers(1, 3))
    def reserve(self, most: int) -> None:
        found = self.queue.reserve_many(most)
        assert [Waiting(item.data, item.attempts) for item in found] == self.take(most)
        self.open |= {item.xid: Waiting(item.data, item.attempts) for item in found}

    @precondition(lambda self: self.open)
    @rule(delay=st.sampled_from((None, 0, 2, 7)), is_first=st.booleans())
    def abort(self, delay: int | None, is_first: bool) -> None:
        xid = (min if is_first else max)(self.open)
        self.queue.abort(xid, delay=delay)
        item = self.open.pop(xid)
        seconds = self.delay_of(item) if delay is None else delay
        if seconds:
            self.retries[xid] = int(self.clock.now) + seconds, item
        else:
            self.put_back({xid: item})

    @precondition(lambda self: self.open)
    @rule()
    def confirm(self) -> None:
        xid = min(self.open)
        self.queue.confirm(xid)
        del self.open[xid]

    @rule(seconds=st.sampled_from((1, 1, 3, 8, 30)))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def clear(self) -> None:
        assert self.queue.clear() == len(self.waiting) + len(self.held) + len(self.retries)
        self.waiting, self.held, self.retries = [], [], {}

    @rule(is_killed=st.booleans())
    def open_again(self, is_killed: bool) -> None:
        if is_killed:
            forget(self.disk)
            self.disk = self.disk.copy()
        else:
            self.queue.close()
        self.queue = opened(self.disk, self.clock, "none", self.limits)
        due = {xid: item for xid, (time, item) in self.retries.items() if time <= self.clock.now}
        for xid, item in self.open.items():
            if seconds := self.delay_of(item):
                self.retries[xid] = int(self.clock.now) + seconds, item
            else:
                due[xid] = item
        for xid in due:
            self.retries.pop(xid, None)
        self.put_back(due)
        self.open = {}

    @invariant()
    def the_queue_is_as_the_model(self) -> None:
        stats = self.queue.stats()
        assert (stats.items, stats.open) == (len(self.waiting), len(self.open))
        assert stats.delayed == len(self.held) + len(self.retries)
        assert [Waiting(item.data, item.attempts) for item in self.queue.items()] == self.waiting

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()


def machine(examples: int, steps: int) -> Any:
    found: Any = type("Machine", (DelayMachine,), {}).TestCase  # type: ignore[attr-defined]
    found.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    return found


class TestDelaysAgainstTheModel(machine(60, 30)):  # type: ignore[misc]
    """Some thousands of steps."""


@pytest.mark.torture
class TestDelaysAgainstTheModelForLong(machine(1000, 50)):  # type: ignore[misc]
    """Many more."""


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory whose syncs take no time, if there is one: a killed process keeps what was written."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        yield Path(directory)


def delay_for_ever(directory: str, first: int, moment: Any, pipe: Any) -> None:
    """Put items later and once, retry them and take them; report each, until this process kills itself."""
    logging.disable(logging.CRITICAL)
    disk: Any = MortalDisk(Moment(*moment))
    with Queue(directory, "cars", disk=disk, background=False, default_journal_bytes=2000, retry_delay=0.001) as queue:
        for number in itertools.count(first):
            data = b"%d" % number
            delay = None if number % 3 else 0.001
            pipe.send(("putting", number))
            queue.put(data, delay=delay, id=data)
            pipe.send(("put", number))
            while len(queue) or queue.stats().delayed:
                item = queue.reserve(timeout=None)
                if not item.attempts and number % 2:
                    queue.abort(item)
                    continue
                pipe.send(("taking", int(item.data)))
                queue.confirm(item)
                pipe.send(("taken", int(item.data)))


@pytest.mark.parametrize("kind", ["write", "sync", "write temporary", "rename"])
def test_killed_process_leaves_each_item_once(kind: str, in_memory: Path) -> None:
    context = fork_server()
    put: set[int] = set()
    taken: set[int] = set()
    for turn in range(3):
        receiver, sender = context.Pipe(duplex=False)
        moment = (kind, 1 + 3 * turn, bool(turn % 2))
        process = context.Process(target=delay_for_ever, args=(str(in_memory), 10**6 * turn, moment, sender))
        process.start()
        sender.close()
        last: dict[str, int] = {}
        with suppress(EOFError):
            while True:
                assert receiver.poll(DEADLINE_SECONDS), "the process reports nothing"
                what, number = receiver.recv()
                last[what] = number
                if what == "put":
                    put.add(number)
                elif what == "taken":
                    assert number not in taken, "it is delivered after it was confirmed"
                    taken.add(number)
        process.join(DEADLINE_SECONDS)
        assert process.exitcode == -9, "it ended by itself"
        COUNTS.add("kill -9", 1, "kestrel")
        with Queue(in_memory, "cars") as queue:
            if "putting" in last:  # the caller does not know whether it was put, and repeats the call
                queue.put(b"%d" % last["putting"], id=str(last["putting"]))
                put.add(last["putting"])
            left = []
            while len(queue) or queue.stats().delayed:
                left.append(int(queue.get(timeout=DEADLINE_SECONDS) or -1))
            queue.put_many([b"%d" % number for number in left])
        if last.get("taking") is not None and last["taking"] not in {*taken, *left}:
            taken.add(last["taking"])
        assert sorted(left) == sorted(put - taken)
