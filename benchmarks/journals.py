"""The journals that are read: one of about a gibibyte, and its first messages in the formats that peers read."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import MESSAGE_BYTES, VALUE, Plan
from logwright.sej.bytes.layout import SEGMENT_DIRECTORY, segment_name
from logwright.sej.files.writer import Writer

BATCH_ROWS = 100_000
FIRST_TIME = 1_700_000_000_000_000_000
SPACING_NS = 1000
MESSAGE_TABLE = "create table m (offset integer primary key, timestamp integer, type integer, key blob, value blob)"


def batch_of(first: int, rows: int = BATCH_ROWS) -> pa.RecordBatch:
    """Messages with different keys, a microsecond apart."""
    return pa.record_batch(
        {
            "timestamp": pa.array([time_of(offset) for offset in range(first, first + rows)]),
            "key": pa.array([b"key-%09d" % number for number in range(first, first + rows)]),
            "value": pa.array([VALUE] * rows),
        }
    )


def large_journal(plan: Plan) -> tuple[Path, int]:
    """A journal with one segment of a gibibyte (64 MiB if quick), made once per run; its directory and its messages."""
    directory = plan.place / "large"
    rows = plan.amount(1 << 30, 64 << 20) // MESSAGE_BYTES + 1
    if not directory.exists():
        plan.log(f"writing a journal of {rows * MESSAGE_BYTES / 2**20:.0f} MiB")
        with Writer(directory, segment_size=1 << 40) as writer:
            for first in range(0, rows, BATCH_ROWS):
                writer.append_batch(batch_of(first, min(BATCH_ROWS, rows - first)))
    warm(directory)
    return directory, rows


def segment_of(directory: Path) -> Path:
    """The only segment of a journal."""
    return directory / SEGMENT_DIRECTORY / segment_name(0)


def warm(directory: Path) -> None:
    """Read a segment once, so that it is in the page cache."""
    buffer = bytearray(1 << 20)
    with segment_of(directory).open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def time_of(offset: int) -> int:
    """The timestamp of a message of the large journal."""
    return FIRST_TIME + offset * SPACING_NS


@contextlib.contextmanager
def sqlite_of(place: Path, rows: int) -> Iterator[sqlite3.Connection]:
    """The same messages in a table of SQLite."""
    path = place / "messages.sqlite"
    connection = sqlite3.connect(path)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = off")
        connection.execute(MESSAGE_TABLE)
        connection.executemany("insert into m values (?, ?, 0, ?, ?)", _rows(rows))
        connection.commit()
        yield connection
    finally:
        connection.close()
        for name in ("", "-wal", "-shm"):
            Path(f"{path}{name}").unlink(missing_ok=True)


def _rows(rows: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    for offset in range(rows):
        yield offset, time.time_ns(), b"key-%09d" % offset, VALUE
