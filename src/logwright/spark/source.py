"""Read any journal as a Spark table, over `Format`; the source of each format is a thin subclass.

The driver finds the journals below the path, skips what the filters exclude, divides the rest into splits at exact
record boundaries, and packs small ones together. A task opens the journal, decodes the requested columns into Arrow
batches of bounded size, filters them, and returns them to Spark.

Options:
    path                a journal, a root of shards, a root of journals (source `logwright`), or a URI; see `paths.py`
    mode                failfast (default), permissive (a damaged range is a row), dropmalformed
    from, to            a range of record numbers, which are offsets in sej; `to` is excluded
    since, until        a range of times; `until` is excluded
    at                  for stores (source `versioned`): the state at this time instead of all changes; see `states.py`
    pushFilters         true: skip what Spark's filters exclude; false by default, see below
    splitBytes          how much one task reads, approximately; 128m by default
    batchBytes          the approximate size of an Arrow batch; 4m by default

Why pushed filters are off by default: Spark 4.3 keeps one read plan for each `load`, with the filters it pushed last,
and uses it for every query of that table. After `table.filter("offset < 10").count()`, `table.count()` returns 10; two
filters of one table in one query are wrong as well. So use `pushFilters` only for a table with one filter. `from`,
`to`, `since` and `until` are part of the table and always correct.

Times are as on the command line: nanoseconds, ISO 8601, or `2 hours ago`, relative to the planning of the query.

For more options of streams see `stream.py`, of writing `sink.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import DataSource, InputPartition, IsNull
from pyspark.sql.types import StructType

from ..arrow.bounds import Bounds
from ..arrow.discovery import Journal, open_journal
from ..core.format import FORMATS, find_format
from ..core.read.splits import Split, pack
from ..errors import WrongUse
from . import schemas
from .filters import CHOICES, bounds_of, can_match
from .options import OF_STATES, OF_STREAMS, OF_TABLES, check_names, flag, folded
from .reader import BaseTableReader, Part, PushedFilters
from .sink import JournalStreamWriter, JournalWriter
from .states import StateReader
from .stream import JournalStream


class JournalReader(BaseTableReader):
    """Plans on the driver, reads in the tasks. It is pickled in between, so it has options and numbers only."""

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of this read."""
        bounds = bounds_of(self.conditions)
        found = self.paths.find_journals(self.format, self.refused)
        journals = [journal for journal in found if self._is_wanted(journal)]
        parts = [(journal, split) for journal in journals for split in self._plan(journal, bounds)]
        return [Part(group) for group in pack(parts, self.split_bytes, lambda part: part[1].bytes)] or [Part([])]

    def _is_wanted(self, journal: Journal) -> bool:
        return can_match(self.conditions, {"journal": journal.name, "_journal": journal.name, "format": journal.format})

    def _plan(self, journal: Journal, bounds: Bounds) -> list[Split]:
        format = find_format(journal.format)
        splits = format.splits
        numbers = (bounds.start, bounds.stop) if splits.prunes_numbers else (None, None)
        planned = splits.plan(open_journal(journal), self.split_bytes, *numbers, times=bounds.times)
        # A row of damage has no shard: a filter for rows without a shard must read every shard.
        conditions = [condition for condition in self.conditions if condition.kind is not IsNull]
        wanted = [split for split in planned if can_match(conditions, {"shard": split.part or None})]
        return [split for split in wanted if bounds.leave(split)]


class FilteredJournalReader(PushedFilters, JournalReader):
    """Skips what Spark's filters exclude."""


class FilteredStateReader(PushedFilters, StateReader):
    """Skips what Spark's filters exclude."""


class JournalSource(DataSource):
    """The source `logwright`: any journals below a root, in the columns that all formats share."""

    format: str | None = None

    @classmethod
    def name(cls) -> str:
        return cls.format or "logwright"

    def schema(self) -> StructType:
        return schemas.spark_schema(self.format)

    def reader(self, schema: StructType) -> BaseTableReader:
        options = folded(self.options)
        pushes = flag(options, "pushFilters", False)
        if "at" in options:
            check_names(options, OF_STATES, f"reading the state at a time of {self.name()}")
            return (FilteredStateReader if pushes else StateReader)(schema, options, self.format)
        check_names(options, OF_TABLES, f"reading a table of {self.name()}")
        return (FilteredJournalReader if pushes else JournalReader)(schema, options, self.format)

    def streamReader(self, schema: StructType) -> JournalStream:  # noqa: N802 - Spark's name
        options = folded(self.options)
        for name in (*CHOICES, "at"):
            if name in options:
                raise WrongUse(f"option {name} is for tables; see startingOffsets and startingTimestamp for streams")
        check_names(options, OF_STREAMS, f"reading a stream of {self.name()}")
        return JournalStream(schema, options, self.format)

    def writer(self, schema: StructType, overwrite: bool) -> JournalWriter:
        return JournalWriter(schema, folded(self.options), self.format, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> JournalStreamWriter:  # noqa: N802 - Spark's name
        return JournalStreamWriter(schema, folded(self.options), self.format, overwrite)


class SejSource(JournalSource):
    """The source `sej`."""

    format = "sej"


class KestrelSource(JournalSource):
    """The source `kestrel`."""

    format = "kestrel"


class VersionedSource(JournalSource):
    """The source `versioned`."""

    format = "versioned"


class AppendfileSource(JournalSource):
    """The source `appendfile`."""

    format = "appendfile"


class YeltsinSource(JournalSource):
    """The source `yeltsin`."""

    format = "yeltsin"


SOURCES: Final = (JournalSource, SejSource, KestrelSource, VersionedSource, AppendfileSource, YeltsinSource)


assert set(FORMATS) == {source.format for source in SOURCES if source.format}
