"""`logwright convert`: to Parquet, to a journal, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from logwright.core.io.disk import RealDisk
from logwright.sej import Writer
from logwright.versioned import Reader
from tests.cli.support import GOLDEN, assert_one_error_line, run


def messages(path: Path) -> list[dict[str, object]]:
    """The records of a journal, without their places."""
    records = run("dump", path, "--json").objects
    return [{name: record[name] for name in ("offset", "timestamp", "type", "key", "value")} for record in records]


def test_journal_becomes_parquet_and_the_same_journal_again(samples: Path, tmp_path: Path) -> None:
    parquet, again = tmp_path / "orders.parquet", tmp_path / "again"
    outcome = run("convert", samples / "orders", parquet, "--to", "parquet", "--json")
    assert outcome.code == 0
    assert outcome.object == {"records": 3000, "bytes": parquet.stat().st_size, "from": "sej", "to": "parquet"}
    assert pq.read_table(parquet).column("offset").to_pylist() == list(range(3000))
    assert run("convert", parquet, again, "--to", "sej").code == 0
    assert messages(again) == messages(samples / "orders")
    assert run("verify", again).code == 0


def test_summary_line_names_the_result(samples: Path, tmp_path: Path) -> None:
    outcome = run("convert", samples / "orders", tmp_path / "copy", "--to", "sej")
    assert outcome.out == f"{samples / 'orders'} -> {tmp_path / 'copy'}: 3000 records, 353 KiB\n"


def test_messages_without_a_time_and_of_every_type_survive(tmp_path: Path) -> None:
    for case in ("zero_timestamp", "types256"):
        parquet, again = tmp_path / f"{case}.parquet", tmp_path / case
        assert run("convert", GOLDEN / case / "sej", parquet).code == 0
        assert run("convert", parquet, again, "--to", "sej").code == 0
        assert messages(again) == messages(GOLDEN / case / "sej")


def test_range_of_time_is_converted(samples: Path, tmp_path: Path) -> None:
    chosen = ("--since", "2026-01-15T10:00Z", "--until", "2026-01-15T11:00Z")
    records = run("count", samples / "orders", *chosen, "--json").object["records"]
    outcome = run("convert", samples / "orders", tmp_path / "hour.parquet", *chosen, "--json")
    assert outcome.object["records"] == records
    assert pq.read_metadata(tmp_path / "hour.parquet").num_rows == records


def test_shards_become_one_file_with_a_shard_column(samples: Path, tmp_path: Path) -> None:
    assert run("convert", samples / "events", tmp_path / "events.parquet").code == 0
    table = pq.read_table(tmp_path / "events.parquet")
    assert table.num_rows == 600
    assert set(table.column("shard").to_pylist()) == {"web.2.000", "web.2.001", "web.2.002", "web.2.003"}


def test_torn_tail_is_skipped_and_reported(samples: Path, tmp_path: Path) -> None:
    outcome = run("convert", samples / "torn", tmp_path / "torn.parquet", "--json")
    assert (outcome.code, outcome.object["records"]) == (0, 2999)
    assert "left out: " in outcome.err


@pytest.mark.parametrize("target", ["parquet", "sej"])
def test_damage_ends_the_conversion_or_is_skipped_and_reported(target: str, samples: Path, tmp_path: Path) -> None:
    outcome = run("convert", samples / "damaged", tmp_path / "out", "--to", target)
    assert_one_error_line(outcome, 1, f"{samples / 'damaged'}/jnl/0000000000000442.jnl @ 49388: ")
    assert list(tmp_path.iterdir()) == []
    for mode in ("permissive", "dropmalformed"):
        salvaged = run("convert", samples / "damaged", tmp_path / mode, "--to", target, "--mode", mode, "--json")
        assert (salvaged.code, salvaged.object["records"]) == (1, 2999)
        assert salvaged.err.count("\n") == 1
        assert "left out: " in salvaged.err


def test_name_of_a_new_journal_is_synced(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, bool]] = []
    sync_directory = RealDisk.sync_directory

    def noted(disk: RealDisk, path: Path) -> None:
        synced.append((path, (tmp_path / "copy").exists()))
        sync_directory(disk, path)

    monkeypatch.setattr(RealDisk, "sync_directory", noted)
    assert run("convert", samples / "orders", tmp_path / "copy", "--to", "sej").code == 0
    assert [path for path, is_named in synced if is_named] == [tmp_path]


def test_nothing_is_overwritten(samples: Path, demo: Path) -> None:
    for destination in (demo / "orders", demo / "events", demo / ".logwright-demo"):
        for target in ("sej", "parquet"):
            outcome = run("convert", samples / "orders", destination, "--to", target)
            assert_one_error_line(outcome, 2, "already exists")
    os.symlink("nowhere", demo / "link")
    assert_one_error_line(run("convert", samples / "orders", demo / "link", "--to", "sej"), 2, "already exists")


@pytest.mark.parametrize(
    ("source", "destination", "options", "words"),
    [
        ("orders", "out", (), "give it with --to"),
        ("nowhere", "out.parquet", (), "no such file"),
        ("notes.txt", "out.parquet", (), "is not a journal"),
        ("notes.txt", "out", ("--to", "sej", "--format", "parquet"), "cannot be read as Parquet"),
        ("half.parquet", "out", ("--to", "sej"), "half.parquet"),
        ("orders.parquet", "out.parquet", (), "is Parquet already"),
        ("orders.parquet", "out", ("--to", "sej", "--since", "2026-01-15"), "they do not work on Parquet"),
        ("other.parquet", "out", ("--to", "sej"), "value"),
    ],
)
def test_failed_conversion_is_one_line_and_leaves_no_files(
    source: str, destination: str, options: tuple[str, ...], words: str, demo: Path
) -> None:
    import pyarrow as pa

    (demo / "notes.txt").write_text("milk, eggs")
    assert run("convert", demo / "orders", demo / "orders.parquet").code == 0
    (demo / "half.parquet").write_bytes((demo / "orders.parquet").read_bytes()[:30_000])
    pq.write_table(pa.table({"name": ["no journal's columns"]}), demo / "other.parquet")
    before = sorted(path.name for path in demo.iterdir())
    assert_one_error_line(run("convert", demo / source, demo / destination, *options), 2, words)
    assert sorted(path.name for path in demo.iterdir()) == before


def test_parquet_with_bad_pages_is_one_line_and_leaves_no_files(demo: Path) -> None:
    parquet = demo / "orders.parquet"
    assert run("convert", demo / "orders", parquet).code == 0
    data = bytearray(parquet.read_bytes())
    data[200:20_000] = bytes(19_800)
    parquet.write_bytes(data)
    assert_one_error_line(run("convert", parquet, demo / "again", "--to", "sej"), 2, str(parquet))
    assert not (demo / "again").exists()
    assert not (demo / ".again.partial").exists()


# --- stores -----------------------------------------------------------------------------------------------------------


def changes(path: Path) -> list[tuple[object, ...]]:
    """Every change of a store, each once."""
    with Reader(path) as reader:
        return [(entry.t, entry.k, entry.o) for entry in reader]


def test_store_becomes_parquet_and_the_same_changes_again(samples: Path, tmp_path: Path) -> None:
    parquet, again = tmp_path / "fleet.parquet", tmp_path / "again"
    expected = changes(samples / "stores" / "fleet.jrn")
    assert run("convert", samples / "stores", parquet, "--json").object["records"] == len(expected)
    table = pq.read_table(parquet)
    assert set(table.column("store").to_pylist()) == {"fleet"}
    assert list(zip(table.column("t").to_pylist(), table.column("k").to_pylist(), strict=True)) == [
        change[:2] for change in expected
    ]
    assert run("convert", parquet, again, "--to", "versioned").code == 0
    assert run("verify", again).code == 0
    assert changes(again / "fleet.jrn") == expected


def test_store_becomes_messages_and_messages_a_store(samples: Path, tmp_path: Path) -> None:
    expected = [change for change in changes(samples / "stores" / "fleet.jrn") if change[2] is not None]
    outcome = run("convert", samples / "stores", tmp_path / "messages", "--to", "sej")
    assert outcome.code == 0
    assert "left out: 22 records without a value, which sej cannot store" in outcome.err
    assert run("convert", tmp_path / "messages", tmp_path / "back", "--to", "versioned").err == ""
    assert changes(tmp_path / "back" / "back.jrn") == expected


def test_fields_that_a_store_lacks_are_reported_and_invalid_changes_refused(tmp_path: Path) -> None:
    for value, key, reason in ((b"{", b"key", "the value of the key 'key' is no JSON"), (b"1", b"\xff", "is no text")):
        with Writer(tmp_path / f"no change {key!r}") as writer:
            writer.append(value, key)
        outcome = run("convert", tmp_path / f"no change {key!r}", tmp_path / "typed", "--to", "versioned")
        assert_one_error_line(outcome, 2, reason)
        assert not (tmp_path / "typed").exists()
    with Writer(tmp_path / "journal") as writer:
        writer.append(b'{"a": 1}', b"key", type=7, timestamp=5)
    outcome = run("convert", tmp_path / "journal", tmp_path / "typed", "--to", "versioned")
    assert (outcome.code, "left out: the type of 1 records" in outcome.err) == (0, True)
    assert changes(tmp_path / "typed" / "typed.jrn") == [(5, "key", {"a": 1})]
    strict = run("convert", tmp_path / "journal", tmp_path / "strict", "--to", "versioned", "--strict")
    assert_one_error_line(strict, 2, "versioned cannot store the type of 1 records")
