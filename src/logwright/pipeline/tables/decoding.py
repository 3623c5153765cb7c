"""Decode the values of journals on Spark, each journal by its own rule.

The first rule that matches a journal's name applies. Without a rule that decodes, the columns are null. Only values
that may have to be decoded are sent to the Python workers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.pandas.functions import arrow_udf

from ...errors import WrongUse
from ...location import locate
from ...values import Decoder, decoder, read_schema, to_json
from ..settings import JournalRule

_RESULT: Final = pa.struct([("decoded", pa.string()), ("decode_error", pa.string())])
_SPARK_RESULT: Final = "decoded STRING, decode_error STRING"
_WILD: Final = re.compile(r"[*?\[]")

MOST_BYTES: Final = 64 << 20
"""The largest value that is decoded: about the size of a batch that Spark sends. Its JSON must fit an Arrow array."""

Chosen: TypeAlias = tuple[tuple[JournalRule, str | None], ...]
"""Rules, each with the text of its schema, so that tasks do not need the file."""


def decode_column(rules: Sequence[JournalRule]) -> Column:
    """A struct of `decoded` and `decode_error`, computed from the columns `journal` and `value`."""
    chosen = loaded(rules)  # raises on the driver if a schema is missing or wrong

    def decode(journals: pa.Array, values: pa.Array) -> pa.Array:
        return _decode(chosen, journals, values)

    beginnings = {_WILD.split(rule.match)[0] for rule in rules if rule.decode is not None}
    worth_sending = F.lit(False)
    for beginning in sorted(beginnings):
        worth_sending = worth_sending | F.col("journal").startswith(beginning)
    decoded = arrow_udf(decode, _SPARK_RESULT)  # type: ignore[call-overload]  # the type hints of `decode` say which kind it is
    decoding: Column = decoded(F.col("journal"), F.when(worth_sending, F.col("value")))
    return decoding


def loaded(rules: Sequence[JournalRule]) -> Chosen:
    """The rules with their schemas. Raises `WrongUse` if values cannot be decoded by them."""
    chosen = tuple((rule, None if rule.schema is None else _schema_text(rule.schema)) for rule in rules)
    for rule, schema in chosen:
        if rule.decode is not None:
            try:
                _decoder(rule.decode, schema)
            except WrongUse as error:
                place = f"journal {rule.match!r}" if rule.schema is None else rule.schema
                raise WrongUse(f"{place}: {error}") from None
    return chosen


def _decode(rules: Chosen, journals: pa.Array, values: pa.Array) -> pa.Array:
    decoders: dict[str, Decoder | None] = {}
    decoded: list[str | None] = []
    errors: list[str | None] = []
    for journal, value in zip(journals.to_pylist(), values.to_pylist(), strict=True):
        if journal not in decoders:
            decoders[journal] = _decoder_of(rules, journal)
        decode = decoders[journal]
        text, error = (None, None) if decode is None or value is None else _decoded(decode, value)
        decoded.append(text)
        errors.append(error)
    columns = [pa.array(decoded, pa.string()), pa.array(errors, pa.string())]
    return pa.StructArray.from_arrays(columns, fields=list(_RESULT))


def _decoded(decode: Decoder, value: bytes) -> tuple[str | None, str | None]:
    if len(value) > MOST_BYTES:
        return None, f"the value has {len(value)} bytes; only values of up to {MOST_BYTES} bytes are decoded"
    return to_json(decode, value)


def _decoder_of(rules: Chosen, journal: str) -> Decoder | None:
    for rule, schema in rules:
        if rule.fits(journal):
            return None if rule.decode is None else _decoder(rule.decode, schema)
    return None


@lru_cache(maxsize=64)
def _decoder(name: str, schema: str | None) -> Decoder:
    return decoder(name, schema)


def _schema_text(location: str) -> str:
    return read_schema(*locate(location))
