"""The tables of the pipeline: their columns, and which rows of them a batch adds or replaces.

    events, damage                 a row for every record of any format, and for every range of bytes that is none
    messages, queue_operations, kv_changes, segment_records, page_operations
                                   a row for every record, in the columns of its format
    queue_items, kv_history, kv_state, segments, transactions, page_versions
                                   what the records of a format describe: see the materializer of the format
    activity                       records and bytes of each journal per minute
    consumers, files               lists that the driver makes

The tables of a format are those of its `Materials`, with the name of the journal as the first column. Rows that are
final are only added. Live rows are replaced when the journal has changed: see `layout.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.rows import UNIFIED
from ..arrow.tables import DAMAGE as DAMAGED
from ..core.arrow.columns import floored
from ..core.format import FORMATS
from ..errors import WrongUse
from .settings import COLUMN_TYPES, JournalRule, Settings

EVENTS: Final = pa.schema([field for field in UNIFIED if field.name not in ("value", "detail", "damage")])
DAMAGE: Final = pa.schema([("format", pa.string()), *DAMAGED, ("detail", pa.string())])
"""Damaged ranges of bytes, with the reason. The file is null for a journal that could not be opened.

The kinds `lost` and `restored` are from the account of losses that repairs write: see `core/repair/losses.py`. Their
`detail` is the loss as JSON; for other kinds it is null.
"""
ACTIVITY: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("minute", pa.timestamp("us", tz="UTC")),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""The minute is null for records without a time."""
CONSUMERS: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("shard", pa.string()),
        ("consumer", pa.string()),
        ("offset", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("lag", pa.int64()),
        ("missed", pa.int64()),
        ("status", pa.string()),
        ("problem", pa.string()),
    ]
)
"""Consumers, and the record numbers in their part of a journal. An offset is null before the first commit, and if there
is a `problem`.

`lag` is the number of records that it has not read, `missed` the number of records that were removed before it read
them; both are null without an offset. `status` is `current`, `behind`, `overtaken` (some records were missed),
`ahead` (of the end of the journal, which was cut or replaced), `new` (nothing committed yet) or `unreadable`.
"""
FILES: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("part", pa.string()),
        ("file", pa.string()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
    ]
)
"""The files of journals: `file` as in the other tables, and the range of its record numbers, `first` <= n < `next`."""
STATE: Final = "_state"
"""The table with the states of materializers, from which an increment continues."""
STATES: Final = pa.schema([("journal", pa.string()), ("part", pa.string()), ("data", pa.binary())])

QUARANTINE: Final = "quarantine"
"""The table with the rows that do not meet expectations; it exists if there are such expectations."""
QUARANTINED: Final = pa.schema(
    [
        ("table", pa.string()),
        ("journal", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.string()),
    ]
)
"""`row` is the whole row as JSON, with bytes in base64. `file` and `position` are null if its table has none."""

DECODED: Final = pa.schema([("decoded", pa.string()), ("decode_error", pa.string())])
"""The columns that `messages` has besides, if any rule decodes."""
FIELD_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
assert tuple(FIELD_TYPES) == COLUMN_TYPES
TIMES: Final = ("timestamp", "minute", "valid_from")
MADE_OF_TIME: Final = {"date": pa.date32(), "hour": pa.int32()}
"""Columns that a table may be partitioned by, made of the first of its times."""
MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 60 * MINUTE_US


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and the format whose journals it is made of; None for all formats."""

    name: str
    schema: pa.Schema
    format: str | None = None
    is_record_table: bool = False


def _of_formats() -> tuple[list[Table], list[Table]]:
    """The record tables and the state tables of all formats."""
    records: list[Table] = []
    states: list[Table] = []
    for name, format in FORMATS.items():
        materials = format.materials
        for table, schema in {} if materials is None else materials.schemas.items():
            is_record_table = materials is not None and table == materials.record_table
            named = schema.insert(0, pa.field("journal", pa.string()))
            (records if is_record_table else states).append(Table(table, named, name, is_record_table))
    return records, states


def _tables() -> dict[str, Table]:
    records, states = _of_formats()
    found = [Table("events", EVENTS), Table("damage", DAMAGE), *records, Table("activity", ACTIVITY), *states]
    return {table.name: table for table in (*found, Table("consumers", CONSUMERS), Table("files", FILES))}


TABLES: Final = _tables()
"""All tables, in the order in which they are shown."""


def schema_of(table: str, settings: Settings) -> pa.Schema:
    """The columns of a table with these settings, those that it is partitioned by included."""
    if table in (STATE, QUARANTINE):
        return STATES if table == STATE else QUARANTINED
    schema = TABLES[table].schema
    if table == "messages" and any(rule.decode for rule in settings.journal_rules):
        schema = pa.schema([*schema, *DECODED, *field_columns(schema, settings.journal_rules)])
    for name in settings.table_rule(table).partition_by:
        if name not in schema.names:
            schema = schema.append(pa.field(name, _partition_type(table, schema, name)))
        elif not _can_partition(schema.field(name).type):
            kind = schema.field(name).type
            raise WrongUse(f"table.{table}.partition_by: {name} is {kind}; choose a text, a whole number or a flag")
    return schema


def field_columns(schema: pa.Schema, rules: Sequence[JournalRule]) -> list[pa.Field]:
    """The columns of `messages` that are fields of decoded values, by all rules."""
    found: dict[str, str] = {}
    for rule in rules:
        for name, kind in rule.columns:
            if name in (*schema.names, *DECODED.names, *MADE_OF_TIME):
                raise WrongUse(
                    f"journal {rule.match!r}, columns.{name}: the table messages has a column {name} already"
                )
            if found.setdefault(name, kind) != kind:
                raise WrongUse(f"journal {rule.match!r}, columns.{name}: another rule says {found[name]}, not {kind}")
    return [pa.field(name, FIELD_TYPES[kind]) for name, kind in found.items()]


def _partition_type(table: str, schema: pa.Schema, name: str) -> pa.DataType:
    made = MADE_OF_TIME if any(time in schema.names for time in TIMES) else {}
    if name not in made:
        there = ", ".join((*schema.names, *made))
        raise WrongUse(f"table.{table}.partition_by: there is no {name!r}; there are {there}")
    return made[name]


def _can_partition(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean))


def partition_column(rows: pa.RecordBatch, name: str) -> pa.Array:
    """A column that a table is partitioned by: its own, or `date` or `hour` (UTC) of its time."""
    if name in rows.schema.names:
        return rows.column(name)
    time = next(column for column in TIMES if column in rows.schema.names)
    micros = rows.column(time).cast(pa.int64())
    hours = floored(micros, _HOUR_US)
    days = floored(hours, 24)
    if name == "date":
        return days.cast(pa.int32()).cast(pa.date32())
    return pc.subtract(hours, pc.multiply(days, 24)).cast(pa.int32())


def minutes_of(times: pa.Array) -> pa.Array:
    """The minutes that times in microseconds are in."""
    return pc.multiply(floored(times.cast(pa.int64()), MINUTE_US), MINUTE_US).cast(times.type)


COUNTED: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "queue_items": (("queue", "state"), ()),
    "kv_history": (("store",), ("deleted",)),
    "kv_state": (("store",), ()),
    "segments": ((), ("complete", "checked", "records", "bytes")),
    "transactions": (("file", "outcome"), ("bytes",)),
    "page_versions": (("file",), ("deleted", "is_first")),
}
"""What the report counts of the tables of one journal: rows by some columns, and the sums of others."""


def _is_constant(column: pa.Array) -> bool:
    return pa.types.is_dictionary(column.type) and len(column.dictionary) == 1 and not column.null_count


def count(table: str, rows: pa.Table | pa.RecordBatch) -> dict[tuple[str, ...], list[int]]:
    """The numbers of rows by the columns in `COUNTED`, each followed by the sums of the others."""
    place, sums = COUNTED[table]
    if "is_first" in sums:
        rows = rows.append_column("is_first", pc.equal(rows["version"], 1))
    chosen = rows.select([*place, *sums])
    for name in sums:
        if pa.types.is_boolean(chosen.schema.field(name).type):
            chosen = chosen.set_column(chosen.schema.get_field_index(name), name, chosen[name].cast(pa.int64()))
    if not place or (isinstance(rows, pa.RecordBatch) and all(_is_constant(rows.column(name)) for name in place)):
        key = tuple(rows.column(name)[0].as_py() for name in place) if rows.num_rows else ()
        return {key: [chosen.num_rows, *(pc.sum(chosen[name]).as_py() or 0 for name in sums)]} if rows.num_rows else {}
    wanted: list[tuple[list[str] | str, str]] = [([], "count_all"), *((name, "sum") for name in sums)]
    if isinstance(chosen, pa.RecordBatch):
        chosen = pa.Table.from_batches([chosen])
    found = chosen.group_by(list(place), use_threads=False).aggregate(wanted)
    names = ["count_all", *(f"{name}_sum" for name in sums)]
    places = zip(*(found[name].to_pylist() for name in place), strict=True)
    numbers = zip(*(found[name].to_pylist() for name in names), strict=True)
    return {key: [number or 0 for number in each] for key, each in zip(places, numbers, strict=True)}
