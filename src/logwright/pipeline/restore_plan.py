"""Plan what to restore from tables: the journals and files in them, their final names, and what is missing.

`choose` reads the record tables (how many rows of which file), `files`, `consumers` and `damage`, keeps what matches
the patterns, and refuses what cannot be restored. Nothing is written here. A format that renames its files over time
says what the final name of each is (`settled`). Several files that one writer writes together count as one file here
(`unit_of`).
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from ..core.format import find_format
from ..core.publish.restore import check_journals
from ..core.repair.losses import Loss
from ..errors import NotFound, WrongUse
from .tables import CONSUMERS, DAMAGE, FILES, QUARANTINE, QUARANTINED, TABLES, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
RECORD_TABLES: Final = [table for table in TABLES.values() if table.is_record_table]
_MOST_DAMAGES: Final = 1000
"""The number of damaged ranges that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables, as Spark reads them: the data files of each."""

    spark: SparkSession
    location: str
    files: Mapping[str, Sequence[str]]

    def has(self, name: str) -> bool:
        return bool(self.files.get(name))

    def read(self, name: str, schema: pa.Schema) -> DataFrame:
        """The columns of a schema of one table."""
        place = f"{self.location.rstrip('/')}/{name}"
        with _partitions_as_text(self.spark):
            frame = self.spark.read.option("basePath", place).parquet(*self.files[name])
        unknown = [column for column in schema.names if column not in frame.columns]
        if unknown:
            raise WrongUse(f"{self.location}: the table {name} has no column {', '.join(unknown)}")
        types = from_arrow_schema(schema)
        return frame.select(*(F.col(each.name).cast(each.dataType) for each in types))

    def records(self, table: Table) -> DataFrame:
        """The rows of a record table, and those of its records that are in quarantine."""
        quarantined = self._quarantined(table) if self.has(QUARANTINE) else None
        found = self.read(table.name, table.schema) if self.has(table.name) else None
        if found is None or quarantined is None:
            rows = found if found is not None else quarantined
            assert rows is not None
            return rows
        return found.unionByName(quarantined)

    def _quarantined(self, table: Table) -> DataFrame:
        """The records of a table that are in quarantine: their rows are kept as JSON, with bytes in base64."""
        types = from_arrow_schema(table.schema)
        as_text = (BinaryType, TimestampType)
        kinds = {each.name: StringType() if isinstance(each.dataType, as_text) else each.dataType for each in types}
        parsed = StructType([StructField(name, kind) for name, kind in kinds.items()])
        rows = self.read(QUARANTINE, QUARANTINED).where(F.col("table") == table.name)
        rows = rows.select(F.from_json("row", parsed, {"mode": "FAILFAST"}).alias("row")).select("row.*")
        return rows.select(
            *(
                (F.unbase64(each.name) if isinstance(each.dataType, BinaryType) else F.col(each.name))
                .cast(each.dataType)
                .alias(each.name)
                for each in types
            )
        )


@contextlib.contextmanager
def _partitions_as_text(spark: SparkSession) -> Iterator[None]:
    """Read values of partitions as they are written: the journal `007` is not `7`."""
    before = spark.conf.get(_INFERENCE) or "true"
    spark.conf.set(_INFERENCE, "false")
    try:
        yield
    finally:
        spark.conf.set(_INFERENCE, before)


# --- what there is to restore ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class FileToWrite:
    """A file to write: its records and their bytes in the tables, and its row in `files`, if there is one.

    If it represents several files, `listed` are those in `files`.
    """

    records: int = 0
    bytes: int = 0
    listed_bytes: int | None = None
    listed_next: int | None = None
    listed: list[str] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of its writer besides its name."""
        return {} if self.listed is None else {"listed": self.listed}


@dataclass(slots=True)
class JournalToWrite:
    """A journal to restore."""

    format: str
    name: str
    files: dict[str, FileToWrite] = field(default_factory=dict)
    consumers: dict[str, dict[str, int | None]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    is_single_file: bool = False


class Origin(NamedTuple):
    """The name of a file in rows of a record table, and its final name.

    `generation` distinguishes files that had the same name at different times; it is -1 where files keep their names.
    """

    format: str
    journal: str
    file: str
    generation: int
    settled: str


@dataclass(slots=True)
class Chosen:
    """The journals to restore, and the records that they are restored from."""

    records: dict[str, DataFrame] = field(default_factory=dict)
    """The record tables that there are, by format."""
    journals: dict[str, JournalToWrite] = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=list)
    """Journals that cannot be restored and were not selected by name."""

    def journal(self, format: str, name: str) -> JournalToWrite:
        found = self.journals.setdefault(name, JournalToWrite(format, name))
        if found.format != format:
            raise WrongUse(f"these tables have the journal {name} in two formats, {found.format} and {format}")
        return found

    def with_records(self) -> list[tuple[JournalToWrite, str]]:
        """The files that have records, in order: the index in this list is the number of a file."""
        return [
            (journal, name)
            for journal in self.journals.values()
            for name, file in sorted(journal.files.items())
            if file.records
        ]


def choose(tables: Tables, patterns: Sequence[str] | None) -> Chosen:
    """Choose the journals that match the patterns, and check that they can be restored."""
    names = [name for name in ("files", "consumers", "damage") if tables.has(name)]
    found = Chosen()
    for table in RECORD_TABLES:
        if tables.has(table.name) or tables.has(QUARANTINE):
            assert table.format is not None
            found.records[table.format] = tables.records(table)
            _note_records(found, table)
    if not found.records and "files" not in names:
        wanted = ", ".join(table.name for table in RECORD_TABLES)
        raise NotFound(f"{tables.location}: there is no table of records here ({wanted})")
    if "files" in names:
        _note_files(found, tables.read("files", FILES).collect())
    _keep_fitting(found, patterns, tables.location)
    flat = [name for name, journal in found.journals.items() if find_format(journal.format).flat]
    check_journals(found.journals, flat)
    if "consumers" in names:
        _note_consumers(found, tables.read("consumers", CONSUMERS).collect())
    if "damage" in names:
        _note_losses(found, tables)
        _note_damage(found, tables)
    for journal in found.journals.values():
        _check_files(journal)
        if "files" not in names:
            journal.problems.append("there is no table files: files without records are not restored")
        has_consumers = find_format(journal.format).consumers is not None and not journal.is_single_file
        if "consumers" not in names and has_consumers:
            journal.problems.append("there is no table consumers: how far they had come is not restored")
    found.journals = dict(sorted(found.journals.items()))
    return found


def _note_records(found: Chosen, table: Table) -> None:
    assert table.format is not None
    total = (F.count("*"), F.sum(F.col("size").cast("bigint")))
    place = ("journal", "file", generation_column(table.format).alias("_generation"))
    counted: dict[str, list[tuple[str, int, int, int]]] = {}
    for journal, *row in found.records[table.format].groupBy(*place).agg(*total).collect():
        if None in (journal, *row):
            raise WrongUse(f"the table {table.name} has rows without a journal or a file")
        counted.setdefault(journal, []).append(tuple(row))
    for name, rows in counted.items():
        files = found.journal(table.format, name).files
        settled = _settled(table.format, [(file, generation) for file, generation, _, _ in rows])
        for file, generation, records, size in rows:
            found.origins.append(Origin(table.format, name, file, generation, settled[file, generation]))
            one = files.setdefault(settled[file, generation], FileToWrite())
            one.records += records
            one.bytes += size


def generation_column(format: str) -> Column:
    """The generation of a row's file (see `Origin`): -1 for formats whose files keep their names."""
    unknown = F.lit(-1).cast("bigint")
    return F.coalesce(F.col("sequence"), unknown) if find_format(format).restore.renames_files else unknown


def _settled(format: str, names: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """The final name of each file."""
    restore = find_format(format).restore
    found = restore.settled([(file, None if generation < 0 else generation) for file, generation in names])
    return {(file, generation): found[file, None if generation < 0 else generation] for file, generation in names}


def _note_files(found: Chosen, rows: Iterable[Any]) -> None:
    for row in rows:
        if row["file"] is None:
            continue
        files = found.journal(row["format"], row["journal"]).files
        unit = find_format(row["format"]).restore.unit_of(row["file"])
        if unit is None:
            file = files.setdefault(row["file"], FileToWrite())
            file.listed_bytes, file.listed_next = row["bytes"], row["next"]
        else:  # the old size is meaningless: the file may be compressed, and is rewritten
            file = files.setdefault(unit, FileToWrite())
            file.listed = [*(file.listed or ()), row["file"]]


def _note_losses(found: Chosen, tables: Tables) -> None:
    """Collect the losses in the accounts of the journals."""
    rows = tables.read("damage", DAMAGE).where(F.col("detail").isNotNull())
    for row in rows.where(F.col("journal").isin(list(found.journals))).orderBy("journal", "detail").collect():
        try:
            loss = Loss.from_json(json.loads(row["detail"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WrongUse(f"the table damage has a loss of {row['journal']} that cannot be read: {error!r}") from None
        found.journals[row["journal"]].losses.append(loss)


def _writes_units(journal: JournalToWrite) -> bool:
    restore = find_format(journal.format).restore
    return any(restore.unit_of(file) is not None for file in journal.files)


def _note_damage(found: Chosen, tables: Tables) -> None:
    """Note the damage of journals whose sizes do not show it."""
    names = [name for name, journal in found.journals.items() if _writes_units(journal)]
    if not names:
        return
    rows = tables.read("damage", DAMAGE).where(F.col("journal").isin(names) & F.col("file").isNotNull())
    rows = rows.where(F.col("detail").isNull())
    for row in rows.orderBy("journal", "file", "position").limit(_MOST_DAMAGES).collect():
        place = f"{row['file']} @ {row['position']}"
        found.journals[row["journal"]].problems.append(f"{place} was damaged ({row['kind']}): {row['reason']}")


def _note_consumers(found: Chosen, rows: Iterable[Any]) -> None:
    for row in rows:
        journal = found.journals.get(row["journal"])
        if journal is None or row["consumer"] is None:
            continue
        if row["problem"] is not None:
            journal.problems.append(f"the consumer {row['consumer']} is not restored: {row['problem']}")
        else:
            journal.consumers.setdefault(row["shard"] or "", {})[row["consumer"]] = row["offset"]


def _keep_fitting(found: Chosen, patterns: Sequence[str] | None, location: str) -> None:
    if patterns is not None:
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in found.journals):
                raise WrongUse(f"{location}: no journal matches {pattern!r}")
        found.journals = {
            name: journal
            for name, journal in found.journals.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        }
        found.origins = [origin for origin in found.origins if origin.journal in found.journals]
    if not found.journals:
        raise NotFound(f"{location}: these tables contain no journal")


def _check_files(journal: JournalToWrite) -> None:
    """Raise `WrongUse` for file names that are impossible in this format."""
    restore = find_format(journal.format).restore
    kinds = {restore.is_single_file(file) for file in journal.files}
    if kinds == {True, False} or (True in kinds and len(journal.files) > 1):
        raise WrongUse(f"the journal {journal.name} is a file and a directory at once in these tables")
    journal.is_single_file = True in kinds
