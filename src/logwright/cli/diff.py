"""`logwright diff`: what changed between two points of a journal's past."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from ..core.bytes.outcome import Damage
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    find_point,
    format_option,
    json_option,
    local_option,
    opened,
    path_argument,
    verb,
    warn_of_torn_tails,
)
from .output import GREEN, RED, YELLOW, Column, Table, describe, escape, listed, print_json, warn
from .rows import in_hex, is_ranges


@verb(
    "diff",
    examples=[
        ("the items added, removed or reserved since the beginning", "logwright diff queues/mail 0 now"),
        ("between two places in its files, for a program", "logwright diff queues/mail mail@0 mail@417 --json"),
        ("the changes of segments since the beginning of a file", "logwright diff readings 4.journal@0 now"),
        ("what changed in a store within a day", "logwright diff stores/fleet.jrn 2026-01-15T09:00Z 2026-01-15T12:00Z"),
    ],
)
@path_argument
@click.argument("earlier", metavar="POINT")
@click.argument("later", metavar="POINT")
@local_option
@format_option
@json_option
def command(path: Path, earlier: str, later: str, local: bool, format_name: str | None, as_json: bool) -> int:
    """Print what changed between two points: offsets, places (FILE@POSITION), or times.

    For kestrel: the items that were added, removed, reserved or put back, each under the place where it was added.
    Journals of messages only grow: `dump --from --to` shows what was added. Damage makes the exit code 1.

    For appendfile: the segments that are new, and those that were appended to, closed or checked, by their ids.
    Segments that wait for recovery are named GENERATION/ID. Points are places or "now".

    For versioned: the keys that were added, changed and removed between two times, which are nanoseconds, ISO 8601, or
    "2 hours ago"; a key that was written again with the same value has not changed.

    For yeltsin: the bytes of pages that differ before two transactions, which are numbered from 0, in hex.
    """
    damages: list[Damage] = []
    with opened(path, format_name) as reader:
        start, stop = find_point(reader, earlier, local), find_point(reader, later, local)
        changes = reader.diff(start, stop)
        if reader.states_by_time:
            damages = list(reader.damages)  # of the files that cover those times
        else:
            reader.count(None, max(start, stop), on_damage=damages.append)
        print_json(changes) if as_json else _print_changes(changes)
        damages = [damage for damage in damages if damage.kind != "torn_tail"]
        for damage in damages:
            warn(describe(path, damage))
        warn_of_torn_tails(reader)
    return DAMAGE_FOUND if damages else GOOD


def _print_changes(changes: dict[str, Any]) -> None:
    columns = [Column("change"), Column("key"), Column("before", flexible=True), Column("after", flexible=True)]
    with Table(columns) as table:
        for key, value in changes["added"].items():
            table.add("added", key, "-", _text(value), style=GREEN)
        for key, both in changes["changed"].items():
            table.add("changed", key, _text(both["before"]), _text(both["after"]), style=YELLOW)
        for key, value in changes["removed"].items():
            table.add("removed", key, _text(value), "-", style=RED)


def _text(value: Any) -> str:
    if is_ranges(value):
        return in_hex(value)
    if isinstance(value, dict) and "data" in value:
        value = {**value, "data": escape(base64.b64decode(value["data"]))}
    if isinstance(value, dict) and "records" in value:
        value = {**value, "records": listed(value["records"])}
    return json.dumps(value, ensure_ascii=False)
