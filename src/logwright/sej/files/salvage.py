"""Salvage: one damaged segment as it would be after a repair.

It reads the segment with a growing list of fixes: first bits that a checksum shows to be flipped, then fields of single
messages (see `fixes`). The result is stretches of whole messages. The damage between them is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Final

from ...core.bytes.crc32c import crc32c, find_flipped_bit
from ...core.bytes.outcome import Damage, Span
from ...core.io.disk import Disk, File
from ...core.repair.losses import Loss
from ...core.repair.patched import PatchedFile
from ..bytes import codec
from ..bytes.layout import HEAD, NO_TIMESTAMP, OFFSET, OVERHEAD, TRAILER, VALUE_SIZE
from .checksums import ENTRY, HEADER, MAGIC, VERSION, CheckedFile, Checksums, checksum_path
from .fixes import Fix, find_fixes, is_plausible
from .lost import lost_messages, may_have_changed, messages_between, restored
from .segment import (
    Cursor,
    Segment,
    ends_file,
    find_truncation,
    find_valid,
    is_in_value,
    judge,
    message_span,
    most_behind,
    step_back,
)


def find_other_beginning(file: File, segment: Segment, following: Segment | None, most: int) -> int | None:
    """The offset of the first message if it is one of another part of the journal, as when files changed their names.

    Then the offset is not a wrong field: the next message follows it, or there is none. `most` is the largest offset
    that the journal can have.
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
    """A stretch of whole messages: `first_offset` <= offset < `next_offset`."""

    span: Span
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """The current stretch of whole messages: its start, the damage before it, and the offset expected there."""

    start: int
    first_offset: int
    damage: Damage | None = None
    lost_from: int = 0


@dataclass(slots=True)
class Salvage:
    """A segment read with all fixes applied: the fixes, the stretches of whole messages, and the losses."""

    disk: Disk
    file: File
    segment: Segment
    following: Segment | None
    is_last: bool = False
    """Whether `following` is not there: other files show it, and new messages get the offsets that are lost."""
    bad_blocks: list[Span] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    left: list[tuple[int, str]] = field(default_factory=list)
    reason: str = ""
    size: int = 0
    sums: Checksums | None = None
    view: PatchedFile = field(init=False)
    _ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        self.view = PatchedFile(self.file)
        self._ahead = Ahead(self.view, self.segment)
        self.size = self.file.size()
        self.sums = Checksums.load(self.disk, checksum_path(self.segment.path))
        if self.sums is not None and not self.sums.covered_end:
            self.sums = None

    def walk(self) -> None:
        """Go through the segment, restoring the fields that are settled."""
        cursor = self._cursor(0, self.segment.first_offset)
        piece = _Begun(0, cursor.expected)
        while True:
            while cursor.read() is not None:
                pass
            position, expected = cursor.position, cursor.expected
            if cursor.ending == codec.CLEAN or self._overlaps(position, expected):
                self._end_piece(piece, self.size, expected)
                is_at_end = self.following is None or self.is_last
                truncation = find_truncation(cursor, self.following) if is_at_end else None
                if truncation is not None:
                    self._note(truncation, expected, None)
                break
            fix = self._find_fix(position, expected)
            if fix is not None:
                self._restore(fix, expected)
                cursor = self._cursor(position, expected)
                continue
            damage, goes_on_at = self._judge(cursor)
            self.reason = self.reason or damage.reason
            if goes_on_at is None:
                self._end_piece(piece, position, expected, damage)
                self._note(damage, expected, None)
                break
            self._end_piece(piece, position, expected, damage, goes_on_at)
            piece = _Begun(cursor.position, goes_on_at, damage, expected)
        self._note_dropped()
        self.bad_blocks = [block for block in self.bad_blocks if not self._matches(block)]

    def _cursor(self, position: int, expected: int) -> Cursor:
        cursor = Cursor(self.view, self.segment, position, expected)
        cursor.covered_end = 0 if self.sums is None else self.sums.covered_end
        return cursor

    def _judge(self, cursor: Cursor) -> tuple[Damage, int | None]:
        """The damage where a cursor stopped, and the offset at which messages of the journal continue.

        The cursor is moved there.
        """
        start, expected = cursor.position, cursor.expected
        damage, goes_on_at = judge(cursor, self.following)
        if goes_on_at is None:
            return damage, None
        most = most_behind(expected, self.following)
        found = self._ahead.find(start, expected, most, partial(self._is_near, start, expected))
        if found is None:
            cursor.position = self.size
            return replace(damage, end=self.size, kind="malformed"), None
        if found.start > cursor.position:
            damage = replace(damage, end=found.start, kind="malformed")
        cursor.position, cursor.expected = found.start, found.first
        return damage, found.first

    def _is_near(self, start: int, expected: int, stretch: Stretch) -> bool:
        """Whether bad bytes can have held the messages up to a stretch, or it has more messages than one.

        A message by itself, further ahead than that, has a wrong offset, or others were cut out before it.
        """
        can_have_held = (stretch.first - expected) * OVERHEAD <= stretch.start - start
        is_confirmed = self.following is not None and self.following.first_offset == stretch.next
        return can_have_held or is_confirmed or stretch.next > stretch.first + 1

    def _end_piece(
        self, piece: _Begun, end: int, next_offset: int, damage: Damage | None = None, goes_on_at: int | None = None
    ) -> None:
        """End a stretch of whole messages at damage, and settle the loss before it."""
        self.pieces.append(Piece(Span(piece.start, end), piece.first_offset, next_offset))
        if piece.damage is None:
            return
        self._note(piece.damage, piece.lost_from, piece.first_offset)
        if end > piece.start and self._may_be_value(piece, next_offset, damage, goes_on_at):
            self._keep_without_proof(piece, end, next_offset, f"may be bytes of the value of message {piece.lost_from}")
        elif next_offset == piece.first_offset + 1 and not self._is_confirmed(next_offset, damage):
            self._keep_without_proof(piece, end, next_offset, "no message after it confirms its offset")

    def _keep_without_proof(self, piece: _Begun, end: int, next_offset: int, doubt: str) -> None:
        which = messages_between(piece.first_offset, next_offset)
        subject = "it follows" if next_offset == piece.first_offset + 1 else "they follow"
        what = f"{which}: {subject} damage, and {doubt}"
        reason = "look at them before you rely on them"
        fields = {"first": piece.first_offset, "next": next_offset, "proven": False}
        self.losses.append(restored(self.segment.name, piece.start, end - piece.start, what, reason, **fields))

    def _is_confirmed(self, next_offset: int, damage: Damage | None) -> bool:
        """Whether the next segment begins with the offset after a single message, to which all of it is whole."""
        return damage is None and self.following is not None and self.following.first_offset == next_offset

    def _may_be_value(self, piece: _Begun, next_offset: int, damage: Damage | None, goes_on_at: int | None) -> bool:
        """Whether messages between damage may be in the value of a message whose head and trailer are damaged.

        Then the bad bytes on both sides held all messages up to where messages continue.
        """
        assert piece.damage is not None
        following = self.following.first_offset if self.following is not None else None
        if is_in_value(self.view, piece.damage.start, piece.lost_from, piece.start):
            return next_offset != following
        if damage is None:
            return False
        after = following if goes_on_at is None else goes_on_at
        room = max(0, piece.damage.size - HEAD.size - VALUE_SIZE.size) // OVERHEAD
        room += max(0, damage.size - TRAILER.size) // OVERHEAD
        return after is None or after - 1 - piece.lost_from <= room

    def _overlaps(self, position: int, expected: int) -> bool:
        """Whether the next segment exists by now: then damage here must not be cut as a torn tail."""
        if self.following is None or expected <= self.following.first_offset:
            return False
        self.left.append((position, f"{self.following.name} begins before this, so nothing is changed here"))
        return True

    def _note(self, damage: Damage, expected: int, goes_on_at: int | None) -> None:
        """Which messages the journal has lost, unless they were never whole in it."""
        after, later = goes_on_at, None
        if after is not None:
            later = self._timestamp(damage.end)
        elif self.following is not None:
            after = self.following.first_offset
        if after is None and damage.kind != "torn_tail":
            what = f"whatever there was from message {expected} on"
            whole = self._ahead.dropped(damage.start, self.size)
            if whole:
                what += "; removed too, because they may be its value: "
                what += ", ".join(messages_between(stretch.first, stretch.next) for stretch in whole)
            fields: dict[str, int | None] = {"first": expected, "next": None}
            if damage.kind != "truncated" and self._is_suspect(damage):
                what += may_have_changed(expected - 1)
                fields["suspect"] = expected - 1
            at_least = int(self.sums is not None and damage.start < self.sums.covered_end)
            if at_least and len(self.pieces) > 1:
                what += ", unless the missing bytes were deleted before"
                at_least = 0
            self.losses.append(
                Loss(self.segment.name, damage.start, damage.size, at_least, None, what, damage.reason, fields=fields)
            )
        if after is not None and after == expected and self._is_suspect(damage):
            what = f"message {expected - 1}: copies of other messages follow it, and may begin within it"
            before = step_back(self.view, damage.start)
            size = 0 if before is None else before[1].size
            kept = {"first": expected - 1, "next": expected, "proven": False}
            self.losses.append(restored(self.segment.name, damage.start - size, size, what, damage.reason, **kept))
        if after is None or after <= expected:
            return
        before = step_back(self.view, damage.start)
        earlier = self._timestamp(before[1].start) if before is not None else None
        suspect = expected - 1 if self._is_suspect(damage) else None
        loss = lost_messages(
            self.segment.name, damage.start, damage.end, damage.reason,
            first=expected, after=after, earlier=earlier, later=later, suspect=suspect,
        )  # fmt: skip
        if goes_on_at is None and self.is_last:
            loss = replace(loss, fields={**loss.fields, "next": None})
        self.losses.append(loss)

    def _is_suspect(self, damage: Damage) -> bool:
        """Whether damage may begin within the message before it: no byte is missing there, and none is bad.

        The bytes after that message are whole messages, of this place or of another one, or the end of the file.
        """
        is_message = message_span(self.view, damage.start, self.size) is not None
        return damage.start > 0 and (damage.start == damage.end or is_message)

    def _note_dropped(self) -> None:
        """Which messages may be lost at the end of the journal if whole ones were removed for others."""
        if self.following is not None:
            return  # all that is missing up to it is known
        first = self.pieces[-1].next_offset
        removed = [stretch for stretch in self._ahead.removed(self.pieces) if stretch.next > first]
        if not removed or any(loss.kind == "lost" and loss.fields["next"] is None for loss in self.losses):
            return
        last = max(removed, key=lambda stretch: stretch.next)
        what = f"{messages_between(first, last.next)}, unless they were copies or part of a value"
        reason = "they contradict other messages of the segment"
        fields = {"first": first, "next": None}
        size, count = last.end - last.start, last.next - first
        self.losses.append(Loss(self.segment.name, last.start, size, 0, count, what, reason, fields=fields))

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
        if len(explaining) != 1 or not is_plausible(self.view, explaining[0]) or not self._is_in_time(explaining[0]):
            return None
        return explaining[0]

    def _is_in_time(self, fix: Fix) -> bool:
        """Whether the time of a message is between those around it, if the field to restore is next to it.

        Otherwise more than this field was overwritten.
        """
        found, before = message_span(self._with(fix), fix.message, self.size), step_back(self.view, fix.message)
        if fix.field not in ("offset", "key size") or found is None or before is None or found[1].end >= self.size:
            return True
        earlier, time, later = map(self._timestamp, (before[1].start, fix.message, found[1].end))
        return earlier is None or time is None or later is None or not earlier <= later or earlier <= time <= later

    def _leads_to_end(self, cursor: Cursor, least: int = 1) -> bool:
        """Whether all is whole up to the next segment, or in the last one up to a torn tail, after some messages."""
        first = cursor.expected
        while cursor.read(load=False) is not None:
            pass
        if self.following is not None:
            return cursor.ending == codec.CLEAN and cursor.expected == self.following.first_offset
        is_at_end = cursor.ending == codec.CLEAN or judge(cursor, None)[0].kind == "torn_tail"
        return cursor.expected - first >= least and is_at_end

    def _with(self, fix: Fix) -> PatchedFile:
        return self.view.with_patch(fix.position, fix.new)

    def _restore(self, fix: Fix, offset: int) -> None:
        self._add(fix)
        what = f"the {fix.field} of message {offset}"
        fields = {"offset": offset, "field": fix.field}
        self.losses.append(restored(self.segment.name, fix.position, len(fix.old), what, fix.reason, **fields))
        for block in self.bad_blocks:
            if block.start <= fix.position < block.end:
                self._flip_bit_back(block)

    def _add(self, fix: Fix) -> None:
        self.fixes.append(fix)
        self.view.add(fix.position, fix.new)

    # --- checksums --------------------------------------------------------------------------------------------------

    def _block(self, index: int) -> Span:
        """The bytes that the checksum of a block covers."""
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
            self._flip_bit_back(block)

    def _flip_bit_back(self, block: Span) -> None:
        data = self.view.read_at(block.start, block.size)
        found = find_flipped_bit(len(data), crc32c(data) ^ self._crc(block))
        if found is not None:
            at, mask = found
            reason = f"with bit {mask.bit_length() - 1} flipped back the block at {block.start} is what it was"
            position = block.start + at
            self._add(Fix(position, position, data[at : at + 1], bytes([data[at] ^ mask]), "bit", reason))
            what = f"bit {mask.bit_length() - 1} of the byte at {position}, by the checksum of its block"
            self.losses.append(restored(self.segment.name, position, 1, what, reason, block=block.start))

    def _settles(self, fix: Fix) -> bool:
        """Whether a block that does not match yet would match with a fix."""
        if self.sums is None:
            return False
        block = self._block(fix.position // self.sums.block_bytes)
        is_bad = block in self.bad_blocks and not self._matches(block)
        return is_bad and self._matches(block, self._with(fix))

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
        """Position, old and new bytes of the entry that covers bytes after `end`; None if no entry does."""
        assert self.sums is not None
        block = self._block(end // self.sums.block_bytes)
        if block.start == end or block.end <= end:
            return None
        is_good = block.end <= self.size and self._matches(block)
        return self._replaced(block, self._entry(block.start, end) if is_good else ENTRY.pack(0, 0))

    def accepted(self, block: Span) -> tuple[int, bytes, bytes]:
        """Position, old and new bytes of the entry of a block that is accepted."""
        return self._replaced(block, self._entry(block.start, block.end))

    def messages_in(self, span: Span) -> Iterator[tuple[int, int]]:
        """The offsets of the messages that a range touches: of each stretch the first, and the one after the last."""
        for piece in self.pieces:
            touched = [offset for start, end, offset in self._places(piece) if end > span.start and start < span.end]
            if touched:
                yield touched[0], touched[-1] + 1

    def short_block(self) -> Span | None:
        """What is left of the block at the end of the file, if its checksum covers bytes that are missing."""
        if self.sums is None:
            return None
        block = self._block(self.size // self.sums.block_bytes)
        return Span(block.start, self.size) if block.start < self.size < block.end else None

    def rewritten_blocks(self) -> list[Span]:
        """The bad blocks at the end of what is covered, if another program has cut the segment there and appended.

        The end of the covered bytes shows this: it was the end of a message when the checksums were written, and is now
        within a message. Everything else must be valid.
        """
        if self.sums is None or not self.bad_blocks or len(self.pieces) != 1:
            return []
        if self.bad_blocks[-1].end > self.pieces[0].span.end:
            return []  # it is cut here, and what is left of the block has no checksum
        covered = [index for index in range(len(self.sums)) if self.sums.entry(index)[1]]
        bad = {block.start // self.sums.block_bytes for block in self.bad_blocks}
        run = list(takewhile(bad.__contains__, reversed(covered)))
        end = self._block(covered[-1]).end
        if not run or any(place[1] == end for place in self._places(self.pieces[0])):
            return []
        return [self._block(index) for index in reversed(run)]

    def _places(self, piece: Piece) -> Iterator[tuple[int, int, int]]:
        """Where each message of a stretch begins and ends, and its offset."""
        cursor = Cursor(self.view, self.segment, piece.span.start, piece.first_offset, end=piece.span.end)
        while (chunk := cursor.read()) is not None:
            starts = chunk.starts()
            for row in range(chunk.count):
                yield starts[row], starts[row + 1], chunk.first_offset + row

    def _replaced(self, block: Span, new: bytes) -> tuple[int, bytes, bytes]:
        assert self.sums is not None
        index = block.start // self.sums.block_bytes
        return HEADER.size + index * ENTRY.size, self.sums.stored_entry(index), new


# --- after the damage -----------------------------------------------------------------------------------------------


_MOVED_BYTES: Final = 4096
"""How far before the damage a message can seem to begin, because bytes of it are missing."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole messages without a gap: first <= offset < next. `claimed` is where a message begins that ends at `start`.

    `is_last` if nothing but a message cut short comes after it.
    """

    start: int
    first: int
    end: int
    next: int
    ending: int
    is_last: bool
    claimed: int


class Ahead:
    """Finds which whole messages after damage are the journal's, and which are bytes of a value.

    A value may contain whole messages, and damage may hide the head of the message that has that value. So the messages
    after damage are taken in stretches: messages that follow each other without a gap. A stretch that reaches the end
    of the file is the journal's. Any other stretch is not, if a message spans it:

        by its head         the message that was expected where the damage begins announces a value that contains the
                            stretch; this also overrides a stretch that reaches the end of the file, if the bytes before
                            it are too few for the messages that would be missing
        by its trailer      the size right before a later stretch, or at the end of the file, is that of a message that
                            begins before the stretch

    Neither is it if it has offsets of the next segment, nor if later messages have the same offsets or lower ones.
    Those later messages are the journal's if they reach the end of the file; otherwise neither are. But no message can
    span the stretch if those later messages begin with the expected one or an earlier one, or if the size right before
    them is that of a message that begins within the stretch or after it: then the larger of the two is the journal's,
    and the other one a copy from elsewhere.
    Messages that are not the journal's are lost with the damage.
    """

    def __init__(self, file: File, segment: Segment) -> None:
        self._file = file
        self._segment = segment
        self._size = file.size()
        self._stretches: list[Stretch] | None = None
        self._in_values: set[Stretch] = set()

    def find(self, start: int, expected: int, most: int, is_near: Callable[[Stretch], bool]) -> Stretch | None:
        """The first stretch after damage at `start` that is the journal's: its messages are `expected` to `most`."""
        if self._stretches is None:
            self._stretches = self._scan(start, expected, most)
        stretches = [stretch for stretch in self._stretches if stretch.start >= start]
        passed = start
        for number, stretch in enumerate(stretches):
            if stretch.start < passed or stretch.first < expected or not is_near(stretch):
                continue
            later = stretches[number + 1 :]
            if stretch.ending == codec.CLEAN:
                if self._can_follow(stretch, start, expected):
                    return stretch
                continue
            if stretch.next > most + 1:
                self._in_values.add(stretch)
                continue
            claims = self._claims_over(stretch, start, later)
            is_in_value = self._is_in_value(stretch, start, expected)
            if is_in_value or any(abs(claim - start) < OVERHEAD for claim in claims):
                self._in_values.add(stretch)
            if is_in_value or claims:
                continue
            if stretch.is_last:
                return stretch
            rival = self._find_rival(stretch, later)
            if rival is None or self._outweighs(stretch, rival, expected):
                return stretch
            passed = rival.start if rival.is_last else rival.end
        return None

    def _scan(self, start: int, least: int, most: int) -> list[Stretch]:
        found: list[Stretch] = []
        while (head := find_valid(self._file, start, self._size, least, most)) is not None:
            cursor = Cursor(self._file, self._segment, head[1].start, head[0])
            while cursor.read(load=False) is not None:
                pass
            claimed = self._claimed(head[1].start)
            found.append(
                Stretch(
                    head[1].start, head[0], cursor.position, cursor.expected, cursor.ending, ends_file(cursor), claimed
                )
            )
            start = cursor.position
        if found and found[-1].ending == codec.CLEAN:
            found[:-1] = [replace(stretch, is_last=False) for stretch in found[:-1]]
        return found

    def _can_follow(self, stretch: Stretch, start: int, expected: int) -> bool:
        """Whether the bytes up to a stretch can have held the messages up to it, if an intact head is before it."""
        can_follow = 0 < stretch.first - expected <= (stretch.start - start) // OVERHEAD
        return can_follow or not self._is_in_value(stretch, start, expected)

    def _is_in_value(self, stretch: Stretch, start: int, expected: int) -> bool:
        return is_in_value(self._file, start, expected, stretch.start, stretch.end)

    def _claimed(self, end: int) -> int:
        """Where a message begins that ends here, by the size before it."""
        data = self._file.read_at(max(0, end - TRAILER.size), TRAILER.size) if end >= TRAILER.size else b""
        return end - TRAILER.unpack(data)[0] if data else end

    def _claims_over(self, stretch: Stretch, least: int, later: list[Stretch]) -> list[int]:
        """Where messages begin that span a stretch, by the sizes after it; about `least` or later."""
        ends = [(other.start, other.claimed) for other in later]
        if not any(other.is_last for other in later):
            ends.append((self._size, self._claimed(self._size)))
        claims = [claim for end, claim in ends if end >= stretch.end + TRAILER.size]
        return [claim for claim in claims if least - _MOVED_BYTES <= claim < stretch.start]

    @staticmethod
    def _outweighs(stretch: Stretch, rival: Stretch, expected: int) -> bool:
        """Whether a stretch is the journal's although a later one contradicts it.

        A later stretch that begins with the expected message, or an earlier one, leaves no message that could span this
        one. Neither does a size before the later one that is that of a message which begins within this one, or after
        it. Then one of the two is a copy from elsewhere: the one with fewer messages.
        """
        count, count_of_rival = stretch.next - stretch.first, rival.next - rival.first
        if rival.first <= expected:
            return count > count_of_rival
        return stretch.start <= rival.claimed <= rival.start - OVERHEAD and count >= count_of_rival

    def dropped(self, start: int, end: int) -> list[Stretch]:
        """The stretches between two positions."""
        return [stretch for stretch in self._stretches or () if start <= stretch.start and stretch.end <= end]

    def removed(self, pieces: list[Piece]) -> list[Stretch]:
        """The stretches that are in none of these pieces, and not known to be in a value."""
        kept = [piece.span for piece in pieces]
        return [
            stretch
            for stretch in self._stretches or ()
            if stretch not in self._in_values and not any(one.start <= stretch.start < one.end for one in kept)
        ]

    def _find_rival(self, stretch: Stretch, later: list[Stretch]) -> Stretch | None:
        """A later stretch whose offsets do not follow, unless it is in the value of a message in between."""
        for number, other in enumerate(later):
            if other.first >= stretch.next or is_in_value(self._file, stretch.end, stretch.next, other.start):
                continue
            if other.is_last or not self._claims_over(other, stretch.end + _MOVED_BYTES, later[number + 1 :]):
                return other
        return None
