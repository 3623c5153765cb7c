"""`logwright completion`: prints the completion script of a shell."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from .arguments import GOOD, verb


@verb(
    "completion",
    examples=[
        ("bash: put this into ~/.bashrc", 'eval "$(logwright completion bash)"'),
        ("zsh: once, and then in every new shell", "logwright completion zsh >> ~/.zshrc"),
        ("fish: once", "logwright completion fish > ~/.config/fish/completions/logwright.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script of a shell."""
    from . import COMPLETION_VARIABLE, PROGRAM, commands

    completer = get_completion_class(shell)
    assert completer is not None, "click knows all three"
    sys.stdout.write(completer(commands, {}, PROGRAM, COMPLETION_VARIABLE).source())
    return GOOD
