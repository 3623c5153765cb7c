"""How far a run of the pipeline has come: what is being done, and how many of Spark's tasks for it are."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress: TypeAlias = Callable[[str, int, int], None]
"""Gets what is being done, how much of it is done and how much there is; 0 of 0 where that cannot be said."""

_LOOK_SECONDS: Final = 0.2


def tell(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(what, 0, 0)


@contextlib.contextmanager
def watched(spark: SparkSession, progress: Progress | None, what: str) -> Iterator[None]:
    """Tell how many of the tasks are done that Spark does for us meanwhile."""
    tell(progress, what)
    if progress is None:
        yield
        return
    context = spark.sparkContext
    group = f"logwright: {what} ({time.monotonic_ns()})"
    context.setJobGroup(group, what)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # a look that fails is one that nobody misses
                done, total = _tasks(context.statusTracker(), group)
                if total:
                    progress(what, done, total)

    thread = threading.Thread(target=look, name="logwright pipeline progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """How many tasks of a group of jobs are done, and how many there are as far as Spark knows."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        information = tracker.getJobInfo(job)
        for stage in information.stageIds if information is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total
