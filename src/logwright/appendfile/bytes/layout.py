"""The layout of an appendfile journal: bytes and file names. All integers are little-endian.

    0          4                    4 + size
    | header   | data               |                     a data record
    | header   | checked | current  |                     a checkpoint record, 20 bytes
      u32        u64       u64

`header = size << 8 | type`. Type 0 is data, type 1 a checkpoint. The size of a checkpoint record is 16; the original
description has 0 there, which is also accepted. `current` is the id of the segment that is being written from here on,
`checked` the oldest one that has not been checked; the two are equal when no closed segment waits to be checked.

A record has at most 1 MiB with its header, a file 4 MiB, and none spans two files. The first record of every file is a
checkpoint record, which repeats the current ids: the hint.

The files of a journal in its directory:

    7.journal                           the records; ids are consecutive, and the largest is written to
    .logwright/appendfile.lck           ours: the writer's lock
    .logwright/appendfile.files         ours: how long files are, and with which ids they begin (see `files/note.py`)
    .logwright/recovery/8/5.journal     ours: an older file; all files before 8 existed when the journal was opened
    .logwright/recovered-8-3-7-35/      ours: files that a recovery has finished; the journal continues with file 8 and
                                        segment 3, and had no data after position 35 of file 7
    .logwright/losses                   ours: the account of losses
    .logwright/cut/                     ours: copies of bytes that were cut
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

DATA, CHECKPOINT = range(2)
"""The types of records."""

HEADER: Final = struct.Struct("<I")
HEADER_BYTES: Final = HEADER.size
PAIR: Final = struct.Struct("<QQ")
"""checked, current"""
PAIR_BYTES: Final = PAIR.size
ID_BYTES: Final = PAIR_BYTES // 2
CHECKPOINT_RECORD: Final = struct.Struct("<IQQ")
"""header, checked, current"""
CHECKPOINT_BYTES: Final = CHECKPOINT_RECORD.size
DESCRIBED_PAIR_BYTES: Final = 0
"""The size in the header of a checkpoint record as the description has it. No program writes it."""

MAX_HEAD_BYTES: Final = 2 * CHECKPOINT_BYTES
"""The bytes that a writer syncs before it adds more to a new file: its hint, and perhaps the same again."""

MAX_RECORD_BYTES: Final = 1 << 20
MAX_DATA_BYTES: Final = MAX_RECORD_BYTES - HEADER_BYTES
MAX_FILE_BYTES: Final = 4 << 20
MAX_ID: Final = 2**64 - 1
MAX_CHECKPOINTS: Final = MAX_FILE_BYTES // CHECKPOINT_BYTES
"""The most checkpoint records of a file: ids grow by no more than that in one file."""

SUFFIX: Final = ".journal"
HOME_DIRECTORY: Final = ".logwright"
LOCK_NAME: Final = f"{HOME_DIRECTORY}/appendfile.lck"
NOTE_NAME: Final = f"{HOME_DIRECTORY}/appendfile.files"
RECOVERY_DIRECTORY: Final = f"{HOME_DIRECTORY}/recovery"

_NAME: Final = re.compile(r"([0-9]+)\.journal", re.ASCII)
_BOUNDARY: Final = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)
_DONE: Final = re.compile("recovered" + rf"-({_BOUNDARY.pattern})" * 4, re.ASCII)

assert CHECKPOINT_BYTES == HEADER_BYTES + PAIR_BYTES == 20
assert MAX_DATA_BYTES < 1 << 24
assert MAX_FILE_BYTES >= MAX_RECORD_BYTES + CHECKPOINT_BYTES


def header(kind: int, size: int) -> int:
    """The header of a record."""
    return size << 8 | kind


def file_name(file_id: int) -> str:
    """The name of the file with this id."""
    return f"{file_id}{SUFFIX}"


def parse_name(name: str) -> int | None:
    """The id in the name of a journal file, with or without leading zeros; None for any other name."""
    match = _NAME.fullmatch(name)
    found = None if match is None else int(match[1])
    return None if found is None or found > MAX_ID else found


def parse_boundary(name: str) -> int | None:
    """The first id that a directory below `RECOVERY_DIRECTORY` is not for; None for any other name."""
    found = int(name) if _BOUNDARY.fullmatch(name) else None
    return None if found is None or found > MAX_ID else found


class Done(NamedTuple):
    """A finished recovery: the ids that the journal continues with, and the end of the files that were removed.

    `last_file` and `last_position` are the end of the last removed file with data: a reader that had reached it has
    missed nothing.
    """

    file_id: int
    segment: int
    last_file: int
    last_position: int

    @property
    def name(self) -> str:
        """The name of the directory after the recovery."""
        return f"{HOME_DIRECTORY}/recovered-{'-'.join(map(str, self))}"


def parse_done(name: str) -> Done | None:
    """The inverse of `name`, without the parent directory; None for any other name."""
    match = _DONE.fullmatch(name)
    found = None if match is None else Done(*map(int, match.groups()))
    return None if found is None or max(found) > MAX_ID else found
