"""restore: the way back, from the tables of the pipeline to the journals that they were made of.

    restored = restore("tables", "journals again")      # or: logwright pipeline restore --tables tables --out again
    for journal in restored.journals:
        print(journal.journal, journal.records, journal.whole, journal.gaps)

Needed is the table `events`; `files` has the files that hold no records and says how large all of them were, and
`consumers` how far consumers had come. What comes back is the format's to say (`core/restore.py`): of sej and kestrel
the same bytes. What was damaged is not in the tables, and the result says for each journal what is missing.

Spark brings the rows of each file together and into their order; its tasks write the files, one batch of rows at a
time, into a hidden place below OUT, and the driver moves journals from there into their places when all of them are on
the disk. A restore that was ended at any moment leaves nothing that looks like a journal and is not whole; run again
it completes what was left, or begins anew. A journal that is there is never touched.

OUT must be a directory that all executors share: on one machine any.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from ..core.disk import REAL_DISK, Disk, make_directories, replace_file
from ..core.errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, WrongUse
from ..core.format import FORMATS, find_format
from ..core.report import Progress
from ..core.restore import (
    FileWriter,
    Restored,
    RestoredJournal,
    Restoring,
    Written,
    check_journals,
    room_of,
)
from ..core.split import TARGET_BYTES, pack
from ..location import is_local, locate
from . import commit
from .failures import translated
from .planning import is_below
from .settings import FILE_FORMATS
from .tables import EVENTS, FILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Restored", "RestoredJournal", "restore"]

SOURCE: Final = "logwright.restore"
_CONSUMERS: Final = pa.schema(
    [
        ("format", pa.string()),
        ("journal", pa.string()),
        ("shard", pa.string()),
        ("consumer", pa.string()),
        ("offset", pa.int64()),
        ("problem", pa.string()),
    ]
)
_DERIVED: Final = ("format", "journal", "file", "timestamp")
"""What the tasks need not be sent: which file it is goes as a number, and `timestamp` is less than `timestamp_ns`."""
_PLAN: Final = "plan.json"
_DONE: Final = "done.json"
_TASKS: Final = "tasks"
_LOOK_SECONDS: Final = 0.5
_LEAST_TASK_BYTES: Final = 4 << 20


def restore(
    tables: str,
    out: str,
    *,
    journals: Sequence[str] | None = None,
    format: str = "parquet",
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Write the journals that are in the tables below `tables` into the directory `out`, each under its name.

    `journals` are patterns such as `orders/*`; without them all are restored. `format` and `options` are those of the
    tables. `progress` is called from another thread, with the bytes written so far and all there will be.
    """
    root = _directory_of(out, tables)
    request = {
        "tables": _absolute(tables),
        "format": format,
        "journals": None if journals is None else sorted(journals),
    }
    if spark is None:
        from ..spark import session

        spark = session()
    with _at_rest(tables), translated():
        chosen = _chosen(_Tables(spark, tables, format, dict(options or {})), journals)
        with Restoring(REAL_DISK, root, request) as restoring:
            if restoring.completed is not None:
                return restoring.completed
            restoring.refuse_existing(sorted(chosen.journals))
            _write_records(spark, chosen, restoring, progress)
            return _publish(chosen, restoring)


# --- where from and where to ----------------------------------------------------------------------------------------


def _directory_of(out: str, tables: str) -> Path:
    """The target, as executors with another working directory find it too."""
    disk, path = locate(out)
    if not is_local(disk):
        raise WrongUse(f"{out}: journals are written to a file system of this machine, not to a remote store")
    if is_local(locate(tables)[0]) and is_below(path, locate(tables)[1]):
        raise WrongUse(f"{out} is where the tables are: restore to another directory")
    return path.absolute()


def _absolute(tables: str) -> str:
    disk, path = locate(tables)
    return str(path.absolute()) if is_local(disk) else tables


@contextlib.contextmanager
def _at_rest(tables: str) -> Iterator[None]:
    """Keep the pipeline from changing the tables, and let it complete what it had decided, where it made them."""
    disk, path = locate(tables)
    made_here = is_local(disk) and disk.is_directory(path / commit.HOME)
    with contextlib.ExitStack() as stack:
        if made_here:
            try:
                stack.enter_context(commit.Output.open(path, disk=disk))
            except StorageFailed as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or commit.is_being_changed(path):
                    raise  # where we may not write, nothing is changing unless it says so
        yield


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables, as Spark reads them."""

    spark: SparkSession
    location: str
    format: str
    options: dict[str, str]

    def has(self, name: str) -> bool:
        disk, path = locate(self.location)
        return disk.is_directory(path / name)

    def read(self, name: str, schema: pa.Schema) -> DataFrame:
        """The columns of a schema of one table."""
        reader = self.spark.read.format(self.format).options(**self.options)
        if self.format in FILE_FORMATS:  # others have their own, and refuse to be told
            reader = reader.schema(from_arrow_schema(schema))
        frame = reader.load(f"{self.location.rstrip('/')}/{name}")
        unknown = [column for column in schema.names if column not in frame.columns]
        if unknown:
            raise WrongUse(f"{self.location}: the table {name} has no column {', '.join(unknown)}")
        return frame.select(*schema.names)


# --- what there is to restore ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """A file to be written: its records and their bytes in `events`, and what `files` says of it, if that does."""

    records: int = 0
    bytes: int = 0
    listed_bytes: int | None = None
    listed_next: int | None = None


@dataclass(slots=True)
class _Journal:
    """A journal that is to be restored."""

    format: str
    name: str
    files: dict[str, _File] = field(default_factory=dict)
    consumers: dict[str, dict[str, int | None]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_single_file: bool = False


class _Origin(NamedTuple):
    """What a file is called in rows of `events`, and what it is called in the end.

    `generation` tells files apart that had one name at different times; it is -1 where files keep their names.
    """

    format: str
    journal: str
    file: str
    generation: int
    settled: str


@dataclass(slots=True)
class _Chosen:
    """All that is to be restored, and the records that it is restored from."""

    events: DataFrame | None
    journals: dict[str, _Journal] = field(default_factory=dict)
    origins: list[_Origin] = field(default_factory=list)

    def journal(self, format: str, name: str) -> _Journal:
        found = self.journals.setdefault(name, _Journal(format, name))
        if found.format != format:
            raise WrongUse(f"the journal {name} is of {found.format} and of {format} in these tables")
        return found

    def with_records(self) -> list[tuple[_Journal, str]]:
        """The files that have records, in order: the place in this list is the number of a file."""
        return [
            (journal, name)
            for journal in self.journals.values()
            for name, file in sorted(journal.files.items())
            if file.records
        ]


def _chosen(tables: _Tables, patterns: Sequence[str] | None) -> _Chosen:
    """What the tables have, as far as the patterns fit it, once it is known that it can be restored."""
    names = [name for name in ("events", "files", "consumers") if tables.has(name)]
    if not {"events", "files"} & set(names):
        raise NotFound(f"{tables.location}: there is no table events here")
    found = _Chosen(tables.read("events", EVENTS) if "events" in names else None)
    if found.events is not None:
        _note_records(found)
    if "files" in names:
        _note_files(found, tables.read("files", FILES).collect())
    _keep_fitting(found, patterns, tables.location)
    flat = [name for name, journal in found.journals.items() if "flat" in find_format(journal.format).traits]
    check_journals(found.journals, flat)
    if "consumers" in names:
        _note_consumers(found, tables.read("consumers", _CONSUMERS).collect())
    for journal in found.journals.values():
        _check_files(journal)
        if "files" not in names:
            journal.problems.append("there is no table files: files without records are not restored")
        has_consumers = "consumers" in find_format(journal.format).traits and not journal.is_single_file
        if "consumers" not in names and has_consumers:
            journal.problems.append("there is no table consumers: how far they had come is not restored")
    found.journals = dict(sorted(found.journals.items()))
    return found


def _note_records(found: _Chosen) -> None:
    assert found.events is not None
    total = (F.count("*"), F.sum(F.col("size").cast("bigint")))
    place = ("format", "journal", "file", _generation().alias("_generation"))
    counted: dict[tuple[str, str], list[tuple[str, int, int, int]]] = {}
    for format, journal, *row in found.events.groupBy(*place).agg(*total).collect():
        if None in (format, journal, *row):
            raise WrongUse("the table events has rows that do not say where they are from")
        counted.setdefault((format, journal), []).append(tuple(row))  # type: ignore[arg-type]
    for (format, name), rows in counted.items():
        files = found.journal(format, name).files
        settled = _settled(format, [(file, generation) for file, generation, _, _ in rows])
        for file, generation, records, size in rows:
            found.origins.append(_Origin(format, name, file, generation, settled[file, generation]))
            one = files.setdefault(settled[file, generation], _File())
            one.records += records
            one.bytes += size


def _generation() -> Column:
    """What tells files apart that had one name at different times: -1 for those of formats whose files keep theirs."""
    renaming = []
    for name in FORMATS:
        with contextlib.suppress(WrongUse):  # it cannot be restored, which is said when it is to be
            renaming += [name] if hasattr(room_of(name), "settled") else []
    return F.coalesce(F.when(F.col("format").isin(renaming), F.col("sequence")), F.lit(-1).cast("bigint"))


def _settled(format: str, names: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """What each file is called in the end."""
    settle = getattr(room_of(format), "settled", None)
    if settle is None:
        return {name: name[0] for name in names}
    found = settle([(file, None if generation < 0 else generation) for file, generation in names])
    return {(file, generation): found[file, None if generation < 0 else generation] for file, generation in names}


def _note_files(found: _Chosen, rows: Iterable[Any]) -> None:
    for row in rows:
        if row["file"] is None:
            continue
        file = found.journal(row["format"], row["journal"]).files.setdefault(row["file"], _File())
        file.listed_bytes, file.listed_next = row["bytes"], row["next"]


def _note_consumers(found: _Chosen, rows: Iterable[Any]) -> None:
    for row in rows:
        journal = found.journals.get(row["journal"])
        if journal is None or row["consumer"] is None:
            continue
        if row["problem"] is not None:
            journal.problems.append(f"the consumer {row['consumer']} is not restored: {row['problem']}")
        else:
            journal.consumers.setdefault(row["shard"] or "", {})[row["consumer"]] = row["offset"]


def _keep_fitting(found: _Chosen, patterns: Sequence[str] | None, location: str) -> None:
    if patterns is not None:
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in found.journals):
                raise WrongUse(f"{location}: no journal fits {pattern!r}")
        found.journals = {
            name: journal
            for name, journal in found.journals.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        }
        found.origins = [origin for origin in found.origins if origin.journal in found.journals]
    if not found.journals:
        raise NotFound(f"{location}: there is no journal in these tables")


def _check_files(journal: _Journal) -> None:
    """Raise `WrongUse` for files that no journal of this format can have."""
    room = room_of(journal.format)
    kinds = {room.is_single_file(file) for file in journal.files}
    if kinds == {True, False} or (True in kinds and len(journal.files) > 1):
        raise WrongUse(f"the journal {journal.name} is a file and a directory at once in these tables")
    journal.is_single_file = True in kinds


# --- writing the records --------------------------------------------------------------------------------------------


def _write_records(spark: SparkSession, chosen: _Chosen, restoring: Restoring, progress: Progress | None) -> None:
    """Let Spark bring the rows of each file together, in order, and its tasks write them."""
    files = chosen.with_records()
    sizes = [journal.files[name].bytes for journal, name in files]
    if not files or chosen.events is None:
        return
    task_bytes = sum(sizes) // (2 * spark.sparkContext.defaultParallelism) + 1
    groups = pack(enumerate(sizes), max(_LEAST_TASK_BYTES, min(task_bytes, TARGET_BYTES)), lambda item: item[1])
    task_of = [task for task, group in enumerate(groups) for _ in group]
    number_of = {(journal.name, name): number for number, (journal, name) in enumerate(files)}
    wanted = [number_of[origin.journal, origin.settled] for origin in chosen.origins]
    numbers = pa.table(
        {
            "format": [origin.format for origin in chosen.origins],
            "journal": [origin.journal for origin in chosen.origins],
            "file": [origin.file for origin in chosen.origins],
            "_generation": pa.array([origin.generation for origin in chosen.origins], pa.int64()),
            "_number": pa.array(wanted, pa.int32()),
            "_task": pa.array([task_of[number] for number in wanted], pa.int32()),
        }
    )
    plan = [(journal.format, journal.name, name) for journal, name in files]
    replace_json(REAL_DISK, restoring.directory / _PLAN, plan)
    columns = [column for column in EVENTS.names if column not in _DERIVED]
    rows = (
        chosen.events.withColumn("_generation", _generation())
        .join(F.broadcast(spark.createDataFrame(numbers)), ["format", "journal", "file", "_generation"])
        .select("_number", "_task", *columns)
        .repartitionById(len(groups), "_task")
        .sortWithinPartitions("_number", "position")
        .drop("_task")
    )
    spark.dataSource.register(RestoreSink)
    make_directories(REAL_DISK, restoring.directory / _TASKS)
    with _telling(progress, restoring.directory, sum(sizes)):
        rows.write.format(SOURCE).option("directory", str(restoring.directory)).mode("append").save()


class RestoreSink(DataSource):
    """The sink `logwright.restore`: rows become files of journals in the directory of a restore."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def writer(self, schema: StructType, overwrite: bool) -> RestoreWriter:
        return RestoreWriter(Path(self.options["directory"]))


@dataclass(frozen=True, slots=True)
class _Done:
    """What a task has made of one file, below a directory of its own."""

    number: int
    directory: str
    written: list[Written]


class TaskDone(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, done: list[_Done]) -> None:
        self.done = done


class RestoreWriter(DataSourceArrowWriter):
    """Writes files in the tasks, and notes what successful tasks have written where the driver reads it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write the files of one task, one after the other."""
        plan = read_json(REAL_DISK, self.directory / _PLAN)
        home = self.directory / _TASKS / secrets.token_hex(8)  # of this attempt: no other one writes there
        done: list[_Done] = []
        writer: FileWriter | None = None
        try:
            for number, rows in _by_file(iterator):
                format, journal, file = plan[number]
                if not done or done[-1].number != number:
                    _finish(writer, done)
                    done.append(_Done(number, str(home / str(number)), []))
                    writer = room_of(format).FileWriter(home / str(number), file, disk=REAL_DISK)
                assert writer is not None
                with _naming(journal):
                    writer.append_batch(rows)
            _finish(writer, done)
        finally:
            if writer is not None:
                writer.discard()
        return TaskDone(done)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note what was written."""
        done = [asdict(one) for message in messages if isinstance(message, TaskDone) for one in message.done]
        replace_json(REAL_DISK, self.directory / _DONE, done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note nothing: the driver removes all of it."""


def _finish(writer: FileWriter | None, done: list[_Done]) -> None:
    if writer is not None:
        done[-1].written.extend(writer.finish())


@contextlib.contextmanager
def _naming(journal: str) -> Iterator[None]:
    """Let what is wrong be told with the name of the journal."""
    try:
        yield
    except DamagedJournal as error:
        raise type(error)(f"{journal}/{error.file}", error.position, error.reason) from error
    except WrongUse as error:
        raise WrongUse(f"{journal}: {error}") from error


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each file by its number. The batches are sorted by it."""
    for batch in batches:
        numbers = batch.column("_number")
        start = 0
        while start < batch.num_rows:
            number = numbers[start].as_py()
            rest = numbers.slice(start)
            count = len(rest) if numbers[-1].as_py() == number else pc.sum(pc.equal(rest, number)).as_py()
            yield number, batch.slice(start, count)
            start += count


# --- what the driver does with it -----------------------------------------------------------------------------------


def _publish(chosen: _Chosen, restoring: Restoring) -> Restored:
    written = _taken(chosen, restoring)
    restored: dict[str, RestoredJournal] = {}
    single_files: dict[str, list[str]] = {}
    for journal in chosen.journals.values():
        room = room_of(journal.format)
        ours = written[journal.name]
        home = restoring.home_of(journal.name)
        if journal.is_single_file:
            single_files[journal.name] = [one.file for files in ours.values() for one in files]
        else:
            for part, offsets in journal.consumers.items():
                room.write_consumers(home, part, offsets, disk=restoring.disk)
        restored[journal.name] = _told(journal, ours)
    return restoring.publish(restored, single_files)


def _taken(chosen: _Chosen, restoring: Restoring) -> dict[str, dict[str, list[Written]]]:
    """Put the files of journals together; for each journal what its files have become."""
    found: dict[str, dict[str, list[Written]]] = {name: {} for name in chosen.journals}
    files = chosen.with_records()
    for one in _done(restoring) if files else []:
        journal, name = files[one.number]
        records = sum(written.records for written in one.written)
        if records != journal.files[name].records or name in found[journal.name]:
            raise _changed(journal, name)
        restoring.take(journal.name, Path(one.directory), one.written)
        found[journal.name][name] = one.written
    for journal in chosen.journals.values():
        for number, name in enumerate(sorted(set(journal.files) - set(found[journal.name]))):
            if journal.files[name].records:
                raise LogwrightError(
                    f"{journal.name}/{name}: the tables were changed while they were read; restore again"
                )
            home = restoring.directory / "empty" / restoring.home_of(journal.name).name / str(number)
            writer = room_of(journal.format).FileWriter(home, name, disk=restoring.disk)
            try:
                made = writer.finish()
            finally:
                writer.discard()
            restoring.take(journal.name, home, made)
            found[journal.name][name] = made
    return found


def _changed(journal: _Journal, file: str) -> LogwrightError:
    return LogwrightError(f"{journal.name}/{file}: the tables were changed while they were read; restore again")


def _done(restoring: Restoring) -> list[_Done]:
    found = read_json(restoring.disk, restoring.directory / _DONE)
    for one in found:
        one["written"] = [Written.from_json(each) for each in one["written"]]
    return [_Done(**one) for one in found]


def _told(journal: _Journal, ours: Mapping[str, list[Written]]) -> RestoredJournal:
    """What came of a journal, and what did not come back."""
    room = room_of(journal.format)
    written = [one for files in ours.values() for one in files]
    extents: dict[str, int] = {}
    missing_bytes = 0
    for name, file in journal.files.items():
        if file.listed_next is not None:
            extents[room.part_of(name)] = max(file.listed_next, extents.get(room.part_of(name), 0))
        if file.listed_bytes is not None:
            missing_bytes += max(0, file.listed_bytes - sum(one.bytes for one in ours[name]))
    return RestoredJournal(
        journal.format,
        journal.name,
        sum(one.records for one in written),
        len(written),
        sum(one.bytes for one in written),
        tuple(room.missing(written, extents)),
        missing_bytes,
        tuple(journal.problems),
    )


# --- small things ---------------------------------------------------------------------------------------------------


def replace_json(disk: Disk, path: Path, value: Any) -> None:
    replace_file(disk, path, json.dumps(value).encode(), path.with_suffix(".tmp"))


def read_json(disk: Disk, path: Path) -> Any:
    file = disk.open(path, "read")
    try:
        return json.loads(file.read_at(0, file.size()))
    finally:
        file.close()


@contextlib.contextmanager
def _telling(progress: Progress | None, directory: Path, total: int) -> Iterator[None]:
    """Tell how much is written, by looking at it."""
    if progress is None:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(LogwrightError):
                progress(min(total, _bytes_below(REAL_DISK, directory / _TASKS)), total)

    thread = threading.Thread(target=look, name="logwright restore progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(total, total)


def _bytes_below(disk: Disk, directory: Path) -> int:
    size = 0
    for name in disk.list_directory(directory):
        path = directory / name
        size += _bytes_below(disk, path) if disk.is_directory(path) else disk.file_size(path)
    return size
