"""kestrel: the journals of Kestrel's queues. Each operation on a queue is appended; doing them again gives the queue.

    from logwright import kestrel

    with kestrel.Writer("queues/cars", sync="always") as writer:    # one writer; creates the journal
        writer.addx(b"an item")                                     # on the disk when it returns
        writer.remove()

    with kestrel.Reader("queues/cars") as reader:                   # reads what is there, needs no lock
        for operation in reader:
            print(operation.op, operation.data)
        print(reader.queue_state().items)                           # the queue that they stand for

`QueuesReader` reads all queues of a directory. Loading this package loads neither pyarrow nor pyspark.
"""

from ...core.durability import ALWAYS, NONE, Sync, interval
from .journal import Recovery, looks_like, open_reader, recover
from .queues import QueuesReader, QueuesWriter
from .reader import Reader
from .records import Operation
from .replay import QueueItem, QueueState
from .writer import Writer

__all__ = [
    "ALWAYS",
    "NONE",
    "Operation",
    "QueueItem",
    "QueueState",
    "QueuesReader",
    "QueuesWriter",
    "Reader",
    "Recovery",
    "Sync",
    "Writer",
    "interval",
    "looks_like",
    "open_reader",
    "recover",
]
