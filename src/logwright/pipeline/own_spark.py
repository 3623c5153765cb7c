"""A Spark session for one command: started when it is needed, quiet, local by default, and stopped at the end.

With `remote` it is a session of a server of Spark Connect, which continues to run.

Spark's log and everything that its JVM and Python workers write to stderr go to a file. The file is removed on success
and named in the error if Spark failed. SIGTERM also removes it and then ends this process as usual: the next run
removes the staged files, and the JVM ends when it loses its connection to this process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..errors import LogwrightError
from ..spark import is_local_remote, register, session
from .failures import SparkFailed

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
}
_START_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
"""For a Spark that is started here."""
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
"""For a local master: it is not reachable from other machines, and few rows are shuffled."""
_RAISED: Final = re.compile(r'Exception in thread "main" (?:[\w.$]+: )?(.+)')
_TALK: Final = re.compile(r"WARNING: |Using Spark's |[\d/]+ [\d:]+ (?:WARN|INFO) |:: |\tat ")
_STOP_SECONDS: Final = 60
_MOST_TEXT: Final = 1 << 20


@contextlib.contextmanager
def own_spark(
    master: str,
    settings: Mapping[str, str],
    on_start: Callable[[], None] = lambda: None,
    *,
    remote: str | None = None,
) -> Iterator[Callable[[], SparkSession]]:
    """A function that returns the active session, or starts one and then calls `on_start`.

    Only a session that was started here is stopped.
    """
    started: list[SparkSession] = []
    log = ""

    def start() -> SparkSession:
        nonlocal log
        running = SparkSession.getActiveSession()
        if running is not None:
            return register(running)
        if remote is not None and not is_local_remote(remote):
            try:
                started.append(session(name="logwright pipeline", remote=remote, **{**_SETTINGS, **settings}))
            except PySparkException as error:
                raise SparkFailed(f"{remote}: Spark Connect failed: {error}") from error
            on_start()
            return started[0]
        descriptor, log = tempfile.mkstemp(prefix="logwright-spark-", suffix=".log")
        local = _LOCAL_SETTINGS if (remote or master).startswith("local") else {}
        every = {**_SETTINGS, **_START_SETTINGS, **local, **settings}
        try:
            with _stderr_into(descriptor):
                started.append(session(master, "logwright pipeline", remote=remote, **every))
        except PySparkException as error:
            with open(log, errors="backslashreplace") as file:
                said = reason_in(file.read(_MOST_TEXT))
            raise SparkFailed(f"Spark did not start: {said or error}") from error
        on_start()
        return started[0]

    try:
        with _before_sigterm(lambda: _remove(log)):
            yield start
    except SparkFailed as error:
        if not log:
            raise
        with open(log, "a", errors="backslashreplace") as file:
            file.write(f"\n{error.__cause__}\n")
        raise LogwrightError(f"{error} (Spark's own log: {log})") from error
    except BaseException:
        _remove(log)
        raise
    else:
        _remove(log)
    finally:
        for spark in started:
            _stop(spark)


@contextlib.contextmanager
def _before_sigterm(clean_up: Callable[[], None]) -> Iterator[None]:
    """Call `clean_up` before SIGTERM ends this process, unless the application handles that signal itself."""

    def end(number: int, frame: FrameType | None) -> None:
        clean_up()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(spark: SparkSession) -> None:
    """Stop Spark from another thread: after Ctrl-C the connection of this thread may still wait for an answer."""

    def stop() -> None:
        with contextlib.suppress(Exception):  # the JVM ends with this process in any case
            spark.stop()

    thread = threading.Thread(target=stop, name="logwright stops Spark", daemon=True)
    thread.start()
    thread.join(_STOP_SECONDS)


def reason_in(log: str) -> str:
    """Why Spark did not start, found in the output of Spark and its JVM; empty if it is not there."""
    raised = _RAISED.search(log)
    if raised is not None:
        return raised[1].strip()
    lines = (line.strip() for line in log.splitlines())
    return next((line for line in lines if line and not _TALK.match(line)), "")


def _remove(log: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(log)


@contextlib.contextmanager
def _stderr_into(descriptor: int) -> Iterator[None]:
    """Redirect stderr of this process and of those it starts."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)
