"""The tables of queues, made at once and in increments, compared with a queue in plain Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.format import find_format
from logwright.core.read.materializer import Continued
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.tables.columns import COLUMN_NAMES, schema
from logwright.kestrel.tables.materializer import MATERIALS, QueueMaterializer, QueueMaterials
from logwright.kestrel.tables.restore import packed
from logwright.kestrel.tables.spark_columns import operations
from tests.kestrel.journals import lived_queue, random_queue
from tests.kestrel.samples import (
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    encoded,
    reserve_as,
    save_xid,
    state_dump,
    unremove,
    write,
)
from tests.support.materializing import Increments, Row, Tables, batches_of, check_increments, sorted_tables

KESTREL = find_format("kestrel")
MS = 1_000_000
"""Nanoseconds of a millisecond."""


class SpillingMaterials(QueueMaterials):
    """Keeps almost nothing in memory."""

    def materializer(self, continued: Continued) -> QueueMaterializer:
        return QueueMaterializer(continued, memory_bytes=0, segment_bytes=1000)


# --- a queue in plain Python ------------------------------------------------------------------------------------------


class PlainQueue:
    """A queue by the rules of the contract, one operation at a time, with only lists and dictionaries."""

    def __init__(self) -> None:
        self.items: list[Row] = []
        self._waiting: list[Row] = []
        self._open: dict[int, Row] = {}
        self._xid = 0
        self._is_dumped = False
        self._last: tuple[int | None, int] | None = None

    def apply(self, row: Row) -> None:
        place = row["before"], row["position"]
        if self._last is None or place[0] != self._last[0] or place[1] <= self._last[1]:
            self._is_dumped = False
        self._last = place
        if self._is_dumped:
            return
        op, xid = row["op"], row["xid"]
        if op in ("confirm_remove", "continue") and xid in self._open:
            self._note(self._open.pop(xid), "finished", row, xid)
        if op in ("add", "addx", "add_xid", "continue"):
            item = {**row, "name": xid if op == "add_xid" and xid else None, "changes": []}
            self.items.append(item)
            self._waiting.append(item)
            self._note(item, "added", row, None)
        elif op == "remove" and self._waiting:
            self._note(self._waiting.pop(0), "removed", row, None)
        elif op == "remove_tentative" and self._waiting:
            item = self._waiting.pop(0)
            name, item["name"] = item["name"], None
            if name is None or name in self._open:
                name = self._xid = self._next_xid()
            self._reserve(item, name, row)
        elif op == "remove_tentative_xid" and self._waiting and xid not in self._open:
            item = self._waiting.pop(0)
            item["name"] = None
            self._xid = xid
            self._reserve(item, xid, row)
        elif op == "unremove" and xid in self._open:
            item = self._open.pop(xid)
            self._waiting.insert(0, item)
            self._note(item, "put_back", row, xid)
        elif op == "save_xid":
            self._xid = xid
        elif op == "state_dump":
            self._is_dumped = True

    def _reserve(self, item: Row, xid: int, row: Row) -> None:
        self._open[xid] = item
        self._note(item, "reserved", row, xid)

    def _next_xid(self) -> int:
        xid = self._xid
        while True:
            xid = xid + 1 if xid < 2**31 - 1 else -(2**31)
            if xid != 0 and xid not in self._open:
                return xid

    @staticmethod
    def _note(item: Row, what: str, row: Row, xid: int | None) -> None:
        item["changes"].append({"op": what, "file": row["file"], "position": row["position"], "xid": xid or None})

    def rows(self, now_ns: int) -> list[Row]:
        return [_item_row(number, item, now_ns) for number, item in enumerate(self.items, 1)]


def _item_row(number: int, item: Row, now_ns: int) -> Row:
    changes = item["changes"]
    last = changes[-1]["op"]
    is_expired = item["expires"] is not None and item["expires"] * MS <= now_ns
    state = {"removed": "done", "finished": "done", "reserved": "open"}.get(
        last, "expired" if is_expired else "waiting"
    )
    return {
        "queue": item["queue"],
        "item": number,
        "state": state,
        "data": item["data"],
        "added": when(item["added"]),
        "expires": when(item["expires"]),
        "xid": changes[-1]["xid"] if state == "open" else None,
        "attempts": [change["op"] for change in changes].count("put_back"),
        **_place("added", changes, "added"),
        **_place("reserved", changes, "reserved"),
        **_place("done", changes, "removed", "finished"),
        "changes": changes,
    }


def _place(name: str, changes: list[Row], *ops: str) -> Row:
    found = [change for change in changes if change["op"] in ops] or [{"file": None, "position": None}]
    return {f"{name}_file": found[-1]["file"], f"{name}_position": found[-1]["position"]}


def when(milliseconds: int | None) -> Any:
    """A time as a TIMESTAMP; None if it does not fit."""
    if milliseconds is None or abs(milliseconds) > (2**63 - 1) // 1000:
        return None
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC")).as_py()


def operation_row(row: Row) -> Row:
    names = ("queue", "op", "xid", "count", "added", "expires", "data")
    times = {name: when(row[name]) for name in ("added", "expires")}
    return {
        **{name: times.get(name) if name in times else row[name] for name in names},
        **{f"{name}_ms": row[name] if time is None else None for name, time in times.items()},
        **{name: row[name] for name in ("file", "position", "size")},
        "sequence": row["before"],
    }


def plain_rows(batches: list[pa.RecordBatch]) -> list[Row]:
    """Operations with times in milliseconds."""
    found: list[Row] = []
    for batch in batches:
        for name in ("added", "expires"):
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, name, batch.column(name).view(pa.int64()))
        found += batch.to_pylist()
    return found


def plain_tables(rows: list[Row], now_ns: int = 0) -> Tables:
    queue = PlainQueue()
    for row in rows:
        queue.apply(row)
    return {"queue_operations": [operation_row(row) for row in rows], "queue_items": queue.rows(now_ns)}


# --- what is compared with it -----------------------------------------------------------------------------------------


def batch_of(*operations: Operation, file: str = "work", before: int | None = 0, position: int = 0) -> pa.RecordBatch:
    """Operations of a file as a batch; each claims to be ten bytes long."""
    rows = [
        {
            **{name: getattr(one, name) for name in ("op", "xid", "count", "added", "expires", "data")},
            "queue": "work",
            "file": file,
            "position": position + 10 * number,
            "size": 10,
            "before": before,
        }
        for number, one in enumerate(operations)
    ]
    return pa.RecordBatch.from_pylist(rows, schema(COLUMN_NAMES))


def items_of(increments: Increments, now_ns: int = 0) -> list[tuple[int, str]]:
    """Number and state of each item."""
    return sorted((row["item"], row["state"]) for row in increments.tables(now_ns)["queue_items"])


def check_random(path: Path, scratch: Path, dice: random.Random) -> None:
    """Compare all tables after each of some random increments, with and without spilling."""
    batches = batches_of(KESTREL, path, "work")
    rows = plain_rows(batches)
    assert rows
    for materials in (MATERIALS, SpillingMaterials()):
        check_increments(materials, batches, scratch, dice, lambda count: plain_tables(rows[:count]), "work")
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
@pytest.mark.parametrize("seed", range(12))
def test_increments_equal_a_plain_queue(tmp_path: Path, seed: int, dialect: str) -> None:
    dice = random.Random(seed)
    path = random_queue(tmp_path / "queues", "work", dice, dialect, lively=seed % 4 > 0)
    check_random(path, tmp_path / "scratch", dice)


@pytest.mark.parametrize("seed", range(8))
def test_rotated_and_packed_queues_equal_a_plain_queue(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    path = lived_queue(tmp_path / "queues", "work", dice, dice.choice(("documented", "kestrel2")))
    check_random(path, tmp_path / "scratch", dice)


@pytest.mark.parametrize("seed", range(6))
def test_damage_omits_operations(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    operations = [addx(bytes(range(100)), added=1_700_000_000_000 + n) for n in range(40)] + [RESERVE, REMOVE] * 10
    data = bytearray(encoded(operations))
    start = dice.randrange(1, 30) * len(encoded(operations[:1]))
    data[start : start + 30] = b"\xee" * 30
    path = tmp_path / "queues" / "work"
    path.parent.mkdir()
    path.write_bytes(data)
    assert 0 < sum(batch.num_rows for batch in batches_of(KESTREL, path, "work")) < len(operations)
    check_random(path, tmp_path / "scratch", dice)


@pytest.mark.parametrize("seed", range(4))
def test_long_backlog_with_many_open_items_equals_a_plain_queue(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    operations: list[Operation] = []
    for _ in range(40):
        operations += [addx(dice.randbytes(dice.randrange(50)), expires=dice.choice((None, -5, 5))) for _ in range(30)]
        operations += [RESERVE] * dice.randrange(20) + [REMOVE] * dice.randrange(5)
        operations += [dice.choice((confirm, unremove))(dice.randrange(1, 400)) for _ in range(dice.randrange(30))]
    path = write(tmp_path / "queues" / "work", *operations)
    check_random(path, tmp_path / "scratch", dice)


def test_rows_of_an_item_that_was_put_back_and_finished(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A", expires=1_400_000_000_000), RESERVE, unremove(1), RESERVE, confirm(2))])
    changes = [("added", 0, None), ("reserved", 10, 1), ("put_back", 20, 1), ("reserved", 30, 2), ("finished", 40, 2)]
    assert increments.closed["queue_items"] == [
        {
            "queue": "work",
            "item": 1,
            "state": "done",
            "data": b"A",
            "added": when(1_300_000_000_000),
            "expires": when(1_400_000_000_000),
            "xid": None,
            "attempts": 1,
            "added_file": "work",
            "added_position": 0,
            "reserved_file": "work",
            "reserved_position": 30,
            "done_file": "work",
            "done_position": 40,
            "changes": [{"op": op, "file": "work", "position": at, "xid": xid} for op, at, xid in changes],
        }
    ]
    assert items_of(increments) == [(1, "done")]


def test_open_item_has_its_transaction(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A"), addx(b"B"), RESERVE)])
    (first, second) = increments.tables()["queue_items"]
    assert (first["state"], first["xid"], first["reserved_position"]) == ("open", 1, 20)
    assert (second["state"], second["xid"], second["reserved_position"]) == ("waiting", None, None)


def test_continue_finishes_one_item_and_adds_another(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A"), reserve_as(7))])
    increments.add([batch_of(continue_(7, b"B"), position=20)])
    assert items_of(increments) == [(1, "done"), (2, "waiting")]


def test_waiting_items_expire_at_the_time_of_the_live_rows(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A"), addx(b"B", expires=5), addx(b"C", expires=5), addx(b"D", expires=9), RESERVE)])
    increments.add([batch_of(RESERVE, position=100)])
    assert items_of(increments, 5 * MS - 1) == [(1, "open"), (2, "open"), (3, "waiting"), (4, "waiting")]
    assert items_of(increments, 5 * MS) == [(1, "open"), (2, "open"), (3, "expired"), (4, "waiting")]
    assert items_of(increments, 9 * MS) == [(1, "open"), (2, "open"), (3, "expired"), (4, "expired")]


def test_moment_overrides_the_time_of_the_live_rows(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path, moment_ns=5 * MS)
    increments.add([batch_of(addx(b"A", expires=5), addx(b"B", expires=6))])
    assert items_of(increments, 100 * MS) == [(1, "expired"), (2, "waiting")]
    with MATERIALS.materializer(Continued("work", None, tmp_path, 5 * MS)) as materializer:
        list(materializer.add(batch_of(addx(b"A", expires=5))))
        assert materializer.due_ns is None


@pytest.mark.parametrize("materials", [MATERIALS, SpillingMaterials()])
def test_live_rows_are_due_when_the_next_waiting_item_expires(tmp_path: Path, materials: QueueMaterials) -> None:
    with materials.materializer(Continued("work", None, tmp_path)) as materializer:
        assert materializer.due_ns is None
        list(materializer.add(batch_of(addx(b"A"), RESERVE)))
        assert materializer.due_ns is None
        items = [addx(bytes(400), expires=expires) for expires in (9, 5, 7, 9, 8)]
        list(materializer.add(batch_of(*items, RESERVE, position=100)))
        assert materializer.due_ns == 5 * MS
        for now, due in ((5, 7), (6, 7), (7, 8), (8, 9), (9, None)):
            list(materializer.live(now * MS))
            assert materializer.due_ns == (None if due is None else due * MS)
        list(materializer.live(0))
        list(materializer.add(batch_of(unremove(2), REMOVE, REMOVE, RESERVE, position=200)))
        assert materializer.due_ns == 8 * MS
        list(materializer.add(batch_of(unremove(3), position=300)))
        assert materializer.due_ns == 7 * MS


def test_no_operations_make_no_rows(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    empty = batch_of()
    increments.add([empty])
    increments.add([])
    assert increments.tables() == {"queue_operations": [], "queue_items": []}
    increments.add([batch_of(REMOVE, RESERVE, confirm(1), unremove(1), save_xid(7))])
    assert increments.tables()["queue_items"] == []
    assert len(increments.closed["queue_operations"]) == 5


def test_file_that_is_rotated_between_increments_has_both_names(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A"), state_dump(1, 1), before=3)])
    increments.add([batch_of(add_xid(1, b"A"), REMOVE, file="work.8", before=3, position=20)])
    assert items_of(increments) == [(1, "waiting")], "after a state dump nothing counts in this file"
    increments.add([batch_of(REMOVE, before=8)])
    (row,) = increments.closed["queue_items"]
    assert (row["added_file"], row["added_position"], row["done_file"], row["done_position"]) == ("work", 0, "work", 0)
    files = [(row["file"], row["sequence"], row["position"]) for row in increments.closed["queue_operations"]]
    assert files == [("work", 3, 0), ("work", 3, 10), ("work.8", 3, 20), ("work.8", 3, 30), ("work", 8, 0)]


@pytest.mark.parametrize("before", [8, None])
def test_rewritten_file_begins_again(tmp_path: Path, before: int | None) -> None:
    increments = Increments(MATERIALS, tmp_path)
    increments.add([batch_of(addx(b"A"), REMOVE, state_dump(1, 0), before=before)])
    increments.add([batch_of(addx(b"B"), before=before), batch_of(addx(b"C"), before=before, position=10)])
    assert items_of(increments) == [(1, "done"), (2, "waiting"), (3, "waiting")]


def test_ids_and_order_of_aborted_items_survive_an_increment(tmp_path: Path) -> None:
    operations = [
        *(addx(bytes([n])) for n in range(5)), add_xid(9, b"named"), add_xid(9, b"taken"),
        RESERVE, RESERVE, RESERVE, unremove(1), unremove(3), unremove(2), save_xid(40), RESERVE, unremove(41), REMOVE,
        RESERVE, RESERVE, RESERVE, RESERVE, RESERVE, RESERVE, confirm(9), confirm(42), confirm(45),
    ]  # fmt: skip
    whole, pieces = Increments(MATERIALS, tmp_path), Increments(MATERIALS, tmp_path)
    whole.add([batch_of(*operations)])
    for number, operation in enumerate(operations):
        pieces.add([batch_of(operation, position=10 * number)])
    expected = plain_tables(plain_rows([batch_of(*operations)]))
    assert sorted_tables(whole.tables()) == sorted_tables(expected)
    assert sorted_tables(pieces.tables()) == sorted_tables(expected)


def test_spilled_items_are_in_scratch_until_the_materializer_is_closed(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with QueueMaterializer(Continued("work", None, scratch), memory_bytes=1000, segment_bytes=500) as materializer:
        for number in range(50):
            list(materializer.add(batch_of(addx(bytes(100)), addx(bytes(100)), position=20 * number)))
        assert len(list(scratch.iterdir())) > 10
        sink = pa.BufferOutputStream()
        materializer.save(sink)
        list(materializer.add(batch_of(*[REMOVE] * 99, position=2000)))
        assert len(list(scratch.iterdir())) <= 1
    assert list(scratch.iterdir()) == []
    saved = pa.BufferReader(sink.getvalue())
    again = Continued("work", saved, scratch)
    with QueueMaterializer(again, memory_bytes=1000, segment_bytes=500) as materializer:
        assert len(list(scratch.iterdir())) > 10
        assert sum(batch.num_rows for _, batch in materializer.live(0)) == 100
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
@pytest.mark.parametrize("seed", range(6))
def test_operations_have_everything_from_which_a_file_is_written(tmp_path: Path, seed: int, dialect: str) -> None:
    path = random_queue(tmp_path / "queues", "work", random.Random(seed), dialect)
    if dialect == "kestrel2":  # so that every 8 is read in this dialect
        for file in path.parent.iterdir():
            file.write_bytes(encoded([reserve_as(1)]) + file.read_bytes())
    written: dict[str, bytes] = {}
    with MATERIALS.materializer(Continued("work", None, tmp_path)) as materializer:
        for batch in batches_of(KESTREL, path, "work"):
            for table, rows in materializer.add(batch):
                for file in rows.column("file").unique().to_pylist() if table == "queue_operations" else ():
                    part = rows.filter(pa.compute.equal(rows.column("file"), file))
                    written[file] = written.get(file, b"") + b"".join(packed(operations(part)))
    assert written == {source.path.name: source.path.read_bytes() for source in Reader(path).files()}
