"""Reading one transaction of a journal's file, operation by operation, so that little of it is in memory.

`measure` in `files.py` finds the end of a transaction by its heads alone. This module reads its bytes: for a redo, and
for the checksum of a seal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...core.bytes.crc32c import crc32c
from ...core.bytes.outcome import Malformed
from ...core.io.disk import File
from ..bytes import kernel
from ..bytes.codec import CLEAN, ENDS, operation_size
from ..bytes.layout import COMPLETE, FLAGS_AT, LINK, OPERATION_HEAD_BYTES, TRANSACTION_HEAD_BYTES
from .files import Readable, is_whole
from .seal import MARK, SEAL_HEAD, begin_seal, is_sealed

_LEAST_PIECE_BYTES: Final = 4096
_PIECE_BYTES: Final = 1 << 20
"""The size of one read: small at first, because many transactions are small, and larger in a large one."""
_NOTHING: Final = memoryview(b"")
MOST_SEAL_BYTES: Final = 1 << 28
"""Data of a completion that is larger than this is not our seal."""


class Part(NamedTuple):
    """An operation: its type, its position, and its bytes without the head. The bytes of an end are not read."""

    kind: int
    position: int
    size: int
    data: memoryview


def read_operations(file: Readable, position: int, size: int) -> Iterator[Part]:
    """The operations of the transaction at a position, its end included, in a file of `size` bytes.

    It stops at the end of the file. `Malformed` at bytes that are not an operation.
    """
    at = base = position + TRANSACTION_HEAD_BYTES
    window, piece_bytes = _NOTHING, _LEAST_PIECE_BYTES
    while True:
        try:
            length = operation_size(window, at - base, len(window))
        except Malformed as malformed:
            raise Malformed(base + malformed.position, malformed.reason) from None
        if length is not None and at + length > size:
            return
        start, have = at - base + OPERATION_HEAD_BYTES, base + len(window)
        if length is not None and window[at - base] in ENDS:
            yield Part(window[at - base], at, length, _NOTHING)
            return
        if length is None or at + length > have:
            wanted = min(max(piece_bytes, length or 0), size - at)
            if have - at >= wanted:
                return
            base, window = at, memoryview(file.read_at(at, wanted))
            if len(window) < wanted:
                return  # the file has become shorter
            piece_bytes = min(2 * piece_bytes, _PIECE_BYTES)
            continue
        yield Part(window[at - base], at, length, window[start : at - base + length])
        at += length


class End(NamedTuple):
    """The operation that ends a transaction: its type, its start and end, and its data if that is a seal."""

    kind: int
    position: int
    end: int
    seal: bytes


def find_end(file: Readable, position: int, size: int) -> End | None:
    """The end of the transaction at a position; None if it has none, or does not match its seal."""
    end = find_unproven_end(file, position, size)
    return None if end is None or (end.seal and not holds_seal(file, position, end)) else end


def find_unproven_end(file: Readable, position: int, size: int) -> End | None:
    """The end of the transaction at a position, even if its seal is invalid; None if it has none."""
    part = _find_end_of_small(file, position, size) or _find_end_of_any(file, position, size)
    if part is None:
        return None
    data = b""
    data_bytes = part.size - OPERATION_HEAD_BYTES
    if SEAL_HEAD.size <= data_bytes <= MOST_SEAL_BYTES:
        data_at = part.position + OPERATION_HEAD_BYTES
        if file.read_at(data_at, len(MARK)) == MARK:
            data = file.read_at(data_at, data_bytes)
    return End(part.kind, part.position, part.position + part.size, data if is_sealed(data) else b"")


def _find_end_of_small(file: Readable, position: int, size: int) -> Part | None:
    """The operation that ends a transaction, if one small read shows it: there may be very many small transactions."""
    at = position + TRANSACTION_HEAD_BYTES
    window = file.read_at(at, _LEAST_PIECE_BYTES)
    stop, ending, kind, start = kernel.skim(window, 0, len(window), -1)
    if ending != CLEAN or at + stop > size:
        return None
    return Part(kind, at + start, stop - start, _NOTHING)


def _find_end_of_any(file: Readable, position: int, size: int) -> Part | None:
    found: deque[Part] = deque(maxlen=1)
    try:
        found.extend(read_operations(file, position, size))
    except Malformed:
        return None
    return found[0] if found and found[0].kind in ENDS else None


def holds_seal(file: Readable, position: int, end: End, previous: int | None = None) -> bool:
    """Whether the seal at the end of a transaction matches the bytes before it; see `seal_of`."""
    return end.seal == seal_of(file, position, end.position, end.seal[SEAL_HEAD.size :], previous)


def seal_of(file: Readable, position: int, end: int, heads: bytes, previous: int | None = None) -> bytes:
    """The seal with these heads of the transaction between two positions; empty if the file is shorter.

    `previous` replaces the value in the transaction.
    """
    value = begin_seal(file.read_at(position, TRANSACTION_HEAD_BYTES), previous)
    at = position + TRANSACTION_HEAD_BYTES
    while at < end:
        piece = file.read_at(at, min(_PIECE_BYTES, end - at))
        if not piece:
            return b""
        value = crc32c(piece, value)
        at += len(piece)
    return SEAL_HEAD.pack(MARK, crc32c(heads, value)) + heads


def has_end(file: File, position: int, size: int) -> bool:
    """Whether the transaction at a position is complete, and matches its seal if it has one.

    The seal of one that is flagged as stored is not checked: damage there is not a torn end.
    """
    flags = file.read_at(position, TRANSACTION_HEAD_BYTES)[FLAGS_AT:]
    if flags and flags[0] & COMPLETE:
        return is_whole(file, position, size, follow_next=False)
    return find_end(file, position, size) is not None


def is_torn_link(found: int, wanted: int) -> bool:
    """Whether a link may be the result of a power cut while it was first written: some of its bytes, and zeros."""
    pairs = zip(LINK.pack(found), LINK.pack(wanted), strict=True)
    return all(byte in (0, whole) for byte, whole in pairs)


def is_begun_link(found: int, wanted: int) -> bool:
    """Whether a link may be left by a process that died while it wrote it over zeros, or over an older one."""
    return found == 0 or LINK.pack(found)[0] == LINK.pack(wanted)[0]


def is_zeros(file: File, start: int, end: int) -> bool:
    """Whether a range of a file is all zeros."""
    pieces = (file.read_at(at, min(_PIECE_BYTES, end - at)) for at in range(start, end, _PIECE_BYTES))
    return not any(piece.strip(b"\0") for piece in pieces)


def is_room(file: File, last: int, start: int, size: int) -> bool:
    """Whether the bytes after the last transaction are zeros that were written in advance.

    Only a writer that seals does that. They need not be reported or kept. After the transaction of any other writer,
    zeros are part of one that was not finished.
    """
    found = find_end(file, last, size) if last else None
    return found is not None and bool(found.seal) and is_zeros(file, start, size)
