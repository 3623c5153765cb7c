"""Values of journals decoded on Spark, each journal's by its own rule.

The first rule that fits a journal's name counts for it, as everywhere; a journal whose rule decodes nothing, or that no
rule fits, has nothing decoded. Only the values that may have to be decoded travel to the Python workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.pandas.functions import arrow_udf

from ..core.errors import WrongUse
from ..location import locate
from .settings import JournalRule

_RESULT: Final = pa.struct([("decoded", pa.string()), ("decode_error", pa.string())])
_SPARK_RESULT: Final = "decoded STRING, decode_error STRING"
_WILD: Final = re.compile(r"[*?\[]")
_MOST_BYTES_OF_A_SCHEMA: Final = 16 << 20


def decode_column(rules: Sequence[JournalRule]) -> Column:
    """A struct of `decoded` and `decode_error`, out of the columns `journal` and `value`."""
    chosen = tuple((rule, None if rule.schema is None else _schema_text(rule.schema)) for rule in rules)
    for rule, schema in chosen:
        if rule.decode is not None:
            _decoder(rule.decode, schema)  # what is missing or wrong is said here, and not by a task

    def decode(journals: pa.Array, values: pa.Array) -> pa.Array:
        return _decode(chosen, journals, values)

    beginnings = {_WILD.split(rule.match)[0] for rule in rules if rule.decode is not None}
    worth_sending = F.lit(False)
    for beginning in sorted(beginnings):
        worth_sending = worth_sending | F.col("journal").startswith(beginning)
    decoded = arrow_udf(decode, _SPARK_RESULT)  # type: ignore[call-overload]  # its kind is in the hints of `decode`
    decoding: Column = decoded(F.col("journal"), F.when(worth_sending, F.col("value")))
    return decoding


Chosen = tuple[tuple[JournalRule, str | None], ...]


def _decode(rules: Chosen, journals: pa.Array, values: pa.Array) -> pa.Array:
    from ..values import to_json

    decoders: dict[str, Callable[[bytes], Any] | None] = {}
    decoded: list[str | None] = []
    errors: list[str | None] = []
    for journal, value in zip(journals.to_pylist(), values.to_pylist(), strict=True):
        if journal not in decoders:
            decoders[journal] = _decoder_of(rules, journal)
        decode = decoders[journal]
        text, error = (None, None) if decode is None or value is None else to_json(decode, value)
        decoded.append(text)
        errors.append(error)
    columns = [pa.array(decoded, pa.string()), pa.array(errors, pa.string())]
    return pa.StructArray.from_arrays(columns, fields=list(_RESULT))


def _decoder_of(rules: Chosen, journal: str) -> Callable[[bytes], Any] | None:
    for rule, schema in rules:
        if rule.fits(journal):
            return None if rule.decode is None else _decoder(rule.decode, schema)
    return None


@lru_cache(maxsize=64)
def _decoder(name: str, schema: str | None) -> Callable[[bytes], Any]:
    from ..values import decoder

    return decoder(name, schema)


def _schema_text(location: str) -> str:
    disk, path = locate(location)
    file = disk.open(path, "read")
    try:
        return file.read_at(0, _MOST_BYTES_OF_A_SCHEMA).decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"{location}: a schema is text, this is not: {error}") from None
    finally:
        file.close()
