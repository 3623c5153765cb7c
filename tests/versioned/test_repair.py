"""Repairing stores: the plan, its exact execution, and undo."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logwright.core.format import Located
from logwright.core.io.disk import REAL_DISK
from logwright.core.repair.losses import add_losses
from logwright.core.repair.plan import Create, Cut, Patch, Remove, Rename
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, HistoryUnavailable, WrongUse
from logwright.versioned import Entry, Reader, Retention, VersionedKVStore, VersionedRecovery
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.files.archiving import initialized_of
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.repair import apply, plan, undo
from logwright.versioned.model import states
from tests.support.damage import damage_file, flip_bits, overwrite, shrink
from tests.support.trees import differences, read_tree
from tests.versioned.samples import START, Model, journal, with_position
from tests.versioned.stores import Clock

ENTRIES = [Entry(START + number, f"key {number % 3}", number) for number in range(12)]


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "cars.jrn"
    path.write_bytes(data)
    return path


def repaired(path: Path) -> list[Entry]:
    """The changes after a repair, which leaves a sound, writable store and can be undone."""
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
    with VersionedKVStore(home, "cars", 4096, background=False) as store:
        store.insert("after", True)
    assert list(Reader(path))[:-1] == found
    return found


@pytest.mark.parametrize("position", [-3, 5, 2**40], ids=["within an entry", "past the file", "far past it"])
def test_position_is_set_after_the_last_complete_entry(position: int, tmp_path: Path) -> None:
    data = journal(START, ENTRIES)
    path = written(tmp_path, with_position(data, len(data) + position))
    (step,) = plan(path).steps
    assert isinstance(step, Patch)
    assert (step.position, step.new) == (8, len(data).to_bytes(8, "little"))
    assert repaired(path) == ENTRIES


def test_position_below_the_header_is_repaired(tmp_path: Path) -> None:
    path = written(tmp_path, with_position(journal(START, ENTRIES, spare=500), 3))
    assert list(Reader(path).entries(mode="dropmalformed")) == []
    assert repaired(path) == ENTRIES


def test_torn_tail_is_excluded_by_repair(tmp_path: Path) -> None:
    data = journal(START, ENTRIES)
    path = written(tmp_path, with_position(data[:-4], len(data) - 4))
    assert repaired(path) == ENTRIES[:-1]


def test_bad_bytes_are_removed_and_entries_on_both_sides_kept(tmp_path: Path) -> None:
    path = written(tmp_path, journal(START, ENTRIES, spare=100))
    bad = [item for item in Reader(path).scan() if isinstance(item, Located)][5]
    data = bytearray(path.read_bytes())
    data[bad.span.start + 3] = 0x65
    path.write_bytes(data)
    found = plan(path)
    assert [type(step) for step in found.steps] == [Create, Patch, Remove, Rename]
    assert found.left == ()
    (loss,) = found.losses
    assert (loss.file, loss.position, loss.bytes) == ("cars.jrn", bad.span.start, bad.span.size)
    assert (loss.at_least, loss.at_most) == (1, bad.span.size // 11)
    assert loss.fields == {"store": "cars", "from": START + 3, "to": START + 12}
    assert repaired(path) == [entry for entry in ENTRIES if entry != bad.record]


def test_wrong_version_is_repaired_if_the_metadata_is_intact(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x0a" + journal(START, ENTRIES)[1:])
    assert repaired(path) == ENTRIES


def test_flipped_bit_of_the_checksum_of_an_archive_is_restored(tmp_path: Path) -> None:
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


def test_irreparable_damage_is_reported_and_left(tmp_path: Path) -> None:
    path = written(tmp_path, journal(START, ENTRIES)[:20])
    found = plan(path)
    assert found.empty
    assert len(found.left) == 1
    assert "no whole entry can be found in it" in found.left[0]


def test_sound_store_needs_no_repair_and_a_part_is_not_repaired_alone(tmp_path: Path) -> None:
    model = Model()
    model.change(ENTRIES[0])
    model.rotate()
    path = model.write(tmp_path)
    assert plan(tmp_path).empty
    assert apply(path, plan(path)) is None
    with pytest.raises(WrongUse, match="is a part of the store"):
        plan(tmp_path / archive_name("cars", model.archives[0][0]))


def test_missing_archive_is_accounted_for(tmp_path: Path) -> None:
    model = Model()
    for entry in ENTRIES[:3]:
        model.change(entry)
        model.rotate()
    path = model.write(tmp_path)
    assert plan(path).left == ()
    (tmp_path / archive_name("cars", ENTRIES[1].t)).unlink()
    found = plan(path)
    before = f"{archive_name('cars', ENTRIES[0].t)}, which ended at {shown_time(ENTRIES[0].t)}"
    reason = f"it begins at {shown_time(ENTRIES[1].t)}, and not with what was at the end of {before}: one is missing"
    assert (found.steps, found.left) == ((), ())
    (loss,) = found.losses
    assert (loss.file, loss.position, loss.reason) == (archive_name("cars", ENTRIES[2].t), HEADER_BYTES, reason)
    assert loss.fields == {"store": "cars", "from": ENTRIES[0].t, "to": ENTRIES[1].t}


# --- archives -------------------------------------------------------------------------------------------------------


def rotated(tmp_path: Path) -> tuple[Model, Path, Path]:
    """A store of three archives, the path of its active journal, and that of the second archive."""
    model = Model()
    for number in range(12):
        model.change(Entry(START + 100 * number, f"key {number % 3}", f"value {number}"))
        if number % 4 == 3:
            model.rotate()
    path = model.write(tmp_path)
    return model, path, tmp_path / archive_name("cars", model.archives[1][0])


def test_flipped_bit_of_an_archive_is_restored_if_it_is_the_only_candidate(tmp_path: Path) -> None:
    _, path, archive = rotated(tmp_path)
    whole = archive.read_bytes()
    for position in range(2, len(whole), 7):
        damage_file(archive, flip_bits, position, 0x10)
        found = plan(path)
        (loss,) = found.losses
        assert (loss.kind, loss.position, loss.bytes, loss.at_least, loss.at_most) == ("restored", position, 1, 0, 0)
        assert apply(path, found) is not None
        assert archive.read_bytes() == whole
        report = Reader(path).verify()
        assert report.sound
        assert [loss.kind for loss in report.losses] == ["restored"]
        undo(path)
        archive.write_bytes(whole)


def test_archive_with_a_wrong_checksum_is_removed(tmp_path: Path) -> None:
    model, path, archive = rotated(tmp_path)
    first, second = model.archives[0][0], model.archives[1][0]
    data = model.archives[1][1].replace(b"value 5", b"value 6")
    archive.write_bytes(zlib.compress(data)[:-4] + archive.read_bytes()[-4:])
    damaged = archive.read_bytes()
    found = plan(path)
    assert [type(step) for step in found.steps] == [Remove]
    (loss,) = found.losses
    assert (loss.kind, loss.position, loss.bytes, loss.at_least, loss.at_most) == ("lost", 0, len(damaged), 0, None)
    assert loss.what == (
        "every change from 2023-11-09T21:20:00.000000300Z to 2023-11-09T21:20:00.000000700Z (what can be read there, "
        "unproven, are 7 entries of the keys 'key 1', 'key 2', 'key 0')"
    )
    assert loss.fields == {"store": "cars", "from": first, "to": second}
    done = apply(path, found)
    assert done is not None
    assert [kept.read_bytes() for kept in done.kept] == [damaged]
    report = Reader(path).verify()
    assert report.sound
    assert [loss.fields["to"] for loss in report.losses] == [second]
    assert "value 6" not in [entry.o for entry in Reader(path) if isinstance(entry, Entry) and entry.k == "key 2"]
    undo(path)
    assert archive.read_bytes() == damaged


def test_query_that_depends_on_a_lost_archive_is_refused(tmp_path: Path) -> None:
    model, path, archive = rotated(tmp_path)
    first, second = model.archives[0][0], model.archives[1][0]
    damage_file(archive, shrink, 20)
    apply(path, plan(path))
    recovery = VersionedRecovery.load(tmp_path)
    for at in (first, first + 1, first + 100, second - 1):
        with pytest.raises(HistoryUnavailable, match=r"lost an unknown number of records: every change from "):
            recovery.recover_at(at)
        with pytest.raises(HistoryUnavailable):
            Reader(path).state(at)
        (part,) = states.plan(REAL_DISK, path, at)
        with pytest.raises(HistoryUnavailable):
            states.read(REAL_DISK, part, at, "failfast")
        unknown = states.read(REAL_DISK, part, at, "permissive")
        assert (unknown.latest, [damage.kind for damage in unknown.damages]) == (None, [states.UNAVAILABLE])
        for start, stop in ((START, at), (at, second)):
            with pytest.raises(HistoryUnavailable):
                recovery.diff(start, stop)
            with pytest.raises(HistoryUnavailable):
                list(recovery.changes(start, stop))
    with pytest.raises(
        HistoryUnavailable, match="the history of 'key 1': lost an unknown number of records: every change"
    ):
        recovery.history("key 1")
    with pytest.raises(HistoryUnavailable):
        Reader(path).history("key 1")
    for at in (START, first - 1, second, second + 1, START + 10**6):
        assert recovery.recover_at(at).with_timestamps() == model.state(at)
    with pytest.raises(HistoryUnavailable, match="every change"):
        recovery.diff(START, second)
    kept = VersionedRecovery.load(tmp_path, mode="permissive")
    assert kept.diff(START, second)["changed"].keys() == {"key 0"}
    assert [damage.kind for damage in kept.damages] == ["lost"]
    assert len(list(recovery.changes(START, first - 1))) == 2
    lenient = VersionedRecovery.load(tmp_path, mode="permissive")
    assert [entry.o for entry in lenient.history("key 1")] == ["value 1", "value 7", "value 10"]
    assert [damage.kind for damage in lenient.damages] == ["lost"]
    assert [entry.o for entry in Reader(path)][:4] == ["value 0", "value 1", "value 2", "value 3"], "the gap is known"


def rotated_quickly(tmp_path: Path) -> tuple[Model, Path, list[Path]]:
    """A store that was rotated every nanosecond, then once much later."""
    model = Model()
    for step in (1, 1, 1, 1, 10**6):
        model.change(Entry(model.now + step, "key", step))
        model.rotate()
    path = model.write(tmp_path)
    return model, path, [tmp_path / archive_name("cars", ended) for ended, _ in model.archives]


@pytest.mark.parametrize("number", range(5))
def test_lost_archive_ends_where_the_next_one_begins_however_close_others_are(tmp_path: Path, number: int) -> None:
    model, path, archives = rotated_quickly(tmp_path)
    ends = [0, *(ended for ended, _ in model.archives)]
    damage_file(archives[number], shrink, 20)
    found = plan(path)
    assert [(loss.fields["from"], loss.fields["to"]) for loss in found.losses] == [(ends[number], ends[number + 1])]
    apply(path, found)
    assert Reader(path).verify().sound


def test_lost_archive_without_a_successor_may_have_any_earlier_time(tmp_path: Path) -> None:
    model, path, archives = rotated_quickly(tmp_path)
    ends = [ended for ended, _ in model.archives]
    archives[4].unlink()
    damage_file(archives[3], shrink, 20)
    assert [(loss.fields["from"], loss.fields["to"]) for loss in plan(path).losses] == [(ends[2], ends[4])]
    path.write_bytes(b"no journal")
    (loss, *_) = plan(path).losses
    assert (loss.fields["from"], loss.fields["to"]) == (ends[2], None)


def test_bytes_after_an_archive_are_cut_without_loss(tmp_path: Path) -> None:
    _, path, archive = rotated(tmp_path)
    whole = archive.read_bytes()
    archive.write_bytes(whole + b"garbage")
    found = plan(path)
    assert [type(step) for step in found.steps] == [Cut]
    assert found.costs_nothing
    apply(path, found)
    assert archive.read_bytes() == whole


def test_account_outlives_the_archives_that_retention_removes(tmp_path: Path) -> None:
    model, path, archive = rotated(tmp_path)
    damage_file(archive, shrink, 20)
    apply(path, plan(path))
    account = Reader(path).losses()
    retention = Retention(max_archives=1)
    with VersionedKVStore(tmp_path, "cars", 4096, background=False, retention=retention) as store:
        store.insert("key 0", "newest")
        store.rotate()
    assert Reader(path).losses() == account
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.earliest() > model.archives[1][0]
    assert [entry.o for entry in recovery.history("key 0")] == ["value 9", "newest"], "the loss is of a time before"
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(model.archives[0][0])


def test_copied_account_refuses_the_same_queries(tmp_path: Path) -> None:
    _, path, archive = rotated(tmp_path)
    damage_file(archive, shrink, 20)
    apply(path, plan(path))
    (loss,) = Reader(path).losses()
    other = tmp_path / "copy"
    other.mkdir()
    for file in tmp_path.glob("cars*"):
        (other / file.name).write_bytes(file.read_bytes())
    add_losses(REAL_DISK, other, [replace(loss, fields={"source": dict(loss.fields)})])
    with pytest.raises(HistoryUnavailable, match=": lost "):
        VersionedRecovery.load(other).recover_at(int(loss.fields["from"]))


def test_gap_explained_by_the_account_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, path, archive = rotated(tmp_path)
    archive.write_bytes(b"")
    assert apply(path, plan(path)) is not None
    caplog.clear()
    for _ in range(3):
        reader = Reader(path)
        assert reader.verify().sound
        assert len(list(reader)) == 11
    assert [record.getMessage().rpartition(", ")[2] for record in caplog.records] == ["as the account of losses says"]


def test_plan_looks_for_missing_archives_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path, _ = rotated(tmp_path)
    taken = []
    snapshot = Reader.snapshot

    def take(reader: Reader) -> Any:
        taken.append(reader)
        return snapshot(reader)

    monkeypatch.setattr(Reader, "snapshot", take)
    assert plan(path).empty
    assert len(taken) == 1


def test_large_archive_is_not_searched_for_a_flipped_bit_and_the_account_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path, archive = rotated(tmp_path)
    damage_file(archive, flip_bits, 60, 0x10)
    monkeypatch.setattr("logwright.versioned.files.repair._MOST_TRIED_BYTES", 1000)
    (loss,) = plan(path).losses
    assert loss.kind == "lost"
    assert loss.reason.endswith("; it is too large to be searched for one changed bit")


# --- a journal without a beginning ------------------------------------------------------------------------------------


def without_beginning(tmp_path: Path, size: int, count: int = 40) -> Path:
    """A store without archives, whose journal has zeros in the place of its first bytes."""
    with VersionedKVStore(tmp_path, "cars", clock=Clock(), background=False) as store:
        for number in range(count):
            store.insert(f"key {number}", "x" * 60)
    path = tmp_path / "cars.jrn"
    path.write_bytes(overwrite(path.read_bytes(), 0, bytes(size)))
    return path


@pytest.mark.parametrize(("size", "gone"), [(56, 0), (60, 1), (512, 6)])
def test_journal_without_beginning_and_archive_is_known_from_its_last_entry_on(
    tmp_path: Path, size: int, gone: int
) -> None:
    path = without_beginning(tmp_path, size)
    with pytest.raises(DamagedJournal, match="logwright repair"):
        VersionedKVStore(tmp_path, "cars")
    apply(path, plan(path))
    losses = Reader(path).losses()
    assert [loss.kind for loss in losses] == ["restored"] + ["lost"] * (gone > 0)
    assert losses[0].what.endswith("a guess of when it began: the time of its last entry")
    assert Reader(path).verify().sound
    with VersionedKVStore(tmp_path, "cars", background=False) as store:
        assert store.keys() == [f"key {number}" for number in range(gone, 40)]
    last = 1_000_000_000_000_000_000 + 41
    recovery = VersionedRecovery.load(tmp_path)
    assert recovery.earliest() == last
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(last - 1)


def test_journal_without_readable_entries_is_left_with_advice(tmp_path: Path) -> None:
    path = without_beginning(tmp_path, 1 << 20)
    found = plan(path)
    assert found.empty
    (line,) = found.left
    assert line.endswith("no whole entry can be found in it; restore it from a copy, or move it away")


def test_position_past_a_complete_file_is_restored_without_loss(tmp_path: Path) -> None:
    path = without_beginning(tmp_path, 0)
    data = path.read_bytes()
    path.write_bytes(overwrite(data, 8, (1 << 40).to_bytes(8, "little")))
    found = plan(path)
    assert [(loss.kind, loss.what) for loss in found.losses] == [("restored", "the position in the header")]
    apply(path, found)
    assert path.read_bytes() == data


@pytest.mark.parametrize("position", [2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_position_far_past_the_file_is_restored(position: int, tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    data = journal(START, ENTRIES)
    path.write_bytes(with_position(data, position))
    found = plan(path)
    assert [(loss.kind, loss.at_least) for loss in found.losses] == [("lost", 0)]
    apply(path, found)
    assert list(Reader(path)) == ENTRIES


def both_damaged(directory: Path, old_bytes: int, active_bytes: int) -> Path:
    """A store with an archive, `.old` and an active journal, of which the first bytes are zeros."""
    state = ENTRIES[3:6]
    (directory / archive_name("cars", ENTRIES[2].t)).write_bytes(zlib.compress(journal(START, ENTRIES[:3]), 5))
    old = journal(ENTRIES[2].t, [*ENTRIES[:3], *state])
    (directory / "cars.jrn.old").write_bytes(overwrite(old, 0, bytes(min(old_bytes, len(old)))))
    active = journal(state[-1].t, [*state, *ENTRIES[6:]])
    return written(directory, overwrite(active, 0, bytes(min(active_bytes, len(active)))))


@pytest.mark.parametrize(
    ("old_bytes", "active_bytes", "last"),
    [
        pytest.param(8, 8, 11, id="versions"),
        pytest.param(17, 17, 11, id="headers"),
        pytest.param(40, 40, 11, id="headers and metadata"),
        pytest.param(40, 9999, 5, id="all of the active one"),
        pytest.param(9999, 40, 11, id="all of .old"),
        pytest.param(9999, 9999, 2, id="all of both"),
    ],
)
def test_one_repair_is_enough_if_the_beginnings_of_two_journals_are_damaged(
    old_bytes: int, active_bytes: int, last: int, tmp_path: Path
) -> None:
    path = both_damaged(tmp_path, old_bytes, active_bytes)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("cars.jrn*")}
    assert {problem.file for problem in Reader(path).verify().problems} == {"cars.jrn.old", "cars.jrn"}
    apply(path, plan(path))
    assert Reader(path).verify().sound
    assert plan(path).empty
    assert {key: value["value"] for key, value in Reader(path).state().items()} == {
        entry.k: entry.o for entry in ENTRIES[: last + 1]
    }
    undo(path)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("cars.jrn*")} == before


@pytest.mark.parametrize(("old_bytes", "begun"), [(17, 5), (40, 5), (9999, 11)], ids=["header", "head", "all"])
def test_journal_after_old_begins_when_that_ended_if_its_end_is_still_there(
    old_bytes: int, begun: int, tmp_path: Path
) -> None:
    path = both_damaged(tmp_path, old_bytes, 40)
    apply(path, plan(path))
    assert initialized_of(REAL_DISK, path, compressed=False) == ENTRIES[begun].t
    lost = [(loss.fields["from"], loss.fields["to"]) for loss in Reader(path).losses() if loss.kind == "lost"]
    if begun == 5:
        assert list(Reader(path)) == ENTRIES
    else:
        assert lost == [(ENTRIES[2].t, ENTRIES[11].t)]


def test_nothing_is_changed_if_nothing_can_be_read_in_two_journals_and_there_is_no_archive(tmp_path: Path) -> None:
    path = both_damaged(tmp_path, 9999, 9999)
    (tmp_path / archive_name("cars", ENTRIES[2].t)).unlink()
    found = plan(path)
    assert found.empty
    assert "restore it from a copy" in found.left[-1]


@pytest.mark.parametrize("later_ns", [100, 1_000_000])
def test_archive_with_a_later_name_beside_old_is_read_in_its_place(later_ns: int, tmp_path: Path) -> None:
    path = both_damaged(tmp_path, 0, 0)
    name = archive_name("cars", ENTRIES[2].t)
    (tmp_path / name).rename(tmp_path / archive_name("cars", ENTRIES[2].t + later_ns))
    assert Reader(path).verify().sound
    assert list(Reader(path)) == ENTRIES
    recovery = VersionedRecovery.load(path)
    for key in ("key 0", "key 1", "key 2"):
        assert recovery.history(key) == [entry for entry in ENTRIES if entry.k == key]
    assert plan(path).empty
