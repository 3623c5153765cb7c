"""Salvage: one damaged file gone through, so that what is left of it is whole operations only.

A field is restored only if exactly one change of one field explains every byte from there to the end of the file:

    an opcode   the size and the times of an item follow it, and from where that size ends everything can be read
    a size      the opcode and the times of an item are there, no item can have this size, exactly one place can be
                where it ends, and from there everything can be read

A size that an item can have is never changed: where it does not lead to an operation, bytes may be missing or bad. An
item that has swallowed the next one that way is taken out. Otherwise the range is taken out, with up to `MOST_DOUBTED`
operations without a time before it, which the bad bytes may have made up. The item before a range is named as suspect:
its last bytes may belong to the damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from ...core.bytes.outcome import Damage, Span
from ...core.io.disk import File
from ...core.repair.patched import PatchedFile
from ..bytes import codec
from ..bytes.layout import (
    ADD,
    ADD_XID,
    ADD_XID_HEAD,
    ADDX,
    ADDX_HEAD,
    CONTINUE_BYTE,
    DATA_HEAD_BYTES,
    DOCUMENTED,
    KESTREL2,
    LEAST_SIZE,
    LONGEST_HEAD_BYTES,
    SIZE,
    UNDECIDED,
    XID,
)
from .continuation import (
    MOST_DOUBTED,
    evidence_to_end,
    has_times,
    items_between,
    judge,
    leads_to_end,
    next_item,
    own_end,
)
from .cursor import Chunk, Cursor
from .files import JournalFile, Lost

_MOST_TRIES: Final = 16
_READ_BYTES: Final = 1 << 20
_ABSURD_BYTES: Final = 1 << 20
"""By how much a size must lead past the end of the file for it to be wrong: bytes of the file may be missing."""
_SIZE_AT: Final = {ADDX: 1, ADD_XID: 5, CONTINUE_BYTE: 5}
"""Where in an operation that adds a timed item its size is, by its first byte. The times follow it."""


class Fix(NamedTuple):
    """A field of the operation at `start` with other bytes."""

    start: int
    position: int
    old: bytes
    new: bytes
    field: str

    @property
    def reason(self) -> str:
        return f"with this {self.field} the item at {self.start} is whole, and everything after it can be read"


@dataclass(frozen=True, slots=True)
class Gap:
    """A range that is taken out of a file. `damage` is what cannot be read of it.

    `is_one_item` says that exactly one item is damaged; `xid` and `added` are its id and time, as far as they show.
    `suspect` is where the item before the range begins. `missing` bytes were anywhere in the file and are not there any
    more; it is negative if there are too many.
    """

    start: int
    end: int
    damage: Damage
    doubted: int = 0
    suspect: int | None = None
    is_one_item: bool = False
    xid: int | None = None
    added: int | None = None
    missing: int = 0

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def most_bytes(self) -> int:
        """How many bytes of operations are lost at most, as far as is known."""
        return self.damage.size + max(0, self.missing)


@dataclass(slots=True)
class FileSalvage:
    """What is left of a file: `stretches` of whole operations, with a gap after each of them except the last."""

    source: JournalFile
    file: File
    verdict: Any
    stretches: list[Span] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    fix: Fix | None = None
    suspect: int | None = None
    """Where the item before a restored field begins."""
    torn: Damage | None = None
    size: int = 0
    has_adds: bool = False
    """Whether there are items without a time, which are shorter than others."""

    def __post_init__(self) -> None:
        self.view = PatchedFile(self.file)
        self.size = self.file.size()

    view: PatchedFile = field(init=False)

    def chunks(self, stretch: Span) -> Iterator[Chunk]:
        """The operations of a stretch."""
        cursor = self._cursor(stretch.start, stretch.end)
        while (chunk := cursor.read(load=False)) is not None:
            yield chunk

    def _cursor(self, start: int, end: int) -> Cursor:
        verdict = self.verdict
        return Cursor(self.view, self.source, start, dialect=verdict.dialect, settle=verdict.settle, end=end)

    def is_zeros(self) -> bool:
        """Whether the file is nothing but zeros."""
        return not any(any(self.file.read_at(at, _READ_BYTES)) for at in range(0, self.size, _READ_BYTES))

    @property
    def dialect(self) -> int:
        """The dialect to search for operations in: where nothing shows it, the one that has all of them."""
        return KESTREL2 if self.verdict.dialect == UNDECIDED else int(self.verdict.dialect)

    def walk(self, lost: Lost | None = None) -> None:
        """Go through the file. `lost` says that it had another size."""
        self._walk()
        if lost is None or lost.noted is None:
            return
        missing = lost.noted - self.size
        if self.gaps and self.gaps[-1].end == self.size > self.gaps[-1].start and not self.gaps[-1].is_one_item:
            last = self.gaps.pop()
            damage = replace(last.damage, reason=f"{last.damage.reason}; {lost.reason}")
            self.gaps.append(replace(last, damage=damage, missing=missing))
            return
        if len(self.gaps) == len(self.stretches):
            self.stretches.append(Span(self.size, self.size))
        damage = Damage(self.source.name, self.size, self.size, lost.reason)
        self.gaps.append(Gap(self.size, self.size, damage, missing=missing))

    def _walk(self) -> None:
        position = 0
        while True:
            cursor = self._cursor(position, self.size)
            recent: deque[tuple[int, int]] = deque(maxlen=MOST_DOUBTED + 1)
            while (chunk := cursor.read(load=False)) is not None:
                kinds, _, positions = chunk.turns()
                self.has_adds = self.has_adds or ADD in kinds
                recent.extend(zip(positions[-recent.maxlen :], kinds[-recent.maxlen :], strict=True))  # type: ignore[operator]
            if cursor.ending == codec.CLEAN:
                self.stretches.append(Span(position, self.size))
                return
            stopped = cursor.position
            swallowing = self._find_swallowing(recent, stopped)
            damage, _ = judge(cursor)
            assert damage is not None
            if damage.kind == "torn_tail" and swallowing is None:
                self.stretches.append(Span(position, stopped))
                self.torn = damage
                return
            self.fix = self._find_fix(stopped) if swallowing is None else None
            if self.fix is not None:
                self.suspect = _item_before(recent, self.fix.start)
                self.view.add(self.fix.position, self.fix.new)
                self.stretches.append(Span(position, self.size))
                return
            gap = self._gap(damage, recent, swallowing)
            self.gaps.append(gap)
            self.stretches.append(Span(position, gap.start))
            if gap.end >= self.size:
                return
            position = gap.end

    def _gap(self, damage: Damage, recent: deque[tuple[int, int]], swallowing: tuple[int, int] | None) -> Gap:
        if swallowing is not None:
            first, end = swallowing
            bad = Damage(damage.file, first, end, f"its size leads into another operation, at {damage.start}")
            return Gap(first, end, bad, suspect=_item_before(recent, first), is_one_item=False)
        start, doubted = damage.start, 0
        if own_end(self.view, damage.start, self.size, self.dialect) == damage.end:
            return Gap(start, damage.end, damage, 0, _item_before(recent, start), True, *self._shown(start))
        for position, kind in reversed(recent):
            if kind in DATA_HEAD_BYTES or doubted == MOST_DOUBTED:
                break
            start, doubted = position, doubted + 1
        return Gap(start, damage.end, damage, doubted, _item_before(recent, start))

    def _shown(self, start: int) -> tuple[int | None, int | None]:
        """The id and the time of a damaged item, as far as they show."""
        head = self.view.read_at(start, LONGEST_HEAD_BYTES)
        if has_times(head, ADDX_HEAD.size - 16):
            return None, ADDX_HEAD.unpack_from(head)[2]
        if has_times(head, ADD_XID_HEAD.size - 16):
            return XID.unpack_from(head, 1)[0], ADD_XID_HEAD.unpack(head)[3]
        return None, None

    # --- restoring a field ------------------------------------------------------------------------------------------

    def _find_swallowing(self, recent: deque[tuple[int, int]], stopped: int) -> tuple[int, int] | None:
        """The item before bad bytes, if its size is too large, and the first item that it has swallowed."""
        if not recent or recent[-1][1] not in DATA_HEAD_BYTES:
            return None
        first = recent[-1][0]
        candidates = islice(items_between(self.view, first + 1, self.size, self.dialect), _MOST_TRIES)
        swallowed = takewhile(lambda position: position < stopped, candidates)
        found = next((position for position in swallowed if self._crosses(position, stopped)), None)
        return None if found is None else (first, found)

    def _crosses(self, position: int, place: int) -> bool:
        """Whether operations lead from a position past a place where none of them ends."""
        cursor = self._cursor(position, self.size)
        while cursor.position <= place and (chunk := cursor.read(load=False)) is not None:
            if place in chunk.starts():
                return False
        return cursor.position > place

    def _find_fix(self, stopped: int) -> Fix | None:
        """The only change of a field of the operation at a position that explains everything from there on."""
        found = self._opcodes_at(stopped)
        item = next_item(self.view, self.source, stopped, self.size, self.dialect)
        found += [] if item is None else self._sizes_at(stopped, item)
        return found[0] if len(found) == 1 else None

    def _opcodes_at(self, start: int) -> list[Fix]:
        """The opcodes that make an item of what is at a position."""
        head = self.view.read_at(start, LONGEST_HEAD_BYTES)
        found = []
        for opcode, size_at in _SIZE_AT.items():
            if opcode == head[0] or (opcode == CONTINUE_BYTE and self.dialect == DOCUMENTED):
                continue
            if not has_times(head, size_at + SIZE.size):
                continue
            (size,) = SIZE.unpack_from(head, size_at)
            end = start + size_at + SIZE.size + size
            if size >= LEAST_SIZE[ADDX] and end <= self.size and self._leads_to_end(end):
                found.append(Fix(start, start, head[:1], bytes([opcode]), "opcode"))
        return found

    def _sizes_at(self, start: int, item: int) -> list[Fix]:
        """The sizes that lead from the item at a position to the next one; at most two."""
        head = self.view.read_at(start, LONGEST_HEAD_BYTES)
        size_at = _SIZE_AT.get(head[0])
        if size_at is None or not has_times(head, size_at + SIZE.size) or not self._leads_to_end(item):
            return []
        (size,) = SIZE.unpack_from(head, size_at)
        if LEAST_SIZE[ADDX] <= size < self.size - start + _ABSURD_BYTES:
            return []  # it may be right, and bytes are missing
        low = start + size_at + SIZE.size + LEAST_SIZE[ADDX]
        if item < low:
            return []
        evidence = evidence_to_end(self.view.read_at(low, item - low), self.dialect)
        ends = [low + at for at, bits in enumerate(evidence) if bits] + [item]
        old = head[size_at : size_at + SIZE.size]
        base = start + size_at + SIZE.size
        return [Fix(start, start + size_at, old, SIZE.pack(end - base), "size") for end in ends[:2]]

    def _leads_to_end(self, position: int) -> bool:
        return leads_to_end(self.view, self.source, position, self.size, self.dialect)


def _item_before(recent: deque[tuple[int, int]], start: int) -> int | None:
    """The item that ends nearest before a position, if no more than a few operations are between them."""
    return next((at for at, kind in reversed(recent) if at < start and kind in DATA_HEAD_BYTES), None)
