"""`logwright offsets`, `reset` and `clean`: the consumers of a journal, and the segments that they have passed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..core.format import Cleaning, Consumers
from ..core.times import NANOSECONDS, format_time, parse_duration, parse_time
from ..errors import DamagedJournal, NotFound, StorageFailed, WrongUse
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    chosen_format,
    confirmed,
    journal_verb,
    local_option,
    must_ask,
    naming_path,
    opened,
    yes_option,
)
from .output import Column, Table, format_size, inform, parse_size, place, print_json, print_line, warn


def consumers_of(path: Path, format_name: str | None) -> Consumers:
    """The consumers of a format; raises `WrongUse` if it has none."""
    format = chosen_format(path, format_name)
    if format.consumers is None:
        raise WrongUse(f"{path}: journals of the format {format.name} have no consumers")
    return format.consumers


def stored_offsets(consumers: Consumers, directory: Path) -> tuple[dict[str, int | None], bool]:
    """The offset of each consumer of a journal, and whether all could be read; warns of those that could not."""
    found: dict[str, int | None] = {}
    names = consumers.names(directory)
    for name in names:
        try:
            found[name] = consumers.offset(directory, name)
        except DamagedJournal as error:
            warn(f"{place(directory, str(error.file))} @ {error.position}: {error.reason}")
        except StorageFailed as error:
            warn(f"the offset of the consumer {name!r} cannot be read: {error}")
    return found, len(found) == len(names)


# --- offsets ---------------------------------------------------------------------------------------------------------


@journal_verb(
    "offsets",
    examples=[
        ("the offset and the lag of each consumer", "logwright offsets orders"),
        ("for a program", "logwright offsets orders --json"),
    ],
)
@local_option
def offsets(path: Path, local: bool, format_name: str | None, as_json: bool) -> int:
    """Print the first and the next offset of a journal and the committed offset of each consumer.

    An offset is that of the next message that the consumer reads; the table also has that message's time, and the
    number of messages from there to the end. A consumer that has not committed yet has no offset (null in JSON). An
    offset that cannot be read is reported on stderr, and makes the exit code 1. Needs no lock. Below a root of shards
    there is one result for each shard.
    """
    consumers = consumers_of(path, format_name)
    damaged = False
    with opened(path, format_name) as reader:
        for journal in consumers.journals(reader):
            offsets, all_read = stored_offsets(consumers, journal.directory)
            damaged = damaged or not all_read
            first, next_offset = journal.reader.first, journal.reader.next
            if as_json:
                print_json(journal.named({"first": first, "next": next_offset, "consumers": offsets}))
                continue
            print_line(f"{journal.directory}: first {first}, next {next_offset}")
            columns = [Column("consumer"), Column("offset", right=True), Column("lag", right=True), Column("time")]
            with Table(columns) as table:
                for name, offset in offsets.items():
                    when = format_time(_time_at(journal.reader, offset), local=local)
                    table.add(name, "-" if offset is None else str(offset), _lag(offset, first, next_offset), when)
    return DAMAGE_FOUND if damaged else GOOD


def _time_at(reader: Any, offset: int | None) -> int | None:
    """The timestamp of the next message of a consumer; None if there is none."""
    if offset is None:
        return None
    for item in reader.scan(offset, offset + 1, mode="dropmalformed"):
        timestamp: int | None = item.record.timestamp
        return timestamp if item.record.offset == offset else None
    return None


def _lag(offset: int | None, first: int, next_offset: int) -> str:
    """The number of messages that a consumer has not read."""
    if offset is None:
        return "not committed"
    if offset > next_offset:
        return f"{offset - next_offset} beyond the end"
    return f"{next_offset - offset}" if offset >= first else f"{next_offset - first}, {first - offset} lost"


# --- reset -----------------------------------------------------------------------------------------------------------


@journal_verb(
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
@click.argument("name")
@click.option("--to", "target", metavar="OFFSET|first|last|TIME", required=True, help="The new offset.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the new offset, and change nothing.")
@click.option("--create", is_flag=True, help="Create the consumer if it does not exist.")
@local_option
def reset(
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


# --- clean -----------------------------------------------------------------------------------------------------------


@journal_verb(
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
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be removed, and change nothing.")
@click.option("--max-age", metavar="DURATION", help="Only remove segments older than this: 90s, 12h, 7d, 1h30m.")
@click.option(
    "--max-bytes", metavar="SIZE", help="Only remove until the journal is at most this large: 4096, 64k, 10GiB."
)
@click.option("--keep", metavar="N", type=click.IntRange(min=1), default=1, help="Always keep the N newest segments.")
@click.option("--ignore-consumer", "ignored", metavar="NAME", multiple=True, help="Do not wait for this consumer.")
@yes_option
def clean(
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
