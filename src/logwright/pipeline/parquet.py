"""Write the Parquet files of events and damage in the tasks of the pipeline, and preview tables without Spark.

Columns with few distinct strings are dictionaries from the format's columns to Parquet; increasing numbers are stored
as differences. A file is written one row group at a time, and is synced when it is finished.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from ..core.format import find_format
from ..core.io.disk import REAL_DISK
from ..core.read.columns import Columns
from ..errors import LogwrightError, StorageFailed
from ..spark.reader import Journal
from .tables import EVENTS

COMPRESSION: Final = "lz4"
"""The fastest compression; in Parquet it is LZ4_RAW, which every reader knows."""
COMPRESSIONS: Final = {
    "none": "none",
    "uncompressed": "none",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "snappy": "snappy",
    "zstd": "zstd",
    "gzip": "gzip",
}
"""The names in Spark, and those in Arrow."""
ROW_GROUP_BYTES: Final = 32 << 20

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_REPEATING: Final = ("format", "journal", "file", "op", "detail")
"""Columns with few distinct values: dictionaries in Arrow and in Parquet."""
_RISING: Final = ("position", "size", "sequence", "timestamp", "timestamp_ns")
"""Numbers that differ little from one row to the next: stored as differences."""
WRITTEN: Final = pa.schema(
    [pa.field(column.name, _NAMES if column.name in _REPEATING else column.type) for column in EVENTS]
)
_PAGE_BYTES: Final = 1 << 20
_PAGE_ROWS: Final = 1 << 16


# --- columns ----------------------------------------------------------------------------------------------------------


def filled(batch: pa.RecordBatch, journal: Journal) -> pa.RecordBatch:
    """The columns of `events`, made from a batch of the format's columns, as `schemas.fill` does for Spark."""
    columns = find_format(journal.format).columns
    constant = {"format": journal.format, "journal": journal.name}
    arrays = []
    for column in WRITTEN:
        if column.name in constant:
            arrays.append(_repeated(constant[column.name], batch.num_rows))
        elif column.name in _REPEATING:
            arrays.append(_encoded(columns, batch, column.name))
        else:
            found = columns.column(batch, column.name)
            arrays.append(pa.nulls(batch.num_rows, column.type) if found is None else found)
    return pa.RecordBatch.from_arrays(arrays, schema=WRITTEN)


def _repeated(value: Any, rows: int) -> pa.DictionaryArray:
    """The same string, or null, in all rows."""
    return pa.DictionaryArray.from_arrays(_zeros(rows), pa.array([value], pa.string()))


_no_places = pa.array([], pa.int32())


def _zeros(count: int) -> pa.Array:
    """`count` zeros; batches share the memory."""
    global _no_places
    if len(_no_places) < count:
        _no_places = pa.repeat(pa.scalar(0, pa.int32()), count)
    return _no_places.slice(0, count)


def _encoded(columns: Columns, batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of strings as a dictionary. A column made from one column of the format is made from its distinct
    values.
    """
    given = batch.column(name) if name in batch.schema.names else None
    if given is not None and given.type == _NAMES:
        return given
    sources = [source for source in columns.sources([name], sharded=False) if source in batch.schema.names]
    if len(sources) == 1:
        distinct, indices = _distinct(batch.column(sources[0]))
        values = columns.column(pa.RecordBatch.from_arrays([distinct], names=sources), name)
        if values is not None and values.null_count == 0:
            return pa.DictionaryArray.from_arrays(indices, values)
    found = columns.column(batch, name)
    return pa.nulls(batch.num_rows, _NAMES) if found is None else found.dictionary_encode()


def _distinct(data: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The distinct values of a column, and the index of each row's value. Fast if there is only one value."""
    if len(data) and pa.types.is_integer(data.type) and not data.null_count:
        least_and_most = pc.min_max(data)
        if least_and_most["min"] == least_and_most["max"]:
            return data.slice(0, 1), _zeros(len(data))
    encoded = data if pa.types.is_dictionary(data.type) else data.dictionary_encode("encode")
    return encoded.dictionary, encoded.indices


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written: its table, its name in the directory of the table, and its size."""

    table: str
    name: str
    rows: int
    bytes: int


class ParquetFile:
    """A Parquet file that a task writes: created with its first rows, synced by `finish`."""

    def __init__(self, directory: Path, table: str, number: int, schema: pa.Schema, compression: str) -> None:
        # Each attempt of a task uses its own name.
        self._path = directory / f"{number:06d}-{secrets.token_hex(8)}.parquet"
        self._table = table
        self._schema = schema
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        """Write the waiting batches as one row group."""
        with _translated(self._path):
            if self._writer is None:
                self._open()
            table = pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries()
            if table.num_rows:
                self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []
        self._waiting_bytes = 0

    def _open(self) -> None:
        repeating = [column.name for column in self._schema if pa.types.is_dictionary(column.type)]
        rising = {name: "DELTA_BINARY_PACKED" for name in self._schema.names if name in _RISING}
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._compression,
            use_dictionary=repeating,
            column_encoding=rising,
            write_statistics=[name for name in self._schema.names if name not in ("key", "value")],
            data_page_size=_PAGE_BYTES,
            write_batch_size=_PAGE_ROWS,
            store_schema=False,  # readers get strings, not Arrow dictionaries
        )

    def finish(self) -> Written:
        """Complete the file and sync it."""
        if self._waiting or self._writer is None:
            self._write()
        with _translated(self._path):
            self._writer.close()
            self._sink.close()
        file = REAL_DISK.open(self._path, "read")
        try:
            file.sync()
            return Written(self._table, self._path.name, self.rows, file.size())
        finally:
            file.close()

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            return
        for opened in (self._writer, self._sink):
            with contextlib.suppress(Exception):  # the file is removed anyway
                if opened is not None:
                    opened.close()
        with contextlib.suppress(LogwrightError):
            REAL_DISK.remove(self._path)


def write_empty(directory: Path, schema: pa.Schema) -> Written:
    """Write a Parquet file without rows, so that an empty table has its columns."""
    with ParquetFile(directory, directory.name, 0, schema, COMPRESSION) as file:
        return file.finish()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed("write", path, error) from error


class Preview(NamedTuple):
    """The number of rows of a table, and the first of them."""

    rows: int
    columns: list[str]
    first: list[dict[str, Any]]


def preview(table: Path | str, count: int, columns: Sequence[str] = ()) -> Preview:
    """The first `count` rows of a Parquet table, in those of `columns` that it has; in all columns if none is given."""
    data = pyarrow.dataset.dataset(table, format="parquet", partitioning="hive")
    names = [name for name in columns or data.schema.names if name in data.schema.names]
    return Preview(data.count_rows(), names, data.head(count, columns=names).to_pylist())
