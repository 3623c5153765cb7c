# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Latest: the last entry of each key among millions of them, compiled; the same class as in codec.py. No I/O.

Keys and values are copied into blocks (`_blocks.pxd`), because the next read overwrites the bytes of entries.

Entries are taken without the GIL: no other thread may do anything with them meanwhile, and none may be taken while
objects are made of what is there, which runs Python.

The memory that an entry needs is rarely in the cache. So entries wait while later ones are taken: when an entry begins
to wait, its place in the table is prefetched, halfway through the wait its block; at the end, both are in the cache.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from ...core.bytes._buffers cimport View, check_count, check_range, not_walked
from ._blocks cimport (
    Block,
    Blocks,
    Key,
    Place,
    close_blocks,
    find_place,
    key_of,
    open_blocks,
    put_value,
    remove_block,
    value_of,
)
from ._entries cimport Fields
from ._growing cimport Growing, drop, make_room, take_bytes
from ._hashing cimport HASH_SECRETS, copy_few, fetch, hash_of
from ._json cimport append_json
from ._kernel cimport NO_MEMORY, WHOLE, open_source, take_key, take_next, walk_ending
from ._segments cimport SPARE_BYTES
from ._shapes cimport Shape, open_shape
from .bonjson._kernel cimport Source, Text, read_document, set_range

import os

from ...errors import TooLarge, WrongUse
from . import codec as _codec
from .bonjson.layout import NULL_CODE as _NULL_CODE
from .bonjson.layout import SHORT_STRING_CODE as _SHORT_STRING_CODE
from .codec import Columns
from .layout import LEAST_ENTRY_BYTES as _LEAST_ENTRY_BYTES

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    int PyGC_Disable()
    int PyGC_Enable()

cdef int TIMESTAMPS = _codec.TIMESTAMPS
cdef int KEYS = _codec.KEYS
cdef int VALUES = _codec.VALUES
cdef int DELETED = _codec.DELETED
cdef int RAW_VALUES = _codec.RAW_VALUES
cdef Py_ssize_t MAX_COLUMN_BYTES = _codec.MAX_COLUMN_BYTES
cdef Py_ssize_t LEAST_ENTRY_BYTES = _LEAST_ENTRY_BYTES
cdef unsigned char NULL_CODE = _NULL_CODE
cdef unsigned char SHORT_STRING_CODE = _SHORT_STRING_CODE

cdef enum:
    RING = 32  # the number of entries that are taken before the first of them is applied
    HALFWAY = 16
    LINE_BYTES = 64  # what a processor fetches

cdef uint64_t secrets[HASH_SECRETS]

for _number in range(HASH_SECRETS):
    secrets[_number] = int.from_bytes(os.urandom(8), "little")


cdef struct Pending:
    # An entry that was taken, and waits to be applied.
    Key key
    uint64_t t
    const unsigned char *value
    Py_ssize_t value_size


cdef struct Waiting:
    # The entries from number `first` to before number `behind`.
    Pending items[RING]
    size_t first
    size_t behind


cdef class Latest:
    """The last entry of each key; see codec.Latest."""

    cdef Blocks blocks
    cdef uint64_t at
    cdef bint taking
    cdef int readers

    def __cinit__(self, at=None):
        if at is not None and at < 0:
            raise WrongUse(f"no entry has a time before {at}")
        self.at = 0xFFFFFFFFFFFFFFFFULL if at is None else min(at, 0xFFFFFFFFFFFFFFFF)
        if open_blocks(&self.blocks) < 0:
            raise MemoryError()

    def __dealloc__(self):
        close_blocks(&self.blocks)

    def __len__(self):
        return self.blocks.there

    # --- entries ------------------------------------------------------------------------------------------------------

    def walk(
        self,
        buffer,
        Py_ssize_t start,
        Py_ssize_t end,
        uint64_t last=0,
        uint64_t begun=0xFFFFFFFFFFFFFFFFULL,
    ):
        """Go from entry to entry as `walk` does, and apply those that are not later than asked for."""
        cdef View view = View(buffer)
        check_range(view, start, end)
        return self.take(view.data, start, end, -1, last, begun)

    def add(self, buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
        """Apply the `count` entries of a walked range that are not later than asked for."""
        cdef View view = View(buffer)
        check_range(view, start, stop)
        check_count(start, stop, count, LEAST_ENTRY_BYTES)
        found = self.take(view.data, start, stop, count, 0, 0xFFFFFFFFFFFFFFFFULL)
        if found[1] != count:
            raise not_walked(found[0])

    cdef tuple take(
        self,
        const unsigned char *data,
        Py_ssize_t position,
        Py_ssize_t end,
        Py_ssize_t most,
        uint64_t last,
        uint64_t begun,
    ):
        """Take at most `most` entries (-1: any number), as `walk` goes through them; returns what it returns."""
        cdef Source source
        cdef Shape shape
        cdef Fields fields
        cdef Text key
        cdef Waiting waiting
        cdef Pending *item
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t next_position
        cdef uint64_t smallest = 0xFFFFFFFFFFFFFFFFULL
        cdef uint64_t largest = 0
        cdef bint is_early = False
        cdef int answer = WHOLE
        if self.taking or self.readers:
            raise WrongUse("the entries are in use: no others can be taken meanwhile")
        waiting.first = waiting.behind = 0
        open_source(&source)
        open_shape(&shape)
        self.taking = True
        with nogil:
            while position < end and count != most:
                answer = take_next(&source, &shape, data, position, end, &fields)
                if answer != WHOLE:
                    break
                if fields.t < last and last > begun:
                    is_early = True
                    break
                last = fields.t
                next_position = source.position
                smallest = min(smallest, fields.t)
                largest = max(largest, fields.t)
                if fields.t <= self.at:
                    key.gathered = NULL
                    if data[fields.key_at] & 0xF0 == SHORT_STRING_CODE:
                        key.data = data + fields.key_at + 1
                        key.size = min(data[fields.key_at] & 15, end - fields.key_at - 1)
                    elif take_key(&source, &fields, &key) < 0:
                        free(key.gathered)
                        answer = NO_MEMORY
                        break
                    item = &waiting.items[waiting.behind % RING]
                    item.key.hash = hash_of(secrets, key.data, key.size)
                    item.key.data = key.data
                    item.key.size = key.size
                    item.t = fields.t
                    item.value = data + fields.value_start
                    item.value_size = fields.value_end - fields.value_start
                    if self.follow(&waiting, key.gathered != NULL) < 0:
                        answer = NO_MEMORY
                    free(key.gathered)
                    if answer == NO_MEMORY:
                        break
                position = next_position
                count += 1
            if answer != NO_MEMORY and self.apply_all(&waiting) < 0:
                answer = NO_MEMORY
        self.taking = False
        if answer == NO_MEMORY:
            raise MemoryError()
        return position, count, walk_ending(answer, is_early), smallest if count else 0, largest

    cdef inline int follow(self, Waiting *waiting, bint at_once) noexcept nogil:
        """Let the last entry wait, and do what is due for the others; or apply all of them."""
        cdef Pending *item = &waiting.items[waiting.behind % RING]
        cdef Place *place
        fetch(&self.blocks.table[item.key.hash & self.blocks.mask])
        waiting.behind += 1
        if at_once:
            return self.apply_all(waiting)
        if waiting.behind - waiting.first <= HALFWAY:
            return 0
        item = &waiting.items[(waiting.behind - HALFWAY) % RING]
        place = &self.blocks.table[item.key.hash & self.blocks.mask]
        if place.hash == item.key.hash:
            fetch(place.block)
            fetch(<unsigned char *>place.block + LINE_BYTES)
        if waiting.behind - waiting.first < RING:
            return 0
        item = &waiting.items[waiting.first % RING]
        waiting.first += 1
        return self.apply(item)

    cdef int apply_all(self, Waiting *waiting) noexcept nogil:
        while waiting.first < waiting.behind:
            waiting.first += 1
            if self.apply(&waiting.items[(waiting.first - 1) % RING]) < 0:
                return -1
        return 0

    cdef int apply(self, Pending *item) noexcept nogil:
        cdef uint64_t place = find_place(&self.blocks, &item.key)
        if item.value[0] != NULL_CODE:
            return put_value(&self.blocks, place, &item.key, item.t, item.value, item.value_size)
        if self.blocks.table[place].block != NULL:
            remove_block(&self.blocks, place)
        return 0

    # --- what came of it ----------------------------------------------------------------------------------------------

    def state(self):
        """The keys that are there, each with its value and its time."""
        found = {}
        self.fill(found, None)
        return found

    def fill(self, values, times):
        """Put values into one dictionary and times into another; without that one, both as pairs into the first."""
        # Nothing of what is made here can be garbage yet, and looking for it again and again takes as long as the rest
        # of it. No other thread runs meanwhile, so none sees the collector disabled.
        self.begin_reading()
        cdef bint collecting = PyGC_Disable()
        try:
            self.fill_in_order(values, times)
        finally:
            self.readers -= 1
            if collecting:
                PyGC_Enable()

    cdef int begin_reading(self) except -1:
        """Let nothing be taken until `readers` is one less again."""
        if self.taking:
            raise WrongUse("another thread is taking entries")
        self.readers += 1
        return 0

    cdef int fill_in_order(self, object values, object times) except -1:
        cdef Source source
        cdef Block *block
        cdef Py_ssize_t turn
        open_source(&source)
        for turn in range(self.blocks.turns):
            block = self.blocks.order[turn]
            if block == NULL:
                continue
            key = PyUnicode_DecodeUTF8(<const char *>key_of(block), block.key_size, NULL)
            set_range(&source, value_of(block), 0, block.value_size)
            value = read_document(&source)
            if times is None:
                PyDict_SetItem(values, key, (value, block.t))
            else:
                PyDict_SetItem(values, key, value)
                PyDict_SetItem(times, key, block.t)
        return 0

    def columns(self, int want):
        """The keys that are there as columns."""
        self.begin_reading()
        try:
            return self.gather_columns(want)
        finally:
            self.readers -= 1

    cdef object gather_columns(self, int want):
        found = Columns(self.blocks.there)
        if want & TIMESTAMPS:
            found.timestamps = self.gather_times()
        if want & KEYS:
            found.key_ends, found.keys = self.gather(True)
        if want & VALUES:
            found.value_ends, found.values = self.gather_json()
        if want & RAW_VALUES:
            found.raw_value_ends, found.raw_values = self.gather(False)
        if want & DELETED:
            found.deleted = bytes(self.blocks.there)
        return found

    cdef bytes gather_times(self):
        cdef bytes gathered = PyBytes_FromStringAndSize(NULL, 8 * self.blocks.there)
        cdef char *into = PyBytes_AS_STRING(gathered)
        cdef Py_ssize_t turn
        for turn in range(self.blocks.turns):
            if self.blocks.order[turn] != NULL:
                memcpy(into, &self.blocks.order[turn].t, 8)
                into += 8
        return gathered

    cdef tuple gather(self, bint keys):
        """All keys, or all values as they are."""
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (self.blocks.there + 1))
        cdef int32_t *end = <int32_t *>PyBytes_AS_STRING(ends)
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size, turn
        cdef Block *block
        cdef bytes gathered
        cdef unsigned char *into
        end[0] = 0
        for turn in range(self.blocks.turns):
            block = self.blocks.order[turn]
            if block == NULL:
                continue
            total += block.key_size if keys else block.value_size
            if total > MAX_COLUMN_BYTES:
                raise too_large(total)
            end += 1
            end[0] = <int32_t>total
        gathered = PyBytes_FromStringAndSize(NULL, total)
        into = <unsigned char *>PyBytes_AS_STRING(gathered)
        for turn in range(self.blocks.turns):
            block = self.blocks.order[turn]
            if block == NULL:
                continue
            size = block.key_size if keys else block.value_size
            copy_few(into, key_of(block) if keys else value_of(block), size)
            into += size
        return ends, gathered

    cdef tuple gather_json(self):
        cdef Growing text
        cdef Source source
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (self.blocks.there + 1))
        cdef int32_t *end = <int32_t *>PyBytes_AS_STRING(ends)
        cdef Py_ssize_t turn
        cdef Block *block
        memset(&text, 0, sizeof(Growing))
        open_source(&source)
        end[0] = 0
        try:
            make_room(&text, 128 * self.blocks.there)
            for turn in range(self.blocks.turns):
                block = self.blocks.order[turn]
                if block == NULL:
                    continue
                append_json(&text, &source, value_of(block), 0, block.value_size + SPARE_BYTES)
                if text.size > MAX_COLUMN_BYTES:
                    raise too_large(text.size)
                end += 1
                end[0] = <int32_t>text.size
            return ends, take_bytes(&text)
        finally:
            drop(&text)


cdef object too_large(Py_ssize_t size):
    return TooLarge(f"a column of {size} bytes does not fit 2^31 - 1")
