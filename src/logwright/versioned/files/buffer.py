"""Buffer: the file of an active journal, made larger than what is in it, as memory that is written to.

The file has all of its space from the beginning, so that writing to it later neither needs space nor changes its
length; and zeros are written a good way ahead of the entries, which makes syncing them twice as fast. Where the system
can map files the memory is the file; elsewhere it is a copy, and every change is written as well. Either way an entry
is stored first, then the position.

What was stored in a mapping takes much longer to sync than what was written by a call (on ext4 under Linux 6.18, 390
against 140 microseconds), for the system has to find it out, and what it notes then goes through the file system's
journal. So a store that syncs each change writes it by `put`, and reads it in the mapping.

What a power cut can leave. Entries and position reach the disk sector by sector, in any order, and one sync carries
both. So the position may be there and count an entry of which some sectors are missing. Those are zeros still, as the
space after the position always is: of each entry a sector has all of its bytes or only zeros. A missing first sector
has no beginning of an entry, a missing last one no end of it. A missing sector in the middle is a sector of zeros,
which within a long string or a list of numbers would look like part of the value. So

    an entry after the mark that has a whole sector of zeros was never written completely, and does not count.

The mark says up to where everything was on the disk at some time, and is in the last bytes of the file, where nothing
of the format is. What is wrong before it is damage and no torn tail: it was on the disk once. A sync raises the mark
when it has brought another sector to the disk, with `always` each fourth one does; it is written with the next sync. An
entry that does have a sector of zeros, for there are such strings and lists, is synced before the position counts it,
and so is the mark after it. Closing leaves another mark, after the last entry: what follows that is another program's,
and its entries are what they look like, as in a journal without a mark.

Another program may also continue a journal that was not closed, and does not change the mark. If an entry of its own
has a sector of zeros, the zeros usually begin before that sector and end after it, which those of a missing sector do
only if the value has zeros on both sides of it. Then nothing says which of the two it is: it is damage, and nothing is
cut off.

    lw-trust | u48: up to where | u16     16 bytes, within one sector; the store is open, or was not closed
    lw-close | u48: up to where | u16     the store was closed

The last two bytes are the place of the mark in units of 16 bytes, modulo 2^16; 0 also where an earlier version of
Logwright wrote it. A mark in another place was moved: bytes were removed from the file, or inserted. No crash does
that, so nothing in such a file is a torn tail.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from ...core.io.disk import Disk, File, Mappable, write_all, write_zeros
from ...errors import LogwrightError
from ..bytes.layout import POSITION, POSITION_AT

Memory: TypeAlias = bytearray
"""Bytes of a fixed number that can be changed: those of a mapping as well, which are used alike."""

SECTOR_BYTES: Final = 512
MARK: Final = struct.Struct("<8sQ")
"""Its kind; up to where entries were on the disk, and in the upper bits its own place."""
_SYNCED_BITS: Final = 48
_PLACE_MASK: Final = (1 << 64 - _SYNCED_BITS) - 1
MARK_MAGIC: Final = b"lw-trust"
CLOSED_MAGIC: Final = b"lw-close"
LEAST_BYTES: Final = 128
"""A buffer cannot be smaller: header, metadata and mark, and a little room."""
AHEAD_BYTES: Final = 1 << 20
"""How far ahead of the entries zeros are written at once. What was only reserved reads as zeros too."""
MARK_TAIL_BYTES: Final = 2 * MARK.size - 1
"""The mark is within this number of bytes at the end of a file."""
_PIECE_BYTES: Final = 1 << 20
_ZERO_SECTOR: Final = bytes(SECTOR_BYTES)

assert MARK.size == 16


def mark_at(size: int) -> int:
    """Where the mark is in a file of this size; entries end before it."""
    return (size - MARK.size) & -MARK.size


class Mark(NamedTuple):
    """Up to where the entries were on the disk when the mark was set, and whether that was by closing the store.

    `is_moved` says that it is not where it was written: bytes before it were removed, or inserted.
    """

    synced: int
    is_closed: bool = False
    is_moved: bool = False

    @property
    def torn_from(self) -> int | None:
        """From where on an entry with a whole sector of zeros was never written completely; None for nowhere."""
        return None if self.is_closed or self.is_moved else self.synced

    def pack(self, place: int) -> bytes:
        """The bytes of the mark at a place."""
        said = place // MARK.size & _PLACE_MASK
        return MARK.pack(CLOSED_MAGIC if self.is_closed else MARK_MAGIC, self.synced | said << _SYNCED_BITS)


def find_mark(tail: bytes | Memory, size: int) -> tuple[int, Mark] | None:
    """The mark in the last bytes of a file of `size` bytes, `MARK_TAIL_BYTES` of them or more, and its place."""
    at = max(tail.rfind(magic, len(tail) - MARK_TAIL_BYTES) for magic in (MARK_MAGIC, CLOSED_MAGIC))
    if at < 0 or at + MARK.size > len(tail) or size < LEAST_BYTES:
        return None
    magic, word = MARK.unpack_from(tail, at)
    place, said = size - len(tail) + at, word >> _SYNCED_BITS
    is_moved = place != mark_at(size) or (said != 0 and said != place // MARK.size & _PLACE_MASK)
    return place, Mark(word & (1 << _SYNCED_BITS) - 1, magic == CLOSED_MAGIC, is_moved)


def read_mark(memory: Memory, size: int, position: int = 0) -> Mark | None:
    """The mark of a file whose entries end at a position; None if there is none, or an entry is in its place."""
    found = find_mark(memory[max(0, size - MARK_TAIL_BYTES) : size], size)
    return None if found is None or found[0] < position <= size else found[1]


def has_zero_sector(memory: Memory | bytes, start: int, end: int, base: int = 0) -> bool:
    """Whether a whole sector between two places has nothing but zeros; the memory begins at `base` of its file."""
    first = start + -(base + start) % SECTOR_BYTES
    return any(
        memory[at] == 0 and memory[at : at + SECTOR_BYTES] == _ZERO_SECTOR
        for at in range(first, end - SECTOR_BYTES + 1, SECTOR_BYTES)
    )


def is_missing_sector(memory: Memory | bytes, start: int, end: int, base: int = 0) -> bool:
    """Whether zeros between two places are those of missing sectors: they begin or end where a sector does."""
    at = start + -(base + start) % SECTOR_BYTES
    while at + SECTOR_BYTES <= end:
        if memory[at : at + SECTOR_BYTES] != _ZERO_SECTOR:
            at += SECTOR_BYTES
            continue
        before = max(start, at - SECTOR_BYTES)  # the sector before it, if there is one, is not all zeros
        first = before + len(memory[before:at].rstrip(b"\0"))
        stop = _zeros_end(memory, at, end)
        if (base + first) % SECTOR_BYTES == 0 or (base + stop) % SECTOR_BYTES == 0:
            return True
        at = stop + -(base + stop) % SECTOR_BYTES
    return False


def _zeros_end(memory: Memory | bytes, start: int, end: int) -> int:
    """The end of the zeros that begin at a place."""
    for at in range(start, end, SECTOR_BYTES):
        found = memory[at : min(at + SECTOR_BYTES, end)].lstrip(b"\0")
        if found:
            return min(at + SECTOR_BYTES, end) - len(found)
    return end


def last_byte(memory: Memory, start: int, end: int) -> int:
    """The position after the last byte of a range that is not zero; `start` when all of them are."""
    for stop in range(end, start, -_PIECE_BYTES):
        first = max(start, stop - _PIECE_BYTES)
        found = memory[first:stop].rstrip(b"\0")
        if found:
            return first + len(found)
    return start


def garbage_end(memory: Memory, start: int, end: int) -> int:
    """The position after the last byte that is not zero, before a long stretch of zeros; `start` when there is none."""
    last = start
    for at in range(start, end, AHEAD_BYTES):
        found = memory[at : min(at + AHEAD_BYTES, end)].rstrip(b"\0")
        if not found:
            break
        last = at + len(found)
    return last


class Buffer:
    """The file of a journal and its memory, which has as many bytes. Zeros were written up to `zeroed`."""

    def __init__(self, file: File, size: int, zeroed: int) -> None:
        self.file = file
        self.size = size
        self.memory = _memory_of(file, size)
        self.is_mapped = not isinstance(self.memory, bytearray)
        """Whether storing is writing."""
        self.zeroed = zeroed if self.is_mapped else size
        self._synced = 0  # what the mark says

    @classmethod
    def create(cls, disk: Disk, file: File, size: int, used: int) -> Buffer:
        """A new file made one of zeros, of which the first `used` bytes will be stored at once.

        Neither its contents nor its name are synced. It is removed again when there is no space.
        """
        try:
            make_room(file, 0, size)
            zeroed = min(size, used + AHEAD_BYTES)
            if isinstance(file, Mappable):  # elsewhere all of them are written
                write_zeros(file, used, zeroed)
            return cls(file, size, zeroed)
        except BaseException:
            abandon(disk, file)
            raise

    @classmethod
    def open(cls, disk: Disk, path: Path) -> Buffer:
        """The buffer that is there."""
        file = disk.open(path, "update")
        try:
            return cls(file, file.size(), 0)
        except BaseException:
            file.close()
            raise

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, position: int, data: bytes) -> None:
        """Write some bytes, which the memory has then as well."""
        if not self.is_mapped:
            self.memory[position : position + len(data)] = data
        write_all(self.file, position, data)

    def append(self, position: int, entry: bytes, has_zeros: bool) -> int:
        """Give an entry to the system, then the position after it; returns that position.

        An entry with a whole sector of zeros must be on the disk before it counts: see above.
        """
        end = position + len(entry)
        counted = POSITION.pack(end)
        if has_zeros or not self.is_mapped:
            self.put(position, entry)
            if has_zeros:
                self.sync()
                self.set_mark(end)
                self.sync()
            self.put(POSITION_AT, counted)
            return end
        write_at = self.file.write_at
        count = write_at(position, entry)
        if count != len(entry):
            self.put(position + count, entry[count:])
        count = write_at(POSITION_AT, counted)
        if count != len(counted):
            self.put(POSITION_AT, counted)
        return end

    def reserve(self) -> None:
        """See to it that the file has space for all of its bytes: another program may have left holes in it."""
        if isinstance(self.file, Mappable):
            self.file.allocate(self.size)

    def zero_ahead(self, position: int, size: int = 0) -> None:
        """Write zeros after a position that is not used yet: for `size` bytes, and a good deal more."""
        start, end = max(position, self.zeroed), min(position + size + AHEAD_BYTES, mark_at(self.size))
        garbage = last_byte(self.memory, start, end)
        write_zeros(self.file, start, end)
        if garbage > start:  # then only zeros on the disk can be distinguished from missing data
            self.file.sync()
        self.zeroed = self.size if end == mark_at(self.size) else max(start, end)

    def set_position(self, position: int) -> None:
        """Let the entries end here: those before it are with the system already."""
        self.put(POSITION_AT, POSITION.pack(position))

    @property
    def position(self) -> int:
        """Where the entries end that were stored by now."""
        while True:  # a call may be writing it at this moment, from another thread
            found = bytes(self.memory[POSITION_AT : POSITION_AT + POSITION.size])
            if found == self.memory[POSITION_AT : POSITION_AT + POSITION.size]:
                return int(POSITION.unpack(found)[0])

    def set_mark(self, synced: int) -> None:
        """Say that everything up to here is on the disk."""
        self._synced = synced
        self._put_mark(Mark(synced))

    def raise_mark(self, synced: int) -> None:
        """Say so if these are more sectors than the mark says."""
        if synced // SECTOR_BYTES > self._synced // SECTOR_BYTES:
            self.set_mark(synced)

    def set_closed(self) -> None:
        """Say that all entries are on the disk, and that nothing follows them."""
        self._put_mark(Mark(self.position, is_closed=True))

    def _put_mark(self, mark: Mark) -> None:
        place = mark_at(self.size)
        self.put(place, mark.pack(place))

    def clear(self, start: int, end: int) -> None:
        """Write zeros."""
        for at in range(start, end, _PIECE_BYTES):
            self.put(at, bytes(min(end, at + _PIECE_BYTES) - at))

    def sync(self) -> None:
        self.file.sync()

    def grow(self, size: int, position: int) -> None:
        """Make the file larger. All entries are synced; there are others only when this is done.

        A crash leaves the old length, the new one, or one in between. In the last two cases there may be no mark where
        it is looked for, which is as good: every entry is on the disk. Without space all is as it was.
        """
        before = self.size
        try:
            make_room(self.file, before, size)
        except BaseException:
            self.file.truncate(before)
            self.file.sync()
            raise
        self.memory = _memory_of(self.file, size)
        self.size = size
        self.zeroed = position if self.is_mapped else size
        self.set_mark(position)
        old = mark_at(before)
        if old >= position:  # else entries are in its place
            self.clear(old, old + MARK.size)
        self.file.sync()

    def close(self) -> None:
        """Close the file. What is mapped of it stays only for as long as a reader uses it."""
        self.forget()
        self.file.close()

    def forget(self) -> None:
        """Give the memory back."""
        self.memory = bytearray()


def _memory_of(file: File, size: int) -> Memory:
    if isinstance(file, Mappable) and size:
        return cast(Memory, file.map(size))
    memory = bytearray(size)
    file.read_into(0, memoryview(memory))
    return memory


def make_room(file: File, start: int, end: int) -> None:
    """Let a file have zeros from its end on, and the space for them."""
    if isinstance(file, Mappable):
        file.allocate(end)
    else:
        write_zeros(file, start, end)


def abandon(disk: Disk, file: File) -> None:
    """Close and remove a file that was not finished, whatever else goes wrong."""
    for action in (file.close, lambda: disk.remove(file.path)):
        try:
            action()
        except LogwrightError:
            continue
