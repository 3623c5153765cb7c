"""Metrics in the text format of Prometheus, and a small HTTP server for them.

    metrics = Metrics("logwright_hub")
    puts = metrics.counter("puts_total", "Requests answered, by result.", "result")
    puts.add(1, "ok")
    metrics.gauge("connections", "Connected clients.", lambda: len(clients))
    async with serve_metrics(metrics, address): ...

The server answers only `GET /metrics`, closes every connection after one answer, and drops clients that need more than
a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from .security import Address, listening

MOST_REQUEST_BYTES: Final = 8192
MOST_CONNECTIONS: Final = 16
TIMEOUT_SECONDS: Final = 5.0


class Counter:
    """A number that only grows; with a label, one for each of its values."""

    def __init__(self, label: str | None) -> None:
        self.label = label
        self.values: dict[str, int] = {} if label else {"": 0}

    def add(self, count: int = 1, value: str = "") -> None:
        """Add to the counter."""
        self.values[value] = self.values.get(value, 0) + count

    def total(self) -> int:
        """The sum over all values of the label."""
        return sum(self.values.values())


class Metrics:
    """The metrics of a server; their names share a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._about: dict[str, tuple[str, str]] = {}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def counter(self, name: str, about: str, label: str | None = None) -> Counter:
        """A new counter."""
        self._about[name] = ("counter", about)
        return self._counters.setdefault(name, Counter(label))

    def gauge(self, name: str, about: str, read: Callable[[], float], *, grows: bool = False) -> None:
        """A value that is read on request; one that only `grows` is reported as a counter."""
        self._about[name] = ("counter" if grows else "gauge", about)
        self._gauges[name] = read

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        lines = []
        for name, (kind, about) in self._about.items():
            full = f"{self._prefix}_{name}"
            lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
            if name in self._gauges:
                lines.append(f"{full} {self._gauges[name]()}")
                continue
            counter = self._counters[name]
            for value, count in counter.values.items():
                lines.append(f'{full}{{{counter.label}="{_escaped(value)}"}} {count}' if value else f"{full} {count}")
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextlib.asynccontextmanager
async def serve_metrics(metrics: Metrics, address: Address) -> AsyncIterator[Address]:
    """Serve metrics until the end of the block; yields the address with its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(tasks) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        tasks.add(task)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await _answer(metrics, reader, writer)
        except (TimeoutError, OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.transport.abort()  # slow, disconnected, or not HTTP
        finally:
            tasks.discard(task)

    with listening(address):
        server = await asyncio.start_server(handle, address.host, address.port, limit=MOST_REQUEST_BYTES)
    try:
        yield Address(address.host, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await server.wait_closed()


async def _answer(metrics: Metrics, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, *_ = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""]
    found = path.split(b"?", 1)[0] == b"/metrics"
    status = b"405 Method Not Allowed" if method != b"GET" else b"200 OK" if found else b"404 Not Found"
    body = metrics.text().encode() if status.startswith(b"200") else b""
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Type: text/plain; version=0.0.4; charset=utf-8",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    ]
    writer.write(b"\r\n".join([*lines, b"", body]))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
