"""Any calls in any order: a queue behaves like a list in memory.

The model is naive on purpose. Between calls the queue is closed, killed and opened again, with other limits: read
behind, rotated, rewritten, packed, and all of it in both dialects.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logwright.core.bytes.compiled import COMPILED
from logwright.errors import Empty, Full
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.model import open_queues
from logwright.kestrel.model.queue import Queue
from tests.kestrel.queues import Clock
from tests.support.simulated_disk import SimulatedDisk

HOME = Path("/queues")
DATA = st.sampled_from((b"", b"x", b"a small item", b"y" * 40, b"z" * 150))
EXPIRES = st.sampled_from((None, 1, 5, 20))
MEMORY = st.sampled_from((64, 200, 200, 1000, 1 << 20))
JOURNAL = st.sampled_from((1, 150, 600, 5000, 1 << 30))
IDLE = st.sampled_from((1, 100, 1000, 1 << 24))
BUFFER = st.sampled_from((0, 0, 300))
SYNC = st.sampled_from(("none", "always"))


@dataclass(frozen=True)
class ModelItem:
    data: bytes
    expires: float | None
    added: float
    attempts: int = 0


class Model:
    """A queue as a list."""

    def __init__(self, options: dict[str, Any], clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.items: list[ModelItem] = []
        self.open: dict[int, ModelItem] = {}
        self.parked: list[bytes] = []
        self.elsewhere: list[bytes] = []
        self.xid = 0

    def is_expired(self, item: ModelItem) -> bool:
        max_age = self.options.get("max_age")
        is_old = max_age is not None and item.added + max_age <= self.clock.now
        return is_old or (item.expires is not None and item.expires <= self.clock.now)

    def settle(self) -> None:
        """Drop the items at the head that cannot be delivered."""
        while self.items:
            head = self.items[0]
            if self.is_expired(head):
                if self.options.get("expire_to"):
                    self.use_xid()
                    self.elsewhere.append(head.data)
            elif head.attempts >= self.options.get("max_attempts", 10**9):
                self.use_xid()
                self.parked.append(head.data)
            else:
                return
            del self.items[0]

    def use_xid(self) -> int:
        self.xid += 1
        return self.xid

    def is_full(self, contents: list[bytes]) -> bool:
        size = sum(len(item.data) for item in self.items) + sum(map(len, contents))
        most_items: int = self.options.get("max_items", 10**9)
        most_bytes: int = self.options.get("max_bytes", 10**9)
        return len(self.items) + len(contents) > most_items or size > most_bytes

    def put(self, contents: list[bytes], expires: float | None) -> bool:
        """Whether the items were accepted."""
        if self.options.get("discard_old_when_full"):
            for data in contents:
                if self.is_full([data]):
                    self.settle()
                while self.items and self.is_full([data]):
                    del self.items[0]
                self.add(data, expires)
            return True
        if self.is_full(contents):
            self.settle()
        if self.is_full(contents):
            return False
        for data in contents:
            self.add(data, expires)
        return True

    def add(self, data: bytes, expires: float | None) -> None:
        deadline = None if expires is None else self.clock.now + expires
        self.items.append(ModelItem(data, deadline, self.clock.now))

    def take(self) -> ModelItem | None:
        self.settle()
        return self.items.pop(0) if self.items else None

    def reserve(self) -> int | None:
        item = self.take()
        if item is None:
            return None
        xid = self.use_xid()
        self.open[xid] = item
        return xid

    def abort(self, xids: list[int]) -> None:
        for xid in sorted(xids, reverse=True):
            item = self.open.pop(xid)
            if item.attempts + 1 >= self.options.get("max_attempts", 10**9):
                continue
            self.items.insert(0, replace(item, attempts=item.attempts + 1))

    def park(self, xids: list[int]) -> None:
        """The items that an abort parks, in the order of the call."""
        for xid in xids:
            if self.open[xid].attempts + 1 >= self.options.get("max_attempts", 10**9):
                self.parked.append(self.open[xid].data)

    def restart(self) -> None:
        for xid in sorted(self.open, reverse=True):
            item = self.open.pop(xid)
            self.items.insert(0, replace(item, attempts=item.attempts + 1))


class QueueMachine(RuleBasedStateMachine):
    """Makes the same calls on a queue and on the model. `steps` counts the calls of all machines of a kind."""

    steps = 0

    @initialize(
        dialect=st.sampled_from(("documented", "kestrel2")),
        memory=MEMORY,
        journal=JOURNAL,
        limits=st.sampled_from(
            (
                {},
                {"max_age": 10},
                {"max_items": 30},
                {"max_bytes": 2000},
                {"max_items": 20, "discard_old_when_full": True},
                {"max_bytes": 1600, "discard_old_when_full": True},
                {"max_attempts": 2, "park": "parked"},
                {"expire_to": "elsewhere", "max_attempts": 3},
            )
        ),
    )
    def begin(self, dialect: Any, memory: int, journal: int, limits: dict[str, Any]) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory(HOME)
        self.clock = Clock()
        self.options = limits
        self.dialect = dialect
        self.model = Model(limits, self.clock)
        self.queue = self.opened(memory, journal, 100, 0, "none")

    def opened(self, memory: int, journal: int, idle: int, buffer: int, sync: str) -> Queue:
        return Queue(
            HOME,
            "cars",
            disk=self.disk,
            clock=self.clock,
            dialect=self.dialect,
            background=False,
            sync=sync,
            buffer_bytes=buffer,
            max_memory_bytes=memory,
            max_journal_bytes=journal,
            default_journal_bytes=idle,
            **self.options,
        )

    # --- rules ------------------------------------------------------------------------------------------------------

    @rule(data=DATA, expires=EXPIRES)
    def put(self, data: bytes, expires: float | None) -> None:
        self.put_or_refuse([data], expires, lambda: self.queue.put(data, expires))

    @rule(count=st.integers(0, 25), data=DATA, expires=EXPIRES)
    def put_many(self, count: int, data: bytes, expires: float | None) -> None:
        contents = [b"%d %b" % (number, data) for number in range(count)]
        self.put_or_refuse(contents, expires, lambda: self.queue.put_many(contents, expires))

    def put_or_refuse(self, contents: list[bytes], expires: float | None, put: Any) -> None:
        if self.model.put(contents, expires):
            put()
        else:
            with pytest.raises(Full):
                put()

    @rule()
    def get(self) -> None:
        wanted = self.model.take()
        assert self.queue.get() == (wanted and wanted.data)

    @rule(most=st.integers(0, 5))
    def get_many(self, most: int) -> None:
        wanted: list[bytes] = []
        while len(wanted) < most and (item := self.model.take()) is not None:
            wanted.append(item.data)
        assert self.queue.get_many(most) == wanted

    @rule()
    def peek(self) -> None:
        self.model.settle()
        wanted = self.model.items[0].data if self.model.items else None
        assert self.queue.peek() == wanted

    @rule()
    def reserve_one(self) -> None:
        xid = self.model.reserve()
        if xid is None:
            with pytest.raises(Empty):
                self.queue.reserve()
        else:
            known = self.model.open[xid]
            item = self.queue.reserve()
            assert (item.xid, item.data, item.attempts) == (xid, known.data, known.attempts)

    @rule(most=st.integers(1, 4))
    def reserve_many(self, most: int) -> None:
        wanted: list[int] = []
        while len(wanted) < most and (xid := self.model.reserve()) is not None:
            wanted.append(xid)
        assert [item.xid for item in self.queue.reserve_many(most)] == wanted

    @precondition(lambda self: self.model.open)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        xids = data.draw(st.lists(st.sampled_from(sorted(self.model.open)), min_size=1, unique=True))
        self.queue.confirm(*xids)
        for xid in xids:
            del self.model.open[xid]

    @precondition(lambda self: self.model.open)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        xids = data.draw(st.lists(st.sampled_from(sorted(self.model.open)), min_size=1, unique=True))
        self.model.park(xids)
        self.model.abort(xids)
        self.queue.abort(*xids)

    @rule(sure=st.integers(0, 9))
    def flush(self, sure: int) -> None:
        if sure:
            return  # otherwise it would never have many items
        assert self.queue.clear() == len(self.model.items)
        self.model.items.clear()

    @rule()
    def sweep(self) -> None:
        self.model.settle()
        self.queue.sweep()

    @rule(seconds=st.sampled_from((0.5, 3, 12, 30)))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(memory=MEMORY, journal=JOURNAL, idle=IDLE, buffer=BUFFER, sync=SYNC)
    def close_and_open(self, memory: int, journal: int, idle: int, buffer: int, sync: str) -> None:
        self.queue.close()
        self.model.restart()
        self.queue = self.opened(memory, journal, idle, buffer, sync)

    @rule(memory=MEMORY, journal=JOURNAL, idle=IDLE, sync=SYNC)
    def kill_and_open(self, memory: int, journal: int, idle: int, sync: str) -> None:
        self.queue.flush()
        self.forget()
        self.disk = self.disk.copy()
        self.model.restart()
        self.queue = self.opened(memory, journal, idle, 0, sync)

    def forget(self) -> None:
        """Stop as if the process had died: nothing of it writes any more."""
        for key in [key for key in open_queues._engines if key[0] == id(self.disk)]:
            open_queues._engines.pop(key).shelf.refusing = True

    @rule()
    def unpark(self) -> None:
        if "max_attempts" in self.options and "max_items" not in self.options:
            assert self.queue.unpark() == len(self.model.parked)
            for data in self.model.parked:
                self.model.add(data, None)
            self.model.parked.clear()

    # --- what must always be true -----------------------------------------------------------------------------------

    @invariant()
    def the_queue_is_as_the_model(self) -> None:
        type(self).steps += 1
        assert len(self.queue) == len(self.model.items)
        stats = self.queue.stats()
        assert (stats.items, stats.open) == (len(self.model.items), len(self.model.open))
        assert stats.bytes == sum(len(item.data) for item in self.model.items)
        shown = [(item.data, item.attempts) for item in self.queue.items()]
        assert shown == [(item.data, item.attempts) for item in self.model.items if not self.model.is_expired(item)]

    @rule()
    def the_journal_is_as_the_model(self) -> None:
        self.queue.flush()
        state = Reader(HOME / "cars", dialect=self.dialect, disk=self.disk).queue_state(mode="failfast")
        assert [item.data for item in state.items] == [item.data for item in self.model.items]
        assert {item.xid: item.data for item in state.open} == {xid: item.data for xid, item in self.model.open.items()}
        assert state.xid == self.model.xid

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        self.queue.close()
        parked = self.options.get("park", "cars_parked") if "max_attempts" in self.options else None
        for name, wanted in ((parked, self.model.parked), (self.options.get("expire_to"), self.model.elsewhere)):
            if name is not None:
                with Queue(HOME, name, disk=self.disk) as other:
                    assert list(other) == wanted
        assert not [key for key in open_queues._engines if key[0] == id(self.disk)]


def machine(examples: int, steps: int) -> Any:
    machine: Any = type("Machine", (QueueMachine,), {})
    found = machine.TestCase
    found.machine = machine
    found.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    return found


class TestQueueAgainstTheModel(machine(150, 40)):  # type: ignore[misc]
    """Some thousands of steps."""


@pytest.mark.skipif(not COMPILED, reason="these are the loops that are not compiled")
def test_queue_matches_the_model_without_compiled_loops() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "TestQueueAgainstTheModel and not Long",
    ]
    done = subprocess.run(
        [*command, __file__], env={**os.environ, "LOGWRIGHT_PURE": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.torture
class TestQueueAgainstTheModelForLong(machine(1400, 100)):  # type: ignore[misc]
    """A hundred thousand steps. Some runs end early, so a few more of them are needed."""

    def runTest(self) -> None:  # noqa: N802 - that is its name
        super().runTest()
        assert self.machine.steps >= 100_000
