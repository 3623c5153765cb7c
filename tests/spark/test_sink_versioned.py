"""Rows that Spark loads into new stores are there completely and once, sorted by their times."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from logwright.core.io.disk import REAL_DISK
from logwright.errors import WrongUse
from logwright.spark.sink import JournalStreamWriter, JournalWriter
from logwright.versioned import StoresReader, VersionedKVStore, VersionedRecovery
from logwright.versioned.files.files import list_stores
from tests.spark.driver import wait_for
from tests.spark.test_sink_faults import new_driver
from tests.support.counts import COUNTS
from tests.versioned.samples import START

SCHEMA = "store STRING, k STRING, o STRING, t BIGINT"
Row = tuple[str, str, str | None, int]
Stores = dict[str, list[tuple[int, str, Any]]]
"""The changes of each store: time, key and value."""


def rows_of(seed: int, count: int, stores: int = 3) -> list[Row]:
    dice = random.Random(seed)
    return [
        (
            f"{seed}-{dice.randrange(stores)}",
            f"key {dice.randrange(9)}",
            None if number % 11 == 10 else json.dumps({"number": number, "text": "ä" * dice.randrange(9)}),
            START + dice.randrange(count // 2),
        )
        for number in range(count)
    ]


def expected_of(*batches: list[Row]) -> Stores:
    found: Stores = {}
    for store, key, value, t in (row for rows in batches for row in rows):
        found.setdefault(store, []).append((t, key, None if value is None else json.loads(value)))
    return {store: sorted(changes, key=lambda change: change[0]) for store, changes in sorted(found.items())}


def in_stores(root: Path) -> Stores:
    found: Stores = {}
    for store in list_stores(REAL_DISK, root):
        reader = StoresReader(root).open(store)
        report = reader.verify()
        assert report.sound, report.problems
        assert report.anomalies == []
        found[store] = [(entry.t, entry.k, entry.o) for entry in reader]
    return found


def frame_of(spark: Any, rows: list[Row], parts: int = 1) -> Any:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), SCHEMA)


def save(frame: Any, path: Path, **options: Any) -> None:
    frame.write.format("versioned").options(**options).mode("append").save(str(path))


def staged(root: Path) -> list[str]:
    directory = root / ".logwright" / "staging"
    return sorted(path.name for path in directory.iterdir() if path.name != "sink.lck") if directory.exists() else []


# --- tables -----------------------------------------------------------------------------------------------------------


def test_rows_of_all_tasks_become_new_stores_in_the_order_of_their_times_once(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "out"
    first, second = rows_of(1, 300), rows_of(2, 50)
    with VersionedKVStore(root, "there") as store:
        store.insert("before", 1)
    before = in_stores(root)
    for number, rows in ((1, first), (1, first), (2, second), (1, first)):
        save(frame_of(spark, rows, 3), root, txnAppId="a load", txnVersion=number)
    assert in_stores(root) == {**expected_of(first, second), **before}
    assert staged(root) == []
    with pytest.raises(PySparkException, match=r"has these stores already: 2-0, 2-1, 2-2; only new stores are written"):
        save(frame_of(spark, second), root)
    wait_for(lambda: staged(root) == [])
    assert in_stores(root) == {**expected_of(first, second), **before}
    with VersionedKVStore(root, "1-0") as store:
        ours = expected_of(first)["1-0"]
        state: dict[str, Any] = {}
        for _, key, value in ours:
            state.pop(key, None)
            if value is not None:
                state[key] = value
        assert dict(store.items()) == state
    assert [entry.o for entry in VersionedRecovery.load(root, store="1-0").history("key 3")] == [
        value for _, key, value in ours if key == "key 3"
    ]


def test_read_rows_can_be_loaded_into_another_store(spark: Any, tmp_path: Path) -> None:
    rows = rows_of(3, 80)
    save(frame_of(spark, rows, 2), tmp_path / "one")
    save(spark.read.format("versioned").load(str(tmp_path / "one")), tmp_path / "two")
    assert in_stores(tmp_path / "two") == expected_of(rows)
    save(spark.sql("SELECT 'a' AS k, to_json(named_struct('b', 1)) AS o"), tmp_path / "three", store="settings")
    with VersionedKVStore(tmp_path / "three", "settings") as store:
        assert store.get("a") == {"b": 1}
    with pytest.raises(PySparkException, match="has these stores already: settings"):
        save(spark.sql("SELECT 'a' AS k, '1' AS o"), tmp_path / "three", store="settings")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        ("store STRING, k STRING, o STRING, offset LONG", {}, "a change of a store has no offset: select store, k, o"),
        ("store STRING, k STRING", {}, "there is no column o, which is the value, as JSON"),
        ("store STRING, o STRING", {}, "there is no column k, which is the key"),
        ("k STRING, o STRING", {}, "say which store the changes are of"),
        ("store STRING, k STRING, o INTEGER", {}, "column o is int32, and must be binary or string"),
        ("store INTEGER, k STRING, o STRING", {}, "column store is int32, and must be binary or string"),
        ("store STRING, k STRING, o STRING, deleted STRING", {}, "column deleted is string, and must be boolean"),
        ("store STRING, k STRING, o STRING, t STRING", {}, "column t is string, and must be a whole number"),
        (
            "store STRING, k STRING, o STRING, timestamp STRING",
            {},
            "column timestamp is string, and must be timestamps",
        ),
        ("k STRING, o STRING", {"store": "../cars"}, r"a store cannot be called '\.\./cars'"),
        ("k STRING, o STRING", {"queue": "cars"}, "queue"),
    ],
)
def test_invalid_columns_and_options_are_refused(
    tmp_path: Path, schema: str, options: dict[str, str], reason: str
) -> None:
    columns = StructType()
    for column in schema.split(", "):
        name, kind = column.lower().split()
        columns.add(name, kind)
    with pytest.raises(WrongUse, match=reason):
        JournalWriter(columns, {"path": str(tmp_path), **options}, "versioned", False)
    assert list(tmp_path.iterdir()) == []


def test_streams_are_refused_with_advice(tmp_path: Path) -> None:
    columns = StructType().add("k", "string").add("o", "string")
    with pytest.raises(WrongUse, match=r"a stream cannot be written to stores: .* In foreachBatch every batch can be"):
        JournalStreamWriter(columns, {"path": str(tmp_path), "store": "cars"}, "versioned", False)


def test_one_invalid_row_prevents_publishing(spark: Any, tmp_path: Path) -> None:
    rows = [*rows_of(4, 40), ("trucks", "wheels", "{", START)]
    with pytest.raises(PySparkException, match="the store trucks: the value of the key 'wheels' is no JSON"):
        save(frame_of(spark, rows), tmp_path)
    wait_for(lambda: staged(tmp_path) == [])
    assert list_stores(REAL_DISK, tmp_path) == []


# --- what fails -------------------------------------------------------------------------------------------------------


def test_kill_at_any_commit_step_leaves_each_store_complete_or_absent(tmp_path: Path) -> None:
    steps = [r"rename .*\.manifest", r"rename even\.jrn", r"rename odd\.jrn", r"remove .*\.manifest"]
    columns = ["concat('key ', id) AS k", "cast(id AS STRING) AS o", "if(id % 2 = 0, 'even', 'odd') AS store"]
    with new_driver(tmp_path / "driver") as doomed:
        for number, step in enumerate(steps):
            root = tmp_path / str(number)
            trap = {"trap": "kill", "trapStep": step, "trapNumber": 1}
            options = {"target": str(root), "sink": "trapped_stores", "columns": columns, "rows": 40, "parts": 3}
            assert "crashed" in doomed.ask("save_range", **options, **trap), step
            COUNTS.add("kill -9", 1, "versioned")
            whole = {store for store, changes in in_stores(root).items() if len(changes) == 20}
            assert whole == set(list_stores(REAL_DISK, root)), step
            with VersionedKVStore(root, "odd") as store:  # puts the rest in place, if it was committed
                assert store.get("key 1") == (1 if number else None)
            assert set(list_stores(REAL_DISK, root)) == ({"odd", "even"} if number else {"odd"}), step
