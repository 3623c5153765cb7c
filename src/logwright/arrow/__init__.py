"""Journals as Arrow data, and Arrow data as journals, for every format.

    arrow.to_arrow("orders")                          a table of all messages
    arrow.read("orders", ["offset", "value"])         a stream of record batches, which DuckDB and others take
    arrow.to_parquet("orders", "orders.parquet")      streamed, in bounded memory, all or nothing
    arrow.items("queues/jobs")                        what a queue holds now, a row for each item
    arrow.append(writer, table)                       and back

`read`, `batches` and `to_parquet` keep at most two batches in memory, for a journal of any size. Columns that are not
requested are not decoded. The columns of a format are its `Columns`: see `core/read/columns.py`.

`mode` says what happens at damage, as in every reader: `failfast` raises, the others continue after it. In `permissive`
each `Damage` is passed to `on_damage`, and is in the `damages` of `Batches`. A torn tail ends the reading and raises
nothing; it is in `torn_tails`.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.arrow.batches import Batches, Source, batches, items, read, to_arrow
from ..core.bytes.outcome import Damage
from ..core.format import BatchWriter, find_format
from ..core.io.disk import REAL_DISK, Disk, File, write_all
from ..core.read.columns import Columns
from ..core.read.report import Progress
from ..core.repair.losses import Loss, inherited
from ..errors import LogwrightError, UnknownFormat, WrongUse

__all__ = [
    "Batches",
    "Converted",
    "append",
    "as_messages",
    "batches",
    "from_parquet",
    "items",
    "left_out",
    "read",
    "schema",
    "to_arrow",
    "to_parquet",
]

ROW_GROUP_BYTES: Final = 32 << 20
_PARQUET_READ_BYTES: Final = 4 << 20
_LOSSES_KEY: Final = "logwright.losses"
"""The key of the account of losses in the metadata of a Parquet file."""
_NEVER_REPEATING: Final = ("offset", "timestamp", "value", "position", "size", "added", "data")


def schema(format: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of a format, or of some of its columns."""
    return find_format(format).columns.schema(columns)


# --- writing ----------------------------------------------------------------------------------------------------------


def append(writer: BatchWriter, data: Any) -> int:
    """Append Arrow data of any kind to a journal, batch by batch; the number of records.

    `data` is a record batch, a table, a reader of batches, or any object with the Arrow PyCapsule interface. Only one
    batch of a reader is in memory at a time. Each batch is checked as a whole before it is written.
    """
    rows = 0
    for batch in find_format(writer.format).columns.record_batches(data):
        writer.append_batch(batch)
        rows += batch.num_rows
    return rows


def as_messages(format: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a format's columns as every other format takes it; see `Columns.as_messages`."""
    return find_format(format).columns.as_messages(batch)


def left_out(format: str, batch: pa.RecordBatch) -> Mapping[str, int]:
    """Fields that records of a format cannot hold, each with the number of messages that have it."""
    return find_format(format).columns.left_out(batch)


# --- Parquet ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Converted:
    """The result of a conversion: rows and bytes written, the damage that was left out, and torn tails.

    `losses` are the known losses of the source.
    """

    rows: int
    bytes: int
    damages: list[Damage] = field(default_factory=list)
    torn_tails: list[Damage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


class _Stream(io.RawIOBase):
    """A file of a `Disk` for Arrow, with a current position."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_into(self._position, memoryview(buffer).cast("B"))
        self._position += count
        return count

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        write_all(self._file, self._position, view)
        self._position += len(view)
        return len(view)


def to_parquet(
    source: Source,
    destination: Path | str,
    columns: Sequence[str] | None = None,
    *,
    waiting: bool = False,
    compression: str = "zstd",
    row_group_bytes: int = ROW_GROUP_BYTES,
    overwrite: bool = False,
    disk: Disk = REAL_DISK,
    **options: Any,
) -> Converted:
    """Write a journal as a Parquet file, streamed; the other options are those of `batches`.

    With `waiting` only the items that wait in a queue are written, and the other options are those of `items`.

    The file gets its name once all of it is on the disk: a crash leaves at most `.NAME.partial`, which the next attempt
    replaces. An existing file is not replaced, unless `overwrite` is set.
    """
    target = Path(destination)
    if disk.exists(target) and not overwrite:
        raise WrongUse(f"{target} already exists")
    if waiting:
        if columns is not None:
            raise WrongUse("the columns of waiting items cannot be chosen")
        found = items(source, disk=disk, **options)
    else:
        found = batches(source, columns, batch_bytes=row_group_bytes, disk=disk, **options)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        size = _write_parquet(disk, temporary, found, compression)
    except BaseException:
        found.close()
        with contextlib.suppress(LogwrightError):
            disk.remove(temporary)
        raise
    disk.rename(temporary, target)
    disk.sync_directory(target.parent)
    return Converted(found.rows, size, found.damages, found.torn_tails, found.losses)


def _write_parquet(disk: Disk, path: Path, found: Batches, compression: str) -> int:
    disk.remove(path)
    with closing(disk.open(path, "create")) as file:
        stream = _Stream(file)
        # A dictionary is useful for items that repeat; for values it would only cost time.
        names = [name for name in found.schema.names if name not in _NEVER_REPEATING]
        with pq.ParquetWriter(stream, found.schema, compression=compression, use_dictionary=names) as writer:
            for batch in found:
                writer.write_batch(batch)
            losses = inherited(found.losses, found.damages, same_numbers=True)
            if losses:
                writer.add_key_value_metadata({_LOSSES_KEY: json.dumps([loss.as_json() for loss in losses])})
        file.sync()
        return stream.tell()


def from_parquet(
    source: Path | str,
    target: BatchWriter | Path | str,
    *,
    format: str = "sej",
    progress: Progress | None = None,
    disk: Disk = REAL_DISK,
    **options: Any,
) -> int:
    """Append the rows of a Parquet file to a journal, streamed; the number of rows.

    `target` is a writer, or the path of a journal of `format`, which is created if there is none; then `options` are
    those of its writer, and everything is synced before this returns. Records get new numbers. For stores the path is
    that of their directory, and rows that name no store go to one of the same name.
    """
    if isinstance(target, str | Path):
        chosen = find_format(format)
        _check_parquet(disk, Path(source), chosen.columns)  # before a journal is created in vain
        with chosen.open_writer(Path(target), disk=disk, **options) as writer:
            return from_parquet(source, writer, progress=progress, disk=disk)
    if options:
        raise WrongUse(f"the writer is already open, so it cannot have these options: {', '.join(options)}")
    rows = 0
    with closing(disk.open(Path(source), "read")) as file:
        for batch, done, total in _parquet_batches(file):
            rows += append(target, batch)
            if progress is not None:
                progress(done, total)
    return rows


def parquet_losses(source: Path | str, *, disk: Disk = REAL_DISK) -> list[Loss]:
    """The known losses of the journal that a Parquet file was made from; none for a file of another program."""
    file = disk.open(Path(source), "read")
    try:
        found = (pq.ParquetFile(_Stream(file)).metadata.metadata or {}).get(_LOSSES_KEY.encode())
        return [] if found is None else [Loss.from_json(item) for item in json.loads(found)]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownFormat(f"{file.path} cannot be read as Parquet: {error}") from None
    finally:
        file.close()


def _check_parquet(disk: Disk, path: Path, columns: Columns) -> None:
    """Raise an error if the footer or the first rows of a Parquet file are not valid."""
    with closing(disk.open(path, "read")) as file:
        for batch, _, _ in _parquet_batches(file):
            columns.check(batch)
            break


def _parquet_batches(file: File) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """The batches of a Parquet file, each with the bytes done and the total bytes."""
    try:
        parquet = pq.ParquetFile(_Stream(file), buffer_size=_PARQUET_READ_BYTES, pre_buffer=False)
        groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
        total, done = sum(group.total_byte_size for group in groups), 0
        for number, group in enumerate(groups):
            rows = max(1, group.num_rows * _PARQUET_READ_BYTES // max(1, group.total_byte_size))
            for batch in parquet.iter_batches(rows, [number], use_threads=False):
                done += group.total_byte_size * batch.num_rows // max(1, group.num_rows)
                yield batch, done, total
    except LogwrightError:
        raise
    except (pa.ArrowException, OSError) as error:  # Arrow raises OSError for a page that cannot be decompressed
        raise UnknownFormat(f"{file.path} cannot be read as Parquet: {error}") from None
