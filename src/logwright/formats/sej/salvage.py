"""Salvage: one damaged segment as it would be with everything put right that can be put right.

It goes through the segment with a list of fixes that grows: bits that a checksum says were flipped, then the fields of
single messages (see `mend`). What is left are stretches of whole messages, and the damage between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...core.checksum import ENTRY, HEADER, MAGIC, VERSION, CheckedFile, Checksums, checksum_path, crc32c
from ...core.disk import Disk, File
from ...core.outcome import Damage, Span
from ...core.patched import PatchedFile
from ...core.repair import find_flipped_bit
from . import codec
from .layout import OFFSET
from .mend import Fix, find_fix
from .segment import Cursor, Segment, is_in_value, judge, message_span

_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC32C, reflected."""


def find_other_beginning(file: File, segment: Segment, following: Segment | None, most: int) -> int | None:
    """The offset of the first message if it is one of another part of the journal, as when files changed their names.

    Then the offset is no wrong field: the message behind it goes on from it, or there is none. `most` is the largest
    offset that the journal can have.
    """
    found = message_span(file, 0, file.size())
    if found is None:
        return None
    offset, span = found
    is_later = following is not None and following.first_offset <= offset <= most
    if not 0 <= offset < segment.first_offset and not is_later:
        return None
    behind = file.read_at(span.end, OFFSET.size)
    return offset if not behind or behind == OFFSET.pack(offset + 1) else None


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of whole messages."""

    span: Span
    first_offset: int


@dataclass(slots=True)
class Salvage:
    """A segment gone through with every fix in place: the fixes, and the stretches of whole messages."""

    disk: Disk
    file: File
    segment: Segment
    following: Segment | None
    bad_blocks: list[Span] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    damages: list[tuple[Damage, str]] = field(default_factory=list)
    reason: str = ""
    size: int = 0
    sums: Checksums | None = None
    view: PatchedFile = field(init=False)

    def __post_init__(self) -> None:
        self.view = PatchedFile(self.file)
        self.size = self.file.size()
        self.sums = Checksums.load(self.disk, checksum_path(self.segment.path))
        if self.sums is not None and not len(self.sums):
            self.sums = None

    def walk(self) -> None:
        """Go through the segment, mending what can be mended."""
        cursor = Cursor(self.view, self.segment, 0, self.segment.first_offset)
        start, first_offset, mended_at = 0, cursor.expected, -1
        while True:
            while cursor.read() is not None:
                pass
            position, expected = cursor.position, cursor.expected
            if cursor.ending == codec.CLEAN or self._overlaps(position, expected):
                self.pieces.append(Piece(Span(start, self.size), first_offset))
                break
            fix = find_fix(self.view, position, expected, self.following, self._settles)
            if fix is not None and position != mended_at:
                mended_at = position
                self._add(fix)
                cursor = Cursor(self.view, self.segment, position, expected)
                continue
            damage, goes_on_at = judge(cursor, self.following)
            if goes_on_at is not None and is_in_value(self.view, position, expected, cursor.position):
                doubt = f"what goes on at {cursor.position} may be the value of message {expected}, cut short"
                self.damages.append((damage, f"{doubt}: look at it"))
            self.reason = self.reason or damage.reason
            self._note(damage, expected, goes_on_at)
            self.pieces.append(Piece(Span(start, position), first_offset))
            if goes_on_at is None:
                break
            start, first_offset, mended_at = cursor.position, goes_on_at, -1
        torn_at = self.pieces[-1].span.end if self.following is None else self.size
        self.bad_blocks = [
            block
            for block in self.bad_blocks
            if not self._matches(block) and (torn_at == self.size or block.end <= torn_at)
        ]

    def _overlaps(self, position: int, expected: int) -> bool:
        """Whether the next segment has begun already: what is wrong here is not ours to cut."""
        if self.following is None or expected <= self.following.first_offset:
            return False
        reason = f"{self.following.name} begins before this, so nothing is changed here"
        self.damages.append((Damage(self.segment.name, position, self.size, reason), reason))
        return True

    def _note(self, damage: Damage, expected: int, goes_on_at: int | None) -> None:
        """Which messages the journal has lost, unless they were never whole in it."""
        after = goes_on_at
        if after is None and self.following is not None:
            after = self.following.first_offset
        if after is not None and after > expected:
            which = f"message {expected} is" if after == expected + 1 else f"messages {expected} to {after - 1} are"
            self.damages.append((damage, f"{which} lost: {damage.reason}"))

    def _add(self, fix: Fix) -> None:
        self.fixes.append(fix)
        self.view.add(fix.position, fix.new)

    # --- checksums --------------------------------------------------------------------------------------------------

    def _block(self, index: int) -> Span:
        """What the checksum of a block covers."""
        assert self.sums is not None
        start = index * self.sums.block_bytes
        return Span(start, start + self.sums.entry(index)[1])

    def _crc(self, block: Span) -> int:
        """The checksum that is on record for a block."""
        assert self.sums is not None
        return self.sums.entry(block.start // self.sums.block_bytes)[0]

    def _matches(self, block: Span, view: File | None = None) -> bool:
        return crc32c((view or self.view).read_at(block.start, block.size)) == self._crc(block)

    def flip_back(self) -> None:
        """Of each bad block, flip a bit back if it is the only one that is wrong."""
        if self.sums is None:
            return
        self.bad_blocks = CheckedFile(self.file, self.sums).bad_blocks(0, self.size)
        for block in self.bad_blocks:
            data = self.view.read_at(block.start, block.size)
            found = find_flipped_bit(len(data), crc32c(data) ^ self._crc(block), _POLYNOMIAL)
            if found is not None:
                at, mask = found
                reason = f"with bit {mask.bit_length() - 1} flipped back the block at {block.start} is what it was"
                new = bytes([data[at] ^ mask])
                self._add(Fix(block.start + at, data[at : at + 1], new, block.start + at + 1, reason))

    def _settles(self, fix: Fix) -> bool:
        """Whether a block that does not match would match with a fix."""
        if self.sums is None:
            return False
        block = self._block(fix.position // self.sums.block_bytes)
        return block in self.bad_blocks and self._matches(block, self.view.with_patch(fix.position, fix.new))

    def _trusted(self, start: int, end: int) -> bool:
        """Whether every byte of a range is covered by a checksum that matches."""
        assert self.sums is not None
        size = self.sums.block_bytes
        for index in range(start // size, -(-end // size)):
            block = self._block(index)
            if block.end < min(end, (index + 1) * size) or not self._matches(block):
                return False
        return True

    def side_file(self, span: Span) -> bytes:
        """The side file of a new segment that is made of a range: it covers what was covered and matched."""
        assert self.sums is not None
        parts = [HEADER.pack(MAGIC, self.sums.block_bytes, VERSION)]
        for start in range(span.start, span.end, self.sums.block_bytes):
            end = min(start + self.sums.block_bytes, span.end)
            trusted = self._trusted(start, end)
            parts.append(self._entry(start, end) if trusted else ENTRY.pack(0, 0))
        return b"".join(parts)

    def _entry(self, start: int, end: int) -> bytes:
        return ENTRY.pack(crc32c(self.view.read_at(start, end - start)), end - start)

    def lowered(self, end: int) -> tuple[int, bytes, bytes] | None:
        """Position, old and new bytes of the entry that must not cover bytes behind `end`; None when none does."""
        assert self.sums is not None
        block = self._block(end // self.sums.block_bytes)
        if block.start == end or block.end <= end:
            return None
        is_good = block.end <= self.size and self._matches(block)
        return self._replaced(block, self._entry(block.start, end) if is_good else ENTRY.pack(0, 0))

    def accepted(self, block: Span) -> tuple[int, bytes, bytes]:
        """Position, old and new bytes of the entry of a block that is to be taken as it is."""
        return self._replaced(block, self._entry(block.start, block.end))

    def _replaced(self, block: Span, new: bytes) -> tuple[int, bytes, bytes]:
        assert self.sums is not None
        index = block.start // self.sums.block_bytes
        return HEADER.size + index * ENTRY.size, ENTRY.pack(*self.sums.entry(index)), new
