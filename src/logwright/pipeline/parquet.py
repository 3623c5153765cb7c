"""Parquet files of events and damage, as the tasks of the pipeline write them.

Columns in which few texts repeat go through Arrow as dictionaries, from the format's columns to Parquet, so that no
text is written a second time; numbers that rise are kept as differences. A file is written a row group at a time, and
is on the disk when it is finished.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.format import find_format
from ..core.io.disk import REAL_DISK
from ..core.read.columns import Columns
from ..errors import LogwrightError, StorageFailed
from ..spark.reading import Journal
from .tables import EVENTS

COMPRESSION: Final = "lz4"
"""The fastest that makes it smaller; every reader of Parquet knows it as LZ4_RAW."""
COMPRESSIONS: Final = {
    "none": "none",
    "uncompressed": "none",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "snappy": "snappy",
    "zstd": "zstd",
    "gzip": "gzip",
}
"""What Spark calls them, and what Arrow does."""
ROW_GROUP_BYTES: Final = 32 << 20

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_REPEATING: Final = ("format", "journal", "file", "op", "detail")
"""Columns in which few values repeat: these go through Arrow, and into Parquet, as dictionaries."""
_RISING: Final = ("position", "size", "sequence", "timestamp", "timestamp_ns")
"""Numbers that differ little from one row to the next, so that only the differences are kept."""
WRITTEN: Final = pa.schema(
    [pa.field(column.name, _NAMES if column.name in _REPEATING else column.type) for column in EVENTS]
)
_PAGE_BYTES: Final = 1 << 20
_PAGE_ROWS: Final = 1 << 16


# --- columns ----------------------------------------------------------------------------------------------------------


def filled(batch: pa.RecordBatch, journal: Journal) -> pa.RecordBatch:
    """The columns of `events` out of a batch of the format's columns, as `schemas.fill` makes them for Spark."""
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
    """One value in all rows; `value` is a text, or null."""
    return pa.DictionaryArray.from_arrays(_zeros(rows), pa.array([value], pa.string()))


_no_places = pa.array([], pa.int32())


def _zeros(count: int) -> pa.Array:
    """So many zeros, of which batches of one size can share the memory."""
    global _no_places
    if len(_no_places) < count:
        _no_places = pa.repeat(pa.scalar(0, pa.int32()), count)
    return _no_places.slice(0, count)


def _encoded(columns: Columns, batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of texts as a dictionary. What is made of one column of the format is made of its distinct values."""
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
    """The distinct values of a column, and which of them each row has. That there is but one is seen quickly."""
    if len(data) and pa.types.is_integer(data.type) and not data.null_count:
        least_and_most = pc.min_max(data)
        if least_and_most["min"] == least_and_most["max"]:
            return data.slice(0, 1), _zeros(len(data))
    encoded = data if pa.types.is_dictionary(data.type) else data.dictionary_encode("encode")
    return encoded.dictionary, encoded.indices


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written: of which table, its name in the directory of that table, and its size."""

    table: str
    name: str
    rows: int
    bytes: int


class ParquetFile:
    """A Parquet file that a task writes: created with its first rows, on the disk when it is finished."""

    def __init__(self, directory: Path, table: str, number: int, schema: pa.Schema, compression: str) -> None:
        # No two attempts at one task write to the same name.
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
        """Write what has gathered as one row group."""
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
            store_schema=False,  # who reads it gets texts, and not Arrow's dictionaries
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
            with contextlib.suppress(Exception):  # it failed already, and what is written is of no use
                if opened is not None:
                    opened.close()
        with contextlib.suppress(LogwrightError):
            REAL_DISK.remove(self._path)


def write_empty(directory: Path, schema: pa.Schema) -> Written:
    """A Parquet file without rows, so that a table has its columns also when nothing is in it."""
    with ParquetFile(directory, directory.name, 0, schema, COMPRESSION) as file:
        return file.finish()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed("write", path, error) from error
