"""Waiting: those who wait for an item, and how they find out that there is one, or that none will come.

Whoever waits leaves a function, which is called once: for the item that comes, in the order in which they came. It must
not wait for anything, and a second call must do no harm. Whoever was woken and takes nothing wakes the next one
(`pass_on`), so no item lies there while somebody waits. When the queue is closed, or has failed, all are woken: they
try once more, and get the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .compaction import JournalCare


class Waiting(JournalCare):
    """A queue's memory and journal, and those who wait for its items. `waiting` is how many they are."""

    waiters: deque[Callable[[], None]]

    def wait_for(self, wake: Callable[[], None]) -> None:
        """Have a function called when an item comes: once, with the mutex held."""
        with self.mutex:
            self._check()
            self.waiters.append(wake)
            self.waiting = len(self.waiters)

    def stop_waiting(self, wake: Callable[[], None]) -> bool:
        """Take a function back; False when it was called already."""
        with self.mutex:
            try:
                self.waiters.remove(wake)
            except ValueError:
                return False
            finally:
                self.waiting = len(self.waiters)
            return True

    def pass_on(self) -> None:
        """Somebody was woken and takes nothing: wake another one."""
        with self.mutex:
            if self.waiting and self.items:
                self._wake()

    def _wake(self) -> None:
        self.waiters[0]()  # called first: to wake one twice is harmless, to wake it never is not
        self.waiters.popleft()
        self.waiting = len(self.waiters)

    def _wake_all(self) -> None:
        super()._wake_all()
        while self.waiting:
            self._wake()

    # --- when the queue fails ---------------------------------------------------------------------------------------

    def _or_poison(self, action: Callable[[], None], *, resumes: bool = False) -> None:
        try:
            super()._or_poison(action, resumes=resumes)
        except BaseException:
            if self._failure is not None:
                self._alarm()
            raise

    def _write_failed(self, error: BaseException) -> None:
        super()._write_failed(error)
        self._alarm()

    def _interrupted(self, error: BaseException) -> None:
        super()._interrupted(error)
        self._alarm()

    def _alarm(self) -> None:
        """Let all who wait find out. Whether the mutex is held nobody knows, so they stay where they are."""
        for wake in list(self.waiters):
            wake()
