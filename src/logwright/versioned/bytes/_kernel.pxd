"""What other kernels of this format use of this one: entries as places of their fields."""

from ._entries cimport Fields
from ._shapes cimport Shape, learn_shape, take_alike, wants_shape
from .bonjson._kernel cimport Source, Text


cdef enum:
    WHOLE = 0
    NEEDS_MORE = 1
    NO_ENTRY = 2
    NO_MEMORY = 3


cdef int open_source(Source *source) except -1
cdef int take_entry(
    Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Fields *fields
) noexcept nogil
cdef int take_key(Source *source, Fields *fields, Text *text) noexcept nogil
cdef int walk_ending(int answer, bint is_early) noexcept nogil


cdef inline int take_next(
    Source *source, Shape *shape, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Fields *fields
) noexcept nogil:
    """As `take_entry`, for one entry of many: those that have the shape of others are taken by it."""
    cdef Py_ssize_t stop = take_alike(shape, data, start, end, fields)
    cdef int answer
    if stop:
        source.data = data
        source.end = end
        source.position = stop
        return WHOLE
    answer = take_entry(source, data, start, end, fields)
    if answer == WHOLE and fields.plain and wants_shape(shape):
        learn_shape(shape, data, start, source.position, fields)
    return answer
