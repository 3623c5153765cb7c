"""The files of a queue, their order, and the numbers of their operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.kestrel.bytes.layout import is_queue_name, parse_name
from logwright.kestrel.files.files import arrange, list_queues
from tests.kestrel.samples import FACTS

DIRECTORY = Path("/queues")


def names(*files: str) -> list[str]:
    return [file.name for file in arrange(DIRECTORY, "cars", sorted(files)).files]


def test_rotated_files_are_sorted_by_number_and_the_newest_is_last() -> None:
    assert names("cars", "cars.999", "cars.50", "cars.3000") == ["cars.50", "cars.999", "cars.3000", "cars"]
    assert names("cars.999", "cars.50") == ["cars.50", "cars.999"]


def test_files_replaced_by_a_pack_are_ignored() -> None:
    listing = arrange(DIRECTORY, "cars", ["cars", "cars.904", "cars.950", "cars.950.pack", "cars.951"])
    assert [file.name for file in listing.files] == ["cars.950.pack", "cars.951", "cars"]
    assert listing.dead == ["cars.904", "cars.950"]
    assert listing.pack is listing.files[0]


def test_largest_of_several_packs_is_used() -> None:
    listing = arrange(DIRECTORY, "cars", ["cars.10", "cars.9.pack", "cars.950.pack"])
    assert ([file.name for file in listing.files], listing.dead) == (["cars.950.pack"], ["cars.9.pack", "cars.10"])


def test_other_names_are_ignored() -> None:
    others = [
        "cars.x",
        "cars.1.2",
        "cars.-1",
        "cars.1.pack~~",
        "cars~~5",
        "car",
        "cars2",
        "cars.5.packed",
        ".cars",
        "cars.",
    ]
    listing = arrange(DIRECTORY, "cars", ["cars", *others])
    assert [file.name for file in listing.files] == ["cars"]
    assert listing.temporary == ["cars~~5"]


def test_numbers_stay_when_files_are_rotated_or_packed() -> None:
    def numbers(*files: str) -> dict[str, int]:
        return {file.name: file.first_number for file in arrange(DIRECTORY, "cars", sorted(files)).files}

    assert numbers("cars") == {"cars": 0}
    assert numbers("cars.904", "cars") == {"cars.904": 0, "cars": 904 << 64}
    assert numbers("cars.904", "cars.950", "cars") == {"cars.904": 0, "cars.950": 904 << 64, "cars": 950 << 64}
    assert numbers("cars.950", "cars") == {"cars.950": 0, "cars": 950 << 64}


@pytest.mark.parametrize(
    "fact",
    [fact for fact in FACTS["replay_order_of_files"] if "replay_order" in fact],
    ids=lambda fact: " ".join(fact["files"]) or "none",
)
def test_golden_files_are_replayed_in_the_order_of_the_original(fact: dict[str, Any]) -> None:
    found = [file.name for file in arrange(Path("/"), "test", sorted(fact["files"])).files]
    there = {name.removesuffix(".pack") for name in fact["files"]}
    assert [name.removesuffix(".pack") for name in found] == [name for name in fact["replay_order"] if name in there]


@pytest.mark.parametrize("fact", FACTS["queue_names_from_files"], ids=lambda fact: " ".join(fact["files"]))
def test_golden_queues_are_found_by_their_files(fact: dict[str, Any], tmp_path: Path) -> None:
    for name in fact["files"]:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert list_queues(REAL_DISK, tmp_path) == fact["queues"]


def test_name_parses_to_queue_number_and_pack() -> None:
    assert parse_name("cars") == ("cars", None, False)
    assert parse_name("cars.0904") == ("cars", 904, False)
    assert parse_name("a+b.5.pack") == ("a+b", 5, True)
    for name in ("", ".cars", "cars~~", "cars.1.pack.pack", "cars.٩", "x/y", "cars.5\n", "."):
        assert parse_name(name) is None or name == "cars.5\n", name


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "a~b", "a+", "+b", "a+b+c", "~", "a\0"])
def test_names_that_the_original_forbids_are_refused(name: str) -> None:
    assert not is_queue_name(name)


def test_fan_out_queue_has_one_plus_in_its_name() -> None:
    assert is_queue_name("parent+child")
    assert is_queue_name("orders 2026")
