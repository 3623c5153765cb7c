"""The layout of a sej journal: bytes, names and limits. Nothing here reads or writes.

A message, all integers big-endian:

    0        8          16    17        18    18+k        22+k    22+k+v      26+k+v
    | offset | timestamp | type | key_size | key | value_size | value | size |
       u64       i64        u8      i8      k bytes    i32     v bytes   i32

`size` counts the whole message, itself included, so that a file can be read backwards. A timestamp is nanoseconds since
the epoch; the smallest i64 means "no timestamp".

A journal's directory:

    jnl/0000000000000000.jnl    segments, named by the offset of their first message in 16 hexadecimal digits
    jnl.lck                     the writer's lock
    ofs/NAME.ofs  ofs/NAME.lck  a consumer's committed offset (u64) and its lock
    idx/0000000000000000.idx    ours: a sparse index of that segment; may be missing, is never trusted over the file
    jnl/0000000000000000.jnl.crc   ours, on request: checksums of that segment's blocks
    .logwright/cut/             ours: copies of bytes that were cut
"""

from __future__ import annotations

import re
import struct
from typing import Final

from ...errors import TooLarge, WrongUse

HEAD: Final = struct.Struct(">QqBb")
"""offset, timestamp, type, key_size"""
VALUE_SIZE: Final = struct.Struct(">i")
TRAILER: Final = struct.Struct(">i")
OFFSET: Final = struct.Struct(">Q")

OVERHEAD: Final = HEAD.size + VALUE_SIZE.size + TRAILER.size
"""The size of a message without key and value."""
MAX_KEY_BYTES: Final = 127
MAX_MESSAGE_BYTES: Final = 2**31 - 1
MAX_OFFSET: Final = 2**64 - 1
NO_TIMESTAMP: Final = -(2**63)
"""The timestamp of a message without one, and the largest of no timestamps; the next constant is their smallest."""
MAX_TIMESTAMP: Final = 2**63 - 1

DEFAULT_SEGMENT_BYTES: Final = 1 << 30

SEGMENT_DIRECTORY: Final = "jnl"
SEGMENT_SUFFIX: Final = ".jnl"
LOCK_NAME: Final = "jnl.lck"
OFFSET_DIRECTORY: Final = "ofs"
OFFSET_SUFFIX: Final = ".ofs"
OFFSET_LOCK_SUFFIX: Final = ".lck"
OFFSET_TEMPORARY_SUFFIX: Final = ".ofs.tmp"
INDEX_DIRECTORY: Final = "idx"
INDEX_SUFFIX: Final = ".idx"
CHECKSUM_SUFFIX: Final = ".crc"

_SEGMENT_NAME: Final = re.compile(r"0*([0-9a-fA-F]{1,16})\.jnl")

assert OVERHEAD == 26
assert HEAD.size == 18
assert MAX_KEY_BYTES == 2**7 - 1  # the largest i8


def segment_name(first_offset: int) -> str:
    """The file name of the segment whose first message has this offset."""
    return f"{first_offset:016x}{SEGMENT_SUFFIX}"


def parse_segment_name(name: str) -> int | None:
    """The first offset in the name of a segment; None for any other name."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def check_offset(offset: int) -> None:
    """Raise `WrongUse` for an offset that does not fit its field."""
    if not 0 <= offset <= MAX_OFFSET:
        raise WrongUse(f"offset {offset} is not within 0 and 2^64 - 1")


def check_fields(value: bytes, key: bytes, type: int, timestamp: int | None) -> None:
    """Raise `WrongUse` or `TooLarge` for a message that the format cannot hold."""
    if len(key) > MAX_KEY_BYTES:
        raise TooLarge(f"the key has {len(key)} bytes, a sej key has at most {MAX_KEY_BYTES}")
    if OVERHEAD + len(key) + len(value) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"a value of {len(value)} bytes makes a message of more than {MAX_MESSAGE_BYTES} bytes")
    if not 0 <= type <= 255:
        raise WrongUse(f"type {type} is not within 0 and 255")
    if timestamp is not None and not NO_TIMESTAMP < timestamp < 2**63:
        raise WrongUse(f"timestamp {timestamp} does not fit 64 bits of nanoseconds")
