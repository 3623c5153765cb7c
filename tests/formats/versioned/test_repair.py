"""Repairing stores: what the plan says, that it does so and no more, and that it can be taken back."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from logwright.core.disk import REAL_DISK
from logwright.core.errors import WrongUse
from logwright.core.format import Located
from logwright.core.repair import Create, Patch, Remove, Rename
from logwright.formats.versioned import Entry, Reader, VersionedKVStore
from logwright.formats.versioned.files import archive_name
from logwright.formats.versioned.layout import HEADER_BYTES
from logwright.formats.versioned.repair import apply, plan, undo
from tests.formats.versioned.samples import START, Model, journal, with_position
from tests.support.trees import differences, read_tree

ENTRIES = [Entry(START + number, f"key {number % 3}", number) for number in range(12)]


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "cars.jrn"
    path.write_bytes(data)
    return path


def repaired(path: Path) -> list[Entry]:
    """The changes after a repair, which leaves a sound store that can be written to, and can be taken back."""
    home = path.parent
    before = path.read_bytes()
    done = apply(path, plan(path))
    assert done is not None
    reader = Reader(path)
    assert reader.verify().sound
    found = list(reader)
    undo(path)
    assert path.read_bytes() == before
    apply(path, plan(path))
    with VersionedKVStore.open(home, "cars", 4096, background=False) as store:
        store.insert("after", True)
    assert list(Reader(path))[:-1] == found
    return found


@pytest.mark.parametrize("position", [-3, 5, 2**40], ids=["within an entry", "past the file", "far past it"])
def test_a_position_is_put_behind_the_last_whole_entry(position: int, tmp_path: Path) -> None:
    data = journal(START, ENTRIES)
    path = written(tmp_path, with_position(data, len(data) + position))
    (step,) = plan(path).steps
    assert isinstance(step, Patch)
    assert (step.position, step.new) == (8, len(data).to_bytes(8, "little"))
    assert repaired(path) == ENTRIES


def test_a_position_below_the_header_is_put_right(tmp_path: Path) -> None:
    path = written(tmp_path, with_position(journal(START, ENTRIES, spare=500), 3))
    assert list(Reader(path).entries(mode="dropmalformed")) == []
    assert repaired(path) == ENTRIES


def test_a_torn_tail_does_not_count_any_more(tmp_path: Path) -> None:
    data = journal(START, ENTRIES)
    path = written(tmp_path, with_position(data[:-4], len(data) - 4))
    assert repaired(path) == ENTRIES[:-1]


def test_bad_bytes_go_and_the_entries_on_both_sides_stay(tmp_path: Path) -> None:
    path = written(tmp_path, journal(START, ENTRIES, spare=100))
    bad = [item for item in Reader(path).scan() if isinstance(item, Located)][5]
    data = bytearray(path.read_bytes())
    data[bad.span.start + 3] = 0x65
    path.write_bytes(data)
    found = plan(path)
    assert [type(step) for step in found.steps] == [Create, Patch, Remove, Rename]
    assert len(found.left) == 1
    assert "entries in them are lost" in found.left[0]
    assert repaired(path) == [entry for entry in ENTRIES if entry != bad.record]


def test_a_wrong_version_is_put_right_where_the_metadata_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x0a" + journal(START, ENTRIES)[1:])
    assert repaired(path) == ENTRIES


def test_a_damaged_archive_is_made_anew_from_what_is_in_it(tmp_path: Path) -> None:
    model = Model()
    for entry in ENTRIES:
        model.change(entry)
    model.rotate()
    path = model.write(tmp_path)
    archive = tmp_path / archive_name("cars", model.archives[0][0])
    packed = bytearray(archive.read_bytes())
    packed[-1] ^= 1
    archive.write_bytes(packed)
    assert not Reader(path).verify().sound
    before = read_tree(REAL_DISK, tmp_path)
    assert apply(path, plan(path)) is not None
    assert Reader(path).verify().sound
    assert zlib.decompress(archive.read_bytes()) == model.archives[0][1]
    undo(path)
    after = read_tree(REAL_DISK, tmp_path)
    assert differences(before, {name: data for name, data in after.items() if not name.startswith(".logwright")}) == []


def test_what_cannot_be_repaired_is_said_and_left(tmp_path: Path) -> None:
    path = written(tmp_path, journal(START, ENTRIES)[:20])
    found = plan(path)
    assert found.empty
    assert len(found.left) == 1
    assert "when it began is lost" in found.left[0]


def test_nothing_is_planned_for_what_is_sound_and_a_part_is_not_repaired_alone(tmp_path: Path) -> None:
    model = Model()
    model.change(ENTRIES[0])
    model.rotate()
    path = model.write(tmp_path)
    assert plan(tmp_path).empty
    assert apply(path, plan(path)) is None
    with pytest.raises(WrongUse, match="is a part of the store"):
        plan(tmp_path / archive_name("cars", model.archives[0][0]))


def test_a_missing_archive_is_told_and_left(tmp_path: Path) -> None:
    model = Model()
    for entry in ENTRIES[:3]:
        model.change(entry)
        model.rotate()
    path = model.write(tmp_path)
    assert plan(path).left == ()
    (tmp_path / archive_name("cars", ENTRIES[1].t)).unlink()
    found = plan(path)
    times = f"it begins at {ENTRIES[1].t}, and {archive_name('cars', ENTRIES[0].t)} ended at {ENTRIES[0].t}"
    assert (found.steps, found.left) == (
        (),
        (f"{archive_name('cars', ENTRIES[2].t)} @ {HEADER_BYTES}: {times}: a journal between them is missing",),
    )
