"""The tables of journals with checkpoints: records, and segments that are closed once they never change again."""

from __future__ import annotations

import random
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.appendfile import Checkpoint, Reader, Record, Writer
from logwright.appendfile.tables.restore import RESTORE
from logwright.core.format import find_format
from logwright.core.io.disk import REAL_DISK
from tests.appendfile.samples import HINT, add_lost, data, encoded, write
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

FORMAT = find_format("appendfile")
MATERIALS = materials_of(FORMAT)


# --- a naive model ----------------------------------------------------------------------------------------------------


def expected(rows: list[Row]) -> Tables:
    """The tables of records, by rules that use all of them at once."""
    found = []
    generations: list[list[Row]] = []
    for row in rows:
        if not generations or row["boundary"] > generations[-1][-1]["file_id"]:
            generations.append([])
        generations[-1].append(row)
    for number, own in enumerate(generations):
        is_last = number == len(generations) - 1
        ended_at = None if is_last else generations[number + 1][0]["boundary"]
        found += expected_segments(own, own[-1]["generation"] if is_last else own[-1]["generation"] or ended_at)
    return {"segment_records": [expected_record(row) for row in rows], "segments": found}


def expected_segments(rows: list[Row], generation: int | None) -> list[Row]:
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row["segment"])]
    found = []
    nothing: list[Row] = []
    for own, after in zip(runs, [*runs[1:], nothing], strict=True):
        segment, following = own[0]["segment"], after[0]["segment"] if after else None
        payloads = [row["data"] for row in own if row["data"] is not None]
        if segment >= 2**63 or (not payloads and following != segment + 1):
            continue
        ids = [row["file_id"] for row in [*own, *after[:1]]]
        is_gone = any(after > before + 1 for before, after in pairwise(ids))
        is_checked = following is not None and any((row["checked"] or 0) > segment for row in rows)
        found.append(
            {
                "generation": generation,
                "segment": segment,
                "complete": following == segment + 1 and not is_gone and not any(row["lost"] for row in own),
                "checked": is_checked,
                "records": len(payloads),
                "bytes": sum(map(len, payloads)),
                "first_file": own[0]["file"],
                "first_position": own[0]["position"],
                "last_file": own[-1]["file"],
                "last_position": own[-1]["position"],
            }
        )
    return found


def signed(number: int | None) -> int | None:
    return number if number is None or number < 2**63 else number - 2**64


def expected_record(row: Row) -> Row:
    ids = {name: signed(row[name]) for name in ("segment", "checked", "current")}
    kept = {name: row[name] for name in ("kind", "data", "lost", "file", "position", "size")}
    return {**kept, **ids, "sequence": signed(row["file_id"])}


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def without_generation(tables: Tables) -> Tables:
    return {**tables, "segments": [{**row, "generation": 0} for row in tables["segments"]]}


# --- journals ---------------------------------------------------------------------------------------------------------


def grow(directory: Path, chance: random.Random) -> None:
    """Open a journal, perhaps recover it, append, close segments and check some."""
    recovering = chance.random() < 0.4
    with Writer(directory, file_bytes=chance.choice((150, 600, 5000)), recovering=recovering) as writer:
        if recovering and chance.random() < 0.5:
            for _ in writer.recovery():
                pass
        for _ in range(chance.randrange(25)):
            action = chance.random()
            if action < 0.6:
                writer.append(chance.randbytes(chance.choice((1, 10, 60))))
            elif action < 0.85:
                writer.register_checkpoint()
            elif writer.checked < writer.current:
                writer.check_checkpoint()


@pytest.mark.parametrize("seed", range(30))
def test_segments_are_the_same_however_the_records_are_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 6)):
        grow(tmp_path / "journal", chance)
    check_all(tmp_path, chance)


def check_all(tmp_path: Path, chance: random.Random) -> None:
    batches = batches_of(FORMAT, tmp_path / "journal", batch_bytes=chance.choice((1, 1 << 20)))
    rows = rows_of(batches)
    check_increments(MATERIALS, batches, tmp_path / "scratch", chance, lambda count: expected(rows[:count]))


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_those_that_a_reader_has(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(4):
        grow(tmp_path / "journal", chance)
    increments = Increments(MATERIALS, tmp_path / "scratch")
    increments.add(batches_of(FORMAT, tmp_path / "journal"))
    names = ("generation", "segment", "complete", "checked", "records", "bytes")
    assert [tuple(row[name] for name in names) for row in in_order(increments.tables()["segments"])] == [
        (one.generation, one.id, one.complete, one.checked, len(one.records), sum(map(len, one.records)))
        for one in Reader(tmp_path / "journal").segments()
    ]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["generation"] or 2**64, row["segment"]))


@pytest.mark.parametrize("seed", range(20))
def test_journal_that_grows_is_recovered_and_cleaned_returns_each_segment_once(tmp_path: Path, seed: int) -> None:
    """Increments are read while the journal changes: its files are set aside, removed, and created again."""
    chance = random.Random(seed)
    journal = tmp_path / "journal"
    increments = Increments(MATERIALS, tmp_path / "scratch")
    position, rows = 0, []
    for _ in range(6):
        grow(journal, chance)
        if chance.random() < 0.3:
            continue
        (extent,) = FORMAT.splits.extent(FORMAT.open(journal)).values()
        start = max(extent[0], FORMAT.splits.resume(FORMAT.open(journal), "", position, "")[0])
        batches = batches_of(FORMAT, journal, "", start, extent[1]) if start < extent[1] else []
        position = max(position, extent[1])
        increments.add(batches)
        rows += rows_of(batches)
        assert sorted_tables(without_generation(increments.tables())) == sorted_tables(
            without_generation(expected(rows))
        )
        found = [(row["generation"], row["segment"]) for row in increments.tables()["segments"]]
        assert len(found) == len(set(found)) == len(expected(rows)["segments"])


@pytest.mark.parametrize("seed", range(20))
def test_segments_of_a_damaged_journal_are_the_same_however_its_records_are_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    journal = tmp_path / "journal"
    for _ in range(3):
        grow(journal, chance)
    for source in Reader(journal).files():
        content = source.path.read_bytes()
        if len(content) > 3 and chance.random() < 0.5:
            source.path.write_bytes(overwrite(content, chance.randrange(len(content) - 3), chance.randbytes(3)))
    check_all(tmp_path, chance)


# --- single cases -----------------------------------------------------------------------------------------------------


def segments_of(increments: Increments) -> list[tuple[Any, ...]]:
    names = ("generation", "segment", "complete", "checked", "records")
    return [tuple(row[name] for name in names) for row in increments.tables()["segments"]]


def closed_of(increments: Increments) -> list[int]:
    return [row["segment"] for row in increments.closed["segments"]]


def add(increments: Increments, directory: Path, position: int) -> int:
    """Process the new records of a journal; its end now."""
    (extent,) = FORMAT.splits.extent(FORMAT.open(directory)).values()
    increments.add(batches_of(FORMAT, directory, "", position, extent[1]))
    return extent[1]


def test_segment_is_closed_when_it_is_checked(tmp_path: Path) -> None:
    increments = Increments(MATERIALS, tmp_path / "scratch")
    position = 0
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"one")
        writer.register_checkpoint()
        writer.append(b"two")
        writer.sync()
        position = add(increments, tmp_path / "journal", position)
        assert segments_of(increments) == [(None, 0, True, False, 1), (None, 1, False, False, 1)]
        assert closed_of(increments) == []
        writer.check_checkpoint()
        writer.sync()
        add(increments, tmp_path / "journal", position)
    assert segments_of(increments) == [(None, 0, True, True, 1), (None, 1, False, False, 1)]
    assert closed_of(increments) == [0]


def test_segments_of_a_generation_are_closed_when_the_next_one_is_read(tmp_path: Path) -> None:
    """The last segment of one and the first of the next have the same id, and are two rows."""
    journal = tmp_path / "journal"
    increments = Increments(MATERIALS, tmp_path / "scratch")
    with Writer(journal) as writer:
        writer.append(b"one")
        writer.register_checkpoint()
        writer.append(b"two")
    position = add(increments, journal, 0)
    with Writer(journal, recovering=True) as writer:
        writer.append(b"three")
        writer.append(b"four")
    position = add(increments, journal, position)
    assert segments_of(increments) == [(1, 0, True, False, 1), (1, 1, False, False, 1), (None, 1, False, False, 2)]
    assert closed_of(increments) == [0, 1]
    with Writer(journal, recovering=True) as writer:
        for segment in writer.recovery():
            assert segment.records
        writer.append(b"five")
    add(increments, journal, position)
    assert segments_of(increments)[2:] == [(2, 1, False, False, 2), (None, 1, False, False, 1)]


def test_files_removed_before_they_were_read_leave_a_segment_incomplete(tmp_path: Path) -> None:
    write(tmp_path / "first", {0: [HINT, *data("a")]})
    write(tmp_path / "later", {3: [Checkpoint(1, 1), *data("b"), Checkpoint(1, 2)]})
    increments = Increments(MATERIALS, tmp_path / "scratch")
    increments.add(batches_of(FORMAT, tmp_path / "first"))
    increments.add(batches_of(FORMAT, tmp_path / "later"))
    assert segments_of(increments) == [(None, 0, False, True, 1), (None, 1, True, False, 1)]


def test_segment_that_has_lost_records_is_not_complete(tmp_path: Path) -> None:
    records: list[Record] = [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2)]
    journal = write(tmp_path / "journal", {0: records})
    (journal / ".logwright").mkdir()
    add_lost(journal, 0, 1)
    increments = Increments(MATERIALS, tmp_path / "scratch")
    increments.add(batches_of(FORMAT, journal))
    assert segments_of(increments) == [(None, 0, True, False, 1), (None, 1, False, False, 1)]


def test_tables_are_typed() -> None:
    assert MATERIALS.is_ordered
    assert list(MATERIALS.schemas) == ["segment_records", "segments"]
    schema = MATERIALS.schemas["segment_records"]
    assert list(zip(schema.names, map(str, schema.types), strict=True)) == [
        ("kind", "string"),
        ("segment", "int64"),
        ("data", "binary"),
        ("checked", "int64"),
        ("current", "int64"),
        ("lost", "bool"),
        ("file", "string"),
        ("position", "int64"),
        ("size", "int32"),
        ("sequence", "int64"),
    ]


def test_file_is_restored_from_the_table(tmp_path: Path) -> None:
    """Restoring uses columns of the table of records, including ids of 64 bits."""
    top = 2**64 - 1
    journal = write(
        tmp_path / "journal", {7: [Checkpoint(top - 1, top - 1), *data("a", "b"), Checkpoint(top - 1, top)]}
    )
    increments = Increments(MATERIALS, tmp_path / "scratch")
    increments.add(batches_of(FORMAT, journal))
    rows = increments.tables()["segment_records"]
    assert [row["current"] for row in rows] == [-2, None, None, -1]
    assert increments.tables()["segments"] == []
    writer = RESTORE.writer(tmp_path / "again", "7.journal", disk=REAL_DISK)
    writer.append_batch(pa.RecordBatch.from_pylist(rows, MATERIALS.schemas["segment_records"]))
    writer.finish()
    assert (tmp_path / "again" / "7.journal").read_bytes() == (journal / "7.journal").read_bytes()
    assert (journal / "7.journal").read_bytes() == encoded(
        Checkpoint(top - 1, top - 1), *data("a", "b"), Checkpoint(top - 1, top)
    )
