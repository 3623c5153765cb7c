"""Split: a part of a journal that one task reads, and how a journal is cut into them.

A split begins and ends at record boundaries that were found in the file, never guessed. It is small, immutable and can
be pickled: it names files and numbers, and whoever gets it opens the journal again. A journal that has grown since
then gives the same records; one that has lost the file says so.

What the room `splits` of a format offers:

    plan(reader, target_bytes, start, stop)      -> list[Split]
    chunks(reader, split, mode)                  -> what the format's `columns.Collector` takes, and `Damage`s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .outcome import Damage

TARGET_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """Records `start` to `stop` (not included) of a file, from `position` on, about `bytes` long.

    `part` is the shard, or whatever else a journal consists of, that the file belongs to; empty where there is only
    one. `before` and `behind` are what the plan has found to be wrong at the edges: records missing before the first
    one, a torn tail behind the last. Who reads the split tells of it.
    """

    file: str
    position: int
    start: int
    stop: int
    bytes: int
    part: str = ""
    before: Damage | None = None
    behind: Damage | None = None


def pack(splits: list[Split], target_bytes: int) -> list[list[Split]]:
    """Splits in groups of about `target_bytes`, in their order: many small files make few tasks."""
    groups: list[list[Split]] = []
    used = target_bytes
    for split in splits:
        if used + split.bytes > target_bytes and (not groups or groups[-1]):
            groups.append([])
            used = 0
        groups[-1].append(split)
        used += split.bytes
    return groups
