"""Journals as files that other programs read: JSON lines, CSV, and databases of SQLite and DuckDB.

JSON lines and CSV have the fields of `dump --json`: bytes are base64, times are numbers. A field of CSV that is an
object or a list is JSON. They can be read back (see `read_rows`). Databases have the table `records` in typed columns,
and the other tables of the format (see `logwright.dataset`) under their short names.

A file gets its name when all of it is on the disk.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ..core.format import Format
from ..core.io.disk import REAL_DISK
from ..core.read.report import Progress
from ..core.times import shown_time
from ..errors import LogwrightError, WrongUse
from .json_rows import JsonRows

LINES: Final = ("jsonl", "csv")
DATABASES: Final = ("sqlite", "duckdb")
Tables: TypeAlias = Iterable[tuple[str, pa.Schema, Iterable[pa.RecordBatch]]]
"""The tables of a database: name, columns and rows."""
_ROWS: Final = 10_000
_SIDE_FILES: Final = ("-journal", "-wal", "-shm", ".wal")
"""What the names of files that databases use while they are written end in."""


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A temporary path for a file that gets its name, or is removed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        _remove(partial)
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
    except BaseException:
        _remove(partial)
        raise
    REAL_DISK.rename(partial, path)
    REAL_DISK.sync_directory(path.parent)


def _remove(partial: Path) -> None:
    for ending in ("", *_SIDE_FILES):
        with suppress(FileNotFoundError):
            partial.with_name(partial.name + ending).unlink()


# --- lines ------------------------------------------------------------------------------------------------------------


def write_lines(path: Path, kind: str, format: Format, records: Iterable[dict[str, Any]], names: Sequence[str]) -> int:
    """Write objects of a format as JSON lines, or as CSV with these columns; their number."""
    as_json = {name for name, type in format.columns.json_fields.items() if type == pa.json_()}
    rows = 0
    with appearing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        if kind == "jsonl":
            for record in records:
                file.write(json.dumps(record) + "\n")
                rows += 1
            return rows
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for record in records:
            writer.writerow([_cell(record.get(name), name in as_json) for name in names])
            rows += 1
    return rows


def _cell(value: Any, as_json: bool) -> Any:
    return json.dumps(value) if as_json or isinstance(value, dict | list | bool) else value


def csv_columns(format: Format, row_fields: Sequence[str], part_name: str | None) -> list[str]:
    """The columns of CSV: the place of a record, its fields, and the part of the journal that it is in, if any."""
    fields = ("end_data",) if "operations" in row_fields else format.columns.json_fields
    names = dict.fromkeys(("file", "position", "size", *row_fields, *fields))
    return [name for name in names if name != "store"] + ([] if part_name is None else [part_name])


def read_rows(source: Path, kind: str, rows: JsonRows, progress: Progress | None = None) -> Iterator[None]:
    """Add the objects of a file to rows; pauses after some thousand, so that they can be taken."""
    total = source.stat().st_size
    with source.open("rb") as file:
        found: Generator[tuple[int, Any], None, None] = _json_lines(file) if kind == "jsonl" else _csv_lines(file, rows)
        try:
            for number, (line, fields) in enumerate(found, 1):
                rows.add_text(fields, line) if isinstance(fields, bytes) else rows.add(fields, line)
                if number % _ROWS == 0:
                    yield
                    if progress is not None:
                        progress(file.tell(), total)
        except WrongUse as error:
            raise WrongUse(f"{source}: {error}") from None
        finally:
            found.close()
    yield


def _json_lines(file: io.BufferedReader) -> Generator[tuple[int, bytes], None, None]:
    number = 0
    while text := file.readline():
        number += 1
        if text.strip():
            yield number, text


def _csv_lines(file: io.BufferedReader, rows: JsonRows) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """The rows of CSV as objects."""
    csv.field_size_limit(1 << 30)
    text = io.TextIOWrapper(file, "utf-8", newline="")
    try:
        reader = csv.DictReader(text, strict=True)
        for row in reader:
            line = reader.line_num
            if None in row or None in row.values():
                raise WrongUse(f"line {line}: the row does not have as many fields as the header")
            yield line, {name: _uncelled(line, name, value, rows) for name, value in row.items()}
    except (csv.Error, UnicodeDecodeError) as error:
        raise WrongUse(f"this is not CSV: {error}") from None
    finally:
        text.detach()


def _uncelled(line: int, name: str, cell: str, rows: JsonRows) -> Any:
    """A cell as the value that it has in JSON."""
    kind = rows.types.get(name)
    if kind is None and name != "operations":
        return cell or None
    if kind is not None and (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        return cell if pa.types.is_binary(kind) else cell or None
    try:
        return json.loads(cell) if cell else None
    except ValueError:
        raise WrongUse(f"line {line}: {name} is not a number or JSON: {cell!r}") from None


# --- databases --------------------------------------------------------------------------------------------------------


def write_database(path: Path, kind: str, tables: Tables) -> dict[str, int]:
    """Write tables to a new database; the number of rows of each."""
    with appearing(path) as partial:
        return _write_sqlite(partial, tables) if kind == "sqlite" else _write_duckdb(partial, tables)


def _write_sqlite(path: Path, tables: Tables) -> dict[str, int]:
    rows: dict[str, int] = {}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")  # the file is synced as a whole, before it gets its name
        for name, schema, batches in tables:
            columns = ", ".join(f'"{field.name}" {_sqlite_type(field.type)}' for field in schema)
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            connection.execute("BEGIN")
            insert = f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(schema))})'
            rows[name] = 0
            for batch in batches:
                values = (_sqlite_values(column) for column in batch.columns)
                connection.executemany(insert, zip(*values, strict=True))
                rows[name] += batch.num_rows
            connection.execute("COMMIT")
    return rows


def _sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) else "TEXT"


def _sqlite_values(column: pa.Array) -> list[Any]:
    """Values as SQLite stores them: times are texts, lists and structures JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        scale = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else shown_time(number * scale) for number in numbers]
    values: list[Any] = column.to_pylist()
    if pa.types.is_nested(kind):
        return [None if value is None else json.dumps(value, default=str) for value in values]
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in values]
    return values


def _write_duckdb(path: Path, tables: Tables) -> dict[str, int]:
    try:
        import duckdb
    except ImportError:
        raise WrongUse("a database of DuckDB needs DuckDB: pip install 'logwright[sql]'") from None
    rows: dict[str, int] = {}
    failure: list[BaseException] = []

    def kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (LogwrightError, KeyboardInterrupt) as error:  # DuckDB replaces it by an error of its own
            failure.append(error)
            raise

    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, schema, batches in tables:
            connection.register("#rows", pa.RecordBatchReader.from_batches(schema, kept(batches)))
            try:
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM "#rows"')
            except Exception as error:
                if failure:
                    raise failure[0] from None
                if str(error) == "Query interrupted":
                    raise KeyboardInterrupt from None  # DuckDB has taken the signal
                raise
            connection.unregister("#rows")
            counted = connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()
            rows[name] = int(counted[0][0])
        connection.execute("CHECKPOINT")
    return rows
