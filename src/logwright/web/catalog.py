"""Catalog: the journals below a root, their health, and what needs attention.

Journals are looked up by their names in this list only, so a request can never name a path. The list is made again when
it is older than a few seconds. A journal is summarized again when its files have changed, and a small one is also
verified. Lists and summaries that take long are made less often. An overview looks at journals for a few seconds at
most; those that it did not reach are counted, and the next overview continues with them.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ..arrow.discovery import Journal, list_journals
from ..core.bytes.outcome import Damage
from ..core.format import Format, Reader, find_format, open_journal
from ..core.read.chunk_reader import ChunkReader
from ..core.read.report import Report
from ..core.read.splits import FileEntry
from ..errors import LogwrightError, NotFound, StorageFailed
from .outline import AnyReader, Bucket, DamagedRange, Outline, outline_of, time_in

_LIST_SECONDS: Final = 2.0
_VERIFIED_BYTES: Final = 32 << 20
"""Journals up to this size are verified automatically."""
_OUTLINED_BYTES: Final = 64 << 20
_REST_FACTOR: Final = 20
"""A list or a summary is made again only after this number of times the time that it took."""
LOOK_SECONDS: Final = 5.0
"""How long an overview looks at journals."""
_SPARK_STEPS: Final = 48
_MOST_OUTLINES: Final = 64
_MOST_DAMAGES: Final = 1000
_LATE_RECORDS: Final = 1000
"""A consumer is reported as late if its lag is at least this, and at least a tenth of the journal."""
_WORST_FIRST: Final = ("unreadable", "damaged", "lost", "torn", "good")

HOLDING: Final = "~delayed"
"""The end of the name of a queue that holds the items of another one until they are due; each is open there."""

Signature = tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class Entry:
    """A journal as the overview shows it."""

    journal: Journal
    signature: Signature = ()
    fields: dict[str, Any] = field(default_factory=dict)
    report: Report | None = None
    not_before: float = 0.0
    missing: int = 0
    """How many numbers have no record, by the last report."""
    damages: tuple[Report, list[DamagedRange]] | None = None
    """The damaged ranges of a report that found problems."""

    @property
    def path(self) -> Path:
        return Path(self.journal.location)

    @property
    def format(self) -> Format:
        return find_format(self.journal.format)


class Catalog:
    """The journals below a root."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._entries: dict[str, Entry] = {}
        self._refused: dict[str, str] = {}
        self._list_again_at = 0.0
        self._lock = Lock()
        self._looking = Lock()
        self._outlines: OrderedDict[tuple[str, str, str], Outline] = OrderedDict()
        self._outlines_lock = Lock()

    # --- journals by name ---------------------------------------------------------------------------------------------

    def entry(self, name: str) -> Entry:
        """The journal of a name; `NotFound` if there is none."""
        if name not in self._entries:
            self._list()
        if name not in self._entries:
            raise NotFound(f"there is no journal {name!r} below {self.root}")
        return self._entries[name]

    def names(self) -> list[str]:
        """The names of all journals."""
        self._list()
        return list(self._entries)

    def open(self, name: str) -> Reader:
        """Open a journal for reading."""
        entry = self.entry(name)
        return open_journal(entry.path, entry.journal.format)

    def part(self, name: str, part: str | None) -> tuple[str, AnyReader, Outline]:
        """One part of a journal, by default its first one: its name, its reader, and its outline up to now."""
        whole = self.open(name)
        parts = dict(whole.parts()) if whole.has_parts else {"": whole}
        if not parts:
            raise NotFound(f"{name} is empty")
        chosen = next(iter(parts)) if part is None else part
        if chosen not in parts:
            raise NotFound(f"{name} has no {whole.part_name} {chosen!r}")
        reader = parts[chosen]
        assert isinstance(reader, ChunkReader)
        return chosen, reader, self._outline(name, chosen, reader)

    def delayed(self, name: str, queue: str) -> int | None:
        """How many items of a queue are in its holding queue, None if it has none."""
        holding = queue + HOLDING
        if holding not in dict(self.open(name).parts()):
            return None
        series = self.part(name, holding)[2].series()
        return depth_of(series[-1])[1] if series else 0

    def _outline(self, name: str, part: str, reader: AnyReader) -> Outline:
        key = (name, part, reader.format)
        with self._outlines_lock:
            outline = self._outlines.pop(key, None) or outline_of(find_format(reader.format))
            self._outlines[key] = outline
            while len(self._outlines) > _MOST_OUTLINES:
                self._outlines.popitem(last=False)
        outline.extend(reader)
        return outline

    def _known(self, name: str) -> Entry:
        """A journal that was looked at."""
        entry = self.entry(name)
        if not entry.fields:  # the page of this journal is opened before the overview
            with self._looking:
                self._look_at(entry)
        return entry

    def missing(self, name: str) -> int:
        """How many rows of a journal have no record, as far as that is known."""
        return self._known(name).missing

    def damages(self, name: str) -> list[DamagedRange]:
        """The damaged ranges of a journal in which `verify` found problems, with about their rows and times."""
        entry = self._known(name)
        report = entry.report
        if report is None or report.sound:
            return []
        if entry.damages is None or entry.damages[0] is not report:
            found: list[Damage] = []

            def note(damage: Damage) -> None:
                if len(found) < _MOST_DAMAGES and damage.kind != "lost":
                    found.append(damage)

            with self.open(name) as reader:
                reader.count(on_damage=note)
                found += [torn for torn in reader.all_torn_tails() if torn not in found]
                files = {file.file: file for file in entry.format.splits.inventory(reader).files}
            entry.damages = report, [self._placed(name, damage, files.get(damage.file)) for damage in found]
        return entry.damages[1]

    def _placed(self, name: str, damage: Damage, file: FileEntry | None) -> DamagedRange:
        if file is None:
            return DamagedRange(damage, 0, None)
        _, reader, outline = self.part(name, file.part if self.open(name).has_parts else "")
        return outline.placed(reader, damage, file)

    # --- the overview -------------------------------------------------------------------------------------------------

    def overview(self, seconds: float = LOOK_SECONDS) -> dict[str, Any]:
        """All journals, those with problems first. `pending` is how many were not looked at yet."""
        self._list()
        with self._looking:  # once for all that ask at the same time
            deadline = time.monotonic() + seconds
            for entry in sorted(self._entries.values(), key=lambda entry: entry.not_before):
                self._look_at(entry)
                if time.monotonic() > deadline:
                    break
        journals = [entry.fields for entry in self._entries.values() if entry.fields]
        journals.sort(key=lambda found: (_WORST_FIRST.index(found["health"]), -len(found["problems"]), found["name"]))
        refused = [{"name": name, "reason": reason} for name, reason in sorted(self._refused.items())]
        pending = len(self._entries) - len(journals)
        return {"root": str(self.root), "journals": journals, "unreadable": refused, "pending": pending}

    def note_report(self, name: str, report: Report) -> None:
        """Remember what `verify` has found."""
        entry = self.entry(name)
        entry.report, entry.signature = report, ()
        entry.not_before = 0.0

    def _list(self) -> None:
        with self._lock:
            started = time.monotonic()
            if started < self._list_again_at:
                return
            refused: dict[str, str] = {}

            def note(name: str, error: StorageFailed) -> None:
                refused[name] = str(error)

            found = {journal.name: journal for journal in list_journals(str(self.root), None, note)}
            known = self._entries
            self._entries = {
                name: known[name] if name in known and known[name].journal == journal else Entry(journal)
                for name, journal in found.items()
            }
            self._refused = refused
            ended = time.monotonic()
            self._list_again_at = ended + min(60.0, max(_LIST_SECONDS, _REST_FACTOR * (ended - started)))

    def _look_at(self, entry: Entry) -> None:
        """Summarize a journal again if it has changed."""
        if time.monotonic() < entry.not_before:
            return
        started = time.monotonic()
        try:
            with open_journal(entry.path, entry.journal.format) as reader:
                self._summarize(entry, reader)
        except (LogwrightError, OSError) as error:
            problem = _problem("unreadable", str(error), f"logwright verify {_quoted(entry)}", "bad")
            known: dict[str, Any] = dict.fromkeys(("records", "bytes", "files"))
            known |= {"spark": [], "span_ms": 0, "parts": [], "lags": [], "damaged": 0}
            entry.fields = {**_named(entry), **known, "health": "unreadable", "problems": [problem]}
            entry.signature = ()
        entry.not_before = time.monotonic() + min(60.0, _REST_FACTOR * (time.monotonic() - started))

    def _summarize(self, entry: Entry, reader: Reader) -> None:
        format = entry.format
        inventory = format.splits.inventory(reader)
        signature = _signature(reader, [file.file for file in inventory.files])
        consumers = [
            {
                "part": found.part,
                "consumer": found.consumer,
                "offset": found.offset,
                "lag": None if found.next is None else found.next - (found.offset or found.first or 0),
                "problem": found.problem,
            }
            for found in inventory.consumers
        ]
        if signature == entry.signature and consumers == entry.fields.get("lags"):
            return
        summary = reader.summary()
        if signature != entry.signature and summary.bytes <= _VERIFIED_BYTES:
            entry.report = reader.verify()
        entry.signature = signature
        last = summary.last or {}
        parts = [name for name, _ in reader.parts()]
        when = time_in(last, reader.time_scale)
        entry.fields = {
            **_named(entry),
            "records": summary.records,
            "bytes": summary.bytes,
            "files": summary.files,
            "parts": parts,
            "part_name": reader.part_name,
            "written_ms": max((changed for _, _, changed in signature), default=0) // 1_000_000 or None,
            "latest_ms": None if when is None else when // 1_000_000,
            "lags": consumers,
            "details": {k: v for k, v in summary.details.items() if isinstance(v, int | str)},
            "verified": entry.report is not None,
            **self._drawn(entry, parts, summary.bytes),
        }
        entry.fields |= _judged(entry, summary.health, summary.damaged, bool(summary.losses))

    def _drawn(self, entry: Entry, parts: list[str], size: int) -> dict[str, Any]:
        """The rate over the life of the journal, and the depth of queues; of a large journal only if that is cheap."""
        if size > _OUTLINED_BYTES and not entry.format.splits.prunes_numbers:
            return {"spark": [], "span_ms": 0, "depth": None, "drawn": False}
        rows = 0
        depth = {"waiting": 0, "open": 0} if entry.format.items is not None else {}
        opened = [self.part(entry.journal.name, part)[1:] for part in parts or [""]]
        for one, outline in opened:
            while not outline.is_complete:
                outline.extend(one)
        ends = [(low, high) for one, outline in opened for low, high in _ends(outline.buckets(one, None, None, 1))]
        low, high = min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0)
        total = [0] * (_SPARK_STEPS if ends else 0)
        for one, outline in opened:
            rows += outline.rows
            for at, bucket in enumerate(outline.buckets(one, low, high, _SPARK_STEPS) if ends else []):
                total[at] += bucket.records
            if entry.format.items is not None and outline.series():
                waiting, is_open, _ = depth_of(outline.series()[-1])
                state = "delayed" if one.part.endswith(HOLDING) else "open"
                depth |= {"waiting": depth.get("waiting", 0) + waiting, state: depth.get(state, 0) + is_open}
        report = entry.report
        if report is not None and report.bytes == size and entry.format.splits.prunes_numbers:
            entry.missing = max(0, rows - report.records)
        return {
            "records": rows - entry.missing,
            "spark": total,
            "span_ms": (high - low) // 1_000_000,
            "depth": depth or None,
            "drawn": True,
        }


def _ends(buckets: list[Bucket]) -> list[tuple[int, int]]:
    """The first time and the time after the last one, if there are any."""
    return [(bucket.start, bucket.end) for bucket in buckets]


def _problem(kind: str, text: str, command: str, look: str) -> dict[str, str]:
    return {"kind": kind, "text": text, "command": command, "look": look}


def depth_of(counts: dict[str, Any]) -> tuple[int, int, int]:
    """How many items of a queue wait, are open and are done, by the operations counted so far."""
    added = sum(counts.get(name, 0) for name in ("add", "addx"))
    reserved = sum(counts.get(name, 0) for name in ("remove_tentative", "remove_tentative_xid"))
    kept_open = counts.get("add_xid", 0)
    removed, confirmed, back = (counts.get(name, 0) for name in ("remove", "confirm_remove", "unremove"))
    waiting = added - removed - reserved + back
    return max(0, waiting), max(0, reserved + kept_open - confirmed - back), removed + confirmed


def _named(entry: Entry) -> dict[str, Any]:
    return {"name": entry.journal.name, "format": entry.journal.format, "title": entry.format.title}


def _quoted(entry: Entry) -> str:
    return shlex.quote(entry.journal.location)


def _judged(entry: Entry, health: str, damaged: bool, has_losses: bool) -> dict[str, Any]:
    """The health in one word, and the problems with the commands that help."""
    path = _quoted(entry)
    problems: list[dict[str, str]] = []
    report = entry.report
    found = [] if report is None else report.problems
    torn = [problem for problem in found if problem.kind == "torn_tail"]
    for problem in [problem for problem in found if problem.kind != "torn_tail"][:5]:
        text = f"{problem.file} @ {problem.position}: {problem.message}"
        problems.append(_problem("damage", text, f"logwright repair {path} --plan", "bad"))
    is_damaged = bool(problems) or damaged
    if damaged and not problems:
        problems.append(_problem("damage", health, f"logwright verify {path}", "bad"))
    is_torn = bool(torn) or health.startswith("torn tail")
    if is_torn:
        text = torn[0].message if torn else health
        note = "the next writer cuts it off and keeps it"
        plan = f"logwright repair {path} --plan"
        problems.append(_problem("torn tail", f"{text}; {note}", plan, "warn"))
    for consumer in entry.fields["lags"]:
        lag, records = consumer["lag"], entry.fields["records"]
        if consumer["problem"] is not None:
            text = f"{consumer['consumer']}: {consumer['problem']}"
            problems.append(_problem("consumer", text, _offsets(path), "bad"))
        elif lag is not None and lag >= _LATE_RECORDS and records and lag * 10 >= records:
            text = f"consumer {consumer['consumer']} is {lag:,} records behind"
            problems.append(_problem("lag", text, _offsets(path), "warn"))
    word = "damaged" if is_damaged else "torn" if is_torn else "lost" if has_losses else "good"
    return {"health": word, "health_text": health, "damaged": len(found) - len(torn), "problems": problems}


def _offsets(path: str) -> str:
    return f"logwright offsets {path}"


def _signature(reader: Reader, files: list[str]) -> Signature:
    """The sizes and times of the files."""
    base = reader.path if reader.path.is_dir() else reader.path.parent
    found = []
    for name in files:
        try:
            status = os.stat(base / name)
        except OSError:
            continue
        found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)
