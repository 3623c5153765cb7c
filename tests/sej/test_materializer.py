"""The table of messages: a row for every message, however the records are cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.arrow.columns import without_dictionaries
from logwright.core.format import find_format
from logwright.core.read.materializer import Continued
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
from logwright.sej.model.shard_writer import ShardedWriter
from logwright.sej.tables.restore import RESTORE

from ..support.materializing import Increments, batches_of, check_increments, materials_of

FORMAT = find_format("sej")
MATERIALS = materials_of(FORMAT)
SCHEMA = MATERIALS.schemas["messages"]


def make_journal(directory: Path, rng: random.Random, count: int = 60) -> Path:
    with Writer(directory, segment_size=300) as writer:
        for _ in range(count):
            timestamp = rng.choice((None, 0, -1, 1_700_000_000_123_456_789, rng.randrange(-(2**63) + 1, 2**63)))
            key = rng.randbytes(rng.randrange(4))
            writer.append(rng.randbytes(rng.randrange(30)), key=key, type=rng.randrange(256), timestamp=timestamp)
    return directory


def expected_rows(path: Path, shard: str | None = None) -> list[dict[str, Any]]:
    found = []
    for item in Reader(path / (shard or "")).scan():
        message = item.record
        micros = None if message.timestamp is None else message.timestamp // 1000
        found.append(
            {
                "shard": shard,
                "offset": message.offset,
                "timestamp": micros,
                "timestamp_ns": message.timestamp,
                "type": message.type,
                "key": message.key,
                "value": message.value,
                "file": f"{shard}/{item.file}" if shard else item.file,
                "position": item.span.start,
                "size": item.span.size,
            }
        )
    return found


def plain_times(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of a table, times as microseconds, because Python's datetime cannot represent all of them."""
    found = []
    for batch in batches:
        at = batch.schema.get_field_index("timestamp")
        found += batch.set_column(at, "timestamp", batch.column(at).view(pa.int64())).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(10))
def test_messages_has_a_row_for_every_message(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    make_journal(tmp_path, rng)
    found = []
    with MATERIALS.materializer(Continued("", None, tmp_path)) as materializer:
        for batch in batches_of(FORMAT, tmp_path, batch_bytes=rng.choice((1, 500, 1 << 20))):
            rows = list(materializer.add(batch.slice(0, 1))) + list(materializer.add(batch.slice(1)))
            assert all(table == "messages" and part.schema.names == SCHEMA.names for table, part in rows)
            found += [without_dictionaries(part, SCHEMA) for _, part in rows]
        assert list(materializer.live(0)) == []
    assert plain_times(found) == expected_rows(tmp_path)


def test_each_row_of_a_sharded_journal_names_its_shard(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path, bit=1) as writer:
        for number in range(20):
            writer.append(b"", key=str(number).encode(), timestamp=None)
    for shard in ("1.000", "1.001"):
        increments = Increments(MATERIALS, tmp_path / "scratch", shard)
        increments.add(batches_of(FORMAT, tmp_path, shard))
        assert increments.closed["messages"] == expected_rows(tmp_path, shard)
        assert len(increments.closed["messages"]) > 2


def test_increments_have_the_rows_of_one_run(tmp_path: Path) -> None:
    rng = random.Random(7)
    with Writer(tmp_path, segment_size=300) as writer:
        for number in range(100):
            writer.append(str(number).encode(), timestamp=None)
    rows = expected_rows(tmp_path)
    batches = batches_of(FORMAT, tmp_path)
    check_increments(MATERIALS, batches, tmp_path / "scratch", rng, lambda count: {"messages": rows[:count]})


def test_columns_are_typed() -> None:
    assert not MATERIALS.is_ordered
    assert MATERIALS.record_table == "messages"
    assert {name: str(kind) for name, kind in zip(*_fields("messages"), strict=True)} == {
        "shard": "string",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestamp_ns": "int64",
        "type": "int16",
        "key": "binary",
        "value": "binary",
        "file": "string",
        "position": "int64",
        "size": "int32",
    }


def _fields(table: str) -> tuple[list[str], list[pa.DataType]]:
    schema = MATERIALS.schemas[table]
    return schema.names, schema.types


def test_segment_is_written_again_from_the_table(tmp_path: Path) -> None:
    make_journal(tmp_path / "journal", random.Random(3))
    with MATERIALS.materializer(Continued("", None, tmp_path)) as materializer:
        rows = [part for batch in batches_of(FORMAT, tmp_path / "journal") for _, part in materializer.add(batch)]
    table = pa.Table.from_batches(rows)
    for segment in Reader(tmp_path / "journal").segments():
        writer = RESTORE.writer(tmp_path / "again", segment.name, disk=Reader(tmp_path / "journal").disk)
        own = table.filter(pa.compute.equal(table.column("file"), segment.name))
        for batch in own.to_batches():
            writer.append_batch(batch)
        writer.finish()
        assert (tmp_path / "again" / segment.name).read_bytes() == segment.path.read_bytes()
