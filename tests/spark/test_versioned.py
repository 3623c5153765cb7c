"""Stores on Spark: each change is one row, however often it was copied, in their own columns and the shared ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from logwright.formats.versioned import Entry
from tests.formats.versioned.samples import START, Model

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
