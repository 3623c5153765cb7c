"""Write journals from Spark, for tables and streams: each batch completely or not at all, and exactly once.

    df.write.format("sej").option("shardBit", 4).mode("append").save("out")
    df.write.format("kestrel").option("queue", "orders").mode("append").save("queues")
    df.write.format("versioned").option("store", "settings").mode("append").save("stores")
    df.writeStream.format("sej").option("checkpointLocation", "progress").start("out")

Tasks stage their records in a hidden directory of the target. The driver publishes what the successful attempts have
staged, and nothing of failed, repeated or speculative attempts. A batch of a streaming query is published under the
query's id and the batch's number, so that nothing is written twice when Spark repeats a batch after a restart. The next
writer completes or removes what a crash has left. The driver and all executors must share the target directory.

Options of every format:
    txnAppId, txnVersion    an id and a number for a table: a table that has been published with this id and
                            this or a higher number is not written again. Streams have their own

Options of sej:
    shardBit            messages go to 2^shardBit journals by their key; 0 by default, which is one journal
    prefix              the beginning of the shards' names; empty by default
    segmentSize         the size of a segment; 1g by default
    checksums           write files of checksums for the segments; false by default

Options of kestrel:
    queue               the queue of items without a column `queue`

Options of versioned, which writes new stores only, and tables only:
    store               the store of changes without a column `store`

The protocol is in `core.publish.staging`, for all formats; `Target` is the part of a format.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..core.format import FORMATS, find_format
from ..core.io.disk import REAL_DISK, Disk
from ..core.publish import staging
from ..core.publish.manifest import Batch, Target
from ..errors import LogwrightError, WrongUse
from ..location import is_local, locate
from .options import OF_SINKS, byte_size, check_names, flag
from .paths import absolute

PATIENCE_SECONDS: Final = 60
"""How long to wait for another job that publishes to the same target."""
_STALE_SECONDS: Final = 24 * 3600
"""A run older than this is dead, on any machine: no batch takes a day."""
_QUERY_ID: Final = "sql.streaming.queryId"
"""The property by which tasks know their query; Spark does not pass it to the writer of a stream."""
_OPEN_FILES: Final = 16_384


class TaskDone(WriterCommitMessage):
    """What a task has staged, and for which streaming query."""

    def __init__(self, staged: Any, query: str | None) -> None:
        self.staged = staged
        self.query = query


class _Sink:
    """What both kinds of writers share. They are pickled, so they have names and numbers only."""

    disk: Disk = REAL_DISK

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        if format is None:
            raise WrongUse(f"give the format to write: {' or '.join(_written_formats())}")
        if overwrite:
            raise WrongUse("a journal is never overwritten: write with mode append, or to another path")
        self.format = format
        self.root = _directory_of(options)
        self.run = new_run()
        kind = _target_of(format)
        check_names(options, (*kind.options, *OF_SINKS), f"writing {format}")
        self.target = kind(**_fields(options, kind.options))
        self.target.check_writable(to_arrow_schema(schema, timezone="UTC"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Stage the records of one task."""
        context = TaskContext.get()
        assert context is not None
        _allow_open_files()
        stage = self.target.stage(self.root, self.run, context.partitionId(), disk=self.disk)
        try:
            for batch in iterator:
                stage.append_batch(self.target.writable(batch))
            return TaskDone(stage.finish(), context.getLocalProperty(_QUERY_ID))
        except BaseException:
            stage.discard()
            raise

    def publish(self, done: Sequence[TaskDone], name: str | None, number: int) -> None:
        """Publish what the tasks have staged; only once for an id and a number."""
        if not done:
            return
        batch = None if name is None else Batch(name, number)
        (run,) = {one.staged.run for one in done}
        staged = [one.staged for one in done]
        _allow_open_files()
        staging.publish(self.root, run, staged, self.target, batch, disk=self.disk, patience_seconds=PATIENCE_SECONDS)

    def give_up(self, done: Sequence[TaskDone]) -> None:
        runs = {self.run, *(one.staged.run for one in done)}
        with contextlib.suppress(LogwrightError):  # the next writer removes what remains
            staging.discard(self.root, runs, disk=self.disk, patience_seconds=PATIENCE_SECONDS)

    def clean_up(self) -> None:
        """Complete or remove what crashes have left."""
        staging.recover_staging(self.root, is_dead=is_dead, disk=self.disk, patience_seconds=PATIENCE_SECONDS)


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    """The messages of successful tasks: Spark passes None for the others."""
    return [message for message in messages if isinstance(message, TaskDone)]


class JournalWriter(_Sink, DataSourceArrowWriter):
    """Appends a table to a journal."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        super().__init__(schema, options, format, overwrite)
        self.named = _transaction_of(options)
        self.clean_up()
        name, number = self.named
        batch = None if name is None else Batch(name, number)
        if not staging.is_published(self.root, batch, disk=self.disk):
            self.target.refuse_live_writers(self.root, disk=self.disk)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        self.publish(_done(messages), *self.named)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing."""
        self.give_up(_done(messages))


class JournalStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Appends the batches of a streaming query to a journal. Spark makes one for each batch, and another to commit."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        super().__init__(schema, options, format, overwrite)
        if self.target.no_streams is not None:
            raise WrongUse(self.target.no_streams)
        if _transaction_of(options)[0] is not None:
            raise WrongUse("txnAppId is for tables only: the checkpoint of a stream writes it exactly once")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish what the tasks have staged, unless this batch has been."""
        done = _done(messages)
        if done:
            (query,) = {one.query for one in done}
            if query is None:
                raise WrongUse("Spark does not pass the id of the query, so it cannot be written exactly once")
            self.publish(done, query, batchId)
        with contextlib.suppress(LogwrightError):  # the batch is published: cleaning up can wait
            self.clean_up()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave nothing."""
        self.give_up(_done(messages))


# --- options --------------------------------------------------------------------------------------------------------


def _target_of(format: str) -> type[Target]:
    kind = find_format(format).target
    if kind is None:
        raise WrongUse(f"Spark cannot write journals of the format {format}")
    return kind


def _written_formats() -> list[str]:
    return [name for name, format in FORMATS.items() if format.target is not None]


def _directory_of(options: Mapping[str, str]) -> Path:
    """The path of the target."""
    location = options.get("path")
    if not location:
        raise WrongUse("give the path to write to: .save(PATH), or .start(PATH)")
    disk, path = locate(absolute(location))
    if not is_local(disk):
        raise WrongUse(f"{location}: journals are written to a file system of this machine, not to a remote store")
    return path


def _fields(options: Mapping[str, str], known: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The options that are set, by the names of their fields. `options` are folded."""
    found: dict[str, Any] = {}
    for name, (field, kind) in known.items():
        text = options.get(name.lower())
        if text is None:
            continue
        if kind == "bytes":
            found[field] = byte_size(options, name, 0)
        elif kind == "flag":
            found[field] = flag(options, name, False)
        elif kind == "text":
            found[field] = text
        elif text.strip().isdecimal():
            found[field] = int(text)
        else:
            raise WrongUse(f"option {name}: {text!r} is not a number")
    return found


def _transaction_of(options: Mapping[str, str]) -> tuple[str | None, int]:
    """The id and the number of a table; without an id it is written every time."""
    name, number = options.get("txnappid"), options.get("txnversion")
    if (name is None) != (number is None):
        raise WrongUse("give both txnAppId and txnVersion, or neither")
    if number is not None and not number.strip().isdecimal():
        raise WrongUse(f"option txnVersion: {number!r} is not a number")
    return name, int(number or 0)


def _allow_open_files() -> None:
    """Raise this process's limit of open files: there can be a thousand shards, queues or stores."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- runs, living and dead ------------------------------------------------------------------------------------------


def new_run() -> str:
    """The id of a run of a writer: its time, its machine, and the process that represents its driver.

    That is the parent of this process: Spark's daemon, or its JVM. It lives as long as the driver.
    """
    return f"{time.time_ns():016x}-{_machine()}-{os.getppid()}-{secrets.token_hex(4)}"


def is_dead(run: str) -> bool:
    """Whether a run cannot publish any more: its driver was on this machine and is gone, or it is too old."""
    try:
        began, machine, process, _ = run.split("-")
        if time.time_ns() - int(began, 16) > _STALE_SECONDS * 1_000_000_000:
            return True
        return machine == _machine() and not _is_alive(int(process))
    except ValueError:
        return False


def _machine() -> str:
    """The id of this machine or container, within which process ids are unique."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:  # pragma: no cover - not Linux
        processes = ""
    return hashlib.sha256(f"{socket.gethostname()} {processes}".encode()).hexdigest()[:12]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
