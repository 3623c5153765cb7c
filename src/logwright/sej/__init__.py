"""sej: segmented message journals. Messages with a key, a type and a time, numbered from 0, appended and never changed.

    from logwright import sej

    with sej.Writer("orders", sync="always") as writer:             # one writer; creates the journal
        offset = writer.append(b"value", key=b"customer 42")        # on the disk when it returns

    with sej.Reader("orders") as reader:                            # reads what is there, needs no lock
        for message in reader:
            print(message.offset, message.timestamp, message.key, message.value)

    for message in sej.Scanner("orders", offset=42, timeout=None):  # follows what is being written
        ...

    with sej.Consumer("orders", "billing", handle) as consumer:     # remembers how far `handle` has come
        consumer.run()

    sej.clean("orders", max_age_seconds=7 * 86400)                  # removes what every consumer has passed

The same in asyncio are `AsyncWriter`, `AsyncScanner` and `AsyncConsumer`; over many journals below one root
`ShardedWriter`, `ShardedReader` and `ShardedScanner`. Loading this package loads neither pyarrow nor pyspark.
"""

from ..core.io.durability import ALWAYS, NONE, Sync, interval
from ..core.publish.staging import recover_staging
from .bytes.layout import NO_TIMESTAMP
from .bytes.records import NOW, Message
from .files.reader import Reader
from .files.scanner import Scanner
from .files.shard import Shard, ShardedReader, find_shards, parse_shard_name, shard_name, stable_hash
from .files.writer import Writer
from .format import Recovery, looks_like, open_reader, recover
from .model.aio import AsyncConsumer, AsyncScanner, AsyncWriter
from .model.consumer import Consumer
from .model.offset import Offset, list_offsets, read_offset, reset
from .model.retention import Plan, clean
from .model.shard_scanner import ShardedScanner
from .model.shard_writer import ShardedWriter

__all__ = [
    "ALWAYS",
    "NONE",
    "NOW",
    "NO_TIMESTAMP",
    "AsyncConsumer",
    "AsyncScanner",
    "AsyncWriter",
    "Consumer",
    "Message",
    "Offset",
    "Plan",
    "Reader",
    "Recovery",
    "Scanner",
    "Shard",
    "ShardedReader",
    "ShardedScanner",
    "ShardedWriter",
    "Sync",
    "Writer",
    "clean",
    "find_shards",
    "interval",
    "list_offsets",
    "looks_like",
    "open_reader",
    "parse_shard_name",
    "read_offset",
    "recover",
    "recover_staging",
    "reset",
    "shard_name",
    "stable_hash",
]
