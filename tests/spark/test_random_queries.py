"""Random filters and projections: Spark, Spark Connect and plain Python agree row for row, in all five formats."""

from __future__ import annotations

import datetime
import random
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

import logwright
from logwright.arrow.discovery import find_journals
from logwright.arrow.rows import columns_of
from logwright.core.format import FORMATS
from tests.pipeline.worlds import World
from tests.support.golden_journals import write_golden
from tests.test_dataset import Condition, Row, random_condition

QUERIES = 4
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TOKEN = re.compile(r"""(?P<text>'(?:[^']|'')*')(?P<blob>::BLOB)?|"(?P<column>\w+)"|TIMESTAMPTZ""")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden journals, whole and damaged, and random ones of all formats."""
    root = tmp_path_factory.mktemp("queries")
    write_golden(root)
    world = World(root / "random", "random queries")
    for _ in range(3):
        world.everything()
    for _ in range(12):
        world.pages()
    return root


def plain_rows(root: Path, format: str | None) -> list[Row]:
    """The rows that plain Python reads, journal by journal; those of all formats include damage."""
    if format is None:
        return list(logwright.dataset(root, mode="permissive").to_table().to_pylist())
    found = [journal.location for journal in find_journals(str(root), format)]
    assert found
    names = columns_of(format).names
    return [
        row
        for location in found
        for row in logwright.dataset(location, mode="dropmalformed").to_table(columns=names).to_pylist()
    ]


def in_spark_sql(condition: Condition) -> tuple[str, set[str]]:
    """A condition in Spark's SQL, and the columns in it."""
    columns = set()

    def translated(found: re.Match[str]) -> str:
        if found["column"]:
            columns.add(found["column"])
            return f"`{found['column']}`"
        if found["blob"]:
            return "X" + found["text"].replace("\\x", "")
        if found["text"]:
            text = found["text"][1:-1].replace("''", "'")
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "TIMESTAMP"

    return _TOKEN.sub(translated, condition.sql), columns


def as_number(value: Any) -> Any:
    """A value that compares equal in every program: a time as microseconds."""
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    return bytes(value) if isinstance(value, bytearray) else value


class Query:
    """A random filter and projection of a table."""

    def __init__(self, dice: random.Random, rows: list[Row], schema: pa.Schema) -> None:
        self.condition = random_condition(dice, rows, schema)
        self.sql, used = in_spark_sql(self.condition)
        self.names = dice.sample(schema.names, dice.randrange(1, len(schema.names) + 1))
        self.columns = dice.sample(schema.names, len(schema.names))
        self.columns = [name for name in self.columns if name in self.names or name in used]
        self.options = {
            "splitBytes": dice.choice(["50k", "128m"]),
            "pushFilters": dice.choice(["true", "false"]),
        }

    def wanted(self, rows: list[Row], names: list[str]) -> list[str]:
        """The rows of plain Python; columns that the query does not have are null."""
        return sorted(
            repr([as_number(row[name]) if name in self.names else None for name in names])
            for row in rows
            if self.condition.matches(row)
        )

    def frame(self, spark: Any, root: Path, format: str | None, number: int, schema: pa.Schema) -> Any:
        """The same on Spark, whose schema is the projection; all queries have the same columns."""
        types = {field.name: from_arrow_type(field.type).simpleString() for field in schema}
        reader = spark.read.schema(", ".join(f"`{name}` {types[name]}" for name in self.columns))
        reader = reader.format(format or "logwright").options(**self.options)
        table = reader.option("mode", "permissive" if format is None else "dropmalformed").load(str(root))
        columns = []
        for name, type in types.items():
            value = f"`{name}`" if name in self.names else f"CAST(NULL AS {type})"
            columns.append(f"unix_micros({value}) AS `{name}`" if type == "timestamp" else f"{value} AS `{name}`")
        return table.filter(self.sql).selectExpr(f"{number} AS query", *columns)


@pytest.mark.parametrize("format", [*FORMATS, None])
def test_random_queries_agree(spark: Any, connect: Any, root: Path, format: str | None) -> None:
    schema = columns_of(format)
    rows = plain_rows(root, format)
    assert len(rows) > 20
    dice = random.Random(f"{format}")
    queries = [Query(dice, rows, schema) for _ in range(QUERIES)]
    for each in (spark, connect):
        each.conf.set("spark.sql.session.timeZone", dice.choice(["UTC", "Asia/Kolkata", "America/New_York"]))
        try:
            # One job for all queries; each has its own table, because filters may be pushed.
            frames = [query.frame(each, root, format, number, schema) for number, query in enumerate(queries)]
            found: list[list[str]] = [[] for _ in queries]
            for number, *row in reduce(lambda one, other: one.unionAll(other), frames).collect():
                found[number].append(repr([as_number(value) for value in row]))
        finally:
            each.conf.set("spark.sql.session.timeZone", "UTC")
        for query, some in zip(queries, found, strict=True):
            assert sorted(some) == query.wanted(rows, schema.names), (query.sql, query.columns, query.options)
