"""Appending messages one at a time in a Python loop, not durable.

The peers are `struct.pack` with writes to a file with a buffer of 1 MiB, as a program without a library would do it;
SQLite in one transaction; and LMDB in one transaction, if it is installed. The clock stops when all bytes have been
passed to the system.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.journals import MESSAGE_TABLE
from benchmarks.measure import KEY, MESSAGE_BYTES, VALUE, Clock, Figure, Plan, Turns
from logwright.sej.files.writer import Writer


def ours(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    with Writer(place / "append") as writer:
        append = writer.append
        with clock.running():
            for _ in range(count):
                append(VALUE, KEY)
            writer.flush()
    shutil.rmtree(place / "append")
    return clock.per_item_ns(count)


def struct_and_write(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    pack = struct.Struct(f">QqBb{len(KEY)}si{len(VALUE)}si").pack
    now = time.time_ns
    path = place / "struct"
    with path.open("wb", buffering=1 << 20) as file:
        write = file.write
        with clock.running():
            for offset in range(count):
                write(pack(offset, now(), 0, len(KEY), KEY, len(VALUE), VALUE, MESSAGE_BYTES))
            file.flush()
    path.unlink()
    return clock.per_item_ns(count)


def sqlite(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    path = place / "append.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("pragma synchronous = off")
    connection.execute(MESSAGE_TABLE)
    now = time.time_ns
    with clock.running():
        connection.executemany(
            "insert into m (timestamp, type, key, value) values (?, 0, ?, ?)",
            ((now(), KEY, VALUE) for _ in range(count)),
        )
        connection.commit()
    connection.close()
    path.unlink()
    return clock.per_item_ns(count)


def lmdb(place: Path, count: int) -> float:
    import lmdb  # type: ignore[import-not-found]  # not installed with the project: a peer where it is there

    clock = Clock(processor=True)
    environment = lmdb.open(str(place / "append.lmdb"), map_size=1 << 32, sync=False)
    with clock.running(), environment.begin(write=True) as transaction:
        for offset in range(count):
            transaction.put(offset.to_bytes(8, "big"), KEY + VALUE, append=True)
    environment.close()
    shutil.rmtree(place / "append.lmdb")
    return clock.per_item_ns(count)


def run(plan: Plan) -> list[Figure]:
    """Compare with every available peer."""
    count = plan.amount(1_000_000, 100_000)
    things = {
        "ours": lambda: ours(plan.place, count),
        "struct": lambda: struct_and_write(plan.place, count),
        "sqlite": lambda: sqlite(plan.place, count // 10),
    }
    if find_spec("lmdb"):
        things["lmdb"] = lambda: lmdb(plan.place, count // 10)
    turns = Turns(plan.rounds).run(things)
    names = {"struct": "struct.pack + buffered write", "sqlite": "SQLite executemany", "lmdb": "LMDB, one transaction"}
    goals = {"struct": 2.0}
    return [
        Figure("append", "Writer.append in a loop", turns.median("ours"), turns.median(peer), "ns", names[peer],
               goals.get(peer), spread=turns.results["ours"])
        for peer in things
        if peer != "ours"
    ]  # fmt: skip
