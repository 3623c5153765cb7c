"""Operations as Arrow columns, whole journals and parts of them, and the splits that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logwright import arrow, sej
from logwright.core.bytes.outcome import Damage
from logwright.core.read.splits import Split
from logwright.errors import WrongUse
from logwright.yeltsin.bytes.records import Allocate, Modify, Remove
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.format import open_reader
from logwright.yeltsin.tables import spark_columns
from logwright.yeltsin.tables.columns import COLUMN_NAMES, Collector
from logwright.yeltsin.tables.journal_target import JournalTarget
from logwright.yeltsin.tables.splits import SPLITS
from tests.cli.support import run
from tests.yeltsin.samples import CREATED, PAGE, journal, linked, modify, numbered, transaction, write
from tests.yeltsin.test_reader import DATA, STARTS, with_link


def expected_rows(count: int) -> list[dict[str, Any]]:
    """The expected table of `numbered(count)`, computed naively."""
    items, starts = linked(numbered(count))
    rows = []
    for index, item in enumerate(items):
        for number, operation in enumerate(item.operations):
            row: dict[str, Any] = dict.fromkeys(
                ("page_offset", "before", "after", "free_before", "free_after", "end_data", "gaps")
            )
            row |= {"transaction": index, "offset": starts[index], "operation": number, "op": operation.op}
            row |= {"flags": 1, "complete": True, "outcome": "completed", "page": operation.page}
            match operation:
                case Modify(_, page_offset, before, after):
                    row |= {"page_offset": page_offset, "before": before, "after": after}
                case Allocate(_, free_before, free_after):
                    row |= {"free_before": free_before, "free_after": free_after}
                case Remove(_, free_before):
                    row |= {"free_before": free_before}
            rows.append(row)
    return rows


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{name: value for name, value in row.items() if name != "timestamp"} for row in rows]


def test_every_operation_is_a_row(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jrnl", *numbered(50))
    table = arrow.to_arrow(path)
    assert rows_of(table) == [
        {name: row[name] for name in table.schema.names if name != "timestamp"} for row in expected_rows(50)
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[:3] == [CREATED, CREATED + 1, CREATED + 1]


def test_any_columns_can_be_read_in_any_order_and_small_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jrnl", *numbered(500))
    names = ["after", "op", "transaction", "file", "position", "size"]
    found = pa.Table.from_batches(arrow.batches(path, names, batch_bytes=1000)).to_pylist()
    rows = expected_rows(500)
    assert [(row["after"], row["op"], row["transaction"]) for row in found] == [
        (row["after"], row["op"], row["transaction"]) for row in rows
    ]
    assert {row["file"] for row in found} == {"t.jrnl"}
    data = path.read_bytes()
    kinds = [data[row["position"]] for row in found]
    assert kinds == [{"allocate": 1, "modify": 2, "remove": 3}[row["op"]] for row in rows]
    for name in COLUMN_NAMES:
        assert arrow.to_arrow(path, [name]).num_rows == len(rows)


def test_outcomes_and_flags_survive_parquet(tmp_path: Path) -> None:
    write(
        tmp_path / "t.jrnl",
        transaction(modify(b"a", b"b"), end=0xFE, flags=0x82),
        transaction(),
        transaction(Remove(9, 8)),
    )
    arrow.to_parquet(tmp_path / "t.jrnl", tmp_path / "t.parquet")
    found = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["transaction"], row["outcome"], row["flags"], row["complete"]) for row in found] == [
        (0, "rolled_back", 0x82, False),
        (1, "completed", 1, True),
        (2, "completed", 1, True),
    ]
    assert [(row["op"], row["page"], row["operation"]) for row in found] == [
        ("modify", PAGE, 0),
        ("end", None, 0),
        ("remove", 9, 0),
    ]


def test_numbers_beyond_63_bits_are_null_on_spark(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jrnl", transaction(Allocate(2**64 - 1, 2**63, 5), timestamp=2**62))
    batch = next(iter(Reader(path).batches(spark_columns.COLUMNS.sources(spark_columns.TYPED.names, sharded=False))))
    found = {name: spark_columns.COLUMNS.column(batch, name).to_pylist()[0] for name in spark_columns.TYPED.names}  # type: ignore[union-attr]
    assert (found["page"], found["free_before"], found["free_after"], found["timestamp"]) == (None, None, 5, None)
    assert all(spark_columns.COLUMNS.column(batch, field.name).type == field.type for field in spark_columns.TYPED)  # type: ignore[union-attr]


@pytest.mark.parametrize("created", [2**63 - 1, -(2**63), 2**40, -(2**40), 9_223_372_037, -9_223_372_037])
def test_times_beyond_the_range_of_a_column_are_converted(tmp_path: Path, created: int) -> None:
    """Parquet holds milliseconds: a larger time is the largest one there. Messages hold nanoseconds, or no time."""
    image = modify(b"0", b"1")  # both are JSON
    items = transaction(image), transaction(image, timestamp=created), transaction(image)
    path = write(tmp_path / "t.jrnl", *items)
    arrow.to_parquet(path, tmp_path / "t.parquet")
    times = pq.read_table(tmp_path / "t.parquet").column("timestamp").cast("int64").to_pylist()
    most = (2**63 - 1) // 1000
    assert times == [1000 * CREATED, 1000 * min(max(created, -most), most), 1000 * CREATED]
    for target in ("sej", "kestrel", "versioned", "yeltsin"):
        found = run("convert", path, tmp_path / target, "--to", target, "--json")
        assert (found.code, run("count", tmp_path / target).out.strip()) == (0, "3"), found.err
    with sej.Reader(tmp_path / "sej") as reader:
        assert [message.timestamp for message in reader] == [CREATED * 10**9, None, CREATED * 10**9]


def test_table_becomes_the_same_journal(tmp_path: Path) -> None:
    items = [
        *numbered(20),
        transaction(data=b"nothing else"),
        transaction(modify(b"a", b"b"), end=0xFE, flags=0x82),
        transaction(modify(b"b", b"c"), Remove(9, 8), data=b"carried"),
        transaction(end=0xFE, flags=0),
    ]
    path = write(tmp_path / "t.jrnl", *items)
    with JournalTarget(tmp_path / "out", "u") as target:
        for batch in arrow.batches(path, batch_bytes=300):
            target.append_batch(batch)
    assert (tmp_path / "out" / "u.jrnl").read_bytes() == path.read_bytes()


def test_transactions_with_the_same_number_in_several_journals_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    first, second = transaction(modify(b"0", b"1")), transaction(modify(b"1", b"2"), timestamp=CREATED + 1)
    write(tmp_path / "in" / "a.jrnl", first)
    write(tmp_path / "in" / "b.jrnl", second)
    assert run("convert", tmp_path / "in", tmp_path / "t.parquet", "--to", "parquet").code == 0
    assert run("convert", tmp_path / "t.parquet", tmp_path / "out", "--to", "yeltsin").code == 0
    assert (tmp_path / "out" / "out.jrnl").read_bytes() == journal([first, second])


def test_invalid_operation_rows_are_refused(tmp_path: Path) -> None:
    for rows, message in (
        ([{"value": b"x"}], "there is no op, or no page, among value"),
        ([{"op": "shuffle", "page": 1}], "row 0: 'shuffle' is no operation"),
        ([{"op": "modify", "page": 1, "before": b"a"}], "row 0: the operation modify needs page_offset, after"),
    ):
        with JournalTarget(tmp_path, "u") as target, pytest.raises(WrongUse, match=message):
            target.append_batch(pa.RecordBatch.from_pylist(rows))


# --- splits -----------------------------------------------------------------------------------------------------------


def read_splits(reader: Any, found: list[Split], mode: Any = "failfast") -> tuple[list[dict[str, Any]], list[Damage]]:
    damages = []
    rows: list[dict[str, Any]] = []
    for split in found:
        collector = Collector()
        for item in SPLITS.chunks(reader, split, mode):
            if isinstance(item, Damage):
                damages.append(item)
            else:
                rows += [row for batch in collector.add(item) for row in batch.to_pylist()]
        rows += [row for batch in collector.finish() for row in batch.to_pylist()]
    return rows, damages


def test_splits_give_every_operation_once_with_its_transaction(tmp_path: Path) -> None:
    large = [transaction(modify(bytes(60_000), bytes([number]) * 60_000)) for number in range(30)]
    path = tmp_path / "t.jrnl"
    path.write_bytes(journal(large))
    reader = Reader(path)
    found = SPLITS.plan(reader, 500_000)
    assert len(found) > 3
    rows, damages = read_splits(reader, found)
    assert damages == []
    assert [row["transaction"] for row in rows] == list(range(30))
    assert [row["after"][0] for row in rows] == list(range(30))
    backwards, _ = read_splits(reader, found[::-1])
    assert sorted(row["transaction"] for row in backwards) == list(range(30))


def test_stream_resumes_where_it_stopped(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jrnl", *numbered(40))
    _, starts = linked(numbered(40))
    reader = Reader(path)
    assert SPLITS.extent(reader) == {"t.jrnl": (0, path.stat().st_size)}
    rows, _ = read_splits(reader, SPLITS.plan(reader, start={"t.jrnl": starts[7]}, stop={"t.jrnl": starts[9]}))
    assert {row["transaction"] for row in rows} == {7, 8}
    number, used = SPLITS.reach(reader, "t.jrnl", starts[3], starts[30], 200)
    assert number in starts
    assert used == number - starts[3] <= 200
    assert SPLITS.advance(reader, "t.jrnl", starts[3], starts[30], 5) == (starts[8], 5)


def test_damage_and_a_torn_tail_belong_to_a_split(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(with_link(STARTS[2] + 8, 3, DATA) + b"tail")
    reader = Reader(path)
    rows, damages = read_splits(reader, SPLITS.plan(reader), "permissive")
    assert {row["transaction"] for row in rows} == set(range(6))
    assert [(damage.start, damage.kind) for damage in damages] == [(STARTS[2] + 8, "link"), (len(DATA), "torn_tail")]


@pytest.mark.parametrize("count", [1, 2])
def test_inventory_has_every_journal(tmp_path: Path, count: int) -> None:
    for number in range(count):
        write(tmp_path / f"{number}.jrnl", *numbered(number + 1))
    found = SPLITS.inventory(open_reader(tmp_path))
    assert [(entry.file, entry.first, entry.next) for entry in found.files] == [
        (f"{number}.jrnl", 0, (tmp_path / f"{number}.jrnl").stat().st_size) for number in range(count)
    ]
