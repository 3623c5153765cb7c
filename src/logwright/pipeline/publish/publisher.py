"""The interface of publishers: how the tables of a batch become visible.

A batch is a set of data files added to and removed from each table, and a state that the next batch continues from.
Workers write the data files where the publisher says, with names that no other attempt has; nothing that they write is
visible. `publish` makes the batch visible. After a crash at any point the next opening completes the batch or discards
it, so a batch is in all tables in the end, or in none, and never twice.

    with open_publisher("tables", "delta") as publisher:
        batch = publisher.batch                                     the number of the next batch
        where = publisher.where("events")                           workers write f"{where}/{part_name(batch)}"
        publisher.publish(Batch(batch, added, removed, schemas, state=state))

    OUT/<table>/part-<batch>-<token>.parquet     data files, in folders `column=value` if the table is partitioned
    OUT/report.html
    OUT/_logwright/                              what publishers remember: see `control.py`
"""

from __future__ import annotations

import datetime
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from ...core.write.closing import Closing
from ...errors import Poisoned, WrongUse

REPORT: Final = "report.html"
RETENTION: Final = datetime.timedelta(days=7)
"""How long files that are no longer in a table are kept for readers of earlier versions, unless the caller says."""
_PART: Final = re.compile(r"part-(\d{8,})-[0-9a-f]{5,}\.[A-Za-z0-9_.]+")
_TABLE: Final = re.compile(r"(?!_logwright)_?[A-Za-z][A-Za-z0-9_]*")


def part_name(batch: int, token: str | None = None) -> str:
    """A name for a data file of a batch. Without a token it is a new one, which no other attempt has."""
    return f"part-{batch:08d}-{token or secrets.token_hex(8)}.parquet"


def batch_of(name: str) -> int | None:
    """The number of the batch in the name of a data file; None for names of other files."""
    found = _PART.fullmatch(PurePosixPath(name).name)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table. `name` is relative to the directory of the table.

    Columns in `partition` are not in the file; a value of None stands for null.
    """

    table: str
    name: str
    rows: int
    bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch changes.

    `schemas` has the schema of each table in the batch, with the columns that it is partitioned by; tables that are
    missing are created. `state` is a JSON object. `report` is a local file that replaces OUT/report.html.
    """

    number: int
    added: Sequence[TableFile] = ()
    removed: Sequence[TableFile] = ()
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    partition_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last published batch: its number, and the state that it saved for the next one."""

    batch: int
    state: Mapping[str, Any]


class Publisher(Closing, ABC):
    """The directory of the tables, opened by one run.

    Opening completes a batch that an interrupted run has committed, and removes what another one has left. `completed`
    says whether there was a batch to complete. `filesystem` is what workers write to; it can be pickled.

    After a failed `publish` nothing more can be published: open the directory again. `discard` may be called first.
    """

    filesystem: fs.FileSystem
    completed: bool
    checkpoint: Checkpoint | None
    """The last batch; None before the first one."""
    _unusable: str | None = None

    @property
    def batch(self) -> int:
        """The number of the next batch."""
        return 1 if self.checkpoint is None else self.checkpoint.batch + 1

    @abstractmethod
    def where(self, table: str) -> str:
        """The directory on `filesystem` to which workers write the data files of a table for the next batch.

        It exists, or needs no creation. Folders of partitions on a local disk are created by the workers.
        """

    @abstractmethod
    def files(self, table: str) -> list[TableFile]:
        """The data files that a table has now; none if there is no such table."""

    @abstractmethod
    def path(self, file: TableFile) -> str:
        """Where a data file that a table has is on `filesystem`."""

    @abstractmethod
    def publish(self, batch: Batch) -> Checkpoint:
        """Make a batch visible. If this fails, the batch is published by the next opening or not at all."""

    @abstractmethod
    def note(self, state: Mapping[str, Any]) -> None:
        """Replace the state that the last batch has saved. No table changes."""

    def _noting(self, state: Mapping[str, Any]) -> Checkpoint:
        """The checkpoint with another state. It fails if there is none, or a batch is not completed."""
        if self._unusable is not None:
            raise Poisoned(self._unusable)
        if self.checkpoint is None:
            raise WrongUse("there is no batch yet whose state could be replaced")
        return Checkpoint(self.checkpoint.batch, dict(state))

    @abstractmethod
    def discard(self) -> None:
        """Remove the data files of a batch that has failed, unless it is committed."""

    @abstractmethod
    def vacuum(self, retention: datetime.timedelta = RETENTION) -> int:
        """Remove data files that are in no table, older than `retention`; their number. No batch may be under way."""

    def _begin(self, batch: Batch) -> None:
        """Check that a batch is the next one and makes sense, before anything is written."""
        if self._unusable is not None:
            raise Poisoned(self._unusable)
        if batch.number != self.batch:
            raise WrongUse(f"batch {batch.number} cannot be published: the next one is {self.batch}")
        for table in batch.schemas:
            check_table(table)
        for file in (*batch.added, *batch.removed):
            if file.table not in batch.schemas:
                raise WrongUse(f"the batch has files of the table {file.table}, but not its schema")
        for file in batch.added:
            check_name(file, batch.partition_by.get(file.table, ()))
            if batch_of(file.name) != batch.number:
                raise WrongUse(f"{file.table}/{file.name} is not a data file of batch {batch.number}")

    def _end(self, reason: str) -> None:
        """Refuse further batches. The first reason is kept."""
        self._unusable = self._unusable or reason


def check_table(table: str) -> None:
    """Raise `WrongUse` for a name that no table can have."""
    if not _TABLE.fullmatch(table):
        raise WrongUse(f"{table!r} cannot be the name of a table")


def check_name(file: TableFile, partition_by: Sequence[str]) -> None:
    """Raise `WrongUse` unless a file is in the folders of its partition."""
    folders = PurePosixPath(file.name).parts[:-1]
    columns = [folder.partition("=")[0] for folder in folders]
    if columns != list(partition_by) or set(columns) != set(file.partition):
        wanted = "/".join(f"{column}=…" for column in partition_by) or "no folder"
        raise WrongUse(f"{file.table}/{file.name} is not where its partition is: {wanted}")
