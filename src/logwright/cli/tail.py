"""`logwright tail`: the last records; with -f also new ones."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ..core.bytes.outcome import Damage, Mode
from ..core.format import Format, Located, Reader
from ..core.read.chunk import Choice
from ..errors import DamagedJournal, Gap, WrongUse
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    Range,
    Wanted,
    chosen_format,
    journal_verb,
    local_option,
    mode_option,
    opened,
    scan_mode,
    wanted_options,
    warn_of_torn_tails,
)
from .rows import Printer

_DEFAULT_COUNT = 10


@journal_verb(
    "tail",
    examples=[
        ("the last ten records", "logwright tail orders"),
        ("the last three, then each one that is appended, until Ctrl-C", "logwright tail orders -n 3 -f"),
        ("everything since a time, decoded", "logwright tail orders --since 2026-01-15T11:55:00Z --decode json"),
        ("the last three of one customer", "logwright tail orders -n 3 --key customer/ada"),
        ("follow all shards below a root, until nothing came for a second", "logwright tail events -f --timeout 1"),
    ],
)
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(min=0), help="The number of records; 10 unless --since is given."
)
@click.option(
    "-f", "--follow", is_flag=True, help="Print new records as they are appended, across files and new shards."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Stop following after this time without new records.",
)
@click.option("--since", metavar="TIME", help="All records since this time, unless -n is given too.")
@local_option
@wanted_options
@mode_option
def command(
    path: Path,
    count: int | None,
    follow: bool,
    timeout: float | None,
    since: str | None,
    local: bool,
    wanted: Wanted,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Print the last records; with -f also new ones as they are appended.

    If the format allows it, records are read backwards, so it is fast for any size. Below a root of shards the last
    records are the latest of all shards together. --key, --grep and --where choose records as in `dump`: then files are
    read from the newest on, until there are enough matches.
    """
    if timeout is not None and not follow:
        raise WrongUse("--timeout needs -f")
    format = chosen_format(path, format_name)
    with (
        opened(path, format.name) as reader,
        Printer(reader, wanted, as_json=as_json, local=local) as printer,
    ):
        choice = wanted.choice(reader.format, printer.decode)
        # Find where following begins first, so that records appended from now on are printed once.
        ends = reader.end if follow else None
        if since is None:
            found, damages = _last(reader, _DEFAULT_COUNT if count is None else count, mode, choice)
        else:
            found, damages = _since(reader, Range(since=since, local=local), count, mode, choice), ()
        for item in found:
            if isinstance(item, Damage) or _is_before(reader, item, ends):
                _print(printer, item, mode)
        for damage in damages:
            _print(printer, damage, mode)
        printer.flush()
        warn_of_torn_tails(reader)
        if follow:
            sys.stdout.flush()
            for item in _follow(format, path, ends, timeout, mode, choice):
                if item not in damages:
                    _print(printer, item, mode)
                    sys.stdout.flush()
    return DAMAGE_FOUND if printer.damaged else GOOD


def _last(
    reader: Reader, count: int, mode: Mode, choice: Choice | None
) -> tuple[Iterable[Located | Damage], Sequence[Damage]]:
    """The last records, and the damage that is not among them."""
    try:
        return reader.last(count, choice), reader.damages
    except Gap as gap:
        if mode == "failfast":
            if not gap.after:
                raise
            return gap.after, reader.damages  # the gap itself is in `damages`
    except DamagedJournal:
        if mode == "failfast":
            raise
    # Records cannot be read backwards over damage: read forwards and keep the end.
    return deque(reader.scan(mode=scan_mode(mode), choice=choice), maxlen=count), ()


def _since(
    reader: Reader, within: Range, count: int | None, mode: Mode, choice: Choice | None
) -> Iterable[Located | Damage]:
    found = reader.scan(*within.of(reader), mode=scan_mode(mode), choice=choice)
    return found if count is None else deque(found, maxlen=count)


def _is_before(reader: Reader, item: Located, ends: Any) -> bool:
    if ends is None:
        return True
    part, number = reader.number_of(item)
    return bool(number < (ends.get(part, 0) if isinstance(ends, dict) else ends))


def _follow(
    format: Format, path: Path, ends: Any, timeout: float | None, mode: Mode, choice: Choice | None
) -> Iterator[Located | Damage]:
    with format.follow(path, ends, timeout=timeout, mode=scan_mode(mode)) as scanner:
        yield from scanner.located(choice)


def _print(printer: Printer, item: Located | Damage, mode: Mode) -> None:
    if isinstance(item, Damage):
        printer.damage(item, show=mode == "permissive")
    else:
        printer.record(item)
