"""restore: the way back, from the tables of the pipeline to the journals that they were made of.

    restored = restore("tables", "journals again")      # or: logwright pipeline restore --tables tables --out again
    for journal in restored.journals:
        print(journal.journal, journal.records, journal.whole, journal.gaps)

Needed is the table `events`; `files` has the files that hold no records and says how large all of them were, and
`consumers` how far consumers had come. What comes back depends on the format (`core/publish/restore.py`): of sej and
kestrel the same bytes, of versioned the same journals, whose archives are compressed again. What was damaged is not in
the tables, and the result says for each journal what is missing.

Spark brings the rows of each file together and into their order; its tasks write the files, one batch of rows at a
time, into a hidden place below OUT, and the driver moves journals from there into their places when all of them are on
the disk. A restore that was ended at any moment leaves nothing that looks like a journal and is not whole; run again
it completes what was left, or begins anew. A journal that is there is never touched.

OUT must be a directory that all executors share: on one machine any.
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
from .planning import is_below
from .restorable import Chosen, JournalToWrite, Tables, choose, generation_column
from .tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Restored", "RestoredJournal", "restore"]

SOURCE: Final = "logwright.restore"
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
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Write the journals that are in the tables below `tables` into the directory `out`, each under its name.

    `journals` are patterns such as `orders/*`; without them all are restored. `format` and `options` are those of the
    tables; without a format it is the one that the pipeline has noted beside them, and Parquet where it has not.
    `progress` is called from another thread, with the bytes written so far and all there will be.
    """
    root = _directory_of(out, tables)
    if spark is None:
        from ..spark import session

        spark = session()
    with _at_rest(tables), translated():
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


def _noted_format(tables: str) -> str:
    """The format that the pipeline says it has made the tables in."""
    disk, path = locate(tables)
    checkpoint = commit.read_checkpoint(path, disk=disk)
    made_with = {} if checkpoint is None else checkpoint.state.get("made_with")
    found = made_with.get("format") if isinstance(made_with, dict) else None
    return found if isinstance(found, str) else "parquet"


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


# --- writing the records --------------------------------------------------------------------------------------------


def _write_records(spark: SparkSession, chosen: Chosen, restoring: Restoring, progress: Progress | None) -> None:
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


def _publish(chosen: Chosen, restoring: Restoring) -> Restored:
    written = _taken(chosen, restoring)
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
        restored[journal.name] = _told(journal, ours)
    return restoring.publish(restored, single_files)


def _write_losses(disk: Disk, home: Path, journal: JournalToWrite) -> None:
    """Write the accounts that a journal had: of a root of shards each shard has its own."""
    shards = {find_format(journal.format).restore.part_of(file) for file in journal.files}
    for loss in journal.losses:
        shard, _, file = loss.file.partition("/")
        if file and shard in shards:
            add_losses(disk, home / name_of(shard), [replace(loss, file=file)])
        else:
            add_losses(disk, home, [loss])


def _taken(chosen: Chosen, restoring: Restoring) -> dict[str, dict[str, list[Written]]]:
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


def _told(journal: JournalToWrite, ours: Mapping[str, list[Written]]) -> RestoredJournal:
    """What came of a journal, and what did not come back."""
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
