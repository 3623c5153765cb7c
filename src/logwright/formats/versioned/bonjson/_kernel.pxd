"""What the kernel of a journal can use of this one without going through Python: see _kernel.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Source:
    # The bytes of a document, how far they have been read, what is allowed, and what went wrong.
    const unsigned char *data
    Py_ssize_t start
    Py_ssize_t position
    Py_ssize_t end
    int64_t depth
    int64_t document_bytes
    int64_t string_bytes
    int64_t container_items
    bint last_key_wins
    bint allow_nan
    int problem
    Py_ssize_t problem_at
    uint64_t first
    uint64_t second


cdef int set_limits(Source *source, object limits) except -1
cdef void set_range(Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil
cdef object read_document(Source *source)
cdef int skip_document(Source *source) noexcept nogil
cdef object error_of(Source *source)
