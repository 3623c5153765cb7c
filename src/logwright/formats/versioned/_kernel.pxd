"""What other kernels of this format use of this one: entries as places of their fields."""

from ._entries cimport Fields
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
cdef int walk_ending(int answer) noexcept nogil
