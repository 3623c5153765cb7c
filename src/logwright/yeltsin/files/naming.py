"""The last transaction by its name in the header, where whoever wrote that name died over it.

A header is written after everything that it names. A process that is killed within that write leaves the first bytes
of the new name over the old one, or over nothing: then the header names no transaction at all, and the links from the
first one on lead to the one that it was going to name.
"""

from __future__ import annotations

from ...core.io.disk import File
from ..bytes import codec
from .files import Header, hop, is_whole, read_head
from .stretch import find_end, is_begun_link


def believed(file: File, header: Header, size: int) -> Header:
    """The header of a file of so many bytes, with the name that it was going to have if only that is half there."""
    if header.first == 0 or _is_named(file, header) or is_whole(file, header.last, size, follow_next=False):
        return header
    hopped = hop(file, Header(header.first, size))
    last = read_head(file, hopped.last)
    is_end = hopped.ending == codec.JUMP and hopped.following == 0
    if not is_end or last is None or not is_begun_link(header.last, hopped.last):
        return header
    end = find_end(file, hopped.last, size)
    if end is None or (last.complete and not end.seal):
        return header  # only who seals flags a transaction before the header names it
    return Header(header.first, hopped.last)


def _is_named(file: File, header: Header) -> bool:
    """Whether the one before the last transaction, or the header, names it as well."""
    head = read_head(file, header.last)
    if head is None:
        return False
    before = read_head(file, head.previous) if head.previous else None
    return header.last == (header.first if before is None else before.next)
