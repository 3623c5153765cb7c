"""A file that cannot be read is one problem with the system's reason, and nothing that depends on it is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, sej, yeltsin
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.repair.plan import Repairs
from logwright.errors import LogwrightError, StorageFailed
from logwright.kestrel.files.repair import REPAIRS as KESTREL_REPAIRS
from logwright.sej.files.repair import REPAIRS as SEJ_REPAIRS
from logwright.yeltsin.files.repair import REPAIRS as YELTSIN_REPAIRS
from tests.cli.support import run
from tests.kestrel.samples import REMOVE, addx, encoded, reserve_as
from tests.support.access import guarded
from tests.support.damage import overwrite
from tests.support.trees import read_tree


@dataclass(frozen=True)
class Journal:
    """A journal: its path, its files in their order, the records of each, and how it is read, repaired and written.

    `writers` refuse a last file that they cannot read, and the last `replaying` of them any file.
    """

    path: Path
    files: list[Path]
    records: list[int]
    reader: Callable[..., Any]
    repairs: Repairs
    writers: list[Callable[[Path, Disk], Any]]
    replaying: int = 0

    def refusing(self, number: int) -> list[Callable[[Path, Disk], Any]]:
        """The writers that refuse a file without access."""
        return self.writers if number + 1 == len(self.files) else self.writers[len(self.writers) - self.replaying :]


def messages(directory: Path) -> Journal:
    path = directory / "events"
    with sej.Writer(path, segment_size=150, checksums=True) as writer:
        for number in range(12):
            writer.append(b"message %d" % number)
        writer.append(b"the last one")
    files = sorted((path / "jnl").glob("*.jnl"))
    writers = [lambda path, disk: sej.Writer(path, disk=disk)]
    return Journal(path, files, [5, 5, 3], sej.Reader, SEJ_REPAIRS, writers)


def queue(directory: Path) -> Journal:
    """The dialect of the newest file shows in itself only, and in the first file in the dialect of the releases."""
    path = directory / "cars"
    with kestrel.Writer(path, dialect="kestrel2") as writer:
        for number in range(6):
            writer.append(addx(b"item %d" % number))
            if number % 3 == 2:
                writer.append(reserve_as(number))
                writer.rotate()
        writer.append(reserve_as(9))
        writer.append(REMOVE)
    files = [*sorted(directory.glob("cars.*")), path]
    writers: list[Callable[[Path, Disk], Any]] = [
        lambda path, disk: kestrel.Writer(path, disk=disk),
        lambda path, disk: kestrel.Queue(path.parent, path.name, disk=disk),
    ]
    return Journal(path, files, [4, 4, 2], kestrel.Reader, KESTREL_REPAIRS, writers, 1)


def transactions(directory: Path) -> Journal:
    path = directory / "pages.jrnl"
    with yeltsin.TransactionJournal(path) as journal:
        for number in range(3):
            journal.append([yeltsin.Modify(30, 0, b"000", b"%03d" % number)], timestamp=1_700_000_000 + number, flags=1)
    writers = [lambda path, disk: yeltsin.TransactionJournal(path, disk=disk)]
    return Journal(path, [path], [3], yeltsin.Reader, YELTSIN_REPAIRS, writers)


CASES = [
    *((messages, number) for number in range(3)),
    *((queue, number) for number in range(3)),
    (transactions, 0),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Journal, int]:
    make, number = request.param
    return make(tmp_path), number


def check(journal: Journal, number: int, disk: Disk, target: Path) -> None:
    """One problem, for this file; the records of the others are counted; a plan leaves it, and does nothing."""
    refused = journal.files[number]
    with pytest.raises(StorageFailed) as raised:
        disk.open(refused, "read")
    report = journal.reader(journal.path, disk=disk).verify()
    ((file, position, kind, message),) = [
        (problem.file, problem.position, problem.kind, problem.message) for problem in report.problems
    ]
    assert (Path(file).name, position, kind, message) == (refused.name, 0, "unreadable", str(raised.value))
    assert report.records == sum(journal.records) - journal.records[number]
    assert report.anomalies == []
    summary = journal.reader(journal.path, disk=disk).summary()
    assert summary.health == f"damaged at {file} @ 0: {raised.value}"
    plan = journal.repairs.plan(target, disk=disk)
    assert (plan.left, plan.steps, plan.losses) == ((f"{file} @ 0: {raised.value}",), (), ())
    with pytest.raises(StorageFailed, match=refused.name):
        list(journal.reader(journal.path, disk=disk))


def test_file_without_access_is_one_problem(case: tuple[Journal, int]) -> None:
    journal, number = case
    before = read_tree(REAL_DISK, journal.path.parent)
    disk = guarded(journal.files[number])
    check(journal, number, disk, journal.path)
    for opener in journal.refusing(number):
        with pytest.raises(StorageFailed, match="Permission denied; give this user access to it"):
            opener(journal.path, disk)
    after = {name: data for name, data in read_tree(REAL_DISK, journal.path.parent).items() if ".lck" not in name}
    assert after == {name: data for name, data in before.items() if ".lck" not in name}
    assert journal.reader(journal.path).verify().sound


@pytest.mark.parametrize("case", CASES[:-1], indirect=True, ids=lambda case: f"{case[0].__name__}-{case[1]}")
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_directory_or_link_in_place_of_a_file_is_one_problem(case: tuple[Journal, int], kind: str) -> None:
    journal, number = case
    file = journal.files[number]
    kept = file.rename(journal.path.parent / "elsewhere")
    if kind == "directory":
        file.mkdir()
    else:
        file.symlink_to(kept)
    target = journal.path.parent if file == journal.path else journal.path
    check(journal, number, REAL_DISK, target)
    for opener in journal.writers if journal.replaying else journal.refusing(number):
        with pytest.raises(LogwrightError, match=file.name):
            opener(journal.path, REAL_DISK)
    assert (run("verify", target).code, run("repair", target, "--yes").code, run("dump", target).code) == (1, 1, 2)
    file.rmdir() if kind == "directory" else file.unlink()
    kept.rename(file)
    assert journal.reader(journal.path).verify().sound


def test_damage_of_a_queue_with_an_unreadable_file_is_left(tmp_path: Path) -> None:
    journal = queue(tmp_path)
    journal.path.write_bytes(b"\xff" + encoded([REMOVE, REMOVE]))
    for number in (0, 1):
        plan = journal.repairs.plan(journal.path, disk=guarded(journal.files[number]))
        assert [line.split(" @ ")[0] for line in plan.left] == [journal.files[number].name]
        assert (plan.steps, plan.losses) == ((), ())
    assert journal.repairs.plan(journal.path).steps


@pytest.mark.parametrize("number", [0, 1])
def test_what_shows_a_missing_segment_stays_beside_an_unreadable_one(tmp_path: Path, number: int) -> None:
    journal = messages(tmp_path)
    journal.files[2].unlink()
    plan = journal.repairs.plan(journal.path, disk=guarded(journal.files[number]))
    assert [line.split(" @ ")[0] for line in plan.left] == [
        f"jnl/{journal.files[number].name}",
        f"jnl/{journal.files[2].name}",
    ]
    assert plan.left[1].endswith("; another segment cannot be read")
    assert (plan.steps, plan.losses) == ((), ())
    assert [loss.file for loss in journal.repairs.plan(journal.path).losses] == [f"jnl/{journal.files[2].name}"]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["access", "directory", "link"])
def test_segment_whose_checksums_cannot_be_read_is_not_repaired_without_them(
    tmp_path: Path, number: int, kind: str
) -> None:
    """The checksums would show that a byte of a value has changed too."""
    journal = messages(tmp_path)
    segment = journal.files[number]
    side = segment.with_name(segment.name + ".crc")
    segment.write_bytes(overwrite(overwrite(segment.read_bytes(), 24, b"M"), segment.stat().st_size - 1, b"\x77"))
    kept = side.read_bytes()
    if kind != "access":
        side.unlink()
        side.mkdir() if kind == "directory" else side.symlink_to(segment)
    disk = guarded(side) if kind == "access" else REAL_DISK
    with pytest.raises(StorageFailed) as raised:
        disk.open(side, "read")
    report = journal.reader(journal.path, disk=disk).verify()
    unreadable = [(problem.file, problem.message) for problem in report.problems if problem.kind == "unreadable"]
    assert unreadable == [(f"jnl/{side.name}", str(raised.value))]
    plan = journal.repairs.plan(journal.path, disk=disk)
    assert (plan.left, plan.steps, plan.losses) == ((f"jnl/{side.name} @ 0: {raised.value}",), (), ())
    if kind != "access":
        side.rmdir() if kind == "directory" else side.unlink()
        side.write_bytes(kept)
    assert "checksum" in {problem.kind for problem in journal.reader(journal.path).verify().problems}
