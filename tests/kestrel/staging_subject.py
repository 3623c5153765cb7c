"""kestrel in the contract tests of staging: queues, which get a rotated file for each batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from logwright.core.io.disk import Disk
from logwright.kestrel import Queue, Reader, Writer
from logwright.kestrel.files.files import list_queues
from logwright.kestrel.tables.staging import QueuesTarget
from tests.contract.staging import ROOT, Contents, Row, StagingSubject
from tests.support.simulated_disk import SimulatedDisk


class KestrelStaging(StagingSubject):
    """Items for two queues: data, added and expires in milliseconds. In rows, the queue precedes them."""

    name = "kestrel"
    target = QueuesTarget()
    staged_syncs = ("000000.000", "000000.001")
    strangers = ("dogs", "new")
    wrong_manifests: ClassVar = [
        lambda found: found | {"target": {"queue": "../x"}},
        lambda found: found | {"parts": [found["parts"][0] | {"name": "x\ud800"}]},
    ]

    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        dice = random.Random(f"{seed} {batch}" if batch else seed)
        return [
            (
                dice.choice(("cars", "cats+tom")),
                b"%d/%d/%d " % (batch, seed, number) + dice.randbytes(dice.randrange(400)),
                1_700_000_000_000 + 1000 * seed + number,
                dice.choice((None, 1_900_000_000_000 + number)),
            )
            for number in range(count)
        ]

    def as_batch(self, rows: list[Row]) -> pa.RecordBatch:
        queues, data, added, expires = zip(*rows, strict=True)
        moment = pa.timestamp("ms", tz="UTC")
        arrays = [pa.array(queues), pa.array(data, pa.binary()), pa.array(added, moment), pa.array(expires, moment)]
        return pa.RecordBatch.from_arrays(arrays, ["queue", "data", "added", "expires"])

    def before(self) -> Contents:
        items = [(b"reserved", 2, None), (b"waits", 3, None), (b"newest", 5, 7)]
        return {"cars": items, "dogs": [(b"rex", 4, None)]}

    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        found = {name: list(items) for name, items in before.items()}
        for rows in batches:
            for queue, *item in rows:
                found.setdefault(queue, []).append(tuple(item))
        return dict(sorted(found.items()))

    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        """The contents of every queue, reserved items first."""
        found: Contents = {}
        for name in list_queues(disk, root):
            reader = Reader(root / name, disk=disk)
            report = reader.verify()
            assert report.sound, report.problems
            assert [problem.kind for problem in report.anomalies if problem.kind != "temporary_file"] == []
            state = reader.queue_state()
            if state.open or state.items:
                found[name] = [(item.data, item.added, item.expires) for item in (*state.open, *state.items)]
        return found

    def make_journals(self, disk: SimulatedDisk) -> None:
        """Two queues. The first has a rotated file and a newest one, and one of its items is reserved."""
        with Writer(ROOT / "cars", disk=disk) as writer:
            for added, data in enumerate((b"done", b"reserved", b"waits"), 1):
                writer.addx(data, added=added)
            writer.remove()
            writer.rotate()
            writer.remove_tentative()
            writer.addx(b"newest", added=5, expires=7)
        with Writer(ROOT / "dogs", disk=disk) as writer:
            writer.addx(b"rex", added=4)

    @property
    def writers(self) -> list[Callable[[Disk, str, Any], None]]:
        def write(disk: Disk, part: str, record: Any) -> None:
            with Writer(ROOT / part, disk=disk) as writer:
                writer.addx(record[0], added=record[1], expires=record[2])

        def put(disk: Disk, part: str, record: Any) -> None:
            with Queue(ROOT, part, background=False, disk=disk) as queue:
                queue.put(record[0])

        return [write, put]

    def open_writer(self, disk: Disk, part: str) -> Queue:
        return Queue(ROOT, part, background=False, disk=disk)

    @property
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        return [
            ("cats+tom", lambda disk: Queue(ROOT, "cats+tom", disk=disk)),
            ("cars", lambda disk: Writer(ROOT / "cars", disk=disk)),
        ]

    def bystander(self, disk: Disk) -> Queue:
        return Queue(ROOT, "dogs", disk=disk)

    def lock_path(self, part: str) -> Path:
        return ROOT / ".logwright" / f"{part}.lck"

    def target_of(self, part: str) -> QueuesTarget:
        return QueuesTarget(part)
