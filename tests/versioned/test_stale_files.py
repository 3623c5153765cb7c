"""Any remains of a store's files: each of the five absent, whole, empty, broken or cut, in every combination.

`expected` has the expected results, by the rules of `stale_files.py`. In every case

- nothing in a whole file is lost: it is in the journal, in an archive, or kept aside;
- only contents that exist nowhere else are kept aside, as `kept` says;
- a store that is not opened is not changed;
- opening a second time has the same result.
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
from logwright.errors import DamagedJournal, LogwrightError, StorageFailed
from logwright.versioned import Reader, VersionedRecovery
from logwright.versioned.bytes import codec
from logwright.versioned.bytes.layout import ENTRY_START
from logwright.versioned.files.repair import plan
from logwright.versioned.model.store import VersionedKVStore
from tests.support.counts import COUNTS
from tests.support.damage import zeros_after
from tests.support.faulty_disk import FaultyDisk
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
ACTIVE_END, OLD_END = len(ACTIVE.rstrip(b"\0")), len(OLD.rstrip(b"\0"))
ACTIVE_PART_END = len(journal([(1003, "a", "second")], 1004))
OLD_PART_END = len(journal([(1001, "a", "first"), (1002, "b", [1, 2])], 1000))


def shaped(whole: bytes, cut_at: int) -> dict[str, bytes | None]:
    """The shapes of a file. A journal that is cut is as long as before, and zeros are in the place of its end."""
    cut = whole[:cut_at] if whole == ARCHIVE else zeros_after(whole, cut_at)
    return {"absent": None, "whole": whole, "empty": b"", "broken": NOISE, "cut": cut}


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
    """The contents of the store when it is opened; None if it must not be."""
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
    # neither journal has any contents
    return None if case.archive != "absent" or case.temporary in ("whole", "cut") else {}


def kept(case: Case) -> Tree:
    """The parts of an opened store's files that are kept aside, by the name of the file and the position."""
    active, old, temporary, _, half = (case.contents.get(name, b"") for name in FILES)
    found: Tree = {}
    if case.active != "whole" and case.old == "whole":
        found["cars.jrn.@0"] = active.rstrip(b"\0")
    elif case.active == "cut":
        found[f"cars.jrn.@{ACTIVE_PART_END}"] = active[ACTIVE_PART_END:ACTIVE_END]
    elif case.active == "absent" and case.old == "cut":
        found[f"cars.jrn.@{OLD_PART_END}"] = old[OLD_PART_END:OLD_END]
    if case.old == "broken":
        found["cars.jrn.old.@0"] = old
    if expected(case) in (IN_ACTIVE_PART, IN_OLD_PART):
        found["cars.jrn.tmp.@0"] = temporary.rstrip(b"\0")
    if case.half == "whole" and "whole" not in (case.old, case.archive):
        found["cars.jrn.t1004.zz.tmp.@0"] = half
    return {name: data for name, data in found.items() if data}


def kept_in(tree: Tree) -> Tree:
    """The kept copies, by the name of the file and the position."""
    before = ".logwright/cut/"
    return {
        name.removeprefix(before).rpartition(".")[0]: data for name, data in tree.items() if name.startswith(before)
    }


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")


def laid_out(case: Case) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    for name, data in case.contents.items():
        write_file(disk, HOME / name, data)
    return disk


def opened(disk: Any) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", 600, disk=disk, background=False, clock=Clock(5000))


def entries_of(data: bytes) -> Iterator[tuple[int, str, str]]:
    """The complete entries of a journal or of an archive, wherever they are."""
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
        found = {name: data for name, data in after.items() if not name.startswith(".logwright")}
        assert found == case.contents, "a store was touched that is damaged"
        return
    assert content_of(store) == expected(case)
    store.insert("more", 1)
    store.close()
    after = read_tree(disk, HOME)
    copies = ("cars.jrn.tmp",) if expected(case) in (STATE, FOUND) else ()  # beside a whole journal that is valid
    assert all_entries(before, but=copies) <= all_entries(after), "entries are gone"
    assert kept_in(after) == kept(case)
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
def test_every_combination_of_leftovers_matches_the_table(active: str, old: str) -> None:
    for case in CASES:
        if (case.active, case.old) == (active, old):
            try:
                check(case)
            except (AssertionError, LogwrightError) as error:
                raise AssertionError(f"{case}: {error}") from error
            COUNTS.add("hostile inputs", 1, "versioned")


@pytest.mark.parametrize("size", [0, 1, 2, 30, 90, len(ARCHIVE) - 1])
@pytest.mark.parametrize("timestamp", [1004, 1003], ids=["our name", "the latest key that is left"])
def test_partial_archive_beside_old_hides_nothing_and_is_made_again(tmp_path: Path, size: int, timestamp: int) -> None:
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
    VersionedKVStore(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert sorted(path.name for path in tmp_path.glob("cars*")) == ["cars.jrn", "cars.jrn.t1004.zz"]
    assert zlib.decompress((tmp_path / "cars.jrn.t1004.zz").read_bytes()) == zlib.decompress(ARCHIVE)
    assert Reader(tmp_path / "cars.jrn").verify().problems == []


def test_old_does_not_count_once_its_archive_exists_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn").write_bytes(ACTIVE)
    (tmp_path / "cars.jrn.old").write_bytes(OLD)
    (tmp_path / "cars.jrn.t1003.zz").write_bytes(ARCHIVE)
    assert [file.name for file in Reader(tmp_path / "cars.jrn").files()] == ["cars.jrn.t1003.zz", "cars.jrn"]
    VersionedKVStore(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert sorted(path.name for path in tmp_path.glob("cars*")) == ["cars.jrn", "cars.jrn.t1003.zz"]


def test_different_archive_in_place_of_that_of_old_stays(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn").write_bytes(ACTIVE)
    (tmp_path / "cars.jrn.old").write_bytes(OLD)
    other = zlib.compress(journal([(1001, "z", 1)], 900))
    (tmp_path / "cars.jrn.t1004.zz").write_bytes(other)
    VersionedKVStore(tmp_path, "cars", 600, background=False, clock=Clock(5000)).close()
    assert (tmp_path / "cars.jrn.t1004.zz").read_bytes() == other
    assert (tmp_path / "cars.jrn.t1005.zz").exists()


def rotten(*at: int) -> bytes:
    data = bytearray(ACTIVE)
    for position in at:
        data[position] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "position", "why"),
    [
        pytest.param(rotten(0), 0, "its beginning is broken", id="another version"),
        pytest.param(rotten(20), 0, "its beginning is broken", id="broken metadata"),
        pytest.param(
            rotten(ACTIVE.index(b"second") + 1),
            len(journal([], 1004)),
            "entries end before the position",
            id="a broken entry of the state",
        ),
    ],
)
def test_damaged_journal_with_its_own_changes_is_not_replaced_by_its_predecessor(
    data: bytes, position: int, why: str
) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    contents = {"cars.jrn": data, "cars.jrn.old": OLD, "cars.jrn.tmp": TEMPORARY}
    for name, content in contents.items():
        write_file(disk, HOME / name, content)
    with pytest.raises(DamagedJournal, match=f"{why}.*has not all of its changes") as raised:
        opened(disk)
    assert raised.value.position == position
    tree = read_tree(disk, HOME)
    assert {name: tree[name] for name in contents} == contents


def test_replacement_of_a_damaged_journal_is_reported() -> None:
    disk = laid_out(Case("cut", "whole", "absent", "absent", "absent"))
    with opened(disk) as store:
        assert content_of(store) == STATE
        assert store.kept is not None
        file = disk.open(store.kept, "read")
        assert file.read_at(0, 1000) == ACTIVE[:82]
        file.close()


def test_journal_with_the_whole_state_is_used_despite_a_torn_tail() -> None:
    disk = laid_out(Case("absent", "whole", "absent", "absent", "absent"))
    write_file(disk, HOME / "cars.jrn", zeros_after(ACTIVE, ACTIVE.index(b"new")))
    with opened(disk) as store:
        assert content_of(store) == STATE
        assert store.recovered is not None
        assert store.initialized == 1004
    assert zlib.decompress(read_tree(disk, HOME)["cars.jrn.t1004.zz"] or b"") == OLD.rstrip(b"\0")


@pytest.mark.parametrize(
    ("value", "time"),
    [("second", 1005), ("third", 1003)],
    ids=["the same value later", "another value of the same time"],
)
def test_change_of_a_key_of_the_old_journal_is_an_own_change(value: str, time: int) -> None:
    disk = laid_out(Case("absent", "whole", "absent", "absent", "absent"))
    broken = bytearray(journal([(1003, "a", "second"), (1004, "c", 3), (time, "a", value)], 1004, 600))
    broken[20] ^= 0xFF
    write_file(disk, HOME / "cars.jrn", bytes(broken))
    with pytest.raises(DamagedJournal, match="has not all of its changes"):
        opened(disk)


def test_damaged_journal_with_possible_entries_is_not_replaced() -> None:
    disk = laid_out(Case("absent", "whole", "absent", "absent", "absent"))
    write_file(disk, HOME / "cars.jrn", (ENTRY_START + b"\xff") * 1001)
    with pytest.raises(DamagedJournal, match="has not all of its changes"):
        opened(disk)


def test_archive_has_its_name_durably_before_its_journal_is_removed() -> None:
    """A process may have been killed between the rename and the sync of the directory."""
    before = laid_out(Case("whole", "whole", "absent", "absent", "absent"))
    archive = HOME / "cars.jrn.t1004.zz.tmp"
    write_file(before, archive, ARCHIVE)
    before.settle()
    before.rename(archive, HOME / "cars.jrn.t1004.zz")
    *_, disk = before.process_kills(format="")
    opened(disk).close()
    assert [name for name in disk.list_directory(HOME) if name.startswith("cars")] == ["cars.jrn", "cars.jrn.t1004.zz"]
    for state in disk.crash_states(reorder_names=True, format="versioned"):
        names = state.list_directory(HOME)
        assert "cars.jrn.old" in names or "cars.jrn.t1004.zz" in names, state.story


@pytest.mark.parametrize(
    "case",
    [Case("whole", "absent", "absent", "absent", "whole"), Case("cut", "absent", "whole", "absent", "absent")],
    ids=["a temporary archive", "a temporary journal"],
)
def test_file_that_cannot_be_moved_on_a_full_disk_stays_in_place(case: Case) -> None:
    (name,) = (name for name in case.contents if name.endswith(".tmp"))
    data = case.contents[name]
    disk = laid_out(case)
    roomy = disk.copy()
    opened(roomy).close()
    disk.capacity_bytes = len(data) - 1 + sum(len(content or b"") for content in read_tree(roomy, HOME).values())
    with opened(disk) as store:
        assert content_of(store) == expected(case)
    assert read_tree(disk, HOME)[name] == data
    disk.capacity_bytes = None
    opened(disk).close()
    assert name not in disk.list_directory(HOME)


def test_failure_to_move_a_file_aside_is_raised_unless_the_disk_is_full() -> None:
    inner = laid_out(Case("whole", "absent", "absent", "absent", "whole"))
    disk = FaultyDisk(inner, 2, only=["write"])  # the first one is that of the mark
    with pytest.raises(StorageFailed, match="Input/output error"):
        opened(disk)
    assert "/cut/" in disk.failed
    assert inner.open_files == 0
    assert read_tree(inner, HOME)["cars.jrn.t1004.zz.tmp"] == ARCHIVE


def test_unfinished_first_journal_does_not_prevent_opening() -> None:
    disk = laid_out(Case("absent", "absent", "absent", "absent", "absent"))
    write_file(disk, HOME / "cars.jrn.tmp", journal([], 1000, 600))
    with opened(disk) as store:
        assert (len(store), store.kept) == (0, None)
    assert [name for name in disk.list_directory(HOME) if name.startswith("cars")] == ["cars.jrn"]


@pytest.mark.parametrize("name", ["cars.jrn.t1004.zz", "cars.jrn.t1004.zz.tmp"])
def test_archive_without_its_last_byte_is_not_complete(name: str) -> None:
    disk = laid_out(Case("whole", "absent", "absent", "absent", "whole"))
    write_file(disk, HOME / name, ARCHIVE[:-1])
    opened(disk).close()
    is_half = name.endswith(".tmp")
    assert kept_in(read_tree(disk, HOME)) == ({} if is_half else {"cars.jrn.t1004.zz.tmp.@0": ARCHIVE})
