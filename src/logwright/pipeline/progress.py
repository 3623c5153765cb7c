"""The progress of a run: the current step, and how many of its Spark tasks are done."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done and the total; 0 and 0 if that is unknown."""

_POLL_SECONDS: Final = 0.2


def report_step(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(what, 0, 0)


@contextlib.contextmanager
def watched(spark: SparkSession, progress: Progress | None, what: str) -> Iterator[None]:
    """Report the progress of the Spark tasks that run inside the `with` block."""
    report_step(progress, what)
    if progress is None:
        yield
        return
    context = spark.sparkContext
    group = f"logwright: {what} ({time.monotonic_ns()})"
    context.setJobGroup(group, what)
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            with contextlib.suppress(Exception):  # progress is optional
                done, total = _tasks(context.statusTracker(), group)
                if total:
                    progress(what, done, total)

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
