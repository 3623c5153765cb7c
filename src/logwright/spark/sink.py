"""Journals as sinks on Spark, for tables and for streams: each batch whole or not at all, and exactly once.

    df.write.format("sej").option("shardBit", 4).mode("append").save("out")
    df.write.format("kestrel").option("queue", "orders").mode("append").save("queues")
    df.write.format("versioned").option("store", "settings").mode("append").save("stores")
    df.writeStream.format("sej").option("checkpointLocation", "progress").start("out")

Tasks stage their records in the target, where nobody sees them, and the driver publishes what the successful attempts
have staged; what a failed, repeated or speculated attempt has left is no part of it. A batch of a streaming query is
published under the query's id and the batch's number: when Spark does it again after a restart, nothing is written
twice. What a crash has left is put in place, or removed, by the next one who writes there. The target must be a
directory that the driver and all executors share: on one machine any, on several ones a shared file system.

Options of every format:
    txnAppId, txnVersion    a name and a number for a table that is written: what has been published under this name and
                            this number, or a higher one, is not written again. A stream has its own

Options of sej:
    shardBit            messages go to 2^shardBit journals by their key; 0 by default, which is one journal
    prefix              the beginning of the shards' names; empty by default
    segmentSize         how large a segment grows; 1g by default
    checksums           keep checksums beside the segments; false by default

Options of kestrel:
    queue               the queue of items that name none in a column `queue`

Options of versioned, which writes new stores only, and tables only:
    store               the store of changes that name none in a column `store`

How it is done is in `core.publish.staging`, for every format the same; see `Target` for what a format adds.
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

PATIENCE_SECONDS: Final = 60
"""How long another job that is publishing into the same target is waited for."""
_STALE_SECONDS: Final = 24 * 3600
"""After so long a run is dead, wherever it was: no batch takes a day."""
_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark tells its tasks by this property which query they work for; the writer of a stream is not told."""
_OPEN_FILES: Final = 16_384


class TaskDone(WriterCommitMessage):
    """What a task has staged, and for which streaming query."""

    def __init__(self, staged: Any, query: str | None) -> None:
        self.staged = staged
        self.query = query


class _Sink:
    """What both kinds of writers share. They are pickled, so they hold names and numbers only."""

    disk: Disk = REAL_DISK

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        if format is None:
            raise WrongUse(f"say which format to write: {' or '.join(_written_formats())}")
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
        """Put in place what the tasks have staged; under a name and a number only once."""
        if not done:
            return
        batch = None if name is None else Batch(name, number)
        (run,) = {one.staged.run for one in done}
        staged = [one.staged for one in done]
        _allow_open_files()
        staging.publish(self.root, run, staged, self.target, batch, disk=self.disk, patience_seconds=PATIENCE_SECONDS)

    def give_up(self, done: Sequence[TaskDone]) -> None:
        runs = {self.run, *(one.staged.run for one in done)}
        with contextlib.suppress(LogwrightError):  # what stays is removed by the next writer
            staging.discard(self.root, runs, disk=self.disk, patience_seconds=PATIENCE_SECONDS)

    def clean_up(self) -> None:
        """Put in place or remove what crashes have left."""
        staging.recover_staging(self.root, is_dead=is_dead, disk=self.disk, patience_seconds=PATIENCE_SECONDS)


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    """The messages of the tasks that have succeeded: Spark has None in the places of the others."""
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
    """Appends the batches of a streaming query to a journal. Spark makes a new one for each, and one more to commit."""

    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        super().__init__(schema, options, format, overwrite)
        if self.target.no_streams is not None:
            raise WrongUse(self.target.no_streams)
        if _transaction_of(options)[0] is not None:
            raise WrongUse("txnAppId is for tables: a stream is written exactly once by its checkpoint")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish what the tasks have staged, unless this batch has been."""
        done = _done(messages)
        if done:
            (query,) = {one.query for one in done}
            if query is None:
                raise WrongUse("Spark does not say which query this is, and so it cannot be written exactly once")
            self.publish(done, query, batchId)
        with contextlib.suppress(LogwrightError):  # the batch is in place: what others have left can wait
            self.clean_up()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave nothing."""
        self.give_up(_done(messages))


# --- options --------------------------------------------------------------------------------------------------------


def _target_of(format: str) -> type[Target]:
    kind = find_format(format).target
    if kind is None:
        raise WrongUse(f"journals of the format {format} are not written by Spark")
    return kind


def _written_formats() -> list[str]:
    return [name for name, format in FORMATS.items() if format.target is not None]


def _directory_of(options: Mapping[str, str]) -> Path:
    """The target, as executors with another working directory find it too."""
    location = options.get("path")
    if not location:
        raise WrongUse("say where to write: .save(PATH), or .start(PATH)")
    disk, path = locate(location)
    if not is_local(disk):
        raise WrongUse(f"{location}: journals are written to a file system of this machine, not to a remote store")
    return path.absolute()


def _fields(options: Mapping[str, str], known: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The options that are set, by the names of the fields that they stand for. `options` are folded."""
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
            raise WrongUse(f"option {name}: {text!r} is no number")
    return found


def _transaction_of(options: Mapping[str, str]) -> tuple[str | None, int]:
    """The name and the number that a table is written under; without a name it is as often as it is asked for."""
    name, number = options.get("txnappid"), options.get("txnversion")
    if (name is None) != (number is None):
        raise WrongUse("say both txnAppId and txnVersion, or neither")
    if number is not None and not number.strip().isdecimal():
        raise WrongUse(f"option txnVersion: {number!r} is no number")
    return name, int(number or 0)


def _allow_open_files() -> None:
    """Let this process open as many files as it may: there can be a thousand shards, or more queues or stores."""
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
    """A name for what one writer stages: when and where it began, and which process stands for its driver.

    That is the parent of this one: Spark's daemon, or its JVM. It lives for as long as the driver does.
    """
    return f"{time.time_ns():016x}-{_machine()}-{os.getppid()}-{secrets.token_hex(4)}"


def is_dead(run: str) -> bool:
    """Whether a run can publish no more: its driver was on this machine and is gone, or it began too long ago."""
    try:
        began, machine, process, _ = run.split("-")
        if time.time_ns() - int(began, 16) > _STALE_SECONDS * 1_000_000_000:
            return True
        return machine == _machine() and not _is_alive(int(process))
    except ValueError:
        return False


def _machine() -> str:
    """Which machine, or container, this is: where a number of a process means the same."""
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
