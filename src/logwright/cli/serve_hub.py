"""`logwright serve hub`: takes copies of sej journals, and gives them back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from ..errors import WrongUse
from ..servers.metrics import serve_metrics
from ..servers.safety import Address, Protection
from .arguments import json_option, verb
from .serving import announce, logged_aloud, protection_of, raise_file_limit, safety_options, until_stopped
from .times import parse_size

DEFAULT_PORT = 7878
_FILES_OF_A_COPY = 3
_OTHER_FILES = 100
"""Files that are read, and those of the program itself."""


def hub_package() -> ModuleType:
    """What does it; `WrongUse` says what to install."""
    # Else gRPC writes lines of its own, one for every stranger that connects to a hub; what matters we tell ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("grpc").addHandler(logging.NullHandler())
    try:
        from ..servers import hub
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grpc":
            raise
        raise WrongUse("this needs grpcio, which is not installed: pip install 'logwright[hub]'") from None
    return hub


@verb(
    "hub",
    examples=[
        ("take copies into a directory, from this machine only", "logwright serve hub copies"),
        (
            "on a port that is free, which is in the JSON that it prints",
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
@safety_options(DEFAULT_PORT)
@click.option(
    "--max-request", metavar="SIZE", help="The largest request, and so the largest message; 16 MiB by default."
)
@click.option("--segment-size", metavar="SIZE", help="Where a client does not tell of segments; 1 GiB by default.")
@json_option
def hub(
    directory: Path,
    listen: str,
    metrics: str | None,
    max_request: str | None,
    segment_size: str | None,
    as_json: bool,
    **safety: Any,
) -> None:
    """Hold copies of sej journals that clients send by `logwright copy`, or by the original's client.

    Each is a journal in DIRECTORY/CLIENT.JOURNAL, the same bytes as its source. A client is answered when its messages
    are on the disk. Ends by SIGTERM or Ctrl-C, and loses nothing then.
    """
    room = hub_package()
    address, metrics_address, protection = protection_of(listen, metrics, **safety)
    limits = room.Limits() if max_request is None else room.Limits(request_bytes=parse_size(max_request))
    options = {} if segment_size is None else {"segment_size": parse_size(segment_size)}
    server = room.Hub(directory, address, protection=protection, limits=limits, **options)
    raise_file_limit(limits.connections + _FILES_OF_A_COPY * limits.open_journals + _OTHER_FILES, "clients and copies")
    with logged_aloud():
        asyncio.run(_serve(server, metrics_address, protection, as_json))


async def _serve(server: Any, metrics_address: Address | None, protection: Protection, as_json: bool) -> None:
    async with until_stopped() as stopped, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        if metrics_address is not None:
            metrics_address = await stack.enter_async_context(serve_metrics(server.metrics, metrics_address))
        about = {"directory": str(server.copies.root), "sync": "always"}
        announce("hub", server.address, metrics_address, protection, server.limits, as_json, **about)
        await stopped.wait()
