"""What is wrong where a cursor stopped, and where reading continues.

After damage reading continues with the first of these that exists: the transaction that follows directly and names the
last one as its `previous`; the one that `next` of the damaged one leads to, if that names it; the earliest one that can
be reached backwards from the last transaction.

The end of a journal is the transaction that the header names as the last, or a sealed one after it (see `seal.py`) that
the header does not name yet. Anything else after it was not finished by a writer. Neither was a last transaction that
has no end, or does not match its seal, and is not in the storage. Both are a torn tail. It is damage, not a torn tail,
if whole transactions follow that a crash cannot have left there (see `salvage.py`).
"""

from __future__ import annotations

from typing import Final

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import File
from ..bytes import codec
from ..bytes.layout import HEADER_BYTES, LAST_AT, LINK, TRANSACTION_HEAD_BYTES
from .cursor import DONE, LINK_BROKEN, NOWHERE, Cursor
from .files import is_whole, link_place, measure, read_head
from .operations import find_end, has_end, is_room
from .salvage import whole_transactions_follow

UNLINKED: Final = "whole transactions follow the last one, and no link leads to them"


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """The damage where a cursor stopped, None if there is none, and whether reading can continue after it.

    The cursor is moved to where it continues, or to the end.
    """
    if cursor.ending == DONE:
        return _judge_end(cursor)
    if _is_torn(cursor):
        return _rest(cursor, "torn_tail"), False
    if cursor.ending == LINK_BROKEN:
        return _judge_link(cursor)
    if cursor.ending == codec.ASTRAY and is_whole(cursor.file, cursor.position, cursor.size):
        head = read_head(cursor.file, cursor.position)
        assert head is not None
        damage = Damage(cursor.source.name, cursor.position, cursor.position + 8, cursor.reason, "link")
        cursor.continue_at(cursor.position, head.previous)
        return damage, True
    return _judge_transaction(cursor)


def _is_torn(cursor: Cursor) -> bool:
    """Whether a cursor is at the last transaction, and that has no end and never reached the storage."""
    if cursor.position != cursor.header.last:
        return False
    head = read_head(cursor.file, cursor.position)
    if head is None:
        return True
    if head.complete or has_end(cursor.file, cursor.position, cursor.size):
        return False
    return not whole_transactions_follow(cursor.file, cursor.source, cursor.position + 1, is_named=True)


def _rest(cursor: Cursor, kind: str) -> Damage:
    start, cursor.position = cursor.position, cursor.size
    return Damage(cursor.source.name, start, max(start, cursor.size), cursor.reason, kind)


def _judge_end(cursor: Cursor) -> tuple[Damage | None, bool]:
    """What is wrong after the last transaction."""
    end, size = cursor.position, cursor.size
    if cursor.is_half_named:
        cursor.is_half_named = False
        cursor.look_again()
        reason = f"the header was only half written: it should name {cursor.last} as the last transaction"
        return Damage(cursor.source.name, LAST_AT, HEADER_BYTES, reason, "torn_tail"), True
    if size <= end:
        following = cursor.link()
        cursor.reason = f"the last transaction names {following} as the next, and nothing is there"
        return (_rest(cursor, "torn_tail") if following and cursor.previous else None), False
    head = read_head(cursor.file, end)
    if head is not None and head.previous == cursor.previous and _is_sealed(cursor.file, end, size):
        cursor.continue_at(end, cursor.previous)
        cursor.last = end
        return None, True
    follows = head is not None and head.previous == cursor.previous and head.complete
    if follows and cursor.knows_last and is_whole(cursor.file, end, size):
        last = cursor.last
        cursor.continue_at(end, cursor.previous)
        cursor.last, cursor.knows_last = NOWHERE, False
        reason = f"the header names {last} as the last transaction, and one that is in the storage follows it"
        return Damage(cursor.source.name, LAST_AT, HEADER_BYTES, reason, "link"), True
    if is_room(cursor.file, cursor.previous, end, size):
        return None, False
    if whole_transactions_follow(cursor.file, cursor.source, end):
        cursor.reason = UNLINKED
        return _rest(cursor, "malformed"), False
    cursor.reason = "the bytes after the last transaction are of one that was never finished"
    return _rest(cursor, "torn_tail"), False


def _is_sealed(file: File, position: int, size: int) -> bool:
    """Whether the transaction at a position is whole and matches its seal."""
    found = find_end(file, position, size)
    return found is not None and bool(found.seal)


def _judge_link(cursor: Cursor) -> tuple[Damage, bool]:
    place = link_place(cursor.previous)
    damage = Damage(cursor.source.name, place, place + LINK.size, cursor.reason, "link")
    position = cursor.position
    head = read_head(cursor.file, position)
    if head is not None and head.previous == cursor.previous and is_whole(cursor.file, position, cursor.size):
        cursor.continue_at(position, cursor.previous)
        return damage, True
    if cursor.link() == 0 and not _continues_after(cursor, position - 1):
        cursor.position = cursor.size  # the chain ends here, whatever the header says
        reason = f"the header names {cursor.header.last} as the last transaction, and the chain ends before that"
        return Damage(cursor.source.name, LAST_AT, HEADER_BYTES, reason, "link"), False
    return _skip(cursor, position - 1, damage)


def _judge_transaction(cursor: Cursor) -> tuple[Damage, bool]:
    """The damage where no transaction can be read at the cursor."""
    position = cursor.position
    head = read_head(cursor.file, position)
    if head is not None and head.previous == cursor.previous:
        following = _named_by_both(cursor, position, head.next)
        if following is not None:
            damage = Damage(cursor.source.name, position, following, cursor.reason)
            cursor.continue_at(following, position)
            cursor.index += 1  # it is a transaction that cannot be read
            return damage, True
    return _skip(cursor, position, None)


def _named_by_both(cursor: Cursor, position: int, following: int) -> int | None:
    """The transaction after a bad one that names it as `previous`: at its `next`, or right after its operations."""
    candidates = [following]
    try:
        end = measure(cursor.file, position, cursor.size, follow_next=False)
    except Malformed:
        end = None
    if end is not None:
        candidates.append(end)
    for candidate in candidates:
        head = read_head(cursor.file, candidate) if candidate >= position + TRANSACTION_HEAD_BYTES else None
        if head is not None and head.previous == position:
            return candidate
    return None


def _continues_after(cursor: Cursor, position: int) -> bool:
    return cursor.reachable_after(position) is not None


def _skip(cursor: Cursor, position: int, link: Damage | None) -> tuple[Damage, bool]:
    """Continue with a transaction that can be reached backwards, if there is one after a position."""
    start = cursor.position
    found = cursor.reachable_after(position)
    if found is not None:
        head = read_head(cursor.file, found)
        assert head is not None
        cursor.continue_at(found, head.previous)
        if link is not None and found <= start:
            return link, True
        return Damage(cursor.source.name, start, found, cursor.reason, "malformed" if link is None else "link"), True
    if link is not None and start >= cursor.size:
        return link, False
    return _rest(cursor, "malformed"), False
