"""`logwright dump`: every record in journal order."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.bytes.outcome import Damage, Mode
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    Range,
    Wanted,
    is_of_type,
    journal_verb,
    mode_option,
    opened,
    range_options,
    scan_mode,
    type_option,
    wanted_options,
    warn_of_torn_tails,
)
from .output import progress_bar
from .rows import Printer


@journal_verb(
    "dump",
    examples=[
        ("the first five records", "logwright dump orders --limit 5"),
        ("as JSON, values decoded, for another program", "logwright dump orders --json --decode json | head -n 3"),
        ("a range of offsets", "logwright dump orders --from 100 --to 110"),
        (
            "the records of one minute",
            "logwright dump orders --since 2026-01-15T10:00:00Z --until 2026-01-15T10:01:00Z",
        ),
        ("the orders of one customer that mention a gear", "logwright dump orders --key customer/ada --grep gear -n 3"),
        (
            "by a condition on columns, and on fields of values",
            'logwright dump orders --decode json --where "type = 1 AND value.count > 38" -n 3',
        ),
        ("continue after damage, and show where it is", "logwright dump damaged --mode permissive"),
        ("a single file, without its journal", "logwright dump orders/jnl/0000000000000000.jnl --limit 3"),
    ],
)
@range_options
@type_option
@wanted_options
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=0), help="At most this many records.")
@mode_option
def command(
    path: Path,
    within: Range,
    type_: int | None,
    wanted: Wanted,
    limit: int | None,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Print every record in journal order.

    In JSON, bytes are base64, and `--decode` adds the field `decoded` to each record. A torn tail is a warning, other
    damage makes the exit code 1.

    --key, --grep and --where choose records by their columns, and ranges that --where excludes by offset or time are
    not read. EXPR is a condition of DuckDB over the columns of the table `records` (docs/query.md). With --decode,
    values have fields (`value.price > 100`); in stores, `o` always has them. A field that is missing, or is not of the
    type that it is compared with, is NULL. A transaction of yeltsin matches if one of its operations does.
    """
    with (
        opened(path, format_name) as reader,
        Printer(reader, wanted, as_json=as_json, local=within.local) as printer,
        progress_bar("reading", beside_rows=True) as progress,
    ):
        choice = wanted.choice(reader.format, printer.decode)
        first, end = within.of(reader)
        records = 0
        items = () if limit == 0 else reader.scan(first, end, mode=scan_mode(mode), progress=progress, choice=choice)
        for item in items:
            if isinstance(item, Damage):
                printer.damage(item, show=mode == "permissive")
            elif is_of_type(item, type_):
                printer.record(item)
                records += 1
            if records == limit:  # stop here: neither records nor damage after it were requested
                break
        warn_of_torn_tails(reader)
    return DAMAGE_FOUND if printer.damaged else GOOD
