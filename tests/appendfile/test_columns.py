"""Columns, splits and tables: the records in Arrow, split in any way, and written back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright import arrow
from logwright.appendfile import Checkpoint, Data, Reader, Record, Writer
from logwright.appendfile.bytes.layout import NOTE_NAME
from logwright.appendfile.tables.columns import Collector, from_arrow
from logwright.appendfile.tables.restore import RESTORE, FileWriter
from logwright.appendfile.tables.spark_columns import COLUMNS as ON_SPARK
from logwright.appendfile.tables.splits import SPLITS
from logwright.core.bytes.outcome import Damage
from logwright.core.format import find_format
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.io.file_names import printed
from logwright.errors import DamagedJournal, NotFound, Poisoned, StorageFailed, WrongUse
from tests.appendfile.samples import HINT, add_lost, data, write
from tests.support.damage import overwrite
from tests.support.faulty_disk import FAULTS, every_fault
from tests.support.materializing import record_rows
from tests.support.simulated_disk import SimulatedDisk

EVENTS = ("file", "position", "size", "sequence", "op", "value", "detail")


def random_journal(directory: Path, seed: int) -> Path:
    """Several files in two generations, with records of all sizes."""
    chance = random.Random(seed)
    for _ in range(2):
        with Writer(directory, file_bytes=chance.choice((200, 2000, 300_000)), recovering=True) as writer:
            for _ in range(chance.randrange(40)):
                writer.append(chance.randbytes(chance.choice((1, 10, 300, 70_000 if seed % 3 == 0 else 40))))
                if chance.random() < 0.2:
                    writer.register_checkpoint()
            writer.begin()
            if writer.checked < writer.current and seed % 2:
                writer.check_checkpoint()
    return directory


def row_of(file: str, start: int, size: int, record: Record, segment: int) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "segment": segment,
        "data": record.data if isinstance(record, Data) else None,
        "checked": record.checked if isinstance(record, Checkpoint) else None,
        "current": record.current if isinstance(record, Checkpoint) else None,
        "generation": int(file.split("/")[2]) if "/" in file else None,
        "lost": False,
        "file": file,
        "position": start,
        "size": size,
        "file_id": int(file.rpartition("/")[2].removesuffix(".journal")),
    }


def expected_rows(directory: Path) -> list[dict[str, Any]]:
    found = []
    for item in Reader(directory).scan():
        assert not isinstance(item, Damage)
        found.append(row_of(item.file, item.span.start, item.span.size, item.record, item.record.segment))
    return found


COLUMNS = ["kind", "segment", "data", "checked", "current", "generation", "lost", "file", "position", "size", "file_id"]


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_the_fields_of_the_records(tmp_path: Path, seed: int) -> None:
    random_journal(tmp_path, seed)
    for batch_bytes in (1, 1000, 4 << 20):
        table = pa.Table.from_batches(arrow.batches(tmp_path, COLUMNS, batch_bytes=batch_bytes))
        assert table.to_pylist() == expected_rows(tmp_path)
    assert arrow.to_arrow(tmp_path).column_names == COLUMNS[:7]
    assert arrow.to_arrow(tmp_path, ["segment"])["segment"].to_pylist() == [
        row["segment"] for row in expected_rows(tmp_path)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_splits_of_any_size_hold_every_record_once(tmp_path: Path, seed: int) -> None:
    random_journal(tmp_path, seed)
    reader = Reader(tmp_path)
    for target_bytes in (1, 500, 100_000, 128 << 20):
        collector = Collector(COLUMNS)
        found = []
        for split in SPLITS.plan(reader, target_bytes):
            for item in SPLITS.chunks(Reader(tmp_path), split):
                assert not isinstance(item, Damage)
                found += [row for batch in collector.add(item) for row in batch.to_pylist()]
        found += [row for batch in collector.finish() for row in batch.to_pylist()]
        assert found == expected_rows(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_stream_resumes_where_it_stopped(tmp_path: Path, seed: int) -> None:
    random_journal(tmp_path, seed)
    reader = Reader(tmp_path)
    ((first, following),) = SPLITS.extent(reader).values()
    expected = [row["position"] for row in expected_rows(tmp_path)]
    by_bytes, by_count = [], []
    at = first
    while at < following:
        stop, _ = SPLITS.reach(reader, "", at, following, 700)
        by_bytes += positions(reader, at, stop)
        at = stop
    at = first
    while at < following:
        stop, count = SPLITS.advance(reader, "", at, following, 3)
        found = positions(reader, at, stop)
        assert len(found) == count
        by_count += found
        at = stop
    assert by_bytes == by_count == expected
    assert SPLITS.resume(reader, "", first, SPLITS.mark(reader, "", first)) == (first, "")


def positions(reader: Reader, start: int, stop: int) -> list[int]:
    planned = SPLITS.plan(reader, 300, {"": start}, {"": stop}, resumed=True)
    return [at for split in planned for item in SPLITS.chunks(reader, split) for at in item.starts()[:-1]]  # type: ignore[union-attr]


def test_stream_reports_files_checked_before_they_were_read(tmp_path: Path) -> None:
    write(tmp_path, {4: [HINT, *data("a")]})
    reader = Reader(tmp_path)
    assert SPLITS.resume(reader, "", 2 << 64, "") == (
        4 << 64,
        "the files 2 to 3: removed after a check or recovery, perhaps before all was read; continuing with file 4",
    )


def walked(directory: Path, *records: bytes) -> None:
    """A program that starts, processes the recovered segments, and appends."""
    with Writer(directory, recovering=True) as writer:
        recovery = writer.recovery()
        list(recovery)
        for record in records:
            writer.append(record)


def test_stream_continues_after_a_recovery_removes_files_that_it_has_read(tmp_path: Path) -> None:
    walked(tmp_path, b"a", b"b")
    end = Reader(tmp_path).next
    for _ in range(3):  # their files contain only a checkpoint
        walked(tmp_path)
        first = Reader(tmp_path).first
        assert end < first
        assert SPLITS.resume(Reader(tmp_path), "", end, "") == (first, "")
        assert "perhaps before all was read" in SPLITS.resume(Reader(tmp_path), "", end - 1, "")[1]
    walked(tmp_path, b"c")
    assert SPLITS.resume(Reader(tmp_path), "", end, "") == (Reader(tmp_path).first, "")
    walked(tmp_path, b"d")
    assert "perhaps before all was read" in SPLITS.resume(Reader(tmp_path), "", end, "")[1]


def test_stream_reports_files_checked_after_a_recovery(tmp_path: Path) -> None:
    walked(tmp_path, b"a")
    end = Reader(tmp_path).next
    walked(tmp_path)
    with Writer(tmp_path, file_bytes=60) as writer:
        for record in (b"b" * 30, b"c" * 30):
            writer.append(record)
            writer.register_checkpoint()
        writer.check_checkpoint()
        writer.check_checkpoint()
    assert "perhaps before all was read" in SPLITS.resume(Reader(tmp_path), "", end, "")[1]


def test_stream_within_a_file_reports_once_files_removed_after_its_generation(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a", "b")], 1: [HINT, *data("c")]})
    with Writer(tmp_path, recovering=True, file_bytes=60) as writer:
        before = SPLITS.mark(Reader(tmp_path), "", 25)
        for record in (b"d" * 30, b"e" * 30):
            writer.append(record)
            writer.register_checkpoint()
        writer.check_checkpoint()
    following, reason = SPLITS.resume(Reader(tmp_path), "", 25, before)
    assert following == 25
    assert (
        reason
        == "the files 2 to 3: removed after a check or recovery, perhaps before all was read; continuing with file 4"
    )
    after = SPLITS.mark(Reader(tmp_path), "", 25)
    assert (before, after) == ("", "2-3")
    assert SPLITS.resume(Reader(tmp_path), "", 25, after) == (25, "")
    assert SPLITS.resume(Reader(tmp_path), "", (1 << 64) + 25, after) == ((1 << 64) + 25, "")


@pytest.mark.parametrize("damage", [(20, b"\x07"), (30, b"\xff" * 20)], ids=["data", "a checkpoint"])
def test_copy_of_a_damaged_journal_has_no_complete_segment_where_records_are_missing(
    tmp_path: Path, damage: tuple[int, bytes]
) -> None:
    source = write(
        tmp_path / "journal",
        {0: [HINT, *data("a", "b"), Checkpoint(0, 1), *data("c"), Checkpoint(0, 2), *data("d"), Checkpoint(0, 3)]},
    )
    content = (source / "0.journal").read_bytes()
    (source / "0.journal").write_bytes(overwrite(content, *damage))
    wanted = [(segment.records, segment.complete) for segment in Reader(source).segments()]
    assert [complete for _, complete in wanted] in ([False, True, True], [False, True])
    for mode in ("permissive", "dropmalformed"):
        with Writer(tmp_path / mode) as writer:
            for batch in arrow.batches(source, mode=mode):
                writer.append_batch(batch)
        assert [(segment.records, segment.complete) for segment in Reader(tmp_path / mode).segments()] == wanted
    (split,) = SPLITS.plan(Reader(source))
    chunk = next(item for item in SPLITS.chunks(Reader(source), split, "dropmalformed"))
    assert chunk.source.damaged == ((0, 0),)  # type: ignore[union-attr]


def test_journal_starts_after_the_files_that_a_recovery_removed(tmp_path: Path) -> None:
    walked(tmp_path, b"a")
    end = Reader(tmp_path).next
    walked(tmp_path)
    (tmp_path / "1.journal").unlink()  # before the program has written anything
    (tmp_path / NOTE_NAME).unlink()
    reader = Reader(tmp_path)
    assert (reader.first, reader.next, list(reader)) == (1 << 64, 1 << 64, [])
    assert SPLITS.resume(reader, "", end, "") == (1 << 64, "")


def test_damage_and_missing_files_belong_to_one_split_each(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a")], 2: [HINT, *data("b")]}, tail=b"\x00\x01")
    (tmp_path / "0.journal").write_bytes((tmp_path / "0.journal").read_bytes() + b"\xff\xff\xff\xff")
    reader = Reader(tmp_path)
    for target_bytes in (1, 1 << 20):
        kinds = [
            item.kind
            for split in SPLITS.plan(reader, target_bytes)
            for item in SPLITS.chunks(reader, split, "permissive")
            if isinstance(item, Damage)
        ]
        assert kinds == ["malformed", "gap", "torn_tail"]


def test_rows_become_records_and_segments(tmp_path: Path) -> None:
    source = random_journal(tmp_path / "source", 5)
    with Writer(tmp_path / "target") as writer:
        assert arrow.append(writer, arrow.read(source)) == Reader(source).count()
        assert arrow.append(writer, pa.table({"value": ["text"]})) == 1
    assert [record.data for record in Reader(tmp_path / "target") if isinstance(record, Data)] == [
        *(record.data for record in Reader(source) if isinstance(record, Data)),
        b"text",
    ]


@pytest.mark.parametrize("batch_rows", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(1, 8, 2))
def test_copy_returns_the_same_records(tmp_path: Path, seed: int, batch_rows: int) -> None:
    """Segments that wait for recovery are not checked by a pair of a later generation, in the copy either."""
    source = random_journal(tmp_path / "source", seed)
    copy(source, tmp_path / "target", batch_rows)
    assert unchecked(tmp_path / "target") == unchecked(source)


def copy(source: Path, target: Path, batch_rows: int) -> None:
    with Writer(target) as writer:
        for batch in arrow.read(source).read_all().to_batches(max_chunksize=batch_rows):
            arrow.append(writer, batch)


def unchecked(directory: Path) -> list[tuple[Any, bool]]:
    """The segments to recover, without those that have no records."""
    found = [segment for segment in Reader(directory).segments() if segment.records and not segment.checked]
    return [(segment.records, segment.complete) for segment in found]


@pytest.mark.parametrize("batch_rows", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(1, 8, 2))
def test_copy_of_a_repaired_journal_marks_incomplete_segments(tmp_path: Path, seed: int, batch_rows: int) -> None:
    source = random_journal(tmp_path / "source", seed)
    rows = expected_rows(source)
    places = {(row["generation"], row["segment"]): row["file_id"] for row in rows}
    lost = random.Random(seed).sample(sorted(places, key=str), len(places) // 2)
    for generation, segment in lost:
        add_lost(source, places[generation, segment], segment)
    is_lost = [(row["generation"], row["segment"]) in lost for row in rows]
    assert arrow.to_arrow(source)["lost"].to_pylist() == is_lost
    assert any(not complete for _, complete in unchecked(source))
    copy(source, tmp_path / "target", batch_rows)
    assert unchecked(tmp_path / "target") == unchecked(source)


def test_segment_lost_entirely_makes_no_other_segment_incomplete(tmp_path: Path) -> None:
    source = write(
        tmp_path / "source",
        {0: [HINT, Checkpoint(0, 1), *data("a"), Checkpoint(0, 2), *data("b"), Checkpoint(0, 3), *data("c")]},
    )
    (source / ".logwright").mkdir()
    for segment in (0, 2):
        add_lost(source, 0, segment)
    assert unchecked(source) == [([b"a"], True), ([b"b"], False), ([b"c"], False)]
    copy(source, tmp_path / "target", 1000)
    assert unchecked(tmp_path / "target") == unchecked(source)
    with Writer(tmp_path / "target", recovering=True) as writer:
        recovery = writer.recovery()
        assert [segment.complete for segment in recovery] == [True, False, False]
    with Writer(tmp_path / "wrong") as writer, pytest.raises(WrongUse, match="column lost must be boolean"):
        writer.append_batch(pa.table({"data": [b"a"], "lost": ["yes"]}))


def test_segment_with_lost_records_is_never_complete_after_a_failure_of_any_call() -> None:
    home = Path("/journal")
    rows = {
        "kind": ["checkpoint", "data", "checkpoint", "data", "checkpoint"],
        "data": [None, b"a", None, b"b", None],
        "checked": [0, None, 0, None, 0],
        "current": [0, None, 1, None, 2],
        "lost": [True, True, False, False, False],
    }

    def append(disk: Disk) -> None:
        with Writer(home, sync="always", disk=disk) as writer:
            writer.append_batch(pa.table(rows))

    complete: list[list[Sequence[bytes]]] = []
    for disk in every_fault(SimulatedDisk, FAULTS, format="appendfile"):
        with contextlib.suppress(StorageFailed, Poisoned):
            append(disk)
        assert disk.inner.open_files == 0, "files were left open"
        complete.append([])
        with contextlib.suppress(NotFound):  # it failed before anything existed
            segments = Reader(home, disk=disk.inner).segments()
            complete[-1] = [segment.records for segment in segments if segment.complete]
        assert [b"a"] not in complete[-1]
    assert complete[-1] == [[b"b"]]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"data": [b"a", b""]}, "row 1: an empty record"),
        ({"data": [b"a", None]}, "row 1: a record of kind data needs data"),
        ({"data": [1]}, "must be binary or string"),
        ({"key": [b"a"]}, "neither kind nor data"),
        ({"kind": ["other"], "data": [b"a"]}, "row 0: 'other' is neither data nor checkpoint"),
        ({"kind": ["checkpoint"], "checked": [1]}, "needs current"),
        ({"kind": ["checkpoint"], "checked": [-1], "current": [2]}, "must be an id of 64 bits"),
    ],
)
def test_invalid_rows_are_refused_before_anything_is_written(
    tmp_path: Path, rows: dict[str, list[Any]], reason: str
) -> None:
    with Writer(tmp_path) as writer, pytest.raises(WrongUse, match=reason):
        writer.append_batch(pa.table(rows))
    assert list(tmp_path.glob("*.journal")) == []


def test_messages_of_other_formats_keep_their_values() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a"], "key": [b"k"], "type": [3], "timestamp": [5]})
    assert arrow.left_out("appendfile", batch) == {"key": 1, "type": 1, "time": 1}
    (columns,) = from_arrow(batch)
    assert bytes(columns.data or b"") == b"a"


# --- tables -----------------------------------------------------------------------------------------------------------


def events_of(directory: Path) -> pa.Table:
    """The rows of a journal in the table `events`."""
    collector = Collector(ON_SPARK.sources(EVENTS, sharded=False))
    batches = [batch for item in Reader(directory).chunks() for batch in collector.add(item)]  # type: ignore[arg-type]
    batches += collector.finish()
    return pa.Table.from_batches(
        [pa.RecordBatch.from_pydict({name: ON_SPARK.column(batch, name) for name in EVENTS}) for batch in batches]
    )


def restored(rows: pa.Table, target: Path, batch_rows: int) -> list[Any]:
    written = []
    for file in rows["file"].unique().to_pylist():
        writer = FileWriter(target, file, disk=REAL_DISK)
        of_file = rows.filter(pa.compute.equal(rows["file"], file))
        for batch in of_file.to_batches(max_chunksize=batch_rows):
            writer.append_batch(batch)
        written += writer.finish()
    return written


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.glob("**/*.journal")}


@pytest.mark.parametrize("seed", range(4))
def test_journal_is_restored_from_tables_byte_for_byte(tmp_path: Path, seed: int) -> None:
    source = random_journal(tmp_path / "source", seed)
    for place in {(row["file_id"], row["segment"]) for row in expected_rows(source)[:: seed + 2] if seed}:
        add_lost(source, *place)
    written = restored(record_rows(find_format("appendfile"), source), tmp_path / "target", (1, 7, 1000)[seed % 3])
    assert files_of(tmp_path / "target") == files_of(source)
    assert RESTORE.missing(written, {"": Reader(source).next}) == []
    assert Reader(tmp_path / "target").segments() == Reader(source).segments()


def test_details_of_a_record_are_json(tmp_path: Path) -> None:
    write(tmp_path, {3: [Checkpoint(1, 2**64 - 1), *data("a")]})
    assert events_of(tmp_path).to_pylist() == [
        {
            "file": "3.journal",
            "position": 0,
            "size": 20,
            "sequence": 3,
            "op": "checkpoint",
            "value": None,
            "detail": '{"segment":18446744073709551615,"checked":1,"current":18446744073709551615}',
        },
        {
            "file": "3.journal",
            "position": 20,
            "size": 5,
            "sequence": 3,
            "op": "data",
            "value": b"a",
            "detail": '{"segment":18446744073709551615}',
        },
    ]


def test_file_moved_meanwhile_is_listed_under_its_new_name() -> None:
    names = [("0.journal", 0), (".logwright/recovery/2/0.journal", 0), ("2.journal", 2)]
    assert RESTORE.settled(names) == {
        ("0.journal", 0): ".logwright/recovery/2/0.journal",
        (".logwright/recovery/2/0.journal", 0): ".logwright/recovery/2/0.journal",
        ("2.journal", 2): "2.journal",
    }


@pytest.mark.parametrize("name", ["../0.journal", "x.journal", "a/0.journal", ".logwright/recovery/x/0.journal", ""])
def test_invalid_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse):
        RESTORE.part_of(name)
    with pytest.raises(WrongUse):
        FileWriter(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_contradictory_tables_are_refused(tmp_path: Path) -> None:
    rows = record_rows(find_format("appendfile"), write(tmp_path / "source", {0: [HINT, *data("a", "b")]}))
    for name, values, reason in (
        ("position", [0, 10, 25], "two records here"),
        ("size", [20, 5, 9], "have 34 bytes, and they have 30"),
        ("sequence", [0, 0, 1], "of several files"),
    ):
        field = rows.schema.field(name)
        wrong = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
        writer = FileWriter(tmp_path / reason, "0.journal")
        with pytest.raises(DamagedJournal, match=reason):
            writer.append_batch(wrong.combine_chunks().to_batches()[0])
        writer.discard()
    assert not RESTORE.is_single_file("0.journal")
    with pytest.raises(WrongUse):
        RESTORE.write_consumers(tmp_path, "", {"billing": 1})


def test_inventory_has_every_file(tmp_path: Path) -> None:
    random_journal(tmp_path, 3)
    reader = Reader(tmp_path)
    found = SPLITS.inventory(reader)
    assert [(entry.file, entry.bytes) for entry in found.files] == [
        (printed(file.name), file.path.stat().st_size) for file in reader.files()
    ]
    assert [entry.first for entry in found.files] == [file.first_number for file in reader.files()]
