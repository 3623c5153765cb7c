"""See _mutex.pyx."""

from cpython.pythread cimport PyThread_type_lock


cdef class Mutex:
    cdef PyThread_type_lock _lock
    cdef unsigned long _owner  # 0 while it is free

    cdef int acquire(self) except -1
    cdef void release(self) noexcept
