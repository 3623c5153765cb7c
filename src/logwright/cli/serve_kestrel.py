"""`logwright serve kestrel`: the queues of a directory, for clients of memcached and Kestrel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.io.durability import parse_sync
from ..errors import WrongUse
from ..servers.kestrel.limits import ServerLimits
from .arguments import Decorated, json_option, verb
from .serving import announce, logged_aloud, protection_of, raise_file_limit, safety_options, until_stopped
from .times import parse_size

if TYPE_CHECKING:
    from ..kestrel.bytes.records import Dialect
    from ..servers.kestrel.server import ServerSettings

DEFAULT_PORT: Final = 22133
"""Kestrel's."""
_OTHER_FILES: Final = 400
"""For clients that are about to set up TLS, among others."""
_OF_ALL_QUEUES: Final = (
    *("max_items", "max_bytes", "discard_old_when_full", "max_age", "max_memory_bytes"),
    *("expire_to", "max_attempts"),
)
_ABOUT: Final = {
    "max_connections": "Clients at a time.",
    "max_queues": "Queues that there may be.",
    "max_line_bytes": "The longest command, its data aside.",
    "max_key_bytes": "The longest name of a queue with its options.",
    "max_item_bytes": "The largest item.",
    "max_arriving_bytes": "Data of items that have arrived in part, of all clients together.",
    "max_open_reads": "Items of a queue that a client may have open by /open.",
    "max_monitored_items": "And by monitor.",
    "max_wait_seconds": "The longest that a get or a monitor waits.",
    "input_buffer_bytes": "Commands that are held for a client that waits.",
    "output_buffer_bytes": "Answers that are held for a client that does not take them.",
    "handshake_seconds": "How long a client may take for TLS and its token.",
    "command_seconds": "How long a command may take to arrive.",
    "answer_seconds": "How long a client may leave its answers.",
    "idle_seconds": "How long a client may say nothing.",
    "stop_seconds": "How long clients have to take their last answers when the server stops.",
    "keep_free_bytes": "Space on the disk below which nothing is put.",
    "retry_seconds": "How long a queue whose disk has failed takes nothing.",
    "sweep_seconds": "How often expired items are removed that nobody asks for.",
}


class _Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 64k or 1MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(str(value))
        except WrongUse as error:
            self.fail(str(error), param, ctx)


def _limit_options(function: Decorated) -> Decorated:
    """An option for each limit of the server."""
    for field in reversed(dataclasses.fields(ServerLimits)):
        option = f"--{field.name.removesuffix('_bytes').replace('_', '-')}"
        is_size = field.name.endswith("_bytes")
        kind: Any = _Size() if is_size else type(field.default)
        shown = "SIZE" if is_size else "SECONDS" if field.name.endswith("_seconds") else "N"
        function = click.option(
            option, field.name, metavar=shown, type=kind, default=field.default, show_default=True,
            help=_ABOUT[field.name],
        )(function)  # fmt: skip
    return function


def _queue_options(function: Decorated) -> Decorated:
    """What a queue may be told."""
    options: list[Callable[[Decorated], Decorated]] = [
        click.option("--queue-items", "max_items", metavar="N", type=int, help="Items that may wait in a queue."),
        click.option("--queue-size", "max_bytes", metavar="SIZE", type=_Size(), help="And their data together."),
        click.option("--discard-old", "discard_old_when_full", is_flag=True, help="Then the oldest items make room."),
        click.option("--max-age", metavar="SECONDS", type=float, help="Items expire when they are so old."),
        click.option(
            "--queue-memory", "max_memory_bytes", metavar="SIZE", type=_Size(), help="Data of a queue held in memory."
        ),
        click.option("--expire-to", metavar="QUEUE", help="Where expired items go, in the place of being removed."),
        click.option(
            "--max-attempts", metavar="N", type=int, help="An item that was put back so often goes to QUEUE_parked."
        ),
        click.option(
            "--queues",
            "named",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="What is different for some queues (TOML): max_items, expire_to, max_attempts, park and others.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@verb(
    "kestrel",
    examples=[
        ("the queues of a directory, until Ctrl-C", "logwright serve kestrel queues"),
        (
            "on a port that is free, which is in the JSON that it prints; every answer is on the disk",
            "logwright serve kestrel queues --listen 127.0.0.1:0 --json --sync always",
        ),
        (
            "for other machines: TLS, tokens, and metrics",
            "logwright serve kestrel queues --listen 0.0.0.0:22133 --tls-certificate server.crt --tls-key server.key "
            "--tokens server.tokens --metrics 127.0.0.1:9133",
        ),
    ],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--sync",
    default="none",
    show_default=True,
    metavar="POLICY",
    help="What an answer promises: none (it survives the process), interval(MS), always (it is on the disk).",
)
@click.option(
    "--dialect",
    type=click.Choice(["auto", "kestrel2", "documented"]),
    default="auto",
    show_default=True,
    help="What journals are written in. auto: as each one is, and a new one for Kestrel 2.1 and later (kestrel2).",
)
@click.option(
    "--kestrel-names",
    is_flag=True,
    help="Answer in Kestrel's words: VALUE NAME to get NAME/open, and what flush_all and delete answer there.",
)
@click.option(
    "--status-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep the status that a client has set in this file; without it every start is UP.",
)
@safety_options(DEFAULT_PORT)
@_queue_options
@_limit_options
@json_option
def kestrel(
    directory: Path,
    sync: str,
    dialect: Dialect,
    kestrel_names: bool,
    status_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Serve the queues of a directory to clients of memcached and Kestrel.

    The protocol is memcached's text protocol with Kestrel's commands. A queue is created when a client names it. One
    process has a queue at a time: the server takes the locks of all queues in the directory.
    """
    from ..kestrel.model.limits import Limits
    from ..servers.kestrel.options import load_named
    from ..servers.kestrel.server import ServerSettings, run

    names = [field.name for field in dataclasses.fields(ServerLimits)]
    limits = ServerLimits(**{name: options.pop(name) for name in names})
    given = {name: options.pop(name) for name in _OF_ALL_QUEUES}
    queues = Limits(**{name: value for name, value in given.items() if value is not None})
    file = options.pop("named")
    named = {} if file is None else load_named(file, parse_size, queues, directory)
    address, metrics, protection = protection_of(options.pop("listen"), options.pop("metrics"), **options)
    settings = ServerSettings(
        directory=directory,
        address=address,
        metrics=metrics,
        sync=parse_sync(sync),
        dialect=dialect,
        limits=limits,
        queues=queues,
        named=named,
        protection=protection,
        kestrel_names=kestrel_names,
        status_file=status_file,
    )
    # A file for every client, and three for every queue.
    raise_file_limit(limits.max_connections + 3 * limits.max_queues + _OTHER_FILES, "clients and queues")
    with logged_aloud():
        run(_serve(settings, as_json))


async def _serve(settings: ServerSettings, as_json: bool) -> None:
    from ..servers.kestrel.server import QueueServer

    async with until_stopped() as stopped, QueueServer(settings) as server:
        announce(
            f"the queue server of {settings.directory}",
            server.address,
            server.metrics_address,
            settings.protection,
            settings.limits,
            as_json,
            sync=str(settings.sync),
            status=server.status,
            queues=len(server.queues.by_key),
        )
        await stopped.wait()
