"""The command line. A verb has a file of its own, or shares one with verbs of the same subject; see `_command`.

Data goes to stdout, messages to stderr. The exit code is 0 for success, 1 for damage found, 2 for wrong use or
unreadable files, and 130 after Ctrl-C. An error is always one line, never a traceback. When the reader of our output
goes away (`| head`), we exit silently.

A verb is imported when it is used, and its libraries (pyarrow, rich) when they are needed, so `--help` and completion
are fast.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import get_completion_class

from ..core.options import suggest
from ..errors import DamagedJournal, LogwrightError
from .arguments import CONTEXT_SETTINGS, DAMAGE_FOUND, GOOD, WRONG_USE, Verb, verb
from .output import inform

PROGRAM: Final = "logwright"
COMPLETION_VARIABLE: Final = "_LOGWRIGHT_COMPLETE"
VERBS: Final = {
    "inspect": "What this is: format, files, records, bytes, first and last, health.",
    "dump": "Every record in journal order.",
    "tail": "The last records; with -f also new ones.",
    "count": "Count records, in a range.",
    "stats": "Records and bytes by key, type, operation and minute.",
    "verify": "Check everything; each problem with its file and position.",
    "repair": "Preview, carry out or undo a repair.",
    "state": "The state of the journal, now or at a time.",
    "history": "All changes of one key or item.",
    "diff": "What changed between two points.",
    "changes": "The changes of stores and queues, as they are made.",
    "sql": "SQL over journals, in one query or at a prompt.",
    "append": "Lines on standard input become records.",
    "convert": "To another journal, Parquet, JSON lines, CSV or a database, and back.",
    "offsets": "The offsets of the consumers.",
    "reset": "Move a consumer to an offset or a time.",
    "clean": "Remove old segments that no consumer needs.",
    "unpark": "Put parked items back into their queue.",
    "serve": "Servers over journals.",
    "web": "A page over journals, for a browser.",
    "copy": "Copy a journal to a hub, or back.",
    "pipeline": "Journals as tables on Spark, and back.",
    "demo": "Write sample journals, and run the other verbs on them.",
    "doctor": "What is missing on this machine, and how to get it.",
    "torture": "Kill writers on a disk, and check what they have acknowledged.",
    "completion": "The completion script of a shell.",
}
"""The verbs and their descriptions: kept here, so that listing them imports none of them."""
_INTERRUPTED: Final = 130
"""What shells report for a program ended by Ctrl-C: 128 plus the signal's number."""


class Verbs(click.Group):
    """The verbs, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}; {suggest(name, VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _command(name: str) -> click.Command | None:
    """The command of a verb, which is loaded here; None if there is none."""
    command: click.Command
    match name:
        case "inspect":
            from .inspect import command
        case "dump":
            from .dump import command
        case "tail":
            from .tail import command
        case "count":
            from .count import command
        case "stats":
            from .stats import command
        case "verify":
            from .verify import command
        case "repair":
            from .repair import command
        case "state":
            from .state import state as command
        case "history":
            from .state import history as command
        case "diff":
            from .state import diff as command
        case "changes":
            from .changes import command
        case "sql":
            from .sql import command
        case "append":
            from .append import command
        case "convert":
            from .convert import command
        case "offsets":
            from .consumers import offsets as command
        case "reset":
            from .consumers import reset as command
        case "clean":
            from .consumers import clean as command
        case "unpark":
            from .unpark import command
        case "serve":
            from .serve import command
        case "web":
            from .web import command
        case "copy":
            from .serve.hub import copy as command
        case "pipeline":
            from .pipeline import command
        case "demo":
            from .demo import command
        case "doctor":
            from .doctor import command
        case "torture":
            from .torture import command
        case "completion":
            return completion
        case _:
            return None
    return command


def _print_version(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        from .doctor import print_version

        print_version()
        context.exit()


@click.group(
    cls=Verbs, no_args_is_help=False, subcommand_metavar="VERB [ARGUMENTS]...", context_settings=CONTEXT_SETTINGS
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and which kernels are compiled.",
)
def commands() -> None:
    """Read, check, repair and convert append-only journals.

    Every verb detects the format, and prints tables, or JSON with --json; its --help has examples. Data goes to stdout,
    messages to stderr. Exit codes: 0 success, 1 damage found, 2 wrong use or unreadable.
    """


@verb(
    "completion",
    examples=[
        ("bash: put this into ~/.bashrc", 'eval "$(logwright completion bash)"'),
        ("zsh: once, and then in every new shell", "logwright completion zsh >> ~/.zshrc"),
        ("fish: once", "logwright completion fish > ~/.config/fish/completions/logwright.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    completer = get_completion_class(shell)
    assert completer is not None, "click knows all three"
    sys.stdout.write(completer(commands, {}, PROGRAM, COMPLETION_VARIABLE).source())


def every_verb() -> Iterator[tuple[str, Verb]]:
    """All verbs with their full names, including those of groups (`pipeline run`)."""
    context = click.Context(commands, info_name=PROGRAM)
    for name in VERBS:
        command = commands.get_command(context, name)
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            assert isinstance(below, Verb)
            yield f"{name} {below.name}", below
        if isinstance(command, Verb):
            yield name, command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit code."""
    _prepare_streams()
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return GOOD
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except click.ClickException as error:
        return _fail(_usage_message(error), error.exit_code)
    except DamagedJournal as error:
        return _fail(str(error), DAMAGE_FOUND)
    except (LogwrightError, OSError) as error:
        return _fail(str(error), WRONG_USE)
    except MemoryError:
        return _fail("not enough memory", WRONG_USE)


def _prepare_streams() -> None:
    """Make closed streams empty, and output survive names that are not valid text."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    if COMPLETION_VARIABLE in os.environ:
        commands.main(arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
    arguments = arguments or ["--help"]
    try:
        with commands.make_context(PROGRAM, arguments) as context:
            return commands.invoke(context) or 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".").replace("\n\t", " ")  # click lists choices over several lines
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see '{context.command_path} --help')" if context is not None else message


def _fail(message: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    inform(f"error: {message}")
    return code


def _discard_output() -> None:
    """Redirect buffered output to nowhere after the reader is gone, so that the exit does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
