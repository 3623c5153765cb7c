"""Store tables in JSON and CSV such that they are read back as they were written.

JSON tables have times with microseconds. CSV tables hold text only: files begin with the column names, bytes are
base64, lists and structures are JSON, times are as in JSON tables, null is an empty field and an empty string is `""`.
Options in the settings override those defined here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from ..settings import FILE_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
_DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "json": _TIMES,
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',  # a quote within quotes is doubled, as most CSV readers expect
        "multiLine": "true",  # names may contain line breaks
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
_EMPTY: Final = "\x01empty\x01"
"""What Spark returns for `""` when it reads, because it would return null otherwise. Never written to a file."""


def options_of(format: str, *given: Mapping[str, str]) -> dict[str, str]:
    """The options for writing and reading a format: the defaults, overridden by those given; the last one wins."""
    found: dict[str, tuple[str, str]] = {}
    for options in (_DEFAULTS.get(format, {}), *given):
        found |= {name.lower(): (name, value) for name, value in options.items()}
    return dict(found.values())


def stored(frame: DataFrame, format: str) -> DataFrame:
    """A table with its columns converted to types that the format can store."""
    if format != "csv":
        return frame
    return frame.select(*(_as_text(field.name, field.dataType).alias(field.name) for field in frame.schema))


def load(
    spark: SparkSession, format: str, options: Mapping[str, str], place: str, schema: StructType | None
) -> DataFrame:
    """Read a table, in the columns of a schema as far as they exist; without a schema, as Spark infers them."""
    chosen = options_of(format, options, {"emptyValue": _EMPTY} if format == "csv" else {})
    reader = spark.read.format(format).options(**chosen)
    if schema is None or format not in FILE_FORMATS:  # other formats store their schema and accept none
        return reader.load(place)
    if format != "csv":
        return reader.schema(schema).load(place)
    # CSV is read by the order of columns: read the names in the file first, then all columns as text.
    names = reader.load(place).columns
    texts = reader.schema(StructType([StructField(name, StringType()) for name in names])).load(place)
    wanted = [field for field in schema if field.name in names]
    return texts.select(*(_out_of_text(field.name, field.dataType).alias(field.name) for field in wanted))


def _as_text(name: str, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return F.base64(F.col(name))
    return F.to_json(F.col(name)) if isinstance(kind, ArrayType | StructType) else F.col(name)


def _out_of_text(name: str, kind: DataType) -> Column:
    text = F.when(F.col(name) == _EMPTY, "").otherwise(F.col(name))
    if isinstance(kind, BinaryType):
        return F.unbase64(text)
    if isinstance(kind, ArrayType | StructType):
        return F.from_json(text, kind)
    return text.cast(kind)
