"""A queue that is used by `put`, `get`, `reserve`, `confirm` and `abort`, one call at a time.

Its process reports each call before it, and its result after it. So the queue is known except for the call in progress,
which may have happened completely, partly or not at all. Items are numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from .. import kestrel
from ..core.io.disk import Disk
from ..errors import NotFound
from .exercises import BATCH, Exercise, Expectation, Send, Settled, Task, Wrong, check_sound

QUEUE: Final = "cars"
State: TypeAlias = list[tuple[int, int]]
"""A queue after a restart: the numbers of its items from head to tail, and the attempts of each."""
Call: TypeAlias = tuple[str, list[int]]


def item_of(number: int) -> bytes:
    """The item of a number."""
    return b"%d %b" % (number, b"x" * (number * 37 % 90))


def number_of(data: bytes) -> int:
    """The number of an item, which must be complete."""
    digits = data.split(b" ")[0]
    number = int(digits) if digits.isdigit() else -1
    if number < 0 or data != item_of(number):
        raise Wrong(f"an item that was never put: {data!r}")
    return number


# --- in the process that is killed ------------------------------------------------------------------------------------


class Worker:
    """Decides what to do next. `waiting` is the approximate number of waiting items."""

    def __init__(self, seed: str, first: int, waiting: int) -> None:
        self._chance = random.Random(seed)
        self._next = first
        self._open: list[int] = []
        self._waiting = waiting

    def choose(self) -> Call:
        """The next call."""
        chance, luck = self._chance, self._chance.random()
        if self._open and luck < 0.45:
            chance.shuffle(self._open)
            count = chance.randrange(1, len(self._open) + 1)
            xids, self._open = self._open[:count], self._open[count:]
            return chance.choice(("confirm", "abort")), xids
        if luck < 0.5 or (self._waiting < 10 and luck < 0.8):
            numbers = list(range(self._next, self._next + (1 if luck < 0.3 else chance.randrange(2, 8))))
            self._next = numbers[-1] + 1
            self._waiting += len(numbers)
            return "put", numbers
        many = chance.choice((1, 1, 1, 3))
        if self._waiting > 60:
            many = 10
        self._waiting = max(0, self._waiting - many)
        return chance.choice(("get", "open")), [many]

    def learn(self, verb: str, result: Any) -> None:
        """Remember the result."""
        if verb == "open":
            self._open += [xid for _, xid in result]


def act(queue: kestrel.Queue, verb: str, numbers: list[int]) -> Any:
    """Make a call on a queue; the items that it returns, None for a call that returns none."""
    if verb == "put":
        items = [item_of(number) for number in numbers]
        queue.put(items[0]) if len(items) == 1 else queue.put_many(items)
        return None
    if verb == "get":
        (most,) = numbers
        found = [queue.get()] if most == 1 else queue.get_many(most)
        return [number_of(data) for data in found if data is not None]
    if verb == "open":
        return [[number_of(item.data), item.xid] for item in queue.reserve_many(numbers[0])]
    queue.confirm(*numbers) if verb == "confirm" else queue.abort(*numbers)
    return None


class QueueExercise(Exercise):
    """A kestrel queue; every other one packs its journal in a thread."""

    format = "kestrel"

    def use(self, task: Task, disk: Disk, send: Send) -> None:
        queue = kestrel.Queue(
            task.home,
            QUEUE,
            sync=task.policy,
            background=task.seed % 2 == 0,
            max_memory_bytes=4000,  # so small that it rotates, rewrites and packs its journal often
            max_journal_bytes=15_000,
            default_journal_bytes=4000,
            disk=disk,
        )
        send(["open"])
        worker = Worker(f"{task.seed} {task.start}", task.start, len(queue))
        calls = 0
        while True:
            verb, numbers = worker.choose()
            send(["do", verb, numbers])
            result = act(queue, verb, numbers)
            worker.learn(verb, result)
            calls += 1
            synced = task.acknowledged != "return" and calls % BATCH == 0
            if synced:
                queue.sync()
            send(["done", result, synced])

    def expect(self, task: Task) -> Expectation:
        return _Queue(task)


# --- in the process that checks ---------------------------------------------------------------------------------------


class Model:
    """The expected queue after the calls of one process. There is one worker, so the result is determined."""

    def __init__(self, state: State) -> None:
        self.items = list(state)
        self.open: dict[int, tuple[int, int]] = {}
        self.xid = 0

    def copy(self) -> Model:
        other = Model(self.items)
        other.open, other.xid = dict(self.open), self.xid
        return other

    def done(self, verb: str, numbers: list[int], result: Any) -> None:
        """Check the result of a call."""
        wanted = [number for number, _ in self.items[: numbers[0]]] if verb in ("get", "open") else None
        found = [number for number, _ in result] if verb == "open" else result
        if found != wanted:
            raise Wrong(f"{verb} has returned the items {found} instead of {wanted}")
        if verb == "open":
            self.xid = min((xid for _, xid in result), default=self.xid + 1) - 1
        for model in self.steps(verb, numbers):
            self.items, self.open, self.xid = model.items, model.open, model.xid

    def steps(self, verb: str, numbers: list[int]) -> Iterator[Model]:
        """The queue after each operation that a call writes to the journal."""
        now = self.copy()
        if verb == "put":
            for number in numbers:
                now.items.append((number, 0))
                yield now.copy()
        elif verb in ("get", "open"):
            for _ in range(min(numbers[0], len(self.items))):
                item = now.items.pop(0)
                if verb == "open":
                    now.xid += 1
                    now.open[now.xid] = item
                yield now.copy()
        elif verb == "confirm":
            for xid in numbers:
                del now.open[xid]
                yield now.copy()
        else:
            for xid in sorted(numbers, reverse=True):
                number, attempts = now.open.pop(xid)
                now.items.insert(0, (number, attempts + 1))
                yield now.copy()

    def after_restart(self) -> State:
        back = [(number, attempts + 1) for _, (number, attempts) in sorted(self.open.items())]
        return back + self.items


class _Queue(Expectation):
    """The queue at the last acknowledged call, and the calls since then, each of which may have happened."""

    def __init__(self, task: Task) -> None:
        self._at_once = task.acknowledged == "return"
        self._next = 0
        self._begin([])

    def _begin(self, state: State) -> None:
        self._model = Model(state)
        self._later: list[tuple[Call, Any]] = []
        self._under_way: Call | None = None

    @property
    def start(self) -> int:
        return self._next

    def hear(self, report: list[Any], *, counts: bool = True) -> None:
        if report[0] == "do":
            self._under_way = report[1], report[2]
            if report[1] == "put":
                self._next = report[2][-1] + 1
        elif report[0] == "done":
            if self._under_way is None:
                raise Wrong("a call has ended that had not begun")
            self._later.append((self._under_way, report[1]))
            self._under_way = None
            if counts and (self._at_once or report[2]):
                for (verb, numbers), result in self._later:
                    self._model.done(verb, numbers, result)
                self.acknowledged += len(self._later)
                self._later = []

    def settle(self, home: Path) -> Settled:
        allowed = self._allowed()
        try:
            with kestrel.Reader(home / QUEUE) as reader:
                check_sound(reader.verify())
        except NotFound:
            found: State = []
        else:
            found = self._opened(home)
            if self._opened(home) != found:
                raise Wrong("the queue has changed by being opened a second time")
        settled = Settled(len(found))
        if found not in allowed:
            missing = {number for number, _ in allowed[0]} - {number for number, _ in found}
            taken = {number for state in allowed for number, _ in allowed[0] if number not in dict(state)}
            settled.lost = len(missing - taken)
            settled.problems.append(
                f"the acknowledged queue has the items {_text(allowed[0])}, and {_text(found)} are there"
            )
        self._begin(found)
        return settled

    def _allowed(self) -> list[State]:
        """The possible queues: that of the last acknowledged call, and those of the calls after it."""
        model = self._model.copy()
        found = [model.after_restart()]
        for (verb, numbers), result in self._later:
            found += [each.after_restart() for each in model.steps(verb, numbers)]
            model.done(verb, numbers, result)
        if self._under_way is not None:
            found += [each.after_restart() for each in model.steps(*self._under_way)]
        return found

    def _opened(self, home: Path) -> State:
        with kestrel.Queue(home, QUEUE, background=False) as queue:
            return [(number_of(item.data), item.attempts) for item in queue.items()]


def _text(state: State) -> str:
    shown = ", ".join(str(number) for number, _ in state[:20])
    return f"{shown or 'none'}{', …' if len(state) > 20 else ''}"
