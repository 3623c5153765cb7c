"""`convert` to and from JSON lines and CSV, and to databases: the same records, whole or not at all."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright
from logwright import sej
from logwright.arrow.exports import write_database
from tests.cli.random_journals import WRITERS
from tests.cli.support import assert_one_error_line, run

FORMATS = {name: "sej" if name == "shards" else name for name in WRITERS}
ALONE = ("file", "position", "shard", "offset")


def records(path: Path) -> list[str]:
    """The records of a journal without their places; changes of stores once."""
    found = [record for record in run("dump", path, "--json").objects if "initialized" not in record]
    texts = [json.dumps({name: value for name, value in record.items() if name not in ALONE}) for record in found]
    return list(dict.fromkeys(texts)) if "t" in found[0] else texts


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("name", list(WRITERS))
def test_records_are_the_same_after_a_round_trip(tmp_path: Path, name: str, kind: str) -> None:
    WRITERS[name](tmp_path / "source", random.Random(5))
    file, target = tmp_path / f"file.{kind}", tmp_path / "again"
    assert run("convert", tmp_path / "source", file).code == 0
    assert run("convert", file, target, "--to", FORMATS[name]).code == 0
    if name == "appendfile":  # files begin with checkpoints, and are divided differently

        def data(path: Path) -> list[tuple[int, str]]:
            found = run("dump", path, "--json").objects
            return [(record["segment"], record["data"]) for record in found if record["kind"] == "data"]

        assert data(target) == data(tmp_path / "source")
        return
    assert sorted(records(target)) == sorted(records(tmp_path / "source"))
    if name not in ("shards", "kestrel"):
        assert records(target) == records(tmp_path / "source")


def test_json_lines_are_those_of_dump(demo: Path, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    assert run("convert", demo / "orders", file, "--since", "2026-01-15T10:00:00Z").code == 0
    assert file.read_text() == run("dump", demo / "orders", "--json", "--since", "2026-01-15T10:00:00Z").out


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_databases_have_the_tables_of_the_format(demo: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"queues.{kind}"
    outcome = run("convert", demo / "queues", file, "--json")
    assert outcome.object == {"records": 430, "bytes": file.stat().st_size, "from": "kestrel", "to": kind}

    def ask(query: str) -> Any:
        if kind == "sqlite":
            connection = sqlite3.connect(file)
            try:
                return connection.execute(query).fetchall()
            finally:
                connection.close()
        import duckdb

        with duckdb.connect(str(file), read_only=True) as database:
            return database.execute(query).fetchall()

    grouped = "SELECT op, count(*), max(position) FROM {} GROUP BY op ORDER BY op"
    expected = logwright.sql(grouped.format(f"'{demo / 'queues'}'")).fetchall()
    assert ask(grouped.format("records")) == expected
    assert ask("SELECT state, count(*) FROM items GROUP BY state ORDER BY state")[0] == ("done", 140)
    assert ask("SELECT data FROM records WHERE queue = 'jobs' ORDER BY sequence, position LIMIT 1") == [(b"job 0",)]
    assert [path.name for path in tmp_path.iterdir() if path != demo] == [file.name]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "sqlite", "duckdb"])
def test_damage_leaves_nothing_behind_unless_it_is_skipped(demo: Path, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "out"
    home.mkdir()
    outcome = run("convert", demo / "damaged", home / f"a.{kind}")
    assert_one_error_line(outcome, 1, "@ 49388: size 65535 does not match")
    assert list(home.iterdir()) == []
    skipped = run("convert", demo / "damaged", home / f"a.{kind}", "--mode", "permissive", "--json")
    assert (skipped.code, skipped.object["records"]) == (1, 2999)
    assert "left out: " in skipped.err
    assert_one_error_line(run("convert", demo / "orders", home / f"a.{kind}"), 2, "already exists")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"value": ""}\n\n{"value": \n', "a.jsonl: line 3: this is not JSON"),
        ("a.csv", "value,type\n,1\n,x\n", "a.csv: line 3: type is not a number"),
        ("a.csv", "value,type\n,1\n,1,2\n", "a.csv: line 3: the row does not have as many fields"),
        ("a.csv", "value,type\n,1\n,300\n", "a.csv: line 3: type is not within 0 and 255"),
        ("a.csv", "type\n1\n", "column value"),
    ],
)
def test_broken_file_is_one_line_and_leaves_nothing(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    assert_one_error_line(run("convert", tmp_path / name, tmp_path / "b", "--to", "sej"), 2, words)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_wrong_choices_are_refused(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    assert_one_error_line(run("convert", tmp_path / "a.jsonl", tmp_path / "b.csv"), 2, "can only become a journal")
    outcome = run("convert", samples / "queues", tmp_path / "b.csv", "--waiting")
    assert_one_error_line(outcome, 2, "--waiting is for Parquet and journals")
    assert_one_error_line(run("convert", samples / "orders", tmp_path / "no" / "b.csv"), 2, "no such directory")


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_interrupt_between_two_batches_is_one_of_the_conversion(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("a", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"a": 1}], schema)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        write_database(tmp_path / "out", kind, [("records", schema, batches())])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("least", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "duckdb"])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, kind: str, least: int) -> None:
    with sej.Writer(tmp_path / "big") as writer:
        for _ in range(300_000):
            writer.append(b'{"a": 1}' * 20)
    home = tmp_path / "out"
    home.mkdir()
    command = [sys.executable, "-m", "logwright", "convert", str(tmp_path / "big"), str(home / f"a.{kind}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        written = -1
        while written < least:
            assert process.poll() is None
            with suppress(FileNotFoundError):  # a temporary file of the database that has just gone
                written = sum(path.stat().st_size for path in home.iterdir()) if any(home.iterdir()) else -1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert list(home.iterdir()) == []
