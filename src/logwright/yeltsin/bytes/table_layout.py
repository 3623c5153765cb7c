"""The layout of a YeltsinDB table, version 1: bytes, limits and file names. Nothing here reads or writes.

The file, all integers little-endian, but for the version, which is two single bytes; an offset counts from the
beginning of the file, and 0 means none:

    0        4       5       6              14            22               30
    | "TBL!" | major | minor | first page   | last page   | last free page | pages of 65,536 bytes ...

`TBL?` in place of `TBL!` says that a change was begun and not finished. A page is named by its offset, 30 + 65,536 · i:

    0       1       9          17     19
    | flags | next  | previous | rows | data, 65,517 bytes |

Bit 0 of the flags is set in a page that was removed. The pages in use form a doubly linked list from the first page to
the last. The removed pages form a list as well: it begins with the page that was removed last, and `next` is the one
removed before it; `previous`, the rows and the data of a removed page mean nothing. A table has at least one page in
use.

Beside a table `t.ydb`, ours:

    .logwright/t.ydb.lck    the writer's lock
    .logwright/t.ydb.redo   what the redo of another program's transaction is making of the links, see `redo_note.py`
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

WHOLE: Final = b"TBL!"
UNFINISHED: Final = b"TBL?"
SIGNATURE_BYTES: Final = 4
TABLE_HEAD: Final = struct.Struct("<4sBBQQQ")
"""signature, major and minor version, first page, last page, last free page"""
TABLE_HEAD_BYTES: Final = TABLE_HEAD.size
VERSION_AT: Final = 4
LINKS_AT: Final = 6
TABLE_LINKS: Final = struct.Struct("<QQQ")
"""first page, last page, last free page"""
VERSION: Final = (1, 0)

PAGE_BYTES: Final = 65536
PAGE_HEAD: Final = struct.Struct("<BQQH")
"""flags, next, previous, rows"""
PAGE_HEAD_BYTES: Final = PAGE_HEAD.size
PAGE_DATA_BYTES: Final = PAGE_BYTES - PAGE_HEAD_BYTES
DELETED: Final = 0x01
"""The flag of a page that was removed."""
MAX_ROWS: Final = 2**16 - 1
FIRST_PAGE: Final = TABLE_HEAD_BYTES
NO_PAGE: Final = 0
NOTE_SUFFIX: Final = ".redo"

assert TABLE_HEAD_BYTES == 30
assert LINKS_AT + TABLE_LINKS.size == TABLE_HEAD_BYTES
assert PAGE_HEAD_BYTES == 19
assert PAGE_DATA_BYTES == 65517 < 2**16  # so that one modification can hold all data of a page


class PageHead(NamedTuple):
    """The head of a page."""

    flags: int = 0
    next: int = NO_PAGE
    previous: int = NO_PAGE
    rows: int = 0

    @property
    def deleted(self) -> bool:
        """Whether the page is free."""
        return bool(self.flags & DELETED)

    def encode(self) -> bytes:
        return PAGE_HEAD.pack(*self)


@dataclass(slots=True)
class TableLinks:
    """Where the lists of a table begin and end."""

    first: int = FIRST_PAGE
    last: int = FIRST_PAGE
    last_free: int = NO_PAGE

    def encode(self) -> bytes:
        return TABLE_LINKS.pack(self.first, self.last, self.last_free)

    def copy(self) -> TableLinks:
        return TableLinks(self.first, self.last, self.last_free)


def encode_table_head(links: TableLinks, signature: bytes = WHOLE) -> bytes:
    """The first bytes of a table."""
    return TABLE_HEAD.pack(signature, *VERSION, links.first, links.last, links.last_free)


def new_table() -> bytes:
    """A table of one empty page."""
    return encode_table_head(TableLinks()) + bytes(PAGE_BYTES)


def page_count(size: int) -> int:
    """The number of whole pages in a file of this size."""
    return max(0, size - TABLE_HEAD_BYTES) // PAGE_BYTES


def pages_end(size: int) -> int:
    """Where the whole pages of a file end. A new page goes there, and overwrites what is left of a torn one."""
    return TABLE_HEAD_BYTES + page_count(size) * PAGE_BYTES


def is_page(offset: int, size: int) -> bool:
    """Whether a file of this size has a whole page at an offset."""
    return TABLE_HEAD_BYTES <= offset <= size - PAGE_BYTES and (offset - TABLE_HEAD_BYTES) % PAGE_BYTES == 0
