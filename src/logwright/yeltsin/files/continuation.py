"""What is wrong where a cursor has stopped, and where reading continues after it.

After a broken place reading continues, in this order: with the transaction that follows directly and names the last
one; where its own `next` leads, if that transaction names it; or with the earliest one that the links backwards from
the last transaction lead to.

The end of a journal is the transaction that the header calls the last, or one after it that is sealed (see `seal.py`):
then only its name was not written yet. What else follows was not finished by a writer. Nor was a last transaction
that has no end, or is not what was sealed, and is not in the storage. Both are a torn tail. It is no torn tail if whole
transactions follow that a crash cannot have left there (see `salvage.py`).
"""

from __future__ import annotations

from typing import Final

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import File
from ..bytes import codec
from ..bytes.layout import HEADER_BYTES, LAST_AT, LINK, TRANSACTION_HEAD_BYTES
from .cursor import DONE, LINK_BROKEN, NOWHERE, Cursor
from .files import is_whole, link_place, measure, read_head
from .salvage import whole_transactions_follow
from .stretch import find_end, has_end, is_room

UNLINKED: Final = "whole transactions follow the last one, and no link leads to them"


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """What is wrong where a cursor has stopped, None for nothing, and whether reading can continue after it.

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
        cursor.go_on(cursor.position, head.previous)
        return damage, True
    return _judge_transaction(cursor)


def _is_torn(cursor: Cursor) -> bool:
    """Whether a cursor stands before the last transaction, and that never reached the storage: it has no end."""
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
        cursor.go_on(end, cursor.previous)
        cursor.last = end
        return None, True
    follows = head is not None and head.previous == cursor.previous and head.complete
    if follows and cursor.knows_last and is_whole(cursor.file, end, size):
        last = cursor.last
        cursor.go_on(end, cursor.previous)
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
    """Whether a transaction at a position is whole, and what was sealed."""
    found = find_end(file, position, size)
    return found is not None and bool(found.seal)


def _judge_link(cursor: Cursor) -> tuple[Damage, bool]:
    place = link_place(cursor.previous)
    damage = Damage(cursor.source.name, place, place + LINK.size, cursor.reason, "link")
    position = cursor.position
    head = read_head(cursor.file, position)
    if head is not None and head.previous == cursor.previous and is_whole(cursor.file, position, cursor.size):
        cursor.go_on(position, cursor.previous)
        return damage, True
    if cursor.link() == 0 and not _goes_on_behind(cursor, position - 1):
        cursor.position = cursor.size  # the chain ends here, whatever the header says
        reason = f"the header names {cursor.header.last} as the last transaction, and the chain ends before that"
        return Damage(cursor.source.name, LAST_AT, HEADER_BYTES, reason, "link"), False
    return _skip(cursor, position - 1, damage)


def _judge_transaction(cursor: Cursor) -> tuple[Damage, bool]:
    """What begins at the cursor is no transaction that can be read."""
    position = cursor.position
    head = read_head(cursor.file, position)
    if head is not None and head.previous == cursor.previous:
        following = _named_by_both(cursor, position, head.next)
        if following is not None:
            damage = Damage(cursor.source.name, position, following, cursor.reason)
            cursor.go_on(following, position)
            cursor.index += 1  # it cannot be read, but it is one
            return damage, True
    return _skip(cursor, position, None)


def _named_by_both(cursor: Cursor, position: int, following: int) -> int | None:
    """The transaction after a bad one that names it: where its `next` leads, or right after its operations."""
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


def _goes_on_behind(cursor: Cursor, position: int) -> bool:
    return cursor.behind(position) is not None


def _skip(cursor: Cursor, position: int, link: Damage | None) -> tuple[Damage, bool]:
    """Continue where the links backwards lead, if that is after a position."""
    start = cursor.position
    found = cursor.behind(position)
    if found is not None:
        head = read_head(cursor.file, found)
        assert head is not None
        cursor.go_on(found, head.previous)
        if link is not None and found <= start:
            return link, True
        return Damage(cursor.source.name, start, found, cursor.reason, "malformed" if link is None else "link"), True
    if link is not None and start >= cursor.size:
        return link, False
    return _rest(cursor, "malformed"), False
