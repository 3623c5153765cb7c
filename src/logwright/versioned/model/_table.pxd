# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The C types of table.py, and what it does in C: to encode a change, to store it, and to read entries.

No other thread runs between the check for what prevents a change from being stored and its slot: nothing is called
there that could run Python, and all that must be allocated was before. So a change needs no lock. Keys are of the type
str and no subclass of it, so that looking one up in the index runs no Python either.

Decoding a value does: it allocates containers, and so may start the collector, which runs callbacks and finalizers, and
those may change this very table. So the slot and the memory of the buffer are held meanwhile, and a slot is written to
again only by its holders. A slot that has left the index does not move when the buffer is exchanged.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Copy, PyDict_DelItem, PyDict_Next, PyDict_SetItem
from cpython.object cimport PyObject
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
    open_out,
    put_bytes,
    put_key,
    put_value,
    read_document,
    set_range,
)
from ._slot cimport Slot

cdef extern from *:
    """
    #include <stdint.h>
    /* One store that comes after all others: a reader that sees the position sees the entry before it. */
    static inline void publish64(unsigned char *p, uint64_t v) {
        __atomic_store_n((uint64_t *)p, LOGWRIGHT_LITTLE(64, v), __ATOMIC_RELEASE);
    }
    static const unsigned char no_bytes[512];
    """
    void publish64(unsigned char *p, uint64_t v) noexcept nogil
    const unsigned char no_bytes[512]

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    object PyUnicode_FromObject(object text)
    void PyList_SET_ITEM(object values, Py_ssize_t number, PyObject *value)
    Py_ssize_t Py_REFCNT(PyObject *value)

cdef enum:
    C_SECTOR_BYTES = 512
    C_POSITION_AT = 8
    NULL_CODE = 0x6D
    MOST_HEAD_BYTES = 12  # object start, the name `t`, and up to 9 bytes of time

# What table.py imports and this uses.
cdef object WrongUse, check_key, encode_or_say_why


# --- the classes of table.py ------------------------------------------------------------------------------------------


cdef class Moves:
    cdef list slots
    cdef readonly int64_t start
    cdef readonly int64_t end


cdef class Table:
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
    cdef object _reading
    cdef Source _source

    cdef object _read(self, Slot slot)
    @cython.locals(mapped=View, slot=Slot, found=list)
    cpdef pairs(self)
    @cython.locals(start=int64_t, slot=Slot, before=Slot)
    cpdef accept(self, str key, value, uint64_t t, int64_t end, Py_ssize_t tail_bytes)
    @cython.locals(mapped=View, at=int64_t, distance=int64_t, slot=Slot, slots=list)
    cpdef attach(self, memory, int64_t position, Moves moves=*)
    @cython.locals(
        mapped=View, count=Py_ssize_t, begun=uint64_t, last=uint64_t, is_rising=bint, slot=Slot, before=Slot
    )
    cpdef scan(self, int64_t start, int64_t end, int64_t trusted)
    @cython.locals(slots=list)
    cpdef compact(self, int64_t start, put)


# --- reading ----------------------------------------------------------------------------------------------------------


cdef inline View view_of(object memory):
    return View(memory, True)


cdef inline bint has_zeros(const unsigned char *data, int64_t start, int64_t end) noexcept nogil:
    cdef int64_t at = (start + C_SECTOR_BYTES - 1) // C_SECTOR_BYTES * C_SECTOR_BYTES
    while at + C_SECTOR_BYTES <= end:
        if data[at] == 0 and memcmp(data + at, no_bytes, C_SECTOR_BYTES) == 0:
            return True
        at += C_SECTOR_BYTES
    return False


cdef inline bint lacks_sector(View mapped, int64_t start, int64_t end) noexcept:
    return has_zeros(mapped.data, start, end)


cdef inline Slot find_slot(Table table, object key):
    cdef PyObject *found
    if table.index is None:
        table._refuse()
    found = PyDict_GetItemWithError(table.index, key)
    return None if found == NULL else <Slot>found


cdef inline Slot keep_slot(Table table, object key, Slot before, Slot slot):
    if before is not None and Py_REFCNT(<PyObject *>before) == 2 and before.value is None:  # in the index, and here
        before.t = slot.t
        before.start = slot.start
        before.end = slot.end
        before.value_start = slot.value_start
        before.value_end = slot.value_end
        return slot
    PyDict_SetItem(table.index, key, slot)
    return Slot.__new__(Slot)


cdef inline bint is_null(View mapped, Slot slot) noexcept:
    return mapped.data[slot.value_start] == NULL_CODE


cdef inline object read_range(const unsigned char *data, Py_ssize_t start, Py_ssize_t end):
    cdef Source source
    open_source(&source)
    set_range(&source, data, start, end)
    return read_document(&source)


cdef inline object read_value(Table table, Slot slot):
    cdef View mapped = table._mapped  # held: it may be exchanged while the value is decoded
    if mapped is None:
        table._refuse()
        raise WrongUse("there is no buffer")
    if not 0 <= slot.value_start <= slot.value_end <= mapped.size:
        raise WrongUse("an entry is not within its buffer")
    return read_range(mapped.data, slot.value_start, slot.value_end)


cdef inline object read_entry(Table table, View mapped, int64_t start, int64_t end, Slot slot):
    cdef Source *source = &table._source
    cdef Fields fields
    cdef Text text
    if source.depth == 0:
        open_source(source)
    if take_entry(source, mapped.data, start, min(end, mapped.size), &fields) != WHOLE:
        return None
    slot.t = fields.t
    slot.start = start
    slot.end = source.position
    slot.value_start = fields.value_start
    slot.value_end = fields.value_end
    if take_key(source, &fields, &text) < 0:
        free(text.gathered)
        raise MemoryError()
    try:
        return PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)
    finally:
        free(text.gathered)


# --- writing ----------------------------------------------------------------------------------------------------------


@cython.boundscheck(True)
cdef inline object own_copy(object value, int64_t depth):
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


cdef inline object write_change(Table table, object key, object value):
    cdef Out out
    cdef object own = None
    cdef Py_ssize_t value_at
    if type(key) is not str:
        check_key(key)
        key = PyUnicode_FromObject(key)
    open_out(&out)
    try:
        put_bytes(&out, b"\x81k", 2)
        if not put_key(&out, key):
            check_key(key)
        put_bytes(&out, b"\x81o", 2)
        value_at = out.size
        if value is None:
            put_bytes(&out, b"\x6d", 1)
        else:
            own = own_copy(value, out.depth)  # first, so that what is kept is what is written
            if not put_value(&out, value if own is None else own):
                encode_or_say_why(value)
                raise WrongUse(f"a value of the type {type(value).__name__} cannot be written")
            if own is None:
                own = read_range(out.data, value_at, out.size)
        put_bytes(&out, b"\x9b", 1)
        return store_change(table, key, own, &out, value_at)
    finally:
        close_out(&out)


cdef inline object store_change(Table table, object key, object value, Out *out, Py_ssize_t value_at):
    """Store a change, of which `out` has all but the beginning. A value of None removes the key."""
    cdef Slot slot = Slot.__new__(Slot)
    cdef uint64_t t
    cdef int64_t start, end
    cdef unsigned char *data
    cdef unsigned char time[16]
    cdef int size
    cdef PyObject *found
    cdef object replaced = None  # released only at the end
    if table.clock is not None:
        return table._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
    slot.value = value
    # Nothing interrupts what follows.
    start = table.position
    if (
        table.attention or table.refusing or table._mapped is None
        or start + MOST_HEAD_BYTES + out.size > min(table.soft_end, table._mapped.size)
    ):
        return table._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
    found = PyDict_GetItemWithError(table.index, key)
    if found == NULL and value is None:  # another thread has removed it
        return None
    data = <unsigned char *>table._mapped.data
    t = <uint64_t>now_ns()
    if t < table.last_timestamp:
        t = table.last_timestamp
    size = put_time(time, t)
    end = start + 3 + size
    # Nothing may be stored after the position that is not then counted, so this is looked at before.
    if out.size >= C_SECTOR_BYTES and has_zeros(out.data - end, end, end + out.size):
        return table._change(key, PyBytes_FromStringAndSize(<const char *>out.data, out.size), value)
    memcpy(data + start, b"\x9a\x81t", 3)
    memcpy(data + start + 3, time, size)
    slot.value_start = end + value_at
    memcpy(data + end, out.data, out.size)
    end += out.size
    publish64(data + C_POSITION_AT, <uint64_t>end)
    table.position = end
    table.last_timestamp = t
    slot.t = t
    slot.start = start
    slot.end = end
    slot.value_end = end - 1
    if found != NULL:
        replaced = <object>found
        table.live_bytes -= (<Slot>replaced).end - (<Slot>replaced).start
    if value is None:
        PyDict_DelItem(table.index, key)
    else:
        PyDict_SetItem(table.index, key, slot)
        table.live_bytes += end - start
    if table.always:
        table._commit()
    return t


# --- compaction -------------------------------------------------------------------------------------------------------


cdef struct Live:
    int64_t start
    int64_t end
    PyObject *slot


cdef inline int older(const void *first, const void *second) noexcept nogil:
    cdef int64_t one = (<Live *>first).start
    cdef int64_t other = (<Live *>second).start
    return (one > other) - (one < other)


cdef inline bytes gathered(const unsigned char *data, const Live *items, Py_ssize_t count, int64_t size):
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size)
    cdef char *into = PyBytes_AS_STRING(found)
    cdef Py_ssize_t number
    for number in range(count):
        memcpy(into, data + items[number].start, items[number].end - items[number].start)
        into += items[number].end - items[number].start
    return found


cdef inline int64_t copy_entries(View mapped, list slots, int64_t at, int64_t piece_bytes, object put) except -1:
    cdef Py_ssize_t count = len(slots)
    cdef Py_ssize_t number
    cdef Py_ssize_t first = 0
    cdef bint in_order = True
    cdef int64_t size = 0
    cdef Slot slot
    cdef Live *items = <Live *>malloc(max(1, count) * sizeof(Live))
    if items == NULL:
        raise MemoryError()
    try:
        for number in range(count):
            slot = <Slot>slots[number]
            if mapped is None or not 0 <= slot.start <= slot.end <= mapped.size:
                raise WrongUse("an entry is not within its buffer")
            items[number] = Live(slot.start, slot.end, <PyObject *>slot)
            in_order = in_order and (number == 0 or slot.start > items[number - 1].start)
        if not in_order:
            qsort(items, count, sizeof(Live), older)
            for number in range(count):
                PyList_SET_ITEM(slots, number, items[number].slot)  # the same ones, in another order
        for number in range(count):
            size += items[number].end - items[number].start
            if size >= piece_bytes or number == count - 1:
                put(at, gathered(mapped.data, items + first, number + 1 - first, size))
                at += size
                first = number + 1
                size = 0
    finally:
        free(items)
    return at
