"""Reminders: what goes wrong is told when it begins and once a minute while it lasts, not at every attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

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
