# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The replay of a queue, compiled: the same as in replay.py, which says what it means.

Items are places of operations, 16 bytes each: a ring for the queue, a hash table for the open transactions. The loop
over operations releases the GIL.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from ._ids cimport MOST_STEPS, OpenIds, add_id, begin_ids, free_behind, mixed, remove_id

from ...core.errors import WrongUse
from .ids import MOST_STEPS as _MOST_STEPS
from .replay import MOST_ANOMALIES as _MOST_ANOMALIES
from .replay import Anomaly, Event, Item
from .records import OPS

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

if (OPS["addx"], OPS["state_dump"], OPS["remove_tentative_xid"], OPS["continue"]) != (2, 8, 9, 10):
    raise ImportError("the kernel and layout.py disagree about the operations")
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

cdef struct Ref:
    int64_t position
    int32_t file
    int32_t xid

cdef struct Slot:
    Ref item
    int64_t order
    bint used

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
    # A ring of items; the capacity is a power of two.
    Ref *ring
    int64_t capacity
    int64_t head
    int64_t count
    # Open transactions: a table with linear probing; its capacity is a power of two as well, at most half is used.
    Slot *table
    int64_t table_capacity
    int64_t open_count
    int64_t order
    uint64_t seed
    bint has_ids
    OpenIds ids
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


cdef inline int tell(Queue *queue, Ref *item, int64_t position, int32_t what, int32_t xid) noexcept nogil:
    if not queue.watching or item.position != queue.watch_position or item.file != queue.watch_file:
        return 0
    return note(&queue.events, queue.file, position, what, xid)


cdef int grow_ring(Queue *queue) noexcept nogil:
    cdef int64_t capacity = queue.capacity * 2 if queue.capacity else 64
    cdef int64_t first
    cdef Ref *ring = <Ref *>malloc(capacity * sizeof(Ref))
    if ring == NULL:
        return -1
    if queue.count:
        first = min(queue.count, queue.capacity - queue.head)
        memcpy(ring, queue.ring + queue.head, first * sizeof(Ref))
        memcpy(ring + first, queue.ring, (queue.count - first) * sizeof(Ref))
    free(queue.ring)
    queue.ring = ring
    queue.capacity = capacity
    queue.head = 0
    return 0


cdef inline int push_back(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Ref *place
    if queue.count == queue.capacity and grow_ring(queue) < 0:
        return -1
    place = queue.ring + ((queue.head + queue.count) & (queue.capacity - 1))
    place.position = position
    place.file = queue.file
    place.xid = xid
    queue.count += 1
    return tell(queue, place, position, WAS_ADDED, 0)


cdef inline int push_front(Queue *queue, Ref *item) noexcept nogil:
    if queue.count == queue.capacity and grow_ring(queue) < 0:
        return -1
    queue.head = (queue.head - 1) & (queue.capacity - 1)
    queue.ring[queue.head] = item[0]
    queue.count += 1
    return 0


cdef inline Ref pop_front(Queue *queue) noexcept nogil:
    cdef Ref item = queue.ring[queue.head]
    queue.head = (queue.head + 1) & (queue.capacity - 1)
    queue.count -= 1
    return item


cdef inline int64_t home_of(Queue *queue, int32_t xid) noexcept nogil:
    return <int64_t>mixed(<uint32_t>xid, queue.seed) & (queue.table_capacity - 1)


cdef inline int64_t slot_of(Queue *queue, int32_t xid) noexcept nogil:
    """Where an id is in the table, or where it would be."""
    cdef int64_t mask = queue.table_capacity - 1
    cdef int64_t at = home_of(queue, xid)
    while queue.table[at].used and queue.table[at].item.xid != xid:
        at = (at + 1) & mask
    return at


cdef inline bint is_open(Queue *queue, int32_t xid) noexcept nogil:
    return queue.open_count > 0 and queue.table[slot_of(queue, xid)].used


cdef int grow_table(Queue *queue) noexcept nogil:
    cdef Slot *old = queue.table
    cdef int64_t old_capacity = queue.table_capacity
    cdef int64_t row
    cdef Slot *table = <Slot *>calloc(old_capacity * 2 if old_capacity else 64, sizeof(Slot))
    if table == NULL:
        return -1
    queue.table = table
    queue.table_capacity = old_capacity * 2 if old_capacity else 64
    for row in range(old_capacity):
        if old[row].used:
            queue.table[slot_of(queue, old[row].item.xid)] = old[row]
    free(old)
    return 0


cdef inline int put_open(Queue *queue, Ref *item, int32_t xid) noexcept nogil:
    cdef int64_t at
    if queue.open_count * 2 >= queue.table_capacity and grow_table(queue) < 0:
        return -1
    if queue.has_ids and add_id(&queue.ids, xid) < 0:
        return -1
    at = slot_of(queue, xid)
    queue.table[at].item = item[0]
    queue.table[at].item.xid = xid
    queue.table[at].order = queue.order
    queue.table[at].used = True
    queue.order += 1
    queue.open_count += 1
    return 0


cdef inline bint take_open(Queue *queue, int32_t xid, Ref *item) noexcept nogil:
    """Take an id out of the table, moving up what was put behind it because its place was taken."""
    cdef int64_t mask = queue.table_capacity - 1
    cdef int64_t hole, at, home
    if queue.open_count == 0:
        return False
    hole = slot_of(queue, xid)
    if not queue.table[hole].used:
        return False
    item[0] = queue.table[hole].item
    at = hole
    while True:
        at = (at + 1) & mask
        if not queue.table[at].used:
            break
        home = home_of(queue, queue.table[at].item.xid)
        if ((at - home) & mask) >= ((at - hole) & mask):
            queue.table[hole] = queue.table[at]
            hole = at
    queue.table[hole].used = False
    queue.open_count -= 1
    if queue.has_ids:
        remove_id(&queue.ids, xid)
    return True


cdef int32_t find_free(Queue *queue) noexcept nogil:
    """The next id behind many that are open; 0 when there is no memory."""
    cdef int64_t row
    if not queue.has_ids:
        if begin_ids(&queue.ids, queue.seed) < 0:
            return 0
        queue.has_ids = True
        for row in range(queue.table_capacity):
            if queue.table[row].used and add_id(&queue.ids, queue.table[row].item.xid) < 0:
                return 0
    return free_behind(&queue.ids, queue.xid)


cdef inline int32_t next_xid(Queue *queue) noexcept nogil:
    """The next id; 0 when there is no memory."""
    cdef int32_t xid = queue.xid
    cdef int step
    if not queue.has_ids:
        for step in range(MOST_STEPS):
            xid = <int32_t>(<uint32_t>xid + 1)
            if xid != 0 and not is_open(queue, xid):
                return xid
    return find_free(queue)


cdef inline int reserve(Queue *queue, int64_t position) noexcept nogil:
    cdef Ref item
    cdef int32_t xid
    if queue.count == 0:
        return odd(queue, position, NOTHING_TO_RESERVE, 0)
    item = pop_front(queue)
    xid = item.xid
    if xid != 0 and is_open(queue, xid):
        if odd(queue, position, NAME_TAKEN, xid) < 0:
            return -1
        xid = 0
    if xid == 0:
        xid = next_xid(queue)
        if xid == 0:
            return -1
        queue.xid = xid
    if put_open(queue, &item, xid) < 0:
        return -1
    return tell(queue, &item, position, WAS_RESERVED, xid)


cdef inline int reserve_as(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Ref item
    if queue.count == 0:
        return odd(queue, position, NOTHING_TO_RESERVE, xid)
    if is_open(queue, xid):
        return odd(queue, position, OPEN_ALREADY, xid)
    item = pop_front(queue)
    queue.xid = xid
    if put_open(queue, &item, xid) < 0:
        return -1
    return tell(queue, &item, position, WAS_RESERVED, xid)


cdef inline int finish(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Ref item
    if not take_open(queue, xid, &item):
        return odd(queue, position, NOT_OPEN, xid)
    return tell(queue, &item, position, WAS_FINISHED, xid)


cdef inline int unremove(Queue *queue, int64_t position, int32_t xid) noexcept nogil:
    cdef Ref item
    if not take_open(queue, xid, &item):
        return odd(queue, position, NOT_OPEN, xid)
    item.xid = 0
    if push_front(queue, &item) < 0:
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
    cdef Ref item
    if queue.dumped != -2:
        return pass_by(queue, kind, position, number)
    if kind == ADDX or kind == ADD:
        return push_back(queue, position, 0)
    if kind == REMOVE:
        if queue.count == 0:
            return odd(queue, position, NOTHING_TO_REMOVE, 0)
        item = pop_front(queue)
        return tell(queue, &item, position, WAS_REMOVED, 0)
    if kind == REMOVE_TENTATIVE:
        return reserve(queue, position)
    if kind == CONFIRM_REMOVE:
        return finish(queue, position, number)
    if kind == REMOVE_TENTATIVE_XID:
        return reserve_as(queue, position, number)
    if kind == ADD_XID:
        return push_back(queue, position, number)
    if kind == UNREMOVE:
        return unremove(queue, position, number)
    if kind == CONTINUE:
        if finish(queue, position, number) < 0:
            return -1
        return push_back(queue, position, 0)
    if kind == SAVE_XID:
        queue.xid = number
        return 0
    if kind == STATE_DUMP:
        queue.dumped = number
        return 0
    return -2


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


cdef class Replay:
    """A queue that operations are applied to; see replay.Replay."""

    cdef Queue _queue
    cdef bint _busy

    def __cinit__(self, watch=None):
        memset(&self._queue, 0, sizeof(Queue))
        self._queue.dumped = -2
        self._queue.seed = int.from_bytes(os.urandom(8), "little")
        self._queue.most_anomalies = _MOST_ANOMALIES
        if watch is not None:
            self._queue.watch_file, self._queue.watch_position = watch
            self._queue.watching = True

    def __dealloc__(self):
        free(self._queue.ring)
        free(self._queue.table)
        free(self._queue.ids.words)
        free(self._queue.anomalies.notes)
        free(self._queue.events.notes)

    def begin_file(self, int32_t file):
        """What comes now is in the file of this number."""
        self._queue.file = file
        self._queue.dumped = -2

    def add(self, kinds, numbers, positions):
        """Apply operations: their kinds, their ids (of a state dump its count), and where they are in the file."""
        cdef _View kinds_view = _View(kinds)
        cdef _View numbers_view = _View(numbers)
        cdef _View positions_view = _View(positions)
        cdef Py_ssize_t count = kinds_view.size
        cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
        cdef const int32_t *number = <const int32_t *>numbers_view.data
        cdef const int64_t *position = <const int64_t *>positions_view.data
        cdef Py_ssize_t row = 0
        cdef int answer = 0
        if numbers_view.size != count * 4 or positions_view.size != count * 8:
            raise ValueError("there must be as many kinds as numbers and positions")
        if self._busy:
            raise WrongUse("another thread is adding to this replay")
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
        return [
            Anomaly(self._queue.anomalies.notes[row].file, self._queue.anomalies.notes[row].position,
                    self._queue.anomalies.notes[row].which, self._queue.anomalies.notes[row].xid)
            for row in range(self._queue.anomalies.count)
        ]

    @property
    def events(self):
        """What happened to the item that is watched."""
        return [
            Event(self._queue.events.notes[row].file, self._queue.events.notes[row].position,
                  self._queue.events.notes[row].which, self._queue.events.notes[row].xid)
            for row in range(self._queue.events.count)
        ]

    def items(self):
        """The items of the queue from head to tail."""
        cdef list found = []
        cdef int64_t row
        cdef Ref item
        for row in range(self._queue.count):
            item = self._queue.ring[(self._queue.head + row) & (self._queue.capacity - 1)]
            found.append(Item(item.file, item.position, item.xid))
        return found

    def open(self):
        """The reserved items, in the order in which they were reserved."""
        cdef list found = []
        cdef int64_t row
        cdef Ref item
        for row in range(self._queue.table_capacity):
            if self._queue.table[row].used:
                item = self._queue.table[row].item
                found.append((self._queue.table[row].order, Item(item.file, item.position, item.xid)))
        found.sort()
        return [reserved for _, reserved in found]

    def __len__(self):
        return self._queue.count
