"""Random journals of the five formats, with several files, awkward bytes and values of mixed types."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logwright import appendfile, kestrel, sej, versioned, yeltsin

FIRST_NS = 1_768_464_000_000_000_000
KEYS = ("ada", "björn", "chen", "it's", "")
WORDS = ("gear", "bolt", "GEAR", "größe", "x" * 40)


def field(chance: random.Random) -> Any:
    """A value of a field: mostly a number, sometimes another type."""
    kinds: list[Callable[[], Any]] = [
        lambda: chance.randrange(-5, 6),
        lambda: chance.randrange(-50, 50) / 4,
        lambda: chance.choice(WORDS),
        lambda: str(chance.randrange(-5, 6)),
        lambda: chance.choice([True, False, None, [1, 2], {"deep": chance.randrange(5)}]),
    ]
    return chance.choice([kinds[0], kinds[0], *kinds])()


def value(chance: random.Random) -> Any:
    """An object of a few fields, of which some are missing."""
    names = [name for name in ("price", "item", "in stock", "nested") if chance.random() < 0.8]
    return {name: {"deep": field(chance)} if name == "nested" else field(chance) for name in names}


def payload(chance: random.Random) -> bytes:
    """JSON, or bytes that are no JSON, or no text."""
    if chance.random() < 0.15:
        return chance.choice([b"", b"not JSON", b"\xff\xfe gear", b"{", b"12", b'"bolt"'])
    return json.dumps(value(chance), ensure_ascii=chance.random() < 0.5).encode()


def write_sej(path: Path, chance: random.Random, count: int = 120) -> None:
    with sej.Writer(path, segment_size=2000) as writer:
        for number in range(count):
            timestamp = None if chance.random() < 0.1 else FIRST_NS + (number + chance.randrange(-3, 4)) * 1_000_000_007
            key = chance.choice(KEYS).encode()
            writer.append(payload(chance), key=key, type=chance.randrange(4), timestamp=timestamp)


def write_shards(path: Path, chance: random.Random) -> None:
    with sej.ShardedWriter(path, "web", 2) as writer:
        for number in range(120):
            key = chance.choice(KEYS).encode()
            writer.append(payload(chance), key=key, type=chance.randrange(4), timestamp=FIRST_NS + number)


def write_kestrel(path: Path, chance: random.Random) -> None:
    for queue in ("ada", "chen"):
        for part in range(2):
            with kestrel.Writer(path / queue) as writer:
                for number in range(30):
                    expires = None if chance.random() < 0.5 else FIRST_NS // 10**6 + number * 1000
                    writer.addx(payload(chance), added=FIRST_NS // 10**6 + number, expires=expires)
                    if chance.random() < 0.5:
                        writer.remove()
                    if chance.random() < 0.2:
                        writer.remove_tentative()
                        writer.confirm_remove(number + 1)
            if not part:
                (path / queue).rename(path / f"{queue}.{FIRST_NS // 10**6}")


def write_versioned(path: Path, chance: random.Random) -> None:
    now = FIRST_NS
    options: dict[str, Any] = {"capacity": 4096, "background": False, "clock": lambda: now}
    with versioned.VersionedKVStore(path, "fleet", **options) as store:
        for _ in range(120):
            now += chance.randrange(1, 10**9)
            key = chance.choice(KEYS[:-1])
            if chance.random() < 0.1:
                store.remove(key)
            else:
                store.insert(key, value(chance) if chance.random() < 0.9 else chance.choice(WORDS))


def write_appendfile(path: Path, chance: random.Random) -> None:
    with appendfile.Writer(path, file_bytes=1000, recovering=True) as writer:
        next(writer.recovery(), None)
        for _ in range(100):
            writer.append(payload(chance) or b"-")
            if chance.random() < 0.2:
                writer.register_checkpoint()


def write_yeltsin(path: Path, chance: random.Random) -> None:
    path.mkdir()
    pages = [65566 + number * 65536 for number in range(4)]
    with yeltsin.TransactionJournal(path / "pages.jrnl") as journal:
        for number in range(60):
            operations: list[yeltsin.Operation] = []
            for _ in range(chance.randrange(1, 4)):
                page = chance.choice(pages)
                image = chance.choice(WORDS)[:4].encode()
                if chance.random() < 0.5:
                    operations.append(yeltsin.Allocate(page, chance.randrange(9), chance.randrange(9)))
                else:
                    operations.append(yeltsin.Modify(page, chance.randrange(99), bytes(len(image)), image))
            timestamp = FIRST_NS // 10**9 + number + chance.randrange(3)
            journal.append(operations, timestamp=timestamp, end=chance.choice([0xFE, 0xFF]), flags=1)


WRITERS: dict[str, Callable[[Path, random.Random], None]] = {
    "sej": write_sej,
    "shards": write_shards,
    "kestrel": write_kestrel,
    "versioned": write_versioned,
    "appendfile": write_appendfile,
    "yeltsin": write_yeltsin,
}
