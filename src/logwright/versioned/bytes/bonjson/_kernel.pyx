# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reading and writing BONJSON, compiled: the same functions as in codec.py, which says what they mean. No I/O.

Every advance is checked against the end of the bytes first, and nothing recurses: open containers are frames of an
array that grows as they do. A length is read once, so that what was checked is what is used, even where another process
writes to the bytes meanwhile. What cannot be written is handed to the codec, which finds it again and names its path.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.math cimport fabs, isfinite
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from ....core.bytes._bytes cimport store_little_u64
from ._bytes cimport double_of, find_bad_utf8, load_number, single_of

from ....errors import WrongUse
from ....core.bytes.outcome import NEED_MORE
from . import errors as _errors
from . import layout as _layout
from .codec import encode as _encode_or_say_why
from .errors import decode_error
from .layout import DEFAULT_LIMITS

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define HIGH_BITS 0x8080808080808080ULL

    static inline int bit_length(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }
    static inline int zeros_below(uint64_t value) { return __builtin_ctzll(value); }
    static inline uint64_t bits_of_double(double value) { uint64_t bits; memcpy(&bits, &value, 8); return bits; }
    static inline uint64_t bits_of_single(double value) {
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        return bits;
    }

    /* Up to 15 bytes and their number as two words, which are equal for equal strings only. */
    static inline void load_short(
        const unsigned char *p, int64_t size, int64_t room, uint64_t *low, uint64_t *high
    ) {
        if (size <= 8) {
            *low = load_number(p, size, room);
            *high = (uint64_t)size << 56;
        } else {
            *low = load_number(p, 8, room);
            *high = load_number(p + 8, size - 8, room - 8) | (uint64_t)size << 56;
        }
    }
    static inline void store_short(unsigned char *p, int64_t size, uint64_t low, uint64_t high) {
        unsigned char both[16];
        store_little_u64(both, low);
        store_little_u64(both + 8, high);
        memcpy(p, both, (size_t)size);
    }
    static inline int is_ascii_short(uint64_t low, uint64_t high) { return !((low | high) & HIGH_BITS); }
    """
    int bit_length(uint64_t value) noexcept nogil
    int zeros_below(uint64_t value) noexcept nogil
    uint64_t bits_of_double(double value) noexcept nogil
    uint64_t bits_of_single(double value) noexcept nogil
    void load_short(const unsigned char *p, int64_t size, int64_t room, uint64_t *low, uint64_t *high) noexcept nogil
    void store_short(unsigned char *p, int64_t size, uint64_t low, uint64_t high) noexcept nogil
    bint is_ascii_short(uint64_t low, uint64_t high) noexcept nogil

cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    void *PyUnicode_DATA(object text)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF
    PyObject *PyList_GET_ITEM(object array, Py_ssize_t index)
    PyObject *PyTuple_GET_ITEM(object array, Py_ssize_t index)
    Py_ssize_t PyList_GET_SIZE(object array)
    Py_ssize_t PyTuple_GET_SIZE(object array)
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept

cdef extern from "float.h" nogil:
    double FLT_MAX

# --- what is agreed upon with layout.py and errors.py ----------------------------------------------------------------

cdef enum:
    INTEGER_IN_CODE = 0
    UNSIGNED = 1
    SIGNED = 2
    FLOAT16 = 3
    FLOAT32 = 4
    FLOAT64 = 5
    NULL_VALUE = 6
    FALSE_VALUE = 7
    TRUE_VALUE = 8
    SHORT_STRING = 9
    LONG_STRING = 10
    ARRAY = 11
    OBJECT = 12
    CONTAINER_END = 13
    BIG_NUMBER = 14
    RESERVED = 15

cdef enum:
    NO_PROBLEM = -1
    TRUNCATED = 0
    RESERVED_CODE = 1
    BIG_NUMBER_CODE = 2
    STRAY_END = 3
    END_FOR_VALUE = 4
    KEY_NOT_STRING = 5
    DUPLICATE_KEY = 6
    NOT_UTF8 = 7
    NOT_FINITE = 8
    TRAILING_BYTES = 9
    TOO_DEEP = 10
    DOCUMENT_TOO_LARGE = 11
    STRING_TOO_LARGE = 12
    CONTAINER_TOO_LARGE = 13
    OUT_OF_MEMORY = 14

for _name, _ours in {
    "INTEGER_IN_CODE": INTEGER_IN_CODE, "UNSIGNED": UNSIGNED, "SIGNED": SIGNED, "FLOAT16": FLOAT16,
    "FLOAT32": FLOAT32, "FLOAT64": FLOAT64, "NULL": NULL_VALUE, "FALSE": FALSE_VALUE, "TRUE": TRUE_VALUE,
    "SHORT_STRING": SHORT_STRING, "LONG_STRING": LONG_STRING, "ARRAY": ARRAY, "OBJECT": OBJECT,
    "CONTAINER_END": CONTAINER_END, "BIG_NUMBER": BIG_NUMBER, "RESERVED": RESERVED,
}.items():
    if getattr(_layout, _name) != _ours:
        raise ImportError(f"the kernel and layout.py disagree about {_name}")
for _name, _ours in {
    "TRUNCATED": TRUNCATED, "RESERVED_CODE": RESERVED_CODE, "BIG_NUMBER_CODE": BIG_NUMBER_CODE,
    "STRAY_END": STRAY_END, "END_FOR_VALUE": END_FOR_VALUE, "KEY_NOT_STRING": KEY_NOT_STRING,
    "DUPLICATE_KEY": DUPLICATE_KEY, "NOT_UTF8": NOT_UTF8, "NOT_FINITE": NOT_FINITE,
    "TRAILING_BYTES": TRAILING_BYTES, "TOO_DEEP": TOO_DEEP, "DOCUMENT_TOO_LARGE": DOCUMENT_TOO_LARGE,
    "STRING_TOO_LARGE": STRING_TOO_LARGE, "CONTAINER_TOO_LARGE": CONTAINER_TOO_LARGE,
}.items():
    if getattr(_errors, _name) != _ours:
        raise ImportError(f"the kernel and errors.py disagree about {_name}")

cdef enum:
    SMALLEST_IN_CODE = -100
    LARGEST_IN_CODE = 100
    SHORT_STRING_BYTES = 15

if (_layout.SMALLEST_IN_CODE, _layout.LARGEST_IN_CODE, _layout.SHORT_STRING_BYTES) != (
    SMALLEST_IN_CODE, LARGEST_IN_CODE, SHORT_STRING_BYTES
):
    raise ImportError("the kernel and layout.py disagree about what fits into a type code")

cdef int64_t NO_LIMIT = _layout.NO_LIMIT
cdef unsigned char LONG_STRING_CODE = _layout.LONG_STRING_CODE
cdef unsigned char FLOAT16_CODE = _layout.FLOAT16_CODE
cdef unsigned char FLOAT32_CODE = _layout.FLOAT32_CODE
cdef unsigned char FLOAT64_CODE = _layout.FLOAT64_CODE
cdef unsigned char NULL_CODE = _layout.NULL_CODE
cdef unsigned char FALSE_CODE = _layout.FALSE_CODE
cdef unsigned char TRUE_CODE = _layout.TRUE_CODE
cdef unsigned char UNSIGNED_CODE = _layout.UNSIGNED_CODE
cdef unsigned char SIGNED_CODE = _layout.SIGNED_CODE
cdef unsigned char SHORT_STRING_CODE = _layout.SHORT_STRING_CODE
cdef unsigned char ARRAY_CODE = _layout.ARRAY_CODE
cdef unsigned char OBJECT_CODE = _layout.OBJECT_CODE
cdef unsigned char END_CODE = _layout.END_CODE

cdef unsigned char KINDS[256]
cdef list _in_code = [None] * 256  # keeps the integers alive
cdef PyObject *INTEGERS_IN_CODE[256]
cdef int _code
for _code in range(256):
    KINDS[_code] = _layout.KINDS[_code]
    _in_code[_code] = _code if _code < 128 else _code - 256
    INTEGERS_IN_CODE[_code] = <PyObject *>_in_code[_code]

# --- the bytes of a document ------------------------------------------------------------------------------------------


cdef Source DEFAULT_SOURCE
set_limits_from(&DEFAULT_SOURCE, DEFAULT_LIMITS)


cdef int set_limits_from(Source *source, object limits) except -1:
    source.depth = limits.depth
    source.document_bytes = limits.document_bytes
    source.string_bytes = limits.string_bytes
    source.container_items = limits.container_items
    return 0


cdef int set_limits(Source *source, object limits) except -1:
    """Take over the limits; all that is optional is off."""
    source[0] = DEFAULT_SOURCE
    source.last_key_wins = source.allow_nan = False
    source.problem = NO_PROBLEM
    if limits is not DEFAULT_LIMITS:
        set_limits_from(source, limits)
    return 0


cdef void set_range(Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Begin with the document at `start`; its bytes end at `end`, or where the limit is."""
    source.data = data
    source.start = source.position = start
    source.end = end
    if source.document_bytes < end - start:
        source.end = start + <Py_ssize_t>source.document_bytes


cdef int fail(Source *source, int problem, Py_ssize_t at, uint64_t first, uint64_t second) noexcept nogil:
    source.problem = problem
    source.problem_at = at
    source.first = first
    source.second = second
    return -1


cdef int ended(Source *source, uint64_t count) noexcept nogil:
    """So many bytes are due, and are not there or not allowed."""
    cdef Py_ssize_t position = source.position
    if source.document_bytes != NO_LIMIT and count > <uint64_t>(source.document_bytes - (position - source.start)):
        return fail(source, DOCUMENT_TOO_LARGE, position, 0, <uint64_t>source.document_bytes)
    return fail(source, TRUNCATED, position, count, <uint64_t>(source.end - position))


cdef object error_of(Source *source):
    """The error for what went wrong."""
    if source.problem == OUT_OF_MEMORY:
        return MemoryError()
    return decode_error(source.problem, source.problem_at, source.first, source.second)


cdef inline int take_number(Source *source, Py_ssize_t size, uint64_t *value) noexcept nogil:
    """The next 1..8 bytes as a number."""
    cdef Py_ssize_t room = source.end - source.position
    if size > room:
        return ended(source, <uint64_t>size)
    value[0] = load_number(source.data + source.position, size, room)
    source.position += size
    return 0


cdef inline int take_float(Source *source, int kind, Py_ssize_t at, double *value) noexcept nogil:
    cdef uint64_t bits = 0
    if take_number(source, 2 if kind == FLOAT16 else 4 if kind == FLOAT32 else 8, &bits) < 0:
        return -1
    if kind == FLOAT64:
        value[0] = double_of(bits)
    else:
        value[0] = single_of(bits << 16 if kind == FLOAT16 else bits)
    if not (source.allow_nan or isfinite(value[0])):
        return fail(source, NOT_FINITE, at, 0, 0)
    return 0


cdef int take_length(Source *source, uint64_t *payload) noexcept nogil:
    cdef uint64_t first = 0
    cdef uint64_t rest = 0
    cdef int zeros
    if take_number(source, 1, &first) < 0:
        return -1
    if first == 0:
        return take_number(source, 8, payload)
    zeros = zeros_below(first)
    if take_number(source, zeros, &rest) < 0:
        return -1
    payload[0] = (first | rest << 8) >> (zeros + 1)
    return 0


cdef int take_long_string(Source *source, Py_ssize_t at, Text *text) noexcept nogil:
    """The chunks of a long string. Its text is to be freed, also when this fails."""
    cdef uint64_t payload = 0
    cdef uint64_t length
    cdef Py_ssize_t room = 0
    cdef unsigned char *larger
    text.gathered = NULL
    text.size = 0
    while True:
        if take_length(source, &payload) < 0:
            return -1
        length = payload >> 1
        if <uint64_t>text.size + length > <uint64_t>source.string_bytes:
            return fail(source, STRING_TOO_LARGE, at, <uint64_t>text.size + length, <uint64_t>source.string_bytes)
        if length > <uint64_t>(source.end - source.position):
            return ended(source, length)
        if text.gathered == NULL and not payload & 1:
            text.data = source.data + source.position
            text.size = <Py_ssize_t>length
            source.position += text.size
            return 0
        if text.gathered == NULL or <Py_ssize_t>length > room - text.size:
            # No more than twice the bytes that the chunks have, and those are there.
            room = 2 * (text.size + <Py_ssize_t>length) + 16
            larger = <unsigned char *>realloc(text.gathered, room)
            if larger == NULL:
                return fail(source, OUT_OF_MEMORY, at, 0, 0)
            text.gathered = larger
        memcpy(text.gathered + text.size, source.data + source.position, length)
        text.size += <Py_ssize_t>length
        source.position += <Py_ssize_t>length
        text.data = text.gathered
        if not payload & 1:
            return 0


cdef inline int check_short_string(Source *source, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Whether a short string is allowed and there; it is not taken yet."""
    if size > source.string_bytes:
        return fail(source, STRING_TOO_LARGE, at, <uint64_t>size, <uint64_t>source.string_bytes)
    if size > source.end - source.position:
        return ended(source, <uint64_t>size)
    return 0


cdef inline int check_item(Source *source, int64_t count, Py_ssize_t at) noexcept nogil:
    """Whether a container of `count` items may have one more."""
    if count >= source.container_items:
        return fail(source, CONTAINER_TOO_LARGE, at, 0, <uint64_t>source.container_items)
    return 0


# --- bytes to a size --------------------------------------------------------------------------------------------------


cdef struct Level:
    # A container that is open.
    int64_t count
    bint is_object


cdef enum:
    FEW = 32


cdef int skip_string(Source *source, int kind, int code, Py_ssize_t at) noexcept nogil:
    cdef Text text
    cdef Py_ssize_t bad
    cdef int answer = 0
    text.gathered = NULL
    if kind == SHORT_STRING:
        text.size = code & 15
        answer = check_short_string(source, text.size, at)
        text.data = source.data + source.position
        if answer == 0:
            source.position += text.size
    else:
        answer = take_long_string(source, at, &text)
    if answer == 0:
        bad = find_bad_utf8(text.data, text.size)
        if bad >= 0:
            answer = fail(source, NOT_UTF8, at, <uint64_t>bad, 0)
    free(text.gathered)
    return answer


cdef int skip_scalar(Source *source, int kind, int code, Py_ssize_t at) noexcept nogil:
    cdef uint64_t number = 0
    cdef double fraction = 0
    if kind == INTEGER_IN_CODE or kind == NULL_VALUE or kind == FALSE_VALUE or kind == TRUE_VALUE:
        return 0
    if kind == SHORT_STRING or kind == LONG_STRING:
        return skip_string(source, kind, code, at)
    if kind == UNSIGNED or kind == SIGNED:
        return take_number(source, (code & 7) + 1, &number)
    if kind == FLOAT16 or kind == FLOAT32 or kind == FLOAT64:
        return take_float(source, kind, at, &fraction)
    if kind == BIG_NUMBER:
        return fail(source, BIG_NUMBER_CODE, at, 0, 0)
    return fail(source, RESERVED_CODE, at, <uint64_t>code, 0)


cdef int skip_document(Source *source) noexcept nogil:
    """Move the source past the document at its position; -1 if there is none, with the problem in the source."""
    cdef Level few[FEW]
    cdef Level *levels = few
    cdef Level *more
    cdef Py_ssize_t room = FEW
    cdef Py_ssize_t depth = 0  # levels[depth - 1] is the innermost container
    cdef bint key_read = False
    cdef Py_ssize_t at
    cdef int code, kind
    cdef int answer = 0
    while answer == 0:
        at = source.position
        if at >= source.end:
            answer = ended(source, 1)
            break
        code = source.data[at]
        source.position = at + 1
        kind = KINDS[code]
        if kind == CONTAINER_END:
            if depth == 0:
                answer = fail(source, STRAY_END, at, 0, 0)
            elif key_read:
                answer = fail(source, END_FOR_VALUE, at, 0, 0)
            else:
                depth -= 1
        else:
            if depth > 0 and not key_read:
                if levels[depth - 1].is_object and kind != SHORT_STRING and kind != LONG_STRING:
                    answer = fail(source, KEY_NOT_STRING, at, <uint64_t>code, 0)
                    break
                answer = check_item(source, levels[depth - 1].count, at)
                if answer < 0:
                    break
                levels[depth - 1].count += 1
                if levels[depth - 1].is_object:
                    answer = skip_string(source, kind, code, at)
                    key_read = True
                    continue
            key_read = False
            if kind != ARRAY and kind != OBJECT:
                answer = skip_scalar(source, kind, code, at)
            elif depth >= source.depth:
                answer = fail(source, TOO_DEEP, at, 0, <uint64_t>source.depth)
            else:
                if depth == room:
                    more = <Level *>malloc(2 * room * sizeof(Level))
                    if more == NULL:
                        answer = fail(source, OUT_OF_MEMORY, at, 0, 0)
                        break
                    memcpy(more, levels, room * sizeof(Level))
                    if levels != few:
                        free(levels)
                    levels = more
                    room *= 2
                levels[depth].count = 0
                levels[depth].is_object = kind == OBJECT
                depth += 1
        if depth == 0:
            break
    if levels != few:
        free(levels)
    return answer


# --- bytes to a value -------------------------------------------------------------------------------------------------

# Keys are the same few again and again. Those of up to 15 bytes are remembered, one in each slot: looking there is much
# faster than to make the string and its hash once more. The GIL keeps this from two threads at a time.

cdef struct KeySlot:
    uint64_t low
    uint64_t high
    PyObject *key

cdef enum:
    KEY_SLOT_BITS = 10

cdef KeySlot KEY_SLOTS[1 << KEY_SLOT_BITS]


cdef object make_text(Source *source, const unsigned char *data, Py_ssize_t size, Py_ssize_t at):
    """The string of some bytes, or `DecodeError`."""
    cdef PyObject *text = PyUnicode_DecodeUTF8(<const char *>data, size, NULL)
    cdef object made
    if text == NULL:  # by hand, as `try` has its cost for every string
        if not PyErr_ExceptionMatches(UnicodeDecodeError):
            fail(source, OUT_OF_MEMORY, at, 0, 0)
        else:
            fail(source, NOT_UTF8, at, <uint64_t>max(find_bad_utf8(data, size), 0), 0)
        PyErr_Clear()
        raise error_of(source)
    made = <object>text
    Py_DECREF(made)
    return made


cdef inline object make_short(
    Source *source, const unsigned char *data, Py_ssize_t size, uint64_t low, uint64_t high, Py_ssize_t at
):
    """The string of at most 15 bytes, which are in `low` and `high` as well."""
    cdef object text
    if size > 1 and is_ascii_short(low, high):  # of 0 and 1 characters Python has the strings already
        text = PyUnicode_New(size, 127)
        store_short(<unsigned char *>PyUnicode_DATA(text), size, low, high)
        return text
    return make_text(source, data, size, at)


cdef object read_short(Source *source, int code, Py_ssize_t at, bint is_key):
    cdef Py_ssize_t size = code & 15
    cdef const unsigned char *data = source.data + source.position
    cdef uint64_t low = 0
    cdef uint64_t high = 0
    cdef KeySlot *slot
    cdef object text
    if check_short_string(source, size, at) < 0:
        raise error_of(source)
    load_short(data, size, source.end - source.position, &low, &high)
    source.position += size
    if not is_key:
        return make_short(source, data, size, low, high, at)
    slot = &KEY_SLOTS[(low * 0x9E3779B97F4A7C15ULL ^ high * 0xC2B2AE3D27D4EB4FULL) >> (64 - KEY_SLOT_BITS)]
    if slot.key != NULL and slot.low == low and slot.high == high:
        return <object>slot.key
    text = make_short(source, data, size, low, high, at)
    Py_XDECREF(slot.key)
    Py_INCREF(text)
    slot.key = <PyObject *>text
    slot.low = low
    slot.high = high
    return text


cdef object read_long(Source *source, Py_ssize_t at):
    cdef Text text
    cdef int answer = take_long_string(source, at, &text)
    if answer == 0 and text.gathered == NULL:
        return make_text(source, text.data, text.size, at)
    try:
        if answer < 0:
            raise error_of(source)
        return make_text(source, text.data, text.size, at)
    finally:
        free(text.gathered)


cdef inline object read_scalar(Source *source, int kind, int code, Py_ssize_t at):
    cdef uint64_t number = 0
    cdef double fraction = 0
    cdef int unused_bits
    if kind == INTEGER_IN_CODE:
        return <object>INTEGERS_IN_CODE[code]
    if kind == SHORT_STRING:
        return read_short(source, code, at, False)
    if kind == UNSIGNED:
        if take_number(source, (code & 7) + 1, &number) < 0:
            raise error_of(source)
        return number
    if kind == SIGNED:
        if take_number(source, (code & 7) + 1, &number) < 0:
            raise error_of(source)
        unused_bits = 56 - 8 * (code & 7)
        return <int64_t>(number << unused_bits) >> unused_bits
    if kind == LONG_STRING:
        return read_long(source, at)
    if kind == FLOAT16 or kind == FLOAT32 or kind == FLOAT64:
        if take_float(source, kind, at, &fraction) < 0:
            raise error_of(source)
        return fraction
    if kind == NULL_VALUE:
        return None
    if kind == FALSE_VALUE:
        return False
    if kind == TRUE_VALUE:
        return True
    if kind == BIG_NUMBER:
        fail(source, BIG_NUMBER_CODE, at, 0, 0)
    else:
        fail(source, RESERVED_CODE, at, <uint64_t>code, 0)
    raise error_of(source)


cdef struct Frame:
    # An open container. Its reference is counted: the collector may run, and finds what is read so far.
    PyObject *container
    int64_t count
    bint is_object


cdef struct Stack:
    Frame *frames
    Py_ssize_t depth  # frames[depth - 1] is the innermost container
    Py_ssize_t room
    Frame few[FEW]


cdef int push(Stack *stack, object container, bint is_object) except -1:
    """Open a container."""
    cdef Frame *more
    cdef Py_ssize_t depth = stack.depth
    if depth == stack.room:
        more = <Frame *>malloc(2 * depth * sizeof(Frame))
        if more == NULL:
            raise MemoryError()
        memcpy(more, stack.frames, depth * sizeof(Frame))
        if stack.frames != stack.few:
            free(stack.frames)
        stack.frames = more
        stack.room = 2 * depth
    Py_INCREF(container)
    stack.frames[depth].container = <PyObject *>container
    stack.frames[depth].count = 0
    stack.frames[depth].is_object = is_object
    stack.depth = depth + 1
    return 0


cdef inline void pop(Stack *stack) noexcept:
    """Close the innermost container."""
    stack.depth -= 1
    Py_DECREF(<object>stack.frames[stack.depth].container)


cdef object read_document(Source *source):
    """Read the document at the source's position, and move the position past it."""
    cdef Stack stack
    stack.frames = stack.few
    stack.depth = 0
    stack.room = FEW
    try:
        return read_nested(source, &stack)
    finally:
        while stack.depth > 0:
            pop(&stack)
        if stack.frames != stack.few:
            free(stack.frames)


cdef object read_nested(Source *source, Stack *stack):
    cdef object document = None
    cdef object key = None
    cdef object value
    cdef Frame *frame = NULL  # of the innermost container
    cdef Py_ssize_t before
    cdef bint key_read = False
    cdef Py_ssize_t at
    cdef Py_ssize_t key_at = 0
    cdef int code, kind
    while True:
        at = source.position
        if at >= source.end:
            ended(source, 1)
            break
        code = source.data[at]
        source.position = at + 1
        kind = KINDS[code]
        if kind == CONTAINER_END:
            if stack.depth == 0:
                fail(source, STRAY_END, at, 0, 0)
                break
            if key_read:
                fail(source, END_FOR_VALUE, at, 0, 0)
                break
            pop(stack)
            if stack.depth == 0:
                return document
            frame = &stack.frames[stack.depth - 1]
            continue
        if stack.depth > 0 and not key_read:
            if frame.is_object and kind != SHORT_STRING and kind != LONG_STRING:
                fail(source, KEY_NOT_STRING, at, <uint64_t>code, 0)
                break
            if check_item(source, frame.count, at) < 0:
                break
            frame.count += 1
            if frame.is_object:
                key = read_short(source, code, at, True) if kind == SHORT_STRING else read_long(source, at)
                key_at = at
                key_read = True
                continue
        if kind != ARRAY and kind != OBJECT:
            value = read_scalar(source, kind, code, at)
            if stack.depth == 0:
                return value
        elif stack.depth >= source.depth:
            fail(source, TOO_DEEP, at, 0, <uint64_t>source.depth)
            break
        elif kind == ARRAY:
            value = []
        else:
            value = {}
        if stack.depth == 0:
            document = value
        elif key_read:
            before = PyDict_Size(<object>frame.container)
            PyDict_SetItem(<object>frame.container, key, value)
            if not source.last_key_wins and PyDict_Size(<object>frame.container) == before:
                fail(source, DUPLICATE_KEY, key_at, 0, 0)
                break
            key_read = False
        else:
            (<list>frame.container).append(value)
        if kind == ARRAY or kind == OBJECT:
            push(stack, value, kind == OBJECT)
            frame = &stack.frames[stack.depth - 1]
    raise error_of(source)


# --- what Python calls to read ----------------------------------------------------------------------------------------


cdef struct Memory:
    # The bytes that were handed in; `held` where they must be released.
    const unsigned char *data
    Py_ssize_t size
    bint held
    Py_buffer view


cdef int open_memory(Memory *memory, object data) except -1:
    memory.held = False
    if type(data) is bytes:
        memory.size = PyBytes_GET_SIZE(data)
        memory.data = <const unsigned char *>PyBytes_AS_STRING(data)
        return 0
    PyObject_GetBuffer(data, &memory.view, PyBUF_SIMPLE)
    memory.held = True
    memory.size = memory.view.len
    memory.data = <const unsigned char *>memory.view.buf
    return 0


cdef inline void close_memory(Memory *memory) noexcept:
    if memory.held:
        PyBuffer_Release(&memory.view)


cdef int check_range(Py_ssize_t start, Py_ssize_t end, Py_ssize_t size) except -1:
    if not 0 <= start <= end <= size:
        raise WrongUse(f"the range {start}..{end} is not within a buffer of {size} bytes")
    return 0


def decode(data, *, limits=DEFAULT_LIMITS, bint last_key_wins=False, bint allow_nan=False):
    """The value of a document that fills `data`. Raises `DecodeError`."""
    cdef Source source
    cdef Memory memory
    set_limits(&source, limits)
    source.last_key_wins = last_key_wins
    source.allow_nan = allow_nan
    open_memory(&memory, data)
    try:
        set_range(&source, memory.data, 0, memory.size)
        value = read_document(&source)
        if source.position != memory.size:
            fail(&source, TRAILING_BYTES, source.position, <uint64_t>(memory.size - source.position), 0)
            raise error_of(&source)
        return value
    finally:
        close_memory(&memory)


def decode_prefix(
    data, Py_ssize_t start=0, end=None, *, limits=DEFAULT_LIMITS, bint last_key_wins=False, bint allow_nan=False
):
    """The value of the document at `start`, and where it ends; see codec.decode_prefix."""
    cdef Source source
    cdef Memory memory
    cdef Py_ssize_t stop
    set_limits(&source, limits)
    source.last_key_wins = last_key_wins
    source.allow_nan = allow_nan
    open_memory(&memory, data)
    try:
        stop = memory.size if end is None else end
        check_range(start, stop, memory.size)
        set_range(&source, memory.data, start, stop)
        value = read_document(&source)
        return value, source.position
    finally:
        close_memory(&memory)


def size_of(data, Py_ssize_t start=0, end=None, *, limits=DEFAULT_LIMITS, bint allow_nan=False):
    """How many bytes the document at `start` has, or `NEED_MORE`; see codec.size_of."""
    cdef Source source
    cdef Memory memory
    cdef Py_ssize_t stop
    set_limits(&source, limits)
    source.allow_nan = allow_nan
    open_memory(&memory, data)
    try:
        stop = memory.size if end is None else end
        check_range(start, stop, memory.size)
        set_range(&source, memory.data, start, stop)
        if skip_document(&source) == 0:
            return source.position - start
        if source.problem == TRUNCATED:
            return NEED_MORE
        raise error_of(&source)
    finally:
        close_memory(&memory)


# --- a value to bytes -------------------------------------------------------------------------------------------------


cdef void open_out(Out *out) noexcept nogil:
    """Begin with nothing written, within the usual limits."""
    out.data = out.small
    out.size = 0
    out.room = SMALL_DOCUMENT_BYTES
    out.depth = DEFAULT_SOURCE.depth
    out.document_bytes = DEFAULT_SOURCE.document_bytes
    out.string_bytes = DEFAULT_SOURCE.string_bytes
    out.container_items = DEFAULT_SOURCE.container_items


cdef void close_out(Out *out) noexcept nogil:
    """Give back what was written."""
    if out.data != out.small:
        free(out.data)


cdef int grow(Out *out, Py_ssize_t more) except -1:
    """Make room for `more` bytes."""
    cdef Py_ssize_t room = max(2 * out.room, out.size + more)
    cdef unsigned char *data
    if out.data == out.small:
        data = <unsigned char *>malloc(room)
        if data != NULL:
            memcpy(data, out.small, out.size)
    else:
        data = <unsigned char *>realloc(out.data, room)
    if data == NULL:
        raise MemoryError()
    out.data = data
    out.room = room
    return 0


cdef inline int put_byte(Out *out, unsigned char byte) except -1:
    if out.size == out.room:
        grow(out, 1)
    out.data[out.size] = byte
    out.size += 1
    return 0


cdef inline int put_number(Out *out, unsigned char code, uint64_t number, int size) except -1:
    """A type code and the low 1..8 bytes of a number."""
    if out.room - out.size < 9:
        grow(out, 9)
    out.data[out.size] = code
    store_little_u64(out.data + out.size + 1, number)
    out.size += 1 + size
    return 0


cdef int put_integer(Out *out, uint64_t number, bint negative) except -1:
    """A number from -2**63 to 2**64-1 as 64 bits and its sign."""
    cdef int bits, size
    if negative:
        if <int64_t>number >= SMALLEST_IN_CODE:
            return put_byte(out, <unsigned char>(number & 0xFF))
        size = bit_length(~number) // 8 + 1
        return put_number(out, SIGNED_CODE + size - 1, number, size)
    if number <= LARGEST_IN_CODE:
        return put_byte(out, <unsigned char>number)
    bits = bit_length(number)
    size = (bits + 7) // 8
    return put_number(out, (UNSIGNED_CODE if bits == 8 * size else SIGNED_CODE) + size - 1, number, size)


cdef bint put_float(Out *out, double number) except -1:
    """False where it is no number that JSON has."""
    cdef uint64_t single
    if not isfinite(number):
        return False
    if fabs(number) <= FLT_MAX:
        single = bits_of_single(number)
        if single_of(single) == number:
            if single & 0xFFFF:
                put_number(out, FLOAT32_CODE, single, 4)
            else:
                put_number(out, FLOAT16_CODE, single >> 16, 2)
            return True
    put_number(out, FLOAT64_CODE, bits_of_double(number), 8)
    return True


cdef bint put_text(Out *out, const char *data, Py_ssize_t size) except -1:
    """False where it is longer than allowed."""
    cdef uint64_t payload
    cdef int width
    if size > out.string_bytes:
        return False
    if out.room - out.size < size + 16:
        grow(out, size + 16)
    if size <= SHORT_STRING_BYTES:
        out.data[out.size] = SHORT_STRING_CODE + <unsigned char>size
        out.size += 1
    else:
        payload = 2 * <uint64_t>size
        width = (bit_length(payload) + 6) // 7
        out.data[out.size] = LONG_STRING_CODE
        if width > 8:
            out.data[out.size + 1] = 0
            store_little_u64(out.data + out.size + 2, payload)
            width = 9
        else:
            store_little_u64(out.data + out.size + 1, payload << width | <uint64_t>1 << (width - 1))
        out.size += 1 + width
    memcpy(out.data + out.size, data, size)
    out.size += size
    return True


cdef inline bint put_string(Out *out, object text) except -1:
    """False where it cannot be written."""
    cdef object data
    if PyUnicode_IS_COMPACT_ASCII(text):
        return put_text(out, <const char *>PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text))
    try:
        data = PyUnicode_AsUTF8String(text)
    except UnicodeEncodeError:
        return False
    return put_text(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef bint put_long(Out *out, object value) except -1:
    """False where it does not fit 64 bits."""
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow == 0:
        put_integer(out, <uint64_t>number, number < 0)
        return True
    if overflow < 0:
        return False
    try:
        put_integer(out, PyLong_AsUnsignedLongLong(value), False)
    except OverflowError:
        return False
    return True


cdef bint put_scalar(Out *out, object value) except -1:
    """False where it cannot be written."""
    if type(value) is str:
        return put_string(out, value)
    if value is None:
        put_byte(out, NULL_CODE)
    elif value is False:
        put_byte(out, FALSE_CODE)
    elif value is True:
        put_byte(out, TRUE_CODE)
    elif isinstance(value, int):
        return put_long(out, value)
    elif isinstance(value, float):
        return put_float(out, PyFloat_AS_DOUBLE(value))
    elif isinstance(value, str):
        return put_string(out, value)
    else:
        return False
    return True


cdef struct Writing:
    # A container that is being written; its reference is counted.
    PyObject *container
    Py_ssize_t position
    int kind


cdef enum:
    OF_LIST = 0
    OF_TUPLE = 1
    OF_DICT = 2
    NO_CONTAINER = 3
    OF_PAIRS = 4  # what was left of a dict: keys and values in turn


cdef inline int kind_of(object value):
    if isinstance(value, dict):
        return OF_DICT
    if isinstance(value, list):
        return OF_LIST
    return OF_TUPLE if isinstance(value, tuple) else NO_CONTAINER


cdef object plain(object container, int kind):
    """A list or dict of exactly that type, for what a subclass makes of itself; None where a key is there twice."""
    cdef list items
    cdef dict pairs
    if kind != OF_DICT:
        return list(container)
    items = list(container.items())
    pairs = dict(items)
    return pairs if len(pairs) == len(items) else None


cdef int settle(Writing *frames, Py_ssize_t depth) except -1:
    """Replace dictionaries that are being written by copies of their rest: Python code that runs next may change them.

    Otherwise a key might be written twice. A list may change; the items that it has when its turn comes are written.
    """
    cdef bint collecting = PyGC_Disable()
    cdef Py_ssize_t number
    cdef PyObject *key
    cdef PyObject *value
    cdef PyObject *before
    cdef list left
    try:
        for number in range(depth):
            if frames[number].kind != OF_DICT:
                continue
            left = []
            before = frames[number].container
            while PyDict_Next(<object>before, &frames[number].position, &key, &value):
                left.append(<object>key)
                left.append(<object>value)
            Py_INCREF(left)
            frames[number].container = <PyObject *>left
            frames[number].position = 0
            frames[number].kind = OF_PAIRS
            Py_DECREF(<object>before)
    finally:
        if collecting:
            PyGC_Enable()
    return 0


cdef bint write_document(Out *out, object value, Writing **frames, Py_ssize_t *depth) except -1:
    """Write a value; False if it cannot be written: the codec then reports which part.

    The caller frees `frames`, and the containers that it holds, `depth` of them.
    """
    cdef Py_ssize_t room = 0
    cdef Writing *more
    cdef Writing *frame
    cdef Py_ssize_t items
    cdef int kind
    cdef PyObject *found_key
    cdef PyObject *found
    cdef object key
    while True:
        kind = kind_of(value)
        if kind == NO_CONTAINER:
            if not put_scalar(out, value):
                return False
        else:
            if type(value) is not dict and type(value) is not list and type(value) is not tuple:
                settle(frames[0], depth[0])
                value = plain(value, kind)
                if value is None:
                    return False
                if kind == OF_TUPLE:
                    kind = OF_LIST
            items = len(value)
            if depth[0] >= out.depth or items > out.container_items:
                return False
            if depth[0] == room:
                room = 2 * room + 16
                more = <Writing *>realloc(frames[0], room * sizeof(Writing))
                if more == NULL:
                    raise MemoryError()
                frames[0] = more
            put_byte(out, OBJECT_CODE if kind == OF_DICT else ARRAY_CODE)
            frame = &frames[0][depth[0]]
            Py_INCREF(value)
            frame.container = <PyObject *>value
            frame.position = 0
            frame.kind = kind
            depth[0] += 1
        while True:  # until there is a next value
            if depth[0] == 0:
                return out.size <= out.document_bytes
            frame = &frames[0][depth[0] - 1]
            if frame.kind == OF_LIST:
                if frame.position < PyList_GET_SIZE(<object>frame.container):
                    if frame.position >= out.container_items:
                        return False  # it has grown
                    value = <object>PyList_GET_ITEM(<object>frame.container, frame.position)
                    frame.position += 1
                    break
            elif frame.kind == OF_DICT:
                if PyDict_Next(<object>frame.container, &frame.position, &found_key, &found):
                    key = <object>found_key
                    value = <object>found
                    if not isinstance(key, str) or not put_string(out, key):
                        return False
                    break
            elif frame.kind == OF_PAIRS:
                if frame.position + 1 < PyList_GET_SIZE(<object>frame.container):
                    key = <object>PyList_GET_ITEM(<object>frame.container, frame.position)
                    value = <object>PyList_GET_ITEM(<object>frame.container, frame.position + 1)
                    frame.position += 2
                    if not isinstance(key, str) or not put_string(out, key):
                        return False
                    break
            elif frame.position < PyTuple_GET_SIZE(<object>frame.container):
                value = <object>PyTuple_GET_ITEM(<object>frame.container, frame.position)
                frame.position += 1
                break
            put_byte(out, END_CODE)
            depth[0] -= 1
            Py_DECREF(<object>frame.container)
        if out.size > out.document_bytes:
            return False


cdef bint put_value(Out *out, object value) except -1:
    """Append a value; False if it cannot be written, and then a part of it may have been written."""
    cdef Writing *frames = NULL
    cdef Py_ssize_t depth = 0
    try:
        return write_document(out, value, &frames, &depth)
    finally:
        while depth > 0:
            depth -= 1
            Py_DECREF(<object>frames[depth].container)
        free(frames)


cdef int put_bytes(Out *out, const unsigned char *data, Py_ssize_t size) except -1:
    """Write bytes that are BONJSON already."""
    if out.room - out.size < size:
        grow(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef int put_unsigned(Out *out, uint64_t number) except -1:
    """Write a number from 0 to 2**64-1."""
    return put_integer(out, number, False)


cdef bint put_key(Out *out, object text) except -1:
    """Write a string. False where it cannot be written."""
    return put_string(out, text)


def encode(value, *, limits=DEFAULT_LIMITS):
    """The document of a value: None, bool, int, float, str, lists, tuples and dicts of such. Raises `EncodeError`."""
    cdef Out out
    cdef Source bounds
    open_out(&out)
    if limits is not DEFAULT_LIMITS:
        set_limits(&bounds, limits)
        out.depth = bounds.depth
        out.document_bytes = bounds.document_bytes
        out.string_bytes = bounds.string_bytes
        out.container_items = bounds.container_items
    try:
        if put_value(&out, value):
            return PyBytes_FromStringAndSize(<const char *>out.data, out.size)
    finally:
        close_out(&out)
    return _encode_or_say_why(value, limits=limits)
