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

from pathlib import Path
from typing import Final

from ...core.disk import Disk
from ...core.errors import WrongUse
from ...core.outcome import Span
from ...core.patched import PatchedFile
from ...core.repair import Plan, Remove, Repair, Step
from ...core.repairing import PiecesSalvage, SideBySideRepair
from . import codec
from .cursor import Cursor, judge
from .files import list_queues
from .layout import TEMPORARY, lock_name, parse_name
from .mend import find_fix
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


class _Salvage(PiecesSalvage):
    """A file gone through with every fix in place: the fixes, and the stretches of whole operations."""

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
            self.lose(damage, "the operations in them are lost")
            self.pieces.append(Span(start, stopped))
            if not goes_on:
                return
            start = position = cursor.position
            before = None

    def steps(self) -> list[Step]:
        """The steps that leave whole operations only."""
        name, flaw = self.source.name, self.source.flaw
        if flaw is not None and flaw.kind == "empty_pack":
            return [Remove(name, flaw.reason)]
        return self.steps_to_pieces(f"{self.source.queue}{TEMPORARY}repair-{name}", "operations")


# --- the verbs ------------------------------------------------------------------------------------------------------

_REPAIR: Final = SideBySideRepair("kestrel", list_queues, "no queues are here", _readers, _Salvage, lock_name)
plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
