"""Tables of each format to publish to: two batches, and what readers that are not ours find after them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from logwright.pipeline.publish import Batch, Publisher, TableFile, part_name

EVENTS = pa.schema(
    [
        ("a", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("kind", pa.int16()),
        ("data", pa.binary()),
        ("text", pa.string()),
    ]
)
ITEMS = pa.schema([("b", pa.int64()), ("queue", pa.string())])
SCHEMAS = {"events": EVENTS, "items": ITEMS}
BY_QUEUE = {"items": ("queue",)}
Rows = list[dict[str, Any]]


def event(number: int) -> dict[str, Any]:
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=number)
    return {"a": number, "time": time, "kind": 7, "data": b"\0%d" % number, "text": f"event {number}"}


def write(publisher: Publisher, table: str, rows: Rows, schema: pa.Schema, queue: str | None = None) -> TableFile:
    """Write a data file as a worker does."""
    name = part_name(publisher.batch)
    partition: dict[str, str | None] = {}
    if queue is not None:
        name, partition = f"queue={queue.replace(' ', '%20')}/{name}", {"queue": queue}
        schema = schema.remove(schema.get_field_index("queue"))
        rows = [{column: value for column, value in row.items() if column != "queue"} for row in rows]
    path = f"{publisher.where(table)}/{name}"
    if isinstance(publisher.filesystem, fs.LocalFileSystem):
        Path(path).parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, filesystem=publisher.filesystem)
    return TableFile(table, name, len(rows), publisher.filesystem.get_file_info(path).size, partition)


def items(numbers: range, queue: str) -> Rows:
    return [{"b": number, "queue": queue} for number in numbers]


OLD: Mapping[str, Rows] = {
    "events": [event(number) for number in range(3)],
    "items": [*items(range(2), "a b"), *items(range(2, 4), "c")],
}
NEW: Mapping[str, Rows] = {
    "events": [event(number) for number in range(5)],
    "items": [*items(range(2), "a b"), *items(range(4, 9), "c")],
}


def first_batch(publisher: Publisher) -> None:
    added = [
        write(publisher, "events", [event(number) for number in range(3)], EVENTS),
        write(publisher, "items", items(range(2), "a b"), ITEMS, "a b"),
        write(publisher, "items", items(range(2, 4), "c"), ITEMS, "c"),
    ]
    publisher.publish(Batch(1, added, [], SCHEMAS, BY_QUEUE, {"read": 1}))


def second_batch(publisher: Publisher) -> None:
    """Adds to one table, and replaces one partition of the other. A failed attempt has left a file too."""
    write(publisher, "events", [event(99)], EVENTS)
    added = [
        write(publisher, "events", [event(number) for number in range(3, 5)], EVENTS),
        write(publisher, "items", items(range(4, 9), "c"), ITEMS, "c"),
    ]
    removed = [file for file in publisher.files("items") if file.partition == {"queue": "c"}]
    publisher.publish(Batch(2, added, removed, SCHEMAS, BY_QUEUE, {"read": 2}))


def read_parquet(out: str, table: str, options: Mapping[str, str]) -> pa.Table | None:
    if not (Path(out) / table).exists():
        return None
    columns = [("queue", pa.string())] if table in BY_QUEUE else []
    partitioning = pyarrow.dataset.partitioning(pa.schema(columns), flavor="hive")
    return pyarrow.dataset.dataset(f"{out}/{table}", format="parquet", partitioning=partitioning).to_table()


def read_delta(out: str, table: str, options: Mapping[str, str]) -> pa.Table | None:
    try:
        found = DeltaTable(f"{out}/{table}", storage_options=dict(options))
    except TableNotFoundError:
        return None
    return found.to_pyarrow_table()


def read_iceberg(out: str, table: str, options: Mapping[str, str]) -> pa.Table | None:
    properties = dict(options) or {"type": "sql", "uri": f"sqlite:///{out}/_logwright/catalog.db"}
    catalog = load_catalog("logwright", **properties)
    try:
        return catalog.load_table(("logwright", table)).scan().to_arrow()
    except NoSuchTableError:
        return None
    finally:
        catalog.close()


READERS: Mapping[str, Callable[[str, str, Mapping[str, str]], pa.Table | None]] = {
    "parquet": read_parquet,
    "delta": read_delta,
    "iceberg": read_iceberg,
}


def rows_of(found: pa.Table | None) -> Rows:
    """The rows of a table in order."""
    rows: Rows = [] if found is None else found.to_pylist()
    return sorted(rows, key=lambda row: (row.get("queue", ""), row.get("a", 0), row.get("b", 0)))


def view(format: str, out: str, options: Mapping[str, str] | None = None) -> dict[str, Rows]:
    """What a reader of each table finds."""
    return {table: rows_of(READERS[format](out, table, options or {})) for table in SCHEMAS}


def checkpoint(out: Path) -> dict[str, Any] | None:
    path = out / "_logwright" / "pipeline.json"
    found: dict[str, Any] | None = json.loads(path.read_bytes()) if path.exists() else None
    return found
