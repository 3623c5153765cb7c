"""Repairing the journal of a queue: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     is cut off
    one flipped bit of an opcode    is flipped back, where what is around it settles which (see `mend`)
    or a size
    other bad bytes                 go: the file is put together anew from the whole operations before and behind them

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented. But an operation that is lost is missing in the
replay: an item may come back that was removed, and where an item is lost a later removal takes another one. What can be
done about that is to look at what was cut, and at `logwright state` before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...core import repair as core
from ...core.disk import REAL_DISK, Disk, File, make_directories
from ...core.errors import LogwrightError, NotFound, WrongUse, is_refusal
from ...core.outcome import Damage, Span
from ...core.patched import PatchedFile
from ...core.repair import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from . import codec
from .cursor import Cursor, judge
from .files import JournalFile, list_queues
from .layout import HOME_DIRECTORY, TEMPORARY, lock_name, parse_name
from .mend import Fix, find_fix
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_FIXES: Final = 10_000


# --- the verbs ------------------------------------------------------------------------------------------------------


def plan(path: Path | str, *, disk: Disk = REAL_DISK, accept_checksums: bool = False) -> Plan:
    """What a repair of a queue, of all queues of a directory, or of a lone file would do. Changes nothing.

    There are no checksums to accept: `accept_checksums` is what other formats have.
    """
    path = Path(path)
    home = _home(path, disk)
    interrupted = core.resume_plan(disk, home)
    if interrupted is not None:
        return interrupted
    whole = Plan("kestrel")
    for reader in _readers(path, disk):
        part = _plan(reader)
        locks = whole.locks + part.locks
        whole = replace(whole, steps=whole.steps + part.steps, left=whole.left + part.left, locks=locks)
    return whole


def apply(path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
    """Carry out a plan, holding the writers' locks; None when there was nothing to do. See `core.repair.apply`."""
    if plan.empty:
        return None
    home = _home(Path(path), disk)
    make_directories(disk, home / HOME_DIRECTORY)
    return core.apply(disk, home, plan)


def undo(path: Path | str, *, disk: Disk = REAL_DISK) -> Repair:
    """Take back the latest repair of the directory, holding the writers' locks. See `core.repair.undo`."""
    return core.undo(disk, _home(Path(path), disk))


def _home(path: Path, disk: Disk) -> Path:
    """The directory that the names of a plan are relative to."""
    if disk.is_directory(path):
        if not list_queues(disk, path):
            raise NotFound(f"{path}: no queues are here")
        return path
    return path.parent


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / queue, disk=disk) for queue in list_queues(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if reader.is_single_file and parsed is not None and disk.exists(path.with_name(parsed[0])):
        raise WrongUse(f"{path} is a part of the queue {path.with_name(parsed[0])}: repair that")
    return [reader]


# --- planning -------------------------------------------------------------------------------------------------------


def _plan(reader: Reader) -> Plan:
    steps: list[Step] = []
    left: list[str] = []
    with reader.snapshot() as files:
        for source in files.files:
            try:
                salvage = _Salvage(reader, source, files.file(source))
                salvage.walk()
            except LogwrightError as error:
                if is_refusal(error):
                    raise
                left.append(f"{source.name} @ 0: {error}")
                continue
            steps += salvage.steps()
            left += salvage.left
            files.done_with(source)
    locks = (lock_name(reader.queue),) if steps and not reader.is_single_file else ()
    return Plan("kestrel", tuple(steps), tuple(left), locks)


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
        name = self.source.name
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
