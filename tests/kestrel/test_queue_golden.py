"""The facts that the tests of the original assert about its queues, in its own dialect and in ours.

The original reserves with REMOVE_TENTATIVE_XID, so the scenarios of `facts.json` are those of the dialect kestrel2.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock, drained
from tests.kestrel.samples import ADDED, FACTS, addx, reserve_as, write

SCENARIOS: dict[str, Any] = {scenario["name"]: scenario for scenario in FACTS["scenarios"]}


def opened(directory: Path, **options: Any) -> Queue:
    """The queue `q` as in the original, at the time of the facts."""
    options = {"dialect": "kestrel2", "background": False, "clock": Clock(ADDED / 1000), **options}
    return Queue(directory, "q", **options)


def content(word: Any) -> bytes:
    return bytes(word) if isinstance(word, int) else word.encode()


def bytes_of(directory: Path) -> str:
    return (directory / "q").read_bytes().hex()


def size_of(directory: Path) -> int:
    """The size of all files together, as the original counts them."""
    return sum(path.stat().st_size for path in directory.iterdir() if path.name.partition(".")[0] == "q")


def die(queue: Queue) -> None:
    """End without a graceful shutdown, which would shorten the journal of an empty queue."""
    journal = queue.path.read_bytes()
    queue.close()
    queue.path.write_bytes(journal)


@pytest.mark.parametrize(
    "name", ["walk three adds", "empty item", "add and remove", "flush", "restart", "interleaved transactions"]
)
def test_journal_equals_the_original_byte_for_byte(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    queue = opened(tmp_path)
    if name == "flush":
        for word in ("alpha", "beta", "gamma"):
            queue.put(content(word))
        assert queue.clear() == 3
    else:
        for operation in scenario["ops"]:
            _do(queue, *operation)
    assert bytes_of(tmp_path) == scenario["derived_hex"]
    queue.close()


def _do(queue: Queue, verb: str, *words: Any) -> None:
    if verb == "add":
        queue.put(content(words[0]))
    elif verb == "remove":
        assert queue.get() is not None
    elif verb == "remove-tentative":
        assert queue.reserve().xid == words[0]
    elif verb == "unremove":
        queue.abort(*words)
    elif verb == "confirm-remove":
        queue.confirm(*words)


def test_sizes_after_an_add_and_a_remove(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        queue.put(b"hello kitty")
        assert size_of(tmp_path) == SCENARIOS["add and remove"]["asserted_sizes"]["after add"]
        assert queue.get() == b"hello kitty"
        assert size_of(tmp_path) == SCENARIOS["add and remove"]["asserted_sizes"]["after remove"]


def test_restart_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        queue.put(b"first")
        queue.put(b"second")
        assert queue.get() == b"first"
        assert size_of(tmp_path) == 54
    with opened(tmp_path) as queue:
        assert size_of(tmp_path) == 54
        assert queue.get() == b"second"
        assert size_of(tmp_path) == 55
        die(queue)
    assert size_of(tmp_path) == 55
    with opened(tmp_path) as queue:
        assert len(queue) == 0


def test_open_transaction_survives_a_rewrite(tmp_path: Path) -> None:
    """Scenario "rewritten transaction"."""
    scenario = SCENARIOS["rewritten transaction"]
    with opened(tmp_path) as queue:
        for word in ("zero", "first", "second"):
            queue.put(content(word))
        queue.confirm(queue.reserve().xid)
        item = queue.reserve()
        assert (item.data, item.xid) == (b"first", 2)
        queue._engine.compaction.restate()
        rewritten = bytes_of(tmp_path)
        queue.confirm(2)
        assert list(queue) == [b"second"]
    with opened(tmp_path) as queue:
        assert queue.get() == b"second"
        assert queue.get() is None
    wanted = scenario["derived_hex"]
    first = wanted[: 2 * (21 + 5 + 5)]
    assert rewritten.startswith(first)
    assert rewritten == first + "0402000000" + wanted[2 * 31 : 2 * (31 + 27)], "ours also says what the last used id is"


def test_interrupted_rewrite_that_does_not_count_is_ignored(tmp_path: Path) -> None:
    """Scenario "interrupted rewrite before the pack rename"."""
    with opened(tmp_path) as queue:
        for word in ("zero", "first", "second"):
            queue.put(content(word))
        queue.confirm(queue.reserve().xid)
        queue.reserve()
    (tmp_path / "q~~12345").write_bytes(b"half of something")
    with opened(tmp_path) as queue:
        assert not (tmp_path / "q~~12345").exists()
        assert list(queue) == [b"first", b"second"]
        assert [queue.get(), queue.get(), queue.get()] == [b"first", b"second", None]
        assert bytes_of(tmp_path) == SCENARIOS["interrupted rewrite before the pack rename"]["derived_hex"]


def test_rewrite_that_counts_is_finished(tmp_path: Path) -> None:
    """Scenario "interrupted rewrite after the old file was deleted": only the pack is there."""
    write(tmp_path / "q.12345.pack", addx(b"first"), reserve_as(2), addx(b"second"))
    with opened(tmp_path) as queue:
        assert list(queue) == [b"first", b"second"]
        assert [queue.get(), queue.get(), queue.get()] == [b"first", b"second", None]
        assert bytes_of(tmp_path) == "0502000000" + "0101"
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [".logwright", "q", "q.12345"]


def test_graceful_shutdown_of_an_empty_queue_leaves_an_empty_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        queue.put(b"first")
        queue.put(b"second")
        queue.get_many(2)
    assert size_of(tmp_path) == 0
    with opened(tmp_path) as queue:
        assert len(queue) == 0
        assert size_of(tmp_path) == 0


def test_graceful_shutdown_of_another_queue_leaves_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        queue.put(b"first")
        queue.put(b"second")
        queue.get()
    assert bytes_of(tmp_path) == SCENARIOS["graceful shutdown of a non-empty queue"]["derived_hex"]
    with opened(tmp_path) as queue:
        assert queue.get() == b"second"


def test_graceful_shutdown_keeps_an_open_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        for word in ("zero", "second"):
            queue.put(content(word))
        queue.confirm(queue.reserve().xid)
        assert queue.reserve().xid == 2
    wanted = SCENARIOS["graceful shutdown, empty queue with one open transaction"]["derived_hex"]
    assert bytes_of(tmp_path) == wanted + "0402000000"
    with opened(tmp_path) as queue:
        assert bytes_of(tmp_path) == wanted + "0402000000" + "0502000000"
        assert list(queue) == [b"second"]


def test_open_transactions_are_restored_in_order(tmp_path: Path) -> None:
    scenario = SCENARIOS["recover with open transactions"]
    (tmp_path / "q").write_bytes(bytes.fromhex(scenario["derived_hex"]))
    with opened(tmp_path) as queue:
        assert (len(queue), queue.stats().open) == (3, 0)
        assert list(queue) == [b"one", b"three", b"five"]
        appended = list(Reader(tmp_path / "q", dialect="kestrel2"))[-2:]
        assert [[operation.op, operation.xid] for operation in appended] == scenario["appended_on_open_by_rule"]


def test_continue_finishes_one_item_and_adds_another(tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(bytes.fromhex(SCENARIOS["continue"]["derived_hex"]))
    with opened(tmp_path, dialect="auto") as queue:
        assert (len(queue), queue.stats().open) == (1, 0)
        assert queue.get() == b"two"


def test_trailing_byte_that_is_no_operation_is_cut(tmp_path: Path) -> None:
    scenario = SCENARIOS["corrupt trailing byte"]
    (tmp_path / "q").write_bytes(bytes.fromhex(scenario["derived_hex"] + scenario["append_hex"]))
    with opened(tmp_path) as queue:
        assert queue.recovered is not None
        assert (queue.recovered.start, queue.recovered.end) == (53, 54)
        assert len(queue) == 1


@pytest.mark.parametrize("dialect", ["kestrel2", "documented"])
def test_journal_that_is_too_big_is_rewritten(dialect: Any, tmp_path: Path) -> None:
    """Scenario "recreate when too big"."""
    content = random.Random(3).randbytes(512)
    with opened(tmp_path, dialect=dialect, max_journal_bytes=3 * 1024) as queue:
        queue.put(content)
        for _ in range(4):
            queue.put(content)
            queue.get()
        queue.put(content)
        assert size_of(tmp_path) == SCENARIOS["recreate when too big"]["asserted_size"] == 3202
        queue.get()
        assert size_of(tmp_path) == 533
        assert list(queue) == [content]
        (operation,) = Reader(tmp_path / "q")
        assert (operation.op, operation.data) == ("addx", content)


@pytest.mark.parametrize("dialect", ["kestrel2", "documented"])
def test_journal_of_an_empty_queue_is_erased(dialect: Any, tmp_path: Path) -> None:
    """Scenario "rewrite of an empty queue at defaultJournalSize 64"."""
    with opened(tmp_path, dialect=dialect, default_journal_bytes=64) as queue:
        queue.put(bytes(32))
        queue.put(bytes(64))
        assert size_of(tmp_path) > 96
        queue.get()
        assert bytes_of(tmp_path) == SCENARIOS["rewrite of an empty queue at defaultJournalSize 64"]["derived_hex"]
        assert queue.get() == bytes(64)
        assert size_of(tmp_path) < 10


@pytest.mark.parametrize("dialect", ["kestrel2", "documented"])
def test_journal_is_erased_but_for_an_open_transaction(dialect: Any, tmp_path: Path) -> None:
    """Scenario "rewrite with an open transaction at defaultJournalSize 64"."""
    with opened(tmp_path, dialect=dialect, default_journal_bytes=64) as queue:
        queue.put(bytes(32))
        queue.put(bytes(64))
        queue.get()
        assert queue.reserve().xid == 1
        assert size_of(tmp_path) < 96
        queue.abort(1)
        assert queue.get() == bytes(64)


def test_ninth_item_is_not_in_memory(tmp_path: Path) -> None:
    """Scenario "read-behind, 10 items of 128 bytes, maxMemorySize 1024"."""
    chance = random.Random(1)
    contents = [chance.randbytes(128) for _ in range(10)]
    with opened(tmp_path, max_memory_bytes=1024) as queue:
        for number, data in enumerate(contents):
            queue.put(data)
            stats = queue.stats()
            assert stats.reads_behind == (number >= 8)
            assert stats.memory_items == min(number + 1, 8)
        assert (stats.items, stats.bytes, stats.memory_bytes) == (10, 1280, 1024)
        assert (
            size_of(tmp_path) == SCENARIOS["read-behind, 10 items of 128 bytes, maxMemorySize 1024"]["encoded_length"]
        )
    with opened(tmp_path, max_memory_bytes=1024) as queue:
        assert (len(queue), queue.stats().bytes) == (10, 1280)
        assert list(drained(queue)) == contents


def test_many_items_over_several_files(tmp_path: Path) -> None:
    with opened(tmp_path, max_memory_bytes=1024, max_journal_bytes=512) as queue:
        for number in range(40):
            queue.put(b"%04d" % number * 32)
        assert queue.stats().journal_files > 3
        for number in range(39):
            assert queue.get() == b"%04d" % number * 32
    with opened(tmp_path, max_memory_bytes=1024, max_journal_bytes=512) as queue:
        assert list(queue) == [b"0039" * 32]


def test_newest_file_is_rotated_before_the_add_that_follows(tmp_path: Path) -> None:
    files = []
    with opened(tmp_path, max_memory_bytes=64) as queue:
        for _ in range(3):
            queue.put(bytes(32))
            files.append(queue.stats().journal_files)
    assert files == [1, 1, 2]


def test_finished_rotated_files_become_an_empty_one(tmp_path: Path) -> None:
    facts = FACTS["pack_old_files"]
    with Writer(tmp_path / "q", dialect="kestrel2") as writer:
        writer.addx(b"")
        writer.rotate()
        writer.addx(b"")
        writer.remove()
        writer.remove()
        writer.rotate()
        writer.pack()
    assert sorted(path.stat().st_size for path in tmp_path.iterdir() if path.is_file()) == facts["sizes_after"]


@pytest.mark.parametrize("case", FACTS["replay_order_of_files"][:4])
def test_files_are_replayed_in_the_order_of_their_numbers(case: dict[str, Any], tmp_path: Path) -> None:
    for name in case["files"]:
        write(tmp_path / name.replace("test", "q"), addx(name.removesuffix(".pack").encode()))
    with opened(tmp_path) as queue:
        wanted = [name for name in case["replay_order"] if name in case["files"] or f"{name}.pack" in case["files"]]
        assert [data.decode() for data in queue] == wanted
