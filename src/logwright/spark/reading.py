"""Reading journals on Spark, for tables and for streams: finding them below a path, and what a task does with splits.

A task opens the journal again, decodes the columns that are asked for into Arrow batches of bounded size, filters them,
and hands them over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..core.disk import Disk
from ..core.errors import DamagedJournal, NotFound, UnknownFormat, WrongUse
from ..core.format import detect, find_format
from ..core.outcome import Damage, Mode, check_mode
from ..core.split import TARGET_BYTES, Split
from ..location import locate
from . import schemas
from .filters import Condition, keep
from .options import byte_size

_MOST_BYTES_OF_A_ROW: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that was found: its format, where it is, and what it is called below the path that was asked for."""

    format: str
    location: str
    name: str


class Part(InputPartition):
    """What one task reads: splits of one or several journals."""

    def __init__(self, parts: list[tuple[Journal, Split]]) -> None:
        super().__init__(None)
        self.parts = parts


class Reading:
    """The options of every read, and what its tasks do. It goes to them pickled: options and numbers only."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None) -> None:
        self.format = format
        self.wanted = schemas.arrow_schema(schema, format)
        self.location = _path_of(options)
        self.mode: Mode = check_mode(options.get("mode", "failfast").strip().lower())
        self.split_bytes = byte_size(options, "splitBytes", TARGET_BYTES)
        self.batch_bytes = byte_size(options, "batchBytes", 4 << 20)
        self.conditions: list[Condition] = []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        assert isinstance(partition, Part)
        for journal, split in partition.parts:
            yield from self.read_split(journal, split)

    def read_split(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch]:
        """The record batches of one split."""
        format = find_format(journal.format)
        reader: Any = open_journal(journal)
        sharded = bool(split.part)
        names = schemas.sources_of(self.wanted.names, journal.format, sharded=sharded)
        collector = format.room("columns").Collector(names, sharded=sharded, batch_bytes=self.batch_bytes)
        with _naming(journal, split.part):
            for item in format.room("splits").chunks(reader, split, self.mode):
                if isinstance(item, Damage):
                    yield from self._finished(collector.finish(), journal)
                    yield from self._damage_rows(journal, split.part, item)
                else:
                    yield from self._finished(collector.add(item, split.part), journal)
        yield from self._finished(collector.finish(), journal)

    def _damage_rows(self, journal: Journal, part: str, damage: Damage) -> Iterator[pa.RecordBatch]:
        """One row, or where the size of a range does not fit an INT, several for the pieces of it."""
        file = file_of(journal.format, part, damage.file)
        for start in range(damage.start, max(damage.end, damage.start + 1), _MOST_BYTES_OF_A_ROW):
            size = min(damage.end - start, _MOST_BYTES_OF_A_ROW)
            place = (journal.format, journal.name, file, start, size)
            yield schemas.damage_row(self.wanted, *place, f"{damage.kind}: {damage.reason}")

    def _finished(self, batches: Iterator[pa.RecordBatch], journal: Journal) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            filled = keep(schemas.fill(self.wanted, batch, journal.format, journal.name), self.conditions)
            if filled.num_rows:
                yield filled


@contextlib.contextmanager
def _naming(journal: Journal, part: str) -> Iterator[None]:
    """Let damage be told with the names of the journal and of its part: a read may have many of them."""
    try:
        yield
    except DamagedJournal as error:
        names = [name for name in (journal.name, file_of(journal.format, part, str(error.file))) if name]
        file = "/".join(names if names[-1] != journal.name else names[:-1])
        raise type(error)(file, error.position, error.reason) from error


def file_of(format: str, part: str, file: str) -> str:
    """A file of a part of a journal as it is seen from the journal."""
    tell = getattr(find_format(format).room("splits"), "file_of", None)
    if tell is not None:
        return str(tell(part, file))
    return f"{part}/{file}" if part else file


def _path_of(options: dict[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise WrongUse("say which journal: .load(PATH)")
    return path


def open_journal(journal: Journal) -> Any:
    """A reader of a journal, wherever it is."""
    disk, path = locate(journal.location)
    return find_format(journal.format).open(path, disk=disk)


def find_journals(location: str, format: str | None) -> list[Journal]:
    """The journals at or below a location, in the order of their names; of one format, or of any."""
    found = list_journals(location, format)
    if not found:
        raise UnknownFormat(f"{location}: no journal of {format or 'any known format'} is here or below")
    return found


def list_journals(location: str, format: str | None) -> list[Journal]:
    """As `find_journals`, but there may be none yet."""
    disk, root = locate(location)
    if not disk.exists(root):
        raise NotFound(f"{location}: no such file or directory")
    return _found_at(disk, root, location, "", format)


def _found_at(disk: Disk, path: Path, location: str, name: str, format: str | None) -> list[Journal]:
    """The directory itself if it is a journal, and what is in it. What cannot be recognised is not a journal.

    What is in a directory that is a journal is part of that, unless its format knows nothing but files.
    """
    try:
        chosen = detect(path, disk=disk)
    except UnknownFormat:
        chosen = None
    found: list[Journal] = []
    if chosen is not None and format in (None, chosen.name):
        found.append(Journal(chosen.name, location, readable(name or path.name)))
    if not disk.is_directory(path) or (chosen is not None and "flat" not in chosen.traits):
        return found
    seen = {location}
    for entry in disk.list_directory(path):
        if entry.startswith(".") or (chosen is not None and not disk.is_directory(path / entry)):
            continue
        below = f"{location.rstrip('/')}/{entry}"
        with contextlib.suppress(NotFound):  # removed while we looked
            for journal in _found_at(disk, path / entry, below, f"{name}/{entry}" if name else entry, format):
                journal = journal if journal.location != below else _as_a_whole(disk, path, journal)
                if journal.location not in seen:
                    found.append(journal)
                    seen.add(journal.location)
    return found


def _as_a_whole(disk: Disk, directory: Path, journal: Journal) -> Journal:
    """The journal that a file in a directory belongs to, where that may have several: one queue is one journal."""
    entry = journal.location.rpartition("/")[2]
    if "flat" not in find_format(journal.format).traits or disk.is_directory(directory / entry):
        return journal
    whole: str = find_format(journal.format).room("journal").journal_of(entry)
    location, name = journal.location.removesuffix(entry) + whole, readable(whole)
    return Journal(journal.format, location, f"{journal.name.rpartition('/')[0]}/{name}".lstrip("/"))


def readable(name: str) -> str:
    """A name as text, for columns: bytes in it that are no UTF-8 are written out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
