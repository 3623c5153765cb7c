"""A server of the page in a thread, and requests to it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from logwright.servers.security import Address, Protection
from logwright.web import WebServer

WAIT_SECONDS = 60.0


@dataclass
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A running server, and requests to it."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.url = f"http://{server.address}"

    def ask(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: str | None = None
    ) -> Answer:
        """Any request; redirections are not followed."""
        connection = HTTPConnection(self.server.address.host, self.server.address.port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, body, headers or {})
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON that a request of the API returns."""
        found = self.ask(f"/api/{path}?{urllib.parse.urlencode(parameters)}")
        assert found.status == 200, found.body
        return found.json()

    def refused(self, path: str, **parameters: Any) -> tuple[int, str]:
        """The status and the error of a request that fails."""
        found = self.ask(f"/api/{path}?{urllib.parse.urlencode(parameters)}")
        return found.status, found.json()["error"]

    @contextmanager
    def events(self, path: str, **parameters: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a stream, until the block ends."""
        url = f"{self.url}/api/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as stream:
            yield _events(stream)


def _events(stream: Any) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in stream:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            yield name, json.loads(text[6:])


@contextmanager
def serving(root: Path, protection: Protection | None = None, hosts: tuple[str, ...] = ()) -> Iterator[Site]:
    """Serve the journals below a root on a free port of loopback."""
    server = WebServer(root, Address("127.0.0.1", 0), protection, hosts)
    ready, stopped = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with server.serving():
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    try:
        yield Site(server)
    finally:
        loops[0].call_soon_threadsafe(stopped.set)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        threading.Event().wait(0.01)
