"""Mending one message: which of its fields is wrong, when exactly one is and what is around it settles which.

A message says three times how long it is: by the sizes in it, by the size behind it, and by where the next one begins;
and its offset is the one before plus one. So a single wrong field stands against the others:

    size            the key's and the value's size lead to where the next message begins
    value_size      the size behind it leads there, and no other key size would make the sizes agree
    key_size        the size behind it leads there, and exactly one other key size makes the sizes agree
    offset          all sizes agree, and the next message goes on with the offset behind the one that is expected

Key size and value size can be in doubt: bytes of a key or value may look like the size that would be right. Then a
checksum decides if there is one, or the messages before and behind: how long their keys are. If they do not settle it,
nothing is mended: a guess must not look like a message.

Nor is anything mended where more than the field seems to have been overwritten: where the wrong bytes belong to a run
of equal ones, such as a sector of zeros, that goes on in the key, the value or the time. With the field put right the
rest of that run would pass for what was written. Only a checksum that matches then is proof of the contrary.

A changed timestamp, type, key or value is against no rule, and only a checksum knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...core.disk import File
from .layout import HEAD, MAX_KEY_BYTES, MAX_MESSAGE_BYTES, MAX_OFFSET, OFFSET, OVERHEAD, TRAILER, VALUE_SIZE
from .segment import Segment, find_following, message_span, most_behind, step_back

_KEY_SIZE_AT: Final = HEAD.size - 1
_SEARCH_BYTES: Final = 1 << 20
_SEARCH_FAR_BYTES: Final = 16 << 20
_RUN_BYTES: Final = 4
"""So many equal bytes that cover wrong ones and reach beyond the field are no accident."""
_AROUND_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Fix:
    """Other bytes for a field. `next_position` is where the message ends then."""

    position: int
    old: bytes
    new: bytes
    next_position: int
    reason: str


Settles = Callable[[Fix], bool]
"""Whether a checksum that does not match would match with a fix."""


def find_fix(file: File, position: int, expected: int, following: Segment | None, settles: Settles) -> Fix | None:
    """The fix for the message at a position that should have this offset; None when no single field explains it."""
    size_of_file = file.size()
    head = file.read_at(position, HEAD.size)
    if len(head) < HEAD.size or expected >= MAX_OFFSET:
        return None
    behind = find_following(file, position, size_of_file, expected, most_behind(expected, following))
    if behind is not None and behind[0] == expected:
        return None  # here it is, whole, behind bytes that do not belong to it
    stop = size_of_file if behind is None else behind[1].start
    ends_file = following is not None and following.first_offset == expected + 1
    end = _end_by_trailer(file, position, expected, stop, ends_file)
    if end is not None:
        fix = _fix_head(file, position, expected, end, head, settles)
    else:
        fix = _fix_trailer(file, position, expected, _end_by_head(file, position, expected, stop, ends_file))
    if fix is None or not (settles(fix) or _is_isolated(file, position, fix)):
        return None
    return fix


def _fix_trailer(file: File, position: int, expected: int, end: int | None) -> Fix | None:
    """The fix for the size behind a message that ends where the sizes in it say."""
    if end is None or OFFSET.unpack(file.read_at(position, OFFSET.size))[0] != expected:
        return None
    old = file.read_at(end - TRAILER.size, TRAILER.size)
    reason = f"the size behind the message is {TRAILER.unpack(old)[0]}, the message has {end - position} bytes"
    return Fix(end - TRAILER.size, old, TRAILER.pack(end - position), end, reason)


# --- whether more than a field was overwritten ----------------------------------------------------------------------


def _is_isolated(file: File, position: int, fix: Fix) -> bool:
    """Whether no wrong byte of a field belongs to a run of equal bytes beyond it that something must have written."""
    end = fix.next_position
    low = max(position, fix.position - _AROUND_BYTES)
    data = file.read_at(low, min(end, fix.position + len(fix.old) + _AROUND_BYTES) - low)
    field = range(fix.position - low, fix.position - low + len(fix.old))
    neighbours = _neighbours(file, position, end)
    for wrong, old, new in zip(field, fix.old, fix.new, strict=True):
        if old == new:
            continue
        first = len(data[:wrong].rstrip(data[wrong : wrong + 1]))
        last = len(data) - len(data[wrong:].lstrip(data[wrong : wrong + 1]))
        beyond = [at for at in range(first, last) if at not in field]
        if last - first >= _RUN_BYTES and not all(
            _is_usual(file, position, fix, low + at, data[at], neighbours) for at in beyond
        ):
            return False
    return True


def _is_usual(file: File, position: int, fix: Fix, at: int, byte: int, neighbours: list[int]) -> bool:
    """Whether a byte is what it should be: it is in a field that agrees with the others, or the same all around.

    A key size that is wrong as well would leave the key behind it in the run, or its value size in its place.
    """
    key_size = HEAD.unpack(file.read_at(position, HEAD.size))[3]
    if fix.position == position + _KEY_SIZE_AT:
        key_size = fix.new[0]
    value_size_at = position + HEAD.size + key_size
    is_head_or_end = at < position + OFFSET.size or at >= fix.next_position - TRAILER.size
    if is_head_or_end or at == position + _KEY_SIZE_AT or value_size_at <= at < value_size_at + VALUE_SIZE.size:
        return True
    place = at - position
    return bool(neighbours) and all(
        place < HEAD.size + _sizes_at(file, neighbour)[0] + VALUE_SIZE.size
        and file.read_at(neighbour + place, 1)[0] == byte
        for neighbour in neighbours
    )


# --- where it ends --------------------------------------------------------------------------------------------------


def _end_by_trailer(file: File, position: int, expected: int, stop: int, ends_file: bool) -> int | None:
    """Where the size behind a message and the next message's offset agree that it ends.

    Not far behind `stop`, where whole messages go on: so the search costs little more than passing the damage. But a
    little: what was found there may be a message in the value of this one.
    """
    stop = max(stop, min(file.size(), position + _SEARCH_FAR_BYTES))
    wanted = OFFSET.pack(expected + 1)
    start = position + OVERHEAD
    while start <= stop:
        window = file.read_at(start - TRAILER.size, _SEARCH_BYTES)
        at = window.find(wanted, TRAILER.size)
        while at >= 0:
            end = start - TRAILER.size + at
            if end > stop:
                return None
            if TRAILER.unpack_from(window, at - TRAILER.size)[0] == end - position:
                return end
            at = window.find(wanted, at + 1)
        if len(window) < _SEARCH_BYTES:
            break
        start += _SEARCH_BYTES - TRAILER.size - OFFSET.size + 1
    if not ends_file or stop < file.size() or stop - position < OVERHEAD:
        return None
    trailing_size = TRAILER.unpack(file.read_at(stop - TRAILER.size, TRAILER.size))[0]
    return stop if trailing_size == stop - position else None


def _end_by_head(file: File, position: int, expected: int, stop: int, ends_file: bool) -> int | None:
    """Where the sizes in a message and the next message's offset agree that it ends.

    Behind `stop`, where whole messages go on, only if the next message is whole: then what is between is in the value.
    """
    key_size: int = HEAD.unpack(file.read_at(position, HEAD.size))[3]
    field = file.read_at(position + HEAD.size + key_size, VALUE_SIZE.size) if key_size >= 0 else b""
    value_size = VALUE_SIZE.unpack(field)[0] if len(field) == VALUE_SIZE.size else -1
    end: int = position + OVERHEAD + key_size + value_size
    if value_size < 0 or end - position > MAX_MESSAGE_BYTES or end > file.size():
        return None
    if end > stop:
        found = message_span(file, end, file.size())
        return end if found is not None and found[0] == expected + 1 else None
    if end == file.size():
        return end if ends_file else None
    return end if file.read_at(end, OFFSET.size) == OFFSET.pack(expected + 1) else None


# --- which field of the head ----------------------------------------------------------------------------------------


def _fix_head(file: File, position: int, expected: int, end: int, head: bytes, settles: Settles) -> Fix | None:
    """The fix for a message of which we know where it ends."""
    offset, _, _, key_size = HEAD.unpack(head)
    fitting = _fitting_key_sizes(file, position, end)
    if offset != expected:
        if key_size not in fitting:
            return None
        reason = f"the offset is {offset} where {expected} was expected, and the next message has {expected + 1}"
        return Fix(position, head[: OFFSET.size], OFFSET.pack(expected), end, reason)
    if key_size in fitting:
        return None
    keys = {size: _key_fix(position, end, key_size, size) for size in fitting}
    value = _value_fix(file, position, end, key_size)
    known = [fix for fix in (*keys.values(), value) if fix is not None and settles(fix)]
    if len(known) == 1:
        return known[0]
    if not keys:
        return value
    neighbours = _neighbours(file, position, end)
    usual = {_sizes_at(file, neighbour)[0] for neighbour in neighbours}
    size = usual.pop() if len(usual) == 1 else -1
    if size in keys:
        return keys[size]
    if len(keys) == 1 and (value is None or not _in_doubt(file, neighbours, key_size, fitting[0], value)):
        return keys[fitting[0]]
    return value if size == key_size else None


def _fitting_key_sizes(file: File, position: int, end: int) -> list[int]:
    """The key sizes for which the value size behind the key makes the message end where it ends."""
    most = min(MAX_KEY_BYTES, end - position - OVERHEAD)
    fields = file.read_at(position + HEAD.size, most + VALUE_SIZE.size)
    return [
        size for size in range(most + 1) if VALUE_SIZE.unpack_from(fields, size)[0] == end - position - OVERHEAD - size
    ]


def _key_fix(position: int, end: int, key_size: int, size: int) -> Fix:
    reason = f"the key size is {key_size}, and the message has {end - position} bytes only with {size}"
    return Fix(position + _KEY_SIZE_AT, _signed_byte(key_size), _signed_byte(size), end, reason)


def _signed_byte(value: int) -> bytes:
    return value.to_bytes(1, "big", signed=True)


def _value_fix(file: File, position: int, end: int, key_size: int) -> Fix | None:
    right = end - position - OVERHEAD - key_size
    if key_size < 0 or right < 0:
        return None
    at = position + HEAD.size + key_size
    old = file.read_at(at, VALUE_SIZE.size)
    reason = f"the value size is {VALUE_SIZE.unpack(old)[0]}, and the message has {end - position} bytes"
    return Fix(at, old, VALUE_SIZE.pack(right), end, reason)


def _in_doubt(file: File, neighbours: list[int], key_size: int, other: int, value: Fix) -> bool:
    """Whether the value size might be what is wrong, although another key size would make the sizes agree.

    It might when it is nearly right; or when other messages, too, hold small numbers in that place of their key or
    value, a counter or a length: then one that looks like a size is no great accident.
    """
    if sum(old != new for old, new in zip(value.old, value.new, strict=True)) <= 1:
        return True
    return any(_has_small_number(file, neighbour, key_size, other) for neighbour in neighbours)


def _neighbours(file: File, position: int, end: int) -> list[int]:
    """Where the messages right before and right behind a message begin, as far as they are whole."""
    found = []
    before = step_back(file, position)
    if before is not None:
        found.append(before[1].start)
    if _sizes_at(file, end)[1] >= 0:
        found.append(end)
    return found


def _sizes_at(file: File, position: int) -> tuple[int, int]:
    """The key's and the value's size of a message; (-1, -1) where there is none."""
    head = file.read_at(position, HEAD.size)
    key_size = HEAD.unpack(head)[3] if len(head) == HEAD.size else -1
    field = file.read_at(position + HEAD.size + key_size, VALUE_SIZE.size) if key_size >= 0 else b""
    if len(field) < VALUE_SIZE.size:
        return -1, -1
    return key_size, VALUE_SIZE.unpack(field)[0]


def _has_small_number(file: File, position: int, key_size: int, other: int) -> bool:
    """Whether a message holds a small number where one with this key size would have its value size with the other."""
    own_key_size, value_size = _sizes_at(file, position)
    place = other if other < key_size else own_key_size + other - key_size
    is_in_key = place + VALUE_SIZE.size <= own_key_size
    is_in_value = own_key_size + VALUE_SIZE.size <= place <= own_key_size + value_size
    if not is_in_key and not is_in_value:
        return False
    return file.read_at(position + HEAD.size + place, 2) == b"\0\0"
