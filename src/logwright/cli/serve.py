"""`logwright serve`: the servers, each a verb of its own in the file `serve_NAME.py`."""

from __future__ import annotations

import click

from .arguments import CONTEXT_SETTINGS
from .serve_hub import hub
from .serve_kestrel import kestrel


@click.group(
    "serve", no_args_is_help=False, context_settings=CONTEXT_SETTINGS, subcommand_metavar="SERVER [ARGUMENTS]..."
)
def command() -> None:
    """Servers over journals, until SIGTERM or Ctrl-C.

    They listen on loopback. Another address needs TLS, and tokens or certificates of the clients, or --insecure.
    """


command.add_command(hub)
command.add_command(kestrel)
