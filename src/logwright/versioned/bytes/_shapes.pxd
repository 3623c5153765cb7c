"""Entries that look like one before them: compared with it as a whole, instead of being walked through.

A few bytes of an entry decide where its parts are: names, type codes, and the lengths of its strings. An entry that has
the same bytes in these places, and ASCII where the other has strings, is as whole as that one, and its parts are in the
same places, whatever its numbers and texts are. Such a shape is a word of bits for each eight bytes, and a mask of the
bits that matter; comparing an entry with it takes a fifth of the time of walking through it.

Many stores have long runs of one shape, and others none at all. So a shape has credit, which grows with each entry that
has it and shrinks with each that has not; without credit it is forgotten, and for a while none is learned. `take_next`
of the kernel tries this first. All of it is inline C and holds no GIL.
"""

from libc.stdint cimport uint64_t

from ...core.bytes._bytes cimport load_little_u64
from ._entries cimport Fields


cdef extern from *:
    """
    #ifndef LOGWRIGHT_VERSIONED_SHAPES
    #define LOGWRIGHT_VERSIONED_SHAPES
    #define SHAPE_WORDS 32 /* of eight bytes; an entry that has more of them has no shape */
    #define SHAPE_WORDS_AT_ONCE 4
    #define SHAPE_TIME_AT 4 /* after the object's code, the name, and the code of the number */
    #define SHAPE_FIRST_CREDIT 8
    #define SHAPE_MOST_CREDIT 64
    #define SHAPE_PAUSE 256

    typedef struct {
        Py_ssize_t size; /* that of an entry; 0 where there is no shape */
        Py_ssize_t words, key_at, value_start;
        int unused_bits; /* of the eight bytes at the time */
        int credit, pause;
        uint64_t bits[SHAPE_WORDS], matter[SHAPE_WORDS];
    } EntryShape;

    static inline void open_shape(EntryShape *shape) { shape->size = 0; shape->pause = 0; }

    /* Behind the entry at `start` if it has the shape; else 0. */
    static inline Py_ssize_t take_alike(
        EntryShape *shape, const unsigned char *p, Py_ssize_t start, Py_ssize_t end, EntryFields *fields
    ) {
        Py_ssize_t at, next;
        if (shape->size == 0 || end - start < 8 * shape->words) return 0;
        p += start;
        for (at = 0; at < shape->words; at += SHAPE_WORDS_AT_ONCE) {
            uint64_t words[SHAPE_WORDS_AT_ONCE], differing = 0;
            memcpy(words, p + 8 * at, sizeof words);
            for (next = 0; next < SHAPE_WORDS_AT_ONCE; next++) {
                differing |= (words[next] ^ shape->bits[at + next]) & shape->matter[at + next];
            }
            if (differing) {
                if (--shape->credit < 0) {
                    shape->size = 0;
                    shape->pause = SHAPE_PAUSE;
                }
                return 0;
            }
        }
        if (shape->credit < SHAPE_MOST_CREDIT) shape->credit += 2;
        fields->t = load_little_u64(p + SHAPE_TIME_AT) << shape->unused_bits >> shape->unused_bits;
        fields->key_at = start + shape->key_at;
        fields->value_start = start + shape->value_start;
        fields->value_end = start + shape->size - 1;
        fields->plain = 1;
        return start + shape->size;
    }

    /* Whether the next entry is one to learn a shape from: there is none with credit, and the last try was long ago. */
    static inline int wants_shape(EntryShape *shape) {
        if (shape->size) return 0;
        if (shape->pause == 0) {
            shape->pause = SHAPE_PAUSE;
            return 1;
        }
        shape->pause -= 1;
        return 0;
    }

    /* Behind the part at `at` of an entry, of which only what matters is left; 0 for what has no place in a shape. */
    static inline Py_ssize_t loosen_part(
        const unsigned char *p, Py_ssize_t at, Py_ssize_t size, unsigned char *bits, unsigned char *matter
    ) {
        unsigned char code = p[at];
        Py_ssize_t text = at + 1, stop;
        if (code == BONJSON_OBJECT || code == BONJSON_ARRAY || code == BONJSON_END) return text;
        if (BONJSON_SIZES[code]) {
            stop = at + BONJSON_SIZES[code];
            if (stop < size) memset(matter + text, 0, (size_t)(stop - text));
        } else {
            if ((code & 0xF0) == BONJSON_SHORT_STRING) {
                stop = text + (code & 15);
            } else if (code == BONJSON_LONG_STRING && size - at >= BONJSON_AT_ONCE) {
                stop = find_long_string(p, at, size, &text);
            } else {
                return 0;
            }
            if (stop && stop < size) {
                memset(bits + text, 0, (size_t)(stop - text));
                memset(matter + text, 0x80, (size_t)(stop - text));
            }
        }
        return stop < size ? stop : 0;
    }

    /* Learn the shape of the entry at `start`, which has the usual fields and was found to be whole. */
    static __attribute__((noinline, unused)) void learn_shape(
        EntryShape *shape, const unsigned char *p, Py_ssize_t start, Py_ssize_t stop, const EntryFields *fields
    ) {
        unsigned char bits[8 * SHAPE_WORDS] = {0}, matter[8 * SHAPE_WORDS] = {0};
        Py_ssize_t size = stop - start, at;
        unsigned char code;
        if (size > 8 * SHAPE_WORDS) return;
        p += start;
        memcpy(bits, p, (size_t)size);
        memset(matter, 0xFF, (size_t)size);
        code = p[SHAPE_TIME_AT - 1];
        if ((code & 0xF0) != 0x70) return; /* the times of clocks are too large to be their own code */
        at = loosen_part(p, SHAPE_TIME_AT - 1, size, bits, matter);
        if (at == 0) return;
        if (code & 8) { /* signed: no time is negative */
            bits[at - 1] = 0;
            matter[at - 1] = 0x80;
        }
        shape->unused_bits = 56 - (code & 7) * 8;
        shape->key_at = fields->key_at - start;
        if (!loosen_part(p, shape->key_at, size, bits, matter)) return;
        shape->value_start = fields->value_start - start;
        for (at = shape->value_start; at < size - 1;) {
            at = loosen_part(p, at, size, bits, matter);
            if (at == 0) return;
        }
        memcpy(shape->bits, bits, sizeof bits);
        memcpy(shape->matter, matter, sizeof matter);
        shape->words = (size + 8 * SHAPE_WORDS_AT_ONCE - 1) / (8 * SHAPE_WORDS_AT_ONCE) * SHAPE_WORDS_AT_ONCE;
        shape->credit = SHAPE_FIRST_CREDIT;
        shape->size = size;
    }
    #endif
    """
    ctypedef struct Shape "EntryShape":
        pass

    void open_shape(Shape *shape) noexcept nogil
    Py_ssize_t take_alike(
        Shape *shape, const unsigned char *p, Py_ssize_t start, Py_ssize_t end, Fields *fields
    ) noexcept nogil
    bint wants_shape(Shape *shape) noexcept nogil
    void learn_shape(
        Shape *shape, const unsigned char *p, Py_ssize_t start, Py_ssize_t stop, const Fields *fields
    ) noexcept nogil
