"""See table.Slot."""

cimport cython
from libc.stdint cimport int64_t, uint64_t


@cython.final
cdef class Slot:
    cdef public object value
    cdef public uint64_t t
    cdef public int64_t start
    cdef public int64_t end
    cdef public int64_t value_start
    cdef public int64_t value_end
