"""`logwright serve hub` and `logwright copy`: copies of sej journals on a hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from ...core.format import find_format
from ...errors import LogwrightError, WrongUse
from ...servers.metrics import serve_metrics
from ...servers.security import Address, Protection
from ..arguments import chosen_format, journal_verb, json_option, naming_path, verb
from ..output import format_size, parse_size, print_json, print_line, progress_bar
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
        ("on a free port, printed as JSON", "logwright serve hub copies --listen 127.0.0.1:0 --json"),
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


# --- copy ------------------------------------------------------------------------------------------------------------


@journal_verb(
    "copy",
    examples=[
        ("copy a journal to a hub on this machine", "logwright copy orders 127.0.0.1:7878 --client web1"),
        ("and continue with new messages, until Ctrl-C", "logwright copy orders 127.0.0.1:7878 --client web1 --follow"),
        (
            "copy the shards below a root, under a common name",
            "logwright copy events 127.0.0.1:7878 --client web1 --name events",
        ),
        (
            "restore a journal from the hub on a new machine",
            "logwright copy restored 127.0.0.1:7878 --client web1 --name orders --restore",
        ),
    ],
)
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--client", metavar="ID", required=True, help="The name of this client on the hub: letters, digits, _ and -."
)
@click.option("--name", metavar="NAME", help="The name of the journal on the hub; by default that of its directory.")
@click.option(
    "--follow", is_flag=True, help="Continue with new messages, also after failures, until SIGTERM or Ctrl-C."
)
@click.option("--restore", "backwards", is_flag=True, help="Write the journal from the copy on the hub.")
@click.option(
    "--shards", is_flag=True, help="With --restore: all shards that were copied without --name, each below PATH."
)
@click.option("--token", metavar="FILE", type=click.Path(path_type=Path), help="A file with the token; mode 600.")
@click.option("--tls", is_flag=True, help="Use TLS with the certificate authorities of this machine.")
@click.option(
    "--tls-authority",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use TLS with this authority (PEM), which signed the hub's certificate.",
)
@click.option(
    "--tls-certificate", metavar="FILE", type=click.Path(path_type=Path), help="The client's certificate (PEM)."
)
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its key (PEM); mode 600.")
@click.option("--insecure", is_flag=True, help="Allow a connection to another machine without TLS.")
def copy(
    path: Path,
    address: str,
    client: str,
    name: str | None,
    follow: bool,
    backwards: bool,
    shards: bool,
    token: Path | None,
    tls: bool,
    tls_authority: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    insecure: bool,
    format_name: str | None,
    as_json: bool,
) -> None:
    """Copy a sej journal, or all shards below a root, to a hub; with --restore from a hub.

    Messages that the hub already has are not sent again, so a copy can be interrupted and repeated. The copy has the
    same bytes in the same files. A gap between the copy and the journal is an error, and so is a copy of another
    journal.
    """
    if follow and backwards:
        raise WrongUse("--follow does not work with --restore")
    if shards and (not backwards or name is not None):
        raise WrongUse("--shards needs --restore and excludes --name: it restores shards copied without a name")
    package = hub_package()
    format = find_format("sej") if backwards and format_name is None else chosen_format(path, format_name)
    if format.name != "sej":
        raise WrongUse(f"{path}: a hub stores sej journals only; this is a {format.name} journal")
    access = package.Access.load(
        address,
        token=token,
        tls=tls,
        authority=tls_authority,
        certificate=tls_certificate,
        key=tls_key,
        insecure=insecure,
    )
    with _naming_path(path, package), logs_on_stderr():
        if backwards:
            with _counting_bar(path) as progress:
                options = {"client": client, "name": name, "all_shards": shards, "progress": progress}
                restored = asyncio.run(package.restore_path(access, path, **options))
            for done in restored:
                _print(done, {"restored": str(done.directory)}, as_json)
        else:
            asyncio.run(_send(package, access, path, client, name, follow, as_json))


@contextlib.contextmanager
def _naming_path(path: Path, package: Any) -> Iterator[None]:
    """Raise damage with the path that the user gave, unless it is in the copy on the hub."""
    in_copy: LogwrightError | None = None
    with naming_path(path):
        try:
            yield
        except package.DamagedCopy as error:
            in_copy = error
    if in_copy is not None:
        raise in_copy


async def _send(
    package: Any, access: Any, path: Path, client: str, name: str | None, follow: bool, as_json: bool
) -> None:
    """Send until everything is sent, or until a signal stops it; the results so far."""
    failures: list[LogwrightError] = []

    def finished(sent: Any) -> None:
        _print(sent, {"failures": sent.failures}, as_json)

    with _bar(path, follow) as bar:
        async with until_stopped() as stopped:
            options = {"progress": bar, "finished": finished, "failed": failures.append}
            sending = asyncio.ensure_future(
                package.send_path(access, path, client=client, name=name, follow=follow, **options)
            )
            stopping = asyncio.ensure_future(stopped.wait())
            await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if stopped.is_set() and not sending.done():
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
                if failures:  # an error of one shard; the others were copied
                    raise failures[0]
                if not follow:
                    raise KeyboardInterrupt
                return
            await sending


@contextlib.contextmanager
def _bar(path: Path, follow: bool) -> Iterator[Any]:
    if follow:
        yield None
        return
    with progress_bar(f"copying {path}") as bar:
        yield bar


@contextlib.contextmanager
def _counting_bar(path: Path) -> Iterator[Callable[[int], None] | None]:
    """A progress bar without a total, which a hub does not report; it is called with increments."""
    done_bytes = 0
    with progress_bar(f"restoring {path}") as bar:
        if bar is None:
            yield None
            return

        def note(more_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += more_bytes
            bar(done_bytes, None)

        yield note


def _print(done: Any, more: dict[str, Any], as_json: bool) -> None:
    if as_json:
        about = {"journal": done.journal, "messages": done.messages, "bytes": done.bytes, "next": done.next_offset}
        print_json({**about, **more})
    else:
        size = format_size(done.bytes)
        print_line(f"{done.journal}: {done.messages} messages ({size}), next offset {done.next_offset}")
