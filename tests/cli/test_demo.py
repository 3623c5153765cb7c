"""`logwright demo`: sample journals that are the same in every run, and the demonstration."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from tests.cli.support import assert_one_error_line, execute, run
from tests.support.trees import differences, read_tree


def test_demo_journals_match_their_description(samples: Path, tmp_path: Path) -> None:
    outcome = run("demo", tmp_path / "demo", "--json")
    assert outcome.code == 0
    journals = outcome.object["journals"]
    assert [Path(journal["path"]).name for journal in journals] == [
        "orders",
        "torn",
        "damaged",
        "events",
        "queues",
        "stores",
        "readings",
        "pages",
    ]
    for journal in journals:
        assert run("inspect", journal["path"], "--json").object["format"] == journal["format"]
        assert run("count", journal["path"], "--json").object["records"] == journal["records"]
    assert [run("verify", journal["path"]).code for journal in journals] == [0, 1, 1, 0, 0, 0, 0, 0]


def test_every_run_writes_the_same_bytes(samples: Path, tmp_path: Path) -> None:
    assert run("demo", tmp_path / "demo").code == 0
    assert differences(read_tree(REAL_DISK, samples), read_tree(REAL_DISK, tmp_path / "demo")) == []


def test_rerun_replaces_the_previous_output(demo: Path, samples: Path) -> None:
    (demo / "left over").mkdir()
    (demo / "orders" / "jnl" / "0000000000000000.jnl").unlink()
    assert run("demo", demo).code == 0
    assert differences(read_tree(REAL_DISK, samples), read_tree(REAL_DISK, demo)) == []


def test_foreign_directory_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        assert_one_error_line(run("demo", path), 2, "was not made by this demo")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_empty_directory_is_accepted(tmp_path: Path) -> None:
    assert run("demo", tmp_path, "--format", "sej").code == 0
    assert (tmp_path / "orders" / "jnl").is_dir()


@pytest.mark.parametrize("times", [1, 2])
def test_demonstration_prints_each_command_and_its_real_output(times: int, tmp_path: Path) -> None:
    for _ in range(times):
        outcome = execute("demo", "--run", cwd=tmp_path)
    assert outcome.code == 0
    commands = [line.removeprefix("$ logwright ") for line in outcome.lines if line.startswith("$ ")]
    verbs = [command.split()[0] for command in commands]
    expected = ("inspect", "dump", "verify", "repair", "count", "offsets", "clean", "tail", "state", "convert")
    for verb in expected:
        assert verb in verbs
    for command in ("inspect demo/orders", "dump demo/orders --limit 5 --decode json", "verify demo/orders"):
        assert run_in(tmp_path, command) in outcome.out
    assert "torn_tail" in outcome.out
    assert "demo/orders and demo/again hold the same messages." in outcome.lines
    assert outcome.lines[-1] == f"The files are in {tmp_path / 'demo'}."


def run_in(directory: Path, command: str) -> str:
    return execute(*command.split(), cwd=directory).out
