"""The items of a queue as rows, and the report on messages that become items."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from logwright import arrow
from logwright.errors import DamagedJournal, WrongUse
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.tables import messages
from logwright.kestrel.tables.spark_columns import COLUMNS
from logwright.sej.files.writer import Writer as MessageWriter
from tests.kestrel.samples import ADDED, REMOVE, RESERVE, addx, confirm, unremove, write


def test_rows_equal_the_items_of_an_opened_queue(tmp_path: Path) -> None:
    items = [addx(b"%d" % number, expires=ADDED + number or None) for number in range(6)]
    write(tmp_path / "cars", *items, REMOVE, RESERVE, RESERVE, RESERVE, confirm(2), unremove(3))
    found = arrow.items(tmp_path / "cars")
    table = pa.Table.from_batches(list(found), found.schema)
    rows = [(row["queue"], row["state"], row["xid"], row["data"]) for row in table.to_pylist()]
    assert rows == [
        ("cars", "open", 1, b"1"),
        ("cars", "waiting", None, b"3"),
        ("cars", "waiting", None, b"4"),
        ("cars", "waiting", None, b"5"),
    ]
    assert table.column("added").to_pylist() == [datetime.fromtimestamp(ADDED / 1000, UTC)] * 4
    assert table.column("expires")[0].as_py() == datetime.fromtimestamp((ADDED + 1) / 1000, UTC)
    assert found.rows == 4


def test_many_items_are_returned_in_several_batches(tmp_path: Path) -> None:
    write(tmp_path / "cars", *(addx(b"%d" % number) for number in range(5000)))
    batches = list(arrow.items(tmp_path / "cars"))
    assert [batch.num_rows for batch in batches] == [4096, 904]
    assert batches[1].column("data")[903].as_py() == b"4999"


def test_empty_queue_has_no_rows_but_a_schema(tmp_path: Path) -> None:
    write(tmp_path / "cars", addx(b"x"), REMOVE)
    found = arrow.items(tmp_path / "cars")
    assert (list(found), found.schema.names) == ([], ["queue", "state", "xid", "added", "expires", "data"])


def test_damage_is_raised_or_reported(tmp_path: Path) -> None:
    write(tmp_path / "cars.5", addx(b"x"), tail=b"\x7f\x7f")
    write(tmp_path / "cars", addx(b"y"), tail=b"\x02")
    with pytest.raises(DamagedJournal):
        list(arrow.items(tmp_path / "cars", format="kestrel"))
    reported: list[int] = []
    found = arrow.items(tmp_path / "cars", mode="permissive", on_damage=lambda damage: reported.append(damage.start))
    assert [batch.num_rows for batch in found] == [2]
    assert [(damage.file, damage.start) for damage in found.damages] == [("cars.5", 22)]
    assert reported == [22]
    assert [tail.file for tail in found.torn_tails] == ["cars"]


def test_messages_are_not_items(tmp_path: Path) -> None:
    with MessageWriter(tmp_path / "events") as writer:
        writer.append(b"x")
    with pytest.raises(WrongUse, match="hold no items"):
        arrow.items(tmp_path / "events")
    with pytest.raises(WrongUse, match="cannot be chosen"):
        arrow.to_parquet(tmp_path / "events", tmp_path / "x.parquet", ["value"], waiting=True)


def test_fields_that_an_item_lacks_are_counted() -> None:
    times = pa.array([1_000_000, 1_000_001, None, -1], pa.timestamp("ns", tz="UTC"))
    batch = pa.RecordBatch.from_pydict(
        {"key": [b"", b"k", b"", b"l"], "type": pa.array([0, 1, 2, 0], pa.uint8()), "timestamp": times}
    )
    assert COLUMNS.left_out(batch) == {"key": 2, "type": 2, "fraction of a millisecond": 2}
    assert COLUMNS.left_out(pa.RecordBatch.from_pydict({"value": [b"x"]})) == {"fraction of a millisecond": 0}


def test_key_names_the_queue_and_an_empty_key_names_none() -> None:
    batch = pa.RecordBatch.from_pydict({"key": [b"cars", b""], "value": [b"x", b"y"]})
    assert messages.named_by_key(batch).to_pylist() == [
        {"value": b"x", "queue": "cars"},
        {"value": b"y", "queue": None},
    ]


def test_placeholders_of_a_repair_do_not_become_messages(tmp_path: Path) -> None:
    placeholder = Operation("addx", added=0, expires=1, data=b"")
    empty = Operation("addx", added=ADDED, expires=None, data=b"")
    write(tmp_path / "cars", placeholder, addx(b"A"), placeholder, empty)
    found = arrow.batches(tmp_path / "cars")
    values = [value for batch in found for value in arrow.as_messages("kestrel", batch).column("value").to_pylist()]
    assert values == [b"A", b""]
