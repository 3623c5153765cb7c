"""appendfile in the contract tests of staging: one journal, which gets a segment for each batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from logwright.appendfile import Reader, Writer
from logwright.appendfile.bytes.records import Data
from logwright.appendfile.tables.staging import JournalTarget
from logwright.core.io.disk import Disk
from logwright.errors import NotFound
from tests.contract.staging import ROOT, Contents, Row, StagingSubject
from tests.support.simulated_disk import SimulatedDisk


class AppendfileStaging(StagingSubject):
    """Data for the journal, which is the root itself."""

    name = "appendfile"
    target = JournalTarget()
    renames = False
    staged_syncs = ("000000.000",)
    strangers = ()
    wrong_manifests: ClassVar = [lambda found: found | {"parts": [found["parts"][0] | {"name": "part"}]}]

    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        dice = random.Random(f"{seed} {batch}" if batch else seed)
        return [
            (b"%d/%d/%d " % (batch, seed, number) + dice.randbytes(dice.randrange(400)),) for number in range(count)
        ]

    def as_batch(self, rows: list[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([row[0] for row in rows], pa.binary())], ["data"])

    def before(self) -> Contents:
        return {"": [b"one", b"two", b"three"]}

    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        found = [*before.get("", []), *(row[0] for rows in batches for row in rows)]
        return {"": found} if found else {}

    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        try:
            reader = Reader(root, disk=disk)
        except NotFound:
            return {}
        report = reader.verify()
        assert report.sound, report.problems
        assert [problem.kind for problem in report.anomalies if problem.kind != "recovery"] == []
        found = [record.data for record in reader if isinstance(record, Data)]
        return {"": found} if found else {}

    def make_journals(self, disk: SimulatedDisk) -> None:
        with Writer(ROOT, disk=disk) as writer:
            for record in self.before()[""]:
                writer.append(record)
            writer.register_checkpoint()

    @property
    def writers(self) -> list[Callable[[Disk, str, Any], None]]:
        def write(disk: Disk, part: str, record: Any) -> None:
            with Writer(ROOT, disk=disk) as writer:
                writer.append(record)
                writer.register_checkpoint()

        def recover(disk: Disk, part: str, record: Any) -> None:
            writer = Writer(ROOT, disk=disk, recovering=True)
            with writer:
                writer.append(record)
                writer.register_checkpoint()

        return [write, recover]

    def open_writer(self, disk: Disk, part: str) -> Writer:
        return Writer(ROOT, disk=disk)

    @property
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        return [("", lambda disk: Writer(ROOT, disk=disk)), ("", lambda disk: Writer(ROOT, disk=disk, recovering=True))]

    def lock_path(self, part: str) -> Path:
        return ROOT / ".logwright" / "appendfile.lck"
