"""`logwright state`: what a journal stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..core.errors import WrongUse
from ..core.format import Reader
from .arguments import find_time, format_option, json_option, local_option, opened, path_argument, tell_torn_tails, verb
from .output import print_facts, print_json
from .times import parse_time


@verb(
    "state",
    examples=[
        ("now", "logwright state orders"),
        ("as it was at an offset, for a program", "logwright state orders --at 1000 --json"),
        ("as it was at a time", "logwright state orders --at 2026-01-15T10:00:00Z"),
    ],
)
@path_argument
@click.option("--at", metavar="OFFSET|TIME", help="As it was before this offset, or at this time.")
@local_option
@format_option
@json_option
def command(path: Path, at: str | None, local: bool, format_name: str | None, as_json: bool) -> None:
    """Print what the journal stands for, now or at a point in its past.

    For sej: the first and the next offset, the segments, and how far each consumer has come.
    """
    with opened(path, format_name) as reader:
        state = reader.state(None if at is None else _point(reader, at, local))
        tell_torn_tails(reader)
    if as_json:
        print_json(state)
    else:
        print_facts(list(_facts("", state)))


def _point(reader: Reader, at: str, local: bool) -> int:
    """The record number that `--at` means: a number is one, anything else is a time."""
    if at.isascii() and at.isdigit():
        return int(at)
    found = find_time(reader, parse_time(at, local=local))
    if isinstance(found, dict):
        raise WrongUse(f"{reader.path}: a time is another offset in each shard; ask for one shard at a time")
    return int(found)


def _facts(name: str, value: Any) -> list[tuple[str, str]]:
    """A JSON value as lines of a path into it and what is there."""
    if isinstance(value, dict) and value:
        return [fact for key, item in value.items() for fact in _facts(f"{name}.{key}" if name else str(key), item)]
    if isinstance(value, list) and value:
        return [fact for number, item in enumerate(value) for fact in _facts(f"{name}[{number}]", item)]
    return [(name, "none" if value in ({}, [], None) else str(value))]
