# cython: language_level=3
"""Mutex: a lock of the interpreter, which compiled code acquires without a call of Python if it is free."""

from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    WAIT_LOCK,
)

from ...errors import WrongUse


cdef class Mutex:
    """A lock for `with`. A thread that already holds it gets an error: it would wait for itself for ever."""

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    cdef int acquire(self) except -1:
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            if self._owner == PyThread_get_thread_ident():
                raise WrongUse("this queue was called from within one of its own calls, as by a finalizer")
            with nogil:
                PyThread_acquire_lock(self._lock, WAIT_LOCK)
        self._owner = PyThread_get_thread_ident()
        return 0

    cdef void release(self) noexcept:
        self._owner = 0
        PyThread_release_lock(self._lock)

    def __enter__(self):
        self.acquire()
        return True

    def __exit__(self, kind, error, trace):
        if self._owner == 0:
            raise RuntimeError("the mutex is free")
        self.release()
