"""Flag and Background: an event and a thread that stay usable after an interrupt.

A signal handler may raise an exception between any two bytecodes. `threading.Event` and `threading.Thread.start` take a
lock in Python code: an exception at the wrong place leaves it locked, and later calls wait forever. These two classes
take locks only by single calls of compiled code.
"""

from __future__ import annotations

import _thread
import contextlib
import time
from collections.abc import Callable
from typing import Final

_LONGEST_WAIT_SECONDS: Final = 1.0
"""After this time a waiting thread checks the flag again, in case an interrupt suppressed the wake-up."""


class Flag:
    """A flag that threads can wait for, as `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._gate = _thread.allocate_lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake the threads that wait for it."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # the gate is open already
            self._gate.release()

    def clear(self) -> None:
        """Reset the flag."""
        self._is_set = False
        self._gate.acquire(False)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the flag is set, or for this long; whether it is set."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._is_set:
            left = _LONGEST_WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                break
            if self._gate.acquire(timeout=min(left, _LONGEST_WAIT_SECONDS)) and self._is_set:
                with contextlib.suppress(RuntimeError):  # set again meanwhile
                    self._gate.release()  # for the next thread that waits
        return self._is_set


class Background:
    """A thread that runs a function. It does not keep the process alive."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._ended = Flag()
        self._number = _thread.start_new_thread(self._run, (function,))

    def _run(self, function: Callable[[], object]) -> None:
        try:
            function()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        """Whether the function has not ended yet."""
        return not self._ended.is_set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the function has ended, or for this long; in the thread itself this returns at once."""
        if _thread.get_ident() != self._number:
            self._ended.wait(seconds)
