"""Delta tables, by `deltalake`: a commit adds and removes files that workers wrote, without reading their rows.

One commit per table and batch has an add action for each new file, a remove action for each replaced one, and the
application transaction `logwright` with the number of the batch. The library does not refuse a transaction that was
committed before, so the number is looked up first. Two commits of the same batch at the same time are refused by it.
New columns are added by a commit of their own, before that of the batch.

`deltalake` does not sync what it writes to a local disk. The entries of the log are synced here, before the batch
counts as published. A power cut before that may leave an empty entry: readers ignore it, and the next opening commits
again.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from ...errors import StorageFailed, WrongUse
from .publisher import TableFile
from .store import Store
from .transactions import Change, Tables

_APPLICATION: Final = "logwright"
_AT_ONCE: Final = 8
_CONFIGURATION: Final = {"delta.checkpointInterval": "20"}
"""What a commit costs grows with the number of commits since the last checkpoint of the log."""
_MOST_COLUMNS: Final = 32
_MOST_TEXT: Final = 32
"""Of how many columns the least and the greatest values are recorded, and how long a text among them may be."""


class DeltaTables(Tables):
    """The Delta tables in a store. A table that was used stays open: its log is read once, then only what is new."""

    format: ClassVar[str] = "delta"

    def __init__(self, store: Store, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._options = dict(storage_options or {})
        self._opened: dict[str, DeltaTable] = {}

    def batch(self, table: str) -> int:
        with _translated("read", self._store.uri(table)):
            found = self._open(table)
            return 0 if found is None else found.transaction_version(_APPLICATION) or 0

    def files(self, table: str) -> list[TableFile]:
        with _translated("read", self._store.uri(table)):
            found = self._open(table)
            if found is None:
                return []
            columns = found.metadata().partition_columns
            rows = pa.table(found.get_add_actions(flatten=True)).to_pylist()
        return [
            TableFile(
                table,
                unquote(row["path"]),
                row.get("num_records") or 0,
                row["size_bytes"],
                {column: _as_text(row[f"partition.{column}"]) for column in columns},
            )
            for row in rows
        ]

    def check(self, change: Change) -> None:
        found = self._opened.get(change.table)
        if found is None:
            return
        columns = tuple(found.metadata().partition_columns)
        if columns != change.partition_by:
            raise WrongUse(f"{self._store.uri(change.table)} is partitioned by {columns}, not {change.partition_by}")
        types = {field.name: field.type for field in found.schema().fields}
        for field in Schema.from_arrow(change.schema).fields:
            if field.name in types and types[field.name] != field.type:
                there, wanted = types[field.name], field.type
                raise WrongUse(f"{self._store.uri(change.table)}: {field.name} is {there}, and cannot become {wanted}")

    def commit(self, change: Change, batch: int) -> None:
        schema = Schema.from_arrow(change.schema)
        properties = CommitProperties(app_transactions=[Transaction(_APPLICATION, batch)])
        actions = self._actions(change)
        with _translated("commit to", self._store.uri(change.table)):
            table = self._opened.get(change.table) or self._create(change, schema)
            names = {field.name for field in table.schema().fields}
            if new := [field for field in schema.fields if field.name not in names]:
                table.alter.add_columns(new)
                table.update_incremental()
            table.create_write_transaction(
                actions, "append", schema, list(change.partition_by), commit_properties=properties
            )
            table.update_incremental()

    def seal(self, table: str) -> int:
        found = self._opened[table]
        version = found.version()
        names = [f"{table}/_delta_log/{number:020d}.json" for number in (version - 1, version) if number >= 0]
        self._store.settle(names)
        return version

    def vacuum(self, table: str, retention: datetime.timedelta) -> int:
        with _translated("vacuum", self._store.uri(table)):
            found = self._open(table)
            if found is None:
                return 0
            hours = int(retention / datetime.timedelta(hours=1))
            return len(found.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))

    def close(self) -> None:
        self._opened.clear()

    def _open(self, table: str) -> DeltaTable | None:
        found = self._opened.get(table)
        if found is not None:
            found.update_incremental()
            return found
        with contextlib.suppress(TableNotFoundError):
            self._opened[table] = DeltaTable(self._store.uri(table), storage_options=self._options)
        return self._opened.get(table)

    def _create(self, change: Change, schema: Schema) -> DeltaTable:
        self._opened[change.table] = DeltaTable.create(
            self._store.uri(change.table),
            schema,
            partition_by=list(change.partition_by),
            name=change.table,
            configuration=_CONFIGURATION,
            storage_options=self._options,
        )
        return self._opened[change.table]

    def _actions(self, change: Change) -> list[AddAction | RemoveAction]:
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.name, True, now_ms, file.bytes, dict(file.partition)) for file in change.removed
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for file, statistics in zip(change.added, pool.map(self._statistics, change.added), strict=True):
                actions.append(AddAction(file.name, file.bytes, dict(file.partition), now_ms, True, statistics))
        return actions

    def _statistics(self, file: TableFile) -> str:
        path = self._store.path(f"{file.table}/{file.name}")
        try:
            footer = pq.read_metadata(path, filesystem=self._store.filesystem)
        except OSError as error:
            raise StorageFailed("read", f"{self._store.uri(file.table)}/{file.name}", error) from error
        return json.dumps({"numRecords": file.rows, **column_statistics(footer)})


@contextlib.contextmanager
def _translated(action: str, uri: str) -> Iterator[None]:
    """Convert errors of the library to ours. Its messages end with a stack that helps no one."""
    try:
        yield
    except DeltaError as error:
        raise StorageFailed(action, uri, OSError(str(error).partition("\n")[0])) from error
    except OSError as error:
        raise StorageFailed(action, uri, error) from error


def _as_text(value: Any) -> str | None:
    return None if value is None else str(value)


# --- statistics -----------------------------------------------------------------------------------------------------


def column_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The least and the greatest values of columns, and how many are null, for integers, times and short texts."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(min(footer.num_columns, _MOST_COLUMNS)):
        name = footer.schema.column(column).path
        found = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
        if "." in name or not found or any(one is None for one in found):
            continue
        if all(one.has_null_count for one in found):
            nulls[name] = sum(one.null_count for one in found)
        bounds = [one for one in found if one.has_min_max]
        if len(bounds) == len(found):
            low, high = _bounds([one.min for one in bounds]), _bounds([one.max for one in bounds])
            if low and high:
                least[name], greatest[name] = low[0], high[1]
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bounds(values: Sequence[Any]) -> tuple[Any, Any] | None:
    """The least and the greatest of some values as JSON; None if they are not recorded."""
    low, high = min(values), max(values)
    kinds = {type(value) for value in values}
    if kinds == {int} or (kinds == {str} and max(len(low), len(high)) <= _MOST_TEXT):
        return low, high
    if kinds == {datetime.datetime} and low.tzinfo is not None:
        return _as_time(low), _as_time(high)
    return None


def _as_time(value: datetime.datetime) -> str:
    return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
