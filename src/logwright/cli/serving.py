"""What the servers' verbs have in common: their options, what they print at the start, and how they end.

A server prints one line of data when it is ready, with its address: whoever let the system choose a port reads it
there. What it asks of its clients and its limits go to stderr. SIGTERM and Ctrl-C end it cleanly, with exit code 0:
what was acknowledged is on the disk, as it was before.
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

from ..servers.safety import Address, Protection, limits_of, parse_address
from .arguments import Decorated
from .output import print_json, print_line, talk, warn
from .times import format_size


def safety_options(default_port: int) -> Callable[[Decorated], Decorated]:
    """`--listen --tls-certificate --tls-key --client-authority --tokens --insecure --metrics`; see `protection_of`."""
    file = click.Path(path_type=Path)
    options = [
        click.option(
            "--listen",
            metavar="HOST:PORT",
            default=f"127.0.0.1:{default_port}",
            show_default=True,
            help="Where to listen; port 0 takes a free one. Beyond loopback it needs TLS, and tokens or certificates.",
        ),
        click.option("--tls-certificate", metavar="FILE", type=file, help="The server's certificate chain (PEM)."),
        click.option("--tls-key", metavar="FILE", type=file, help="Its key (PEM), in a file that is its owner's only."),
        click.option(
            "--client-authority", metavar="FILE", type=file, help="Ask clients for a certificate that this one signed."
        ),
        click.option(
            "--tokens", metavar="FILE", type=file, help="Ask clients for one of these tokens, a line each; mode 600."
        ),
        click.option("--insecure", is_flag=True, help="Listen there although anybody may connect, or listen in."),
        click.option("--metrics", metavar="HOST:PORT", help="Answer Prometheus there: GET /metrics, plain HTTP."),
    ]

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


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
    """Where to listen, where metrics are, and what clients need; `WrongUse` when that would let strangers in."""
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
    """Say that a server is ready: where, for whom, and within which limits."""
    if as_json:
        about = {"serving": what, "address": str(address), "metrics": None if metrics is None else str(metrics)}
        print_json({**about, **more, "protection": protection.describe(), "limits": limits_of(limits)})
    else:
        print_line(
            f"{what} is ready at {address}" + ("" if metrics is None else f", metrics at http://{metrics}/metrics")
        )
        for name, value in more.items():
            talk(f"{name}: {value}")
        talk(f"clients: {protection.describe()}")
        talk(f"limits: {', '.join(_limit_text(*limit) for limit in limits_of(limits).items())}")
    if protection.insecure and not address.is_loopback:
        warn(f"{address} can be reached from elsewhere, and --insecure was given")
    sys.stdout.flush()


def _limit_text(name: str, number: int | float) -> str:
    words, _, unit = name.rpartition("_")
    if unit == "bytes":
        return f"{words.replace('_', ' ')} {format_size(int(number))}"
    if unit == "seconds":
        return f"{words.replace('_', ' ')} {number:g} s"
    return f"{name.replace('_', ' ')} {number:g}"


def raise_file_limit(needed: int, whom: str) -> None:
    """Let this process open so many files, if the system allows it; else say for whom they may not suffice."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < needed:
        warn(f"this process may open {possible} files, and so many {whom} could need {needed} (ulimit -n)")


@contextlib.asynccontextmanager
async def until_stopped() -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM and Ctrl-C set, for as long as the block lasts."""
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
def logged_aloud() -> Iterator[None]:
    """Let what the library logs meanwhile be lines of this program."""
    talking = _Talk(logging.WARNING)
    logger = logging.getLogger("logwright")
    logger.addHandler(talking)
    try:
        yield
    finally:
        logger.removeHandler(talking)


class _Talk(logging.Handler):
    """What is logged, on stderr, in one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())
