"""ingest: journals become Parquet without a row crossing into the JVM.

Spark plans and schedules, its Python workers do the rest: a task decodes its splits of journals with the code of the
source `logwright` and writes what it finds as Parquet files of its own, `events` and, where something is wrong,
`damage`. All that goes back to Spark, and to the driver, is one row for each task that says what it has written.
Whoever asked for it publishes the files that successful tasks have reported; what a failed, repeated or speculated
attempt has left has another name and is nobody's.

    ingest.to_parquet(spark, "journals", "events")      any journals below a root, as a directory of Parquet files

The rows are those of `tables.events` and `tables.damage`. A task holds one row group at a time, about 32 MiB. The
directory that is written to must be one that all executors share: on one machine any.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..core.disk import REAL_DISK, make_directories, remove_tree
from ..core.errors import HistoryUnavailable, LogwrightError, NotFound, StorageFailed, UnknownFormat, WrongUse
from ..core.format import find_format
from ..core.outcome import Damage
from ..core.split import TARGET_BYTES, Split, pack
from ..location import is_local, locate
from ..spark import schemas
from ..spark.reading import Journal, Part, Reading, file_of, list_journals, open_journal
from ..spark.stream import JournalStream, Offset, Place, Standing, looking_again
from .commit import part_name
from .settings import JournalRule, Settings
from .tables import DAMAGE, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SOURCE: Final = "logwright.ingest"
UNREADABLE: Final = "unreadable"
"""The kind of damage of what could not even be opened."""
COMPRESSION: Final = "lz4"
"""The fastest that makes it smaller; every reader of Parquet knows it as LZ4_RAW."""
COMPRESSIONS: Final = {
    "none": "none",
    "uncompressed": "none",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "snappy": "snappy",
    "zstd": "zstd",
    "gzip": "gzip",
}
"""What Spark calls them, and what Arrow does."""
ROW_GROUP_BYTES: Final = 32 << 20
_BATCH_BYTES: Final = 4 << 20
"""How much is decoded at once: what the processor's cache holds."""

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_REPEATING: Final = ("format", "journal", "file", "op", "detail")
"""Columns in which few values repeat: these go through Arrow, and into Parquet, as dictionaries."""
_RISING: Final = ("position", "size", "sequence", "timestamp", "timestamp_ns")
"""Numbers that differ little from one row to the next, so that only the differences are kept."""
_WRITTEN: Final = pa.schema(
    [pa.field(column.name, _NAMES if column.name in _REPEATING else column.type) for column in EVENTS]
)
_PAGE_BYTES: Final = 1 << 20

Unreadable: TypeAlias = tuple[str, str, str]
"""Format and name of a journal that cannot be opened, and why."""


# --- what is to be read -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be read, and where to. It goes to whoever plans and to the tasks, as JSON.

    Without `end` all that there is now is read, torn tails are told, and journals that cannot be opened as well. With
    it the records from `start` to `end` are, which are offsets of a stream, and `unreadable` is what is told.
    """

    settings: Settings
    staging: str
    start: Offset = field(default_factory=dict)
    end: Offset | None = None
    unreadable: tuple[Unreadable, ...] = ()
    compression: str = COMPRESSION

    def as_json(self) -> str:
        chosen = self.settings
        return json.dumps(
            {
                "settings": {
                    "journals": chosen.journals,
                    "out": chosen.out,
                    "mode": chosen.mode,
                    "split_bytes": chosen.split_bytes,
                    "fail_on_data_loss": chosen.fail_on_data_loss,
                    "journal_rules": [asdict(rule) for rule in chosen.journal_rules],
                },
                "staging": self.staging,
                "start": self.start,
                "end": self.end,
                "unreadable": self.unreadable,
                "compression": self.compression,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        found = json.loads(text)
        rules = tuple(JournalRule(**rule) for rule in found["settings"].pop("journal_rules"))
        settings = Settings(**found.pop("settings"), journal_rules=rules)
        found["unreadable"] = tuple((format, name, reason) for format, name, reason in found["unreadable"])
        return cls(settings, **found)


def chosen_journals(settings: Settings) -> list[Journal]:
    """The journals at or below the root that no rule excludes. The tables themselves are not looked through."""
    found = list_journals(settings.journals, None)
    disk, out = locate(settings.out)
    return [
        journal
        for journal in found
        if not settings.rule_of(journal.name).exclude
        and not (is_local(disk) and is_local(locate(journal.location)[0]) and is_below(Path(journal.location), out))
    ]


def is_below(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or something in it, whatever links lead there."""
    return path.resolve().is_relative_to(directory.resolve())


class PipelineStream(JournalStream):
    """What is new in the journals that are chosen. Those that cannot be opened rest, unless they are to be failed for.

    `unreadable` are these, as they were found by the last look; `lost` is what went before it was read.
    """

    def __init__(self, settings: Settings) -> None:
        options = {
            "path": settings.journals,
            "splitbytes": str(settings.split_bytes),
            "failondataloss": str(settings.fail_on_data_loss).lower(),
        }
        super().__init__(schemas.spark_schema(None), options, None)
        self.settings = settings
        self.unreadable: list[Unreadable] = []
        self.lost: list[str] = []
        self._seen: dict[Place, Standing] | None = None

    def following(self, start: Offset) -> Offset:
        """Where the batch that begins at `start` ends; equal to it when nothing is new.

        What is excluded now, or cannot be opened, stays where it is, and goes on from there some day.
        """

        def look() -> Offset:
            self._seen = None
            self._seen = self._look()
            resting = {name for _, name, _ in self.unreadable}
            resting |= {name for name in start if self.settings.rule_of(name).exclude}
            active = {name: parts for name, parts in start.items() if name not in resting}
            end = self._latest(active, None, self.settings.batch_bytes)
            return dict(sorted({**end, **{name: start[name] for name in resting if name in start}}.items()))

        try:
            return looking_again(look)
        finally:
            self._seen = None

    def note_target(self) -> None:
        """Let all batches from now on end with what there is now."""
        self._target = {place: standing.next for place, standing in looking_again(self._look).items()}

    def _look(self) -> dict[Place, Standing]:
        if self._seen is not None:
            return self._seen
        found: dict[Place, Standing] = {}
        self.unreadable = []
        for journal in chosen_journals(self.settings):
            try:
                reader = open_journal(journal)
                extents = find_format(journal.format).room("splits").extent(reader)
            except NotFound:  # removed while we looked
                continue
            except LogwrightError as error:
                if self.settings.mode_of(journal.name) == "failfast":
                    raise
                self.unreadable.append((journal.format, journal.name, str(error)))
                continue
            for part, (first, following) in extents.items():
                found[journal.name, part] = Standing(journal, reader, part, first, following)
        return found

    def _lose(self, what: str) -> None:
        if self.fail_on_data_loss:
            raise HistoryUnavailable(
                f"{what}. To go on without them write fail_on_data_loss = false into a --config file"
            )
        if what not in self.lost:
            self.lost.append(what)

    def splits_between(self, start: Offset, end: Offset) -> list[tuple[Journal, Split]]:
        """What has to be read for one batch."""
        return looking_again(lambda: self._plan(start, end))


# --- what was done ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written: of which table, its name in the directory of that table, and its size."""

    table: str
    name: str
    rows: int
    bytes: int


@dataclass(slots=True)
class Found:
    """What was found in one journal: records and their bytes, and how often what was wrong, by its kind."""

    format: str
    records: int = 0
    bytes: int = 0
    damage: dict[str, int] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.damage = dict(sorted((Counter(self.damage) + Counter(other.damage)).items()))


@dataclass(slots=True)
class Ingested:
    """What one task, or all of them, have written and found."""

    files: list[Written] = field(default_factory=list)
    journals: dict[str, Found] = field(default_factory=dict)

    def add(self, other: Ingested) -> None:
        self.files.extend(other.files)
        for name, found in other.journals.items():
            self.journals.setdefault(name, Found(found.format)).add(found)

    def files_of(self, table: str) -> list[Written]:
        return [file for file in self.files if file.table == table]

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Ingested:
        found = json.loads(text)
        journals = {name: Found(**one) for name, one in found["journals"].items()}
        return cls([Written(**one) for one in found["files"]], journals)


def ingest(spark: SparkSession, plan: Plan) -> Ingested:
    """Read what a plan says, and write it to `events/` and `damage/` in its staging directory.

    Files of attempts that do not count are gone when this returns: the directories can be read as they are.
    """
    spark.dataSource.register(IngestSource)
    staging = Path(plan.staging)
    for table in ("events", "damage"):
        make_directories(REAL_DISK, staging / table)
    done = Ingested()
    for (told,) in spark.read.format(SOURCE).option("plan", plan.as_json()).load().collect():
        done.add(Ingested.from_json(told))
    for table in ("events", "damage"):
        counted = {file.name for file in done.files_of(table)}
        for name in REAL_DISK.list_directory(staging / table):
            if name not in counted:
                REAL_DISK.remove(staging / table / name)
    done.files.sort(key=lambda file: (file.table, file.name))
    return done


def to_parquet(
    spark: SparkSession,
    journals: str,
    directory: Path | str,
    *,
    mode: str = "permissive",
    split_bytes: int = TARGET_BYTES,
    compression: str = COMPRESSION,
) -> Ingested:
    """Write all records of the journals at or below a location as Parquet files into a new, or empty, directory.

    Files get their names when all of them are on the disk. What is damaged is counted in what this returns, and
    written nowhere; for a table of it, and for increments, there is `run`.
    """
    target = Path(directory).absolute()
    if REAL_DISK.exists(target) and (not REAL_DISK.is_directory(target) or REAL_DISK.list_directory(target)):
        raise WrongUse(f"{target} is there already, and not empty")
    if compression not in COMPRESSIONS:
        raise WrongUse(f"compression: there is no {compression!r}; there are {', '.join(COMPRESSIONS)}")
    settings = Settings(journals, str(target), mode=mode, split_bytes=split_bytes)  # type: ignore[arg-type]
    staging = target / f"_staging-{secrets.token_hex(8)}"
    try:
        done = ingest(spark, Plan(settings, str(staging), compression=COMPRESSIONS[compression]))
        events = done.files_of("events") or [write_empty(staging / "events", EVENTS)]
        for number, file in enumerate(events):
            REAL_DISK.rename(staging / "events" / file.name, target / part_name(1, number, "parquet"))
        REAL_DISK.sync_directory(target)
        return done
    finally:
        with contextlib.suppress(LogwrightError):
            remove_tree(REAL_DISK, staging)


def write_empty(directory: Path, schema: pa.Schema) -> Written:
    """A Parquet file without rows, so that a table has its columns also when nothing is in it."""
    with _File(directory, directory.name, 0, schema, COMPRESSION) as file:
        return file.finish()


# --- the source -------------------------------------------------------------------------------------------------------


class IngestSource(DataSource):
    """The source `logwright.ingest`: a table of what was written instead of what was read."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return "told STRING"

    def reader(self, schema: StructType) -> IngestReader:
        return IngestReader(Plan.from_json(self.options["plan"]))


class IngestPart(Part):
    """What one task reads, and which journals it tells of that cannot be read."""

    def __init__(self, number: int, parts: list[tuple[Journal, Split]], unreadable: Sequence[Unreadable]) -> None:
        super().__init__(parts)
        self.number = number
        self.unreadable = tuple(unreadable)


class IngestReader(DataSourceReader):
    """Plans where Spark asks for it, and does what a task has to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        if self.plan.end is None:
            parts, unreadable = _everything(self.plan.settings)
        else:
            parts = PipelineStream(self.plan.settings).splits_between(self.plan.start, self.plan.end)
            unreadable = list(self.plan.unreadable)
        groups = pack(parts, self.plan.settings.split_bytes, lambda part: part[1].bytes) or [[]]
        return [IngestPart(number, group, () if number else unreadable) for number, group in enumerate(groups)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Do what a task has to; one row says what it did."""
        assert isinstance(partition, IngestPart)
        with _Task(self.plan, partition.number) as task:
            for unreadable in partition.unreadable:
                task.tell_unreadable(*unreadable)
            for journal, split in partition.parts:
                task.take(journal, split)
            done = task.finish()
        yield (done.as_json(),)


def _everything(settings: Settings) -> tuple[list[tuple[Journal, Split]], list[Unreadable]]:
    """All splits of all journals, and the journals that cannot be opened."""
    journals = chosen_journals(settings)
    if not journals:
        raise UnknownFormat(f"{settings.journals}: no journal of any known format is here or below")
    parts: list[tuple[Journal, Split]] = []
    unreadable: list[Unreadable] = []
    for journal in journals:
        try:
            planned = find_format(journal.format).room("splits").plan(open_journal(journal), settings.split_bytes)
        except LogwrightError as error:
            if settings.mode_of(journal.name) == "failfast":
                raise
            unreadable.append((journal.format, journal.name, str(error)))
        else:
            parts.extend((journal, split) for split in planned)
    return parts, unreadable


# --- a task -----------------------------------------------------------------------------------------------------------


class _Task:
    """Decodes splits and writes what is in them. Leaving it by an exception leaves no files."""

    def __init__(self, plan: Plan, number: int) -> None:
        staging = Path(plan.staging)
        self._settings = plan.settings
        self._is_increment = plan.end is not None
        self._events = _File(staging / "events", "events", number, _WRITTEN, plan.compression)
        self._damage = _File(staging / "damage", "damage", number, DAMAGE, plan.compression)
        self._decoding = _Decoding()
        self._done = Ingested()

    def take(self, journal: Journal, split: Split) -> None:
        """Write the records of a split, and what is wrong with it."""
        found = self._found(journal)
        for item in self._read(journal, split):
            if isinstance(item, _Wrong):
                self._tell(journal, item)
            else:
                self._events.add(item)
                found.records += item.num_rows
                found.bytes += pc.sum(item.column("size")).as_py() or 0

    def _read(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch | _Wrong]:
        self._decoding.mode = mode = self._settings.mode_of(journal.name)
        try:
            yield from self._decoding.read_split(journal, split)
        except (StorageFailed, NotFound) as error:
            # Where a journal is read once, this much of it cannot be; an increment will be tried again instead.
            if mode == "failfast" or self._is_increment:
                raise
            if mode == "permissive":
                file = file_of(journal.format, split.part, split.file)
                yield _Wrong(file, split.position, split.bytes, UNREADABLE, str(error))

    def tell_unreadable(self, format: str, name: str, reason: str) -> None:
        journal = Journal(format, "", name)
        if self._settings.mode_of(name) != "dropmalformed":
            self._tell(journal, _Wrong(None, None, None, UNREADABLE, reason))
        else:
            self._found(journal)

    def _found(self, journal: Journal) -> Found:
        return self._done.journals.setdefault(journal.name, Found(journal.format))

    def _tell(self, journal: Journal, wrong: _Wrong) -> None:
        found = self._found(journal)
        found.damage[wrong.kind] = found.damage.get(wrong.kind, 0) + 1
        row = {"format": journal.format, "journal": journal.name, **asdict(wrong)}
        row = {name: _as_text(value) if isinstance(value, str) else value for name, value in row.items()}
        self._damage.add(pa.RecordBatch.from_pylist([row], DAMAGE))

    def finish(self) -> Ingested:
        """Complete the files; what was written and found."""
        self._done.files = [file.finish() for file in (self._events, self._damage) if file.rows]
        return self._done

    def __enter__(self) -> _Task:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for file in (self._events, self._damage):
            file.__exit__(kind, error, trace)


def _as_text(name: str) -> str:
    """Text for a column: what is no UTF-8 in the name of a file is written out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A range of bytes that is no record; of no file when a journal could not be opened."""

    file: str | None
    position: int | None
    size: int | None
    kind: str
    reason: str


class _Decoding(Reading):
    """Reads splits as the source `logwright` does, but gives names as dictionaries and damage as what it is."""

    def __init__(self) -> None:
        super().__init__(schemas.spark_schema(None), {"path": "-", "batchbytes": str(_BATCH_BYTES)}, None)
        self.wanted = EVENTS

    def _finished(self, batches: Iterator[pa.RecordBatch], journal: Journal) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _filled(batch, journal)

    def _damage_rows(self, journal: Journal, part: str, damage: Damage) -> Iterator[Any]:
        file = file_of(journal.format, part, damage.file)
        yield _Wrong(file, damage.start, damage.size, damage.kind, damage.reason)


# --- columns ----------------------------------------------------------------------------------------------------------


def _filled(batch: pa.RecordBatch, journal: Journal) -> pa.RecordBatch:
    """The columns of `events` out of a batch of the format's columns, as `schemas.fill` makes them for Spark."""
    room = find_format(journal.format).room("tables")
    constant = {"format": journal.format, "journal": journal.name}
    arrays = []
    for column in _WRITTEN:
        if column.name in constant:
            arrays.append(_repeated(constant[column.name], batch.num_rows))
        elif column.name in _REPEATING:
            arrays.append(_encoded(room, batch, column.name))
        else:
            found = room.column(batch, column.name)
            arrays.append(pa.nulls(batch.num_rows, column.type) if found is None else found)
    return pa.RecordBatch.from_arrays(arrays, schema=_WRITTEN)


def _repeated(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([value], pa.string()))


def _encoded(room: Any, batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of texts as a dictionary. What is made of one column of the format is made of its distinct values."""
    given = batch.column(name) if name in batch.schema.names else None
    if given is not None and given.type == _NAMES:
        return given
    sources = [source for source in room.sources([name], sharded=False) if source in batch.schema.names]
    if len(sources) == 1:
        source = batch.column(sources[0]).dictionary_encode("encode")
        values = room.column(pa.RecordBatch.from_arrays([source.dictionary], names=sources), name)
        if values is not None and values.null_count == 0:
            return pa.DictionaryArray.from_arrays(source.indices, values)
    found = room.column(batch, name)
    return pa.nulls(batch.num_rows, _NAMES) if found is None else found.dictionary_encode()


# --- files ------------------------------------------------------------------------------------------------------------


class _File:
    """A Parquet file that a task writes: created with its first rows, on the disk when it is finished."""

    def __init__(self, directory: Path, table: str, number: int, schema: pa.Schema, compression: str) -> None:
        # No two attempts at one task write to the same name.
        self._path = directory / f"{number:06d}-{secrets.token_hex(8)}.parquet"
        self._table = table
        self._schema = schema
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        """Write what has gathered as one row group."""
        with _translated(self._path):
            if self._writer is None:
                self._open()
            table = pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries()
            if table.num_rows:
                self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []
        self._waiting_bytes = 0

    def _open(self) -> None:
        repeating = [column.name for column in self._schema if pa.types.is_dictionary(column.type)]
        rising = {name: "DELTA_BINARY_PACKED" for name in self._schema.names if name in _RISING}
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._compression,
            use_dictionary=repeating,
            column_encoding=rising,
            write_statistics=[name for name in self._schema.names if name not in ("key", "value")],
            data_page_size=_PAGE_BYTES,
            store_schema=False,  # who reads it gets texts, and not Arrow's dictionaries
        )

    def finish(self) -> Written:
        """Complete the file and sync it."""
        if self._waiting or self._writer is None:
            self._write()
        with _translated(self._path):
            self._writer.close()
            self._sink.close()
        file = REAL_DISK.open(self._path, "read")
        try:
            file.sync()
            return Written(self._table, self._path.name, self.rows, file.size())
        finally:
            file.close()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            return
        for opened in (self._writer, self._sink):
            with contextlib.suppress(Exception):  # it failed already, and what is written is of no use
                if opened is not None:
                    opened.close()
        with contextlib.suppress(LogwrightError):
            REAL_DISK.remove(self._path)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed("write", path, error) from error
