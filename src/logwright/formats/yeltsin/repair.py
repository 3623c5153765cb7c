"""Repairing a journal: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                 is cut off, and the header and the last link are set to what is left
    a link that cannot be       is set to what the links the other way, or the places of whole transactions, say
    a header that is torn       is written anew from the transactions
    a last transaction that     is cut off like a torn tail, if the header that did not name it is to be set
    is not what was sealed
    bytes that are no           stay where they are: the links of the transactions before and behind them lead over them
    transaction

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented: what is lost in bad bytes is told, and what the
storage has of it is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.disk import Disk, File
from ...core.losses import Loss
from ...core.outcome import Damage, Malformed
from ...core.repair import Cut, Patch, Plan, Repair, Step
from ...core.repairing import SideBySideRepair
from .cursor import NOWHERE, Cursor, judge
from .files import Header, JournalFile, is_whole, link_place, list_journals, measure, read_head, read_header
from .layout import FIRST_AT, HEADER, HEADER_BYTES, LAST_AT, LINK, NEXT_AT, SIGNATURE, lock_name
from .reader import Reader
from .stretch import has_end

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / name, disk=disk) for name in list_journals(disk, path)]
    return [Reader(path, disk=disk)]


@dataclass(slots=True)
class _Salvage:
    """A file gone through: the last whole transaction so far, and what must be written so that links lead to it."""

    reader: Reader
    source: JournalFile
    file: File
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    size: int = 0
    first: int = 0
    last: int = 0
    end: int = HEADER_BYTES
    before: tuple[int, int] = (0, HEADER_BYTES)
    """The transaction before the last one, and where that ends."""
    reason: str = ""
    knows_last: bool = True

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        header = self._header()
        if header is None:
            self.end = self.size  # nothing is known of what is there: nothing is cut
            return
        cursor = Cursor(self.file, self.source, header, knows_last=self.knows_last)
        is_broken = True  # the way to the first transaction is checked, and from then on where no link may have led
        goes_on = True
        while goes_on:
            while (chunk := cursor.read(load=False)) is not None:
                starts = chunk.starts()
                if is_broken:
                    self._join(starts[0])
                    is_broken = False
                self.first = self.first or starts[0]
                self.before = (starts[-3], starts[-2]) if chunk.count > 1 else (self.last, self.end)
                self.last, self.end = starts[-2], starts[-1]
            damage, goes_on = judge(cursor)
            is_broken = True
            if damage is not None:
                self.reason = self.reason or damage.reason
                self._take_mended(damage)
        self._finish(header)

    def _header(self) -> Header | None:
        """The header to begin with: what is there, or a guess by what lies behind a torn one."""
        data = self.file.read_at(0, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            if data:
                self.left.append(f"{self.source.name} @ 0: the header is not whole; the next writer makes it anew")
            return None
        try:
            return read_header(self.file)
        except Malformed as malformed:
            self.reason = malformed.reason
        head = read_head(self.file, HEADER_BYTES)
        if head is not None and head.previous == 0 and is_whole(self.file, HEADER_BYTES, self.size):
            self.knows_last = False
            self._patch(0, SIGNATURE, self.reason)
            return Header(HEADER_BYTES, NOWHERE)
        if self.size == HEADER_BYTES and not any(data[FIRST_AT:]):
            self._patch(0, SIGNATURE, self.reason)
            return Header(0, 0)
        self.left.append(f"{self.source.name} @ 0: {self.reason}; no transaction is behind it either")
        return None

    def _patch(self, position: int, new: bytes, reason: str) -> None:
        self.patches = [patch for patch in self.patches if patch.position != position]
        old = self.file.read_at(position, len(new))
        if old != new:
            self.patches.append(Patch(self.source.name, position, old, new, reason))

    def _join(self, position: int) -> None:
        """Let the last transaction so far, or the header, and the one at a position name each other."""
        reason = self.reason or "the links lead over this place"
        if self.last or position:
            place = link_place(self.last)
            if place != FIRST_AT:
                self._patch(place, LINK.pack(position), reason)
        self._patch(position, LINK.pack(self.last), reason)

    def _take_mended(self, damage: Damage) -> None:
        """Bad bytes may be a whole transaction whose own `next` is wrong; else they are told."""
        if damage.kind != "malformed":
            return
        head = read_head(self.file, damage.start)
        try:
            end = measure(self.file, damage.start, self.size, follow_next=False)
        except Malformed:
            end = None
        if head is not None and end is not None and end <= damage.end and head.previous == self.last:
            self._join(damage.start)
            self.first = self.first or damage.start
            self.before = self.last, self.end
            self.last, self.end = damage.start, end
            return
        lost = f"{damage.size} bytes could not be read ({damage.reason}): the transactions in them are lost"
        self.left.append(f"{damage.file} @ {damage.start}: {lost}")

    def _finish(self, header: Header) -> None:
        """The ends of the chain: header, and the link of the last transaction."""
        head = read_head(self.file, self.last)
        if head is not None and not head.complete and not has_end(self.file, self.last, self.size):
            self.reason = self.reason or "the last transaction never reached the storage"
            self.last, self.end = self.before
            self.first = self.first if self.last else 0
            self.patches = [patch for patch in self.patches if patch.position < self.end]
        reason = self.reason or "the header names other transactions"
        found = HEADER.unpack(self.file.read_at(0, HEADER_BYTES))
        for at, there, wanted in ((FIRST_AT, found[1], self.first), (LAST_AT, found[2], self.last)):
            if there != wanted:
                self._patch(at, LINK.pack(wanted), reason)
        if self.last:
            self._patch(self.last + NEXT_AT, bytes(LINK.size), reason)

    def steps(self) -> list[Step]:
        """The steps that leave a chain of whole transactions; none where nothing is wrong.

        That transactions which are sealed are neither linked nor named is nothing wrong: the next writer does that.
        """
        if not self.reason:
            return []
        steps: list[Step] = [*self.patches]
        if self.size > self.end and self.size >= HEADER_BYTES:
            steps.append(Cut(self.source.name, self.end, self.size, self.reason))
        return steps


_REPAIR: Final = SideBySideRepair("yeltsin", list_journals, "no journal is here", _readers, _Salvage, lock_name)
plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
