"""Messages as Arrow columns and back: values, types, nulls, sizes, and no unnecessary copies."""

from __future__ import annotations

import mmap
import random
from array import array
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.core.read.columns import BATCH_BYTES
from logwright.errors import TooLarge, WrongUse
from logwright.sej.bytes import codec, kernel
from logwright.sej.bytes.codec import Columns
from logwright.sej.bytes.layout import MAX_TIMESTAMP, NO_TIMESTAMP
from logwright.sej.bytes.records import Message
from logwright.sej.files.segment import Chunk, Segment
from logwright.sej.tables import columns

IMPLEMENTATIONS = [codec, kernel]
USUAL = ["offset", "timestamp", "type", "key", "value"]


def some_messages(count: int, seed: int = 1, first: int = 5) -> list[Message]:
    """Messages of all kinds: with and without key, value and timestamp, small and larger ones."""
    choose = random.Random(seed)
    found = []
    for offset in range(first, first + count):
        timestamp = None if choose.random() < 0.2 else choose.randrange(-(2**62), 2**62)
        key = choose.randbytes(choose.choice((0, 1, 13, 16, 17, 127)))
        value = choose.randbytes(choose.choice((0, 1, 31, 32, 33, 100, 255, 256, 257, 3000)))
        found.append(Message(offset, timestamp, choose.randrange(256), key, value))
    return found


def chunk_of(messages: list[Message], name: str = "jnl/0000000000000005.jnl", position: int = 6) -> Chunk:
    """A chunk as a reader returns it, some bytes after the beginning of its buffer."""
    encoded = b"".join(map(codec.encode, messages))
    data = memoryview(b"before" + encoded + b"behind")
    segment = Segment(messages[0].offset, name, Path(name))
    stop, first = 6 + len(encoded), messages[0].offset
    return Chunk(segment, data, 6, stop, position, first, len(messages), MAX_TIMESTAMP, NO_TIMESTAMP)


def collected(chunks: list[Chunk], names: list[str] | None = None, **options: Any) -> list[pa.RecordBatch]:
    collector = columns.Collector(names, **options)
    batches = [batch for chunk in chunks for batch in collector.add(chunk)]
    return batches + list(collector.finish())


def rows_of(batches: list[pa.RecordBatch]) -> list[Message]:
    """The messages in batches with the usual columns."""
    found = []
    for batch in batches:
        plain = batch.set_column(1, "timestamp", batch.column("timestamp").view(pa.int64()))
        found += [Message(*row.values()) for row in plain.to_pylist()]
    return found


# --- the schema -------------------------------------------------------------------------------------------------------


def test_schema_is_the_five_fields_of_a_message() -> None:
    assert columns.schema() == pa.schema(
        [
            pa.field("offset", pa.uint64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ns", tz="UTC"), nullable=True),
            pa.field("type", pa.uint8(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
        ]
    )


def test_schema_of_a_sharded_root_includes_the_shard() -> None:
    assert columns.schema(sharded=True).names == [*USUAL, "shard"]


def test_columns_are_returned_in_the_requested_order() -> None:
    assert columns.schema(["value", "file", "offset"]).names == ["value", "file", "offset"]


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["offset", "colour"], "no column 'colour'"),
        (["key", "key"], "is selected twice"),
        ([], "no columns"),
        ("value", "a list of names"),
    ],
)
def test_invalid_choice_of_columns_is_refused(names: Any, complaint: str) -> None:
    with pytest.raises(WrongUse, match=complaint):
        columns.schema(names)


# --- messages to batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [1, 5_000, 100_000, BATCH_BYTES])
def test_batches_of_any_size_hold_the_messages_of_any_chunks(batch_bytes: int) -> None:
    messages = some_messages(3000)
    chunks = [chunk_of(messages[at : at + 170]) for at in range(0, 3000, 170)]
    batches = collected(chunks, batch_bytes=batch_bytes)
    assert rows_of(batches) == messages
    assert all(batch.schema == columns.schema() for batch in batches)
    for batch in batches:
        batch.validate(full=True)


def test_batch_has_about_the_requested_size() -> None:
    chunks = [chunk_of([Message(offset, 1, 0, b"k" * 13, b"v" * 100)]) for offset in range(40_000)]
    sizes = [batch.get_total_buffer_size() for batch in collected(chunks, batch_bytes=1 << 20)]
    assert len(sizes) == 6
    assert all(0.8 * (1 << 20) < size < 1.2 * (1 << 20) for size in sizes[:-1])


def test_small_batches_still_have_some_rows() -> None:
    batches = collected([chunk_of(some_messages(100))], ["offset"], batch_bytes=1)
    assert [batch.num_rows for batch in batches] == [100]


def test_message_larger_than_a_batch_is_a_batch() -> None:
    messages = [Message(0, 0, 0, b"", b"small"), Message(1, 0, 0, b"", bytes(70_000)), Message(2, 0, 0, b"", b"small")]
    batches = collected([chunk_of([message]) for message in messages], batch_bytes=1000)
    assert rows_of(batches) == messages
    assert [batch.num_rows for batch in batches] == [1, 2]


def test_unexpectedly_long_keys_only_make_smaller_batches() -> None:
    short = [Message(offset, 0, 0, b"", b"value") for offset in range(2000)]
    long = [Message(offset, 0, 0, b"k" * 127, b"value") for offset in range(2000, 4000)]
    batches = collected([chunk_of(short), chunk_of(long)])
    assert rows_of(batches) == short + long
    assert len(batches) > 1


@pytest.mark.parametrize("name", USUAL)
def test_single_column_is_the_same_as_among_the_others(name: str) -> None:
    chunk = chunk_of(some_messages(200))
    (one,), (all_of_them,) = collected([chunk], [name]), collected([chunk])
    assert one.schema.names == [name]
    assert one.column(name).equals(all_of_them.column(name))


def test_only_requested_columns_are_decoded() -> None:
    chunk = chunk_of(some_messages(3))
    found = kernel.columns(chunk.data, chunk.start, chunk.stop, 3, codec.KEYS | codec.SIZES)
    there = [field.name for field in fields(found) if getattr(found, field.name) is not None]
    assert there == ["count", "key_ends", "keys", "sizes", "untimed"]
    with pytest.raises(WrongUse, match="column offset was not decoded"):
        columns.to_batch(found, columns.schema(["offset"]))


def test_positions_are_relative_to_the_beginning_of_the_file() -> None:
    messages = some_messages(4)
    names = ["file", "position", "size"]
    (batch,) = collected([chunk_of(messages[:3], "jnl/a.jnl", 1000), chunk_of(messages[3:], "jnl/b.jnl")], names)
    sizes = [message.size for message in messages]
    assert batch.column("size").to_pylist() == sizes
    assert batch.column("position").to_pylist() == [1000, 1000 + sizes[0], 1000 + sizes[0] + sizes[1], 6]
    assert batch.column("file").to_pylist() == ["jnl/a.jnl", "jnl/a.jnl", "jnl/a.jnl", "jnl/b.jnl"]
    assert batch.column("file").dictionary.to_pylist() == ["jnl/a.jnl", "jnl/b.jnl"]


def test_files_are_correct_if_a_batch_ends_within_a_chunk() -> None:
    messages = [Message(offset, 0, 0, b"", bytes(1000)) for offset in range(5000)]
    chunks = [chunk_of(messages[at : at + 700], f"{at}") for at in range(0, 5000, 700)]
    batches = collected(chunks, ["offset", "value", "file"], batch_bytes=1_300_000)
    assert len(batches) == 4
    for batch in batches:
        for row in batch.select(["offset", "file"]).to_pylist():
            assert row["file"] == str(row["offset"] // 700 * 700)


def test_shard_is_a_column_and_prefixes_the_file() -> None:
    collector = columns.Collector(["shard", "file"], sharded=True)
    for shard in ("p.1.000", "p.1.001"):
        assert list(collector.add(chunk_of(some_messages(1), "jnl/x.jnl"), shard)) == []
    (batch,) = collector.finish()
    assert batch.to_pylist() == [
        {"shard": "p.1.000", "file": "p.1.000/jnl/x.jnl"},
        {"shard": "p.1.001", "file": "p.1.001/jnl/x.jnl"},
    ]


def test_timestamps_have_a_bitmap_only_where_one_is_missing() -> None:
    timed = [Message(offset, 7, 0, b"", b"") for offset in range(20)]
    (whole,) = collected([chunk_of(timed)])
    assert whole.column("timestamp").buffers()[0] is None
    gone = [Message(offset, None if offset in (0, 9) else offset, 0, b"", b"") for offset in range(20)]
    (holes,) = collected([chunk_of(gone)])
    assert holes.column("timestamp").null_count == 2
    assert holes.column("timestamp").is_null().to_pylist() == [offset in (0, 9) for offset in range(20)]


def test_arrow_gets_the_memory_that_the_kernel_has_filled() -> None:
    chunk = chunk_of(some_messages(50))
    builder = kernel.BatchBuilder(codec.ALL_COLUMNS, 50, 50 * 127, chunk.stop, pa.allocate_buffer)
    builder.add(chunk.data, chunk.start, chunk.stop, 50)
    gathered = builder.take()
    batch = columns.to_batch(gathered, columns.schema())
    buffers_of: dict[str, list[Any]] = {
        "offset": [gathered.offsets],
        "timestamp": [gathered.timestamps],
        "key": [gathered.key_ends, gathered.keys],
        "value": [gathered.value_ends, gathered.values],
    }
    for name, buffers in buffers_of.items():
        assert [buffer.address for buffer in batch.column(name).buffers()[1:]] == [buffer.address for buffer in buffers]


def test_small_batch_releases_its_spare_memory() -> None:
    before = pa.total_allocated_bytes()
    (batch,) = collected([chunk_of(some_messages(1))])
    assert batch.num_rows == 1
    assert pa.total_allocated_bytes() - before < 4096


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1])
def test_invalid_batch_size_is_refused(size: int) -> None:
    with pytest.raises(WrongUse, match="not within 1 byte and 1 GiB"):
        columns.Collector(batch_bytes=size)


# --- gathering, by the codec and by the kernel ------------------------------------------------------------------------


def used(gathered: Columns) -> dict[str, bytes]:
    """The used part of each column's buffer."""
    count = gathered.count
    found = {}
    for name, width in {"offsets": 8, "timestamps": 8, "types": 1, "positions": 8, "sizes": 4}.items():
        found[name] = bytes(getattr(gathered, name))[: count * width]
    for name, ends in {"keys": "key_ends", "values": "value_ends"}.items():
        found[ends] = bytes(getattr(gathered, ends))[: 4 * (count + 1)]
        found[name] = bytes(getattr(gathered, name))[: int.from_bytes(found[ends][-4:], "little")]
    return found


@pytest.mark.parametrize(
    ("rows", "key_bytes", "value_bytes"),
    [(1000, 10**6, 10**6), (77, 10**6, 10**6), (1000, 1500, 10**6), (1000, 10**6, 9000), (0, 0, 0), (1000, 0, 0)],
)
def test_codec_and_kernel_gather_the_same_rows(rows: int, key_bytes: int, value_bytes: int) -> None:
    chunk = chunk_of(some_messages(400, seed=rows))
    builders = [module.BatchBuilder(codec.ALL_COLUMNS, rows, key_bytes, value_bytes) for module in IMPLEMENTATIONS]
    answers = [one.add(chunk.data, chunk.start, chunk.stop, 400, base=99) for one in builders]
    assert answers[0] == answers[1]
    position, added = answers[0]
    assert [one.count for one in builders] == [added, added]
    assert position == kernel.walk(chunk.data, chunk.start, chunk.stop, chunk.first_offset, added)[0]
    taken = [one.take() for one in builders]
    assert used(taken[0]) == used(taken[1])
    assert taken[0].untimed == taken[1].untimed


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_gathering_continues_where_it_stopped(module: Any) -> None:
    messages = some_messages(300)
    chunk = chunk_of(messages)
    position, left, keys = chunk.start, 300, []
    while left:
        builder = module.BatchBuilder(codec.KEYS, 64, 64 * 127, 0)
        position, added = builder.add(chunk.data, position, chunk.stop, left)
        left -= added
        keys += columns.to_batch(builder.take(), columns.schema(["key"])).column(0).to_pylist()
    assert keys == [message.key for message in messages]
    assert position == chunk.stop


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_unwalked_bytes_are_refused(module: Any) -> None:
    whole = codec.encode(Message(1, 2, 3, b"key", b"value"))
    for data in (whole[:-1], whole[:20], bytes([*whole[:17], 0x80, *whole[18:]])):
        builder = module.BatchBuilder(codec.ALL_COLUMNS, 10, 1000, 1000)
        with pytest.raises(Malformed, match="not walked"):
            builder.add(data, 0, len(data), 1)


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_columns_can_be_taken_one_time(module: Any) -> None:
    builder = module.BatchBuilder(codec.OFFSETS, 10, 0, 0)
    assert builder.take().count == 0
    with pytest.raises(WrongUse, match="taken"):
        builder.take()
    with pytest.raises(WrongUse, match="taken"):
        builder.add(b"", 0, 0, 0)


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
@pytest.mark.parametrize("sizes", [(-1, 0, 0), (1, 2**31, 0), (1, 0, 2**31), (1, -1, 0)])
def test_buffer_beyond_32_bit_offsets_is_refused(module: Any, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(TooLarge, match="less than 2 GiB"):
        module.BatchBuilder(codec.OFFSETS, *sizes)


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_buffer_that_is_too_small_is_refused(module: Any) -> None:
    with pytest.raises(WrongUse, match="asked for"):
        module.BatchBuilder(codec.OFFSETS, 10, 0, 0, lambda size: bytearray(size - 1))


# --- Arrow to columns -------------------------------------------------------------------------------------------------


def appended(data: Any) -> list[tuple[int | None, int, bytes, bytes]]:
    """Timestamp, type, key and value that a writer would write for Arrow data, packed by codec and kernel alike."""
    parts, packed = columns.from_arrow(data), []
    for module in IMPLEMENTATIONS:
        buffer = module.AppendBuffer(0, 0, 1 << 40, 1 << 40)
        for part in parts:
            kernel.check_columns(part)
            assert buffer.extend(part, 0, 1234, 1 << 40) == part.count
        taken, size, *_ = buffer.take()
        packed.append(bytes(taken[:size]))
    assert packed[0] == packed[1]
    _, count, *_ = kernel.walk(packed[0], 0, len(packed[0]), 0)
    messages = kernel.messages(packed[0], 0, len(packed[0]), count)
    return [(message.timestamp, message.type, message.key, message.value) for message in messages]


VALUES = pa.array([b"one", b"", b"three"])


def test_own_batch_round_trips() -> None:
    messages = some_messages(500)
    (batch,) = collected([chunk_of(messages)])
    assert appended(batch) == [(m.timestamp, m.type, m.key, m.value) for m in messages]


def test_missing_columns_are_now_zero_and_empty() -> None:
    assert appended(pa.record_batch({"value": VALUES})) == [
        (1234, 0, b"", b"one"),
        (1234, 0, b"", b""),
        (1234, 0, b"", b"three"),
    ]


def test_nulls_are_no_timestamp_type_zero_and_an_empty_key() -> None:
    data = pa.record_batch(
        {
            "value": VALUES,
            "key": pa.array([None, b"k", None]),
            "type": pa.array([None, 2, 3], pa.uint8()),
            "timestamp": pa.array([5, None, 7], pa.timestamp("ns")),
        }
    )
    assert appended(data) == [(5, 0, b"", b"one"), (None, 2, b"k", b""), (7, 3, b"", b"three")]


def test_all_null_columns_are_like_missing_ones_without_a_time() -> None:
    data = pa.record_batch({"value": VALUES, "key": pa.nulls(3), "type": pa.nulls(3), "timestamp": pa.nulls(3)})
    assert appended(data) == [(None, 0, b"", b"one"), (None, 0, b"", b""), (None, 0, b"", b"three")]


def test_bytes_of_a_null_key_are_not_written() -> None:
    ends, data = pa.py_buffer(bytes.fromhex("00000000 03000000 06000000")), pa.py_buffer(b"abcdef")
    key = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), ends, data])
    assert [row[2] for row in appended(pa.record_batch({"value": VALUES[:2], "key": key}))] == [b"", b"def"]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()],
    ids=str,
)
def test_every_bytes_type_is_accepted(kind: pa.DataType) -> None:
    data = pa.record_batch({"value": pa.array(["one", "", "three"], kind), "key": pa.array(["a", None, "c"], kind)})
    assert [row[2:] for row in appended(data)] == [(b"a", b"one"), (b"", b""), (b"c", b"three")]
    assert [row[2:] for row in appended(data.slice(1, 2))] == [(b"", b""), (b"c", b"three")]


def test_fixed_size_bytes_are_accepted() -> None:
    data = pa.record_batch({"value": pa.array([b"abcd", b"efgh"], pa.binary(4))})
    assert [row[3] for row in appended(data.slice(1))] == [b"efgh"]


def test_dictionary_columns_are_decoded() -> None:
    value = pa.array(["red", "green", "red", "blue"]).dictionary_encode()
    key = pa.array([b"k", None, b"k", b"l"]).dictionary_encode()
    type = pa.array([7, 7, 8, 8], pa.int32()).dictionary_encode()
    data = pa.record_batch({"value": value, "key": key, "type": type})
    assert [row[1:] for row in appended(data.slice(1))] == [(7, b"", b"green"), (8, b"k", b"red"), (8, b"l", b"blue")]


def test_extension_type_is_read_as_its_storage() -> None:
    value = pa.array([bytes(16), b"x" * 16], pa.uuid())
    assert [row[3] for row in appended(pa.record_batch({"value": value}))] == [bytes(16), b"x" * 16]


@pytest.mark.parametrize(("unit", "factor"), [("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1)])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_every_unit_and_zone_are_nanoseconds_since_the_epoch(
    unit: str, factor: int, zone: str | None
) -> None:
    timestamp = pa.array([-3, None, 1_700_000_000], pa.timestamp(unit, zone))
    rows = appended(pa.record_batch({"value": VALUES, "timestamp": timestamp}))
    assert [row[0] for row in rows] == [-3 * factor, None, 1_700_000_000 * factor]


def test_int64_timestamps_are_nanoseconds() -> None:
    data = pa.record_batch({"value": VALUES, "timestamp": pa.array([1, None, -3])})
    assert [row[0] for row in appended(data)] == [1, None, -3]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
def test_every_integer_type_is_accepted(kind: pa.DataType) -> None:
    data = pa.record_batch({"value": VALUES, "type": pa.array([0, 100, 127], kind)})
    assert [row[1] for row in appended(data)] == [0, 100, 127]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"value": pa.array([1])}, "column value is int64"),
        ({"value": pa.array([b"v"]), "key": pa.array([1.5])}, "column key is double"),
        ({"value": pa.array([b"v"]), "type": pa.array(["a"])}, "column type is string"),
        ({"value": pa.array([b"v"]), "type": pa.array([256])}, "column type must be within 0 and 255"),
        ({"value": pa.array([b"v"]), "type": pa.array([-1])}, "column type must be within 0 and 255"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1], pa.int32())}, "column timestamp is int32"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([2**40], pa.timestamp("s"))}, "column timestamp does not"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1], pa.date32())}, "column timestamp is date32"),
        ({"value": pa.array([b"a", None, b"c"])}, "column value is null in row 1"),
        ({"value": pa.nulls(2)}, "column value is null in row 0"),
        ({"key": pa.array([b"k"])}, "no column value among key"),
    ],
)
def test_wrong_column_is_named(data: dict[str, pa.Array], complaint: str) -> None:
    with pytest.raises(WrongUse, match=complaint):
        columns.from_arrow(pa.record_batch(data))


def test_duplicate_column_is_refused() -> None:
    data = pa.RecordBatch.from_arrays([VALUES, VALUES], names=["value", "value"])
    with pytest.raises(WrongUse, match="column value is there more than once"):
        columns.from_arrow(data)


@pytest.mark.parametrize("data", [None, [b"a"], {"value": [b"a"]}, VALUES.to_pylist()])
def test_other_objects_than_arrow_are_refused(data: Any) -> None:
    with pytest.raises(WrongUse, match="is not Arrow data"):
        columns.from_arrow(data)


def test_key_that_is_too_long_is_found_before_anything_is_written() -> None:
    (part,) = columns.from_arrow(pa.record_batch({"value": VALUES, "key": pa.array([b"", bytes(128), b""])}))
    for module in IMPLEMENTATIONS:
        with pytest.raises(TooLarge, match="128 bytes"):
            module.check_columns(part)


# --- where the data comes from ----------------------------------------------------------------------------------------


class Stream:
    """The interface of another library's frame."""

    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


class Record:
    """A single batch of another library."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_array__(requested_schema)


def as_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda table: table,
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: table.to_reader(),
        lambda table: pa.RecordBatchReader.from_batches(table.schema, as_batches(table)),
        lambda table: Stream(table),
        lambda table: Record(table.combine_chunks().to_batches()[0]),
    ],
    ids=["table", "batch", "reader", "generator", "stream", "record"],
)
def test_arrow_data_of_any_shape_is_accepted(wrapped: Callable[[pa.Table], Any]) -> None:
    value = pa.chunked_array([[b"a", b"b"], [], [b"c"]], pa.binary())
    key = pa.chunked_array([[b"1"], [b"2", b"3"]], pa.binary())
    table = pa.table({"key": key, "value": value, "offset": pa.array([7, 7, 7])})
    assert [row[2:] for row in appended(wrapped(table))] == [(b"1", b"a"), (b"2", b"b"), (b"3", b"c")]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_empty_table_has_no_rows(kind: pa.DataType) -> None:
    assert appended(pa.table({"value": pa.array([], kind), "key": pa.array([], kind)})) == []


def test_slices_of_slices_are_followed() -> None:
    messages = some_messages(100)
    (batch,) = collected([chunk_of(messages)])
    expected = [(m.timestamp, m.type, m.key, m.value) for m in messages]
    assert appended(batch.slice(30, 50).slice(7, 9)) == expected[37:46]
    assert appended(batch.slice(99)) == expected[99:]


# --- nothing is copied ------------------------------------------------------------------------------------------------


def address_of(view: Any) -> int:
    return int(pa.py_buffer(view).address)


def test_columns_of_the_right_types_are_not_copied() -> None:
    (batch,) = collected([chunk_of([Message(offset, offset, 0, b"key", b"value") for offset in range(10)])])
    (part,) = columns.from_arrow(batch.slice(4))
    assert address_of(part.values) == batch.column("value").buffers()[2].address
    assert address_of(part.value_ends) == batch.column("value").buffers()[1].address + 4 * 4
    assert address_of(part.keys) == batch.column("key").buffers()[2].address
    assert address_of(part.timestamps) == batch.column("timestamp").buffers()[1].address + 4 * 8
    assert address_of(part.types) == batch.column("type").buffers()[1].address + 4


def test_bytes_of_strings_and_large_binaries_are_not_copied() -> None:
    for kind in (pa.string(), pa.large_binary(), pa.large_string()):
        array = pa.array(["one", "two", "three"], kind)
        (part,) = columns.from_arrow(pa.record_batch({"value": array}))
        assert address_of(part.values) == array.buffers()[2].address


def test_values_beyond_2_gib_are_split_into_windows() -> None:
    gib = 1 << 30
    ends = [0, 10, gib, gib + 1, 2 * gib, 3 * gib - 1, 3 * gib, 3 * gib + 5]
    with mmap.mmap(-1, 4 * gib) as memory:  # never touched, so it takes no memory
        data = pa.py_buffer(memory)
        offsets = pa.array(ends, pa.int64()).buffers()[1]
        value = pa.Array.from_buffers(pa.large_binary(), 7, [None, offsets, data])
        key = pa.array([b"%d" % row for row in range(7)])
        parts = columns.from_arrow(pa.record_batch({"value": value, "key": key}))
        assert [part.count for part in parts] == [3, 3, 1]
        for part, first in zip(parts, (0, 3, 6), strict=True):
            assert part.values is not None
            assert part.value_ends is not None
            rows = ends[first : first + part.count + 1]
            assert memoryview(part.value_ends).cast("B").cast("i").tolist() == [end - rows[0] for end in rows]
            assert address_of(part.values) == data.address + rows[0]
            assert memoryview(part.values).nbytes == rows[-1] - rows[0]
            kernel.check_columns(part)
        del parts, part, value, data


def test_one_value_beyond_2_gib_is_too_large() -> None:
    with mmap.mmap(-1, 3 << 30) as memory:
        data = pa.py_buffer(memory)
        offsets = pa.array([0, 5, 3 << 30], pa.int64()).buffers()[1]
        value = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, data])
        with pytest.raises(TooLarge, match="row 1 has 3221225467 bytes"):
            columns.from_arrow(pa.record_batch({"value": value}))
        del value, data


# --- packing, by the codec and by the kernel --------------------------------------------------------------------------


@pytest.mark.parametrize("enough_bytes", [1, 500, 20_000, 1 << 40])
@pytest.mark.parametrize("segment_bytes", [1, 700, 1 << 40])
def test_codec_and_kernel_pack_and_cut_the_same(enough_bytes: int, segment_bytes: int) -> None:
    (batch,) = collected([chunk_of(some_messages(300))])
    (part,) = columns.from_arrow(batch)
    taken = []
    for module in IMPLEMENTATIONS:
        buffer = module.AppendBuffer(17, 3, segment_bytes, 1)
        row, pieces = 0, []
        while row < part.count:
            row = buffer.extend(part, row, 5, enough_bytes)
            data, size, cuts, *times = buffer.take()
            pieces.append((row, bytes(data[:size]), cuts, times, buffer.segment_used, buffer.next_offset))
        taken.append(pieces)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_packing_grows_the_buffer_for_a_large_value(module: Any) -> None:
    value = pa.array([b"a", bytes(range(256)) * 8000, b"c"])
    (part,) = columns.from_arrow(pa.record_batch({"value": value}))
    buffer = module.AppendBuffer(0, 0, 1 << 40, 1)
    assert buffer.extend(part, 0, 5, 1 << 40) == 3
    data, size, *_ = buffer.take()
    found = kernel.messages(data, 0, size, 3)
    assert [message.value for message in found] == value.to_pylist()


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
@pytest.mark.parametrize("ends", [[0, 3, 90], [0, 3, 2], [0, 3, -1]])
@pytest.mark.parametrize("column", ["key", "value"])
def test_row_outside_its_columns_is_not_packed(module: Any, ends: list[int], column: str) -> None:
    offsets = array("i", ends).tobytes()
    key = Columns(2, key_ends=offsets, keys=b"abcdef")
    part = key if column == "key" else Columns(2, value_ends=offsets, values=b"abcdef")
    buffer = module.AppendBuffer(0, 0, 1 << 40, 1)
    with pytest.raises(WrongUse, match="row 1"):
        buffer.extend(part, 0, 5, 1 << 40)


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
def test_packing_ends_with_the_last_64_bit_offset(module: Any) -> None:
    (part,) = columns.from_arrow(pa.record_batch({"value": VALUES}))
    buffer = module.AppendBuffer(2**64 - 3, 0, 1 << 40, 1)
    with pytest.raises(TooLarge, match="used up"):
        buffer.extend(part, 0, 5, 1 << 40)
    assert buffer.next_offset == 2**64 - 1
