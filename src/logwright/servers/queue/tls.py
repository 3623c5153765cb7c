"""Accept clients, and run their TLS handshakes.

Clients in a handshake are unknown, so their number is limited: when it is reached, a new client replaces the oldest one
if that has taken a second or more. So a client that completes its handshake without delay is never replaced, and slow
ones neither block others nor use up files.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from ..security import Address

MOST_HANDSHAKES: Final = 256
GRACE_SECONDS: Final = 1.0
BACKLOG: Final = 1024
"""The backlog of the listening socket. Clients beyond it retry after a second."""
_PAUSE_SECONDS: Final = 0.05
"""The pause in accepting when there are too many clients, or no free file descriptors."""


class TlsListener:
    """Listens at an address until it is closed."""

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
