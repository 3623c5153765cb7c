"""Items that a replay knows, at 16 bytes each: a ring of them, and a table of the reserved ones by their ids.

Both answer -1, or 0 for an id, where there is no memory, and are then as they were. All of it is inline and holds no
GIL, so that there is no module to be built or loaded.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from ._ring cimport grown_ring
from ..bytes._ids cimport MOST_STEPS, OpenIds, add_id, begin_ids, free_behind, mixed, remove_id


cdef struct Known:
    # What the item is, its position or its number; what else is known of it; the id that it is reserved or named by.
    int64_t place
    int32_t mark
    int32_t xid


# --- a queue of them --------------------------------------------------------------------------------------------------

cdef struct Ring:
    Known *items
    int64_t capacity
    int64_t head
    int64_t count


cdef inline Known *item_at(const Ring *ring, int64_t row) noexcept nogil:
    """The item of a row, from the head on."""
    return ring.items + ((ring.head + row) & (ring.capacity - 1))


cdef inline int grow(Ring *ring) noexcept nogil:
    cdef Known *grown = <Known *>grown_ring(ring.items, &ring.capacity, &ring.head, ring.count, sizeof(Known))
    if grown == NULL:
        return -1
    ring.items = grown
    return 0


cdef inline int push_back(Ring *ring, int64_t place, int32_t mark, int32_t xid) noexcept nogil:
    cdef Known *item
    if ring.count == ring.capacity and grow(ring) < 0:
        return -1
    item = item_at(ring, ring.count)
    item.place = place
    item.mark = mark
    item.xid = xid
    ring.count += 1
    return 0


cdef inline int push_front(Ring *ring, const Known *item) noexcept nogil:
    if ring.count == ring.capacity and grow(ring) < 0:
        return -1
    ring.head = (ring.head - 1) & (ring.capacity - 1)
    ring.items[ring.head] = item[0]
    ring.count += 1
    return 0


cdef inline Known pop_front(Ring *ring) noexcept nogil:
    """Take the head away. There is one."""
    cdef Known item = ring.items[ring.head]
    ring.head = (ring.head + 1) & (ring.capacity - 1)
    ring.count -= 1
    return item


# --- those that are reserved ------------------------------------------------------------------------------------------

cdef struct Slot:
    Known item
    int64_t order
    bint used

cdef struct OpenTable:
    # By id, with linear probing. The capacity is a power of two, and at most half of it is used. The seed is chance, so
    # that no journal can make all ids meet.
    Slot *slots
    int64_t capacity
    int64_t count
    int64_t order
    uint64_t seed
    bint has_ids
    OpenIds ids


cdef inline void free_open(OpenTable *table) noexcept nogil:
    free(table.slots)
    if table.has_ids:
        free(table.ids.words)


cdef inline int64_t home_of(const OpenTable *table, int32_t xid) noexcept nogil:
    return <int64_t>mixed(<uint32_t>xid, table.seed) & (table.capacity - 1)


cdef inline int64_t slot_of(const OpenTable *table, int32_t xid) noexcept nogil:
    """Where an id is in the table, or where it would be."""
    cdef int64_t at = home_of(table, xid)
    while table.slots[at].used and table.slots[at].item.xid != xid:
        at = (at + 1) & (table.capacity - 1)
    return at


cdef inline bint is_open(const OpenTable *table, int32_t xid) noexcept nogil:
    return table.count > 0 and table.slots[slot_of(table, xid)].used


cdef inline int grow_open(OpenTable *table) noexcept nogil:
    cdef Slot *old = table.slots
    cdef int64_t old_capacity = table.capacity
    cdef int64_t row
    cdef Slot *slots = <Slot *>calloc(old_capacity * 2 if old_capacity else 64, sizeof(Slot))
    if slots == NULL:
        return -1
    table.slots = slots
    table.capacity = old_capacity * 2 if old_capacity else 64
    for row in range(old_capacity):
        if old[row].used:
            table.slots[slot_of(table, old[row].item.xid)] = old[row]
    free(old)
    return 0


cdef inline int put_open(OpenTable *table, const Known *item, int32_t xid) noexcept nogil:
    """Reserve an item under an id that is not open."""
    cdef int64_t at
    if table.count * 2 >= table.capacity and grow_open(table) < 0:
        return -1
    if table.has_ids and add_id(&table.ids, xid) < 0:
        return -1
    at = slot_of(table, xid)
    table.slots[at].item = item[0]
    table.slots[at].item.xid = xid
    table.slots[at].order = table.order
    table.slots[at].used = True
    table.order += 1
    table.count += 1
    return 0


cdef inline bint take_open(OpenTable *table, int32_t xid, Known *item) noexcept nogil:
    """Take an id out of the table, moving up what was put behind it because its place was taken; False if not open."""
    cdef int64_t mask = table.capacity - 1
    cdef int64_t hole, at, home
    if table.count == 0:
        return False
    hole = slot_of(table, xid)
    if not table.slots[hole].used:
        return False
    item[0] = table.slots[hole].item
    at = hole
    while True:
        at = (at + 1) & mask
        if not table.slots[at].used:
            break
        home = home_of(table, table.slots[at].item.xid)
        if ((at - home) & mask) >= ((at - hole) & mask):
            table.slots[hole] = table.slots[at]
            hole = at
    table.slots[hole].used = False
    table.count -= 1
    if table.has_ids:
        remove_id(&table.ids, xid)
    return True


cdef inline int32_t next_xid(OpenTable *table, int32_t last) noexcept nogil:
    """The id behind the last used one that is not open; 0 when there is no memory."""
    cdef int32_t xid = last
    cdef int64_t row
    cdef int step
    if not table.has_ids:
        for step in range(MOST_STEPS):
            xid = <int32_t>(<uint32_t>xid + 1)
            if xid != 0 and not is_open(table, xid):
                return xid
        if begin_ids(&table.ids, table.seed) < 0:
            return 0
        table.has_ids = True
        for row in range(table.capacity):
            if table.slots[row].used and add_id(&table.ids, table.slots[row].item.xid) < 0:
                return 0
    return free_behind(&table.ids, last)
