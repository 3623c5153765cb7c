"""Items that were removed or reserved for a caller that did not get them go back to the head, in their order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.errors import StorageFailed
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.model import compaction
from logwright.kestrel.model.engine import RemovedItems
from logwright.kestrel.model.queue import Queue

ITEMS = [b"%d" % number for number in range(8)]


@pytest.fixture(params=[{}, {"buffer_bytes": 4096}, {"sync": "always"}], ids=["plain", "buffered", "always"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with Queue(tmp_path, "q", background=False, **request.param) as queue:
        queue.put_many(ITEMS)
        yield queue


def waiting(path: Path) -> list[bytes]:
    return [item.data for item in Reader(path).queue_state().items]


def test_removals_at_the_end_of_the_journal_are_truncated(queue: Queue) -> None:
    queue.sync()
    before = queue.path.read_bytes()
    engine = queue._engine
    engine.give_back(engine.take_many(5, RemovedItems()))
    queue.sync()
    assert queue.path.read_bytes() == before
    assert list(queue) == waiting(queue.path) == ITEMS
    assert (queue.stats().taken, queue.stats().items) == (0, 8)
    assert queue.get_many(99) == ITEMS


def test_write_that_fails_later_leaves_no_zeros_where_removals_were(queue: Queue, tmp_path: Path) -> None:
    engine = queue._engine
    hand = engine.take_many(5, RemovedItems())
    engine.sync()
    engine.give_back(hand)
    size = engine._file.size()
    engine._cut_back(engine._acknowledged_bytes)
    assert engine._file.size() <= size


def test_items_return_to_the_head_even_if_the_queue_was_used_since(queue: Queue) -> None:
    engine = queue._engine
    hand = engine.take_many(3, RemovedItems())
    assert queue.get() == b"3"
    queue.put(b"new")
    engine.give_back(hand)
    assert list(queue) == [*ITEMS[:3], *ITEMS[4:], b"new"]
    queue.put(b"later")
    queue.sync()
    assert waiting(queue.path) == [*ITEMS[:3], *ITEMS[4:], b"new", b"later"]


def test_items_return_before_those_aborted_meanwhile(queue: Queue) -> None:
    engine = queue._engine
    hand = engine.take_many(2, RemovedItems())
    queue.abort(*queue.reserve_many(2))
    engine.give_back(hand)
    queue.sync()
    assert list(queue) == waiting(queue.path) == ITEMS


@pytest.mark.parametrize("aborts", [False, True])
def test_items_return_to_the_head_of_a_queue_that_reads_behind(aborts: bool, tmp_path: Path) -> None:
    with Queue(tmp_path, "q", background=False, max_memory_bytes=3) as queue:
        queue.put_many(ITEMS)
        engine = queue._engine
        hand = engine.take_many(5, RemovedItems())
        queue.put(b"new")
        if aborts:
            queue.abort(*queue.reserve_many(1))
        engine.give_back(hand)
        assert list(queue) == [*ITEMS, b"new"]
        assert waiting(queue.path) == [*ITEMS, b"new"]
        assert queue.get_many(99) == [*ITEMS, b"new"]
    with Queue(tmp_path, "q", background=False) as queue:
        assert list(queue) == []


def test_large_queue_is_not_rewritten_and_the_move_is_logged(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction, "_RESTATED_BYTES", 10)
    check_tail(queue, caplog)


def test_items_go_to_the_tail_while_the_journal_is_packed(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue._engine.compaction._is_packing = True
    check_tail(queue, caplog)


def test_items_go_to_the_tail_if_the_journal_cannot_be_rewritten(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: compaction.Compaction) -> None:
        raise StorageFailed("write", "cars", OSError("the disk is full"))

    monkeypatch.setattr(compaction.Compaction, "restate", fail)
    check_tail(queue, caplog)


def check_tail(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    engine = queue._engine
    hand = engine.take_many(2, RemovedItems())
    queue.put(b"new")
    with caplog.at_level(logging.WARNING, "logwright.kestrel"):
        engine.give_back(hand)
    assert "a call was interrupted; its 2 items are put at the tail" in caplog.text
    queue.sync()
    assert list(queue) == waiting(queue.path) == [*ITEMS[2:], b"new", *ITEMS[:2]]


def test_reserved_items_return_in_the_order_of_their_reservations(queue: Queue) -> None:
    queue._engine.xid = 2**31 - 3
    xids: list[int] = []
    queue._engine.reserve_many(5, xids)
    assert sorted(xids) != xids, "the ids have wrapped around"
    queue._engine.put_back_undelivered(xids)
    queue.sync()
    assert list(queue) == waiting(queue.path) == ITEMS


def test_undelivered_item_is_found_even_if_other_threads_read_more(queue: Queue) -> None:
    engine = queue._engine
    assert not engine.shelf.holds
    assert engine.shelf.get_and_hold() == b"0"
    other = threading.Thread(target=lambda: [queue.get(), engine.shelf.get_and_hold()])
    other.start()
    other.join()
    assert engine.shelf.holds
    assert [entry[0] for entry in engine.take_held()] == [b"0"]
    assert not engine.shelf.holds
    assert engine.take_held() == []


def test_delivered_item_is_not_retained(queue: Queue) -> None:
    assert queue.get() == b"0"
    assert not queue._engine.shelf.holds
    assert queue._engine.shelf.get() == b"1"
    assert queue._engine.take_held() == []
