"""The queue: putting, taking, reserving, restarting, and the operations in its journal."""

from __future__ import annotations

import os
import queue as queue_module
import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.durability import interval
from logwright.errors import Closed, DamagedJournal, Empty, Locked, TooLarge, WrongUse
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.items import Item
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock, drained, journal_of, until
from tests.kestrel.samples import (
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    reserve_as,
    save_xid,
    state_dump,
    unremove,
    write,
)
from tests.support.children import Child

MakeQueue = Callable[..., Queue]


@pytest.fixture
def make(tmp_path: Path) -> MakeQueue:
    """Opens the queue `cars` of this test."""
    return lambda **options: Queue(tmp_path / "queues", "cars", **options)


# --- putting and getting ----------------------------------------------------------------------------------------------


def test_items_are_read_in_the_order_of_their_puts(make: MakeQueue) -> None:
    with make() as queue:
        for number in range(5):
            queue.put(b"item %d" % number)
        assert len(queue) == 5
        assert [queue.get() for _ in range(5)] == [b"item %d" % number for number in range(5)]
        assert queue.get() is None
        assert len(queue) == 0


def test_new_directory_is_made(tmp_path: Path) -> None:
    with Queue(tmp_path / "some" / "where", "cars") as queue:
        queue.put(b"here")
        assert queue.name == "cars"
        assert queue.path == tmp_path / "some" / "where" / "cars"
    assert (tmp_path / "some" / "where" / "cars").exists()


@pytest.mark.parametrize("data", [b"bytes", bytearray(b"bytes"), memoryview(b"xbytesx")[1:-1]])
def test_any_bytes_like_object_can_be_put(make: MakeQueue, data: Any) -> None:
    with make() as queue:
        queue.put(data)
        queue.put_many([data])
        assert [queue.get(), queue.get()] == [b"bytes", b"bytes"]


@pytest.mark.parametrize("data", [5, "text", None, [1, 2]])
def test_other_objects_than_bytes_cannot_be_put(make: MakeQueue, data: Any) -> None:
    with make() as queue:
        with pytest.raises(TypeError):
            queue.put(data)
        assert len(queue) == 0


def test_item_is_not_changed_by_later_changes_of_its_buffer(make: MakeQueue) -> None:
    with make() as queue:
        buffer = bytearray(b"before")
        queue.put(buffer)
        buffer[:] = b"after!"
        assert queue.get() == b"before"


def test_empty_item_is_an_item(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"")
        assert len(queue) == 1
        assert queue.peek() == b""
        assert queue.get() == b""
        assert queue.get() is None


def test_queue_is_true_even_when_it_is_empty(make: MakeQueue) -> None:
    with make() as queue:
        assert queue


def test_peek_leaves_the_head_in_place(make: MakeQueue) -> None:
    with make() as queue:
        assert queue.peek() is None
        queue.put(b"one")
        queue.put(b"two")
        assert [queue.peek(), queue.peek()] == [b"one", b"one"]
        assert len(queue) == 2
    assert journal_of(queue.path) == ["addx one", "addx two"]


def test_iteration_shows_all_items(make: MakeQueue) -> None:
    clock = Clock()
    with make(clock=clock) as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.abort(queue.reserve().xid)
        assert list(queue) == [b"one", b"two", b"three"]
        first, second, _ = queue.items()
        assert first == Item(b"one", 0, 1_700_000_000_000, None, attempts=1)
        assert second == Item(b"two", 0, 1_700_000_000_000, None, attempts=0)
        assert len(queue) == 3


def test_iteration_shows_the_queue_at_its_start(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        shown = iter(queue)
        queue.get()
        queue.put(b"three")
        assert list(shown) == [b"one", b"two"]


def test_many_items_are_put_and_read_at_once(make: MakeQueue) -> None:
    with make() as queue:
        assert queue.put_many(b"%d" % number for number in range(10)) == 10
        assert queue.put_many([]) == 0
        assert queue.get_many(4) == [b"0", b"1", b"2", b"3"]
        assert queue.get_many(0) == []
        assert queue.get_many(100) == [b"%d" % number for number in range(4, 10)]
        assert queue.get_many(100) == []
        with pytest.raises(WrongUse, match="-1 items"):
            queue.get_many(-1)


def test_journal_records_every_operation(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.get()
        first = queue.reserve()
        second = queue.reserve()
        queue.abort(first.xid)
        queue.confirm(second.xid)
        assert journal_of(queue.path) == [
            *("addx one", "addx two", "addx three", "remove"),
            *("remove_tentative_xid 1", "remove_tentative_xid 2", "unremove 1", "confirm_remove 2"),
        ]


def test_queue_keeps_its_dialect_and_a_new_one_is_readable_by_releases(tmp_path: Path) -> None:
    journals = {
        "new": ([], "remove_tentative_xid 1"),
        "only items": ([addx(b"a"), addx(b"b"), REMOVE], "remove_tentative_xid 1"),
        "released": ([addx(b"a"), addx(b"b"), reserve_as(1), unremove(1)], "remove_tentative_xid 2"),
        "documented": ([addx(b"a"), addx(b"b"), RESERVE, unremove(1)], "remove_tentative"),
        "documented, packed": ([save_xid(0), add_xid(7, b"a"), addx(b"b")], "remove_tentative"),
    }
    for name, (operations, reserves) in journals.items():
        if operations:
            write(tmp_path / name, *operations)
        with Queue(tmp_path, name) as queue:
            queue.put(b"one more")
            queue.reserve()
            assert journal_of(queue.path)[-1] == reserves, name


def test_queue_uses_the_given_dialect(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", dialect="documented") as queue:
        queue.put(b"one")
        queue.reserve()
        assert journal_of(queue.path) == ["addx one", "remove_tentative"]


def test_each_operation_is_written_when_the_call_returns(make: MakeQueue) -> None:
    with make() as queue:
        sizes = [queue.path.stat().st_size]
        for step in (lambda: queue.put(b"12345"), queue.get, lambda: queue.put(b""), queue.reserve):
            step()
            sizes.append(queue.path.stat().st_size)
        assert sizes == [0, 26, 27, 48, 53]


def test_operations_are_held_on_request(make: MakeQueue) -> None:
    with make(buffer_bytes=100) as queue:
        queue.put(b"x" * 50)
        assert queue.path.stat().st_size == 0
        queue.flush()
        assert queue.path.stat().st_size == 71
        queue.put(b"x" * 50)
        queue.put(b"x" * 50)
        assert queue.path.stat().st_size == 3 * 71
        queue.get()
        queue.sync()
        assert queue.path.stat().st_size == 3 * 71 + 1
    with make() as queue:
        assert len(queue) == 2


# --- reserving --------------------------------------------------------------------------------------------------------


def test_open_item_is_neither_waiting_nor_removed(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        item = queue.reserve()
        assert (item.data, item.xid, item.attempts) == (b"one", 1, 0)
        assert (len(queue), queue.stats().open) == (1, 1)
        assert queue.get() == b"two"
        with pytest.raises(Empty, match="there is no item to reserve"):
            queue.reserve()
        queue.abort(item.xid)
        assert queue.get() == b"one"


def test_confirmed_item_is_removed(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")
        queue.confirm(queue.reserve().xid)
        assert (len(queue), queue.stats().open) == (0, 0)
    with make() as queue:
        assert queue.get() is None


def test_ids_increase_and_are_not_reused(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"x"] * 5)
        assert [queue.reserve().xid, queue.reserve().xid] == [1, 2]
        queue.confirm(1)
        queue.abort(2)
        assert queue.reserve().xid == 3
    with make() as queue:
        assert [item.xid for item in queue.reserve_many(2)] == [4, 5]


def test_ids_wrap_around_and_skip_0_and_open_ids(tmp_path: Path) -> None:
    write(tmp_path / "cars", *[addx(b"x")] * 5)
    with Writer(tmp_path / "cars") as writer:
        writer.save_xid(2**31 - 2)
    with Queue(tmp_path, "cars") as queue:
        assert [queue.reserve().xid for _ in range(2)] == [2**31 - 1, -(2**31)]
        queue._engine.xid = -2
        assert [queue.reserve().xid for _ in range(2)] == [-1, 1]


def test_item_with_an_id_is_reserved_under_it(tmp_path: Path) -> None:
    write(tmp_path / "cars", add_xid(7, b"seven"), addx(b"other"), add_xid(7, b"seven again"))
    with Queue(tmp_path, "cars") as queue:
        assert [(item.xid, item.data) for item in queue.reserve_many(3)] == [
            (7, b"seven"),
            (1, b"other"),
            (2, b"seven again"),
        ]
        queue.abort(7)
        assert queue.reserve().xid == 3
    assert Reader(tmp_path / "cars").queue_state().xid == 3


def test_several_can_be_confirmed_and_aborted_at_once(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"%d" % number for number in range(6)])
        queue.reserve_many(5)
        queue.confirm(2, 4)
        queue.abort(5, 1, 3)
        assert list(queue) == [b"0", b"2", b"4", b"5"]


def test_id_that_is_not_open_is_wrong_use_and_changes_nothing(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        queue.reserve_many(2)
        for call in (queue.confirm, queue.abort):
            with pytest.raises(WrongUse, match="transaction 9 is not open"):
                call(1, 9)
            with pytest.raises(WrongUse, match="given twice"):
                call(1, 1)
        queue.confirm(1)
        with pytest.raises(WrongUse, match="transaction 1 is not open"):
            queue.confirm(1)
        queue.abort(2)
        assert list(queue) == [b"two"]


def test_block_confirms_at_its_end_and_aborts_on_an_exception(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")
        with pytest.raises(ZeroDivisionError), queue.reserve():
            raise ZeroDivisionError
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"one", 1)]
        with queue.reserve() as item:
            assert item.data == b"one"
        assert (len(queue), queue.stats().open) == (0, 0)
        with pytest.raises(queue_module.Empty), queue.reserve():
            raise AssertionError("the block must not run")


def test_block_may_confirm_or_abort_its_item_itself_or_close_the_queue(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two"])
        with queue.reserve() as item:
            queue.confirm(item)
        with queue.reserve() as item:
            queue.abort(item)
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"two", 1)]
        with pytest.raises(ZeroDivisionError):
            _close_and_raise(queue)
    with make() as queue:
        item = queue.reserve()
        assert (item.data, item.attempts) == (b"two", 2)
        with pytest.raises(Closed), item:
            queue.close()


def _close_and_raise(queue: Queue) -> None:
    with queue.reserve():
        queue.close()
        raise ZeroDivisionError


def test_only_reserved_items_are_context_managers(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")
        with pytest.raises(WrongUse, match=r"only an item that .* has returned can be used"), next(queue.items()):
            raise AssertionError("the block must not run")
        (item,) = queue.reserve_many(2)
        with item:
            pass
        assert (len(queue), queue.stats().open) == (0, 0)


def test_consume_loop_confirms_each_item_before_the_next(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        seen = [(item.data, len(queue), queue.stats().open) for item in queue.consume(timeout=0)]
        assert seen == [(b"one", 2, 1), (b"two", 1, 1), (b"three", 0, 1)]
        assert (len(queue), queue.stats().open) == (0, 0)


@pytest.mark.parametrize("leave", ["break", "raise", "close"])
def test_consume_loop_that_is_left_aborts_its_item(leave: str, make: MakeQueue) -> None:
    def loop(queue: Queue) -> None:
        for item in queue.consume():
            if item.data == b"two":
                if leave == "raise":
                    raise ZeroDivisionError
                if leave == "close":
                    queue.close()
                break

    with make() as queue:
        queue.put_many([b"one", b"two", b"three"])
        with pytest.raises(ZeroDivisionError) if leave == "raise" else nullcontext():
            loop(queue)
    with make() as queue:
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"two", 1), (b"three", 0)]


def test_consume_loop_ends_when_the_queue_is_closed(make: MakeQueue) -> None:
    queue = make()
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(item.data for item in queue.consume()))
    thread.start()
    queue.put(b"one")
    until(lambda: found == [b"one"])
    queue.close()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(Closed):
        queue.consume()


# --- restarting -------------------------------------------------------------------------------------------------------


def test_items_exist_after_the_queue_is_opened_again(make: MakeQueue) -> None:
    clock = Clock()
    with make(clock=clock) as queue:
        queue.put(b"one")
        queue.put(b"two", expires=60)
        queue.put(b"three")
        queue.get()
        before = list(queue.items())
    with make(clock=clock) as queue:
        assert list(queue.items()) == before
        assert list(drained(queue)) == [b"two", b"three"]
    with make() as queue:
        assert len(queue) == 0


def test_open_items_return_to_the_head_in_order_at_opening(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"one", b"two", b"three", b"four", b"five"])
        queue.reserve_many(4)
        queue.confirm(2, 4)
    with make() as queue:
        assert journal_of(queue.path)[-2:] == ["unremove 3", "unremove 1"]
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"one", 1), (b"three", 1), (b"five", 0)]
    with make() as queue:
        assert journal_of(queue.path)[-2:] == ["unremove 3", "unremove 1"], "it is said once"


def test_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"one"), addx(b"two"), tail=b"\x02\x44\x00")
    with Queue(tmp_path, "cars") as queue:
        assert queue.recovered is not None
        assert queue.recovered.size == 3
        assert queue.kept is not None
        assert queue.kept.read_bytes() == b"\x02\x44\x00"
        assert list(queue) == [b"one", b"two"]
        queue.put(b"three")
    assert journal_of(path) == ["addx one", "addx two", "addx three"]


@pytest.mark.parametrize("torn", [b"", b"\x02\x44\x00"])
def test_damage_in_a_rotated_file_stops_the_opening_and_cuts_nothing(tmp_path: Path, torn: bytes) -> None:
    write(tmp_path / "cars.904", addx(b"one"), tail=b"\x7f\x7f")
    write(tmp_path / "cars", addx(b"two"), tail=torn)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(DamagedJournal, match=r"cars\.904 @ 24: .*logwright verify .*logwright repair"):
        Queue(tmp_path, "cars")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    with pytest.raises(DamagedJournal):
        Queue(tmp_path, "cars")  # and not `Locked`: the first one holds nothing


def test_damage_followed_by_items_prevents_opening(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"one"), tail=b"\x7f\x7f")
    with path.open("ab") as file:
        file.write((write(tmp_path / "other", addx(b"two"), addx(b"three"))).read_bytes())
    before = path.read_bytes()
    with pytest.raises(DamagedJournal, match="cars @ 24"):
        Queue(tmp_path, "cars")
    assert path.read_bytes() == before


def test_newest_file_that_ends_with_a_state_dump_is_rotated(tmp_path: Path) -> None:
    write(tmp_path / "cars", addx(b"one"), state_dump(4, 0))
    with Queue(tmp_path, "cars", dialect="documented") as queue:
        queue.put(b"two")
        assert list(queue) == [b"one", b"two"]
        assert queue.stats().journal_files == 2
    with Queue(tmp_path, "cars", dialect="documented") as queue:
        assert list(drained(queue)) == [b"one", b"two"]


def test_journal_of_a_released_kestrel_is_continued(tmp_path: Path) -> None:
    path = write(
        tmp_path / "cars", addx(b"one"), addx(b"two"), addx(b"three"), reserve_as(5), confirm(5), reserve_as(6)
    )
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"two", b"three"]
        item = queue.reserve()
        assert (item.xid, item.attempts) == (7, 1)
        assert journal_of(path)[-2:] == ["unremove 6", "remove_tentative_xid 7"]
    with Queue(tmp_path, "cars") as queue:
        assert [(item.data, item.attempts) for item in queue.items()] == [(b"two", 2), (b"three", 0)]


def test_operations_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    write(tmp_path / "cars", REMOVE, RESERVE, confirm(9), addx(b"one"), REMOVE, REMOVE, addx(b"two"))
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"two"]


# --- one at a time, and the end ---------------------------------------------------------------------------------------


def test_second_queue_of_the_name_is_locked(make: MakeQueue) -> None:
    with make() as queue:
        with pytest.raises(Locked):
            make()
        queue.put(b"still works")
        assert len(queue) == 1
    with make() as queue:
        assert len(queue) == 1


def test_another_process_is_locked_out(make: MakeQueue, tmp_path: Path) -> None:
    code = """
import sys
from logwright.kestrel.model.queue import Queue
queue = Queue(sys.argv[1], "cars")
print("open", flush=True)
sys.stdin.read()
"""
    with Child(code, tmp_path / "queues") as child:
        assert child.line() == "open"
        with pytest.raises(Locked):
            make()
        child.kill()
        make().close()


def test_writer_and_a_queue_lock_each_other_out(make: MakeQueue) -> None:
    with make() as queue, pytest.raises(Locked):
        Writer(queue.path)
    with Writer(queue.path), pytest.raises(Locked):
        make()


def test_closed_queue_raises_closed(make: MakeQueue) -> None:
    queue = make()
    queue.put_many([b"one", b"two"])
    queue.reserve()
    queue.close()
    queue.close()
    for call in (
        lambda: queue.put(b"x"),
        lambda: queue.put_many([b"x"]),
        queue.get,
        lambda: queue.get_many(1),
        queue.peek,
        queue.reserve,
        lambda: queue.confirm(1),
        lambda: queue.abort(1),
        queue.clear,
        queue.flush,
        queue.sweep,
        queue.items,
        queue.sync,
        queue.delete,
    ):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a.b", "~a", "a~~b", "a+b+c", "+", "a+", "a\0b"])
def test_ambiguous_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse, match="is not a valid queue name"):
        Queue(tmp_path / "queues", name)
    assert not (tmp_path / "queues").exists()


def test_deleted_queue_leaves_no_file(make: MakeQueue) -> None:
    queue = make(max_memory_bytes=64, background=False)
    queue.put_many([b"x" * 40] * 10)
    queue.reserve()
    queue.delete()
    assert [path.name for path in queue.path.parent.iterdir()] == [".logwright"]
    with pytest.raises(Closed):
        queue.get()
    with make() as queue:
        assert (len(queue), queue.stats().xid) == (0, 0)


def test_clear_removes_waiting_items_and_keeps_open_ones(make: MakeQueue) -> None:
    with make() as queue:
        queue.put_many([b"alpha", b"beta", b"gamma"])
        item = queue.reserve()
        assert queue.clear() == 2
        assert queue.clear() == 0
        assert journal_of(queue.path)[-2:] == ["remove", "remove"]
        queue.abort(item.xid)
        assert list(queue) == [b"alpha"]


def test_fork_cannot_use_the_queue_of_its_parent(make: MakeQueue) -> None:
    with make() as queue:
        queue.put(b"one")
        child = os.fork()
        if child == 0:  # pragma: no cover - in the child
            try:
                queue.put(b"two")
                code = 1
            except WrongUse:
                code = 0
            except BaseException:
                code = 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert list(queue) == [b"one"]


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["none", "always", interval(1), interval(50)])
def test_every_sync_policy_keeps_every_item(make: MakeQueue, sync: Any) -> None:
    with make(sync=sync) as queue:
        queue.put_many([b"one", b"two"])
        queue.put(b"three")
        queue.confirm(queue.reserve().xid)
        assert queue.get() == b"two"
    with make(sync=sync) as queue:
        assert list(drained(queue)) == [b"three"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_items": 0}, "max_items"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"max_memory_bytes": 1.5}, "max_memory_bytes"),
        ({"max_item_bytes": 2**31}, "the limit is"),
        ({"max_attempts": 1001}, "records at most"),
        ({"park": "elsewhere"}, "max_attempts"),
        ({"max_attempts": 2, "park": "a.b"}, "is not a valid queue name"),
        ({"expire_to": "../etc"}, "is not a valid queue name"),
        ({"expire_to": "cars"}, "to the same queue"),
        ({"max_age": 0}, "max_age"),
        ({"max_age": timedelta(0)}, "max_age"),
        ({"sweep_seconds": -1}, "sweep_seconds"),
        ({"buffer_bytes": -1}, "buffer"),
        ({"sync": "sometimes"}, "sync policy"),
    ],
)
def test_invalid_options_are_refused(make: MakeQueue, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        make(**options)
    make().close()


def test_option_that_is_unknown_is_refused(make: MakeQueue) -> None:
    with pytest.raises(TypeError, match="max_itmes"):
        make(max_itmes=5)


def test_item_larger_than_the_format_allows_is_refused(make: MakeQueue) -> None:
    with make(max_item_bytes=10) as queue:
        queue.put(b"0123456789")
        with pytest.raises(TooLarge, match="11 bytes"):
            queue.put(b"0123456789a")
        with pytest.raises(TooLarge, match="11 bytes"):
            queue.put_many([b"fine", b"0123456789a"])
        assert list(queue) == [b"0123456789"]


def test_large_items_are_read_complete(make: MakeQueue) -> None:
    data = random.Random(5).randbytes(3_000_000)
    with make() as queue:
        queue.put(data)
        queue.put(b"small")
    with make(max_memory_bytes=1000) as queue:
        assert [queue.get(), queue.get()] == [data, b"small"]


@pytest.mark.parametrize("moment", [5, 5.0, timedelta(seconds=5), datetime.fromtimestamp(1_700_000_005, UTC)])
def test_journal_stores_the_expiry_time(make: MakeQueue, moment: Any) -> None:
    with make(clock=Clock()) as queue:
        queue.put(b"one", expires=moment)
        (operation,) = Reader(queue.path)
        assert (operation.added, operation.expires) == (1_700_000_000_000, 1_700_000_005_000)


BEFORE_ALL_DATES = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))
"""An hour before the earliest `datetime` in UTC."""


@pytest.mark.parametrize("moment", ["soon", True, float("nan"), float("inf"), 1e300, b"5", BEFORE_ALL_DATES])
def test_invalid_expiry_time_is_refused(make: MakeQueue, moment: Any) -> None:
    with make() as queue:
        with pytest.raises(WrongUse):
            queue.put(b"one", expires=moment)
        assert len(queue) == 0


def test_stats_of_a_queue(make: MakeQueue) -> None:
    clock = Clock()
    with make(clock=clock) as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.get()
        queue.reserve()
        clock.now += 2.5
        stats = queue.stats()
        assert (stats.items, stats.bytes, stats.open, stats.put, stats.taken) == (1, 5, 1, 3, 1)
        assert (stats.memory_items, stats.memory_bytes, stats.reads_behind) == (1, 5, False)
        assert (stats.age_ms, stats.xid, stats.waiting) == (2500, 1, 0)
        assert (stats.journal_files, stats.journal_bytes) == (1, 3 * 21 + 11 + 1 + 5)
        assert stats.as_json()["items"] == 1
