"""Do the tasks of a batch: in this process if there is little to read, otherwise as one Spark job.

Spark plans and schedules; its Python workers decode, materialize and write Parquet (`task.py`). No row passes through
the JVM: a task returns one row, which lists its files. Files of failed, repeated or speculative attempts have other
names, and are removed.
"""

from __future__ import annotations

import base64
import gc
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyarrow import fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .parquet import Target
from .plan import Work
from .progress import Progress, report_step, watched
from .publish import batch_of
from .task import Assignment, Done, perform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SOURCE: Final = "logwright.ingest"


def do(
    assignment: Assignment,
    works: Sequence[Work],
    spark: Callable[[], SparkSession],
    progress: Progress | None,
    what: str,
    local_bytes: int,
    opened: Mapping[str, Any],
) -> Done:
    """Do all tasks of a batch. One that reads less than `local_bytes` is done here, with the readers in `opened`."""
    done = Done()
    total = sum(unit.bytes for work in works for unit in work.units)
    if total < local_bytes:
        report_step(progress, what)
        read = records = 0

        def report(unit_bytes: int, unit_records: int) -> None:
            nonlocal read, records
            read, records = read + unit_bytes, records + unit_records
            if progress is not None and total:
                progress(what, read, total, records)

        for work in works:
            done.add(perform(assignment, work, opened, report))
        return done
    session = spark()
    session.dataSource.register(IngestSource)
    with watched(session, progress, what, total, assignment.targets.get("events")):
        reader = session.read.format(SOURCE).option("assignment", _packed(assignment)).option("works", _packed(works))
        for (found,) in reader.load().collect():
            done.add(pickle.loads(bytes(found)))
    _remove_others(assignment.targets, done)
    return done


def _remove_others(targets: Mapping[str, Target], done: Done) -> None:
    """Remove the files that other attempts of tasks have left."""
    counted: dict[str, set[str]] = {}
    for file in (*done.files, *(each.file for each in done.live)):
        counted.setdefault(file.table, set()).add(file.name)
    for table, target in targets.items():
        selector = fs.FileSelector(target.directory, allow_not_found=True, recursive=bool(target.partition_by))
        for info in target.filesystem.get_file_info(selector):
            name = info.path.rpartition(f"{target.directory}/")[2]
            is_ours = info.type == fs.FileType.File and batch_of(name) == target.batch
            if is_ours and name not in counted.get(table, set()):
                target.filesystem.delete_file(info.path)


def _packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value), 1)).decode()


class IngestSource(DataSource):
    """The source `logwright.ingest`: a table of what tasks have done."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return "done BINARY"

    def reader(self, schema: StructType) -> IngestReader:
        return IngestReader(self.options["assignment"], self.options["works"])


class IngestPart(InputPartition):
    """The work of one task."""

    def __init__(self, work: Work) -> None:
        super().__init__(None)
        self.work = work


class IngestReader(DataSourceReader):
    """Hands out the tasks, and runs each of them."""

    def __init__(self, assignment: str, works: str) -> None:
        self.assignment = assignment
        self.works = works

    def partitions(self) -> Sequence[InputPartition]:
        works: list[Work] = _unpacked(self.works)
        self.works = ""  # the tasks do not need those of the others
        return [IngestPart(work) for work in works]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Do the work of a task; the only row says what was done."""
        assert isinstance(partition, IngestPart)
        assignment: Assignment = _unpacked(self.assignment)
        done = perform(assignment, partition.work)
        _freeze()
        yield (pickle.dumps(done),)


@cache
def _freeze() -> None:
    """Leave what this worker has loaded out of garbage collection, which Spark does after every task.

    It would take longer than a small task.
    """
    gc.collect()
    gc.freeze()


def _unpacked(text: str) -> Any:
    return pickle.loads(zlib.decompress(base64.b64decode(text)))
