"""The states of many stores at a time: one file of each is chosen by names alone, and read as recovery does."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.read.splits import Times
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, HistoryUnavailable
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.stores import StoresReader
from logwright.versioned.model import states
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.tables.splits import SPLITS
from tests.versioned.histories import random_history, random_stores
from tests.versioned.samples import START, Model, journal


class OpeningDisk:
    """The real disk, which records the calls."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.listed: list[Path] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)

    def open(self, path: Path, mode: Any) -> Any:
        self.opened.append(path.name)
        return REAL_DISK.open(path, mode)

    def list_directory(self, path: Path) -> list[str]:
        self.listed.append(path)
        return REAL_DISK.list_directory(path)


def state_of(part: states.StatePart, at: int, mode: Any = "failfast") -> dict[str, Any]:
    latest = states.read(REAL_DISK, part, at, mode).latest
    return {} if latest is None else latest.state()


def test_planning_lists_a_directory_once_and_reading_opens_one_file_of_each_store(tmp_path: Path) -> None:
    dice = random.Random(1)
    for number in range(40):
        random_history(dice, 30, rotations=0.3, tick_ns=1000).write(tmp_path, f"store {number}")
    disk: Any = OpeningDisk()
    at = START + 40_500  # not so close to a later name that the file after that would be read too
    parts = list(states.plan(disk, tmp_path, at))
    assert [part.store for part in parts] == sorted(f"store {number}" for number in range(40))
    assert (disk.opened, disk.listed) == ([], [tmp_path])
    assert all(part.bytes == part.files[-1].path.stat().st_size for part in parts)
    for part in parts:
        states.read(disk, part, at, "failfast")
        assert set(disk.opened) == {part.files[-1].name}
        disk.opened.clear()
    assert disk.listed == [tmp_path]


def test_state_of_every_store_equals_recovery_at_every_time(tmp_path: Path) -> None:
    models = random_stores(tmp_path, 60, random.Random(2))
    unavailable = 0
    for at in range(START, START + 90, 3):
        for directory in (tmp_path, tmp_path / "east", tmp_path / "east" / "berlin"):
            for part in states.plan(REAL_DISK, directory, at):
                path = directory / f"{part.store}.jrn"
                if at < models[path].initialized:
                    unavailable += 1
                    with pytest.raises(HistoryUnavailable, match=f"{part.store}.* from {models[path].initialized} on"):
                        state_of(part, at)
                else:
                    assert state_of(part, at) == models[path].state(at)
                    assert state_of(part, at) == VersionedRecovery.load(path).recover_at(at).with_timestamps()
    assert unavailable > 50


@pytest.mark.parametrize("at", [START + 15, START + 30, START + 99])
def test_journal_rotated_between_planning_and_reading_is_found(tmp_path: Path, at: int) -> None:
    model = Model()
    for number in range(10):
        model.change(Entry(START + 3 * number, "k", number))
    model.write(tmp_path)
    (part,) = states.plan(REAL_DISK, tmp_path, at)
    before = model.state(at)
    model.change(Entry(START + 200, "k", "later"))
    model.rotate()
    model.change(Entry(START + 201, "l", "later still"))
    model.write(tmp_path)
    found = states.read(REAL_DISK, part, at, "failfast")
    assert found.latest is not None
    assert found.latest.state() == before
    assert found.source.name == archive_name("cars", START + 200)


def test_time_within_a_gap_is_unavailable(tmp_path: Path) -> None:
    model = Model()
    for t in range(1, 4):
        model.change(Entry(START + 10 * t, "k", t))
        model.rotate()
    model.write(tmp_path)
    (tmp_path / archive_name("cars", START + 20)).unlink()

    def known(at: int) -> dict[str, Any]:
        (part,) = states.plan(REAL_DISK, tmp_path, at)
        return state_of(part, at)

    assert known(START + 10) == {"k": (1, START + 10)}
    with pytest.raises(HistoryUnavailable, match=f"between {shown_time(START + 10)} and {shown_time(START + 20)}"):
        known(START + 15)
    assert known(START + 20) == {"k": (2, START + 20)}


def test_modes_apply_to_damage_and_unknown_states(tmp_path: Path) -> None:
    entries = [Entry(START + number, f"k{number}", "v" * 40) for number in range(5)]
    data = bytearray(journal(START, entries))
    at = data.index(b"k2")
    data[at : at + 2] = b"\xff\xff"
    (tmp_path / "cars.jrn").write_bytes(data)
    (part,) = states.plan(REAL_DISK, tmp_path, START + 9)
    with pytest.raises(DamagedJournal, match=r"cars\.jrn @"):
        states.read(REAL_DISK, part, START + 9, "failfast")
    found = states.read(REAL_DISK, part, START + 9, "permissive")
    assert found.latest is not None
    assert set(found.latest.state()) == {"k0", "k1", "k3", "k4"}
    assert [damage.kind for damage in found.damages] == ["malformed"]
    assert states.read(REAL_DISK, part, START + 9, "dropmalformed").damages == ()

    (early,) = states.plan(REAL_DISK, tmp_path, START - 1)
    state = states.read(REAL_DISK, early, START - 1, "permissive")
    assert state.latest is None
    assert [(damage.kind, damage.size, str(START) in damage.reason) for damage in state.damages] == [
        ("history_unavailable", 0, True)
    ]
    assert states.read(REAL_DISK, early, START - 1, "dropmalformed") == states.StoreState(None, early.files[-1])


def test_store_or_file_can_be_selected_by_name(tmp_path: Path) -> None:
    dice = random.Random(5)
    model, other = random_history(dice, 60, rotations=0.2), random_history(dice, 60, rotations=0.2)
    path = model.write(tmp_path, "cars")
    other.write(tmp_path, "bikes")
    at = model.archives[0][0]
    (part,) = states.plan(REAL_DISK, path, at)
    assert (part.store, state_of(part, at)) == ("cars", model.state(at))
    archive = tmp_path / archive_name("cars", at)
    (alone,) = states.plan(REAL_DISK, archive, 2**62)
    archive_state = VersionedRecovery.load([archive]).recover_current().with_timestamps()
    assert (alone.store, state_of(alone, 2**62)) == ("cars", archive_state)


def test_state_after_an_archive_with_a_taken_name_is_that_of_the_next_journal(tmp_path: Path) -> None:
    files = {
        archive_name("cars", START + 1): journal(START, [Entry(START + 1, "k", "somebody's")]),
        archive_name("cars", START + 2): journal(START, [Entry(START + 1, "k", "before")]),
        archive_name("cars", START + 9): journal(
            START + 1, [Entry(START + 1, "k", "before"), Entry(START + 1, "k", "after"), Entry(START + 9, "k", "late")]
        ),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(zlib.compress(data))
    (tmp_path / "cars.jrn").write_bytes(journal(START + 9, [Entry(START + 9, "k", "late")]))
    for at, value in ((START + 1, "after"), (START + 2, "after"), (START + 9, "late"), (START + 99, "late")):
        (part,) = states.plan(REAL_DISK, tmp_path, at)
        assert state_of(part, at)["k"][0] == value == VersionedRecovery.load(tmp_path).recover_at(at)["k"]
    planned = SPLITS.plan(StoresReader(tmp_path), times=Times(START + 1, START + 1))
    assert archive_name("cars", START + 9) in [split.file for split in planned]
