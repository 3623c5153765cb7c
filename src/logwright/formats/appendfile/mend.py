"""Mending one header: which bit of it has flipped, when that explains why records end before their file does.

Between two checkpoints nothing shows where records begin again. So where a size has lost a bit, and no checkpoint
follows, all records behind it look like a torn tail, which a writer would cut off. They are told apart like this: if
one bit of the header where reading stopped, or of the one before it, is flipped back, and then at least two whole
records fill the file to its very end, then it was that bit. What a crash has cut short does not come out so, but by an
accident of at least eight bytes. Nor is a record made longer over a run of equal bytes.

A changed byte of data is against no rule, and nobody can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...core.disk import File
from ...core.outcome import Malformed
from . import codec, kernel
from .layout import CHECKPOINT, DATA, HEADER, HEADER_BYTES, MAX_FILE_BYTES

_LEAST_RECORDS: Final = 2
"""So many must follow: one alone could be an accident."""

_LEAST_BYTES: Final = HEADER_BYTES + _LEAST_RECORDS * (HEADER_BYTES + 1)
_RUN_BYTES: Final = 4
"""So many equal bytes are no accident either."""


@dataclass(frozen=True, slots=True)
class Fix:
    """Another byte of a header, and where the record begins that it belongs to."""

    record: int
    position: int
    old: bytes
    new: bytes
    reason: str


def find_fixes(file: File, start: int, stopped: int, size: int) -> list[Fix]:
    """The flipped bits each of which explains why reading stopped at a position of a file of so many bytes.

    `start` is where a record begins, and whole records lead from there to where it stopped.
    """
    if size - start > MAX_FILE_BYTES:
        return []
    data = file.read_at(start, size - start)
    end, count, _, _ = kernel.walk(data, 0, stopped - start)
    if len(data) < size - start or end != stopped - start:
        return []
    before = [kernel.spans(data, 0, end, count)[-2]] if count else []
    return [fix for at in [end, *before] for fix in _fixes_at(data, at, start)]


def _fixes_at(data: bytes, at: int, start: int) -> list[Fix]:
    """Every bit of a header after whose flip records lead to the end of the data."""
    room = len(data) - at
    if room < _LEAST_BYTES:
        return []
    (head,) = HEADER.unpack_from(data, at)
    found = []
    for bit in range(8 * HEADER_BYTES):
        kind, size = (head ^ 1 << bit) & 0xFF, (head ^ 1 << bit) >> 8
        if kind > CHECKPOINT or size > room or (start + at == 0 and kind == DATA):
            continue  # most of them, without looking further
        changed = HEADER.pack(head ^ 1 << bit)
        if _leads_to_end(data, at, changed):
            byte = bit // 8
            place, old = at + byte, data[at + byte : at + byte + 1]
            reason = f"with bit {bit % 8} flipped back, the record at {start + at} is whole and others fill the file"
            found.append(Fix(start + at, start + place, old, changed[byte : byte + 1], reason))
    return found


def _is_overwritten(data: bytes, at: int, end: int) -> bool:
    """Whether a record is made longer over a run of equal bytes: somebody has put those there."""
    before = kernel.walk(data, at, len(data), 0, 1)[0]
    taken = data[before:end] if at < before < end else b""
    return len(taken) >= _RUN_BYTES and taken.count(taken[:1]) == len(taken)


def _leads_to_end(data: bytes, at: int, head: bytes) -> bool:
    """Whether a record with this header, and enough others behind it, end where the data does."""
    try:
        size = codec.claimed_size(head + data[at + HEADER_BYTES : at + 32], 0, min(32, len(data) - at))
    except Malformed:
        return False
    if size is None or at + size > len(data) or _is_overwritten(data, at, at + size):
        return False
    _, count, ending, _ = kernel.walk(data, at + size, len(data), 0, -1, True)
    return bool(ending == codec.CLEAN and count >= _LEAST_RECORDS)
