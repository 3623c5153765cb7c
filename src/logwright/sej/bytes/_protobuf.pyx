# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of the hub's wire: the same functions as in protobuf.py, which says what they mean. Buffers only.

Bytes are gone through twice, in both directions: once to check and count everything, once to put it where it goes.
Every advance is checked against the end of the bytes first.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from ...core.bytes._buffers cimport View, check_count, check_range, not_walked
from ...core.bytes._bytes cimport copy_bytes, load_big_u64
from ._frame cimport HEAD, MOST_BYTES, OVERHEAD, claimed, put_message

from ...errors import TooLarge, WrongUse
from .layout import MAX_KEY_BYTES as _MAX_KEY_BYTES
from .layout import OVERHEAD as _OVERHEAD
from .protobuf import KNOWN_FIELDS as _KNOWN_FIELDS
from .protobuf import MOST_DEPTH as _MOST_DEPTH
from .protobuf import _check_field, _no_protobuf, _too_large

cdef enum:
    KNOWN_FIELDS = 32
    MOST_DEPTH = 64
    MOST_KEY = 127

cdef int64_t NO_TIMESTAMP = <int64_t>0x8000000000000000ULL
cdef int64_t MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFF
if (_OVERHEAD, _KNOWN_FIELDS, _MOST_DEPTH, _MAX_KEY_BYTES) != (OVERHEAD, KNOWN_FIELDS, MOST_DEPTH, MOST_KEY):
    raise ImportError("the kernel and layout.py or protobuf.py disagree")

cdef enum:
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    END_GROUP = 4
    FIXED32 = 5

cdef enum:
    GOOD = 0
    NO_PROTOBUF = 1
    OUT_OF_ORDER = 2
    BAD_TYPE = 3
    BAD_SIZE = 4
    TOO_MUCH = 5


# --- to the wire ----------------------------------------------------------------------------------------------------


cdef inline Py_ssize_t varint_size(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


cdef inline unsigned char *put_varint(unsigned char *out, uint64_t number) noexcept nogil:
    while number > 127:
        out[0] = <unsigned char>(number | 128)
        out += 1
        number >>= 7
    out[0] = <unsigned char>number
    return out + 1


cdef inline unsigned char *put_number(unsigned char *out, unsigned char tag, uint64_t number) noexcept nogil:
    if number == 0:
        return out
    out[0] = tag
    return put_varint(out + 1, number)


cdef inline Py_ssize_t number_size(uint64_t number) noexcept nogil:
    return 1 + varint_size(number) if number else 0


cdef struct Head:
    # What a message is made of, loaded once: its bytes may change meanwhile.
    uint64_t offset
    uint64_t timestamp
    uint8_t kind
    int64_t size
    int64_t key_size
    int64_t value_size
    uint64_t inner  # how many bytes its fields take on the wire


cdef inline bint load_head(const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, Head *head) noexcept nogil:
    """The message at a position; False where no walk has passed."""
    cdef const unsigned char *frame = data + position
    head.key_size = 0
    head.size = claimed(data, position, stop, &head.key_size)
    if head.size <= 0 or stop - position < head.size:
        return False
    head.offset = load_big_u64(frame)
    head.timestamp = load_big_u64(frame + 8)
    head.kind = frame[16]
    head.value_size = head.size - OVERHEAD - head.key_size
    head.inner = number_size(head.offset) + number_size(head.timestamp) + number_size(head.kind)
    if head.key_size:
        head.inner += 2 + head.key_size
    if head.value_size:
        head.inner += 1 + varint_size(head.value_size) + head.value_size
    return True


cdef Py_ssize_t c_wire_size(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, Py_ssize_t count
) noexcept nogil:
    """How many bytes messages take on the wire, -1 at bytes that no walk has passed."""
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t row
    cdef Head head
    for row in range(count):
        if not load_head(data, at[0], stop, &head):
            return -1
        total += 1 + varint_size(head.inner) + <Py_ssize_t>head.inner
        at[0] += head.size
    return total


cdef Py_ssize_t c_to_wire(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, Py_ssize_t count, unsigned char tag,
    unsigned char *begin, Py_ssize_t room,
) noexcept nogil:
    """Put messages onto the wire, whose size was counted before; how many bytes. Never more than there is room for."""
    cdef unsigned char *out = begin
    cdef unsigned char *end = begin + room
    cdef Py_ssize_t row
    cdef const unsigned char *frame
    cdef Head head
    for row in range(count):
        if not load_head(data, position, stop, &head):
            break
        if <uint64_t>(end - out) < 1 + varint_size(head.inner) + head.inner:
            break
        frame = data + position
        out[0] = tag
        out = put_varint(out + 1, head.inner)
        out = put_number(out, 0x08, head.offset)
        out = put_number(out, 0x10, head.timestamp)
        out = put_number(out, 0x18, head.kind)
        if head.key_size:
            out[0] = 0x22
            out[1] = <unsigned char>head.key_size
            copy_bytes(out + 2, frame + HEAD, head.key_size, end - out - 2, stop - position - HEAD)
            out += 2 + head.key_size
        if head.value_size:
            out[0] = 0x2A
            out = put_varint(out + 1, head.value_size)
            copy_bytes(
                out, frame + HEAD + head.key_size + 4, head.value_size, end - out,
                stop - position - HEAD - head.key_size - 4,
            )
            out += head.value_size
        position += head.size
    return out - begin


def to_wire(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, int field):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = start
    cdef Py_ssize_t size, used
    cdef unsigned char *out
    check_range(view, start, stop)
    check_count(start, stop, count, OVERHEAD)
    _check_field(field)
    with nogil:
        size = c_wire_size(view.data, &at, stop, count)
    if size < 0:
        raise not_walked(at)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    out = <unsigned char *>PyBytes_AS_STRING(made)
    with nogil:
        used = c_to_wire(view.data, start, stop, count, <unsigned char>(field << 3 | BYTES), out, size)
    if used != size:
        raise WrongUse("these bytes are changing while they are read")
    return made


# --- from the wire --------------------------------------------------------------------------------------------------


cdef struct Found:
    # The fields of one message.
    uint64_t offset
    int64_t timestamp
    uint32_t kind
    const unsigned char *key
    int64_t key_size
    const unsigned char *value
    int64_t value_size


cdef struct Other:
    # A field that is no message: a number, or the place of its bytes.
    bint there
    bint is_bytes
    uint64_t number
    Py_ssize_t start


cdef struct Passed:
    # What the first pass has found.
    uint64_t first
    int64_t count
    int64_t bytes
    int64_t smallest
    int64_t largest
    Other others[KNOWN_FIELDS]


cdef inline bint get_number(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, uint64_t *number
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef unsigned char byte
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        found |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            at[0] = position
            number[0] = found
            return True
        shift += 7
    return False


cdef inline bint get_tag(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, uint64_t *field, int *kind
) noexcept nogil:
    cdef Py_ssize_t position = at[0]
    cdef uint64_t tag = 0
    if not get_number(data, &position, end, &tag):
        return False
    kind[0] = tag & 7
    field[0] = tag >> 3
    if field[0] == 0 or field[0] >= (1 << 29) or kind[0] > FIXED32:
        return False
    at[0] = position
    return True


cdef inline bint get_span(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, Py_ssize_t *start
) noexcept nogil:
    """Where the bytes of a field begin; `at` becomes their end."""
    cdef Py_ssize_t position = at[0]
    cdef uint64_t size = 0
    if not get_number(data, &position, end, &size) or size > <uint64_t>(end - position):
        return False
    start[0] = position
    at[0] = position + <Py_ssize_t>size
    return True


cdef bint skip_field(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, uint64_t field, int kind
) noexcept nogil:
    cdef uint64_t open_groups[MOST_DEPTH]
    cdef int depth = 0
    cdef uint64_t number = 0
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t width
    while True:
        if kind == VARINT:
            if not get_number(data, at, end, &number):
                return False
        elif kind == BYTES:
            if not get_span(data, at, end, &start):
                return False
        elif kind == FIXED32 or kind == FIXED64:
            width = 4 if kind == FIXED32 else 8
            if end - at[0] < width:
                return False
            at[0] += width
        elif kind == GROUP:
            if depth == MOST_DEPTH:
                return False
            open_groups[depth] = field
            depth += 1
        else:
            if depth == 0 or open_groups[depth - 1] != field:
                return False
            depth -= 1
        if depth == 0:
            return True
        if not get_tag(data, at, end, &field, &kind):
            return False


cdef int get_message(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, Found *into
) noexcept nogil:
    cdef Py_ssize_t begin = at[0]
    cdef Py_ssize_t start = 0
    cdef uint64_t field = 0
    cdef uint64_t number = 0
    cdef int kind = 0
    cdef Found found
    found.offset = 0
    found.timestamp = 0
    found.kind = 0
    found.key = found.value = data + end
    found.key_size = found.value_size = 0
    while at[0] < end:
        if not get_tag(data, at, end, &field, &kind):
            return NO_PROTOBUF
        if kind == VARINT:
            if not get_number(data, at, end, &number):
                return NO_PROTOBUF
            if field == 1:
                found.offset = number
            elif field == 2:
                found.timestamp = <int64_t>number
            elif field == 3:
                found.kind = <uint32_t>number
        elif kind == BYTES:
            if not get_span(data, at, end, &start):
                return NO_PROTOBUF
            if field == 4:
                found.key = data + start
                found.key_size = at[0] - start
            elif field == 5:
                found.value = data + start
                found.value_size = at[0] - start
        elif not skip_field(data, at, end, field, kind):
            return NO_PROTOBUF
    into[0] = found
    if found.kind > 255:
        at[0] = begin
        return BAD_TYPE
    if found.key_size > MOST_KEY or OVERHEAD + found.key_size + found.value_size > MOST_BYTES:
        at[0] = begin
        return BAD_SIZE
    return GOOD


cdef int c_check(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t end, uint64_t wanted, int64_t most_bytes,
    Passed *passed, Found *found,
) noexcept nogil:
    """The first pass: whether everything is as it must be, and how much room it takes."""
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t stop
    cdef uint64_t field = 0
    cdef uint64_t number = 0
    cdef int kind = 0
    cdef int answer
    while at[0] < end:
        if not get_tag(data, at, end, &field, &kind):
            return NO_PROTOBUF
        if kind == BYTES:
            if not get_span(data, at, end, &start):
                return NO_PROTOBUF
            stop = at[0]
            if field == wanted:
                at[0] = start
                answer = get_message(data, at, stop, found)
                if answer != GOOD:
                    return answer
                if passed.count and found.offset != passed.first + <uint64_t>passed.count:
                    at[0] = start
                    return OUT_OF_ORDER
                if passed.count == 0:
                    passed.first = found.offset
                passed.count += 1
                passed.bytes += OVERHEAD + found.key_size + found.value_size
                if passed.bytes > most_bytes:
                    return TOO_MUCH
                if found.timestamp > passed.largest:
                    passed.largest = found.timestamp
                if found.timestamp < passed.smallest and found.timestamp != NO_TIMESTAMP:
                    passed.smallest = found.timestamp
            elif field < KNOWN_FIELDS:
                passed.others[field].there = passed.others[field].is_bytes = True
                passed.others[field].start = start
                passed.others[field].number = stop - start
        elif kind == VARINT:
            if not get_number(data, at, end, &number):
                return NO_PROTOBUF
            if field < KNOWN_FIELDS and field != wanted:
                passed.others[field].there = True
                passed.others[field].is_bytes = False
                passed.others[field].number = number
        elif not skip_field(data, at, end, field, kind):
            return NO_PROTOBUF
    return GOOD


cdef int64_t c_from_wire(
    const unsigned char *data, Py_ssize_t end, uint64_t wanted, unsigned char *out, int64_t room
) noexcept nogil:
    """The second pass: write the consecutive messages; returns their size, at most `room`."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t stop
    cdef uint64_t field = 0
    cdef int kind = 0
    cdef int64_t used = 0
    cdef int64_t size
    cdef Found found
    while at < end:
        if not get_tag(data, &at, end, &field, &kind):
            break
        if kind != BYTES or field != wanted:
            if not skip_field(data, &at, end, field, kind):
                break
            continue
        if not get_span(data, &at, end, &start):
            break
        stop = at
        if get_message(data, &start, stop, &found) != GOOD:
            break
        size = OVERHEAD + found.key_size + found.value_size
        if size > room - used:
            break
        put_message(
            out + used, room - used, found.offset, found.timestamp, <uint8_t>found.kind,
            found.key, found.key_size, data + end - found.key, found.value, found.value_size, data + end - found.value,
        )
        used += size
    return used


def from_wire(buffer, int field, int64_t most_bytes):
    cdef View view = View(buffer)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t end = view.size
    cdef int answer
    cdef int64_t used
    cdef Passed passed
    cdef Found found
    cdef unsigned char *out
    _check_field(field)
    memset(&passed, 0, sizeof(passed))
    memset(&found, 0, sizeof(found))
    passed.smallest = MAX_TIMESTAMP
    passed.largest = NO_TIMESTAMP
    with nogil:
        answer = c_check(view.data, &at, end, field, most_bytes, &passed, &found)
    if answer != GOOD:
        _refuse(answer, at, &passed, &found, most_bytes)
    cdef bytearray frames = PyByteArray_FromStringAndSize(NULL, passed.bytes)
    out = <unsigned char *>PyByteArray_AS_STRING(frames)
    with nogil:
        used = c_from_wire(view.data, end, field, out, passed.bytes)
    if used != passed.bytes:
        raise WrongUse("these bytes are changing while they are read")
    cdef dict others = {}
    cdef int number
    for number in range(KNOWN_FIELDS):
        if passed.others[number].there:
            others[number] = _other(view, &passed.others[number])
    return frames, passed.first, passed.count, passed.smallest, passed.largest, others


cdef object _other(View view, Other *other):
    if other.is_bytes:
        return PyBytes_FromStringAndSize(<const char *>view.data + other.start, <Py_ssize_t>other.number)
    return other.number


cdef int _refuse(int answer, Py_ssize_t at, Passed *passed, Found *found, int64_t most_bytes) except -1:
    if answer == OUT_OF_ORDER:
        expected = passed.first + <uint64_t>passed.count
        raise WrongUse(f"@ {at}: the offset is {found.offset} where {expected} was expected")
    if answer == BAD_TYPE:
        raise WrongUse(f"@ {at}: type {found.kind} is not within 0 and 255")
    if answer == BAD_SIZE:
        what = f"a key of {found.key_size} bytes and a value of {found.value_size} make no message of sej"
        raise TooLarge(f"@ {at}: {what}")
    if answer == TOO_MUCH:
        raise _too_large(most_bytes)
    raise _no_protobuf(at)
