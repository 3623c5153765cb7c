"""`logwright serve kestrel`: serves the queues of a directory to memcache and Kestrel clients."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...core.io.durability import parse_sync
from ...errors import WrongUse
from ...servers.queue.limits import ServerLimits
from ...servers.security import descriptions
from ..arguments import Decorated, json_option, options, verb
from ..output import parse_size
from .common import announce, logs_on_stderr, protection_of, raise_file_limit, security_options, until_stopped

if TYPE_CHECKING:
    from ...kestrel.bytes.records import Dialect
    from ...servers.queue.service import ServerSettings

DEFAULT_PORT: Final = 22133
"""Kestrel's."""
_OTHER_FILES: Final = 400
"""File descriptors besides those of clients and queues, such as clients in a TLS handshake."""
_OF_ALL_QUEUES: Final = (
    *("max_items", "max_bytes", "discard_old_when_full", "max_age", "max_memory_bytes"),
    *("expire_to", "max_attempts", "retry_delay", "max_retry_delay", "id_window", "max_ids"),
)


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
    help = descriptions(ServerLimits)
    for field in reversed(dataclasses.fields(ServerLimits)):
        option = f"--{field.name.removesuffix('_bytes').replace('_', '-')}"
        is_size = field.name.endswith("_bytes")
        kind: Any = _Size() if is_size else type(field.default)
        shown = "SIZE" if is_size else "SECONDS" if field.name.endswith("_seconds") else "N"
        function = click.option(
            option, field.name, metavar=shown, type=kind, default=field.default, show_default=True,
            help=help[field.name],
        )(function)  # fmt: skip
    return function


_queue_options = options(
    click.option("--queue-items", "max_items", metavar="N", type=int, help="The most items that wait in a queue."),
    click.option(
        "--queue-size", "max_bytes", metavar="SIZE", type=_Size(), help="The most bytes of data that wait in a queue."
    ),
    click.option(
        "--discard-old",
        "discard_old_when_full",
        is_flag=True,
        help="Drop the oldest items instead of refusing new ones.",
    ),
    click.option("--max-age", metavar="SECONDS", type=float, help="The age at which items expire."),
    click.option(
        "--queue-memory", "max_memory_bytes", metavar="SIZE", type=_Size(), help="Data of a queue kept in memory."
    ),
    click.option("--expire-to", metavar="QUEUE", help="Move expired items to this queue instead of removing them."),
    click.option(
        "--max-attempts", metavar="N", type=int, help="Move an item that was put back this often to QUEUE_parked."
    ),
    click.option(
        "--retry-delay",
        metavar="SECONDS",
        type=float,
        help="How long an item that was put back waits; twice as long after each further attempt.",
    ),
    click.option(
        "--max-retry-delay", metavar="SECONDS", type=float, help="The longest of these delays.  [default: 3600]"
    ),
    click.option(
        "--id-window",
        metavar="SECONDS",
        type=float,
        help="How long a set with an id that was used adds nothing.  [default: 3600]",
    ),
    click.option("--max-ids", metavar="N", type=int, help="The most ids that are remembered.  [default: 100000]"),
    click.option(
        "--queues",
        "named",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Options of single queues (TOML): max_items, expire_to, max_attempts, park and others.",
    ),
)


@verb(
    "kestrel",
    examples=[
        ("serve the queues of a directory, until Ctrl-C", "logwright serve kestrel queues"),
        (
            "on a free port, printed as JSON; sync before every answer",
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
    help="When to sync: none (survives the process only), interval(MS), always (before each answer).",
)
@click.option(
    "--dialect",
    type=click.Choice(["auto", "kestrel2", "documented"]),
    default="auto",
    show_default=True,
    help="The dialect of journals. auto: that of each journal, and kestrel2 (Kestrel 2.1 and later) for new ones.",
)
@click.option(
    "--kestrel-names",
    is_flag=True,
    help="Answer exactly as Kestrel: VALUE NAME to get NAME/open, and its answers to flush_all and delete.",
)
@click.option(
    "--status-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep the status that a client has set in this file; otherwise every start is UP.",
)
@security_options(DEFAULT_PORT)
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
    **given: Any,
) -> None:
    """Serve the queues of a directory to clients of memcached and Kestrel.

    The protocol is memcached's text protocol with Kestrel's commands. A queue is created when a client names it. One
    process has a queue at a time: the server takes the locks of all queues in the directory.
    """
    from ...kestrel.model.limits import Limits
    from ...servers.queue.limits import load_named
    from ...servers.queue.server import run
    from ...servers.queue.service import ServerSettings

    names = [field.name for field in dataclasses.fields(ServerLimits)]
    limits = ServerLimits(**{name: given.pop(name) for name in names})
    common = {name: given.pop(name) for name in _OF_ALL_QUEUES}
    queues = Limits(**{name: value for name, value in common.items() if value is not None})
    file = given.pop("named")
    named = {} if file is None else load_named(file, parse_size, queues, directory)
    address, metrics, protection = protection_of(given.pop("listen"), given.pop("metrics"), **given)
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
    with logs_on_stderr():
        run(_serve(settings, as_json))


async def _serve(settings: ServerSettings, as_json: bool) -> None:
    from ...servers.queue.server import QueueServer

    async with until_stopped() as stopped, QueueServer(settings) as server:
        announce(
            f"the queue server of {settings.directory}",
            server.address,
            server.metrics_address,
            settings.protection,
            settings.limits,
            as_json,
            sync=str(settings.sync),
            status=server.service.status,
            queues=len(server.service.queues.by_key),
        )
        await stopped.wait()
