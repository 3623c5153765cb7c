"""Bytes <-> messages, in plain Python: the reference for the kernel, and its stand-in where it is not built.

A message is valid if and only if `0 <= key_size`, `0 <= value_size`, `size` equals 26 + key_size + value_size, all of
its bytes are there, and its offset is the one that is expected: the previous one plus one, or the file's name.

Strategy: the head is 18 bytes; below that there is nothing to judge. A head with another offset than expected or a
negative key size is malformed whatever follows. Then the value's size, which must leave the message within an i32; then
the trailing size, which must agree. Where the bytes end before an answer, more are needed.

Nothing here opens a file, and no length is believed before the bytes that it counts have been seen.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from struct import calcsize
from typing import Any, Literal, TypeAlias

from ...core.errors import TooLarge, WrongUse
from ...core.outcome import NEED_MORE, Malformed, NeedMore, Span
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
)
from .records import NOW, Message, Now, check_fields

Buffer = bytes | bytearray | memoryview

CLEAN, INCOMPLETE, MALFORMED, UNEXPECTED_OFFSET = range(4)
"""How a walk ends: at the end of its bytes, inside a message, at bytes that are no message, at a whole message with
another offset."""

OFFSETS, TIMESTAMPS, TYPES, KEYS, VALUES, POSITIONS, SIZES = (1 << bit for bit in range(7))
"""Which columns to decode, added up."""
ALL_COLUMNS = (1 << 7) - 1
MAX_BATCH_BYTES = 2**31 - 1
"""How many bytes of keys, and how many of values, one batch of columns can hold: their ends are i32."""


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
    """The message at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are not looked at."""
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
    """How large the message at a position says it is, None when its sizes are not all there or make no sense."""
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
    """Go from message to message, at most `most` of them (-1: any number).

    Returns where it stopped, how many messages it passed, how it ended (`CLEAN` …), and the smallest and the largest
    timestamp passed. Messages without one do not count; of none at all the smallest is `MAX_TIMESTAMP` and the largest
    `NO_TIMESTAMP`, so that the times of two stretches are those of both by `min` and `max`.
    """
    _check_range(buffer, start, end)
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
    """The `count` messages of a range that `walk` has passed. What `walk` has judged is not judged again."""
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


def _check_range(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise WrongUse(f"the range {start}..{end} is not within a buffer of {len(buffer)} bytes")


def _check_count(start: int, stop: int, count: int) -> None:
    """Raise `Malformed` when so many messages cannot be there, before anything is allocated for them."""
    if not 0 <= count <= (stop - start) // OVERHEAD:
        raise Malformed(start, "the range was not walked")


def spans(buffer: Buffer, start: int, stop: int, count: int) -> array[int]:
    """Where each of the `count` messages of a walked range begins, and where the last one ends."""
    _check_range(buffer, start, stop)
    _check_count(start, stop, count)
    starts = array("q")
    position = start
    for _ in range(count):
        starts.append(position)
        size = claimed_size(buffer, position, stop)
        if size is None or position + size > stop:
            raise Malformed(position, "the range was not walked")
        position += size
    starts.append(position)
    return starts


@dataclass(slots=True)
class Columns:
    """Messages as columns of plain buffers in the machine's byte order; a column that was not asked for is None.

    `offsets`, `positions` u64; `timestamps` i64; `types` u8; `sizes` i32. Keys and values lie one behind the other in
    `keys` and `values`; the n-th is between `key_ends[n]` and `key_ends[n + 1]` (i32). `untimed` counts the messages
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


_ItemCode: TypeAlias = Literal["Q", "q", "B", "i"]


class Gatherer:
    """Gathers the messages of many walked ranges as the columns of one batch.

    It has room for so many rows and bytes of keys and values; `add` takes what fits, `take` hands the columns over.
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
        if rows < 0 or not 0 <= key_bytes <= MAX_BATCH_BYTES or not 0 <= value_bytes <= MAX_BATCH_BYTES:
            raise TooLarge("one batch of columns holds less than 2 GiB of keys and of values")
        self.count = 0
        self._want = want
        self._rows, self._key_bytes, self._value_bytes = rows, key_bytes, value_bytes
        self._key_used = self._value_used = 0
        self._columns: Columns | None = Columns(0)
        self._views: dict[str, memoryview[int]] = {}
        layout: tuple[tuple[int, str, _ItemCode, int], ...] = (
            (OFFSETS, "offsets", "Q", rows),
            (TIMESTAMPS, "timestamps", "q", rows),
            (TYPES, "types", "B", rows),
            (KEYS, "key_ends", "i", rows + 1),
            (KEYS, "keys", "B", key_bytes),
            (VALUES, "value_ends", "i", rows + 1),
            (VALUES, "values", "B", value_bytes),
            (POSITIONS, "positions", "Q", rows),
            (SIZES, "sizes", "i", rows),
        )
        for bit, name, code, length in layout:
            if want & bit:
                self._views[name] = _allocated(self._columns, name, code, length, allocate)
        for name in ("key_ends", "value_ends"):
            if name in self._views:
                self._views[name][0] = 0

    def add(self, buffer: Buffer, start: int, stop: int, count: int, base: int = 0) -> tuple[int, int]:
        """Add the messages of a walked range, as many as fit; where the rest begins, and how many were added.

        `base` is where the buffer begins in its file.
        """
        if self._columns is None:
            raise WrongUse("these columns have been taken")
        _check_range(buffer, start, stop)
        _check_count(start, stop, count)
        position, added = start, 0
        while added < count and self.count < self._rows:
            (message,) = messages(buffer, position, stop, 1)
            if self._want & KEYS and self._key_used + len(message.key) > self._key_bytes:
                break
            if self._want & VALUES and self._value_used + len(message.value) > self._value_bytes:
                break
            self._put(message, base + position)
            position += message.size
            added += 1
        return position, added

    def _put(self, message: Message, position: int) -> None:
        row = self.count
        stamp = NO_TIMESTAMP if message.timestamp is None else message.timestamp
        for name, item in (
            ("offsets", message.offset),
            ("timestamps", stamp),
            ("types", message.type),
            ("positions", position),
            ("sizes", message.size),
        ):
            if name in self._views:
                self._views[name][row] = item
        if self._columns is not None and self._want & TIMESTAMPS:
            self._columns.untimed += stamp == NO_TIMESTAMP
        if self._want & KEYS:
            end = self._key_used + len(message.key)
            self._views["keys"][self._key_used : end] = message.key
            self._views["key_ends"][row + 1] = self._key_used = end
        if self._want & VALUES:
            end = self._value_used + len(message.value)
            self._views["values"][self._value_used : end] = message.value
            self._views["value_ends"][row + 1] = self._value_used = end
        self.count = row + 1

    def take(self) -> Columns:
        """The columns. Their buffers are as long as what was asked for: `count` says how many rows are in them."""
        columns, self._columns = self._columns, None
        if columns is None:
            raise WrongUse("these columns have been taken")
        for view in self._views.values():
            view.release()
        columns.count = self.count
        return columns


def _allocated(
    columns: Columns, name: str, code: _ItemCode, length: int, allocate: Callable[[int], Any]
) -> memoryview[int]:
    needed = length * calcsize(code)
    buffer = allocate(needed)
    setattr(columns, name, buffer)
    view = memoryview(buffer).cast("B")
    if len(view) < needed:
        raise WrongUse(f"a buffer of {needed} bytes was asked for, not of {len(view)}")
    return view[:needed].cast(code)


def columns(buffer: Buffer, start: int, stop: int, count: int, want: int = ALL_COLUMNS, base: int = 0) -> Columns:
    """The `count` messages of a walked range as columns; `base` is where the buffer begins in its file."""
    found = messages(buffer, start, stop, count)
    key_bytes = sum(len(message.key) for message in found)
    value_bytes = sum(len(message.value) for message in found)
    gatherer = Gatherer(want, count, key_bytes, value_bytes)
    gatherer.add(buffer, start, stop, count, base)
    return gatherer.take()


def find_head(buffer: Buffer, start: int, end: int, least: int, most: int, room: int) -> int:
    """The first position from `start` on where a message could begin, -1 when there is none before `end`.

    Could begin: its offset is within `least` and `most`, its sizes are not negative, it ends within `room` bytes from
    the beginning of the buffer, which may lie behind `end`, and where its trailing size is at hand, that agrees. Only a
    guess where it is not; the caller looks again.
    """
    _check_range(buffer, start, end)
    for position in range(start, end - HEAD.size - VALUE_SIZE.size + 1):
        offset, _, _, key_size = HEAD.unpack_from(buffer, position)
        if not least <= offset <= most or key_size < 0:
            continue
        size = claimed_size(buffer, position, end)
        if size is None:
            value_size_at = position + HEAD.size + key_size
            if value_size_at + VALUE_SIZE.size > end:
                return position  # the sizes lie behind the bytes at hand
            continue
        if position + size > room:
            continue
        if position + size > end or TRAILER.unpack_from(buffer, position + size - TRAILER.size)[0] == size:
            return position
    return -1


# --- building what will be written ------------------------------------------------------------------------------


class AppendBuffer:
    """Messages on their way to a segment: encoded, numbered, and marked where a segment ends.

    `append` and `extend` add messages, `take` hands over what has gathered. A subclass is told by `_attend` when more
    than `attention_bytes` wait. A message that fills its segment is followed by a cut: what comes after it belongs to
    the next one. `smallest_timestamp` and `largest_timestamp` are those of what waits behind the last cut.
    """

    def __init__(self, next_offset: int, segment_used: int, segment_bytes: int, attention_bytes: int) -> None:
        self.smallest_timestamp = MAX_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self.next_offset = next_offset
        self.segment_used = segment_used
        self.segment_bytes = segment_bytes
        self.attention_bytes = attention_bytes
        self.refusing = False
        self._buffer = bytearray()
        self._cuts: list[tuple[int, int, int, int]] = []
        self._adding = threading.Lock()  # the kernel needs none: nothing interrupts it

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait to be taken."""
        return len(self._buffer)

    def append(
        self,
        value: Buffer,
        key: Buffer = b"",
        type: int = 0,
        timestamp: int | Now | None = NOW,
    ) -> int:
        """Add one message at the end; its offset. See `Writer` for when it is durable."""
        if self.refusing:
            self._refuse()
        when = time.time_ns() if isinstance(timestamp, Now) else timestamp
        when, type = None if when is None else index(when), index(type)
        value, key = _as_bytes(value), _as_bytes(key)
        check_fields(value, key, type, when)
        with self._adding:
            offset = self._add(when, type, key, value)
        if len(self._buffer) >= self.attention_bytes:
            self._attend()
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
        """The smallest and the largest timestamp so far, which begin anew."""
        times = self.smallest_timestamp, self.largest_timestamp
        self.smallest_timestamp, self.largest_timestamp = MAX_TIMESTAMP, NO_TIMESTAMP
        return times

    def extend(self, columns: Columns, start: int, now: int, enough_bytes: int) -> int:
        """Add messages of columns from row `start` on, until `enough_bytes` wait; the row to go on with.

        Missing timestamps are `now`, missing types 0, missing keys empty. Offsets are given anew.
        """
        if self.refusing:
            self._refuse()
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

    def take(self) -> tuple[bytearray, int, list[tuple[int, int, int, int]], int, int]:
        """What has gathered: a buffer, how much of it counts, the cuts in it, and smallest and largest timestamp.

        A cut is a position in the buffer, the first offset of the segment that begins there, and the smallest and the
        largest timestamp of the messages before it, from the cut before on; those of `take` are behind the last cut.
        The buffer may be used until the next but one `take`.
        """
        with self._adding:
            buffer, self._buffer = self._buffer, bytearray()
            cuts, self._cuts = self._cuts, []
            return buffer, len(buffer), cuts, *self._taken_times()

    def _attend(self) -> None:
        """Called when `attention_bytes` wait."""

    def _refuse(self) -> None:
        """Called in place of an append while `refusing` is set; must raise."""
        raise WrongUse("this buffer takes no messages")


def _as_bytes(data: Buffer) -> bytes:
    """What lies in a buffer, which must be one: numbers and lists are none."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.tobytes()


class _Rows:
    """Rows out of columns, with the defaults of `extend`."""

    def __init__(self, columns: Columns, now: int) -> None:
        count = columns.count
        self._now = now
        self._timestamps = _as_array("q", columns.timestamps, count)
        self._types = _as_array("B", columns.types, count)
        self._key_ends = _as_array("i", columns.key_ends, count + 1)
        self._value_ends = _as_array("i", columns.value_ends, count + 1)
        self._keys = memoryview(columns.keys if columns.keys is not None else b"").cast("B")
        self._values = memoryview(columns.values if columns.values is not None else b"").cast("B")

    def get(self, row: int) -> tuple[int, int, bytes, bytes]:
        key = _part(self._keys, self._key_ends, row)
        value = _part(self._values, self._value_ends, row)
        if len(key) > MAX_KEY_BYTES or OVERHEAD + len(key) + len(value) > MAX_MESSAGE_BYTES:
            raise WrongUse(f"row {row} is not within its columns")
        return (
            self._timestamps[row] if self._timestamps is not None else self._now,
            self._types[row] if self._types is not None else 0,
            key,
            value,
        )


def _as_array(code: str, buffer: Buffer | None, count: int) -> array[int] | None:
    if buffer is None:
        return None
    items = array(code)
    items.frombytes(memoryview(buffer).cast("B")[: count * items.itemsize])
    return items


def _part(data: memoryview, ends: array[int] | None, row: int) -> bytes:
    if ends is None:
        return b""
    if not 0 <= ends[row] <= ends[row + 1] <= len(data):
        raise WrongUse(f"row {row} is not within its columns")
    return bytes(data[ends[row] : ends[row + 1]])


def check_columns(columns: Columns) -> None:
    """Raise `WrongUse` or `TooLarge` unless every row of the columns can be a message."""
    count = columns.count
    if count < 0:
        raise WrongUse("columns cannot have a negative number of rows")
    for name, buffer, width in (
        ("timestamps", columns.timestamps, 8 * count),
        ("types", columns.types, count),
        ("key_ends", columns.key_ends, 4 * (count + 1)),
        ("value_ends", columns.value_ends, 4 * (count + 1)),
    ):
        if buffer is not None and memoryview(buffer).nbytes < width:
            raise WrongUse(f"column {name} is shorter than its {count} rows")
    for ends_buffer, data in ((columns.key_ends, columns.keys), (columns.value_ends, columns.values)):
        ends = _as_array("i", ends_buffer, count + 1)
        if ends is None:
            continue
        have = 0 if data is None else memoryview(data).nbytes
        if count and (ends[0] < 0 or ends[count] > have):
            raise WrongUse("the ends of a column lie outside of its data")
        if any(ends[row] > ends[row + 1] for row in range(count)):
            raise WrongUse("the ends of a column do not rise")
        if ends_buffer is columns.key_ends:
            longest = max((ends[row + 1] - ends[row] for row in range(count)), default=0)
            if longest > 127:
                raise TooLarge(f"a key has {longest} bytes, a sej key has at most 127")
        else:
            largest = max((ends[row + 1] - ends[row] for row in range(count)), default=0)
            if largest + OVERHEAD + 127 > MAX_MESSAGE_BYTES:
                raise TooLarge(f"a value of {largest} bytes does not fit a message")
