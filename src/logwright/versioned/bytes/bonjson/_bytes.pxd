"""What the kernels that read BONJSON do with its bytes: numbers of any width, UTF-8, and going past a document quickly.

`pass_quickly` says where the document ends that begins at a position, or 0 where that is not for it to say: at what is
no BONJSON, at what is nested deeply, at strings in several chunks, and within the last few bytes of a range, for it
reads 17 of them at a time and none from `end` on. Then `skip_document` has to look, which knows every case. So all that
this must never do is to pass what that would not. Limits other than the depth are none of its business.

All of it is inline C and holds no GIL: there is no module to be built or loaded.
"""

from libc.stdint cimport int64_t, uint64_t

from ....core.bytes._bytes cimport load_little_u64


cdef extern from *:
    """
    #ifndef LOGWRIGHT_BONJSON_PASSING
    #define LOGWRIGHT_BONJSON_PASSING
    #include <stdint.h>
    #include <string.h>
    #define BONJSON_HIGH_BITS 0x8080808080808080ULL
    #define BONJSON_LONG_STRING 0x68
    #define BONJSON_SHORT_STRING 0x80
    #define BONJSON_ARRAY 0x99
    #define BONJSON_OBJECT 0x9A
    #define BONJSON_END 0x9B
    #define BONJSON_AT_ONCE 17 /* the longest value that is not a container or a long string has 16 bytes */
    #define BONJSON_DEEPEST 60

    /* How many bytes the numbers and the like have, the type code included; 0 for all others. */
    static const unsigned char BONJSON_SIZES[256] = {
        [0x00 ... 0x64] = 1, [0x6A] = 3, [0x6B] = 5, [0x6C] = 9, [0x6D ... 0x6F] = 1,
        [0x70] = 2, [0x71] = 3, [0x72] = 4, [0x73] = 5, [0x74] = 6, [0x75] = 7, [0x76] = 8, [0x77] = 9,
        [0x78] = 2, [0x79] = 3, [0x7A] = 4, [0x7B] = 5, [0x7C] = 6, [0x7D] = 7, [0x7E] = 8, [0x7F] = 9,
        [0x9C ... 0xFF] = 1
    };

    /* The number in 0..8 little-endian bytes: one load and a mask where 8 bytes may be read. */
    static inline uint64_t load_number(const unsigned char *p, int64_t size, int64_t room) {
        uint64_t value = 0;
        if (room >= 8) {
            value = load_little_u64(p);
            return size >= 8 ? value : value & ((1ULL << (8 * size)) - 1);
        }
        while (size-- > 0) value = value << 8 | p[size];
        return value;
    }
    static inline double double_of(uint64_t bits) { double value; memcpy(&value, &bits, 8); return value; }
    static inline double single_of(uint64_t bits) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, 4);
        return value;
    }

    /* Where the first sequence that is no UTF-8 begins, -1 when there is none. */
    static __attribute__((noinline, unused)) Py_ssize_t find_bad_utf8(const unsigned char *p, Py_ssize_t size) {
        Py_ssize_t at = 0;
        while (at < size) {
            if (size - at >= 8) {
                uint64_t word;
                memcpy(&word, p + at, 8);
                if (!(word & BONJSON_HIGH_BITS)) { at += 8; continue; }
            }
            unsigned char lead = p[at], low = 0x80, high = 0xBF;
            Py_ssize_t more, n;
            if (lead < 0x80) { at += 1; continue; }
            if (lead >= 0xC2 && lead <= 0xDF) {
                more = 1;
            } else if (lead >= 0xE0 && lead <= 0xEF) {
                more = 2;
                if (lead == 0xE0) low = 0xA0;  /* what fits in two bytes */
                if (lead == 0xED) high = 0x9F; /* surrogates */
            } else if (lead >= 0xF0 && lead <= 0xF4) {
                more = 3;
                if (lead == 0xF0) low = 0x90;  /* what fits in three bytes */
                if (lead == 0xF4) high = 0x8F; /* beyond U+10FFFF */
            } else {
                return at;
            }
            if (size - at <= more || p[at + 1] < low || p[at + 1] > high) return at;
            for (n = 2; n <= more; n++) if ((p[at + n] & 0xC0) != 0x80) return at;
            at += more + 1;
        }
        return -1;
    }

    /* Whether `size` bytes, at most 15, are ASCII; 16 may be read. */
    static inline int is_short_ascii(const unsigned char *p, int size) {
        static const uint64_t MASKS[17] = {
            0, 0x80, 0x8080, 0x808080, 0x80808080, 0x8080808080, 0x808080808080, 0x80808080808080,
            BONJSON_HIGH_BITS, BONJSON_HIGH_BITS, BONJSON_HIGH_BITS, BONJSON_HIGH_BITS, BONJSON_HIGH_BITS,
            BONJSON_HIGH_BITS, BONJSON_HIGH_BITS, BONJSON_HIGH_BITS
        };
        return !((load_little_u64(p) & MASKS[size]) | (size > 8 ? load_little_u64(p + 8) & MASKS[size - 8] : 0));
    }

    /* Behind the long string at `at`, of which 17 bytes may be read, and where its text begins; 0 unless it is whole and
       one chunk. */
    static inline Py_ssize_t find_long_string(
        const unsigned char *p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *text
    ) {
        uint64_t field = 0;
        unsigned char first = p[at + 1]; /* once: another process may write to these bytes */
        int bytes, n;
        if (first == 0) return 0;
        bytes = __builtin_ctz(first) + 1;
        for (n = bytes; n > 1; n--) field = field << 8 | p[at + n];
        field = field << 8 | first;
        field >>= bytes;
        at += 1 + bytes;
        if ((field & 1) || field >> 1 > (uint64_t)(end - at)) return 0;
        *text = at;
        return at + (Py_ssize_t)(field >> 1);
    }

    /* Behind the long string at `at`, of which 17 bytes may be read; 0 unless it is whole, valid and one chunk. */
    static inline Py_ssize_t pass_long_string(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) {
        Py_ssize_t text = 0, stop = find_long_string(p, at, end, &text);
        return stop && find_bad_utf8(p + text, stop - text) < 0 ? stop : 0;
    }

    static inline Py_ssize_t pass_quickly(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) {
        Py_ssize_t last = end - BONJSON_AT_ONCE;
        uint64_t objects = 0; /* a bit for each open container, the innermost one lowest: whether it is an object */
        int depth = 0, size;
        do {
            unsigned char code;
            if (at > last) return 0;
            code = p[at];
            if (code == BONJSON_END) {
                if (depth == 0) return 0;
                at += 1;
                depth -= 1;
                objects >>= 1;
                continue;
            }
            if (objects & 1) { /* a key comes first */
                size = code & 15;
                if ((code & 0xF0) == BONJSON_SHORT_STRING) {
                    if (!is_short_ascii(p + at + 1, size) && find_bad_utf8(p + at + 1, size) >= 0) return 0;
                    at += 1 + size;
                } else if (code != BONJSON_LONG_STRING || (at = pass_long_string(p, at, end)) == 0) {
                    return 0;
                }
                if (at > last) return 0;
                code = p[at];
            }
            if ((code & 0xF0) == BONJSON_SHORT_STRING) {
                size = code & 15;
                if (!is_short_ascii(p + at + 1, size) && find_bad_utf8(p + at + 1, size) >= 0) return 0;
                at += 1 + size;
            } else if (BONJSON_SIZES[code]) {
                at += BONJSON_SIZES[code];
            } else if (code == BONJSON_OBJECT || code == BONJSON_ARRAY) {
                if (depth == BONJSON_DEEPEST) return 0;
                objects = objects << 1 | (code == BONJSON_OBJECT);
                depth += 1;
                at += 1;
            } else if (code != BONJSON_LONG_STRING || (at = pass_long_string(p, at, end)) == 0) {
                return 0;
            }
        } while (depth > 0);
        return at;
    }
    #endif
    """
    uint64_t load_number(const unsigned char *p, int64_t size, int64_t room) noexcept nogil
    double double_of(uint64_t bits) noexcept nogil
    double single_of(uint64_t bits) noexcept nogil
    Py_ssize_t find_bad_utf8(const unsigned char *p, Py_ssize_t size) noexcept nogil
    Py_ssize_t pass_quickly(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil
