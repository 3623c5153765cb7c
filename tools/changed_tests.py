"""Prints the tests of what has changed since the last commit, for `make check`.

A changed test file is its own test. A changed module belongs to the test files of its name, such as
`tests/sej/test_writer.py` for `sej/files/writer.py`; if there is none, to the folder of its package. The rules of
imports are always checked. A changed page is run with its examples, and a changed program of `examples` is run.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = "tests/test_imports.py"


def changed_paths() -> list[str]:
    """The paths that differ from the last commit, including new ones."""
    commands = (["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"])
    found = [
        subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True) for command in commands
    ]
    return sorted({path for done in found for path in done.stdout.splitlines()})


def tests_of(path: str) -> set[str]:
    """The test files, or else the folder of tests, of a changed path."""
    parts = Path(path).parts
    name = Path(path).stem.lstrip("_")
    if parts[0] == "tests":
        return {path} if name.startswith("test_") and (ROOT / path).exists() else set()
    if parts[:2] == ("src", "logwright") and len(parts) > 3:
        folder = ROOT / "tests" / parts[2]
        if parts[2] == "servers" and len(parts) > 4:
            folder /= parts[3]
        named = set(folder.glob(f"test_{name}*.py"))
        chosen = named or ({folder} if folder.is_dir() else set(ROOT.glob(f"tests/**/test_{parts[2]}.py")))
        return {found.relative_to(ROOT).as_posix() for found in chosen}
    if parts[:2] == ("src", "logwright"):
        return {found.relative_to(ROOT).as_posix() for found in ROOT.glob(f"tests/**/test_{name}.py")}
    if parts[0] == "examples" and path.endswith(".py") and (ROOT / path).exists():
        return {f"tests/test_docs.py::test_program_runs_and_prints_what_it_should[{Path(path).name}]"}
    if path == "README.md" or (parts[0] == "docs" and path.endswith(".md") and (ROOT / path).exists()):
        return {f"tests/test_docs.py::test_examples_of_a_page_print_the_documented_output[{path}]"}
    return set()


def main() -> None:
    print(" ".join(sorted({ALWAYS}.union(*(tests_of(path) for path in changed_paths())))))


if __name__ == "__main__":
    main()
