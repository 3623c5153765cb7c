"""The C types of changes.py, and the parts written in C: adding and storing modifications."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ...core.bytes._bytes cimport (
    load_little_i64,
    load_little_u16,
    store_little_u16,
    store_little_u32,
    store_little_u64,
)
from ...core.bytes._crc32c cimport checksum_of_bytes


cdef extern from *:
    """
    /* Earlier stores become visible before later ones, for readers of the file after a kill. */
    #define LOGWRIGHT_IN_ORDER() __asm__ __volatile__("" ::: "memory")
    """
    void IN_ORDER "LOGWRIGHT_IN_ORDER"() noexcept nogil


cdef enum:  # see layout.py and table_layout.py
    HEADER_BYTES = 20
    FIRST_AT = 4
    LAST_AT = 12
    TRANSACTION_HEAD_BYTES = 25
    NEXT_AT = 8
    TIMESTAMP_AT = 16
    FLAGS_AT = 24
    COMPLETE = 1
    OPERATION_HEAD_BYTES = 5
    MODIFICATION = 2
    COMPLETION = 0xFF
    MAX_IMAGE_BYTES = 0xFFFF
    SEAL_BYTES = 8
    AROUND_BYTES = 38
    HEAD_BYTES = 17
    C_PAGE_HEAD_BYTES = 19
    TABLE_HEAD_BYTES = 30


cdef class Ending:
    pass


cdef class Changes:
    cdef object _table
    cdef readonly bytearray operations

    cpdef modify(self, int64_t page, int64_t offset, data)
    cpdef bytes load(self, int64_t page, int64_t offset, int64_t size)
    cpdef bytes encode(self, int64_t previous, int64_t timestamp)
    cpdef apply(self, table)
    cpdef commit(self, journal, int64_t position, int64_t previous, int64_t timestamp)


cpdef int64_t modify_at_once(
    table, journal, int64_t page, int64_t offset, bytes data, int64_t position, int64_t previous, int64_t timestamp
) except -1
@cython.locals(found=list, at=int64_t, size=int64_t)
cdef list places_in(bytearray operations)


# --- the bytes of a transaction ---------------------------------------------------------------------------------------


cdef inline uint32_t checksum_of(
    const unsigned char *operations, int64_t size, int64_t previous, int64_t timestamp
) noexcept nogil:
    cdef unsigned char covered[16]
    store_little_u64(covered, <uint64_t>previous)
    store_little_u64(covered + 8, <uint64_t>timestamp)
    return checksum_of_bytes(operations, <size_t>size, checksum_of_bytes(covered, 16, 0))


cdef inline void store_head(unsigned char *place, int64_t previous, int64_t timestamp) noexcept nogil:
    store_little_u64(place, <uint64_t>previous)
    store_little_u64(place + NEXT_AT, 0)
    store_little_u64(place + TIMESTAMP_AT, <uint64_t>timestamp)
    place[FLAGS_AT] = 0


cdef inline void store_modification_head(
    unsigned char *place, int64_t page, int64_t offset, int64_t size
) noexcept nogil:
    place[0] = MODIFICATION
    store_little_u32(place + 1, <uint32_t>(HEAD_BYTES - OPERATION_HEAD_BYTES + 2 * size))
    store_little_u64(place + 5, <uint64_t>page)
    store_little_u16(place + 13, <uint32_t>offset)
    store_little_u16(place + 15, <uint32_t>size)


cdef inline void store_end(unsigned char *place, uint32_t checksum) noexcept nogil:
    place[0] = COMPLETION
    store_little_u32(place + 1, SEAL_BYTES)
    memcpy(place + 5, b"LWR1", 4)
    store_little_u32(place + 9, checksum)


cdef inline void store_name(unsigned char *log, int64_t position, int64_t previous) noexcept nogil:
    """Let links and header lead to a transaction that is there."""
    IN_ORDER()
    if previous:
        store_little_u64(log + previous + NEXT_AT, <uint64_t>position)
    else:
        store_little_u64(log + FIRST_AT, <uint64_t>position)
    IN_ORDER()
    store_little_u64(log + LAST_AT, <uint64_t>position)


cdef inline void store_encoded(
    unsigned char *place, const unsigned char *operations, int64_t size, int64_t previous, int64_t timestamp
) noexcept nogil:
    cdef unsigned char *copied = place + TRANSACTION_HEAD_BYTES
    store_head(place, previous, timestamp)
    memcpy(copied, operations, size)
    store_end(copied + size, checksum_of(copied, size, previous, timestamp))


cdef inline int64_t read_change(
    const unsigned char *operations, int64_t have, int64_t at, int64_t *place, int64_t *size
) noexcept nogil:
    """Where a change goes in the table and how many bytes it has; where the next one begins, -1 if it is not whole."""
    cdef int64_t page
    if have - at < HEAD_BYTES:
        return -1
    page = load_little_i64(operations + at + 5)
    size[0] = load_little_u16(operations + at + 15)
    if not 0 <= page < <int64_t>1 << 62 or 2 * size[0] > have - at - HEAD_BYTES:
        return -1
    place[0] = page + C_PAGE_HEAD_BYTES + load_little_u16(operations + at + 13)
    return at + HEAD_BYTES + 2 * size[0]


cdef inline void load_into(
    unsigned char *to, const unsigned char *table, int64_t start, int64_t wanted,
    const unsigned char *operations, int64_t have,
) noexcept nogil:
    """Bytes of the table, with the changes of the first `have` bytes of operations."""
    cdef int64_t at = 0
    cdef int64_t place, size, first, last, next
    if wanted == 0:
        return
    memcpy(to, table + start, wanted)
    while at < have:
        next = read_change(operations, have, at, &place, &size)
        if next < 0:
            return
        first = max(place, start)
        last = min(place + size, start + wanted)
        if first < last:
            memcpy(to + first - start, operations + next - size + first - place, last - first)
        at = next


# --- modifications ----------------------------------------------------------------------------------------------------


cdef inline int check_room(int64_t table_bytes, int64_t page, int64_t offset, int64_t size) except -1:
    if page < 0 or not 0 <= offset <= MAX_IMAGE_BYTES or size > MAX_IMAGE_BYTES:
        raise IndexError("no modification is this large")
    if page > table_bytes or page + C_PAGE_HEAD_BYTES + offset > table_bytes - size:
        raise IndexError("the table ends before the page does")
    return 0


cdef inline int add_modification(
    bytearray operations, object memory, int64_t page, int64_t offset, object data
) except -1:
    cdef Py_buffer table, given
    cdef int64_t have, at
    cdef unsigned char *place
    PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(memory, &table, PyBUF_SIMPLE)
        try:
            check_room(table.len, page, offset, given.len)
            have = len(operations)
            at = have + HEAD_BYTES
            PyByteArray_Resize(operations, at + 2 * given.len)
            place = <unsigned char *>PyByteArray_AS_STRING(operations)
            store_modification_head(place + have, page, offset, given.len)
            load_into(
                place + at, <unsigned char *>table.buf, page + C_PAGE_HEAD_BYTES + offset, given.len, place, have
            )
            if given.len:
                memcpy(place + at + given.len, given.buf, given.len)
        finally:
            PyBuffer_Release(&table)
    finally:
        PyBuffer_Release(&given)
    return 0


cdef inline bytes load_changed(bytearray operations, object memory, int64_t page, int64_t offset, int64_t size):
    cdef Py_buffer table
    cdef bytes found
    cdef int64_t have
    PyObject_GetBuffer(memory, &table, PyBUF_SIMPLE)
    try:
        have = len(operations)
        if not (0 <= page <= table.len and 0 <= offset <= table.len and 0 <= size <= table.len):
            raise IndexError("the table ends before the page does")
        if page + C_PAGE_HEAD_BYTES + offset > table.len - size:
            raise IndexError("the table ends before the page does")
        found = PyBytes_FromStringAndSize(NULL, size)  # which runs no Python
        load_into(
            <unsigned char *>PyBytes_AS_STRING(found),
            <unsigned char *>table.buf,
            page + C_PAGE_HEAD_BYTES + offset,
            size,
            <unsigned char *>PyByteArray_AS_STRING(operations),
            have,
        )
    finally:
        PyBuffer_Release(&table)
    return found


cdef inline bytes encode_transaction(bytearray operations, int64_t previous, int64_t timestamp):
    cdef int64_t size = len(operations)
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size + AROUND_BYTES)
    store_encoded(
        <unsigned char *>PyBytes_AS_STRING(found),
        <unsigned char *>PyByteArray_AS_STRING(operations),
        size,
        previous,
        timestamp,
    )
    return found


# --- storing ----------------------------------------------------------------------------------------------------------


cdef inline int check_changes(bytearray operations, int64_t table_bytes) except -1:
    """Every change must be whole, and within the pages of the table."""
    cdef int64_t have = len(operations)
    cdef int64_t at = 0
    cdef int64_t place = 0
    cdef int64_t size = 0
    while at < have:
        at = read_change(<unsigned char *>PyByteArray_AS_STRING(operations), have, at, &place, &size)
        if at < 0:
            raise IndexError("the operations were cut short")
        if not TABLE_HEAD_BYTES <= place <= table_bytes - size:
            raise IndexError("the table ends before the page does")
    return 0


cdef inline int check_position(int64_t journal_bytes, int64_t position, int64_t previous, int64_t size) except -1:
    if position < HEADER_BYTES or position > journal_bytes - size:
        raise IndexError("there is no room in the journal")
    if previous and not HEADER_BYTES <= previous < position:
        raise IndexError("the previous transaction is not in the journal")
    return 0


cdef inline void store_checked(bytearray operations, unsigned char *table) noexcept:
    """Make changes that were checked, since when nothing has run Python."""
    cdef const unsigned char *data = <unsigned char *>PyByteArray_AS_STRING(operations)
    cdef int64_t have = PyByteArray_GET_SIZE(operations)
    cdef int64_t at = 0
    cdef int64_t place = 0
    cdef int64_t size = 0
    while at < have:
        at = read_change(data, have, at, &place, &size)
        memcpy(table + place, data + at - size, size)


cdef inline int store_changes(bytearray operations, object memory) except -1:
    cdef Py_buffer table
    PyObject_GetBuffer(memory, &table, PyBUF_WRITABLE)
    try:
        check_changes(operations, table.len)
        store_checked(operations, <unsigned char *>table.buf)
    finally:
        PyBuffer_Release(&table)
    return 0


cdef inline int store_transaction(
    bytearray operations, object memory, object journal, int64_t position, int64_t previous, int64_t timestamp
) except -1:
    cdef Py_buffer table, log
    cdef unsigned char *place
    PyObject_GetBuffer(journal, &log, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(memory, &table, PyBUF_WRITABLE)
        try:
            check_position(log.len, position, previous, len(operations) + AROUND_BYTES)
            if table.len < TABLE_HEAD_BYTES:
                raise IndexError("there is no table")
            check_changes(operations, table.len)
            place = <unsigned char *>log.buf + position
            store_encoded(
                place,
                <unsigned char *>PyByteArray_AS_STRING(operations),
                PyByteArray_GET_SIZE(operations),
                previous,
                timestamp,
            )
            store_name(<unsigned char *>log.buf, position, previous)
            IN_ORDER()
            memcpy(table.buf, b"TBL?", 4)
            IN_ORDER()
            store_checked(operations, <unsigned char *>table.buf)
            IN_ORDER()
            memcpy(table.buf, b"TBL!", 4)
            IN_ORDER()
            place[FLAGS_AT] = COMPLETE
        finally:
            PyBuffer_Release(&table)
    finally:
        PyBuffer_Release(&log)
    return 0


cdef inline int64_t store_at_once(
    object memory, object journal, int64_t page, int64_t offset, bytes data, int64_t position, int64_t previous,
    int64_t timestamp,
) except -1:
    cdef Py_buffer table, log
    cdef int64_t size = len(data)
    cdef int64_t whole = AROUND_BYTES + HEAD_BYTES + 2 * size
    PyObject_GetBuffer(journal, &log, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(memory, &table, PyBUF_WRITABLE)
        try:
            check_room(table.len, page, offset, size)
            if page + C_PAGE_HEAD_BYTES + offset < TABLE_HEAD_BYTES:
                raise IndexError("no page is there")
            check_position(log.len, position, previous, whole)
            store_one(
                <unsigned char *>log.buf, <unsigned char *>table.buf, page, offset, data, position, previous, timestamp
            )
        finally:
            PyBuffer_Release(&table)
    finally:
        PyBuffer_Release(&log)
    return position + whole


cdef inline void store_one(
    unsigned char *log, unsigned char *table, int64_t page, int64_t offset, bytes data,
    int64_t position, int64_t previous, int64_t timestamp,
) noexcept:
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef unsigned char *operation = log + position + TRANSACTION_HEAD_BYTES
    cdef unsigned char *before = operation + HEAD_BYTES
    cdef unsigned char *place = table + page + C_PAGE_HEAD_BYTES + offset
    store_head(log + position, previous, timestamp)
    store_modification_head(operation, page, offset, size)
    memcpy(before, place, size)
    memcpy(before + size, PyBytes_AS_STRING(data), size)
    store_end(before + 2 * size, checksum_of(operation, before + 2 * size - operation, previous, timestamp))
    store_name(log, position, previous)
    IN_ORDER()
    memcpy(table, b"TBL?", 4)
    IN_ORDER()
    memcpy(place, PyBytes_AS_STRING(data), size)
    IN_ORDER()
    memcpy(table, b"TBL!", 4)
    IN_ORDER()
    log[position + FLAGS_AT] = COMPLETE
