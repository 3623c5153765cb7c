"""What the verbs of servers share: options, output at the start, and signals.

A server prints one line on stdout when it is ready, with its address and port. Its security settings and limits go to
stderr. SIGTERM and Ctrl-C end it cleanly, with exit code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ...servers.security import Address, Protection, limits_of, parse_address
from ..arguments import Decorated, options
from ..output import format_size, inform, print_json, print_line, warn


def security_options(default_port: int, *, metrics: bool = True) -> Callable[[Decorated], Decorated]:
    """`--listen --tls-certificate --tls-key --client-authority --tokens --insecure --metrics`; see `protection_of`."""
    file = click.Path(path_type=Path)
    given: list[Callable[[Any], Any]] = [
        click.option(
            "--listen",
            metavar="HOST:PORT",
            default=f"127.0.0.1:{default_port}",
            show_default=True,
            help="The address; port 0 takes a free one. Beyond loopback it needs TLS, and tokens or certificates.",
        ),
        click.option("--tls-certificate", metavar="FILE", type=file, help="The server's certificate chain (PEM)."),
        click.option("--tls-key", metavar="FILE", type=file, help="The server's key (PEM); mode 600."),
        click.option(
            "--client-authority",
            metavar="FILE",
            type=file,
            help="Require a client certificate that this authority (PEM) signed.",
        ),
        click.option(
            "--tokens",
            metavar="FILE",
            type=file,
            help="Require one of the tokens in this file, one per line; mode 600.",
        ),
        click.option(
            "--insecure",
            is_flag=True,
            help="Allow an address beyond loopback without TLS or without tokens and certificates.",
        ),
    ]
    if metrics:
        about = "Serve Prometheus metrics there: GET /metrics, plain HTTP."
        given.append(click.option("--metrics", metavar="HOST:PORT", help=about))
    return options(*given)


def protection_of(
    listen: str,
    metrics: str | None,
    *,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_authority: Path | None,
    tokens: Path | None,
    insecure: bool,
) -> tuple[Address, Address | None, Protection]:
    """The addresses of the server and of metrics, and the protection; raises `WrongUse` if it is insecure."""
    protection = Protection.load(
        certificate=tls_certificate, key=tls_key, client_authority=client_authority, tokens=tokens, insecure=insecure
    )
    address = parse_address(listen)
    protection.check(address)
    metrics_address = None if metrics is None else parse_address(metrics)
    if metrics_address is not None:
        Protection(insecure=insecure).check(metrics_address)
    return address, metrics_address, protection


def announce(
    what: str,
    address: Address,
    metrics: Address | None,
    protection: Protection,
    limits: Any,
    as_json: bool,
    **more: Any,
) -> None:
    """Print that a server is ready, with its address, its security settings and its limits."""
    if as_json:
        about = {"serving": what, "address": str(address), "metrics": None if metrics is None else str(metrics)}
        print_json({**about, **more, "protection": protection.describe(), "limits": limits_of(limits)})
    else:
        print_line(
            f"{what} is ready at {address}" + ("" if metrics is None else f", metrics at http://{metrics}/metrics")
        )
        for name, value in more.items():
            inform(f"{name}: {value}")
        inform(f"clients: {protection.describe()}")
        inform(f"limits: {', '.join(_limit_text(*limit) for limit in limits_of(limits).items())}")
    if protection.insecure and not address.is_loopback:
        warn(f"{address} can be reached from other machines, and --insecure was given")
    sys.stdout.flush()


def _limit_text(name: str, number: int | float) -> str:
    words, _, unit = name.rpartition("_")
    if unit == "bytes":
        return f"{words.replace('_', ' ')} {format_size(int(number))}"
    if unit == "seconds":
        return f"{words.replace('_', ' ')} {number:g} s"
    return f"{name.replace('_', ' ')} {number:g}"


def raise_file_limit(needed: int, whom: str) -> None:
    """Raise the limit of open files of this process; warn if the system does not allow as many as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < needed:
        warn(f"this process may open {possible} files, but {whom} may need {needed}: raise the limit (ulimit -n)")


@contextlib.asynccontextmanager
async def until_stopped() -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM and Ctrl-C set during the `with` block."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Print log messages of the library on stderr during the `with` block."""
    talking = _MessageHandler(logging.WARNING)
    logger = logging.getLogger("logwright")
    logger.addHandler(talking)
    try:
        yield
    finally:
        logger.removeHandler(talking)


class _MessageHandler(logging.Handler):
    """Prints log messages on stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())
