"""`logwright completion`: scripts that real shells accept, and that complete verbs and options."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import Outcome, assert_one_error_line, execute, run, shell


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_script_names_logwright(name: str) -> None:
    outcome = run("completion", name)
    assert (outcome.code, outcome.err) == (0, "")
    assert "_LOGWRIGHT_COMPLETE" in outcome.out
    assert "logwright" in outcome.out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_script_is_valid_in_its_shell(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on this machine")
    (tmp_path / "script").write_text(run("completion", name).out)
    check = f"{name} --no-execute script" if name == "fish" else f"{name} -n script"
    assert shell(check, tmp_path) == Outcome(0, "", "")


def completed(words: str) -> list[str]:
    """The completions that bash offers for the last word of a line."""
    parts = words.split(" ")
    variables = {"_LOGWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(parts) - 1)}
    outcome = execute(env={**variables, "PATH": "/usr/bin:/bin"})
    assert outcome.code == 0
    return [line.partition(",")[2] for line in outcome.lines]


def test_verbs_and_options_are_completed() -> None:
    assert completed("logwright in") == ["inspect"]
    assert completed("logwright re") == ["repair", "reset"]
    assert completed("logwright dump --de") == ["--decode"]
    assert completed("logwright dump --mode ") == ["failfast", "permissive", "dropmalformed"]


def test_shell_must_be_named() -> None:
    outcome = run("completion")
    assert_one_error_line(outcome, 2, "Choose from: bash, zsh, fish (see 'logwright completion --help')")


def test_completion_works_in_bash(tmp_path: Path) -> None:
    line = 'eval "$(logwright completion bash)"; complete -p logwright'
    assert "_logwright_completion" in shell(line, tmp_path).out
