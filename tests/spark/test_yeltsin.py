"""Journals of page transactions on Spark: a row for each operation, as a table and as a stream."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from logwright.pipeline import Settings
from logwright.pipeline.run import run
from logwright.yeltsin.bytes.records import Modify
from logwright.yeltsin.files import repair
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.writer import TransactionJournal
from tests.support.damage import drop
from tests.yeltsin.samples import CREATED, linked, modify, numbered, transaction, write


def test_every_operation_is_a_row_in_both_kinds_of_columns(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "pages" / "t.jrnl", *numbered(60))
    items, starts = linked(numbered(60))
    expected = [
        (index, number, item) for index, record in enumerate(items) for number, item in enumerate(record.operations)
    ]

    rows = spark.read.format("yeltsin").load(str(path)).orderBy("transaction", "operation").collect()
    assert [(row.transaction, row.operation, row.op, row.page) for row in rows] == [
        (index, number, item.op, item.page) for index, number, item in expected
    ]
    assert [row.offset for row in rows] == [starts[index] for index, _, _ in expected]
    assert [row.timestamp.timestamp() for row in rows] == [CREATED + index for index, _, _ in expected]
    assert [row.after for row in rows] == [item.after if isinstance(item, Modify) else None for _, _, item in expected]
    assert {(row.flags, row.complete, row.outcome) for row in rows} == {(1, True, "completed")}

    shared = spark.read.format("logwright").load(str(tmp_path)).orderBy("position").collect()
    assert [(row.sequence, row.op, int(row.key)) for row in shared] == [
        (index, item.op, item.page) for index, _, item in expected
    ]
    for row, (index, number, item) in zip(shared, expected, strict=True):
        detail = json.loads(row.detail)
        assert (detail["offset"], detail["operation"], detail["page"]) == (starts[index], number, item.page)
        if isinstance(item, Modify):
            assert (base64.b64decode(detail["before"]), row.value) == (item.before, item.after)


def test_tables_contain_transactions_and_the_pages_after_each(spark: Any, tmp_path: Path) -> None:
    void = transaction(modify(b"x", b"y"), timestamp=CREATED + 90, end=0xFE, flags=0)
    items = [*numbered(40), transaction(timestamp=CREATED + 80, data=b"nothing else"), void]
    path = write(tmp_path / "journals" / "t.jrnl", *items)
    run(Settings(str(path.parent), str(tmp_path / "out"), tables=("transactions", "page_versions")), spark)
    _, starts = linked(items)

    rows = spark.read.parquet(str(tmp_path / "out" / "transactions")).orderBy("transaction").collect()
    assert [(row.transaction, row.offset, row.operations) for row in rows] == [
        (index, starts[index], len(item.operations)) for index, item in enumerate(items)
    ]
    assert (rows[40].operations, rows[40].pages, rows[40].bytes, rows[40].outcome) == (0, 0, 0, "completed")
    assert (rows[-1].outcome, rows[-1].complete, rows[0].complete, rows[0].journal) == (
        "rolled_back",
        False,
        True,
        "journals",
    )
    versions = spark.read.parquet(str(tmp_path / "out" / "page_versions")).orderBy("page", "version").collect()
    reader = Reader(path)
    for page in sorted({row.page for row in versions}):
        history = reader.history(str(page))
        found = [row for row in versions if row.page == page]
        assert [(row.version, row.transaction, row.op, row.deleted) for row in found] == [
            (number, change["transaction"], change["event"], "deleted" in change)
            for number, change in enumerate(history, 1)
        ]
        assert [row.ranges and json.loads(row.ranges) for row in found] == [change.get("value") for change in history]
    assert {row.page for row in versions} == {item.page for record in numbered(40) for item in record.operations}


def test_page_versions_omit_bytes_that_lost_transactions_may_have_changed(spark: Any, tmp_path: Path) -> None:
    changes = [modify(bytes([number]), bytes([number + 1]), number) for number in range(6)]
    items = [transaction(change, timestamp=CREATED) for change in changes]
    path = write(tmp_path / "journals" / "t.jrnl", *items)
    _, starts = linked(items)
    path.write_bytes(drop(path.read_bytes(), starts[3] + 30, starts[3] + 33))
    assert repair.apply(path, repair.plan(path)) is not None
    run(Settings(str(path.parent), str(tmp_path / "out"), tables=("page_versions",)), spark)
    versions = spark.read.parquet(str(tmp_path / "out" / "page_versions")).orderBy("version").collect()
    history = [change for change in Reader(path).history("30") if change["event"] != "lost"]
    assert [json.loads(row.ranges) for row in versions] == [change["value"] for change in history]
    assert [row.gaps for row in versions] == [0, 0, 0, 1, 1]
    assert [len(json.loads(row.ranges)) for row in versions] == [1, 1, 1, 1, 1]
    assert base64.b64decode(json.loads(versions[-1].ranges)[0]["data"]) == b"\x05\x06"


def test_stream_reads_each_operation_once(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "pages" / "t.jrnl"
    path.parent.mkdir()
    out = tmp_path / "out"

    def run() -> list[tuple[int, int]]:
        frame = spark.readStream.format("yeltsin").load(str(path.parent))
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
        rows = spark.read.parquet(str(out)).select("transaction", "operation").collect()
        return sorted((row.transaction, row.operation) for row in rows)

    expected = [(index, number) for index, item in enumerate(numbered(30)) for number in range(len(item.operations))]
    with TransactionJournal(path) as writer:
        for item in numbered(12):
            writer.append_transaction(item)
        writer.flush()
        assert run() == [pair for pair in expected if pair[0] < 12]
        for item in numbered(30)[12:]:
            writer.append_transaction(item)
        writer.flush()
        assert run() == expected
