"""Checksums of blocks: a side file `NAME.crc` beside a segment, to find bytes that have changed.

The format has no checksums, and its structure alone misses most flipped bits. The side file is optional, is written
only on request, and does not change the journal. All integers little-endian:

    0           8            12        16                24                32
    | LWCRC32C  | block_bytes | version | crc | covered   | crc | covered   | ...
      8 bytes       u32         u32 = 1   u32     u32       u32     u32

Entry i describes the block of `block_bytes` (64 KiB, unless the header says otherwise) that starts at i * block_bytes
of the data file: `crc` is CRC32C of its first `covered` bytes. `covered` is 0 for a block without a checksum. The entry
of the last block is overwritten as its block grows.

Why a crash cannot make a sound file look damaged:

- An entry covers a prefix of its block, and journals only grow, so an outdated entry is still true.
- Entries are aligned: none crosses a sector boundary. After a power cut each entry is an old one, the new one, or zeros
  (on all file systems in common use, which do not expose stale bytes of other files).
- `update` is called after the bytes are in the data file. A killed process leaves no entries for missing bytes.
- The writer publishes entries only after it has synced the bytes that they cover (`hold`, `publish`). Otherwise a power
  cut could keep an entry and lose its data, and the block would read as damaged with all its durable bytes. So if an
  entry covers more bytes than the file has, synced bytes are lost (`covered_end`); the rest of its block cannot be
  checked.
- Before bytes are written where others were cut off, the entries are reduced to the remaining bytes, and synced
  (`open_at`, `truncate`, `create`). Otherwise a second power cut could restore an entry for the bytes that were cut.

Otherwise it is synced only by `sync`, which the writer calls when it leaves a segment: at roll-over and at close. A
power cut can lose the coverage of the newest blocks, never data. Opening again covers the last block and leaves older
ones uncovered, because reading them could take long.

Limits: a program that does not know the side file may append, and its bytes are not covered. But if it cuts bytes off
and appends others, the old entry reads as damage; remove the side file then. A flipped bit in the side file also reads
as damage of its block.
"""

from __future__ import annotations

import contextlib
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ...core.bytes.crc32c import crc32c
from ...core.bytes.outcome import Malformed, Span
from ...core.io.disk import Buffer, Disk, File, FileView, write_all
from ...errors import Closed, DamagedJournal, LogwrightError, NotFound, Poisoned, WrongUse, is_refusal

SUFFIX: Final = ".crc"
MAGIC: Final = b"LWCRC32C"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sII")
"""magic, block_bytes, version"""
ENTRY: Final = struct.Struct("<II")
"""crc, covered"""
BLOCK_BYTES: Final = 64 * 1024
MIN_BLOCK_BYTES: Final = 512
MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024
"""The largest block that a reader accepts, because it holds one block in memory."""

_NOT_COVERED: Final = (0, 0)
_ATTEMPTS: Final = 2

assert HEADER.size == 16
assert 512 % ENTRY.size == 0
assert HEADER.size % ENTRY.size == 0  # so that no entry crosses a sector boundary


# --- the side file's bytes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """An anomaly of a side file that is not damage of the journal; `position` is in the side file."""

    position: int
    message: str


def checksum_path(data_path: Path) -> Path:
    """Where the side file of a journal's file is."""
    return data_path.with_name(data_path.name + SUFFIX)


def check_block_bytes(block_bytes: int) -> int:
    """The size of a block if it is a power of two within the limits, or `WrongUse`."""
    if not MIN_BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES or block_bytes & (block_bytes - 1):
        raise WrongUse(
            f"a block of {block_bytes} bytes is not a power of two between {MIN_BLOCK_BYTES} and {MAX_BLOCK_BYTES}"
        )
    return block_bytes


def parse_header(data: bytes) -> int:
    """The size of a block in a side file that starts like this, or `Malformed`."""
    if len(data) < HEADER.size:
        raise Malformed(0, f"the side file ends within its header, after {len(data)} bytes")
    magic, block_bytes, version = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Malformed(0, "this is not a file of checksums")
    if version != VERSION:
        raise Malformed(12, f"version {version} of the side file is not known here")
    try:
        return check_block_bytes(block_bytes)
    except WrongUse as error:
        raise Malformed(8, str(error)) from None


def _entry_position(index: int) -> int:
    return HEADER.size + index * ENTRY.size


def _count_blocks(size: int, block_bytes: int) -> int:
    return (size + block_bytes - 1) // block_bytes


# --- writing ----------------------------------------------------------------------------------------------------


class ChecksumWriter:
    """Keeps the side file of one journal file that is being appended to.

    Call `update` after bytes have reached the data file, and `truncate` before it is cut. One thread at a time: the
    lock of the writer is enough. A failed write or sync is final: later calls raise `Poisoned`. The entries on the disk
    stay true, but cover less.
    """

    def __init__(self, disk: Disk, data_path: Path, block_bytes: int = BLOCK_BYTES) -> None:
        """Open the side file of `data_path`, or start one; use `create` or `open_at`, which fit it to the data."""
        self.path = checksum_path(data_path)
        self.notes: list[Note] = []
        self._disk = disk
        self._size = 0
        self._crc = 0
        self._held = bytearray()
        self._held_from = 0
        self._published_from = 0
        self._last_written = b""
        self._last_written_to = 0
        self._name_is_durable = False
        self._poisoned = False
        self._closed = False
        self._file, self.block_bytes = self._open(check_block_bytes(block_bytes))

    @classmethod
    def create(cls, disk: Disk, data_file: File, block_bytes: int = BLOCK_BYTES) -> Self:
        """The checksums of a new and empty data file. Entries of an older file of the same name are discarded."""
        return cls.open_at(disk, data_file, 0, block_bytes)

    @classmethod
    def open_at(cls, disk: Disk, data_file: File, size: int, block_bytes: int = BLOCK_BYTES) -> Self:
        """Continue with a data file of `size` bytes.

        Reads at most one block of it: entries of older blocks are unchanged, missing ones stay missing. The entry of
        the last block is extended, not recomputed, so that damage to its prefix is still found. An existing side file
        keeps its block size.
        """
        writer = cls(disk, data_file.path, block_bytes)
        try:
            writer._fit(size, data_file)
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def size(self) -> int:
        """Up to where the data file is accounted for; the next `update` begins here."""
        return self._size

    def update(self, position: int, data: Buffer) -> None:
        """Account for `data`, which has been appended to the data file at `position`: one write to the side file.

        After a power cut the entry may exist without its data, and then the whole block reads as damaged. If the data
        is synced later, call `hold` now and `publish` then.
        """
        self.hold(position, data)
        self.publish(self.held())

    def hold(self, position: int, data: Buffer) -> None:
        """Account for `data` as `update` does, but only in memory, until `publish` or `sync`."""
        self._check_usable()
        if position != self._size:
            raise WrongUse(f"{self.path}: bytes at {position} do not follow the {self._size} that are accounted for")
        view = memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B")
        index, have = divmod(position, self.block_bytes)
        first, entries, crc, done = index, bytearray(), self._crc, 0
        while done < len(view):
            part = view[done : done + self.block_bytes - have]
            crc = crc32c(part, crc)
            have += len(part)
            done += len(part)
            entries += ENTRY.pack(crc, have)
            if have == self.block_bytes:
                crc = have = 0
        self._add_held(first, entries)
        self._crc = crc
        self._size += len(view)

    def _add_held(self, first: int, entries: bytearray) -> None:
        """Hold entries from the `first` one on, in place of older ones of the same blocks."""
        if self._held_from < self._published_from:
            del self._held[: (self._published_from - self._held_from) * ENTRY.size]
            self._held_from = self._published_from
        if not self._held:
            self._held_from = first
        del self._held[(first - self._held_from) * ENTRY.size :]
        self._held += entries

    def held(self) -> tuple[int, bytes]:
        """The entries that `publish` would write now, and the number of the first one."""
        return self._held_from, bytes(self._held)

    def publish(self, held: tuple[int, bytes]) -> None:
        """Write what was held at some time, now that the data of that time is durable."""
        self._check_usable()
        first, entries = held
        try:
            self._write_entries(first, entries)
        except BaseException:
            self._poisoned = True
            raise
        if entries:  # the last one may still grow; the others need not be held
            self._published_from = first + len(entries) // ENTRY.size - 1

    def _write_entries(self, first: int, entries: bytes) -> None:
        """Write entries completely, or restore the old ones: half an entry would read as damage."""
        position = _entry_position(first)
        before = self._last_written if self._last_written_to == position else b""
        try:
            write_all(self._file, position, entries)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                unchanged = self._file.read_at(position, ENTRY.size) == before
                self._file.truncate(position + len(before) if unchanged else position)
            raise
        if entries:
            self._last_written = entries[-ENTRY.size :]
            self._last_written_to = position + len(entries) - ENTRY.size

    def truncate(self, size: int, data_file: File) -> None:
        """Lower the entries to the first `size` bytes, durably; call it before these are all that is left."""
        self._check_usable()
        if not 0 <= size <= self._size:
            raise WrongUse(f"{self.path}: {self._size} bytes cannot be cut to {size}")
        if size < self._size:
            try:
                self._fit(size, data_file)
            except BaseException:
                self._poisoned = True
                raise

    def sync(self) -> None:
        """Publish what is held, and make the side file durable; the first time its name as well."""
        self.publish(self.held())
        try:
            self._file.sync()
            if not self._name_is_durable:
                self._disk.sync_directory(self.path.parent)
                self._name_is_durable = True
        except BaseException:
            self._poisoned = True
            raise

    def close(self) -> None:
        """Close the side file; does not sync."""
        if not self._closed:
            self._closed = True
            self._file.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise Closed(f"{self.path}: the checksums have been closed")
        if self._poisoned:
            raise Poisoned(f"{self.path}: an earlier write or sync of the checksums failed")

    def _open(self, block_bytes: int) -> tuple[File, int]:
        """The side file with a valid header, and its size of blocks."""
        file = self._disk.open(self.path, "update")
        try:
            head = file.read_at(0, HEADER.size)
            header = HEADER.pack(MAGIC, block_bytes, VERSION)
            try:
                return file, parse_header(head)
            except Malformed as error:
                left_by_a_crash = header.startswith(head) or not any(head)
                if not left_by_a_crash:
                    file.close()
                    file = self._set_aside(error.reason)
            if file.size():
                file.truncate(0)
                file.sync()  # or the new header could precede old entries
            write_all(file, 0, header)
        except BaseException:
            file.close()
            raise
        return file, block_bytes

    def _set_aside(self, reason: str) -> File:
        """Rename a file that is not ours, and create a new one."""
        other = self.path.with_name(f"{self.path.name}.unreadable.{time.time_ns()}")
        self._disk.rename(self.path, other)
        self._disk.sync_directory(self.path.parent)
        file = self._disk.open(self.path, "create")
        self.notes.append(Note(0, f"{reason}; it was kept as {other.name}, and a new side file was created"))
        return file

    def _fit(self, size: int, data_file: File) -> None:
        """Make the entries cover no more than `size` bytes, and the last one all of its block."""
        index, have = divmod(size, self.block_bytes)
        old = self._file.read_at(_entry_position(index), ENTRY.size)
        crc, covered = ENTRY.unpack(old) if len(old) == ENTRY.size else _NOT_COVERED
        end = _entry_position(index) + (ENTRY.size if have else 0)
        lowered = covered > have or self._file.size() > end
        if covered == 0 or covered > have:
            crc = covered = 0
        if covered < have:
            crc = crc32c(self._read_exactly(data_file, index * self.block_bytes + covered, have - covered), crc)
        if have:
            self._write_entries(index, ENTRY.pack(crc, have))
        if self._file.size() > end:
            self._file.truncate(end)
        if lowered:
            self._file.sync()
        self._crc = crc
        self._size = size
        self._held.clear()
        self._published_from = index

    def _read_exactly(self, data_file: File, position: int, size: int) -> bytes:
        data = data_file.read_at(position, size)
        if len(data) < size:
            raise WrongUse(f"{self.path}: the data file ends before the {position + size} bytes that it should hold")
        return data


# --- reading ----------------------------------------------------------------------------------------------------


class Checksums:
    """The entries of a side file, and its anomalies in `notes`.

    A damaged side file never raises; at worst nothing is covered.
    """

    def __init__(self, data: bytes, most_entries: int | None = None) -> None:
        """Parse the contents of a side file, at most `most_entries` entries."""
        self.notes: list[Note] = []
        self.unreadable = ""
        """Why the system does not let us read the side file; then nothing is known of what it covers."""
        self.block_bytes = BLOCK_BYTES
        self._entries = bytearray()
        self._source: tuple[Disk, Path] | None = None
        self._surplus_end = 0
        try:
            self.block_bytes = parse_header(data)
        except Malformed as error:
            self.notes.append(Note(error.position, error.reason))
            return
        count, odd = divmod(len(data) - HEADER.size, ENTRY.size)
        if most_entries is not None and count > most_entries:
            count, odd = most_entries, 0
        if odd:
            self.notes.append(Note(_entry_position(count), f"the last entry has {odd} bytes instead of {ENTRY.size}"))
        self._entries += data[HEADER.size : _entry_position(count)]
        self._drop_impossible()

    def _drop_impossible(self) -> None:
        entries = enumerate(ENTRY.iter_unpack(self._entries))
        impossible = [index for index, (_, covered) in entries if covered > self.block_bytes]
        for index in impossible:
            ENTRY.pack_into(self._entries, index * ENTRY.size, *_NOT_COVERED)
        if impossible:
            message = f"{len(impossible)} entries claim to cover more bytes than a block has, the first of them here"
            if len(impossible) == 1:
                message = "the entry claims to cover more bytes than a block has"
            self.notes.append(Note(_entry_position(impossible[0]), message))

    @classmethod
    def load(cls, disk: Disk, path: Path) -> Checksums | None:
        """The checksums in the side file at `path`; None when there is none.

        A side file that cannot be read, or is something else, gives checksums that cover nothing, and a note. Reads at
        most one entry for each block of the data file, which has the same path without `.crc`.
        """
        try:
            file = disk.open(path, "read")
        except NotFound:
            return None
        except LogwrightError as error:
            return cls._unreadable(error)
        try:
            return cls._read(disk, path, file)
        except LogwrightError as error:
            return cls._unreadable(error)
        finally:
            file.close()

    @classmethod
    def _unreadable(cls, error: LogwrightError) -> Checksums:
        if is_refusal(error):
            raise error
        checksums = cls(HEADER.pack(MAGIC, BLOCK_BYTES, VERSION))
        checksums.unreadable = str(error)
        checksums.notes.append(Note(0, f"the side file cannot be read: {error}"))
        return checksums

    @classmethod
    def _read(cls, disk: Disk, path: Path, file: File) -> Checksums:
        head = file.read_at(0, HEADER.size)
        checksums = cls(head)
        if checksums.notes:
            return checksums
        side_bytes = file.size()
        # Taken after the size of the side file: an active writer writes to the data file first.
        data_bytes = disk.file_size(path.with_suffix("")) if disk.exists(path.with_suffix("")) else 0
        blocks = _count_blocks(data_bytes, checksums.block_bytes)
        wanted = min(side_bytes, _entry_position(blocks))
        checksums = cls(head + file.read_at(HEADER.size, wanted - HEADER.size), blocks)
        surplus = (side_bytes - _entry_position(blocks)) // ENTRY.size
        if surplus > 0:
            entries = (
                "the entry here is for a block" if surplus == 1 else f"{surplus} entries from here on are for blocks"
            )
            message = f"{entries} after the end of the file at {data_bytes}"
            checksums.notes.append(Note(_entry_position(blocks), message))
            for index in (blocks, blocks + surplus - 1):
                _, covered = ENTRY.unpack(file.read_at(_entry_position(index), ENTRY.size))
                if 0 < covered <= checksums.block_bytes:
                    checksums._surplus_end = index * checksums.block_bytes + covered
        checksums._source = (disk, path)
        checksums._correct_last(data_bytes)
        return checksums

    def _correct_last(self, data_bytes: int) -> None:
        """If the last entry covers more than its file has, and a bit of that number is wrong, flip it back.

        Its checksum shows it: it is that of the bytes that it covers then. Otherwise the file would seem truncated.
        """
        assert self._source is not None
        index, have = divmod(data_bytes, self.block_bytes)
        crc, covered = self.entry(index)
        fewer = [number for bit in range(covered.bit_length()) if 0 < (number := covered ^ 1 << bit) <= have]
        if covered <= have or not fewer:
            return
        disk, path = self._source
        file = disk.open(path.with_suffix(""), "read")
        try:
            block = file.read_at(index * self.block_bytes, max(fewer))
        finally:
            file.close()
        for number in fewer:
            if crc32c(block[:number]) == crc:
                ENTRY.pack_into(self._entries, index * ENTRY.size, crc, number)
                message = f"the entry claims to cover {covered} bytes, but its checksum is that of the first {number}"
                self.notes.append(Note(_entry_position(index), message))

    def __len__(self) -> int:
        """How many blocks have an entry, covered or not."""
        return len(self._entries) // ENTRY.size

    def entry(self, index: int) -> tuple[int, int]:
        """The checksum of a block and how many bytes of it that covers; (0, 0) for a block without one."""
        if not 0 <= index < len(self):
            return _NOT_COVERED
        crc, covered = ENTRY.unpack_from(self._entries, index * ENTRY.size)
        return crc, covered

    @property
    def covered_end(self) -> int:
        """The end of the bytes that are covered, also if the data file is shorter by now."""
        covered = (index for index in reversed(range(len(self))) if self.entry(index)[1])
        last = next(covered, None)
        end = 0 if last is None else last * self.block_bytes + self.entry(last)[1]
        return max(end, self._surplus_end)

    def check(self, index: int, data: Buffer) -> bool | None:
        """Whether a block whose bytes are `data` matches its checksum; None if it is not covered.

        `data` is the block from its start, as much of it as the file has; bytes that are not covered are not checked.
        """
        crc, covered = self.entry(index)
        view = memoryview(data)
        if covered == 0 or covered > view.nbytes:
            return None
        return crc32c(view.cast("B")[:covered]) == crc

    def notes_at(self, size: int) -> list[Note]:
        """All notes, with the one that shows when the data file has `size` bytes and an entry claims more."""
        index = size // self.block_bytes
        end = index * self.block_bytes + self.entry(index)[1]
        if end <= size:
            return list(self.notes)
        message = f"the entry covers the bytes up to {end}, but the file ends at {size}: its block cannot be judged"
        return [*self.notes, Note(_entry_position(index), message)]

    def stored_entry(self, index: int) -> bytes:
        """The bytes of an entry as they are in the side file now."""
        assert self._source is not None
        disk, path = self._source
        file = disk.open(path, "read")
        try:
            return file.read_at(_entry_position(index), ENTRY.size)
        finally:
            file.close()

    def reread(self, index: int) -> bool:
        """Read the entry of a block in the side file again; whether it has changed.

        For readers of a journal that is being written: an entry may be replaced between our reading it and its block.
        """
        if self._source is None or not 0 <= index < len(self):
            return False
        try:
            now = self.stored_entry(index)
        except LogwrightError:
            return False
        if len(now) < ENTRY.size or ENTRY.unpack(now)[1] > self.block_bytes:
            now = ENTRY.pack(*_NOT_COVERED)
        place = slice(index * ENTRY.size, (index + 1) * ENTRY.size)
        if self._entries[place] == now:
            return False
        self._entries[place] = now
        return True


class CheckedFile(FileView):
    """A read-only `File` that checks every covered block before it returns its bytes.

    It returns the very bytes that were checked; at the edges of a read the rest of the block is read too. A mismatch
    raises `DamagedJournal`. To continue past it, call `bad_blocks` and read from `file`, which does not check. Small
    reads share the last complete block, which is kept in memory.
    """

    def __init__(self, file: File, checksums: Checksums) -> None:
        super().__init__(file)
        self.checksums = checksums
        self._recent: tuple[int, bytes] = (-1, b"")

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes at `position`, fewer than `size` only at the end of the file, or `DamagedJournal`."""
        index, offset = divmod(position, self.checksums.block_bytes)
        if size > 0 and offset + size <= self.checksums.block_bytes and self.checksums.entry(index)[1]:
            return self._read_block(index)[offset : offset + size]
        bad = -1
        for _ in range(_ATTEMPTS):
            data = self.file.read_at(position, size)
            bad = self._first_bad(position, memoryview(data))
            if bad < 0:
                return data
            if not self.checksums.reread(bad):
                break
        raise self._mismatch(bad)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; how many bytes there were, or `DamagedJournal`."""
        count, bad = self.read_and_check(position, buffer)
        if bad is not None:
            raise self._mismatch(bad.start // self.checksums.block_bytes)
        return count

    def read_and_check(self, position: int, buffer: memoryview) -> tuple[int, Span | None]:
        """Fill `buffer` from `position`; how many bytes there were, and the first block of them that does not match."""
        count, bad = 0, -1
        for _ in range(_ATTEMPTS):
            count = self.file.read_into(position, buffer)
            bad = self._first_bad(position, buffer[:count])
            if bad < 0:
                return count, None
            if not self.checksums.reread(bad):
                break
        start = bad * self.checksums.block_bytes
        return count, Span(start, start + self.checksums.entry(bad)[1])

    def bad_blocks(self, start: int, end: int) -> list[Span]:
        """The spans of the blocks in `[start, end)` that do not match their checksums."""
        bad = []
        for index in range(max(0, start) // self.checksums.block_bytes, len(self.checksums)):
            first = index * self.checksums.block_bytes
            if first >= end:
                break
            span = Span(first, first + self.checksums.entry(index)[1])
            if span.end > start and self._is_bad(index):
                bad.append(Span(first, first + self.checksums.entry(index)[1]))
        return bad

    def notes(self) -> list[Note]:
        """The anomalies of the side file, given the current size of the data file."""
        return self.checksums.notes_at(self.file.size())

    def _read_block(self, index: int) -> bytes:
        """A whole block, checked; the same one again without reading, if it was complete and so cannot have grown."""
        recent_index, block = self._recent
        if recent_index == index:
            return block
        for _ in range(_ATTEMPTS):
            block = self.file.read_at(index * self.checksums.block_bytes, self.checksums.block_bytes)
            if self.checksums.check(index, block) is not False:
                if self.checksums.entry(index)[1] == len(block) == self.checksums.block_bytes:
                    self._recent = (index, block)
                return block
            if not self.checksums.reread(index):
                break
        raise self._mismatch(index)

    def _is_bad(self, index: int) -> bool:
        for _ in range(_ATTEMPTS):
            data = self.file.read_at(index * self.checksums.block_bytes, self.checksums.entry(index)[1])
            if self.checksums.check(index, data) is not False:
                return False
            if not self.checksums.reread(index):
                break
        return True

    def _first_bad(self, position: int, view: memoryview) -> int:
        """The first block that `view`, read at `position`, touches and that does not match; -1 when all do."""
        if not view:
            return -1
        block_bytes = self.checksums.block_bytes
        first, last = position // block_bytes, (position + len(view) - 1) // block_bytes
        for index in range(max(0, first), min(last + 1, len(self.checksums))):
            if self._matches(index, position, view) is False:
                return index
        return -1

    def _matches(self, index: int, position: int, view: memoryview) -> bool | None:
        """Whether a block matches, by its bytes in `view` and the bytes of the file before and after them."""
        crc, covered = self.checksums.entry(index)
        start = index * self.checksums.block_bytes
        end, view_end = start + covered, position + len(view)
        if end <= position:
            return None
        head = self.file.read_at(start, position - start) if start < position else b""
        body = view[max(start - position, 0) : end - position]
        tail = self.file.read_at(view_end, end - view_end) if view_end < end else b""
        if len(head) + len(body) + len(tail) < covered:
            return None
        return crc32c(tail, crc32c(body, crc32c(head))) == crc

    def _mismatch(self, index: int) -> DamagedJournal:
        start = index * self.checksums.block_bytes
        covered = self.checksums.entry(index)[1]
        return DamagedJournal(self.path, start, f"the checksum of the block of {covered} bytes does not match")
