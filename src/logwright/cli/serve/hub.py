"""`logwright serve hub`: stores copies of sej journals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from ...errors import WrongUse
from ...servers.metrics import serve_metrics
from ...servers.security import Address, Protection
from ..arguments import json_option, verb
from ..units import parse_size
from .common import announce, logs_on_stderr, protection_of, raise_file_limit, security_options, until_stopped

DEFAULT_PORT = 7878
_FILES_OF_A_COPY = 3
_OTHER_FILES = 100
"""File descriptors besides those of clients and copies."""


def hub_package() -> ModuleType:
    """Import the hub; raises `WrongUse` with the package to install."""
    # Otherwise gRPC logs a line for every unknown client that connects; we log what matters.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("grpc").addHandler(logging.NullHandler())
    try:
        from ...servers import hub
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grpc":
            raise
        raise WrongUse("this needs grpcio, which is not installed: pip install 'logwright[hub]'") from None
    return hub


@verb(
    "hub",
    examples=[
        ("store copies in a directory, from this machine only", "logwright serve hub copies"),
        (
            "on a free port, printed as JSON",
            "logwright serve hub copies --listen 127.0.0.1:0 --json",
        ),
        (
            "for other machines: TLS, tokens, and metrics",
            "logwright serve hub copies --listen 0.0.0.0:7878 --tls-certificate hub.crt --tls-key hub.key "
            "--tokens hub.tokens --metrics 127.0.0.1:9090",
        ),
    ],
)
@click.argument("directory", type=click.Path(path_type=Path))
@security_options(DEFAULT_PORT)
@click.option(
    "--max-request", metavar="SIZE", help="The largest request, and so the largest message; 16 MiB by default."
)
@click.option(
    "--segment-size", metavar="SIZE", help="The size of segments if a client does not send it; 1 GiB by default."
)
@json_option
def hub(
    directory: Path,
    listen: str,
    metrics: str | None,
    max_request: str | None,
    segment_size: str | None,
    as_json: bool,
    **security: Any,
) -> None:
    """Store copies of sej journals that clients send with `logwright copy` or the original client.

    Each copy is a journal in DIRECTORY/CLIENT.JOURNAL with the same bytes as its source. A client gets its answer after
    its messages have been synced. SIGTERM or Ctrl-C ends the server without loss.
    """
    package = hub_package()
    address, metrics_address, protection = protection_of(listen, metrics, **security)
    limits = package.Limits() if max_request is None else package.Limits(request_bytes=parse_size(max_request))
    options = {} if segment_size is None else {"segment_size": parse_size(segment_size)}
    server = package.Hub(directory, address, protection=protection, limits=limits, **options)
    raise_file_limit(limits.connections + _FILES_OF_A_COPY * limits.open_journals + _OTHER_FILES, "clients and copies")
    with logs_on_stderr():
        asyncio.run(_serve(server, metrics_address, protection, as_json))


async def _serve(server: Any, metrics_address: Address | None, protection: Protection, as_json: bool) -> None:
    async with until_stopped() as stopped, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        if metrics_address is not None:
            metrics_address = await stack.enter_async_context(serve_metrics(server.metrics, metrics_address))
        about = {"directory": str(server.copies.root), "sync": "always"}
        announce("hub", server.address, metrics_address, protection, server.limits, as_json, **about)
        await stopped.wait()
