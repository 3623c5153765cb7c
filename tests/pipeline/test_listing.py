"""What the driver lists: rows for the tables `files` and `consumers`, for all journals."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

from logwright import kestrel
from logwright.arrow.discovery import Journal, find_journals, open_journal
from logwright.pipeline.listing import list_journals, tails_of
from logwright.pipeline.tables import CONSUMERS, FILES
from logwright.sej import Offset, ShardedWriter, Writer, reset


def opened(*journals: Journal) -> list[tuple[Journal, Any]]:
    return [(journal, open_journal(journal)) for journal in journals]


def test_files_and_consumers_of_all_journals_become_rows(tmp_path: Path) -> None:
    with Writer(tmp_path / "a" / "orders", segment_size=50) as writer:
        for _ in range(3):
            writer.append(bytes(20))
    reset(tmp_path / "a" / "orders", "billing", 1, create=True)
    with ShardedWriter(tmp_path / "b", bit=1) as shards:
        shards.append(b"v", b"1")
    listing = list_journals(opened(*find_journals(str(tmp_path), None)))
    assert listing.problems == {}
    tables = listing.tables()
    assert (tables["files"].schema, tables["consumers"].schema) == (FILES, CONSUMERS)
    assert [tuple(row.values()) for row in tables["files"].to_pylist()] == [
        ("sej", "a/orders", "", "jnl/0000000000000000.jnl", 92, 0, 2),
        ("sej", "a/orders", "", "jnl/0000000000000002.jnl", 46, 2, 3),
        ("sej", "b", "1.001", "1.001/jnl/0000000000000000.jnl", 28, 0, 1),
    ]
    assert [tuple(row.values()) for row in tables["consumers"].to_pylist()] == [
        ("sej", "a/orders", None, "billing", 1, 0, 3, 2, 0, "behind", None)
    ]


def test_status_of_a_consumer_says_where_it_is(tmp_path: Path) -> None:
    with Writer(tmp_path / "j", segment_size=50) as writer:
        for _ in range(6):
            writer.append(bytes(20))
    for name, offset in (("done", "last"), ("slow", 4), ("late", 1)):
        reset(tmp_path / "j", name, offset, create=True)  # type: ignore[arg-type]
    Offset(tmp_path / "j", "new").close()
    (tmp_path / "j" / "ofs" / "torn.ofs").write_bytes(b"123")
    (tmp_path / "j" / "ofs" / "ahead.ofs").write_bytes((10**6).to_bytes(8, "big"))
    (tmp_path / "j" / "jnl" / f"{0:016x}.jnl").unlink()
    listing = list_journals(opened(Journal("sej", str(tmp_path / "j"), "j")))
    columns = ("consumer", "offset", "lag", "missed", "status")
    assert [tuple(row[name] for name in columns) for row in listing.consumers] == [
        ("ahead", 10**6, 0, 0, "ahead"),
        ("done", 6, 0, 0, "current"),
        ("late", 1, 5, 1, "overtaken"),
        ("new", None, None, None, "new"),
        ("slow", 4, 2, 0, "behind"),
        ("torn", None, None, None, "unreadable"),
    ]


def test_unlistable_journal_is_a_problem_and_the_others_are_listed(tmp_path: Path) -> None:
    for name in ("good", "gone"):
        with ShardedWriter(tmp_path / name, bit=1) as writer:
            writer.append(b"v", b"1")
    journals = opened(*(Journal("sej", str(tmp_path / name), name) for name in ("good", "gone")))
    shutil.rmtree(tmp_path / "gone")
    listing = list_journals(journals)
    assert [row["journal"] for row in listing.files] == ["good"]
    assert list(listing.problems) == ["gone"]


def test_values_that_a_column_cannot_hold_are_null_or_escaped(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal"):
        pass
    (tmp_path / "journal" / "jnl" / f"{1 << 63:016x}.jnl").write_bytes(b"")
    (tmp_path / "journal" / "ofs").mkdir()
    (tmp_path / "journal" / "ofs" / "far.ofs").write_bytes(b"\xff" * 8)
    (tmp_path / "journal" / "ofs" / b"\xff.ofs".decode("utf-8", "surrogateescape")).write_bytes(b"")
    listing = list_journals(opened(Journal("sej", str(tmp_path / "journal"), "journal")))
    assert [(row["first"], row["next"]) for row in listing.files] == [(0, None), (None, None)]
    far, strange = listing.consumers
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
    found = tails_of(opened(*find_journals(str(tmp_path), None)))
    reported = [sentence for sentences in found.values() for sentence in sentences]
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
    ((reported,),) = tails_of(opened(Journal("sej", str(tmp_path / "outer"), "outer"))).values()
    assert reported.startswith(f"outer: jnl/0000000000000000.jnl @ {31 * at}: {22 + len(inner):,} bytes at")


def test_no_journals_give_two_empty_tables() -> None:
    tables = list_journals([]).tables()
    assert {name: (rows.num_rows, rows.schema) for name, rows in tables.items()} == {
        "consumers": (0, CONSUMERS),
        "files": (0, FILES),
    }
