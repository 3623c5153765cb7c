"""OpenIds: which transaction ids are taken, so that the next free one is found in a few steps, whatever a journal says.

The next id is the last used one plus one, and those that are open are passed over. In a journal that a queue has
written that is a step or two. But a SAVE_XID may set the last used id back again and again, to before as many open ids
as the journal has room for, and then every reservation would go past all of them. So a search for an id goes
`MOST_STEPS` on foot, and after that has an `OpenIds` for good.

Words of 64 bits say which of 64 neighbouring ids are taken; further words which of 64 neighbouring words are full; and
so on, six times over. Going up where a word is full, and down where the next one is not, is at most eleven steps.

This is the reference; `_ids.pxd` has a twin for the compiled loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_STEPS: Final = 64
"""How far one goes from id to id."""

_LEVELS: Final = 6
_FULL: Final = 2**64 - 1
_IDS: Final = 2**32


class OpenIds:
    """The ids that are taken. 0 always is: it means none."""

    def __init__(self, xids: Iterable[int] = ()) -> None:
        self._levels: list[dict[int, int]] = [{} for _ in range(_LEVELS)]
        self._levels[0][0] = 1
        for xid in xids:
            self.add(xid)

    def add(self, xid: int) -> None:
        """Take an id that is free."""
        place = xid % _IDS
        for words in self._levels:
            place, bit = divmod(place, 64)
            words[place] = words.get(place, 0) | 1 << bit
            if words[place] != _FULL:
                return

    def remove(self, xid: int) -> None:
        """Let go of an id that is taken."""
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
    """The last used id that makes this one the next, if it is not open."""
    return 2**31 - 1 if xid == -(2**31) else xid - 1
