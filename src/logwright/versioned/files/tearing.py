"""Tearing: whether an entry is one that a power cut has torn, or one whose bytes have changed on the disk.

The space after the position has only zeros, and of an entry that is stored there each sector reaches the disk, or does
not. So of an entry that was torn a sector is missing: it has zeros from its beginning, or that of the entry, up to its
end, or up to the beginning of the next entry. What precedes that is the beginning of an entry. Other bad bytes were on
the disk once, and are damage, whatever comes after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..bytes import codec, kernel
from ..bytes.layout import ENTRY_START
from .buffer import SECTOR_BYTES, mark_at

_LEAST_WINDOW_BYTES: Final = 4 << 10


def lacks_sector(read: Callable[[int, int], bytes | bytearray], start: int, stop: int, size: int) -> bool:
    """Whether a sector is missing of the entry that begins at `start`, in a file of `size` bytes that has a mark.

    `read` gives the bytes between two places of the file; entries end at `stop`.
    """
    window_bytes = _LEAST_WINDOW_BYTES
    while True:
        end = min(start + window_bytes, stop)
        data = read(start, min(_sector_end(end - 1), mark_at(size)))
        missing = _first_missing(data, start)
        _, count, ending, _, _ = kernel.walk(data, 0, min(missing, end - start), 1)
        is_beginning = not count and ending != codec.MALFORMED
        if missing < len(data) or not is_beginning or end == stop:
            return missing < len(data) and is_beginning
        window_bytes *= 4


def _sector_end(position: int) -> int:
    return (position // SECTOR_BYTES + 1) * SECTOR_BYTES


def _first_missing(data: bytes | bytearray, base: int) -> int:
    """Where the first sector is missing, of bytes from `base` of a file on; their end where none is."""
    at = 0
    while at < len(data):
        end = min(_sector_end(base + at) - base, len(data))
        rest = data[at:end].lstrip(b"\0")
        if len(rest) < end - at and ENTRY_START.startswith(rest[: len(ENTRY_START)]):
            return at
        at = end
    return at
