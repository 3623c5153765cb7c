"""Waiters: the callers that wait for an item of a queue.

A caller that waits registers a function. It is called once, when an item arrives, in the order of registration. The
function must not block, and calling it twice must do no harm. A caller that was woken and takes nothing wakes the next
one (`Engine.wake_next`), so no item stays in the queue while a caller waits for it. When the queue is closed or fails,
all callers are woken: they try once more and get the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Waiters:
    """The functions of the waiting callers. The queue's mutex is held, except in `alarm`."""

    def __init__(self) -> None:
        self._wakes: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._wakes)

    def add(self, wake: Callable[[], None]) -> None:
        """Call this function when an item arrives."""
        self._wakes.append(wake)

    def remove(self, wake: Callable[[], None]) -> bool:
        """Forget a function; False if it has been called."""
        try:
            self._wakes.remove(wake)
        except ValueError:
            return False
        return True

    def wake_first(self) -> None:
        """Wake the caller that has waited longest."""
        self._wakes[0]()  # before it is removed: waking a caller twice is harmless, never waking it is not
        self._wakes.popleft()

    def alarm(self) -> None:
        """Wake all callers and keep them in the list: the mutex may be held by another thread."""
        for wake in list(self._wakes):
            wake()
