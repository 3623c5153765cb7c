# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of sej: the same functions as in codec.py, which says what they mean. Buffers only, no I/O.

Every advance is checked against the end of the bytes first. Loops that need no Python object release the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_AsLongLongAndOverflow
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ...core.bytes._buffers cimport (
    View,
    array_of,
    check_count,
    check_ends,
    check_range,
    column_bytes,
    column_memory,
    not_walked,
    rows_of,
)
from ...core.bytes._bytes cimport load_big_i32, load_big_i64, load_big_u64, now_ns
from ...core.bytes._column_builder cimport BytesColumn, ColumnBuilder, fits, put_bytes
from ...core.bytes._write_buffer cimport WriteBuffer, PyGC_Disable, PyGC_Enable, room_for, room_left
from ._frame cimport HEAD, OVERHEAD, claimed, put_message
from ._message cimport Message

from ...errors import TooLarge, WrongUse
from .codec import Columns
from .layout import MAX_KEY_BYTES as _MAX_KEY_BYTES
from .layout import MAX_MESSAGE_BYTES as _MAX_MESSAGE_BYTES
from .layout import OVERHEAD as _OVERHEAD
from .layout import check_fields
from .records import NOW

cdef int64_t NO_TIMESTAMP = <int64_t>0x8000000000000000ULL
cdef int64_t MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFF
cdef int64_t MAX_MESSAGE_BYTES = _MAX_MESSAGE_BYTES
cdef int MAX_KEY_BYTES = _MAX_KEY_BYTES
if _OVERHEAD != OVERHEAD:
    raise ImportError("the kernel and layout.py disagree about the size of a message")

cdef enum:
    CLEAN = 0
    INCOMPLETE = 1
    MALFORMED = 2
    UNEXPECTED_OFFSET = 3

cdef enum:
    OFFSETS = 1
    TIMESTAMPS = 2
    TYPES = 4
    KEYS = 8
    VALUES = 16
    POSITIONS = 32
    SIZES = 64

ALL_COLUMNS = 127


cdef int c_walk(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, uint64_t expected, int64_t most,
    int64_t *passed, int64_t *smallest, int64_t *largest,
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef int64_t count = 0
    cdef int64_t size, timestamp
    cdef int64_t key_size = 0
    cdef int64_t bottom = MAX_TIMESTAMP
    cdef int64_t top = NO_TIMESTAMP
    cdef int ending = CLEAN
    cdef bint as_expected
    while position < end and count != most:
        if end - position < HEAD:
            ending = INCOMPLETE
            break
        size = claimed(data, position, end, &key_size)
        if size < 0:
            ending = MALFORMED
            break
        as_expected = load_big_u64(data + position) == expected + <uint64_t>count
        if size == 0 or end - position < size:
            ending = INCOMPLETE if as_expected else MALFORMED
            break
        if load_big_i32(data + position + size - 4) != size:
            ending = MALFORMED
            break
        if not as_expected:
            ending = UNEXPECTED_OFFSET
            break
        timestamp = load_big_i64(data + position + 8)
        if timestamp > top:
            top = timestamp
        if timestamp < bottom and timestamp != NO_TIMESTAMP:
            bottom = timestamp
        position += size
        count += 1
    at[0] = position
    passed[0] = count
    smallest[0] = bottom
    largest[0] = top
    return ending


def walk(buffer, Py_ssize_t start, Py_ssize_t end, uint64_t expected, int64_t most=-1):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef int64_t count = 0
    cdef int64_t smallest = 0
    cdef int64_t largest = 0
    cdef int ending
    check_range(view, start, end)
    with nogil:
        ending = c_walk(view.data, &at, end, expected, most, &count, &smallest, &largest)
    return at, count, ending, smallest, largest


cdef inline Py_ssize_t next_size(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, int64_t *key_size
) except -1:
    cdef int64_t size = claimed(data, position, stop, key_size)
    if size <= 0 or stop - position < size:
        raise not_walked(position)
    return <Py_ssize_t>size


cdef inline Message make_message(const unsigned char *data, Py_ssize_t size, int64_t key_size):
    cdef Message message = Message.__new__(Message)
    message.offset = load_big_u64(data)
    message.stamp = load_big_i64(data + 8)
    message.type = data[16]
    message.key = PyBytes_FromStringAndSize(<const char *>data + HEAD, key_size)
    message.value = PyBytes_FromStringAndSize(<const char *>data + HEAD + key_size + 4, size - OVERHEAD - key_size)
    return message


def messages(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t size, row
    cdef int64_t key_size = 0
    check_range(view, start, stop)
    check_count(start, stop, count, OVERHEAD)
    cdef list found = [None] * count
    for row in range(count):  # nothing in here runs Python
        size = next_size(view.data, position, stop, &key_size)
        found[row] = make_message(view.data + position, size, key_size)
        position += size
    return found


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row
    cdef int64_t key_size = 0
    check_range(view, start, stop)
    check_count(start, stop, count, OVERHEAD)
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, (count + 1) * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(starts)
    for row in range(count):
        out[row] = position
        position += next_size(view.data, position, stop, &key_size)
    out[count] = position
    return array_of("q", starts)


cdef struct Room:
    # Where the columns of one batch go. A pointer that is NULL: this column was not asked for.
    uint64_t *offsets
    int64_t *timestamps
    uint8_t *types
    BytesColumn keys
    BytesColumn values
    uint64_t *positions
    int32_t *sizes
    # How many rows fit, and what is there.
    int64_t rows
    int64_t row
    int64_t untimed


cdef int c_gather(
    Room *into, const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int64_t count, uint64_t base,
) noexcept nogil:
    """Put at most `count` messages into their columns, as many as fit; -1 at bytes that no walk has passed."""
    cdef Room room = into[0]  # a copy, which the compiler can keep in registers
    cdef Py_ssize_t position = at[0]
    cdef int64_t last_row = min(room.rows, room.row + count)
    cdef int64_t size, value_size, timestamp
    cdef int64_t key_size = 0
    cdef const unsigned char *message
    cdef int answer = 0
    while room.row < last_row:
        size = claimed(data, position, stop, &key_size)
        if size <= 0 or stop - position < size:
            answer = -1
            break
        message = data + position
        value_size = size - OVERHEAD - key_size
        if not fits(&room.keys, key_size) or not fits(&room.values, value_size):
            break
        if room.offsets != NULL:
            room.offsets[room.row] = load_big_u64(message)
        if room.timestamps != NULL:
            timestamp = load_big_i64(message + 8)
            room.timestamps[room.row] = timestamp
            room.untimed += timestamp == NO_TIMESTAMP
        if room.types != NULL:
            room.types[room.row] = message[16]
        put_bytes(&room.keys, room.row, message + HEAD, key_size, stop - position - HEAD)
        put_bytes(
            &room.values, room.row, message + HEAD + key_size + 4, value_size, stop - position - HEAD - key_size - 4
        )
        if room.positions != NULL:
            room.positions[room.row] = base + <uint64_t>position
        if room.sizes != NULL:
            room.sizes[room.row] = <int32_t>size
        position += size
        room.row += 1
    at[0] = position
    into[0] = room
    return answer


cdef class BatchBuilder(ColumnBuilder):
    """The messages of many ranges as the columns of one batch; see codec.BatchBuilder."""

    cdef Room _room

    def __init__(self, int want, Py_ssize_t rows, Py_ssize_t key_bytes, Py_ssize_t value_bytes, allocate=bytearray):
        self._begin(Columns(0), rows, {"keys": key_bytes, "values": value_bytes}, allocate)
        self._room.rows = rows
        self._bytes(want & KEYS, "keys", "key_ends", &self._room.keys)
        self._bytes(want & VALUES, "values", "value_ends", &self._room.values)
        self._room.offsets = <uint64_t *>self._numbers(want & OFFSETS, "offsets", 8)
        self._room.timestamps = <int64_t *>self._numbers(want & TIMESTAMPS, "timestamps", 8)
        self._room.types = <uint8_t *>self._numbers(want & TYPES, "types", 1)
        self._room.positions = <uint64_t *>self._numbers(want & POSITIONS, "positions", 8)
        self._room.sizes = <int32_t *>self._numbers(want & SIZES, "sizes", 4)

    @property
    def count(self):
        """How many messages are there."""
        return self._room.row

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t base=0):
        """Add the messages of a walked range, as many as fit; where the rest begins, and how many were added."""
        cdef View view = View(buffer)
        cdef Py_ssize_t at = start
        cdef int64_t before = self._room.row
        cdef int answer
        self._check_ours()
        check_range(view, start, stop)
        check_count(start, stop, count, OVERHEAD)
        self._busy = True
        with nogil:
            answer = c_gather(&self._room, view.data, &at, stop, count, base)
        self._busy = False
        if answer < 0:
            raise not_walked(at)
        return at, self._room.row - before

    def take(self):
        """The columns. Their buffers are as long as what was asked for: `count` says how many rows are in them."""
        columns = self._leave(self._room.row)
        columns.untimed = self._room.untimed
        return columns


def columns(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int want=ALL_COLUMNS, uint64_t base=0
):
    cdef View view = View(buffer)
    cdef const unsigned char *data = view.data
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row = 0
    cdef int64_t size = 0
    cdef int64_t key_size = 0
    cdef int64_t key_bytes = 0
    cdef int64_t value_bytes = 0
    check_range(view, start, stop)
    check_count(start, stop, count, OVERHEAD)
    with nogil:
        while row < count:
            size = claimed(data, position, stop, &key_size)
            if size <= 0 or stop - position < size:
                break
            key_bytes += key_size
            value_bytes += size - OVERHEAD - key_size
            position += size
            row += 1
    if row < count:
        raise not_walked(position)
    cdef BatchBuilder builder = BatchBuilder(want, count, key_bytes, value_bytes)
    builder.add(buffer, start, stop, count, base)
    return builder.take()


def find_head(buffer, Py_ssize_t start, Py_ssize_t end, uint64_t least, uint64_t most, int64_t room):
    cdef View view = View(buffer)
    cdef const unsigned char *data = view.data
    cdef Py_ssize_t position
    cdef Py_ssize_t found = -1
    cdef uint64_t offset
    cdef int64_t size
    cdef int64_t key_size = 0
    check_range(view, start, end)
    with nogil:
        for position in range(start, end - HEAD - 4 + 1):
            offset = load_big_u64(data + position)
            if offset < least or offset > most:
                continue
            size = claimed(data, position, end, &key_size)
            if size < 0 or (size > 0 and position + size > room):
                continue
            if size == 0 or position + size > end or load_big_i32(data + position + size - 4) == size:
                found = position
                break
    return found


def check_columns(columns):
    cdef Py_ssize_t count = rows_of(columns)
    cdef list views = []
    cdef const int32_t *ends
    cdef int64_t have
    column_memory(columns.timestamps, count * 8, "timestamps", views)
    column_memory(columns.types, count, "types", views)
    ends = <const int32_t *>column_memory(columns.key_ends, (count + 1) * 4, "key_ends", views)
    column_bytes(columns.keys, &have, views)
    check_ends(ends, count, have, MAX_KEY_BYTES, "key")
    ends = <const int32_t *>column_memory(columns.value_ends, (count + 1) * 4, "value_ends", views)
    column_bytes(columns.values, &have, views)
    check_ends(ends, count, have, MAX_MESSAGE_BYTES - OVERHEAD - MAX_KEY_BYTES, "value")


cdef struct Rows:
    # Columns to be packed; NULL for a missing one.
    const int64_t *timestamps
    const uint8_t *types
    const int32_t *key_ends
    const unsigned char *keys
    const int32_t *value_ends
    const unsigned char *values
    int64_t key_bytes
    int64_t value_bytes
    int64_t now
    Py_ssize_t count


cdef struct Target:
    # Where they are packed to, and what an append buffer counts.
    unsigned char *buffer
    Py_ssize_t used
    Py_ssize_t size
    uint64_t next_offset
    int64_t segment_used
    int64_t segment_bytes
    int64_t smallest_timestamp
    int64_t largest_timestamp


cdef int _open_rows(Rows *rows, object columns, int64_t now, list views) except -1:
    """The memory of columns, which `views` keeps alive."""
    cdef Py_ssize_t count = rows_of(columns)
    rows.count = count
    rows.now = now
    rows.timestamps = <const int64_t *>column_memory(columns.timestamps, count * 8, "timestamps", views)
    rows.types = <const uint8_t *>column_memory(columns.types, count, "types", views)
    rows.key_ends = <const int32_t *>column_memory(columns.key_ends, (count + 1) * 4, "key_ends", views)
    rows.keys = column_bytes(columns.keys, &rows.key_bytes, views)
    rows.value_ends = <const int32_t *>column_memory(columns.value_ends, (count + 1) * 4, "value_ends", views)
    rows.values = column_bytes(columns.values, &rows.value_bytes, views)
    return 0


cdef enum:
    PACKED = 0
    SEGMENT_FULL = 1
    BUFFER_FULL = 2
    ROW_OUTSIDE = 3
    OFFSETS_USED_UP = 4


cdef int c_pack(const Rows *rows, Py_ssize_t *at, Target *into, Py_ssize_t enough_bytes) noexcept nogil:
    """Pack rows until there are no more or `enough_bytes` wait, or until something needs the caller."""
    cdef Target target = into[0]
    cdef Py_ssize_t row = at[0]
    cdef int64_t key_at, key_size, value_at, value_size, size, timestamp
    cdef int answer = PACKED
    while row < rows.count:
        key_at = key_size = value_at = value_size = 0
        if rows.key_ends != NULL:
            key_at = rows.key_ends[row]
            key_size = rows.key_ends[row + 1] - key_at
        if rows.value_ends != NULL:
            value_at = rows.value_ends[row]
            value_size = rows.value_ends[row + 1] - value_at
        size = OVERHEAD + key_size + value_size
        if (
            key_at < 0 or key_size < 0 or key_size > 127 or key_at + key_size > rows.key_bytes
            or value_at < 0 or value_size < 0 or value_at + value_size > rows.value_bytes
            or size > 0x7FFFFFFF
        ):
            answer = ROW_OUTSIDE
            break
        if target.next_offset == 0xFFFFFFFFFFFFFFFFULL:
            answer = OFFSETS_USED_UP
            break
        if size > target.size - target.used:
            answer = BUFFER_FULL
            break
        timestamp = rows.now if rows.timestamps == NULL else rows.timestamps[row]
        put_message(
            target.buffer + target.used, target.size - target.used, target.next_offset, timestamp,
            0 if rows.types == NULL else rows.types[row],
            rows.keys + key_at, key_size, rows.key_bytes - key_at,
            rows.values + value_at, value_size, rows.value_bytes - value_at,
        )
        target.used += size
        target.next_offset += 1
        target.segment_used += size
        if timestamp > target.largest_timestamp:
            target.largest_timestamp = timestamp
        if timestamp < target.smallest_timestamp and timestamp != NO_TIMESTAMP:
            target.smallest_timestamp = timestamp
        row += 1
        if target.segment_used >= target.segment_bytes:
            answer = SEGMENT_FULL
            break
        if target.used >= enough_bytes:
            break
    at[0] = row
    into[0] = target
    return answer


class _Sized:
    """Something of a length, for a message that cannot be."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


cdef class AppendBuffer(WriteBuffer):
    """Messages on their way to a segment; see codec.AppendBuffer."""

    cdef public uint64_t next_offset
    cdef public int64_t segment_used
    cdef public int64_t segment_bytes
    cdef public int64_t smallest_timestamp
    cdef public int64_t largest_timestamp
    cdef list _cuts

    def __init__(
        self, uint64_t next_offset, int64_t segment_used, int64_t segment_bytes, Py_ssize_t attention_bytes,
    ):
        WriteBuffer.__init__(self, attention_bytes)
        self.smallest_timestamp = MAX_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self.next_offset = next_offset
        self.segment_used = segment_used
        self.segment_bytes = segment_bytes
        self._cuts = []

    @cython.binding(False)  # a bound method of it is called faster
    def append(self, value, key=b"", type=0, timestamp=NOW):
        """Add one message at the end; its offset. See `Writer` for when it is durable."""
        cdef Py_buffer value_view
        cdef Py_buffer key_view
        cdef const char *value_data
        cdef const char *key_data
        cdef Py_ssize_t value_size, key_size
        cdef int64_t when
        cdef long kind
        cdef int overflow
        cdef uint64_t offset
        cdef bint value_held = False
        cdef bint key_held = False
        if self.refusing:
            self.refuse()
        if timestamp is NOW:
            when = now_ns()
        elif timestamp is None:
            when = NO_TIMESTAMP
        else:
            if not isinstance(timestamp, int):
                timestamp = PyNumber_Index(timestamp)
            when = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
            if overflow or when == NO_TIMESTAMP:
                check_fields(b"", b"", 0, timestamp)
        if not isinstance(type, int):
            type = PyNumber_Index(type)
        kind = PyLong_AsLongAndOverflow(type, &overflow)
        if overflow:
            kind = -1
        try:
            if isinstance(value, bytes):
                value_data = PyBytes_AS_STRING(value)
                value_size = PyBytes_GET_SIZE(value)
            else:
                PyObject_GetBuffer(value, &value_view, PyBUF_SIMPLE)
                value_held = True
                value_data = <const char *>value_view.buf
                value_size = value_view.len
            if isinstance(key, bytes):
                key_data = PyBytes_AS_STRING(key)
                key_size = PyBytes_GET_SIZE(key)
            else:
                PyObject_GetBuffer(key, &key_view, PyBUF_SIMPLE)
                key_held = True
                key_data = <const char *>key_view.buf
                key_size = key_view.len
            if (
                key_size > MAX_KEY_BYTES
                or value_size + key_size + OVERHEAD > MAX_MESSAGE_BYTES
                or kind < 0
                or kind > 255
            ):
                # As bytes: the length of any other buffer may count items that are wider.
                check_fields(_Sized(value_size), _Sized(key_size), type, None)
            offset = self._add(
                when, <uint8_t>kind, key_data, key_size, key_size, value_data, value_size, value_size
            )
        finally:
            if value_held:
                PyBuffer_Release(&value_view)
            if key_held:
                PyBuffer_Release(&key_view)
        if self._used >= self.attention_bytes:
            self.attend()
        return offset

    cdef uint64_t _add(
        self, int64_t timestamp, uint8_t kind, const char *key, Py_ssize_t key_size, Py_ssize_t key_room,
        const char *value, Py_ssize_t value_size, Py_ssize_t value_room,
    ) except? 0xFFFFFFFFFFFFFFFF:
        cdef Py_ssize_t size = OVERHEAD + key_size + value_size
        cdef uint64_t offset = self.next_offset
        cdef unsigned char *out
        if self.refusing:  # since it was asked Python has run, to convert what was given
            self.refuse()
        if offset == 0xFFFFFFFFFFFFFFFFULL:
            raise TooLarge("the journal has used up its 64-bit offsets")
        out = room_for(self, size)
        put_message(
            out, room_left(self), offset, timestamp, kind,
            <const unsigned char *>key, key_size, key_room, <const unsigned char *>value, value_size, value_room,
        )
        self._used += size
        self.next_offset = offset + 1
        self.segment_used += size
        if timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
        if timestamp < self.smallest_timestamp and timestamp != NO_TIMESTAMP:
            self.smallest_timestamp = timestamp
        if self.segment_used >= self.segment_bytes:
            self._cut()
        return offset

    cdef int _cut(self) except -1:
        """What comes after this belongs to the next segment."""
        cdef bint collecting = PyGC_Disable()  # or a message might be appended before this is noted
        try:
            self._cuts.append((self._used, self.next_offset, self.smallest_timestamp, self.largest_timestamp))
        finally:
            if collecting:
                PyGC_Enable()
        self.segment_used = 0
        self.smallest_timestamp = MAX_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        return 0

    def extend(self, columns, Py_ssize_t start, int64_t now, Py_ssize_t enough_bytes):
        """Add messages of columns from row `start` on, until `enough_bytes` wait; the row to go on with."""
        cdef list views = []
        cdef Py_ssize_t row = start
        cdef Py_ssize_t size
        cdef int answer
        cdef Rows rows
        cdef Target target
        if self.refusing:
            self.refuse()
        if start < 0:
            raise WrongUse("rows count from 0")
        _open_rows(&rows, columns, now, views)
        if self.refusing:
            self.refuse()
        while True:
            # The GIL is held: it is what keeps other threads from appending meanwhile.
            target.buffer = <unsigned char *>PyByteArray_AS_STRING(self._buffer)
            target.used = self._used
            target.size = len(self._buffer)
            target.next_offset = self.next_offset
            target.segment_used = self.segment_used
            target.segment_bytes = self.segment_bytes
            target.smallest_timestamp = self.smallest_timestamp
            target.largest_timestamp = self.largest_timestamp
            answer = c_pack(&rows, &row, &target, enough_bytes)
            self._used = target.used
            self.next_offset = target.next_offset
            self.segment_used = target.segment_used
            self.smallest_timestamp = target.smallest_timestamp
            self.largest_timestamp = target.largest_timestamp
            if answer == SEGMENT_FULL:
                self._cut()
            elif answer == BUFFER_FULL:
                size = OVERHEAD + MAX_KEY_BYTES
                if rows.value_ends != NULL:
                    size += rows.value_ends[row + 1] - rows.value_ends[row]
                room_for(self, size)
            elif answer == ROW_OUTSIDE:
                raise WrongUse(f"row {row} is not within its columns")
            elif answer == OFFSETS_USED_UP:
                raise TooLarge("the journal has used up its 64-bit offsets")
            if answer == PACKED or self._used >= enough_bytes:
                return row

    def take(self):
        """What has gathered: a buffer, how much of it counts, the cuts in it, and smallest and largest timestamp."""
        cdef list fresh = []  # first: the collector may run here, and what it runs may append
        cdef Py_ssize_t used = self._used
        cdef list cuts = self._cuts
        cdef int64_t smallest = self.smallest_timestamp
        cdef int64_t largest = self.largest_timestamp
        self._cuts = fresh
        self.smallest_timestamp = MAX_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        return self._swap(), used, cuts, smallest, largest
