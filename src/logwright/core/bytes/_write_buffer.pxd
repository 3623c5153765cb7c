"""Buffers of bytes to be written, for the kernels of formats: see _write_buffer.pyx."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize

cdef extern from "Python.h":
    # They return whether the garbage collector was on. A kernel that changes a Python object between writing a record
    # and counting it switches the collector off: a callback or a finalizer might append as well.
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept


cdef class WriteBuffer:
    cdef public Py_ssize_t attention_bytes
    cdef public bint refusing
    cdef public object attend
    cdef public object refuse
    cdef Py_ssize_t _usual_bytes
    cdef Py_ssize_t _first_bytes
    cdef Py_ssize_t _used
    cdef bytearray _buffer
    cdef bytearray _spare

    cdef bytearray _swap(self)


cdef inline Py_ssize_t room_left(WriteBuffer buffer) noexcept:
    """The number of bytes that can be added without growing the buffer."""
    return PyByteArray_GET_SIZE(buffer._buffer) - buffer._used


cdef inline unsigned char *room_for(WriteBuffer buffer, Py_ssize_t size) except NULL:
    """Where the next `size` bytes go. They count once they are added to `_used`."""
    if size > room_left(buffer):
        PyByteArray_Resize(buffer._buffer, max(PyByteArray_GET_SIZE(buffer._buffer) * 2, buffer._used + size))
    return <unsigned char *>PyByteArray_AS_STRING(buffer._buffer) + buffer._used
