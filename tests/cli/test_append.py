"""`append`: lines on standard input become records, the same bytes as those that were dumped."""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logwright import appendfile, sej
from tests.cli.random_journals import WRITERS
from tests.cli.support import assert_one_error_line, execute, run

FORMATS = {"sej": "sej", "shards": "sej", "kestrel": "kestrel", "yeltsin": "yeltsin"}


def bytes_of(path: Path, pattern: str) -> bytes:
    """The files of a journal, in order; rotated files of a queue precede the newest one."""
    files = sorted(
        (file for file in path.glob(pattern) if file.is_file()),
        key=lambda file: (file.name.split(".")[0], "." not in file.name, file.name),
    )
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("name", list(FORMATS))
def test_what_was_dumped_has_the_same_bytes_after_append(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / "source", random.Random(name))
    dumped = run("dump", tmp_path / "source", "--json").out
    target = tmp_path / "copy" if name != "yeltsin" else tmp_path / "copy" / "pages.jrnl"
    outcome = execute("append", target, "--format", FORMATS[name], input=dumped)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{target}: {len(dumped.splitlines())} records were appended\n"
    pattern = {"sej": "jnl/*.jnl", "shards": "*/jnl/*.jnl"}.get(name, "*")
    assert bytes_of(tmp_path / "copy", pattern) == bytes_of(tmp_path / "source", pattern)


def test_changes_of_a_store_are_the_same_without_heads_and_copies(tmp_path: Path) -> None:
    WRITERS["versioned"](tmp_path / "source", random.Random(1))
    dumped = run("dump", tmp_path / "source", "--json").objects
    text = "".join(json.dumps(record) + "\n" for record in dumped)
    outcome = execute("append", tmp_path / "copy" / "fleet.jrn", "--format", "versioned", input=text)
    assert outcome.code == 0
    changes = list(dict.fromkeys(json.dumps([r["t"], r["k"], r["o"]]) for r in dumped if "t" in r))
    assert outcome.out.endswith(f"{len(changes)} records were appended\n")
    assert f"left out: {len(dumped) - len(changes)} heads" in outcome.err
    copied = run("dump", tmp_path / "copy" / "fleet.jrn", "--json").objects
    assert [json.dumps([r["t"], r["k"], r["o"]]) for r in copied if "t" in r] == changes


@pytest.mark.parametrize("generations", [1, 3])
def test_segments_that_wait_for_recovery_have_the_same_bytes_after_append(tmp_path: Path, generations: int) -> None:
    dice = random.Random(generations)
    for _ in range(generations):
        with appendfile.Writer(tmp_path / "source", recovering=True) as writer:
            next(writer.recovery(), None)  # a walk that is abandoned
            for number in range(6):
                writer.append(dice.randbytes(1_000_000))
                if number < 2 or dice.random() < 0.4:
                    writer.register_checkpoint()
                if number == 1:
                    writer.check_checkpoint()  # the first file is still needed
    dumped = run("dump", tmp_path / "source", "--json").out
    assert execute("append", tmp_path / "copy", "--format", "appendfile", input=dumped).code == 0

    def files(journal: Path) -> dict[str, bytes]:
        return {str(file.relative_to(journal)): file.read_bytes() for file in journal.rglob("*.journal")}

    assert files(tmp_path / "copy") == files(tmp_path / "source")
    assert len({Path(file).parent for file in files(tmp_path / "copy")}) == generations
    assert run("state", tmp_path / "copy", "--json").out == run("state", tmp_path / "source", "--json").out


def test_segments_are_the_same_when_none_waits_for_recovery(tmp_path: Path) -> None:
    WRITERS["appendfile"](tmp_path / "source", random.Random(1))
    dumped = run("dump", tmp_path / "source", "--json")
    assert execute("append", tmp_path / "copy", "--format", "appendfile", input=dumped.out).code == 0

    def data(records: list[dict[str, Any]]) -> list[tuple[int, str]]:
        return [(record["segment"], record["data"]) for record in records if record["kind"] == "data"]

    assert data(run("dump", tmp_path / "copy", "--json").objects) == data(dumped.objects)


def test_raw_lines_become_values(tmp_path: Path) -> None:
    text = "one\n\nthree \x01"
    outcome = execute(
        "append", tmp_path / "a", "--format", "sej", "--raw", "--key", "k", "--type", 3, "--json", input=text
    )
    assert (outcome.code, outcome.object) == (0, {"records": 3})
    found = list(sej.Reader(tmp_path / "a"))
    assert [(m.key, m.type, m.value) for m in found] == [(b"k", 3, b"one"), (b"k", 3, b""), (b"k", 3, b"three \x01")]
    assert execute("append", tmp_path / "a", "--raw", input="four\n").code == 0, "the format is detected"
    assert sej.Reader(tmp_path / "a").count() == 4
    assert execute("append", tmp_path / "q", "--format", "kestrel", "--raw", input="a\nb\n").code == 0
    assert [item["op"] for item in run("dump", tmp_path / "q", "--json").objects] == ["addx", "addx"]


GOOD = json.dumps({"value": base64.b64encode(b"good").decode()})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "this is not JSON"),
        ("[1]", "this is not an object"),
        ('{"value": "***"}', "value is not base64"),
        ('{"value": 3}', "value is not a string"),
        ('{"value": "", "type": 256}', "type is not within 0 and 255"),
        ('{"value": "", "timestamp": 1.5}', "timestamp is not a whole number"),
        ('{"value": "", "colour": 1}', "a record of sej has no field 'colour'; it has value, key, type, timestamp"),
        ('{"key": ""}', "column value"),
        ('{"value": null}', "column value is null"),
        ('{"value": "", "shard": "../x"}', "cannot be the name of a part"),
        ('{"file": "x", "position": 1, "size": 2, "damage": "bad", "kind": "malformed"}', "this is a damaged range"),
    ],
)
def test_broken_line_is_named_and_what_precedes_it_is_there(tmp_path: Path, line: str, words: str) -> None:
    outcome = execute("append", tmp_path / "a", "--format", "sej", input=f"{GOOD}\n{GOOD}\n{line}\n{GOOD}\n")
    assert_one_error_line(outcome, 2, "line 3: ", words, "; 2 records were appended before it")
    assert [message.value for message in sej.Reader(tmp_path / "a")] == [b"good", b"good"]
    assert run("verify", tmp_path / "a").code == 0


def test_line_that_is_no_json_is_answered_with_raw(tmp_path: Path) -> None:
    outcome = execute("append", tmp_path / "a", "--format", "sej", input="hello\n")
    assert_one_error_line(outcome, 2, "0 records were appended before it; with --raw each line is a value")


def test_operation_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    lines = '{"op": "remove"}\n{"op": "addx"}\n'
    outcome = execute("append", tmp_path / "q", "--format", "kestrel", input=lines)
    assert_one_error_line(outcome, 2, "line 2: the operation addx needs data; 1 record was appended before it")


def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    assert_one_error_line(execute("append", tmp_path / "a", input=""), 2, "give the format of the new journal")
    outcome = execute("append", tmp_path / "a", "--format", "versioned", "--raw", input="")
    assert_one_error_line(outcome, 2, "a raw line cannot become a record of versioned")
    outcome = execute("append", tmp_path / "a", "--format", "sej", "--sync", "sometimes", input="")
    assert_one_error_line(outcome, 2, "sometimes")
    assert list(tmp_path.iterdir()) == []
    sej.Writer(tmp_path / "a").close()
    with sej.Writer(tmp_path / "a"):
        assert_one_error_line(execute("append", tmp_path / "a", "--raw", input="x\n"), 2, "lock")


def test_lines_are_appended_as_they_arrive_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logwright", "append", str(tmp_path / "a"), "--format", "sej", "--raw"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\nhalf a li")
        process.stdin.flush()
        while not (tmp_path / "a" / "jnl").is_dir():
            assert process.poll() is None
        with sej.Scanner(tmp_path / "a", timeout=60) as scanner:
            assert next(iter(scanner)).value == b"one"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert [message.value for message in sej.Reader(tmp_path / "a")] == [b"one"]
