"""Bytes that become more, one behind the other, for the kernels of this format. All of it is inline."""

from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef struct Growing:
    # The first `size` bytes of `data`, which is to be freed, and has room for `room` of them.
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t room


cdef inline int make_room(Growing *growing, Py_ssize_t more) except -1 nogil:
    """See to it that so many bytes more have room."""
    cdef Py_ssize_t room
    cdef unsigned char *data
    if growing.room - growing.size >= more:
        return 0
    room = max(2 * growing.room, growing.size + more, 256)
    data = <unsigned char *>realloc(growing.data, room)
    if data == NULL:
        with gil:
            raise MemoryError()
    growing.data = data
    growing.room = room
    return 0


cdef inline void put(Growing *growing, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Append some bytes, for which there is room."""
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
