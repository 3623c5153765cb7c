"""What the kernels of this format use of _json.pyx: a value of BONJSON as JSON."""

from libc.stdint cimport uint64_t

from ._growing cimport Growing
from .bonjson._kernel cimport Source


cdef struct Level:
    # A container that is open, and a few bits for each key that it has had.
    bint is_object
    bint has_items
    uint64_t keys[4]


cdef bint note_key(Level *level, const unsigned char *data, Py_ssize_t size) noexcept nogil
cdef int append_json(
    Growing *growing, Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end
) except -1
