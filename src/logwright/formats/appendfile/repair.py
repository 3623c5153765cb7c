"""Repairing a journal: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     is cut off
    one flipped bit of a header     is flipped back, where exactly one explains what follows (see `mend`)
    other bad bytes                 go: the file is put together anew from the whole records before and behind them

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented: behind bad bytes records begin again at the next
checkpoint (see `cursor.py`). Nothing in the format can say that a segment has lost records: so a file beside the
journal does, by its name (see `layout.py`), and the segment never comes back as a complete one. A file that is missing
cannot be brought back; that is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.disk import Disk
from ...core.errors import WrongUse
from ...core.outcome import Span
from ...core.patched import PatchedFile
from ...core.repair import Create, Plan, Repair, Step
from ...core.repairing import PiecesSalvage, SideBySideRepair
from . import codec
from .cursor import Cursor, judge
from .files import JournalFile, list_files, wrong_names
from .layout import LOCK_NAME, lost_name, parse_name
from .mend import find_fixes
from .opening import last_pair
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_TRIED: Final = 1000
"""In so many places of a file a flipped bit is looked for: each of them costs a look at the rest of the file."""
_MOST_NOTES: Final = 1000


def _names(disk: Disk, directory: Path) -> list[str]:
    return [file.name for file in list_files(disk, directory).files]


def _readers(path: Path, disk: Disk) -> list[Reader]:
    reader = Reader(path, disk=disk)
    if reader.is_single_file and parse_name(path.name) is not None:
        raise WrongUse(f"{path} is a part of the journal {path.parent}: repair that")
    return [reader]


@dataclass(slots=True)
class _Salvage(PiecesSalvage):
    """A file gone through: the stretches of whole records, and the segments that have lost some."""

    lost: list[tuple[JournalFile, int]] = field(default_factory=list)

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        wrong = wrong_names(self.source)
        if wrong is not None:
            self.left.append(f"{self.source.name} @ 0: {wrong[1]}")
        view = PatchedFile(self.file)
        cursor = Cursor(view, self.source, end=self.size)
        start = tried = 0
        while True:
            while cursor.read() is not None:
                pass
            if cursor.ending == codec.CLEAN:
                self.pieces.append(Span(start, self.size))
                return
            tried += 1
            fixes = find_fixes(view, cursor.begin, cursor.position, self.size) if tried <= _MOST_TRIED else []
            if len(fixes) == 1:
                self.fixes += fixes
                view.add(fixes[0].position, fixes[0].new)
                cursor = Cursor(view, self.source, cursor.begin, end=self.size)
                continue
            stopped, segment = cursor.position, cursor.segment
            damage, goes_on = judge(cursor)
            assert damage is not None
            of = f"segment {segment}" if stopped else "the segment that the file before ends with"
            self.lose(damage, f"the records in them are lost, which were of {of}, and perhaps of later ones")
            if damage.kind != "torn_tail":
                self.lost += [(self.source, segment)] if stopped else self._before()
            self.pieces.append(Span(start, stopped))
            if not goes_on:
                return
            start = cursor.position

    def _before(self) -> list[tuple[JournalFile, int]]:
        """The segment that the files before this one end with, and the last of them that has something of it."""
        files = [file for file in self.reader.files() if file.generation == self.source.generation]
        found = last_pair(self.reader.disk, [file for file in files if file.file_id < self.source.file_id])
        return [] if found is None else [(found[0], found[1][1])]

    def steps(self) -> list[Step]:
        """The steps that leave whole records only; first what says that some are not there any more."""
        return [*self._notes(), *self.steps_to_pieces(f"{self.source.name}.repair", "records")]

    def _notes(self) -> Iterator[Step]:
        if self.reader.is_single_file:
            return
        lost = [(file, segment) for file, segment in dict.fromkeys(self.lost) if segment not in file.lost]
        for file, segment in lost[:_MOST_NOTES]:
            text = f"A repair has taken records of this segment out of {self.source.path.name}.\n"
            reason = "it says that the segment is not complete any more"
            yield Create(lost_name(file.file_id, segment), "", (), reason, text.encode())


_REPAIR: Final = SideBySideRepair(
    "appendfile", _names, "no files of a journal are here", _readers, _Salvage, lambda part: LOCK_NAME
)
plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
