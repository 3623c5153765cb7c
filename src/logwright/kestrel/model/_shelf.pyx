# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The twin of shelf.py, which says what it means.

Items are in a ring. The mutex is a lock of the interpreter's own, taken without a call where it is free. Between two
calls of Python nothing interrupts this code, which is what makes `take` safe without the mutex.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.method cimport PyMethod_Check, PyMethod_GET_FUNCTION, PyMethod_GET_SELF
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
    WAIT_LOCK,
)
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from ...core.bytes._buffers cimport View
from ...core.bytes._bytes cimport load_little_i32, load_little_i64, now_ms, store_little_u32, store_little_u64
from ...core.bytes._write_buffer cimport WriteBuffer, PyGC_Disable, PyGC_Enable, room_for
from ._ring cimport grown_ring
from ..bytes._operations cimport ADD, ADD_XID, ADDX, ADDX_HEAD, check_agreement, has_data, head_bytes

from os import pwrite
from sys import exc_info

from ...core.bytes.buffers import as_bytes
from ...core.io.disk import RealFile
from ...errors import StorageFailed, TooLarge, WrongUse
from ..bytes.layout import DATA_HEAD_BYTES, MAX_DATA_BYTES
from ..bytes.records import OPS

check_agreement(OPS, DATA_HEAD_BYTES)

cdef int64_t NO_LIMIT = <int64_t>1 << 62
cdef bytes REMOVE_BYTE = b"\x01"
cdef object REAL_WRITE = RealFile.write_at
cdef object PWRITE = pwrite

cdef struct Entry:
    PyObject *data
    int64_t added
    int64_t expires
    int32_t attempts
    int32_t name


cdef object _write_real(object file, bytes data, int64_t position):
    """What `RealFile.write_at` does, without a frame of its own: there are two of these for each item."""
    try:
        return PWRITE(file.descriptor, data, position)
    except OSError as error:
        raise StorageFailed("write", file.path, error) from error


cdef class Mutex:
    """A lock for `with`. A thread that has it already is refused, instead of waiting for itself for ever."""

    cdef PyThread_type_lock _lock
    cdef unsigned long _owner  # 0 while it is free

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    cdef int _acquire(self) except -1:
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            if self._owner == PyThread_get_thread_ident():
                raise WrongUse("this queue was called from within one of its own calls, as by a finalizer")
            with nogil:
                PyThread_acquire_lock(self._lock, WAIT_LOCK)
        self._owner = PyThread_get_thread_ident()
        return 0

    cdef void _release(self) noexcept:
        self._owner = 0
        PyThread_release_lock(self._lock)

    def __enter__(self):
        self._acquire()
        return True

    def __exit__(self, kind, error, trace):
        if self._owner == 0:
            raise RuntimeError("the mutex is free")
        self._release()


cdef class Shelf(WriteBuffer):
    """Items and operations of one queue; see shelf.Shelf."""

    cdef readonly Mutex mutex
    # operations on their way
    cdef public int64_t position
    cdef public int64_t _file_size
    cdef public int dialect
    cdef public object write
    cdef public object leaving
    cdef public bint unsettled
    cdef public int64_t began
    cdef public int64_t serial
    # the item that a thread was handed last, until it is delivered; those of other threads are in the dict
    cdef unsigned long _holder
    cdef Entry _held
    cdef int64_t _held_serial
    cdef dict _held_by_others
    # items
    cdef public int64_t items
    cdef public int64_t data_bytes
    cdef public int64_t memory_items
    cdef public int64_t memory_bytes
    cdef public int64_t added
    cdef public int64_t taken
    cdef public int64_t waiting
    cdef Entry *_ring
    cdef int64_t _ring_capacity
    cdef int64_t _head
    # limits
    cdef public object clock
    cdef public int64_t max_items
    cdef public int64_t max_bytes
    cdef public int64_t max_item_bytes
    cdef public int64_t max_memory_items
    cdef public int64_t max_memory_bytes
    cdef public int64_t max_age
    cdef public int64_t max_attempts
    cdef public int64_t care_bytes
    cdef public int64_t erase_bytes

    def __cinit__(self, *arguments, **options):
        self.mutex = Mutex()
        self._ring = NULL
        self._holder = 0
        self._held_by_others = {}

    def __init__(self, int64_t position, int64_t attention_bytes, int dialect):
        WriteBuffer.__init__(self, attention_bytes, first_bytes=4096)  # a program may have thousands of queues
        self.position = position
        self.dialect = dialect
        self.max_items = self.max_bytes = self.max_memory_items = self.max_memory_bytes = NO_LIMIT
        self.max_item_bytes = MAX_DATA_BYTES
        self.max_attempts = 0x7FFFFFFF
        self.care_bytes = self.erase_bytes = NO_LIMIT

    def __dealloc__(self):
        self._forget_held()
        self._drop_all()

    # --- what is called all the time --------------------------------------------------------------------------------

    def put(self, data, expires=None):
        """Add an item at the tail. `expires` is handed to `_deadline`."""
        cdef int64_t now
        cdef bint has_begun = False
        if not isinstance(data, bytes):
            data = as_bytes(data)
        if self.refusing:
            self._refuse()
        self.mutex._acquire()
        try:
            if self.unsettled:
                self._refuse()
            has_begun = True
            now = self._now()
            self._put(<bytes>data, now, 0 if expires is None else self._deadline(expires, now))
        finally:
            self._leave(has_begun)

    cdef inline int _leave(self, bint has_begun) except -1:
        """A call ends: if it has left something half-way, nothing more is taken."""
        try:
            if has_begun and self.unsettled:
                self.refusing = True
                self._interrupted(exc_info()[1])
        finally:
            self.mutex._release()
        return 0

    def put_held(self, bytes data not None, int64_t added, int64_t expires):
        """Add an item at the tail; the mutex is held."""
        self._put(data, added, expires)

    cdef int _put(self, bytes data, int64_t added, int64_t expires) except -1:
        cdef int64_t size = PyBytes_GET_SIZE(data)
        cdef int64_t position
        cdef Entry entry
        cdef bint is_part = self.unsettled
        if self.refusing:
            self._refuse()
        if size > self.max_item_bytes:
            raise TooLarge(f"an item of {size} bytes is more than the {self.max_item_bytes} that this queue takes")
        if self.items >= self.max_items or self.data_bytes + size > self.max_bytes:
            self._make_room(size)
        if not self.unsettled:
            if self.position > self.care_bytes:
                self._care()
            self.unsettled = True
            self.began = self.position
        position = self._emit_add(data, size, added, expires)
        self.added += 1
        if self.items == self.memory_items:
            if self.memory_items < self.max_memory_items and self.memory_bytes + size <= self.max_memory_bytes:
                entry.data = <PyObject *>data
                entry.added = added
                entry.expires = expires
                entry.attempts = 0
                entry.name = 0
                self._push_back(&entry)
                self.memory_bytes += size
            else:
                self._fall_behind(position)
        self.items += 1
        self.data_bytes += size
        self.unsettled = is_part
        if self.waiting:
            self._wake()
        return 0

    def get(self):
        """Remove the head; its data, None when there is nothing."""
        return self._get(False)

    def hand_out(self):
        """The same, and this thread `holds` the item until it says that it does not."""
        return self._get(True)

    cdef object _get(self, bint is_held):
        cdef Entry *head
        cdef Entry entry
        cdef bint has_begun = False
        if self.refusing:
            self._refuse()
        self.mutex._acquire()
        try:
            if self.refusing or self.unsettled:
                self._refuse()
            has_begun = True
            if self.items == 0:
                return None
            head = self._ring + self._head
            if self.memory_items == 0 or self.max_age or head.expires or head.attempts:
                if not self._ready():
                    return None
                if self.memory_items == 0:
                    raise IndexError("the shelf is empty")
            if is_held and self._holder:
                self._hold_for_others()
            self.unsettled = True
            self.began = self.position
            self._emit(REMOVE_BYTE)
            self.taken += 1
            entry = self._ring[self._head]
            data = self._pop_data()
            if is_held:
                Py_INCREF(data)
                self._held = entry
                self._held_serial = self.serial
                self._holder = self.mutex._owner
            self.unsettled = False
            if self.position > self.care_bytes or (self.items == 0 and self.position >= self.erase_bytes):
                self._care()
            return data
        finally:
            self._leave(has_begun)

    cdef int _hold_for_others(self) except -1:
        """Keep what another thread holds where the next item will not take its place."""
        if self._holder != self.mutex._owner:
            self._held_by_others[self._holder] = self._tuple(&self._held), self._held_serial
        self._forget_held()
        return 0

    cdef void _forget_held(self) noexcept:
        if self._holder:
            self._holder = 0
            Py_DECREF(<object>self._held.data)

    @property
    def holds(self):
        """Whether this thread holds an item. A thread that has delivered it sets this to False."""
        return self._holder == PyThread_get_thread_ident() or PyThread_get_thread_ident() in self._held_by_others

    @holds.setter
    def holds(self, bint value):
        if self._holder == PyThread_get_thread_ident():
            self._forget_held()
        elif self._held_by_others:
            self._held_by_others.pop(PyThread_get_thread_ident(), None)

    def held(self):
        """The item that this thread holds, and `serial` when it was removed; None for none."""
        if self._holder == PyThread_get_thread_ident():
            return self._tuple(&self._held), self._held_serial
        return self._held_by_others.get(PyThread_get_thread_ident())

    cdef inline int64_t _now(self) except? -1:
        return now_ms() if self.clock is None else self.clock()

    def now(self):
        """Milliseconds since the epoch, by the clock that was given."""
        return self._now()

    # --- items; the mutex is held -----------------------------------------------------------------------------------

    cdef int _grow(self) except -1:
        cdef Entry *grown = <Entry *>grown_ring(
            self._ring, &self._ring_capacity, &self._head, self.memory_items, sizeof(Entry)
        )
        if grown == NULL:
            raise MemoryError
        self._ring = grown
        return 0

    cdef int _push_back(self, Entry *entry) except -1:
        """Put an item behind the others on the shelf; its bytes are not counted."""
        if self.memory_items == self._ring_capacity:
            self._grow()
        Py_INCREF(<object>entry.data)
        self._ring[(self._head + self.memory_items) & (self._ring_capacity - 1)] = entry[0]
        self.memory_items += 1
        return 0

    cdef object _pop_data(self):
        """Take the first item from the shelf; its data."""
        if self.memory_items == 0:
            raise IndexError("the shelf is empty")
        cdef object data = <object>self._ring[self._head].data
        cdef int64_t size = PyBytes_GET_SIZE(<bytes>data)
        Py_DECREF(data)
        self._head = (self._head + 1) & (self._ring_capacity - 1)
        self.memory_items -= 1
        self.memory_bytes -= size
        self.items -= 1
        self.data_bytes -= size
        return data

    cdef tuple _tuple(self, Entry *entry):
        return <object>entry.data, entry.added, entry.expires, entry.attempts, entry.name

    def head(self):
        """The first item on the shelf."""
        if self.memory_items == 0:
            raise IndexError("the shelf is empty")
        return self._tuple(self._ring + self._head)

    def pop(self):
        """Take the first item from the shelf. The journal is not changed."""
        cdef Entry entry
        if self.memory_items:
            entry = self._ring[self._head]
        data = self._pop_data()  # keeps it alive
        entry.data = <PyObject *>data
        return self._tuple(&entry)

    def put_back(self, tuple entry not None):
        """Put an item to the head, whatever the limits are. The journal is not changed."""
        if len(entry) != 5:
            raise ValueError("an item has five fields")
        cdef bytes data = <bytes?>entry[0]
        cdef Entry found
        found.data = <PyObject *>data
        found.added, found.expires, found.attempts, found.name = entry[1], entry[2], entry[3], entry[4]
        if self.memory_items == self._ring_capacity:
            self._grow()
        Py_INCREF(data)
        self._head = (self._head - 1) & (self._ring_capacity - 1)
        self._ring[self._head] = found
        self.memory_items += 1
        self.memory_bytes += PyBytes_GET_SIZE(data)
        self.items += 1
        self.data_bytes += PyBytes_GET_SIZE(data)

    def entries(self):
        """The items on the shelf from the head on."""
        cdef list found = []
        cdef int64_t row = 0
        while row < self.memory_items:  # which may change, for a tuple is made
            found.append(self._tuple(self._ring + ((self._head + row) & (self._ring_capacity - 1))))
            row += 1
        return found

    def clear(self):
        """Forget all items. The journal is not changed."""
        self._drop_all()

    cdef void _drop_all(self) noexcept:
        """Forget all items at once, before the first of them is let go: what runs then finds an empty shelf."""
        cdef Entry *ring = self._ring
        cdef int64_t capacity = self._ring_capacity
        cdef int64_t head = self._head
        cdef int64_t count = self.memory_items
        cdef int64_t row
        self._ring = NULL
        self._ring_capacity = self._head = 0
        self.items = self.data_bytes = self.memory_items = self.memory_bytes = 0
        for row in range(count):
            Py_DECREF(<object>ring[(head + row) & (capacity - 1)].data)
        free(ring)

    def stock(
        self, buffer, int64_t base, kinds, numbers, positions, int64_t end, int64_t most_items, int64_t most_bytes
    ):
        """Put items that are counted already onto the shelf, from the operations that have added them."""
        cdef View view = View(buffer)
        cdef View kinds_view = View(kinds)
        cdef View numbers_view = View(numbers)
        cdef View positions_view = View(positions)
        cdef Py_ssize_t count = kinds_view.size
        cdef const uint8_t *kind = <const uint8_t *>kinds_view.data
        cdef const int32_t *number = <const int32_t *>numbers_view.data
        cdef const int64_t *position = <const int64_t *>positions_view.data
        cdef int64_t start, stop, size, head
        cdef Py_ssize_t row
        cdef int64_t taken = 0
        cdef Entry entry
        cdef bytes data
        if numbers_view.size != count * 4 or positions_view.size != count * 8:
            raise ValueError("there must be as many kinds as numbers and positions")
        for row in range(count):
            if not has_data(kind[row]):
                continue
            head = head_bytes(kind[row])
            start = position[row] - base
            stop = (position[row + 1] if row + 1 < count else end) - base
            size = stop - start - head
            if start < 0 or size < 0 or stop > view.size:
                raise ValueError("these operations are not within the buffer")
            if taken and (self.memory_items >= most_items or self.memory_bytes + size > most_bytes):
                return row
            data = PyBytes_FromStringAndSize(<const char *>view.data + stop - size, size)
            entry.data = <PyObject *>data
            if kind[row] == ADD:
                entry.added = 0
                entry.expires = <int64_t>load_little_i32(view.data + start + 5) * 1000
            else:
                entry.added = load_little_i64(view.data + start + head - 16)
                entry.expires = load_little_i64(view.data + start + head - 8)
            entry.attempts = 0
            entry.name = number[row] if kind[row] == ADD_XID else 0
            self._push_back(&entry)
            self.memory_bytes += size
            taken += 1
        return count

    # --- operations on their way ------------------------------------------------------------------------------------

    cdef int64_t _emit_add(self, bytes data, int64_t size, int64_t added, int64_t expires) except -1:
        """Send an ADDX on its way."""
        cdef int64_t position = self.position
        cdef int64_t whole = size + ADDX_HEAD
        cdef unsigned char *out
        cdef bytes operation = None
        if self.write is None:
            out = room_for(self, whole)
        else:
            operation = PyBytes_FromStringAndSize(NULL, whole)
            out = <unsigned char *>PyBytes_AS_STRING(operation)
        out[0] = ADDX
        store_little_u32(out + 1, <uint32_t>(size + 16))
        store_little_u64(out + 5, <uint64_t>added)
        store_little_u64(out + 13, <uint64_t>expires)
        memcpy(out + ADDX_HEAD, PyBytes_AS_STRING(data), size)
        self.serial += 1
        self.position = position + whole
        if operation is None:
            self._used += whole
            if self._used >= self.attention_bytes:
                self._attend()
        else:
            self._write_through(operation)
        return position

    cdef int64_t _emit(self, bytes data) except -1:
        cdef int64_t position = self.position
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        self.serial += 1
        if self.write is None:
            memcpy(room_for(self, size), PyBytes_AS_STRING(data), size)
            self.position = position + size
            self._used += size
            if self._used >= self.attention_bytes:
                self._attend()
        else:
            self.position = position + size
            self._write_through(data)
        return position

    cdef int _write_through(self, bytes data) except -1:
        cdef int64_t written
        cdef object write = self.write
        try:
            if PyMethod_Check(write) and PyMethod_GET_FUNCTION(write) == <PyObject *>REAL_WRITE:
                written = _write_real(<object>PyMethod_GET_SELF(write), data, self._file_size)
            else:
                written = write(self._file_size, data)
        except BaseException as error:
            self._write_failed(error)
            raise
        if written < PyBytes_GET_SIZE(data):
            self._write_rest(data, written)
        self._file_size += PyBytes_GET_SIZE(data)
        return 0

    def take(self):
        """What has gathered, or what was taken last, as long as it is `leaving`."""
        cdef Py_ssize_t used = self._used
        cdef bint collecting
        if self.leaving is None:
            collecting = PyGC_Disable()  # or operations might be taken a second time in between
            try:
                self.leaving = self._swap(), used
            finally:
                if collecting:
                    PyGC_Enable()
        return self.leaving

    def emit(self, bytes data not None):
        """Send operations on their way; the position of the first one. The mutex is held."""
        return self._emit(data)

    # --- what a subclass has ----------------------------------------------------------------------------------------

    def _deadline(self, expires, now):
        raise NotImplementedError

    def _make_room(self, size):
        raise NotImplementedError

    def _fall_behind(self, position):
        raise NotImplementedError

    def _ready(self):
        raise NotImplementedError

    def _care(self):
        raise NotImplementedError

    def _wake(self):
        raise NotImplementedError

    def _write_rest(self, data, done):
        raise NotImplementedError

    def _write_failed(self, error):
        raise NotImplementedError

    def _interrupted(self, error):
        raise NotImplementedError
