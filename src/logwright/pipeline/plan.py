"""Plan what a run of the pipeline reads: which journals, for increments which range of each, and in which tasks.

`JournalStream` finds new records, as for a streaming query: it knows about rotation, new shards and journals, records
that were removed before they were read, and limits on the size of a batch. Every directory is listed once, and every
journal is opened once, unless nothing of it has changed since the last batch (`stamps.py`): then it is not opened.

The records of a part must be read in order by one task, unless its format says otherwise (`Materials.is_ordered`).
Records that a journal may still change in place (`Splits.final`) are read again by each increment until they are final.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from ..arrow.discovery import Journal, list_journals, open_journal
from ..core.format import Reader, find_format
from ..core.io.file_names import as_text
from ..core.io.quarantine import DIRECTORY
from ..core.read.splits import Split, pack
from ..core.repair.losses import ACCOUNT_NAME, Loss
from ..errors import HistoryUnavailable, LogwrightError, NotFound, StorageFailed, UnknownFormat
from ..location import is_local, locate
from ..spark import schemas
from ..spark.stream import JournalStream, Offset, Place, Standing, positions_of, retrying
from .parquet import Source
from .report.summary import DamageSummary
from .settings import Settings
from .stamps import OWN, stamps_of

__all__ = [
    "KnownLoss",
    "Offset",
    "PartState",
    "PipelineStream",
    "Place",
    "Range",
    "Seen",
    "Unit",
    "Unreadable",
    "Work",
    "chosen_journals",
]

Unreadable: TypeAlias = tuple[str, str, str]
"""Format and name of a journal that cannot be opened, and the reason; a directory has no format."""
KnownLoss: TypeAlias = tuple[str, str, str]
"""Format and name of a journal, and a loss from its account as JSON."""

_NO_SPLIT: Final = 1 << 62
_REPLAY_COST: Final = 6
"""How much longer a byte takes in a part that is replayed, about: such tasks begin first, so that all end together."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive records of a part. Records that are not final are read again later, and are not new then."""

    splits: tuple[Split, ...]
    is_final: bool = True
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Unit:
    """What one task reads of a part. `saved` is the state from which the materializer of the part continues.

    `is_whole` says that the unit has all records of the part that are to be read, so that its live rows follow.
    """

    journal: Journal
    part: str
    ranges: tuple[Range, ...]
    saved: Source | None = None
    is_whole: bool = True

    @property
    def place(self) -> Place:
        return self.journal.name, self.part

    @property
    def bytes(self) -> int:
        return sum(split.bytes for each in self.ranges for split in each.splits)


@dataclass(frozen=True, slots=True)
class Work:
    """What one task does: the units that it reads, and the unreadable journals and known losses that it reports."""

    units: tuple[Unit, ...]
    unreadable: tuple[Unreadable, ...] = ()
    losses: tuple[KnownLoss, ...] = ()


def works_of(
    units: Iterable[Unit], target_bytes: int, unreadable: Sequence[Unreadable], losses: Sequence[KnownLoss]
) -> list[Work]:
    """Units in tasks of about `target_bytes`, the longest first; many small ones share a task."""
    groups = pack(units, target_bytes, lambda unit: unit.bytes)
    groups.sort(
        key=lambda group: -sum(unit.bytes * (_REPLAY_COST if _is_ordered(unit.journal) else 1) for unit in group)
    )
    works = [Work(tuple(group)) for group in groups or [[]]]
    return [replace(works[0], unreadable=tuple(unreadable), losses=tuple(losses)), *works[1:]]


# --- journals ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """The journals of one look: those that could be opened, and those that could not, with their losses.

    `stamps` are those of the parts of each journal, and `resting` the parts that have not changed since the last batch,
    each with its journal. A journal with resting parts only is not opened.
    """

    opened: list[tuple[Journal, Any]] = field(default_factory=list)
    stamps: dict[str, dict[str, str]] = field(default_factory=dict)
    resting: dict[Place, Journal] = field(default_factory=dict)
    extents: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """The first record number and the next one of each part that has changed, by the names of journals."""

    @property
    def readers(self) -> dict[str, Any]:
        """The readers of journals that were opened, by name."""
        return {journal.name: reader for journal, reader in self.opened}

    def forget(self, journal: str) -> None:
        """Treat a journal that cannot be opened as changed."""
        self.stamps.pop(journal, None)
        self.resting = {place: found for place, found in self.resting.items() if place[0] != journal}

    unreadable: list[Unreadable] = field(default_factory=list)
    losses: list[KnownLoss] = field(default_factory=list)


def chosen_journals(settings: Settings, unreadable: list[Unreadable] | None = None) -> list[Journal]:
    """The journals at or below the root that no rule excludes. The directory of the tables is skipped.

    A directory without read permission is added to `unreadable`, unless a rule excludes it or its mode is failfast.
    """
    out = None if "://" in settings.out else Path(settings.out).resolve()

    def refused(name: str, error: StorageFailed) -> None:
        if settings.rule_of(name).exclude or settings.rule_of(f"{name}/").exclude:
            return
        if settings.mode_of(name) == "failfast":
            raise error
        if unreadable is not None:
            unreadable.append(("", name, as_text(str(error))))

    found = list_journals(settings.journals, None, refused)
    local = out is not None and is_local(locate(settings.journals)[0])
    return [
        journal
        for journal in found
        if not settings.rule_of(journal.name).exclude
        and not (local and out is not None and Path(journal.location).resolve().is_relative_to(out))
    ]


def is_below(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or inside it, after resolving links."""
    return path.resolve().is_relative_to(directory.resolve())


def is_at_or_in(journal: str, name: str) -> bool:
    """Whether a journal has this name or is below it."""
    return journal == name or journal.startswith(f"{name}/")


def known_losses(journal: Journal, reader: Reader) -> list[KnownLoss]:
    """The account of losses of a journal. An account that cannot be read is a loss of unknown size."""
    try:
        losses = reader.losses()
    except LogwrightError as error:
        what = "unknown: the account of losses cannot be read"
        losses = [Loss(f"{DIRECTORY}/{ACCOUNT_NAME}", 0, 0, 0, None, what, as_text(str(error)))]
    return [(journal.format, journal.name, json.dumps(loss.as_json())) for loss in losses]


# --- everything -------------------------------------------------------------------------------------------------------


def everything(settings: Settings, journals: Sequence[Journal], seen: Seen) -> list[Unit]:
    """All records of journals; `seen` learns which could be opened."""
    units: list[Unit] = []
    for journal in journals:
        try:
            reader = open_journal(journal)
            units += _all_of(journal, reader, settings.split_bytes, seen)
        except LogwrightError as error:
            if settings.mode_of(journal.name) == "failfast":
                raise
            seen.unreadable.append((journal.format, journal.name, str(error)))
        else:
            seen.opened.append((journal, reader))
            seen.losses += known_losses(journal, reader)
    if not journals:
        raise UnknownFormat(f"{settings.journals}: no journal of any known format is at or below this path")
    return units


def _all_of(journal: Journal, reader: Any, split_bytes: int, seen: Seen) -> Iterator[Unit]:
    by_part: dict[str, list[Split]] = {}
    target = _NO_SPLIT if _is_ordered(journal) else split_bytes
    format_splits = find_format(journal.format).splits
    for split in format_splits.plan(reader, target):
        by_part.setdefault(split.part, []).append(split)
    for part, splits in by_part.items():
        extent = format_splits.planned_extent(splits)
        if extent is not None:
            seen.extents.setdefault(journal.name, {})[part] = extent
        yield from _units(journal, part, (Range(tuple(splits)),), None)


def _units(journal: Journal, part: str, ranges: tuple[Range, ...], saved: Source | None) -> Iterator[Unit]:
    if _is_ordered(journal):
        yield Unit(journal, part, ranges, saved)
        return
    for each in ranges:
        for split in each.splits:
            yield Unit(journal, part, (replace(each, splits=(split,)),), is_whole=False)


def _is_ordered(journal: Journal) -> bool:
    materials = find_format(journal.format).materials
    return materials is not None and materials.is_ordered


# --- increments -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartState:
    """What is noted of a part for the next increment.

    `final` is the number of the first record that was not final, None if all were; `due_ns` is when live rows change
    without new records. `live` are the counts of its live rows and `damage` that among them, for the report.
    """

    final: int | None = None
    due_ns: int | None = None
    live: dict[str, Any] = field(default_factory=dict)
    damage: DamageSummary = field(default_factory=DamageSummary)


class PipelineStream(JournalStream):
    """Finds new records in the chosen journals. Skips journals that cannot be opened, unless the mode is failfast.

    After each look `seen` has the journals; `lost` has the records that were removed before they were read.
    """

    def __init__(self, settings: Settings) -> None:
        options = {
            "path": settings.journals,
            "splitbytes": str(settings.split_bytes),
            "failondataloss": str(settings.fail_on_data_loss).lower(),
        }
        super().__init__(schemas.spark_schema(None), options, None)
        self.settings = settings
        self.seen = Seen()
        self.lost: list[str] = []
        self.known_stamps: Mapping[str, Mapping[str, str]] = {}
        """The stamps of parts that were read completely."""
        self.known_offsets: Offset = {}
        """The ends of parts that were read."""
        self._standings: dict[Place, Standing] | None = None
        self._chosen: list[Journal] | None = None
        self._known: dict[str, dict[str, str]] = {}
        """The stamps of journals that have not changed since they were taken."""
        self.journals: list[Journal] = []
        """The journals of the last look."""

    def begin_with(self, journals: list[Journal], seen: Seen) -> None:
        """Take what a search for journals has just found for the first look."""
        self._chosen = self.journals = journals
        self.seen = seen

    def look_only_at(self, touched: Collection[Journal]) -> None:
        """Let the next look be at the same journals as the last one, of which only these have changed since."""
        names = {journal.name for journal in touched}
        self._known = {name: stamps for name, stamps in self.seen.stamps.items() if name not in names}
        refused = [unreadable for unreadable in self.seen.unreadable if not unreadable[0]]
        self._chosen, self.seen = self.journals, Seen(unreadable=refused)

    def following(self, start: Offset) -> Offset:
        """The end of the batch that begins at `start`; equal to `start` if nothing is new.

        A journal that is excluded or cannot be opened keeps its offset, and continues from there later.
        """

        def look() -> Offset:
            self._look()
            waiting = {known for known in start for _, name, _ in self.seen.unreadable if is_at_or_in(known, name)}
            waiting |= {name for name in start if self.settings.rule_of(name).exclude}
            active, resting = _divided(start, waiting, self.seen.resting)
            end = self._latest(active, None, self.settings.batch_bytes)
            return _joined(end, resting)

        return self._retrying(look)

    def note_target(self) -> None:
        """Let all following batches end at the current ends of the journals."""
        self._retrying(lambda: self._note_target(self._look()))

    def look_again(self) -> None:
        """Look at the journals again when the next batch is planned."""
        self._standings, self._known = None, {}

    def has_reached_target(self, end: Offset) -> bool:
        """Whether an offset has all records up to the ends that were noted."""
        ends = positions_of(end)
        return self._target is not None and all(
            ends.get(place, 0) >= number for place, (number, _) in self._target.items()
        )

    def _retrying(self, look: Callable[[], T]) -> T:
        """Repeat something with another look if a file has disappeared since the last one."""

        def attempt() -> T:
            try:
                return look()
            except NotFound:
                self.look_again()
                raise

        return retrying(attempt)

    def _look(self) -> dict[Place, Standing]:
        if self._standings is not None:
            return self._standings
        found: dict[Place, Standing] = {}
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            self.seen = Seen()
            chosen = chosen_journals(self.settings, self.seen.unreadable)
        seen, self.journals = self.seen, chosen
        for journal in chosen:
            changed = self._changed(journal)
            if changed is not None and not changed:
                continue
            try:
                reader = open_journal(journal)
                extents = find_format(journal.format).splits.extent(reader, changed)
            except NotFound:  # removed in the meantime
                seen.forget(journal.name)
                continue
            except LogwrightError as error:
                if self.settings.mode_of(journal.name) == "failfast":
                    raise
                seen.unreadable.append((journal.format, journal.name, str(error)))
                seen.forget(journal.name)
                continue
            seen.opened.append((journal, reader))
            seen.losses += known_losses(journal, reader)
            for part, (first, following) in extents.items():
                if (journal.name, part) not in seen.resting:
                    seen.extents.setdefault(journal.name, {})[part] = (first, following)
                    found[journal.name, part] = Standing(journal, reader, part, first, following)
        self._standings = found
        return found

    def _changed(self, journal: Journal) -> list[str] | None:
        """The parts of a journal that have changed; None for all."""
        now = self._known.get(journal.name) or stamps_of(journal)
        known = self.known_stamps.get(journal.name, {})
        if now is None:
            return None
        self.seen.stamps[journal.name] = now
        is_own_changed = known.get(OWN) != now[OWN] or not now[OWN]
        if is_own_changed or known.keys() - now.keys():
            return None  # it is new, a part is gone, or files that belong to no part have changed
        parts = [part for part in now if part != OWN]
        changed = [part for part in parts if not now[part] or known.get(part) != now[part]]
        changed += [part for part in self.known_offsets.get(journal.name, ()) if part not in now]  # it has no files
        self.seen.resting |= {(journal.name, part): journal for part in parts if part not in changed}
        return changed

    def _lose(self, what: str) -> None:
        if self.fail_on_data_loss:
            raise HistoryUnavailable(
                f"{what}. To continue without them, set fail_on_data_loss = false in a --config file"
            )
        if what not in self.lost:
            self.lost.append(what)

    # --- units --------------------------------------------------------------------------------------------------------

    def units(
        self,
        start: Offset,
        end: Offset,
        known: Mapping[Place, PartState],
        saved: Callable[[Place], Source | None],
        now_ns: int,
    ) -> tuple[list[Unit], dict[Place, int | None]]:
        """What is read between two offsets, and what has become final or changes by time; and the first numbers that
        are not final yet, None if all are.
        """
        return self._retrying(lambda: self._planned(start, end, known, saved, now_ns))

    def _planned(
        self,
        start: Offset,
        end: Offset,
        known: Mapping[Place, PartState],
        saved: Callable[[Place], Source | None],
        now_ns: int,
    ) -> tuple[list[Unit], dict[Place, int | None]]:
        units: list[Unit] = []
        finals: dict[Place, int | None] = {}
        read = positions_of(start)
        planned: set[Place] = set()

        def take(standing: Standing, begin: int, stop: int, place: Place) -> None:
            before = known.get(place, PartState())
            is_continued = before.final is not None and begin == read.get(place)
            low = before.final if is_continued and before.final is not None else begin
            ranges, final = self._ranges(standing, low, begin, stop)
            planned.add(place)
            if begin != stop or final != before.final:
                finals[place] = final
                units.extend(_units(standing.journal, standing.part, ranges, saved(place)))

        for standing, begin, stop in self._between(start, end):
            take(standing, begin, stop, (standing.journal.name, standing.part))
        for place, before in known.items():
            standing_now = self._look().get(place) if place not in planned else None
            if standing_now is not None and place in read and before.final is not None:
                take(standing_now, read[place], read[place], place)
            elif place not in planned and before.due_ns is not None and before.due_ns <= now_ns:
                journal = self.seen.resting.get(place) or (standing_now.journal if standing_now is not None else None)
                if journal is not None and place in read:
                    finals[place] = before.final
                    units += _units(journal, place[1], (), saved(place))
        return units, finals

    def _ranges(self, standing: Standing, low: int, begin: int, stop: int) -> tuple[tuple[Range, ...], int | None]:
        """The records from `low` to `stop`, of which those from `begin` on are new; the first one that is not final."""
        if not _is_ordered(standing.journal):
            return (Range(tuple(self._splits(standing, begin, stop))),), None
        if low >= stop:
            return (), None
        final = standing.splits.final(standing.reader, standing.part, low, stop)
        found = []
        for start, end in pairwise(sorted({low, begin, max(low, final), stop})):
            splits = self._splits(standing, start, end)
            found.append(Range(tuple(splits), is_final=end <= final, is_new=start >= begin))
        return tuple(found), None if final >= stop else final


def _divided(start: Offset, waiting: Collection[str], resting: Collection[Place]) -> tuple[Offset, Offset]:
    """An offset in two: the parts to look at, and those that keep their places."""
    active: Offset = {}
    kept: Offset = {}
    for name, parts in start.items():
        for part, value in parts.items():
            chosen = kept if name in waiting or (name, part) in resting else active
            chosen.setdefault(name, {})[part] = value
    return active, kept


def _joined(one: Offset, other: Offset) -> Offset:
    found = {name: dict(parts) for name, parts in one.items()}
    for name, parts in other.items():
        found.setdefault(name, {}).update(parts)
    return {name: dict(sorted(parts.items())) for name, parts in sorted(found.items())}
