# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of appendfile: the same functions as in codec.py, which says what they mean. Buffers only, no I/O.

Every advance is checked against the end of the bytes first. Loops that need no Python object release the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

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
from ...core.bytes._bytes cimport copy_bytes, load_little_u32, load_little_u64, store_little_u32, store_little_u64
from ...core.bytes._column_builder cimport BytesColumn, ColumnBuilder, fits, put_bytes
from ...core.bytes._write_buffer cimport WriteBuffer, PyGC_Disable, PyGC_Enable, room_for, room_left

from collections import deque

from ...errors import TooLarge, WrongUse
from . import layout as _layout
from .codec import Columns
from .records import Checkpoint, Data, check_appendable, check_pair

cdef enum:
    DATA = 0
    CHECKPOINT = 1

cdef enum:
    CLEAN = 0
    INCOMPLETE = 1
    MALFORMED = 2
    EMPTY = 3

cdef enum:
    KINDS = 1
    SEGMENTS = 2
    PAYLOADS = 4
    CHECKED = 8
    CURRENT = 16
    POSITIONS = 32
    SIZES = 64

ALL_COLUMNS = 127
cdef enum:
    HEAD_BYTES = 4
    PAIR_BYTES = 16
    CHECKPOINT_BYTES = 20
    CHECKPOINT_HEADER = 0x1001

cdef uint32_t MAX_DATA_BYTES = _layout.MAX_DATA_BYTES
cdef uint64_t MAX_ID = _layout.MAX_ID

assert (_layout.DATA, _layout.CHECKPOINT) == (DATA, CHECKPOINT)
assert (_layout.HEADER_BYTES, _layout.PAIR_BYTES, _layout.CHECKPOINT_BYTES) == (HEAD_BYTES, PAIR_BYTES, CHECKPOINT_BYTES)
assert _layout.header(CHECKPOINT, PAIR_BYTES) == CHECKPOINT_HEADER and _layout.DESCRIBED_PAIR_BYTES == 0


# --- one record -----------------------------------------------------------------------------------------------------

cdef inline int64_t claimed(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, int *kind
) noexcept nogil:
    """The size that a record claims, and its type; -1 when it is none, 0 when that is not there.

    Both come from one load, and a caller must use these values: the bytes may change meanwhile.
    """
    cdef uint32_t head, size
    if end - position < HEAD_BYTES:
        return 0
    head = load_little_u32(data + position)
    size = head >> 8
    kind[0] = head & 0xFF
    if head & 0xFF == DATA:
        return <int64_t>size + HEAD_BYTES if size <= MAX_DATA_BYTES else -1
    if head != CHECKPOINT_HEADER and head != CHECKPOINT:
        return -1
    if end - position >= CHECKPOINT_BYTES and checked_at(data + position) > current_at(data + position):
        return -1
    return CHECKPOINT_BYTES


cdef inline uint64_t checked_at(const unsigned char *record) noexcept nogil:
    return load_little_u64(record + HEAD_BYTES)


cdef inline uint64_t current_at(const unsigned char *record) noexcept nogil:
    return load_little_u64(record + HEAD_BYTES + 8)


# --- many records ---------------------------------------------------------------------------------------------------

cdef int c_walk(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, int64_t most, bint stop_at_empty,
    int64_t *passed, uint64_t *segment,
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef int64_t count = 0
    cdef int64_t size
    cdef int kind = DATA
    cdef int ending = CLEAN
    while position < end and count != most:
        size = claimed(data, position, end, &kind)
        if size < 0:
            ending = MALFORMED
            break
        if size == 0 or end - position < size:
            ending = INCOMPLETE
            break
        if size == HEAD_BYTES and stop_at_empty:
            ending = EMPTY
            break
        if kind == CHECKPOINT:
            segment[0] = current_at(data + position)
        position += size
        count += 1
    at[0] = position
    passed[0] = count
    return ending


def walk(buffer, Py_ssize_t start, Py_ssize_t end, uint64_t segment=0, int64_t most=-1, bint stop_at_empty=False):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef int64_t count = 0
    cdef int ending
    check_range(view, start, end)
    with nogil:
        ending = c_walk(view.data, &at, end, most, stop_at_empty, &count, &segment)
    return at, count, ending, segment


cdef inline Py_ssize_t next_size(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, int *kind
) noexcept nogil:
    """The size of a walked record, and its type; -1 where no walk has passed."""
    cdef int64_t size = claimed(data, position, stop, kind)
    return -1 if size <= 0 or stop - position < size else <Py_ssize_t>size


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, size
    cdef int kind = DATA
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, (count + 1) * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(starts)
    for row in range(count):
        out[row] = position
        size = next_size(view.data, position, stop, &kind)
        if size < 0:
            raise not_walked(position)
        position += size
    out[count] = position
    return array_of("q", starts)


def records(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t segment=0):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t size, row
    cdef const unsigned char *record
    cdef int kind = DATA
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    cdef list found = []
    cdef object lies_in = segment
    for row in range(count):
        size = next_size(view.data, position, stop, &kind)
        if size < 0:
            raise not_walked(position)
        record = view.data + position
        if kind == DATA:
            payload = PyBytes_FromStringAndSize(<const char *>record + HEAD_BYTES, size - HEAD_BYTES)
            found.append(Data(payload, lies_in))
        else:
            lies_in = current_at(record)
            found.append(Checkpoint(checked_at(record), lies_in, load_little_u32(record) >> 8))
        position += size
    return found


cdef Py_ssize_t c_count_data(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, Py_ssize_t count, int64_t *data_bytes
) noexcept nogil:
    """How many of the records of a range are data, and of how many bytes; -1, and where, if it was not walked."""
    cdef Py_ssize_t position = at[0]
    cdef Py_ssize_t found = 0
    cdef Py_ssize_t row, size
    cdef int kind = DATA
    data_bytes[0] = 0
    for row in range(count):
        size = next_size(data, position, stop, &kind)
        if size < 0:
            at[0] = position
            return -1
        if kind == DATA:
            found += 1
            data_bytes[0] += size - HEAD_BYTES
        position += size
    return found


def payloads(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t size, row
    cdef int kind = DATA
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    cdef list found = []
    for row in range(count):
        size = next_size(view.data, position, stop, &kind)
        if size < 0:
            raise not_walked(position)
        if kind == DATA:
            found.append(PyBytes_FromStringAndSize(<const char *>view.data + position + HEAD_BYTES, size - HEAD_BYTES))
        position += size
    return found


cdef class Run:
    """The data of consecutive records; see codec.Run."""

    cdef bytes _data
    cdef Py_ssize_t _count

    def __init__(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
        cdef View view = View(buffer)
        check_range(view, start, stop)
        check_count(start, stop, count, HEAD_BYTES)
        self._data = PyBytes_FromStringAndSize(<const char *>view.data + start, stop - start)
        self._count = count

    def __len__(self):
        return self._count

    def __iter__(self):
        return RunIterator(self)


cdef class RunIterator:
    """Iterates over a run once. The memory of an object without other references is reused for the next one."""

    cdef bytes _data
    cdef Py_ssize_t _position
    cdef Py_ssize_t _left

    def __init__(self, Run run not None):
        self._data = run._data
        self._left = run._count

    def __iter__(self):
        return self

    def __next__(self):
        cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(self._data)
        cdef Py_ssize_t position = self._position
        cdef Py_ssize_t size
        cdef int kind = DATA
        if self._left <= 0:
            raise StopIteration
        size = next_size(data, position, PyBytes_GET_SIZE(self._data), &kind)
        if size < 0:
            raise not_walked(position)
        self._position = position + size
        self._left -= 1
        return PyBytes_FromStringAndSize(<const char *>data + position + HEAD_BYTES, size - HEAD_BYTES)


def pieces(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t following = 0
    cdef Py_ssize_t size, row
    cdef uint64_t checked, current
    cdef int kind = DATA
    cdef list found = []
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    for row in range(count):
        size = next_size(view.data, position, stop, &kind)
        if size < 0:
            raise not_walked(position)
        position += size
        if kind == CHECKPOINT:
            checked, current = checked_at(view.data + position - size), current_at(view.data + position - size)
            run = Run(buffer, start, position - size, row - following)
            found.append((run, checked, current))
            start, following = position, row + 1
    return found, Run(buffer, start, position, count - following)


def checkpoints(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t at = start
    cdef Py_ssize_t row, number
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t into = 0
    cdef int64_t data_bytes
    cdef int kind = DATA
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    number = c_count_data(view.data, &at, stop, count, &data_bytes)
    if number < 0:
        raise not_walked(at)
    number = count - number
    cdef bytes rows = PyBytes_FromStringAndSize(NULL, number * 8)
    cdef bytes positions = PyBytes_FromStringAndSize(NULL, number * 8)
    cdef bytes checked = PyBytes_FromStringAndSize(NULL, number * 8)
    cdef bytes current = PyBytes_FromStringAndSize(NULL, number * 8)
    cdef int64_t *rows_out = <int64_t *>PyBytes_AS_STRING(rows)
    cdef int64_t *positions_out = <int64_t *>PyBytes_AS_STRING(positions)
    cdef uint64_t *checked_out = <uint64_t *>PyBytes_AS_STRING(checked)
    cdef uint64_t *current_out = <uint64_t *>PyBytes_AS_STRING(current)
    with nogil:
        for row in range(count):
            size = next_size(view.data, position, stop, &kind)
            if size < 0:
                break
            if kind == CHECKPOINT and into < number:
                rows_out[into] = row
                positions_out[into] = position
                checked_out[into] = checked_at(view.data + position)
                current_out[into] = current_at(view.data + position)
                into += 1
            position += size
    if size < 0 or into < number:
        raise not_walked(position)
    return array_of("q", rows), array_of("q", positions), array_of("Q", checked), array_of("Q", current)


def follow(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t checked=0, uint64_t current=0,
    int64_t most=1, Py_ssize_t repeated=-1,
):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t size = 0
    cdef uint64_t next_checked, next_current, steps
    cdef int kind = DATA
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    with nogil:
        while row < count:
            size = next_size(view.data, position, stop, &kind)
            if size < 0:
                break
            if kind == CHECKPOINT:
                next_checked, next_current = checked_at(view.data + position), current_at(view.data + position)
                if most >= 0:
                    if next_checked < checked or next_current < current:
                        break
                    steps = next_checked - checked
                    if steps > <uint64_t>most or next_current - current > <uint64_t>most - steps:
                        break
                    if most == 1 and position != repeated and next_checked == checked and next_current == current:
                        break
                checked, current, most = next_checked, next_current, 1
            position += size
            row += 1
    if size < 0:
        raise not_walked(position)
    return position, row, checked, current


cdef Py_ssize_t c_find_checkpoint(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, uint64_t least_checked, uint64_t least_current,
    uint64_t most_current,
) noexcept nogil:
    cdef Py_ssize_t position = start
    cdef uint32_t head
    cdef uint64_t checked, current
    cdef const void *found
    while end - position >= CHECKPOINT_BYTES:
        found = memchr(data + position, CHECKPOINT, end - position - CHECKPOINT_BYTES + 1)
        if found == NULL:
            break
        position = <const unsigned char *>found - data
        head = load_little_u32(data + position)
        if head == CHECKPOINT_HEADER:
            checked, current = checked_at(data + position), current_at(data + position)
            if least_checked <= checked <= current and least_current <= current <= most_current:
                return position
        position += 1
    return -1


def find_checkpoint(
    buffer, Py_ssize_t start, Py_ssize_t end, uint64_t least_checked=0, uint64_t least_current=0,
    uint64_t most_current=0xFFFFFFFFFFFFFFFF,
):
    cdef View view = View(buffer)
    cdef Py_ssize_t found
    check_range(view, start, end)
    with nogil:
        found = c_find_checkpoint(view.data, start, end, least_checked, least_current, most_current)
    return found


cdef enum:
    # What is known of a position: records lead from there to the end; how many such records end there.
    LEADS_ON = 1
    ONE_BEFORE = 2
    MORE_BEFORE = 4


cdef inline Py_ssize_t likely_end(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, uint64_t least_current, uint64_t most_current
) noexcept nogil:
    cdef int64_t size
    cdef int kind = DATA
    if data[position] > CHECKPOINT:
        return -1
    size = claimed(data, position, end, &kind)
    if size <= HEAD_BYTES or end - position < size:
        return -1
    if kind == CHECKPOINT and (
        load_little_u32(data + position) != CHECKPOINT_HEADER
        or not least_current <= current_at(data + position) <= most_current
    ):
        return -1
    return position + <Py_ssize_t>size


cdef Py_ssize_t c_find_chain(
    const unsigned char *data, unsigned char *known, Py_ssize_t start, Py_ssize_t end, uint64_t least_current,
    uint64_t most_current, Py_ssize_t *passed,
) noexcept nogil:
    """`known` has a zero for each position from `start` to `end`, both included."""
    cdef Py_ssize_t position, after, first = end
    known[end - start] = LEADS_ON
    for position in range(end - HEAD_BYTES - 1, start - 1, -1):
        after = likely_end(data, position, end, least_current, most_current)
        if after >= 0 and known[after - start] & LEADS_ON:
            known[position - start] = LEADS_ON
            known[after - start] |= MORE_BEFORE if known[after - start] & ONE_BEFORE else ONE_BEFORE
    passed[0] = 0
    for position in range(end - HEAD_BYTES - 1, start - 1, -1):
        if known[first - start] != LEADS_ON | ONE_BEFORE:
            break
        if known[position - start] and likely_end(data, position, end, least_current, most_current) == first:
            first = position
            passed[0] += 1
    return first


def find_chain(
    buffer, Py_ssize_t start, Py_ssize_t end, uint64_t least_current=0, uint64_t most_current=0xFFFFFFFFFFFFFFFF
):
    cdef View view = View(buffer)
    cdef Py_ssize_t found, count = 0
    check_range(view, start, end)
    cdef bytearray known = bytearray(end - start + 1)
    cdef unsigned char *room = <unsigned char *>PyByteArray_AS_STRING(known)
    with nogil:
        found = c_find_chain(view.data, room, start, end, least_current, most_current, &count)
    return found, count


# --- columns --------------------------------------------------------------------------------------------------------

cdef struct Room:
    # Where the columns of one batch go. A pointer that is NULL: this column was not asked for.
    uint8_t *kinds
    uint64_t *segments
    BytesColumn data
    uint64_t *checked
    uint64_t *current
    uint64_t *positions
    int64_t *sizes
    # How many rows fit, and how many are there.
    int64_t rows
    int64_t row


cdef int c_gather(
    Room *into, const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int64_t count, uint64_t base,
    uint64_t *lies_in,
) noexcept nogil:
    """Put at most `count` records into their columns, as many as fit; -1 at bytes that no walk has passed."""
    cdef Room room = into[0]  # a copy, which the compiler can keep in registers
    cdef Py_ssize_t position = at[0]
    cdef int64_t last_row = min(room.rows, room.row + count)
    cdef uint64_t segment = lies_in[0]
    cdef int64_t size, payload
    cdef const unsigned char *record
    cdef bint is_checkpoint
    cdef int kind = DATA
    cdef int answer = 0
    while room.row < last_row:
        size = next_size(data, position, stop, &kind)
        if size < 0:
            answer = -1
            break
        record = data + position
        is_checkpoint = kind == CHECKPOINT
        payload = 0 if is_checkpoint else size - HEAD_BYTES
        if not fits(&room.data, payload):
            break
        if is_checkpoint:
            segment = current_at(record)
        if room.kinds != NULL:
            room.kinds[room.row] = <uint8_t>kind
        if room.segments != NULL:
            room.segments[room.row] = segment
        if room.checked != NULL:
            room.checked[room.row] = checked_at(record) if is_checkpoint else 0
        if room.current != NULL:
            room.current[room.row] = segment if is_checkpoint else 0
        put_bytes(&room.data, room.row, record + HEAD_BYTES, payload, stop - position - HEAD_BYTES)
        if room.positions != NULL:
            room.positions[room.row] = base + <uint64_t>position
        if room.sizes != NULL:
            room.sizes[room.row] = size
        position += size
        room.row += 1
    at[0] = position
    lies_in[0] = segment
    into[0] = room
    return answer


cdef class BatchBuilder(ColumnBuilder):
    """The records of many ranges as the columns of one batch; see codec.BatchBuilder."""

    cdef Room _room

    def __init__(self, int want, Py_ssize_t rows, Py_ssize_t data_bytes, allocate=bytearray):
        self._begin(Columns(0), rows, {"data": data_bytes}, allocate)
        self._room.rows = rows
        self._room.kinds = <uint8_t *>self._numbers(want & KINDS, "kinds", 1)
        self._room.segments = <uint64_t *>self._numbers(want & SEGMENTS, "segments", 8)
        self._bytes(want & PAYLOADS, "data", "data_ends", &self._room.data)
        self._room.checked = <uint64_t *>self._numbers(want & CHECKED, "checked", 8)
        self._room.current = <uint64_t *>self._numbers(want & CURRENT, "current", 8)
        self._room.positions = <uint64_t *>self._numbers(want & POSITIONS, "positions", 8)
        self._room.sizes = <int64_t *>self._numbers(want & SIZES, "sizes", 8)

    @property
    def count(self):
        """How many records are there."""
        return self._room.row

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t segment=0, uint64_t base=0):
        """Add the records of a walked range, as many as fit; where the rest begins, how many were added, the segment."""
        cdef View view = View(buffer)
        cdef Py_ssize_t at = start
        cdef int64_t before = self._room.row
        cdef int answer
        self._check_ours()
        check_range(view, start, stop)
        check_count(start, stop, count, HEAD_BYTES)
        self._busy = True
        with nogil:
            answer = c_gather(&self._room, view.data, &at, stop, count, base, &segment)
        self._busy = False
        if answer < 0:
            raise not_walked(at)
        return at, self._room.row - before, segment

    def take(self):
        """The columns. Their buffers are as long as what was asked for: `count` says how many rows are in them."""
        return self._leave(self._room.row)


def columns(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t segment=0, int want=127, uint64_t base=0
):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef int64_t data_bytes = 0
    check_range(view, start, stop)
    check_count(start, stop, count, HEAD_BYTES)
    if c_count_data(view.data, &at, stop, count, &data_bytes) < 0:
        raise not_walked(at)
    builder = BatchBuilder(want, count, data_bytes)
    builder.add(buffer, start, stop, count, segment, base)
    return builder.take()


# --- building what will be written ----------------------------------------------------------------------------------

cdef inline void put_pair(unsigned char *out, uint64_t checked, uint64_t current) noexcept nogil:
    store_little_u32(out, CHECKPOINT_HEADER)
    store_little_u64(out + HEAD_BYTES, checked)
    store_little_u64(out + HEAD_BYTES + 8, current)


cdef class AppendBuffer(WriteBuffer):
    """Records on their way to the files of a journal; see codec.AppendBuffer."""

    cdef public uint64_t file_id
    cdef public int64_t position
    cdef public int64_t file_bytes
    cdef public uint64_t checked
    cdef public uint64_t current
    cdef public bint has_data
    cdef readonly int64_t added
    cdef object _starts
    cdef list _cuts
    cdef uint64_t _due

    def __init__(
        self, Py_ssize_t attention_bytes, uint64_t file_id=0, int64_t position=0, int64_t file_bytes=4 << 20,
        uint64_t checked=0, uint64_t current=0, bint has_data=False, starts=(),
    ):
        WriteBuffer.__init__(self, attention_bytes)
        self.file_id = file_id
        self.position = position
        self.file_bytes = file_bytes
        self.checked = checked
        self.current = current
        self.has_data = has_data
        self._starts = deque(starts)
        self._cuts = []

    cdef int _make_room(self, int64_t size) except -1:
        """Let the next file begin if a record does not fit this one; a file begins with a hint."""
        cdef bint collecting
        if self.position > CHECKPOINT_BYTES and self.position + size > self.file_bytes:
            if self.file_id == MAX_ID:
                raise TooLarge("the journal has used up its 64-bit ids of files")
            self.file_id += 1
            self.position = 0
            collecting = PyGC_Disable()  # or a record might be appended before this is noted
            try:
                self._cuts.append((self._used, self.file_id, bool(self.has_data)))
            finally:
                if collecting:
                    PyGC_Enable()
        if self.position == 0:
            self._put_hint()
        return 0

    cdef int _put_hint(self) except -1:
        put_pair(room_for(self, CHECKPOINT_BYTES), self.checked, self.current)
        self._used += CHECKPOINT_BYTES
        self.position += CHECKPOINT_BYTES
        self.added += 1
        return 0

    cdef int _put_data(self, const unsigned char *source, int64_t size, int64_t readable) except -1:
        cdef unsigned char *out
        cdef int64_t whole = size + HEAD_BYTES
        cdef bint collecting
        if self.refusing:
            self.refuse()
        if self.position == 0 or self.position + whole > self.file_bytes:
            self._make_room(whole)
        out = room_for(self, whole)
        store_little_u32(out, <uint32_t>size << 8)
        copy_bytes(out + HEAD_BYTES, source, size, room_left(self) - HEAD_BYTES, readable)
        self._used += whole
        self.position += whole
        self.added += 1
        if not self.has_data:
            self.has_data = True
            collecting = PyGC_Disable()
            try:
                self._starts.append((self.current, self.file_id))
            finally:
                if collecting:
                    PyGC_Enable()
        return 0

    @cython.binding(False)  # a bound method of it is called faster
    def append(self, data):
        """Add one record of data, which must not be empty: at the end of a file it would look like nothing."""
        cdef Py_buffer view
        if self.refusing:
            self.refuse()
        if isinstance(data, bytes):
            self._check_size(PyBytes_GET_SIZE(data))
            self._put_data(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), PyBytes_GET_SIZE(data))
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                self._check_size(view.len)
                self._put_data(<const unsigned char *>view.buf, view.len, view.len)
            finally:
                PyBuffer_Release(&view)
        if self._used >= self.attention_bytes:
            self.attend()

    cdef inline int _check_size(self, Py_ssize_t size) except -1:
        if size == 0 or size > MAX_DATA_BYTES:
            check_appendable(size)
        return 0

    def register(self):
        """Close the current segment, unless it is empty; the id of the one that is being written from now on."""
        cdef uint64_t current
        if self.refusing:
            self.refuse()
        if not self.has_data:
            return self.current
        if self.current == MAX_ID:
            raise TooLarge("the journal has used up its 64-bit ids of segments")
        self.current += 1
        self.has_data = False
        self._make_room(CHECKPOINT_BYTES)
        self._put_hint()
        current = self.current
        if self._used >= self.attention_bytes:
            self.attend()
        return current

    def check(self):
        """Retire the oldest closed segment; the id of the oldest file that is needed from now on."""
        cdef uint64_t due
        if self.refusing:
            self.refuse()
        if self.checked == self.current:
            raise WrongUse("there is no checkpoint to check: all that were registered have been")
        self.checked += 1
        self._make_room(CHECKPOINT_BYTES)
        self._put_hint()
        due = self._due = self._oldest_needed()
        if self._used >= self.attention_bytes:
            self.attend()
        return due

    cdef uint64_t _oldest_needed(self) except? 0xFFFFFFFFFFFFFFFF:
        starts = self._starts
        if self.checked == self.current and not self.has_data:
            starts.clear()
        while len(starts) > 1 and starts[1][0] <= self.checked:
            starts.popleft()
        return starts[0][1] if starts else self.file_id

    def begin(self):
        """Add the hint of the first file, if nothing was added yet."""
        if self.refusing:
            self.refuse()
        if self.position == 0:
            self._put_hint()
        if self._used >= self.attention_bytes:
            self.attend()

    def extend(self, columns, Py_ssize_t row, Py_ssize_t enough_bytes):
        """Add the data of rows from `row` on, up to a checkpoint or until `enough_bytes` wait; returns the next row."""
        cdef list views = []
        cdef Py_ssize_t count = rows_of(columns)
        cdef int64_t data_bytes = 0
        cdef int64_t begin, end
        cdef const uint8_t *kinds
        cdef const int32_t *ends
        cdef const unsigned char *data
        if self.refusing:
            self.refuse()
        if row < 0:
            raise WrongUse("rows count from 0")
        kinds = <const uint8_t *>column_memory(columns.kinds, count, "kinds", views)
        ends = <const int32_t *>column_memory(columns.data_ends, (count + 1) * 4, "data_ends", views)
        data = column_bytes(columns.data, &data_bytes, views)
        while row < count and self._used < enough_bytes:
            if kinds != NULL and kinds[row] == CHECKPOINT:
                break
            begin = end = 0
            if ends != NULL:
                begin, end = ends[row], ends[row + 1]
            if not 0 <= begin < end <= data_bytes or end - begin > MAX_DATA_BYTES:
                raise WrongUse(f"row {row} is not within its columns")
            self._put_data(data + begin, end - begin, data_bytes - begin)
            row += 1
        return row

    def take(self):
        """What has gathered, where in it the next files begin, and the id of the oldest file that is needed."""
        cdef list fresh = []  # first: the collector may run here, and what it runs may append
        cdef Py_ssize_t used = self._used
        cdef list cuts = self._cuts
        cdef uint64_t due = self._due
        self._cuts = fresh
        self._due = 0
        return self._swap(), used, cuts, due


# --- columns to bytes -----------------------------------------------------------------------------------------------

cdef int check_kind(const uint8_t *kinds, Py_ssize_t row) except -1:
    """The type of the record of a row."""
    if kinds == NULL:
        return DATA
    if kinds[row] > CHECKPOINT:
        raise WrongUse(f"row {row}: there are no records of type {kinds[row]}")
    return kinds[row]


def check_columns(columns):
    cdef list views = []
    cdef Py_ssize_t count = rows_of(columns)
    cdef Py_ssize_t row
    cdef int64_t data_bytes = 0
    cdef const uint8_t *kinds = <const uint8_t *>column_memory(columns.kinds, count, "kinds", views)
    column_memory(columns.checked, count * 8, "checked", views)
    column_memory(columns.current, count * 8, "current", views)
    cdef const int32_t *ends = <const int32_t *>column_memory(columns.data_ends, (count + 1) * 4, "data_ends", views)
    column_bytes(columns.data, &data_bytes, views)
    check_ends(ends, count, data_bytes, MAX_DATA_BYTES, "record")
    for row in range(count):
        if check_kind(kinds, row) == DATA and (ends == NULL or ends[row] == ends[row + 1]):
            raise WrongUse(f"row {row}: an empty record cannot be distinguished from the zeros that a power cut leaves")


def pack(columns, Py_ssize_t row, Py_ssize_t enough_bytes):
    cdef list views = []
    cdef Py_ssize_t count = rows_of(columns)
    cdef const uint8_t *kinds = <const uint8_t *>column_memory(columns.kinds, count, "kinds", views)
    cdef const uint64_t *checked = <const uint64_t *>column_memory(columns.checked, count * 8, "checked", views)
    cdef const uint64_t *current = <const uint64_t *>column_memory(columns.current, count * 8, "current", views)
    cdef const int32_t *ends = <const int32_t *>column_memory(columns.data_ends, (count + 1) * 4, "data_ends", views)
    cdef int64_t data_bytes = 0
    cdef const unsigned char *data = column_bytes(columns.data, &data_bytes, views)
    if row < 0:
        raise WrongUse("rows count from 0")
    cdef bytearray found = PyByteArray_FromStringAndSize(NULL, max(64, min(enough_bytes, 1 << 20) + 4096))
    cdef int64_t used = 0
    cdef int64_t start, size, whole
    cdef uint64_t checked_id, current_id
    cdef Py_ssize_t first = row
    cdef unsigned char *out
    cdef int kind
    while row < count and used < enough_bytes:
        kind = check_kind(kinds, row)
        start = size = 0
        if kind == DATA and ends != NULL:
            start, size = ends[row], <int64_t>ends[row + 1] - ends[row]
            if start < 0 or size < 0 or start + size > data_bytes:
                raise WrongUse(f"row {row} is not within its columns")
            if size > MAX_DATA_BYTES:
                raise TooLarge(f"row {row}: a record of {size} bytes is more than a journal can hold")
        whole = HEAD_BYTES + size if kind == DATA else CHECKPOINT_BYTES
        if whole > len(found) - used:
            PyByteArray_Resize(found, max(len(found) * 2, used + whole))
        out = <unsigned char *>PyByteArray_AS_STRING(found) + used
        if kind == DATA:
            store_little_u32(out, <uint32_t>size << 8)
            copy_bytes(out + HEAD_BYTES, data + start, size, len(found) - used - HEAD_BYTES, data_bytes - start)
        else:
            checked_id = 0 if checked == NULL else checked[row]
            current_id = 0 if current == NULL else current[row]
            if checked_id > current_id:
                check_pair(checked_id, current_id)
            put_pair(out, checked_id, current_id)
        used += whole
        row += 1
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(found), used), row - first, row
