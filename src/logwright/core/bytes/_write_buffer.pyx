# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""WriteBuffer: the base of every kernel's AppendBuffer, which collects the bytes that a writer will write.

A kernel encodes a record right where it goes, and asks for attention when enough waits:

    out = room_for(self, size)
    store_little_u32(out, header)
    self._used += size
    if self._used >= self.attention_bytes:
        self.attend()

Nothing interrupts that between two calls of Python, which is what makes it and `take` safe among threads. To allocate a
container is such a call, for it may start the collector; so is to release a buffer.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize

from ...errors import WrongUse


cdef class WriteBuffer:
    """Bytes on their way to a file. Two buffers take turns: one is filled while the other is written."""

    def __cinit__(self, *arguments, **options):
        self._buffer = self._spare = bytearray()
        self.attend = _ignore
        self.refuse = _refuse

    def __init__(self, Py_ssize_t attention_bytes, *, Py_ssize_t first_bytes=-1):
        """`first_bytes` is how large the buffers are at first, by default what will wait in them."""
        self.attention_bytes = attention_bytes
        self._usual_bytes = 4096 + 2 * min(attention_bytes, 1 << 19)
        self._first_bytes = self._usual_bytes if first_bytes < 0 else first_bytes
        self._used = 0
        self._buffer = PyByteArray_FromStringAndSize(NULL, self._first_bytes)
        self._spare = PyByteArray_FromStringAndSize(NULL, self._first_bytes)

    @property
    def buffered_bytes(self):
        """How many bytes wait to be taken."""
        return self._used

    def take(self):
        """What has gathered: a buffer, and how much of it counts. It may be used until the next but one `take`."""
        cdef Py_ssize_t used = self._used
        return self._swap(), used

    cdef bytearray _swap(self):
        """The buffer that was filled; the other one is filled from now on."""
        cdef bytearray taken = self._buffer
        cdef bytearray fresh = self._spare
        if len(fresh) > 4 * self._usual_bytes:  # one large record must not hold its memory for ever
            fresh = PyByteArray_FromStringAndSize(NULL, self._first_bytes)
        self._buffer = fresh
        self._spare = taken
        self._used = 0
        return taken


def _ignore():
    """The buffer is full, and grows."""


def _refuse():
    raise WrongUse("this buffer takes no more records")
