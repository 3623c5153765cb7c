"""The ids where one file ends and the next one begins: which first ids are wrong, and where records are missing.

A file begins with the ids that the preceding one ends with. If they differ, it begins with those of a checkpoint record
that did not fit there, which is repeated right after. A generation begins with the segment that the one before it ends
in. If first ids do not follow those before them, one of these holds:

    they are wrong              the next ids, in this file or in the next one, follow those before them, and not these
    the ids before are wrong    they are the only ones of that file, nothing before it confirms them, and the next ids
                                follow the first ones here; no missing records explain it
    they are bad bytes          others follow them at once, or no missing records explain them
    records are missing         in all other cases

A note of the writer (see `note.py`) proves the first ids of a file that has the noted size.

First ids before which nothing is known are wrong if they are impossible, or if the next ones contradict them and those
after these confirm the next ones. They are restored if one id is wrong, and only one value of it is possible.

So the files that agree with each other outweigh one that does not, and there is only one explanation for each place
between two files. If there are no next ids, first ids are wrong if they say that segments are checked, or if missing
records cannot explain them; but not if the ids before may be wrong just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk, File
from ...errors import LogwrightError, is_refusal
from ..bytes.layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    DESCRIBED_PAIR_BYTES,
    HEADER,
    HEADER_BYTES,
    MAX_CHECKPOINTS,
    MAX_ID,
    PAIR,
    PAIR_BYTES,
    header,
)
from .cursor import Chunk, Cursor, judge, pair_in, walk_to_checkpoint
from .files import JournalFile, Listing
from .note import Noted

_HEADERS: Final = (header(CHECKPOINT, PAIR_BYTES), header(CHECKPOINT, DESCRIBED_PAIR_BYTES))


class Pair(NamedTuple):
    """The ids of a checkpoint."""

    checked: int
    current: int

    def __str__(self) -> str:
        return f"{self.checked}, {self.current}"

    def steps_to(self, other: Pair) -> int:
        """The number of checkpoints between two pairs of ids."""
        return max(0, other.checked - self.checked) + max(0, other.current - self.current)

    def differs_from(self, other: Pair) -> int:
        """How many ids are different."""
        return sum(one != another for one, another in zip(self, other, strict=True))

    def leads_to(self, other: Pair, most: int = 1, least: int = 0) -> bool:
        """Whether the other ids are the same or larger, by this many checkpoints."""
        goes_on = other.checked >= self.checked and other.current >= self.current
        return goes_on and least <= self.steps_to(other) <= most


# --- reading: each file after the one before it -----------------------------------------------------------------------


class GenerationEnd(NamedTuple):
    """The last file of a generation, and the ids at its end; `is_exact` as in `lost_end`."""

    source: JournalFile
    pair: tuple[int, int] | None
    is_exact: bool

    @classmethod
    def of(
        cls, files: list[JournalFile], pair: tuple[int, int] | None, is_exact: bool, earlier: GenerationEnd | None
    ) -> GenerationEnd:
        """The end of a generation of these files. If they have no ids, those before them still hold."""
        if pair is None and files[0].file_id == 0:
            pair = (0, 0)
        elif pair is None and earlier is not None and files[0].begins_after(earlier.source):
            pair = earlier.pair
        return cls(files[-1], pair, is_exact)

    def lost_end(self, file: File, source: JournalFile) -> Damage | None:
        """What must be missing before the first file of the next generation."""
        return lost_end(file, source, self.pair, is_exact=self.is_exact, earlier=self.source)


def lost_end(
    file: File,
    source: JournalFile,
    before: tuple[int, int] | None,
    *,
    is_exact: bool = True,
    earlier: JournalFile | None = None,
) -> Damage | None:
    """Why the preceding file must have lost its end, or the first ids of this one must be wrong.

    `before` are the last ids of that, if known; `is_exact` says that no others can have followed them. A file begins
    with these ids, or with those of a checkpoint record that did not fit there. `earlier` is the preceding file if that
    is of the generation before: then both ids are its segment. None if they are, and if the account of losses explains
    it.
    """
    pair = source.known_ids(file.size()) or pair_in(file.read_at(0, CHECKPOINT_BYTES))
    if before is None or pair is None or source.missing or source.others:
        return None
    reason = _contradiction(source, Pair(*before), Pair(*pair), is_exact=is_exact, earlier=earlier)
    return Damage(source.name, 0, 0, reason, "gap") if reason else None


def _contradiction(
    source: JournalFile, before: Pair, pair: Pair, *, is_exact: bool, earlier: JournalFile | None
) -> str:
    """Why a file cannot begin with these ids after those; empty if it can, or if the account of losses explains it."""
    if earlier is not None and (not source.begins_after(earlier) or earlier.knows_jump(before, pair)):
        return ""
    if earlier is not None:
        before = Pair(before.current, before.current)
    most = MAX_CHECKPOINTS if not is_exact else 1 if earlier is None else 0
    if before.leads_to(pair, most) and (earlier is None or pair.checked == pair.current):
        return ""
    if source.knows_jump(before, pair):
        return ""
    ids = f"the file before ends with {before}"
    ends = ids if earlier is None else f"the generation before ends in segment {before.current}"
    return f"it begins with the ids {pair}, and {ends}: records are missing between them, or these ids are wrong"


@dataclass(slots=True)
class Seen:
    """The first and the last pair of ids of a file, and whether the segment at its end has data in it.

    `is_exact` says that no ids that could not be read can have followed the last ones.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    has_data: bool = False
    is_exact: bool = True

    def note(self, chunk: Chunk) -> None:
        rows, _, checked, current = chunk.checkpoints()
        following = 0
        for row, *pair in zip(rows, checked, current, strict=True):
            if row > following:
                self.has_data = True
            if self.last is not None and pair[1] != self.last[1]:
                self.has_data = False
            self.first = self.first or (pair[0], pair[1])
            self.last = (pair[0], pair[1])
            self.is_exact = True
            following = row + 1
        if chunk.count > following:
            self.has_data = True

    def walk(self, cursor: Cursor, *, is_strict: bool = False) -> Damage | None:
        """Note what a cursor reads; the damage where it ends, or with `is_strict` the first one."""
        while True:
            while (chunk := cursor.read()) is not None:
                self.note(chunk)
            damage, goes_on = judge(cursor)
            if damage is None or damage.kind == "torn_tail":
                return damage
            self.is_exact = False
            if is_strict or not goes_on:
                return damage


def look(disk: Disk, source: JournalFile) -> Seen:
    """The ids of a file that is not the last one. Readers report damage in it."""
    seen = Seen()
    with closing(disk.open(source.path, "read")) as file:
        seen.walk(Cursor(file, source, disk=disk))
    return seen


# --- judging: all files together --------------------------------------------------------------------------------------


@dataclass(slots=True)
class FileIds:
    """The ids of one file, and what they say about the place between it and the preceding file."""

    source: JournalFile
    error: LogwrightError | None = None
    """Why it cannot be read."""
    found: Pair | None = None
    """The ids in the first record, which may be impossible; None if it is not a checkpoint record."""
    following: Pair | None = None
    """The next ids after the first ones, if whole records lead to them."""
    follows_at: int = 0
    """Where these are; if there are none, where the whole records end."""
    later: Pair | None = None
    """The ids after these, if whole records lead to them."""
    later_at: int = 0
    """Where they are, or where the whole records end."""
    size: int = 0
    before: Pair | None = None
    """The ids at the end of the preceding files, None if unknown; at the beginning of a generation its first ones."""
    is_exact: bool = False
    """Whether nothing but a checkpoint record that did not fit can have followed those."""
    restored: Pair | None = None
    """The first ids that are right, if those in the file are wrong."""
    gap: str = ""
    """Why records must be missing before this file."""
    end: Pair | None = None
    """The ids at the end."""
    ends_exactly: bool = True
    seen: Pair | None = None
    """The first ids that can be read, wherever they are."""

    @classmethod
    def read(cls, disk: Disk, source: JournalFile) -> FileIds:
        """The first ids of a file, and the next ones."""
        found = cls(source)
        try:
            with closing(disk.open(source.path, "read")) as file:
                found.size = file.size()
                head = file.read_at(0, CHECKPOINT_BYTES)
                if len(head) == CHECKPOINT_BYTES and HEADER.unpack_from(head)[0] in _HEADERS:
                    found.found = Pair(*PAIR.unpack_from(head, HEADER_BYTES))
                    found.follows_at, _, following = walk_to_checkpoint(file, CHECKPOINT_BYTES, found.size)
                    if following is not None:
                        found.following = Pair(*following)
                        start = found.follows_at + CHECKPOINT_BYTES
                        found.later_at, _, later = walk_to_checkpoint(file, start, found.size)
                        found.later = None if later is None else Pair(*later)
        except LogwrightError as error:
            if is_refusal(error):
                raise
            found.error = error
        return found

    @property
    def known(self) -> Pair | None:
        """The first ids by the note, if the file has the size that it should have."""
        noted = self.source.noted
        return None if noted is None or self.error is not None or not noted.fits(self.size) else Pair(*noted.ids)

    @property
    def hint(self) -> Pair | None:
        """The first ids; None if they are damaged."""
        if self.known is not None:
            return self.known
        return None if self.found is None or self.found.checked > self.found.current else self.found

    @property
    def right_hint(self) -> Pair | None:
        """The first ids, as they should be."""
        return self.restored or self.hint

    @property
    def has_only_hint(self) -> bool:
        """Whether whole records without ids follow the first ids to the end."""
        return self.found is not None and self.following is None and self.follows_at == self.size

    @property
    def is_impossible(self) -> bool:
        """Whether no checkpoint record has the first ids."""
        return self.found is not None and self.hint is None

    @property
    def may_be_wrong(self) -> bool:
        """Whether only the first ids say what is at the end, and nothing before this file confirms them."""
        return self.has_only_hint and not self.is_exact and self.known is None

    @property
    def is_damaged_with_hint(self) -> bool:
        """Whether bad bytes are in this file that the first ids can belong to: no missing records explain these."""
        if self.hint is None or self.before is None or self.following is not None or self.has_only_hint:
            return False
        return self.follows_at == CHECKPOINT_BYTES or not self.before.leads_to(self.hint, MAX_CHECKPOINTS)

    @property
    def has_wrong_id(self) -> bool:
        """Whether the first record is whole, with one wrong id: whole records follow it."""
        if self.restored is None or self.found is None or (self.following is None and not self.has_only_hint):
            return False
        return self.found.differs_from(self.restored) == 1

    @property
    def repeats_hint(self) -> bool:
        """Whether the first ids are those of a checkpoint record that did not fit into the preceding file."""
        return self.follows_at == CHECKPOINT_BYTES and self.following == self.hint

    @property
    def expected(self) -> Pair | None:
        """The first ids that are possible after the preceding file; None if others are.

        If a checkpoint record with the next ids follows, the first ones may be its ids too, which say the same.
        """
        return self.before if self.is_exact else None

    def with_one_id_of(self, pairs: list[Pair]) -> Pair | None:
        """The only one of some pairs that is possible here, and of which one id is not that in the first record."""
        before = self.before or Pair(0, 0)
        found = [pair for pair in pairs if pair.checked <= pair.current and before.leads_to(pair, 2 * MAX_ID)]
        found = [pair for pair in found if self.found is not None and self.found.differs_from(pair) == 1]
        return found[0] if len(found) == 1 else None

    def cursor(self, file: File, disk: Disk) -> Cursor:
        """A cursor that refuses first ids that are wrong; if only one of them is, it begins after these."""
        start = CHECKPOINT_BYTES if self.has_wrong_id else 0
        pair, hint = (self.restored, None) if start else (None, self.restored)
        return Cursor(file, self.source, start, pair=pair, hint=hint, end=self.size, disk=disk)

    def find_end(self, disk: Disk) -> None:
        """Find the ids at the end, by its first ids as they should be."""
        seen = Seen()
        if self.error is None:
            with closing(disk.open(self.source.path, "read")) as file:
                seen.walk(self.cursor(file, disk))
        noted = None if self.source.noted is None else Pair(*self.source.noted.ids)
        self.end = Pair(*seen.last) if seen.last is not None else self.restored or self.before or noted
        self.ends_exactly = seen.is_exact
        self.seen = None if seen.first is None else Pair(*seen.first)
        if self.error is not None or self.source.others:  # nothing says which ids are right
            self.end = None


def _before(pair: Pair) -> list[Pair]:
    """The ids that a checkpoint with these ids can follow."""
    return [Pair(pair.checked, pair.current - 1), Pair(pair.checked - 1, pair.current)]


class Boundaries:
    """The ids of all files of a journal, or of consecutive ones, with one explanation for each contradiction."""

    def __init__(self, disk: Disk, sources: Sequence[JournalFile]) -> None:
        self.files = [FileIds.read(disk, source) for source in sources]
        self._rows = {source.name: row for row, source in enumerate(sources)}
        self.noted: dict[int, Noted] = {}
        """What the note says of all files, also of those that are missing."""
        for row, file in enumerate(self.files):
            self._note_before(row)
            if file.known is not None:
                file.restored = None if file.found == file.known else file.known
                file.gap = self._contradiction(row)
            elif file.found is not None:
                self._judge(row)
            file.find_end(disk)

    @property
    def are_explained(self) -> bool:
        """Whether the ids of all files follow each other, if at most one file begins with other ids."""
        is_begun = not self.files or self.files[0].source.file_id > 0 or self.files[0].right_hint == (0, 0)
        wrong = sum(file.restored is not None for file in self.files)
        fits = all(file.source.noted is None or file.source.noted.fits(file.size) for file in self.files)
        return is_begun and fits and wrong <= 1 and not any(file.gap for file in self.files)

    def of(self, source: JournalFile) -> FileIds:
        """The ids of one file."""
        return self.files[self._rows[source.name]]

    def preceding(self, source: JournalFile) -> FileIds | None:
        """The file before one; None for the first one."""
        row = self._rows[source.name]
        return self.files[row - 1] if row else None

    def following(self, source: JournalFile) -> FileIds | None:
        """The file after one; None for the last one."""
        row = self._rows[source.name] + 1
        return self.files[row] if row < len(self.files) else None

    def generation(self, source: JournalFile) -> list[FileIds]:
        """All files of the generation of a file."""
        return [file for file in self.files if file.source.generation == source.generation]

    def end(self, files: Iterable[FileIds] | None = None) -> Pair | None:
        """The ids at the end of these files, or of all; None if unknown.

        If the last ids contradict others, and it is unknown which are right, no segment counts as checked by them.
        """
        found: Pair | None = None
        for file in self.files if files is None else files:
            before = self.preceding(file.source)
            if file.end is None or (file.gap and file.has_only_hint):
                continue
            is_doubtful = file.has_only_hint and found is not None and before is not None and before.may_be_wrong
            checked = min(file.end.checked, found.checked) if is_doubtful and found is not None else file.end.checked
            found = Pair(checked, file.end.current)
        return found

    def _note_before(self, row: int) -> None:
        """Find the ids that a file should begin with."""
        file = self.files[row]
        source = file.source
        if source.file_id == 0:
            file.before, file.is_exact = Pair(0, 0), True
            return
        if row == 0:
            return
        earlier = self.files[row - 1]
        if earlier.source.generation == source.generation:
            file.before = earlier.end
            file.is_exact = earlier.end is not None and earlier.ends_exactly and not source.missing
        elif source.begins_after(earlier.source) and earlier.end is not None:
            file.before, file.is_exact = Pair(earlier.end.current, earlier.end.current), earlier.ends_exactly
        file.is_exact = file.is_exact and not source.others

    def _judge(self, row: int) -> None:
        """Find out whether the first ids of a file are wrong, or those before, or whether records are missing."""
        file, earlier = self.files[row], self.files[row - 1] if row else None
        assert file.found is not None
        reason, expected = self._contradiction(row), file.expected
        is_confirmed = file.hint is not None and self._is_confirmed(row, file.hint)
        if expected is not None and expected != file.hint and self._is_confirmed(row, expected):
            is_ambiguous = is_confirmed and earlier is not None and earlier.may_be_wrong
            is_improper = not is_confirmed and (file.hint is None or expected.leads_to(file.hint))
            if (reason and not is_ambiguous) or is_improper:
                file.restored = expected
                return
        has_next = self._next_ids(row) is not None
        is_refused = file.hint is None or (file.source.file_id == 0 and bool(reason))
        if is_refused or (expected is None and not is_confirmed and has_next):
            file.restored = self._restored_by_next(row) if has_next else expected
        if is_refused or file.restored is not None:
            return
        if earlier is not None and (is_confirmed if reason else earlier.is_impossible) and self._restore_before(row):
            return
        if reason and not has_next and self._is_likely_wrong(row):
            file.restored = expected
        elif reason and file.is_damaged_with_hint:
            file.restored = file.before
        else:
            file.gap = reason

    def _contradiction(self, row: int) -> str:
        """Why a file cannot begin with its first ids; empty if it can."""
        file = self.files[row]
        if file.before is None or file.hint is None or file.source.missing or file.source.others:
            return ""
        if file.source.file_id == 0:
            is_right = file.hint == file.before or file.source.knows_jump(file.before, file.hint)
            return "" if is_right else f"the first file begins with the ids {file.hint}"
        earlier = self.files[row - 1]
        if earlier.source.generation == file.source.generation:
            return _contradiction(file.source, file.before, file.hint, is_exact=file.is_exact, earlier=None)
        assert earlier.end is not None
        is_exact, source = file.is_exact, earlier.source
        return _contradiction(file.source, earlier.end, file.hint, is_exact=is_exact, earlier=source)

    def _next_ids(self, row: int) -> Pair | None:
        """The next ids after the first ones of a file, in this file or at the beginning of the next one."""
        file = self.files[row]
        return self._hint_after(row) if file.has_only_hint else file.following

    def _hint_after(self, row: int) -> Pair | None:
        """The first ids of the next file; None if there is none, or if it does not follow this one."""
        if row + 1 == len(self.files):
            return None
        file, after = self.files[row], self.files[row + 1]
        is_next = after.source.generation == file.source.generation or after.source.begins_after(file.source)
        return None if not is_next or after.source.missing or after.source.others else after.hint

    def _is_confirmed(self, row: int, hint: Pair) -> bool:
        """Whether the next ids follow these first ids of a file."""
        file, following = self.files[row], self._next_ids(row)
        if following is None:
            return False
        if hint == file.hint and file.source.knows_jump(hint, following):
            return True
        if file.following is not None:
            return hint.leads_to(following, least=int(file.follows_at > CHECKPOINT_BYTES))
        if self.files[row + 1].source.generation != file.source.generation:
            return following == (hint.current, hint.current)
        return hint.leads_to(following)

    def _restored_by_next(self, row: int) -> Pair | None:
        """The first ids of a file that only the next ids in it contradict; None if these, or several, may be right.

        The ids are certain to be wrong if they are impossible, or if missing checkpoints do not explain them, and no
        other next ids explain those after them.
        """
        file, following = self.files[row], self.files[row].following
        if following is None or file.found is None or file.expected is not None:
            return None
        if file.hint is not None:
            later = file.later or (self._hint_after(row) if file.later_at == file.size else None)
            if later is None or not following.leads_to(later):
                return None
            if file.hint.leads_to(following, MAX_CHECKPOINTS, 1) or file.hint.leads_to(later, 2, 1):
                return None
        same = [following] if file.follows_at == CHECKPOINT_BYTES else []
        return file.with_one_id_of([*_before(following), *same])

    def _restore_before(self, row: int) -> bool:
        """Correct the first ids of the preceding file, if only these can be wrong; whether it was done."""
        file, earlier = self.files[row], self.files[row - 1]
        if not earlier.may_be_wrong or file.hint is None or earlier.found is None or file.source.missing:
            return False
        is_forward = not earlier.is_impossible and earlier.found.leads_to(file.hint, MAX_CHECKPOINTS)
        if is_forward or earlier.source.generation != file.source.generation:
            return False
        right = earlier.with_one_id_of(_before(file.hint) if file.repeats_hint else [file.hint])
        if right is not None:
            earlier.restored = earlier.end = file.before = right
        return right is not None

    def _is_likely_wrong(self, row: int) -> bool:
        """Whether the first ids of a file that nothing follows are rather wrong than right, with records missing."""
        file, earlier = self.files[row], self.files[row - 1] if row else None
        assert file.hint is not None
        is_last = file is self.generation(file.source)[-1]
        if file.expected is None or not is_last or (earlier is not None and earlier.may_be_wrong):
            return False
        hint, before = file.hint, file.expected
        if earlier is not None and earlier.source.generation != file.source.generation:
            return hint.checked != hint.current or hint.current < before.current
        return hint.checked != before.checked or not 0 <= hint.current - before.current <= MAX_CHECKPOINTS


def pair_of(disk: Disk, files: list[JournalFile]) -> tuple[int, int]:
    """The ids at the end of files that are not written any more; zeros if unknown."""
    found = last_pair(disk, files)
    return (0, 0) if found is None else found


def last_pair(disk: Disk, files: list[JournalFile]) -> Pair | None:
    """The ids at the end of these files; None if there are none.

    Only the last files are read: up to one with other ids than its first ones, or to two files that agree.
    """
    later: Pair | None = None
    first = len(files)
    while first:
        first -= 1
        seen = look(disk, files[first])
        if seen.first is None:
            continue
        pair = Pair(*seen.first)
        if seen.first != seen.last or (later is not None and pair.leads_to(later)):
            break
        later = pair
    return Boundaries(disk, files[first:]).end()


# --- what is missing before the first file ----------------------------------------------------------------------------


def note_beginnings(disk: Disk, listing: Listing) -> None:
    """Let the first file of each generation know which segments files before it must have held, if these are missing.

    A file is removed only when no unchecked segment is in it. So the segments that earlier files held by the note are
    checked at the end of the generation, or these files are missing.
    """
    seen = None
    for row, source in enumerate(listing.files):
        if source.generation != seen:
            seen = source.generation
            files = [file for file in listing.files[row:] if file.generation == seen]
            with suppress(LogwrightError):  # a file that cannot be read is reported by itself
                listing.files[row] = replace(source, lost_before=_lost_before(disk, files))


def _lost_before(disk: Disk, files: list[JournalFile]) -> tuple[int, int] | None:
    noted = files[0].noted
    if noted is None or not noted.before:
        return None
    end = last_pair(disk, files)
    checked = [file.noted.ids[0] for file in files if file.noted is not None]
    first, last = max([*checked, 0 if end is None else end.checked]), noted.before - 1
    return None if first > last else (first, last)
