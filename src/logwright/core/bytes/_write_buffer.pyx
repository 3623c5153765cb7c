# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""WriteBuffer: the base of every kernel's AppendBuffer, which collects the bytes that a writer will write.

A kernel encodes a record in its place, and asks for attention when there are enough bytes:

    out = room_for(self, size)
    store_little_u32(out, header)
    self._used += size
    if self._used >= self.attention_bytes:
        self.attend()

Nothing interrupts this between two calls of Python, which makes it and `take` safe with threads. Allocating a container
is such a call, because it may start the garbage collector, and so is releasing a buffer.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize

from ...errors import WrongUse


cdef class WriteBuffer:
    """Bytes that wait to be written to a file. Two buffers alternate: one is filled while the other is written."""

    def __cinit__(self, *arguments, **options):
        self._buffer = self._spare = bytearray()
        self.attend = _ignore
        self.refuse = _refuse

    def __init__(self, Py_ssize_t attention_bytes, *, Py_ssize_t first_bytes=-1):
        """`first_bytes` is the initial size of the buffers, by default as much as will wait in them."""
        self.attention_bytes = attention_bytes
        self._usual_bytes = 4096 + 2 * min(attention_bytes, 1 << 19)
        self._first_bytes = self._usual_bytes if first_bytes < 0 else first_bytes
        self._used = 0
        self._buffer = PyByteArray_FromStringAndSize(NULL, self._first_bytes)
        self._spare = PyByteArray_FromStringAndSize(NULL, self._first_bytes)

    @property
    def buffered_bytes(self):
        """The number of bytes in the buffer."""
        return self._used

    def take(self):
        """The buffer and the number of bytes in it. It is valid until `take` has been called twice more."""
        cdef Py_ssize_t used = self._used
        return self._swap(), used

    cdef bytearray _swap(self):
        """The filled buffer; the other one is filled from now on."""
        cdef bytearray taken = self._buffer
        cdef bytearray fresh = self._spare
        if len(fresh) > 4 * self._usual_bytes:  # the memory of one large record must be released
            fresh = PyByteArray_FromStringAndSize(NULL, self._first_bytes)
        self._buffer = fresh
        self._spare = taken
        self._used = 0
        return taken


def _ignore():
    """The buffer is full, and grows."""


def _refuse():
    raise WrongUse("this buffer takes no more records")
