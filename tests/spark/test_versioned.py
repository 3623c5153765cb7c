"""Stores on Spark: each change is one row, however often it was copied, in their own columns and in the shared ones."""

from __future__ import annotations

import datetime
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter
from pyspark.sql.types import StructType

from logwright.arrow.bounds import Bounds
from logwright.core.times import shown_time
from logwright.errors import WrongUse
from logwright.spark.schemas import spark_schema
from logwright.spark.source import SOURCES, FilteredStateReader, JournalReader, VersionedSource
from logwright.versioned import Entry, Reader, VersionedRecovery
from logwright.versioned.tables.splits import SPLITS
from tests.versioned.histories import random_history, random_stores
from tests.versioned.samples import START, Model

Row = tuple[Any, ...]
MILLISECOND = 1_000_000


def test_each_change_is_one_row_in_both_kinds_of_columns(spark: Any, tmp_path: Path) -> None:
    model = Model()
    for number in range(60):
        value = None if number % 9 == 8 else {"number": number, "text": "ä" * (number % 5)}
        model.change(Entry(START + number * MILLISECOND, f"key {number % 4}", value))
        if number % 13 == 12:
            model.rotate()
    model.write(tmp_path / "stores", "cars")
    path = str(tmp_path / "stores")

    rows = spark.read.format("versioned").load(path).collect()
    found = sorted((row.t, row.k, None if row.deleted else json.loads(row.o)) for row in rows)
    assert found == [(entry.t, entry.k, entry.o) for entry in model.changes]
    assert {row.store for row in rows} == {"cars"}
    assert all(row.timestamp.timestamp() == row.t / 10**9 for row in rows)

    shared = spark.read.format("logwright").load(path).orderBy("sequence", "position").collect()
    assert [(row.op, row.key.decode(), row.timestamp_ns) for row in shared] == [
        ("delete" if entry.deleted else "set", entry.k, entry.t) for entry in model.changes
    ]
    assert {row.detail for row in shared} == {'{"store":"cars"}'}
    assert [row.value for row in shared if row.op == "delete"] == [None] * sum(entry.deleted for entry in model.changes)


# --- the state at a time ----------------------------------------------------------------------------------------------


def known_states(root: Path, models: dict[Path, Model], at: int) -> set[Row]:
    """The results of recovery for every store that existed at the time."""
    found = set()
    for path, model in models.items():
        if at >= model.initialized:
            for key, (value, t) in VersionedRecovery.load(path).recover_at(at).with_timestamps().items():
                found.add((name_of(root, path), path.stem, t, key, json.dumps(value)))
    return found


def name_of(root: Path, path: Path) -> str:
    """The name of the journal of a directory below the root."""
    return path.parent.relative_to(root).as_posix() if path.parent != root else root.name


def states_of(frame: Any) -> set[Row]:
    rows = frame.collect()
    assert not any(row.deleted for row in rows)
    found = {(row._journal, row.store, row.t, row.k, json.dumps(json.loads(row.o))) for row in rows}
    assert len(found) == len(rows)
    return found


def test_300_stores_at_a_time_equal_their_recovery(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "stores"
    models = random_stores(root, 300, random.Random(3))
    columns = "store STRING, t BIGINT, timestamp TIMESTAMP, k STRING, o STRING, deleted BOOLEAN"
    schema = f"{columns}, _journal STRING, _damage STRING, _file STRING"

    def read(at: int | str, **options: Any) -> Any:
        return spark.read.format("versioned").schema(schema).options(at=at, **options).load(str(root))

    wanted = known_states(root, models, START + 60)
    assert len(wanted) > 500
    assert states_of(read(START + 60, splitBytes="4m")) == wanted
    seconds, rest = divmod(START + 60, 10**9)
    text = f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    frame = read(text, pushFilters=True)
    some = {row for row in wanted if row[1] in ("store 7", "store 8") and row[3] == "a"}
    assert some
    assert states_of(frame.where("store in ('store 7', 'store 8') and k = 'a'")) == some

    early = START + 12
    late = {path.stem: model.initialized for path, model in models.items() if model.initialized > early}
    assert 100 < len(late) < 250
    assert states_of(read(early, mode="DropMalformed")) == known_states(root, models, early)
    rows = read(early, mode="permissive").collect()
    reported = {row._file.removesuffix(".jrn"): row._damage for row in rows if row._damage is not None}
    for store, initialized in late.items():
        begins = [name for name in reported if name == store or name.startswith(f"{store}.jrn.t")]
        assert len(begins) == 1
        reason = f"{store}.jrn: {shown_time(early)} is before what is kept; the state is known from {initialized} on"
        assert reported[begins[0]].startswith("history_unavailable: ")
        assert f"{reason}, which is 2023-11-09T21:20:00" in reported[begins[0]]
    assert len(reported) == len(late)
    assert {row[1:] for row in known_states(root, models, early)} == {
        (row.store, row.t, row.k, json.dumps(json.loads(row.o))) for row in rows if row._damage is None
    }
    with pytest.raises(Exception, match=r"store \d+\.jrn: \S+Z is before what is kept; the state is known from \d+ on"):
        read(early).collect()


def plan_of(path: Path, schema: Any = None, **options: str) -> FilteredStateReader:
    return FilteredStateReader(schema or spark_schema("versioned"), {"path": str(path), **options}, "versioned")


def rows_of(reader: FilteredStateReader, *filters: Filter) -> list[Row]:
    """The rows of the tasks of a read, whose state was pickled."""
    reader.pushFilters(list(filters))
    found: list[Row] = []
    for partition in reader.partitions():
        copy, task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy.read(task):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def test_small_stores_share_a_task_and_large_states_have_several_batches(tmp_path: Path) -> None:
    dice = random.Random(4)
    for number in range(50):
        random_history(dice, 20).write(tmp_path / "stores", f"s{number}")
    large = Model()
    for number in range(2000):
        large.change(Entry(START + number, f"k{number}", "v" * 100))
    large.write(tmp_path / "stores", "large")
    reader = plan_of(tmp_path / "stores", at=str(START + 10**6), splitbytes="1m", batchbytes="50k")
    parts: Any = reader.partitions()
    assert sorted(part.store for one in parts for _, part in one.parts) == sorted(
        ["large", *(f"s{number}" for number in range(50))]
    )
    assert 4 <= len(parts) < 10
    sizes = [batch.nbytes for one in parts for batch in reader.read(one)]
    assert max(sizes) < 80_000
    assert len(sizes) < 20, "small states come together"
    filter = EqualTo(("store",), "large")
    assert len(rows_of(plan_of(tmp_path / "stores", at="now"), filter)) == 2000
    pushed = plan_of(tmp_path / "stores", at="now")
    pushed.pushFilters([filter])
    chosen: Any = pushed.partitions()
    assert [[part.store for _, part in one.parts] for one in chosen] == [["large"]], "the others are not even planned"


def test_state_can_be_filtered_by_the_time_of_change(tmp_path: Path) -> None:
    model = Model()
    for number in range(20):
        model.change(Entry(START + number, f"k{number % 7}", number))
    model.write(tmp_path / "stores")
    at, since = str(START + 16), str(START + 12)
    wanted = sorted((key, str(value)) for key, (value, t) in model.state(START + 16).items() if t >= START + 12)
    schema = StructType().add("k", "string").add("o", "string")
    assert sorted(rows_of(plan_of(tmp_path / "stores", schema, at=at, since=since))) == wanted
    assert wanted != sorted((key, str(value)) for key, (value, _) in model.state(START + 16).items())
    assert len(rows_of(plan_of(tmp_path / "stores", StructType().add("_size", "integer"), at=at))) == 7


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("versioned", {"at": "yesterday"}, "option at: 'yesterday' is not a time: give nanoseconds"),
        ("versioned", {"at": "-5"}, "option at: '-5' is before 1970"),
        (
            "versioned",
            {"at": "now", "from": "5"},
            "option from is unknown for reading the state at a time",
        ),
        ("sej", {"at": "now"}, "versioned has states at a time, sej has not"),
        ("logwright", {"at": "now"}, "versioned has states at a time, a mix of formats has not"),
    ],
)
def test_invalid_time_is_refused(tmp_path: Path, source: str, options: dict[str, str], reason: str) -> None:
    made = next(one for one in SOURCES if one.name() == source)
    with pytest.raises(WrongUse, match=reason):
        made({"path": str(tmp_path), **options}).reader(spark_schema(made.format))


def test_stream_has_no_state_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="option at is for tables"):
        VersionedSource({"path": str(tmp_path), "at": "now"}).streamReader(spark_schema("versioned"))


def test_changes_are_selected_by_time(tmp_path: Path) -> None:
    model = random_history(random.Random(6), 200)
    model.write(tmp_path / "stores")
    times = [entry.t for entry in model.changes]
    low, high = times[60], times[120]
    options = {"path": str(tmp_path / "stores"), "since": str(low), "until": str(high)}
    reader: Any = JournalReader(StructType().add("t", "long").add("k", "string"), options, "versioned")
    parts = reader.partitions()
    found = [tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [(entry.t, entry.k) for entry in model.changes if low <= entry.t < high]
    assert 0 < sum(len(part.parts) for part in parts) < len(model.archives), "of other times no file is read"


def test_positions_of_an_archive_exceed_its_size(tmp_path: Path) -> None:
    model = Model()
    for number in range(100):
        model.change(Entry(START + number, "key", "the same text again and again"))
    model.rotate()
    reader = Reader(model.write(tmp_path))
    (archive, *_) = SPLITS.plan(reader)
    assert archive.bytes < 1000
    assert Bounds(first_position=5000).leave(archive)
