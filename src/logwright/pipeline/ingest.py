"""Write journals as Parquet without passing rows through the JVM.

Spark plans and schedules; its Python workers do the rest. A task decodes its splits of journals with the code of the
source `logwright` and writes its own Parquet files: `events` and, where there is damage, `damage`. It returns one row,
which lists the files. The caller publishes the files that successful tasks have reported. Files of failed, repeated or
speculative attempts have other names and are removed.

    ingest.to_parquet(spark, "journals", "events")      all journals below a root, as a directory of Parquet files

The rows are those of `tables.events` and `tables.damage`. A task holds one row group at a time, about 32 MiB. All
executors must share the target directory.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..core.bytes.outcome import Damage
from ..core.io.disk import REAL_DISK, make_directories, remove_tree
from ..core.io.file_names import as_text, printed
from ..core.read.splits import TARGET_BYTES, Split, pack
from ..core.repair.losses import Loss
from ..errors import LogwrightError, NotFound, StorageFailed, WrongUse
from ..spark import schemas
from ..spark.reader import BaseReader, Journal, Part, file_of
from .commit import part_name
from .parquet import COMPRESSION, COMPRESSIONS, WRITTEN, ParquetFile, Written, filled, write_empty
from .plan import KnownLoss, PipelineStream, Plan, Unreadable, everything
from .settings import Settings
from .tables import DAMAGE, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SOURCE: Final = "logwright.ingest"
UNREADABLE: Final = "unreadable"
"""The kind of damage of a journal or a part that could not be opened."""
_BATCH_BYTES: Final = 4 << 20
"""How much is decoded at once: about the size of the processor's cache."""


# --- what was done ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """Counts of one journal: records, their bytes, and damaged ranges by kind."""

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
    """The files and counts of one task, or of all tasks."""

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
    """Read the journals of a plan, and write `events/` and `damage/` in its staging directory.

    Files of failed attempts are removed before this returns, so the directories can be read as they are.
    """
    spark.dataSource.register(IngestSource)
    staging = Path(plan.staging)
    for table in ("events", "damage"):
        make_directories(REAL_DISK, staging / table)
    done = Ingested()
    for (done_json,) in spark.read.format(SOURCE).option("plan", plan.as_json()).load().collect():
        done.add(Ingested.from_json(done_json))
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
    """Write all records of the journals at or below a location as Parquet files into a new or empty directory.

    Files get their names after all of them have been synced. Damage is counted in the result but not written; use `run`
    for a table of it, and for increments.
    """
    target = Path(directory).absolute()
    if REAL_DISK.exists(target) and (not REAL_DISK.is_directory(target) or REAL_DISK.list_directory(target)):
        raise WrongUse(f"{target} already exists and is not empty")
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


# --- the source -------------------------------------------------------------------------------------------------------


class IngestSource(DataSource):
    """The source `logwright.ingest`: a table of the files written instead of the records read."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return "done STRING"

    def reader(self, schema: StructType) -> IngestReader:
        return IngestReader(Plan.from_json(self.options["plan"]))


class IngestPart(Part):
    """The splits that one task reads, and the unreadable journals and known losses that it reports."""

    def __init__(
        self,
        number: int,
        parts: list[tuple[Journal, Split]],
        unreadable: Sequence[Unreadable],
        losses: Sequence[KnownLoss],
    ) -> None:
        super().__init__(parts)
        self.number = number
        self.unreadable = tuple(unreadable)
        self.losses = tuple(losses)


class IngestReader(DataSourceReader):
    """Plans the tasks, and runs each of them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks."""
        if self.plan.end is None:
            parts, unreadable, losses = everything(self.plan.settings)
        else:
            parts = PipelineStream(self.plan.settings).splits_between(self.plan.start, self.plan.end)
            unreadable, losses = list(self.plan.unreadable), list(self.plan.losses)
        groups = pack(parts, self.plan.settings.split_bytes, lambda part: part[1].bytes) or [[]]
        first = IngestPart(0, groups[0], unreadable, losses)
        return [first, *(IngestPart(number, group, (), ()) for number, group in enumerate(groups[1:], 1))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Run a task; the only row lists the files and counts."""
        assert isinstance(partition, IngestPart)
        with _Task(self.plan, partition.number) as task:
            for unreadable in partition.unreadable:
                task.report_unreadable(*unreadable)
            for loss in partition.losses:
                task.report_loss(*loss)
            for journal, split in partition.parts:
                task.take(journal, split)
            done = task.finish()
        yield (done.as_json(),)


# --- a task -----------------------------------------------------------------------------------------------------------


class _Task:
    """Decodes splits and writes their records. An exception in the `with` block removes the files."""

    def __init__(self, plan: Plan, number: int) -> None:
        staging = Path(plan.staging)
        self._settings = plan.settings
        self._is_increment = plan.end is not None
        self._events = ParquetFile(staging / "events", "events", number, WRITTEN, plan.compression)
        self._damage = ParquetFile(staging / "damage", "damage", number, DAMAGE, plan.compression)
        self._decoding = _Decoding()
        self._done = Ingested()

    def take(self, journal: Journal, split: Split) -> None:
        """Write the records and the damage of a split."""
        found = self._found(journal)
        for item in self._read(journal, split):
            if isinstance(item, _Wrong):
                self._report(journal, item)
            else:
                self._events.add(item)
                found.records += item.num_rows
                found.bytes += pc.sum(item.column("size")).as_py() or 0

    def _read(self, journal: Journal, split: Split) -> Iterator[pa.RecordBatch | _Wrong]:
        self._decoding.mode = mode = self._settings.mode_of(journal.name)
        try:
            yield from self._decoding.read_split(journal, split)
        except (StorageFailed, NotFound) as error:
            # A full run reports the split as unreadable; an incremental run fails and is tried again.
            if mode == "failfast" or self._is_increment:
                raise
            if mode == "permissive":
                file = file_of(journal.format, split.part, split.file)
                yield _Wrong(file, split.position, split.bytes, UNREADABLE, str(error))

    def report_unreadable(self, format: str, name: str, reason: str) -> None:
        journal = Journal(format, "", name)
        if self._settings.mode_of(name) != "dropmalformed":
            self._report(journal, _Wrong(None, None, None, UNREADABLE, reason))
        else:
            self._found(journal)

    def report_loss(self, format: str, name: str, text: str) -> None:
        """Write a row for a loss that a journal has in its account."""
        loss = Loss.from_json(json.loads(text))
        if self._settings.mode_of(name) != "dropmalformed":
            wrong = _Wrong(loss.file, loss.position, loss.bytes, loss.kind, f"{loss.what}: {loss.reason}", text)
            self._report(Journal(format, "", name), wrong)

    def _found(self, journal: Journal) -> Found:
        return self._done.journals.setdefault(journal.name, Found(journal.format))

    def _report(self, journal: Journal, wrong: _Wrong) -> None:
        found = self._found(journal)
        found.damage[wrong.kind] = found.damage.get(wrong.kind, 0) + 1
        row = {"format": journal.format, "journal": journal.name, **asdict(wrong)}
        row["file"] = None if wrong.file is None else printed(wrong.file)
        row["reason"] = as_text(wrong.reason)
        self._damage.add(pa.RecordBatch.from_pylist([row], DAMAGE))

    def finish(self) -> Ingested:
        """Complete the files, and return the files and counts."""
        self._done.files = [file.finish() for file in (self._events, self._damage) if file.rows]
        return self._done

    def __enter__(self) -> _Task:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for file in (self._events, self._damage):
            file.__exit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A damaged range of bytes, or a known loss; without a file if the journal could not be opened."""

    file: str | None
    position: int | None
    size: int | None
    kind: str
    reason: str
    detail: str | None = None


class _Decoding(BaseReader):
    """Reads splits as the source `logwright` does, but returns names as dictionaries and damage as `_Wrong`."""

    def __init__(self) -> None:
        super().__init__(schemas.spark_schema(None), {"path": "-", "batchbytes": str(_BATCH_BYTES)}, None)
        self.wanted = EVENTS

    def _finished(self, batches: Iterator[pa.RecordBatch], journal: Journal) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield filled(batch, journal)

    def damage_rows(self, journal: Journal, part: str, damage: Damage) -> Iterator[Any]:
        if damage.kind != "lost":  # losses are reported from the account of the journal
            file = file_of(journal.format, part, damage.file)
            yield _Wrong(file, damage.start, damage.size, damage.kind, damage.reason)
