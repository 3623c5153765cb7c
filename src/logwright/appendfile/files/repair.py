"""Repairing a journal: what to do about each kind of damage. `core/repair/plan.py` carries it out.

    a torn tail         is cut off
    other bad bytes     are removed: the file is rebuilt from the whole records before and after them
    wrong first ids     of a file are restored, if the ids of all other files prove them (see `boundaries.py`)
    another size than   is accepted: the account says that records of this file are missing, or were added (`note.py`)
      the note says
    a missing file      is replaced by one without data, so that the ids are consecutive again; the first files of a
                        journal are not
    two files with each their contents are exchanged, if only then the ids of all files follow each other, and there is
    other's names       no second pair of files for which this holds

A file that cannot be read is left, and so is damage at the beginning of the next one. If the ids in a file precede
those before it, or its directory has no files of its id, and it fits the name of one that is missing, it was renamed:
nothing is repaired until it has that name again, because its records would come out of order. No other field is
inferred: in this format nothing proves a wrong size. Only the first record of a file is written again, because it
repeats the ids at the end of the preceding file; those of file 0 are zeros. Every byte that is removed is
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

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.bytes.outcome import Damage, Span
from ...core.io.disk import Disk, File
from ...core.repair.losses import Loss
from ...core.repair.plan import Create, Plan, Remove, Rename, Repair, Step
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
    MAX_ID,
    NOTE_NAME,
    file_name,
    parse_name,
)
from ..bytes.records import Checkpoint
from .boundaries import Boundaries, FileIds, Pair
from .cursor import Cursor, Way, find_way, pair_in, take_way
from .files import JournalFile, list_files, wrong_names
from .note import packed_note, read_note
from .reader import Reader

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_REPLACED: Final = "it takes the place of the files that are missing"
_MOST_CREATED: Final = 1000
"""How many missing files in a row are replaced by empty ones."""


def _names(disk: Disk, directory: Path) -> list[str]:
    listing = list_files(disk, directory)
    return [*(file.name for file in listing.files), *(lost.name for lost in listing.lost)]


def _readers(path: Path, disk: Disk) -> list[Reader]:
    reader = Reader(path, disk=disk)
    if reader.is_single_file and parse_name(path.name) is not None:
        raise WrongUse(f"{path} is a part of the journal {path.parent}: repair that")
    return [reader]


@dataclass(slots=True)
class _Salvage(PiecesSalvage):
    """A file that is being repaired: the stretches of whole records, and the losses between them."""

    boundaries: Boundaries = field(kw_only=True)
    """The ids of all files."""
    head: bytes = b""

    @property
    def ids(self) -> FileIds:
        """The ids of this file."""
        return self.boundaries.of(self.source)

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.ids.size
        self._find_pieces()
        wrong = self.source.size_problem(self.size)
        if wrong is not None:
            self._lose_anywhere(wrong)

    def _find_pieces(self) -> None:
        """Find the ranges of whole records, and what is lost between them."""
        if self.source.lost_before is not None:
            self._lose_first_files(*self.source.lost_before)
        for kind, wrong in wrong_names(replace(self.source, lost_generations=(), lost_before=None)):
            if kind != "gap" or not self._replaced():
                self.left.append(f"{self.source.name} @ 0: {wrong}")
        for file_id in self._replaced():
            self._lose_file(file_id)
        right = self.ids.restored
        pairs: list[Pair | None] = [right or self.ids.before]
        start = 0
        if right is not None and self.ids.has_wrong_id:
            start = self._restore_id(right)
        cursor = self.ids.cursor(self.file, self.reader.disk)
        while True:
            while (chunk := cursor.read()) is not None:
                pairs += map(Pair, *chunk.checkpoints()[2:])
            if cursor.ending == codec.CLEAN:
                self.pieces.append(Span(start, self._lose_end(cursor.begin, pairs[-1])))
                return
            begin, stopped, reason = cursor.begin, cursor.position, cursor.reason
            if stopped == 0 and self._follows_unreadable:
                self.left.append(f"{self.source.name} @ 0: {reason}; the file before it cannot be read")
                self.pieces.append(Span(0, self.size))
                return
            way = find_way(cursor)
            is_one = self._own_end(stopped) == way.start
            is_known = is_one and not _may_be_right(pairs[-1], cursor.refused)
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
            restored = self._restored_from(pairs[-1], way) if stopped == 0 else None
            if restored is not None:
                end, goes_on, is_one, least = restored, restored < self.size, False, 0
                cursor.continue_at(end, pairs[-1])
            elif stopped == 0 and pairs[-1] is None and way.start < way.end:
                end, goes_on, is_one, least = way.end, way.checkpoint is not None, False, 0
                cursor.continue_at(end, None)
            elif way.start < stopped and way.last is not None:
                stopped, end, suspect, goes_on = way.last, way.start, None, True
                is_one, least = False, 1
                if (removed := self._pair_at(stopped)) is not None:
                    pairs.pop()
                    if stopped == 0:
                        pairs[-1], least = pairs[-1] or removed, 0
                        self._restore_head(pairs[-1] or removed)
                cursor.continue_at(end, pairs[-1])
            elif damage.kind != "torn_tail" and not way.is_whole:
                whole, before = self._without_zeros(begin, stopped)
                if whole < stopped:
                    stopped, suspect, is_one = whole, before, False
            self.pieces.append(Span(start, stopped))
            if damage.kind != "torn_tail" and not (restored is not None and self._is_field_of_head(end)):
                most = 1 if is_one and is_known else None
                self._lose(Span(stopped, end), way.checkpoint, pairs[-1], reason, suspect, least, most)
            if not goes_on:
                self._lose_end(self.size, pairs[-1])
                return
            start = end

    @property
    def _follows_unreadable(self) -> bool:
        """Whether the preceding file cannot be read: nothing is inferred from it."""
        preceding = self.boundaries.preceding(self.source)
        return preceding is not None and preceding.error is not None

    def _restore_id(self, pair: Pair) -> int:
        """Write the first record again, which has one wrong id; where records continue."""
        self.reason = f"it begins with the ids {self.ids.found}, and other ids contradict them"
        self.pieces.append(Span(0, 0))
        following = self.ids.following if self.ids.follows_at == CHECKPOINT_BYTES else None
        has_other_ids = following is not None and following != pair and pair.leads_to(following, MAX_CHECKPOINTS)
        if not has_other_ids:  # else these are the first ids from now on
            self._restore_head(pair)
        if has_other_ids or not self._is_field_of_head(CHECKPOINT_BYTES):
            checkpoint = None if self.ids.following is None else self.ids.follows_at
            self._lose(Span(0, CHECKPOINT_BYTES), checkpoint, pair, self.reason, None, 0, None)
        return CHECKPOINT_BYTES

    def _restored_from(self, before: Pair | None, way: Way) -> int | None:
        """Write the first record of the file again, where that saves records, or the file; where records continue."""
        if before is not None and way.start < way.end:
            self._restore_head(before)
            return way.start
        if way.checkpoint is not None or self.source.is_newest:
            return None
        before = before or self._pair_after() or self._noted_ids(self.source.file_id)
        last = self.boundaries.end() or Pair(0, 0)  # a file without records must at least not be empty
        self._restore_head(before or Pair(last.current, last.current))
        return way.end

    def _restore_head(self, before: Pair) -> None:
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
        if any(ids.stop - ids.start > _MOST_CREATED for ids in (before, after)) or self._follows_unreadable:
            return {}
        pairs = (self.ids.before or self._pair_at(0), self._pair_of_generation_end())
        return {
            file_id: codec.encode(Checkpoint(*pair))
            for ids, pair in zip((before, after), pairs, strict=True)
            for file_id in ids
            if pair is not None
        }

    def _noted_ids(self, file_id: int) -> Pair | None:
        """The ids that a file had at its beginning by the note, if that says it."""
        noted = self.boundaries.noted.get(file_id)
        return None if noted is None else Pair(*noted.ids)

    # --- the account ------------------------------------------------------------------------------------------------

    def _lose(
        self,
        span: Span,
        checkpoint: int | None,
        before: Pair | None,
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
        checkpoints = 0 if before is None or after is None else before.steps_to(after)
        least = max(least, checkpoints - 1)
        last = before if checkpoints <= (checkpoint is not None) else after
        what, fields = self._described(self.source.file_id, before, last if before else after, suspect)
        if most is not None and most < least:
            most = None
        self.losses.append(Loss(self.source.name, span.start, span.size, least, most, what, reason, fields=fields))

    def _lose_end(self, begin: int, before: Pair | None) -> int:
        """Record what is missing at the end of the file, if the next file shows it; the end of the whole records."""
        following = self.boundaries.following(self.source)
        if following is None or not following.gap:
            return self.size
        self.reason = self.reason or following.gap
        whole, suspect = self._without_zeros(begin, self.size)
        what, fields = self._described(self.source.file_id, before, following.hint, suspect)
        place = (self.source.name, whole, self.size - whole)
        self.losses.append(Loss(*place, 0, None, what, f"{following.source.name}: {following.gap}", fields=fields))
        return whole

    def _lose_anywhere(self, wrong: Damage) -> None:
        """Note that records are missing at an unknown place of the file, or were added, because it had another size."""
        assert self.source.noted is not None
        missing = max(0, self.source.noted.size - self.size)
        is_only = bool(missing) and not any(loss.kind == "lost" for loss in self.losses)
        pairs = [
            pair for pair in (self.ids.before, self.ids.hint, self.ids.end, self._pair_after()) if pair is not None
        ]
        by_segment = sorted(pairs, key=lambda pair: pair.current)  # it may be another file's contents
        before, after = (by_segment[0], by_segment[-1]) if pairs else (None, None)
        what, fields = self._described(self.source.file_id, before, after, None)
        place = (self.source.name, self.size, missing, int(is_only), None)
        self.losses.append(Loss(*place, what, wrong.reason, fields=fields))

    def _lose_checkpoints(self, position: int, before: Pair | None, reason: str) -> None:
        """Note that checkpoints are missing before one, and perhaps data."""
        self.reason = self.reason or reason
        after = self._pair_at(position)
        assert before is not None
        assert after is not None
        least = max(0, before.steps_to(after) - 1) if before.steps_to(after) <= MAX_CHECKPOINTS else 0
        what, fields = self._described(self.source.file_id, before, after, None)
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

    def _lose_repeated(self, start: int, size: int, before: Pair | None) -> int:
        """Note that the beginning of the file was there again, and return where that ends."""
        self.reason = self.reason or "the beginning of the file is there again"
        what, fields = self._described(self.source.file_id, before, before, None)
        place, reason = (self.source.name, start, size), f"the first {size} bytes of the file are there again"
        self.losses.append(Loss(*place, 0, None, f"copies of {what}", reason, fields=fields))
        return start + size

    def _lose_file(self, file_id: int) -> None:
        """Note that a file is missing, which had at least its hint."""
        is_before = file_id < self.source.file_id
        before = self.ids.before if is_before else self.ids.end
        after = self._pair_at(0) if is_before else self._pair_of_generation_end()
        what, fields = self._described(file_id, before, after, None)
        if not is_before:
            what = what.replace(" (", " and perhaps of later ones (", 1)
        folder = self.source.name.removesuffix(self.source.path.name)
        name = folder + file_name(file_id)
        self.losses.append(Loss(name, 0, 0, 1, None, what, "the file is missing", fields=fields))

    def _lose_first_files(self, first: int, last: int) -> None:
        """Note that the files with these segments are missing before this one, which was the next one after them."""
        what, fields = self._described(self.source.file_id, Pair(first, first), Pair(first, last), None)
        folder = self.source.name.removesuffix(self.source.path.name)
        name = folder + file_name(self.source.file_id - 1)
        reason = "this file is missing, and perhaps others before it"
        files = self.boundaries.generation(self.source)
        is_certain = all(file.ends_exactly and not file.source.size_problem(file.size) for file in files)
        self.losses.append(Loss(name, 0, 0, int(is_certain), None, what, reason, fields=fields))

    def _described(
        self, file_id: int, before: Pair | None, after: Pair | None, suspect: int | None
    ) -> tuple[str, dict[str, Any]]:
        """`what` and `fields` of a loss: from the segment of the pair before it to that of the pair after it."""
        end = self.boundaries.end(self.boundaries.generation(self.source))
        checked = 0 if end is None else end.checked
        fields = {"file_id": file_id, "segments": None, "checked": checked, "suspect": suspect}
        if before is None and after is None:
            return "all of it, of an unknown segment", fields
        first = last = before.current if before is not None else after.checked if after is not None else 0
        if after is not None:
            first, last = min(first, after.current), max(last, after.current)  # wrong ids may go back
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

    def _pair_of_generation_end(self) -> Pair | None:
        """The ids at the end of this generation, whose last files are missing: the next one begins with its segment."""
        found, missing = self.ids.end, self.source.missing_ids[1]
        noted = self._noted_ids(missing[-1]) if missing else None
        if noted is not None and (found is None or found.leads_to(noted, 2 * MAX_ID)):
            found = noted
        following = self.boundaries.following(self.source)
        is_next = following is not None and following.source.file_id == self.source.generation
        hint = following.right_hint if following is not None and is_next else None
        if hint is None or hint[0] != hint[1] or (found is not None and hint[1] < found.current):
            return found
        return Pair(hint[0] if found is None else found.checked, hint[1])

    def _pair_after(self) -> Pair | None:
        """The ids at the beginning of the next file, or the first ones that are left of it; None after the last one."""
        later = (file for file in self.boundaries.generation(self.source) if file.source.file_id > self.source.file_id)
        return next((pair for file in later if (pair := file.right_hint or file.seen) is not None), None)

    def _pair_at(self, position: int) -> Pair | None:
        """The ids of the checkpoint record at a position; None for other bytes."""
        found = pair_in(self.file.read_at(position, CHECKPOINT_BYTES))
        return None if found is None else Pair(*found)


def _may_be_right(before: Pair | None, refused: tuple[int, int] | None) -> bool:
    """Whether wrong ids may be what was written, and checkpoints are missing before them."""
    return before is not None and refused is not None and before.checked <= refused[0] <= refused[1] >= before.current


# --- whole files ------------------------------------------------------------------------------------------------------


class _Contents(NamedTuple):
    """The size, and the first and the last ids of a file that is whole."""

    size: int
    first: Pair
    last: Pair


def _contents(disk: Disk, source: JournalFile) -> _Contents | None:
    """What is in a file, whatever its name is; None if it is damaged or empty."""
    with closing(disk.open(source.path, "read")) as file:
        size = file.size()
        hint = pair_in(file.read_at(0, CHECKPOINT_BYTES))
        if hint is None:
            return None
        cursor = Cursor(file, source, CHECKPOINT_BYTES, pair=hint, end=size)
        last = Pair(*hint)
        while (chunk := cursor.read()) is not None:
            *_, checked, current = chunk.checkpoints()
            if checked:
                last = Pair(checked[-1], current[-1])
        return _Contents(size, Pair(*hint), last) if cursor.ending == codec.CLEAN else None


def _fits(files: list[JournalFile], contents: list[_Contents], row: int) -> bool:
    """Whether the contents of a file can follow those of the file before it."""
    source, (size, first, _) = files[row], contents[row]
    if source.noted is not None and (not source.noted.fits(size) or first != source.noted.ids):
        return False
    if row == 0:
        return source.file_id > 0 or first == (0, 0)
    earlier, before = files[row - 1], contents[row - 1].last
    if source.knows_jump(before, first) or earlier.knows_jump(before, first):
        return True
    if earlier.generation == source.generation:
        return before.leads_to(first)
    if source.begins_after(earlier):
        return first == (before.current, before.current)
    return first.current >= before.current


def _find_exchange(files: list[JournalFile], contents: list[_Contents]) -> tuple[int, int] | None:
    """The rows of the only two files with which exchanged all contents follow each other; None if they do already."""
    wrong = [row for row in range(len(files)) if not _fits(files, contents, row)]
    if not wrong:
        return None
    found: set[tuple[int, int]] = set()
    for one in {max(0, wrong[0] - 1), wrong[0]}:
        for other in range(len(files)):
            exchanged = list(contents)
            exchanged[one], exchanged[other] = contents[other], contents[one]
            changed = {row for place in (one, other) for row in (place, place + 1) if row < len(files)}
            if set(wrong) <= changed and all(_fits(files, exchanged, row) for row in changed):
                found.add((min(one, other), max(one, other)))
    return found.pop() if len(found) == 1 else None


def _exchange(reader: Reader, boundaries: Boundaries) -> Plan | None:
    """The plan that gives two files their own names again; None unless the ids prove that they were exchanged."""
    files = [file.source for file in boundaries.files]
    if reader.is_single_file or any(True for file in files for _ in wrong_names(file)):
        return None
    if boundaries.are_explained or any(file.error is not None for file in boundaries.files):
        return None
    contents = [_contents(reader.disk, file) for file in files]
    whole = [content for content in contents if content is not None]
    rows = _find_exchange(files, whole) if len(whole) == len(files) else None
    if rows is None:
        return None
    one, other = (files[row].name for row in rows)
    sizes = {files[row].name: whole[row].size for row in rows}
    reason = "only with these two exchanged the ids of all files follow each other"
    steps: list[Step] = []
    for name, source in ((one, other), (other, one)):
        spans = (Span(0, sizes[source]),)
        steps.append(Create(f"{name}.repair", source, spans, f"the contents of {source}: {reason}"))
    steps += [Remove(name, reason) for name in (one, other)]
    steps += [Rename(f"{name}.repair", name, "it takes the place of the other file") for name in (one, other)]
    what = f"the names of {one} and {other}, which were exchanged"
    fields = {"file_id": files[rows[0]].file_id}
    loss = Loss(one, 0, sizes[one] + sizes[other], 0, 0, what, reason, "restored", fields=fields)
    return Plan("appendfile", tuple(steps), (), (LOCK_NAME,), losses=(loss,))


def _old_name(reader: Reader, boundaries: Boundaries, row: int) -> int | None:
    """The id that a file had before it was renamed; None unless its ids show that its name is wrong, and which fits."""
    file = boundaries.files[row]
    source = file.source
    is_past = source.put_aside is not None and source.file_id >= source.put_aside
    before = boundaries.files[row - 1].end if row else None
    goes_back = before is not None and file.found is not None and not before.leads_to(file.found, 2 * MAX_ID)
    if file.error is not None or source.others or not (is_past or goes_back):
        return None
    content = _contents(reader.disk, source)
    if content is None or (source.noted is not None and source.noted.fits(content.size) and file.found == file.known):
        return None
    others = {one.source.file_id: one for one in boundaries.generation(source) if one is not file}
    if not others:
        return None
    first = min(others)
    begin, end = others[first].source.boundary, source.generation if is_past else source.file_id
    names = {name for file_id in others for name in (file_id - 1, file_id + 1) if begin <= name < end} - {*others}
    is_certain = is_past or source.missing > 0 or file.following is not None  # else its first ids may be damaged
    found = [name for name in names if (name > first or is_certain) and _fits_name(boundaries, others, name, content)]
    return found[0] if len(found) == 1 else None


def _fits_name(boundaries: Boundaries, others: dict[int, FileIds], name: int, content: _Contents) -> bool:
    """Whether these contents can be those of a missing file of this id, between the files beside it."""
    noted, earlier, later = boundaries.noted.get(name), others.get(name - 1), others.get(name + 1)
    if noted is not None and (not noted.fits(content.size) or content.first != noted.ids):
        return False
    before = Pair(0, 0) if name == 0 else None if earlier is None else earlier.end
    after = None if later is None else later.hint
    is_after = before is None or (before == content.first if name == 0 else before.leads_to(content.first))
    return is_after and (after is None or content.last.leads_to(after))


def _leave_renamed(reader: Reader, boundaries: Boundaries) -> Plan | None:
    """The plan that changes nothing and names the files that were renamed; None if there are none."""
    if reader.is_single_file:
        return None
    names = [(file.source, _old_name(reader, boundaries, row)) for row, file in enumerate(boundaries.files)]
    left = tuple(
        f"{source.name} @ 0: it seems to be {file_name(name)}, renamed: rename it back"
        for source, name in names
        if name is not None
    )
    return Plan("appendfile", (), left, (LOCK_NAME,)) if left else None


def _replace_generations(reader: Reader, boundaries: Boundaries, plan: Plan) -> Plan:
    """The plan, and what it takes for generations of which no file is there: each gets its last file, without data."""
    listing = reader.listing()
    steps: list[Step] = []
    losses: list[Loss] = []
    left: list[str] = []
    starts = {*listing.boundaries, *(done.file_id for done in listing.done)}
    for lost in listing.lost:
        boundary = lost.boundary
        earlier = [file for file in boundaries.files if file.source.file_id < boundary]
        if earlier and earlier[-1].error is not None:
            left.append(f"{lost.place} @ 0: {lost.reason}")
            continue
        before = boundaries.end(earlier)
        hints = (file.right_hint for file in boundaries.files if file.source.file_id >= boundary)
        after = next((hint for hint in hints if hint is not None), None)
        begins = max((start for start in starts if start < boundary), default=0)
        noted = [each.ids[1] for file_id, each in boundaries.noted.items() if file_id < begins]
        first = max(0 if before is None else before.current, *noted, 0)
        last = max([first, *(done.segment for done in listing.done)]) if after is None else after[1]
        pair = lost.ids or (last, last)
        steps.append(Create(lost.name, "", (), _REPLACED, codec.encode(Checkpoint(*pair))))
        what = f"all data of the generation {boundary}, from segment {first} on"
        if lost.ids is not None:
            last = lost.ids[1]
            what = f"all data since the last recovery, from segment {first} on"
        fields = {"file_id": boundary - 1, "segments": [min(first, last), max(first, last)], "checked": None}
        place = (lost.name, 0, 0, 1, None)
        losses.append(Loss(*place, what, "all files of the generation are missing", fields={**fields, "suspect": None}))
    return replace(plan, steps=(*plan.steps, *steps), left=(*plan.left, *left), losses=(*plan.losses, *losses))


def _plan_journal(reader: Reader) -> Plan:
    boundaries = Boundaries(reader.disk, reader.files())
    if not reader.is_single_file:
        boundaries.noted = read_note(reader.disk, reader.directory)

    def salvage(reader: Reader, source: JournalFile, file: File) -> _Salvage:
        return _Salvage(reader, source, file, boundaries=boundaries)

    plan = _exchange(reader, boundaries)
    if plan is None and (renamed := _leave_renamed(reader, boundaries)) is not None:
        return renamed
    plan = plan or FileByFile("appendfile", salvage, lambda part: LOCK_NAME)(reader)
    return plan if reader.is_single_file else _renote(reader, _replace_generations(reader, boundaries, plan))


def _renote(reader: Reader, plan: Plan) -> Plan:
    """The plan, and the steps after which the note says nothing of the files that it changes or accepts as they are.

    Nor does it say what earlier files held: what is missing now is in the account, and checks may be lost.
    A writer may note these files before the repair is undone. That does not prevent it, and the old note is restored.
    """
    path = reader.directory / NOTE_NAME
    if plan.empty or reader.disk.is_directory(path):
        return plan
    content = read_note(reader.disk, reader.directory)
    names = {step.file.removesuffix(".repair") for step in plan.steps} | {loss.file for loss in plan.losses}
    changed = {parse_name(name.rpartition("/")[2]) for name in names}
    left = {file_id: noted._replace(before=0) for file_id, noted in content.items() if file_id not in changed}
    kept = packed_note(left)
    steps: tuple[Step, ...] = ()
    if reader.disk.exists(path):
        reason = "files that it names have another size or other first ids now"
        steps = (Remove(NOTE_NAME, reason), Create(NOTE_NAME, "", (), "what it says of all other files", kept))
    return replace(plan, steps=(*plan.steps, *steps), derived=(NOTE_NAME,))


REPAIRS: Final = SideBySideRepair(
    "appendfile",
    _names,
    "no files of a journal are here",
    _readers,
    _plan_journal,
)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
