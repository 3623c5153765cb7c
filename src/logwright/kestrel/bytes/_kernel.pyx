# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of kestrel: the same functions as in codec.py, which documents them. They use buffers, and no files.

Every advance is first checked against the end of the bytes. Loops that need no Python object release the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ...core.bytes._buffers cimport (
    View,
    array_of,
    check_count,
    check_range,
    column_bytes,
    column_memory,
    not_walked,
    rows_of,
)
from ...core.bytes._bytes cimport (
    copy_bytes,
    load_little_i32,
    load_little_i64,
    now_ms,
    store_little_u32,
    store_little_u64,
)
from ...core.bytes._column_builder cimport BytesColumn, ColumnBuilder, fits, put_bytes
from ...core.bytes._write_buffer cimport WriteBuffer, room_for, room_left
from ._operations cimport (
    ADD,
    ADD_XID,
    ADD_XID_HEAD,
    ADDX,
    ADDX_HEAD,
    CONFIRM_REMOVE,
    CONTINUE,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    STATE_DUMP,
    UNREMOVE,
    check_agreement,
    has_data,
    has_xid,
    head_bytes,
)

from ...errors import TooLarge, WrongUse
from . import layout as _layout
from .codec import Columns
from .records import OP_NAMES, OPS, Operation, check_item, check_xid, refuse_kestrel2

check_agreement(OPS, _layout.DATA_HEAD_BYTES)

cdef enum:
    DOCUMENTED = 0
    KESTREL2 = 1
    UNDECIDED = 2

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


cdef inline int check_dialect(int dialect) except -1:
    if not DOCUMENTED <= dialect <= UNDECIDED:
        raise WrongUse(f"there is no dialect {dialect}")
    return 0


# --- one operation ------------------------------------------------------------------------------------------------

cdef inline int kind_at(const unsigned char *data, int dialect) noexcept nogil:
    """The operation of an opcode; -1 if there is none, -2 if it depends on the dialect, which is unknown."""
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
    """The size of an operation according to its bytes; -1 if it is invalid, 0 if the bytes end before it."""
    cdef int64_t size
    if kind == REMOVE or kind == REMOVE_TENTATIVE:
        return 1
    if kind == ADDX:
        if end - position < 5:
            return 0
        size = load_little_i32(data + position + 1)
        return size + 5 if size >= 16 else -1
    if kind == ADD_XID or kind == CONTINUE:
        if end - position < 9:
            return 0
        size = load_little_i32(data + position + 5)
        return size + 9 if size >= 16 else -1
    if kind == ADD:
        if end - position < 5:
            return 0
        size = load_little_i32(data + position + 1)
        return size + 5 if size >= 4 else -1
    if kind == STATE_DUMP:
        if end - position >= 9 and load_little_i32(data + position + 5) < 0:
            return -1
        return 9
    return 5


cdef inline int64_t added_at(const unsigned char *operation, int kind) noexcept nogil:
    return load_little_i64(operation + 5) if kind == ADDX else load_little_i64(operation + 9)


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
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef int64_t count = 0
    cdef int64_t latest = 0
    cdef int ending
    check_range(view, start, end)
    check_dialect(dialect)
    with nogil:
        ending = c_walk(view.data, &at, end, dialect, most, &count, &latest)
    return at, count, ending, latest


cdef inline Py_ssize_t next_size(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, int dialect, int *kind
) noexcept nogil:
    """The size of a walked operation, and its kind; -1 if no walk has passed it."""
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


cdef object make_operation(const unsigned char *data, Py_ssize_t size, int kind):
    cdef str op = <str>OP_NAMES[kind]
    cdef int64_t expires
    cdef bytes payload
    if has_data(kind):
        payload = PyBytes_FromStringAndSize(<const char *>data + head_bytes(kind), size - head_bytes(kind))
        if kind == ADD:
            expires = <int64_t>load_little_i32(data + 5) * 1000
            return Operation(op, None, None, None, expires if expires != 0 else None, payload)
        expires = load_little_i64(data + head_bytes(kind) - 8)
        return Operation(
            op, None if kind == ADDX else load_little_i32(data + 1), None, added_at(data, kind),
            expires if expires != 0 else None, payload,
        )
    if kind == STATE_DUMP:
        return Operation(op, load_little_i32(data + 1), load_little_i32(data + 5))
    if has_xid(kind):
        return Operation(op, load_little_i32(data + 1))
    return Operation(op)


def operations(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t size, row
    cdef int kind = 0
    check_range(view, start, stop)
    check_dialect(dialect)
    check_count(start, stop, count, 1)
    cdef list found = []
    for row in range(count):
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        found.append(make_operation(view.data + position, size, kind))
        position += size
    return found


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, size
    cdef int kind = 0
    check_range(view, start, stop)
    check_dialect(dialect)
    check_count(start, stop, count, 1)
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, (count + 1) * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(starts)
    for row in range(count):
        out[row] = position
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        position += size
    out[count] = position
    return array_of("q", starts)


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
            numbers[row] = load_little_i32(data + position + 5)
        elif has_xid(kind):
            numbers[row] = load_little_i32(data + position + 1)
        positions[row] = base + position
        position += size
        row += 1
    at[0] = position
    return row


def effects(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, int64_t base=0):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef Py_ssize_t done
    check_range(view, start, stop)
    check_dialect(dialect)
    check_count(start, stop, count, 1)
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
    return kinds, array_of("i", numbers), array_of("q", positions)


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
            size = load_little_i32(data + position + 1)
            whole = size + 5
            times = data + position + 5
        elif opcode == ADD_XID or (opcode == 8 and dialect != DOCUMENTED):
            if end - position < ADD_XID_HEAD:
                position += 1
                continue
            size = load_little_i32(data + position + 5)
            whole = size + 9
            times = data + position + 9
        else:
            position += 1
            continue
        if size >= 16 and position + whole <= room and plausible(load_little_i64(times), load_little_i64(times + 8), anytime):
            return position
        position += 1
    return -1


def copy_adds(buffer, int64_t base, kinds, positions, int64_t end, Py_ssize_t row):
    """The bytes of the operations from a row on that add items, and their number."""
    cdef View view = View(buffer)
    cdef View kinds_view = View(kinds)
    cdef View positions_view = View(positions)
    cdef Py_ssize_t count = kinds_view.size
    cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
    cdef const int64_t *position = <const int64_t *>positions_view.data
    cdef Py_ssize_t at
    cdef int64_t start, stop
    cdef int64_t whole = 0
    cdef int64_t found = 0
    cdef int64_t left, size
    cdef int one
    cdef bint changed = False
    cdef bytes copied
    cdef unsigned char *out
    if positions_view.size != count * 8 or row < 0:
        raise ValueError("there must be as many kinds as positions")
    for at in range(row, count):
        if has_data(kind[at]):
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            if start < 0 or stop - start < head_bytes(kind[at]) or stop > view.size:
                raise ValueError("these operations are not within the buffer")
            whole += stop - start - (4 if kind[at] == CONTINUE else 0)
            found += 1
    copied = PyBytes_FromStringAndSize(NULL, whole)
    out = <unsigned char *>PyBytes_AS_STRING(copied)
    left = whole
    with nogil:
        for at in range(row, count):
            one = kind[at]
            if not has_data(one):
                continue
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            size = stop - start - (4 if one == CONTINUE else 0)
            if start < 0 or stop - start < head_bytes(one) or stop > view.size or size > left:
                changed = True
                break
            if one == CONTINUE:
                out[0] = ADDX
                memcpy(out + 1, view.data + start + 5, size - 1)
            else:
                memcpy(out, view.data + start, size)
            out += size
            left -= size
    if changed or left:
        raise ValueError("these operations were changed while they were copied")
    return copied, found


def find_add(buffer, Py_ssize_t start, Py_ssize_t end, int64_t room, int dialect, bint anytime=False):
    cdef View view = View(buffer)
    cdef Py_ssize_t found
    check_range(view, start, end)
    check_dialect(dialect)
    with nogil:
        found = c_find_add(view.data, start, end, room, dialect, anytime)
    return found


# --- columns --------------------------------------------------------------------------------------------------------

cdef struct Room:
    # The buffers of the columns of one batch. NULL: this column was not requested.
    uint8_t *kinds
    int32_t *xids
    int32_t *counts
    int64_t *added
    int64_t *expires
    BytesColumn data
    uint64_t *positions
    int64_t *sizes
    # The capacity, and the number of rows so far.
    int64_t rows
    int64_t row


cdef int c_gather(
    Room *into, const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int64_t count, int dialect, uint64_t base,
) noexcept nogil:
    """Put at most `count` operations into their columns, as many as fit; -1 at bytes that no walk has passed."""
    cdef Room room = into[0]  # a copy, which the compiler can keep in registers
    cdef Py_ssize_t position = at[0]
    cdef int64_t last_row = min(room.rows, room.row + count)
    cdef int64_t size, head
    cdef const unsigned char *operation
    cdef int kind = 0
    cdef int answer = 0
    while room.row < last_row:
        size = next_size(data, position, stop, dialect, &kind)
        if size < 0:
            answer = -1
            break
        operation = data + position
        head = head_bytes(kind) if has_data(kind) else size
        if not fits(&room.data, size - head):
            break
        if room.kinds != NULL:
            room.kinds[room.row] = <uint8_t>kind
        if room.xids != NULL:
            room.xids[room.row] = load_little_i32(operation + 1) if has_xid(kind) else 0
        if room.counts != NULL:
            room.counts[room.row] = load_little_i32(operation + 5) if kind == STATE_DUMP else 0
        if room.added != NULL:
            room.added[room.row] = added_at(operation, kind) if has_data(kind) and kind != ADD else 0
        if room.expires != NULL:
            room.expires[room.row] = 0
            if kind == ADD:
                room.expires[room.row] = <int64_t>load_little_i32(operation + 5) * 1000
            elif has_data(kind):
                room.expires[room.row] = load_little_i64(operation + head - 8)
        put_bytes(&room.data, room.row, operation + head, size - head, stop - position - head)
        if room.positions != NULL:
            room.positions[room.row] = base + <uint64_t>position
        if room.sizes != NULL:
            room.sizes[room.row] = size
        position += size
        room.row += 1
    at[0] = position
    into[0] = room
    return answer


cdef class BatchBuilder(ColumnBuilder):
    """Collects the operations of many ranges as the columns of one batch; see codec.BatchBuilder."""

    cdef Room _room

    def __init__(self, int want, Py_ssize_t rows, Py_ssize_t data_bytes, allocate=bytearray):
        self._begin(Columns(0), rows, {"data": data_bytes}, allocate)
        self._room.rows = rows
        self._bytes(want & DATA, "data", "data_ends", &self._room.data)
        self._room.kinds = <uint8_t *>self._numbers(want & KINDS, "kinds", 1)
        self._room.xids = <int32_t *>self._numbers(want & XIDS, "xids", 4)
        self._room.counts = <int32_t *>self._numbers(want & COUNTS, "counts", 4)
        self._room.added = <int64_t *>self._numbers(want & ADDED, "added", 8)
        self._room.expires = <int64_t *>self._numbers(want & EXPIRES, "expires", 8)
        self._room.positions = <uint64_t *>self._numbers(want & POSITIONS, "positions", 8)
        self._room.sizes = <int64_t *>self._numbers(want & SIZES, "sizes", 8)

    @property
    def count(self):
        """The number of operations so far."""
        return self._room.row

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, uint64_t base=0):
        """Add the operations of a walked range, as many as fit; returns where the rest begins, and how many were added."""
        cdef View view = View(buffer)
        cdef Py_ssize_t at = start
        cdef int64_t before = self._room.row
        cdef int answer
        self._check_ours()
        check_range(view, start, stop)
        check_dialect(dialect)
        check_count(start, stop, count, 1)
        self._busy = True
        with nogil:
            answer = c_gather(&self._room, view.data, &at, stop, count, dialect, base)
        self._busy = False
        if answer < 0:
            raise not_walked(at)
        return at, self._room.row - before

    def take(self):
        """The columns. Their buffers have their full size; `count` is the number of rows in them."""
        return self._leave(self._room.row)


def columns(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int dialect, int want=255, uint64_t base=0
):
    cdef View view = View(buffer)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, size
    cdef int64_t data_bytes = 0
    cdef int kind = 0
    check_range(view, start, stop)
    check_dialect(dialect)
    check_count(start, stop, count, 1)
    for row in range(count):
        size = next_size(view.data, position, stop, dialect, &kind)
        if size < 0:
            raise not_walked(position)
        if has_data(kind):
            data_bytes += size - head_bytes(kind)
        position += size
    builder = BatchBuilder(want, count, data_bytes)
    builder.add(buffer, start, stop, count, dialect, base)
    return builder.take()


# --- building what will be written ----------------------------------------------------------------------------------

cdef inline void put_item(
    unsigned char *out, int64_t room, int kind, int32_t xid, int64_t added, int64_t expires,
    const unsigned char *data, int64_t size, int64_t data_room,
) noexcept nogil:
    """Encode an operation with data into `room` bytes. The caller has checked that they are enough."""
    out[0] = 8 if kind == CONTINUE else <unsigned char>kind
    if kind == ADD:
        store_little_u32(out + 1, <uint32_t>(size + 4))
        store_little_u32(out + 5, <uint32_t>(expires // 1000))
    elif kind == ADDX:
        store_little_u32(out + 1, <uint32_t>(size + 16))
        store_little_u64(out + 5, <uint64_t>added)
        store_little_u64(out + 13, <uint64_t>expires)
    else:
        store_little_u32(out + 1, <uint32_t>xid)
        store_little_u32(out + 5, <uint32_t>(size + 16))
        store_little_u64(out + 9, <uint64_t>added)
        store_little_u64(out + 17, <uint64_t>expires)
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


cdef class AppendBuffer(WriteBuffer):
    """Encoded operations that are to be written to a file; see codec.AppendBuffer."""

    cdef public int64_t position
    cdef public int dialect
    cdef public object on_other_dialect

    def __init__(self, int64_t position, Py_ssize_t attention_bytes, int dialect=DOCUMENTED):
        WriteBuffer.__init__(self, attention_bytes)
        self.position = position
        self.dialect = dialect
        self.on_other_dialect = refuse_kestrel2

    cdef int64_t _count(self, int64_t size) noexcept:
        """Count `size` bytes that were added; returns the position of the operation."""
        cdef int64_t position = self.position
        self._used += size
        self.position = position + size
        return position

    cdef object _added(self, int64_t size):
        """Count `size` bytes that were added, and `attend` to the buffer if it is full; returns the position."""
        cdef int64_t position = self._count(size)
        if self._used >= self.attention_bytes:
            self.attend()
        return position

    cdef object _append_item(self, int kind, object xid, object data, object expires, object added):
        cdef Py_buffer view
        cdef const unsigned char *source
        cdef unsigned char *out
        cdef int64_t size, whole, position
        cdef bint held = False
        cdef int32_t id_ = 0
        cdef int64_t added_ms, expires_ms
        if self.refusing:
            self.refuse()
        if kind != ADDX:
            id_ = as_xid(xid)
        added_ms = now_ms() if added is None else as_time(added, False)
        expires_ms = 0 if expires is None else as_time(expires, True)
        if kind == CONTINUE and self.dialect != KESTREL2:
            self.on_other_dialect(kind)
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
            if self.refusing:  # again: converting the arguments may have run Python code
                self.refuse()
            whole = size + head_bytes(kind)
            out = room_for(self, whole)
            put_item(out, room_left(self), kind, id_, added_ms, expires_ms, source, size, size)
            position = self._count(whole)
        finally:
            if held:
                PyBuffer_Release(&view)
        if self._used >= self.attention_bytes:
            self.attend()
        return position

    cdef object _append_xid(self, int kind, object xid):
        cdef unsigned char *out
        cdef int32_t id_
        if self.refusing:
            self.refuse()
        id_ = as_xid(xid)
        if kind == REMOVE_TENTATIVE_XID and self.dialect != KESTREL2:
            self.on_other_dialect(kind)
        if self.refusing:
            self.refuse()
        out = room_for(self, 5)
        out[0] = <unsigned char>kind
        store_little_u32(out + 1, <uint32_t>id_)
        return self._added(5)

    cdef object _append_byte(self, int kind):
        if self.refusing:
            self.refuse()
        room_for(self, 1)[0] = <unsigned char>kind
        return self._added(1)

    def addx(self, data, expires=None, added=None):
        """Add an item at the tail, by default now; returns the position of the operation. Times are milliseconds."""
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
        """Put a reserved item back at the head."""
        return self._append_xid(UNREMOVE, xid)

    def confirm_remove(self, xid):
        """Finish a reserved item."""
        return self._append_xid(CONFIRM_REMOVE, xid)

    def remove_tentative_xid(self, xid):
        """Reserve the head under this id (kestrel2)."""
        return self._append_xid(REMOVE_TENTATIVE_XID, xid)

    def append_encoded(self, data, Py_ssize_t count):
        """Add the bytes of `count` complete operations of this buffer's dialect; returns the position of the first."""
        cdef View view = View(data)
        cdef Py_ssize_t at = 0
        cdef int64_t passed = 0
        cdef int64_t latest = 0
        cdef int ending = c_walk(view.data, &at, view.size, self.dialect, -1, &passed, &latest)
        if self.refusing:
            self.refuse()
        if ending != CLEAN or passed != count:
            raise WrongUse(f"these bytes are not {count} operations: {passed} of them end at {at}")
        memcpy(room_for(self, view.size), view.data, view.size)
        return self._added(view.size)


# --- columns to bytes -----------------------------------------------------------------------------------------------

def pack(columns, Py_ssize_t row, Py_ssize_t enough_bytes, int dialect, int64_t now):
    cdef list views = []
    cdef Py_ssize_t count = rows_of(columns)
    cdef object kinds_column = columns.kinds
    if kinds_column is None:
        raise WrongUse("the column of kinds is missing")
    if row < 0:
        raise WrongUse("rows count from 0")
    cdef const uint8_t *kinds = <const uint8_t *>column_memory(kinds_column, count, "kinds", views)
    cdef const int32_t *xids = <const int32_t *>column_memory(columns.xids, count * 4, "xids", views)
    cdef const int32_t *counts = <const int32_t *>column_memory(columns.counts, count * 4, "counts", views)
    cdef const int64_t *added = <const int64_t *>column_memory(columns.added, count * 8, "added", views)
    cdef const int64_t *expires = <const int64_t *>column_memory(columns.expires, count * 8, "expires", views)
    cdef const int32_t *ends = <const int32_t *>column_memory(columns.data_ends, (count + 1) * 4, "data_ends", views)
    cdef int64_t data_bytes = 0
    cdef const unsigned char *data = column_bytes(columns.data, &data_bytes, views)
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
            raise WrongUse(f"row {row} is not an operation of this dialect")
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
                    raise WrongUse(f"row {row}: the expiry of an add is a whole number of seconds of 32 bits")
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
                store_little_u32(out + 1, <uint32_t>(0 if xids == NULL else xids[row]))
            if kind == STATE_DUMP:
                if counts != NULL and counts[row] < 0:
                    raise WrongUse(f"row {row}: a count of {counts[row]} is not between 0 and 2^31 - 1")
                store_little_u32(out + 5, <uint32_t>(0 if counts == NULL else counts[row]))
        used += whole
        row += 1
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(found), used), row - first, row
