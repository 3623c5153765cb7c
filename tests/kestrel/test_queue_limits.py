"""Limits of a queue: the number of items and bytes, expiry, attempts, and the queues that items move to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import DamagedJournal, Full, Locked, TooLarge, WrongUse
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock, drained, journal_of
from tests.kestrel.samples import addx, write
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

MakeQueue = Callable[..., Queue]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> MakeQueue:
    """Opens a queue of this test, by default `cars`."""
    return lambda name="cars", **options: Queue(tmp_path, name, clock=clock, **options)


# --- how much ---------------------------------------------------------------------------------------------------------


def test_number_of_items_is_limited(make: MakeQueue) -> None:
    with make(max_items=2) as queue:
        queue.put(b"one")
        queue.put(b"two")
        with pytest.raises(Full, match="2 items of 6 bytes"):
            queue.put(b"three")
        queue.get()
        queue.put(b"three")
        assert list(queue) == [b"two", b"three"]
    assert journal_of(queue.path) == ["addx one", "addx two", "remove", "addx three"]


def test_number_of_bytes_is_limited(make: MakeQueue) -> None:
    with make(max_bytes=10) as queue:
        queue.put(b"12345")
        with pytest.raises(Full):
            queue.put(b"123456")
        queue.put(b"12345")
        with pytest.raises(Full):
            queue.put(b"1")
        queue.put(b"")
        assert len(queue) == 3


def test_put_many_is_all_or_nothing(make: MakeQueue) -> None:
    with make(max_items=3) as queue:
        queue.put(b"one")
        with pytest.raises(Full):
            queue.put_many([b"two", b"three", b"four"])
        assert list(queue) == [b"one"]
        queue.put_many([b"two", b"three"])
        assert len(queue) == 3


def test_open_items_are_not_counted(make: MakeQueue) -> None:
    with make(max_items=1) as queue:
        queue.put(b"one")
        item = queue.reserve()
        queue.put(b"two")
        queue.abort(item.xid)
        assert list(queue) == [b"one", b"two"], "it returns, whatever the limit is"


def test_oldest_items_are_dropped_on_request(make: MakeQueue) -> None:
    with make(max_items=2, discard_old_when_full=True) as queue:
        queue.put_many([b"one", b"two", b"three", b"four"])
        assert list(queue) == [b"three", b"four"]
        assert queue.stats().discarded == 2
    with make(max_bytes=10, discard_old_when_full=True) as queue:
        queue.put(b"1234567")
        assert list(queue) == [b"1234567"]
        with pytest.raises(Full):
            queue.put(b"12345678901")
        assert list(queue) == [b"1234567"]


def test_oldest_items_are_dropped_even_if_not_in_memory(make: MakeQueue) -> None:
    with make(max_items=20, discard_old_when_full=True, max_memory_bytes=100, background=False) as queue:
        for number in range(100):
            queue.put(b"%020d" % number)
        assert [int(data) for data in queue] == list(range(80, 100))
    with make() as queue:
        assert [int(data) for data in drained(queue)] == list(range(80, 100))


def test_expired_items_free_space(make: MakeQueue, clock: Clock) -> None:
    with make(max_items=2) as queue:
        queue.put_many([b"one", b"two"], expires=5)
        clock.now += 6
        queue.put(b"three")
        assert list(queue) == [b"three"]
        queue.put(b"four", expires=1)
        with pytest.raises(Full):
            queue.put(b"five")
        clock.now += 2
        with pytest.raises(Full):
            queue.put(b"five")
        queue.get()
        queue.put_many([b"five", b"six"])
        assert list(queue) == [b"five", b"six"]


def test_limits_of_the_last_opening_apply(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"x" * 100] * 10)
    with make(max_items=2, max_item_bytes=10) as queue:
        assert len(queue) == 10
        with pytest.raises(TooLarge):
            queue.put(b"x" * 11)
        with pytest.raises(Full):
            queue.put(b"x")


# --- how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expires", [5, 4.9, timedelta(seconds=5), datetime.fromtimestamp(1_700_000_005, UTC), datetime(2000, 1, 1)]
)
def test_item_expires_at_its_time(make: MakeQueue, clock: Clock, expires: Any) -> None:
    with make() as queue:
        queue.put(b"brief", expires=expires)
        queue.put(b"lasting")
        clock.now += 5
        assert list(queue) == [b"lasting"]
        assert len(queue) == 2, "it is there until an item is requested"
        assert queue.get() == b"lasting"
        assert (len(queue), queue.stats().expired) == (0, 1)
    assert journal_of(queue.path) == []


def test_item_does_not_expire_before_its_time(make: MakeQueue, clock: Clock) -> None:
    with make() as queue:
        queue.put(b"brief", expires=5)
        clock.now += 4.999
        assert queue.peek() == b"brief"
        clock.now += 0.001
        assert queue.peek() is None
        assert journal_of(queue.path) == ["addx brief", "remove"]


@pytest.mark.parametrize("ask", ["get", "peek", "reserve"])
def test_expired_items_are_skipped(make: MakeQueue, clock: Clock, ask: str) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"], expires=1)
        queue.put(b"four")
        clock.now += 2
        found = getattr(queue, ask)()
        assert getattr(found, "data", found) == b"four"
        assert queue.stats().expired == 3


def test_get_many_skips_expired_items(make: MakeQueue, clock: Clock) -> None:
    with make() as queue:
        for number in range(6):
            queue.put(b"%d" % number, expires=1 if number % 2 else None)
        clock.now += 2
        assert queue.get_many(2) == [b"0", b"2"]
        assert [item.data for item in queue.reserve_many(5)] == [b"4"]
        assert len(queue) == 0 or queue.get() is None


def test_sweep_drops_expired_items_at_the_head(make: MakeQueue, clock: Clock) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"], expires=1)
        queue.put(b"three")
        queue.put(b"four", expires=1)
        assert queue.sweep() == 0
        clock.now += 2
        assert queue.sweep() == 2
        assert len(queue) == 2
        assert queue.sweep() == 0


def test_background_thread_sweeps_on_request(make: MakeQueue, clock: Clock) -> None:
    with make(sweep_seconds=0.001, expire_to="old") as queue, make("old") as old:
        queue.put(b"one", expires=1)
        clock.now += 2
        assert old.get(timeout=DEADLINE_SECONDS) == b"one"


def test_items_expire_by_age(make: MakeQueue, clock: Clock) -> None:
    with make(max_age=10) as queue:
        queue.put(b"one")
        clock.now += 5
        queue.put(b"two", expires=100)
        clock.now += 5
        assert queue.peek() == b"two"
        clock.now += 5
        assert queue.peek() is None


def test_age_counts_across_restarts_and_under_another_limit(make: MakeQueue, clock: Clock) -> None:
    with make() as queue:
        queue.put(b"one")
    clock.now += 60
    with make(max_age=timedelta(minutes=2)) as queue:
        assert queue.peek() == b"one"
    with make(max_age=timedelta(minutes=1)) as queue:
        assert queue.peek() is None


def test_item_of_unknown_age_is_as_old_as_the_opening(make: MakeQueue, clock: Clock, tmp_path: Path) -> None:
    write(tmp_path / "cars", Operation("add", data=b"from 2007"))
    with make(max_age=10) as queue:
        (item,) = queue.items()
        assert (item.data, item.added) == (b"from 2007", None)
        clock.now += 9
        assert queue.peek() == b"from 2007"
        clock.now += 1
        assert queue.peek() is None


def test_aborted_item_that_has_expired_is_dropped(make: MakeQueue, clock: Clock) -> None:
    with make() as queue:
        queue.put(b"one", expires=5)
        item = queue.reserve()
        clock.now += 6
        queue.abort(item.xid)
        assert queue.get() is None


def test_expired_items_move_to_the_configured_queue(make: MakeQueue, clock: Clock) -> None:
    with make(expire_to="old") as queue:
        queue.put_many([b"one", b"two"], expires=5)
        queue.put(b"three")
        clock.now += 6
        assert queue.get() == b"three"
        assert (queue.stats().expired, queue.stats().moved, queue.stats().open) == (2, 2, 0)
        with make("old") as old:
            first, second = old.items()
            assert (first.data, first.added, first.expires) == (b"one", 1_700_000_000_000, None)
            assert second.data == b"two"
        queue.put(b"four", expires=1)
        clock.now += 2
        assert queue.sweep() == 1
    with make("old") as old:
        assert list(drained(old)) == [b"one", b"two", b"four"]


def test_very_many_items_expire_at_once(make: MakeQueue, clock: Clock) -> None:
    with make(expire_to="old", max_memory_bytes=10_000) as queue:
        queue.put_many((b"%d" % number for number in range(3500)), expires=5)
        queue.put(b"last")
        clock.now += 6
        assert queue.get() == b"last"
        with make("old") as old:
            assert [int(data) for data in drained(old)] == list(range(3500))


def test_unavailable_target_keeps_the_items_in_their_queue(make: MakeQueue, clock: Clock, tmp_path: Path) -> None:
    with make(expire_to="old") as queue:
        queue.put(b"one", expires=5)
        clock.now += 6
        for _ in range(2):
            with Writer(tmp_path / "old"), pytest.raises(Locked):
                queue.get()
            assert (len(queue), queue.stats().open, queue.stats().moved, queue.stats().expired) == (1, 0, 0, 0)
        assert queue.get() is None
        assert (queue.stats().moved, queue.stats().expired) == (1, 1)


@pytest.mark.parametrize("limit", ["max_items", "max_bytes", "max_item_bytes"])
def test_items_move_regardless_of_the_limits_of_the_target(limit: str, make: MakeQueue, clock: Clock) -> None:
    with make(expire_to="old", max_attempts=1, park="old") as queue, make("old", **{limit: 3}) as old:
        queue.put_many([b"1", b"22", b"four", b"4", b"55"], expires=5)
        clock.now += 6
        assert queue.sweep() == 5
        queue.put(b"seven")
        fail(queue)
        assert (len(queue), queue.stats().moved, queue.stats().expired) == (0, 6, 5)
        assert list(old) == [b"1", b"22", b"four", b"4", b"55", b"seven"]
        with pytest.raises((Full, TooLarge)):
            old.put(b"what is new")
        assert old.get_many(6) == [b"1", b"22", b"four", b"4", b"55", b"seven"]
        old.put(b"new")


def test_moved_items_drop_the_oldest_of_the_target_on_request(make: MakeQueue, clock: Clock) -> None:
    limits: dict[str, Any] = {"max_items": 3, "max_bytes": 9, "max_item_bytes": 8, "discard_old_when_full": True}
    with make(expire_to="old") as queue, make("old", **limits) as old:
        queue.put_many([b"1", b"2", b"3", b"4"], expires=5)
        clock.now += 6
        assert queue.sweep() == 4
        assert (list(old), old.stats().discarded) == ([b"2", b"3", b"4"], 1)
        queue.put_many([b"larger than all", b"5"], expires=1)
        clock.now += 2
        assert queue.sweep() == 2
        assert (list(old), old.stats().discarded) == ([b"5"], 5)


# --- how often --------------------------------------------------------------------------------------------------------


def fail(queue: Queue) -> int:
    """Open the head and abort it; its previous attempts."""
    item = queue.reserve()
    queue.abort(item.xid)
    return item.attempts


def test_attempts_are_counted(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        assert [fail(queue) for _ in range(4)] == [0, 1, 2, 3]
        assert queue.get() == b"one"
        assert queue.reserve().attempts == 0


def test_attempts_survive_restarts_and_rewriting(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        for _ in range(3):
            fail(queue)
        queue.reserve()
        second = queue.reserve()
        queue.abort(second.xid)
    for count in range(3):
        with make() as queue:
            found = [(item.data, item.attempts) for item in queue.items()]
            assert found == [(b"one", 4 + count), (b"two", 1), (b"three", 0)]
            queue.reserve()
            queue._engine.compaction.restate()
            assert journal_of(queue.path)[:2] == ["addx one", f"remove_tentative_xid {6 + count}"]
    with Writer(queue.path) as writer:
        writer.rewrite()
    with make() as queue:
        assert [item.attempts for item in queue.items()] == [7, 1, 0]


def test_item_that_fails_too_often_is_parked(make: MakeQueue) -> None:
    with make(max_attempts=3) as queue:
        queue.put_many([b"bad", b"good"])
        assert [fail(queue) for _ in range(3)] == [0, 1, 2]
        assert (len(queue), queue.stats().open, queue.stats().moved) == (1, 0, 1)
        assert queue.get() == b"good"
        with make("cars_parked") as parked:
            assert list(parked) == [b"bad"]


def test_item_can_be_parked_anywhere(make: MakeQueue) -> None:
    with make(max_attempts=1, park="elsewhere") as queue:
        queue.put(b"bad")
        fail(queue)
        with make("elsewhere") as parked:
            assert parked.get() == b"bad"


def test_readers_that_die_are_counted_as_attempts(make: MakeQueue) -> None:
    for _ in range(3):
        with make(max_attempts=3) as queue:
            if not len(queue):
                queue.put_many([b"deadly", b"good"])
            assert queue.reserve().data == b"deadly"
    with make(max_attempts=3) as queue:
        assert queue.reserve().data == b"good"
        with make("cars_parked") as parked:
            assert list(parked) == [b"deadly"]


def test_parked_items_can_be_unparked(make: MakeQueue, clock: Clock) -> None:
    with make(max_attempts=1) as queue:
        assert queue.unpark() == 0
        for number in range(5):
            queue.put(b"%d" % number, expires=60)
            fail(queue)
        queue.put(b"other")
        assert queue.unpark(2) == 2
        clock.now += 120
        assert queue.unpark() == 3
        assert [(item.data, item.attempts) for item in queue.items()] == [
            (data, 0) for data in (b"other", b"0", b"1", b"2", b"3", b"4")
        ]
        assert queue.unpark() == 0
    with make("cars_parked") as parked:
        assert len(parked) == 0


def test_items_that_do_not_fit_stay_parked(make: MakeQueue) -> None:
    with make(max_attempts=1, max_items=2) as queue:
        for number in range(3):
            queue.put(b"%d" % number)
            fail(queue)
        with pytest.raises(Full):
            queue.unpark()
        assert len(queue) == 0
        assert queue.unpark(2) == 2
        with make("cars_parked") as parked:
            assert list(parked) == [b"2"]


def test_item_that_cannot_be_parked_returns_to_the_head(make: MakeQueue, tmp_path: Path) -> None:
    with make(max_attempts=1) as queue:
        queue.put(b"bad")
        with Writer(tmp_path / "cars_parked"):
            with pytest.raises(Locked):
                fail(queue)
            assert (len(queue), queue.stats().open) == (1, 0)
            with pytest.raises(Locked):
                queue.reserve()
        assert queue.reserve_many(1) == []
        with make("cars_parked") as parked:
            assert list(parked) == [b"bad"]


def test_item_being_moved_is_not_visible_to_others(make: MakeQueue) -> None:
    with make(max_attempts=1) as queue:
        queue.put(b"bad")
        item = queue.reserve()
        queue._engine.abort([item.xid])
        with pytest.raises(WrongUse, match="transaction 1 is not open"):
            queue.confirm(item.xid)
        queue._engine.moving.finish()
        assert queue.unpark() == 1


# --- fan-out ----------------------------------------------------------------------------------------------------------


def test_items_put_to_a_parent_are_put_to_its_children(make: MakeQueue) -> None:
    with make("orders") as parent, make("orders+audit") as audit, make("orders+mail") as mail:
        parent.put(b"one")
        parent.put_many([b"two", b"three"])
        audit.put(b"only here")
        assert list(parent) == [b"one", b"two", b"three"]
        assert list(audit) == [b"one", b"two", b"three", b"only here"]
        assert list(mail) == [b"one", b"two", b"three"]
        assert mail.get() == b"one"
        assert len(parent) == 3


def test_unopened_children_get_all_items(make: MakeQueue) -> None:
    with make("orders+audit"):
        pass
    with make("orders") as parent:
        parent.put(b"one")
        with make("orders+audit") as audit:
            parent.put(b"two")
            assert audit.get() == b"one"
        parent.put(b"three")
    with make("orders+audit") as audit:
        assert list(audit) == [b"two", b"three"]


def test_child_starts_with_items_put_after_its_creation(make: MakeQueue) -> None:
    with make("orders") as parent:
        parent.put(b"before")
        with make("orders+audit") as audit:
            parent.put(b"after")
            assert list(audit) == [b"after"]


def test_deleted_child_gets_no_more_items(make: MakeQueue, tmp_path: Path) -> None:
    with make("orders") as parent:
        audit = make("orders+audit")
        parent.put(b"one")
        audit.delete()
        parent.put(b"two")
        assert not (tmp_path / "orders+audit").exists()
        assert list(parent) == [b"one", b"two"]


def test_full_child_makes_the_parent_refuse_items(make: MakeQueue) -> None:
    with make("orders") as parent, make("orders+audit", max_items=1) as audit:
        parent.put(b"one")
        with pytest.raises(Full, match=r"orders\+audit"):
            parent.put(b"two")
        assert (list(parent), list(audit)) == ([b"one"], [b"one"])
        audit.get()
        parent.put(b"two")


def test_child_locked_by_another_process_stops_the_parent(make: MakeQueue, tmp_path: Path) -> None:
    with Writer(tmp_path / "orders+audit"), pytest.raises(Locked):
        make("orders")
    with make("orders") as parent:
        parent.put(b"one")


def test_child_that_cannot_be_reopened_is_not_skipped(make: MakeQueue, tmp_path: Path) -> None:
    make("orders+audit").close()
    with make("orders") as queue:
        queue._handle._children["orders+audit"].close()  # as after a failure
        (tmp_path / "orders+audit").write_bytes(b"no journal")
        for _ in range(3):
            with pytest.raises(DamagedJournal):
                queue.put(b"one")
        assert len(queue) == 0
        (tmp_path / "orders+audit").write_bytes(b"")
        queue.put(b"two")
        with make("orders+audit") as audit:
            assert (list(queue), list(audit)) == ([b"two"], [b"two"])


def test_child_can_be_used_as_an_ordinary_queue(make: MakeQueue) -> None:
    with make("orders+audit") as audit:
        audit.put(b"one")
    with make("orders+audit") as audit:
        assert audit.get() == b"one"


def test_names_similar_to_a_child_are_not_children(make: MakeQueue) -> None:
    with make("order+s"), make("orders"), make("orders2+x") as other:
        pass
    with make("orders") as parent:
        parent.put(b"one")
    with make("orders2+x") as other, make("order+s") as another:
        assert (len(other), len(another)) == (0, 0)


def test_children_have_the_sync_policy_of_the_parent(make: MakeQueue) -> None:
    with make("orders", sync="always", buffer_bytes=10_000) as parent:
        make("orders+audit", buffer_bytes=10_000).close()
        parent.put(b"one")
        assert (parent.path.parent / "orders+audit").stat().st_size == 24


def test_threads_put_to_different_parents_without_waiting(make: MakeQueue) -> None:
    with make("orders") as parent, make("orders+audit") as audit:

        def put(letter: bytes) -> None:
            for number in range(200):
                parent.put(b"%b%d" % (letter, number))
                audit.get()

        for thread in [in_a_thread(partial(put, letter)) for letter in (b"a", b"b", b"c")]:
            thread.result(DEADLINE_SECONDS)
        assert len(parent) == 600
        assert len(audit) == 0


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def test_parked_queue_of_a_child_is_not_a_child(make: MakeQueue, tmp_path: Path) -> None:
    with make("orders+audit", max_attempts=1) as audit:
        audit.put(b"bad")
        fail(audit)
    write(tmp_path / "ignored", addx(b"x"))
    with make("orders") as parent, make("orders-audit_parked") as parked:
        parent.put(b"one")
        assert list(parked) == [b"bad"]


@pytest.mark.parametrize("stray", ["cars+", "cars+red+small", "cars+~~"])
def test_stray_file_does_not_prevent_opening_a_queue(tmp_path: Path, stray: str) -> None:
    (tmp_path / stray).write_bytes(b"")
    with Queue(tmp_path, "cars") as queue, Queue(tmp_path, "cars+red") as child:
        queue.put(b"for both")
        assert (queue.get(), child.get()) == (b"for both", b"for both")
    assert (tmp_path / stray).read_bytes() == b""
