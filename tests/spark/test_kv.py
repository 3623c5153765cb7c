"""The tables of stores equal what recovery returns for every key, and a model that keeps every change."""

from __future__ import annotations

import json
import random
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import HistoryUnavailable
from logwright.pipeline import tables
from logwright.pipeline.tables.kv import kv_history, kv_state
from logwright.versioned import VersionedRecovery
from logwright.versioned.bytes.codec import plain_value
from tests.versioned.histories import KEYS, random_history
from tests.versioned.samples import START, Model

Row = tuple[Any, ...]
TIMES = [START + 9, START + 17, START + 40, START + 10**6]


def make_stores(root: Path) -> dict[tuple[str, str], tuple[Path, Model]]:
    """Stores in two directories; of some the oldest archives were removed, of others one is damaged."""
    found = {}
    for number in range(40):
        dice = random.Random(number)
        model = random_history(dice, 45, START + dice.randrange(20), rotations=0.15)
        directory = ("east", "west")[number % 2]
        path = model.write(root / directory, f"store {number}")
        archives = sorted(path.parent.glob(f"{path.name}.t*"), key=lambda one: int(one.suffixes[-2][2:]))
        if number % 5 == 1 and archives:
            archives[0].unlink()
        if number % 5 == 2 and len(archives) > 1:
            damage(dice.choice(archives[:-1]))
        found[directory, f"store {number}"] = path, model
    return found


def damage(archive: Path) -> None:
    """Make two bytes of one entry what no entry has."""
    data = bytearray(zlib.decompress(archive.read_bytes()))
    middle = data.index(b"o", len(data) // 2) + 1
    data[middle : middle + 2] = b"\xff\xff"
    archive.write_bytes(zlib.compress(data))


def as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(plain_value(value), ensure_ascii=False, separators=(",", ":"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], tuple[Path, Model]]]:
    root = tmp_path_factory.mktemp("kv") / "stores"
    return root, make_stores(root)


@pytest.fixture(scope="module")
def events(spark: Any, stores: Any) -> Any:
    """The events of all stores, read once."""
    records = spark.read.format("logwright").option("mode", "dropmalformed").load(str(stores[0]))
    return tables.events(records).cache()


def test_history_of_every_key_equals_recovery(events: Any, stores: Any) -> None:
    by_key: dict[Row, list[Any]] = defaultdict(list)
    for row in kv_history(events).orderBy("version").collect():
        by_key[row.journal, row.store, row.k].append(row)
    damaged = 0
    for (directory, store), (path, model) in stores[1].items():
        recovery = VersionedRecovery.load(path, mode="dropmalformed")
        for key in KEYS:
            rows = by_key.pop((directory, store, key), [])
            wanted = recovery.history(key)
            is_damaged = bool(recovery.damages)
            damaged += is_damaged
            assert [(row.valid_from_ns, row.o, row.deleted) for row in rows] == [
                (entry.t, as_json(entry.o), entry.deleted) for entry in wanted
            ], (store, key)
            if recovery.earliest() == model.initialized and not is_damaged:
                assert wanted == [entry for entry in model.changes if entry.k == key]
            assert [row.version for row in rows] == list(range(1, len(rows) + 1))
            assert [row.valid_to_ns for row in rows] == [*(row.valid_from_ns for row in rows[1:]), None][: len(rows)]
    assert not by_key
    assert damaged > 10


def test_state_at_a_time_equals_recovery(spark: Any, events: Any, stores: Any) -> None:
    for at in TIMES:
        found: dict[Row, dict[str, Row]] = defaultdict(dict)
        for row in kv_state(events, at).collect():
            found[row.journal, row.store][row.k] = (row.o, row.timestamp_ns)
        known = 0
        for (directory, store), (path, _) in stores[1].items():
            recovery = VersionedRecovery.load(path, mode="dropmalformed")
            try:
                state = recovery.recover_at(at).with_timestamps()
                known += 1
            except HistoryUnavailable:
                state = {}
            if not recovery.damages:  # of a damaged journal more is known from the one before it
                rows = found.pop((directory, store), {})
                assert rows == {key: (as_json(value), t) for key, (value, t) in state.items()}, (store, at)
        assert known >= (40 if at > START + 40 else 0)
    assert kv_state(events).count() == kv_state(events, START + 10**6).count() > 40
