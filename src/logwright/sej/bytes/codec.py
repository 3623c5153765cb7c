"""Bytes <-> messages, in plain Python: the reference for the kernel, used if the kernel is not built.

A message is valid if and only if `0 <= key_size`, `0 <= value_size`, `size` equals 26 + key_size + value_size, all of
its bytes exist, and its offset is the expected one: the previous offset plus one, or the offset in the file's name.

Strategy: the head is 18 bytes; with fewer, more bytes are needed. A head with an unexpected offset or a negative key
size is malformed. Then comes the size of the value, which must leave the message within an i32; then the trailing size,
which must agree. If the bytes end before that, more bytes are needed.

Nothing here opens a file. Every length is checked against the bytes in the buffer before it is used.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from ...core.bytes.buffers import (
    Buffer,
    as_bytes,
    check_count,
    check_ends,
    check_range,
    column_bytes,
    column_items,
    column_part,
    starts_of,
)
from ...core.bytes.column_builder import Bytes, ColumnBuilder, Numbers
from ...core.bytes.outcome import NEED_MORE, Malformed, NeedMore, Span
from ...core.bytes.write_buffer import WriteBuffer
from ...errors import TooLarge, WrongUse
from .layout import (
    HEAD,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OVERHEAD,
    TRAILER,
    VALUE_SIZE,
    check_fields,
)
from .records import NOW, Message, Now

CLEAN, INCOMPLETE, MALFORMED, UNEXPECTED_OFFSET = range(4)
"""How a walk ends: at the end of its bytes, inside a message, at bytes that are not a message, at a whole message with
an unexpected offset."""

OFFSETS, TIMESTAMPS, TYPES, KEYS, VALUES, POSITIONS, SIZES = (1 << bit for bit in range(7))
"""Which columns to decode, added up."""
ALL_COLUMNS = (1 << 7) - 1


# --- one message ------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    message.validate()
    return _encode(message.offset, message.timestamp, message.type, message.key, message.value)


def _encode(offset: int, timestamp: int | None, type: int, key: Buffer, value: Buffer) -> bytes:
    return b"".join(
        (
            HEAD.pack(offset, NO_TIMESTAMP if timestamp is None else timestamp, type, len(key)),
            key,
            VALUE_SIZE.pack(len(value)),
            value,
            TRAILER.pack(OVERHEAD + len(key) + len(value)),
        )
    )


def decode(
    buffer: Buffer, position: int = 0, end: int | None = None, expected: int | None = None
) -> tuple[Message, Span] | NeedMore:
    """The message at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are ignored."""
    end = len(buffer) if end is None else end
    if end - position < HEAD.size:
        return NEED_MORE
    offset, timestamp, type, key_size = HEAD.unpack_from(buffer, position)
    if expected is not None and offset != expected:
        raise Malformed(position, f"the offset is {offset} where {expected} was expected")
    if key_size < 0:
        raise Malformed(position, f"the key size is {key_size}")
    value_size_at = position + HEAD.size + key_size
    if end - value_size_at < VALUE_SIZE.size:
        return NEED_MORE
    (value_size,) = VALUE_SIZE.unpack_from(buffer, value_size_at)
    if value_size < 0:
        raise Malformed(position, f"the value size is {value_size}")
    size = OVERHEAD + key_size + value_size
    if size > MAX_MESSAGE_BYTES:
        raise Malformed(position, f"a value size of {value_size} does not fit a message")
    if end - position < size:
        return NEED_MORE
    value_at = value_size_at + VALUE_SIZE.size
    (trailing_size,) = TRAILER.unpack_from(buffer, value_at + value_size)
    if trailing_size != size:
        raise Malformed(position, f"size {trailing_size} does not match the {size} bytes read")
    message = Message(
        offset,
        None if timestamp == NO_TIMESTAMP else timestamp,
        type,
        bytes(buffer[position + HEAD.size : value_size_at]),
        bytes(buffer[value_at : value_at + value_size]),
    )
    return message, Span(position, position + size)


def claimed_size(buffer: Buffer, position: int, end: int) -> int | None:
    """The size of the message at a position by its own fields; None if these are incomplete or invalid."""
    if end - position < HEAD.size:
        return None
    key_size = HEAD.unpack_from(buffer, position)[3]
    value_size_at = position + HEAD.size + key_size
    if key_size < 0 or end - value_size_at < VALUE_SIZE.size:
        return None
    (value_size,) = VALUE_SIZE.unpack_from(buffer, value_size_at)
    size: int = OVERHEAD + key_size + value_size
    return size if value_size >= 0 and size <= MAX_MESSAGE_BYTES else None


def explain(buffer: Buffer, position: int, end: int, expected: int) -> str:
    """Why a walk ended here, in words."""
    try:
        answer = decode(buffer, position, end, expected)
    except Malformed as malformed:
        return malformed.reason
    if answer is NEED_MORE:
        size = claimed_size(buffer, position, end)
        have = end - position
        return f"only {have} of the message's {size} bytes are there" if size else f"only {have} bytes are there"
    return "the message is whole"


# --- many messages ----------------------------------------------------------------------------------------------


def walk(buffer: Buffer, start: int, end: int, expected: int, most: int = -1) -> tuple[int, int, int, int, int]:
    """Walk over consecutive messages, at most `most` of them (-1: any number).

    Returns where it stopped, how many messages it passed, how it ended (`CLEAN` …), and the smallest and the largest
    timestamp passed. Messages without one are ignored. If there are none, the smallest is `MAX_TIMESTAMP` and the
    largest `NO_TIMESTAMP`, so that `min` and `max` join the times of two ranges.
    """
    check_range(buffer, start, end)
    position, count, ending = start, 0, CLEAN
    smallest, largest = MAX_TIMESTAMP, NO_TIMESTAMP
    while position < end and count != most:
        size, ending = _judge(buffer, position, end, (expected + count) & MAX_OFFSET)
        if ending != CLEAN:
            break
        timestamp = HEAD.unpack_from(buffer, position)[1]
        if timestamp != NO_TIMESTAMP:
            smallest, largest = min(smallest, timestamp), max(largest, timestamp)
        position += size
        count += 1
    return position, count, ending, smallest, largest


def _judge(buffer: Buffer, position: int, end: int, expected: int) -> tuple[int, int]:
    """The size of the message at a position, and `CLEAN`; or 0, and how a walk ends there."""
    if end - position < HEAD.size:
        return 0, INCOMPLETE
    offset, _, _, key_size = HEAD.unpack_from(buffer, position)
    if key_size < 0:
        return 0, MALFORMED
    size = claimed_size(buffer, position, end)
    if size is None:
        complete = end - position >= HEAD.size + key_size + VALUE_SIZE.size
        return 0, MALFORMED if complete or offset != expected else INCOMPLETE
    if end - position < size:
        return 0, INCOMPLETE if offset == expected else MALFORMED
    (trailing_size,) = TRAILER.unpack_from(buffer, position + size - TRAILER.size)
    if trailing_size != size:
        return 0, MALFORMED
    return (size, CLEAN) if offset == expected else (0, UNEXPECTED_OFFSET)


def messages(buffer: Buffer, start: int, stop: int, count: int) -> list[Message]:
    """The `count` messages of a range that `walk` has checked. They are not checked again."""
    starts = spans(buffer, start, stop, count)
    return [_message(buffer, starts[row], starts[row + 1]) for row in range(count)]


def _message(buffer: Buffer, start: int, end: int) -> Message:
    offset, timestamp, type, key_size = HEAD.unpack_from(buffer, start)
    value_size_at = start + HEAD.size + key_size
    return Message(
        offset,
        None if timestamp == NO_TIMESTAMP else timestamp,
        type,
        bytes(buffer[start + HEAD.size : value_size_at]),
        bytes(buffer[value_size_at + VALUE_SIZE.size : end - TRAILER.size]),
    )


def spans(buffer: Buffer, start: int, stop: int, count: int) -> array[int]:
    """Where each of the `count` messages of a walked range begins, and where the last one ends."""
    check_range(buffer, start, stop)
    check_count(start, stop, count, OVERHEAD)
    return starts_of(start, stop, count, lambda position: claimed_size(buffer, position, stop))


@dataclass(slots=True)
class Columns:
    """Messages as columns of plain buffers in native byte order; a column that was not selected is None.

    `offsets`, `positions` u64; `timestamps` i64; `types` u8; `sizes` i32. Keys and values are concatenated in
    `keys` and `values`; key n is between `key_ends[n]` and `key_ends[n + 1]` (i32). `untimed` counts the messages
    without a timestamp. A buffer may be longer than its `count` rows.
    """

    count: int
    offsets: Buffer | None = None
    timestamps: Buffer | None = None
    types: Buffer | None = None
    key_ends: Buffer | None = None
    keys: Buffer | None = None
    value_ends: Buffer | None = None
    values: Buffer | None = None
    positions: Buffer | None = None
    sizes: Buffer | None = None
    untimed: int = 0


_LAYOUT: Final = (
    Numbers(OFFSETS, "offsets", "Q"),
    Numbers(TIMESTAMPS, "timestamps", "q"),
    Numbers(TYPES, "types", "B"),
    Bytes(KEYS, "keys", "key_ends"),
    Bytes(VALUES, "values", "value_ends"),
    Numbers(POSITIONS, "positions", "Q"),
    Numbers(SIZES, "sizes", "i"),
)


class BatchBuilder(ColumnBuilder[Columns]):
    """Collects the messages of many walked ranges as the columns of one batch.

    It has a fixed capacity of rows and of bytes of keys and values; `add` takes what fits, `take` returns the columns.
    `allocate` makes the writable buffers of the columns.
    """

    def __init__(
        self,
        want: int,
        rows: int,
        key_bytes: int,
        value_bytes: int,
        allocate: Callable[[int], Any] = bytearray,
    ) -> None:
        super().__init__(Columns(0), _LAYOUT, want, rows, {"keys": key_bytes, "values": value_bytes}, allocate)
        self._counts_untimed = bool(want & TIMESTAMPS)

    def add(self, buffer: Buffer, start: int, stop: int, count: int, base: int = 0) -> tuple[int, int]:
        """Add the messages of a walked range, as many as fit; where the rest begins, and how many were added.

        `base` is where the buffer begins in its file.
        """
        columns = self._ours()
        check_range(buffer, start, stop)
        check_count(start, stop, count, OVERHEAD)
        position, added = start, 0
        while added < count and self.count < self._rows:
            (message,) = messages(buffer, position, stop, 1)
            numbers = {
                "offsets": message.offset,
                "timestamps": NO_TIMESTAMP if message.timestamp is None else message.timestamp,
                "types": message.type,
                "positions": base + position,
                "sizes": message.size,
            }
            if not self._put(numbers, {"keys": message.key, "values": message.value}):
                break
            columns.untimed += self._counts_untimed and message.timestamp is None
            position += message.size
            added += 1
        return position, added


def columns(buffer: Buffer, start: int, stop: int, count: int, want: int = ALL_COLUMNS, base: int = 0) -> Columns:
    """The `count` messages of a walked range as columns; `base` is where the buffer begins in its file."""
    found = messages(buffer, start, stop, count)
    key_bytes = sum(len(message.key) for message in found)
    value_bytes = sum(len(message.value) for message in found)
    builder = BatchBuilder(want, count, key_bytes, value_bytes)
    builder.add(buffer, start, stop, count, base)
    return builder.take()


def find_head(buffer: Buffer, start: int, end: int, least: int, most: int, room: int) -> int:
    """The first position from `start` on where a message could begin; -1 if there is none before `end`.

    A message could begin there if its offset is within `least` and `most`, its sizes are not negative, it ends within
    `room` bytes from the beginning of the buffer, which may be after `end`, and its trailing size agrees. If the
    trailing size is not in the buffer, the caller must check it.
    """
    check_range(buffer, start, end)
    for position in range(start, end - HEAD.size - VALUE_SIZE.size + 1):
        offset, _, _, key_size = HEAD.unpack_from(buffer, position)
        if not least <= offset <= most or key_size < 0:
            continue
        size = claimed_size(buffer, position, end)
        if size is None:
            value_size_at = position + HEAD.size + key_size
            if value_size_at + VALUE_SIZE.size > end:
                return position  # the sizes are after the end of the buffer
            continue
        if position + size > room:
            continue
        if position + size > end or TRAILER.unpack_from(buffer, position + size - TRAILER.size)[0] == size:
            return position
    return -1


# --- building what will be written ------------------------------------------------------------------------------


class AppendBuffer(WriteBuffer):
    """Messages that wait to be written to a segment: encoded and numbered, with the positions where segments end.

    `append` and `extend` add messages, `take` returns them. `attend` is called when more than `attention_bytes` wait.
    A message that fills its segment is followed by a cut: later messages belong to the next segment.
    `smallest_timestamp` and `largest_timestamp` are those of the messages after the last cut.
    """

    def __init__(self, next_offset: int, segment_used: int, segment_bytes: int, attention_bytes: int) -> None:
        super().__init__(attention_bytes)
        self.smallest_timestamp = MAX_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self.next_offset = next_offset
        self.segment_used = segment_used
        self.segment_bytes = segment_bytes
        self._cuts: list[tuple[int, int, int, int]] = []

    def append(
        self,
        value: Buffer,
        key: Buffer = b"",
        type: int = 0,
        timestamp: int | Now | None = NOW,
    ) -> int:
        """Add one message at the end; its offset. See `Writer` for when it is durable."""
        if self.refusing:
            self.refuse()
        when = time.time_ns() if isinstance(timestamp, Now) else timestamp
        when, type = None if when is None else index(when), index(type)
        value, key = as_bytes(value), as_bytes(key)
        check_fields(value, key, type, when)
        with self._adding:
            offset = self._add(when, type, key, value)
        if len(self._buffer) >= self.attention_bytes:
            self.attend()
        return offset

    def _add(self, timestamp: int | None, type: int, key: bytes, value: bytes) -> int:
        offset = self.next_offset
        if offset >= MAX_OFFSET:
            raise TooLarge("the journal has used up its 64-bit offsets")
        data = _encode(offset, timestamp, type, key, value)
        self._buffer += data
        self.next_offset = offset + 1
        self.segment_used += len(data)
        if timestamp is not None and timestamp != NO_TIMESTAMP:
            self.smallest_timestamp = min(self.smallest_timestamp, timestamp)
            self.largest_timestamp = max(self.largest_timestamp, timestamp)
        if self.segment_used >= self.segment_bytes:
            self._cuts.append((len(self._buffer), offset + 1, *self._taken_times()))
            self.segment_used = 0
        return offset

    def _taken_times(self) -> tuple[int, int]:
        """The smallest and the largest timestamp so far; resets both."""
        times = self.smallest_timestamp, self.largest_timestamp
        self.smallest_timestamp, self.largest_timestamp = MAX_TIMESTAMP, NO_TIMESTAMP
        return times

    def extend(self, columns: Columns, start: int, now: int, enough_bytes: int) -> int:
        """Add messages of columns from row `start` on, until `enough_bytes` wait; the row to continue with.

        Missing timestamps are `now`, missing types 0, missing keys empty. The messages get new offsets.
        """
        if self.refusing:
            self.refuse()
        rows = _Rows(columns, now)
        row = start
        with self._adding:
            while row < columns.count:
                timestamp, type, key, value = rows.get(row)
                self._add(timestamp, type, key, value)
                row += 1
                if len(self._buffer) >= enough_bytes:
                    break
        return row

    def take(self) -> tuple[bytearray, int, list[tuple[int, int, int, int]], int, int]:  # type: ignore[override]
        """The buffer, the number of bytes in it, the cuts, and the smallest and the largest timestamp.

        A cut is a position in the buffer, the first offset of the segment that begins there, and the smallest and the
        largest timestamp of the messages between the preceding cut and this one. The last two values are those of the
        messages after the last cut. The buffer is valid until `take` has been called twice more.
        """
        with self._adding:
            cuts, self._cuts = self._cuts, []
            return *self._swap(), cuts, *self._taken_times()


class _Rows:
    """Rows out of columns, with the defaults of `extend`."""

    def __init__(self, columns: Columns, now: int) -> None:
        count = columns.count
        self._now = now
        self._timestamps = column_items("q", columns.timestamps, count, "timestamps")
        self._types = column_items("B", columns.types, count, "types")
        self._key_ends = column_items("i", columns.key_ends, count + 1, "key_ends")
        self._value_ends = column_items("i", columns.value_ends, count + 1, "value_ends")
        self._keys, self._values = column_bytes(columns.keys), column_bytes(columns.values)

    def get(self, row: int) -> tuple[int, int, bytes, bytes]:
        key = column_part(self._keys, self._key_ends, row)
        value = column_part(self._values, self._value_ends, row)
        if len(key) > MAX_KEY_BYTES or OVERHEAD + len(key) + len(value) > MAX_MESSAGE_BYTES:
            raise WrongUse(f"row {row} is not within its columns")
        return (
            self._timestamps[row] if self._timestamps is not None else self._now,
            self._types[row] if self._types is not None else 0,
            key,
            value,
        )


def check_columns(columns: Columns) -> None:
    """Raise `WrongUse` or `TooLarge` unless every row of the columns can be a message."""
    count = columns.count
    if count < 0:
        raise WrongUse("columns cannot have a negative number of rows")
    column_items("q", columns.timestamps, count, "timestamps")
    column_items("B", columns.types, count, "types")
    most_value_bytes = MAX_MESSAGE_BYTES - OVERHEAD - MAX_KEY_BYTES
    key_ends = column_items("i", columns.key_ends, count + 1, "key_ends")
    check_ends(key_ends, count, len(column_bytes(columns.keys)), MAX_KEY_BYTES, "key")
    value_ends = column_items("i", columns.value_ends, count + 1, "value_ends")
    check_ends(value_ends, count, len(column_bytes(columns.values)), most_value_bytes, "value")
