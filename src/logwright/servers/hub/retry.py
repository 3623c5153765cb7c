"""Retry work that may succeed later, with growing pauses, until it makes no progress for too long.

Other errors are raised at once. The first failure is logged, then one per minute, and the recovery.
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


class RateLimitedLog:
    """Logs a problem when it begins, and once a minute while it lasts. `key` identifies it; messages may vary."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._logged_at: dict[str, float] = {}

    def log(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Log it, unless it was logged within the last minute."""
        now = self._clock()
        if now - self._logged_at.get(key, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._logged_at.pop(key, None)
        self._logged_at[key] = now
        while len(self._logged_at) > _MOST_KEYS:  # the oldest one may be logged again too early
            self._logged_at.pop(next(iter(self._logged_at)))
        self._logger.log(level, "%s", message)

    def log_end(self, key: str, message: str) -> None:
        """Log that the problem is over, if it was logged."""
        if self._logged_at.pop(key, None) is not None:
            self._logger.warning("%s", message)


class Retry:
    """Retries one piece of work until it makes no progress for `seconds`; None is for ever."""

    def __init__(self, hub: HubClient, limited_log: RateLimitedLog, seconds: float | None) -> None:
        self._hub = hub
        self._limited_log = limited_log
        self._seconds = seconds
        self._place = -1
        self._failing_since = 0.0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._logged_cause: str | None = None

    async def pause(self, error: Unreachable, place: int) -> None:
        """Pause after a failure, or raise it. `place` is the progress of the work so far."""
        if place != self._place:
            self._place, self._failing_since, self._pause_seconds = place, time.monotonic(), _FIRST_PAUSE_SECONDS
        cause = await self._hub.explain(error)
        if cause is not None and not isinstance(cause, Unreachable):
            raise cause
        if self._seconds is not None and time.monotonic() - self._failing_since >= self._seconds:
            raise cause or error
        if cause is None:
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)
            return
        waiting = "retrying every few seconds"
        if self._seconds is not None:
            waiting = f"retrying for up to {self._seconds:g} seconds"
        self._logged_cause = str(cause)
        self._limited_log.log(self._logged_cause, f"{cause}; {waiting}")
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def progressed(self) -> None:
        """The work made progress: log that the hub answers again, if a problem was logged."""
        cause, self._logged_cause = self._logged_cause, None
        if cause is not None:
            self._limited_log.log_end(cause, f"{self._hub.access.address}: the hub answers again")

    async def run(self, work: Callable[[], Awaitable[Result]], place: Callable[[], int]) -> Result:
        """Repeat work that continues where it failed, until it is done."""
        while True:
            try:
                result = await work()
            except Unreachable as error:
                await self.pause(error, place())
            else:
                self.progressed()
                return result
