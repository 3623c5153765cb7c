"""ShardedWriter: appends each message to a shard by its hash.

    with ShardedWriter("events", prefix="orders", bit=3, sync="always") as writer:
        writer.append(b"value", key=b"customer 42")        # always in the same one of 8 shards

Every shard is a journal with a writer of its own: see `writer.py` for what an append guarantees, and `shard.py` for the
names and the default hash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import NONE, IntervalSync, SyncLike, parse_sync
from ...core.write.closing import Closing, is_failure
from ...errors import Closed, WrongUse
from ..bytes import kernel
from ..bytes.layout import DEFAULT_SEGMENT_BYTES, NO_TIMESTAMP, check_fields
from ..bytes.records import NOW, Message, Now
from ..files.shard import check_bits, find_shards, shard_name, stable_hash
from ..files.writer import BUFFER_BYTES, Writer

if TYPE_CHECKING:
    from ...core.bytes.buffers import Buffer
    from ..bytes.codec import Columns

_LEAST_BUFFER_BYTES: Final = 16 * 1024


def raise_first(errors: list[BaseException]) -> None:
    """Raise the first of some errors, if there are any, with a note of each of the others."""
    if not errors:
        return
    first, *others = errors
    for other in others:
        first.add_note(f"and then: {other}")
    raise first


def refuse_other_bits(disk: Disk, root: Path, prefix: str, bit: int) -> None:
    """Raise `WrongUse` when a root has shards of this prefix with another bit."""
    if not disk.is_directory(root):
        return
    there = find_shards(disk, root, prefix)
    check_bits(root, there)
    if there and there[0].bit != bit and not there[0].name:
        raise WrongUse(f"{root} is a journal without shards, and cannot get shards of bit {bit}")
    if there and there[0].bit != bit:
        raise WrongUse(f"{root} has shards of bit {there[0].bit} ({there[0].name}), not of bit {bit}")


def split_batch(batch: Any, indexes_of: Callable[[list[Columns]], list[int]]) -> dict[int, list[Columns]]:
    """The rows of an Arrow record batch or table by the index of their shard, all checked, in their order."""
    from ..tables.columns import from_arrow

    rows_of: dict[int, list[int]] = {}
    for row, index in enumerate(indexes_of(from_arrow(batch))):
        rows_of.setdefault(index, []).append(row)
    parts_of: dict[int, list[Columns]] = {}
    for index, rows in sorted(rows_of.items()):
        parts_of[index] = from_arrow(batch if len(rows_of) == 1 else batch.take(rows))
        for part in parts_of[index]:
            kernel.check_columns(part)
    return parts_of


def stable_indexes(parts: list[Columns], bit: int) -> list[int]:
    """The index of the shard of every row, by the default hash."""
    if bit == 0:
        return [0] * sum(part.count for part in parts)
    mask = (1 << bit) - 1
    found = []
    for part in parts:
        keys = _slices(part.key_ends, part.keys, part.count)
        values = _slices(part.value_ends, part.values, part.count)
        found += [stable_hash(key, value) & mask for key, value in zip(keys, values, strict=True)]
    return found


class ShardedWriter(Closing):
    """Appends messages to the shards of a root, each to a shard by its hash.

    `hash` is given a message (whose offset is not known yet, and 0) and returns a number; None is `stable_hash`. The
    other options are those of `Writer` and hold for each shard. Safe to use from many threads.

    A shard is opened, and created if it is missing, by its first message; from then on this writer holds its
    lock and three or four open files. `flush`, `sync` and `close` reach every open shard even if one of them fails;
    the first failure is raised afterwards. A shard that failed accepts nothing more; the others continue.
    """

    format = "sej"

    def __init__(
        self,
        root: Path | str,
        prefix: str = "",
        bit: int = 0,
        hash: Callable[[Message], int] | None = None,
        *,
        sync: SyncLike = "none",
        segment_size: int = DEFAULT_SEGMENT_BYTES,
        checksums: bool = False,
        buffer_bytes: int | None = None,
        disk: Disk = REAL_DISK,
    ) -> None:
        shard_name(prefix, bit, 0)  # raises if they are invalid
        self.root = Path(root)
        self.prefix = prefix
        self.bit = bit
        self.policy = parse_sync(sync)
        self._hash = hash
        self._mask = (1 << bit) - 1
        refuse_other_bits(disk, self.root, prefix, bit)
        if buffer_bytes is None:
            buffer_bytes = max(_LEAST_BUFFER_BYTES, BUFFER_BYTES >> bit)
        by_interval = self.policy.name == "interval"
        self._options: dict[str, Any] = {
            "sync": NONE if by_interval else self.policy,
            "segment_size": segment_size,
            "checksums": checksums,
            "buffer_bytes": buffer_bytes,
            "disk": disk,
        }
        self._writers: list[Writer | None] = [None] * (1 << bit)
        self._opening = threading.Lock()
        self._closed = False
        self._unraised: list[BaseException] = []
        # One thread for all shards: there may be a thousand.
        self._interval = IntervalSync(self.policy.interval_ms, self._sync_in_background) if by_interval else None

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, value: Buffer, key: Buffer = b"", type: int = 0, timestamp: int | Now | None = NOW) -> int:
        """Add one message to its shard; its offset there. `shard_of` returns its shard."""
        if self._hash is not None and isinstance(timestamp, Now):
            timestamp = time.time_ns()
        index = self._index_of(value, key, type, timestamp)
        writer = self._writers[index]
        if writer is None:
            check_fields(bytes(value), bytes(key), type, None if isinstance(timestamp, Now) else timestamp)
            writer = self._open(index)
        return writer.append(value, key, type, timestamp)

    def shard_of(self, value: Buffer, key: Buffer = b"", type: int = 0, timestamp: int | Now | None = NOW) -> str:
        """The directory name of the shard that such a message goes to."""
        return shard_name(self.prefix, self.bit, self._index_of(value, key, type, timestamp))

    def _index_of(self, value: Buffer, key: Buffer, type: int, timestamp: int | Now | None) -> int:
        if self._hash is None:
            return stable_hash(key, value) & self._mask
        when = time.time_ns() if isinstance(timestamp, Now) else timestamp
        return self._hash(Message(0, when, type, bytes(key), bytes(value))) & self._mask

    def append_batch(self, batch: Any) -> dict[str, int]:
        """Append the rows of an Arrow record batch or table, each to its shard; the first offset in each, by name.

        Everything is checked before anything is written. The order of rows within a shard is that of the batch.
        """
        parts_of = split_batch(batch, self._indexes)
        writers = {index: self._open(index) for index in parts_of}
        found: dict[str, int] = {}
        try:
            for index, parts in parts_of.items():
                found[shard_name(self.prefix, self.bit, index)] = writers[index].append_columns(parts)
        except BaseException as error:
            if not is_failure(error):  # an interrupt: some shards have their rows and others do not
                for writer in writers.values():
                    writer._poison(error, loses=True)
            raise
        return found

    def _indexes(self, parts: list[Columns]) -> list[int]:
        """The shard's index of every row."""
        if self._hash is None:
            return stable_indexes(parts, self.bit)
        found = []
        now = time.time_ns()
        for part in parts:
            keys = _slices(part.key_ends, part.keys, part.count)
            values = _slices(part.value_ends, part.values, part.count)
            types = bytes(part.count) if part.types is None else bytes(memoryview(part.types).cast("B"))
            stamps = [now] * part.count
            if part.timestamps is not None:
                stamps = memoryview(part.timestamps).cast("B").cast("q")[: part.count].tolist()
            for row, key in enumerate(keys):
                when = None if stamps[row] == NO_TIMESTAMP else stamps[row]
                found.append(self._hash(Message(0, when, types[row], key, values[row])) & self._mask)
        return found

    def _open(self, index: int) -> Writer:
        with self._opening:
            if self._closed:
                raise Closed(f"{self.root}: this writer is closed")
            writer = self._writers[index]
            if writer is None:
                writer = Writer(self.root / shard_name(self.prefix, self.bit, index), **self._options)
                self._writers[index] = writer
            return writer

    # --- all shards at once -----------------------------------------------------------------------------------------

    @property
    def writers(self) -> dict[str, Writer]:
        """The writers of the shards that are open, by directory name."""
        return {
            shard_name(self.prefix, self.bit, index): writer
            for index, writer in enumerate(self._writers)
            if writer is not None
        }

    def flush(self) -> None:
        """Write everything appended so far to the operating system."""
        self._on_each(Writer.flush)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._on_each(Writer.sync)

    def _on_each(self, action: Callable[[Writer], None]) -> None:
        if self._closed:
            raise Closed(f"{self.root}: this writer is closed")
        errors: list[BaseException] = []
        self._try_each(action, errors)
        raise_first(errors)

    def _try_each(self, action: Callable[[Writer], None], errors: list[BaseException]) -> None:
        """Do something with each open shard; what fails is added to `errors`, and an interrupt is raised."""
        for writer in list(self._writers):
            try:
                if writer is not None:
                    action(writer)
            except Exception as error:
                errors.append(error)

    def _sync_in_background(self) -> None:
        """Never raises: the failure of one shard must not end the syncing of the others. `close` raises it."""
        self._try_each(lambda writer: None if writer.refusing else writer.sync(), self._unraised)

    def close(self) -> None:
        """Flush, sync and release every shard. A second call does nothing, unless the first one was interrupted."""
        with self._opening:
            self._closed = True
        if self._interval is not None:
            self._interval.close()
        self._try_each(Writer.close, self._unraised)
        errors, self._unraised = self._unraised, []
        raise_first(errors)


def _slices(ends: Buffer | None, data: Buffer | None, count: int) -> list[bytes]:
    """The keys or the values of columns, one by one."""
    if ends is None or data is None:
        return [b""] * count
    bounds = memoryview(ends).cast("B").cast("i")[: count + 1].tolist()
    first = bounds[0]  # a slice of a large array has all of its bytes
    joined = bytes(memoryview(data).cast("B")[first : bounds[-1]])
    return [joined[start - first : stop - first] for start, stop in pairwise(bounds)]
