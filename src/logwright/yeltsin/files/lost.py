"""What is lost between whole transactions, or after the last one: the number of transactions, their times and pages.

Damaged bytes may still contain the heads of transactions. The head of a lost transaction is accepted only if a link
leads to it and it links back. If such links span the whole range, or if those from both sides leave out only one
transaction, the number is exact; otherwise the size of the range limits it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from ...core.bytes.outcome import Malformed
from ...core.io.disk import File
from ...core.repair.losses import MOST_LISTED, Loss, listed
from ...core.times import NANOSECONDS, shown_time
from ..bytes.layout import HEADER_BYTES, LEAST_TRANSACTION_BYTES
from .files import Head, Header, read_head
from .operations import read_operations
from .salvage import Run, Search


@dataclass(slots=True)
class _Chain:
    """Lost transactions along links from one side: the offset of each, and the offset that the last link names."""

    named: int
    found: list[int] = field(default_factory=list)


def lost_with_header(name: str, size: int) -> Loss:
    """What is lost of a file that has only `size` bytes of its header."""
    reason = f"only {size} of the {HEADER_BYTES} bytes of the header are there"
    return Loss(name, 0, size, 0, None, "all that the journal held, if anything", reason, part=name)


def lost_between(search: Search, before: Run, run: Run, count: int, reason: str, others: list[Run]) -> Loss | None:
    """The transactions that are lost between two runs, after `count` transactions; None if none are."""
    is_next = run.previous == before.last
    if run.first - before.end < LEAST_TRANSACTION_BYTES or (is_next and before.next == run.first):
        return None
    file = search.moved(before.shift)
    forwards, backwards = _forwards(file, before, run.first), _backwards(search.moved(run.shift), before, run)
    known = sorted({*forwards.found, *backwards.found})
    is_one_between = before.end <= backwards.named < run.first and backwards.named in (before.end, forwards.named)
    if is_one_between:
        known = sorted({*known, backwards.named})
    is_all = forwards.named == run.first and forwards.found[-1:] == [run.previous]
    if is_one_between or is_all or _leads_back(backwards, before):
        at_least = at_most = len(known)
    else:
        is_named = not is_next and (before.next == before.end or before.end <= run.previous < run.first)
        at_most = max(len(known), (run.first - before.end) // LEAST_TRANSACTION_BYTES)
        at_least = max(len(known), int(is_named))
    pages = _pages(file, forwards.found, run.first) | _pages(search.moved(run.shift), backwards.found, run.first)
    return _loss(search, before, run, (at_least, at_most), pages, count, reason, others)


def lost_after(search: Search, before: Run, header: Header, count: int, reason: str, others: list[Run]) -> Loss | None:
    """The transactions that are lost after the last run; None if none are."""
    file = search.moved(before.shift)
    forwards = _forwards(file, before, search.end - before.shift)
    pages = _pages(file, forwards.found, search.end - before.shift)
    bounds: tuple[int, int | None]
    if before.last == 0:
        bounds = int(header.first == HEADER_BYTES <= header.last), None
    elif header.last == before.last or before.next == 0:
        bounds = 0, 0
    else:
        is_named = header.last >= before.end
        at_most = (header.last - before.end) // LEAST_TRANSACTION_BYTES + 1 if is_named else None
        bounds = max(len(forwards.found), int(is_named or before.next == before.end)), at_most
    is_other = any(other.place.start >= before.place.end for other in others)
    is_nothing = bounds == (0, 0) or (
        before.last == 0 and header.first == header.last == 0 and search.end == HEADER_BYTES
    )
    if is_nothing and not is_other:
        return None
    return _loss(search, before, None, bounds, pages, count, reason, others)


def _forwards(file: File, before: Run, end: int) -> _Chain:
    chain = _Chain(before.next)
    last = before.last
    while before.end <= chain.named < end and (head := read_head(file, chain.named)) is not None:
        if head.previous != last or head.next <= chain.named:
            break
        last = chain.named
        chain.found.append(last)
        chain.named = head.next
    return chain


def _backwards(file: File, before: Run, run: Run) -> _Chain:
    chain = _Chain(run.previous)
    following = run.first
    while before.end <= chain.named < following and (head := read_head(file, chain.named)) is not None:
        if head.next != following or head.previous >= chain.named:
            break
        following = chain.named
        chain.found.append(following)
        chain.named = head.previous
    return chain


def _leads_back(backwards: _Chain, before: Run) -> bool:
    """Whether links lead backwards to the preceding run. Zeros read as a link to the header, so that needs its
    confirmation.
    """
    if not backwards.found or backwards.named != before.last:
        return False
    return before.last != 0 or backwards.found[-1] in (before.end, before.next)


def _pages(file: File, offsets: list[int], end: int) -> set[int]:
    """The pages of the operations that can be read at these offsets."""
    pages: set[int] = set()
    for offset in offsets[:MOST_LISTED]:
        try:
            for part in read_operations(file, offset, end):
                if len(part.data) >= 8:
                    pages.add(int.from_bytes(part.data[:8], "little"))
        except Malformed:
            continue
    return pages


def _loss(
    search: Search,
    before: Run,
    run: Run | None,
    bounds: tuple[int, int | None],
    pages: set[int],
    count: int,
    reason: str,
    others: list[Run],
) -> Loss:
    start, end = before.place.end, search.end if run is None else run.place.start
    earlier = read_head(search.moved(before.shift), before.last) if before.last else None
    later = None if run is None else read_head(search.moved(run.shift), run.first)
    low, high = (bisect_left(others, place, key=lambda other: other.place.start) for place in (start, end))
    whole = sum(len(other.starts) for other in others[low:high])
    what = _place(count, run is not None) + _times(earlier, later)
    if pages:
        what += f"; page{'s' if len(pages) > 1 else ''} {listed(map(str, sorted(pages)), len(pages))} among others"
    if whole:
        what += f"; {whole} whole transactions in there are not linked to this journal"
    fields = {
        "start": before.end,
        "end": None if run is None else run.first,
        "after": count,
        "from": None if earlier is None else earlier.timestamp,
        "to": None if later is None else later.timestamp,
        "pages": sorted(pages),
    }
    return Loss(search.file_name, start, end - start, *bounds, what, reason, fields=fields)


def _place(count: int, goes_on: bool) -> str:
    if count == 0:
        return "transactions before the first one that is left" if goes_on else "all transactions"
    if goes_on:
        return f"transactions between number {count - 1} and number {count} of those that are left"
    return f"transactions after number {count - 1}, the last one that is left"


def _times(earlier: Head | None, later: Head | None) -> str:
    found = ""
    if earlier is not None:
        found += f", created after {shown_time(earlier.timestamp * NANOSECONDS)}"
    if later is not None:
        found += f"{' and' if found else ', created'} before {shown_time(later.timestamp * NANOSECONDS)}"
    return found
