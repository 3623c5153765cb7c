"""The C types of lane.py, and the answer with an item, which is written without a format string."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy


cdef enum:
    SPACE = 32
    SLASH = 47
    ZERO = 48
    NINE = 57
    DELETE = 127
    CARRIAGE_RETURN = 13
    LINE_FEED = 10
    SYNC_NONE = 0
    SYNC_INTERVAL = 1
    SYNC_ALWAYS = 2


cdef inline bytes item_answer(bytes key, bytes item):
    """The answer to a `get` with an item."""
    cdef char middle[32]
    cdef Py_ssize_t key_size = PyBytes_GET_SIZE(key)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(item)
    cdef Py_ssize_t middle_size = snprintf(middle, 32, b" 0 %zd\r\n", size)
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, 6 + key_size + middle_size + size + 7)
    cdef char *out = PyBytes_AS_STRING(answer)
    memcpy(out, b"VALUE ", 6)
    memcpy(out + 6, PyBytes_AS_STRING(key), key_size)
    out += 6 + key_size
    memcpy(out, middle, middle_size)
    out += middle_size
    memcpy(out, PyBytes_AS_STRING(item), size)
    memcpy(out + size, b"\r\nEND\r\n", 7)
    return answer


cdef Py_ssize_t MOST_DIGITS
cdef int _WATCHES_ANSWERS


cdef class Lane:
    cdef public bint is_open
    cdef public double now
    cdef readonly list changed
    cdef readonly list pending
    cdef public int64_t sets
    cdef public int64_t hits
    cdef public int64_t misses
    cdef public int64_t bytes_read
    cdef public int64_t bytes_written
    cdef public int64_t fresh_bytes
    cdef public int64_t check_bytes
    cdef public int64_t commits
    cdef object _last
    cdef bint _is_at_once
    cdef int _sync
    cdef object _commit_later
    cdef object _commit_now
    cdef dict _queues
    cdef int64_t _max_line
    cdef int64_t _max_item

    cpdef change(self, queue)
    cdef add_pending(self, line)
    cdef _ask_for_commit(self)
    cdef begin(self, line, Py_ssize_t size)
    cdef end(self)
    @cython.locals(changed=list, pending=list)
    cpdef tuple take(self)
    cdef tuple unwritten(self, tuple queues)
    cdef object _find(self, bytes key)


cdef class Line:
    cdef readonly Lane lane
    cdef public object transport
    cdef public int state
    cdef public double heard_at
    cdef public list answers
    cdef public list owners
    cdef public int64_t unsent_bytes
    cdef public int64_t most_unsent_bytes

    @cython.locals(lane=Lane, done=Py_ssize_t)
    cpdef data_received(self, data)
    @cython.locals(lane=Lane)
    cpdef answer(self, bytes answer, tuple queues=*)
    @cython.locals(data=bytes)
    cpdef send(self, list lines)
    @cython.locals(text="const unsigned char*", at=Py_ssize_t, after=Py_ssize_t, stop=Py_ssize_t)
    cdef Py_ssize_t _take_lane(self, bytes data) except? -1
    @cython.locals(
        text="const unsigned char*",
        lane=Lane,
        key_end=Py_ssize_t,
        flags_end=Py_ssize_t,
        number=Py_ssize_t,
        start=Py_ssize_t,
        size=Py_ssize_t,
        end=Py_ssize_t,
    )
    cdef Py_ssize_t _take_set(self, bytes data, Py_ssize_t at, Py_ssize_t stop) except? -1
    @cython.locals(text="const unsigned char*", lane=Lane, key_end=Py_ssize_t, key=bytes)
    cdef Py_ssize_t _take_get(self, bytes data, Py_ssize_t at, Py_ssize_t stop) except? -1


cdef Py_ssize_t _past_key(const unsigned char *text, Py_ssize_t at, Py_ssize_t stop) noexcept
@cython.locals(start=Py_ssize_t)
cdef Py_ssize_t _past_digits(const unsigned char *text, Py_ssize_t at, Py_ssize_t stop) noexcept
@cython.locals(line=Line, answers=list)
cpdef send_all(list lines)
