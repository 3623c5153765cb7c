"""Where operations continue after bad bytes, and whether the end of a file is a torn tail.

The format has no marks, and nearly any byte can be read as an operation: a 1 removes an item. So what follows bad bytes
counts only as far as it proves itself. Three things do, in this order:

    the damaged operation's own size    it has the times or the size of an item, and operations follow where that ends
    an item                             an ADDX, ADD_XID or CONTINUE that is whole, was added between 2000 and 2100, and
                                        expires then or never; the first one that another operation or the end of the
                                        file follows, or the first one of all if none is; where no item has such a time
                                        one from 1970 on, if everything from there to the end of the file can be read
    operations up to that item,         more than chance explains: the longer the bad range, the more
    or up to the end of the file

Of operations that only lead up to an item or to the end the first two are given up: the last bytes of a damaged item
look like a removal in one of a hundred cases. To deliver an item twice is better than to lose one to a made-up removal.

A torn tail is what a crash can leave at the end of the newest file, and nothing of the above follows it, nor does an
item that begins within the operation before it lead to the end of the file. One removal
at the very end is evidence after a single bad byte only: any noise ends with such a byte in 1 of 128 cases. A file that
cannot be read from its first byte on has no torn tail: a crash leaves that, such as a file of zeros, only where nothing
was ever synced, and it cannot be distinguished from a queue that was overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from math import log2
from typing import Final

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import File
from ..bytes import codec, kernel
from ..bytes.layout import (
    ADD,
    ADD_XID,
    ADD_XID_HEAD,
    ADDX,
    ADDX_HEAD,
    CONTINUE_BYTE,
    DATA_HEAD_BYTES,
    FIRST_PLAUSIBLE_MS,
    KESTREL2,
    LAST_PLAUSIBLE_MS,
    LEAST_SIZE,
    LONGEST_HEAD_BYTES,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SIZE,
    STATE_DUMP,
    STATE_DUMP_HEAD,
    UNDECIDED,
    XID,
)
from .cursor import Cursor
from .files import JournalFile

MOST_DOUBTED: Final = 2
"""How many operations without a time next to bad bytes are not believed."""
LOOK_BACK: Final = 8
"""How many operations before bad bytes are looked at: the head of an item whose opcode has changed reads like some."""
_SEARCH_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 4096
_AHEAD_BYTES: Final = 1 << 16
_MOST_TRIES: Final = 16
"""From how many places the rest of a file is tried when no item has a plausible time."""
_BYTE_BITS: Final = 7
"""How unlikely it is that a byte is a removal by chance, as a power of two."""
_XID_BITS: Final = 22
_ITEM_BITS: Final = 60
_LEAST_BITS: Final = _BYTE_BITS
"""After a single bad byte one removal is evidence: a tail of two bytes of noise looks like that in 1 of 128 cases."""
_ENOUGH_BITS: Final = 64
"""With this much evidence it is no accident, whatever the data of an item holds."""
_NAMED: Final = (ADD_XID, CONTINUE_BYTE)
_MOST_XID: Final = 1 << 24
"""Ids from here on are not believed next to bad bytes: what stands before an ADDX would look like one."""
_LAST_OF_XID: Final = b"\0"
_NO_SIZE: Final = bytes(SIZE.size)
_LAYOUTS: Final = ((1, ADDX_HEAD.size - 16), (5, ADD_XID_HEAD.size - 16))
"""Where in an operation that adds an item the size is, and where the times are."""


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """What is wrong where a cursor stopped short of the end of its file, and whether reading can continue after it.

    The cursor is moved to where it continues, or to the end. At the end of the file nothing is wrong.
    """
    if cursor.ending == codec.CLEAN:
        return None, False
    start, end = cursor.position, cursor.seen_size()
    last = cursor.last_starts(LOOK_BACK)
    following = find_next(cursor.file, cursor.source, start, end, cursor.dialect)
    cursor.position = end if following is None else following
    is_torn = following is None and cursor.source.is_newest and _can_be_torn(cursor, start)
    is_torn = is_torn and not _has_begun(cursor, last, start, end)
    kind = "torn_tail" if is_torn else "malformed"
    return Damage(cursor.source.name, start, cursor.position, cursor.reason, kind), cursor.position < end


def _can_be_torn(cursor: Cursor, start: int) -> bool:
    """Whether a crash can have left this: of a file that was synced there is at least its first operation."""
    return start > 0 or cursor.ending == codec.INCOMPLETE


def _has_begun(cursor: Cursor, last: list[int], start: int, end: int) -> bool:
    """Whether an item that begins within the last operations before bad bytes leads to the end of the file.

    One of these operations has lost some of its bytes, and has swallowed the first ones of the item instead. Or the
    opcode of the item has changed, and its head was read as other operations.
    """
    file, dialect = cursor.file, KESTREL2 if cursor.dialect == UNDECIDED else cursor.dialect
    if begun_at(file, cursor.source, last, start, dialect) is not None:
        return True
    low = max(0, min([start - XID.size, *(first + 1 for first in last)]))
    swallowed = takewhile(lambda position: position < start, items_between(file, low, end, dialect))
    return any(leads_to_end(file, cursor.source, at, end, dialect) for at in islice(swallowed, _MOST_TRIES))


def begun_at(file: File, source: JournalFile, last: list[int], stopped: int, dialect: int) -> int | None:
    """The first of the last operations before bad bytes that is the beginning of an item with another opcode.

    It has the size and the times of an item, and operations follow where that ends.
    """
    end = file.size()
    for position in last:
        head = file.read_at(position, LONGEST_HEAD_BYTES)
        if codec.kind_of(head[0], dialect) not in DATA_HEAD_BYTES and is_like_an_item(file, position):
            own = own_end(file, source, position, end, dialect)
            if own is not None and own > stopped:
                return position
    return None


def find_next(file: File, source: JournalFile, start: int, end: int, dialect: int) -> int | None:
    """Where operations continue after the bad bytes at `start` of a file that ends at `end`; None when none do.

    The answer is `end` where operations follow, and none of them is believed.
    """
    dialect = KESTREL2 if dialect == UNDECIDED else dialect
    own = own_end(file, source, start, end, dialect)
    if own is not None:
        return own
    item = next_item(file, source, start, end, dialect)
    led = _find_led(file, start, end if item is None else item, end, dialect)
    return item if led is None else led


# --- by the size of the damaged operation ---------------------------------------------------------------------------


def own_end(file: File, source: JournalFile, start: int, end: int, dialect: int) -> int | None:
    """Where the damaged operation at `start` ends by its own size, if operations follow there; None if none do."""
    head = file.read_at(start, LONGEST_HEAD_BYTES)
    found = set()
    for size_at, times_at in _LAYOUTS:
        if len(head) < size_at + SIZE.size:
            continue
        (size,) = SIZE.unpack_from(head, size_at)
        stop = start + size_at + SIZE.size + size
        if size < LEAST_SIZE[ADDX] or stop > end:
            continue
        timed = has_times(head, times_at)
        if size_at > 1 and not is_possible_xid(head):
            continue
        if not ((stop == end and timed) or reads_on(file, stop, end, dialect, 0 if timed else _XID_BITS)):
            continue
        if timed or not holds_operations(file, source, start, stop, dialect):
            found.add(stop)
    return found.pop() if len(found) == 1 else None


def holds_operations(file: File, source: JournalFile, start: int, stop: int, dialect: int) -> bool:
    """Whether an item within a range is whole, and operations lead from it exactly to the end of the range.

    A wrong size of an item leads to an operation by chance, after those that it has passed.
    """
    within = islice(items_between(file, start + 1, stop, dialect), _MOST_TRIES)
    return any(leads_to_end(file, source, at, stop, dialect) for at in within)


def reads_on(file: File, start: int, end: int, dialect: int, least_bits: int = 0) -> bool:
    """Whether operations follow at a position: to the end of the file, or too many for an accident."""
    data = file.read_at(start, min(_AHEAD_BYTES, end - start))
    stop, count, ending, latest = kernel.walk(data, 0, len(data), dialect)
    bits = _BYTE_BITS * count + (_ITEM_BITS if FIRST_PLAUSIBLE_MS <= latest < LAST_PLAUSIBLE_MS else 0)
    if not count and ending == codec.INCOMPLETE and _is_followed(file, start, end, dialect):
        return has_times(data[:LONGEST_HEAD_BYTES], _LAYOUTS[data[0] != ADDX][1])
    is_clean = ending == codec.CLEAN and start + stop == end
    return bits >= _ENOUGH_BITS or (is_clean and bits > least_bits)


def is_like_an_item(file: File, position: int) -> bool:
    """Whether the times of an item are where they would be if one began here."""
    head = file.read_at(position, LONGEST_HEAD_BYTES)
    return any(has_times(head, times_at) for _, times_at in _LAYOUTS)


def is_possible_xid(head: bytes) -> bool:
    """Whether the id of an operation can be one."""
    return bool(0 < XID.unpack_from(head, 1)[0] < _MOST_XID)


def has_times(head: bytes, at: int) -> bool:
    """Whether the times of an item are at a place, after an id that can be one."""
    if len(head) < at + 16 or (at > ADDX_HEAD.size - 16 and not is_possible_xid(head)):
        return False
    added, expires = (int.from_bytes(head[first : first + 8], "little", signed=True) for first in (at, at + 8))
    return codec.is_plausible(added, expires)


# --- by an item -----------------------------------------------------------------------------------------------------


def next_item(file: File, source: JournalFile, start: int, end: int, dialect: int) -> int | None:
    """The first item after bad bytes."""
    lonely: int | None = None
    for position in items_between(file, start + 1, end, dialect):
        if _is_followed(file, position, end, dialect):
            return position
        lonely = position if lonely is None else lonely
    if lonely is not None:
        return lonely
    tries = 0
    for position in items_between(file, start + 1, end, dialect, anytime=True):
        if not _is_followed(file, position, end, dialect):
            continue
        if leads_to_end(file, source, position, end, dialect):
            return position
        tries += 1
        if tries == _MOST_TRIES:
            break
    return None


def items_between(file: File, start: int, end: int, dialect: int, *, anytime: bool = False) -> Iterator[int]:
    """Where an operation that adds an item could begin, one place after the other."""
    position = start
    while end - position >= ADDX_HEAD.size:
        window = file.read_at(position, min(_SEARCH_BYTES, end - position))
        room = end - position
        at = kernel.find_add(window, 0, len(window), room, dialect, anytime)
        while at >= 0:
            if window[at] == ADDX or is_possible_xid(window[at : at + XID.size + 1]):
                yield position + at
            at = kernel.find_add(window, at + 1, len(window), room, dialect, anytime)
        if len(window) < LONGEST_HEAD_BYTES or position + len(window) >= end:
            return
        position += len(window) - (LONGEST_HEAD_BYTES - 1)


def _is_followed(file: File, position: int, end: int, dialect: int) -> bool:
    """Whether after the operation at a position there is the end of the file or what can be another operation."""
    head = file.read_at(position, LONGEST_HEAD_BYTES)
    try:
        size = codec.claimed_size(head, 0, len(head), dialect)
        if size is None or position + size > end:
            return False
        head = file.read_at(position + size, LONGEST_HEAD_BYTES)
        codec.claimed_size(head, 0, len(head), dialect)
    except Malformed:
        return False
    return True


def leads_to_end(file: File, source: JournalFile, position: int, end: int, dialect: int) -> bool:
    """Whether everything from a position to the end can be read."""
    cursor = Cursor(file, source, position, dialect=dialect, end=end)
    while cursor.read(load=False) is not None:
        pass
    return cursor.ending == codec.CLEAN


# --- by operations that lead somewhere ------------------------------------------------------------------------------


def _find_led(file: File, start: int, goal: int, end: int, dialect: int) -> int | None:
    """Where operations begin that lead exactly to a position, if they are more than chance explains."""
    likes_item = is_like_an_item(file, start)
    if goal == end and _is_cut_short(file, start, end, dialect):
        return None
    low = max(start + 1, goal - (_TAIL_BYTES if likes_item else _SEARCH_BYTES))
    data = file.read_at(low, goal - low)
    evidence = evidence_to_end(data, dialect)
    for at, bits in enumerate(evidence[:-1]):
        if bits and bits >= (_ENOUGH_BITS if likes_item else _LEAST_BITS + 3 * log2(low + at - start)):
            if likes_item:  # nothing says how long its data is
                return end if goal == end else None
            return low + _pass_doubted(data, at, dialect)
    return None


def _is_cut_short(file: File, start: int, end: int, dialect: int) -> bool:
    """Whether only a part of the head of an operation is there, of a kind that writers write."""
    head = file.read_at(start, min(LONGEST_HEAD_BYTES, end - start))
    kind = codec.kind_of(head[0], dialect)
    least = DATA_HEAD_BYTES.get(kind, XID.size + 1)
    return kind > ADD and len(head) < least


def evidence_to_end(data: bytes, dialect: int) -> list[int]:
    """For each position how unlikely it is, in bits, that operations lead from it to the end by chance; 0: none do."""
    end = len(data)
    found = [0] * (end + 1)
    for at in range(end - 1, -1, -1):
        opcode = data[at]
        if opcode > REMOVE_TENTATIVE_XID or (opcode == ADD and data[at + 1 : at + 5] == _NO_SIZE):
            continue
        stop = at + _size_at(data, at, dialect)
        if at < stop <= end and (stop == end or found[stop]) and _is_believed(data, at, opcode):
            found[at] = found[stop] + _bits_of(data, at, opcode)
    return found


def _size_at(data: bytes, at: int, dialect: int) -> int:
    """The size of the operation at a position, 0 for none. Without an exception: most bytes are none."""
    opcode = data[at]
    if opcode in (REMOVE, REMOVE_TENTATIVE):
        return 1
    kind = codec.kind_of(opcode, dialect)
    if kind not in LEAST_SIZE:
        return 0 if kind < 0 else STATE_DUMP_HEAD.size if kind == STATE_DUMP else XID.size + 1
    size_at = at + (5 if opcode in _NAMED else 1)
    size = int.from_bytes(data[size_at : size_at + SIZE.size], "little", signed=True)
    return size_at - at + SIZE.size + size if size >= LEAST_SIZE[kind] else 0


def _is_believed(data: bytes, at: int, opcode: int) -> bool:
    """False for an item that really begins a few bytes later, and for an ADDX whose opcode was zeroed."""
    if opcode in _NAMED:
        return data[at + 4 : at + 5] == _LAST_OF_XID
    return opcode != ADD or not has_times(data[at : at + ADDX_HEAD.size], ADDX_HEAD.size - 16)


def _bits_of(data: bytes, at: int, opcode: int) -> int:
    if opcode in (REMOVE, REMOVE_TENTATIVE):
        return _BYTE_BITS
    if opcode in DATA_HEAD_BYTES or opcode == STATE_DUMP:
        return _XID_BITS
    (xid,) = XID.unpack_from(data, at + 1)
    return _XID_BITS if 0 < xid < 1 << 16 else _BYTE_BITS - 1


def _pass_doubted(data: bytes, at: int, dialect: int) -> int:
    for _ in range(MOST_DOUBTED):
        if at < len(data) and codec.kind_of(data[at], dialect) not in DATA_HEAD_BYTES:
            at += _size_at(data, at, dialect)
    return at
