"""Columns for the kernels of formats: see _column_builder.pyx."""

from libc.stdint cimport int32_t, int64_t

from ._bytes cimport copy_bytes


cdef struct BytesColumn:
    # The bytes of consecutive items, and where each ends. `ends` is NULL if the column was not requested.
    int32_t *ends
    unsigned char *data
    int64_t room
    int64_t used


cdef inline bint fits(const BytesColumn *column, int64_t size) noexcept nogil:
    """Whether one more item of this size fits."""
    return column.ends == NULL or size <= column.room - column.used


cdef inline void put_bytes(
    BytesColumn *column, int64_t row, const unsigned char *item, int64_t size, int64_t readable
) noexcept nogil:
    """Put the item of a row, which fits. `readable` is the number of bytes that may be read from its beginning."""
    if column.ends == NULL:
        return
    copy_bytes(column.data + column.used, item, size, column.room - column.used, readable)
    column.used += size
    column.ends[row + 1] = <int32_t>column.used


cdef class ColumnBuilder:
    cdef object _columns
    cdef object _allocate
    cdef dict _byte_room
    cdef list _views
    cdef Py_ssize_t _rows
    cdef bint _busy

    cdef int _begin(self, object columns, Py_ssize_t rows, dict room, object allocate) except -1
    cdef unsigned char *_numbers(self, bint wanted, str name, Py_ssize_t width) except? NULL
    cdef int _bytes(self, bint wanted, str name, str ends_name, BytesColumn *column) except -1
    cdef int _check_ours(self) except -1
    cdef object _leave(self, Py_ssize_t count)
    cdef unsigned char *_allocated(self, str name, Py_ssize_t size) except? NULL
