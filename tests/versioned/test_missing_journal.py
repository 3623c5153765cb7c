"""A store of which the active journal is missing: what is known ends with the last archive, and everything says so.

The store has two archives, with the changes 0 to 3 and 4 to 7, and the active journal with 8 to 11, as in
`test_damage_table.py`.
"""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK, RealDisk
from logwright.errors import DamagedJournal, Gap, HistoryUnavailable, StorageFailed
from logwright.versioned import Entry, Reader, Scanner, VersionedKVStore, VersionedRecovery
from logwright.versioned.files import repair
from logwright.versioned.files.files import archive_name
from logwright.versioned.model import states
from logwright.versioned.model.replay import replay
from tests.cli.support import run
from tests.support.damage import flip_bits, noise, shrink
from tests.support.trees import Tree, read_tree
from tests.versioned.samples import Model
from tests.versioned.stores import journal
from tests.versioned.test_damage_table import START, at, built

FIRST, LAST = archive_name("cars", at(3)), archive_name("cars", at(7))
REASON = "the active journal is missing"
CHANGES = [Entry(at(number), "abc"[number % 3], f"value {number}") for number in range(12)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = built(tmp_path)
    found.unlink()
    return found


def files_of(path: Path) -> Tree:
    """The files of the store, without Logwright's own."""
    found = read_tree(REAL_DISK, path.parent)
    return {name: data for name, data in found.items() if not name.startswith(".logwright")}


def state_after(number: int) -> dict[str, object]:
    return {key: value for key, (value, _) in replay(CHANGES[: number + 1]).items()}


def test_verify_and_inspect_report_it(path: Path) -> None:
    report = Reader(path).verify()
    assert [(problem.file, problem.position, problem.kind) for problem in report.problems] == [("cars.jrn", 0, "gap")]
    assert REASON in report.problems[0].message
    assert "2023-11-14T22:13:27Z" in report.problems[0].message
    assert run("verify", path).code == run("verify", path.parent).code == 1
    assert run("inspect", path).code == 1


def test_questions_that_depend_on_it_are_refused(path: Path) -> None:
    recovery = VersionedRecovery.load(path.parent)
    assert recovery.recover_at(at(6)) == state_after(6)
    assert recovery.diff(at(1), at(6))["added"] == {"c": "value 5"}
    for ask in (
        recovery.recover_current,
        lambda: recovery.recover_at(at(7)),
        lambda: recovery.diff(at(1), at(9)),
        lambda: list(recovery.changes(at(1), at(9))),
        lambda: recovery.history("a"),
    ):
        with pytest.raises(HistoryUnavailable, match=REASON):
            ask()
    assert run("state", path).code == run("state", path, "--at", str(at(9))).code == 2
    assert run("state", path, "--at", str(at(6))).code == 0
    assert run("history", path, "a").code == 2
    assert run("diff", path, str(at(1)), str(at(9))).code == 2
    assert run("diff", path, str(at(1)), str(at(6))).code == 0


def test_a_permissive_answer_has_the_reservation(path: Path) -> None:
    recovery = VersionedRecovery.load(path.parent, mode="permissive")
    for ask in (recovery.recover_current, lambda: recovery.recover_at(at(9))):
        assert ask() == state_after(7)
        assert [(damage.file, damage.kind) for damage in recovery.damages] == [("cars.jrn", "gap")]
    assert [entry.t for entry in recovery.history("a")] == [at(0), at(3), at(6)]
    assert [(damage.file, damage.kind) for damage in recovery.damages] == [("cars.jrn", "gap")]


def test_reading_ends_with_the_damage(path: Path) -> None:
    *entries, damage = Reader(path).entries(mode="permissive")
    assert entries == CHANGES[:8]
    assert isinstance(damage, Damage)
    assert (damage.file, damage.start, damage.kind) == ("cars.jrn", 0, "gap")
    with pytest.raises(Gap, match=REASON):
        list(Reader(path))
    outcome = run("dump", path)
    assert outcome.code == 1
    assert REASON in outcome.err
    last = Reader(path).next
    assert list(Reader(path).entries(last, mode="permissive")) == []


def test_a_scanner_reports_it_once(path: Path) -> None:
    scanner = Scanner(path, timeout=0, mode="permissive")
    assert [isinstance(item, Damage) for item in scanner] == [False] * 8 + [True]
    assert list(scanner) == []


def test_the_states_of_many_stores_refuse_it(path: Path) -> None:
    (part,) = states.plan(REAL_DISK, path.parent, at(9))
    with pytest.raises(HistoryUnavailable, match=REASON):
        states.read(REAL_DISK, part, at(9), "failfast")
    (part,) = states.plan(REAL_DISK, path.parent, at(5))
    assert states.read(REAL_DISK, part, at(5), "failfast").latest is not None


def test_archives_that_are_asked_for_by_name_answer(path: Path) -> None:
    for recovery in (
        VersionedRecovery.load(path.with_name(LAST)),
        VersionedRecovery.load([path.with_name(FIRST), path.with_name(LAST)]),
    ):
        assert recovery.recover_current() == state_after(7)
    assert run("state", path.with_name(LAST)).code == 0


def test_a_writer_refuses_it_and_names_the_repair(path: Path) -> None:
    with pytest.raises(DamagedJournal, match=r"no active journal.*logwright repair"):
        VersionedKVStore(path.parent, "cars")


def test_repair_makes_a_journal_of_the_last_archive_and_accounts_for_the_rest(path: Path) -> None:
    plan = repair.plan(path)
    outcome = run("repair", path, "--yes", "--json")
    assert outcome.code == 1
    (loss,) = json.loads(outcome.out)["losses"]
    assert (loss["file"], loss["position"], loss["bytes"], loss["kind"]) == ("cars.jrn", 0, 0, "lost")
    assert (loss["at_least"], loss["at_most"]) == (0, None)
    assert loss["what"] == "every change from 2023-11-14T22:13:27Z on"
    assert [loss.what for loss in plan.losses] == [loss["what"]]
    (written,) = Reader(path).losses()
    assert written.fields["from"] == at(7)
    assert written.fields["to"] > at(11)
    assert run("verify", path).code == 0
    assert run("verify", path, "--strict").code == 1
    assert repair.plan(path).empty
    recovery = VersionedRecovery.load(path.parent)
    assert recovery.recover_current() == state_after(7)
    assert recovery.recover_current().timestamps == {"a": at(6), "b": at(7), "c": at(5)}
    assert recovery.recover_at(at(6)) == state_after(6)
    for number in (7, 9, 11):
        with pytest.raises(HistoryUnavailable, match=": lost "):
            recovery.recover_at(at(number))
    with pytest.raises(HistoryUnavailable, match=": lost "):
        recovery.history("a")
    assert list(Reader(path)) == CHANGES[:8]
    with VersionedKVStore(path.parent, "cars") as store:
        assert dict(store.items()) == state_after(7)
        store.insert("d", 1)
        store.rotate()
    assert Reader(path).verify().sound
    assert Reader(path).losses() == [written]


def test_undo_removes_the_journal_again(path: Path) -> None:
    before = files_of(path)
    assert run("repair", path.parent, "--yes").code == 1
    assert path.exists()
    assert run("repair", path.parent, "--undo", "--yes").code == 0
    assert files_of(path) == before
    assert Reader(path).losses() == []
    assert run("verify", path).code == 1


def test_unknown_fields_of_entries_are_kept(tmp_path: Path) -> None:
    model = Model(START)
    entry = Entry(at(0), "a", 1, {"note": [1]})
    model.change(entry)
    model.rotate()
    path = model.write(tmp_path)
    path.unlink()
    assert run("repair", path, "--yes").code == 1
    assert list(Reader(path)) == [entry]
    (located, *_) = [item for item in Reader(path).scan() if item.file == "cars.jrn" and item.span.start > 17]
    assert located.record == entry


@pytest.mark.parametrize("active", [b"", bytes(4096), noise(300), b"\x02"])
def test_a_journal_without_any_entry_is_replaced_in_the_same_way(active: bytes, tmp_path: Path) -> None:
    path = built(tmp_path)
    path.write_bytes(active)
    assert run("verify", path).code == 1
    assert run("repair", path, "--yes").code == 1
    (loss,) = Reader(path).losses()
    assert (loss.bytes, loss.at_least, loss.at_most, loss.fields["from"]) == (len(active), 0, None, at(7))
    assert Reader(path).verify().sound
    assert VersionedRecovery.load(tmp_path).recover_current() == state_after(7)
    assert repair.plan(path).empty
    assert run("repair", path, "--undo", "--yes").code == 0
    assert path.read_bytes() == active


def test_the_last_archive_is_damaged_too(path: Path) -> None:
    file = path.with_name(LAST)
    file.write_bytes(shrink(file.read_bytes(), 4))
    assert run("repair", path, "--yes").code == 1
    assert VersionedRecovery.load(path.parent).recover_current() == state_after(3)
    assert Reader(path).verify().sound
    assert repair.plan(path).empty
    assert {(loss.file, loss.fields["from"]) for loss in Reader(path).losses()} == {
        ("cars.jrn", at(3)), (LAST, at(3))
    }  # fmt: skip
    with pytest.raises(HistoryUnavailable):
        VersionedRecovery.load(path.parent).recover_at(at(5))


def test_one_bit_of_the_last_archive_is_restored_first(path: Path) -> None:
    file = path.with_name(LAST)
    file.write_bytes(flip_bits(file.read_bytes(), 60, 0x08))
    assert run("repair", path, "--yes").code == 1
    assert VersionedRecovery.load(path.parent).recover_current() == state_after(7)
    assert [loss.kind for loss in Reader(path).losses()] == ["restored", "lost"]


def test_without_any_whole_archive_nothing_is_changed(path: Path) -> None:
    for name in (FIRST, LAST):
        path.with_name(name).write_bytes(b"no archive")
    before = files_of(path)
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert "no archive of the store is whole" in outcome.out
    assert files_of(path) == before


def test_a_last_archive_that_cannot_be_read_or_is_too_large_is_not_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(repair, "_MOST_ARCHIVE_BYTES", 100)
        outcome = run("repair", path, "--yes")
        assert outcome.code == 1
        assert "decompress it" in outcome.out
    opened = RealDisk.open

    def refused(disk: RealDisk, asked: Path, mode: Any) -> Any:
        if asked.name == LAST:
            raise StorageFailed("open", asked, OSError(errno.EACCES, "Permission denied"))
        return opened(disk, asked, mode)

    monkeypatch.setattr(RealDisk, "open", refused)
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert "Permission denied" in outcome.out
    assert not path.exists()


def test_a_temporary_journal_with_entries_is_left_to_the_operator(path: Path) -> None:
    path.with_name("cars.jrn.tmp").write_bytes(zlib.decompress(path.with_name(LAST).read_bytes()))
    assert run("verify", path).code == 1
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert "rename it to cars.jrn" in outcome.out
    assert not path.exists()


def test_an_interrupted_rotation_is_not_damage(tmp_path: Path) -> None:
    path = built(tmp_path)
    path.rename(path.with_name("cars.jrn.old"))
    state = [(time, key, value) for key, (value, time) in replay(CHANGES).items()]
    path.with_name("cars.jrn.tmp").write_bytes(journal(state, at(11), 4096))
    assert Reader(path).verify().sound
    assert VersionedRecovery.load(tmp_path).recover_current() == state_after(11)
    assert repair.plan(path).empty
    with VersionedKVStore(tmp_path, "cars") as store:
        assert dict(store.items()) == state_after(11)
    assert Reader(path).losses() == []


@pytest.mark.parametrize(
    "temporary",
    [
        pytest.param(b"", id="empty"),
        pytest.param(noise(100), id="noise"),
        pytest.param(journal([(at(11), "a", 1)], at(11))[:-1], id="cut"),
        pytest.param(journal([(at(12), "a", 1)], at(11)), id="with a change of its own"),
    ],
)
def test_temporary_journal_that_no_rotation_leaves_explains_no_missing_one(temporary: bytes, tmp_path: Path) -> None:
    path = built(tmp_path)
    path.rename(path.with_name("cars.jrn.old"))
    path.with_name("cars.jrn.tmp").write_bytes(temporary)
    assert [(problem.file, problem.kind) for problem in Reader(path).verify().problems] == [("cars.jrn", "gap")]
    VersionedKVStore(tmp_path, "cars").close()
    assert [loss.fields["from"] for loss in Reader(path).losses()] == [at(11)]


@pytest.mark.parametrize("active", [None, b"", b"no journal"])
@pytest.mark.parametrize("way", ["repair", "open"])
def test_old_in_the_place_of_a_journal_that_may_have_been_lost_is_accounted_for(
    way: str, active: bytes | None, tmp_path: Path
) -> None:
    path = built(tmp_path)
    path.rename(path.with_name("cars.jrn.old"))
    if active is not None:
        path.write_bytes(active)
    before = files_of(path)
    kind = {None: "gap", b"": "torn_tail", b"no journal": "malformed"}[active]
    assert [(problem.file, problem.kind) for problem in Reader(path).verify().problems] == [("cars.jrn", kind)]
    if way == "repair":
        assert run("repair", path, "--yes").code == 1
    else:
        VersionedKVStore(tmp_path, "cars").close()
    (loss,) = Reader(path).losses()
    assert (loss.file, loss.at_least, loss.at_most, loss.fields["from"]) == ("cars.jrn", 0, None, at(11))
    assert Reader(path).verify().sound
    assert VersionedRecovery.load(tmp_path).recover_current() == state_after(11)
    assert repair.plan(path).empty
    if way == "repair":
        assert run("repair", path, "--undo", "--yes").code == 0
        assert files_of(path) == before


def test_an_earlier_copy_of_the_journal_is_refused(tmp_path: Path) -> None:
    model = Model(START)
    for entry in CHANGES[:6]:
        model.change(entry)
    path = model.write(tmp_path)
    earlier = path.read_bytes()
    model.rotate()
    model.change(CHANGES[6])
    model.write(tmp_path).write_bytes(earlier)
    assert [problem.kind for problem in Reader(path).verify().problems] == ["gap"]
    with pytest.raises(DamagedJournal, match="not with what was at the end"):
        VersionedKVStore(tmp_path, "cars")
    outcome = run("repair", path, "--yes")
    assert outcome.code == 1
    assert "move one of them away" in outcome.out
    assert path.read_bytes() == earlier


def test_old_that_is_no_journal_is_accounted_for(tmp_path: Path) -> None:
    path = built(tmp_path)
    path.with_name(LAST).rename(path.with_name("cars.jrn.old"))
    repaired = repair.plan(path)
    VersionedKVStore(tmp_path, "cars").close()
    (loss,) = Reader(path).losses()
    assert (loss.fields["from"], loss.fields["to"]) == (at(3), at(7))
    assert [planned.fields for planned in repaired.losses] == [loss.fields]


def test_a_directory_in_its_place_is_reported_and_left(path: Path) -> None:
    path.mkdir()
    assert "gap" in [problem.kind for problem in Reader(path).verify().problems]
    outcome = run("repair", path.parent, "--yes")
    assert outcome.code == 1
    assert "is a directory" in outcome.out
    assert path.is_dir()


def test_a_missing_archive_is_accounted_for_by_a_repair(tmp_path: Path) -> None:
    path = built(tmp_path)
    path.with_name(LAST).unlink()
    assert run("verify", path).code == 1
    assert run("repair", path, "--yes").code == 1
    assert run("verify", path).code == 0
    (loss,) = Reader(path).losses()
    assert (loss.at_least, loss.at_most, loss.fields["from"], loss.fields["to"]) == (0, None, at(3), at(7))
    assert run("state", path, "--at", str(at(5))).code == 2
    assert run("diff", path, str(at(2)), str(at(9))).code == 2
    assert run("diff", path, str(at(8)), str(at(9))).code == 0
    assert [entry.t for entry in Reader(path)][:4] == [at(number) for number in range(4)]
    assert repair.plan(path).empty
    assert run("repair", path, "--undo", "--yes").code == 0
    assert run("verify", path).code == 1
