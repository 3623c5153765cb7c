"""`logwright unpark`: puts items back that have failed too often."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.format import Unparked
from ..errors import WrongUse
from .arguments import chosen_format, damage_placed, format_option, json_option, path_argument, verb
from .output import print_json, print_line, talk, warn


@verb(
    "unpark",
    examples=[
        ("how many items would go, if mail held what failed in jobs", "logwright unpark queues/mail --to jobs --plan"),
        ("put the first one back, and see whether it works now", "logwright unpark queues/mail --to jobs --limit 1"),
        ("all of them, for a program", "logwright unpark queues/mail --to jobs --json"),
    ],
)
@path_argument
@click.option(
    "--to",
    "target",
    metavar="QUEUE",
    help="The queue, in the same directory, that they go to; not needed where the name tells.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most so many, from the head on.")
@click.option("--plan", "only_plan", is_flag=True, help="Say how many would go where, and change nothing.")
@format_option
@json_option
def command(
    path: Path, target: str | None, limit: int | None, only_plan: bool, format_name: str | None, as_json: bool
) -> None:
    """Put the items of a parked queue back to the tail of the queue they came from, with no attempts counted.

    PATH is the journal of the queue where they are parked. The items of NAME are parked in NAME_parked unless its
    program says otherwise: then --to must tell. Both queues are locked meanwhile: when a program has one of them open,
    nothing is done. They take whatever comes, as their limits are only known to their program. A crash at any moment
    loses nothing. It can leave up to a thousand items in both queues; the next unpark puts these back once more, and
    says how many it found there.
    """
    format = chosen_format(path, format_name)
    if format.items is None:
        raise WrongUse(f"{path}: journals of the format {format.name} hold no items that could be parked")
    with damage_placed(path):
        done = format.items.unpark(path, target, most=limit, only_plan=only_plan)
    if as_json:
        names = {"from": str(done.source), "to": str(done.target)}
        print_json({"done": not only_plan, **names, "items": done.items, "left": done.left, "doubled": done.doubled})
    else:
        print_line(f"{done.source} -> {done.target}: {_items(done.items)}, {done.left} left")
    if only_plan:
        talk(f"{path}: this is the plan; nothing was changed")
    _warn_of_doubled(done)


def _warn_of_doubled(done: Unparked) -> None:
    if done.doubled:
        were = "was" if done.doubled == 1 else "were"
        warn(f"{_items(done.doubled)} {were} in {done.target} already: an unpark was interrupted, and put them there")


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"
