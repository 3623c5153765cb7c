"""The records of any journal in typed columns: those of each format, those that all formats share, and their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import pyarrow as pa

from ..core.bytes.outcome import Damage, Mode
from ..core.format import find_format
from ..core.read.columns import BATCH_BYTES, Columns
from ..core.read.splits import Split
from ..errors import renaming_damage
from ..location import locate
from .discovery import Journal

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
"""The columns that all formats share."""
_PLACE: Final = ("sequence", "file", "position", "size")
"""Columns of `records` besides those of the format; `sequence` is its number, by which records are ordered."""


def columns_of(format: str | None) -> pa.Schema:
    """The typed columns of a format; for None, the columns that all formats share."""
    if format is None:
        return UNIFIED
    return find_format(format).columns.typed


def record_columns(format: str) -> pa.Schema:
    """The columns of the table `records`: those of the format, and the place of a record."""
    typed = columns_of(format)
    return pa.schema([*typed, *(UNIFIED.field(name) for name in _PLACE if name not in typed.names)])


def sources_of(names: Sequence[str], format: str, *, sharded: bool) -> list[str]:
    """The columns of a format that must be decoded to make these columns."""
    plain = [name.removeprefix("_") for name in names]
    return find_format(format).columns.sources(plain, sharded=sharded)


def fill(wanted: pa.Schema, batch: pa.RecordBatch, format: str, journal: str) -> pa.RecordBatch:
    """Make a batch of typed columns from a batch of the format's columns."""
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


def read_split(
    journal: Journal,
    reader: Any,
    split: Split,
    wanted: pa.Schema,
    mode: Mode = "failfast",
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch | Damage]:
    """The records of one split in typed columns, and damage where it is, in order."""
    format = find_format(journal.format)
    sharded = bool(split.part)
    names = sources_of(wanted.names, journal.format, sharded=sharded)
    collector = format.columns.collector(names, sharded=sharded, batch_bytes=batch_bytes)

    def filled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (fill(wanted, batch, journal.format, journal.name) for batch in batches)

    with naming(journal, split.part):
        for item in format.splits.chunks(reader, split, mode):
            if isinstance(item, Damage):
                yield from filled(collector.finish())
                yield item
            else:
                yield from filled(collector.add(item, split.part))
    yield from filled(collector.finish())


def naming(journal: Journal, part: str) -> AbstractContextManager[None]:
    """Raise damage with the names of the journal and of its part."""
    return renaming_damage(lambda file: place_of(journal, file_of(journal.format, part, file)))


def place_of(journal: Journal, file: str) -> str:
    """The path of a journal's file below the directory that was searched for journals.

    If the journal is a file, and not a directory, its files are beside it.
    """
    disk, path = locate(journal.location)
    above = journal.name if disk.is_directory(path) else journal.name.rpartition("/")[0]
    return "/".join(name for name in (above, file) if name) or journal.name


def file_of(format: str, part: str, file: str) -> str:
    """The path of a file of a part, relative to the journal."""
    return find_format(format).splits.file_of(part, file)
