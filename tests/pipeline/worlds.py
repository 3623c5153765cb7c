"""Journals of all formats that live between runs of the pipeline, and what is in tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from logwright import appendfile, kestrel, sej, versioned, yeltsin
from logwright.errors import LogwrightError
from logwright.pipeline.tables import TABLES

Row = dict[str, Any]
MINUTE_NS = 60 * 10**9
FILE_NAMES = ("file", "first_file", "last_file", "added_file", "reserved_file", "done_file", "generation")
"""Columns with the name that a file had when it was read, which rotation and recovery change."""


class World:
    """Journals of all formats. A step makes some of them grow; files are rotated, rewritten and recovered."""

    def __init__(self, root: Path, seed: object) -> None:
        self.root = root
        self.dice = random.Random(str(seed))
        self.now_ns = 1_700_000_000 * 10**9

    def step(self) -> None:
        dice = self.dice
        for act in (self.messages, self.shards, self.queues, self.stores, self.segments, self.pages):
            if dice.random() < 0.6:
                act()

    def everything(self) -> None:
        for act in (self.messages, self.shards, self.queues, self.stores, self.segments, self.pages):
            act()

    def _time(self) -> int | None:
        """A time, mostly later than those before; sometimes much earlier, sometimes none."""
        dice = self.dice
        self.now_ns += dice.randrange(MINUTE_NS)
        return dice.choice((None, self.now_ns - dice.randrange(90 * MINUTE_NS), *[self.now_ns] * 6))

    def messages(self) -> None:
        name = self.dice.choice(("orders", "deep/events"))
        with sej.Writer(self.root / name, segment_size=3000) as writer:
            for _ in range(self.dice.randrange(1, 60)):
                value = self.dice.randbytes(self.dice.randrange(80))
                writer.append(value, b"%d" % self.dice.randrange(9), self.dice.randrange(3), self._time())

    def shards(self) -> None:
        with sej.ShardedWriter(self.root / "web", bit=1, segment_size=3000) as writer:
            for _ in range(self.dice.randrange(1, 40)):
                writer.append(b"v", b"%d" % self.dice.randrange(50), timestamp=self._time())

    def queues(self) -> None:
        dice = self.dice
        for name in dice.sample(("cars", "bikes", "boats"), 2):
            with kestrel.Writer(self.root / "queues" / name) as writer:
                for _ in range(dice.randrange(1, 40)):
                    act = dice.random()
                    if act < 0.5:
                        added = self.now_ns // 10**6
                        expires = dice.choice((None, None, added + dice.randrange(10**6)))
                        writer.addx(dice.randbytes(dice.randrange(30)), added=added, expires=expires)
                    elif act < 0.7:
                        writer.remove()
                    elif act < 0.85:
                        writer.remove_tentative()
                    else:
                        xid = dice.randrange(1, 20)
                        writer.unremove(xid) if act < 0.92 else writer.confirm_remove(xid)
                if dice.random() < 0.3:
                    writer.rotate()

    def pack(self) -> None:
        """Replace the files of queues by what is left of them."""
        for name in ("cars", "bikes", "boats"):
            if (self.root / "queues" / name).exists():
                with kestrel.Writer(self.root / "queues" / name) as writer:
                    writer.pack()

    def stores(self) -> None:
        dice = self.dice

        def clock() -> int:
            self.now_ns += dice.choice((0, 1, 10**9))
            return self.now_ns

        for name in dice.sample(("prices", "limits"), 1):
            with versioned.VersionedKVStore(self.root / "stores", name, 4096, background=False, clock=clock) as store:
                for _ in range(dice.randrange(1, 30)):
                    key = f"key {dice.randrange(8)}"
                    if dice.random() < 0.2 and key in store:
                        store.remove(key)
                    else:
                        store.insert(key, {"number": dice.randrange(99), "text": "ü" * dice.randrange(20)})
                if dice.random() < 0.3:
                    store.rotate()

    def segments(self) -> None:
        dice = self.dice
        with appendfile.Writer(self.root / "readings", file_bytes=600, recovering=True) as writer:
            if dice.random() < 0.5:
                next(writer.recovery(), None)
            known = writer.current  # later segments are not checked, or their files were removed before they are read
            for _ in range(dice.randrange(1, 30)):
                writer.append(dice.randbytes(dice.randrange(1, 40)))
                if dice.random() < 0.2 and writer.has_data:
                    writer.register_checkpoint()
                if dice.random() < 0.1 and writer.checked < known:
                    writer.check_checkpoint()

    def pages(self) -> None:
        dice = self.dice
        (self.root / "pages").mkdir(parents=True, exist_ok=True)
        table, journal = self.root / "pages" / "t.ydb", self.root / "pages" / "t.jrnl"
        with yeltsin.Database(table, journal, checkpoint_bytes=dice.choice((0, 2000, 1 << 20))) as database:
            for _ in range(dice.randrange(1, 8)):
                try:
                    with database.transaction() as running:
                        page = dice.choice(database.pages())
                        running.modify(page, dice.randrange(100), dice.randbytes(dice.randrange(1, 50)))
                        if dice.random() < 0.3:
                            running.allocate()
                        if dice.random() < 0.2:
                            raise _RolledBack
                except _RolledBack:
                    pass


class _RolledBack(LogwrightError):
    """A transaction is not to be completed."""


# --- tables -----------------------------------------------------------------------------------------------------------


def read_table(out: Path, table: str, format: str = "parquet") -> pa.Table:
    """A table as readers that are not ours find it."""
    if format == "delta":
        return DeltaTable(str(out / table)).to_pyarrow_table()
    if format == "iceberg":
        catalog = load_catalog("logwright", type="sql", uri=f"sqlite:///{out}/_logwright/catalog.db")
        try:
            return catalog.load_table(("logwright", table)).scan().to_arrow()
        finally:
            catalog.close()
    return pyarrow.dataset.dataset(out / table, format="parquet", partitioning="hive").to_table()


def rows_of(out: Path, table: str, format: str = "parquet", *, with_files: bool = True) -> list[tuple[Any, ...]]:
    """The rows of a table in a fixed order; times are numbers."""
    found = read_table(out, table, format).select(TABLES[table].schema.names)
    for number, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(number, column.name, found[column.name].cast(pa.timestamp("us")).cast(pa.int64()))
    rows = found.to_pylist()
    if not with_files and table not in ("files", "damage"):
        rows = [_without_files(row) for row in rows]
    return sorted((tuple(row.values()) for row in rows), key=repr)


def _without_files(row: Row) -> Row:
    kept = {name: value for name, value in row.items() if name not in FILE_NAMES}
    if "changes" in kept:
        kept["changes"] = [(change["op"], change["position"], change["xid"]) for change in kept["changes"]]
    return kept


def tables_of(
    out: Path, format: str = "parquet", *, with_files: bool = True, tables: Any = tuple(TABLES)
) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows_of(out, table, format, with_files=with_files) for table in tables}
