# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of kestrel: the same functions as in codec.py, which says what they mean. Buffers only, no I/O.

Every advance is checked against the end of the bytes first. Loops that need no Python object release the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from array import array

from ...core.errors import TooLarge, WrongUse
from ...core.outcome import Malformed
from . import layout as _layout
from .codec import Columns
from .records import OP_NAMES, Operation, check_item, check_xid

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define SWAP64(v) __builtin_bswap64(v)
    #define SWAP32(v) __builtin_bswap32(v)
    #else
    #define SWAP64(v) (v)
    #define SWAP32(v) (v)
    #endif
    static inline int64_t load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)SWAP64(v); }
    static inline int32_t load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)SWAP32(v); }
    static inline void store64(unsigned char *p, uint64_t v) { v = SWAP64(v); memcpy(p, &v, 8); }
    static inline void store32(unsigned char *p, uint32_t v) { v = SWAP32(v); memcpy(p, &v, 4); }
    static inline int64_t now_ms(void) {
        struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000LL + t.tv_nsec / 1000000;
    }

    /* Copy a few bytes. Where there is room to spare on both sides, copy a fixed number of them, which the compiler
       turns into a few instructions instead of a call. */
    static inline void copy_bytes(
        unsigned char *to, const unsigned char *from, int64_t size, int64_t room_to, int64_t room_from
    ) {
        int64_t room = room_to < room_from ? room_to : room_from;
        if (size <= 16 && room >= 16) {
            memcpy(to, from, 16);
        } else if (size <= 256 && room >= size + 32) {
            int64_t done = 0;
            do { memcpy(to + done, from + done, 32); done += 32; } while (done < size);
        } else {
            memcpy(to, from, (size_t)size);
        }
    }
    """
    int64_t load64(const unsigned char *p) nogil
    int32_t load32(const unsigned char *p) nogil
    void store64(unsigned char *p, uint64_t v) nogil
    void store32(unsigned char *p, uint32_t v) nogil
    int64_t now_ms() nogil
    void copy_bytes(
        unsigned char *to, const unsigned char *source, int64_t size, int64_t room_to, int64_t room_from
    ) noexcept nogil

cdef enum:
    ADD = 0
    REMOVE = 1
    ADDX = 2
    REMOVE_TENTATIVE = 3
    SAVE_XID = 4
    UNREMOVE = 5
    CONFIRM_REMOVE = 6
    ADD_XID = 7
    STATE_DUMP = 8
    REMOVE_TENTATIVE_XID = 9
    CONTINUE = 10

cdef enum:
    DOCUMENTED = 0
    KESTREL2 = 1
    UNDECIDED = 2

cdef enum:
    ADD_HEAD = 9
    ADDX_HEAD = 21
    ADD_XID_HEAD = 25

cdef enum:
    CLEAN = 0
    INCOMPLETE = 1
    MALFORMED = 2
    DIALECT_NEEDED = 3

cdef enum:
    KINDS = 1
    XIDS = 2
    COUNTS = 4
    ADDED = 8
    EXPIRES = 16
    DATA = 32
    POSITIONS = 64
    SIZES = 128

ALL_COLUMNS = 255
cdef int64_t NO_TIME = <int64_t>0x8000000000000000ULL
cdef int64_t FIRST_PLAUSIBLE_MS = _layout.FIRST_PLAUSIBLE_MS
cdef int64_t LAST_PLAUSIBLE_MS = _layout.LAST_PLAUSIBLE_MS
cdef int64_t MAX_DATA_BYTES = _layout.MAX_DATA_BYTES
cdef bytes _EMPTY = b""
cdef const char *EMPTY = _EMPTY

if (
    _layout.ADD_HEAD.size != ADD_HEAD or _layout.ADDX_HEAD.size != ADDX_HEAD
    or _layout.ADD_XID_HEAD.size != ADD_XID_HEAD or _layout.CONTINUE != CONTINUE
):
    raise ImportError("the kernel and layout.py disagree about the operations")


cdef class _View:
    """The bytes of any object that has some, released with it."""

    cdef Py_buffer view
    cdef bint held
    cdef const unsigned char *data
    cdef Py_ssize_t size

    def __cinit__(self, source, bint writable=False):
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.data = <const unsigned char *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef inline int check_range(_View view, Py_ssize_t start, Py_ssize_t end, int dialect) except -1:
    if not 0 <= start <= end <= view.size:
        raise WrongUse(f"the range {start}..{end} is not within a buffer of {view.size} bytes")
    if not DOCUMENTED <= dialect <= UNDECIDED:
        raise WrongUse(f"there is no dialect {dialect}")
    return 0


cdef inline int check_count(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count) except -1:
    """Before anything is allocated for so many operations: could they be there at all?"""
    if count < 0 or count > stop - start:
        raise Malformed(start, "the range was not walked")
    return 0


# --- one operation ------------------------------------------------------------------------------------------------

cdef inline int kind_at(const unsigned char *data, int dialect) noexcept nogil:
    """The operation that a byte stands for; -1 for none, -2 where the dialect decides and is not known."""
    cdef int opcode = data[0]
    if opcode < 8:
        return opcode
    if opcode > 9:
        return -1
    if dialect == UNDECIDED:
        return -2
    if dialect == KESTREL2:
        return CONTINUE if opcode == 8 else REMOVE_TENTATIVE_XID
    return STATE_DUMP if opcode == 8 else -1


cdef inline int64_t claimed(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, int kind
) noexcept nogil:
    """The size that an operation claims; -1 when it makes no sense, 0 when it is not there. The kind is known."""
    cdef int64_t size
    if kind == REMOVE or kind == REMOVE_TENTATIVE:
        return 1
    if kind == ADDX:
        if end - position < 5:
            return 0
        size = load32(data + position + 1)
        return size + 5 if size >= 16 else -1
    if kind == ADD_XID or kind == CONTINUE:
        if end - position < 9:
            return 0
        size = load32(data + position + 5)
        return size + 9 if size >= 16 else -1
    if kind == ADD:
        if end - position < 5:
            return 0
        size = load32(data + position + 1)
        return size + 5 if size >= 4 else -1
    if kind == STATE_DUMP:
        if end - position >= 9 and load32(data + position + 5) < 0:
            return -1
        return 9
    return 5


cdef inline int64_t head_bytes(int kind) noexcept nogil:
    """How long an operation with data is without it."""
    return ADDX_HEAD if kind == ADDX else ADD_HEAD if kind == ADD else ADD_XID_HEAD


cdef inline bint has_data(int kind) noexcept nogil:
    return kind == ADDX or kind == ADD_XID or kind == ADD or kind == CONTINUE


cdef inline bint has_xid(int kind) noexcept nogil:
    return kind >= SAVE_XID


cdef inline int64_t added_at(const unsigned char *operation, int kind) noexcept nogil:
    return load64(operation + 5) if kind == ADDX else load64(operation + 9)


# --- many operations ----------------------------------------------------------------------------------------------

cdef int c_walk(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, int dialect, int64_t most,
    int64_t *passed, int64_t *latest,
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef int64_t count = 0
    cdef int64_t size, added
    cdef int64_t top = NO_TIME
    cdef int ending = CLEAN
    cdef int kind
    while position < end and count != most:
        kind = kind_at(data + position, dialect)
        if kind < 0:
            ending = MALFORMED if kind == -1 else DIALECT_NEEDED
            break
        size = claimed(data, position, end, kind)
        if size < 0:
            ending = MALFORMED
            break
        if size == 0 or end - position < size:
            ending = INCOMPLETE
            break
        if kind == ADDX or kind == ADD_XID or kind == CONTINUE:
            added = added_at(data + position, kind)
            if added > top:
                top = added
        position += size
        count += 1
    at[0] = position
    passed[0] = count
    latest[0] = top
    return ending


def walk(buffer, Py_ssize_t start, Py_ssize_t end, int dialect, int64_t most=-1):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t at = start
    cdef int64_t count = 0
    cdef int64_t latest = 0
    cdef int ending
    check_range(view, start, end, dialect)
    with nogil:
        ending = c_walk(view.data, &at, end, dialect, most, &count, &latest)
    return at, count, ending, latest


cdef inline Py_ssize_t next_size(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, int dialect, int *kind
) noexcept nogil:
    """The size of a walked operation, and its kind; -1 where nobody has walked."""
    cdef int64_t size
    if position >= stop:
        return -1
    kind[0] = kind_at(data + position, dialect)
    if kind[0] < 0:
        return -1
    size = claimed(data, position, stop, kind[0])
    if size <= 0 or stop - position < size:
        return -1
    return <Py_ssize_t>size


cdef object not_walked(Py_ssize_t position):
    return Malformed(position, "the range was not walked")


cdef object make_operation(const unsigned char *data, Py_ssize_t size, int kind):
    cdef str op = <str>OP_NAMES[kind]
    cdef int64_t expires
    cdef bytes payload
    if has_data(kind):
        payload = PyBytes_FromStringAndSize(<const char *>data + head_bytes(kind), size - head_bytes(kind))
        if kind == ADD:
            expires = <int64_t>load32(data + 5) * 1000
            return Operation(op, None, None, None, expires if expires != 0 else None, payload)
        expires = load64(data + head_bytes(kind) - 8)
        return Operation(
            op, None if kind == ADDX else load32(data + 1), None, added_at(data, kind),
            expires if expires != 0 else None, payload,
        )
    if kind == STATE_DUMP:
        return Operation(op, load32(data + 1), load32(data + 5))
    if has_xid(kind):
        return Operation(op, load32(data + 1))
    return Operation(op)


def operations(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t size, row
    cdef int kind = 0
    check_range(view, start, stop, dialect)
    check_count(start, stop, count)
    cdef list found = [None] * count
    for row in range(count):
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        found[row] = make_operation(view.data + position, size, kind)
        position += size
    return found


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, size
    cdef int kind = 0
    check_range(view, start, stop, dialect)
    check_count(start, stop, count)
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, (count + 1) * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(starts)
    for row in range(count):
        out[row] = position
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        position += size
    out[count] = position
    result = array("q")
    result.frombytes(starts)
    return result


cdef Py_ssize_t c_turns(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, Py_ssize_t count, int dialect, int64_t base,
    uint8_t *kinds, int32_t *numbers, int64_t *positions,
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t size
    cdef int kind = 0
    while row < count:
        size = next_size(data, position, stop, dialect, &kind)
        if size < 0:
            break
        kinds[row] = <uint8_t>kind
        numbers[row] = 0
        if kind == STATE_DUMP:
            numbers[row] = load32(data + position + 5)
        elif has_xid(kind):
            numbers[row] = load32(data + position + 1)
        positions[row] = base + position
        position += size
        row += 1
    at[0] = position
    return row


def turns(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, int64_t base=0):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t at = start
    cdef Py_ssize_t done
    check_range(view, start, stop, dialect)
    check_count(start, stop, count)
    cdef bytes kinds = PyBytes_FromStringAndSize(NULL, count)
    cdef bytes numbers = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef bytes positions = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef uint8_t *kinds_out = <uint8_t *>PyBytes_AS_STRING(kinds)
    cdef int32_t *numbers_out = <int32_t *>PyBytes_AS_STRING(numbers)
    cdef int64_t *positions_out = <int64_t *>PyBytes_AS_STRING(positions)
    with nogil:
        done = c_turns(view.data, &at, stop, count, dialect, base, kinds_out, numbers_out, positions_out)
    if done < count:
        raise not_walked(at)
    number_array, position_array = array("i"), array("q")
    number_array.frombytes(numbers)
    position_array.frombytes(positions)
    return kinds, number_array, position_array


cdef inline bint plausible(int64_t added, int64_t expires, bint anytime) noexcept nogil:
    cdef int64_t first = 0 if anytime else FIRST_PLAUSIBLE_MS
    if not first <= added < LAST_PLAUSIBLE_MS:
        return False
    return expires == 0 or first < expires < LAST_PLAUSIBLE_MS


cdef Py_ssize_t c_find_add(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, int64_t room, int dialect, bint anytime
) noexcept nogil:
    cdef Py_ssize_t position = start
    cdef int64_t size, whole
    cdef const unsigned char *times
    cdef int opcode
    while end - position >= ADDX_HEAD:
        opcode = data[position]
        if opcode == ADDX:
            size = load32(data + position + 1)
            whole = size + 5
            times = data + position + 5
        elif opcode == ADD_XID or (opcode == 8 and dialect != DOCUMENTED):
            if end - position < ADD_XID_HEAD:
                position += 1
                continue
            size = load32(data + position + 5)
            whole = size + 9
            times = data + position + 9
        else:
            position += 1
            continue
        if size >= 16 and position + whole <= room and plausible(load64(times), load64(times + 8), anytime):
            return position
        position += 1
    return -1


def find_add(buffer, Py_ssize_t start, Py_ssize_t end, int64_t room, int dialect, bint anytime=False):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t found
    check_range(view, start, end, dialect)
    with nogil:
        found = c_find_add(view.data, start, end, room, dialect, anytime)
    return found


# --- columns --------------------------------------------------------------------------------------------------------

cdef struct Room:
    # Where the columns of one batch go. A pointer that is NULL: this column was not asked for.
    uint8_t *kinds
    int32_t *xids
    int32_t *counts
    int64_t *added
    int64_t *expires
    int32_t *data_ends
    unsigned char *data
    uint64_t *positions
    int64_t *sizes
    # How much fits, and how much is there.
    int64_t rows
    int64_t data_bytes
    int64_t row
    int64_t data_used


cdef int c_gather(
    Room *into, const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int64_t count, int dialect, uint64_t base,
) noexcept nogil:
    """Put at most `count` operations into their columns, as many as fit; -1 at bytes that no walk has passed."""
    cdef Room room = into[0]  # a copy, which the compiler can keep in registers
    cdef Py_ssize_t position = at[0]
    cdef int64_t last_row = min(room.rows, room.row + count)
    cdef int64_t size, data_size, head
    cdef const unsigned char *operation
    cdef int kind = 0
    cdef int answer = 0
    while room.row < last_row:
        size = next_size(data, position, stop, dialect, &kind)
        if size < 0:
            answer = -1
            break
        operation = data + position
        head = head_bytes(kind)
        data_size = size - head if has_data(kind) else 0
        if room.data_ends != NULL and data_size > room.data_bytes - room.data_used:
            break
        if room.kinds != NULL:
            room.kinds[room.row] = <uint8_t>kind
        if room.xids != NULL:
            room.xids[room.row] = load32(operation + 1) if has_xid(kind) else 0
        if room.counts != NULL:
            room.counts[room.row] = load32(operation + 5) if kind == STATE_DUMP else 0
        if room.added != NULL:
            room.added[room.row] = added_at(operation, kind) if has_data(kind) and kind != ADD else 0
        if room.expires != NULL:
            room.expires[room.row] = 0
            if kind == ADD:
                room.expires[room.row] = <int64_t>load32(operation + 5) * 1000
            elif has_data(kind):
                room.expires[room.row] = load64(operation + head - 8)
        if room.data_ends != NULL:
            if data_size:
                copy_bytes(
                    room.data + room.data_used, operation + head, data_size,
                    room.data_bytes - room.data_used, stop - position - head,
                )
            room.data_used += data_size
            room.data_ends[room.row + 1] = <int32_t>room.data_used
        if room.positions != NULL:
            room.positions[room.row] = base + <uint64_t>position
        if room.sizes != NULL:
            room.sizes[room.row] = size
        position += size
        room.row += 1
    at[0] = position
    into[0] = room
    return answer


cdef class Gatherer:
    """The operations of many ranges as the columns of one batch; see codec.Gatherer."""

    cdef Room _room
    cdef object _columns
    cdef list _views
    cdef bint _busy

    def __init__(self, int want, Py_ssize_t rows, Py_ssize_t data_bytes, allocate=bytearray):
        if rows < 0 or not 0 <= data_bytes <= 0x7FFFFFFF:
            raise TooLarge("one batch of columns holds less than 2 GiB of data")
        self._views = []
        self._columns = columns = Columns(0)
        self._room.rows = rows
        self._room.data_bytes = data_bytes
        if want & KINDS:
            columns.kinds = allocate(rows)
            self._room.kinds = <uint8_t *>self._writable(columns.kinds, rows)
        if want & XIDS:
            columns.xids = allocate(rows * 4)
            self._room.xids = <int32_t *>self._writable(columns.xids, rows * 4)
        if want & COUNTS:
            columns.counts = allocate(rows * 4)
            self._room.counts = <int32_t *>self._writable(columns.counts, rows * 4)
        if want & ADDED:
            columns.added = allocate(rows * 8)
            self._room.added = <int64_t *>self._writable(columns.added, rows * 8)
        if want & EXPIRES:
            columns.expires = allocate(rows * 8)
            self._room.expires = <int64_t *>self._writable(columns.expires, rows * 8)
        if want & DATA:
            columns.data_ends, columns.data = allocate((rows + 1) * 4), allocate(data_bytes)
            self._room.data_ends = <int32_t *>self._writable(columns.data_ends, (rows + 1) * 4)
            self._room.data = self._writable(columns.data, data_bytes)
            self._room.data_ends[0] = 0
        if want & POSITIONS:
            columns.positions = allocate(rows * 8)
            self._room.positions = <uint64_t *>self._writable(columns.positions, rows * 8)
        if want & SIZES:
            columns.sizes = allocate(rows * 8)
            self._room.sizes = <int64_t *>self._writable(columns.sizes, rows * 8)

    cdef unsigned char *_writable(self, object buffer, Py_ssize_t needed) except? NULL:
        """The memory of a buffer, which stays ours until `take`."""
        cdef _View view = _View(buffer, True)
        if view.size < needed:
            raise WrongUse(f"a buffer of {needed} bytes was asked for, not of {view.size}")
        self._views.append(view)
        return <unsigned char *>view.data

    @property
    def count(self):
        """How many operations are there."""
        return self._room.row

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, uint64_t base=0):
        """Add the operations of a walked range, as many as fit; where the rest begins, and how many were added."""
        cdef _View view = _View(buffer)
        cdef Py_ssize_t at = start
        cdef int64_t before = self._room.row
        cdef int answer
        if self._columns is None:
            raise WrongUse("these columns have been taken")
        if self._busy:
            raise WrongUse("another thread is adding to these columns")
        check_range(view, start, stop, dialect)
        check_count(start, stop, count)
        self._busy = True
        with nogil:
            answer = c_gather(&self._room, view.data, &at, stop, count, dialect, base)
        self._busy = False
        if answer < 0:
            raise not_walked(at)
        return at, self._room.row - before

    def take(self):
        """The columns. Their buffers are as long as what was asked for: `count` says how many rows are in them."""
        if self._busy:
            raise WrongUse("another thread is adding to these columns")
        columns, self._columns = self._columns, None
        if columns is None:
            raise WrongUse("these columns have been taken")
        self._views = []
        columns.count = self._room.row
        return columns


def columns(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, int want=255, uint64_t base=0
):
    cdef _View view = _View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, size
    cdef int64_t data_bytes = 0
    cdef int kind = 0
    check_range(view, start, stop, dialect)
    check_count(start, stop, count)
    for row in range(count):
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        if has_data(kind):
            data_bytes += size - head_bytes(kind)
        position += size
    gatherer = Gatherer(want, count, data_bytes)
    gatherer.add(buffer, start, stop, count, dialect, base)
    return gatherer.take()


# --- building what will be written ----------------------------------------------------------------------------------

cdef inline void put_item(
    unsigned char *out, int64_t room, int kind, int32_t xid, int64_t added, int64_t expires,
    const unsigned char *data, int64_t size, int64_t data_room,
) noexcept nogil:
    """Encode an operation with data into `room` bytes, which its caller knows to be enough."""
    out[0] = 8 if kind == CONTINUE else <unsigned char>kind
    if kind == ADD:
        store32(out + 1, <uint32_t>(size + 4))
        store32(out + 5, <uint32_t>(expires // 1000))
    elif kind == ADDX:
        store32(out + 1, <uint32_t>(size + 16))
        store64(out + 5, <uint64_t>added)
        store64(out + 13, <uint64_t>expires)
    else:
        store32(out + 1, <uint32_t>xid)
        store32(out + 5, <uint32_t>(size + 16))
        store64(out + 9, <uint64_t>added)
        store64(out + 17, <uint64_t>expires)
    copy_bytes(out + head_bytes(kind), data, size, room - head_bytes(kind), data_room)


cdef int32_t as_xid(object xid) except? -1:
    if not isinstance(xid, int):
        xid = PyNumber_Index(xid)
    try:
        return xid
    except OverflowError:
        check_xid(xid)
        raise


cdef int64_t as_time(object moment, bint is_expiry) except? -1:
    if not isinstance(moment, int):
        moment = PyNumber_Index(moment)
    cdef int64_t found = 0
    try:
        found = moment
    except OverflowError:
        check_item(0, None if is_expiry else moment, moment if is_expiry else None)
        raise
    if is_expiry and found == 0:
        check_item(0, None, moment)
    return found


cdef class AppendBuffer:
    """Operations on their way to a file; see codec.AppendBuffer."""

    cdef public int64_t position
    cdef public Py_ssize_t attention_bytes
    cdef public int dialect
    cdef public bint refusing
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _used
    cdef bytearray _buffer
    cdef bytearray _spare

    def __init__(self, int64_t position, Py_ssize_t attention_bytes, int dialect=DOCUMENTED):
        self.position = position
        self.attention_bytes = attention_bytes
        self.dialect = dialect
        self.refusing = False
        self._capacity = 4096 + 2 * min(attention_bytes, 1 << 19)
        self._used = 0
        self._buffer = PyByteArray_FromStringAndSize(NULL, self._capacity)
        self._spare = PyByteArray_FromStringAndSize(NULL, self._capacity)

    @property
    def buffered_bytes(self):
        """How many bytes wait to be taken."""
        return self._used

    cdef unsigned char *_room(self, int64_t size) except NULL:
        """Where the next `size` bytes go."""
        if size > len(self._buffer) - self._used:
            PyByteArray_Resize(self._buffer, max(len(self._buffer) * 2, self._used + size))
        return <unsigned char *>PyByteArray_AS_STRING(self._buffer) + self._used

    cdef object _added(self, int64_t size):
        """Count `size` bytes that were put; the position of the operation."""
        cdef int64_t position = self.position
        self._used += size
        self.position = position + size
        if self._used >= self.attention_bytes:
            self._attend()
        return position

    cdef object _append_item(self, int kind, object xid, object data, object expires, object added):
        cdef Py_buffer view
        cdef const unsigned char *source
        cdef int64_t size, whole
        cdef bint held = False
        cdef int32_t id_ = 0
        cdef int64_t added_ms, expires_ms
        if self.refusing:
            self._refuse()
        if kind != ADDX:
            id_ = as_xid(xid)
        added_ms = now_ms() if added is None else as_time(added, False)
        expires_ms = 0 if expires is None else as_time(expires, True)
        if kind == CONTINUE and self.dialect != KESTREL2:
            self._check_kind(kind)
        try:
            if isinstance(data, bytes):
                source = <const unsigned char *>PyBytes_AS_STRING(data)
                size = PyBytes_GET_SIZE(data)
            else:
                PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
                held = True
                source = <const unsigned char *>view.buf
                size = view.len
            if size > MAX_DATA_BYTES:
                check_item(size, None, None)
            whole = size + head_bytes(kind)
            put_item(
                self._room(whole), len(self._buffer) - self._used, kind, id_, added_ms, expires_ms, source, size, size
            )
        finally:
            if held:
                PyBuffer_Release(&view)
        return self._added(whole)

    cdef object _append_xid(self, int kind, object xid):
        cdef unsigned char *out
        cdef int32_t id_
        if self.refusing:
            self._refuse()
        id_ = as_xid(xid)
        if kind == REMOVE_TENTATIVE_XID and self.dialect != KESTREL2:
            self._check_kind(kind)
        out = self._room(5)
        out[0] = <unsigned char>kind
        store32(out + 1, <uint32_t>id_)
        return self._added(5)

    cdef object _append_byte(self, int kind):
        if self.refusing:
            self._refuse()
        self._room(1)[0] = <unsigned char>kind
        return self._added(1)

    def _check_kind(self, int kind):
        raise WrongUse(f"the operation {OP_NAMES[kind]} is of the dialect kestrel2, which this journal is not in")

    def addx(self, data, expires=None, added=None):
        """Add an item at the tail, now unless told when; the position of the operation. Times are milliseconds."""
        return self._append_item(ADDX, 0, data, expires, added)

    def add_xid(self, xid, data, expires=None, added=None):
        """Add an item that will be reserved under this id."""
        return self._append_item(ADD_XID, xid, data, expires, added)

    def continue_(self, xid, data, expires=None, added=None):
        """Finish a reserved item and add another one (kestrel2)."""
        return self._append_item(CONTINUE, xid, data, expires, added)

    def remove(self):
        """Remove the head."""
        return self._append_byte(REMOVE)

    def remove_tentative(self):
        """Reserve the head under the next id."""
        return self._append_byte(REMOVE_TENTATIVE)

    def save_xid(self, xid):
        """Set the last used id."""
        return self._append_xid(SAVE_XID, xid)

    def unremove(self, xid):
        """Put a reserved item back to the head."""
        return self._append_xid(UNREMOVE, xid)

    def confirm_remove(self, xid):
        """Finish a reserved item."""
        return self._append_xid(CONFIRM_REMOVE, xid)

    def remove_tentative_xid(self, xid):
        """Reserve the head under this id (kestrel2)."""
        return self._append_xid(REMOVE_TENTATIVE_XID, xid)

    def append_encoded(self, data, Py_ssize_t count):
        """Add the bytes of `count` whole operations of this buffer's dialect; the position of the first one."""
        cdef _View view = _View(data)
        cdef Py_ssize_t at = 0
        cdef int64_t passed = 0
        cdef int64_t latest = 0
        if self.refusing:
            self._refuse()
        cdef int ending = c_walk(view.data, &at, view.size, self.dialect, -1, &passed, &latest)
        if ending != CLEAN or passed != count:
            raise WrongUse(f"these bytes are not {count} operations: {passed} of them end at {at}")
        memcpy(self._room(max(view.size, 1)), view.data, view.size)
        return self._added(view.size)

    def take(self):
        """What has gathered: a buffer, and how much of it counts. It may be used until the next but one `take`."""
        cdef bytearray taken = self._buffer
        cdef Py_ssize_t used = self._used
        cdef bytearray fresh = self._spare
        if len(fresh) > 4 * self._capacity:  # one large item must not hold its memory for ever
            fresh = PyByteArray_FromStringAndSize(NULL, self._capacity)
        self._buffer = fresh
        self._spare = taken
        self._used = 0
        return taken, used

    def _attend(self):
        """Called when `attention_bytes` wait."""

    def _refuse(self):
        """Called in place of an append while `refusing` is set; must raise."""
        raise WrongUse("this buffer takes no operations")


# --- columns to bytes -----------------------------------------------------------------------------------------------

cdef const unsigned char *_items(object buffer, Py_ssize_t needed, str name, list views) except? NULL:
    """The data of a column's buffer, which `views` keeps alive; NULL for a missing one."""
    if buffer is None:
        return NULL
    cdef _View view = _View(buffer)
    if view.size < needed:
        raise WrongUse(f"column {name} is shorter than its rows")
    views.append(view)
    return view.data


def pack(columns, Py_ssize_t row, Py_ssize_t enough_bytes, int dialect, int64_t now):
    cdef list views = []
    cdef Py_ssize_t count = columns.count
    if count < 0:
        raise WrongUse("columns cannot have a negative number of rows")
    if columns.kinds is None:
        raise WrongUse("there is no column of kinds")
    if row < 0:
        raise WrongUse("rows count from 0")
    cdef const uint8_t *kinds = <const uint8_t *>_items(columns.kinds, count, "kinds", views)
    cdef const int32_t *xids = <const int32_t *>_items(columns.xids, count * 4, "xids", views)
    cdef const int32_t *counts = <const int32_t *>_items(columns.counts, count * 4, "counts", views)
    cdef const int64_t *added = <const int64_t *>_items(columns.added, count * 8, "added", views)
    cdef const int64_t *expires = <const int64_t *>_items(columns.expires, count * 8, "expires", views)
    cdef const int32_t *ends = <const int32_t *>_items(columns.data_ends, (count + 1) * 4, "data_ends", views)
    cdef const unsigned char *data = _items(columns.data, 0, "data", views)
    cdef int64_t data_bytes = 0
    if data != NULL:
        data_bytes = (<_View>views[len(views) - 1]).size
    else:
        data = <const unsigned char *>EMPTY
    cdef bytearray found = PyByteArray_FromStringAndSize(NULL, max(64, min(enough_bytes, 1 << 20) + 4096))
    cdef int64_t used = 0
    cdef int64_t start, size, whole, expires_ms, seconds
    cdef Py_ssize_t first = row
    cdef unsigned char *out
    cdef int kind
    while row < count and used < enough_bytes:
        kind = kinds[row]
        if (
            kind > CONTINUE or dialect == UNDECIDED
            or (dialect == DOCUMENTED and kind > STATE_DUMP) or (dialect == KESTREL2 and kind == STATE_DUMP)
        ):
            raise WrongUse(f"row {row} is no operation of this dialect")
        start = size = 0
        expires_ms = 0 if expires == NULL else expires[row]
        if has_data(kind):
            if ends != NULL:
                start, size = ends[row], <int64_t>ends[row + 1] - ends[row]
            if start < 0 or size < 0 or start + size > data_bytes:
                raise WrongUse(f"row {row} is not within its columns")
            if size > MAX_DATA_BYTES:
                raise TooLarge(f"row {row}: an item of {size} bytes is more than a journal can hold")
            if kind == ADD:
                seconds = expires_ms // 1000
                if seconds * 1000 != expires_ms or seconds != <int32_t>seconds:
                    raise WrongUse(f"row {row}: the expiry of an add is in whole seconds of 32 bits")
            whole = head_bytes(kind) + size
        else:
            whole = 9 if kind == STATE_DUMP else 5 if has_xid(kind) else 1
        if whole > len(found) - used:
            PyByteArray_Resize(found, max(len(found) * 2, used + whole))
        out = <unsigned char *>PyByteArray_AS_STRING(found) + used
        if has_data(kind):
            put_item(
                out, len(found) - used, kind, 0 if xids == NULL else xids[row],
                now if added == NULL else added[row], expires_ms, data + start, size, data_bytes - start,
            )
        else:
            out[0] = <unsigned char>kind
            if has_xid(kind):
                store32(out + 1, <uint32_t>(0 if xids == NULL else xids[row]))
            if kind == STATE_DUMP:
                if counts != NULL and counts[row] < 0:
                    raise WrongUse(f"row {row}: a count of {counts[row]} is not within 0 and 2^31 - 1")
                store32(out + 5, <uint32_t>(0 if counts == NULL else counts[row]))
        used += whole
        row += 1
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(found), used), row - first, row
