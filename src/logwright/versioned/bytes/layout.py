"""What the bytes of a versioned journal are, and what its files are called. All integers are little-endian.

    0             8             16   17
    +-------------+-------------+----+--------------------+---------+---------+-----
    | version = 2 | position    | 99 | metadata           | entry   | entry   | …
    +-------------+-------------+----+--------------------+---------+---------+-----
      u64           u64           u8   BONJSON object       BONJSON objects

`position` is where the next entry goes, counted from the beginning of the file: 17 at least. The file is a buffer that
was made larger than what is in it, and whatever is at `position` and after it means nothing. An entry is written
first, then the position. Byte 16 begins a BONJSON array that never ends; its first value is the metadata

    {"initialized": u64 in nanoseconds, "format_version": 2}

and each other one an entry, a change of one key:

    {"t": u64 in nanoseconds, "k": string, "o": value, or null for a deletion}

Times are nanoseconds since the epoch and never go down within a journal. Other fields may follow these.

The files of the store `cars` in its directory:

    cars.jrn                the active journal, never compressed
    cars.jrn.t1699.zz       an archive (zlib): the journal that was active until the entry of the time 1699
    cars.jrn.tmp            the next active journal, before its rotation is done
    cars.jrn.old            the last active journal, until its archive is there
    cars.jrn.t1699.zz.tmp   an archive that is being made
    .logwright/cars.lck     ours: the writer's lock
    .logwright/cut/         ours: copies of what was cut
"""

from __future__ import annotations

import struct
from typing import Final

from .bonjson.layout import ARRAY_CODE, OBJECT_CODE, SHORT_STRING_CODE

VERSION: Final = 2
HEADER: Final = struct.Struct("<QQB")
"""version, position, array start"""
HEADER_BYTES: Final = HEADER.size
VERSION_AT: Final = 0
POSITION_AT: Final = 8
ARRAY_AT: Final = 16
POSITION: Final = struct.Struct("<Q")
ARRAY_START: Final = ARRAY_CODE
NEWER_ARRAY_START: Final = 0xB7
"""The type code of an array in the BONJSON of 2026."""

INITIALIZED: Final = "initialized"
FORMAT_VERSION: Final = "format_version"
TIMESTAMP: Final = "t"
KEY: Final = "k"
VALUE: Final = "o"

MAX_TIMESTAMP: Final = 2**64 - 1
ENTRY_START: Final = bytes([OBJECT_CODE, SHORT_STRING_CODE + 1]) + TIMESTAMP.encode()
"""The first bytes of an entry by every known writer. Other beginnings are valid, but cannot be searched for."""
LEAST_ENTRY_BYTES: Final = 11
"""The size of `{"t": 0, "k": "", "o": null}`."""

JOURNAL_SUFFIX: Final = ".jrn"
TEMPORARY_SUFFIX: Final = ".tmp"
OLD_SUFFIX: Final = ".old"
ARCHIVE_SUFFIX: Final = ".zz"
HOME_DIRECTORY: Final = ".logwright"
LOCK_SUFFIX: Final = ".lck"
ARCHIVE_LEVEL: Final = 5

assert HEADER_BYTES == 17
assert POSITION_AT + POSITION.size == ARRAY_AT == HEADER_BYTES - 1
assert ARRAY_START == 0x99
