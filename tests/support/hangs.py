"""A test that waits forever ends its process, and the summary of the run shows where it waited."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_SECONDS = 600
FRAMES = 8
"""The number of frames shown for a thread; the innermost ones show where it waits."""
_VARIABLE = "LOGWRIGHT_TEST_HANGS"


def prepare(*, is_worker: bool) -> None:
    """Choose the directory of the reports; the workers of pytest-xdist inherit it from the process that starts them.

    A test may run pytest, which then has its own directory.
    """
    if not is_worker:
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="logwright-hangs-")


@contextmanager
def watched(test: str) -> Iterator[None]:
    """End the process if the block takes longer than the limit, with a report of the stacks of its threads."""
    path = Path(os.environ[_VARIABLE]) / str(os.getpid())
    with path.open("w") as report:
        report.write(f"{test} did not end within {LIMIT_SECONDS} s\n")
        report.flush()
        faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True, file=report)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            path.unlink()


def reports() -> list[str]:
    """The reports of tests that did not end, as lines; the directory is removed."""
    directory = Path(os.environ[_VARIABLE])
    lines = [line for path in sorted(directory.iterdir()) for line in _inner_frames(path.read_text())]
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    return lines


def _inner_frames(report: str) -> list[str]:
    lines: list[str] = []
    shown = 0
    for line in report.splitlines():
        shown = shown + 1 if line.startswith("  ") else 0
        if shown <= FRAMES:
            lines.append(line)
    return lines
