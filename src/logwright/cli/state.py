"""`logwright state`, `history` and `diff`: the state of a journal, and how it came about."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ..core.bytes.outcome import Damage
from ..core.times import shown_time
from .arguments import (
    DAMAGE_FOUND,
    chosen_format,
    find_point,
    journal_verb,
    local_option,
    opened,
    warn_of_damage,
    warn_of_losses,
)
from .consumers import stored_offsets
from .output import (
    GREEN,
    MILLISECONDS,
    RED,
    YELLOW,
    Column,
    Table,
    escape,
    listed,
    print_facts,
    print_json,
    print_line,
    progress_bar,
)

_LINE_BYTES: Final = 16
Ranges = Sequence[Mapping[str, Any]]
"""Ranges of a page, as in `state --json`."""


@journal_verb(
    "state",
    examples=[
        ("now", "logwright state orders"),
        ("as it was at an offset, for a program", "logwright state orders --at 1000 --json"),
        ("as it was at a time", "logwright state orders --at 2026-01-15T10:00:00Z"),
        ("what a store held two hours ago", 'logwright state stores/fleet.jrn --at "2 hours ago"'),
    ],
)
@click.option("--at", metavar="POINT", help="The state before this offset or FILE@POSITION, or at this time.")
@local_option
def state(path: Path, at: str | None, local: bool, format_name: str | None, as_json: bool) -> int:
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
        found = reader.state(point)
        if reader.states_by_time:
            damages = list(reader.damages)  # of the file that covers that time
            print_json(found) if as_json else _print_keys(found, local)
        else:
            with progress_bar("reading") as progress:
                reader.count(None, point, progress=progress, on_damage=damages.append)
            print_json(found) if as_json else _print_state(found)
        code = warn_of_damage(path, reader, damages)
        if point is None or not reader.states_by_time:  # the state at a time is refused if it depends on what is lost
            warn_of_losses(path, reader)
        return code if _warn_of_unread_offsets(path, format_name, reader) else DAMAGE_FOUND


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
        if isinstance(value, dict) and value and all(map(_is_ranges, value.values())):
            _print_pages(value)
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


def _is_ranges(value: Any) -> bool:
    """Whether a value of a state, a change or a difference is a list of ranges."""
    return isinstance(value, list) and all(isinstance(item, dict) and set(item) == {"offset", "data"} for item in value)


def _print_pages(pages: Mapping[str, Ranges]) -> None:
    """Print the known bytes of every page, sixteen per line."""
    columns = [Column("page", right=True), Column("offset", right=True), Column("bytes"), Column("text", flexible=True)]
    with Table(columns) as table:
        for page, ranges in pages.items():
            if not ranges:
                table.add(page, "-", "-", "no bytes known")
            for offset, data in _lines(ranges):
                table.add(page, str(offset), data.hex(" "), escape(data))


def _lines(ranges: Ranges) -> Iterator[tuple[int, bytes]]:
    for item in ranges:
        data = base64.b64decode(item["data"])
        for start in range(0, len(data), _LINE_BYTES):
            yield item["offset"] + start, data[start : start + _LINE_BYTES]


def _in_hex(ranges: Ranges) -> str:
    """Ranges in one line, in hex, each with its offset."""
    texts = (f"@{item['offset']}: {base64.b64decode(item['data']).hex(' ')}" for item in ranges)
    return ", ".join(texts) or "no bytes known"


# --- history ---------------------------------------------------------------------------------------------------------


@journal_verb(
    "history",
    examples=[
        ("the changes of the item that was added first", "logwright history queues/mail mail@0"),
        ("for a program", "logwright history queues/mail mail@0 --json"),
        ("every value that a key of a store ever had", "logwright history stores/fleet.jrn truck/7"),
        ("every version of a page", "logwright history pages/accounts.jrnl 65566"),
    ],
)
@click.argument("key", metavar="KEY")
def history(path: Path, key: str, format_name: str | None, as_json: bool) -> int:
    """Print every change of one key, oldest first.

    For kestrel the key is the place where an item was added (FILE@POSITION, as `dump` and `diff` show it), and its
    changes are added, reserved, put back, and removed or finished. For versioned it is a key of the store, in a
    directory of several STORE/KEY; every change in the journal and its archives is printed once; damaged or missing
    archives make the exit code 1. For yeltsin it is the offset of a page in the table, and the changes are the known
    bytes of the page after each transaction that changed it.
    """
    with opened(path, format_name) as reader:
        changes = reader.history(key)
        if as_json:
            for change in changes:
                print_json(change)
        else:
            _print_history(changes)
        return warn_of_damage(path, reader, reader.damages if reader.states_by_time else ())


def _print_history(changes: list[dict[str, Any]]) -> None:
    with Table([Column("at"), Column("event"), Column("value", flexible=True)]) as table:
        for change in changes:
            at = f"{change['file']} @ {change['position']}" if "file" in change else shown_time(change["t"])
            event = change.get("event", "deleted" if change.get("deleted") else "set")
            gone = bool(change.get("deleted"))
            table.add(at, str(event), "-" if gone else _text(change["value"]), style=RED if gone else "")


# --- diff ------------------------------------------------------------------------------------------------------------


@journal_verb(
    "diff",
    examples=[
        ("the items added, removed or reserved since the beginning", "logwright diff queues/mail 0 now"),
        ("between two places in its files, for a program", "logwright diff queues/mail mail@0 mail@417 --json"),
        ("the changes of segments since the beginning of a file", "logwright diff readings 4.journal@0 now"),
        ("what changed in a store within a day", "logwright diff stores/fleet.jrn 2026-01-15T09:00Z 2026-01-15T12:00Z"),
    ],
)
@click.argument("earlier", metavar="POINT")
@click.argument("later", metavar="POINT")
@local_option
def diff(path: Path, earlier: str, later: str, local: bool, format_name: str | None, as_json: bool) -> int:
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
        return warn_of_damage(path, reader, damages)


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
    if _is_ranges(value):
        return _in_hex(value)
    if isinstance(value, dict) and "data" in value:
        value = {**value, "data": escape(base64.b64decode(value["data"]))}
    if isinstance(value, dict) and "records" in value:
        value = {**value, "records": listed(value["records"])}
    return json.dumps(value, ensure_ascii=False)
