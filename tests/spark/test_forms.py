"""Tables in CSV and JSON: other programs can read them, and they restore the journals."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from logwright import kestrel
from logwright.pipeline import JournalRule, Settings, TableRule, checks, tables
from logwright.pipeline.commit import table_files
from logwright.pipeline.restore import restore
from logwright.pipeline.run import run
from logwright.sej import Offset, Writer

NAME = 'a "quoted", name'
TIME_NS = 1_768_471_200_123_456_789
VALUES = (b"", b"\x00\xff\n", b'{"a": "line\\nbreak, \\"quoted\\" \\\\"}', b"  spaces  ")


def grow(root: Path, number: int) -> None:
    with Writer(root / NAME) as writer:
        for value in VALUES:
            writer.append(value, b"" if number else b"key", number, TIME_NS + number * 60_000_000_000)
    with Offset(root / NAME, "billing") as offset:
        offset.commit(3)
    with kestrel.Writer(root / "queues" / "mail") as writer:
        for _ in range(3):
            writer.addx(b"\xfe, item", added=TIME_NS // 1_000_000)
        writer.remove()


def raw_rows(out: Path, table: str, format: str) -> list[dict[str, Any]]:
    """The rows as their files say them, in the order of the files."""
    found: list[dict[str, Any]] = []
    for name in table_files(out, table):
        with open(out / name, newline="") as file:
            found += csv.DictReader(file) if format == "csv" else map(json.loads, file)
    return found


def test_csv_tables_grow_and_are_restored_with_their_saved_schema(spark: Any, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "tables"
    settings = Settings(
        str(root),
        str(out),
        format="csv",
        incremental=True,
        table_rules={"events": TableRule(("format", "date"))},
        journal_rules=(JournalRule("a *", decode="text"), JournalRule("nothing/*", decode="json")),
    )
    for number in range(2):
        grow(root, number)
        result = run(settings, spark)
    assert result.tables["events"].rows == 16
    assert result.notes == ["no journal matches the rule match = 'nothing/*'"]

    messages = raw_rows(out, "messages", "csv")
    assert [base64.b64decode(row["value"]) for row in messages] == [*VALUES, *VALUES]
    assert [row["key"] for row in messages[:1] + messages[-1:]] == ["a2V5", ""]
    assert messages[2]["timestamp"] == "2026-01-15T10:00:00.123456Z"
    assert json.loads(messages[2]["decoded"]) == VALUES[2].decode()
    minutes = [row["minute"] for row in raw_rows(out, "activity", "csv")]
    assert minutes == ["2026-01-15T10:00:00.000000Z"] * 2 + ["2026-01-15T10:01:00.000000Z", ""]
    changes = [json.loads(row["changes"]) for row in raw_rows(out, "queue_items", "csv")]
    assert sorted(len(one) for one in changes) == [1, 1, 1, 1, 2, 2]

    restored = restore(str(out), str(tmp_path / "again"), spark=spark)
    assert restored.whole, restored
    for file in (f"{NAME}/jnl/0000000000000000.jnl", f"{NAME}/ofs/billing.ofs", "queues/mail"):
        assert (tmp_path / "again" / file).read_bytes() == (root / file).read_bytes(), file


def test_json_tables_have_times_to_the_microsecond(spark: Any, tmp_path: Path) -> None:
    grow(tmp_path / "root", 0)
    chosen = Settings(str(tmp_path / "root" / NAME), str(tmp_path / "out"), format="json", tables=("events",))
    assert run(chosen, spark).tables["events"].rows == 4
    found = raw_rows(tmp_path / "out", "events", "json")
    assert [row["timestamp"] for row in found] == ["2026-01-15T10:00:00.123456Z"] * 4
    assert [base64.b64decode(row["value"]) for row in found] == list(VALUES)


def test_columns_known_without_spark_equal_those_of_the_tables(spark: Any) -> None:
    sources = {"events": tables.EVENTS, "files": tables.FILES, "offsets": tables.OFFSETS}
    for name, columns in checks.COLUMNS.items():
        table = tables.TABLES[name]
        if table.source != "records":
            made = table.make(spark.createDataFrame([], from_arrow_schema(sources[table.source])))
            assert made.columns == list(columns), name
