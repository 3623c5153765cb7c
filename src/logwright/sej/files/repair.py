"""Repairing a sej journal: what to do about each kind of damage. `core/repair/plan.py` carries it out.

    a torn tail                     is cut off
    one wrong field of a message    is restored if exactly one change of one byte explains all that follows (see
                                    `fixes`), or if a checksum proves the change
    one flipped bit                 is flipped back if a checksum shows which (see `find_flipped_bit`)
    other bad bytes                 the file is split: the messages before them stay, the whole messages after them move
                                    to a new segment, named by their first offset; the bad bytes are removed
    a block that does not match     gets a new checksum if another program has cut the segment there and appended, or
      its checksum                  if the caller accepts it; otherwise it is left
    messages missing between files  nothing is changed: they are lost
    a last segment that is missing  its messages are lost, and those that the one before it lacks; its index and
                                    checksums, which show it, are moved away
    a damaged offset file           is moved away: the consumer begins again at its default
    wrong indexes, orphaned ones    are moved away, and rebuilt
    a file with messages of another is left: only its owner knows the right name
    a segment, or checksums, that   the segment is left, and so are missing segments and what shows them
      cannot be read

Every byte that is removed is kept in `.logwright/cut/`. Lost messages leave a gap, and the account of losses has their
offsets, so that readers and consumers skip it (see `lost`). Restored fields are in the account too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Span
from ...core.format import concerns
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.lock import Lock
from ...core.read.report import Problem, Report
from ...core.repair import plan as core
from ...core.repair.losses import Loss
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Repairs, Step
from ...errors import Locked, NotFound, WrongUse
from ..bytes.layout import (
    CHECKSUM_SUFFIX,
    INDEX_DIRECTORY,
    LOCK_NAME,
    OFFSET_DIRECTORY,
    OFFSET_LOCK_SUFFIX,
    OFFSET_SUFFIX,
    OVERHEAD,
    SEGMENT_DIRECTORY,
    segment_name,
)
from .checksums import ENTRY, HEADER, checksum_path
from .ending import find_end
from .index import Index, agrees, build_entries, index_path, write_index
from .lost import lost_messages, messages_between, open_ended, restored
from .missing import find_following, find_missing
from .reader import Reader
from .salvage import Piece, Salvage, find_other_beginning
from .segment import Segment, list_segments, open_segment
from .shard import find_shards, parse_shard_name

__all__ = ["Plan", "Repair", "apply", "plan", "rebuild", "undo"]

_REPLACEMENT_SUFFIX: Final = ".replacement"


# --- the verbs ------------------------------------------------------------------------------------------------------


def plan(path: Path | str, *, disk: Disk = REAL_DISK, accept_checksums: bool = False) -> Plan:
    """What a repair of the journal, of the shards below a root, or of a lone segment file would do. Changes nothing.

    With `accept_checksums` blocks that do not match their checksum and cannot be repaired get a new checksum: the
    messages in them are kept, and the account names them.
    """
    path = Path(path)
    home = _home(path, disk)
    _refuse_half_done_root(disk, home)
    interrupted = core.resume_plan(disk, home)
    if interrupted is not None:
        return interrupted
    if not disk.is_directory(path) or disk.is_directory(path / SEGMENT_DIRECTORY):
        return _Planner(Reader(path, disk=disk), accept_checksums).plan()
    whole = Plan("sej")
    for shard in find_shards(disk, path):
        if core.find_interrupted(disk, shard.path) is not None:
            raise WrongUse(f"{shard.path}: a repair of this shard was interrupted; `logwright repair` finishes it")
        whole += _Planner(Reader(shard.path, disk=disk), accept_checksums).plan().within(shard.name)
    return whole


def apply(path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
    """Carry out a plan, holding the writer's lock; None when there was nothing to do."""
    home = _home(Path(path), disk)
    if plan.empty:
        core.check_unlocked(disk, home, plan)
        return None
    repair = core.apply(disk, home, plan)
    indexes = {home / name for name in plan.derived}
    for directory in sorted({path.parent.parent for path in indexes}):
        rebuild(directory, only=indexes, disk=disk)
    return repair


def undo(path: Path | str, *, disk: Disk = REAL_DISK) -> Repair:
    """Take back the latest repair, holding the writer's lock."""
    home = _home(Path(path), disk)
    _refuse_half_done_root(disk, home)
    return core.undo(disk, home)


def _refuse_half_done_root(disk: Disk, home: Path) -> None:
    """A repair of the root whose shard this is must be finished there first."""
    half_done = core.find_interrupted(disk, home.parent) if parse_shard_name(home.name) is not None else None
    if half_done is not None and concerns(half_done, home.name):
        raise WrongUse(f"{half_done.log}: {half_done.describe()}; {half_done.next_steps()}")


def rebuild(path: Path | str, *, only: Container[Path] | None = None, disk: Disk = REAL_DISK) -> list[str]:
    """Write the missing indexes, all or only those at some paths; their names.

    The index of the last segment is left to its writer if one is active.
    """
    home = Path(path)
    segments = list_segments(disk, home)
    made = []
    for segment in segments:
        if only is not None and index_path(segment) not in only:
            continue
        if segment is not segments[-1]:
            made.append(_rebuild(disk, segment, finished=True))
            continue
        with contextlib.suppress(Locked), Lock.acquire(disk, home / LOCK_NAME):
            made.append(_rebuild(disk, segment, finished=False))
    return [name for name in made if name]


def _rebuild(disk: Disk, segment: Segment, *, finished: bool) -> str:
    """Write the index of a segment unless it has a valid one; its name, empty if nothing was done."""
    file = open_segment(disk, segment)
    try:
        size = file.size()
        index = Index.load(disk, segment, size)
        if index is not None and (index.end(file) if finished else index.last(file)) is not None:
            return ""
        entries = build_entries(file, segment, size, finished=finished)
    finally:
        file.close()
    if not entries:
        return ""
    write_index(disk, segment, entries)
    return f"{INDEX_DIRECTORY}/{index_path(segment).name}"


def _home(path: Path, disk: Disk) -> Path:
    """The directory that the names of a plan are relative to."""
    if not disk.exists(path):
        raise NotFound(f"{path}: no such file or directory")
    if disk.is_directory(path):
        if not disk.is_directory(path / SEGMENT_DIRECTORY) and not find_shards(disk, path):
            raise NotFound(f"{path}: no sej journal is here")
        return path
    if path.parent.name == SEGMENT_DIRECTORY:
        raise WrongUse(f"{path} is a part of the journal {path.parent.parent}: repair that")
    return path.parent


# --- planning -------------------------------------------------------------------------------------------------------


class _Planner:
    """Makes the plan of one journal, or of a lone segment."""

    def __init__(self, reader: Reader, accept_checksums: bool) -> None:
        self._reader = reader
        self._disk = reader.disk
        self._accept_checksums = accept_checksums
        self._steps: list[Step] = []
        self._left: list[str] = []
        self._losses: list[Loss] = []
        self._locks: list[str] = [] if reader.is_single_file else [LOCK_NAME]
        self._derived: list[str] = []
        self._guarded: list[str] = []
        self._after_last: Segment | None = None
        self._unreadable: set[str] = set()

    def plan(self) -> Plan:
        report = self._reader.verify()
        segments = self._reader.segments()
        unreadable = [problem.file for problem in report.problems if problem.kind == "unreadable"]
        self._unreadable = {name.removesuffix(CHECKSUM_SUFFIX) for name in unreadable}
        self._unreadable &= {segment.name for segment in segments}
        if not self._reader.is_single_file:
            self._after_last = find_following(self._disk, self._reader.directory, segments)
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else self._after_last
            names = (segment.name, segment.name + CHECKSUM_SUFFIX)
            found = [problem for problem in report.problems if problem.file in names]
            if found:
                preceding = segments[number - 1] if number else None
                self._plan_segment(preceding, segment, following, found, segments[-1])
        self._plan_surroundings(report)
        return Plan(
            "sej",
            tuple(self._steps),
            tuple(self._left),
            tuple(self._locks),
            tuple(self._derived),
            losses=tuple(self._losses),
            guarded=tuple(self._guarded),
        )

    def _plan_segment(
        self,
        preceding: Segment | None,
        segment: Segment,
        following: Segment | None,
        problems: list[Problem],
        last: Segment,
    ) -> None:
        for problem in problems:
            if (problem.kind == "overlap" and problem.position == 0) or problem.kind == "unreadable":
                self._leave(problem.file, problem.message, problem.position)
        gaps = [problem.message for problem in problems if problem.kind == "gap" and problem.position == 0]
        if gaps and preceding is not None:  # the first of them is before the segment, another one is in it
            self._lose_between(preceding, segment, gaps[0])
        if segment.name in self._unreadable:
            return
        if following is not None and following.first_offset == segment.first_offset:
            self._leave(segment.name, f"{following.name} has the same first offset: keep one of them")
            return
        file = open_segment(self._disk, segment)
        try:
            most = last.first_offset + self._disk.file_size(last.path) // OVERHEAD
            other = find_other_beginning(file, segment, following, most)
            if other is not None:
                reason = f"it begins with message {other}, which belongs elsewhere: its name may be another file's"
                self._leave(segment.name, reason)
                return
            salvage = Salvage(self._disk, file, segment, following, following is self._after_last)
            salvage.flip_back()
            salvage.walk()
            self._split(salvage)
            self._leave_checksums(salvage)
        finally:
            file.close()

    def _leave(self, file: str, message: str, position: int = 0) -> None:
        self._left.append(f"{file} @ {position}: {message}")

    def _lose_between(self, preceding: Segment, segment: Segment, message: str) -> None:
        """Messages between two segments are missing, and so is the file that they were in."""
        if preceding.name in self._unreadable:
            return
        file = open_segment(self._disk, preceding)
        try:
            end = find_end(self._disk, preceding, file)
        finally:
            file.close()
        is_whole = end.torn is None and (end.damage is None or end.was_synced)
        if is_whole and end.next_offset < segment.first_offset:
            lost = {"first": end.next_offset, "after": segment.first_offset}
            self._losses.append(
                lost_messages(segment.name, 0, 0, f"{message}; so is the file that had them, or its end", **lost)
            )

    # --- the steps for one segment ----------------------------------------------------------------------------------

    def _split(self, salvage: Salvage) -> None:
        """The steps that leave only whole messages: in this file, and in a new one for each stretch after damage."""
        segment, pieces = salvage.segment, salvage.pieces
        for position, reason in salvage.left:
            self._leave(segment.name, reason, position)
        self._losses += salvage.losses
        kept, moved = pieces[0], pieces[1:]
        replaced = bool(moved) and moved[0].first_offset == segment.first_offset
        folder = segment.name.removesuffix(segment.path.name)
        for piece in moved:
            name = folder + segment_name(piece.first_offset)
            if piece.first_offset == segment.first_offset:
                name = segment.name + _REPLACEMENT_SUFFIX
            self._steps.append(Create(name, segment.name, (piece.span,), "the whole messages after the damage"))
            self._patch(salvage, piece, name)
        if replaced:
            self._steps.append(Remove(segment.name, salvage.reason))
            reason = "it begins with the offset of its name"
            self._steps.append(Rename(segment.name + _REPLACEMENT_SUFFIX, segment.name, reason))
        else:
            self._patch(salvage, kept, segment.name)
            if kept.span.end < salvage.size:
                self._steps.append(Cut(segment.name, kept.span.end, salvage.size, salvage.reason))
        self._fit_checksums(salvage, folder, replaced)
        if salvage.fixes or len(pieces) > 1 or kept.span.end < salvage.size:
            self._fit_index(salvage, replaced)
        for piece in moved if not self._reader.is_single_file else ():
            self._derived.append(f"{INDEX_DIRECTORY}/{piece.first_offset:016x}.idx")

    def _patch(self, salvage: Salvage, piece: Piece, name: str) -> None:
        for fix in sorted(salvage.fixes, key=lambda fix: fix.position):
            if piece.span.start <= fix.position < piece.span.end:
                at = fix.position - piece.span.start
                self._steps.append(Patch(name, at, fix.old, fix.new, fix.reason))

    def _fit_index(self, salvage: Salvage, replaced: bool) -> None:
        """Remove an index with entries for removed bytes, or for other messages, and rebuild it.

        `verify` did not compare entries with what follows damage.
        """
        path = index_path(salvage.segment)
        if self._reader.is_single_file or not self._disk.exists(path):
            return
        index = Index.load(self._disk, salvage.segment, salvage.size)
        end = salvage.pieces[0].span.end
        entries = [] if index is None else index.entries
        is_cut = end < salvage.size and any(entry.position >= end for entry in entries)
        if replaced or is_cut:
            self._remove_derived(f"{INDEX_DIRECTORY}/{path.name}", "it has entries for bytes that are removed")
        elif not agrees(salvage.view, salvage.segment, entries):
            self._remove_derived(f"{INDEX_DIRECTORY}/{path.name}", "it has entries that do not agree with the segment")

    def _remove_derived(self, name: str, reason: str) -> None:
        if name not in self._derived:
            self._derived.append(name)
            self._steps.append(Remove(name, reason))

    # --- checksums --------------------------------------------------------------------------------------------------

    def _fit_checksums(self, salvage: Salvage, folder: str, replaced: bool) -> None:
        """Adapt the side file to the remaining bytes, and give new segments theirs."""
        if salvage.sums is None:
            return
        side = salvage.segment.name + CHECKSUM_SUFFIX
        for piece in salvage.pieces[1:]:
            name = folder + segment_name(piece.first_offset)
            own_name = piece.first_offset == salvage.segment.first_offset
            target = side if own_name else name + CHECKSUM_SUFFIX
            if own_name:
                self._steps.append(Remove(side, "the segment is replaced"))
            data = salvage.side_file(piece.span)
            self._steps.append(Create(target, "", (), "the checksums of the new segment", data))
        end = salvage.pieces[0].span.end
        if replaced or (end == salvage.size and end >= salvage.sums.covered_end):
            return
        entry = salvage.lowered(end)
        if entry is not None:
            self._steps.append(Patch(side, *entry, "the block is shorter now"))
        entries_end = HEADER.size + ENTRY.size * -(-end // salvage.sums.block_bytes)
        side_bytes = self._disk.file_size(checksum_path(salvage.segment.path))
        if side_bytes > entries_end:
            self._steps.append(Cut(side, entries_end, side_bytes, "they cover bytes that are removed"))

    def _leave_checksums(self, salvage: Salvage) -> None:
        short = salvage.short_block()
        if short is not None:
            reason = "the end of the block is missing, so that nothing can be compared with its checksum"
            self._name_unproven(salvage, short, "kept as they are, without a checksum", reason)
        rewritten = salvage.rewritten_blocks()
        for block in salvage.bad_blocks:
            if block in rewritten:
                self._accept(salvage, block, "another program has cut the segment here and appended to it")
            elif block.end > salvage.pieces[0].span.end:
                reason = "the block does not match its checksum"
                self._name_unproven(salvage, block, "kept as they are, without a checksum", reason)
            elif self._accept_checksums:
                self._accept(salvage, block, "the block does not match its checksum and is taken as it is")
            else:
                reason = "the block does not match its checksum, and more than one bit of it is wrong"
                hint = "repair --accept-checksums takes it as it is"
                self._leave(salvage.segment.name, f"{reason}; {hint}", block.start)

    def _accept(self, salvage: Salvage, block: Span, reason: str) -> None:
        """Give a block a new checksum; that its messages are what was written is then proven by nothing."""
        side = salvage.segment.name + CHECKSUM_SUFFIX
        self._steps.append(Patch(side, *salvage.accepted(block), reason))
        self._name_unproven(salvage, block, "taken as they are, with a new checksum", reason)

    def _name_unproven(self, salvage: Salvage, block: Span, how: str, reason: str) -> None:
        """Add the messages of a bad block to the account: its checksum, which was the proof, does not stay."""
        for first, after in salvage.messages_in(block):
            what = f"{messages_between(first, after)}, {how}"
            fields = {"first": first, "next": after, "proven": False}
            self._losses.append(restored(salvage.segment.name, block.start, block.size, what, reason, **fields))

    # --- around the segments ----------------------------------------------------------------------------------------

    def _plan_surroundings(self, report: Report) -> None:
        for problem in report.problems:
            if problem.kind == "offset_file":
                self._steps.append(Remove(problem.file, problem.message))
                self._locks.append(problem.file.removesuffix(OFFSET_SUFFIX) + OFFSET_LOCK_SUFFIX)
            elif problem.kind == "unreadable" and problem.file.startswith(OFFSET_DIRECTORY + "/"):
                self._leave(problem.file, problem.message)
        for anomaly in report.anomalies:
            if anomaly.kind == "index":
                self._remove_derived(anomaly.file, anomaly.message)
        self._plan_missing(report)

    def _plan_missing(self, report: Report) -> None:
        """Account for missing segments, and remove what is left of them.

        That stays if a segment cannot be read: it may be all that shows what this one led up to.
        """
        lost = {problem.file: problem.message for problem in report.problems if problem.kind == "missing_segment"}
        orphans = [anomaly for anomaly in report.anomalies if anomaly.kind == "side_file"]
        if self._unreadable:
            for name, message in lost.items():
                self._leave(name, f"{message}; another segment cannot be read")
            lost, orphans = {}, []
        if lost or self._after_last is not None:
            segments = self._reader.segments()
            missing = find_missing(self._disk, self._reader.directory, segments) if lost else []
            self._losses += [one.as_loss() for one in missing if one.name in lost]
            self._losses = open_ended(self._losses)
            # New messages get the lost offsets: after an undo the journal would not open with both.
            self._guarded.append(segments[-1].name if segments else f"{SEGMENT_DIRECTORY}/{segment_name(0)}")
        self._steps += [Remove(orphan.file, orphan.message) for orphan in orphans]


@dataclass(frozen=True)
class _SejRepairs(Repairs):
    accept_checksums: bool = False

    def plan(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Plan:
        return plan(path, disk=disk, accept_checksums=self.accept_checksums)

    def apply(self, path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
        return apply(path, plan, disk=disk)

    def undo(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Repair:
        return undo(path, disk=disk)

    def with_flags(self, flags: Collection[str]) -> Repairs:
        return _SejRepairs("accept_checksums" in flags)


REPAIRS: Final = _SejRepairs()
