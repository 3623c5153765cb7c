# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A value of BONJSON as JSON, compiled: what codec.to_json makes of it, without an object in between.

The value was passed before, so that its bytes are BONJSON; but they may change meanwhile, so every advance is checked
against their end again. Room is made for each part of it before that is written. An object that may have a key twice is left to Python, which keeps the last one: whether it may is asked of
a few bits that the keys of an object set. So are strings in several chunks, and what is nested deeper than most.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free
from libc.math cimport isfinite, isnan
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset, strlen

from ...core.bytes._buffers cimport not_walked
from ...core.bytes._bytes cimport load_little_u64, store_little_u64
from ._growing cimport Growing, append, make_room, put, put_one
from .bonjson._bytes cimport double_of, load_number, single_of
from .bonjson._kernel cimport Source, Text, read_document, set_range, take_long_string

from .bonjson import layout as _bonjson
from .bonjson.layout import DEFAULT_LIMITS
from .codec import to_json

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    #define JSON_EACH(byte) (0x0101010101010101ULL * (byte))
    /* Whether one of eight bytes is below 0x20, a quotation mark or a backslash. */
    static inline int json_escapes(uint64_t word) {
        uint64_t quote = word ^ JSON_EACH(0x22), slash = word ^ JSON_EACH(0x5C);
        return (((word - JSON_EACH(0x20)) & ~word) | ((quote - JSON_EACH(1)) & ~quote)
                | ((slash - JSON_EACH(1)) & ~slash)) & JSON_EACH(0x80) ? 1 : 0;
    }
    /* Whether a string has a byte that JSON must escape. */
    static inline int needs_escapes(const unsigned char *p, Py_ssize_t size) {
        uint64_t word;
        Py_ssize_t at = 0;
        for (; size - at >= 8; at += 8) {
            memcpy(&word, p + at, 8);
            if (json_escapes(word)) return 1;
        }
        for (word = JSON_EACH(0x61); at < size; at++) word = word << 8 | p[at];
        return json_escapes(word);
    }
    /* Up to 15 bytes as two words, filled up with a letter; from `p` on `room` bytes may be read. */
    static inline void load_short(
        const unsigned char *p, Py_ssize_t size, Py_ssize_t room, uint64_t *low, uint64_t *high
    ) {
        unsigned char copied[16] = {0};
        uint64_t kept;
        if (room < 16) {
            memcpy(copied, p, (size_t)size);
            p = copied;
        }
        *low = load_little_u64(p);
        *high = load_little_u64(p + 8);
        if (size < 8) {
            kept = (1ULL << 8 * size) - 1;
            *low = (*low & kept) | (JSON_EACH(0x61) & ~kept);
            *high = JSON_EACH(0x61);
        } else {
            kept = (1ULL << 8 * (size - 8)) - 1;
            *high = (*high & kept) | (JSON_EACH(0x61) & ~kept);
        }
    }
    static inline uint64_t hash_of_short(uint64_t low, uint64_t high, Py_ssize_t size) {
        uint64_t hash = (low ^ (uint64_t)size) * 0x9E3779B97F4A7C15ULL;
        hash = (hash ^ hash >> 32 ^ high) * 0xC4CEB9FE1A85EC53ULL;
        return hash ^ hash >> 29;
    }
    static inline uint64_t hash_of_key(const unsigned char *p, Py_ssize_t size) {
        uint64_t hash = 0xCBF29CE484222325ULL ^ (uint64_t)size, word;
        for (; size >= 8; size -= 8, p += 8) {
            memcpy(&word, p, 8);
            hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
            hash ^= hash >> 32;
        }
        for (word = 0; size > 0; size--) word = word << 8 | *p++;
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
        return hash ^ hash >> 29;
    }
    /* The number of digits after the point, if they are few and all digits together at most 15; otherwise -1. Then
       these are the digits that Python prints: the quotient of two integers that doubles hold exactly is rounded once,
       so they mean this number, and no other 15 digits or fewer do. */
    static inline int few_decimals(double number, uint64_t *digits) {
        static const double POWERS[] = {1.0, 10.0, 100.0, 1000.0, 1e4, 1e5, 1e6};
        double positive = fabs(number), scaled;
        int decimals;
        if (!(positive >= 1e-3 && positive < 1e9)) return -1;
        for (decimals = 0; decimals <= 6; decimals++) {
            scaled = floor(positive * POWERS[decimals] + 0.5);
            if (scaled / POWERS[decimals] == positive) {
                *digits = (uint64_t)scaled;
                return decimals;
            }
        }
        return -1;
    }
    """
    bint json_escapes(uint64_t word) noexcept nogil
    bint needs_escapes(const unsigned char *p, Py_ssize_t size) noexcept nogil
    void load_short(
        const unsigned char *p, Py_ssize_t size, Py_ssize_t room, uint64_t *low, uint64_t *high
    ) noexcept nogil
    uint64_t hash_of_short(uint64_t low, uint64_t high, Py_ssize_t size) noexcept nogil
    uint64_t hash_of_key(const unsigned char *p, Py_ssize_t size) noexcept nogil
    int few_decimals(double number, uint64_t *digits) noexcept nogil

cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char format, int precision, int flags, int *kind) except NULL
    int Py_DTSF_ADD_DOT_0

cdef enum:
    OBJECT_CODE = 0x9A
    END_CODE = 0x9B
    ARRAY_CODE = 0x99
    LONG_STRING_CODE = 0x68
    FLOAT16_CODE = 0x6A
    FLOAT32_CODE = 0x6B
    FLOAT64_CODE = 0x6C
    NULL_CODE = 0x6D
    FALSE_CODE = 0x6E
    TRUE_CODE = 0x6F
    UNSIGNED_CODE = 0x70
    SIGNED_CODE = 0x78
    SHORT_STRING_CODE = 0x80
    SHORT_BYTES = 15  # strings of up to this size, whatever their type code, are copied as two words
    MOST_LEVELS = 32
    SMALL_BYTES = 40  # whatever is neither a string nor a container has fewer, and a comma

for _name, _ours in {
    "OBJECT_CODE": OBJECT_CODE, "END_CODE": END_CODE, "ARRAY_CODE": ARRAY_CODE, "LONG_STRING_CODE": LONG_STRING_CODE,
    "FLOAT16_CODE": FLOAT16_CODE, "FLOAT32_CODE": FLOAT32_CODE, "FLOAT64_CODE": FLOAT64_CODE, "NULL_CODE": NULL_CODE,
    "FALSE_CODE": FALSE_CODE, "TRUE_CODE": TRUE_CODE, "UNSIGNED_CODE": UNSIGNED_CODE, "SIGNED_CODE": SIGNED_CODE,
    "SHORT_STRING_CODE": SHORT_STRING_CODE,
}.items():
    if getattr(_bonjson, _name) != _ours:
        raise ImportError(f"the kernel and bonjson's layout.py disagree about {_name}")

cdef int64_t DEPTH = DEFAULT_LIMITS.depth


cdef inline bint note_hash(Level *level, uint64_t hash) noexcept nogil:
    """Note that an object has a key of this hash; whether it may have had it before."""
    cdef int one = <int>(hash & 255)
    cdef int other = <int>(hash >> 8 & 255)
    cdef bint before = (level.keys[one >> 6] >> (one & 63) & 1) and (level.keys[other >> 6] >> (other & 63) & 1)
    level.keys[one >> 6] |= <uint64_t>1 << (one & 63)
    level.keys[other >> 6] |= <uint64_t>1 << (other & 63)
    return before


cdef bint note_key(Level *level, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Note that an object has a key; whether it may have had it before."""
    cdef uint64_t low, high
    if size > SHORT_BYTES:
        return note_hash(level, hash_of_key(data, size))
    load_short(data, size, size, &low, &high)
    return note_hash(level, hash_of_short(low, high, size))


# --- strings and numbers ----------------------------------------------------------------------------------------------


cdef void put_escaped(Growing *growing, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """What is between the quotation marks of a string; there is room for six times its bytes."""
    cdef Py_ssize_t at
    cdef unsigned char byte
    cdef const unsigned char *digits = b"0123456789abcdef"
    for at in range(size):
        byte = data[at]
        if byte >= 0x20 and byte != c'"' and byte != c"\\":
            put_one(growing, byte)
            continue
        put_one(growing, c"\\")
        if byte == c'"' or byte == c"\\":
            put_one(growing, byte)
        elif byte == c"\n":
            put_one(growing, c"n")
        elif byte == c"\r":
            put_one(growing, c"r")
        elif byte == c"\t":
            put_one(growing, c"t")
        elif byte == 8:
            put_one(growing, c"b")
        elif byte == 12:
            put_one(growing, c"f")
        else:
            put(growing, b"u00", 3)
            put_one(growing, digits[byte >> 4])
            put_one(growing, digits[byte & 15])


cdef int append_string(Growing *growing, const unsigned char *data, Py_ssize_t size) except -1 nogil:
    """A string, with space for a character after it."""
    if needs_escapes(data, size):
        make_room(growing, 6 * size + SMALL_BYTES)
        put_one(growing, c'"')
        put_escaped(growing, data, size)
    else:
        make_room(growing, size + SMALL_BYTES)
        put_one(growing, c'"')
        put(growing, data, size)
    put_one(growing, c'"')
    return 0


cdef inline unsigned char *put_short(unsigned char *into, uint64_t low, uint64_t high, Py_ssize_t size) noexcept nogil:
    """A string of at most 15 bytes, none of which needs to be escaped; where it ends. 18 bytes may be written."""
    into[0] = c'"'
    store_little_u64(into + 1, low)
    store_little_u64(into + 9, high)
    into[1 + size] = c'"'
    return into + size + 2


cdef void put_unsigned(Growing *growing, uint64_t number) noexcept nogil:
    cdef unsigned char digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = c"0" + <unsigned char>(number % 10)
        number //= 10
        if number == 0:
            break
    put(growing, digits + at, 20 - at)


cdef void put_signed(Growing *growing, int64_t number) noexcept nogil:
    if number >= 0:
        put_unsigned(growing, <uint64_t>number)
    else:
        put_one(growing, c"-")
        put_unsigned(growing, <uint64_t>(-(number + 1)) + 1)


cdef void put_decimal(Growing *growing, uint64_t digits, int decimals) noexcept nogil:
    """A number with `decimals` digits after the point, at least one."""
    cdef uint64_t power = 1
    cdef int count
    for count in range(decimals):
        power *= 10
    put_unsigned(growing, digits // power)
    put_one(growing, c".")
    digits %= power
    while power > 1:
        power //= 10
        put_one(growing, <unsigned char>(c"0" + digits // power))
        digits %= power
    if decimals == 0:
        put_one(growing, c"0")


cdef int append_float(Growing *growing, double number) except -1:
    cdef uint64_t digits = 0
    cdef int decimals = few_decimals(number, &digits)
    cdef char *text
    if decimals >= 0:
        if number < 0:
            put_one(growing, c"-")
        put_decimal(growing, digits, decimals)
        return 0
    if not isfinite(number):
        if isnan(number):
            return append(growing, b'"NaN"', 5)
        if number > 0:
            return append(growing, b'"Infinity"', 10)
        return append(growing, b'"-Infinity"', 11)
    text = PyOS_double_to_string(number, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    try:
        return append(growing, <const unsigned char *>text, strlen(text))
    finally:
        PyMem_Free(text)


cdef int append_small(Growing *growing, Source *source, int code, Py_ssize_t end) except -1:
    """A value that is neither a string nor a container, after its type code; there is space for it."""
    cdef const unsigned char *data = source.data + source.position
    cdef Py_ssize_t room = end - source.position
    cdef Py_ssize_t size
    cdef int unused_bits
    cdef uint64_t number
    if code <= 100:
        put_unsigned(growing, <uint64_t>code)
    elif code >= 0x9C:
        put_signed(growing, code - 256)
    elif code >= UNSIGNED_CODE:
        size = (code & 7) + 1
        if size > room:
            raise not_walked(source.position)
        number = load_number(data, size, room)
        source.position += size
        if code < SIGNED_CODE:
            put_unsigned(growing, number)
        else:
            unused_bits = 64 - 8 * <int>size
            put_signed(growing, <int64_t>(number << unused_bits) >> unused_bits)
    elif code == NULL_CODE:
        put(growing, b"null", 4)
    elif code == TRUE_CODE:
        put(growing, b"true", 4)
    elif code == FALSE_CODE:
        put(growing, b"false", 5)
    else:
        size = 2 if code == FLOAT16_CODE else 4 if code == FLOAT32_CODE else 8
        if size > room:
            raise not_walked(source.position)
        number = load_number(data, size, room)
        source.position += size
        if code == FLOAT64_CODE:
            append_float(growing, double_of(number))
        else:
            append_float(growing, single_of(number << 16 if code == FLOAT16_CODE else number))
    return 0


# --- values -----------------------------------------------------------------------------------------------------------


cdef bint append_fast(Growing *growing, Source *source, Py_ssize_t end) except -1:
    """The JSON of the whole value at the source's position; False where Python must do it.

    Where to read and where to write are at hand here; `growing` and `source` know it only while others go on with them.
    """
    cdef Level levels[MOST_LEVELS]
    cdef Level *level = NULL  # the innermost one
    cdef Py_ssize_t depth = 0
    cdef bint key_read = False
    cdef const unsigned char *data = source.data
    cdef Py_ssize_t at = source.position
    cdef unsigned char *into
    cdef unsigned char *full
    cdef int code
    cdef Text text
    cdef uint64_t low, high
    cdef bint is_key, had_before
    text.gathered = NULL
    make_room(growing, SMALL_BYTES)
    into = growing.data + growing.size
    full = growing.data + growing.room - SMALL_BYTES
    while True:
        if into > full:
            growing.size = into - growing.data
            make_room(growing, SMALL_BYTES)
            into = growing.data + growing.size
            full = growing.data + growing.room - SMALL_BYTES
        if at >= end:
            raise not_walked(at)
        code = data[at]
        at += 1
        if code == END_CODE:
            if depth == 0:
                raise not_walked(at - 1)
            into[0] = c"}" if level.is_object else c"]"
            into += 1
            depth -= 1
            if depth == 0:
                break
            level = &levels[depth - 1]
            continue
        if depth > 0 and not key_read:
            into[0] = c","
            into += level.has_items
            level.has_items = True
        if code & 0xF0 == SHORT_STRING_CODE:
            text.data = data + at
            text.size = code & 15
            if text.size > end - at:
                raise not_walked(at)
            at += text.size
        elif code == LONG_STRING_CODE:
            source.position = at
            if take_long_string(source, at - 1, &text) < 0:
                free(text.gathered)
                raise MemoryError()
            at = source.position
            if text.gathered != NULL:
                free(text.gathered)
                return False
        elif code == ARRAY_CODE or code == OBJECT_CODE:
            if depth == MOST_LEVELS:
                return False
            level = &levels[depth]
            memset(level, 0, sizeof(Level))
            level.is_object = code == OBJECT_CODE
            into[0] = c"{" if level.is_object else c"["
            into += 1
            depth += 1
            key_read = False
            continue
        else:
            growing.size = into - growing.data
            source.position = at
            append_small(growing, source, code, end)
            at = source.position
            into = growing.data + growing.size
            full = growing.data + growing.room - SMALL_BYTES
            key_read = False
            if depth == 0:
                break
            continue
        is_key = depth > 0 and level.is_object and not key_read
        had_before = False
        if text.size <= SHORT_BYTES:
            load_short(text.data, text.size, data + end - text.data, &low, &high)
            if is_key:
                had_before = note_hash(level, hash_of_short(low, high, text.size))
        elif is_key:
            had_before = note_hash(level, hash_of_key(text.data, text.size))
        if had_before:
            return False
        if text.size <= SHORT_BYTES and not json_escapes(low) and not json_escapes(high):
            into = put_short(into, low, high, text.size)
        else:
            growing.size = into - growing.data
            append_string(growing, text.data, text.size)
            into = growing.data + growing.size
            full = growing.data + growing.room - SMALL_BYTES
        if depth == 0:
            break
        into[0] = c":"
        into += is_key
        key_read = is_key
    growing.size = into - growing.data
    return True


cdef int append_json(
    Growing *growing, Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end
) except -1:
    """The value at `start`, which has been passed before, as JSON; see codec.to_json. Up to `end` may be read."""
    cdef Py_ssize_t before = growing.size
    cdef bytes text
    set_range(source, data, start, end)
    if not append_fast(growing, source, end):
        growing.size = before
        set_range(source, data, start, end)
        source.depth = DEPTH
        text = to_json(read_document(source)).encode()
        append(growing, <const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0
