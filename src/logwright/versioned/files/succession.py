"""How a journal follows the one before it: whether one is missing between them, and where its changes begin.

A journal begins with the state that the one before it ended with: one entry for each key, in any order, each as it was
written. Where it does not, a journal between them is missing: a gap. What is missing is not a gap if the account of
losses has it.

Logwright's journals begin when the one before them ended by its name. Then no journal is missing, and only the times of
the last entries are compared with those of the copies: they differ if the one before has lost entries. The names and
times of other programs say less: there the two states are compared. A missing journal in which keys were only added and
removed again cannot be noticed then.

`begun` is when a journal began, as it says itself; None where that is damaged.
"""

from __future__ import annotations

import functools
import logging
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ...core.bytes.outcome import Damage
from ...core.times import shown_time
from ..bytes import codec, kernel
from ..bytes.layout import HEADER_BYTES
from ..model.replay import State, same_value
from .cursor import Chunk, Head
from .files import MOST_TAKEN_NS, JournalFile, active_name, agree
from .lost import LostTimes

logger = logging.getLogger("logwright.versioned")
Items: TypeAlias = Callable[[JournalFile], Iterable[Head | Chunk | Damage]]
"""Goes through a file from its beginning."""


def find_gap(
    items: Items, before: JournalFile, source: JournalFile, begun: int | None, lost: LostTimes, last: int | None = None
) -> Damage | None:
    """What is missing between a journal and the one before it. Nothing is said where either of them is damaged.

    `last` is the time of the last entry of the one before it, or of its beginning, if that is known: an archive that
    has the name of a later one is noticed then.
    """
    ended = before.ended or 0
    is_late = before.compressed and last is not None and ended - last > MOST_TAKEN_NS
    if begun is None:
        return None
    if before.compressed and ended == begun and not is_late:  # it has its end in its name, and is not read
        return None
    if source.is_newest and _begun(items, before) > begun:
        reason = (
            f"it begins at {shown_time(begun)}, earlier than {before.name}: it is a copy of an earlier time, or the"
        )
        return Damage(source.name, HEADER_BYTES, HEADER_BYTES, f"{reason} names of the two were swapped", "gap")
    if before.compressed == source.compressed and _is_same_journal(items, before, begun):
        reason = f"it begins at {shown_time(begun)}, as {before.name} does: one of the two is a copy of the other"
        return Damage(source.name, HEADER_BYTES, HEADER_BYTES, reason, "gap")
    is_next_by_name = agree(ended, begun) and not is_late
    if is_next_by_name and not (before.compressed and source.compressed):
        return None
    found = _last_entries(items, before)
    if found is None:
        return None
    if is_next_by_name and begun < found.largest:
        reason = f"it begins at {shown_time(begun)}, earlier than the last entry of {before.name}"
        reason = f"{reason}: one of the two is a copy, or has the name of another one"
        return Damage(source.name, HEADER_BYTES, HEADER_BYTES, reason, "gap")
    if is_next_by_name:
        return None
    ended = end_of(before, max(found.begun, found.largest))
    if ended == begun or _is_damaged(items, source):
        return None
    if not is_late and _end_of_state(items, source, found.latest.state(), begun) is not None:
        return None
    gap = gap_between(source, begun, f"{before.name}, which ended at {shown_time(ended)}")
    if begun > ended and lost.covers(ended, begun):
        _log_known(source.path, gap)
        return None
    return gap


def end_of(source: JournalFile, last: int) -> int:
    """When a journal ended whose last entry, or beginning, is of the time `last`.

    Its name has that, unless the name is that of another archive, or another program gave it.
    """
    return source.ended if source.ended is not None and agree(source.ended, last) else last


def is_next(ended: int, begun: int) -> bool:
    """Whether a journal began when another one ended. The name of that, or its own, may be a little late."""
    return abs(begun - ended) <= MOST_TAKEN_NS


def _begun(items: Items, source: JournalFile) -> int:
    """When a journal began; 0 where that is damaged."""
    head = next((item for item in items(source) if isinstance(item, Head)), None)
    return 0 if head is None or head.metadata is None else head.metadata.initialized


def _is_same_journal(items: Items, before: JournalFile, begun: int) -> bool:
    """Whether a journal began when the next one did, and has entries that are later.

    Without such entries it was rotated before the clock advanced.
    """
    if _begun(items, before) != begun:
        return False
    return any(isinstance(item, Chunk) and item.largest > begun for item in items(before))


@functools.lru_cache(maxsize=1024)
def _log_known(path: Path, gap: Damage) -> None:
    """Log a gap that the account of losses has: once in a process, however often the journals are read."""
    logger.warning("%s: %s, as the account of losses says", path, gap.reason)


def gap_between(source: JournalFile, begun: int, before: str) -> Damage:
    """What is wrong where a journal is missing."""
    reason = f"it begins at {shown_time(begun)}, and not with what was at the end of {before}: one is missing"
    return Damage(source.name, HEADER_BYTES, HEADER_BYTES, reason, "gap")


def missing_newest(last: JournalFile) -> Damage:
    """What is wrong where the active journal is missing after the last archive of a store."""
    ended = shown_time(last.ended or 0)
    reason = f"the active journal is missing: nothing is known after {last.name}, which ended at {ended}"
    return Damage(active_name(last.store), 0, 0, reason, "gap")


def find_changes(
    items: Items, before: JournalFile, source: JournalFile, begun: int | None, lost: LostTimes
) -> int | None:
    """Where the changes of a journal begin, after the copies of the state that the one before it ended with.

    None where the journal does not begin with that state, because the one before it is missing or damaged, or has lost
    entries in a repair: then some of what it begins with is known from nowhere else, and all of it counts as changes.
    """
    if begun is None:
        return None
    found = _last_entries(items, before)
    if found is None:
        return None
    is_none_missing = agree(before.ended, begun)
    if is_none_missing and lost.between(found.begun - 1, begun) is None:
        position = _end_of_copies(items, source, found.latest, begun)
        if position is not None:
            return position
    return _end_of_state(items, source, found.latest.state(), begun, is_none_missing=is_none_missing)


class _LastEntries(NamedTuple):
    """The last entry of each key of a journal, when that began, and the latest time in it."""

    latest: kernel.Latest
    begun: int
    largest: int


def _last_entries(items: Items, source: JournalFile) -> _LastEntries | None:
    """The last entries of a journal; None where it is damaged."""
    latest, begun, largest = kernel.Latest(), 0, 0
    for item in items(source):
        if isinstance(item, Damage):
            return None
        if isinstance(item, Chunk):
            latest.add(item.data, item.start, item.stop, item.count)
            largest = max(largest, item.largest)
        elif item.metadata is not None:
            begun = item.metadata.initialized
    return _LastEntries(latest, begun, largest)


def _is_damaged(items: Items, source: JournalFile) -> bool:
    """Whether what a journal says of itself is not to be relied on; a torn tail does not matter."""
    return any(isinstance(item, Damage) and item.kind != "torn_tail" for item in items(source))


def _end_of_copies(items: Items, source: JournalFile, latest: kernel.Latest, begun: int) -> int | None:
    """Where the first entries end that have the times of a state; None where they have others.

    None also where one of the journal's own time follows them: that is a change, or another copy.
    """
    left, position, times = len(latest), 0, array("Q")
    for item in items(source):
        if isinstance(item, Damage):
            break
        if isinstance(item, Head):
            position = item.span.end
            continue
        end, count, _, _, largest = kernel.walk(item.data, item.start, item.stop, left)
        if count and largest > begun:
            return None
        times.frombytes(_times_of(kernel.columns(item.data, item.start, end, count, codec.TIMESTAMPS)))
        left -= count
        position = item.base + end
        if end < item.stop:
            _, _, _, following, _ = kernel.walk(item.data, end, item.stop, 1)
            if following <= begun:
                return None
            break
    wanted = array("Q", _times_of(latest.columns(codec.TIMESTAMPS)))
    return position if times == wanted or sorted(times) == sorted(wanted) else None


def _times_of(columns: codec.Columns) -> bytes:
    return b"" if columns.timestamps is None else bytes(columns.timestamps)


def _end_of_state(
    items: Items, source: JournalFile, state: State, begun: int, *, is_none_missing: bool = False
) -> int | None:
    """Where the entries end that a journal begins with, if they are a state; None where they are not.

    With `is_none_missing` no journal is missing before it. Then an entry of its own time after them may be a change.
    """
    position = 0
    left = dict(state)
    for item in items(source):
        if isinstance(item, Damage):
            return None if left else position
        if isinstance(item, Head):
            position = item.span.end
            continue
        starts = item.starts()
        for row, entry in enumerate(kernel.entries(item.data, item.start, item.stop, item.count)):
            if not left:  # what is not later than the journal is one more copy
                return position if entry.t > begun or (is_none_missing and entry.t == begun) else None
            value, time = left.pop(entry.k, (None, -1))
            if entry.t != time or entry.t > begun or not same_value(entry.o, value):
                return None  # what is later than the journal is no copy, though the one before it has it as well
            position = starts[row + 1]
    return position if not left else None
