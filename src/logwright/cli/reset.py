"""`logwright reset`: moves a consumer to another offset or time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..core.format import Consumers
from ..core.times import parse_time
from ..errors import DamagedJournal, NotFound, WrongUse
from .arguments import consumers_of, format_option, json_option, local_option, opened, path_argument, verb
from .output import inform, print_json, print_line


@verb(
    "reset",
    examples=[
        ("consume everything again", "logwright reset orders billing --to first"),
        ("continue with message 1000", "logwright reset orders billing --to 1000"),
        ("continue with the first message of ten o'clock", "logwright reset orders billing --to 2026-01-15T10:00:00Z"),
        (
            "show the first message of the last ten minutes, and change nothing",
            "logwright reset orders billing --to '10 minutes ago' --plan",
        ),
        ("create a consumer that begins at the end", "logwright reset orders audit --to last --create"),
    ],
)
@path_argument
@click.argument("name")
@click.option("--to", "target", metavar="OFFSET|first|last|TIME", required=True, help="The new offset.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the new offset, and change nothing.")
@click.option("--create", is_flag=True, help="Create the consumer if it does not exist.")
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
    """Move a consumer that is not running to an offset, to the beginning or end, or to a time.

    A plain number is an offset; anything else except `first` and `last` is a time. Below a root of shards the consumer
    is moved in each shard, or in none if it is running in one of them.
    """
    consumers = consumers_of(path, format_name)
    where = _parse_target(target, local)
    with opened(path, format_name) as reader:
        journals = consumers.journals(reader)
        if "to" in where and isinstance(where["to"], int) and len(journals) > 1:
            raise WrongUse(f"{path}: an offset means a different message in each shard; reset one shard at a time")
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
            inform(f"{path}: nothing was changed")


def _stored(consumers: Consumers, directory: Path, name: str) -> int | None:
    """The offset of a consumer; None for a new one, and for an unreadable offset that the reset will replace."""
    with suppress(NotFound, DamagedJournal):
        return consumers.offset(directory, name)
    return None


def _parse_target(target: str, local: bool) -> dict[str, Any]:
    """The arguments of `reset` for a target."""
    if target in ("first", "last"):
        return {"to": target}
    if target.isascii() and target.isdigit():
        return {"to": int(target)}
    return {"time": parse_time(target, local=local)}
