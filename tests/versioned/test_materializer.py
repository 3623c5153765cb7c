"""The tables of stores: each change once, however the records are cut, with or without copies."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.core.format import find_format
from logwright.core.io.disk import REAL_DISK
from logwright.core.read.materializer import Continued
from logwright.errors import WrongUse
from logwright.versioned.bytes import codec
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.reader import Reader
from logwright.versioned.model import versions as plain_versions
from logwright.versioned.model.store import VersionedKVStore
from logwright.versioned.tables import materializer
from logwright.versioned.tables.columns import schema
from logwright.versioned.tables.restore import RESTORE

from ..support.materializing import Increments, Row, Tables, batches_of, check_increments, materials_of, sorted_tables
from .histories import random_history
from .samples import START
from .stores import Clock, journal, journals_of

FORMAT = find_format("versioned")
MATERIALS = materials_of(FORMAT)
OWN = schema(MATERIALS.sources)
BIG = 2**63 + 5
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=["plain", "compiled"])
def _twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(materializer, "Versions", plain_versions.Versions)
    elif not COMPILED:
        pytest.skip("the kernels are not built")


# --- the model --------------------------------------------------------------------------------------------------------


def expected_tables(records: list[Row], moment: int | None = None) -> Tables:
    """The tables of all records of a store, made at once."""
    changes = list(changes_among(records))
    history = []
    numbers: dict[str, int] = {}
    for index, change in enumerate(changes):
        numbers[change["k"]] = numbers.get(change["k"], 0) + 1
        following = next((other for other in changes[index + 1 :] if other["k"] == change["k"]), None)
        valid_to = None if following is None else signed(following["t"])
        history.append(
            {
                "store": change["store"],
                "k": change["k"],
                "version": numbers[change["k"]],
                "o": value_of(change),
                "deleted": change["deleted"],
                "valid_from": time_of(signed(change["t"])),
                "valid_to": time_of(valid_to),
                "valid_from_ns": signed(change["t"]),
                "valid_to_ns": valid_to,
                "sequence": change["before"],
                "position": change["position"],
            }
        )
    return {
        "kv_changes": [record_row(record) for record in records],
        "kv_history": history,
        "kv_state": state_rows(records, changes, moment),
    }


def tables_after(records: list[Row]) -> Callable[[int], Tables]:
    return lambda count: expected_tables(records[:count])


def changes_among(records: list[Row]) -> Iterator[Row]:
    """The records that are no copies, and the deletions that the beginnings of journals show.

    A copy is in the head of its journal, and a record of the head is earlier.
    """
    last: dict[str, Row] = {}
    for sequence, group in groupby(records, lambda record: record["before"]):
        rows = list(group)
        head = 0 if sequence is None else head_of(rows)
        has_copies = any(record["t"] < sequence for record in rows[:head])
        gone: list[Row] = []
        if sequence is not None and is_whole(rows[: head + 1]):
            kept = {record["k"] for record in rows[:head]}
            missing = [row for key, row in last.items() if key not in kept and not row["deleted"]]
            place = {"before": sequence, "position": 0}
            gone = [{**row, "t": sequence, "o": "null", "deleted": True, **place} for row in missing]
        for index, change in enumerate([*rows[:head], *gone, *rows[head:]]):
            before = last.get(change["k"])
            is_same = before is not None and (before["t"], value_of(before)) == (change["t"], value_of(change))
            last[change["k"]] = change
            if not (has_copies and index < head and is_same):
                yield change


def is_whole(head: list[Row]) -> bool:
    """Whether records are all that a journal begins with."""
    ends = [len(journal([], head[0]["before"])), *(record["position"] + record["size"] for record in head)]
    return all(record["position"] == end for record, end in zip(head, ends, strict=False))


def head_of(records: list[Row]) -> int:
    """How many records of a journal may be copies."""
    seen: set[str] = set()
    for record in records:
        if record["deleted"] or record["t"] > record["before"] or record["k"] in seen:
            break
        seen.add(record["k"])
    return len(seen)


def state_rows(records: list[Row], changes: list[Row], moment: int | None) -> list[Row]:
    last = {}
    for change in changes:
        if moment is None or change["t"] <= moment:
            last[change["k"]] = change
    if moment is not None:
        begins = [record["before"] for record in records if record["before"] is not None]
        if not begins or min(begins) > moment:
            return []
    return [
        {
            "store": change["store"],
            "k": change["k"],
            "o": change["o"],
            "timestamp": time_of(signed(change["t"])),
            "timestamp_ns": signed(change["t"]),
            "sequence": change["before"],
            "position": change["position"],
        }
        for change in last.values()
        if not change["deleted"]
    ]


def record_row(record: Row) -> Row:
    t = signed(record["t"])
    return {
        "store": record["store"],
        "t": t,
        "timestamp": time_of(t),
        "t_exact": Decimal(record["t"]) if t is None else None,
        "k": record["k"],
        "o": value_of(record),
        "deleted": record["deleted"],
        "file": record["file"],
        "position": record["position"],
        "size": record["size"],
        "sequence": record["before"],
    }


def value_of(record: Row) -> str | None:
    return None if record["deleted"] else record["o"]


def signed(time: int) -> int | None:
    return time if time < 2**63 else None


def time_of(time: int | None) -> datetime.datetime | None:
    return None if time is None else EPOCH + datetime.timedelta(microseconds=time // 1000)


def todays_history(records: list[Row]) -> list[tuple[str, int, Any, Any]]:
    """(key, version, value, place) by the rule of the pipeline's kv_history: any record of the journal decides."""
    earliest: dict[int, int] = {}
    for record in records:
        earliest[record["before"]] = min(record["t"], earliest.get(record["before"], record["t"]))
    found = []
    last: dict[str, Row] = {}
    numbers: dict[str, int] = {}
    for record in records:
        before = last.get(record["k"])
        is_copy = (
            earliest[record["before"]] < record["before"]
            and before is not None
            and before["before"] < record["before"]
            and record["t"] <= record["before"]
            and before["t"] == record["t"]
            and None is not value_of(before) == value_of(record)
        )
        last[record["k"]] = record
        if not is_copy:
            numbers[record["k"]] = numbers.get(record["k"], 0) + 1
            place = record["before"], record["position"]
            found.append((record["k"], numbers[record["k"]], value_of(record), place))
    return found


# --- records ----------------------------------------------------------------------------------------------------------


def random_records(rng: random.Random, *, is_regular: bool = False, is_read_whole: bool = False) -> list[Row]:
    """The records of some journals of a store: with copies, without them, and with some of them missing.

    In a regular journal changes are not earlier than the journal, and times do not decrease. One that is read whole
    begins with its first entry.
    """
    records: list[Row] = []
    sequence = rng.choice((0, 1000))
    for _ in range(rng.randrange(1, 7)):
        live: dict[str, Row] = {}
        for record in records:
            live.pop(record["k"], None)
            if not record["deleted"]:
                live[record["k"]] = record
        first = len(journal([], sequence))
        position = first if is_read_whole else 40 if is_regular else rng.choice((first, 40))
        now = sequence + rng.choice((0, 1))
        ticks = rng.choice(((0,), (0, 0, 1, 3) if is_regular else (0, 0, 1, 3, -2, -40)))
        copies = list(live.values())
        rng.shuffle(copies)
        copies = copies[: rng.choice((0, 0, len(copies), rng.randrange(len(copies) + 1)))]
        rows = [(copy["t"], copy["k"], copy["o"], False) for copy in copies]
        for _ in range(rng.choice((0, 1, 5, 30))):
            now = max(0, now + rng.choice(ticks))
            t = now if is_regular else rng.choice((now, now, now, now, BIG + now))
            deleted = rng.random() < 0.2
            rows.append((t, rng.choice("abcd"), "null" if deleted else rng.choice(("1", '"ä"')), deleted))
        known = is_regular or rng.random() < 0.9
        for t, k, o, deleted in rows:
            size = rng.randrange(10, 20)
            place = {"file": f"cars {sequence}", "position": position, "size": size}
            before = sequence if known else None
            records.append({"store": "cars", "t": t, "k": k, "o": o, "deleted": deleted, **place, "before": before})
            position += size + (rng.random() < 0.02)  # after bad bytes
        # after a rotation, the time of the last change, or later if something was missed
        last = max([sequence + 1, *(t for t, *_ in rows if t < 2**63)])
        sequence = last + rng.choice((0, 0, 0, 2))
    return records


def as_batch(records: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(records, OWN)


def record(t: int, k: str, o: str, before: int | None, position: int) -> Row:
    place = {"file": "cars.jrn", "position": position, "size": 9, "before": before}
    return {"store": "cars", "t": t, "k": k, "o": o, "deleted": o == "null", **place}


def tables_of(batches: list[pa.RecordBatch], scratch: Path, moment: int | None = None) -> Tables:
    increments = Increments(MATERIALS, scratch, "cars", moment)
    increments.add(batches)
    return increments.tables()


def brief(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


# --- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_twin")
@pytest.mark.parametrize("seed", range(80))
def test_any_cut_of_any_records_has_the_tables_of_all_of_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = random_records(rng)
    check_increments(MATERIALS, [as_batch(records)], tmp_path, rng, tables_after(records), "cars")


@pytest.mark.usefixtures("_twin")
@pytest.mark.parametrize("seed", range(20))
def test_any_cut_has_the_state_at_a_moment(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = random_records(rng, is_regular=True, is_read_whole=seed % 2 == 0)
    moment = rng.choice([-1, 0, 999, 10**9, *(each["t"] for each in records), *(each["before"] for each in records)])
    increments = Increments(MATERIALS, tmp_path, "cars", moment)
    row = 0
    while row < len(records):
        rows = rng.randrange(1, 9)
        increments.add([as_batch(records[row : row + rows])])
        row += rows
        found = sorted_tables(increments.tables())
        assert found == sorted_tables(expected_tables(records[:row], moment))


@pytest.mark.parametrize("seed", range(60))
def test_regular_journals_have_the_history_of_the_rule_over_all_records(seed: int, tmp_path: Path) -> None:
    records = random_records(random.Random(seed), is_regular=True)
    found = tables_of([as_batch(records)], tmp_path)["kv_history"]
    places = [(row["k"], row["version"], row["o"], (row["sequence"], row["position"])) for row in found]
    assert sorted(places, key=repr) == sorted(todays_history(records), key=repr)


@pytest.mark.usefixtures("_twin")
def test_output_of_any_size_is_returned_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_records(random.Random(5))
    whole = sorted_tables(tables_of([as_batch(records)], tmp_path))
    for size in (1, 100, 500):
        monkeypatch.setattr(materializer, "BATCH_BYTES", size)
        assert sorted_tables(tables_of([as_batch(records)], tmp_path)) == whole


@pytest.mark.usefixtures("_twin")
def test_copy_with_the_time_of_its_journal_is_decided_by_the_rest_of_the_head(tmp_path: Path) -> None:
    first = [record(50, "a", "1", 10, 40), record(100, "b", "2", 10, 49)]
    copy_of_b = record(100, "b", "2", 100, 40)
    names = ("k", "version", "sequence", "position", "valid_to_ns")
    only_old = [("a", 1, 10, 40, None), ("b", 1, 10, 49, None)]
    as_change = [("a", 1, 10, 40, None), ("b", 1, 10, 49, 100), ("b", 2, 100, 40, None)]
    increments = Increments(MATERIALS, tmp_path, "cars")
    increments.add([as_batch([*first, copy_of_b])])
    assert brief(increments.tables()["kv_history"], *names) == as_change  # unless something shows otherwise
    assert brief(increments.tables()["kv_state"], "k", "sequence", "position") == [("a", 10, 40), ("b", 100, 40)]
    assert increments.closed["kv_history"] == []
    increments.add([as_batch([record(50, "a", "1", 100, 49)])])
    assert brief(increments.tables()["kv_history"], *names) == only_old
    assert brief(increments.tables()["kv_state"], "k", "sequence", "position") == [("a", 10, 40), ("b", 10, 49)]
    assert increments.closed["kv_history"] == []

    increments = Increments(MATERIALS, tmp_path, "cars")
    increments.add([as_batch([*first, copy_of_b])])
    increments.add([as_batch([record(101, "c", "3", 100, 49)])])
    assert brief(increments.tables()["kv_history"], *names) == [*as_change, ("c", 1, 100, 49, None)]
    assert brief(increments.closed["kv_history"], *names) == [("b", 1, 10, 49, 100)]


@pytest.mark.usefixtures("_twin")
def test_deletion_ends_the_copies(tmp_path: Path) -> None:
    first = [record(50, "a", "1", 10, 40), record(100, "b", "2", 10, 49), record(100, "c", "3", 10, 58)]
    second = [record(50, "a", "1", 100, 40), record(100, "b", "null", 100, 49), record(100, "c", "3", 100, 58)]
    found = tables_of([as_batch([*first, *second])], tmp_path)
    assert brief(found["kv_history"], "k", "version", "o", "sequence", "valid_to_ns") == [
        ("a", 1, "1", 10, None),
        ("b", 1, "2", 10, 100),
        ("b", 2, None, 100, None),
        ("c", 1, "3", 10, 100),
        ("c", 2, "3", 100, None),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_stores_with_rotations_and_missing_archives(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    paths = {}
    for name in ("cars", "bikes"):
        model = random_history(rng, rng.randrange(60), START, 0.15, rng.choice((1, 1000)))
        paths[name] = model.write(tmp_path / "stores", name)
        for timestamp, _ in model.archives:
            if rng.random() < 0.2:
                (tmp_path / "stores" / archive_name(name, timestamp)).unlink()
    for name in paths:
        batches = batches_of(FORMAT, tmp_path / "stores", name, batch_bytes=rng.choice((1, 500, 1 << 20)))
        records = [row for batch in batches for row in batch.to_pylist()]
        check_increments(MATERIALS, batches, tmp_path, rng, tables_after(records), name)
        assert {row["store"] for row in tables_of(batches, tmp_path)["kv_history"]} <= {name}
        history = tables_of(batches, tmp_path)["kv_history"]
        state = {row["k"]: (row["o"], row["timestamp_ns"]) for row in tables_of(batches, tmp_path)["kv_state"]}
        wanted = Reader(paths[name]).latest().state()
        assert state == {key: (codec.to_json(value), time) for key, (value, time) in wanted.items()}
        if all(row["position"] for row in history):
            places = [(row["k"], row["version"], row["o"], (row["sequence"], row["position"])) for row in history]
            assert sorted(places, key=repr) == sorted(todays_history(records), key=repr)


@pytest.mark.parametrize("seed", range(8))
def test_store_read_while_it_is_written_rotated_and_cleaned(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    clock = Clock(START)
    increments = Increments(MATERIALS, tmp_path / "scratch", "cars")
    number: int | None = None
    records: list[Row] = []
    changes = 0
    with VersionedKVStore(tmp_path / "stores", "cars", 4096, clock=clock, background=False) as store:
        for _ in range(12):
            for _ in range(rng.randrange(15)):
                key = rng.choice("abcdef")
                if rng.random() < 0.2 and key in store:
                    store.remove(key)
                else:
                    store.insert(key, rng.randrange(3))
                changes += 1
                if rng.random() < 0.1:
                    store.rotate()
            reader = FORMAT.open(tmp_path / "stores")
            end = FORMAT.splits.extent(reader)["cars"][1]
            batches = batches_of(FORMAT, tmp_path / "stores", "cars", number, end)
            records += [row for batch in batches for row in batch.to_pylist()]
            increments.add(batches)
            number = end
            for path in (tmp_path / "stores").glob("*.zz"):
                if rng.random() < 0.5:
                    path.unlink()
        found = increments.tables()
        assert len(list(changes_among(records))) == len(found["kv_history"]) == changes
        assert sorted_tables(found) == sorted_tables(expected_tables(records))
        state = {row["k"]: (row["o"], row["timestamp_ns"]) for row in found["kv_state"]}
        assert state == {key: (str(store.get(key)), store.get_with_timestamp(key)[1]) for key, _ in store.items()}  # type: ignore[index]


def test_times_beyond_63_bits_are_null_in_the_tables_and_exact_in_one_column(tmp_path: Path) -> None:
    found = tables_of([as_batch([record(7, "a", "1", 0, 40), record(BIG, "a", "null", None, 49)])], tmp_path)
    assert brief(found["kv_changes"], "t", "timestamp", "t_exact", "sequence") == [
        (7, EPOCH, None, 0),
        (None, None, Decimal(BIG), None),
    ]
    assert brief(found["kv_history"], "version", "o", "deleted", "valid_from_ns", "valid_to_ns", "sequence") == [
        (1, "1", False, 7, None, 0),
        (2, None, True, None, None, None),
    ]
    assert found["kv_state"] == []


def test_no_records_make_no_rows(tmp_path: Path) -> None:
    assert tables_of([], tmp_path) == {"kv_changes": [], "kv_history": [], "kv_state": []}
    assert tables_of([as_batch([])], tmp_path, moment=5) == {"kv_changes": [], "kv_history": [], "kv_state": []}


def test_another_moment_cannot_be_continued(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    MATERIALS.materializer(Continued("cars", None, tmp_path, 5)).save(sink)
    with pytest.raises(WrongUse, match="saved for the time 5, and is continued for 6: make the tables again"):
        MATERIALS.materializer(Continued("cars", pa.BufferReader(sink.getvalue()), tmp_path, 6))


def test_value_written_again_and_again_takes_no_more_memory(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    made = MATERIALS.materializer(Continued("cars", None, tmp_path))
    for number in range(50):
        rows = [record(number, f"{key}", f'"{number:01000}"', 0, key) for key in range(100)]
        assert sum(batch.num_rows for table, batch in made.add(as_batch(rows)) if table == "kv_history") == (
            100 if number else 0
        )
        del rows
        assert pa.total_allocated_bytes() - before < 1 << 20
    sink = pa.BufferOutputStream()
    made.save(sink)
    assert sink.tell() < 200_000


def test_store_is_restored_byte_for_byte_from_its_changes(tmp_path: Path) -> None:
    rng = random.Random(3)
    with VersionedKVStore(tmp_path / "stores", "cars", 4096, clock=Clock(START), background=False) as store:
        for number in range(80):
            store.insert(rng.choice("abcdef"), rng.choice((number, 0.5, {"n": [None, "ä"]})))
            if number % 30 == 29:
                store.rotate()
    rows = []
    made = MATERIALS.materializer(Continued("cars", None, tmp_path))
    for batch in batches_of(FORMAT, tmp_path / "stores", "cars"):
        rows += [found for table, found in made.add(batch) if table == "kv_changes"]
    listed = [path.name for path in (tmp_path / "stores").iterdir()]
    writer = RESTORE.writer(tmp_path / "again", "cars.jrn", disk=REAL_DISK, listed=listed)
    for batch in rows:
        writer.append_batch(batch)
    written = writer.finish()
    assert [(one.gaps, one.problems) for one in written] == [((), ())] * 3
    assert journals_of(tmp_path / "again", "cars") == journals_of(tmp_path / "stores", "cars")
    active = (tmp_path / "again" / "cars.jrn").read_bytes()
    assert active == (tmp_path / "stores" / "cars.jrn").read_bytes()[: len(active)]
