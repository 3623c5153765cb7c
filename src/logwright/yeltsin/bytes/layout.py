"""The layout of a YeltsinDB journal: bytes, limits and file names. Nothing here reads or writes.

The file, all integers little-endian; an offset counts from the beginning of the file, and 0 means none:

    0        4                12              20
    | "JRNL" | first offset   | last offset   | transactions ...

A transaction, whose last operation ends it:

    0                 8             16               24      25
    | previous offset | next offset | created (s)    | flags | operation ... end |

An operation consists of its type, the size of its data, and its data:

    0    1        5
    | 01 | 24     | page u64 | last free before u64 | last free after u64 |     page allocation
    | 02 | 12+2n  | page u64 | offset u16 | n u16 | before n | after n |        page modification
    | 03 | 16     | page u64 | last free before u64 |                           page removal
    | FE | any    | any |                                                       the end: rolled back, it is void
    | FF | any    | any |                                                       the end: the journal holds all of it

Sizes are u32, the time is i64, seconds since 1970. Bit 0 of the flags says that the transaction is in the storage;
the meaning of the other bits is unknown, and they are kept.

The files beside a journal `t.jrnl`, all of them ours:

    .logwright/t.jrnl.lck   the writer's lock
    .logwright/cut/         copies of what was cut
"""

from __future__ import annotations

import struct
from typing import Final

SIGNATURE: Final = b"JRNL"
HEADER: Final = struct.Struct("<4sQQ")
"""signature, offset of the first transaction, offset of the last"""
HEADER_BYTES: Final = HEADER.size
FIRST_AT: Final = 4
LAST_AT: Final = 12

TRANSACTION_HEAD: Final = struct.Struct("<QQqB")
"""previous, next, timestamp, flags"""
TRANSACTION_HEAD_BYTES: Final = TRANSACTION_HEAD.size
PREVIOUS_AT: Final = 0
NEXT_AT: Final = 8
TIMESTAMP_AT: Final = 16
FLAGS_AT: Final = 24
"""The positions of the fields of a transaction, relative to its beginning."""
LINK: Final = struct.Struct("<Q")
LINKS: Final = struct.Struct("<QQ")
"""previous, next"""
LAST_TIME: Final = 253_402_300_799
"""The end of the year 9999, in seconds: no clock shows a later time."""
COMPLETE: Final = 0x01
"""The flag of a transaction that is in the storage."""

ALLOCATION: Final = 0x01
MODIFICATION: Final = 0x02
REMOVAL: Final = 0x03
ROLLBACK: Final = 0xFE
COMPLETION: Final = 0xFF

OPERATION_HEAD: Final = struct.Struct("<BI")
"""type, size of the data"""
OPERATION_HEAD_BYTES: Final = OPERATION_HEAD.size
ALLOCATION_DATA: Final = struct.Struct("<QQQ")
"""page, last free before, last free after"""
MODIFICATION_HEAD: Final = struct.Struct("<QHH")
"""page, offset in the page's data, size; the images before and after follow"""
REMOVAL_DATA: Final = struct.Struct("<QQ")
"""page, last free before"""

LEAST_TRANSACTION_BYTES: Final = TRANSACTION_HEAD_BYTES + OPERATION_HEAD_BYTES
"""The size of a transaction with no operation but its end."""
MAX_IMAGE_BYTES: Final = 2**16 - 1
MAX_MODIFICATION_BYTES: Final = MODIFICATION_HEAD.size + 2 * MAX_IMAGE_BYTES
MAX_END_BYTES: Final = 2**32 - 1

JOURNAL_SUFFIX: Final = ".jrnl"
HOME_DIRECTORY: Final = ".logwright"
LOCK_SUFFIX: Final = ".lck"

assert HEADER_BYTES == 20
assert TRANSACTION_HEAD_BYTES == 25
assert OPERATION_HEAD_BYTES == 5
assert ALLOCATION_DATA.size == 24
assert MODIFICATION_HEAD.size == 12
assert REMOVAL_DATA.size == 16
assert MAX_MODIFICATION_BYTES == 131_082


def lock_name(name: str) -> str:
    """The path of a journal's lock, relative to its directory."""
    return f"{HOME_DIRECTORY}/{name}{LOCK_SUFFIX}"
