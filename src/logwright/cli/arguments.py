"""What the verbs share: their class, their options, and how they open a journal.

A verb is a `click.Command` made by `verb`, or by `journal_verb` if it works on a journal. Its examples are in its help
and in `docs/cli.md`, and a test runs them. It returns its exit code: None or 0 for success, 1 for damage found. Errors
are raised; `main` turns them into one line and an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, fields
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..core.bytes.outcome import MODES, Damage, Mode
from ..core.format import FORMATS, Format, Located, Reader, detect, find_format, find_half_done, open_journal
from ..core.io.disk import REAL_DISK
from ..core.io.file_names import printed
from ..core.times import parse_time
from ..errors import AmbiguousFormat, LogwrightError, UnknownFormat, WrongUse, renaming_damage
from ..values import DECODINGS, Decoder, decoder, read_schema
from .output import describe, is_terminal, place, warn

if TYPE_CHECKING:
    from ..arrow.selection import Selection

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Example = tuple[str, str]
"""A description and a command line."""

GOOD: Final = 0
DAMAGE_FOUND: Final = 1
WRONG_USE: Final = 2
_HALF_DONE: Final = "logwright.half_done"
"""Set in the context of a verb that has opened a journal whose repair is half done."""
_MOST_NAMES: Final = 8
"""How many journals a message lists."""
CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verb(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[Example] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> Any:
        code = super().invoke(ctx)
        return DAMAGE_FOUND if _HALF_DONE in ctx.meta and not code else code

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for number, (purpose, line) in enumerate(self.examples):
                    if number:
                        formatter.write("\n")
                    formatter.write(f"{'':>{formatter.current_indent}}# {purpose}\n")
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


def verb(name: str, *, examples: Sequence[Example]) -> Callable[[Callable[..., Any]], Verb]:
    """Turn a function into a verb; its docstring is the help."""
    return click.command(name, cls=Verb, examples=examples, context_settings=CONTEXT_SETTINGS)


def journal_verb(name: str, *, examples: Sequence[Example]) -> Callable[[Callable[..., Any]], Verb]:
    """The same for a verb on a journal: adds `PATH` before its own parameters, `--format --json` after them."""

    def decorate(function: Callable[..., Any]) -> Verb:
        command = verb(name, examples=examples)(_path_argument(_format_option(json_option(function))))
        path, format_name, as_json, *own = command.params
        command.params = [path, *own, format_name, as_json]
        return command

    return decorate


def options(*given: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator, in their order."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(given):
            function = option(function)
        return function

    return decorate


def _grouped(name: str, kind: type, *given: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options as one parameter of a verb, whose type is a dataclass with their values."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def with_group(**values: Any) -> Any:
            return function(**{name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})}, **values)

        return options(*given)(with_group)

    return decorate


# --- options --------------------------------------------------------------------------------------------------------


class JournalPath(click.Path):
    """The path of a journal. A link to a file is followed here, where the user has named it, and nowhere else.

    The journal is where the file is, with its other files, its locks and its `.logwright` directory.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)  # which says only that click does not check it

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if REAL_DISK.is_link(path) and not REAL_DISK.is_directory(path):
            return Path(os.path.realpath(path))
        return path


_path_argument = click.argument("path", type=JournalPath())
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
local_option = click.option("--local", is_flag=True, help="Show and read times in local time instead of UTC.")
since_option = click.option(
    "--since", metavar="TIME", help="Begin with the first record that is not earlier than this."
)
until_option = click.option(
    "--until", metavar="TIME", help="End before the first record that is not earlier than this."
)
type_option = click.option(
    "--type",
    "type_",
    metavar="N",
    type=click.IntRange(0, 255),
    help="Only records of this type, where records have one.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
mode_option = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="failfast",
    show_default=True,
    help="At damage: stop, show it and continue, or skip it.",
)
_format_option = click.option(
    "--format", "format_name", type=click.Choice(list(FORMATS)), help="The format of the journal; detected by default."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that a verb is for, and how their values are decoded."""

    key: str | None
    grep: str | None
    where: str | None
    decode: str | None
    schema: Path | None

    def decoder(self) -> Decoder | None:
        """The decoder of values; None for no decoding."""
        if self.decode is None:
            if self.schema is not None:
                raise WrongUse("--schema is for --decode avro")
            return None
        if self.decode == "avro" and self.schema is None:
            raise WrongUse("--decode avro needs the schema of the values: --schema FILE")
        return decoder(self.decode, None if self.schema is None else read_schema(REAL_DISK, self.schema))

    def choice(self, format: str, decode: Decoder | None) -> Selection | None:
        """What `--key`, `--grep` and `--where` choose; None without them."""
        if self.key is None and self.grep is None and self.where is None:
            return None
        from ..arrow.selection import Selection

        is_json = self.decode == "json"
        return Selection(
            find_format(format), key=self.key, grep=self.grep, where=self.where, decode=decode, is_json=is_json
        )


wanted_options = _grouped(
    "wanted",
    Wanted,
    click.option("--key", metavar="KEY", help="Only records of this key, queue, segment or page."),
    click.option("--grep", metavar="REGEX", help="Only records whose key or value this regular expression finds."),
    click.option("--where", metavar="EXPR", help="Only records for which this condition of SQL holds."),
    click.option("--decode", type=click.Choice(DECODINGS), help="Decode the values."),
    click.option(
        "--schema",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The Avro schema of the values (.avsc), for --decode avro.",
    ),
)


class _Number(click.ParamType):  # type: ignore[type-arg]
    """The number of a record, or its place, `FILE@POSITION`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text.isascii() and text.isdigit():
            return int(text)
        if "@" not in text:
            self.fail(f"{text!r} is neither a number (0 or more) nor FILE@POSITION", param, ctx)
        return text


@dataclass(frozen=True, slots=True)
class Range:
    """A range of records, by offsets, places and times."""

    start: int | str | None = None
    stop: int | str | None = None
    since: str | None = None
    until: str | None = None
    local: bool = False

    def of(self, reader: Reader) -> tuple[Any, Any]:
        """The range of record numbers, for `Reader.scan`, that all bounds define together.

        In a journal of several parts, such as shards, a time is a different number in each: then a bound is a
        dictionary.
        """
        first, end = _find(reader, self.start), _find(reader, self.stop)
        if self.since is not None:
            first = _combine(reader.find_time(parse_time(self.since, local=self.local)), first, max)
        if self.until is not None:
            end = _combine(reader.find_time(parse_time(self.until, local=self.local)), end, min)
        return first, end


NUMBER: Final = _Number()
range_options = _grouped(
    "within",
    Range,
    click.option("--from", "start", metavar="NUMBER", type=NUMBER, help="Begin at this offset or FILE@POSITION."),
    click.option("--to", "stop", metavar="NUMBER", type=NUMBER, help="End before this offset or FILE@POSITION."),
    since_option,
    until_option,
    local_option,
)


# --- opening --------------------------------------------------------------------------------------------------------


def chosen_format(path: Path, format_name: str | None) -> Format:
    """The given format, or the one detected."""
    with _naming_journals_below(path):
        return detect(path) if format_name is None else find_format(format_name)


@contextmanager
def _naming_journals_below(path: Path) -> Iterator[None]:
    """If a directory is no journal, raise an error with the journals that are in it."""
    try:
        yield
    except AmbiguousFormat:
        raise
    except UnknownFormat:
        found = list(islice(_journals_below(path), _MOST_NAMES + 1))
        if not found:
            raise
        shown = ", ".join(found[:_MOST_NAMES]) + (", ..." if len(found) > _MOST_NAMES else "")
        raise UnknownFormat(f"{path} is not a journal, but has journals in it: {shown}; give the path of one") from None


def _journals_below(path: Path) -> Iterator[str]:
    for name in REAL_DISK.list_directory(path) if REAL_DISK.is_directory(path) else ():
        with suppress(LogwrightError):
            detect(path / name)
            yield printed(name)


@contextmanager
def opened(path: Path, format_name: str | None) -> Iterator[Reader]:
    """Open a journal for reading. Damage is raised with the path that the user gave.

    If a repair of it is half done, the verb says what to do next, and exits with 1.
    """
    with _naming_journals_below(path):
        journal = open_journal(path, format_name)
    with naming_path(path), journal as reader:
        half_done = find_half_done(path)
        if half_done is not None:
            warn(f"{half_done.log}: {half_done.describe()}; {half_done.next_steps()}")
            click.get_current_context().meta[_HALF_DONE] = True
        yield reader


def naming_path(path: Path) -> AbstractContextManager[None]:
    """Raise damage with the path that the user gave, not only with the file's name within the journal."""

    def named(file: str) -> str:
        is_full = Path(file).is_relative_to(path if path.is_dir() else path.parent)
        return file if is_full else place(path, file)

    return renaming_damage(named)


def warn_of_torn_tails(reader: Reader) -> None:
    """Warn of torn tails that the last pass found. They are not damage: the next writer cuts them off."""
    for damage in reader.all_torn_tails():
        warn(f"{describe(reader.path, damage)}: the next writer cuts it off and keeps it")


def warn_of_damage(path: Path, reader: Reader, damages: Iterable[Damage], prefix: str = "") -> int:
    """Warn of damage and of torn tails; the exit code."""
    found = [damage for damage in damages if damage.kind != "torn_tail"]
    for damage in found:
        warn(prefix + describe(path, damage))
    warn_of_torn_tails(reader)
    return DAMAGE_FOUND if found else GOOD


def warn_of_losses(path: Path, reader: Reader) -> None:
    """Warn that an answer may be another one than before a repair: the account says that records were lost."""
    try:
        lost = sum(loss.kind == "lost" for loss in reader.losses())
    except LogwrightError as error:
        warn(f"the account of losses cannot be read, so this answer may lack records: {error}")
    else:
        if lost:
            warn(f"records were lost, so this answer may lack them; `logwright verify {path}` lists the losses")


def scan_mode(mode: Mode) -> Mode:
    """The mode to scan in: also for `dropmalformed` damage must be seen, so that it can be reported."""
    return "failfast" if mode == "failfast" else "permissive"


def _find(reader: Reader, bound: int | str | None) -> Any:
    if bound is None:
        return None
    return reader.find_place(bound) if isinstance(bound, str) else reader.find_index(bound)


def _combine(found: Any, given: Any, choose: Callable[[int, int], int]) -> Any:
    if given is None:
        return found
    if isinstance(found, dict):
        bounds = {**found, **given} if isinstance(given, dict) else dict.fromkeys(found, given)
        return {name: choose(number, bounds[name]) for name, number in found.items()}
    return choose(found, given)


def find_point(reader: Reader, text: str, local: bool) -> int:
    """The record number of a point in a journal's past, given as a number, a place, or a time.

    In a format whose states are found by time, a number is a time in nanoseconds. In one whose records have no times,
    the only possible time is "now".
    """
    if reader.states_by_time:
        return parse_time(text, local=local)
    if text.isascii() and text.isdigit():
        return reader.find_index(int(text))
    if "@" in text:
        found = reader.find_place(text)
    elif text == "now" and not reader.has_times:
        found = reader.end
    else:
        found = reader.find_moment(parse_time(text, local=local))
    if isinstance(found, dict):
        raise WrongUse(f"{reader.path}: a different number in each part of the journal; give the path of one part")
    return found


def is_of_type(located: Located, type_: int | None) -> bool:
    """Whether a record has the given type, if there is one."""
    if type_ is None:
        return True
    found = getattr(located.record, "type", None)
    if found is None:
        raise WrongUse("records of this format have no type")
    return bool(found == type_)


def must_ask(what: str, yes: bool, *, preview: str = "--plan shows it, ") -> bool:
    """Whether to ask before doing `what`. Raises `WrongUse` if there is no terminal to ask on."""
    if yes:
        return False
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        raise WrongUse(f"{what} needs confirmation, and there is no terminal: {preview}--yes does it")
    return True


def confirmed(question: str) -> bool:
    """Ask the user; whether the answer is yes."""
    return click.confirm(question, err=True)
