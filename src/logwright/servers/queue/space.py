"""The free space of the disk, and the reserve for removals.

When little is left, no items are added: removing items, and deleting a queue, write to the disk before they free any
space. But other programs may fill the disk completely. So a file reserves some space; it is removed when a write finds
no space, and created again when there is plenty.
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
"""At most this fraction of the free space is kept for removals: one sixteenth."""
_MOST_RESERVE_BYTES: Final = 1 << 20
"""Enough to remove a million items."""


class Space:
    """The disk of a server's directory; `changed` is called when `is_low` changes. Nothing here raises."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        most_kept_bytes: int,
        changed: Callable[[], None],
        in_thread: Callable[[Callable[[], None]], None],
    ) -> None:
        self.is_low = False
        """Whether no items may be added."""
        self.kept_bytes = 0
        self._disk, self._directory = disk, directory
        self._most_kept_bytes = most_kept_bytes
        self._changed, self._in_thread = changed, in_thread
        self._reserve = directory / keep.DIRECTORY / ".server.reserve"
        self._has_reserve = False

    def check(self) -> None:
        """Check the free space."""
        try:
            free = self._disk.free_bytes(self._directory)
        except LogwrightError:
            return  # the next write will fail if the disk does
        self.kept_bytes = max(self.kept_bytes, min(self._most_kept_bytes, free // _SHARE))
        is_low = free < self.kept_bytes
        if is_low != self.is_low:
            what = "no items are accepted" if is_low else "items are accepted again"
            logger.warning("%s: %d bytes are free: %s", self._directory, free, what)
            self.is_low = is_low
            self._changed()
        if not self._has_reserve and free > 2 * self.kept_bytes:
            self._has_reserve = True
            self._in_thread(self._create_reserve)

    def _create_reserve(self) -> None:
        size = min(self.kept_bytes // 2, _MOST_RESERVE_BYTES)
        try:
            self._disk.remove(self._reserve)  # left by a killed server
            file = self._disk.open(self._reserve, "create")
            try:
                write_zeros(file, 0, size)
                file.sync()  # otherwise the space may not be allocated
            finally:
                file.close()
        except LogwrightError:
            self.release_reserve()

    def release_reserve(self) -> None:
        """Remove the reserve: there is no space, or the server stops."""
        self._has_reserve = False
        with contextlib.suppress(LogwrightError):
            self._disk.remove(self._reserve)
