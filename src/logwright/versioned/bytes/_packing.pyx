# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Rows of columns to the bytes of entries, compiled: the same function as in codec.py. No I/O.

JSON becomes BONJSON without an object in between, as long as it is plain: no escapes in its strings, integers of up to
18 digits, fractions of up to 15 and no exponents, no key that an object may have twice, no deep nesting. A row that is
anything else goes through Python, which also says what is wrong with it. So all that this must never do is to take what
Python would not, or as something else.
"""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memset

from ...core.bytes._buffers cimport check_ends, column_bytes, column_memory, rows_of
from ._json cimport Level, note_key
from .bonjson._bytes cimport find_bad_utf8
from .bonjson._kernel cimport Out, close_out, open_out, put_bytes, put_float, put_integer, put_text, put_unsigned

from ...errors import WrongUse
from .codec import MAX_COLUMN_BYTES as _MAX_COLUMN_BYTES
from .codec import Rows
from .layout import ENTRY_START as _ENTRY_START

cdef int64_t MAX_COLUMN_BYTES = _MAX_COLUMN_BYTES
cdef bytes _start = _ENTRY_START
cdef const unsigned char *ENTRY_START = _start
cdef const unsigned char *KEY_NAME = b"\x81k"
cdef const unsigned char *VALUE_NAME = b"\x81o"
cdef const unsigned char *ARRAY = b"\x99"
cdef const unsigned char *OBJECT = b"\x9a"
cdef const unsigned char *END = b"\x9b"
cdef const unsigned char *NULL_VALUE = b"\x6d"
cdef const unsigned char *FALSE_VALUE = b"\x6e"
cdef const unsigned char *TRUE_VALUE = b"\x6f"

cdef enum:
    MOST_LEVELS = 32
    MOST_DIGITS = 18  # of an integer; it fits 63 bits
    MOST_FLOAT_DIGITS = 15  # of a fraction; a double holds them exactly, as it does these powers of ten

cdef double POWERS[MOST_FLOAT_DIGITS + 1]
cdef int _power
for _power in range(MOST_FLOAT_DIGITS + 1):
    POWERS[_power] = 10.0**_power


cdef struct Parsing:
    # JSON text, and how far it was read.
    const unsigned char *data
    Py_ssize_t at
    Py_ssize_t end


cdef inline int next_sign(Parsing *text) noexcept nogil:
    """The next character that is no white space, which is not passed; -1 at the end."""
    cdef unsigned char byte
    while text.at < text.end:
        byte = text.data[text.at]
        if byte != c" " and byte != c"\n" and byte != c"\r" and byte != c"\t":
            return byte
        text.at += 1
    return -1


cdef bint take_string(Out *out, Parsing *text, Level *level) except -1:
    """A string without escapes, whose quotation mark is next; it is a key where `level` is given."""
    cdef Py_ssize_t start = text.at + 1
    cdef Py_ssize_t at = start
    cdef unsigned char byte
    cdef unsigned char all_bits = 0
    while True:
        if at >= text.end:
            return False
        byte = text.data[at]
        if byte == c'"':
            break
        if byte == c"\\" or byte < 0x20:
            return False
        all_bits |= byte
        at += 1
    if all_bits & 0x80 and find_bad_utf8(text.data + start, at - start) >= 0:
        return False
    text.at = at + 1
    if level != NULL and note_key(level, text.data + start, at - start):
        return False
    return put_text(out, <const char *>text.data + start, at - start)


cdef bint take_number(Out *out, Parsing *text) except -1:
    """An integer or a fraction of few digits."""
    cdef bint negative = text.data[text.at] == c"-"
    cdef Py_ssize_t first = text.at + negative
    cdef Py_ssize_t at = first
    cdef Py_ssize_t decimals = 0
    cdef uint64_t number = 0
    cdef double fraction
    cdef int digit
    while at < text.end and at - first <= MOST_DIGITS:
        digit = text.data[at] - c"0"
        if not 0 <= digit <= 9:
            break
        number = 10 * number + <uint64_t>digit
        at += 1
    if at == first or at - first > MOST_DIGITS or (text.data[first] == c"0" and at - first > 1):
        return False
    if at < text.end and text.data[at] == c".":
        at += 1
        while at < text.end and at - first <= MOST_FLOAT_DIGITS + 1:
            digit = text.data[at] - c"0"
            if not 0 <= digit <= 9:
                break
            number = 10 * number + <uint64_t>digit
            decimals += 1
            at += 1
        if decimals == 0 or at - first > MOST_FLOAT_DIGITS + 1:
            return False
    if at < text.end and (text.data[at] == c"e" or text.data[at] == c"E"):
        return False
    text.at = at
    if decimals == 0:
        put_integer(out, -number if negative else number, negative and number != 0)
        return True
    fraction = <double>number / POWERS[decimals]  # of two numbers that are exact: rounded once, as it has to be
    return put_float(out, -fraction if negative else fraction)


cdef bint take_word(Out *out, Parsing *text, const char *word, Py_ssize_t size, const unsigned char *code) except -1:
    if text.end - text.at < size or memcmp(text.data + text.at, word, size) != 0:
        return False
    text.at += size
    put_bytes(out, code, 1)
    return True


cdef bint take_scalar(Out *out, Parsing *text, int sign) except -1:
    """A value that is no container and begins with this character."""
    if sign == c'"':
        return take_string(out, text, NULL)
    if sign == c"t":
        return take_word(out, text, b"true", 4, TRUE_VALUE)
    if sign == c"f":
        return take_word(out, text, b"false", 5, FALSE_VALUE)
    if sign == c"n":
        return take_word(out, text, b"null", 4, NULL_VALUE)
    if sign == c"-" or c"0" <= sign <= c"9":
        return take_number(out, text)
    return False


cdef bint take_key(Out *out, Parsing *text, Level *level) except -1:
    """The name of a value in an object, and the colon after it."""
    if next_sign(text) != c'"' or not take_string(out, text, level) or next_sign(text) != c":":
        return False
    text.at += 1
    return True


cdef bint take_json(Out *out, Parsing *text) except -1:
    """The value that fills a text; False where Python must look at it."""
    cdef Level levels[MOST_LEVELS]
    cdef Level *level
    cdef Py_ssize_t depth = 0
    cdef int sign
    while True:
        sign = next_sign(text)
        if sign == c"[" or sign == c"{":
            if depth == MOST_LEVELS:
                return False
            level = &levels[depth]
            memset(level, 0, sizeof(Level))
            level.is_object = sign == c"{"
            depth += 1
            text.at += 1
            put_bytes(out, OBJECT if level.is_object else ARRAY, 1)
            sign = next_sign(text)
            if sign != (c"}" if level.is_object else c"]"):
                if level.is_object and not take_key(out, text, level):
                    return False
                continue
        elif not take_scalar(out, text, sign):
            return False
        while depth > 0:  # what may follow a value: the end of its container, or the next one
            level = &levels[depth - 1]
            sign = next_sign(text)
            text.at += 1
            if sign == c",":
                if level.is_object and not take_key(out, text, level):
                    return False
                break
            if sign != (c"}" if level.is_object else c"]"):
                return False
            put_bytes(out, END, 1)
            depth -= 1
        else:
            return next_sign(text) < 0


cdef struct Rooms:
    # The columns.
    const uint64_t *times
    const int32_t *key_ends
    const unsigned char *keys
    const int32_t *value_ends
    const unsigned char *values
    const unsigned char *deleted
    int64_t key_bytes
    int64_t value_bytes


cdef bint take_row(Out *out, Rooms *rooms, Py_ssize_t row) except -1:
    """The entry of a row; False where Python must look at it."""
    cdef Parsing text
    cdef int64_t key_at = rooms.key_ends[row]
    cdef int64_t size = rooms.key_ends[row + 1] - key_at
    cdef const unsigned char *key = rooms.keys + key_at
    text.at = rooms.value_ends[row]
    text.end = rooms.value_ends[row + 1]
    # Once more: Python runs for some rows, and may have written to the columns.
    if not (0 <= key_at <= key_at + size <= rooms.key_bytes and 0 <= text.at <= text.end <= rooms.value_bytes):
        raise WrongUse("the ends of a column lie outside of its data")
    if find_bad_utf8(key, size) >= 0:
        return False
    put_bytes(out, ENTRY_START, 3)
    put_unsigned(out, rooms.times[row])
    put_bytes(out, KEY_NAME, 2)
    put_text(out, <const char *>key, size)
    put_bytes(out, VALUE_NAME, 2)
    if rooms.deleted != NULL and rooms.deleted[row]:
        put_bytes(out, NULL_VALUE, 1)
    else:
        text.data = rooms.values
        if not take_json(out, &text):
            return False
    put_bytes(out, END, 1)
    return True


def pack(columns):
    """Rows as consecutive entries, and where each of them begins and the last one ends."""
    cdef Py_ssize_t count = rows_of(columns)
    cdef Rooms rooms
    cdef list views = []
    cdef Out out
    cdef Py_ssize_t row, before
    cdef bytes entry
    cdef object rows = None
    cdef object timestamps = columns.timestamps
    cdef array starts = clone(array("q"), count + 1, False)
    rooms.times = <const uint64_t *>column_memory(timestamps, 8 * count, "timestamps", views)
    rooms.key_ends = <const int32_t *>column_memory(columns.key_ends, 4 * (count + 1), "key_ends", views)
    rooms.value_ends = <const int32_t *>column_memory(columns.value_ends, 4 * (count + 1), "value_ends", views)
    rooms.deleted = column_memory(columns.deleted, count, "deleted", views)
    if timestamps is None or rooms.key_ends == NULL or rooms.value_ends == NULL:
        raise WrongUse("entries have times, keys and values, and not all of these columns are there")
    rooms.keys = column_bytes(columns.keys, &rooms.key_bytes, views)
    check_ends(rooms.key_ends, count, rooms.key_bytes, MAX_COLUMN_BYTES, "key")
    rooms.values = column_bytes(columns.values, &rooms.value_bytes, views)
    check_ends(rooms.value_ends, count, rooms.value_bytes, MAX_COLUMN_BYTES, "value")
    open_out(&out)
    try:
        for row in range(count):
            starts.data.as_longlongs[row] = before = out.size
            if not take_row(&out, &rooms, row):
                out.size = before
                rows = Rows(columns) if rows is None else rows
                entry = rows.packed(row)
                put_bytes(&out, <const unsigned char *>PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry))
        starts.data.as_longlongs[count] = out.size
        return PyBytes_FromStringAndSize(<const char *>out.data, out.size), starts
    finally:
        close_out(&out)
