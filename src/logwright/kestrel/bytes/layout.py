"""The layout of a kestrel journal: bytes, names and limits. Nothing here reads or writes.

An operation is an opcode of one byte, followed by its fields. All integers are little-endian:

    0    1       5              5+4+d
    | 0  | size  | expires (s) | data |                               ADD, size = 4 + d
    | 2  | size  | added (ms) | expires (ms) | data |                 ADDX, size = 16 + d
    | 1 |                                                             REMOVE
    | 3 |                                                             REMOVE_TENTATIVE
    | 4  | xid |                                                      SAVE_XID
    | 5  | xid |                                                      UNREMOVE
    | 6  | xid |                                                      CONFIRM_REMOVE
    | 7  | xid | size | added (ms) | expires (ms) | data |            ADD_XID, size = 16 + d
    | 8  | xid | count |                                              STATE_DUMP, in the dialect `documented`
    | 8  | xid | size | added (ms) | expires (ms) | data |            CONTINUE, in the dialect `kestrel2`
    | 9  | xid |                                                      REMOVE_TENTATIVE_XID, in `kestrel2` only

`size`, `xid`, `count` and the seconds are i32, times in milliseconds are i64. `size` is the number of bytes that follow
it. An expiry of 0 means never.

The files of the queue `cars` in its directory:

    cars                the newest, which is appended to
    cars.904            rotated; numbered by milliseconds since the epoch; replayed in order of number, before `cars`
    cars.950.pack       the state of all rotated files up to 950, which are dead; the next step removes the suffix
    cars~~951           temporary: readers ignore names with `~~`
    .logwright/cars.lck ours: the writer's lock
    .logwright/cars.packed  ours: the files that the latest pack replaces
    .logwright/cars.rotated ours: the rotated files
    .logwright/cut/     ours: copies of bytes that were cut
    cars~delayed        ours: a queue of the items of `cars` that were put with a delay; each expires when it is due
    .logwright/ledger/cars  ours: a queue of notes: ids that were put, items that are retried later (see `delays.py`)
"""

from __future__ import annotations

import re
import struct
from typing import Final

from ...errors import WrongUse

ADD, REMOVE, ADDX, REMOVE_TENTATIVE, SAVE_XID, UNREMOVE, CONFIRM_REMOVE, ADD_XID, STATE_DUMP = range(9)
REMOVE_TENTATIVE_XID: Final = 9
CONTINUE: Final = 10
"""Operations by number. In a file a CONTINUE is an 8, like a STATE_DUMP: the dialect decides which it is."""
CONTINUE_BYTE: Final = 8

DOCUMENTED, KESTREL2, UNDECIDED = range(3)
"""Dialects by number. While the dialect is UNDECIDED, a walk stops at an 8 or a 9."""

XID: Final = struct.Struct("<i")
SIZE: Final = struct.Struct("<i")
ADD_HEAD: Final = struct.Struct("<Bii")
"""opcode, size, expires in seconds"""
ADDX_HEAD: Final = struct.Struct("<Biqq")
"""opcode, size, added, expires"""
ADD_XID_HEAD: Final = struct.Struct("<Biiqq")
"""opcode, xid, size, added, expires"""
STATE_DUMP_HEAD: Final = struct.Struct("<Bii")
"""opcode, xid, count"""
XID_HEAD: Final = struct.Struct("<Bi")
"""opcode, xid"""

LEAST_SIZE: Final = {ADD: 4, ADDX: 16, ADD_XID: 16, CONTINUE: 16}
"""The value of `size` without data."""
DATA_HEAD_BYTES: Final = {
    ADD: ADD_HEAD.size,
    ADDX: ADDX_HEAD.size,
    ADD_XID: ADD_XID_HEAD.size,
    CONTINUE: ADD_XID_HEAD.size,
}
"""The operations that add an item, and the number of bytes before the data of each."""
LONGEST_HEAD_BYTES: Final = ADD_XID_HEAD.size
MAX_SIZE: Final = 2**31 - 1
MAX_DATA_BYTES: Final = MAX_SIZE - 16

FIRST_PLAUSIBLE_MS: Final = 946_684_800_000
LAST_PLAUSIBLE_MS: Final = 4_102_444_800_000
"""The years 2000 to 2100: a search in damaged bytes expects items that were added in these."""

PACK_SUFFIX: Final = ".pack"
TEMPORARY: Final = "~~"
HOME_DIRECTORY: Final = ".logwright"
LOCK_SUFFIX: Final = ".lck"
NOTE_SUFFIX: Final = ".packed"
ROTATED_SUFFIX: Final = ".rotated"
PARKED_SUFFIX: Final = "_parked"
DELAYED_SUFFIX: Final = "~delayed"
LEDGER_DIRECTORY: Final = f"{HOME_DIRECTORY}/ledger"

MAX_NAME_BYTES: Final = 255 - len(".99999999999999999999.pack")
"""The longest name of a queue: the names of its files must not be too long for a file system."""

_ROTATED_NAME: Final = re.compile(r"([^./~\x00][^./\x00]*)\.([0-9]{1,20})(\.pack)?", re.DOTALL)
_NEWEST_NAME: Final = re.compile(r"[^./~\x00][^./\x00]*", re.DOTALL)
_QUEUE_NAME: Final = re.compile(r"[^./~+\x00]+(?:\+[^./~+\x00]+)?", re.DOTALL)

assert ADD_HEAD.size == 9
assert ADDX_HEAD.size == 21
assert ADD_XID_HEAD.size == 25
assert STATE_DUMP_HEAD.size == 9
assert XID_HEAD.size == 5


def check_queue_name(name: object) -> None:
    """Raise `WrongUse` if a new queue cannot have this name. Some names would lead out of the directory as paths."""
    if not isinstance(name, str):
        raise WrongUse(f"{name!r} is not a valid queue name: it is not a string")
    if _QUEUE_NAME.fullmatch(name) is None:
        raise WrongUse(f"{name!r} is not a valid queue name: it must not contain / ~ + . except for one + inside")
    try:
        size = len(name.encode("utf-8", "surrogateescape"))  # names of files need not be UTF-8
    except UnicodeEncodeError:
        raise WrongUse(f"{name!r} is not a valid queue name: it is not a valid file name") from None
    if size > MAX_NAME_BYTES:
        raise WrongUse(f"{name[:40]!r}… is too long for a queue name: the limit is {MAX_NAME_BYTES} bytes")


def is_queue_name(name: object) -> bool:
    """Whether a new queue may have this name: without `/ ~ + .`, except for the one `+` of a fan-out queue."""
    try:
        check_queue_name(name)
    except WrongUse:
        return False
    return True


def check_journal_name(name: str) -> None:
    """Raise `WrongUse` if no queue of ours has this name: neither a queue, nor the delayed items of one."""
    check_queue_name(name.removesuffix(DELAYED_SUFFIX))
    if len(name.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
        raise WrongUse(f"{name[:40]!r}… is too long for a queue name: the limit is {MAX_NAME_BYTES} bytes")


PLACEHOLDER_ADDED: Final = 0
PLACEHOLDER_EXPIRES: Final = 1
"""The times in milliseconds of an item that a repair writes in place of a lost one: it has expired."""


def parse_name(name: str) -> tuple[str, int | None, bool] | None:
    """The queue that a file belongs to, the number that it was rotated under, and whether it is a pack.

    The number is None for a queue's newest file. Returns None for a name that no file of a queue has.
    """
    if TEMPORARY in name:
        return None
    if _NEWEST_NAME.fullmatch(name):
        return name, None, False
    match = _ROTATED_NAME.fullmatch(name)
    return (match[1], int(match[2]), match[3] is not None) if match else None


def rotated_name(queue: str, timestamp_ms: int) -> str:
    """The name of a file that was rotated at this time."""
    return f"{queue}.{timestamp_ms}"


def parked_name(queue: str) -> str:
    """The queue that failed items of a queue are parked in, unless `park` names another one."""
    return f"{queue.replace('+', '-')}{PARKED_SUFFIX}"  # with a + it would be a child, and receive every item


def delayed_name(queue: str) -> str:
    """The queue that holds the delayed items of a queue. No user's queue has a `~` in its name."""
    return f"{queue}{DELAYED_SUFFIX}"


def ledger_name(queue: str) -> str:
    """The path of a queue's ledger, relative to its directory."""
    return f"{LEDGER_DIRECTORY}/{queue}"


def lock_name(queue: str) -> str:
    """The path of a queue's lock, relative to its directory."""
    return f"{HOME_DIRECTORY}/{queue}{LOCK_SUFFIX}"


def rotated_note_name(queue: str) -> str:
    """The path of the note of a queue's rotated files, relative to its directory."""
    return f"{HOME_DIRECTORY}/{queue}{ROTATED_SUFFIX}"


def note_name(queue: str) -> str:
    """The path of the note of a queue's latest pack, relative to its directory."""
    return f"{HOME_DIRECTORY}/{queue}{NOTE_SUFFIX}"
