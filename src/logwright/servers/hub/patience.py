"""Patience: trying again what may pass, with longer and longer pauses, until nothing has moved for too long.

What cannot pass is raised at once. What we wait for is said at the first failure, and that it goes on at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .client import HubClient
from .errors import Unreachable
from .reminders import Reminders

PATIENCE_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 5.0
Result = TypeVar("Result")


class Patience:
    """How long failures of one piece of work are borne: so many seconds without any progress, or for ever (None)."""

    def __init__(self, hub: HubClient, reminders: Reminders, seconds: float | None) -> None:
        self._hub = hub
        self._reminders = reminders
        self._seconds = seconds
        self._place = -1
        self._failing_since = 0.0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._trouble: str | None = None

    async def bear(self, error: Unreachable, place: int) -> None:
        """Pause after a failure, or raise it. `place` is how far the work had come."""
        if place != self._place:
            self._place, self._failing_since, self._pause_seconds = place, time.monotonic(), _FIRST_PAUSE_SECONDS
        told = await self._hub.explained(error)
        if told is not None and not isinstance(told, Unreachable):
            raise told
        if self._seconds is not None and time.monotonic() - self._failing_since >= self._seconds:
            raise told or error
        if told is None:
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)
            return
        waiting = "waiting until that has passed, and trying again every few seconds"
        if self._seconds is not None:
            waiting = f"trying again for up to {self._seconds:g} seconds"
        self._trouble = str(told)
        self._reminders.tell(self._trouble, f"{told}; {waiting}")
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def moved(self) -> None:
        """The work has come further: if somebody was told that it had not, tell this as well."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            self._reminders.over(trouble, f"{self._hub.access.address}: the hub answers, and it goes on")

    async def through(self, work: Callable[[], Awaitable[Result]], place: Callable[[], int]) -> Result:
        """Do something that goes on where it was, again and again until it is done."""
        while True:
            try:
                result = await work()
            except Unreachable as error:
                await self.bear(error, place())
            else:
                self.moved()
                return result
