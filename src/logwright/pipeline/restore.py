"""Restore journals from the tables of the pipeline.

    restored = restore("tables", "journals again")      # or: logwright pipeline restore --tables tables --out again
    for journal in restored.journals:
        print(journal.journal, journal.records, journal.whole, journal.gaps)

The record table of a format is required for its journals. `files` adds the files without records and the original
sizes, `consumers` the offsets of consumers. What is restored depends on the format (`core/publish/restore.py`): sej and
kestrel get the same bytes, versioned the same journals with archives compressed again. Damaged ranges are not in the
tables; the result says for each journal what is missing.

Spark groups and sorts the rows of each file. Its tasks write the files, one batch of rows at a time, to a hidden
directory below OUT. The driver moves the journals into place after all of them have been synced. An interrupted restore
never leaves an incomplete journal; a second run completes or restarts it. Existing journals are never changed.

All executors must share the directory OUT.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from ..core.format import find_format
from ..core.io.disk import REAL_DISK, Disk, make_directories, replace_file
from ..core.io.file_names import name_of
from ..core.publish.restore import FileWriter, Restored, RestoredJournal, Restoring, Written
from ..core.read.report import Progress
from ..core.read.splits import TARGET_BYTES, pack
from ..core.repair.losses import add_losses
from ..errors import LogwrightError, StorageFailed, WrongUse, renaming_damage
from ..location import is_local, locate
from .failures import translated
from .plan import is_below
from .publish import FORMATS, open_publisher
from .publish.control import HOME, read_format
from .publish.parquet import is_being_changed, table_files
from .restore_plan import RECORD_TABLES, Chosen, JournalToWrite, Tables, choose, generation_column
from .tables import QUARANTINE, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Restored", "RestoredJournal", "restore"]

SOURCE: Final = "logwright.restore"
_DERIVED: Final = ("journal", "file")
"""Columns that tasks do not need: the file is sent as a number."""
_READ: Final = (*TABLES, QUARANTINE)
_PLAN: Final = "plan.json"
_TASKS: Final = "tasks"
_LOOK_SECONDS: Final = 0.5
_LEAST_TASK_BYTES: Final = 4 << 20
_MOST_PARALLEL: Final = 100_000


def restore(
    tables: str,
    out: str,
    *,
    journals: Sequence[str] | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Write the journals in the tables below `tables` to the directory `out`, each under its name.

    `journals` are patterns such as `orders/*`; without them all journals are restored. `format` is that of the tables;
    by default the one that is noted beside them, or else Parquet. `options` are those of `open_publisher`. `progress`
    is called from another thread with the bytes written so far and the total.
    """
    root = _directory_of(out, tables)
    if spark is None:
        from ..spark import session

        spark = session()
    with _located(tables, format, options or {}) as files, translated():
        request = {
            "tables": _absolute(tables),
            "format": format,
            "journals": None if journals is None else sorted(journals),
        }
        chosen = choose(Tables(spark, _absolute(tables), files), journals)
        with Restoring(REAL_DISK, root, request) as restoring:
            if restoring.completed is not None:
                return restoring.completed
            restoring.refuse_existing(sorted(chosen.journals))
            _write_records(spark, chosen, restoring, progress)
            return _publish(chosen, restoring)


# --- where from and where to ----------------------------------------------------------------------------------------


def _directory_of(out: str, tables: str) -> Path:
    """The absolute path of the target: executors may have another working directory."""
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
def _located(tables: str, format: str | None, options: Mapping[str, str]) -> Iterator[dict[str, list[str]]]:
    """The data files of each table. Tables of the pipeline are locked, and an interrupted batch is completed first."""
    disk, path = locate(tables)
    if not is_local(disk):
        raise WrongUse(f"{tables}: journals are restored from tables on a file system of this machine; copy them first")
    path = path.absolute()
    format = format or read_format(disk, path) or "parquet"
    if format not in FORMATS:
        raise WrongUse(f"format: there is no {format!r}; there are {', '.join(FORMATS)}")
    if disk.is_directory(path / HOME):
        try:
            publisher = open_publisher(path, format, options)
        except StorageFailed as error:
            denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            if format != "parquet" or not denied or is_being_changed(path):
                raise  # without write permission there is no lock: only check that no batch is being published
        else:
            with publisher:
                yield {table: [publisher.path(file) for file in publisher.files(table)] for table in _READ}
            return
        yield {table: [str(path / name) for name in table_files(path, table)] for table in _READ}
        return
    if format != "parquet":
        raise WrongUse(f"{tables}: there is no {HOME} here, which says what {format} tables there are")
    yield {table: [str(path / table)] for table in _READ if disk.is_directory(path / table)}


# --- writing the records --------------------------------------------------------------------------------------------


def _write_records(spark: SparkSession, chosen: Chosen, restoring: Restoring, progress: Progress | None) -> None:
    """Let Spark group and sort the rows of each file, and its tasks write them: one job for each format."""
    files = chosen.with_records()
    plan = [(journal.format, journal.name, name, journal.files[name].given) for journal, name in files]
    replace_json(REAL_DISK, restoring.directory / _PLAN, plan)
    spark.dataSource.register(RestoreSink)
    make_directories(REAL_DISK, restoring.directory / _TASKS)
    total = sum(journal.files[name].bytes for journal, name in files)
    with _reporting_progress(progress, restoring.directory, total):
        for table in RECORD_TABLES:
            assert table.format is not None
            numbers = [number for number, (journal, _) in enumerate(files) if journal.format == table.format]
            if numbers:
                columns = [column for column in table.schema.names if column not in _DERIVED]
                _write_format(spark, chosen, restoring, table.format, columns, numbers)


def _write_format(
    spark: SparkSession,
    chosen: Chosen,
    restoring: Restoring,
    format: str,
    columns: Sequence[str],
    own: Sequence[int],
) -> None:
    files = chosen.with_records()
    sizes = {number: files[number][0].files[files[number][1]].bytes for number in own}
    task_bytes = sum(sizes.values()) // (2 * _parallelism(spark)) + 1
    groups = pack(sizes.items(), max(_LEAST_TASK_BYTES, min(task_bytes, TARGET_BYTES)), lambda item: item[1])
    task_of = {number: task for task, group in enumerate(groups) for number, _ in group}
    number_of = {(files[number][0].name, files[number][1]): number for number in own}
    origins = [origin for origin in chosen.origins if origin.format == format]
    wanted = [number_of[origin.journal, origin.settled] for origin in origins]
    numbers = pa.table(
        {
            "journal": [origin.journal for origin in origins],
            "file": [origin.file for origin in origins],
            "_generation": pa.array([origin.generation for origin in origins], pa.int64()),
            "_number": pa.array(wanted, pa.int32()),
            "_task": pa.array([task_of[number] for number in wanted], pa.int32()),
        }
    )
    rows = (
        chosen.records[format]
        .withColumn("_generation", generation_column(format))
        .join(F.broadcast(spark.createDataFrame(numbers)), ["journal", "file", "_generation"])
        .select("_number", "_task", "_generation", *columns)
        .repartitionById(len(groups), "_task")
        .sortWithinPartitions("_number", "_generation", "position")
        .drop("_task", "_generation")
    )
    writer = rows.write.format(SOURCE).option("directory", str(restoring.directory)).option("done", _done_name(format))
    writer.mode("append").save()


def _parallelism(spark: SparkSession) -> int:
    """About how many tasks run at a time."""
    return spark.range(_MOST_PARALLEL).selectExpr("spark_partition_id()").distinct().count()


def _done_name(format: str) -> str:
    return f"done-{format}.json"


class RestoreSink(DataSource):
    """The sink `logwright.restore`: writes rows as files of journals in the directory of a restore."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def writer(self, schema: StructType, overwrite: bool) -> RestoreWriter:
        return RestoreWriter(Path(self.options["directory"]), self.options["done"])


@dataclass(frozen=True, slots=True)
class _Done:
    """A file that a task has written, below the task's own directory."""

    number: int
    directory: str
    written: list[Written]


class TaskDone(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, done: list[_Done]) -> None:
        self.done = done


class RestoreWriter(DataSourceArrowWriter):
    """Writes files in the tasks, and records for the driver what successful tasks have written."""

    def __init__(self, directory: Path, done: str) -> None:
        self.directory = directory
        self.done = done

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write the files of one task in sequence."""
        plan = read_json(REAL_DISK, self.directory / _PLAN)
        home = self.directory / _TASKS / secrets.token_hex(8)  # each attempt has its own directory
        done: list[_Done] = []
        writer: FileWriter | None = None
        try:
            for number, rows in _by_file(iterator):
                format, journal, file, given = plan[number]
                if not done or done[-1].number != number:
                    _finish(writer, done)
                    done.append(_Done(number, str(home / str(number)), []))
                    writer = find_format(format).restore.writer(home / str(number), file, disk=REAL_DISK, **given)
                assert writer is not None
                with _naming(journal):
                    writer.append_batch(rows)
            _finish(writer, done)
        finally:
            if writer is not None:
                writer.discard()
        return TaskDone(done)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the files that were written."""
        done = [asdict(one) for message in messages if isinstance(message, TaskDone) for one in message.done]
        replace_json(REAL_DISK, self.directory / self.done, done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the driver removes all files."""


def _finish(writer: FileWriter | None, done: list[_Done]) -> None:
    if writer is not None:
        done[-1].written.extend(writer.finish())


@contextlib.contextmanager
def _naming(journal: str) -> Iterator[None]:
    """Add the name of the journal to errors."""
    try:
        with renaming_damage(lambda file: f"{journal}/{file}"):
            yield
    except WrongUse as error:
        raise WrongUse(f"{journal}: {error}") from error


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each file, with its number. The batches are sorted by that number."""
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


def _publish(chosen: Chosen, restoring: Restoring) -> Restored:
    written = _collected(chosen, restoring)
    restored: dict[str, RestoredJournal] = {}
    single_files: dict[str, list[str]] = {}
    for journal in chosen.journals.values():
        restore = find_format(journal.format).restore
        ours = written[journal.name]
        home = restoring.home_of(journal.name)
        if journal.is_single_file:
            single_files[journal.name] = [one.file for files in ours.values() for one in files]
            add_losses(restoring.disk, (restoring.out / name_of(journal.name)).parent, journal.losses)
        else:
            _write_losses(restoring.disk, home, journal)
            for part, offsets in journal.consumers.items():
                restore.write_consumers(home, part, offsets, disk=restoring.disk)
        restored[journal.name] = _result_of(journal, ours)
    return restoring.publish(restored, single_files)


def _write_losses(disk: Disk, home: Path, journal: JournalToWrite) -> None:
    """Write the accounts of losses of a journal: in a sharded root, one for each shard."""
    shards = {find_format(journal.format).restore.part_of(file) for file in journal.files}
    for loss in journal.losses:
        shard, _, file = loss.file.partition("/")
        if file and shard in shards:
            add_losses(disk, home / name_of(shard), [replace(loss, file=file)])
        else:
            add_losses(disk, home, [loss])


def _collected(chosen: Chosen, restoring: Restoring) -> dict[str, dict[str, list[Written]]]:
    """Move the files of each journal together; returns the files of each journal."""
    found: dict[str, dict[str, list[Written]]] = {name: {} for name in chosen.journals}
    files = chosen.with_records()
    for one in _done(restoring, sorted({journal.format for journal, _ in files})):
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
            given = journal.files[name].given
            writer = find_format(journal.format).restore.writer(home, name, disk=restoring.disk, **given)
            try:
                made = writer.finish()
            finally:
                writer.discard()
            restoring.take(journal.name, home, made)
            found[journal.name][name] = made
    return found


def _changed(journal: JournalToWrite, file: str) -> LogwrightError:
    return LogwrightError(f"{journal.name}/{file}: the tables were changed while they were read; restore again")


def _done(restoring: Restoring, formats: Iterable[str]) -> list[_Done]:
    found = [one for name in formats for one in read_json(restoring.disk, restoring.directory / _done_name(name))]
    for one in found:
        one["written"] = [Written.from_json(each) for each in one["written"]]
    return [_Done(**one) for one in found]


def _result_of(journal: JournalToWrite, ours: Mapping[str, list[Written]]) -> RestoredJournal:
    """The result for a journal, with what is missing."""
    restore = find_format(journal.format).restore
    written = [one for files in ours.values() for one in files]
    extents: dict[str, int] = {}
    missing_bytes = 0
    for name, file in journal.files.items():
        if file.listed_next is not None:
            extents[restore.part_of(name)] = max(file.listed_next, extents.get(restore.part_of(name), 0))
        if file.listed_bytes is not None:
            missing_bytes += max(0, file.listed_bytes - sum(one.bytes for one in ours[name]))
    return RestoredJournal(
        journal.format,
        journal.name,
        sum(one.records for one in written),
        len(written),
        sum(one.bytes for one in written),
        tuple(restore.missing(written, extents)),
        missing_bytes,
        (*journal.problems, *(problem for one in written for problem in one.problems)),
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
def _reporting_progress(progress: Progress | None, directory: Path, total: int) -> Iterator[None]:
    """Report progress by looking at the sizes of the files."""
    if progress is None:
        yield
        return
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(LogwrightError):
                progress(min(total, _bytes_below(REAL_DISK, directory / _TASKS)), total)

    thread = threading.Thread(target=poll, name="logwright restore progress", daemon=True)
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
