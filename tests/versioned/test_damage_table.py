"""Accidents of an operator and the verbs: for each the account that is due, what is left, and what is refused.

The store has two archives, with the changes 0 to 3 and 4 to 7, and the active journal with 8 to 11; a change every
second, of the keys a, b, c in turn.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logwright.core.format import Located
from logwright.core.io.disk import RealDisk
from logwright.errors import StorageFailed
from logwright.versioned import Entry, Reader, VersionedRecovery
from logwright.versioned.files.files import archive_name
from tests.cli.support import run
from tests.support.damage import cut, drop, flip_bits, insert, noise, overwrite, shrink
from tests.versioned.samples import Model

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
TEXT = "2023-11-14T22:13:"


def at(number: int) -> int:
    return START + number * SECOND


def built(directory: Path) -> Path:
    model = Model(START)
    for number in range(12):
        model.change(Entry(at(number), "abc"[number % 3], f"value {number}"))
        if number in (3, 7):
            model.rotate()
    return model.write(directory, spare=512)


def place(path: Path, number: int, plus: int = 0) -> int:
    """Where the entry of a change is in the active journal."""
    (found,) = [item.span.start for item in Reader(path).scan(mode="dropmalformed")
                if isinstance(item, Located) and item.file == path.name
                and isinstance(item.record, Entry) and item.record.t == at(number)]  # fmt: skip
    return found + plus


@dataclass(frozen=True)
class Row:
    """An accident, the account, the changes that are left, and the times that are refused."""

    accident: str
    file: str
    damage: Callable[[Path, bytes], bytes | None]
    account: list[str]
    gone: set[int]
    refused: set[int]


SECOND_ARCHIVE = archive_name("cars", at(7))
ARCHIVE_LOST = f"every change from {TEXT}23Z to {TEXT}27Z"
READABLE = "(what can be read there, unproven, are 7 entries of the keys 'b', 'c', 'a')"
ENDED = "when the journal before it ended"
OLDER = "any key may have an older value, or be there again, until it changes"
KNOWN = f"the state is known again from {TEXT}31.000000001Z on"

ROWS = [
    Row("archive cut short", SECOND_ARCHIVE, lambda _, data: shrink(data, 4),
        [f"lost an unknown number of records: {ARCHIVE_LOST} {READABLE}"], {4}, {3, 4, 5, 6}),
    Row("archive cut to nothing", SECOND_ARCHIVE, lambda _, data: b"",
        [f"lost an unknown number of records: {ARCHIVE_LOST}"], {4}, {3, 4, 5, 6}),
    Row("archive, one bit", SECOND_ARCHIVE, lambda _, data: flip_bits(data, 60, 0x08),
        [f"restored by inference: one bit of the archive that ended at {TEXT}27Z"], set(), set()),
    Row("archive, garbage appended", SECOND_ARCHIVE, lambda _, data: data + noise(40), [], set(), set()),
    Row("archive overwritten", SECOND_ARCHIVE, lambda _, data: noise(len(data)),
        [f"lost an unknown number of records: {ARCHIVE_LOST}"], {4}, {3, 4, 5, 6}),
    Row("journal, a bad byte", "cars.jrn", lambda path, data: flip_bits(data, place(path, 9, 3), 0xFF),
        [f"lost at least 1 and at most 2 records: changes from {TEXT}28Z to {TEXT}30Z: {OLDER}; {KNOWN}"], {9},
        {8, 9, 10, 11}),
    Row("journal, bytes inserted", "cars.jrn", lambda path, data: insert(data, place(path, 9), noise(20)),
        [f"lost at least 0 and at most 1 records: changes from {TEXT}28Z to {TEXT}29Z: {OLDER}; {KNOWN}",
         "restored by inference: the position in the header"], set(), {8, 9, 10, 11}),
    Row("journal, bytes deleted", "cars.jrn", lambda path, data: drop(data, place(path, 9, 5), place(path, 9, 8)),
        [f"lost at least 1 and at most 2 records: changes from {TEXT}28Z to {TEXT}30Z: {OLDER}; {KNOWN}"], {9},
        {8, 9, 10, 11}),
    Row("journal, a page of zeros", "cars.jrn", lambda path, data: overwrite(data, place(path, 8), bytes(40)),
        [f"lost at least 1 and at most 4 records: changes from {TEXT}27Z to {TEXT}30Z: {OLDER}; {KNOWN}"], {8, 9},
        {7, 8, 9, 10, 11}),
    Row("journal, cut within an entry", "cars.jrn", lambda path, data: cut(data, place(path, 11, 5)),
        [f"lost at least 1 and at most 2 records: changes from {TEXT}30Z on: {OLDER}"], {11}, {10, 11}),
    Row("journal, the position", "cars.jrn", lambda path, data: overwrite(data, 8, bytes(8)),
        ["restored by inference: the position in the header"], set(), set()),
    Row("journal, the version", "cars.jrn", lambda path, data: overwrite(data, 0, b"\x03"),
        ["restored by inference: the version in the header"], set(), set()),
    Row("journal, a bit of the metadata", "cars.jrn", lambda path, data: flip_bits(data, 25, 0x01),
        ["restored by inference: the metadata: no other bit makes it whole"], set(), set()),
    Row("journal, its beginning overwritten", "cars.jrn", lambda path, data: overwrite(data, 0, b"notes " * 10),
        [f"restored by inference: the header and the metadata, with a guess of when it began: {ENDED}",
         f"lost an unknown number of records: entries of the state that the journal began with at {TEXT}27Z: "
         f"keys that have not changed since may be missing; {KNOWN}"], set(), {7, 8, 9, 10, 11}),
    Row("journal, the metadata overwritten", "cars.jrn", lambda path, data: overwrite(data, 20, noise(20)),
        [f"restored by inference: the header and the metadata, with a guess of when it began: {ENDED}"], set(), set()),
    Row("journal, a torn tail", "cars.jrn", lambda path, data: overwrite(data, place(path, 11, 5), bytes(20)),
        [f"lost at least 0 and at most 2 records: changes from {TEXT}30Z on: {OLDER}"], {11}, {10, 11}),
    Row("journal, an entry removed", "cars.jrn", lambda path, data: drop(data, place(path, 9), place(path, 10)),
        [f"lost at least 0 and at most 2 records: changes from {TEXT}27Z on: {OLDER}"], {9}, {7, 8, 9, 10, 11}),
    Row("journal, cut between entries", "cars.jrn", lambda path, data: cut(data, place(path, 11)),
        [f"lost at least 0 and at most 2 records: changes from {TEXT}27Z on: {OLDER}"], {11}, {7, 8, 9, 10, 11}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.accident.replace(" ", "-"))
def test_each_accident_has_the_expected_account(row: Row, tmp_path: Path) -> None:
    path = built(tmp_path)
    file = tmp_path / row.file
    data = row.damage(path, file.read_bytes())
    assert data is not None
    file.write_bytes(data)
    assert run("verify", path).code == 1
    lines = run("repair", path, "--plan").lines
    found = [line.partition(f" ({row.file}")[0] for line in lines if line.startswith(("lost ", "restored "))]
    assert found == row.account
    outcome = run("repair", path, "--yes")
    assert outcome.code == (1 if row.account else 0)
    assert run("verify", path).code == 0
    assert run("verify", path, "--strict").code == (1 if row.account else 0)
    assert {(entry.t - START) // SECOND for entry in Reader(path)} == set(range(12)) - row.gone
    recovery = VersionedRecovery.load(tmp_path)
    for number in range(12):
        outcome = run("state", path, "--at", str(at(number)))
        assert outcome.code == (2 if number in row.refused else 0), number
        if number not in row.refused and number not in row.gone:
            assert recovery.recover_at(at(number))["abc"[number % 3]] == f"value {number}"
    is_refused = any(line.startswith("lost") for line in row.account)
    assert run("history", path, "a").code == (2 if is_refused else 0)
    assert run("diff", path, str(at(2)), str(at(3))).code == (2 if 3 in row.refused else 0)
    if row.refused and not {2, 11} & row.refused:
        outcome = run("diff", path, str(at(2)), str(at(11)))
        assert outcome.code == 2
        assert ": lost " in outcome.err
    assert run("repair", path, "--undo", "--yes").code == 0
    assert file.read_bytes() == data
    assert run("verify", path, "--strict").code == 1


@pytest.mark.parametrize("name", ["cars.jrn", SECOND_ARCHIVE])
def test_a_file_that_may_not_be_read_is_left_by_a_repair(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path)
    opened = RealDisk.open

    def refused(disk: RealDisk, path: Path, mode: Any) -> Any:
        if path.name == name:
            raise StorageFailed("open", path, OSError(errno.EACCES, "Permission denied"))
        return opened(disk, path, mode)

    monkeypatch.setattr(RealDisk, "open", refused)
    for options in (["--plan"], ["--yes"]):
        outcome = run("repair", tmp_path, *options)
        assert outcome.code == 1
        assert outcome.lines[0].startswith(f"cannot be repaired: {name} @ 0: open {tmp_path / name}: Permission denied")


def test_the_history_after_the_first_archive_was_lost_is_refused(tmp_path: Path) -> None:
    path = built(tmp_path)
    file = tmp_path / archive_name("cars", at(3))
    file.write_bytes(shrink(file.read_bytes(), 4))
    assert run("repair", path, "--yes").code == 1
    outcome = run("history", path, "a")
    assert outcome.code == 2
    assert ": lost " in outcome.err
    assert run("state", path, "--at", str(at(3))).code == 0
    (tmp_path / SECOND_ARCHIVE).unlink()  # as retention does it: the loss is then before all that is kept
    assert run("history", path, "a").code == 0


def test_a_half_finished_copy_of_an_archive_is_lost_and_not_salvaged(tmp_path: Path) -> None:
    path = built(tmp_path)
    file = tmp_path / SECOND_ARCHIVE
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    assert run("repair", path, "--yes").code == 1
    assert not file.exists()
    assert [kept.read_bytes() for kept in (tmp_path / ".logwright" / "cut").glob("*.zz*")] != [whole]
    assert zlib.decompress(whole)
