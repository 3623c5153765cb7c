# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The twin of table.py, which says what it means.

No other thread runs between the check for what is in the way of a change and its slot: nothing is called there that
could run Python, and all that must be allocated was before. So a change needs no lock. Keys are of the type str and no
subclass of it, so that looking one up in the index runs no Python either.

Decoding a value does: it allocates containers, and so may start the collector, which runs callbacks and finalizers, and
those may change this very table. So the slot and the memory of the buffer are held meanwhile, and a slot is written to
again only by its holders. A slot that has left the index does not move when the buffer is exchanged.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_DelItem, PyDict_Items, PyDict_Next, PyDict_SetItem, PyDict_Values
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy

from ...core.bytes._buffers cimport View
from ...core.bytes._bytes cimport now_ns, store_little_u64
from ..bytes._entries cimport Fields
from ..bytes._kernel cimport WHOLE, open_source, take_entry, take_key
from ..bytes.bonjson._kernel cimport (
    Out,
    Source,
    Text,
    close_out,
    error_of,
    open_out,
    put_bytes,
    put_key,
    put_unsigned,
    put_value,
    read_document,
    set_range,
)

from ...errors import WrongUse
from ..bytes.bonjson.codec import encode as _encode_or_say_why
from ..files.buffer import SECTOR_BYTES as _SECTOR_BYTES
from ..bytes.layout import POSITION_AT as _POSITION_AT
from ..bytes.records import check_key
from .table import NO_VALUE
from .table import PIECE_BYTES as _PIECE_BYTES

cdef extern from *:
    """
    #include <stdint.h>
    /* One store that comes after all others: whoever sees the position sees the entry before it. */
    static inline void publish64(unsigned char *p, uint64_t v) {
        __atomic_store_n((uint64_t *)p, LOGWRIGHT_LITTLE(64, v), __ATOMIC_RELEASE);
    }
    """
    void publish64(unsigned char *p, uint64_t v) noexcept nogil

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    object PyUnicode_FromObject(object text)
    Py_ssize_t Py_REFCNT(PyObject *value)
    bint PyBool_Check(object value)
    bint PyLong_CheckExact(object value)
    bint PyFloat_CheckExact(object value)

cdef enum:
    SECTOR_BYTES = 512
    POSITION_AT = 8
    NULL_CODE = 0x6D
    MOST_HEAD_BYTES = 12  # object start, the name `t`, and up to 9 bytes of time

if (_SECTOR_BYTES, _POSITION_AT) != (SECTOR_BYTES, POSITION_AT):
    raise ImportError("the kernel disagrees with buffer.py or layout.py")

cdef int64_t PIECE_BYTES = _PIECE_BYTES
cdef const unsigned char *ENTRY_HEAD = b"\x9a\x81t"
cdef const unsigned char *KEY_NAME = b"\x81k"
cdef const unsigned char *VALUE_NAME = b"\x81o"
cdef const unsigned char *END = b"\x9b"
cdef const unsigned char *NULL_AND_END = b"\x6d\x9b"
cdef unsigned char ZEROS[SECTOR_BYTES]


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class Slot:
    """See table.Slot. What it holds has no way back to it, so the collector need not look at it."""

    cdef public object value
    cdef public uint64_t t
    cdef public int64_t start
    cdef public int64_t end
    cdef public int64_t value_start
    cdef public int64_t value_end


cdef struct Live:
    int64_t start
    int64_t end
    PyObject *slot


cdef int older(const void *first, const void *second) noexcept nogil:
    cdef int64_t one = (<Live *>first).start
    cdef int64_t other = (<Live *>second).start
    return (one > other) - (one < other)


@cython.final
cdef class Moves:
    """See table.Moves."""

    cdef Live *items
    cdef Py_ssize_t count
    cdef list slots  # keeps them alive
    cdef readonly int64_t start
    cdef readonly int64_t end

    def __dealloc__(self):
        free(self.items)


cdef bint has_zero_sector(const unsigned char *data, int64_t start, int64_t end) noexcept nogil:
    cdef int64_t at = (start + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
    while at + SECTOR_BYTES <= end:
        if data[at] == 0 and memcmp(data + at, ZEROS, SECTOR_BYTES) == 0:
            return True
        at += SECTOR_BYTES
    return False


cdef inline int put_time(unsigned char *p, uint64_t t) noexcept nogil:
    """The smallest form of a time; how many bytes that are. Nine bytes are written to."""
    cdef int size
    cdef uint64_t rest
    if t <= 100:
        p[0] = <unsigned char>t
        return 1
    size = 8
    if t < <uint64_t>1 << 56:
        size = 0
        rest = t
        while rest:
            size += 1
            rest >>= 8
    p[0] = <unsigned char>((0x70 if t >> (8 * size - 1) & 1 else 0x78) + size - 1)
    store_little_u64(p + 1, t)
    return size + 1


@cython.boundscheck(True)
cdef object own_copy(object value, int64_t depth):
    """A copy of a value that is as reading it again would be; None where only reading shows that.

    The collector may run in here, and the value may change meanwhile: what is copied is what is held.
    """
    cdef type kind = type(value)
    cdef Py_ssize_t at = 0
    cdef PyObject *found_key
    cdef PyObject *found
    cdef object copied, key, item
    if kind is str or kind is int or kind is float or kind is bool:
        return value
    if depth <= 0:
        return None
    if kind is list:
        copied = list(value)
        for at in range(len(<list>copied)):
            item = (<list>copied)[at]
            kind = type(item)
            if kind is str or kind is int or kind is float or kind is bool or item is None:
                continue
            item = own_copy(item, depth - 1)
            if item is None:
                return None
            (<list>copied)[at] = item
        return copied
    if kind is not dict:
        return None
    copied = PyDict_Copy(value)
    while PyDict_Next(copied, &at, &found_key, &found):
        key = <object>found_key
        item = <object>found
        kind = type(item)
        if type(key) is not str:
            return None
        if kind is str or kind is int or kind is float or kind is bool or item is None:
            continue
        item = own_copy(item, depth - 1)
        if item is None:
            return None
        PyDict_SetItem(copied, key, item)
    return copied


cdef object read_value(const unsigned char *data, Py_ssize_t start, Py_ssize_t end):
    cdef Source source
    open_source(&source)
    set_range(&source, data, start, end)
    return read_document(&source)


cdef class Table:
    """The keys of a store; see table.Table."""

    cdef public bint refusing
    cdef public bint attention
    cdef public bint always
    cdef public object clock
    cdef public int64_t position
    cdef public int64_t soft_end
    cdef public uint64_t last_timestamp
    cdef public int64_t live_bytes
    cdef readonly dict index
    cdef public object memory
    cdef View _mapped

    def __init__(self):
        self.attention = True
        self.index = {}

    # --- what is called all the time --------------------------------------------------------------------------------

    def insert(self, key, value):
        """Let a key have a value, anything that JSON has but null; the time of this change, in nanoseconds."""
        cdef Out out
        cdef object own
        cdef Py_ssize_t value_at
        if value is None:
            raise WrongUse(NO_VALUE)
        if type(key) is not str:
            check_key(key)
            key = PyUnicode_FromObject(key)
        open_out(&out)
        try:
            put_bytes(&out, KEY_NAME, 2)
            if not put_key(&out, key):
                check_key(key)
            put_bytes(&out, VALUE_NAME, 2)
            value_at = out.size
            own = own_copy(value, out.depth)  # first, so that what is kept is what is written
            if not put_value(&out, value if own is None else own):
                _encode_or_say_why(value)
                raise WrongUse(f"a value of the type {type(value).__name__} cannot be written")
            if own is None:
                own = read_value(out.data, value_at, out.size)
            put_bytes(&out, END, 1)
            return self._write(key, own, &out, value_at)
        finally:
            close_out(&out)

    def remove(self, key):
        """Remove a key; the time of this change, None when there is no such key, and so no change."""
        cdef Out out
        if key not in self:
            return None
        if type(key) is not str:
            key = PyUnicode_FromObject(key)
        open_out(&out)
        try:
            put_bytes(&out, KEY_NAME, 2)
            put_key(&out, key)
            put_bytes(&out, VALUE_NAME, 2)
            put_bytes(&out, NULL_AND_END, 2)
            return self._write(key, None, &out, 0)
        finally:
            close_out(&out)

    cdef object _write(self, object key, object value, Out *out, Py_ssize_t value_at):
        """Write a change, of which `out` has all but the beginning. A value of None removes the key."""
        cdef Slot slot = Slot.__new__(Slot)
        cdef uint64_t t
        cdef int64_t start, end
        cdef unsigned char *data
        cdef unsigned char time[16]
        cdef int size
        cdef PyObject *found
        cdef object replaced = None  # let go at the end only
        if self.clock is not None:
            return self._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
        slot.value = value
        # Nothing interrupts what follows.
        start = self.position
        if (
            self.attention or self.refusing or self._mapped is None
            or start + MOST_HEAD_BYTES + out.size > min(self.soft_end, self._mapped.size)
        ):
            return self._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
        found = PyDict_GetItemWithError(self.index, key)
        if found == NULL and value is None:  # another thread has removed it
            return None
        data = <unsigned char *>self._mapped.data
        t = <uint64_t>now_ns()
        if t < self.last_timestamp:
            t = self.last_timestamp
        size = put_time(time, t)
        end = start + 3 + size
        # Nothing may be stored behind the position that is not then counted, so this is looked at before.
        if out.size >= SECTOR_BYTES and has_zero_sector(out.data - end, end, end + out.size):
            return self._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
        memcpy(data + start, ENTRY_HEAD, 3)
        memcpy(data + start + 3, time, size)
        slot.value_start = end + value_at
        memcpy(data + end, out.data, out.size)
        end += out.size
        publish64(data + POSITION_AT, <uint64_t>end)
        self.position = end
        self.last_timestamp = t
        slot.t = t
        slot.start = start
        slot.end = end
        slot.value_end = end - 1
        if found != NULL:
            replaced = <object>found
            self.live_bytes -= (<Slot>replaced).end - (<Slot>replaced).start
        if value is None:
            PyDict_DelItem(self.index, key)
        else:
            PyDict_SetItem(self.index, key, slot)
            self.live_bytes += end - start
        if self.always:
            self._commit()
        return t

    def get(self, key, default=None):
        """The value of a key, or the default. It is the store's own: copy it before you change it."""
        cdef PyObject *found
        cdef object value
        if self.index is None:
            self._refuse()
        found = PyDict_GetItemWithError(self.index, key)
        if found == NULL:
            return default
        value = (<Slot>found).value
        if value is not None:
            return value
        return self._read(<object>found)

    def get_with_timestamp(self, key):
        """The value of a key and when it was written; None when there is no such key."""
        cdef PyObject *found
        cdef Slot slot
        if self.index is None:
            self._refuse()
        found = PyDict_GetItemWithError(self.index, key)
        if found == NULL:
            return None
        slot = <Slot>found
        return self._read(slot), slot.t

    def __contains__(self, key):
        if self.index is None:
            self._refuse()
        return PyDict_GetItemWithError(self.index, key) != NULL

    def __len__(self):
        if self.index is None:
            self._refuse()
        return len(self.index)

    cdef object _read(self, object held):
        """The value of a slot, whose place is one in the buffer that is there now."""
        cdef Slot slot = <Slot>held  # counted: the key may be changed while its value is decoded
        cdef View mapped = self._mapped
        cdef object value = slot.value
        if value is not None:
            return value
        if mapped is None:
            self._refuse()
            raise WrongUse("there is no buffer")
        if not 0 <= slot.value_start <= slot.value_end <= mapped.size:
            raise WrongUse("an entry is not within its buffer")
        value = read_value(mapped.data, slot.value_start, slot.value_end)
        if slot.value is None:
            slot.value = value
        return slot.value

    def pairs(self):
        """All keys and values, as they are now. It starts again when the buffer is exchanged meanwhile."""
        cdef Slot slot
        cdef View mapped
        cdef list found
        while True:
            if self.index is None:
                self._refuse()
            mapped = self._mapped
            found = []
            for key, item in PyDict_Items(self.index):
                slot = item
                if slot.value is None and self._mapped is not mapped:
                    break
                found.append((key, self._read(slot)))
            else:
                return iter(found)

    # --- what `_change` uses ------------------------------------------------------------------------------------------

    def now(self):
        """The time for an entry that is written now: that of the last one when the clock has gone back."""
        cdef uint64_t t = <uint64_t>now_ns() if self.clock is None else self.clock()
        return max(t, self.last_timestamp)

    def advance(self, uint64_t timestamp):
        """Let no entry from now on have an earlier time."""
        if timestamp > self.last_timestamp:
            self.last_timestamp = timestamp

    def entry(self, bytes tail):
        """The next entry, which nothing is stored of yet: its time, its bytes, and whether a sector of it is zeros."""
        cdef uint64_t t = self.now()
        cdef unsigned char time[16]
        cdef int size = put_time(time, t)
        cdef bytes entry = PyBytes_FromStringAndSize(NULL, 3 + size + PyBytes_GET_SIZE(tail))
        cdef unsigned char *data = <unsigned char *>PyBytes_AS_STRING(entry)
        cdef int64_t start = self.position
        memcpy(data, ENTRY_HEAD, 3)
        memcpy(data + 3, time, size)
        memcpy(data + 3 + size, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))
        return t, entry, has_zero_sector(data - start, start, start + PyBytes_GET_SIZE(entry))

    def accept(self, key, value, uint64_t t, int64_t end, Py_ssize_t tail_bytes):
        """The entry that was stored counts: the next one comes behind it."""
        cdef int64_t start = self.position
        cdef Slot slot
        cdef object before = self.index.pop(key, None) if value is None else self.index.get(key)
        cdef Out out
        self.position = end
        self.last_timestamp = t
        if before is not None:
            self.live_bytes -= (<Slot>before).end - (<Slot>before).start
        if value is None:
            return
        open_out(&out)
        try:
            put_key(&out, key)
            slot = Slot.__new__(Slot)
            slot.value = value
            slot.t = t
            slot.start = start
            slot.end = end
            slot.value_start = end - tail_bytes + out.size + 4
            slot.value_end = end - 1
        finally:
            close_out(&out)
        self.index[key] = slot
        self.live_bytes += end - start

    # --- the buffer -------------------------------------------------------------------------------------------------

    def attach(self, memory, int64_t position, Moves moves=None):
        """Use another buffer from now on, to which the entries have moved, or that has the same bytes."""
        cdef View mapped = View(memory, True)
        cdef View before = self._mapped  # let go at the end only
        cdef object memory_before = self.memory
        cdef Py_ssize_t number
        cdef int64_t at, distance
        cdef Slot slot
        self._mapped = mapped
        self.memory = memory
        self.position = position
        if moves is None:
            return
        at = moves.start
        for number in range(moves.count):
            slot = <Slot>moves.items[number].slot
            distance = at - slot.start
            at += slot.end - slot.start
            slot.start += distance
            slot.end += distance
            slot.value_start += distance
            slot.value_end += distance

    def detach_memory(self):
        """Give the buffer back. What was not decoded yet cannot be read any more."""
        self._mapped = None
        self.memory = None

    def detach(self):
        """Give the buffer back, and the keys as well: the store is closed."""
        self._mapped = None
        self.memory = None
        self.index = None

    def scan(self, int64_t start, int64_t end, int64_t trusted):
        """Take over the entries from `start` to `end`: where that ended, and how many they were."""
        cdef Source source
        cdef Fields fields
        cdef Text text
        cdef Slot slot
        cdef object key, before
        cdef PyObject *found
        cdef Py_ssize_t count = 0
        cdef View mapped = self._mapped
        cdef const unsigned char *data
        cdef int64_t stop
        cdef bint is_ours
        if mapped is None or self.index is None or start < 0:
            raise WrongUse("there is no buffer, or no such position in it")
        data = mapped.data
        end = min(end, mapped.size)
        open_source(&source)
        while start < end:
            if take_entry(&source, data, start, end, &fields) != WHOLE:
                break
            stop = source.position
            if start >= trusted and has_zero_sector(data, start, stop):
                break
            if take_key(&source, &fields, &text) < 0:
                free(text.gathered)
                raise MemoryError()
            try:
                key = PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)
            finally:
                free(text.gathered)
            if fields.t > self.last_timestamp:
                self.last_timestamp = fields.t
            found = PyDict_GetItemWithError(self.index, key)
            if found != NULL:
                self.live_bytes -= (<Slot>found).end - (<Slot>found).start
            if data[fields.value_start] != NULL_CODE:
                is_ours = found != NULL and Py_REFCNT(found) == 1 and (<Slot>found).value is None
                slot = <Slot>found if is_ours else Slot.__new__(Slot)
                slot.t = fields.t
                slot.start = start
                slot.end = stop
                slot.value_start = fields.value_start
                slot.value_end = fields.value_end
                self.live_bytes += stop - start
                if not is_ours:
                    PyDict_SetItem(self.index, key, slot)
            elif found != NULL:
                PyDict_DelItem(self.index, key)
            start = stop
            count += 1
        return start, count

    def compact(self, int64_t start, put):
        """Put the entries of all keys elsewhere, from a position on, the oldest first; `attach` makes it count."""
        cdef View mapped = self._mapped
        cdef Moves moves = Moves.__new__(Moves)
        cdef list slots = [] if self.index is None else PyDict_Values(self.index)
        cdef Py_ssize_t number
        cdef Py_ssize_t first = 0
        cdef bint in_order = True
        cdef int64_t size = 0
        cdef Slot slot
        moves.slots = slots
        moves.count = len(slots)
        moves.start = moves.end = start
        moves.items = <Live *>malloc(max(1, moves.count) * sizeof(Live))
        if moves.items == NULL:
            raise MemoryError()
        for number in range(moves.count):
            slot = <Slot>slots[number]
            if mapped is None or not 0 <= slot.start <= slot.end <= mapped.size:
                raise WrongUse("an entry is not within its buffer")
            moves.items[number].start = slot.start
            moves.items[number].end = slot.end
            moves.items[number].slot = <PyObject *>slot
            in_order = in_order and (number == 0 or slot.start > moves.items[number - 1].start)
        if not in_order:
            qsort(moves.items, moves.count, sizeof(Live), older)
        for number in range(moves.count):
            size += moves.items[number].end - moves.items[number].start
            if size >= PIECE_BYTES or number == moves.count - 1:
                put(moves.end, gathered(mapped.data, moves.items + first, number + 1 - first, size))
                moves.end += size
                first = number + 1
                size = 0
        return moves


cdef bytes gathered(const unsigned char *data, const Live *items, Py_ssize_t count, int64_t size):
    """The entries of some slots, one behind the other; so many bytes."""
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size)
    cdef char *into = PyBytes_AS_STRING(found)
    cdef Py_ssize_t number
    for number in range(count):
        memcpy(into, data + items[number].start, items[number].end - items[number].start)
        into += items[number].end - items[number].start
    return found
