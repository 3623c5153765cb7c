"""The C types of shelf.py, and the parts written in C: taking the mutex, encoding an item in place, and writing."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.method cimport PyMethod_Check, PyMethod_GET_FUNCTION, PyMethod_GET_SELF
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ...core.bytes._bytes cimport load_little_i32, load_little_i64, now_ms, store_little_u32, store_little_u64
from ...core.bytes._write_buffer cimport WriteBuffer, PyGC_Disable, PyGC_Enable, room_for
from ..bytes._operations cimport ADD, ADD_XID, ADDX, ADDX_HEAD, has_data, head_bytes
from ._mutex cimport Mutex

# Names of shelf.py that are used here.
cdef bytes REMOVE_BYTE
cdef object REAL_WRITE, PWRITE, WRITE_ERROR, exc_info


cdef class Shelf(WriteBuffer):
    cdef object owner
    cdef readonly Mutex mutex
    # operations to be written
    cdef public int64_t position
    cdef public int64_t file_size
    cdef public int dialect
    cdef public object write
    cdef public tuple in_flight
    cdef public bint unsettled
    cdef public int64_t began
    cdef public int64_t serial
    # items that threads hold
    cdef long _holder
    cdef object _held_data
    cdef int64_t _held_added
    cdef int64_t _held_expires
    cdef int64_t _held_attempts
    cdef int64_t _held_name
    cdef int64_t _held_serial
    cdef dict _held_by_others
    # items
    cdef public int64_t items
    cdef public int64_t data_bytes
    cdef readonly int64_t memory_items
    cdef readonly int64_t memory_bytes
    cdef public int64_t added
    cdef public int64_t taken
    cdef public int64_t waiting
    cdef list _data
    cdef int64_t[::1] _numbers
    cdef int64_t _capacity
    cdef int64_t _first
    # limits
    cdef public object clock
    cdef public int64_t max_items
    cdef public int64_t max_bytes
    cdef public int64_t max_item_bytes
    cdef public int64_t max_memory_items
    cdef public int64_t max_memory_bytes
    cdef public int64_t max_age
    cdef public int64_t max_attempts
    cdef public int64_t compact_bytes
    cdef public int64_t erase_bytes

    @cython.final
    @cython.locals(now=int64_t)
    cdef int _put_now(self, data, expires) except -1
    cpdef put_locked(self, bytes data, int64_t added, int64_t expires)
    @cython.final
    @cython.locals(size=int64_t, position=int64_t, is_part=bint)
    cdef int _put(self, data, int64_t added, int64_t expires) except -1
    @cython.final
    @cython.locals(at=int64_t, thread=long)
    cdef object _get(self, bint is_held)
    @cython.final
    cdef int _end_with_error(self, error) except -1
    @cython.final
    cdef int _hold_for_others(self) except -1
    @cython.final
    cdef tuple _held_entry(self)
    @cython.final
    cdef int64_t _now(self) except? -1
    @cython.final
    @cython.locals(place=int64_t)
    cdef int _push(self, data, int64_t added, int64_t expires, int64_t name) except -1
    @cython.final
    @cython.locals(capacity=int64_t, row=int64_t, place=int64_t, number=int, data=list, numbers=int64_t[::1])
    cdef int _grow(self) except -1
    @cython.final
    @cython.locals(size=int64_t)
    cdef object _take_first(self)
    @cython.final
    cdef tuple _entry(self, int64_t place)
    @cython.final
    cdef tuple _with_numbers(self, data, int64_t at)
    cpdef tuple head(self)
    @cython.locals(at=int64_t)
    cpdef tuple pop(self)
    @cython.locals(place=int64_t, added=int64_t, expires=int64_t, attempts=int64_t, name=int64_t)
    cpdef put_back(self, tuple entry)
    @cython.locals(row=int64_t)
    cpdef list entries(self)
    @cython.locals(data=list, numbers=int64_t[::1])
    cpdef clear(self)
    @cython.locals(
        view="const unsigned char[::1]",
        codes="const unsigned char[::1]",
        ids="const int32_t[::1]",
        starts="const int64_t[::1]",
        count=Py_ssize_t,
        row=Py_ssize_t,
        taken=int64_t,
        kind=int,
        start=int64_t,
        stop=int64_t,
        data_start=int64_t,
        size=int64_t,
        added=int64_t,
        expires=int64_t,
    )
    cpdef stock(
        self, buffer, int64_t base, kinds, numbers, positions, int64_t end, int64_t most_items, int64_t most_bytes
    )
    @cython.final
    @cython.locals(position=int64_t)
    cdef int64_t _emit(self, bytes data) except -1
    @cython.final
    @cython.locals(written=int64_t)
    cdef int _write_through(self, bytes data) except -1


# --- one call after the other -----------------------------------------------------------------------------------------


cdef inline int end_turn(Shelf shelf, bint has_begun) except -1:
    try:
        if has_begun and shelf.unsettled:
            shelf._end_with_error(exc_info()[1])
    finally:
        shelf.mutex.release()
    return 0


cdef inline int put_in_turn(Shelf shelf, object data, object expires) except -1:
    cdef bint has_begun = False
    if shelf.mutex is None:
        raise ValueError("this shelf was not initialized")
    shelf.mutex.acquire()
    try:
        if shelf.unsettled:
            shelf.refuse()
        has_begun = True
        shelf._put_now(data, expires)
    finally:
        end_turn(shelf, has_begun)
    return 0


cdef inline object get_in_turn(Shelf shelf, bint is_held):
    cdef bint has_begun = False
    if shelf.mutex is None:
        raise ValueError("this shelf was not initialized")
    shelf.mutex.acquire()
    try:
        if shelf.refusing or shelf.unsettled:
            shelf.refuse()
        has_begun = True
        return shelf._get(is_held)
    finally:
        end_turn(shelf, has_begun)


# --- operations to be written -----------------------------------------------------------------------------------------


cdef inline int64_t emit_add(Shelf shelf, object data, int64_t size, int64_t added, int64_t expires) except -1:
    """Write an ADDX, or add it to the buffer; returns its position. `size` is that of the data."""
    cdef int64_t position = shelf.position
    cdef int64_t whole = size + ADDX_HEAD
    cdef bytes operation = None
    cdef unsigned char *out
    if shelf.write is None:
        out = room_for(shelf, whole)
    else:
        operation = PyBytes_FromStringAndSize(NULL, whole)
        out = <unsigned char *>PyBytes_AS_STRING(operation)
    out[0] = ADDX
    store_little_u32(out + 1, <uint32_t>(size + 16))
    store_little_u64(out + 5, <uint64_t>added)
    store_little_u64(out + 13, <uint64_t>expires)
    memcpy(out + ADDX_HEAD, PyBytes_AS_STRING(data), size)
    if operation is not None:
        return shelf._emit(operation)
    shelf.serial += 1
    shelf.position = position + whole
    shelf._used += whole
    if shelf._used >= shelf.attention_bytes:
        shelf.attend()
    return position


cdef inline int64_t add_to_buffer(Shelf shelf, bytes data) except -1:
    cdef int64_t size = len(data)
    memcpy(room_for(shelf, size), PyBytes_AS_STRING(data), size)
    shelf.serial += 1
    shelf.position += size
    shelf._used += size
    return shelf._used


cdef inline int take_buffer(Shelf shelf) except -1:
    cdef Py_ssize_t used = shelf._used
    cdef bint collecting = PyGC_Disable()  # or else a finalizer might take the operations a second time
    try:
        shelf.in_flight = shelf._swap(), used
    finally:
        if collecting:
            PyGC_Enable()
    return 0


cdef inline int64_t write_at(object write, int64_t position, bytes data) except? -1:
    cdef object file
    if PyMethod_Check(write) and PyMethod_GET_FUNCTION(write) == <PyObject *>REAL_WRITE:
        file = <object>PyMethod_GET_SELF(write)
        try:
            return PWRITE(file.descriptor, data, position)
        except OSError as error:
            raise WRITE_ERROR("write", file.path, error) from error
    return write(position, data)


# --- bytes ------------------------------------------------------------------------------------------------------------


cdef inline long get_ident() noexcept:
    return <long>PyThread_get_thread_ident()


cdef inline int64_t size_of(object data) noexcept:
    return PyBytes_GET_SIZE(data)


cdef inline bytes bytes_of(const unsigned char[::1] view, int64_t start, int64_t size):
    return PyBytes_FromStringAndSize(<const char *>&view[0] + start, size)


cdef inline int64_t load_i32(const unsigned char[::1] view, int64_t at) noexcept:
    return load_little_i32(&view[0] + at)


cdef inline int64_t load_i64(const unsigned char[::1] view, int64_t at) noexcept:
    return load_little_i64(&view[0] + at)
