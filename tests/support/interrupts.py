"""Interrupts: a signal handler that raises, at every point of a call where Python may run one.

Python runs signal handlers only between some bytecodes: at the beginning of a function, at the end of a call of
compiled code, at a jump backwards. A trace function that raises could also do so where no signal ever arrives, for
instance between the last statement of a `with` block and its end. So the trace function here does not raise. It counts
bytecodes, and sends SIGINT before the chosen one; the interpreter then runs the handler at its usual point.

    def trial(interrupt):
        queue = ...
        interrupt(lambda: queue.get_many(10))
        ...                                   assertions that must hold, however far the call got

    count = at_every_moment(trial)
"""

from __future__ import annotations

import ctypes
import dis
import gc
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
    """The exception of the signal handler."""


class Interrupt:
    """Calls a function and interrupts it at its `moment`-th bytecode; 0 for not at all. `at` is the place."""

    def __init__(self, moment: int = 0) -> None:
        self.moment = moment
        self.at: str | None = None
        self.result: Any = None
        self.moments: list[int] = []
        """The bytecodes after which the interpreter checks for signals."""
        self._bytecodes = 0
        self._names: dict[CodeType, list[bool]] = {}

    def __call__(self, call: Callable[[], Any]) -> bool:
        """Whether the call was interrupted. If it was not, `result` is its result; errors are raised."""
        before = signal.signal(signal.SIGINT, self._handle)
        # Keep a reference: the interpreter borrows the trace function while it makes a frame object. That can run the
        # garbage collector, hence a finalizer that is traced, and `settrace(None)` in it would free the function.
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
                sys.settrace(None)  # otherwise the next call of this function would be interrupted
                # The signal is sent after this function has returned: otherwise the handler would run in here.
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
            return  # the call has ended
        callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
        inner: FrameType | None = frame
        while inner is not None:
            if inner.f_code.co_name in ("__del__", "_remove") or inner.f_code in callbacks:
                return  # a finalizer, or a callback of a `WeakSet` or of the collector: it would be ignored there
            inner = inner.f_back
        self.at = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        raise Interrupted


def at_every_moment(trial: Callable[[Interrupt], None], most: int) -> int:
    """Make a trial without an interrupt, then one for each moment of its call; the number of interrupted trials.

    If there are more than `most` moments, `most` of them are tried, evenly spaced.
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
    """Try a case at every moment, each time in a new directory; the number of moments."""
    numbers = itertools.count()

    def trial(interrupt: Interrupt) -> None:
        place = directory / str(next(numbers))
        place.mkdir()
        try:
            case(place, interrupt)
        finally:
            shutil.rmtree(place)

    return at_every_moment(trial, most)
