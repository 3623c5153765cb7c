"""Entries that their times disprove: copies of other entries, and entries that are not where they were written.

Times never decrease in a journal, from the first entry on that is later than the journal (`cursor.py`). Where they do,
the most entries that can be kept are a longest sequence in which they do not. If several sequences are as long, nothing
shows which one is right: an entry is kept only if all of them have it. If two neighbours were swapped, neither is kept.
If one entry has a time that is too late, only that entry is removed.

An entry that is there twice, with another time between the two, was written once. One of the two is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby


def find_disproved(
    times: Sequence[int], begun: int, bytes_of: Callable[[int], bytes]
) -> tuple[dict[int, int], set[int]]:
    """The rows that are copies of other rows, each with that one, and the rows whose place cannot be proven.

    `times` has the times of all entries, and `bytes_of` returns the bytes of one of them.
    """
    first = next((row for row, time in enumerate(times) if time > begun), len(times))
    rows = range(first, len(times))
    is_longest, _ = _on_longest(times[first:])
    copies: dict[int, int] = {}
    for alike in _alike(times, bytes_of):
        kept = next((row for row, _ in alike if row < first or is_longest[row - first]), alike[0][0])
        kept_group = next(group for row, group in alike if row == kept)
        copies |= {row: kept for row, group in alike if row >= first and group != kept_group}
    rest = [row for row in rows if row not in copies]
    _, is_proven = _on_longest([times[row] for row in rest])
    unproven = {row for row, proven in zip(rest, is_proven, strict=True) if not proven}
    unproven |= {row for row, kept in copies.items() if kept in unproven}
    return {row: kept for row, kept in copies.items() if row not in unproven}, unproven


def _alike(times: Sequence[int], bytes_of: Callable[[int], bytes]) -> Iterator[list[tuple[int, int]]]:
    """The rows that have the same bytes, each with the number of its group: neighbours of one time are a group.

    Rows of the same bytes have the same time, so only where a time has two groups can one be a copy of another.
    """
    by_time: dict[int, list[tuple[int, int]]] = {}
    for number, (time, group) in enumerate(groupby(range(len(times)), times.__getitem__)):
        by_time.setdefault(time, []).extend((row, number) for row in group)
    for same_time in by_time.values():
        if same_time[0][1] == same_time[-1][1]:
            continue
        by_bytes: dict[bytes, list[tuple[int, int]]] = {}
        for row, number in same_time:
            by_bytes.setdefault(bytes_of(row), []).append((row, number))
        yield from by_bytes.values()


def find_repeated(entries: Iterable[tuple[int, bytes]], begun: int, size: int) -> set[int]:
    """The rows that were inserted, if that are bytes of this size, and times do not show it; none if that is not clear.

    These are entries of the state that the journal begins with, which has each once; or an entry that is there twice in
    a row. `entries` are the times and the bytes of all entries.
    """
    state: set[bytes] = set()
    repeated: set[int] = set()
    repeated_bytes = 0
    twins: set[int] = set()
    is_state, before = True, b""
    for row, (time, data) in enumerate(entries):
        is_state &= time <= begun
        if is_state and data in state:
            repeated.add(row)
            repeated_bytes += len(data)
        elif is_state:
            state.add(data)
        if data == before and len(data) == size:
            twins.add(row)
        before = data
    if repeated and repeated_bytes == size:
        return repeated
    return twins if len(twins) == 1 else set()


def _on_longest(times: Sequence[int]) -> tuple[list[bool], list[bool]]:
    """Which of these times are in a longest sequence that does not decrease, and which are in all of these."""
    before = _longest_up_to(times)
    after = _longest_up_to([-time for time in reversed(times)])[::-1]
    longest = max(before, default=0)
    is_in_one = [one + other - 1 == longest for one, other in zip(before, after, strict=True)]
    ranks = Counter(rank for rank, is_in in zip(before, is_in_one, strict=True) if is_in)
    return is_in_one, [is_in and ranks[rank] == 1 for rank, is_in in zip(before, is_in_one, strict=True)]


def _longest_up_to(times: Sequence[int]) -> list[int]:
    """How many times the longest sequence has that does not decrease and ends with each of these."""
    lowest: list[int] = []  # by how many there are: the lowest time that such a sequence ends with
    found = []
    for time in times:
        at = bisect_right(lowest, time)
        lowest[at : at + 1] = [time]
        found.append(at + 1)
    return found
