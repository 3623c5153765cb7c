"""Mending one operation: which bit of its opcode or its size has flipped, when exactly one explains the damage.

Where reading stops, and an item that is whole shows where it goes on, one flipped bit can be the cause in two places:

    of the operation that cannot be read        with the bit flipped back it is whole, and operations lead from its end
                                                to that item
    of the one before it, which could be read   the same: it was taken to be too short or too long, or for another one

If exactly one bit does this, it is flipped back. Otherwise nothing is mended: a guess must not look like an operation.
Nor is an operation made longer over bytes that look like a damaged item themselves, or over a run of equal bytes. A
tail that nothing follows is never mended: a size with one bit less can make an item that a crash has cut short look
whole.

A changed id, time or byte of data is against no rule, and nobody can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...core.disk import File
from ...core.outcome import Malformed
from . import codec
from .cursor import Cursor, find_next
from .files import JournalFile
from .layout import ADD_XID, ADD_XID_HEAD, ADDX, ADDX_HEAD, DOCUMENTED, LONGEST_HEAD_BYTES, UNDECIDED

_RUN_BYTES: Final = 4
"""So many equal bytes are no accident."""
_MOST_COMPARED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Fix:
    """Another byte. `next_position` is where the operation ends then."""

    position: int
    old: bytes
    new: bytes
    next_position: int
    reason: str


def find_fix(file: File, source: JournalFile, before: int | None, position: int, dialect: int) -> Fix | None:
    """The flipped bit that explains why nothing can be read at a position; None when none does, or several do.

    `before` is where the operation before it begins.
    """
    size = file.size()
    dialect = DOCUMENTED if dialect == UNDECIDED else dialect
    goes_on_at = find_next(file, source, position, size, dialect)
    if goes_on_at is None:
        return None
    found = _fixes_at(file, source, position, goes_on_at, size, dialect)
    if before is not None and not _is_like_an_item(file, position):
        found += _fixes_at(file, source, before, goes_on_at, size, dialect)
    return found[0] if len(found) == 1 else None


def _fixes_at(file: File, source: JournalFile, start: int, goes_on_at: int, size: int, dialect: int) -> list[Fix]:
    """Every bit of the opcode and the size of an operation that leads on when it is flipped."""
    head = file.read_at(start, LONGEST_HEAD_BYTES)
    found = []
    for bit in range(8 * min(9, len(head))):
        changed = bytearray(head)
        changed[bit // 8] ^= 1 << bit % 8
        end = _end_of(changed, start, size, dialect)
        if end is None or end > goes_on_at or end == _end_of(head, start, size, dialect):
            continue
        if _leads_to(file, source, end, goes_on_at, dialect) and not _is_overwritten(file, start, end, head, dialect):
            at = bit // 8
            reason = f"with bit {bit % 8} flipped back the operation at {start} is whole and others follow it"
            found.append(Fix(start + at, head[at : at + 1], bytes(changed[at : at + 1]), end, reason))
    return found


def _end_of(head: bytes | bytearray, start: int, size: int, dialect: int) -> int | None:
    """Where the operation with this head ends; None when it is none that could be there."""
    try:
        claimed = codec.claimed_size(head, 0, len(head), dialect)
    except Malformed:
        return None
    if claimed is None or start + claimed > size or not _is_plausible(head, dialect):
        return None
    return start + claimed


def _is_plausible(head: bytes | bytearray, dialect: int) -> bool:
    """Whether an operation that adds an item has times that an item can have."""
    kind = codec.kind_of(head[0], dialect)
    if kind not in codec.TIMED:
        return True
    if len(head) < (ADDX_HEAD.size if kind == ADDX else ADD_XID_HEAD.size):
        return False
    operation = codec.without_data(head, 0, dialect)
    return codec.is_plausible(operation.added or 0, operation.expires or 0, anytime=True)


def _leads_to(file: File, source: JournalFile, start: int, end: int, dialect: int) -> bool:
    """Whether operations fill a range; or an item begins here, though something may be wrong with its size."""
    if start < end and _is_like_an_item(file, start, file.read_at(start, 1)[0]):
        return True
    cursor = Cursor(file, source, start, dialect=dialect, end=end)
    while cursor.read(load=False) is not None:
        pass
    return cursor.position == end


def _is_overwritten(file: File, start: int, end: int, head: bytes, dialect: int) -> bool:
    """Whether an operation is made longer over a run of equal bytes, such as a sector of zeros."""
    before = _end_of(head, start, file.size(), dialect)
    if before is None or not _RUN_BYTES <= end - before <= _MOST_COMPARED_BYTES:
        return False
    taken = file.read_at(before, end - before)
    return taken.count(taken[:1]) == len(taken)


def _is_like_an_item(file: File, position: int, opcode: int | None = None) -> bool:
    """Whether the times of an item are where they would be if one began here, of this opcode or of any."""
    data = file.read_at(position, ADD_XID_HEAD.size)
    places = {ADDX: (ADDX_HEAD.size - 16,), ADD_XID: (ADD_XID_HEAD.size - 16,)}
    for at in places.get(opcode, ()) if opcode is not None else (ADDX_HEAD.size - 16, ADD_XID_HEAD.size - 16):
        times = data[at : at + 16]
        if len(times) == 16:
            added, expires = (int.from_bytes(part, "little", signed=True) for part in (times[:8], times[8:]))
            if codec.is_plausible(added, expires):
                return True
    return False
