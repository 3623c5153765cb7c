"""Stage the tables of one batch as files, or write them with the table format's own transactions.

Tables in Spark's file formats (Parquet, ORC, JSON, CSV, Avro) are staged below the staging directory and published
together by `commit`. Parquet files of ingest are used as they are if the tables are Parquet. Any other table format
(Delta, Iceberg, …) has its own transactions and is written in place before the batch is committed: if the run is
interrupted there, the next run writes the batch again. Delta skips a batch whose number it already has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.pandas.types import from_arrow_schema

from ..core.io.disk import REAL_DISK
from ..errors import WrongUse
from .commit import HOME, Move, Output, Staging, part_name, table_files
from .ingest import Ingested
from .parquet import COMPRESSION, COMPRESSIONS, write_empty
from .report.reducing import MOST_ROWS
from .settings import FILE_FORMATS, Settings
from .tables import DAMAGE, EVENTS, FILES, OFFSETS, Table
from .tables import storage as forms
from .tables.queue_items import with_last_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

INGEST: Final = "ingest"
_TABLES: Final = "tables"
_INGESTED: Final = {"events": EVENTS, "damage": DAMAGE}
_SOURCES: Final = {"events": EVENTS, "files": FILES, "offsets": OFFSETS}
"""The columns of each `source` of tables."""
_UNTYPED: Final = ("json", "csv")
"""Formats that do not store the types of columns."""
MADE_OF_TIME: Final = ("date", "hour")
TIMES: Final = ("timestamp", "minute", "valid_from")
_TIME_SETTING: Final = "spark.sql.parquet.outputTimestampType"
_HOUR_US: Final = 3_600_000_000


@dataclass(slots=True)
class Totals:
    """The size of a table. The number of files is None for formats that manage their own files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.rows + other.rows, self.files + other.files, self.bytes + other.bytes)


class Batch:
    """The changes of one batch to the tables: `moves`, `replaced` files, and the size of each table afterwards.

    `rebuilds_all` is true if all tables are rebuilt. `totals` begins with the sizes before the batch, and has
    those after it when everything is staged.
    """

    def __init__(self, output: Output, staging: Staging, settings: Settings, totals: Mapping[str, Totals]) -> None:
        self.rebuilds_all = not totals
        self.path = staging.path
        self.moves: list[Move] = []
        self.replaced: list[str] = []
        self.totals = dict(totals)
        self._output = output
        self._settings = settings
        self._written: dict[str, tuple[str, StructType]] = {}
        self._replaced_tables: set[str] = set()

    # --- what there is to make tables of ------------------------------------------------------------------------------

    @property
    def ingest_directory(self) -> Path:
        return self.path / INGEST

    def ingested(self, spark: SparkSession, name: str) -> DataFrame:
        """The events or the damage of this batch."""
        directory = self.ingest_directory / name
        schema = _INGESTED[name]
        if not REAL_DISK.list_directory(directory):
            write_empty(directory, schema)
        return spark.read.schema(from_arrow_schema(schema)).parquet(str(directory))

    def all_events(self, spark: SparkSession) -> DataFrame:
        """The events of this and all earlier batches, with renamed files under their final names."""
        added = self.ingested(spark, "events")
        if self.rebuilds_all:
            return added
        if self._settings.format not in FILE_FORMATS:  # it already has those of this batch
            return with_last_names(self._read(spark, "events", str(self._output.path / "events"), added.schema))
        before = self.before(spark, "events", added)
        return added if before is None else with_last_names(before.unionByName(added))

    def before(self, spark: SparkSession, table: str, like: DataFrame) -> DataFrame | None:
        """A table as it was before this batch, in the columns of another one; None if there was none."""
        if self.rebuilds_all or table not in self.totals:
            return None
        return self._read(spark, table, str(self._output.path / table), like.schema)

    def after(self, spark: SparkSession, table: Table) -> DataFrame | pa.Table | None:
        """A table as it will be after this batch, in Arrow if it is small and Parquet; None if there is none."""
        if table.name not in self.totals:
            return None
        is_plain = self._settings.format == "parquet" and not self._settings.table_rule(table.name).partition_by
        if is_plain and self.totals[table.name].rows <= MOST_ROWS:
            return self._fetched(table.name)
        if self._settings.format not in FILE_FORMATS:
            return spark.read.format(self._settings.format).load(str(self._output.path / table.name))
        place, schema = self._written.get(table.name, ("", None))
        added = None if schema is None else self._read(spark, table.name, place, schema)
        if table.name in self._replaced_tables:
            return added
        old = str(self._output.path / table.name)
        if schema is None and self._settings.format in _UNTYPED:
            schema = self._schema(spark, table)
        before = self._read(spark, table.name, old, schema) if table_files(self._output.path, table.name) else None
        if before is None or added is None:
            return before if added is None else added
        return before.unionByName(added, allowMissingColumns=True)

    def _fetched(self, table: str) -> pa.Table:
        """The future files of a table, read without a Spark job."""
        added = [self.path / move.source for move in self.moves if PurePosixPath(move.target).parts[0] == table]
        kept = [] if table in self._replaced_tables else table_files(self._output.path, table)
        return pa.concat_tables(
            [pq.read_table(path) for path in (*added, *(self._output.path / name for name in kept))]
        )

    def _read(self, spark: SparkSession, table: str, place: str, schema: StructType | None) -> DataFrame:
        """Read a table in the format of the tables, in the columns of a schema."""
        found = forms.load(spark, self._settings.format, self._options(table), place, schema)
        return found if schema is None else found.select(*schema.names)

    def _schema(self, spark: SparkSession, table: Table) -> StructType:
        """The columns of a table."""
        if table.source == "records":
            return from_arrow_schema(_INGESTED[table.name])
        nothing = spark.createDataFrame([], from_arrow_schema(_SOURCES[table.source]))
        made = table.make(nothing, self._settings.journal_rules)
        return _with_columns(made, self._settings.table_rule(table.name).partition_by, table.name).schema

    # --- staging ------------------------------------------------------------------------------------------------------

    def takes_ingested(self, table: str) -> bool:
        """Whether the files that ingest writes become the files of the table."""
        rule = self._settings.table_rule(table)
        options = {name.lower(): value.lower() for name, value in self._options(table).items()}
        is_known = set(options) <= {"compression"} and options.get("compression", COMPRESSION) in COMPRESSIONS
        return table in _INGESTED and self._settings.format == "parquet" and not rule.partition_by and is_known

    @property
    def compression(self) -> str:
        """The compression of the files that ingest writes."""
        options = {name.lower(): value.lower() for name, value in self._options("events").items()}
        chosen = options.get("compression", COMPRESSION) if self.takes_ingested("events") else COMPRESSION
        return COMPRESSIONS[chosen]

    def take_ingested(self, table: str, done: Ingested) -> None:
        """Add the files that ingest has written to the table."""
        files = done.files_of(table)
        if self.rebuilds_all and not files:
            files = [write_empty(self.ingest_directory / table, _INGESTED[table])]
        places = [(f"{INGEST}/{table}/{file.name}", "", "parquet", file.bytes) for file in files]
        self._written[table] = (str(self.ingest_directory / table), from_arrow_schema(_INGESTED[table]))
        self._note(table, places, sum(file.rows for file in files), replaces=self.rebuilds_all)

    def write(self, table: Table, frame: DataFrame, *, is_small: bool = False) -> None:
        """Let Spark write the rows of this batch: the whole table, or the rows to add."""
        replaces = self.rebuilds_all or table.kind != "append"
        columns = self._settings.table_rule(table.name).partition_by
        frame = _with_columns(frame, columns, table.name)
        if is_small:
            frame = frame.coalesce(1)
            if "minute" in frame.columns:
                frame = frame.sortWithinPartitions(F.asc_nulls_last("minute"), "journal")
        held = forms.stored(frame, self._settings.format)
        writer = held.write.format(self._settings.format).options(**self._options(table.name)).partitionBy(*columns)
        if self._settings.format in FILE_FORMATS:
            directory = self.path / _TABLES / table.name
            with _plain_times(frame.sparkSession):
                writer.save(str(directory))
            places = list(_data_files(directory, f"{_TABLES}/{table.name}", ""))
            self._written[table.name] = (str(directory), frame.schema)
            self._note(table.name, places, self._count(table.name, frame, directory, places), replaces=replaces)
            return
        if self._settings.format == "delta":
            writer = writer.option("txnAppId", str(self._output.path)).option("txnVersion", self._output.batch)
        writer.mode("overwrite" if replaces else "append").save(str(self._output.path / table.name))
        added = Totals(frame.count())
        self.totals[table.name] = added if replaces else self.totals.get(table.name, Totals()) + added

    def _options(self, table: str) -> dict[str, str]:
        given = (self._settings.options, self._settings.table_rule(table).options)
        return forms.options_of(self._settings.format, *given)

    def _count(self, table: str, frame: DataFrame, directory: Path, places: Sequence[tuple[str, str, str, int]]) -> int:
        """The number of rows that Spark has written."""
        if self._settings.format == "parquet":
            return sum(pq.read_metadata(self.path / source).num_rows for source, *_ in places)
        return self._read(frame.sparkSession, table, str(directory), frame.schema).count() if places else 0

    def _note(self, table: str, places: Sequence[tuple[str, str, str, int]], rows: int, *, replaces: bool) -> None:
        """Add files to the moves: each is its path in the staging directory, its folder in the table, its suffix and
        its size.
        """
        if not replaces and not rows and table in self.totals:
            return  # no new rows, and the table has its columns already
        for number, (source, folder, suffix, size) in enumerate(places):
            name = part_name(self._output.batch, number, suffix)
            self.moves.append(Move(source, f"{table}/{folder}{name}", size))
        if replaces:
            self._replaced_tables.add(table)
            self.replaced += table_files(self._output.path, table)
        added = Totals(rows, len(places), sum(size for *_, size in places))
        self.totals[table] = added if replaces else self.totals.get(table, Totals()) + added

    def drop(self, table: str) -> None:
        """Remove a table that this batch does not make."""
        self.replaced += table_files(self._output.path, table)


@contextlib.contextmanager
def _plain_times(spark: SparkSession) -> Iterator[None]:
    """Write times in Parquet in the standard type. Spark's default is the deprecated INT96."""
    before = spark.conf.get(_TIME_SETTING)
    spark.conf.set(_TIME_SETTING, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIME_SETTING, before)  # type: ignore[arg-type]


def _data_files(directory: Path, source: str, folder: str) -> Iterator[tuple[str, str, str, int]]:
    """The data files that Spark has written, without its marker files."""
    for name in REAL_DISK.list_directory(directory):
        if name.startswith(("_", ".")) and "=" not in name:
            continue
        if REAL_DISK.is_directory(directory / name):
            yield from _data_files(directory / name, f"{source}/{name}", f"{folder}{name}/")
        else:
            size = REAL_DISK.file_size(directory / name)
            yield f"{source}/{name}", folder, name.partition(".")[2] or "data", size


def _with_columns(frame: DataFrame, columns: Sequence[str], table: str) -> DataFrame:
    """A table with its partition columns: its own, and `date` and `hour` (UTC) derived from its time."""
    for name in columns:
        if name in frame.columns:
            continue
        time = next((column for column in TIMES if column in frame.columns), None)
        if name not in MADE_OF_TIME or time is None:
            raise WrongUse(f"table.{table}.partition_by: there is no {name!r}; there are {', '.join(frame.columns)}")
        hours = F.floor(F.unix_micros(time) / F.lit(_HOUR_US))
        made: Any = F.date_from_unix_date(F.floor(hours / 24).cast("int"))
        frame = frame.withColumn(name, made if name == "date" else F.pmod(hours, F.lit(24)).cast("int"))
    return frame


assert HOME not in _INGESTED
