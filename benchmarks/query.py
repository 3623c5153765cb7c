"""Queries: DuckDB on journals, compared with the decoding alone and with DuckDB on other files.

- A full scan of one column of 8 million messages, by DuckDB, compared with `arrow.batches` without DuckDB, and with the
  same query on the same messages as lines of JSON.
- The bytes that are read if a filter keeps one message in a hundred.
- The state of a store at a time, compared with DuckDB's query for it on the same versions in a Parquet file.

All figures are wall time, because DuckDB uses all processors. Each query names a path, so a journal is found, opened
and planned in each round; the connection is open before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.journals import large_journal, time_of
from benchmarks.measure import MESSAGE_BYTES, Figure, Plan, Turns, bytes_read_by
from benchmarks.spark import KEPT, MOST_BYTES, write_json
from benchmarks.versioned import VALUE, keys, prepared, timed
from logwright import arrow, dataset, sql

COLUMNS = {"offset": "max(sequence)", "timestamp": "max(timestamp)", "key": "max(key)", "value": "count(value)"}
"""Columns of a message, each with an expression in SQL that reads all of it."""


# --- full scans -------------------------------------------------------------------------------------------------------


def scans(plan: Plan, connection: Any, journal: Path, rows: int) -> list[Figure]:
    """Full scans of one column."""
    lines = write_json(plan.place / "messages.json", rows)

    def batches(column: str) -> None:
        assert sum(batch.num_rows for batch in arrow.batches(journal, [column])) == rows

    def scanned(expression: str) -> None:
        sql(f"SELECT {expression} FROM '{journal}'", connection=connection).fetchall()

    def from_json() -> None:
        query = f"SELECT max(\"offset\") FROM read_json('{lines}', format = 'newline_delimited')"
        assert connection.sql(query).fetchall() == [(rows - 1,)]

    things: dict[str, Callable[[], float]] = {"JSON": partial(timed, from_json)}
    for column, expression in COLUMNS.items():
        things[f"batches {column}"] = partial(timed, partial(batches, column))
        things[f"DuckDB {column}"] = partial(timed, partial(scanned, expression))
    turns = Turns(plan.rounds).run(things)
    lines.unlink()
    compared = [(column, f"batches {column}", f"arrow.batches, {column}", 0.8) for column in COLUMNS]
    compared.append(("offset", "JSON", "read_json of the same", 5.0))
    return [
        Figure("query", f"{COLUMNS[column]} of {rows / 1e6:.1f} M messages", turns.median(f"DuckDB {column}"),
               turns.median(peer), "ms", name, goal, spread=turns.results[f"DuckDB {column}"])
        for column, peer, name, goal in compared
    ]  # fmt: skip


# --- filters ----------------------------------------------------------------------------------------------------------


def filtered(plan: Plan, connection: Any, journal: Path, rows: int) -> list[Figure]:
    """The bytes that are read if a filter keeps one message in a hundred."""
    first = rows // 2
    last = first + int(rows * KEPT)
    limit = rows * MESSAGE_BYTES * MOST_BYTES / 2**20

    def kept(condition: str) -> None:
        query = f"SELECT count(value) FROM '{journal}' WHERE {condition}"
        assert sql(query, connection=connection).fetchall() == [(last - first,)]

    figures = []
    for column, low, high in (("sequence", first, last), ("timestamp_ns", time_of(first), time_of(last))):
        found = bytes_read_by(partial(kept, f"{column} >= {low} AND {column} < {high}"))
        if found is None:
            plan.log("query: this system does not count the bytes that a process reads")
            return []
        figures.append(
            Figure("query", f"{KEPT:.0%} of a journal by {column}", found / 2**20, limit, "MiB",
                   f"limit of {MOST_BYTES:.0%} of its bytes", 1.0, spread=[found / 2**20])
        )  # fmt: skip
    return figures


# --- states -----------------------------------------------------------------------------------------------------------


def states(plan: Plan, connection: Any) -> list[Figure]:
    """The state of a store at a time, from its journal and from a Parquet file."""
    count = plan.amount(1_000_000, 100_000)
    home, times, _ = prepared(plan.place / "states", count)
    parquet = plan.place / "versions.parquet"
    pq.write_table(pa.table({"t": times, "k": keys(count, count // 10), "o": [json.dumps(VALUE)] * count}), parquet)
    at = times[count * 9 // 10]
    question = f"SELECT k, arg_max(o, t) AS o FROM '{parquet}' WHERE t <= {at} GROUP BY k"

    def ours() -> Any:
        return sql(f"SELECT k, o FROM '{home}:state@{at}'", connection=connection).to_arrow_table()

    def without_sql() -> Any:
        return dataset(home, "state", at=at).to_table(columns=["k", "o"])

    def peer() -> Any:
        return connection.sql(question).to_arrow_table()

    assert ours().num_rows == without_sql().num_rows == peer().num_rows == count // 10
    turns = Turns(plan.rounds).run({each.__name__: partial(timed, each) for each in (ours, without_sql, peer)})
    shutil.rmtree(home.parent)
    parquet.unlink()
    name = f"state at a time of {count / 1e6:g} M versions"
    return [
        Figure("query", f"{name}, {how}", turns.median(each), turns.median("peer"), "ms", "DuckDB on Parquet", 3.0,
               spread=turns.results[each])
        for how, each in (("by SQL", "ours"), ("as a dataset", "without_sql"))
    ]  # fmt: skip


def run(plan: Plan) -> list[Figure]:
    """Measure with DuckDB, if it is installed."""
    if not find_spec("duckdb"):
        plan.log("query: DuckDB is not installed")
        return []
    import duckdb

    journal, rows = large_journal(plan)
    with duckdb.connect() as connection:
        return [
            *scans(plan, connection, journal, rows),
            *filtered(plan, connection, journal, rows),
            *states(plan, connection),
        ]
