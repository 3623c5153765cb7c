"""Salvage: one damaged segment as it would be after a repair.

It goes through the segment with a list of fixes that grows: bits that a checksum says were flipped, then the fields of
single messages (see `fixes`). What is left are stretches of whole messages, and the damage between them, which is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from ...core.checksum import ENTRY, HEADER, MAGIC, VERSION, CheckedFile, Checksums, checksum_path, crc32c
from ...core.disk import Disk, File
from ...core.losses import Loss
from ...core.outcome import Damage, Span
from ...core.patched import PatchedFile
from ...core.repair import find_flipped_bit
from . import codec
from .fixes import Fix, find_fixes, is_plausible
from .layout import HEAD, NO_TIMESTAMP, OFFSET, OVERHEAD
from .lost import lost_messages, messages_between, restored
from .segment import Cursor, Segment, find_valid, is_in_value, judge, message_span, most_behind, step_back

_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC32C, reflected."""

_FAR_BYTES: Final = 4096
"""What may be missing between two messages of a small file, rather than that the offset of the second is wrong."""


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


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Whole messages on the way: where they begin, after which damage, and the offset that was expected there.

    It is doubtful where the messages may lie in the value of the message that was expected.
    """

    start: int
    first_offset: int
    damage: Damage | None = None
    lost_from: int = 0
    is_doubtful: bool = False


@dataclass(slots=True)
class Salvage:
    """A segment gone through with every fix in place: the fixes, the stretches of whole messages, what is lost."""

    disk: Disk
    file: File
    segment: Segment
    following: Segment | None
    bad_blocks: list[Span] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    left: list[tuple[int, str]] = field(default_factory=list)
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
        """Go through the segment, restoring the fields that are settled."""
        cursor = Cursor(self.view, self.segment, 0, self.segment.first_offset)
        piece = _Stretch(0, cursor.expected)
        while True:
            while cursor.read() is not None:
                pass
            position, expected = cursor.position, cursor.expected
            rival = self._find_rival(piece, position) if cursor.ending != codec.CLEAN else None
            if rival is None and (cursor.ending == codec.CLEAN or self._overlaps(position, expected)):
                self._end_piece(piece, self.size, expected)
                break
            fix = self._find_fix(position, expected) if rival is None else None
            if fix is not None:
                self._restore(fix, expected)
                cursor = Cursor(self.view, self.segment, position, expected)
                continue
            if rival is not None and piece.damage is not None:
                # What was found after the preceding damage has offsets that come again: it is part of that damage.
                damage, position, expected = piece.damage, piece.damage.start, piece.lost_from
                goes_on_at: int | None = rival[0]
                damage = replace(damage, end=rival[1])
                cursor = Cursor(self.view, self.segment, rival[1], rival[0])
            else:
                damage, goes_on_at = self._judge(cursor)
                self._end_piece(piece, position, expected)
            self.reason = self.reason or damage.reason
            if goes_on_at is None:
                self._note(damage, expected, None)
                break
            is_doubtful = is_in_value(self.view, position, expected, cursor.position)
            piece = _Stretch(cursor.position, goes_on_at, damage, expected, is_doubtful)
        torn_at = self.pieces[-1].span.end if self.following is None else self.size
        self.bad_blocks = [
            block
            for block in self.bad_blocks
            if not self._matches(block) and (torn_at == self.size or block.end <= torn_at)
        ]

    def _judge(self, cursor: Cursor) -> tuple[Damage, int | None]:
        """What is wrong where a cursor stopped, and the offset at which messages continue that can be the journal's.

        A message by itself at the end, whose offset is further ahead than the bad bytes can explain, is not one of them
        if a flipped bit explains that offset, or if it is very far ahead.
        """
        start, expected = cursor.position, cursor.expected
        damage, goes_on_at = judge(cursor, self.following)
        most = most_behind(expected, self.following)
        while goes_on_at is not None and not self._is_near(start, expected, cursor.position, goes_on_at):
            found = find_valid(self.view, cursor.position + 1, self.size, expected + 1, most)
            goes_on_at, cursor.position = (None, self.size) if found is None else (found[0], found[1].start)
            cursor.expected = goes_on_at or expected
            damage = replace(damage, end=cursor.position, kind="malformed")
        return damage, goes_on_at

    def _is_near(self, start: int, expected: int, position: int, offset: int) -> bool:
        """Whether bad bytes can have held the messages up to an offset, or another message continues from it.

        A message by itself may also be all that is left after others were cut out.
        """
        if (offset - expected) * OVERHEAD <= position - start:
            return True
        found = message_span(self.view, position, self.size)
        end = position if found is None else found[1].end
        if end == self.size and self.following is not None:
            return self.following.first_offset == offset + 1
        following = message_span(self.view, end, self.size)
        if following is not None and following[0] == offset + 1:
            return True
        is_one_bit = (offset ^ expected).bit_count() == 1
        return not is_one_bit and (offset - expected) * OVERHEAD <= max(self.size, _FAR_BYTES)

    def _end_piece(self, piece: _Stretch, end: int, next_offset: int) -> None:
        """A stretch of whole messages has come to its end: what was lost before it is settled now."""
        self.pieces.append(Piece(Span(piece.start, end), piece.first_offset))
        if piece.damage is not None:
            self._note(piece.damage, piece.lost_from, piece.first_offset)
        leads_on = self.following is not None and (end, next_offset) == (self.size, self.following.first_offset)
        if piece.is_doubtful and end > piece.start and not leads_on:
            which = messages_between(piece.first_offset, next_offset)
            what = f"{which}, which may be a part of the value of message {piece.lost_from}, cut short"
            reason = "whole messages lie within what that message announces as its value"
            fields = {"first": piece.first_offset, "next": next_offset}
            self.losses.append(restored(self.segment.name, piece.start, end - piece.start, what, reason, **fields))

    def _overlaps(self, position: int, expected: int) -> bool:
        """Whether the next segment has begun already: what is wrong here is not ours to cut."""
        if self.following is None or expected <= self.following.first_offset:
            return False
        self.left.append((position, f"{self.following.name} begins before this, so nothing is changed here"))
        return True

    def _find_rival(self, piece: _Stretch, position: int) -> tuple[int, int] | None:
        """Offset and position of messages that lead to the end of the file, and begin no later than a stretch does.

        Then the stretch, which was found after damage, is not what follows: it lay in the value of a damaged message.
        """
        if piece.damage is None:
            return None

        def leads_to_end(offset: int, span: Span) -> bool:
            return self._leads_to_end(Cursor(self.view, self.segment, span.start, offset))

        found = find_valid(self.view, position, self.size, piece.lost_from, piece.first_offset, leads_to_end)
        return None if found is None else (found[0], found[1].start)

    def _note(self, damage: Damage, expected: int, goes_on_at: int | None) -> None:
        """Which messages the journal has lost, unless they were never whole in it."""
        after, later = goes_on_at, None
        if after is not None:
            later = self._timestamp(damage.end)
        elif self.following is not None:
            after = self.following.first_offset
        if after is None and damage.kind != "torn_tail":
            what = f"whatever there was from message {expected} on"
            fields = {"first": expected, "next": None}
            self.losses.append(
                Loss(self.segment.name, damage.start, damage.size, 0, None, what, damage.reason, fields=fields)
            )
        if after is None or after <= expected:
            return
        before = step_back(self.view, damage.start)
        earlier = self._timestamp(before[1].start) if before is not None else None
        suspect = expected - 1 if damage.start == damage.end and damage.start else None
        self.losses.append(
            lost_messages(
                self.segment.name, damage.start, damage.end, damage.reason,
                first=expected, after=after, earlier=earlier, later=later, suspect=suspect,
            )
        )  # fmt: skip

    def _timestamp(self, position: int) -> int | None:
        timestamp: int = HEAD.unpack(self.view.read_at(position, HEAD.size))[1]
        return None if timestamp == NO_TIMESTAMP else timestamp

    # --- single fields ----------------------------------------------------------------------------------------------

    def _find_fix(self, position: int, expected: int) -> Fix | None:
        """The change that a checksum proves; or the only one of one field that explains everything to the end."""
        explaining = []
        for fix in find_fixes(self.view, position, expected, self.following):
            if self._settles(fix):
                return fix
            if self._leads_to_end(Cursor(self._with(fix), self.segment, position, expected), least=2):
                explaining.append(fix)
        if len(explaining) != 1 or not is_plausible(self.view, explaining[0]):
            return None
        return explaining[0]

    def _leads_to_end(self, cursor: Cursor, least: int = 1) -> bool:
        """Whether all is whole up to the next segment, or in the last one up to a torn tail, after some messages."""
        first = cursor.expected
        while cursor.read(load=False) is not None:
            pass
        if self.following is not None:
            return cursor.ending == codec.CLEAN and cursor.expected == self.following.first_offset
        return cursor.expected - first >= least and (cursor.ending == codec.CLEAN or judge(cursor, None)[1] is None)

    def _with(self, fix: Fix) -> PatchedFile:
        return self.view.with_patch(fix.position, fix.new)

    def _restore(self, fix: Fix, offset: int) -> None:
        self._add(fix)
        what = f"the {fix.field} of message {offset}"
        fields = {"offset": offset, "field": fix.field}
        self.losses.append(restored(self.segment.name, fix.position, len(fix.old), what, fix.reason, **fields))

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
                position = block.start + at
                self._add(Fix(position, position, data[at : at + 1], bytes([data[at] ^ mask]), "bit", reason))
                what = f"bit {mask.bit_length() - 1} of the byte at {position}, by the checksum of its block"
                self.losses.append(restored(self.segment.name, position, 1, what, reason, block=block.start))

    def _settles(self, fix: Fix) -> bool:
        """Whether a block that does not match would match with a fix."""
        if self.sums is None:
            return False
        block = self._block(fix.position // self.sums.block_bytes)
        return block in self.bad_blocks and self._matches(block, self._with(fix))

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

    def messages_in(self, span: Span) -> tuple[int, int]:
        """The offsets of the messages that a range touches: the first, and the one after the last."""
        first, after = None, self.segment.first_offset
        for start, end, offset in self._places():
            if first is None and end > span.start:
                first = offset
            if start < span.end:
                after = offset + 1
        return after if first is None else first, after

    def rewritten_blocks(self) -> list[Span]:
        """The bad blocks at the end of what is covered, if another program has cut the segment there and appended.

        That shows where the covered bytes end: when the checksums were written it was a message's end, and now it lies
        within a message. Everything else must be whole.
        """
        if self.sums is None or not self.bad_blocks or len(self.pieces) != 1:
            return []
        covered = [index for index in range(len(self.sums)) if self.sums.entry(index)[1]]
        bad = {block.start // self.sums.block_bytes for block in self.bad_blocks}
        run = list(takewhile(bad.__contains__, reversed(covered)))
        end = self._block(covered[-1]).end
        if not run or any(place[1] == end for place in self._places()):
            return []
        return [self._block(index) for index in reversed(run)]

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Where each whole message begins and ends, and its offset."""
        cursor = Cursor(self.view, self.segment, 0, self.segment.first_offset)
        while (chunk := cursor.read()) is not None:
            starts = chunk.starts()
            for row in range(chunk.count):
                yield starts[row], starts[row + 1], chunk.first_offset + row

    def _replaced(self, block: Span, new: bytes) -> tuple[int, bytes, bytes]:
        assert self.sums is not None
        index = block.start // self.sums.block_bytes
        return HEADER.size + index * ENTRY.size, ENTRY.pack(*self.sums.entry(index)), new
