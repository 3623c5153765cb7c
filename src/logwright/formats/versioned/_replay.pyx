# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Latest: the last entry of each key among millions of them, compiled; the same class as in codec.py. No I/O.

A table of slots, found by the hash of the key and by probing from there; each has its own copy of key and value, one
behind the other, for the bytes of entries are gone when the next ones come. A value is written over the one before it
where it fits, and a key that is removed gives back all that it had: memory goes with the state, not with its history.

Entries are taken a few at a time. What one of them needs is spread over memory, and is fetched from there while others
are looked at: the place in the table first, then the slot, then key and value.
"""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from ...core._bytes cimport copy_bytes
from ...core._buffers cimport View, check_count, check_range, not_walked
from ._entries cimport Fields
from ._growing cimport Growing, make_room
from ._json cimport append_json
from ._kernel cimport NO_MEMORY, WHOLE, open_source, take_entry, take_key, walk_ending
from .bonjson._kernel cimport Source, Text, read_document, set_range

from ...core.errors import TooLarge, WrongUse
from . import codec as _codec
from .bonjson.layout import NULL_CODE as _NULL_CODE
from .codec import Columns
from .layout import LEAST_ENTRY_BYTES as _LEAST_ENTRY_BYTES

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
    /* Whether bytes are the same: words, the last two of which may overlap, instead of a call. */
    static inline int are_same(const unsigned char *p, const unsigned char *q, Py_ssize_t size) {
        uint64_t one, other;
        Py_ssize_t at;
        if (size < 8) {
            for (at = 0; at < size; at++) if (p[at] != q[at]) return 0;
            return 1;
        }
        for (at = 0; at < size - 8; at += 8) {
            memcpy(&one, p + at, 8);
            memcpy(&other, q + at, 8);
            if (one != other) return 0;
        }
        memcpy(&one, p + size - 8, 8);
        memcpy(&other, q + size - 8, 8);
        return one == other;
    }
    static inline void fetch(const void *place) { __builtin_prefetch(place); }
    """
    uint64_t hash_of(const unsigned char *p, Py_ssize_t size) noexcept nogil
    bint are_same(const unsigned char *p, const unsigned char *q, Py_ssize_t size) noexcept nogil
    void fetch(const void *place) noexcept nogil

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    int PyGC_Disable()
    int PyGC_Enable()

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void **place, size_t alignment, size_t size)

cdef int TIMESTAMPS = _codec.TIMESTAMPS
cdef int KEYS = _codec.KEYS
cdef int VALUES = _codec.VALUES
cdef int DELETED = _codec.DELETED
cdef int RAW_VALUES = _codec.RAW_VALUES
cdef Py_ssize_t MAX_COLUMN_BYTES = _codec.MAX_COLUMN_BYTES
cdef Py_ssize_t LEAST_ENTRY_BYTES = _LEAST_ENTRY_BYTES
cdef unsigned char NULL_CODE = _NULL_CODE

cdef enum:
    AT_ONCE = 32  # so many entries are taken before the first of them is applied
    LINE_BYTES = 64  # what a processor fetches
    SPARE_BYTES = 32  # behind a value: a copy of it may write so many bytes more

cdef uint64_t NUMBER_BITS = 0xFFFFFFFFULL


cdef struct Slot:
    # A key and its value; they lie in `block`, one behind the other. A slot without a block is free, and `turn` the
    # number of the next one that is, plus 1. It fills what a processor fetches at once.
    uint64_t hash
    uint64_t t
    uint64_t turn  # when the key came, among all keys that came
    unsigned char *block
    Py_ssize_t key_size
    Py_ssize_t value_size
    Py_ssize_t value_room
    uint64_t unused


cdef struct Pending:
    # An entry that was taken, and waits to be applied.
    uint64_t hash
    uint64_t t
    const unsigned char *key
    Py_ssize_t key_size
    const unsigned char *value
    Py_ssize_t value_size
    Py_ssize_t readable  # so many bytes from the value on


cdef struct Turn:
    uint64_t turn
    Py_ssize_t number


cdef int earlier(const void *first, const void *second) noexcept nogil:
    cdef uint64_t one = (<Turn *>first).turn
    cdef uint64_t other = (<Turn *>second).turn
    return (one > other) - (one < other)


cdef class Latest:
    """The last entry of each key; see codec.Latest."""

    cdef Slot *slots
    cdef Py_ssize_t used  # slots that are in use, or were
    cdef Py_ssize_t room
    cdef uint64_t free_slot  # the number of one that was given back, plus 1
    cdef uint64_t *table  # the upper half of a hash, and the number of its slot plus 1; 0 where there is none
    cdef uint64_t mask
    cdef uint64_t turn
    cdef Py_ssize_t there
    cdef uint64_t at
    cdef bint in_turn  # slots come in the order of their turns

    def __cinit__(self, at=None):
        if at is not None and at < 0:
            raise WrongUse(f"no entry has a time before {at}")
        self.at = 0xFFFFFFFFFFFFFFFFULL if at is None else min(at, 0xFFFFFFFFFFFFFFFF)
        self.in_turn = True
        self.mask = 1023
        self.table = <uint64_t *>calloc(self.mask + 1, sizeof(uint64_t))
        if self.table == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self.used):
            free(self.slots[number].block)
        free(self.slots)
        free(self.table)

    def __len__(self):
        return self.there

    # --- entries ------------------------------------------------------------------------------------------------------

    def walk(self, buffer, Py_ssize_t start, Py_ssize_t end):
        """Go from entry to entry as `walk` does, and apply those that are not later than asked for."""
        cdef View view = View(buffer)
        check_range(view, start, end)
        return self.take(view.data, start, end, -1)

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
        """Apply the `count` entries of a walked range that are not later than asked for."""
        cdef View view = View(buffer)
        check_range(view, start, stop)
        check_count(start, stop, count, LEAST_ENTRY_BYTES)
        found = self.take(view.data, start, stop, count)
        if found[1] != count:
            raise not_walked(found[0])

    cdef tuple take(self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t most):
        """Take at most so many entries (-1: any number); what `walk` says of them."""
        cdef Source source
        cdef Fields fields
        cdef Text key
        cdef Pending pending[AT_ONCE]
        cdef Pending *item
        cdef Py_ssize_t waiting = 0
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t next_position
        cdef uint64_t smallest = 0xFFFFFFFFFFFFFFFFULL
        cdef uint64_t largest = 0
        cdef int answer = WHOLE
        open_source(&source)
        with nogil:
            while position < end and count != most:
                answer = take_entry(&source, data, position, end, &fields)
                if answer != WHOLE:
                    break
                next_position = source.position
                smallest = min(smallest, fields.t)
                largest = max(largest, fields.t)
                if fields.t <= self.at:
                    if take_key(&source, &fields, &key) < 0:
                        free(key.gathered)
                        answer = NO_MEMORY
                        break
                    item = &pending[waiting]
                    item.hash = hash_of(key.data, key.size)
                    fetch(&self.table[item.hash & self.mask])
                    item.t = fields.t
                    item.key = key.data
                    item.key_size = key.size
                    item.value = data + fields.value_start
                    item.value_size = fields.value_end - fields.value_start
                    item.readable = end - fields.value_start
                    waiting += 1
                    if waiting == AT_ONCE or key.gathered != NULL:
                        if self.apply_all(pending, waiting) < 0:
                            answer = NO_MEMORY
                        waiting = 0
                        free(key.gathered)
                        if answer == NO_MEMORY:
                            break
                position = next_position
                count += 1
            if answer != NO_MEMORY and self.apply_all(pending, waiting) < 0:
                answer = NO_MEMORY
        if answer == NO_MEMORY:
            raise MemoryError()
        return position, count, walk_ending(answer), smallest if count else 0, largest

    cdef int apply_all(self, Pending *pending, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t row
        cdef uint64_t found
        cdef unsigned char *block
        for row in range(count):
            found = self.table[pending[row].hash & self.mask]
            if found:
                fetch(&self.slots[(found & NUMBER_BITS) - 1])
        for row in range(count):
            found = self.table[pending[row].hash & self.mask]
            if found:
                block = self.slots[(found & NUMBER_BITS) - 1].block
                fetch(block)
                fetch(block + LINE_BYTES)
        for row in range(count):
            if self.apply(&pending[row]) < 0:
                return -1
        return 0

    cdef int apply(self, Pending *item) noexcept nogil:
        cdef uint64_t place = self.find(item)
        cdef uint64_t found = self.table[place]
        cdef Slot *slot
        cdef unsigned char *block
        if item.value[0] == NULL_CODE:
            if found:
                self.remove(place)
            return 0
        slot = &self.slots[(found & NUMBER_BITS) - 1] if found else self.make(item, place)
        if slot == NULL:
            return -1
        if slot.value_room < item.value_size:
            block = <unsigned char *>realloc(slot.block, slot.key_size + item.value_size + SPARE_BYTES)
            if block == NULL:
                return -1
            slot.block = block
            slot.value_room = item.value_size + SPARE_BYTES
        copy_bytes(slot.block + slot.key_size, item.value, item.value_size, slot.value_room, item.readable)
        slot.value_size = item.value_size
        slot.t = item.t
        return 0

    # --- the table ------------------------------------------------------------------------------------------------------

    cdef uint64_t find(self, Pending *item) noexcept nogil:
        """Where in the table a key is, or would be."""
        cdef uint64_t place = item.hash & self.mask
        cdef uint64_t found
        cdef Slot *slot
        while True:
            found = self.table[place]
            if found == 0:
                return place
            if (found ^ item.hash) >> 32 == 0:
                slot = &self.slots[(found & NUMBER_BITS) - 1]
                if slot.key_size == item.key_size and are_same(slot.block, item.key, item.key_size):
                    return place
            place = (place + 1) & self.mask

    cdef Slot *make(self, Pending *item, uint64_t place) noexcept nogil:
        """A slot for a key that has none yet, and room for its value; NULL when there is no memory."""
        cdef uint64_t number
        cdef Slot *slot
        cdef unsigned char *block = <unsigned char *>malloc(item.key_size + item.value_size + SPARE_BYTES)
        if block == NULL:
            return NULL
        if <uint64_t>(2 * self.there) > self.mask:
            if self.spread() < 0:
                free(block)
                return NULL
            place = self.find(item)
        if self.free_slot:
            number = self.free_slot - 1
            self.free_slot = self.slots[number].turn
            self.in_turn = False
        else:
            if self.used == self.room and self.grow() < 0:
                free(block)
                return NULL
            number = <uint64_t>self.used
            self.used += 1
        slot = &self.slots[number]
        memcpy(block, item.key, item.key_size)
        slot.block = block
        slot.hash = item.hash
        slot.key_size = item.key_size
        slot.value_size = 0
        slot.value_room = item.value_size + SPARE_BYTES
        self.turn += 1
        slot.turn = self.turn
        self.there += 1
        self.table[place] = item.hash & ~NUMBER_BITS | (number + 1)
        return slot

    cdef void remove(self, uint64_t place) noexcept nogil:
        """Give a slot back, and close the gap in the table: those behind it move up, if they may."""
        cdef uint64_t number = (self.table[place] & NUMBER_BITS) - 1
        cdef uint64_t other = place
        cdef uint64_t home
        cdef Slot *slot = &self.slots[number]
        free(slot.block)
        slot.block = NULL
        slot.turn = self.free_slot
        self.free_slot = number + 1
        self.there -= 1
        while True:
            other = (other + 1) & self.mask
            if self.table[other] == 0:
                break
            home = self.slots[(self.table[other] & NUMBER_BITS) - 1].hash
            if (other - home) & self.mask >= (other - place) & self.mask:
                self.table[place] = self.table[other]
                place = other
        self.table[place] = 0

    cdef int grow(self) noexcept nogil:
        cdef Py_ssize_t room = 2 * self.room + 512
        cdef void *slots = NULL
        if room > 0x7FFFFFFF or posix_memalign(&slots, LINE_BYTES, room * sizeof(Slot)) != 0:
            return -1
        if self.used:
            memcpy(slots, self.slots, self.used * sizeof(Slot))
        free(self.slots)
        self.slots = <Slot *>slots
        self.room = room
        return 0

    cdef int spread(self) noexcept nogil:
        """A table of twice the size."""
        cdef uint64_t mask = 2 * self.mask + 1
        cdef uint64_t *table = <uint64_t *>calloc(mask + 1, sizeof(uint64_t))
        cdef uint64_t hash, place
        cdef Py_ssize_t number
        if table == NULL:
            return -1
        for number in range(self.used):
            if self.slots[number].block == NULL:
                continue
            hash = self.slots[number].hash
            place = hash & mask
            while table[place]:
                place = (place + 1) & mask
            table[place] = hash & ~NUMBER_BITS | <uint64_t>(number + 1)
        free(self.table)
        self.table = table
        self.mask = mask
        return 0

    # --- what came of it --------------------------------------------------------------------------------------------

    cdef Turn *order(self) except NULL:
        """The slots of the keys that are there, in the order in which they came; to be freed."""
        cdef Turn *found = <Turn *>malloc(max(1, self.there) * sizeof(Turn))
        cdef Py_ssize_t number
        cdef Py_ssize_t row = 0
        if found == NULL:
            raise MemoryError()
        for number in range(self.used):
            if self.slots[number].block != NULL:
                found[row].turn = self.slots[number].turn
                found[row].number = number
                row += 1
        if not self.in_turn:
            qsort(found, self.there, sizeof(Turn), earlier)
        return found

    def state(self):
        """The keys that are there, each with its value and its time."""
        found = {}
        self.fill(found, None)
        return found

    def fill(self, values, times):
        """Put values into one dictionary and times into another; without that one, both as pairs into the first."""
        cdef Turn *order = self.order()
        # Nothing of what is made here can be garbage yet, and looking for it again and again takes as long as the rest
        # of it. No other thread runs meanwhile, so nobody else finds the collector switched off.
        cdef bint collecting = PyGC_Disable()
        try:
            self.fill_in_order(order, values, times)
        finally:
            if collecting:
                PyGC_Enable()
            free(order)

    cdef int fill_in_order(self, Turn *order, object values, object times) except -1:
        cdef Source source
        cdef Slot *slot
        cdef Py_ssize_t row
        open_source(&source)
        for row in range(self.there):
            slot = &self.slots[order[row].number]
            key = PyUnicode_DecodeUTF8(<const char *>slot.block, slot.key_size, NULL)
            set_range(&source, slot.block + slot.key_size, 0, slot.value_size)
            value = read_document(&source)
            if times is None:
                PyDict_SetItem(values, key, (value, slot.t))
            else:
                PyDict_SetItem(values, key, value)
                PyDict_SetItem(times, key, slot.t)
        return 0

    def columns(self, int want):
        """The keys that are there as columns."""
        cdef Turn *order = self.order()
        cdef array timestamps = clone(array("Q"), self.there, False)
        cdef Py_ssize_t row
        found = Columns(self.there)
        try:
            if want & TIMESTAMPS:
                for row in range(self.there):
                    timestamps.data.as_ulonglongs[row] = self.slots[order[row].number].t
                found.timestamps = timestamps.tobytes()
            if want & KEYS:
                found.key_ends, found.keys = self.gather(order, True)
            if want & VALUES:
                found.value_ends, found.values = self.gather_json(order)
            if want & RAW_VALUES:
                found.raw_value_ends, found.raw_values = self.gather(order, False)
            if want & DELETED:
                found.deleted = bytes(self.there)
            return found
        finally:
            free(order)

    cdef tuple gather(self, Turn *order, bint keys):
        """All keys, or all values as they are."""
        cdef array ends = clone(array("i"), self.there + 1, False)
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size, row
        cdef Slot *slot
        cdef bytes gathered
        cdef char *into
        ends.data.as_ints[0] = 0
        for row in range(self.there):
            slot = &self.slots[order[row].number]
            total += slot.key_size if keys else slot.value_size
            if total > MAX_COLUMN_BYTES:
                raise too_large(total)
            ends.data.as_ints[row + 1] = <int32_t>total
        gathered = PyBytes_FromStringAndSize(NULL, total)
        into = PyBytes_AS_STRING(gathered)
        for row in range(self.there):
            slot = &self.slots[order[row].number]
            size = slot.key_size if keys else slot.value_size
            memcpy(into, slot.block if keys else slot.block + slot.key_size, size)
            into += size
        return ends.tobytes(), gathered

    cdef tuple gather_json(self, Turn *order):
        cdef Growing text
        cdef Source source
        cdef array ends = clone(array("i"), self.there + 1, False)
        cdef Py_ssize_t row
        cdef Slot *slot
        memset(&text, 0, sizeof(Growing))
        open_source(&source)
        ends.data.as_ints[0] = 0
        try:
            make_room(&text, 128 * self.there)
            for row in range(self.there):
                slot = &self.slots[order[row].number]
                append_json(&text, &source, slot.block + slot.key_size, 0, slot.value_size)
                if text.size > MAX_COLUMN_BYTES:
                    raise too_large(text.size)
                ends.data.as_ints[row + 1] = <int32_t>text.size
            return ends.tobytes(), PyBytes_FromStringAndSize(<const char *>text.data, text.size)
        finally:
            free(text.data)


cdef object too_large(Py_ssize_t size):
    return TooLarge(f"a column of {size} bytes does not fit 2^31 - 1")
