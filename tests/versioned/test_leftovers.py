"""Whatever is left of a store's files: each of the five absent, whole, empty, broken or cut, in every combination.

What must come out is written down in `expected`, by the rules of `leftovers.py`. In every case

- nothing that was in a whole file is gone: it is in the journal, in an archive, or kept aside;
- a store that is not opened is not touched;
- opening a second time finds the same.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import DamagedJournal, LogwrightError
from logwright.versioned import Reader, VersionedRecovery
from logwright.versioned.bytes import codec
from logwright.versioned.bytes.layout import ENTRY_START
from logwright.versioned.files.repair import plan
from logwright.versioned.model.store import VersionedKVStore
from tests.support.counts import COUNTS
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, read_tree, write_file
from tests.versioned.stores import HOME, Clock, content_of, journal

SHAPES = ("absent", "whole", "empty", "broken", "cut")
NOISE = bytes(range(200, 256)) * 3
STATE = {"a": ("second", 1003), "c": (3, 1004)}
FOUND = {**STATE, "d": ("new", 1004)}
OLD = journal(
    [(1001, "a", "first"), (1002, "b", [1, 2]), (1003, "a", "second"), (1004, "c", 3), (1004, "b", None)], 1000, 600
)
ACTIVE = journal([(1003, "a", "second"), (1004, "c", 3), (1004, "d", "new")], 1004, 600)
TEMPORARY = journal([(1003, "a", "second"), (1004, "c", 3), (1004, "d", "newer")], 1005, 600)
ARCHIVE = zlib.compress(OLD.rstrip(b"\0"))
IN_ACTIVE_PART = {"a": ("second", 1003)}
IN_OLD_PART = {"a": ("first", 1001), "b": ([1, 2], 1002)}


def shaped(whole: bytes, cut_at: int) -> dict[str, bytes | None]:
    return {"absent": None, "whole": whole, "empty": b"", "broken": NOISE, "cut": whole[:cut_at]}


FILES = {
    "cars.jrn": shaped(ACTIVE, 82),
    "cars.jrn.old": shaped(OLD, 100),
    "cars.jrn.tmp": shaped(TEMPORARY, 82),
    "cars.jrn.t1004.zz": shaped(ARCHIVE, 40),
    "cars.jrn.t1004.zz.tmp": shaped(ARCHIVE, 40),
}


class Case(NamedTuple):
    """The shapes of the five files."""

    active: str
    old: str
    temporary: str
    archive: str
    half: str

    @property
    def contents(self) -> dict[str, bytes]:
        found = zip(FILES, self, strict=True)
        return {name: data for name, shape in found if (data := FILES[name][shape]) is not None}


CASES = [Case(*shapes) for shapes in itertools.product(SHAPES, repeat=5)]


def expected(case: Case) -> dict[str, Any] | None:
    """What the store has when it is opened; None where it must not be."""
    if case.active == "whole":
        return FOUND
    if case.old == "whole":
        return STATE
    if case.active == "cut":
        return IN_ACTIVE_PART
    if case.active == "broken":
        return None
    if case.active == "absent" and case.old == "cut":
        return IN_OLD_PART
    if case.old == "broken" or (case.active == "empty" and case.old != "absent"):
        return None
    # neither journal has anything in it
    return None if case.archive != "absent" or case.temporary in ("whole", "cut") else {}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


def laid_out(case: Case) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    for name, data in case.contents.items():
        write_file(disk, HOME / name, data)
    return disk


def opened(disk: SimulatedDisk) -> VersionedKVStore:
    return VersionedKVStore.open(HOME, "cars", 600, disk=disk, background=False, clock=Clock(5000))


def entries_of(data: bytes) -> Iterator[tuple[int, str, str]]:
    """The whole entries of a journal, or of what an archive holds, wherever they are."""
    if data[:1] == b"\x78":
        try:
            data = zlib.decompressobj().decompress(data)
        except zlib.error:
            return
    at = -1
    while (at := data.find(ENTRY_START, at + 1)) >= 0:
        try:
            found = codec.decode_entry(data, at, len(data))
        except Malformed:
            continue
        if isinstance(found, tuple):
            yield found[0].t, found[0].k, repr(found[0].o)


def all_entries(tree: Tree, *, but: tuple[str, ...] = ()) -> set[tuple[int, str, str]]:
    return {entry for name, data in tree.items() if data and name not in but for entry in entries_of(data)}


def check(case: Case) -> None:
    disk = laid_out(case)
    before = read_tree(disk, HOME)
    try:
        store = opened(disk)
    except DamagedJournal:
        assert expected(case) is None
        after = read_tree(disk, HOME)
        assert {name: after.get(name) for name in case.contents} == case.contents, "a store was touched that is damaged"
        return
    assert content_of(store) == expected(case)
    store.insert("more", 1)
    store.close()
    after = read_tree(disk, HOME)
    copies = ("cars.jrn.tmp",) if expected(case) in (STATE, FOUND) else ()  # beside a whole journal that is one
    assert all_entries(before, but=copies) <= all_entries(after), "entries are gone"
    if case.archive in ("empty", "cut") and (case.active, case.old) == ("whole", "whole"):
        assert zlib.decompress(after["cars.jrn.t1004.zz"] or b"") == zlib.decompress(ARCHIVE), "it is made again"
    elif case.archive != "absent":
        assert after["cars.jrn.t1004.zz"] == before["cars.jrn.t1004.zz"], "an archive was overwritten"
    assert not [name for name in after if name.endswith((".jrn.tmp", ".jrn.old", ".zz.tmp"))]
    with opened(disk) as store:
        assert {key: pair for key, pair in content_of(store).items() if key != "more"} == expected(case)
        assert store.recovered is None
    assert disk.open_files == 0


@pytest.mark.parametrize("active", SHAPES)
@pytest.mark.parametrize("old", SHAPES)
def test_every_combination_of_leftovers_comes_out_as_the_table_says(active: str, old: str) -> None:
    for case in CASES:
        if (case.active, case.old) == (active, old):
            try:
                check(case)
            except (AssertionError, LogwrightError) as error:
                raise AssertionError(f"{case}: {error}") from error
            COUNTS.add("hostile inputs", 1, "versioned")


@pytest.mark.parametrize("size", [0, 1, 2, 30, 90, len(ARCHIVE) - 1])
@pytest.mark.parametrize("timestamp", [1004, 1003], ids=["our name", "the latest key that is left"])
def test_half_an_archive_beside_old_hides_nothing_and_is_made_again(tmp_path: Path, size: int, timestamp: int) -> None:
    (tmp_path / "cars.jrn").write_bytes(ACTIVE)
    (tmp_path / "cars.jrn.old").write_bytes(OLD)
    half = tmp_path / f"cars.jrn.t{timestamp}.zz"
    half.write_bytes(ARCHIVE[:size])
    reader = Reader(tmp_path / "cars.jrn")
    assert [file.name for file in reader.files()] == ["cars.jrn.old", "cars.jrn"]
    assert [entry.k for entry in reader] == ["a", "b", "a", "c", "b", "d"]
    assert dict(VersionedRecovery.load(tmp_path).recover_at(1002)) == {"a": "first", "b": [1, 2]}
    report = reader.verify()
    assert report.problems == []
    assert {anomaly.file for anomaly in report.anomalies} == {half.name, "cars.jrn.old"}
    assert plan(tmp_path).empty
    VersionedKVStore.open(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert sorted(path.name for path in tmp_path.glob("cars*")) == ["cars.jrn", "cars.jrn.t1004.zz"]
    assert zlib.decompress((tmp_path / "cars.jrn.t1004.zz").read_bytes()) == zlib.decompress(ARCHIVE)
    assert Reader(tmp_path / "cars.jrn").verify().problems == []


def test_old_does_not_count_once_its_archive_is_there_under_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn").write_bytes(ACTIVE)
    (tmp_path / "cars.jrn.old").write_bytes(OLD)
    (tmp_path / "cars.jrn.t1003.zz").write_bytes(ARCHIVE)
    assert [file.name for file in Reader(tmp_path / "cars.jrn").files()] == ["cars.jrn.t1003.zz", "cars.jrn"]
    VersionedKVStore.open(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert sorted(path.name for path in tmp_path.glob("cars*")) == ["cars.jrn", "cars.jrn.t1003.zz"]


def test_another_archive_in_the_place_of_that_of_old_stays(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn").write_bytes(ACTIVE)
    (tmp_path / "cars.jrn.old").write_bytes(OLD)
    other = zlib.compress(journal([(1001, "z", 1)], 900))
    (tmp_path / "cars.jrn.t1004.zz").write_bytes(other)
    VersionedKVStore.open(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert (tmp_path / "cars.jrn.t1004.zz").read_bytes() == other
    assert (tmp_path / "cars.jrn.t1005.zz").exists()


def rotten(*at: int) -> bytes:
    data = bytearray(ACTIVE)
    for position in at:
        data[position] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(rotten(0), id="another version"),
        pytest.param(rotten(20), id="broken metadata"),
        pytest.param(rotten(ACTIVE.index(b"second") + 1), id="a broken entry of the state"),
    ],
)
def test_a_broken_journal_with_changes_of_its_own_is_not_replaced_by_the_one_before_it(data: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    contents = {"cars.jrn": data, "cars.jrn.old": OLD, "cars.jrn.tmp": TEMPORARY}
    for name, content in contents.items():
        write_file(disk, HOME / name, content)
    with pytest.raises(DamagedJournal, match="has not all of its changes"):
        opened(disk)
    tree = read_tree(disk, HOME)
    assert {name: tree[name] for name in contents} == contents


def test_what_took_the_place_of_a_broken_journal_is_told() -> None:
    disk = laid_out(Case("cut", "whole", "absent", "absent", "absent"))
    with opened(disk) as store:
        assert content_of(store) == STATE
        assert store.kept is not None
        file = disk.open(store.kept, "read")
        assert file.read_at(0, 1000) == ACTIVE[:82]
        file.close()
