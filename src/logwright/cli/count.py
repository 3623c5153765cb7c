"""`logwright count`: counts records, in a range."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from ..core.bytes.outcome import MODES, Damage, Mode
from ..core.format import Located
from ..core.io.disk import REAL_DISK
from ..errors import DamagedJournal
from .arguments import (
    Range,
    Wanted,
    is_of_type,
    journal_verb,
    opened,
    range_options,
    type_option,
    wanted_options,
    warn_of_damage,
)
from .output import describe, print_json, print_line, progress_bar, warn


@journal_verb(
    "count",
    examples=[
        ("count all records", "logwright count orders"),
        ("in a range of time, for a program", "logwright count orders --since 2026-01-15T10:00:00Z --json"),
        ("from an offset, in all shards below a root", "logwright count events --from 10"),
        ("those that match a condition", "logwright count queues/mail --where \"op = 'addx'\""),
    ],
)
@range_options
@type_option
@wanted_options
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="permissive",
    show_default=True,
    help="At damage: failfast stops there; the others also count the complete records after it.",
)
def command(
    path: Path,
    within: Range,
    type_: int | None,
    wanted: Wanted,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Count the complete records, all of them or those in a range.

    Damage is reported on stderr and makes the exit code 1. Known losses are reported too. --key, --grep and --where
    choose records as in `dump`; --decode is for the fields of values in EXPR.
    """
    from ..sej.files.shard import has_one_unsharded

    damages: list[Damage] = []

    def note(damage: Damage) -> None:
        if damage.kind == "torn_tail":
            return
        if damage.kind == "lost":
            warn(describe(path, damage))
            return
        if mode == "failfast":
            raise DamagedJournal(damage.file, damage.start, damage.reason)
        damages.append(damage)

    if format_name is None and has_one_unsharded(REAL_DISK, path):
        format_name = "sej"  # not detected by name: any directory may have a journal below it
    with opened(path, format_name) as reader:
        with progress_bar("counting") as progress:
            first, end = within.of(reader)
            choice = wanted.choice(reader.format, wanted.decoder())
            if type_ is None:
                records = reader.count(first, end, progress=progress, on_damage=note, choice=choice)
            else:
                found = reader.scan(first, end, mode="permissive", progress=progress, choice=choice)
                records = _count_type(found, type_, note)
        print_json({"records": records}) if as_json else print_line(str(records))
        return warn_of_damage(path, reader, damages, "not counted: ")


def _count_type(items: Iterable[Located | Damage], type_: int, note: Callable[[Damage], None]) -> int:
    """Count the records of a type, which needs a look at each record."""
    records = 0
    for item in items:
        if isinstance(item, Damage):
            note(item)
        elif is_of_type(item, type_):
            records += 1
    return records
