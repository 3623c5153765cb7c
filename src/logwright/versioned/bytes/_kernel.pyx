# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Entries to columns and objects, and fields to bytes, compiled: the same functions as in codec.py. No I/O.

Every advance is checked against the end of the bytes first: BONJSON's kernel does that, and says where a value ends. An
entry as every known writer makes it, `t`, `k` and `o` in this order, takes the short way; whatever else looks like an
entry goes through BONJSON as a whole first, and is then searched for its fields.
"""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from ...core.bytes._buffers cimport View, check_count, check_range, not_walked
from ._entries cimport Fields, take_quickly
from ._growing cimport Growing, append, drop, take_bytes
from ._json cimport append_json
from ._shapes cimport Shape, open_shape
from .bonjson._bytes cimport load_number
from .bonjson._kernel cimport (
    Out,
    Source,
    Text,
    close_out,
    open_out,
    put_bytes,
    put_key,
    put_unsigned,
    put_value,
    read_document,
    set_limits,
    set_range,
    skip_document,
    take_long_string,
)

from ...errors import TooLarge
from . import codec as _codec
from .bonjson import errors as _bonjson_errors
from .bonjson import layout as _bonjson
from .bonjson.layout import DEFAULT_LIMITS
from .codec import Columns, decode_entry
from .codec import pack_encoded as _pack_encoded_or_say_why
from .codec import pack_entry as _pack_or_say_why
from .layout import LEAST_ENTRY_BYTES as _LEAST_ENTRY_BYTES
from .records import Entry

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    bint PyLong_CheckExact(object value)
    unsigned long long PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF

# --- what is agreed upon with the other modules -----------------------------------------------------------------------

cdef enum:
    CLEAN = 0
    INCOMPLETE = 1
    MALFORMED = 2
    EARLY = 3

cdef enum:
    TIMESTAMPS = 1
    KEYS = 2
    VALUES = 4
    DELETED = 8
    POSITIONS = 16
    SIZES = 32
    RAW_VALUES = 64

if (_codec.CLEAN, _codec.INCOMPLETE, _codec.MALFORMED, _codec.EARLY) != (CLEAN, INCOMPLETE, MALFORMED, EARLY) or (
    _codec.TIMESTAMPS, _codec.KEYS, _codec.VALUES, _codec.DELETED, _codec.POSITIONS, _codec.SIZES, _codec.RAW_VALUES
) != (TIMESTAMPS, KEYS, VALUES, DELETED, POSITIONS, SIZES, RAW_VALUES):
    raise ImportError("the kernel and codec.py disagree about endings or columns")

cdef enum:
    OBJECT_CODE = 0x9A
    END_CODE = 0x9B
    LONG_STRING_CODE = 0x68
    NULL_CODE = 0x6D
    UNSIGNED_CODE = 0x70
    SIGNED_CODE = 0x78
    SHORT_STRING_CODE = 0x80

for _name, _ours in {
    "OBJECT_CODE": OBJECT_CODE, "END_CODE": END_CODE, "LONG_STRING_CODE": LONG_STRING_CODE, "NULL_CODE": NULL_CODE,
    "UNSIGNED_CODE": UNSIGNED_CODE, "SIGNED_CODE": SIGNED_CODE, "SHORT_STRING_CODE": SHORT_STRING_CODE,
}.items():
    if getattr(_bonjson, _name) != _ours:
        raise ImportError(f"the kernel and bonjson's layout.py disagree about {_name}")

cdef int TRUNCATED = _bonjson_errors.TRUNCATED
cdef int LAST_PROBLEM = _bonjson_errors.CONTAINER_TOO_LARGE
cdef int64_t DEPTH = DEFAULT_LIMITS.depth
cdef Py_ssize_t LEAST_ENTRY_BYTES = _LEAST_ENTRY_BYTES
cdef int64_t MAX_COLUMN_BYTES = _codec.MAX_COLUMN_BYTES

# --- one entry --------------------------------------------------------------------------------------------------------


cdef int open_source(Source *source) except -1:
    """Read BONJSON as journals have it: the last one of equal keys counts, NaN is a number."""
    set_limits(source, DEFAULT_LIMITS)
    source.last_key_wins = True
    source.allow_nan = True
    return 0


cdef inline bint take_timestamp(
    const unsigned char *data, Py_ssize_t *position, Py_ssize_t end, uint64_t *number
) noexcept nogil:
    """Read the integer from 0 to 2^64-1 at a position, and move the position past it; False if there is none."""
    cdef Py_ssize_t at = position[0]
    cdef Py_ssize_t size
    cdef int code
    if at >= end:
        return False
    code = data[at]
    if code <= 100:
        number[0] = <uint64_t>code
        position[0] = at + 1
        return True
    if not UNSIGNED_CODE <= code < SHORT_STRING_CODE:
        return False
    size = (code & 7) + 1
    if size > end - at - 1:
        return False
    number[0] = load_number(data + at + 1, size, end - at - 1)
    position[0] = at + 1 + size
    return code < SIGNED_CODE or not data[at + size] & 0x80


cdef inline bint take_name(
    const unsigned char *data, Py_ssize_t *position, Py_ssize_t end, unsigned char letter
) noexcept nogil:
    """Read the name of one letter at a position, and move the position past it; False if it is not there."""
    cdef Py_ssize_t at = position[0]
    if end - at < 3 or data[at] != SHORT_STRING_CODE + 1 or data[at + 1] != letter:
        return False
    position[0] = at + 2
    return True


cdef bint take_plain(
    Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Fields *fields
) noexcept nogil:
    """Read the entry at `start` if it is whole and has the usual fields in their order, and move the source past it."""
    cdef Py_ssize_t at = start + 1
    cdef int code
    if start >= end or data[start] != OBJECT_CODE or not take_name(data, &at, end, c"t"):
        return False
    if not take_timestamp(data, &at, end, &fields.t) or not take_name(data, &at, end, c"k"):
        return False
    code = data[at]
    if code & 0xF0 != SHORT_STRING_CODE and code != LONG_STRING_CODE:
        return False
    fields.key_at = at
    set_range(source, data, at, end)
    source.depth = DEPTH - 1
    if skip_document(source) < 0:
        return False
    at = source.position
    if not take_name(data, &at, end, c"o"):
        return False
    fields.value_start = source.position = at
    if skip_document(source) < 0:
        return False
    at = source.position
    if at >= end or data[at] != END_CODE:
        return False
    fields.value_end = at
    fields.plain = True
    source.position = at + 1
    return True


cdef int take_any(Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Fields *fields) noexcept nogil:
    """The entry at `start`, whatever the order of its fields and whatever others it has."""
    cdef Py_ssize_t stop, at, value_at
    cdef Text text
    cdef int letter, code
    cdef bint has_t = False
    cdef bint has_k = False
    cdef bint has_o = False
    if start >= end:
        return NEEDS_MORE
    if data[start] != OBJECT_CODE:
        return NO_ENTRY
    set_range(source, data, start, end)
    source.depth = DEPTH
    if skip_document(source) < 0:
        if source.problem > LAST_PROBLEM:
            return NO_MEMORY
        return NEEDS_MORE if source.problem == TRUNCATED else NO_ENTRY
    stop = source.position
    source.position = start + 1
    while True:  # every advance is checked again: another process may write to these bytes
        at = source.position
        if at >= stop:
            return NO_ENTRY
        code = data[at]
        if code == END_CODE:
            break
        source.position = at + 1
        text.gathered = NULL
        if code == LONG_STRING_CODE:
            if take_long_string(source, at, &text) < 0:
                free(text.gathered)
                return NO_MEMORY
        else:
            text.data = data + at + 1
            text.size = code & 15
            if text.size >= stop - at:
                return NO_ENTRY
            source.position += text.size
        letter = text.data[0] if text.size == 1 else 0
        free(text.gathered)
        value_at = source.position
        if skip_document(source) < 0:
            return NO_MEMORY  # all of it was passed before
        if letter == c"t":
            has_t = take_timestamp(data, &value_at, stop, &fields.t)
        elif letter == c"k":
            code = data[value_at]
            has_k = code & 0xF0 == SHORT_STRING_CODE or code == LONG_STRING_CODE
            fields.key_at = value_at
        elif letter == c"o":
            has_o = True
            fields.value_start = value_at
            fields.value_end = source.position
    source.position = stop
    fields.plain = False
    return WHOLE if has_t and has_k and has_o else NO_ENTRY


cdef int take_entry(
    Source *source, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Fields *fields
) noexcept nogil:
    """Read the entry at `start`; if it is whole, move the source past it."""
    cdef Py_ssize_t stop = take_quickly(data, start, end, fields)
    if stop:
        set_range(source, data, start, end)
        source.position = stop
        return WHOLE
    if take_plain(source, data, start, end, fields):
        return WHOLE
    return take_any(source, data, start, end, fields)


cdef int take_key(Source *source, Fields *fields, Text *text) noexcept nogil:
    """The bytes of the key of an entry that was taken; `gathered` is to be freed. -1 when there is no memory."""
    cdef int code = source.data[fields.key_at]
    text.gathered = NULL
    if code != LONG_STRING_CODE:
        text.data = source.data + fields.key_at + 1
        text.size = min(code & 15, source.end - fields.key_at - 1)  # another process may have written to it
        return 0
    source.position = fields.key_at + 1
    return take_long_string(source, fields.key_at, text)


cdef View walked_range(object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count):
    """The memory of a range that should hold `count` entries."""
    cdef View view = View(buffer)
    check_range(view, start, end)
    check_count(start, end, count, LEAST_ENTRY_BYTES)
    return view


# --- many entries -----------------------------------------------------------------------------------------------------


cdef int walk_ending(int answer, bint is_early) noexcept nogil:
    """How a walk ends whose last entry was this."""
    if is_early:
        return EARLY
    return CLEAN if answer == WHOLE else INCOMPLETE if answer == NEEDS_MORE else MALFORMED


def walk(
    buffer,
    Py_ssize_t start,
    Py_ssize_t end,
    Py_ssize_t most=-1,
    uint64_t last=0,
    uint64_t begun=0xFFFFFFFFFFFFFFFFULL,
):
    """Go from entry to entry; see codec.walk."""
    cdef View view = View(buffer)
    check_range(view, start, end)
    cdef Source source
    cdef Shape shape
    cdef Fields fields
    cdef const unsigned char *data = view.data
    cdef Py_ssize_t position = start
    cdef Py_ssize_t count = 0
    cdef uint64_t smallest = 0
    cdef uint64_t largest = 0
    cdef bint is_early = False
    cdef int answer = WHOLE
    open_source(&source)
    open_shape(&shape)
    with nogil:
        while position < end and count != most:
            answer = take_next(&source, &shape, data, position, end, &fields)
            if answer != WHOLE:
                break
            if fields.t < last and last > begun:
                is_early = True
                break
            last = fields.t
            if count == 0 or fields.t < smallest:
                smallest = fields.t
            if fields.t > largest:
                largest = fields.t
            position = source.position
            count += 1
    if answer == NO_MEMORY:
        raise MemoryError()
    return position, count, walk_ending(answer, is_early), smallest, largest


cdef int walked_entry(
    Source *source, Shape *shape, const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, Fields *fields
) except -1:
    """The entry at a position of a walked range."""
    cdef int answer = take_next(source, shape, data, position, stop, fields)
    if answer == NO_MEMORY:
        raise MemoryError()
    if answer != WHOLE:
        raise not_walked(position)
    return 0


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    """Where the entries of a walked range begin, and where the last one ends."""
    cdef View view = walked_range(buffer, start, stop, count)
    cdef array starts = clone(array("q"), count + 1, False)
    cdef long long *into = starts.data.as_longlongs
    cdef Source source
    cdef Shape shape
    cdef Fields fields
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row
    open_source(&source)
    open_shape(&shape)
    for row in range(count):
        into[row] = position
        walked_entry(&source, &shape, view.data, position, stop, &fields)
        position = source.position
    into[count] = position
    return starts


def entries(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count):
    """The entries of a walked range."""
    cdef View view = walked_range(buffer, start, stop, count)
    cdef Source source
    cdef Shape shape
    cdef Fields fields
    cdef Text text
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, after
    cdef list found = []
    open_source(&source)
    open_shape(&shape)
    for row in range(count):
        walked_entry(&source, &shape, view.data, position, stop, &fields)
        after = source.position
        if not fields.plain:
            found.append(decode_entry(buffer, position, stop)[0])
        else:
            if take_key(&source, &fields, &text) < 0:
                free(text.gathered)
                raise MemoryError()
            try:
                key = PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)
            finally:
                free(text.gathered)
            set_range(&source, view.data, fields.value_start, fields.value_end)
            found.append(Entry(fields.t, key, read_document(&source)))
        position = after
    return found


# --- columns ----------------------------------------------------------------------------------------------------------


cdef class Strings:
    """A column of strings that is being gathered."""

    cdef Growing bytes
    cdef array ends

    def __cinit__(self, Py_ssize_t count):
        memset(&self.bytes, 0, sizeof(Growing))
        self.ends = clone(array("i"), count + 1, False)
        self.ends.data.as_ints[0] = 0

    def __dealloc__(self):
        drop(&self.bytes)

    cdef int end_row(self, Py_ssize_t row) except -1:
        if self.bytes.size > MAX_COLUMN_BYTES:
            raise TooLarge(f"a column of {self.bytes.size} bytes does not fit 2^31 - 1")
        self.ends.data.as_ints[row + 1] = <int32_t>self.bytes.size
        return 0

    cdef tuple take(self):
        return self.ends.tobytes(), take_bytes(&self.bytes)


def columns(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int want=127, uint64_t base=0):
    """The entries of a walked range as columns; see codec.columns."""
    cdef View view = walked_range(buffer, start, stop, count)
    cdef Source source
    cdef Shape shape
    cdef Fields fields
    cdef Text text
    cdef Py_ssize_t position = start
    cdef Py_ssize_t row, after
    cdef const unsigned char *data = view.data
    cdef array numbers = array("Q")
    cdef array timestamps = clone(numbers, count if want & TIMESTAMPS else 0, False)
    cdef array positions = clone(numbers, count if want & POSITIONS else 0, False)
    cdef array sizes = clone(array("q"), count if want & SIZES else 0, False)
    cdef array deleted = clone(array("B"), count if want & DELETED else 0, False)
    cdef Strings keys = Strings(count if want & KEYS else 0)
    cdef Strings values = Strings(count if want & VALUES else 0)
    cdef Strings raw_values = Strings(count if want & RAW_VALUES else 0)
    open_source(&source)
    open_shape(&shape)
    for row in range(count):
        walked_entry(&source, &shape, data, position, stop, &fields)
        after = source.position
        if want & TIMESTAMPS:
            timestamps.data.as_ulonglongs[row] = fields.t
        if want & POSITIONS:
            positions.data.as_ulonglongs[row] = base + <uint64_t>position
        if want & SIZES:
            sizes.data.as_longlongs[row] = after - position
        if want & DELETED:
            deleted.data.as_uchars[row] = data[fields.value_start] == NULL_CODE
        if want & KEYS:
            if take_key(&source, &fields, &text) < 0:
                free(text.gathered)
                raise MemoryError()
            try:
                append(&keys.bytes, text.data, text.size)
            finally:
                free(text.gathered)
            keys.end_row(row)
        if want & RAW_VALUES:
            append(&raw_values.bytes, data + fields.value_start, fields.value_end - fields.value_start)
            raw_values.end_row(row)
        if want & VALUES:
            append_json(&values.bytes, &source, data, fields.value_start, stop)
            values.end_row(row)
        position = after
    found = Columns(count)
    if want & TIMESTAMPS:
        found.timestamps = timestamps.tobytes()
    if want & POSITIONS:
        found.positions = positions.tobytes()
    if want & SIZES:
        found.sizes = sizes.tobytes()
    if want & DELETED:
        found.deleted = deleted.tobytes()
    if want & KEYS:
        found.key_ends, found.keys = keys.take()
    if want & VALUES:
        found.value_ends, found.values = values.take()
    if want & RAW_VALUES:
        found.raw_value_ends, found.raw_values = raw_values.take()
    return found


# --- fields to bytes --------------------------------------------------------------------------------------------------

cdef bytes _start = bytes([OBJECT_CODE, SHORT_STRING_CODE + 1]) + b"t"
cdef bytes _key_name = bytes([SHORT_STRING_CODE + 1]) + b"k"
cdef bytes _value_name = bytes([SHORT_STRING_CODE + 1]) + b"o"
cdef bytes _end = bytes([END_CODE])


cdef bint put_head(Out *out, object t, object k) except -1:
    """What an entry has before its value; False where the codec must say what is wrong."""
    if not PyLong_CheckExact(t) or type(k) is not str:
        return False
    put_bytes(out, <const unsigned char *>PyBytes_AS_STRING(_start), 3)
    try:
        put_unsigned(out, PyLong_AsUnsignedLongLong(t))
    except OverflowError:
        return False
    put_bytes(out, <const unsigned char *>PyBytes_AS_STRING(_key_name), 2)
    if not put_key(out, k):
        return False
    put_bytes(out, <const unsigned char *>PyBytes_AS_STRING(_value_name), 2)
    return True


def pack_entry(t, k, o, extra=None):
    """The bytes of an entry that is given by its fields."""
    cdef Out out
    if extra:
        return _pack_or_say_why(t, k, o, extra)
    open_out(&out)
    out.depth = DEPTH - 1
    try:
        if put_head(&out, t, k) and put_value(&out, o):
            put_bytes(&out, <const unsigned char *>PyBytes_AS_STRING(_end), 1)
            return PyBytes_FromStringAndSize(<const char *>out.data, out.size)
    finally:
        close_out(&out)
    return _pack_or_say_why(t, k, o)


def pack_encoded(t, k, value):
    """The bytes of an entry whose value is BONJSON already."""
    cdef Out out
    cdef View view = View(value)
    open_out(&out)
    try:
        if put_head(&out, t, k):
            put_bytes(&out, view.data, view.size)
            put_bytes(&out, <const unsigned char *>PyBytes_AS_STRING(_end), 1)
            return PyBytes_FromStringAndSize(<const char *>out.data, out.size)
    finally:
        close_out(&out)
    return _pack_encoded_or_say_why(t, k, value)
