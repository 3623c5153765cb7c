"""Journals as Arrow and Parquet and back: ranges, damage, shards, streaming, and files that are complete or absent."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logwright import arrow, versioned
from logwright.core.bytes.outcome import Damage
from logwright.errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, UnknownFormat, WrongUse
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.shard import ShardedReader
from logwright.sej.files.writer import Writer
from logwright.sej.model.shard_writer import ShardedWriter
from tests.support.faulty_disk import Fault, every_fault
from tests.support.simulated_disk import SimulatedDisk

HOUR = 3_600_000_000_000
MESSAGE_BYTES = 26 + 5 + 9


class Choice(TypedDict, total=False):
    """The selection of records."""

    start: int
    stop: int
    from_time: int
    to_time: int


def write_journal(directory: Path, count: int, *, per_segment: int = 10, disk: Any = None) -> Path:
    """`count` messages of 40 bytes, an hour apart, every seventh without a time."""
    options = {} if disk is None else {"disk": disk}
    with Writer(directory, segment_size=per_segment * MESSAGE_BYTES, **options) as writer:
        for offset in range(count):
            timestamp = None if offset % 7 == 3 else offset * HOUR
            writer.append(b"value%04d" % offset, b"key%02d" % (offset % 100), offset % 256, timestamp)
    return directory


def messages_of(table: pa.Table) -> list[Message]:
    plain = table.set_column(1, "timestamp", table.column("timestamp").cast(pa.int64()))
    return [Message(*row.values()) for row in plain.to_pylist()]


def offsets_of(data: Any) -> list[int]:
    return [offset for batch in data for offset in batch.column("offset").to_pylist()]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_table_of_a_journal_has_every_message(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 95)
    table = arrow.to_arrow(journal)
    assert table.schema == arrow.schema("sej")
    assert messages_of(table) == list(Reader(journal))
    table.validate(full=True)


def test_open_reader_returns_the_same_table_as_its_path(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 25)
    reader = Reader(journal)
    names = ["offset", "file", "position", "size"]
    table = reader.to_arrow(names)
    assert table.equals(arrow.to_arrow(journal, names))
    assert table.equals(arrow.to_arrow(str(journal), names))
    assert table.slice(12, 1).to_pylist() == [
        {"offset": 12, "file": "jnl/000000000000000a.jnl", "position": 80, "size": 40}
    ]
    assert pa.Table.from_batches(reader.batches(names)).equals(table)


def test_single_segment_file_can_be_read(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", 25)
    assert offsets_of(arrow.batches(tmp_path / "j/jnl/000000000000000a.jnl")) == list(range(10, 20))


def test_empty_journal_is_an_empty_table(tmp_path: Path) -> None:
    table = arrow.to_arrow(write_journal(tmp_path / "j", 0), ["value", "file"])
    assert table.num_rows == 0
    assert table.schema == arrow.schema("sej", ["value", "file"])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"start": 7}, range(7, 95)),
        ({"stop": 7}, range(7)),
        ({"start": 13, "stop": 14}, range(13, 14)),
        ({"start": 20, "stop": 30}, range(20, 30)),
        ({"start": 95}, range(0)),
        ({"from_time": 50 * HOUR}, range(50, 95)),
        ({"from_time": 50 * HOUR + 1, "to_time": 60 * HOUR}, range(51, 60)),
        ({"to_time": 4 * HOUR}, range(4)),
        ({"from_time": 40 * HOUR, "start": 45, "to_time": 60 * HOUR, "stop": 50}, range(45, 50)),
        ({"from_time": 1000 * HOUR}, range(0)),
    ],
)
def test_part_of_a_journal_is_selected_by_offset_and_time(tmp_path: Path, choice: Choice, expected: range) -> None:
    journal = write_journal(tmp_path / "j", 95)
    assert offsets_of(arrow.batches(journal, **choice)) == list(expected)


def test_batches_count_their_rows_and_have_the_requested_size(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 5000, per_segment=5000)
    batches = arrow.batches(journal, batch_bytes=20_000)
    sizes = [batch.num_rows for batch in batches]
    assert sizes == [1024, 1024, 1024, 1024, 904]
    assert batches.rows == 5000


def test_stream_is_read_lazily(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 30, per_segment=10)
    seen: list[tuple[int, int]] = []
    reader = arrow.read(journal, ["offset"], batch_bytes=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == []
    assert reader.read_next_batch().num_rows == 30
    assert seen == [(400, 1200), (800, 1200), (1200, 1200)]


def test_closing_a_stream_early_closes_its_files(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/j"))
    write_journal(Path("/j"), 5000, per_segment=5000, disk=disk)
    batches = arrow.batches(Path("/j"), batch_bytes=1, disk=disk)
    assert next(batches).num_rows == 1024
    assert disk.open_files == 1
    batches.close()
    assert disk.open_files == 0
    assert list(batches) == []


def test_other_libraries_can_consume_the_stream(tmp_path: Path) -> None:
    reader = arrow.read(write_journal(tmp_path / "j", 12), ["offset", "key"])
    assert pa.table(reader).column("key").to_pylist() == [b"key%02d" % offset for offset in range(12)]


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("missing", {}, NotFound),
        ("missing", {"format": "sej"}, NotFound),
        ("empty", {}, UnknownFormat),
        (".", {"format": "colour"}, UnknownFormat),
        ("j", {"columns": ["colour"]}, WrongUse),
        ("j", {"mode": "colour"}, WrongUse),
        ("j", {"batch_bytes": 0}, WrongUse),
    ],
)
def test_wrong_use_is_reported_at_once(tmp_path: Path, source: str, options: dict[str, Any], error: type) -> None:
    write_journal(tmp_path / "j", 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(error):
        arrow.batches(tmp_path / source, **options)


def test_other_objects_than_a_reader_are_refused() -> None:
    with pytest.raises(WrongUse, match="object is neither a path nor the reader of a journal"):
        arrow.batches(object())


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A journal with damage in messages 4 and 15, whose last message, 24, is cut short."""
    journal = write_journal(tmp_path / "j", 25)
    flip(journal / "jnl/0000000000000000.jnl", 4 * MESSAGE_BYTES)
    flip(journal / "jnl/000000000000000a.jnl", 6 * MESSAGE_BYTES - 1)
    last = journal / "jnl/0000000000000014.jnl"
    last.write_bytes(last.read_bytes()[:-1])
    return journal


WHOLE = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23]


def test_failfast_returns_records_before_the_damage_and_raises_there(damaged: Path) -> None:
    with pytest.raises(DamagedJournal, match=r"jnl/0000000000000000.jnl @ 160: ") as error:
        arrow.to_arrow(damaged)
    assert error.value.position == 160


def test_permissive_continues_and_reports_skipped_ranges(damaged: Path) -> None:
    reported: list[Damage] = []
    batches = arrow.batches(damaged, mode="permissive", on_damage=reported.append)
    assert offsets_of(batches) == WHOLE
    assert reported == batches.damages
    assert [(damage.file, damage.start, damage.end, damage.kind) for damage in reported] == [
        ("jnl/0000000000000000.jnl", 160, 200, "unexpected_offset"),
        ("jnl/000000000000000a.jnl", 200, 240, "malformed"),
        ("jnl/0000000000000014.jnl", 160, 199, "torn_tail"),
    ]
    assert batches.torn_tails == reported[2:]


def test_dropmalformed_continues_silently(damaged: Path) -> None:
    reported: list[Damage] = []
    assert arrow.to_arrow(damaged, mode="dropmalformed", on_damage=reported.append)["offset"].to_pylist() == WHOLE
    assert reported == []


def test_torn_tail_is_not_damage_and_is_remembered(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 5)
    segment = journal / "jnl/0000000000000000.jnl"
    segment.write_bytes(segment.read_bytes() + b"torn")
    batches = arrow.batches(journal)
    assert offsets_of(batches) == [0, 1, 2, 3, 4]
    assert [(tail.start, tail.end) for tail in batches.torn_tails] == [(200, 204)]
    assert batches.damages == []


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with ShardedWriter(tmp_path / "root", "orders", 1) as writer:
        for number in range(40):
            writer.append(b"value", b"key%d" % number, 0, number * HOUR)
    return tmp_path / "root"


def test_sharded_root_names_the_shard_of_each_message(root: Path) -> None:
    table = arrow.to_arrow(root)
    assert table.column_names == ["offset", "timestamp", "type", "key", "value", "shard"]
    expected = [
        (shard.name, message.offset, message.key)
        for shard in ShardedReader(root).shards()
        for message in Reader(shard.path)
    ]
    assert [(row["shard"], row["offset"], row["key"]) for row in table.to_pylist()] == expected
    assert len(expected) == 40
    assert {row[0] for row in expected} == {"orders.1.000", "orders.1.001"}
    assert arrow.to_arrow(ShardedReader(root)).equals(table)


def test_times_and_offsets_select_in_each_shard(root: Path) -> None:
    rows = arrow.to_arrow(root, ["timestamp", "shard"], from_time=10 * HOUR, to_time=20 * HOUR).to_pylist()
    assert sorted(row["timestamp"].timestamp() / 3600 for row in rows) == list(range(10, 20))
    table = arrow.to_arrow(root, ["offset"], start=2, stop=4)
    assert table["offset"].to_pylist() == [2, 3, 2, 3]


def test_damage_in_a_shard_is_reported_with_its_name(root: Path) -> None:
    segment = root / "orders.1.001/jnl/0000000000000000.jnl"
    flip(segment, 0)
    with pytest.raises(DamagedJournal, match=r"^orders\.1\.001/jnl/0000000000000000\.jnl @ 0: "):
        arrow.to_arrow(root)
    batches = arrow.batches(root, mode="permissive")
    assert sum(batch.num_rows for batch in batches) == 39
    assert [damage.file for damage in batches.damages] == ["orders.1.001/jnl/0000000000000000.jnl"]


def test_progress_of_shards_is_the_progress_of_the_whole(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    arrow.to_arrow(root, progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in root.rglob("*.jnl"))
    assert {entry[1] for entry in seen} == {total}
    assert [entry[0] for entry in seen] == sorted(entry[0] for entry in seen)
    assert seen[-1] == (total, total)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_appended_table_is_read_back(tmp_path: Path) -> None:
    table = arrow.to_arrow(write_journal(tmp_path / "j", 50))
    with Writer(tmp_path / "copy") as writer:
        assert arrow.append(writer, table) == 50
        assert arrow.append(writer, table.to_batches()[0].slice(0, 3)) == 3
    copy = arrow.to_arrow(tmp_path / "copy")
    assert copy.slice(0, 50).equals(table)
    assert copy["offset"].to_pylist() == list(range(53))
    assert copy["value"].to_pylist()[50:] == [b"value0000", b"value0001", b"value0002"]


def test_batch_is_appended_by_the_writer_itself(tmp_path: Path) -> None:
    table = arrow.to_arrow(write_journal(tmp_path / "j", 50))
    with Writer(tmp_path / "copy", segment_size=500) as writer:
        assert writer.append_batch(table) == 0
        assert writer.append_batch(table) == 50
    assert arrow.to_arrow(tmp_path / "copy").slice(0, 50).equals(table)
    assert list(Reader(tmp_path / "copy"))[:50] == list(Reader(tmp_path / "j"))


def test_stream_is_appended_batch_by_batch(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "j")
    waiting: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            waiting.append(writer.next_offset)
            yield pa.record_batch({"value": [b"%d" % number] * 10})

    with writer:
        stream = pa.RecordBatchReader.from_batches(pa.schema({"value": pa.binary()}), batches())
        assert arrow.append(writer, stream) == 40
    assert waiting == [0, 10, 20, 30]


def test_batch_with_a_wrong_row_does_not_change_the_journal(tmp_path: Path) -> None:
    with Writer(tmp_path / "j") as writer:
        with pytest.raises(WrongUse, match="key"):
            writer.append_batch(pa.record_batch({"value": [b"a", b"b"], "key": [b"", bytes(128)]}))
        with pytest.raises(WrongUse, match="column value is null in row 1"):
            writer.append_batch(pa.record_batch({"value": [b"a", None]}))
        assert writer.next_offset == 0
    assert list(Reader(tmp_path / "j")) == []


def test_sharded_writers_accept_tables(tmp_path: Path) -> None:
    table = arrow.to_arrow(write_journal(tmp_path / "j", 50))
    with ShardedWriter(tmp_path / "root", "p", 2) as writer:
        assert arrow.append(writer, table) == 50
    back = arrow.to_arrow(tmp_path / "root").sort_by([("value", "ascending")])
    assert back.select(["key", "value", "type"]).equals(table.select(["key", "value", "type"]))


# --- Parquet ----------------------------------------------------------------------------------------------------------


def test_journal_becomes_parquet_and_a_journal_again(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 95)
    done = arrow.to_parquet(journal, tmp_path / "j.parquet")
    assert (done.rows, done.damages, done.torn_tails) == (95, [], [])
    assert done.bytes == (tmp_path / "j.parquet").stat().st_size
    assert pq.read_table(tmp_path / "j.parquet").equals(arrow.to_arrow(journal))
    assert arrow.from_parquet(tmp_path / "j.parquet", tmp_path / "again", segment_size=400) == 95
    assert list(Reader(tmp_path / "again")) == list(Reader(journal))
    assert len(Reader(tmp_path / "again").segments()) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "j", "j.parquet"]


def test_columns_and_ranges_of_parquet_can_be_selected(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 95)
    arrow.to_parquet(journal, tmp_path / "p", ["value", "file"], start=5, stop=12, compression="none")
    table = pq.read_table(tmp_path / "p")
    assert table.column_names == ["value", "file"]
    assert table["value"].to_pylist() == [b"value%04d" % offset for offset in range(5, 12)]
    assert table["file"].to_pylist() == ["jnl/0000000000000000.jnl"] * 5 + ["jnl/000000000000000a.jnl"] * 2


def test_row_groups_are_bounded(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 5000, per_segment=1000)
    arrow.to_parquet(journal, tmp_path / "p", row_group_bytes=50_000)
    metadata = pq.read_metadata(tmp_path / "p")
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(rows) == 5000
    assert max(rows) < 1400
    assert arrow.from_parquet(tmp_path / "p", tmp_path / "again") == 5000


def test_conversion_to_and_from_parquet_reports_progress(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 95)
    there: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = []
    arrow.to_parquet(journal, tmp_path / "p", progress=lambda done, total: there.append((done, total)))
    arrow.from_parquet(tmp_path / "p", tmp_path / "k", progress=lambda done, total: back.append((done, total)))
    assert there[-1] == (95 * MESSAGE_BYTES, 95 * MESSAGE_BYTES)
    assert len(there) == 10
    assert back[-1][0] == back[-1][1] > 0


def test_conversion_reports_skipped_ranges(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(DamagedJournal):
        arrow.to_parquet(damaged, tmp_path / "p")
    assert not (tmp_path / "p").exists()
    done = arrow.to_parquet(damaged, tmp_path / "p", mode="permissive")
    assert [damage.kind for damage in done.damages] == ["unexpected_offset", "malformed", "torn_tail"]
    assert done.rows == len(WHOLE)
    assert pq.read_table(tmp_path / "p")["offset"].to_pylist() == WHOLE


def test_existing_file_is_kept_unless_overwrite_is_given(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 3)
    (tmp_path / "p").write_text("precious")
    with pytest.raises(WrongUse, match="already exists"):
        arrow.to_parquet(journal, tmp_path / "p")
    assert (tmp_path / "p").read_text() == "precious"
    arrow.to_parquet(journal, tmp_path / "p", overwrite=True)
    assert pq.read_table(tmp_path / "p").num_rows == 3


def test_leftovers_of_an_interrupted_conversion_are_replaced(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j", 3)
    (tmp_path / ".p.partial").write_text("half")
    arrow.to_parquet(journal, tmp_path / "p")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j", "p"]


def test_sharded_root_becomes_one_file(root: Path, tmp_path: Path) -> None:
    arrow.to_parquet(root, tmp_path / "p")
    assert pq.read_table(tmp_path / "p").equals(arrow.to_arrow(root))


def test_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"no parquet at all")
    with pytest.raises(UnknownFormat, match="cannot be read as Parquet"):
        arrow.from_parquet(tmp_path / "p", tmp_path / "j")
    with pytest.raises(NotFound):
        arrow.from_parquet(tmp_path / "missing", tmp_path / "j")
    pq.write_table(pa.table({"colour": ["red"]}), tmp_path / "other")
    with pytest.raises(WrongUse, match="no column value among colour"):
        arrow.from_parquet(tmp_path / "other", tmp_path / "j")
    assert not (tmp_path / "j").exists()


def test_options_for_an_open_writer_are_refused(tmp_path: Path) -> None:
    with Writer(tmp_path / "j") as writer, pytest.raises(WrongUse, match="segment_size"):
        arrow.from_parquet(tmp_path / "p", writer, segment_size=5)


def simulated_journal(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(Path("/j"))
    write_journal(Path("/j"), count, per_segment=1000, disk=disk)
    disk.settle()
    return disk


def stored(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(Path(path), "read")
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_failure_of_any_call_leaves_the_parquet_file_complete_or_absent() -> None:
    faults = [
        Fault(errno.EIO),
        Fault(errno.ENOSPC, partial=True, only=frozenset({"write"})),
        Fault(errno.ENOSPC, forever=True, only=frozenset({"write"})),
        Fault(errno.EIO, only=frozenset({"sync", "sync directory"})),
    ]
    before = simulated_journal(60)
    whole = arrow.to_parquet(Path("/j"), Path("/p"), disk=before.copy())
    failed = 0
    for disk in every_fault(before.copy, faults, format="sej"):
        try:
            assert arrow.to_parquet(Path("/j"), Path("/p"), format="sej", disk=disk) == whole
        except StorageFailed:
            failed += 1
        after = disk.inner
        assert after.open_files == 0
        if after.exists(Path("/p")):
            assert pq.read_table(pa.py_buffer(stored(after, "/p"))).num_rows == 60
    assert failed > 20


def test_crash_leaves_the_parquet_file_complete_or_absent() -> None:
    disk = simulated_journal(60)
    arrow.to_parquet(Path("/j"), Path("/p"), disk=disk)
    disk.mark("done")
    states = 0
    for after in disk.crash_states(most=12, format="sej"):
        states += 1
        if after.exists(Path("/p")):
            assert pq.read_table(pa.py_buffer(stored(after, "/p"))).num_rows == 60
        else:
            assert "done" not in after.marks
    assert states > 50


def test_stores_round_trip_through_parquet_by_their_directory(tmp_path: Path) -> None:
    changes: list[tuple[str, Any]] = [("a", 1), ("b", {"c": [None, 2.5]}), ("a", None), ("b", "x")]
    for name in ("cars", "bikes"):
        with versioned.VersionedKVStore(tmp_path / "stores", name) as store:
            for key, value in changes:
                if value is None:
                    store.remove(key)
                else:
                    store.insert(key, value)
    arrow.to_parquet(tmp_path / "stores", tmp_path / "stores.parquet")
    assert arrow.from_parquet(tmp_path / "stores.parquet", tmp_path / "again", format="versioned") == 8
    for name in ("cars", "bikes"):
        before, after = (list(versioned.Reader(tmp_path / root / f"{name}.jrn")) for root in ("stores", "again"))
        assert after == before
    pq.write_table(pa.table({"value": ["1"], "key": ["a"]}), tmp_path / "messages.parquet")
    assert arrow.from_parquet(tmp_path / "messages.parquet", tmp_path / "named", format="versioned") == 1
    assert [(entry.k, entry.o) for entry in versioned.Reader(tmp_path / "named" / "named.jrn")] == [("a", 1)]
    pq.write_table(pa.table({"offset": [1]}), tmp_path / "other.parquet")
    with pytest.raises(WrongUse, match="there is no k or no o among offset"):
        arrow.from_parquet(tmp_path / "other.parquet", tmp_path / "nothing", format="versioned")
    assert not (tmp_path / "nothing").exists()


def test_failure_of_any_call_of_from_parquet_leaves_a_prefix() -> None:
    before = simulated_journal(60)
    arrow.to_parquet(Path("/j"), Path("/p"), disk=before)
    before.settle()
    values = [b"value%04d" % offset for offset in range(60)]
    for disk in every_fault(before.copy, [Fault(errno.EIO)], format="sej"):
        try:
            arrow.from_parquet(Path("/p"), Path("/k"), disk=disk)
            complete = True
        except LogwrightError:
            complete = False
        assert disk.inner.open_files == 0
        if not disk.inner.is_directory(Path("/k/jnl")):
            continue
        found = [
            value for batch in arrow.batches(Path("/k"), format="sej", disk=disk.inner) for value in batch["value"]
        ]
        assert [value.as_py() for value in found] == values[: len(found)]
        assert len(found) == 60 or not complete
