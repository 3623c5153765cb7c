"""`logwright unpark`: puts parked items back into their queue."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.format import Unparked
from ..errors import WrongUse
from .arguments import chosen_format, journal_verb, naming_path
from .output import inform, print_json, print_line, warn


@journal_verb(
    "unpark",
    examples=[
        ("what would be moved, if mail held the parked items of jobs", "logwright unpark queues/mail --to jobs --plan"),
        ("put the first one back", "logwright unpark queues/mail --to jobs --limit 1"),
        ("put all of them back, for a program", "logwright unpark queues/mail --to jobs --json"),
    ],
)
@click.option(
    "--to", "target", metavar="QUEUE", help="The target queue, in the same directory; default: PATH without _parked."
)
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most this many items, from the head.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be moved, and change nothing.")
def command(
    path: Path, target: str | None, limit: int | None, only_plan: bool, format_name: str | None, as_json: bool
) -> None:
    """Move the items of a parked queue to the tail of the queue they came from, and reset their attempts.

    PATH is the journal of the parked queue. The items of NAME are parked in NAME_parked unless its program chooses
    another name: then --to is needed. Both queues are locked: if a program has one of them open, nothing is done.
    Limits of the target queue are not applied, because only its program knows them. A crash loses nothing. It can leave
    up to a thousand items in both queues; the next unpark moves these again, and reports how many there were.
    """
    format = chosen_format(path, format_name)
    if format.items is None:
        raise WrongUse(f"{path}: journals of the format {format.name} have no parked items")
    with naming_path(path):
        done = format.items.unpark(path, target, most=limit, only_plan=only_plan)
    if as_json:
        names = {"from": str(done.source), "to": str(done.target)}
        print_json({"done": not only_plan, **names, "items": done.items, "left": done.left, "doubled": done.doubled})
    else:
        print_line(f"{done.source} -> {done.target}: {_items(done.items)}, {done.left} left")
    if only_plan:
        inform(f"{path}: nothing was changed")
    _warn_of_doubled(done)


def _warn_of_doubled(done: Unparked) -> None:
    if done.doubled:
        were = "was" if done.doubled == 1 else "were"
        warn(f"{_items(done.doubled)} {were} already in {done.target}: an earlier unpark was interrupted")


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"
