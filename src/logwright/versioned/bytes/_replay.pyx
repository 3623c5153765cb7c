# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Latest: the last entry of each key among millions of them, compiled; the same class as in codec.py. No I/O.

A table finds the block of a key by its hash, and by probing from there. Key and value are copied into it, for the bytes
of entries are gone when the next ones come. A value is written over the one before it where it fits; else it gets a new
block. Blocks that are no longer needed are cleared away when they have become more than half of all: memory goes with
the state, not with its history.

Entries are taken without the GIL: no other thread may do anything with them meanwhile, and none may be taken while
objects are made of what is there, which runs Python.

What an entry needs is spread over memory. So some entries wait while those behind them are taken: when one begins to
wait its place in the table is fetched, halfway through its block, and in the end it finds both at hand.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from ...core.bytes._buffers cimport View, check_count, check_range, not_walked
from ._entries cimport Fields
from ._growing cimport Growing, drop, make_room, take_bytes
from ._hashing cimport HASH_SECRETS, are_same, copy_few, fetch, hash_of
from ._json cimport append_json
from ._kernel cimport NO_MEMORY, WHOLE, open_source, take_key, take_next, walk_ending
from ._segments cimport SPARE_BYTES, Segments, free_blocks, make_block
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
    RING = 32  # so many entries are taken before the first of them is applied
    HALFWAY = 16
    LINE_BYTES = 64  # what a processor fetches
    SMALL_TABLE = 1 << 16  # so many places of a table are made four times as many
    SMALL_ROOM_BYTES = 256  # so much room for a value is not too much
    SMALL_WASTE_BYTES = 1 << 20  # so much is not worth clearing away

cdef uint64_t secrets[HASH_SECRETS]

for _number in range(HASH_SECRETS):
    secrets[_number] = int.from_bytes(os.urandom(8), "little")


cdef struct Block:
    # A key and its value, which lie behind this one after the other.
    uint64_t t
    Py_ssize_t turn  # when the key came, among all keys that came
    Py_ssize_t key_size
    Py_ssize_t value_size
    Py_ssize_t value_room


cdef struct Place:
    uint64_t hash
    Block *block  # NULL where there is none


cdef struct Pending:
    # An entry that was taken, and waits to be applied.
    uint64_t hash
    uint64_t t
    const unsigned char *key
    Py_ssize_t key_size
    const unsigned char *value
    Py_ssize_t value_size


cdef struct Waiting:
    # The entries from number `first` to before number `behind`.
    Pending items[RING]
    size_t first
    size_t behind


cdef inline unsigned char *key_of(Block *block) noexcept nogil:
    return <unsigned char *>(block + 1)


cdef inline unsigned char *value_of(Block *block) noexcept nogil:
    return <unsigned char *>(block + 1) + block.key_size


cdef inline Py_ssize_t size_of(Block *block) noexcept nogil:
    return sizeof(Block) + block.key_size + block.value_room


cdef class Latest:
    """The last entry of each key; see codec.Latest."""

    cdef Segments segments
    cdef Py_ssize_t needed  # bytes of the blocks that are
    cdef Place *table
    cdef uint64_t mask
    cdef Block **order  # blocks by their turns; NULL where a key was removed
    cdef Py_ssize_t turns
    cdef Py_ssize_t room  # for turns
    cdef Py_ssize_t there  # keys
    cdef uint64_t at
    cdef bint taking
    cdef int readers

    def __cinit__(self, at=None):
        if at is not None and at < 0:
            raise WrongUse(f"no entry has a time before {at}")
        self.at = 0xFFFFFFFFFFFFFFFFULL if at is None else min(at, 0xFFFFFFFFFFFFFFFF)
        self.mask = 1023
        self.table = <Place *>calloc(self.mask + 1, sizeof(Place))
        if self.table == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free_blocks(&self.segments)
        free(self.order)
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
        cdef Shape shape
        cdef Fields fields
        cdef Text key
        cdef Waiting waiting
        cdef Pending *item
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t next_position
        cdef uint64_t smallest = 0xFFFFFFFFFFFFFFFFULL
        cdef uint64_t largest = 0
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
                    item.hash = hash_of(secrets, key.data, key.size)
                    item.t = fields.t
                    item.key = key.data
                    item.key_size = key.size
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
        return position, count, walk_ending(answer), smallest if count else 0, largest

    cdef inline int follow(self, Waiting *waiting, bint at_once) noexcept nogil:
        """Let an entry wait that was put behind the others, and do for them what is due; or apply them all."""
        cdef Pending *item = &waiting.items[waiting.behind % RING]
        cdef Place *place
        fetch(&self.table[item.hash & self.mask])
        waiting.behind += 1
        if at_once:
            return self.apply_all(waiting)
        if waiting.behind - waiting.first <= HALFWAY:
            return 0
        item = &waiting.items[(waiting.behind - HALFWAY) % RING]
        place = &self.table[item.hash & self.mask]
        if place.hash == item.hash:
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
        cdef uint64_t place = self.find(item)
        cdef Block *block = self.table[place].block
        if item.value[0] == NULL_CODE:
            return self.remove(place) if block != NULL else 0
        if block == NULL:
            block = self.make(item, place)
        elif not item.value_size <= block.value_room <= 4 * item.value_size + SMALL_ROOM_BYTES:
            block = self.replace(item, place)
        if block == NULL:
            return -1
        copy_few(value_of(block), item.value, item.value_size)
        block.value_size = item.value_size
        block.t = item.t
        return self.clear_away() if self.segments.used > 2 * self.needed + SMALL_WASTE_BYTES else 0

    # --- the table ----------------------------------------------------------------------------------------------------

    cdef uint64_t find(self, Pending *item) noexcept nogil:
        """Where in the table a key is, or would be."""
        cdef uint64_t number = item.hash & self.mask
        cdef Place *place
        while True:
            place = &self.table[number]
            if place.block == NULL:
                return number
            if place.hash == item.hash and place.block.key_size == item.key_size:
                if are_same(key_of(place.block), item.key, item.key_size):
                    return number
            number = (number + 1) & self.mask

    cdef Block *make(self, Pending *item, uint64_t place) noexcept nogil:
        """A block for a key that has none yet, with room for its value; NULL when there is no memory."""
        cdef Block *block
        if self.turns == self.room and self.make_turns() < 0:
            return NULL
        if <uint64_t>(2 * self.there) > self.mask:
            if self.spread((4 if self.mask < SMALL_TABLE else 2) * (self.mask + 1) - 1) < 0:
                return NULL
            place = self.find(item)
        block = self.new_block(item.key, item.key_size, item.value_size)
        if block != NULL:
            block.turn = self.turns
            self.order[self.turns] = block
            self.turns += 1
            self.there += 1
            self.table[place].hash = item.hash
            self.table[place].block = block
        return block

    cdef Block *replace(self, Pending *item, uint64_t place) noexcept nogil:
        """A block with more room in the place of one that is there; NULL when there is no memory."""
        cdef Block *before = self.table[place].block
        cdef Block *block = self.new_block(item.key, item.key_size, item.value_size + item.value_size // 4)
        if block != NULL:
            block.turn = before.turn
            self.order[block.turn] = block
            self.table[place].block = block
            self.needed -= size_of(before)
        return block

    cdef Block *new_block(self, const unsigned char *key, Py_ssize_t key_size, Py_ssize_t value_room) noexcept nogil:
        cdef Block *block = <Block *>make_block(&self.segments, sizeof(Block) + key_size + value_room)
        if block != NULL:
            block.key_size = key_size
            block.value_room = value_room
            copy_few(key_of(block), key, key_size)
            self.needed += size_of(block)
        return block

    cdef int remove(self, uint64_t place) noexcept nogil:
        """Forget a key, and close the gap in the table: those behind it move up, if they may."""
        cdef uint64_t other = place
        cdef Block *block = self.table[place].block
        self.order[block.turn] = NULL
        self.there -= 1
        self.needed -= size_of(block)
        while True:
            other = (other + 1) & self.mask
            if self.table[other].block == NULL:
                break
            if (other - self.table[other].hash) & self.mask >= (other - place) & self.mask:
                self.table[place] = self.table[other]
                place = other
        self.table[place].block = NULL
        return 0

    cdef int make_turns(self) noexcept nogil:
        """Make room for more turns: where many keys were removed, by taking away theirs."""
        cdef Py_ssize_t turn
        cdef Py_ssize_t kept = 0
        cdef Py_ssize_t room = 2 * self.room + 512
        cdef Block **order
        if self.turns <= 2 * self.there + 512:
            order = <Block **>realloc(self.order, room * sizeof(Block *))
            if order == NULL:
                return -1
            self.order = order
            self.room = room
            return 0
        for turn in range(self.turns):
            if self.order[turn] != NULL:
                self.order[kept] = self.order[turn]
                self.order[kept].turn = kept
                kept += 1
        self.turns = kept
        return 0

    cdef int spread(self, uint64_t mask) noexcept nogil:
        """A table of another size."""
        cdef Place *table = <Place *>calloc(mask + 1, sizeof(Place))
        cdef uint64_t number, place
        if table == NULL:
            return -1
        for number in range(self.mask + 1):
            if self.table[number].block == NULL:
                continue
            place = self.table[number].hash & mask
            while table[place].block != NULL:
                place = (place + 1) & mask
            table[place] = self.table[number]
        free(self.table)
        self.table = table
        self.mask = mask
        return 0

    cdef int clear_away(self) noexcept nogil:
        """Copy the blocks that are needed to new segments, and give back the old ones; or leave all as it was."""
        cdef Segments before = self.segments
        cdef Py_ssize_t needed = self.needed
        cdef Block **order = <Block **>calloc(self.room, sizeof(Block *))
        cdef Block *block
        cdef Py_ssize_t turn
        cdef uint64_t place
        if order == NULL:
            return -1
        memset(&self.segments, 0, sizeof(Segments))
        self.needed = 0
        for turn in range(self.turns):
            block = self.order[turn]
            if block == NULL:
                continue
            order[turn] = self.new_block(key_of(block), block.key_size, block.value_size)
            if order[turn] == NULL:
                free_blocks(&self.segments)
                free(order)
                self.segments = before
                self.needed = needed
                return -1
            order[turn].t = block.t
            order[turn].turn = turn
            order[turn].value_size = block.value_size
            copy_few(value_of(order[turn]), value_of(block), block.value_size)
        for place in range(self.mask + 1):
            if self.table[place].block != NULL:
                self.table[place].block = order[self.table[place].block.turn]
        free(self.order)
        self.order = order
        free_blocks(&before)
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
        for turn in range(self.turns):
            block = self.order[turn]
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
        found = Columns(self.there)
        if want & TIMESTAMPS:
            found.timestamps = self.gather_times()
        if want & KEYS:
            found.key_ends, found.keys = self.gather(True)
        if want & VALUES:
            found.value_ends, found.values = self.gather_json()
        if want & RAW_VALUES:
            found.raw_value_ends, found.raw_values = self.gather(False)
        if want & DELETED:
            found.deleted = bytes(self.there)
        return found

    cdef bytes gather_times(self):
        cdef bytes gathered = PyBytes_FromStringAndSize(NULL, 8 * self.there)
        cdef char *into = PyBytes_AS_STRING(gathered)
        cdef Py_ssize_t turn
        for turn in range(self.turns):
            if self.order[turn] != NULL:
                memcpy(into, &self.order[turn].t, 8)
                into += 8
        return gathered

    cdef tuple gather(self, bint keys):
        """All keys, or all values as they are."""
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (self.there + 1))
        cdef int32_t *end = <int32_t *>PyBytes_AS_STRING(ends)
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size, turn
        cdef Block *block
        cdef bytes gathered
        cdef unsigned char *into
        end[0] = 0
        for turn in range(self.turns):
            block = self.order[turn]
            if block == NULL:
                continue
            total += block.key_size if keys else block.value_size
            if total > MAX_COLUMN_BYTES:
                raise too_large(total)
            end += 1
            end[0] = <int32_t>total
        gathered = PyBytes_FromStringAndSize(NULL, total)
        into = <unsigned char *>PyBytes_AS_STRING(gathered)
        for turn in range(self.turns):
            block = self.order[turn]
            if block == NULL:
                continue
            size = block.key_size if keys else block.value_size
            copy_few(into, key_of(block) if keys else value_of(block), size)
            into += size
        return ends, gathered

    cdef tuple gather_json(self):
        cdef Growing text
        cdef Source source
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (self.there + 1))
        cdef int32_t *end = <int32_t *>PyBytes_AS_STRING(ends)
        cdef Py_ssize_t turn
        cdef Block *block
        memset(&text, 0, sizeof(Growing))
        open_source(&source)
        end[0] = 0
        try:
            make_room(&text, 128 * self.there)
            for turn in range(self.turns):
                block = self.order[turn]
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
