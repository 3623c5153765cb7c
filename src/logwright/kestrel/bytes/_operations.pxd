"""The operations by number, for all kernels of kestrel; layout.py describes them.

Everything is inline, so there is no module to build or load.
"""

from libc.stdint cimport int64_t


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

cdef enum:
    ADD_HEAD = 9
    ADDX_HEAD = 21
    ADD_XID_HEAD = 25


cdef inline bint has_data(int kind) noexcept nogil:
    return kind == ADDX or kind == ADD_XID or kind == ADD or kind == CONTINUE


cdef inline bint has_xid(int kind) noexcept nogil:
    return kind >= SAVE_XID


cdef inline int64_t head_bytes(int kind) noexcept nogil:
    """The size of an operation with data, without the data."""
    return ADDX_HEAD if kind == ADDX else ADD_HEAD if kind == ADD else ADD_XID_HEAD


cdef inline int check_agreement(object numbers, object heads) except -1:
    """Raise `ImportError` unless layout.py has the same numbers and sizes of heads."""
    if numbers != {
        "add": ADD, "remove": REMOVE, "addx": ADDX, "remove_tentative": REMOVE_TENTATIVE, "save_xid": SAVE_XID,
        "unremove": UNREMOVE, "confirm_remove": CONFIRM_REMOVE, "add_xid": ADD_XID, "state_dump": STATE_DUMP,
        "remove_tentative_xid": REMOVE_TENTATIVE_XID, "continue": CONTINUE,
    } or heads != {ADD: ADD_HEAD, ADDX: ADDX_HEAD, ADD_XID: ADD_XID_HEAD, CONTINUE: ADD_XID_HEAD}:
        raise ImportError("the kernel and layout.py disagree about the operations")
    return 0
