# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Versions: the last change of each key of a store, compiled; the same class as in versions.py.

Keys and values are copied into blocks (`_blocks.pxd`); the rest of the last change of a key is in an array, by the turn
of its block. No key is ever removed, so turns are dense, and are the order in which keys came.

What a change needs is spread over memory. So changes are taken in groups: first the place of each in the table is
fetched, then its block, and then all are found at hand.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from ...core.bytes._buffers cimport check_ends, column_bytes, column_memory, rows_of
from ..bytes._blocks cimport (
    Block,
    Blocks,
    Key,
    Place,
    close_blocks,
    find_place,
    key_of,
    open_blocks,
    put_value,
    value_of,
)
from ..bytes._growing cimport Growing, append, drop, resize, take_bytes
from ..bytes._hashing cimport HASH_SECRETS, are_same, fetch, hash_of

import os

from ...errors import TooLarge, WrongUse
from . import versions as _versions
from .versions import Changes

cdef enum:
    GROUP = 32  # changes
    LINE_BYTES = 64  # what a processor fetches

cdef int64_t NOT_BEGUN = _versions.NOT_BEGUN
cdef int OVER = _versions.OVER
cdef int UNDECIDED = _versions.UNDECIDED
cdef int COPIED = _versions.COPIED
cdef int64_t ROW_BYTES = _versions.ROW_BYTES
cdef int64_t MOST_BYTES = _versions.MOST_BYTES

cdef uint64_t secrets[HASH_SECRETS]

for _number in range(HASH_SECRETS):
    secrets[_number] = int.from_bytes(os.urandom(8), "little")


cdef struct Version:
    # What there is of the last change of a key besides its time and value.
    int64_t sequence
    int64_t position
    int64_t number
    int64_t journal  # of the last record of the key
    int64_t undecided  # the position of a record that is a copy or the next change; -1 for none
    bint deleted


cdef struct Rows:
    # The columns of changes.
    const int32_t *key_ends
    const unsigned char *keys
    const int32_t *value_ends
    const unsigned char *values
    const unsigned char *deleted
    const uint64_t *times
    const int64_t *sequences
    const int64_t *positions
    const int64_t *numbers
    const unsigned char *is_here
    const unsigned char *follows
    int64_t key_bytes
    int64_t value_bytes


cdef struct Out:
    # Rows that are returned. All but keys and values have room for as many rows.
    Growing key_ends
    Growing keys
    Growing value_ends
    Growing values
    Growing deleted
    Growing times
    Growing sequences
    Growing positions
    Growing numbers
    Growing next_times
    Growing is_last
    Growing is_here
    Py_ssize_t count
    Py_ssize_t room
    int64_t left


cdef int open_out(Out *out, int64_t most_bytes) except -1:
    memset(out, 0, sizeof(Out))
    if not 0 < most_bytes <= MOST_BYTES:
        raise WrongUse(f"rows of {most_bytes} bytes are not within 1 byte and 2 GiB")
    out.left = most_bytes
    return grow_rows(out)


cdef int grow_rows(Out *out) except -1:
    cdef Py_ssize_t room = 2 * out.room + 256
    resize(&out.key_ends, 4 * (room + 1))
    resize(&out.value_ends, 4 * (room + 1))
    resize(&out.deleted, room)
    resize(&out.times, 8 * room)
    resize(&out.sequences, 8 * room)
    resize(&out.positions, 8 * room)
    resize(&out.numbers, 8 * room)
    resize(&out.next_times, 8 * room)
    resize(&out.is_last, room)
    resize(&out.is_here, room)
    out.room = room
    (<int32_t *>out.key_ends.data)[0] = 0
    (<int32_t *>out.value_ends.data)[0] = 0
    return 0


cdef void close_out(Out *out) noexcept:
    drop(&out.key_ends)
    drop(&out.keys)
    drop(&out.value_ends)
    drop(&out.values)
    drop(&out.deleted)
    drop(&out.times)
    drop(&out.sequences)
    drop(&out.positions)
    drop(&out.numbers)
    drop(&out.next_times)
    drop(&out.is_last)
    drop(&out.is_here)


cdef bytes taken(Growing *column, Py_ssize_t size):
    column.size = size
    return take_bytes(column)


cdef object changes_of(Out *out):
    cdef Py_ssize_t count = out.count
    return Changes(
        count,
        taken(&out.key_ends, 4 * (count + 1)),
        take_bytes(&out.keys),
        taken(&out.value_ends, 4 * (count + 1)),
        take_bytes(&out.values),
        taken(&out.deleted, count),
        taken(&out.times, 8 * count),
        taken(&out.sequences, 8 * count),
        taken(&out.positions, 8 * count),
        taken(&out.numbers, 8 * count),
        taken(&out.next_times, 8 * count),
        taken(&out.is_last, count),
        taken(&out.is_here, count),
    )


cdef inline bint fits(const Out *out, const Block *block) noexcept:
    """Whether a row fits, or is the first one."""
    return out.count == 0 or ROW_BYTES + block.key_size + block.value_size <= out.left


cdef int put_row(
    Out *out,
    Block *block,
    const Version *version,
    uint64_t next_time,
    bint is_last,
    bint is_here,
) except -1:
    cdef Py_ssize_t row = out.count
    if row == out.room:
        grow_rows(out)
    append(&out.keys, key_of(block), block.key_size)
    append(&out.values, value_of(block), block.value_size)
    if out.keys.size > MOST_BYTES or out.values.size > MOST_BYTES:
        raise TooLarge(f"a column of {max(out.keys.size, out.values.size)} bytes does not fit 2^31 - 1")
    (<int32_t *>out.key_ends.data)[row + 1] = <int32_t>out.keys.size
    (<int32_t *>out.value_ends.data)[row + 1] = <int32_t>out.values.size
    out.deleted.data[row] = version.deleted
    (<uint64_t *>out.times.data)[row] = block.t
    (<int64_t *>out.sequences.data)[row] = version.sequence
    (<int64_t *>out.positions.data)[row] = version.position
    (<int64_t *>out.numbers.data)[row] = version.number
    (<uint64_t *>out.next_times.data)[row] = next_time
    out.is_last.data[row] = is_last
    out.is_here.data[row] = is_here
    out.left -= ROW_BYTES + block.key_size + block.value_size
    out.count += 1
    return 0


cdef int open_rows(Rows *rows, object changes, Py_ssize_t start, list views) except -1:
    """The memory of columns, which `views` keeps alive."""
    cdef Py_ssize_t count = rows_of(changes)
    if not 0 <= start <= count:
        raise WrongUse(f"there is no row {start} among {count}")
    rows.keys = column_bytes(changes.keys, &rows.key_bytes, views)
    rows.values = column_bytes(changes.values, &rows.value_bytes, views)
    rows.key_ends = <const int32_t *>needed(changes.key_ends, 4 * (count + 1), "key_ends", views)
    rows.value_ends = <const int32_t *>needed(changes.value_ends, 4 * (count + 1), "value_ends", views)
    check_ends(rows.key_ends, count, rows.key_bytes, MOST_BYTES, "key")
    check_ends(rows.value_ends, count, rows.value_bytes, MOST_BYTES, "value")
    rows.deleted = needed(changes.deleted, count, "deleted", views)
    rows.times = <const uint64_t *>needed(changes.times, 8 * count, "times", views)
    rows.sequences = <const int64_t *>needed(changes.sequences, 8 * count, "sequences", views)
    rows.positions = <const int64_t *>needed(changes.positions, 8 * count, "positions", views)
    return 0


cdef const unsigned char *needed(object buffer, Py_ssize_t size, str name, list views) except? NULL:
    if buffer is None:
        raise WrongUse(f"column {name} is missing")
    return column_memory(buffer, size, name, views)


cdef inline void set_key(const Rows *rows, Py_ssize_t row, Key *key) noexcept:
    key.data = rows.keys + rows.key_ends[row]
    key.size = rows.key_ends[row + 1] - rows.key_ends[row]
    key.hash = hash_of(secrets, key.data, key.size)


cdef class Versions:
    """The last change of each key; see versions.Versions."""

    cdef public int64_t sequence
    cdef public int head
    cdef public bint is_complete
    cdef uint64_t until
    cdef bint closes
    cdef int64_t journal
    cdef Blocks blocks
    cdef Version *versions  # by turns
    cdef Py_ssize_t room  # for versions
    cdef Py_ssize_t *undecided  # turns
    cdef Py_ssize_t undecided_count
    cdef Py_ssize_t undecided_room

    def __cinit__(self, until=None, *, bint closes=True):
        self.sequence = NOT_BEGUN
        self.head = OVER
        self.until = 0xFFFFFFFFFFFFFFFFULL if until is None else until
        self.closes = closes
        self.journal = 1
        if open_blocks(&self.blocks) < 0:
            raise MemoryError()

    def __dealloc__(self):
        close_blocks(&self.blocks)
        free(self.versions)
        free(self.undecided)

    def __len__(self):
        return self.blocks.there

    # --- taking changes -----------------------------------------------------------------------------------------------

    def add(self, changes, Py_ssize_t start, int64_t most_bytes):
        """Take the changes from a row on. The row to continue at, and the changes that were superseded."""
        cdef Rows rows
        cdef Out out
        cdef Key keys[GROUP]
        cdef Place *place
        cdef Py_ssize_t row = start
        cdef Py_ssize_t count, number, size
        cdef list views = []
        open_rows(&rows, changes, start, views)
        count = changes.count
        rows.follows = needed(changes.follows, count, "follows", views)
        try:
            open_out(&out, most_bytes)
            while row < count:
                size = min(GROUP, count - row)
                for number in range(size):
                    set_key(&rows, row + number, &keys[number])
                    fetch(&self.blocks.table[keys[number].hash & self.blocks.mask])
                for number in range(size):
                    place = &self.blocks.table[keys[number].hash & self.blocks.mask]
                    if place.hash == keys[number].hash and place.block != NULL:
                        fetch(place.block)
                        fetch(<unsigned char *>place.block + LINE_BYTES)
                for number in range(size):
                    if not self.take(&rows, row, &keys[number], &out):
                        return row, changes_of(&out)
                    row += 1
            return row, changes_of(&out)
        finally:
            close_out(&out)

    cdef bint take(self, const Rows *rows, Py_ssize_t row, const Key *key, Out *out) except -1:
        """Take one record; False if the rows that it returns do not fit."""
        cdef uint64_t t = rows.times[row]
        cdef int64_t sequence = rows.sequences[row]
        cdef bint deleted = rows.deleted[row] != 0
        cdef const unsigned char *value = rows.values + rows.value_ends[row]
        cdef Py_ssize_t size = 0 if deleted else rows.value_ends[row + 1] - rows.value_ends[row]
        cdef uint64_t place
        cdef Block *block
        cdef Version *version = NULL
        if sequence != self.sequence:
            if not self.end_head(out):
                return False
            self.sequence = sequence
            self.journal += 1
            self.head = UNDECIDED if sequence >= 0 else OVER
            self.is_complete = True
        self.is_complete &= rows.follows[row] != 0
        place = find_place(&self.blocks, key)
        block = self.blocks.table[place].block
        if block != NULL:
            version = &self.versions[block.turn]
        if self.head != OVER:
            if deleted or t > <uint64_t>sequence or (version != NULL and version.journal == self.journal):
                if not self.end_head(out):
                    return False
                self.head = OVER
            elif t < <uint64_t>sequence and self.head == UNDECIDED:
                self.forget()
                self.head = COPIED
        if t > self.until:
            return True
        if self.head != OVER and version != NULL and not version.deleted and block.t == t and block.value_size == size:
            if are_same(value_of(block), value, size):
                version.journal = self.journal
                if self.head == UNDECIDED:
                    self.note_undecided(block.turn, rows.positions[row])
                return True
        if version != NULL and self.closes:
            if not fits(out, block):
                return False
            put_row(out, block, version, t, False, False)
        version = self.put(place, key, t, value, size)
        version.sequence = sequence
        version.position = rows.positions[row]
        version.number += 1
        version.journal = self.journal
        version.deleted = deleted
        return True

    cdef Version *put(
        self, uint64_t place, const Key *key, uint64_t t, const unsigned char *value, Py_ssize_t size
    ) except NULL:
        """Give a key, whose place was found, another value; the rest of its last change, which is to be set."""
        cdef Block *block = self.blocks.table[place].block
        cdef Py_ssize_t turn = self.blocks.turns if block == NULL else block.turn
        cdef Py_ssize_t room
        cdef Version *made
        if turn == self.room:
            room = 2 * self.room + 512
            made = <Version *>realloc(self.versions, room * sizeof(Version))
            if made == NULL:
                raise MemoryError()
            self.versions = made
            self.room = room
        if block == NULL:
            memset(&self.versions[turn], 0, sizeof(Version))
            self.versions[turn].undecided = -1
        if put_value(&self.blocks, place, key, t, value, size) < 0:
            raise MemoryError()
        return &self.versions[turn]

    cdef int note_undecided(self, Py_ssize_t turn, int64_t position) except -1:
        cdef Py_ssize_t room
        cdef Py_ssize_t *made
        if self.undecided_count == self.undecided_room:
            room = 2 * self.undecided_room + 64
            made = <Py_ssize_t *>realloc(self.undecided, room * sizeof(Py_ssize_t))
            if made == NULL:
                raise MemoryError()
            self.undecided = made
            self.undecided_room = room
        self.undecided[self.undecided_count] = turn
        self.undecided_count += 1
        self.versions[turn].undecided = position
        return 0

    cdef bint end_head(self, Out *out) except -1:
        """The undecided records are changes, and the keys that are missing are deleted."""
        cdef Py_ssize_t turn
        cdef Version *version
        while self.undecided_count:
            turn = self.undecided[self.undecided_count - 1]
            version = &self.versions[turn]
            if self.closes:
                if not fits(out, self.blocks.order[turn]):
                    return False
                put_row(out, self.blocks.order[turn], version, self.blocks.order[turn].t, False, False)
            self.undecided_count -= 1
            version.sequence = self.sequence
            version.position = version.undecided
            version.undecided = -1
            version.number += 1
        if self.head == OVER or not self.is_complete:
            return True
        for turn in range(self.blocks.turns):
            if self.is_gone(&self.versions[turn]) and not self.remove(turn, out):
                return False
        return True

    cdef inline bint is_gone(self, const Version *version) noexcept:
        """Whether a key is not among the records of the head, though it should be."""
        if self.head == OVER or not self.is_complete or <uint64_t>self.sequence > self.until:
            return False
        return version.journal != self.journal and not version.deleted

    cdef bint remove(self, Py_ssize_t turn, Out *out) except -1:
        """Delete a key when its journal begins; False if its row does not fit."""
        cdef Block *block = self.blocks.order[turn]
        cdef Version *version = &self.versions[turn]
        if self.closes:
            if not fits(out, block):
                return False
            put_row(out, block, version, self.sequence, False, False)
        block.t = self.sequence
        block.value_size = 0
        self.set_deleted(version)
        return True

    cdef int put_deletion(self, Out *out, Block *block, const Version *version, bint is_here) except -1:
        """Add the row of a deletion that the end of the head decides."""
        cdef Version following = version[0]
        cdef uint64_t t = block.t
        cdef Py_ssize_t size = block.value_size
        self.set_deleted(&following)
        block.t = self.sequence
        block.value_size = 0
        try:
            return put_row(out, block, &following, 0, True, is_here)
        finally:
            block.t = t
            block.value_size = size

    cdef inline void set_deleted(self, Version *version) noexcept:
        version.sequence = self.sequence
        version.position = 0
        version.number += 1
        version.journal = self.journal
        version.deleted = True

    cdef int forget(self) noexcept:
        """The undecided records are copies."""
        cdef Py_ssize_t number
        for number in range(self.undecided_count):
            self.versions[self.undecided[number]].undecided = -1
        self.undecided_count = 0
        return 0

    # --- what came of them --------------------------------------------------------------------------------------------

    def rows(self, Py_ssize_t start, int64_t most_bytes):
        """The last changes of the keys from a number on, and the number to continue at."""
        cdef Out out
        cdef Py_ssize_t turn
        cdef Block *block
        cdef Version *version
        cdef Version following
        cdef bint is_here
        if start < 0:
            raise WrongUse(f"there is no key {start}")
        try:
            open_out(&out, most_bytes)
            for turn in range(start, self.blocks.turns):
                block = self.blocks.order[turn]
                version = &self.versions[turn]
                is_here = version.journal == self.journal
                if not fits(&out, block):
                    return turn, changes_of(&out)
                if self.is_gone(version):
                    put_row(&out, block, version, self.sequence, False, is_here)
                    self.put_deletion(&out, block, version, is_here)
                    continue
                if version.undecided < 0:
                    put_row(&out, block, version, 0, True, is_here)
                    continue
                put_row(&out, block, version, block.t, False, is_here)
                following = version[0]
                following.sequence = self.sequence
                following.position = version.undecided
                following.number += 1
                put_row(&out, block, &following, 0, True, is_here)
            return self.blocks.turns, changes_of(&out)
        finally:
            close_out(&out)

    def load(self, changes):
        """Take rows that `rows` has returned. When all have been loaded, set `sequence`, `head` and `is_complete`."""
        cdef Rows rows
        cdef Key key
        cdef Py_ssize_t row
        cdef Py_ssize_t count
        cdef uint64_t place
        cdef Version *version
        cdef list views = []
        open_rows(&rows, changes, 0, views)
        count = changes.count
        rows.numbers = <const int64_t *>needed(changes.numbers, 8 * count, "numbers", views)
        rows.is_here = needed(changes.is_here, count, "is_here", views)
        for row in range(count):
            set_key(&rows, row, &key)
            place = find_place(&self.blocks, &key)
            if self.blocks.table[place].block != NULL:
                if rows.deleted[row]:
                    continue  # the end of the head decides
                self.note_undecided(self.blocks.table[place].block.turn, rows.positions[row])
                continue
            version = self.put(
                place,
                &key,
                rows.times[row],
                rows.values + rows.value_ends[row],
                0 if rows.deleted[row] else rows.value_ends[row + 1] - rows.value_ends[row],
            )
            version.sequence = rows.sequences[row]
            version.position = rows.positions[row]
            version.number = rows.numbers[row]
            version.journal = self.journal if rows.is_here[row] else 0
            version.deleted = rows.deleted[row] != 0
