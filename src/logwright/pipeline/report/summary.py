"""What the report shows of activity and damage, kept from batch to batch, so that a batch does not read the tables.

A summary is merged with that of the next batch. Its size is bounded. Sums of records, bytes and damage are exact.

Activity over time is kept for the journals with the most bytes, and for the others together. A series has at most
`MOST_PERIODS` periods with records: if there are more, the periods become longer. Their lengths are such that a bar of
the report consists of whole periods. A journal that grows to be one of the largest has its own series from then on.

Damage is kept by file. Ranges that are near to each other are merged if a file has many, and of many files those with
the fewest ranges are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

MOST_SERIES: Final = 64
MOST_PERIODS: Final = 400
MOST_FILES: Final = 200
MOST_RANGES: Final = 600
MOST_UNREADABLE: Final = 100

_MINUTE: Final = 60
_DAY: Final = 24 * 60
_LENGTHS: Final = (1, 5, 15, 30, 60, 180, 360, 720, _DAY, 7 * _DAY, 91 * _DAY)
"""The lengths of periods in minutes, each a multiple of the one before."""
_LONGER: Final = 10
"""What the longest one is multiplied by, again and again, if it is too short."""

Range: TypeAlias = list[Any]
"""Start, end, bytes, kind, reason of the first, and the number of ranges."""


@dataclass(slots=True)
class JournalActivity:
    """All records of a journal. `first` and `last` are minutes in seconds since 1970; None if no record has a time."""

    format: str
    records: int = 0
    bytes: int = 0
    untimed: int = 0
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class PeriodSeries:
    """Records and bytes by period; `length` is that of a period in minutes, and keys are numbers of periods."""

    length: int = 1
    periods: dict[int, list[int]] = field(default_factory=dict)

    def add(self, minute: int, records: int, size: int) -> None:
        """Add the records of a minute, or of a period that begins there."""
        total = self.periods.setdefault(minute // self.length, [0, 0])
        total[0] += records
        total[1] += size
        if len(self.periods) > MOST_PERIODS:
            self._lengthen()

    def merge(self, other: PeriodSeries) -> None:
        while self.length < other.length:
            self._lengthen()
        for period, (records, size) in other.periods.items():
            self.add(period * other.length, records, size)

    def _lengthen(self) -> None:
        longer = next((length for length in _LENGTHS if length > self.length), self.length * _LONGER)
        periods, self.periods = self.periods, {}
        for period, (records, size) in periods.items():
            total = self.periods.setdefault(period * self.length // longer, [0, 0])
            total[0] += records
            total[1] += size
        self.length = longer

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """The begin of each period in seconds since 1970, its records and its bytes."""
        for period, (records, size) in sorted(self.periods.items()):
            yield period * self.length * _MINUTE, records, size


@dataclass(slots=True)
class ActivitySummary:
    """The activity of all journals."""

    journals: dict[str, JournalActivity] = field(default_factory=dict)
    series: dict[str, PeriodSeries] = field(default_factory=dict)
    others: PeriodSeries = field(default_factory=PeriodSeries)
    """The journals without a series of their own."""

    def add(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Add rows of the table `activity`: new records of some minutes."""
        added: dict[str, list[tuple[int, int, int]]] = {}
        for batch in rows:
            minutes = batch.column("minute").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
            columns = [batch.column(name).to_pylist() for name in ("format", "journal", "records", "bytes")]
            for minute_us, format, name, records, size in zip(minutes, *columns, strict=True):
                journal = self.journals.setdefault(name, JournalActivity(format))
                journal.records += records
                journal.bytes += size
                if minute_us is None:
                    journal.untimed += records
                    continue
                at = minute_us // 1_000_000
                journal.first = at if journal.first is None else min(journal.first, at)
                journal.last = at if journal.last is None else max(journal.last, at)
                added.setdefault(name, []).append((at // _MINUTE, records, size))
        self._choose(added)
        for name, minutes in added.items():
            series = self.series.get(name, self.others)
            for each in minutes:
                series.add(*each)

    def _choose(self, added: Iterable[str]) -> None:
        """Give journals their own series as long as there are not too many; then the largest have one."""
        for name in added:
            if len(self.series) < MOST_SERIES:
                self.series.setdefault(name, PeriodSeries())
        if len(self.journals) <= MOST_SERIES:
            return
        ranked = sorted(self.journals, key=lambda name: (-self.journals[name].bytes, name))
        largest = set(ranked[:MOST_SERIES])
        for name in [name for name in self.series if name not in largest]:
            self.others.merge(self.series.pop(name))
        for name in added:
            if name in largest:
                self.series.setdefault(name, PeriodSeries())

    def as_json(self) -> dict[str, Any]:
        return {
            "journals": {
                name: [one.format, one.records, one.bytes, one.untimed, one.first, one.last]
                for name, one in self.journals.items()
            },
            "series": {name: _listed(series) for name, series in self.series.items()},
            "others": _listed(self.others),
        }

    def copy(self) -> ActivitySummary:
        """A summary that can be changed without changing this one."""
        return ActivitySummary.of(self.as_json())

    @classmethod
    def of(cls, found: Any) -> ActivitySummary:
        return cls(
            {name: JournalActivity(*one) for name, one in found["journals"].items()},
            {name: _parsed(series) for name, series in found["series"].items()},
            _parsed(found["others"]),
        )


def _listed(series: PeriodSeries) -> list[Any]:
    return [series.length, [[period, *numbers] for period, numbers in series.periods.items()]]


def _parsed(found: list[Any]) -> PeriodSeries:
    length, periods = found
    return PeriodSeries(length, {period: [records, size] for period, records, size in periods})


@dataclass(slots=True)
class DamageSummary:
    """All damage: the number of ranges and bytes of each format, journal and kind, and where they are."""

    kinds: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    files: dict[tuple[str, str], list[Range]] = field(default_factory=dict)
    """The ranges of each journal and file, in the order in which they were found."""
    uncounted: int = 0
    """The number of files that are in no list; one in which damage was found several times may count as several."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Some journals that could not be opened, and why."""
    unreadable_count: int = 0

    def add(
        self, format: str, journal: str, file: str | None, start: int | None, size: int | None, kind: str, reason: str
    ) -> None:
        """Add one range; without a file it is a journal that could not be opened."""
        self._count((format, journal, kind), 1, size or 0)
        if file is None:
            self.unreadable_count += 1
            if len(self.unreadable) < MOST_UNREADABLE:
                self.unreadable.append((journal, reason))
            return
        begin = start or 0
        self._add_range((journal, file), [begin, begin + (size or 0), size or 0, kind, reason, 1])

    def merge(self, other: DamageSummary) -> None:
        for place, (count, size) in other.kinds.items():
            self._count(place, count, size)
        for file, ranges in other.files.items():
            for each in ranges:
                self._add_range(file, list(each))
        self.uncounted += other.uncounted
        self.unreadable = [*self.unreadable, *other.unreadable][:MOST_UNREADABLE]
        self.unreadable_count += other.unreadable_count

    def _count(self, place: tuple[str, str, str], count: int, size: int) -> None:
        total = self.kinds.setdefault(place, [0, 0])
        total[0] += count
        total[1] += size

    def _add_range(self, file: tuple[str, str], one: Range) -> None:
        ranges = self.files.setdefault(file, [])
        ranges.append(one)
        if len(ranges) > MOST_RANGES:
            end = max(each[1] for each in ranges)
            self.files[file] = merged(ranges, end, MOST_RANGES // 2)
        if len(self.files) > MOST_FILES:
            ranked = sorted(self.files.items(), key=lambda item: (-sum(each[5] for each in item[1]), item[0]))
            self.uncounted += len(ranked) - MOST_FILES // 2
            self.files = dict(ranked[: MOST_FILES // 2])

    def as_json(self) -> dict[str, Any]:
        return {
            "kinds": [[*place, *numbers] for place, numbers in self.kinds.items()],
            "files": [[*file, ranges] for file, ranges in self.files.items()],
            "uncounted": self.uncounted,
            "unreadable": self.unreadable,
            "unreadable_count": self.unreadable_count,
        }

    def copy(self) -> DamageSummary:
        """A summary that can be changed without changing this one."""
        return DamageSummary.of(self.as_json())

    @classmethod
    def of(cls, found: Any) -> DamageSummary:
        """The summary that `as_json` has described; an empty one for nothing."""
        if not found:
            return cls()
        return cls(
            {(format, journal, kind): [count, size] for format, journal, kind, count, size in found["kinds"]},
            {(journal, file): [list(each) for each in ranges] for journal, file, ranges in found["files"]},
            found["uncounted"],
            [(journal, reason) for journal, reason in found["unreadable"]],
            found["unreadable_count"],
        )


def merged(ranges: Iterable[Range], size: int, pieces: int) -> list[Range]:
    """The ranges of a file in order; those of the same kind that begin in the same piece of the file are one."""
    cells: dict[tuple[str, int], Range] = {}
    for start, end, total, kind, reason, count in sorted(ranges, key=lambda each: int(each[0])):
        place = (kind, start * pieces // max(1, size))
        cell = cells.setdefault(place, [start, end, 0, kind, reason, 0])
        cell[1] = max(cell[1], end)
        cell[2] += total
        cell[5] += count
    return list(cells.values())
