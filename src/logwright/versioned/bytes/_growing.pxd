"""A growing buffer of bytes for the kernels of this format. All of it is inline.

The bytes are collected in the object that is returned in the end: new memory costs more than writing to it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.string cimport memcpy

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **place, Py_ssize_t size) except -1


cdef struct Growing:
    # The first `size` bytes of `data`, which has room for `room` of them, and belongs to `owner`. All zeros are none.
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t room
    PyObject *owner


cdef inline int resize(Growing *growing, Py_ssize_t room) except -1:
    """Change the capacity."""
    cdef bytes made
    if growing.owner == NULL:
        made = PyBytes_FromStringAndSize(NULL, room)
        Py_INCREF(made)
        growing.owner = <PyObject *>made
    else:
        _PyBytes_Resize(&growing.owner, room)  # where that fails there is no owner any more
    growing.data = <unsigned char *>PyBytes_AS_STRING(<bytes>growing.owner)
    growing.room = room
    return 0


cdef inline int make_room(Growing *growing, Py_ssize_t more) except -1 nogil:
    """Make room for `more` bytes."""
    if growing.room - growing.size >= more:
        return 0
    with gil:
        return resize(growing, max(2 * growing.room, growing.size + more, 256))


cdef inline bytes take_bytes(Growing *growing):
    """What has been gathered; there is none of it any more then."""
    cdef bytes taken
    if growing.size == 0:
        return b""
    resize(growing, growing.size)
    taken = <bytes>growing.owner
    drop(growing)
    return taken


cdef inline void drop(Growing *growing) noexcept:
    """Forget what has been gathered, if there is any."""
    Py_XDECREF(growing.owner)
    growing.owner = NULL
    growing.size = growing.room = 0


cdef inline void put(Growing *growing, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Append some bytes, for which there is room; where there are none, there may be no memory yet either."""
    if size > 0:
        memcpy(growing.data + growing.size, data, size)
        growing.size += size


cdef inline void put_one(Growing *growing, unsigned char byte) noexcept nogil:
    """Append a byte, for which there is room."""
    growing.data[growing.size] = byte
    growing.size += 1


cdef inline int append(Growing *growing, const unsigned char *data, Py_ssize_t size) except -1 nogil:
    """Append some bytes."""
    make_room(growing, size)
    put(growing, data, size)
    return 0
