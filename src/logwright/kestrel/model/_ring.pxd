"""A ring of items in memory: how it grows. The items are structs of the kernel's own, all of one width.

A ring is an array whose capacity is a power of two, with the place of its first item and the number of its items: the
n-th is at `(head + n) & (capacity - 1)`. All of it is inline, so that there is no module to be built or loaded.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef inline void *grown_ring(
    void *ring, int64_t *capacity, int64_t *head, int64_t count, size_t width
) noexcept nogil:
    """The items in a ring of twice the capacity, from its beginning on; NULL, and nothing has changed, without memory.

    The old ring is freed. One of no capacity is NULL, and becomes one of 64 items.
    """
    cdef int64_t larger = capacity[0] * 2 if capacity[0] else 64
    cdef int64_t first
    cdef char *grown = <char *>malloc(larger * width)
    if grown == NULL:
        return NULL
    if count:
        first = min(count, capacity[0] - head[0])
        memcpy(grown, <char *>ring + head[0] * width, first * width)
        memcpy(grown + first * width, ring, (count - first) * width)
    free(ring)
    capacity[0] = larger
    head[0] = 0
    return grown
