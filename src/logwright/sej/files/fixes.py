"""Fixes: all changes of a single field that would make a message valid, and which of them are plausible.

The length of a message is given three times: by the sizes in it, by its trailing size, and by the start of the next
message. Its offset is that of the preceding message plus one. So a single wrong field contradicts the others:

    size            the key size and the value size give the start of the next message
    value_size      the trailing size gives it
    key_size        the trailing size gives it, and with another key size the sizes agree
    offset          all sizes agree

`find_fixes` returns all of these changes. The salvage uses one only if a checksum proves it, or if it is the only one
that explains every byte up to the end of the file and `is_plausible`. A wrong key size can usually be explained by a
wrong value size too, and is then not restored.

Only a checksum detects a changed timestamp, type, key or value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...core.io.disk import File
from ..bytes import codec
from ..bytes.layout import HEAD, MAX_KEY_BYTES, MAX_OFFSET, OFFSET, OVERHEAD, TRAILER, VALUE_SIZE
from .segment import Segment, message_span

_KEY_SIZE_AT: Final = HEAD.size - 1
_SEARCH_BYTES: Final = 1 << 20
_SEARCH_FAR_BYTES: Final = 16 << 20
"""How far the end of a message is searched for whose own sizes do not say where it is."""

_RUN_BYTES: Final = 4
"""A run of this many equal bytes that covers a wrong byte and extends beyond its field overwrote more than it."""


@dataclass(frozen=True, slots=True)
class Fix:
    """New bytes for a field of the message at `message`, or for a byte that a checksum restores."""

    message: int
    position: int
    old: bytes
    new: bytes
    field: str
    reason: str


def find_fixes(file: File, position: int, expected: int, following: Segment | None) -> Iterator[Fix]:
    """Every change of one field that makes the bytes at a position a whole message with this offset."""
    head = file.read_at(position, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    if len(head) < HEAD.size or expected >= MAX_OFFSET:  # no message follows the highest offset, which settles nothing
        return
    size_of_file = file.size()
    offset, _, _, key_size = HEAD.unpack_from(head)
    is_whole = message_span(file, position, size_of_file) is not None
    if is_whole and offset != expected:
        reason = f"the offset is {offset} where {expected} was expected"
        yield Fix(position, position, head[: OFFSET.size], OFFSET.pack(expected), "offset", reason)
    if is_whole or offset != expected:
        return
    claimed = codec.claimed_size(head, 0, len(head))
    if claimed is not None and position + claimed <= size_of_file:
        at = position + claimed - TRAILER.size
        old = file.read_at(at, TRAILER.size)
        reason = f"the size after the message is {TRAILER.unpack(old)[0]}, the message has {claimed} bytes"
        yield Fix(position, at, old, TRAILER.pack(claimed), "size", reason)
    for end in _ends(file, position, expected, following):
        size = end - position
        for fitting in _fitting_key_sizes(head, size):
            reason = f"the key size is {key_size}, and the message has {size} bytes only with {fitting}"
            yield Fix(position, position + _KEY_SIZE_AT, head[17:18], bytes([fitting]), "key size", reason)
        if 0 <= key_size <= size - OVERHEAD:
            at = position + HEAD.size + key_size
            old = file.read_at(at, VALUE_SIZE.size)
            new = VALUE_SIZE.pack(size - OVERHEAD - key_size)
            reason = f"the value size is {VALUE_SIZE.unpack(old)[0]}, and the message has {size} bytes"
            yield Fix(position, at, old, new, "value size", reason)


def _ends(file: File, position: int, expected: int, following: Segment | None) -> Iterator[int]:
    """Where the trailing size says that a message ends, and the next one begins, here or in the next file."""
    size_of_file = file.size()
    wanted = OFFSET.pack(expected + 1)
    start = position + OVERHEAD - TRAILER.size
    while start < min(size_of_file, position + _SEARCH_FAR_BYTES):
        window = file.read_at(start, _SEARCH_BYTES)
        at = window.find(wanted, TRAILER.size)
        while at >= 0:
            if TRAILER.unpack_from(window, at - TRAILER.size)[0] == start + at - position:
                yield start + at
            at = window.find(wanted, at + 1)
        start += _SEARCH_BYTES - TRAILER.size - OFFSET.size + 1
    rest = size_of_file - position
    if following is not None and following.first_offset == expected + 1 and rest >= OVERHEAD:
        (trailing_size,) = TRAILER.unpack(file.read_at(size_of_file - TRAILER.size, TRAILER.size))
        if trailing_size == rest:
            yield size_of_file


def _fitting_key_sizes(head: bytes, size: int) -> list[int]:
    """The key sizes with which the value size after the key makes a message have this size."""
    most = min(MAX_KEY_BYTES, size - OVERHEAD, len(head) - HEAD.size - VALUE_SIZE.size)
    return [key for key in range(most + 1) if VALUE_SIZE.unpack_from(head, HEAD.size + key)[0] == size - OVERHEAD - key]


def is_plausible(file: File, fix: Fix) -> bool:
    """Whether one byte is wrong, and no run of equal bytes, such as a sector of zeros, extends beyond its field.

    An overwrite of several bytes rarely ends with the field: if the field were restored, the other wrong bytes would
    remain unnoticed.
    """
    wrong = [number for number in range(len(fix.new)) if fix.old[number] != fix.new[number]]
    if len(wrong) != 1:
        return False
    before = b"" if fix.field == "offset" else file.read_at(fix.position - _RUN_BYTES, _RUN_BYTES)
    after = b"" if fix.field == "size" else file.read_at(fix.position + len(fix.old), _RUN_BYTES)
    around = before + fix.old + after
    at = len(before) + wrong[0]
    byte = around[at : at + 1]
    first, last = len(around[:at].rstrip(byte)), len(around) - len(around[at:].lstrip(byte))
    return last - first < _RUN_BYTES or (first >= len(before) and last <= len(before) + len(fix.old))
