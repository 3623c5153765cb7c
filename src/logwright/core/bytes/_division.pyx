# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Integers divided by a thousand, rounded down: see division.py.

A compiler divides by a constant with a multiplication, which is several times faster than the division of processors.
"""

from libc.stdint cimport int64_t

from ._buffers cimport View

from ...errors import WrongUse


def floor_thousandths(source, target, Py_ssize_t count):
    """Divide `count` integers of 64 bits by 1000 into another buffer."""
    cdef View numbers = View(source)
    cdef View results = View(target, True)
    cdef const int64_t *number = <const int64_t *>numbers.data
    cdef int64_t *result = <int64_t *>results.data
    cdef Py_ssize_t row
    cdef int64_t quotient
    if count < 0 or numbers.size // 8 < count or results.size // 8 < count:
        raise WrongUse(f"a buffer is shorter than {count} integers")
    with nogil:
        for row in range(count):
            quotient = number[row] / 1000  # rounded towards zero, as in C
            result[row] = quotient - (number[row] < quotient * 1000)
