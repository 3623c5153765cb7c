"""Read journals as a stream, over `Format`: each record exactly once, also across restarts.

An offset of the stream has the number of the next record to read, for every part of every journal:

    {"orders": {"": 1200}, "web": {"web.2.000": 410, "web.2.001": 398}}

A journal or part that appears during a query is read from its beginning: a part that is not in an offset is at 0, or,
if the journal began later when it was found, at its `from`: {"late": {"": {"from": 70, "next": 90}}}. If a format may
reuse record numbers, a `mark` distinguishes the records: {"next": 90, "mark": "6d1f…"}. Incomplete records at the end
are left for a later batch.

Options, besides those of a table:
    maxRecordsPerTrigger    the most records in a batch
    maxBytesPerTrigger      the most bytes that a batch reads; at least one record
    startingOffsets         earliest (default), latest, or an offset as above; parts not in it are read from 0
    startingTimestamp       begin with the first record that is not earlier: ISO 8601 (UTC by default), or nanoseconds
    failOnDataLoss          true (default): records removed before they were read are an error; false: a warning

Limits are shared fairly: every part with new records gets the same share, and shares that are not used go to the
others. Parts take turns at being first, so even the smallest limit starves none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..arrow.discovery import Journal, open_journal
from ..core.format import find_format, find_half_done
from ..core.read.splits import Split, Splits, pack
from ..errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from .options import byte_size, flag, time_ns, whole_number
from .reader import BaseReader, Part

T = TypeVar("T")
Place: TypeAlias = tuple[str, str]
"""The name of a journal, and a part of it."""
Offset: TypeAlias = dict[str, dict[str, Any]]

_LOG: Final = logging.getLogger(__name__)
_ATTEMPTS: Final = 5
"""How often to repeat when files disappear meanwhile."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The current range of record numbers of a part of a journal, and how to read it."""

    journal: Journal
    reader: Any
    part: str
    first: int
    next: int

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.journal.name}/{self.part}" if self.part else self.journal.name

    @property
    def splits(self) -> Splits[Any]:
        return find_format(self.journal.format).splits

    def mark(self, number: int) -> str:
        """The mark of this part at a number; empty if record numbers are never reused."""
        return self.splits.mark(self.reader, self.part, number)

    def align(self, number: int) -> int:
        """The number of the first record that is not before a number, which may be within a record."""
        return self.splits.aligned(self.reader, self.part, number)

    def find(self, number: int, mark: str) -> int:
        """The current number of the record that had this number; the same if that is unknown."""
        if not mark:
            return number
        following, reason = self.splits.resume(self.reader, self.part, number, mark)
        return number if reason else following


# --- offsets ----------------------------------------------------------------------------------------------------------


def positions_of(offset: Mapping[str, Mapping[str, Any]]) -> dict[Place, int]:
    """The next record number of every part in an offset."""
    return {
        (journal, part): value["next"] if isinstance(value, Mapping) else value
        for journal, parts in offset.items()
        for part, value in parts.items()
    }


def _origins_of(offset: Mapping[str, Mapping[str, Any]]) -> dict[Place, int]:
    """The beginnings of parts that are new in an offset, if not 0."""
    return {place: value["from"] for place, value in _described(offset) if "from" in value}


def _marks_of(offset: Mapping[str, Mapping[str, Any]]) -> dict[Place, str]:
    """The marks of the parts in an offset, for formats that need them."""
    return {place: value["mark"] for place, value in _described(offset) if "mark" in value}


def _described(offset: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    for journal, parts in offset.items():
        for part, value in parts.items():
            if isinstance(value, Mapping):
                yield (journal, part), value


def _offset_of(
    positions: Mapping[Place, int], origins: Mapping[Place, int], marks: Mapping[Place, str] | None = None
) -> Offset:
    """An offset in a fixed order, because Spark compares offsets as text."""
    found: Offset = {}
    for place, number in sorted(positions.items()):
        more: dict[str, Any] = {"from": origins[place]} if origins.get(place) else {}
        mark = {} if marks is None or not marks.get(place) else {"mark": marks[place]}
        found.setdefault(place[0], {})[place[1]] = {**more, "next": number, **mark} if more or mark else number
    return found


def lag_of(progress: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The lag of a query behind every part, in records, from one entry of `query.recentProgress`.

    The lag is a difference of record numbers. In queues these are places in files, so the lag is in bytes within one
    file, and only a large number if there are more files between.
    """
    found: dict[str, dict[str, int]] = {}
    for source in progress["sources"]:
        latest, end = _as_offset(source["latestOffset"]), _as_offset(source["endOffset"])
        read = positions_of(end)
        for (journal, part), number in sorted(positions_of(latest).items()):
            origin = _origins_of(latest).get((journal, part), 0)
            found.setdefault(journal, {})[part] = max(0, number - read.get((journal, part), origin))
    return found


def _as_offset(value: Any) -> Offset:
    found: Offset = json.loads(value) if isinstance(value, str) else value
    return found or {}


def _given_offset(text: str) -> dict[Place, int]:
    """`startingOffsets` in JSON."""
    try:
        given = json.loads(text)
        positions = positions_of(given)
        if not all(type(number) is int and number >= 0 for number in positions.values()):
            raise ValueError("record numbers are whole and not negative")
    except (ValueError, AttributeError, KeyError) as error:
        form = 'write earliest, latest or {"JOURNAL": {"PART": NUMBER}}, with "" for the only part'
        raise WrongUse(f"option startingOffsets: {text!r} is invalid ({error}); {form}") from None
    return positions


# --- sharing a limit --------------------------------------------------------------------------------------------------


def share(limit: int, wanted: Sequence[int]) -> list[int]:
    """Share a limit fairly: all get the same, none more than it wants, and the remainder goes to the first ones."""
    given = [0] * len(wanted)
    open_ones = [number for number, want in enumerate(wanted) if want > 0]
    while open_ones and limit >= len(open_ones):
        each = min(limit // len(open_ones), min(wanted[number] - given[number] for number in open_ones))
        for number in open_ones:
            given[number] += each
        limit -= each * len(open_ones)
        open_ones = [number for number in open_ones if given[number] < wanted[number]]
    for number in open_ones[:limit]:
        given[number] += 1
    return given


# --- the stream -------------------------------------------------------------------------------------------------------


class JournalStream(BaseReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches on the driver; its tasks read them. Every start of a query makes a new one."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        super().__init__(schema, options, format)
        self.max_records = whole_number(options, "maxRecordsPerTrigger")
        self.max_bytes = byte_size(options, "maxBytesPerTrigger", 0) or None
        self.fail_on_data_loss = flag(options, "failOnDataLoss", True)
        self.starting_offsets = options.get("startingoffsets", "earliest").strip()
        self.starting_timestamp = time_ns(options, "startingTimestamp")
        if self.starting_timestamp is not None and "startingoffsets" in options:
            raise WrongUse("give startingOffsets or startingTimestamp, not both")
        if self.starting_timestamp is None and self.starting_offsets not in ("earliest", "latest"):
            _given_offset(self.starting_offsets)
        self._target: dict[Place, tuple[int, str]] | None = None
        self._turn = 0
        self._logged: set[str] = set()

    # --- what there is ------------------------------------------------------------------------------------------------

    def _look(self) -> dict[Place, Standing]:
        """The current state of every part of every journal."""
        found: dict[Place, Standing] = {}
        for journal in self.paths.list_journals(self.format, self.refused):
            try:
                reader = open_journal(journal)
                extents = find_format(journal.format).splits.extent(reader)
            except NotFound:  # removed in the meantime
                continue
            _refuse_half_repaired(reader, extents)
            for part, (first, following) in extents.items():
                found[journal.name, part] = Standing(journal, reader, part, first, following)
        return found

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The beginning of a query without a checkpoint."""
        standings = self._look()
        if self.starting_timestamp is not None:
            positions = _found_times(standings, self.starting_timestamp)
        elif self.starting_offsets == "earliest":
            positions = {place: standing.first for place, standing in standings.items()}
        elif self.starting_offsets == "latest":
            positions = {place: standing.next for place, standing in standings.items()}
        else:
            positions = {place: standing.first for place, standing in standings.items()}
            positions |= _checked(_given_offset(self.starting_offsets), standings)
        return _offset_of(positions, {}, {place: standings[place].mark(number) for place, number in positions.items()})

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The current ends of all parts, for the progress of a query; see `lag_of`."""
        standings = self._look()
        positions = {place: standing.next for place, standing in standings.items()}
        return _offset_of(positions, {place: standing.first for place, standing in standings.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End this run at the current ends of the journals."""
        self._note_target(self._look())

    def _note_target(self, standings: Mapping[Place, Standing]) -> None:
        """Let all following batches end at the current ends; each with its mark."""
        ends = {place: standing.next for place, standing in standings.items()}
        self._target = {place: (number, standings[place].mark(number)) for place, number in ends.items()}

    # --- what a batch holds -------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options. Spark knows one limit; if there are two, `latestOffset` applies the other."""
        if self.max_records is not None:
            return ReadMaxRows(self.max_records)
        return ReadAllAvailable() if self.max_bytes is None else ReadMaxBytes(self.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the batch that begins at `start`; equal to `start` if there is nothing to read."""
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if max_records is not None and max_bytes is None:
            max_bytes = self.max_bytes
        return retrying(lambda: self._latest(start, max_records, max_bytes))

    def _latest(self, start: dict[str, Any], max_records: int | None, max_bytes: int | None) -> dict[str, Any]:
        standings = self._look()
        read, marks = positions_of(start), _marks_of(start)
        begins = self._begins(read, marks, standings)
        ends = {place: max(begins[place], self._end(place, standings[place])) for place in begins}
        for limited, most in ((self._limit_records, max_records), (self._limit_bytes, max_bytes)):
            if most is not None:
                ends = limited(begins, ends, standings, most)
        is_known = {place: number for place, number in begins.items() if place in read}
        if ends == begins and is_known == read:
            return start
        self._turn += 1
        origins = {place: standings[place].first for place in ends if place not in read}
        return _offset_of(ends, origins, {place: standings[place].mark(number) for place, number in ends.items()})

    def _begins(
        self, read: Mapping[Place, int], marks: Mapping[Place, str], standings: Mapping[Place, Standing]
    ) -> dict[Place, int]:
        """The number from which every part continues. Raises or warns if records were lost."""
        for place in read:
            if place not in standings:
                name = "/".join(filter(None, place))
                self._lose(f"{name} is gone; records up to {read[place] - 1} were read, any after that were not")
        begins = {}
        for place, standing in standings.items():
            known = place in read
            begins[place] = (
                self._continue_from(standing, read[place], marks.get(place, "")) if known else standing.first
            )
        return begins

    def _continue_from(self, standing: Standing, number: int, mark: str) -> int:
        """The number from which a part continues that was read up to `number`."""
        following, reason = standing.splits.resume(standing.reader, standing.part, number, mark)
        if reason:
            self._lose(f"{standing.name}: {reason}")
            return following
        number = following  # the same record under its current number
        if number < standing.first:
            lost = f"records {number} to {standing.first - 1} were removed before they were read"
            self._lose(f"{standing.name}: {lost}; the journal begins with {standing.first} now")
            return standing.first
        if number > standing.next:
            back = f"records up to {number - 1} were read, but the journal ends with {standing.next - 1} now"
            self._lose(f"{standing.name}: {back}; it was cut or replaced")
            return standing.next
        return number

    def _lose(self, what: str) -> None:
        if self.fail_on_data_loss:
            raise HistoryUnavailable(f"{what}. To continue without them, set failOnDataLoss to false")
        if what not in self._logged:
            self._logged.add(what)
            _LOG.warning("%s; the stream continues without them", what)

    def _end(self, place: Place, standing: Standing) -> int:
        if self._target is None:
            return standing.next
        return min(standing.next, standing.find(*self._target.get(place, (0, ""))))

    def _in_turn(self, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> list[Place]:
        """The parts with new records, the one whose turn it is first."""
        places = sorted(place for place in begins if ends[place] > begins[place])
        at = self._turn % len(places) if places else 0
        return places[at:] + places[:at]

    def _limit_records(
        self, begins: dict[Place, int], ends: dict[Place, int], standings: Mapping[Place, Standing], limit: int
    ) -> dict[Place, int]:
        places = self._in_turn(begins, ends)

        def advance(place: Place, most: int) -> tuple[int, int]:
            """The number after `count` records, and how many there are."""
            standing, begin, end = standings[place], begins[place], ends[place]
            return standing.splits.advance(standing.reader, place[1], begin, end, most) if most else (begin, 0)

        shares = share(limit, [advance(place, limit)[1] for place in places])
        return begins | {place: advance(place, given)[0] for place, given in zip(places, shares, strict=True)}

    def _limit_bytes(
        self, begins: dict[Place, int], ends: dict[Place, int], standings: Mapping[Place, Standing], limit: int
    ) -> dict[Place, int]:
        """Shares in bytes. The first in turn gets at least one record, so that large records are read eventually."""
        places = self._in_turn(begins, ends)
        if not places:
            return ends

        def reach(place: Place, max_bytes: int) -> tuple[int, int]:
            standing = standings[place]
            return standing.splits.reach(standing.reader, place[1], begins[place], ends[place], max_bytes)

        reached = {place: reach(place, limit) for place in places}
        wanted = [used for _, used in reached.values()]
        if sum(wanted) <= limit:
            return begins | {place: number for place, (number, _) in reached.items()}
        number, least = reach(places[0], 0)
        if least >= limit:
            return begins | {places[0]: number}
        wanted[0] -= least
        shares = share(limit - least, wanted)
        shares[0] += least
        found, used = begins | {places[0]: number}, dict.fromkeys(places, 0) | {places[0]: least}
        for place, given in zip(places, shares, strict=True):
            number, taken = reach(place, given)
            if taken <= given:
                found[place], used[place] = number, taken
        for place in places:  # a share that is too small for a record goes to the others
            given = used[place] + limit - sum(used.values())
            number, taken = reach(place, given)
            if taken <= given:
                found[place], used[place] = number, taken
        return found

    # --- reading it ---------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch. After a restart Spark repeats the last one."""
        parts = retrying(lambda: self._plan(start, end))
        return [Part(group) for group in pack(parts, self.split_bytes, lambda part: part[1].bytes)]

    def _plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Journal, Split]]:
        return [
            (standing.journal, split)
            for standing, begin, stop in self._between(start, end)
            for split in self._splits(standing, begin, stop)
        ]

    def _between(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Standing, int, int]]:
        """The parts that have records between two offsets, each with the numbers of the first one and the next one."""
        read, origins = positions_of(start), _origins_of(end)
        marks = {"begin": _marks_of(start), "stop": _marks_of(end)}
        standings: dict[Place, Standing] | None = None
        for place, stop in sorted(positions_of(end).items()):
            begin = read.get(place, origins.get(place, 0))
            known = (marks["begin"].get(place, ""), marks["stop"].get(place, ""))
            is_other = known[0] not in ("", known[1])  # it may end before the number that was reached
            if (begin == stop and not is_other) or (begin > stop and not known[0]):
                continue
            standings = self._look() if standings is None else standings
            standing = standings.get(place)
            if standing is None:
                self._lose(f"{'/'.join(filter(None, place))} is gone; records {begin} to {stop - 1} were not read")
                continue
            begin = self._continue_from(standing, begin, known[0])
            if standing.next < stop or known[1]:
                stop = self._continue_from(standing, stop, known[1])
            yield standing, begin, stop

    def _splits(self, standing: Standing, begin: int, stop: int) -> list[Split]:
        """The splits of one part, without torn tails, which may be complete in a later batch."""
        planned = standing.splits.plan(
            standing.reader, self.split_bytes, {standing.part: begin}, {standing.part: stop}, resumed=True
        )
        return [replace(split, after=None) for split in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        assert isinstance(partition, Part)
        for journal, split in partition.parts:
            try:
                yield from self.read_split(journal, split)
            except NotFound as error:
                name = f"{journal.name}/{split.part}" if split.part else journal.name
                self._lose(
                    f"{name}: records {split.start} to {split.stop - 1} were removed before they were read ({error})"
                )


def retrying(look: Callable[[], T]) -> T:
    """Repeat a look if a file disappeared meanwhile. Its records are then missed, or were not needed."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return look()
        except NotFound as error:
            _LOG.info("%s; trying again", error)
    return look()


def _refuse_half_repaired(reader: Any, parts: Iterable[str]) -> None:
    """Raise `DamagedJournal` in every mode if a repair was interrupted: the next records would get other numbers."""
    shards = [path for part in parts if part and reader.disk.is_directory(path := reader.path / part)]
    for path in (reader.path, *shards):
        half_done = find_half_done(path, disk=reader.disk)
        if half_done is not None:
            raise DamagedJournal(half_done.log, 0, f"{half_done.describe()}; {half_done.next_steps()}")


def _found_times(standings: Mapping[Place, Standing], timestamp_ns: int) -> dict[Place, int]:
    """The first record of every part that is not earlier than a time."""
    by_journal: dict[str, Any] = {}
    found = {}
    for (name, part), standing in standings.items():
        if not standing.reader.has_times:
            raise WrongUse(f"{name}: records of {standing.journal.format} cannot be found by startingTimestamp")
        if name not in by_journal:
            by_journal[name] = standing.reader.find_time(timestamp_ns)
        numbers = by_journal[name]
        number = numbers.get(part, standing.first) if isinstance(numbers, Mapping) else numbers
        found[name, part] = min(number, standing.next)
    return found


def _checked(given: dict[Place, int], standings: Mapping[Place, Standing]) -> dict[Place, int]:
    """Check `startingOffsets` against the journals."""
    for place, number in given.items():
        name = "/".join(filter(None, place))
        if place not in standings:
            raise WrongUse(f"option startingOffsets: there is no {name}")
        following = standings[place].next
        if number > following:
            raise WrongUse(f"option startingOffsets: {name} has no record {number}, its next one is {following}")
    return {place: standings[place].align(number) for place, number in given.items()}
