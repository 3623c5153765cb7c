"""SideBySideRepair: `Repairs` for formats whose journals are side by side in a directory.

A format plans the repair of one journal. Most formats do it `FileByFile`: a salvage reads a file (`walk`), and has the
steps (`steps`), the losses (`losses`), and what cannot be repaired (`left`). `PiecesSalvage` is for formats that
rebuild a file from its whole records. A module exports the functions:

    _REPAIR = SideBySideRepair("yeltsin", ..., FileByFile("yeltsin", ...))
    plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ...errors import LogwrightError, NotFound, is_refusal
from ..bytes.outcome import Span
from ..io.disk import REAL_DISK, Disk, File, make_directories
from ..io.quarantine import DIRECTORY
from ..read.chunk_reader import FilesReader
from . import plan as repair
from .losses import Loss
from .plan import Create, Cut, Plan, Remove, Rename, Repair, Repairs, Step


class Salvage(Protocol):
    """One file that is being repaired: its losses, and what cannot be repaired."""

    left: list[str]
    losses: list[Loss]

    def walk(self) -> None: ...

    def steps(self) -> Sequence[Step]: ...


@dataclass(slots=True)
class PiecesSalvage:
    """A file and its ranges of whole records; a base for a `Salvage`."""

    reader: Any
    source: Any
    file: File
    pieces: list[Span] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    reason: str = ""
    size: int = 0

    def steps_to_pieces(self, replacement: str, records: str) -> list[Step]:
        """The steps that leave only the pieces. Unless the damage is at the end, `replacement` replaces the file."""
        name = self.source.name
        if len(self.pieces) == 1:
            end = self.pieces[0].end
            return [Cut(name, end, self.size, self.reason)] if end < self.size else []
        spans = tuple(piece for piece in self.pieces if piece.size)
        return [
            Create(replacement, name, spans, f"the whole {records} before and after the damage"),
            Remove(name, self.reason),
            Rename(replacement, name, "it takes the place of the damaged file"),
        ]


@dataclass(frozen=True)
class SideBySideRepair(Repairs):
    """The verbs of one format. `path` is one journal, a directory of them, or a lone file."""

    format: str
    names: Callable[[Disk, Path], list[str]]
    """The journals of a directory."""
    nothing_here: str
    """The message if there are none."""
    readers: Callable[[Path, Disk], Sequence[FilesReader[Any, Any, Any]]]
    """The readers of the journals at a path; `WrongUse` for a single file that must be repaired with its journal."""
    plan_journal: Callable[[Any], Plan]
    """The plan for what one of these readers reads."""

    def plan(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Plan:
        path = Path(path)
        interrupted = repair.resume_plan(disk, self._home(path, disk))
        if interrupted is not None:
            return interrupted
        whole = Plan(self.format)
        for reader in self.readers(path, disk):
            whole += self.plan_journal(reader)
        return whole

    def apply(self, path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
        home = self._home(Path(path), disk)
        if plan.empty:
            repair.check_unlocked(disk, home, plan)
            return None
        make_directories(disk, home / DIRECTORY)
        return repair.apply(disk, home, plan)

    def undo(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Repair:
        return repair.undo(disk, self._home(Path(path), disk))

    def _home(self, path: Path, disk: Disk) -> Path:
        """The directory that the names of a plan are relative to."""
        if disk.is_directory(path):
            if not self.names(disk, path) and repair.find_interrupted(disk, path) is None:
                raise NotFound(f"{path}: {self.nothing_here}")
            return path
        return path.parent


@dataclass(frozen=True)
class FileByFile:
    """Plans for journals whose files can be repaired one by one."""

    format: str
    salvage: Callable[[Any, Any, File], Salvage]
    """Given a reader, one of its files, and that file opened."""
    lock_name: Callable[[str], str]
    """The lock of a journal by its name, relative to the directory."""
    missing: Callable[[Any, Any], list[str]] = lambda reader, files: []
    """Given a reader and a snapshot of its files: which files are missing among them."""

    def __call__(self, reader: FilesReader[Any, Any, Any]) -> Plan:
        steps: list[Step] = []
        left: list[str] = []
        losses: list[Loss] = []
        with reader.snapshot() as files:
            left += self.missing(reader, files)
            for source in files.files:
                try:
                    salvage = self.salvage(reader, source, files.file(source))
                    salvage.walk()
                    steps += salvage.steps()
                except LogwrightError as error:
                    if is_refusal(error):
                        raise
                    left.append(f"{source.name} @ 0: {error}")
                    continue
                left += salvage.left
                losses += [replace(loss, part=reader.part) for loss in salvage.losses]
                files.done_with(source)
        locks = () if reader.is_single_file else (self.lock_name(reader.part),)
        return Plan(self.format, tuple(steps), tuple(left), locks, losses=tuple(losses))
