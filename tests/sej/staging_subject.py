"""sej in the contract tests of staging: a root of two shards, which are appended to."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from logwright.core.io.disk import Disk
from logwright.sej import Message, Reader, ShardedWriter, Writer, find_shards
from logwright.sej.tables.staging import ShardsTarget
from tests.contract.staging import ROOT, Contents, Row, StagingSubject
from tests.support.simulated_disk import SimulatedDisk


def row_of(message: Message) -> Row:
    """Value, key, type and timestamp."""
    return message.value, message.key, message.type, message.timestamp


class SejStaging(StagingSubject):
    """Messages for the shards of a root."""

    name = "sej"
    target = ShardsTarget("web", 1, segment_size=2000)
    most_states = 24
    killed_stride = 9
    killed_states = 2
    renames = False
    staged_syncs: ClassVar = tuple(f"00000{order}.00{index}" for order in (0, 1) for index in (0, 1))
    strangers = ("elsewhere", "web.2.000", "not a shard")

    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        dice = random.Random(f"{seed} {batch}" if batch else seed)
        return [
            (
                dice.randbytes(dice.randrange(600)),
                b"key %d" % dice.randrange(9),
                dice.randrange(256),
                1000 * seed + number,
            )
            for number in range(count)
        ]

    def as_batch(self, rows: list[Row]) -> pa.RecordBatch:
        values, keys, types, timestamps = zip(*rows, strict=True)
        arrays = [pa.array(values, pa.binary()), pa.array(keys, pa.binary()), pa.array(types), pa.array(timestamps)]
        return pa.RecordBatch.from_arrays(arrays, ["value", "key", "type", "timestamp"])

    def before(self) -> Contents:
        return self.placed({}, self.rows(1, 12))

    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        return placed(before, *batches, target=self.target)

    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        """The contents of every shard; its offsets must count up from 0."""
        found: Contents = {}
        for shard in find_shards(disk, root):
            messages = list(Reader(shard.path, disk=disk)) if disk.list_directory(shard.path / "jnl") else []
            assert [message.offset for message in messages] == list(range(len(messages)))
            if messages:
                found[shard.name] = [row_of(message) for message in messages]
        return found

    def make_journals(self, disk: SimulatedDisk) -> None:
        with ShardedWriter(ROOT, "web", 1, segment_size=2000, disk=disk) as writer:
            for row in self.rows(1, 12):
                writer.append(*row)

    @property
    def writers(self) -> list[Callable[[Disk, str, Any], None]]:
        def write(disk: Disk, part: str, record: Any) -> None:
            with Writer(ROOT / part, disk=disk, segment_size=2000) as writer:
                writer.append(*record)

        return [write]

    def open_writer(self, disk: Disk, part: str) -> Writer:
        return Writer(ROOT / part, disk=disk)

    @property
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        second = list(self.alone)[1]
        return [(second, lambda disk: Writer(ROOT / second, disk=disk))]

    def lock_path(self, part: str) -> Path:
        return ROOT / part / "jnl.lck"


def placed(before: Contents, *runs: list[Row], target: ShardsTarget) -> Contents:
    """The expected messages of a sharded writer, after the existing ones."""
    found = {name: list(rows) for name, rows in before.items()}
    writer = ShardedWriter("nowhere", target.prefix, target.bit)
    for rows in runs:
        for row in rows:
            found.setdefault(writer.shard_of(*row), []).append(row)
    writer.close()
    return dict(sorted(found.items()))
