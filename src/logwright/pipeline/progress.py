"""The progress of a run: the current step, and how much of what it reads was read.

On Spark it is known how many tasks are done: the bytes are estimated from that. The records are those in the files of
the table `events` that tasks have completed. In this process both are exact.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow.parquet as pq
from pyarrow import fs

from .parquet import Target
from .publish import batch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress(Protocol):
    """Called with the current step, how many bytes were read and the total, 0 and 0 if that is unknown; and the number
    of records that were read, None if that is unknown.
    """

    def __call__(self, what: str, done: int, total: int, records: int | None = None, /) -> None: ...


_POLL_SECONDS: Final = 0.2
_LIST_SECONDS: Final = 1.0
_LIST_REMOTE_SECONDS: Final = 10.0
"""How often the files of tasks are listed: a request to an object store costs money."""


def report_step(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(what, 0, 0)


@contextlib.contextmanager
def watched(
    spark: SparkSession, progress: Progress | None, what: str, total_bytes: int, events: Target | None
) -> Iterator[None]:
    """Report the progress of the Spark tasks that run inside the `with` block, and read some bytes in all.

    `events` is where the tasks write their files of this table, if they do.
    """
    report_step(progress, what)
    if progress is None:
        yield
        return
    from pyspark.sql import is_remote

    written = None if events is None else WrittenRows(events)

    def report(done: int, total: int) -> None:
        if total:
            records = None if written is None or not done else written.count()
            progress(what, total_bytes * done // total, total_bytes, records)

    with _by_connect(spark, report) if is_remote() else _by_context(spark, report, what):
        yield


@contextlib.contextmanager
def _by_connect(spark: SparkSession, report: Callable[[int, int], None]) -> Iterator[None]:
    """Call `report` with the numbers of completed tasks and of all tasks; the server of Spark Connect sends them."""

    def handle(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        with contextlib.suppress(Exception):  # progress is optional
            report(sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known))

    handler: Any = handle
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextlib.contextmanager
def _by_context(spark: SparkSession, report: Callable[[int, int], None], what: str) -> Iterator[None]:
    """The same for a session without Spark Connect, whose context knows the tasks of a job group."""
    context = spark.sparkContext
    group = f"logwright: {what} ({time.monotonic_ns()})"
    context.setJobGroup(group, what)
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            with contextlib.suppress(Exception):  # progress is optional
                report(*_tasks(context.statusTracker(), group))

    thread = threading.Thread(target=poll, name="logwright pipeline progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


class WrittenRows:
    """Counts the rows of the files that the tasks of a batch have completed. Of each file the footer is read, once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rows: dict[str, int] = {}
        self._is_remote = not isinstance(target.filesystem, fs.LocalFileSystem)
        self._listed_at = float("-inf")

    def count(self) -> int | None:
        """The number of rows; None if no file is complete yet."""
        every = _LIST_REMOTE_SECONDS if self._is_remote else _LIST_SECONDS
        if time.monotonic() - self._listed_at >= every:
            self._list()
            self._listed_at = time.monotonic()
        return sum(self._rows.values()) or None

    def _list(self) -> None:
        target = self._target
        selector = fs.FileSelector(target.directory, allow_not_found=True, recursive=bool(target.partition_by))
        for info in target.filesystem.get_file_info(selector):
            is_ours = info.type == fs.FileType.File and batch_of(info.base_name) == target.batch
            if is_ours and info.path not in self._rows:
                with contextlib.suppress(Exception):  # it is not complete yet
                    self._rows[info.path] = pq.read_metadata(info.path, filesystem=target.filesystem).num_rows


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """The numbers of completed tasks and of all known tasks of a job group."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        information = tracker.getJobInfo(job)
        for stage in information.stageIds if information is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total
