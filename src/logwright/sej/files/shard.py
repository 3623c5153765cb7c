"""Shards: one stream of messages over several journals below a root. Their names, and reading all of them.

    ROOT/[PREFIX.]BIT.INDEX/        a sej journal each; BIT in hexadecimal (1..a), INDEX in three hexadecimal digits
    ROOT/PREFIX/                    bit 0: no sharding; with an empty prefix it is ROOT itself

A message goes to the shard whose index is the low BIT bits of its hash. The default hash, `stable_hash`, is CRC-32 of
the key, or of the value where the key is empty: the same in every run and on every machine, so that all messages of a
key stay in one shard, in order. Each shard counts its own offsets from 0, and is created when it gets a message.

All shards of a prefix have the same bit. A root that mixes them is refused, by the writer and by the readers: half of
the keys would have two homes.
"""

from __future__ import annotations

import heapq
import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...core.bytes.outcome import Damage
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Buffer, Disk
from ...core.read.chunk import Choice
from ...core.read.parts import PartsReader
from ...errors import NotFound, WrongUse, renaming_damage
from ..bytes.layout import NO_TIMESTAMP, SEGMENT_DIRECTORY
from ..bytes.records import Message
from .reader import Reader, message_as_json, raise_gap

MAX_BIT: Final = 10
_PREFIX: Final = re.compile(r"[a-zA-Z0-9_-]*")
_SHARD_NAME: Final = re.compile(r"(?:([a-zA-Z0-9_-]+)\.)?([1-9a])\.([0-3][0-9a-f]{2})")


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One journal of a root. `name` is its directory's name, empty for the root itself."""

    prefix: str
    bit: int
    index: int
    name: str
    path: Path


# --- names ----------------------------------------------------------------------------------------------------------


def check_prefix(prefix: str) -> None:
    """Raise `WrongUse` for a prefix that is not letters, digits, `_` and `-` throughout."""
    if not _PREFIX.fullmatch(prefix):
        raise WrongUse(f"shard prefix {prefix!r} has other characters than letters, digits, _ and -")


def shard_name(prefix: str, bit: int, index: int) -> str:
    """The directory name of a shard; empty when the root itself is the journal."""
    check_prefix(prefix)
    if not 0 <= bit <= MAX_BIT:
        raise WrongUse(f"shard bit {bit} is not within 0 and {MAX_BIT}")
    if not 0 <= index < 1 << bit:
        raise WrongUse(f"shard index {index} is not below 2^{bit}")
    if bit == 0:
        return prefix
    return f"{prefix}.{bit:x}.{index:03x}" if prefix else f"{bit:x}.{index:03x}"


def parse_shard_name(name: str) -> tuple[str, int, int] | None:
    """Prefix, bit and index of a shard's directory name; None for any other name.

    A name without dots is a prefix with bit 0; only its contents show whether it is a journal.
    """
    match = _SHARD_NAME.fullmatch(name)
    if match is None:
        return (name, 0, 0) if name and _PREFIX.fullmatch(name) else None
    bit, index = int(match[2], 16), int(match[3], 16)
    return (match[1] or "", bit, index) if index < 1 << bit else None


def find_shards(disk: Disk, root: Path, prefix: str | None = None) -> list[Shard]:
    """Every journal below a root whose name is a shard's, of one prefix or of all, in order."""
    found = []
    if prefix in (None, "") and disk.is_directory(root / SEGMENT_DIRECTORY):
        found.append(Shard("", 0, 0, "", root))
    for name in disk.list_directory(root):
        parsed = parse_shard_name(name)
        if parsed is None or (prefix is not None and parsed[0] != prefix):
            continue
        if disk.is_directory(root / name / SEGMENT_DIRECTORY):
            found.append(Shard(*parsed, name, root / name))
    return sorted(found)


def has_one_unsharded(disk: Disk, root: Path) -> bool:
    """Whether a directory is the root of one journal below a prefix, without sharding, and of nothing else."""
    if not disk.is_directory(root):
        return False
    names = [name for name in disk.list_directory(root) if not name.startswith(".")]
    parsed = parse_shard_name(names[0]) if len(names) == 1 else None
    return parsed is not None and parsed[1] == 0 and disk.is_directory(root / names[0] / SEGMENT_DIRECTORY)


def check_bits(root: Path, shards: Iterable[Shard]) -> None:
    """Raise `WrongUse` when the shards of a prefix do not all have the same bit."""
    seen: dict[str, Shard] = {}
    for shard in shards:
        other = seen.setdefault(shard.prefix, shard)
        if other.bit != shard.bit:
            raise WrongUse(
                f"{root} mixes shards of bit {other.bit} ({other.name or '.'}) and bit {shard.bit} ({shard.name})"
                f" for the prefix {shard.prefix!r}: move one of them elsewhere"
            )


def stable_hash(key: Buffer, value: Buffer) -> int:
    """The default hash: CRC-32 of the key, or of the value where the key is empty."""
    return zlib.crc32(key or value)


# --- what happens in a shard ----------------------------------------------------------------------------------------


def in_shard(shard: Shard, item: Any) -> Any:
    """A `Located`, `Damage` or `Problem` of a shard, with its file relative to the root."""
    return replace(item, file=f"{shard.name}/{item.file}") if shard.name else item


def naming(shard: Shard) -> AbstractContextManager[None]:
    """Add the name of the shard to the file in a `DamagedJournal`."""
    return renaming_damage(lambda file: f"{shard.name}/{file}" if shard.name else file)


def _time_of(item: Located) -> int:
    timestamp: int | None = item.record.timestamp
    return NO_TIMESTAMP if timestamp is None else timestamp


# --- reading --------------------------------------------------------------------------------------------------------


class ShardedReader(PartsReader[Message]):
    """All shards below a root opened for reading, of one prefix or of all.

    The verbs are those of `Reader`. Shards come one after the other, by prefix and index; `start` and `stop` are
    offsets within each: one for all, or one for each by name, as `find_time` gives them. The file of a place begins
    with the shard's directory. Shards that appear later are found by the next call.
    """

    format = "sej"
    part_name = "shard"

    def __init__(self, root: Path | str, prefix: str | None = None, *, disk: Disk = REAL_DISK) -> None:
        super().__init__()
        self.path = Path(root)
        self.disk = disk
        self.prefix = prefix
        if prefix is not None:
            check_prefix(prefix)
        if not self.shards():
            which = "" if prefix is None else f" of prefix {prefix!r}"
            raise NotFound(f"{self.path}: no shards{which} are here")

    def shards(self) -> list[Shard]:
        """The shards there are now, in order. `WrongUse` when they mix bits."""
        found = find_shards(self.disk, self.path, self.prefix)
        check_bits(self.path, found)
        return found

    def open(self, shard: Shard) -> Reader:
        """The reader of one shard."""
        return Reader(shard.path, disk=self.disk)

    def parts(self) -> list[tuple[str, Reader]]:
        """The shards, each with its reader."""
        return [(shard.name, self.open(shard)) for shard in self.shards()]

    messages = PartsReader.records

    def last(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The last messages of all shards together, by time, oldest first; each shard's own stay in their order.

        `damages` has the gaps that end them in a shard, or come before the oldest segment of it that was read. If there
        are fewer messages because of a gap it raises `Gap`, whose `after` has those that follow.
        """
        ends: list[list[Located]] = []
        damages: list[Damage] = []
        unseen: set[str] = set()  # the segments of which no message is among the last ones
        for shard, reader in self._each():
            with self._naming(shard):
                own = None if choice is None else choice.within(shard)
                ends.append([self._seen(shard, item) for item in reader.last_to_gap(count, own)])
                damages += [self._seen(shard, damage) for damage in reader.damages]
                unseen.update(item.file for item in ends[-1])
        heap = [(-_time_of(items[-1]), -number) for number, items in enumerate(ends) if items]
        heapq.heapify(heap)
        found: list[Located] = []
        while heap and len(found) < count:
            number = -heapq.heappop(heap)[1]
            found.append(ends[number].pop())
            if ends[number]:
                heapq.heappush(heap, (-_time_of(ends[number][-1]), -number))
        found.reverse()
        unseen -= {item.file for item in found}
        self.damages = tuple(damage for damage in damages if damage.kind != "gap" or damage.file not in unseen)
        return raise_gap(found, count, self.damages)

    def outermost(self, records: list[dict[str, Any] | None], choose: Callable[..., Any]) -> dict[str, Any] | None:
        """The earliest or the latest of some records, by time."""
        there = [record for record in records if record is not None]
        if not there:
            return None
        found: dict[str, Any] = choose(there, key=lambda r: NO_TIMESTAMP if r["timestamp"] is None else r["timestamp"])
        return found

    def number_of(self, located: Located) -> tuple[str, int]:
        """The shard that a message belongs to, and its offset there."""
        return located.file.rpartition(f"/{SEGMENT_DIRECTORY}/")[0], located.record.offset

    def as_json(self, located: Located) -> dict[str, Any]:
        """A message as `dump --json` prints it, with its shard."""
        name, _, _ = located.file.rpartition(f"/{SEGMENT_DIRECTORY}/")
        return {**message_as_json(located), "shard": name}
