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


cdef struct Text:
    # The bytes of a string; `gathered` is theirs alone where they were in several chunks, and must be freed.
    const unsigned char *data
    Py_ssize_t size
    unsigned char *gathered


cdef enum:
    SMALL_DOCUMENT_BYTES = 1024


cdef struct Out:
    # What is being written: the first `size` bytes of `data`, which has `room` for more.
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t room
    int64_t depth
    int64_t document_bytes
    int64_t string_bytes
    int64_t container_items
    unsigned char small[SMALL_DOCUMENT_BYTES]


cdef int set_limits(Source *source, object limits) except -1
cdef void set_range(Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil
cdef object read_document(Source *source)
cdef int skip_document(Source *source) noexcept nogil
cdef object error_of(Source *source)
cdef int take_long_string(Source *source, Py_ssize_t at, Text *text) noexcept nogil

cdef void open_out(Out *out) noexcept nogil
cdef void close_out(Out *out) noexcept nogil
cdef bint put_value(Out *out, object value) except -1
cdef int put_bytes(Out *out, const unsigned char *data, Py_ssize_t size) except -1
cdef int put_integer(Out *out, uint64_t number, bint negative) except -1
cdef bint put_float(Out *out, double number) except -1
cdef bint put_text(Out *out, const char *data, Py_ssize_t size) except -1
cdef int put_unsigned(Out *out, uint64_t number) except -1
cdef bint put_key(Out *out, object text) except -1
