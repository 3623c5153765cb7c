"""`logwright sql`: queries, output, and the prompt on a real terminal."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
import pytest

from logwright.cli.sql import completions
from tests.cli.support import run
from tests.support.threads import DEADLINE_SECONDS


def test_rows_are_a_table_json_or_csv(demo: Path) -> None:
    query = f"SELECT sequence, key, timestamp, shard FROM '{demo / 'orders'}' WHERE sequence < 2"
    shown = run("sql", query)
    assert shown.code == 0
    assert [line.split() for line in shown.lines] == [
        ["sequence", "key", "timestamp", "shard"],
        ["0", "customer/dalia", "2026-01-15T08:00:12.354539Z"],
        ["1", "customer/björn", "2026-01-15T08:00:28.605543Z"],
    ]
    first = run("sql", query, "--json").objects[0]
    assert first == {
        "sequence": 0,
        "key": base64.b64encode(b"customer/dalia").decode(),
        "timestamp": "2026-01-15T08:00:12.354539Z",
        "shard": None,
    }
    assert run("sql", query, "--csv").lines[:2] == [
        "sequence,key,timestamp,shard",
        "0,customer/dalia,2026-01-15T08:00:12.354539Z,",
    ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_rows_are_written_to_a_new_file(demo: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    query = f"SELECT sequence, type FROM '{demo / 'orders'}' WHERE sequence BETWEEN 1 AND 2"
    written = run("sql", query, "--output", path, "--json")
    assert (written.code, written.object) == (0, {"output": str(path), "rows": 2, "bytes": path.stat().st_size})
    types = [row["type"] for row in run("sql", query, "--json").objects]
    if ending == "parquet":
        assert pq.read_table(path).to_pydict() == {"sequence": [1, 2], "type": types}
    elif ending == "csv":
        assert path.read_text() == f"sequence,type\n1,{types[0]}\n2,{types[1]}\n"
    else:
        assert [json.loads(line) for line in path.read_text().splitlines()][1] == {"sequence": 2, "type": types[1]}
    again = run("sql", query, "--output", path)
    assert (again.code, again.err) == (2, f"logwright: error: {path} already exists; nothing was overwritten\n")
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == [path.name]


def test_failed_query_leaves_no_file(demo: Path, tmp_path: Path) -> None:
    outcome = run("sql", f"FROM '{demo / 'damaged'}'", "--output", tmp_path / "out.csv")
    assert outcome.code == 1
    assert outcome.err.startswith("logwright: error: damaged/jnl/0000000000000442.jnl @ 49388: size 65535")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == []
    assert run("sql", "SELECT 1", "--output", tmp_path / "out.txt").code == 2
    assert run("sql", "SELECT 1", "--output", tmp_path / "none" / "out.csv").code == 2


def test_skipped_damage_is_reported_and_makes_the_exit_code_1(demo: Path) -> None:
    outcome = run("sql", f"SELECT count(*) AS n FROM '{demo / 'damaged'}'", "--mode", "permissive", "--json")
    assert (outcome.code, outcome.objects) == (1, [{"n": 2999}])
    assert "skipped: jnl/0000000000000442.jnl @ 49388: size 65535" in outcome.err


def test_wrong_query_is_one_line_and_exit_code_2(demo: Path) -> None:
    outcome = run("sql", f"SELECT price FROM '{demo / 'orders'}'")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert 'column "price" not found' in outcome.err
    assert "has offset, timestamp, timestamp_ns, type, key, value" in outcome.err


def test_values_that_python_or_json_lack_are_printed() -> None:
    outcome = run(
        "sql", "SELECT 1 AS a, 2 AS a, 'NaN'::DOUBLE AS b, TIMESTAMP_NS '2026-01-15 12:00:00.000000001' AS c", "--json"
    )
    assert outcome.object == {"a": 1, "a_1": 2, "b": None, "c": "2026-01-15T12:00:00.000000001"}
    late = run(
        "sql", "SELECT TIMESTAMP '290000-01-01' AS a, TIMESTAMPTZ '2026-01-15 13:00:00+01' AS b", "--json"
    ).object
    assert late == {"a": "+290000-01-01T00:00:00", "b": "2026-01-15T12:00:00Z"}
    zone = run("sql", "SET TimeZone = 'Europe/Berlin'; SELECT TIMESTAMPTZ '2026-01-15 12:00:00Z' AS a", "--json")
    assert zone.object == {"a": "2026-01-15T12:00:00Z"}


ODD = "SELECT NULL AS a, '\\xff\\x00z'::BLOB AS b, {'c': [1, NULL], 'd': '\\xfe'::BLOB} AS e, repeat('w', 5000) AS f"


def test_nulls_bytes_nested_and_wide_values_in_every_form(tmp_path: Path) -> None:
    wide = "w" * 5000
    nested = {"c": [1, None], "d": "/g=="}
    row = {"a": None, "b": "/wB6", "e": nested, "f": wide}
    assert run("sql", ODD, "--json").object == row
    assert list(csv.reader(run("sql", ODD, "--csv").lines)) == [
        ["a", "b", "e", "f"],
        ["", "\\xff\\x00z", json.dumps(nested), wide],
    ]
    assert run("sql", ODD).lines[1].split() == ["\\xff\\x00z", *json.dumps(nested).split(), wide]
    for ending in ("csv", "jsonl", "parquet"):
        assert run("sql", ODD, "--output", tmp_path / f"out.{ending}").code == 0
    assert list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))[1] == [
        "",
        "\\xff\\x00z",
        json.dumps(nested),
        wide,
    ]
    assert json.loads((tmp_path / "out.jsonl").read_text()) == row
    (stored,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert stored == {"a": None, "b": b"\xff\x00z", "e": {"c": [1, None], "d": b"\xfe"}, "f": wide}


def test_empty_query_and_two_outputs_are_refused() -> None:
    assert run("sql", " ").err == "logwright: error: the query is empty\n"
    assert run("sql", "SELECT 1", "--csv", "--json").code == 2


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
def test_damage_in_a_directory_of_journals_makes_the_exit_code_1(demo: Path, mode: str) -> None:
    query = f"SELECT count(*) AS n FROM '{demo}' WHERE journal = 'damaged'"
    outcome = run("sql", query, "--mode", mode, "--json")
    assert (outcome.code, outcome.object) == (1, {"n": 3000 if mode == "permissive" else 2999})
    assert "skipped: damaged/jnl/0000000000000442.jnl @ 49388" in outcome.err


@pytest.mark.parametrize("above", ["", "below/"])
def test_damage_in_a_journal_that_is_a_file_is_named_by_its_path(demo: Path, above: str, tmp_path: Path) -> None:
    directory = tmp_path / "mixed" / above
    directory.mkdir(parents=True)
    for file in (demo / "queues" / "jobs", demo / "pages" / "accounts.jrnl"):
        data = file.read_bytes()
        middle = len(data) // 2
        (directory / file.name).write_bytes(data[: middle - 5] + b"\xff" * 10 + data[middle + 5 :])
    query = f"SELECT count(*) AS n FROM '{tmp_path / 'mixed'}'"
    outcome = run("sql", query, "--mode", "permissive")
    assert outcome.code == 1
    found = [line.partition(" skipped: ")[2].partition(" @ ")[0] for line in outcome.err.splitlines()]
    assert set(found) == {f"{above}accounts.jrnl", f"{above}jobs"}
    assert run("sql", query).err.startswith(f"logwright: error: {above}accounts.jrnl @ ")


def test_plan_of_a_query_is_drawn() -> None:
    lines = run("sql", "EXPLAIN SELECT 1 AS a").lines
    assert len(lines) > 2
    assert not any("\\n" in line for line in lines)


def test_closed_standard_input_has_no_query() -> None:
    command = [sys.executable, "-m", "logwright", "sql"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "-", *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "logwright: error: the query is empty\n")


def test_queries_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a;\n"))
    assert run("sql", "--json").objects == [{"a": 1}]


def test_control_characters_do_not_reach_the_terminal() -> None:
    outcome = run("sql", "SELECT E'\\x1b[31m' AS a, '\\x07'::BLOB AS b")
    assert "\x1b" not in outcome.out
    assert "\x07" not in outcome.out
    assert outcome.lines[1].split() == ["\\x1b[31m", "\\x07"]


def test_words_columns_and_paths_are_completed(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    assert completions("sel", set()) == ["SELECT"]
    assert completions("time", {"timestamp", "t"}) == ["TIMESTAMPTZ", "timestamp"]
    assert completions("'or", set()) == ["'orders/"]
    assert completions("'queues/", set()) == ["'queues/jobs", "'queues/jobs.1768465067520", "'queues/mail"]
    assert completions("'nothing/x", set()) == []


class Prompt:
    """`logwright sql` on a terminal of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "TERM": "dumb"}
        command = [sys.executable, "-m", "logwright", "sql", *options]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._seen = b""

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def until(self, text: bytes) -> bytes:
        """The output up to and with a text."""
        while text not in self._seen:
            ready, _, _ = select.select([self._ours], [], [], DEADLINE_SECONDS)
            assert ready, self._seen
            self._seen += os.read(self._ours, 4096)
        found, self._seen = self._seen.split(text, 1)
        return found + text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_prompt_runs_queries_and_remembers_them(demo: Path) -> None:
    with Prompt(demo) as prompt:
        prompt.until(b"sql> ")
        prompt.type(b"SELECT count(*) AS n\n")
        prompt.until(b"...> ")
        prompt.type(b"FROM 'orders';\n")
        assert b"3000" in prompt.until(b"sql> ")
        prompt.type(b"SELECT price FROM 'orders';\n")
        assert b'error: Binder Error: Referenced column "price" not found' in prompt.until(b"sql> ")
        prompt.type(b"SELECT")
        prompt.until(b"SELECT")
        prompt.process.send_signal(signal.SIGINT)
        prompt.type(b"\n")  # readline may look at the signal only after a key
        prompt.type(b".help\n")
        prompt.until(b".quit or Ctrl-D leaves")
        prompt.type(b".tables\n")
        prompt.until(b".quit or Ctrl-D leaves")
        prompt.type(b"quit;\n")
        assert prompt.process.wait(DEADLINE_SECONDS) == 0
    history = (demo / "state" / "logwright" / "sql_history").read_text().splitlines()
    assert "FROM 'orders';" in history


# --- interrupts -------------------------------------------------------------------------------------------------------

ENDLESS = "SELECT a.value FROM '{}' a, range(1000000000) b WHERE a.value = 'never' OR a.sequence % 7 = b.range"
"""The journal is damaged, which is reported when it is read; then DuckDB compares its records for hours."""


def started(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logwright", "sql", *arguments, "--mode", "permissive"]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("output", [None, "out.parquet"])
def test_interrupt_ends_a_query_at_once_and_leaves_nothing(demo: Path, tmp_path: Path, output: str | None) -> None:
    (tmp_path / "empty").mkdir()
    query = ENDLESS.format(demo / "damaged").replace("a.value", "count(*)", 1)
    with started(tmp_path / "empty", query, *(() if output is None else ("--output", output))) as process:
        assert process.stderr is not None
        assert "skipped" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out, error) == (130, "", "")
    assert list((tmp_path / "empty").iterdir()) == []


def test_interrupt_while_rows_are_written_leaves_no_file(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    query = f"SELECT a.value FROM '{demo / 'orders'}' a, range(1000000000)"
    with started(tmp_path / "empty", query, "--output", "out.csv") as process:
        while not (tmp_path / "empty" / ".out.csv.partial").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out, error) == (130, "", "")
    assert list((tmp_path / "empty").iterdir()) == []


def test_interrupt_at_the_prompt_ends_the_query_only(demo: Path) -> None:
    with Prompt(demo, "--mode", "permissive") as prompt:
        prompt.until(b"sql> ")
        prompt.type(ENDLESS.format("damaged").encode() + b" ORDER BY ALL;\n")
        prompt.until(b"skipped")
        prompt.process.send_signal(signal.SIGINT)
        prompt.until(b"sql> ")
        prompt.type(b"SELECT 40 + 2 AS n;\n")
        prompt.until(b"42")
        prompt.type(b".quit\n")
        assert prompt.process.wait(DEADLINE_SECONDS) == 1  # damage was skipped
