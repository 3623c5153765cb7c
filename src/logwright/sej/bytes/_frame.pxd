"""One message as stored in a segment: the size that it claims, and its bytes. See layout.py, which has the ruler.

All of it is inline, so that there is no module to be built or loaded. Its users compare OVERHEAD with layout.py.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ...core.bytes._bytes cimport copy_bytes, load_big_i32, store_big_u32, store_big_u64

cdef enum:
    HEAD = 18
    OVERHEAD = 26
    MOST_BYTES = 0x7FFFFFFF


cdef inline int64_t claimed(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, int64_t *key_bytes
) noexcept nogil:
    """The size that a message claims, and that of its key; -1 when they make no sense, 0 when they are not all there.

    Both are loaded once, and a caller must use these values: the bytes may change meanwhile.
    """
    cdef int key_size
    cdef int64_t value_size
    if end - position < HEAD:
        return 0
    key_size = <signed char>data[position + 17]
    if key_size < 0:
        return -1
    if end - position < HEAD + key_size + 4:
        return 0
    value_size = load_big_i32(data + position + HEAD + key_size)
    if value_size < 0 or value_size + key_size + OVERHEAD > MOST_BYTES:
        return -1
    key_bytes[0] = key_size
    return value_size + key_size + OVERHEAD


cdef inline void put_message(
    unsigned char *out, int64_t room, uint64_t offset, int64_t timestamp, uint8_t kind,
    const unsigned char *key, int64_t key_size, int64_t key_room,
    const unsigned char *value, int64_t value_size, int64_t value_room,
) noexcept nogil:
    """Encode a message into `room` bytes, which its caller knows to be enough; the other rooms are what may be read."""
    store_big_u64(out, offset)
    store_big_u64(out + 8, <uint64_t>timestamp)
    out[16] = kind
    out[17] = <unsigned char>key_size
    copy_bytes(out + HEAD, key, key_size, room - HEAD, key_room)
    out += HEAD + key_size
    store_big_u32(out, <uint32_t>value_size)
    copy_bytes(out + 4, value, value_size, room - HEAD - key_size - 4, value_room)
    store_big_u32(out + 4 + value_size, <uint32_t>(OVERHEAD + key_size + value_size))
