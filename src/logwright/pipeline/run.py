"""Run the pipeline once, incrementally, or continuously.

    run(Settings("journals", "tables"))                          read everything; replace existing tables
    run(Settings("journals", "tables", incremental=True))        add what is new since the last such run
    run(Settings("journals", "tables", follow=True), stop=event) and continue until the event is set

Each batch has the same steps: plan what is read (`plan`), let tasks decode it and write the rows of all tables (`task`,
`job`), list files and consumers (`listing`), decide which files are merged or replaced (`layout`), draw the report, and
publish everything (`publish`) together with a checkpoint that has the end of what was read of each journal. An
interrupted run has published its batch completely or not at all; the next run continues from there, so every record is
in the tables once.

An increment costs what is new, and what is live in the parts of journals that have changed: see `core/read/
materializer.py`. A batch that reads little is done without Spark.

A full run reports torn tails as damage. An incremental run skips incomplete records until they are complete, and
reports them in its notes. Journals that cannot be opened are rows of `damage`, each once, unless the mode is failfast.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from ..arrow.discovery import Journal
from ..core.format import find_format, is_there
from ..core.io.disk import REAL_DISK
from ..core.io.file_names import printed
from ..errors import ExpectationFailed, NotFound, UnknownFormat, WrongUse
from ..location import is_local, locate
from ..spark.stream import positions_of
from . import activity, job
from . import listing as listings
from .checks import check_settings, unused_rules
from .decoding import loaded
from .expectations import tables_with_quarantine
from .failures import naming_full_disk, translated
from .layout import Layout, TableChange
from .listing import Listing
from .observe import BatchFigures, Observer, observers_of
from .parquet import COMPRESSION, COMPRESSIONS, TableSink, Target
from .plan import (
    KnownLoss,
    Offset,
    PartState,
    PipelineStream,
    Place,
    Seen,
    Unit,
    Unreadable,
    chosen_journals,
    everything,
    is_below,
    works_of,
)
from .progress import Progress, report_step
from .publish import Batch, Publisher, TableFile, open_publisher
from .publish.control import HOME, read_format
from .publish.publisher import REPORT
from .report.figures import ExpectationFigures, TableFigures, gather
from .report.page import write_report
from .report.summary import DamageSummary
from .settings import JournalRule, Settings, TableRule
from .stamps import OWN, Tree, touched_by, tree_of
from .state import State, Totals
from .tables import COUNTED, QUARANTINE, STATE, TABLES, schema_of
from .task import Assignment, Counts, Done, Found, add_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkMaker: TypeAlias = Callable[[], "SparkSession"]

POLL_SECONDS: Final = 1.0
"""The pause between two looks of a run with `follow`."""
_IDLE_PAUSE: Final = 50
"""The pause is at least this many times as long as it took to see that no file has changed: so this costs little,
however many files there are."""
REFRESH_SECONDS: Final = 30.0
"""The greatest age of the lists of files and consumers while nothing else is new."""


_MOST_ATTEMPTS: Final = 5
"""How often a batch is planned again because files of it have disappeared."""
_HARMLESS: Final = {"torn_tail", "lost", "restored"}
"""The kinds of damage that leave the exit code 0."""


@dataclass(slots=True)
class Result:
    """The result of a run. `tables` and `journals` describe the whole tables, `found` only this run."""

    out: str
    batches: int = 0
    seconds: float = 0.0
    """How long the batches took, without the search for new records and the start of Spark."""
    tables: dict[str, Totals] = field(default_factory=dict)
    journals: dict[str, Found] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    expectations: list[ExpectationFigures] = field(default_factory=list)
    report: str | None = None
    notes: list[str] = field(default_factory=list)
    """Other messages, one sentence each."""
    completed: bool = False
    """Whether this run has completed a batch that an interrupted run had committed."""

    @property
    def records(self) -> int:
        """The number of records that this run has read."""
        return sum(found.records for found in self.found.values())

    @property
    def is_damaged(self) -> bool:
        """Whether this run found damage. Torn tails and known losses are not damage."""
        return any(set(found.damage) - _HARMLESS for found in self.found.values())


def run(
    settings: Settings,
    spark: SparkSession | SparkMaker | None = None,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Make the tables that the settings ask for. `spark` is a session, or a function that returns one.

    It is needed only for batches of more than a few megabytes.
    """
    given, settings = settings, _placed(settings)
    tables = settings.chosen(TABLES)
    check_settings(settings, tables)
    observers = observers_of(settings)
    with ExitStack() as stack:
        stack.enter_context(naming_full_disk(settings.out))
        stack.enter_context(_observed(observers))
        report_step(progress, "looking for journals")
        seen = Seen()
        journals = _found_journals(given, settings, seen)
        stack.enter_context(translated())
        publisher = stack.enter_context(open_output(settings))
        result = Result(given.out, completed=publisher.completed)
        result.notes += [] if settings.follow else unused_rules(settings.journal_rules, journals)
        work = _Run(settings, tables, publisher, result, _maker(spark), progress, observers)
        if settings.incremental or settings.follow:
            work.increments(journals, seen, stop or threading.Event())
        else:
            work.everything(journals, seen)
    result.notes += [observer.problem for observer in observers if observer.problem is not None]
    return result


@contextlib.contextmanager
def _observed(observers: Sequence[Observer]) -> Iterator[None]:
    """Report the begin and the end of a run to its observers."""
    error: BaseException | None = None
    for observer in observers:
        observer.begin()
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for observer in observers:
            observer.end(error)


def open_output(settings: Settings) -> Publisher:
    """The publisher of the tables."""
    options = {name: value for name, value in settings.options.items() if name != "compression"}
    return open_publisher(settings.out, settings.format, options)


def _maker(spark: SparkSession | SparkMaker | None) -> SparkMaker:
    if spark is None:
        from ..spark import session

        return session
    return spark if callable(spark) else lambda: spark


# --- where from and where to ----------------------------------------------------------------------------------------


def _placed(settings: Settings) -> Settings:
    """The settings with absolute paths: tasks may have another working directory."""
    disk, root = locate(settings.journals)
    is_remote = "://" in settings.out and not settings.out.startswith("file://")
    out = settings.out if is_remote else str(locate(settings.out)[1].absolute())
    if not is_local(disk):
        return replace(settings, out=out)
    root = root.absolute()
    if not is_remote and is_below(root, Path(out)):
        raise WrongUse(f"{settings.journals} is in {settings.out}: choose another directory for the tables")
    return replace(settings, journals=str(root), out=out)


def _found_journals(given: Settings, settings: Settings, seen: Seen) -> list[Journal]:
    """The journals to read, as they were given; `seen` learns which could not be opened."""
    disk, root = locate(settings.journals)
    if is_local(disk) and not is_there(REAL_DISK, root):
        raise NotFound(f"{given.journals}: no such file or directory")
    journals = chosen_journals(settings, seen.unreadable)
    if not journals and not settings.follow:
        raise UnknownFormat(f"{settings.journals}: no journal of any known format is at or below this path")
    _check_places(settings, journals)
    return journals


def _check_places(settings: Settings, journals: Sequence[Journal]) -> None:
    """Refuse to write tables into a journal."""
    if "://" in settings.out or not is_local(locate(settings.journals)[0]):
        return
    out = Path(settings.out).resolve()
    for journal in journals:
        path = Path(journal.location).resolve()
        is_beside = find_format(journal.format).flat and not path.is_relative_to(out)
        if out.is_relative_to(path) and not is_beside:
            raise WrongUse(f"{settings.out} is in the journal {path}: choose another directory for the tables")


def _made_with(settings: Settings, tables: Sequence[str]) -> dict[str, Any]:
    """The settings that all increments of the same tables must share."""
    decoded = [
        [rule.match, rule.decode, rule.schema, [list(column) for column in rule.columns]]
        for rule in settings.journal_rules
        if rule.decode
    ]
    partitions = {table: list(settings.table_rule(table).partition_by) for table in tables}
    return {
        "journals": settings.journals,
        "format": settings.format,
        "tables": list(tables),
        "partition_by": {name: columns for name, columns in partitions.items() if columns},
        "decode": decoded,
        "moment": None if settings.moment is None else settings.moment.isoformat(),
        "compression": settings.options.get("compression", COMPRESSION).lower(),
    }


_MAY_CHANGE: Final = ("compression",)
"""What an increment may change: new files are written with it."""


# --- the work -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a batch reads, up to the offset `end`; `finals` are the first records of parts that are not final."""

    units: Sequence[Unit]
    end: Offset = field(default_factory=dict)
    finals: Mapping[Place, int | None] = field(default_factory=dict)
    unreadable: Sequence[Unreadable] = ()
    losses: Sequence[KnownLoss] = ()
    opened: Mapping[str, Any] = field(default_factory=dict)
    """The readers of journals, by their names."""
    found: Mapping[Place, int] = field(default_factory=dict)
    """The ends of the parts that have changed, as they were found; empty if the batch reads everything."""


class _Complete:
    """From which time on records may be missing from the tables, also while batches are smaller than what is new."""

    def __init__(self) -> None:
        self.at: float | None = None
        """All records that were complete at this time are in the tables; None if that is not known yet."""
        self._next: tuple[float, Mapping[Place, int]] | None = None
        """The time of a look, and the ends that it found, which the tables have not reached yet."""

    @property
    def is_all(self) -> bool:
        return self._next is None

    def look(self, looked_at: float, planned: _Planned) -> None:
        """Note a batch, or a look that found nothing new."""
        ends = positions_of(planned.end)
        for time_and_ends in (self._next, (looked_at, planned.found)):
            if time_and_ends is None:
                continue
            if any(ends.get(place, end) < end for place, end in time_and_ends[1].items()):
                self._next = time_and_ends
                return
            self.at, self._next = time_and_ends[0], None


class _Idle:
    """Which journals a run that follows must look at: those whose files have changed. After a look that found nothing
    new it need not look at any, until a file or directory below the root changes, or live rows change by time.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tree: Tree | None = None
        """The files as they were before the last look; None if the next one must be a complete one."""
        self._touched: set[Journal] | None = None
        """The journals that have changed since the last look; None if others may have, or there may be others."""
        self._is_settled = False
        """Whether the last look found nothing new, made all lists, and nothing has changed since."""
        self._journals: Sequence[Journal] = []
        self._looked_ns = 0

    def touched(self, parts: Iterable[PartState]) -> set[Journal] | None:
        """The journals to look at; None for all. There are none while a look would find nothing new."""
        changed = None if self._tree is None else self._tree.changed()
        self._touched = None if changed is None else touched_by(changed, self._journals)
        now_ns = time.time_ns()
        is_due = any(part.due_ns is not None and self._looked_ns < part.due_ns <= now_ns for part in parts)
        self._is_settled = self._is_settled and self._touched == set() and not is_due
        return self._touched

    @property
    def may_rest(self) -> bool:
        """Whether nothing needs a look."""
        return self._is_settled

    @property
    def is_last_look(self) -> bool:
        """Whether this is the last look before a rest if it finds nothing new."""
        return self._tree is not None and self._touched == set()

    def begin(self, journals: Sequence[Journal]) -> None:
        """A look begins; the last one found these journals."""
        self._looked_ns, self._journals = time.time_ns(), journals
        if self._touched is None and self._settings.follow:
            self._tree = tree_of(self._settings.journals, journals, self._settings.out)

    def end(self, journals: Sequence[Journal], *, is_new: bool) -> None:
        """A look has ended, and found these journals."""
        if journals != self._journals:
            self._tree = None  # other bytes of files may count
        self._is_settled = self.is_last_look and not is_new
        self._journals = journals


class _Run:
    """One run, of one batch or of many."""

    def __init__(
        self,
        settings: Settings,
        tables: Sequence[str],
        publisher: Publisher,
        result: Result,
        make_spark: SparkMaker,
        progress: Progress | None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.result = result
        self._observers = observers
        self._looked_at = time.time()
        """When the journals were last looked at."""
        self._complete = _Complete()
        self._settings = settings
        self._publisher = publisher
        self._make_spark = make_spark
        self._session: SparkSession | None = None
        self._start_seconds = 0.0
        """How long Spark took to start."""
        self._progress = progress
        self._started_at = self._published_at = time.monotonic()
        self._tails: list[str] = []
        self._failed: Counter[str] = Counter()
        """How many rows that this run has written did not meet each expectation."""
        self._targets: dict[str, Target] = {}
        """Where the files of the batch go."""
        self._is_increment = settings.incremental or settings.follow
        self._rules = loaded(settings.journal_rules)
        checkpoint = publisher.checkpoint
        self._known_tables = [] if checkpoint is None else list(checkpoint.state.get("tables", ()))
        kept = self._known_tables if self._is_increment else ()
        self._tables = tables_with_quarantine(settings, tables, kept)
        self._made_with = _made_with(settings, tables)

    def _spark(self) -> SparkSession:
        if self._session is None:
            report_step(self._progress, "starting Spark")
            began = time.monotonic()
            self._session = self._make_spark()
            self._start_seconds += time.monotonic() - began
        return self._session

    # --- once ---------------------------------------------------------------------------------------------------------

    def everything(self, journals: Sequence[Journal], seen: Seen) -> None:
        """Read everything, and replace the existing tables."""
        report_step(self._progress, "planning")
        units = everything(self._settings, journals, seen)
        planned = _Planned(units, unreadable=seen.unreadable, losses=seen.losses, opened=seen.readers)
        state = State(self._made_with, incremental=False)
        self._batch(state, planned, self._listed(seen))

    # --- by increments ------------------------------------------------------------------------------------------------

    def increments(self, journals: list[Journal], seen: Seen, stop: threading.Event) -> None:
        """Read what is new, batch by batch; with `follow`, until `stop` is set. The first look is at these journals."""
        state = self._initial_state()
        self._note_result(state)
        stream = PipelineStream(self._settings)
        stream.begin_with(journals, seen)
        stream.known_stamps, stream.known_offsets = state.stamps, state.offsets
        self._looked_at = time.time()
        if not self._settings.follow:
            stream.note_target()
        attempts = 0
        idle = _Idle(self._settings)
        planned = _Planned(())
        while not stop.is_set():
            began, before = time.monotonic(), state
            touched = idle.touched(state.parts.values())
            compared_seconds = time.monotonic() - began
            if idle.may_rest:
                self._observe(planned, {}, None)
                self._wait(stop, began, _pause_after(compared_seconds))
                self._looked_at = time.time()
                continue
            if touched is not None:
                stream.look_only_at(touched)
            idle.begin(stream.journals)
            planned, state = self._look(stream, state)
            is_new = bool(planned.units or planned.unreadable or planned.losses) or planned.end != state.offsets
            is_old = time.monotonic() - self._published_at >= REFRESH_SECONDS or idle.is_last_look
            if is_new or not state.tables or not self._settings.follow or is_old:
                listing = self._listed(stream.seen)
                state = self._with_stamps(state, planned, stream.seen)
                is_new = is_new or not state.tables or self._digests(listing) != state.listings
                if is_new:
                    try:
                        with translated():
                            state = self._batch(state, planned, listing)
                    except NotFound:  # a writer has packed, rotated or removed a file that was to be read
                        attempts += 1
                        if attempts > _MOST_ATTEMPTS:
                            raise
                        state = before
                        stream.look_again()
                        idle = _Idle(self._settings)  # the next look is a complete one
                        continue
                    attempts = 0
                elif (state.stamps, state.tails) != (before.stamps, before.tails):
                    self._publisher.note(state.as_json())  # so that the next look need not open these journals
                self._published_at = time.monotonic()
                if not is_new:
                    self._observe(planned, {}, None)
                if not self._settings.follow and (not is_new or stream.has_reached_target(state.offsets)):
                    break
            else:
                self._observe(planned, {}, None)
            stream.look_again()
            if self._settings.follow:
                idle.end(stream.journals, is_new=is_new)
                pause = POLL_SECONDS if touched is None else _pause_after(compared_seconds)
                self._wait(stop, began, 0.0 if is_new else pause)
            self._looked_at = time.time()
        self.result.notes += self._tails

    def _wait(self, stop: threading.Event, began: float, pause: float) -> None:
        """Wait until the journals are to be looked at again, after a look that began at some time.

        The pause is for runs without an interval.
        """
        interval = self._settings.interval_seconds
        seconds = pause if interval is None else interval - (time.monotonic() - began)
        if seconds > 0:
            report_step(self._progress, "waiting for more")
            stop.wait(seconds)

    def _with_stamps(self, state: State, planned: _Planned, seen: Seen) -> State:
        """The state with the incomplete ends of parts, and the stamps of those that are read to their end."""
        tails = listings.tails_of(seen.opened, _active(seen), seen.extents)
        tails |= {place: sentences for place, sentences in state.tails.items() if place in seen.resting}
        self._tails = [sentence for place in sorted(tails) for sentence in tails[place]]
        ends = positions_of(planned.end)

        def is_read(place: Place) -> bool:
            extent = seen.extents.get(place[0], {}).get(place[1])
            return place in seen.resting or ends.get(place) == (None if extent is None else extent[1])

        stamps = {
            name: {part: stamp for part, stamp in parts.items() if part == OWN or is_read((name, part))}
            for name, parts in seen.stamps.items()
        }
        return replace(state, tails=tails, stamps=stamps)

    def _look(self, stream: PipelineStream, state: State) -> tuple[_Planned, State]:
        """Plan the next batch."""
        report_step(self._progress, "looking for new records")
        stream.known_stamps, stream.known_offsets = state.stamps, state.offsets
        end = stream.following(state.offsets)
        layout = self._layout(STATE, state)
        units, finals = stream.units(state.offsets, end, state.parts, layout.live_source, time.time_ns())
        self.result.notes += [what for what in stream.lost if what not in self.result.notes]
        fresh = [one for one in stream.seen.unreadable if one[1] not in state.unreadable]
        losses = {_loss_digest(loss): loss for loss in stream.seen.losses}
        losses = {digest: loss for digest, loss in losses.items() if digest not in state.losses}
        found = {(name, part): end for name, parts in stream.seen.extents.items() for part, (_, end) in parts.items()}
        planned = _Planned(units, end, finals, fresh, list(losses.values()), stream.seen.readers, found)
        unreadable = [name for _, name, _ in stream.seen.unreadable]
        return planned, replace(state, unreadable=unreadable, losses=[*state.losses, *losses])

    def _initial_state(self) -> State:
        """The state to begin with: that of the last increment, or an empty one."""
        made_with = self._made_with
        state = State.of(self._publisher.checkpoint, self._settings.out)
        if state is None or not state.incremental:
            return State(made_with, incremental=True)
        for name, value in made_with.items():
            if state.made_with.get(name) != value and name not in _MAY_CHANGE:
                before, now = json.dumps(state.made_with.get(name)), json.dumps(value)
                raise WrongUse(
                    f"{self._settings.out}: these tables were made with {name} = {before}, not {now}; "
                    "use another directory, or rebuild them by a run that is not incremental"
                )
        return replace(state, made_with=made_with)

    def _listed(self, seen: Seen) -> Listing:
        listing = listings.list_journals(seen.opened, _active(seen), seen.extents)
        if seen.resting:
            self._add_known(listing, seen)
        listing.problems |= {name: reason for format, name, reason in seen.unreadable if format}
        return listing

    def _add_known(self, listing: Listing, seen: Seen) -> None:
        """Add the rows of parts that have not changed, from the tables."""
        resting = {(name, printed(part)) for name, part in seen.resting}
        for table, rows, column in (("files", listing.files, "part"), ("consumers", listing.consumers, "shard")):
            if table in self._tables:
                layout = Layout(self._target(table), self._publisher.files(table), {}, self._publisher.path)
                for file in layout.final_files():
                    known = (row for batch in layout.rows(file) for row in batch.to_pylist())
                    rows += [row for row in known if (row["journal"], row[column] or "") in resting]
                rows.sort(key=lambda row: (row["journal"], row[column] or ""))

    def _digests(self, listing: Listing) -> dict[str, str]:
        return {table: digest for table, digest in listing.digests().items() if table in self._tables}

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _batch(self, state: State, planned: _Planned, listing: Listing) -> State:
        """Read, write tables, publish."""
        began = time.monotonic() - self._start_seconds
        problems = [f"{name}: the journal could not be listed: {problem}" for name, problem in listing.problems.items()]
        self.result.notes += [note for note in problems if note not in self.result.notes]
        try:
            done = self._read(planned)
            self._refuse_failed(done)
            report_step(self._progress, "arranging files")
            changes = self._changes(state, done, listing)
            after = self._state_after(state, planned, done, changes, listing)
            with tempfile.TemporaryDirectory(prefix="logwright-") as scratch:
                report = self._drawn_report(Path(scratch), after, listing)
                report_step(self._progress, "publishing")
                self._publisher.publish(self._published(after, changes, report))
        except BaseException:
            self._publisher.discard()
            raise
        finally:
            self._targets = {}
        self._published_at = time.monotonic()
        self._known_tables = list(after.tables)
        self.result.batches += 1
        for (title,), (count,) in done.failed.items():
            self._failed[title] += count
        _add_found(self.result.found, done.journals)
        self._note_result(after)
        seconds = time.monotonic() - self._start_seconds - began
        self.result.seconds += seconds
        self._observe(planned, done.journals, seconds)
        return after

    def _observe(self, planned: _Planned, new: Mapping[str, Found], seconds: float | None) -> None:
        """Report a batch, or a look that found nothing new, to the observers of the run."""
        if not self._observers:
            return
        self._complete.look(self._looked_at, planned)
        checkpoint = self._publisher.checkpoint
        locations = {unit.journal.name: unit.journal.location for unit in planned.units}
        figures = BatchFigures(
            0 if checkpoint is None else checkpoint.batch,
            looked_at=self._looked_at,
            published_at=time.time(),
            has_all=self._complete.is_all,
            complete_at=self._complete.at,
            seconds=seconds,
            tables=self.result.tables,
            journals=self.result.journals,
            new=new,
            locations=locations,
            expectations=self.result.expectations,
        )
        for observer in self._observers:
            observer.batch(figures)

    def _refuse_failed(self, done: Done) -> None:
        """Raise `ExpectationFailed` if rows do not meet an expectation whose action is `fail`."""
        for each in self._settings.expectations:
            (count,) = done.failed.get((each.title,), [0])
            if each.action == "fail" and count:
                rows = "1 row does" if count == 1 else f"{count:,} rows do"
                name = f"the expectation {each.title!r}" if each.name else f"the expectation {each.condition}"
                raise ExpectationFailed(
                    f"{each.table}: {rows} not meet {name}; the tables are as before. To see the rows, use the action "
                    f'"quarantine", or SELECT * FROM {each.table} WHERE ({each.condition}) IS NOT TRUE after a run '
                    'with "warn"'
                )

    def _read(self, planned: _Planned) -> Done:
        moment = self._settings.moment
        moment_ns = None if moment is None else _nanoseconds(moment)
        tables = [*self._tables, *([STATE] if self._is_increment else [])]
        targets = {table: self._target(table) for table in tables}
        rules = self._rules
        assignment = Assignment(self._settings, rules, targets, self._is_increment, time.time_ns(), moment_ns)
        works = works_of(planned.units, self._settings.split_bytes, planned.unreadable, planned.losses)
        journals = len({unit.journal.name for unit in planned.units})
        what = f"reading {journals} journal{'' if journals == 1 else 's'}"
        return job.do(assignment, works, self._spark, self._progress, what, self._settings.local_bytes, planned.opened)

    def _target(self, table: str) -> Target:
        settings, publisher = self._settings, self._publisher
        if table not in self._targets:
            self._targets[table] = Target(
                table,
                publisher.filesystem,
                publisher.where(table),
                schema_of(table, settings),
                settings.table_rule(table).partition_by,
                publisher.batch,
                COMPRESSIONS[settings.options.get("compression", COMPRESSION).lower()],
            )
        return self._targets[table]

    def _layout(self, table: str, state: State) -> Layout:
        """The files of a table before the batch; none if the batch rebuilds it."""
        files = self._publisher.files(table) if state.tables else []
        return Layout(self._target(table), files, state.live.get(table, {}), self._publisher.path)

    def _changes(self, state: State, done: Done, listing: Listing) -> dict[str, TableChange]:
        """What the batch changes in each table."""
        rebuilds = not state.tables
        touched = set(done.parts)
        added: dict[str, list[TableFile]] = {}
        for file in done.files:
            added.setdefault(file.table, []).append(file)
        changes: dict[str, TableChange] = {}
        lists, digests = listing.tables(), self._digests(listing)
        for table in (*self._tables, *([STATE] if self._is_increment else [])):
            live = [each for each in done.live if each.file.table == table]
            places = {place for places in state.live.get(table, {}).values() for place, _ in places}
            if table == "activity":
                if done.activity or rebuilds:
                    layout = self._layout(table, state)
                    changes[table] = activity.changed(
                        self._target(table), layout, done.activity, is_increment=self._is_increment
                    )
            elif table in lists:
                if rebuilds or digests[table] != state.listings.get(table):
                    changes[table] = self._replaced(table, state, lists[table])
            elif added.get(table) or live or places & touched or rebuilds:
                changes[table] = self._layout(table, state).changed(added.get(table, []), live, touched)
        for table, change in changes.items():
            self._keep_columns(table, state, change)
        if rebuilds:
            self._remove_earlier(changes)
        return changes

    def _replaced(self, table: str, state: State, rows: pa.RecordBatch) -> TableChange:
        """A small table with other rows."""
        sink = TableSink(self._target(table))
        sink.add(rows)
        return TableChange(list(sink.finish().values()), self._publisher.files(table) if state.tables else [])

    def _keep_columns(self, table: str, state: State, change: TableChange) -> None:
        """Add a file without rows to a table without files: only a file says which columns a Parquet table has."""
        files = state.tables.get(table, Totals()).files + len(change.added) - len(change.removed)
        is_plain = self._settings.format == "parquet" and not self._settings.table_rule(table).partition_by
        if not files and is_plain and table != STATE:
            change.added.append(TableSink(self._target(table)).finish_empty())

    def _remove_earlier(self, changes: dict[str, TableChange]) -> None:
        """Remove all files of the tables that there were before."""
        for table in (*self._known_tables, STATE):
            files = self._publisher.files(table)
            if files:
                changes.setdefault(table, TableChange()).removed += files

    def _state_after(
        self, state: State, planned: _Planned, done: Done, changes: Mapping[str, TableChange], listing: Listing
    ) -> State:
        rebuilds = not state.tables
        tables = {table: _totals_after(state, table, changes.get(table)) for table in self._tables}
        parts = dict(state.parts)
        for place, part in done.parts.items():
            parts[place] = PartState(planned.finals.get(place), part.due_ns, part.live, part.damage)
        closed = {name: dict(counts) for name, counts in state.closed.items()}
        for name, counts in done.closed.items():
            for table, new in counts.items():
                total: Counts = dict(closed.setdefault(name, {}).get(table, {}))
                add_counts(total, new)
                closed[name][table] = total
        live = {} if rebuilds else dict(state.live)
        live |= {table: change.live for table, change in changes.items()}
        journals = {name: replace(one) for name, one in state.journals.items()}
        _add_found(journals, done.journals)
        active, damage = state.activity.copy(), state.damage.copy()
        active.add(done.activity)
        damage.merge(done.damage)
        return replace(
            state,
            offsets=planned.end,
            tables=tables,
            journals=dict(sorted(journals.items())),
            listings=self._digests(listing),
            parts=parts if self._is_increment else {},
            live={table: files for table, files in live.items() if files},
            closed=closed,
            activity=active,
            damage=damage,
        )

    def compact(self, state: State) -> None:
        """Merge the small files of all tables."""
        changes = {}
        for table in (*self._tables, *([STATE] if self._is_increment else [])):
            change = self._layout(table, state).compacted()
            if change.added or change.removed:
                changes[table] = change
        if not changes:
            self._note_result(state)
            return
        tables = {table: _totals_after(state, table, changes.get(table)) for table in state.tables}
        live = state.live | {table: change.live for table, change in changes.items()}
        after = replace(state, tables=tables, live=live)
        try:
            self._publisher.publish(self._published(after, changes, None))
        except BaseException:
            self._publisher.discard()
            raise
        self.result.batches += 1
        self._note_result(after)

    def _published(self, after: State, changes: Mapping[str, TableChange], report: Path | None) -> Batch:
        return Batch(
            self._publisher.batch,
            [file for change in changes.values() for file in change.added],
            [file for change in changes.values() for file in change.removed],
            {table: self._schema(table) for table in changes},
            {table: self._settings.table_rule(table).partition_by for table in changes},
            after.as_json(),
            report,
        )

    def _schema(self, table: str) -> pa.Schema:
        is_known = table in TABLES or table in (STATE, QUARANTINE)
        return schema_of(table, self._settings) if is_known else pa.schema([])

    # --- the report ---------------------------------------------------------------------------------------------------

    def _drawn_report(self, scratch: Path, after: State, listing: Listing) -> Path:
        """Draw the report on the tables as they will be. It reads none of them: the state has what it shows."""
        report_step(self._progress, "report")
        lists = {"files": listing.files, "consumers": listing.consumers}
        figures = gather(
            after.activity if "activity" in self._tables else None,
            _damage_after(after) if "damage" in self._tables else None,
            {table: rows for table, rows in lists.items() if table in self._tables},
            {table: _counts(after, table) for table in COUNTED if table in self._tables},
            source=self._settings.journals,
            out=self._settings.out,
            made_at=time.time(),
            seconds=time.monotonic() - self._started_at,
            tables=[TableFigures(name, one.rows, one.files, one.bytes) for name, one in after.tables.items()],
            expectations=self._expectations(after),
            notes=self.result.notes,
            tails=self._tails,
        )
        write_report(scratch / REPORT, figures)
        return scratch / REPORT

    def _expectations(self, state: State) -> list[ExpectationFigures]:
        """How many rows do not meet each expectation: of all tables, and of those that this run has written."""
        total: Counter[str] = Counter()
        for (_, title), (count,) in _counts(state, QUARANTINE).items():
            total[title] += count
        return [
            ExpectationFigures(
                each.title, each.table, each.condition, each.action, total[each.title], self._failed[each.title]
            )
            for each in self._settings.expectations
        ]

    def _note_result(self, state: State) -> None:
        self.result.tables = state.tables
        self.result.journals = state.journals
        self.result.expectations = self._expectations(state)
        if self._publisher.checkpoint is not None:
            self.result.report = f"{self.result.out.rstrip('/')}/{REPORT}"


def _pause_after(seconds: float) -> float:
    """The pause after the files were compared, if nothing new was found."""
    return max(POLL_SECONDS, _IDLE_PAUSE * seconds)


def _active(seen: Seen) -> dict[str, list[str]]:
    """The parts of journals that have changed, of journals whose other parts rest."""
    resting = {name for name, _ in seen.resting}
    return {
        name: [part for part in parts if part != OWN and (name, part) not in seen.resting]
        for name, parts in seen.stamps.items()
        if name in resting
    }


def _damage_after(state: State) -> DamageSummary:
    found = state.damage.copy()
    for part in state.parts.values():
        found.merge(part.damage)
    return found


def _counts(state: State, table: str) -> dict[tuple[str, ...], list[int]]:
    """What the report counts of a table: by journal, and by the columns of `tables.COUNTED`."""
    found: Counts = {}
    for journal, tables in state.closed.items():
        add_counts(found, {(journal, *place): numbers for place, numbers in tables.get(table, {}).items()})
    for (journal, _), part in state.parts.items():
        add_counts(found, {(journal, *place): numbers for place, numbers in part.live.get(table, {}).items()})
    return found


def _totals_after(state: State, table: str, change: TableChange | None) -> Totals:
    before = state.tables.get(table, Totals())
    if change is None:
        return before
    added, removed = change.added, change.removed if state.tables else ()
    return Totals(
        before.rows + sum(file.rows for file in added) - sum(file.rows for file in removed),
        before.files + len(added) - len(removed),
        before.bytes + sum(file.bytes for file in added) - sum(file.bytes for file in removed),
    )


def _add_found(total: dict[str, Found], found: Mapping[str, Found]) -> None:
    for name, one in found.items():
        total.setdefault(name, Found(one.format)).add(one)


def _loss_digest(loss: KnownLoss) -> str:
    """The identity of a loss in the tables."""
    return hashlib.sha256(json.dumps(loss).encode()).hexdigest()[:16]


def _nanoseconds(moment: datetime.datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1) * 1000


# --- on demand ------------------------------------------------------------------------------------------------------


def compact(out: str, *, format: str | None = None, options: Mapping[str, str] | None = None) -> Result:
    """Merge the small data files of all tables, and remove files that no table has had for a week.

    `format` is that of the tables; by default the one that is noted beside them. The rows stay the same.
    """
    is_remote = "://" in out and not out.startswith("file://")
    place = out if is_remote else str(locate(out)[1].absolute())
    if not is_remote and not REAL_DISK.exists(Path(place) / HOME):
        raise NotFound(f"{out}: there are no tables of the pipeline here")
    format = format or (None if is_remote else read_format(REAL_DISK, Path(place))) or "parquet"
    settings = Settings("", place, format=format, options=dict(options or {}))
    with open_output(settings) as publisher:
        state = State.of(publisher.checkpoint, out)
        result = Result(out, completed=publisher.completed)
        if state is not None:
            work = _Run(_made_by(settings, state), list(state.tables), publisher, result, _maker(None), None)
            work.compact(state)
        publisher.vacuum()
        return result


def _made_by(settings: Settings, state: State) -> Settings:
    """The settings by which tables were made, as far as their files depend on them."""
    made_with = state.made_with
    rules = tuple(
        JournalRule(match, decode=decode, schema=schema, columns=tuple((name, kind) for name, kind in columns))
        for match, decode, schema, columns in made_with["decode"]
    )
    partitions = {table: TableRule(tuple(columns)) for table, columns in made_with["partition_by"].items()}
    return replace(
        settings,
        journals=made_with["journals"],
        options={"compression": made_with["compression"], **settings.options},
        incremental=state.incremental,
        table_rules=partitions,
        journal_rules=rules,
    )


def to_parquet(
    spark: SparkSession | SparkMaker | None,
    journals: str,
    directory: Path | str,
    *,
    mode: str = "permissive",
    **options: Any,
) -> Result:
    """Write all records of the journals at or below a location as Parquet tables, without the tables made of them."""
    tables = ("events", "damage", *(name for name, table in TABLES.items() if table.is_record_table))
    return run(Settings(journals, str(directory), mode=mode, tables=tables, **options), spark)  # type: ignore[arg-type]
