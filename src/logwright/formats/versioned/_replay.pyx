# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Latest: the last entry of each key among millions of them, compiled; the same class as in codec.py. No I/O.

A table of slots, found by the hash of the key and by probing from there; each has its own copies of key and value, for
the bytes of entries are gone when the next ones come. A value is written over the one before it where it fits.
"""

from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from ._kernel cimport NO_MEMORY, WHOLE, Fields, Growing, append, append_json, open_source, take_entry, take_key
from .bonjson._kernel cimport Source, Text, read_document, set_range

from ...core.errors import TooLarge, WrongUse
from ...core.outcome import Malformed
from . import codec as _codec
from .bonjson.layout import NULL_CODE as _NULL_CODE
from .codec import Columns

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* A hash of bytes that takes eight at a time: it need not be the same on all machines. */
    static inline uint64_t hash_of(const unsigned char *p, Py_ssize_t size) {
        uint64_t hash = 0x9E3779B97F4A7C15ULL ^ (uint64_t)size, word;
        while (size >= 8) {
            memcpy(&word, p, 8);
            hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
            hash ^= hash >> 32;
            p += 8;
            size -= 8;
        }
        word = 0;
        while (size-- > 0) word = word << 8 | p[size];
        hash = (hash ^ word) * 0xC4CEB9FE1A85EC53ULL;
        return hash ^ hash >> 29;
    }
    """
    uint64_t hash_of(const unsigned char *p, Py_ssize_t size) noexcept nogil

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef int TIMESTAMPS = _codec.TIMESTAMPS
cdef int KEYS = _codec.KEYS
cdef int VALUES = _codec.VALUES
cdef int DELETED = _codec.DELETED
cdef int RAW_VALUES = _codec.RAW_VALUES
cdef Py_ssize_t MAX_COLUMN_BYTES = _codec.MAX_COLUMN_BYTES
cdef unsigned char NULL_CODE = _NULL_CODE


cdef struct Slot:
    uint64_t hash
    uint64_t t
    uint64_t turn  # when the key came, among all keys that came
    unsigned char *key
    Py_ssize_t key_size
    unsigned char *value
    Py_ssize_t value_size
    Py_ssize_t value_room
    bint there


cdef class Latest:
    """The last entry of each key; see codec.Latest."""

    cdef Slot *slots
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef int32_t *table  # the number of a slot, plus 1; 0 where there is none
    cdef uint64_t mask
    cdef uint64_t turn
    cdef Py_ssize_t there
    cdef uint64_t at
    cdef bint in_turn

    def __cinit__(self, at=None):
        if at is not None and at < 0:
            raise WrongUse(f"no entry has a time before {at}")
        self.at = 0xFFFFFFFFFFFFFFFFULL if at is None else min(at, 0xFFFFFFFFFFFFFFFF)
        self.in_turn = True
        self.mask = 1023
        self.table = <int32_t *>calloc(self.mask + 1, sizeof(int32_t))
        if self.table == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self.used):
            free(self.slots[number].key)
            free(self.slots[number].value)
        free(self.slots)
        free(self.table)

    def __len__(self):
        return self.there

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
        """Apply the `count` entries of a walked range that are not later than asked for."""
        cdef Py_buffer view
        cdef Source source
        cdef Fields fields
        cdef Py_ssize_t position = start
        cdef Py_ssize_t row = 0
        cdef int answer = WHOLE
        open_source(&source)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= stop <= view.len:
                raise WrongUse(f"the range {start}..{stop} is not within a buffer of {view.len} bytes")
            if not 0 <= count <= stop - start:
                raise Malformed(start, "the range was not walked")
            with nogil:
                while row < count:
                    answer = take_entry(&source, <const unsigned char *>view.buf, position, stop, &fields)
                    if answer != WHOLE:
                        break
                    position = source.position
                    if fields.t <= self.at and self.apply(&source, &fields) < 0:
                        answer = NO_MEMORY
                        break
                    row += 1
        finally:
            PyBuffer_Release(&view)
        if answer == NO_MEMORY:
            raise MemoryError()
        if answer != WHOLE:
            raise Malformed(position, "the range was not walked")

    cdef int apply(self, Source *source, Fields *fields) noexcept nogil:
        cdef Text key
        cdef Slot *slot
        cdef const unsigned char *data = source.data
        cdef Py_ssize_t size = fields.value_end - fields.value_start
        cdef bint deleted = data[fields.value_start] == NULL_CODE
        cdef int answer = 0
        if take_key(source, fields, &key) < 0:
            free(key.gathered)
            return -1
        slot = self.find(key.data, key.size, not deleted)
        free(key.gathered)
        if slot == NULL:
            return 0 if deleted else -1
        if deleted:
            self.there -= slot.there
            slot.there = False
            return 0
        if slot.value_room < size:
            free(slot.value)
            slot.value_room = 0
            slot.value = <unsigned char *>malloc(size)
            if slot.value == NULL:
                return -1
            slot.value_room = size
        memcpy(slot.value, data + fields.value_start, size)
        slot.value_size = size
        slot.t = fields.t
        if not slot.there:
            slot.there = True
            self.there += 1
            if slot.turn:
                self.in_turn = False  # it came after others that have later slots
            self.turn += 1
            slot.turn = self.turn
        return 0

    cdef Slot *find(self, const unsigned char *key, Py_ssize_t size, bint make) noexcept nogil:
        """The slot of a key; NULL where there is none and none is to be made, or no memory for it."""
        cdef uint64_t hash = hash_of(key, size)
        cdef uint64_t place = hash & self.mask
        cdef Slot *slot
        while self.table[place]:
            slot = &self.slots[self.table[place] - 1]
            if slot.hash == hash and slot.key_size == size and memcmp(slot.key, key, size) == 0:
                return slot
            place = (place + 1) & self.mask
        if not make:
            return NULL
        if self.used == self.room and self.grow() < 0:
            return NULL
        if <uint64_t>(2 * self.used) > self.mask:
            if self.spread() < 0:
                return NULL
            place = hash & self.mask
            while self.table[place]:
                place = (place + 1) & self.mask
        slot = &self.slots[self.used]
        memset(slot, 0, sizeof(Slot))
        slot.key = <unsigned char *>malloc(size + 1)
        if slot.key == NULL:
            return NULL
        memcpy(slot.key, key, size)
        slot.key_size = size
        slot.hash = hash
        self.used += 1
        self.table[place] = <int32_t>self.used
        return slot

    cdef int grow(self) noexcept nogil:
        cdef Py_ssize_t room = 2 * self.room + 512
        cdef Slot *slots
        if room > 0x7FFFFFFF:
            return -1
        slots = <Slot *>realloc(self.slots, room * sizeof(Slot))
        if slots == NULL:
            return -1
        self.slots = slots
        self.room = room
        return 0

    cdef int spread(self) noexcept nogil:
        """A table of twice the size."""
        cdef uint64_t mask = 2 * self.mask + 1
        cdef int32_t *table = <int32_t *>calloc(mask + 1, sizeof(int32_t))
        cdef uint64_t place
        cdef Py_ssize_t number
        if table == NULL:
            return -1
        for number in range(self.used):
            place = self.slots[number].hash & mask
            while table[place]:
                place = (place + 1) & mask
            table[place] = <int32_t>(number + 1)
        free(self.table)
        self.table = table
        self.mask = mask
        return 0

    # --- what came of it --------------------------------------------------------------------------------------------

    cdef list order(self):
        """The slots of the keys that are there, in the order in which they came."""
        cdef Py_ssize_t number
        cdef list found = [number for number in range(self.used) if self.slots[number].there]
        if not self.in_turn:
            found.sort(key=self._turn_of)
        return found

    def _turn_of(self, Py_ssize_t number):
        return self.slots[number].turn

    def state(self):
        """The keys that are there, each with its value and its time."""
        cdef Source source
        cdef Slot *slot
        cdef Py_ssize_t number
        cdef dict found = {}
        open_source(&source)
        for number in self.order():
            slot = &self.slots[number]
            key = PyUnicode_DecodeUTF8(<const char *>slot.key, slot.key_size, NULL)
            set_range(&source, slot.value, 0, slot.value_size)
            found[key] = (read_document(&source), slot.t)
        return found

    def columns(self, int want):
        """The keys that are there as columns."""
        cdef list order = self.order()
        cdef Py_ssize_t count = len(order)
        cdef Py_ssize_t number
        cdef Py_ssize_t row
        cdef array timestamps = clone(array("Q"), count, False)
        cdef Slot *slot
        found = Columns(count)
        if want & TIMESTAMPS:
            row = 0
            for number in order:
                timestamps.data.as_ulonglongs[row] = self.slots[number].t
                row += 1
            found.timestamps = timestamps.tobytes()
        if want & KEYS:
            found.key_ends, found.keys = self.gather(order, KEYS)
        if want & VALUES:
            found.value_ends, found.values = self.gather(order, VALUES)
        if want & RAW_VALUES:
            found.raw_value_ends, found.raw_values = self.gather(order, RAW_VALUES)
        if want & DELETED:
            found.deleted = bytes(count)
        return found

    cdef tuple gather(self, list order, int what):
        cdef Growing bytes_
        cdef Source source
        cdef array ends = clone(array("i"), len(order) + 1, False)
        cdef Py_ssize_t number
        cdef Py_ssize_t row = 0
        cdef Slot *slot
        memset(&bytes_, 0, sizeof(Growing))
        open_source(&source)
        ends.data.as_ints[0] = 0
        try:
            for number in order:
                slot = &self.slots[number]
                if what == KEYS:
                    append(&bytes_, slot.key, slot.key_size)
                elif what == RAW_VALUES:
                    append(&bytes_, slot.value, slot.value_size)
                else:
                    append_json(&bytes_, &source, slot.value, 0, slot.value_size)
                if bytes_.size > MAX_COLUMN_BYTES:
                    raise TooLarge(f"a column of {bytes_.size} bytes does not fit 2^31 - 1")
                row += 1
                ends.data.as_ints[row] = <int32_t>bytes_.size
            return ends.tobytes(), PyBytes_FromStringAndSize(<const char *>bytes_.data, bytes_.size)
        finally:
            free(bytes_.data)
