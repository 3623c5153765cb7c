"""`logwright reset`: moves a consumer to another offset or time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..core.format import Consumers
from ..errors import DamagedJournal, NotFound, WrongUse
from .arguments import consumers_of, format_option, json_option, local_option, opened, path_argument, verb
from .output import print_json, print_line, talk
from .times import parse_time


@verb(
    "reset",
    examples=[
        ("consume everything again", "logwright reset orders billing --to first"),
        ("go on with message 1000", "logwright reset orders billing --to 1000"),
        ("go on with the first message of ten o'clock", "logwright reset orders billing --to 2026-01-15T10:00:00Z"),
        (
            "where the messages of ten minutes ago begin, without moving",
            "logwright reset orders billing --to '10 minutes ago' --plan",
        ),
        ("a new consumer that begins at the end", "logwright reset orders audit --to last --create"),
    ],
)
@path_argument
@click.argument("name")
@click.option("--to", "target", metavar="OFFSET|first|last|TIME", required=True, help="Where it shall go on.")
@click.option("--plan", "only_plan", is_flag=True, help="Say where it would go, and change nothing.")
@click.option("--create", is_flag=True, help="Make the consumer if there is none of this name.")
@local_option
@format_option
@json_option
def command(
    path: Path,
    name: str,
    target: str,
    only_plan: bool,
    create: bool,
    local: bool,
    format_name: str | None,
    as_json: bool,
) -> None:
    """Move a consumer that is not running: to an offset, to an end, or to a time.

    A plain number is an offset, anything else but `first` and `last` a time. Below a root of shards the consumer is
    moved in each shard, or, when it is running in one of them, in none.
    """
    consumers = consumers_of(path, format_name)
    where = _parse_target(target, local)
    with opened(path, format_name) as reader:
        journals = consumers.journals(reader)
        if "to" in where and isinstance(where["to"], int) and len(journals) > 1:
            raise WrongUse(f"{path}: an offset is another message in each shard; reset one shard at a time")
        directories = [journal.directory for journal in journals]
        befores = [_stored(consumers, directory, name) for directory in directories]
        if only_plan:
            afters = [consumers.plan_reset(directory, name, create=create, **where) for directory in directories]
        else:
            afters = consumers.reset(directories, name, create=create, **where)
        for journal, before, after in zip(journals, befores, afters, strict=True):
            if as_json:
                print_json(journal.named({"consumer": name, "before": before, "after": after, "done": not only_plan}))
            else:
                came_from = "nothing committed" if before is None else str(before)
                print_line(f"{journal.directory}: {name} {came_from} -> {after}")
        if only_plan:
            talk(f"{path}: this is the plan; nothing was changed")


def _stored(consumers: Consumers, directory: Path, name: str) -> int | None:
    """Where a consumer is, None also for one that --create shall make, and for an offset that a reset shall mend."""
    with suppress(NotFound, DamagedJournal):
        return consumers.offset(directory, name)
    return None


def _parse_target(target: str, local: bool) -> dict[str, Any]:
    """The arguments of `reset` that a target stands for."""
    if target in ("first", "last"):
        return {"to": target}
    if target.isascii() and target.isdigit():
        return {"to": int(target)}
    return {"time": parse_time(target, local=local)}
