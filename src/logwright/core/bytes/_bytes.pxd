"""Loading, storing and copying bytes, for the kernels of all formats. Nothing here checks bounds.

`load_*` and `store_*` take any address; their names say the byte order: sej is big-endian, the others are little-endian.
All of it is inline C that does not need the GIL, so there is no module to build or load:

    from ...core.bytes._bytes cimport copy_bytes, load_little_u32, store_little_u32
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t


cdef extern from *:
    """
    #ifndef LOGWRIGHT_BYTES
    #define LOGWRIGHT_BYTES
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define LOGWRIGHT_BIG(bits, v) (v)
    #define LOGWRIGHT_LITTLE(bits, v) __builtin_bswap##bits(v)
    #else
    #define LOGWRIGHT_BIG(bits, v) __builtin_bswap##bits(v)
    #define LOGWRIGHT_LITTLE(bits, v) (v)
    #endif

    static inline uint64_t load_big_u64(const unsigned char *p) {
        uint64_t v; memcpy(&v, p, 8); return LOGWRIGHT_BIG(64, v);
    }
    static inline int64_t load_big_i64(const unsigned char *p) { return (int64_t)load_big_u64(p); }
    static inline uint32_t load_big_u32(const unsigned char *p) {
        uint32_t v; memcpy(&v, p, 4); return LOGWRIGHT_BIG(32, v);
    }
    static inline int32_t load_big_i32(const unsigned char *p) { return (int32_t)load_big_u32(p); }
    static inline void store_big_u64(unsigned char *p, uint64_t v) { v = LOGWRIGHT_BIG(64, v); memcpy(p, &v, 8); }
    static inline void store_big_u32(unsigned char *p, uint32_t v) { v = LOGWRIGHT_BIG(32, v); memcpy(p, &v, 4); }

    static inline uint64_t load_little_u64(const unsigned char *p) {
        uint64_t v; memcpy(&v, p, 8); return LOGWRIGHT_LITTLE(64, v);
    }
    static inline int64_t load_little_i64(const unsigned char *p) { return (int64_t)load_little_u64(p); }
    static inline uint32_t load_little_u32(const unsigned char *p) {
        uint32_t v; memcpy(&v, p, 4); return LOGWRIGHT_LITTLE(32, v);
    }
    static inline int32_t load_little_i32(const unsigned char *p) { return (int32_t)load_little_u32(p); }
    static inline uint16_t load_little_u16(const unsigned char *p) {
        uint16_t v; memcpy(&v, p, 2); return LOGWRIGHT_LITTLE(16, v);
    }
    static inline void store_little_u64(unsigned char *p, uint64_t v) {
        v = LOGWRIGHT_LITTLE(64, v); memcpy(p, &v, 8);
    }
    static inline void store_little_u32(unsigned char *p, uint32_t v) {
        v = LOGWRIGHT_LITTLE(32, v); memcpy(p, &v, 4);
    }
    static inline void store_little_u16(unsigned char *p, uint16_t v) {
        v = LOGWRIGHT_LITTLE(16, v); memcpy(p, &v, 2);
    }

    static inline int64_t now_ns(void) {
        struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static inline int64_t now_ms(void) {
        struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000LL + t.tv_nsec / 1000000;
    }

    /* Copy a few bytes. If there is enough space on both sides, copy a fixed number of them, which the compiler turns
       into a few instructions instead of a call. The spaces are the bytes that may be written, and those that may be
       read. */
    static inline void copy_bytes(
        unsigned char *to, const unsigned char *from, int64_t size, int64_t space_to, int64_t space_from
    ) {
        int64_t space = space_to < space_from ? space_to : space_from;
        if (size <= 16 && space >= 16) {
            memcpy(to, from, 16);
        } else if (size <= 256 && space >= size + 32) {
            int64_t done = 0;
            do { memcpy(to + done, from + done, 32); done += 32; } while (done < size);
        } else {
            memcpy(to, from, (size_t)size);
        }
    }
    #endif
    """
    uint64_t load_big_u64(const unsigned char *place) noexcept nogil
    int64_t load_big_i64(const unsigned char *place) noexcept nogil
    uint32_t load_big_u32(const unsigned char *place) noexcept nogil
    int32_t load_big_i32(const unsigned char *place) noexcept nogil
    void store_big_u64(unsigned char *place, uint64_t number) noexcept nogil
    void store_big_u32(unsigned char *place, uint32_t number) noexcept nogil
    uint64_t load_little_u64(const unsigned char *place) noexcept nogil
    int64_t load_little_i64(const unsigned char *place) noexcept nogil
    uint32_t load_little_u32(const unsigned char *place) noexcept nogil
    int32_t load_little_i32(const unsigned char *place) noexcept nogil
    uint16_t load_little_u16(const unsigned char *place) noexcept nogil
    void store_little_u64(unsigned char *place, uint64_t number) noexcept nogil
    void store_little_u32(unsigned char *place, uint32_t number) noexcept nogil
    void store_little_u16(unsigned char *place, uint16_t number) noexcept nogil
    int64_t now_ns() noexcept nogil
    int64_t now_ms() noexcept nogil
    void copy_bytes(
        unsigned char *to, const unsigned char *source, int64_t size, int64_t space_to, int64_t space_source
    ) noexcept nogil
