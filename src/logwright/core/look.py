"""Look: what a summary can say of a journal's health without reading all of it, the same for every format.

A format's own look adds what it counts on the way. The first damage is the one that is told; a torn tail is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .errors import LogwrightError, is_refusal
from .outcome import Damage

MOST_SHOWN_BYTES: Final = 64 << 10
"""The largest record that a summary shows with all of its bytes."""
MOST_LOOKED_AT_BYTES: Final = 256 << 20
"""How much of a journal a summary reads where it can only be read from its beginning on."""
SOUND_SO_FAR: Final = "sound so far"


@dataclass(slots=True)
class Look:
    """What a look at the files has found to be wrong."""

    damage: Damage | None = None
    torn: Damage | None = None

    @property
    def health(self) -> str:
        """One line for people; it has the word `damaged` in it where something is."""
        if self.damage is not None:
            return f"damaged at {self.damage.file} @ {self.damage.start}: {self.damage.reason}"
        if self.torn is not None:
            return f"torn tail at {self.torn.file} @ {self.torn.start} ({self.torn.size} bytes)"
        return SOUND_SO_FAR

    def note_damage(self, damage: Damage) -> None:
        """Note what was met."""
        if damage.kind == "torn_tail":
            self.torn = damage
        else:
            self.damage = self.damage or damage

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[None]:
        """Note that a file cannot be read. Where we may not look there is no answer, and the error goes through."""
        try:
            yield
        except LogwrightError as error:
            if is_refusal(error):
                raise
            self.note_damage(Damage(file, 0, 0, str(error), "unreadable"))
