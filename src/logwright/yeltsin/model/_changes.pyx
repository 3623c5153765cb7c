# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Changes: the short way of transactions that only modify pages, compiled; see `changes.py`, which says what is done.

Every place is checked against the memory before it is read or written: a table or a journal that is shorter than its
owner believes is an `IndexError`, and nothing is stored. From the check on nothing runs Python until all is stored: the
checksum is made by the kernel. `operations` is an object that its owner can reach, so its size is looked at as well.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ...core.bytes._crc32c cimport checksum_of_bytes
from ...core.bytes._bytes cimport store_little_u16, store_little_u32, store_little_u64

from ..bytes import layout as _layout
from ..files import seal as _seal
from ..bytes import table_layout as _table_layout


cdef extern from *:
    """
    /* Earlier stores become visible before later ones, for readers of the file after a kill. */
    #define LOGWRIGHT_IN_ORDER() __asm__ __volatile__("" ::: "memory")
    """
    void IN_ORDER "LOGWRIGHT_IN_ORDER"() noexcept nogil


cdef int64_t TRANSACTION_HEAD_BYTES = _layout.TRANSACTION_HEAD_BYTES
cdef int64_t OPERATION_HEAD_BYTES = _layout.OPERATION_HEAD_BYTES
cdef int64_t MODIFICATION_HEAD_BYTES = _layout.MODIFICATION_HEAD.size
cdef int64_t SEAL_BYTES = _seal.SEAL_HEAD.size
cdef int64_t NEXT_AT = _layout.NEXT_AT
cdef int64_t TIMESTAMP_AT = _layout.TIMESTAMP_AT
cdef int64_t FLAGS_AT = _layout.FLAGS_AT
cdef int64_t FIRST_AT = _layout.FIRST_AT
cdef int64_t LAST_AT = _layout.LAST_AT
cdef int64_t HEADER_BYTES = _layout.HEADER_BYTES
cdef int64_t PAGE_HEAD_BYTES = _table_layout.PAGE_HEAD_BYTES
cdef int64_t TABLE_HEAD_BYTES = _table_layout.TABLE_HEAD_BYTES
cdef int64_t MAX_IMAGE_BYTES = _layout.MAX_IMAGE_BYTES
cdef unsigned char MODIFICATION = _layout.MODIFICATION
cdef unsigned char COMPLETION = _layout.COMPLETION
cdef unsigned char COMPLETE = _layout.COMPLETE
cdef bytes MARK = _seal.MARK
cdef bytes UNFINISHED = _table_layout.UNFINISHED
cdef bytes WHOLE = _table_layout.WHOLE
cdef int64_t AROUND = TRANSACTION_HEAD_BYTES + OPERATION_HEAD_BYTES + SEAL_BYTES
AROUND_BYTES = AROUND


cdef uint32_t checksum_of(const unsigned char* operations, int64_t size, int64_t previous, int64_t timestamp) noexcept:
    cdef unsigned char covered[16]
    store_little_u64(covered, <uint64_t>previous)
    store_little_u64(covered + 8, <uint64_t>timestamp)
    return checksum_of_bytes(operations, <size_t>size, checksum_of_bytes(covered, 16, 0))


cdef void store_head(unsigned char* place, int64_t previous, int64_t timestamp) noexcept:
    store_little_u64(place, <uint64_t>previous)
    store_little_u64(place + NEXT_AT, 0)
    store_little_u64(place + TIMESTAMP_AT, <uint64_t>timestamp)
    place[FLAGS_AT] = 0


cdef void store_modification_head(unsigned char* place, int64_t page, int64_t offset, int64_t size) noexcept:
    place[0] = MODIFICATION
    store_little_u32(place + 1, <uint32_t>(MODIFICATION_HEAD_BYTES + 2 * size))
    store_little_u64(place + 5, <uint64_t>page)
    store_little_u16(place + 13, <uint32_t>offset)
    store_little_u16(place + 15, <uint32_t>size)


cdef void store_end(unsigned char* place, uint32_t checksum) noexcept:
    place[0] = COMPLETION
    store_little_u32(place + 1, <uint32_t>SEAL_BYTES)
    memcpy(place + 5, PyBytes_AS_STRING(MARK), 4)
    store_little_u32(place + 9, checksum)


cdef void store_name(unsigned char* log, int64_t position, int64_t previous) noexcept:
    """Let links and header lead to a transaction that is there."""
    IN_ORDER()
    if previous:
        store_little_u64(log + previous + NEXT_AT, <uint64_t>position)
    else:
        store_little_u64(log + FIRST_AT, <uint64_t>position)
    IN_ORDER()
    store_little_u64(log + LAST_AT, <uint64_t>position)


cdef struct Place:
    int64_t place
    int64_t size
    int64_t at


cdef class Ending:
    """The end of a `with` block, `_end`, and what follows if that is interrupted, `_leave`; see changes.Ending."""

    def __exit__(self, kind, error, trace):
        try:
            self._end(error)
        except BaseException:
            self._leave()
            raise


cdef class Changes:
    """The modifications of one transaction; `operations` are their bytes."""

    cdef object _table
    cdef readonly bytearray operations
    cdef Place* _places
    cdef int64_t _count
    cdef int64_t _room

    def __cinit__(self, table):
        self._table = table
        self.operations = bytearray()
        self._places = NULL
        self._count = self._room = 0

    def __dealloc__(self):
        free(self._places)

    @property
    def size(self):
        """How many bytes the transaction will have in the journal."""
        return AROUND + PyByteArray_GET_SIZE(self.operations)

    def modify(self, int64_t page, int64_t offset, data):
        """Replace bytes of a page's data."""
        cdef Py_buffer table, given
        PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(self._table, &table, PyBUF_SIMPLE)
            try:
                if page < 0 or not 0 <= offset <= MAX_IMAGE_BYTES or given.len > MAX_IMAGE_BYTES:
                    raise IndexError("no modification is this large")
                if page > table.len or page + PAGE_HEAD_BYTES + offset > table.len - given.len:
                    raise IndexError("the table ends before the page does")
                self._append(
                    page, offset, page + PAGE_HEAD_BYTES + offset, <unsigned char*>table.buf,
                    <unsigned char*>given.buf, given.len,
                )
            finally:
                PyBuffer_Release(&table)
        finally:
            PyBuffer_Release(&given)

    cdef int _append(
        self, int64_t page, int64_t offset, int64_t start, unsigned char* table, unsigned char* data, int64_t size
    ) except -1:
        cdef int64_t have = PyByteArray_GET_SIZE(self.operations)
        cdef int64_t at = have + OPERATION_HEAD_BYTES + MODIFICATION_HEAD_BYTES
        cdef unsigned char* place
        cdef Place* places
        if self._count == self._room:
            places = <Place*>realloc(self._places, (self._room * 2 + 8) * sizeof(Place))
            if places == NULL:
                raise MemoryError
            self._places = places
            self._room = self._room * 2 + 8
        PyByteArray_Resize(self.operations, at + 2 * size)
        place = <unsigned char*>PyByteArray_AS_STRING(self.operations)
        store_modification_head(place + have, page, offset, size)
        self._load(place + at, table, start, size)
        if size:
            memcpy(place + at + size, data, size)
        self._places[self._count] = Place(start, size, at + size)
        self._count += 1
        return 0

    cdef void _load(self, unsigned char* to, const unsigned char* table, int64_t start, int64_t size) noexcept:
        """Bytes of the table, with the changes so far."""
        cdef int64_t number, first, last
        cdef Place* change
        cdef unsigned char* operations = <unsigned char*>PyByteArray_AS_STRING(self.operations)
        if size == 0:
            return
        memcpy(to, table + start, size)
        for number in range(self._count):
            change = &self._places[number]
            if change.at + change.size > PyByteArray_GET_SIZE(self.operations):
                return
            first = max(change.place, start)
            last = min(change.place + change.size, start + size)
            if first < last:
                memcpy(to + first - start, operations + change.at + first - change.place, last - first)

    def load(self, int64_t page, int64_t offset, int64_t size):
        """Bytes of a page's data, with the changes so far."""
        cdef Py_buffer table
        cdef bytes found
        PyObject_GetBuffer(self._table, &table, PyBUF_SIMPLE)
        try:
            if not (0 <= page <= table.len and 0 <= offset <= table.len and 0 <= size <= table.len):
                raise IndexError("the table ends before the page does")
            if page + PAGE_HEAD_BYTES + offset > table.len - size:
                raise IndexError("the table ends before the page does")
            found = PyBytes_FromStringAndSize(NULL, size)
            self._load(
                <unsigned char*>PyBytes_AS_STRING(found), <unsigned char*>table.buf, page + PAGE_HEAD_BYTES + offset, size
            )
        finally:
            PyBuffer_Release(&table)
        return found

    def items(self):
        """Where in the table each change goes, and what it is, in their order."""
        cdef int64_t number
        found = []
        for number in range(self._count):
            change = self._places[number]
            found.append((change.place, bytes(self.operations[change.at : change.at + change.size])))
        return found

    def encode(self, int64_t previous, int64_t timestamp):
        """The whole transaction as the journal has it."""
        cdef int64_t size = PyByteArray_GET_SIZE(self.operations)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, size + AROUND)
        self._encode(<unsigned char*>PyBytes_AS_STRING(found), previous, timestamp, size)
        return found

    def ranges(self):
        """Where in the table each change begins and ends, in their order."""
        cdef int64_t number
        found = []
        for number in range(self._count):
            found.append((self._places[number].place, self._places[number].place + self._places[number].size))
        return found

    def apply(self, table):
        """Make the changes in the memory of a table."""
        cdef Py_buffer pages
        PyObject_GetBuffer(table, &pages, PyBUF_WRITABLE)
        try:
            self._check(pages.len)
            self._store(<unsigned char*>pages.buf)
        finally:
            PyBuffer_Release(&pages)

    def commit(self, journal, int64_t position, int64_t previous, int64_t timestamp):
        """Store the transaction in the journal after the last one, and then in the table, and say so in both."""
        cdef Py_buffer pages, log
        cdef int64_t size
        PyObject_GetBuffer(journal, &log, PyBUF_WRITABLE)
        try:
            PyObject_GetBuffer(self._table, &pages, PyBUF_WRITABLE)
            try:
                size = PyByteArray_GET_SIZE(self.operations)
                if position < HEADER_BYTES or position > log.len - size - AROUND:
                    raise IndexError("there is no room in the journal")
                if previous and not HEADER_BYTES <= previous < position:
                    raise IndexError("the previous transaction is not in the journal")
                self._check(pages.len)
                self._record(<unsigned char*>log.buf, position, previous, timestamp, size)
                IN_ORDER()
                self._apply(<unsigned char*>pages.buf)
                IN_ORDER()
                (<unsigned char*>log.buf)[position + FLAGS_AT] = COMPLETE
            finally:
                PyBuffer_Release(&pages)
        finally:
            PyBuffer_Release(&log)

    cdef int _check(self, int64_t size) except -1:
        cdef int64_t number
        for number in range(self._count):
            if self._places[number].at + self._places[number].size > PyByteArray_GET_SIZE(self.operations):
                raise IndexError("the operations were cut short")
            if not TABLE_HEAD_BYTES <= self._places[number].place <= size - self._places[number].size:
                raise IndexError("the table ends before the page does")
        return 0

    cdef void _encode(
        self, unsigned char* place, int64_t previous, int64_t timestamp, int64_t size
    ) noexcept:
        cdef unsigned char* operations = place + TRANSACTION_HEAD_BYTES
        store_head(place, previous, timestamp)
        memcpy(operations, PyByteArray_AS_STRING(self.operations), size)
        store_end(operations + size, checksum_of(operations, size, previous, timestamp))

    cdef void _record(
        self, unsigned char* log, int64_t position, int64_t previous, int64_t timestamp, int64_t size
    ) noexcept:
        self._encode(log + position, previous, timestamp, size)
        store_name(log, position, previous)

    cdef void _apply(self, unsigned char* table) noexcept:
        memcpy(table, PyBytes_AS_STRING(UNFINISHED), 4)
        IN_ORDER()
        self._store(table)
        IN_ORDER()
        memcpy(table, PyBytes_AS_STRING(WHOLE), 4)

    cdef void _store(self, unsigned char* table) noexcept:
        cdef int64_t number
        cdef const unsigned char* operations = <unsigned char*>PyByteArray_AS_STRING(self.operations)
        for number in range(self._count):
            memcpy(
                table + self._places[number].place,
                operations + self._places[number].at,
                self._places[number].size,
            )


def modify_at_once(
    table, journal, int64_t page, int64_t offset, bytes data not None, int64_t position, int64_t previous,
    int64_t timestamp,
):
    """Commit a transaction of one modification; where it ends in the journal."""
    cdef Py_buffer pages, log
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef int64_t whole = AROUND + OPERATION_HEAD_BYTES + MODIFICATION_HEAD_BYTES + 2 * size
    cdef int64_t start
    PyObject_GetBuffer(journal, &log, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(table, &pages, PyBUF_WRITABLE)
        try:
            if page < 0 or not 0 <= offset <= MAX_IMAGE_BYTES or size > MAX_IMAGE_BYTES:
                raise IndexError("no modification is this large")
            if page > pages.len:
                raise IndexError("the table ends before the page does")
            start = page + PAGE_HEAD_BYTES + offset
            if start < TABLE_HEAD_BYTES or start > pages.len - size:
                raise IndexError("the table ends before the page does")
            if position < HEADER_BYTES or position > log.len - whole:
                raise IndexError("there is no room in the journal")
            if previous and not HEADER_BYTES <= previous < position:
                raise IndexError("the previous transaction is not in the journal")
            _store_at_once(
                <unsigned char*>log.buf, <unsigned char*>pages.buf, page, offset, data, position, previous, timestamp
            )
        finally:
            PyBuffer_Release(&pages)
    finally:
        PyBuffer_Release(&log)
    return position + whole


cdef void _store_at_once(
    unsigned char* log, unsigned char* table, int64_t page, int64_t offset, bytes data,
    int64_t position, int64_t previous, int64_t timestamp,
) noexcept:
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef unsigned char* operation = log + position + TRANSACTION_HEAD_BYTES
    cdef unsigned char* before = operation + OPERATION_HEAD_BYTES + MODIFICATION_HEAD_BYTES
    cdef unsigned char* place = table + page + PAGE_HEAD_BYTES + offset
    store_head(log + position, previous, timestamp)
    store_modification_head(operation, page, offset, size)
    memcpy(before, place, size)
    memcpy(before + size, PyBytes_AS_STRING(data), size)
    store_end(before + 2 * size, checksum_of(operation, before + 2 * size - operation, previous, timestamp))
    store_name(log, position, previous)
    IN_ORDER()
    memcpy(table, PyBytes_AS_STRING(UNFINISHED), 4)
    IN_ORDER()
    memcpy(place, PyBytes_AS_STRING(data), size)
    IN_ORDER()
    memcpy(table, PyBytes_AS_STRING(WHOLE), 4)
    IN_ORDER()
    log[position + FLAGS_AT] = COMPLETE
