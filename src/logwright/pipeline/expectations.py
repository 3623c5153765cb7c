"""Expectations: conditions in SQL that the rows of a table should meet, and what is done with rows that do not.

    [[expect]]
    table = "messages"
    condition = "price >= 0"
    action = "quarantine"        # or warn, fail

DuckDB evaluates conditions over Arrow batches where the rows are made: in the tasks of Spark and in this process alike.
So both give the same answers, and a batch costs what it writes. A row meets a condition if it is true: a condition that
is null, as one on a null column, is not met.

- `warn`: the rows are counted;
- `quarantine`: they go to the table `quarantine` instead, with the reason and the whole row as JSON;
- `fail`: the run fails, and the tables stay as they were before the batch.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..core.times import shown_time
from ..errors import WrongUse
from .settings import Expectation, Settings
from .tables import MADE_OF_TIME, QUARANTINE, QUARANTINED, TABLES, schema_of

if TYPE_CHECKING:
    import duckdb

_ELSEWHERE: Final = ("damage", "activity", "consumers", "files")
"""Tables whose rows the tasks do not make, or that report problems themselves."""
_MOST_TEXT: Final = 300


def check_expectations(settings: Settings, tables: Sequence[str]) -> None:
    """Raise `WrongUse` for conditions that cannot be evaluated."""
    if not settings.expectations:
        return
    names: set[str] = set()
    for each in settings.expectations:
        allowed = [name for name in TABLES if name not in _ELSEWHERE]
        if each.table not in allowed:
            raise WrongUse(f"expect: the rows of {each.table!r} are not checked; choose one of {', '.join(allowed)}")
        if each.table not in tables:
            raise WrongUse(f"expect {each.title!r}: the table {each.table} is not made by this run")
        if each.title in names:
            raise WrongUse(f"expect {each.title!r}: there are two of this name; give them different names")
        names.add(each.title)
    with Checker(settings.expectations) as checker:
        for each in settings.expectations:
            columns = [field for field in schema_of(each.table, settings) if field.name not in MADE_OF_TIME]
            checker.check(each, pa.schema(columns))


def found_failed(table: str, rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Rows of `quarantine` for rows of a table, each with its reason."""
    written = [_as_json(row) for row in _values(rows)]
    columns: dict[str, Any] = {"table": [table] * rows.num_rows, "reason": reasons}
    columns["row"] = [json.dumps(row, ensure_ascii=False) for row in written]
    for name in ("journal", "file", "position"):
        columns[name] = [row.get(name) for row in written]
    arrays = [pa.array(columns[field.name], field.type) for field in QUARANTINED]
    return pa.RecordBatch.from_arrays(arrays, schema=QUARANTINED)


def _values(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dictionaries; times are texts, because they may be outside of the range of Python's."""
    columns = []
    for column in rows.columns:
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
            columns.append([None if each is None else shown_time(each * 1000) for each in micros])
        else:
            columns.append(column.to_pylist())
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


class Checker:
    """Evaluates expectations. It is used with `with`."""

    def __init__(self, expectations: Iterable[Expectation]) -> None:
        self._by_table: dict[str, list[Expectation]] = {}
        for each in expectations:
            self._by_table.setdefault(each.table, []).append(each)
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def check(self, expectation: Expectation, schema: pa.Schema) -> None:
        """Raise `WrongUse` if a condition cannot be evaluated for rows with these columns."""
        no_rows = pa.RecordBatch.from_pylist([], schema)
        self._met([expectation], no_rows)

    def split(
        self, table: str, rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None, Counter[tuple[str, str]]]:
        """The rows that belong in a table, those of `quarantine`, and how many rows of each journal did not meet each
        expectation, by the name of the journal and the title of the expectation.
        """
        expectations = self._by_table.get(table, ())
        if not expectations or not rows.num_rows:
            return rows, None, Counter()
        met = self._met(expectations, rows)
        failed = Counter(
            (journal, each.title)
            for each, column in zip(expectations, met, strict=True)
            for journal in rows.column("journal").filter(pc.invert(column)).to_pylist()
        )
        titles = {title for _, title in failed}
        apart = [
            (each, column)
            for each, column in zip(expectations, met, strict=True)
            if each.action == "quarantine" and each.title in titles
        ]
        if not apart:
            return rows, None, failed
        stays = apart[0][1]
        for _, column in apart[1:]:
            stays = pc.and_(stays, column)
        goes = pc.invert(stays)
        flags = list(zip(*(column.filter(goes).to_pylist() for _, column in apart), strict=True))
        reasons = [
            "; ".join(each.reason for (each, _), is_met in zip(apart, row, strict=True) if not is_met) for row in flags
        ]
        return rows.filter(stays), found_failed(table, rows.filter(goes), reasons), failed

    def _met(self, expectations: Sequence[Expectation], rows: pa.RecordBatch) -> list[pa.Array]:
        """For each expectation, which rows meet it."""
        duck = _duckdb()
        if self._connection is None:
            # The rows are few and already in memory. A condition has no access to files or to the network.
            self._connection = duck.connect(":memory:", config={"threads": "1"})
            for name, value in (("TimeZone", "'UTC'"), ("enable_external_access", "false")):
                self._connection.execute(f"SET {name} = {value}")
        found = []
        self._connection.register("rows", pa.Table.from_batches([rows]))
        try:
            for each in expectations:
                try:
                    query = f"SELECT coalesce(CAST(({each.condition}\n) AS BOOLEAN), false) AS met FROM rows"
                    met = self._connection.sql(query).to_arrow_table().column("met").combine_chunks()
                except duck.Error as error:
                    reason = str(error).strip().splitlines()[0][:_MOST_TEXT]
                    raise WrongUse(f"expect {each.title!r} on {each.table}: {reason}") from None
                if len(met) != rows.num_rows:
                    raise WrongUse(
                        f"expect {each.title!r} on {each.table}: the condition must have one result per row, so it "
                        "cannot be an aggregate"
                    )
                found.append(met)
        finally:
            self._connection.unregister("rows")
        return found


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise WrongUse("[[expect]] needs DuckDB, which evaluates conditions: pip install 'logwright[sql]'") from None
    return duckdb


def tables_with_quarantine(settings: Settings, tables: Sequence[str], known: Iterable[str]) -> list[str]:
    """The tables of a run, plus `quarantine` if an expectation uses it or it exists already."""
    wanted = any(each.action == "quarantine" for each in settings.expectations)
    return [*tables, QUARANTINE] if wanted or QUARANTINE in known else list(tables)
