"""The losses of a sej journal in offsets: the entries of its account, and the gaps that they explain.

The `fields` of an entry, for programs:

    lost        first, next     the offsets that are lost: first <= offset < next; next is None at the end of the
                                journal, where the offsets are reused
                after, before   the timestamps (ns) of the whole messages on both sides, None if there is none
                suspect         the offset of the message before them, if it may have been changed: see below
    restored    offset, field   a field of one message, inferred from the bytes around it
                first, next     messages that are kept without proof that they are what was written;
                                proven is False

The number of lost messages is exact, except at the end of the journal, where it is only if an index or a missing
segment shows it: each offset is one message. A message is suspect
if messages are missing after it and no byte is bad: the missing bytes may begin in one message and end in another of
the same size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...core.repair.losses import Loss
from ...core.times import format_time


def messages_between(first: int, after: int) -> str:
    """The messages with `first` <= offset < `after`, in words."""
    return f"message {first}" if after == first + 1 else f"messages {first} to {after - 1}"


def may_have_changed(suspect: int) -> str:
    """That the message before a loss is suspect, in words."""
    return f"; the message before, {suspect}, may have been changed"


def lost_messages(
    file: str,
    start: int,
    end: int,
    reason: str,
    *,
    first: int,
    after: int,
    earlier: int | None = None,
    later: int | None = None,
    suspect: int | None = None,
) -> Loss:
    """The messages with `first` <= offset < `after` are lost; `earlier` and `later` are the times on both sides."""
    what = messages_between(first, after)
    if earlier is not None and later is not None:
        what += f", written between {format_time(earlier)} and {format_time(later)}"
    elif earlier is not None:
        what += f", written after {format_time(earlier)}"
    elif later is not None:
        what += f", written before {format_time(later)}"
    fields: dict[str, Any] = {"first": first, "next": after, "after": earlier, "before": later}
    if suspect is not None:
        what += may_have_changed(suspect)
        fields["suspect"] = suspect
    return Loss(file, start, end - start, after - first, after - first, what, reason, fields=fields)


def open_ended(losses: list[Loss]) -> list[Loss]:
    """The losses with no bound for the last one at the end of the journal.

    A segment is finished when the next one begins: nothing shows how far the journal went after the last that is known.
    """
    at_end = [number for number, loss in enumerate(losses) if loss.kind == "lost" and loss.fields["next"] is None]
    last = max(at_end, key=lambda number: losses[number].fields["first"], default=None)
    if last is None or losses[last].at_most is None:
        return losses
    loss = losses[last]
    changed = replace(loss, at_most=None, what=f"{loss.what}, and whatever came after it")
    return [*losses[:last], changed, *losses[last + 1 :]]


def restored(file: str, position: int, size: int, what: str, reason: str, **fields: Any) -> Loss:
    """Something was inferred, or kept without proof."""
    return Loss(file, position, size, 0, 0, what, reason, kind="restored", fields=fields)


def are_known(losses: Iterable[Loss], first: int, after: int) -> bool:
    """Whether an account names all messages with `first` <= offset < `after`."""
    return count_known(losses, first, after) >= after - first


def count_known(losses: Iterable[Loss], first: int, after: int) -> int:
    """How many of the messages with `first` <= offset < `after` an account names."""
    ranges = sorted(
        (loss.fields["first"], loss.fields["next"])
        for loss in losses
        if loss.kind == "lost" and all(isinstance(loss.fields.get(name), int) for name in ("first", "next"))
    )
    count = 0
    for start, stop in ranges:
        start, stop = max(start, first), min(stop, after)
        count += max(0, stop - start)
        first = max(first, stop)
    return count
