"""Latch: threads wait for it until it is set, once.

`threading.Event` is written in Python: a signal handler that raises inside its `set` can leave its lock held for ever,
and the next `set` waits. Here setting is one call of compiled code, and can be repeated.
"""

from __future__ import annotations

import threading


class Latch:
    """Not set at first; once it is set it stays so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_set = False

    def set(self) -> None:
        """Let all threads continue that wait. Only one thread sets it."""
        if not self._is_set:
            self._is_set = True
            self._lock.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait until it is set, at most so long; whether it is."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True
