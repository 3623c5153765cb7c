"""Splits: each change is in one of them, whatever was copied, damaged, renamed or removed; planning reads little."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.read.splits import Split
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, Gap, NotFound
from logwright.versioned import Reader, StoresReader, VersionedKVStore, open_reader
from logwright.versioned.bytes.records import Entry
from logwright.versioned.files.archive_stream import READ_BYTES
from logwright.versioned.files.files import archive_name
from logwright.versioned.tables.splits import SPLITS
from tests.support.counting_disk import CountingDisk
from tests.support.trees import write_file
from tests.versioned.histories import random_history
from tests.versioned.samples import START, Model, journal, with_position
from tests.versioned.stores import HOME, Clock
from tests.versioned.test_damage import Trial as DamageTrial
from tests.versioned.test_file_accidents import PATH, disk_with, to_entries, to_files, to_swapped_archives
from tests.versioned.test_file_accidents import Trial as FileTrial


def entries_of(reader: Any, planned: list[Split]) -> list[Entry]:
    """The contents of splits, in their order."""
    found: list[Entry] = []
    for split in planned:
        journal = reader.open(split.part) if isinstance(reader, StoresReader) else reader
        for item in SPLITS.chunks(reader, split, "dropmalformed"):
            assert not isinstance(item, Damage)
            found += journal.decoded(item)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_each_change_is_in_one_split(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(dice.choice((1, 3))):
        path = random_history(dice, 80, rotations=0.15).write(tmp_path, f"store {number}")
    archives = sorted(tmp_path.glob("*.zz"))
    if seed % 3 == 1:
        archives[0].unlink()
    if seed % 3 == 2:
        chosen = dice.choice(archives)
        data = bytearray(zlib.decompress(chosen.read_bytes()))
        data[len(data) // 2 : len(data) // 2 + 3] = b"\xff" * 3
        chosen.write_bytes(zlib.compress(data))
    for opened in (open_reader(tmp_path), Reader(path)):
        reader: Any = opened
        wanted = list(reader.entries(mode="dropmalformed"))
        for target_bytes in (1, 300, 1 << 20):
            assert entries_of(reader, SPLITS.plan(reader, target_bytes)) == wanted


def test_planning_reads_no_archive_and_a_split_reads_two(tmp_path: Path) -> None:
    model = Model()
    for number in range(2000):
        model.change(Entry(START + number, f"k{number % 50}", random.Random(number).randbytes(20).hex()))
        if number % 400 == 399:
            model.rotate()
    path = model.write(tmp_path)
    sizes = [one.stat().st_size for one in sorted(tmp_path.glob("*.zz"))]
    disk: Any = CountingDisk(".zz")
    reader = Reader(path, disk=disk)
    planned = SPLITS.plan(reader)
    assert disk.bytes_read <= len(sizes) * 512 < min(sizes), "of each one its beginning, to know since when it counts"
    assert len(planned) == 6
    disk.bytes_read = 0
    assert len(entries_of(reader, planned[3:4])) == 400
    assert disk.bytes_read <= sizes[2] + 2 * sizes[3]


@pytest.mark.parametrize("seed", range(6))
def test_plan_that_continues_finds_what_a_plan_from_the_beginning_finds(tmp_path: Path, seed: int) -> None:
    reader = Reader(random_history(random.Random(seed), 80, rotations=0.1).write(tmp_path, "store"))
    changes = [
        (item.first_number + begin - item.position, entry)
        for item in reader.chunks(mode="permissive")
        if not isinstance(item, Damage)
        for begin, entry in zip(item.starts(), reader.decoded(item), strict=False)
    ]
    for start in (*(number for number, _ in changes), reader.next):
        planned = SPLITS.plan(reader, start=start, resumed=True)
        assert entries_of(reader, planned) == [entry for number, entry in changes if number >= start]


def test_plan_that_continues_reads_neither_what_was_read_nor_the_archive_before_it(tmp_path: Path) -> None:
    model = Model()
    for number in range(4000):
        model.change(Entry(START + number, f"k{number}", "v" * 1000))
        if number == 2000:
            model.rotate()
    disk: Any = CountingDisk()
    reader = Reader(model.write(tmp_path), disk=disk)
    start = reader.next
    model.change(Entry(START + 5000, "new", 1))
    model.write(tmp_path)
    following = reader.next
    disk.bytes_read = 0
    (split,) = SPLITS.plan(reader, start=start, resumed=True)
    assert (split.start, split.stop) == (start, following)
    assert SPLITS.reach(reader, reader.store, start, following, 1 << 30) == (following, following - start)
    assert disk.bytes_read < 3 * READ_BYTES < reader.disk.file_size(reader.path) - READ_BYTES
    assert entries_of(reader, [split]) == [Entry(START + 5000, "new", 1)]


def test_file_rotated_since_the_plan_is_found_and_a_removed_one_reported(tmp_path: Path) -> None:
    model = Model()
    for number in range(30):
        model.change(Entry(START + number, f"k{number % 4}", number))
        if number % 10 == 9:
            model.rotate()
    model.change(Entry(START + 50, "k1", "newest"))
    reader = Reader(model.write(tmp_path))
    planned = SPLITS.plan(reader)
    wanted = list(model.changes)
    model.change(Entry(START + 60, "k1", "newer than the plan"))
    model.rotate()
    model.change(Entry(START + 70, "k1", "newer still"))
    model.write(tmp_path)
    assert entries_of(reader, planned) == wanted
    (tmp_path / archive_name("cars", START + 9)).unlink()
    with pytest.raises(NotFound, match="is not kept any more"):
        entries_of(reader, planned[:1])
    with pytest.raises(NotFound, match="is not kept any more"):
        entries_of(reader, planned[1:2])  # only the preceding archive shows which of its entries are copies
    assert entries_of(reader, planned[2:]) == wanted[20:]


# --- damage -----------------------------------------------------------------------------------------------------------


def read_by(reader: Reader, items: Iterable[Any]) -> tuple[list[Entry], list[str]]:
    """The entries in their order, and the damages in any."""
    entries: list[Entry] = []
    damages: list[str] = []
    for item in items:
        if isinstance(item, Damage):
            damages.append(repr(item))
        else:
            entries += reader.decoded(item)
    return entries, sorted(damages)


def damaged_stores(seed: int) -> Iterator[tuple[str, Reader]]:
    """Stores after random accidents to bytes, entries and files."""
    for happens in (to_entries, to_files, to_swapped_archives):
        trial = FileTrial(seed, happens)
        if trial.left:
            yield trial.accident, Reader(PATH, disk=disk_with(trial.damaged))
    damaged = DamageTrial(seed)
    damaged.disk.remove(HOME / damaged.name)
    write_file(damaged.disk, HOME / damaged.name, damaged.accident.data)
    yield f"{damaged.accident[:3]} of {damaged.name}", Reader(PATH, disk=damaged.disk)


@pytest.mark.parametrize("block", range(4))
def test_splits_report_the_damage_that_one_reader_reports_whatever_their_boundaries(block: int) -> None:
    for seed in range(20 * block, 20 * (block + 1)):
        for accident, reader in damaged_stores(seed):
            wanted = read_by(reader, reader.chunks(mode="permissive"))
            for target_bytes in (1, 60, 300, 1 << 20):
                planned = SPLITS.plan(reader, target_bytes)
                items = chain.from_iterable(SPLITS.chunks(reader, split, "permissive") for split in planned)
                assert read_by(reader, items) == wanted, f"seed {seed}: {accident} in splits of {target_bytes}"


def test_position_that_was_lowered_after_a_rotation_is_damage_for_every_reader(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path, "cars", 4096, clock=Clock(START), background=False) as store:
        store.insert("a", 1)
        store.rotate()
        store.insert("b", 2)
        position = store.position
        store.insert("c", 3)
    path = tmp_path / "cars.jrn"
    path.write_bytes(with_position(path.read_bytes(), position))
    reader = Reader(path)
    for ask in (lambda: list(reader), lambda: list(reader.scan()), lambda: reader.last(1)):
        with pytest.raises(DamagedJournal, match="the position is"):
            ask()
    with pytest.raises(DamagedJournal, match="the position is"):
        list(chain.from_iterable(SPLITS.chunks(reader, split) for split in SPLITS.plan(reader, 1)))


# --- many stores ------------------------------------------------------------------------------------------------------


def test_planning_and_reading_5000_stores_lists_their_directory_few_times(tmp_path: Path) -> None:
    for number in range(5000):
        journals = [journal(START, [Entry(START + 1, "k", number)])]
        if number % 50 == 0:
            journals.append(journal(START + 1, [Entry(START + 1, "k", number), Entry(START + 2, "k", "new")]))
            archive = tmp_path / archive_name(f"s{number}", START + 1)
            archive.write_bytes(zlib.compress(journals[0], 1))
        (tmp_path / f"s{number}.jrn").write_bytes(journals[-1])
    disk: Any = CountingDisk()
    reader: Any = open_reader(tmp_path, disk=disk)
    planned = SPLITS.plan(reader)
    assert len(planned) == 5100
    assert disk.listings <= 3, "once to find out what this is, once to open it, once to plan"
    ends = {store: following for store, (_, following) in SPLITS.extent(reader).items()}
    starts = dict.fromkeys(ends, 0)
    assert disk.listings <= 4
    for store in sorted(ends)[:50]:  # as a stream does, store by store
        assert SPLITS.plan(reader, start={store: starts[store]}, stop={store: ends[store]}, resumed=True)
        assert SPLITS.advance(reader, store, 0, ends[store], 1)[1] == 1
    assert len(entries_of(reader, planned[-50:])) == 50
    assert disk.listings <= 4


def test_active_journal_is_read_by_its_name_unless_another_one_has_it_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {name: Model() for name in ("one", "two", "three")}
    for name, model in models.items():
        model.change(Entry(START + 1, "k", name))
        model.write(tmp_path, name)
    reader: Any = open_reader(tmp_path)
    planned = SPLITS.plan(reader) + SPLITS.plan(reader, start=0, resumed=True)
    entries = [Entry(START + 1, "k", split.part) for split in planned]
    with monkeypatch.context() as patched:
        patched.setattr(StoresReader, "open", lambda *_: pytest.fail("a store was listed"))
        chunks: list[Any] = [chunk for split in planned for chunk in SPLITS.chunks(reader, split)]
    assert [chunk.count for chunk in chunks] == [1] * 6
    for name in ("one", "two"):
        models[name].rotate()
        models[name].change(Entry(START + 9, "k", "later"))
        models[name].write(tmp_path, name)
    assert entries_of(reader, planned) == entries, "also of those that are archives now"
    (tmp_path / archive_name("two", START + 1)).unlink()
    assert len(entries_of(reader, [split for split in planned if split.part != "two"])) == 4
    with pytest.raises(NotFound, match="two"):
        entries_of(reader, planned)


def test_store_that_is_rotated_after_it_was_listed_is_listed_again(tmp_path: Path) -> None:
    models = {name: Model() for name in ("one", "two", "three")}
    for model in models.values():
        model.change(Entry(START + 1, "k", 1))
        model.write(tmp_path, "other")
    for name, model in models.items():
        model.write(tmp_path, name)
    reader = StoresReader(tmp_path)
    for step in range(3):
        for name, model in models.items():
            model.rotate()
            model.change(Entry(START + 10 * (step + 1), "k", name))
            model.write(tmp_path, name)
            opened = reader.open(name)
            assert list(opened) == model.changes
            if step == 2:
                (tmp_path / archive_name(name, START + 1)).unlink()
                assert [source.timestamp for source in opened.files()] == [START + 10, START + 20, None]
        reader.stores()


# --- journals that are missing ----------------------------------------------------------------------------------------


def with_a_hole(directory: Path, *, last: bool) -> tuple[Path, str]:
    """A store without the journal in which a key was removed, before an archive or before the active journal.

    Returns the path, and the file after the hole.
    """
    model = Model()
    for number, (key, value) in enumerate([("a", 1), ("gone", 2), ("gone", None)]):
        model.change(Entry(START + 10 * number + 5, key, value))
        model.rotate()
    if not last:
        model.change(Entry(START + 35, "a", 3))
        model.rotate()
    path = model.write(directory)
    (directory / archive_name("cars", START + 25)).unlink()
    return path, path.name if last else archive_name("cars", START + 35)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_missing_journal_is_reported_once_before_the_following_changes(
    tmp_path: Path, last: bool, resumed: bool
) -> None:
    path, following = with_a_hole(tmp_path, last=last)
    reader = Reader(path)
    before = f"{archive_name('cars', START + 15)}, which ended at {shown_time(START + 15)}: one is missing"
    wanted = [
        (following, "gap", f"it begins at {shown_time(START + 25)}, and not with what was at the end of {before}")
    ]

    def damages_of(items: Any) -> list[tuple[str, str, str]]:
        found = [item for item in items if isinstance(item, Damage)]
        return [(one.file, one.kind, one.reason) for one in found]

    for target_bytes in (1, 1 << 20):
        planned = SPLITS.plan(reader, target_bytes, resumed=resumed)
        assert damages_of(item for split in planned for item in SPLITS.chunks(reader, split, "permissive")) == wanted
        with pytest.raises(Gap, match="one is missing"):
            list(chain.from_iterable(SPLITS.chunks(reader, split, "failfast") for split in planned))
        entries_of(reader, planned)
    assert damages_of(reader.chunks(mode="permissive")) == damages_of(reader.scan(mode="permissive")) == wanted
    with pytest.raises(Gap, match="one is missing"):
        list(reader)


def test_empty_journal_after_a_hole_is_a_split_that_reports_it(tmp_path: Path) -> None:
    model = Model()
    for number, value in enumerate((1, 2, None)):
        model.change(Entry(START + 10 * number + 5, "gone", value))
        model.rotate()
    reader = Reader(model.write(tmp_path))
    (tmp_path / archive_name("cars", START + 25)).unlink()
    found = [item for split in SPLITS.plan(reader) for item in SPLITS.chunks(reader, split, "permissive")]
    assert [item.kind for item in found if isinstance(item, Damage)] == ["gap"]
    assert [len(entries_of(reader, [split])) for split in SPLITS.plan(reader)] == [1, 1, 0]
