"""A journal that lost entries in a repair: the next one begins with the state, and every answer agrees with that."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from logwright.core.format import Located, find_format
from logwright.errors import HistoryUnavailable
from logwright.versioned import Reader, VersionedRecovery
from logwright.versioned.bytes import codec
from logwright.versioned.files import repair
from logwright.versioned.files.files import archive_name
from logwright.versioned.model.changes import StoreChanges
from tests.support.damage import overwrite
from tests.support.materializing import Increments, Tables, batches_of, materials_of
from tests.versioned.stores import journal

BEGUN, ENDED = 1000, 2000
BEFORE: list[tuple[int, str, int | None]] = [
    (1100, "a", 1),
    (1200, "b", 1),
    (1300, "a", 2),
    (1400, "c", 1),
    (1500, "c", None),
    (1600, "b", 2),
]
STATE = [(1300, "a", 2), (1600, "b", 2)]
AFTER = [(2500, "b", 3)]
HISTORIES: dict[str, list[tuple[int, int | None]]] = {
    "a": [(1100, 1), (1300, 2)],
    "b": [(1200, 1), (1600, 2), (2500, 3)],
    "c": [(1400, 1), (1500, None)],
}


def damaged(directory: Path, lost: int, *, is_archive: bool, state: list[Any], after: list[Any]) -> Path:
    """A store whose first journal has bad bytes in the place of one entry, and is repaired."""
    entry = codec.pack_entry(*BEFORE[lost])
    data = journal(BEFORE, BEGUN)
    data = overwrite(data, data.index(entry), b"\xff" * len(entry))
    name = archive_name("cars", ENDED) if is_archive else "cars.jrn.old"
    (directory / name).write_bytes(zlib.compress(data, 5) if is_archive else data)
    path = directory / "cars.jrn"
    path.write_bytes(journal([*state, *after], ENDED, 4096))
    plan = repair.plan(path)
    assert not plan.left
    repair.apply(path, plan)
    assert Reader(path).verify().sound
    return path


def tables_of(path: Path) -> Tables:
    format = find_format("versioned")
    increments = Increments(materials_of(format), path.parent / "scratch", "cars")
    increments.add(batches_of(format, path.parent, "cars"))
    return increments.tables()


def fed(path: Path) -> list[tuple[str, str, int]]:
    """What `changes` prints, in short."""
    reader, feed = Reader(path), StoreChanges()
    records = [item for item in reader.scan(mode="dropmalformed") if isinstance(item, Located)]
    found = [change for record in records for change in feed.add(reader.as_json(record))]
    return [(change["op"], (change["after"] or change["before"])["key"], change["ts_ns"]) for change in found]


@pytest.mark.parametrize("after", [AFTER, []], ids=["changed since", "not changed since"])
@pytest.mark.parametrize("is_archive", [False, True], ids=["old", "archive"])
@pytest.mark.parametrize("lost", range(len(BEFORE)))
def test_all_answers_agree_after_any_entry_was_lost(
    lost: int, is_archive: bool, after: list[Any], tmp_path: Path
) -> None:
    path = damaged(tmp_path, lost, is_archive=is_archive, state=STATE, after=after)
    state = {key: (value, time) for time, key, value in [*STATE, *after]}
    assert Reader(path).latest().state() == state

    time, key, value = BEFORE[lost]
    wanted = {name: [one for one in history if after or one[0] <= ENDED] for name, history in HISTORIES.items()}
    if BEFORE[lost] not in STATE:
        wanted[key].remove((time, value))
    if value is None:
        wanted[key].append((ENDED, None))  # at the latest

    recovery = VersionedRecovery.load(path)
    with pytest.raises(HistoryUnavailable, match="lost"):
        recovery.history(key)
    with pytest.raises(HistoryUnavailable, match="lost"):
        list(recovery.changes(BEGUN, 3000))
    lenient = VersionedRecovery.load(path, mode="permissive")
    found = {name: [(entry.t, entry.o) for entry in lenient.history(name)] for name in HISTORIES if wanted[name]}
    assert found == {name: history for name, history in wanted.items() if history}
    assert [damage.kind for damage in lenient.damages] == ["lost"]
    if lost:  # else the state before all changes is not known
        changes = {(entry.t, entry.k, entry.o) for entry in lenient.changes(BEGUN, 3000)}
        assert changes == {(time, name, value) for name, history in wanted.items() for time, value in history}

    tables = tables_of(path)
    rows = sorted(tables["kv_history"], key=lambda row: row["version"])
    for name, history in wanted.items():
        versions = [(row["valid_from_ns"], row["o"]) for row in rows if row["k"] == name]
        assert versions == [(time, None if value is None else str(value)) for time, value in history]
    assert {row["k"]: (int(row["o"]), row["timestamp_ns"]) for row in tables["kv_state"]} == state


def test_the_deletion_that_a_lost_entry_made_is_a_change(tmp_path: Path) -> None:
    path = damaged(tmp_path, BEFORE.index((1500, "c", None)), is_archive=False, state=STATE, after=AFTER)
    assert fed(path)[-2:] == [("d", "c", ENDED), ("u", "b", 2500)]


def test_without_any_copy_the_first_change_shows_that_keys_are_gone(tmp_path: Path) -> None:
    path = damaged(tmp_path, BEFORE.index((1500, "c", None)), is_archive=False, state=[], after=[(2500, "d", 1)])
    assert {row["k"] for row in tables_of(path)["kv_state"]} == set(Reader(path).state()) == {"d"}


def test_bad_bytes_among_the_copies_do_not_show_that_keys_are_gone(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn.old").write_bytes(journal(BEFORE, BEGUN))
    data = journal([*STATE, *AFTER], ENDED, 4096)
    entry = codec.pack_entry(*STATE[0])
    path = tmp_path / "cars.jrn"
    path.write_bytes(overwrite(data, data.index(entry), b"\xff" * len(entry)))
    assert {row["k"] for row in tables_of(path)["kv_state"]} == {"a", "b"}
    lenient = VersionedRecovery.load(path, mode="permissive")
    assert [(entry.t, entry.o) for entry in lenient.history("a")] == HISTORIES["a"]
    assert fed(path)[-2:] == [("u", "b", 1600), ("u", "b", 2500)]
