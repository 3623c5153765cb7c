"""Repairing a journal: what to do about each kind of damage. `core/repair/plan.py` carries it out, and can undo it.

    a torn tail                  is cut off, and the header and the last link are set to what is left
    a header or a link that is   is set by the places of whole transactions, and named in the account as restored
    wrong
    bytes that are no            are lost: links lead over them, and the account says what is known of the transactions
    transaction                  in them; after the last whole transaction they are cut off
    transactions that moved      go back to the offsets that they were written at: the file is put together again,
                                 without the bytes that were inserted, and with zeros where some were removed
    a transaction that is not    is taken out: nothing proves what it was. The last one is cut off like a torn tail if
    what was sealed              it is not flagged to be in the storage
    flags of a sealed            are set: our writers set only the lowest, and not before those of earlier ones
    transaction
    a transaction with a wrong   is taken out as well if its time is not between those of its neighbours, or its flags
    link and no seal             are unknown: then the damage goes beyond the link

`salvage.py` finds the whole transactions. Operations are never changed. If a link that is set is covered by a valid
seal, the seal is computed again. Every removed byte is kept in `.logwright/cut/`.

The `fields` of a loss, for programs:

    start, end     the offsets between which transactions are lost; `end` is None where nothing follows
    after          how many transactions precede it
    from, to       the times of the transactions around it, in seconds, None where there is none
    pages          pages that the lost transactions are known to concern; there may be others
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ...core.bytes.outcome import Damage, Span
from ...core.io.disk import Disk, File
from ...core.repair.losses import Loss, listed
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step, Zeros
from ...core.repair.side_by_side import FileByFile, SideBySideRepair
from ..bytes import codec
from ..bytes.layout import (
    COMPLETE,
    FIRST_AT,
    FLAGS_AT,
    HEADER,
    HEADER_BYTES,
    LAST_AT,
    LAST_TIME,
    LINK,
    NEXT_AT,
    OPERATION_HEAD_BYTES,
    PREVIOUS_AT,
    SIGNATURE,
    lock_name,
)
from .continuation import judge
from .cursor import Cursor
from .files import Head, Header, JournalFile, Nearby, Readable, has_first_transaction, list_journals, read_head
from .lost import lost_after, lost_between, lost_with_header
from .operations import find_unproven_end, has_end, holds_seal, seal_of
from .reader import Reader
from .salvage import Run, Search, header_run
from .seal import CHANGED, MARK, SEAL_HEAD

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]


class _Item(NamedTuple):
    """A whole transaction of a run: its row there, its offset and its head; offset 0 is the header of the file."""

    run: Run
    row: int
    offset: int
    head: Head | None
    file: Nearby | None = None

    @property
    def end(self) -> int:
        starts = self.run.starts
        return starts[self.row + 1] if self.row + 1 < len(starts) else self.run.end


_SUFFIX: Final = ".repair"
_UNKNOWN: Final = Header(0, 0)


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / name, disk=disk) for name in list_journals(disk, path)]
    return [Reader(path, disk=disk)]


@dataclass(slots=True)
class _Salvage:
    """A file that is being repaired: its whole transactions, the changes that link them, and the losses."""

    reader: Reader
    source: JournalFile
    file: File
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    """The changes that the patches make."""
    runs: list[Run] = field(default_factory=list)
    others: list[Run] = field(default_factory=list)
    size: int = 0
    end: int = 0
    """Where the torn tail begins; the end of the file if there is none."""
    reason: str = ""
    is_damaged: bool = False
    """Whether anything but a torn tail is wrong."""
    header: Header = _UNKNOWN
    """What the header says, as far as it is valid."""
    last_flagged: int = 0
    """The last transaction that is known to be in the storage."""
    sealed_previous: dict[int, int] = field(default_factory=dict)
    """The `previous` that transactions were sealed with, where another value is in the file now."""

    def walk(self) -> None:
        """Read the file."""
        self.size = self.end = self.file.size()
        if self.size < HEADER_BYTES:
            self._read_half_header()
            return
        is_known = self._read_header()
        if not self.reason:
            return
        search = Search(self.file, self.source, self.header, self.end)
        self.runs, self.others = search.find()
        if not self.runs and not is_known:
            self.left.append(f"{self.source.name} @ 0: {self.reason}; no transaction is found after it either")
            self.reason = ""
            return
        self._drop_unfinished(search)
        self._drop_changed(search)
        self._set_links(search)
        if self.is_damaged:
            self._account(search)

    # --- what is wrong ------------------------------------------------------------------------------------------------

    def _read_half_header(self) -> None:
        data = self.file.read_at(0, HEADER_BYTES)
        loss = lost_with_header(self.source.name, self.size)
        if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
            self.left.append(f"{self.source.name} @ 0: {loss.reason}, and they are not those of a journal")
            return
        self.reason = loss.reason
        self.losses.append(loss)

    def _read_header(self) -> bool:
        """Record the header, and the damage that a reader finds; whether the header is credible."""
        signature, first, last = HEADER.unpack(self.file.read_at(0, HEADER_BYTES))
        header = Header(first, last)
        if signature != SIGNATURE:
            self.is_damaged = True
            self.reason = f"a journal begins with {SIGNATURE!r}, and not with {signature!r}"
            is_empty = first == last == 0 and self.size == HEADER_BYTES
            if not is_empty and not has_first_transaction(self.file):
                return False
        self.header = header
        for damage in self._damages():
            self.reason = self.reason or damage.reason
            if damage.kind != "torn_tail":
                self.is_damaged = True
            elif damage.start >= HEADER_BYTES and not self.is_damaged:  # the last transaction is known
                self.end = damage.start
        return True

    def _damages(self) -> Iterator[Damage]:
        cursor = Cursor(self.file, self.source, self.header)
        nearby = Nearby(self.file)
        goes_on = True
        while goes_on:
            while (chunk := cursor.read(load=False)) is not None:
                for start, end in pairwise(chunk.starts()):
                    reason = _changed(nearby, start, end)
                    if reason:
                        yield Damage(self.source.name, start, end, reason)
            damage, goes_on = judge(cursor)
            if damage is not None:
                yield damage

    # --- what is to be written ----------------------------------------------------------------------------------------

    def _drop_unfinished(self, search: Search) -> None:
        """Remove a last transaction that never reached the storage."""
        if not self.runs:
            return
        run = self.runs[-1]
        file = search.moved(run.shift)
        head = read_head(file, run.last)
        assert head is not None
        if head.complete or has_end(file, run.last, run.end):
            return
        self.end, run.end = run.last + run.shift, run.last
        del run.starts[-1]
        if not run.starts:
            del self.runs[-1]

    def _drop_changed(self, search: Search) -> None:
        """Remove transactions that are not as they were written."""
        kept: list[Run] = []
        before, first = _Item(header_run(self.header), 0, 0, None), 0
        for item, after in pairwise(chain(self._items(search), [None])):
            assert item is not None
            if item.row == 0:
                first = 0
            if not self._is_written(before, item, after):
                kept += [] if first == item.row else [item.run.part(first, item.row)]
                first = item.row + 1
                self.is_damaged = True
            elif item.head is not None and item.head.flags == COMPLETE:
                self.last_flagged = item.offset
            count = len(item.run.starts)
            if item.row == count - 1 and first < count:
                kept.append(item.run.part(first, count))
            before = item
        self.runs = kept

    def _items(self, search: Search) -> Iterator[_Item]:
        for run in self.runs:
            file = Nearby(search.moved(run.shift))
            for row, offset in enumerate(run.starts):
                yield _Item(run, row, offset, read_head(file, offset), file)

    def _is_written(self, before: _Item, item: _Item, after: _Item | None) -> bool:
        """Whether a transaction is as it was written, as far as its seal, or its links, time and flags, show it."""
        head = item.head
        assert item.file is not None
        assert head is not None
        end = find_unproven_end(item.file, item.offset, item.end)
        if end is not None and end.seal:
            lost = (before.end,) if item.row == 0 else ()
            for previous in dict.fromkeys((head.previous, before.offset, *lost)):
                if holds_seal(item.file, item.offset, end, previous):
                    if previous != head.previous:
                        self.sealed_previous[item.offset] = previous
                    return True
            return False
        is_named = head.previous == before.offset or (item.row == 0 and before.end <= head.previous < item.offset)
        if is_named and head.next in (item.end, 0 if after is None else after.offset):
            return True
        earliest = 0 if before.head is None else before.head.timestamp
        latest = LAST_TIME if after is None or after.head is None else after.head.timestamp
        return head.flags <= COMPLETE and earliest <= head.timestamp <= latest

    def _set_links(self, search: Search) -> None:
        """Set the links of the header and the transactions."""
        previous = 0
        for number, run in enumerate(self.runs):
            file = Nearby(search.moved(run.shift))
            ends = [*run.starts[1:], self.runs[number + 1].first if number + 1 < len(self.runs) else 0]
            for offset, following in zip(run.starts, ends, strict=True):
                head = read_head(file, offset)
                assert head is not None
                if self.sealed_previous.get(offset, head.previous) != previous:
                    self._set_seal(search.moved(run.shift), offset, run.end, previous)
                if head.previous != previous:
                    where = f"`previous` of the transaction at {offset}"
                    self._patch(offset + PREVIOUS_AT, LINK.pack(head.previous), LINK.pack(previous), where)
                if head.next != following:
                    where = f"`next` of the transaction at {offset}"
                    self._patch(offset + NEXT_AT, LINK.pack(head.next), LINK.pack(following), where)
                if head.flags > COMPLETE:
                    self._set_flags(file, offset, run.end, head.flags)
                previous = offset
        old = self.file.read_at(0, HEADER_BYTES)
        new = codec.encode_header(self.runs[0].first if self.runs else 0, previous)
        fields = ("the signature", 0, FIRST_AT), ("`first`", FIRST_AT, LAST_AT), ("`last`", LAST_AT, HEADER_BYTES)
        for what, start, stop in fields:
            if old[start:stop] != new[start:stop]:
                self._patch(start, old[start:stop], new[start:stop], f"{what} in the header")

    def _set_seal(self, file: File, offset: int, end: int, previous: int) -> None:
        """Compute a seal again that covers another `previous`. `_drop_changed` has checked that it was valid."""
        found = find_unproven_end(file, offset, end)
        if found is None or not found.seal:
            return
        new = seal_of(file, offset, found.position, found.seal[SEAL_HEAD.size :], previous)
        part = slice(len(MARK), SEAL_HEAD.size)
        where = f"the seal of the transaction at {offset}"
        self._patch(found.position + OPERATION_HEAD_BYTES + len(MARK), found.seal[part], new[part], where)

    def _set_flags(self, file: Readable, offset: int, end: int, flags: int) -> None:
        """Set the flags of a sealed transaction. It is redone unless it is proven to be in the storage."""
        found = find_unproven_end(file, offset, end)
        if found is not None and found.seal:
            new = COMPLETE if offset < self.last_flagged else 0
            where = f"the flags of the transaction at {offset}"
            self._patch(offset + FLAGS_AT, bytes([flags]), bytes([new]), where)

    def _patch(self, offset: int, old: bytes, new: bytes, what: str) -> None:
        self.patches.append(Patch(self.source.name, offset, old, new, self.reason))
        self.restored.append(what)

    # --- the account --------------------------------------------------------------------------------------------------

    def _account(self, search: Search) -> None:
        """Record what is lost between runs and after them, and what was set."""
        before = header_run(self.header)
        count = 0
        for run in self.runs:
            loss = lost_between(search, before, run, count, self.reason, self.others)
            self.losses += [] if loss is None else [loss]
            before = run
            count += len(run.starts)
        if self.end == self.size:
            loss = lost_after(search, before, self.header, count, self.reason, self.others)
            self.losses += [] if loss is None else [loss]
        if self.patches:
            size = sum(len(patch.new) for patch in self.patches)
            self._restore(self.patches[0].position, size, listed(self.restored, len(self.restored)))
        for run in self.runs:
            if run.shift:
                how = "inserted" if run.shift > 0 else "removed"
                what = f"the places of {len(run.starts)} transactions: {abs(run.shift)} bytes were {how} before them"
                self._restore(run.place.start, run.place.size, what)

    def _restore(self, position: int, size: int, what: str) -> None:
        self.losses.append(Loss(self.source.name, position, size, 0, 0, what, self.reason, "restored"))

    # --- the steps ----------------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """The steps that leave a chain of whole transactions; none if nothing is wrong.

        Sealed transactions that are not linked or named yet are not wrong: the next writer links and names them.
        """
        if not self.reason:
            return []
        if self.size < HEADER_BYTES:
            return self._replaced(Create(self._replacement, "", (), "an empty journal", codec.encode_header(0, 0)))
        end = self.runs[-1].end if self.runs else HEADER_BYTES
        if not any(run.shift for run in self.runs):
            cut = [Cut(self.source.name, end, self.size, self.reason)] if self.size > end else []
            return [*self.patches, *cut]
        spans: list[Span | Zeros] = [Span(0, HEADER_BYTES)]
        at = HEADER_BYTES
        for run in self.runs:
            if run.first > at:
                spans.append(Zeros(run.first - at))
            spans.append(run.place)
            at = run.end
        create = Create(self._replacement, self.source.name, tuple(spans), "transactions at their own offsets")
        return self._replaced(create, *(replace(patch, file=self._replacement) for patch in self.patches))

    @property
    def _replacement(self) -> str:
        return self.source.name + _SUFFIX

    def _replaced(self, *made: Step) -> list[Step]:
        name = self.source.name
        rename = Rename(self._replacement, name, "it takes the place of the damaged file")
        return [*made, Remove(name, self.reason), rename]


def _changed(file: Nearby, offset: int, end: int) -> str:
    """Why a sealed transaction is not as it was written; empty if it is, and if it has no seal."""
    found = find_unproven_end(file, offset, end)
    if found is None or not found.seal:
        return ""
    if not holds_seal(file, offset, found):
        return CHANGED
    head = read_head(file, offset)
    return "" if head is None or head.flags <= COMPLETE else f"the flags {head.flags:#04x} are not those of its writer"


REPAIRS: Final = SideBySideRepair(
    "yeltsin", list_journals, "no journal is here", _readers, FileByFile("yeltsin", _Salvage, lock_name)
)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
