from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef class Message:
    cdef readonly uint64_t offset
    cdef int64_t stamp
    cdef readonly uint8_t type
    cdef readonly bytes key
    cdef readonly bytes value
