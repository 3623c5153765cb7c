"""Finding whole transactions after damage by their structure, also where bytes were inserted or removed.

Links are offsets, so the links to a transaction that was moved still have the offset at which it was written. A *run*
is consecutive whole transactions whose links agree for one *shift*: each was written at its place minus the shift. The
next run after damage begins at the first place where operations parse up to an end, and where the links of this
transaction and of the one that follows agree; the last transaction needs the header, its predecessor or its seal.

A page may hold the bytes of another journal, whose transactions agree with each other as well. So a run is accepted
only if it is tied to the rest of the file:

    by its shift        the accepted run before it has the same: nothing was inserted or removed in between
    by where it ends    at the end of the file, and has the transaction that the header names as the last if any run
                        has; or links lead from it to a run that does. What it says it follows must not contradict that

Runs that are not accepted stay lost. In this module, offsets are those at which transactions were written.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...core.bytes.outcome import Malformed, Span
from ...core.io.disk import File
from ...core.repair.patched import PatchedFile
from ..bytes.codec import ENDS
from ..bytes.layout import HEADER_BYTES, OPERATION_HEAD_BYTES, TRANSACTION_HEAD_BYTES
from .cursor import NOWHERE, Cursor
from .files import Head, Header, JournalFile, is_whole, measure, read_head
from .operations import End, find_end, is_zeros, read_operations
from .seal import MARK

_MOST_REMOVED_BYTES: Final = 1 << 30
"""A run is not accepted if more bytes than this would have been removed before it."""
_MOST_SHIFTS: Final = 4
"""How many runs are remembered to find out what was inserted or removed before them."""
_LEAST_WINDOW_BYTES: Final = 4 << 10
_MOST_WINDOW_BYTES: Final = 1 << 20
_MOST_ENDS: Final = 1 << 20
"""How many operations are remembered with the ends of their transactions."""
_MOST_ASKED: Final = 64
"""How many runs are checked for preceding a last transaction."""
_FIRST_OPERATION: Final = re.compile(rb"[\x01-\x03\xfe\xff](?<=\0\0.{9}.)", re.DOTALL)
"""The type of a first operation, after a head whose `next` is below 2^48."""


class MovedFile(PatchedFile):
    """A file as it was when its bytes, up to a place of it, were `shift` bytes closer to the beginning."""

    def __init__(self, file: File, shift: int, end: int) -> None:
        super().__init__(file)
        self._shift = shift
        self._end = end

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size() - position)))
        count = self.read_into(position, memoryview(buffer))
        return bytes(buffer[:count])

    def read_into(self, position: int, buffer: memoryview) -> int:
        place = position + self._shift
        missing = min(max(0, -place), len(buffer))  # bytes that were removed from its beginning
        buffer[:missing] = bytes(missing)
        rest = buffer[missing : max(missing, self._end - place)]
        return missing + self.file.read_into(max(0, place), rest)

    def size(self) -> int:
        return self._end - self._shift


@dataclass(slots=True)
class Run:
    """Whole transactions: the offset of each, the end of the last one, and the links at both ends."""

    shift: int
    starts: array[int]
    end: int
    previous: int = 0
    next: int = 0

    @property
    def first(self) -> int:
        return self.starts[0]

    @property
    def last(self) -> int:
        return self.starts[-1]

    @property
    def place(self) -> Span:
        """The position in the file."""
        return Span(self.first + self.shift, self.end + self.shift)

    def precedes(self, other: Run) -> bool:
        """Whether links say that at most one transaction is between this run and another one."""
        if other.previous == self.last or self.next == other.first:
            return self.last != 0 and other.first in (self.next, self.end)
        return other.previous != 0 and other.previous == self.next >= self.end

    def __contains__(self, offset: int) -> bool:
        """Whether a transaction begins at an offset."""
        index = bisect_left(self.starts, offset)
        return index < len(self.starts) and self.starts[index] == offset

    def part(self, first: int, stop: int) -> Run:
        """The transactions from one row up to another one, which is excluded."""
        starts = self.starts
        is_last = stop == len(starts)
        return Run(
            self.shift,
            starts[first:stop],
            self.end if is_last else starts[stop],
            starts[first - 1] if first else self.previous,
            self.next if is_last else starts[stop],
        )

    def after(self, offset: int) -> Run | None:
        """The transactions from an offset on; None if there are none."""
        index = bisect_left(self.starts, offset)
        if index == 0:
            return self
        if index == len(self.starts):
            return None
        return self.part(index, len(self.starts))


def header_run(header: Header) -> Run:
    """The header as the run before the first one."""
    return Run(0, array("Q", [0]), HEADER_BYTES, 0, header.first)


class Search:
    """The runs of a file, up to a place of it; `header` is the known offsets of the first and the last transaction."""

    def __init__(self, file: File, source: JournalFile, header: Header, end: int) -> None:
        self._file = file
        self._source = source
        self._header = header
        self.end = end
        self.file_name = source.name
        self._found: list[Run] = []
        self._shifts = {0}
        self._ends: dict[int, End | None] = {}
        self._sealed_bytes_left = 4 * end + _MOST_WINDOW_BYTES

    def moved(self, shift: int) -> MovedFile:
        """The file as it was before its bytes were shifted."""
        return MovedFile(self._file, shift, self.end)

    def find(self) -> tuple[list[Run], list[Run]]:
        """The runs that are accepted, in order, and those that are not."""
        run = self._first_run()
        while run is not None:
            self._found.append(run)
            self._shifts = {0, *(found.shift for found in self._found[-_MOST_SHIFTS:])}
            run = self.next_run(run.place.end)
        return self._accepted()

    def _first_run(self) -> Run | None:
        for place in dict.fromkeys((self._header.first, HEADER_BYTES)):
            head = read_head(self._file, place)
            if head is not None and head.previous == 0 and is_whole(self.moved(0), place, self.end):
                run = self._grow(place, 0)
                if run is not None:
                    return run
        return self.next_run(0)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _grow(self, place: int, shift: int) -> Run | None:
        """The run that begins at a place, as far as links and structure lead; None if there is none.

        After a `next` that is wrong it continues with a whole transaction that follows directly and names this one.
        """
        file = self.moved(shift)
        header = Header(0, NOWHERE)
        cursor = Cursor(
            file, self._source, header, position=place - shift, knows_last=False, read_bytes=_LEAST_WINDOW_BYTES
        )
        starts = array("Q")
        count = -1
        end = None
        while len(starts) > count:
            count = len(starts)
            while (chunk := cursor.read(load=False)) is not None:
                starts.extend(chunk.starts()[:-1])
            while starts and (end := _measured(file, starts[-1])) is None:
                del starts[-1]  # without an end it is void, but only if one follows that names it
            if end is None:
                return None
            head = read_head(file, end)
            following = _measured(file, end) if head is not None and head.previous == starts[-1] else None
            if following is not None:
                starts.append(end)
                end = following
                cursor.continue_at(end, starts[-1])
        first, last = read_head(file, starts[0]), read_head(file, starts[-1])
        assert end is not None
        assert first is not None
        assert last is not None
        return Run(shift, starts, end, first.previous, last.next)

    # --- where the next one begins ------------------------------------------------------------------------------------

    def next_run(self, place: int) -> Run | None:
        """The first run from a place on."""
        for candidate in self._candidates(place):
            shift = self._shift_at(candidate)
            run = self._grow(candidate, shift) if shift is not None and candidate - shift >= HEADER_BYTES else None
            if run is not None:
                return run
        return None

    def _candidates(self, place: int) -> Iterator[int]:
        """The places, from one on, where a transaction may begin, judging by its first operation."""
        at, window_bytes = place, _LEAST_WINDOW_BYTES
        while at < self.end:
            data = self._file.read_at(at, min(window_bytes, self.end - at))
            for match in _FIRST_OPERATION.finditer(data, TRANSACTION_HEAD_BYTES):
                yield at + match.start() - TRANSACTION_HEAD_BYTES
            if len(data) < window_bytes:
                return
            at += len(data) - TRANSACTION_HEAD_BYTES
            window_bytes = min(2 * window_bytes, _MOST_WINDOW_BYTES)

    def _shift_at(self, place: int) -> int | None:
        """The shift of the transaction at a place, if links or a seal prove that it begins there."""
        head = read_head(self._file, place)
        is_last = self._header.last != 0 and place - self._header.last in self._shifts
        if head is None or not (head.previous or head.next or is_last):
            return None
        found = self._end_of(place)
        if found is None:
            return None
        end = found.end
        if is_last and head.next == 0:
            return place - self._header.last
        shift = self._shift_between(place, end)
        if shift is not None:
            return shift
        if head.next == 0:
            return self._shift_of_unlinked(place, head, found)
        if end - head.next in self._shifts:
            return end - head.next
        for shift in (end - head.next, *self._shifts):
            following = read_head(self.moved(shift), head.next)
            if following is not None and following.previous == place - shift and head.next + shift >= end:
                return shift
        return None

    def _shift_between(self, place: int, end: int) -> int | None:
        """The shift of a transaction that both neighbours name, and that fills the space between them."""
        before = self._found[-1] if self._found else header_run(self._header)
        following = read_head(self._file, end)
        is_named = before.place.end == place and before.next == before.end
        return before.shift if is_named and following is not None and following.previous == before.end else None

    def _shift_of_unlinked(self, place: int, head: Head, found: End) -> int | None:
        """The shift of a transaction without a `next`: the last one, or a sealed one."""
        end = found.end
        is_sealed = self._is_sealed(place, found)
        if end != self.end and not is_sealed:
            return None
        known = self._found[-1].shift if self._found else 0
        following = read_head(self._file, end)
        following_end = self._end_of(end) if following is not None and following.previous else None
        if following is not None and following_end is not None and self._is_sealed(end, following_end):
            return place - following.previous
        for run in reversed(self._found[-_MOST_ASKED:]):
            if head.previous == run.last:
                return place - max(run.next, run.end)
            if head.previous == run.next:
                return place - self._header.last if self._header.last else known
            if head.previous in run:  # another one has this offset in the chain: this is an earlier copy
                return place - run.starts[bisect_right(run.starts, head.previous)]
        if not is_sealed:
            return None
        # The seal proves its `previous`. If that is not before it, it was moved, and the header may name it.
        if head.previous < place - known:
            return known
        return place - self._header.last if head.previous < self._header.last else None

    def _is_sealed(self, place: int, found: End) -> bool:
        """Whether a transaction matches its seal. The number of checks is limited, because a file can be made to need
        many.
        """
        if self._file.read_at(found.position + OPERATION_HEAD_BYTES, len(MARK)) != MARK:
            return False
        self._sealed_bytes_left -= found.end - place
        if self._sealed_bytes_left < 0:
            return False
        sealed = find_end(self.moved(0), place, self.end)
        return sealed is not None and bool(sealed.seal)

    def _end_of(self, place: int) -> End | None:
        """The end of the transaction at a place by its own operations; None if it is not whole.

        Bytes that look like a head may precede each operation of a transaction, so ends are remembered.
        """
        if place + TRANSACTION_HEAD_BYTES in self._ends:
            return self._ends[place + TRANSACTION_HEAD_BYTES]
        if len(self._ends) > _MOST_ENDS:
            self._ends.clear()
        passed: list[int] = []
        found: End | None = None
        with contextlib.suppress(Malformed):
            for part in read_operations(self.moved(0), place, self.end):
                if part.position in self._ends:
                    found = self._ends[part.position]
                    break
                passed.append(part.position)
                if part.kind in ENDS:
                    found = End(part.kind, part.position, part.position + part.size, b"")
        self._ends.update(dict.fromkeys(passed, found))
        return found

    # --- which of them belong to this journal -------------------------------------------------------------------------

    def _accepted(self) -> tuple[list[Run], list[Run]]:
        reaching = self._reaching()
        accepted: list[Run] = []
        others: list[Run] = []
        before = header_run(self._header)
        for run in self._found:
            self._drop_doubtful(before, run)
            rest = self._tied(before, run, reaches=id(run) in reaching)
            if rest is not None:
                accepted.append(rest)
                before = rest
            else:
                others.append(run)
        return accepted, others

    def _drop_doubtful(self, before: Run, run: Run) -> None:
        """Drop the last transaction of a run if its `next` is impossible, and what follows does not begin at its end.

        Bytes that were inserted or removed within a head can leave the head of one transaction before the operations of
        another one.
        """
        is_followed = run.first == before.end and run.shift == before.shift
        if 0 < before.next < before.end and len(before.starts) > 1 and not is_followed:
            before.next = before.end = before.starts.pop()

    def _reaching(self) -> set[int]:
        """The identities of the run that ends where the journal does, and of the runs that links connect to it."""
        if not self._found:
            return set()
        last, *earlier = reversed(self._found)
        is_known = any(self._header.last in run for run in self._found)
        if (is_known and self._header.last not in last) or not is_zeros(self._file, last.place.end, self.end):
            return set()
        found = {id(last)}
        for run in earlier:
            if run.precedes(last):
                found.add(id(run))
                last = run
        return found

    def _tied(self, before: Run, run: Run, *, reaches: bool) -> Run | None:
        """The part of a run that is proven to follow another one in this journal."""
        rest = run.after(before.end)
        if rest is None or self._is_far(before, rest) or not self._is_same(before, run, rest):
            return None
        if rest.shift == before.shift:
            return rest
        if not reaches:
            return None
        if rest.previous == before.last:
            is_within = before.last == 0 and self._is_cut_short(before.place.end)
            return None if is_within else rest
        if before.end <= rest.previous < rest.first or before.next == rest.first:
            return rest
        # Its first `previous` was changed as well; or it is the rest of another journal, which begins earlier.
        return run.after(run.first + 1) if rest is run and run.previous else None

    def _is_same(self, before: Run, run: Run, rest: Run) -> bool:
        """Whether the last transaction that two runs have in common, if any, is the same one."""
        if rest is run:
            return True
        offset = rest.previous
        size = rest.first - offset
        return self.moved(run.shift).read_at(offset, size) == self.moved(before.shift).read_at(offset, size)

    def _is_far(self, before: Run, run: Run) -> bool:
        removed = run.first - before.end - max(0, run.place.start - before.place.end)
        return removed > _MOST_REMOVED_BYTES

    def _is_cut_short(self, place: int) -> bool:
        """Whether the operations of a first transaction are valid up to the end of the file.

        Bytes in it that look like another transaction are part of an image.
        """
        head = read_head(self._file, place)
        try:
            return head is not None and head.previous == 0 and measure(self.moved(0), place, self.end) is None
        except Malformed:
            return False


def whole_transactions_follow(file: File, source: JournalFile, place: int, *, is_named: bool = False) -> bool:
    """Whether whole transactions that no crash can have left reach from a later place to the end of the file.

    After a power cut without a sync, transactions that the header does not name may be incomplete. But they are at the
    offsets where they were written, and not flagged as stored. Nothing can follow a transaction that the header names
    (`is_named`).
    """
    search = Search(file, source, Header(0, 0), file.size())
    while (run := search.next_run(place)) is not None:
        place = run.place.end
        if is_zeros(file, place, search.end):
            return is_named or run.shift != 0 or any(_is_complete(search.moved(0), at) for at in run.starts)
    return False


def _is_complete(file: File, place: int) -> bool:
    head = read_head(file, place)
    return head is not None and head.complete


def _measured(file: File, offset: int) -> int | None:
    """The end of the transaction at an offset by its own operations; None if it is not whole."""
    try:
        return measure(file, offset, file.size(), follow_next=False)
    except Malformed:
        return None
