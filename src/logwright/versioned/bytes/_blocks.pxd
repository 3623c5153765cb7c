"""Blocks: keys in memory, each with a time and the bytes of a value. All of it is inline C and holds no GIL.

A table finds the block of a key by its hash, and by probing from there. A value is written over the one before it if it
fits; else the key gets a new block. Blocks that are no longer needed are cleared away when they have become more than
half of all: memory goes with what is there, not with its history.

Every key that comes gets a turn, the next number. As long as no key is removed, turns are dense and stay.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from ._hashing cimport are_same, copy_few
from ._segments cimport Segments, free_blocks, make_block


cdef enum:
    SMALL_TABLE = 1 << 16  # a table of fewer places is made four times as large
    SMALL_ROOM_BYTES = 256  # so much room for a value is never too much
    SMALL_WASTE_BYTES = 1 << 20  # less is not cleared away


cdef struct Block:
    # A key and its value, which are stored after this, one after the other.
    uint64_t t
    Py_ssize_t turn  # when the key came, among all keys that came
    Py_ssize_t key_size
    Py_ssize_t value_size
    Py_ssize_t value_room


cdef struct Place:
    uint64_t hash
    Block *block  # NULL where there is none


cdef struct Key:
    uint64_t hash
    const unsigned char *data
    Py_ssize_t size


cdef struct Blocks:
    Segments segments
    Py_ssize_t needed  # bytes of the blocks that are
    Place *table
    uint64_t mask
    Block **order  # blocks by their turns; NULL where a key was removed
    Py_ssize_t turns
    Py_ssize_t room  # for turns
    Py_ssize_t there  # keys


cdef inline int open_blocks(Blocks *blocks) noexcept nogil:
    """Prepare blocks that are all zeros; -1 if there is no memory."""
    blocks.mask = 1023
    blocks.table = <Place *>calloc(blocks.mask + 1, sizeof(Place))
    return -1 if blocks.table == NULL else 0


cdef inline void close_blocks(Blocks *blocks) noexcept nogil:
    free_blocks(&blocks.segments)
    free(blocks.order)
    free(blocks.table)


cdef inline unsigned char *key_of(Block *block) noexcept nogil:
    return <unsigned char *>(block + 1)


cdef inline unsigned char *value_of(Block *block) noexcept nogil:
    return <unsigned char *>(block + 1) + block.key_size


cdef inline Py_ssize_t size_of(Block *block) noexcept nogil:
    return sizeof(Block) + block.key_size + block.value_room


cdef inline uint64_t find_place(Blocks *blocks, const Key *key) noexcept nogil:
    """Where in the table a key is, or would be."""
    cdef uint64_t number = key.hash & blocks.mask
    cdef Place *place
    while True:
        place = &blocks.table[number]
        if place.block == NULL:
            return number
        if place.hash == key.hash and place.block.key_size == key.size:
            if are_same(key_of(place.block), key.data, key.size):
                return number
        number = (number + 1) & blocks.mask


cdef inline int put_value(
    Blocks *blocks, uint64_t place, const Key *key, uint64_t t, const unsigned char *value, Py_ssize_t size
) noexcept nogil:
    """Give a key, whose place was found, another value; -1 if there is no memory. Blocks and places may move then."""
    cdef Block *block = blocks.table[place].block
    if block == NULL:
        block = add_block(blocks, place, key, size)
    elif not size <= block.value_room <= 4 * size + SMALL_ROOM_BYTES:
        block = replace_block(blocks, place, key, size + size // 4)
    if block == NULL:
        return -1
    copy_few(value_of(block), value, size)
    block.value_size = size
    block.t = t
    return clear_away(blocks) if blocks.segments.used > 2 * blocks.needed + SMALL_WASTE_BYTES else 0


cdef inline void remove_block(Blocks *blocks, uint64_t place) noexcept nogil:
    """Forget a key, and close the gap in the table: those after it move up, if they may."""
    cdef uint64_t other = place
    cdef Block *block = blocks.table[place].block
    blocks.order[block.turn] = NULL
    blocks.there -= 1
    blocks.needed -= size_of(block)
    while True:
        other = (other + 1) & blocks.mask
        if blocks.table[other].block == NULL:
            break
        if (other - blocks.table[other].hash) & blocks.mask >= (other - place) & blocks.mask:
            blocks.table[place] = blocks.table[other]
            place = other
    blocks.table[place].block = NULL


# --- for the functions above ------------------------------------------------------------------------------------------


cdef inline Block *add_block(Blocks *blocks, uint64_t place, const Key *key, Py_ssize_t value_room) noexcept nogil:
    """A block for a key that has none yet; NULL if there is no memory."""
    cdef Block *block
    if blocks.turns == blocks.room and make_turns(blocks) < 0:
        return NULL
    if <uint64_t>(2 * blocks.there) > blocks.mask:
        if spread_places(blocks, (4 if blocks.mask < SMALL_TABLE else 2) * (blocks.mask + 1) - 1) < 0:
            return NULL
        place = find_place(blocks, key)
    block = new_block(blocks, key.data, key.size, value_room)
    if block != NULL:
        block.turn = blocks.turns
        blocks.order[blocks.turns] = block
        blocks.turns += 1
        blocks.there += 1
        blocks.table[place].hash = key.hash
        blocks.table[place].block = block
    return block


cdef inline Block *replace_block(Blocks *blocks, uint64_t place, const Key *key, Py_ssize_t value_room) noexcept nogil:
    """A block of another size for a key that has one; NULL if there is no memory."""
    cdef Block *before = blocks.table[place].block
    cdef Block *block = new_block(blocks, key.data, key.size, value_room)
    if block != NULL:
        block.turn = before.turn
        blocks.order[block.turn] = block
        blocks.table[place].block = block
        blocks.needed -= size_of(before)
    return block


cdef inline Block *new_block(
    Blocks *blocks, const unsigned char *key, Py_ssize_t key_size, Py_ssize_t value_room
) noexcept nogil:
    cdef Block *block = <Block *>make_block(&blocks.segments, sizeof(Block) + key_size + value_room)
    if block != NULL:
        block.key_size = key_size
        block.value_room = value_room
        copy_few(key_of(block), key, key_size)
        blocks.needed += size_of(block)
    return block


cdef inline int make_turns(Blocks *blocks) noexcept nogil:
    """Make room for more turns: where many keys were removed, by taking away theirs."""
    cdef Py_ssize_t turn
    cdef Py_ssize_t kept = 0
    cdef Py_ssize_t room = 2 * blocks.room + 512
    cdef Block **order
    if blocks.turns <= 2 * blocks.there + 512:
        order = <Block **>realloc(blocks.order, room * sizeof(Block *))
        if order == NULL:
            return -1
        blocks.order = order
        blocks.room = room
        return 0
    for turn in range(blocks.turns):
        if blocks.order[turn] != NULL:
            blocks.order[kept] = blocks.order[turn]
            blocks.order[kept].turn = kept
            kept += 1
    blocks.turns = kept
    return 0


cdef inline int spread_places(Blocks *blocks, uint64_t mask) noexcept nogil:
    """Make a table of another size."""
    cdef Place *table = <Place *>calloc(mask + 1, sizeof(Place))
    cdef uint64_t number, place
    if table == NULL:
        return -1
    for number in range(blocks.mask + 1):
        if blocks.table[number].block == NULL:
            continue
        place = blocks.table[number].hash & mask
        while table[place].block != NULL:
            place = (place + 1) & mask
        table[place] = blocks.table[number]
    free(blocks.table)
    blocks.table = table
    blocks.mask = mask
    return 0


cdef inline int clear_away(Blocks *blocks) noexcept nogil:
    """Copy the blocks that are needed to new segments, and give back the old ones; or leave all as it was."""
    cdef Segments before = blocks.segments
    cdef Py_ssize_t needed = blocks.needed
    cdef Block **order = <Block **>calloc(blocks.room, sizeof(Block *))
    cdef Block *block
    cdef Py_ssize_t turn
    cdef uint64_t place
    if order == NULL:
        return -1
    memset(&blocks.segments, 0, sizeof(Segments))
    blocks.needed = 0
    for turn in range(blocks.turns):
        block = blocks.order[turn]
        if block == NULL:
            continue
        order[turn] = new_block(blocks, key_of(block), block.key_size, block.value_size)
        if order[turn] == NULL:
            free_blocks(&blocks.segments)
            free(order)
            blocks.segments = before
            blocks.needed = needed
            return -1
        order[turn].t = block.t
        order[turn].turn = turn
        order[turn].value_size = block.value_size
        copy_few(value_of(order[turn]), value_of(block), block.value_size)
    for place in range(blocks.mask + 1):
        if blocks.table[place].block != NULL:
            blocks.table[place].block = order[blocks.table[place].block.turn]
    free(blocks.order)
    blocks.order = order
    free_blocks(&before)
    return 0
