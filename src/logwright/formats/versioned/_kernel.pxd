"""What other kernels of this format use of this one: entries as places of their fields."""

from libc.stdint cimport uint64_t

from .bonjson._kernel cimport Source, Text


cdef struct Fields:
    # The fields of an entry in its buffer: the time, where the key begins, the range of the value.
    # `plain`: they are all that it has, in the usual order.
    uint64_t t
    Py_ssize_t key_at
    Py_ssize_t value_start
    Py_ssize_t value_end
    bint plain


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
