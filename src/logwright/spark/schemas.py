"""The columns of journals on Spark: those of each format, the common ones, and those of a record's place.

A schema given by the user is the projection: its columns, in its order, with the types defined here. Other columns are
not decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..core.format import find_format
from ..core.read.columns import Columns
from ..errors import WrongUse

UNIFIED: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("sequence", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ns", pa.int64()),
        ("op", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("detail", pa.string()),
        ("damage", pa.string()),
    ]
)
METADATA: Final = pa.schema(
    [
        ("_journal", pa.string()),
        ("_file", pa.string()),
        ("_position", pa.int64()),
        ("_size", pa.int32()),
        ("_damage", pa.string()),
    ]
)
"""Columns that are returned only if a schema names them."""


def columns_of(format: str | None) -> pa.Schema:
    """The columns of the source of a format; for None, of the source `logwright`."""
    if format is None:
        return UNIFIED
    return find_format(format).columns.typed


def spark_schema(format: str | None) -> StructType:
    """The schema of `load` without a schema of the user."""
    return from_arrow_schema(columns_of(format))


def arrow_schema(schema: StructType, format: str | None) -> pa.Schema:
    """Check a schema of the user, and return the Arrow schema that Spark expects for it."""
    known = {field.name: field.type for field in [*columns_of(format), *METADATA]}
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise WrongUse(f"column {name} is in the schema twice")
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        if field.name not in known:
            raise WrongUse(f"there is no column {field.name!r}; there are {', '.join(known)}")
        if field.type != known[field.name]:
            raise WrongUse(f"column {field.name} is {known[field.name]} and cannot be read as {field.type}")
    return wanted


def sources_of(names: Sequence[str], format: str, *, sharded: bool) -> list[str]:
    """The columns of a format that must be decoded to make these columns."""
    plain = [name.removeprefix("_") for name in names]
    return find_format(format).columns.sources(plain, sharded=sharded)


def fill(wanted: pa.Schema, batch: pa.RecordBatch, format: str, journal: str) -> pa.RecordBatch:
    """Make a batch for Spark from a batch of the format's columns."""
    columns = find_format(format).columns
    arrays = [_array(field, batch, columns, format, journal) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _array(field: pa.Field, batch: pa.RecordBatch, columns: Columns, format: str, journal: str) -> pa.Array:
    name = field.name.removeprefix("_")
    if name in ("format", "journal"):
        return pa.repeat(pa.scalar(format if name == "format" else journal, field.type), batch.num_rows)
    found = None if name == "damage" else columns.column(batch, name)
    return pa.nulls(batch.num_rows, field.type) if found is None else found


def damage_row(wanted: pa.Schema, format: str, journal: str, file: str, start: int, size: int, text: str) -> Any:
    """A row for a damaged range: its place and the reason, and nulls in all other columns."""
    known = {"format": format, "journal": journal, "file": file, "position": start, "size": size, "damage": text}
    values = [known.get(field.name.removeprefix("_")) for field in wanted]
    arrays = [pa.array([value], field.type) for value, field in zip(values, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
