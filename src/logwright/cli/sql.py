"""`logwright sql`: SQL over journals, in one query or at a prompt."""

from __future__ import annotations

import base64
import csv
import io
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.bytes.outcome import Damage, Mode
from ..core.io.disk import REAL_DISK
from ..core.times import shown_time
from ..errors import LogwrightError, NotFound, WrongUse
from .arguments import DAMAGE_FOUND, GOOD, json_option, mode_option, verb
from .output import Column, Table, describe, escape, format_size, inform, is_terminal, print_json, print_line, warn

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow.query import Session

_ENDINGS: Final = (".csv", ".jsonl", ".parquet")
_PLAN: Final = ["explain_key", "explain_value"]
_PROMPTS: Final = ("sql> ", "...> ")
_HELP: Final = "end a query with ; or an empty line; .quit or Ctrl-D leaves, .help prints this"
_WORDS: Final = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "USING",
    "ON",
    "AND",
    "OR",
    "NOT",
    "NULL",
    "IS",
    "IN",
    "BETWEEN",
    "LIKE",
    "AS",
    "DESC",
    "DISTINCT",
    "HAVING",
    "WITH",
    "UNION",
    "ALL",
    "DESCRIBE",
    "SUMMARIZE",
    "COPY",
    "CREATE",
    "TABLE",
    "count(*)",
    "sum(",
    "min(",
    "max(",
    "avg(",
    "TIMESTAMPTZ",
    "INTERVAL",
]
Write = Callable[["pa.RecordBatch"], None]


@verb(
    "sql",
    examples=[
        ("a quoted path is a table", "logwright sql \"SELECT key, count(*) FROM 'orders' GROUP BY key\""),
        ("the items of a queue", "logwright sql \"SELECT state, count(*) FROM 'queues/jobs:items' GROUP BY state\""),
        ("a store as it was", "logwright sql \"SELECT k, o FROM 'stores:state@2026-01-15T12:00Z'\" --json"),
        ("an overview of the columns", "logwright sql \"SUMMARIZE 'orders'\""),
        (
            "all journals below a directory",
            "logwright sql \"SELECT format, count(*) FROM '.' WHERE journal <> 'damaged' GROUP BY format\"",
        ),
        ("to a file", "logwright sql \"FROM 'orders' WHERE type = 1\" --output some.parquet"),
    ],
)
@click.argument("query", required=False)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write the rows to a new .parquet, .csv or .jsonl file."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@mode_option
@json_option
def command(query: str | None, output: Path | None, as_csv: bool, mode: Mode, as_json: bool) -> int:
    """Run a query of DuckDB in which quoted paths are journals.

    'PATH' has the records of a journal, or of all journals below a directory in the columns that formats share.
    'PATH:TABLE' is another table: damage, items and operations of queues, history and state of stores, segments,
    transactions and versions of pages. 'PATH:state@TIME' is the state of stores at a time. Other quoted names are left
    to DuckDB, which reads Parquet, CSV and JSON files.

    Without QUERY this reads queries at a prompt, or from standard input. Needs the extra sql.
    """
    from ..arrow.query import Session

    if output is not None:
        _check_output(output)
    if as_csv and as_json:
        raise WrongUse("choose one of --csv and --json")
    damages: list[Damage] = []

    def note(name: str, damage: Damage) -> None:
        if damage.kind != "torn_tail":
            damages.append(damage)
        warn(f"{name}: skipped: {describe(Path(), damage)}")

    session = Session(mode, on_damage=note)
    if query is None and is_terminal(sys.stdin) and is_terminal(sys.stdout) and output is None:
        _prompt(session, as_csv=as_csv, as_json=as_json)
    else:
        text = sys.stdin.read() if query is None else query
        rows = _run(session, text, lambda schema: _writer(schema, output, as_csv=as_csv, as_json=as_json))
        if output is not None:
            _report(output, rows, as_json=as_json)
    return DAMAGE_FOUND if damages else GOOD


def _run(session: Session, query: str, writer: Callable[[pa.Schema], AbstractContextManager[Write]]) -> int:
    """Run a query and write its rows; their number."""
    rows = 0
    found = session.batches(query)
    if found is not None:
        schema, batches = found
        names = _distinct(schema.names)
        with writer(schema.empty_table().rename_columns(names).schema) as write:
            for batch in batches:
                write(batch.rename_columns(names))
                rows += batch.num_rows
    return rows


def _report(output: Path, rows: int, *, as_json: bool) -> None:
    if not REAL_DISK.exists(output):
        raise WrongUse(f"the statement has no rows, so {output} was not written")
    size = REAL_DISK.file_size(output)
    if as_json:
        print_json({"output": str(output), "rows": rows, "bytes": size})
    else:
        print_line(f"{output}: {rows} rows, {format_size(size)}")


def _distinct(names: list[str]) -> list[str]:
    """The names of columns, made distinct: a join may have two columns of the same name."""
    found: list[str] = []
    for name in names:
        number = 1
        unique = name
        while unique in found:
            unique = f"{name}_{number}"
            number += 1
        found.append(unique)
    return found


# --- rows -------------------------------------------------------------------------------------------------------------


def _writer(schema: pa.Schema, output: Path | None, *, as_csv: bool, as_json: bool) -> AbstractContextManager[Write]:
    if output is not None:
        return _into_file(schema, output)
    if as_json:
        return _json_lines(schema, print_json)
    if as_csv:
        return _csv(schema, sys.stdout)
    return _plan() if schema.names == _PLAN else _table(schema)


@contextmanager
def _plan() -> Iterator[Write]:
    """The lines that EXPLAIN draws."""

    def add(batch: pa.RecordBatch) -> None:
        for line in "\n".join(batch.column(1).to_pylist()).splitlines():
            print_line(line)

    yield add


@contextmanager
def _table(schema: pa.Schema) -> Iterator[Write]:
    import pyarrow as pa

    def is_number(type: pa.DataType) -> bool:
        return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))

    def add(batch: pa.RecordBatch) -> None:
        for row in _rows(batch):
            table.add(*map(_text, row))

    columns = [Column(field.name, right=is_number(field.type), flexible=not is_number(field.type)) for field in schema]
    with Table(columns) as table:
        yield add


@contextmanager
def _csv(schema: pa.Schema, stream: Any) -> Iterator[Write]:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(schema.names)
    yield lambda batch: writer.writerows(list(map(_text, row)) for row in _rows(batch))


@contextmanager
def _json_lines(schema: pa.Schema, write: Callable[[Any], None]) -> Iterator[Write]:
    def add(batch: pa.RecordBatch) -> None:
        for row in _rows(batch):
            write({name: _json(value) for name, value in zip(schema.names, row, strict=True)})

    yield add


@contextmanager
def _into_file(schema: pa.Schema, path: Path) -> Iterator[Write]:
    """Write rows to a file that gets its name after all of them were synced."""
    import json

    import pyarrow.parquet as pq

    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            if path.suffix == ".parquet":
                with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
                    yield parquet.write_batch
            else:
                stream = io.TextIOWrapper(file, "utf-8", newline="")
                chosen = (
                    _csv(schema, stream)
                    if path.suffix == ".csv"
                    else _json_lines(schema, lambda row: print(json.dumps(row), file=stream))
                )
                with chosen as write:
                    yield write
                stream.flush()
                stream.detach()
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    REAL_DISK.rename(partial, path)
    REAL_DISK.sync_directory(path.parent)


def _check_output(path: Path) -> None:
    if path.suffix not in _ENDINGS:
        raise WrongUse(f"{path}: the name of the file must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
    if REAL_DISK.exists(path):
        raise WrongUse(f"{path} already exists; nothing was overwritten")
    if not REAL_DISK.is_directory(path.parent):
        raise NotFound(f"{path.parent}: no such directory")


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa

    try:
        yield from zip(*(_values(column) for column in batch.columns), strict=True)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise WrongUse(f"a value cannot be printed: {error}; cast it to VARCHAR") from None


def _values(column: pa.Array) -> list[Any]:
    """The values of a column. Times are text, because they may be outside the range of Python's datetime."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    scale = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[column.type.unit]
    texts = [None if value is None else shown_time(value * scale) for value in column.cast(pa.int64()).to_pylist()]
    return texts if column.type.tz is not None else [None if text is None else text.rstrip("Z") for text in texts]


def _text(value: Any) -> str:
    """A value in a cell."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return escape(value)
    if isinstance(value, dict | list):
        import json

        return json.dumps(_json(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(value: Any) -> Any:
    """A value as JSON: bytes in base64, NaN and infinities as null, and other types that JSON lacks as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


# --- the prompt -------------------------------------------------------------------------------------------------------


def _prompt(session: Session, *, as_csv: bool, as_json: bool) -> None:
    with _history():
        inform(_HELP)
        while (query := _next_query(session)) is not None:
            try:
                _run(session, query, lambda schema: _writer(schema, None, as_csv=as_csv, as_json=as_json))
            except LogwrightError as error:
                inform(f"error: {error}")
            except KeyboardInterrupt:
                print_line()


def _next_query(session: Session) -> str | None:
    """The next query that is typed in; None at the end."""
    lines: list[str] = []
    _complete_from(session)
    while True:
        try:
            line = input(_PROMPTS[bool(lines)])
        except EOFError:
            print_line()
            return None
        except KeyboardInterrupt:
            print_line()
            lines = []
            continue
        if not lines and line.strip().rstrip(";") in (".quit", ".exit", "quit", "exit"):
            return None
        if not lines and line.lstrip().startswith("."):
            inform(_HELP)
            continue
        if line.strip():
            lines.append(line)
        if lines and (line.rstrip().endswith(";") or not line.strip()):
            return "\n".join(lines)


@contextmanager
def _history() -> Iterator[None]:
    """The lines of earlier sessions, if the system has readline; those of this one are saved at the end."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "logwright" / "sql_history"
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1000)
            readline.write_history_file(path)
        except OSError as error:
            warn(f"the history is not saved: {error}")


def _complete_from(session: Session) -> None:
    """Let the tab key complete words of SQL, columns of the last query, and paths after a quote."""
    try:
        import readline
    except ImportError:
        return
    columns = {name for found in session.datasets.values() for name in found.schema.names}

    def complete(text: str, number: int) -> str | None:
        found = completions(text, columns)
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>")
    readline.parse_and_bind("tab: complete")


def completions(text: str, columns: set[str]) -> list[str]:
    """The completions of a word that is being typed."""
    if text.startswith("'"):
        path = Path(text[1:])
        directory, start = (path, "") if text.endswith("/") or text == "'" else (path.parent, path.name)
        try:
            names = sorted(entry for entry in os.listdir(directory) if entry.startswith(start) and entry[0] != ".")
        except OSError:
            return []
        prefix = text[: len(text) - len(start)]
        return [f"{prefix}{name}{'/' if (directory / name).is_dir() else ''}" for name in names]
    known = [*_WORDS, *sorted(columns)]
    return [word for word in known if word.lower().startswith(text.lower())]
