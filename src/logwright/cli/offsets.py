"""`logwright offsets`: the offsets of the consumers of a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.times import format_time
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    consumers_of,
    format_option,
    json_option,
    local_option,
    opened,
    path_argument,
    stored_offsets,
    verb,
)
from .output import Column, Table, print_json, print_line


@verb(
    "offsets",
    examples=[
        ("the offset and the lag of each consumer", "logwright offsets orders"),
        ("for a program", "logwright offsets orders --json"),
    ],
)
@path_argument
@local_option
@format_option
@json_option
def command(path: Path, local: bool, format_name: str | None, as_json: bool) -> int:
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
