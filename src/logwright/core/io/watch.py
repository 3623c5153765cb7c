"""Waiting for files to change: by the kernel's notification on Linux, by polling elsewhere.

A `Watch` only wakes its owner, which then looks for changes. A wake-up may be spurious, and it may be late (network
file systems send none), so every wait also ends after `POLL_SECONDS`.

inotify is used directly: a wait on its descriptor costs nothing and ends at once when something changes, for threads
and for asyncio. Libraries collect events in steps of tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.1
"""The longest that a change can go unnoticed when no notification comes."""

_IN_MODIFY = 0x2
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_EVENTS = _IN_MODIFY | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_EVENT_BUFFER_BYTES = 64 * 1024
_EVENT = struct.Struct("iIII")
"""The number of a directory, the kind of event, a cookie, and the number of bytes of the name that follows."""


class Watch(Protocol):
    """Wakes up when something below a directory may have changed."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a change, at most this long; True when there was a notification."""

    def descriptor(self) -> int | None:
        """A descriptor that becomes readable on a change, for event loops; None where there is none."""

    def drain(self) -> set[Path] | None:
        """Discard the notifications so far; the directories that they name, None if not known."""

    def add(self, path: Path) -> None:
        """Watch one more directory."""

    def close(self) -> None: ...


class PollingWatch:
    """Wakes up periodically, with growing intervals."""

    def __init__(self) -> None:
        self._pause_seconds = 0.001

    def wait(self, timeout_seconds: float) -> bool:
        time.sleep(max(0.0, min(timeout_seconds, self._pause_seconds)))
        self._pause_seconds = min(POLL_SECONDS, self._pause_seconds * 2)
        return False

    def descriptor(self) -> int | None:
        return None

    def drain(self) -> None:
        self._pause_seconds = 0.001

    def add(self, path: Path) -> None:
        """Polling needs no registration."""

    def close(self) -> None:
        """Polling holds nothing."""


class InotifyWatch:
    """Linux: the kernel's own notification."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, Path] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def add(self, path: Path) -> None:
        number = self._library.inotify_add_watch(self._descriptor, os.fsencode(path), _EVENTS)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))
        self._paths[number] = path

    def wait(self, timeout_seconds: float) -> bool:
        events = self._poll.poll(max(0.0, min(timeout_seconds, POLL_SECONDS)) * 1000)
        if events:
            self.drain()
        return bool(events)

    def descriptor(self) -> int | None:
        return self._descriptor if self._descriptor >= 0 else None

    def drain(self) -> set[Path] | None:
        found: set[Path | None] = set()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, _EVENT_BUFFER_BYTES):
                position = 0
                while position < len(data):
                    number, _, _, name_bytes = _EVENT.unpack_from(data, position)
                    position += _EVENT.size + name_bytes
                    found.add(self._paths.get(number))  # None: the queue of the system overflowed
        return None if None in found else {path for path in found if path is not None}

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def watch_directory(path: Path) -> Watch:
    """The best watch that this system has for a directory. Falls back to polling; never fails."""
    return watch_directories([path])


def watch_directories(paths: Sequence[Path]) -> Watch:
    """One watch over several directories."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            watch = InotifyWatch(ctypes.CDLL(None, use_errno=True))
            try:
                for path in paths:
                    watch.add(path)
            except OSError:
                watch.close()
                raise
            return watch
    return PollingWatch()
