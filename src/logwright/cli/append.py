"""`logwright append`: lines on standard input become records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.format import BatchWriter, Format, detect, find_format
from ..core.io.disk import REAL_DISK
from ..core.io.durability import parse_sync
from ..errors import WrongUse
from .arguments import GOOD, journal_verb
from .output import inform, print_json, print_line

if TYPE_CHECKING:
    from ..arrow.json_rows import JsonRows

_READ_BYTES: Final = 1 << 20
_MOST_LINE_BYTES: Final = 1 << 30
_RAW: Final = {"sej": "value", "kestrel": "data", "appendfile": "data"}
"""The field that a raw line becomes."""


@journal_verb(
    "append",
    examples=[
        ("each line a message", "printf 'one\\ntwo\\n' | logwright append notes --format sej --raw"),
        ("with a key and a type", "echo three | logwright append notes --raw --key customer/ada --type 1"),
        ("copy what matches", "logwright dump orders --json --key customer/ada | logwright append ada --format sej"),
    ],
)
@click.option("--raw", is_flag=True, help="Each line is the value of a record, as it is, instead of JSON.")
@click.option("--key", metavar="KEY", help="The key of the records, with --raw to sej.")
@click.option("--type", "type_", metavar="N", type=click.IntRange(0, 255), help="The type of the records, likewise.")
@click.option(
    "--sync",
    metavar="POLICY",
    default="always",
    show_default=True,
    help="When records are durable: always, interval(MS), or none, which leaves it to the system.",
)
def command(
    path: Path,
    raw: bool,
    key: str | None,
    type_: int | None,
    sync: str,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Append a record to a journal for each line on standard input, and create the journal if there is none.

    A line is a JSON object as `dump --json` prints it, of which the place and the offset are ignored, or with --raw the
    value itself. Lines are appended as they arrive. With --sync always, those that arrive together are synced together.
    When this exits with 0, all records are in the journal, and durable unless --sync is none. A line that cannot become
    a record is an error with its number (exit code 2): the records of the lines before it have been appended.

    `dump --json | append` writes the same bytes for each record. Exceptions: heads of files and copies by compaction in
    versioned, which a store writes itself, are left out; segments of appendfile get new ids, in a new journal from 0;
    an incomplete transaction of yeltsin cannot be appended. Raw lines are for sej, kestrel and appendfile.
    """
    parse_sync(sync)
    format = _format_of(path, format_name)
    add = _adder(format, raw, key, type_)
    from ..arrow.json_rows import JsonRows

    rows = JsonRows(format)
    with ExitStack() as stack:
        appender = _Appender(stack, format, path, sync)
        line = 0
        for lines in _lines(sys.stdin.buffer.fileno()):
            try:
                try:
                    for text in lines:
                        line += 1
                        if raw or text.strip():
                            add(rows, text, line)
                finally:
                    appender.write(rows)  # also what precedes a broken line
            except WrongUse as error:
                hint = "" if raw or format.name not in _RAW else "; with --raw each line is a value"
                raise WrongUse(f"{error}; {_count(rows.records)} appended before it{hint}") from None
    if rows.skipped:
        inform(f"left out: {rows.skipped} heads of files or copies of earlier changes, which a store writes itself")
    print_json({"records": rows.records}) if as_json else print_line(f"{path}: {_count(rows.records)} appended")
    return GOOD


def _count(records: int) -> str:
    return f"{records} record{' was' if records == 1 else 's were'}"


def _format_of(path: Path, name: str | None) -> Format:
    if name is not None:
        return find_format(name)
    if not REAL_DISK.exists(path):
        raise WrongUse(f"{path} does not exist: give the format of the new journal with --format")
    return detect(path)


def _adder(format: Format, raw: bool, key: str | None, type_: int | None) -> Callable[[JsonRows, bytes, int], None]:
    """How a line becomes a record."""
    import base64

    if not raw:
        if key is not None or type_ is not None:
            raise WrongUse("--key and --type are for --raw: objects have their own")
        return lambda rows, text, line: rows.add_text(text, line)
    if format.name not in _RAW:
        raise WrongUse(f"a raw line cannot become a record of {format.name}, which needs more fields: give JSON")
    if (key is not None or type_ is not None) and format.name != "sej":
        raise WrongUse(f"records of {format.name} have no key and no type")
    common: dict[str, Any] = {}
    if format.name == "sej":
        import time

        common = {"key": base64.b64encode((key or "").encode("utf-8", "surrogateescape")).decode(), "type": type_ or 0}
        return lambda rows, text, line: rows.add(
            {**common, "timestamp": time.time_ns(), "value": base64.b64encode(text).decode()}, line
        )
    kind = {"op": "addx"} if format.name == "kestrel" else {"kind": "data"}
    return lambda rows, text, line: rows.add({**kind, _RAW[format.name]: base64.b64encode(text).decode()}, line)


def _lines(descriptor: int) -> Iterator[list[bytes]]:
    """The complete lines that arrive together, without their ends; at the end of the input, the rest."""
    rest = b""
    while data := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MOST_LINE_BYTES:
            raise WrongUse(f"a line has more than {_MOST_LINE_BYTES} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


class _Appender:
    """The writers of a journal and of its parts, opened when they are needed."""

    def __init__(self, stack: ExitStack, format: Format, path: Path, sync: str) -> None:
        self._stack = stack
        self._format = format
        self._path = path
        self._sync = sync
        self._writers: dict[str, BatchWriter] = {}

    def write(self, rows: JsonRows) -> None:
        for part, batch in rows.take():
            if part not in self._writers:
                opened = self._format.open_appender(self._path, part, sync=self._sync)
                self._writers[part] = self._stack.enter_context(opened)
            self._writers[part].append_batch(batch)
