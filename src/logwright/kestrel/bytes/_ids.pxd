# The twin of ids.OpenIds for the compiled loops, and how they mix ids so that no journal can make them all meet.
#
# Words are in one table, by level and place, with linear probing; at most half of it is used. A word without a bit
# stays until the table is made anew.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    MOST_STEPS = 64

cdef extern from *:
    """
    static inline int lowest_bit(unsigned long long bits) {
    #if defined(__GNUC__) || defined(__clang__)
        return __builtin_ctzll(bits);
    #else
        int found = 0;
        while (!(bits & 1)) { bits >>= 1; found++; }
        return found;
    #endif
    }
    """
    int lowest_bit(uint64_t bits) noexcept nogil

cdef struct Word:
    uint64_t name  # 0: nothing is here
    uint64_t bits

cdef struct OpenIds:
    Word *words
    int64_t capacity
    int64_t used
    uint64_t seed


cdef inline uint64_t mixed(uint64_t value, uint64_t seed) noexcept nogil:
    """A number that shows nothing of the value to whoever does not know the seed."""
    value = (value ^ seed) * 0x9E3779B97F4A7C15ULL
    value = (value ^ (value >> 32)) * 0xD6E8FEB86659FD93ULL
    return value ^ (value >> 32)


cdef inline Word *find_word(OpenIds *ids, uint64_t name) noexcept nogil:
    """The word of a name, or where it would be."""
    cdef uint64_t mask = <uint64_t>ids.capacity - 1
    cdef uint64_t at = mixed(name, ids.seed) & mask
    while ids.words[at].name != 0 and ids.words[at].name != name:
        at = (at + 1) & mask
    return ids.words + at


cdef inline uint64_t name_of(int level, uint64_t place) noexcept nogil:
    return (<uint64_t>(level + 1) << 32) | place


cdef inline uint64_t bits_of(OpenIds *ids, int level, uint64_t place) noexcept nogil:
    return find_word(ids, name_of(level, place)).bits


cdef inline int make_room(OpenIds *ids) noexcept nogil:
    """See to it that another word fits; -1 when there is no memory."""
    cdef Word *old = ids.words
    cdef int64_t old_capacity = ids.capacity
    cdef int64_t live = 0
    cdef int64_t row
    if ids.words != NULL and ids.used * 2 < ids.capacity:
        return 0
    for row in range(old_capacity):
        live += old[row].bits != 0
    ids.capacity = 64
    while ids.capacity < live * 4:
        ids.capacity *= 2
    ids.words = <Word *>calloc(ids.capacity, sizeof(Word))
    if ids.words == NULL:
        ids.words = old
        ids.capacity = old_capacity
        return -1
    ids.used = live
    for row in range(old_capacity):
        if old[row].bits != 0:
            find_word(ids, old[row].name)[0] = old[row]
    free(old)
    return 0


cdef inline int add_id(OpenIds *ids, int32_t xid) noexcept nogil:
    """Take an id that is free; -1 when there is no memory."""
    cdef uint64_t place = <uint32_t>xid
    cdef Word *word
    cdef int level
    for level in range(6):
        if make_room(ids) < 0:
            return -1
        word = find_word(ids, name_of(level, place >> 6))
        if word.name == 0:
            word.name = name_of(level, place >> 6)
            ids.used += 1
        word.bits |= <uint64_t>1 << (place & 63)
        if ~word.bits != 0:
            break
        place >>= 6
    return 0


cdef inline int begin_ids(OpenIds *ids, uint64_t seed) noexcept nogil:
    """No id is taken but 0, which stands for none; -1 when there is no memory."""
    ids.words = NULL
    ids.capacity = ids.used = 0
    ids.seed = seed
    return add_id(ids, 0)


cdef inline void remove_id(OpenIds *ids, int32_t xid) noexcept nogil:
    """Let go of an id that is taken."""
    cdef uint64_t place = <uint32_t>xid
    cdef uint64_t before
    cdef Word *word
    cdef int level
    if xid == 0:
        return
    for level in range(6):
        word = find_word(ids, name_of(level, place >> 6))
        before = word.bits
        word.bits &= ~(<uint64_t>1 << (place & 63))
        if ~before != 0:
            return
        place >>= 6


cdef inline uint64_t free_from(OpenIds *ids, uint64_t place) noexcept nogil:
    cdef uint64_t bits
    cdef int level = 0
    while True:
        bits = ~bits_of(ids, level, place >> 6) & (~<uint64_t>0 << (place & 63))
        if bits != 0:
            break
        place = (place >> 6) + 1
        level += 1
    place = (place & ~<uint64_t>63) | <uint64_t>lowest_bit(bits)
    while level > 0:
        level -= 1
        place = (place << 6) | <uint64_t>lowest_bit(~bits_of(ids, level, place))
    return place


cdef inline int32_t free_behind(OpenIds *ids, int32_t xid) noexcept nogil:
    """The first free id behind one."""
    cdef uint64_t found = free_from(ids, <uint32_t>xid + <uint64_t>1)
    return <int32_t><uint32_t>(found if found >> 32 == 0 else free_from(ids, 0))
