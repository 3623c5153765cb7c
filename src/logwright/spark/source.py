"""JournalSource: any journal as a Spark table, written once over `Format`; a source per format is a thin subclass.

The way of a read: the driver finds the journals below the path, cuts them into splits at exact record boundaries, packs
small ones together, and drops what the pushed filters rule out. A task opens the journal again, decodes the columns
that are asked for into Arrow batches of bounded size, filters them, and hands them over.

Options:
    path                a journal, a root of shards, a root of journals (source `logwright`), or a URI
    mode                failfast (default), permissive (a damaged range is a row), dropmalformed
    splitBytes          how much one task reads, about; 64m by default
    batchBytes          how much one Arrow batch holds, about; 4m by default
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ..core.disk import Disk
from ..core.errors import NotFound, UnknownFormat, WrongUse
from ..core.format import FORMATS, detect, find_format
from ..core.outcome import Damage, Mode, check_mode
from ..core.split import TARGET_BYTES, Split, pack
from ..location import locate
from . import schemas
from .filters import Bounds, Condition, bounds_of, keep, understood
from .options import byte_size, folded


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that was found: its format, where it is, and what it is called below the path that was asked for."""

    format: str
    location: str
    name: str


class Part(InputPartition):
    """What one task reads: splits of one or several journals."""

    def __init__(self, parts: list[tuple[Journal, Split]]) -> None:
        super().__init__(None)
        self.parts = parts


class JournalReader(DataSourceReader):
    """Plans on the driver, reads in the tasks. It is pickled in between, so it holds options and numbers only."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        self.format = format
        self.wanted = schemas.arrow_schema(schema, format)
        self.location = _path_of(options)
        self.mode: Mode = check_mode(options.get("mode", "failfast"))
        self.split_bytes = byte_size(options, "splitBytes", TARGET_BYTES)
        self.batch_bytes = byte_size(options, "batchBytes", 4 << 20)
        self.conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Note what can be left out. All filters go back: Spark applies them again, and may."""
        self.conditions = understood(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of this read."""
        bounds = bounds_of(self.conditions)
        journals = find_journals(self.location, self.format)
        parts = [(journal, split) for journal in journals for split in self._plan(journal, bounds)]
        return [Part(group) for group in pack(parts, self.split_bytes, lambda part: part[1].bytes)] or [Part([])]

    def _plan(self, journal: Journal, bounds: Bounds) -> list[Split]:
        reader = open_journal(journal)
        start = bounds.start
        if bounds.earliest_ns is not None and hasattr(reader, "find_time"):
            first = reader.find_time(bounds.earliest_ns)
            if isinstance(first, int):
                start = first if start is None else max(start, first)
        planned: list[Split] = (
            find_format(journal.format).room("splits").plan(reader, self.split_bytes, start, bounds.stop)
        )
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        assert isinstance(partition, Part)
        for journal, split in partition.parts:
            yield from self._read_split(journal, split)

    def _read_split(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch]:
        format = find_format(journal.format)
        reader: Any = open_journal(journal)
        sharded = bool(split.part)
        names = schemas.sources_of(self.wanted.names, journal.format, sharded=sharded)
        collector = format.room("columns").Collector(names, sharded=sharded, batch_bytes=self.batch_bytes)
        for item in format.room("splits").chunks(reader, split, self.mode):
            if isinstance(item, Damage):
                yield from self._finished(collector.finish(), journal)
                file = f"{split.part}/{item.file}" if split.part else item.file
                what = f"{item.kind}: {item.reason}"
                place = (journal.format, journal.name, file, item.start, item.size)
                yield schemas.damage_row(self.wanted, *place, what)
            else:
                yield from self._finished(collector.add(item, split.part), journal)
        yield from self._finished(collector.finish(), journal)

    def _finished(self, batches: Iterator[pa.RecordBatch], journal: Journal) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            filled = keep(schemas.fill(self.wanted, batch, journal.format, journal.name), self.conditions)
            if filled.num_rows:
                yield filled


class JournalSource(DataSource):
    """The source `logwright`: any mix of journals below a root, in the columns that all formats share."""

    format: str | None = None

    @classmethod
    def name(cls) -> str:
        return cls.format or "logwright"

    def schema(self) -> StructType:
        return schemas.spark_schema(self.format)

    def reader(self, schema: StructType) -> JournalReader:
        return JournalReader(schema, folded(self.options), self.format)


class SejSource(JournalSource):
    """The source `sej`."""

    format = "sej"


SOURCES: Final = (JournalSource, SejSource)


def _path_of(options: dict[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise WrongUse("say which journal: .load(PATH)")
    return path


def open_journal(journal: Journal) -> Any:
    """A reader of a journal, wherever it is."""
    disk, path = locate(journal.location)
    return find_format(journal.format).open(path, disk=disk)


def find_journals(location: str, format: str | None) -> list[Journal]:
    """The journals at or below a location, in the order of their names; of one format, or of any."""
    disk, root = locate(location)
    if not disk.exists(root):
        raise NotFound(f"{location}: no such file or directory")
    found = _found_at(disk, root, location, "", format)
    if not found:
        raise UnknownFormat(f"{location}: no journal of {format or 'any known format'} is here or below")
    return found


def _found_at(disk: Disk, path: Path, location: str, name: str, format: str | None) -> list[Journal]:
    """The directory itself if it is a journal, else what is in it. What cannot be recognised is not a journal."""
    try:
        chosen = detect(path, disk=disk).name
    except UnknownFormat:
        chosen = ""
    if chosen and format in (None, chosen):
        return [Journal(chosen, location, name or path.name)]
    if chosen or not disk.is_directory(path):
        return []
    found: list[Journal] = []
    for entry in disk.list_directory(path):
        if entry.startswith("."):
            continue
        below = f"{location.rstrip('/')}/{entry}"
        found.extend(_found_at(disk, path / entry, below, f"{name}/{entry}" if name else entry, format))
    return found


assert set(FORMATS) == {source.format for source in SOURCES if source.format}
