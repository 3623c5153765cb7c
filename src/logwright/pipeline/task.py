"""What one task of the pipeline does: decode parts of journals, materialize their tables, and write the data files.

A task takes units one after the other. A unit is a part of a journal (a shard, queue or store), or some splits of a
part whose format needs no order. Units of the latter kind are decoded into common batches, because making a batch costs
more than decoding a small journal. Rows that are final go to one file of each table, live rows to another one. The
state of each materializer is written as live rows of the table `_state`, and the next increment continues from it.

The files have names that no other attempt has. The task returns which files it has written, and the caller publishes
those of the attempts that succeeded.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.discovery import Journal, open_journal
from ..arrow.rows import file_of, naming
from ..core.arrow.columns import constant, numbered
from ..core.bytes.outcome import Damage
from ..core.format import find_format
from ..core.io.file_names import as_text, printed
from ..core.read.columns import Collector, Columns
from ..core.read.materializer import Continued, Materializer, Materials, Rows
from ..core.read.splits import Split
from ..core.repair.losses import Loss
from ..errors import NotFound, StorageFailed
from .decoding import Chosen, RuleAndSchema, rule_of, with_decoded
from .expectations import Checker
from .parquet import Background, Source, TableSink, Target, distinct, rows_of, written
from .plan import Place, Range, Unit, Work
from .publish import TableFile
from .report.summary import DamageSummary
from .settings import Settings
from .tables import ACTIVITY, COUNTED, DAMAGE, EVENTS, MINUTE_US, QUARANTINE, STATE, STATES, count, minutes_of

UNREADABLE: Final = "unreadable"
"""The kind of damage of a journal or a part that could not be opened."""
_BATCH_BYTES: Final = 4 << 20
"""How much is decoded at once: about the size of the processor's cache."""
_CHUNK_BYTES: Final = 4 << 20
_FEW_ROWS: Final = 32
_SMALL_BYTES: Final = 64 << 10
"""Parts with less than this are materialized together."""
_MOST_IN_MEMORY: Final = 64 << 20
_WRITTEN_EVENTS: Final = written(EVENTS)
_SUMMARIZED: Final = ("format", "journal", "file", "position", "size", "kind", "reason")

T = TypeVar("T")
Counts: TypeAlias = dict[tuple[str, ...], list[int]]
"""Numbers by their place in a journal; see `tables.COUNTED`."""


@dataclass(slots=True)
class Found:
    """Counts of one journal: records, their bytes, and damaged ranges by kind."""

    format: str
    records: int = 0
    bytes: int = 0
    damage: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"format": self.format, "records": self.records, "bytes": self.bytes, "damage": self.damage}

    def add(self, other: Found) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.damage = dict(sorted((Counter(self.damage) + Counter(other.damage)).items()))


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of live rows: of which parts they are, in their order, and how many of each."""

    file: TableFile
    places: tuple[tuple[Place, int], ...]


@dataclass(slots=True)
class PartDone:
    """A part that was materialized: when its live rows change by themselves, and what the report shows of them."""

    due_ns: int | None
    live: dict[str, Counts]
    damage: DamageSummary


@dataclass(slots=True)
class Done:
    """The files and counts of one task, or of all tasks. `closed` are counts of each journal and table."""

    files: list[TableFile] = field(default_factory=list)
    live: list[LiveFile] = field(default_factory=list)
    journals: dict[str, Found] = field(default_factory=dict)
    activity: list[pa.RecordBatch] = field(default_factory=list)
    parts: dict[Place, PartDone] = field(default_factory=dict)
    closed: dict[str, dict[str, Counts]] = field(default_factory=dict)
    failed: Counts = field(default_factory=dict)
    """How many of the rows that were written did not meet each expectation."""
    damage: DamageSummary = field(default_factory=DamageSummary)
    """Damage that is final: what was found among records that may still change is that of their part."""

    def add(self, other: Done) -> None:
        self.files += other.files
        self.live += other.live
        self.activity += other.activity
        self.parts |= other.parts
        self.damage.merge(other.damage)
        add_counts(self.failed, other.failed)
        for name, found in other.journals.items():
            self.journals.setdefault(name, Found(found.format)).add(found)
        for name, tables in other.closed.items():
            for table, counts in tables.items():
                add_counts(self.closed.setdefault(name, {}).setdefault(table, {}), counts)


def add_counts(total: Counts, counts: Mapping[tuple[str, ...], list[int]]) -> None:
    """Add counts to others."""
    for place, numbers in counts.items():
        before = total.get(place)
        total[place] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What all tasks of a batch share. It can be pickled.

    `is_increment` says that states are saved, and that live rows are kept apart from final ones.
    """

    settings: Settings
    rules: Chosen
    targets: Mapping[str, Target]
    is_increment: bool
    now_ns: int
    moment_ns: int | None


def perform(
    assignment: Assignment,
    work: Work,
    opened: Mapping[str, Any] | None = None,
    report: Callable[[int, int], None] = lambda _bytes, _records: None,
) -> Done:
    """Do the work of one task. If it fails, its files are removed.

    `opened` are readers of journals, by their names. `report` is called with the bytes and records of each unit.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logwright-")))
        checker = stack.enter_context(Checker(assignment.settings.expectations))
        task = _Task(assignment, scratch, checker, opened or {}, stack.enter_context(Background()))
        try:
            for unreadable in work.unreadable:
                task.report_unreadable(*unreadable)
            for loss in work.losses:
                task.report_loss(*loss)
            for unit in work.units:
                report(unit.bytes, task.take(unit))
            return task.finish()
        except BaseException:
            task.discard()
            raise


class _Task:
    """Writes the rows of units. `_is_live` says whether rows are live at the moment."""

    def __init__(
        self,
        assignment: Assignment,
        scratch: Path,
        checker: Checker,
        readers: Mapping[str, Any],
        background: Background,
    ) -> None:
        self._assignment = assignment
        self._checker = checker
        self._readers = readers
        self._background = background
        self._settings = assignment.settings
        self._scratch = scratch
        self._sinks: dict[tuple[str, bool], TableSink] = {}
        self._places: dict[str, dict[tuple[str | None, ...], list[tuple[Place, int]]]] = {}
        self._opened: tuple[Journal, Any] | None = None
        self._done = Done()
        self._is_live = False
        self._is_new = True
        self._live_damage = DamageSummary()
        self._minutes: dict[tuple[str, str, int | None], list[int]] = {}
        """Records and bytes by format, journal and minute."""
        self._waiting: dict[str, _Waiting] = {}
        """What is collected of each format."""

    # --- units --------------------------------------------------------------------------------------------------------

    def take(self, unit: Unit) -> int:
        """Write the rows of a unit; how many records it has that are new."""
        materials = find_format(unit.journal.format).materials
        assert materials is not None
        if not materials.is_ordered or self._is_small(unit, materials):
            return self._take_together(unit)
        known = self._found(unit.journal.format, unit.journal.name).records
        before = {table: sink.rows for (table, is_live), sink in self._sinks.items() if is_live}
        filesystem = next(iter(self._assignment.targets.values())).filesystem
        with ExitStack() as stack:
            saved = None
            if unit.saved is not None:
                saved = stack.enter_context(_loaded(filesystem, unit.saved, self._scratch))
            has_records = materials.record_table in self._assignment.targets
            continued = Continued(unit.part, saved, self._scratch, self._assignment.moment_ns, has_records)
            materializer = stack.enter_context(materials.materializer(continued))
            counts: dict[str, Counts] = {}
            for each in unit.ranges:
                if each.is_final:
                    self._feed(unit, each, materializer, None)
            if unit.is_whole:
                self._is_live = self._assignment.is_increment
                self._live_damage = DamageSummary()
                if self._is_live:
                    self._save(unit, materializer)
                for each in unit.ranges:
                    if not each.is_final:
                        self._feed(unit, each, materializer, counts)
                self._write(_Origin.of(unit.journal), materializer.live(self._assignment.now_ns), counts)
                if self._is_live:
                    self._done.parts[unit.place] = PartDone(materializer.due_ns, counts, self._live_damage)
                self._is_live = False
        self._note_places(unit, before)
        return self._found(unit.journal.format, unit.journal.name).records - known

    def _is_small(self, unit: Unit, materials: Materials) -> bool:
        """Whether the rows of a unit are made with those of other units: it is read whole, from its first record."""
        is_alone = self._assignment.is_increment or unit.saved is not None or not unit.is_whole
        return materials.is_joining and not is_alone and unit.bytes <= _SMALL_BYTES

    def _feed(self, unit: Unit, each: Range, materializer: Materializer, counts: dict[str, Counts] | None) -> None:
        """Read a range, and write its events and the rows that its records close."""
        self._is_new = each.is_new
        origin = _Origin.of(unit.journal)
        for split in each.splits:
            batches = self._batches(unit.journal, split)
            for batch in batches if split.bytes < _BATCH_BYTES else _ahead(batches):
                if isinstance(batch, Damaged):
                    self._report(unit.journal, batch)
                    continue
                self._write_events(origin, batch, counts)
                self._write(origin, materializer.add(batch), counts)
        self._is_new = True

    def _take_together(self, unit: Unit) -> int:
        """Add the records of a unit to the batch that waits; a batch that is full is written."""
        rule = rule_of(self._assignment.rules, unit.journal.name)
        materials = find_format(unit.journal.format).materials
        assert materials is not None
        part = "" if materials.is_ordered else unit.part
        format = unit.journal.format
        waiting = self._waiting.get(format)
        if waiting is None or (waiting.part, waiting.rule) != (part, rule):
            self._write_waiting(waiting)
            waiting = self._waiting[format] = _Waiting(format, part, rule, materials, self._scratch)
        records = 0
        for split in (split for each in unit.ranges for split in each.splits):
            for chunk in self._chunks(unit.journal, split):
                if isinstance(chunk, Damaged):
                    self._report(unit.journal, chunk)
                    continue
                records += chunk.count
                waiting.batches += waiting.collector.add(chunk, split.part)
                if not materials.is_ordered:
                    waiting.runs.append((unit.journal.name, chunk.count))
                    self._write_together(waiting)
        if materials.is_ordered:
            waiting.add_part(unit.journal.name, records)
            if waiting.batches:
                self._write_waiting(waiting)
        return records

    def _write_waiting(self, waiting: _Waiting | None) -> None:
        """Write the records that wait for a batch to be full."""
        if waiting is not None:
            waiting.batches += waiting.collector.finish()
            self._write_together(waiting)

    def _write_together(self, waiting: _Waiting) -> None:
        """Write the batches that are full. Those of small parts are joined, such that all records of a part are."""
        batches, waiting.batches = waiting.batches, []
        if waiting.materials.is_ordered and batches:
            table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
            (batch,) = table.to_batches()
            names, journals, counts = waiting.take_parts()
            moment_ns = self._assignment.moment_ns
            self._write_events(_Origin.of_parts(waiting.format, names, journals, numbered(counts)), batch, None)
            for rows in waiting.materials.joined(batch, counts, self._assignment.now_ns, moment_ns):
                origin = _Origin.of_parts(waiting.format, names, journals, rows.parts)
                self._write(origin, [Rows(rows.table, rows.batch)], None)
            return
        for batch in batches:
            origin = waiting.origin(batch.num_rows)
            self._write_events(origin, batch, None)
            self._write(origin, waiting.materializer.add(batch), None)

    def _write(self, origin: _Origin, rows: Iterable[Rows], counts: dict[str, Counts] | None) -> None:
        """Write rows of a materializer. Without `counts` they are final, and counted with their journal."""
        for table, batch in rows:
            is_wanted = table in self._assignment.targets
            if is_wanted:
                batch = self._checked(table, self._with_journal(origin, table, batch), counts)
            if table in COUNTED:
                for journal, rows_of_it in origin.divided(batch):
                    add_counts(self._counts(journal, table, counts), count(table, rows_of_it))
            if is_wanted:
                self._sink(table).add(batch)

    def _counts(self, journal: str, table: str, counts: dict[str, Counts] | None) -> Counts:
        """The counts of live rows of the part, or of final rows of its journal."""
        if counts is not None and self._is_live:
            return counts.setdefault(table, {})
        return self._done.closed.setdefault(journal, {}).setdefault(table, {})

    def _checked(self, table: str, batch: pa.RecordBatch, counts: dict[str, Counts] | None) -> pa.RecordBatch:
        """The rows of a batch that belong in its table; the others go to `quarantine`."""
        batch, apart, failed = self._checker.split(table, batch)
        for (journal, title), number in failed.items():
            add_counts(self._counts(journal, QUARANTINE, counts), {(title,): [number]})
            add_counts(self._done.failed, {(title,): [number]})
        if apart is not None:
            self._sink(QUARANTINE).add(apart)
        return batch

    def _with_journal(self, origin: _Origin, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        if table == "messages":
            batch = with_decoded(batch, rule_of(self._assignment.rules, origin.names[0]), self._assignment.rules)
        name = origin.column(batch.num_rows)
        schema = pa.schema([pa.field("journal", name.type), *batch.schema])
        return pa.RecordBatch.from_arrays([name, *batch.columns], schema=schema)

    def _save(self, unit: Unit, materializer: Materializer) -> None:
        """Write the state of a materializer as rows."""
        sink = self._sink(STATE)
        names = [unit.journal.name, printed(unit.part)]

        def add(data: bytes) -> None:
            arrays = [pa.array([value], each.type) for value, each in zip((*names, data), STATES, strict=True)]
            sink.add(pa.RecordBatch.from_arrays(arrays, schema=STATES))

        chunks = _Chunks(add)
        with pa.PythonFile(cast(Any, chunks), mode="w") as file:
            materializer.save(file)
            file.flush()
            chunks.finish()

    # --- records ------------------------------------------------------------------------------------------------------

    def _batches(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch | Damaged]:
        """The records of a split, and damage."""
        collector = _collector(journal.format)
        for chunk in self._chunks(journal, split):
            if isinstance(chunk, Damaged):
                yield chunk
            else:
                yield from collector.add(chunk, split.part)
        yield from collector.finish()

    def _chunks(self, journal: Journal, split: Split) -> Iterator[Any]:
        """The chunks of a split for a collector, and damage."""
        mode = self._settings.mode_of(journal.name)
        if self._opened is None or self._opened[0] != journal:
            self._opened = (journal, self._readers.get(journal.name) or open_journal(journal))
        try:
            with naming(journal, split.part):
                for item in find_format(journal.format).splits.chunks(self._opened[1], split, mode):
                    if not isinstance(item, Damage):
                        yield item
                    elif item.kind != "lost":  # losses are reported from the account of the journal
                        file = file_of(journal.format, split.part, item.file)
                        yield Damaged(file, item.start, item.size, item.kind, item.reason)
        except (StorageFailed, NotFound) as error:
            # A full run reports the split as unreadable; an incremental run fails and is tried again.
            if mode == "failfast" or self._assignment.is_increment:
                raise
            if mode == "permissive":
                file = file_of(journal.format, split.part, split.file)
                yield Damaged(file, split.position, split.bytes, UNREADABLE, str(error))

    def _write_events(self, origin: _Origin, batch: pa.RecordBatch, counts: dict[str, Counts] | None) -> None:
        """Write the events of records, and count them."""
        columns = find_format(origin.format).columns
        if "events" in self._assignment.targets:
            self._sink("events").add(self._checked("events", events_of(batch, origin), counts))
        if not self._is_new:
            return
        sizes, times = columns.column(batch, "size"), columns.column(batch, "timestamp")
        for journal, minute, records, size in _counted(origin, sizes, times):
            found = self._found(origin.format, journal)
            found.records += records
            found.bytes += size
            total = self._minutes.setdefault((origin.format, journal, minute), [0, 0])
            total[0] += records
            total[1] += size

    # --- damage -------------------------------------------------------------------------------------------------------

    def report_unreadable(self, format: str, name: str, reason: str) -> None:
        journal = Journal(format, "", name)
        if self._settings.mode_of(name) != "dropmalformed":
            self._report(journal, Damaged(None, None, None, UNREADABLE, reason))
        else:
            self._found(format, name)

    def report_loss(self, format: str, name: str, text: str) -> None:
        """Write a row for a loss that a journal has in its account."""
        loss = Loss.from_json(json.loads(text))
        if self._settings.mode_of(name) != "dropmalformed":
            damaged = Damaged(loss.file, loss.position, loss.bytes, loss.kind, f"{loss.what}: {loss.reason}", text)
            self._report(Journal(format, "", name), damaged)

    def _found(self, format: str, journal: str) -> Found:
        return self._done.journals.setdefault(journal, Found(format))

    def _report(self, journal: Journal, damaged: Damaged) -> None:
        if self._is_new:
            found = self._found(journal.format, journal.name)
            found.damage[damaged.kind] = found.damage.get(damaged.kind, 0) + 1
        row = {"format": journal.format, "journal": journal.name, **asdict(damaged)}
        row["file"] = None if damaged.file is None else printed(damaged.file)
        row["reason"] = as_text(damaged.reason)
        if "damage" in self._assignment.targets:
            self._sink("damage").add(pa.RecordBatch.from_pylist([row], DAMAGE))
            summary = self._live_damage if self._is_live else self._done.damage
            summary.add(*(row[name] for name in _SUMMARIZED))

    # --- files --------------------------------------------------------------------------------------------------------

    def _sink(self, table: str) -> TableSink:
        key = (table, self._is_live)
        if key not in self._sinks:
            self._sinks[key] = TableSink(self._assignment.targets[table], self._background)
        return self._sinks[key]

    def _note_places(self, unit: Unit, before: Mapping[str, Mapping[tuple[str | None, ...], int]]) -> None:
        """Note which live rows are those of a unit."""
        for (table, is_live), sink in self._sinks.items():
            for partition, rows in sink.rows.items() if is_live else ():
                added = rows - before.get(table, {}).get(partition, 0)
                if added:
                    self._places.setdefault(table, {}).setdefault(partition, []).append((unit.place, added))

    def finish(self) -> Done:
        """Complete the files, and return the files and counts."""
        for waiting in self._waiting.values():
            self._write_waiting(waiting)
        for (table, is_live), sink in self._sinks.items():
            for partition, file in sink.finish().items():
                if is_live:
                    self._done.live.append(LiveFile(file, tuple(self._places[table][partition])))
                else:
                    self._done.files.append(file)
        if self._minutes and "activity" in self._assignment.targets:
            self._done.activity = [_activity_of(self._minutes)]
        return self._done

    def discard(self) -> None:
        for sink in self._sinks.values():
            sink.discard()


@dataclass(frozen=True, slots=True)
class _Origin:
    """The journals that the rows of a batch are of: their names, and which of them is that of each row.

    All rows are of one journal if there are no indices.
    """

    format: str
    names: Sequence[str]
    indices: pa.Array | None = None

    @classmethod
    def of(cls, journal: Journal) -> _Origin:
        return cls(journal.format, [journal.name])

    @classmethod
    def of_parts(cls, format: str, names: Sequence[str], journals: pa.Array, parts: pa.Array) -> _Origin:
        """The journals of rows that are of these parts; `journals` has the journal of each part."""
        return cls(format, names, journals.take(parts) if len(names) > 1 else None)

    def column(self, rows: int) -> pa.DictionaryArray:
        """The column `journal`."""
        if self.indices is None:
            return constant(self.names[0], rows)
        return pa.DictionaryArray.from_arrays(self.indices, pa.array(self.names, pa.string()))

    def divided(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each journal, which must be consecutive."""
        if self.indices is None or not batch.num_rows:
            yield self.names[0], batch
            return
        names = batch.column("journal") if "journal" in batch.schema.names else self.column(batch.num_rows)
        runs = pc.run_end_encode(names.indices)
        start = 0
        for index, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield names.dictionary[index].as_py(), batch.slice(start, end - start)
            start = end


class _Waiting:
    """Records of journals that wait until they make a batch. The journals share a format and a rule for decoding.

    If the format is ordered, these are whole parts, which may be of any journals.
    """

    def __init__(self, format: str, part: str, rule: RuleAndSchema | None, materials: Materials, scratch: Path) -> None:
        self.format, self.part, self.rule, self.materials = format, part, rule, materials
        self.collector = _collector(format)
        self.batches: list[pa.RecordBatch] = []
        """Batches that are full."""
        self.materializer = materials.materializer(Continued(part, None, scratch))
        self.runs: deque[tuple[str, int]] = deque()
        """The journals of the records that were collected, in their order."""

    def add_part(self, journal: str, records: int) -> None:
        if records:
            self.runs.append((journal, records))

    def take_parts(self) -> tuple[list[str], pa.Array, list[int]]:
        """The parts that were collected: the names of journals, which of them each part is of, and its records."""
        names = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in self.runs))}
        journals = pa.array([names[name] for name, _ in self.runs], pa.int32())
        counts = [count for _, count in self.runs]
        self.runs.clear()
        return list(names), journals, counts

    def origin(self, rows: int) -> _Origin:
        """The journals of the first of these records, which are in a batch now."""
        names: list[str] = []
        counts: list[int] = []
        while rows:
            name, count = self.runs.popleft()
            if count > rows:
                self.runs.appendleft((name, count - rows))
            taken = min(rows, count)
            rows -= taken
            if names and names[-1] == name:
                counts[-1] += taken
            else:
                names.append(name)
                counts.append(taken)
        return _Origin(self.format, names, numbered(counts) if len(names) > 1 else None)


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of an iterator. Each is made in another thread while the caller works on the one before it."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Any] = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item


def _collector(format: str) -> Collector:
    """Makes batches of the columns that the tables of a format need."""
    found = find_format(format)
    assert found.materials is not None
    wanted = found.columns.sources(EVENTS.names, sharded=False)
    names = list(dict.fromkeys((*found.materials.sources, *wanted)))
    return found.columns.collector(names, batch_bytes=_BATCH_BYTES)


# --- activity ---------------------------------------------------------------------------------------------------------


def _counted(origin: _Origin, sizes: pa.Array, times: pa.Array | None) -> Iterator[tuple[str, int | None, int, int]]:
    """The records and bytes of each journal and minute."""
    is_timed = times is not None and times.null_count < len(times)
    if len(origin.names) == 1 and not is_timed:
        yield origin.names[0], None, len(sizes), pc.sum(sizes).as_py() or 0
    elif len(origin.names) == 1 and times is not None and (minute := _only_minute(times)) is not None:
        timed = pc.sum(sizes.filter(times.is_valid()) if times.null_count else sizes).as_py()
        yield origin.names[0], minute, len(times) - times.null_count, timed
        if times.null_count:
            yield origin.names[0], None, times.null_count, pc.sum(sizes).as_py() - timed
    elif len(origin.names) == 1 and times is not None and len(sizes) <= _FEW_ROWS:
        # starting an aggregation costs more than this
        for at, size in zip(times.cast(pa.int64()).to_pylist(), sizes.to_pylist(), strict=True):
            yield origin.names[0], None if at is None else at // MINUTE_US * MINUTE_US, 1, size
    else:
        minutes = minutes_of(times).cast(pa.int64()) if times is not None else pa.nulls(len(sizes), pa.int64())
        journals = origin.column(len(sizes)).indices
        found = pa.table({"journal": journals, "minute": minutes, "size": sizes.cast(pa.int64())})
        table = found.group_by(["journal", "minute"], use_threads=False).aggregate([([], "count_all"), ("size", "sum")])
        names = ("journal", "minute", "count_all", "size_sum")
        for journal, minute, records, size in zip(*(table[name].to_pylist() for name in names), strict=True):
            yield origin.names[journal], minute, records, size


def _only_minute(times: pa.Array) -> int | None:
    """The minute that all times are in; None if there are several."""
    first, last = (bound.cast(pa.int64()).as_py() // MINUTE_US * MINUTE_US for bound in pc.min_max(times).values())
    return first if first == last else None


def _activity_of(minutes: Mapping[tuple[str, str, int | None], list[int]]) -> pa.RecordBatch:
    columns = [*zip(*minutes, strict=True), *zip(*minutes.values(), strict=True)]
    kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    arrays[2] = arrays[2].cast(ACTIVITY.field("minute").type)
    return pa.RecordBatch.from_arrays(arrays, schema=ACTIVITY)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged range of bytes, or a known loss; without a file if the journal could not be opened."""

    file: str | None
    position: int | None
    size: int | None
    kind: str
    reason: str
    detail: str | None = None


# --- events -----------------------------------------------------------------------------------------------------------


def events_of(batch: pa.RecordBatch, origin: _Origin) -> pa.RecordBatch:
    """The rows of `events` of a batch of the format's own columns."""
    columns = find_format(origin.format).columns
    arrays = []
    for column in _WRITTEN_EVENTS:
        if column.name == "format":
            arrays.append(constant(origin.format, batch.num_rows))
        elif column.name == "journal":
            arrays.append(origin.column(batch.num_rows))
        elif pa.types.is_dictionary(column.type):
            arrays.append(_encoded(columns, batch, column.name, column.type))
        else:
            found = columns.column(batch, column.name)
            arrays.append(pa.nulls(batch.num_rows, column.type) if found is None else found)
    return pa.RecordBatch.from_arrays(arrays, schema=_WRITTEN_EVENTS)


def _encoded(columns: Columns, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """A column of texts as a dictionary. One made from one column of the format is made from distinct values."""
    given = batch.column(name) if name in batch.schema.names else None
    if given is not None and given.type == kind:
        return given
    sources = [source for source in columns.sources([name], sharded=False) if source in batch.schema.names]
    if len(sources) == 1:
        values, indices = distinct(batch.column(sources[0]))
        made = columns.column(pa.RecordBatch.from_arrays([values], names=sources), name)
        if made is not None and made.null_count == 0:
            return pa.DictionaryArray.from_arrays(indices, made)
    found = columns.column(batch, name)
    return pa.nulls(batch.num_rows, kind) if found is None else found.dictionary_encode()


# --- states -----------------------------------------------------------------------------------------------------------


class _Chunks(io.RawIOBase):
    """A file whose contents are given out in chunks."""

    def __init__(self, take: Any) -> None:
        super().__init__()
        self._take = take
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        if len(self._waiting) >= _CHUNK_BYTES:
            self.finish()
        return len(data)

    def finish(self) -> None:
        if self._waiting:
            self._take(bytes(self._waiting))
            self._waiting.clear()


def _loaded(filesystem: Any, source: Source, scratch: Path) -> pa.NativeFile:
    """A state that was saved, in memory, or in a temporary file if it is large."""
    spool = tempfile.SpooledTemporaryFile(_MOST_IN_MEMORY, dir=str(scratch))  # noqa: SIM115 - the caller closes it
    for batch in rows_of(filesystem, source, ["data"]):
        for data in batch.column("data"):
            spool.write(data.as_buffer())
    spool.seek(0)
    return pa.PythonFile(spool, mode="r")
