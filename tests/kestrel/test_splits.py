"""Journals of queues in splits: all operations and all damage once, whatever the size of the splits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.errors import NotFound
from logwright.kestrel.files.queues import QueuesReader
from logwright.kestrel.files.reader import Reader, located
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.tables.splits import SPLITS
from tests.kestrel.samples import REMOVE, addx, encoded, write
from tests.kestrel.subject import KestrelSubject
from tests.support.counting_disk import CountingDisk

SUBJECT = KestrelSubject()


def flat(items: Any) -> list[Any]:
    """Operations with their places, and damage."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, Damage):
            found.append(item)
        else:
            found += [(place.file, place.span.start, place.record) for place in located(item)]
    return found


def read(reader: Any, planned: list[Any], mode: Any = "permissive") -> list[Any]:
    return [item for split in planned for item in flat(SPLITS.chunks(reader, split, mode))]


def damaged_queue(path: Path, chance: random.Random) -> Path:
    """A queue of three files with bad bytes in some of them, and perhaps a torn tail."""
    records = SUBJECT.records(chance.randrange(1000), 60)
    cuts = sorted(chance.sample(range(60), 2))
    for name, part in zip(
        ("cars.50", "cars.100", "cars"),
        (records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :]),
        strict=True,
    ):
        data = bytearray(encoded(part))
        for _ in range(chance.choice((0, 0, 1, 2)) if data else 0):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (path / name).write_bytes(data[:-3] if name == "cars" and chance.random() < 0.5 else data)
    return path / "cars"


@pytest.mark.parametrize("seed", range(20))
def test_plan_that_continues_finds_what_a_plan_from_the_beginning_finds(seed: int, tmp_path: Path) -> None:
    reader = Reader(damaged_queue(tmp_path, random.Random(seed)), dialect="documented")
    whole = flat(reader.chunks(mode="permissive"))
    firsts = {file.name: file.first_number for file in reader.files()}
    numbers = [
        firsts[item.file] + item.start if isinstance(item, Damage) else firsts[item[0]] + item[1] for item in whole
    ]
    starts = [number for number, item in zip(numbers, whole, strict=True) if not isinstance(item, Damage)]
    for start in (*starts, reader.next):
        wanted = [item for number, item in zip(numbers, whole, strict=True) if number >= start]
        assert read(reader, SPLITS.plan(reader, 1 << 30, start, resumed=True)) == wanted


def test_plan_that_continues_reads_only_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "cars").write_bytes(encoded([addx(b"v" * 1000)] * 3000))
    disk: Any = CountingDisk()
    reader = Reader(tmp_path / "cars", disk=disk)
    start = reader.next
    with (tmp_path / "cars").open("ab") as file:
        file.write(encoded([addx(b"new"), REMOVE]))
    disk.bytes_read = 0
    (split,) = SPLITS.plan(reader, 1 << 30, start, resumed=True)
    assert (split.start, split.bytes) == (start, 25)
    assert SPLITS.reach(reader, "cars", start, start + 25, 1 << 30) == (start + 25, 25)
    assert SPLITS.reach(reader, "cars", start, start + 25, 24) == (start + 24, 24)
    assert SPLITS.advance(reader, "cars", start, start + 25, 1) == (start + 24, 1)
    assert disk.bytes_read < 1000
    assert SPLITS.aligned(reader, "cars", start - 7) == start == SPLITS.aligned(reader, "cars", start)
    assert SPLITS.aligned(reader, "cars", start + 25) == start + 25


@pytest.mark.parametrize("seed", range(20))
def test_splits_of_any_size_return_every_operation_and_every_damage_once(seed: int, tmp_path: Path) -> None:
    reader = Reader(damaged_queue(tmp_path, random.Random(seed)), dialect="documented")
    whole = flat(reader.chunks(mode="permissive"))
    for target_bytes in (1, 200, 1000, 1 << 30):
        assert read(reader, SPLITS.plan(reader, target_bytes)) == whole


@pytest.mark.parametrize("seed", range(20))
def test_stream_continues_where_it_stopped(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    reader = Reader(damaged_queue(tmp_path, chance), dialect="documented")
    whole = [item for item in flat(reader.chunks(mode="permissive")) if getattr(item, "kind", "") != "torn_tail"]
    number, last = SPLITS.extent(reader)["cars"]
    found: list[Any] = []
    while number < last:
        following, used = SPLITS.reach(reader, "cars", number, last, chance.choice((1, 100, 400)))
        assert following > number
        assert used > 0
        planned = SPLITS.plan(reader, 1 << 20, {"cars": number}, {"cars": following}, resumed=number > 0)
        found += read(reader, planned)
        number = following
    assert [item for item in found if getattr(item, "kind", "") != "torn_tail"] == whole


def test_split_is_found_after_its_file_was_rotated(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", *[addx(b"%d" % number) for number in range(10)])
    reader = Reader(path)
    planned = SPLITS.plan(reader, 50)
    with Writer(path) as writer:
        writer.rotate()
        writer.addx(b"later")
    found = [record.data for _, _, record in read(reader, planned)]
    assert found == [b"%d" % number for number in range(10)]


def test_split_of_a_packed_file_raises_an_error(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", addx(b"A"))
    write(tmp_path / "cars.100", addx(b"B"))
    path = write(tmp_path / "cars", addx(b"C"))
    planned = SPLITS.plan(Reader(path))
    assert [(split.file, split.start, split.stop - split.start) for split in planned] == [
        ("cars.50", 0, 22),
        ("cars.100", 50 << 64, 22),
        ("cars", 100 << 64, 22),
    ]
    with Writer(path) as writer:
        writer.pack()
    with pytest.raises(NotFound, match=r"cars\.100 was packed"):
        read(Reader(path), planned[1:2])
    assert len(read(Reader(path), planned[2:])) == 1


def test_each_queue_is_a_part(tmp_path: Path) -> None:
    write(tmp_path / "bikes", addx(b"A"), REMOVE)
    write(tmp_path / "cars.50", addx(b"B"))
    reader = QueuesReader(tmp_path)
    assert SPLITS.extent(reader) == {"bikes": (0, 23), "cars": (0, 50 << 64)}
    planned = SPLITS.plan(reader)
    assert [(split.part, split.file) for split in planned] == [("bikes", "bikes"), ("cars", "cars.50")]
    assert [split.part for split in SPLITS.plan(reader, start={"cars": 0})] == ["cars"]
    assert SPLITS.file_of("cars", "cars.50") == "cars.50"
    assert SPLITS.extent(reader.open("bikes")) == {"bikes": (0, 23)}, "a queue alone is a part by its name as well"


def test_torn_tail_is_reported_by_the_last_split(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"A"), tail=b"\x02")
    (split,) = SPLITS.plan(Reader(path))
    assert split.after is not None
    assert (split.after.start, split.stop) == (22, 22)
    reader = Reader(path)
    assert len(read(reader, [split], "failfast")) == 1
    assert reader.torn_tail is not None
    assert SPLITS.extent(Reader(path)) == {"cars": (0, 22)}
    (only,) = SPLITS.plan(Reader(write(tmp_path / "bikes", tail=b"\x02")))
    assert [item.kind for item in read(Reader(tmp_path / "bikes"), [only])] == ["torn_tail"]


def test_inventory_lists_the_files_that_count(tmp_path: Path) -> None:
    for name in ("cars.50", "cars.100", "cars.100.pack", "cars"):
        write(tmp_path / name, addx(b"A"))
    entries = SPLITS.inventory(Reader(tmp_path / "cars")).files
    assert [(entry.part, entry.file, entry.bytes, entry.first, entry.next) for entry in entries] == [
        ("cars", "cars.100.pack", 22, 0, 100 << 64),
        ("cars", "cars", 22, 100 << 64, (100 << 64) + 22),
    ]
