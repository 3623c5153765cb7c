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

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from ..core.bytes.outcome import Damage, Mode
from ..errors import LogwrightError, WrongUse
from .bounds import Filter
from .tables import JournalTable


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
    return JournalDataset(JournalTable(str(path), table, at=at, mode=mode, on_damage=on_damage, format=format))


class JournalDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """Records or another table of journals; see `dataset`.

    For functions of Arrow that scan a dataset themselves, it has one file: all of its rows, made when it is first read.
    """

    def __init__(self, table: JournalTable) -> None:
        self.table = table
        files, format = fs.PyFileSystem(_Rows(table)), ds.IpcFileFormat()
        super().__init__([format.make_fragment(table.name, files)], table.schema, format, files)

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
        return JournalScanner(self.table, wanted, chosen, columns, filter)

    def _cheapest(self) -> pa.Field:
        """The column to decode when rows are only counted."""
        fixed = [field for field in self.schema if pa.types.is_primitive(field.type)]
        return next((field for field in fixed if field.name == "position"), fixed[0])

    def filter(self, expression: ds.Expression) -> ds.Dataset:
        """A dataset of the records that match."""
        return ds.InMemoryDataset(self.to_table(filter=expression))

    def replace_schema(self, schema: pa.Schema) -> ds.FileSystemDataset:
        """A dataset with other columns; those that the journal does not have are null. Filters exclude no files."""
        return ds.FileSystemDataset(list(self.get_fragments()), schema, self.format, self.filesystem)


class JournalScanner:
    """A scan of a dataset, as a `pyarrow.dataset.Scanner`; it can be used once.

    Arrow's scanner reads ahead in its own thread, which may still run Python when the process ends. This one reads each
    batch on request, in the caller's thread.
    """

    def __init__(
        self, table: JournalTable, wanted: pa.Schema, chosen: Filter, columns: Any, filter: ds.Expression | None
    ) -> None:
        self.dataset_schema = wanted
        self._table = table
        self._batches = table.batches(wanted, chosen)
        self._columns = columns
        self._filter = filter
        self.projected_schema = self._projected(wanted.empty_table()).projected_schema

    def _projected(self, data: pa.Table | pa.RecordBatch) -> ds.Scanner:
        return ds.InMemoryDataset(data).scanner(columns=self._columns, filter=self._filter)

    def _chosen(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                if self._filter is None and batch.schema == self.projected_schema:
                    yield batch
                else:
                    yield from self._projected(batch).to_table().to_batches()
        except LogwrightError as error:
            self._table.failure = error
            raise

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


class _Rows(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system for Arrow with one file, which has all rows of a table. It is made in memory when it is opened."""

    def __init__(self, table: JournalTable) -> None:
        self._table = table

    @cached_property
    def _data(self) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        schema = self._table.schema
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in self._table.batches(schema, Filter(None, schema)):
                writer.write_batch(batch)
        return sink.getvalue()

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._data)

    def get_type_name(self) -> str:
        return "journal"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *arguments: Any) -> NoReturn:
        raise WrongUse(f"{self._table.location}: a journal is no file system")

    open_input_stream = open_output_stream = open_append_stream = get_file_info = get_file_info_selector = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
