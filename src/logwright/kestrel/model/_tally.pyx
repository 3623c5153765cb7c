# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The twins of tally.py, which says what they mean.

What was put back is a ring, what is reserved a hash table; both are of 16 bytes an item, and hold only what was ever
reserved. Names of items are rare, and in a dictionary.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from ...core.bytes._buffers cimport View
from ..bytes._ids cimport MOST_STEPS
from ._known cimport (
    Known,
    OpenTable,
    Ring,
    Slot,
    free_open,
    is_open,
    item_at,
    next_xid,
    pop_front,
    push_front,
    put_open,
    take_open,
)
from ..bytes._operations cimport (
    ADD_XID,
    ADDX,
    CONFIRM_REMOVE,
    CONTINUE,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    STATE_DUMP,
    UNREMOVE,
    check_agreement,
    has_data,
    head_bytes,
)

from ..bytes.ids import MOST_STEPS as _MOST_STEPS
from ..bytes.layout import DATA_HEAD_BYTES
from ..bytes.records import OPS

check_agreement(OPS, DATA_HEAD_BYTES)
if MOST_STEPS != _MOST_STEPS:
    raise ImportError("the kernel and ids.py disagree about the steps")


cdef class Tally:
    """Operations counted up; see tally.Tally."""

    cdef public int32_t xid
    cdef public int64_t first
    cdef public int64_t added
    cdef public int64_t added_bytes
    # An item's place is its number, its mark how often it was put back.
    cdef Ring _front
    cdef OpenTable _reserved
    cdef dict _named
    cdef bint _is_dumped

    def __cinit__(self):
        memset(&self._front, 0, sizeof(Ring))
        memset(&self._reserved, 0, sizeof(OpenTable))
        self._reserved.seed = int.from_bytes(os.urandom(8), "little")
        self._named = {}

    def __dealloc__(self):
        free(self._front.items)
        free_open(&self._reserved)

    def begin_file(self):
        """What comes now is in another file."""
        self._is_dumped = False

    def add(self, kinds, numbers, positions, int64_t end):
        """Apply operations: kinds, ids, and where they begin in the file; the last one ends at `end`."""
        cdef View kinds_view = View(kinds)
        cdef View numbers_view = View(numbers)
        cdef View positions_view = View(positions)
        cdef Py_ssize_t count = kinds_view.size
        cdef Py_ssize_t row
        cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
        cdef const int32_t *number = <const int32_t *>numbers_view.data
        cdef const int64_t *position = <const int64_t *>positions_view.data
        cdef Known known
        if numbers_view.size != count * 4 or positions_view.size != count * 8:
            raise ValueError("there must be as many kinds as numbers and positions")
        if self._is_dumped:
            return
        for row in range(count):
            if has_data(kind[row]):
                if kind[row] == CONTINUE:
                    take_open(&self._reserved, number[row], &known)
                elif kind[row] == ADD_XID and number[row] != 0:
                    self._named[self.added] = number[row]
                self.added += 1
                self.added_bytes += (
                    (position[row + 1] if row + 1 < count else end) - position[row] - head_bytes(kind[row])
                )
            elif kind[row] == REMOVE:
                if self._front.count or self._named:
                    self._take(&known)
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
                if known.xid == 0 or is_open(&self._reserved, known.xid):
                    known.xid = next_xid(&self._reserved, self.xid)
                    if known.xid == 0:
                        raise MemoryError
                    self.xid = known.xid
                self._reserve(&known)
        elif kind == REMOVE_TENTATIVE_XID:
            if not is_open(&self._reserved, number) and self._take(&known):
                self.xid = known.xid = number
                self._reserve(&known)
        elif kind == UNREMOVE:
            if take_open(&self._reserved, number, &known):
                known.mark += 1
                known.xid = 0
                if push_front(&self._front, &known) < 0:
                    raise MemoryError
        elif kind == CONFIRM_REMOVE:
            take_open(&self._reserved, number, &known)
        elif kind == SAVE_XID:
            self.xid = number
        else:
            raise ValueError(f"there is no operation {kind}")
        return 0

    cdef int _reserve(self, Known *known) except -1:
        if put_open(&self._reserved, known, known.xid) < 0:
            raise MemoryError
        return 0

    cdef bint _take(self, Known *known) except -1:
        """Take the head away; False when there is none."""
        if self._front.count:
            known[0] = pop_front(&self._front)
        elif self.first < self.added:
            known.place = self.first
            known.mark = 0
            known.xid = 0
            if self._named:
                known.xid = self._named.pop(self.first, 0)
            self.first += 1
        else:
            return False
        return True

    def __len__(self):
        return self._front.count + self.added - self.first

    def front(self):
        """The items that were put back, from the head on: number, attempts. The run follows them."""
        cdef list found = []
        cdef int64_t row
        cdef int64_t count = self._front.count
        cdef bytes copied = PyBytes_FromStringAndSize(NULL, count * sizeof(Known))  # others may be applied meanwhile
        cdef Known *known = <Known *>PyBytes_AS_STRING(copied)
        for row in range(count):
            known[row] = item_at(&self._front, row)[0]
        for row in range(count):
            found.append((known[row].place, known[row].mark))
        return found

    def open(self):
        """The reserved items in the order in which they were reserved: id, number, attempts."""
        cdef list found = []
        cdef int64_t row
        cdef int64_t capacity = self._reserved.capacity
        cdef bytes copied = PyBytes_FromStringAndSize(<char *>self._reserved.slots, capacity * sizeof(Slot))
        cdef Slot *slots = <Slot *>PyBytes_AS_STRING(copied)
        for row in range(capacity):
            if slots[row].used:
                found.append((slots[row].order, (slots[row].item.xid, slots[row].item.place, slots[row].item.mark)))
        found.sort()
        return [known for _, known in found]


def copy_adds(buffer, int64_t base, kinds, positions, int64_t end, Py_ssize_t row):
    """The operations from a row on that add items, one behind the other, and how many those are."""
    cdef View view = View(buffer)
    cdef View kinds_view = View(kinds)
    cdef View positions_view = View(positions)
    cdef Py_ssize_t count = kinds_view.size
    cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
    cdef const int64_t *position = <const int64_t *>positions_view.data
    cdef Py_ssize_t at
    cdef int64_t start, stop
    cdef int64_t whole = 0
    cdef int64_t found = 0
    cdef int64_t left, size
    cdef int one
    cdef bint changed = False
    cdef bytes copied
    cdef unsigned char *out
    if positions_view.size != count * 8 or row < 0:
        raise ValueError("there must be as many kinds as positions")
    for at in range(row, count):
        if has_data(kind[at]):
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            if start < 0 or stop - start < head_bytes(kind[at]) or stop > view.size:
                raise ValueError("these operations are not within the buffer")
            whole += stop - start - (4 if kind[at] == CONTINUE else 0)
            found += 1
    copied = PyBytes_FromStringAndSize(NULL, whole)
    out = <unsigned char *>PyBytes_AS_STRING(copied)
    left = whole
    with nogil:
        for at in range(row, count):
            one = kind[at]
            if not has_data(one):
                continue
            start = position[at] - base
            stop = (position[at + 1] if at + 1 < count else end) - base
            size = stop - start - (4 if one == CONTINUE else 0)
            if start < 0 or stop - start < head_bytes(one) or stop > view.size or size > left:
                changed = True
                break
            if one == CONTINUE:
                out[0] = ADDX
                memcpy(out + 1, view.data + start + 5, size - 1)
            else:
                memcpy(out, view.data + start, size)
            out += size
            left -= size
    if changed or left:
        raise ValueError("these operations are changing while they are copied")
    return copied, found
