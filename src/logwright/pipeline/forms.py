"""How tables are held by formats that know less than Parquet does, so that what is read is what was written.

JSON writes times by a pattern that has microseconds. CSV knows texts only: files begin with the names of the columns,
bytes are base64, lists and structures are JSON, times are as in JSON tables; and null is nothing at all, where an empty
text is `""`. What the settings say of the format's options counts before what is said here.
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

from .settings import FILE_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
_DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "json": _TIMES,
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',  # a quote within quotes is doubled, as nearly every reader of CSV has it
        "multiLine": "true",  # a name may have a line break in it
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
_EMPTY: Final = "\x01empty\x01"
"""What Spark shall give for `""` when it reads, because it takes an empty text for null. It is in no file."""


def options_of(format: str, *given: Mapping[str, str]) -> dict[str, str]:
    """The options that a format is written and read with: ours, and what is given, the last one first."""
    found: dict[str, tuple[str, str]] = {}
    for options in (_DEFAULTS.get(format, {}), *given):
        found |= {name.lower(): (name, value) for name, value in options.items()}
    return dict(found.values())


def stored(frame: DataFrame, format: str) -> DataFrame:
    """A table as its format can hold it."""
    if format != "csv":
        return frame
    return frame.select(*(_as_text(field.name, field.dataType).alias(field.name) for field in frame.schema))


def load(
    spark: SparkSession, format: str, options: Mapping[str, str], place: str, schema: StructType | None
) -> DataFrame:
    """What is at a place, in the columns of a schema as far as they are there; without one as Spark finds them."""
    chosen = options_of(format, options, {"emptyValue": _EMPTY} if format == "csv" else {})
    reader = spark.read.format(format).options(**chosen)
    if schema is None or format not in FILE_FORMATS:  # others have a schema of their own, and refuse to be told
        return reader.load(place)
    if format != "csv":
        return reader.schema(schema).load(place)
    # CSV goes by the order of columns, so its own names come first; as texts, also those that are names of folders.
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
