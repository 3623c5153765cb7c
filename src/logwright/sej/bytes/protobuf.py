"""Messages of segments <-> messages on the hub's wire, in plain Python: the reference for the kernel in _protobuf.pyx.

On the wire a message is a field of a request or a response, identified by its number, and has these fields (protobuf):

    1 offset uint64    2 timestamp int64    3 type uint32    4 key bytes    5 value bytes

Fields that are 0 or empty are left out. Another encoder may send fields in any order, repeatedly (the last one wins),
and unknown fields, which are skipped. A message is accepted if and only if its bytes are protobuf, its type is within 0
and 255, its key has at most 127 bytes, and its offset is that of the preceding message plus one.

Everything is checked, and counted, before anything is allocated for it.
"""

from __future__ import annotations

from typing import Final

from ...core.bytes.buffers import Buffer, check_count, check_range, not_walked
from ...errors import TooLarge, WrongUse
from .codec import claimed_size
from .layout import HEAD, MAX_KEY_BYTES, MAX_MESSAGE_BYTES, MAX_TIMESTAMP, NO_TIMESTAMP, OVERHEAD, TRAILER, VALUE_SIZE

KNOWN_FIELDS: Final = 32
"""Fields other than messages are returned if their numbers are below this."""
MOST_DEPTH: Final = 64
"""The deepest nesting of groups, an old form of fields in fields."""
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_MASK: Final = 2**64 - 1

Received = tuple[bytearray, int, int, int, int, dict[int, int | bytes]]
"""Messages as they are stored in a segment, the first one's offset, their count, their smallest and largest timestamp,
and the other fields by number: numbers, or bytes."""


# --- to the wire ----------------------------------------------------------------------------------------------------


def to_wire(buffer: Buffer, start: int, stop: int, count: int, field: int) -> bytes:
    """The messages of a walked range, each as the field of this number (1 to 15)."""
    check_range(buffer, start, stop)
    check_count(start, stop, count, OVERHEAD)
    _check_field(field)
    out = bytearray()
    position = start
    for _ in range(count):
        size = claimed_size(buffer, position, stop)
        if size is None or position + size > stop:
            raise not_walked(position)
        offset, timestamp, kind, key_size = HEAD.unpack_from(buffer, position)
        key_at = position + HEAD.size
        value_at = key_at + key_size + VALUE_SIZE.size
        position += size
        fields = b"".join(
            (
                number_field(1, offset),
                number_field(2, timestamp),
                number_field(3, kind),
                bytes_field(4, bytes(buffer[key_at : key_at + key_size])),
                bytes_field(5, bytes(buffer[value_at : position - TRAILER.size])),
            )
        )
        out += bytes((field << 3 | _BYTES,)) + _varint(len(fields)) + fields
    return bytes(out)


def number_field(field: int, number: int, *, always: bool = False) -> bytes:
    """A field that is a number; empty for 0, unless `always` is set."""
    return _varint(field << 3 | _VARINT) + _varint(number & _MASK) if number or always else b""


def bytes_field(field: int, data: bytes) -> bytes:
    """A field that is bytes or text; empty if there are none."""
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data if data else b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _check_field(field: int) -> None:
    if not 0 < field < 16:
        raise WrongUse(f"{field} is no number of a field of messages")


# --- from the wire --------------------------------------------------------------------------------------------------


def from_wire(buffer: Buffer, field: int, most_bytes: int) -> Received:
    """The messages in fields of this number, as they are stored in a segment, and the other fields.

    `WrongUse` says what is wrong with the bytes. Messages that would take more than `most_bytes` are `TooLarge`.
    """
    _check_field(field)
    data = bytes(buffer)
    frames = bytearray()
    first, count, smallest, largest = 0, 0, MAX_TIMESTAMP, NO_TIMESTAMP
    others: dict[int, int | bytes] = {}
    position = 0
    while position < len(data):
        number, kind, position = _tag(data, position, len(data))
        if kind == _BYTES:
            start, position = _span(data, position, len(data))
            if number == field:
                offset, timestamp, frame = _message(data, start, position)
                if count and offset != first + count:
                    raise WrongUse(f"@ {start}: the offset is {offset} where {first + count} was expected")
                first = first if count else offset
                count += 1
                largest = max(largest, timestamp)
                smallest = smallest if timestamp == NO_TIMESTAMP else min(smallest, timestamp)
                if len(frames) + len(frame) > most_bytes:
                    raise _too_large(most_bytes)
                frames += frame
            elif number < KNOWN_FIELDS:
                others[number] = data[start:position]
        elif kind == _VARINT:
            value, position = _number(data, position, len(data))
            if number < KNOWN_FIELDS and number != field:
                others[number] = value
        else:
            position = _skip(data, position, len(data), number, kind)
    return frames, first, count, smallest, largest, others


def _message(data: bytes, position: int, end: int) -> tuple[int, int, bytes]:
    """Offset, timestamp and bytes of the message whose fields are in a range."""
    start, offset, timestamp, type_, key, value = position, 0, 0, 0, b"", b""
    while position < end:
        number, kind, position = _tag(data, position, end)
        if kind == _VARINT:
            found, position = _number(data, position, end)
            if number == 1:
                offset = found
            elif number == 2:
                timestamp = found - 2**64 if found >= 2**63 else found
            elif number == 3:
                type_ = found & 0xFFFFFFFF
        elif kind == _BYTES:
            at, position = _span(data, position, end)
            if number == 4:
                key = data[at:position]
            elif number == 5:
                value = data[at:position]
        else:
            position = _skip(data, position, end, number, kind)
    if type_ > 255:
        raise WrongUse(f"@ {start}: type {type_} is not within 0 and 255")
    size = OVERHEAD + len(key) + len(value)
    if len(key) > MAX_KEY_BYTES or size > MAX_MESSAGE_BYTES:
        raise TooLarge(f"@ {start}: a key of {len(key)} bytes and a value of {len(value)} make no message of sej")
    head = HEAD.pack(offset, timestamp, type_, len(key))
    return offset, timestamp, b"".join((head, key, VALUE_SIZE.pack(len(value)), value, TRAILER.pack(size)))


def _tag(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Number and kind of the field at a position, and the position of its value."""
    tag, after = _number(data, position, end)
    number, kind = tag >> 3, tag & 7
    if not 0 < number < 2**29 or kind > _FIXED32:
        raise _no_protobuf(position)
    return number, kind, after


def _number(data: bytes, position: int, end: int) -> tuple[int, int]:
    number = 0
    for place in range(min(10, end - position)):
        byte = data[position + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number & _MASK, position + place + 1
    raise _no_protobuf(position)


def _span(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The start and end of the bytes of a field."""
    size, start = _number(data, position, end)
    if size > end - start:
        raise _no_protobuf(position)
    return start, start + size


def _skip(data: bytes, position: int, end: int, number: int, kind: int) -> int:
    """The end of a field that is neither a number nor bytes: a field of fixed width, or a group with its contents."""
    open_groups: list[int] = []
    while True:
        if kind == _VARINT:
            position = _number(data, position, end)[1]
        elif kind == _BYTES:
            position = _span(data, position, end)[1]
        elif kind in (_FIXED32, _FIXED64):
            width = 4 if kind == _FIXED32 else 8
            if end - position < width:
                raise _no_protobuf(position)
            position += width
        elif kind == _GROUP:
            if len(open_groups) == MOST_DEPTH:
                raise _no_protobuf(position)
            open_groups.append(number)
        elif not open_groups or open_groups.pop() != number:
            raise _no_protobuf(position)
        if not open_groups:
            return position
        number, kind, position = _tag(data, position, end)


def _no_protobuf(position: int) -> WrongUse:
    return WrongUse(f"@ {position}: these bytes are no protobuf")


def _too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"the messages take more than {most_bytes} bytes")
