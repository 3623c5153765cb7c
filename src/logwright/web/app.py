"""The application: the requests, the files of the page, and the server that answers them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import NotFound
from ..servers.security import Address, Protection, listening
from .api import Api
from .files import STATIC
from .guard import Guard

_STOP_SECONDS: Final = 2


def application(
    root: Path | str, protection: Protection | None = None, hosts: Collection[str] = (), api: Api | None = None
) -> Guard:
    """The page over the journals below a root, as an application of ASGI."""
    api = Api(root) if api is None else api

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def icon(request: Request) -> Response:
        return FileResponse(STATIC / "icon.svg")

    routes = [
        Route("/", page),
        Route("/favicon.ico", icon),
        *api.routes(),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Starlette(routes=routes), protection or Protection(), hosts)


class WebServer:
    """Serves the page at an address while its `async with` block runs."""

    def __init__(
        self, root: Path | str, address: Address, protection: Protection | None = None, hosts: Collection[str] = ()
    ) -> None:
        if not Path(root).exists():
            raise NotFound(f"{root}: no such file or directory")
        self.root = Path(root)
        self.address = address
        self.protection = protection or Protection()
        self.protection.check(address)
        self.api = Api(root)
        self._app = application(root, self.protection, hosts, self.api)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[WebServer]:
        """Listen; `address` has the port that was chosen."""
        listener = self._listen()
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        server = _Server(config)
        config.load()
        config.ssl = self.protection.context
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield self
        finally:
            self.api.live.stop()
            server.should_exit = True
            await task
            listener.close()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        with listening(self.address):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.address.host, self.address.port))
            listener.listen(128)
        self.address = Address(self.address.host, listener.getsockname()[1])
        return listener


class _Server(uvicorn.Server):
    """A server that leaves signals to the command line."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
