# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""CRC32C (Castagnoli) of bytes, by the processor's instruction if it has one. Buffers only, no I/O.

`crc32c.py` chooses between this and plain Python. On x86-64 it runs three independent chains of the `crc32`
instruction, because one chain waits three cycles for each result, and joins them with a table. Elsewhere, and on
processors without SSE 4.2, it works by eight tables at a time; `crc32c_tables` always does, so that tests reach it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define CRC32C_POLYNOMIAL 0x82f63b78u  /* reflected: the lowest bit is the highest power */
    #define CRC32C_LANE_BYTES 512          /* long enough that joining costs little, short enough for one block */

    static uint32_t crc32c_table[8][256];  /* [k][b]: the byte b, followed by k zero bytes */
    static uint32_t crc32c_shift[4][256];  /* [k][b]: the byte k of a state, CRC32C_LANE_BYTES zero bytes later */

    static void crc32c_prepare(void) {
        uint32_t basis[32];
        for (int b = 0; b < 256; b++) {
            uint32_t state = (uint32_t)b;
            for (int bit = 0; bit < 8; bit++) state = (state >> 1) ^ (CRC32C_POLYNOMIAL & (0u - (state & 1u)));
            crc32c_table[0][b] = state;
        }
        for (int b = 0; b < 256; b++)
            for (int k = 1; k < 8; k++) {
                uint32_t before = crc32c_table[k - 1][b];
                crc32c_table[k][b] = crc32c_table[0][before & 0xff] ^ (before >> 8);
            }
        /* Advancing over zero bytes is linear: compute it for single bits, and add them up. */
        for (int bit = 0; bit < 32; bit++) {
            uint32_t state = 1u << bit;
            for (int i = 0; i < CRC32C_LANE_BYTES; i++) state = crc32c_table[0][state & 0xff] ^ (state >> 8);
            basis[bit] = state;
        }
        for (int k = 0; k < 4; k++)
            for (int b = 0; b < 256; b++) {
                uint32_t sum = 0;
                for (int bit = 0; bit < 8; bit++) if (b >> bit & 1) sum ^= basis[8 * k + bit];
                crc32c_shift[k][b] = sum;
            }
    }

    /* Byte by byte, so that it means the same on either kind of machine; compilers make one load of it. */
    static inline uint32_t crc32c_load(const unsigned char *p) {
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }

    static uint32_t crc32c_by_tables(uint32_t state, const unsigned char *p, size_t size) {
        for (; size >= 8; size -= 8, p += 8) {
            uint32_t low = state ^ crc32c_load(p), high = crc32c_load(p + 4);
            state = crc32c_table[7][low & 0xff] ^ crc32c_table[6][low >> 8 & 0xff]
                  ^ crc32c_table[5][low >> 16 & 0xff] ^ crc32c_table[4][low >> 24]
                  ^ crc32c_table[3][high & 0xff] ^ crc32c_table[2][high >> 8 & 0xff]
                  ^ crc32c_table[1][high >> 16 & 0xff] ^ crc32c_table[0][high >> 24];
        }
        for (; size > 0; size--, p++) state = crc32c_table[0][(state ^ *p) & 0xff] ^ (state >> 8);
        return state;
    }

    #if defined(__x86_64__) && defined(__GNUC__)

    static int crc32c_has_instruction(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") != 0;
    }

    static inline uint64_t crc32c_word(const unsigned char *p) { uint64_t word; memcpy(&word, p, 8); return word; }

    static inline uint32_t crc32c_over_lane(uint32_t state) {
        return crc32c_shift[0][state & 0xff] ^ crc32c_shift[1][state >> 8 & 0xff]
             ^ crc32c_shift[2][state >> 16 & 0xff] ^ crc32c_shift[3][state >> 24];
    }

    __attribute__((target("sse4.2")))
    static uint32_t crc32c_by_instruction(uint32_t start, const unsigned char *p, size_t size) {
        uint64_t first = start;
        for (; size >= 3 * CRC32C_LANE_BYTES; size -= 3 * CRC32C_LANE_BYTES, p += 3 * CRC32C_LANE_BYTES) {
            uint64_t second = 0, third = 0;
            for (size_t i = 0; i < CRC32C_LANE_BYTES; i += 8) {
                first = __builtin_ia32_crc32di(first, crc32c_word(p + i));
                second = __builtin_ia32_crc32di(second, crc32c_word(p + CRC32C_LANE_BYTES + i));
                third = __builtin_ia32_crc32di(third, crc32c_word(p + 2 * CRC32C_LANE_BYTES + i));
            }
            first = crc32c_over_lane((uint32_t)first) ^ second;
            first = crc32c_over_lane((uint32_t)first) ^ third;
        }
        for (; size >= 8; size -= 8, p += 8) first = __builtin_ia32_crc32di(first, crc32c_word(p));
        uint32_t state = (uint32_t)first;
        for (; size > 0; size--, p++) state = __builtin_ia32_crc32qi(state, *p);
        return state;
    }

    #else

    static int crc32c_has_instruction(void) { return 0; }

    static uint32_t crc32c_by_instruction(uint32_t state, const unsigned char *p, size_t size) {
        return crc32c_by_tables(state, p, size);
    }

    #endif
    """
    void crc32c_prepare() noexcept nogil
    int crc32c_has_instruction() noexcept nogil
    uint32_t crc32c_by_tables(uint32_t state, const unsigned char *p, size_t size) noexcept nogil
    uint32_t crc32c_by_instruction(uint32_t state, const unsigned char *p, size_t size) noexcept nogil

cdef enum:
    RELEASE_BYTES = 131072  # below this the work takes less time than releasing and taking the GIL

crc32c_prepare()
cdef bint has_instruction = crc32c_has_instruction() != 0

HARDWARE = has_instruction
"""Whether `crc32c` uses the processor's instruction."""


cdef uint32_t checksum_of_bytes(const unsigned char *data, size_t size, uint32_t value) noexcept nogil:
    """The CRC32C of some bytes, continued from `value`."""
    if has_instruction:
        return ~crc32c_by_instruction(~value, data, size)
    return ~crc32c_by_tables(~value, data, size)


cdef inline uint32_t _state_after(uint32_t state, const Py_buffer *view, bint by_instruction) noexcept nogil:
    if by_instruction:
        return crc32c_by_instruction(state, <const unsigned char *>view.buf, <size_t>view.len)
    return crc32c_by_tables(state, <const unsigned char *>view.buf, <size_t>view.len)


cdef uint32_t _checksum(object data, uint32_t value, bint by_instruction) except? 0:
    cdef Py_buffer view
    cdef uint32_t state = ~value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len >= RELEASE_BYTES:
        with nogil:
            state = _state_after(state, &view, by_instruction)
    else:
        state = _state_after(state, &view, by_instruction)
    PyBuffer_Release(&view)
    return ~state


def crc32c(data, value=0):
    """The CRC32C of `data`, continued from `value`, the checksum of the preceding bytes."""
    return _checksum(data, <uint32_t>(value & 0xFFFFFFFF), has_instruction)


def crc32c_tables(data, value=0):
    """The same by tables, on any processor."""
    return _checksum(data, <uint32_t>(value & 0xFFFFFFFF), False)
