"""The tables of page transactions: operations, transactions and versions of pages, however the records are cut."""

from __future__ import annotations

import base64
import json
import random
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

from logwright.core.format import find_format
from logwright.core.io.disk import REAL_DISK
from logwright.core.repair.losses import Loss, add_losses
from logwright.yeltsin.bytes.layout import COMPLETE, FLAGS_AT
from logwright.yeltsin.bytes.records import Allocate, Operation, Remove, Transaction
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.replay import Ranges
from logwright.yeltsin.tables.known_pages import KnownPages
from logwright.yeltsin.tables.restore import RESTORE
from tests.support.damage import overwrite
from tests.support.materializing import (
    Increments,
    Row,
    Tables,
    batches_of,
    check_increments,
    materials_of,
    sorted_tables,
)
from tests.yeltsin.samples import CREATED, PAGE, journal, linked, modify, numbered, sealed, transaction, write

FORMAT = find_format("yeltsin")
MATERIALS = materials_of(FORMAT)
SPLITS = FORMAT.splits
NAME = "t.jrnl"


# --- a naive model ----------------------------------------------------------------------------------------------------


def expected(rows: list[Row]) -> Tables:
    """The tables of operations, transaction by transaction."""
    found: Tables = {"page_operations": list(map(expected_operation, rows)), "transactions": [], "page_versions": []}
    known: dict[int, dict[int, int]] = {}
    versions: dict[int, int] = {}
    gaps = 0
    for _, group in groupby(rows, key=lambda row: row["transaction"]):
        own = list(group)
        found["transactions"].append(expected_transaction(own))
        touched: dict[int, Row] = {}
        for row in own if own[0]["outcome"] == "completed" else []:
            if row["page"] is None or row["page"] >= 2**63:
                continue
            if (row["gaps"] or 0) > gaps:
                gaps = row["gaps"]
                known.clear()
            if row["op"] == "modify":
                after = {row["page_offset"] + at: byte for at, byte in enumerate(row["after"])}
                known[row["page"]] = {**known.get(row["page"], {}), **after}
            else:
                known[row["page"]] = {}
            touched[row["page"]] = row
        for page, row in touched.items():
            versions[page] = versions.get(page, 0) + 1
            is_removed = row["op"] == "remove"
            found["page_versions"].append(
                {
                    **{name: row[name] for name in ("file", "page", "transaction", "timestamp", "op")},
                    "version": versions[page],
                    "deleted": is_removed,
                    "ranges": None if is_removed else as_json(known.get(page, {})),
                    "gaps": gaps,
                }
            )
    return found


def as_json(known: dict[int, int]) -> str:
    """Single bytes as ranges of maximal length."""
    ranges: list[tuple[int, bytearray]] = []
    for at, byte in sorted(known.items()):
        if not ranges or ranges[-1][0] + len(ranges[-1][1]) != at:
            ranges.append((at, bytearray()))
        ranges[-1][1].append(byte)
    found = [{"offset": start, "data": base64.b64encode(data).decode()} for start, data in ranges]
    return json.dumps(found, separators=(",", ":"))


def expected_transaction(rows: list[Row]) -> Row:
    names = ("file", "transaction", "offset", "timestamp", "flags", "complete", "outcome")
    return {
        **{name: rows[0][name] for name in names},
        "operations": sum(row["op"] != "end" for row in rows),
        "pages": len({row["page"] for row in rows} - {None}),
        "bytes": sum(len(row["after"] or b"") for row in rows),
    }


def expected_operation(row: Row) -> Row:
    numbers = {name: signed(row[name]) for name in ("page", "free_before", "free_after")}
    return {**row, **numbers, "sequence": row["transaction"]}


def signed(number: int | None) -> int | None:
    return number if number is None or number < 2**63 else number - 2**64


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


# --- journals ---------------------------------------------------------------------------------------------------------


def some_transaction(chance: random.Random, number: int) -> Transaction:
    operations: list[Operation] = []
    for _ in range(chance.choice((0, 1, 1, 2, 5, 12))):
        page = chance.choice((PAGE, PAGE + 65536, PAGE + 2 * 65536, 2**64 - 1))
        kind = chance.random()
        if kind < 0.7:
            size = chance.randrange(6)
            operations.append(modify(chance.randbytes(size), chance.randbytes(size), chance.randrange(40), page))
        elif kind < 0.85:
            operations.append(Allocate(page, chance.choice((0, 2**64 - 1)), 0))
        else:
            operations.append(Remove(page, chance.choice((0, 2**63))))
    return transaction(
        *operations,
        timestamp=CREATED + number,
        flags=chance.choice((0, COMPLETE, COMPLETE, 0x81)),
        end=chance.choice((0xFF, 0xFF, 0xFF, 0xFE)),
        data=chance.choice((b"", b"carried")),
    )


def some_journal(path: Path, chance: random.Random, count: int = 25) -> Path:
    items = [some_transaction(chance, number) for number in range(count)]
    write(path, *items)
    if chance.random() < 0.5:
        starts = linked(items)[1]
        losses = [
            Loss(path.name, start, 0, 1, 1, "a transaction", "a test", part=path.name, fields={"start": start})
            for start in chance.sample(starts, 3)
        ]
        (path.parent / ".logwright").mkdir()
        add_losses(REAL_DISK, path.parent, losses)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_tables_are_the_same_however_the_records_are_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = some_journal(tmp_path / "home" / NAME, chance)
    batches = batches_of(FORMAT, path, NAME, batch_bytes=chance.choice((1, 1 << 20)))
    rows = rows_of(batches)
    check_increments(MATERIALS, batches, tmp_path / "scratch", chance, lambda count: expected(rows[:count]), NAME)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_losses_are_counted(tmp_path: Path) -> None:
    """Otherwise half of these journals would be the same as the others."""
    found = set()
    for seed in range(6):
        path = some_journal(tmp_path / str(seed) / NAME, random.Random(seed))
        found |= {row["gaps"] for row in rows_of(batches_of(FORMAT, path, NAME))}
    assert found == {None, 1, 2, 3}


@pytest.mark.parametrize("seed", range(10))
def test_versions_are_the_history_of_a_page(tmp_path: Path, seed: int) -> None:
    path = some_journal(tmp_path / NAME, random.Random(seed))
    increments = Increments(MATERIALS, tmp_path / "scratch", NAME)
    increments.add(batches_of(FORMAT, path, NAME))
    versions = [row for row in increments.tables()["page_versions"] if row["page"] == PAGE]
    history = [event for event in Reader(path).history(str(PAGE)) if event["event"] != "lost"]
    assert [(row["transaction"], row["op"], row["ranges"] and json.loads(row["ranges"])) for row in versions] == [
        (event["transaction"], event["event"], event.get("value")) for event in history
    ]


def test_times_that_python_does_not_have_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / NAME, transaction(modify(b"a", b"b"), timestamp=2**41), transaction(timestamp=2**62))
    found: dict[str, list[int | None]] = {}
    increments = Increments(MATERIALS, tmp_path / "scratch", NAME)
    with increments.open() as materializer:
        for batch in batches_of(FORMAT, path, NAME):
            for table, rows in [*materializer.add(batch), *materializer.live(0)]:
                found.setdefault(table, []).extend(rows.column("timestamp").view(pa.int64()).to_pylist())
    micros = 2**41 * 1_000_000
    assert found == {
        "page_operations": [micros, None],
        "transactions": [micros, None],
        "page_versions": [micros],
    }


# --- what may still be changed ----------------------------------------------------------------------------------------


def final(path: Path, start: int = 0, stop: int | None = None) -> int:
    reader = FORMAT.open(path)
    return SPLITS.final(reader, NAME, start, SPLITS.extent(reader)[NAME][1] if stop is None else stop)


def test_transactions_are_final_up_to_the_last_one_that_is_flagged(tmp_path: Path) -> None:
    items = numbered(8, flags=0)
    starts = linked(items)[1]
    end = len(journal(items))
    content = journal(items)
    path = tmp_path / NAME
    path.write_bytes(content)
    assert final(path) == starts[0]
    assert final(path, starts[3]) == starts[3]
    for number in (2, 5):
        path.write_bytes(overwrite(content, starts[number] + FLAGS_AT, bytes([COMPLETE])))
        assert final(path) == final(path, starts[1]) == starts[number + 1]
        assert final(path, stop=starts[1]) == starts[1]
        assert final(path, starts[6]) == starts[6]
    path.write_bytes(overwrite(content, starts[7] + FLAGS_AT, bytes([COMPLETE])))
    assert final(path) == end
    assert final(path, end) == end


def test_broken_links_do_not_hide_flags(tmp_path: Path) -> None:
    items = numbered(8, flags=0)
    starts = linked(items)[1]
    content = overwrite(journal(items), starts[4] + FLAGS_AT, bytes([COMPLETE]))
    path = tmp_path / NAME
    for position in (4, 12, starts[6], starts[5] + 8, starts[3]):
        path.write_bytes(overwrite(content, position, b"\xff" * 8))
        assert final(path) == starts[5], position
    path.write_bytes(b"?" + content[1:])
    assert final(path) == starts[5]


def test_transactions_that_the_header_does_not_name_yet_are_provisional(tmp_path: Path) -> None:
    """Sealed ones are included before the header and links lead to them."""
    items = [transaction(modify(b"a", b"b"), flags=COMPLETE if number < 2 else 0) for number in range(4)]
    content = sealed(*items)
    starts = [chunk for item in Reader(written(tmp_path / NAME, content)).chunks() for chunk in item.starts()]  # type: ignore[union-attr]
    content = overwrite(content, 12, starts[1].to_bytes(8, "little"))
    content = overwrite(content, starts[1] + 8, bytes(8))
    path = written(tmp_path / NAME, content)
    assert len(list(Reader(path))) == 4
    assert final(path) == starts[2]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_transaction_of_another_program_is_final_once_a_later_one_is_flagged(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with TransactionJournal(path) as writer:
        writer.append([modify(b"a", b"b")])
        first = writer.append([modify(b"b", b"c")])
    assert final(path) == 20
    with TransactionJournal(path) as writer:
        last = writer.append([modify(b"c", b"d")], flags=COMPLETE)
        end = writer.position
    assert first < last
    assert final(path) == end


class Followed:
    """Processes the transactions of a journal like the pipeline: final ones once, provisional ones each time."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self.increments = Increments(MATERIALS, scratch, NAME)
        self.position = 0

    def tables(self) -> Tables:
        reader = FORMAT.open(self.path)
        first, stop = SPLITS.extent(reader)[NAME]
        start = max(self.position, first)
        end = SPLITS.final(reader, NAME, start, stop)
        assert start <= end <= stop
        self.increments.add(batches_of(FORMAT, self.path, NAME, start, end) if start < end else [])
        self.position = end
        provisional = batches_of(FORMAT, self.path, NAME, end, stop) if end < stop else []
        return self.increments.tables(provisional=provisional)


def whole(path: Path) -> Tables:
    return sorted_tables(expected(rows_of(batches_of(FORMAT, path, NAME))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("checkpoint_bytes", [0, 2000, 1 << 20])
def test_increments_of_a_database_that_checkpoints_later_have_its_flags(
    tmp_path: Path, seed: int, checkpoint_bytes: int
) -> None:
    chance = random.Random(seed)
    path = tmp_path / NAME
    followed = Followed(path, tmp_path / "scratch")
    was_seen_early = False
    for _ in range(2):
        with Database(tmp_path / "t.ydb", path, checkpoint_bytes=checkpoint_bytes) as database:
            for _ in range(12):
                step(database, chance)
                if chance.random() < 0.3:
                    tables = sorted_tables(followed.tables())
                    assert tables == whole(path)
                    was_seen_early |= not all(are_complete(tables))
                if chance.random() < 0.1:
                    database.checkpoint()
        tables = sorted_tables(followed.tables())
        assert tables == whole(path)
        assert all(are_complete(tables))
    assert was_seen_early == (checkpoint_bytes > 0)


def are_complete(tables: Tables) -> list[bool]:
    """Whether each transaction that was not rolled back is in the storage."""
    return [row["complete"] for row in tables["transactions"] if row["outcome"] == "completed"]


def step(database: Database, chance: random.Random) -> None:
    """A transaction, which may be rolled back."""
    try:
        with database.transaction() as running:
            page = chance.choice(database.pages())
            running.modify(page, chance.randrange(100), chance.randbytes(chance.randrange(1, 50)))
            if chance.random() < 0.3:
                running.allocate()
            if chance.random() < 0.2:
                raise InterruptedError
    except InterruptedError:
        pass


# --- pages that do not fit into memory --------------------------------------------------------------------------------


def test_pages_beyond_the_memory_are_in_a_temporary_file(tmp_path: Path) -> None:
    chance = random.Random(1)
    small, large = KnownPages(tmp_path, 1000), KnownPages(tmp_path)
    for number in range(3000):
        page, start, data = chance.randrange(50), chance.randrange(2000), chance.randbytes(chance.randrange(200))
        for pages in (small, large):
            known = pages.take(page)
            known.version += 1
            if number % 17 == 3:
                known.ranges = Ranges()
            known.ranges.put(start, data)
            pages.settle([page])
        assert small.look(page) == large.look(page)
        if number == 2000:
            small.forget(1)
            large.forget(1)
    assert sorted(small, key=lambda item: item[0]) == sorted(large, key=lambda item: item[0])
    (file,) = tmp_path.iterdir()
    assert 50_000 < file.stat().st_size < 50 * 4096
    small.close()
    large.close()
    assert list(tmp_path.iterdir()) == []


# --- restoring --------------------------------------------------------------------------------------------------------


def test_journal_is_restored_from_the_table(tmp_path: Path) -> None:
    """Restoring uses columns of the table of operations, including numbers of 64 bits."""
    path = write(tmp_path / NAME, *(some_transaction(random.Random(9), number) for number in range(50)))
    increments = Increments(MATERIALS, tmp_path / "scratch", NAME)
    increments.add(batches_of(FORMAT, path, NAME))
    writer = RESTORE.writer(tmp_path / "again", NAME, disk=REAL_DISK)
    rows = increments.tables()["page_operations"]
    writer.append_batch(pa.RecordBatch.from_pylist(rows, MATERIALS.schemas["page_operations"]))
    writer.finish()
    assert (tmp_path / "again" / NAME).read_bytes() == path.read_bytes()
