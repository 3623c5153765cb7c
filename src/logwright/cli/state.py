"""`logwright state`: the state of a journal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from ..core.bytes.outcome import Damage
from ..core.times import shown_time
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    chosen_format,
    find_point,
    format_option,
    json_option,
    local_option,
    opened,
    path_argument,
    stored_offsets,
    verb,
    warn_of_torn_tails,
)
from .output import Column, Table, describe, escape, listed, print_facts, print_json, print_line, progress_bar, warn
from .rows import is_ranges, print_pages
from .units import MILLISECONDS


@verb(
    "state",
    examples=[
        ("now", "logwright state orders"),
        ("as it was at an offset, for a program", "logwright state orders --at 1000 --json"),
        ("as it was at a time", "logwright state orders --at 2026-01-15T10:00:00Z"),
        ("what a store held two hours ago", 'logwright state stores/fleet.jrn --at "2 hours ago"'),
    ],
)
@path_argument
@click.option("--at", metavar="POINT", help="The state before this offset or FILE@POSITION, or at this time.")
@local_option
@format_option
@json_option
def command(path: Path, at: str | None, local: bool, format_name: str | None, as_json: bool) -> int:
    """Print the state of a journal, now or at a point in its past.

    For sej: the first and the next offset, the segments, and the offset of each consumer; past offsets of consumers are
    not stored. For kestrel: the items of the queue from its head, the reserved items, and the last transaction id;
    items do not expire here. Everything up to the point is read and checked: damage makes the exit code 1, and so does
    an offset that cannot be read, which is null. A torn tail is a warning.

    For appendfile: the segments, and whether each is checked and closed by a checkpoint. If files wait for recovery,
    segments have a generation, which distinguishes those with the same id.

    For versioned: each key with its value and the time of its last change. POINT is a time: nanoseconds, ISO 8601, or
    "2 hours ago". Only the journal that covers that time is read; a time before the oldest archive is an error (exit
    code 2).

    For yeltsin: the number of transactions, the offset of the last one, whether a redo is due, and the known bytes of
    pages, in hex. POINT is the number of a transaction, from 0: the pages before it.
    """
    damages: list[Damage] = []
    with opened(path, format_name) as reader:
        point = None if at is None else find_point(reader, at, local)
        state = reader.state(point)
        if reader.states_by_time:
            damages = list(reader.damages)  # of the file that covers that time
            print_json(state) if as_json else _print_keys(state, local)
        else:
            with progress_bar("reading") as progress:
                reader.count(None, point, progress=progress, on_damage=damages.append)
            print_json(state) if as_json else _print_state(state)
        damages = [damage for damage in damages if damage.kind != "torn_tail"]
        for damage in damages:
            warn(describe(path, damage))
        warn_of_torn_tails(reader)
        offsets_read = _warn_of_unread_offsets(path, format_name, reader)
    return GOOD if offsets_read and not damages else DAMAGE_FOUND


def _warn_of_unread_offsets(path: Path, format_name: str | None, reader: Any) -> bool:
    """Warn of the consumers whose offset cannot be read, which is null in the state; whether there are none."""
    consumers = chosen_format(path, format_name).consumers
    if consumers is None or reader.is_single_file:
        return True
    readable = [stored_offsets(consumers, journal.directory)[1] for journal in consumers.journals(reader)]
    return all(readable)


def _print_state(state: dict[str, Any]) -> None:
    """Print single values first, then lists as tables, then nested states, each under its name."""
    facts = [(name, _plain(value)) for name, value in state.items() if not isinstance(value, dict | list)]
    print_facts(facts)
    needs_gap = bool(facts)
    for name, value in state.items():
        if isinstance(value, list | dict):
            if needs_gap:
                print_line()
            needs_gap = True
            print_line(f"{name}: none" if not value else f"{name}:")
        if isinstance(value, dict) and value and all(map(is_ranges, value.values())):
            print_pages(value)
        elif isinstance(value, dict) and any(isinstance(item, dict) for item in value.values()):
            for key, item in value.items():
                print_line(f"-- {key}")
                _print_state(item)
        elif isinstance(value, dict):
            print_facts([(key, _plain(item)) for key, item in value.items()])
        elif isinstance(value, list) and value:
            names = list(value[0])
            with Table([Column(column, right=_is_number(column, value[0])) for column in names]) as table:
                for row in value:
                    table.add(*(_cell(column, row[column]) for column in names))


def _print_keys(state: dict[str, Any], local: bool) -> None:
    """Print the keys of a store, or of each store under its name."""
    if list(state) == ["stores"] and all("timestamp" not in found for found in state["stores"].values()):
        for store, keys in state["stores"].items():
            print_line(f"-- {store}")
            _print_keys(keys, local)
        return
    with Table([Column("since"), Column("key"), Column("value", flexible=True)]) as table:
        for key, found in state.items():
            since = shown_time(found["timestamp"], local=local)
            table.add(since, escape(key.encode()), json.dumps(found["value"], ensure_ascii=False))


def _is_number(column: str, row: dict[str, Any]) -> bool:
    return isinstance(row[column], int) and column not in MILLISECONDS


def _cell(column: str, value: Any) -> str:
    """A field of a list as text: times as dates, bytes as text."""
    if column in MILLISECONDS and value is not None:
        return shown_time(value * MILLISECONDS[column])
    if column == "data" and value is not None:
        return escape(base64.b64decode(value))
    if isinstance(value, list):
        return listed(value)
    return _plain(value)


def _plain(value: Any) -> str:
    return "-" if value is None else str(value)
