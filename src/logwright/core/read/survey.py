"""Survey: the health of a journal for its summary, without reading all of it. The same for every format.

A format may add counts of its own. The first damage is reported; a torn tail is not damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...errors import LogwrightError, is_refusal
from ..bytes.outcome import Damage
from ..io.disk import File
from .report import SOUND_SO_FAR, Summary
from .snapshot import Snapshot

MOST_SHOWN_BYTES: Final = 64 << 10
"""The largest record that a summary shows in full."""
MOST_READ_BYTES: Final = 256 << 20
"""The most bytes that a summary reads of a journal that can only be read from its beginning."""


@dataclass(slots=True)
class Survey:
    """The damage found in the files, the number of records read, and whether all files were read completely."""

    damage: Damage | None = None
    torn: Damage | None = None
    records: int = 0
    complete: bool = True

    @property
    def health(self) -> str:
        """One line for people."""
        if self.damage is not None:
            return f"damaged at {self.damage.file} @ {self.damage.start}: {self.damage.reason}"
        if self.torn is not None:
            return f"torn tail at {self.torn.file} @ {self.torn.start} ({self.torn.size} bytes)"
        return SOUND_SO_FAR

    def note_damage(self, damage: Damage) -> None:
        """Record damage or a torn tail."""
        if damage.kind == "torn_tail":
            self.torn = damage
        else:
            self.damage = self.damage or damage

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[None]:
        """Record that a file cannot be read."""
        try:
            yield
        except LogwrightError as error:
            if is_refusal(error):
                raise
            self.note_damage(Damage(file, 0, 0, str(error), "unreadable"))

    def go_through(
        self, files: Snapshot[Any], items: Callable[[Any, File], Iterator[Any]], note: Callable[[Any], None]
    ) -> None:
        """Record the damage and the chunks that `items` returns for each file, up to `MOST_READ_BYTES`."""
        done = 0
        for source in files.files:
            if done >= MOST_READ_BYTES:
                self.complete = False
                return
            with self.reading(source.name):
                file = files.file(source)
                size = file.size()
                for item in items(source, file):
                    if isinstance(item, Damage):
                        self.note_damage(item)
                        continue
                    note(item)
                    if done + item.end >= MOST_READ_BYTES and item.end < size:
                        self.complete = False
                        break
                done += size

    def summary(self, format: str, reader: Any, files: Snapshot[Any], **found: Any) -> Summary:
        """The summary. The last record and the number of records are known only if everything was read."""
        reader.torn_tail = self.torn
        if not self.complete:
            found["last"] = None
        return Summary(
            format=format,
            path=str(reader.path),
            files=len(files.files),
            bytes=sum(files.size(source) for source in files.files),
            records=self.records if self.complete and self.damage is None else None,
            health=self.health,
            damaged=self.damage is not None,
            **found,
        )
