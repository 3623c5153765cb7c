"""`logwright dump`: every record in journal order."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.bytes.outcome import Damage, Mode
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    decode_options,
    is_of_type,
    journal_verb,
    mode_option,
    opened,
    range_options,
    resolve_range,
    scan_mode,
    type_option,
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
        ("continue after damage, and show where it is", "logwright dump damaged --mode permissive"),
        ("a single file, without its journal", "logwright dump orders/jnl/0000000000000000.jnl --limit 3"),
    ],
)
@range_options
@type_option
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most this many records.")
@decode_options
@mode_option
def command(
    path: Path,
    start: int | None,
    stop: int | None,
    since: str | None,
    until: str | None,
    local: bool,
    type_: int | None,
    limit: int | None,
    decode: str | None,
    schema: Path | None,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Print every record in journal order.

    In JSON, bytes are base64, and `--decode` adds the field `decoded` to each record. A torn tail is a warning, other
    damage makes the exit code 1.
    """
    with (
        opened(path, format_name) as reader,
        Printer(reader, as_json=as_json, decode=decode, schema=schema, local=local) as printer,
        progress_bar("reading", beside_rows=True) as progress,
    ):
        first, end = resolve_range(reader, start, stop, since, until, local)
        records = 0
        items = () if limit == 0 else reader.scan(first, end, mode=scan_mode(mode), progress=progress)
        for item in items:
            if isinstance(item, Damage):
                printer.damage(item, show=mode == "permissive")
            elif is_of_type(item, type_):
                printer.record(item)
                records += 1
            if records == limit:  # stop here: neither records nor damage after it were asked for
                break
        warn_of_torn_tails(reader)
    return DAMAGE_FOUND if printer.damaged else GOOD
