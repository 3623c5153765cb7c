"""`logwright convert`: a journal to Parquet or to another journal, and back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.disk import REAL_DISK
from ..core.errors import LogwrightError, WrongUse
from ..core.format import FORMATS, find_format
from ..core.outcome import Mode
from ..core.report import Progress
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    chosen_format,
    damage_placed,
    heedful,
    json_option,
    local_option,
    mode_option,
    since_option,
    until_option,
    verb,
)
from .output import describe, print_json, print_line, progress_bar, warn
from .times import format_size, parse_time

if TYPE_CHECKING:
    from ..arrow import Converted

PARQUET: Final = "parquet"
_PARQUET_MAGIC: Final = b"PAR1"


@verb(
    "convert",
    examples=[
        ("to Parquet, which DuckDB, Polars and Spark read", "logwright convert orders orders.parquet --to parquet"),
        ("and back", "logwright convert orders.parquet again --to sej"),
        ("an hour of it", "logwright convert orders ten.parquet --since 2026-01-15T10:00Z --until 2026-01-15T11:00Z"),
        ("all that is whole of a damaged journal", "logwright convert damaged salvaged --to sej --mode permissive"),
    ],
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Choice([PARQUET, *FORMATS]),
    help="What to make; can be left out when DESTINATION ends in .parquet.",
)
@since_option
@until_option
@local_option
@mode_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice([PARQUET, *FORMATS]),
    help="What SOURCE is; detected when it is not given.",
)
@json_option
def command(
    source: Path,
    destination: Path,
    target: str | None,
    since: str | None,
    until: str | None,
    local: bool,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Convert a journal to Parquet or to another journal, or Parquet to a journal.

    Streams, so the size does not matter. DESTINATION gets its name when all of it is on the disk, and what is there
    already is never overwritten. Records that go into a journal get new offsets, from 0. From kestrel to another format
    only items that were added go along; to kestrel everything is an item of the queue that is called like DESTINATION,
    unless a column `queue` says otherwise.
    """
    target = target or (PARQUET if destination.suffix == f".{PARQUET}" else None)
    if target is None:
        raise WrongUse(f"what shall {destination} be? say it by --to")
    origin = format_name or (PARQUET if _is_parquet(source) else chosen_format(source, None).name)
    if REAL_DISK.exists(destination):
        raise WrongUse(f"{destination} is there already; nothing is overwritten")
    chosen: dict[str, Any] = {
        "from_time": None if since is None else parse_time(since, local=local),
        "to_time": None if until is None else parse_time(until, local=local),
    }
    with damage_placed(source), progress_bar("converting") as progress:
        if origin == PARQUET:
            if any(value is not None for value in chosen.values()):
                raise WrongUse("a range can be chosen from a journal only, not from Parquet")
            result = _from_parquet(source, destination, target, progress)
        else:
            chosen.update(mode=heedful(mode), format=origin, progress=progress)
            result = _from_journal(source, destination, origin, target, chosen)
    for damage in (*result.damages, *result.torn_tails):
        warn(f"left out: {describe(source, damage)}")
    if as_json:
        print_json({"records": result.rows, "bytes": result.bytes, "from": origin, "to": target})
    else:
        print_line(f"{source} -> {destination}: {result.rows} records, {format_size(result.bytes)}")
    return DAMAGE_FOUND if any(damage.kind != "torn_tail" for damage in result.damages) else GOOD


def _from_journal(source: Path, destination: Path, origin: str, target: str, chosen: dict[str, Any]) -> Converted:
    from .. import arrow

    if target == PARQUET:
        return arrow.to_parquet(source, destination, **chosen)
    found = arrow.batches(source, **chosen)
    rows = 0

    def fill(writer: Any) -> None:
        nonlocal rows
        for batch in found:
            taken = batch if origin == target else arrow.as_messages(origin, batch)
            arrow.append(writer, taken)
            rows += taken.num_rows

    size = _write_journal(destination, target, fill)
    if rows < found.rows:
        warn(f"left out: {found.rows - rows} records that hold no value, which {target} has no place for")
    return arrow.Converted(rows, size, found.damages, found.torn_tails)


def _from_parquet(source: Path, destination: Path, target: str, progress: Progress | None) -> Converted:
    from .. import arrow

    if target == PARQUET:
        raise WrongUse(f"{source} is Parquet already")
    rows = 0

    def fill(writer: Any) -> None:
        nonlocal rows
        rows = arrow.from_parquet(source, writer, progress=progress)

    size = _write_journal(destination, target, fill)
    return arrow.Converted(rows, size)


def _write_journal(destination: Path, target: str, fill: Callable[[Any], Any]) -> int:
    """Write a journal under another name, and give it its own once it is complete; its size."""
    format = find_format(target)
    journal = format.room("journal")
    partial = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        many = getattr(journal, "open_target", None)  # where a directory holds several journals of a format
        with journal.Writer(partial) if many is None else many(partial, destination.name) as writer:
            fill(writer)
        REAL_DISK.rename(partial, destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    REAL_DISK.sync_directory(destination.parent)
    with format.open(destination) as reader:
        return reader.summary().bytes


def _is_parquet(path: Path) -> bool:
    try:
        file = REAL_DISK.open(path, "read")
    except LogwrightError:
        return False
    try:
        return file.read_at(0, len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    finally:
        file.close()
