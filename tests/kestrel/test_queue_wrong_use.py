"""Invalid arguments of any type raise `WrongUse`, and change nothing."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest

from logwright.core.io.durability import interval
from logwright.errors import WrongUse
from logwright.kestrel import AsyncQueue, Queue, Reader, Writer, unpark
from logwright.kestrel.bytes.layout import MAX_NAME_BYTES
from logwright.kestrel.files.queues import QueuesWriter
from tests.kestrel.samples import RESERVE, addx, write

LONGEST = "ö" * (MAX_NAME_BYTES // 2)
NAMES: list[Any] = [b"a", None, 5, "a\ud800", "", "a/b", LONGEST + "oo", "a" * 255]


@pytest.mark.parametrize("name", NAMES)
def test_invalid_name_opens_no_queue(name: Any, tmp_path: Path) -> None:
    for make in (Queue, AsyncQueue):
        with pytest.raises(WrongUse, match=r"is not a valid queue name|is too long for a queue name"):
            make(tmp_path, name)
    for option in ("park", "expire_to"):
        if name is not None:
            with pytest.raises(WrongUse, match=f"^{option}: "):
                Queue(tmp_path, "cars", max_attempts=1, **{option: name})
    if isinstance(name, str):
        for writer in (lambda: Writer(tmp_path / "x" / name), lambda: QueuesWriter(tmp_path, name).close()):
            if name not in ("", "a/b"):
                with pytest.raises(WrongUse):
                    writer()
    assert list(tmp_path.iterdir()) == []


def test_longest_name_can_be_rotated_packed_cut_and_kept(tmp_path: Path) -> None:
    with Queue(tmp_path, LONGEST, max_memory_bytes=1, background=False) as queue:
        for data in (b"a", b"b", b"c"):
            queue.put(data)
        assert queue.stats().journal_files > 1
        queue._engine.compaction.rewrite()
        assert list(queue) == [b"a", b"b", b"c"]
    newest = tmp_path / LONGEST
    size = newest.stat().st_size
    newest.write_bytes(newest.read_bytes() + b"\x02")
    with Queue(tmp_path, LONGEST) as queue:
        assert queue.recovered is not None
        assert queue.recovered.start == size
        assert queue.kept is not None
        assert queue.kept.read_bytes() == b"\x02"
        assert list(queue) == [b"a", b"b", b"c"]


def test_name_too_long_for_parking_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is too long for a queue name"):
        Queue(tmp_path, LONGEST, max_attempts=3)
    with Queue(tmp_path, LONGEST, max_attempts=3, park="elsewhere") as queue:
        assert len(queue) == 0


NO_SECONDS: list[Any] = ["x", True, math.nan, 0, b"1", []]


@pytest.mark.parametrize(
    "options",
    [
        *({"sync": value} for value in (None, 3, b"always", "often")),
        *({name: value} for name in ("max_age", "sweep_seconds") for value in NO_SECONDS),
        *({name: 1.5} for name in ("max_items", "max_attempts", "max_memory_bytes", "buffer_bytes")),
    ],
)
def test_invalid_option_values_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(WrongUse):
        Queue(tmp_path, "cars", **options)
    assert list(tmp_path.iterdir()) == []


def test_interval_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(WrongUse, match="a sync interval of '100' ms makes no sense"):
        interval("100")  # type: ignore[arg-type]


ASKED: dict[str, Callable[[Any], Any]] = {
    "get_many(1.5)": lambda queue: queue.get_many(1.5),
    "get_many(True)": lambda queue: queue.get_many(True),
    "get_many(-1)": lambda queue: queue.get_many(-1),
    "get_many(1, timeout='1')": lambda queue: queue.get_many(1, timeout="1"),
    "reserve_many('1')": lambda queue: queue.reserve_many("1"),
    "open(timeout=[])": lambda queue: queue.reserve(timeout=[]),
    "get(timeout='1')": lambda queue: queue.get(timeout="1"),
    "get(timeout='')": lambda queue: queue.get(timeout=""),
    "get(timeout=True)": lambda queue: queue.get(timeout=True),
    "get(timeout=nan)": lambda queue: queue.get(timeout=math.nan),
    "unpark(-1)": lambda queue: queue.unpark(-1),
    "unpark(1.5)": lambda queue: queue.unpark(1.5),
    "confirm(True)": lambda queue: queue.confirm(True),
    "confirm([1])": lambda queue: queue.confirm([1]),
    "confirm('1')": lambda queue: queue.confirm("1"),
    "abort(1.0)": lambda queue: queue.abort(1.0),
    "put(expires='1')": lambda queue: queue.put(b"x", expires="1"),
    "put(expires=nan)": lambda queue: queue.put(b"x", expires=math.nan),
}


@pytest.mark.parametrize("call", ASKED)
def test_invalid_calls_change_nothing(call: str, tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", max_attempts=3) as queue:
        queue.put_many([b"a", b"b"])
        queue.reserve()
        size = queue.stats().journal_bytes
        with pytest.raises(WrongUse):
            ASKED[call](queue)
        assert (list(queue), queue.stats().open, queue.stats().journal_bytes) == ([b"b"], 1, size)

    async def ask() -> None:
        async with AsyncQueue(tmp_path, "vans", max_attempts=3) as queue:
            await queue.put_many([b"a", b"b"])
            await queue.reserve()
            with pytest.raises(WrongUse):
                await ASKED[call](queue)
            assert (len(queue), queue.stats().open) == (1, 1)

    asyncio.run(ask())


@pytest.mark.parametrize("most", [-1, 1.5, True, "1"])
def test_invalid_number_of_items_to_unpark_is_refused(most: Any, tmp_path: Path) -> None:
    write(tmp_path / "cars")
    path = write(tmp_path / "cars_parked", addx(b"a"))
    with pytest.raises(WrongUse):
        unpark(path, most=most)


class Moves(TypedDict, total=False):
    expire_to: str
    park: str


def moves_to(option: Literal["expire_to", "park"], queue: str) -> Moves:
    return {"expire_to": queue} if option == "expire_to" else {"park": queue}


@pytest.mark.parametrize("option", ["expire_to", "park"])
def test_items_do_not_move_to_a_child_of_their_queue(option: Literal["expire_to", "park"], tmp_path: Path) -> None:
    """At the next start it would be opened with its parent's limits, and would have to move its items to itself."""
    with pytest.raises(WrongUse, match=r"cannot move to news\+late, which receives all of them"):
        Queue(tmp_path, "news", max_attempts=2, **moves_to(option, "news+late"))
    with Queue(tmp_path, "news+late", max_attempts=2, **moves_to(option, "news")) as child:
        child.put(b"a")
        assert list(child) == [b"a"]


def test_every_call_in_a_fork_is_refused(tmp_path: Path) -> None:
    with Queue(tmp_path, "cars", max_attempts=3) as queue:
        queue.put(b"a")
        calls: list[Callable[[], Any]] = [
            lambda: len(queue),
            queue.stats,
            queue.unpark,
            queue.peek,
            queue.get,
            lambda: list(queue),
            lambda: queue.put(b"b"),
            queue.sweep,
        ]
        child = os.fork()
        if not child:
            refused = 0
            for call in calls:
                try:
                    call()
                except WrongUse:
                    refused += 1
                except BaseException:
                    pass
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
        assert list(queue) == [b"a"]


# --- looking at a state of the past -----------------------------------------------------------------------------------


def test_state_is_available_between_operations(tmp_path: Path) -> None:
    write(tmp_path / "cars.904", addx(b"A"), addx(b"B"))
    reader = Reader(write(tmp_path / "cars", RESERVE, addx(b"C")))
    second = reader.find_place("cars.904@22")
    assert [item.data for item in reader.queue_state(second).items] == [b"A"]
    for place, words in {
        "cars.904@1": "cars.904@1 is within an operation: that begins at cars.904@0",
        "cars.904@43": "cars.904@43 is within an operation: that begins at cars.904@22",
        "cars@22": "cars@22 is within an operation: that begins at cars@1",
        "cars.904@45": "there is no operation at cars.904@45; the next one gets cars@23",
        "cars@99999": "there is no operation at cars@99999; the next one gets cars@23",
    }.items():
        with pytest.raises(WrongUse, match=words):
            reader.queue_state(reader.find_place(place))
    for place in ("cars.904@44", "cars@0", "cars@1", "cars@23"):
        reader.queue_state(reader.find_place(place))
