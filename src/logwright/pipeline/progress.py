"""The progress of a run: the current step, and how much of what it reads was read.

On Spark it is known how many tasks are done: the bytes are estimated from that, and the number of records is not known
until the end. In this process both are exact.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress(Protocol):
    """Called with the current step, how many bytes were read and the total, 0 and 0 if that is unknown; and the number
    of records that were read, None if that is unknown.
    """

    def __call__(self, what: str, done: int, total: int, records: int | None = None, /) -> None: ...


_POLL_SECONDS: Final = 0.2


def report_step(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(what, 0, 0)


@contextlib.contextmanager
def watched(spark: SparkSession, progress: Progress | None, what: str, total_bytes: int) -> Iterator[None]:
    """Report the progress of the Spark tasks that run inside the `with` block, and read some bytes in all."""
    report_step(progress, what)
    context = None
    with contextlib.suppress(Exception):  # Spark Connect has none
        context = spark.sparkContext
    if progress is None or context is None:
        yield
        return
    group = f"logwright: {what} ({time.monotonic_ns()})"
    context.setJobGroup(group, what)
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            with contextlib.suppress(Exception):  # progress is optional
                done, total = _tasks(context.statusTracker(), group)
                if total:
                    progress(what, total_bytes * done // total, total_bytes)

    thread = threading.Thread(target=poll, name="logwright pipeline progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


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
