"""The stretches of a segment that may have messages of some times.

The times are known for the stretches between the entries of the sparse index, and for the range that was walked to find
the end. Unknown ranges are wanted. The index is used only if the file confirms its last entry and each entry between a
wanted and an unwanted stretch; otherwise all of the segment is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...core.io.disk import File
from ...core.read.splits import Times
from ..bytes.layout import NO_TIMESTAMP
from ..files.ending import Walked
from ..files.index import Entry, Index, confirms

Place: TypeAlias = tuple[int, int]
"""A position in a segment, and the offset of the message that begins there."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The range between two places, whether it is wanted, and the index entry at its end, if any."""

    begin: Place
    end: Place
    is_wanted: bool
    entry: Entry | None


def is_outside(index: Index, file: File, times: Times) -> bool:
    """Whether a finished segment is known to have no message of these times."""
    found = index.times(file)
    return found is not None and not _can_hold(times, *found)


def wanted_ranges(
    index: Index | None, file: File, place: Place, last: Place, times: Times, walked: Walked | None
) -> list[tuple[Place, Place]]:
    """From where to where there can be messages of these times between two places; adjoining ranges are one."""
    stretches = _stretches(index.entries if index is not None else [], place, last, times, walked)
    if not _are_confirmed(file, stretches):
        return [(place, last)]
    found: list[tuple[Place, Place]] = []
    for stretch in stretches:
        if stretch.is_wanted and found and found[-1][1] == stretch.begin:
            found[-1] = found[-1][0], stretch.end
        elif stretch.is_wanted:
            found.append((stretch.begin, stretch.end))
    return found


def _stretches(entries: list[Entry], place: Place, last: Place, times: Times, walked: Walked | None) -> list[_Stretch]:
    """The stretches of an index between two places, and the rest after them."""
    found: list[_Stretch] = []
    begin = place
    for entry in entries:
        if entry.offset <= place[1] or entry.position <= place[0]:
            continue
        if entry.offset > last[1] or (entry.is_end and entry.position != last[0]):
            break  # written since, or no longer the end
        end = last if entry.is_end else (entry.position, entry.offset)
        found.append(_Stretch(begin, end, _can_hold(times, entry.smallest, entry.largest), entry))
        begin = end
    if begin[0] < last[0] or not found:
        is_known = walked is not None and walked.position <= begin[0]
        is_wanted = walked is None or not is_known or _can_hold(times, walked.smallest, walked.largest)
        found.append(_Stretch(begin, last, is_wanted, None))
    return found


def _can_hold(times: Times, smallest: int, largest: int) -> bool:
    """Whether one of messages between two times, which some may not have, can be meant."""
    return largest != NO_TIMESTAMP and times.reach(smallest, largest)


def _are_confirmed(file: File, stretches: list[_Stretch]) -> bool:
    """Whether the file confirms the entries that matter."""
    for number, stretch in enumerate(stretches):
        following = stretches[number + 1] if number + 1 < len(stretches) else None
        matters = following is None or following.entry is None or following.is_wanted != stretch.is_wanted
        if matters and stretch.entry is not None and not confirms(file, stretch.entry):
            return False
    return True
