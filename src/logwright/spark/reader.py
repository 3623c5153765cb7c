"""What reading tables and streams shares: the options, and how a task reads its splits.

A task opens the journal, decodes the requested columns into Arrow batches of bounded size, filters them, and returns
them to Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ..arrow.discovery import Journal, open_journal
from ..arrow.rows import columns_of, damage_row, file_of, read_split
from ..core.bytes.outcome import Damage, Mode, check_mode
from ..core.io.file_names import as_text, printed
from ..core.read.splits import TARGET_BYTES, Split
from ..errors import StorageFailed
from . import schemas
from .filters import Condition, chosen_by, keep, understood
from .options import byte_size
from .paths import paths_of

_LOG: Final = logging.getLogger(__name__)
_MOST_BYTES_OF_A_ROW: Final = 1 << 30
_NO_PATH: Final = "give the path of a journal: .load(PATH), or CREATE TEMPORARY VIEW … USING … OPTIONS (path 'PATH')"


class Part(InputPartition):
    """The splits that one task reads, of one or several journals."""

    def __init__(self, parts: list[tuple[Journal, Split]]) -> None:
        super().__init__(None)
        self.parts = parts


class BaseReader:
    """The options of a read, and how its tasks read. It is sent to them pickled, so it has options and numbers only."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        self.format = format
        self.wanted = schemas.arrow_schema(schema, format)
        self.paths = paths_of(options, _NO_PATH)
        self.mode: Mode = check_mode(options.get("mode", "failfast").strip().lower())
        self.split_bytes = byte_size(options, "splitBytes", TARGET_BYTES)
        self.batch_bytes = byte_size(options, "batchBytes", 4 << 20)
        self.conditions: list[Condition] = []
        self._opened: tuple[Journal, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def refused(self, name: str, error: StorageFailed) -> None:
        """A directory cannot be read: it may contain journals."""
        if self.mode == "failfast":
            raise error
        _LOG.warning("%s: journals in this directory are not read: %s", name, as_text(str(error)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        assert isinstance(partition, Part)
        for journal, split in partition.parts:
            yield from self.read_split(journal, split)

    def _open(self, journal: Journal) -> Any:
        """A reader of a journal; the same one for consecutive splits of a task."""
        if self._opened is None or self._opened[0] != journal:
            self._opened = (journal, open_journal(journal))
        return self._opened[1]

    def read_split(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch]:
        """The record batches of one split."""
        items = read_split(journal, self._open(journal), split, self.wanted, self.mode, self.batch_bytes)
        for item in items:
            if isinstance(item, Damage):
                yield from self.damage_rows(journal, split.part, item)
                continue
            kept = keep(item, self.conditions)
            if kept.num_rows:
                yield kept

    def damage_rows(self, journal: Journal, part: str, damage: Damage) -> Iterator[pa.RecordBatch]:
        """One row, or several if the size of the range does not fit an INT."""
        file = printed(file_of(journal.format, part, damage.file))
        for start in range(damage.start, max(damage.end, damage.start + 1), _MOST_BYTES_OF_A_ROW):
            size = min(damage.end - start, _MOST_BYTES_OF_A_ROW)
            place = (journal.format, journal.name, file, start, size)
            yield damage_row(self.wanted, *place, as_text(f"{damage.kind}: {damage.reason}"))


class BaseTableReader(BaseReader, DataSourceReader):
    """A read of a table with conditions from its options and Spark's filters. Subclasses plan it."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        super().__init__(schema, options, format)
        self.names = self.wanted.names
        known = columns_of(format)
        self.conditions = chosen_by(options, known.names)
        for condition in self.conditions:
            if condition.column not in self.wanted.names:  # decoded for a comparison only
                self.wanted = self.wanted.append(known.field(condition.column))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        batches = self.batches(partition)
        return batches if self.names == self.wanted.names else (batch.select(self.names) for batch in batches)

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same, before columns that only conditions need are dropped."""
        return super().read(partition)


class PushedFilters(BaseTableReader):
    """A read that uses Spark's filters.

    A session without `spark.sql.python.filterPushdown.enabled` refuses every reader that has `pushFilters`, so only
    readers that are asked for it have it.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Keep the usable filters. Returns all of them, so Spark applies them again."""
        self.conditions = [*self.conditions, *understood(filters)]
        return filters
