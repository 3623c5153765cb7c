"""`logwright copy`: copies a sej journal to a hub, once or continuously, or back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ..core.format import find_format
from ..errors import LogwrightError, WrongUse
from .arguments import chosen_format, format_option, json_option, naming_path, path_argument, verb
from .output import print_json, print_line, progress_bar
from .serve.common import logs_on_stderr, until_stopped
from .serve.hub import hub_package
from .units import format_size


@verb(
    "copy",
    examples=[
        ("copy a journal to a hub on this machine", "logwright copy orders 127.0.0.1:7878 --client web1"),
        (
            "and continue with new messages, until Ctrl-C",
            "logwright copy orders 127.0.0.1:7878 --client web1 --follow",
        ),
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
@path_argument
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
@format_option
@json_option
def command(
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
