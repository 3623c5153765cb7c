"""Read the state of journals at a time as a table, for formats that have one (versioned).

    spark.read.format("versioned").option("at", "2 hours ago").load("stores")

There is a row for each key that exists at that time, in the columns of the source: `t` is the time of the key's last
change, and `deleted` is false. The driver chooses one file of each store by its name and opens none; a task reads many
small stores. A store whose history begins later is an error with the earliest known time; in `permissive` it is a row
of damage, in `dropmalformed` it is skipped.

A task has one store in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, IsNull
from pyspark.sql.types import StructType

from ..arrow.discovery import Journal
from ..arrow.rows import fill, naming, sources_of
from ..core.format import FORMATS, find_format
from ..core.io.file_names import printed
from ..core.read.splits import pack
from ..errors import WrongUse
from ..location import locate
from .filters import can_match, keep
from .options import time_ns
from .reader import BaseTableReader

_OPENING_BYTES: Final = 64 << 10
"""The cost of opening a file, in bytes that could be read in that time."""


class StatesOf(InputPartition):
    """The stores that one task reads, of one or several journals, as planned by the `States` of their format."""

    def __init__(self, parts: list[tuple[Journal, Any]]) -> None:
        super().__init__(None)
        self.parts = parts


class StateReader(BaseTableReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        states = None if format is None else find_format(format).states
        if states is None:
            having = ", ".join(name for name, one in FORMATS.items() if one.states is not None)
            raise WrongUse(f"option at: {having} has states at a time, {format or 'a mix of formats'} has not")
        super().__init__(schema, options, format)
        at = time_ns(options, "at")
        if at is None or at < 0:
            raise WrongUse(f"option at: {options.get('at')!r} is before 1970")
        self.at = at
        self._states = states

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of this read."""
        parts = [
            (journal, part)
            for journal in self.paths.find_journals(self.format, self.refused)
            if can_match(self.conditions, {"_journal": journal.name})
            for part in self._states.plan(*_located(journal), self.at)
            if self._is_wanted(part)
        ]
        groups = pack(parts, self.split_bytes, lambda part: part[1].bytes + _OPENING_BYTES)
        return [StatesOf(group) for group in groups] or [StatesOf([])]

    def _is_wanted(self, part: Any) -> bool:
        # A row of damage has no store: a filter for rows without a store must read every store.
        conditions = [condition for condition in self.conditions if condition.kind is not IsNull]
        return can_match(conditions, {"store": printed(part.name)})

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The states of the stores of one task; small ones share a batch."""
        assert isinstance(partition, StatesOf)
        gathered: list[pa.RecordBatch] = []
        size = 0
        for journal, part in partition.parts:
            for batch in self._read(journal, part):
                if size and size + batch.nbytes > self.batch_bytes:
                    yield _joined(gathered)
                    gathered, size = [], 0
                gathered.append(batch)
                size += batch.nbytes
        if gathered:
            yield _joined(gathered)

    def _read(self, journal: Journal, part: Any) -> Iterator[pa.RecordBatch]:
        names = sources_of(self.wanted.names, journal.format, sharded=True)
        with naming(journal, part.name):
            damages, batch = self._states.read(_located(journal)[0], part, self.at, self.mode, names)
        for damage in damages:
            yield from self.damage_rows(journal, part.name, damage)
        if batch is None:
            return
        filled = keep(fill(self.wanted, batch, journal.format, journal.name), self.conditions)
        rows = max(1, filled.num_rows * self.batch_bytes // max(1, filled.nbytes))
        for start in range(0, filled.num_rows, rows):
            yield filled.slice(start, rows)


def _located(journal: Journal) -> tuple[Any, Any]:
    return locate(journal.location)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
