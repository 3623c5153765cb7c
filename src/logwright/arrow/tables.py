"""The tables of journals: records, what the pipeline makes of them, the state of stores at a time, and damage."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrow.columns import without_dictionaries
from ..core.bytes.outcome import Damage, Mode, check_mode
from ..core.format import detect, find_format
from ..core.io.file_names import as_text, printed
from ..core.options import suggest
from ..core.read.columns import BATCH_BYTES
from ..core.read.materializer import Continued, Rows
from ..core.read.splits import Split
from ..core.times import nanoseconds_of, parse_time
from ..errors import DamagedJournal, LogwrightError, UnknownFormat, WrongUse
from ..location import locate, without_secrets
from .bounds import Filter
from .discovery import Journal, find_journals
from .moment import Moment, Opened
from .rows import (
    UNIFIED,
    columns_of,
    damage_row,
    file_of,
    fill,
    naming,
    place_of,
    read_split,
    record_columns,
    sources_of,
)

logger = logging.getLogger("logwright.arrow")

_PART_NAMES: Final = ("shard", "queue", "store")
_SPLIT_BYTES: Final = 1 << 40
"""Records are read in order, so a file is a single split."""
DAMAGE: Final = pa.schema(
    [
        ("journal", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns of the table `damage`. The kind of what an earlier repair has lost is `lost`."""


def table_names(format: str) -> dict[str, str]:
    """The names of a format's tables, each with that of the table it stands for: `items` is `queue_items`."""
    chosen = find_format(format)
    assert chosen.materials is not None
    record_table = chosen.materials.record_table
    names = {name: name for name in chosen.materials.schemas}
    names |= {name.rpartition("_")[2]: name for name in names}
    names = {short: "records" if name == record_table else name for short, name in names.items()}
    if chosen.states is not None:
        names["state"] = "state"
    return {"records": "records", "damage": "damage", **names}


class JournalTable:
    """A table of one journal, or of all journals below a directory; see `logwright.dataset`.

    It shows a `moment`, which several tables may share. `schema` is its columns.
    """

    def __init__(
        self,
        location: str,
        name: str = "records",
        *,
        at: str | int | datetime | None = None,
        mode: Mode = "failfast",
        on_damage: Callable[[Damage], None] | None = None,
        format: str | None = None,
        moment: Moment | None = None,
    ) -> None:
        self.location = without_secrets(location)
        self.mode: Mode = check_mode(mode)
        self._on_damage = self._log if on_damage is None else on_damage
        self._moment = Moment() if moment is None else moment
        self._opened: dict[Journal, Opened] = {}
        self.failure: LogwrightError | None = None
        """What a scan has raised: programs that read a dataset may replace it by an error of their own."""
        self._journals, self.format = _found(location, format)
        self.name = self._chosen(name)
        self._at = None if at is None else _nanoseconds(at)
        if self._at is not None and self.name != "state":
            raise WrongUse(f"{self.location}: only the table state of stores has a time")
        self.schema = self._columns()

    def _chosen(self, table: str) -> str:
        known = {"records": "records", "damage": "damage"} if self.format is None else table_names(self.format)
        if table not in known:
            kind = "several journals" if self.format is None else f"journals of {self.format}"
            raise WrongUse(f"{self.location}: {kind} have no table {table!r}; {suggest(table, known)}")
        return known[table]

    def _columns(self) -> pa.Schema:
        if self.name == "damage":
            return DAMAGE
        if self.format is None:
            return UNIFIED
        if self.name == "state":
            return columns_of(self.format)
        if self.name == "records":
            return record_columns(self.format)
        materials = find_format(self.format).materials
        assert materials is not None
        return materials.schemas[self.name]

    # --- rows ---------------------------------------------------------------------------------------------------------

    @property
    def _reading(self) -> Mode:
        """How journals are read: what is skipped is always reported here."""
        return "failfast" if self.mode == "failfast" else "permissive"

    def batches(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        """The rows that may match a filter, in these columns."""
        if self.name == "records":
            return self._records(wanted, chosen)
        if self.name == "state":
            return self._states(wanted, chosen)
        rows = self._damage(chosen) if self.name == "damage" else self._materialized(chosen)
        return (batch.select(wanted.names) for batch in rows)

    def _wanted(self, chosen: Filter) -> Iterator[Opened]:
        for journal in self._journals:
            if chosen.can_have("journal", journal.name) and chosen.can_have("format", journal.format):
                if journal not in self._opened:
                    self._opened[journal] = self._moment.open(journal)
                yield self._opened[journal]

    def _planned(self, opened: Opened, chosen: Filter) -> Iterator[Split]:
        """The splits of a journal that may have records that match."""
        splits, bounds = opened.format.splits, chosen.bounds
        start, stop = (bounds.start, bounds.stop) if splits.prunes_numbers else (None, None)
        times = bounds.times if splits.prunes_times else None
        if start is None and stop is None and times is None:
            planned = self._all_splits(opened)
        else:
            stops = {part: next if stop is None else min(next, stop) for part, next in opened.stops.items()}
            starts = None if start is None else {part: min(start, next) for part, next in stops.items()}
            planned = splits.plan(opened.reader, _SPLIT_BYTES, starts, stops, times=times)
        for split in planned:
            if self._has(split.part, chosen) and bounds.leave(split):
                yield split

    def _all_splits(self, opened: Opened) -> list[Split]:
        """All splits of a journal. If it has no file left though it should have, that is damage."""
        splits = opened.format.splits
        planned = splits.plan(opened.reader, _SPLIT_BYTES, None, opened.stops)
        if planned:
            return planned
        with naming(opened.journal, ""):
            try:
                return splits.plan(opened.reader, _SPLIT_BYTES)
            except DamagedJournal as error:
                if self.mode == "failfast" and self.name != "damage":
                    raise
                opened.missing = Damage(str(error.file), error.position, error.position, error.reason, "missing_file")
                self._skip(opened.journal, "", opened.missing)
                return []

    def _has(self, part: str, chosen: Filter) -> bool:
        name = printed(part) or None
        return name is None or all(chosen.can_have(column, name) for column in _PART_NAMES)

    def _records(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        for opened in self._wanted(chosen):
            for split in self._planned(opened, chosen):
                for item in read_split(opened.journal, opened.reader, split, wanted, self._reading, BATCH_BYTES):
                    self._moment.check()
                    if not isinstance(item, Damage):
                        yield item
                        continue
                    self._skip(opened.journal, split.part, item)
                    if self.format is None and self.mode == "permissive":
                        yield self._damage_row(wanted, opened.journal, split.part, item)

    def _damage_row(self, wanted: pa.Schema, journal: Journal, part: str, damage: Damage) -> pa.RecordBatch:
        file = printed(file_of(journal.format, part, damage.file))
        size = min(damage.size, 2**31 - 1)
        text = as_text(f"{damage.kind}: {damage.reason}")
        return damage_row(wanted, journal.format, journal.name, file, damage.start, size, text)

    def _skip(self, journal: Journal, part: str, damage: Damage) -> None:
        file = printed(file_of(journal.format, part, damage.file))
        self._on_damage(replace(damage, file=file if self.format is not None else place_of(journal, file)))

    def _log(self, damage: Damage) -> None:
        if self.mode == "permissive" and self.format is not None and self.name != "damage":
            logger.warning("%s: %s @ %s: skipped: %s", self.location, damage.file, damage.start, as_text(damage.reason))

    def _materialized(self, chosen: Filter) -> Iterator[pa.RecordBatch]:
        """The rows of a table that is made from all records of a part."""
        for opened in self._wanted(chosen):
            assert opened.format.materials is not None
            schema = opened.format.materials.schemas[self.name]
            parts: dict[str, list[Split]] = {}
            for split in self._all_splits(opened):
                if self._has(split.part, chosen):
                    parts.setdefault(split.part, []).append(split)
            for part, splits in parts.items():
                for rows in self._rows(opened, part, splits):
                    if rows.table == self.name and rows.batch.num_rows:
                        yield without_dictionaries(rows.batch, schema)

    def _rows(self, opened: Opened, part: str, splits: list[Split]) -> Iterator[Rows]:
        materials = opened.format.materials
        assert materials is not None
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logwright-")))
            materializer = stack.enter_context(materials.materializer(Continued(part, None, scratch)))
            for split in splits:
                collector = opened.format.columns.collector(materials.sources, batch_bytes=BATCH_BYTES)
                with naming(opened.journal, part):
                    for item in opened.format.splits.chunks(opened.reader, split, self._reading):
                        self._moment.check()
                        if isinstance(item, Damage):
                            self._skip(opened.journal, part, item)
                            continue
                        for batch in collector.add(item, part):
                            yield from materializer.add(batch)
                for batch in collector.finish():
                    yield from materializer.add(batch)
            yield from materializer.live(self._moment.now)

    def _states(self, wanted: pa.Schema, chosen: Filter) -> Iterator[pa.RecordBatch]:
        for opened in self._wanted(chosen):
            journal, states = opened.journal, opened.format.states
            assert states is not None
            names = sources_of(wanted.names, journal.format, sharded=True)
            disk, path = locate(journal.location)
            now = self._moment.now if self._at is None else self._at
            for part in states.plan(disk, path, now):
                if not self._has(part.name, chosen):
                    continue
                at = self._last_time(opened, part.name) if self._at is None else self._at
                with naming(journal, part.name):
                    damages, batch = states.read(disk, part, at, self._reading, names)
                for damage in damages:
                    self._skip(journal, part.name, damage)
                if batch is not None and batch.num_rows:
                    yield fill(wanted, batch, journal.format, journal.name)

    def _last_time(self, opened: Opened, part: str) -> int:
        """The time of the last change of a store at this moment: later changes are not in its state."""
        splits = opened.format.splits.plan(opened.reader, _SPLIT_BYTES, None, opened.stops)
        last = [split for split in splits if split.part == part][-1:]
        times = pa.schema([columns_of(opened.journal.format).field("t")])
        found = [
            pc.max(item.column("t")).as_py()
            for split in last
            for item in read_split(opened.journal, opened.reader, split, times, "permissive")
            if not isinstance(item, Damage)
        ]
        return max(found, default=self._moment.now)

    def _damage(self, chosen: Filter) -> Iterator[pa.RecordBatch]:
        for opened in self._wanted(chosen):
            journal, splits = opened.journal, opened.format.splits
            rows = [
                (printed(loss.file), loss.position, loss.bytes, loss.kind, f"{loss.what}: {loss.reason}")
                for loss in opened.reader.losses()
            ]
            for split in self._all_splits(opened):
                for item in splits.chunks(opened.reader, split, "permissive"):
                    self._moment.check()
                    if isinstance(item, Damage) and item.kind != "lost":
                        file = printed(splits.file_of(split.part, item.file))
                        rows.append((file, item.start, item.size, item.kind, as_text(item.reason)))
            if (missing := opened.missing) is not None:
                rows.append((printed(missing.file), missing.start, 0, missing.kind, as_text(missing.reason)))
            found = [dict(zip(DAMAGE.names, (journal.name, *row), strict=True)) for row in rows]
            if found:
                yield pa.RecordBatch.from_pylist(found, DAMAGE)


def _found(location: str, format: str | None) -> tuple[list[Journal], str | None]:
    """The journals at or below a location, and their format; None if they are not read as one."""
    disk, path = locate(location)
    try:
        chosen = detect(path, disk=disk) if format is None else find_format(format)
    except UnknownFormat:
        if not disk.is_directory(path):
            raise
        return find_journals(location, None), None
    return [Journal(chosen.name, location, printed(path.name))], chosen.name


def _nanoseconds(at: str | int | datetime) -> int:
    return parse_time(at) if isinstance(at, str) else nanoseconds_of(at)
