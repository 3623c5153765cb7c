"""`logwright pipeline`: makes tables from journals on Spark, and restores journals from tables.

Errors of Spark are printed as one line; its log is kept only if it fails.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.bytes.outcome import MODES, Mode
from ..core.times import parse_time
from ..errors import LogwrightError, WrongUse
from .arguments import CONTEXT_SETTINGS, DAMAGE_FOUND, GOOD, json_option, options, verb
from .output import (
    Column,
    Table,
    format_size,
    inform,
    is_terminal,
    print_json,
    print_line,
    progress_bar,
    start_bar,
    warn,
)

if TYPE_CHECKING:
    from ..core.publish.restore import Restored
    from ..pipeline.run import Result
    from ..pipeline.settings import Settings


@click.group(
    "pipeline", no_args_is_help=False, context_settings=CONTEXT_SETTINGS, subcommand_metavar="VERB [ARGUMENTS]..."
)
def command() -> None:
    """Journals as tables on Spark, and back.

    Needs pyspark (pip install 'logwright[spark]') and Java 17 or later.
    """


_spark_options = options(
    click.option("--master", default="local[*]", show_default=True, metavar="URL", help="The master URL of Spark."),
    click.option(
        "--remote", metavar="URL", help="Use a server of Spark Connect, such as sc://HOST:15002, instead of --master."
    ),
    click.option(
        "--spark",
        "spark_settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="A Spark setting such as spark.driver.memory=4g; can be given several times.",
    ),
)


# --- run ------------------------------------------------------------------------------------------------------------


@verb(
    "run",
    examples=[
        (
            "make Parquet tables and a report from all journals below a directory",
            "logwright pipeline run --journals . --out tables",
        ),
        ("add what is new since the last run", "logwright pipeline run --journals . --out growing --incremental"),
        (
            "some of the tables, as JSON",
            "logwright pipeline run --journals orders --out few --tables events,activity --json",
        ),
    ],
)
@click.option("--journals", metavar="ROOT", help="A journal, or a directory with journals in or below it; or a URI.")
@click.option(
    "--out",
    metavar="DIR",
    help="The directory of the tables: a new one, or that of an earlier run; for delta and iceberg also s3://BUCKET/PREFIX.",
)
@click.option("--incremental", is_flag=True, help="Add what is new since the last run, instead of reading everything.")
@click.option("--follow", is_flag=True, help="Keep adding new records until stopped by Ctrl-C or SIGTERM.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=float,
    help="With --follow: look for new records this often; default: at once after a batch, otherwise every second.",
)
@click.option(
    "--format", "table_format", metavar="NAME", help="The format of the tables: parquet (default), delta, iceberg."
)
@click.option(
    "--mode", type=click.Choice(MODES), help="At damage: a row of the table `damage` (permissive, default), …"
)
@click.option("--tables", metavar="NAMES", help="The tables to make, separated by commas; default: all.")
@click.option("--decode", metavar="NAME", help="Decode the values of messages: json, msgpack, bonjson or text.")
@click.option("--at", metavar="TIME", help="The time of `kv_state` and of expired items of queues; default: now.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A TOML file with all of these settings, and rules for journals and tables.",
)
@click.option("--metrics", metavar="FILE", help="Write metrics for Prometheus to this file after every batch.")
@click.option("--lineage", metavar="FILE|URL", help="Append events of OpenLineage to a file, or send them to a URL.")
@_spark_options
@json_option
def run_command(
    journals: str | None,
    out: str | None,
    incremental: bool,
    follow: bool,
    interval: float | None,
    table_format: str | None,
    mode: Mode | None,
    tables: str | None,
    decode: str | None,
    at: str | None,
    config: Path | None,
    metrics: str | None,
    lineage: str | None,
    master: str,
    remote: str | None,
    spark_settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Make tables and a report from all journals at or below a directory.

    All tables appear in DIR together or not at all. They replace those of an earlier run, or with --incremental are
    added to them. Damage becomes rows of the table `damage` and does not stop the run; the exit code is 1 then. A torn
    tail is not damage.
    """
    settings = _settings_of(
        config,
        journals=journals,
        out=out,
        incremental=incremental or None,
        follow=follow or None,
        interval_seconds=interval,
        metrics=metrics,
        lineage=lineage,
        format=table_format,
        mode=mode,
        tables=None if tables is None else _names_in(tables),
        moment=None if at is None else _moment(at),
    )
    if decode is not None:
        settings = _decoding(settings, decode)
    with _needing_pyspark():
        from ..pipeline.own_spark import own_spark
        from ..pipeline.run import run
    stop = threading.Event()
    with (
        _Display() as display,
        _Stopping(stop if settings.follow else None) as stopping,
        own_spark(master, _spark_settings(spark_settings), stopping.install, remote=remote) as start,
    ):
        result = run(settings, start, progress=display, stop=stop)
    _print_result(result, as_json)
    return DAMAGE_FOUND if result.is_damaged else GOOD


def _decoding(settings: Settings, decode: str) -> Settings:
    """Settings by which the values of all messages are decoded that no rule is for."""
    from ..pipeline.settings import JournalRule

    return replace(settings, journal_rules=(*settings.journal_rules, JournalRule("*", decode=decode)))


def _names_in(tables: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in tables.split(",") if name.strip())
    if not names:
        raise WrongUse("--tables: name at least one table, or omit it for all of them")
    return names


def _moment(text: str) -> datetime.datetime:
    """A time as a datetime, which has microseconds only."""
    micros = parse_time(text) // 1000
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)


def _settings_of(config: Path | None, **chosen: Any) -> Settings:
    from ..pipeline.settings import Settings, load

    if config is not None:
        return load(config, **chosen)
    for name in ("journals", "out"):
        if chosen[name] is None:
            raise WrongUse(f"give --{name}, or a file that contains it with --config")
    return Settings(**{name: value for name, value in chosen.items() if value is not None})


def _print_result(result: Result, as_json: bool) -> None:
    if result.completed:
        inform("completed the last batch of an earlier run, which had been interrupted")
    if not result.batches:
        inform("no new records")
    elif result.records and result.seconds:
        inform(f"{result.records:,} records in {result.seconds:.1f} s: {speed(1, result.records, result.seconds)}")
    for note in result.notes:
        warn(note)
    for name, found in result.found.items():
        for kind, count in found.damage.items():
            what = "torn tail" if kind == "torn_tail" else f"range that is damaged ({kind})"
            warn(f"{name}: {count} {what}{'' if count == 1 else ', in several places'}")
    for each in result.expectations:
        if each.new:
            rows = "1 row does" if each.new == 1 else f"{each.new:,} rows do"
            where = " and is in the table quarantine" if each.new == 1 else " and are in the table quarantine"
            warn(f"{each.table}: {rows} not meet {each.name!r}{where if each.action == 'quarantine' else ''}")
    if as_json:
        print_json(
            {
                "out": result.out,
                "batches": result.batches,
                "records": result.records,
                "seconds": round(result.seconds, 3),
                "completed": result.completed,
                "tables": {name: asdict(totals) for name, totals in result.tables.items()},
                "journals": {name: asdict(found) for name, found in result.journals.items()},
                "new": {name: asdict(found) for name, found in result.found.items()},
                "expectations": [asdict(each) for each in result.expectations],
                "report": result.report,
                "notes": result.notes,
            }
        )
        return
    with Table([Column("table"), *_numbers("rows", "files", "bytes")]) as table:
        for name, totals in result.tables.items():
            table.add(name, str(totals.rows), str(totals.files), format_size(totals.bytes))
    print_line()
    with Table([Column("journal", flexible=True), Column("format"), *_numbers("records", "bytes", "damage")]) as table:
        for name, found in result.journals.items():
            damage = ", ".join(f"{count} {kind}" for kind, count in found.damage.items())
            table.add(name, found.format, str(found.records), format_size(found.bytes), damage or "-")
    if result.report is not None:
        print_line()
        print_line(f"report: {result.report}")


def _numbers(*names: str) -> list[Column]:
    return [Column(name, right=True) for name in names]


# --- restore --------------------------------------------------------------------------------------------------------


@verb(
    "restore",
    examples=[
        ("restore all journals from the tables", "logwright pipeline restore --tables tables --out again"),
        ("restore some of them", "logwright pipeline restore --tables tables --out some --journal 'ord*' --json"),
    ],
)
@click.option("--tables", metavar="DIR", required=True, help="The directory of the tables.")
@click.option("--out", metavar="ROOT", required=True, help="The directory for the journals, each under its name.")
@click.option(
    "--journal",
    "journals",
    metavar="PATTERN",
    multiple=True,
    help="Only journals whose name matches; can be given several times.",
)
@click.option(
    "--format",
    "table_format",
    metavar="NAME",
    help="The format of the tables; default: the one that is noted beside them, or parquet.",
)
@_spark_options
@json_option
def restore_command(
    tables: str,
    out: str,
    journals: tuple[str, ...],
    table_format: str | None,
    master: str,
    remote: str | None,
    spark_settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Restore journals from the tables that the pipeline has made from them.

    The journals get their names when all of them are complete; existing files are never overwritten. Damaged records
    are not in the tables, and so not in the journals: if records are missing the exit code is 1.
    """
    with _needing_pyspark():
        from ..pipeline.failures import translated
        from ..pipeline.own_spark import own_spark
        from ..pipeline.restore import restore
    with (
        own_spark(master, _spark_settings(spark_settings), remote=remote) as start,
        progress_bar("restoring") as progress,
        translated(),
    ):
        restored = restore(
            tables, out, journals=journals or None, format=table_format, spark=start(), progress=progress
        )
    _print_restored(restored, as_json)
    return DAMAGE_FOUND if any(journal.gaps for journal in restored.journals) else GOOD


def _print_restored(restored: Restored, as_json: bool) -> None:
    if restored.completed:
        inform("completed an earlier restore, which had been interrupted")
    for journal in restored.journals:
        for gap in journal.gaps:
            part = f"{journal.journal}/{gap.part}" if gap.part else journal.journal
            warn(f"{part}: the records {gap.first} to {gap.next - 1} are not in the tables")
        if journal.missing_bytes:
            warn(f"{journal.journal}: {journal.missing_bytes} bytes of its files are not in the tables")
        for problem in journal.problems:
            warn(f"{journal.journal}: {problem}")
    if as_json:
        print_json(restored.as_json())
        return
    with Table([Column("journal", flexible=True), Column("format"), *_numbers("records", "files", "bytes")]) as table:
        for journal in restored.journals:
            size = format_size(journal.bytes)
            table.add(journal.journal, journal.format, str(journal.records), str(journal.files), size)


# --- compact --------------------------------------------------------------------------------------------------------


@verb(
    "compact",
    examples=[("merge the small files that increments have left", "logwright pipeline compact --tables growing")],
)
@click.option("--tables", metavar="DIR", required=True, help="The directory of the tables.")
@click.option(
    "--format",
    "table_format",
    metavar="NAME",
    help="The format of the tables; default: the one that is noted beside them, or parquet.",
)
@json_option
def compact_command(tables: str, table_format: str | None, as_json: bool) -> int:
    """Merge the small data files of tables into few.

    The rows stay the same. Runs merge small files themselves, such that a table has a bounded number of them.
    """
    with _needing_pyspark():
        from ..pipeline.run import compact
    result = compact(tables, format=table_format)
    if result.completed:
        inform("completed the last batch of an earlier run, which had been interrupted")
    if as_json:
        print_json(
            {"out": result.out, "tables": {name: asdict(totals) for name, totals in result.tables.items()}},
        )
        return GOOD
    with Table([Column("table"), *_numbers("rows", "files", "bytes")]) as table:
        for name, totals in result.tables.items():
            table.add(name, str(totals.rows), str(totals.files), format_size(totals.bytes))
    return GOOD


command.add_command(run_command)
command.add_command(restore_command)
command.add_command(compact_command)


# --- Spark ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _needing_pyspark() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise LogwrightError("the pipeline needs pyspark: pip install 'logwright[spark]'") from None


def _spark_settings(given: Sequence[str]) -> dict[str, str]:
    chosen = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise WrongUse(f"--spark {text}: write a Spark setting as spark.driver.memory=4g")
        chosen[name.strip()] = value.strip()
    return chosen


_CLEAR_LINE: Final = b"\r\x1b[2K"
_STOPPING: Final = b"logwright: stopping after this batch; Ctrl-C again to stop now\n"


class _Stopping:
    """Sets an event on Ctrl-C and SIGTERM, so that the current batch is finished; a second Ctrl-C does not wait."""

    def __init__(self, stop: threading.Event | None) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        if self._stop is not None and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, self._asked)
                self._before.setdefault(number, before)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        assert self._stop is not None
        if self._stop.is_set():
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self._stop.set()
        # Not through Python's streams, which are not reentrant. Overwrites a progress bar.
        with contextlib.suppress(OSError):
            os.write(2, (_CLEAR_LINE if os.isatty(2) else b"") + _STOPPING)

    def __enter__(self) -> _Stopping:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


# --- progress -------------------------------------------------------------------------------------------------------


def speed(done: int, records: int | None, seconds: float) -> str:
    """How many records, or if that is not known bytes, are read in a second; empty if nothing was read."""
    if not done or seconds <= 0:
        return ""
    return f"{format_size(int(done / seconds))}/s" if records is None else f"{int(records / seconds):,} records/s"


class _Display:
    """Shows progress: a bar on a terminal, with records or bytes per second and the time left; otherwise a line on
    stderr for each step.
    """

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stderr)
        self._said = ""
        self._bar: Any = None
        self._task: Any = None
        self._began = time.monotonic()

    def __call__(self, what: str, done: int, total: int, records: int | None = None) -> None:
        if self._terminal:
            self._show(what, done, total, records)
        elif what != self._said:
            inform(what)
        self._said = what

    def _show(self, what: str, done: int, total: int, records: int | None) -> None:
        if self._bar is None:
            from rich.progress import TextColumn

            self._bar = start_bar(TextColumn("{task.fields[rate]}"))
        if what != self._said:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._began = time.monotonic()
            self._task = self._bar.add_task(what, total=None, rate="")
        rate = speed(done, records, time.monotonic() - self._began)
        self._bar.update(self._task, completed=done, total=total or None, rate=rate)

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
