"""`logwright state`: what a journal stands for."""

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
    chosen_format,
    find_point,
    format_option,
    json_option,
    local_option,
    opened,
    path_argument,
    stored_offsets,
    tell_torn_tails,
    verb,
)
from .output import Column, Table, describe, escape, listed, print_facts, print_json, print_line, progress_bar, warn
from .pages import is_ranges, print_pages
from .times import MILLISECONDS, shown_time


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
@click.option("--at", metavar="POINT", help="As it was before this offset or FILE@POSITION, or at this time.")
@local_option
@format_option
@json_option
def command(path: Path, at: str | None, local: bool, format_name: str | None, as_json: bool) -> int:
    """Print what the journal stands for, now or at a point in its past.

    For sej: the first and the next offset, the segments, and how far each consumer has come; where consumers were in
    the past is not kept. For kestrel: the items of the queue from its head on, those that are reserved, and the last
    used transaction id; nothing expires here. Reads everything up to that point, so that damage does not go unnoticed:
    it makes the exit code 1, and so does an offset that cannot be read, which is null. A torn tail is a warning.

    For appendfile: the segments, those that are checked among them, and whether a checkpoint has closed each. Where
    files wait to be recovered all have a generation, which tells those with the same id apart.

    For versioned: each key with its value and the time since when it has it. POINT is a time: nanoseconds, ISO 8601, or
    "2 hours ago". One journal is read, the one that knows that time; a time before all that is kept is exit code 2.

    For yeltsin: how many transactions there are, where the last one is, whether a redo is due, and what is known of the
    bytes of pages, in hex. POINT is the number of a transaction, counted from 0: the pages as they were before it.
    """
    damages: list[Damage] = []
    with opened(path, format_name) as reader:
        point = None if at is None else find_point(reader, at, local)
        state = reader.state(point)
        if reader.states_by_time:
            damages = list(reader.damages)  # of the one file that knows that time
            print_json(state) if as_json else _print_keys(state, local)
        else:
            with progress_bar("reading") as progress:
                reader.count(None, point, progress=progress, on_damage=damages.append)
            print_json(state) if as_json else _print_state(state)
        damages = [damage for damage in damages if damage.kind != "torn_tail"]
        for damage in damages:
            warn(describe(path, damage))
        tell_torn_tails(reader)
        offsets_read = _tell_unread_offsets(path, format_name, reader)
    return GOOD if offsets_read and not damages else DAMAGE_FOUND


def _tell_unread_offsets(path: Path, format_name: str | None, reader: Any) -> bool:
    """Warn of the consumers whose place cannot be read, which the state has as null; whether there are none."""
    consumers = chosen_format(path, format_name).consumers
    if consumers is None or reader.is_single_file:
        return True
    told = [stored_offsets(consumers, journal.directory)[1] for journal in consumers.journals(reader)]  # of all of them
    return all(told)


def _print_state(state: dict[str, Any]) -> None:
    """Facts first, then lists as tables, then what is nested, each under its name."""
    facts = [(name, _plain(value)) for name, value in state.items() if not isinstance(value, dict | list)]
    print_facts(facts)
    is_behind_something = bool(facts)
    for name, value in state.items():
        if isinstance(value, list | dict):
            if is_behind_something:
                print_line()
            is_behind_something = True
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
    """The keys of a store, or of each store under its name."""
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
    """A field of a list as people read it: times as dates, bytes as text."""
    if column in MILLISECONDS and value is not None:
        return shown_time(value * MILLISECONDS[column])
    if column == "data" and value is not None:
        return escape(base64.b64decode(value))
    if isinstance(value, list):
        return listed(value)
    return _plain(value)


def _plain(value: Any) -> str:
    return "-" if value is None else str(value)
