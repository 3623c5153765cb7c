"""The C types of rules.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t

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
    head_bytes,
)


cdef enum:
    NOTHING_TO_REMOVE = 0
    NOTHING_TO_RESERVE = 1
    NOT_OPEN = 2
    OPEN_ALREADY = 3
    NAME_TAKEN = 4
    AFTER_DUMP = 5

cdef enum:
    ADDED = 0
    RESERVED = 1
    PUT_BACK = 2
    REMOVED = 3
    FINISHED = 4


@cython.locals(rows=int64_t[::1], row=Py_ssize_t)
cpdef numbered(Py_ssize_t count)


@cython.final
cdef class Replay:
    cdef readonly int32_t xid
    cdef readonly int64_t first
    cdef readonly int64_t added
    cdef readonly int64_t added_bytes
    cdef readonly int64_t anomaly_count
    cdef readonly list anomalies
    cdef readonly list events
    cdef object _watch
    cdef int64_t _watched
    cdef bint _is_watching
    cdef bint _is_recording
    cdef int64_t[::1] _recorded
    cdef int64_t _recorded_count
    cdef int64_t _most_recorded
    cdef int32_t _file
    cdef bint _is_dumped
    cdef int64_t _dumped
    cdef list _front
    cdef dict _attempts
    cdef dict _names
    cdef int64_t[::1] _slot_xids
    cdef int64_t[::1] _slot_items
    cdef int64_t[::1] _slot_orders
    cdef dict _overflow
    cdef int64_t _order
    cdef object _ids

    @cython.locals(
        codes="const unsigned char[::1]",
        ids="const int32_t[::1]",
        starts="const int64_t[::1]",
        row=Py_ssize_t,
        count=Py_ssize_t,
        kind=int,
        stop=int64_t,
    )
    cpdef add(self, kinds, numbers, positions, int64_t end)
    cdef int _before_adding(self, int kind, int32_t number, int64_t position) except -1
    @cython.locals(item=int64_t)
    cdef int _remove(self, int64_t position) except -1
    @cython.locals(item=int64_t, xid=int64_t)
    cdef int _reserve(self, int64_t position) except -1
    @cython.locals(xid=int32_t)
    cdef int64_t _name_of(self, int64_t item, int64_t position) except? -1
    @cython.locals(item=int64_t)
    cdef int _finish(self, int32_t xid, int64_t position) except -1
    @cython.locals(item=int64_t)
    cdef int _apply(self, int kind, int32_t number, int64_t position) except -1
    cdef int _skip(self, int kind, int32_t number, int64_t position) except -1
    cdef int64_t _take(self) except -2
    cdef int64_t _pop_front(self) except -2
    cdef int _end(self, int64_t item, int64_t position, int what, int32_t xid) except -1
    cdef int _forget_attempts(self, int64_t item) except -1
    cdef int _add_anomaly(self, int64_t position, int which, int32_t xid) except -1
    cdef int _record(self, int64_t item, int64_t position, int what, int32_t xid) except -1
    @cython.locals(slot=int32_t)
    cdef int _open(self, int32_t xid, int64_t item, int64_t position) except -1
    cdef int _open_in_overflow(self, int32_t xid, int64_t item) except -1
    cdef int _add_id(self, int32_t xid) except -1
    cdef bint _is_open(self, int32_t xid) except -1
    cdef bint _is_in_overflow(self, int32_t xid) except -1
    @cython.locals(slot=int32_t, item=int64_t)
    cdef int64_t _close(self, int32_t xid, int64_t position) except -2
    cdef int _remove_id(self, int32_t xid) except -1
    cdef int64_t _close_in_overflow(self, int32_t xid, int64_t position) except -2
    @cython.locals(xid=int32_t)
    cdef int32_t _next_xid(self) except 0
    @cython.locals(front=list, first=int64_t, added=int64_t)
    cpdef list items(self)
    @cython.locals(slot=Py_ssize_t)
    cpdef list open(self)
