"""Timeline: the journals of one store in their order, and what they know about any time.

State at a time: the latest journal that was initialized by then, and its entries that are not later. By names that is
the archive with the first later time in its name, and its own metadata must confirm it; then only that one is opened,
however many there are. Where names do not say, as with archives of other programs, the beginnings of all journals are
read. Where an archive is missing, or the active journal after the last one, the time is before the first journal, or
the account of losses says that changes of that time are lost, the answer is `HistoryUnavailable`, never a guess.

Changes are found by going through the journals one after the other; the copies that compaction made count once.

A store may rotate meanwhile, and then `NAME.jrn` is another journal than the one that was listed. So what is opened is
looked at again: a journal that began too late, or was renamed before it was opened, is looked for once more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.format import half_done_damage
from ...core.io.disk import Disk, File
from ...core.times import nanoseconds_of, shown_time
from ...errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import MAX_TIMESTAMP
from ..bytes.records import Entry, Metadata, check_key
from ..model.replay import Copies, difference
from .archive_stream import DEFAULT_LIMITS, ArchiveLimits
from .cursor import Chunk, Cursor, Head
from .files import MOST_TAKEN_NS, JournalFile, parse_name
from .lost import LostRange, LostTimes
from .succession import end_of, find_gap, gap_between, missing_newest
from .surroundings import Beginnings, in_order

_ATTEMPTS: Final = 20
_Before: TypeAlias = JournalFile | int | None
"""The journal before another one, or the time by which that must have begun."""
Answer = TypeVar("Answer")


def check_time(at: int | datetime) -> int:
    """A time that one can ask for, in nanoseconds since the epoch; `WrongUse` for anything else."""
    timestamp = nanoseconds_of(at)
    if timestamp < 0:
        raise WrongUse(f"{at!r} is no time of a store: give one from the epoch on")
    return timestamp


class Timeline:
    """The journals that `listed` returns, oldest first. Damage is handled by `mode`, and noted in `damages`.

    `is_store` says that they are all journals of a store up to the time that is asked for: its active one must be there
    if none of its archives has the answer.
    """

    def __init__(
        self,
        disk: Disk,
        where: Path,
        listed: Callable[[], list[JournalFile]],
        *,
        is_store: bool = False,
        mode: Mode = "failfast",
        limits: ArchiveLimits = DEFAULT_LIMITS,
    ) -> None:
        self.disk = disk
        self.where = where
        self.listed = listed
        self.is_store = is_store
        self.mode = check_mode(mode)
        self.limits = limits
        self.damages: list[Damage] = []
        self._begun = Beginnings(disk)

    # --- one journal --------------------------------------------------------------------------------------------------

    def latest(self, at: int | datetime | None = None) -> kernel.Latest:
        """The last entry of each key at a time, or now."""
        at = None if at is None else check_time(at)
        return self._again(lambda files: self._fold(self._choose(files, at), at))

    def diff(self, start: int | datetime, stop: int | datetime) -> dict[str, dict[str, Any]]:
        """What changed between two times: `added`, `changed` (with `before` and `after`) and `removed`, by key.

        Refused if the account says that changes between them are lost. Where a journal is missing, that is damage.
        """
        start, stop = check_time(start), check_time(stop)
        first, last = min(start, stop), max(start, stop)
        question = f"the changes from {shown_time(first)} to {shown_time(last)}"
        self.damages = []
        self._refuse_lost(self._lost(self._files()).between(first, last), question)
        damages = self.damages
        states = []
        for time in (start, stop):
            states.append(self.latest(time).state())
            damages += self.damages
        damages += self._again(lambda files: self._gaps(self._in_order(files), first, last))
        self.damages = []
        for damage in damages:
            self._note(damage)
        return difference(*states)

    def _gaps(self, files: list[JournalFile], start: int, stop: int) -> list[Damage]:
        """What is missing of the journals between two times."""
        lost = self._lost(files)
        found = []
        for before, source in pairwise(files):
            begun = self._begun(source)
            if begun is not None and (before.ended or 0) < stop and start < begun:
                found.append(find_gap(self._items_of, before, source, begun, lost))
        return [gap for gap in found if gap is not None]

    def _lost(self, files: list[JournalFile]) -> LostTimes:
        """The account of losses of the store."""
        parsed = parse_name(files[-1].name)
        store = files[-1].store if parsed is None else parsed[0]
        return LostTimes.of(self.disk, files[-1].path.parent, store)

    def _again(self, ask: Callable[[list[JournalFile]], Answer]) -> Answer:
        """Ask the files; once more when a rotation came in between."""
        files = self._files()
        half_done = half_done_damage(files[-1].path, disk=self.disk)
        for _ in range(_ATTEMPTS):
            self.damages = []
            if half_done is not None:
                self._note(half_done)
            try:
                return ask(files)
            except (NotFound, HistoryUnavailable) as error:
                again = self._files()
                if again == files:
                    if half_done is not None:  # which explains why files are missing
                        raise DamagedJournal(half_done.file, half_done.start, half_done.reason) from error
                    raise
                files = again
        raise NotFound(f"{self.where}: its files change faster than they can be read")

    def _files(self) -> list[JournalFile]:
        files = self.listed()
        if not files:
            raise NotFound(f"{self.where}: no journal of a store is here")
        return files

    def _choose(self, files: list[JournalFile], at: int | None) -> JournalFile:
        """The journal that knows the state at a time."""
        last = files[-1]
        if self.is_store and last.timestamp is not None and (at is None or at >= last.timestamp):
            self._refuse_missing(last, "the state now" if at is None else f"the state at {shown_time(at)}")
            return last
        if at is None:
            return files[-1] if files[-1].is_newest else self._in_order(files)[-1]
        lost = self._lost(files).at(at)
        if lost is not None:
            raise HistoryUnavailable(f"{self.where}: the state at {shown_time(at)} is not known: {described(lost)}")
        ends = [file.timestamp for file in files if file.timestamp is not None]
        index = min(bisect_right(ends, at), len(files) - 1)
        metadata = self.metadata(files[index])
        earliest = files[index - 1].timestamp if index else None
        is_named = metadata is None or earliest is None or metadata.initialized >= earliest - MOST_TAKEN_NS
        if metadata is not None and earliest is not None and metadata.initialized < earliest:
            is_named &= (self._begun(files[index - 1]) or 0) < metadata.initialized
        is_known = metadata is None or (metadata.initialized <= at and (files[index].is_newest or at < ends[index]))
        if is_named and is_known:
            while self._has_late_name(files, index, at):
                index += 1
            return files[index]
        return self._choose_by_beginning(self._in_order(files), at)

    def _choose_by_beginning(self, files: list[JournalFile], at: int) -> JournalFile:
        """The same where names do not say: the last one that began by then, unless another one is missing after it."""
        begun = [self._begun(file) or file.before for file in files]
        index = bisect_right(begun, at) - 1
        kept = (
            f"the state is known from {begun[index + 1]} on, which is {shown_time(begun[index + 1])}"
            if (index + 1 < len(files))
            else ""
        )
        if index < 0:
            raise HistoryUnavailable(f"{self.where}: {shown_time(at)} is before what is kept; {kept}")
        source = files[index]
        if not kept or at <= (last := self._last_time(source)):
            return source
        gap = find_gap(self._items_of, source, files[index + 1], begun[index + 1], LostTimes())
        if gap is not None:
            raise HistoryUnavailable(
                f"{self.where}: nothing is kept of the time between {shown_time(end_of(source, last))} and "
                f"{shown_time(begun[index + 1])}, which includes {shown_time(at)}; {kept}"
            )
        return source

    def _items_of(self, source: JournalFile) -> Iterator[Head | Chunk | Damage]:
        with closing(self.disk.open(source.path, "read")) as file:
            yield from Cursor(file, source, limits=self.limits).items()

    def _last_time(self, source: JournalFile) -> int:
        """The latest time of an entry of a journal."""
        return max((item.largest for item in self._items_of(source) if isinstance(item, Chunk)), default=0)

    def _in_order(self, files: list[JournalFile]) -> list[JournalFile]:
        return in_order(files, self._begun, self._begun.is_proven)

    def _has_late_name(self, files: list[JournalFile], index: int, at: int) -> bool:
        """Whether a journal had ended by then though its name says otherwise: that which it should have was taken.

        The next one, which was initialized when this one ended, shows it. It is asked only close to the name's time.
        """
        ended = files[index].timestamp
        if ended is None or ended - at > MOST_TAKEN_NS or index + 1 == len(files):
            return False
        metadata = self.metadata(files[index + 1])
        return metadata is not None and metadata.initialized <= at

    def _fold(self, source: JournalFile, at: int | None) -> kernel.Latest:
        found = kernel.Latest(None if at is None else min(at, MAX_TIMESTAMP))
        last, damages = 0, len(self.damages)
        with closing(self._items(self.disk.open(source.path, "read"), source, found)) as items:
            for item in items:
                self._apply(item, found, at)
                times = item.largest if isinstance(item, Chunk) else item.metadata and item.metadata.initialized
                last = max(last, times or 0)
        named = source.ended or 0
        is_whole = source.compressed and len(self.damages) == damages
        if is_whole and at is not None and at > last and named - last > MOST_TAKEN_NS:
            raise HistoryUnavailable(
                f"{source.path}: nothing is kept of {shown_time(at)}: the last entry of this archive is of "
                f"{shown_time(last)}, so it probably has the name of another one (see logwright verify)"
            )
        return found

    def _apply(self, item: Head | Chunk, found: kernel.Latest, at: int | None) -> None:
        if isinstance(item, Head):
            if at is not None and item.metadata is not None and item.metadata.initialized > at:
                begun = shown_time(item.metadata.initialized)
                raise HistoryUnavailable(f"{item.source.path}: it begins at {begun}, after {shown_time(at)}")
        elif not item.folded and (at is None or item.smallest <= at):
            found.add(item.data, item.start, item.stop, item.count)

    def metadata(self, source: JournalFile) -> Metadata | None:
        """The metadata of a journal; None where it is damaged, and the mode lets that pass."""
        file = self.disk.open(source.path, "read")
        with closing(file):
            for item in Cursor(file, source, limits=self.limits).items():
                if isinstance(item, Head) and item.metadata is not None:
                    return item.metadata
                if isinstance(item, Damage):
                    self._note(item)
                elif isinstance(item, Chunk):
                    break
        return None

    def _items(
        self, file: File, source: JournalFile, latest: kernel.Latest | None = None
    ) -> Generator[Head | Chunk, None, None]:
        """What is whole in a journal, which is closed then; `latest` is applied it on the way, where it can be."""
        with closing(file):
            for item in Cursor(file, source, latest=latest, limits=self.limits).items():
                if isinstance(item, Damage):
                    self._note(item)
                else:
                    yield item

    def _note(self, damage: Damage) -> None:
        if damage.kind != "torn_tail" and self.mode == "failfast":
            raise DamagedJournal(damage.file, damage.start, damage.reason)
        if damage not in self.damages:
            self.damages.append(damage)

    def earliest(self) -> int:
        """The earliest time whose state is known."""
        metadata = self._again(lambda files: self.metadata(self._in_order(files)[0]))
        if metadata is None:
            raise HistoryUnavailable(f"{self.where}: the metadata of its first journal is damaged")
        return metadata.initialized

    # --- from journal to journal --------------------------------------------------------------------------------------

    def changes(self, start: int | datetime, stop: int | datetime) -> Iterator[Entry]:
        """Every change after `start`, up to and with `stop`, in order: those that make the one state the other."""
        start, stop = check_time(start), check_time(stop)
        if start > stop:
            raise WrongUse(f"changes go from a time to a later one, not from {shown_time(start)} to {shown_time(stop)}")
        return self._changes(start, stop)

    def _changes(self, start: int, stop: int) -> Iterator[Entry]:
        files = self._ordered_files()
        question = f"the changes from {shown_time(start)} to {shown_time(stop)}"
        self._refuse_lost(self._lost(files).between(start, stop), question)
        first = self._again(lambda files: (self._choose(files, start), self._choose(files, stop))[0])
        number = next((number for number, file in enumerate(files) if file.name == first.name), 0)
        for file, source, before, copies in self._journals(files[number].before, stop, start):
            for entry in self._changes_of(file, source, before, copies, None):
                if start < entry.t <= stop:
                    yield entry

    def history(self, key: str) -> list[Entry]:
        """Every change of a key that is kept, oldest first. Where a journal is missing in between, that is damage.

        Should retention have removed journals while they were read, the history begins again after them.
        """
        check_key(key)
        for _ in range(_ATTEMPTS):
            files = self._files()
            first = files[0]
            self.damages = []
            begun = self._begun(self._in_order(files)[0]) or 0
            lost = self._lost(files).between(begun - 1, MAX_TIMESTAMP)  # what ended when it began belongs to it
            self._refuse_lost(lost, f"the history of {key!r}")
            if self.is_store and not files[-1].is_newest:
                self._refuse_missing(files[-1], f"the history of {key!r}")
            try:
                found = list(self._history(key))
            except DamagedJournal:
                if self._files()[0] == first:
                    raise
                continue
            if not any(damage.kind == "gap" for damage in self.damages) or self._files()[0] == first:
                return found
        raise NotFound(f"{self.where}: its files change faster than they can be read")

    def _history(self, key: str) -> Iterator[Entry]:
        for file, source, before, copies in self._journals(-1, MAX_TIMESTAMP):
            yield from self._changes_of(file, source, before, copies, key)

    def _refuse_lost(self, lost: LostRange | None, question: str) -> None:
        """Refuse a question whose answer depends on what is lost; in `permissive` mode, note that instead."""
        if lost is None:
            return
        if self.mode != "permissive":
            raise HistoryUnavailable(f"{self.where}: {question}: {described(lost)}")
        self._note(Damage(lost.loss.file, lost.loss.position, lost.loss.position, described(lost), "lost"))

    def _refuse_missing(self, last: JournalFile, question: str) -> None:
        """Refuse a question about a time after the last archive, if the active journal is missing."""
        missing = missing_newest(last)
        if self.mode != "permissive":
            raise HistoryUnavailable(f"{self.where}: {question}: {missing.reason}")
        self._note(missing)

    def _ordered_files(self) -> list[JournalFile]:
        """The files in their order, as they were at one moment."""
        files = self._files()
        for _ in range(_ATTEMPTS):
            found = self._in_order(files)
            again = self._files()
            if again == files:
                return found
            files = again
        raise NotFound(f"{self.where}: its files change faster than they can be read")

    def _journals(
        self, after: int, until: int, before: _Before = None
    ) -> Iterator[tuple[File, JournalFile, _Before, Copies]]:
        """The journals that ended after a time, oldest first, up to that which knows another one; each is open.

        With each comes what was before it: for the first one the time by which it must have begun, if that matters.
        What was read stays read: where a rotation has come in between, it continues after that.
        """
        copies = Copies()
        files = self._ordered_files()
        attempts = 0
        while True:
            source = next((file for file in files if file.timestamp is None or file.timestamp > after), None)
            if source is None:
                return
            file = self._opened(source, files)
            if file is None:
                again = self._ordered_files()
                attempts += 1
                if again == files or attempts == _ATTEMPTS:
                    raise NotFound(f"{source.path}: it is gone, or changes faster than it can be read")
                files = again
                continue
            attempts = 0
            yield file, source, before, copies
            if source.timestamp is None or source.timestamp > until:
                return
            after = source.timestamp
            before = source if after < until else None  # what is missing after the last time is not asked for

    def _opened(self, source: JournalFile, files: list[JournalFile]) -> File | None:
        """A journal, None if another one may have its name by now: only what is an archive keeps that."""
        try:
            file = self.disk.open(source.path, "read")
        except NotFound:
            return None
        if source.compressed or self._ordered_files() == files:
            return file
        file.close()
        return None

    def _changes_of(
        self, file: File, source: JournalFile, before: _Before, copies: Copies, key: str | None
    ) -> Iterator[Entry]:
        """The changes of one journal, or those of one key."""
        damages = len(self.damages)
        for item in self._items(file, source):
            if isinstance(item, Head):
                self._note_gap(before, file, item)
                copies.begin(None if item.metadata is None else item.metadata.initialized)
                damages = len(self.damages)
                continue
            if len(self.damages) > damages:
                copies.damaged()
            entries = (
                kernel.entries(item.data, item.start, item.stop, item.count) if key is None else entries_of(item, key)
            )
            for entry in entries:
                if copies.is_head_over(entry.t):
                    yield from copies.deleted()
                if copies.is_change(entry):
                    yield entry
        if len(self.damages) > damages:
            copies.damaged()
        yield from copies.deleted()

    def _note_gap(self, before: _Before, file: File, head: Head) -> None:
        """Note if a journal is missing before one that is open: retention may have removed it meanwhile."""
        if before is None or head.metadata is None:
            return
        begun = head.metadata.initialized
        gap: Damage | None = None
        if isinstance(before, int):
            gap = None if begun <= before else gap_between(head.source, begun, f"the time {shown_time(before)}")
        else:

            def items(source: JournalFile) -> Iterator[Head | Chunk | Damage]:
                is_open = source is head.source
                return Cursor(file, source, limits=self.limits).items() if is_open else self._items_of(source)

            try:
                gap = find_gap(items, before, head.source, begun, self._lost([head.source]))
            except NotFound:
                gap = gap_between(head.source, begun, before.name)
        if gap is not None:
            self._note(gap)


def described(lost: LostRange) -> str:
    """What is lost, for people."""
    return f"lost {lost.loss.records}: {lost.loss.what}"


def entries_of(chunk: Chunk, key: str) -> list[Entry]:
    """The entries of a chunk that have a key."""
    rows = rows_of(kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count, codec.KEYS), key)
    if not rows:
        return []
    starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
    return [kernel.entries(chunk.data, starts[row], starts[row + 1], 1)[0] for row in rows]


def rows_of(columns: Any, key: str) -> list[int]:
    """The rows of columns that have a key."""
    wanted = key.encode()
    ends = memoryview(columns.key_ends).cast("i")
    if not wanted:
        return [row for row in range(columns.count) if ends[row] == ends[row + 1]]
    found = []
    at = columns.keys.find(wanted)
    while at >= 0:
        row = bisect_right(ends, at) - 1
        if ends[row] == at and ends[row + 1] == at + len(wanted):
            found.append(row)
            at = columns.keys.find(wanted, at + len(wanted))
        else:
            at = columns.keys.find(wanted, at + 1)
    return found
