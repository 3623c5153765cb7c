"""SQL over journals, by DuckDB: a quoted path in a query is a table.

    sql("SELECT key, count(*) FROM 'journals/orders' GROUP BY key")
    sql("SELECT state, count(*) FROM 'queues/jobs:items' GROUP BY state")
    sql("SELECT k, o FROM 'stores:state@2 hours ago' WHERE k LIKE 'truck/%'")

The name is a path or URI, then optionally `:` and the name of a table, then optionally `@` and a time: see
`logwright.dataset`. Names that are not journals are left to DuckDB, which reads Parquet, CSV and JSON files.

All names in a query that lead to one journal show it at one moment.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..core.bytes.outcome import Damage, Mode, check_mode
from ..core.format import is_there
from ..core.io.file_names import as_text, name_of, printed
from ..errors import LogwrightError, UnknownFormat, WrongUse
from ..location import locate
from .dataset import JournalDataset
from .moment import Moment
from .tables import JournalTable

if TYPE_CHECKING:
    import duckdb

_TABLE: Final = re.compile(r"(\w+)(?:@(.+))?", re.DOTALL)
"""What may follow the path of a journal and a colon."""
_MISSING_TABLE: Final = re.compile(r"Table with name (.+) does not exist")
_NUMBER: Final = re.compile(r"[0-9?$(]")
OFFSET_HINT: Final = 'offset is a word of SQL: write sequence, or "offset" in double quotes'
BYTES_HINT: Final = "the columns of keys and values are bytes: decode(key) is text"
_BARE_PATH: Final = re.compile(r"\b(?:from|join)\s+([^\s,;()'\"]*[/:-][^\s,;()'\"]*)", re.IGNORECASE)
"""What may be a path that is not quoted."""
_INTERRUPT_SECONDS: Final = 0.02
"""How often a query that is to end is interrupted."""
_BEFORE_TABLES: Final = ("from", "join", "describe", "desc", "summarize")
_AFTER_TABLES: Final = ("select", "where", "group", "order", "having", "limit", "offset", "union", "set")


def sql(query: str, *, mode: Mode = "failfast", connection: duckdb.DuckDBPyConnection | None = None) -> Any:
    """Run a query in which quoted paths are journals; the relation of DuckDB, or None for a statement without rows.

    A relation has `fetchall`, `df`, `pl`, `to_arrow_table` and more; it is evaluated when rows are taken from it. With
    a `connection` the query also sees its tables. Needs the extra `sql`.
    """
    return Session(mode, connection).run(query)


class Session:
    """A connection of DuckDB that finds journals by their quoted paths."""

    def __init__(
        self,
        mode: Mode = "failfast",
        connection: duckdb.DuckDBPyConnection | None = None,
        on_damage: Callable[[str, Damage], None] | None = None,
    ) -> None:
        self._duckdb = import_duckdb("SQL")
        self._mode = check_mode(mode)
        self._on_damage = on_damage
        self.connection: duckdb.DuckDBPyConnection = connection or self._duckdb.connect()
        if connection is None:
            self.connection.execute("SET TimeZone = 'UTC'")  # as everywhere in Logwright
            self.connection.execute("SET python_enable_replacements = false")  # names are no variables of this module
        self.datasets: dict[str, JournalDataset] = {}
        """The journals of the last query, by their names in it."""
        self._query = ""
        self._unreached = ""
        """Why a URI in the last query cannot be looked at."""
        self._moment = Moment()
        self._worker = ThreadPoolExecutor(1)

    def run(self, query: str) -> Any:
        """Start a query; see `sql`. Journals are as they are when they are first read."""
        if not query.strip():
            raise WrongUse("the query is empty")
        self._query = query = as_text(query)  # DuckDB takes UTF-8 only; other names are escaped
        with self._explaining():
            self._register(query)
            return self.connection.sql(query)

    def batches(self, query: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
        """The columns and the rows of a query; None for a statement without rows. Its errors are ours.

        An interrupt of the main thread ends the query at once.
        """
        relation = self._waited(self.run, query)
        if relation is None:
            return None
        reader = self._waited(pa.RecordBatchReader.from_stream, relation)

        def rows() -> Iterator[pa.RecordBatch]:
            while (batch := self._waited(next, reader, None)) is not None:
                yield batch

        return reader.schema, rows()

    def _waited(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call in another thread: Python can interrupt the thread that waits, but not DuckDB."""
        future = self._worker.submit(call, *arguments)
        try:
            with self._explaining():
                return future.result()
        except KeyboardInterrupt:
            self._moment.is_over = True
            while not wait([future], _INTERRUPT_SECONDS).done:  # it may not have reached DuckDB yet
                self.connection.interrupt()
            raise

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except LogwrightError:
            raise
        except (self._duckdb.Error, pa.ArrowException, RuntimeError, OSError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> LogwrightError:
        """The error of a query: that of the journal that failed, or that of DuckDB in one line."""
        for table in (found.table for found in self.datasets.values()):
            if table.failure is not None:
                failure, table.failure = table.failure, None  # its traceback leads to the table
                return failure
        lines = [line.strip() for line in str(error).partition("\nLINE ")[0].splitlines() if line.strip()]
        lines = list(takewhile(lambda line: not line.startswith("Candidate functions"), lines))
        text = lines[0] if lines else type(error).__name__
        if text.startswith("Parser Error") and self._has_bare_offset():
            return WrongUse(f"{text}; {OFFSET_HINT}")
        bare = _BARE_PATH.search(self._query)
        if text.startswith("Parser Error") and bare is not None:
            return WrongUse(f"{text}; a path needs quotes: '{bare[1]}'")
        if text.startswith("Binder Error: No function") and "(BLOB" in text:
            return WrongUse(f"{text.rstrip('.')}; {BYTES_HINT}")
        missing = _MISSING_TABLE.search(text)
        if "column" in text.lower() and self.datasets:
            columns = (f"{name!r} has {', '.join(found.schema.names)}" for name, found in self.datasets.items())
            return WrongUse(f"{text.rstrip('!')}; {'; '.join(columns)}")
        if missing is not None:
            text, lines = self._no_table(missing[1]), []
        return WrongUse((" ".join(lines) or text) + (self._unreached and f"; as a journal: {self._unreached}"))

    def _no_table(self, name: str) -> str:
        """The message about a table that does not exist: it may be a path that is misspelt, or not quoted."""
        if self._is_there(name):
            if name in self._named(self._query):
                return f"{name!r} is neither a journal nor a file that DuckDB reads"
            if any(_is_quoted(word) and word[1:-1] == name for word in self._words(self._query)):
                return f"{name!r} is no table of DuckDB, and SQL only reads journals; see logwright append"
            return f"there is no table {name}; to query the journal or file of this name, quote it: '{name}'"
        path, _, _ = name.partition(":")
        directory, _, last = path.rpartition("/")
        try:
            names = [printed(entry) for entry in os.listdir(directory or ".")]
        except OSError:
            names = []
        near = difflib.get_close_matches(last, names, 1)
        hint = f"; did you mean '{f'{directory}/' if directory else ''}{near[0]}'?" if near else ""
        return f"there is no table, journal or file {name!r}{hint}"

    def _is_there(self, path: str) -> bool:
        try:
            return is_there(*locate(path))
        except (LogwrightError, OSError, ValueError) as error:
            if "://" in path:
                self._unreached = str(error)
            return False

    def _has_bare_offset(self) -> bool:
        """Whether `offset` is in the query without quotes, and not as in LIMIT 3 OFFSET 7."""
        words = [word.lower() for word in self._words(self._query)]
        return any(word == "offset" and not _NUMBER.match(after) for word, after in pairwise([*words, ""]))

    def _register(self, query: str) -> None:
        """Make a view for each journal that the query names, unless the connection has a table of this name."""
        for name in self.datasets:
            self.connection.unregister(name)
        self.datasets, self._unreached = {}, ""
        self._moment = Moment()
        taken = {name for (name,) in self.connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()}
        for name in dict.fromkeys(self._named(query)):
            found = None if name in taken else self._journal(name)
            if found is not None:
                self.datasets[name] = found
                self.connection.register(name, found)

    def _named(self, query: str) -> Iterator[str]:
        """The quoted names in the place of a table: after FROM (all of its list), JOIN, DESCRIBE and SUMMARIZE."""
        is_list = [False]
        """At each depth of parentheses, whether a list of tables is under way."""
        before = ""
        for text in self._words(query):
            word = text.lower()
            if word == "(":
                is_list.append(False)
            elif word == ")":
                is_list = is_list[:-1] or [False]
            elif word == "from":
                is_list[-1] = True
            elif word in _AFTER_TABLES:
                is_list[-1] = False
            elif _is_quoted(text) and (before in _BEFORE_TABLES or (before == "," and is_list[-1])):
                yield text[1:-1].replace(text[0] * 2, text[0])
            if not text.startswith(("--", "/*")):
                before = word

    def _words(self, query: str) -> list[str]:
        """The words, literals and signs of a query."""
        data = query.encode()
        starts = [start for start, _ in self._duckdb.tokenize(query)]
        return [data[a:b].decode(errors="replace").strip() for a, b in pairwise([*starts, len(data)])]

    def _journal(self, name: str) -> JournalDataset | None:
        """The dataset that a name in a query stands for; None if it is no journal."""
        # As it is, escaped as we print it, or below the home directory.
        for path in dict.fromkeys((name, name_of(name), os.path.expanduser(name))):
            if self._is_there(path):
                return self._dataset(name, path)
            for colon in reversed([found.start() for found in re.finditer(":", path)]):
                table = _TABLE.fullmatch(path[colon + 1 :])
                if table is not None and self._is_there(path[:colon]):
                    return self._dataset(name, path[:colon], table[1], table[2])
        return None

    def _dataset(self, name: str, path: str, table: str = "records", at: str | None = None) -> JournalDataset | None:
        on_damage = None if self._on_damage is None else functools.partial(self._on_damage, name)
        try:
            found = JournalTable(path, table, at=at, mode=self._mode, on_damage=on_damage, moment=self._moment)
            return JournalDataset(found)
        except UnknownFormat:
            return None  # DuckDB may read it


def _is_quoted(text: str) -> bool:
    return text[:1] in ("'", '"') and len(text) > 2 and text.endswith(text[0])


def import_duckdb(user: str) -> Any:
    """DuckDB, for a user that the error names if it is not installed."""
    try:
        import duckdb
    except ImportError:
        raise WrongUse(f"{user} needs DuckDB: pip install 'logwright[sql]'") from None
    return duckdb
