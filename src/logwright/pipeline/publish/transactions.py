"""Publish to tables that have transactions of their own: Delta and Iceberg.

Workers write data files into the directories of the tables, where they are invisible until a commit of their table
names them. The steps of a batch, and what a crash after each of them leaves:

1. Data files are written and made durable: nothing is visible; the next opening removes them.
2. The manifest is written: the batch is committed. The next opening does the remaining steps.
3. Each table commits its files together with the number of the batch, which readers of the table see at once.
   The next opening commits to the tables whose own number is less than that of the batch.
4. The report and then the checkpoint are written: the batch is in all tables.
5. The manifest is removed.

A reader of one table always sees whole batches. Between steps 2 and 5 some tables may be one batch ahead of others:
`tables` in the checkpoint has the version of each table at the end of the last batch, for readers of several tables.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from ...core.bytes.text import why_invalid
from ...errors import DamagedJournal, LogwrightError, StorageFailed
from .control import (
    CHECKPOINT,
    CHECKPOINT_HINT,
    FORMAT,
    HOME,
    MANIFEST,
    MANIFEST_HINT,
    as_json,
    by_table,
    parse_checkpoint,
    parse_file,
    refuse_format,
    with_changes,
)
from .publisher import REPORT, RETENTION, Batch, Checkpoint, Publisher, TableFile, batch_of, check_table
from .store import Store

_VERSION: Final = 1
_AT_ONCE: Final = 8
"""How many requests are made at a time."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a batch changes in one table."""

    table: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    added: Sequence[TableFile]
    removed: Sequence[TableFile]


def plain(schema: pa.Schema) -> pa.Schema:
    """A schema as tables have it: no metadata, dictionaries as their values, and any column may be null."""
    types = (field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema)
    return pa.schema([pa.field(field.name, type) for field, type in zip(schema, types, strict=True)])


class Tables(ABC):
    """The tables of one format. Each commit to a table is atomic for its readers."""

    format: ClassVar[str]

    @abstractmethod
    def batch(self, table: str) -> int:
        """The last batch that was committed to a table, as the table itself says; 0 if there is none."""

    @abstractmethod
    def files(self, table: str) -> list[TableFile]:
        """The data files that a table has now; none if there is no such table."""

    @abstractmethod
    def check(self, change: Change) -> None:
        """Raise `WrongUse` if a table cannot take a change, such as another type of a column."""

    @abstractmethod
    def commit(self, change: Change, batch: int) -> None:
        """Change a table, creating it if it is missing, and record the batch in it. `batch` was called before."""

    @abstractmethod
    def seal(self, table: str) -> Any:
        """Make the last commit to a table durable; the version of the table that it made."""

    @abstractmethod
    def vacuum(self, table: str, retention: datetime.timedelta) -> int:
        """Remove data files that are in no version younger than `retention`; their number."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Intent:
    """A batch that is committed, as the manifest says."""

    batch: int
    changes: tuple[Change, ...]
    state: Mapping[str, Any]
    report: bool


class TransactionPublisher(Publisher):
    """Publishes to the tables of one format in one store; closes both."""

    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables
        self._versions: dict[str, Any] = {}
        self.filesystem = store.filesystem
        self.checkpoint = None
        self.completed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def where(self, table: str) -> str:
        check_table(table)
        self._store.prepare(table)
        return self._store.path(table)

    def files(self, table: str) -> list[TableFile]:
        return self._tables.files(table)

    def path(self, file: TableFile) -> str:
        return self._store.path(f"{file.table}/{file.name}")

    def publish(self, batch: Batch) -> Checkpoint:
        self._begin(batch)
        changes = self._changes(batch)
        for change in changes:
            self._check(change, batch.number)
        self._store.check(batch.added)
        if batch.report is not None:
            self._store.write(f"{HOME}/{REPORT}", batch.report.read_bytes())
        intent = _Intent(batch.number, changes, dict(batch.state), batch.report is not None)
        self._commit(intent)
        with self._noted(batch.number):
            return self._complete(intent, changes)

    def note(self, state: Mapping[str, Any]) -> None:
        checkpoint = self._noting(state)
        self._write(CHECKPOINT, {"batch": checkpoint.batch, "state": checkpoint.state, "tables": self._versions})
        self.checkpoint = checkpoint

    def discard(self) -> None:
        if self._unusable is None:
            with contextlib.suppress(StorageFailed):  # the next opening removes what cannot be removed now
                self._remove_left()

    def vacuum(self, retention: datetime.timedelta = RETENTION) -> int:
        return sum(self._tables.vacuum(table, retention) for table in self._store.tables())

    def close(self) -> None:
        self._tables.close()
        self._store.close()

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        has_checkpoint = self._store.read(f"{HOME}/{CHECKPOINT}") is not None
        unrecorded = "parquet" if has_checkpoint else None
        found = self._read(FORMAT, lambda found: str(found["format"]), "format of the tables", CHECKPOINT_HINT)
        refuse_format(self._store.out, self._tables.format, found or unrecorded or self._tables.format)
        if found is None:
            self._write(FORMAT, {"format": self._tables.format})
        self._read_checkpoint()
        intent = self._read(MANIFEST, _parse_intent, "manifest of the pipeline", MANIFEST_HINT)
        if intent is not None:
            with self._noted(intent.batch):
                batches = {change.table: self._tables.batch(change.table) for change in intent.changes}
                left = [change for change in intent.changes if batches[change.table] < intent.batch]
                self._complete(intent, left)
            self.completed = True
        with contextlib.suppress(StorageFailed):
            self._remove_left()

    def _read_checkpoint(self) -> None:
        def parse(found: Any) -> tuple[Checkpoint, dict[str, Any]]:
            return parse_checkpoint(found), dict(found.get("tables", {}))

        found = self._read(CHECKPOINT, parse, "checkpoint of the pipeline", CHECKPOINT_HINT)
        if found is not None:
            self.checkpoint, self._versions = found

    def _remove_left(self) -> None:
        """Remove the data files of batches after the last one."""
        last = self.batch - 1

        def remove_from(table: str) -> None:
            for name in self._store.parts(table):
                if (batch_of(name) or 0) > last:
                    self._store.remove(f"{table}/{name}")

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(remove_from, self._store.tables()))

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _changes(self, batch: Batch) -> tuple[Change, ...]:
        added, removed = by_table(batch.added), by_table(batch.removed)
        return tuple(
            Change(
                table,
                plain(schema),
                tuple(batch.partition_by.get(table, ())),
                added.get(table, []),
                removed.get(table, []),
            )
            for table, schema in batch.schemas.items()
        )

    def _check(self, change: Change, batch: int) -> None:
        last = self._tables.batch(change.table)
        if last >= batch:
            reason = f"the table has batch {last}, but the checkpoint says {batch - 1}: {CHECKPOINT_HINT}"
            raise DamagedJournal(f"{self._store.out}/{HOME}/{CHECKPOINT}", 0, reason)
        if change.removed:
            with_changes({change.table: self._tables.files(change.table)}, change.added, change.removed)
        self._tables.check(change)

    def _commit(self, intent: _Intent) -> None:
        """Write the manifest. If that fails, remove it: nothing is in a table yet."""
        try:
            self._write(MANIFEST, _as_json(intent))
        except BaseException:
            self._end(f"{self._store.out}: the manifest of batch {intent.batch} could not be written; open it again")
            with contextlib.suppress(LogwrightError):
                self._store.remove(f"{HOME}/{MANIFEST}")
                self._unusable = None
            raise

    def _complete(self, intent: _Intent, changes: Sequence[Change]) -> Checkpoint:
        """Do the steps of a committed batch that are not done yet. `changes` are those that no table has yet."""
        if self.checkpoint is None or self.checkpoint.batch < intent.batch:
            for change in changes:
                self._tables.commit(change, intent.batch)
            self._versions |= {change.table: self._tables.seal(change.table) for change in intent.changes}
            if intent.report and (report := self._store.read(f"{HOME}/{REPORT}")) is not None:
                self._store.write(REPORT, report)
            checkpoint = {"batch": intent.batch, "state": dict(intent.state), "tables": self._versions}
            self._write(CHECKPOINT, checkpoint)
            self.checkpoint = Checkpoint(intent.batch, intent.state)
        self._store.remove(f"{HOME}/{MANIFEST}")
        return self.checkpoint

    @contextlib.contextmanager
    def _noted(self, batch: int) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._end(f"{self._store.out}: publishing batch {batch} failed; open the directory again to complete it")
            error.add_note(f"Batch {batch} is committed, perhaps not in all tables yet: the next run completes it.")
            raise

    # --- control files ------------------------------------------------------------------------------------------------

    def _write(self, name: str, contents: Mapping[str, Any]) -> None:
        self._store.write(f"{HOME}/{name}", json.dumps({"version": _VERSION, **contents}).encode())

    def _read(self, name: str, parse: Any, what: str, hint: str) -> Any:
        data = self._store.read(f"{HOME}/{name}")
        if data is None:
            return None
        try:
            found = json.loads(data)
            if (version := found.get("version")) != _VERSION:
                raise ValueError(f"version {version} is not known here")
            return parse(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
            reason = f"this {what} is damaged: {why_invalid(error)}; {hint}"
            raise DamagedJournal(f"{self._store.out}/{HOME}/{name}", 0, reason) from error


def _as_json(intent: _Intent) -> dict[str, Any]:
    tables = {
        change.table: {
            "schema": base64.b64encode(change.schema.serialize()).decode(),
            "partition_by": change.partition_by,
            "added": [as_json(file) for file in change.added],
            "removed": [as_json(file) for file in change.removed],
        }
        for change in intent.changes
    }
    return {"batch": intent.batch, "state": dict(intent.state), "report": intent.report, "tables": tables}


def _parse_intent(found: Any) -> _Intent:
    changes = (
        Change(
            str(table),
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(change["schema"], validate=True))),
            tuple(str(name) for name in change["partition_by"]),
            [parse_file(table, file) for file in change["added"]],
            [parse_file(table, file) for file in change["removed"]],
        )
        for table, change in found["tables"].items()
    )
    return _Intent(int(found["batch"]), tuple(changes), dict(found["state"]), bool(found["report"]))
