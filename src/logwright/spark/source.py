"""JournalSource: any journal as a Spark table, written once over `Format`; a source per format is a thin subclass.

The way of a read: the driver finds the journals below the path, cuts them into splits at exact record boundaries, packs
small ones together, and drops what the pushed filters rule out. A task opens the journal again, decodes the columns
that are asked for into Arrow batches of bounded size, filters them, and hands them over.

Options:
    path                a journal, a root of shards, a root of journals (source `logwright`), or a URI
    mode                failfast (default), permissive (a damaged range is a row), dropmalformed
    splitBytes          how much one task reads, about; 128m by default
    batchBytes          how much one Arrow batch holds, about; 4m by default

As a stream it has more of them: see `stream.py`; and for writing: see `sink.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ..core.format import FORMATS, find_format
from ..core.split import Split, pack
from . import schemas
from .filters import Bounds, bounds_of, understood
from .options import folded
from .reading import Journal, Part, Reading, find_journals, open_journal
from .sink import JournalStreamWriter, JournalWriter
from .stream import JournalStream


class JournalReader(Reading, DataSourceReader):
    """Plans on the driver, reads in the tasks. It is pickled in between, so it holds options and numbers only."""

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
        format = find_format(journal.format)
        numbers = (bounds.start, bounds.stop) if "prune_numbers" in format.traits else (None, None)
        options = {"times": bounds.times} if "prune_times" in format.traits and bounds.times is not None else {}
        planned: list[Split] = format.room("splits").plan(open_journal(journal), self.split_bytes, *numbers, **options)
        return [split for split in planned if bounds.leave(split)]


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

    def streamReader(self, schema: StructType) -> JournalStream:  # noqa: N802 - Spark's name
        return JournalStream(schema, folded(self.options), self.format)

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


SOURCES: Final = (JournalSource, SejSource, KestrelSource)


assert set(FORMATS) == {source.format for source in SOURCES if source.format}
