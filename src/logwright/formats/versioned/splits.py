"""Journals of stores in splits: a split lies within one file, and the part that it belongs to is its store.

Each change comes once: a split begins behind the copies that compaction made (see `reader.changes_start`). An archive
can only be read from its beginning, so it is one split, however large; the active journal is cut at entries that were
found by going from one to the next. Damage belongs to the split that it begins in. The file of a split is found again
by the numbers of its entries, so it may have become an archive in the meantime.

By time whole files are left out: the changes of a file are later than the archive before it, and not later than the
time in its own name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.snapshot import Snapshot
from ...core.split import TARGET_BYTES, Bound, Split, Times
from ...core.splitting import (
    AnyReader,
    advance,
    cut_file,
    extent,
    file_of,
    part_of,
    parts,
    plan_parts,
    reach,
    source_of,
)
from .cursor import Chunk, Head
from .files import POSITION_BITS, JournalFile
from .reader import Reader

__all__ = ["AnyReader", "advance", "chunks", "extent", "file_of", "parts", "plan", "reach"]


# --- planning ---------------------------------------------------------------------------------------------------------


def plan(
    reader: AnyReader,
    target_bytes: int = TARGET_BYTES,
    start: Bound = None,
    stop: Bound = None,
    *,
    resumed: bool = False,
    times: Times | None = None,
) -> list[Split]:
    """The changes with `start` <= number < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Bounds are for every store, or for each by its name; then those that are
    not named are left out. `resumed` says that what lies before `start` has been read before: damage that began there
    was told then.
    """
    return plan_parts(
        reader, start, stop, lambda journal, low, high: _plan(journal, target_bytes, low, high, resumed, times)
    )


def _plan(
    reader: Reader, target_bytes: int, start: int | None, stop: int | None, resumed: bool, times: Times | None
) -> list[Split]:
    found: list[Split] = []
    with reader.snapshot() as files:
        for number, source in enumerate(files.files):
            first = source.first_number
            if stop is not None and first >= stop:
                break
            if start is not None and start - first >= 1 << POSITION_BITS:
                continue
            if times is not None and not _may_hold(source, number, times):
                continue
            at = reader.changes_start(files, number)
            low = start if at is None else max(start or 0, first + at)
            if source.compressed and (start is None or start <= first) and (stop is None or _is_behind(source, stop)):
                size = files.size(source)
                found.append(Split(source.name, at or 0, first + (at or 0), _end_number(source), size))
            else:
                most = None if source.compressed else target_bytes
                found += cut_file(source, _items(reader, files, source, low, stop), most, low, resumed=resumed)
            files.done_with(source)
    return found


def _may_hold(source: JournalFile, number: int, times: Times) -> bool:
    """Whether a file may have a change of these times; of the first one, copies count as changes."""
    latest = 2**64 if source.timestamp is None else source.timestamp
    return times.reach(source.before if number else 0, latest)


def _end_number(source: JournalFile) -> int:
    """A number behind all entries of a file that has ended."""
    return source.first_number + (1 << POSITION_BITS)


def _is_behind(source: JournalFile, stop: int) -> bool:
    return stop >= _end_number(source)


def _items(
    reader: Reader, files: Snapshot[JournalFile], source: JournalFile, start: int | None, stop: int | None
) -> Iterator[Chunk | Damage]:
    """The chunks and damages of one file."""
    for item in reader.file_items(source, files.file(source), start, stop, "permissive"):
        if not isinstance(item, Head):
            yield item


# --- reading ----------------------------------------------------------------------------------------------------------


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The changes of a split. A chunk's buffer is valid until the next one is asked for."""
    check_mode(mode)
    journal = part_of(reader, split.part)
    with journal.snapshot() as files:
        source = source_of(files.files, split.start)
        if source is None:
            raise NotFound(f"{journal.path}: {split.file} is not kept any more")
        at = None if source.compressed or split.position == 0 else split.position
        for item in journal.file_items(source, files.file(source), split.start, split.stop, "permissive", at=at):
            if isinstance(item, Chunk):
                yield item
            elif isinstance(item, Damage) and item.start >= split.position and item.kind != "torn_tail":
                yield from journal.report(item, mode)
        if split.behind is not None:
            yield from journal.report(split.behind, mode)
