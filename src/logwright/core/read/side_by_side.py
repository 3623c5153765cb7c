"""SideBySideReader: all journals of a directory whose files lie side by side in it, read as one.

Queues and stores have no directories of their own: the name of a file says which one it belongs to. A format's subclass
names them (`names`), opens one (`open`), and tells whose a file is (`part_of`).
"""

from __future__ import annotations

from typing import Any

from ...errors import WrongUse
from ..format import Located
from .parts import PartsReader
from .reading import FilesReader


class SideBySideReader(PartsReader):
    """The verbs are those of the readers of its parts; parts come by name.

    `start` and `stop` are numbers within each part. Parts that appear later are found by the next call.
    """

    def names(self) -> list[str]:
        """The names of the parts there are now."""
        raise NotImplementedError

    def open(self, part: str) -> FilesReader[Any, Any, Any]:
        """The reader of one part."""
        raise NotImplementedError

    def part_of(self, file: str) -> str | None:
        """The part that a file belongs to by its name."""
        raise NotImplementedError

    def parts(self) -> list[tuple[str, Any]]:
        """The parts that there are now, each with its reader."""
        return [(name, self.open(name)) for name in self.names()]

    def within(self, part: str, file: str) -> str:
        """Files of all parts are in the same directory."""
        return file

    def last(self, count: int) -> list[Located]:
        """The last records of each part: there is no order between parts. At most `count` of them in all."""
        ends = [reader.last(count) for _, reader in self._each()]
        share = [len(end) for end in ends]
        while sum(share) > count:
            share[share.index(max(share))] -= 1
        return [item for end, kept in zip(ends, share, strict=True) for item in end[len(end) - kept :]]

    def find_place(self, text: str) -> dict[str, int]:
        """The number that `FILE@POSITION` stands for, in the part of that file only."""
        part = self.part_of(text.rpartition("@")[0].strip())
        if part is None or part not in self.names():
            raise WrongUse(f"{text!r} is no place in these {self.part_name}s: write FILE@POSITION")
        return {part: self.open(part).find_place(text)}

    def number_of(self, located: Located) -> tuple[str, int]:
        """The part that a record belongs to, and its number there."""
        return self.open(self.part_of(located.file) or located.file).number_of(located)


def one_or_all(several: SideBySideReader) -> Any:
    """The readers of all journals of a directory as one; where there is only one, its reader."""
    names = several.names()
    return several.open(names[0]) if len(names) == 1 else several
