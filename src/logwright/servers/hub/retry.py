"""Retry what may succeed later, with growing pauses, until there is no progress for too long.

Other errors are raised at once. The first failure is logged, then one a minute, and the end of the trouble.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .client import HubClient
from .errors import Unreachable

PATIENCE_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 5.0
Result = TypeVar("Result")
AGAIN_SECONDS: Final = 60.0
_MOST_KEYS: Final = 1000


class Reminders:
    """What was told, and when. A `key` is what is wrong; the words may say more, such as where it was met."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def tell(self, key: str, words: str, level: int = logging.WARNING) -> None:
        """Log it, unless that was done within the last minute."""
        now = self._clock()
        if now - self._told_at.get(key, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._told_at.pop(key, None)
        self._told_at[key] = now
        while len(self._told_at) > _MOST_KEYS:  # the oldest one is told once too often then
            self._told_at.pop(next(iter(self._told_at)))
        self._logger.log(level, "%s", words)

    def over(self, key: str, words: str) -> None:
        """It has passed: log that, if the trouble was told of."""
        if self._told_at.pop(key, None) is not None:
            self._logger.warning("%s", words)


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
