"""Operations as Arrow columns and back, and as the columns of Spark's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright import arrow
from logwright.errors import WrongUse
from logwright.kestrel.bytes.records import FIELDS, Operation
from logwright.kestrel.files.queues import QueuesReader, QueuesWriter
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.tables import columns
from logwright.kestrel.tables.spark_columns import COLUMNS, TYPED
from tests.kestrel.samples import (
    ADDED,
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    reserve_as,
    state_dump,
    write,
)

OPERATIONS = [
    addx(b"A", expires=ADDED + 60_000),
    REMOVE,
    confirm(-5),
    Operation("add", expires=5000, data=b"of starling"),
    add_xid(7, b""),
    RESERVE,
    state_dump(1, 2),
]
LATER = [addx(b"A"), reserve_as(3), continue_(3, b"B")]


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    write(tmp_path / "cars.50", *OPERATIONS[:3])
    return write(tmp_path / "cars", *OPERATIONS[3:])


def rows_of(table: pa.Table) -> list[Operation]:
    """The rows of a table as operations again, by plain Python."""
    found = []
    for row in table.to_pylist():
        for name in ("added", "expires"):
            row[name] = None if row[name] is None else round(row[name].timestamp() * 1000)
        assert {name for name, value in row.items() if value is not None} <= {"op", "queue", *FIELDS[row["op"]]}
        found.append(Operation(**{name: value for name, value in row.items() if name != "queue"}))
    return found


def test_every_field_is_a_column_and_null_if_an_operation_lacks_it(cars: Path) -> None:
    table = arrow.to_arrow(cars)
    assert table.column_names == ["queue", "op", "xid", "count", "added", "expires", "data"]
    assert rows_of(table) == OPERATIONS
    assert set(table.column("queue").to_pylist()) == {"cars"}


def test_columns_have_the_requested_order(cars: Path) -> None:
    table = arrow.to_arrow(cars, ["position", "file", "size"])
    assert table.to_pylist()[2:4] == [
        {"position": 23, "file": "cars.50", "size": 5},
        {"position": 0, "file": "cars", "size": 20},
    ]
    assert arrow.to_arrow(cars, ["queue"]).num_rows == len(OPERATIONS)
    with pytest.raises(WrongUse, match="kestrel has no column 'offset'"):
        arrow.to_arrow(cars, ["offset"])


@pytest.mark.parametrize("batch_bytes", [1, 100, 1 << 20])
def test_batches_of_any_size_have_the_same_rows(batch_bytes: int, tmp_path: Path) -> None:
    operations = [addx(b"%d" % number * (number % 50)) for number in range(3000)] + [REMOVE] * 3000
    path = write(tmp_path / "cars", *operations)
    batches = list(arrow.batches(path, batch_bytes=batch_bytes))
    assert rows_of(pa.Table.from_batches(batches)) == operations


def test_range_is_read_past_damage(cars: Path) -> None:
    cars.with_name("cars.50").write_bytes(b"\x7f\x7f\x7f" + cars.with_name("cars.50").read_bytes())
    found = arrow.batches(cars, mode="permissive", stop=50 << 64)
    assert rows_of(pa.Table.from_batches(list(found))) == OPERATIONS[:3]
    assert [(damage.file, damage.start) for damage in found.damages] == [("cars.50", 0)]


@pytest.mark.parametrize("operations", [OPERATIONS, LATER], ids=["documented", "kestrel2"])
def test_table_becomes_the_same_journal(operations: list[Operation], tmp_path: Path) -> None:
    path = write(tmp_path / "cars", *operations)
    with Writer(tmp_path / "again" / "cars") as writer:
        assert arrow.append(writer, arrow.to_arrow(path)) == len(operations)
    assert (tmp_path / "again" / "cars").read_bytes() == path.read_bytes()


def test_rows_without_an_operation_are_items(tmp_path: Path) -> None:
    times = pa.array([1_300_000_000_000_999_999, -1, None], pa.timestamp("ns", tz="UTC"))
    with Writer(tmp_path / "cars") as writer:
        arrow.append(writer, pa.table({"value": ["x", "y", "z"], "timestamp": times, "unknown": [1, 2, 3]}))
    found = list(Reader(tmp_path / "cars"))
    assert found[:2] == [addx(b"x"), addx(b"y", added=-1)]
    assert (found[2].added or 0) > ADDED


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"op": ["fetch"]}, "'fetch' is not an operation"),
        ({"op": [None]}, "None is not an operation"),
        ({"op": ["addx"]}, "the operation addx needs data"),
        ({"op": ["addx"], "data": [None]}, "the operation addx needs data"),
        ({"op": ["confirm_remove"]}, "the operation confirm_remove needs xid"),
        ({"op": ["confirm_remove"], "xid": [2**40]}, "must fit 32 bits"),
        ({"op": ["confirm_remove"], "xid": ["5"]}, "must be a whole number"),
        ({"op": ["state_dump"], "xid": [1], "count": [-1]}, "a count of -1"),
        ({"op": ["add"], "data": ["x"], "expires": [1500]}, "a whole number of seconds"),
        ({"data": [5]}, "must be binary or string"),
        ({"data": ["x"], "added": ["yesterday"]}, "must be timestamps"),
        ({"key": ["x"]}, "neither op nor data"),
    ],
)
def test_invalid_operations_are_refused_before_anything_is_written(
    table: dict[str, list[Any]], reason: str, tmp_path: Path
) -> None:
    with Writer(tmp_path / "cars") as writer, pytest.raises(WrongUse, match=reason):
        writer.append_batch(pa.table(table))
    assert (tmp_path / "cars").read_bytes() == b""


def test_parquet_keeps_queues_separate(cars: Path, tmp_path: Path) -> None:
    write(cars.with_name("bikes"), *LATER)
    arrow.to_parquet(tmp_path, tmp_path / "out.parquet", format="kestrel")
    with QueuesWriter(tmp_path / "again", "other") as writer:
        arrow.from_parquet(tmp_path / "out.parquet", writer)
    reader = QueuesReader(tmp_path / "again")
    assert reader.queues() == ["bikes", "cars"]
    assert list(reader.open("cars")) == OPERATIONS
    assert list(reader.open("bikes")) == LATER


def test_queue_name_of_a_table_cannot_be_another_path(tmp_path: Path) -> None:
    with QueuesWriter(tmp_path / "in", "other") as writer, pytest.raises(WrongUse, match="is not a valid queue name"):
        writer.append_batch(pa.table({"queue": ["../out"], "data": ["x"]}).to_batches()[0])
    assert not (tmp_path / "out").exists()


def test_items_can_be_written_to_other_formats() -> None:
    batch = pa.RecordBatch.from_pydict({"op": ["addx", "remove"], "data": [b"x", None], "added": [None, None]})
    assert columns.as_messages(batch).to_pylist() == [{"value": b"x", "timestamp": None}]


# --- on Spark -------------------------------------------------------------------------------------------------------


def columns_on_spark(path: Path, *names: str) -> dict[str, list[Any]]:
    collector = columns.Collector(COLUMNS.sources(names, sharded=False))
    batches = [batch for chunk in Reader(path).chunks() for batch in collector.add(chunk)]  # type: ignore[arg-type]
    (batch,) = [*batches, *collector.finish()]
    found = {name: COLUMNS.column(batch, name) for name in names}
    for name, data in found.items():
        if name in TYPED.names:
            assert data is not None
            assert data.type == TYPED.field(name).type
    return {name: None if data is None else data.to_pylist() for name, data in found.items()}  # type: ignore[misc]


def test_typed_columns_match_the_design() -> None:
    assert TYPED.names == ["queue", "op", "xid", "count", "added", "expires", "data"]


def test_shared_columns_are_made_from_the_operations(cars: Path) -> None:
    found = columns_on_spark(cars, *TYPED.names, "value", "timestamp_ns", "detail", "sequence", "key", "size")
    assert found["op"] == [operation.op for operation in OPERATIONS]
    assert found["value"] == found["data"] == [operation.data for operation in OPERATIONS]
    assert found["timestamp_ns"][0] == ADDED * 1_000_000
    assert found["sequence"] == [0, 0, 0, 50, 50, 50, 50], "the number in the name of the file before"
    assert found["key"] is None
    assert [json.loads(text) for text in found["detail"]] == [
        {"queue": "cars", "expires": ADDED + 60_000},
        {"queue": "cars"},
        {"queue": "cars", "xid": -5},
        {"queue": "cars", "expires": 5000},
        {"queue": "cars", "xid": 7},
        {"queue": "cars"},
        {"queue": "cars", "xid": 1, "count": 2},
    ]


def test_time_that_does_not_fit_is_null(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", addx(b"", added=2**62), addx(b"", added=-(2**63)), addx(b"", added=10**13))
    found = columns_on_spark(path, "timestamp_ns", "op")
    assert found["timestamp_ns"] == [None, None, None]
    path = write(tmp_path / "cars", addx(b"", added=2**62), addx(b"", added=5))
    found = columns_on_spark(path, "timestamp_ns", "detail")
    assert found["timestamp_ns"] == [None, 5_000_000]
    assert [json.loads(text) for text in found["detail"]] == [{"queue": "cars", "added": 2**62}, {"queue": "cars"}]


def test_only_requested_columns_are_decoded() -> None:
    assert COLUMNS.sources(["op"], sharded=False) == ["op"]
    assert COLUMNS.sources(["timestamp", "value"], sharded=True) == ["added", "data"]
    assert COLUMNS.sources(["sequence", "key"], sharded=False) == ["before"]
    assert COLUMNS.sources(["key"], sharded=False) == ["size"]
