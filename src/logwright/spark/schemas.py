"""The schemas of journals on Spark: the columns of each format or the common ones, and those of a record's place.

A schema given by the user is the projection: its columns, in its order, with the types defined here. Other columns are
not decoded.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..arrow.rows import columns_of
from ..errors import WrongUse

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
