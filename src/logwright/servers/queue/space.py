"""Space: how much of the disk is free, and what is kept of it for taking items out.

When little is left nothing is put any more: what is left is for taking items out, which adds to the journal as well
before it makes room, and so does deleting a queue. But others may use the disk too, and leave not a page of it. So a
file holds some space, a reserve, and is removed when a write has found none. It is written again when there is plenty.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...core.io import quarantine as keep
from ...core.io.disk import Disk, write_zeros
from ...errors import LogwrightError

logger = logging.getLogger("logwright.servers.queue")
_SHARE: Final = 16
"""Of what is free, no more than one part of so many is kept."""
_MOST_RESERVE_BYTES: Final = 1 << 20
"""Enough to take a million items out."""


class Space:
    """The disk of a server's directory; `changed` is called when `is_low` has. Nothing here raises."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        most_kept_bytes: int,
        changed: Callable[[], None],
        in_thread: Callable[[Callable[[], None]], None],
    ) -> None:
        self.is_low = False
        """Whether nothing is to be put."""
        self.kept_bytes = 0
        self._disk, self._directory = disk, directory
        self._most_kept_bytes = most_kept_bytes
        self._changed, self._in_thread = changed, in_thread
        self._reserve = directory / keep.DIRECTORY / ".server.reserve"
        self._has_reserve = False

    def look(self) -> None:
        """See what is free now."""
        try:
            free = self._disk.free_bytes(self._directory)
        except LogwrightError:
            return  # the next write will tell
        self.kept_bytes = max(self.kept_bytes, min(self._most_kept_bytes, free // _SHARE))
        is_low = free < self.kept_bytes
        if is_low != self.is_low:
            what = "nothing is put" if is_low else "all is well"
            logger.warning("%s: %d bytes are free: %s", self._directory, free, what)
            self.is_low = is_low
            self._changed()
        if not self._has_reserve and free > 2 * self.kept_bytes:
            self._has_reserve = True
            self._in_thread(self._take_reserve)

    def _take_reserve(self) -> None:
        size = min(self.kept_bytes // 2, _MOST_RESERVE_BYTES)
        try:
            self._disk.remove(self._reserve)  # a server that was killed may have left one
            file = self._disk.open(self._reserve, "create")
            try:
                write_zeros(file, 0, size)
                file.sync()  # else nobody knows that there was space for it
            finally:
                file.close()
        except LogwrightError:
            self.give_up_reserve()

    def give_up_reserve(self) -> None:
        """There is no space, or the server stops: let everybody have what was kept."""
        self._has_reserve = False
        with contextlib.suppress(LogwrightError):
            self._disk.remove(self._reserve)
