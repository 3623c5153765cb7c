"""`logwright changes`: the changes of stores and queues as JSON lines, in the shape that Debezium made common."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..core.bytes.outcome import Damage, Mode
from ..core.format import ChangeFeed, Format, Located, Reader
from ..errors import WrongUse
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    chosen_format,
    journal_verb,
    mode_option,
    opened,
    scan_mode,
    warn_of_losses,
    warn_of_torn_tails,
)
from .output import describe, print_json, warn


@journal_verb(
    "changes",
    examples=[
        ("how a store came about", "logwright changes stores/fleet.jrn | head -n 3"),
        ("the items that are put into queues and removed, until Ctrl-C", "logwright changes queues --follow"),
        ("only deletions, until nothing came for a second", "logwright changes stores -f --timeout 1 | grep '\"d\"'"),
    ],
)
@click.option("-f", "--follow", is_flag=True, help="Also print changes as they are made.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Stop following after this time without new records.",
)
@mode_option
def command(path: Path, follow: bool, timeout: float | None, mode: Mode, format_name: str | None, as_json: bool) -> int:
    """Print the changes of stores and queues, one JSON object per line, with or without --json.

    An object has `op`, `before`, `after`, `ts_ns` (nanoseconds, or null) and `source`, which says where it is from. In
    a store `op` is c for a key that is created, u updated, d deleted, and r for one whose history is no longer kept;
    `before` and `after` have `key` and `value`. In a queue c is an item that is put into it, d one that is removed or
    finished; both have `data` (base64), `added` and `expires` (milliseconds). A journal does not store when an item was
    removed: `ts_ns` is null. Memory is needed for what is there: keys with their values, or items.
    """
    if timeout is not None and not follow:
        raise WrongUse("--timeout needs -f")
    format = chosen_format(path, format_name)
    if format.change_feed() is None:
        raise WrongUse(f"{path}: records of {format.name} are no changes of keys or items; see dump")
    damages = 0
    with opened(path, format.name) as reader:
        ends = reader.end if follow else None
        feeds: dict[str, ChangeFeed] = {}
        for item in _records(format, reader, path, ends, timeout, mode):
            if isinstance(item, Damage):
                damages += item.kind != "torn_tail"
                warn(f"skipped: {describe(path, item)}")
                continue
            _print(format, reader, item, feeds)
            if follow:
                sys.stdout.flush()
        warn_of_torn_tails(reader)
        warn_of_losses(path, reader)
    return DAMAGE_FOUND if damages else GOOD


def _records(
    format: Format, reader: Reader, path: Path, ends: Any, timeout: float | None, mode: Mode
) -> Iterator[Located | Damage]:
    """The records up to the ends, and then those that follow; without ends only those that are there."""
    for item in reader.scan(None, ends, mode=scan_mode(mode)):
        is_later = isinstance(ends, dict) and isinstance(item, Located) and _part_of(reader, item) not in ends
        if not is_later:  # the part appeared meanwhile: it is followed from its beginning
            yield item
    if ends is not None:
        sys.stdout.flush()
        with format.follow(path, ends, timeout=timeout, mode=scan_mode(mode)) as follower:
            yield from follower.located()


def _part_of(reader: Reader, item: Located) -> str:
    name = reader.as_json(item).get(reader.part_name)
    return name if isinstance(name, str) else ""


def _print(format: Format, reader: Reader, item: Located, feeds: dict[str, ChangeFeed]) -> None:
    fields = reader.as_json(item)
    part = fields.get(reader.part_name) or ""
    if part not in feeds:
        feed = format.change_feed()
        assert feed is not None
        feeds[part] = feed
    for change in feeds[part].add(fields):
        source = {"format": format.name, "path": str(reader.path), reader.part_name: part or reader.part}
        print_json({**change, "source": {**source, "file": item.file, "position": item.span.start}})
