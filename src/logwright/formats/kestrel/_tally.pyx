# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The twins of tally.py, which says what they mean.

What was put back is a ring, what is reserved a hash table; both are of 16 bytes an item, and hold only what was ever
reserved. Names of items are rare, and in a dictionary.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from ._ids cimport MOST_STEPS, OpenIds, add_id, begin_ids, free_behind, mixed, remove_id

from .ids import MOST_STEPS as _MOST_STEPS
from .records import OPS
from .tally import HEAD_BYTES

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")

cdef enum:
    ADD = 0
    REMOVE = 1
    ADDX = 2
    REMOVE_TENTATIVE = 3
    SAVE_XID = 4
    UNREMOVE = 5
    CONFIRM_REMOVE = 6
    ADD_XID = 7
    STATE_DUMP = 8
    REMOVE_TENTATIVE_XID = 9
    CONTINUE = 10

if tuple(OPS[name] for name in ("add", "addx", "add_xid", "state_dump", "continue")) != (0, 2, 7, 8, 10):
    raise ImportError("the kernel and records.py disagree about the operations")
if HEAD_BYTES != {ADD: 9, ADDX: 21, ADD_XID: 25, CONTINUE: 25}:
    raise ImportError("the kernel and tally.py disagree about the heads of operations")
if MOST_STEPS != _MOST_STEPS:
    raise ImportError("the kernel and ids.py disagree about the steps")

cdef struct Known:
    # An item by its number, with the id that it is reserved under, if it is.
    int64_t item
    int32_t attempts
    int32_t xid

cdef struct Slot:
    Known known
    int64_t order
    bint used


cdef inline int64_t head_bytes(int kind) noexcept nogil:
    """How long an operation that adds an item is without the data; 0 for the others."""
    if kind == ADDX:
        return 21
    if kind == ADD:
        return 9
    return 25 if kind == ADD_XID or kind == CONTINUE else 0


cdef inline int32_t after(int32_t xid) noexcept nogil:
    """The id behind one, which is never 0."""
    cdef int32_t found = <int32_t>(<uint32_t>xid + 1)
    return 1 if found == 0 else found


cdef class _View:
    """The bytes of any object that has some, released with it."""

    cdef Py_buffer view
    cdef bint held
    cdef const unsigned char *data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.data = <const unsigned char *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Tally:
    """Operations counted up; see tally.Tally."""

    cdef public int32_t xid
    cdef public int64_t first
    cdef public int64_t added
    cdef public int64_t added_bytes
    cdef Known *_ring
    cdef int64_t _capacity, _head, _count
    cdef Slot *_table
    cdef int64_t _slots, _open_count, _order
    cdef OpenIds _ids
    cdef bint _has_ids
    cdef dict _named
    cdef bint _is_dumped

    def __cinit__(self):
        self._ring = NULL
        self._table = NULL
        self._named = {}

    def __dealloc__(self):
        free(self._ring)
        free(self._table)
        if self._has_ids:
            free(self._ids.words)

    def begin_file(self):
        """What comes now is in another file."""
        self._is_dumped = False

    def add(self, kinds, numbers, positions, int64_t end):
        """Apply operations: kinds, ids, and where they begin in the file; the last one ends at `end`."""
        cdef _View kinds_view = _View(kinds)
        cdef _View numbers_view = _View(numbers)
        cdef _View positions_view = _View(positions)
        cdef Py_ssize_t count = kinds_view.size
        cdef Py_ssize_t row
        cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
        cdef const int32_t *number = <const int32_t *>numbers_view.data
        cdef const int64_t *position = <const int64_t *>positions_view.data
        cdef int64_t head
        if numbers_view.size != count * 4 or positions_view.size != count * 8:
            raise ValueError("there must be as many kinds as numbers and positions")
        if self._is_dumped:
            return
        for row in range(count):
            head = head_bytes(kind[row])
            if head:
                if kind[row] == CONTINUE:
                    self._close(number[row], NULL)
                elif kind[row] == ADD_XID and number[row] != 0:
                    self._named[self.added] = number[row]
                self.added += 1
                self.added_bytes += (position[row + 1] if row + 1 < count else end) - position[row] - head
            elif kind[row] == REMOVE:
                if self._count or self._named:
                    self._take(NULL)
                elif self.first < self.added:
                    self.first += 1
            elif kind[row] == STATE_DUMP:
                self._is_dumped = True
                return
            else:
                self._apply(kind[row], number[row])

    cdef int _apply(self, int kind, int32_t number) except -1:
        cdef Known known
        if kind == REMOVE_TENTATIVE:
            if self._take(&known):
                if known.xid == 0 or self._find(known.xid) >= 0:
                    self.xid = known.xid = self._next_xid()
                self._reserve(&known)
        elif kind == REMOVE_TENTATIVE_XID:
            if self._find(number) < 0 and self._take(&known):
                self.xid = known.xid = number
                self._reserve(&known)
        elif kind == UNREMOVE:
            if self._close(number, &known):
                known.attempts += 1
                known.xid = 0
                self._push_front(&known)
        elif kind == CONFIRM_REMOVE:
            self._close(number, NULL)
        elif kind == SAVE_XID:
            self.xid = number
        else:
            raise ValueError(f"there is no operation {kind}")
        return 0

    cdef int32_t _next_xid(self) except 0:
        cdef int32_t xid = self.xid
        cdef int step
        if not self._has_ids:
            for step in range(MOST_STEPS):
                xid = after(xid)
                if self._find(xid) < 0:
                    return xid
            self._begin_ids()
        return free_behind(&self._ids, self.xid)

    cdef int _begin_ids(self) except -1:
        cdef int64_t row
        if begin_ids(&self._ids, SEED) < 0:
            raise MemoryError
        self._has_ids = True
        for row in range(self._slots):
            if self._table[row].used and add_id(&self._ids, self._table[row].known.xid) < 0:
                raise MemoryError
        return 0

    cdef bint _take(self, Known *known) except -1:
        """Take the head away; False when there is none."""
        cdef Known found
        if self._count:
            found = self._ring[self._head]
            self._head = (self._head + 1) & (self._capacity - 1)
            self._count -= 1
        elif self.first < self.added:
            found.item = self.first
            found.attempts = 0
            found.xid = 0
            if self._named:
                found.xid = self._named.pop(self.first, 0)
            self.first += 1
        else:
            return False
        if known != NULL:
            known[0] = found
        return True

    cdef int _push_front(self, Known *known) except -1:
        cdef Known *grown
        cdef int64_t capacity, first
        if self._count == self._capacity:
            capacity = self._capacity * 2 if self._capacity else 64
            grown = <Known *>malloc(capacity * sizeof(Known))
            if grown == NULL:
                raise MemoryError
            if self._count:
                first = min(self._count, self._capacity - self._head)
                memcpy(grown, self._ring + self._head, first * sizeof(Known))
                memcpy(grown + first, self._ring, (self._count - first) * sizeof(Known))
            free(self._ring)
            self._ring = grown
            self._capacity = capacity
            self._head = 0
        self._head = (self._head - 1) & (self._capacity - 1)
        self._ring[self._head] = known[0]
        self._count += 1
        return 0

    cdef inline int64_t _home(self, int32_t xid) noexcept:
        return <int64_t>mixed(<uint32_t>xid, SEED) & (self._slots - 1)

    cdef int64_t _find(self, int32_t xid) noexcept:
        """Where an open id is in the table; -1 when it is not open."""
        cdef int64_t at
        if self._open_count == 0:
            return -1
        at = self._home(xid)
        while self._table[at].used:
            if self._table[at].known.xid == xid:
                return at
            at = (at + 1) & (self._slots - 1)
        return -1

    cdef void _put(self, Slot *slot) noexcept:
        cdef int64_t at = self._home(slot.known.xid)
        while self._table[at].used:
            at = (at + 1) & (self._slots - 1)
        self._table[at] = slot[0]

    cdef int _reserve(self, Known *known) except -1:
        cdef Slot *old = self._table
        cdef int64_t old_slots = self._slots
        cdef int64_t row
        cdef Slot slot
        if self._open_count * 2 >= self._slots:
            self._table = <Slot *>calloc(old_slots * 2 if old_slots else 64, sizeof(Slot))
            if self._table == NULL:
                self._table = old
                raise MemoryError
            self._slots = old_slots * 2 if old_slots else 64
            for row in range(old_slots):
                if old[row].used:
                    self._put(&old[row])
            free(old)
        if self._has_ids and add_id(&self._ids, known.xid) < 0:
            raise MemoryError
        slot.known = known[0]
        slot.order = self._order
        slot.used = True
        self._put(&slot)
        self._order += 1
        self._open_count += 1
        return 0

    cdef bint _close(self, int32_t xid, Known *known) noexcept:
        """Take an id out of the table, moving up what was put behind it because its place was taken."""
        cdef int64_t mask = self._slots - 1
        cdef int64_t hole = self._find(xid)
        cdef int64_t at, home
        if hole < 0:
            return False
        if known != NULL:
            known[0] = self._table[hole].known
        at = hole
        while True:
            at = (at + 1) & mask
            if not self._table[at].used:
                break
            home = self._home(self._table[at].known.xid)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self._table[hole] = self._table[at]
                hole = at
        self._table[hole].used = False
        self._open_count -= 1
        if self._has_ids:
            remove_id(&self._ids, xid)
        return True

    def __len__(self):
        return self._count + self.added - self.first

    def front(self):
        """The items that were put back, from the head on: number, attempts. The run follows them."""
        cdef list found = []
        cdef int64_t row
        cdef Known *known
        for row in range(self._count):
            known = self._ring + ((self._head + row) & (self._capacity - 1))
            found.append((known.item, known.attempts))
        return found

    def open(self):
        """The reserved items in the order in which they were reserved: id, number, attempts."""
        cdef list found = []
        cdef int64_t row
        cdef Slot *slot
        for row in range(self._slots):
            slot = self._table + row
            if slot.used:
                found.append((slot.order, (slot.known.xid, slot.known.item, slot.known.attempts)))
        found.sort()
        return [known for _, known in found]


def copy_adds(buffer, int64_t base, kinds, positions, int64_t end, Py_ssize_t row):
    """The operations from a row on that add items, one behind the other, and how many those are."""
    cdef _View view = _View(buffer)
    cdef _View kinds_view = _View(kinds)
    cdef _View positions_view = _View(positions)
    cdef Py_ssize_t count = kinds_view.size
    cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
    cdef const int64_t *position = <const int64_t *>positions_view.data
    cdef Py_ssize_t at
    cdef int64_t start, stop, head
    cdef int64_t whole = 0
    cdef int64_t found = 0
    cdef bytes copied
    cdef unsigned char *out
    if positions_view.size != count * 8 or row < 0:
        raise ValueError("there must be as many kinds as positions")
    for at in range(row, count):
        head = head_bytes(kind[at])
        if head:
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            if start < 0 or stop - start < head or stop > view.size:
                raise ValueError("these operations are not within the buffer")
            whole += stop - start - (4 if kind[at] == CONTINUE else 0)
            found += 1
    copied = PyBytes_FromStringAndSize(NULL, whole)
    out = <unsigned char *>PyBytes_AS_STRING(copied)
    with nogil:
        for at in range(row, count):
            if not head_bytes(kind[at]):
                continue
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            if kind[at] == CONTINUE:
                out[0] = ADDX
                out += 1
                start += 5
            memcpy(out, view.data + start, stop - start)
            out += stop - start
    return copied, found
