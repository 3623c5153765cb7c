"""Repairing the journal of a queue: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     is cut off
    one flipped bit of an opcode    is flipped back, where what is around it settles which (see `mend`)
    or a size
    other bad bytes                 go: the file is put together anew from the whole operations before and behind them
    an empty pack from elsewhere    goes: what it would replace counts again
    two files of one number         stay: who knows where one of them came from must move it away

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented. But an operation that is lost is missing in the
replay: an item may come back that was removed, and where an item is lost a later removal takes another one. What can be
done about that is to look at what was cut, and at `logwright state` before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.disk import Disk, File
from ...core.errors import WrongUse
from ...core.outcome import Damage, Span
from ...core.patched import PatchedFile
from ...core.repair import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repairing import SideBySideRepair
from . import codec
from .cursor import Cursor, judge
from .files import JournalFile, list_queues
from .layout import TEMPORARY, lock_name, parse_name
from .mend import Fix, find_fix
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_FIXES: Final = 10_000


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / queue, disk=disk) for queue in list_queues(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if reader.is_single_file and parsed is not None and disk.exists(path.with_name(parsed[0])):
        raise WrongUse(f"{path} is a part of the queue {path.with_name(parsed[0])}: repair that")
    return [reader]


# --- one file -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Salvage:
    """A file gone through with every fix in place: the fixes, and the stretches of whole operations."""

    reader: Reader
    source: JournalFile
    file: File
    fixes: list[Fix] = field(default_factory=list)
    pieces: list[Span] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    reason: str = ""
    size: int = 0

    def walk(self) -> None:
        """Go through the file, mending what can be mended."""
        flaw = self.source.flaw
        if flaw is not None and flaw.kind == "doubled_name":
            self.left.append(f"{flaw.file} @ {flaw.start}: {flaw.reason}")
        view = PatchedFile(self.file)
        self.size = self.file.size()
        verdict = self.reader.verdict
        start = position = 0
        before: int | None = None
        mended_at = -1
        while True:
            cursor = Cursor(view, self.source, position, dialect=verdict.dialect, settle=verdict.settle, end=self.size)
            while (chunk := cursor.read(load=False)) is not None:
                before = chunk.starts()[-2]
            if cursor.ending == codec.CLEAN:
                self.pieces.append(Span(start, self.size))
                return
            stopped = cursor.position
            fix = None
            if stopped > mended_at and len(self.fixes) < _MOST_FIXES:
                fix = find_fix(view, self.source, before, stopped, cursor.dialect)
            if fix is not None:
                mended_at = stopped
                self.fixes.append(fix)
                view.add(fix.position, fix.new)
                position, before = fix.next_position, None
                continue
            damage, goes_on = judge(cursor)
            assert damage is not None
            self._note(damage)
            self.pieces.append(Span(start, stopped))
            if not goes_on:
                return
            start = position = cursor.position
            before = None

    def _note(self, damage: Damage) -> None:
        self.reason = self.reason or damage.reason
        if damage.kind != "torn_tail":
            lost = f"{damage.size} bytes could not be read ({damage.reason}): the operations in them are lost"
            self.left.append(f"{damage.file} @ {damage.start}: {lost}")

    def steps(self) -> list[Step]:
        """The steps that leave whole operations only."""
        name, flaw = self.source.name, self.source.flaw
        if flaw is not None and flaw.kind == "empty_pack":
            return [Remove(name, flaw.reason)]
        if len(self.pieces) == 1:
            steps = self._patches(name)
            end = self.pieces[0].end
            return [*steps, Cut(name, end, self.size, self.reason)] if end < self.size else steps
        replacement = f"{self.source.queue}{TEMPORARY}repair-{name}"
        spans = tuple(piece for piece in self.pieces if piece.size)
        return [
            Create(replacement, name, spans, "the whole operations before and behind the damage"),
            *self._patches(replacement),
            Remove(name, self.reason),
            Rename(replacement, name, "it takes the place of the damaged file"),
        ]

    def _patches(self, name: str) -> list[Step]:
        steps: list[Step] = []
        for fix in sorted(self.fixes, key=lambda fix: fix.position):
            at = 0
            for piece in self.pieces:
                if piece.start <= fix.position < piece.end:
                    steps.append(Patch(name, at + fix.position - piece.start, fix.old, fix.new, fix.reason))
                at += piece.size
        return steps


# --- the verbs ------------------------------------------------------------------------------------------------------

_REPAIR: Final = SideBySideRepair("kestrel", list_queues, "no queues are here", _readers, _Salvage, lock_name)
plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
