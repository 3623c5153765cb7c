"""Memory for many small blocks that never move, and are freed all at once. All of it is inline.

Blocks are stored consecutively in segments, in the order of their allocation: reading them in this order reads memory
forwards. A block that is no longer needed stays there as waste; `used` less the needed bytes is its size, and an owner
with too much of it copies the needed blocks to new segments.
"""

from libc.stdlib cimport free, malloc


cdef enum:
    FIRST_SEGMENT_BYTES = 4096
    MOST_SEGMENT_BYTES = 1 << 20
    BLOCK_BYTES = 16  # blocks are multiples of this
    SPARE_BYTES = 16  # this many bytes after each block may be read, whatever they are


cdef struct Segment:
    Segment *before
    void *unused


cdef struct Segments:
    Segment *last
    unsigned char *free_at
    Py_ssize_t free_bytes
    Py_ssize_t used  # bytes of all blocks


cdef inline void *make_block(Segments *segments, Py_ssize_t size) noexcept nogil:
    """A block of at least `size` bytes; NULL if there is no memory. All zeros are segments without blocks."""
    cdef Py_ssize_t room
    cdef bint is_alone
    cdef Segment *segment
    cdef void *block
    size = (size + BLOCK_BYTES - 1) & -BLOCK_BYTES
    if size <= segments.free_bytes:
        block = segments.free_at
        segments.free_at += size
        segments.free_bytes -= size
        segments.used += size
        return block
    room = max(FIRST_SEGMENT_BYTES, min(segments.used, MOST_SEGMENT_BYTES))
    is_alone = size > room - segments.free_bytes  # else less would be left for others than there is now
    segment = <Segment *>malloc(sizeof(Segment) + (size if is_alone else room) + SPARE_BYTES)
    if segment == NULL:
        return NULL
    segment.before = segments.last
    segments.last = segment
    segments.used += size
    if not is_alone:
        segments.free_at = <unsigned char *>(segment + 1) + size
        segments.free_bytes = room - size
    return segment + 1


cdef inline void free_blocks(Segments *segments) noexcept nogil:
    """Give back all blocks."""
    cdef Segment *segment
    while segments.last != NULL:
        segment = segments.last
        segments.last = segment.before
        free(segment)
    segments.free_bytes = segments.used = 0
