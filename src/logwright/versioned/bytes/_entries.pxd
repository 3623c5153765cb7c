"""Where the fields of an entry are, found as quickly as its bytes allow: what the kernels of this format try first.

`take_quickly` knows entries as every known writer makes them, `t`, `k` and `o` in this order, and says where one ends;
or 0 where that is not for it to say, as `pass_quickly` of BONJSON does. Then `take_entry` has to look. All of it is
inline C and holds no GIL.
"""

from libc.stdint cimport uint64_t

from ...core.bytes._bytes cimport load_little_u16, load_little_u32, load_little_u64
from .bonjson._bytes cimport pass_quickly


cdef extern from *:
    """
    #ifndef LOGWRIGHT_VERSIONED_ENTRIES
    #define LOGWRIGHT_VERSIONED_ENTRIES
    typedef struct {
        uint64_t t;
        Py_ssize_t key_at, value_start, value_end;
        int plain;
    } EntryFields;

    #define ENTRY_HEAD_BYTES 40 /* a short key and the name of the value end within 31, and 8 more are read */

    /* In a function of its own, which has all registers for itself. */
    static __attribute__((noinline, unused)) Py_ssize_t take_quickly(
        const unsigned char *p, Py_ssize_t start, Py_ssize_t end, EntryFields *fields
    ) {
        Py_ssize_t at = start + 3;
        unsigned char code;
        if (end - start < ENTRY_HEAD_BYTES) return 0;
        if ((load_little_u32(p + start) & 0xFFFFFF) != 0x74819A) return 0; /* an object, and the name t */
        code = p[at];
        if (code <= 100) {
            fields->t = code;
            at += 1;
        } else if ((code & 0xF0) == 0x70) { /* signed or not, 1 to 8 bytes */
            int unused_bits = 56 - (code & 7) * 8;
            uint64_t number = load_little_u64(p + at + 1) << unused_bits;
            if ((code & 8) && number >> 63) return 0;
            fields->t = number >> unused_bits;
            at += 2 + (code & 7);
        } else {
            return 0;
        }
        if (load_little_u16(p + at) != 0x6B81) return 0; /* the name k */
        at += 2;
        code = p[at];
        fields->key_at = at;
        if ((code & 0xF0) == 0x80) {
            if (!is_short_ascii(p + at + 1, code & 15) && find_bad_utf8(p + at + 1, code & 15) >= 0) return 0;
            at += 1 + (code & 15);
        } else {
            if (code != BONJSON_LONG_STRING || end - at < BONJSON_AT_ONCE) return 0;
            at = pass_long_string(p, at, end);
            if (at == 0 || end - at < 2) return 0;
        }
        if (load_little_u16(p + at) != 0x6F81) return 0; /* the name o */
        fields->value_start = at + 2;
        at = pass_quickly(p, at + 2, end);
        if (at == 0 || at >= end || p[at] != BONJSON_END) return 0;
        fields->value_end = at;
        fields->plain = 1;
        return at + 1;
    }
    #endif
    """
    ctypedef struct Fields "EntryFields":
        # The fields of an entry in its buffer: the time, where the key begins, the range of the value.
        # `plain`: they are all that it has, in the usual order.
        uint64_t t
        Py_ssize_t key_at
        Py_ssize_t value_start
        Py_ssize_t value_end
        bint plain

    Py_ssize_t take_quickly(
        const unsigned char *p, Py_ssize_t start, Py_ssize_t end, Fields *fields
    ) noexcept nogil
