"""Salvage: one damaged file gone through, so that what is left of it is whole operations only.

A field is restored only if exactly one change of one field explains every byte from there to the end of the file:

    an opcode   the size and the times of an item follow it, and from where that size ends everything can be read
    a size      the opcode and the times of an item are there, no item can have this size, exactly one place can be
                where it ends, and from there everything can be read

An item is restored only if its time is in the order of its neighbours', and if no whole operations within it lead to
its end: a wrong size can lead to an operation by chance. A size that an item can have is never changed: where it does
not lead to an operation, bytes may be missing or bad. An opcode that can be read is not changed either: that of the
item may be missing after it. An item that has swallowed the beginning of the next one is taken out. Otherwise the range
is taken out, with up to `MOST_DOUBTED` operations without a time before it, and those whose ids are impossible, which
the bad bytes may have made up. The item before a range is named as suspect: its last bytes may belong to the damage.
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
    CONFIRM_REMOVE,
    CONTINUE_BYTE,
    DATA_HEAD_BYTES,
    DOCUMENTED,
    KESTREL2,
    LEAST_SIZE,
    LONGEST_HEAD_BYTES,
    REMOVE_TENTATIVE_XID,
    SIZE,
    UNDECIDED,
    UNREMOVE,
    XID,
)
from .continuation import (
    LOOK_BACK,
    MOST_DOUBTED,
    begun_at,
    evidence_to_end,
    has_times,
    holds_operations,
    is_possible_xid,
    items_between,
    judge,
    leads_to_end,
    next_item,
    own_end,
    reads_on,
)
from .cursor import Chunk, Cursor
from .files import JournalFile, Lost

_MOST_TRIES: Final = 16
_READ_BYTES: Final = 1 << 20
_ABSURD_BYTES: Final = 1 << 20
"""By how much a size must lead past the end of the file for it to be wrong: bytes of the file may be missing."""
_OF_AN_ID: Final = (UNREMOVE, CONFIRM_REMOVE, REMOVE_TENTATIVE_XID)
_SIZE_AT: Final = {ADDX: 1, ADD_XID: 5, CONTINUE_BYTE: 5}
"""Where in an operation that adds a timed item its size is, by its first byte. The times follow it."""
_NAMED: Final = (ADD_XID, CONTINUE_BYTE)
"""The items with an id, by their first byte."""


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

    def walk(self) -> None:
        """Go through the file."""
        position = 0
        while True:
            cursor = self._cursor(position, self.size)
            recent: deque[tuple[int, int]] = deque(maxlen=LOOK_BACK)
            while (chunk := cursor.read(load=False)) is not None:
                kinds, _, positions = chunk.effects()
                self.has_adds = self.has_adds or ADD in kinds
                recent.extend(zip(positions[-LOOK_BACK:], kinds[-LOOK_BACK:], strict=True))
            if cursor.ending == codec.CLEAN:
                self.stretches.append(Span(position, self.size))
                return
            stopped = cursor.position
            begun = begun_at(self.view, self.source, [at for at, _ in recent], stopped, self.dialect)
            swallowing = self._find_swallowing(recent, stopped) if begun is None else None
            damage, _ = judge(cursor)
            assert damage is not None
            if damage.kind == "torn_tail" and swallowing is None:
                self.stretches.append(Span(position, stopped))
                self.torn = damage
                return
            self.fix = self._find_fix(stopped, recent) if begun is None and swallowing is None else None
            if self.fix is not None:
                self.suspect = _item_before(recent, self.fix.start)
                self.view.add(self.fix.position, self.fix.new)
                self.stretches.append(Span(position, self.size))
                return
            gap = self._gap(damage, recent, swallowing) if begun is None else self._begun_gap(begun, recent)
            if swallowing is not None and self.view.read_at(gap.end, 1)[0] == CONTINUE_BYTE:
                self.verdict.dialect = self.dialect  # it was found as an item
            self.gaps.append(gap)
            self.stretches.append(Span(position, gap.start))
            if gap.end >= self.size:
                return
            position = gap.end

    def note_size(self, lost: Lost) -> None:
        """Take note that the file had another size."""
        if lost.noted is None:
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

    def _begun_gap(self, begun: int, recent: deque[tuple[int, int]]) -> Gap:
        """The gap of an item whose opcode reads like another one: it has changed, or it is missing after that one."""
        end = own_end(self.view, self.source, begun, self.size, self.dialect)
        assert end is not None
        opcode = self.view.read_at(begun, 1)[0]
        reason = f"the size and the times of an item follow the opcode {opcode}"
        return Gap(begun, end, Damage(self.source.name, begun, end, reason), suspect=_item_before(recent, begun))

    def _gap(self, damage: Damage, recent: deque[tuple[int, int]], swallowing: tuple[int, int] | None) -> Gap:
        if swallowing is not None:
            first, end = swallowing
            bad = Damage(damage.file, first, end, f"its size leads into another operation, at {damage.start}")
            recent = deque(one for one in recent if one[0] <= first)
            if recent[-1][1] in DATA_HEAD_BYTES:
                return Gap(first, end, bad, suspect=_item_before(recent, first))
            damage = replace(bad, start=recent[-1][0], reason=f"an item begins within it, at {end}")
            recent.pop()
        elif self._is_one_item(damage) and not self._is_made_up(recent):
            suspect = _item_before(recent, damage.start)
            return Gap(damage.start, damage.end, damage, 0, suspect, True, *self._shown(damage.start))
        else:
            damage = self._with_its_own_item(damage)
        start, doubted = damage.start, 0
        for number, (position, kind) in enumerate(reversed(recent), 1):
            if kind in DATA_HEAD_BYTES:
                break
            if number <= MOST_DOUBTED or (kind in _OF_AN_ID and self._is_made_up_at(position)):
                start, doubted = position, number
        return Gap(start, damage.end, damage, doubted, _item_before(recent, start))

    def _with_its_own_item(self, damage: Damage) -> Damage:
        """The damage, with the item after it if that begins within the id of a damaged one: it is that one.

        An id of 7 or 8 reads like an opcode, if bytes were inserted after it.
        """
        head = self.view.read_at(damage.start, LONGEST_HEAD_BYTES)
        following = head[damage.size : damage.size + 1]
        if head[0] not in _NAMED or not 0 < damage.size <= XID.size or not following or following[0] not in _NAMED:
            return damage
        head = self.view.read_at(damage.end, LONGEST_HEAD_BYTES)
        return replace(damage, end=damage.end + (codec.claimed_size(head, 0, len(head), self.dialect) or 0))

    def _is_one_item(self, damage: Damage) -> bool:
        """Whether a range is exactly one damaged item, by its own size."""
        own = own_end(self.view, self.source, damage.start, self.size, self.dialect)
        return own == damage.end and not self._holds_operations(damage.start, damage.end)

    def _holds_operations(self, start: int, end: int) -> bool:
        return holds_operations(self.view, self.source, start, end, self.dialect)

    def _is_made_up(self, recent: deque[tuple[int, int]]) -> bool:
        """Whether the last operation before bad bytes has an id that is none, so that they begin in it."""
        return bool(recent) and recent[-1][1] in _OF_AN_ID and self._is_made_up_at(recent[-1][0])

    def _is_made_up_at(self, position: int) -> bool:
        return not is_possible_xid(self.view.read_at(position, XID.size + 1))

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
        """The operation before bad bytes that has swallowed the beginning of an item, and where that item begins."""
        if not recent:
            return None
        candidates = islice(items_between(self.view, recent[0][0] + 1, self.size, self.dialect), _MOST_TRIES)
        swallowed = takewhile(lambda position: position < stopped, candidates)
        found = next((position for position in swallowed if self._crosses(position, stopped)), None)
        return None if found is None else (max(at for at, _ in recent if at < found), found)

    def _crosses(self, position: int, place: int) -> bool:
        """Whether operations lead from a position past a place where none of them ends, and others follow them."""
        dialect = self.dialect
        cursor = Cursor(self.view, self.source, position, dialect=dialect, end=self.size)
        starts = [position]
        while cursor.position <= place and (chunk := cursor.read(load=False)) is not None:
            starts = chunk.starts()
            if place in starts:
                return False
        end = min((start for start in starts if start > place), default=place)
        return end > place and (end == self.size or reads_on(self.view, end, self.size, dialect))

    def _find_fix(self, stopped: int, recent: deque[tuple[int, int]]) -> Fix | None:
        """The only change of a field of the operation at a position that explains everything from there on."""
        if self._is_made_up(recent):
            return None
        found = self._opcodes_at(stopped)
        item = next_item(self.view, self.source, stopped, self.size, self.dialect)
        found += [] if item is None else self._sizes_at(stopped, item)
        return found[0] if len(found) == 1 and self._is_in_order(found[0], recent) else None

    def _is_in_order(self, fix: Fix, recent: deque[tuple[int, int]]) -> bool:
        """Whether a restored item was added neither before the one that precedes it nor after the one that follows it.

        Its time is next to the field that is wrong, and may be damaged too.
        """
        view = self.view.with_patch(fix.position, fix.new)
        head = view.read_at(fix.start, LONGEST_HEAD_BYTES)
        end = fix.start + (codec.claimed_size(head, 0, len(head), self.dialect) or 0)
        after = next(items_between(view, end, self.size, self.dialect), None)
        around = [at for at in (_item_before(recent, fix.start), fix.start, after) if at is not None]
        heads = [view.read_at(at, LONGEST_HEAD_BYTES) for at in around]
        times = [codec.added_at(head, 0, self.dialect) for head in heads]
        return times == sorted(times)

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
            if size < LEAST_SIZE[ADDX] or end > self.size or self._holds_operations(start, end):
                continue
            if self._leads_to_end(end):
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
