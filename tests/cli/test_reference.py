"""The reference in docs/cli.md agrees with the program, and every example on it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logwright.cli import every_verb
from tests.cli.support import Outcome, environment, shell
from tests.support.threads import DEADLINE_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent

EXAMPLES = [
    (name, number, line)
    for name, verb in every_verb()
    for number, (_, line) in enumerate(verb.examples)
    if "pipeline" not in line  # these need Spark: tests/spark runs them
    and not name.startswith(("serve ", "copy", "web"))  # these run until stopped: tests/servers and tests/web run them
]
DAMAGE = {
    "logwright dump damaged --mode permissive",
    "logwright stats damaged --mode permissive",
    "logwright verify .",
    "logwright verify damaged --json",
    "logwright repair damaged --yes --json",
}
SALVAGE = "logwright convert damaged salvaged --to sej --mode permissive"
ENDLESS = {"logwright tail orders -n 3 -f", "logwright changes queues --follow"}
NEEDED_BEFORE = {
    "echo three | logwright append notes --raw --key customer/ada --type 1": (
        "echo one | logwright append notes --format sej --raw"
    ),
    "logwright convert mail.jsonl mails --to kestrel": "logwright convert queues/mail mail.jsonl",
    "logwright convert orders.parquet again --to sej": "logwright convert orders orders.parquet",
    "logwright repair torn --undo --yes": "logwright repair torn --yes",
}


def test_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "cli_reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_outdated_page_is_detected(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    tool = tmp_path / "tools" / "cli_reference.py"
    tool.write_text((ROOT / "tools" / "cli_reference.py").read_text())
    page = tmp_path / "docs" / "cli.md"
    page.write_text((ROOT / "docs" / "cli.md").read_text().replace("journal", "diary", 1))
    assert subprocess.run([sys.executable, tool, "--check"], capture_output=True, check=False).returncode == 1
    assert subprocess.run([sys.executable, tool], check=False).returncode == 0
    assert page.read_text() == (ROOT / "docs" / "cli.md").read_text()


def test_page_lists_every_verb_and_every_command_of_the_original() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name, _ in every_verb():
        assert f"\n## logwright {name}\n" in text
    for name in ("dump", "scan", "count", "offset", "reset", "tail", "old", "file", "timestamp"):
        assert f"| `sej {name} " in text


@pytest.mark.parametrize(("verb", "number", "line"), EXAMPLES, ids=[f"{verb}-{number}" for verb, number, _ in EXAMPLES])
def test_example_runs_on_the_sample_journals(verb: str, number: int, line: str, demo: Path, tmp_path: Path) -> None:
    if line in NEEDED_BEFORE:
        assert shell(NEEDED_BEFORE[line], demo).code == 0
    if line in ENDLESS:
        outcome = until_it_is_interrupted(line, demo)
    else:
        (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
        outcome = shell(line, demo, HOME=str(tmp_path))
    assert outcome.code == (130 if line in ENDLESS else 1 if line in DAMAGE | {SALVAGE} else 0)
    assert "error" not in outcome.err
    if verb != "completion":
        assert outcome.out != ""


def until_it_is_interrupted(line: str, directory: Path) -> Outcome:
    """Run an endless example until it has printed its records, then press Ctrl-C."""
    process = subprocess.Popen(
        line.split(),
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(5)]
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return Outcome(process.returncode, "".join(printed) + out, err)
