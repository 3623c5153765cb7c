# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The hot loops of yeltsin: the same functions as in codec.py, which says what they mean. Buffers only, no I/O.

Every advance is checked against the end of the bytes first. Loops that need no Python object release the GIL. Links are
offsets in the file, unsigned and hostile: they are compared before anything is computed with them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ...core.bytes._buffers cimport View, array_of, check_count, check_range, not_walked
from ...core.bytes._bytes cimport load_little_i64, load_little_u16, load_little_u32, load_little_u64
from ...core.bytes._column_builder cimport BytesColumn, ColumnBuilder, fits, put_bytes

from . import layout as _layout
from .codec import Columns
from .records import Allocate, Modify, Remove, Transaction

cdef enum:
    CLEAN = 0
    INCOMPLETE = 1
    MALFORMED = 2
    ASTRAY = 3
    JUMP = 4

cdef enum:
    TRANSACTION_HEAD = 25
    OPERATION_HEAD = 5
    ALLOCATION_BYTES = 24
    MODIFICATION_HEAD = 12
    REMOVAL_BYTES = 16
    ALLOCATION = 0x01
    MODIFICATION = 0x02
    REMOVAL = 0x03
    ROLLBACK = 0xFE
    COMPLETION = 0xFF

cdef enum:
    TRANSACTIONS = 1
    OFFSETS = 2
    TIMESTAMPS = 4
    FLAGS = 8
    ENDINGS = 16
    OPERATIONS = 32
    KINDS = 64
    PAGES = 128
    PAGE_OFFSETS = 256
    BEFORE = 512
    AFTER = 1024
    FREE_BEFORE = 2048
    FREE_AFTER = 4096
    POSITIONS = 8192
    SIZES = 16384
    END_DATA = 32768

if (
    _layout.TRANSACTION_HEAD_BYTES, _layout.OPERATION_HEAD_BYTES, _layout.ALLOCATION_DATA.size,
    _layout.MODIFICATION_HEAD.size, _layout.REMOVAL_DATA.size, _layout.ALLOCATION, _layout.MODIFICATION,
    _layout.REMOVAL, _layout.ROLLBACK, _layout.COMPLETION,
) != (
    TRANSACTION_HEAD, OPERATION_HEAD, ALLOCATION_BYTES, MODIFICATION_HEAD, REMOVAL_BYTES, ALLOCATION, MODIFICATION,
    REMOVAL, ROLLBACK, COMPLETION,
):
    raise ImportError("the kernel and layout.py disagree about the operations")


# --- one transaction --------------------------------------------------------------------------------------------------

cdef inline int64_t operation_size(const unsigned char *data, int64_t position, int64_t end) noexcept nogil:
    """The size that an operation claims; -1 when it makes no sense, 0 when it is not there."""
    cdef int kind
    cdef int64_t size
    if end <= position:
        return 0
    kind = data[position]
    if kind != ALLOCATION and kind != MODIFICATION and kind != REMOVAL and kind != ROLLBACK and kind != COMPLETION:
        return -1
    if end - position < OPERATION_HEAD:
        return 0
    size = load_little_u32(data + position + 1)
    if kind == MODIFICATION:
        if size < MODIFICATION_HEAD:
            return -1
        if end - position < OPERATION_HEAD + MODIFICATION_HEAD:
            return 0
        if size != MODIFICATION_HEAD + 2 * <int64_t>load_little_u16(data + position + OPERATION_HEAD + 10):
            return -1
    elif kind == ALLOCATION:
        if size != ALLOCATION_BYTES:
            return -1
    elif kind == REMOVAL:
        if size != REMOVAL_BYTES:
            return -1
    return OPERATION_HEAD + size


cdef inline bint is_end(int kind) noexcept nogil:
    return kind == ROLLBACK or kind == COMPLETION


cdef inline int64_t bound_of(const unsigned char *data, int64_t position, uint64_t base) noexcept nogil:
    """Where in the buffer the next transaction begins, -1 where `next` does not say or cannot be."""
    cdef uint64_t following = load_little_u64(data + position + 8)
    if following < base or following - base < <uint64_t>(position + TRANSACTION_HEAD):
        return -1
    if following - base > <uint64_t>0x7FFFFFFFFFFFFFFFULL:
        return -1  # no operation can go beyond that
    return <int64_t>(following - base)


cdef inline int64_t transaction_size(
    const unsigned char *data, int64_t position, int64_t end, uint64_t base, int *ending
) noexcept nogil:
    """The size of the transaction at a position, 0 when it is not there as a whole, -1 when it is none.

    `ending` becomes the operation that ends it, 0 for none.
    """
    cdef int64_t following, at, size
    if end - position < TRANSACTION_HEAD:
        return 0
    following = bound_of(data, position, base)
    at = position + TRANSACTION_HEAD
    ending[0] = 0
    while at != following:
        size = operation_size(data, at, end)
        if size <= 0:
            return size
        if following >= 0 and at + size > following:
            return -1
        if end - at < size:
            return 0
        if is_end(data[at]):
            ending[0] = data[at]
            return at + size - position
        at += size
    return at - position


# --- many transactions ------------------------------------------------------------------------------------------------

cdef int c_walk(
    const unsigned char *data, int64_t *at, int64_t end, uint64_t base, uint64_t *previous, uint64_t last,
    int64_t most, int64_t *passed,
) noexcept nogil:
    cdef int64_t position = at[0]
    cdef int64_t count = 0
    cdef int64_t size
    cdef int answer = CLEAN
    cdef int ending = 0
    while position < end and count != most:
        if end - position < TRANSACTION_HEAD:
            answer = INCOMPLETE
            break
        if load_little_u64(data + position) != previous[0]:
            answer = ASTRAY
            break
        size = transaction_size(data, position, end, base, &ending)
        if size <= 0:
            answer = INCOMPLETE if size == 0 else MALFORMED
            break
        if ending == 0 and base + <uint64_t>position == last:
            answer = MALFORMED
            break
        previous[0] = base + <uint64_t>position
        position += size
        count += 1
        if previous[0] == last or load_little_u64(data + position - size + 8) != base + <uint64_t>position:
            answer = JUMP
            break
    at[0] = position
    passed[0] = count
    return answer


def walk(buffer, Py_ssize_t start, Py_ssize_t end, uint64_t base, uint64_t previous, uint64_t last, int64_t most=-1):
    cdef View view = View(buffer)
    cdef int64_t at = start
    cdef int64_t count = 0
    cdef int ending
    check_range(view, start, end)
    with nogil:
        ending = c_walk(view.data, &at, end, base, &previous, last, most, &count)
    return at, count, ending, previous


cdef int c_hop(
    const unsigned char *data, uint64_t *at, uint64_t start, uint64_t end, uint64_t base, uint64_t *previous,
    uint64_t last, int64_t most, int64_t *passed,
) noexcept nogil:
    cdef uint64_t place = at[0]
    cdef uint64_t following
    cdef int64_t count = 0
    cdef int answer = CLEAN
    cdef const unsigned char *head
    while count != most and place >= start and end - base >= TRANSACTION_HEAD and place <= end - TRANSACTION_HEAD:
        head = data + (place - base)
        if load_little_u64(head) != previous[0]:
            answer = ASTRAY
            break
        previous[0] = place
        count += 1
        following = load_little_u64(head + 8)
        if place == last or following < place + TRANSACTION_HEAD or following > last:
            place = following
            answer = JUMP
            break
        place = following
    at[0] = place
    passed[0] = count
    return answer


def hop(buffer, Py_ssize_t start, Py_ssize_t end, uint64_t base, uint64_t previous, uint64_t last, int64_t most=-1):
    cdef View view = View(buffer)
    cdef uint64_t at = base + <uint64_t>start
    cdef int64_t count = 0
    cdef int ending
    check_range(view, start, end)
    with nogil:
        ending = c_hop(
            view.data, &at, base + <uint64_t>start, base + <uint64_t>end, base, &previous, last, most, &count
        )
    return at, count, ending, previous


def skim(buffer, Py_ssize_t start, Py_ssize_t end, int64_t following):
    cdef View view = View(buffer)
    cdef int64_t at = start
    cdef int64_t size = 0
    cdef int answer = CLEAN
    cdef int kind = 0
    check_range(view, start, end)
    with nogil:
        while at != following:
            size = operation_size(view.data, at, end)
            if size <= 0:
                answer = INCOMPLETE if size == 0 else MALFORMED
                break
            if 0 <= following < at + size:
                answer = MALFORMED
                break
            at += size
            if is_end(view.data[at - size]):
                kind = view.data[at - size]
                break
    return at, answer, kind, at - size if kind else at


def spans(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t base):
    cdef View view = View(buffer)
    cdef int64_t position = start
    cdef int64_t size
    cdef Py_ssize_t row
    cdef int ending = 0
    check_range(view, start, stop)
    check_count(start, stop, count, TRANSACTION_HEAD)
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, (count + 1) * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(starts)
    for row in range(count):
        out[row] = position
        size = transaction_size(view.data, position, stop, base, &ending)
        if size <= 0:
            raise not_walked(position)
        position += size
    out[count] = position
    return array_of("q", starts)


cdef object make_operation(const unsigned char *data, int kind):
    """The operation of a kind whose data begins here."""
    cdef Py_ssize_t size
    cdef const char *images
    if kind == MODIFICATION:
        size = load_little_u16(data + 10)
        images = <const char *>data + MODIFICATION_HEAD
        return Modify(
            load_little_u64(data), load_little_u16(data + 8), PyBytes_FromStringAndSize(images, size),
            PyBytes_FromStringAndSize(images + size, size),
        )
    if kind == ALLOCATION:
        return Allocate(load_little_u64(data), load_little_u64(data + 8), load_little_u64(data + 16))
    return Remove(load_little_u64(data), load_little_u64(data + 8))


cdef object make_transaction(const unsigned char *data, int64_t size, int ending):
    """The transaction of this size that begins here."""
    cdef int64_t at = TRANSACTION_HEAD
    cdef int64_t whole
    cdef list found = []
    cdef bytes end_data = b""
    while at < size:
        whole = operation_size(data, at, size)
        if not 0 < whole <= size - at:
            raise not_walked(at)  # the bytes have changed since then, as they may: objects are made here
        if is_end(data[at]):
            end_data = PyBytes_FromStringAndSize(<const char *>data + at + OPERATION_HEAD, whole - OPERATION_HEAD)
        else:
            found.append(make_operation(data + at + OPERATION_HEAD, data[at]))
        at += whole
    return Transaction(
        load_little_u64(data), load_little_u64(data + 8), load_little_i64(data + 16), data[24], tuple(found),
        ending if ending else None, end_data,
    )


def transactions(buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t base):
    cdef View view = View(buffer)
    cdef int64_t position = start
    cdef int64_t size
    cdef Py_ssize_t row
    cdef int ending = 0
    check_range(view, start, stop)
    check_count(start, stop, count, TRANSACTION_HEAD)
    cdef list found = []
    for row in range(count):
        size = transaction_size(view.data, position, stop, base, &ending)
        if size <= 0:
            raise not_walked(position)
        found.append(make_transaction(view.data + position, size, ending))
        position += size
    return found


# --- columns ----------------------------------------------------------------------------------------------------------

cdef struct Room:
    # Where the columns of one batch go. A pointer that is NULL: this column was not asked for.
    int64_t *transactions
    uint64_t *offsets
    int64_t *timestamps
    uint8_t *flags
    uint8_t *endings
    int32_t *operations
    uint8_t *kinds
    uint64_t *pages
    int32_t *page_offsets
    BytesColumn before
    BytesColumn after
    uint64_t *free_before
    uint64_t *free_after
    uint64_t *positions
    int64_t *sizes
    BytesColumn end_data
    # How many rows fit, and how many are there.
    int64_t rows
    int64_t row


cdef bint c_put(
    Room *room, const unsigned char *data, int64_t at, int kind, int64_t size, int64_t stop, uint64_t base
) noexcept nogil:
    """Put what is an operation's own, or the end's of a transaction without any, which is of kind 0; False if it does
    not fit."""
    cdef const unsigned char *item = data + at + OPERATION_HEAD
    cdef int64_t row = room.row
    cdef int64_t image = (size - OPERATION_HEAD - MODIFICATION_HEAD) // 2 if kind == MODIFICATION else 0
    cdef int64_t left = stop - at - OPERATION_HEAD
    if not fits(&room.before, image) or not fits(&room.after, image):
        return False
    if room.kinds != NULL:
        room.kinds[row] = <uint8_t>kind
    if room.pages != NULL:
        room.pages[row] = 0 if kind == 0 else load_little_u64(item)
    if room.page_offsets != NULL:
        room.page_offsets[row] = load_little_u16(item + 8) if kind == MODIFICATION else 0
    if room.free_before != NULL:
        room.free_before[row] = 0 if kind == 0 or kind == MODIFICATION else load_little_u64(item + 8)
    if room.free_after != NULL:
        room.free_after[row] = load_little_u64(item + 16) if kind == ALLOCATION else 0
    if room.positions != NULL:
        room.positions[row] = base + <uint64_t>at
    if room.sizes != NULL:
        room.sizes[row] = size
    if image == 0:  # then there may be nothing after the head to copy from
        put_bytes(&room.before, row, data, 0, 0)
        put_bytes(&room.after, row, data, 0, 0)
    else:
        put_bytes(&room.before, row, item + MODIFICATION_HEAD, image, left - MODIFICATION_HEAD)
        put_bytes(&room.after, row, item + MODIFICATION_HEAD + image, image, left - MODIFICATION_HEAD - image)
    return True


cdef inline bint c_put_end(
    Room *room, const unsigned char *data, int64_t at, int64_t end, int64_t stop
) noexcept nogil:
    """Put what the end of a transaction carries, if that is what begins here; False if it does not fit."""
    cdef int64_t place = at + OPERATION_HEAD
    if at < end and is_end(data[at]) and place < end:
        if not fits(&room.end_data, end - place):
            return False
        put_bytes(&room.end_data, room.row, data + place, end - place, stop - place)
    else:
        put_bytes(&room.end_data, room.row, data, 0, 0)
    return True


cdef int64_t c_gather(
    Room *room, const unsigned char *data, int64_t start, int64_t stop, int64_t count, uint64_t base, int64_t number
) noexcept nogil:
    """Put the operations of walked transactions into their columns, which have room for all of them.

    -1, or where the bytes are no longer those that were measured.
    """
    cdef int64_t position = start
    cdef int64_t whole, end, at, size, index
    cdef int32_t operation
    cdef int ending = 0
    cdef int kind
    for index in range(count):
        whole = transaction_size(data, position, stop, base, &ending)
        if whole <= 0:
            return position
        end = position + whole
        at = position + TRANSACTION_HEAD
        operation = 0
        while True:
            size = kind = 0
            if at < end:
                size = operation_size(data, at, end)
                if not 0 < size <= end - at:
                    return position
                kind = data[at]
                if is_end(kind):
                    if operation:
                        break
                    kind = 0
                elif size < least_size(kind):
                    return position
            elif operation:
                break
            if room.row >= room.rows:
                return position
            if room.transactions != NULL:
                room.transactions[room.row] = number + index
            if room.offsets != NULL:
                room.offsets[room.row] = base + <uint64_t>position
            if room.timestamps != NULL:
                room.timestamps[room.row] = load_little_i64(data + position + 16)
            if room.flags != NULL:
                room.flags[room.row] = data[position + 24]
            if room.endings != NULL:
                room.endings[room.row] = <uint8_t>ending
            if room.operations != NULL:
                room.operations[room.row] = operation
            if not c_put(room, data, at, kind, size, stop, base):
                return position
            if not c_put_end(room, data, at + size if kind else at, end, stop):
                return position
            room.row += 1
            operation += 1
            at += size
        position = end
    return -1


cdef inline int64_t least_size(int kind) noexcept nogil:
    """How many bytes of an operation are read whatever it is."""
    if kind == ALLOCATION:
        return OPERATION_HEAD + ALLOCATION_BYTES
    if kind == REMOVAL:
        return OPERATION_HEAD + REMOVAL_BYTES
    return OPERATION_HEAD + MODIFICATION_HEAD


cdef int64_t c_measure(
    const unsigned char *data, int64_t *at, int64_t stop, int64_t count, uint64_t base, int64_t *image_bytes,
    int64_t *end_bytes,
) noexcept nogil:
    """How many rows the transactions have, and how many bytes their images and ends; -1 where no walk has been."""
    cdef int64_t rows = 0
    cdef int64_t index, place, size, before
    cdef int ending = 0
    for index in range(count):
        size = transaction_size(data, at[0], stop, base, &ending)
        if size <= 0:
            return -1
        place = at[0] + TRANSACTION_HEAD
        at[0] += size
        before = rows
        while place < at[0] and not is_end(data[place]):
            size = operation_size(data, place, at[0])
            if size <= 0:
                return -1
            if data[place] == MODIFICATION:
                image_bytes[0] += (size - OPERATION_HEAD - MODIFICATION_HEAD) // 2
            rows += 1
            place += size
        if rows == before:
            rows += 1
        if place < at[0]:
            end_bytes[0] += at[0] - place - OPERATION_HEAD
    return rows


cdef class _BatchBuilder(ColumnBuilder):
    cdef Room _room

    def __init__(self, int want, Py_ssize_t rows, Py_ssize_t image_bytes, Py_ssize_t end_bytes):
        room = {"before": image_bytes, "after": image_bytes, "end_data": end_bytes}
        self._begin(Columns(0), rows, room, bytearray)
        self._room.rows = rows
        self._room.transactions = <int64_t *>self._numbers(want & TRANSACTIONS, "transactions", 8)
        self._room.offsets = <uint64_t *>self._numbers(want & OFFSETS, "offsets", 8)
        self._room.timestamps = <int64_t *>self._numbers(want & TIMESTAMPS, "timestamps", 8)
        self._room.flags = <uint8_t *>self._numbers(want & FLAGS, "flags", 1)
        self._room.endings = <uint8_t *>self._numbers(want & ENDINGS, "endings", 1)
        self._room.operations = <int32_t *>self._numbers(want & OPERATIONS, "operations", 4)
        self._room.kinds = <uint8_t *>self._numbers(want & KINDS, "kinds", 1)
        self._room.pages = <uint64_t *>self._numbers(want & PAGES, "pages", 8)
        self._room.page_offsets = <int32_t *>self._numbers(want & PAGE_OFFSETS, "page_offsets", 4)
        self._bytes(want & BEFORE, "before", "before_ends", &self._room.before)
        self._bytes(want & AFTER, "after", "after_ends", &self._room.after)
        self._room.free_before = <uint64_t *>self._numbers(want & FREE_BEFORE, "free_before", 8)
        self._room.free_after = <uint64_t *>self._numbers(want & FREE_AFTER, "free_after", 8)
        self._room.positions = <uint64_t *>self._numbers(want & POSITIONS, "positions", 8)
        self._room.sizes = <int64_t *>self._numbers(want & SIZES, "sizes", 8)
        self._bytes(want & END_DATA, "end_data", "end_data_ends", &self._room.end_data)

    cdef object gather(self, View view, int64_t start, int64_t stop, int64_t count, uint64_t base, int64_t number):
        """Put all operations of walked transactions, and hand the columns over."""
        cdef int64_t changed
        self._check_ours()
        self._busy = True
        with nogil:
            changed = c_gather(&self._room, view.data, start, stop, count, base, number)
        self._busy = False
        if changed >= 0:
            raise not_walked(changed)
        return self._leave(self._room.row)


def columns(
    buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, uint64_t base, int64_t number=0, int want=65535
):
    cdef View view = View(buffer)
    cdef int64_t at = start
    cdef int64_t image_bytes = 0
    cdef int64_t end_bytes = 0
    cdef int64_t rows
    check_range(view, start, stop)
    check_count(start, stop, count, TRANSACTION_HEAD)
    with nogil:
        rows = c_measure(view.data, &at, stop, count, base, &image_bytes, &end_bytes)
    if rows < 0:
        raise not_walked(at)
    if not want & END_DATA:
        end_bytes = 0
    cdef _BatchBuilder builder = _BatchBuilder(want, rows, image_bytes, end_bytes)
    return builder.gather(view, start, stop, count, base, number)
