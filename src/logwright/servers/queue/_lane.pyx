# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled form of lane.py, with the fast path. Every advance is checked against the end of the bytes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from .answers import END as END_LINE
from .answers import STORED as STORED_LINE

cdef bytes END = END_LINE
cdef bytes STORED = STORED_LINE
cdef tuple NO_QUEUES = ()
cdef int MOST_FLAG_DIGITS = 9
cdef int MOST_SIZE_DIGITS = 9


cdef inline const char *past_key(const char *at, const char *stop) noexcept:
    """The end of a key without options that begins here."""
    while at < stop and <unsigned char>at[0] > 32 and at[0] != c"/" and at[0] != 127:
        at += 1
    return at


cdef inline const char *past_digits(const char *at, const char *stop, int most) noexcept:
    """The end of a number that begins here; NULL if there is none, or if it has more digits."""
    cdef const char *start = at
    while at < stop and c"0" <= at[0] <= c"9":
        at += 1
    return at if 0 < at - start <= most else NULL


cdef class Lane:
    """What the clients of a server share; see lane.Lane."""

    cdef public bint is_open
    cdef public double now
    cdef readonly list changed
    cdef readonly list talking
    cdef public bint is_due
    cdef public int64_t sets
    cdef public int64_t hits
    cdef public int64_t misses
    cdef public int64_t bytes_read
    cdef public int64_t bytes_written
    cdef public int64_t fresh_bytes
    cdef public object last
    cdef public bint is_at_once
    cdef public bint is_direct
    cdef public bint is_written_at_once
    cdef public int64_t check_bytes
    cdef public int64_t commits
    cdef readonly object commit_now
    cdef dict _queues
    cdef object _commit_later
    cdef int64_t _max_line
    cdef int64_t _max_item

    def __init__(self, dict queues not None, commit_later, commit_now, int64_t max_line, int64_t max_item):
        self.is_open = True
        self.check_bytes = <int64_t>1 << 62
        self.changed = []
        self.talking = []
        self._queues = queues
        self._commit_later = commit_later
        self.commit_now = commit_now
        self._max_line = max_line
        self._max_item = max_item

    cpdef change(self, queue):
        """Write the changes of a queue with the next commit."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self.changed.append(queue)
            self.become_due()
            if not self.is_at_once:
                queue.gather()

    cpdef tuple taken(self):
        """Take the changed queues and the talking clients; both are empty afterwards."""
        cdef list changed = self.changed
        cdef list talking = self.talking
        self.changed = []
        self.talking = []
        self.is_due = False
        for queue in changed:
            queue.is_dirty = False
        if changed:
            self.commits += 1
        return changed, talking

    cpdef tuple unwritten(self, tuple queues):
        """The queues whose operations wait for the commit."""
        if not self.is_written_at_once:
            return queues
        if self.is_at_once:
            return NO_QUEUES
        for queue in queues:
            if queue.is_dirty:
                return queues
        return NO_QUEUES

    cpdef become_due(self):
        """Ask for a commit, once."""
        if not self.is_due:
            self.is_due = True
            if not self.is_at_once:
                self._commit_later()

    cdef object _find(self, const char *key, Py_ssize_t size):
        """The queue of a key; None if there is none, or if it may not take the lane."""
        cdef PyObject *found = PyDict_GetItem(self._queues, PyBytes_FromStringAndSize(key, size))
        if found == NULL:
            return None
        queue = <object>found
        if queue.is_changing or queue.waiters or queue.handle.has_children or queue.can_move:
            return None
        return queue


cdef class Line:
    """A client's requests and answers; see lane.Line."""

    cdef readonly Lane lane
    cdef public object transport
    cdef public int holds
    cdef public bint is_plain
    cdef public bint has_ended
    cdef public double heard
    cdef public list answers
    cdef public list owners
    cdef public int64_t unsent_bytes
    cdef public int64_t most_unsent_bytes

    def __init__(self, Lane lane not None, int64_t most_bytes):
        self.lane = lane
        self.heard = lane.now
        self.answers = []
        self.owners = []
        self.most_unsent_bytes = most_bytes

    def data_received(self, data):
        """Carry out the requests in these bytes."""
        cdef Lane lane = self.lane
        if type(data) is not bytes:
            data = bytes(data)
        self.heard = lane.now
        lane.bytes_read += PyBytes_GET_SIZE(<bytes>data)
        lane.fresh_bytes += PyBytes_GET_SIZE(<bytes>data)
        lane.is_at_once = lane.last is self and not lane.is_due
        lane.last = self
        try:
            self._do(<bytes>data)
        finally:
            if lane.is_at_once:
                lane.is_at_once = False
                if lane.is_due and lane.is_direct and lane.fresh_bytes <= lane.check_bytes:
                    send_all(<list>lane.taken()[1])
                elif lane.is_due:
                    lane.commit_now()

    cdef int _do(self, bytes data) except -1:
        cdef Py_ssize_t done = 0
        if self.is_plain and self.lane.is_open and not self.holds:
            done = self._take_lane(data)
            if done == PyBytes_GET_SIZE(data):
                return 0
            if done:
                data = data[done:]
        self.receive(data)
        return 0

    def receive(self, data):
        """Carry out the requests in these bytes, on the general path."""
        raise NotImplementedError

    cpdef answer(self, bytes answer, tuple queues=NO_QUEUES):
        """Send an answer with the next commit, or an error if one of the queues fails."""
        if not self.answers:
            self.lane.talking.append(self)
            self.lane.become_due()
        self.answers.append(answer)
        self.owners.append(self.lane.unwritten(queues))
        self.unsent_bytes += PyBytes_GET_SIZE(answer)
        for queue in queues:
            self.lane.change(queue)
        if self.unsent_bytes > self.most_unsent_bytes:
            self.many_unsent()

    def many_unsent(self):
        """Many answers wait for a commit."""
        raise NotImplementedError

    def taken_answers(self):
        """Take the waiting answers and their queues; none are left afterwards."""
        found = self.answers, self.owners
        self.answers = []
        self.owners = []
        self.unsent_bytes = 0
        return found

    cpdef send(self, list lines):
        """Send answers."""
        transport = self.transport
        cdef bytes data
        if transport is None or transport.is_closing():
            return
        data = <bytes?>lines[0] if len(lines) == 1 else b"".join(lines)
        self.lane.bytes_written += PyBytes_GET_SIZE(data)
        transport.write(data)
        if self.holds or self.has_ended:
            self.after_send()

    def after_send(self):
        """Answers have been sent; continue requests that waited for that."""
        raise NotImplementedError

    # --- the lane ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t _take_lane(self, bytes data) except -1:
        """Carry out the simple requests at the beginning of these bytes; returns the number of bytes."""
        cdef const char *begin = PyBytes_AS_STRING(data)
        cdef const char *stop = begin + PyBytes_GET_SIZE(data)
        cdef const char *at = begin
        cdef const char *after
        while stop - at >= 6 and not self.holds:
            if memcmp(at, b"get ", 4) == 0:
                after = self._get(at, stop)
            elif memcmp(at, b"set ", 4) == 0:
                after = self._set(at, stop)
            else:
                break
            if after == NULL:
                break
            at = after
        return at - begin

    cdef const char *_set(self, const char *at, const char *stop) except? NULL:
        r"""`set KEY FLAGS 0 SIZE\r\n`, and the data; returns the beginning of the next request, NULL if this one is not simple."""
        cdef const char *key = at + 4
        cdef const char *key_end = past_key(key, stop)
        cdef const char *flags_end
        cdef const char *number
        cdef const char *start
        cdef int64_t size = 0
        if key_end == key or stop - key_end < 9 or key_end[0] != c" ":
            return NULL
        flags_end = past_digits(key_end + 1, stop, MOST_FLAG_DIGITS)
        if flags_end == NULL or stop - flags_end < 6 or memcmp(flags_end, b" 0 ", 3) != 0:
            return NULL
        number = flags_end + 3
        start = past_digits(number, stop, MOST_SIZE_DIGITS)
        if start == NULL or stop - start < 2 or start[0] != c"\r" or start[1] != c"\n":
            return NULL
        while number < start:
            size = size * 10 + (number[0] - c"0")
            number += 1
        if start - at >= self.lane._max_line or size > self.lane._max_item:
            return NULL
        start += 2
        if stop - start < size + 2 or start[size] != c"\r" or start[size + 1] != c"\n":
            return NULL
        queue = self.lane._find(key, key_end - key)
        if queue is None:
            return NULL
        try:
            queue.put(PyBytes_FromStringAndSize(start, size))
        except Exception:
            return NULL  # the general path meets the error again, and reports it
        self.lane.sets += 1
        self.answer(STORED, <tuple?>queue.alone)
        return start + size + 2

    cdef const char *_get(self, const char *at, const char *stop) except? NULL:
        r"""`get KEY\r\n`; returns the beginning of the next request, NULL if this one is not simple."""
        cdef const char *key = at + 4
        cdef const char *key_end = past_key(key, stop)
        cdef object found
        if key_end == key or stop - key_end < 2 or key_end[0] != c"\r" or key_end[1] != c"\n":
            return NULL
        if key_end - at >= self.lane._max_line:
            return NULL
        queue = self.lane._find(key, key_end - key)
        if queue is None:
            return NULL
        try:
            found = queue.take()
        except Exception:
            return NULL
        if found is None:
            self.lane.misses += 1
            self.answer(END)
        else:
            self.lane.hits += 1
            self.answer(_value(key, key_end - key, <bytes?>found), <tuple?>queue.alone)
        return key_end + 2


cdef bytes _value(const char *key, Py_ssize_t key_size, bytes item):
    """The answer with an item."""
    cdef char middle[32]
    cdef Py_ssize_t size = PyBytes_GET_SIZE(item)
    cdef Py_ssize_t middle_size = snprintf(middle, 32, b" 0 %zd\r\n", size)
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, 6 + key_size + middle_size + size + 7)
    cdef char *out = PyBytes_AS_STRING(answer)
    memcpy(out, b"VALUE ", 6)
    memcpy(out + 6, key, key_size)
    out += 6 + key_size
    memcpy(out, middle, middle_size)
    out += middle_size
    memcpy(out, PyBytes_AS_STRING(item), size)
    memcpy(out + size, b"\r\nEND\r\n", 7)
    return answer


cpdef send_all(list lines):
    """Send the answers of clients for whom nothing has failed."""
    cdef Line line
    cdef list answers
    for line in lines:
        answers = line.answers
        line.answers = []
        line.owners = []
        line.unsent_bytes = 0
        line.send(answers)
