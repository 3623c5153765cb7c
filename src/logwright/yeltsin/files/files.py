"""The file of a journal: its name, its header, the heads of its transactions, and the walk along its links.

A journal is one file. Its transactions are numbered by where they begin in it, and counted from 0 (`index`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from ...core.bytes.outcome import Malformed
from ...core.io.disk import Disk, File
from ...core.read.chunk import NumberedFile
from ...core.read.snapshot import Snapshot
from ..bytes import codec, kernel
from ..bytes.layout import (
    COMPLETE,
    HEADER,
    HEADER_BYTES,
    JOURNAL_SUFFIX,
    NEXT_AT,
    OPERATION_HEAD_BYTES,
    ROLLBACK,
    TRANSACTION_HEAD,
    TRANSACTION_HEAD_BYTES,
)

_LEAST_WINDOW_BYTES: Final = 512
_MOST_WINDOW_BYTES: Final = 256 << 10
"""The size of one read while following heads: small, because transactions may be large."""
_PIECE_BYTES: Final = 64 << 10
_FEW_READS: Final = 20
"""This many ranges are read individually. A journal that was closed never needs more."""
_MOST_OFFSET: Final = 2**62
"""No file is this large, and no system call accepts an offset of twice this value."""


class Readable(Protocol):
    """A source of bytes: a file, or a `Nearby`."""

    @property
    def path(self) -> Path: ...

    def read_at(self, position: int, size: int) -> bytes: ...


class Nearby:
    """A file for reading, two pieces of which are cached in memory. The file must not change meanwhile.

    Walking over transactions forwards or backwards needs many small reads. A system call for each of them would be most
    of the cost of a redo.
    """

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._file = file
        self._reads = 0
        self._start = 0
        self._window = b""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from a position on, fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + size > len(self._window):
            self._reads += 1
            if size > _PIECE_BYTES or self._reads <= _FEW_READS:
                return self._file.read_at(position, size)
            # Aligned, so that it also has bytes before the position, and as many after it.
            self._start = position // _PIECE_BYTES * _PIECE_BYTES
            self._window = self._file.read_at(self._start, 2 * _PIECE_BYTES)
            at = position - self._start
        return self._window[at : at + size]


@dataclass(frozen=True, slots=True)
class JournalFile(NumberedFile):
    """The only file of a journal. It is never rotated, so `timestamp` and `before` are constant."""

    name: str
    path: Path
    timestamp: int | None = None
    before: int = 0
    gaps: tuple[int, ...] = ()
    """The offsets, ascending, at which transactions are lost, by the account of losses."""


OpenFiles: TypeAlias = Snapshot[JournalFile]


def list_journals(disk: Disk, directory: Path) -> list[str]:
    """The names of the journals in a directory: the files that are called `*.jrnl`."""
    names = (name for name in disk.list_directory(directory) if name.endswith(JOURNAL_SUFFIX) and name[0] != ".")
    return [name for name in names if not disk.is_directory(directory / name)]


# --- heads ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file: the offsets of the first and the last transaction, 0 for none."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a transaction."""

    previous: int
    next: int
    timestamp: int
    flags: int

    @property
    def complete(self) -> bool:
        """Whether the transaction is in the storage."""
        return bool(self.flags & COMPLETE)


def read_header(file: File) -> Header | None:
    """The header of a file; None if it is incomplete; `Malformed` if it is invalid."""
    found = codec.decode_header(file.read_at(0, HEADER_BYTES))
    return Header(*found) if isinstance(found, tuple) else None


def read_head(file: Readable, position: int) -> Head | None:
    """The head at a position; None if it is incomplete."""
    if not HEADER_BYTES <= position <= _MOST_OFFSET:
        return None
    data = file.read_at(position, TRANSACTION_HEAD_BYTES)
    return Head(*TRANSACTION_HEAD.unpack(data)) if len(data) == TRANSACTION_HEAD_BYTES else None


def link_place(previous: int) -> int:
    """The position of the link to the transaction after this one; for 0, that of the first offset in the header."""
    return previous + NEXT_AT if previous else 4


# --- one transaction --------------------------------------------------------------------------------------------------


def measure(file: File, position: int, size: int, *, follow_next: bool = True) -> int | None:
    """The end of the transaction at a position; None if it is incomplete; `Malformed` if it is not a transaction.

    Only the heads of its operations are read. `size` is that of the file; see `codec.transaction_size`.
    """
    found = measured(file, position, size, follow_next=follow_next)
    return None if found is None else found.end


class Measured(NamedTuple):
    """Where a transaction ends, and the operation that ends it, 0 for none."""

    end: int
    kind: int


def measured(file: File, position: int, size: int, *, follow_next: bool = True) -> Measured | None:
    """The end of the transaction at a position, and its ending operation; see `measure`."""
    head = read_head(file, position)
    if head is None:
        return None
    at = position + TRANSACTION_HEAD_BYTES
    bounded = follow_next and at <= head.next <= _MOST_OFFSET
    window_bytes = _LEAST_WINDOW_BYTES
    while at <= size:
        window = file.read_at(at, min(window_bytes, size - at))
        stop, ending, kind, _ = kernel.skim(window, 0, len(window), head.next - at if bounded else -1)
        at += stop
        if ending == codec.MALFORMED:
            rest = file.read_at(at, 32)
            try:
                codec.operation_size(rest, 0, len(rest))
            except Malformed as malformed:
                raise Malformed(at, malformed.reason) from None
            raise Malformed(at, f"the operation continues beyond {head.next}, where the next transaction begins")
        if ending == codec.CLEAN:
            return Measured(at, kind) if at <= size else None
        if stop == 0 and at + len(window) >= size:
            return None
        window_bytes = min(2 * window_bytes, _MOST_WINDOW_BYTES) if stop <= len(window) else _LEAST_WINDOW_BYTES
    return None


def is_whole(file: File, position: int, size: int, *, follow_next: bool = True) -> bool:
    """Whether the transaction at a position is complete with its end, or up to the next one."""
    try:
        return measure(file, position, size, follow_next=follow_next) is not None
    except Malformed:
        return False


def has_first_transaction(file: File) -> bool:
    """Whether the header, whatever its signature, names a whole transaction without a `previous` as the first."""
    data = file.read_at(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    _, first, last = HEADER.unpack(data)
    head = read_head(file, first)
    return first <= last and head is not None and head.previous == 0 and is_whole(file, first, file.size())


def find_redo(file: File, last: int, size: int) -> int | None:
    """The transaction to redo if the one at `last` is the last one; None if there is none.

    It is the last one that was not rolled back, if the journal has all of it and it is not flagged as stored.
    """
    at = last
    while (head := read_head(file, at)) is not None:
        try:
            found = measured(file, at, size, follow_next=False)
        except Malformed:
            return None
        if found is None or found.kind != ROLLBACK:
            return at if found is not None and not head.complete else None
        if head.previous >= at:
            return None
        at = head.previous
    return None


# --- the chain --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hopped:
    """Result of following `next`: the last transaction reached, 0 for none, how many, its `next`, and how it ended."""

    last: int
    count: int
    following: int
    ending: int


def hop(file: File, header: Header, *, before: int | None = None) -> Hopped:
    """Follow `next` from the first transaction to the last; never backwards, and never into an image.

    `before` is an offset to stop at: transactions that begin there or later are not passed.
    """
    room = memoryview(bytearray(_MOST_WINDOW_BYTES))
    at, previous, count = header.first, 0, 0
    window_bytes = _LEAST_WINDOW_BYTES
    while HEADER_BYTES <= at <= min(header.last, _MOST_OFFSET) and (before is None or at < before):
        have = file.read_into(at, room[:window_bytes])
        end = have if before is None else min(have, before - at + TRANSACTION_HEAD_BYTES - 1)
        start = at
        at, passed, ending, previous = kernel.hop(room, 0, end, start, previous, header.last)
        count += passed
        if ending != codec.CLEAN or not passed:
            return Hopped(previous, count, at, ending if passed or ending != codec.CLEAN else codec.INCOMPLETE)
        dense = at - start <= 2 * window_bytes
        window_bytes = min(2 * window_bytes, _MOST_WINDOW_BYTES) if dense else max(64, window_bytes // 2)
    return Hopped(previous, count, at, codec.CLEAN if before is not None and at >= before else codec.JUMP)


def backwards(file: File, last: int) -> array[int]:
    """The offsets of the transactions reached by following `previous` from one on, including it, latest first.

    It ends at the first one, or where a link leads forwards or out of the file, so it is never longer than the file
    allows.
    """
    found = array("Q")
    at = last
    head = read_head(file, at)
    while head is not None:
        found.append(at)
        if not HEADER_BYTES <= head.previous <= at - TRANSACTION_HEAD_BYTES:
            break
        at = head.previous
        head = read_head(file, at)
    return found


assert _LEAST_WINDOW_BYTES > TRANSACTION_HEAD_BYTES + OPERATION_HEAD_BYTES
