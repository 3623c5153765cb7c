"""`logwright web`: a page over journals, for a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from ..errors import WrongUse
from .arguments import json_option, verb
from .output import inform, print_json, print_line, warn
from .serve.common import logs_on_stderr, protection_of, security_options, until_stopped

DEFAULT_PORT = 7880


@verb(
    "web",
    examples=[
        ("look at all journals below a directory", "logwright web ."),
        ("on a free port, printed as JSON", "logwright web . --listen 127.0.0.1:0 --json"),
        (
            "for other machines: TLS and tokens",
            "logwright web . --listen 0.0.0.0:7880 --tls-certificate web.crt --tls-key web.key --tokens web.tokens "
            "--host-name journals.example.org",
        ),
    ],
)
@click.argument("root", type=click.Path(path_type=Path), default=Path("."))
@security_options(DEFAULT_PORT, metrics=False)
@click.option(
    "--host-name",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name under which browsers reach this server, besides addresses and localhost.",
)
@json_option
def command(root: Path, listen: str, hosts: tuple[str, ...], as_json: bool, **security: Any) -> None:
    """Serve a page over the journals below ROOT, while their writers run.

    It shows what is there, what needs attention, what is appended, and what journals held at any time. It reads
    journals without locks and changes nothing. SIGTERM or Ctrl-C ends the server.
    """
    try:
        from ..web import WebServer
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise WrongUse("this needs starlette and uvicorn: pip install 'logwright[web]'") from None
    address, _, protection = protection_of(listen, None, **security)
    server = WebServer(root, address, protection, hosts)
    with logs_on_stderr():
        asyncio.run(_serve(server, as_json))


async def _serve(server: Any, as_json: bool) -> None:
    async with until_stopped() as stopped, server.serving():
        scheme = "https" if server.protection.has_tls else "http"
        url = f"{scheme}://{server.address}/"
        if as_json:
            about = {"serving": "web", "address": str(server.address), "url": url, "root": str(server.root)}
            print_json({**about, "protection": server.protection.describe()})
        else:
            print_line(f"web is ready at {url}")
            inform(f"clients: {server.protection.describe()}; nothing is written")
        if server.protection.insecure and not server.address.is_loopback:
            warn(f"{server.address} can be reached from other machines, and --insecure was given")
        await stopped.wait()
