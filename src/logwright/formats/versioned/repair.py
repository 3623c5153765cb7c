"""Repairing the journals of a store: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     the position is put before it; its bytes stay where they are, and do not count
    a position that cannot be       it is put behind the last of the whole entries that follow each other
    a wrong version or array start  is put right, where the metadata behind it is whole
    other bad bytes                 go: the file is put together anew from the whole entries before and behind them
    a damaged archive               is made anew from the whole entries that are in it

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented: an entry that is lost is lost, and the plan says
so. The state may then have an older value of its key, until the key is written again. A journal that is missing between
two others is told, and stays missing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.disk import Disk, File
from ...core.errors import WrongUse
from ...core.losses import Loss
from ...core.outcome import Damage, Malformed, Span
from ...core.repair import Create, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repairing import SideBySideRepair
from . import codec, kernel
from .cursor import Chunk, Cursor, Head
from .files import JournalFile, Kind, active_name, archive_name, list_stores, lock_name, parse_name
from .layout import ARCHIVE_LEVEL, HEADER_BYTES, POSITION_AT
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_ARCHIVE_BYTES: Final = 64 << 20
"""An archive that becomes larger than this is not made anew: its bytes would have to be in memory, and in the log."""
_SUFFIX: Final = ".repair"


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / active_name(store), disk=disk) for store in list_stores(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if parsed is not None and parsed[1] is not Kind.ACTIVE and disk.exists(path.with_name(active_name(parsed[0]))):
        raise WrongUse(f"{path} is a part of the store {path.with_name(active_name(parsed[0]))}: repair that")
    return [reader]


# --- one file -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Salvage:
    """A file gone through: the stretches that are whole, what is wrong, and where the entries should end."""

    reader: Reader
    source: JournalFile
    file: File
    head: Head | None = None
    pieces: list[Span] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    content: list[bytes] = field(default_factory=list)
    size: int = 0

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        for item in Cursor(self.file, self.source, limits=self.reader.limits).items():
            if isinstance(item, Damage):
                self.damages.append(item)
            elif isinstance(item, Head):
                self.head = item
                self._take(item.span)
            else:
                self._take(Span(item.position, item.end))
                self._keep(item)

    def _take(self, span: Span) -> None:
        if self.pieces and self.pieces[-1].end == span.start:
            self.pieces[-1] = Span(self.pieces[-1].start, span.end)
        elif span.size:
            self.pieces.append(span)

    def _keep(self, chunk: Chunk) -> None:
        if self.source.compressed and sum(map(len, self.content)) <= _MOST_ARCHIVE_BYTES:
            self.content.append(bytes(chunk.data[chunk.start : chunk.stop]))

    def steps(self) -> list[Step]:
        """The steps that leave whole entries only, and a position that fits them."""
        self._tell_gap()
        if not self.damages:
            return []
        if self.head is None or self.head.metadata is None:
            return self._steps_without_head()
        if self.source.compressed:
            return self._remade_archive()
        beyond = self._end_of_entries()
        if len(self.pieces) == 1 and self.pieces[0].start == HEADER_BYTES:
            return self._patched(self.source.name, beyond, self.damages[-1].reason)
        self._tell_lost()
        pieces = [Span(0, HEADER_BYTES), *self.pieces]
        pieces[-1] = Span(pieces[-1].start, beyond)
        return self._rebuilt(pieces)

    def _steps_without_head(self) -> list[Step]:
        """The position is below the least, or the beginning is damaged."""
        found = None
        if not self.source.compressed and self.damages[0].start == POSITION_AT:
            data = self.file.read_at(0, 64 << 10)
            try:
                found = codec.decode_metadata(data, HEADER_BYTES)
            except Malformed:
                found = None
        if not isinstance(found, tuple):
            for damage in self.damages:
                self.left.append(f"{damage.file} @ {damage.start}: {damage.reason}; when it began is lost with it")
            return []
        self.pieces = [Span(HEADER_BYTES, found[1].end)]
        return self._patched(self.source.name, self._end_of_entries(), self.damages[0].reason)

    def _end_of_entries(self) -> int:
        """Where the whole entries end that follow the last ones that count, if the position is what is wrong."""
        end = self.pieces[-1].end
        wrong = self.damages[-1]
        if wrong.kind == "torn_tail" or wrong.start not in (POSITION_AT, end):
            return end
        while True:
            data = self.file.read_at(end, 1 << 20)
            stop, count, _, _, _ = kernel.walk(data, 0, len(data))
            if not count:
                return end
            end += stop

    def _patched(self, name: str, end: int, reason: str) -> list[Step]:
        """Patches of the header of a file, whose entries end somewhere."""
        old = self.file.read_at(0, HEADER_BYTES)
        new = codec.encode_header(end)
        steps: list[Step] = []
        for start, stop in ((0, 8), (8, 16), (16, 17)):
            if old[start:stop] != new[start:stop]:
                steps.append(Patch(name, start, old[start:stop], new[start:stop], reason))
        return steps

    def _rebuilt(self, pieces: list[Span]) -> list[Step]:
        name = self.source.name
        replacement = name + _SUFFIX
        end = sum(piece.size for piece in pieces)
        reason = self.damages[0].reason
        return [
            Create(replacement, name, tuple(pieces), "the whole entries before and behind the damage"),
            *self._patched(replacement, end, "the entries end here"),
            Remove(name, reason),
            Rename(replacement, name, "it takes the place of the damaged file"),
        ]

    def _remade_archive(self) -> list[Step]:
        name = self.source.name
        if sum(map(len, self.content)) > _MOST_ARCHIVE_BYTES:
            self.left.append(
                f"{name} @ {self.damages[0].start}: {self.damages[0].reason}; it is too large to be remade"
            )
            return []
        assert self.head is not None
        assert self.head.metadata is not None
        body = codec.encode(self.head.metadata) + b"".join(self.content)
        data = zlib.compress(codec.encode_header(HEADER_BYTES + len(body)) + body, ARCHIVE_LEVEL)
        self._tell_lost()
        return [
            Create(name + _SUFFIX, "", (), "the whole entries that are in the archive", data),
            Remove(name, self.damages[0].reason),
            Rename(name + _SUFFIX, name, "it takes the place of the damaged archive"),
        ]

    def _tell_gap(self) -> None:
        metadata, ended = None if self.head is None else self.head.metadata, self.source.before
        if metadata is None or metadata.initialized <= ended or self.reader.is_single_file:
            return
        before = archive_name(self.reader.store, ended)
        if self.reader.disk.exists(self.source.path.with_name(before)):  # the first one has none before it
            times = f"it begins at {metadata.initialized}, and {before} ended at {ended}"
            self.left.append(f"{self.source.name} @ {HEADER_BYTES}: {times}: a journal between them is missing")

    def _tell_lost(self) -> None:
        for damage in self.damages:
            if damage.kind != "torn_tail":
                lost = f"{damage.size} bytes could not be read ({damage.reason}): the entries in them are lost"
                self.left.append(f"{damage.file} @ {damage.start}: {lost}")


# --- the verbs ------------------------------------------------------------------------------------------------------

_REPAIR: Final = SideBySideRepair(
    "versioned", list_stores, "no journal of a store is here", _readers, _Salvage, lock_name
)
plan, apply, undo = _REPAIR.plan, _REPAIR.apply, _REPAIR.undo
