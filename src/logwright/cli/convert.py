"""`logwright convert`: a journal to Parquet, JSON lines, CSV, a database or another journal, and back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.bytes.outcome import Damage, Mode
from ..core.format import FORMATS, find_format
from ..core.io.disk import REAL_DISK
from ..core.read.report import Progress
from ..core.repair.losses import Loss, add_losses, inherited
from ..core.times import parse_time
from ..errors import LogwrightError, NotFound, WrongUse
from .arguments import (
    DAMAGE_FOUND,
    GOOD,
    JournalPath,
    chosen_format,
    json_option,
    local_option,
    mode_option,
    naming_path,
    scan_mode,
    since_option,
    until_option,
    verb,
)
from .output import describe, format_size, print_json, print_line, progress_bar, warn

if TYPE_CHECKING:
    from ..arrow import Converted

PARQUET: Final = "parquet"
LINES: Final = ("jsonl", "csv")
DATABASES: Final = ("sqlite", "duckdb")
FILES: Final = (PARQUET, *LINES, *DATABASES)
_ENDINGS: Final = {".parquet": PARQUET, ".jsonl": "jsonl", ".csv": "csv", ".sqlite": "sqlite", ".duckdb": "duckdb"}
_MESSAGE_FIELDS: Final = ("offset", "timestamp", "type", "key", "value")
_PARQUET_MAGIC: Final = b"PAR1"


@verb(
    "convert",
    examples=[
        ("to Parquet, which DuckDB, Polars and Spark read", "logwright convert orders orders.parquet --to parquet"),
        ("and back", "logwright convert orders.parquet again --to sej"),
        ("to JSON lines, the objects of dump --json, and back", "logwright convert queues/mail mail.jsonl"),
        ("back from them", "logwright convert mail.jsonl mails --to kestrel"),
        ("to a database of SQLite, with all tables of the format", "logwright convert queues queues.sqlite"),
        ("an hour of it", "logwright convert orders ten.parquet --since 2026-01-15T10:00Z --until 2026-01-15T11:00Z"),
        ("the complete records of a damaged journal", "logwright convert damaged salvaged --to sej --mode permissive"),
        ("the waiting items of a queue, as messages", "logwright convert queues/mail unsent --to sej --waiting"),
        (
            "all queues as one journal, and back",
            "logwright convert queues all --to sej && logwright convert all back --to kestrel --by-key",
        ),
    ],
)
@click.argument("source", type=JournalPath())
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Choice([*FILES, *FORMATS]),
    help="The format to write; optional if DESTINATION ends in .parquet, .jsonl, .csv, .sqlite or .duckdb.",
)
@click.option("--waiting", is_flag=True, help="Only the items that wait in a queue, not those that were removed.")
@click.option("--by-key", is_flag=True, help="To kestrel: the key of a message names its queue.")
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if the format of DESTINATION cannot store something, instead of leaving it out.",
)
@since_option
@until_option
@local_option
@mode_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice([PARQUET, *LINES, *FORMATS]),
    help="The format of SOURCE; detected by default.",
)
@json_option
def command(
    source: Path,
    destination: Path,
    target: str | None,
    waiting: bool,
    by_key: bool,
    strict: bool,
    since: str | None,
    until: str | None,
    local: bool,
    mode: Mode,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Convert a journal to a file or to another journal, or a file to a journal.

    Needs little memory for any size. DESTINATION gets its name after all of it has been synced; existing files are
    never overwritten. Records written to a journal get new offsets, from 0.

    From kestrel to sej every item that was added becomes a message: its data is the value, its queue the key, its time
    the time; with --waiting only items that still wait. To kestrel every message becomes an item of the queue named
    DESTINATION, or named by its key (--by-key). What a format cannot store (expiries in sej; types, keys and fractions
    of a millisecond in kestrel) is left out, and counted on stderr.

    From versioned every change that sets a key becomes a message: its JSON is the value, its key the key, its time the
    time. To versioned it is the reverse, into the store named DESTINATION: values must be JSON.

    JSON lines and CSV have the fields of `dump --json`, and become a journal of the same format again, apart from heads
    of files and copies in versioned; records of shards become one journal. Databases have the table `records`, in typed
    columns, and without --since and --until the other tables of the format (docs/query.md).
    """
    target = target or _ENDINGS.get(destination.suffix)
    if target is None:
        raise WrongUse(f"the format of {destination} is unknown: give it with --to")
    origin = format_name or _origin(source)
    if REAL_DISK.exists(destination):
        raise WrongUse(f"{destination} already exists; nothing was overwritten")
    if target in FILES and not REAL_DISK.is_directory(destination.parent):  # a journal creates its directory
        raise NotFound(f"{destination.parent}: no such directory")
    given = {"from_time": since, "to_time": until}
    times = {name: None if time is None else parse_time(time, local=local) for name, time in given.items()}
    with naming_path(source), progress_bar("converting") as progress:
        options = (waiting, by_key, strict, mode, progress)
        result = _convert(_Conversion(source, origin, destination, target, times, *options))
    for damage in (*result.damages, *result.torn_tails):
        warn(f"left out: {describe(source, damage)}")
    if result.losses:
        warn(f"{source} has known losses, which are in the account of {destination} as well")
    if as_json:
        print_json({"records": result.rows, "bytes": result.bytes, "from": origin, "to": target})
    else:
        print_line(f"{source} -> {destination}: {result.rows} records, {format_size(result.bytes)}")
    return DAMAGE_FOUND if any(damage.kind != "torn_tail" for damage in result.damages) else GOOD


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The source and the destination with their formats, the range of times, and the options of a conversion."""

    source: Path
    origin: str
    destination: Path
    target: str
    times: dict[str, Any]
    waiting: bool
    by_key: bool
    strict: bool
    mode: Mode
    progress: Progress | None

    @property
    def has_range(self) -> bool:
        return any(time is not None for time in self.times.values())

    def check(self) -> None:
        """Raise `WrongUse` for options that do not go together."""
        if self.origin in FILES and (self.has_range or self.waiting or self.by_key):
            what = "Parquet" if self.origin == PARQUET else "a file"
            raise WrongUse(f"these options select records of a journal; they do not work on {what}")
        if self.origin in FILES and self.target in FILES and (self.origin, self.target) != (PARQUET, PARQUET):
            raise WrongUse(f"{self.origin} can only become a journal: --to {', '.join(FORMATS)}")
        if self.waiting and self.target in (*LINES, *DATABASES):
            what = f"a database has the table items, and {self.target} has not"
            raise WrongUse(f"--waiting is for Parquet and journals; {what}")
        if self.waiting and self.has_range:
            raise WrongUse("--waiting selects the items that wait now: it excludes --since and --until")
        if self.by_key and (self.target != "kestrel" or self.origin == "kestrel"):
            raise WrongUse("--by-key makes queues of messages: it needs --to kestrel, and a source that is not kestrel")

    @property
    def selection(self) -> dict[str, Any]:
        """The options of `arrow.batches`, or of `arrow.items` if only items that wait are converted."""
        common = {"mode": scan_mode(self.mode), "format": self.origin}
        return common if self.waiting else {**common, **self.times, "progress": self.progress}


def _convert(job: _Conversion) -> Converted:
    job.check()
    if job.origin == PARQUET:
        return _from_parquet(job)
    if job.origin in LINES:
        return _from_lines(job)
    if job.target in LINES:
        return _to_lines(job)
    return _to_database(job) if job.target in DATABASES else _from_journal(job)


def _from_journal(job: _Conversion) -> Converted:
    from .. import arrow

    if job.target == PARQUET:
        return arrow.to_parquet(job.source, job.destination, waiting=job.waiting, **job.selection)
    found = (arrow.items if job.waiting else arrow.batches)(job.source, **job.selection)
    left_out: Counter[str] = Counter()
    rows = 0

    def fill(writer: Any) -> list[Loss]:
        nonlocal rows
        for batch in found:
            taken = batch if job.origin == job.target else _as_messages(job, batch)
            if job.origin != job.target:
                left_out.update(arrow.left_out(job.target, taken))
            arrow.append(writer, taken)
            rows += taken.num_rows
        if job.strict:
            _refuse(job, left_out, found.rows - rows)
        same_numbers = job.origin == job.target and _has_times(job.target)
        return inherited(found.losses, found.damages, same_numbers=same_numbers)

    size = _write_journal(job, fill)
    if rows < found.rows:
        warn(f"left out: {found.rows - rows} records without a value, which {job.target} cannot store")
    for what, count in left_out.items():
        if count:
            warn(f"left out: the {what} of {count} records, which {job.target} cannot store")
    return arrow.Converted(rows, size, found.damages, found.torn_tails, found.losses)


def _as_messages(job: _Conversion, batch: Any) -> Any:
    from .. import arrow

    messages = arrow.as_messages(job.origin, batch)
    items = find_format(job.target).items
    return items.named_by_key(messages) if job.by_key and items is not None else messages


def _refuse(job: _Conversion, left_out: Counter[str], without_value: int) -> None:
    """Raise `WrongUse` if something would be left out."""
    lost = [f"the {what} of {count} records" for what, count in left_out.items() if count]
    if without_value:
        lost.append(f"{without_value} records without a value")
    if lost:
        raise WrongUse(f"{job.source}: {job.target} cannot store {', '.join(lost)}")


def _from_parquet(job: _Conversion) -> Converted:
    from .. import arrow

    if job.target == PARQUET:
        raise WrongUse(f"{job.source} is Parquet already")
    rows = 0
    losses = arrow.parquet_losses(job.source)

    def fill(writer: Any) -> list[Loss]:
        nonlocal rows
        rows = arrow.from_parquet(job.source, writer, progress=job.progress)
        return inherited(losses, (), same_numbers=_has_times(job.target))

    size = _write_journal(job, fill)
    return arrow.Converted(rows, size, losses=losses)


def _from_lines(job: _Conversion) -> Converted:
    """JSON lines or CSV to a journal."""
    from .. import arrow
    from ..arrow.exports import read_rows
    from ..arrow.json_rows import JsonRows

    rows = JsonRows(find_format(job.target))

    def fill(writer: Any) -> list[Loss]:
        for _ in read_rows(job.source, job.origin, rows, job.progress):
            try:
                for batch in rows.take_with_parts():
                    writer.append_batch(batch)
            except WrongUse as error:
                raise WrongUse(f"{job.source}: {error}") from None
        return []

    size = _write_journal(job, fill)
    if rows.skipped:
        warn(f"left out: {rows.skipped} heads of files or copies of earlier changes, which a store writes itself")
    return arrow.Converted(rows.records, size)


def _to_lines(job: _Conversion) -> Converted:
    """A journal to JSON lines or CSV."""
    from .. import arrow
    from ..arrow.exports import csv_columns, write_lines

    damages: list[Damage] = []
    format = find_format(job.origin)
    with format.open(job.source) as reader:
        first, end = (None if time is None else reader.find_time(time) for time in job.times.values())

        def records() -> Iterator[dict[str, Any]]:
            for item in reader.scan(first, end, mode=scan_mode(job.mode), progress=job.progress):
                if isinstance(item, Damage):
                    damages.append(item)
                    continue
                fields = reader.as_json(item)
                if job.target == "jsonl" or "initialized" not in fields:
                    yield fields

        part_name = reader.part_name if reader.has_parts else None
        names = csv_columns(format, reader.row_fields or _MESSAGE_FIELDS, part_name)
        rows = write_lines(job.destination, job.target, format, records(), names)
        torn = list(reader.all_torn_tails())
        found = [damage for damage in damages if damage.kind != "torn_tail"]
        return arrow.Converted(rows, REAL_DISK.file_size(job.destination), found, torn)


def _to_database(job: _Conversion) -> Converted:
    """A journal to a database, with the other tables of its format."""
    from .. import arrow
    from ..arrow.dataset import dataset
    from ..arrow.exports import write_database
    from ..arrow.rows import fill, record_columns, sources_of
    from ..arrow.tables import table_names

    mode: Mode = "failfast" if job.mode == "failfast" else "dropmalformed"
    schema = record_columns(job.origin)
    with find_format(job.origin).open(job.source) as reader:
        names = sources_of(schema.names, job.origin, sharded=reader.has_parts)
        found = arrow.batches(reader, names, mode=scan_mode(job.mode), progress=job.progress, **job.times)

        def tables() -> Iterator[tuple[str, Any, Any]]:
            yield "records", schema, (fill(schema, batch, job.origin, "") for batch in found)
            others = {} if job.has_range else table_names(job.origin)
            names = {
                long: min((short for short in others if others[short] == long), key=len) for long in others.values()
            }
            for long, short in names.items():
                if long not in ("records", "damage"):
                    other = dataset(job.source, long, mode=mode, format=job.origin)
                    yield short, other.schema, other.scanner().to_batches()

        rows = write_database(job.destination, job.target, tables())
        size = REAL_DISK.file_size(job.destination)
        return arrow.Converted(rows["records"], size, found.damages, found.torn_tails)


def _has_times(format: str) -> bool:
    """Whether losses of a format are identified by times, which a conversion keeps, and not by record numbers."""
    return find_format(format).states is not None


def _write_journal(job: _Conversion, fill: Callable[[Any], list[Loss]]) -> int:
    """Write a journal under a temporary name, rename it when it is complete, and return its size.

    `fill` returns the losses that the new journal inherits.
    """
    format = find_format(job.target)
    partial = job.destination.with_name(f".{job.destination.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with format.open_target(partial, job.destination.name) as writer:
            losses = fill(writer)
        add_losses(REAL_DISK, partial, losses)
        REAL_DISK.rename(partial, job.destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    REAL_DISK.sync_directory(job.destination.parent)
    with format.open(job.destination) as reader:
        return reader.summary().bytes


def _origin(source: Path) -> str:
    """The format of the source by its bytes, or of JSON lines and CSV by its name."""
    if _is_parquet(source):
        return PARQUET
    ending = _ENDINGS.get(source.suffix)
    return ending if ending in LINES and source.is_file() else chosen_format(source, None).name


def _is_parquet(path: Path) -> bool:
    try:
        file = REAL_DISK.open(path, "read")
    except LogwrightError:
        return False
    try:
        return file.read_at(0, len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    finally:
        file.close()
