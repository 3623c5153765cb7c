"""appendfile: a rotating journal with checkpoints. Recovery returns appended records until they are checked.

    from logwright import appendfile

    journal, recovery = await appendfile.AppendJournal.open("orders")   # one process at a time
    async for segment in recovery:                                      # what was not checked the last time
        replay(segment.records)
    await journal.append(b"an order")
    checkpoint = await journal.register_checkpoint()                    # a segment ends here
    await journal.check_checkpoint()                                    # and it is not needed any more
    await journal.close()

    with appendfile.Writer("orders", recovering=True) as writer:        # the same without asyncio
        for segment in writer.recovery():
            replay(segment.records)

    with appendfile.Reader("orders") as reader:                         # changes nothing, needs no lock
        for record in reader:
            print(record)

Loading this package loads neither pyarrow nor pyspark.
"""

from ..core.io.durability import ALWAYS, NONE, Sync, interval
from ..core.io.quarantine import Recovery as Recovered
from .bytes.records import Checkpoint, Data, Record
from .files.reader import Reader
from .files.scanner import Scanner
from .files.writer import Writer
from .format import looks_like, open_reader, recover
from .model.aio import AppendJournal, AsyncRecovery
from .model.recovery import Recovery
from .model.replay import Segment

__all__ = [
    "ALWAYS",
    "NONE",
    "AppendJournal",
    "AsyncRecovery",
    "Checkpoint",
    "Data",
    "Reader",
    "Record",
    "Recovered",
    "Recovery",
    "Scanner",
    "Segment",
    "Sync",
    "Writer",
    "interval",
    "looks_like",
    "open_reader",
    "recover",
]
