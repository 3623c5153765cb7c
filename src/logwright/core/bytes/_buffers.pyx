# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Buffers that a kernel reads: their memory, and the checks before the first byte. `buffers.py` is the same in Python.

    cdef View view = View(buffer)            # the memory of any object with a buffer, while the view exists
    check_range(view, start, stop)           # then every position within the range may be read without the GIL
    check_count(start, stop, count, OVERHEAD)

A view keeps the memory in its place. Its contents may still be changed by another thread while the GIL is released, by
a callback of the garbage collector, or by another process: so a length is loaded once, checked, and used as loaded.

Columns to be packed are plain buffers as well: `column_memory` for numbers and ends, `column_bytes` for the bytes that
the ends refer to. Both keep the memory alive in a list of views, which the caller drops when it is done.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t

from array import array

from ...errors import TooLarge, WrongUse
from .outcome import Malformed

cdef Py_ssize_t MOST_ROWS = <Py_ssize_t>1 << 48
cdef bytes _EMPTY = b""
cdef const char *EMPTY = _EMPTY


cdef class View:
    """The bytes of any object with a buffer, released with the view."""

    def __cinit__(self, source, bint writable=False):
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.data = <const unsigned char *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef int check_range(View view, Py_ssize_t start, Py_ssize_t end) except -1:
    if not 0 <= start <= end <= view.size:
        raise WrongUse(f"the range {start}..{end} is not within a buffer of {view.size} bytes")
    return 0


cdef int check_count(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, Py_ssize_t least_bytes) except -1:
    """Raise if a range is too short for `count` records: called before memory is allocated for them."""
    if count < 0 or count > (stop - start) // least_bytes:
        raise not_walked(start)
    return 0


cdef Py_ssize_t rows_of(object columns) except -1:
    """The number of rows of columns; raises if their bytes could not be counted."""
    cdef Py_ssize_t count = columns.count
    if count < 0:
        raise WrongUse("columns cannot have a negative number of rows")
    if count >= MOST_ROWS:
        raise TooLarge(f"columns of {count} rows are more than memory can hold")
    return count


cdef object not_walked(Py_ssize_t position):
    """The error for a range that was not walked."""
    return Malformed(position, "the range was not walked")


cdef object array_of(str code, bytes items):
    """The numbers in bytes, as a Python array."""
    found = array(code)
    found.frombytes(items)
    return found


cdef const unsigned char *column_memory(object buffer, Py_ssize_t needed, str name, list views) except? NULL:
    """The memory of a column, which `views` keeps alive; NULL for a missing one."""
    if buffer is None:
        return NULL
    cdef View view = View(buffer)
    if view.size < needed:
        raise WrongUse(f"column {name} is shorter than its rows")
    views.append(view)
    return view.data


cdef const unsigned char *column_bytes(object buffer, int64_t *size, list views) except NULL:
    """The bytes of a column and their number; none for a missing one."""
    cdef View view
    size[0] = 0
    if buffer is None:
        return <const unsigned char *>EMPTY
    view = View(buffer)
    views.append(view)
    size[0] = view.size
    return view.data if view.data != NULL else <const unsigned char *>EMPTY


cdef int check_ends(const int32_t *ends, Py_ssize_t count, int64_t have, int64_t limit, str name) except -1:
    """Raise unless the ends of a column rise, are within its bytes, and leave no item longer than the limit."""
    cdef Py_ssize_t row
    cdef int64_t width
    if ends == NULL or count == 0:
        return 0
    if ends[0] < 0 or ends[count] > have:
        raise WrongUse("the ends of a column lie outside of its data")
    for row in range(count):
        width = <int64_t>ends[row + 1] - ends[row]
        if width < 0:
            raise WrongUse("the ends of a column do not rise")
        if width > limit:
            raise TooLarge(f"a {name} of {width} bytes does not fit: the limit is {limit} bytes")
    return 0
