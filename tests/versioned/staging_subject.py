"""versioned in the contract tests of staging: new stores, beside an existing one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from logwright.core.io.disk import Disk, make_directories
from logwright.core.io.lock import Lock
from logwright.versioned import Reader, VersionedKVStore
from logwright.versioned.files.files import active_name, list_stores
from logwright.versioned.tables.staging import StoresTarget
from tests.contract.staging import ROOT, Contents, Row, StagingSubject
from tests.support.simulated_disk import SimulatedDisk
from tests.versioned.samples import START
from tests.versioned.stores import Clock

CAPACITY = 2048
"""The capacity of the stores of these tests: a simulated disk remembers all of it for every state."""


class VersionedStaging(StagingSubject):
    """Changes of two stores for each batch: key, JSON and time. In rows, the store precedes them."""

    name = "versioned"
    target = StoresTarget()
    killed_stride = 7
    killed_states = 3
    staged_syncs = ("000000.000", "000000.001")
    strangers = ("dogs", "new")
    wrong_manifests: ClassVar = [
        lambda found: found | {"target": {"store": "../x"}},
        lambda found: found | {"parts": [found["parts"][0] | {"name": "x\ud800"}]},
    ]

    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        """Times increase and decrease, and some are equal, within a task and across two."""
        dice = random.Random(f"{seed} {batch}" if batch else seed)
        return [
            (
                (f"cars {batch}", f"cats {batch}")[number % 2],
                f"key {dice.randrange(3)}",
                None if dice.random() < 0.2 else json.dumps({"seed": seed, "text": "ü" * dice.randrange(200)}),
                START + dice.randrange(8),
            )
            for number in range(count)
        ]

    def as_batch(self, rows: list[Row]) -> pa.RecordBatch:
        stores, keys, values, times = zip(*rows, strict=True)
        arrays = [pa.array(stores), pa.array(keys), pa.array(values, pa.string()), pa.array(times, pa.int64())]
        return pa.RecordBatch.from_arrays(arrays, ["store", "k", "o", "t"])

    def before(self) -> Contents:
        return {"dogs": [("rex", {"age": 4}, START + 1), ("rex", {"age": 5}, START + 3)]}

    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        found = {name: list(changes) for name, changes in before.items()}
        for store, key, value, t in (row for rows in batches for row in rows):
            found.setdefault(store, []).append((key, None if value is None else json.loads(value), t))
        for changes in found.values():
            changes.sort(key=lambda change: change[2])
        return dict(sorted(found.items()))

    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        """Every change of every store."""
        found: Contents = {}
        for name in list_stores(disk, root):
            reader = Reader(root / active_name(name), disk=disk)
            report = reader.verify()
            assert report.sound, report.problems
            odd = [problem.kind for problem in report.anomalies if problem.kind not in ("temporary_file", "leftover")]
            assert odd == []
            changes = [(entry.k, entry.o, entry.t) for entry in reader]
            if changes:
                found[name] = changes
        return found

    def make_journals(self, disk: SimulatedDisk) -> None:
        """A store with an archive."""
        with VersionedKVStore(ROOT, "dogs", CAPACITY, background=False, clock=Clock(START - 1), disk=disk) as store:
            store.insert("rex", {"age": 4})
            store.rotate()
            store.insert("rex", {"age": 5})

    @property
    def writers(self) -> list[Callable[[Disk, str, Any], None]]:
        def write(disk: Disk, part: str, record: Any) -> None:
            with self.open_writer(disk, part) as store:
                if record[1] is not None:
                    store.insert(record[0], record[1])
                elif store.remove(record[0]) is None:
                    store.insert(record[0], "it was not there")

        return [write]

    def open_writer(self, disk: Disk, part: str) -> VersionedKVStore:
        return VersionedKVStore(ROOT, part, CAPACITY, background=False, disk=disk)

    @property
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        def hold(disk: Disk) -> Lock:
            make_directories(disk, ROOT / ".logwright")
            return Lock.acquire(disk, self.lock_path("cats 0"))

        return [("cats 0", hold)]

    def bystander(self, disk: Disk) -> VersionedKVStore:
        return self.open_writer(disk, "dogs")

    def lock_path(self, part: str) -> Path:
        return ROOT / ".logwright" / f"{part}.lck"

    def target_of(self, part: str) -> StoresTarget:
        return StoresTarget(part)
