"""What a local directory of tables makes durable, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logwright.core.io.disk import RealDisk, RealFile
from logwright.pipeline.publish.store import LocalStore
from logwright.pipeline.publish.synced_io import SyncedFileIO
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

OUT = Path("/out")
PART = "events/date=2026-01-01/part-00000001-00000.parquet"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> Iterator[LocalStore]:
    found = LocalStore(OUT, disk=disk)
    disk.settle()
    yield found
    found.close()


def test_files_that_are_settled_are_durable_with_all_their_names(disk: SimulatedDisk, store: LocalStore) -> None:
    for folder in (OUT / "events", (OUT / PART).parent):
        disk.make_directory(folder)
    write_file(disk, OUT / PART, b"rows")
    assert len(disk.unsynced()) == 4
    store.settle([PART])
    assert disk.unsynced() == []


def test_removed_file_does_not_return_after_a_power_cut(disk: SimulatedDisk, store: LocalStore) -> None:
    store.prepare("events")
    store.write("events/note", b"1")
    assert (store.read("events/note"), disk.unsynced()) == (b"1", [])
    store.remove("events/note")
    assert (store.read("events/note"), disk.unsynced()) == (None, [])


def test_file_of_iceberg_is_durable_with_its_name_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bytes]] = []
    path = tmp_path / "metadata.json"
    monkeypatch.setattr(RealFile, "sync", lambda file: synced.append((file.path, path.read_bytes())))
    monkeypatch.setattr(RealDisk, "sync_directory", lambda _, folder: synced.append((folder, path.read_bytes())))
    with SyncedFileIO().new_output(str(path)).create() as stream:
        stream.write(b"{}")
        assert synced == []
    assert synced == [(path, b"{}"), (tmp_path, b"{}")]
