"""Damage in a rotated file: opening the journal for writing changes nothing, however torn the newest file is.

The rotated file is damaged in every possible way, and the newest one has a tail that a crash could have left. If
`verify` finds the damage, a `Queue` and a `Writer` refuse to open, say what to do, and change no byte. If it finds
nothing (the format has no checksums), the tail is cut off, as always, and kept.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import Disk
from logwright.errors import DamagedJournal, LogwrightError, StorageFailed
from logwright.kestrel import recover
from logwright.kestrel.bytes.records import Dialect, Operation
from logwright.kestrel.files import repair
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.queue import Queue
from tests.kestrel.samples import (
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    continue_,
    encoded,
    reserve_as,
    save_xid,
    unremove,
)
from tests.support.counts import COUNTS
from tests.support.damage import (
    Damaged,
    bit_flips,
    drop,
    fuzzed,
    garbage_after,
    hostile_fields,
    insert,
    repeat,
    swap,
    torn_tails,
)
from tests.support.replay import each
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_tree

HOME = Path("/queues")
TORN = [b"\x02\x44\x00", b"\x7f", encoded([addx(b"an item that is cut short")])[:-3], bytes(2), b"\x06\x01"]
"""Tails that a crash may have left after the last operation of the newest file."""
DIALECTS = {
    "documented": [
        save_xid(3),
        add_xid(9, b"nine"),
        RESERVE,
        addx(b"one"),
        RESERVE,
        unremove(4),
        addx(b"2" * 40),
        REMOVE,
    ],
    "kestrel2": [addx(b"one"), addx(b"two"), reserve_as(5), continue_(5, b"three"), reserve_as(6), unremove(6), REMOVE],
}
"""A rotated file of each dialect."""
NEWEST = [addx(b"last"), addx(b"very last")]
Opener = Callable[..., Any]


def open_queue(disk: Disk, dialect: Any) -> Any:
    return Queue(HOME, "cars", dialect=dialect, disk=disk, background=False)


def open_writer(disk: Disk, dialect: Any) -> Any:
    return Writer(HOME / "cars", dialect=dialect, disk=disk)


OPENERS = pytest.mark.parametrize("opener", [open_queue, open_writer])


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def files_of(rotated: bytes, torn: bytes) -> dict[str, bytes | None]:
    """A journal of two rotated files, the second one sound, and the newest followed by some bytes."""
    return {"cars.900": rotated, "cars.950": encoded([addx(b"between")]), "cars": encoded(NEWEST) + torn}


def with_files(files: dict[str, bytes | None]) -> SimulatedDisk:
    disk = SimulatedDisk()
    write_tree(disk, HOME, files)
    return disk


def visible(disk: SimulatedDisk) -> dict[str, bytes | None]:
    """All files except the locks."""
    return {name: data for name, data in read_tree(disk, HOME).items() if not name.startswith(".logwright")}


def swaps(operations: list[Operation]) -> Iterable[tuple[str, Damaged]]:
    """Pieces that are missing, duplicated, in the wrong place, or foreign."""
    data = encoded(operations)
    edges = [0, 1, 5, len(data) // 3, len(data) // 2, len(data) - 2, len(data)]
    for start, middle, end in zip(edges, edges[1:], edges[2:], strict=False):
        for name, changed in (
            ("drop", drop(data, start, middle)),
            ("repeat", repeat(data, start, end)),
            ("swap", swap(data, start, middle, end)),
            ("insert", insert(data, middle, b"\x0b\xff\x02\x80\x7f")),
        ):
            yield f"{name} {start} {middle} {end}", Damaged(name, start, changed)


def damages(kind: str, operations: list[Operation]) -> Iterable[Damaged]:
    data = encoded(operations)
    if kind == "torn":
        return torn_tails(data)
    if kind == "bits":
        return bit_flips(data)
    if kind == "garbage":
        return garbage_after(data, (1, 2, 3, 7, 30))
    if kind == "lengths":
        return hostile_fields(data, [(position, 4) for position in range(0, len(data) - 4, 3)])
    if kind == "pieces":
        return each(swaps(operations))
    return fuzzed(data, 150)


def refusal(opener: Opener, disk: Disk, dialect: Any) -> str:
    """The error on opening a journal; empty if it was opened, and closed again."""
    try:
        opener(disk, dialect).close()
    except DamagedJournal as error:
        return str(error)
    return ""


def check_refused_or_sound(disk: SimulatedDisk, opener: Opener, dialect: Any) -> bool:
    """Open a journal with a torn tail for writing; whether damage has prevented this."""
    reader = Reader(HOME / "cars", dialect=dialect, disk=disk)
    bad = [problem for problem in reader.verify().problems if problem.file != "cars"]
    before = visible(disk)
    said = refusal(opener, disk, dialect)
    if bad:
        place = re.escape(f"{HOME / bad[0].file} @ {bad[0].position}: ")
        hint = "nothing was changed: run `logwright verify /queues/cars` .*`logwright repair /queues/cars`"
        assert re.fullmatch(f"{place}.*{hint}", said)
    if said:
        assert bad or said.startswith("/queues/cars @ ")
        assert visible(disk) == before
    return bool(said)


@OPENERS
@pytest.mark.parametrize("kind", ["torn", "bits", "garbage", "lengths", "pieces", "fuzz"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_newest_file_is_never_cut_after_a_damaged_one(dialect: Dialect, kind: str, opener: Opener) -> None:
    refused = 0
    for count, damaged in enumerate(damages(kind, DIALECTS[dialect])):
        disk = with_files(files_of(damaged.data, TORN[count % len(TORN)]))
        refused += check_refused_or_sound(disk, opener, dialect)
        COUNTS.add(
            "bit flips" if kind == "bits" else "torn tails" if kind == "torn" else "hostile inputs", 1, "kestrel"
        )
    assert refused > 3


@OPENERS
@pytest.mark.parametrize("dialect", DIALECTS)
def test_newest_file_is_never_cut_after_a_damaged_one_with_a_detected_dialect(dialect: Dialect, opener: Opener) -> None:
    refused = 0
    for kind in ("torn", "garbage", "pieces"):
        for count, damaged in enumerate(damages(kind, DIALECTS[dialect])):
            disk = with_files(files_of(damaged.data, TORN[count % len(TORN)]))
            refused += check_refused_or_sound(disk, opener, "auto")
            COUNTS.add("torn tails", 1, "kestrel")
    assert refused > 3


@OPENERS
@pytest.mark.parametrize("torn", TORN, ids=range(len(TORN)))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_sound_journal_has_its_torn_tail_cut_and_kept(dialect: Dialect, torn: bytes, opener: Opener) -> None:
    disk = with_files(files_of(encoded(DIALECTS[dialect]), torn))
    opened = opener(disk, dialect)
    assert opened.recovered is not None
    assert opened.recovered.size == len(torn)
    opened.close()
    assert visible(disk)["cars"][: len(encoded(NEWEST))] == encoded(NEWEST)  # type: ignore[index]
    assert torn in read_tree(disk, HOME).values()


@OPENERS
def test_sound_newest_file_is_opened_by_a_writer_and_by_no_queue(opener: Opener) -> None:
    disk = with_files(files_of(encoded(DIALECTS["documented"]) + b"\x7f", b""))
    before = visible(disk)
    if opener is open_queue:
        with pytest.raises(DamagedJournal):
            opener(disk, "documented")
    else:
        opener(disk, "documented").close()  # it only appends, and nothing is cut
    assert visible(disk) == before


def test_recovery_cuts_nothing_after_a_damaged_file() -> None:
    disk = with_files(files_of(b"\x7f", b"\x7f"))
    before = visible(disk)
    with pytest.raises(DamagedJournal, match=r"cars\.900 @ 0: .*nothing was changed"):
        recover(HOME / "cars", disk=disk)
    assert visible(disk) == before


@OPENERS
@pytest.mark.parametrize("dialect", DIALECTS)
def test_repair_named_by_the_error_helps(dialect: Dialect, opener: Opener) -> None:
    rotated = encoded(DIALECTS[dialect])
    disk = with_files(files_of(rotated + b"\x7f\x7f", b"\x02\x44\x00"))
    with pytest.raises(DamagedJournal, match=re.escape(f"cars.900 @ {len(rotated)}: ")):
        opener(disk, dialect)
    repair.apply(HOME / "cars", repair.plan(HOME / "cars", disk=disk), disk=disk)
    opener(disk, dialect).close()
    doubted = {"documented": 1, "kestrel2": 2}[dialect]  # removals next to bad bytes are not trusted
    assert visible(disk)["cars.900"] == encoded(DIALECTS[dialect][:-doubted])
    state = Reader(HOME / "cars", dialect=dialect, disk=disk).queue_state()
    assert [item.data for item in state.items][-3:] == [b"between", b"last", b"very last"]


class UnreadableDisk:
    """A disk that cannot read one file."""

    def __init__(self, inner: Disk, name: str) -> None:
        self._inner = inner
        self._name = name

    def open(self, path: Path, mode: Any) -> Any:
        file = self._inner.open(path, mode)
        return _UnreadableFile(file, path) if path.name == self._name else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _UnreadableFile:
    def __init__(self, inner: Any, path: Path) -> None:
        self._inner = inner
        self._path = path

    def read_into(self, position: int, buffer: memoryview) -> int:
        raise StorageFailed("read", self._path, OSError(errno.EIO, "the disk is worn out"))

    def read_at(self, position: int, size: int) -> bytes:
        raise StorageFailed("read", self._path, OSError(errno.EIO, "the disk is worn out"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@OPENERS
@pytest.mark.parametrize("name", ["cars.900", "cars.950"])
def test_unreadable_rotated_file_keeps_the_newest_one_unchanged(name: str, opener: Opener) -> None:
    disk = with_files(files_of(encoded(DIALECTS["documented"]), b"\x02\x44\x00"))
    before = visible(disk)
    worn: Any = UnreadableDisk(disk, name)
    with pytest.raises(LogwrightError, match=f"{name}: the disk is worn out"):
        opener(worn, "documented")
    assert visible(disk) == before
    opener(disk, "documented").close()


# --- packs ------------------------------------------------------------------------------------------------------------


@OPENERS
@pytest.mark.parametrize("dialect", DIALECTS)
def test_damaged_pack_removes_no_file_that_it_replaces(dialect: Dialect, opener: Opener) -> None:
    pack = encoded(DIALECTS[dialect])
    others = {"cars.900": encoded([addx(b"old")]), "cars.950": encoded([addx(b"older")]), "cars": encoded(NEWEST)}
    refused = 0
    for damaged in torn_tails(pack):
        disk = with_files({"cars.950.pack": damaged.data, **others})
        before = visible(disk)
        sound = not Reader(HOME / "cars", dialect=dialect, disk=disk).verify().problems
        said = refusal(opener, disk, dialect)
        assert bool(said) != sound
        if said:
            assert said.startswith("/queues/cars.950.pack @ ")
            assert said.endswith("still there: cars.900, cars.950")
            assert visible(disk) == before
            refused += 1
        else:
            assert visible(disk)["cars.950"] == damaged.data
            assert "cars.900" not in visible(disk)
        COUNTS.add("torn tails", 1, "kestrel")
    assert refused > 10


# --- files that were never a journal ----------------------------------------------------------------------------------

TEXTS = {
    "a line": b"a list of things to do\n",
    "a word": b"reminder",
    "in another script": "ein Käse, \u4e00\n".encode() * 200,
}


@OPENERS
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_in_place_of_a_journal_is_refused_and_unchanged(text: bytes, opener: Opener) -> None:
    disk = with_files({"cars": text})
    for _ in range(2):
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            opener(disk, "auto")
    assert visible(disk) == {"cars": text}
    assert not disk.exists(HOME / ".logwright" / "cut")


@OPENERS
@pytest.mark.parametrize("bad", [bytes(100), b"\x89PNG\r\n\x1a\n", b"a" * 100 + b"\x07", b"a word\n"])
def test_file_that_does_not_begin_like_a_journal_is_refused_and_unchanged(bad: bytes, opener: Opener) -> None:
    disk = with_files({"cars": bad})
    with pytest.raises(DamagedJournal, match="nothing was changed: run `logwright verify /queues/cars`"):
        opener(disk, "auto")
    assert visible(disk) == {"cars": bad}
    repair.apply(HOME / "cars", repair.plan(HOME / "cars", disk=disk), disk=disk)
    opener(disk, "auto").close()
    assert visible(disk) == {"cars": b""}


CUT_SHORT = [encoded([addx(b"an item that is cut short")])[:-3], b"\x02\x44\x00", b"\x06\x01"]


@OPENERS
@pytest.mark.parametrize("torn", CUT_SHORT, ids=range(len(CUT_SHORT)))
def test_crashed_start_of_a_new_journal_is_cut_and_kept(torn: bytes, opener: Opener) -> None:
    disk = with_files({"cars": torn})
    with opener(disk, "auto") as found:
        assert (found.recovered.start, found.recovered.end) == (0, len(torn))
        assert disk.open(found.kept, "read").read_at(0, 1000) == torn
    assert visible(disk) == {"cars": b""}
