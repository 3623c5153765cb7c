"""`logwright clean`: removes old segments that no consumer needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..core.format import Cleaning, Consumers
from ..core.times import NANOSECONDS, parse_duration
from ..errors import NotFound
from .arguments import (
    confirmed,
    consumers_of,
    format_option,
    json_option,
    must_ask,
    naming_path,
    opened,
    path_argument,
    verb,
    yes_option,
)
from .output import Column, Table, inform, print_json, print_line
from .units import format_size, parse_size


@verb(
    "clean",
    examples=[
        ("list what would be removed: segments that every consumer has passed", "logwright clean orders --plan"),
        (
            "remove segments older than a week that every consumer has passed",
            "logwright clean orders --max-age 7d --yes",
        ),
        (
            "keep at most 200 KB, and always the two newest segments",
            "logwright clean orders --max-bytes 200KB --keep 2 --yes",
        ),
        ("ignore a consumer that is no longer used", "logwright clean orders --ignore-consumer report --plan"),
    ],
)
@path_argument
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be removed, and change nothing.")
@click.option("--max-age", metavar="DURATION", help="Only remove segments older than this: 90s, 12h, 7d, 1h30m.")
@click.option(
    "--max-bytes", metavar="SIZE", help="Only remove until the journal is at most this large: 4096, 64k, 10GiB."
)
@click.option("--keep", metavar="N", type=click.IntRange(min=1), default=1, help="Always keep the N newest segments.")
@click.option("--ignore-consumer", "ignored", metavar="NAME", multiple=True, help="Do not wait for this consumer.")
@yes_option
@format_option
@json_option
def command(
    path: Path,
    only_plan: bool,
    max_age: str | None,
    max_bytes: str | None,
    keep: int,
    ignored: tuple[str, ...],
    yes: bool,
    format_name: str | None,
    as_json: bool,
) -> None:
    """Remove old segments that every consumer has passed. This cannot be undone.

    Without a limit all segments are removed that all consumers have passed; a journal without consumers needs a limit.
    The last segment is always kept. Works while a writer appends. Asks first; without a terminal it needs --yes.
    """
    consumers = consumers_of(path, format_name)
    rules: dict[str, Any] = {"keep_segments": keep}
    if max_age is not None:
        rules["max_age_seconds"] = parse_duration(max_age) / NANOSECONDS
    if max_bytes is not None:
        rules["max_bytes"] = parse_size(max_bytes)
    with opened(path, format_name) as reader:
        journals = consumers.journals(reader)
        ignorable = [_ignorable(consumers, journal.directory, ignored) for journal in journals]
        for name in ignored:
            if not any(name in names for names in ignorable):
                raise NotFound(f"{path}: there is no consumer {name!r} to ignore")
        plans = []
        for journal, names in zip(journals, ignorable, strict=True):
            with naming_path(journal.directory):
                plans.append(consumers.clean(journal.directory, only_plan=True, ignore_consumers=names, **rules))
        segments = sum(len(plan.removed) for plan in plans)
        size = sum(plan.removed_bytes for plan in plans)
        doing = not only_plan and segments > 0
        if doing and must_ask(f"removing segments of {path} for good", yes):
            if not as_json:
                for plan in plans:
                    _print_plan(plan, "goes")
            doing = confirmed(f"Remove {segments} segments ({format_size(size)}) for good?")
            if not doing:
                inform("nothing was removed")
                return
        for journal, names, plan in zip(journals, ignorable, plans, strict=True):
            result = plan
            if doing:
                result = consumers.clean(journal.directory, only_plan=False, ignore_consumers=names, **rules)
            if as_json:
                print_json(journal.named({"done": doing, **result.as_json()}))
            else:
                _print_plan(result, "removed" if doing else "goes")


def _ignorable(consumers: Consumers, directory: Path, ignored: tuple[str, ...]) -> list[str]:
    """The consumers to ignore that a journal has: a shard may not have all of them."""
    known = consumers.names(directory)
    return [name for name in ignored if name in known]


def _print_plan(plan: Cleaning, word: str) -> None:
    """Print the verdict on each segment and its reason."""
    what = "removed" if word == "removed" else "would go"
    count = f"{len(plan.removed)} of {len(plan.verdicts)} segments {what}"
    print_line(f"{plan.directory}: {count} ({format_size(plan.removed_bytes)})")
    columns = [Column("segment"), Column("first", right=True), Column("bytes", right=True), Column(""), Column("why")]
    with Table(columns) as table:
        for verdict in plan.verdicts:
            fate = word if verdict.removed else "stays"
            table.add(verdict.name, str(verdict.first), str(verdict.bytes), fate, verdict.reason)
