"""Which whole messages after damage are the journal's, and which are bytes of a value.

A value may hold whole messages, and damage may hide where the message begins that has that value. So what is found
after damage is taken in stretches: messages that follow each other without a gap. A stretch that leads to the end of
the file is the journal's. Any other one is not, if a message says that it spans it:

    by its head         the message that was expected where the damage begins announces a value in which it lies;
                        this is believed of messages up to the end of the file as well, if there is no room for the
                        messages that would be missing
    by its trailer      the size right before a later stretch, or at the end of the file, is that of a message that
                        begins before it

Nor is it if later messages have offsets that it has as well, or lower ones: the later messages are the journal's if
they lead to the end of the file, and else neither are. What is not the journal's is lost with the damage around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...core.io.disk import File
from ..bytes import codec
from ..bytes.layout import OFFSET, OVERHEAD, TRAILER
from .segment import Cursor, Segment, find_valid, is_in_value

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
    """The stretches after the damage in a segment, found once."""

    def __init__(self, file: File, segment: Segment) -> None:
        self._file = file
        self._segment = segment
        self._size = file.size()
        self._stretches: list[Stretch] | None = None

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
            if is_in_value(self._file, start, expected, stretch.start) or self._is_spanned(stretch, start, later):
                continue
            if stretch.is_last:
                return stretch
            rival = self._find_rival(stretch, later)
            if rival is None:
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
        return found

    def _can_follow(self, stretch: Stretch, start: int, expected: int) -> bool:
        """Whether the bytes up to a stretch can have held the messages up to it, if an intact head is before it."""
        can_follow = 0 < stretch.first - expected <= (stretch.start - start) // OVERHEAD
        return can_follow or not is_in_value(self._file, start, expected, stretch.start)

    def _claimed(self, end: int) -> int:
        """Where a message begins that ends here, by the size before it."""
        data = self._file.read_at(max(0, end - TRAILER.size), TRAILER.size) if end >= TRAILER.size else b""
        return end - TRAILER.unpack(data)[0] if data else end

    def _is_spanned(self, stretch: Stretch, least: int, later: list[Stretch]) -> bool:
        """Whether a size after a stretch is that of a message that begins before it, and no earlier than `least`."""
        ends = [(other.start, other.claimed) for other in later]
        ends.append((self._size, self._claimed(self._size)))
        claims = [claim for end, claim in ends if end >= stretch.end + TRAILER.size]
        return any(least - _MOVED_BYTES <= claim < stretch.start for claim in claims)

    def _find_rival(self, stretch: Stretch, later: list[Stretch]) -> Stretch | None:
        """A later stretch whose offsets do not follow; not one that lies in the value of a message in between."""
        for number, other in enumerate(later):
            if other.first >= stretch.next or is_in_value(self._file, stretch.end, stretch.next, other.start):
                continue
            if other.is_last or not self._is_spanned(other, stretch.end + _MOVED_BYTES, later[number + 1 :]):
                return other
        return None


def ends_file(cursor: Cursor) -> bool:
    """Whether a cursor that has come to its end is at the end of the file, or at a message that was cut short."""
    if cursor.ending == codec.CLEAN:
        return True
    begun = cursor.file.read_at(cursor.position, OFFSET.size)
    return cursor.ending == codec.INCOMPLETE and OFFSET.pack(cursor.expected).startswith(begun)
