"""What runs in the copy of the sources that `mutants.py` makes: the switch of the mutants, and what runs the tests.

It is imported by every module that has a mutant, and is a plugin of pytest while it is noted which test reaches what.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_log = os.environ.get("MUTANTS_LOG", "")
_seen: set[tuple[str, str]] = set()


def _reached(name: str) -> bool:
    """Note that a test has come here; every mutant is off."""
    place = name, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if place not in _seen:
        _seen.add(place)
        _note("reached", *place)
    return False


def _note(*words: object) -> None:
    with contextlib.suppress(OSError), open(_log, "a") as file:  # a test may limit the size of files
        file.write("\t".join(map(str, words)) + "\n")


on: Any = _reached if _log else os.environ.get("MUTANT", "").__eq__
"""Whether the mutant of a name is on."""


class _Unlocked:
    """A disk whose files, or a file which, cannot be locked and does not say so."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: Path, mode: str) -> _Unlocked:
        return _Unlocked(self._inner.open(path, mode))

    def lock(self) -> None:
        pass


def unlocked(kind: Any, disk: Any, path: Path) -> Any:
    """What `Lock.acquire` gives, and nothing is locked."""
    return kind.acquire(_Unlocked(disk), path)


def pytest_runtest_logreport(report: Any) -> None:
    if _log and (report.when == "call" or not report.passed):
        _note("ran", report.nodeid, report.outcome, f"{report.duration:.3f}")


def serve(niceness: int, most_memory_bytes: int) -> None:
    """Run tests as lines of JSON ask for them, each time in a fork of a process that has loaded everything already."""
    import resource

    os.nice(niceness)
    resource.setrlimit(resource.RLIMIT_AS, (most_memory_bytes, most_memory_bytes))
    importlib.import_module("pyarrow")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        _run_pytest(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/contract/test_crash.py"])
    for line in sys.stdin:
        told = json.loads(line)
        child = os.fork()
        if not child:
            try:
                _run(told)
            finally:
                os._exit(3)
        print(json.dumps(_wait_for(child, time.monotonic() + told["seconds"])), flush=True)


def _run_pytest(arguments: list[str]) -> int:
    import pytest

    return int(pytest.main(arguments, plugins=[sys.modules[__name__]]))


def _run(told: dict[str, Any]) -> None:
    global on
    os.setsid()
    output = os.open(told["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    if told["mutant"]:
        os.environ["MUTANT"] = told["mutant"]
        on = told["mutant"].__eq__
    code = _run_pytest(told["arguments"])
    sys.stdout.flush()
    os._exit(code)


def _wait_for(child: int, deadline: float) -> int | None:
    """The exit code of a child, None if it has not ended by then; it is gone afterwards, with all that it started."""
    code: int | None = None
    while code is None and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code
