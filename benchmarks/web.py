"""The live page over a journal of 8 million messages: one server in its own process, and clients over loopback.

- The first page, with a server that has just started: the journal, its first rows and its timeline. Limit: a second.
- A jump to a random time: the row of the time, and a page of rows from there. Limit: 200 ms.
- Fifty clients on one tail: the CPU time of the server while a burst is appended, against that with one client. The
  same burst is sent 50 times, so it is more than once, but far less than fifty readers would need: the goal is a tenth.
- A page of rows for 16 clients that ask at the same time, against one client.
- The peak of the server's memory after all of this. Limit: 512 MiB, for a journal of about 650 MiB.

All times are CPU time of the server, because other programs run on the machine.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from benchmarks.measure import KEY, Figure, Plan
from logwright.sej.files.writer import Writer

BATCH = 100_000
CLIENTS = 50
ASKING = 16
START_NS = 1_790_000_000_000_000_000
STEP_NS = 1_000_000


class Server:
    """`logwright web` in its own process."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "logwright", "web", str(root), "--listen", "127.0.0.1:0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(60)
        self._process.stdout.close()

    def get(self, request: str, **parameters: Any) -> Any:
        with self.stream(request, **parameters) as answer:
            return json.load(answer)

    def stream(self, request: str, **parameters: Any) -> Any:
        return urllib.request.urlopen(f"{self.url}api/{request}?{urlencode(parameters)}", timeout=120)

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that the server has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    server = Server(root)
    try:
        yield server
    finally:
        server.close()


def write_journal(path: Path, rows: int) -> None:
    """A journal with a message every millisecond."""
    with Writer(path, segment_size=128 << 20) as writer:
        for first in range(0, rows, BATCH):
            numbers = range(first, min(rows, first + BATCH))
            columns = {
                "key": pa.array([KEY] * len(numbers), pa.binary()),
                "value": pa.array([b'{"order": %d, "item": "bolt"}' % number for number in numbers], pa.binary()),
                "timestamp": pa.array([START_NS + STEP_NS * number for number in numbers], pa.int64()),
            }
            writer.append_batch(pa.record_batch(columns))


def first_page(root: Path, rows: int) -> float:
    """Milliseconds of CPU until a new server has answered what the page of a journal asks first."""
    with serving(root) as server:
        server.get("about")
        before = server.cpu_seconds
        assert server.get("journal", name="events")["rows"] == rows
        assert len(server.get("rows", name="events", row=0, count=100)["rows"]) == 100
        assert sum(bucket["records"] for bucket in server.get("timeline", name="events")["buckets"]) == rows
        return (server.cpu_seconds - before) * 1000


def jump(server: Server, rows: int, count: int) -> float:
    """Milliseconds of CPU of a jump to a random time."""
    dice = random.Random(rows)
    before = server.cpu_seconds
    for _ in range(count):
        row = dice.randrange(rows - 100)
        found = server.get("seek", name="events", since=str(START_NS + STEP_NS * row))
        assert found["row"] == row
        assert server.get("rows", name="events", row=row, count=100)["rows"][0]["number"] == str(row)
    return (server.cpu_seconds - before) / count * 1000


def tail(server: Server, path: Path, clients: int, burst: int) -> float:
    """Seconds of CPU while a burst reaches this number of clients of one tail."""
    with ExitStack() as stack:
        streams = [stack.enter_context(server.stream("journal/live", name="tail")) for _ in range(clients)]
        for stream in streams:
            _until(stream, "ready")
        before = server.cpu_seconds
        with Writer(path) as writer:
            for number in range(burst):
                writer.append(b'{"order": %d}' % number, KEY)
        readers = [threading.Thread(target=_until, args=(stream, f'\\"order\\": {burst - 1}}}')) for stream in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return server.cpu_seconds - before


def _until(stream: Any, text: str) -> None:
    """Read events up to one with this text."""
    for line in stream:
        if text.encode() in line:
            return
    raise AssertionError(f"the stream ended before {text}")


def requests(server: Server, rows: int, clients: int, seconds: float) -> float:
    """Milliseconds of CPU of a request for rows, if this number of clients ask at the same time."""
    before, stop = server.cpu_seconds, time.monotonic() + seconds
    done: list[int] = []

    def ask(seed: int) -> None:
        dice, count = random.Random(seed), 0
        while time.monotonic() < stop:
            server.get("rows", name="events", row=dice.randrange(rows), count=50)
            count += 1
        done.append(count)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (server.cpu_seconds - before) / sum(done) * 1000


def run(plan: Plan) -> list[Figure]:
    rows, burst = plan.amount(8_000_000, 200_000), plan.amount(100_000, 10_000)
    root = plan.place / "web"
    write_journal(root / "events", rows)
    with Writer(root / "tail") as writer:
        writer.append(b"before")
    rounds = max(3, plan.rounds)
    first = [first_page(root, rows) for _ in range(rounds)]
    with serving(root) as server:
        jumps = [jump(server, rows, 20) for _ in range(rounds)]
        both = [(tail(server, root / "tail", 1, burst), tail(server, root / "tail", CLIENTS, burst)) for _ in first]
        asked = [tuple(requests(server, rows, clients, plan.amount(5, 1)) for clients in (1, ASKING)) for _ in first]
        peak = server.peak_mib
    one, many = (statistics.median(values) for values in zip(*both, strict=True))
    alone, together = (list(values) for values in zip(*asked, strict=True))

    def figure(what: str, ours: list[float], peer: float, unit: str, name: str, goal: float | None = 1.0) -> Figure:
        return Figure("web", what, statistics.median(ours), peer, unit, name, goal, spread=ours)

    return [
        figure(f"first page of {rows:,} messages", first, 1000.0, "ms", "limit of 1 s"),
        figure("jump to a time, with its rows", jumps, 200.0, "ms", "limit of 200 ms"),
        figure(f"{CLIENTS} clients on one tail", [many], CLIENTS * one / 10, "s", "a tenth of 50 readers"),
        figure(f"rows for each of {ASKING} clients", together, statistics.median(alone), "ms", "for one client", None),
        figure("peak of memory", [peak], 512.0, "MiB", "limit of 512 MiB"),
    ]
