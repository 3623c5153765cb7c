"""SQL for the page: one SELECT over the journals of the catalog, by DuckDB, without access to files.

A quoted name in the query is a journal of the catalog, with `:TABLE` and `@TIME` as in `logwright sql`. The connection
cannot read or write files, load extensions or change its settings, and its memory is limited. A query is interrupted
when the browser leaves, or after a minute.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from threading import Timer
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..arrow.dataset import JournalDataset
from ..arrow.moment import Moment
from ..arrow.tables import JournalTable
from ..errors import LogwrightError, WrongUse
from .catalog import Catalog

SHOWN_ROWS: Final = 1000
_MOST_SECONDS: Final = 60.0
_SHOWN_BYTES: Final = 1024
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    "threads": "2",
}
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")
_TABLE: Final = re.compile(r"(.*?)(?::(\w+))?(?:@(.+))?", re.DOTALL)


class Query:
    """One query and its result, which is read once. What interrupts it is added to `leaving` before it runs."""

    def __init__(self, catalog: Catalog, text: str, leaving: list[Callable[[], None]]) -> None:
        try:
            import duckdb
        except ImportError:
            raise WrongUse("SQL needs duckdb, which is not installed: pip install 'logwright[sql]'") from None
        self._errors = (duckdb.Error, pa.ArrowException, RuntimeError, OSError)
        self._moment = Moment()
        self._tables: list[JournalTable] = []
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")
        self._timer = Timer(_MOST_SECONDS, self.interrupt)
        self._timer.daemon = True
        self._timer.start()
        self.is_interrupted = False
        leaving.append(self.interrupt)
        try:
            with self._explained():
                statements = self._connection.extract_statements(text)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise WrongUse("write one SELECT: nothing else is answered here")
                self._register(catalog, text)
                relation = self._connection.sql(text)
                if relation is None:
                    raise WrongUse("this query has no rows")
                self._reader = pa.RecordBatchReader.from_stream(relation)
        except BaseException:
            self.close()
            raise
        self.schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the result."""
        with self._explained():
            yield from self._reader

    def interrupt(self) -> None:
        """End the query at once, from another thread."""
        self.is_interrupted = True
        self._moment.is_over = True
        with suppress(*self._errors):  # it is closed
            self._connection.interrupt()

    def close(self) -> None:
        self._timer.cancel()
        self._connection.close()

    def _register(self, catalog: Catalog, text: str) -> None:
        known = set(catalog.names())
        for single, double in _QUOTED.findall(text):
            name = single.replace("''", "'") or double.replace('""', '"')
            journal, table, at = name, None, None
            if name not in known:
                match = _TABLE.fullmatch(name)
                assert match is not None, "everything may be empty"
                journal, table, at = match[1], match[2], match[3]
            if journal not in known:
                continue
            entry = catalog.entry(journal)
            made = JournalTable(
                str(entry.path),
                table or "records",
                at=at,
                mode="permissive",
                on_damage=lambda _: None,
                format=entry.journal.format,
                moment=self._moment,
            )
            self._tables.append(made)
            self._connection.register(name, JournalDataset(made))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except LogwrightError:
            raise
        except self._errors as error:
            for table in self._tables:
                if table.failure is not None:
                    raise table.failure from None
            if self.is_interrupted:
                raise WrongUse("the query was interrupted") from None
            text = " ".join(str(error).partition("\nLINE ")[0].split())
            raise WrongUse(text or type(error).__name__) from None


def shown(query: Query) -> dict[str, Any]:
    """The first rows of a result, as JSON."""
    rows: list[list[Any]] = []
    is_cut = False
    for batch in query.batches():
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            if len(rows) >= SHOWN_ROWS:
                is_cut = True
                break
            rows.append([_cell(value) for value in values])
        if is_cut:
            break
    columns = [{"name": field.name, "type": str(field.type), "kind": _kind(field.type)} for field in query.schema]
    return {"columns": columns, "rows": rows, "cut": is_cut}


def _kind(type: pa.DataType) -> str:
    if pa.types.is_temporal(type):
        return "time"
    is_number = pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    return "number" if is_number else "text"


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    if isinstance(value, bytes):
        return value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str):
        return value[:_SHOWN_BYTES]
    return json.dumps(value, default=str)[:_SHOWN_BYTES]


def as_csv(query: Query) -> Iterator[bytes]:
    """The whole result as CSV, piece by piece. Bytes are text, or base64 if they are not UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(query.schema.names)
    for batch in query.batches():
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer.writerow([_csv_cell(value) for value in values])
        yield _taken(text).encode()
    yield _taken(text).encode()


def _taken(text: io.StringIO) -> str:
    found = text.getvalue()
    text.seek(0)
    text.truncate()
    return found


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if isinstance(value, datetime) else value


def as_parquet(query: Query) -> Iterator[bytes]:
    """The whole result as a Parquet file, piece by piece."""
    pieces = _Pieces()
    with pq.ParquetWriter(pa.PythonFile(pieces, "w"), query.schema, compression="zstd") as writer:
        for batch in query.batches():
            writer.write_batch(batch)
            yield pieces.taken()
    yield pieces.taken()


class _Pieces(io.RawIOBase):
    """A file that is only written; what was written is taken from it."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def taken(self) -> bytes:
        found = bytes(self._held)
        self._held.clear()
        return found
