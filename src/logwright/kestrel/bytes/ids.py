"""OpenIds: the transaction ids in use. It finds the next free id in a few steps, whatever the journal contains.

The next id is the last used one plus one; ids in use are skipped. In a journal that a queue has written, this takes a
step or two. But a SAVE_XID may set the last used id back repeatedly, to just before a long run of ids in use; each
reservation would then step over all of them. So a search that takes `MOST_STEPS` steps builds an `OpenIds`, which all
later searches use.

A word of 64 bits records which of 64 consecutive ids are in use. A word of the next level records which of 64
consecutive words are full, and so on, in six levels. A search goes up while a word is full, and down to the first gap:
at most eleven steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_STEPS: Final = 64
"""The most steps from id to id."""

_LEVELS: Final = 6
_FULL: Final = 2**64 - 1
_IDS: Final = 2**32


class OpenIds:
    """The ids in use. 0 always is: it means none."""

    def __init__(self, xids: Iterable[int] = ()) -> None:
        self._levels: list[dict[int, int]] = [{} for _ in range(_LEVELS)]
        self._levels[0][0] = 1
        for xid in xids:
            self.add(xid)

    def add(self, xid: int) -> None:
        """Mark a free id as used."""
        place = xid % _IDS
        for words in self._levels:
            place, bit = divmod(place, 64)
            words[place] = words.get(place, 0) | 1 << bit
            if words[place] != _FULL:
                return

    def remove(self, xid: int) -> None:
        """Mark a used id as free."""
        if xid == 0:
            return
        place = xid % _IDS
        for words in self._levels:
            place, bit = divmod(place, 64)
            before = words.pop(place)
            after = before & ~(1 << bit)
            if after:
                words[place] = after
            if before != _FULL:
                return

    def following(self, xid: int) -> int:
        """The first free id after one, wrapping as an i32."""
        found = self._free_from((xid + 1) % _IDS)
        if found >= _IDS:
            found = self._free_from(0)
        return found if found < _IDS // 2 else found - _IDS

    def _free_from(self, place: int) -> int:
        level = 0
        while True:
            word, bit = divmod(place, 64)
            free = ~self._levels[level].get(word, 0) & _FULL & _FULL << bit
            if free:
                break
            place = word + 1
            level += 1
        place = 64 * word + _lowest(free)
        while level:
            level -= 1
            place = 64 * place + _lowest(~self._levels[level].get(place, 0) & _FULL)
        return place


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def following(xid: int) -> int:
    """The id after one, which is never 0."""
    return 1 if xid == -1 else -(2**31) if xid == 2**31 - 1 else xid + 1


def preceding(xid: int) -> int:
    """The id before one: if it is the last used id, the next one is this, unless it is open."""
    return 2**31 - 1 if xid == -(2**31) else xid - 1
