"""The versioned store: inserting and getting a JSON value of 100 bytes, opening, archiving, and the state at a time.

- The peers for inserting are SQLite in WAL mode with synchronous=NORMAL, which commits each insert as ours does, and
  LMDB in one single transaction, which commits nothing before the end. Both store the value as JSON text.
- For durable inserts the peer is S, a loop of write and fdatasync to a file that grows.
- For opening, it is Python's json, decoding the same entries.
- For archives, it is zlib of the standard library.
- For the state at a time, it is DuckDB with all versions in memory, on all processors. Ours reads them from the journal
  each time, on one processor. Our dictionary has values, while DuckDB's still has JSON text.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import Clock, Figure, Plan, Turns
from benchmarks.together import beside_bare
from logwright.core.io.disk import REAL_DISK, write_all
from logwright.versioned.files.archiving import new_compressor
from logwright.versioned.model.recovery import VersionedRecovery
from logwright.versioned.model.store import VersionedKVStore

VALUE: dict[str, Any] = {
    "id": 4711,
    "name": "pump 7",
    "bar": 2.5,
    "on": True,
    "tags": ["hall 3", "new"],
    "note": "fine",
}
VALUE_BYTES = len(json.dumps(VALUE))
GET_NS = 150.0
"""The longest time for a get."""
KEYS = 10_000

assert 95 <= VALUE_BYTES <= 105


def keys(count: int, different: int) -> list[str]:
    return [f"key-{number % different:09}" for number in range(count)]


def with_room(place: Path, count: int) -> VersionedKVStore:
    """A store whose buffer takes this many entries without a rotation, which is measured separately."""
    return VersionedKVStore(place / "store", "bench", capacity=count * 256 + (1 << 20))


# --- insert and get ---------------------------------------------------------------------------------------------------


def insert(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    wanted = keys(count, KEYS)
    with with_room(place, count) as store:
        put = store.insert
        with clock.running():
            for key in wanted:
                put(key, VALUE)
    shutil.rmtree(place / "store")
    return clock.per_item_ns(count)


def sqlite(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    path = place / "store.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("create table kv (k text, t integer, o text, primary key (k, t)) without rowid")
    wanted = keys(count, KEYS)
    with clock.running():
        for number, key in enumerate(wanted):
            connection.execute("insert into kv values (?, ?, ?)", (key, number, json.dumps(VALUE)))
    connection.close()
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    return clock.per_item_ns(count)


def lmdb(place: Path, count: int) -> float:
    import lmdb  # type: ignore[import-not-found]  # a peer where it is installed

    clock = Clock(processor=True)
    environment = lmdb.open(str(place / "store.lmdb"), map_size=1 << 32, sync=False)
    wanted = keys(count, KEYS)
    with clock.running(), environment.begin(write=True) as transaction:
        for number, key in enumerate(wanted):
            transaction.put(key.encode() + number.to_bytes(8, "big"), json.dumps(VALUE).encode())
    environment.close()
    shutil.rmtree(place / "store.lmdb")
    return clock.per_item_ns(count)


def get(place: Path, count: int) -> float:
    clock = Clock(processor=True)
    wanted = keys(count, KEYS)
    with with_room(place, KEYS) as store:
        for key in wanted[:KEYS]:
            store.insert(key, VALUE)
        found = store.get
        with clock.running():
            for key in wanted:
                found(key)
    shutil.rmtree(place / "store")
    return clock.per_item_ns(count)


def durable(place: Path, seconds: float) -> dict[str, float]:
    with VersionedKVStore(place / "durable", "bench", capacity=16 << 20, sync="always") as store:
        size = store.position
        store.insert("key-000000001", VALUE)
        entry = bytes(store.position - size)
        bare, ours = beside_bare(place, entry, lambda: store.insert("key-000000001", VALUE), seconds)
    shutil.rmtree(place / "durable")
    return {"S": bare, "durable": ours}


# --- opening, rotating, archiving -------------------------------------------------------------------------------------


def prepared(place: Path, count: int) -> tuple[Path, list[int], list[str]]:
    """A store of this many entries, ten for each key, with their times; and the same as lines of JSON."""
    home = place / "large"
    with VersionedKVStore(home, "bench", capacity=count * 256 + (1 << 20), high_water_mark=1.0) as store:
        times = [store.insert(key, VALUE) for key in keys(count, count // 10)]
    return home, times, [json.dumps({"t": times[0], "k": "key-000000001", "o": VALUE})] * count


def opening(home: Path, count: int) -> float:
    clock = Clock(processor=True)
    with clock.running():
        store = VersionedKVStore(home, "bench", high_water_mark=1.0)
    assert len(store) == count // 10
    store.close()
    return clock.per_item_ns(count)


def loads(lines: list[str]) -> float:
    clock = Clock(processor=True)
    decode = json.loads
    with clock.running():
        for line in lines:
            decode(line)
    return clock.per_item_ns(len(lines))


def rotating(place: Path, count: int) -> dict[str, float]:
    """How long writers wait for a rotation, and how long it takes to write and sync the same bytes."""
    with with_room(place, 2 * count) as store:
        for key in keys(count, count):
            store.insert(key, VALUE)
        store.sync()
        held_up = Clock()
        with held_up.running(), store._alone():
            store._rotate()
        state = bytes(store._buffer.memory[: store.position])
    plain = Clock()
    file = REAL_DISK.open(place / "state", "create")
    with plain.running():
        write_all(file, 0, state)
        file.sync()
        REAL_DISK.sync_directory(place)
    file.close()
    (place / "state").unlink()
    shutil.rmtree(place / "store")
    return {"rotate": held_up.seconds * 1000, "write": plain.seconds * 1000}


def compress(data: bytes, compressor: Callable[[], Any]) -> float:
    clock = Clock(processor=True)
    with clock.running():
        working = compressor()
        for start in range(0, len(data), 1 << 18):
            working.compress(data[start : start + (1 << 18)])
        working.flush()
    return clock.seconds / len(data) * 1e9


def journal_of(place: Path, count: int) -> bytes:
    """A journal whose values are not all the same."""
    with with_room(place, count) as store:
        for number, key in enumerate(keys(count, KEYS)):
            store.insert(key, {**VALUE, "id": number * 7919, "bar": number / 7, "note": f"{number * 2654435761:x}" * 2})
        data = bytes(store._buffer.memory[: store.position])
    shutil.rmtree(place / "store")
    return data


# --- the state at a time ----------------------------------------------------------------------------------------------


def timed(action: Callable[[], Any]) -> float:
    clock = Clock()
    with clock.running():
        action()
    return clock.seconds * 1000


def in_duckdb(times: list[int]) -> Callable[[int], Any]:
    """All versions of a store in DuckDB's memory, and the query for the state at a time."""
    import duckdb  # a peer, if it is installed
    import pyarrow as pa

    count = len(times)
    versions = pa.table({"t": times, "k": keys(count, count // 10), "o": [json.dumps(VALUE)] * count})
    connection = duckdb.connect()
    connection.register("given", versions)
    connection.execute("create table versions as select * from given")
    connection.unregister("given")
    question = "select k, arg_max(o, t) as o from versions where t <= ? group by k"
    return lambda at: connection.sql(question, params=[at])


def states(plan: Plan, home: Path, times: list[int]) -> list[Figure]:
    at = times[len(times) * 9 // 10]
    things: dict[str, Callable[[], float]] = {
        "arrow": lambda: timed(lambda: VersionedRecovery.load(home, store="bench").to_arrow(at)),
        "dict": lambda: timed(lambda: VersionedRecovery.load(home, store="bench").recover_at(at)),
    }
    if not find_spec("duckdb"):
        return []
    duckdb = in_duckdb(times)
    things["DuckDB to Arrow"] = lambda: timed(lambda: duckdb(at).to_arrow_table())
    things["DuckDB to a dict"] = lambda: timed(lambda: dict(duckdb(at).fetchall()))
    turns = Turns(plan.rounds).run(things)
    return [
        Figure("versioned", f"state at a time, {what}", turns.median(ours), turns.median(peer), "ms", peer, goal,
               spread=turns.results[ours])
        for what, ours, peer, goal in (
            ("as Arrow", "arrow", "DuckDB to Arrow", 3.0),
            ("as a dict", "dict", "DuckDB to a dict", 1.0),
        )
    ]  # fmt: skip


# --- all of it --------------------------------------------------------------------------------------------------------


def changes(plan: Plan) -> list[Figure]:
    count = plan.amount(500_000, 50_000)
    things: dict[str, Callable[[], float]] = {
        "insert": lambda: insert(plan.place, count),
        "SQLite, WAL, NORMAL": lambda: sqlite(plan.place, count // 10),
        "get": lambda: get(plan.place, count),
    }
    if find_spec("lmdb"):
        things["LMDB, one transaction"] = lambda: lmdb(plan.place, count)
    turns = Turns(plan.rounds).run(things, lambda: durable(plan.place, 0.1 if plan.quick else 0.5))
    ours = turns.median("insert")
    figures = [
        Figure("versioned", "insert", ours, turns.median(peer), "ns", peer, goal, spread=turns.results["insert"])
        for peer, goal in (("SQLite, WAL, NORMAL", 5.0), ("LMDB, one transaction", 0.7))
        if peer in turns.results
    ]
    figures.append(
        Figure("versioned", "get", turns.median("get"), GET_NS, "ns", "the limit", 1.0, spread=turns.results["get"])
    )
    figures.append(
        Figure("versioned", 'insert, sync="always"', turns.median("durable"), turns.median("S"), "/s",
               "S: write + fdatasync", 1.2, smaller_is_better=False, spread=turns.results["durable"])
    )  # fmt: skip
    return figures


def files(plan: Plan) -> list[Figure]:
    count = plan.amount(1_000_000, 100_000)
    home, times, lines = prepared(plan.place, count)
    journal = journal_of(plan.place, count // 10)
    turns = Turns(plan.rounds).run(
        {
            "open": lambda: opening(home, count),
            "json": lambda: loads(lines),
            "archive": lambda: compress(journal, new_compressor),
            "zlib": lambda: compress(journal, lambda: zlib.compressobj(5)),
        },
        lambda: rotating(plan.place, count // 10),
    )
    found = [
        Figure("versioned", what, turns.median(ours), turns.median(peer), unit, name, goal, spread=turns.results[ours])
        for what, ours, peer, unit, name, goal in (
            ("open, per entry", "open", "json", "ns", "json.loads of the same", 5.0),
            ("archive, per byte", "archive", "zlib", "ns", "zlib level 5", 1.7),
            ("rotation holds up writers", "rotate", "write", "ms", "write + sync of the state", None),
        )
    ]
    found += states(plan, home, times)
    shutil.rmtree(home)
    return found


def run(plan: Plan) -> list[Figure]:
    """Compare with every available peer."""
    return changes(plan) + files(plan)
