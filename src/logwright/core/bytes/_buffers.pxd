"""Buffers for the kernels of formats: see _buffers.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef class View:
    cdef Py_buffer view
    cdef bint held
    cdef const unsigned char *data
    cdef Py_ssize_t size


cdef int check_range(View view, Py_ssize_t start, Py_ssize_t end) except -1
cdef int check_count(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, Py_ssize_t least_bytes) except -1
cdef Py_ssize_t rows_of(object columns) except -1
cdef object not_walked(Py_ssize_t position)
cdef object array_of(str code, bytes items)
cdef const unsigned char *column_memory(object buffer, Py_ssize_t needed, str name, list views) except? NULL
cdef const unsigned char *column_bytes(object buffer, int64_t *size, list views) except NULL
cdef int check_ends(const int32_t *ends, Py_ssize_t count, int64_t have, int64_t limit, str name) except -1
