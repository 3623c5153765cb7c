"""Write the data files of tables as Parquet, copy rows from one to another, and preview tables without Spark.

Columns with few distinct texts are dictionaries in Arrow and in Parquet; rising numbers are stored as differences. A
file is written one row group at a time, to any file system of pyarrow. The publisher makes it durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
from pyarrow import fs

from ..core.arrow.columns import NAMES, zeros
from ..errors import StorageFailed
from .publish import TableFile, part_name
from .tables import partition_column

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

_REPEATING: Final = frozenset(
    (
        *("format", "journal", "file", "op", "queue", "store", "shard", "kind", "state", "outcome", "part", "status"),
        *("first_file", "last_file", "added_file", "reserved_file", "done_file"),
    )
)
"""Columns with few distinct texts."""
_RISING: Final = frozenset(
    (
        *("position", "size", "sequence", "timestamp", "timestamp_ns", "offset", "item", "t", "minute", "added"),
        *("added_position", "reserved_position", "done_position", "first_position", "last_position", "transaction"),
        *("valid_from", "valid_from_ns", "valid_to", "valid_to_ns"),
    )
)
"""Numbers that differ little from one row to the next."""
_ALSO_REPEATING: Final = ("k", "changes.list.element.op", "changes.list.element.file")
_PAYLOAD: Final = frozenset(
    ("key", "value", "data", "before", "after", "end_data", "o", "ranges", "decoded", "changes")
)
"""Columns without statistics."""
_PAGE_BYTES: Final = 1 << 20
_PAGE_ROWS: Final = 1 << 16
_COPIED_ROWS: Final = 1 << 16
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


# --- columns ----------------------------------------------------------------------------------------------------------


def written(schema: pa.Schema) -> pa.Schema:
    """A schema with dictionaries for the columns that have few distinct texts."""
    return pa.schema(
        [
            pa.field(each.name, NAMES if each.name in _REPEATING and each.type == pa.string() else each.type)
            for each in schema
        ]
    )


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the columns of a schema that `written` has made."""
    if rows.schema.equals(schema):
        return rows
    return pa.RecordBatch.from_arrays([_fitted(rows.column(each.name), each.type) for each in schema], schema=schema)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)


def distinct(data: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The distinct values of a column, and the index of each row's value. Fast if there is only one value."""
    if len(data) and pa.types.is_integer(data.type) and not data.null_count:
        least_and_most = pc.min_max(data)
        if least_and_most["min"] == least_and_most["max"]:
            return data.slice(0, 1), zeros(len(data))
    encoded = data if pa.types.is_dictionary(data.type) else data.dictionary_encode("encode")
    return encoded.dictionary, encoded.indices


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where the data files of a table go in one batch, and how they are written. It can be pickled."""

    table: str
    filesystem: fs.FileSystem
    directory: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    batch: int
    compression: str = COMPRESSION

    @property
    def stored(self) -> pa.Schema:
        """The columns that the files have: those that the table is partitioned by are in their names."""
        return written(pa.schema([each for each in self.schema if each.name not in self.partition_by]))


class Background:
    """Writes one row group at a time in another thread, while the caller makes the next rows."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Begin some work after the work before it has ended; raises the error of that."""
        self.wait()
        self._running = self._pool.submit(work)

    def wait(self) -> None:
        """Wait until the work has ended; raises its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()


class ParquetFile:
    """A data file, created with its first rows. Row groups are written in the background, if there is one."""

    def __init__(
        self, target: Target, partition: Mapping[str, str | None], background: Background | None = None
    ) -> None:
        self._target = target
        self._background = background
        self._partition = dict(partition)
        folders = [f"{name}={_NULL if value is None else quote(value, safe='')}" for name, value in partition.items()]
        self._name = "/".join((*folders, part_name(target.batch)))  # each attempt of a task has its own name
        self._path = f"{target.directory}/{self._name}"
        self._schema = target.stored
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, which must have the columns of the table."""
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        fit = fitted(rows, self._schema)
        self._waiting.append(fit)
        self.waiting_bytes += fit.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Write the waiting rows as one row group."""
        rows, self._waiting, self.waiting_bytes = self._waiting, [], 0
        if self._background is None:
            self._write(rows)
        else:
            self._background.begin(partial(self._write, rows))

    def _write(self, rows: list[pa.RecordBatch]) -> None:
        with _translated("write", self._path):
            if self._writer is None:
                self._open()
            table = pa.Table.from_batches(rows, self._schema).unify_dictionaries()
            if table.num_rows:
                self._writer.write_table(table, row_group_size=table.num_rows)

    def _open(self) -> None:
        names = self._schema.names
        repeating = [each.name for each in self._schema if pa.types.is_dictionary(each.type)]
        if isinstance(self._target.filesystem, fs.LocalFileSystem):
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self._sink = self._target.filesystem.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._target.compression,
            use_dictionary=[*repeating, *(name for name in _ALSO_REPEATING if self._has_texts(name.partition(".")[0]))],
            column_encoding={
                name: "DELTA_BINARY_PACKED" for name in names if name in _RISING and self._has_numbers(name)
            },
            write_statistics=[name for name in names if name not in _PAYLOAD],
            data_page_size=_PAGE_BYTES,
            write_batch_size=_PAGE_ROWS,
            store_schema=False,  # readers get strings, not Arrow dictionaries
        )

    def _has_texts(self, name: str) -> bool:
        return name in self._schema.names and not _is_number(self._schema.field(name).type)

    def _has_numbers(self, name: str) -> bool:
        return _is_number(self._schema.field(name).type)

    def finish(self) -> TableFile:
        """Complete the file."""
        self._wait()
        if self._waiting or self._writer is None:
            self.write()
            self._wait()
        with _translated("write", self._path):
            self._writer.close()
            self._sink.close()
            size = self._target.filesystem.get_file_info(self._path).size
        return TableFile(self._target.table, self._name, self.rows, size, self._partition)

    def discard(self) -> None:
        """Close and remove the file."""
        with contextlib.suppress(Exception):
            self._wait()
        for opened in (self._writer, self._sink):
            with contextlib.suppress(Exception):  # the file is removed anyway
                if opened is not None:
                    opened.close()
        with contextlib.suppress(OSError):
            self._target.filesystem.delete_file(self._path)

    def _wait(self) -> None:
        if self._background is not None:
            self._background.wait()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


class TableSink:
    """The data files of one table that are written together: one for each partition.

    The rows that wait in memory are limited for all partitions together.
    """

    def __init__(self, target: Target, background: Background | None = None) -> None:
        self._target = target
        self._background = background
        self._files: dict[tuple[str | None, ...], ParquetFile] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        columns = self._target.partition_by
        if not columns:
            self._file(()).add(rows)
            return
        values = [partition_column(rows, name).cast(pa.string()) for name in columns]
        keys = pa.Table.from_arrays([*values, pa.array(range(rows.num_rows), pa.int64())], [*columns, "row"])
        for group in keys.group_by(list(columns)).aggregate([("row", "list")]).to_pylist():
            chosen = rows.take(pa.array(sorted(group["row_list"]), pa.int64()))
            self._file(tuple(group[name] for name in columns)).add(chosen)
        self._relieve()

    def _relieve(self) -> None:
        """Write the partitions with the most waiting rows if those of all partitions together are too large."""
        waiting = sum(file.waiting_bytes for file in self._files.values())
        if waiting < ROW_GROUP_BYTES:
            return
        for file in sorted(self._files.values(), key=lambda file: -file.waiting_bytes):
            if waiting <= ROW_GROUP_BYTES // 2:
                break
            waiting -= file.waiting_bytes
            file.write()

    def _file(self, values: tuple[str | None, ...]) -> ParquetFile:
        if values not in self._files:
            partition = dict(zip(self._target.partition_by, values, strict=True))
            self._files[values] = ParquetFile(self._target, partition, self._background)
        return self._files[values]

    @property
    def rows(self) -> dict[tuple[str | None, ...], int]:
        """The number of rows so far in each partition."""
        return {values: file.rows for values, file in self._files.items()}

    def finish(self) -> dict[tuple[str | None, ...], TableFile]:
        return {values: file.finish() for values, file in self._files.items() if file.rows}

    def finish_empty(self) -> TableFile:
        """A file without rows, so that an empty table has its columns."""
        partition = dict.fromkeys(self._target.partition_by)
        return ParquetFile(self._target, partition).finish()

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()


@contextlib.contextmanager
def _translated(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(action, path, error) from error


# --- rows that exist already ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of a data file: some ranges of them, each by its first row and its number of rows; all for None."""

    path: str
    ranges: tuple[tuple[int, int], ...] | None = field(default=None)


def rows_of(filesystem: fs.FileSystem, source: Source, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows of a source, in batches. Row groups without any of them are not read."""
    with _translated("read", source.path), pq.ParquetFile(source.path, filesystem=filesystem) as file:
        groups, first = [], 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            wanted = source.ranges is None or any(a < first + rows and first < a + n for a, n in source.ranges)
            groups += [(group, first)] if wanted and rows else []
            first += rows
        for group, start in groups:
            for batch in file.iter_batches(_COPIED_ROWS, [group], columns=columns):
                yield from _within(batch, start, source.ranges)
                start += batch.num_rows


def _within(batch: pa.RecordBatch, first: int, ranges: Iterable[tuple[int, int]] | None) -> Iterator[pa.RecordBatch]:
    if ranges is None:
        yield batch
        return
    for start, rows in ranges:
        low, high = max(0, start - first), min(batch.num_rows, start + rows - first)
        if low < high:
            yield batch.slice(low, high - low)


def copied(target: Target, partition: Mapping[str, str | None], sources: Iterable[Source]) -> TableFile:
    """Copy rows of data files of a partition to a new one."""
    file = ParquetFile(target, partition)
    try:
        for source in sources:
            for batch in rows_of(target.filesystem, source):
                file.add(batch)
        return file.finish()
    except BaseException:
        file.discard()
        raise


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
