"""The queue and many threads: each item goes to one of them, every waiting thread is woken, and none waits forever."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.durability import interval
from logwright.errors import Closed, Empty, Full, Locked, Poisoned, StorageFailed, WrongUse
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model import compaction, open_queues
from logwright.kestrel.model.items import Item
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock, Gate, drained, until
from tests.support.faulty_disk import FaultyDisk
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

MakeQueue = Callable[..., Queue]
END = b"end"


@pytest.fixture
def make(tmp_path: Path) -> MakeQueue:
    """Opens a queue of this test."""
    return lambda name="cars", **options: Queue(tmp_path, name, **options)


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def wait_until_threads_wait(queue: Queue, threads: int = 1) -> None:
    """Wait until this number of threads waits for an item."""
    until(lambda: queue.stats().waiting >= threads)


def results(threads: list[Future[Any]]) -> list[Any]:
    return [thread.result(DEADLINE_SECONDS) for thread in threads]


# --- each item once ---------------------------------------------------------------------------------------------------


def produce(queue: Queue, name: int, count: int) -> None:
    """Put items by every method."""
    number = 0
    while number < count:
        many = 1 if number % 3 else min(7, count - number)
        if many == 1:
            queue.put(b"%d %d" % (name, number))
        else:
            queue.put_many([b"%d %d" % (name, number + more) for more in range(many)])
        number += many


def consume(queue: Queue) -> list[bytes]:
    """Take items until the end item arrives."""
    found: list[bytes] = []
    while True:
        if len(found) % 2:
            data = queue.get(timeout=None)
        else:
            (data,) = queue.get_many(1, timeout=None)
        if data == END:
            return found
        assert data is not None
        found.append(data)


def consume_reliably(queue: Queue) -> list[bytes]:
    """Reserve items and confirm them; every third one is first put back once."""
    found: list[bytes] = []
    while True:
        (item,) = queue.reserve_many(1, timeout=None)
        if item.data != END and item.attempts == 0 and int(item.data.split()[1]) % 3 == 0:
            queue.abort(item)
            continue
        queue.confirm(item)
        if item.data == END:
            return found
        found.append(item.data)


SMALL = {"max_memory_bytes": 2000, "max_journal_bytes": 8000, "default_journal_bytes": 2000}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 400),
        ({"buffer_bytes": 1000}, 400),
        ({"sync": "always"}, 40),
        ({"sync": interval(2)}, 400),
        (SMALL, 400),
        ({**SMALL, "background": False}, 200),
        ({**SMALL, "dialect": "kestrel2", "buffer_bytes": 500}, 200),
    ],
    ids=["plain", "buffered", "always", "interval", "packed by a thread", "packed at once", "kestrel2"],
)
@pytest.mark.parametrize("consumer", [consume, consume_reliably])
def test_each_item_goes_to_one_thread_and_in_the_order_of_its_producer(
    make: MakeQueue, options: dict[str, Any], count: int, consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 500)  # so that the thread of the queue has work to do
    with make(**options) as queue:
        consumers = [in_a_thread(lambda: consumer(queue)) for _ in range(6)]
        results([in_a_thread(partial(produce, queue, name, count)) for name in range(6)])
        for _ in consumers:
            queue.put(END)
        found = results(consumers)
        assert sorted(chain(*found)) == sorted(
            b"%d %d" % (name, number) for name in range(6) for number in range(count)
        )
        if consumer is consume:
            for one in found:
                for name in range(6):
                    numbers = [int(data.split()[1]) for data in one if data.startswith(b"%d " % name)]
                    assert numbers == sorted(numbers)
        assert (len(queue), queue.stats().open, queue.stats().waiting) == (0, 0, 0)
    with make() as queue:
        assert queue.get() is None


def test_remaining_items_are_in_the_order_of_their_producers(make: MakeQueue) -> None:
    with make(**SMALL) as queue:
        results([in_a_thread(partial(produce, queue, name, 300)) for name in range(4)])
    with make() as queue:
        left = [tuple(map(int, data.split())) for data in queue]
    for name in range(4):
        assert [number for producer, number in left if producer == name] == list(range(300))


def test_threads_that_abort_items_of_others_lose_nothing(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"%d" % number for number in range(50)])

        def open_and_abort() -> None:
            for most in range(100):
                items = queue.reserve_many(most % 5 + 1)
                queue.abort(*items)

        results([in_a_thread(open_and_abort) for _ in range(6)])
        assert sorted(int(data) for data in drained(queue)) == list(range(50))


def test_only_one_of_many_threads_can_confirm(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        item, other = queue.reserve_many(2)

        def confirm() -> bool:
            try:
                queue.confirm(item)
            except WrongUse:
                return False
            return True

        assert sum(results([in_a_thread(confirm) for _ in range(8)])) == 1
        queue.abort(other)
        assert list(queue) == [b"two"]


def test_full_queue_refuses_items_until_one_is_removed(make: MakeQueue) -> None:
    with make(max_items=5) as queue:
        taken: list[bytes] = []

        def put_all() -> int:
            refused = 0
            for number in range(300):
                while True:
                    try:
                        queue.put(b"%d" % number)
                        break
                    except Full:
                        refused += 1
                        assert len(queue) <= 5
            queue.put_many([])
            return refused

        def take_all() -> None:
            while len(taken) < 300:
                data = queue.get(timeout=None)
                assert data is not None
                taken.append(data)

        producer = in_a_thread(put_all)
        results([in_a_thread(take_all), producer])
        assert [int(data) for data in taken] == list(range(300))


# --- families ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["none", "always"])
def test_every_child_gets_every_item_once_and_all_in_the_same_order(make: MakeQueue, sync: str) -> None:
    count = 100 if sync == "none" else 15
    names = ["orders", "orders+audit", "orders+mail"]
    with make(names[0], sync=sync) as parent, make(names[1], sync=sync) as audit, make(names[2]) as mail:
        family = [parent, audit, mail]
        consumers = [in_a_thread(partial(consume, queue)) for queue in family]
        results([in_a_thread(partial(produce, parent, name, count)) for name in range(4)])
        parent.put(END)
        first, second, third = results(consumers)
        assert first == second == third
        assert sorted(first) == sorted(b"%d %d" % (name, number) for name in range(4) for number in range(count))


def test_children_are_added_and_deleted_while_threads_put(make: MakeQueue) -> None:
    with make("orders") as parent:
        putting = in_a_thread(lambda: produce(parent, 0, 2000))
        seen: list[list[int]] = []
        while not putting.done():
            with make("orders+audit") as audit:
                seen.append([int(data.split()[1]) for data in drained(audit)])
        putting.result(DEADLINE_SECONDS)
        with make("orders+audit") as audit:
            seen.append([int(data.split()[1]) for data in drained(audit)])
        numbers = list(chain(*seen))
        assert numbers == list(range(numbers[0], 2000)) if numbers else True
        assert len(parent) == 2000


def test_closed_child_of_an_open_parent_is_closed(make: MakeQueue) -> None:
    with make("orders") as parent:
        audit = make("orders+audit")
        parent.put_many([b"one", b"two", b"three"])
        audit.reserve_many(2)
        waiting = [in_a_thread(lambda: audit.get_many(5, timeout=None) and audit.get(timeout=None))]
        wait_until_threads_wait(audit)
        audit.close()
        with pytest.raises(Closed):
            waiting[0].result(DEADLINE_SECONDS)
        for call in (audit.get, audit.peek, lambda: audit.put(b"x"), lambda: audit.put_many([b"x"]), audit.stats):
            with pytest.raises(Closed, match=r"orders\+audit: this queue is closed"):
                call()
        with pytest.raises(Closed):
            len(audit)
        assert repr(audit).endswith("orders+audit: closed>")
        parent.put(b"four")
        with make("orders+audit") as audit:
            found = [(item.data, item.attempts) for item in audit.items()]
            assert found == [(b"one", 1), (b"two", 1), (b"four", 0)]


def test_child_has_the_sync_policy_it_is_opened_with(make: MakeQueue) -> None:
    make("orders+audit").close()
    for parents in ({"sync": "always"}, {"buffer_bytes": 10_000}):
        with make("orders", **parents), make("orders+audit") as audit:
            before = audit.path.stat().st_size
            audit.put(b"x")
            assert audit.path.stat().st_size == before + 22, "it is with the system"
            audit.get()
    disk = Gate()
    disk.opened.set()
    with make("orders", disk=disk), make("orders+audit", disk=disk, sync=interval(1)) as audit:
        audit.put(b"x")
        disk.arrived.clear()
        assert disk.arrived.wait(DEADLINE_SECONDS), "the thread of `interval` syncs"


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_waiting_reader_gets_an_arriving_item(make: MakeQueue) -> None:
    with make() as queue:
        waiting = [in_a_thread(lambda: queue.get(timeout=None)) for _ in range(5)]
        wait_until_threads_wait(queue, 5)
        queue.put(b"0")
        queue.put_many([b"1", b"2"])
        item_data = {b"0", b"1", b"2"}
        wait_until_threads_wait(queue, 2)
        queue.put_many([b"3", b"4"])
        assert set(results(waiting)) == item_data | {b"3", b"4"}
        assert queue.stats().waiting == 0


def test_aborted_item_wakes_a_waiting_reader(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")
        item = queue.reserve()
        waiting = in_a_thread(lambda: queue.reserve(timeout=None))
        wait_until_threads_wait(queue)
        queue.abort(item)
        again = waiting.result(DEADLINE_SECONDS)
        assert again is not None
        assert (again.data, again.attempts) == (b"one", 1)


@pytest.mark.parametrize("timeout", [0, -1, 0.001])
def test_wait_ends_at_the_timeout_without_an_item(make: MakeQueue, timeout: float) -> None:
    with make() as queue:
        assert queue.get(timeout) is None
        with pytest.raises(Empty):
            queue.reserve(timeout)
        assert queue.get_many(2, timeout) == []
        assert queue.stats().waiting == 0


def test_timeout_may_be_arbitrarily_long(make: MakeQueue) -> None:
    with make() as queue:
        for timeout in (1e9, 1e30, float("inf")):
            waiting = in_a_thread(partial(queue.get, timeout))
            wait_until_threads_wait(queue)
            queue.put(b"one")
            assert waiting.result(DEADLINE_SECONDS) == b"one"


# --- syncs ------------------------------------------------------------------------------------------------------------


def test_32_threads_share_their_syncs(make: MakeQueue) -> None:
    disk = Gate()
    disk.opened.set()
    with make(sync="always", disk=disk) as queue:
        disk.opened.clear()
        before = disk.syncs
        threads = [in_a_thread(partial(queue.put, b"%d" % number)) for number in range(32)]
        until(lambda: len(queue) == 32)
        assert not any(thread.done() for thread in threads)
        disk.opened.set()
        results(threads)
        assert disk.syncs - before <= 16
        assert sorted(int(data) for data in queue.get_many(50)) == list(range(32))


def test_calls_being_synced_at_close_are_completed(make: MakeQueue) -> None:
    disk = Gate()
    disk.opened.set()
    queue = make(sync="always", disk=disk)
    queue.put(b"zero")
    disk.opened.clear()
    disk.arrived.clear()
    threads = [in_a_thread(lambda: queue.put(b"one"))]
    assert disk.arrived.wait(DEADLINE_SECONDS)
    threads.append(in_a_thread(lambda: queue.put(b"two")))
    until(lambda: len(queue) == 3)
    closing = in_a_thread(queue.close)
    disk.opened.set()
    results([*threads, closing])
    with make() as queue:
        assert list(queue) == [b"zero", b"one", b"two"]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["none", "always"])
@pytest.mark.parametrize("end", [Queue.close, Queue.delete])
def test_closing_wakes_all_waiting_readers(make: MakeQueue, end: Callable[[Queue], None], sync: str) -> None:
    queue = make(sync=sync)
    waiting: list[Future[Any]] = [in_a_thread(lambda: queue.get(timeout=None)) for _ in range(4)]
    waiting += [in_a_thread(lambda: queue.reserve_many(3, timeout=1000)) for _ in range(4)]
    wait_until_threads_wait(queue, 8)
    end(queue)
    for thread in waiting:
        with pytest.raises(Closed, match="closed"):
            thread.result(DEADLINE_SECONDS)
    make().close()


def test_threads_using_a_closed_queue_get_a_clear_error(make: MakeQueue) -> None:
    for _ in range(20):
        queue = make()
        acknowledged: list[set[bytes]] = [set() for _ in range(4)]
        started = threading.Barrier(5)

        def put_for_ever(
            name: int, queue: Queue = queue, acknowledged: Any = acknowledged, started: Any = started
        ) -> None:
            started.wait(DEADLINE_SECONDS)
            for number in range(10**6):
                queue.put(b"%d %d" % (name, number))
                acknowledged[name].add(b"%d %d" % (name, number))

        threads = [in_a_thread(partial(put_for_ever, name)) for name in range(4)]
        started.wait(DEADLINE_SECONDS)
        queue.close()
        for thread in threads:
            with pytest.raises(Closed):
                thread.result(DEADLINE_SECONDS)
        with make() as queue:
            found = queue.get_many(10**9)
            assert len(found) == len(set(found))
            assert set(chain(*acknowledged)) == set(found)


def test_failed_write_wakes_all_waiting_readers(make: MakeQueue) -> None:
    disk: Any = FaultyDisk(REAL_DISK, 0, errno.ENOSPC, forever=True, only={"write"})
    queue = make(disk=disk)
    waiting = [in_a_thread(lambda: queue.get(timeout=None)) for _ in range(3)]
    wait_until_threads_wait(queue, 3)
    disk._fail_at = disk.calls + 1
    with pytest.raises(StorageFailed):
        queue.put(b"no room")
    for thread in waiting:
        with pytest.raises(Poisoned, match="failed earlier"):
            thread.result(DEADLINE_SECONDS)
    queue.close()


def test_failed_background_sync_wakes_all_waiting_readers(make: MakeQueue) -> None:
    disk: Any = FaultyDisk(REAL_DISK, 0, errno.EIO, forever=True, only={"sync"})
    queue = make(disk=disk, sync=interval(1))
    waiting = [in_a_thread(lambda: queue.get(timeout=None)) for _ in range(3)]
    wait_until_threads_wait(queue, 3)
    disk._fail_at = disk.calls + 1
    for thread in waiting:
        with pytest.raises(Poisoned):
            thread.result(DEADLINE_SECONDS)
    queue.close()


def in_a_fork(action: Callable[[], object]) -> None:
    """Run a function in a child process, which must not fail."""
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork_that_closes_the_queue_of_its_parent_changes_nothing(make: MakeQueue) -> None:
    with make("orders") as queue, make("orders+audit") as audit:
        for _ in range(20):
            queue.put(b"come and gone")
            queue.get()
        before = queue.path.read_bytes()
        in_a_fork(queue.close)
        in_a_fork(audit.close)
        assert queue.path.read_bytes() == before
        queue.put(b"one")
        assert [item.data for item in Reader(queue.path).queue_state().items] == [b"one"]
        with pytest.raises(Locked):
            Writer(queue.path)


def test_fork_cannot_delete_the_queue_of_its_parent(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")

        def delete() -> None:
            with pytest.raises(WrongUse, match="another process"):
                queue.delete()

        in_a_fork(delete)
        assert [item.data for item in Reader(queue.path).queue_state().items] == [b"one"]


# --- items that move --------------------------------------------------------------------------------------------------


def test_closing_does_not_deadlock_with_a_waiting_thread(make: MakeQueue) -> None:
    clock = Clock()
    queue = make(clock=clock, expire_to="old", sweep_seconds=0.001)
    queue.put(b"one", expires=5)
    with open_queues._lock:  # held like a caller that opens or closes a queue
        clock.now += 6
        until(lambda: queue.stats().open == 1)  # the thread that sweeps has reserved it, and requests the other queue
        queue.close()
    with make(clock=clock, expire_to="old") as queue:
        assert queue.get() is None
        assert queue.stats().moved == 1
    with make("old") as old:
        assert list(old) == [b"one"]


def test_items_expiring_during_reads_and_closes_are_kept(make: MakeQueue) -> None:
    clock = Clock()
    taken: list[bytes] = []
    for turn in range(15):
        queue = make(clock=clock, expire_to="old", sweep_seconds=0.001, max_memory_bytes=500)
        queue.put_many([b"%d %d" % (turn, number) for number in range(40)], expires=5)
        queue.put_many([b"%d more %d" % (turn, number) for number in range(10)])

        def take(queue: Queue = queue) -> None:
            try:
                while (data := queue.get(timeout=None)) is not None:
                    taken.append(data)
            except Closed:
                return

        threads = [in_a_thread(take) for _ in range(3)]
        clock.now += 6
        queue.close()
        results(threads)
    with make(clock=Clock()) as queue, make("old") as old:
        everything = [*taken, *queue.get_many(10**6), *old.get_many(10**6)]
    assert len(everything) == len(set(everything)) == 15 * 50


def test_found_item_is_not_lost_when_others_cannot_be_moved(make: MakeQueue, tmp_path: Path) -> None:
    clock = Clock()
    with make(clock=clock, expire_to="other", max_items=4) as queue:
        queue.put(b"old", expires=5)
        queue.put_many([b"one", b"two", b"three"])
        clock.now += 6
        with Writer(tmp_path / "other"):
            queue.put(b"four")  # expired items free space, and this is done
            assert queue.get() == b"one"
            item = queue.reserve()
            assert (item.data, queue.get_many(5), queue.stats().moved) == (b"two", [b"three", b"four"], 0)
            with pytest.raises(Locked):
                queue.get()
        queue.confirm(item)
        assert queue.get() is None
        assert (queue.stats().moved, queue.stats().open) == (1, 0)
    with make("other") as other:
        assert list(other) == [b"old"]


# --- what one would expect --------------------------------------------------------------------------------------------


def test_items_have_confirm_and_abort_methods(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        first, second, third = queue.reserve_many(3)
        assert isinstance(first, Item)
        queue.confirm(first, third.xid)
        queue.abort(second)
        assert list(queue) == [b"two"]


def test_with_block_keeps_a_decision_made_inside_it(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        with queue.reserve() as item:
            queue.abort(item)
        with queue.reserve() as item:
            assert (item.data, item.attempts) == (b"one", 1)
            queue.confirm(item)
        assert (list(queue), queue.stats().open) == ([b"two"], 0)


def test_queue_is_usable_in_one_expression(make: MakeQueue, tmp_path: Path) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.reserve()
        assert repr(queue) == f"<Queue {tmp_path / 'cars'}: 2 items, 1 open>"
    assert repr(queue) == f"<Queue {tmp_path / 'cars'}: closed>"
    assert (queue.name, queue.path, queue.recovered, queue.kept) == ("cars", tmp_path / "cars", None, None)
