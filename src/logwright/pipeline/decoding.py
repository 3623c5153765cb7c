"""Decode the values of messages, those of each journal by its own rule.

The first rule that matches a journal's name applies. Without a rule that decodes, the columns are null.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ..errors import WrongUse
from ..location import locate
from ..values import Decoder, decoder, read_schema, to_json
from .settings import JournalRule
from .tables import DECODED, field_columns

_MOST_TEXT: Final = 100
MOST_BYTES: Final = 64 << 20
"""The largest value that is decoded: its JSON must fit an Arrow array."""

RuleAndSchema: TypeAlias = tuple[JournalRule, str | None]
"""A rule with the text of its schema, so that tasks do not need the file."""
Chosen: TypeAlias = tuple[RuleAndSchema, ...]


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


def rule_of(rules: Chosen, journal: str) -> RuleAndSchema | None:
    """The first rule that matches the name of a journal."""
    return next((found for found in rules if found[0].fits(journal)), None)


def with_decoded(rows: pa.RecordBatch, found: RuleAndSchema | None, rules: Chosen) -> pa.RecordBatch:
    """Rows of `messages` with the columns of values decoded by the rule that was found, if any rule decodes.

    A field that does not fit its column is null, and `decode_error` has its name and its value.
    """
    if not any(rule.decode for rule, _ in rules):
        return rows
    fields = field_columns(rows.schema, [rule for rule, _ in rules])
    schema = pa.schema([*rows.schema, *DECODED, *fields])
    if found is None or found[0].decode is None:
        added = [pa.nulls(rows.num_rows, field.type) for field in (*DECODED, *fields)]
    else:
        rule, schema_text = found
        assert rule.decode is not None
        decode, kinds = _decoder(rule.decode, schema_text), dict(rule.columns)
        decoded = [_row(decode, kinds, value) for value in rows.column("value").to_pylist()]
        added = [pa.array([text for text, _, _ in decoded], pa.string())]
        added.append(pa.array([error for _, error, _ in decoded], pa.string()))
        added += [pa.array([values.get(field.name) for _, _, values in decoded], field.type) for field in fields]
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


Row: TypeAlias = tuple[str | None, str | None, dict[str, Any]]
"""The decoded value, why it could not be decoded, and its fields."""


def _row(decode: Decoder, kinds: Mapping[str, str], value: bytes | None) -> Row:
    if value is None:
        return None, None, {}
    text, error = _decoded(decode, value)
    if text is None or not kinds:
        return text, error, {}
    found = json.loads(text)
    if not isinstance(found, dict):
        return text, "the value is not an object, so it has no fields", {}
    values: dict[str, Any] = {}
    misfits = []
    for name, kind in kinds.items():
        given = found.get(name)
        values[name] = None if given is None else _CONVERTED[kind](given)
        if given is not None and values[name] is None:
            misfits.append(f"{name} is no {kind}: {json.dumps(given, ensure_ascii=False)[:_MOST_TEXT]}")
    return text, "; ".join(misfits) or None, values


def _bigint(value: Any) -> int | None:
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def _timestamp(value: Any) -> datetime.datetime | None:
    """A time in ISO 8601, in UTC unless it has another zone."""
    try:
        found = datetime.datetime.fromisoformat(value)
        return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
    except (ValueError, TypeError):
        return None


_CONVERTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": lambda value: value if isinstance(value, str) else None,
    "bigint": _bigint,
    "double": lambda value: float(value) if type(value) in (int, float) and abs(value) < 2**1023 else None,
    "boolean": lambda value: value if isinstance(value, bool) else None,
    "timestamp": _timestamp,
}
"""The values of a column of each type; None for what does not fit."""


def _decoded(decode: Decoder, value: bytes) -> tuple[str | None, str | None]:
    if len(value) > MOST_BYTES:
        return None, f"the value has {len(value)} bytes; only values of up to {MOST_BYTES} bytes are decoded"
    return to_json(decode, value)


@lru_cache(maxsize=64)
def _decoder(name: str, schema: str | None) -> Decoder:
    return decoder(name, schema)


def _schema_text(location: str) -> str:
    return read_schema(*locate(location))
