"""Interrupted calls of a queue, and the invariants after them: `tests/contract/test_interrupts.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from logwright.errors import LogwrightError, Poisoned
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.queue import Queue
from tests.support.interrupts import Case, Interrupt

ITEMS = [b"%d" % number for number in range(8)]
NEW = [b"x", b"y", b"z"]
LATER = b"later"


class State(NamedTuple):
    """The waiting items, and the data of the open items by id."""

    waiting: list[bytes]
    open: list[bytes]


def state_of(queue: Queue) -> State:
    return State(list(queue), [queue._engine.open_items[xid][0] for xid in sorted(queue._engine.open_items)])


def is_poisoned(queue: Queue) -> bool:
    """Whether every call raises `Poisoned`; either all do or none does."""
    if not (queue._engine.refusing or queue._engine.shelf.unsettled):
        return False
    calls = (lambda: queue.put(b"no"), queue.get, lambda: queue.get_many(2), queue.reserve, queue.clear, queue.peek)
    for call in calls:
        with pytest.raises(Poisoned, match="open"):
            call()
    return True


class Try(NamedTuple):
    """A call of a queue that has `ITEMS`: its steps, and the items that may wait once nothing is open any more."""

    call: Callable[[Queue, Any], object]
    outcomes: list[list[bytes]]
    prepare: Callable[[Queue], Any] = lambda queue: None
    options: Mapping[str, Any] = MappingProxyType({})
    others: Sequence[str] = ()
    """Queues that may also contain the items: then the outcomes are those of all queues together, in any order."""
    ends: bool = False
    """Whether the call closes the queue."""


def opened(queue: Queue) -> Any:
    return queue.reserve_many(3)


def reopened(queue: Queue) -> Any:
    queue.abort(*queue.reserve_many(3))


PUT = [ITEMS, [*ITEMS, *NEW]]
SMALL_JOURNAL = {"max_journal_bytes": 300, "default_journal_bytes": 200}
SMALL_MEMORY = {"max_memory_bytes": 3, "max_journal_bytes": 400, "default_journal_bytes": 100}

TRIES: dict[str, Try] = {
    "put": Try(lambda queue, _: queue.put(b"x"), [ITEMS, [*ITEMS, b"x"]]),
    "put with expiry": Try(lambda queue, _: queue.put(b"x", expires=1000), [ITEMS, [*ITEMS, b"x"]]),
    "put many": Try(lambda queue, _: queue.put_many(NEW), PUT),
    "put into a full queue": Try(
        lambda queue, _: queue.put(b"x"),
        [ITEMS, [*ITEMS[1:], b"x"]],
        options={"max_items": len(ITEMS), "discard_old_when_full": True},
    ),
    "put and rewrite": Try(
        lambda queue, _: queue.put_many(NEW),
        [ITEMS, [*ITEMS, *NEW]],
        prepare=lambda queue: fill(queue, watched=True),
        options=SMALL_JOURNAL,
    ),
    "put and rotate": Try(lambda queue, _: queue.put(b"x"), [ITEMS, [*ITEMS, b"x"]], options={"max_memory_bytes": 100}),
    "put, reading behind": Try(lambda queue, _: queue.put(b"x"), [ITEMS, [*ITEMS, b"x"]], options=SMALL_MEMORY),
    "get": Try(lambda queue, _: queue.get(), [ITEMS]),
    "get many": Try(lambda queue, _: queue.get_many(5), [ITEMS]),
    "get all": Try(lambda queue, _: queue.get_many(99), [ITEMS]),
    "get all, and rewrite": Try(lambda queue, _: queue.get_many(99), [ITEMS], options=SMALL_JOURNAL),
    "get, and rewrite": Try(
        lambda queue, _: queue.get(), [ITEMS], prepare=lambda queue: fill(queue), options=SMALL_JOURNAL
    ),
    "get, reading behind": Try(lambda queue, _: queue.get(), [ITEMS], options=SMALL_MEMORY),
    "get many, reading behind": Try(lambda queue, _: queue.get_many(5), [ITEMS], options=SMALL_MEMORY),
    "get what has not expired": Try(
        lambda queue, _: queue.get(),
        [ITEMS[2:]],
        prepare=lambda queue: expire(queue),
    ),
    "sweep": Try(lambda queue, _: queue.sweep(), [ITEMS[2:]], prepare=lambda queue: expire(queue)),
    "peek": Try(lambda queue, _: queue.peek(), [ITEMS]),
    "reserve": Try(lambda queue, _: queue.reserve(), [ITEMS]),
    "reserve many": Try(lambda queue, _: queue.reserve_many(5), [ITEMS]),
    "reserve many, reading behind": Try(lambda queue, _: queue.reserve_many(5), [ITEMS], options=SMALL_MEMORY),
    "reserve what was aborted": Try(lambda queue, _: queue.reserve_many(5), [ITEMS], prepare=reopened),
    "confirm": Try(lambda queue, items: queue.confirm(*items), [ITEMS, ITEMS[3:]], prepare=opened),
    "confirm, and rewrite": Try(
        lambda queue, items: queue.confirm(*items), [ITEMS, ITEMS[3:]], prepare=opened, options=SMALL_JOURNAL
    ),
    "abort": Try(lambda queue, items: queue.abort(*items), [ITEMS], prepare=opened),
    "abort too often": Try(
        lambda queue, items: queue.abort(*items),
        [ITEMS],
        prepare=opened,
        options={"max_attempts": 1},
        others=["q_parked"],
    ),
    "unpark": Try(
        lambda queue, _: queue.unpark(),
        [ITEMS],
        prepare=lambda queue: queue.abort(*opened(queue)),
        options={"max_attempts": 1},
        others=["q_parked"],
    ),
    "expire elsewhere": Try(
        lambda queue, _: queue.sweep(),
        [ITEMS],
        prepare=lambda queue: expire(queue),
        options={"expire_to": "late"},
        others=["late"],
    ),
    "clear": Try(lambda queue, _: queue.clear(), [ITEMS, []]),
    "clear, reading behind": Try(lambda queue, _: queue.clear(), [ITEMS, []], options=SMALL_MEMORY),
    "sync": Try(lambda queue, _: queue.sync(), [ITEMS]),
    "flush": Try(lambda queue, _: queue.flush(), [ITEMS]),
    "close": Try(lambda queue, _: queue.close(), [ITEMS], ends=True),
    "close with open items": Try(lambda queue, _: queue.close(), [ITEMS], prepare=opened, ends=True),
    "delete": Try(lambda queue, _: queue.delete(), [ITEMS, []], ends=True),
    "delete, reading behind": Try(lambda queue, _: queue.delete(), [ITEMS, []], options=SMALL_MEMORY, ends=True),
}


def fill(queue: Queue, *, watched: bool = False) -> None:
    """Make the journal larger than its contents; `watched` says that the queue limits its size."""
    if watched:
        queue._engine.compaction.set_thresholds()
    for _ in range(20):
        queue.put(b"gone" * 10)
    for item in queue.reserve_many(1000):
        if item.data not in ITEMS:
            queue.confirm(item)
    queue.abort(*queue._engine.open_items)


class Clock:
    """A clock that returns the time that it was set to."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


def expire(queue: Queue) -> None:
    """Make the first two items expire."""
    items = queue.get_many(99)
    for number, data in enumerate(items):
        queue.put(data, expires=5 if number < 2 else None)
    clock = queue._engine._clock_seconds
    assert isinstance(clock, Clock)
    clock.seconds += 10


def trial(found: Try, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """Make a call, interrupted; inspect the queue, use it further, open it again."""

    def reopen() -> Queue:
        return Queue(directory, "q", background=False, clock=clock)

    clock = Clock()
    queue = Queue(directory, "q", background=False, clock=clock, **settings, **found.options)
    queue.put_many(ITEMS)
    queue.sync()
    context = found.prepare(queue)
    before = state_of(queue)
    outcomes = found.outcomes
    if not interrupt(lambda: found.call(queue, context)):
        queue.close()
        return
    is_sound = False
    if found.ends:
        with suppress(Poisoned):
            queue.close()
    elif is_poisoned(queue):
        queue.close()
    else:
        is_sound = True
        now = state_of(queue)
        if not found.others:
            assert [*now.open, *now.waiting] in outcomes or now == before
            assert now.open in ([], before.open), "open items are not known"
        if "max_items" not in found.options:
            queue.put(LATER)
            outcomes = [[*outcome, LATER] for outcome in outcomes]
        queue.close()
    clock.seconds -= 10 if found.others else 0  # moved items are in their queue, and have not expired
    with reopen() as queue:
        waiting = list(queue)
        for name in found.others:
            with suppress(LogwrightError), Queue(directory, name, background=False, clock=clock) as other:
                waiting += other
        if found.others:
            assert sorted(waiting) in [sorted(outcome) for outcome in outcomes]
        else:
            assert waiting in outcomes, (is_sound, waiting)
        queue.put(b"more")
        assert queue.stats().open == 0


def opening(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """Open a queue with items that were open, and a child, interrupted; open it again."""
    with Queue(directory, "q", background=False, **settings) as queue:
        queue.put_many(ITEMS)
        queue.reserve_many(3)
        queue._engine.put_back_undelivered = lambda xids: None  # type: ignore[method-assign]
        child = Queue(directory, "q+child", background=False, **settings)
        child.put(b"a")
        child.close()
    opened: list[Queue] = []
    if not interrupt(lambda: opened.append(Queue(directory, "q", background=False, **settings))):
        opened[0].close()
        return
    for queue in opened:
        queue.close()
    with Queue(directory, "q", background=False) as queue:
        assert list(queue) == ITEMS
        queue.put(b"x")
    with Queue(directory, "q", background=False) as queue:
        assert list(queue) == [*ITEMS, b"x"]


def fanned_out(settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """Put to a queue and its child."""
    with Queue(directory, "q+child", background=False, **settings):
        pass
    queue = Queue(directory, "q", background=False, **settings)
    queue.put_many(ITEMS)
    interrupt(lambda: queue.put_many(NEW))
    poisoned = is_poisoned(queue)
    if not poisoned:
        queue.put(LATER)
    queue.close()
    with Queue(directory, "q", background=False) as queue, Queue(directory, "q+child", background=False) as child:
        assert list(queue) == list(child)
        found = list(queue)
    assert found in (PUT if poisoned else [[*put, LATER] for put in PUT])


DELAYS: dict[str, Callable[[Queue], object]] = {
    "put later": lambda queue: queue.put(b"x", delay=5),
    "put once": lambda queue: queue.put(b"x", id="x"),
    "put later once": lambda queue: queue.put(b"x", delay=5, id="x"),
    "retry later": lambda queue: queue.abort(*queue.reserve_many(3), delay=5),
    "retry now": lambda queue: queue.get(),
    "move": lambda queue: queue.sweep(),
    "close with delayed items": lambda queue: queue.close(),
}


def delaying(name: str, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """Delay items, or make them due, interrupted. Then each item is there once, at once or when it is due."""
    clock = Clock()
    queue = Queue(directory, "q", background=False, clock=clock, **settings)
    queue.put_many(ITEMS[:6])
    queue.put_many(ITEMS[6:], delay=1)
    if name in ("retry now", "close with delayed items"):
        queue.abort(*queue.reserve_many(2), delay=1)
    queue.sync()
    clock.seconds += 1
    was_interrupted = interrupt(lambda: DELAYS[name](queue))
    result: list[bytes] = [interrupt.result] if name == "retry now" and not was_interrupted else []
    with suppress(Poisoned):
        queue.close()
    with Queue(directory, "q", background=False, clock=clock) as queue:
        if "once" in name:
            queue.put(b"x", id="x")
        clock.seconds += 5
        while (data := queue.get()) is not None:
            result.append(data)
    added = [item for item in result if item not in ITEMS]
    assert sorted(item for item in result if item in ITEMS) == ITEMS
    assert added in (([b"x"],) if "once" in name else ([], [b"x"]) if "put" in name else ([],))


WRITES: dict[str, tuple[Callable[[Writer], object], list[bytes]]] = {
    "append": (lambda writer: writer.append(addx(b"x")), [b"x"]),
    "append and rotate": (lambda writer: writer.append(addx(b"x" * 300)), [b"x" * 300]),
    "flush": (lambda writer: writer.flush(), []),
    "sync": (lambda writer: writer.sync(), []),
    "close": (lambda writer: writer.close(), []),
}


def addx(data: bytes) -> Operation:
    return Operation("addx", data=data, added=1)


def writing(name: str, settings: dict[str, Any], directory: Path, interrupt: Interrupt) -> None:
    """A writer of plain operations with two that wait to be written."""
    call, appends = WRITES[name]
    writer = Writer(directory / "q", max_file_bytes=200, **settings)
    for data in ITEMS:
        writer.append(addx(data))
    writer.sync()
    waiting = [b"a", b"b"]
    for data in waiting:
        writer.append(addx(data))
    was_interrupted = interrupt(lambda: call(writer))
    is_poisoned = writer.refusing
    with suppress(Poisoned):
        writer.close()
    found = [operation.data for operation in Reader(directory / "q")]
    whole = [*ITEMS, *waiting, *appends]
    if not was_interrupted:
        assert found == whole
    elif is_poisoned:
        assert found in [whole[:number] for number in range(len(ITEMS), len(whole) + 1)]
    else:
        assert found in ([*ITEMS, *waiting], whole)


SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    ", buffered": {"buffer_bytes": 4096},
    ", synced": {"sync": "always"},
}


def _case(found: Try, settings: dict[str, Any]) -> Case:
    return lambda directory, interrupt: trial(found, settings, directory, interrupt)


def _other(work: Callable[..., None], settings: dict[str, Any]) -> Case:
    return lambda directory, interrupt: work(settings, directory, interrupt)


CASES: dict[str, Case] = {
    f"{name}{suffix}": _case(found, settings) for name, found in TRIES.items() for suffix, settings in SETTINGS.items()
}
for _suffix, _settings in SETTINGS.items():
    CASES[f"opening{_suffix}"] = _other(opening, _settings)
    CASES[f"put many to a family{_suffix}"] = _other(fanned_out, _settings)
    for _call in DELAYS:
        CASES[f"{_call}{_suffix}"] = partial(delaying, _call, _settings)
    for _write in WRITES:
        CASES[f"writer: {_write}{_suffix}"] = partial(writing, _write, _settings)
