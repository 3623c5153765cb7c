"""Reading the file of a journal along its links, and continuing after damage.

A `Cursor` returns chunks: a buffer and a range of it that holds only whole transactions whose links agree in both
directions. Transactions are normally consecutive, and then a chunk has many of them. If `next` leads further, the bytes
in between belong to no transaction. It never leads back, so no file can make a cursor loop.

See `continuation.py` for what is wrong where a cursor stops, and for where reading continues.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ...core.bytes.outcome import Malformed
from ...core.io.disk import File
from ...core.read.chunk import FileChunk
from ...errors import TooLarge
from ..bytes import codec, kernel
from ..bytes.layout import HEADER_BYTES, LINK, TRANSACTION_HEAD_BYTES
from ..bytes.records import Transaction
from .files import Header, JournalFile, backwards, hop, is_whole, link_place, measure, read_head
from .operations import find_end, has_end, is_begun_link

READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""
DONE, LINK_BROKEN = 10, 11
"""How reading ends, in addition to the ends of a walk: at the last transaction, or at an impossible link."""
_MOST_ASKED: Final = 64
"""How many transactions without a link forwards are read in full to find out whether reading can continue there."""
NOWHERE: Final = 2**64 - 1
"""An offset where no transaction can be: for a cursor that does not know which one is the last."""


@dataclass(slots=True)
class Chunk(FileChunk):
    """Whole transactions: `data[start:stop]` holds `count` of them; `index` is the number of transactions before them.

    `position` is where `start` is in the file. The buffer is valid until the cursor reads again. A `hollow` chunk is
    one large transaction of which only the beginning is in the buffer: `stop` is beyond it.
    """

    source: JournalFile
    index: int
    hollow: bool = False

    def starts(self) -> Sequence[int]:
        """Where the transactions begin in the file, and where the last one ends."""
        if self.hollow:
            return [self.position, self.end]
        base = self.base
        return [base + start for start in kernel.spans(self.data, self.start, self.stop, self.count, base)]

    def _part(self, starts: Sequence[int], first: int, last: int) -> Self | None:
        part = FileChunk._part(self, starts, first, last)
        return None if part is None else replace(part, index=self.index + first)


class Cursor:
    """Reads one file. After the file has grown, a new cursor continues where this one ended."""

    def __init__(
        self,
        file: File,
        source: JournalFile,
        header: Header,
        *,
        position: int | None = None,
        index: int = 0,
        knows_last: bool = True,
        read_bytes: int = READ_BYTES,
    ) -> None:
        """Begin with the first transaction, or with the one at a position, whose index is `index`.

        Without `knows_last` the last transaction is the one that names none as its next, whatever the header says.
        `read_bytes` is the size of the first read, for callers that may not need more; later reads are larger.
        """
        self.file = file
        self.source = source
        self._size = file.size()
        self.header = plausible_header(file, header, self._size)
        self.is_half_named = self.header != header
        header = self.header
        self.last = header.last
        self.knows_last = knows_last
        self.ending = codec.CLEAN
        self.reason = ""
        self.index = index
        self._buffer = memoryview(bytearray(min(read_bytes, max(self._size, TRANSACTION_HEAD_BYTES))))
        self._back: array[int] | None = None
        head = None if position is None else read_head(file, position)
        self.position = HEADER_BYTES if position is None else position
        self.previous = 0 if head is None else head.previous
        self._torn_behind = self._find_torn()
        self._jumps = position is None and (header.first != HEADER_BYTES or 0 in (header.last, self._torn_behind))

    def _find_torn(self) -> int | None:
        """The transaction before the last one, 0 for none, if the last one looks whole and does not match its seal."""
        last = self.header.last
        head = read_head(self.file, last)
        if head is None or head.complete or not is_whole(self.file, last, self._size, follow_next=False):
            return None
        return None if has_end(self.file, last, self._size) else head.previous

    @property
    def size(self) -> int:
        """The size of the file when the cursor was created."""
        return self._size

    def read(self, *, load: bool = True) -> Chunk | None:
        """The next whole transactions; None when there are none, and `ending` says why.

        Without `load` a transaction that is larger than the buffer is not read in full: its chunk is hollow.
        """
        if self._jumps and not self._follow():
            return None
        room = self._buffer
        while True:
            have = self.file.read_into(self.position, room[: max(0, self._size - self.position)])
            last = self._torn_behind or self.last
            stop, count, ending, previous = kernel.walk(room, 0, have, self.position, self.previous, last)
            if ending in (codec.CLEAN, codec.INCOMPLETE) and have == len(room) < READ_BYTES:
                self._buffer = memoryview(bytearray(4 * len(room)))
            if count:
                chunk = Chunk(self.source, room, 0, stop, self.position, count, self.index)
                self._pass(stop, count, previous, jumps=ending == codec.JUMP)
                return chunk
            size = self._size_beyond(have) if ending == codec.INCOMPLETE and have == len(room) else None
            if size is None:
                self.ending = codec.INCOMPLETE if ending == codec.CLEAN else ending
                self.reason = self._explained(room, have)
                return None
            if not load:
                return self._hollow(room, size)
            room = _allocated(size, self.source, self.position)

    def _pass(self, size: int, count: int, previous: int, *, jumps: bool) -> None:
        self.position += size
        self.previous = previous
        self.index += count
        self._jumps = jumps

    def _hollow(self, room: memoryview, size: int) -> Chunk:
        chunk = Chunk(self.source, room, 0, size, self.position, 1, self.index, hollow=True)
        (following,) = LINK.unpack_from(room, 8)
        is_last = self.position == self.last or following != self.position + size
        self._pass(size, 1, self.position, jumps=is_last)
        return chunk

    def _size_beyond(self, have: int) -> int | None:
        """The size of a transaction that is larger than the buffer, if all of it is in the file."""
        try:
            end = measure(self.file, self.position, self._size, follow_next=self.position != self.last)
        except Malformed:
            return None
        return None if end is None or end - self.position <= have else end - self.position

    def _explained(self, room: memoryview, have: int) -> str:
        if self.ending == codec.ASTRAY:
            (said,) = LINK.unpack_from(room)
            return f"the transaction names the one at {said} as its previous, and {self.previous} is"
        try:
            measure(self.file, self.position, self._size)
        except Malformed as malformed:
            return f"{malformed.reason} (at {malformed.position})"
        return f"the transaction has no end within the {self._size - self.position} bytes that are there"

    # --- links -------------------------------------------------------------------------------------------------------

    def link(self) -> int:
        """Where reading continues by the link."""
        data = self.file.read_at(link_place(self.previous), LINK.size)
        return int(LINK.unpack(data)[0]) if len(data) == LINK.size else 0

    def _follow(self) -> bool:
        """Follow the link, if the transaction there names this one as its `previous`."""
        following = self.link()
        self._jumps = False
        is_last = self.previous == self.last and (self.previous or not following)
        if self.previous == self._torn_behind and self.position == self.header.last:
            self.ending = LINK_BROKEN
            self.reason = "the last transaction does not match its seal, and never reached the storage"
        elif is_last or (following == 0 and not self.knows_last):
            self.ending = DONE
        elif following >= self.position and self._names_us(following):
            self.position = following
            return True
        else:
            self.ending = LINK_BROKEN
            self.reason = self._broken_link(following)
        return False

    def _names_us(self, position: int) -> bool:
        head = read_head(self.file, position)
        return head is not None and head.previous == self.previous

    def _broken_link(self, following: int) -> str:
        source = f"the transaction at {self.previous} names" if self.previous else "the header names"
        if following == 0:
            return f"{source} none that follows, and the header names {self.last} as the last"
        if following < HEADER_BYTES:
            where = "which is in the header"
        elif following > self._size - TRANSACTION_HEAD_BYTES:
            where = f"which is past the end at {self._size}"
        elif following < self.position:
            where = "which is no way forwards"
        else:
            where = "which names another one as its previous"
        return f"{source} {following} as the next, {where}"

    def continue_at(self, position: int, previous: int) -> None:
        """Continue somewhere after damage."""
        self.position = position
        self.previous = previous
        self._jumps = False

    def look_again(self) -> None:
        """Follow the link again that was followed last."""
        self._jumps = True

    def reachable_after(self, position: int) -> int | None:
        """The earliest transaction after a position that the links backwards from the last one lead to.

        One whose `next` agrees is accepted. Any other must be whole; that takes time to check, so only some are
        checked.
        """
        if self._back is None:
            self._back = array("Q", reversed(backwards(self.file, self.header.last)))
        back = self._back
        for asked, at in enumerate(range(bisect_right(back, position), len(back))):
            head = read_head(self.file, back[at])
            if head is not None and at + 1 < len(back) and head.next == back[at + 1]:
                return back[at]
            if asked < _MOST_ASKED and is_whole(self.file, back[at], self._size):
                return back[at]
        return None


def _allocated(size: int, source: JournalFile, position: int) -> memoryview:
    try:
        return memoryview(bytearray(size))
    except MemoryError:
        raise TooLarge(f"{source.path} @ {position}: there is no memory for a transaction of {size} bytes") from None


# --- chunks to objects ------------------------------------------------------------------------------------------------


def decoded(chunk: Chunk) -> list[Transaction]:
    """The transactions of a chunk."""
    try:
        return kernel.transactions(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.base)
    except MemoryError:
        raise TooLarge(f"{chunk.source.path} @ {chunk.position}: there is no memory for these transactions") from None


def timestamp_at(chunk: Chunk, start: int) -> int:
    """The creation time in seconds of the transaction of a chunk that begins at an offset."""
    at = start - chunk.base + 16
    return int.from_bytes(chunk.data[at : at + 8], "little", signed=True)


def read_transaction(file: File, source: JournalFile, position: int) -> Transaction:
    """The transaction at a position that a walk has passed."""
    size = file.size()
    end = measure(file, position, size)
    if end is None:
        raise Malformed(position, "the file has changed while it was read")
    try:
        data = file.read_at(position, end - position)
    except MemoryError:
        message = f"{source.path} @ {position}: there is no memory for a transaction of {end - position} bytes"
        raise TooLarge(message) from None
    return kernel.transactions(data, 0, len(data), 1, position)[0]


# --- the name of the last transaction ---------------------------------------------------------------------------------


def plausible_header(file: File, header: Header, size: int) -> Header:
    """The header of a file of `size` bytes. If its last offset is half-written, the offset that was being written.

    A header is written after everything that it names. A process that is killed during that write leaves the first
    bytes of the new offset over the old one or over zeros. Then the header names no transaction, and the links from the
    first one lead to the one that was going to be named.
    """
    if header.first == 0 or _is_named(file, header) or is_whole(file, header.last, size, follow_next=False):
        return header
    hopped = hop(file, Header(header.first, size))
    last = read_head(file, hopped.last)
    is_end = hopped.ending == codec.JUMP and hopped.following == 0
    if not is_end or last is None or not is_begun_link(header.last, hopped.last):
        return header
    end = find_end(file, hopped.last, size)
    if end is None or (last.complete and not end.seal):
        return header  # only a writer that seals flags a transaction before the header names it
    return Header(header.first, hopped.last)


def _is_named(file: File, header: Header) -> bool:
    """Whether the transaction before the last one, or the header, names it as well."""
    head = read_head(file, header.last)
    if head is None:
        return False
    before = read_head(file, head.previous) if head.previous else None
    return header.last == (header.first if before is None else before.next)
