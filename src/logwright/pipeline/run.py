"""Run the pipeline once, incrementally, or continuously.

    run(Settings("journals", "tables"))                          read everything; replace existing tables
    run(Settings("journals", "tables", incremental=True))        add what is new since the last such run
    run(Settings("journals", "tables", follow=True), stop=event) and go on until the event is set

Each batch has the same steps: read journals into a staging directory (`ingest`), make the other tables from that with
Spark (`tables`), list files and consumers (`listing`), draw the report, and publish everything at once (`commit`)
together with a checkpoint that has the end of what was read of each journal. An interrupted run has published its batch
completely or not at all; the next run continues from there, so every record is in the tables once.

A table that needs all events (`queue_items`, `kv_history`, `kv_state`) is rebuilt from the table `events` and the batch
when its format has new records.

A full run reports torn tails as damage. An incremental run skips incomplete records until they are complete, and
reports them in its notes. Journals that cannot be opened are rows of `damage`, each once, unless the mode is failfast.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..core.format import find_format, is_there
from ..core.io.disk import REAL_DISK
from ..errors import DamagedJournal, NotFound, UnknownFormat, WrongUse
from ..location import is_local, locate
from ..spark.reader import Journal
from ..spark.stream import Offset
from . import listing as listings
from .checks import check_settings, check_with, unused_rules
from .commit import REPORT, Checkpoint, Move, Output
from .failures import naming_full_disk, translated
from .ingest import Found, Ingested, ingest
from .listing import Listing
from .plan import KnownLoss, PipelineStream, Plan, Unreadable, chosen_journals, is_below
from .progress import Progress, report_step, watched
from .report.figures import SHOWN, TableFigures, gather
from .report.page import write_report
from .settings import Settings
from .staging import Batch, Totals
from .tables import TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SparkMaker: TypeAlias = Callable[[], "SparkSession"]

POLL_SECONDS: Final = 1.0
"""The pause between two looks of a run with `follow`."""
REFRESH_SECONDS: Final = 30.0
"""The greatest age of the lists of files and consumers while nothing else is new."""


_HARMLESS: Final = {"torn_tail", "lost", "restored"}
"""The kinds of damage that leave the exit code 0."""


@dataclass(slots=True)
class Result:
    """The result of a run. `tables` and `journals` describe the whole tables, `found` only this run."""

    out: str
    batches: int = 0
    tables: dict[str, Totals] = field(default_factory=dict)
    journals: dict[str, Found] = field(default_factory=dict)
    found: Ingested = field(default_factory=Ingested)
    report: str | None = None
    notes: list[str] = field(default_factory=list)
    """Other messages, one sentence each."""
    completed: bool = False
    """Whether this run has completed a batch that an interrupted run had committed."""

    @property
    def records(self) -> int:
        """The number of records that this run has read."""
        return sum(found.records for found in self.found.journals.values())

    @property
    def is_damaged(self) -> bool:
        """Whether this run found damage. Torn tails and known losses are not damage."""
        return any(set(found.damage) - _HARMLESS for found in self.found.journals.values())


def run(
    settings: Settings,
    spark: SparkSession | SparkMaker | None = None,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Make the tables that the settings ask for. `spark` is a session, or a function that returns one."""
    given, settings = settings, _placed(settings)
    tables = [TABLES[name] for name in settings.chosen(TABLES)]
    check_settings(settings, tables)
    report_step(progress, "looking for journals")
    journals = chosen_journals(settings)
    _check_journals(settings, journals)
    with naming_full_disk(settings.out), translated(), Output(settings.out) as output:
        result = Result(given.out, completed=output.completed)
        result.notes += [] if settings.follow else unused_rules(settings.journal_rules, journals)
        work = _Run(settings, tables, output, result, _maker(spark), progress)
        if settings.incremental or settings.follow:
            work.increments(stop or threading.Event())
            work.note_tails()
        else:
            work.everything(journals)
        return work.result


def _maker(spark: SparkSession | SparkMaker | None) -> SparkMaker:
    if spark is None:
        from ..spark import session

        return session
    return spark if callable(spark) else lambda: spark


# --- where from and where to ----------------------------------------------------------------------------------------


def _placed(settings: Settings) -> Settings:
    """The settings with absolute paths: tasks may have another working directory."""
    if "://" in settings.out and not settings.out.startswith("file://"):
        raise WrongUse(f"{settings.out}: tables are written to a file system of this machine, not to a remote store")
    out = locate(settings.out)[1].absolute()
    disk, root = locate(settings.journals)
    if not is_local(disk):
        return replace(settings, out=str(out))
    root = root.absolute()
    if not is_there(REAL_DISK, root):
        raise NotFound(f"{settings.journals}: no such file or directory")
    if is_below(root, out):
        raise WrongUse(f"{settings.journals} is in {settings.out}: choose another directory for the tables")
    return replace(settings, journals=str(root), out=str(out))


def _check_journals(settings: Settings, journals: Sequence[Journal]) -> None:
    if not journals and not settings.follow:
        raise UnknownFormat(f"{settings.journals}: no journal of any known format is at or below this path")
    for journal in journals:
        disk, path = locate(journal.location)
        is_beside = find_format(journal.format).flat and not is_below(path, Path(settings.out))
        if is_local(disk) and is_below(Path(settings.out), path) and not is_beside:
            raise WrongUse(f"{settings.out} is in the journal {path}: choose another directory for the tables")


# --- what is noted of a batch for the next one ------------------------------------------------------------------------


@dataclass(slots=True)
class State:
    """The contents of a checkpoint: the settings of the tables, the offsets of journals, and what is in the tables.

    `listings` are digests of the lists of files and consumers, to detect changes; `losses` are digests of the known
    losses that are in the table `damage`.
    """

    made_with: dict[str, Any]
    incremental: bool
    offsets: Offset = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    tables: dict[str, Totals] = field(default_factory=dict)
    journals: dict[str, Found] = field(default_factory=dict)
    listings: dict[str, str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, checkpoint: Checkpoint | None, path: Path) -> State | None:
        if checkpoint is None:
            return None
        try:
            found = dict(checkpoint.state)
            found["tables"] = {name: Totals(**totals) for name, totals in found["tables"].items()}
            found["journals"] = {name: Found(**one) for name, one in found["journals"].items()}
            return cls(**found)
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedJournal(path, 0, f"not a checkpoint of the pipeline: {error}") from error


def _made_with(settings: Settings, tables: Sequence[Table]) -> dict[str, Any]:
    """The settings that all increments of the same tables must share."""
    decoded = [[rule.match, rule.decode, rule.schema] for rule in settings.journal_rules if rule.decode]
    partitions = {table.name: list(settings.table_rule(table.name).partition_by) for table in tables}
    return {
        "journals": settings.journals,
        "format": settings.format,
        "tables": [table.name for table in tables],
        "partition_by": {name: columns for name, columns in partitions.items() if columns},
        "decode": decoded,
    }


# --- the work -------------------------------------------------------------------------------------------------------


class _Run:
    """One run, of one batch or of many."""

    def __init__(
        self,
        settings: Settings,
        tables: Sequence[Table],
        output: Output,
        result: Result,
        make_spark: SparkMaker,
        progress: Progress | None,
    ) -> None:
        self.result = result
        self._settings = settings
        self._tables = tables
        self._output = output
        self._make_spark = make_spark
        self._session: SparkSession | None = None
        self._progress = progress
        self._started_at = self._published_at = time.monotonic()
        self._tails: list[str] = []
        self._state = State.of(output.checkpoint, output.path)
        self._note_result()

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            report_step(self._progress, "starting Spark")
            self._session = self._make_spark()
            check_with(self._session, self._settings)
        return self._session

    @property
    def _moment(self) -> datetime.datetime:
        """The time of tables that show the state at a time."""
        return self._settings.moment or datetime.datetime.now(datetime.UTC)

    # --- once ---------------------------------------------------------------------------------------------------------

    def everything(self, journals: Sequence[Journal]) -> None:
        """Read everything, and replace the existing tables."""
        state = State(_made_with(self._settings, self._tables), incremental=False)
        self._batch(state, listings.list_journals(journals), end=None)

    # --- by increments ------------------------------------------------------------------------------------------------

    def increments(self, stop: threading.Event) -> None:
        """Read what is new, batch by batch; with `follow`, until `stop` is set."""
        state = self._initial_state()
        stream = PipelineStream(self._settings)
        if not self._settings.follow:
            stream.note_target()
        while not stop.is_set():
            end = stream.following(state.offsets)
            self.result.notes += [what for what in stream.lost if what not in self.result.notes]
            fresh = [one for one in stream.unreadable if one[1] not in state.unreadable]
            losses = {_loss_digest(loss): loss for loss in stream.losses}
            losses = {digest: loss for digest, loss in losses.items() if digest not in state.losses}
            state = replace(state, unreadable=[name for _, name, _ in stream.unreadable])
            if end != state.offsets or fresh or losses or not state.tables:
                state = replace(state, losses=[*state.losses, *losses])
                state = self._batch(state, self._listing(), end=end, unreadable=fresh, losses=list(losses.values()))
                continue
            if not self._settings.follow:
                self._refresh(state)
                return
            if time.monotonic() - self._published_at >= REFRESH_SECONDS:
                state = self._refresh(state)
            report_step(self._progress, "waiting for more")
            stop.wait(POLL_SECONDS)

    def note_tails(self) -> None:
        """Add the incomplete ends of journals to the notes of the result."""
        self.result.notes += self._tails

    def _initial_state(self) -> State:
        """The state to begin with: that of the last increment, or an empty one."""
        made_with = _made_with(self._settings, self._tables)
        state = self._state
        if state is None or not state.incremental:
            return State(made_with, incremental=True)
        for name, value in made_with.items():
            if state.made_with.get(name) != value:
                before, now = json.dumps(state.made_with.get(name)), json.dumps(value)
                raise WrongUse(
                    f"{self._settings.out}: these tables were made with {name} = {before}, not {now}; "
                    "use another directory, or rebuild them by a run that is not incremental"
                )
        return state

    def _listing(self) -> Listing:
        journals = chosen_journals(self._settings)
        self._tails = listings.tails_of(journals)
        return listings.list_journals(journals)

    def _refresh(self, state: State) -> State:
        """Publish the lists of files and consumers if they have changed."""
        listing = self._listing()
        self._published_at = time.monotonic()
        if self._digests(listing) == state.listings:
            return state
        return self._batch(state, listing, end=state.offsets)

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _batch(
        self,
        state: State,
        listing: Listing,
        *,
        end: Offset | None,
        unreadable: Sequence[Unreadable] = (),
        losses: Sequence[KnownLoss] = (),
    ) -> State:
        """Read, make tables, publish. Without an `end` everything is read."""
        problems = [f"{name}: the journal could not be listed: {problem}" for name, problem in listing.problems.items()]
        self.result.notes += [note for note in problems if note not in self.result.notes]
        staging = self._output.stage()
        try:
            batch = Batch(self._output, staging, self._settings, state.tables)
            plan = Plan(
                self._settings,
                str(batch.ingest_directory),
                state.offsets,
                end,
                tuple(unreadable),
                tuple(losses),
                batch.compression,
            )
            is_new = batch.rebuilds_all or end != state.offsets or bool(unreadable) or bool(losses)
            found = self._read(plan, _journals_of(plan, listing)) if is_new else Ingested()
            if is_new:
                self._make_tables(batch, found)
            digests = self._list_tables(batch, listing, state.listings)
            self._drop_others(batch)
            self._draw_report(batch)
            state = replace(
                state,
                offsets=end or {},
                tables=batch.totals,
                journals=_added(state.journals, found.journals),
                listings=digests,
            )
            report_step(self._progress, "publishing")
            staging.publish(batch.moves, batch.replaced, asdict(state))
        except BaseException:
            staging.discard()
            raise
        self._published_at = time.monotonic()
        self._state = state
        self.result.batches += 1
        self.result.found.add(found)
        self._note_result()
        return state

    def _read(self, plan: Plan, journals: int) -> Ingested:
        with watched(self._spark, self._progress, f"reading {journals} journal{'' if journals == 1 else 's'}"):
            return ingest(self._spark, plan)

    def _make_tables(self, batch: Batch, found: Ingested) -> None:
        """Stage the changes of a batch to all tables made from records."""
        for table in self._tables:
            if table.source == "records" and batch.takes_ingested(table.name):
                batch.take_ingested(table.name, found)
            elif table.needs_all_events:
                has_rows = any(one.records for one in found.journals.values() if one.format == table.format)
                if has_rows or batch.rebuilds_all:
                    self._write(batch, table, is_empty=not has_rows)
            elif table.source in ("records", "events"):
                has_rows = bool(found.files_of("damage" if table.name == "damage" else "events"))
                if has_rows or batch.rebuilds_all:
                    self._write(batch, table)

    def _write(self, batch: Batch, table: Table, *, is_empty: bool = False) -> None:
        """Stage the changes of a batch to a table; an empty table still gets its columns."""
        with watched(self._spark, self._progress, f"table {table.name}"):
            if table.source == "records":
                made = batch.ingested(self._spark, table.name)
            else:
                events = batch.all_events if table.needs_all_events else lambda spark: batch.ingested(spark, "events")
                source = events(self._spark).limit(0) if is_empty else events(self._spark)
                made = table.make(source, self._settings.journal_rules, self._moment)
            before = batch.before(self._spark, table.name, made) if table.merged is not None else None
            if before is not None:
                assert table.merged is not None
                made = table.merged(before, made)
            batch.write(table, made, is_small=table.kind == "merge")

    def _list_tables(self, batch: Batch, listing: Listing, known: Mapping[str, str]) -> dict[str, str]:
        """Stage the tables `files` and `consumers` if they have changed; returns the digests of the lists."""
        digests = self._digests(listing)
        for table in self._tables:
            if table.source in digests and (batch.rebuilds_all or digests[table.source] != known.get(table.source)):
                with watched(self._spark, self._progress, f"table {table.name}"):
                    rows: DataFrame = self._spark.createDataFrame(_listed(listing)[table.source])
                    batch.write(table, table.make(rows), is_small=True)
        return digests

    def _digests(self, listing: Listing) -> dict[str, str]:
        wanted = {table.source for table in self._tables}
        return {source: _digest(rows) for source, rows in _listed(listing).items() if source in wanted}

    def _drop_others(self, batch: Batch) -> None:
        """Remove tables of an earlier run that are not made now."""
        if batch.rebuilds_all and self._state is not None:
            for name in self._state.tables:
                if name not in batch.totals:
                    batch.drop(name)

    def _draw_report(self, batch: Batch) -> None:
        """Stage the report on the tables as they will be."""
        with watched(self._spark, self._progress, "report"):
            frames = {table.name: batch.after(self._spark, table) for table in self._tables if table.name in SHOWN}
            figures = gather(
                {name: frame for name, frame in frames.items() if frame is not None},
                source=self._settings.journals,
                out=self._settings.out,
                made_at=time.time(),
                seconds=time.monotonic() - self._started_at,
                tables=[TableFigures(name, one.rows, one.files, one.bytes) for name, one in batch.totals.items()],
                notes=self.result.notes,
                tails=self._tails,
            )
            size = write_report(batch.path / REPORT, figures)
        batch.moves.append(Move(REPORT, REPORT, size))

    def _note_result(self) -> None:
        if self._state is not None:
            self.result.tables = self._state.tables
            self.result.journals = self._state.journals
            if REAL_DISK.exists(self._output.path / REPORT):
                self.result.report = str(Path(self.result.out) / REPORT)


def _loss_digest(loss: KnownLoss) -> str:
    """The identity of a loss in the tables."""
    return hashlib.sha256(json.dumps(loss).encode()).hexdigest()[:16]


def _journals_of(plan: Plan, listing: Listing) -> int:
    """The number of journals to read."""
    if plan.end is None:
        return len({row["journal"] for row in listing.files} | set(listing.problems))
    return sum(parts != plan.start.get(name) for name, parts in plan.end.items())


def _listed(listing: Listing) -> dict[str, pa.Table]:
    return {"files": listing.file_table(), "offsets": listing.offset_table()}


def _digest(rows: pa.Table) -> str:
    return hashlib.sha256(json.dumps(rows.to_pylist(), sort_keys=True).encode()).hexdigest()


def _added(before: Mapping[str, Found], found: Mapping[str, Found]) -> dict[str, Found]:
    total = Ingested([], {name: replace(one) for name, one in before.items()})
    total.add(Ingested([], dict(found)))
    return dict(sorted(total.journals.items()))
