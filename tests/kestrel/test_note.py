"""The notes beside a queue: the files that the latest pack replaces, the rotated files, and the missing ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from logwright.kestrel.files.note import (
    PackNote,
    contradicted,
    note_present,
    note_rotated,
    pack_note,
    rotated_files,
    write_note,
)
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_tree

QUEUES = Path("/queues")
NOTE = QUEUES / ".logwright" / "cars.packed"


def with_notes(rotated: Mapping[str, object] | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    write_tree(disk, QUEUES, {".logwright": None})
    if rotated is not None:
        write_tree(disk, QUEUES, {".logwright/cars.rotated": json.dumps(rotated).encode()})
    return disk


def test_rotated_file_is_noted_and_a_pack_replaces_those_up_to_its_number() -> None:
    disk = with_notes({"cars.904": 10, "cars.0950": 20, "cars.960": 30})
    note_rotated(disk, QUEUES, "cars", "cars.970", 40)
    assert rotated_files(disk, QUEUES, "cars") == {"cars.904": 10, "cars.0950": 20, "cars.960": 30, "cars.970": 40}
    note_rotated(disk, QUEUES, "cars", "cars.950", 15, upto=950)
    assert rotated_files(disk, QUEUES, "cars") == {"cars.950": 15, "cars.960": 30, "cars.970": 40}


def test_names_in_a_note_that_are_not_rotated_files_are_ignored() -> None:
    noted = {"cars": 1, "cars~~5": 2, ".cars": 3, "": 4, "cars.0": 5, "cars.7": 6}
    assert rotated_files(with_notes(noted), QUEUES, "cars") == {"cars.0": 5, "cars.7": 6}


NOTED = {"cars.904": 10, "cars.0950": 20, "cars.960": 30}


@pytest.mark.parametrize(
    ("present", "wrong"),
    [
        (NOTED, []),
        ({"cars.960": 30}, ["cars.904", "cars.0950"]),
        ({"cars.904": 10, "cars.0950": 20, "cars.960": 29}, ["cars.960"]),
        ({"cars.904": 11, "cars.960": 30}, ["cars.904", "cars.0950"]),
        ({"cars.904": 0, "cars.0950": 0, "cars.960": 0}, ["cars.904", "cars.0950", "cars.960"]),
        ({"cars.904": 10, "cars.970": 5}, ["cars.0950", "cars.960"]),  # a pack would have removed 904
        ({}, ["cars.904", "cars.0950", "cars.960"]),
        ({"cars.970": 5}, []),  # perhaps a pack of another program
        ({"cars.950": 20, "cars.960": 30}, []),  # the same, with the number of 0950
        ({"cars.960": 31}, []),  # the same
        ({"cars.0950": 7, "cars.960": 31}, ["cars.960"]),
    ],
)
def test_note_contradicts_files_that_are_missing_or_have_another_size(
    present: dict[str, int], wrong: list[str]
) -> None:
    found = contradicted(with_notes(NOTED), QUEUES, "cars", NOTED, present)
    assert found == {name: NOTED[name] for name in wrong}


def test_file_that_a_pack_has_replaced_is_not_missing() -> None:
    noted = {"cars.904": 10, "cars.960": 30}
    disk = with_notes(noted)
    write_note(disk, QUEUES, "cars", 904, 5, ["cars.904"])
    write_note(disk, QUEUES, "cars", 950, 5, ["cars.904", "cars.950"])
    assert contradicted(disk, QUEUES, "cars", {**noted, "cars.950": 5}, {}) == {"cars.950": 5, "cars.960": 30}
    write_note(disk, QUEUES, "cars", 904, 5, ["cars.904"])
    assert contradicted(disk, QUEUES, "cars", noted, {"cars.904": 5, "cars.960": 30}) == {}  # it is not noted yet
    assert contradicted(disk, QUEUES, "cars", noted, {"cars.904": 4, "cars.960": 30}) == {"cars.904": 10}


def test_note_of_all_files_is_written_only_when_it_differs() -> None:
    disk = with_notes(NOTED)
    before = len(disk.operations)
    note_present(disk, QUEUES, "cars", NOTED)
    assert len(disk.operations) == before
    note_present(disk, QUEUES, "cars", {"cars.970": 5})
    assert rotated_files(disk, QUEUES, "cars") == {"cars.970": 5}


def test_note_of_a_pack_has_its_number_its_size_and_what_it_replaces() -> None:
    disk = with_notes()
    assert pack_note(disk, QUEUES, "cars") == PackNote(-1, 0, frozenset())
    write_note(disk, QUEUES, "cars", 950, 5, ["cars.950", "cars.904"])
    assert json.loads(read_file(disk, NOTE)) == {"pack": 950, "bytes": 5, "replaces": ["cars.904", "cars.950"]}
    assert pack_note(disk, QUEUES, "cars") == PackNote(950, 5, frozenset({"cars.904", "cars.950"}))


def test_note_repeats_the_files_of_the_preceding_pack_while_that_is_noted_as_rotated() -> None:
    disk = with_notes({"cars.904": 10, "cars.950": 20})
    write_note(disk, QUEUES, "cars", 904, 5, ["cars.900", "cars.904"])
    write_note(disk, QUEUES, "cars", 950, 6, ["cars.950"])
    assert json.loads(read_file(disk, NOTE))["replaces"] == ["cars.904", "cars.950"]
