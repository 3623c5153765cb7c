"""Repairing a journal: what to do about each kind of damage. `core/repair/plan.py` carries it out.

    a torn tail         is cut off
    other bad bytes     are removed: the file is rebuilt from the whole records before and after them
    a missing file      is replaced by one without data, so that the ids are consecutive again

No field is inferred: in this format nothing proves a wrong size. Only the first record of a file is written again,
because it repeats the ids at the end of the preceding file; those of file 0 are zeros. Every byte that is removed is
kept in `.logwright/cut/`. After bad bytes records continue where there is only one way to read them (see `cursor.py`).
The record before them is removed too if it cannot be right: if whole records begin inside it, or if its data is nothing
but zeros. Where only checkpoints are missing nothing is removed: the account of losses says so from then on.

The losses are in the account of losses. `fields` of a loss:

    file_id     the number of the file
    segments    the first and the last segment that has lost records, and is not complete any more
    checked     the oldest segment that was not checked at the end of this generation: earlier ones are not needed
    suspect     where the record right before the bad bytes begins, which may be damaged as well; None without one

The numbers follow from checkpoints: each registers one segment or checks one, so the pairs of ids before and after bad
bytes say how many checkpoints were between them. The number of data records is unknown, unless the size in a
damaged header gives the start of the next whole record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.bytes.outcome import Span
from ...core.io.disk import Disk, File
from ...core.repair.losses import Loss
from ...core.repair.plan import Create, Plan, Repair, Step
from ...core.repair.side_by_side import FileByFile, PiecesSalvage, SideBySideRepair
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import (
    CHECKPOINT_BYTES,
    DATA,
    HEADER,
    HEADER_BYTES,
    LOCK_NAME,
    MAX_CHECKPOINTS,
    MAX_FILE_BYTES,
    file_name,
    parse_name,
)
from ..bytes.records import Checkpoint
from .cursor import Cursor, Way, find_way, take_way, walk_to_checkpoint
from .files import JournalFile, list_files, wrong_names
from .opening import hint_of, last_pair, lost_end, pair_in, pair_of
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_CREATED: Final = 1000
"""How many missing files in a row are replaced by empty ones."""


def _names(disk: Disk, directory: Path) -> list[str]:
    return [file.name for file in list_files(disk, directory).files]


def _readers(path: Path, disk: Disk) -> list[Reader]:
    reader = Reader(path, disk=disk)
    if reader.is_single_file and parse_name(path.name) is not None:
        raise WrongUse(f"{path} is a part of the journal {path.parent}: repair that")
    return [reader]


class _Pair(NamedTuple):
    """The ids of a checkpoint."""

    checked: int
    current: int

    def __str__(self) -> str:
        return f"{self.checked}, {self.current}"

    def steps_to(self, other: _Pair) -> int:
        """The number of checkpoints between two pairs of ids."""
        return max(0, other.checked - self.checked) + max(0, other.current - self.current)


@dataclass(slots=True)
class _Salvage(PiecesSalvage):
    """A file that is being repaired: the stretches of whole records, and the losses between them."""

    head: bytes = b""
    generation: list[JournalFile] = field(default_factory=list)
    """All files of its generation."""
    pair_before: _Pair | None = None
    """The ids at the end of the files before this one; None where nothing says them."""
    checked: int | None = None
    """The oldest segment that was not checked at the end of its generation, once something has asked for it."""

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        self.generation = [file for file in self.reader.files() if file.generation == self.source.generation]
        self.pair_before = self._find_pair_before()
        for kind, wrong in wrong_names(self.source):
            if kind != "gap" or not self._replaced():
                self.left.append(f"{self.source.name} @ 0: {wrong}")
        for file_id in self._replaced():
            self._lose_file(file_id)
        cursor = Cursor(self.file, self.source, end=self.size)
        pairs: list[_Pair | None] = [self.pair_before]
        start = known = 0
        if _has_wrong_hint(self.file, self.source, self.pair_before):
            cursor.pair = self.pair_before  # it refuses that hint
        while True:
            while (chunk := cursor.read()) is not None:
                pairs += map(_Pair, *chunk.turns()[2:])
            if cursor.ending == codec.CLEAN:
                end = self.size if len(pairs) == known else self._lose_end(cursor.begin, pairs[-1])
                self.pieces.append(Span(start, end))
                return
            begin, stopped, reason = cursor.begin, cursor.position, cursor.reason
            way = find_way(cursor)
            is_one = self._own_end(stopped) == way.start
            damage, goes_on = take_way(cursor, way)
            if way.kind == "gap":
                self._lose_checkpoints(stopped, pairs[-1], reason)
                continue
            if way.kind == "repeated":
                self.pieces.append(Span(start, stopped))
                start = self._lose_repeated(stopped, damage.size, pairs[-1])
                continue
            end, suspect = damage.end, way.last
            least = int(is_one)
            self.reason = self.reason or reason
            is_restored = stopped == 0 and self._has_head(pairs[-1], way)
            if is_restored:
                end, goes_on, is_one, least = way.start, way.start < self.size, False, 0
                cursor.go_on(end, pairs[-1])
            elif way.start < stopped and way.last is not None:
                stopped, end, suspect, goes_on = way.last, way.start, None, True
                is_one, least = False, 1
                if (removed := self._pair_at(stopped)) is not None:
                    pairs.pop()
                    if stopped == 0:
                        pairs[-1], least = pairs[-1] or removed, 0
                        self._restore_head(pairs[-1] or removed)
                cursor.go_on(end, pairs[-1])
            elif damage.kind != "torn_tail" and not way.is_whole:
                whole, before = self._without_zeros(begin, stopped)
                if whole < stopped:
                    stopped, suspect, is_one = whole, before, False
            self.pieces.append(Span(start, stopped))
            if damage.kind != "torn_tail" and not (is_restored and self._is_field_of_head(end)):
                most = 1 if is_one else None
                self._lose(Span(stopped, end), way.checkpoint, pairs[-1], reason, suspect, least, most)
            known = len(pairs)
            if not goes_on:
                return
            start = end

    def _has_head(self, before: _Pair | None, way: Way) -> bool:
        """Whether the first record of the file can be written again, where that saves records, or the file."""
        is_saved = way.start < way.end
        if not is_saved and way.checkpoint is None and not self.source.is_newest:
            before = before or self._pair_after()  # a file without records must at least not be empty
        elif before is None or not is_saved:
            return False
        if before is None:
            return False
        self._restore_head(before)
        return True

    def _restore_head(self, before: _Pair) -> None:
        """Write the first checkpoint record of the file again."""
        self.head = codec.encode(Checkpoint(*before))
        what = f"the first checkpoint of the file, {before}"
        reason = "it repeats the ids that the file before ends with, or zeros in the first file"
        self.losses.append(
            Loss(
                self.source.name,
                0,
                CHECKPOINT_BYTES,
                0,
                0,
                what,
                reason,
                "restored",
                fields={"file_id": self.source.file_id},
            )
        )

    def _is_field_of_head(self, end: int) -> bool:
        """Whether bad bytes at the beginning of the file are its first checkpoint record with one field damaged.

        The last field is not the damaged one: else they may be the end of another record, and bytes are missing.
        """
        found, fields = self.file.read_at(0, CHECKPOINT_BYTES), (slice(0, 4), slice(4, 12), slice(12, 20))
        wrong = [field for field in fields if found[field] != self.head[field]]
        return end == CHECKPOINT_BYTES and len(wrong) == 1 and wrong[0] != fields[-1]

    def steps(self) -> list[Step]:
        """The steps that leave whole records only."""
        folder = self.source.name.removesuffix(self.source.path.name)
        steps: list[Step] = [
            Create(folder + file_name(file_id), "", (), "it takes the place of a file that is missing", hint)
            for file_id, hint in self._replaced().items()
        ]
        if self.head:
            self.pieces.append(Span(self.size, self.size))  # so that the file is replaced even if nothing is left
        replaced = self.steps_to_pieces(f"{self.source.name}.repair", "records")
        if self.head:
            assert isinstance(replaced[0], Create)
            has_records = bool(replaced[0].spans)
            head = {"inserts": ((0, self.head),)} if has_records else {"data": self.head}
            replaced[0] = replace(replaced[0], **head)
        return steps + replaced

    def _replaced(self) -> dict[int, bytes]:
        """The ids of files that are missing before this one, or after it, and what takes the place of each."""
        before, after = self.source.missing_ids
        if any(ids.stop - ids.start > _MOST_CREATED for ids in (before, after)):
            return {}
        pairs = (self.pair_before or self._pair_at(0), self._pair_of_end() or self.pair_before)
        return {
            file_id: codec.encode(Checkpoint(*pair))
            for ids, pair in zip((before, after), pairs, strict=True)
            for file_id in ids
            if pair is not None
        }

    # --- the account ------------------------------------------------------------------------------------------------

    def _lose(
        self,
        span: Span,
        checkpoint: int | None,
        before: _Pair | None,
        reason: str,
        suspect: int | None,
        least: int,
        most: int | None,
    ) -> None:
        """Note what was in a range; `before` are the last ids before it, `checkpoint` is where the next ones are.

        `least` and `most` are how many records that was, by its bytes alone.
        """
        after = self._pair_after() if checkpoint is None else self._pair_at(checkpoint)
        if before is not None and after is not None and before.steps_to(after) > MAX_CHECKPOINTS:
            after = None  # these ids are wrong
        turns = 0 if before is None or after is None else before.steps_to(after)
        least = max(least, turns - 1)
        last = before if turns <= (checkpoint is not None) else after
        what, fields = self._described(self.source.file_id, before, last if before else after, suspect)
        if most is not None and most < least:
            most = None
        self.losses.append(Loss(self.source.name, span.start, span.size, least, most, what, reason, fields=fields))

    def _lose_end(self, begin: int, before: _Pair | None) -> int:
        """Record what is missing at the end of the file, if the next file shows it; the end of the whole records."""
        following = next((file for file in self.generation if file.file_id > self.source.file_id), None)
        if following is None:
            return self.size
        file = self.reader.disk.open(following.path, "read")
        try:
            gap = None if _has_wrong_hint(file, following, before) else lost_end(file, following, before)
        finally:
            file.close()
        if gap is None:
            return self.size
        self.reason = self.reason or gap.reason
        whole, suspect = self._without_zeros(begin, self.size)
        after = self._pair_after()
        what, fields = self._described(self.source.file_id, before, after, suspect)
        place = (self.source.name, whole, self.size - whole)
        self.losses.append(Loss(*place, 0, None, what, f"{following.name}: {gap.reason}", fields=fields))
        return whole

    def _lose_checkpoints(self, position: int, before: _Pair | None, reason: str) -> None:
        """Note that checkpoints are missing before one, and perhaps data."""
        self.reason = self.reason or reason
        after = self._pair_at(position)
        assert before is not None
        assert after is not None
        least = max(0, before.steps_to(after) - 1) if before.steps_to(after) <= MAX_CHECKPOINTS else 0
        first, last = sorted((before, after), key=lambda pair: pair.current)
        what, fields = self._described(self.source.file_id, first, last, None)
        why = f"{reason}: checkpoints are missing between them, or these ids are wrong"
        self.losses.append(Loss(self.source.name, position, 0, least, None, what, why, fields=fields))

    def _without_zeros(self, begin: int, end: int) -> tuple[int, int | None]:
        """Where data of nothing but zeros begins that whole records end with, and the record before that.

        Next to damage it proves nothing: the rest of a damaged checkpoint record reads like this.
        """
        if end - begin > MAX_FILE_BYTES:
            return end, None
        data = self.file.read_at(begin, end - begin)
        starts = kernel.spans(data, 0, len(data), kernel.walk(data, 0, len(data))[1])
        row = len(starts) - 1
        while row and data[starts[row - 1]] == DATA and not any(data[starts[row - 1] + HEADER_BYTES : starts[row]]):
            row -= 1
        return begin + starts[row], begin + starts[row - 1] if row else None

    def _lose_repeated(self, start: int, size: int, before: _Pair | None) -> int:
        """Note that the beginning of the file was there again, and return where that ends."""
        self.reason = self.reason or "the beginning of the file is there again"
        what, fields = self._described(self.source.file_id, before, before, None)
        place, reason = (self.source.name, start, size), f"the first {size} bytes of the file are there again"
        self.losses.append(Loss(*place, 0, None, f"copies of {what}", reason, fields=fields))
        return start + size

    def _lose_file(self, file_id: int) -> None:
        """Note that a file is missing, which had at least its hint."""
        is_before = file_id < self.source.file_id
        before = self.pair_before if is_before else self._pair_of_end()
        what, fields = self._described(file_id, before, self._pair_at(0) if is_before else None, None)
        folder = self.source.name.removesuffix(self.source.path.name)
        name = folder + file_name(file_id)
        self.losses.append(Loss(name, 0, 0, 1, None, what, "the file is missing", fields=fields))

    def _described(
        self, file_id: int, before: _Pair | None, after: _Pair | None, suspect: int | None
    ) -> tuple[str, dict[str, Any]]:
        """`what` and `fields` of a loss: from the segment of the pair before it to that of the pair after it."""
        if self.checked is None:
            self.checked = pair_of(self.reader.disk, self.generation)[0]
        checked = self.checked
        fields = {"file_id": file_id, "segments": None, "checked": checked, "suspect": suspect}
        if before is None and after is None:
            return "all of it, of an unknown segment", fields
        first = before.current if before is not None else after.checked if after is not None else 0
        last = max(first, after.current) if after is not None else first
        name = f"segment {first}" if first == last else f"the segments {first} to {last}"
        if after is None:
            name += " and perhaps of later ones"
        if last < checked:
            state = "checked before"
        else:
            state = f"checked as far as before segment {checked}" if first < checked else "not checked"
        what = f"data or checkpoints of {name} ({state}), not complete any more"
        if suspect is not None:
            what += f"; the record before them, at {suspect}, may be damaged"
        return what, {**fields, "segments": [first, last]}

    def _own_end(self, position: int) -> int | None:
        """The end of a damaged record by the size in its header; None if it has none."""
        head = self.file.read_at(position, HEADER_BYTES)
        size = HEADER.unpack(head)[0] >> 8 if len(head) == HEADER_BYTES else 0
        return position + HEADER_BYTES + size if size else None

    def _find_pair_before(self) -> _Pair | None:
        if self.source.file_id == 0:
            return _Pair(0, 0)
        files = [file for file in self.generation if file.file_id < self.source.file_id]
        return _as_pair(last_pair(self.reader.disk, files))

    def _pair_of_end(self) -> _Pair | None:
        """The ids at the end of this file."""
        return _as_pair(last_pair(self.reader.disk, [self.source]))

    def _pair_after(self) -> _Pair | None:
        """The ids at the beginning of the next file; None after the last one."""
        for file in self.generation:
            if file.file_id > self.source.file_id and (hint := hint_of(self.reader.disk, file)):
                return _Pair(*hint)
        return None

    def _pair_at(self, position: int) -> _Pair | None:
        found = pair_in(self.file.read_at(position, CHECKPOINT_BYTES))
        return None if found is None else _Pair(*found)


def _follows(before: _Pair | None, pair: _Pair | None) -> bool:
    """Whether a checkpoint can have these ids: it repeats those before, registers one segment, or checks one."""
    if before is None or pair is None:
        return True
    return pair.checked >= before.checked and pair.current >= before.current and before.steps_to(pair) <= 1


def _has_wrong_hint(file: File, source: JournalFile, before: _Pair | None) -> bool:
    """Whether only the first ids of a file are wrong: the next ones follow those before the file, and not these.

    If there are no next ones, they are wrong if they say that segments are checked, or are beyond what a file can hold.
    """
    hint = pair_in(file.read_at(0, CHECKPOINT_BYTES))
    if before is None or hint is None or _follows(before, first := _Pair(*hint)) or source.knows_jump(before, first):
        return False
    _, _, following = walk_to_checkpoint(file, CHECKPOINT_BYTES, file.size())
    if following is None:
        return first.checked != before.checked or not 0 <= first.current - before.current <= MAX_CHECKPOINTS
    return _follows(before, _Pair(*following)) and not _follows(first, _Pair(*following))


def _as_pair(found: tuple[JournalFile, tuple[int, int]] | None) -> _Pair | None:
    return None if found is None else _Pair(*found[1])


REPAIRS: Final = SideBySideRepair(
    "appendfile",
    _names,
    "no files of a journal are here",
    _readers,
    FileByFile("appendfile", _Salvage, lambda part: LOCK_NAME),
)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
