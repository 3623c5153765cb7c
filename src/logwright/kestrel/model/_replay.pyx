# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The replay of a queue, compiled: the same as in replay.py, which says what it means.

Items are places of operations, 16 bytes each: a ring for the queue, a hash table for the open transactions. The loop
over operations releases the GIL, and no other thread may ask for anything meanwhile. What is asked for is copied before
an object is made of it, for then operations may be applied again.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from ...core.bytes._buffers cimport View
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
    push_back,
    push_front,
    put_open,
    take_open,
)
from ..bytes._ids cimport MOST_STEPS
from ..bytes._operations cimport (
    ADD,
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
)

from ...errors import WrongUse
from ..bytes.ids import MOST_STEPS as _MOST_STEPS
from ..bytes.layout import DATA_HEAD_BYTES
from ..bytes.records import OPS
from .replay import MOST_ANOMALIES as _MOST_ANOMALIES
from .replay import Anomaly, Event, Item

check_agreement(OPS, DATA_HEAD_BYTES)
if MOST_STEPS != _MOST_STEPS:
    raise ImportError("the kernel and ids.py disagree about the steps")

cdef enum:
    NOTHING_TO_REMOVE = 0
    NOTHING_TO_RESERVE = 1
    NOT_OPEN = 2
    OPEN_ALREADY = 3
    NAME_TAKEN = 4
    BEHIND_DUMP = 5

cdef enum:
    WAS_ADDED = 0
    WAS_RESERVED = 1
    WAS_PUT_BACK = 2
    WAS_REMOVED = 3
    WAS_FINISHED = 4

cdef struct Note:
    # An anomaly, or an event.
    int64_t position
    int32_t file
    int32_t which
    int32_t xid

cdef struct Notes:
    Note *notes
    int64_t count
    int64_t capacity

cdef struct Queue:
    # An item's place is its position, its mark the number of its file.
    Ring items
    OpenTable reserved
    # Where we are.
    int32_t xid
    int32_t file
    int64_t dumped  # how many ADD_XID of a state dump are to come; -1 after something else came; -2 without a dump
    # What is watched.
    bint watching
    int64_t watch_position
    int32_t watch_file
    int64_t anomaly_count
    int64_t most_anomalies
    Notes anomalies
    Notes events


cdef int note(Notes *notes, int32_t file, int64_t position, int32_t which, int32_t xid) noexcept nogil:
    cdef Note *grown
    if notes.count == notes.capacity:
        grown = <Note *>realloc(notes.notes, (notes.capacity * 2 + 16) * sizeof(Note))
        if grown == NULL:
            return -1
        notes.notes = grown
        notes.capacity = notes.capacity * 2 + 16
    notes.notes[notes.count] = Note(position, file, which, xid)
    notes.count += 1
    return 0


cdef inline int odd(Queue *queue, int64_t position, int32_t which, int32_t xid) noexcept nogil:
    queue.anomaly_count += 1
    if queue.anomalies.count >= queue.most_anomalies:
        return 0
    return note(&queue.anomalies, queue.file, position, which, xid)


cdef inline int tell(Queue *queue, const Known *item, int64_t position, int32_t what, int32_t xid) noexcept nogil:
    if not queue.watching or item.place != queue.watch_position or item.mark != queue.watch_file:
        return 0
    return note(&queue.events, queue.file, position, what, xid)


cdef inline int append(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    """Add the item of an operation at the tail."""
    if push_back(&queue.items, position, queue.file, xid) < 0:
        return -1
    return tell(queue, item_at(&queue.items, queue.items.count - 1), position, WAS_ADDED, 0)


cdef inline int reserve(Queue *queue, int64_t position) noexcept nogil:
    cdef Known item
    cdef int32_t xid
    if queue.items.count == 0:
        return odd(queue, position, NOTHING_TO_RESERVE, 0)
    item = pop_front(&queue.items)
    xid = item.xid
    if xid != 0 and is_open(&queue.reserved, xid):
        if odd(queue, position, NAME_TAKEN, xid) < 0:
            return -1
        xid = 0
    if xid == 0:
        xid = next_xid(&queue.reserved, queue.xid)
        if xid == 0:
            return -1
        queue.xid = xid
    if put_open(&queue.reserved, &item, xid) < 0:
        return -1
    return tell(queue, &item, position, WAS_RESERVED, xid)


cdef inline int reserve_as(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Known item
    if queue.items.count == 0:
        return odd(queue, position, NOTHING_TO_RESERVE, xid)
    if is_open(&queue.reserved, xid):
        return odd(queue, position, OPEN_ALREADY, xid)
    item = pop_front(&queue.items)
    queue.xid = xid
    if put_open(&queue.reserved, &item, xid) < 0:
        return -1
    return tell(queue, &item, position, WAS_RESERVED, xid)


cdef inline int finish(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Known item
    if not take_open(&queue.reserved, xid, &item):
        return odd(queue, position, NOT_OPEN, xid)
    return tell(queue, &item, position, WAS_FINISHED, xid)


cdef inline int unremove(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Known item
    if not take_open(&queue.reserved, xid, &item):
        return odd(queue, position, NOT_OPEN, xid)
    item.xid = 0
    if push_front(&queue.items, &item) < 0:
        return -1
    return tell(queue, &item, position, WAS_PUT_BACK, xid)


cdef inline int pass_by(Queue *queue, int kind, int64_t position, int32_t number) noexcept nogil:
    """An operation behind a state dump. The first one that does not belong to it is odd."""
    if kind == ADD_XID and queue.dumped > 0:
        queue.dumped -= 1
        return 0
    if queue.dumped == -1:
        return 0
    queue.dumped = -1
    return odd(queue, position, BEHIND_DUMP, number)


cdef int apply(Queue *queue, int kind, int32_t number, int64_t position) noexcept nogil:
    """Apply one operation: 0, -1 when there is no memory, -2 when there is no such operation."""
    cdef Known item
    if queue.dumped != -2:
        return pass_by(queue, kind, position, number)
    if kind == ADDX or kind == ADD:
        return append(queue, position, 0)
    if kind == REMOVE:
        if queue.items.count == 0:
            return odd(queue, position, NOTHING_TO_REMOVE, 0)
        item = pop_front(&queue.items)
        return tell(queue, &item, position, WAS_REMOVED, 0)
    if kind == REMOVE_TENTATIVE:
        return reserve(queue, position)
    if kind == CONFIRM_REMOVE:
        return finish(queue, position, number)
    if kind == REMOVE_TENTATIVE_XID:
        return reserve_as(queue, position, number)
    if kind == ADD_XID:
        return append(queue, position, number)
    if kind == UNREMOVE:
        return unremove(queue, position, number)
    if kind == CONTINUE:
        if finish(queue, position, number) < 0:
            return -1
        return append(queue, position, 0)
    if kind == SAVE_XID:
        queue.xid = number
        return 0
    if kind == STATE_DUMP:
        queue.dumped = number
        return 0
    return -2


cdef class Replay:
    """A queue that operations are applied to; see replay.Replay."""

    cdef Queue _queue
    cdef bint _busy

    def __cinit__(self, watch=None):
        memset(&self._queue, 0, sizeof(Queue))
        self._queue.dumped = -2
        self._queue.reserved.seed = int.from_bytes(os.urandom(8), "little")
        self._queue.most_anomalies = _MOST_ANOMALIES
        if watch is not None:
            self._queue.watch_file, self._queue.watch_position = watch
            self._queue.watching = True

    def __dealloc__(self):
        free(self._queue.items.items)
        free_open(&self._queue.reserved)
        free(self._queue.anomalies.notes)
        free(self._queue.events.notes)

    cdef int _check_idle(self) except -1:
        if self._busy:
            raise WrongUse("another thread is adding to this replay")
        return 0

    def begin_file(self, int32_t file):
        """What comes now is in the file of this number."""
        self._check_idle()
        self._queue.file = file
        self._queue.dumped = -2

    def add(self, kinds, numbers, positions):
        """Apply operations: their kinds, their ids (of a state dump its count), and where they are in the file."""
        cdef View kinds_view = View(kinds)
        cdef View numbers_view = View(numbers)
        cdef View positions_view = View(positions)
        cdef Py_ssize_t count = kinds_view.size
        cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
        cdef const int32_t *number = <const int32_t *>numbers_view.data
        cdef const int64_t *position = <const int64_t *>positions_view.data
        cdef Py_ssize_t row = 0
        cdef int answer = 0
        if numbers_view.size != count * 4 or positions_view.size != count * 8:
            raise ValueError("there must be as many kinds as numbers and positions")
        self._check_idle()
        self._busy = True
        with nogil:
            while row < count and answer == 0:
                answer = apply(&self._queue, kind[row], number[row], position[row])
                row += 1
        self._busy = False
        if answer == -1:
            raise MemoryError
        if answer == -2:
            raise ValueError(f"there is no operation {kind[row - 1]}")

    @property
    def xid(self):
        """The last used id."""
        return self._queue.xid

    @property
    def anomaly_count(self):
        """How many operations did not fit."""
        return self._queue.anomaly_count

    @property
    def anomalies(self):
        """The operations that did not fit, as far as they are remembered."""
        return [Anomaly(*noted) for noted in self._noted(&self._queue.anomalies)]

    @property
    def events(self):
        """What happened to the item that is watched."""
        return [Event(*noted) for noted in self._noted(&self._queue.events)]

    cdef list _noted(self, const Notes *notes):
        cdef list found = []
        cdef int64_t row
        cdef int64_t count = notes.count
        self._check_idle()
        cdef bytes copied = PyBytes_FromStringAndSize(<const char *>notes.notes, count * sizeof(Note))
        cdef const Note *noted = <const Note *>PyBytes_AS_STRING(copied)
        for row in range(count):
            found.append((noted[row].file, noted[row].position, noted[row].which, noted[row].xid))
        return found

    def items(self):
        """The items of the queue from head to tail."""
        cdef list found = []
        cdef int64_t row
        cdef int64_t count = self._queue.items.count
        self._check_idle()
        cdef bytes copied = PyBytes_FromStringAndSize(NULL, count * sizeof(Known))
        cdef Known *item = <Known *>PyBytes_AS_STRING(copied)
        for row in range(count):
            item[row] = item_at(&self._queue.items, row)[0]
        for row in range(count):
            found.append(Item(item[row].mark, item[row].place, item[row].xid))
        return found

    def open(self):
        """The reserved items, in the order in which they were reserved."""
        cdef list found = []
        cdef int64_t row
        cdef int64_t capacity = self._queue.reserved.capacity
        self._check_idle()
        cdef bytes copied = PyBytes_FromStringAndSize(<char *>self._queue.reserved.slots, capacity * sizeof(Slot))
        cdef Slot *slots = <Slot *>PyBytes_AS_STRING(copied)
        for row in range(capacity):
            if slots[row].used:
                found.append((slots[row].order, Item(slots[row].item.mark, slots[row].item.place, slots[row].item.xid)))
        found.sort()
        return [reserved for _, reserved in found]

    def __len__(self):
        return self._queue.items.count
