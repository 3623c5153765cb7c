"""Keys of a table in memory: hashed, compared and copied without a call. All of it is inline C and holds no GIL.

The author of a journal chooses its keys. So that hostile keys cannot all collide in one place of a table, the hash
depends on secrets that each process draws, and multiplies to twice the bits and folds them: without the secrets, the
effect of a difference between two keys cannot be predicted.
"""

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #ifndef LOGWRIGHT_VERSIONED_HASHING
    #define LOGWRIGHT_VERSIONED_HASHING
    #include <stdint.h>
    #include <string.h>
    #define HASH_SECRETS 4

    static inline uint64_t fold_product(uint64_t one, uint64_t other) {
    #ifdef __SIZEOF_INT128__
        unsigned __int128 product = (unsigned __int128)one * other;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    #else
        uint64_t a = one >> 32, b = (uint32_t)one, c = other >> 32, d = (uint32_t)other;
        uint64_t low = b * d, middle = a * d + (low >> 32), cross = b * c + (uint32_t)middle;
        return (cross << 32 | (uint32_t)low) ^ (a * c + (middle >> 32) + (cross >> 32));
    #endif
    }
    static inline uint64_t native_u64(const unsigned char *p) { uint64_t word; memcpy(&word, p, 8); return word; }
    static inline uint64_t native_u32(const unsigned char *p) { uint32_t word; memcpy(&word, p, 4); return word; }

    /* A hash of bytes, 16 at a time; the last ones are read as words that may overlap. */
    static inline uint64_t hash_of(const uint64_t *secrets, const unsigned char *p, Py_ssize_t size) {
        uint64_t hash = secrets[0] ^ (uint64_t)size, first, last;
        for (; size > 16; size -= 16, p += 16) {
            hash = fold_product(native_u64(p) ^ secrets[1], native_u64(p + 8) ^ hash);
        }
        if (size >= 8) {
            first = native_u64(p);
            last = native_u64(p + size - 8);
        } else if (size >= 4) {
            first = native_u32(p);
            last = native_u32(p + size - 4);
        } else {
            first = size > 0 ? (uint64_t)p[0] << 16 | (uint64_t)p[size >> 1] << 8 | p[size - 1] : 0;
            last = 0;
        }
        return fold_product(fold_product(first ^ secrets[1], last ^ hash) ^ secrets[2], secrets[3]);
    }

    /* Whether bytes are the same: words, the last two of which may overlap. */
    static inline int are_same(const unsigned char *p, const unsigned char *q, Py_ssize_t size) {
        Py_ssize_t at;
        if (size < 8) {
            for (at = 0; at < size; at++) if (p[at] != q[at]) return 0;
            return 1;
        }
        for (at = 0; at < size - 8; at += 8) if (native_u64(p + at) != native_u64(q + at)) return 0;
        return native_u64(p + size - 8) == native_u64(q + size - 8);
    }

    /* Copy some bytes, mostly few, and touch no other: pieces of a fixed size, the last two of which may overlap. */
    static inline void copy_few(unsigned char *to, const unsigned char *from, Py_ssize_t size) {
        Py_ssize_t at;
        if (size > 512) {
            memcpy(to, from, (size_t)size);
        } else if (size >= 32) {
            for (at = 0; at < size - 32; at += 32) memcpy(to + at, from + at, 32);
            memcpy(to + size - 32, from + size - 32, 32);
        } else if (size >= 8) {
            for (at = 0; at < size - 8; at += 8) memcpy(to + at, from + at, 8);
            memcpy(to + size - 8, from + size - 8, 8);
        } else {
            for (at = 0; at < size; at++) to[at] = from[at];
        }
    }
    static inline void fetch(const void *place) { __builtin_prefetch(place); }
    #endif
    """
    enum:
        HASH_SECRETS

    uint64_t hash_of(const uint64_t *secrets, const unsigned char *p, Py_ssize_t size) noexcept nogil
    bint are_same(const unsigned char *p, const unsigned char *q, Py_ssize_t size) noexcept nogil
    void copy_few(unsigned char *to, const unsigned char *source, Py_ssize_t size) noexcept nogil
    void fetch(const void *place) noexcept nogil
