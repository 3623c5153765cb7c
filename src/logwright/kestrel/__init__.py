"""kestrel: durable queues, and their journals. Each operation is appended; doing them again gives the queue.

    from logwright import kestrel

    with kestrel.Queue("queues", "cars", sync="always") as queue:   # creates it; one process at a time
        queue.put(b"an item", expires=3600)                         # on the disk when it returns
        with queue.reserve(timeout=5) as item:                      # an exception puts it back to the head
            handle(item.data)                                       # `get` would have removed it at once

    with kestrel.Writer("queues/cars", sync="always") as writer:    # one writer; creates the journal
        writer.addx(b"an item")                                     # on the disk when it returns
        writer.remove()

    with kestrel.Reader("queues/cars") as reader:                   # reads what is there, needs no lock
        for operation in reader:
            print(operation.op, operation.data)
        print(reader.queue_state().items)                           # the state of the queue

`AsyncQueue` is the same in asyncio. `unpark` puts back what a queue has parked, while no program has it open.
`QueuesReader` reads all queues of a directory. Loading this package loads neither pyarrow nor pyspark.
"""

from ..core.format import Unparked
from ..core.io.durability import ALWAYS, NONE, Sync, interval
from ..core.io.quarantine import Recovery
from ..core.publish.staging import recover_staging
from .bytes.records import Operation
from .files.queues import QueuesReader, QueuesWriter
from .files.reader import Reader
from .files.scanner import Scanner
from .files.writer import Writer
from .format import looks_like, open_reader, recover
from .model.aio import AsyncQueue
from .model.items import Item
from .model.limits import Limits
from .model.parking import unpark
from .model.queue import Queue
from .model.replay import QueueItem, QueueState
from .model.stats import Stats

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
