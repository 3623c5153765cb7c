"""Running verbs: in this process if that is sufficient, in a separate one if pipes, signals or terminals matter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logwright.cli import main
from tests.support.children import Child
from tests.support.threads import DEADLINE_SECONDS

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "sej"

_BECOME_LOGWRIGHT = """
import os, sys
os.dup2(1, 2)
os.execv(sys.executable, [sys.executable, "-m", "logwright", *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a command line: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        """Every line parsed as a JSON object."""
        return [json.loads(line) for line in self.lines]

    @property
    def object(self) -> Any:
        (only,) = self.objects
        return only


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: object, terminal: bool = False) -> Outcome:
    """Run a command line in this process; with `terminal`, stdout and stderr claim to be one."""
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def environment(**changes: str) -> dict[str, str]:
    """The environment of a command in a shell: ours, with the installed `logwright` first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **changes}


def execute(*arguments: object, **options: Any) -> Outcome:
    """Run a command line in a separate process, by `python -m logwright`."""
    done = subprocess.run(
        [sys.executable, "-m", "logwright", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        **options,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def shell(line: str, directory: Path, **changes: str) -> Outcome:
    """Run a line in bash, where a failure anywhere in a pipe counts."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=directory,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def start(*arguments: object) -> Child:
    """A command line that runs beside the test; its stderr is merged into its lines."""
    return Child(_BECOME_LOGWRIGHT, *arguments)


def assert_one_error_line(outcome: Outcome, code: int, *words: str) -> None:
    """The command failed as expected: with this exit code, and one line on stderr with these words."""
    assert outcome.code == code, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("logwright: error: ")
    for word in words:
        assert word in lines[0]
