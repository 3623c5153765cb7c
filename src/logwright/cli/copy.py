"""`logwright copy`: a sej journal to a hub, once or for as long as it is written, and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ..core.format import find_format
from ..errors import LogwrightError, WrongUse
from .arguments import chosen_format, damage_placed, format_option, json_option, path_argument, verb
from .output import print_json, print_line, progress_bar
from .serve_hub import hub_package
from .serving import logged_aloud, until_stopped
from .times import format_size


@verb(
    "copy",
    examples=[
        ("what there is, to a hub on this machine", "logwright copy orders 127.0.0.1:7878 --client web1"),
        (
            "and go on with what is appended, until Ctrl-C",
            "logwright copy orders 127.0.0.1:7878 --client web1 --follow",
        ),
        (
            "the shards below a root, under a name of theirs",
            "logwright copy events 127.0.0.1:7878 --client web1 --name events",
        ),
        (
            "on a new machine, from the hub",
            "logwright copy restored 127.0.0.1:7878 --client web1 --name orders --restore",
        ),
    ],
)
@path_argument
@click.argument("address", metavar="HOST:PORT")
@click.option("--client", metavar="ID", required=True, help="Whose journal this is: letters, digits, _ and -.")
@click.option("--name", metavar="NAME", help="What it is called on the hub; by default as its directory.")
@click.option(
    "--follow", is_flag=True, help="Go on with what is appended, also after failures, until SIGTERM or Ctrl-C."
)
@click.option("--restore", "backwards", is_flag=True, help="The other way: write the journal from the copy on the hub.")
@click.option(
    "--shards", is_flag=True, help="With --restore: all shards that were copied without --name, each below PATH."
)
@click.option("--token", metavar="FILE", type=click.Path(path_type=Path), help="A file with the token; mode 600.")
@click.option("--tls", is_flag=True, help="Use TLS, with the authorities that this machine trusts.")
@click.option(
    "--tls-authority",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use TLS; who signed the hub's certificate.",
)
@click.option(
    "--tls-certificate", metavar="FILE", type=click.Path(path_type=Path), help="The client's certificate (PEM)."
)
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its key (PEM); mode 600.")
@click.option("--insecure", is_flag=True, help="Send it elsewhere without TLS.")
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
    """Copy a sej journal, or all shards below a root, to a hub; with --restore from there.

    What the hub has already is not sent again, so it can be interrupted and repeated at will. The copy has the same
    bytes in the same files. Something missing between is an error, and so is a copy of another journal.
    """
    if follow and backwards:
        raise WrongUse("--follow is for copies to a hub: --restore has an end")
    if shards and (not backwards or name is not None):
        raise WrongUse("--shards goes with --restore and without --name: it is for shards that were copied without one")
    room = hub_package()
    format = find_format("sej") if backwards and format_name is None else chosen_format(path, format_name)
    if format.name != "sej":
        raise WrongUse(f"{path}: a hub takes sej journals, and this is one of the format {format.name}")
    access = room.Access.load(
        address,
        token=token,
        tls=tls,
        authority=tls_authority,
        certificate=tls_certificate,
        key=tls_key,
        insecure=insecure,
    )
    with _damage_placed(path, room), logged_aloud():
        if backwards:
            with _counting_bar(path) as progress:
                options = {"client": client, "name": name, "all_shards": shards, "progress": progress}
                restored = asyncio.run(room.restore_path(access, path, **options))
            for done in restored:
                _print(done, {"restored": str(done.directory)}, as_json)
        else:
            asyncio.run(_send(room, access, path, client, name, follow, as_json))


@contextlib.contextmanager
def _damage_placed(path: Path, room: Any) -> Iterator[None]:
    """Let damage be told with the path that it is in, unless it is in the copy: the hub tells where that is."""
    in_copy: LogwrightError | None = None
    with damage_placed(path):
        try:
            yield
        except room.DamagedCopy as error:
            in_copy = error
    if in_copy is not None:
        raise in_copy


async def _send(room: Any, access: Any, path: Path, client: str, name: str | None, follow: bool, as_json: bool) -> None:
    """Send until it is done, or until somebody stops us: then as far as it came."""
    failures: list[LogwrightError] = []

    def told(sent: Any) -> None:
        _print(sent, {"failures": sent.failures}, as_json)

    with _bar(path, follow) as bar:
        async with until_stopped() as stopped:
            options = {"progress": bar, "told": told, "failed": failures.append}
            sending = asyncio.ensure_future(
                room.send_path(access, path, client=client, name=name, follow=follow, **options)
            )
            stopping = asyncio.ensure_future(stopped.wait())
            await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if stopped.is_set() and not sending.done():
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
                if failures:  # of one shard of many: the others went on, but all is not well
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
    """A bar that is told what has come since the last time: how much there is, a hub does not say."""
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
        print_line(f"{done.journal}: {done.messages} messages ({size}), goes on with offset {done.next_offset}")
