"""Calls on a journal with segments before a crash: checkpoints, removals, and openings that move files.

Each scenario is a list of calls. After a crash the readable segments are those after the last call that had returned,
or after the call in progress, and nothing in between. The same holds when the journal is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logwright.appendfile.files.writer import Writer
from logwright.appendfile.model.recovery import Recovery
from logwright.core.io.disk import Disk
from tests.appendfile.model import Model, View, read_view, view_of
from tests.contract.subject import HOME
from tests.support.simulated_disk import SimulatedDisk

_FILE_BYTES = 120


class _Calls:
    """Calls of a journal, made on a model and on a disk alike."""

    def __init__(self, disk: Disk | None, sync: str = "always") -> None:
        self.model = Model()
        self._disk = disk
        self._sync = sync
        self._writer: Writer | None = None
        self._recovery: Recovery | None = None

    def do(self, call: str) -> None:
        name, _, argument = call.partition(" ")
        getattr(self, f"_{name}")(argument.encode())

    def _open(self, _: bytes) -> None:
        self.model.reopen()
        if self._disk is not None:
            self._close(b"")
            self._writer = Writer(HOME, sync=self._sync, disk=self._disk, file_bytes=_FILE_BYTES, recovering=True)
            self._recovery = self._writer.recovery()

    def _close(self, _: bytes) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _append(self, data: bytes) -> None:
        self.model.append(data)
        if self._writer is not None:
            self._writer.append(data)

    def _register(self, _: bytes) -> None:
        expected = self.model.register()
        if self._writer is not None:
            assert self._writer.register_checkpoint() == expected

    def _check(self, _: bytes) -> None:
        self.model.check()
        if self._writer is not None:
            self._writer.check_checkpoint()

    def _generation(self, _: bytes) -> None:
        self.model.begin_generation()
        if self._writer is not None:
            self._writer.begin_generation()

    def _consume(self, _: bytes) -> None:
        old = self.model.old
        self.model.consume()
        if self._recovery is not None:
            assert view_of(list(self._recovery)) == old

    def _peek(self, _: bytes) -> None:
        if self._recovery is not None:
            assert view_of([next(self._recovery)]) == self.model.old[:1]


class CallsScenario:
    """Calls that are crashed anywhere. Those before `run` are not."""

    def __init__(self, name: str, before: list[str], calls: list[str], sync: str = "always") -> None:
        self.name = name
        self._before, self._calls = before, calls
        self._sync = sync
        self.views = self._every_view()

    def _every_view(self) -> list[View]:
        model = _Calls(None)
        for call in self._before:
            model.do(call)
        found = [model.model.view()]
        for call in self._calls:
            model.do(call)
            found.append(model.model.view())
        return found

    def prepare(self, disk: SimulatedDisk) -> None:
        calls = _Calls(disk)
        for call in [*self._before, "close"]:
            calls.do(call)

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        calls = _Calls(disk, self._sync)
        for call in self._before:
            _do_on_model(calls.model, call)
        for count, call in enumerate(self._calls, 1):
            calls.do(call)
            mark(count)
        calls.do("close")
        mark("closed")

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        operations = len(disk.operations)
        found = read_view(disk, HOME)
        assert len(disk.operations) == operations, "reading changed something"
        done = max((mark for mark in disk.marks if isinstance(mark, int)), default=0)
        if self._sync == "always" or "closed" in disk.marks:
            possible = self.views[done : done + 2]
        else:
            possible = self.views[: done + 2]
        assert found in possible, f"{done} calls had returned, and this is left: {found}"
        with Writer(HOME, disk=disk, recovering=True) as writer:
            recovery = writer.recovery()
            assert writer.recovered is None or writer.kept is not None
            assert read_view(disk, HOME) == found, "opening it lost something"
            first = [next(recovery)] if found else []
            assert view_of(first) == found[:1]
        with Writer(HOME, disk=disk, recovering=True) as writer:
            recovery = writer.recovery()
            assert view_of(list(recovery)) == found, "a walk that was left half-way has changed something"
            assert read_view(disk, HOME) == []
            writer.append(b"goes on")
            current = writer.current
            assert current >= max((segment for segment, _, _ in found), default=0)
            assert writer.register_checkpoint() == current + 1
        assert read_view(disk, HOME) == [(current, (b"goes on",), True)]


def _do_on_model(model: Model, call: str) -> None:
    calls = _Calls(None)
    calls.model = model
    calls.do(call)


_RETIRED = [
    *("append first of the first segment", "append second of it", "append a third one", "register"),
    *("append the second segment", "append and more of it, to fill files", "register", "check"),
    *("append the third one", "append it is long as well", "check", "append to the end", "register", "check"),
]


class RetireScenario(CallsScenario):
    """Segments that are closed and checked, so that files are removed."""

    def __init__(self, name: str, sync: str = "always") -> None:
        super().__init__(name, ["open"], ["open", *_RETIRED], sync)


class ReopenScenario(CallsScenario):
    """A journal that is opened repeatedly, so that files are moved, recovered, and removed.

    Recovered records are appended again. With `leaves`, iterations end half-way, and old files of several openings
    accumulate.
    """

    def __init__(self, name: str, *, leaves: bool = False) -> None:
        before = ["open", *_RETIRED[:7], "append not closed by any checkpoint"]
        again = ["append the second segment once more", "register"]
        calls = ["open", "peek", *again, "open", *(["peek"] if leaves else ["consume"]), "append new", "open", *again]
        super().__init__(name, before, [*calls, "consume", "check", "open", "consume", "append last"])


class GenerationsScenario(CallsScenario):
    """Generations that begin during a recovery, which does not change them."""

    def __init__(self, name: str) -> None:
        before = ["open", *_RETIRED[:7], "open", "append of the second opening"]
        new = ["append new, while it is walked", "generation", "append newer", "register", "generation"]
        calls = ["open", *new, "consume", "append after the walk", "open", "consume", "append last"]
        super().__init__(name, before, calls)
