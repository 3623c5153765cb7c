"""The notes beside a queue: what the latest pack replaces, which rotated files there are, and which are missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from logwright.kestrel.files.note import missing_files, note_rotated, replaced_files, rotated_files, write_note
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_tree

QUEUES = Path("/queues")
NOTE = QUEUES / ".logwright" / "cars.packed"


def with_notes(rotated: Mapping[str, object] | None = None, pack: bytes = b"") -> SimulatedDisk:
    disk = SimulatedDisk()
    write_tree(disk, QUEUES, {"cars.950.pack": pack, ".logwright": None})
    if rotated is not None:
        write_tree(disk, QUEUES, {".logwright/cars.rotated": json.dumps(rotated).encode()})
    return disk


def test_rotated_file_is_noted_and_a_pack_takes_the_place_of_those_up_to_its_number() -> None:
    disk = with_notes({"cars.904": 10, "cars.0950": 20, "cars.960": 30})
    note_rotated(disk, QUEUES, "cars", "cars.970", 40)
    assert rotated_files(disk, QUEUES, "cars") == {"cars.904": 10, "cars.0950": 20, "cars.960": 30, "cars.970": 40}
    note_rotated(disk, QUEUES, "cars", "cars.950", 15, upto=950)
    assert rotated_files(disk, QUEUES, "cars") == {"cars.950": 15, "cars.960": 30, "cars.970": 40}


def test_names_in_a_note_that_are_no_rotated_files_do_not_count() -> None:
    noted = {"cars": 1, "cars~~5": 2, ".cars": 3, "": 4, "cars.0": 5, "cars.7": 6}
    assert rotated_files(with_notes(noted), QUEUES, "cars") == {"cars.0": 5, "cars.7": 6}


def test_file_is_missing_unless_another_program_has_changed_the_queue_since() -> None:
    disk = with_notes({"cars.904": 10, "cars.0950": 20, "cars.960": 30})
    assert missing_files(disk, QUEUES, "cars", {"cars.960": 30}) == {"cars.904": 10, "cars.0950": 20}
    assert missing_files(disk, QUEUES, "cars", {"cars.904": 11, "cars.960": 30}) == {"cars.0950": 20}
    assert missing_files(disk, QUEUES, "cars", {"cars.950": 20, "cars.960": 30}) == {}  # its number is that of 0950
    assert missing_files(disk, QUEUES, "cars", {"cars.904": 10, "cars.0950": 20, "cars.960": 31}) == {}


def test_file_that_a_pack_has_replaced_is_not_missing() -> None:
    disk = with_notes({"cars.904": 10, "cars.960": 30})
    write_note(disk, QUEUES, "cars", 904, 5, ["cars.904"])
    assert missing_files(disk, QUEUES, "cars", {}) == {"cars.960": 30}


@pytest.mark.parametrize(
    ("timestamp", "pack", "known"), [(950, b"12345", True), (951, b"12345", False), (950, b"1234", False)]
)
def test_pack_is_known_by_its_number_and_size(timestamp: int, pack: bytes, known: bool) -> None:
    disk = with_notes(pack=pack)
    write_note(disk, QUEUES, "cars", 950, 5, ["cars.950", "cars.904"])
    assert json.loads(read_file(disk, NOTE)) == {"pack": 950, "bytes": 5, "replaces": ["cars.904", "cars.950"]}
    replaced = replaced_files(disk, QUEUES, "cars", timestamp, QUEUES / "cars.950.pack")
    assert replaced == ({"cars.904", "cars.950"} if known else set())


def test_note_names_again_what_the_pack_before_has_replaced_while_that_is_noted_as_rotated() -> None:
    disk = with_notes({"cars.904": 10, "cars.950": 20})
    write_note(disk, QUEUES, "cars", 904, 5, ["cars.900", "cars.904"])
    write_note(disk, QUEUES, "cars", 950, 6, ["cars.950"])
    assert json.loads(read_file(disk, NOTE))["replaces"] == ["cars.904", "cars.950"]
