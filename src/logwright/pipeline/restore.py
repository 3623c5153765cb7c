"""Restore journals from the tables of the pipeline.

    restored = restore("tables", "journals again")      # or: logwright pipeline restore --tables tables --out again
    for journal in restored.journals:
        print(journal.journal, journal.records, journal.whole, journal.gaps)

The table `events` is required. `files` adds the files without records and the original sizes, `consumers` the offsets
of consumers. What is restored depends on the format (`core/publish/restore.py`): sej and kestrel get the same bytes,
versioned the same journals with archives compressed again. Damaged ranges are not in the tables; the result says for
each journal what is missing.

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
from ..errors import DamagedJournal, LogwrightError, StorageFailed, WrongUse
from ..location import is_local, locate
from . import commit
from .failures import translated
from .plan import is_below
from .restore_plan import Chosen, JournalToWrite, Tables, choose, generation_column
from .tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Restored", "RestoredJournal", "restore"]

SOURCE: Final = "logwright.restore"
_DERIVED: Final = ("format", "journal", "file", "timestamp")
"""Columns that tasks do not need: the file is sent as a number, and `timestamp_ns` is more exact than `timestamp`."""
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
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Write the journals in the tables below `tables` to the directory `out`, each under its name.

    `journals` are patterns such as `orders/*`; without them all journals are restored. `format` and `options` are those
    of the tables; the default format is the one in the pipeline's checkpoint, or else Parquet. `progress` is called
    from another thread with the bytes written so far and the total.
    """
    root = _directory_of(out, tables)
    if spark is None:
        from ..spark import session

        spark = session()
    with _locked(tables), translated():
        format = format or _noted_format(tables)
        request = {
            "tables": _absolute(tables),
            "format": format,
            "journals": None if journals is None else sorted(journals),
        }
        chosen = choose(Tables(spark, tables, format, dict(options or {})), journals)
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


def _noted_format(tables: str) -> str:
    """The format of the tables in the pipeline's checkpoint."""
    disk, path = locate(tables)
    checkpoint = commit.read_checkpoint(path, disk=disk)
    made_with = {} if checkpoint is None else checkpoint.state.get("made_with")
    found = made_with.get("format") if isinstance(made_with, dict) else None
    return found if isinstance(found, str) else "parquet"


@contextlib.contextmanager
def _locked(tables: str) -> Iterator[None]:
    """Lock the tables of the pipeline, completing an interrupted batch first."""
    disk, path = locate(tables)
    made_here = is_local(disk) and disk.is_directory(path / commit.HOME)
    with contextlib.ExitStack() as stack:
        if made_here:
            try:
                stack.enter_context(commit.Output(path, disk=disk))
            except StorageFailed as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or commit.is_being_changed(path):
                    raise  # without write permission there is no lock: only check that no batch is being published
        yield


# --- writing the records --------------------------------------------------------------------------------------------


def _write_records(spark: SparkSession, chosen: Chosen, restoring: Restoring, progress: Progress | None) -> None:
    """Let Spark group and sort the rows of each file, and its tasks write them."""
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
    plan = [(journal.format, journal.name, name, journal.files[name].given) for journal, name in files]
    replace_json(REAL_DISK, restoring.directory / _PLAN, plan)
    columns = [column for column in EVENTS.names if column not in _DERIVED]
    rows = (
        chosen.events.withColumn("_generation", generation_column())
        .join(F.broadcast(spark.createDataFrame(numbers)), ["format", "journal", "file", "_generation"])
        .select("_number", "_task", "_generation", *columns)
        .repartitionById(len(groups), "_task")
        .sortWithinPartitions("_number", "_generation", "position")
        .drop("_task", "_generation")
    )
    spark.dataSource.register(RestoreSink)
    make_directories(REAL_DISK, restoring.directory / _TASKS)
    with _reporting_progress(progress, restoring.directory, sum(sizes)):
        rows.write.format(SOURCE).option("directory", str(restoring.directory)).mode("append").save()


class RestoreSink(DataSource):
    """The sink `logwright.restore`: writes rows as files of journals in the directory of a restore."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def writer(self, schema: StructType, overwrite: bool) -> RestoreWriter:
        return RestoreWriter(Path(self.options["directory"]))


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

    def __init__(self, directory: Path) -> None:
        self.directory = directory

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
        replace_json(REAL_DISK, self.directory / _DONE, done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the driver removes all files."""


def _finish(writer: FileWriter | None, done: list[_Done]) -> None:
    if writer is not None:
        done[-1].written.extend(writer.finish())


@contextlib.contextmanager
def _naming(journal: str) -> Iterator[None]:
    """Add the name of the journal to errors."""
    try:
        yield
    except DamagedJournal as error:
        raise type(error)(f"{journal}/{error.file}", error.position, error.reason) from error
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


def _done(restoring: Restoring) -> list[_Done]:
    found = read_json(restoring.disk, restoring.directory / _DONE)
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
