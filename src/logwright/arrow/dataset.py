"""A journal as a dataset of Arrow, which DuckDB, Polars and others query with their columns and filters.

    dataset("orders")                               the records, in typed columns
    dataset("queues/jobs", "items")                 every item that ever was in a queue
    dataset("stores", "state", at="2 hours ago")    the state of stores at a time
    dataset("journals")                             all journals below a directory, in the columns that formats share

Every format has the tables `records` and `damage`, and those that the pipeline makes of it, by their name or its last
word: `queue_items` is also `items`. Stores have `state` at any time. See `table_names`.

Only the columns that a query needs are decoded. Files and ranges that its filter excludes are not read: by number, time
and position, and by the name of the shard, queue, store or journal. Other tables than `records` and `state` are made
from all records of a part.

A dataset shows a journal as it is when it is first scanned; records that are appended later are not in it. Damage
behaves by `mode`: `failfast` raises, `dropmalformed` skips it, `permissive` skips and reports it. Where several
journals are read, `permissive` returns a row for it.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from ..core.bytes.outcome import Damage, Mode, check_mode
from ..core.format import Format, detect, find_format
from ..core.io.file_names import as_text, printed
from ..core.options import suggest
from ..core.read.columns import BATCH_BYTES
from ..core.read.materializer import Continued, Rows
from ..core.read.splits import Split
from ..core.times import nanoseconds_of, parse_time
from ..errors import DamagedJournal, LogwrightError, UnknownFormat, WrongUse
from ..location import locate
from .bounds import Filter
from .discovery import Journal, find_journals, open_journal
from .rows import UNIFIED, columns_of, damage_row, file_of, fill, naming, read_split, sources_of

logger = logging.getLogger("logwright.arrow")

_PLACE: Final = ("sequence", "file", "position", "size")
"""Columns of `records` besides those of the format; `sequence` is its number, by which records are ordered."""
_PART_NAMES: Final = ("shard", "queue", "store")
_SPLIT_BYTES: Final = 1 << 40
"""Records are read in order, so a file is a single split."""
DAMAGE: Final = pa.schema(
    [
        ("journal", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns of the table `damage`. The kind of what an earlier repair has lost is `lost`."""


def dataset(
    path: Path | str,
    table: str = "records",
    *,
    at: str | int | datetime | None = None,
    mode: Mode = "failfast",
    on_damage: Callable[[Damage], None] | None = None,
    format: str | None = None,
) -> JournalDataset:
    """A journal, or all journals below a directory, as a `pyarrow.dataset.Dataset`.

    `path` is a path or a URI. `at` is a time for the table `state`: nanoseconds, ISO 8601, or `2 hours ago`. What
    the mode `permissive` skips is passed to `on_damage`, or logged.
    """
    return JournalDataset(str(path), table, at=at, mode=mode, on_damage=on_damage, format=format)


def table_names(format: str) -> dict[str, str]:
    """The names of a format's tables, each with that of the table it stands for: `items` is `queue_items`."""
    chosen = find_format(format)
    assert chosen.materials is not None
    record_table = chosen.materials.record_table
    names = {name: name for name in chosen.materials.schemas}
    names |= {name.rpartition("_")[2]: name for name in names}
    names = {short: "records" if name == record_table else name for short, name in names.items()}
    if chosen.states is not None:
        names["state"] = "state"
    return {"records": "records", "damage": "damage", **names}


class JournalDataset(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """Records or another table of journals; see `dataset`."""

    def __init__(
        self,
        location: str,
        table: str,
        *,
        at: str | int | datetime | None,
        mode: Mode,
        on_damage: Callable[[Damage], None] | None,
        format: str | None,
    ) -> None:
        self.location = location
        self.mode: Mode = check_mode(mode)
        self._on_damage = self._log if on_damage is None else on_damage
        self._opened: dict[Journal, _Opened] = {}
        """The journals that were read, each with the end that every scan stops at."""
        self.failure: LogwrightError | None = None
        """What a scan has raised: programs that read a dataset may replace it by an error of their own."""
        self._journals, self.format = _found(location, format)
        self.table = self._chosen(table)
        self._at = None if at is None else _nanoseconds(at)
        if self._at is not None and self.table != "state":
            raise WrongUse(f"{location}: only the table state of stores has a time")
        super().__init__(self._columns().empty_table())

    def _chosen(self, table: str) -> str:
        known = {"records": "records", "damage": "damage"} if self.format is None else table_names(self.format)
        if table not in known:
            kind = "several journals" if self.format is None else f"journals of {self.format}"
            raise WrongUse(f"{self.location}: {kind} have no table {table!r}; {suggest(table, known)}")
        return known[table]

    def _columns(self) -> pa.Schema:
        if self.table == "damage":
            return DAMAGE
        if self.format is None:
            return UNIFIED
        typed = columns_of(self.format)
        if self.table == "state":
            return typed
        if self.table == "records":
            places = [UNIFIED.field(name) for name in _PLACE if name not in typed.names]
            return pa.schema([*typed, *places])
        materials = find_format(self.format).materials
        assert materials is not None
        return materials.schemas[self.table]

    # --- the interface of Arrow ---------------------------------------------------------------------------------------

    def scanner(
        self,
        columns: Sequence[str] | dict[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,
        **options: Any,
    ) -> JournalScanner:
        """A scan of some columns of the records that match a filter. It can be used once; other options are ignored."""
        names = self.schema.names if columns is None else list(columns)
        if not isinstance(columns, dict):
            for name in names:
                if name not in self.schema.names:
                    raise WrongUse(f"there is no column {name!r}; the columns are {', '.join(self.schema.names)}")
        chosen = Filter(filter, self.schema)
        texts = [str(expression) for expression in columns.values()] if isinstance(columns, dict) else names
        needed = [
            field
            for field in self.schema
            if field.name in texts or chosen.mentions(field.name) or any(field.name in text for text in texts)
        ]
        wanted = pa.schema(needed or [self._cheapest()])
        return JournalScanner(self._guarded(wanted, chosen), wanted, columns, filter)

    def _cheapest(self) -> pa.Field:
        """The column to decode when rows are only counted."""
        fixed = [field for field in self.schema if pa.types.is_primitive(field.type)]
        return next((field for field in fixed if field.name == "position"), fixed[0])

    def filter(self, expression: ds.Expression) -> ds.Dataset:
        """A dataset of the records that match."""
        return ds.InMemoryDataset(self.to_table(filter=expression))

    def get_fragments(self, filter: ds.Expression | None = None) -> NoReturn:
        """A journal has no fragments that can be read alone."""
        raise WrongUse(f"{self.location}: a journal is read as a whole; use scanner, to_batches or to_table")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """The columns of a journal are fixed."""
        raise WrongUse(f"{self.location}: the columns of a journal are fixed; choose columns instead")

    def join(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join with another dataset, in memory."""
        return ds.InMemoryDataset(self.to_table()).join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join with another dataset on a nearest key, in memory."""
        return ds.InMemoryDataset(self.to_table()).join_asof(*arguments, **options)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Sort by columns, in memory."""
        return ds.InMemoryDataset(self.to_table()).sort_by(sorting, **options)

    # --- rows ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _now(self) -> int:
        """The time of tables that depend on it."""
        return time.time_ns()

    @property
    def _reading(self) -> Mode:
        """How journals are read: what is skipped is always reported here."""
        return "failfast" if self.mode == "failfast" else "permissive"

    def _guarded(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches(wanted, chosen)
        except LogwrightError as error:
            self.failure = error
            raise

    def _batches(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        if self.table == "records":
            return self._records(wanted, chosen)
        if self.table == "state":
            return self._states(wanted, chosen)
        rows = self._damage(chosen) if self.table == "damage" else self._materialized(chosen)
        return (batch.select(wanted.names) for batch in rows)

    def _wanted(self, chosen: Filter) -> Iterator[_Opened]:
        for journal in self._journals:
            if chosen.can_have("journal", journal.name) and chosen.can_have("format", journal.format):
                if journal not in self._opened:
                    self._opened[journal] = _Opened.of(journal)
                yield self._opened[journal]

    def _planned(self, opened: _Opened, chosen: Filter) -> Iterator[Split]:
        """The splits of a journal that may have records that match."""
        splits, bounds = opened.format.splits, chosen.bounds
        start, stop = (bounds.start, bounds.stop) if splits.prunes_numbers else (None, None)
        times = bounds.times if splits.prunes_times else None
        if start is None and stop is None and times is None:
            planned = self._all_splits(opened)
        else:
            stops = {part: next if stop is None else min(next, stop) for part, next in opened.stops.items()}
            starts = None if start is None else {part: min(start, next) for part, next in stops.items()}
            planned = splits.plan(opened.reader, _SPLIT_BYTES, starts, stops, times=times)
        for split in planned:
            if self._has(split.part, chosen) and bounds.leave(split):
                yield split

    def _all_splits(self, opened: _Opened) -> list[Split]:
        """All splits of a journal. If it has no file left though it should have, that is damage."""
        splits = opened.format.splits
        planned = splits.plan(opened.reader, _SPLIT_BYTES, None, opened.stops)
        if planned:
            return planned
        try:
            with naming(opened.journal, ""):
                return splits.plan(opened.reader, _SPLIT_BYTES)
        except DamagedJournal as error:
            if self.mode == "failfast" and self.table != "damage":
                raise
            opened.missing = Damage(str(error.file), error.position, error.position, error.reason, "missing_file")
            self._skip(opened.journal, "", opened.missing)
            return []

    def _has(self, part: str, chosen: Filter) -> bool:
        name = printed(part) or None
        return name is None or all(chosen.can_have(column, name) for column in _PART_NAMES)

    def _records(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        for opened in self._wanted(chosen):
            for split in self._planned(opened, chosen):
                for item in read_split(opened.journal, opened.reader, split, wanted, self._reading, BATCH_BYTES):
                    if not isinstance(item, Damage):
                        yield item
                        continue
                    self._skip(opened.journal, split.part, item)
                    if self.format is None and self.mode == "permissive":
                        yield self._damage_row(wanted, opened.journal, split.part, item)

    def _damage_row(self, wanted: pa.Schema, journal: Journal, part: str, damage: Damage) -> pa.RecordBatch:
        file = printed(file_of(journal.format, part, damage.file))
        size = min(damage.size, 2**31 - 1)
        text = as_text(f"{damage.kind}: {damage.reason}")
        return damage_row(wanted, journal.format, journal.name, file, damage.start, size, text)

    def _skip(self, journal: Journal, part: str, damage: Damage) -> None:
        self._on_damage(replace(damage, file=printed(file_of(journal.format, part, damage.file))))

    def _log(self, damage: Damage) -> None:
        if self.mode == "permissive" and self.format is not None and self.table != "damage":
            logger.warning("%s: %s @ %s: skipped: %s", self.location, damage.file, damage.start, as_text(damage.reason))

    def _materialized(self, chosen: Filter) -> Iterator[pa.RecordBatch]:
        """The rows of a table that is made from all records of a part."""
        for opened in self._wanted(chosen):
            parts: dict[str, list[Split]] = {}
            for split in self._all_splits(opened):
                if self._has(split.part, chosen):
                    parts.setdefault(split.part, []).append(split)
            for part, splits in parts.items():
                for rows in self._rows(opened, part, splits):
                    if rows.table == self.table and rows.batch.num_rows:
                        yield rows.batch

    def _rows(self, opened: _Opened, part: str, splits: list[Split]) -> Iterator[Rows]:
        materials = opened.format.materials
        assert materials is not None
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logwright-")))
            materializer = stack.enter_context(materials.materializer(Continued(part, None, scratch)))
            for split in splits:
                collector = opened.format.columns.collector(materials.sources, batch_bytes=BATCH_BYTES)
                with naming(opened.journal, part):
                    for item in opened.format.splits.chunks(opened.reader, split, self._reading):
                        if isinstance(item, Damage):
                            self._skip(opened.journal, part, item)
                            continue
                        for batch in collector.add(item, part):
                            yield from materializer.add(batch)
                for batch in collector.finish():
                    yield from materializer.add(batch)
            yield from materializer.live(self._now)

    def _states(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        at = self._now if self._at is None else self._at
        for opened in self._wanted(chosen):
            journal, states = opened.journal, opened.format.states
            assert states is not None
            names = sources_of(wanted.names, journal.format, sharded=True)
            disk, path = locate(journal.location)
            for part in states.plan(disk, path, at):
                if not self._has(part.name, chosen):
                    continue
                with naming(journal, part.name):
                    damages, batch = states.read(disk, part, at, self._reading, names)
                for damage in damages:
                    self._skip(journal, part.name, damage)
                if batch is not None and batch.num_rows:
                    yield fill(wanted, batch, journal.format, journal.name)

    def _damage(self, chosen: Filter) -> Iterator[pa.RecordBatch]:
        for opened in self._wanted(chosen):
            journal, splits = opened.journal, opened.format.splits
            rows = [
                (printed(loss.file), loss.position, loss.bytes, loss.kind, f"{loss.what}: {loss.reason}")
                for loss in opened.reader.losses()
            ]
            for split in self._all_splits(opened):
                for item in splits.chunks(opened.reader, split, "permissive"):
                    if isinstance(item, Damage) and item.kind != "lost":
                        file = printed(splits.file_of(split.part, item.file))
                        rows.append((file, item.start, item.size, item.kind, as_text(item.reason)))
            if (missing := opened.missing) is not None:
                rows.append((printed(missing.file), missing.start, 0, missing.kind, as_text(missing.reason)))
            found = [dict(zip(DAMAGE.names, (journal.name, *row), strict=True)) for row in rows]
            if found:
                yield pa.RecordBatch.from_pylist(found, DAMAGE)


class JournalScanner:
    """A scan of a dataset, as a `pyarrow.dataset.Scanner`; it can be used once.

    Arrow's scanner reads ahead in its own thread, which may still run Python when the process ends. This one reads each
    batch on request, in the caller's thread.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, columns: Any, filter: ds.Expression | None
    ) -> None:
        self.dataset_schema = schema
        self._batches = batches
        self._columns = columns
        self._filter = filter
        self.projected_schema = self._projected(schema.empty_table()).projected_schema

    def _projected(self, data: pa.Table | pa.RecordBatch) -> ds.Scanner:
        return ds.InMemoryDataset(data).scanner(columns=self._columns, filter=self._filter)

    def _chosen(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._filter is None and batch.schema == self.projected_schema:
                yield batch
            else:
                yield from self._projected(batch).to_table().to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._chosen())

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows in batches."""
        return self.to_reader()

    def to_table(self) -> pa.Table:
        """The rows in memory."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows."""
        found: list[pa.RecordBatch] = []
        for batch in self._chosen():
            found.append(batch.slice(0, num_rows - sum(one.num_rows for one in found)))
            if sum(one.num_rows for one in found) >= num_rows:
                break
        return pa.Table.from_batches(found, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Some rows by their numbers."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self._chosen())


@dataclass(slots=True)
class _Opened:
    """A journal with its reader. `stops` are the numbers that the next records of its parts will get.

    `missing` is set if all of its files are missing.
    """

    journal: Journal
    format: Format
    reader: Any
    stops: dict[str, int]
    missing: Damage | None = None

    @classmethod
    def of(cls, journal: Journal) -> _Opened:
        format, reader = find_format(journal.format), open_journal(journal)
        stops = {part: next for part, (_, next) in format.splits.extent(reader).items()}
        return cls(journal, format, reader, stops)


def _found(location: str, format: str | None) -> tuple[list[Journal], str | None]:
    """The journals at or below a location, and their format; None if they are not read as one."""
    disk, path = locate(location)
    try:
        chosen = detect(path, disk=disk) if format is None else find_format(format)
    except UnknownFormat:
        if not disk.is_directory(path):
            raise
        return find_journals(location, None), None
    return [Journal(chosen.name, location, printed(path.name))], chosen.name


def _nanoseconds(at: str | int | datetime) -> int:
    return parse_time(at) if isinstance(at, str) else nanoseconds_of(at)
