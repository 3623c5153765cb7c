"""Whatever a journal's directory contains: an exit code, lines that begin with our name, and never a traceback."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import GOLDEN, run

CASES = ("fifty", "multi", "offsets", "types256", "midflip_size_torn", "shard_prefix")
LINES = (
    "inspect {0}",
    "dump {0} --limit 30",
    "dump {0} --json --mode permissive",
    "dump {0} --since 2020-09-13 --from 20 --mode dropmalformed --decode json",
    "tail {0}",
    "tail {0} -n 500 --mode permissive --json",
    "tail {0} -f --timeout 0 --mode permissive",
    "count {0} --since 2020-09-13T12:26:40.00001Z",
    "verify {0} --json",
    "state {0} --at 10",
    "offsets {0}",
    "convert {0} {0}.sej --to sej --mode permissive",
    "repair {0} --plan",
    "repair {0} --yes --json",
    "verify {0}",
    "repair {0} --undo",
    "reset {0} x --to last --create",
    "clean {0} --max-bytes 10",
)


def flip(path: Path, numbers: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    path.write_bytes(data)


def shorten(path: Path, numbers: random.Random) -> None:
    os.truncate(path, numbers.randrange(path.stat().st_size + 1))


def overwrite(path: Path, numbers: random.Random) -> None:
    data = path.read_bytes()
    at = numbers.randrange(len(data) + 1)
    path.write_bytes(data[:at] + numbers.randbytes(numbers.randrange(60)) + data[at + numbers.randrange(60) :])


def rename(path: Path, numbers: random.Random) -> None:
    target = path.with_name(f"{numbers.randrange(60):016x}.jnl")
    if not target.exists():
        path.rename(target)


def copy(path: Path, numbers: random.Random) -> None:
    target = path.with_name(f"{numbers.randrange(60):016x}.jnl")
    if not target.exists():
        shutil.copy(path, target)


def into_directory(path: Path, numbers: random.Random) -> None:
    path.unlink()
    path.mkdir()


def into_pipe(path: Path, numbers: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def into_link(path: Path, numbers: random.Random) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(numbers.choice(["elsewhere", path.name, "/dev/zero", "nowhere"]))


HARMS: tuple[Callable[[Path, random.Random], None], ...] = (
    flip,
    shorten,
    overwrite,
    rename,
    copy,
    into_directory,
    into_pipe,
    into_link,
)


@pytest.mark.parametrize("seed", range(48))
def test_any_journal_returns_a_result_or_one_error_line(seed: int, tmp_path: Path) -> None:
    numbers = random.Random(seed)
    case = GOLDEN / CASES[seed % len(CASES)]
    journal = tmp_path / "journal"
    shutil.copytree(case / "root" if (case / "root").is_dir() else case / "sej", journal)
    for harm in (HARMS[seed % len(HARMS)], *numbers.choices(HARMS, k=numbers.randrange(3))):
        files = sorted(path for path in journal.rglob("*") if path.is_file() and not path.is_symlink())
        if files:
            harm(numbers.choice(files), numbers)
    for line in LINES:
        outcome = run(*line.format(journal).split())
        assert outcome.code in (0, 1, 2), (line, outcome)
        errors = [said for said in outcome.err.splitlines() if said.startswith("logwright: error: ")]
        assert len(errors) <= 1, (line, outcome)
        assert all(said.startswith("logwright: ") for said in outcome.err.splitlines()), (line, outcome)
        assert errors or outcome.code < 2, (line, outcome)


VERBS = ["inspect", "dump", "tail", "count", "verify", "state", "repair"]
NOT_FILES = ["/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/fdinfo", "/"]
REFUSED = [(verb, path) for verb in VERBS for path in NOT_FILES if (verb, path) != ("verify", "/")]
"""`verify /` is not refused: it checks all journals of the machine."""


@pytest.mark.parametrize(("verb", "path"), REFUSED)
def test_paths_that_are_not_files_are_refused(verb: str, path: str) -> None:
    for format in ((), ("--format", "sej")):
        assert run(verb, path, *format).code == 2
