"""`logwright history`: all changes of one key or item."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from ..core.bytes.outcome import Damage
from ..core.times import shown_time
from .arguments import DAMAGE_FOUND, GOOD, format_option, json_option, opened, path_argument, verb, warn_of_torn_tails
from .output import RED, Column, Table, describe, escape, print_json, warn
from .rows import in_hex, is_ranges


@verb(
    "history",
    examples=[
        ("the changes of the item that was added first", "logwright history queues/mail mail@0"),
        ("for a program", "logwright history queues/mail mail@0 --json"),
        ("every value that a key of a store ever had", "logwright history stores/fleet.jrn truck/7"),
        ("every version of a page", "logwright history pages/accounts.jrnl 65566"),
    ],
)
@path_argument
@click.argument("key", metavar="KEY")
@format_option
@json_option
def command(path: Path, key: str, format_name: str | None, as_json: bool) -> int:
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
            _print_changes(changes)
        damages: list[Damage] = []
        if reader.states_by_time:
            damages = list(reader.damages)  # of all files: all were read
        for damage in damages:
            warn(describe(path, damage))
        warn_of_torn_tails(reader)
    return DAMAGE_FOUND if damages else GOOD


def _print_changes(changes: list[dict[str, Any]]) -> None:
    with Table([Column("at"), Column("event"), Column("value", flexible=True)]) as table:
        for change in changes:
            at = f"{change['file']} @ {change['position']}" if "file" in change else shown_time(change["t"])
            event = change.get("event", "deleted" if change.get("deleted") else "set")
            gone = bool(change.get("deleted"))
            table.add(at, str(event), "-" if gone else _text(change["value"]), style=RED if gone else "")


def _text(value: Any) -> str:
    if is_ranges(value):
        return in_hex(value)
    if isinstance(value, dict) and "data" in value:
        value = {**value, "data": escape(base64.b64decode(value["data"]))}
    return json.dumps(value, ensure_ascii=False)
