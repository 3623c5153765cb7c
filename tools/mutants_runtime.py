"""The code that runs in the copy of the sources that `mutants.py` makes: the switch of the mutants, and a test runner.

Every module with a mutant imports it. It is also a pytest plugin while `mutants.py` records which test reaches which
mutant.
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
    """Record that a test has reached a mutant; every mutant is off."""
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
    """A disk or file whose locks have no effect and raise no error."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: Path, mode: str) -> _Unlocked:
        return _Unlocked(self._inner.open(path, mode))

    def lock(self) -> None:
        pass


def unlocked(kind: Any, disk: Any, path: Path) -> Any:
    """The result of `Lock.acquire`, without a lock."""
    return kind.acquire(_Unlocked(disk), path)


def pytest_runtest_logreport(report: Any) -> None:
    if _log and (report.when == "call" or not report.passed):
        _note("ran", report.nodeid, report.outcome, f"{report.duration:.3f}")


def serve(niceness: int, most_memory_bytes: int) -> None:
    """Run tests as requested by lines of JSON, each time in a fork of a process that has already loaded everything."""
    import resource

    os.nice(niceness)
    resource.setrlimit(resource.RLIMIT_AS, (most_memory_bytes, most_memory_bytes))
    importlib.import_module("pyarrow")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        _run_pytest(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/contract/test_crash.py"])
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            try:
                _run(request)
            finally:
                os._exit(3)
        print(json.dumps(_wait_for(child, time.monotonic() + request["seconds"])), flush=True)


def _run_pytest(arguments: list[str]) -> int:
    import pytest

    return int(pytest.main(arguments, plugins=[sys.modules[__name__]]))


def _run(request: dict[str, Any]) -> None:
    global on
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    if request["mutant"]:
        os.environ["MUTANT"] = request["mutant"]
        on = request["mutant"].__eq__
    code = _run_pytest(request["arguments"])
    sys.stdout.flush()
    os._exit(code)


def _wait_for(child: int, deadline: float) -> int | None:
    """The exit code of a child, or None if it did not end in time. The child and its processes are ended afterwards."""
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
