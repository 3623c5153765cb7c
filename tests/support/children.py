"""Child processes that a test talks to line by line, and may kill at any moment.

    with Child("import sys; print('ready', flush=True); sys.stdin.read()") as child:
        assert child.line() == "ready"
        child.kill()

Nothing here sleeps: `line` waits for the child's next line, and fails the test if none comes before the deadline.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.threads import DEADLINE_SECONDS

SAYS_WHO = Path("/proc/locks").exists()
"""Whether the system says which process holds a lock."""


def held_by(pid: int) -> str:
    """The end of the message of `Locked` that names a process."""
    return f" (process {pid}, {Path(f'/proc/{pid}/comm').read_text().strip()})" if SAYS_WHO else ""


class Child:
    """A Python program that runs beside the test. Leaving the `with` block kills it if it still runs."""

    def __init__(self, code: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._received = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line that the child prints, without its line end; `EOFError` if the child has ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self._received:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the child printed nothing for {DEADLINE_SECONDS} seconds"
            data = os.read(descriptor, 65536)
            if not data:
                raise EOFError("the child ended without another line")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def say(self, text: str) -> None:
        """Send the child one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the child with SIGKILL, and return once it is dead."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(DEADLINE_SECONDS)

    def join(self) -> int:
        """Wait until the child ends by itself; its exit status."""
        return self._process.wait(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def forked(action: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A copy of this process that performs an action, and lives until the end of the block."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.write(writing, b"done")
            signal.alarm(int(DEADLINE_SECONDS))  # ends a child whose parent is gone
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(writing)
        assert os.read(reading, 4) == b"done"
        yield
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
