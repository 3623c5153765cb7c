"""Standing: what keeps something from being done, logged when that begins or becomes something else, not each time."""

from __future__ import annotations

import logging


class Standing:
    """One thing that may not work for a while. Every attempt says how it went; only news of it are logged."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._told = ""

    def stands(self, reason: object) -> None:
        """It did not work."""
        if str(reason) != self._told:
            self._told = str(reason)
            self._logger.warning("%s: %s", self._what, reason)

    def is_over(self) -> None:
        """It worked: should it stop to, that is news."""
        self._told = ""
