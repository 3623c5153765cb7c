"""`logwright serve`: the servers, one verb and one file each."""

from __future__ import annotations

import click

from ..arguments import CONTEXT_SETTINGS
from .hub import hub
from .kestrel import kestrel


@click.group(
    "serve", no_args_is_help=False, context_settings=CONTEXT_SETTINGS, subcommand_metavar="SERVER [ARGUMENTS]..."
)
def command() -> None:
    """Run a server until SIGTERM or Ctrl-C.

    Servers listen on loopback. Another address needs TLS, and tokens or client certificates, or --insecure.
    """


command.add_command(hub)
command.add_command(kestrel)
