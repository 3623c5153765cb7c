"""Separate drivers: Python processes with a Spark that a test controls, and may kill.

    with Driver("jobs/faults.py", tmp_path, tmp_path) as driver:
        driver.ask("save", source=source, target=target)

See `jobs/serving.py` for the other side. The log of such a driver is `driver.log` in its directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
DEADLINE_SECONDS = 300.0
"""Far longer than anything here takes, even on a busy machine; reached only if something hangs."""


def wait_for(condition: Callable[[], Any], what: str = "it", seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until a condition on other processes holds; its result."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found


def is_alive(process: int) -> bool:
    """Whether a process that is not our child still runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run_to_the_end(command: list[str], directory: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a program that starts others; its exit status, and the end of all output. No process survives it."""
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed.decode(errors="replace")[-6000:]


class DriverFailed(Exception):
    """The error that a request to the driver raised."""


class Driver:
    """A driver that is running. Leaving the `with` block ends it."""

    def __init__(
        self,
        script: str,
        directory: Path,
        *arguments: object,
        python: str = sys.executable,
        environment: Mapping[str, str] = {},
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "driver.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [python, str(HERE / script), *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env={**os.environ, **environment},
                start_new_session=True,  # so that its JVM can be ended with it
            )
        self._received = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, **given: Any) -> Any:
        """Send a request, and wait for its result."""
        self.say(what, **given)
        return self.answer()

    def say(self, what: str, **given: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "with": given}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The result of the last request; `EOFError` if the driver has ended."""
        answer = json.loads(self._line())
        if "failed" in answer:
            raise DriverFailed(answer["failed"])
        return answer["done"]

    def is_busy(self) -> bool:
        """True; an answer that has arrived meanwhile fails the test, with its message if it is a failure."""
        assert self._process.stdout is not None
        if self._received or select.select([self._process.stdout.fileno()], [], [], 0)[0]:
            raise AssertionError(f"the driver has answered {self.answer()!r} already")
        return True

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self._received:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the driver does not answer:\n{self.tail()}"
            data = os.read(descriptor, 65536)
            if not data:
                raise EOFError(f"the driver has ended:\n{self.tail()}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        return self._process.wait(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # no more requests: it stops its Spark and ends
        try:
            if error is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(DEADLINE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # the rest: its JVM, if that did not end
            self._process.wait()
            self._process.stdout.close()
