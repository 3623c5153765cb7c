"""Checking the journal of a queue: `verify` goes through all of it, `summarize` looks at names, sizes and both ends.

A problem is something that costs operations: bytes that are none, a file that cannot be read. An anomaly is odd and
costs nothing: the journal stays sound. What is wrong in one place never hides the next: reading goes on behind it.

    problems    torn_tail malformed unreadable doubled_name empty_pack
    anomalies   empty_queue not_open open_already behind_state_dump dialect dead_file temporary_file pack foreign_file
                repair
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LogwrightError, is_refusal
from ...core.format import Located
from ...core.keep import kept_bytes
from ...core.look import MOST_LOOKED_AT_BYTES, MOST_SHOWN_BYTES, Look
from ...core.outcome import Damage, Span
from ...core.repair import report_interrupted
from ...core.report import Problem, Progress, Report, Summary
from . import codec, kernel
from .cursor import Chunk
from .files import JournalFile, Listing, OpenFiles, known_dead
from .layout import TEMPORARY, UNDECIDED, parse_name
from .replay import ANOMALIES

if TYPE_CHECKING:
    from .reader import Reader

_OF_NAMES: Final = ("doubled_name", "empty_pack")
"""What is wrong with a name, and not with bytes at a position."""


# --- every operation ------------------------------------------------------------------------------------------------


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every operation, whether it fits the queue as it was then, and what is beside the files.

    Whatever is there, the answer is a report; where we may not look there is none (`StorageFailed`).
    """
    report = Report("kestrel")
    with reader.snapshot() as files:
        sizes = [files.size(source) for source in files.files]
        report.bytes = sum(sizes)
        replay = kernel.Replay()
        for number, source in enumerate(files.files):
            replay.begin_file(number)
            told = None if progress is None else _shifted(progress, sum(sizes[:number]), report.bytes)
            _check_file(reader, report, replay, files, source, told)
            files.done_with(source)
        _note_anomalies(report, replay, files)
    if reader.verdict.both_fit:
        message = "an 8 in it reads as a state dump and as a continue alike; it is taken to be documented"
        report.anomalies.append(Problem(reader.files()[0].name, 0, "dialect", message))
    if not reader.is_single_file:
        _check_names(reader, report)
    report_interrupted(reader.disk, reader.directory, report)
    return report


def _shifted(progress: Progress, before: int, total: int) -> Any:
    return lambda position: progress(before + position, total)


def _check_file(
    reader: Reader, report: Report, replay: kernel.Replay, files: OpenFiles, source: JournalFile, told: Any
) -> None:
    position = 0
    try:
        file = files.file(source)
        for item in reader.file_chunks(source, file, None, None, "permissive", told, load=False):
            if isinstance(item, Damage):
                _note_damage(report, item, file.size())
                position = item.end
            else:
                replay.add(*item.turns())
                report.records += item.count
                position = item.end
    except LogwrightError as error:
        if is_refusal(error):
            raise
        report.problems.append(Problem(source.name, position, "unreadable", str(error)))


def _note_damage(report: Report, damage: Damage, size: int) -> None:
    if damage.kind in _OF_NAMES:
        message = damage.reason
    elif damage.kind == "torn_tail":
        message = f"{damage.reason}; the last {damage.size} bytes are a torn tail"
    elif damage.end < size:
        message = f"{damage.reason}; the next item that is whole is at {damage.end}"
    else:
        message = f"{damage.reason}; nothing whole follows in this file"
    report.problems.append(Problem(damage.file, damage.start, damage.kind, message))


def _note_anomalies(report: Report, replay: kernel.Replay, files: OpenFiles) -> None:
    for file, position, which, xid in replay.anomalies:
        kind, message = ANOMALIES[which]
        report.anomalies.append(Problem(files.files[file].name, position, kind, message.format(xid)))
    untold = replay.anomaly_count - len(replay.anomalies)
    if untold:
        last = report.anomalies[-1]
        report.anomalies.append(Problem(last.file, last.position, last.kind, f"{untold} more of these are behind this"))


def _check_names(reader: Reader, report: Report) -> None:
    """What lies beside the files that count."""

    def odd(file: str, kind: str, message: str) -> None:
        report.anomalies.append(Problem(file, 0, kind, message))

    listing = reader.listing()
    if listing.pack is not None and listing.pack.flaw is not None:  # then no writer opens the queue
        for name in listing.dead:
            odd(name, "dead_file", f"it does not count as long as {listing.pack.name} is there")
    elif listing.pack is not None:
        odd(listing.pack.name, "pack", "a pack that was not finished: the next writer takes it over")
        known = known_dead(reader.disk, reader.directory, listing)
        for name in listing.dead:
            becomes = "removes it" if name in known else "keeps it in .logwright/cut, as the pack is from elsewhere"
            odd(name, "dead_file", f"{listing.pack.name} stands for it; the next writer {becomes}")
    for name in listing.temporary:
        odd(name, "temporary_file", "a temporary file that was left behind; the next writer removes it")
    for name in reader.disk.list_directory(reader.directory):
        if name.startswith(reader.queue + ".") and TEMPORARY not in name and parse_name(name) is None:
            odd(name, "foreign_file", "this is no name of a file of a queue's")


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look(Look):
    """What a look at the files has found."""

    records: int = 0
    complete: bool = True
    first: dict[str, Any] | None = None
    last: tuple[JournalFile, Span] | None = None


def summarize(reader: Reader) -> Summary:
    """What this is. Of a journal of more than `MOST_LOOKED_AT_BYTES` only so much is read, from its beginning.

    The data of a first or last operation of more than `MOST_SHOWN_BYTES` is not read, and None in its place.
    """
    listing = reader.listing()
    with reader.snapshot() as files:
        look = _look(reader, files)
        total = sum(files.size(source) for source in files.files)
        last = _last_record(reader, files, look)
    reader.torn_tail = look.torn
    return Summary(
        format="kestrel",
        path=str(reader.path),
        files=len(listing.files),
        bytes=total,
        records=look.records if look.complete and look.damage is None else None,
        first=look.first,
        last=last,
        health=look.health,
        details=_details(reader, listing, look),
    )


def _details(reader: Reader, listing: Listing, look: _Look) -> dict[str, Any]:
    verdict = reader.verdict
    nothing_differs = True if look.complete else None
    return {
        "queue": reader.queue,
        "dialect": "documented" if verdict.dialect == UNDECIDED else verdict.name,
        "both_dialects_fit": nothing_differs if verdict.dialect == UNDECIDED else verdict.both_fit,
        "rotated": sum(not source.is_newest for source in listing.files),
        "dead": listing.dead,
        "temporary": listing.temporary,
        "kept_bytes": kept_bytes(reader.disk, reader.directory, reader.queue + "."),
    }


def _look(reader: Reader, files: OpenFiles) -> _Look:
    look = _Look()
    done = 0
    for source in files.files:
        if done >= MOST_LOOKED_AT_BYTES:
            look.complete = False
            break
        with look.reading(source.name):
            file = files.file(source)
            for item in reader.file_chunks(source, file, None, None, "permissive", load=False):
                if not _note(reader, look, item):
                    continue
                if done + item.end >= MOST_LOOKED_AT_BYTES and item.end < file.size():
                    look.complete = False
                    break
            done += file.size()
    return look


def _note(reader: Reader, look: _Look, item: Chunk | Damage) -> bool:
    """Note a chunk or damage; whether it was a chunk."""
    if isinstance(item, Damage):
        look.note_damage(item)
        return False
    starts = item.starts()
    look.records += item.count
    look.last = (item.source, Span(starts[-2], starts[-1]))
    if look.first is None:
        head = bytes(item.data[item.start : item.start + MOST_SHOWN_BYTES])
        look.first = _shown(reader, item.source, Span(starts[0], starts[1]), head, item.dialect)
    return True


def _last_record(reader: Reader, files: OpenFiles, look: _Look) -> dict[str, Any] | None:
    """The last operation, None where nobody has looked that far."""
    if look.last is None or not look.complete:
        return None
    source, span = look.last
    head = files.file(source).read_at(span.start, min(span.size, MOST_SHOWN_BYTES))
    return _shown(reader, source, span, head, reader.verdict.dialect)


def _shown(reader: Reader, source: JournalFile, span: Span, head: bytes, dialect: int) -> dict[str, Any]:
    """An operation as JSON; a large one without its data."""
    if span.size <= len(head):
        (operation,) = kernel.operations(head, 0, span.size, 1, dialect)
        return reader.as_json(Located(operation, source.name, span))
    operation = codec.without_data(head, 0, dialect)
    return {**reader.as_json(Located(operation, source.name, span)), "data": None}
