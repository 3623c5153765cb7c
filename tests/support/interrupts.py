"""Interrupts: a signal handler that raises, at every place of a call where Python lets one run.

Python runs signal handlers between bytecodes, but not between all of them: at the beginning of a function, at the end
of a call of compiled code, at a jump backwards. So nothing is raised from a trace function, which could also do it
where no signal ever arrives, as between the last statement of a `with` block and its end. The trace function counts
bytecodes, and before the chosen one it trips SIGINT; the interpreter then runs the handler where it always would.

    def trial(interrupt):
        queue = ...
        interrupt(lambda: queue.get_many(10))
        ...                                   what must hold now, however far the call has come

    count = at_every_moment(trial)
"""

from __future__ import annotations

import ctypes
import dis
import itertools
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_trip = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p)


_TESTS = str(Path(__file__).parent.parent)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interrupt:
    """Calls something and interrupts it at its `moment`-th bytecode, 0 for not at all. `at` says where that was."""

    def __init__(self, moment: int = 0) -> None:
        self.moment = moment
        self.at: str | None = None
        self.result: Any = None
        self.moments: list[int] = []
        """The bytecodes after which the interpreter checks for signals."""
        self._bytecodes = 0
        self._names: dict[CodeType, list[bool]] = {}

    def __call__(self, call: Callable[[], Any]) -> bool:
        """Whether the call was interrupted. If it was not, `result` is what it has returned; errors are raised."""
        before = signal.signal(signal.SIGINT, self._handle)
        # Keep a reference: the interpreter borrows the trace function while it makes a frame object. That can run the
        # garbage collector, hence a finalizer that is traced, and `settrace(None)` in there would free the function.
        trace = self._enter
        try:
            sys.settrace(trace)
            try:
                self.result = call()
            finally:
                sys.settrace(None)
        except Interrupted:
            return True
        finally:
            signal.signal(signal.SIGINT, before)
        return False

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if _TESTS in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        return self._count(frame, "opcode", argument)

    def _count(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self._bytecodes += 1
            if self._bytecodes == self.moment:
                sys.settrace(None)  # or the next call of this function would be interrupted
                # It goes off when this function has returned: now the handler would run in here.
                bomb = _new_capsule(1, None, _trip)  # noqa: F841
            elif not self.moment and self._looks_for_signals(frame):
                self.moments.append(self._bytecodes)
        return self._count

    def _looks_for_signals(self, frame: FrameType) -> bool:
        known = self._names.get(frame.f_code)
        if known is None:
            names = [dis.opname[number] for number in frame.f_code.co_code]
            known = self._names[frame.f_code] = [
                name.startswith(("CALL", "RESUME", "SEND")) or "JUMP_BACKWARD" in name for name in names
            ]
        return known[frame.f_lasti]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if frame is None or _TESTS in frame.f_code.co_filename:
            return  # the call had ended
        inner: FrameType | None = frame
        while inner is not None:
            if inner.f_code.co_name in ("__del__", "_remove"):
                return  # a finalizer, or what a `WeakSet` calls when an object goes: it would be ignored there
            inner = inner.f_back
        self.at = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        raise Interrupted


def at_every_moment(trial: Callable[[Interrupt], None], most: int) -> int:
    """Make a trial without an interrupt, and then one for each moment of its call; how many were interrupted.

    If there are more than `most` moments, that many of them are tried, at equal distances.
    """
    first = Interrupt()
    trial(first)
    count = 0
    for moment in first.moments[:: max(1, -(-len(first.moments) // most))]:
        interrupt = Interrupt(moment)
        try:
            trial(interrupt)
        except Exception as error:
            raise AssertionError(f"interrupted at bytecode {moment}, {interrupt.at}: {error!r}") from error
        count += interrupt.at is not None
    return count


Case = Callable[[Path, Interrupt], None]
"""A trial in its own directory."""


def interrupt_everywhere(case: Case, directory: Path, most: int) -> int:
    """Try a case at every moment, each time in a fresh directory below one; how many moments there were."""
    numbers = itertools.count()

    def trial(interrupt: Interrupt) -> None:
        place = directory / str(next(numbers))
        place.mkdir()
        try:
            case(place, interrupt)
        finally:
            shutil.rmtree(place)

    return at_every_moment(trial, most)
