"""QueueServer: listening, TLS handshakes, slow clients, and shutdown.

    async with QueueServer(ServerSettings(directory=Path("spool"), sync=ALWAYS)) as server:
        print(server.address)
        ...

`run` runs it on uvloop if that is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

from ...core.options import NamedOptions
from ...errors import WrongUse
from ..metrics import serve_metrics
from ..security import Address, Protection, listening
from .commands import carry_out
from .connection import Connection
from .service import DOWN, ServerSettings, Service
from .stats import QueueMetrics

logger = logging.getLogger("logwright.servers.queue")
_LONGEST_CHECK_SECONDS: Final = 1.0
MOST_HANDSHAKES: Final = 256
GRACE_SECONDS: Final = 1.0
BACKLOG: Final = 1024
"""The backlog of the listening socket. Clients beyond it retry after a second."""
_PAUSE_SECONDS: Final = 0.05
"""The pause in accepting when there are too many clients, or no free file descriptors."""


class QueueServer(NamedOptions):
    """A server of one directory. `async with` starts and stops it."""

    def __init__(self, settings: ServerSettings) -> None:
        settings.protection.check(settings.address)
        if settings.metrics is not None and not settings.protection.insecure:
            Protection().check(settings.metrics)
        if settings.status_file is not None and settings.status_file.absolute().parent == settings.directory.absolute():
            raise WrongUse(
                f"{settings.status_file} is in the directory of the queues: choose a status file in another directory"
            )
        self.settings = settings
        self.service = Service(settings)
        self.address = settings.address
        self.metrics_address: Address | None = None
        self._stack = contextlib.AsyncExitStack()
        self._timer: asyncio.TimerHandle | None = None

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the queues and listen."""
        try:
            await asyncio.to_thread(self.service.open)
            self.service.start()
            self._stack.callback(self.service.sweeper.stop)
            with listening(self.settings.address):
                port = await self._listen()
            self.address = Address(self.settings.address.host, port)
            if self.settings.metrics is not None:
                serving = serve_metrics(QueueMetrics(self.service), self.settings.metrics)
                self.metrics_address = await self._stack.enter_async_context(serving)
        except BaseException:
            await self._stack.aclose()
            await asyncio.to_thread(self.service.close)
            raise
        self._check_clients()

    async def _listen(self) -> int:
        """Listen, with TLS if configured; returns the port."""
        address, context = self.settings.address, self.settings.protection.context
        if context is not None:
            listener = TlsListener(context, self.settings.limits.handshake_seconds, self._connect)
            port = await listener.open(address)
            self._stack.push_async_callback(listener.close)
            return port
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connect, address.host, address.port, backlog=BACKLOG)
        self._stack.callback(server.close)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- clients ----------------------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        return Connection(self.service, carry_out)

    def _check_clients(self) -> None:
        """Drop slow and dead clients, and check the disk."""
        service, limits = self.service, self.settings.limits
        service.lane.now = time.monotonic()
        for client in list(service.connections):
            reason = client.why_overdue(service.lane.now)
            if reason is not None:
                logger.info("dropped a client that %s", reason)
                service.counters.dropped_connections += 1
                client.drop()
        service.check_disk()
        if service.space.is_low:
            service.free_space()
        shortest = min(limits.handshake_seconds, limits.command_seconds, limits.answer_seconds, limits.idle_seconds)
        seconds = min(shortest / 4, _LONGEST_CHECK_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check_clients)

    # --- shutdown ---------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Accept nothing more, answer pending requests, put reserved items back, and sync and close the queues."""
        if self._timer is not None:
            self._timer.cancel()
        self.service.status = DOWN
        await self._stack.aclose()
        for client in list(self.service.connections):
            client.finish()
        await asyncio.to_thread(self.service.queues.end)
        await self._until_gone()
        await self.service.commits.drain()
        await asyncio.to_thread(self.service.close)

    async def _until_gone(self) -> None:
        """Wait until clients have read their last answers; drop those that take too long."""
        service = self.service
        deadline = time.monotonic() + service.limits.stop_seconds
        while service.connections and time.monotonic() < deadline:
            service.all_gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.all_gone.wait(), max(0.0, deadline - time.monotonic()))
        while service.connections:
            for client in list(service.connections):
                client.drop()
            await asyncio.sleep(0)


# --- TLS -------------------------------------------------------------------------------------------------------------


class TlsListener:
    """Accepts clients at an address until it is closed, and runs their TLS handshakes.

    Clients in a handshake are unknown, so their number is limited: when it is reached, a new client replaces the oldest
    one if that has taken a second or more. So a client that completes its handshake without delay is never replaced,
    and slow ones neither block others nor use up files.
    """

    def __init__(
        self, context: ssl.SSLContext, handshake_seconds: float, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._context, self._handshake_seconds, self._protocol = context, handshake_seconds, protocol
        self._listening: list[asyncio.Task[None]] = []
        self.handshakes: dict[socket.socket, float] = {}
        """Clients in a handshake with their start times, oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, address: Address) -> int:
        """Listen, and return the port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(_bound(family, place)) for family, _, _, _, place in found]
            stack.pop_all()
        self._listening = [loop.create_task(self._accept(listener)) for listener in sockets]
        port: int = sockets[0].getsockname()[1]
        return port

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self.handshakes[client] = time.monotonic()
                task = loop.create_task(self._handshake(client))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._wait_for_place()

    async def _wait_for_place(self) -> None:
        """Wait until another client can be accepted."""
        while len(self.handshakes) >= MOST_HANDSHAKES:
            oldest, since = next(iter(self.handshakes.items()))
            if time.monotonic() - since >= GRACE_SECONDS:
                self._disconnect(oldest)
            else:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _handshake(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol, client, ssl=self._context, ssl_handshake_timeout=self._handshake_seconds
            )
        except OSError:  # includes errors of TLS and timeouts
            client.close()
        finally:
            self.handshakes.pop(client, None)

    def _disconnect(self, client: socket.socket) -> None:
        del self.handshakes[client]
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # ends the handshake

    async def close(self) -> None:
        """Stop listening, and disconnect clients in a handshake."""
        for client in list(self.handshakes):
            self._disconnect(client)
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)


def _bound(family: int, place: tuple[object, ...]) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(place)
        found.listen(BACKLOG)
        found.setblocking(False)
    except BaseException:
        found.close()
        raise
    return found


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a server's event loop, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed; for about twice the speed: pip install 'logwright[server]'")
        asyncio.run(work)
    else:
        uvloop.run(work)
