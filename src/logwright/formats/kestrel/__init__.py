"""kestrel: durable queues, and their journals. Each operation is appended; doing them again gives the queue.

    from logwright import kestrel

    with kestrel.Queue("queues", "cars", sync="always") as queue:   # creates it; one process at a time
        queue.put(b"an item", expires=3600)                         # on the disk when it returns
        item = queue.open(timeout=5)                                # reserved; `get` removes it at once
        queue.confirm(item.xid)                                     # or `abort`: back to the head

    with kestrel.Writer("queues/cars", sync="always") as writer:    # one writer; creates the journal
        writer.addx(b"an item")                                     # on the disk when it returns
        writer.remove()

    with kestrel.Reader("queues/cars") as reader:                   # reads what is there, needs no lock
        for operation in reader:
            print(operation.op, operation.data)
        print(reader.queue_state().items)                           # the queue that they stand for

`AsyncQueue` is the same in asyncio. `unpark` puts back what a queue has parked, while no program has it open.
`QueuesReader` reads all queues of a directory. Loading this package loads neither pyarrow nor pyspark.
"""

from ...core.durability import ALWAYS, NONE, Sync, interval
from ...core.keep import Recovery
from ...core.staging import recover_staging
from .aio import AsyncQueue
from .items import Item
from .journal import looks_like, open_reader, recover
from .limits import Limits
from .parking import Unparked, unpark
from .queue import Queue
from .queues import QueuesReader, QueuesWriter
from .reader import Reader
from .records import Operation
from .replay import QueueItem, QueueState
from .scanner import Scanner
from .stats import Stats
from .writer import Writer

__all__ = [
    "ALWAYS",
    "NONE",
    "AsyncQueue",
    "Item",
    "Limits",
    "Operation",
    "Queue",
    "QueueItem",
    "QueueState",
    "QueuesReader",
    "QueuesWriter",
    "Reader",
    "Recovery",
    "Scanner",
    "Stats",
    "Sync",
    "Unparked",
    "Writer",
    "interval",
    "looks_like",
    "open_reader",
    "recover",
    "recover_staging",
    "unpark",
]
