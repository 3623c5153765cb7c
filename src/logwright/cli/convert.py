"""`logwright convert`: a journal to Parquet or to another journal, and back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.bytes.outcome import Mode
from ..core.format import FORMATS, find_format
from ..core.io.disk import REAL_DISK
from ..core.read.report import Progress
from ..core.repair.losses import Loss, add_losses, inherited
from ..core.times import parse_time
from ..errors import LogwrightError, NotFound, WrongUse
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    JournalPath,
    chosen_format,
    json_option,
    local_option,
    mode_option,
    naming_path,
    scan_mode,
    since_option,
    until_option,
    verb,
)
from .output import describe, format_size, print_json, print_line, progress_bar, warn

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
        ("the complete records of a damaged journal", "logwright convert damaged salvaged --to sej --mode permissive"),
        ("the waiting items of a queue, as messages", "logwright convert queues/mail unsent --to sej --waiting"),
        (
            "all queues as one journal, and back",
            "logwright convert queues all --to sej && logwright convert all back --to kestrel --by-key",
        ),
    ],
)
@click.argument("source", type=JournalPath())
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Choice([PARQUET, *FORMATS]),
    help="The format to write; optional if DESTINATION ends in .parquet.",
)
@click.option("--waiting", is_flag=True, help="Only the items that wait in a queue, not those that were removed.")
@click.option("--by-key", is_flag=True, help="To kestrel: the key of a message names its queue.")
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if the format of DESTINATION cannot store something, instead of leaving it out.",
)
@since_option
@until_option
@local_option
@mode_option
@click.option(
    "--format", "format_name", type=click.Choice([PARQUET, *FORMATS]), help="The format of SOURCE; detected by default."
)
@json_option
def command(
    source: Path,
    destination: Path,
    target: str | None,
    waiting: bool,
    by_key: bool,
    strict: bool,
    since: str | None,
    until: str | None,
    local: bool,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Convert a journal to Parquet or to another journal, or Parquet to a journal.

    Needs little memory for any size. DESTINATION gets its name after all of it has been synced; existing files are
    never overwritten. Records written to a journal get new offsets, from 0.

    From kestrel to sej every item that was added becomes a message: its data is the value, its queue the key, its time
    the time; with --waiting only items that still wait. To kestrel every message becomes an item of the queue named
    DESTINATION, or named by its key (--by-key). What a format cannot store (expiries in sej; types, keys and fractions
    of a millisecond in kestrel) is left out, and counted on stderr.

    From versioned every change that sets a key becomes a message: its JSON is the value, its key the key, its time the
    time. To versioned it is the reverse, into the store named DESTINATION: values must be JSON.
    """
    target = target or (PARQUET if destination.suffix == f".{PARQUET}" else None)
    if target is None:
        raise WrongUse(f"the format of {destination} is unknown: give it with --to")
    origin = format_name or (PARQUET if _is_parquet(source) else chosen_format(source, None).name)
    if REAL_DISK.exists(destination):
        raise WrongUse(f"{destination} already exists; nothing was overwritten")
    if target == PARQUET and not REAL_DISK.is_directory(destination.parent):  # a journal creates its directory
        raise NotFound(f"{destination.parent}: no such directory")
    chosen: dict[str, Any] = {
        "from_time": None if since is None else parse_time(since, local=local),
        "to_time": None if until is None else parse_time(until, local=local),
    }
    _check_choice(origin, target, waiting, by_key, since is not None or until is not None)
    with naming_path(source), progress_bar("converting") as progress:
        if origin == PARQUET:
            result = _from_parquet(source, destination, target, progress)
        else:
            chosen.update(mode=scan_mode(mode), format=origin)
            chosen = {"mode": chosen["mode"], "format": origin} if waiting else {**chosen, "progress": progress}
            result = _from_journal(source, destination, _Change(origin, target, waiting, by_key, strict), chosen)
    for damage in (*result.damages, *result.torn_tails):
        warn(f"left out: {describe(source, damage)}")
    if result.losses:
        warn(f"{source} has known losses, which are in the account of {destination} as well")
    if as_json:
        print_json({"records": result.rows, "bytes": result.bytes, "from": origin, "to": target})
    else:
        print_line(f"{source} -> {destination}: {result.rows} records, {format_size(result.bytes)}")
    return DAMAGE_FOUND if any(damage.kind != "torn_tail" for damage in result.damages) else GOOD


@dataclass(frozen=True, slots=True)
class _Change:
    """The source, its format, the target format, and the options of a conversion."""

    origin: str
    target: str
    waiting: bool
    by_key: bool
    strict: bool


def _check_choice(origin: str, target: str, waiting: bool, by_key: bool, has_range: bool) -> None:
    if origin == PARQUET and (has_range or waiting or by_key):
        raise WrongUse("these options select records of a journal; they do not work on Parquet")
    if waiting and has_range:
        raise WrongUse("--waiting selects the items that wait now: it excludes --since and --until")
    if by_key and (target != "kestrel" or origin == "kestrel"):
        raise WrongUse("--by-key makes queues of messages: it needs --to kestrel, and a source that is not kestrel")


def _from_journal(source: Path, destination: Path, change: _Change, chosen: dict[str, Any]) -> Converted:
    from .. import arrow

    if change.target == PARQUET:
        return arrow.to_parquet(source, destination, waiting=change.waiting, **chosen)
    found = (arrow.items if change.waiting else arrow.batches)(source, **chosen)
    left_out: Counter[str] = Counter()
    rows = 0

    def fill(writer: Any) -> list[Loss]:
        nonlocal rows
        for batch in found:
            taken = batch if change.origin == change.target else _as_messages(change, batch)
            if change.origin != change.target:
                left_out.update(arrow.left_out(change.target, taken))
            arrow.append(writer, taken)
            rows += taken.num_rows
        if change.strict:
            _refuse(source, change, left_out, found.rows - rows)
        same_numbers = change.origin == change.target and _has_times(change.target)
        return inherited(found.losses, found.damages, same_numbers=same_numbers)

    size = _write_journal(destination, change.target, fill)
    if rows < found.rows:
        warn(f"left out: {found.rows - rows} records without a value, which {change.target} cannot store")
    for what, count in left_out.items():
        if count:
            warn(f"left out: the {what} of {count} records, which {change.target} cannot store")
    return arrow.Converted(rows, size, found.damages, found.torn_tails, found.losses)


def _as_messages(change: _Change, batch: Any) -> Any:
    from .. import arrow

    messages = arrow.as_messages(change.origin, batch)
    items = find_format(change.target).items
    return items.named_by_key(messages) if change.by_key and items is not None else messages


def _refuse(source: Path, change: _Change, left_out: Counter[str], without_value: int) -> None:
    """Raise `WrongUse` if something would be left out."""
    lost = [f"the {what} of {count} records" for what, count in left_out.items() if count]
    if without_value:
        lost.append(f"{without_value} records without a value")
    if lost:
        raise WrongUse(f"{source}: {change.target} cannot store {', '.join(lost)}")


def _from_parquet(source: Path, destination: Path, target: str, progress: Progress | None) -> Converted:
    from .. import arrow

    if target == PARQUET:
        raise WrongUse(f"{source} is Parquet already")
    rows = 0

    losses = arrow.parquet_losses(source)

    def fill(writer: Any) -> list[Loss]:
        nonlocal rows
        rows = arrow.from_parquet(source, writer, progress=progress)
        return inherited(losses, (), same_numbers=_has_times(target))

    size = _write_journal(destination, target, fill)
    return arrow.Converted(rows, size, losses=losses)


def _has_times(format: str) -> bool:
    """Whether losses of a format are identified by times, which a conversion keeps, and not by record numbers."""
    return find_format(format).states is not None


def _write_journal(destination: Path, target: str, fill: Callable[[Any], list[Loss]]) -> int:
    """Write a journal under a temporary name, rename it when it is complete, and return its size.

    `fill` returns the losses that the new journal inherits.
    """
    format = find_format(target)
    partial = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with format.open_target(partial, destination.name) as writer:
            losses = fill(writer)
        add_losses(REAL_DISK, partial, losses)
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
