"""A note beside a journal: how many bytes of each file are on the disk for certain, and the ids that it begins with.

The bytes of a file do not show that it was longer, or that the last file was there at all: a journal may end anywhere.
Nor do they show that the first ids of the first file were others. So a writer notes both.

    .logwright/appendfile.files     a row of 64 bytes for each file, in any order

    0         8       16        24        32          36       44         60
    | file id | bytes | checked | current | finished? | before | 16 zeros | CRC32C of the bytes before |
      u64       u64     u64       u64       u32         u64                 u32

`before` is the first segment of which no earlier file of the generation has records: when these files are gone, the
segments before it must have been checked. It is 0 in the first file of a generation, and where it is unknown.

A row is written after a sync of its file, and `finished` after the next file has its name. So whatever part of the
note a power cut leaves is true, and the note itself needs no sync: a row that is missing, old or torn only proves less.
No row spans two sectors. The rows of files that were removed are used again.

A file of another program has no row, and what the note does not say is unknown. It is never a reason to change bytes,
except for the first ids of a file that otherwise has its size.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ...core.bytes.crc32c import crc32c
from ...core.io.disk import Disk, File, write_all
from ...errors import LogwrightError
from ..bytes.layout import CHECKPOINT_BYTES, NOTE_NAME

_ROW: Final = struct.Struct("<QQQQIQ16x")
_CHECKSUM: Final = struct.Struct("<I")
_ROW_BYTES: Final = _ROW.size + _CHECKSUM.size
_MOST_BYTES: Final = 64 << 20

assert 512 % _ROW_BYTES == 0


class Noted(NamedTuple):
    """What is known of a file: it begins with these ids, and has at least `size` bytes, or exactly if `is_finished`.

    No earlier file of its generation has records of the segment `before` or of later ones; 0 if that is unknown.
    """

    size: int
    ids: tuple[int, int]
    is_finished: bool = False
    before: int = 0

    def fits(self, size: int) -> bool:
        """Whether a file of this size can be the one that was noted."""
        return size == self.size if self.is_finished else size >= self.size


def read_note(disk: Disk, directory: Path) -> dict[int, Noted]:
    """What is known of the files of a journal, by their ids."""
    return {file_id: noted for file_id, noted in _rows(_content(disk, directory)) if noted is not None}


def packed_note(files: Mapping[int, Noted]) -> bytes:
    """The contents of a note."""
    return b"".join(_packed(file_id, noted) for file_id, noted in files.items())


class Note:
    """The note of a journal, for its writer.

    It is evidence and nothing else: if it cannot be written, nothing is noted from then on, and no call fails.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._noted: dict[int, Noted] = {}
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._count = 0
        self._failed = False

    def read(self) -> None:
        """Find out what is noted. The lock of the journal is held."""
        for place, (file_id, noted) in enumerate(_rows(_content(self._disk, self._directory))):
            self._count = place + 1
            if noted is None or file_id in self._places:
                self._free.append(place)
            else:
                self._places[file_id], self._noted[file_id] = place, noted

    def put(self, file_id: int, noted: Noted) -> None:
        """Note a file of which `size` bytes are on the disk, unless more of it was noted already, or it has no ids."""
        known = self._noted.get(file_id)
        if (
            self._failed
            or noted.size < CHECKPOINT_BYTES
            or (known is not None and known.size >= noted.size and not noted.is_finished)
        ):
            return
        try:
            if self._file is None:
                self._file = self._disk.open(self._directory / NOTE_NAME, "update")
            place = self._places.get(file_id)
            if place is None:
                place = self._places[file_id] = self._free.pop() if self._free else self._count
                self._count = max(self._count, place + 1)
            if known is not None and known.ids == noted.ids:
                noted = noted._replace(before=known.before)
            self._noted[file_id] = noted
            write_all(self._file, place * _ROW_BYTES, _packed(file_id, noted))
        except LogwrightError:
            self._failed = True  # the next writer tries again

    def forget(self, file_id: int) -> None:
        """Use the row of a file that was removed for another one."""
        place = self._places.pop(file_id, None)
        if place is not None:
            del self._noted[file_id]
            self._free.append(place)

    def forget_before(self, oldest: int) -> None:
        """Use the rows of all files before this one for others."""
        for file_id in [file_id for file_id in self._places if file_id < oldest]:
            self.forget(file_id)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _packed(file_id: int, noted: Noted) -> bytes:
    row = _ROW.pack(file_id, noted.size, *noted.ids, noted.is_finished, noted.before)
    return row + _CHECKSUM.pack(crc32c(row))


def _rows(content: bytes) -> list[tuple[int, Noted | None]]:
    """The rows of a note, each with the id of its file; None for one that is not whole."""
    found: list[tuple[int, Noted | None]] = []
    for start in range(0, len(content), _ROW_BYTES):
        row, checksum = content[start : start + _ROW.size], content[start + _ROW.size : start + _ROW_BYTES]
        if len(checksum) < _CHECKSUM.size or _CHECKSUM.pack(crc32c(row)) != checksum:
            found.append((0, None))
            continue
        file_id, size, checked, current, is_finished, before = _ROW.unpack(row)
        found.append((file_id, Noted(size, (checked, current), bool(is_finished), before)))
    return found


def _content(disk: Disk, directory: Path) -> bytes:
    """The bytes of a note; none if there is none, or if it cannot be read."""
    with contextlib.suppress(LogwrightError), closing(disk.open(directory / NOTE_NAME, "read")) as file:
        return file.read_at(0, min(file.size(), _MOST_BYTES))
    return b""
