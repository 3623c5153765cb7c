"""`logwright clean`: removes old segments that no consumer needs any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..core.format import Cleaning, Consumers
from ..errors import NotFound
from .arguments import (
    agreed,
    consumers_of,
    damage_placed,
    format_option,
    json_option,
    must_ask,
    opened,
    path_argument,
    verb,
    yes_option,
)
from .output import Column, Table, print_json, print_line, talk
from .times import NANOSECONDS, format_size, parse_duration, parse_size


@verb(
    "clean",
    examples=[
        ("what would go: whatever every consumer has passed", "logwright clean orders --plan"),
        ("what is older than a week, if every consumer has passed it", "logwright clean orders --max-age 7d --yes"),
        ("at most 200 KB, always the two newest segments", "logwright clean orders --max-bytes 200KB --keep 2 --yes"),
        ("without waiting for a consumer that is gone", "logwright clean orders --ignore-consumer report --plan"),
    ],
)
@path_argument
@click.option("--plan", "only_plan", is_flag=True, help="Say what would go, and change nothing.")
@click.option("--max-age", metavar="DURATION", help="Only what is older: 90s, 12h, 7d, 1h30m.")
@click.option("--max-bytes", metavar="SIZE", help="Only what makes the journal larger than this: 4096, 64k, 10GiB.")
@click.option("--keep", metavar="N", type=click.IntRange(min=1), default=1, help="Always the N newest segments stay.")
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
    """Remove whole old segments that every consumer has passed. What goes is gone for good.

    Without a limit everything goes that all consumers have passed; a journal without consumers needs a limit. The last
    segment always stays. Works while a writer appends. Asks first; where there is no
    terminal to ask on it needs --yes.
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
            with damage_placed(journal.directory):
                plans.append(consumers.clean(journal.directory, only_plan=True, ignore_consumers=names, **rules))
        segments = sum(len(plan.removed) for plan in plans)
        size = sum(plan.removed_bytes for plan in plans)
        doing = not only_plan and segments > 0
        if doing and must_ask(f"removing segments of {path} for good", yes):
            if not as_json:
                for plan in plans:
                    _print_plan(plan, "goes")
            doing = agreed(f"Remove {segments} segments ({format_size(size)}) for good?")
            if not doing:
                talk("nothing was removed")
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
    """Which of the consumers to be ignored a journal has: a shard need not have all of them."""
    known = consumers.names(directory)
    return [name for name in ignored if name in known]


def _print_plan(plan: Cleaning, word: str) -> None:
    """What becomes of each segment, and why."""
    what = "removed" if word == "removed" else "would go"
    count = f"{len(plan.removed)} of {len(plan.verdicts)} segments {what}"
    print_line(f"{plan.directory}: {count} ({format_size(plan.removed_bytes)})")
    columns = [Column("segment"), Column("first", right=True), Column("bytes", right=True), Column(""), Column("why")]
    with Table(columns) as table:
        for verdict in plan.verdicts:
            fate = word if verdict.removed else "stays"
            table.add(verdict.name, str(verdict.first), str(verdict.bytes), fate, verdict.reason)
