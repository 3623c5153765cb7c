"""Which dialect a journal is in: `documented`, as the original is described, or `kestrel2`, as its releases write.

The two differ in an 8 (STATE_DUMP or CONTINUE) and a 9 (none, or REMOVE_TENTATIVE_XID). Until the first of these both
read the same, so the question does not arise before. Then:

- a 9 means kestrel2;
- an 8 that reads as one of the two only settles it. As a STATE_DUMP its count is not negative and as many ADD_XID
  follow it, or the file ends before; as a CONTINUE its size is at least 16, all of it is there, and an operation or the
  end of the file follows;
- where an 8 reads as both, the rest of the journal is read both ways, and the one that is valid decides. When both do,
  it is documented, and `both_fit` is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...core.bytes.outcome import Malformed
from ...core.io.disk import Disk, File
from ...errors import NotFound, StorageFailed, is_refusal
from ..bytes import codec
from ..bytes.layout import (
    ADD_XID,
    ADD_XID_HEAD,
    DOCUMENTED,
    KESTREL2,
    LONGEST_HEAD_BYTES,
    REMOVE_TENTATIVE_XID,
    STATE_DUMP,
    STATE_DUMP_HEAD,
    UNDECIDED,
)
from ..bytes.records import DIALECTS, Dialect
from .continuation import judge
from .cursor import Chunk, Cursor
from .files import JournalFile

_MOST_FOLLOWERS: Final = 64
"""How many of the ADD_XID behind a state dump are looked at."""
_NAMES: Final = {number: name for name, number in DIALECTS.items()}


@dataclass(slots=True)
class Verdict:
    """The dialect of a journal as far as it is known: `dialect` may be UNDECIDED. `settle` finds it out.

    `both_fit` says that there is an 8, and that either reading of the journal would do. With `skips_unreadable` a file
    that cannot be read does not count: `verify` reports it when it comes to it.
    """

    dialect: int
    files: Callable[[], list[JournalFile]]
    disk: Disk
    both_fit: bool = False
    is_settled: bool = False
    """Whether something in the journal has settled it."""
    skips_unreadable: bool = False

    def settle(self) -> int:
        """The dialect; from now on it is known."""
        if self.dialect == UNDECIDED:
            self.dialect, self.both_fit = self._examine()
            self.is_settled = self.dialect != UNDECIDED
            if self.dialect == UNDECIDED:
                self.dialect = DOCUMENTED
        return self.dialect

    def _examine(self) -> tuple[int, bool]:
        files = self.files()
        while True:
            try:
                return examine(self.disk, files)
            except StorageFailed as error:
                readable = [file for file in files if file.path != error.path]
                if not self.skips_unreadable or is_refusal(error) or len(readable) == len(files):
                    raise
                files = readable

    @property
    def name(self) -> Dialect:
        """The name of the dialect; `auto` while nothing has decided."""
        return _NAMES[self.dialect]  # type: ignore[return-value]


@dataclass(slots=True)
class _Reading:
    """How far one reading of a journal goes: through all of it, up to what it cannot read, up to a contradiction."""

    files: int = 0
    position: int = 0
    fits: bool = True


def examine(disk: Disk, files: list[JournalFile]) -> tuple[int, bool]:
    """The dialect of these files together, and whether both would fit; UNDECIDED when there is neither an 8 nor a 9."""
    found = _find_first(disk, files)
    if found is None:
        return UNDECIDED, False
    number, position, opcode = found
    if opcode == REMOVE_TENTATIVE_XID:
        return KESTREL2, False
    documented, continued = _block_fits(disk, files[number], position)
    if documented != continued:
        return (DOCUMENTED if documented else KESTREL2), False
    if not documented:
        return DOCUMENTED, False
    one, other = (_read_on(disk, files, number, position, dialect) for dialect in (DOCUMENTED, KESTREL2))
    if one.fits:
        return DOCUMENTED, other.fits
    if other.fits or (other.files, other.position) > (one.files, one.position):
        return KESTREL2, False
    return DOCUMENTED, False


def _find_first(disk: Disk, files: list[JournalFile]) -> tuple[int, int, int] | None:
    """Where the first 8 or 9 is: number of the file, position, and which of the two."""
    for number, source in enumerate(files):
        file = _open(disk, source)
        if file is None:
            continue
        try:
            cursor = Cursor(file, source, dialect=UNDECIDED)
            while True:
                while cursor.read(load=False) is not None:
                    pass
                if cursor.ending == codec.DIALECT_NEEDED:
                    return number, cursor.position, file.read_at(cursor.position, 1)[0]
                if not judge(cursor)[1]:
                    break
        finally:
            file.close()
    return None


def _open(disk: Disk, source: JournalFile) -> File | None:
    try:
        return disk.open(source.path, "read")
    except NotFound:  # rotated or packed while we looked
        return None


def _block_fits(disk: Disk, source: JournalFile, position: int) -> tuple[bool, bool]:
    """Whether the 8 at a position reads as a STATE_DUMP, and whether as a CONTINUE."""
    file = _open(disk, source)
    if file is None:
        return True, False
    try:
        size_of_file = file.size()
        return _dump_fits(file, position, size_of_file), _continue_fits(file, source, position, size_of_file)
    finally:
        file.close()


def _dump_fits(file: File, position: int, size_of_file: int) -> bool:
    head = file.read_at(position, STATE_DUMP_HEAD.size)
    if len(head) < STATE_DUMP_HEAD.size:
        return True  # cut short: nothing speaks against either
    count = STATE_DUMP_HEAD.unpack(head)[2]
    if count < 0:
        return False
    position += STATE_DUMP_HEAD.size
    for _ in range(min(count, _MOST_FOLLOWERS)):
        if position >= size_of_file:
            return True
        head = file.read_at(position, ADD_XID_HEAD.size)
        if head[0] != ADD_XID:
            return False
        try:
            size = codec.claimed_size(head, 0, len(head), DOCUMENTED)
        except Malformed:
            return False
        if size is None:
            return True
        position += size
    return count > _MOST_FOLLOWERS or _is_opcode(file, position, size_of_file, DOCUMENTED)


def _continue_fits(file: File, source: JournalFile, position: int, size_of_file: int) -> bool:
    head = file.read_at(position, ADD_XID_HEAD.size)
    try:
        size = codec.claimed_size(head, 0, len(head), KESTREL2)
    except Malformed:
        return False
    if size is None or position + size > size_of_file:
        return source.is_newest  # cut short by a crash
    return _is_opcode(file, position + size, size_of_file, KESTREL2)


def _is_opcode(file: File, position: int, size_of_file: int, dialect: int) -> bool:
    """Whether what is at a position, if anything, begins like an operation."""
    if position >= size_of_file:
        return position == size_of_file
    head = file.read_at(position, LONGEST_HEAD_BYTES)
    try:
        codec.claimed_size(head, 0, len(head), dialect)
    except Malformed:
        return False
    return True


def _read_on(disk: Disk, files: list[JournalFile], number: int, position: int, dialect: int) -> _Reading:
    """Read the rest of a journal in one dialect, up to what speaks against it."""
    reading = _Reading(number, position)
    for reading.files in range(number, len(files)):
        source = files[reading.files]
        file = _open(disk, source)
        if file is None:
            continue
        try:
            cursor = Cursor(file, source, position if reading.files == number else 0, dialect=dialect)
            while (chunk := cursor.read(load=False)) is not None:
                at = _contradiction(file, chunk)
                if at is not None:
                    reading.position, reading.fits = at, False
                    return reading
            reading.position = cursor.position
            is_torn = cursor.ending == codec.INCOMPLETE and source.is_newest
            if cursor.ending != codec.CLEAN and not is_torn:
                reading.fits = False
                return reading
        finally:
            file.close()
    return reading


def _contradiction(file: File, chunk: Chunk) -> int | None:
    """The position of a STATE_DUMP that does not read like one; None when there is none."""
    kinds, _, positions = chunk.effects()
    size_of_file = file.size()
    row = kinds.find(STATE_DUMP)
    while row >= 0:
        if not _dump_fits(file, positions[row], size_of_file):
            return positions[row]
        row = kinds.find(STATE_DUMP, row + 1)
    return None
