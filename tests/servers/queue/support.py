r"""A queue server in a thread of the test, and clients that talk to it byte by byte. Nothing here sleeps.

with serving(tmp_path) as served, Client(served) as client:
    assert client.ask(b"get q\r\n") == b"END\r\n"
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from logwright.core.write.closing import Closing
from logwright.servers.queue.server import QueueServer, run
from logwright.servers.queue.service import ServerSettings, Service
from logwright.servers.security import Address
from tests.support.threads import DEADLINE_SECONDS, in_a_thread

Result = TypeVar("Result")
VERSION = f"VERSION {Service.version}\r\n".encode()


class Serving:
    """A server that runs in a thread."""

    def __init__(self, server: QueueServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self.service, self._loop = server, server.service, loop

    @property
    def address(self) -> Address:
        return self.server.address

    def call(self, do: Callable[[], Result]) -> Result:
        """Call a function in the thread of the server."""
        future: Future[Result] = Future()

        def work() -> None:
            try:
                future.set_result(do())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(work)
        return future.result(DEADLINE_SECONDS)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; the thread of the server checks it after each step."""
        found = threading.Event()

        def look() -> None:
            if condition():
                found.set()
            else:
                self._loop.call_later(0.001, look)

        self._loop.call_soon_threadsafe(look)
        assert found.wait(DEADLINE_SECONDS), "it never came true"

    def items(self, name: str) -> list[bytes]:
        """The waiting items of a queue."""
        return self.call(lambda: [entry[0] for entry in self.service.queues.by_key[name.encode()].engine.iterate()])

    def state(self) -> dict[str, tuple[list[bytes], int]]:
        """The waiting items of all queues, and the number of open items."""

        def look() -> dict[str, tuple[list[bytes], int]]:
            return {
                key.decode(): ([entry[0] for entry in queue.engine.iterate()], len(queue.engine.open_items))
                for key, queue in self.service.queues.by_key.items()
            }

        return self.call(look)


@contextlib.contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Serving]:
    """A server of a directory, on a free port."""
    ready: Future[tuple[QueueServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        try:
            options = {"address": Address("127.0.0.1", 0), **settings}
            async with QueueServer(ServerSettings(directory=directory, **options)) as server:
                ready.set_result((server, asyncio.get_running_loop(), stop))
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                return
            raise

    thread = in_a_thread(lambda: run(serve()))
    server, loop, stop = ready.result(DEADLINE_SECONDS)
    try:
        yield Serving(server, loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.result(DEADLINE_SECONDS)


class Client(Closing):
    """A client that sends raw bytes."""

    def __init__(self, served: Serving | Address, context: ssl.SSLContext | None = None) -> None:
        address = served.address if isinstance(served, Serving) else served
        self.socket = socket.create_connection((address.host, address.port), DEADLINE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._received = b""

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self, size: int) -> bytes:
        """`size` bytes of responses; fewer if the connection ends first."""
        while len(self._received) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                break
            self._received += data
        found, self._received = self._received[:size], self._received[size:]
        return found

    def hear_all(self) -> bytes:
        """Everything until the connection ends."""
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(1 << 16):
                self._received += data
        found, self._received = self._received, b""
        return found

    def line(self) -> bytes:
        """The next line of the answers."""
        while b"\n" not in self._received:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the server has closed the connection")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line + b"\n"

    def ask(self, request: bytes) -> bytes:
        """The whole response to requests: it ends where the response to a following `version` begins."""
        self.say(request + b"version\r\n")
        while not self._received.endswith(VERSION):
            data = self.socket.recv(1 << 16)
            if not data:
                break
            self._received += data
        found, self._received = self._received.removesuffix(VERSION), b""
        return found

    def close(self) -> None:
        self.socket.close()
