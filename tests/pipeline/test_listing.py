"""What the driver lists: rows for the tables `files` and `consumers`, for all journals."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa

from logwright import kestrel
from logwright.pipeline.listing import list_journals, tails_of
from logwright.pipeline.tables import FILES, OFFSETS
from logwright.sej import ShardedWriter, Writer, reset
from logwright.spark.reader import Journal, find_journals


def test_files_and_consumers_of_all_journals_become_rows(tmp_path: Path) -> None:
    with Writer(tmp_path / "a" / "orders", segment_size=50) as writer:
        for _ in range(3):
            writer.append(bytes(20))
    reset(tmp_path / "a" / "orders", "billing", 1, create=True)
    with ShardedWriter(tmp_path / "b", bit=1) as shards:
        shards.append(b"v", b"1")
    listing = list_journals(find_journals(str(tmp_path), None))
    assert listing.problems == {}
    assert listing.file_table().schema == FILES
    assert [tuple(row.values()) for row in listing.file_table().to_pylist()] == [
        ("sej", "a/orders", "", "jnl/0000000000000000.jnl", 92, 0, 2),
        ("sej", "a/orders", "", "jnl/0000000000000002.jnl", 46, 2, 3),
        ("sej", "b", "1.001", "1.001/jnl/0000000000000000.jnl", 28, 0, 1),
    ]
    assert [tuple(row.values()) for row in listing.offset_table().to_pylist()] == [
        ("sej", "a/orders", "", "billing", 1, 0, 3, None)
    ]


def test_unlistable_journal_is_a_problem_and_the_others_are_listed(tmp_path: Path) -> None:
    with Writer(tmp_path / "good"):
        pass
    (tmp_path / "mixed" / "1.000" / "jnl").mkdir(parents=True)
    (tmp_path / "mixed" / "2.000" / "jnl").mkdir(parents=True)
    journals = [Journal("sej", str(tmp_path / name), name) for name in ("good", "gone", "mixed")]
    listing = list_journals(journals)
    assert [row["journal"] for row in listing.files] == ["good"]
    assert list(listing.problems) == ["gone", "mixed"]
    assert "mixes shards of bit 1" in listing.problems["mixed"]


def test_values_that_a_column_cannot_hold_are_null_or_escaped(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal"):
        pass
    (tmp_path / "journal" / "jnl" / f"{1 << 63:016x}.jnl").write_bytes(b"")
    (tmp_path / "journal" / "ofs").mkdir()
    (tmp_path / "journal" / "ofs" / "far.ofs").write_bytes(b"\xff" * 8)
    (tmp_path / "journal" / "ofs" / b"\xff.ofs".decode("utf-8", "surrogateescape")).write_bytes(b"")
    listing = list_journals([Journal("sej", str(tmp_path / "journal"), "journal")])
    assert [(row["first"], row["next"]) for row in listing.files] == [(0, None), (None, None)]
    far, strange = listing.offset_table().to_pylist()
    assert (far["offset"], far["problem"]) == (None, "the offset 18446744073709551615 does not fit a BIGINT")
    assert (strange["consumer"], strange["offset"], strange["problem"]) == ("\\xff", None, None)


def test_bytes_after_the_last_complete_record_are_reported(tmp_path: Path) -> None:
    for name, torn in {"a": b"", "torn": b"\0" * 12, "noise": random.Random(1).randbytes(5000)}.items():
        with Writer(tmp_path / name) as writer:
            writer.append(b"")
        path = tmp_path / name / "jnl" / "0000000000000000.jnl"
        path.write_bytes(torn if name == "noise" else path.read_bytes() + torn)
    (tmp_path / "queues").mkdir()
    for queue in (b"cars", b"\xff"):
        with kestrel.Writer(tmp_path / "queues" / os.fsdecode(queue)) as operations:
            operations.addx(b"x")
    with (tmp_path / "queues" / os.fsdecode(b"\xff")).open("ab") as file:
        file.write(b"\5")
    (tmp_path / "mixed" / "1.000" / "jnl").mkdir(parents=True)
    (tmp_path / "mixed" / "2.000" / "jnl").mkdir(parents=True)
    reported = tails_of(find_journals(str(tmp_path), None))
    assert [tail.rpartition(" (")[0] for tail in reported] == [
        "noise: jnl/0000000000000000.jnl @ 0: 5,000 bytes at the end are not a complete record, and in no table",
        r"queues: \xff @ 22: 1 byte at the end is not a complete record, and in no table",
        "torn: jnl/0000000000000000.jnl @ 26: 12 bytes at the end are not a complete record, and in no table",
    ]


def test_incomplete_value_at_the_end_is_reported(tmp_path: Path) -> None:
    with Writer(tmp_path / "inner") as writer:
        for _ in range(60):
            writer.append(b"inner")
    inner = (tmp_path / "inner" / "jnl" / "0000000000000000.jnl").read_bytes()
    with Writer(tmp_path / "outer") as writer:
        for _ in range(20):
            writer.append(b"outer")
        at = writer.append(inner)
    path = tmp_path / "outer" / "jnl" / "0000000000000000.jnl"
    path.write_bytes(path.read_bytes()[:-4])
    (reported,) = tails_of([Journal("sej", str(tmp_path / "outer"), "outer")])
    assert reported.startswith(f"outer: jnl/0000000000000000.jnl @ {31 * at}: {22 + len(inner):,} bytes at")


def test_no_journals_give_two_empty_tables() -> None:
    listing = list_journals([])
    assert listing.file_table() == pa.Table.from_pylist([], schema=FILES)
    assert listing.offset_table() == pa.Table.from_pylist([], schema=OFFSETS)
